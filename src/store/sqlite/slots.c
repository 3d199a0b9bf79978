/* SPDX-License-Identifier: MIT */
/* Slots: tables of records, taken and given back.
 *
 * A slot that is given back is doomed: its records are erased some hundred at a time between commits, because dropping a
 * table of a gigabyte takes a second. When the slot is empty it is free again.
 */

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/sqlite/base.h"

enum { SLOTS_MORE = 16, ERASE_RECORDS = 128 };

static const char *const texts[SLOT_STATEMENTS] = {
    [SLOT_FLOOR] = "SELECT k, v, s FROM slot_%u WHERE k <= ?1 ORDER BY k DESC LIMIT 1",
    [SLOT_SCAN] = "SELECT k, v, s FROM slot_%u WHERE k >= ?1 ORDER BY k",
    [SLOT_PUT] = "REPLACE INTO slot_%u VALUES(?1, ?2, ?3)",
    [SLOT_DROP] = "DELETE FROM slot_%u WHERE k = ?1",
};

/* `text` with the number of the slot in it. */
static int prepare(struct base *base, uint32_t slot, const char *text, unsigned flags, sqlite3_stmt **ret)
{
    char sql[192];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    /* cppcheck-suppress wrongPrintfScanfArgNum ; some texts name the slot once, some twice */
    snprintf(sql, sizeof sql, text, slot, slot);
#pragma GCC diagnostic pop
    int rc = sqlite3_prepare_v3(base->db, sql, -1, flags, ret, NULL);
    return rc == SQLITE_OK ? 0 : fl__base_failed(base, rc);
}

static int prepared(struct base *base, uint32_t slot, enum slot_statement which, sqlite3_stmt **ret)
{
    fl__assert(slot < base->slot_count && (unsigned)which < SLOT_STATEMENTS);
    sqlite3_stmt **statement = &base->slots[slot].statements[which];
    if (!*statement) {
        int r = prepare(base, slot, texts[which], SQLITE_PREPARE_PERSISTENT, statement);
        if (r < 0)
            return r;
    }
    *ret = *statement;
    return 0;
}

static int once(struct base *base, uint32_t slot, const char *text)
{
    sqlite3_stmt *statement = NULL;
    int r = prepare(base, slot, text, 0, &statement);
    if (r == 0)
        r = fl__step(base, statement);
    sqlite3_finalize(statement);
    return r;
}

/* --- Taking and giving back --------------------------------------------------------------------------------------- */

static int resize(struct base *base, size_t count)
{
    struct slot *slots = fl__resize(base->slots, count * sizeof *slots);
    fl__assert(count > base->slot_count);
    if (!slots)
        return base_no_memory(base);
    memset(slots + base->slot_count, 0, (count - base->slot_count) * sizeof *slots);
    base->slots = slots;
    base->slot_count = count;
    return 0;
}

/* Some more at a time, for SQLite compiles all statements again when there is a new table. */
static int make_more(struct base *base)
{
    size_t before = base->slot_count;
    int r = resize(base, before + SLOTS_MORE + before / 4);
    for (size_t i = before; i < base->slot_count && r == 0; i++)
        r = once(base, (uint32_t)i, "CREATE TABLE slot_%u(k INTEGER PRIMARY KEY, v BLOB, s INTEGER)");
    return r == 0 ? fl__run(base, SQL_SLOTS, "i", (int64_t)base->slot_count) : r;
}

int fl__slot_take(struct base *base, uint32_t *ret)
{
    for (;;) {
        for (size_t i = 0; i < base->slot_count; i++)
            if (base->slots[i].use == SLOT_FREE) {
                base->slots[i].use = SLOT_USED;
                *ret = (uint32_t)i;
                return 0;
            }
        int r = make_more(base);
        if (r < 0)
            return r;
    }
}

int fl__slot_doom(struct base *base, uint32_t slot)
{
    fl__assert(slot < base->slot_count && base->slots[slot].use == SLOT_USED);
    base->slots[slot].use = SLOT_DOOMED;
    base->doomed++;
    return fl__run(base, SQL_DOOM, "i", (int64_t)slot);
}

/* 1 if the slot is empty now. */
static int erase_some(struct base *base, uint32_t slot)
{
    sqlite3_stmt *statement;
    int r = prepare(base, slot, "SELECT k FROM slot_%u ORDER BY k LIMIT 1 OFFSET ?1", 0, &statement);
    if (r < 0)
        return r;
    sqlite3_bind_int(statement, 1, ERASE_RECORDS);
    r = fl__step(base, statement);
    int64_t k = r > 0 ? sqlite3_column_int64(statement, 0) : 0;
    sqlite3_finalize(statement);
    if (r < 0)
        return r;
    if (r == 0) {
        r = once(base, slot, "DELETE FROM slot_%u");
        return r < 0 ? r : 1;
    }
    r = prepare(base, slot, "DELETE FROM slot_%u WHERE k < ?1", 0, &statement);
    if (r < 0)
        return r;
    sqlite3_bind_int64(statement, 1, k);
    r = fl__step(base, statement);
    sqlite3_finalize(statement);
    return r;
}

static int erase(struct base *base, uint32_t slot, uint64_t deadline_ns)
{
    int r = 0;
    while (r == 0) {
        r = erase_some(base, slot);
        if (r == 0 && fl__monotonic_ns() >= deadline_ns)
            return 0;
    }
    if (r < 0)
        return r;
    fl__assert(base->slots[slot].use == SLOT_DOOMED && base->doomed > 0);
    base->slots[slot].use = SLOT_FREE;
    base->doomed--;
    return fl__run(base, SQL_DOOM_DROP, "i", (int64_t)slot);
}

