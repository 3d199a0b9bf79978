/* SPDX-License-Identifier: MIT */
/* The general way: libcurl's multi interface, driven by the loop. TLS, HTTP/2, names and everything unusual go here.
 *
 * libcurl tells which descriptors to wait for and when it wants to be called next; the loop does both. Names are looked up
 * by libcurl on threads of its own and remembered for a minute; with CURLOPT_QUICK_EXIT, giving a transfer up does not wait
 * for such a thread. An address is checked when a socket is opened for it, which is after every lookup and before every
 * connection. Redirects are not followed here: webhook.c decides where they lead.
 *
 * A handle keeps what it was set up with; only what differs from call to call is set anew. */

#include "webhook/internal.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct webhook_general {
    webhooks *hooks;
    CURLM *multi;
    fl_timer_id timer;
    uint64_t timer_ns; /* when it was to be, if out of memory; 0: there was */
};

/* --- What has ended ----------------------------------------------------------------------------------------------- */

static void make_printable(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

/* A connection that was kept was closed by the other side, or it refused another stream on it, before it answered a byte, as
 * it may do at any time: the call is worth another one. It may come twice then, as deliveries may. */
static bool was_stale(struct webhook_transfer *transfer, CURLcode code)
{
    long made = 1;
    bool lost = code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING ||
                code == CURLE_HTTP2 || code == CURLE_HTTP2_STREAM;
    curl_easy_getinfo(transfer->easy, CURLINFO_NUM_CONNECTS, &made);
    return lost && made == 0 && transfer->answer.status == 0 && !transfer->fresh;
}

/* Whether the next calls may take the fast way: then this one's connection need not be kept here. */
static bool leads_to_plain(const struct webhook_transfer *transfer)
{
    return !transfer->url && transfer->host->key[0] == 'p';
}

/* Remembers where a plain answer came from. */
static void learn(struct webhook_transfer *transfer)
{
    struct sockaddr_storage address = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&address;
    char *text = NULL;
    long port = 0;
    if (!leads_to_plain(transfer) || curl_easy_getinfo(transfer->easy, CURLINFO_PRIMARY_IP, &text) != CURLE_OK ||
        !text || curl_easy_getinfo(transfer->easy, CURLINFO_PRIMARY_PORT, &port) != CURLE_OK)
        return;
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
    } else if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
    } else {
        return; /* with a zone: stays on the general way */
    }
    webhook_learn(transfer->host, &address, fl_loop_now_ns(transfer->hooks->config.loop));
}

/* Whether the answer is there as it says itself, however the transfer ended: what was cut, and what a server says before it
 * has read everything, which with HTTP/2 resets the stream. */
static bool is_whole(const struct webhook_transfer *transfer, CURLcode code)
{
    curl_off_t length = -1;
    if (!transfer->head_ended || transfer->answer.status < 200)
        return false;
    if (code == CURLE_OK || (code == CURLE_WRITE_ERROR && transfer->answer.cut))
        return true;
    curl_easy_getinfo(transfer->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    return length >= 0 && (uint64_t)length == transfer->answer.body_size;
}

static void report(struct webhook_transfer *transfer, CURLcode code)
{
    if (is_whole(transfer, code)) {
        learn(transfer);
        webhook_answered(transfer);
    } else if (was_stale(transfer, code)) {
        transfer->fresh = true;
        webhook_repeat(transfer);
    } else if (transfer->refused && !transfer->tried) {
        webhook_broken(transfer, FL_DEAD,
                       "the address of the host is not on the public Internet; start the server with "
                       "--allow-private-targets to allow it");
    } else if (code == CURLE_OUT_OF_MEMORY) {
        webhook_broken(transfer, FL_FAILED, "out of memory");
    } else if (code == CURLE_OK) {
        webhook_broken(transfer, FL_FAILED, "the target closed the connection within the head of the response");
    } else {
        make_printable(transfer->error);
        webhook_broken(transfer, FL_FAILED, "%s", *transfer->error ? transfer->error : curl_easy_strerror(code));
    }
}

static void reap(struct webhook_general *general)
{
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(general->multi, &left))) {
        struct webhook_transfer *transfer;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&transfer);
        webhook_general_end(transfer);
        report(transfer, code);
    }
}

/* --- The loop ----------------------------------------------------------------------------------------------------- */

static void ready(fl_loop *loop, int fd, unsigned events, void *arg)
{
    struct webhook_general *general = arg;
    int mask = 0, running;
    (void)loop;
    if (events & FL_READ)
        mask |= CURL_CSELECT_IN;
    if (events & FL_WRITE)
        mask |= CURL_CSELECT_OUT;
    if (events & (FL_ERROR | FL_HANGUP))
        mask |= CURL_CSELECT_ERR;
    curl_multi_socket_action(general->multi, fd, mask, &running);
    reap(general);
}

