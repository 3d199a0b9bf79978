/* SPDX-License-Identifier: MIT */
/* What the tests of the suite share: see conformance.h. */

#include <stdlib.h>

#include "store/conformance.h"

fl_loop *loop;
fl_store *store;
fl_shard *shard;

static struct block {
    struct block *next;
    max_align_t data[];
} * remembered;

static unsigned answers;

static void *room_for(size_t size)
{
    struct block *block = malloc(sizeof *block + size);
    CHECK(block);
    block->next = remembered;
    remembered = block;
    return block->data;
}

void *remember(const void *data, size_t size)
{
    void *copy = room_for(size);
    if (size > 0)
        memcpy(copy, data, size);
    return copy;
}

static void forget(void)
{
    for (struct block *block = remembered, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    remembered = NULL;
}

/* --- The frame ---------------------------------------------------------------------------------------------------- */

fl_shard *attach(uint32_t number)
{
    fl_shard *which;
    CHECK_EQ(fl_store_attach(store, number, loop, &which), 0);
    return which;
}

static void set(fl_loop *on, void *arg)
{
    CHECK(on == loop);
    *(bool *)arg = true;
}

void detach(fl_shard *which)
{
    bool gone = false;
    fl_store_detach(which, set, &gone);
    CHECK(!gone);
    while (!gone)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
}

void begin(void)
{
    answers = 0;
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    fl_loop_hold(loop); /* it sleeps while a store works elsewhere */
    CHECK_EQ(under_test.open(2, &store), 0);
    CHECK_EQ(fl_store_shards(store), 2);
    shard = attach(0);
}

void end(void)
{
    detach(shard);
    fl_store_close(store);
    if (under_test.remove)
        under_test.remove();
    CHECK_EQ(fl_loop_check(loop, stderr), 0);
    fl_loop_free(loop);
    forget();
}

void reopen(void)
{
    detach(shard);
    fl_store_close(store);
    CHECK_EQ(under_test.reopen(&store), 0);
    shard = attach(0);
}

/* --- Answers ------------------------------------------------------------------------------------------------------ */

static fl_bytes remember_bytes(fl_bytes bytes)
{
    return (fl_bytes){remember(bytes.data, bytes.size), bytes.size};
}

static fl_row remember_row(fl_row row)
{
    row.ns = remember_bytes(row.ns);
    row.name = remember_bytes(row.name);
    row.body = remember_bytes(row.body);
    return row;
}

static const fl_row *remember_rows(const fl_row *rows, size_t count)
{
    fl_row *copy = remember(rows, count * sizeof *rows);
    for (size_t i = 0; i < count; i++)
        copy[i] = remember_row(rows[i]);
    return copy;
}

static const fl_dead_row *remember_dead(const fl_dead_row *rows, size_t count)
{
    fl_dead_row *copy = remember(rows, count * sizeof *rows);
    for (size_t i = 0; i < count; i++) {
        copy[i].row = remember_row(rows[i].row);
        copy[i].reason = remember_bytes(rows[i].reason);
    }
    return copy;
}

static void remember_found(fl_store_request *request)
{
    for (size_t i = 0; i < request->find.count; i++)
        if (request->find.wants[i].found)
            request->find.wants[i].row = remember_row(request->find.wants[i].row);
}

static void remember_claim(fl_store_request *request)
{
    fl_progress *progress = &request->claim.progress;
    request->claim.windows = remember(request->claim.windows, request->claim.window_count * sizeof(uint64_t));
    fl_store_count *counts = remember(request->claim.counts, request->claim.count_count * sizeof *counts);
    for (size_t i = 0; i < request->claim.count_count; i++)
        counts[i].ns.data = remember(counts[i].ns.data, counts[i].ns.size);
    request->claim.counts = counts;
    progress->keep = remember(progress->keep, progress->keep_count * sizeof(uint64_t));
}

static const char *remember_text(const char *text)
{
    return remember(text, strlen(text) + 1);
}

static void remember_meeting(fl_store_request *request)
{
    size_t count = request->meet.member_count, shards = fl_store_shards(store);
    fl_store_member *members = remember(request->meet.members, count * sizeof *members);
    fl_store_holder *holders = remember(request->meet.holders, shards * sizeof *holders);
    for (size_t i = 0; i < count; i++) {
        members[i].address = remember_text(request->meet.members[i].address);
        members[i].about = remember_text(request->meet.members[i].about);
    }
    for (size_t i = 0; i < shards; i++)
        holders[i].owner = remember_text(request->meet.holders[i].owner);
    request->meet.members = members;
    request->meet.holders = holders;
}

static void remember_answer(fl_store_request *request)
{
    if (request->op == FL_STORE_CLAIM)
        remember_claim(request);
    else if (request->op == FL_STORE_FIND)
        remember_found(request);
    else if (request->op == FL_STORE_LIST)
        request->list.rows = remember_rows(request->list.rows, request->list.count);
    else if (request->op == FL_STORE_DEAD_LIST)
        request->dead_list.rows = remember_dead(request->dead_list.rows, request->dead_list.count);
    else if (request->op == FL_STORE_COUNT)
        request->count.windows =
            remember(request->count.windows, request->count.count * sizeof *request->count.windows);
    else if (request->op == FL_STORE_MEET)
        remember_meeting(request);
}

static void take_answer(fl_store_request *request)
{
    struct asked *asked = request->arg;
    CHECK(!asked->answered);
    if (request->result == 0)
        remember_answer(request);
    else
        CHECK(request->result < 0 && request->message[0] != 0);
    asked->answered = true;
    asked->place = ++answers;
}

static void take_rows(fl_store_request *request, const fl_row *rows, size_t count)
{
    struct asked *asked = request->arg;
    CHECK(!asked->answered && count > 0);
    asked->rows_called++;
    if (asked->count + count > asked->room) {
        fl_row *old = asked->rows;
        asked->room = (asked->count + count) * 2;
        asked->rows = room_for(asked->room * sizeof *old);
        if (old)
            memcpy(asked->rows, old, asked->count * sizeof *old);
    }
    for (size_t i = 0; i < count; i++)
        asked->rows[asked->count++] = remember_row(rows[i]);
}

void ask(fl_shard *which, struct asked *asked)
{
    asked->request.done = take_answer;
    asked->request.arg = asked;
    if (asked->request.op == FL_STORE_LOAD)
        asked->request.load.rows = take_rows;
    fl_store_submit(which, &asked->request);
    CHECK(!asked->answered && asked->rows_called == 0);
}

int await(struct asked *asked)
{
    while (!asked->answered)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    return asked->request.result;
}

int perform(fl_shard *which, struct asked *asked)
{
    ask(which, asked);
    return await(asked);
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

struct asked simple(enum fl_store_op op, uint64_t version)
{
    return (struct asked){.request = {.op = op, .version = version}};
}

struct asked to_claim(const char *owner, uint64_t claim_us, bool force)
{
    struct asked asked = simple(FL_STORE_CLAIM, 0);
    asked.request.claim.owner = owner;
    asked.request.claim.claim_us = claim_us;
    asked.request.claim.force = force;
    return asked;
}

struct asked to_write(uint64_t version, const fl_store_change *changes, size_t count)
{
    struct asked asked = simple(FL_STORE_WRITE, version);
    asked.request.write.changes = changes;
    asked.request.write.count = count;
    return asked;
}

struct asked to_find(fl_store_want *wants, size_t count)
{
    struct asked asked = simple(FL_STORE_FIND, 0);
    asked.request.find.wants = wants;
    asked.request.find.count = count;
    return asked;
}

struct asked to_list(uint64_t window)
{
    struct asked asked = simple(FL_STORE_LIST, 0);
    asked.request.list.window = window;
    asked.request.list.until_us = FL_STORE_TIME_END;
    asked.request.list.limit = 1000;
    return asked;
}

struct asked to_load(const uint64_t *windows, size_t count)
{
    struct asked asked = simple(FL_STORE_LOAD, 0);
    asked.request.load.windows = windows;
    asked.request.load.window_count = count;
    asked.request.load.until_us = FL_STORE_TIME_END;
    asked.request.load.limit = SIZE_MAX;
    return asked;
}

struct asked to_refile(uint64_t version, uint64_t window, size_t limit)
{
    struct asked asked = simple(FL_STORE_REFILE, version);
    asked.request.refile.window = window;
    asked.request.refile.shift = fl_window_shift(window) - FL_WINDOW_STEP;
    asked.request.refile.limit = limit;
    return asked;
}

struct asked to_record(uint64_t version, const fl_progress *progress)
{
    struct asked asked = simple(FL_STORE_RECORD, version);
    asked.request.record.progress = *progress;
    return asked;
}

struct asked to_list_dead(void)
{
    struct asked asked = simple(FL_STORE_DEAD_LIST, 0);
    asked.request.dead_list.limit = 1000;
    return asked;
}

struct asked to_meet(const char *address, uint64_t incarnation, uint64_t claim_us, bool join)
{
    struct asked asked = simple(FL_STORE_MEET, 0);
    asked.request.meet.address = address;
    asked.request.meet.incarnation = incarnation;
    asked.request.meet.claim_us = claim_us;
    asked.request.meet.join = join;
    return asked;
}

/* --- Rows --------------------------------------------------------------------------------------------------------- */

fl_bytes text(const char *s)
{
    return (fl_bytes){s, strlen(s)};
}

fl_row make_row(uint64_t seq, int64_t at_us, unsigned shift)
{
    char body[32];
    int size = snprintf(body, sizeof body, "body %" PRIu64, seq);
    return (fl_row){.key = {at_us, seq},
                    .id = {at_us, seq},
                    .window = fl_window_of(at_us, shift),
                    .ns = text("ns"),
                    .body = {remember(body, (size_t)size), (size_t)size}};
}

fl_row make_named(uint64_t seq, int64_t at_us, unsigned shift, const char *name)
{
    fl_row row = make_row(seq, at_us, shift);
    row.name = text(remember(name, strlen(name) + 1));
    return row;
}

fl_row move_row(fl_row row, uint64_t seq, int64_t at_us, unsigned shift)
{
    row.key = (fl_key){at_us, seq};
    row.window = fl_window_of(at_us, shift);
    return row;
}

fl_dead_row make_dead(fl_row row, const char *reason)
{
    return (fl_dead_row){.row = row, .died_us = row.key.at_us + 5, .reason = text(reason)};
}

bool same_key(fl_key a, fl_key b)
{
    return a.at_us == b.at_us && a.seq == b.seq;
}

bool same_bytes(fl_bytes a, fl_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

bool same_row(const fl_row *a, const fl_row *b)
{
    return same_key(a->key, b->key) && same_key(a->id, b->id) && a->window == b->window && same_bytes(a->ns, b->ns) &&
           same_bytes(a->name, b->name) && same_bytes(a->body, b->body);
}

/* --- The common ways ---------------------------------------------------------------------------------------------- */

uint64_t claim(fl_shard *which, const char *owner)
{
    struct asked asked = to_claim(owner, HOUR_US, true);
    CHECK_EQ(perform(which, &asked), 0);
    return asked.request.claim.version;
}

void put(fl_shard *which, uint64_t version, const fl_row *rows, size_t count)
{
    fl_store_change *changes = room_for(count * sizeof *changes);
    for (size_t i = 0; i < count; i++)
        changes[i] = (fl_store_change){.put = &rows[i]};
    struct asked asked = to_write(version, changes, count);
    CHECK_EQ(perform(which, &asked), 0);
}

void write_one(fl_shard *which, uint64_t version, fl_store_change change)
{
    struct asked asked = to_write(version, &change, 1);
    CHECK_EQ(perform(which, &asked), 0);
}

static bool find_one(fl_shard *which, fl_store_want want, fl_row *ret)
{
    struct asked asked = to_find(&want, 1);
    CHECK_EQ(perform(which, &asked), 0);
    if (want.found && ret)
        *ret = want.row;
    return want.found;
}

bool is_there(fl_shard *which, fl_key id, fl_row *ret)
{
    return find_one(which, (fl_store_want){.id = id}, ret);
}

bool is_named(fl_shard *which, const char *name, fl_row *ret)
{
    return find_one(which, (fl_store_want){.ns = text("ns"), .name = text(name)}, ret);
}

size_t load(fl_shard *which, uint64_t window, fl_row **ret)
{
    struct asked asked = to_load(&window, 1);
    CHECK_EQ(perform(which, &asked), 0);
    CHECK(!asked.request.load.more);
    if (ret)
        *ret = asked.rows;
    return asked.count;
}
