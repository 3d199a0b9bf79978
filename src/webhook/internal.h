/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_WEBHOOK_INTERNAL_H
#define FOLIOT_SERVER_WEBHOOK_INTERNAL_H

/* What the files of the webhooks share.
 *
 *   webhook.c          calls and hosts: queues, turns, timeouts, redirects, stopping
 *   webhook_target.c   URLs and addresses: what may be called
 *   webhook_head.c     the headers of a request, and its signature
 *   webhook_answer.c   what an answer means
 *   webhook_curl.c     the general way: libcurl
 *   webhook_plain.c    the fast way: HTTP/1.1 without TLS
 *   webhook_parse.c    its answers
 *
 * A transfer is a call that has begun. It goes to a way of transport, which either collects an answer and hands it back
 * with webhook_answered(), or says why there is none with webhook_broken() or webhook_repeat(); none of them inside the function that began it. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <curl/curl.h>
#include <openssl/evp.h>

#include "webhook/webhook.h"

/* --- Targets ------------------------------------------------------------------------------------------------------ */

struct webhook_target {
    bool https;
    fl_bytes authority; /* as it was written: for Host */
    fl_bytes host;      /* without brackets */
    uint16_t port;
    fl_bytes path; /* with the query; may be empty, or begin with the question mark */
};

/* Takes a URL apart. Returns NULL, or what is wrong with it. */
const char *webhook_target_parse(fl_bytes url, struct webhook_target *ret);

/* What calls are grouped by: scheme, name and port. Returns the length. */
enum { WEBHOOK_KEY = 272 };
size_t webhook_target_key(const struct webhook_target *target, char out[WEBHOOK_KEY]);

bool webhook_address_is_public(const struct sockaddr *address);

/* --- Heads -------------------------------------------------------------------------------------------------------- */

struct webhook_signer {
    EVP_MAC_CTX *context; /* HMAC-SHA256 */
};

int webhook_signer_init(struct webhook_signer *signer);
void webhook_signer_free(struct webhook_signer *signer);

/* A buffer that grows; after a failure, `failed` stays. */
struct webhook_text {
    char *data;
    size_t size, room;
    bool failed;
};
void webhook_text_add(struct webhook_text *text, const void *data, size_t size);

/* A number in digits, at the end of `out`, with a NUL. */
enum { WEBHOOK_DECIMAL = 21 };
char *webhook_decimal(uint64_t number, char out[WEBHOOK_DECIMAL]);

/* Adds the lines of the headers to `text`, each ended by CR LF: all but Host and Content-Length. To a `stranger`, a host
 * that the user did not name, go neither signature nor the user's headers. Returns 0; FL_INVALID_ARGUMENT for a header
 * that the user may not send; FL_NO_MEMORY. */
int webhook_head(struct webhook_text *text, struct webhook_signer *signer, const webhook_call *call, int64_t now_us,
                 const char *user_agent, bool stranger);

/* --- Answers ------------------------------------------------------------------------------------------------------ */

enum { WEBHOOK_BODY_MOST = 64 << 10, WEBHOOK_LOCATION_MOST = 8 << 10 };

/* What matters of an answer, as it comes in. */
struct webhook_answer {
    int status;
    bool other_type;              /* it has a type, and that is not JSON */
    bool cut;                     /* there was more than is read */
    char retry_after[64];         /* empty: none */
    struct webhook_text location; /* ends in NUL if there is one */
    struct webhook_text body;     /* of 2xx */
    size_t body_size;             /* of what has come, kept or not */
};

void webhook_answer_begin(struct webhook_answer *answer, int status);
void webhook_answer_free(struct webhook_answer *answer);
void webhook_answer_header(struct webhook_answer *answer, fl_bytes name, fl_bytes value);

/* Whether more of the body is wanted. */
bool webhook_answer_body(struct webhook_answer *answer, const void *data, size_t size);

/* Sets the result, at_us and reason of a call: for every status but the redirects that can be followed. */
void webhook_answer_settle(const struct webhook_answer *answer, int64_t now_us, webhook_call *call);

/* An answer of HTTP/1 on its way in. */
struct webhook_parse {
    int state;
    bool any; /* a byte has come */
    bool keep, chunked, has_length;
    uint64_t left; /* of the body, or of the chunk */
    size_t lines_size;
    struct webhook_text line; /* the beginning of one */
};

