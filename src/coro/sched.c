/* SPDX-License-Identifier: MIT */
/* Running coroutines.
 *
 * Stacks. A coroutine is bound to the stack on which it has begun: its frames hold addresses of that stack. Of the
 * coroutines that have begun on a stack (tenants), one is resident, which means that its bytes are in place. When another
 * one is to run there, the resident's bytes, from its context to the top, are copied away and the other one's are copied
 * in. Nothing is copied when a coroutine suspends, only when somebody needs its place. A stack of one's own is a stack
 * with a single tenant, and it works the same.
 *
 * New coroutines begin on `start`. If its resident has more than PROMOTE_SIZE bytes there, it is not worth copying: it
 * keeps the stack, and another one becomes `start`. Those that have begun on that stack before can still push it out.
 *
 * Turns. A turn runs what is ready, and what that makes ready, up to a budget and for a tick at most. There is one at the end of the worker's
 * turn, if need be, and earlier ones when a time is up or another thread sends word. Who yields waits aside until a whole
 * turn of the worker has passed and goes on at its end, behind all that timers, tasks and descriptors have made ready: that
 * is what yielding is for. If nothing of that could have happened, the worker's turn is left out, for it costs several
 * times as much as a yield. Coroutines that wake each other are never held up by it.
 *
 * No memory. If a coroutine cannot be brought onto its stack, because there is no memory for the resident's bytes or
 * for a new stack, it goes to the end of the queue; if nobody could run, the next try is a millisecond later.
 *
 * Time. The node of each coroutine that waits for a time is in one wheel of the scheduler. One timer of the worker, the
 * alarm, stands for the wheel's next poll. It is moved only if it would come too late.
 */

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/list.h"
#include "coro/internal.h"

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#define RETRY_NS 1000000u

enum {
    BUDGET = 256, /* coroutines in one turn */
    PROMOTE_SIZE = 512,
    PREFETCH = 8,
};

/* The model makes it safe to read in a signal handler. */
static _Thread_local struct sched *current __attribute__((tls_model("initial-exec")));

__attribute__((noinline)) struct sched *fl__sched_current(void)
{
    __asm__ volatile("");
    return current;
}

static uint64_t now_ns(const struct sched *sched)
{
    return fl__runtime_now_ns(sched->group->rt);
}

/* --- Stacks */

static size_t live_bytes(const struct fl_coro *coro)
{
    return (size_t)(coro->stack->top - (char *)coro->context);
}

