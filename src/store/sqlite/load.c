/* SPDX-License-Identifier: MIT */
/* Loading windows: FL_STORE_LOAD.
 *
 * A window is read twice: first its rows are counted. If they are more than may be given, their keys are read, and the
 * earliest are chosen among twice as many as are wanted at a time. Then those are sent, in batches, as fast as the loop
 * takes them. To look at a row without its body takes ten nanoseconds; the pages come from memory the second time.
 */

#include <string.h>

#include "base/alloc.h"
#include "store/sqlite/worker.h"

struct loading {
    struct worker *worker;
    struct base *base;
    struct port *port;
    fl_store_request *request;
    struct batch *batch; /* that is being filled */
    size_t left;         /* rows that may still be given */
    fl_key last;         /* of the window that is being sent: later ones are not given */
};

static bool before(fl_key a, fl_key b)
{
    return a.at_us != b.at_us ? a.at_us < b.at_us : a.seq < b.seq;
}

/* --- Going through a window --------------------------------------------------------------------------------------- */

/* Is called for every chunk. */
typedef int chunk_fn(struct loading *loading, struct window *window, struct chunk_reader reader, void *arg);

static int each_chunk(struct loading *loading, struct window *window, chunk_fn *fn, void *arg)
{
    struct record record;
    int r = fl__window_scan(loading->base, window, 0, &record);
    while (r > 0) {
        r = fn(loading, window, fl__chunk_read(window->number, (uint64_t)record.k, record.v), arg);
        if (r < 0)
            break;
        r = fl__record_next(loading->base, &record);
    }
    fl__record_end(&record);
    return r;
}

/* The next row of a chunk that is asked for. */
static int next_wanted(struct loading *loading, const struct window *window, struct chunk_reader *reader,
                       struct entry *ret)
{
    const fl_store_request *request = loading->request;
    int r;
    while ((r = fl__chunk_next(reader, ret)) > 0)
        if (ret->key.at_us < request->load.until_us && !before(ret->key, request->load.from) &&
            !window_swept(window, ret->key))
            return 1;
    return r < 0 ? base_corrupt(loading->base, "a chunk of rows cannot be read") : 0;
}

static int count_chunk(struct loading *loading, struct window *window, struct chunk_reader reader, void *arg)
{
    size_t *count = arg;
    struct entry entry;
    int r;
    while ((r = next_wanted(loading, window, &reader, &entry)) > 0)
        ++*count;
    return r;
}

/* --- Choosing ----------------------------------------------------------------------------------------------------- */

struct choice {
    fl_key *keys;
    size_t count, wanted; /* there is room for twice as many as are wanted */
    fl_key next;          /* the earliest that was not chosen; seq 0: none */
};

static void swap(fl_key *a, fl_key *b)
{
    fl_key key = *a;
    *a = *b;
    *b = key;
}

/* Brings the `wanted` earliest to the front: quickselect. */
static void select_earliest(fl_key *keys, size_t count, size_t wanted)
{
    size_t low = 0, high = count;
    uint64_t random = count;
    while (high - low > 1) {
        random = random * 6364136223846793005 + 1442695040888963407;
        swap(&keys[low], &keys[low + (size_t)(random >> 33) % (high - low)]);
        size_t edge = low;
        for (size_t i = low + 1; i < high; i++)
            if (before(keys[i], keys[low]))
                swap(&keys[++edge], &keys[i]);
        swap(&keys[low], &keys[edge]);
        if (edge + 1 <= wanted)
            low = edge + 1;
        if (edge >= wanted)
            high = edge;
    }
}

static void choose(struct choice *choice)
{
    if (choice->count <= choice->wanted)
        return;
    select_earliest(choice->keys, choice->count, choice->wanted);
    for (size_t i = choice->wanted; i < choice->count; i++)
        if (choice->next.seq == 0 || before(choice->keys[i], choice->next))
            choice->next = choice->keys[i];
    choice->count = choice->wanted;
}

