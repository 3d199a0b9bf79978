/* SPDX-License-Identifier: MIT */
/* The side of a link that is called: a session for each link, and the calls that have come over it.
 *
 * A call knows its session until it is answered or the session has ended; after that it stands for itself, and its answer goes
 * nowhere. Answers are collected and written at the end of the turn, but that a large body is not copied for it. One tick
 * looks after all sessions; it also writes what no immediate could be had for.
 *
 * The handler may do anything, stopping the sessions included: so a session that has ended is freed at the end of the turn. */

#include <stdlib.h>
#include <string.h>

#include "peer/internal.h"
#include "text/problem.h"

enum { TABLE = 1024, LARGE = 65536 };

struct peer_session {
    peer_sessions *sessions;
    struct http_link link, dirty;
    http_request *http;
    struct peer_pact pact;
    bool proved;
    bool ended;
    unsigned age, silent, quiet; /* ticks: as those of a link */
    struct peer_reader reader;
    struct http_buffer out;
    struct peer_request *requests[TABLE]; /* by ID */
    char address[PEER_ADDRESS_MOST + 1];
};

struct peer_sessions {
    fl_loop *loop;
    const struct peer_host *host;
    struct http_link all;
    struct http_link seen;  /* those of them that have been looked after in this tick */
    struct http_link dirty; /* with something to write */
    struct http_link ended; /* to be freed */
    fl_timer_id tick, immediate;
    bool has_immediate;
    bool stopped;
};

static struct peer_session *of_link(struct http_link *link)
{
    return (struct peer_session *)((char *)link - offsetof(struct peer_session, link));
}

static struct peer_session *of_dirty(struct http_link *link)
{
    return (struct peer_session *)((char *)link - offsetof(struct peer_session, dirty));
}

/* --- Writing ------------------------------------------------------------------------------------------------------ */

static void flush(struct peer_session *session)
{
    http_link_remove(&session->dirty);
    size_t size = http_buffer_size(&session->out);
    if (size == 0)
        return;
    http_write(session->http, (fl_bytes){session->out.data + session->out.start, size});
    http_buffer_take(&session->out, size);
    session->quiet = 0;
}

static void flush_all(peer_sessions *sessions)
{
    while (!http_link_empty(&sessions->dirty))
        flush(of_dirty(sessions->dirty.next));
}

static void session_free(struct peer_session *session)
{
    http_buffer_free(&session->out);
    peer_reader_free(&session->reader);
    free(session);
}

static void free_ended(peer_sessions *sessions)
{
    struct http_link *next;
    for (struct http_link *link = sessions->ended.next; link != &sessions->ended; link = next) {
        next = link->next;
        session_free(of_link(link));
    }
    http_link_init(&sessions->ended);
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
    if (!http_link_empty(&session->dirty))
        return;
    http_link_append(&session->sessions->dirty, &session->dirty);
    wake(session->sessions);
}

/* --- The end ------------------------------------------------------------------------------------------------------ */

static void take_out(struct peer_request *request)
{
    *request->link = request->next;
    if (request->next)
        request->next->link = request->link;
    request->session = NULL;
}

static void tell_gone(struct peer_session *session)
{
    for (size_t i = 0; i < TABLE; i++)
        while (session->requests[i]) {
            struct peer_request *request = session->requests[i];
            take_out(request);
            if (request->gone)
                request->gone(request);
        }
}

