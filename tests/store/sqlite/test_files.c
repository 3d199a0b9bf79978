/* SPDX-License-Identifier: MIT */
/* What can be wrong with the folder and the files of an embedded store: the message says what it is and what to do. */

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/conformance.h"
#include "store/sqlite/base.h"
#include "store/sqlite/life.h"
#include "store/sqlite/place.h"
#include "store/sqlite/worker.h"

static char message[300];

static int open_again(fl_store **ret)
{
    return fl_store_open(folder_url(), NULL, ret, message, sizeof message);
}

static int open_new(uint32_t shards, fl_store **ret)
{
    new_folder();
    return fl_store_open(folder_url(), &(fl_store_config){.shards = shards}, ret, message, sizeof message);
}

const struct store_under_test under_test = {.open = open_new, .reopen = open_again, .remove = remove_folder};

/* A store of two shards with something in each, closed. */
static void make_store(void)
{
    begin();
    for (uint32_t i = 0; i < 2; i++) {
        fl_shard *which = i ? attach(i) : shard;
        fl_row row = make_named(2, 1000, 25, "name");
        put(which, claim(which, "me"), &row, 1);
        if (i)
            detach(which);
    }
    detach(shard);
    fl_store_close(store);
}

static void done(void)
{
    remove_folder();
    fl_loop_free(loop);
}

static bool says(const char *what)
{
    if (!strstr(message, what))
        printf("# %s\n", message);
    return strstr(message, what);
}

/* Opening fails like this. */
static void check_refused(int code, const char *what, const char *advice)
{
    int r = open_again(&store);
    if (r != code)
        printf("# %s\n", message);
    CHECK_EQ(r, code);
    CHECK(says(what) && says(advice));
}

