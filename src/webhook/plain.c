/* SPDX-License-Identifier: MIT */
/* The fast transport: HTTP/1.1 without TLS, over connections that are kept, one attempt at a time on each.
 *
 * It goes where libcurl has been. libcurl looks names up, tries their addresses and checks them. The host remembers for a
 * minute which address responded (webhook_learn()), and attempts to that address come here. After that minute one attempt
 * goes to libcurl again, with a new connection, while the others go on. If an address takes no connection any more, it is
 * forgotten, and the attempt goes to libcurl too.
 *
 * An attempt on a kept connection costs one send() and one recv(). The loop always waits for something to read, so it notices
 * when the other side closes an idle connection. If that happens while an attempt is sent, before a byte of the response has
 * come, the attempt is repeated once on a new connection. The target may have handled the first one. An attempt that must
 * not arrive twice (`once`) begins on a new connection, where this cannot happen. */

#include "webhook/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "base/assert.h"

struct webhook_connection {
    webhooks *hooks;
    struct webhook_host *host;
    struct webhook_slot *slot;            /* NULL: it is idle */
    LIST_ENTRY(webhook_connection) entry; /* among the idle ones of the host */
    struct http_stream stream;            /* without TLS */
    bool connecting;
    bool writing; /* the loop waits for room, too */
    bool mute;    /* the target takes nothing more; perhaps it still responds */
    bool used;    /* there was a response on it before */
    size_t sent;
    uint64_t idle_ns;
    uint32_t generation;
    struct webhook_reader reader;
};

/* --- Connections -------------------------------------------------------------------------------------------------- */

static void close_connection(struct webhook_connection *connection)
{
    webhooks *hooks = connection->hooks;
    if (!connection->slot)
        LIST_REMOVE(connection, entry);
    fl_loop_fd_remove(hooks->config.loop, connection->stream.fd);
    http_stream_close(&connection->stream);
    hooks->stats.connections--;
    webhook_reader_free(&connection->reader);
    free(connection);
}

/* The attempt has its response. Keeps the connection for another one, if that is possible. */
static void let_go(struct webhook_connection *connection, bool keep)
{
    webhooks *hooks = connection->hooks;
    struct webhook_host *host = connection->host;
    connection->slot->connection = NULL;
    connection->slot = NULL;
    connection->used = true;
    connection->idle_ns = fl_loop_now_ns(hooks->config.loop);
    LIST_INSERT_HEAD(&host->idle, connection, entry);
    if (!keep || connection->generation != host->generation || hooks->stats.connections > hooks->config.max_under_way)
        close_connection(connection);
}

/* The attempt goes on without its connection. */
static struct webhook_slot *tear(struct webhook_connection *connection)
{
    struct webhook_slot *slot = connection->slot;
    let_go(connection, false);
    return slot;
}

void webhook_plain_close_idle(struct webhook_host *host, uint64_t since_ns)
{
    for (struct webhook_connection *connection = LIST_FIRST(&host->idle), *next; connection; connection = next) {
        next = LIST_NEXT(connection, entry);
        if (connection->idle_ns <= since_ns)
            close_connection(connection);
    }
}

/* --- Sending ------------------------------------------------------------------------------------------------------ */

static void wait_to_write(struct webhook_connection *connection, bool write)
{
    if (connection->writing == write)
        return;
    connection->writing = write;
    fl_loop_fd_modify(connection->hooks->config.loop, connection->stream.fd, write ? FL_READ | FL_WRITE : FL_READ);
}

static bool is_sent(const struct webhook_connection *connection)
{
    const struct webhook_slot *slot = connection->slot;
    return connection->sent == slot->head.size + slot->tail.size;
}

