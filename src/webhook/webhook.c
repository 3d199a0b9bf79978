/* SPDX-License-Identifier: MIT */
/* Calls and hosts.
 *
 * A call waits in the queue of its host; hosts that have calls waiting and may begin one are in a ring, and each turn of the
 * loop in which something changed begins calls, one a host, round and round, as long as there is room. All that happens in
 * one task that is posted to the loop, whose memory is here: posting cannot fail, and `done` is never called from inside
 * webhooks_submit().
 *
 * A call that has begun is a transfer, with a timer of the loop for its timeout. It ends exactly once: by its answer, by what
 * its transport reports, by its timer, or when the patience of webhooks_stop() is over; each takes it from its transport
 * first. A redirect gives it to a transport again, and the timer goes on. */

#include "webhook/internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <foliot/version.h>

static const uint64_t second_ns = 1000000000;

enum {
    SWEEP_S = 30,  /* how often what nobody uses is freed */
    FORGET_S = 60, /* a host that nobody calls, and a connection */
    LEARN_S = 60,  /* how long an address is good for */
    TABLE_LEAST = 64,
    KEEP_BYTES = 16 << 10, /* of a buffer that is kept for the next transfer */
    SMALL_BODY = 4 << 10,  /* to copy it is cheaper than to send two pieces */
};

int64_t webhook_now_us(const webhooks *hooks)
{
    fl_wall_clock *clock = hooks->config.clock;
    return clock->now_us(clock);
}

static uint64_t now_ns(const webhooks *hooks)
{
    return fl_loop_now_ns(hooks->config.loop);
}

/* The machine's time, for durations: that of the loop stands still within a turn, and many an answer is as fast. */
static uint64_t machine_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * second_ns + (uint64_t)now.tv_nsec;
}

fl_bytes webhook_url(const struct webhook_transfer *transfer)
{
    return transfer->url ? (fl_bytes){transfer->url, strlen(transfer->url)} : transfer->call->url;
}

void webhook_post(webhooks *hooks)
{
    if (hooks->posted)
        return;
    hooks->posted = true;
    fl_loop_post_task(hooks->config.loop, &hooks->task);
}

/* --- Hosts -------------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const char *key, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)key[i]) * 0x100000001b3;
    return hash ^ hash >> 32;
}

static struct webhook_host **find_host(webhooks *hooks, const char *key, size_t size, uint64_t hash)
{
    struct webhook_host **at = &hooks->table[hash & (hooks->table_size - 1)];
    while (*at && ((*at)->hash != hash || (*at)->key_size != size || memcmp((*at)->key, key, size) != 0))
        at = &(*at)->next_in_table;
    return at;
}

/* Doubles the table. Without memory it stays as it is, and is only slower. */
static void grow_table(webhooks *hooks)
{
    size_t size = hooks->table_size * 2;
    struct webhook_host **table = calloc(size, sizeof(struct webhook_host *));
    if (!table)
        return;
    for (size_t i = 0; i < hooks->table_size; i++)
        for (struct webhook_host *host = hooks->table[i], *next; host; host = next) {
            next = host->next_in_table;
            host->next_in_table = table[host->hash & (size - 1)];
            table[host->hash & (size - 1)] = host;
        }
    free(hooks->table);
    hooks->table = table;
    hooks->table_size = size;
}

/* The host of a target, made if it is new; NULL: there was no memory. */
static struct webhook_host *host_of(webhooks *hooks, const struct webhook_target *target)
{
    char key[WEBHOOK_KEY];
    size_t size = webhook_target_key(target, key);
    uint64_t hash = hash_of(key, size);
    struct webhook_host *host = *find_host(hooks, key, size, hash);
    if (host)
        return host;
    if (hooks->host_count >= hooks->table_size)
        grow_table(hooks);
    host = calloc(1, sizeof *host + size);
    if (!host)
        return NULL;
    host->hash = hash;
    host->key_size = size;
    memcpy(host->key, key, size);
    host->next_in_table = NULL;
    *find_host(hooks, key, size, hash) = host;
    hooks->host_count++;
    return host;
}

void webhook_learn(struct webhook_host *host, const struct sockaddr_storage *address, uint64_t now_ns)
{
    if (memcmp(&host->address, address, sizeof *address) != 0)
        host->generation++;
    host->address = *address;
    host->learned_ns = now_ns;
}

