/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_API_INTERNAL_H
#define FOLIOT_API_INTERNAL_H

/* What the files of this folder share. */

#include "api/api.h"
#include "text/json.h"
#include "text/out.h"
#include "text/problem.h"

struct call;

/* Flags of a route, besides RIGHT_…. */
enum {
    OPEN = 0,
    ANY_NAMESPACE = 8, /* the handler looks itself */
    STREAMS = 16,      /* it reads the body itself */
    QUERY = 32,        /* there may be one; the others refuse it */
    LARGE = 64,        /* the response may be large */
    LASTING = 128,     /* the response goes on for as long as the client wants */
    SIGNED = 256,      /* any valid token will do */
};

struct route {
    enum http_method method;
    const char *path; /* * is a namespace, then a name */
    unsigned flags;   /* RIGHT_…, and of these */
    void (*handle)(struct call *call);
};

enum { SESSION_COOKIE = 64 }; /* characters */

/* A request that is being handled: call.c. */
struct call {
    http_request *request;
    struct worker *worker;
    const struct tokens *tokens; /* by which it was let in */
    const struct token *token;   /* NULL: none is needed */
    const struct route *route;
    fl_bytes ns, name;
    struct problem problem;
    struct out out; /* the answer */
    int status;
    enum { PART_WHOLE, PART_BRIEF, PART_PAYLOAD } part; /* part.c */
    bool binary;                                        /* with PART_PAYLOAD: it is not JSON */
    void *state;                                        /* the handler's */
    /* Takes the answer, in `out` or as `problem`, and the call. NULL: it goes to the client. */
    void (*answered)(struct call *call, int status);
    int64_t session_ends_us;     /* with a cookie */
    char cookie[SESSION_COOKIE]; /* of the dashboard, if it is let in by that; else it begins with a NUL */
    char ns_room[256], name_room[256];
};

/* Bytes: a page of a list ends when it has reached LIST_BYTES, and there may be a part of a page and a copy beside it; a
 * subscriber of events has at most EVENTS_BYTES unsent. */
enum { LIST_BYTES = 1 << 20, LIST_MEMORY = 4 * LIST_BYTES, EVENTS_BYTES = 64 << 10, EVENTS_MEMORY = 2 * EVENTS_BYTES };

void call_answer(struct call *call, int status); /* with `out` as JSON */
void call_answer_as(struct call *call, int status, const char *type, const char *extra);
void call_refuse(struct call *call); /* with `problem` */
int call_refuse_result(struct call *call, int result);
void call_refuse_with(struct call *call, const char *extra); /* the same, with more header fields */
void call_free(struct call *call);                           /* without an answer */
/* The problem document for a request that could not even be read. Returns its size; 0: it does not fit. */
size_t call_bad_request(int status, const char *what, char *out, size_t size);
void call_drop(struct call *call); /* another owner handles the request from now on */
bool call_may(const struct call *call, unsigned right, fl_bytes ns);
bool call_check_token(struct call *call); /* whether its token may do what it asks for; if not, `problem` says so */
/* Whether it would be let in now: tokens may have been read again since it came, and then it has the rights that its token
 * has now. If not, `problem` says so. */
bool call_is_let_in(struct call *call);
/* A parameter of the query. Returns 1; 0: it is not given; -1: it cannot be read, or is there twice, and `problem` says so.
 * What is not understood must not count as not given: a filter that is left out lets everything through. */
int call_query(struct call *call, const char *name, char *room, size_t size, fl_bytes *ret);
int call_time(struct call *call, const char *name, int64_t *ret); /* a parameter that is a time. 0, or -1 */
/* A parameter that is a whole number from 1 to `most`; `*ret` stays as it is if it is not given. 0, or -1. */
int call_count(struct call *call, const char *name, int64_t most, uint64_t *ret);
/* A parameter that may be "true", and nothing else. 0, or -1. */
int call_true(struct call *call, const char *name, bool *ret);
/* Takes the first parameter off a query, as it was sent. Returns false if the query is empty. */
bool call_next_parameter(fl_bytes *query, fl_bytes *ret_name, fl_bytes *ret_value);
/* The same for a filter: 0 means that it is not given, so 1 stands for 1970 and earlier. Nothing is due then. */
int call_bound(struct call *call, const char *name, int64_t *ret);
int call_check_query(struct call *call,
                     const char *const *known); /* whether there are others; `known` ends with NULL */
/* Undoes the encoding with percent signs. Returns the size, -1 if it is wrong or too long. */
ssize_t percent_decode(const char *from, size_t size, char *to, size_t room, bool plus);
int call_json(struct call *call, struct json *ret); /* the body; refuses and returns -1 if it is not JSON */
int call_no_fields(struct call *call);              /* refuses and returns -1 if the body has any */

/* --- cursor.c */
void cursor_write(struct call *call, fl_bytes place); /* the member "cursor" with a comma in front */
/* The place of the cursor that is given. Returns 1; 0: none is given; -1: it is not of this list, and `problem` says so. */
int cursor_read(struct call *call, void *room, size_t size, fl_bytes *ret);
int cursor_refuse(struct call *call); /* sets `problem`; returns -1 */

