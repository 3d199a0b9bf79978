/* SPDX-License-Identifier: MIT */
/* Routes of requests to functions, and their rights.
 *
 * The route and the token are checked before the body is read. So a client without the right learns nothing, and its request
 * costs little. */

#include <stdlib.h>
#include <string.h>

#include "api/browser.h"
#include "api/internal.h"
#include "api/timer.h"
#include "base/assert.h"
#include "text/log.h"

static void echo_post(struct call *call);
static void peer_post(struct call *call);

static const struct route routes[] = {
    {HTTP_PUT, "/v1/timers/*/*", RIGHT_WRITE, timers_put},
    {HTTP_POST, "/v1/timers/*", RIGHT_WRITE, timers_post},
    {HTTP_GET, "/v1/timers/*/*", RIGHT_READ | QUERY, timers_get},
    {HTTP_GET, "/v1/timers/*/*/payload", RIGHT_READ | QUERY, timers_payload},
    {HTTP_PATCH, "/v1/timers/*/*", RIGHT_WRITE, timers_patch},
    {HTTP_DELETE, "/v1/timers/*/*", RIGHT_WRITE, timers_delete},
    {HTTP_POST, "/v1/timers/*/*/fire", RIGHT_WRITE, timers_fire},
    {HTTP_GET, "/v1/timers/*", RIGHT_READ | QUERY | LARGE, list_get},
    {HTTP_DELETE, "/v1/timers/*", RIGHT_WRITE | QUERY, list_cancel},
    {HTTP_GET, "/v1/schedules/*", RIGHT_READ | QUERY | LARGE, schedules_list}, /* a namespace may be called "preview" */
    {HTTP_POST, "/v1/schedules/preview", RIGHT_READ | ANY_NAMESPACE | QUERY, schedules_preview_unsaved},
    {HTTP_PUT, "/v1/schedules/*/*", RIGHT_WRITE, schedules_put},
    {HTTP_GET, "/v1/schedules/*/*", RIGHT_READ, schedules_get},
    {HTTP_PATCH, "/v1/schedules/*/*", RIGHT_WRITE, schedules_patch},
    {HTTP_DELETE, "/v1/schedules/*/*", RIGHT_WRITE, schedules_delete},
    {HTTP_GET, "/v1/schedules/*/*/preview", RIGHT_READ | QUERY, schedules_preview},
    {HTTP_POST, "/v1/schedules/*/*/trigger", RIGHT_WRITE, schedules_trigger},
    {HTTP_POST, "/v1/schedules/*/*/backfill", RIGHT_WRITE, schedules_backfill},
    {HTTP_POST, "/v1/batch", RIGHT_WRITE | ANY_NAMESPACE | STREAMS, batch_begin},
    {HTTP_POST, "/v1/lease/*", RIGHT_WRITE, lease_post},
    {HTTP_POST, "/v1/ack", RIGHT_WRITE | ANY_NAMESPACE, ack_post},
    {HTTP_GET, "/v1/dead/*", RIGHT_READ | QUERY | LARGE, dead_list},
    {HTTP_GET, "/v1/dead/*/*", RIGHT_READ | QUERY, dead_get},
    {HTTP_GET, "/v1/dead/*/*/payload", RIGHT_READ | QUERY, dead_payload},
    {HTTP_POST, "/v1/dead/*/*/redrive", RIGHT_WRITE, dead_redrive},
    {HTTP_DELETE, "/v1/dead/*/*", RIGHT_WRITE, dead_delete},
    {HTTP_POST, "/v1/dead/*/redrive", RIGHT_WRITE | QUERY, dead_redrive_many},
    {HTTP_DELETE, "/v1/dead/*", RIGHT_WRITE | QUERY, dead_delete_many},
    {HTTP_GET, "/v1/history/*", RIGHT_READ | QUERY | LARGE, history_list},
    {HTTP_DELETE, "/v1/history/*", RIGHT_WRITE | QUERY, history_delete},
    {HTTP_GET, "/v1/namespaces", RIGHT_READ | ANY_NAMESPACE | QUERY | LARGE, namespaces_get},
    {HTTP_GET, "/v1/namespaces/*", RIGHT_READ, namespace_get},
    {HTTP_PUT, "/v1/namespaces/*", RIGHT_ADMIN, namespace_put},
    {HTTP_PATCH, "/v1/namespaces/*", RIGHT_ADMIN, namespace_patch},
    {HTTP_DELETE, "/v1/namespaces/*", RIGHT_ADMIN | QUERY, namespace_delete},
    {HTTP_POST, "/v1/namespaces/*/pause", RIGHT_ADMIN, namespace_pause},
    {HTTP_POST, "/v1/namespaces/*/resume", RIGHT_ADMIN, namespace_resume},
    {HTTP_GET, "/v1/hosts", RIGHT_READ | ANY_NAMESPACE | QUERY | LARGE, hosts_get},
    {HTTP_POST, "/v1/hosts/*/pause", RIGHT_ADMIN | ANY_NAMESPACE, host_pause},
    {HTTP_POST, "/v1/hosts/*/resume", RIGHT_ADMIN | ANY_NAMESPACE, host_resume},
    {HTTP_GET, "/v1/events", RIGHT_READ | ANY_NAMESPACE | QUERY | LASTING, events_get},
    {HTTP_GET, "/v1/clock", RIGHT_READ | ANY_NAMESPACE, clock_get},
    {HTTP_POST, "/v1/clock", RIGHT_ADMIN, clock_post},
    {HTTP_GET, "/v1/cluster", RIGHT_READ | ANY_NAMESPACE, cluster_get},
    {HTTP_POST, "/v1/peer", OPEN | STREAMS, peer_post},
    {HTTP_GET, "/v1/stats", RIGHT_READ | ANY_NAMESPACE | QUERY, stats_get},
    {HTTP_GET, "/v1/forecast", RIGHT_READ | ANY_NAMESPACE | QUERY, forecast_get},
    {HTTP_GET, "/v1/whoami", SIGNED, whoami_get},
    {HTTP_POST, "/ui/session", OPEN, session_post},
    {HTTP_DELETE, "/ui/session", OPEN, session_delete},
    {HTTP_GET, "/metrics", RIGHT_READ | QUERY, metrics_get},
    {HTTP_GET, "/healthz", OPEN | QUERY, health_get},
    {HTTP_GET, "/readyz", OPEN | QUERY, ready_get},
    {HTTP_GET, "/version", OPEN | QUERY, version_get},
    {HTTP_GET, "/openapi.json", OPEN | QUERY, openapi_get},
    {HTTP_POST, "/echo", OPEN | QUERY, echo_post},
    {HTTP_GET, "/", OPEN | QUERY, root_get},
    {HTTP_GET, "/ui", OPEN | QUERY, ui_redirect},
    {HTTP_GET, "/ui/", OPEN | QUERY, ui_file_get},
    {HTTP_GET, "/ui/*", OPEN | QUERY, ui_file_get},
};