void webhook_forget(struct webhook_host *host)
{
    host->address.ss_family = 0;
}

static void enter_ring(webhooks *hooks, struct webhook_host *host)
{
    if (host->next || host->waiting_count == 0 || host->under_way >= hooks->config.max_per_host)
        return;
    struct webhook_host *first = hooks->turn ? hooks->turn : host;
    if (first == host)
        host->next = host->previous = host;
    host->next = first;
    host->previous = first->previous;
    host->previous->next = first->previous = host;
    hooks->turn = first;
    hooks->turn_count++;
}

static void leave_ring(webhooks *hooks, struct webhook_host *host)
{
    if (!host->next || (host->waiting_count > 0 && host->under_way < hooks->config.max_per_host))
        return;
    host->previous->next = host->next;
    host->next->previous = host->previous;
    if (hooks->turn == host)
        hooks->turn = host->next == host ? NULL : host->next;
    host->next = host->previous = NULL;
    hooks->turn_count--;
}

/* --- Calls that end without having begun -------------------------------------------------------------------------- */

static void finish_early(webhooks *hooks, webhook_call *call, enum fl_settle result, const char *reason)
{
    call->result = result;
    snprintf(call->reason, sizeof call->reason, "%s", reason);
    call->next = NULL;
    *hooks->finished_end = call;
    hooks->finished_end = &call->next;
    webhook_post(hooks);
}

/* Not now. */
static void put_off(webhooks *hooks, webhook_call *call, const char *reason)
{
    call->at_us = webhook_now_us(hooks) + 1000000;
    finish_early(hooks, call, FL_LATER, reason);
}

/* --- Transfers ---------------------------------------------------------------------------------------------------- */

static struct webhook_transfer *get_transfer(webhooks *hooks)
{
    struct webhook_transfer *transfer = hooks->spare;
    if (transfer)
        hooks->spare = transfer->next;
    else
        transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return NULL;
    transfer->hooks = hooks;
    transfer->previous = NULL;
    transfer->next = hooks->under_way;
    if (transfer->next)
        transfer->next->previous = transfer;
    hooks->under_way = transfer;
    return transfer;
}

static void trim_text(struct webhook_text *text)
{
    if (text->room > KEEP_BYTES) {
        free(text->data);
        *text = (struct webhook_text){0};
    }
}

static void put_transfer(struct webhook_transfer *transfer)
{
    webhooks *hooks = transfer->hooks;
    if (transfer->previous)
        transfer->previous->next = transfer->next;
    else
        hooks->under_way = transfer->next;
    if (transfer->next)
        transfer->next->previous = transfer->previous;
    free(transfer->url);
    transfer->url = NULL;
    trim_text(&transfer->answer.body);
    trim_text(&transfer->head);
    transfer->next = hooks->spare;
    hooks->spare = transfer;
}

static void free_spare(webhooks *hooks)
{
    struct webhook_transfer *transfer;
    while ((transfer = hooks->spare)) {
        hooks->spare = transfer->next;
        webhook_general_drop(transfer);
        webhook_answer_free(&transfer->answer);
        free(transfer->head.data);
        free(transfer);
    }
}

static void count_result(struct webhooks_stats *stats, enum fl_settle result)
{
    stats->done += result == FL_DONE;
    stats->again += result == FL_AGAIN;
    stats->failed += result == FL_FAILED;
    stats->dead += result == FL_DEAD;
    stats->put_off += result == FL_LATER;
}

/* The call has its result: lets everything go and says so. */
static void finish(struct webhook_transfer *transfer)
{
    webhooks *hooks = transfer->hooks;
    webhook_call *call = transfer->call;
    struct webhook_host *host = transfer->host;
    uint64_t now = now_ns(hooks);
    if (transfer->deadline)
        fl_loop_cancel(hooks->config.loop, transfer->deadline);
    call->duration_ns = machine_ns() - transfer->begun_ns;
    host->used_ns = now;
    host->under_way--;
    hooks->stats.under_way--;
    enter_ring(hooks, host);
    if (hooks->turn || hooks->stopping)
        webhook_post(hooks);
    put_transfer(transfer);
    count_result(&hooks->stats, call->result);
    call->done(call);
}

