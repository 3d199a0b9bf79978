/* SPDX-License-Identifier: MIT */
/* Changes as statements: one for each kind of part, with arrays of everything.
 *
 * Changes of a batch are about different rows and names, so all that is taken away goes first, then all that is added
 * comes. Rows are put in the order of their key: those of one window are then neighbours in the index and in the table,
 * which makes writing them twice as fast, and reading the window later as well.
 *
 * A row to be removed is looked for in each window it can be in, since its window may have been filed again. A statement
 * has at most CHUNK bytes of rows, so that no message grows beyond what the protocol allows.
 */

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "store/postgres/postgres.h"

enum { CHUNK = 16 << 20, PUT_SINGLY = 4 }; /* that many rows are cheaper in statements of their own */

/* --- Making ------------------------------------------------------------------------------------------------------- */

static bool is_moved(const fl_row *row)
{
    return row->id.seq != row->key.seq || row->id.at_us != row->key.at_us;
}

static void count_change(struct pg_batch *batch, const fl_store_change *change)
{
    batch->removes += change->remove.seq != 0;
    batch->unmoves += change->remove_id != 0;
    batch->buries += change->bury != NULL;
    batch->unburies += change->unbury != 0;
    if (!change->put)
        return;
    batch->puts++;
    batch->moves += is_moved(change->put);
    if (change->put->name.size > 0 || is_moved(change->put))
        batch->plain = false;
}

static int compare_puts(const void *x, const void *y)
{
    const struct pg_put *a = x, *b = y;
    if (a->window != b->window)
        return a->window < b->window ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static void sort_puts(struct pg_batch *batch)
{
    size_t n = 0;
    bool sorted = true;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->changes[i].put) {
            const fl_row *row = batch->changes[i].put;
            batch->rows[n] = (struct pg_put){row->window, row->key.seq, row};
            sorted = sorted && (n == 0 || compare_puts(&batch->rows[n - 1], &batch->rows[n]) < 0);
            n++;
        }
    if (!sorted)
        qsort(batch->rows, n, sizeof *batch->rows, compare_puts);
}

static size_t put_size(const fl_row *row)
{
    return 3 * PG_INT_SIZE + 3 * PG_BYTES_SIZE + PG_ID_SIZE + row->ns.size + row->name.size + row->body.size;
}

static size_t bury_size(const fl_dead_row *dead)
{
    return 3 * PG_INT_SIZE + 4 * PG_BYTES_SIZE + dead->row.ns.size + dead->row.name.size + dead->row.body.size +
           dead->reason.size;
}

/* How many of the rows from `from` on go into one statement, and the room they take. */
static size_t put_chunk(const struct pg_batch *batch, size_t from, size_t *ret_size)
{
    size_t size = 0, i = from;
    while (i < batch->puts && (i == from || size < CHUNK))
        size += put_size(batch->rows[i++].row);
    *ret_size = size;
    return i - from;
}

/* The same for dead letters; `*from` is the index of a change and advances. */
static size_t bury_chunk(const struct pg_batch *batch, size_t *from, size_t *ret_size)
{
    size_t size = 0, n = 0;
    for (; *from < batch->count && size < CHUNK; ++*from)
        if (batch->changes[*from].bury) {
            size += bury_size(batch->changes[*from].bury);
            n++;
        }
    *ret_size = size;
    return n;
}

static bool same_space(const fl_row *a, const fl_row *b)
{
    return a->ns.size == b->ns.size && memcmp(a->ns.data, b->ns.data, a->ns.size) == 0;
}

/* How many rows from `from` on are of one namespace in one window. */
static size_t run_of(const struct pg_batch *batch, size_t from)
{
    const struct pg_put *first = &batch->rows[from];
    size_t i = from + 1;
    while (i < batch->puts && batch->rows[i].window == first->window && same_space(first->row, batch->rows[i].row))
        i++;
    return i - from;
}

static size_t count_room(const struct pg_batch *batch, size_t *ret_runs)
{
    size_t size = 0, runs = 0;
    for (size_t i = 0; i < batch->puts; i += run_of(batch, i), runs++)
        size += 2 * PG_INT_SIZE + PG_BYTES_SIZE + batch->rows[i].row->ns.size;
    *ret_runs = runs;
    return size;
}

