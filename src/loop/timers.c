/* SPDX-License-Identifier: MIT */
/* Making and changing timers, intervals and immediates: see timers.h for the design. */

#include <assert.h>

#include "base/alloc.h"
#include "loop/timers.h"

enum {
    INTERVAL_FLAGS = FL_INTERVAL_CATCH_UP | FL_INTERVAL_FROM_CALLBACK,
};

static uint64_t not_before_now(const fl_loop *loop, uint64_t deadline_ns)
{
    return deadline_ns > loop->now_ns ? deadline_ns : loop->now_ns;
}

uint64_t fl__timers_round(uint64_t deadline_ns, uint64_t slack_ns)
{
    uint64_t latest = add_time(deadline_ns, slack_ns);
    if (latest <= deadline_ns)
        return deadline_ns;
    unsigned highest = 63 - __builtin_clzll((deadline_ns - 1) ^ latest); /* the first bit in which the ends differ */
    return latest >> highest << highest;
}

int fl__timers_init(fl_loop *loop, bool huge_pages)
{
    uint32_t slot;
    struct record *record;
    int r = fl__table_init(&loop->table, huge_pages);
    if (r == 0)
        r = fl__fresh_init(&loop->fresh);
    if (r < 0)
        return r;
    loop->due = fl__alloc(loop->budget * sizeof(*loop->due));
    if (!loop->due)
        return FL_NO_MEMORY;
    for (uint32_t head = IMMEDIATES; head < LIST_HEADS_END; head++) {
        r = fl__table_take(&loop->table, &slot, &record);
        if (r < 0)
            return r;
        assert(slot == head);
        record_set_state(record, STATE_HEAD);
        table_list_init(&loop->table, slot);
    }
    loop->table.limit += LIST_HEADS_END - IMMEDIATES;
    loop->drained_ns = loop->now_ns;
    return 0;
}

void fl__timers_destroy(fl_loop *loop)
{
    fl_wheel_free(loop->wheel);
    fl__table_destroy(&loop->table);
    fl__fresh_destroy(&loop->fresh);
    fl__release(loop->due);
}

/* --- Arming */

/* An empty wheel is not polled, so it may be behind. */
int fl__timers_make_wheel(fl_loop *loop)
{
    if (loop->wheel) {
        if (fl_wheel_now_ns(loop->wheel) < loop->drained_ns)
            fl_wheel_poll(loop->wheel, loop->drained_ns, NULL, 0);
        return 0;
    }
    fl_wheel_config config = {
        .spokes = 1u << WHEEL_SPOKES_BITS, .start_ns = loop->drained_ns, .huge_pages = loop->table.huge_pages};
    for (unsigned level = 0; level < FL_WHEEL_LEVELS; level++)
        config.tick_ns[level] = UINT64_C(1) << (WHEEL_TICK_BITS + level * WHEEL_SPOKES_BITS);
    return fl_wheel_new(&config, &loop->wheel);
}

int fl__timers_place(fl_loop *loop, uint32_t slot, struct record *record, uint64_t deadline_ns, uint64_t from_ns)
{
    uint64_t wheel_ns = deadline_ns, wheel_now_ns = fl_wheel_now_ns(loop->wheel);
    if (deadline_ns > from_ns && deadline_ns - from_ns > REACH_NS)
        wheel_ns = deadline_ns - (deadline_ns - from_ns - 1) / REACH_NS * REACH_NS;
    if (wheel_ns < wheel_now_ns)
        wheel_ns = wheel_now_ns;
    int r = fl_wheel_schedule(loop->wheel, wheel_ns, data_of_slot(slot), record_timer(record));
    if (r == 0)
        record_set_state(record, STATE_PENDING);
    return r;
}

void fl__timers_arm_or_strand(fl_loop *loop, uint32_t slot, struct record *record, uint64_t deadline_ns)
{
    if (fresh_arm(loop, slot, record, deadline_ns) == 0)
        return;
    record_set_state(record, STATE_STRANDED);
    table_list_append(&loop->table, STRANDED, slot);
}

