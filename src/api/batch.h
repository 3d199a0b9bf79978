/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_API_BATCH_H
#define FOLIOT_API_BATCH_H

/* What batch.c and batch_chunk.c share. */

#include "api/internal.h"
#include "api/timer.h"

/* An operation, and later its answer. */
struct line {
    uint32_t shard; /* UINT32_MAX: it failed at once */
    uint32_t size;  /* of its answer */
    struct space *place;
    fl_op op;
};

struct chunk;

/* The operations of a chunk on one shard. */
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

/* Lines that are under way together. */
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

/* A request. */
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

/* Reads lines, as many as a chunk may have, and makes the calls for their shards; `*ret_used` bytes of the text are in the chunk.
 * `batch->waits` is set if the next line has to wait for those before it. NULL: there is no memory. */
struct chunk *chunk_new(struct batch *batch, fl_bytes text, size_t *ret_used);
struct chunk *chunk_of_long_line(struct batch *batch); /* with nothing but the answer to a line that is too long */
void chunk_send(struct chunk *chunk);                  /* to its shards */
void chunk_write(struct chunk *chunk);                 /* its answers, in order */
void chunk_free(struct chunk *chunk);

void batch_write_problem(struct out *out, const struct problem *problem);
void batch_go_on(struct batch *batch); /* a chunk is done */

#endif