/* Runs SQL on a file of the store, as a stranger would. */
static void meddle(const char *file, const char *sql)
{
    sqlite3 *db;
    CHECK_EQ(sqlite3_open(folder_file(file), &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void overwrite(const char *file, long offset, size_t size)
{
    FILE *opened = fopen(folder_file(file), "r+b");
    CHECK(opened && fseek(opened, offset, SEEK_SET) == 0);
    for (size_t i = 0; i < size; i++)
        fputc(0x5a, opened);
    fclose(opened);
}

/* --- Who has it --------------------------------------------------------------------------------------------------- */

TEST(a_second_process_is_told_who_has_the_store)
{
    begin();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fl_store *second;
        char expected[40];
        snprintf(expected, sizeof expected, "process %ld on ", (long)getppid());
        _exit(open_again(&second) == FL_STORE_LOCKED && says(expected) && says("since 20") ? 0 : 1);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    end();
}

TEST(the_same_process_cannot_open_it_twice)
{
    begin();
    fl_store *second;
    CHECK_EQ(open_again(&second), FL_STORE_LOCKED);
    end();
}

TEST(what_was_closed_can_be_opened)
{
    make_store();
    CHECK_EQ(open_again(&store), 0);
    shard = attach(0);
    CHECK(is_named(shard, "name", NULL));
    end();
}

/* --- What it is --------------------------------------------------------------------------------------------------- */

TEST(a_folder_must_be_given_and_be_one)
{
    CHECK_EQ(fl_store_open("sqlite:", NULL, &store, message, sizeof message), FL_INVALID_ARGUMENT);
    CHECK(says("sqlite:FOLDER"));
    new_folder();
    char url[300];
    snprintf(url, sizeof url, "%s/not/there", folder_url());
    CHECK(fl_store_open(url, NULL, &store, message, sizeof message) < 0);
    CHECK(says("not/there cannot be made: No such file"));
    CHECK_EQ(fl_store_open("sqlite:/dev/null", NULL, &store, message, sizeof message), FL_INVALID_ARGUMENT);
    CHECK(says("/dev/null is not a folder"));
}

TEST(the_number_of_shards_is_fixed)
{
    make_store();
    CHECK_EQ(fl_store_open(folder_url(), &(fl_store_config){.shards = 3}, &store, message, sizeof message),
             FL_INVALID_ARGUMENT);
    CHECK(says("has 2 shards, not 3"));
    CHECK_EQ(fl_store_open(folder_url(), &(fl_store_config){.shards = 2}, &store, message, sizeof message), 0);
    CHECK_EQ(fl_store_shards(store), 2);
    fl_store_close(store);
    done();
}

static uint32_t shards_of_a_new_store(void)
{
    new_folder();
    CHECK_EQ(open_again(&store), 0);
    uint32_t shards = fl_store_shards(store);
    fl_store_close(store);
    remove_folder();
    return shards;
}

TEST(a_new_store_has_a_shard_a_processor_and_no_more_than_four)
{
    cpu_set_t all, one;
    CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    CHECK_EQ(shards_of_a_new_store(), CPU_COUNT(&all) < 4 ? (uint32_t)CPU_COUNT(&all) : 4);
    int first = 0;
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    CHECK_EQ(shards_of_a_new_store(), 1);
    CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}

TEST(a_later_schema_is_refused)
{
    make_store();
    meddle("shard-0001.db", "PRAGMA user_version = 7");
    check_refused(FL_STORE_NEWER, "shard-0001.db was made by a later version of Foliot (schema 7", "use that version");
    done();
}

TEST(a_database_of_somebody_else_is_left_alone)
{
    make_store();
    CHECK_EQ(unlink(folder_file("shard-0000.db")), 0);
    meddle("shard-0000.db", "CREATE TABLE theirs(x); INSERT INTO theirs VALUES(1)");
    check_refused(FL_INVALID_ARGUMENT, "not one of Foliot's", "a folder of its own");
    meddle("shard-0000.db", "SELECT x FROM theirs");
    done();
}

TEST(a_file_that_is_no_database_is_damaged)
{
    make_store();
    overwrite("shard-0000.db", 0, 100);
    check_refused(FL_STORE_CORRUPT, "shard-0000.db is damaged", "restore it from a copy");
    done();
}

TEST(a_file_that_is_missing_is_missed)
{
    make_store();
    CHECK_EQ(unlink(folder_file("shard-0001.db")), 0);
    check_refused(FL_STORE_CORRUPT, "shard-0001.db is missing", "restore it from a copy");
    done();
    make_store();
    CHECK_EQ(unlink(folder_file("shard-0000.db")), 0);
    check_refused(FL_STORE_CORRUPT, "shard-0000.db is missing", "restore it from a copy");
    done();
}

TEST(files_that_were_exchanged_are_noticed)
{
    make_store();
    char first[300], second[300];
    snprintf(first, sizeof first, "%s", folder_file("shard-0000.db"));
    snprintf(second, sizeof second, "%s", folder_file("shard-0001.db"));
    CHECK_EQ(rename(first, folder_file("other")), 0);
    CHECK_EQ(rename(second, first), 0);
    CHECK_EQ(rename(folder_file("other"), second), 0);
    check_refused(FL_STORE_CORRUPT, "shard-0000.db belongs to another store or shard", "restore");
    done();
}

/* Zeroes every page in turn. What is noticed is said; what is not there is not invented; nothing crashes. */
TEST(any_page_may_be_damaged)
{
    struct stat status;
    make_store();
    CHECK_EQ(stat(folder_file("shard-0000.db"), &status), 0);
    done();
    unsigned noticed = 0;
    long pages = status.st_size / 4096;
    for (long page = 0; page < pages; page += SCALE(1, 5)) {
        make_store();
        overwrite("shard-0000.db", page * 4096 + (page ? 0 : 100), page ? 4096 : 3996);
        int r = open_again(&store);
        if (r == 0) {
            fl_store_want want = {.ns = text("ns"), .name = text("name")};
            struct asked find = to_find(&want, 1);
            shard = attach(0);
            r = perform(shard, &find);
            CHECK(r < 0 || !want.found || want.row.key.seq == 2);
            detach(shard);
            fl_store_close(store);
        }
        CHECK(r == 0 || r == FL_STORE_CORRUPT);
        noticed += r == FL_STORE_CORRUPT;
        done();
    }
    CHECK(noticed > pages / SCALE(4, 20));
}

/* --- Where nothing can be written --------------------------------------------------------------------------------- */

/* Runs a test without the rights of root, in a child. */
static void without_rights(int (*run)(void))
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0) ? 99 : run());
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
}

