/* SPDX-License-Identifier: MIT */
/* The requests of a shard: their order, their time-outs, their answers.
 *
 * Requests wait in a list, the first PG_FLIGHTS of them are in a ring of flights. fl__pg_step() runs after everything that
 * happens (a request was submitted, the socket is ready, time has passed): it lets requests into the ring, ends requests that
 * have timed out, sends waiting requests, and answers finished requests at the head of the ring. That is the only place from
 * which `done` is called, so that answers come in order and never inside of fl_store_submit(); and whatever `done` does, it
 * can only add to the list.
 *
 * One timer serves for everything: it is an interval that is moved to the next moment at which there is something to do,
 * which cannot fail for good. An attached shard keeps the loop alive as long as it has requests.
 */

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "store/postgres/postgres.h"

#define HOUR_NS (3600ull * 1000000000)

enum { ARGS_KEPT = 4 << 20, SENT_AHEAD = 8 << 20 };

/* --- Flights ------------------------------------------------------------------------------------------------------ */

static void clear_answer(struct pg_flight *flight)
{
    while (flight->kept_count > 0)
        PQclear(flight->kept[--flight->kept_count]);
    fl__release(flight->block);
    fl__release(flight->keep);
    fl__release(flight->counts);
    fl__release(flight->spans);
    flight->block = flight->keep = flight->counts = flight->spans = NULL;
}

void fl__pg_flight_reset(struct pg_flight *flight)
{
    assert(flight->open == 0);
    clear_answer(flight);
    flight->state = PG_WAITING;
    flight->stage = 0;
    flight->fenced = flight->redo = false;
    flight->request->result = 0;
    flight->request->message[0] = 0;
}

static void finish(struct pg_flight *flight, int result, const char *format, const char *detail)
{
    fl__store_answer(flight->request, result, format, detail);
    flight->state = PG_FINISHED;
}

/* Lets requests into the ring. Returns whether there were any. */
static bool admit(struct pg_shard *shard)
{
    bool any = false;
    for (; shard->first && shard->flight_count < PG_FLIGHTS; any = true) {
        fl_store_request *request = shard->first;
        shard->first = request->next;
        struct pg_flight *flight = fl__pg_flight(shard, shard->flight_count++);
        *flight = (struct pg_flight){.request = request, .state = request->result < 0 ? PG_FINISHED : PG_WAITING};
    }
    return any;
}

/* Answers finished requests. Returns whether there were any. */
static bool answer(struct pg_shard *shard)
{
    bool any = false;
    for (; shard->flight_count > 0 && fl__pg_flight(shard, 0)->state == PG_FINISHED; any = true) {
        struct pg_flight flight = *fl__pg_flight(shard, 0);
        assert(flight.open == 0);
        shard->flight_first = (shard->flight_first + 1) % PG_FLIGHTS;
        shard->flight_count--;
        flight.request->done(flight.request);
        clear_answer(&flight);
        fl_loop_unhold(shard->base.loop);
    }
    return any;
}

/* --- Sending ------------------------------------------------------------------------------------------------------ */

static void send_flight(struct pg_shard *shard, struct pg_flight *flight)
{
    flight->state = PG_SENT;
    flight->size = 0;
    flight->sent_us = fl_wall_clock_system()->now_us(fl_wall_clock_system());
    int r = fl__pg_start(shard, flight);
    if (r < 0)
        finish(flight, r, NULL, NULL);
    else if (flight->open == 0 && !shard->broken) /* there is nothing to ask */
        flight->state = PG_FINISHED;
}

/* Sends what waits, in order, but not more than a few batches ahead: the next may as well wait here. */
static void send_waiting(struct pg_shard *shard)
{
    size_t ahead = 0;
    for (unsigned i = 0; i < shard->flight_count && !shard->broken && ahead < SENT_AHEAD; i++) {
        struct pg_flight *flight = fl__pg_flight(shard, i);
        bool alone = fl__pg_is_alone(flight->request) && flight->state != PG_FINISHED;
        if (alone && i > 0)
            return;
        if (flight->state == PG_WAITING && shard->forgotten && !fl__pg_is_unowned(flight->request))
            fl__pg_refuse_forgotten(flight);
        else if (flight->state == PG_WAITING)
            send_flight(shard, flight);
        if (alone)
            return;
        ahead += flight->state == PG_SENT ? flight->size : 0;
    }
}

