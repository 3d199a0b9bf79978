/* SPDX-License-Identifier: MIT */
/* Logins of the dashboard. A browser exchanges a token for a cookie that scripts cannot read.
 *
 * A login is a row of the store that no user can name: the name is a hash of the cookie, the payload is the hash of the token
 * and the end of the login. So it is good at every server of the store and after a restart, and signing out removes it for
 * all. A request with a cookie looks the row up before it is handled. The row falls due when the login ends, and is gone
 * then. */

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "api/internal.h"
#include "base/assert.h"
#include "base/hex.h"

#define SESSIONS ((fl_bytes){"\1sessions", 9})
#define COOKIE "foliot_session"
#define VALID_US (12 * 3600 * 1000000ll)

struct session_row {
    unsigned char token[32]; /* its hash */
    int64_t ends_us;         /* by the machine's clock: a test clock that is turned ends no login */
};

struct session {
    struct shard_call call;
    fl_op op;
    struct session_row row;
    bool found;
    char name[2 * 32 + 1];
    void (*done)(struct session *session);
    void *arg;
};

static int64_t machine_now_us(void)
{
    fl_wall_clock *clock = fl_wall_clock_system();
    return clock->now_us(clock);
}

/* --- The row ------------------------------------------------------------------------------------------------------ */

static void row_found(struct shard_call *call)
{
    struct session *session = (struct session *)call;
    const fl_op *op = &session->op;
    fl__assert(call->batch.ops == op && call->batch.count == 1);
    session->found = op->result == 0;
    if (op->kind != FL_OP_GET || !session->found)
        return;
    session->found = op->timer.payload.size == sizeof session->row;
    if (session->found)
        memcpy(&session->row, op->timer.payload.data, sizeof session->row);
}

static void row_back(struct shard_call *call)
{
    struct session *session = (struct session *)call;
    session->done(session);
}

/* Begins an operation on the row of a cookie. NULL: no memory. */
static struct session *session_new(struct worker *worker, fl_bytes cookie, enum fl_op_kind kind,
                                   void (*done)(struct session *session), void *arg)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    struct session *session = calloc(1, sizeof *session);
    if (!session || EVP_Digest(cookie.data, cookie.size, hash, NULL, EVP_sha256(), NULL) != 1) {
        free(session);
        return NULL;
    }
    fl__hex_put(session->name, hash, 32);
    session->op.kind = kind;
    session->op.timer.ns = SESSIONS;
    session->op.timer.name = (fl_bytes){session->name, 64};
    fl__assert(cookie.size == SESSION_COOKIE);
    session->done = done;
    session->arg = arg;
    session->call.errand.home = worker;
    session->call.batch.ops = &session->op;
    session->call.batch.count = 1;
    session->call.render = row_found;
    session->call.done = row_back;
    session->call.shard = shard_of_op(worker->node, &session->op);
    return session;
}

/* The token of a login that is good, or NULL. */
static const struct token *token_of(const struct tokens *tokens, const struct session *session)
{
    struct token wanted = {0};
    if (!session->found || session->row.ends_us <= machine_now_us())
        return NULL;
    memcpy(wanted.hash, session->row.token, sizeof wanted.hash);
    return tokens_same(tokens, &wanted);
}

/* --- Requests with a cookie ----------------------------------------------------------------------------------------- */

fl_bytes session_cookie(http_request *request)
{
    fl_bytes header = http_header(request, "cookie");
    const char *at = header.data, *end = at + header.size;
    const size_t name = sizeof COOKIE - 1;
    while (at < end) {
        const char *next = memchr(at, ';', (size_t)(end - at));
        size_t size = (size_t)((next ? next : end) - at);
        if (size > name && memcmp(at, COOKIE "=", name + 1) == 0 && size - name - 1 == SESSION_COOKIE)
            return (fl_bytes){at + name + 1, SESSION_COOKIE};
        at += size + 1;
        while (at < end && *at == ' ')
            at++;
    }
    return (fl_bytes){0};
}

static void looked(struct session *session)
{
    struct call *call = session->arg;
    bool unknown = session->op.result < 0 && session->op.result != FL_TIMER_NOT_FOUND;
    int result = session->op.result;
    call->tokens = atomic_load_explicit(&api_of(call->worker)->tokens, memory_order_acquire);
    call->token = token_of(call->tokens, session);
    call->session_ends_us = session->row.ends_us;
    free(session);
    if (unknown)
        call_refuse_result(call, result);
    else
        call_enter(call);
}

