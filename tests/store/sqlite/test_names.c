/* SPDX-License-Identifier: MIT */
/* The index of names beside a model of it: many names, few names to a run, hashes that collide, windows that go, and the
 * file closed and rolled back in between. On the file itself, without threads. */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "store/conformance.h"
#include "store/sqlite/names/internal.h"
#include "store/sqlite/place.h"
#include "store/sqlite/worker.h"
#include "wheel/allocator.h"

static int open_none(uint32_t shards, fl_store **ret)
{
    (void)shards, (void)ret;
    return FL_INVALID_ARGUMENT;
}

const struct store_under_test under_test = {.open = open_none};

enum { WINDOWS = 40, CHANGES = 64, NAME = 12 };

static struct base *base;
static uint64_t seed, seq;
static fl_key *keys; /* by name; seq 0: not there */
static size_t key_count;
static char names[CHANGES][NAME];

/* --- The file ----------------------------------------------------------------------------------------------------- */

static void open_file(void)
{
    char message[300];
    int r = fl__base_open(folder_file("shard-0000.db"), NULL, &base, message, sizeof message);
    if (r < 0)
        printf("# %s\n", message);
    CHECK_EQ(r, 0);
}

static void run(fl_store_request request)
{
    request.version = base->version;
    CHECK_EQ(fl__request_run(base, fl_wall_clock_system(), &request), 0);
    CHECK_EQ(request.result, 0);
    fl__answer_free(request.store_data);
}

static void begin_file(size_t count, struct sqlite_tuning tuning, uint64_t from)
{
    fl_store *made;
    new_folder();
    CHECK_EQ(fl_store_open(folder_url(), &(fl_store_config){.shards = 1}, &made, NULL, 0), 0);
    fl_store_close(made);
    fl__sqlite_tuning = tuning;
    seed = from;
    seq = 0;
    key_count = count;
    keys = calloc(count, sizeof *keys);
    open_file();
    fl_store_request claim = {.op = FL_STORE_CLAIM};
    claim.claim.owner = "me";
    CHECK_EQ(fl__base_begin(base), 0);
    run(claim);
    CHECK_EQ(fl__base_commit(base), 0);
}

static void end_file(void)
{
    fl__base_close(base);
    remove_folder();
    free(keys);
}

/* --- Names -------------------------------------------------------------------------------------------------------- */

static fl_bytes name_of(size_t i, char *out)
{
    return (fl_bytes){out, (size_t)snprintf(out, NAME, "n%zu", i)};
}

/* One that is wanted, and what the model says. */
static void check_name(size_t i)
{
    char name[NAME];
    fl_store_want want = {.ns = text("ns"), .name = name_of(i, name)};
    fl_store_request find = {.op = FL_STORE_FIND};
    find.find.wants = &want;
    find.find.count = 1;
    CHECK_EQ(fl__request_run(base, NULL, &find), 0);
    if (want.found != (keys[i].seq > 0) || (want.found && !same_key(want.row.key, keys[i])))
        test_fail(__FILE__, __LINE__, "name %zu: found %d, %llu; expected %llu", i, want.found,
                  (unsigned long long)want.row.key.seq, (unsigned long long)keys[i].seq);
    fl__answer_free(find.store_data);
}

/* Nobody may ever hear of a name in the file that it is not there, whatever is under way. */
static void check_not_absent(size_t i)
{
    char name[NAME];
    if (keys[i].seq > 0 && fl__names_absent(base, &(fl_store_want){.ns = text("ns"), .name = name_of(i, name)}))
        test_fail(__FILE__, __LINE__, "name %zu is there, and is said to be absent", i);
}

static void check_names(size_t step)
{
    for (size_t i = random_below(&seed, step); i < key_count; i += step)
        check_name(i);
}

/* Creates, moves or cancels names, each once. */
static void write_some(fl_key *after)
{
    fl_store_change changes[CHANGES] = {0};
    fl_row rows[CHANGES];
    size_t at = random_below(&seed, key_count), step = 1 + random_below(&seed, key_count / CHANGES - 1);
    for (size_t i = 0; i < CHANGES; i++) {
        size_t name = (at + i * step) % key_count;
        fl_key old = after[name];
        changes[i].remove = old;
        after[name] = (fl_key){0};
        if (old.seq > 0 && random_below(&seed, 4) == 0)
            continue;
        int64_t time = (int64_t)random_below(&seed, (uint64_t)WINDOWS << FL_WINDOW_SHIFT_NEAR);
        rows[i] = make_row(seq += 2, time, FL_WINDOW_SHIFT_NEAR);
        rows[i].name = name_of(name, names[i]);
        rows[i].body = (fl_bytes){"", 0};
        changes[i].put = &rows[i];
        after[name] = rows[i].key;
    }
    fl_store_request write = {.op = FL_STORE_WRITE};
    write.write.changes = changes;
    write.write.count = CHANGES;
    run(write);
}