/* --- Time-outs ---------------------------------------------------------------------------------------------------- */

/* Whether a request that is not carried out any further may have taken effect. */
static bool is_in_doubt(const struct pg_flight *flight)
{
    return flight->doubt || (flight->state == PG_SENT && fl__store_is_write(flight->request));
}

static void give_up(struct pg_shard *shard, struct pg_flight *flight)
{
    const char *why = shard->trouble[0] ? shard->trouble : "it does not respond";
    if (is_in_doubt(flight))
        finish(flight, FL_OUTCOME_UNKNOWN, "the database did not confirm the write in time: %s", why);
    else
        finish(flight, FL_STORE_UNAVAILABLE, "cannot reach the database: %s", why);
}

/* Ends requests that have timed out. If one of them was sent, the connection is closed: either it hangs, or the database is
 * busy with a request that is no longer wanted. */
static void expire(struct pg_shard *shard, uint64_t now_ns)
{
    bool hanging = false;
    for (unsigned i = 0; i < shard->flight_count; i++) {
        struct pg_flight *flight = fl__pg_flight(shard, i);
        if (flight->state != PG_FINISHED && flight->request->deadline_ns <= now_ns) {
            hanging = hanging || flight->state == PG_SENT;
            give_up(shard, flight);
        }
    }
    if (hanging && shard->conn && shard->state >= PG_READY)
        fl__pg_link_break(shard, "the database did not respond in time");
}

/* What has not been sent will not be. */
static void refuse_waiting(struct pg_shard *shard, const char *why)
{
    for (unsigned i = 0; i < shard->flight_count; i++) {
        struct pg_flight *flight = fl__pg_flight(shard, i);
        if (flight->state == PG_WAITING)
            finish(flight, is_in_doubt(flight) ? FL_OUTCOME_UNKNOWN : FL_STORE_UNAVAILABLE, "%s", why);
    }
}

static void set_timer(struct pg_shard *shard, uint64_t now_ns)
{
    uint64_t next_ns = now_ns + HOUR_NS;
    if (shard->state != PG_READY && shard->state != PG_DRAINING && shard->due_ns < next_ns)
        next_ns = shard->due_ns;
    for (unsigned i = 0; i < shard->flight_count; i++)
        if (fl__pg_flight(shard, i)->state != PG_FINISHED && fl__pg_flight(shard, i)->request->deadline_ns < next_ns)
            next_ns = fl__pg_flight(shard, i)->request->deadline_ns;
    fl_loop_rearm(shard->base.loop, shard->timer, next_ns > now_ns ? next_ns - now_ns : 0);
}

/* --- The step ----------------------------------------------------------------------------------------------------- */

void fl__pg_set_away(struct pg_shard *shard, bool away)
{
    struct pg_store *store = fl__pg_store(shard);
    pthread_mutex_lock(&store->lock);
    store->away += (unsigned)away - (unsigned)shard->away;
    shard->away = away;
    if (away)
        memcpy(store->trouble, shard->trouble, sizeof store->trouble);
    pthread_mutex_unlock(&store->lock);
}

static void end_attachment(struct pg_shard *shard)
{
    fl__pg_link_close(shard);
    fl__pg_set_away(shard, false);
    fl_loop_cancel(shard->base.loop, shard->timer);
    fl__pg_args_release(&shard->args);
    fl__pg_known_release(shard);
    fl_loop *loop = shard->base.loop;
    fl_loop_fn gone = shard->gone;
    void *arg = shard->gone_arg;
    fl__release(shard);
    fl_loop_unhold(loop);
    if (gone)
        gone(loop, arg);
}

void fl__pg_step(struct pg_shard *shard)
{
    uint64_t now_ns = fl_loop_now_ns(shard->base.loop);
    bool busy;
    do {
        busy = admit(shard);
        expire(shard, now_ns);
        fl__pg_link_tick(shard, now_ns);
        if (shard->detaching)
            refuse_waiting(shard, "the shard is being detached");
        else if (shard->state == PG_READY)
            send_waiting(shard);
        else if (shard->node_down) /* waiting here could delay other requests of the caller */
            refuse_waiting(shard, shard->trouble);
        fl__pg_link_watch(shard);
        busy = answer(shard) || busy || shard->broken;
    } while (busy);
    if (shard->args.room > ARGS_KEPT && shard->flight_count == 0)
        fl__pg_args_release(&shard->args);
    if (shard->detaching && shard->flight_count == 0 && !shard->posted)
        end_attachment(shard);
    else
        set_timer(shard, now_ns);
}

