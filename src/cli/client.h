/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CLI_CLIENT_H
#define FOLIOT_CLI_CLIENT_H

/* The server at FOLIOT_URL, asked with FOLIOT_TOKEN over one connection that is kept.
 *
 * What returns an exit status (cli.h) has said on stderr what is wrong and what to do when that is not CLI_OK. */

#include <curl/curl.h>

#include "cli/cli.h"
#include "server/json.h"
#include "server/out.h"

struct client {
    CURL *curl;
    const struct cli_command *command; /* in whose name it speaks */
    char *url;                         /* without a slash at the end */
    char *authorization;               /* a header, or NULL */
    struct out version;                /* the server's */
    bool quiet;                        /* says nothing, whatever is wrong */
    char error[CURL_ERROR_SIZE];
};

/* Gets ready; then asks the server for its version, and warns if it is another one than ours. There is nothing to close if it
 * fails. */
int client_open(struct client *client, const struct cli_command *command);
void client_close(struct client *client);

/* Gets ready, and asks nobody. */
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
};

/* Asks. CLI_OK if the server did what was asked: then `*answer` is the answer (cleared before; NULL with `take`). */
int client_send(struct client *client, const struct client_request *request, struct out *answer);

/* The same for the common cases. `body` may be NULL. */
int client_call(struct client *client, const char *method, const struct out *path, const struct out *body,
                struct out *answer);

/* As client_call(), and `*ret` is the answer, which must be a JSON object. */
int client_ask(struct client *client, const char *method, const struct out *path, const struct out *body,
               struct out *answer, struct json *ret);

/* Says something in the command's name on stderr: "foliot add: …". Returns `status`. */
int client_say(const struct client *client, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
int client_no_memory(const struct client *client);

/* What a problem of the server's means (also in a line of a batch): says it, after `about`, and returns the status. */
int client_explain(const struct client *client, const char *about, struct json problem);

/* Until SIGINT or SIGTERM: client_send() then returns CLI_OK early, with what has come by then. */
void client_catch_signals(void);
bool client_interrupted(void);

/* Paths: put_path(out, "/v1/timers", namespace, name, NULL), everything behind the first encoded. Then perhaps queries. */
void put_path(struct out *out, const char *begin, ...) __attribute__((sentinel));
void put_query(struct out *out, const char *name, const char *value); /* nothing if `value` is NULL */

#endif
