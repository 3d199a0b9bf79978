/* SPDX-License-Identifier: MIT */
/* Changes on their way to the store, and reads from it.
 *
 * The changes of one turn of the loop are sent together at its end, as one request. While the maximum number of requests is
 * in progress, the next request waits and collects more changes. Bodies are encoded into memory that belongs to the request.
 */

#include "engine/internal.h"

/* --- Sequence numbers --------------------------------------------------------------------------------------------- */

/* Takes a sequence number from the range that the store has recorded as reserved. Returns 0 if the range is used up, because
 * the store has not answered for long. */
uint64_t fl__seq_take(fl_engine *e, bool retried)
{
    if (e->seq_next + 2 > e->seq_granted)
        return 0;
    if (e->seq_granted - e->seq_next < SEQ_RESERVE / 2)
        e->dirty = true;
    uint64_t seq = e->seq_next;
    e->seq_next += 2;
    return seq | retried;
}

/* --- Writes ------------------------------------------------------------------------------------------------------- */

static void free_write(struct write *write)
{
    fl__arena_free(&write->arena);
    fl__release(write->changes);
    fl__release(write->entries);
    fl__release(write);
}

static struct write *last_queued(fl_engine *e)
{
    struct write *write = e->queued_last;
    fl__assert(!e->queued == !e->queued_last);
    if (e->group_write)
        return e->group_write;
    if (write && write->count < WRITE_MOST && write->bytes < WRITE_BYTES)
        return write;
    write = fl__alloc_zeroed(sizeof *write);
    if (!write)
        return NULL;
    write->engine = e;
    if (e->queued_last)
        e->queued_last->next = write;
    else
        e->queued = write;
    e->queued_last = write;
    return write;
}

static int grow_write(struct write *write)
{
    size_t capacity = write->capacity ? write->capacity * 4 : 8;
    fl_store_change *changes = fl__resize(write->changes, capacity * sizeof *changes);
    if (!changes)
        return FL_NO_MEMORY;
    write->changes = changes;
    struct write_entry *entries = fl__resize(write->entries, capacity * sizeof *entries);
    if (!entries)
        return FL_NO_MEMORY;
    write->entries = entries;
    write->capacity = capacity;
    return 0;
}

/* Adds an empty change, with `bytes` bytes of memory, to the next write. NULL: no memory. The caller sets `put` and `bury` of
 * the change to any pointer but NULL; before sending they are set to the rows of the entry. */
struct write_entry *fl__write_add(fl_engine *e, size_t bytes, fl_store_change **ret_change, unsigned char **ret_bytes)
{
    struct write *write = last_queued(e);
    if (!write || (write->count == write->capacity && grow_write(write) < 0))
        return NULL;
    unsigned char *memory = bytes > 0 ? fl__arena_take(&write->arena, bytes) : NULL;
    write->bytes += bytes;
    if (bytes > 0 && !memory)
        return NULL;
    fl__assert(write->count < write->capacity);
    *ret_change = &write->changes[write->count];
    **ret_change = (fl_store_change){0};
    if (ret_bytes)
        *ret_bytes = memory;
    struct write_entry *entry = &write->entries[write->count++];
    *entry = (struct write_entry){0};
    fl__engine_flush_soon(e);
    return entry;
}

/* All changes until the group is closed go into one write, whatever its size. If the group is not `whole` then, its changes
 * are removed again. */
bool fl__write_open_group(fl_engine *e)
{
    fl__assert(!e->group_write);
    struct write *write = last_queued(e);
    if (!write)
        return false;
    e->group_write = write;
    e->group_begin = write->count;
    e->group_bytes = write->bytes;
    return true;
}

void fl__write_close_group(fl_engine *e, bool whole)
{
    fl__assert(e->group_write && e->group_begin <= e->group_write->count);
    if (!whole) {
        e->group_write->count = e->group_begin;
        e->group_write->bytes = e->group_bytes;
    }
    e->group_write = NULL;
}

/* Whether a queued or sent write files a row under this window. */
bool fl__write_files_under(const fl_engine *e, uint64_t window)
{
    const struct write *lists[] = {e->sent, e->queued};
    for (int i = 0; i < 2; i++)
        for (const struct write *write = lists[i]; write; write = write->next)
            for (size_t j = 0; j < write->count; j++)
                if (write->changes[j].put && write->entries[j].row.window == window)
                    return true;
    return false;
}