static void finish_window(uint64_t window, fl_key *after)
{
    struct fl_store_span span = {fl_window_of((int64_t)window << FL_WINDOW_SHIFT_NEAR, FL_WINDOW_SHIFT_NEAR), true};
    fl_store_request finish = {.op = FL_STORE_FINISH};
    finish.finish.spans = &span;
    finish.finish.span_count = 1;
    run(finish);
    for (size_t i = 0; i < key_count; i++)
        if (after[i].seq > 0 && fl_window_of(after[i].at_us, FL_WINDOW_SHIFT_NEAR) == span.window)
            after[i] = (fl_key){0};
}

/* A transaction; one in twenty is rolled back. */
static void turn(void)
{
    fl_key *after = malloc(key_count * sizeof *after);
    memcpy(after, keys, key_count * sizeof *after);
    CHECK_EQ(fl__base_begin(base), 0);
    write_some(after);
    if (random_below(&seed, 100) == 0)
        finish_window(random_below(&seed, WINDOWS), after);
    for (size_t i = 0; i < key_count; i += 7)
        check_not_absent(i);
    CHECK_EQ(fl__background_step(base, 0), 0);
    for (size_t i = 3; i < key_count; i += 7)
        check_not_absent(i);
    if (random_below(&seed, 20) == 0) {
        fl__base_rollback(base);
        CHECK_EQ(fl__base_ready(base), 0);
        free(after);
    } else {
        CHECK_EQ(fl__base_commit(base), 0);
        free(keys);
        keys = after;
    }
}

static void live(size_t turns)
{
    for (size_t i = 0; i < turns; i++) {
        turn();
        for (int j = 0; j < 20; j++)
            check_name(random_below(&seed, key_count));
        for (int j = 0; j < 20; j++)
            check_not_absent(random_below(&seed, key_count));
        if (random_below(&seed, 150) == 0) {
            fl__base_close(base);
            open_file();
        }
    }
    check_names(1);
    fl__base_close(base);
    open_file();
    check_names(1);
}

static struct sqlite_tuning with(uint32_t fresh_max, uint32_t fan, uint64_t mask)
{
    struct sqlite_tuning tuning = fl__sqlite_tuning;
    tuning.fresh_max = fresh_max;
    tuning.rows_max = fresh_max * 8;
    tuning.fan = fan;
    tuning.hash_mask = mask;
    tuning.step_ns = 0;
    return tuning;
}

static size_t runs(void)
{
    size_t count = 0;
    for (const struct run *each = base->names->runs; each; each = each->next)
        count++;
    return count;
}

static struct sqlite_tuning defaults;

__attribute__((constructor)) static void remember_defaults(void)
{
    defaults = fl__sqlite_tuning;
}

TEST(names_are_found_whatever_is_written_merged_and_forgotten)
{
    for (uint64_t i = 1; i <= SCALE(6, 2); i++) {
        fl__sqlite_tuning = defaults;
        begin_file(5000, with(100, 2 + (uint32_t)i % 3, UINT64_MAX), i);
        live(1000);
        end_file();
    }
}

TEST(names_whose_hashes_collide_are_told_apart)
{
    static const uint64_t masks[] = {(uint64_t)0xfff << 52, (uint64_t)0xff << 56, (uint64_t)3 << 62};
    for (size_t i = 0; i < 3; i++) {
        fl__sqlite_tuning = defaults;
        begin_file(2000, with(200, 2, masks[i]), i);
        live(SCALE(200, 60));
        end_file();
    }
}

/* --- Asked from another thread ------------------------------------------------------------------------------------ */

enum { ANCHORS = 500, STRANGERS = 500 };

struct prober {
    pthread_t thread;
    atomic_bool end;
    atomic_size_t absent, asked; /* of strangers */
};

static bool is_absent(const char *kind, size_t i)
{
    char name[32];
    fl_bytes bytes = {name, (size_t)snprintf(name, sizeof name, "%s-%zu", kind, i)};
    return fl__names_absent(base, &(fl_store_want){.ns = text("ns"), .name = bytes});
}

/* Anchors are there all the time, strangers never are. */
static void *probe(void *arg)
{
    struct prober *prober = arg;
    for (size_t i = 0; !atomic_load(&prober->end); i++) {
        CHECK(!is_absent("anchor", i % ANCHORS));
        prober->absent += is_absent("stranger", i % STRANGERS);
        prober->asked++;
    }
    return NULL;
}

