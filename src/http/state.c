/* SPDX-License-Identifier: MIT */
/* The states of a connection and of its request. Every change of state goes through here. The tables list the allowed
 * transitions, and check() checks the invariant of each state. Both are always on: a connection in an impossible state would
 * answer a request twice, or with bytes of another one.
 *
 *      IDLE ──> BODY ──> HANDLED ──> IDLE            a request, with a body
 *      IDLE ──> WHOLE ─> HANDLED ──> IDLE            … without
 *               BODY ──> DISCARDED ─> IDLE           answered before the body was read
 *               WHOLE ─> UPGRADED                    101 Switching Protocols
 *      any of these ──> LAST ──> LINGERING           the connection ends with this answer
 *      any of these ──> BROKEN ──> CLOSED            it has ended */

#include "base/assert.h"
#include "http/internal.h"

#define BIT(state) (1u << (state))

enum { ENDS = BIT(HTTP_BROKEN) | BIT(HTTP_CLOSED) };

static const uint16_t states_after[] = {
    [HTTP_IDLE] = BIT(HTTP_BODY) | BIT(HTTP_WHOLE) | BIT(HTTP_LAST) | ENDS,
    [HTTP_BODY] = BIT(HTTP_HANDLED) | BIT(HTTP_DISCARDED) | BIT(HTTP_LAST) | ENDS,
    [HTTP_WHOLE] = BIT(HTTP_HANDLED) | BIT(HTTP_IDLE) | BIT(HTTP_UPGRADED) | BIT(HTTP_LAST) | ENDS,
    [HTTP_HANDLED] = BIT(HTTP_IDLE) | BIT(HTTP_LAST) | ENDS,
    [HTTP_DISCARDED] = BIT(HTTP_IDLE) | ENDS,
    [HTTP_UPGRADED] = BIT(HTTP_LAST) | ENDS,
    [HTTP_LAST] = BIT(HTTP_LINGERING) | ENDS,
    [HTTP_LINGERING] = ENDS,
    [HTTP_BROKEN] = BIT(HTTP_CLOSED),
    [HTTP_CLOSED] = 0,
};

static const uint8_t stages_after[] = {
    [HTTP_NO_REQUEST] = BIT(HTTP_OFFERED),
    [HTTP_OFFERED] = BIT(HTTP_NO_REQUEST) | BIT(HTTP_TAKEN) | BIT(HTTP_BEGUN) | BIT(HTTP_ABANDONED),
    [HTTP_TAKEN] = BIT(HTTP_NO_REQUEST) | BIT(HTTP_BEGUN) | BIT(HTTP_ABANDONED),
    [HTTP_BEGUN] = BIT(HTTP_NO_REQUEST) | BIT(HTTP_ABANDONED),
    [HTTP_ABANDONED] = BIT(HTTP_NO_REQUEST),
};

/* What is true when a connection enters a state. */
static void check(const struct http_connection *connection)
{
    bool has_request = connection->stage != HTTP_NO_REQUEST;
    fl__assert((connection->stream.fd < 0) == (connection->state == HTTP_CLOSED));
    switch (connection->state) {
    case HTTP_IDLE:
        fl__assert(!has_request && !connection->head_own && connection->collected.capacity == 0);
        fl__assert(connection->ending == HTTP_KEEP && connection->memory == HTTP_MEMORY_CALM);
        break;
    case HTTP_BODY:
        fl__assert(connection->stage == HTTP_OFFERED && connection->body.framing != HTTP_NO_BODY);
        break;
    case HTTP_WHOLE:
        fl__assert(connection->stage == HTTP_OFFERED && connection->body.framing == HTTP_NO_BODY);
        break;
    case HTTP_HANDLED:
        fl__assert(connection->stage == HTTP_TAKEN || connection->stage == HTTP_BEGUN);
        break;
    case HTTP_DISCARDED:
        fl__assert(!has_request && connection->ending == HTTP_KEEP && connection->body.framing == HTTP_LENGTH);
        break;
    case HTTP_UPGRADED:
        fl__assert(connection->stage == HTTP_BEGUN && connection->form == HTTP_RAW && connection->request.data);
        fl__assert(connection->ending == HTTP_CLOSE_SLOWLY && connection->body.framing == HTTP_NO_BODY);
        break;
    case HTTP_LAST:
    case HTTP_LINGERING:
        fl__assert(connection->ending != HTTP_KEEP);
        break;
    case HTTP_BROKEN:
    case HTTP_CLOSED:
        break;
    }
}

void http_move(struct http_connection *connection, enum http_state to)
{
    fl__assert(states_after[connection->state] & BIT(to));
    connection->state = to;
    check(connection);
}

void http_set_stage(struct http_connection *connection, enum http_stage to)
{
    fl__assert(stages_after[connection->stage] & BIT(to));
    connection->stage = to;
}

void http_break(struct http_connection *connection)
{
    if (!http_is_over(connection))
        http_move(connection, HTTP_BROKEN);
}