void webhook_broken(struct webhook_transfer *transfer, enum fl_settle result, const char *format, ...)
{
    webhook_call *call = transfer->call;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call->reason, sizeof call->reason, format, arguments);
    va_end(arguments);
    call->result = result;
    finish(transfer);
}

/* Takes a transfer from its transport before its time. */
static void give_up(struct webhook_transfer *transfer)
{
    webhook_plain_end(transfer);
    webhook_general_end(transfer);
}

static void timed_out(fl_loop *loop, void *arg)
{
    struct webhook_transfer *transfer = arg;
    uint64_t timeout_us = transfer->call->timeout_us;
    (void)loop;
    transfer->deadline = 0;
    give_up(transfer);
    if (timeout_us == 0)
        timeout_us = transfer->hooks->config.timeout_us;
    webhook_broken(transfer, FL_FAILED, "no complete response within %" PRIu64 " ms", (timeout_us + 999) / 1000);
}

/* Whether the fast way is open. When the address gets old, one call is sent the general way to learn it anew. */
static bool can_be_plain(struct webhook_transfer *transfer)
{
    struct webhook_host *host = transfer->host;
    uint64_t now = now_ns(transfer->hooks);
    if (transfer->url || transfer->own || host->address.ss_family == 0)
        return false;
    if (now - host->learned_ns < LEARN_S * second_ns)
        return true;
    host->learned_ns = now;
    transfer->fresh = true;
    return false;
}

static int begin_plain(struct webhook_transfer *transfer)
{
    struct webhook_target target;
    struct webhook_text *head = &transfer->head;
    webhooks *hooks = transfer->hooks;
    webhook_target_parse(transfer->call->url, &target); /* which has been found good */
    webhook_plain_head(head, &target, transfer->call->body.size);
    int result =
        webhook_head(head, &hooks->signer, transfer->call, webhook_now_us(hooks), hooks->config.user_agent, false);
    webhook_text_add(head, "\r\n", 2);
    transfer->tail = transfer->call->body;
    if (transfer->tail.size <= SMALL_BODY) {
        webhook_text_add(head, transfer->tail.data, transfer->tail.size);
        transfer->tail.size = 0;
    }
    if (result == 0 && head->failed)
        result = FL_NO_MEMORY;
    return result < 0 ? result : webhook_plain_begin(transfer);
}

static int begin_general(struct webhook_transfer *transfer)
{
    webhooks *hooks = transfer->hooks;
    int result = webhook_head(&transfer->head, &hooks->signer, transfer->call, webhook_now_us(hooks),
                              hooks->config.user_agent, transfer->stranger);
    return result < 0 ? result : webhook_general_begin(transfer);
}

static void clear(struct webhook_transfer *transfer)
{
    transfer->head.size = 0;
    transfer->head.failed = false;
    webhook_answer_begin(&transfer->answer, 0);
}

/* Gives it to a transport. Returns 0, or what is wrong. */
static int transport(struct webhook_transfer *transfer)
{
    clear(transfer);
    if (can_be_plain(transfer)) {
        int result = begin_plain(transfer);
        if (result != FL_SYSTEM)
            return result;
        webhook_forget(transfer->host);
        clear(transfer);
    }
    return begin_general(transfer);
}

static const char *why_not(int result)
{
    return result == FL_INVALID_ARGUMENT ? "the timer has a forbidden header" : "out of memory";
}

void webhook_repeat(struct webhook_transfer *transfer)
{
    int result = transport(transfer);
    if (result < 0)
        webhook_broken(transfer, FL_FAILED, "%s", why_not(result));
}

