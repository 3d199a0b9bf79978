/* SPDX-License-Identifier: MIT */
/* A chunk: lines of a batch that are under way together.
 *
 * Its operations go to their shards together, one call per shard; when all of them are back, the answers are put in order. */

#include <stdlib.h>
#include <string.h>

#include "api/batch.h"
#include "base/assert.h"
#include "text/json.h"

enum { LINES_MOST = 8192, SCHEDULES_MOST = 1024 /* these need more memory */ };

enum { LINE_MEMBERS = GAVE_TIMER | GAVE_OP | GAVE_NAMESPACE | GAVE_NAME | GAVE_ID | GAVE_ONLY_NEW };

void chunk_free(struct chunk *chunk)
{
    const struct node *node = chunk->batch->call->worker->node;
    fl__assert(chunk->batch->freeing >= chunk->freeing);
    chunk->batch->freeing -= chunk->freeing;
    for (size_t i = 0; i < chunk->count; i++) {
        place_give(node, &chunk->lines[i].place);
        schedule_line_free(chunk->lines[i].schedule);
    }
    for (struct chunk_part *part = chunk->parts, *next; part; part = next) {
        next = part->next;
        for (size_t i = 0; i < part->call.batch.count; i++)
            place_give(node, &part->places[i]);
        out_free(&part->out);
        free(part->places);
        free(part->sizes);
        free(part);
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
    line->schedule = NULL;
    line->op.kind = FL_OP_CREATE;
    return line;
}

void batch_write_problem(struct out *out, const struct problem *problem)
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
        return problem_set(problem, 400, "missing-field", "op", "op is missing; give " TIMER_OPS);
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
    if (schedule_line_is(object))
        return schedule_line_read(chunk, object, line, problem);
    if (timer_read(object, &rules, &chunk->scratch, &in, problem) < 0)
        return -1;
    return decide(chunk, &in, nameless, line, problem);
}

static void fail_line(struct chunk *chunk, struct line *line, const struct problem *problem)
{
    size_t before = chunk->problems.size;
    batch_write_problem(&chunk->problems, problem);
    line->shard = UINT32_MAX;
    line->size = (uint32_t)(chunk->problems.size - before);
}

static bool is_blank(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    return at == end;
}

/* --- Parts -------------------------------------------------------------------------------------------------------- */

static void part_render(struct shard_call *call)
{
    struct chunk_part *own = (struct chunk_part *)call;
    out_reserve(&own->out, call->batch.count * 64);
    for (size_t i = 0; i < call->batch.count; i++) {
        const fl_op *op = &own->ops[i];
        size_t before = own->out.size;
        if (op->result < 0) {
            struct problem problem;
            timers_problem(call->shard->worker->node, op, &problem);
            batch_write_problem(&own->out, &problem);
        } else {
            char id[FL_ID_TEXT + 1];
            fl_id_format(call->shard->number, op->timer.id, id);
            out_text(&own->out, "{\"ok\":true,\"id\":\"");
            out_put(&own->out, id, FL_ID_TEXT);
            out_text(&own->out, "\"}\n");
        }
        own->sizes[i] = (uint32_t)(own->out.size - before);
    }
}

void chunk_part_back(struct chunk *chunk)
{
    fl__assert(chunk->left > 0);
    if (--chunk->left == 0)
        batch_go_on(chunk->batch);
}

static void part_back(struct shard_call *over)
{
    chunk_part_back(((struct chunk_part *)over)->chunk);
}

static bool parts_make(struct chunk *chunk)
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
        struct chunk_part *part = malloc(sizeof *part + count * sizeof *part->ops);
        uint32_t *sizes = malloc(count * sizeof *sizes);
        struct space **places = calloc(count, sizeof(struct space *));
        if (!part || !sizes || !places) {
            free(part);
            free(sizes);
            free(places);
            return false;
        }
        *part = (struct chunk_part){.chunk = chunk, .next = chunk->parts, .sizes = sizes, .places = places};
        part->call.errand.home = batch->call->worker;
        part->call.done = part_back;
        part->call.render = part_render;
        part->call.brief = true;
        part->call.shard = &node->shards[shard];
        part->call.batch.ops = part->ops;
        part->call.places = places;
        chunk->parts = batch->by_shard[shard] = part;
        chunk->left++;
    }
    for (size_t i = 0; i < chunk->count; i++)
        if (chunk->lines[i].shard != UINT32_MAX) {
            struct shard_call *call = &batch->by_shard[chunk->lines[i].shard]->call;
            fl__assert(call->shard->number == chunk->lines[i].shard);
            call->places[call->batch.count] = chunk->lines[i].place;
            chunk->lines[i].place = NULL;
            call->batch.ops[call->batch.count++] = chunk->lines[i].op;
        }
    return true;
}

