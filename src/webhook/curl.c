/* SPDX-License-Identifier: MIT */
/* The general transport: libcurl's multi interface, driven by the loop. TLS, HTTP/2, the lookup of names and everything unusual
 * go here.
 *
 * libcurl says which descriptors to wait for and when to call it next; the loop does both. libcurl looks names up on threads of
 * its own and remembers them for a minute. With CURLOPT_QUICK_EXIT, giving an attempt up does not wait for such a thread. An
 * address is checked when a socket is opened for it, which is after every lookup and before every connection. Redirects are not
 * followed here: attempt.c decides where they lead.
 *
 * A handle keeps what it was set up with. Only the options that differ between attempts are set anew. */

#include "webhook/internal.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct webhook_curl {
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

/* The target closed a kept connection, or refused another stream on it, before it sent a byte of the response, as it may do at any
 * time. The attempt is sent again on a new connection. The target may receive it twice, as it may any attempt. */
static bool was_stale(struct webhook_slot *slot, CURLcode code)
{
    long made = 1;
    bool lost = code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING ||
                code == CURLE_HTTP2 || code == CURLE_HTTP2_STREAM;
    curl_easy_getinfo(slot->easy, CURLINFO_NUM_CONNECTS, &made);
    return lost && made == 0 && slot->response.status == 0 && !slot->fresh;
}

/* Whether the next attempts may use the fast transport. Then libcurl need not keep this connection. */
static bool leads_to_plain(const struct webhook_slot *slot)
{
    return !slot->url && !slot->host->https;
}

/* Remembers where a plain response came from. */
static void learn(struct webhook_slot *slot)
{
    struct sockaddr_storage address = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&address;
    char *text = NULL;
    long port = 0;
    if (!leads_to_plain(slot) || curl_easy_getinfo(slot->easy, CURLINFO_PRIMARY_IP, &text) != CURLE_OK || !text ||
        curl_easy_getinfo(slot->easy, CURLINFO_PRIMARY_PORT, &port) != CURLE_OK)
        return;
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
    } else if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
    } else {
        return; /* it has a zone: libcurl stays in charge */
    }
    webhook_learn(slot->host, &address, fl_loop_now_ns(slot->hooks->config.loop));
}

/* Whether the response is complete by its own account, whatever libcurl says. We may have cut it, and with HTTP/2 a target that
 * responds before it has read everything resets the stream. */
static bool is_whole(const struct webhook_slot *slot, CURLcode code)
{
    curl_off_t length = -1;
    if (!slot->head_ended || slot->response.status < 200)
        return false;
    if (code == CURLE_OK || (code == CURLE_WRITE_ERROR && slot->response.cut))
        return true;
    curl_easy_getinfo(slot->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    return length >= 0 && (uint64_t)length == slot->response.body_size;
}

static void report(struct webhook_slot *slot, CURLcode code)
{
    if (is_whole(slot, code)) {
        learn(slot);
        webhook_responded(slot);
    } else if (was_stale(slot, code)) {
        slot->fresh = true;
        webhook_repeat(slot);
    } else if (slot->refused && !slot->tried) {
        webhook_broken(slot, FL_DEAD,
                       "the address of the host is not on the public Internet; start the server with "
                       "--allow-private-targets to allow it");
    } else if (code == CURLE_OUT_OF_MEMORY) {
        webhook_broken(slot, FL_FAILED, "out of memory");
    } else if (code == CURLE_OK) {
        webhook_broken(slot, FL_FAILED, "the target closed the connection within the head of the response");
    } else {
        make_printable(slot->error);
        webhook_broken(slot, FL_FAILED, "%s", *slot->error ? slot->error : curl_easy_strerror(code));
    }
}

static void reap(struct webhook_curl *curl)
{
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(curl->multi, &left))) {
        struct webhook_slot *slot;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&slot);
        webhook_curl_end(slot);
        report(slot, code);
    }
}

/* --- The loop ----------------------------------------------------------------------------------------------------- */

static void ready(fl_loop *loop, int fd, unsigned events, void *arg)
{
    struct webhook_curl *curl = arg;
    int mask = 0, running;
    (void)loop;
    if (events & FL_READ)
        mask |= CURL_CSELECT_IN;
    if (events & FL_WRITE)
        mask |= CURL_CSELECT_OUT;
    if (events & (FL_ERROR | FL_HANGUP))
        mask |= CURL_CSELECT_ERR;
    curl_multi_socket_action(curl->multi, fd, mask, &running);
    reap(curl);
}

