/* SPDX-License-Identifier: MIT */
/* POST /v1/batch: operations, a line each; answers, a line each, in the same order, while the request still comes.
 *
 * Whatever lines are there when a piece of the body has come make up a chunk. Its operations go to their shards together,
 * one job a shard; when all of them are back, the answers are put in order. A few chunks are under way at once: while they
 * are, what comes in collects, so that chunks grow with the load. Operations on one timer stay in order, because they go to
 * the same shard by the same way.
 *
 * A line that creates a timer in a full namespace waits until the lines before it are done, if one of them may make room.
 *
 * Who does not read the answers is not read from either. */

#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "api/timer.h"
#include "text/json.h"

enum { CHUNKS_MOST = 4, COLLECTED_MOST = 1 << 20, UNSENT_MOST = 1 << 20, LINES_MOST = 8192 };

/* A batch holds little memory as long as what has come is less than SMALL, and one chunk at a time is under way. For more,
 * it reserves BATCH_MEMORY: the texts and operations of its chunks, and their copies in the engines. */
enum { SMALL = 64 << 10, BATCH_MEMORY = 16 << 20 };

enum { LINE_MEMBERS = GAVE_TIMER | GAVE_OP | GAVE_NAMESPACE | GAVE_NAME | GAVE_ID | GAVE_ONLY_NEW };

struct line {
    uint32_t shard; /* UINT32_MAX: it failed at once */
    uint32_t size;  /* of its answer */
    struct space *place;
    fl_op op;
};

struct chunk;

struct chunk_job {
    struct shard_call job;
    struct chunk *chunk;
    struct chunk_job *next;
    struct out out;
    size_t read, answer; /* while the answers are put together */
    uint32_t *sizes;
    struct space **places; /* of the operations */
    fl_op ops[];
};

struct chunk {
    struct batch *batch;
    struct chunk *next;
    char *text;
    struct line *lines;
    size_t count, capacity;
    struct chunk_job *jobs;
    size_t left;
    size_t freeing; /* lines that may make room in their namespaces: those that cancel, and those that have a place */
    struct out problems;
    struct scratch scratch;
};

struct batch {
    struct batch *next, **link; /* of the worker's */
    struct call *call;
    struct out collected; /* what has come and is in no chunk yet */
    struct chunk *first, *last;
    unsigned chunks;
    size_t freeing;                     /* of all chunks */
    bool ended, gone, paused, skipping; /* skipping: the rest of a line that is too long */
    enum { WITHOUT_MEMORY, ASKED_FOR_MEMORY, WITH_MEMORY } memory;
    bool used_memory;   /* it has begun a chunk since it got it */
    bool waits;         /* for all chunks: the next line wants room in a namespace, and they may make it */
    struct problem cut; /* why we have ended it, in the last line of the answer; status 0: we have not */
    struct chunk_job **by_shard;
};

static void go_on(struct batch *batch);

/* --- Chunks ------------------------------------------------------------------------------------------------------- */

static void chunk_free(struct chunk *chunk)
{
    const struct node *node = chunk->batch->call->worker->node;
    chunk->batch->freeing -= chunk->freeing;
    for (size_t i = 0; i < chunk->count; i++)
        place_give(node, &chunk->lines[i].place);
    for (struct chunk_job *job = chunk->jobs, *next; job; job = next) {
        next = job->next;
        for (size_t i = 0; i < job->job.batch.count; i++)
            place_give(node, &job->places[i]);
        out_free(&job->out);
        free(job->places);
        free(job->sizes);
        free(job);
    }
    out_free(&chunk->problems);
    scratch_free(&chunk->scratch);
    free(chunk->lines);
    free(chunk->text);
    free(chunk);
}

static struct line *line_new(struct chunk *chunk)
{
    if (chunk->count == chunk->capacity) {
        size_t capacity = chunk->capacity * 2 + 64;
        struct line *lines = realloc(chunk->lines, capacity * sizeof *lines);
        if (!lines)
            return NULL;
        chunk->lines = lines;
        chunk->capacity = capacity;
    }
    struct line *line = &chunk->lines[chunk->count++];
    line->place = NULL;
    line->op.kind = FL_OP_CREATE;
    return line;
}

static void write_problem(struct out *out, const struct problem *problem)
{
    out_text(out, "{\"ok\":false,\"problem\":");
    problem_write(out, problem);
    out_text(out, "}\n");
}

/* Whether lines before it may make room for it: then it must wait until they are done. */
static bool may_get_room(const struct node *node, const struct chunk *chunk, const struct line *line)
{
    return node->config.max_timers_per_namespace > 0 && !line->place && chunk->batch->freeing > 0;
}

