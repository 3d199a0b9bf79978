/* SPDX-License-Identifier: MIT */
/* Changes of which nobody knows whether they took effect, because the store did not answer in time.
 *
 * The store promises that from then on everybody sees either all of such a change or nothing. So the engine asks what is
 * there, as often as it takes to get an answer. Meanwhile:
 *
 *   - A timer that was perhaps created is in memory, marked as unsure, and fires if its time comes first: it is better to
 *     fire what its creator believes lost than to lose what is there. When the answer is that it is not there, it goes; and
 *     before there is an answer, it is not filed again.
 *   - A timer that was perhaps moved, replaced or cancelled is held: it does not fire before it is known when it should.
 *     So is what it has perhaps become, if that is loaded meanwhile.
 *   - An attempt that was perhaps settled stays among those that are not, so that progress does not pass it.
 */

#include "engine/internal.h"

/* Rings then, or earlier if it was to ring earlier: whatever comes in meanwhile does not put off what waits. */
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
    ask_in(e, work->in_doubt ? SECOND_US * NS_PER_US / 10 : 0);
    if (!work->in_doubt) {
        work->in_doubt = true;
        work->next_in_doubt = e->in_doubt;
        e->in_doubt = work;
        if (work->new_key.seq) /* nobody has seen it yet, so nobody holds it */
            fl__lock(e, &work->new_lock, lock_of_seq(work->new_key.seq), NULL);
    }
    fl__queue_push(&e->doubts, work);
}

/* It is known now, or no longer matters. */
void fl__doubt_end(fl_engine *e, struct work *work)
{
    if (!work->in_doubt)
        return;
    struct work **link = &e->in_doubt;
    while (*link != work)
        link = &(*link)->next_in_doubt;
    *link = work->next_in_doubt;
    work->in_doubt = false;
    fl__progress_keep(e, work->new_key);
    fl__unlock(e, &work->new_lock);
}

/* Whether this row may be the work of a change in doubt. Then it is not over, wherever the front is by now. */
bool fl__doubt_about(const fl_engine *e, uint64_t seq)
{
    if (!e->in_doubt || !fl__is_locked(e, lock_of_seq(seq)))
        return false;
    for (const struct work *work = e->in_doubt; work; work = work->next_in_doubt)
        if (work->new_key.seq == seq)
            return true;
    return false;
}

static bool applied(const struct work *work, const fl_store_want *want)
{
    if (work->new_key.seq == 0)
        return !want->found;
    return want->found && want->row.key.seq == work->new_key.seq;
}

static void resolve(fl_engine *e, struct work *work, const fl_store_want *want)
{
    bool done = applied(work, want);
    fl__doubt_end(e, work);
    const fl_row *row = done && work->new_key.seq ? &want->row : NULL;
    if (row && fl__ops_let_go(e, row->key))
        row = NULL; /* a load has brought it */
    else if (row && !behind_front(e, row->key))
        fl__memory_evict(e, row->key); /* others of its time may be ahead of it in the wheel: load it in its turn */
    if (work->kind != WORK_CLIENT && done)
        fl__settle_applied(e, work, row);
    else if (work->kind != WORK_CLIENT)
        fl__settle_continue(e, work);
    else if (done)
        fl__ops_applied(e, work, row);
    else
        fl__ops_not_applied(e, work);
}

static void doubts_answered(fl_store_request *request)
{
    struct find *find = (struct find *)request;
    fl_engine *e = find->engine;
    e->doubts_busy--;
    fl__engine_answered(e, request);
    for (size_t i = 0; i < find->count; i++) {
        struct work *work = find->works[i];
        if (e->state != ENGINE_RUNNING)
            fl__work_end(e, work);
        else if (request->result < 0)
            fl__doubt(e, work);
        else
            resolve(e, work, &find->wants[i]);
    }
    fl__release(find);
    fl__ops_deliver(e);
}

static void ask_works(fl_engine *e)
{
    size_t count = e->doubts.count < WRITE_MOST ? e->doubts.count : WRITE_MOST;
    struct find *find = count > 0 ? fl__find_new(e, count) : NULL;
    if (!find)
        return;
    while (find->count < count) {
        struct work *work = fl__queue_pop(&e->doubts);
        find->wants[find->count].id = work->id;
        find->works[find->count++] = work;
    }
    e->doubts_busy++;
    e->stats.store_finds++;
    fl__engine_submit_request(e, &find->request, FL_STORE_FIND, doubts_answered);
}

/* --- Perhaps created ---------------------------------------------------------------------------------------------- */

/* Without memory for the list, the item is like any other: it fires in any case. */
void fl__doubt_unsure(fl_engine *e, struct item *item)
{
    if (e->unsure_count == e->unsure_capacity) {
        size_t capacity = e->unsure_capacity * 2 + 16;
        struct item **list = fl__resize(e->unsure, capacity * sizeof(struct item *));
        if (!list)
            return;
        e->unsure = list;
        e->unsure_capacity = capacity;
    }
    item->flags |= ITEM_UNSURE;
    e->unsure[e->unsure_count++] = item;
    ask_in(e, 0);
}

void fl__doubt_forget(fl_engine *e, struct item *item)
{
    for (size_t i = 0; i < e->unsure_count; i++)
        if (e->unsure[i] == item) {
            e->unsure[i] = e->unsure[--e->unsure_count];
            break;
        }
    item->flags &= (uint8_t)~ITEM_UNSURE;
}

/* It may have fired and gone meanwhile, so it is looked for by its number. */
static struct item *unsure_item(const fl_engine *e, uint64_t seq)
{
    for (size_t i = 0; i < e->unsure_count; i++)
        if (e->unsure[i]->seq == seq)
            return e->unsure[i];
    return NULL;
}

/* One that fires already is not filed again, whatever comes of it. */
static void ghost_gone(fl_engine *e, struct item *item)
{
    uint32_t flight = fl__flight_find(e, item->seq);
    if (!flight) {
        fl__memory_remove(e, item);
    } else {
        e->flights.list[flight].superseded = true;
        fl__doubt_forget(e, item);
    }
}

static bool is_wanted(const fl_engine *e, const struct item *item, const fl_store_want *want)
{
    fl_row row;
    if (want->name.size == 0)
        return item->seq == want->id.seq;
    fl__item_row(e, item, &row);
    return same_bytes(row.name, want->name) && same_bytes(row.ns, want->ns);
}

/* Somebody else has asked, and been told that it is not there: so it must not fire. */
void fl__doubt_not_found(fl_engine *e, const fl_store_want *want)
{
    for (size_t i = e->unsure_count; i-- > 0;)
        if (is_wanted(e, e->unsure[i], want))
            ghost_gone(e, e->unsure[i]);
}

static void unsure_answered(fl_store_request *request)
{
    struct find *find = (struct find *)request;
    fl_engine *e = find->engine;
    e->doubts_busy--;
    fl__engine_answered(e, request);
    for (size_t i = 0; i < find->request.find.count && request->result == 0 && e->state == ENGINE_RUNNING; i++) {
        struct item *item = unsure_item(e, find->wants[i].id.seq);
        if (item && find->wants[i].found) {
            fl__doubt_forget(e, item); /* a row like any other */
            e->stats.pending++;
        } else if (item) {
            ghost_gone(e, item);
        }
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
        find->wants[i].id = item_key(e->unsure[i]);
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
