/* SPDX-License-Identifier: MIT */
/* A network that goes wrong: see proxy.h. */

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "pg.h"
#include "store/postgres/proxy.h"
#include "test.h"

enum { CONNECTIONS = 64 };

struct connection {
    int ends[2]; /* the client's and the server's; -1: there is none */
    bool hangs;
};

static struct connection connections[CONNECTIONS];
static char folder[64];
static int listener;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for what follows */
static bool armed, failed, released;
static enum proxy_direction where;
static enum proxy_fault how;
static size_t left, passed[2];
static bool twice; /* and then after so many bytes again: */
static enum proxy_direction where_again;
static size_t left_again;
static unsigned lies;
static char lie_state[6];

/* --- Sockets ------------------------------------------------------------------------------------------------------ */

static struct sockaddr_un address_in(const char *in)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/.s.PGSQL.5432", in);
    return address;
}

static void drop(struct connection *connection)
{
    for (int i = 0; i < 2; i++) {
        if (connection->ends[i] >= 0)
            close(connection->ends[i]);
        connection->ends[i] = -1;
    }
    connection->hangs = false;
}

static void accept_one(void)
{
    int client = accept(listener, NULL, NULL);
    CHECK(client >= 0);
    struct sockaddr_un address = address_in(pg_folder());
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(server, (struct sockaddr *)&address, sizeof address) != 0) { /* the server is down */
        close(server);
        close(client);
        return;
    }
    for (int i = 0; i < CONNECTIONS; i++)
        if (connections[i].ends[0] < 0 && connections[i].ends[1] < 0) {
            connections[i] = (struct connection){{client, server}, false};
            return;
        }
    test_fail(__FILE__, __LINE__, "too many connections");
}

static void send_all(int fd, const char *data, size_t size)
{
    for (ssize_t n; size > 0 && (n = send(fd, data, size, MSG_NOSIGNAL)) > 0; data += n)
        size -= (size_t)n;
}

/* How many of `size` bytes get through, and whether the fault comes after them. */
static size_t allowed(enum proxy_direction direction, size_t size, bool *ret_fault)
{
    pthread_mutex_lock(&lock);
    *ret_fault = armed && direction == where && size > left;
    if (*ret_fault)
        size = left;
    if (armed && direction == where)
        left -= size;
    if (*ret_fault) {
        armed = twice;
        twice = false;
        where = where_again;
        left = left_again;
        failed = true;
    }
    passed[direction] += size;
    pthread_mutex_unlock(&lock);
    return size;
}

/* The client has closed its end. The server is told so behind everything that was under way to it, and what it still says
 * is thrown away: so it gets to read all of it. */
static void client_gone(struct connection *connection)
{
    close(connection->ends[0]);
    connection->ends[0] = -1;
    shutdown(connection->ends[1], SHUT_WR);
}

/* Makes an error of the answer to a commit, if there is one and lies are wanted. Returns the size that it has then. */
static size_t lie_about_commits(char *data, size_t size, size_t room)
{
    static const char truth[] = "C\0\0\0\013COMMIT"; /* with the zero at its end */
    char lie[64] = "E";
    size_t length = 5;
    pthread_mutex_lock(&lock);
    length += (size_t)sprintf(lie + length, "SERROR") + 1;
    length += (size_t)sprintf(lie + length, "C%s", lie_state) + 1;
    length += (size_t)sprintf(lie + length, "Mthe commit failed") + 2;
    memcpy(lie + 1, "\0\0\0", 3);
    lie[4] = (char)(length - 1);
    for (size_t i = 0; lies > 0 && i + sizeof truth <= size && size + length < room; i++)
        if (memcmp(data + i, truth, sizeof truth) == 0) {
            memmove(data + i + length, data + i + sizeof truth, size - i - sizeof truth);
            memcpy(data + i, lie, length);
            size += length - sizeof truth;
            lies--;
        }
    pthread_mutex_unlock(&lock);
    return size;
}