static int choose_chunk(struct loading *loading, struct window *window, struct chunk_reader reader, void *arg)
{
    struct choice *choice = arg;
    struct entry entry;
    int r;
    while ((r = next_wanted(loading, window, &reader, &entry)) > 0) {
        choice->keys[choice->count++] = entry.key;
        if (choice->count == 2 * choice->wanted + 1)
            choose(choice);
    }
    return r;
}

/* There are more rows in this window than may be given: finds the last that may. */
static int choose_last(struct loading *loading, struct window *window)
{
    struct choice choice = {.wanted = loading->left};
    choice.keys = fl__alloc((2 * choice.wanted + 1) * sizeof *choice.keys);
    if (!choice.keys)
        return base_no_memory(loading->base);
    int r = each_chunk(loading, window, choose_chunk, &choice);
    if (r == 0) {
        choose(&choice);
        loading->request->load.more = true;
        loading->request->load.next = choice.next;
        loading->last = (fl_key){-1, 0};
        for (size_t i = 0; i < choice.count; i++)
            if (before(loading->last, choice.keys[i]))
                loading->last = choice.keys[i];
    }
    fl__release(choice.keys);
    return r;
}

/* --- Sending ------------------------------------------------------------------------------------------------------ */

static void send_batch(struct loading *loading)
{
    if (!loading->batch)
        return;
    if (loading->batch->count > 0)
        fl__port_send(loading->worker, loading->port, loading->batch);
    else
        fl__batch_free(loading->batch);
    loading->batch = NULL;
}

/* Copies what is left of a chunk into a batch with room for a row, and lets the reader go on there. */
static int move_reader(struct loading *loading, struct chunk_reader *reader)
{
    size_t size = (size_t)(reader->end - reader->at);
    struct batch *batch = loading->batch;
    if (batch && (batch->count == BATCH_ROWS || batch->room - batch->used < size))
        send_batch(loading);
    if (!loading->batch)
        loading->batch = fl__port_batch(loading->worker, loading->port, size);
    batch = loading->batch;
    if (!batch)
        return base_no_memory(loading->base);
    batch->request = loading->request;
    unsigned char *place = memcpy(batch->bytes + batch->used, reader->at, size);
    batch->used += size;
    reader->at = place;
    reader->end = place + size;
    return 0;
}

static int send_chunk(struct loading *loading, struct window *window, struct chunk_reader reader, void *arg)
{
    (void)arg;
    struct entry entry;
    int r = move_reader(loading, &reader);
    while (r == 0 && (r = next_wanted(loading, window, &reader, &entry)) > 0) {
        r = 0;
        if (before(loading->last, entry.key))
            continue;
        r = fl__row_of(loading->base, window, &entry, &loading->batch->rows[loading->batch->count++]);
        if (r == 0 && loading->batch->count == BATCH_ROWS && reader.at < reader.end)
            r = move_reader(loading, &reader);
    }
    return r;
}

static int send_window(struct loading *loading, struct window *window)
{
    size_t count = 0;
    int r = each_chunk(loading, window, count_chunk, &count);
    if (r < 0)
        return r;
    loading->last = (fl_key){FL_STORE_TIME_END, 0};
    if (count > loading->left) {
        r = choose_last(loading, window);
        count = loading->left;
    }
    loading->left -= count;
    return r == 0 && count > 0 ? each_chunk(loading, window, send_chunk, NULL) : r;
}

int fl__request_load(struct worker *worker, struct port *port, fl_store_request *request)
{
    struct loading loading = {
        .worker = worker, .base = worker->base, .port = port, .request = request, .left = request->load.limit};
    fl__store_answer(request, 0, NULL);
    if (fl__store_validate(request) < 0)
        return 0;
    request->load.more = false;
    request->load.next = (fl_key){0};
    int r = fl__base_ready(worker->base);
    for (size_t i = 0; i < request->load.window_count && r == 0 && !request->load.more; i++) {
        struct window *window = fl__window_find(worker->base, request->load.windows[i]);
        r = window ? send_window(&loading, window) : 0;
    }
    send_batch(&loading);
    return r;
}
