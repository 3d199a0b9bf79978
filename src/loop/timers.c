/* SPDX-License-Identifier: MIT */
/* Timers, intervals and immediates.
 *
 * A timer is a record in the table (table.h), whose slot the wheel carries as data; the record knows the wheel's ID. What
 * is due is taken out of the wheel into a list before the first callback runs. The list holds slots and every record
 * in it is marked STATE_DUE. A callback that cancels, frees or rearms a sibling changes its state, so the entry is passed
 * over; a slot that is taken anew in the same turn is not passed to the wrong callback, because nothing becomes
 * STATE_DUE except when the list is filled.
 *
 * Far timers. The wheel reaches reach_ns ahead. A timer beyond gets stops on the way, at deadline - k * reach, and its
 * real deadline is kept in a struct extra. Stops are counted back from the deadline, not forward from now, so that equal
 * deadlines keep the order of creation: a timer moves on to its next stop as soon as that is in reach, and so before
 * any younger timer can be armed for that stop directly. For this to hold, "in reach" is measured from drained_ns, up to
 * which the wheel has surely been emptied, and not from now; and after a long pause the wheel is polled in steps of half
 * its reach, so that no timer is still at a stop when its deadline has passed.
 *
 * No memory. Arming a timer that was just taken out of the wheel, an interval or one at a stop, can fail. It then becomes
 * STATE_STRANDED: it waits in a list, which every turn tries to empty into the wheel. When its deadline has come and
 * there is still no memory, it goes into the list of due timers without the wheel. So it is neither lost nor late; only
 * its place among equal deadlines may be another.
 */

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "loop/internal.h"

enum {
    PREFETCH = 8, /* records ahead of the one that is looked at */
    INTERVAL_FLAGS = FL_INTERVAL_CATCH_UP | FL_INTERVAL_FROM_CALLBACK,
};

static uint64_t add_time(uint64_t time_ns, uint64_t duration_ns)
{
    uint64_t sum = time_ns + duration_ns;
    return sum < time_ns || sum > TIME_MAX ? TIME_MAX : sum;
}

static uint64_t not_before_now(const fl_loop *loop, uint64_t deadline_ns)
{
    if (deadline_ns > TIME_MAX)
        return TIME_MAX;
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
    fl_wheel_config config = {.start_ns = loop->now_ns, .huge_pages = huge_pages};
    int r = fl_wheel_new(&config, &loop->wheel);
    if (r < 0)
        return r;
    r = fl__table_init(&loop->table, huge_pages);
    if (r < 0)
        return r;
    loop->due = fl__alloc(loop->budget * sizeof(*loop->due));
    if (!loop->due)
        return FL_NO_MEMORY;
    for (uint32_t head = IMMEDIATES; head < LIST_HEADS_END; head++) {
        r = fl__table_take(&loop->table, &slot);
        assert(r == 0 && slot == head);
        table_record(&loop->table, slot)->state = STATE_HEAD;
        table_list_init(&loop->table, slot);
    }
    loop->reach_ns = fl_wheel_max_duration_ns(loop->wheel);
    loop->drained_ns = loop->now_ns;
    return 0;
}

void fl__timers_destroy(fl_loop *loop)
{
    fl_wheel_free(loop->wheel);
    fl__table_destroy(&loop->table);
    fl__release(loop->due);
}

/* --- Arming */

static struct extra *extra_of(const fl_loop *loop, const struct record *record)
{
    return record->extra ? &table_slot(&loop->table, record->extra)->extra : NULL;
}

static bool out_of_reach(const fl_loop *loop, uint64_t deadline_ns)
{
    return deadline_ns > loop->drained_ns && deadline_ns - loop->drained_ns > loop->reach_ns;
}

/* What the wheel is told for a timer that fires at `deadline_ns`: that, or the first stop on the way after `from_ns`. */
static uint64_t wheel_deadline(const fl_loop *loop, uint64_t deadline_ns, uint64_t from_ns)
{
    uint64_t wheel_ns = deadline_ns, wheel_now_ns = fl_wheel_now_ns(loop->wheel);
    if (deadline_ns > from_ns && deadline_ns - from_ns > loop->reach_ns)
        wheel_ns = deadline_ns - (deadline_ns - from_ns - 1) / loop->reach_ns * loop->reach_ns;
    return wheel_ns > wheel_now_ns ? wheel_ns : wheel_now_ns;
}

static void *data_of_slot(uint32_t slot)
{
    return (void *)(uintptr_t)slot;
}

static uint32_t slot_of_data(void *data)
{
    return (uint32_t)(uintptr_t)data;
}

