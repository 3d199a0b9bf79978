/* SPDX-License-Identifier: MIT */
/* The browser's timers on the loop's: the "timer initialization steps" of the HTML standard.
 *
 * A timer is a record in a table (table.h), which finds it by its ID, and a timer of the loop, whose argument it is. What
 * the standard asks of the order the loop gives by itself: it calls timers by (deadline, creation), and a deadline is the
 * moment of the call plus the delay. So of two timers, the first of which was set earlier and with no longer delay, the
 * first has no later deadline, and is called first.
 *
 * A timeout is a one-shot of the loop. An interval is one of the loop's intervals, counted from its callback, because
 * that one cannot be lost when memory runs out; after each call it is armed anew for its own delay, which the nesting
 * level may have changed and which may be 0. Only if that fails is the loop's own period used.
 *
 * A timeout leaves the table before its handler is called, an interval stays: so a handler that clears its own interval
 * finds it, and whether that has happened is seen by looking the ID up again. `level` is that of the task that runs; it
 * is 0 before microtasks run and when the call is over.
 */

#include <assert.h>
#include <string.h>

#include <foliot/webtimers.h>

#include "base/alloc.h"
#include "base/moment.h"
#include "webtimers/webtimers.h"

enum {
    LEVEL_FREE = 5, /* the highest nesting level whose timers are not clamped */
    CLAMP_MS = 4,
};
#define NS_PER_MS UINT64_C(1000000)

/* A handler with extra arguments. */
struct packet {
    void *handler;
    size_t count;
    void *arguments[];
};

struct fl_webtimers {
    fl_loop *loop;
    fl_webtimers_host host;
    uint8_t level;
    bool calling; /* inside of fire() */
    bool freed;
    uint32_t reserved; /* IDs whose timers are not started */
    struct timer_table table;
};

/* --- Numbers */

/* Of mantissa * 2^exponent only the 32 lowest bits before the point matter. Infinities and NaN have a great exponent. */
int32_t fl_webtimers_long(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof(bits));
    int exponent = (int)(bits >> 52 & 0x7ff) - 1075;
    uint64_t mantissa = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    if (exponent >= 32 || exponent <= -53)
        return 0;
    uint64_t whole = exponent < 0 ? mantissa >> -exponent : mantissa << exponent;
    return (int32_t)(uint32_t)(bits >> 63 ? -whole : whole);
}

uint32_t fl_webtimers_delay_ms(double delay)
{
    int32_t ms = fl_webtimers_long(delay);
    return ms < 0 ? 0 : (uint32_t)ms;
}

/* --- Handlers */

/* The host is a copy: its release() may free the set. */
static void release_values(fl_webtimers_host host, void *handler, unsigned flags)
{
    if (!host.release)
        return;
    if (!(flags & TIMER_ARGUMENTS)) {
        host.release(host.host, handler);
        return;
    }
    struct packet *packet = handler;
    host.release(host.host, packet->handler);
    for (size_t i = 0; i < packet->count; i++)
        host.release(host.host, packet->arguments[i]);
}

static void release_packet(void *handler, unsigned flags)
{
    if (flags & TIMER_ARGUMENTS)
        fl__release(handler);
}

static int pack(const fl_webtimers_options *options, struct timer *timer)
{
    size_t count = options->argument_count, size = count * sizeof(*options->arguments);
    struct packet *packet;
    if (count > (SIZE_MAX - sizeof(*packet)) / sizeof(*options->arguments))
        return FL_NO_MEMORY;
    packet = fl__alloc(sizeof(*packet) + size);
    if (!packet)
        return FL_NO_MEMORY;
    packet->handler = options->handler;
    packet->count = count;
    memcpy(packet->arguments, options->arguments, size);
    timer->handler = packet;
    timer->flags |= TIMER_ARGUMENTS;
    return 0;
}

/* A task: the handler, the microtasks, and what it has thrown. */
static void run_task(fl_webtimers *timers, const struct timer *timer)
{
    const fl_webtimers_host *host = &timers->host;
    fl_webtimers_call call = {.id = timer->id, .handler = timer->handler};
    if (timer->flags & TIMER_ARGUMENTS) {
        const struct packet *packet = timer->handler;
        call.handler = packet->handler;
        call.arguments = packet->arguments;
        call.argument_count = packet->count;
    }
    timers->level = timer->level;
    int thrown = host->invoke(host->host, &call);
    timers->level = 0;
    if (host->checkpoint)
        host->checkpoint(host->host);
    if (thrown != 0 && host->report)
        host->report(host->host, thrown);
}

/* --- Arming and firing */

/* A delay as it is in a task of a nesting level. */
static uint64_t clamped_ns(uint32_t delay_ms, uint8_t level)
{
    return (level > LEVEL_FREE && delay_ms < CLAMP_MS ? CLAMP_MS : delay_ms) * NS_PER_MS;
}

