/* SPDX-License-Identifier: MIT */
/* POST /v1/batch: one operation per line; one answer per line, in the same order, while the request is still being received.
 *
 * The complete lines that are there when a piece of the body has arrived make up a chunk (batch_chunk.c). A few chunks are in
 * progress at once. Meanwhile new lines collect, so chunks grow with the load. Operations on one timer stay in order, because
 * they take the same way to the same shard.
 *
 * A line that creates a timer in a full namespace waits until the lines before it are done, if one of them may make room.
 *
 * While the client does not read the answers, the server does not read the request. */

#include <stdlib.h>
#include <string.h>

#include "api/batch.h"
#include "base/assert.h"

enum { CHUNKS_MOST = 4, COLLECTED_MOST = 1 << 20, UNSENT_MOST = 1 << 20 };

/* A batch holds little memory while its body is smaller than SMALL and one chunk at a time is in progress. For more,
 * it reserves BATCH_MEMORY: the texts and operations of its chunks, and their copies in the engines. */
enum { SMALL = 64 << 10, BATCH_MEMORY = 16 << 20 };

/* --- The stream --------------------------------------------------------------------------------------------------- */

static void write_why_cut(struct batch *batch)
{
    struct out *out = &batch->call->out;
    out_clear(out);
    batch_write_problem(out, &batch->cut);
    if (!out->failed)
        http_write(batch->call->request, out_bytes(out));
}

static void batch_end(struct batch *batch)
{
    struct call *call = batch->call;
    http_request *request = call->request;
    fl__assert(*batch->link == batch && !batch->first && batch->freeing == 0);
    if (batch->cut.status && !batch->gone)
        write_why_cut(batch);
    *batch->link = batch->next;
    if (batch->next)
        batch->next->link = batch->link;
    out_free(&batch->collected);
    free(batch->by_shard);
    fl__hash_free(&batch->schedules);
    free(batch);
    out_free(&call->out);
    free(call);
    request->arg = NULL;
    http_end(request);
}

static void chunk_append(struct batch *batch, struct chunk *chunk)
{
    fl__assert(!chunk->next && (batch->first == NULL) == (batch->chunks == 0));
    if (batch->last)
        batch->last->next = chunk;
    else
        batch->first = chunk;
    batch->last = chunk;
    batch->chunks++;
}

/* Takes the lines that are there, as many as a chunk may have, and sends them off. False: there is no memory. */
static bool chunk_begin(struct batch *batch, size_t size)
{
    size_t used;
    struct chunk *chunk = chunk_new(batch, (fl_bytes){batch->collected.data, size}, &used);
    if (!chunk)
        return false;
    fl__assert(used <= size && size <= batch->collected.size);
    batch->used_memory = true;
    memmove(batch->collected.data, batch->collected.data + used, batch->collected.size - used);
    batch->collected.size -= used;
    if (chunk->count == 0) {
        chunk_free(chunk);
        return true;
    }
    chunk_append(batch, chunk);
    chunk_send(chunk);
    return true;
}

/* How much of what was collected is whole lines. */
static size_t whole_lines(const struct batch *batch)
{
    if (batch->ended)
        return batch->collected.size;
    const char *last = batch->collected.size ? memrchr(batch->collected.data, '\n', batch->collected.size) : NULL;
    return last ? (size_t)(last - batch->collected.data) + 1 : 0;
}

/* No more is read. The answer ends with a line that says why: the client, which counts lines, sees that what it has sent
 * beyond has not happened. */
static void cut(struct batch *batch, const struct problem *problem)
{
    batch->cut = *problem;
    batch->ended = true;
    batch->collected.size = 0;
}

static void cut_with(struct batch *batch, int result)
{
    struct problem problem;
    problem_of_result(&problem, result);
    cut(batch, &problem);
}

static void sent(http_request *request)
{
    struct call *call = request->arg;
    if (call)
        batch_go_on(call->state);
}

/* --- Memory ------------------------------------------------------------------------------------------------------- */

static void granted(http_request *request)
{
    struct call *call = request->arg;
    struct batch *batch = call->state;
    fl__assert(batch->memory == ASKED_FOR_MEMORY);
    batch->memory = WITH_MEMORY;
    batch_go_on(batch);
}

/* Asks for memory if there is much to do. Gives it back when there is not, and for a turn when others wait for some. */
static void see_to_memory(struct batch *batch)
{
    http_request *request = batch->call->request;
    if (batch->memory == WITH_MEMORY && batch->chunks == 0 &&
        (batch->collected.size < SMALL || (batch->used_memory && http_memory_is_short(request)))) {
        http_unreserve(request);
        batch->used_memory = false;
        batch->memory = WITHOUT_MEMORY;
    }
    if (batch->memory == WITHOUT_MEMORY && batch->collected.size >= SMALL && !batch->gone)
        batch->memory = http_reserve(request, BATCH_MEMORY, granted) ? WITH_MEMORY : ASKED_FOR_MEMORY;
}

