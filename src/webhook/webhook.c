/* SPDX-License-Identifier: MIT */
/* The interface, and the task that begins attempts.
 *
 * Everything that is not done on the spot is done by one task that is posted to the loop: it reports attempts that ended early,
 * and begins attempts, one per host and turn, as long as there is room. The memory of the task is here, so posting it cannot
 * fail, and `done` is never called from inside webhooks_submit(). */

#include "webhook/webhook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <foliot/version.h>

#include "base/assert.h"
#include "webhook/internal.h"

static const uint64_t second_ns = 1000000000;

enum {
    SWEEP_S = 30,  /* how often unused memory and connections are freed */
    FORGET_S = 60, /* when a host or a connection counts as unused */
};

int64_t webhook_now_us(const webhooks *hooks)
{
    fl_wall_clock *clock = hooks->config.clock;
    return clock->now_us(clock);
}

uint64_t webhook_now_ns(const webhooks *hooks)
{
    return fl_loop_now_ns(hooks->config.loop);
}

void webhook_post(webhooks *hooks)
{
    if (hooks->posted)
        return;
    hooks->posted = true;
    fl_loop_post_task(hooks->config.loop, &hooks->task);
}

void webhook_count(struct webhooks_stats *stats, enum fl_settle result)
{
    stats->done += result == FL_DONE;
    stats->again += result == FL_AGAIN;
    stats->failed += result == FL_FAILED;
    stats->dead += result == FL_DEAD;
    stats->put_off += result == FL_LATER;
}

/* --- Attempts that end without having begun ----------------------------------------------------------------------- */

void webhook_end_early(webhooks *hooks, webhook_attempt *attempt, enum fl_settle result, const char *reason)
{
    fl__assert(!attempt->host);
    attempt->result = result;
    snprintf(attempt->reason, sizeof attempt->reason, "%s", reason);
    TAILQ_INSERT_TAIL(&hooks->finished, attempt, entry);
    webhook_post(hooks);
}

static void put_off(webhooks *hooks, webhook_attempt *attempt, const char *reason)
{
    attempt->at_us = webhook_now_us(hooks) + 1000000;
    webhook_end_early(hooks, attempt, FL_LATER, reason);
}

/* Those that end because one of these is reported are reported in the next turn. */
static void report_finished(webhooks *hooks)
{
    struct webhook_queue now = TAILQ_HEAD_INITIALIZER(now);
    TAILQ_CONCAT(&now, &hooks->finished, entry);
    webhook_attempt *attempt;
    while ((attempt = TAILQ_FIRST(&now))) {
        TAILQ_REMOVE(&now, attempt, entry);
        webhook_count(&hooks->stats, attempt->result);
        attempt->done(attempt);
    }
}

/* --- The task ----------------------------------------------------------------------------------------------------- */

static void begin_attempts(webhooks *hooks)
{
    struct webhook_host *host;
    while ((host = webhook_next_host(hooks))) {
        fl__assert(host->takes_turns && host->waiting_count > 0);
        webhook_attempt *attempt = TAILQ_FIRST(&host->waiting);
        webhook_unwait(hooks, attempt);
        if (!attempt->may_begin || attempt->may_begin(attempt))
            webhook_begin(hooks, host, attempt);
        else
            put_off(hooks, attempt, "the attempt must not begin any more");
        webhook_host_changed(hooks, host);
    }
}

static void free_all(webhooks *hooks)
{
    webhook_hosts_free(hooks, UINT64_MAX);
    webhook_free_spare(hooks);
    webhook_curl_free(hooks->curl);
    EVP_MAC_CTX_free(hooks->signer);
    fl__hash_free(&hooks->hosts);
    free(hooks->buffer);
    free(hooks);
}

static void end(webhooks *hooks)
{
    fl_loop *loop = hooks->config.loop;
    fl_loop_fn stopped = hooks->stopped;
    void *arg = hooks->stopped_arg;
    fl__assert(LIST_EMPTY(&hooks->under_way) && hooks->stats.waiting == 0);
    fl_loop_cancel(loop, hooks->sweep);
    if (hooks->patience)
        fl_loop_cancel(loop, hooks->patience);
    free_all(hooks);
    stopped(loop, arg);
}

static void run_task(fl_loop *loop, void *arg)
{
    webhooks *hooks = arg;
    (void)loop;
    fl__assert(hooks->posted);
    hooks->posted = false;
    webhook_curl_poke(hooks->curl);
    report_finished(hooks);
    begin_attempts(hooks);
    if (hooks->stopping && hooks->stats.under_way == 0 && TAILQ_EMPTY(&hooks->finished))
        end(hooks);
}

static void sweep(fl_loop *loop, void *arg)
{
    webhooks *hooks = arg;
    uint64_t now = fl_loop_now_ns(loop);
    webhook_free_spare(hooks);
    if (now > FORGET_S * second_ns)
        webhook_hosts_free(hooks, now - FORGET_S * second_ns);
}

/* --- The interface ------------------------------------------------------------------------------------------------ */

static void set_defaults(struct webhooks_config *config)
{
    if (!config->clock)
        config->clock = fl_wall_clock_system();
    if (config->max_under_way == 0)
        config->max_under_way = 1000;
    if (config->max_per_host == 0)
        config->max_per_host = 100;
    if (config->timeout_us == 0)
        config->timeout_us = 30000000;
    if (config->max_redirects == 0)
        config->max_redirects = 5;
    if (!config->user_agent)
        config->user_agent = "foliot/" FL_VERSION;
}

