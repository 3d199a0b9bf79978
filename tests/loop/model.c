/* SPDX-License-Identifier: MIT */
/* Reads bytes as the history of a loop and lives it through beside the model: see model.h.
 *
 * The first bytes choose budget and start time. Then each byte is an operation, followed by what it needs: making and
 * changing things, or running the loop. Each callback reads from the same bytes how many operations it does, and does
 * them to loop and model alike. Where the bytes end, callbacks do nothing but bring the run to its end.
 *
 * The model runs a turn lazily: when a callback comes, it goes through the phases until it finds what should come next.
 * Nothing happens between two callbacks, so it makes no difference that it looks later than the loop does. Descriptors
 * are eventfds; the order among those that are ready is the kernel's, so any of them may come.
 *
 * With one moment for many timers, stops of far timers and small budgets, ties are frequent, and every tie is checked.
 */

#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <foliot/loop.h>

#include "loop/internal.h"
#include "loop/model.h"

enum {
    CHANNELS = 4,
    MAX_ITEMS = 4000,
};

enum kind {
    TIMER, /* and intervals */
    HOOK,  /* the moment is in its flags */
    IMMEDIATE,
    TASK,
    URGENT,
    MICROTASK,
    CLOSING,
    KINDS
};

#define PHASE_NONE ((enum phase)(PHASE_CLOSING + 1))

/* Something that was asked for, with all that the contract says about it. */
struct item {
    struct model *model;
    enum kind kind;
    unsigned number;
    bool lives;
    fl_timer_id id; /* timers and immediates */
    bool unref;
    bool due;         /* set aside in this turn */
    uint64_t fire_ns; /* the deadline after the slack */
    uint64_t order;   /* rises with everything that is made or armed anew */
    uint64_t deadline_ns, period_ns, slack_ns;
    unsigned flags;
    fl_loop_task task;
};

struct queue {
    struct item *items[MAX_ITEMS];
    unsigned first, end;
};

/* A descriptor. `watched` is what the loop was told, `attached` whether the kernel still has it: closing the file takes
 * it away. */
struct channel {
    struct model *model;
    int fd;
    uint64_t value;
    bool watched, attached, unref;
    unsigned events, ready; /* asked for; found at the beginning of the phase */
    uint64_t added;         /* order of the last fl_loop_fd_add(), */
    uint64_t found;         /* and what it was then */
};

struct model {
    const uint8_t *bytes, *end;
    fl_loop *loop;
    fl_virtual_clock clock;
    uint64_t time_ns; /* what the clock must show */
    uint64_t now_ns, order;
    unsigned budget, channels, holds;

    struct item items[MAX_ITEMS];
    unsigned count;
    struct queue queue[KINDS]; /* not for timers */
    struct channel channel[CHANNELS];

    struct item *due[MAX_ITEMS]; /* of this turn, or left by a stop */
    unsigned due_next, due_count;
    struct item *hooks[MAX_ITEMS]; /* of the phase that runs, or left by a stop */
    unsigned hook_next, hook_count;
    bool in_hook;         /* a hook was called, and its microtasks may follow */
    struct item *running; /* an interval whose callback was called and which is not yet armed anew */

    enum phase phase;       /* of a turn that runs or that a stop has ended; or there is none */
    bool finishing;         /* such a turn is finished, and another one follows */
    unsigned left[KINDS];   /* callbacks that this phase may still call */
    uint64_t phase_order;   /* what was made later waits for the next turn */
    bool waits, wakes;      /* the turn that runs may sleep; it has no hooks to call before that */
    bool stopped, draining; /* the stop that was asked for */
    bool stop_turn;
    bool may_sleep;  /* the turn began when something kept the loop alive, and not after a stop */
    bool drain_turn; /* the turn began after a graceful stop was asked for */
    bool freed;
    enum { NOT, ONCE, WAIT, RUN } run; /* how the loop runs */
    uint64_t calls, by_hooks, progress_before_run, progress_before_turn;
    uint64_t slack_ns;
};