static size_t room_needed(const struct pg_batch *batch)
{
    size_t runs;
    size_t removes = batch->removes + (batch->replace ? batch->puts : 0);
    size_t most = removes * FL__WINDOW_LEVELS * 3 * PG_INT_SIZE;
    size_t others[] = {batch->unmoves * PG_INT_SIZE, batch->unburies * PG_INT_SIZE, batch->moves * 3 * PG_INT_SIZE,
                       count_room(batch, &runs)};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        most = others[i] > most ? others[i] : most;
    size_t size;
    for (size_t i = 0; i < batch->puts;) {
        i += put_chunk(batch, i, &size);
        most = size > most ? size : most;
    }
    for (size_t i = 0; i < batch->count && batch->buries > 0;) {
        bury_chunk(batch, &i, &size);
        most = size > most ? size : most;
    }
    return most + PG_ARGS_MAX * PG_ARRAY_SIZE;
}

int fl__pg_batch_make(struct pg_shard *shard, const fl_store_change *changes, size_t count, bool replace,
                      struct pg_batch *ret)
{
    struct pg_batch batch = {.changes = changes, .count = count, .plain = true, .replace = replace};
    for (size_t i = 0; i < count; i++)
        count_change(&batch, &changes[i]);
    if (batch.puts > 0) {
        batch.rows = fl__alloc(batch.puts * sizeof *batch.rows);
        if (!batch.rows)
            return FL_NO_MEMORY;
        sort_puts(&batch);
    }
    if (!fl__pg_reserve(&shard->args, room_needed(&batch))) {
        fl__pg_batch_release(&batch);
        return FL_NO_MEMORY;
    }
    *ret = batch;
    return 0;
}

void fl__pg_batch_release(struct pg_batch *batch)
{
    fl__release(batch->rows);
    batch->rows = NULL;
}

/* --- Sending ------------------------------------------------------------------------------------------------------ */

enum put_column { PUT_WINDOW, PUT_SEQ, PUT_AT };

static void put_numbers(struct pg_args *args, const struct pg_put *puts, size_t count, enum put_column column)
{
    fl__pg_array(args, PG_OID_BIGINT, count, false);
    for (size_t i = 0; i < count; i++)
        fl__pg_item_int(args, column == PUT_WINDOW ? puts[i].window
                              : column == PUT_SEQ  ? puts[i].seq
                                                   : (uint64_t)puts[i].row->key.at_us);
    fl__pg_array_end(args);
}

/* The columns that are null for most rows. */
static void put_rare_columns(struct pg_args *args, const struct pg_put *puts, size_t count)
{
    fl__pg_array(args, PG_OID_BYTEA, count, true);
    for (size_t i = 0; i < count; i++)
        if (puts[i].row->name.size > 0)
            fl__pg_item_bytes(args, puts[i].row->name);
        else
            fl__pg_item_null(args);
    fl__pg_array_end(args);
    fl__pg_array(args, PG_OID_BYTEA, count, true);
    for (size_t i = 0; i < count; i++)
        if (is_moved(puts[i].row))
            fl__pg_item_key(args, puts[i].row->id);
        else
            fl__pg_item_null(args);
    fl__pg_array_end(args);
}

static void send_puts(struct pg_shard *shard, struct pg_flight *flight, const struct pg_batch *batch, size_t from,
                      size_t count)
{
    struct pg_args *args = &shard->args;
    const struct pg_put *puts = batch->rows + from;
    fl__pg_begin_write(shard);
    for (int column = PUT_WINDOW; column <= PUT_AT; column++)
        put_numbers(args, puts, count, (enum put_column)column);
    fl__pg_array(args, PG_OID_BYTEA, count, false);
    for (size_t i = 0; i < count; i++)
        fl__pg_item_bytes(args, puts[i].row->ns);
    fl__pg_array_end(args);
    fl__pg_array(args, PG_OID_BYTEA, count, false);
    for (size_t i = 0; i < count; i++)
        fl__pg_item_bytes(args, puts[i].row->body);
    fl__pg_array_end(args);
    if (!batch->plain)
        put_rare_columns(args, puts, count);
    fl__pg_say(shard, flight, batch->plain ? PG_PUT : PG_PUT_FULL, args);
}

