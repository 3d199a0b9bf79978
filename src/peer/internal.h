/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_PEER_INTERNAL_H
#define FOLIOT_PEER_INTERNAL_H

/* What the files of this folder share. peer.h says which file does what.
 *
 * How a link begins. The request is POST /v1/peer with "Upgrade: foliot-peer" and three headers: Foliot-Peer-Version,
 * Foliot-Peer-Random (hexadecimal) and Foliot-Peer-Address. The response is 101 Switching Protocols and has the first two.
 * From then on only frames go over the connection. The caller sends its proof. If that is right, the host sends its own; if
 * not, it sends a refusal and ends. Only then the first call may come.
 *
 * Time is counted in ticks of half a second, not by the clock. A loop that was held up for long has missed only one tick,
 * and gives no link up for its own fault. */

#include <netdb.h>

#include "http/http.h"
#include "peer/peer.h"

#define PEER_UPGRADE "foliot-peer"
#define PEER_UPGRADE_LINES "Connection: upgrade\r\nUpgrade: " PEER_UPGRADE "\r\n"

enum {
    PEER_TICK_NS = 500000000,
    PEER_TICKS_ALIVE = 2,  /* a sign of life after as many without another frame */
    PEER_TICKS_SILENT = 6, /* given up after more than as many without a byte */
    PEER_TICKS_PROOF = 10, /* given up after more than as many without a proof */
};

/* --- Frames ------------------------------------------------------------------------------------------------------- */

enum peer_kind {
    PEER_PROOF = 1, /* body: the proof */
    PEER_REFUSED,   /* to the caller: yours is wrong */
    PEER_ALIVE,
    PEER_ANSWER, /* body: the result, 4 bytes, and what was answered */
    PEER_PIECE,
    PEER_CANCEL,
    PEER_CLOSING,   /* to the caller, as the last: a call that has no answer by now has not been begun */
    PEER_CALL = 16, /* the first of the kinds that are called for */
};

enum { PEER_HEAD = 13, PEER_RESULT = 4 };

struct peer_frame {
    uint8_t kind;
    uint64_t id;
    fl_bytes body;
};

/* Appends a frame; false: there is no memory, and nothing was appended. */
bool peer_put(struct http_buffer *out, uint8_t kind, uint64_t id, fl_bytes body);
bool peer_put_head(struct http_buffer *out, uint8_t kind, uint64_t id, size_t body_size); /* the body is to follow */

/* Decodes an answer; false: the frame is not an answer. */
bool peer_answer_read(const struct peer_frame *frame, int *ret_result, fl_bytes *ret_body);

/* Makes frames of bytes that come in pieces of any size. The initial value is zero, except for `most`. */
struct peer_reader {
    size_t most; /* of a body; may change between frames */
    struct http_buffer part;
    bool whole; /* `part` is a frame that has been handed out */
};

/* Takes the next frame from `input`, which moves on. Returns 1: there is one, good until the next call and as long as the
 * input is there; 0: all was taken and is not enough; FL_INVALID_ARGUMENT, FL_TOO_LARGE, FL_NO_MEMORY: it ends here. */
int peer_read(struct peer_reader *reader, fl_bytes *input, struct peer_frame *ret);
void peer_reader_free(struct peer_reader *reader);

/* --- Proofs ------------------------------------------------------------------------------------------------------- */

enum { PEER_RANDOM = 32, PEER_MAC = 32, PEER_HELLO = 160, PEER_ADDRESS_MOST = 255 };

enum peer_role { PEER_CALLER, PEER_CALLED };

/* What a proof is about; what each side has said by its role. */
struct peer_pact {
    fl_bytes secret;
    uint32_t version[2];
    unsigned char random[2][PEER_RANDOM];
    bool bound; /* to a connection with TLS */
    unsigned char channel[HTTP_CHANNEL_KEY];
};

/* Our own version and random number. False: there is no randomness. */
bool peer_pact_begin(struct peer_pact *pact, fl_bytes secret, enum peer_role role);
/* The lines of headers that tell them, each with its CR LF. */
void peer_pact_say(const struct peer_pact *pact, enum peer_role role, char out[PEER_HELLO]);
/* The values of the same headers from the other side. False: they are malformed. */
bool peer_pact_hear(struct peer_pact *pact, enum peer_role role, fl_bytes version, fl_bytes random);
bool peer_pact_agrees(const struct peer_pact *pact); /* the versions are not too far apart */

