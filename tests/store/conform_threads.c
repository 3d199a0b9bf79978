/* SPDX-License-Identifier: MIT */
/* The suite, with several threads: owners on loops of their own that take shards from each other.
 *
 * Each owner reads from its claim how many rows there are, and then adds one at a time together with the count. If a write
 * of an owner that has lost its shard took effect, or one of its rows without its count, the numbers would not agree. */

#include <pthread.h>

#include "store/conformance.h"

enum { OWNERS = 4, SHARDS = 2, ROUNDS = 20, WRITES = 10 };

struct owner {
    pthread_t thread;
    char name[16];
    uint32_t number; /* of its shard */
    fl_loop *loop;
    fl_shard *shard;
    bool answered;
    fl_progress progress; /* as it was claimed, or written since */
    uint64_t version;
    unsigned written;
};

static void answered(fl_store_request *request)
{
    struct owner *owner = request->arg;
    owner->answered = true;
    if (request->op == FL_STORE_CLAIM) {
        CHECK_EQ(request->result, 0);
        CHECK(request->claim.version > owner->version);
        owner->version = request->claim.version;
        owner->progress = request->claim.progress;
    }
}

static int get_done(struct owner *owner, fl_store_request *request)
{
    request->done = answered;
    request->arg = owner;
    owner->answered = false;
    fl_store_submit(owner->shard, request);
    while (!owner->answered)
        CHECK_EQ(fl_loop_run_once(owner->loop, true), 0);
    return request->result;
}

/* The number of the row is recorded before the row is written, so that no owner after this one gives it out again. */
static bool add_row(struct owner *owner)
{
    uint64_t seq = owner->progress.seq_limit;
    fl_row row = {.key = {(int64_t)seq, seq}, .id = {(int64_t)seq, seq}, .ns = {"ns", 2}};
    row.window = fl_window_of((int64_t)seq, 25);
    fl_store_change change = {.put = &row};
    fl_progress next = {.seq_limit = seq + 2};
    fl_store_request finish = {.op = FL_STORE_FINISH, .version = owner->version, .finish = {.record = next}};
    fl_store_request write = {
        .op = FL_STORE_WRITE, .version = owner->version, .write = {.changes = &change, .count = 1}};
    int r = get_done(owner, &finish);
    owner->progress = next;
    if (r == 0)
        r = get_done(owner, &write);
    CHECK(r == 0 || r == FL_SHARD_LOST);
    owner->written += r == 0;
    return r == 0;
}

static void set(fl_loop *on, void *arg)
{
    (void)on;
    *(bool *)arg = true;
}

static void *own(void *arg)
{
    struct owner *owner = arg;
    for (int round = 0; round < ROUNDS; round++) {
        fl_store_request request = {.op = FL_STORE_CLAIM, .claim = {.owner = owner->name, .force = true}};
        get_done(owner, &request);
        for (int i = 0; i < WRITES && add_row(owner);)
            i++;
    }
    bool gone = false;
    fl_store_detach(owner->shard, set, &gone);
    while (!gone)
        CHECK_EQ(fl_loop_run_once(owner->loop, true), 0);
    return NULL;
}

static void start_owner(struct owner *owner, uint32_t i)
{
    *owner = (struct owner){.number = i % SHARDS};
    snprintf(owner->name, sizeof owner->name, "owner %u", i);
    CHECK_EQ(fl_loop_new(NULL, &owner->loop), 0);
    fl_loop_hold(owner->loop);
    CHECK_EQ(fl_store_attach(store, owner->number, owner->loop, &owner->shard), 0);
    CHECK_EQ(pthread_create(&owner->thread, NULL, own, owner), 0);
}

TEST(owners_on_threads_of_their_own_never_write_into_each_others_shards)
{
    begin();
    static struct owner owners[OWNERS];
    unsigned written[SHARDS] = {0};
    for (uint32_t i = 0; i < OWNERS; i++)
        start_owner(&owners[i], i);
    for (uint32_t i = 0; i < OWNERS; i++) {
        CHECK_EQ(pthread_join(owners[i].thread, NULL), 0);
        fl_loop_free(owners[i].loop);
        written[owners[i].number] += owners[i].written;
    }
    for (uint32_t i = 0; i < SHARDS; i++) {
        fl_shard *reader = attach(i);
        struct asked asked = to_claim("reader", HOUR_US, true);
        CHECK_EQ(perform(reader, &asked), 0);
        CHECK(asked.request.claim.progress.seq_limit >= 2 + 2 * written[i]);
        CHECK_EQ(load(reader, fl_window_of(0, 25), NULL), written[i]);
        CHECK(written[i] >= WRITES); /* somebody was the last */
        detach(reader);
    }
    end();
}
