/* SPDX-License-Identifier: MIT */
/* A node without a network, on virtual time: two workers on one loop, a store in memory, and ports that lead nowhere. After every
 * turn of the loop, the node must be legal (node_check()). */

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "test.h"

enum { WORKERS = 2, SHARDS = 3, SPACES = 20 };
#define START_US INT64_C(1800000000000000)

static struct bed {
    fl_virtual_clock time;
    fl_loop *loop;
    fl_store *store;
    struct node node;
    unsigned done;
    uint64_t random;
} bed;

/* --- The world ---------------------------------------------------------------------------------------------------- */

static int64_t wall_us(fl_wall_clock *clock)
{
    (void)clock;
    return START_US + (int64_t)(bed.time.clock.now_ns(&bed.time.clock) / 1000);
}

static int random_bytes(void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bed.random = bed.random * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)bytes)[i] = (unsigned char)(bed.random >> 56);
    }
    return 0;
}

static void publish(struct worker *worker, enum event_kind kind, uint32_t shard, const fl_durable *timer,
                    fl_bytes reason)
{
    (void)worker, (void)kind, (void)shard, (void)timer, (void)reason;
}

static void withdraw(struct worker *worker, const struct shard *shard, bool begun)
{
    (void)worker, (void)shard, (void)begun;
}

static size_t response_room(const struct worker *worker)
{
    (void)worker;
    return 1 << 30;
}

static const struct node_ports ports = {
    .publish = publish,
    .withdraw = withdraw,
    .settings_read = settings_read_stored,
    .settings_write = settings_write_stored,
    .response_room = response_room,
    .random = random_bytes,
};

/* Runs the loop until something has been done. */
static void await_done(unsigned done)
{
    for (int turns = 0; bed.done < done; turns++) {
        CHECK(turns < 100000);
        CHECK_EQ(fl_loop_run_once(bed.loop, true), 0);
        const char *wrong = node_check(&bed.node);
        if (wrong)
            test_fail(__FILE__, __LINE__, "%s", wrong);
    }
}

static void worker_done(struct worker *worker)
{
    (void)worker;
    bed.done++;
}

