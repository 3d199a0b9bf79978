/* SPDX-License-Identifier: MIT */
/* An attempt that has begun, in its slot.
 *
 * It ends exactly once: by its response, by what its transport reports, by its timer, or because it is stopped. Each of these
 * takes it from its transport first. A redirect gives it to a transport again, and the timer goes on. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "webhook/internal.h"

static const uint64_t second_ns = 1000000000;

enum {
    LEARN_S = 60,          /* how long an address is good for */
    KEEP_BYTES = 16 << 10, /* of a buffer that is kept for the next attempt */
    SMALL_BODY = 4 << 10,  /* cheaper to copy than to send separately */
};

/* The machine's time, for durations: the loop's time stands still within a turn, and many a response is as fast. */
static uint64_t machine_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * second_ns + (uint64_t)now.tv_nsec;
}

fl_bytes webhook_url(const struct webhook_slot *slot)
{
    return slot->url ? (fl_bytes){slot->url, strlen(slot->url)} : slot->attempt->target.url;
}

const char *webhook_why_not(int result)
{
    return result == FL_INVALID_ARGUMENT ? "the timer has a forbidden header" : "out of memory";
}

/* --- Slots -------------------------------------------------------------------------------------------------------- */

static struct webhook_slot *get_slot(webhooks *hooks)
{
    struct webhook_slot *slot = LIST_FIRST(&hooks->spare);
    if (slot)
        LIST_REMOVE(slot, entry);
    else
        slot = calloc(1, sizeof *slot);
    if (!slot)
        return NULL;
    slot->hooks = hooks;
    LIST_INSERT_HEAD(&hooks->under_way, slot, entry);
    return slot;
}

static void trim(struct out *out)
{
    if (out->capacity > KEEP_BYTES)
        out_free(out);
}

static void put_slot(struct webhook_slot *slot)
{
    fl__assert(!slot->connection && !slot->lines);
    free(slot->url);
    slot->url = NULL;
    slot->attempt = NULL;
    trim(&slot->response.body);
    trim(&slot->head);
    LIST_REMOVE(slot, entry);
    LIST_INSERT_HEAD(&slot->hooks->spare, slot, entry);
}

void webhook_free_spare(webhooks *hooks)
{
    struct webhook_slot *slot;
    while ((slot = LIST_FIRST(&hooks->spare))) {
        LIST_REMOVE(slot, entry);
        webhook_curl_drop(slot);
        webhook_response_free(&slot->response);
        out_free(&slot->head);
        free(slot);
    }
}

/* --- The end ------------------------------------------------------------------------------------------------------ */

/* The bytes stay in the slot until its next attempt begins, unless they are so many that the slot does not keep them. */
static struct out take_response(struct webhook_slot *slot, webhook_attempt *attempt)
{
    struct out *body = &slot->response.body, large = {0};
    size_t most = attempt->status / 100 == 2 ? attempt->keep : attempt->keep_failed;
    if (attempt->status == 0 || body->failed || body->size == 0 || most == 0)
        return large;
    attempt->response = (fl_bytes){body->data, body->size < most ? body->size : most};
    if (body->capacity > KEEP_BYTES) {
        large = *body;
        *body = (struct out){0};
    }
    return large;
}

/* The attempt has its result: lets everything go and says so. */
static void finish(struct webhook_slot *slot)
{
    webhooks *hooks = slot->hooks;
    webhook_attempt *attempt = slot->attempt;
    struct webhook_host *host = slot->host;
    fl__assert(attempt && host->under_way > 0 && hooks->stats.under_way > 0);
    if (slot->deadline)
        fl_loop_cancel(hooks->config.loop, slot->deadline);
    attempt->duration_ns = machine_ns() - slot->begun_ns;
    host->used_ns = webhook_now_ns(hooks);
    host->under_way--;
    hooks->stats.under_way--;
    webhook_host_changed(hooks, host);
    if (hooks->turn_count > 0 || hooks->stopping)
        webhook_post(hooks);
    struct out large = take_response(slot, attempt);
    put_slot(slot);
    webhook_count(&hooks->stats, attempt->result);
    attempt->done(attempt);
    out_free(&large);
}

void webhook_broken(struct webhook_slot *slot, enum fl_settle result, const char *format, ...)
{
    webhook_attempt *attempt = slot->attempt;
    va_list arguments;
    fl__assert(attempt && !slot->connection && !slot->lines);
    va_start(arguments, format);
    vsnprintf(attempt->reason, sizeof attempt->reason, format, arguments);
    va_end(arguments);
    attempt->result = result;
    finish(slot);
}

void webhook_stop_slot(struct webhook_slot *slot, enum fl_settle result, const char *reason)
{
    webhook_plain_end(slot);
    webhook_curl_end(slot);
    webhook_broken(slot, result, "%s", reason);
}

static uint64_t timeout_us(const struct webhook_slot *slot)
{
    return slot->attempt->timeout_us ? slot->attempt->timeout_us : slot->hooks->config.timeout_us;
}

static void timed_out(fl_loop *loop, void *arg)
{
    struct webhook_slot *slot = arg;
    char reason[64];
    (void)loop;
    fl__assert(slot->attempt && slot->deadline);
    slot->deadline = 0;
    snprintf(reason, sizeof reason, "no complete response within %" PRIu64 " ms", (timeout_us(slot) + 999) / 1000);
    webhook_stop_slot(slot, FL_FAILED, reason);
}

/* --- Transports --------------------------------------------------------------------------------------------------- */