/* Puts a record that is nowhere into the wheel. If the deadline is out of reach, the record must have an extra. */
static int arm(fl_loop *loop, uint32_t slot, struct record *record, uint64_t deadline_ns, uint64_t from_ns)
{
    uint64_t wheel_ns = wheel_deadline(loop, deadline_ns, from_ns);
    int r = fl_wheel_schedule(loop->wheel, wheel_ns, data_of_slot(slot), &record->timer);
    if (r == 0)
        record->state = STATE_PENDING;
    return r;
}

static uint64_t firing_time(const struct extra *extra)
{
    return fl__timers_round(extra->deadline_ns, extra->slack_ns);
}

/* Arms a record that must not be lost. */
static void arm_or_strand(fl_loop *loop, uint32_t slot, struct record *record, uint64_t deadline_ns, uint64_t from_ns)
{
    if (arm(loop, slot, record, deadline_ns, from_ns) == 0)
        return;
    record->state = STATE_STRANDED;
    table_list_append(&loop->table, STRANDED, slot);
}

/* --- Making */

static int take_record(fl_loop *loop, fl_loop_fn fn, void *arg, uint32_t *ret_slot, struct record **ret)
{
    uint32_t slot;
    if (!fn)
        return FL_INVALID_ARGUMENT;
    int r = fl__table_take(&loop->table, &slot);
    if (r < 0)
        return r;
    struct record *record = table_record(&loop->table, slot);
    record->fn = fn;
    record->arg = arg;
    record->state = STATE_RUNNING; /* nowhere yet */
    record->unref = false;
    record->extra = 0;
    *ret_slot = slot;
    *ret = record;
    return 0;
}

static int take_extra(fl_loop *loop, struct record *record, const struct extra *values)
{
    uint32_t slot;
    int r = fl__table_take(&loop->table, &slot);
    if (r < 0)
        return r;
    struct extra *extra = &table_slot(&loop->table, slot)->extra;
    uint32_t generation = extra->generation;
    *extra = *values;
    extra->generation = generation;
    extra->state = STATE_EXTRA;
    record->extra = slot;
    return 0;
}

static void put_record(fl_loop *loop, uint32_t slot, struct record *record)
{
    if (record->extra)
        fl__table_put(&loop->table, record->extra);
    fl__table_put(&loop->table, slot);
}

/* Makes a timer that fires at `deadline_ns`; `values` (may be NULL) is for what a plain record cannot hold. */
static int make(fl_loop *loop, uint64_t deadline_ns, const struct extra *values, fl_loop_fn fn, void *arg,
                fl_timer_id *ret_id)
{
    uint32_t slot;
    struct record *record;
    struct extra far = {.deadline_ns = deadline_ns};
    int r = take_record(loop, fn, arg, &slot, &record);
    if (r < 0)
        return r;
    if (!values && out_of_reach(loop, deadline_ns))
        values = &far;
    if (values)
        r = take_extra(loop, record, values);
    if (r == 0)
        r = arm(loop, slot, record, deadline_ns, loop->drained_ns);
    if (r < 0) {
        put_record(loop, slot, record);
        return r;
    }
    loop->keep_alive++;
    loop->timers++;
    if (ret_id)
        *ret_id = table_id(record, slot);
    return 0;
}

int fl_loop_timer(fl_loop *loop, uint64_t delay_ns, fl_loop_fn fn, void *arg, fl_timer_id *ret_id)
{
    return make(loop, add_time(loop->now_ns, delay_ns), NULL, fn, arg, ret_id);
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
    int r = take_record(loop, fn, arg, &slot, &record);
    if (r < 0)
        return r;
    record->state = STATE_IMMEDIATE;
    table_list_append(&loop->table, IMMEDIATES, slot);
    loop->keep_alive++;
    loop->immediates++;
    if (ret_id)
        *ret_id = table_id(record, slot);
    return 0;
}

/* --- Changing */

/* Ends a record that is in no list and not in the wheel. */
static void forget(fl_loop *loop, uint32_t slot, struct record *record)
{
    loop->keep_alive -= !record->unref;
    if (record->state == STATE_IMMEDIATE)
        loop->immediates--;
    else
        loop->timers--;
    put_record(loop, slot, record);
}

int fl_loop_cancel(fl_loop *loop, fl_timer_id id)
{
    uint32_t slot;
    struct record *record = table_find(&loop->table, id, &slot);
    if (!record)
        return FL_TIMER_NOT_FOUND;
    if (record->state == STATE_PENDING) {
        int r = fl_wheel_cancel(loop->wheel, record->timer, NULL);
        assert(r == 0);
        (void)r;
    } else if (record->state == STATE_IMMEDIATE || record->state == STATE_STRANDED) {
        table_list_remove(&loop->table, slot);
    }
    forget(loop, slot, record);
    return 0;
}

int fl_loop_ref(fl_loop *loop, fl_timer_id id)
{
    uint32_t slot;
    struct record *record = table_find(&loop->table, id, &slot);
    if (!record)
        return FL_TIMER_NOT_FOUND;
    loop->keep_alive += record->unref;
    record->unref = false;
    return 0;
}