/* --- Making */

/* Makes a record that is nowhere yet. `values` (may be NULL) is for what a plain record cannot hold; a callback that
 * cannot be packed needs a struct extra too. */
static int make_record(fl_loop *loop, fl_loop_fn fn, void *arg, const struct extra *values, uint32_t *ret_slot,
                       struct record **ret)
{
    struct table *table = &loop->table;
    struct record *record;
    if (!fn)
        return FL_INVALID_ARGUMENT;
    int r = fl__table_take(table, ret_slot, &record);
    if (r == FL_CAPACITY_EXCEEDED && loop->cancelled_count > 0) {
        fl__timers_drop_cancelled(loop);
        r = fl__table_take(table, ret_slot, &record);
    }
    if (r < 0)
        return r;
    record->arg = arg;
    *ret = record;
    if (table_pack(table, fn, &record->fn) && !values)
        return 0;
    struct extra extra = values ? *values : (struct extra){0};
    extra.fn = fn;
    r = fl__table_extend(table, record, &extra);
    if (r < 0)
        table_put(table, *ret_slot, record);
    return r;
}

/* Makes a timer that fires at `deadline_ns`. */
static __attribute__((noinline)) int make(fl_loop *loop, uint64_t deadline_ns, const struct extra *values,
                                          fl_loop_fn fn, void *arg, fl_timer_id *ret_id)
{
    uint32_t slot;
    struct record *record;
    struct extra far;
    if (!values && needs_stops(loop, deadline_ns)) {
        far = (struct extra){.deadline_ns = deadline_ns};
        values = &far;
    }
    int r = make_record(loop, fn, arg, values, &slot, &record);
    if (r < 0)
        return r;
    r = fresh_arm(loop, slot, record, deadline_ns);
    if (r < 0) {
        table_put(&loop->table, slot, record);
        return r;
    }
    loop->keep_alive++;
    if (ret_id)
        *ret_id = table_id(record, slot);
    return 0;
}

static __attribute__((noinline)) int make_timer(fl_loop *loop, uint64_t delay_ns, fl_loop_fn fn, void *arg,
                                                fl_timer_id *ret_id)
{
    return make(loop, add_time(loop->now_ns, delay_ns), NULL, fn, arg, ret_id);
}

/* What make() does where nothing is out of the ordinary: the callback is in the first window, the deadline in reach, the
 * table has a slot and the list of fresh timers room. This is how nearly all timers are made, and it calls nothing. */
int fl_loop_timer(fl_loop *loop, uint64_t delay_ns, fl_loop_fn fn, void *arg, fl_timer_id *ret_id)
{
    struct fresh *fresh = &loop->fresh;
    uint64_t deadline_ns = loop->now_ns + delay_ns;
    uintptr_t offset = (uintptr_t)fn - loop->table.window[0];
    bool fits = deadline_ns + 1 > loop->now_ns; /* or the sum is UINT64_MAX or beyond */
    if (!fits || deadline_ns - loop->drained_ns > REACH_NS || offset - 1 >= (1u << TABLE_WINDOW_BITS) - 1 ||
        fresh->count == fresh->capacity)
        return make_timer(loop, delay_ns, fn, arg, ret_id);
    uint32_t slot, tag;
    struct record *record = table_try_take(&loop->table, &slot, &tag);
    if (!record)
        return make_timer(loop, delay_ns, fn, arg, ret_id);
    record->arg = arg;
    record->fn = (uint32_t)offset;
    record->timer = fresh_append(fresh, slot, deadline_ns);
    record->tag = tag | STATE_FRESH;
    loop->keep_alive++;
    if (ret_id)
        *ret_id = table_id_of_tag(tag, slot);
    return 0;
}