static void set_up(void)
{
    static fl_wall_clock wall = {wall_us};
    char message[256];
    memset(&bed, 0, sizeof bed);
    fl_virtual_clock_init(&bed.time, 1000);
    CHECK_EQ(fl_loop_new(&(fl_loop_config){.clock = &bed.time.clock}, &bed.loop), 0);
    CHECK_EQ(fl_store_open("memory:", &(fl_store_config){.shards = SHARDS, .clock = &wall}, &bed.store, message,
                           sizeof message),
             0);
    struct node_config config = {
        .ports = &ports,
        .store = bed.store,
        .clock = &wall,
        .workers = WORKERS,
        .claimant = "test",
        .incarnation = 77,
        .engine = {.claim_us = 10000000,
                   .retry = {.initial_us = 1000000, .multiplier_1000 = 2000, .max_interval_us = 60000000}},
        .max_memory = 64 << 20};
    CHECK_EQ(node_new(&bed.node, &config), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        CHECK_EQ(worker_new(&bed.node.workers[i], bed.loop), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        CHECK_EQ(shards_start(&bed.node.workers[i]), 0);
    settings_load(&bed.node.workers[0], worker_done);
    await_done(1);
    CHECK_EQ(atomic_load(&bed.node.here), SHARDS);
}

static void tear_down(void)
{
    bed.done = 0;
    atomic_store(&bed.node.stopping, true);
    for (unsigned i = 0; i < WORKERS; i++) {
        pull_stop(&bed.node.workers[i]);
        leases_stop(&bed.node.workers[i]);
        shards_stop(&bed.node.workers[i], worker_done);
    }
    await_done(WORKERS);
    CHECK_EQ(atomic_load(&bed.node.here), 0);
    for (unsigned i = 0; i < WORKERS; i++) {
        CHECK_EQ(bed.node.workers[i].under_way, 0);
        worker_free(&bed.node.workers[i]);
    }
    node_free(&bed.node);
    fl_store_close(bed.store);
    fl_loop_free(bed.loop);
}

/* --- Timers ------------------------------------------------------------------------------------------------------- */

struct create {
    struct shard_call call;
    fl_op op;
    char name[16];
    int result;
};

static void render(struct shard_call *call)
{
    struct create *create = (struct create *)call;
    create->result = create->op.result;
}

static void created(struct shard_call *call)
{
    CHECK_EQ(((struct create *)call)->result, 0);
    bed.done++;
}

static void create(struct create *create, struct worker *home, unsigned number)
{
    *create = (struct create){.call = {.errand.home = home, .render = render, .done = created}, .result = 1};
    snprintf(create->name, sizeof create->name, "t%u", number);
    create->op =
        (fl_op){.kind = FL_OP_CREATE, .timer = {.ns = FL_TEXT("pull"), .name = {create->name, strlen(create->name)}}};
    create->op.timer.due_us = node_now(&bed.node) + 1000000;
    create->call.batch.ops = &create->op;
    create->call.batch.count = 1;
    create->call.shard = shard_of_name(&bed.node, create->op.timer.ns, create->op.timer.name);
    shard_call_submit(&create->call);
}

struct got {
    struct leasing leasing;
    struct ack acks[100];
    char texts[100][LEASE_TEXT + 1];
};
static struct got *got;

static void write_leased(struct out *out, const struct leased *leased, size_t count)
{
    (void)out;
    CHECK(leased->timer->due_us <= node_now(&bed.node));
    lease_format(leased, got->texts[count]);
    ack_parse(&got->acks[count], (fl_bytes){got->texts[count], LEASE_TEXT});
}

static void leased(struct leasing *leasing)
{
    (void)leasing;
    bed.done++;
}

static void released(struct leasing *leasing)
{
    (void)leasing;
}

static size_t lease(unsigned worker, uint32_t max)
{
    bed.done = 0;
    memset(got, 0, sizeof *got);
    got->leasing = (struct leasing){.worker = &bed.node.workers[worker],
                                    .space = space_of(&bed.node, (fl_bytes)FL_TEXT("pull")),
                                    .max = max,
                                    .lease_us = 5000000,
                                    .write = write_leased,
                                    .done = leased,
                                    .release = released};
    leasing_begin(&got->leasing, 3000000);
    await_done(1);
    return got->leasing.take.asker.count;
}

static void acknowledged(struct acks *acks)
{
    (void)acks;
    bed.done++;
}

static size_t acknowledge(unsigned worker, size_t count)
{
    struct acks acks = {.count = count, .list = got->acks, .done = acknowledged};
    size_t known = 0;
    bed.done = 0;
    acks_settle(&acks, &bed.node.workers[worker]);
    await_done(1);
    for (size_t i = 0; i < count; i++)
        known += got->acks[i].known;
    return known;
}

TEST(timers_are_leased_when_they_are_due_and_acknowledged_once)
{
    static struct create creates[30];
    set_up();
    got = calloc(1, sizeof *got);
    for (unsigned i = 0; i < 30; i++)
        create(&creates[i], &bed.node.workers[i % WORKERS], i);
    await_done(1 + 30);
    size_t taken = 0;
    while (taken < 30) {
        size_t count = lease((unsigned)taken % WORKERS, 7);
        CHECK(count > 0 && count <= 7);
        CHECK_EQ(acknowledge(1, count), count);
        CHECK_EQ(acknowledge(0, count), 0); /* each is known once */
        taken += count;
    }
    CHECK_EQ(taken, 30);
    CHECK_EQ(lease(0, 7), 0);
    free(got);
    tear_down();
}

TEST(a_lease_that_expires_is_unknown_and_its_timer_comes_again)
{
    static struct create one;
    set_up();
    got = calloc(1, sizeof *got);
    create(&one, &bed.node.workers[0], 1);
    await_done(2);
    CHECK_EQ(lease(0, 7), 1);
    struct ack first = got->acks[0];
    CHECK_EQ(lease(1, 7), 0); /* for three seconds: the lease lasts for five */
    CHECK_EQ(lease(1, 7), 1);
    CHECK(first.serial != got->acks[0].serial);
    struct ack second = got->acks[0];
    got->acks[0] = first;
    CHECK_EQ(acknowledge(0, 1), 0);
    got->acks[0] = second;
    CHECK_EQ(acknowledge(0, 1), 1);
    free(got);
    tear_down();
}

TEST(leases_that_were_never_given_are_unknown)
{
    static const char *const texts[] = {"",
                                        "x",
                                        "0000004d0000000000000000000000000001",
                                        "0000004dffff00000000000000000000000f",
                                        "0000004e0000000000000000000000000001",
                                        "0000004d000100ffffff0000000000000001"};
    set_up();
    got = calloc(1, sizeof *got);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        ack_parse(&got->acks[i], (fl_bytes){texts[i], strlen(texts[i])});
    CHECK_EQ(acknowledge(0, sizeof texts / sizeof *texts), 0);
    free(got);
    tear_down();
}

/* --- Settings ----------------------------------------------------------------------------------------------------- */

static void changed(void *arg, int result)
{
    (void)arg;
    CHECK_EQ(result, 0);
    bed.done++;
}

static void change(unsigned space, uint32_t max_rate)
{
    char name[16];
    struct settings *settings = calloc(1, sizeof *settings);
    *settings = no_settings;
    settings->max_rate = max_rate;
    settings->secrets[0] = (fl_bytes){calloc(1, 32), 32};
    settings->secret_count = 1;
    snprintf(name, sizeof name, "space%u", space);
    settings_change(&bed.node.workers[space % WORKERS], (fl_bytes){name, strlen(name)}, settings, 0, changed, NULL);
}

static void load(unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        bed.done = 0;
        settings_load(&bed.node.workers[0], worker_done);
        await_done(1);
        while (bed.node.workers[0].under_way > 0)
            CHECK_EQ(fl_loop_run_once(bed.loop, true), 0);
    }
}

TEST(reading_all_settings_again_takes_no_memory)
{
    set_up();
    for (unsigned i = 0; i < SPACES; i++)
        change(i, 5);
    await_done(1 + SPACES);
    load(20);
    size_t before = mallinfo2().uordblks;
    load(500);
    CHECK(mallinfo2().uordblks < before + 20000);
    tear_down();
}

TEST(replaced_settings_are_freed)
{
    set_up();
    bed.done = 0;
    for (unsigned n = 0; n < 50; n++)
        change(1, 1 + n);
    await_done(50);
    size_t before = mallinfo2().uordblks;
    bed.done = 0;
    for (unsigned n = 0; n < 500; n++) {
        change(1, 100 + n);
        await_done(1 + n);
    }
    CHECK(mallinfo2().uordblks < before + 40000);
    struct space *space = space_if_any(&bed.node, (fl_bytes)FL_TEXT("space1"));
    CHECK_EQ(atomic_load(&space->settings)->max_rate, 599);
    tear_down();
}