/* Which operation the line is, and for which shard. 1: it cannot be said before the lines before it are done. */
static int decide(const struct chunk *chunk, struct timer_in *in, struct shard *nameless, struct line *line,
                  struct problem *problem)
{
    const struct call *call = chunk->batch->call;
    struct node *node = call->worker->node;
    if (!(in->given & GAVE_OP))
        return problem_set(problem, 400, "missing-field", "op", "op is missing: \"create\", \"update\" or \"cancel\"");
    if (!(in->given & GAVE_NAMESPACE))
        return problem_set(problem, 400, "missing-field", "namespace", "namespace is missing");
    if (!call_may(call, RIGHT_WRITE, in->timer.ns))
        return problem_set(problem, 403, "forbidden", "namespace", "the token has no right to write to this namespace");
    bool by_id = in->given & GAVE_ID, by_name = in->given & GAVE_NAME;
    line->op = (fl_op){.timer = in->timer};
    line->shard = nameless->number;
    if (by_name)
        line->shard = shard_of_op(node, &line->op)->number;
    if (in->op == TIMER_CREATE) {
        line->op.kind = FL_OP_CREATE;
        line->op.flags = in->only_new ? FL_OP_ONLY_NEW : 0;
        if (by_id)
            return problem_set(problem, 400, "invalid-field", "id",
                               "the server assigns IDs; give a name instead, or none");
        if (!(in->given & (GAVE_DUE | GAVE_AFTER)))
            return problem_set(problem, 400, "missing-field", "due", "due or after is missing; give one of them");
        int r = timers_complete(node, &line->op, &line->place, problem);
        return may_get_room(node, chunk, line) ? 1 : r;
    }
    if (by_id == by_name)
        return problem_set(problem, 400, "missing-field", "name", "give either name or id");
    if (by_id && (fl_id_parse(in->id.data, in->id.size, &line->shard, &line->op.timer.id) < 0 ||
                  line->shard >= node->shard_count))
        return problem_of_result(problem, FL_TIMER_NOT_FOUND);
    unsigned without_effect = in->given & (GAVE_ONLY_NEW | (in->op == TIMER_CANCEL ? GAVE_TIMER : 0));
    if (without_effect)
        return timer_refuse_member(problem, without_effect,
                                   LINE_MEMBERS & ~(GAVE_ONLY_NEW | (in->op == TIMER_CANCEL ? GAVE_TIMER : 0)));
    line->op.kind = in->op == TIMER_UPDATE ? FL_OP_UPDATE : FL_OP_CANCEL;
    line->op.flags = in->op == TIMER_UPDATE ? timer_update_flags(in) : 0;
    return 0;
}

static int too_long(const struct batch *batch, struct problem *problem)
{
    return problem_set(problem, 413, "too-large", NULL, "the line is longer than %zu bytes",
                       (size_t)api_of(batch->call->worker)->config.max_body);
}

static int read_line(struct chunk *chunk, fl_bytes text, struct shard *nameless, struct line *line,
                     struct problem *problem)
{
    struct batch *batch = chunk->batch;
    const struct api *api = api_of(batch->call->worker);
    struct timer_rules rules = {
        .allowed = LINE_MEMBERS,
        .now_us = node_now(api->node),
        .allow_private = api->config.allow_private_targets,
        .own = api->own_targets,
        .max_payload = api->config.max_payload,
        .zones = node_zones(api->node),
    };
    struct json object;
    struct timer_in in;
    size_t at;
    const char *why;
    if (text.size > api->config.max_body)
        return too_long(batch, problem);
    if (json_parse(text, &object, &at, &why) < 0)
        return problem_set(problem, 400, "invalid-json", NULL, "the line is not JSON: %s (at byte %zu)", why, at);
    if (timer_read(object, &rules, &chunk->scratch, &in, problem) < 0)
        return -1;
    return decide(chunk, &in, nameless, line, problem);
}

static void fail_line(struct chunk *chunk, struct line *line, const struct problem *problem)
{
    size_t before = chunk->problems.size;
    write_problem(&chunk->problems, problem);
    line->shard = UINT32_MAX;
    line->size = (uint32_t)(chunk->problems.size - before);
}

static bool is_blank(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    return at == end;
}

/* --- Jobs --------------------------------------------------------------------------------------------------------- */

