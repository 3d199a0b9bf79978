/* SPDX-License-Identifier: MIT */
/* The side of a link that is called: one session per link, and the calls that have come over it.
 *
 * A call knows its session until it is answered or the session has ended. After that it stands for itself, and its answer
 * goes nowhere. Answers are collected and written at the end of the turn; only a large body is not copied for that. One tick
 * looks after all sessions. It also writes what no immediate could be had for.
 *
 * The handler may do anything, stopping the sessions included. So a session that has ended is freed at the end of the
 * turn. */

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "peer/internal.h"
#include "text/problem.h"

enum { LARGE = 65536 };

LIST_HEAD(request_list, peer_request);

struct peer_session {
    peer_sessions *sessions;
    TAILQ_ENTRY(peer_session) entry, dirty_entry;
    http_request *http;
    struct peer_pact pact;
    bool proved;
    bool ended;
    bool dirty;                  /* has something to write */
    unsigned seen;               /* the tick in which it was last looked after */
    unsigned age, silent, quiet; /* ticks: as those of a link */
    struct peer_reader reader;
    struct http_buffer out;
    struct hash_table by_id; /* of requests that are not answered */
    struct request_list requests;
    char address[PEER_ADDRESS_MOST + 1];
};

TAILQ_HEAD(session_list, peer_session);

struct peer_sessions {
    fl_loop *loop;
    const struct peer_host *host;
    struct session_list all;
    struct session_list dirty;
    struct session_list ended; /* to be freed */
    fl_timer_id tick, immediate;
    unsigned ticks;
    bool has_immediate;
    bool stopped;
};

/* --- Writing ------------------------------------------------------------------------------------------------------ */

static void flush(struct peer_session *session)
{
    if (session->dirty)
        TAILQ_REMOVE(&session->sessions->dirty, session, dirty_entry);
    session->dirty = false;
    size_t size = http_buffer_size(&session->out);
    if (size == 0)
        return;
    http_write(session->http, (fl_bytes){http_buffer_data(&session->out), size});
    http_buffer_take(&session->out, size);
    session->quiet = 0;
}

static void flush_all(peer_sessions *sessions)
{
    while (!TAILQ_EMPTY(&sessions->dirty))
        flush(TAILQ_FIRST(&sessions->dirty));
}

static void session_free(struct peer_session *session)
{
    fl__assert(session->ended && LIST_EMPTY(&session->requests) && !session->dirty);
    http_buffer_free(&session->out);
    peer_reader_free(&session->reader);
    fl__hash_free(&session->by_id);
    free(session);
}

static void free_ended(peer_sessions *sessions)
{
    struct peer_session *session;
    while ((session = TAILQ_FIRST(&sessions->ended))) {
        TAILQ_REMOVE(&sessions->ended, session, entry);
        session_free(session);
    }
}

static void on_immediate(fl_loop *loop, void *arg)
{
    peer_sessions *sessions = arg;
    (void)loop;
    sessions->has_immediate = false;
    flush_all(sessions);
    free_ended(sessions);
}

static void wake(peer_sessions *sessions)
{
    if (!sessions->has_immediate)
        sessions->has_immediate = fl_loop_immediate(sessions->loop, on_immediate, sessions, &sessions->immediate) == 0;
}

static void make_dirty(struct peer_session *session)
{
    if (session->dirty)
        return;
    session->dirty = true;
    TAILQ_INSERT_TAIL(&session->sessions->dirty, session, dirty_entry);
    wake(session->sessions);
}

/* --- The end ------------------------------------------------------------------------------------------------------ */

/* The request stands for itself from now on. */
static void take_out(struct peer_request *request)
{
    fl__hash_remove(&request->session->by_id, &request->by_id);
    LIST_REMOVE(request, entry);
    request->session = NULL;
}

static void tell_gone(struct peer_request *request)
{
    take_out(request);
    if (request->gone)
        request->gone(request);
}

