/* SPDX-License-Identifier: MIT */
/* Reads bytes as the history of a set of timers and lives it through beside the model: see model.h.
 *
 * Each byte is an operation, followed by what it needs. The same operations are done outside, in handlers and in
 * microtasks. The model is the standard's text: a list of timers with the moment at which each may run, the order in which
 * the steps were begun, and the nesting level of the task it will be. What is called must be the first by (moment,
 * order), at its moment or as soon after as the clock allows. Where the bytes end, intervals are cleared and the rest
 * runs out.
 *
 * Handlers are items of the model, arguments numbers: what the host is given back must be what it has given, and every
 * value is released exactly once.
 */

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <foliot/webtimers.h>

#include "webtimers/model.h"

enum {
    MAX_ITEMS = 2000,
    MAX_MICROTASKS = 64,
    MAX_ARGUMENTS = 3,
};

#define MS UINT64_C(1000000)

/* A timer, with all that the standard says about it. */
struct item {
    unsigned number;
    bool lives, repeats;
    int32_t id;
    uint64_t moment_ns, order;
    uint32_t delay_ms;
    unsigned level; /* of its task */
    unsigned argument_count;
    unsigned released; /* values */
    bool reserved;     /* has an ID, and is to be started */
};

struct model {
    const uint8_t *bytes, *end;
    fl_loop *loop;
    fl_webtimers *timers;
    fl_virtual_clock clock;
    uint64_t time_ns; /* when the last call ended */
    uint64_t order;
    unsigned level; /* of the running task; 0: none, or a microtask */
    struct item items[MAX_ITEMS];
    unsigned count;
    struct item *running;
    unsigned microtasks;
    int thrown;
    bool freed;
};

