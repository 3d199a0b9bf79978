/* SPDX-License-Identifier: MIT */
/* A shard's file, looked into by a connection of its own that only reads. The store is open meanwhile, so that its lock keeps
 * others away. docs/store-sqlite.md has the tables. */

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
        return 0;
    snprintf(message, size, "there is no store in %s: it has no shard-0000.db", doctor->path);
    return -1;
}

struct query {
    struct doctor *doctor;
    uint32_t shard;
    sqlite3 *db;
    struct facts *facts;
};

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
        problem(q, text ? text : "there is not enough memory");
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
        problem(q, "how far it has got cannot be read");
}

static void window_row(struct query *q, sqlite3_stmt *s)
{
    if (!facts_add_window(q->facts, (uint64_t)sqlite3_column_int64(s, 0)))
        problem(q, "there is not enough memory");
}

static void moved_row(struct query *q, sqlite3_stmt *s)
{
    struct moved moved = {(uint64_t)sqlite3_column_int64(s, 0),
                          {sqlite3_column_int64(s, 1), (uint64_t)sqlite3_column_int64(s, 2)}};
    if (!facts_add_moved(q->facts, moved))
        problem(q, "there is not enough memory");
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
        doctor_problem(q->doctor, q->shard, "the table %s has rows and belongs to nothing", name);
    sqlite3_finalize(inner);
}

#define SLOTS "SELECT slot FROM windows UNION ALL SELECT slot FROM runs UNION ALL SELECT slot FROM doomed"

static int read_facts(struct query *q)
{
    if (query(q, "PRAGMA integrity_check", integrity_row) < 0 ||
        query(q, "SELECT owner, lease_until_us FROM shard", shard_row) < 0 ||
        query(q, "SELECT progress FROM progress", progress_row) < 0 ||
        query(q, "SELECT window FROM windows ORDER BY window", window_row) < 0 ||
        query(q, "SELECT id_seq, at_us, seq FROM moved", moved_row) < 0 ||
        query(q, "SELECT slot FROM (" SLOTS ") GROUP BY slot HAVING count(*) > 1", shared_slot_row) < 0)
        return -1;
    return query(q,
                 "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'slot_[0-9]*'"
                 " AND name NOT IN (SELECT 'slot_' || slot FROM (" SLOTS "))",
                 lost_slot_row);
}

int sqlite_facts(struct doctor *doctor, uint32_t shard, struct facts *ret)
{
    char file[FILE_NAME];
    struct query q = {.doctor = doctor, .shard = shard, .facts = ret};
    file_of(doctor, shard, file);
    int r = -1;
    if (sqlite3_open_v2(file, &q.db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        doctor_problem(doctor, shard, "%s cannot be opened: %s", file, q.db ? sqlite3_errmsg(q.db) : "no memory");
    else
        r = read_facts(&q);
    sqlite3_close(q.db);
    return r;
}