static void write_anchors(void)
{
    static char kept[ANCHORS][NAME];
    CHECK_EQ(fl__base_begin(base), 0);
    for (size_t i = 0; i < ANCHORS; i++) {
        fl_row row = make_row(seq += 2, (int64_t)WINDOWS << FL_WINDOW_SHIFT_NEAR, FL_WINDOW_SHIFT_NEAR);
        row.name = (fl_bytes){kept[i], (size_t)snprintf(kept[i], NAME, "anchor-%zu", i)};
        fl_store_change change = {.put = &row};
        fl_store_request write = {.op = FL_STORE_WRITE, .write = {.changes = &change, .count = 1}};
        run(write);
    }
    CHECK_EQ(fl__base_commit(base), 0);
}

TEST(another_thread_may_ask_at_any_moment_whether_a_name_is_absent)
{
    fl__sqlite_tuning = defaults;
    begin_file(5000, with(100, 2, UINT64_MAX), 1);
    write_anchors();
    struct prober prober = {0};
    CHECK_EQ(pthread_create(&prober.thread, NULL, probe, &prober), 0);
    while (prober.asked < 100)
        sched_yield();
    for (size_t i = 0; i < SCALE(600, 100); i++)
        turn();
    atomic_store(&prober.end, true);
    CHECK_EQ(pthread_join(prober.thread, NULL), 0);
    CHECK(prober.absent > 0);
    check_names(1);
    end_file();
}

TEST(what_is_not_there_is_known_to_be_absent_when_nothing_is_under_way)
{
    fl__sqlite_tuning = defaults;
    begin_file(5000, with(100, 2, UINT64_MAX), 1);
    write_anchors();
    for (size_t i = 0; i < 200; i++)
        turn();
    size_t absent = 0;
    for (size_t i = 0; i < STRANGERS; i++)
        absent += is_absent("stranger", i);
    CHECK(absent > STRANGERS * 9 / 10); /* filters are not exact */
    end_file();
}

/* --- Many --------------------------------------------------------------------------------------------------------- */

/* Some names that were not there, in one window. */
static void write_names(size_t first)
{
    fl_store_change changes[CHANGES] = {0};
    fl_row rows[CHANGES];
    for (size_t i = 0; i < CHANGES; i++) {
        rows[i] =
            (fl_row){.key = {(int64_t)(first + i), seq += 2}, .ns = text("ns"), .name = name_of(first + i, names[i])};
        rows[i].id = rows[i].key;
        rows[i].window = fl_window_of(0, FL_WINDOW_SHIFT_NEAR);
        keys[first + i] = rows[i].key;
        changes[i].put = &rows[i];
    }
    fl_store_request write = {.op = FL_STORE_WRITE};
    write.write.changes = changes;
    write.write.count = CHANGES;
    run(write);
}

/* Names that come once, in one window, with everything that can be merged merged. Gives how much memory was in use at most,
 * if that is watched. */
static uint64_t write_many(size_t count)
{
    uint64_t most = 0;
    for (size_t i = 0; i < count; i += CHANGES) {
        if (i % (CHANGES * 64) == 0)
            CHECK_EQ(fl__base_begin(base), 0);
        write_names(i);
        CHECK_EQ(fl__background_step(base, 0), 0);
        most = memory.bytes > most ? memory.bytes : most;
        if (i % (CHANGES * 64) == CHANGES * 63)
            CHECK_EQ(fl__base_commit(base), 0);
    }
    if (base->in_transaction)
        CHECK_EQ(fl__base_commit(base), 0);
    return most;
}

TEST(many_names_are_found_in_few_runs_and_never_take_more_than_a_byte_and_a_half_each)
{
    size_t count = SCALE(800000, 60000) / CHANGES * CHANGES;
    uint32_t fresh = (uint32_t)count / 600;
    fl__sqlite_tuning = defaults;
    begin_file(count, with(fresh, 4, UINT64_MAX), 1);
    fl__base_close(base);
    memory_install();
    open_file();
    uint64_t most = write_many(count);
    size_t runs_most = 4 * 6;
    CHECK(runs() <= runs_most);
    uint64_t rest =
        (64 << 10) + runs_most * PIECE_BYTES; /* windows, slots, scratch; a piece of each that is not full */
    if (most > count + count / 2 + rest)
        test_fail(__FILE__, __LINE__, "%llu bytes for %zu names", (unsigned long long)most, count);
    check_names(SCALE(37, 7));
    uint64_t before = memory.bytes;
    fl__base_close(base);
    CHECK_EQ(memory.bytes, 0);
    open_file();
    check_names(SCALE(37, 7));
    CHECK(memory.bytes <= before + (64 << 10));
    fl__base_close(base);
    memory_remove();
    open_file();
    end_file();
}