__attribute__((format(printf, 1, 2))) _Noreturn static void differ(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

#define demand(condition, ...)   \
    do {                         \
        if (!(condition))        \
            differ(__VA_ARGS__); \
    } while (0)

static uint8_t byte(struct model *m)
{
    return m->bytes < m->end ? *m->bytes++ : 0;
}

static bool exhausted(const struct model *m)
{
    return m->bytes >= m->end || m->count >= MAX_ITEMS - 8;
}

/* ---- What the standard says. */

/* Small delays that meet and are clamped, and the edges of Web IDL's conversion with what must come out. */
static double some_delay(struct model *m, uint32_t *ret_ms)
{
    static const struct {
        double delay;
        uint32_t ms;
    } edges[] = {
        {NAN, 0},
        {INFINITY, 0},
        {-INFINITY, 0},
        {-1, 0},
        {-0.5, 0},
        {0.999, 0},
        {1.999, 1},
        {4294967296, 0},
        {4294967301.5, 5},
        {-4294967290, 6},
        {2147483647, 2147483647},
        {2147483648, 0},
        {-2147483649, 2147483647},
        {9007199254740992, 0},
        {0x1p83, 0},
        {0x1p84, 0},
        {1e300, 0},
        {5e-324, 0},
        {86400000, 86400000},
    };
    uint8_t kind = byte(m);
    if (kind >= 224) {
        unsigned edge = kind % (sizeof(edges) / sizeof(edges[0]));
        *ret_ms = edges[edge].ms;
        return edges[edge].delay;
    }
    *ret_ms = kind < 128 ? kind % 8 : (kind - 128u) * 5;
    return *ret_ms;
}

static uint64_t clamped_ns(uint32_t delay_ms, unsigned level)
{
    if (level > 5 && delay_ms < 4)
        delay_ms = 4;
    return delay_ms * MS;
}

static struct item *first(struct model *m)
{
    struct item *found = NULL;
    for (unsigned i = 0; i < m->count; i++) {
        struct item *item = &m->items[i];
        if (!item->lives || item == m->running)
            continue;
        if (!found || item->moment_ns < found->moment_ns ||
            (item->moment_ns == found->moment_ns && item->order < found->order))
            found = item;
    }
    return found;
}

static unsigned living(const struct model *m)
{
    unsigned count = 0;
    for (unsigned i = 0; i < m->count; i++)
        count += m->items[i].lives;
    return count;
}

static void arm(struct model *m, struct item *item, unsigned level)
{
    item->moment_ns = m->clock.time_ns + clamped_ns(item->delay_ms, level);
    item->order = m->order++;
    item->level = level + 1;
}

/* ---- Operations, done to both. */

/* Arguments are numbers: 1000 * (number of the item + 1) + place. */
static void *argument(const struct item *item, unsigned place)
{
    return (void *)(uintptr_t)(1000ul * (item->number + 1) + place);
}

static void check_id(const struct model *m, const struct item *item)
{
    demand(item->id > 0, "the ID %d is out of range", (int)item->id);
    for (const struct item *other = m->items; other < item; other++)
        demand(other->id != item->id, "the ID %d was given twice", (int)item->id);
}

static void do_reserve(struct model *m)
{
    struct item *item = &m->items[m->count];
    *item = (struct item){.number = m->count, .reserved = true};
    int r = fl_webtimers_reserve(m->timers, &item->id);
    demand(r == (m->freed ? FL_BUSY : 0), "reserving gave %d", r);
    if (r < 0)
        return;
    m->count++;
    check_id(m, item);
}

/* A new item, or one that has an ID already; that one may say when it was set, and that it was in a microtask. */
static void do_set(struct model *m, struct item *item, bool repeats)
{
    bool reserved = item->reserved;
    fl_webtimers_options options = {.handler = item, .repeat = item->repeats = repeats};
    options.delay = some_delay(m, &item->delay_ms);
    item->argument_count = options.argument_count = byte(m) % 8 == 0 ? byte(m) % (MAX_ARGUMENTS + 1) : 0;
    void *arguments[MAX_ARGUMENTS];
    for (unsigned i = 0; i < item->argument_count; i++)
        arguments[i] = argument(item, i);
    options.arguments = arguments;
    int r;
    if (reserved) {
        options.microtask = byte(m) % 2;
        options.called_ns = byte(m) % 2 ? m->clock.time_ns : 0;
        r = fl_webtimers_start(m->timers, item->id, &options);
    } else {
        r = (repeats ? fl_webtimers_set_interval : fl_webtimers_set_timeout)(m->timers, options.delay, item, arguments,
                                                                             item->argument_count, &item->id);
    }
    demand(r == 0, "setting gave %d", r);
    item->lives = true;
    item->reserved = false;
    arm(m, item, options.microtask ? 0 : m->level);
}

static void do_set_new(struct model *m, bool repeats)
{
    struct item *item = &m->items[m->count];
    *item = (struct item){.number = m->count++};
    do_set(m, item, repeats);
    check_id(m, item);
}

static void do_start(struct model *m)
{
    unsigned back = byte(m) % 16;
    struct item *item = m->count > back ? &m->items[m->count - 1 - back] : NULL;
    if (item && item->reserved)
        do_set(m, item, byte(m) % 2);
    else if (item)
        demand(fl_webtimers_start(m->timers, item->id, &(fl_webtimers_options){0}) == FL_TIMER_NOT_FOUND,
               "a timer was started twice");
}

/* Any item, dead or alive, rather a young one; or a number that never was an ID. */
static void do_clear(struct model *m)
{
    static const int32_t never[] = {0, -1, INT32_MIN, INT32_MAX, 1 << 20};
    uint8_t kind = byte(m);
    struct item *item = NULL;
    if (m->count > 0 && kind % 16)
        item = &m->items[m->count - 1 - kind % (m->count < 32 ? m->count : 32)];
    bool lived = item && (item->lives || item->reserved), reserved = item && item->reserved;
    unsigned released = item ? item->released : 0;
    bool r = fl_webtimers_clear(m->timers, item ? item->id : never[kind / 16 % 5]);
    demand(r == lived, "clearing gave %d", r);
    if (!lived)
        return;
    demand(item->released == released + (reserved ? 0 : 1 + item->argument_count), "clearing does not release");
    item->lives = item->reserved = false;
}

static void do_free(struct model *m)
{
    fl_webtimers_free(m->timers);
    m->freed = true;
    for (unsigned i = 0; i < m->count; i++)
        m->items[i].lives = m->items[i].reserved = false;
    demand(fl_webtimers_set_timeout(m->timers, 0, NULL, NULL, 0, NULL) == FL_BUSY, "a freed set takes timers");
}

static void operate(struct model *m)
{
    uint8_t kind = byte(m);
    if (kind < 80)
        do_set_new(m, false);
    else if (kind < 110)
        do_set_new(m, true);
    else if (kind < 130)
        do_reserve(m);
    else if (kind < 150)
        do_start(m);
    else if (kind < 210)
        do_clear(m);
    else if (kind < 230)
        m->clock.time_ns += byte(m) % 16 * (MS / 2);
    else if (kind < 245)
        m->microtasks += m->running && m->microtasks < MAX_MICROTASKS ? 1 : 0;
    else if (kind < 254)
        m->thrown = m->level > 0 ? kind : m->thrown;
    else if (m->running && byte(m) % 16 == 0)
        do_free(m);
}

static void operate_some(struct model *m)
{
    for (unsigned n = exhausted(m) ? 0 : byte(m) % 5; n > 0 && !m->freed; n--)
        operate(m);
    if (!m->freed)
        demand(fl_webtimers_check(m->timers, stderr) == 0, "it is broken");
    if (!m->freed)
        demand(fl_webtimers_count(m->timers) == living(m), "it counts %lu, there are %u",
               (unsigned long)fl_webtimers_count(m->timers), living(m));
}

/* ---- The host. */

/* At the end nothing repeats any more, else the history would not end. */
static void end_intervals(struct model *m)
{
    for (unsigned i = 0; i < m->count && !m->freed; i++)
        if (m->items[i].lives && m->items[i].repeats) {
            demand(fl_webtimers_clear(m->timers, m->items[i].id), "a living interval cannot be cleared");
            m->items[i].lives = false;
        }
}

static int invoke(void *host, const fl_webtimers_call *call)
{
    struct model *m = host;
    struct item *item = call->handler, *right = first(m);
    demand(right == item, "item %u was called, %d should have been", item->number, right ? (int)right->number : -1);
    demand(call->id == item->id, "it was called with the ID %d", (int)call->id);
    demand(call->argument_count == item->argument_count, "it has lost its arguments");
    uint64_t moment_ns = item->moment_ns > m->time_ns ? item->moment_ns : m->time_ns;
    demand(m->clock.time_ns == moment_ns, "it was called at %lu, not at %lu", m->clock.time_ns, moment_ns);
    m->running = item;
    m->level = item->level;
    m->thrown = 0;
    item->lives = item->repeats;
    operate_some(m);
    for (unsigned i = 0; i < item->argument_count; i++)
        demand(call->arguments[i] == argument(item, i), "argument %u is another", i);
    if (exhausted(m))
        end_intervals(m);
    return m->thrown;
}

static void call_is_over(struct model *m)
{
    struct item *item = m->running;
    m->time_ns = m->clock.time_ns;
    m->running = NULL;
    if (item->lives && !m->freed)
        arm(m, item, item->level);
}

static void checkpoint(void *host)
{
    struct model *m = host;
    m->level = 0;
    for (; m->microtasks > 0; m->microtasks--)
        operate_some(m);
    if (m->thrown == 0)
        call_is_over(m);
}

static void report(void *host, int thrown)
{
    struct model *m = host;
    demand(thrown != 0 && thrown == m->thrown, "%d was reported, %d thrown", thrown, m->thrown);
    call_is_over(m);
}

static void release(void *host, void *value)
{
    struct model *m = host;
    uintptr_t number = (uintptr_t)value;
    struct item *item = number < 1000ul * (MAX_ITEMS + 1) ? &m->items[number / 1000 - 1] : value;
    item->released++;
}

static void check_end(struct model *m)
{
    for (unsigned i = 0; i < m->count; i++) /* an ID that was never started has no order */
        demand(m->items[i].order == 0 || m->items[i].released == 1 + m->items[i].argument_count,
               "of item %u, %u values were released", i, m->items[i].released);
}

/* What is far away is not waited for: freeing ends it too. */
int webtimers_history(const uint8_t *bytes, size_t size)
{
    struct model *m = calloc(1, sizeof(*m));
    demand(m != NULL, "no memory for the model");
    m->bytes = bytes;
    m->end = bytes + size;
    m->order = 1;
    fl_virtual_clock_init(&m->clock, 1 + byte(m) * MS);
    m->time_ns = m->clock.time_ns;
    fl_loop_config config = {.clock = &m->clock.clock, .budget = byte(m) % 8};
    fl_webtimers_host host = {invoke, report, checkpoint, release, m};
    demand(fl_loop_new(&config, &m->loop) == 0, "cannot make a loop");
    demand(fl_webtimers_new(m->loop, &host, &m->timers) == 0, "cannot make the timers");
    do {
        operate_some(m);
        m->time_ns = m->clock.time_ns;
        if (exhausted(m))
            end_intervals(m);
        demand(fl_loop_run(m->loop) == 0, "the loop cannot run");
        demand(!first(m), "timers were not called");
    } while (!exhausted(m) && !m->freed);
    if (!m->freed)
        fl_webtimers_free(m->timers);
    check_end(m);
    fl_loop_free(m->loop);
    free(m);
    return 0;
}