int fl_loop_timer_at(fl_loop *loop, uint64_t deadline_ns, fl_loop_fn fn, void *arg, fl_timer_id *ret_id)
{
    return make(loop, not_before_now(loop, deadline_ns), NULL, fn, arg, ret_id);
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
    fl_timer_id id;
    struct extra interval = {
        .deadline_ns = options->deadline_ns ? not_before_now(loop, options->deadline_ns)
                                            : add_time(loop->now_ns, options->period_ns),
        .period_ns = options->period_ns,
        .slack_ns = options->slack_ns,
        .flags = flags & INTERVAL_FLAGS,
    };
    bool plain = options->period_ns == 0 && options->slack_ns == 0;
    int r = make(loop, firing_time(&interval), plain ? NULL : &interval, options->fn, options->arg, &id);
    if (r < 0)
        return r;
    if (flags & FL_TIMER_UNREF)
        fl_loop_unref(loop, id);
    if (ret_id)
        *ret_id = id;
    return 0;
}

int fl_loop_immediate(fl_loop *loop, fl_loop_fn fn, void *arg, fl_timer_id *ret_id)
{
    uint32_t slot;
    struct record *record;
    int r = make_record(loop, fn, arg, NULL, &slot, &record);
    if (r < 0)
        return r;
    record_set_state(record, STATE_IMMEDIATE);
    table_list_append(&loop->table, IMMEDIATES, slot);
    loop->keep_alive++;
    loop->immediates++;
    if (ret_id)
        *ret_id = table_id(record, slot);
    return 0;
}

int fl_loop_hook(fl_loop *loop, unsigned when, fl_loop_fn fn, void *arg, fl_timer_id *ret_id)
{
    uint32_t slot;
    struct record *record;
    if (when != FL_HOOK_BEFORE_SLEEP && when != FL_HOOK_AFTER_SLEEP)
        return FL_INVALID_ARGUMENT;
    int r = make_record(loop, fn, arg, NULL, &slot, &record);
    if (r < 0)
        return r;
    record_set_state(record, STATE_HOOK);
    table_list_append(&loop->table, when == FL_HOOK_BEFORE_SLEEP ? HOOKS_BEFORE_SLEEP : HOOKS_AFTER_SLEEP, slot);
    loop->keep_alive++;
    loop->hooks++;
    if (ret_id)
        *ret_id = table_id(record, slot);
    return 0;
}

/* --- Changing */

void fl__timers_drop_cancelled(fl_loop *loop)
{
    for (uint32_t i = 0; i < loop->cancelled_count; i++) {
        int r = fl_wheel_cancel(loop->wheel, loop->cancelled[i].timer, NULL);
        assert(r == 0);
        (void)r;
    }
    for (uint32_t i = 0; i < loop->cancelled_count; i++) {
        uint32_t slot = loop->cancelled[i].slot;
        if (slot)
            table_put(&loop->table, slot, table_record(&loop->table, slot));
    }
    loop->cancelled_count = 0;
}

/* A timer of the wheel is no longer wanted, and neither is its slot, unless that is 0. Returns whether it is time to drop
 * them. */
static inline bool note_cancelled(fl_loop *loop, fl_timer_id timer, uint32_t slot)
{
    uint32_t count = loop->cancelled_count;
    loop->cancelled[count] = (struct cancelled){timer, slot};
    loop->cancelled_count = count + 1;
    return count + 1 == CANCELLED_MAX;
}

/* Takes a living record out of wherever it is. */
static void take_out(fl_loop *loop, uint32_t slot, struct record *record)
{
    switch (record_state(record)) {
    case STATE_PENDING:
        if (note_cancelled(loop, *record_timer(record), 0))
            fl__timers_drop_cancelled(loop);
        break;
    case STATE_FRESH:
        fresh_remove(&loop->fresh, (uint32_t)*record_timer(record));
        break;
    case STATE_IMMEDIATE:
    case STATE_HOOK:
    case STATE_STRANDED:
        table_list_remove(&loop->table, slot);
        break;
    default:
        break;
    }
}

void fl__timers_forget(fl_loop *loop, uint32_t slot, struct record *record)
{
    loop->keep_alive -= !(record->tag & RECORD_UNREF);
    if (record_state(record) == STATE_IMMEDIATE)
        loop->immediates--;
    if (record_state(record) == STATE_HOOK)
        loop->hooks--;
    table_put(&loop->table, slot, record);
}