int fl_loop_unref(fl_loop *loop, fl_timer_id id)
{
    uint32_t slot;
    struct record *record = table_find(&loop->table, id, &slot);
    if (!record)
        return FL_TIMER_NOT_FOUND;
    loop->keep_alive -= !record->unref;
    record->unref = true;
    return 0;
}

/* Moves a record to another place in the wheel, or into it. On failure it is where it was. */
static int move(fl_loop *loop, uint32_t slot, struct record *record, uint64_t deadline_ns)
{
    uint64_t wheel_ns = wheel_deadline(loop, deadline_ns, loop->drained_ns);
    if (record->state == STATE_PENDING)
        return fl_wheel_reschedule(loop->wheel, record->timer, wheel_ns, &record->timer);
    fl_timer_id timer;
    int r = fl_wheel_schedule(loop->wheel, wheel_ns, data_of_slot(slot), &timer);
    if (r < 0)
        return r;
    if (record->state == STATE_STRANDED)
        table_list_remove(&loop->table, slot);
    record->timer = timer;
    record->state = STATE_PENDING;
    return 0;
}

int fl_loop_rearm(fl_loop *loop, fl_timer_id id, uint64_t delay_ns)
{
    uint32_t slot;
    struct record *record = table_find(&loop->table, id, &slot);
    if (!record)
        return FL_TIMER_NOT_FOUND;
    if (record->state == STATE_IMMEDIATE)
        return FL_INVALID_ARGUMENT;
    uint64_t deadline_ns = add_time(loop->now_ns, delay_ns);
    int r = 0;
    bool plain = record->extra == 0;
    if (plain && out_of_reach(loop, deadline_ns))
        r = take_extra(loop, record, &(struct extra){0});
    struct extra *extra = extra_of(loop, record);
    if (r == 0)
        r = move(loop, slot, record, fl__timers_round(deadline_ns, extra ? extra->slack_ns : 0));
    if (r == 0 && extra)
        extra->deadline_ns = deadline_ns;
    if (r < 0 && plain && extra) {
        fl__table_put(&loop->table, record->extra);
        record->extra = 0;
    }
    return r;
}

/* --- Firing */

/* A wheel's entry is due: the record is marked and stays in the list, or moves on to its next stop. */
static bool mark_due(fl_loop *loop, const fl_expired *entry)
{
    uint32_t slot = slot_of_data(entry->data);
    struct record *record = table_record(&loop->table, slot);
    const struct extra *extra = extra_of(loop, record);
    assert(record->state == STATE_PENDING);
    if (!extra || firing_time(extra) <= entry->deadline_ns) {
        record->state = STATE_DUE;
        return true;
    }
    arm_or_strand(loop, slot, record, firing_time(extra), entry->deadline_ns);
    return false;
}

static uint32_t mark_all_due(fl_loop *loop, fl_expired *entries, size_t count)
{
    uint32_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (i + PREFETCH < count)
            __builtin_prefetch(table_record(&loop->table, slot_of_data(entries[i + PREFETCH].data)), 1);
        if (mark_due(loop, &entries[i]))
            entries[kept++] = entries[i];
    }
    return kept;
}

/* Stranded timers go back into the wheel, or if they are due into the list. */
static void rescue_stranded(fl_loop *loop)
{
    struct table *table = &loop->table;
    uint32_t slot, next = table_record(table, STRANDED)->link.next;
    while ((slot = next) != STRANDED) {
        struct record *record = table_record(table, slot);
        uint64_t deadline_ns = firing_time(extra_of(loop, record));
        next = record->link.next;
        if (move(loop, slot, record, deadline_ns) == 0 || deadline_ns > loop->now_ns || loop->due_count == loop->budget)
            continue;
        table_list_remove(table, slot);
        record->state = STATE_DUE;
        loop->due[loop->due_count++] = (fl_expired){.deadline_ns = deadline_ns, .data = data_of_slot(slot)};
    }
}

/* How far the wheel may be polled at once. If nothing was left behind in the wheel, there is nothing to take out before
 * its earliest timer either. */
static uint64_t next_step(fl_loop *loop)
{
    uint64_t earliest_ns;
    if (loop->now_ns - loop->drained_ns <= loop->reach_ns / 2)
        return loop->now_ns;
    if (!fl_wheel_next_deadline(loop->wheel, &earliest_ns) || earliest_ns > loop->now_ns)
        return loop->now_ns;
    if (loop->drained_ns == fl_wheel_now_ns(loop->wheel) && loop->drained_ns < earliest_ns)
        loop->drained_ns = earliest_ns - 1;
    uint64_t step_ns = add_time(loop->drained_ns, loop->reach_ns / 2);
    return step_ns < loop->now_ns ? step_ns : loop->now_ns;
}

