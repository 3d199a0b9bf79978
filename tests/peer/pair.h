/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_PEER_PAIR_H
#define FOLIOT_TESTS_PEER_PAIR_H

/* Two servers on one loop: one is called, the other has a link to it, and between them there may be somebody who reads, cuts,
 * stalls or passes on what goes by. Time is virtual and passes only when told to. */

#include <foliot/loop.h>
#include <openssl/types.h>

#include "peer/internal.h"

/* What the host does with a call. */
enum {
    ECHO = 16, /* answers with the body */
    KEEP,      /* puts it into pair.kept */
    PIECES,    /* answers in three pieces, and an end */
    LARGE,     /* answers with as many bytes as the body says (8 bytes) */
    STOP,      /* stops the sessions */
    WRONG,     /* answers FL_NOT_FOUND and a text */
};

enum { KEPT_MOST = 64 };

struct pair {
    fl_virtual_clock clock;
    fl_loop *loop;
    http_tls *tls;
    http_server *http;
    struct peer_host host;
    peer_sessions *sessions;
    uint16_t port;
    struct peer_request *kept[KEPT_MOST];
    int kept_count;
    int handled, gone;
    uint64_t seen; /* bits: the calls that have come, by the first byte of their body */
    char address[64];
    peer_link *link;
    int ups, downs; /* of the link */
    void (*changed)(bool up);
};

extern struct pair pair;
extern const fl_bytes secret;

/* Starts the host, with TLS or without. */
void pair_start(bool tls);
/* Makes the link, to a port of this machine, with that secret. */
void pair_link_to(uint16_t port, fl_bytes with, bool tls);
void pair_link(bool tls); /* … to the host, and waits until it is up */
void pair_stop_host(void);
void pair_end(void);
void pair_turn(void);
void pair_pass(uint64_t ms); /* lets time pass, in small steps, with turns in between */
void pair_answer_kept(int result);

#define UNTIL(condition)                               \
    do {                                               \
        for (int turns_ = 0; !(condition); turns_++) { \
            CHECK(turns_ < 50000);                     \
            pair_turn();                               \
            if (turns_ > 100)                          \
                usleep(100);                           \
        }                                              \
    } while (0)

/* A call and what became of it. */
struct asked {
    struct peer_call call;
    int done, result, pieces;
    size_t size;
    uint64_t sum; /* of the answer */
    char text[64];
    void (*then)(struct asked *asked);
};

struct asked *ask(uint8_t kind, const void *data, size_t size);
struct asked *ask_text(uint8_t kind, const char *text);
void asked_wait(struct asked *asked);
uint64_t sum_of(fl_bytes bytes);

/* A certificate that signs itself, for the host or whoever claims to be it. */
http_tls *make_tls(void);
SSL_CTX *make_tls_server(void);

int connect_to(uint16_t port); /* of this machine; -1: nobody listens */
void send_at_once(int fd);

/* Who is between. */
struct between {
    int listener;
    uint16_t port;
    SSL_CTX *server, *client; /* NULL: without TLS */
    struct {
        int fd;
        SSL *ssl;
        struct http_buffer in; /* what came from there and has not been passed on */
        bool closed;
    } end[2]; /* the caller, the host */
    bool open;
    bool stalled;
    size_t left;               /* passed on, both ways, before it is cut; SIZE_MAX: never */
    struct http_buffer record; /* what came from the caller */
    int connections;
};

extern struct between between;
void between_start(bool tls);
void between_cut(void); /* now */
void between_end(void);

#endif
