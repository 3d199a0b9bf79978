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

static int move(const char *from, const char *to)
{
    char old[300];
    snprintf(old, sizeof old, "%s", folder_file(from));
    return rename(old, folder_file(to));
}

/* Runs `fn` in a child process; it returns whether all is as it should be. */
static void in_child(bool (*fn)(void))
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(fn() ? 0 : 1);
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static bool is_locked(void)
{
    fl_store *second;
    return open_again(&second) == FL_STORE_LOCKED && says("is in use by another process");
}

TEST(the_store_stays_locked_without_its_lock_file)
{
    begin();
    CHECK_EQ(unlink(folder_file("foliot.lock")), 0);
    in_child(is_locked);
    CHECK_EQ(unlink(folder_file("foliot.lock")), 0);
    CHECK_EQ(move("shard-0000.db", "aside.db"), 0);
    in_child(is_locked); /* by the other shard */
    CHECK_EQ(move("aside.db", "shard-0000.db"), 0);
    end();
}

/* As begin(), in the folder that is there. */
static void begin_here(void)
{
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    fl_loop_hold(loop);
    CHECK_EQ(open_again(&store), 0);
    shard = attach(0);
}

static bool claim_and_die(void)
{
    begin_here();
    fl_row row = make_row(2, 1000, 25);
    put(shard, claim(shard, "former"), &row, 1); /* for an hour */
    return true;
}

TEST(what_a_dead_process_has_claimed_is_free)
{
    new_folder();
    in_child(claim_and_die);
    begin_here();
    struct asked asked = to_claim("next", HOUR_US, false);
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK_EQ(asked.request.claim.version, 2);
    end();
}

/* Writing is refused in this way while a file is not in its place, and goes on when it is back. */
static void check_missed(const char *file, const char *instead)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25), other = make_row(4, 1000, 25);
    fl_store_change change = {.put = &other};
    put(shard, version, &row, 1);
    CHECK_EQ(move(file, "aside"), 0);
    FILE *new = instead ? fopen(folder_file(file), "w") : NULL;
    if (new)
        fclose(new);
    struct asked write = to_write(version, &change, 1), renew = simple(FL_STORE_RENEW, version);
    renew.request.renew.claim_us = HOUR_US;
    CHECK_EQ(perform(shard, &write), FL_STORE_UNAVAILABLE);
    CHECK(strstr(write.request.message, file) &&
          strstr(write.request.message, instead ? "was replaced" : "was removed"));
    CHECK_EQ(perform(shard, &renew), FL_STORE_UNAVAILABLE);
    CHECK_EQ(move("aside", file), 0);
    put(shard, version, &other, 1);
    struct asked again = simple(FL_STORE_RENEW, version);
    again.request.renew.claim_us = HOUR_US;
    CHECK_EQ(perform(shard, &again), 0);
    end();
}

TEST(a_file_that_is_removed_while_it_is_in_use_is_missed)
{
    check_missed("shard-0000.db", NULL);
    check_missed("shard-0000.db-wal", NULL);
}

TEST(a_file_that_is_replaced_while_it_is_in_use_is_missed)
{
    check_missed("shard-0000.db", "another");
    check_missed("shard-0000.db-wal", "another");
}

