/* SPDX-License-Identifier: MIT */
/* Frames, from bytes and to bytes, and proofs.
 *
 * A frame that lies whole in the input is handed out where it lies. Only a frame that is cut is put together. A proof is
 *
 *     HMAC-SHA256(secret, "foliot peer", role, versions, random numbers, whether it is bound, channel key)
 *
 * all of fixed size. The role prevents that a side accepts its own proof; the random numbers, that it accepts an old proof; the
 * channel key, that it accepts a proof of another connection. */

#include <endian.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hex.h"
#include "peer/internal.h"

/* --- Writing ------------------------------------------------------------------------------------------------------ */

/* As it is sent: numbers with the least significant byte first. */
struct __attribute__((packed)) frame_head {
    uint32_t size; /* of what follows */
    uint8_t kind;
    uint64_t id;
};

_Static_assert(sizeof(struct frame_head) == PEER_HEAD, "the head of a frame has no gaps");

enum { SIZE = 4, BEFORE_BODY = PEER_HEAD - SIZE };

bool peer_put_head(struct http_buffer *out, uint8_t kind, uint64_t id, size_t body_size)
{
    const struct frame_head head = {htole32((uint32_t)(BEFORE_BODY + body_size)), kind, htole64(id)};
    return http_buffer_append(out, &head, sizeof head);
}

bool peer_put(struct http_buffer *out, uint8_t kind, uint64_t id, fl_bytes body)
{
    return http_buffer_reserve(out, PEER_HEAD + body.size) && peer_put_head(out, kind, id, body.size) &&
           http_buffer_append(out, body.data, body.size);
}

/* --- Reading ------------------------------------------------------------------------------------------------------ */

bool peer_answer_read(const struct peer_frame *frame, int *ret_result, fl_bytes *ret_body)
{
    if (frame->kind != PEER_ANSWER || frame->body.size < PEER_RESULT)
        return false;
    uint32_t result;
    memcpy(&result, frame->body.data, PEER_RESULT);
    *ret_result = (int)le32toh(result);
    *ret_body = (fl_bytes){(const char *)frame->body.data + PEER_RESULT, frame->body.size - PEER_RESULT};
    return true;
}

static void fill(struct peer_frame *frame, const void *data, size_t size)
{
    struct frame_head head;
    memcpy(&head, data, sizeof head);
    *frame = (struct peer_frame){head.kind, le64toh(head.id), {(const char *)data + PEER_HEAD, size - PEER_HEAD}};
}

/* Of the whole frame that begins there. */
static int frame_size(const struct peer_reader *reader, const void *data, size_t *ret)
{
    uint32_t size;
    memcpy(&size, data, SIZE);
    size = le32toh(size);
    if (size < BEFORE_BODY)
        return FL_INVALID_ARGUMENT;
    if (size - BEFORE_BODY > reader->most)
        return FL_TOO_LARGE;
    *ret = SIZE + (size_t)size;
    return 0;
}

/* Moves bytes from the input to the part until that has as many. Returns 1; 0: it needs more; FL_NO_MEMORY. */
static int collect(struct peer_reader *reader, fl_bytes *input, size_t until)
{
    size_t missing = until - http_buffer_size(&reader->part);
    size_t size = input->size < missing ? input->size : missing;
    if (!http_buffer_reserve(&reader->part, missing))
        return FL_NO_MEMORY;
    http_buffer_append(&reader->part, input->data, size);
    *input = (fl_bytes){(const char *)input->data + size, input->size - size};
    return size == missing;
}

static void forget(struct peer_reader *reader)
{
    if (reader->whole)
        http_buffer_take(&reader->part, http_buffer_size(&reader->part));
    reader->whole = false;
}