/* Whether the fast transport can take it. When the address is old, one attempt goes to libcurl to learn it anew. */
static bool can_be_plain(struct webhook_slot *slot)
{
    struct webhook_host *host = slot->host;
    uint64_t now = webhook_now_ns(slot->hooks);
    if (slot->url || slot->own || host->address.ss_family == 0)
        return false;
    if (now - host->learned_ns < LEARN_S * second_ns)
        return true;
    host->learned_ns = now;
    slot->fresh = true;
    return false;
}

static int put_head(struct webhook_slot *slot)
{
    webhooks *hooks = slot->hooks;
    return webhook_head(&slot->head, hooks->signer, slot->attempt, webhook_now_us(hooks), hooks->config.user_agent,
                        slot->stranger);
}

static int begin_plain(struct webhook_slot *slot)
{
    struct out *head = &slot->head;
    webhook_plain_head(head, &slot->attempt->target, slot->attempt->body.size);
    int result = put_head(slot);
    out_put(head, "\r\n", 2);
    slot->tail = slot->attempt->body;
    if (slot->tail.size <= SMALL_BODY) {
        out_put(head, slot->tail.data, slot->tail.size);
        slot->tail.size = 0;
    }
    if (result == 0 && head->failed)
        result = FL_NO_MEMORY;
    return result < 0 ? result : webhook_plain_begin(slot);
}

static int begin_curl(struct webhook_slot *slot)
{
    int result = put_head(slot);
    return result < 0 ? result : webhook_curl_begin(slot);
}

static void clear(struct webhook_slot *slot)
{
    out_clear(&slot->head);
    webhook_response_begin(&slot->response, 0);
}

/* Gives the attempt to a transport. Returns 0 or a negative code. */
static int transport(struct webhook_slot *slot)
{
    fl__assert(!slot->connection && !slot->lines);
    clear(slot);
    if (can_be_plain(slot)) {
        int result = begin_plain(slot);
        if (result != FL_SYSTEM)
            return result;
        slot->host->address.ss_family = 0;
        clear(slot);
    }
    return begin_curl(slot);
}

void webhook_repeat(struct webhook_slot *slot)
{
    int result = transport(slot);
    if (result < 0)
        webhook_broken(slot, FL_FAILED, "%s", webhook_why_not(result));
}

/* --- The beginning ------------------------------------------------------------------------------------------------ */

static int start(struct webhook_slot *slot)
{
    uint64_t timeout_ns;
    if (__builtin_mul_overflow(timeout_us(slot), 1000, &timeout_ns))
        timeout_ns = UINT64_MAX;
    int result = fl_loop_timer(slot->hooks->config.loop, timeout_ns, timed_out, slot, &slot->deadline);
    if (result < 0)
        return result;
    result = transport(slot);
    if (result < 0)
        fl_loop_cancel(slot->hooks->config.loop, slot->deadline);
    return result;
}

void webhook_begin(webhooks *hooks, struct webhook_host *host, webhook_attempt *attempt)
{
    struct webhook_slot *slot = get_slot(hooks);
    if (!slot) {
        webhook_end_early(hooks, attempt, FL_FAILED, webhook_why_not(FL_NO_MEMORY));
        return;
    }
    fl__assert(!slot->attempt && !slot->connection && !slot->url);
    slot->attempt = attempt;
    slot->host = host;
    slot->begun_ns = machine_ns();
    slot->deadline = 0;
    slot->response.keep = attempt->keep;
    slot->response.keep_failed = attempt->keep_failed;
    slot->redirects = 0;
    slot->stranger = false;
    slot->fresh = attempt->once;
    slot->own = !hooks->config.allow_private && webhook_is_own(hooks->config.own, attempt->target.url);
    int result = start(slot);
    if (result < 0) {
        put_slot(slot);
        webhook_end_early(hooks, attempt, result == FL_INVALID_ARGUMENT ? FL_DEAD : FL_FAILED, webhook_why_not(result));
        return;
    }
    host->under_way++;
    hooks->stats.under_way++;
}

/* --- Responses ---------------------------------------------------------------------------------------------------- */

static bool is_redirect(const struct webhook_response *response)
{
    int status = response->status;
    return (status == 301 || status == 302 || status == 307 || status == 308) && response->location.size > 1 &&
           !response->location.failed;
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

static void redirect(struct webhook_slot *slot)
{
    webhooks *hooks = slot->hooks;
    if (slot->redirects++ == hooks->config.max_redirects) {
        webhook_broken(slot, FL_FAILED, "redirected more than %u times", (unsigned)hooks->config.max_redirects);
        return;
    }
    char *to;
    int result = resolve(webhook_url(slot), slot->response.location.data, &to);
    if (result < 0) {
        bool memory = result == FL_NO_MEMORY;
        webhook_broken(slot, memory ? FL_FAILED : FL_DEAD, "%s",
                       memory ? webhook_why_not(result) : "redirected to an invalid URL");
        return;
    }
    free(slot->url);
    slot->url = to;
    struct webhook_target target = webhook_target(webhook_url(slot));
    if (target.problem) {
        webhook_broken(slot, FL_DEAD, "redirected to a forbidden target: %s", target.problem);
        return;
    }
    hooks->stats.redirected++;
    slot->stranger = !webhook_host_is(slot->host, &target);
    slot->own = false;
    slot->fresh = slot->attempt->once;
    webhook_repeat(slot);
}

void webhook_responded(struct webhook_slot *slot)
{
    fl__assert(!slot->connection && !slot->lines);
    slot->attempt->status = slot->response.status;
    if (is_redirect(&slot->response)) {
        redirect(slot);
        return;
    }
    webhook_response_settle(&slot->response, webhook_now_us(slot->hooks), slot->attempt);
    finish(slot);
}
