/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_MEMORY_MEMORY_H
#define FOLIOT_STORE_MEMORY_MEMORY_H

/* The store "memory:", for tests and simulations: the whole contract in the simplest form, with faults on demand.
 *
 *     memory.c   attaching, and taking one request after the other
 *     owners.c   claims, and servers that meet
 *     write.c    changing rows and progress
 *     read.c     finding, listing and loading
 *     mark.c     going back to an earlier state
 *     rows.c     the rows of a shard
 *     history.c  its history
 *     members.c  the list of servers
 *
 * A shard's rows (rows.h), its owner and its progress are in a book. The book belongs to the store and outlives the
 * attachments of the shard: dropping an attachment simulates a crash of its engine. Each book has a lock, so a shard may be
 * attached to loops of different threads.
 *
 * An attachment takes its requests one at a time, each in a task of its loop: it asks for a fault, carries the request out
 * under the lock, waits for the delay if there is one, answers, and only then begins the next. That is why order is kept,
 * why nothing is answered inside fl_store_submit(), and why a request that was carried out may still wait for its answer
 * when its engine crashes, while those behind it have not begun. What a request gives back is copied and belongs to the
 * attachment until `done` has returned. A load goes on from task to task, a part at a time.
 *
 * All or nothing: a request first gets all the memory that it needs; from then on nothing can fail.
 *
 * The list of servers has a lock of its own. A request that reads all shards locks one book after the other, never two at
 * once.
 *
 * Versions begin with 1. A shard that was never claimed has version 0, which no write has.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "store/memory/history.h"
#include "store/memory/members.h"
#include "store/memory/rows.h"

struct book {
    pthread_mutex_t lock;
    struct fl__rows rows;
    uint64_t version;
    char owner[FL_STORE_NAME_MAX + 1]; /* empty: none */
    int64_t claim_until_us;
    fl_progress progress; /* `keep` is ours */
    struct fl__past history;
};

/* What the store can go back to. */
struct mark {
    struct fl__members members;
    struct book books[]; /* without their locks */
};

struct store {
    fl_store store;
    fl_wall_clock *clock;
    pthread_mutex_t members_lock;
    struct fl__members members;
    fl_memory_fault_fn fault;
    void *fault_arg;
    struct mark *mark;     /* NULL: none */
    atomic_uint went_back; /* so many times */
    atomic_uint attached;
    struct book books[];
};

struct attachment {
    fl_shard shard;
    struct book *book;
    fl_store_request *first, **last; /* requests that have not begun */
    fl_store_request *current;       /* the request in progress */
    bool claimed;                    /* over this attachment, */
    unsigned claimed_after;          /* when the store had gone back so many times */
    fl_loop_task task;
    bool scheduled;     /* a task is posted or a timer armed */
    struct arena arena; /* copies that live until the request is answered */
    struct {
        size_t window; /* which of the request's */
        uint64_t seq;  /* where to go on in it */
        fl_key end;    /* rows before it are given */
    } load;
    fl_loop_fn gone; /* set: to be detached */
    void *gone_arg;
};

/* --- memory.c -------------------------------------------------------------------------------------------------------- */

extern const struct fl_store_ops fl__memory_store_ops;

void fl__book_clear(struct book *book);
void fl__memory_store_drop_mark(struct mark *mark, uint32_t shards);

/* --- owners.c -------------------------------------------------------------------------------------------------------- */

int64_t fl__memory_store_now(const struct attachment *a);
int64_t fl__memory_store_claim_end(int64_t now, uint64_t claim_us);
void fl__memory_store_claim(struct attachment *a, fl_store_request *request);
/* Whether the store has forgotten what the owner knows. */
bool fl__memory_store_is_forgotten(const struct attachment *a, const fl_store_request *request);
void fl__memory_store_answer_forgotten(const struct attachment *a, fl_store_request *request);
void fl__memory_store_meet(struct attachment *a, fl_store_request *request);
void fl__memory_store_count(struct attachment *a, fl_store_request *request);

/* --- read.c ---------------------------------------------------------------------------------------------------------- */

void fl__memory_store_find(struct attachment *a, fl_store_request *request);
void fl__memory_store_list(struct attachment *a, fl_store_request *request);
void fl__memory_store_list_dead(struct attachment *a, fl_store_request *request);
/* Finds out where the load ends. As windows are in order of time, only one of them is given in part. */
void fl__memory_store_load_begin(struct attachment *a, fl_store_request *request);
/* Gives the next part of a load; whether that was the last. */
bool fl__memory_store_load_go_on(struct attachment *a, fl_store_request *request);

/* --- write.c --------------------------------------------------------------------------------------------------------- */

void fl__memory_store_write_changes(struct book *book, fl_store_request *request);
void fl__memory_store_record(struct book *book, fl_store_request *request);
void fl__memory_store_finish(struct book *book, fl_store_request *request);
void fl__memory_store_refile(struct book *book, fl_store_request *request);

#endif
