/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_PEER_INTERNAL_H
#define FOLIOT_SERVER_PEER_INTERNAL_H

/* What the files of the links between servers share.
 *
 *   peer_link.c     the side that calls
 *   peer_wire.c     its connections: names, TCP, TLS
 *   peer_session.c  the side that is called
 *   peer_frame.c    frames and proofs
 *
 * How a link begins. The request has three headers: Foliot-Peer-Version, Foliot-Peer-Random (hexadecimal) and
 * Foliot-Peer-Address; the answer's head has the first two. Then the caller sends its proof, as a frame, and if that is right,
 * the host sends its own; if not, it sends a refusal and ends. Only then the first call may come.
 *
 * Time is counted in ticks of half a second, not by the clock: a loop that was held up for long has only missed one, and gives
 * nobody up for its own fault. */

#include <netdb.h>
#include <openssl/types.h>
#include <sys/types.h>

#include "http/internal.h"
#include "peer/peer.h"

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
bool peer_put_answer(struct http_buffer *out, uint64_t id, int result, fl_bytes body);
/* The same without the body, which is to follow. */
bool peer_put_answer_head(struct http_buffer *out, uint64_t id, int result, size_t body_size);
bool peer_put_head(struct http_buffer *out, uint8_t kind, uint64_t id, size_t body_size);

/* Takes an answer apart; false: it is none. */
bool peer_answer_read(const struct peer_frame *frame, int *ret_result, fl_bytes *ret_body);

/* Makes frames of bytes that come in pieces of any size. The zero value with `most` set is one that has read nothing. */
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

/* --- Connections of the caller ------------------------------------------------------------------------------------ */

/* A socket, with TLS or without, and what the loop waits for. */
struct peer_wire {
    fl_loop *loop;
    int fd; /* -1: there is none */
    unsigned events;
    bool connecting;
    SSL *ssl;
    bool read_wants_write, write_wants_read; /* TLS */
    const char *problem;                     /* what TLS complained about last; NULL: errno says it */
};

SSL_CTX *peer_wire_context(void); /* for TLS; NULL: there is no memory */

/* Begins to connect. `fn` is called when that has ended, and then for every event. Returns 0 or an errno. */
int peer_wire_open(struct peer_wire *wire, fl_loop *loop, const struct addrinfo *to, SSL_CTX *context, fl_loop_fd_fn fn,
                   void *arg);
int peer_wire_connected(struct peer_wire *wire); /* at the first event: 0 or an errno */
/* As recv() and send(). */
ssize_t peer_wire_read(struct peer_wire *wire, char *data, size_t size);
ssize_t peer_wire_write(struct peer_wire *wire, const char *data, size_t size);
void peer_wire_wait(struct peer_wire *wire, bool more); /* for what comes; with `more` also for room to write */
void peer_wire_close(struct peer_wire *wire);

/* Looks a name up. That takes as long as it takes, on a thread of its own. */
struct peer_lookup;

/* An address that is written as a number is found at once: returns 1 and `ret_found`. Else calls `fn` with what was found,
 * which is its own from then on, or NULL and an EAI_ code, later: returns 0 and `ret`. Or returns FL_NO_MEMORY, FL_SYSTEM. */
int peer_lookup_begin(fl_loop *loop, const char *host, const char *port,
                      void (*fn)(void *arg, struct addrinfo *found, int error), void *arg, struct addrinfo **ret_found,
                      struct peer_lookup **ret);
void peer_lookup_cancel(struct peer_lookup *lookup); /* `fn` is not called any more; NULL is allowed */

#endif
