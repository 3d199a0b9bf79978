/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_API_SCHEDULES_H
#define FOLIOT_API_SCHEDULES_H

/* A request that concerns one schedule: what schedules.c and schedule_runs.c share. */

#include "api/internal.h"
#include "api/schedule.h"

struct schedule_request;

/* What a request does with the row, on its home worker. `found` is false if there is no such row. */
typedef void (*schedule_row_fn)(struct schedule_request *request, bool found);

struct schedule_request {
    struct shard_call shard_call;
    struct call *call;
    schedule_row_fn then;
    fl_op *ops; /* `one`, or many */
    fl_op one;
    int result;
    enum fl_outcome outcome;
    uint64_t revision;
    int tries;
    struct json line; /* of a batch: the object that has the fields. No object: they are in the body */
    bool only_new;
    char *stored; /* a copy of the row's payload, which `schedule` points into */
    size_t stored_size;
    fl_bytes *except; /* of the row that was read, to be freed with it */
    struct schedule schedule;
    struct rule *rule;
    struct scratch scratch;
    struct out written;
    fl_timer_id again;
    int64_t from_us, to_us;
    uint64_t n; /* occurrences of a preview */
    uint64_t made;
    fl_key id;
    char ns[SCHEDULE_NS_ROOM];
};

struct schedule_request *schedule_request_new(struct call *call, schedule_row_fn then); /* NULL: the call is refused */
struct call *schedule_request_end(struct schedule_request *request); /* frees it; its call is still to be answered */
/* These end the request and refuse its call. */
void schedule_refuse(struct schedule_request *request); /* with the call's problem */
void schedule_refuse_result(struct schedule_request *request, int result);
void schedule_not_found(struct schedule_request *request);

void schedule_read_row(struct schedule_request *request); /* then calls `then` */
/* A line of a batch, with a call of its own (`answered`). */
void schedule_put_line(struct call *call, struct json line, bool only_new);
void schedule_submit(struct schedule_request *request, size_t count, void (*done)(struct shard_call *call)); /* `ops` */
/* Read the body into the schedule, and compile its rule. They return 0, or -1 and the call's problem. */
int schedule_read_body(struct schedule_request *request, bool *ret_only_paused);
int schedule_compile_rule(struct schedule_request *request);

#endif