void session_enter(struct call *call)
{
    fl__assert(call->cookie[0]);
    struct session *session =
        session_new(call->worker, (fl_bytes){call->cookie, SESSION_COOKIE}, FL_OP_GET, looked, call);
    if (session)
        shard_call_submit(&session->call);
    else
        call_refuse_result(call, FL_NO_MEMORY);
}

/* --- Streams with a cookie ------------------------------------------------------------------------------------------ */

struct session_watch {
    struct worker *worker;
    void (*ended)(void *arg);
    void *arg;
    bool looking;
    bool orphan; /* the answer is no longer wanted */
    char cookie[SESSION_COOKIE];
};

struct session_watch *session_watch_new(const struct call *call, void (*ended)(void *arg), void *arg)
{
    struct session_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return NULL;
    *watch = (struct session_watch){.worker = call->worker, .ended = ended, .arg = arg};
    memcpy(watch->cookie, call->cookie, SESSION_COOKIE);
    return watch;
}

void session_watch_free(struct session_watch *watch)
{
    if (watch && watch->looking)
        watch->orphan = true;
    else
        free(watch);
}

static void watched(struct session *session)
{
    struct session_watch *watch = session->arg;
    const struct tokens *tokens = atomic_load_explicit(&api_of(watch->worker)->tokens, memory_order_acquire);
    bool known = session->op.result == 0 || session->op.result == FL_TIMER_NOT_FOUND;
    bool ended = known && !token_of(tokens, session);
    free(session);
    fl__assert(watch->looking);
    watch->looking = false;
    if (watch->orphan)
        free(watch);
    else if (ended)
        watch->ended(watch->arg);
}

void session_watch_look(struct session_watch *watch)
{
    fl_bytes cookie = {watch->cookie, SESSION_COOKIE};
    struct session *session = watch->looking ? NULL : session_new(watch->worker, cookie, FL_OP_GET, watched, watch);
    if (!session)
        return;
    watch->looking = true;
    shard_call_submit(&session->call);
}

/* --- Signing in and out --------------------------------------------------------------------------------------------- */

static bool is_from_dashboard(struct call *call)
{
    fl_bytes header = http_header(call->request, "foliot-ui");
    return header.size == 1 && *(const char *)header.data == '1';
}

bool session_may_change(struct call *call)
{
    bool reads = call->request->method == HTTP_GET || call->request->method == HTTP_HEAD;
    if (reads || is_from_dashboard(call))
        return true;
    problem_set(&call->problem, 403, "forbidden-origin", NULL,
                "a request that signs in, or that has the cookie of the dashboard and changes something, needs the "
                "header \"Foliot-UI: 1\"");
    return false;
}

static void answer_cookie(struct call *call, const char *value, int age_s)
{
    char extra[256];
    snprintf(extra, sizeof extra,
             "Set-Cookie: " COOKIE
             "=%s; Path=/; Max-Age=%d; HttpOnly; SameSite=Strict%s\r\nCache-Control: no-store\r\n",
             value, age_s, api_of(call->worker)->config.tls ? "; Secure" : "");
    call_answer_as(call, 204, NULL, extra);
}

static int read_token(struct call *call, char *room, size_t size, fl_bytes *ret)
{
    struct json body, key, value;
    if (call_json(call, &body) < 0)
        return -1;
    struct json_walk walk = json_walk(body);
    if (body.kind == JSON_OBJECT && json_member(&walk, &key, &value) && json_is(key, "token") &&
        value.kind == JSON_STRING && value.text.size <= size && !json_member(&walk, &key, &(struct json){0})) {
        *ret = json_string(value, room);
        return 0;
    }
    problem_set(&call->problem, 400, "invalid-body", "token", "the body must be {\"token\": \"...\"}");
    call_refuse(call);
    return -1;
}

static void signed_in(struct session *session)
{
    struct call *call = session->arg;
    int result = session->op.result;
    char cookie[SESSION_COOKIE + 1];
    memcpy(cookie, call->cookie, SESSION_COOKIE);
    cookie[SESSION_COOKIE] = '\0';
    free(session);
    if (result < 0)
        call_refuse_result(call, result);
    else
        answer_cookie(call, cookie, VALID_US / 1000000);
}

