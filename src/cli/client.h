/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CLI_CLIENT_H
#define FOLIOT_CLI_CLIENT_H

/* Requests to the server at FOLIOT_URL, with FOLIOT_TOKEN, over one persistent connection.
 *
 * A function that returns an exit status (cli.h) other than CLI_OK has printed on stderr what is wrong and what to do. */

#include <curl/curl.h>

#include "cli/cli.h"
#include "text/json.h"
#include "text/out.h"

struct client {
    CURL *curl;
    const struct cli_command *command; /* named in its messages */
    char *url;                         /* without a slash at the end */
    char *authorization;               /* a header, or NULL */
    struct out version;                /* the server's */
    bool quiet;                        /* says nothing, whatever is wrong */
    const char *about;                 /* begins each message; or NULL */
    char error[CURL_ERROR_SIZE];
    struct exchange *exchange; /* the request that client_begin() has begun, or NULL */
    CURLM *multi;              /* for client_begin(), or NULL */
    curl_socket_t socket;      /* the last that was opened and is open, or CURL_SOCKET_BAD */
    bool hung_up;              /* client_hang_up() was called for `exchange` */
};

/* Gets ready; then asks the server for its version, and warns if it is another one than ours. There is nothing to close if it
 * fails. */
int client_open(struct client *client, const struct cli_command *command);
void client_close(struct client *client);

/* Prepares the client. Sends nothing. */
int client_prepare(struct client *client, const struct cli_command *command);

/* Asks for the version. */
int client_ask_version(struct client *client);

struct client_request {
    const char *method;
    const struct out *path; /* "/v1/…" */
    fl_bytes body;
    const char *header; /* one more; or NULL */
    /* Instead of `body`: called for more of it, returns how much there was; 0: that was all. */
    size_t (*give)(void *arg, char *to, size_t size);
    /* Instead of an answer in memory: called with each piece of it. False: enough, and client_send() returns CLI_OK. */
    bool (*take)(void *arg, fl_bytes piece);
    void *arg;
    bool pings; /* it is an endless answer, but never silent for long */
    /* How many signals cut the request off; 0: the first does, and client_send() returns CLI_OK early with the part of the
     * answer that has come. */
    int signals;
    unsigned timeout_s; /* 0: the server may take any time */
};

/* Asks. CLI_OK if the server did what was asked: then `*answer` is the answer (cleared before; NULL with `take`). */
int client_send(struct client *client, const struct client_request *request, struct out *answer);

/* The same for the common cases. `body` may be NULL. */
int client_call(struct client *client, const char *method, const struct out *path, const struct out *body,
                struct out *answer);

/* As client_call(), and `*ret` is the answer, which must be a JSON object. */
int client_ask(struct client *client, const char *method, const struct out *path, const struct out *body,
               struct out *answer, struct json *ret);

/* Reads an answer, which must be a JSON object. */
int client_read(const struct client *client, const struct out *answer, struct json *ret);

/* Says something in the command's name on stderr: "foliot add: …". Returns `status`. */
int client_say(const struct client *client, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
int client_no_memory(const struct client *client);
/* What a problem of the server's means (also in a line of a batch): says it, after `about`, and returns the status. */
int client_explain(const struct client *client, const char *about, struct json problem);
/* The same for a response with an error status, and for a request that has failed. */
int client_explain_status(struct client *client, long status, const struct out *body);
int client_explain_failure(struct client *client, CURLcode code);

/* Asking beside other work: begins a request. `request` and `answer` must stay until it is over. One at a time per client. */
int client_begin(struct client *client, const struct client_request *request, struct out *answer);

/* Waits until the request is over, a signal arrives that client_catch_signals() catches, or `timeout_ms` has passed (-1: for
 * any time). True: the request is over, and `*ret_status` is as from client_send(). Also waits if no request was begun. */
bool client_wait(struct client *client, int timeout_ms, int *ret_status);

/* Tells the server that no further answer is wanted for the request that was begun. What the server has already sent, or
 * sends now, still arrives: so the client knows of everything that the server has done for it. The request is over when the
 * server closes the connection. An answer that does not come is no error then: the status is CLI_OK, and the answer empty. */
void client_hang_up(struct client *client);

/* Gives up the request that was begun, without waiting for the server. */
void client_abort(struct client *client);

/* Catches SIGINT and SIGTERM: see client_request.signals. Also SIGHUP unless it is ignored, if `children`, and the end of
 * child processes wakes client_wait(). Returns CLI_OK or CLI_FAILED. */
int client_catch_signals(const struct client *client, bool children);
int client_signals(void); /* how many have arrived, the end of children not counted */
bool client_interrupted(void);

/* Paths: put_path(out, "/v1/timers", namespace, name, NULL), everything behind the first encoded. Then perhaps queries. */
void put_path(struct out *out, const char *begin, ...) __attribute__((sentinel));
void put_query(struct out *out, const char *name, const char *value); /* nothing if `value` is NULL */

#endif
