/* SPDX-License-Identifier: MIT */
/* Changes with an unknown outcome, because the store did not answer in time.
 *
 * The store promises that after FL_OUTCOME_UNKNOWN, every reader sees either all of the change or nothing of it. So the
 * engine reads the rows, and retries until it gets an answer. Meanwhile:
 *
 *   - A timer that was perhaps created is in memory, marked as unsure, and fires when it is due. Firing a timer that its creator
 *     believes lost is better than losing a timer that exists. If the store does not have it, it is removed. Before the answer,
 *     it is not filed again.
 *   - A timer that was perhaps moved, replaced or cancelled is held: it does not fire before its due time is known. Its perhaps
 *     filed new row is held, too, if it is loaded meanwhile.
 *   - An attempt that was perhaps settled counts as not settled, so that progress does not pass it.
 *   - Timers that were perhaps created together with such a change are held, too (group.c).
 */

#include "engine/internal.h"

/* Sets the alarm, unless it is set to ring earlier: new doubts do not delay waiting ones. */
static void ask_in(fl_engine *e, uint64_t delay_ns)
{
    uint64_t now_ns = fl_loop_now_ns(e->loop);
    if (e->ask_ns >= now_ns && e->ask_ns <= now_ns + delay_ns)
        return;
    e->ask_ns = now_ns + delay_ns;
    fl__alarm_set(e, &e->ask_alarm, delay_ns);
}

void fl__doubts_ask_later(fl_engine *e)
{
    ask_in(e, SECOND_US * NS_PER_US / 10);
}

void fl__doubt(fl_engine *e, struct work *work)
{
    fl__assert(work->row_lock.held || work->new_key.seq || work->dead_lock.held);
    fl__assert(e->state == ENGINE_RUNNING);
    ask_in(e, work->in_doubt ? SECOND_US * NS_PER_US / 10 : 0);
    if (!work->in_doubt) {
        work->in_doubt = true;
        work->next_in_doubt = e->in_doubt;
        e->in_doubt = work;
        if (work->new_key.seq) /* the row is new, so no other operation holds its lock */
            fl__lock(e, &work->new_lock, lock_of_seq(work->new_key.seq), NULL);
        if (work->group)
            fl__group_hold(e, work->group);
    }
    fl__queue_append(&e->doubts, work);
}

/* The outcome is known, or no longer matters. */
void fl__doubt_end(fl_engine *e, struct work *work)
{
    if (!work->in_doubt)
        return;
    struct work **link = &e->in_doubt;
    while (*link != work) {
        fl__assert(*link);
        link = &(*link)->next_in_doubt;
    }
    *link = work->next_in_doubt;
    work->in_doubt = false;
    fl__progress_keep(e, work->new_key);
    fl__unlock(e, &work->new_lock);
    if (!work->group)
        return;
    for (size_t i = 0; i < work->group->count; i++)
        fl__progress_keep(e, work->group->followers[i].key);
    fl__group_let_go(e, work->group);
}

/* Whether a work in doubt may have filed this row. Then it is not settled, even if the front has passed it. */
bool fl__doubt_about(const fl_engine *e, uint64_t seq)
{
    if (!e->in_doubt || !fl__is_locked(e, lock_of_seq(seq)))
        return false;
    for (const struct work *work = e->in_doubt; work; work = work->next_in_doubt)
        if (work->new_key.seq == seq || fl__group_has(work->group, seq))
            return true;
    return false;
}

static bool applied(const struct work *work, const fl_store_want *want)
{
    if (work->new_key.seq == 0)
        return !want->found;
    return want->found && want->row.key.seq == work->new_key.seq;
}

/* Whether the row is still to be taken into memory. A load may have brought it. If it is after the front, memory is cut off
 * at its key, so that it is loaded in order with the other rows of its time. */
static bool is_missing(fl_engine *e, const fl_row *row)
{
    if (fl__ops_let_go(e, row->key))
        return false;
    if (!behind_front(e, row->key))
        fl__memory_evict(e, row->key);
    return true;
}