enum webhook_parsed { WEBHOOK_MORE, WEBHOOK_WHOLE, WEBHOOK_BAD };

void webhook_parse_begin(struct webhook_parse *parse);
void webhook_parse_free(struct webhook_parse *parse);

/* Takes a piece. When the answer is whole, `keep` says whether the connection can be used again. */
enum webhook_parsed webhook_parse(struct webhook_parse *parse, struct webhook_answer *answer, const char *data,
                                  size_t size);
enum webhook_parsed webhook_parse_end(const struct webhook_parse *parse); /* the connection was closed */

/* --- Transfers ---------------------------------------------------------------------------------------------------- */

struct webhook_general;
struct webhook_connection;

struct webhook_host {
    struct webhook_host *next_in_table;
    struct webhook_host *previous, *next; /* in the ring; NULL: it is not there */
    webhook_call *waiting, *waiting_last;
    uint64_t waiting_count;
    uint32_t under_way;
    uint64_t used_ns;
    /* The fast way. */
    struct sockaddr_storage address; /* where the general way was answered from; family 0: unknown */
    uint64_t learned_ns;
    uint32_t generation; /* of the address */
    struct webhook_connection *idle;
    uint64_t hash;
    size_t key_size;
    char key[];
};

struct webhook_transfer {
    webhooks *hooks;
    webhook_call *call;
    struct webhook_host *host;
    struct webhook_transfer *previous, *next; /* of those under way, or free */
    fl_timer_id deadline;
    uint64_t begun_ns;
    unsigned redirects;
    char *url; /* where a redirect has led to; NULL: the call's */
    bool stranger;
    bool fresh; /* on a connection of its own */
    bool own;   /* to a URL of config.own: alone on its connection, which others may not use */
    struct webhook_connection *connection; /* on the fast way */
    struct webhook_answer answer;
    struct webhook_text head;
    fl_bytes tail; /* what follows the head on the fast way: a body that is not behind it there already */
    /* The general way. */
    CURL *easy;
    struct curl_slist *lines;
    unsigned refused, tried; /* addresses */
    bool head_ended;         /* libcurl takes a head that breaks off for one */
    char error[CURL_ERROR_SIZE];
};

struct webhooks {
    struct webhooks_config config;
    struct webhook_signer signer;
    struct webhook_general *general;
    struct webhook_host **table; /* hosts by key, chained */
    size_t table_size, host_count;
    struct webhook_host *turn; /* of those that may begin a call, a ring: whose turn it is */
    size_t turn_count;
    struct webhook_transfer *under_way, *spare;
    webhook_call *finished, **finished_end; /* without having begun */
    fl_loop_task task;
    char *buffer; /* for what is received, WEBHOOK_BUFFER bytes */
    fl_timer_id sweep;
    bool posted;
    bool stopping;
    fl_timer_id patience;
    fl_loop_fn stopped;
    void *stopped_arg;
    struct webhooks_stats stats;
};

int64_t webhook_now_us(const webhooks *hooks);
void webhook_post(webhooks *hooks); /* something has changed: look in the next turn */
fl_bytes webhook_url(const struct webhook_transfer *transfer);

void webhook_answered(struct webhook_transfer *transfer);
void webhook_repeat(struct webhook_transfer *transfer); /* sends it again */
void webhook_broken(struct webhook_transfer *transfer, enum fl_settle result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The host's address, as the general way has found it, for the fast way. */
void webhook_learn(struct webhook_host *host, const struct sockaddr_storage *address, uint64_t now_ns);
void webhook_forget(struct webhook_host *host);

/* The fast way. */
enum { WEBHOOK_BUFFER = 64 << 10 };
void webhook_plain_head(struct webhook_text *text, const struct webhook_target *target, size_t body_size);
int webhook_plain_begin(struct webhook_transfer *transfer);
void webhook_plain_end(struct webhook_transfer *transfer);
void webhook_plain_close_idle(struct webhook_host *host, uint64_t since_ns);

/* The general way. */
int webhook_general_new(webhooks *hooks, struct webhook_general **ret);
void webhook_general_free(struct webhook_general *general);
int webhook_general_begin(struct webhook_transfer *transfer);
void webhook_general_end(struct webhook_transfer *transfer); /* lets go of what it has for this transfer, at any time */
void webhook_general_poke(struct webhook_general *general);  /* in every such turn */
void webhook_general_drop(struct webhook_transfer *transfer); /* what is kept between transfers, too */

#endif
