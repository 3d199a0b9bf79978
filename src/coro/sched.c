/* SPDX-License-Identifier: MIT */
/* Running coroutines.
 *
 * Stacks. A coroutine is bound to the stack on which it has begun: its frames hold addresses of that stack. Of the
 * coroutines that have begun on a stack (tenants), one is resident, which means that its bytes are in place. When another
 * one is to run there, the resident's bytes, from its context to the top, are copied away and the other one's are copied
 * in. Nothing is copied when a coroutine suspends, only when another needs its place. A private stack is a stack
 * with a single tenant, and it works the same.
 *
 * New coroutines begin on `start`. If its resident has more than PROMOTE_SIZE bytes there, it is not worth copying: it
 * keeps the stack, and another one becomes `start`. Those that have begun on that stack before can still push it out.
 *
 * Turns. A turn runs what is ready, and what that makes ready, up to a budget and for a tick at most. There is one at the end of the worker's
 * turn, if need be, and earlier ones when a time is up or another thread sends word. A coroutine that yields waits aside until a whole
 * turn of the worker has passed and goes on at its end, behind all that timers, tasks and descriptors have made ready: that
 * is what yielding is for. If nothing of that could have happened, the worker's turn is left out, for it costs several
 * times as much as a yield. Coroutines that wake each other are never held up by it.
 *
 * No memory. If a coroutine cannot be brought onto its stack, because there is no memory for the resident's bytes or
 * for a new stack, it goes to the end of the queue; if no coroutine could run, the next try is a millisecond later.
 *
 * Time. The node of each coroutine that waits for a time is in one wheel of the scheduler. One timer of the worker, the
 * alarm, stands for the wheel's next poll. It is moved only if it would come too late.
 */

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "coro/coro.h"

#define RETRY_NS 1000000u

enum {
    BUDGET = 256, /* coroutines in one turn */
    PROMOTE_SIZE = 512,
    PREFETCH = 8,
};

/* The model makes it safe to read in a signal handler. */
static _Thread_local struct coro_sched *current __attribute__((tls_model("initial-exec")));

__attribute__((noinline)) struct coro_sched *fl__coro_sched_current(void)
{
    __asm__ volatile("");
    return current;
}

static uint64_t now_ns(const struct coro_sched *sched)
{
    return fl__runtime_now_ns(sched->group->rt);
}

/* --- Stacks */

static size_t live_bytes(const struct fl_coro *coro)
{
    return (size_t)(coro->stack->top - (char *)coro->context);
}

static bool evict(struct coro_sched *sched, struct fl__coro_stack *stack)
{
    assert(stack->resident && stack->resident != sched->running);
    struct fl_coro *coro = stack->resident;
    void *image = fl__image_alloc(&sched->images, live_bytes(coro));
    if (!image)
        return false;
    memcpy(image, coro->context, live_bytes(coro));
    coro->image = image;
    stack->resident = NULL;
    return true;
}

/* Brings a coroutine that has begun back onto its stack. */
static bool restore(struct coro_sched *sched, struct fl_coro *coro)
{
    assert(coro->phase == PHASE_STARTED);
    struct fl__coro_stack *stack = coro->stack;
    if (stack->resident == coro)
        return true;
    if (stack->resident && !evict(sched, stack))
        return false;
    stack_will_be_written(&sched->stacks, stack, coro->context);
    memcpy(coro->context, coro->image, live_bytes(coro));
    fl__image_free(&sched->images, coro->image, live_bytes(coro));
    stack->resident = coro;
    return true;
}

/* A free place for a coroutine to begin, without a stack of its own; NULL if there is no memory. */
static struct fl__coro_stack *start_stack(struct coro_sched *sched)
{
#if !defined(FL__CONTEXT_IS_BYTES)
    return fl__coro_stacks_take(&sched->stacks, SHARED_STACK_SIZE);
#endif
    struct fl__coro_stack *stack = sched->start;
    if (stack && (!stack->resident || (live_bytes(stack->resident) <= PROMOTE_SIZE && evict(sched, stack))))
        return stack;
    struct fl__coro_stack *fresh = fl__coro_stacks_take(&sched->stacks, SHARED_STACK_SIZE);
    if (fresh)
        sched->start = fresh;
    return fresh;
}

static void leave_stack(struct coro_sched *sched, struct fl_coro *coro)
{
    struct fl__coro_stack *stack = coro->stack;
    if (stack->resident == coro)
        stack->resident = NULL;
    else
        fl__image_free(&sched->images, coro->image, live_bytes(coro));
    if (--stack->tenants == 0 && stack != sched->start)
        fl__coro_stacks_give(&sched->stacks, stack);
}