static const char *const method_names[] = {
    [HTTP_GET] = "GET",     [HTTP_HEAD] = "HEAD",     [HTTP_POST] = "POST",       [HTTP_PUT] = "PUT",
    [HTTP_PATCH] = "PATCH", [HTTP_DELETE] = "DELETE", [HTTP_OPTIONS] = "OPTIONS", [HTTP_OTHER] = "this method",
};

/* --- Paths --------------------------------------------------------------------------------------------------------- */

/* Whether the path is the route's; what stands for * goes to `parts`. */
static bool matches(const char *pattern, fl_bytes path, fl_bytes parts[2])
{
    const char *at = path.data, *end = at + path.size;
    for (int part = 0; *pattern;) {
        if (*pattern == '*') {
            const char *slash = memchr(at, '/', (size_t)(end - at));
            size_t size = (size_t)((slash ? slash : end) - at);
            if (size == 0)
                return false;
            fl__assert(part < 2);
            parts[part++] = (fl_bytes){at, size};
            at += size;
            pattern++;
        } else if (at == end || *at++ != *pattern++) {
            return false;
        }
    }
    return at == end;
}

static int take_part(struct call *call, fl_bytes part, char room[256], const char *what, fl_bytes *ret)
{
    ssize_t size = part.size ? percent_decode(part.data, part.size, room, 255, false) : 0;
    *ret = (fl_bytes){room, size > 0 ? (size_t)size : 0};
    if (part.size == 0 || (size > 0 && name_is_good(*ret)))
        return 0;
    return problem_set(&call->problem, 400, "invalid-field", what,
                       "the %s in the path must be 1 to 255 bytes of UTF-8 without control characters", what);
}

/* Finds the route; refuses the request if no route matches. */
static int find_route(struct call *call)
{
    const http_request *request = call->request;
    char allow[64];
    size_t used = 0;
    enum http_method method = request->method == HTTP_HEAD ? HTTP_GET : request->method;
    const char *exact = NULL; /* a path without stars goes before the others that it matches */
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        fl_bytes parts[2] = {{0}};
        if (!matches(routes[i].path, request->path, parts) || (exact && strcmp(exact, routes[i].path) != 0))
            continue;
        if (!strchr(routes[i].path, '*'))
            exact = routes[i].path;
        if (routes[i].method == method) {
            call->route = &routes[i];
            const char *first = strncmp(routes[i].path, "/v1/hosts/", 10) == 0 ? "host" : "namespace";
            if (take_part(call, parts[0], call->ns_room, first, &call->ns) == 0 &&
                take_part(call, parts[1], call->name_room, "name", &call->name) == 0)
                return 0;
            call_refuse(call);
            return -1;
        }
        used += (size_t)snprintf(allow + used, sizeof allow - used, "%s%s",
                                 used ? ", " : "Allow: ", method_names[routes[i].method]);
        fl__assert(used + 3 < sizeof allow); /* room for the end of the line */
    }
    if (used > 0) {
        problem_set(&call->problem, 405, "method-not-allowed", NULL,
                    "%s is not supported here; the Allow header lists the methods", method_names[request->method]);
        snprintf(allow + used, sizeof allow - used, "\r\n");
        call_refuse_with(call, allow);
    } else {
        problem_set(&call->problem, 404, "no-such-path", NULL,
                    "the path does not exist; /openapi.json lists all paths");
        call_refuse(call);
    }
    return -1;
}