static void send_put_one(struct pg_shard *shard, struct pg_flight *flight, const struct pg_put *put)
{
    struct pg_args *args = &shard->args;
    fl__pg_begin_write(shard);
    fl__pg_int(args, put->window);
    fl__pg_int(args, put->seq);
    fl__pg_int(args, (uint64_t)put->row->key.at_us);
    fl__pg_bytes(args, put->row->ns);
    fl__pg_bytes(args, put->row->body);
    if (put->row->name.size > 0)
        fl__pg_bytes(args, put->row->name);
    else
        fl__pg_null(args);
    if (is_moved(put->row))
        fl__pg_key(args, put->row->id);
    else
        fl__pg_null(args);
    fl__pg_say(shard, flight, PG_PUT_ONE, args);
}

static void send_all_puts(struct pg_shard *shard, struct pg_flight *flight, const struct pg_batch *batch)
{
    if (batch->puts <= PUT_SINGLY) {
        for (size_t i = 0; i < batch->puts; i++)
            send_put_one(shard, flight, &batch->rows[i]);
        return;
    }
    size_t size;
    for (size_t from = 0, count; from < batch->puts; from += count) {
        count = put_chunk(batch, from, &size);
        send_puts(shard, flight, batch, from, count);
    }
}

/* The key of the n-th row that is to go: those that are removed, then those that are put, if they are replaced. */
struct removal {
    const struct pg_batch *batch;
    size_t change, put;
};

static bool next_removal(struct removal *at, fl_key *ret)
{
    while (at->change < at->batch->count) {
        fl_key key = at->batch->changes[at->change++].remove;
        if (key.seq != 0) {
            *ret = key;
            return true;
        }
    }
    if (!at->batch->replace || at->put >= at->batch->puts)
        return false;
    *ret = at->batch->rows[at->put++].row->key;
    return true;
}

enum removal_column { REMOVAL_WINDOW, REMOVAL_SEQ, REMOVAL_AT };

static void removal_array(struct pg_args *args, const struct pg_batch *batch, size_t count, enum removal_column column)
{
    struct removal at = {batch, 0, 0};
    fl_key key;
    uint64_t windows[FL__WINDOW_LEVELS];
    fl__pg_array(args, PG_OID_BIGINT, count * FL__WINDOW_LEVELS, false);
    while (next_removal(&at, &key)) {
        fl__window_candidates(key.at_us, windows);
        for (int i = 0; i < FL__WINDOW_LEVELS; i++)
            fl__pg_item_int(args, column == REMOVAL_WINDOW ? windows[i]
                                  : column == REMOVAL_SEQ  ? key.seq
                                                           : (uint64_t)key.at_us);
    }
    fl__pg_array_end(args);
}

static void send_removes(struct pg_shard *shard, struct pg_flight *flight, const struct pg_batch *batch)
{
    size_t count = batch->removes + (batch->replace ? batch->puts : 0);
    if (count == 0)
        return;
    fl__pg_begin_write(shard);
    removal_array(&shard->args, batch, count, REMOVAL_WINDOW);
    removal_array(&shard->args, batch, count, REMOVAL_SEQ);
    removal_array(&shard->args, batch, count, REMOVAL_AT);
    fl__pg_say(shard, flight, PG_REMOVE, &shard->args);
    fl__pg_begin_write(shard);
    fl__pg_say(shard, flight, PG_COUNT_REMOVED, &shard->args);
    fl__pg_say(shard, flight, PG_REMOVED, &shard->args);
}

static void send_counts_singly(struct pg_shard *shard, struct pg_flight *flight, const struct pg_batch *batch)
{
    for (size_t i = 0, run; i < batch->puts; i += run) {
        run = run_of(batch, i);
        fl__pg_begin_write(shard);
        fl__pg_int(&shard->args, batch->rows[i].window);
        fl__pg_bytes(&shard->args, batch->rows[i].row->ns);
        fl__pg_int(&shard->args, run);
        fl__pg_say(shard, flight, PG_COUNT_ONE, &shard->args);
    }
}

static void send_count(struct pg_shard *shard, struct pg_flight *flight, const struct pg_batch *batch)
{
    struct pg_args *args = &shard->args;
    size_t runs;
    count_room(batch, &runs);
    if (runs <= PUT_SINGLY) {
        send_counts_singly(shard, flight, batch);
        return;
    }
    fl__pg_begin_write(shard);
    fl__pg_array(args, PG_OID_BIGINT, runs, false);
    for (size_t i = 0; i < batch->puts; i += run_of(batch, i))
        fl__pg_item_int(args, batch->rows[i].window);
    fl__pg_array_end(args);
    fl__pg_array(args, PG_OID_BYTEA, runs, false);
    for (size_t i = 0; i < batch->puts; i += run_of(batch, i))
        fl__pg_item_bytes(args, batch->rows[i].row->ns);
    fl__pg_array_end(args);
    fl__pg_array(args, PG_OID_BIGINT, runs, false);
    for (size_t i = 0, run; i < batch->puts; i += run) {
        run = run_of(batch, i);
        fl__pg_item_int(args, run);
    }
    fl__pg_array_end(args);
    fl__pg_say(shard, flight, PG_COUNT_PUT, args);
}