static void begin_session(struct call *call, const struct token *token)
{
    unsigned char secret[SESSION_COOKIE / 2];
    if (RAND_bytes(secret, sizeof secret) != 1) {
        call_refuse_result(call, FL_SYSTEM);
        return;
    }
    fl__hex_put(call->cookie, secret, sizeof secret);
    struct session *session =
        session_new(call->worker, (fl_bytes){call->cookie, SESSION_COOKIE}, FL_OP_CREATE, signed_in, call);
    if (!session) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    memcpy(session->row.token, token->hash, sizeof session->row.token);
    fl__assert(session->op.kind == FL_OP_CREATE);
    session->row.ends_us = machine_now_us() + VALID_US;
    session->op.timer.payload = (fl_bytes){&session->row, sizeof session->row};
    session->op.timer.due_us = node_now(call->worker->node) + VALID_US;
    if (call->worker->node->config.test_clock)
        session->op.timer.due_us = FL_STORE_TIME_END - 1;
    shard_call_submit(&session->call);
}

void session_post(struct call *call)
{
    char room[1024], header[sizeof "Bearer " + sizeof room];
    fl_bytes token;
    if (!session_may_change(call)) {
        call_refuse(call);
        return;
    }
    if (read_token(call, room, sizeof room, &token) < 0)
        return;
    int size = snprintf(header, sizeof header, "Bearer %.*s", (int)token.size, (const char *)token.data);
    const struct tokens *tokens = atomic_load_explicit(&api_of(call->worker)->tokens, memory_order_acquire);
    const struct token *found = tokens_find(tokens, (fl_bytes){header, (size_t)size});
    OPENSSL_cleanse(header, sizeof header);
    OPENSSL_cleanse(room, sizeof room);
    if (tokens->count == 0) {
        call_answer_as(call, 204, NULL, NULL); /* sign-in is not required */
    } else if (!found) {
        problem_set(&call->problem, 401, "unauthorized", "token", "the token is not valid");
        call_refuse(call);
    } else {
        begin_session(call, found);
    }
}

static void signed_out(struct session *session)
{
    struct call *call = session->arg;
    int result = session->op.result;
    free(session);
    if (result < 0 && result != FL_TIMER_NOT_FOUND)
        call_refuse_result(call, result);
    else
        answer_cookie(call, "", 0);
}

void session_delete(struct call *call)
{
    fl_bytes cookie = session_cookie(call->request);
    if (!session_may_change(call)) {
        call_refuse(call);
    } else if (cookie.size == 0) {
        answer_cookie(call, "", 0);
    } else {
        struct session *session = session_new(call->worker, cookie, FL_OP_CANCEL, signed_out, call);
        if (session)
            shard_call_submit(&session->call);
        else
            call_refuse_result(call, FL_NO_MEMORY);
    }
}

/* --- The session of a request ------------------------------------------------------------------------------------- */

static void write_rights(struct out *out, unsigned rights)
{
    static const char *const names[] = {"read", "write", "admin"};
    out_put(out, "[", 1);
    for (unsigned i = 0, count = 0; i < 3; i++)
        if (rights >> i & 1 || rights & RIGHT_ADMIN)
            out_format(out, "%s\"%s\"", count++ ? "," : "", names[i]);
    out_put(out, "]", 1);
}

static void write_namespaces(struct out *out, char **names)
{
    if (!names) {
        out_text(out, "null");
        return;
    }
    out_put(out, "[", 1);
    for (size_t i = 0; names[i]; i++) {
        if (i > 0)
            out_put(out, ",", 1);
        out_string(out, bytes_of(names[i]));
    }
    out_put(out, "]", 1);
}

void whoami_get(struct call *call)
{
    struct out *out = &call->out;
    const struct token *token = call->token;
    out_text(out, "{\"token\":");
    if (token)
        out_string(out, bytes_of(token->name));
    else
        out_text(out, "null");
    out_text(out, ",\"namespaces\":");
    write_namespaces(out, token ? token->namespaces : NULL);
    out_text(out, ",\"rights\":");
    write_rights(out, token ? token->rights : RIGHT_ADMIN);
    if (call->cookie[0]) {
        out_text(out, ",\"session\":{\"expires\":");
        out_time(out, call->session_ends_us);
        out_put(out, "}", 1);
    }
    out_put(out, "}", 1);
    call_answer(call, 200);
}