static int open_read_only(void)
{
    int r = open_again(&store);
    if (r != FL_STORE_READ_ONLY || !says("permi"))
        printf("# %d %s\n", r, message);
    fflush(stdout);
    return r == FL_STORE_READ_ONLY ? 0 : 1;
}

TEST(a_folder_that_may_not_be_written_to)
{
    make_store();
    CHECK_EQ(chmod(folder_file("foliot.lock"), 0444), 0);
    CHECK_EQ(chmod(folder_file(""), 0555), 0);
    without_rights(open_read_only);
    CHECK_EQ(chmod(folder_file(""), 0755), 0);
    done();
}

TEST(a_file_that_may_not_be_written_to)
{
    make_store();
    CHECK_EQ(chmod(folder_file("foliot.lock"), 0666), 0);
    CHECK_EQ(chmod(folder_file("shard-0000.db"), 0444), 0);
    CHECK_EQ(chmod(folder_file(""), 0777), 0);
    without_rights(open_read_only);
    done();
}

/* --- A limit that is met ------------------------------------------------------------------------------------------ */

TEST(a_limit_on_the_size_of_files_is_a_full_disk)
{
    static struct life life;
    begin();
    life_begin(&life, 1);
    CHECK_EQ(life_claim(&life, shard), 0);
    struct rlimit before, limit = {300 << 10, 300 << 10};
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    fflush(stdout);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int r = 0;
    for (int i = 0; i < 10000 && r == 0; i++)
        r = life_step(&life, shard);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    if (r != FL_STORE_FULL)
        CHECK_EQ(r, FL_OUTCOME_UNKNOWN);
    CHECK_EQ(life_look(&life, shard), 0);
    CHECK_EQ(life_step(&life, shard), 0);
    reopen();
    CHECK_EQ(life_look(&life, shard), 0);
    end();
}

/* Whatever the disk, it is taken for one that is nearly full. */
TEST(a_disk_that_is_nearly_full_takes_no_new_rows_and_all_else)
{
    struct sqlite_tuning tuning = fl__sqlite_tuning;
    begin();
    uint64_t version = claim(shard, "me");
    fl_row first = make_named(2, 1000, 25, "first"), second = make_row(4, 1000, 25), third = make_row(6, 1000, 25);
    put(shard, version, (fl_row[]){first, second}, 2);
    fl__sqlite_tuning.keep_free = UINT64_MAX;
    fl__sqlite_tuning.keep_part = 1;
    fl_row moved = move_row(first, 8, 2000, 25);
    struct asked asked =
        to_write(version, (fl_store_change[]){{.remove = first.key, .put = &moved}, {.put = &third}}, 2);
    CHECK_EQ(perform(shard, &asked), FL_STORE_FULL);
    CHECK(strstr(asked.request.message, "make some"));
    CHECK(is_there(shard, first.key, NULL) && !is_there(shard, third.key, NULL));
    fl_dead_row dead = make_dead(second, "why");
    write_one(shard, version, (fl_store_change){.remove = first.key, .put = &moved});
    write_one(shard, version, (fl_store_change){.remove = second.key, .bury = &dead});
    write_one(shard, version, (fl_store_change){.unbury = second.id.seq, .put = &second});
    fl_row replaced = make_named(10, 3000, 25, "first");
    write_one(shard, version, (fl_store_change){.remove = moved.key, .remove_id = moved.id.seq, .put = &replaced});
    struct asked renew = simple(FL_STORE_RENEW, version), record = to_record(version, &(fl_progress){.seq_limit = 12});
    renew.request.renew.lease_us = HOUR_US;
    CHECK_EQ(perform(shard, &renew), 0);
    CHECK_EQ(perform(shard, &record), 0);
    fl__sqlite_tuning = tuning;
    put(shard, version, &third, 1);
    CHECK(is_there(shard, third.key, NULL) && is_named(shard, "first", NULL) && is_there(shard, second.key, NULL));
    end();
}