static __attribute__((noinline)) int cancel_elsewhere(fl_loop *loop, uint32_t slot, struct record *record)
{
    if (record_state(record) < STATE_FRESH)
        return FL_TIMER_NOT_FOUND;
    take_out(loop, slot, record);
    fl__timers_forget(loop, slot, record);
    return 0;
}

static __attribute__((noinline)) int drop_cancelled(fl_loop *loop)
{
    fl__timers_drop_cancelled(loop);
    return 0;
}

/* The ways of a timer in the wheel, see timers.h, and of a plain fresh one are as short as can be. For the first,
 * STATE_FREE ends its ID; its slot is not in the free list before the wheel has heard of it. */
int fl_loop_cancel(fl_loop *loop, fl_timer_id id)
{
    uint32_t slot;
    struct record *record = table_find_any(&loop->table, id, &slot);
    if (!record)
        return FL_TIMER_NOT_FOUND;
    uint32_t tag = record->tag;
    if ((tag & RECORD_STATE) == STATE_PENDING) {
        record->tag = (tag & ~(uint32_t)RECORD_STATE) | STATE_FREE;
        loop->keep_alive -= !(tag & RECORD_UNREF);
        return __builtin_expect(note_cancelled(loop, *record_timer(record), slot), 0) ? drop_cancelled(loop) : 0;
    }
    if ((tag & (RECORD_STATE | RECORD_EXTRA)) != STATE_FRESH)
        return cancel_elsewhere(loop, slot, record);
    fresh_remove(&loop->fresh, (uint32_t)record->timer);
    loop->keep_alive -= !(tag & RECORD_UNREF);
    table_put_plain(&loop->table, slot, record, tag);
    return 0;
}

int fl_loop_ref(fl_loop *loop, fl_timer_id id)
{
    uint32_t slot;
    struct record *record = table_find(&loop->table, id, &slot);
    if (!record)
        return FL_TIMER_NOT_FOUND;
    loop->keep_alive += record->tag & RECORD_UNREF ? 1 : 0;
    record->tag &= ~(uint32_t)RECORD_UNREF;
    return 0;
}

int fl_loop_unref(fl_loop *loop, fl_timer_id id)
{
    uint32_t slot;
    struct record *record = table_find(&loop->table, id, &slot);
    if (!record)
        return FL_TIMER_NOT_FOUND;
    loop->keep_alive -= record->tag & RECORD_UNREF ? 0 : 1;
    record->tag |= RECORD_UNREF;
    return 0;
}

/* Makes sure that a record can be armed for a deadline, which is then certain to succeed. */
static int prepare(fl_loop *loop, struct record *record, uint64_t deadline_ns)
{
    if (loop->fresh.count == loop->fresh.capacity && fl__fresh_make_room(loop) < 0)
        return FL_NO_MEMORY;
    if (record->tag & RECORD_EXTRA || !needs_stops(loop, deadline_ns))
        return 0;
    return fl__table_extend(&loop->table, record, &(struct extra){.fn = table_fn(&loop->table, record)});
}

int fl_loop_rearm(fl_loop *loop, fl_timer_id id, uint64_t delay_ns)
{
    uint32_t slot;
    struct record *record = table_find(&loop->table, id, &slot);
    if (!record)
        return FL_TIMER_NOT_FOUND;
    if (record_state(record) >= STATE_IMMEDIATE)
        return FL_INVALID_ARGUMENT;
    uint64_t deadline_ns = add_time(loop->now_ns, delay_ns);
    int r = prepare(loop, record, deadline_ns);
    if (r < 0)
        return r;
    take_out(loop, slot, record);
    struct extra *extra = record_extra(record);
    if (extra) {
        extra->deadline_ns = deadline_ns;
        deadline_ns = firing_time(extra);
    }
    return fresh_arm(loop, slot, record, deadline_ns);
}