void fl__timers_take(fl_loop *loop)
{
    if (loop->due_next < loop->due_count)
        return;
    loop->due_next = loop->due_count = 0;
    rescue_stranded(loop);
    bool all = false;
    while (loop->due_count < loop->budget && !all) {
        uint64_t step_ns = next_step(loop);
        fl_expired *entries = loop->due + loop->due_count;
        size_t room = loop->budget - loop->due_count;
        size_t count = fl_wheel_poll(loop->wheel, step_ns, entries, room);
        loop->due_count += mark_all_due(loop, entries, count);
        if (count < room)
            loop->drained_ns = step_ns;
        all = count < room && step_ns == loop->now_ns;
    }
}

static uint64_t next_on_grid(const fl_loop *loop, const struct extra *interval)
{
    uint64_t next_ns = add_time(interval->deadline_ns, interval->period_ns);
    if (interval->flags & FL_INTERVAL_CATCH_UP || next_ns >= loop->read_ns)
        return next_ns;
    uint64_t missed = (loop->read_ns - next_ns + interval->period_ns - 1) / interval->period_ns;
    return add_time(next_ns, missed * interval->period_ns);
}

/* A period that was missed counts as due now, or as late as the wheel reaches: a stop on the way to a deadline that has
 * passed would be taken for the deadline. */
static uint64_t catching_up(const fl_loop *loop, uint64_t deadline_ns)
{
    if (deadline_ns >= loop->now_ns)
        return deadline_ns;
    return out_of_reach(loop, loop->now_ns) ? loop->drained_ns + loop->reach_ns : loop->now_ns;
}

static void fire_interval(fl_loop *loop, uint32_t slot, struct record *record)
{
    uint32_t generation = record->generation;
    record->state = STATE_RUNNING;
    record->fn(loop, record->arg);
    fl__loop_checkpoint(loop);

    /* The callback may have cancelled it, and its slot, even its chunk, may be gone or be another timer's. */
    record = table_find(&loop->table, (uint64_t)generation << TABLE_SLOT_BITS | slot, &slot);
    if (!record || record->state != STATE_RUNNING)
        return;
    struct extra *interval = extra_of(loop, record);
    interval->deadline_ns = interval->flags & FL_INTERVAL_FROM_CALLBACK ? add_time(loop->read_ns, interval->period_ns)
                                                                        : next_on_grid(loop, interval);
    arm_or_strand(loop, slot, record, catching_up(loop, firing_time(interval)), loop->drained_ns);
}

static void fire(fl_loop *loop, const fl_expired *entry)
{
    uint32_t slot = slot_of_data(entry->data);
    if (!table_is_mapped(&loop->table, slot)) /* cancelled, and the last of its chunk */
        return;
    struct record *record = table_record(&loop->table, slot);
    if (record->state != STATE_DUE)
        return;
    const struct extra *extra = extra_of(loop, record);
    histogram_add(&loop->lateness_ns, loop->read_ns - (extra ? firing_time(extra) : entry->deadline_ns));
    loop->counters.timers++;
    if (extra && extra->period_ns) {
        fire_interval(loop, slot, record);
        return;
    }
    fl_loop_fn fn = record->fn;
    void *arg = record->arg;
    forget(loop, slot, record);
    fn(loop, arg);
    fl__loop_checkpoint(loop);
}

void fl__timers_run(fl_loop *loop)
{
    while (loop->due_next < loop->due_count && !fl__loop_interrupted(loop))
        fire(loop, &loop->due[loop->due_next++]);
}

void fl__immediates_run(fl_loop *loop)
{
    struct table *table = &loop->table;
    table_list_splice(table, IMMEDIATES_NOW, IMMEDIATES);
    for (uint32_t n = 0; n < loop->budget && !table_list_empty(table, IMMEDIATES_NOW); n++) {
        if (fl__loop_interrupted(loop))
            return;
        uint32_t slot = table_record(table, IMMEDIATES_NOW)->link.next;
        struct record *record = table_record(table, slot);
        fl_loop_fn fn = record->fn;
        void *arg = record->arg;
        table_list_remove(table, slot);
        forget(loop, slot, record);
        loop->counters.immediates++;
        fn(loop, arg);
        fl__loop_checkpoint(loop);
    }
}

uint64_t fl__timers_next_ns(const fl_loop *loop)
{
    uint64_t next_ns;
    if (!fl_wheel_next_deadline(loop->wheel, &next_ns))
        next_ns = UINT64_MAX;
    uint32_t slot = STRANDED;
    while ((slot = table_record(&loop->table, slot)->link.next) != STRANDED) {
        uint64_t stranded_ns = firing_time(extra_of(loop, table_record(&loop->table, slot)));
        next_ns = stranded_ns < next_ns ? stranded_ns : next_ns;
    }
    return next_ns;
}