static void write_done(fl_store_request *request)
{
    struct write *write = (struct write *)request;
    fl_engine *e = write->engine;
    fl__assert(e->sent == write); /* answers come in order */
    fl__assert(e->writes_busy > 0);
    e->sent = write->next;
    if (!e->sent)
        e->sent_last = NULL;
    e->writes_busy--;
    e->pressed |= request->result == FL_STORE_FULL; /* settled rows are deleted soon */
    fl__engine_answered(e, request);
    for (size_t i = 0; i < write->count; i++) {
        struct write_entry *entry = &write->entries[i];
        if (entry->work)
            fl__ops_written(e, entry->work, entry, request->result);
        else if (entry->op)
            fl__ops_created(e, entry, request->result);
    }
    free_write(write);
    if (e->queued)
        fl__engine_flush_soon(e); /* the next request may be sent now */
    fl__ops_deliver(e);
}

static void send_write(fl_engine *e, struct write *write)
{
    fl__assert(e->queued == write && write != e->group_write);
    e->queued = write->next;
    if (!e->queued)
        e->queued_last = NULL;
    write->next = NULL;
    for (size_t i = 0; i < write->count; i++) {
        fl_store_change *change = &write->changes[i];
        if (change->put) {
            change->put = &write->entries[i].row;
            fl__windows_add(e, change->put->window);
            e->stats.rows_written++;
        }
        if (change->bury)
            change->bury = &write->entries[i].dead;
    }
    write->request.write.changes = write->changes;
    write->request.write.count = write->count;
    if (e->sent_last)
        e->sent_last->next = write;
    else
        e->sent = write;
    e->sent_last = write;
    e->writes_busy++;
    e->stats.store_writes++;
    fl__engine_submit_request(e, &write->request, FL_STORE_WRITE, write_done);
}

/* --- Questions ---------------------------------------------------------------------------------------------------- */

static void find_done(fl_store_request *request)
{
    struct find *find = (struct find *)request;
    fl_engine *e = find->engine;
    fl__assert(e->finds_busy > 0);
    fl__assert(find->count == request->find.count);
    e->finds_busy--;
    fl__engine_answered(e, request);
    for (size_t i = 0; i < find->count; i++)
        fl__ops_found(e, find->works[i], request->result < 0 ? NULL : &find->wants[i]);
    fl__release(find);
    if (e->to_find.count > 0)
        fl__engine_flush_soon(e);
    fl__ops_deliver(e);
}

/* A request that reads `count` rows; NULL: no memory. */
struct find *fl__find_new(fl_engine *e, size_t count)
{
    struct find *find = fl__alloc_zeroed(sizeof *find + count * (sizeof *find->wants + sizeof(struct work *)));
    if (!find)
        return NULL;
    find->engine = e;
    find->wants = (fl_store_want *)(find + 1);
    find->works = (struct work **)(find->wants + count);
    find->request.find.wants = find->wants;
    find->request.find.count = count;
    return find;
}

void fl__find_want(const struct work *work, fl_store_want *ret)
{
    const fl_durable *timer = &work->op->timer;
    fl__assert(work->op);
    *ret = (fl_store_want){.ns = timer->ns, .name = timer->name, .name_hash = work->name_hash, .id = timer->id};
}

static void send_find(fl_engine *e)
{
    size_t count = e->to_find.count < WRITE_MOST ? e->to_find.count : WRITE_MOST;
    struct find *find = fl__find_new(e, count);
    fl__assert(e->state == ENGINE_RUNNING && count > 0);
    if (!find) { /* no memory: refuses the operations one by one */
        fl__ops_found(e, fl__queue_pop(&e->to_find), NULL);
        return;
    }
    while (find->count < count) {
        struct work *work = fl__queue_pop(&e->to_find);
        fl__find_want(work, &find->wants[find->count]);
        find->works[find->count++] = work;
    }
    e->finds_busy++;
    e->stats.store_finds++;
    fl__engine_submit_request(e, &find->request, FL_STORE_FIND, find_done);
}

/* --- Sending ------------------------------------------------------------------------------------------------------ */

void fl__flush(fl_engine *e)
{
    if (e->state != ENGINE_RUNNING)
        return;
    while (e->to_find.count > 0 && e->finds_busy < WRITES_UNDER_WAY)
        send_find(e);
    while (e->queued && e->writes_busy < WRITES_UNDER_WAY && !e->set_back && !e->retreat)
        send_write(e, e->queued);
}

void fl__flush_all(fl_engine *e)
{
    while (e->queued && !e->set_back && !e->retreat)
        send_write(e, e->queued);
}

/* Frees the writes that were never sent. All their operations are answered. */
void fl__writes_free(fl_engine *e)
{
    fl__assert(!e->group_write);
    while (e->queued) {
        struct write *write = e->queued;
        e->queued = write->next;
        free_write(write);
    }
    e->queued_last = NULL;
}