/* Begins a call; or ends it, if that is not possible. */
static void begin(webhooks *hooks, struct webhook_host *host, webhook_call *call)
{
    struct webhook_transfer *transfer = get_transfer(hooks);
    if (!transfer) {
        finish_early(hooks, call, FL_FAILED, why_not(FL_NO_MEMORY));
        return;
    }
    transfer->call = call;
    transfer->host = host;
    transfer->begun_ns = machine_ns();
    transfer->deadline = 0;
    transfer->redirects = 0;
    transfer->stranger = false;
    transfer->fresh = call->once;
    transfer->own = !hooks->config.allow_private && webhook_is_own(hooks->config.own, call->url);
    uint64_t timeout_us = call->timeout_us ? call->timeout_us : hooks->config.timeout_us, timeout_ns;
    if (__builtin_mul_overflow(timeout_us, 1000, &timeout_ns))
        timeout_ns = UINT64_MAX;
    int result = fl_loop_timer(hooks->config.loop, timeout_ns, timed_out, transfer, &transfer->deadline);
    if (result == 0)
        result = transport(transfer);
    if (result < 0) {
        if (transfer->deadline)
            fl_loop_cancel(hooks->config.loop, transfer->deadline);
        put_transfer(transfer);
        finish_early(hooks, call, result == FL_INVALID_ARGUMENT ? FL_DEAD : FL_FAILED, why_not(result));
        return;
    }
    host->under_way++;
    hooks->stats.under_way++;
}

/* --- Redirects ---------------------------------------------------------------------------------------------------- */

static bool is_redirect(const struct webhook_answer *answer)
{
    int status = answer->status;
    return (status == 301 || status == 302 || status == 307 || status == 308) && answer->location.size > 1 &&
           !answer->location.failed;
}

/* Where a redirect leads, seen from where it came. Returns 0 and a string to be freed; FL_INVALID_ARGUMENT: nowhere;
 * FL_NO_MEMORY. */
static int resolve(fl_bytes from, const char *location, char **ret)
{
    const unsigned flags = CURLU_NON_SUPPORT_SCHEME | CURLU_URLENCODE | CURLU_PATH_AS_IS;
    char *base = strndup(from.data, from.size), *to = NULL;
    CURLU *url = curl_url();
    CURLUcode code = base && url ? curl_url_set(url, CURLUPART_URL, base, 0) : CURLUE_OUT_OF_MEMORY;
    if (code == CURLUE_OK)
        code = curl_url_set(url, CURLUPART_URL, location, flags);
    if (code == CURLUE_OK)
        code = curl_url_get(url, CURLUPART_URL, &to, 0);
    curl_url_cleanup(url);
    free(base);
    char *copy = to ? strdup(to) : NULL;
    curl_free(to);
    if (!copy)
        return code == CURLUE_OK || code == CURLUE_OUT_OF_MEMORY ? FL_NO_MEMORY : FL_INVALID_ARGUMENT;
    *ret = copy;
    return 0;
}

static void redirect(struct webhook_transfer *transfer)
{
    webhooks *hooks = transfer->hooks;
    struct webhook_host *first = transfer->host;
    struct webhook_target target;
    char key[WEBHOOK_KEY];
    if (transfer->redirects++ == hooks->config.max_redirects) {
        webhook_broken(transfer, FL_FAILED, "redirected more than %u times", (unsigned)hooks->config.max_redirects);
        return;
    }
    char *to;
    int result = resolve(webhook_url(transfer), transfer->answer.location.data, &to);
    if (result < 0) {
        bool memory = result == FL_NO_MEMORY;
        webhook_broken(transfer, memory ? FL_FAILED : FL_DEAD, "%s",
                       memory ? why_not(result) : "redirected to an invalid URL");
        return;
    }
    free(transfer->url);
    transfer->url = to;
    const char *problem = webhook_target_parse(webhook_url(transfer), &target);
    if (problem) {
        webhook_broken(transfer, FL_DEAD, "redirected to a forbidden target: %s", problem);
        return;
    }
    size_t size = webhook_target_key(&target, key);
    transfer->stranger = size != first->key_size || memcmp(key, first->key, size) != 0;
    hooks->stats.redirected++;
    transfer->own = false;
    transfer->fresh = transfer->call->once;
    webhook_repeat(transfer);
}

void webhook_answered(struct webhook_transfer *transfer)
{
    transfer->call->status = transfer->answer.status;
    if (is_redirect(&transfer->answer)) {
        redirect(transfer);
        return;
    }
    webhook_answer_settle(&transfer->answer, webhook_now_us(transfer->hooks), transfer->call);
    finish(transfer);
}

/* --- Turns -------------------------------------------------------------------------------------------------------- */

static void add_waiting(webhooks *hooks, struct webhook_host *host, webhook_call *call)
{
    host->used_ns = now_ns(hooks);
    host->waiting_count++;
    call->host = host;
    call->previous = host->waiting_last;
    if (host->waiting_last)
        host->waiting_last->next = call;
    else
        host->waiting = call;
    host->waiting_last = call;
    hooks->stats.waiting++;
    enter_ring(hooks, host);
}

