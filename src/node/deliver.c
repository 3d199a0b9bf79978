/* SPDX-License-Identifier: MIT */
/* From due timers to attempts, when their namespace may begin them (pacing.c), and what became of them. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/internal.h"

static void settle(struct shard *shard, const fl_settlement *settlement)
{
    if (shard->engine)
        fl_engine_settle(shard->engine, settlement, 1);
}

/* --- Settled ------------------------------------------------------------------------------------------------------ */

void deliver_settle(struct shard *shard, const fl_firing *firing, const fl_settlement *settlement,
                    const struct tried *tried)
{
    struct space *space = space_of(shard->worker->node, firing->timer.ns);
    const struct node_ports *ports = shard->worker->node->ports;
    enum fl_settle result = settlement->result;
    if (result == FL_DONE || result == FL_AGAIN)
        ports->publish(shard->worker, EVENT_FIRED, shard->number, &firing->timer, settlement->reason);
    else if (result == FL_FAILED || result == FL_DEAD)
        ports->publish(shard->worker, EVENT_FAILED, shard->number, &firing->timer, settlement->reason);
    if (result == FL_FAILED)
        attempts_log(shard->worker, false, shard->number, &firing->timer, settlement->reason);
    else if (result == FL_DONE && settlement->reason.size > 0)
        attempts_log_ignored(shard->worker, shard->number, &firing->timer, settlement->reason);
    if (result == FL_DONE || result == FL_AGAIN)
        stats_count(shard->worker, space, STATS_FIRED);
    else if (result == FL_FAILED || result == FL_DEAD || result == FL_EXPIRED)
        stats_count(shard->worker, space, STATS_FAILED);
    if (space && (result == FL_DONE || result == FL_AGAIN))
        atomic_fetch_add_explicit(&space->fired, 1, memory_order_relaxed);
    if (space && (result == FL_FAILED || result == FL_DEAD))
        atomic_fetch_add_explicit(&space->failed, 1, memory_order_relaxed);
    if (result == FL_DONE)
        schedule_nudge(shard, &firing->timer);
    history_settled(shard, space, firing, settlement, tried);
    settle(shard, settlement);
}

static void tally(struct latencies *histogram, uint64_t ns)
{
    unsigned bucket = 0;
    for (uint64_t limit_ns = LATENCY_FIRST_NS; bucket < LATENCY_BUCKETS - 1 && ns > limit_ns; limit_ns *= 2)
        bucket++;
    histogram->buckets[bucket]++;
    histogram->sum_ns += ns;
}

static void count_lateness(struct worker *worker, struct space *space, const fl_durable *timer, int64_t now_us)
{
    int64_t since_us = timer->due_us > timer->created_us ? timer->due_us : timer->created_us;
    if (timer->attempt != 1)
        return;
    uint64_t late_ns = now_us > since_us ? (uint64_t)(now_us - since_us) * 1000 : 0;
    stats_late(worker, space, late_ns);
    tally(&worker->lateness, late_ns);
}

/* The attempt may outlive the settings. */
static void copy_secrets(struct attempt *attempt, const struct settings *settings)
{
    fl__assert(settings->secret_count <= 2);
    for (; attempt->secret_count < settings->secret_count; attempt->secret_count++) {
        fl_bytes secret = settings->secrets[attempt->secret_count];
        void *room = attempt->secret_room[attempt->secret_count];
        fl__assert(secret.size <= SECRET_MOST);
        memcpy(room, secret.data, secret.size);
        attempt->secrets[attempt->secret_count] = (fl_bytes){room, secret.size};
    }
}

static void attempt_free(struct attempt *attempt)
{
    if (attempt->secret_count > 0)
        explicit_bzero(attempt->secret_room, sizeof attempt->secret_room);
    free(attempt);
}

/* It has waited, and the process may have been stopped meanwhile: then another server may have the shard. Or its namespace or its host
 * has been paused. */
bool attempt_begin(struct attempt *attempt)
{
    const struct shard *shard = attempt->shard;
    if (!shard->engine || timer_is_paused(shard->worker->node, &attempt->firing.timer) ||
        !fl_engine_begin(shard->engine, attempt->firing.token, true))
        return false;
    attempt->began_us = node_now(shard->worker->node);
    attempt->begun = true;
    host_begins(attempt);
    return true;
}

/* It is to be cancelled, replaced or changed. */
static bool withdraw(struct waiter *waiter)
{
    struct attempt *attempt = (struct attempt *)waiter;
    struct shard *shard = attempt->shard;
    if (!shard->worker->node->ports->cancel(shard->worker, attempt))
        return false;
    host_left(shard->worker, attempt, false);
    attempt_free(attempt);
    fl__assert(shard->delivering > 0);
    shard->delivering--;
    return true;
}

static void put_off(struct shard *shard, uint64_t token, int64_t at_us)
{
    settle(shard, &(fl_settlement){.token = token, .result = FL_LATER, .at_us = at_us});
}