/* Of head and tail, what comes after so many bytes. */
static ssize_t send_part(int fd, const struct out *head, fl_bytes tail, size_t from)
{
    if (tail.size == 0)
        return send(fd, head->data + from, head->size - from, MSG_NOSIGNAL);
    size_t of_head = from < head->size ? from : head->size, of_tail = from - of_head;
    struct iovec parts[2] = {{head->data + of_head, head->size - of_head},
                             {(char *)tail.data + of_tail, tail.size - of_tail}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    return sendmsg(fd, &message, MSG_NOSIGNAL);
}

/* Sends what the kernel takes. If it takes nothing any more, the other side has gone away or has answered already: what
 * there is to read will tell. */
static void send_more(struct webhook_connection *connection)
{
    ssize_t sent = send_part(connection->stream.fd, &connection->slot->head, connection->slot->tail, connection->sent);
    if (sent > 0)
        connection->sent += (size_t)sent;
    else if (sent < 0 && errno != EAGAIN && errno != EINTR)
        connection->mute = true;
    wait_to_write(connection, !connection->mute && !is_sent(connection));
}

/* --- Receiving ---------------------------------------------------------------------------------------------------- */

static void responded(struct webhook_connection *connection)
{
    struct webhook_slot *slot = connection->slot;
    let_go(connection, connection->reader.keep && is_sent(connection));
    webhook_responded(slot);
}

/* The connection is at its end. */
static void ended(struct webhook_connection *connection, bool orderly)
{
    bool nothing = !connection->reader.any, used = connection->used;
    if (orderly && webhook_read_end(&connection->reader) == WEBHOOK_WHOLE) {
        responded(connection);
        return;
    }
    struct webhook_slot *slot = tear(connection);
    if (nothing && used && !slot->fresh) {
        slot->fresh = true;
        webhook_repeat(slot);
    } else {
        webhook_broken(slot, FL_FAILED,
                       nothing ? "the target closed the connection without a response"
                               : "the target closed the connection within the response");
    }
}

static void receive(struct webhook_connection *connection)
{
    char *buffer = connection->hooks->buffer;
    ssize_t size = http_stream_read(&connection->stream, buffer, WEBHOOK_BUFFER);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (!connection->slot) {
        close_connection(connection);
        return;
    }
    if (size <= 0) {
        ended(connection, size == 0);
        return;
    }
    switch (webhook_read(&connection->reader, &connection->slot->response, buffer, (size_t)size)) {
    case WEBHOOK_MORE:
        break;
    case WEBHOOK_WHOLE:
        responded(connection);
        break;
    case WEBHOOK_BAD:
        webhook_broken(tear(connection), FL_FAILED, "the response is not HTTP, or too long");
        break;
    }
}

/* --- Connecting --------------------------------------------------------------------------------------------------- */

static void connected(struct webhook_connection *connection)
{
    if (http_stream_dialled(&connection->stream) != 0) {
        connection->host->address.ss_family = 0; /* libcurl looks the name up again */
        webhook_repeat(tear(connection));
        return;
    }
    connection->connecting = false;
    send_more(connection);
}

static void ready(fl_loop *loop, int fd, unsigned events, void *arg)
{
    struct webhook_connection *connection = arg;
    (void)loop;
    (void)fd;
    if (connection->connecting)
        connected(connection);
    else if (events & ~(unsigned)FL_WRITE)
        receive(connection);
    else
        send_more(connection);
}

static struct webhook_connection *connect_to(webhooks *hooks, struct webhook_host *host)
{
    const struct sockaddr *to = (const struct sockaddr *)&host->address;
    socklen_t size = to->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (!hooks->config.allow_private && !webhook_address_is_public(to))
        return NULL;
    struct webhook_connection *connection = calloc(1, sizeof *connection);
    if (!connection || http_stream_dial(&connection->stream, to, size, NULL) != 0) {
        free(connection);
        return NULL;
    }
    if (fl_loop_fd_add(hooks->config.loop, connection->stream.fd, FL_READ | FL_WRITE, ready, connection) < 0) {
        http_stream_close(&connection->stream);
        free(connection);
        return NULL;
    }
    connection->hooks = hooks;
    connection->host = host;
    connection->connecting = connection->writing = true;
    connection->generation = host->generation;
    hooks->stats.connections++;
    return connection;
}

/* --- Attempts ----------------------------------------------------------------------------------------------------- */

void webhook_plain_head(struct out *out, const struct webhook_target *target, size_t body_size)
{
    out_text(out, "POST ");
    if (target->path.size == 0 || *(const char *)target->path.data != '/')
        out_text(out, "/");
    out_put(out, target->path.data, target->path.size);
    out_text(out, " HTTP/1.1\r\nhost: ");
    out_put(out, target->authority.data, target->authority.size);
    out_text(out, "\r\ncontent-length: ");
    out_number(out, (int64_t)body_size);
    out_text(out, "\r\n");
}

int webhook_plain_begin(struct webhook_slot *slot)
{
    struct webhook_host *host = slot->host;
    struct webhook_connection *connection = slot->fresh ? NULL : LIST_FIRST(&host->idle);
    fl__assert(!slot->connection && !slot->lines && !host->https);
    if (connection)
        LIST_REMOVE(connection, entry);
    else
        connection = connect_to(slot->hooks, host);
    if (!connection)
        return FL_SYSTEM;
    connection->slot = slot;
    connection->sent = 0;
    connection->mute = false;
    slot->connection = connection;
    webhook_reader_begin(&connection->reader);
    if (!connection->connecting)
        send_more(connection);
    return 0;
}

void webhook_plain_end(struct webhook_slot *slot)
{
    struct webhook_connection *connection = slot->connection;
    if (!connection)
        return;
    if (connection->connecting)
        connection->host->address.ss_family = 0;
    tear(connection);
}
