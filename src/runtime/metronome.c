/* SPDX-License-Identifier: MIT */
/* The metronome: one thread that tells busy workers the time and deals out what belongs to no worker.
 *
 * Time. A worker reads the clock once a turn. One that has more than one thing to do in it calls the metronome, which ticks:
 * it writes the time to each worker that is awake, and sets needs_poll if the worker's next deadline has come. The tick
 * adapts: it comes when the nearest of those deadlines is due, but at least every tick_ns and at most 16 times as often.
 * It plans ticks by the clock and does not count them, so a late tick costs nothing; the lateness is
 * recorded. When no worker has been awake for some ticks, it stops. An idle worker sleeps on its own loop with its own
 * deadline, so an idle runtime has nothing that ticks, and no timer depends on this thread to fire.
 *
 * On a clock that the program has given, the metronome does not tick: to wait for a tick could move such a clock while
 * workers are busy. They look at it themselves.
 *
 * Watch. It wakes an idle worker when timers are due that their own worker has not come to: see below.
 *
 * Merge queue. Messages that no worker took come here: the timers and tasks of workers that have left, and what is started
 * or spawned while there is no worker. They are dealt out in turn to the workers there are, or held until there is one.
 */

#include "base/alloc.h"
#include "runtime/internal.h"

enum {
    FINEST = 16,    /* ticks in a tick_ns */
    IDLE_TICKS = 8, /* without a worker awake: then it stops */
};

/* --- Dealing */

static bool deal(fl_runtime *rt, struct fl__message *message)
{
    struct metronome *metronome = &rt->metronome;
    unsigned active = atomic_load_explicit(&rt->active, memory_order_acquire);
    for (unsigned i = 0; i < active; i++)
        if (fl__runtime_offer(worker_at(rt, metronome->next_pick++ % active), message))
            return true;
    return false;
}

static void deal_held(fl_runtime *rt)
{
    struct message_queue now = message_queue_take(&rt->metronome.held);
    struct fl__message *message;
    while ((message = fl__queue_pop(&now)))
        if (!deal(rt, message))
            fl__queue_append(&rt->metronome.held, message);
}

/* --- Ticking */

static void plan_tick(struct metronome *metronome, uint64_t when_ns)
{
    metronome->planned_ns = when_ns;
    atomic_store_explicit(&metronome->ticking, true, memory_order_relaxed);
}

static void record_drift(fl_runtime *rt, uint64_t drift_ns)
{
    struct metronome *metronome = &rt->metronome;
    counter_add(&metronome->ticks, 1);
    counter_add(&metronome->late, drift_ns >= rt->tick_ns);
    counter_add(&metronome->drift_sum_ns, drift_ns);
    counter_raise(&metronome->drift_worst_ns, drift_ns);
}

/* Tells one worker the time; returns its next deadline, or NEVER if it sleeps. */
static uint64_t tell(struct fl__worker *worker, uint64_t now_ns)
{
    if (!atomic_load_explicit(&worker->awake, memory_order_relaxed))
        return NEVER;
    atomic_store_explicit(&worker->timer_now_ns, now_ns, memory_order_relaxed);
    uint64_t next_ns = atomic_load_explicit(&worker->next_ns, memory_order_relaxed);
    if (next_ns <= now_ns)
        atomic_store_explicit(&worker->needs_poll, true, memory_order_relaxed);
    return next_ns < TIME_MAX ? next_ns : TIME_MAX;
}

static void tick(fl_runtime *rt)
{
    struct metronome *metronome = &rt->metronome;
    uint64_t now_ns = fl_loop_update_now(metronome->loop), nearest_ns = now_ns + rt->tick_ns;
    if (!atomic_load_explicit(&metronome->ticking, memory_order_relaxed) || now_ns < metronome->planned_ns)
        return;
    record_drift(rt, now_ns - metronome->planned_ns);
    metronome->idle_ticks++;
    unsigned active = atomic_load_explicit(&rt->active, memory_order_acquire);
    for (unsigned i = 0; i < active; i++) {
        uint64_t next_ns = tell(worker_at(rt, i), now_ns);
        if (next_ns < NEVER)
            metronome->idle_ticks = 0;
        if (next_ns > now_ns && next_ns < nearest_ns)
            nearest_ns = next_ns;
    }
    uint64_t finest_ns = now_ns + rt->tick_ns / FINEST;
    if (metronome->idle_ticks < IDLE_TICKS)
        plan_tick(metronome, nearest_ns > finest_ns ? nearest_ns : finest_ns);
    else
        atomic_store_explicit(&metronome->ticking, false, memory_order_relaxed);
}

/* --- Watching
 *
 * A timer that came from outside lies in the wheel of some worker, and if that is stuck in a callback when the timer is
 * due, an idle worker fires it. But an idle worker sleeps. So the metronome looks a tick after the nearest of those
 * deadlines whether it has fired, and if not, wakes an idle worker. As long as workers keep up, it finds nothing, and
 * looks again a tick after the next deadline. Workers report only earlier deadlines to it. */