/* More than needed to be clamped is not counted. */
static uint8_t next_level(uint8_t level)
{
    return level > LEVEL_FREE ? level : level + 1;
}

static void destroy(fl_webtimers *timers)
{
    fl__timer_table_destroy(&timers->table);
    fl__release(timers);
}

/* The call of an interval is over, and the script has not cleared it. If there is no memory, the loop arms it. */
static void arm_anew(fl_webtimers *timers, struct timer *timer)
{
    uint64_t delay_ns = clamped_ns(timer->delay_ms, timer->level);
    timer->flags &= (uint8_t)~TIMER_RUNS;
    timer->level = next_level(timer->level);
    fl_loop_update_now(timers->loop);
    fl_loop_rearm(timers->loop, timer->loop_id, delay_ns);
}

static void fire_interval(fl_webtimers *timers, struct timer *timer)
{
    struct timer called = *timer;
    timer->flags |= TIMER_RUNS;
    run_task(timers, &called);
    timer = timer_table_find(&timers->table, called.id);
    if (timer)
        arm_anew(timers, timer);
    else
        release_packet(called.handler, called.flags);
}

static void fire_timeout(fl_webtimers *timers, struct timer *timer)
{
    struct timer called = *timer;
    fl__timer_table_put(&timers->table, timer);
    run_task(timers, &called);
    release_values(timers->host, called.handler, called.flags);
    release_packet(called.handler, called.flags);
}

static void fire(fl_loop *loop, void *arg)
{
    struct timer *timer = arg;
    fl_webtimers *timers = timer_chunk_of(timer)->owner;
    assert(loop == timers->loop && !timers->calling);
    (void)loop;
    timers->calling = true;
    if (timer->flags & TIMER_REPEATS)
        fire_interval(timers, timer);
    else
        fire_timeout(timers, timer);
    timers->calling = false;
    if (timers->freed)
        destroy(timers);
    else
        fl__timer_table_trim(&timers->table);
}

/* Arms a timer that was set at `called_ns`. The loop's time is not after that, unless it was updated in the meantime;
 * then it is the earliest that the loop can do. The period is for arm_anew() to fall back to. */
static int arm(fl_webtimers *timers, struct timer *timer, uint64_t called_ns, uint8_t level)
{
    uint64_t now_ns = fl_loop_now_ns(timers->loop);
    uint64_t deadline_ns = add_time(called_ns, clamped_ns(timer->delay_ms, level));
    if (!(timer->flags & TIMER_REPEATS))
        return fl_loop_timer(timers->loop, deadline_ns > now_ns ? deadline_ns - now_ns : 0, fire, timer,
                             &timer->loop_id);
    fl_loop_timer_options options = {
        .deadline_ns = deadline_ns,
        .period_ns = clamped_ns(timer->delay_ms, UINT8_MAX),
        .flags = FL_INTERVAL_FROM_CALLBACK,
        .fn = fire,
        .arg = timer,
    };
    return fl_loop_timer_with(timers->loop, &options, &timer->loop_id);
}

/* --- The functions */

int fl_webtimers_new(fl_loop *loop, const fl_webtimers_host *host, fl_webtimers **ret)
{
    if (!host->invoke)
        return FL_INVALID_ARGUMENT;
    fl_webtimers *timers = fl__alloc_zeroed(sizeof(*timers));
    if (!timers)
        return FL_NO_MEMORY;
    timers->loop = loop;
    timers->host = *host;
    fl__timer_table_init(&timers->table, timers);
    *ret = timers;
    return 0;
}

/* Clearing calls the host, which may clear others: the index is looked at afresh each time. */
void fl_webtimers_free(fl_webtimers *timers)
{
    if (!timers || timers->freed)
        return;
    timers->freed = true;
    struct timer_table *table = &timers->table;
    for (uint32_t i = 0; table->count > 0; i++) {
        const struct timer *timer = table->index[i & table->mask];
        if (timer)
            fl_webtimers_clear(timers, timer->id);
    }
    if (!timers->calling)
        destroy(timers);
}

int fl_webtimers_reserve(fl_webtimers *timers, int32_t *ret_id)
{
    if (timers->freed)
        return FL_BUSY;
    struct timer *timer = fl__timer_table_take(&timers->table);
    if (!timer)
        return FL_NO_MEMORY;
    timer->flags = TIMER_RESERVED;
    timers->reserved++;
    *ret_id = timer->id;
    return 0;
}

/* A reserved timer that is given up. */
static void give_back(fl_webtimers *timers, struct timer *timer)
{
    assert(timer->flags == TIMER_RESERVED && timers->reserved > 0);
    fl__timer_table_put(&timers->table, timer);
    timers->reserved--;
}

