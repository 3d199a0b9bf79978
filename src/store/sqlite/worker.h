/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_SQLITE_WORKER_H
#define FOLIOT_STORE_SQLITE_WORKER_H

/* From the loops to the thread of a shard and back: worker.c tells how. */

#include <pthread.h>

#include "store/sqlite/base.h"

/* --- Answers ------------------------------------------------------------------------------------------------------ */

/* Memory that is freed when the request has been answered; NULL: no memory. */
void *fl__answer_alloc(fl_store_request *request, size_t size);
void fl__answer_free(void *store_data);
/* Copies bytes into the memory of the answer; false: no memory. */
bool fl__answer_keep(fl_store_request *request, fl_bytes *bytes);
/* A row as it is given out: its namespace is resolved, its bytes are where they were. */
int fl__row_of(struct base *base, const struct window *window, const struct entry *entry, fl_row *ret);
int fl__answer_row(struct base *base, fl_store_request *request, const struct window *window, const struct entry *entry,
                   fl_row *ret);
/* An array of an answer that gets longer: room for one more than `count`; NULL: no memory. */
void *fl__answer_grow(fl_store_request *request, void *array, size_t count, size_t size);

/* Rows on their way to a loop. */
struct batch {
    struct batch *next;
    fl_store_request *request;
    size_t count;
    size_t used, room; /* of the bytes */
    unsigned char *bytes;
    fl_row rows[]; /* BATCH_ROWS */
};

enum { BATCH_ROWS = 1024, BATCH_BYTES = 192 << 10 };

/* --- A loop's side ------------------------------------------------------------------------------------------------ */

/* An attachment: fl_store_attach() returns it. */
struct port {
    fl_shard shard; /* first */
    struct worker *worker;
    struct port *next; /* of the same worker; under its lock */
    fl_loop_task task;
    size_t outstanding; /* requests; the loop's thread only */
    fl_loop_fn detached;
    void *detached_arg;

    /* Under the lock of the worker. */
    fl_store_request *in, **in_end;   /* submitted */
    fl_store_request *out, **out_end; /* answered */
    struct batch *batches, **batches_end;
    size_t batch_count;
    struct batch *spare;
    bool posted;    /* the task is on its way to the loop */
    bool detaching; /* no more requests come */
    bool gone;      /* the worker does not know the port any more */

    /* The worker's thread only. */
    fl_store_request *taken;
    bool closing; /* `detaching` as it was when that was taken */
    bool held;    /* a copy is being made: what was submitted after it waits */
};

/* --- The shard's side --------------------------------------------------------------------------------------------- */

enum worker_state { WORKER_IDLE, WORKER_RUNNING, WORKER_CLOSING, WORKER_ENDED };

struct helper;
struct backup;

/* The thread of a shard, and the state of the shard while a loop is attached to it. */
struct worker {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something for the thread to do; or the state */
    enum worker_state state;
    pthread_t thread;
    struct port *ports;
    bool called; /* there is something to do */

    fl_wall_clock *clock;
    struct base *base;
    struct helper *helper;
    struct backup *backup;  /* the copy that is being made, or NULL */
    uint64_t rest_until_ns; /* nothing in the background before that, because it has failed */
};

int fl__shard_worker_start(struct worker *worker);

/* --- Between the two: port.c -------------------------------------------------------------------------------------- */

/* Answers the requests of a list that are no longer wanted, because each request must get an answer. */
void fl__port_refuse(fl_store_request *request);
/* Hands a list of answered requests over to the loop. */
void fl__port_answer(struct port *port, fl_store_request *request);
/* Hands a batch over; waits if the loop has too many. */
void fl__port_send(struct worker *worker, struct port *port, struct batch *batch);
/* A batch to fill, with room for `bytes`; NULL: no memory. */
struct batch *fl__port_batch(struct worker *worker, struct port *port, size_t bytes);
void fl__batch_free(struct batch *batch);
void fl__port_submit(struct port *port, fl_store_request *request);
void fl__port_detach(struct port *port, fl_loop_fn done, void *arg);
void fl__shard_worker_wake(struct worker *worker);
/* Sees to it that the loop takes its answers. Under the lock. */
void fl__port_post(struct port *port);

/* --- Work in the background --------------------------------------------------------------------------------------- */

bool fl__background_waiting(const struct base *base);
/* Does some of it, in the transaction that is open, until about `deadline_ns`. */
int fl__background_step(struct base *base, uint64_t deadline_ns);

/* --- Requests ----------------------------------------------------------------------------------------------------- */

/* Whether a request changes anything. */
bool fl__request_writes(const fl_store_request *request);

/* Carries a request out, inside a transaction if it writes. Returns 0 if it has its answer, which may be that it was
 * refused before anything was done; else it failed, and the transaction must be rolled back. */
int fl__request_run(struct base *base, fl_wall_clock *clock, fl_store_request *request);

/* Those of reads.c. */
int fl__request_find(struct base *base, fl_store_request *request);
int fl__request_list(struct base *base, fl_store_request *request);
int fl__request_count(struct base *base, fl_store_request *request);
int fl__request_dead_list(struct base *base, fl_store_request *request);

/* FL_STORE_LOAD: the rows go to the port. */
int fl__request_load(struct worker *worker, struct port *port, fl_store_request *request);

/* --- The second thread -------------------------------------------------------------------------------------------- */

/* Does what takes the disk long: carries the log over into the file, and syncs copies. */
int fl__helper_start(struct worker *worker, struct helper **ret);
void fl__helper_stop(struct helper *helper);

/* After a commit: sees to it that the log does not grow without bound. */
void fl__helper_look(struct helper *helper, struct base *base);

/* Syncs a file, whose name becomes the helper's, and wakes the worker when that is done; from then on fl__helper_synced()
 * gives 1 and the result. */
void fl__helper_sync(struct helper *helper, char *path);
bool fl__helper_synced(struct helper *helper, int *ret_errno);

/* --- Copies ------------------------------------------------------------------------------------------------------- */

/* Begins a copy; on failure the request has its answer. */
int fl__backup_begin(struct worker *worker, struct port *port, fl_store_request *request);
/* Goes on with it. The request is answered when it is complete. */
void fl__backup_step(struct worker *worker);
/* Whether a step would do something now. */
bool fl__backup_waiting(const struct worker *worker);
void fl__backup_abort(struct worker *worker, const char *why);
struct port *fl__backup_port(const struct worker *worker);

#endif