/* Hands on what has come from one end. What is beyond a fault stays in the socket. */
static void hand_on(struct connection *connection, enum proxy_direction direction)
{
    static char data[65536];
    int from = connection->ends[direction], to = connection->ends[!direction];
    ssize_t n = recv(from, data, sizeof data / 2, MSG_PEEK); /* room for lies */
    if (n <= 0 && direction == PROXY_UP) {
        client_gone(connection);
        return;
    }
    if (n <= 0) {
        drop(connection);
        return;
    }
    bool fault;
    size_t size = allowed(direction, (size_t)n, &fault);
    CHECK(size == 0 || recv(from, data, size, 0) == (ssize_t)size);
    if (direction == PROXY_DOWN)
        size = lie_about_commits(data, size, sizeof data);
    if (to >= 0)
        send_all(to, data, size); /* if nobody listens any more, its end will be noticed */
    if (fault && how == PROXY_CUT)
        drop(connection);
    else if (fault)
        connection->hangs = true;
}

static void let_go(void)
{
    pthread_mutex_lock(&lock);
    bool now = released;
    released = false;
    pthread_mutex_unlock(&lock);
    for (int i = 0; now && i < CONNECTIONS; i++)
        connections[i].hangs = false;
}

static void *serve(void *arg)
{
    for (;;) {
        struct pollfd fds[1 + 2 * CONNECTIONS] = {{.fd = listener, .events = POLLIN}};
        let_go();
        for (int i = 0; i < 2 * CONNECTIONS; i++)
            fds[1 + i] =
                (struct pollfd){.fd = connections[i / 2].hangs ? -1 : connections[i / 2].ends[i % 2], .events = POLLIN};
        CHECK(poll(fds, 1 + 2 * CONNECTIONS, 2) >= 0 || errno == EINTR);
        for (int i = 0; i < 2 * CONNECTIONS; i++)
            if (fds[1 + i].revents && connections[i / 2].ends[i % 2] == fds[1 + i].fd && !connections[i / 2].hangs)
                hand_on(&connections[i / 2], i % 2);
        if (fds[0].revents)
            accept_one();
    }
    return arg;
}

/* --- The interface ------------------------------------------------------------------------------------------------ */

void proxy_start(void)
{
    pthread_t thread;
    snprintf(folder, sizeof folder, "%s/proxy", pg_folder()); /* it goes with that */
    CHECK_EQ(mkdir(folder, 0700), 0);
    for (int i = 0; i < CONNECTIONS; i++)
        connections[i] = (struct connection){{-1, -1}, false};
    struct sockaddr_un address = address_in(folder);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_EQ(listen(listener, 16), 0);
    CHECK_EQ(pthread_create(&thread, NULL, serve, NULL), 0);
    CHECK_EQ(pthread_detach(thread), 0);
}

const char *proxy_folder(void)
{
    return folder;
}

void proxy_fail(enum proxy_direction direction, size_t after, enum proxy_fault fault)
{
    pthread_mutex_lock(&lock);
    armed = true;
    twice = failed = released = false;
    where = direction;
    how = fault;
    left = after;
    pthread_mutex_unlock(&lock);
}

void proxy_fail_again(enum proxy_direction direction, size_t after)
{
    pthread_mutex_lock(&lock);
    twice = true;
    where_again = direction;
    left_again = after;
    pthread_mutex_unlock(&lock);
}

bool proxy_has_failed(void)
{
    pthread_mutex_lock(&lock);
    bool result = failed;
    pthread_mutex_unlock(&lock);
    return result;
}

void proxy_release(void)
{
    pthread_mutex_lock(&lock);
    armed = twice = false;
    released = true;
    pthread_mutex_unlock(&lock);
}

void proxy_lie(unsigned times, const char *state)
{
    pthread_mutex_lock(&lock);
    lies = times;
    snprintf(lie_state, sizeof lie_state, "%s", state);
    pthread_mutex_unlock(&lock);
}

unsigned proxy_lies_left(void)
{
    pthread_mutex_lock(&lock);
    unsigned result = lies;
    pthread_mutex_unlock(&lock);
    return result;
}

size_t proxy_bytes(enum proxy_direction direction)
{
    pthread_mutex_lock(&lock);
    size_t result = passed[direction];
    passed[direction] = 0;
    pthread_mutex_unlock(&lock);
    return result;
}