/* Takes in a row that was in doubt and is in the store. */
void fl__doubt_take_in(fl_engine *e, const fl_row *row)
{
    if (is_missing(e, row))
        fl__ops_take_in(e, row, 0);
}

/* `want` is the answer for the work. The answers for its group follow in the array. */
static void resolve(fl_engine *e, struct work *work, const fl_store_want *want)
{
    bool done = applied(work, want);
    fl__assert(work->in_doubt);
    fl__doubt_end(e, work);
    if (done && work->group)
        fl__group_found(e, work->group, want + 1);
    const fl_row *row = done && work->new_key.seq ? &want->row : NULL;
    if (row && !is_missing(e, row))
        row = NULL;
    if (work->kind != WORK_CLIENT && done)
        fl__settle_applied(e, work, row);
    else if (work->kind != WORK_CLIENT)
        fl__settle_continue(e, work);
    else if (done)
        fl__ops_applied(e, work, row);
    else
        fl__ops_not_applied(e, work);
}

/* The number of rows to read for a work. */
static size_t wants_of(const struct work *work)
{
    return 1 + (work->group ? work->group->count : 0);
}

static void doubts_answered(fl_store_request *request)
{
    struct find *find = (struct find *)request;
    fl_engine *e = find->engine;
    fl__assert(e->doubts_busy > 0);
    e->doubts_busy--;
    fl__engine_answered(e, request);
    fl_store_want *want = find->wants;
    for (size_t i = 0; i < find->count; i++) {
        struct work *work = find->works[i];
        size_t wanted = wants_of(work);
        if (e->state != ENGINE_RUNNING)
            fl__work_end(e, work);
        else if (request->result < 0)
            fl__doubt(e, work);
        else
            resolve(e, work, want);
        want += wanted;
    }
    fl__release(find);
    fl__ops_deliver(e);
}

/* Takes as many works as fit; one group always fits. */
static size_t wants_to_ask(const fl_engine *e)
{
    size_t count = 0;
    for (const struct work *work = e->doubts.first; work; work = work->next) {
        if (count > 0 && count + wants_of(work) > WRITE_MOST)
            break;
        count += wants_of(work);
    }
    return count;
}

static void ask_works(fl_engine *e)
{
    size_t count = wants_to_ask(e), asked = 0;
    struct find *find = count > 0 ? fl__find_new(e, count) : NULL;
    if (!find)
        return;
    while (asked < count) {
        struct work *work = fl__queue_pop(&e->doubts);
        fl__assert(work->in_doubt && asked + wants_of(work) <= count);
        find->wants[asked].id = work->id;
        if (work->group)
            fl__group_want(work->group, &find->wants[asked + 1]);
        find->works[find->count++] = work;
        asked += wants_of(work);
    }
    e->doubts_busy++;
    e->stats.store_finds++;
    fl__engine_submit_request(e, &find->request, FL_STORE_FIND, doubts_answered);
}

/* --- Perhaps created ---------------------------------------------------------------------------------------------- */

/* Asks the store whether it has the row of this key. */
void fl__doubt_unsure(fl_engine *e, fl_key key, uint32_t space)
{
    if (e->unsure_count == e->unsure_capacity) {
        size_t capacity = e->unsure_capacity * 2 + 16;
        struct unsure *list = fl__resize(e->unsure, capacity * sizeof *list);
        if (!list) {
            fl__engine_restart(e, "out of memory: cannot find out whether a timer was created");
            return;
        }
        e->unsure = list;
        e->unsure_capacity = capacity;
    }
    fl__assert(e->unsure_count < e->unsure_capacity);
    e->unsure[e->unsure_count++] = (struct unsure){key, space};
    ask_in(e, 0);
}

static struct unsure *find_unsure(const fl_engine *e, uint64_t seq)
{
    for (size_t i = 0; i < e->unsure_count; i++)
        if (e->unsure[i].key.seq == seq)
            return &e->unsure[i];
    return NULL;
}

/* The item of a key, in a span or in flight; NULL: it is not in memory. */
static struct item *item_of(fl_engine *e, fl_key key)
{
    uint32_t flight = fl__flight_find(e, key.seq);
    return flight ? e->flights.list[flight].item : fl__memory_find(e, key);
}

