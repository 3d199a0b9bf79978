/* SPDX-License-Identifier: MIT */
/* Making and changing timers, intervals, immediates and hooks.
 *
 * Each of them is a record in the table (table.h), which also has the table of its states. The record of a timer contains
 * the wheel's node (foliot/nodes.h), so the deadline is there and nowhere else, and only making a timer can fail for lack
 * of memory.
 *
 * The slack of a timer moves its deadline; what was asked for is kept in a struct loop_extra, for the grid of an interval. */

#include <assert.h>

#include "base/alloc.h"
#include "base/moment.h"
#include "loop/internal.h"

enum {
    INTERVAL_FLAGS = FL_INTERVAL_CATCH_UP | FL_INTERVAL_FROM_CALLBACK,
};

static uint64_t not_before_now(const fl_loop *loop, uint64_t deadline_ns)
{
    return deadline_ns > loop->now_ns ? deadline_ns : loop->now_ns;
}

uint64_t fl__loop_timers_round(uint64_t deadline_ns, uint64_t slack_ns)
{
    uint64_t latest = add_time(deadline_ns, slack_ns);
    if (latest <= deadline_ns)
        return deadline_ns;
    unsigned highest = 63 - __builtin_clzll((deadline_ns - 1) ^ latest); /* the first bit in which the ends differ */
    return latest >> highest << highest;
}

int fl__loop_timers_init(fl_loop *loop, bool huge_pages)
{
    fl_wheel_config config = {.start_ns = loop->now_ns};
    int r = fl__loop_table_init(&loop->table, huge_pages);
    if (r == 0)
        r = fl_nodes_new(&config, &loop->wheel);
    if (r < 0)
        return r;
    loop->polled = fl__alloc(loop->budget * sizeof(fl_node *));
    loop->due = fl__alloc(loop->budget * sizeof(*loop->due));
    return loop->due && loop->polled ? 0 : FL_NO_MEMORY;
}

void fl__loop_timers_destroy(fl_loop *loop)
{
    fl_nodes_free(loop->wheel);
    fl__loop_table_destroy(&loop->table);
    fl__release(loop->due);
    fl__release(loop->polled);
}

/* --- Making */

/* Fills a record that was just taken. It keeps the loop alive. */
static inline void fill(fl_loop *loop, struct loop_entry e, fl_loop_fn fn, void *arg)
{
    e.record->fn = fn;
    e.record->arg = arg;
    loop->keep_alive++;
}

/* Makes a record that is not yet where its state says. */
static int make_record(fl_loop *loop, enum loop_record_state state, fl_loop_fn fn, void *arg, struct loop_entry *ret)
{
    int r = fn ? fl__loop_table_take(&loop->table, state, ret) : FL_INVALID_ARGUMENT;
    if (r == 0)
        fill(loop, *ret, fn, arg);
    return r;
}

void fl__loop_timers_start(fl_loop *loop, struct loop_entry e, uint64_t deadline_ns)
{
    entry_set_state(e, STATE_WAITING);
    fl_nodes_start(loop->wheel, &e.record->node, deadline_ns);
}

static __attribute__((noinline)) int make_timer(fl_loop *loop, uint64_t deadline_ns, fl_loop_fn fn, void *arg,
                                                fl_timer_id *ret_id)
{
    struct loop_entry e;
    int r = make_record(loop, STATE_WAITING, fn, arg, &e);
    if (r < 0)
        return r;
    fl__loop_timers_start(loop, e, deadline_ns);
    if (ret_id)
        *ret_id = entry_id(e);
    return 0;
}

/* What make_timer() does where the table has a record at hand: nearly always, and without a call but that of the wheel. */
static inline int make_timer_quickly(fl_loop *loop, uint64_t deadline_ns, fl_loop_fn fn, void *arg, fl_timer_id *ret_id)
{
    struct loop_entry e;
    if (__builtin_expect(!fn || !table_try_take(&loop->table, STATE_WAITING, &e), 0))
        return make_timer(loop, deadline_ns, fn, arg, ret_id);
    fill(loop, e, fn, arg);
    if (ret_id)
        *ret_id = entry_id(e);
    fl_nodes_start(loop->wheel, &e.record->node, deadline_ns);
    return 0;
}

