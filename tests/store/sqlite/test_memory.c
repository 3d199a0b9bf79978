/* SPDX-License-Identifier: MIT */
/* The embedded store runs out of memory: its own, and SQLite's. */

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <foliot/alloc.h>

#include "store/conformance.h"
#include "store/sqlite/base.h"
#include "store/sqlite/life.h"
#include "store/sqlite/place.h"

/* --- Memory that runs out ----------------------------------------------------------------------------------------- */

static atomic_long countdown; /* the allocation that fails; 0: none */
static atomic_bool lasting, failed;

static bool refused(void)
{
    if (atomic_load(&countdown) <= 0 || atomic_fetch_sub(&countdown, 1) != 1)
        return false;
    atomic_store(&failed, true);
    if (atomic_load(&lasting))
        atomic_store(&countdown, 1);
    return true;
}

static void fail_at(long n, bool and_after)
{
    atomic_store(&failed, false);
    atomic_store(&lasting, and_after);
    atomic_store(&countdown, n);
}

static bool heal(void)
{
    atomic_store(&lasting, false);
    atomic_store(&countdown, 0);
    return atomic_load(&failed);
}

static void *take(size_t size)
{
    return refused() ? NULL : malloc(size);
}

static void *resize(void *block, size_t size)
{
    return refused() ? NULL : realloc(block, size);
}

static sqlite3_mem_methods original;

static void *sqlite_take(int size)
{
    return refused() ? NULL : original.xMalloc(size);
}

static void *sqlite_resize(void *block, int size)
{
    return refused() ? NULL : original.xRealloc(block, size);
}

/* Before SQLite is used, and once. */
static void install(void)
{
    static bool installed;
    if (installed)
        return;
    installed = true;
    CHECK_EQ(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &original), SQLITE_OK);
    sqlite3_mem_methods methods = original;
    methods.xMalloc = sqlite_take;
    methods.xRealloc = sqlite_resize;
    CHECK_EQ(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods), SQLITE_OK);
    CHECK_EQ(fl_set_allocator(&(fl_allocator){.alloc = take, .resize = resize, .release = free}), 0);
}

/* --- The store ---------------------------------------------------------------------------------------------------- */

static int open_again(fl_store **ret)
{
    char message[300] = "";
    int r = fl_store_open(folder_url(), NULL, ret, message, sizeof message);
    CHECK(r == 0 || message[0]);
    return r;
}

static int open_new(uint32_t shards, fl_store **ret)
{
    install();
    new_folder();
    return fl_store_open(folder_url(), &(fl_store_config){.shards = shards}, ret, NULL, 0);
}

const struct store_under_test under_test = {.open = open_new, .reopen = open_again, .remove = remove_folder};

__attribute__((constructor)) static void make_small(void)
{
    fl__sqlite_tuning = (struct sqlite_tuning){.chunk_size = 300,
                                               .hash_mask = UINT64_MAX,
                                               .fresh_max = 8,
                                               .rows_max = 40,
                                               .fan = 2,
                                               .step_ns = 0,
                                               .checkpoint_frames = 16,
                                               .log_frames = 32,
                                               .log_frames_max = 256,
                                               .finish_chunks = 2};
}

static struct life life;

/* What an operation says that had no memory. */
static bool is_excused(int r)
{
    return r == 0 || (atomic_load(&failed) && (r == FL_NO_MEMORY || r == FL_OUTCOME_UNKNOWN));
}

static void live_without_memory(long n, bool and_after)
{
    fail_at(n, and_after);
    for (int i = 0, refusals = 0; i < 12 && refusals < 3 && !life.doubt; i++) {
        int r = life_step(&life, shard);
        CHECK(is_excused(r));
        refusals += r < 0;
    }
    heal();
    CHECK_EQ(life_look(&life, shard), 0);
}

TEST(requests_that_find_no_memory_change_nothing)
{
    for (int and_after = 0; and_after < 2; and_after++) {
        begin();
        life_begin(&life, 1);
        CHECK_EQ(life_claim(&life, shard), 0);
        for (long n = 1; n < 6000 && life.now.count < 3000; n += 1 + n / SCALE(25, 6)) {
            live_without_memory(n, and_after);
            if (life.now.count > 300) { /* and it begins again */
                end();
                begin();
                life_begin(&life, (uint64_t)n);
                CHECK_EQ(life_claim(&life, shard), 0);
            }
        }
        reopen();
        CHECK_EQ(life_look(&life, shard), 0);
        end();
    }
}

TEST(reading_finds_no_memory_and_then_finds_everything)
{
    begin();
    life_begin(&life, 2);
    CHECK_EQ(life_claim(&life, shard), 0);
    for (int i = 0; i < 60; i++)
        CHECK_EQ(life_step(&life, shard), 0);
    bool met = true;
    for (long n = 1; met; n += 1 + n / SCALE(20, 4)) {
        fail_at(n, false);
        int r = life_look(&life, shard);
        CHECK(is_excused(r));
        met = heal();
    }
    CHECK_EQ(life_look(&life, shard), 0);
    end();
}

static void set(fl_loop *on, void *arg)
{
    (void)on;
    *(bool *)arg = true;
}

/* Opens, attaches and takes a copy with an allocation failing somewhere. */
static bool open_without_memory(long n)
{
    fail_at(n, false);
    int r = open_again(&store);
    CHECK(is_excused(r));
    if (r == 0) {
        r = fl_store_attach(store, 0, loop, &shard);
        CHECK(is_excused(r));
        if (r == 0) {
            bool gone = false;
            struct asked copy = simple(FL_STORE_BACKUP, 0);
            char path[300];
            snprintf(path, sizeof path, "%s", folder_file("copy"));
            copy.request.backup.path = path;
            r = perform(shard, &copy);
            CHECK(is_excused(r));
            CHECK_EQ(remove(path), r == 0 ? 0 : -1);
            fl_store_detach(shard, set, &gone);
            while (!gone)
                CHECK_EQ(fl_loop_run_once(loop, true), 0);
        }
        fl_store_close(store);
    }
    return heal();
}

TEST(opening_and_copying_find_no_memory)
{
    begin();
    life_begin(&life, 3);
    CHECK_EQ(life_claim(&life, shard), 0);
    for (int i = 0; i < 60; i++)
        CHECK_EQ(life_step(&life, shard), 0);
    detach(shard);
    fl_store_close(store);
    for (long n = 1; open_without_memory(n); n += 1 + n / SCALE(30, 5))
        ;
    CHECK_EQ(open_again(&store), 0);
    shard = attach(0);
    CHECK_EQ(life_look(&life, shard), 0);
    end();
}

TEST(a_store_that_could_not_be_made_can_be_made)
{
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    install();
    bool met = true;
    for (long n = 1; met; n += 1 + n / SCALE(30, 5)) {
        fail_at(n, false);
        int r = open_new(2, &store);
        CHECK(is_excused(r));
        met = heal();
        if (r < 0)
            CHECK_EQ(fl_store_open(folder_url(), &(fl_store_config){.shards = 2}, &store, NULL, 0), 0);
        CHECK_EQ(fl_store_shards(store), 2);
        CHECK(!fl_store_is_shared(store));
        fl_store_close(store);
        remove_folder();
    }
    fl_loop_free(loop);
}