static void overdue(fl_loop *loop, void *arg)
{
    struct webhook_general *general = arg;
    int running;
    (void)loop;
    general->timer = 0;
    curl_multi_socket_action(general->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    reap(general);
}

static void arm(struct webhook_general *general, uint64_t deadline_ns)
{
    bool armed = fl_loop_timer_at(general->hooks->config.loop, deadline_ns, overdue, general, &general->timer) == 0;
    general->timer_ns = armed ? 0 : deadline_ns;
    if (!armed)
        webhook_post(general->hooks);
}

/* libcurl: wait for these events of a descriptor. That it is added already is known by `known`. */
static int watch(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
    struct webhook_general *general = arg;
    fl_loop *loop = general->hooks->config.loop;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        fl_loop_fd_remove(loop, fd);
        return 0;
    }
    unsigned events = (what & CURL_POLL_IN ? FL_READ : 0) | (what & CURL_POLL_OUT ? FL_WRITE : 0);
    if (known) {
        fl_loop_fd_modify(loop, fd, events);
    } else if (fl_loop_fd_add(loop, fd, events, ready, general) == 0) {
        curl_multi_assign(general->multi, fd, general);
    }
    return 0; /* what could not be added ends by its timeout */
}

/* libcurl: call when `delay_ms` have passed. */
static int call_later(CURLM *multi, long delay_ms, void *arg)
{
    struct webhook_general *general = arg;
    fl_loop *loop = general->hooks->config.loop;
    (void)multi;
    if (general->timer) {
        fl_loop_cancel(loop, general->timer);
        general->timer = 0;
    }
    general->timer_ns = 0;
    if (delay_ms < 0)
        return 0;
    arm(general, fl_loop_now_ns(loop) + (uint64_t)delay_ms * 1000000);
    return 0;
}

void webhook_general_poke(struct webhook_general *general)
{
    if (general->timer_ns)
        arm(general, general->timer_ns);
}

/* --- Sockets ------------------------------------------------------------------------------------------------------ */

/* A connection whose other side is gone without a word would be shared by call after call: the kernel ends it when what was
 * sent is not acknowledged for so long. */
static const unsigned silence_ms = 20000;

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct webhook_transfer *transfer = arg;
    webhooks *hooks = transfer->hooks;
    if (purpose != CURLSOCKTYPE_IPCXN)
        return CURL_SOCKET_BAD;
    if (!hooks->config.allow_private && !transfer->own && !webhook_address_is_public(&address->addr)) {
        transfer->refused++;
        return CURL_SOCKET_BAD;
    }
    transfer->tried++;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
    hooks->stats.connections++;
    return fd;
}

static int close_socket(void *arg, curl_socket_t fd)
{
    webhooks *hooks = arg;
    fl_loop_fd_remove(hooks->config.loop, fd);
    hooks->stats.connections--;
    return close(fd);
}

/* --- Answers ------------------------------------------------------------------------------------------------------ */

static fl_bytes trim(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r' || end[-1] == '\n'))
        end--;
    return (fl_bytes){at, (size_t)(end - at)};
}

/* A line of the head. A status line begins an answer: what came before was an interim one. */
static size_t take_header(char *line, size_t one, size_t size, void *arg)
{
    struct webhook_transfer *transfer = arg;
    const char *colon = memchr(line, ':', size);
    (void)one;
    if (size >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        long status = 0;
        curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
        webhook_answer_begin(&transfer->answer, (int)status);
        transfer->head_ended = false;
    } else if (*line == '\r' || *line == '\n') {
        transfer->head_ended = true;
    } else if (colon) {
        webhook_answer_header(&transfer->answer, (fl_bytes){line, (size_t)(colon - line)},
                              trim(colon + 1, line + size));
    }
    return size;
}

static size_t take_body(char *data, size_t one, size_t size, void *arg)
{
    struct webhook_transfer *transfer = arg;
    (void)one;
    return webhook_answer_body(&transfer->answer, data, size) ? size : 0;
}

/* --- Transfers ---------------------------------------------------------------------------------------------------- */

static CURL *make_handle(struct webhook_transfer *transfer)
{
    webhooks *hooks = transfer->hooks;
    CURL *easy = curl_easy_init();
    bool good = easy && curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->error) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, transfer) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, hooks) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer) == CURLE_OK &&
                (!hooks->config.ca_file || curl_easy_setopt(easy, CURLOPT_CAINFO, hooks->config.ca_file) == CURLE_OK);
    if (good)
        return easy;
    curl_easy_cleanup(easy);
    return NULL;
}