/* The nearest deadline of a common timer, and whether one is overdue. */
static uint64_t nearest_common_ns(fl_runtime *rt, uint64_t now_ns, bool *ret_overdue)
{
    uint64_t nearest_ns = NEVER;
    unsigned active = atomic_load_explicit(&rt->active, memory_order_acquire);
    for (unsigned i = 0; i < active; i++) {
        uint64_t next_ns = atomic_load(&worker_at(rt, i)->common.next_ns);
        nearest_ns = next_ns < nearest_ns ? next_ns : nearest_ns;
        *ret_overdue |= next_ns < now_ns && now_ns - next_ns >= rt->tick_ns;
    }
    return nearest_ns;
}

/* First it forgets what it has planned, then it looks at the workers. A worker that takes in a timer does it the other way
 * round, so it is either seen now or says a word. */
static void watch(fl_runtime *rt)
{
    struct metronome *metronome = &rt->metronome;
    uint64_t now_ns = fl_loop_update_now(metronome->loop);
    bool overdue = false;
    if (now_ns < metronome->look_ns)
        return;
    metronome->look_ns = NEVER;
    if (rt->own_clock || atomic_load_explicit(&rt->active, memory_order_acquire) < 2)
        return;
    atomic_store(&metronome->watch_ns, NEVER);
    uint64_t nearest_ns = nearest_common_ns(rt, now_ns, &overdue);
    if (overdue)
        fl__runtime_idle_wake_one(rt);
    if (nearest_ns >= TIME_MAX - rt->tick_ns)
        return;
    metronome->look_ns = (nearest_ns > now_ns ? nearest_ns : now_ns) + rt->tick_ns;
    atomic_store(&metronome->watch_ns, nearest_ns);
}

/* --- The thread */

static void take_requests(fl_runtime *rt)
{
    struct metronome *metronome = &rt->metronome;
    unsigned bits = atomic_exchange(&metronome->requests.bits, 0);
    if (bits & REQUEST_TICK && !atomic_load_explicit(&metronome->ticking, memory_order_relaxed)) {
        metronome->idle_ticks = 0;
        plan_tick(metronome, fl_loop_now_ns(metronome->loop) + rt->tick_ns / FINEST);
    }
    if (bits & REQUEST_DEAL)
        deal_held(rt);
    metronome->look_ns = 0;
    if (bits & REQUEST_STOP)
        metronome->stopping = true;
}

static void take_messages(fl_runtime *rt)
{
    struct metronome *metronome = &rt->metronome;
    struct fl__message *message;
    while ((message = fl__queue_pop(&metronome->mailbox.received))) {
        if (message == &metronome->requests.message)
            take_requests(rt);
        else if (metronome->held.first || !deal(rt, message))
            fl__queue_append(&metronome->held, message);
    }
    if (metronome->held.first && atomic_load_explicit(&rt->active, memory_order_acquire) > 0)
        deal_held(rt);
}

static void forget_all(struct message_queue *queue)
{
    struct fl__message *message;
    while ((message = fl__queue_pop(queue)))
        fl__runtime_forget_message(message);
}

static void *run(void *arg)
{
    fl_runtime *rt = arg;
    struct metronome *metronome = &rt->metronome;
    fl_loop_hold(metronome->loop);
    while (!metronome->stopping) {
        bool ticking = atomic_load_explicit(&metronome->ticking, memory_order_relaxed);
        fl__loop_run_until(metronome->loop, earlier(ticking ? metronome->planned_ns : NEVER, metronome->look_ns));
        take_messages(rt);
        tick(rt);
        watch(rt);
    }
    fl__runtime_mailbox_close(&metronome->mailbox);
    forget_all(&metronome->mailbox.received);
    forget_all(&metronome->held);
    return NULL;
}

int fl__runtime_metronome_start(fl_runtime *rt)
{
    struct metronome *metronome = &rt->metronome;
    fl_loop_config config = {.clock = rt->clock};
    int r = fl_loop_new(&config, &metronome->loop);
    if (r < 0)
        return r;
    metronome->look_ns = NEVER;
    atomic_init(&metronome->watch_ns, NEVER);
    fl__runtime_mailbox_init(&metronome->mailbox);
    fl__runtime_mailbox_open(&metronome->mailbox, metronome->loop);
    r = fl__runtime_thread_start(&metronome->thread, "foliot-clock", false, run, rt);
    if (r < 0)
        fl_loop_free(metronome->loop);
    return r;
}

void fl__runtime_metronome_stop(fl_runtime *rt)
{
    struct metronome *metronome = &rt->metronome;
    fl__runtime_request(&metronome->requests, &metronome->mailbox, REQUEST_STOP);
    pthread_join(metronome->thread, NULL);
    fl_loop_free(metronome->loop);
}
