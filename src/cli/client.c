/* SPDX-License-Identifier: MIT */
/* See client.h. */

#include "cli/client.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <foliot/version.h>

#include "cli/show.h"

#define DEFAULT_URL "http://127.0.0.1:7411"
enum { CONNECT_SECONDS = 10, SILENT_SECONDS = 60, BUFFER = 256 << 10 };

/* --- Signals ------------------------------------------------------------------------------------------------------ */

static volatile sig_atomic_t signals;
static int wake_fd = -1; /* an eventfd: readable when a signal has arrived since client_wait() has looked */

static void wake(void)
{
    int error = errno;
    ssize_t written = write(wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)written; /* it fails only if it is readable already */
    errno = error;
}

static void on_signal(int signal)
{
    if (signal != SIGCHLD)
        signals++;
    wake();
}

/* Without SA_RESTART: a system call that waits is woken. */
int client_catch_signals(const struct client *client, bool children)
{
    struct sigaction action = {.sa_handler = on_signal}, before;
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0)
        return client_say(client, CLI_FAILED, "cannot create an eventfd: %s", strerror(errno));
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (children && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
    if (children)
        sigaction(SIGCHLD, &action, NULL);
    return CLI_OK;
}

int client_signals(void)
{
    return signals;
}

bool client_interrupted(void)
{
    return signals > 0;
}

/* --- Asking ------------------------------------------------------------------------------------------------------- */

struct exchange {
    struct client *client;
    const struct client_request *request;
    struct out *answer, problem, url;
    struct curl_slist *headers;
    bool enough;
};

static bool is_cut_off(const struct client_request *request)
{
    return signals > 0 && signals >= request->signals;
}

static int look_up(void *arg, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up)
{
    const struct exchange *x = arg;
    (void)total, (void)now, (void)up_total, (void)up;
    return is_cut_off(x->request);
}

/* Commands that `foliot lease` runs must not inherit connections: the server would take them for open after our end. And
 * after hanging up, curl must not send the request again on another connection. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct client *client = arg;
    (void)purpose;
    if (!client->hung_up)
        client->socket = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    return client->hung_up ? CURL_SOCKET_BAD : client->socket;
}

static int close_socket(void *arg, curl_socket_t fd)
{
    struct client *client = arg;
    if (fd == client->socket)
        client->socket = CURL_SOCKET_BAD;
    return close(fd);
}

static size_t on_answer(char *data, size_t one, size_t size, void *arg)
{
    struct exchange *x = arg;
    long status = 0;
    (void)one;
    curl_easy_getinfo(x->client->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 200 && status < 300 && x->request->take) {
        x->enough = !x->request->take(x->request->arg, (fl_bytes){data, size});
        return x->enough ? 0 : size;
    }
    struct out *to = status >= 200 && status < 300 && x->answer ? x->answer : &x->problem;
    out_put(to, data, size);
    return to->failed ? 0 : size;
}

static size_t on_ask(char *to, size_t one, size_t size, void *arg)
{
    struct exchange *x = arg;
    (void)one;
    return x->request->give(x->request->arg, to, size);
}

static struct curl_slist *headers_of(const struct client *client, const struct client_request *request)
{
    const char *const wanted[] = {
        "Expect:", request->body.size > 0 ? "Content-Type: application/json" : "Content-Type:",
        request->give ? "Content-Type: application/x-ndjson" : NULL, client->authorization, request->header};
    struct curl_slist *list = NULL;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct curl_slist *longer = wanted[i] ? curl_slist_append(list, wanted[i]) : list;
        if (!longer) {
            curl_slist_free_all(list);
            return NULL;
        }
        list = longer;
    }
    return list;
}

static void set_up(struct exchange *x)
{
    CURL *curl = x->client->curl;
    const struct client_request *request = x->request;
    const char *authority = getenv("SSL_CERT_FILE"), *url = x->url.data;
    curl_easy_reset(curl);
    x->client->error[0] = '\0';
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, x->client->error);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L); /* a timer may be called ".." */
    curl_easy_setopt(curl, CURLOPT_PROXY, "");      /* FOLIOT_URL says where, and nothing else does */
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    /* A reader of our output that goes away ends us, as it ends others. Only TLS writes so that SIGPIPE must be ignored. */
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, (long)(strncmp(url, "https:", 6) != 0));
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_up);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, x);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, x->client);
    curl_easy_setopt(curl, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    curl_easy_setopt(curl, CURLOPT_CLOSESOCKETDATA, x->client);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)request->timeout_s);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, x->headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, x);
    if (authority && *authority)
        curl_easy_setopt(curl, CURLOPT_CAINFO, authority);
    if (request->pings) {
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)SILENT_SECONDS);
    }
    if (request->give) {
        curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, (long)BUFFER);
        curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_ask);
        curl_easy_setopt(curl, CURLOPT_READDATA, x);
    } else if (request->body.size > 0 || strcmp(request->method, "POST") == 0) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.size);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body.size > 0 ? request->body.data : "");
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
}