/* A large merge that is nearly over. */
static bool nearly_merged(void)
{
    for (const struct merge *each = base->names->merges; each; each = each->next)
        if (each->out->blocks > 180 && each->out->done > each->out->blocks * 3 / 4)
            return true;
    return false;
}

/* Of all filters, in memory. */
static size_t pieces(void)
{
    size_t count = 0;
    for (const struct run *each = base->names->runs; each; each = each->next)
        for (size_t i = 0; i * each->piece_blocks < each->blocks; i++)
            count += each->pieces[i] != NULL;
    return count;
}

TEST(a_merge_that_is_gone_on_with_has_no_filters_of_what_is_merged)
{
    enum { ALL = 600 * CHANGES };
    fl__sqlite_tuning = defaults;
    begin_file(ALL, with(2000, 4, UINT64_MAX), 1);
    for (size_t i = 0; !nearly_merged(); i += CHANGES) {
        CHECK(i < ALL);
        CHECK_EQ(fl__base_begin(base), 0);
        write_names(i);
        CHECK_EQ(fl__background_step(base, 0), 0);
        CHECK_EQ(fl__base_commit(base), 0);
    }
    size_t before = pieces();
    fl__base_close(base);
    open_file();
    CHECK_EQ(pieces(), before);
    check_names(1);
    end_file();
}

static void execute(const char *sql)
{
    char *message = NULL;
    if (sqlite3_exec(base->db, sql, NULL, NULL, &message) != SQLITE_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, message);
}

static void check_lines(uint64_t least, uint64_t most)
{
    for (const struct run *each = base->names->runs; each; each = each->next)
        CHECK(each->lines >= least && each->lines <= most);
}

/* In a file of the first schema all filters have four lines a block, and it does not say so. */
TEST(runs_of_the_first_schema_are_read_and_merged_with_others)
{
    enum { OLD = 3 * 200 * CHANGES, ALL = 2 * OLD };
    fl__sqlite_tuning = defaults;
    begin_file(ALL, with(200 * CHANGES / 10, 4, UINT64_MAX), 1);
    for (size_t i = 0; i < OLD; i += (size_t)200 * CHANGES) {
        CHECK_EQ(fl__base_begin(base), 0);
        for (size_t j = 0; j < 200; j++)
            write_names(i + j * CHANGES);
        CHECK_EQ(fl__names_freeze(base), 0);
        CHECK_EQ(fl__base_commit(base), 0);
    }
    CHECK_EQ(runs(), 3);
    check_lines(4, 4);
    execute("ALTER TABLE runs DROP COLUMN lines; DROP TABLE history; DROP TABLE counts; ALTER TABLE dead DROP COLUMN s;"
            " ALTER TABLE shard DROP COLUMN opened; ALTER TABLE shard DROP COLUMN used;"
            " ALTER TABLE progress DROP COLUMN s; ALTER TABLE namespaces DROP COLUMN s; PRAGMA user_version = 1");
    for (size_t i = 0; i < base->slot_count; i++) {
        char sql[80];
        snprintf(sql, sizeof sql, "ALTER TABLE slot_%zu DROP COLUMN s", i);
        execute(sql);
    }
    fl__base_close(base);
    fl__sqlite_tuning = with(500, 4, UINT64_MAX);
    open_file();
    CHECK_EQ(runs(), 3);
    check_lines(4, 4);
    check_names(1);
    while (seq < 2 * ALL) {
        CHECK_EQ(fl__base_begin(base), 0);
        write_names(seq / 2);
        CHECK_EQ(fl__background_step(base, 0), 0);
        CHECK_EQ(fl__base_commit(base), 0);
    }
    check_names(1);
    fl__base_close(base);
    open_file();
    check_names(1);
    end_file();
}

TEST(names_of_windows_that_are_gone_leave_the_index)
{
    size_t count = 20000 / CHANGES * CHANGES;
    fl__sqlite_tuning = defaults;
    begin_file(count, with(500, 2, UINT64_MAX), 1);
    write_many(count);
    CHECK_EQ(fl__base_begin(base), 0);
    finish_window(0, keys);
    CHECK_EQ(fl__base_commit(base), 0);
    check_names(7);
    CHECK(base->names->runs);
    for (int i = 0; i < 10000 && (base->names->runs || base->doomed > 0); i++) {
        CHECK_EQ(fl__base_begin(base), 0);
        CHECK_EQ(fl__background_step(base, 0), 0);
        CHECK_EQ(fl__base_commit(base), 0);
    }
    CHECK(!base->names->runs && base->doomed == 0);
    check_names(7);
    end_file();
}
