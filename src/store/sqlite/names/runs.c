/* SPDX-License-Identifier: MIT */
/* Runs: sorted parts of the index of names, in the file.
 *
 * An entry says where a row with a certain hash of its name may be. Readers check the row, because hashes may collide. They
 * ignore an entry whose row is gone, so entries are never removed from a run.
 *
 * A run is written once, in the order of the hashes. The range of hashes is divided into equal parts, each with so many
 * entries as fit into a page in the mean: a block. Which one a hash is in is a multiplication, no search; it is the record
 * with that key in the run's slot:
 *
 *     hash 8, tick 6, seq 7 bytes, little endian, for each entry
 */

#include <string.h>

#include "base/alloc.h"
#include "store/sqlite/names/internal.h"

enum { TICK_BYTES = 6, SEQ_BYTES = 7, TOGETHER = 32 };

size_t fl__run_piece_of(const struct run *run, uint64_t block)
{
    return (size_t)(block / run->piece_blocks);
}

static size_t pieces_of(const struct run *run)
{
    return fl__run_piece_of(run, run->blocks - 1) + 1;
}

unsigned fl__run_class(uint64_t entries)
{
    unsigned class = 0;
    uint64_t limit = 2 * (uint64_t)fl__sqlite_tuning.fresh_max;
    for (; entries >= limit && class < RUN_CLASSES; class ++)
        limit *= fl__sqlite_tuning.fan;
    return class;
}

/* With the usual settings: fewer from 250,000 entries on, and fewer again from a million. */
static uint64_t lines_for(uint64_t entries)
{
    unsigned class = fl__run_class(entries);
    return class < 2 ? 5 : class == 2 ? 4 : 3;
}

/* --- Entries as bytes --------------------------------------------------------------------------------------------- */

static unsigned char *put_number(unsigned char *out, uint64_t number, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (unsigned char)(number >> (8 * i));
    return out + bytes;
}

static uint64_t get_number(const unsigned char *in, unsigned bytes)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < bytes; i++)
        number |= (uint64_t)in[i] << (8 * i);
    return number;
}

static uint64_t hash_at(const unsigned char *in)
{
    return get_number(in, sizeof(uint64_t));
}

static struct name_entry decode(const unsigned char *in)
{
    return (struct name_entry){.hash = hash_at(in),
                               .tick = get_number(in + sizeof(uint64_t), TICK_BYTES),
                               .seq = get_number(in + sizeof(uint64_t) + TICK_BYTES, SEQ_BYTES)};
}

/* --- Making and writing ------------------------------------------------------------------------------------------- */

static int new_run(struct base *base, struct run values, struct run **ret)
{
    struct run *run = fl__alloc(sizeof *run);
    if (!run)
        return base_no_memory(base);
    *run = values;
    run->piece_blocks = PIECE_LINES / run->lines;
    run->pieces = fl__alloc_zeroed(pieces_of(run) * sizeof(unsigned char *));
    if (!run->pieces) {
        fl__release(run);
        return base_no_memory(base);
    }
    *ret = run;
    return 0;
}

int fl__run_make(struct base *base, uint64_t entries, struct run **ret)
{
    struct run values = {.blocks = entries / BLOCK_ENTRIES + 1,
                         .lines = lines_for(entries),
                         .age = base->names->runs ? base->names->runs->age + 1 : 1};
    int r = fl__slot_take(base, &values.slot);
    return r == 0 ? new_run(base, values, ret) : r;
}

void fl__run_free(struct run *run)
{
    for (size_t i = 0; i < pieces_of(run); i++)
        fl__release(run->pieces[i]);
    fl__release(run->pieces);
    fl__release(run);
}

int fl__run_end(struct base *base, struct run *run)
{
    struct run **at = &base->names->runs;
    while (*at != run)
        at = &(*at)->next;
    *at = run->next;
    int r = fl__run(base, SQL_RUN_DROP, "i", (int64_t)run->slot);
    if (r == 0)
        r = fl__slot_doom(base, run->slot);
    fl__run_free(run);
    return r;
}

int fl__run_note(struct base *base, const struct run *run)
{
    return fl__run(base, SQL_RUN, "iiiiiii", (int64_t)run->slot, (int64_t)run->age, (int64_t)run->blocks,
                   (int64_t)run->entries, (int64_t)run->done, run->into ? (int64_t)run->into->out->slot : -1,
                   (int64_t)run->lines);
}

static int store_piece(struct base *base, const struct run *run, size_t piece)
{
    return fl__slot_put(base, run->slot, -1 - (int64_t)piece, (fl_bytes){run->pieces[piece], PIECE_BYTES});
}