int fl_loop_timer(fl_loop *loop, uint64_t delay_ns, fl_loop_fn fn, void *arg, fl_timer_id *ret_id)
{
    return make_timer_quickly(loop, add_time(loop->now_ns, delay_ns), fn, arg, ret_id);
}

int fl_loop_timer_at(fl_loop *loop, uint64_t deadline_ns, fl_loop_fn fn, void *arg, fl_timer_id *ret_id)
{
    return make_timer_quickly(loop, not_before_now(loop, deadline_ns), fn, arg, ret_id);
}

int fl_loop_interval(fl_loop *loop, uint64_t period_ns, unsigned flags, fl_loop_fn fn, void *arg, fl_timer_id *ret_id)
{
    if (period_ns == 0)
        return FL_INVALID_ARGUMENT;
    fl_loop_timer_options options = {.period_ns = period_ns, .flags = flags, .fn = fn, .arg = arg};
    return fl_loop_timer_with(loop, &options, ret_id);
}

int fl_loop_timer_with(fl_loop *loop, const fl_loop_timer_options *options, fl_timer_id *ret_id)
{
    unsigned flags = options->flags;
    if (flags & ~(unsigned)(INTERVAL_FLAGS | FL_TIMER_UNREF) || (flags & INTERVAL_FLAGS) == INTERVAL_FLAGS ||
        (flags & INTERVAL_FLAGS && options->period_ns == 0))
        return FL_INVALID_ARGUMENT;
    struct loop_entry e;
    struct loop_extra extra = {
        .deadline_ns = options->deadline_ns ? not_before_now(loop, options->deadline_ns)
                                            : add_time(loop->now_ns, options->period_ns),
        .period_ns = options->period_ns,
        .slack_ns = options->slack_ns,
        .flags = flags & INTERVAL_FLAGS,
    };
    int r = make_record(loop, STATE_WAITING, options->fn, options->arg, &e);
    if (r < 0)
        return r;
    if (options->period_ns > 0 || options->slack_ns > 0)
        r = fl__loop_table_extend(&loop->table, e, &extra);
    if (r < 0) {
        fl__loop_timers_forget(loop, e);
        return r;
    }
    fl__loop_timers_start(loop, e, fl__loop_timers_round(extra.deadline_ns, extra.slack_ns));
    if (flags & FL_TIMER_UNREF)
        fl_loop_unref(loop, entry_id(e));
    if (ret_id)
        *ret_id = entry_id(e);
    return 0;
}

void fl__loop_unlist(fl_loop *loop, struct loop_entry e)
{
    fl__assert_debug(entry_state(e) >= STATE_IMMEDIATE);
    loop->immediates -= entry_state(e) == STATE_IMMEDIATE;
    loop->hooks -= entry_state(e) == STATE_HOOK;
    table_list_remove(&loop->table, e.slot);
}

static int make_listed(fl_loop *loop, enum loop_record_state state, uint32_t head, fl_loop_fn fn, void *arg,
                       fl_timer_id *ret_id)
{
    assert(state == STATE_IMMEDIATE || state == STATE_HOOK);
    struct loop_entry e;
    int r = make_record(loop, state, fn, arg, &e);
    if (r < 0)
        return r;
    table_list_append(&loop->table, head, e.slot);
    loop->immediates += state == STATE_IMMEDIATE;
    loop->hooks += state == STATE_HOOK;
    if (ret_id)
        *ret_id = entry_id(e);
    return 0;
}

int fl_loop_immediate(fl_loop *loop, fl_loop_fn fn, void *arg, fl_timer_id *ret_id)
{
    return make_listed(loop, STATE_IMMEDIATE, IMMEDIATES, fn, arg, ret_id);
}

int fl_loop_hook(fl_loop *loop, unsigned when, fl_loop_fn fn, void *arg, fl_timer_id *ret_id)
{
    if (when != FL_HOOK_BEFORE_SLEEP && when != FL_HOOK_AFTER_SLEEP)
        return FL_INVALID_ARGUMENT;
    uint32_t head = when == FL_HOOK_BEFORE_SLEEP ? HOOKS_BEFORE_SLEEP : HOOKS_AFTER_SLEEP;
    return make_listed(loop, STATE_HOOK, head, fn, arg, ret_id);
}