/* --- Switching */

/* The first thing that runs on a coroutine's stack, and the last. It keeps one variable, because each sleeping coroutine pays for
 * the frame. */
static void begin(void *arg)
{
    struct fl_coro *coro = arg;
    fl__coro_fiber_arrive(&coro->stack->fiber, &coro->sched->fiber);
    coro->fn(coro->arg);
    coro->phase = PHASE_ENDED;
    fl__coro_fiber_leave(NULL, &coro->sched->fiber);
    fl__coro_context_switch(&coro->context, coro->sched->context);
    __builtin_unreachable();
}

static void *first_context(struct coro_sched *sched, struct fl_coro *coro)
{
    assert(coro->phase == PHASE_NEW);
    struct fl__coro_stack *stack =
        coro->stack_size > 0 ? fl__coro_stacks_take(&sched->stacks, coro->stack_size) : start_stack(sched);
    if (!stack)
        return NULL;
    coro->stack = stack;
    coro->phase = PHASE_STARTED;
    stack->tenants++;
    stack->resident = coro;
    stack_will_be_written(&sched->stacks, stack, stack->bottom);
    return fl__coro_context_make(stack->bottom, stack->top, begin, coro);
}

static void end(struct coro_sched *sched, struct fl_coro *coro)
{
    assert(coro->phase == PHASE_ENDED && sched->live_count > 0);
    leave_stack(sched, coro);
    *coro->live_link = coro->live_next;
    if (coro->live_next)
        coro->live_next->live_link = coro->live_link;
    sched->live_count--;
    fl__coro_finish(coro);
}

/* Lets a coroutine run until it suspends or ends. False: there is no memory for that now. */
static bool run(struct coro_sched *sched, struct fl_coro *coro)
{
    assert(!sched->running && coro->sched == sched);
    void *context;
    if (coro->phase == PHASE_NEW)
        context = first_context(sched, coro);
    else
        context = restore(sched, coro) ? coro->context : NULL;
    if (!context)
        return false;
    sched->running = coro;
    fl__coro_fiber_leave(&sched->fiber, &coro->stack->fiber);
    fl__coro_context_switch(&sched->context, context);
    fl__coro_fiber_arrive(&sched->fiber, &coro->stack->fiber);
    sched->running = NULL;
    if (coro->phase == PHASE_ENDED)
        end(sched, coro);
    return true;
}

static inline void switch_away(struct coro_sched *sched)
{
    assert(sched->running);
    struct fl_coro *coro = sched->running;
    fl__coro_fiber_leave(&coro->stack->fiber, &sched->fiber);
    fl__coro_context_switch(&coro->context, sched->context);
    fl__coro_fiber_arrive(&coro->stack->fiber, &sched->fiber);
}

/* The thread may be another one afterwards. */
__attribute__((noinline)) static void suspend_with_exceptions(struct coro_sched *sched)
{
    struct fl__coro_exceptions own = *sched->host->exceptions;
    *sched->host->exceptions = (struct fl__coro_exceptions){0};
    switch_away(sched);
    *sched->host->exceptions = own;
}

static inline void suspend(struct coro_sched *sched)
{
    const struct fl__coro_exceptions *exceptions = sched->host->exceptions;
    if (__builtin_expect(exceptions && (exceptions->caught || exceptions->uncaught), 0))
        suspend_with_exceptions(sched);
    else
        switch_away(sched);
}

void fl__coro_sched_suspend(struct coro_sched *sched)
{
    suspend(sched);
}

/* --- The queues */

void fl__coro_sched_append(struct coro_sched *sched, struct fl_coro *coro)
{
    assert(coro->sched == sched && coro->phase != PHASE_SENT && coro->phase != PHASE_ENDED);
    fl__queue_append(&sched->ready, coro);
    if (sched->turning == TURN_NONE)
        fl__coro_sched_turn_soon(sched);
}

/* What comes next has most likely been copied away long ago. */
static void prefetch(const struct fl_coro *coro)
{
    if (coro && coro->phase == PHASE_STARTED && coro->stack->resident != coro)
        for (size_t at = 0; at < live_bytes(coro); at += 64)
            __builtin_prefetch((char *)coro->image + at);
}

static struct fl_coro *pop(struct coro_sched *sched)
{
    struct fl_coro *coro = fl__queue_pop(&sched->ready);
    prefetch(sched->ready.first);
    return coro;
}