static bool same_files(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

TEST(to_renew_writes_nothing)
{
    static const char *const files[] = {"shard-0000.db", "shard-0000.db-wal", "foliot.lock"};
    struct stat before[3], after[3];
    begin();
    struct asked renew = simple(FL_STORE_RENEW, claim(shard, "me"));
    renew.request.renew.claim_us = HOUR_US;
    for (int i = 0; i < 3; i++)
        CHECK_EQ(stat(folder_file(files[i]), &before[i]), 0);
    usleep(20000); /* times of files have the resolution of the system's tick */
    CHECK_EQ(perform(shard, &renew), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(stat(folder_file(files[i]), &after[i]), 0);
        CHECK(same_files(&before[i], &after[i]));
    }
    end();
}

/* Makes a file what version 2 would have left. */
static void make_old(const char *file)
{
    sqlite3 *db;
    char sql[80];
    meddle(
        file,
        "DROP TABLE history; DROP TABLE counts; ALTER TABLE dead DROP COLUMN s; ALTER TABLE shard DROP COLUMN opened;"
        " ALTER TABLE shard DROP COLUMN used; ALTER TABLE progress DROP COLUMN s;"
        " ALTER TABLE namespaces DROP COLUMN s; PRAGMA user_version = 2");
    CHECK_EQ(sqlite3_open(folder_file(file), &db), SQLITE_OK);
    int rc = SQLITE_OK;
    for (int i = 0; rc == SQLITE_OK; i++) { /* until there is no such slot */
        snprintf(sql, sizeof sql, "ALTER TABLE slot_%d DROP COLUMN s", i);
        rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    }
    sqlite3_close(db);
}

TEST(a_store_that_was_not_counted_is_counted_when_it_is_opened)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row rows[] = {make_named(2, 1000, 25, "a"), make_row(4, 5000, 37), make_named(6, 9000, 37, "b"),
                     make_row(8, 1500, 25)};
    rows[2].ns = text("\1counts"); /* what the server counted with in earlier versions */
    put(shard, version, rows, 4);
    struct asked record = to_record(version, &(fl_progress){.front = {{1000, 2}, {0, 0}}, .seq_limit = 10});
    CHECK_EQ(perform(shard, &record), 0);
    detach(shard);
    fl_store_close(store);
    make_old("shard-0000.db");
    CHECK_EQ(open_again(&store), 0);
    shard = attach(0);
    struct asked asked = to_claim("me", HOUR_US, false);
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK_EQ(asked.request.claim.count_count, 1);
    CHECK_EQ(asked.request.claim.counts[0].rows, 2);
    CHECK(!is_there(shard, rows[2].id, NULL) && is_there(shard, rows[1].id, NULL) && is_named(shard, "a", NULL));
    end();
}

static struct asked to_append(uint64_t version, const char *body)
{
    fl_history_row *row = remember(&(fl_history_row){.seq = 2, .id = {1000, 2}, .ns = text("ns"), .body = text(body)},
                                   sizeof(fl_history_row));
    return (struct asked){
        .request = {.op = FL_STORE_RECORD,
                    .version = version,
                    .record = {.progress.seq_limit = 10, .history = {.rows = row, .count = 1, .span = 1}}}};
}

static struct asked to_list_past(void)
{
    return (struct asked){
        .request = {.op = FL_STORE_HISTORY,
                    .history = {.span = 1, .from_us = INT64_MIN, .until_us = INT64_MAX, .limit = 10}}};
}

TEST(a_store_without_history_gets_one_when_it_is_opened)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_named(2, 1000, 25, "a");
    put(shard, version, &row, 1);
    detach(shard);
    fl_store_close(store);
    meddle("shard-0000.db", "DROP TABLE history; PRAGMA user_version = 4");
    CHECK_EQ(open_again(&store), 0);
    shard = attach(0);
    CHECK(is_named(shard, "a", NULL));
    struct asked appended = to_append(claim(shard, "me"), "what has happened");
    CHECK_EQ(perform(shard, &appended), 0);
    struct asked listed = to_list_past();
    CHECK_EQ(perform(shard, &listed), 0);
    CHECK_EQ(listed.request.history.count, 1);
    end();
}

/* Flips a bit in a file behind the first place where this text stands. */
static void flip(const char *file, const char *after)
{
    FILE *opened = fopen(folder_file(file), "r+b");
    CHECK(opened);
    static char bytes[4 << 20];
    size_t size = fread(bytes, 1, sizeof bytes, opened);
    char *found = memmem(bytes, size, after, strlen(after));
    CHECK(found);
    long at = (long)(found - bytes) + (long)strlen(after);
    CHECK_EQ(fseek(opened, at, SEEK_SET), 0);
    fputc(bytes[at] ^ 1, opened);
    fclose(opened);
}

static fl_row row_with_body(uint64_t seq, const char *body)
{
    fl_row row = make_row(seq, 1000, 25);
    row.body = text(body);
    return row;
}

TEST(a_bit_that_flips_in_the_history_is_noticed)
{
    begin();
    struct asked appended = to_append(claim(shard, "me"), "what has happened to a timer");
    CHECK_EQ(perform(shard, &appended), 0);
    detach(shard);
    fl_store_close(store);
    flip("shard-0000.db", "what has happened ");
    CHECK_EQ(open_again(&store), 0);
    shard = attach(0);
    struct asked listed = to_list_past();
    CHECK_EQ(perform(shard, &listed), FL_STORE_CORRUPT);
    CHECK(strstr(listed.request.message, "checksum"));
    struct asked found = to_list_dead(); /* all else can be read */
    CHECK_EQ(perform(shard, &found), 0);
    end();
}