int webhooks_new(const struct webhooks_config *config, webhooks **ret)
{
    if (!config->loop)
        return FL_INVALID_ARGUMENT;
    webhooks *hooks = calloc(1, sizeof *hooks);
    if (!hooks)
        return FL_NO_MEMORY;
    hooks->config = *config;
    set_defaults(&hooks->config);
    hooks->task = (fl_loop_task){.fn = run_task, .arg = hooks};
    TAILQ_INIT(&hooks->turns);
    TAILQ_INIT(&hooks->finished);
    LIST_INIT(&hooks->under_way);
    LIST_INIT(&hooks->spare);
    hooks->buffer = malloc(WEBHOOK_BUFFER);
    hooks->signer = webhook_signer();
    if (!hooks->buffer || !hooks->signer || webhook_curl_new(hooks, &hooks->curl) < 0 ||
        fl_loop_interval(config->loop, SWEEP_S * second_ns, FL_TIMER_UNREF, sweep, hooks, &hooks->sweep) < 0) {
        free_all(hooks);
        return FL_NO_MEMORY;
    }
    *ret = hooks;
    return 0;
}

void webhooks_submit(webhooks *hooks, webhook_attempt *attempt)
{
    fl__assert(attempt->target.url.data && attempt->done);
    attempt->at_us = 0;
    attempt->status = 0;
    attempt->duration_ns = 0;
    attempt->reason[0] = '\0';
    attempt->host = NULL;
    if (hooks->stopping) {
        put_off(hooks, attempt, "the server is stopping");
        return;
    }
    if (attempt->target.problem) {
        webhook_end_early(hooks, attempt, FL_DEAD, attempt->target.problem);
        return;
    }
    struct webhook_host *host = webhook_host_of(hooks, &attempt->target);
    if (!host) {
        webhook_end_early(hooks, attempt, FL_FAILED, webhook_why_not(FL_NO_MEMORY));
        return;
    }
    webhook_wait(hooks, host, attempt);
    webhook_post(hooks);
}

bool webhooks_cancel(webhooks *hooks, webhook_attempt *attempt)
{
    struct webhook_host *host = attempt->host;
    if (!host)
        return false;
    webhook_unwait(hooks, attempt);
    webhook_host_changed(hooks, host);
    return true;
}

static void withdraw_waiting(webhooks *hooks, struct webhook_host *host,
                             bool (*which)(const webhook_attempt *attempt, void *arg), void *arg)
{
    for (webhook_attempt *attempt = TAILQ_FIRST(&host->waiting), *next; attempt; attempt = next) {
        next = TAILQ_NEXT(attempt, entry);
        if (!which(attempt, arg))
            continue;
        webhook_unwait(hooks, attempt);
        webhook_end_early(hooks, attempt, FL_LATER, "the attempt was withdrawn");
    }
    webhook_host_changed(hooks, host);
}

void webhooks_withdraw(webhooks *hooks, bool (*which)(const webhook_attempt *attempt, void *arg), void *arg, bool begun)
{
    for (struct hash_link *link = NULL; (link = fl__hash_walk(&hooks->hosts, link));)
        withdraw_waiting(hooks, hash_entry(link, struct webhook_host, by_name), which, arg);
    for (struct webhook_slot *slot = LIST_FIRST(&hooks->under_way), *next; begun && slot; slot = next) {
        next = LIST_NEXT(slot, entry);
        if (which(slot->attempt, arg))
            webhook_stop_slot(slot, FL_LATER, "the attempt was withdrawn");
    }
}

/* --- Stopping ----------------------------------------------------------------------------------------------------- */

static void out_of_patience(fl_loop *loop, void *arg)
{
    webhooks *hooks = arg;
    (void)loop;
    hooks->patience = 0;
    while (!LIST_EMPTY(&hooks->under_way))
        webhook_stop_slot(LIST_FIRST(&hooks->under_way), FL_FAILED, "the server stopped before the target responded");
}

static void put_off_waiting(webhooks *hooks, struct webhook_host *host)
{
    webhook_attempt *attempt;
    while ((attempt = TAILQ_FIRST(&host->waiting))) {
        webhook_unwait(hooks, attempt);
        put_off(hooks, attempt, "the server is stopping");
    }
    webhook_host_changed(hooks, host);
}

void webhooks_stop(webhooks *hooks, uint64_t patience_us, fl_loop_fn done, void *arg)
{
    uint64_t patience_ns;
    fl__assert(!hooks->stopping && done);
    hooks->stopping = true;
    hooks->stopped = done;
    hooks->stopped_arg = arg;
    for (struct hash_link *link = NULL; (link = fl__hash_walk(&hooks->hosts, link));)
        put_off_waiting(hooks, hash_entry(link, struct webhook_host, by_name));
    if (__builtin_mul_overflow(patience_us, 1000, &patience_ns))
        patience_ns = UINT64_MAX;
    if (fl_loop_timer(hooks->config.loop, patience_ns, out_of_patience, hooks, &hooks->patience) < 0)
        out_of_patience(hooks->config.loop, hooks);
    webhook_post(hooks);
}

void webhooks_get_stats(const webhooks *hooks, struct webhooks_stats *ret)
{
    *ret = hooks->stats;
}