/* Of a shard that is being given up, what has not ended is not settled: the next owner fires it. */
void attempt_done(struct attempt *attempt)
{
    struct shard *shard = attempt->shard;
    struct worker *worker = shard->worker;
    fl__assert(shard->delivering > 0);
    host_left(worker, attempt, attempt->result != FL_LATER);
    if (attempt->result != FL_LATER) {
        worker->counts.webhook_status[attempt->status / 100 % 6]++;
        tally(&worker->durations, attempt->duration_ns);
    }
    fl_settlement settlement = {
        .token = attempt->firing.token, .result = attempt->result, .at_us = attempt->at_us, .reason = attempt->reason};
    bool gives_up = shard_is_leaving(shard) || atomic_load_explicit(&worker->node->stopping, memory_order_relaxed);
    if (attempt->result != FL_LATER)
        deliver_settle(shard, &attempt->firing, &settlement,
                       &(struct tried){.began_us = attempt->began_us,
                                       .took_us = attempt->duration_ns / 1000,
                                       .status = (uint32_t)attempt->status,
                                       .last = attempt->last,
                                       .response = attempt->response});
    else if (!gives_up)
        put_off(shard, attempt->firing.token, attempt->at_us);
    attempt_free(attempt);
    shard->delivering--;
    shard_leave_on(shard);
}

/* --- Out ---------------------------------------------------------------------------------------------------------- */

/* Whether the retry policy allows no further attempt. */
bool is_last_attempt(const struct node *node, const fl_durable *timer)
{
    const fl_retry *retry = timer->retry.initial_us > 0 ? &timer->retry : &node->config.engine.retry;
    return retry->max_attempts > 0 && timer->attempt >= retry->max_attempts;
}

/* A timer has the time in its ID at which it was first due, or at which it was created if that was later. When it was moved or comes again,
 * it has another due time: that is another firing than the first. What is kept of `created_us` is rounded down to a millisecond. */
static void name_firing(struct attempt *attempt)
{
    const fl_durable *timer = &attempt->firing.timer;
    fl_id_format(attempt->shard->number, timer->id, attempt->id);
    if (timer->due_us != timer->id.at_us && timer->due_us >= timer->created_us + 1000)
        snprintf(attempt->id + FL_ID_TEXT, sizeof attempt->id - FL_ID_TEXT, "-%" PRIx64, (uint64_t)timer->due_us);
}

static void call_target(struct shard *shard, const fl_firing *firing, int64_t now_us)
{
    struct worker *worker = shard->worker;
    const struct node_ports *ports = worker->node->ports;
    if (atomic_load_explicit(&worker->node->stopping, memory_order_relaxed))
        return; /* there may be no webhooks any more. It is not settled, so it fires again when the server is back */
    struct space *space = space_of(worker->node, firing->timer.ns);
    struct attempt *attempt = space ? malloc(sizeof *attempt + ports->attempt_room) : NULL;
    if (!attempt) {
        put_off(shard, firing->token, now_us + 1000000); /* when there is memory again */
        return;
    }
    const struct settings *settings = atomic_load_explicit(&space->settings, memory_order_acquire);
    int64_t at_us = pace_begin_us(worker, space, settings, firing, now_us);
    if (at_us > now_us) {
        free(attempt);
        put_off(shard, firing->token, at_us);
        return;
    }
    *attempt = (struct attempt){
        .waiter = {withdraw}, .shard = shard, .firing = *firing, .last = is_last_attempt(worker->node, &firing->timer)};
    uint32_t lane = lane_of_host(ports->prepare(attempt));
    if (!fl_engine_wait(shard->engine, firing->token, lane, &attempt->waiter)) {
        free(attempt); /* too much waits for this host: the engine has parked it */
        return;
    }
    count_lateness(worker, space, &firing->timer, now_us);
    copy_secrets(attempt, settings);
    attempt->keep = settings->history.only == HISTORY_ONLY_ALL ? settings->history.body : 0;
    attempt->keep_failed = settings->history.only != HISTORY_ONLY_NONE ? settings->history.body : 0;
    name_firing(attempt);
    host_waits(worker, attempt);
    fl__assert(shard->engine && !attempt->begun);
    shard->delivering++;
    ports->deliver(worker, attempt);
}

/* Timers of one namespace usually come together: it is looked up once for all of them. */
static void count_polled(struct worker *worker, const fl_firing *firings, size_t count, int64_t now_us)
{
    struct space *space = NULL;
    for (size_t i = 0; i < count; i++) {
        const fl_durable *timer = &firings[i].timer;
        if (!space || space->size != timer->ns.size || memcmp(space->name, timer->ns.data, timer->ns.size) != 0)
            space = space_of(worker->node, timer->ns);
        count_lateness(worker, space, timer, now_us);
    }
}

static bool is_polled(const fl_durable *timer)
{
    return timer->target.size == 0 && !is_own_namespace(timer->ns);
}

void deliver(struct shard *shard, const fl_firing *firings, size_t count)
{
    int64_t now_us = node_now(shard->worker->node);
    bool pauses = atomic_load_explicit(&shard->worker->node->has_pauses, memory_order_relaxed);
    for (size_t i = 0; i < count;) {
        if (is_schedule_namespace(firings[i].timer.ns)) {
            schedule_fire(shard, &firings[i++]);
            continue;
        }
        if (is_own_namespace(firings[i].timer.ns)) { /* a row of the server's own that has served its time */
            settle(shard, &(fl_settlement){.token = firings[i++].token, .result = FL_DONE});
            continue;
        }
        if (pauses && pause_takes(shard, &firings[i], now_us)) {
            i++;
            continue;
        }
        if (firings[i].timer.target.size > 0) {
            call_target(shard, &firings[i++], now_us);
            continue;
        }
        size_t first = i;
        for (i++; i < count && is_polled(&firings[i].timer) && !pauses;) /* with pauses, each is looked at */
            i++;
        count_polled(shard->worker, &firings[first], i - first, now_us);
        pull_add(shard, &firings[first], i - first);
    }
}