TEST(a_bit_that_flips_in_a_payload_is_noticed)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = row_with_body(2, "the payload of a timer"), other = make_row(4, 1000, 25);
    fl_dead_row dead = make_dead(row_with_body(6, "the payload of a dead letter"), "the reason of it");
    put(shard, version, (fl_row[]){row, other}, 2);
    write_one(shard, version, (fl_store_change){.bury = &dead});
    detach(shard);
    fl_store_close(store);
    flip("shard-0000.db", "the payload of a dead ");
    CHECK_EQ(open_again(&store), 0);
    shard = attach(0);
    struct asked listed = to_list_dead();
    CHECK_EQ(perform(shard, &listed), FL_STORE_CORRUPT);
    CHECK(strstr(listed.request.message, "checksum"));
    detach(shard);
    fl_store_close(store);
    flip("shard-0000.db", "the payload of a dead "); /* back */
    flip("shard-0000.db", "the reas");
    CHECK_EQ(open_again(&store), 0);
    shard = attach(0);
    listed = to_list_dead();
    CHECK_EQ(perform(shard, &listed), FL_STORE_CORRUPT);
    detach(shard);
    fl_store_close(store);
    flip("shard-0000.db", "the payload of a tim");
    check_refused(FL_STORE_CORRUPT, "checksum", "restore it from a backup");
    done();
}

/* Writes rows, one transaction each, and dies with all of them in the log. */
static bool write_and_die(void)
{
    begin_here();
    uint64_t version = claim(shard, "me");
    for (uint64_t i = 1; i <= 20; i++) {
        char body[40];
        snprintf(body, sizeof body, "body of row %02u|", (unsigned)i);
        fl_row row = row_with_body(2 * i, body);
        put(shard, version, &row, 1);
    }
    return true;
}

static void check_log(const char *damaged, int expected)
{
    new_folder();
    in_child(write_and_die);
    flip("shard-0000.db-wal", damaged);
    CHECK_EQ(open_again(&store), expected);
    if (expected == 0)
        fl_store_close(store);
    else
        CHECK(says("shard-0000.db-wal is damaged") && says("restore the shard from a backup"));
}

TEST(damage_in_the_log_is_told_from_a_torn_tail)
{
    check_log("body of row 05|", FL_STORE_CORRUPT);
    check_log("body of row 19|", FL_STORE_CORRUPT); /* one later commit is enough */
    check_log("body of row 20|", 0);                /* the last commit may have been torn */
}

/* --- A log that is missing ---------------------------------------------------------------------------------------- */

/* A store whose process was killed. */
static void make_killed(void)
{
    new_folder();
    in_child(write_and_die);
}

static int open_accepting(void)
{
    return fl_store_open(folder_url(), &(fl_store_config){.accept_loss = true}, &store, message, sizeof message);
}

static void check_opens(void)
{
    int r = open_again(&store);
    if (r < 0)
        printf("# %s\n", message);
    CHECK_EQ(r, 0);
    fl_store_close(store);
}

TEST(a_log_that_is_missing_after_a_crash_is_missed)
{
    make_killed();
    CHECK_EQ(unlink(folder_file("shard-0000.db-wal")), 0);
    for (int i = 0; i < 2; i++) /* also the second time */
        check_refused(FL_STORE_CORRUPT, "shard-0000.db-wal is missing", "foliot doctor --accept");
    CHECK_EQ(open_accepting(), 0);
    fl_store_close(store);
    check_opens();
    remove_folder();
}

TEST(a_log_without_a_valid_header_is_missed)
{
    make_killed();
    overwrite("shard-0000.db-wal", 16, 4);
    check_refused(FL_STORE_CORRUPT, "shard-0000.db-wal has no valid header", "foliot doctor --accept");
    remove_folder();
    make_killed();
    CHECK_EQ(truncate(folder_file("shard-0000.db-wal"), 0), 0);
    check_refused(FL_STORE_CORRUPT, "shard-0000.db-wal is missing", "foliot doctor --accept");
    remove_folder();
}

/* SQLite's own tool carries the log over and deletes it: nothing is missing. */
TEST(a_log_that_another_program_carried_over_is_not_missed)
{
    make_killed();
    meddle("shard-0000.db", "SELECT * FROM shard");
    CHECK(access(folder_file("shard-0000.db-wal"), F_OK) < 0);
    begin_here();
    CHECK(is_there(shard, make_row(40, 1000, 25).key, NULL));
    end();
}

