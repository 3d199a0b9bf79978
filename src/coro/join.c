/* SPDX-License-Identifier: MIT */
/* Waiting for the end of a coroutine.
 *
 * Those of the same scheduler wait in a list of the coroutine, linked by their own `next`, as they are in no queue. The
 * scheduler's thread alone touches it.
 *
 * Strangers, coroutines of another scheduler and perhaps of another runtime, wait in a table of the process, in the
 * bucket that the coroutine's address chooses. A bucket has a lock, because either side may go away at any time: the
 * coroutine ends, or the runtime of the joiner is freed. A stranger sets STRANGERS under the lock before it looks
 * for DONE; the end sets DONE first and looks for STRANGERS then. So either the stranger sees the end, or the end
 * sees the stranger, takes the lock and finds it. The end makes it ready while it holds the lock, and a runtime that is
 * freed takes its own coroutines out of every bucket before it frees the first: no freed coroutine is woken.
 *
 * Threads wait on the word as a futex.
 */

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "coro/coro.h"

enum { BUCKETS = 64 };

static struct coro_bucket {
    _Alignas(CACHE_LINE) pthread_mutex_t lock;
    struct fl_coro *first; /* linked by `next`; each has in `joins` the coroutine that it waits for */
} strangers[BUCKETS] = {[0 ... BUCKETS - 1] = {PTHREAD_MUTEX_INITIALIZER, NULL}};

static struct coro_bucket *bucket_of(const struct fl_coro *coro)
{
    return &strangers[(uintptr_t)coro / sizeof(*coro) % BUCKETS];
}

/* --- The end */

static void wake_strangers(const struct fl_coro *coro)
{
    struct coro_bucket *bucket = bucket_of(coro);
    struct fl_coro **link = &bucket->first;
    pthread_mutex_lock(&bucket->lock);
    while (*link) {
        struct fl_coro *stranger = *link;
        if (stranger->joins == coro) {
            *link = stranger->next;
            fl__coro_ready(stranger);
        } else {
            link = &stranger->next;
        }
    }
    pthread_mutex_unlock(&bucket->lock);
}

void fl__coro_close(struct fl_coro *coro)
{
    uint32_t word = atomic_fetch_or(&coro->word, CORO_DONE);
    if (word & CORO_THREADS)
        syscall(SYS_futex, &coro->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    if (word & CORO_STRANGERS)
        wake_strangers(coro);
}

void fl__coro_finish(struct fl_coro *coro)
{
    fl__coro_close(coro);
    for (struct fl_coro *joiner = coro->joiners, *next; joiner; joiner = next) {
        next = joiner->next;
        fl__coro_sched_append(coro->sched, joiner);
    }
    fl_coro_unref(coro);
}

void fl__coro_strangers_forget(const struct coro_group *group)
{
    for (struct coro_bucket *bucket = strangers; bucket < strangers + BUCKETS; bucket++) {
        struct fl_coro **link = &bucket->first;
        pthread_mutex_lock(&bucket->lock);
        while (*link) {
            if ((*link)->sched->group == group)
                *link = (*link)->next;
            else
                link = &(*link)->next;
        }
        pthread_mutex_unlock(&bucket->lock);
    }
}

/* --- Waiting for it */

static void join_as_thread(fl_coro *coro)
{
    uint32_t word = atomic_fetch_or(&coro->word, CORO_THREADS) | CORO_THREADS;
    while (!(word & CORO_DONE)) {
        syscall(SYS_futex, &coro->word, FUTEX_WAIT_PRIVATE, word, NULL, NULL, 0);
        word = atomic_load(&coro->word);
    }
}

static void join_neighbour(struct coro_sched *sched, fl_coro *coro)
{
    assert(sched->running && sched->running != coro);
    if (atomic_load(&coro->word) & CORO_DONE)
        return;
    sched->running->next = coro->joiners;
    coro->joiners = sched->running;
    fl__coro_sched_suspend(sched);
}

static void join_stranger(struct coro_sched *sched, fl_coro *coro)
{
    assert(sched->running);
    struct coro_bucket *bucket = bucket_of(coro);
    pthread_mutex_lock(&bucket->lock);
    bool done = atomic_fetch_or(&coro->word, CORO_STRANGERS) & CORO_DONE;
    if (!done) {
        sched->running->joins = coro;
        sched->running->next = bucket->first;
        bucket->first = sched->running;
    }
    pthread_mutex_unlock(&bucket->lock);
    if (!done)
        fl__coro_sched_suspend(sched);
}

/* The scheduler of `coro` may be freed: it is compared with ours and not looked at. */
int fl_coro_join(fl_coro *coro)
{
    struct coro_sched *sched = fl__coro_sched_current();
    if (sched && sched->running == coro)
        return FL_INVALID_ARGUMENT;
    if (!sched)
        join_as_thread(coro);
    else if (coro->sched == sched)
        join_neighbour(sched, coro);
    else
        join_stranger(sched, coro);
    return 0;
}