/* The timer is settled or does not exist. It was never counted. */
void fl__doubt_forget(fl_engine *e, uint64_t seq)
{
    struct unsure *unsure = find_unsure(e, seq);
    if (unsure)
        *unsure = e->unsure[--e->unsure_count];
}

/* The row is in the store. From now on it is a row like any other. */
void fl__doubt_found(fl_engine *e, uint64_t seq)
{
    const struct unsure *unsure = find_unsure(e, seq);
    if (!unsure)
        return;
    struct item *item = item_of(e, unsure->key);
    if (item)
        item->flags &= (uint8_t)~ITEM_UNSURE;
    fl__count(e, unsure->space, 1);
    fl__doubt_forget(e, seq);
}

/* The row is not in the store. If its timer already fires, it is not filed again, whatever the outcome. */
static void ghost_gone(fl_engine *e, fl_key key)
{
    uint32_t flight = fl__flight_find(e, key.seq);
    struct item *item = item_of(e, key);
    fl__assert(!flight || item);
    fl__doubt_forget(e, key.seq);
    if (flight && e->flights.list[flight].state == FLIGHT_WAITING && fl__lane_withdraw(e, flight)) {
        fl__flight_end(e, flight);
    } else if (flight) {
        e->flights.list[flight].superseded = true;
        item->flags &= (uint8_t)~ITEM_UNSURE;
    } else if (item) {
        fl__memory_remove(e, item);
    }
}

/* Whether `want` asks for the timer of this key. By name, only a timer in memory matters: another does not fire, and waits
 * for the answer to its own question. */
static bool is_wanted(fl_engine *e, fl_key key, const fl_store_want *want)
{
    fl_row row;
    if (want->name.size == 0)
        return key.seq == want->id.seq;
    const struct item *item = item_of(e, key);
    if (!item)
        return false;
    fl__item_row(e, item, &row);
    return same_bytes(row.name, want->name) && same_bytes(row.ns, want->ns);
}

/* An operation has read that the timer does not exist. So the timer must not fire. */
void fl__doubt_not_found(fl_engine *e, const fl_store_want *want)
{
    for (size_t i = e->unsure_count; i-- > 0;)
        if (is_wanted(e, e->unsure[i].key, want))
            ghost_gone(e, e->unsure[i].key);
}

static void unsure_answered(fl_store_request *request)
{
    struct find *find = (struct find *)request;
    fl_engine *e = find->engine;
    fl__assert(e->doubts_busy > 0);
    e->doubts_busy--;
    fl__engine_answered(e, request);
    for (size_t i = 0; i < find->request.find.count && request->result == 0 && e->state == ENGINE_RUNNING; i++) {
        if (find->wants[i].found)
            fl__doubt_found(e, find->wants[i].id.seq);
        else if (find_unsure(e, find->wants[i].id.seq))
            ghost_gone(e, find->wants[i].id);
    }
    fl__release(find);
    if (e->unsure_count > 0 && e->state == ENGINE_RUNNING)
        fl__doubts_ask_later(e);
}

static void ask_unsure(fl_engine *e)
{
    size_t count = e->unsure_count < WRITE_MOST ? e->unsure_count : WRITE_MOST;
    struct find *find = count > 0 ? fl__find_new(e, count) : NULL;
    if (!find)
        return;
    for (size_t i = 0; i < count; i++)
        find->wants[i].id = e->unsure[i].key;
    e->doubts_busy++;
    e->stats.store_finds++;
    fl__engine_submit_request(e, &find->request, FL_STORE_FIND, unsure_answered);
}

/* Called by an alarm. */
void fl__doubts_ask(fl_engine *e)
{
    e->ask_ns = 0;
    if (e->state != ENGINE_RUNNING)
        return;
    if (e->doubts_busy == 0) {
        ask_works(e);
        ask_unsure(e);
    }
    for (size_t count = e->to_repeat.count; count > 0; count--)
        fl__settle_continue(e, fl__queue_pop(&e->to_repeat));
    if (e->doubts.count + e->unsure_count + e->to_repeat.count > 0)
        fl__doubts_ask_later(e);
}
