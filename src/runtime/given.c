/* SPDX-License-Identifier: MIT */
/* A clock that the program has given: time passes when the whole runtime waits for it.
 *
 * A loop that has nothing to do before its next deadline asks its clock to let time pass. The loops of a runtime's workers
 * share one clock, and what has nothing to do is the runtime only if none of them has: else the clock of a test would jump
 * an hour ahead because one worker is idle, while another is about to start a timer for the next second. So each loop
 * gets a clock of its own that asks the others first. Only if all are waiting, the program's clock is asked to go on, to the
 * nearest of their deadlines. Otherwise the loop looks again a little later: that is polling, and simple; this is not the
 * clock that programs use when time matters.
 *
 * A worker is busy from before its loop takes out what was sent to it until it goes to sleep again: first `taken` is
 * set, then the stack is emptied, and `quiet_until_ns` is 0 when the loop returns. So at any moment one of the three tells.
 * The runtime cannot know what threads outside are about to do: to start several timers for one moment, do it in a task.
 */

#include <time.h>

#include "runtime/internal.h"

enum { LOOK_AGAIN_NS = 50000 };

static struct fl__worker *worker_of(fl_clock *clock)
{
    return container_of(clock, struct fl__worker, clock);
}

static uint64_t given_now_ns(fl_clock *clock)
{
    return fl__runtime_now_ns(worker_of(clock)->rt);
}

static bool has_mail(const struct fl__worker *worker)
{
    return !fl__stack_is_empty(&worker->mailbox.sent) || !fl__stack_is_empty(&worker->assigned.sent) ||
           tasks_waiting(&worker->arrivals) || tasks_waiting(&worker->tasks) || atomic_load(&worker->mailbox.taken) ||
           atomic_load(&worker->assigned.taken);
}

/* The nearest deadline of all workers; 0 if one of them is not waiting. */
static uint64_t nearest_ns(fl_runtime *rt)
{
    uint64_t now_ns = fl__runtime_now_ns(rt), nearest_ns = NEVER;
    unsigned active = atomic_load_explicit(&rt->active, memory_order_acquire);
    if (!fl__stack_is_empty(&rt->metronome.mailbox.sent))
        return 0;
    for (unsigned i = 0; i < active; i++) {
        struct fl__worker *worker = worker_at(rt, i);
        uint64_t until_ns = atomic_load(&worker->quiet_until_ns);
        if (until_ns <= now_ns || has_mail(worker))
            return 0;
        nearest_ns = until_ns < nearest_ns ? until_ns : nearest_ns;
    }
    return nearest_ns;
}

static void given_wait_until(fl_clock *clock, uint64_t deadline_ns)
{
    struct fl__worker *worker = worker_of(clock);
    atomic_store(&worker->quiet_until_ns, deadline_ns);
    uint64_t until_ns = nearest_ns(worker->rt);
    if (until_ns == 0)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
    else
        worker->rt->clock->wait_until(worker->rt->clock, until_ns < deadline_ns ? until_ns : deadline_ns);
}

fl_clock *fl__runtime_given_clock(struct fl__worker *worker)
{
    if (!worker->rt->own_clock)
        return worker->rt->clock;
    worker->clock = (fl_clock){given_now_ns, given_wait_until};
    return &worker->clock;
}

/* If neither the worker nor its loop waits for a time, the loop does not ask its clock and sleeps in the kernel. */
void fl__runtime_given_sleep(struct fl__worker *worker, uint64_t next_ns)
{
    if (!worker->rt->own_clock)
        return;
    atomic_store(&worker->mailbox.taken, false);
    atomic_store(&worker->assigned.taken, false);
    if (next_ns == NEVER && !fl_loop_next_ns(worker->loop, &next_ns))
        atomic_store(&worker->quiet_until_ns, NEVER);
}

void fl__runtime_given_awake(struct fl__worker *worker)
{
    if (worker->rt->own_clock)
        atomic_store(&worker->quiet_until_ns, 0);
}