int fl_webtimers_start(fl_webtimers *timers, int32_t id, const fl_webtimers_options *options)
{
    struct timer *timer = timer_table_find(&timers->table, id);
    if (!timer || timer->flags != TIMER_RESERVED)
        return FL_TIMER_NOT_FOUND;
    uint8_t level = options->microtask ? 0 : timers->level;
    struct timer started = {
        .id = id,
        .delay_ms = fl_webtimers_delay_ms(options->delay),
        .handler = options->handler,
        .level = next_level(level),
        .flags = options->repeat ? TIMER_REPEATS : 0,
    };
    int r = options->argument_count > 0 ? pack(options, &started) : 0;
    if (r < 0)
        return r;
    *timer = started;
    r = arm(timers, timer, options->called_ns ? options->called_ns : fl_loop_update_now(timers->loop), level);
    if (r < 0) {
        release_packet(started.handler, started.flags);
        *timer = (struct timer){.id = id, .flags = TIMER_RESERVED};
        return r;
    }
    timers->reserved--;
    return 0;
}

static int set(fl_webtimers *timers, const fl_webtimers_options *options, int32_t *ret_id)
{
    int32_t id;
    int r = fl_webtimers_reserve(timers, &id);
    if (r < 0)
        return r;
    r = fl_webtimers_start(timers, id, options);
    if (r < 0)
        give_back(timers, timer_table_find(&timers->table, id));
    else if (ret_id)
        *ret_id = id;
    return r;
}

int fl_webtimers_set_timeout(fl_webtimers *timers, double delay, void *handler, void *const *arguments,
                             size_t argument_count, int32_t *ret_id)
{
    fl_webtimers_options options = {
        .delay = delay, .handler = handler, .arguments = arguments, .argument_count = argument_count};
    return set(timers, &options, ret_id);
}

int fl_webtimers_set_interval(fl_webtimers *timers, double delay, void *handler, void *const *arguments,
                              size_t argument_count, int32_t *ret_id)
{
    fl_webtimers_options options = {
        .delay = delay, .repeat = true, .handler = handler, .arguments = arguments, .argument_count = argument_count};
    return set(timers, &options, ret_id);
}

/* The arguments of an interval that is being called are still in use: fire_interval() frees their packet. */
bool fl_webtimers_clear(fl_webtimers *timers, int32_t id)
{
    struct timer *timer = timer_table_find(&timers->table, id);
    if (!timer)
        return false;
    if (timer->flags & TIMER_RESERVED) {
        give_back(timers, timer);
        return true;
    }
    fl_webtimers_host host = timers->host;
    struct timer cleared = *timer;
    int r = fl_loop_cancel(timers->loop, timer->loop_id);
    assert(r == 0);
    (void)r;
    fl__timer_table_put(&timers->table, timer);
    release_values(host, cleared.handler, cleared.flags);
    if (!(cleared.flags & TIMER_RUNS))
        release_packet(cleared.handler, cleared.flags);
    return true;
}

uint64_t fl_webtimers_count(const fl_webtimers *timers)
{
    return timers->table.count - timers->reserved;
}

uint32_t fl_webtimers_places(const fl_webtimers *timers)
{
    return timers->table.mask + 1;
}

/* --- What is legal */

static const char *fault_in_timer(const fl_webtimers *timers, uint32_t place, const struct timer *timer)
{
    if (timer->id <= 0)
        return "a timer in the index has no ID";
    if (((uint32_t)timer->id & timers->table.mask) != place)
        return "a timer is not at the place of its ID";
    if (timer_chunk_of(timer)->owner != timers)
        return "a timer belongs to another set";
    if (timer->flags & TIMER_RESERVED)
        return timer->flags == TIMER_RESERVED && timer->level == 0 ? NULL : "a reserved timer is more than that";
    if (timer->level == 0 || timer->level > LEVEL_FREE + 1)
        return "a nesting level is impossible";
    if (timer->flags & TIMER_RUNS && !(timers->calling && timer->flags & TIMER_REPEATS))
        return "a timer is being called that cannot be";
    return NULL;
}

int fl_webtimers_check(const fl_webtimers *timers, FILE *explain)
{
    const struct timer_table *table = &timers->table;
    const char *fault = NULL;
    uint64_t found = 0, reserved = 0;
    for (uint64_t i = 0; i <= table->mask && !fault; i++) {
        const struct timer *timer = table->index[i];
        found += timer != NULL;
        reserved += timer && timer->flags & TIMER_RESERVED;
        if (timer)
            fault = fault_in_timer(timers, (uint32_t)i, timer);
    }
    if (!fault && (found != table->count || reserved != timers->reserved))
        fault = "the timers are miscounted";
    if (!fault && found > (table->mask + UINT64_C(1)) / 4 * 3)
        fault = "the index is too full";
    if (!fault)
        return 0;
    if (explain)
        fprintf(explain, "webtimers: %s\n", fault);
    return FL_INVALID_ARGUMENT;
}