int fl__slots_erase(struct base *base, uint64_t deadline_ns)
{
    for (size_t i = 0; i < base->slot_count && base->doomed > 0; i++) {
        if (base->slots[i].use != SLOT_DOOMED)
            continue;
        int r = erase(base, (uint32_t)i, deadline_ns);
        if (r < 0 || fl__monotonic_ns() >= deadline_ns)
            return r;
    }
    return 0;
}

/* --- Loading ------------------------------------------------------------------------------------------------------ */

static int mark(struct base *base, sqlite3_stmt *row, void *arg)
{
    enum slot_use use = *(const enum slot_use *)arg;
    uint64_t slot = (uint64_t)sqlite3_column_int64(row, 0);
    if (slot >= base->slot_count || base->slots[slot].use != SLOT_FREE)
        return base_corrupt(base, "two things are in one slot");
    base->slots[slot].use = use;
    base->doomed += use == SLOT_DOOMED;
    return 0;
}

static int count_slots(struct base *base, sqlite3_stmt *row, void *arg)
{
    (void)base;
    *(size_t *)arg = (size_t)sqlite3_column_int64(row, 0);
    return 0;
}

int fl__slots_load(struct base *base)
{
    size_t count = 0;
    int r = fl__each_row(base, "SELECT slots FROM shard", count_slots, &count);
    if (r == 0 && count > INT32_MAX)
        r = base_corrupt(base, "it has too many slots");
    if (r == 0 && count > 0)
        r = resize(base, count);
    if (r == 0)
        r = fl__each_row(base,
                         "SELECT slot FROM windows UNION ALL SELECT slot FROM runs UNION ALL SELECT slot FROM history",
                         mark, &(enum slot_use){SLOT_USED});
    if (r == 0)
        r = fl__each_row(base, "SELECT slot FROM doomed", mark, &(enum slot_use){SLOT_DOOMED});
    return r;
}

void fl__slots_unload(struct base *base)
{
    for (size_t i = 0; i < base->slot_count; i++)
        for (int j = 0; j < SLOT_STATEMENTS; j++)
            sqlite3_finalize(base->slots[i].statements[j]);
    fl__release(base->slots);
    base->slots = NULL;
    base->slot_count = base->doomed = 0;
}

/* For a file of an earlier version: its records have no checksums, but records that are written from now on have them. */
int fl__slots_sum(struct base *base)
{
    size_t count = 0;
    int r = fl__each_row(base, "SELECT slots FROM shard", count_slots, &count);
    for (size_t i = 0; i < count && r == 0; i++)
        r = once(base, (uint32_t)i, "ALTER TABLE slot_%u ADD COLUMN s INTEGER");
    return r;
}

/* --- Records ------------------------------------------------------------------------------------------------------ */

int fl__record_next(struct base *base, struct record *record)
{
    int r = fl__step(base, record->statement);
    fl__assert(record->statement);
    if (r <= 0) {
        record->statement = NULL;
        return r;
    }
    record->k = sqlite3_column_int64(record->statement, 0);
    record->v = fl__column_bytes(record->statement, 1);
    if (!record->v.data && sqlite3_errcode(base->db) == SQLITE_NOMEM) {
        fl__record_end(record);
        return fl__base_failed(base, SQLITE_NOMEM);
    }
    if (sqlite3_column_type(record->statement, 2) != SQLITE_NULL && /* null: of an earlier version */
        sqlite3_column_int64(record->statement, 2) != fl__checksum(record->k, record->v)) {
        fl__record_end(record);
        return base_corrupt(base, "the checksum of a record does not match");
    }
    return 1;
}

void fl__record_end(struct record *record)
{
    if (record->statement)
        sqlite3_reset(record->statement);
    record->statement = NULL;
}

static int first_record(struct base *base, uint32_t slot, enum slot_statement which, int64_t k, struct record *ret)
{
    sqlite3_stmt *statement;
    ret->statement = NULL; /* so that it can be ended in any case */
    int r = prepared(base, slot, which, &statement);
    if (r < 0)
        return r;
    int rc = sqlite3_bind_int64(statement, 1, k);
    if (rc != SQLITE_OK)
        return fl__base_failed(base, rc);
    ret->statement = statement;
    return fl__record_next(base, ret);
}

int fl__slot_floor(struct base *base, uint32_t slot, int64_t k, struct record *ret)
{
    return first_record(base, slot, SLOT_FLOOR, k, ret);
}

int fl__slot_scan(struct base *base, uint32_t slot, int64_t k, struct record *ret)
{
    return first_record(base, slot, SLOT_SCAN, k, ret);
}

int fl__slot_put(struct base *base, uint32_t slot, int64_t k, fl_bytes v)
{
    sqlite3_stmt *statement;
    int r = prepared(base, slot, SLOT_PUT, &statement);
    if (r < 0)
        return r;
    int rc = sqlite3_bind_int64(statement, 1, k);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_blob64(statement, 2, v.size > 0 ? v.data : "", v.size, SQLITE_STATIC);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(statement, 3, fl__checksum(k, v));
    return rc == SQLITE_OK ? fl__step(base, statement) : fl__base_failed(base, rc);
}

int fl__slot_drop(struct base *base, uint32_t slot, int64_t k)
{
    sqlite3_stmt *statement;
    int r = prepared(base, slot, SLOT_DROP, &statement);
    if (r < 0)
        return r;
    int rc = sqlite3_bind_int64(statement, 1, k);
    return rc == SQLITE_OK ? fl__step(base, statement) : fl__base_failed(base, rc);
}