static int finish(struct exchange *x, CURLcode code)
{
    struct client *client = x->client;
    long status = 0;
    curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &status);
    if (x->problem.failed || (x->answer && x->answer->failed))
        return client_no_memory(client);
    if (client->hung_up && code != CURLE_OK) {
        assert(x->answer);
        out_clear(x->answer);
        return CLI_OK;
    }
    if (x->enough || (x->request->signals == 0 && signals > 0 && code == CURLE_ABORTED_BY_CALLBACK))
        return CLI_OK;
    if (code == CURLE_OK && status >= 200 && status < 300)
        return CLI_OK;
    /* A server that refuses a request need not read the rest of it: then sending fails after the answer has come. */
    if (code == CURLE_OK || (status >= 400 && x->problem.size > 0))
        return client_explain_status(client, status, &x->problem);
    return client_explain_failure(client, code);
}

static void discard(struct exchange *x)
{
    curl_slist_free_all(x->headers);
    out_free(&x->url);
    out_free(&x->problem);
}

static int prepare(struct exchange *x)
{
    if (x->answer)
        out_clear(x->answer);
    out_text(&x->url, x->client->url);
    out_put(&x->url, x->request->path->data, x->request->path->size);
    out_put(&x->url, "", 1);
    x->headers = headers_of(x->client, x->request);
    if (x->url.failed || x->request->path->failed || !x->headers) {
        discard(x);
        return client_no_memory(x->client);
    }
    set_up(x);
    return CLI_OK;
}

int client_send(struct client *client, const struct client_request *request, struct out *answer)
{
    struct exchange x = {.client = client, .request = request, .answer = answer};
    int status = prepare(&x);
    if (status == CLI_OK) {
        status = finish(&x, curl_easy_perform(client->curl));
        discard(&x);
    }
    return status;
}

/* --- Asking beside other work ------------------------------------------------------------------------------------- */

int client_begin(struct client *client, const struct client_request *request, struct out *answer)
{
    assert(!client->exchange && answer);
    if (!client->multi)
        client->multi = curl_multi_init();
    struct exchange *x = client->multi ? calloc(1, sizeof *x) : NULL;
    if (!x)
        return client_no_memory(client);
    *x = (struct exchange){.client = client, .request = request, .answer = answer};
    int status = prepare(x);
    if (status == CLI_OK && curl_multi_add_handle(client->multi, client->curl) != CURLM_OK) {
        status = client_no_memory(client);
        discard(x);
    }
    if (status == CLI_OK)
        client->exchange = x;
    else
        free(x);
    return status;
}

/* The request is over: forgets it. */
static void forget(struct client *client)
{
    curl_multi_remove_handle(client->multi, client->curl);
    discard(client->exchange);
    free(client->exchange);
    client->exchange = NULL;
    client->hung_up = false;
}

static bool look_if_over(struct client *client, int *ret_status)
{
    int running, left;
    if (!client->exchange)
        return false;
    CURLMcode failed = curl_multi_perform(client->multi, &running);
    const CURLMsg *message = curl_multi_info_read(client->multi, &left);
    if (failed == CURLM_OK && !message)
        return false;
    *ret_status = finish(client->exchange, message ? message->data.result : CURLE_OUT_OF_MEMORY);
    forget(client);
    return true;
}

bool client_wait(struct client *client, int timeout_ms, int *ret_status)
{
    struct curl_waitfd wake_up = {.fd = wake_fd, .events = CURL_WAIT_POLLIN};
    uint64_t count;
    if (look_if_over(client, ret_status))
        return true;
    if (client->multi) {
        curl_multi_poll(client->multi, &wake_up, 1, timeout_ms < 0 ? INT_MAX : timeout_ms, NULL);
    } else {
        struct pollfd only = {.fd = wake_fd, .events = POLLIN};
        poll(&only, 1, timeout_ms);
    }
    ssize_t size = read(wake_fd, &count, sizeof count);
    (void)size; /* a signal that arrives from here on wakes the next call */
    return look_if_over(client, ret_status);
}

void client_abort(struct client *client)
{
    if (client->exchange)
        forget(client);
}

void client_hang_up(struct client *client)
{
    assert(client->exchange);
    client->hung_up = true;
    if (client->socket == CURL_SOCKET_BAD || shutdown(client->socket, SHUT_WR) < 0)
        client_abort(client); /* not connected: the server does not know the request */
}