void fl__coro_sched_yield(struct coro_sched *sched)
{
    fl__queue_append(sched->turning == TURN_LAST ? &sched->yielded : &sched->yielded_early, sched->running);
    suspend(sched);
}

void fl__coro_sched_take_in(struct coro_sched *sched, struct fl_coro *coro)
{
    assert(coro->phase == PHASE_SENT);
    coro->phase = PHASE_NEW;
    coro->live_next = sched->live;
    coro->live_link = &sched->live;
    if (coro->live_next)
        coro->live_next->live_link = &coro->live_next;
    sched->live = coro;
    sched->live_count++;
    fl__coro_sched_append(sched, coro);
}

bool fl__coro_sched_empty(const struct coro_sched *sched)
{
    return sched->live_count == 0 && atomic_load(&sched->remote) == NULL;
}

/* --- From other threads */

static void turn(struct coro_sched *sched, enum turning turning);

void fl__coro_sched_send(struct coro_sched *sched, struct fl_coro *coro)
{
    if (!fl__stack_push(&sched->remote, coro))
        fl__coro_host_wake(sched);
}

/* The look comes after `wake_sent` was cleared, in the one order of all atomic operations: a thread that found it set
 * before has pushed before we look. */
static void take_remote(struct coro_sched *sched)
{
    for (struct fl_coro *coro = fl__stack_take(&sched->remote), *next; coro; coro = next) {
        next = coro->next;
        if (coro->phase == PHASE_SENT)
            fl__coro_sched_take_in(sched, coro);
        else
            fl__coro_sched_append(sched, coro);
    }
}

/* A message goes on to another worker if its own leaves. */
static void on_wake(struct fl__worker *worker, struct fl__message *message)
{
    struct coro_sched *sched = container_of(message, struct coro_sched, wake);
    atomic_store(&sched->wake_sent, false);
    if (atomic_load(&sched->worker) == worker)
        turn(sched, TURN_EARLY);
    else if (atomic_load(&sched->remote) != NULL)
        fl__coro_host_wake(sched);
}

/* --- Time */

static void wait_for_time(struct coro_sched *sched, uint64_t deadline_ns)
{
    assert(sched->running && !fl_node_is_waiting(&sched->running->node));
    struct fl_coro *coro = sched->running;
    coro->timer = TIMER_WAITS;
    fl_nodes_start(sched->wheel, &coro->node, deadline_ns);
}

/* A million sleepers keep this function's frame: it is small, and its callers end in a jump to it, for which it returns
 * their result. */
int fl__coro_sched_sleep_until(struct coro_sched *sched, uint64_t deadline_ns)
{
    wait_for_time(sched, deadline_ns);
    suspend(sched);
    return 0;
}

bool fl__coro_sched_suspend_until(struct coro_sched *sched, uint64_t deadline_ns)
{
    struct fl_coro *coro = sched->running;
    coro->timer = TIMER_NONE;
    if (deadline_ns != NEVER)
        wait_for_time(sched, deadline_ns);
    suspend(sched);
    fl__assert_debug(coro->timer != TIMER_WAITS);
    return coro->timer == TIMER_CAME;
}

void fl__coro_sched_end_wait(struct fl_coro *coro)
{
    bool is_ready = coro->timer == TIMER_CAME;
    if (coro->timer == TIMER_WAITS)
        fl_nodes_stop(coro->sched->wheel, &coro->node);
    coro->timer = TIMER_NONE;
    if (!is_ready)
        fl__coro_sched_append(coro->sched, coro);
}

static void time_is_up(struct coro_sched *sched, struct fl_coro *coro)
{
    fl__assert_debug(coro->timer == TIMER_WAITS);
    coro->timer = TIMER_CAME;
    fl__coro_sched_append(sched, coro);
}

static void poll(struct coro_sched *sched, uint64_t now)
{
    fl_node *due[BUDGET];
    size_t n = fl_nodes_poll(sched->wheel, now, due, BUDGET);
    for (size_t i = 0; i < n; i++) {
        if (i + PREFETCH < n)
            __builtin_prefetch(due[i + PREFETCH], 1);
        time_is_up(sched, container_of(due[i], struct fl_coro, node));
    }
    sched->more_due = n == BUDGET;
}

static void set_alarm(struct coro_sched *sched, uint64_t at_ns)
{
    assert(sched->host);
    if (at_ns >= sched->alarm_ns)
        return;
    fl__local_timer_start(sched->host->worker, &sched->alarm, at_ns);
    sched->alarm_ns = at_ns;
}