static off_t size_of(const char *name)
{
    struct stat found;
    CHECK_EQ(stat(folder_file(name), &found), 0);
    return found.st_size;
}

TEST(the_log_is_made_longer_before_it_is_needed)
{
    enum { COMMITS = 200 };
    begin();
    uint64_t version = claim(shard, "me");
    off_t size = 0;
    int grown = 0;
    for (uint64_t i = 1; i <= COMMITS; i++) {
        fl_row row = make_row(2 * i, 1000, 25);
        put(shard, version, &row, 1);
        off_t now = size_of("shard-0000.db-wal");
        grown += now != size;
        size = now;
    }
    CHECK(grown > 1 && grown < COMMITS / 4);
    reopen();
    for (uint64_t i = 1; i <= COMMITS; i++)
        CHECK(is_there(shard, make_row(2 * i, 1000, 25).key, NULL));
    end();
}

/* --- The log is carried over -------------------------------------------------------------------------------------- */

/* Bytes that this thread has written to files; -1: the system does not say. */
static long long written(void)
{
    char line[100];
    long long bytes = -1;
    FILE *io = fopen("/proc/thread-self/io", "r");
    while (io && fgets(line, sizeof line, io))
        if (strncmp(line, "wchar: ", 7) == 0)
            bytes = strtoll(line + 7, NULL, 10);
    if (io)
        fclose(io);
    return bytes;
}

/* A commit that writes as many pages as the log may have. */
static void commit_pages(struct base *base, uint32_t slot, int64_t first)
{
    static char page[3000];
    CHECK_EQ(fl__base_begin(base), 0);
    for (int64_t i = 0; i < fl__sqlite_tuning.checkpoint_frames; i++)
        CHECK_EQ(fl__slot_put(base, slot, first + i, (fl_bytes){page, sizeof page}), 0);
    CHECK_EQ(fl__base_commit(base), 0);
}

/* Until the second thread has done what it was asked for. */
static void wait_for_helper(struct helper *helper)
{
    int error;
    char *path = fl__alloc(strlen(folder_file("foliot.lock")) + 1);
    fl__helper_sync(helper, strcpy(path, folder_file("foliot.lock")));
    while (!fl__helper_synced(helper, &error))
        usleep(1000);
}

TEST(a_new_log_is_not_taken_for_one_that_is_nearly_carried_over)
{
    struct worker worker = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    uint32_t slot;
    make_store();
    CHECK_EQ(fl__base_open(folder_file("shard-0000.db"), NULL, &worker.base, message, sizeof message), 0);
    CHECK_EQ(fl__helper_start(&worker, &worker.helper), 0);
    CHECK_EQ(fl__base_begin(worker.base), 0);
    CHECK_EQ(fl__slot_take(worker.base, &slot), 0);
    CHECK_EQ(fl__base_commit(worker.base), 0);
    commit_pages(worker.base, slot, 0);
    fl__helper_look(worker.helper, worker.base);
    wait_for_helper(worker.helper);
    int before = worker.base->frames;
    commit_pages(worker.base, slot, 10000);
    CHECK(worker.base->frames < 2 * before - 100); /* begun anew */
    long long begin_bytes = written();
    fl__helper_look(worker.helper, worker.base);
    CHECK(written() - begin_bytes < 1 << 20); /* the second thread does it */
    fl__helper_stop(worker.helper);
    fl__base_close(worker.base);
    done();
}