/* --- Changing */

static __attribute__((noinline)) int cancel(fl_loop *loop, fl_timer_id id)
{
    struct loop_entry e;
    if (!table_find(&loop->table, id, &e))
        return FL_TIMER_NOT_FOUND;
    if (entry_state(e) >= STATE_IMMEDIATE)
        fl__loop_unlist(loop, e);
    fl_nodes_stop(loop->wheel, &e.record->node); /* does nothing if it is not there */
    fl__loop_timers_forget(loop, e);
    return 0;
}

/* What cancel() does for nearly all timers. The record is freed before its node leaves the wheel, so that nothing has to be
 * kept for after that call. */
int fl_loop_cancel(fl_loop *loop, fl_timer_id id)
{
    struct loop_entry e;
    if (__builtin_expect(!table_find(&loop->table, id, &e) || !entry_is_plain(e), 0))
        return cancel(loop, id);
    loop->keep_alive -= !(*e.tag & TAG_UNREF);
    table_push(&loop->table, e);
    fl_nodes_stop(loop->wheel, &e.record->node);
    return 0;
}

static int set_unref(fl_loop *loop, fl_timer_id id, bool unref)
{
    struct loop_entry e;
    if (!table_find(&loop->table, id, &e))
        return FL_TIMER_NOT_FOUND;
    loop->keep_alive += (uint64_t) !!(*e.tag & TAG_UNREF) - unref;
    *e.tag = (*e.tag & ~(uint32_t)TAG_UNREF) | (unref ? TAG_UNREF : 0u);
    return 0;
}

int fl_loop_ref(fl_loop *loop, fl_timer_id id)
{
    return set_unref(loop, id, false);
}

int fl_loop_unref(fl_loop *loop, fl_timer_id id)
{
    return set_unref(loop, id, true);
}

/* The record of a timer or interval. Returns 0; FL_TIMER_NOT_FOUND; FL_INVALID_ARGUMENT if the ID names something else. */
static int find_timer(const fl_loop *loop, fl_timer_id id, struct loop_entry *ret)
{
    if (!table_find(&loop->table, id, ret))
        return FL_TIMER_NOT_FOUND;
    return entry_state(*ret) < STATE_IMMEDIATE ? 0 : FL_INVALID_ARGUMENT;
}

int fl_loop_rearm(fl_loop *loop, fl_timer_id id, uint64_t delay_ns)
{
    struct loop_entry e;
    int r = find_timer(loop, id, &e);
    if (r < 0)
        return r;
    uint64_t deadline_ns = add_time(loop->now_ns, delay_ns);
    struct loop_extra *extra = entry_extra(e);
    if (extra) {
        extra->deadline_ns = deadline_ns;
        deadline_ns = fl__loop_timers_round(deadline_ns, extra->slack_ns);
    }
    fl__loop_timers_start(loop, e, deadline_ns);
    return 0;
}

int fl_loop_deadline(const fl_loop *loop, fl_timer_id id, uint64_t *ret_ns)
{
    struct loop_entry e;
    int r = find_timer(loop, id, &e);
    if (r == 0)
        *ret_ns = fl_node_deadline_ns(&e.record->node);
    return r;
}

int fl_loop_period(const fl_loop *loop, fl_timer_id id, uint64_t *ret_ns)
{
    struct loop_entry e;
    int r = find_timer(loop, id, &e);
    if (r == 0)
        *ret_ns = entry_extra(e) ? entry_extra(e)->period_ns : 0;
    return r;
}

int fl_loop_set_period(fl_loop *loop, fl_timer_id id, uint64_t period_ns)
{
    struct loop_entry e;
    int r = find_timer(loop, id, &e);
    if (r == 0 && !entry_extra(e)) {
        struct loop_extra extra = {.deadline_ns = fl_node_deadline_ns(&e.record->node)};
        r = fl__loop_table_extend(&loop->table, e, &extra);
    }
    if (r == 0)
        e.record->extra->period_ns = period_ns;
    return r;
}