static void job_render(struct shard_call *job)
{
    struct chunk_job *own = (struct chunk_job *)job;
    out_reserve(&own->out, job->batch.count * 64);
    for (size_t i = 0; i < job->batch.count; i++) {
        const fl_op *op = &own->ops[i];
        size_t before = own->out.size;
        if (op->result < 0) {
            struct problem problem;
            timers_problem(job->shard->worker->node, op, &problem);
            write_problem(&own->out, &problem);
        } else {
            char id[FL_ID_TEXT + 1];
            fl_id_format(job->shard->number, op->timer.id, id);
            out_text(&own->out, "{\"ok\":true,\"id\":\"");
            out_put(&own->out, id, FL_ID_TEXT);
            out_text(&own->out, "\"}\n");
        }
        own->sizes[i] = (uint32_t)(own->out.size - before);
    }
}

static void job_back(struct shard_call *over)
{
    struct chunk_job *job = (struct chunk_job *)over;
    if (--job->chunk->left == 0)
        go_on(job->chunk->batch);
}

static bool jobs_make(struct chunk *chunk)
{
    struct batch *batch = chunk->batch;
    struct node *node = batch->call->worker->node;
    for (size_t i = 0; i < chunk->count; i++) {
        uint32_t shard = chunk->lines[i].shard;
        if (shard == UINT32_MAX || batch->by_shard[shard])
            continue;
        size_t count = 0;
        for (size_t k = i; k < chunk->count; k++)
            count += chunk->lines[k].shard == shard;
        struct chunk_job *job = malloc(sizeof *job + count * sizeof *job->ops);
        uint32_t *sizes = malloc(count * sizeof *sizes);
        struct space **places = calloc(count, sizeof(struct space *));
        if (!job || !sizes || !places) {
            free(job);
            free(sizes);
            free(places);
            return false;
        }
        *job = (struct chunk_job){.chunk = chunk, .next = chunk->jobs, .sizes = sizes, .places = places};
        job->job.errand.home = batch->call->worker;
        job->job.done = job_back;
        job->job.render = job_render;
        job->job.brief = true;
        job->job.shard = &node->shards[shard];
        job->job.batch.ops = job->ops;
        job->job.places = places;
        chunk->jobs = batch->by_shard[shard] = job;
        chunk->left++;
    }
    for (size_t i = 0; i < chunk->count; i++)
        if (chunk->lines[i].shard != UINT32_MAX) {
            struct shard_call *job = &batch->by_shard[chunk->lines[i].shard]->job;
            job->places[job->batch.count] = chunk->lines[i].place;
            chunk->lines[i].place = NULL;
            job->batch.ops[job->batch.count++] = chunk->lines[i].op;
        }
    return true;
}

/* Puts the answers in order. */
static void chunk_write(struct chunk *chunk)
{
    struct batch *batch = chunk->batch;
    struct out *out = &batch->call->out;
    size_t problems = 0;
    out_clear(out);
    for (struct chunk_job *job = chunk->jobs; job; job = job->next)
        batch->by_shard[job->job.shard->number] = job;
    for (size_t i = 0; i < chunk->count; i++) {
        const struct line *line = &chunk->lines[i];
        if (line->shard == UINT32_MAX) {
            out_put(out, chunk->problems.data + problems, line->size);
            problems += line->size;
        } else {
            struct chunk_job *job = batch->by_shard[line->shard];
            uint32_t size = job->sizes[job->answer++];
            out->failed |= job->out.failed;
            if (!out->failed)
                out_put(out, job->out.data + job->read, size);
            job->read += size;
        }
    }
    for (struct chunk_job *job = chunk->jobs; job; job = job->next)
        batch->by_shard[job->job.shard->number] = NULL;
    if (!batch->gone)
        http_write(batch->call->request, out_bytes(out));
}

/* --- The stream --------------------------------------------------------------------------------------------------- */

static void write_why_cut(struct batch *batch)
{
    struct out *out = &batch->call->out;
    out_clear(out);
    write_problem(out, &batch->cut);
    if (!out->failed)
        http_write(batch->call->request, out_bytes(out));
}

static void batch_end(struct batch *batch)
{
    struct call *call = batch->call;
    http_request *request = call->request;
    if (batch->cut.status && !batch->gone)
        write_why_cut(batch);
    while (batch->first) {
        struct chunk *next = batch->first->next;
        chunk_free(batch->first);
        batch->first = next;
    }
    *batch->link = batch->next;
    if (batch->next)
        batch->next->link = batch->link;
    out_free(&batch->collected);
    free(batch->by_shard);
    free(batch);
    out_free(&call->out);
    free(call);
    request->arg = NULL;
    http_end(request);
}

static void chunk_append(struct batch *batch, struct chunk *chunk)
{
    if (batch->last)
        batch->last->next = chunk;
    else
        batch->first = chunk;
    batch->last = chunk;
    batch->chunks++;
}

