/* SPDX-License-Identifier: MIT */
/* Lines of a batch about schedules. Each is a request of its own that reads and writes the row of its schedule (schedules.c); its answer
 * goes to the chunk. Lines about one schedule wait for each other. */

#include <stdlib.h>
#include <string.h>

#include "api/batch.h"
#include "api/schedules.h"
#include "base/assert.h"

/* Whether the member "op" is this. */
static bool has_op(struct json object, const char *op)
{
    struct json key, value;
    for (struct json_walk walk = json_walk(object); object.kind == JSON_OBJECT && json_member(&walk, &key, &value);)
        if (json_is(key, "op"))
            return json_is(value, op);
    return false;
}

bool schedule_line_is(struct json object)
{
    return has_op(object, "schedule") || has_op(object, "unschedule");
}

static bool is_same(fl_bytes a, fl_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

void schedule_line_free(struct schedule_line *line)
{
    if (!line)
        return;
    fl__hash_remove(&line->chunk->batch->schedules, &line->link);
    out_free(&line->call.out);
    out_free(&line->answer);
    free(line);
}

static void answered(struct call *call, int status)
{
    struct schedule_line *line = (struct schedule_line *)call;
    fl__assert(line->answer.size == 0); /* it is answered once */
    if (status < 400)
        out_text(&line->answer, "{\"ok\":true}\n");
    else
        batch_write_problem(&line->answer, &call->problem);
    chunk_part_back(line->chunk);
}

static bool is_under_way(const struct batch *batch, const struct call *call, uint64_t hash)
{
    for (struct hash_link *link = fl__hash_first(&batch->schedules, hash); link; link = fl__hash_next(link)) {
        const struct call *other = &hash_entry(link, struct schedule_line, link)->call;
        if (is_same(other->ns, call->ns) && is_same(other->name, call->name))
            return true;
    }
    return false;
}

static int read_name(struct json value, const char *field, char room[256], fl_bytes *ret, struct problem *problem)
{
    bool is_text = value.kind == JSON_STRING && value.text.size <= 6 * 255;
    char text[6 * 255];
    *ret = is_text ? json_string(value, text) : (fl_bytes){0};
    if (!is_text || !name_is_good(*ret))
        return problem_set(problem, 400, "invalid-field", field,
                           "%s must be 1 to 255 bytes of UTF-8 without control characters", field);
    *ret = (fl_bytes){memcpy(room, ret->data, ret->size), ret->size};
    return 0;
}

/* The members of SCHEDULE_LINE; those of the schedule are read later. */
static int read_members(struct schedule_line *line, struct problem *problem)
{
    static const char *const names[] = {"op", "namespace", "name", "only_new", NULL};
    struct json key, value;
    unsigned given = 0;
    for (struct json_walk walk = json_walk(line->object); json_member(&walk, &key, &value);) {
        if (line->creates && !schedule_is_line_member(key))
            continue;
        int i = problem_member(problem, NULL, names, key, &given), r = i < 0 ? -1 : 0;
        if (i == 1)
            r = read_name(value, names[i], line->call.ns_room, &line->call.ns, problem);
        else if (i == 2)
            r = read_name(value, names[i], line->call.name_room, &line->call.name, problem);
        else if (i == 3 && !line->creates)
            r = problem_set(problem, 400, "unknown-field", names[i], "only_new is for \"schedule\" only");
        else if (i == 3 && value.kind != JSON_TRUE && value.kind != JSON_FALSE)
            r = problem_set(problem, 400, "invalid-field", names[i], "only_new must be true or false");
        if (r < 0)
            return -1;
        line->only_new |= i == 3 && value.kind == JSON_TRUE;
    }
    for (int i = 1; i < 3; i++)
        if (!(given >> i & 1))
            return problem_set(problem, 400, "missing-field", names[i], "%s is missing", names[i]);
    return 0;
}

int schedule_line_read(struct chunk *chunk, struct json object, struct line *line, struct problem *problem)
{
    struct batch *batch = chunk->batch;
    struct schedule_line *made = calloc(1, sizeof *made);
    if (!made)
        return problem_of_result(problem, FL_NO_MEMORY);
    made->chunk = chunk;
    made->object = object;
    made->creates = has_op(object, "schedule");
    made->call.worker = batch->call->worker;
    made->call.answered = answered;
    int r = read_members(made, problem);
    if (r == 0 && !call_may(batch->call, RIGHT_WRITE, made->call.ns))
        r = problem_set(problem, 403, "forbidden", "namespace", "the token has no right to write to this namespace");
    uint64_t hash = cron_seed(made->call.ns, made->call.name);
    if (r == 0)
        r = is_under_way(batch, &made->call, hash);
    if (r != 0) {
        free(made);
        return r;
    }
    fl__hash_insert(&batch->schedules, &made->link, hash);
    line->schedule = made;
    line->shard = UINT32_MAX;
    return 0;
}

void schedule_line_send(struct schedule_line *line)
{
    fl__assert(line->call.ns.size > 0 && line->call.name.size > 0);
    if (line->creates)
        schedule_put_line(&line->call, line->object, line->only_new);
    else
        schedules_delete(&line->call);
}