/* Of each file, what a route leads to. */
void timers_put(struct call *call);
void timers_post(struct call *call);
void timers_get(struct call *call);
void timers_patch(struct call *call);
void timers_delete(struct call *call);
void timers_fire(struct call *call);
void batch_begin(struct call *call);
void schedules_put(struct call *call);
void schedules_get(struct call *call);
void schedules_patch(struct call *call);
void schedules_delete(struct call *call);
void schedules_list(struct call *call);
void schedules_preview(struct call *call);
void schedules_preview_unsaved(struct call *call);
void schedules_trigger(struct call *call);
void schedules_backfill(struct call *call);
void list_get(struct call *call);
void list_cancel(struct call *call);
void dead_list(struct call *call);
void dead_get(struct call *call);
void dead_redrive(struct call *call);
void dead_delete(struct call *call);
void timers_payload(struct call *call);
void dead_groups(struct call *call); /* of dead_list */
void dead_redrive_many(struct call *call);
void dead_delete_many(struct call *call);
void dead_payload(struct call *call);
void history_list(struct call *call);
void history_delete(struct call *call);
/* Reads the parameter `id`, of which `*ret_shard` is the shard. Returns 1; 0: it is not given; -1. */
int history_read_id(struct call *call, fl_key *ret, struct shard **ret_shard);
/* Erases the history of one timer (`id`; seq 0: of the whole namespace), in one shard (NULL: in all). */
void history_erase(struct worker *worker, fl_bytes ns, struct shard *shard, fl_key id,
                   void (*done)(void *arg, int result), void *arg);
void lease_post(struct call *call);
void ack_post(struct call *call);
void events_get(struct call *call);
void clock_post(struct call *call);
void clock_get(struct call *call);
void cluster_get(struct call *call);
void metrics_get(struct call *call);
void health_get(struct call *call);
void ready_get(struct call *call);
void version_get(struct call *call);
void openapi_get(struct call *call);
void root_get(struct call *call);
void ui_redirect(struct call *call);
void ui_file_get(struct call *call);
void session_post(struct call *call);
void session_delete(struct call *call);
void whoami_get(struct call *call);
void stats_get(struct call *call);
void forecast_get(struct call *call);
void samples_get(struct call *call); /* of /v1/events */
void namespaces_get(struct call *call);
void namespace_get(struct call *call);
void namespace_put(struct call *call);
void namespace_patch(struct call *call);
void namespace_pause(struct call *call);
void namespace_resume(struct call *call);
/* The member "paused" with a comma in front, if the namespace is. */
void pause_write(struct out *out, const struct pauses *pauses, int64_t now_us);
/* As they are stored, with a comma in front; and the reverse, which leaves out what it cannot read. */
void pauses_write_stored(struct out *out, const struct pauses *pauses);
void pauses_read_stored(struct json stored, struct pauses *ret);
void namespace_delete(struct call *call);
void hosts_get(struct call *call);
void host_pause(struct call *call);
void host_resume(struct call *call);

/* --- hosts.c */
bool hosts_may(struct call *call, unsigned right); /* in all namespaces; if not, `problem` says so */
void host_get(struct call *call, fl_bytes host);   /* answers with one host; the text is copied */
void hosts_metrics(struct out *out, struct node *node);

/* --- timers.c, for batches too */

/* Adds what the namespace has set, and takes a place among the timers that it may have: `*ret_place` (place_take()). If there
 * is a limit and no place, it may only replace a timer. Returns 0, or -1. */
int timers_complete(struct node *node, fl_op *op, struct space **ret_place, struct problem *problem);
int timers_problem(const struct node *node, const fl_op *op, struct problem *problem); /* of one that failed */

/* --- part.c */
int part_read(struct call *call);  /* ?payload=. Returns 0, or -1 */
int part_check(struct call *call); /* part_read(), and no other parameter is given */
/* Writes the bytes of the payload. Returns 0; -1: no payload is given, and `problem` says so. */
int part_write_payload(struct call *call, const fl_durable *timer);
void part_answer(struct call *call, int status);

/* --- session.c */
fl_bytes session_cookie(http_request *request); /* size 0: there is none */
/* Looks up what the cookie of a call stands for, then calls call_enter(), or refuses. */
void session_enter(struct call *call);
void call_enter(struct call *call);
/* Whether it is from the dashboard, or only reads; if not, `problem` says so. A page of another site cannot send that
 * header. */
bool session_may_change(struct call *call);
/* For a response that goes on: session_watch_look() calls `ended` later if the login has ended. */
struct session_watch *session_watch_new(const struct call *call, void (*ended)(void *arg), void *arg);
void session_watch_look(struct session_watch *watch);
void session_watch_free(struct session_watch *watch); /* NULL is allowed */

/* --- stats.c */
/* The parameter `namespace`, which the client may read; without it, the client must be allowed to read all. Returns 0, or
 * -1. */
int stats_read_namespace(struct call *call, char room[256], fl_bytes *ret);
void stats_write_gauges(struct out *out, const struct stats_gauges *gauges, bool all);

/* --- samples.c, for events.c */
void samples_check(struct worker *worker);
void samples_stop(struct worker *worker);

/* --- rate.c */
bool rate_allows(struct api *api, const struct sockaddr *peer, int64_t now_us);

/* --- settings.c */
void settings_write(struct out *out, const struct settings *settings, bool with_secrets);

/* --- space_metrics.c: writes the metrics of namespaces into `call->out`, some at a time, then calls `done` */
void spaces_metrics(struct call *call, void (*done)(struct call *call));
void metrics_write_label(struct out *out, const char *name, fl_bytes value); /* as the format of Prometheus wants it */

#endif