static void overdue(fl_loop *loop, void *arg)
{
    struct webhook_curl *curl = arg;
    int running;
    (void)loop;
    curl->timer = 0;
    curl_multi_socket_action(curl->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    reap(curl);
}

static void arm(struct webhook_curl *curl, uint64_t deadline_ns)
{
    bool armed = fl_loop_timer_at(curl->hooks->config.loop, deadline_ns, overdue, curl, &curl->timer) == 0;
    curl->timer_ns = armed ? 0 : deadline_ns;
    if (!armed)
        webhook_post(curl->hooks);
}

/* libcurl asks to wait for these events of a descriptor. `known`: the loop has it already. */
static int watch(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
    struct webhook_curl *curl = arg;
    fl_loop *loop = curl->hooks->config.loop;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        fl_loop_fd_remove(loop, fd);
        return 0;
    }
    unsigned events = (what & CURL_POLL_IN ? FL_READ : 0) | (what & CURL_POLL_OUT ? FL_WRITE : 0);
    if (known) {
        fl_loop_fd_modify(loop, fd, events);
    } else if (fl_loop_fd_add(loop, fd, events, ready, curl) == 0) {
        curl_multi_assign(curl->multi, fd, curl);
    }
    return 0; /* what could not be added ends by its timeout */
}

/* libcurl asks to be called when `delay_ms` have passed. */
static int call_later(CURLM *multi, long delay_ms, void *arg)
{
    struct webhook_curl *curl = arg;
    fl_loop *loop = curl->hooks->config.loop;
    (void)multi;
    if (curl->timer) {
        fl_loop_cancel(loop, curl->timer);
        curl->timer = 0;
    }
    curl->timer_ns = 0;
    if (delay_ms < 0)
        return 0;
    arm(curl, fl_loop_now_ns(loop) + (uint64_t)delay_ms * 1000000);
    return 0;
}

void webhook_curl_poke(struct webhook_curl *curl)
{
    if (curl->timer_ns)
        arm(curl, curl->timer_ns);
}

/* --- Sockets ------------------------------------------------------------------------------------------------------ */

/* Attempt after attempt would share a connection whose other side has vanished. The kernel ends it when sent bytes are not
 * acknowledged for this long. */
static const unsigned silence_ms = 20000;

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct webhook_slot *slot = arg;
    webhooks *hooks = slot->hooks;
    if (purpose != CURLSOCKTYPE_IPCXN)
        return CURL_SOCKET_BAD;
    if (!hooks->config.allow_private && !slot->own && !webhook_address_is_public(&address->addr)) {
        slot->refused++;
        return CURL_SOCKET_BAD;
    }
    slot->tried++;
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

/* --- Responses ---------------------------------------------------------------------------------------------------- */

/* A line of the head. A status line begins a response: what came before was an interim one. */
static size_t take_header(char *line, size_t one, size_t size, void *arg)
{
    struct webhook_slot *slot = arg;
    const char *colon = memchr(line, ':', size);
    (void)one;
    if (size >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        long status = 0;
        curl_easy_getinfo(slot->easy, CURLINFO_RESPONSE_CODE, &status);
        webhook_response_begin(&slot->response, (int)status);
        slot->head_ended = false;
    } else if (*line == '\r' || *line == '\n') {
        slot->head_ended = true;
    } else if (colon) {
        webhook_response_header(&slot->response, (fl_bytes){line, (size_t)(colon - line)},
                                http_trim(colon + 1, line + size));
    }
    return size;
}

static size_t take_body(char *data, size_t one, size_t size, void *arg)
{
    struct webhook_slot *slot = arg;
    (void)one;
    return webhook_response_body(&slot->response, data, size) ? size : 0;
}

/* --- Attempts ----------------------------------------------------------------------------------------------------- */