/* The caller looks whether the host leaves the ring. */
static void unlink_waiting(webhooks *hooks, webhook_call *call)
{
    struct webhook_host *host = call->host;
    if (call->previous)
        call->previous->next = call->next;
    else
        host->waiting = call->next;
    if (call->next)
        call->next->previous = call->previous;
    else
        host->waiting_last = call->previous;
    call->host = NULL;
    call->next = call->previous = NULL;
    host->waiting_count--;
    hooks->stats.waiting--;
}

static webhook_call *take_waiting(webhooks *hooks, struct webhook_host *host)
{
    webhook_call *call = host->waiting;
    unlink_waiting(hooks, call);
    return call;
}

/* Whether a host has less than half of what the others leave; one call it may always have. */
static bool has_share(const webhooks *hooks, const struct webhook_host *host)
{
    uint64_t left = hooks->config.max_calls - (hooks->stats.under_way - host->under_way);
    return host->under_way == 0 || host->under_way < left / 2;
}

static void begin_calls(webhooks *hooks)
{
    size_t refused = 0; /* in a row */
    while (hooks->turn && refused < hooks->turn_count && hooks->stats.under_way < hooks->config.max_calls) {
        struct webhook_host *host = hooks->turn;
        hooks->turn = host->next;
        if (!has_share(hooks, host)) {
            refused++;
            continue;
        }
        refused = 0;
        webhook_call *call = take_waiting(hooks, host);
        if (!call->may_begin || call->may_begin(call))
            begin(hooks, host, call);
        else
            put_off(hooks, call, "the attempt must not begin any more");
        leave_ring(hooks, host);
    }
}

static void report_finished(webhooks *hooks)
{
    webhook_call *call = hooks->finished, *next;
    hooks->finished = NULL;
    hooks->finished_end = &hooks->finished;
    for (; call; call = next) {
        next = call->next;
        count_result(&hooks->stats, call->result);
        call->done(call);
    }
}

static void free_hosts(webhooks *hooks, uint64_t unused_since_ns)
{
    for (size_t i = 0; i < hooks->table_size; i++)
        for (struct webhook_host **at = &hooks->table[i], *host; (host = *at);) {
            webhook_plain_close_idle(host, unused_since_ns);
            if (host->waiting_count > 0 || host->under_way > 0 || host->used_ns > unused_since_ns) {
                at = &host->next_in_table;
                continue;
            }
            *at = host->next_in_table;
            hooks->host_count--;
            free(host);
        }
}

static void free_all(webhooks *hooks)
{
    free_hosts(hooks, UINT64_MAX);
    free_spare(hooks);
    webhook_general_free(hooks->general);
    webhook_signer_free(&hooks->signer);
    free(hooks->table);
    free(hooks->buffer);
    free(hooks);
}

static void end(webhooks *hooks)
{
    fl_loop *loop = hooks->config.loop;
    fl_loop_fn stopped = hooks->stopped;
    void *arg = hooks->stopped_arg;
    fl_loop_cancel(loop, hooks->sweep);
    if (hooks->patience)
        fl_loop_cancel(loop, hooks->patience);
    free_all(hooks);
    stopped(loop, arg);
}

static void turn(fl_loop *loop, void *arg)
{
    webhooks *hooks = arg;
    (void)loop;
    hooks->posted = false;
    webhook_general_poke(hooks->general);
    report_finished(hooks);
    begin_calls(hooks);
    if (hooks->stopping && hooks->stats.under_way == 0 && !hooks->finished)
        end(hooks);
}

static void sweep(fl_loop *loop, void *arg)
{
    webhooks *hooks = arg;
    uint64_t now = fl_loop_now_ns(loop);
    free_spare(hooks);
    if (now > FORGET_S * second_ns)
        free_hosts(hooks, now - FORGET_S * second_ns);
}

/* --- The interface ------------------------------------------------------------------------------------------------ */

