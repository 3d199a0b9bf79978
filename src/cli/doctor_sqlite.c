/* SPDX-License-Identifier: MIT */
/* A shard's file, looked into by a connection of its own that only reads and leaves the log as it is. As a rule the store is
 * open meanwhile, so that its lock keeps others away. A store that cannot be opened is read all the same, file by file.
 * docs/store-sqlite.md has the tables. */

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/doctor.h"
#include "store/store.h"

enum { FILE_NAME = 4096 };

static void file_of(const struct doctor *doctor, uint32_t shard, char out[FILE_NAME])
{
    snprintf(out, FILE_NAME, "%s/shard-%04" PRIu32 ".db", doctor->path, shard);
}

int sqlite_is_there(const struct doctor *doctor, char *message, size_t size)
{
    char file[FILE_NAME];
    file_of(doctor, 0, file);
    if (access(file, F_OK) == 0)
        return CLI_OK;
    snprintf(message, size, "%s has no store: the file shard-0000.db does not exist", doctor->path);
    return CLI_NOT_FOUND;
}

struct query {
    struct doctor *doctor;
    uint32_t shard;
    sqlite3 *db;
    struct facts *facts;
};

static fl_bytes column_bytes(sqlite3_stmt *row, int column)
{
    const void *data = sqlite3_column_blob(row, column);
    return (fl_bytes){data, (size_t)sqlite3_column_bytes(row, column)};
}

static void problem(struct query *q, const char *what)
{
    doctor_problem(q->doctor, q->shard, "%s", what);
}

/* Calls `row` for each row. */
static int query(struct query *q, const char *sql, void (*row)(struct query *q, sqlite3_stmt *statement))
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(q->db, sql, -1, &statement, NULL);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW)
            row(q, statement);
    }
    if (rc != SQLITE_DONE)
        problem(q, sqlite3_errmsg(q->db));
    sqlite3_finalize(statement);
    return rc == SQLITE_DONE ? 0 : -1;
}

static void integrity_row(struct query *q, sqlite3_stmt *s)
{
    const char *text = (const char *)sqlite3_column_text(s, 0);
    if (!text || strcmp(text, "ok") != 0)
        problem(q, text ? text : "out of memory");
}

static void shard_row(struct query *q, sqlite3_stmt *s)
{
    const char *owner = (const char *)sqlite3_column_text(s, 0);
    snprintf(q->facts->owner, sizeof q->facts->owner, "%s", owner ? owner : "");
    q->facts->lease_until_us = sqlite3_column_int64(s, 1);
    fl_wall_clock *clock = fl_wall_clock_system();
    q->facts->now_us = clock->now_us(clock);
}

static void progress_row(struct query *q, sqlite3_stmt *s)
{
    const void *data = sqlite3_column_blob(s, 0);
    fl_bytes bytes = {data, (size_t)sqlite3_column_bytes(s, 0)};
    if (bytes.size > 0 && fl__progress_decode(bytes, &q->facts->progress) < 0)
        problem(q, "the recorded progress of the shard cannot be read");
}

static void window_row(struct query *q, sqlite3_stmt *s)
{
    if (!facts_add_window(q->facts, (uint64_t)sqlite3_column_int64(s, 0)))
        problem(q, "out of memory");
}

static void moved_row(struct query *q, sqlite3_stmt *s)
{
    struct moved moved = {(uint64_t)sqlite3_column_int64(s, 0),
                          {sqlite3_column_int64(s, 1), (uint64_t)sqlite3_column_int64(s, 2)}};
    if (!facts_add_moved(q->facts, moved))
        problem(q, "out of memory");
}

static void count_row(struct query *q, sqlite3_stmt *s)
{
    const void *name = sqlite3_column_blob(s, 0);
    fl_bytes ns = {name, (size_t)sqlite3_column_bytes(s, 0)};
    if (!facts_count(q->facts, ns, -sqlite3_column_int64(s, 1)))
        problem(q, "out of memory");
}

static void span_row(struct query *q, sqlite3_stmt *s)
{
    if (!facts_add_span(q->facts, (uint64_t)sqlite3_column_int64(s, 0)))
        problem(q, "out of memory");
}

static void shared_slot_row(struct query *q, sqlite3_stmt *s)
{
    doctor_problem(q->doctor, q->shard, "the table slot_%lld is used twice", (long long)sqlite3_column_int64(s, 0));
}

static void lost_slot_row(struct query *q, sqlite3_stmt *s)
{
    char sql[80];
    const char *name = (const char *)sqlite3_column_text(s, 0);
    sqlite3_stmt *inner = NULL;
    snprintf(sql, sizeof sql, "SELECT 1 FROM \"%.40s\" LIMIT 1", name);
    if (sqlite3_prepare_v2(q->db, sql, -1, &inner, NULL) == SQLITE_OK && sqlite3_step(inner) == SQLITE_ROW)
        doctor_problem(q->doctor, q->shard, "the table %s has rows, but no window, index or history uses it", name);
    sqlite3_finalize(inner);
}

#define SLOTS                                                                                    \
    "SELECT slot FROM windows UNION ALL SELECT slot FROM runs UNION ALL SELECT slot FROM doomed" \
    " UNION ALL SELECT slot FROM history"