static CURL *make_handle(struct webhook_slot *slot)
{
    webhooks *hooks = slot->hooks;
    CURL *easy = curl_easy_init();
    bool good = easy && curl_easy_setopt(easy, CURLOPT_PRIVATE, slot) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, slot->error) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, slot) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, hooks) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_HEADERDATA, slot) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_WRITEDATA, slot) == CURLE_OK &&
                (!hooks->config.ca_file || curl_easy_setopt(easy, CURLOPT_CAINFO, hooks->config.ca_file) == CURLE_OK);
    if (good)
        return easy;
    curl_easy_cleanup(easy);
    return NULL;
}

static size_t count_lines(const struct out *head)
{
    size_t count = 0;
    for (size_t i = 0; i < head->size; i++)
        count += head->data[i] == '\n';
    return count;
}

/* The lines of the head as libcurl wants them: strings in a list, for which one block of memory is enough. A header
 * without a value would mean to leave it out: that is written with a semicolon. */
static struct curl_slist *make_lines(struct out *head)
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

static bool set_up(struct webhook_slot *slot)
{
    CURL *easy = slot->easy;
    const webhook_attempt *attempt = slot->attempt;
    fl_bytes url = webhook_url(slot);
    char *copy = strndup(url.data, url.size);
    slot->lines = make_lines(&slot->head);
    /* Only a connection with TLS can turn out to take several attempts at once; without, waiting for it to show would mean
     * waiting for its first response. */
    bool may_share = url.size > 5 && strncasecmp(url.data, "https", 5) == 0;
    bool good = copy && slot->lines && curl_easy_setopt(easy, CURLOPT_URL, copy) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_PIPEWAIT, (long)may_share) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, (long)(slot->fresh || slot->own)) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_FORBID_REUSE,
                                 (long)(slot->fresh || slot->own || leads_to_plain(slot))) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_HTTPHEADER, slot->lines) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_POSTFIELDS, attempt->body.size ? attempt->body.data : "") == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)attempt->body.size) == CURLE_OK;
    free(copy);
    return good;
}

int webhook_curl_begin(struct webhook_slot *slot)
{
    struct webhook_curl *curl = slot->hooks->curl;
    if (!slot->easy)
        slot->easy = make_handle(slot);
    if (!slot->easy)
        return FL_NO_MEMORY;
    slot->refused = slot->tried = 0;
    slot->error[0] = '\0';
    slot->head_ended = false;
    if (!set_up(slot) || curl_multi_add_handle(curl->multi, slot->easy) != CURLM_OK) {
        free(slot->lines);
        slot->lines = NULL;
        return FL_NO_MEMORY;
    }
    return 0;
}

void webhook_curl_end(struct webhook_slot *slot)
{
    if (!slot->lines)
        return;
    curl_multi_remove_handle(slot->hooks->curl->multi, slot->easy);
    free(slot->lines);
    slot->lines = NULL;
}

void webhook_curl_drop(struct webhook_slot *slot)
{
    curl_easy_cleanup(slot->easy);
    slot->easy = NULL;
}

/* --- Making and freeing ------------------------------------------------------------------------------------------- */

static void init_library(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

int webhook_curl_new(webhooks *hooks, struct webhook_curl **ret)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_library);
    struct webhook_curl *curl = calloc(1, sizeof *curl);
    if (!curl)
        return FL_NO_MEMORY;
    curl->hooks = hooks;
    curl->multi = curl_multi_init();
    if (!curl->multi || curl_multi_setopt(curl->multi, CURLMOPT_SOCKETFUNCTION, watch) != CURLM_OK ||
        curl_multi_setopt(curl->multi, CURLMOPT_SOCKETDATA, curl) != CURLM_OK ||
        curl_multi_setopt(curl->multi, CURLMOPT_TIMERFUNCTION, call_later) != CURLM_OK ||
        curl_multi_setopt(curl->multi, CURLMOPT_TIMERDATA, curl) != CURLM_OK ||
        curl_multi_setopt(curl->multi, CURLMOPT_MAXCONNECTS, (long)hooks->config.max_under_way) != CURLM_OK) {
        webhook_curl_free(curl);
        return FL_NO_MEMORY;
    }
    *ret = curl;
    return 0;
}

void webhook_curl_free(struct webhook_curl *curl)
{
    if (!curl)
        return;
    curl_multi_cleanup(curl->multi);
    if (curl->timer)
        fl_loop_cancel(curl->hooks->config.loop, curl->timer);
    free(curl);
}