/* Sends one array of the numbers that are not 0 in the changes. */
static void send_numbers(struct pg_shard *shard, struct pg_flight *flight, const struct pg_batch *batch,
                         enum pg_statement statement, size_t count)
{
    if (count == 0)
        return;
    fl__pg_begin_write(shard);
    fl__pg_array(&shard->args, PG_OID_BIGINT, count, false);
    for (size_t i = 0; i < batch->count; i++) {
        const fl_store_change *change = &batch->changes[i];
        uint64_t number = statement == PG_UNMOVE ? change->remove_id : change->unbury;
        if (number != 0)
            fl__pg_item_int(&shard->args, number);
    }
    fl__pg_array_end(&shard->args);
    fl__pg_say(shard, flight, statement, &shard->args);
}

static void moved_array(struct pg_args *args, const struct pg_batch *batch, int column)
{
    fl__pg_array(args, PG_OID_BIGINT, batch->moves, false);
    for (size_t i = 0; i < batch->puts; i++) {
        const fl_row *row = batch->rows[i].row;
        if (is_moved(row))
            fl__pg_item_int(args, column == 0 ? row->id.seq : column == 1 ? (uint64_t)row->key.at_us : row->key.seq);
    }
    fl__pg_array_end(args);
}

static void send_moves(struct pg_shard *shard, struct pg_flight *flight, const struct pg_batch *batch)
{
    if (batch->moves == 0)
        return;
    fl__pg_begin_write(shard);
    for (int column = 0; column < 3; column++)
        moved_array(&shard->args, batch, column);
    fl__pg_say(shard, flight, PG_MOVED, &shard->args);
}

/* The seven columns of dead letters, in the order of the statement. */
static void bury_item(struct pg_args *args, const fl_dead_row *dead, int column)
{
    switch (column) {
    case 0:
        fl__pg_item_int(args, dead->row.id.seq);
        break;
    case 1:
        fl__pg_item_int(args, (uint64_t)dead->row.id.at_us);
        break;
    case 2:
        fl__pg_item_bytes(args, dead->row.ns);
        break;
    case 3:
        fl__pg_item_bytes(args, dead->row.name);
        break;
    case 4:
        fl__pg_item_bytes(args, dead->row.body);
        break;
    case 5:
        fl__pg_item_int(args, (uint64_t)dead->died_us);
        break;
    default:
        fl__pg_item_bytes(args, dead->reason);
    }
}

static void send_buries(struct pg_shard *shard, struct pg_flight *flight, const struct pg_batch *batch)
{
    size_t size;
    for (size_t from = 0, end = 0; end < batch->count && batch->buries > 0; from = end) {
        size_t count = bury_chunk(batch, &end, &size);
        if (count == 0)
            break;
        fl__pg_begin_write(shard);
        for (int column = 0; column < 7; column++) {
            bool is_int = column < 2 || column == 5;
            fl__pg_array(&shard->args, is_int ? PG_OID_BIGINT : PG_OID_BYTEA, count, false);
            for (size_t i = from; i < end; i++)
                if (batch->changes[i].bury)
                    bury_item(&shard->args, batch->changes[i].bury, column);
            fl__pg_array_end(&shard->args);
        }
        fl__pg_say(shard, flight, PG_BURY, &shard->args);
    }
}

void fl__pg_batch_send(struct pg_shard *shard, struct pg_flight *flight, const struct pg_batch *batch)
{
    send_removes(shard, flight, batch);
    send_numbers(shard, flight, batch, PG_UNMOVE, batch->unmoves);
    send_numbers(shard, flight, batch, PG_UNBURY, batch->unburies);
    send_all_puts(shard, flight, batch);
    send_count(shard, flight, batch);
    send_moves(shard, flight, batch);
    send_buries(shard, flight, batch);
}
