/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_API_BATCH_H
#define FOLIOT_API_BATCH_H

/* What batch.c and batch_chunk.c share. */

#include "api/internal.h"
#include "api/timer.h"
#include "base/hash.h"

/* An operation, and later its answer. */
struct line {
    uint32_t shard; /* UINT32_MAX: it failed at once, or is about a schedule */
    uint32_t size;  /* of its answer */
    struct space *place;
    struct schedule_line *schedule; /* NULL: it is about a timer */
    fl_op op;
};

struct chunk;

/* A line about a schedule, with a call of its own: batch_schedules.c. */
struct schedule_line {
    struct call call;
    struct chunk *chunk;
    struct hash_link link; /* in the batch */
    struct json object;
    bool creates, only_new;
    struct out answer;
};

/* The operations of a chunk on one shard. */
struct chunk_part {
    struct shard_call call;
    struct chunk *chunk;
    struct chunk_part *next;
    struct out out;
    size_t read, answer; /* while the answers are put together */
    uint32_t *sizes;
    struct space **places; /* of the operations */
    fl_op ops[];
};

/* Lines that are under way together. */
struct chunk {
    struct batch *batch;
    struct chunk *next;
    char *text;
    struct line *lines;
    size_t count, capacity, schedules;
    struct chunk_part *parts;
    size_t left;
    size_t freeing; /* lines that may make room in their namespaces: those that cancel, and those that have a place */
    struct out problems;
    struct scratch scratch;
};

/* A request. */
struct batch {
    struct batch *next, **link; /* of the worker's */
    struct call *call;
    struct out collected; /* received bytes that are in no chunk yet */
    struct chunk *first, *last;
    unsigned chunks;
    size_t freeing;                     /* of all chunks */
    bool ended, gone, paused, skipping; /* skipping: the rest of a line that is too long */
    enum { WITHOUT_MEMORY, ASKED_FOR_MEMORY, WITH_MEMORY } memory;
    bool used_memory;   /* it has begun a chunk since it got it */
    bool waits;         /* for all chunks: the next line wants room in a namespace, and they may make it */
    struct problem cut; /* why we have ended it, in the last line of the answer; status 0: we have not */
    struct chunk_part **by_shard;
    struct hash_table schedules; /* lines that are under way */
};

/* Reads lines, as many as a chunk may have, and makes the calls for their shards; `*ret_used` bytes of the text are in the
 * chunk. `batch->waits` is set if the next line has to wait for those before it. NULL: there is no memory. */
struct chunk *chunk_new(struct batch *batch, fl_bytes text, size_t *ret_used);
struct chunk *chunk_of_long_line(struct batch *batch); /* with nothing but the answer to a line that is too long */
void chunk_send(struct chunk *chunk);                  /* to its shards */
void chunk_write(struct chunk *chunk);                 /* its answers, in order */
void chunk_free(struct chunk *chunk);

/* Whether the line is about a schedule. */
bool schedule_line_is(struct json object);
/* Reads it. Returns 0; -1 and the problem; 1: it has to wait for an earlier line about the same schedule. */
int schedule_line_read(struct chunk *chunk, struct json object, struct line *line, struct problem *problem);
void schedule_line_send(struct schedule_line *line);
void schedule_line_free(struct schedule_line *line); /* NULL is allowed */
void chunk_part_back(struct chunk *chunk);           /* a part of it or a line about a schedule is done */

void batch_write_problem(struct out *out, const struct problem *problem);
void batch_go_on(struct batch *batch); /* a chunk is done */

#endif