int fl__run_write(struct base *base, struct run *run, const struct name_entry *entries, size_t count)
{
    uint64_t block = run->done;
    size_t piece = fl__run_piece_of(run, block);
    int r = fl__filter_make_piece(base, run, piece);
    if (r < 0)
        return r;
    unsigned char *bytes = fl__base_scratch(base, count * ENTRY_BYTES + 1), *end = bytes;
    if (!bytes)
        return FL_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        end = put_number(end, entries[i].hash, sizeof(uint64_t));
        end = put_number(end, entries[i].tick, TICK_BYTES);
        end = put_number(end, entries[i].seq, SEQ_BYTES);
        fl__filter_add(run, entries[i].hash);
    }
    if (count > 0)
        r = fl__slot_put(base, run->slot, (int64_t)block, (fl_bytes){bytes, (size_t)(end - bytes)});
    run->done++;
    run->entries += count;
    if (r == 0 && (run->done % run->piece_blocks == 0 || run->done == run->blocks))
        r = store_piece(base, run, piece);
    return r;
}

/* --- Reading ------------------------------------------------------------------------------------------------------ */

static bool valid_block(const struct run *run, const struct record *record)
{
    const unsigned char *at = record->v.data;
    uint64_t last = 0;
    if (record->v.size % ENTRY_BYTES != 0)
        return false;
    for (size_t left = record->v.size; left > 0; left -= ENTRY_BYTES, at += ENTRY_BYTES) {
        uint64_t hash = hash_at(at);
        if (hash < last || block_of(run, hash) != (uint64_t)record->k)
            return false;
        last = hash;
    }
    return true;
}

static int fill_cursor(struct base *base, struct run_cursor *cursor, const struct record *record)
{
    if (!valid_block(cursor->run, record))
        return base_corrupt(base, "the index of names cannot be read");
    size_t count = record->v.size / ENTRY_BYTES;
    if (count > cursor->room) {
        struct name_entry *entries = fl__resize(cursor->entries, count * sizeof *entries);
        if (!entries)
            return base_no_memory(base);
        cursor->entries = entries;
        cursor->room = count;
    }
    const unsigned char *at = record->v.data;
    for (size_t i = 0; i < count; i++, at += ENTRY_BYTES)
        cursor->entries[i] = decode(at);
    cursor->at = 0;
    cursor->count = count;
    cursor->next = (uint64_t)record->k + 1;
    return 1;
}

int fl__cursor_advance(struct base *base, struct run_cursor *cursor)
{
    if (cursor->at + 1 < cursor->count) {
        cursor->at++;
        return 1;
    }
    struct record record;
    cursor->count = 0;
    int r = fl__slot_scan(base, cursor->run->slot, (int64_t)cursor->next, &record);
    if (r <= 0)
        return r;
    r = fill_cursor(base, cursor, &record);
    fl__record_end(&record);
    return r;
}

/* Calls `found` for the entries of a block with the hash of a query. */
static int search_block(struct base *base, fl_bytes block, struct name_query *query, name_fn *found, void *arg)
{
    const unsigned char *data = block.data;
    size_t low = 0, count = block.size / ENTRY_BYTES, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (hash_at(data + middle * ENTRY_BYTES) < query->hash)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < count && hash_at(data + low * ENTRY_BYTES) == query->hash; low++) {
        struct name_entry entry = decode(data + low * ENTRY_BYTES);
        int r = found(base, query->index, &entry, arg);
        if (r < 0)
            return r;
        if (r > 0) {
            query->done = true;
            break;
        }
    }
    return 0;
}

static int search_run(struct base *base, const struct run *run, struct name_query *query, name_fn *found, void *arg)
{
    struct record record;
    uint64_t block = block_of(run, query->hash);
    int r = fl__slot_floor(base, run->slot, (int64_t)block, &record);
    if (r <= 0)
        return r;
    r = record.k == (int64_t)block ? search_block(base, record.v, query, found, arg) : 0;
    fl__record_end(&record);
    return r;
}

/* Whether a hash is to be looked for in this run. During a merge, hashes that are already merged are in the new run. */
static bool responsible(const struct run *run, uint64_t hash)
{
    if (run->into)
        return block_of(run->into->out, hash) >= run->into->out->done;
    return run->done == run->blocks || block_of(run, hash) < run->done;
}