static size_t count_lines(const struct webhook_text *head)
{
    size_t count = 0;
    for (size_t i = 0; i < head->size; i++)
        count += head->data[i] == '\n';
    return count;
}

/* The lines of the head as libcurl wants them: strings in a list, for which one block of memory is enough. A header
 * without a value would mean to leave it out: that is written with a semicolon. */
static struct curl_slist *make_lines(struct webhook_text *head)
{
    static char no_expect[] = "Expect:", no_accept[] = "Accept:";
    struct curl_slist *lines = malloc((count_lines(head) + 2) * sizeof *lines), *line = lines;
    if (!lines)
        return NULL;
    line->data = no_expect;
    for (char *at = head->data, *end = at + head->size, *next; at < end; at = next) {
        char *cr = memchr(at, '\r', (size_t)(end - at));
        next = cr + 2;
        *cr = '\0';
        char *colon = strchr(at, ':');
        if (colon[strspn(colon + 1, " \t") + 1] == '\0')
            memcpy(colon, ";", 2);
        line = line->next = line + 1;
        line->data = at;
    }
    line->next = line + 1;
    *line->next = (struct curl_slist){no_accept, NULL};
    return lines;
}

static bool set_up(struct webhook_transfer *transfer)
{
    CURL *easy = transfer->easy;
    const webhook_call *call = transfer->call;
    fl_bytes url = webhook_url(transfer);
    char *copy = strndup(url.data, url.size);
    transfer->lines = make_lines(&transfer->head);
    /* Only a connection with TLS can turn out to take several calls at once; without, waiting for it to show would mean
     * waiting for its first answer. */
    bool may_share = url.size > 5 && strncasecmp(url.data, "https", 5) == 0;
    bool good = copy && transfer->lines && curl_easy_setopt(easy, CURLOPT_URL, copy) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_PIPEWAIT, (long)may_share) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, (long)(transfer->fresh || transfer->own)) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_FORBID_REUSE,
                                 (long)(transfer->fresh || transfer->own || leads_to_plain(transfer))) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->lines) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body.size ? call->body.data : "") == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.size) == CURLE_OK;
    free(copy);
    return good;
}

int webhook_general_begin(struct webhook_transfer *transfer)
{
    struct webhook_general *general = transfer->hooks->general;
    if (!transfer->easy)
        transfer->easy = make_handle(transfer);
    if (!transfer->easy)
        return FL_NO_MEMORY;
    transfer->refused = transfer->tried = 0;
    transfer->error[0] = '\0';
    transfer->head_ended = false;
    if (!set_up(transfer) || curl_multi_add_handle(general->multi, transfer->easy) != CURLM_OK) {
        free(transfer->lines);
        transfer->lines = NULL;
        return FL_NO_MEMORY;
    }
    return 0;
}

void webhook_general_end(struct webhook_transfer *transfer)
{
    if (!transfer->lines)
        return;
    curl_multi_remove_handle(transfer->hooks->general->multi, transfer->easy);
    free(transfer->lines);
    transfer->lines = NULL;
}

void webhook_general_drop(struct webhook_transfer *transfer)
{
    curl_easy_cleanup(transfer->easy);
    transfer->easy = NULL;
}

/* --- Making and freeing ------------------------------------------------------------------------------------------- */

static void init_library(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

int webhook_general_new(webhooks *hooks, struct webhook_general **ret)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_library);
    struct webhook_general *general = calloc(1, sizeof *general);
    if (!general)
        return FL_NO_MEMORY;
    general->hooks = hooks;
    general->multi = curl_multi_init();
    if (!general->multi || curl_multi_setopt(general->multi, CURLMOPT_SOCKETFUNCTION, watch) != CURLM_OK ||
        curl_multi_setopt(general->multi, CURLMOPT_SOCKETDATA, general) != CURLM_OK ||
        curl_multi_setopt(general->multi, CURLMOPT_TIMERFUNCTION, call_later) != CURLM_OK ||
        curl_multi_setopt(general->multi, CURLMOPT_TIMERDATA, general) != CURLM_OK ||
        curl_multi_setopt(general->multi, CURLMOPT_MAXCONNECTS, (long)hooks->config.max_calls) != CURLM_OK) {
        webhook_general_free(general);
        return FL_NO_MEMORY;
    }
    *ret = general;
    return 0;
}

void webhook_general_free(struct webhook_general *general)
{
    if (!general)
        return;
    curl_multi_cleanup(general->multi);
    if (general->timer)
        fl_loop_cancel(general->hooks->config.loop, general->timer);
    free(general);
}
