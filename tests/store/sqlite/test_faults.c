/* SPDX-License-Identifier: MIT */
/* The disk fails, or the power: what the embedded store has acknowledged is there, what it has refused is not, whatever
 * happens and wherever. Everything that is done when there is much of something is done at once, so that it is met. */

#include "store/conformance.h"
#include "store/sqlite/base.h"
#include "store/sqlite/disk.h"
#include "store/sqlite/life.h"
#include "store/sqlite/place.h"

static enum disk_loss loss;
static uint64_t loss_seed;

static int open_new(uint32_t shards, fl_store **ret)
{
    char message[300];
    new_folder();
    return fl_store_open(folder_url(), &(fl_store_config){.shards = shards}, ret, message, sizeof message);
}

static int open_again(fl_store **ret)
{
    char message[300] = "";
    disk_power_on(loss, loss_seed);
    int r = fl_store_open(folder_url(), NULL, ret, message, sizeof message);
    if (r < 0)
        printf("# %s\n", message);
    return r;
}

static void remove_all(void)
{
    disk_power_on(DISK_KEPT, 0);
    remove_folder();
}

const struct store_under_test under_test = {.open = open_new, .reopen = open_again, .remove = remove_all};

__attribute__((constructor)) static void make_small(void)
{
    fl__sqlite_tuning = (struct sqlite_tuning){.chunk_size = 300,
                                               .hash_mask = UINT64_MAX,
                                               .fresh_max = 6,
                                               .rows_max = 40,
                                               .fan = 2,
                                               .step_ns = 0,
                                               .checkpoint_frames = 16,
                                               .log_frames = 32,
                                               .log_frames_max = 256,
                                               .finish_chunks = 2};
    disk_install();
}

static struct life life;

enum { STEPS = 30 };

/* --- Power -------------------------------------------------------------------------------------------------------- */

/* A life that ends at the n-th sync. Gives whether it came to that. */
static bool lose_power(uint64_t n, uint64_t seed)
{
    loss_seed = n;
    begin();
    life_begin(&life, seed);
    CHECK_EQ(life_claim(&life, shard), 0);
    disk_fail(DISK_POWER, n, 1);
    for (int i = 0; i < STEPS && !disk_failed(); i++) {
        int r = life_step(&life, shard);
        if (disk_failed() && r < 0)
            life.doubt = true; /* whatever it says: nobody has heard it */
        else
            CHECK_EQ(r, 0);
    }
    bool lost = disk_failed();
    reopen();
    CHECK_EQ(life_look(&life, shard), 0);
    CHECK_EQ(life_step(&life, shard), 0);
    CHECK_EQ(life_look(&life, shard), 0);
    end();
    return lost;
}

static void lose_power_everywhere(enum disk_loss what, uint64_t seed)
{
    loss = what;
    uint64_t n = 1;
    while (lose_power(n, seed))
        n += SCALE(1, 7);
    CHECK(n > STEPS);
}

TEST(what_was_not_synced_is_lost_at_every_sync)
{
    lose_power_everywhere(DISK_LOST, 1);
}

TEST(what_was_not_synced_is_there_all_the_same_at_every_sync)
{
    lose_power_everywhere(DISK_KEPT, 2);
}

TEST(what_was_not_synced_is_there_in_part_at_every_sync)
{
    lose_power_everywhere(DISK_MIXED, 3);
    lose_power_everywhere(DISK_MIXED, 4);
}

TEST(the_power_fails_while_a_store_is_made)
{
    bool lost = true;
    for (uint64_t n = 1; lost; n++) {
        loss = n % 2 ? DISK_LOST : DISK_MIXED;
        loss_seed = n;
        CHECK_EQ(fl_loop_new(NULL, &loop), 0);
        fl_loop_hold(loop);
        disk_fail(DISK_POWER, n, 1);
        int r = open_new(3, &store);
        lost = disk_failed();
        if (r == 0)
            fl_store_close(store);
        if (lost)
            CHECK(r < 0);
        disk_power_on(loss, n);
        CHECK_EQ(fl_store_open(folder_url(), &(fl_store_config){.shards = 3}, &store, NULL, 0), 0);
        shard = attach(2);
        life_begin(&life, n);
        CHECK_EQ(life_claim(&life, shard), 0);
        CHECK_EQ(life_step(&life, shard), 0);
        end();
    }
}

/* --- Errors ------------------------------------------------------------------------------------------------------- */

/* A life in which the n-th operation of a kind fails, and perhaps all after it for a while. Gives whether one did. */
static bool meet_error(enum disk_fault fault, uint64_t n, unsigned every, uint64_t seed)
{
    loss = DISK_KEPT;
    begin();
    life_begin(&life, seed);
    CHECK_EQ(life_claim(&life, shard), 0);
    disk_fail(fault, n, every);
    for (int i = 0, refused = 0; i < STEPS && refused < 3; i++) {
        int r = life_step(&life, shard);
        refused += r < 0;
        CHECK(r == 0 || disk_failed());
        if (r < 0 && fault == DISK_FULL)
            CHECK_EQ(r, FL_STORE_FULL);
        if (life.doubt)
            break;
    }
    bool met = disk_failed();
    disk_heal();
    if (n % 2)
        reopen();
    CHECK_EQ(life_look(&life, shard), 0);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(life_step(&life, shard), 0);
    reopen();
    CHECK_EQ(life_look(&life, shard), 0);
    end();
    return met;
}

static void meet_errors(enum disk_fault fault, unsigned every, uint64_t seed)
{
    uint64_t n = 1;
    while (meet_error(fault, n, every, seed))
        n += 1 + n / SCALE(20, 5);
    CHECK(n > STEPS);
}

TEST(a_write_that_fails_is_met_anywhere)
{
    meet_errors(DISK_WRITE, 0, 5);
}

TEST(a_disk_that_cannot_be_written_recovers)
{
    meet_errors(DISK_WRITE, 1, 6);
}

TEST(a_full_disk_refuses_and_goes_on_when_there_is_room)
{
    meet_errors(DISK_FULL, 1, 7);
}

TEST(a_sync_that_fails_is_met_anywhere)
{
    meet_errors(DISK_SYNC, 0, 8);
}

TEST(a_disk_that_cannot_be_synced_recovers)
{
    meet_errors(DISK_SYNC, 1, 9);
}

TEST(a_read_that_fails_is_met_anywhere)
{
    meet_errors(DISK_READ, 0, 10);
}

/* The sync of a commit fails, and so does that of the second attempt: it is refused. Then the power fails, and what was not
 * synced is there all the same. */
TEST(what_was_refused_because_of_a_sync_does_not_turn_up_later)
{
    unsigned refused = 0;
    for (uint64_t n = 1; n < 60; n++) {
        loss = n % 4 ? DISK_KEPT : DISK_MIXED;
        begin();
        life_begin(&life, n);
        CHECK_EQ(life_claim(&life, shard), 0);
        disk_fail(DISK_SYNC, n, 2);
        int r = 0;
        for (int i = 0; i < STEPS && r == 0; i++)
            r = life_step(&life, shard);
        refused += fl_store_failure(r) == FL_FAILURE_REFUSED;
        disk_fail(DISK_POWER, 1, 1);
        struct asked last = simple(FL_STORE_RENEW, life.version);
        perform(shard, &last);
        reopen();
        CHECK_EQ(life_look(&life, shard), 0);
        end();
    }
    CHECK(refused > 10);
}