int client_call(struct client *client, const char *method, const struct out *path, const struct out *body,
                struct out *answer)
{
    if (body && body->failed)
        return client_no_memory(client);
    struct client_request request = {.method = method, .path = path, .body = body ? out_bytes(body) : (fl_bytes){0}};
    return client_send(client, &request, answer);
}

int client_read(const struct client *client, const struct out *answer, struct json *ret)
{
    size_t at;
    const char *why;
    if (json_parse(out_bytes(answer), ret, &at, &why) < 0 || ret->kind != JSON_OBJECT)
        return client_say(client, CLI_FAILED, "%s did not answer with a JSON object; check FOLIOT_URL or --server",
                          client->url);
    return CLI_OK;
}

int client_ask(struct client *client, const char *method, const struct out *path, const struct out *body,
               struct out *answer, struct json *ret)
{
    int status = client_call(client, method, path, body, answer);
    return status != CLI_OK || client_interrupted() ? status : client_read(client, answer, ret);
}

/* --- Opening ------------------------------------------------------------------------------------------------------ */

static bool is_one_line(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

int client_prepare(struct client *client, const struct cli_command *command)
{
    const char *url = cli_server ? cli_server : getenv("FOLIOT_URL"), *token = getenv("FOLIOT_TOKEN");
    *client = (struct client){.command = command, .socket = CURL_SOCKET_BAD};
    if (token && !is_one_line(token))
        return client_say(client, CLI_USAGE, "FOLIOT_TOKEN contains control characters; a token is one line");
    client->url = strdup(url && *url ? url : DEFAULT_URL);
    if (!client->url || (token && *token && asprintf(&client->authorization, "Authorization: Bearer %s", token) < 0))
        return client_no_memory(client);
    for (size_t size = strlen(client->url); size > 0 && client->url[size - 1] == '/'; size--)
        client->url[size - 1] = '\0';
    client->curl = curl_easy_init();
    if (!client->curl) {
        client_close(client);
        client_no_memory(client);
        return CLI_FAILED;
    }
    return CLI_OK;
}

int client_ask_version(struct client *client)
{
    struct out path = {0}, answer = {0};
    struct json body, version = {0};
    size_t at;
    const char *why;
    out_text(&path, "/version");
    int status = client_call(client, "GET", &path, NULL, &answer);
    if (status == CLI_NOT_FOUND || (status == CLI_OK && (json_parse(out_bytes(&answer), &body, &at, &why) < 0 ||
                                                         !json_get(body, "version", &version))))
        status = client_say(client, CLI_FAILED, "no Foliot server at %s; check FOLIOT_URL or --server", client->url);
    if (status == CLI_OK) {
        out_clear(&client->version);
        put_shown(&client->version, version);
        out_put(&client->version, "", 1);
    }
    out_free(&path);
    out_free(&answer);
    return status == CLI_OK && client->version.failed ? client_no_memory(client) : status;
}

int client_open(struct client *client, const struct cli_command *command)
{
    int status = client_prepare(client, command);
    if (status != CLI_OK)
        return status;
    status = client_ask_version(client);
    if (status != CLI_OK) {
        client_close(client);
        return status;
    }
    if (strcmp(client->version.data, FL_VERSION) != 0)
        fprintf(stderr,
                "foliot: warning: the server at %s has version %s, and this command has version %s; install the same "
                "version of both\n",
                client->url, client->version.data, FL_VERSION);
    return CLI_OK;
}

void client_close(struct client *client)
{
    client_abort(client);
    if (client->multi)
        curl_multi_cleanup(client->multi);
    if (client->curl)
        curl_easy_cleanup(client->curl);
    free(client->url);
    free(client->authorization);
    out_free(&client->version);
}

/* --- Paths -------------------------------------------------------------------------------------------------------- */

static void put_encoded(struct out *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (isalnum(c) || strchr("-_.~", c))
            out_put(out, text, 1);
        else
            out_format(out, "%%%02X", c);
    }
}

void put_path(struct out *out, const char *begin, ...)
{
    va_list arguments;
    out_text(out, begin);
    va_start(arguments, begin);
    for (const char *part; (part = va_arg(arguments, const char *)) != NULL;) {
        out_put(out, "/", 1);
        put_encoded(out, part);
    }
    va_end(arguments);
}

void put_query(struct out *out, const char *name, const char *value)
{
    if (!value)
        return;
    out_put(out, memchr(out->data, '?', out->size) ? "&" : "?", 1);
    out_text(out, name);
    out_put(out, "=", 1);
    put_encoded(out, value);
}