/* Refuses query parameters of requests that take none: ignoring dry_run=true, for example, would cancel the timer. */
static int refuse_query(struct call *call)
{
    static const char *const none[] = {NULL};
    if (call_check_query(call, none) == 0)
        return 0;
    call_refuse(call);
    return -1;
}

/* --- Web pages ---------------------------------------------------------------------------------------------------- */

static int refuse_host(struct call *call, fl_bytes host)
{
    problem_set(
        &call->problem, 403, "forbidden-host", NULL,
        "the Host \"%.*s\" is not a name of this server: use localhost, or start the server with --allowed-host",
        host.size < 100 ? (int)host.size : 100, host.size ? (const char *)host.data : "");
    call_refuse(call);
    return -1;
}

static int refuse_origin(struct call *call, fl_bytes origin)
{
    problem_set(&call->problem, 403, "forbidden-origin", NULL,
                "the Origin \"%.*s\" is another site: without tokens, only the server's own pages may send requests",
                origin.size < 100 ? (int)origin.size : 100, origin.size ? (const char *)origin.data : "");
    call_refuse(call);
    return -1;
}

/* See browser.c. Other servers authenticate in another way. */
static int check_browser(struct call *call)
{
    const struct api *api = api_of(call->worker);
    const struct tokens *tokens = atomic_load_explicit(&api->tokens, memory_order_acquire);
    http_request *request = call->request;
    fl_bytes host = request->authority.size > 0 ? request->authority : http_header(request, "host");
    fl_bytes origin = http_header(request, "origin");
    const char *allowed = api->config.allowed_host;
    size_t origins = http_header_count(request, "origin");
    bool peer = request->path.size == 8 && memcmp(request->path.data, "/v1/peer", 8) == 0;
    if (tokens->count == 0 && !peer && host.data && !browser_host_is_good(host, allowed))
        return refuse_host(call, host);
    if (origins == 0)
        return 0;
    if (tokens->count == 0 && (origins > 1 || !browser_origin_is_good(origin, host, allowed)))
        return refuse_origin(call, origin);
    bool one_type = http_header_count(request, "content-type") == 1;
    if (!request->has_body || (one_type && browser_type_is_json(http_header(request, "content-type"))))
        return 0;
    problem_set(
        &call->problem, 415, "unsupported-media-type", NULL,
        "a request with an Origin needs \"Content-Type: application/json\", or application/x-ndjson for a batch");
    call_refuse(call);
    return -1;
}

/* --- Preconditions ------------------------------------------------------------------------------------------------- */

/* There are no ETags. A condition that is not understood must not count as not given, but for one that no answer to a GET can
 * fail to meet. */
static int check_conditions(struct call *call)
{
    static const char *const names[] = {"If-Match", "If-None-Match", "If-Unmodified-Since"};
    static const char *const lower[] = {"if-match", "if-none-match", "if-unmodified-since"};
    bool reads = call->request->method == HTTP_GET || call->request->method == HTTP_HEAD;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t count = http_header_count(call->request, lower[i]);
        if (count == 0)
            continue;
        fl_bytes value = http_header(call->request, lower[i]);
        bool star = count == 1 && value.size == 1 && *(const char *)value.data == '*';
        if (i == 1 &&
            ((star && (call->route->handle == timers_put || call->route->handle == schedules_put)) || (reads && !star)))
            continue;
        problem_set(&call->problem, 400, "invalid-field", names[i],
                    "%s is not supported here: timers have no ETags, and only PUT of a timer or a schedule takes "
                    "\"If-None-Match: *\"",
                    names[i]);
        call_refuse(call);
        return -1;
    }
    return 0;
}

/* --- Rights ------------------------------------------------------------------------------------------------------- */