static void on_alarm(struct fl__worker *worker, struct fl__local_timer *alarm)
{
    (void)worker;
    struct coro_sched *sched = container_of(alarm, struct coro_sched, alarm);
    sched->alarm_ns = NEVER;
    turn(sched, TURN_EARLY);
}

/* --- Turns */

/* A turn is over: sees to it that there is another one when it is needed. */
static void plan_next_turn(struct coro_sched *sched, bool starved)
{
    uint64_t next_ns;
    if (starved)
        set_alarm(sched, now_ns(sched) + RETRY_NS);
    else if (sched->ready.first || sched->yielded.first || sched->yielded_early.first || sched->more_due)
        fl__coro_sched_turn_soon(sched);
    if (fl_nodes_next_poll(sched->wheel, &next_ns))
        set_alarm(sched, next_ns);
}

/* Whether a turn of the worker could bring something to run before those who have yielded. */
static bool others_may_run(struct coro_sched *sched)
{
    const struct coro_host *host = sched->host;
    uint64_t next_ns = NEVER;
    if (sched->next_in_host || host->scheds != sched || atomic_load_explicit(&sched->remote, memory_order_relaxed))
        return true;
    fl_nodes_next_poll(sched->wheel, &next_ns);
    uint64_t worker_ns = fl__worker_next_ns(host->worker);
    next_ns = worker_ns < next_ns ? worker_ns : next_ns;
    return next_ns != NEVER && next_ns <= now_ns(sched);
}

static struct fl_coro *next(struct coro_sched *sched)
{
    if (!sched->ready.first && sched->yielded.first && sched->turning == TURN_LAST && !others_may_run(sched))
        fl__queue_move(&sched->ready, &sched->yielded);
    return pop(sched);
}

static void turn(struct coro_sched *sched, enum turning turning)
{
    assert(sched->turning == TURN_NONE && turning != TURN_NONE);
    if (sched->host->leaving)
        return;
    bool ran = false, tried = false;
    struct fl_coro *coro;
    uint64_t begin_ns = now_ns(sched);
    current = sched;
    sched->turning = turning;
    fl__coro_fiber_of_thread(&sched->fiber);
    take_remote(sched);
    poll(sched, begin_ns);
    if (turning == TURN_LAST) {
        fl__queue_move(&sched->ready, &sched->yielded);
        fl__queue_move(&sched->yielded, &sched->yielded_early);
    }
    for (int n = 0; n < BUDGET && (coro = next(sched)); n++) {
        tried = true;
        if (run(sched, coro))
            ran = true;
        else
            fl__coro_sched_append(sched, coro);
        if (sched->ready.first && fl__worker_must_turn(sched->host->worker, begin_ns))
            break;
    }
    sched->turning = TURN_NONE;
    current = NULL;
    plan_next_turn(sched, tried && !ran);
    fl__coro_host_part_with(sched);
}

void fl__coro_sched_turn_soon(struct coro_sched *sched)
{
    assert(sched->host);
    if (sched->again_sent)
        return;
    sched->again_sent = true;
    fl__worker_defer(sched->host->worker, &sched->again);
}

static void on_again(struct fl__worker *worker, struct fl__message *message)
{
    (void)worker;
    struct coro_sched *sched = container_of(message, struct coro_sched, again);
    sched->again_sent = false;
    turn(sched, TURN_LAST);
}

/* --- Making and freeing */

int fl__coro_sched_init(struct coro_sched *sched, struct coro_group *group)
{
    sched->group = group;
    sched->alarm_ns = NEVER;
    sched->alarm.fire = on_alarm;
    sched->again.run = on_again;
    sched->wake.run = on_wake;
    fl__coro_stacks_init(&sched->stacks);
    fl_wheel_config config = {.start_ns = now_ns(sched)};
    return fl_nodes_new(&config, &sched->wheel);
}

void fl__coro_sched_close(struct coro_sched *sched)
{
    sched->turning = TURN_EARLY; /* so that no turn is asked for */
    take_remote(sched);
    for (struct fl_coro *coro = sched->live; coro; coro = coro->live_next)
        fl__coro_close(coro);
}

void fl__coro_sched_destroy(struct coro_sched *sched)
{
    while (sched->live) {
        struct fl_coro *coro = sched->live;
        sched->live = coro->live_next;
        if (coro->phase == PHASE_STARTED)
            leave_stack(sched, coro);
        fl_coro_unref(coro);
    }
    fl__records_destroy(&fl__coro_pool, &sched->records);
    fl__coro_waiters_drop(sched);
    fl__images_destroy(&sched->images);
    fl__coro_stacks_destroy(&sched->stacks);
    fl_nodes_free(sched->wheel);
}