TEST(a_store_that_was_closed_needs_no_log)
{
    struct stat found;
    begin();
    uint64_t version = claim(shard, "me");
    for (uint64_t i = 1; i < 2000; i++) { /* the log is carried over and begun anew in between */
        fl_row row = make_row(2 * i, 1000, 25);
        put(shard, version, &row, 1);
    }
    do /* until the second thread has marked it again */
        CHECK_EQ(stat(folder_file("shard-0000.db"), &found), 0);
    while (found.st_size % 4096 != 16);
    detach(shard);
    fl_store_close(store);
    CHECK(access(folder_file("shard-0000.db-wal"), F_OK) < 0);
    CHECK_EQ(stat(folder_file("shard-0000.db"), &found), 0);
    CHECK_EQ(found.st_size % 4096, 0);
    check_opens();
    done();
}

/* --- An older copy ------------------------------------------------------------------------------------------------ */

/* Copies a file of the folder to another name in it. */
static void copy(const char *from, const char *to)
{
    static char bytes[4 << 20];
    FILE *source = fopen(folder_file(from), "rb");
    CHECK(source);
    size_t size = fread(bytes, 1, sizeof bytes, source);
    fclose(source);
    FILE *target = fopen(folder_file(to), "wb");
    CHECK(target && fwrite(bytes, 1, size, target) == size);
    fclose(target);
}

/* Something is written to one shard of the store. */
static void use(uint32_t which)
{
    CHECK_EQ(open_again(&store), 0);
    shard = attach(which);
    claim(shard, "me");
    detach(shard);
    fl_store_close(store);
}

TEST(an_older_copy_of_one_shard_is_noticed)
{
    for (int which = 0; which < 2; which++) {
        const char *file = which ? "shard-0001.db" : "shard-0000.db";
        make_store();
        copy(file, "older");
        use(1 - (uint32_t)which); /* although nothing is written to this one */
        copy("older", file);
        for (int i = 0; i < 2; i++)
            check_refused(FL_STORE_CORRUPT, "is older than the others", "foliot doctor --accept");
        CHECK(says(file));
        CHECK_EQ(open_accepting(), 0);
        fl_store_close(store);
        check_opens();
        done();
    }
}

/* Copies a shard while the store is in use, as the manual says. */
static void vacuum_into(const char *file, const char *to)
{
    char sql[400];
    CHECK(snprintf(sql, sizeof sql, "VACUUM INTO '%s'", folder_file(to)) < (int)sizeof sql);
    meddle(file, sql);
}

TEST(a_copy_of_a_shard_in_use_is_noticed_among_the_others)
{
    begin();
    claim(shard, "me");
    vacuum_into("shard-0000.db", "copy");
    detach(shard);
    fl_store_close(store);
    CHECK_EQ(move("copy", "shard-0000.db"), 0);
    for (int i = 0; i < 2; i++)
        check_refused(FL_STORE_CORRUPT, "shard-0000.db is a copy", "foliot doctor --accept");
    CHECK_EQ(open_accepting(), 0);
    fl_store_close(store);
    check_opens();
    done();
}

TEST(copies_of_all_shards_are_a_store_whatever_their_moments)
{
    make_store();
    use(0);
    vacuum_into("shard-0000.db", "copy0");
    use(0);
    use(1);
    vacuum_into("shard-0001.db", "copy1");
    use(0);
    CHECK_EQ(move("copy0", "shard-0000.db"), 0);
    CHECK_EQ(move("copy1", "shard-0001.db"), 0);
    check_opens();
    use(0);
    check_opens();
    done();
}

/* A crash may leave some files counted and others not. */
TEST(an_opening_that_was_cut_off_is_no_damage)
{
    make_store();
    for (int i = 0; i < 3; i++) {
        meddle("shard-0000.db", "UPDATE shard SET opened = used + 1");
        check_opens();
    }
    use(0);
    check_opens();
    done();
}

/* --- Small tables ------------------------------------------------------------------------------------------------- */

TEST(small_tables_have_checksums)
{
    make_store();
    meddle("shard-0000.db", "UPDATE namespaces SET name = 'other'");
    check_refused(FL_STORE_CORRUPT, "the checksum of a namespace", "restore it from a backup");
    done();
    make_store();
    CHECK_EQ(open_again(&store), 0);
    shard = attach(0);
    struct asked record = to_record(claim(shard, "me"), &(fl_progress){.seq_limit = 10});
    CHECK_EQ(perform(shard, &record), 0);
    detach(shard);
    fl_store_close(store);
    meddle("shard-0000.db", "UPDATE progress SET s = s + 1");
    CHECK_EQ(open_again(&store), 0);
    shard = attach(0);
    struct asked asked = to_claim("me", HOUR_US, false);
    CHECK_EQ(perform(shard, &asked), FL_STORE_CORRUPT);
    CHECK(strstr(asked.request.message, "checksum"));
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
    CHECK(says("not/there cannot be created: No such file"));
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
    check_refused(FL_STORE_NEWER, "shard-0001.db (schema 7", "use that version");
    done();
}