static int authorize(struct call *call)
{
    call->tokens = atomic_load_explicit(&api_of(call->worker)->tokens, memory_order_acquire);
    if (call->tokens->count == 0 || !(call->route->flags & (RIGHT_READ | RIGHT_WRITE | RIGHT_ADMIN | SIGNED)))
        return 0;
    fl_bytes header = http_header(call->request, "authorization"), cookie = session_cookie(call->request);
    if (header.size == 0 && cookie.size > 0 && !(call->route->flags & STREAMS)) {
        memcpy(call->cookie, cookie.data, SESSION_COOKIE); /* looked up when the body is there: see handle() */
        return 0;
    }
    call->token = tokens_find(call->tokens, header);
    if (call_check_token(call))
        return 0;
    call_refuse(call);
    return -1;
}

/* --- Coming in ---------------------------------------------------------------------------------------------------- */

/* Its body never came, or was refused. */
static void left_early(http_request *request)
{
    fl__assert(request->arg);
    call_free(request->arg);
    request->arg = NULL;
    http_end(request);
}

/* What has to be reserved for the response. */
static size_t memory_for(const struct call *call)
{
    unsigned flags = call->route->flags;
    size_t payload = api_of(call->worker)->config.max_payload;
    return flags & LARGE ? LIST_MEMORY + 4 * payload : flags & LASTING ? EVENTS_MEMORY : 0;
}

static void head(http_request *request)
{
    struct worker *worker = http_server_arg(http_request_server(request));
    struct call *call = malloc(sizeof *call);
    if (!call) {
        static const char text[] = "{\"type\":\"urn:foliot:problem:no-memory\",\"status\":503}";
        http_answer(request, 503, PROBLEM_TYPE, NULL, (fl_bytes){text, sizeof text - 1});
        return;
    }
    memset(call, 0, offsetof(struct call, ns_room));
    call->request = request;
    call->worker = worker;
    request->arg = call;
    if (!rate_allows(api_of(worker), request->peer, (int64_t)(fl_loop_now_ns(worker->loop) / 1000))) {
        problem_set(&call->problem, 429, "too-many-requests", NULL,
                    "this address sends more requests per second than max-request-rate allows; slow down");
        call_refuse(call);
        return;
    }
    if (check_browser(call) < 0 || find_route(call) < 0 || authorize(call) < 0 || check_conditions(call) < 0 ||
        (!(call->route->flags & QUERY) && refuse_query(call) < 0))
        return;
    /* With other servers, requests are passed on as long as there are connections. */
    if (atomic_load_explicit(&worker->node->stopping, memory_order_relaxed) && !worker->node->cluster &&
        call->route->flags & RIGHT_WRITE) {
        call_refuse_result(call, FL_STOPPED);
        return;
    }
    request->gone = left_early;
    request->memory = memory_for(call);
    request->lasting = call->route->flags & LASTING;
    if (call->route->flags & STREAMS)
        call->route->handle(call);
}

void call_enter(struct call *call)
{
    /* Its token may have been revoked while the request was on its way. */
    if (!call_is_let_in(call) || (call->cookie[0] && !session_may_change(call)))
        call_refuse(call);
    else
        call->route->handle(call);
}

static void handle(http_request *request)
{
    struct call *call = request->arg;
    request->gone = NULL;
    fl__assert(call && call->request == request && call->route);
    if (call->cookie[0])
        session_enter(call);
    else
        call_enter(call);
}

/* What the first callbacks are shown on. */
static void echo_post(struct call *call)
{
    const http_request *request = call->request;
    fl_bytes id = http_header(call->request, "webhook-id"), attempt = http_header(call->request, "foliot-attempt");
    char id_text[64], attempt_text[16], body[201];
    if (!api_of(call->worker)->config.echo) {
        problem_set(&call->problem, 404, "no-such-path", NULL, "/echo is turned off; start the server with --echo");
        call_refuse(call);
        return;
    }
    snprintf(id_text, sizeof id_text, "%.*s", (int)id.size, id.size ? (const char *)id.data : "");
    snprintf(attempt_text, sizeof attempt_text, "%.*s", (int)attempt.size,
             attempt.size ? (const char *)attempt.data : "");
    snprintf(body, sizeof body, "%.*s", (int)(request->body.size < 200 ? request->body.size : 200),
             request->body.size ? (const char *)request->body.data : "");
    log_info("echo received a callback", "id", id_text, "attempt", attempt_text, "body", body, NULL);
    out_text(&call->out, "{\"echo\":true}");
    call_answer(call, 200);
}

static void peer_post(struct call *call)
{
    peer_sessions *sessions = api_here(call->worker)->sessions;
    http_request *request = call->request;
    if (!sessions) {
        problem_set(&call->problem, 503, "unavailable", NULL,
                    "this server was started without --advertise, or has not met the others yet");
        call_refuse(call);
        return;
    }
    call_drop(call);
    peer_accept(sessions, request);
}

const struct http_handlers api_handlers = {.head = head, .handle = handle, .problem = call_bad_request};