static void session_end(struct peer_session *session)
{
    http_request *http = session->http;
    if (session->ended)
        return;
    session->ended = true;
    flush(session);
    TAILQ_REMOVE(&session->sessions->all, session, entry);
    TAILQ_INSERT_TAIL(&session->sessions->ended, session, entry);
    wake(session->sessions);
    http_end(http);
    while (!LIST_EMPTY(&session->requests)) /* `gone` may answer any other */
        tell_gone(LIST_FIRST(&session->requests));
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

/* Puts a frame whose body is in two parts. A large second part is not copied. */
static bool put(struct peer_session *session, uint8_t kind, uint64_t id, fl_bytes first, fl_bytes second)
{
    struct http_buffer *out = &session->out;
    bool large = second.size >= LARGE;
    if (!http_buffer_reserve(out, PEER_HEAD + first.size + (large ? 0 : second.size)) ||
        !peer_put_head(out, kind, id, first.size + second.size) || !http_buffer_append(out, first.data, first.size) ||
        (!large && !http_buffer_append(out, second.data, second.size)))
        return false;
    if (!large) {
        make_dirty(session);
        return true;
    }
    flush(session);
    http_write(session->http, second);
    return true;
}

static void put_or_end(struct peer_session *session, uint8_t kind, uint64_t id, fl_bytes first, fl_bytes second)
{
    if (!put(session, kind, id, first, second))
        session_end(session); /* a missing frame must not go unnoticed */
}

static void session_answer(struct peer_session *session, uint64_t id, int result, fl_bytes body)
{
    if (body.size > PEER_BODY_MOST) {
        result = FL_TOO_LARGE;
        body.size = 0;
    }
    uint32_t number = htole32((uint32_t)result);
    put_or_end(session, PEER_ANSWER, id, (fl_bytes){&number, PEER_RESULT}, body);
}

void peer_answer(struct peer_request *request, int result, fl_bytes body)
{
    struct peer_session *session = request->session;
    if (session) {
        take_out(request);
        if (!session->ended)
            session_answer(session, request->id, result, body);
    }
    free(request);
}

void peer_piece(struct peer_request *request, fl_bytes piece)
{
    struct peer_session *session = request->session;
    if (!session || session->ended)
        return;
    fl__assert(piece.size <= PEER_BODY_MOST);
    put_or_end(session, PEER_PIECE, request->id, (fl_bytes){0}, piece);
}

size_t peer_unsent(const struct peer_request *request)
{
    const struct peer_session *session = request->session;
    return session && !session->ended ? http_unsent(session->http) + http_buffer_size(&session->out) : 0;
}

/* --- What comes --------------------------------------------------------------------------------------------------- */

static void called(struct peer_session *session, const struct peer_frame *frame)
{
    struct peer_request *request = malloc(sizeof *request);
    if (!request) {
        session_answer(session, frame->id, FL_NO_MEMORY, (fl_bytes){0});
        return;
    }
    *request = (struct peer_request){
        .kind = frame->kind, .body = frame->body, .address = session->address, .id = frame->id, .session = session};
    fl__hash_insert(&session->by_id, &request->by_id, frame->id);
    LIST_INSERT_HEAD(&session->requests, request, entry);
    session->sessions->host->handle(session->sessions->host->arg, request);
}

static void cancelled(struct peer_session *session, uint64_t id)
{
    struct hash_link *link = fl__hash_first(&session->by_id, id);
    if (link) /* else the answer is on its way */
        tell_gone(hash_entry(link, struct peer_request, by_id));
}

static void prove(struct peer_session *session, const struct peer_frame *frame)
{
    unsigned char proof[PEER_MAC];
    if (frame->kind != PEER_PROOF || !peer_is_proof(&session->pact, PEER_CALLER, frame->body)) {
        peer_put(&session->out, PEER_REFUSED, 0, (fl_bytes){0});
        session_end(session);
        return;
    }
    session->proved = true;
    session->reader.most = PEER_BODY_MOST;
    if (peer_prove(&session->pact, PEER_CALLED, proof))
        put_or_end(session, PEER_PROOF, 0, (fl_bytes){0}, (fl_bytes){proof, PEER_MAC});
    else
        session_end(session);
}

static void handle(struct peer_session *session, const struct peer_frame *frame)
{
    if (!session->proved)
        prove(session, frame);
    else if (frame->kind >= PEER_CALL)
        called(session, frame);
    else if (frame->kind == PEER_CANCEL)
        cancelled(session, frame->id);
    else if (frame->kind != PEER_ALIVE)
        session_end(session);
}

static void on_data(http_request *http, fl_bytes piece, bool last)
{
    struct peer_session *session = http->arg;
    struct peer_frame frame;
    int r = 0;
    (void)last; /* the bytes end with the connection: on_gone() */
    session->silent = 0;
    while (!session->ended && (r = peer_read(&session->reader, &piece, &frame)) > 0)
        handle(session, &frame);
    if (r < 0)
        session_end(session);
}

static void on_gone(http_request *http)
{
    session_end(http->arg);
}

/* --- Sessions ----------------------------------------------------------------------------------------------------- */

static void watch(struct peer_session *session)
{
    session->age++;
    session->quiet++;
    if (++session->silent > PEER_TICKS_SILENT || (!session->proved && session->age > PEER_TICKS_PROOF))
        session_end(session);
    else if (session->proved && session->quiet >= PEER_TICKS_ALIVE && http_unsent(session->http) == 0 &&
             peer_put(&session->out, PEER_ALIVE, 0, (fl_bytes){0}))
        make_dirty(session);
}

/* Looking after one may end any other, because `gone` may do anything. So each goes to the end of the list, until one is met
 * that has been looked after in this tick. */
static void on_tick(fl_loop *loop, void *arg)
{
    peer_sessions *sessions = arg;
    struct peer_session *session;
    (void)loop;
    sessions->ticks++;
    while ((session = TAILQ_FIRST(&sessions->all)) && session->seen != sessions->ticks) {
        session->seen = sessions->ticks;
        TAILQ_REMOVE(&sessions->all, session, entry);
        TAILQ_INSERT_TAIL(&sessions->all, session, entry);
        watch(session);
    }
    flush_all(sessions);
    free_ended(sessions);
}

int peer_sessions_new(fl_loop *loop, const struct peer_host *host, peer_sessions **ret)
{
    if (host->secret.size == 0)
        return FL_INVALID_ARGUMENT;
    peer_sessions *sessions = calloc(1, sizeof *sessions);
    if (!sessions)
        return FL_NO_MEMORY;
    sessions->loop = loop;
    sessions->host = host;
    TAILQ_INIT(&sessions->all);
    TAILQ_INIT(&sessions->dirty);
    TAILQ_INIT(&sessions->ended);
    int r = fl_loop_interval(loop, PEER_TICK_NS, FL_INTERVAL_SKIP | FL_TIMER_UNREF, on_tick, sessions, &sessions->tick);
    if (r < 0) {
        free(sessions);
        return r;
    }
    *ret = sessions;
    return 0;
}

static void refuse(http_request *request, int status, const char *type, const char *detail)
{
    struct problem problem;
    struct out out = {0};
    problem_set(&problem, status, type, NULL, "%s", detail);
    problem_write(&out, &problem);
    if (out.failed)
        out_free(&out); /* then there is no body */
    http_answer(request, status, PROBLEM_TYPE, NULL, out_bytes(&out));
    out_free(&out);
}

static struct peer_session *session_new(peer_sessions *sessions, http_request *http)
{
    struct peer_session *session = calloc(1, sizeof *session);
    if (!session || !peer_pact_begin(&session->pact, sessions->host->secret, PEER_CALLED)) {
        free(session);
        return NULL;
    }
    session->sessions = sessions;
    session->http = http;
    session->reader.most = PEER_MAC;
    session->pact.bound = http_channel_key(http, session->pact.channel);
    session->seen = sessions->ticks;
    TAILQ_INSERT_TAIL(&sessions->all, session, entry);
    return session;
}

static bool begin(struct peer_session *session, fl_bytes address)
{
    http_request *http = session->http;
    char hello[PEER_HELLO], lines[sizeof PEER_UPGRADE_LINES + PEER_HELLO];
    memcpy(session->address, address.data, address.size);
    peer_pact_say(&session->pact, PEER_CALLED, hello);
    stpcpy(stpcpy(lines, PEER_UPGRADE_LINES), hello);
    http->arg = session;
    http->data = on_data;
    http->gone = on_gone;
    return http_upgrade(http, lines);
}

/* Why the request is refused: its status; 0: it is a link's. */
static int check(const peer_sessions *sessions, http_request *request, const char **ret_type, const char **ret_detail)
{
    struct peer_pact theirs = {.version[PEER_CALLED] = PEER_PROTOCOL};
#define REFUSE(status, type, detail) (*ret_type = (type), *ret_detail = (detail), (status))
    if (sessions->stopped)
        return REFUSE(503, "stopping", "the server is stopping");
    if (!peer_is_address(http_header(request, "foliot-peer-address")) ||
        !peer_pact_hear(&theirs, PEER_CALLER, http_header(request, "foliot-peer-version"),
                        http_header(request, "foliot-peer-random")))
        return REFUSE(401, "unauthorized", "only the other servers of the store may use this path");
    if (!peer_pact_agrees(&theirs))
        return REFUSE(400, "version",
                      "this server speaks another version of the protocol between servers; run the same version "
                      "of Foliot on all servers");
    if (!http_same(http_header(request, "upgrade"), PEER_UPGRADE))
        return REFUSE(426, "upgrade-required", "a link between servers needs the header \"Upgrade: " PEER_UPGRADE "\"");
    return 0;
}

void peer_accept(peer_sessions *sessions, http_request *request)
{
    const char *type, *detail;
    int status = check(sessions, request, &type, &detail);
    if (status) {
        refuse(request, status, type, detail);
        return;
    }
    struct peer_session *session = session_new(sessions, request);
    if (!session) {
        refuse(request, 503, "no-memory", "the server has no memory left");
        return;
    }
    peer_pact_hear(&session->pact, PEER_CALLER, http_header(request, "foliot-peer-version"),
                   http_header(request, "foliot-peer-random"));
    if (begin(session, http_header(request, "foliot-peer-address")))
        return;
    request->data = NULL;
    request->gone = NULL;
    TAILQ_REMOVE(&sessions->all, session, entry);
    session->ended = true;
    session_free(session);
    refuse(request, 400, "upgrade",
           "the request cannot be upgraded: it must be HTTP/1.1, without a body, on a connection that is kept");
}

/* Whether nothing is under way that may have an effect. */
static bool is_quiet(const struct peer_session *session)
{
    for (const struct peer_request *request = LIST_FIRST(&session->requests); request;
         request = LIST_NEXT(request, entry))
        if (!request->harmless)
            return false;
    return true;
}

static void session_close(struct peer_session *session)
{
    if (session->proved && is_quiet(session))
        peer_put(&session->out, PEER_CLOSING, 0, (fl_bytes){0});
    session_end(session);
}

void peer_sessions_stop(peer_sessions *sessions)
{
    sessions->stopped = true;
    while (!TAILQ_EMPTY(&sessions->all))
        session_close(TAILQ_FIRST(&sessions->all));
}

void peer_sessions_free(peer_sessions *sessions)
{
    if (!sessions)
        return;
    peer_sessions_stop(sessions);
    free_ended(sessions);
    fl_loop_cancel(sessions->loop, sessions->tick);
    if (sessions->has_immediate)
        fl_loop_cancel(sessions->loop, sessions->immediate);
    free(sessions);
}