__attribute__((format(printf, 2, 3))) static void demand(bool condition, const char *format, ...)
{
    if (condition)
        return;
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

/* ---- Bytes. */

static uint8_t byte(struct model *m)
{
    return m->bytes < m->end ? *m->bytes++ : 0;
}

static bool exhausted(const struct model *m)
{
    return m->bytes >= m->end || m->count >= MAX_ITEMS - 8;
}

/* The wheel's reach and its ticks, and small numbers so that times meet. */
static uint64_t duration(struct model *m)
{
    static const uint64_t landmark[] = {0, 1, 1000, 1u << 20, 1u << 28, 1ull << 36, 1ull << 43, 1ull << 44, 1ull << 45};
    uint8_t kind = byte(m);
    if (kind == 255)
        return UINT64_MAX - byte(m) % 3;
    uint64_t base = landmark[kind % 9];
    uint64_t times = kind / 9 % 4;
    return base * times + kind / 36 % 4;
}

/* ---- What the contract says. */

static uint64_t at_most_max(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The multiple of the greatest power of two that is not before the deadline and not after deadline + slack. */
static uint64_t with_slack(uint64_t deadline_ns, uint64_t slack_ns)
{
    uint64_t latest = at_most_max(deadline_ns, slack_ns);
    for (unsigned bits = 63; bits > 0; bits--) {
        uint64_t multiple = latest >> bits << bits;
        if (multiple >= deadline_ns)
            return multiple;
    }
    return deadline_ns;
}

static bool waiting(const struct queue *q)
{
    return q->first < q->end;
}

static bool can_run(const struct model *m)
{
    for (enum kind kind = IMMEDIATE; kind < KINDS; kind++)
        if (waiting(&m->queue[kind]))
            return true;
    return false;
}

static struct item *earliest(struct model *m)
{
    struct item *first = NULL;
    for (unsigned i = 0; i < m->count; i++) {
        struct item *item = &m->items[i];
        if (item->kind != TIMER || !item->lives || item->due || item == m->running)
            continue;
        if (!first || item->fire_ns < first->fire_ns || (item->fire_ns == first->fire_ns && item->order < first->order))
            first = item;
    }
    return first;
}

static bool alive(const struct model *m)
{
    bool keeps = m->holds > 0;
    for (unsigned i = 0; i < m->count; i++)
        keeps = keeps || (m->items[i].kind <= IMMEDIATE && m->items[i].lives && !m->items[i].unref);
    for (unsigned i = 0; i < m->channels; i++)
        keeps = keeps || (m->channel[i].watched && !m->channel[i].unref);
    for (enum kind kind = TASK; kind < KINDS; kind++)
        keeps = keeps || waiting(&m->queue[kind]);
    return keeps;
}

static unsigned readiness(const struct channel *c)
{
    return c->watched && c->attached ? c->events & (FL_WRITE | (c->value > 0 ? FL_READ : 0)) : 0;
}

static bool channel_ready(const struct model *m)
{
    for (unsigned i = 0; i < m->channels; i++)
        if (readiness(&m->channel[i]))
            return true;
    return false;
}

/* A wait that only the outside could end: not to be tried. A timer at the end of time counts as none. */
static bool would_block(struct model *m)
{
    const struct item *next = earliest(m);
    bool something = (next && next->fire_ns < 1ull << 53) || m->running;
    for (unsigned i = m->due_next; i < m->due_count; i++)
        something = something || (m->due[i]->lives && m->due[i]->due);
    for (enum kind kind = IMMEDIATE; kind < KINDS; kind++)
        something = something || waiting(&m->queue[kind]);
    return alive(m) && !something && !channel_ready(m);
}

/* ---- A turn. */

static uint64_t progress(const struct model *m)
{
    return m->calls - m->by_hooks;
}

static void take_hooks(struct model *m, unsigned when)
{
    m->hook_next = m->hook_count = 0;
    for (unsigned i = 0; i < m->count; i++)
        if (m->items[i].kind == HOOK && m->items[i].lives && m->items[i].flags == when)
            m->hooks[m->hook_count++] = &m->items[i];
}

static struct item *next_hook(struct model *m)
{
    while (m->hook_next < m->hook_count) {
        struct item *item = m->hooks[m->hook_next++];
        if (item->lives)
            return item;
    }
    return NULL;
}

/* What can run keeps the loop from sleeping: microtasks, too, though they run before the hooks. */
static void begin_turn(struct model *m, bool wait)
{
    if (m->phase != PHASE_BEFORE_SLEEP)
        take_hooks(m, FL_HOOK_BEFORE_SLEEP);
    m->phase = PHASE_BEFORE_SLEEP;
    m->waits = wait && !can_run(m);
    bool hooks = false;
    for (unsigned i = m->hook_next; i < m->hook_count; i++)
        hooks = hooks || m->hooks[i]->lives;
    m->wakes = !hooks; /* looked at when the loop has slept */
}

/* The loop may sleep on for its slack, and need not. */
static void sleep_until(struct model *m, uint64_t fire_ns)
{
    if (m->slack_ns == 0) {
        m->time_ns = fire_ns;
        return;
    }
    m->time_ns = m->clock.time_ns;
    demand(m->time_ns >= fire_ns && m->time_ns <= at_most_max(fire_ns, m->slack_ns), "the slack is not kept");
}

/* If nothing can run, a turn that waits goes on when the earliest timer is due. */
static void wake_up(struct model *m)
{
    struct item *item = earliest(m);
    m->wakes = false;
    bool stops = m->stopped || m->draining || m->stop_turn || !alive(m);
    if (m->waits && !stops && item && item->fire_ns > m->time_ns && !can_run(m) && !channel_ready(m))
        sleep_until(m, item->fire_ns);
    m->now_ns = later(m->now_ns, m->time_ns);
    m->due_next = m->due_count = 0;
    while (m->due_count < m->budget && (item = earliest(m)) && item->fire_ns <= m->now_ns) {
        item->due = true;
        m->due[m->due_count++] = item;
    }
    take_hooks(m, FL_HOOK_AFTER_SLEEP);
    m->phase = PHASE_AFTER_SLEEP;
}

/* A phase takes aside what is there. Of descriptors that is what earlier phases have left ready. */
static void enter(struct model *m, enum phase phase)
{
    m->phase = phase;
    m->phase_order = m->order;
    for (enum kind kind = 0; kind < KINDS; kind++)
        m->left[kind] = m->budget;
    for (unsigned i = 0; i < m->channels && phase == PHASE_DESCRIPTORS; i++) {
        m->channel[i].ready = readiness(&m->channel[i]);
        m->channel[i].found = m->channel[i].added;
    }
}

/* An interval's callback and its microtasks have returned. */
static void arm_anew(struct model *m)
{
    struct item *item = m->running;
    uint64_t read_ns = m->time_ns, next_ns = at_most_max(item->deadline_ns, item->period_ns);
    m->running = NULL;
    if (item->flags & FL_INTERVAL_FROM_CALLBACK)
        next_ns = at_most_max(read_ns, item->period_ns);
    else if (!(item->flags & FL_INTERVAL_CATCH_UP) && next_ns < read_ns)
        next_ns += (read_ns - next_ns + item->period_ns - 1) / item->period_ns * item->period_ns;
    item->deadline_ns = next_ns;
    item->fire_ns = later(with_slack(next_ns, item->slack_ns), m->now_ns);
    item->order = m->order++;
}

static struct item *pop(struct queue *q)
{
    return q->items[q->first++];
}

static struct item *next_due(struct model *m)
{
    while (m->due_next < m->due_count) {
        struct item *item = m->due[m->due_next++];
        if (!item->lives || !item->due)
            continue;
        item->due = false;
        if (item->period_ns > 0)
            m->running = item;
        else
            item->lives = false;
        return item;
    }
    return NULL;
}

/* Only what was there when the phase began. */
static struct item *next_in(struct model *m, enum kind kind)
{
    struct queue *q = &m->queue[kind];
    if (!waiting(q) || q->items[q->first]->order >= m->phase_order || m->left[kind] == 0)
        return NULL;
    m->left[kind]--;
    q->items[q->first]->lives = false;
    return pop(q);
}

static struct item *next_in_phase(struct model *m)
{
    struct item *item = NULL;
    if (m->phase <= PHASE_AFTER_SLEEP)
        item = next_hook(m);
    else if (m->phase == PHASE_TIMERS)
        item = next_due(m);
    else if (m->phase == PHASE_TASKS)
        item = (item = next_in(m, URGENT)) ? item : next_in(m, TASK);
    else if (m->phase == PHASE_IMMEDIATES)
        item = next_in(m, IMMEDIATE);
    else if (m->phase == PHASE_CLOSING)
        item = next_in(m, CLOSING);
    return item;
}

/* The events with which a channel must still be called in this turn, or 0. */
static unsigned outstanding(const struct channel *c)
{
    return c->watched && c->added == c->found ? c->ready & c->events : 0;
}

static bool channels_outstanding(const struct model *m)
{
    for (unsigned i = 0; i < m->channels; i++)
        if (outstanding(&m->channel[i]))
            return true;
    return false;
}

/* What this turn calls next; NULL with *ret_channel if that is any descriptor; NULL without if the turn is over. */
static struct item *next_in_turn(struct model *m, bool *ret_channel)
{
    *ret_channel = false;
    if (m->freed)
        return waiting(&m->queue[CLOSING]) ? pop(&m->queue[CLOSING]) : NULL;
    if (m->wakes)
        wake_up(m);
    if (waiting(&m->queue[MICROTASK]))
        return pop(&m->queue[MICROTASK]);
    m->in_hook = false;
    if (m->running)
        arm_anew(m);
    while (!m->stopped && m->phase != PHASE_NONE) {
        struct item *item = next_in_phase(m);
        *ret_channel = m->phase == PHASE_DESCRIPTORS && channels_outstanding(m);
        if (item || *ret_channel)
            return item;
        if (m->phase == PHASE_BEFORE_SLEEP)
            wake_up(m);
        else
            enter(m, m->phase + 1);
    }
    return NULL;
}

/* The turn is over, or has ended with a stop: whether the loop must turn again before it returns. */
static bool turns_again(struct model *m)
{
    if (m->stopped || m->stop_turn || m->freed || !alive(m))
        return false;
    if (m->run == WAIT)
        return m->may_sleep && progress(m) == m->progress_before_run && !m->draining;
    if (m->run == RUN && m->draining) {
        struct item *next = earliest(m);
        return !m->drain_turn || progress(m) != m->progress_before_turn || can_run(m) ||
               (next && next->fire_ns <= m->now_ns);
    }
    return m->run == RUN;
}

/* The next turn; false if the loop returns. */
static bool next_turn(struct model *m)
{
    bool finished = m->finishing && !m->stopped && !m->freed;
    m->finishing = false;
    if (finished) {
        begin_turn(m, false);
        return true;
    }
    if (!turns_again(m))
        return false;
    m->progress_before_turn = progress(m);
    m->drain_turn = m->draining;
    m->may_sleep = !m->draining;
    begin_turn(m, !m->draining);
    return true;
}

static struct item *expected(struct model *m, bool *ret_channel)
{
    for (int turns = 0; turns < 4 + CHANNELS; turns++) {
        struct item *item = next_in_turn(m, ret_channel);
        if (item || *ret_channel)
            return item;
        if (!next_turn(m))
            return NULL;
    }
    return NULL;
}

/* ---- Operations, done to both. */

static void operate(struct model *m);

/* Every callback ends here: the history goes on inside it. */
static void act(struct model *m)
{
    m->calls++;
    m->by_hooks += m->in_hook;
    if (m->freed)
        return;
    for (unsigned n = exhausted(m) ? 0 : byte(m) % 4; n > 0 && !m->freed; n--)
        operate(m);
    m->time_ns = m->clock.time_ns;
    demand(m->freed || fl_loop_alive(m->loop) == alive(m), "alive() is wrong");
    bool may_wait = m->run == RUN || (m->run == WAIT && m->in_hook);
    bool drains = m->draining && m->time_ns < UINT64_MAX; /* at the end of time, an interval is always due again */
    if (may_wait && !m->freed && !m->stopped && !drains && (exhausted(m) || would_block(m))) {
        fl_loop_stop(m->loop);
        m->stopped = true;
    }
}

static void check_time(const struct model *m)
{
    demand(m->clock.time_ns == m->time_ns, "it is %lu, should be %lu", m->clock.time_ns, m->time_ns);
    demand(m->freed || fl_loop_now_ns(m->loop) == m->now_ns, "the turn's time is wrong");
}

static void called(fl_loop *loop, void *arg)
{
    struct item *item = arg;
    struct model *m = item->model;
    bool channel;
    struct item *right = expected(m, &channel);
    demand(loop == m->loop, "the wrong loop");
    demand(right || channel, "item %u (kind %d) was called, nothing should have been", item->number, item->kind);
    demand(!channel, "item %u (kind %d) was called before all descriptors were", item->number, item->kind);
    demand(right == item, "item %u (kind %d) was called, %u (kind %d) should have been", item->number, item->kind,
           right ? right->number : 0, right ? right->kind : 0);
    check_time(m);
    m->in_hook = m->in_hook || item->kind == HOOK;
    act(m);
}

static void drain_channel(struct channel *c)
{
    uint64_t value;
    if (c->value > 0)
        demand(read(c->fd, &value, sizeof(value)) == sizeof(value), "cannot read an eventfd");
    c->value = 0;
}

static void channel_called(fl_loop *loop, int fd, unsigned events, void *arg)
{
    struct channel *c = arg;
    struct model *m = c->model;
    bool channel;
    struct item *right = expected(m, &channel);
    demand(channel, "descriptor %d was called, item %d should have been", fd, right ? (int)right->number : -1);
    demand(fd == c->fd && events == outstanding(c), "descriptor %d has events %x, should have %x", fd, events,
           outstanding(c));
    check_time(m);
    c->ready = 0;
    act(m);
    if (exhausted(m) && !m->freed && c->watched) { /* or a graceful stop would never end */
        demand(fl_loop_fd_remove(loop, fd) == 0, "cannot remove descriptor %d", fd);
        c->watched = false;
    }
}

static struct item *new_item(struct model *m, enum kind kind)
{
    struct item *item = &m->items[m->count];
    *item = (struct item){.model = m, .kind = kind, .number = m->count, .lives = true, .order = m->order++};
    m->count++;
    return item;
}

static void check_id(const struct model *m, const struct item *made)
{
    demand(made->id > 0 && made->id < 1ull << 53, "the ID %lu is out of range", made->id);
    for (unsigned i = 0; i < m->count; i++)
        demand(&m->items[i] == made || m->items[i].id != made->id, "the ID %lu was used twice", made->id);
}

static void set_timer(struct item *item, uint64_t deadline_ns)
{
    item->deadline_ns = deadline_ns;
    item->fire_ns = with_slack(deadline_ns, item->slack_ns);
    check_id(item->model, item);
}

static void do_timer(struct model *m)
{
    struct item *item = new_item(m, TIMER);
    uint64_t delay_ns = duration(m);
    demand(fl_loop_timer(m->loop, delay_ns, called, item, &item->id) == 0, "cannot make a timer");
    set_timer(item, at_most_max(m->now_ns, delay_ns));
}

static void do_timer_at(struct model *m)
{
    struct item *item = new_item(m, TIMER);
    uint64_t past_ns = byte(m) % 2 ? duration(m) : 0;
    uint64_t deadline_ns = m->now_ns > past_ns ? m->now_ns - past_ns : 0;
    deadline_ns = at_most_max(deadline_ns, duration(m));
    demand(fl_loop_timer_at(m->loop, deadline_ns, called, item, &item->id) == 0, "cannot make a timer");
    set_timer(item, later(deadline_ns, m->now_ns));
}

static void refresh(struct model *m)
{
    fl_loop_update_now(m->loop);
    m->now_ns = later(m->now_ns, m->clock.time_ns);
}

/* Of missed periods one is made up for in each turn: they must not be too many. */
static uint64_t some_period(struct model *m, unsigned flags)
{
    uint64_t period_ns = duration(m);
    if (flags & FL_INTERVAL_CATCH_UP) {
        period_ns |= 1ull << 38;
        refresh(m);
    }
    return period_ns ? period_ns : 7;
}

static void do_interval(struct model *m)
{
    struct item *item = new_item(m, TIMER);
    item->flags = byte(m) % 3;
    item->period_ns = some_period(m, item->flags);
    int r = fl_loop_interval(m->loop, item->period_ns, item->flags, called, item, &item->id);
    demand(r == 0, "cannot make an interval");
    set_timer(item, at_most_max(m->now_ns, item->period_ns));
}

static void do_timer_with(struct model *m)
{
    struct item *item = new_item(m, TIMER);
    uint8_t kind = byte(m);
    if (kind % 2) {
        item->flags = kind / 2 % 3;
        item->period_ns = some_period(m, item->flags);
    }
    item->slack_ns = kind / 8 % 4 ? duration(m) : 0;
    item->unref = kind / 32 % 2;
    fl_loop_timer_options options = {
        .deadline_ns = kind / 64 % 2 ? at_most_max(m->now_ns, duration(m)) : 0,
        .period_ns = item->period_ns,
        .slack_ns = item->slack_ns,
        .flags = item->flags | (item->unref ? FL_TIMER_UNREF : 0),
        .fn = called,
        .arg = item,
    };
    demand(fl_loop_timer_with(m->loop, &options, &item->id) == 0, "cannot make a timer with options");
    set_timer(item, options.deadline_ns ? options.deadline_ns : at_most_max(m->now_ns, item->period_ns));
}

static void do_immediate(struct model *m)
{
    struct item *item = new_item(m, IMMEDIATE);
    struct queue *q = &m->queue[IMMEDIATE];
    q->items[q->end++] = item;
    demand(fl_loop_immediate(m->loop, called, item, &item->id) == 0, "cannot make an immediate");
    check_id(m, item);
}

static void do_hook(struct model *m)
{
    struct item *item = new_item(m, HOOK);
    item->flags = byte(m) % 2 ? FL_HOOK_BEFORE_SLEEP : FL_HOOK_AFTER_SLEEP;
    item->unref = byte(m) % 4 > 0;
    demand(fl_loop_hook(m->loop, item->flags, called, item, &item->id) == 0, "cannot make a hook");
    check_id(m, item);
    if (item->unref)
        demand(fl_loop_unref(m->loop, item->id) == 0, "cannot unreference a hook");
}

static void enqueue(struct model *m, enum kind kind)
{
    struct item *item = new_item(m, kind);
    struct queue *q = &m->queue[kind];
    int r = 0;
    q->items[q->end++] = item;
    if (kind == MICROTASK)
        r = fl_loop_microtask(m->loop, called, item);
    else if (kind == CLOSING)
        r = fl_loop_close_callback(m->loop, called, item);
    else if (byte(m) % 2) {
        item->task = (fl_loop_task){.fn = called, .arg = item, .flags = kind == URGENT ? FL_TASK_URGENT : 0};
        fl_loop_post_task(m->loop, &item->task);
    } else
        r = kind == URGENT ? fl_loop_post_urgent(m->loop, called, item) : fl_loop_post(m->loop, called, item);
    demand(r == 0, "cannot queue kind %d", kind);
}

/* Any item: most of the time a timer or an immediate, dead or alive, and rather a young one. */
static struct item *some_item(struct model *m)
{
    if (m->count == 0)
        return NULL;
    unsigned back = byte(m) % (m->count < 32 ? m->count : 32);
    struct item *item = &m->items[m->count - 1 - back];
    return item->id ? item : NULL;
}

static void remove_from_queue(struct queue *q, const struct item *item)
{
    unsigned kept = q->first;
    for (unsigned i = q->first; i < q->end; i++)
        if (q->items[i] != item)
            q->items[kept++] = q->items[i];
    q->end = kept;
}

static void do_cancel(struct model *m)
{
    struct item *item = some_item(m);
    int r = fl_loop_cancel(m->loop, item ? item->id : byte(m));
    demand(r == (item && item->lives ? 0 : FL_TIMER_NOT_FOUND), "cancelling gave %d", r);
    if (r < 0)
        return;
    item->lives = false;
    if (m->running == item)
        m->running = NULL;
    if (item->kind == IMMEDIATE)
        remove_from_queue(&m->queue[IMMEDIATE], item);
}

static void do_rearm(struct model *m)
{
    struct item *item = some_item(m);
    uint64_t delay_ns = duration(m);
    if (item && item->kind == TIMER && item->flags & FL_INTERVAL_CATCH_UP)
        refresh(m);
    int r = fl_loop_rearm(m->loop, item ? item->id : 0, delay_ns);
    if (item && item->lives && item->kind != TIMER) {
        demand(r == FL_INVALID_ARGUMENT, "rearming an immediate or hook gave %d", r);
        return;
    }
    demand(r == (item && item->lives ? 0 : FL_TIMER_NOT_FOUND), "rearming gave %d", r);
    if (r < 0)
        return;
    if (m->running == item)
        m->running = NULL;
    item->due = false;
    item->order = m->order++;
    set_timer(item, at_most_max(m->now_ns, delay_ns));
}

static void do_ref(struct model *m)
{
    struct item *item = some_item(m);
    bool unref = byte(m) % 2;
    int r = unref ? fl_loop_unref(m->loop, item ? item->id : 0) : fl_loop_ref(m->loop, item ? item->id : 0);
    demand(r == (item && item->lives ? 0 : FL_TIMER_NOT_FOUND), "ref or unref gave %d", r);
    if (r == 0)
        item->unref = unref;
}

/* The period, or what makes an interval of a timer and a timer of an interval. */
static void do_period(struct model *m)
{
    struct item *item = some_item(m);
    fl_timer_id id = item ? item->id : 0;
    uint64_t period_ns, deadline_ns, to_ns = byte(m) % 4 ? duration(m) : 0;
    int expected = !item || !item->lives ? FL_TIMER_NOT_FOUND : item->kind != TIMER ? FL_INVALID_ARGUMENT : 0;
    if (item && item->flags & FL_INTERVAL_CATCH_UP && to_ns > 0)
        to_ns |= 1ull << 38;
    if (item && item == m->running && to_ns == 0)
        to_ns = 7; /* it would end with its callback, and that is not in the model */
    demand(fl_loop_period(m->loop, id, &period_ns) == expected, "reading a period went wrong");
    demand(fl_loop_deadline(m->loop, id, &deadline_ns) == expected, "reading a deadline went wrong");
    demand(fl_loop_set_period(m->loop, id, to_ns) == expected, "setting a period went wrong");
    if (expected < 0)
        return;
    demand(period_ns == item->period_ns, "a period is %lu, should be %lu", period_ns, item->period_ns);
    demand(deadline_ns == item->fire_ns, "a deadline is %lu, should be %lu", deadline_ns, item->fire_ns);
    item->period_ns = to_ns;
}

static void do_hold(struct model *m)
{
    if (byte(m) % 4 == 0) {
        fl_loop_hold(m->loop);
        m->holds++;
    } else if (m->holds > 0) {
        fl_loop_unhold(m->loop);
        m->holds--;
    }
}

/* ---- Descriptors. */

static void watch(struct model *m, struct channel *c, unsigned events)
{
    int r = fl_loop_fd_add(m->loop, c->fd, events, channel_called, c);
    demand(r == (c->watched && c->attached ? FL_EXISTS : 0), "adding a descriptor gave %d", r);
    if (r < 0)
        return;
    c->watched = c->attached = true;
    c->unref = false;
    c->events = events;
    c->added = m->order++;
}

/* Not while descriptors are called, if that would bring an event back that was seen and no longer asked for: whether it
 * still comes depends on whether the kernel's order has passed it by. */
static void change(struct model *m, struct channel *c, unsigned events)
{
    if (m->phase == PHASE_DESCRIPTORS && c->ready & ~c->events & events)
        return;
    int r = fl_loop_fd_modify(m->loop, c->fd, events);
    demand(r == (!c->watched ? FL_NOT_FOUND : c->attached ? 0 : FL_INVALID_ARGUMENT), "modifying gave %d", r);
    if (r == 0)
        c->events = events;
}

static void reference(struct model *m, struct channel *c, bool unref)
{
    int r = unref ? fl_loop_fd_unref(m->loop, c->fd) : fl_loop_fd_ref(m->loop, c->fd);
    demand(r == (c->watched ? 0 : FL_NOT_FOUND), "ref or unref of a descriptor gave %d", r);
    c->unref = unref;
}

static void unwatch(struct model *m, struct channel *c)
{
    int r = fl_loop_fd_remove(m->loop, c->fd);
    demand(r == (c->watched ? 0 : FL_NOT_FOUND), "removing gave %d", r);
    c->watched = false;
}

/* The same number, another file. */
static void reopen(struct channel *c)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    demand(fd >= 0 && dup2(fd, c->fd) == c->fd && close(fd) == 0, "cannot reopen a descriptor");
    c->value = 0;
    c->attached = false;
}

static void do_descriptor(struct model *m)
{
    uint8_t kind = byte(m);
    struct channel *c = &m->channel[kind % m->channels];
    unsigned events = kind / 128 ? FL_READ : FL_READ | FL_WRITE;
    switch (kind / 4 % 8) {
    case 0 ... 1:
        watch(m, c, events);
        break;
    case 2:
        change(m, c, kind / 64 % 2 ? events : 0);
        break;
    case 3:
        unwatch(m, c);
        break;
    case 4:
        reopen(c);
        break;
    case 5:
        drain_channel(c);
        break;
    case 6:
        reference(m, c, kind / 64 % 2);
        break;
    default:
        demand(write(c->fd, &(uint64_t){1}, 8) == 8, "cannot write to an eventfd");
        c->value++;
    }
}

/* ---- Time and running. */

static bool catches_up(const struct item *item)
{
    return item->kind == TIMER && item->lives && item->flags & FL_INTERVAL_CATCH_UP;
}

/* With an interval that catches up, not so far that it takes long, and not so far behind that nobody can say whether
 * its missed periods or other timers come first. */
static uint64_t longest_pause(struct model *m)
{
    const struct item *next = earliest(m);
    bool behind = m->due_next < m->due_count || (next && next->fire_ns <= m->clock.time_ns);
    for (unsigned i = 0; i < m->count; i++)
        if (catches_up(&m->items[i]))
            return behind ? 1 : 1ull << 42;
    return 1ull << 47;
}

static void do_advance(struct model *m)
{
    uint64_t by_ns = duration(m), longest_ns = longest_pause(m);
    if (m->clock.time_ns < 1ull << 53)
        m->clock.time_ns += by_ns < longest_ns ? by_ns : longest_ns;
    if (byte(m) % 4 == 0)
        refresh(m);
}

static void do_stop(struct model *m)
{
    uint8_t kind = byte(m);
    if (kind % 8 == 0 && m->run != NOT) {
        m->freed = true;
        fl_loop_free(m->loop);
    } else if (kind % 2) {
        m->stopped = true;
        fl_loop_stop(m->loop);
    } else if (kind % 4) {
        m->draining = true;
        fl_loop_drain(m->loop);
    } else {
        m->stop_turn = true;
        fl_loop_stop_after_turn(m->loop);
    }
}

/* ---- Walking. */

struct seen {
    struct model *model;
    uint64_t items[KINDS], channels;
    fl_loop_kind last;
};

static bool see(fl_loop *loop, const fl_loop_item *shown, void *arg)
{
    struct seen *seen = arg;
    demand(loop == seen->model->loop && shown->kind >= seen->last, "the walk is out of order");
    seen->last = shown->kind;
    if (shown->kind == FL_LOOP_DESCRIPTOR) {
        const struct channel *c = shown->arg;
        demand(c->watched && shown->fd == c->fd && shown->fd_fn == channel_called && shown->referenced == !c->unref,
               "the walk shows a wrong descriptor");
        seen->channels++;
        return true;
    }
    static const fl_loop_kind kinds[KINDS] = {FL_LOOP_TIMER, FL_LOOP_HOOK,      FL_LOOP_IMMEDIATE,     FL_LOOP_TASK,
                                              FL_LOOP_TASK,  FL_LOOP_MICROTASK, FL_LOOP_CLOSE_CALLBACK};
    const struct item *item = shown->arg;
    demand(item->lives && shown->kind == kinds[item->kind] && shown->id == item->id && shown->fn == called &&
               shown->referenced == !item->unref,
           "the walk shows item %u wrongly", item->number);
    seen->items[item->kind]++;
    return true;
}

static void do_walk(struct model *m)
{
    struct seen seen = {.model = m};
    uint64_t living[KINDS] = {0}, channels = 0;
    fl_loop_walk(m->loop, see, &seen);
    for (unsigned i = 0; i < m->count; i++)
        if (m->items[i].kind <= HOOK)
            living[m->items[i].kind] += m->items[i].lives;
    for (enum kind kind = IMMEDIATE; kind < KINDS; kind++)
        living[kind] = m->queue[kind].end - m->queue[kind].first;
    for (unsigned i = 0; i < m->channels; i++)
        channels += m->channel[i].watched;
    for (enum kind kind = 0; kind < KINDS; kind++)
        demand(seen.items[kind] == living[kind], "the walk shows %lu of %lu items of kind %d", seen.items[kind],
               living[kind], kind);
    demand(seen.channels == channels, "the walk misses descriptors");
}

static void check_stats(const struct model *m)
{
    fl_loop_stats stats;
    uint64_t timers = 0;
    fl_loop_get_stats(m->loop, &stats);
    for (unsigned i = 0; i < m->count; i++)
        timers += m->items[i].kind == TIMER && m->items[i].lives;
    const struct queue *q = m->queue;
    demand(stats.waiting.timers == timers, "%lu timers wait, should be %lu", stats.waiting.timers, timers);
    demand(stats.waiting.immediates == q[IMMEDIATE].end - q[IMMEDIATE].first, "immediates are miscounted");
    demand(stats.waiting.urgent_tasks == q[URGENT].end - q[URGENT].first, "urgent tasks are miscounted");
    demand(stats.waiting.tasks == q[TASK].end - q[TASK].first, "tasks are miscounted");
    demand(stats.waiting.closing == q[CLOSING].end - q[CLOSING].first, "close callbacks are miscounted");
    demand(stats.called.timers + stats.called.immediates + stats.called.urgent_tasks + stats.called.tasks +
                   stats.called.closing + stats.called.microtasks + stats.called.descriptors + stats.called.hooks ==
               m->calls,
           "callbacks are miscounted");
    demand(fl_loop_check(m->loop, stderr) == 0, "the loop is broken");
}

/* A loop that needs a turn says so through its descriptor. */
static void wait_outside(struct model *m)
{
    int fd;
    const struct item *next = earliest(m);
    demand(fl_loop_poll_fd(m->loop, &fd) == 0, "there is no descriptor to poll");
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    bool needed = can_run(m) || channel_ready(m) || (next && next->fire_ns <= m->clock.time_ns) || m->stopped;
    demand(poll(&entry, 1, 0) == 1 || !needed, "the loop does not say that it needs a turn");
}

/* Runs the loop and then asks the model whether it has returned too early. */
static void do_run(struct model *m)
{
    uint8_t kind = byte(m);
    m->run = kind % 3 == 0 ? ONCE : kind % 3 == 1 ? WAIT : RUN;
    bool stop = m->stopped || m->stop_turn, channel = false;
    if (m->run != ONCE && !m->draining && would_block(m))
        m->run = ONCE;
    m->time_ns = m->clock.time_ns;
    m->progress_before_run = m->progress_before_turn = progress(m);
    m->in_hook = false;
    m->drain_turn = m->draining;
    m->may_sleep = m->run != ONCE && !m->draining && alive(m);
    if (kind / 3 % 8 == 0)
        wait_outside(m);
    bool idle = stop || (m->run == RUN && !alive(m));
    m->finishing = !idle && m->phase != PHASE_NONE && m->phase != PHASE_BEFORE_SLEEP;
    if (m->finishing)
        m->now_ns = later(m->now_ns, m->time_ns);
    else if (!idle)
        begin_turn(m, m->may_sleep);
    int r = m->run == RUN ? fl_loop_run(m->loop) : fl_loop_run_once(m->loop, m->run == WAIT);
    demand(r == (m->freed ? FL_LOOP_FREED : 0), "running gave %d", r);
    struct item *left = idle ? NULL : expected(m, &channel);
    demand(!left, "item %u (kind %d) was left out", left ? left->number : 0, left ? left->kind : 0);
    demand(!channel, "a descriptor was left out");
    check_time(m);
    m->run = NOT;
    m->stopped = m->draining = m->stop_turn = false;
    for (unsigned i = 0; i < m->channels; i++)
        m->channel[i].ready = 0; /* what a stop has left is looked at anew */
    if (!m->freed)
        check_stats(m);
}

static void operate(struct model *m)
{
    static void (*const operations[])(struct model *) = {
        do_timer,      do_timer, do_timer_at,  do_interval, do_timer_with, do_cancel, do_rearm,      do_ref,
        do_descriptor, do_hold,  do_immediate, do_advance,  do_stop,       do_run,    do_descriptor, do_cancel};
    uint8_t kind = byte(m);
    if (kind >= 200)
        enqueue(m, TASK + kind % 4);
    else if (kind >= 192)
        kind % 4 == 0 ? do_walk(m) : kind % 4 == 1 ? do_period(m) : do_hook(m);
    else if (operations[kind % 16] != do_run)
        operations[kind % 16](m);
    else if (m->run == NOT)
        do_run(m);
    else
        demand(fl_loop_run(m->loop) == FL_BUSY, "a callback could run its loop");
}

/* ---- A history. */

static void begin(struct model *m)
{
    static const unsigned budgets[] = {1, 2, 3, 4, 5, 16, 0, 0};
    uint8_t kind = byte(m);
    fl_virtual_clock_init(&m->clock, 1 + duration(m) % (1ull << 50));
    m->slack_ns = kind % 8 == 7 ? duration(m) % (1ull << 40) : 0;
    fl_loop_config config = {.clock = &m->clock.clock, .budget = budgets[kind % 8], .slack_ns = m->slack_ns};
    demand(fl_loop_new(&config, &m->loop) == 0, "cannot make a loop");
    m->loop->table.worn_tag = (1 + kind % 3) << TAG_GENERATION_SHIFT; /* so that slots wear out */
    m->now_ns = m->clock.time_ns;
    m->budget = config.budget ? config.budget : 1024;
    m->channels = m->budget < CHANNELS ? m->budget : CHANNELS;
    for (unsigned i = 0; i < m->channels; i++)
        m->channel[i] = (struct channel){.model = m, .fd = eventfd(0, EFD_CLOEXEC)};
}

int loop_history(const uint8_t *bytes, size_t size)
{
    static struct model model;
    struct model *m = &model;
    memset(m, 0, offsetof(struct model, items));
    m->count = m->due_next = m->due_count = m->hook_next = m->hook_count = 0;
    m->calls = m->by_hooks = 0;
    m->phase = PHASE_NONE;
    m->running = NULL;
    m->stopped = m->draining = m->stop_turn = m->freed = m->in_hook = m->wakes = false;
    m->run = NOT;
    for (enum kind kind = 0; kind < KINDS; kind++)
        m->queue[kind].first = m->queue[kind].end = 0;
    m->bytes = bytes;
    m->end = bytes + size;
    begin(m);
    while (!exhausted(m) && !m->freed)
        operate(m);
    for (unsigned i = 0; i < m->channels; i++)
        close(m->channel[i].fd);
    if (!m->freed) {
        m->freed = true;
        m->time_ns = m->clock.time_ns;
        fl_loop_free(m->loop);
    }
    demand(!waiting(&m->queue[CLOSING]), "close callbacks were left out");
    return 0;
}