static void set_defaults(struct webhooks_config *config)
{
    if (!config->clock)
        config->clock = fl_wall_clock_system();
    if (config->max_calls == 0)
        config->max_calls = 1000;
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
    hooks->task = (fl_loop_task){.fn = turn, .arg = hooks};
    hooks->finished_end = &hooks->finished;
    hooks->table_size = TABLE_LEAST;
    hooks->table = calloc(TABLE_LEAST, sizeof(struct webhook_host *));
    hooks->buffer = malloc(WEBHOOK_BUFFER);
    if (!hooks->table || !hooks->buffer || webhook_signer_init(&hooks->signer) < 0 ||
        webhook_general_new(hooks, &hooks->general) < 0 ||
        fl_loop_interval(config->loop, SWEEP_S * second_ns, FL_TIMER_UNREF, sweep, hooks, &hooks->sweep) < 0) {
        hooks->table_size = hooks->table ? TABLE_LEAST : 0;
        free_all(hooks);
        return FL_NO_MEMORY;
    }
    *ret = hooks;
    return 0;
}

void webhooks_submit(webhooks *hooks, webhook_call *call)
{
    struct webhook_target target;
    const char *problem = webhook_target_parse(call->url, &target);
    call->at_us = 0;
    call->status = 0;
    call->duration_ns = 0;
    call->reason[0] = '\0';
    call->next = call->previous = NULL;
    call->host = NULL;
    if (hooks->stopping) {
        put_off(hooks, call, "the server is stopping");
        return;
    }
    if (problem) {
        finish_early(hooks, call, FL_DEAD, problem);
        return;
    }
    struct webhook_host *host = host_of(hooks, &target);
    if (!host) {
        finish_early(hooks, call, FL_FAILED, why_not(FL_NO_MEMORY));
        return;
    }
    add_waiting(hooks, host, call);
    webhook_post(hooks);
}

static void out_of_patience(fl_loop *loop, void *arg)
{
    webhooks *hooks = arg;
    (void)loop;
    hooks->patience = 0;
    while (hooks->under_way) {
        struct webhook_transfer *transfer = hooks->under_way;
        give_up(transfer);
        webhook_broken(transfer, FL_FAILED, "the server stopped before the target responded");
    }
}

static void withdraw_waiting(webhooks *hooks, struct webhook_host *host,
                             bool (*which)(const webhook_call *call, void *arg), void *arg)
{
    for (webhook_call *call = host->waiting, *next; call; call = next) {
        next = call->next;
        if (!which(call, arg))
            continue;
        unlink_waiting(hooks, call);
        finish_early(hooks, call, FL_LATER, "the attempt was withdrawn");
    }
    leave_ring(hooks, host);
}

bool webhooks_cancel(webhooks *hooks, webhook_call *call)
{
    struct webhook_host *host = call->host;
    if (!host)
        return false;
    unlink_waiting(hooks, call);
    leave_ring(hooks, host);
    return true;
}

uint64_t webhook_host_hash(fl_bytes url)
{
    struct webhook_target target;
    char key[WEBHOOK_KEY];
    if (webhook_target_parse(url, &target))
        return 0;
    size_t size = webhook_target_key(&target, key);
    return hash_of(key, size);
}

void webhooks_withdraw(webhooks *hooks, bool (*which)(const webhook_call *call, void *arg), void *arg, bool begun)
{
    for (size_t i = 0; i < hooks->table_size; i++)
        for (struct webhook_host *host = hooks->table[i]; host; host = host->next_in_table)
            withdraw_waiting(hooks, host, which, arg);
    for (struct webhook_transfer *transfer = hooks->under_way, *next; begun && transfer; transfer = next) {
        next = transfer->next;
        if (which(transfer->call, arg)) {
            give_up(transfer);
            webhook_broken(transfer, FL_LATER, "the attempt was withdrawn");
        }
    }
}

void webhooks_stop(webhooks *hooks, uint64_t patience_us, fl_loop_fn done, void *arg)
{
    uint64_t patience_ns;
    assert(!hooks->stopping);
    hooks->stopping = true;
    hooks->stopped = done;
    hooks->stopped_arg = arg;
    for (size_t i = 0; i < hooks->table_size; i++)
        for (struct webhook_host *host = hooks->table[i]; host; host = host->next_in_table) {
            while (host->waiting)
                put_off(hooks, take_waiting(hooks, host), "the server is stopping");
            leave_ring(hooks, host);
        }
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
