/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WEBHOOK_INTERNAL_H
#define FOLIOT_WEBHOOK_INTERNAL_H

/* What the files of this folder share. webhook.h says which file does what.
 *
 * An attempt that has begun has a slot: buffers, the response as far as it has come, a handle of libcurl. A slot is kept for
 * the next attempt. The slot is given to a transport, plain.c or curl.c, which either collects a response and calls
 * webhook_responded(), or calls webhook_broken() or webhook_repeat(); none of them inside the function that began it. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include <curl/curl.h>
#include <openssl/evp.h>

#include "base/hash.h"
#include "http/http.h"
#include "text/out.h"
#include "webhook/webhook.h"

bool webhook_address_is_public(const struct sockaddr *address);

/* --- The head of a request ---------------------------------------------------------------------------------------- */

EVP_MAC_CTX *webhook_signer(void); /* HMAC-SHA256; NULL: no memory */

/* Adds the lines of the headers, each ended by CR LF: all but Host and Content-Length. A `stranger` is a host that the user
 * did not name: it gets neither the signature nor the user's headers. Returns 0; FL_INVALID_ARGUMENT for a header that the
 * user may not send; FL_NO_MEMORY. */
int webhook_head(struct out *out, EVP_MAC_CTX *signer, const webhook_attempt *attempt, int64_t now_us,
                 const char *user_agent, bool stranger);

/* --- Responses ---------------------------------------------------------------------------------------------------- */

enum { WEBHOOK_BODY_MOST = 64 << 10, WEBHOOK_LOCATION_MOST = 8 << 10 };

/* The parts of a response that matter, as they come in. */
struct webhook_response {
    int status;
    bool other_type;      /* it has a content type, and that is not JSON */
    bool cut;             /* the body was longer than WEBHOOK_BODY_MOST */
    char retry_after[64]; /* empty: none */
    struct out location;  /* ends in NUL if there is one */
    struct out body;      /* of 2xx; of others, as much as is to be kept */
    size_t keep, keep_failed;
    size_t body_size; /* bytes of the body so far, kept or not */
};

void webhook_response_begin(struct webhook_response *response, int status);
void webhook_response_free(struct webhook_response *response);
void webhook_response_header(struct webhook_response *response, fl_bytes name, fl_bytes value);

/* Returns whether more of the body is wanted. */
bool webhook_response_body(struct webhook_response *response, const void *data, size_t size);

/* Sets the result, at_us and reason of an attempt: for every status but the redirects that can be followed. */
void webhook_response_settle(const struct webhook_response *response, int64_t now_us, webhook_attempt *attempt);

/* A response of HTTP/1 on its way in. */
struct webhook_reader {
    bool any;            /* a byte has come */
    bool keep;           /* once it is whole: the connection can be used again */
    bool in_body;        /* the head is whole */
    size_t interim_size; /* of interim responses (1xx) */
    struct http_head head;
    struct http_body body;
    struct http_buffer part; /* the beginning of a head */
};

enum webhook_read { WEBHOOK_MORE, WEBHOOK_WHOLE, WEBHOOK_BAD };

void webhook_reader_begin(struct webhook_reader *reader);
void webhook_reader_free(struct webhook_reader *reader);
enum webhook_read webhook_read(struct webhook_reader *reader, struct webhook_response *response, const char *data,
                               size_t size);
enum webhook_read webhook_read_end(const struct webhook_reader *reader); /* the connection was closed */

/* --- Hosts -------------------------------------------------------------------------------------------------------- */

struct webhook_connection;
LIST_HEAD(webhook_connections, webhook_connection);
TAILQ_HEAD(webhook_hosts, webhook_host);
TAILQ_HEAD(webhook_queue, webhook_attempt);
LIST_HEAD(webhook_slots, webhook_slot);

struct webhook_host {
    struct hash_link by_name;
    TAILQ_ENTRY(webhook_host) entry; /* in the list of hosts that take turns */
    bool takes_turns;                /* an attempt waits, and one more may be under way */
    struct webhook_queue waiting;
    uint64_t waiting_count;
    uint32_t under_way;
    uint64_t used_ns;
    /* Of the fast transport. */
    struct sockaddr_storage address; /* where libcurl got a response from; family 0: unknown */
    uint64_t learned_ns;
    uint32_t generation; /* of the address */
    struct webhook_connections idle;
    /* Identity. */
    bool https;
    uint16_t port;
    size_t name_size;
    char name[];
};

/* Whether the target is on this host. */
bool webhook_host_is(const struct webhook_host *host, const struct webhook_target *target);

/* The host of a target, made if it is new; NULL: there was no memory. */
struct webhook_host *webhook_host_of(webhooks *hooks, const struct webhook_target *target);
void webhook_hosts_free(webhooks *hooks, uint64_t unused_since_ns);

