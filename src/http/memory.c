/* SPDX-License-Identifier: MIT */
/* The memory that requests hold, and its limit.
 *
 * A request that needs much memory reserves it before it begins: for its body, for its response, and for what its handler
 * keeps meanwhile. If the reservations of all requests would exceed the limit, it waits in a queue, first come, first
 * served. A reservation ends when the request has been answered and the peer has taken the response. Small requests, which
 * are nearly all of them, reserve nothing and never wait.
 *
 * No request waits for ever. A request reserves once, before it begins, so requests that hold memory never wait for more.
 * Each of them ends by the usual time limits, and while others wait, also if its client reads the response too slowly. A
 * request that is larger than the limit begins when no other request holds memory.
 *
 * Streams that go on for as long as the client wants are another matter: they hold what they reserve, may have half of the
 * memory together, and are refused beyond that. The others share what streams leave.
 *
 * A response that is larger than was reserved counts with its size: it makes others wait. */

#include "base/assert.h"
#include "http/internal.h"

enum { SLOW_SECONDS = 5, SLOW_BYTES = SLOW_SECONDS * 65536 };

/* What it counts for now. */
static size_t held(const struct http_connection *connection)
{
    size_t out = connection->out.capacity > HTTP_OUT_MOST ? connection->out.capacity : 0;
    return connection->reserved > out ? connection->reserved : out;
}

static bool fits(const http_server *server, const struct http_connection *connection, size_t size)
{
    size_t most = server->config.max_memory, others = server->memory_used - connection->charged;
    if (connection->request.lasting)
        return server->memory_lasting + size <= most / 2;
    most -= server->memory_lasting < most / 2 ? server->memory_lasting : most / 2;
    return others == 0 || (others <= most && size <= most - others);
}

/* Of a stream, its reservation is counted apart. */
static void charge(struct http_connection *connection)
{
    http_server *server = connection->server;
    bool lasting = connection->request.lasting && connection->stage != HTTP_NO_REQUEST;
    fl__assert(server->memory_used >= connection->charged && server->memory_lasting >= connection->lasting);
    server->memory_used -= connection->charged;
    server->memory_lasting -= connection->lasting;
    connection->charged = lasting ? 0 : held(connection);
    connection->lasting = lasting ? held(connection) : 0;
    server->memory_used += connection->charged;
    server->memory_lasting += connection->lasting;
}

static void serve_next(http_server *server)
{
    struct http_connection *connection;
    while ((connection = TAILQ_FIRST(&server->hungry)) && fits(server, connection, connection->asked)) {
        fl__assert(connection->memory == HTTP_MEMORY_WAITS);
        TAILQ_REMOVE(&server->hungry, connection, hungry_entry);
        connection->reserved = connection->asked;
        connection->memory = HTTP_MEMORY_GRANTED;
        charge(connection);
        http_make_ready(connection);
    }
}

void http_memory_count(struct http_connection *connection)
{
    if (!connection->server)
        return;
    if (connection->stage == HTTP_NO_REQUEST)
        connection->reserved = 0;
    size_t before = connection->charged + connection->lasting;
    charge(connection);
    if (connection->charged + connection->lasting < before)
        serve_next(connection->server);
}

void http_memory_leave(struct http_connection *connection)
{
    bool waited = connection->memory == HTTP_MEMORY_WAITS;
    connection->memory = HTTP_MEMORY_CALM;
    if (!waited)
        return;
    TAILQ_REMOVE(&connection->server->hungry, connection, hungry_entry);
    serve_next(connection->server);
}

bool http_memory_blocks(const struct http_connection *connection)
{
    return connection->memory == HTTP_MEMORY_WAITS && !connection->granted;
}

bool http_memory_for_stream(struct http_connection *connection)
{
    size_t size = connection->request.memory;
    if (!fits(connection->server, connection, size))
        return false;
    connection->reserved = size;
    charge(connection);
    return true;
}

bool http_reserve(http_request *request, size_t size, void (*granted)(http_request *request))
{
    struct http_connection *connection = http_connection_of(request);
    http_server *server = connection->server;
    fl__assert(connection->memory == HTTP_MEMORY_CALM && connection->stage != HTTP_NO_REQUEST);
    if (!server || connection->stage == HTTP_ABANDONED) /* it only has to end */
        return true;
    if (size <= connection->reserved || (TAILQ_EMPTY(&server->hungry) && fits(server, connection, size))) {
        connection->reserved = size;
        charge(connection);
        return true;
    }
    connection->asked = size;
    connection->granted = granted;
    connection->memory = HTTP_MEMORY_WAITS;
    TAILQ_INSERT_TAIL(&server->hungry, connection, hungry_entry);
    return false;
}

void http_unreserve(http_request *request)
{
    struct http_connection *connection = http_connection_of(request);
    connection->reserved = 0;
    http_memory_count(connection);
}

bool http_memory_is_short(http_request *request)
{
    const http_server *server = http_connection_of(request)->server;
    return server && !TAILQ_EMPTY(&server->hungry);
}

size_t http_memory_left(const http_server *server)
{
    size_t most = server->config.max_memory;
    return server->memory_used < most ? most - server->memory_used : 0;
}

/* While others wait for memory, a peer must take its response at a fair pace. */
bool http_memory_is_wasted(struct http_connection *connection, uint64_t now_ns)
{
    bool matters = !TAILQ_EMPTY(&connection->server->hungry) && connection->charged + connection->lasting > 0 &&
                   http_buffer_size(&connection->out) > 0;
    if (!matters) {
        connection->pace_since_ns = 0;
        return false;
    }
    uint64_t elapsed = now_ns - connection->pace_since_ns;
    bool over = connection->pace_since_ns > 0 && elapsed >= SLOW_SECONDS * 1000000000ull;
    bool slow = over && connection->pace_bytes < SLOW_BYTES;
    if (over || connection->pace_since_ns == 0) {
        connection->pace_since_ns = now_ns;
        connection->pace_bytes = 0;
    }
    return slow;
}