static bool evict(struct sched *sched, struct fl__stack *stack)
{
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
static bool restore(struct sched *sched, struct fl_coro *coro)
{
    struct fl__stack *stack = coro->stack;
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
static struct fl__stack *start_stack(struct sched *sched)
{
#if !defined(FL__CONTEXT_IS_BYTES)
    return fl__stacks_take(&sched->stacks, SHARED_STACK_SIZE);
#endif
    struct fl__stack *stack = sched->start;
    if (stack && (!stack->resident || (live_bytes(stack->resident) <= PROMOTE_SIZE && evict(sched, stack))))
        return stack;
    struct fl__stack *fresh = fl__stacks_take(&sched->stacks, SHARED_STACK_SIZE);
    if (fresh)
        sched->start = fresh;
    return fresh;
}

static void leave_stack(struct sched *sched, struct fl_coro *coro)
{
    struct fl__stack *stack = coro->stack;
    if (stack->resident == coro)
        stack->resident = NULL;
    else
        fl__image_free(&sched->images, coro->image, live_bytes(coro));
    if (--stack->tenants == 0 && stack != sched->start)
        fl__stacks_give(&sched->stacks, stack);
}

/* --- Switching */

/* The first thing that runs on a coroutine's stack, and the last. It keeps one variable, as everybody who sleeps pays for
 * the frame. */
static void begin(void *arg)
{
    struct fl_coro *coro = arg;
    fl__fiber_arrive(&coro->stack->fiber, &coro->sched->fiber);
    coro->fn(coro->arg);
    coro->phase = PHASE_ENDED;
    fl__fiber_leave(NULL, &coro->sched->fiber);
    fl__context_switch(&coro->context, coro->sched->context);
    __builtin_unreachable();
}

static void *first_context(struct sched *sched, struct fl_coro *coro)
{
    struct fl__stack *stack =
        coro->stack_size > 0 ? fl__stacks_take(&sched->stacks, coro->stack_size) : start_stack(sched);
    if (!stack)
        return NULL;
    coro->stack = stack;
    coro->phase = PHASE_STARTED;
    stack->tenants++;
    stack->resident = coro;
    stack_will_be_written(&sched->stacks, stack, stack->bottom);
    return fl__context_make(stack->bottom, stack->top, begin, coro);
}

static void end(struct sched *sched, struct fl_coro *coro)
{
    leave_stack(sched, coro);
    *coro->live_link = coro->live_next;
    if (coro->live_next)
        coro->live_next->live_link = coro->live_link;
    sched->live_count--;
    fl__coro_finish(coro);
}

/* Lets a coroutine run until it suspends or ends. False: there is no memory for that now. */
static bool run(struct sched *sched, struct fl_coro *coro)
{
    void *context;
    if (coro->phase == PHASE_NEW)
        context = first_context(sched, coro);
    else
        context = restore(sched, coro) ? coro->context : NULL;
    if (!context)
        return false;
    sched->running = coro;
    fl__fiber_leave(&sched->fiber, &coro->stack->fiber);
    fl__context_switch(&sched->context, context);
    fl__fiber_arrive(&sched->fiber, &coro->stack->fiber);
    sched->running = NULL;
    if (coro->phase == PHASE_ENDED)
        end(sched, coro);
    return true;
}

static inline void switch_away(struct sched *sched)
{
    struct fl_coro *coro = sched->running;
    fl__fiber_leave(&coro->stack->fiber, &sched->fiber);
    fl__context_switch(&coro->context, sched->context);
    fl__fiber_arrive(&coro->stack->fiber, &sched->fiber);
}

/* The thread may be another one afterwards. */
__attribute__((noinline)) static void suspend_with_exceptions(struct sched *sched)
{
    struct fl__exceptions own = *sched->host->exceptions;
    *sched->host->exceptions = (struct fl__exceptions){0};
    switch_away(sched);
    *sched->host->exceptions = own;
}

static inline void suspend(struct sched *sched)
{
    const struct fl__exceptions *exceptions = sched->host->exceptions;
    if (__builtin_expect(exceptions && (exceptions->caught || exceptions->uncaught), 0))
        suspend_with_exceptions(sched);
    else
        switch_away(sched);
}

void fl__sched_suspend(struct sched *sched)
{
    suspend(sched);
}

/* --- The queues */

static void queue_init(struct coro_queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
}

static void queue_append(struct coro_queue *queue, struct fl_coro *coro)
{
    coro->next = NULL;
    *queue->last = coro;
    queue->last = &coro->next;
}

void fl__sched_append(struct sched *sched, struct fl_coro *coro)
{
    queue_append(&sched->ready, coro);
    if (sched->turning == TURN_NONE)
        fl__sched_turn_soon(sched);
}

/* What comes next has most likely been copied away long ago. */
static void prefetch(const struct fl_coro *coro)
{
    if (coro && coro->phase == PHASE_STARTED && coro->stack->resident != coro)
        for (size_t at = 0; at < live_bytes(coro); at += 64)
            __builtin_prefetch((char *)coro->image + at);
}

static struct fl_coro *pop(struct sched *sched)
{
    struct fl_coro *coro = sched->ready.first;
    if (!coro)
        return NULL;
    sched->ready.first = coro->next;
    if (!sched->ready.first)
        sched->ready.last = &sched->ready.first;
    prefetch(sched->ready.first);
    return coro;
}

static void queue_move(struct coro_queue *to, struct coro_queue *from)
{
    if (!from->first)
        return;
    *to->last = from->first;
    to->last = from->last;
    queue_init(from);
}

void fl__sched_yield(struct sched *sched)
{
    queue_append(sched->turning == TURN_LAST ? &sched->yielded : &sched->yielded_early, sched->running);
    suspend(sched);
}

void fl__sched_take_in(struct sched *sched, struct fl_coro *coro)
{
    coro->phase = PHASE_NEW;
    coro->live_next = sched->live;
    coro->live_link = &sched->live;
    if (coro->live_next)
        coro->live_next->live_link = &coro->live_next;
    sched->live = coro;
    sched->live_count++;
    fl__sched_append(sched, coro);
}

bool fl__sched_empty(const struct sched *sched)
{
    return sched->live_count == 0 && atomic_load(&sched->remote) == NULL;
}

/* --- From other threads */

static void turn(struct sched *sched, enum turning turning);

/* Sends word to the worker, once until it has been heard. If the scheduler is between two workers, nothing needs to be
 * sent: it is looked at when it arrives. A worker that turns out to have left may have been replaced while we held
 * `wake_sent`, and others may have relied on us: so we look again. */
static void notify(struct sched *sched)
{
    while (!atomic_exchange(&sched->wake_sent, true)) {
        struct fl__worker *worker = atomic_load(&sched->worker);
        if (worker && fl__worker_send(worker, &sched->wake))
            return;
        atomic_store(&sched->wake_sent, false);
        if (atomic_load(&sched->remote) == NULL || atomic_load(&sched->worker) == worker)
            return;
    }
}

void fl__sched_send(struct sched *sched, struct fl_coro *coro)
{
    struct fl_coro *head = atomic_load_explicit(&sched->remote, memory_order_relaxed);
    do
        coro->next = head;
    while (!atomic_compare_exchange_weak(&sched->remote, &head, coro));
    if (!head)
        notify(sched);
}

/* The look comes after `wake_sent` was cleared, in the one order of all atomic operations: who found it set before has
 * pushed before we look. */
static void take_remote(struct sched *sched)
{
    if (atomic_load(&sched->remote) == NULL)
        return;
    struct fl_coro *newest = atomic_exchange(&sched->remote, NULL);
    for (struct fl_coro *coro = fl__list_reverse(newest), *next; coro; coro = next) {
        next = coro->next;
        if (coro->phase == PHASE_SENT)
            fl__sched_take_in(sched, coro);
        else
            fl__sched_append(sched, coro);
    }
}

/* A message goes on to another worker if its own leaves. */
static void on_wake(struct fl__worker *worker, struct fl__message *message)
{
    struct sched *sched = container_of(message, struct sched, wake);
    atomic_store(&sched->wake_sent, false);
    if (atomic_load(&sched->worker) == worker)
        turn(sched, TURN_EARLY);
    else if (atomic_load(&sched->remote) != NULL)
        notify(sched);
}

/* --- Time */

static void wait_for_time(struct sched *sched, uint64_t deadline_ns)
{
    struct fl_coro *coro = sched->running;
    coro->timer = TIMER_WAITS;
    fl_nodes_start(sched->wheel, &coro->node, deadline_ns);
}

/* A million sleepers keep this function's frame: it is small, and its callers end in a jump to it, for which it returns
 * their result. */
int fl__sched_sleep_until(struct sched *sched, uint64_t deadline_ns)
{
    wait_for_time(sched, deadline_ns);
    suspend(sched);
    return 0;
}

bool fl__sched_suspend_until(struct sched *sched, uint64_t deadline_ns)
{
    struct fl_coro *coro = sched->running;
    coro->timer = TIMER_NONE;
    if (deadline_ns != NEVER)
        wait_for_time(sched, deadline_ns);
    suspend(sched);
    fl__assert_debug(coro->timer != TIMER_WAITS);
    return coro->timer == TIMER_CAME;
}

void fl__sched_end_wait(struct fl_coro *coro)
{
    bool is_ready = coro->timer == TIMER_CAME;
    if (coro->timer == TIMER_WAITS)
        fl_nodes_stop(coro->sched->wheel, &coro->node);
    coro->timer = TIMER_NONE;
    if (!is_ready)
        fl__sched_append(coro->sched, coro);
}

static void time_is_up(struct sched *sched, struct fl_coro *coro)
{
    fl__assert_debug(coro->timer == TIMER_WAITS);
    coro->timer = TIMER_CAME;
    fl__sched_append(sched, coro);
}

static void poll(struct sched *sched, uint64_t now)
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

static void set_alarm(struct sched *sched, uint64_t at_ns)
{
    if (at_ns >= sched->alarm_ns)
        return;
    fl__local_timer_start(sched->host->worker, &sched->alarm, at_ns);
    sched->alarm_ns = at_ns;
}

static void on_alarm(struct fl__worker *worker, struct fl__local_timer *alarm)
{
    (void)worker;
    struct sched *sched = container_of(alarm, struct sched, alarm);
    sched->alarm_ns = NEVER;
    turn(sched, TURN_EARLY);
}

/* --- Turns */

/* A turn is over: sees to it that there is another one when it is needed. */
static void plan_next_turn(struct sched *sched, bool starved)
{
    uint64_t next_ns;
    if (starved)
        set_alarm(sched, now_ns(sched) + RETRY_NS);
    else if (sched->ready.first || sched->yielded.first || sched->yielded_early.first || sched->more_due)
        fl__sched_turn_soon(sched);
    if (fl_nodes_next_poll(sched->wheel, &next_ns))
        set_alarm(sched, next_ns);
}

/* Whether a turn of the worker could bring something to run before those who have yielded. */
static bool others_may_run(struct sched *sched)
{
    const struct host *host = sched->host;
    uint64_t next_ns = NEVER;
    if (sched->next_in_host || host->scheds != sched || atomic_load_explicit(&sched->remote, memory_order_relaxed))
        return true;
    fl_nodes_next_poll(sched->wheel, &next_ns);
    uint64_t worker_ns = fl__worker_next_ns(host->worker);
    next_ns = worker_ns < next_ns ? worker_ns : next_ns;
    return next_ns != NEVER && next_ns <= now_ns(sched);
}

static struct fl_coro *next(struct sched *sched)
{
    if (!sched->ready.first && sched->yielded.first && sched->turning == TURN_LAST && !others_may_run(sched))
        queue_move(&sched->ready, &sched->yielded);
    return pop(sched);
}

static void turn(struct sched *sched, enum turning turning)
{
    if (sched->host->leaving)
        return;
    bool ran = false, tried = false;
    struct fl_coro *coro;
    uint64_t begin_ns = now_ns(sched);
    current = sched;
    sched->turning = turning;
    fl__fiber_of_thread(&sched->fiber);
    take_remote(sched);
    poll(sched, begin_ns);
    if (turning == TURN_LAST) {
        queue_move(&sched->ready, &sched->yielded);
        queue_move(&sched->yielded, &sched->yielded_early);
    }
    for (int n = 0; n < BUDGET && (coro = next(sched)); n++) {
        tried = true;
        if (run(sched, coro))
            ran = true;
        else
            fl__sched_append(sched, coro);
        if (sched->ready.first && fl__worker_must_turn(sched->host->worker, begin_ns))
            break;
    }
    sched->turning = TURN_NONE;
    current = NULL;
    plan_next_turn(sched, tried && !ran);
    fl__host_part_with(sched);
}

void fl__sched_turn_soon(struct sched *sched)
{
    if (sched->again_sent)
        return;
    sched->again_sent = true;
    fl__worker_defer(sched->host->worker, &sched->again);
}

static void on_again(struct fl__worker *worker, struct fl__message *message)
{
    (void)worker;
    struct sched *sched = container_of(message, struct sched, again);
    sched->again_sent = false;
    turn(sched, TURN_LAST);
}

/* --- Making and freeing */

int fl__sched_init(struct sched *sched, struct group *group)
{
    sched->group = group;
    queue_init(&sched->ready);
    queue_init(&sched->yielded);
    queue_init(&sched->yielded_early);
    sched->alarm_ns = NEVER;
    sched->alarm.fire = on_alarm;
    sched->again.run = on_again;
    sched->wake.run = on_wake;
    fl__stacks_init(&sched->stacks);
    fl_wheel_config config = {.start_ns = now_ns(sched)};
    return fl_nodes_new(&config, &sched->wheel);
}

void fl__sched_close(struct sched *sched)
{
    sched->turning = TURN_EARLY; /* so that nobody waits for the next turn */
    take_remote(sched);
    for (struct fl_coro *coro = sched->live; coro; coro = coro->live_next)
        fl__coro_close(coro);
}

void fl__sched_destroy(struct sched *sched)
{
    while (sched->live) {
        struct fl_coro *coro = sched->live;
        sched->live = coro->live_next;
        if (coro->phase == PHASE_STARTED)
            leave_stack(sched, coro);
        fl_coro_unref(coro);
    }
    fl__records_destroy(&fl__coro_pool, &sched->records);
    fl__waiters_drop(sched);
    fl__images_destroy(&sched->images);
    fl__stacks_destroy(&sched->stacks);
    fl_nodes_free(sched->wheel);
}