int peer_read(struct peer_reader *reader, fl_bytes *input, struct peer_frame *ret)
{
    const struct http_buffer *part = &reader->part;
    size_t size = 0;
    int r;
    forget(reader);
    if (input->size == 0)
        return 0;
    if (http_buffer_size(part) == 0 && input->size >= SIZE) {
        r = frame_size(reader, input->data, &size);
        if (r < 0)
            return r;
        if (size <= input->size) {
            fill(ret, input->data, size);
            *input = (fl_bytes){(const char *)input->data + size, input->size - size};
            return 1;
        }
    }
    if (http_buffer_size(part) < SIZE && (r = collect(reader, input, SIZE)) <= 0)
        return r;
    if ((r = frame_size(reader, part->data + part->start, &size)) < 0 || (r = collect(reader, input, size)) <= 0)
        return r;
    fill(ret, part->data + part->start, size);
    reader->whole = true;
    return 1;
}

void peer_reader_free(struct peer_reader *reader)
{
    http_buffer_free(&reader->part);
    reader->whole = false;
}

/* --- What each side says ------------------------------------------------------------------------------------------ */

bool peer_pact_begin(struct peer_pact *pact, fl_bytes secret, enum peer_role role)
{
    *pact = (struct peer_pact){.secret = secret};
    pact->version[role] = PEER_PROTOCOL;
    bool done = RAND_bytes(pact->random[role], PEER_RANDOM) == 1;
    ERR_clear_error();
    return done;
}

void peer_pact_say(const struct peer_pact *pact, enum peer_role role, char out[PEER_HELLO])
{
    int at = snprintf(out, PEER_HELLO, "Foliot-Peer-Version: %u\r\nFoliot-Peer-Random: ", pact->version[role]);
    fl__assert(at + 2 * PEER_RANDOM + 3 <= PEER_HELLO);
    fl__hex_put(out + at, pact->random[role], PEER_RANDOM);
    memcpy(out + at + (size_t)2 * PEER_RANDOM, "\r\n", 3);
}

bool peer_pact_hear(struct peer_pact *pact, enum peer_role role, fl_bytes version, fl_bytes random)
{
    const char *digits = version.data;
    uint32_t number = 0;
    if (version.size < 1 || version.size > 4 || random.size != (size_t)2 * PEER_RANDOM)
        return false;
    for (size_t i = 0; i < version.size; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return false;
        number = number * 10 + (uint32_t)(digits[i] - '0');
    }
    if (!fl__hex_bytes(random.data, pact->random[role], PEER_RANDOM))
        return false;
    pact->version[role] = number;
    return true;
}

bool peer_pact_agrees(const struct peer_pact *pact)
{
    uint32_t a = pact->version[0], b = pact->version[1];
    return a >= PEER_PROTOCOL_LEAST && b >= PEER_PROTOCOL_LEAST && (a > b ? a - b : b - a) <= 1;
}

bool peer_is_address(fl_bytes text)
{
    const char *at = text.data;
    for (size_t i = 0; i < text.size; i++)
        if (at[i] <= ' ' || at[i] > '~')
            return false;
    return text.size > 0 && text.size <= PEER_ADDRESS_MOST;
}

/* --- Proofs ------------------------------------------------------------------------------------------------------- */

bool peer_prove(const struct peer_pact *pact, enum peer_role role, unsigned char out[PEER_MAC])
{
    struct __attribute__((packed)) {
        char what[sizeof "foliot peer"];
        uint8_t role;
        uint32_t version[2];
        unsigned char random[2][PEER_RANDOM];
        uint8_t bound;
        unsigned char channel[HTTP_CHANNEL_KEY];
    } text = {"foliot peer", role, {htole32(pact->version[0]), htole32(pact->version[1])}, .bound = pact->bound};
    memcpy(text.random, pact->random, sizeof text.random);
    memcpy(text.channel, pact->channel, sizeof text.channel);
    unsigned size = PEER_MAC;
    bool done = pact->secret.size <= INT32_MAX && HMAC(EVP_sha256(), pact->secret.data, (int)pact->secret.size,
                                                       (const unsigned char *)&text, sizeof text, out, &size);
    ERR_clear_error();
    return done;
}

bool peer_is_proof(const struct peer_pact *pact, enum peer_role role, fl_bytes proof)
{
    unsigned char expected[PEER_MAC];
    return proof.size == PEER_MAC && peer_prove(pact, role, expected) &&
           CRYPTO_memcmp(proof.data, expected, PEER_MAC) == 0;
}
