/* SPDX-License-Identifier: MIT */
/* A process that uses the embedded store is killed, again and again: what it was told is there, and batches are whole. */

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store/conformance.h"
#include "store/sqlite/base.h"
#include "store/sqlite/place.h"

enum { BATCH = 20, WINDOWS = 5 };

static int open_again(fl_store **ret)
{
    char message[300] = "";
    int r = fl_store_open(folder_url(), NULL, ret, message, sizeof message);
    if (r < 0)
        printf("# %s\n", message);
    return r;
}

static int open_new(uint32_t shards, fl_store **ret)
{
    new_folder();
    return fl_store_open(folder_url(), &(fl_store_config){.shards = shards}, ret, NULL, 0);
}

const struct store_under_test under_test = {.open = open_new, .reopen = open_again, .remove = remove_folder};

__attribute__((constructor)) static void make_small(void)
{
    fl__sqlite_tuning.fresh_max = 50;
    fl__sqlite_tuning.checkpoint_frames = 50;
    fl__sqlite_tuning.fan = 2;
}

static fl_row row_of(uint64_t seq)
{
    char name[30];
    snprintf(name, sizeof name, "name %llu", (unsigned long long)seq);
    fl_row row = make_row(seq, (int64_t)(seq % WINDOWS) << FL_WINDOW_SHIFT_NEAR, FL_WINDOW_SHIFT_NEAR);
    if (seq % 4 == 0)
        row.name = (fl_bytes){remember(name, strlen(name)), strlen(name)};
    return row;
}

/* Writes batches from `seq` on until it is killed, and says after each where it is. */
static void write_until_killed(uint64_t seq, int pipe)
{
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    fl_loop_hold(loop);
    CHECK_EQ(open_again(&store), 0);
    shard = attach(0);
    uint64_t version = claim(shard, "me");
    for (;;) {
        fl_row rows[BATCH];
        for (int i = 0; i < BATCH; i++)
            rows[i] = row_of(seq += 2);
        put(shard, version, rows, BATCH);
        if (write(pipe, &seq, sizeof seq) != sizeof seq)
            _exit(1);
    }
}

static uint64_t last_told(int pipe, uint64_t seq)
{
    uint64_t told;
    while (read(pipe, &told, sizeof told) == sizeof told)
        seq = told;
    return seq;
}

/* Lets a child write and kills it. Gives the last number it was told of. */
static uint64_t kill_once(uint64_t seq, uint64_t *seed)
{
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        write_until_killed(seq, ends[1]);
    }
    close(ends[1]);
    /* Half of the children are killed while they begin, the others when they have written something, however slow the
     * machine is. */
    if (random_below(seed, 2) == 0)
        CHECK_EQ(poll(&(struct pollfd){.fd = ends[0], .events = POLLIN}, 1, -1), 1);
    struct timespec moment = {0, (long)random_below(seed, 60 * MILLISECOND)};
    nanosleep(&moment, NULL);
    CHECK_EQ(kill(child, SIGKILL), 0);
    seq = last_told(ends[0], seq);
    close(ends[0]);
    CHECK_EQ(waitpid(child, NULL, 0), child);
    return seq;
}

/* All rows up to `told` and no part of a batch. Gives the last one that is there. */
static uint64_t check_rows(uint64_t told)
{
    uint64_t count = 0, last = 0;
    for (uint64_t i = 0; i < WINDOWS; i++) {
        fl_row *rows;
        size_t some = load(shard, fl_window_of((int64_t)i << FL_WINDOW_SHIFT_NEAR, FL_WINDOW_SHIFT_NEAR), &rows);
        for (size_t j = 0; j < some; j++) {
            fl_row expected = row_of(rows[j].key.seq);
            CHECK(same_row(&rows[j], &expected));
            if (rows[j].key.seq > last)
                last = rows[j].key.seq;
        }
        count += some;
    }
    CHECK(last >= told && count % BATCH == 0);
    CHECK_EQ(count * 2, last);
    for (uint64_t seq = 4; seq <= last; seq += last / 50 / 4 * 4 + 4) {
        fl_row expected = row_of(seq);
        fl_store_want want = {.ns = expected.ns, .name = expected.name};
        struct asked asked = to_find(&want, 1);
        CHECK_EQ(perform(shard, &asked), 0);
        CHECK(want.found && same_row(&want.row, &expected));
    }
    return last;
}

TEST(a_process_that_is_killed_loses_nothing_it_was_told)
{
    uint64_t seed = 1, seq = 0;
    CHECK_EQ(open_new(2, &store), 0);
    fl_store_close(store);
    for (int i = 0; i < SCALE(60, 10); i++) {
        uint64_t told = kill_once(seq, &seed);
        CHECK_EQ(fl_loop_new(NULL, &loop), 0);
        fl_loop_hold(loop);
        CHECK_EQ(open_again(&store), 0);
        shard = attach(0);
        seq = check_rows(told);
        detach(shard);
        fl_store_close(store);
        fl_loop_free(loop);
    }
    CHECK(seq > 0);
    remove_folder();
}