static void on_timer(fl_loop *loop, void *arg)
{
    (void)loop;
    fl__pg_step(arg);
}

/* Without a timer nothing can be promised: requests are refused until there is one. */
static bool have_timer(struct pg_shard *shard)
{
    if (shard->has_timer)
        return true;
    shard->has_timer = fl_loop_interval(shard->base.loop, HOUR_NS, FL_TIMER_UNREF, on_timer, shard, &shard->timer) == 0;
    for (fl_store_request *request = shard->first; request && !shard->has_timer; request = request->next)
        if (request->result == 0)
            fl__store_answer(request, FL_NO_MEMORY, NULL);
    return shard->has_timer;
}

static void on_task(fl_loop *loop, void *arg)
{
    (void)loop;
    struct pg_shard *shard = arg;
    shard->posted = false;
    if (have_timer(shard)) {
        fl__pg_step(shard);
        return;
    }
    while (admit(shard))
        answer(shard);
    if (shard->detaching && !shard->posted)
        end_attachment(shard);
}

static void post(struct pg_shard *shard)
{
    if (shard->posted)
        return;
    shard->posted = true;
    fl_loop_post_task(shard->base.loop, &shard->task);
}

/* --- The interface ------------------------------------------------------------------------------------------------ */

static int attach(fl_store *store, uint32_t number, fl_loop *loop, fl_shard **ret)
{
    struct pg_shard *shard = fl__alloc_zeroed(sizeof *shard);
    uint64_t random[2];
    if (!shard)
        return FL_NO_MEMORY;
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        fl__release(shard);
        return FL_SYSTEM;
    }
    shard->base = (fl_shard){store, loop, number};
    shard->fd = -1;
    shard->task = (fl_loop_task){.fn = on_task, .arg = shard};
    shard->base_number = shard->number = shard->sent = shard->applied = random[0] >> 2;
    snprintf(shard->session, sizeof shard->session, "foliot shard %u %016llx", number, (unsigned long long)random[1]);
    post(shard); /* connects, on the loop's thread */
    *ret = &shard->base;
    return 0;
}

static void detach(fl_shard *base, fl_loop_fn done, void *arg)
{
    struct pg_shard *shard = (struct pg_shard *)base;
    shard->detaching = true;
    shard->gone = done;
    shard->gone_arg = arg;
    fl_loop_hold(base->loop);
    post(shard);
}

static void submit(fl_shard *base, fl_store_request *request)
{
    struct pg_shard *shard = (struct pg_shard *)base;
    uint64_t now_ns = fl_loop_now_ns(base->loop), timeout_us = fl__pg_store(shard)->timeout_us;
    request->next = NULL;
    request->deadline_ns = timeout_us < (UINT64_MAX - now_ns) / 1000 ? now_ns + timeout_us * 1000 : UINT64_MAX;
    if (request->op == FL_STORE_BACKUP)
        fl__store_answer(request, FL_INVALID_ARGUMENT,
                         "copy this store with the tools of PostgreSQL: pg_dump, pg_basebackup");
    else
        fl__store_validate(request);
    if (shard->first)
        shard->last->next = request;
    else
        shard->first = request;
    shard->last = request;
    fl_loop_hold(base->loop);
    post(shard);
}

static void close_store(fl_store *store)
{
    pthread_mutex_destroy(&((struct pg_store *)store)->lock);
    fl__release(store);
}

static int64_t clock_ahead_us(const fl_store *store)
{
    return atomic_load_explicit(&((const struct pg_store *)store)->ahead_us, memory_order_relaxed);
}

static bool is_away(fl_store *base, char *message, size_t size)
{
    struct pg_store *store = (struct pg_store *)base;
    pthread_mutex_lock(&store->lock);
    bool away = store->away > 0;
    if (away && size > 0)
        snprintf(message, size, "%s", store->trouble);
    pthread_mutex_unlock(&store->lock);
    return away;
}

const struct fl_store_ops fl__pg_ops = {.close = close_store,
                                        .attach = attach,
                                        .detach = detach,
                                        .submit = submit,
                                        .clock_ahead_us = clock_ahead_us,
                                        .is_away = is_away,
                                        .shared = true};