/* Some queries at a time, so that the memory is fetched for all of them before it is looked at. */
static int find_some(struct base *base, const struct run *run, struct name_query *queries, size_t count, name_fn *found,
                     void *arg)
{
    struct name_query *asked[TOGETHER];
    size_t waiting = 0;
    for (size_t i = 0; i < count; i++) {
        if (queries[i].done || !responsible(run, queries[i].hash))
            continue;
        __builtin_prefetch(fl__filter_line_of(run, queries[i].hash));
        asked[waiting++] = &queries[i];
    }
    for (size_t i = 0; i < waiting; i++) {
        int r = fl__filter_has(run, asked[i]->hash) ? search_run(base, run, asked[i], found, arg) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

int fl__runs_find(struct base *base, struct name_query *queries, size_t count, name_fn *found, void *arg)
{
    for (const struct run *run = base->names->runs; run; run = run->next)
        for (size_t i = 0; i < count; i += TOGETHER) {
            size_t some = count - i < TOGETHER ? count - i : TOGETHER;
            int r = find_some(base, run, queries + i, some, found, arg);
            if (r < 0)
                return r;
        }
    return 0;
}

bool fl__runs_may_have(const struct base *base, uint64_t hash)
{
    for (const struct run *run = base->names->runs; run; run = run->next)
        if (responsible(run, hash) && fl__filter_has(run, hash))
            return true;
    return false;
}

/* --- Loading ------------------------------------------------------------------------------------------------------ */

/* The first piece that is still read. Hashes of earlier pieces are already merged into the new run. */
static size_t first_piece(const struct run *run)
{
    const struct run *out = run->into ? run->into->out : NULL;
    return out ? fl__run_piece_of(run, block_of(run, hash_of(out, out->done))) : 0;
}

/* From the last one on. */
static int load_pieces(struct base *base, struct run *run)
{
    struct record record;
    int64_t end = -(int64_t)first_piece(run);
    int r = fl__slot_scan(base, run->slot, -(int64_t)pieces_of(run), &record);
    while (r > 0 && record.k < end) {
        size_t piece = (size_t)(-1 - record.k);
        if (record.v.size != PIECE_BYTES)
            r = base_corrupt(base, "a filter of names has another size");
        else
            r = fl__filter_make_piece(base, run, piece);
        if (r < 0)
            break;
        memcpy(run->pieces[piece], record.v.data, PIECE_BYTES);
        r = fl__record_next(base, &record);
    }
    fl__record_end(&record);
    return r < 0 ? r : 0;
}

/* The piece that was not complete is made anew from its blocks. */
static int make_last_piece(struct base *base, struct run *run)
{
    struct run_cursor cursor = {.run = run, .next = run->done - run->done % run->piece_blocks};
    if (run->done == run->blocks || cursor.next == run->done)
        return 0;
    int r = fl__filter_make_piece(base, run, fl__run_piece_of(run, run->done));
    while (r == 0 && (r = fl__cursor_advance(base, &cursor)) > 0) {
        r = 0;
        if (cursor.next > run->done)
            r = base_corrupt(base, "a run of names is longer than it says");
        else if (cursor.entries)
            fl__filter_add(run, cursor.entries[cursor.at].hash);
    }
    fl__release(cursor.entries);
    return r;
}

static int check_pieces(struct base *base, const struct run *run)
{
    for (size_t i = first_piece(run); i < pieces_of(run) && i * run->piece_blocks < run->done; i++)
        if (!run->pieces[i])
            return base_corrupt(base, "a filter of names is not there");
    return 0;
}

static int load_run(struct base *base, sqlite3_stmt *statement, struct run **ret, int64_t *ret_target)
{
    struct run values = {.slot = (uint32_t)sqlite3_column_int64(statement, 0),
                         .age = (uint64_t)sqlite3_column_int64(statement, 1),
                         .blocks = (uint64_t)sqlite3_column_int64(statement, 2),
                         .entries = (uint64_t)sqlite3_column_int64(statement, 3),
                         .done = (uint64_t)sqlite3_column_int64(statement, 4),
                         .lines = (uint64_t)sqlite3_column_int64(statement, 6)};
    *ret_target = sqlite3_column_int64(statement, 5);
    if (values.blocks == 0 || values.blocks >= (uint64_t)1 << 40 || values.done > values.blocks || values.lines == 0 ||
        values.lines > LINES_MAX)
        return base_corrupt(base, "a run of names is impossible");
    return new_run(base, values, ret);
}

static struct run *find_run(const struct base *base, int64_t slot)
{
    struct run *run = base->names->runs;
    while (run && run->slot != slot)
        run = run->next;
    return run;
}

/* A run comes after the one it goes into, which is younger. */
static int join_merge(struct base *base, struct run *run, int64_t target)
{
    struct run *out = find_run(base, target);
    struct merge *merge = base->names->merges;
    while (merge && merge->out != out)
        merge = merge->next;
    return merge ? fl__merge_add(base, merge, run) : base_corrupt(base, "a run of names goes nowhere");
}

static int load_next(struct base *base, sqlite3_stmt *statement, void *arg)
{
    struct run ***end = arg; /* where the list ends */
    struct run *run = NULL;
    struct merge *merge;
    int64_t target = -1;
    int r = load_run(base, statement, &run, &target);
    if (r < 0)
        return r;
    **end = run;
    *end = &run->next;
    if (run->done < run->blocks)
        r = fl__merge_resume(base, run, &merge);
    if (r == 0 && target >= 0)
        r = join_merge(base, run, target);
    if (r == 0)
        r = load_pieces(base, run);
    if (r == 0)
        r = make_last_piece(base, run);
    if (r == 0)
        r = check_pieces(base, run);
    return r;
}

int fl__runs_load(struct base *base)
{
    struct run **end = &base->names->runs;
    return fl__each_row(base, "SELECT slot, age, blocks, entries, done, target, lines FROM runs ORDER BY age DESC",
                        load_next, &end);
}

void fl__runs_unload(struct base *base)
{
    while (base->names->runs) {
        struct run *next = base->names->runs->next;
        fl__run_free(base->names->runs);
        base->names->runs = next;
    }
    fl__pieces_release(base);
}