/* The queue of a host. */
void webhook_wait(webhooks *hooks, struct webhook_host *host, webhook_attempt *attempt);
void webhook_unwait(webhooks *hooks, webhook_attempt *attempt);
/* After `waiting` or `under_way` has changed: whether the host takes turns. */
void webhook_host_changed(webhooks *hooks, struct webhook_host *host);
/* The host that may begin an attempt next, which is last in line from now on; NULL: none may. */
struct webhook_host *webhook_next_host(webhooks *hooks);

/* The host's address, as libcurl has found it, for the fast transport. */
void webhook_learn(struct webhook_host *host, const struct sockaddr_storage *address, uint64_t now_ns);

/* --- Slots -------------------------------------------------------------------------------------------------------- */

struct webhook_slot {
    webhooks *hooks;
    webhook_attempt *attempt;
    struct webhook_host *host;
    LIST_ENTRY(webhook_slot) entry; /* in the list of used or of spare slots */
    fl_timer_id deadline;
    uint64_t begun_ns;
    unsigned redirects;
    char *url; /* where a redirect has led to; NULL: the attempt's */
    bool stranger;
    bool fresh; /* uses a new connection */
    bool own;   /* goes to a URL of config.own: alone on its connection, which others may not use */
    struct webhook_connection *connection; /* of the fast transport */
    struct webhook_response response;
    struct out head;
    fl_bytes tail; /* of the fast transport: a body that is not in `head` already */
    /* libcurl's. */
    CURL *easy;
    struct curl_slist *lines;
    unsigned refused, tried; /* addresses */
    bool head_ended;         /* libcurl takes a head that breaks off for a whole one */
    char error[CURL_ERROR_SIZE];
};

struct webhook_curl;

struct webhooks {
    struct webhooks_config config;
    EVP_MAC_CTX *signer;
    struct webhook_curl *curl;
    struct hash_table hosts;
    struct webhook_hosts turns; /* hosts that may begin an attempt, in the order of their turns */
    size_t turn_count;
    struct webhook_slots under_way, spare;
    struct webhook_queue finished; /* ended without having begun; not reported yet */
    fl_loop_task task;
    char *buffer; /* for bytes that are received: WEBHOOK_BUFFER */
    fl_timer_id sweep;
    bool posted;
    bool stopping;
    fl_timer_id patience;
    fl_loop_fn stopped;
    void *stopped_arg;
    struct webhooks_stats stats;
};

int64_t webhook_now_us(const webhooks *hooks);
uint64_t webhook_now_ns(const webhooks *hooks);
void webhook_post(webhooks *hooks); /* something has changed: runs the task in the next turn of the loop */
void webhook_count(struct webhooks_stats *stats, enum fl_settle result);
/* Ends an attempt that has not begun. */
void webhook_end_early(webhooks *hooks, webhook_attempt *attempt, enum fl_settle result, const char *reason);
const char *webhook_why_not(int result);

/* Begins an attempt; or ends it early, if that is not possible. */
void webhook_begin(webhooks *hooks, struct webhook_host *host, webhook_attempt *attempt);
/* Takes the attempt from its transport and ends it. */
void webhook_stop_slot(struct webhook_slot *slot, enum fl_settle result, const char *reason);
void webhook_free_spare(webhooks *hooks);

/* For the transports. */
fl_bytes webhook_url(const struct webhook_slot *slot);
void webhook_responded(struct webhook_slot *slot);
void webhook_repeat(struct webhook_slot *slot); /* sends it again */
void webhook_broken(struct webhook_slot *slot, enum fl_settle result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- Transports --------------------------------------------------------------------------------------------------- */

enum { WEBHOOK_BUFFER = 64 << 10 };

/* Both begin functions return 0 or an error; FL_SYSTEM from webhook_plain_begin(): try libcurl. */
void webhook_plain_head(struct out *out, const struct webhook_target *target, size_t body_size);
int webhook_plain_begin(struct webhook_slot *slot);
void webhook_plain_end(struct webhook_slot *slot); /* lets go of its connection, at any time */
void webhook_plain_close_idle(struct webhook_host *host, uint64_t since_ns);

int webhook_curl_new(webhooks *hooks, struct webhook_curl **ret);
void webhook_curl_free(struct webhook_curl *curl);
int webhook_curl_begin(struct webhook_slot *slot);
void webhook_curl_end(struct webhook_slot *slot);  /* frees everything for this attempt, at any time */
void webhook_curl_drop(struct webhook_slot *slot); /* also frees everything that is kept between attempts */
void webhook_curl_poke(struct webhook_curl *curl); /* each time the task runs */

#endif