static void session_end(struct peer_session *session)
{
    http_request *http = session->http;
    if (session->ended)
        return;
    session->ended = true;
    flush(session);
    http_link_remove(&session->link);
    http_link_append(&session->sessions->ended, &session->link);
    wake(session->sessions);
    http->endless = false;
    http_end(http);
    tell_gone(session);
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

static void put_or_end(struct peer_session *session, bool put)
{
    if (put)
        make_dirty(session);
    else
        session_end(session); /* what is missing must not go unnoticed */
}

static bool is_large(fl_bytes body)
{
    return body.size >= LARGE;
}

/* After its head: a body that is not worth copying. */
static void write_body(struct peer_session *session, fl_bytes body)
{
    flush(session);
    http_write(session->http, body);
}

static void session_answer(struct peer_session *session, uint64_t id, int result, fl_bytes body)
{
    if (body.size > PEER_BODY_MOST) {
        result = FL_TOO_LARGE;
        body = (fl_bytes){0};
    }
    if (!is_large(body))
        put_or_end(session, peer_put_answer(&session->out, id, result, body));
    else if (peer_put_answer_head(&session->out, id, result, body.size))
        write_body(session, body);
    else
        session_end(session);
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
    if (!is_large(piece))
        put_or_end(session, peer_put(&session->out, PEER_PIECE, request->id, piece));
    else if (piece.size <= PEER_BODY_MOST && peer_put_head(&session->out, PEER_PIECE, request->id, piece.size))
        write_body(session, piece);
    else
        session_end(session);
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
    struct peer_request **list = &session->requests[frame->id % TABLE];
    *request = (struct peer_request){.kind = frame->kind,
                                     .body = frame->body,
                                     .address = session->address,
                                     .id = frame->id,
                                     .session = session,
                                     .next = *list,
                                     .link = list};
    if (request->next)
        request->next->link = &request->next;
    *list = request;
    session->sessions->host->handle(session->sessions->host->arg, request);
}

static void cancelled(struct peer_session *session, uint64_t id)
{
    struct peer_request *request = session->requests[id % TABLE];
    while (request && request->id != id)
        request = request->next;
    if (!request)
        return; /* the answer is on its way */
    take_out(request);
    if (request->gone)
        request->gone(request);
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
    session->http->endless = true; /* it is watched here */
    put_or_end(session, peer_prove(&session->pact, PEER_CALLED, proof) &&
                            peer_put(&session->out, PEER_PROOF, 0, (fl_bytes){proof, PEER_MAC}));
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
    session->silent = 0;
    while (!session->ended && (r = peer_read(&session->reader, &piece, &frame)) > 0)
        handle(session, &frame);
    if (r < 0 || last)
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

/* Looking after one may end any other, for `gone` may do anything. */
static void on_tick(fl_loop *loop, void *arg)
{
    peer_sessions *sessions = arg;
    (void)loop;
    while (!http_link_empty(&sessions->all)) {
        struct http_link *link = sessions->all.next;
        http_link_remove(link);
        http_link_append(&sessions->seen, link);
        watch(of_link(link));
    }
    while (!http_link_empty(&sessions->seen)) {
        struct http_link *link = sessions->seen.next;
        http_link_remove(link);
        http_link_append(&sessions->all, link);
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
    http_link_init(&sessions->all);
    http_link_init(&sessions->seen);
    http_link_init(&sessions->dirty);
    http_link_init(&sessions->ended);
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
    http_link_init(&session->dirty);
    http_link_append(&sessions->all, &session->link);
    return session;
}

/* The body is the session's from now on. */
static void begin(struct peer_session *session, fl_bytes address)
{
    http_request *http = session->http;
    char hello[PEER_HELLO];
    memcpy(session->address, address.data, address.size);
    peer_pact_say(&session->pact, PEER_CALLED, hello);
    http->arg = session;
    http->body_most = SIZE_MAX;
    http->data = on_data;
    http->gone = on_gone;
    http_begin(http, 200, "application/octet-stream", hello);
}

void peer_accept(peer_sessions *sessions, http_request *request)
{
    fl_bytes version = http_header(request, "foliot-peer-version"), random = http_header(request, "foliot-peer-random");
    fl_bytes address = http_header(request, "foliot-peer-address");
    struct peer_pact theirs = {.version[PEER_CALLED] = PEER_PROTOCOL};
    if (sessions->stopped) {
        refuse(request, 503, "stopping", "the server is stopping");
        return;
    }
    if (!peer_is_address(address) || !peer_pact_hear(&theirs, PEER_CALLER, version, random)) {
        refuse(request, 401, "unauthorized", "only the other servers of the store may use this path");
        return;
    }
    if (!peer_pact_agrees(&theirs)) {
        refuse(request, 400, "version", "this server speaks another version of the protocol between servers");
        return;
    }
    struct peer_session *session = session_new(sessions, request);
    if (!session) {
        refuse(request, 503, "no-memory", "the server has no memory left");
        return;
    }
    peer_pact_hear(&session->pact, PEER_CALLER, version, random);
    begin(session, address);
}

/* Whether nothing is under way that may have an effect. */
static bool is_quiet(const struct peer_session *session)
{
    for (size_t i = 0; i < TABLE; i++)
        for (const struct peer_request *request = session->requests[i]; request; request = request->next)
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
    while (!http_link_empty(&sessions->all))
        session_close(of_link(sessions->all.next));
    while (!http_link_empty(&sessions->seen))
        session_close(of_link(sessions->seen.next));
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