/* Adds a line. Returns 0; 1 if it has to wait for the lines before it; -1: there is no memory. */
static int chunk_add(struct chunk *chunk, fl_bytes text, struct shard *nameless)
{
    struct problem problem;
    struct line *line = line_new(chunk);
    if (!line)
        return -1;
    int r = read_line(chunk, text, nameless, line, &problem);
    if (r < 0)
        fail_line(chunk, line, &problem);
    bool frees = r == 0 && (line->place || line->op.kind == FL_OP_CANCEL);
    chunk->freeing += frees;
    chunk->batch->freeing += frees;
    chunk->count -= r > 0;
    return r > 0;
}

/* Takes the lines that are there, as many as a chunk may have, and sends them off. False: there is no memory. */
static bool chunk_begin(struct batch *batch, size_t size)
{
    struct call *call = batch->call;
    struct chunk *chunk = calloc(1, sizeof *chunk);
    char *text = malloc(size + 1);
    if (!chunk || !text) {
        free(chunk);
        free(text);
        return false;
    }
    chunk->batch = batch;
    chunk->text = text;
    batch->used_memory = true;
    memcpy(text, batch->collected.data, size);
    call->worker->turn += 256; /* the next shard's turn */
    struct shard *nameless = shard_of_worker(call->worker);
    const char *at = text, *end = text + size;
    while (at < end && chunk->count < LINES_MOST) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end)
            line_end = end;
        int r = is_blank(at, line_end) ? 0 : chunk_add(chunk, (fl_bytes){at, (size_t)(line_end - at)}, nameless);
        if (r < 0) {
            chunk_free(chunk);
            return false;
        }
        batch->waits = r > 0;
        if (batch->waits)
            break;
        at = line_end + (line_end < end);
    }
    size_t used = (size_t)(at - text);
    memmove(batch->collected.data, batch->collected.data + used, batch->collected.size - used);
    batch->collected.size -= used;
    if (chunk->count == 0) {
        chunk_free(chunk);
        return true;
    }
    bool made = !chunk->problems.failed && jobs_make(chunk);
    for (struct chunk_job *job = chunk->jobs; job; job = job->next)
        batch->by_shard[job->job.shard->number] = NULL;
    if (!made) {
        chunk_free(chunk);
        return false;
    }
    chunk_append(batch, chunk);
    chunk->left++; /* for ourselves: it must not be over before all have begun */
    for (struct chunk_job *job = chunk->jobs, *next; job; job = next) {
        next = job->next;
        shard_call_submit(&job->job);
    }
    chunk->left--;
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

/* No more is read. The answer ends with a line that says why: the client, which counts lines, sees that what it has sent beyond has
 * not happened. */
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
        go_on(call->state);
}

/* --- Memory ------------------------------------------------------------------------------------------------------- */

static void granted(http_request *request)
{
    struct call *call = request->arg;
    struct batch *batch = call->state;
    batch->memory = WITH_MEMORY;
    go_on(batch);
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
    struct chunk *chunk = calloc(1, sizeof *chunk);
    struct line *line = chunk ? line_new(chunk) : NULL;
    struct problem problem;
    if (!line) {
        free(chunk);
        return false;
    }
    too_long(batch, &problem);
    fail_line(chunk, line, &problem);
    chunk->batch = batch;
    chunk_append(batch, chunk);
    batch->skipping = true;
    batch->collected.size = 0;
    return true;
}

static void write_finished(struct batch *batch)
{
    while (batch->first && batch->first->left == 0) {
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

static void go_on(struct batch *batch)
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
    go_on(batch);
}

static void gone(http_request *request)
{
    struct call *call = request->arg;
    struct batch *batch = call->state;
    batch->gone = true;
    go_on(batch);
}

void batches_stop(struct worker *worker)
{
    for (struct batch *batch = api_here(worker)->batches, *next; batch; batch = next) {
        next = batch->next;
        if (batch->ended)
            continue; /* by itself: all of it has come */
        cut_with(batch, FL_STOPPED);
        go_on(batch);
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
    go_on(batch);
}

/* What has come and not begun does not happen. */
void batches_check(struct worker *worker)
{
    for (struct batch *batch = api_here(worker)->batches, *next; batch; batch = next) {
        next = batch->next;
        if (call_is_let_in(batch->call))
            continue;
        cut(batch, &batch->call->problem);
        go_on(batch);
    }
}

void batch_begin(struct call *call)
{
    struct batch *batch = calloc(1, sizeof *batch);
    if (batch)
        batch->by_shard = calloc(call->worker->node->shard_count, sizeof(struct chunk_job *));
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