void chunk_write(struct chunk *chunk)
{
    struct batch *batch = chunk->batch;
    struct out *out = &batch->call->out;
    size_t problems = 0;
    out_clear(out);
    for (struct chunk_part *part = chunk->parts; part; part = part->next)
        batch->by_shard[part->call.shard->number] = part;
    for (size_t i = 0; i < chunk->count; i++) {
        const struct line *line = &chunk->lines[i];
        if (line->schedule) {
            out->failed |= line->schedule->answer.failed;
            out_put(out, line->schedule->answer.data, line->schedule->answer.size);
        } else if (line->shard == UINT32_MAX) {
            out_put(out, chunk->problems.data + problems, line->size);
            problems += line->size;
        } else {
            struct chunk_part *part = batch->by_shard[line->shard];
            fl__assert(part && part->answer < part->call.batch.count);
            uint32_t size = part->sizes[part->answer++];
            out->failed |= part->out.failed;
            if (!out->failed)
                out_put(out, part->out.data + part->read, size);
            part->read += size;
            fl__assert(out->failed || part->read <= part->out.size);
        }
    }
    for (struct chunk_part *part = chunk->parts; part; part = part->next)
        batch->by_shard[part->call.shard->number] = NULL;
    if (!batch->gone)
        http_write(batch->call->request, out_bytes(out));
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
    bool frees = r == 0 && !line->schedule && (line->place || line->op.kind == FL_OP_CANCEL);
    chunk->schedules += line->schedule != NULL;
    chunk->freeing += frees;
    chunk->batch->freeing += frees;
    chunk->count -= r > 0;
    return r > 0;
}

/* Reads the lines of the text. Returns where it has stopped; NULL: there is no memory. */
static const char *read_lines(struct chunk *chunk, const char *at, const char *end)
{
    struct worker *worker = chunk->batch->call->worker;
    worker->turn += 256; /* the next shard's turn */
    struct shard *nameless = shard_of_worker(worker);
    while (at < end && chunk->count < LINES_MOST && chunk->schedules < SCHEDULES_MOST) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end)
            line_end = end;
        int r = is_blank(at, line_end) ? 0 : chunk_add(chunk, (fl_bytes){at, (size_t)(line_end - at)}, nameless);
        if (r < 0)
            return NULL;
        chunk->batch->waits = r > 0;
        if (chunk->batch->waits)
            break;
        at = line_end + (line_end < end);
    }
    return at;
}

struct chunk *chunk_new(struct batch *batch, fl_bytes text, size_t *ret_used)
{
    struct chunk *chunk = calloc(1, sizeof *chunk);
    char *copy = malloc(text.size + 1);
    if (!chunk || !copy) {
        free(chunk);
        free(copy);
        return NULL;
    }
    memcpy(copy, text.data, text.size);
    chunk->batch = batch;
    chunk->text = copy;
    const char *end = read_lines(chunk, copy, copy + text.size);
    bool made = end && !chunk->problems.failed && parts_make(chunk);
    for (struct chunk_part *part = chunk->parts; part; part = part->next)
        batch->by_shard[part->call.shard->number] = NULL;
    if (!made) {
        chunk_free(chunk);
        return NULL;
    }
    *ret_used = (size_t)(end - copy);
    return chunk;
}

void chunk_send(struct chunk *chunk)
{
    fl__assert(chunk->count > 0);
    chunk->left++; /* for ourselves: it must not be over before all have begun */
    for (size_t i = 0; i < chunk->count; i++)
        chunk->left += chunk->lines[i].schedule != NULL;
    for (size_t i = 0; i < chunk->count; i++)
        if (chunk->lines[i].schedule)
            schedule_line_send(chunk->lines[i].schedule);
    for (struct chunk_part *part = chunk->parts, *next; part; part = next) {
        next = part->next;
        shard_call_submit(&part->call);
    }
    chunk->left--;
}

struct chunk *chunk_of_long_line(struct batch *batch)
{
    struct chunk *chunk = calloc(1, sizeof *chunk);
    struct line *line = chunk ? line_new(chunk) : NULL;
    struct problem problem;
    if (!line) {
        free(chunk);
        return NULL;
    }
    too_long(batch, &problem);
    fail_line(chunk, line, &problem);
    chunk->batch = batch;
    return chunk;
}