static unsigned chunks_most(const struct batch *batch)
{
    if (batch->gone)
        return CHUNKS_MOST;
    if (batch->memory == WITH_MEMORY)
        return http_memory_is_short(batch->call->request) ? 1 : CHUNKS_MOST;
    return batch->collected.size < SMALL ? 1 : 0;
}

static void set_pause(struct batch *batch)
{
    http_request *request = batch->call->request;
    bool full = batch->collected.size > COLLECTED_MOST || http_unsent(request) > UNSENT_MOST ||
                batch->memory == ASKED_FOR_MEMORY;
    if (full == batch->paused || batch->ended || batch->gone)
        return;
    batch->paused = full;
    if (!full)
        http_resume(request);
    else
        http_pause(request);
    if (full && http_unsent(request) > UNSENT_MOST)
        http_when_sent(request, UNSENT_MOST / 2, sent);
}

/* A line that does not end is answered, and the rest of it is passed over. */
static bool skip_long_line(struct batch *batch)
{
    size_t most = api_of(batch->call->worker)->config.max_body;
    if (batch->ended || batch->collected.size <= most || whole_lines(batch) > 0)
        return true;
    struct chunk *chunk = chunk_of_long_line(batch);
    if (!chunk)
        return false;
    chunk_append(batch, chunk);
    batch->skipping = true;
    batch->collected.size = 0;
    return true;
}

static void write_finished(struct batch *batch)
{
    while (batch->first && batch->first->left == 0) {
        fl__assert(batch->chunks > 0);
        struct chunk *chunk = batch->first;
        chunk_write(chunk);
        batch->first = chunk->next;
        if (!batch->first)
            batch->last = NULL;
        batch->chunks--;
        chunk_free(chunk);
    }
}

static bool may_begin(const struct batch *batch)
{
    return batch->chunks < chunks_most(batch) && !(batch->waits && batch->first);
}

void batch_go_on(struct batch *batch)
{
    size_t size;
    do {
        write_finished(batch);
        if (batch->gone)
            batch->collected.size = 0;
        see_to_memory(batch);
        if (may_begin(batch) && !skip_long_line(batch))
            cut_with(batch, FL_NO_MEMORY);
        if (may_begin(batch) && (size = whole_lines(batch)) > 0 && !chunk_begin(batch, size))
            cut_with(batch, FL_NO_MEMORY);
    } while ((batch->first && batch->first->left == 0) || (may_begin(batch) && whole_lines(batch) > 0));
    set_pause(batch);
    if ((batch->ended || batch->gone) && !batch->first && batch->collected.size == 0)
        batch_end(batch);
}

static void data(http_request *request, fl_bytes piece, bool last)
{
    struct call *call = request->arg;
    struct batch *batch = call->state;
    if (batch->ended)
        return;
    if (batch->skipping && piece.size > 0) {
        const char *end = memchr(piece.data, '\n', piece.size);
        size_t skipped = end ? (size_t)(end - (const char *)piece.data) + 1 : piece.size;
        piece = (fl_bytes){(const char *)piece.data + skipped, piece.size - skipped};
        batch->skipping = !end;
    }
    out_put(&batch->collected, piece.data, piece.size);
    batch->ended = last;
    if (batch->collected.failed)
        cut_with(batch, FL_NO_MEMORY);
    batch_go_on(batch);
}

static void gone(http_request *request)
{
    struct call *call = request->arg;
    struct batch *batch = call->state;
    batch->gone = true;
    batch_go_on(batch);
}

void batches_stop(struct worker *worker)
{
    for (struct batch *batch = api_here(worker)->batches, *next; batch; batch = next) {
        next = batch->next;
        if (batch->ended)
            continue; /* by itself: all of it has come */
        cut_with(batch, FL_STOPPED);
        batch_go_on(batch);
    }
}

static void slow(http_request *request)
{
    struct call *call = request->arg;
    struct batch *batch = call->state;
    struct problem problem;
    problem_set(&problem, 408, "request-timeout", NULL,
                "no data of the batch arrived for body-timeout; send it again from the first line without a response");
    cut(batch, &problem);
    batch_go_on(batch);
}

/* What has come and not begun does not happen. */
void batches_check(struct worker *worker)
{
    for (struct batch *batch = api_here(worker)->batches, *next; batch; batch = next) {
        next = batch->next;
        if (call_is_let_in(batch->call))
            continue;
        cut(batch, &batch->call->problem);
        batch_go_on(batch);
    }
}

void batch_begin(struct call *call)
{
    struct batch *batch = calloc(1, sizeof *batch);
    if (batch)
        batch->by_shard = calloc(call->worker->node->shard_count, sizeof(struct chunk_part *));
    if (!batch || !batch->by_shard) {
        free(batch);
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    batch->call = call;
    batch->next = api_here(call->worker)->batches;
    batch->link = &api_here(call->worker)->batches;
    if (batch->next)
        batch->next->link = &batch->next;
    api_here(call->worker)->batches = batch;
    call->state = batch;
    call->request->body_most = SIZE_MAX; /* it is taken line by line */
    call->request->data = data;
    call->request->slow = slow;
    call->request->gone = gone;
    http_begin(call->request, 200, "application/x-ndjson", NULL);
}