bool peer_prove(const struct peer_pact *pact, enum peer_role role, unsigned char out[PEER_MAC]);
bool peer_is_proof(const struct peer_pact *pact, enum peer_role role, fl_bytes proof);

/* Whether it can be an address in a header. */
bool peer_is_address(fl_bytes text);

/* --- Names -------------------------------------------------------------------------------------------------------- */

/* Looks a name up, on a thread of its own. */
struct peer_lookup;

/* An address that is written as a number is found at once: returns 1 and `ret_found`. Else calls `fn` with what was found,
 * which is its own from then on, or NULL and an EAI_ code, later: returns 0 and `ret`. Or returns FL_NO_MEMORY, FL_SYSTEM. */
int peer_lookup_begin(fl_loop *loop, const char *host, const char *port,
                      void (*fn)(void *arg, struct addrinfo *found, int error), void *arg, struct addrinfo **ret_found,
                      struct peer_lookup **ret);
void peer_lookup_cancel(struct peer_lookup *lookup); /* `fn` is not called any more; NULL is allowed */

/* --- Links -------------------------------------------------------------------------------------------------------- */

enum peer_state {
    PEER_WAITING, /* for the time to connect */
    PEER_LOOKING, /* the name up */
    PEER_ASKING,  /* connecting, or waiting for the response */
    PEER_PROVING, /* waiting for the proof */
    PEER_UP
};

TAILQ_HEAD(peer_calls, peer_call);

struct peer_link {
    fl_loop *loop;
    void (*changed)(void *arg, peer_link *link, bool up);
    void *arg;
    char *address, *host, *port, *self;
    char *secret;
    size_t secret_size;
    http_tls *tls; /* NULL: without TLS */
    enum peer_state state;
    char trouble[200];
    fl_timer_id tick, retry, immediate;
    bool has_retry, has_immediate;
    bool closed;        /* the other side has said that it reads nothing more */
    bool failed_before; /* since it was last up */
    unsigned delay_ms;  /* before the next connection but one */
    unsigned age;       /* ticks since it was connected; since it is up */
    unsigned silent;    /* ticks since something came */
    unsigned quiet;     /* ticks since something was sent */
    unsigned inside;    /* callbacks may be on the stack: the link is not freed */
    bool dead;
    struct peer_lookup *lookup;
    struct addrinfo *found, *at; /* `at`: the address that is being tried */
    /* The connection. */
    struct http_stream stream;
    bool connecting;
    unsigned events;
    struct peer_pact pact;
    struct http_buffer out, in; /* in: the head of the response as far as it has come */
    struct http_head head;
    struct http_fields fields;
    uint64_t written; /* bytes that ever were in `out` and have been sent */
    struct peer_reader reader;
    /* Calls. */
    uint64_t last_id;
    struct hash_table by_id;
    struct peer_calls calls;  /* sent and not answered, the first first */
    struct peer_calls failed; /* to be told */
    size_t failed_count;
};

/* dial.c */
void peer_dial(peer_link *link);       /* connects, looking the name up first if need be */
void peer_dial_flush(peer_link *link); /* sends what the kernel takes */
void peer_dial_stop(peer_link *link);  /* gives up the connection, and looking up */

/* link.c */
bool peer_link_is_open(const peer_link *link); /* there is a connection, or it is being made */
void peer_link_wake(peer_link *link);          /* flushes at the end of this turn */
/* Between these, callbacks may free the link: its memory stays until the last leave. */
void peer_link_enter(peer_link *link);
void peer_link_leave(peer_link *link);
/* The connection, or the try to make one, is at its end. */
void peer_link_lose(peer_link *link, const char *format, ...) __attribute__((format(printf, 2, 3)));
void peer_link_proved(peer_link *link);                                 /* the link is up */
void peer_link_handle(peer_link *link, const struct peer_frame *frame); /* a frame over a link that is up */

#endif