TEST(a_database_of_somebody_else_is_left_alone)
{
    make_store();
    CHECK_EQ(unlink(folder_file("shard-0000.db")), 0);
    meddle("shard-0000.db", "CREATE TABLE theirs(x); INSERT INTO theirs VALUES(1)");
    check_refused(FL_INVALID_ARGUMENT, "not one of Foliot", "its own folder");
    meddle("shard-0000.db", "SELECT x FROM theirs");
    done();
}

TEST(a_file_that_is_no_database_is_damaged)
{
    make_store();
    overwrite("shard-0000.db", 0, 100);
    check_refused(FL_STORE_CORRUPT, "shard-0000.db is damaged", "restore it from a backup");
    done();
}

TEST(a_file_that_is_missing_is_missed)
{
    make_store();
    CHECK_EQ(unlink(folder_file("shard-0001.db")), 0);
    check_refused(FL_STORE_CORRUPT, "shard-0001.db is missing", "restore it from a backup");
    done();
    make_store();
    CHECK_EQ(unlink(folder_file("shard-0000.db")), 0);
    check_refused(FL_STORE_CORRUPT, "shard-0000.db is missing", "restore it from a backup");
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
    CHECK(strstr(asked.request.message, "free some space"));
    CHECK(is_there(shard, first.key, NULL) && !is_there(shard, third.key, NULL));
    fl_dead_row dead = make_dead(second, "why");
    write_one(shard, version, (fl_store_change){.remove = first.key, .put = &moved});
    write_one(shard, version, (fl_store_change){.remove = second.key, .bury = &dead});
    write_one(shard, version, (fl_store_change){.unbury = second.id.seq, .put = &second});
    fl_row replaced = make_named(10, 3000, 25, "first");
    write_one(shard, version, (fl_store_change){.remove = moved.key, .remove_id = moved.id.seq, .put = &replaced});
    struct asked renew = simple(FL_STORE_RENEW, version), record = to_record(version, &(fl_progress){.seq_limit = 12});
    renew.request.renew.claim_us = HOUR_US;
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
    size_t size = strlen(folder_file("foliot.lock")) + 1;
    char *path = fl__alloc(size);
    fl__helper_sync(helper, memcpy(path, folder_file("foliot.lock"), size));
    while (!fl__helper_synced(helper, &error))
        usleep(1000);
}

static void begin_long_log(struct worker *worker, uint32_t *ret_slot)
{
    make_store();
    CHECK_EQ(fl__base_open(folder_file("shard-0000.db"), NULL, &worker->base, message, sizeof message), 0);
    CHECK_EQ(fl__helper_start(worker, &worker->helper), 0);
    CHECK_EQ(fl__base_begin(worker->base), 0);
    CHECK_EQ(fl__slot_take(worker->base, ret_slot), 0);
    CHECK_EQ(fl__base_commit(worker->base), 0);
    commit_pages(worker->base, *ret_slot, 0);
}

TEST(what_is_written_behind_a_log_that_was_carried_over_is_the_only_rest)
{
    struct worker worker = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    uint32_t slot;
    sqlite3 *reader;
    begin_long_log(&worker, &slot);
    CHECK_EQ(sqlite3_open(folder_file("shard-0000.db"), &reader), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(reader, "BEGIN; SELECT * FROM shard", NULL, NULL, NULL),
             SQLITE_OK); /* the log cannot begin anew */
    fl__helper_look(worker.helper, worker.base);
    wait_for_helper(worker.helper);
    int before = worker.base->frames;
    CHECK_EQ(fl__base_begin(worker.base), 0);
    CHECK_EQ(fl__slot_put(worker.base, slot, 10000, (fl_bytes){"x", 1}), 0);
    CHECK_EQ(fl__base_commit(worker.base), 0);
    CHECK(worker.base->frames > before);
    CHECK_EQ(sqlite3_exec(reader, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(reader);
    long long begin_bytes = written();
    fl__helper_look(worker.helper, worker.base);
    CHECK(written() > begin_bytes); /* so little is left that this thread does it */
    fl__helper_stop(worker.helper);
    fl__base_close(worker.base);
    done();
}

TEST(a_new_log_is_not_taken_for_one_that_is_nearly_carried_over)
{
    struct worker worker = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    uint32_t slot;
    begin_long_log(&worker, &slot);
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