/* Rows that a sweep has not removed yet are counted, but readers ignore them. The empty namespace has no rows. */
#define COUNTS                                                                      \
    "SELECT n.name, sum(c.rows) FROM counts c JOIN namespaces n ON n.number = c.ns" \
    " WHERE NOT EXISTS (SELECT 1 FROM sweeps) GROUP BY c.ns"                        \
    " UNION ALL SELECT x'', 0 WHERE NOT EXISTS (SELECT 1 FROM sweeps)"

static int read_facts(struct query *q)
{
    if (query(q, "PRAGMA integrity_check", integrity_row) < 0 ||
        query(q, "SELECT owner, lease_until_us FROM shard", shard_row) < 0 ||
        query(q, "SELECT progress FROM progress", progress_row) < 0 ||
        query(q, "SELECT window FROM windows ORDER BY window", window_row) < 0 ||
        query(q, "SELECT span FROM history ORDER BY span", span_row) < 0 ||
        query(q, "SELECT id_seq, at_us, seq FROM moved", moved_row) < 0 || query(q, COUNTS, count_row) < 0 ||
        query(q, "SELECT slot FROM (" SLOTS ") GROUP BY slot HAVING count(*) > 1", shared_slot_row) < 0)
        return -1;
    return query(q,
                 "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'slot_[0-9]*'"
                 " AND name NOT IN (SELECT 'slot_' || slot FROM (" SLOTS "))",
                 lost_slot_row);
}

/* --- Checksums ---------------------------------------------------------------------------------------------------- */

/* Of a table: a key, bytes, and their checksum. */
static void check_sums(struct query *q, const char *table, const char *columns)
{
    char sql[160];
    sqlite3_stmt *s = NULL;
    uint64_t wrong = 0;
    snprintf(sql, sizeof sql, "SELECT %.60s FROM \"%.40s\"", columns, table);
    int rc = sqlite3_prepare_v2(q->db, sql, -1, &s, NULL);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(s);
        if (rc == SQLITE_ROW && sqlite3_column_type(s, 2) != SQLITE_NULL)
            wrong += sqlite3_column_int64(s, 2) != fl__checksum(sqlite3_column_int64(s, 0), column_bytes(s, 1));
    }
    if (rc != SQLITE_DONE)
        doctor_problem(q->doctor, q->shard, "the table %s cannot be read: %s", table, sqlite3_errmsg(q->db));
    if (wrong > 0)
        doctor_problem(q->doctor, q->shard, "the table %s has %" PRIu64 " records whose checksums do not match", table,
                       wrong);
    sqlite3_finalize(s);
}

static void dead_row(struct query *q, sqlite3_stmt *s)
{
    const int64_t numbers[4] = {sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1), sqlite3_column_int64(s, 2),
                                sqlite3_column_int64(s, 3)};
    if (sqlite3_column_int64(s, 7) != fl__dead_sum(numbers, column_bytes(s, 4), column_bytes(s, 5), column_bytes(s, 6)))
        doctor_problem(q->doctor, q->shard,
                       "the checksum of the dead letter with sequence number %" PRId64 " does not match", numbers[0]);
}

static void sums_row(struct query *q, sqlite3_stmt *s)
{
    check_sums(q, (const char *)sqlite3_column_text(s, 0), "k, v, s");
}

static void read_sums(struct query *q)
{
    query(q, "SELECT id_seq, id_at_us, ns, died_us, name, reason, body, s FROM dead WHERE s IS NOT NULL", dead_row);
    check_sums(q, "namespaces", "number, name, s");
    check_sums(q, "progress", "0, progress, s");
    query(q, "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'slot_[0-9]*'", sums_row);
}

/* --- Files -------------------------------------------------------------------------------------------------------- */

static int open_file(struct doctor *doctor, uint32_t shard, char file[FILE_NAME], sqlite3 **ret)
{
    file_of(doctor, shard, file);
    if (sqlite3_open_v2(file, ret, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK) {
        sqlite3_db_config(*ret, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        return 0;
    }
    doctor_problem(doctor, shard, "cannot open %s: %s", file, *ret ? sqlite3_errmsg(*ret) : "out of memory");
    return -1;
}

int sqlite_facts(struct doctor *doctor, uint32_t shard, struct facts *ret)
{
    char file[FILE_NAME];
    struct query q = {.doctor = doctor, .shard = shard, .facts = ret};
    int r = open_file(doctor, shard, file, &q.db);
    if (r == 0)
        r = read_facts(&q);
    sqlite3_close(q.db);
    return r;
}

static void examine(struct doctor *doctor, uint32_t shard)
{
    char file[FILE_NAME], message[400];
    bool marked = false;
    struct facts facts = {0};
    struct query q = {.doctor = doctor, .shard = shard, .facts = &facts};
    if (open_file(doctor, shard, file, &q.db) == 0) {
        fl__mark_find(q.db, &marked);
        if (fl__log_check(file, marked, message, sizeof message) < 0)
            problem(&q, message);
        if (read_facts(&q) == 0)
            read_sums(&q);
    }
    sqlite3_close(q.db);
    facts_free(&facts);
}

void sqlite_examine(struct doctor *doctor)
{
    char file[FILE_NAME];
    for (uint32_t i = 0; file_of(doctor, i, file), access(file, F_OK) == 0; i++)
        examine(doctor, i);
}
