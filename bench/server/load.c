/* SPDX-License-Identifier: MIT */
/* The load generator: see load.h. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../frame.h"
#include "load.h"

struct connection {
    unsigned index;
    int fd;
    bool waits_for_room;
    struct span rest; /* of the request, to be sent */
    char *in;
    size_t begin, end, room;
};

struct client {
    const struct load *load;
    struct connection *connections;
    int epoll;
    unsigned busy;
    uint64_t end_ns;
};

int load_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        bench_die("no port");
    close(fd);
    return ntohs(address.sin_port);
}

int load_connect(int port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void watch(struct client *client, struct connection *c, int operation, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(client->epoll, operation, c->fd, &event) != 0)
        bench_die("epoll: %s", strerror(errno));
}

static void send_rest(struct client *client, struct connection *c)
{
    while (c->rest.size > 0) {
        ssize_t n = send(c->fd, c->rest.data, c->rest.size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            bench_die("a server has hung up");
        if (n < 0)
            break;
        c->rest.data += n;
        c->rest.size -= (size_t)n;
    }
    if (c->waits_for_room != (c->rest.size > 0)) {
        c->waits_for_room = c->rest.size > 0;
        watch(client, c, EPOLL_CTL_MOD, EPOLLIN | (c->waits_for_room ? EPOLLOUT : 0));
    }
}

static void ask(struct client *client, struct connection *c)
{
    const struct load *load = client->load;
    c->rest = bench_real_ns() < client->end_ns ? load->next(load->arg, c->index) : (struct span){0};
    if (c->rest.size == 0)
        client->busy--;
    else
        send_rest(client, c);
}

static void receive(struct client *client, struct connection *c)
{
    const struct load *load = client->load;
    if (c->begin > 0 && c->begin < c->end)
        memmove(c->in, c->in + c->begin, c->end - c->begin);
    c->end -= c->begin;
    c->begin = 0;
    if (c->end == c->room && !(c->in = realloc(c->in, c->room *= 2)))
        bench_die("no memory");
    ssize_t n = recv(c->fd, c->in + c->end, c->room - c->end, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0)
        bench_die("a server has hung up");
    c->end += (size_t)n;
    bool whole = false;
    c->begin += load->take(load->arg, c->index, c->in, c->end, &whole);
    if (!whole)
        return;
    if (c->begin != c->end || c->rest.size > 0)
        bench_die("a server answers more than it was asked for");
    ask(client, c);
}

static void work(struct client *client)
{
    struct epoll_event events[256];
    while (client->busy > 0) {
        int n = epoll_wait(client->epoll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].events & EPOLLOUT)
                send_rest(client, events[i].data.ptr);
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                receive(client, events[i].data.ptr);
        }
    }
}

static int port_of(const struct load *load, unsigned connection)
{
    unsigned turn = connection % (1 + load->other_count);
    return turn == 0 ? load->port : load->other_ports[turn - 1];
}

double load_run(const struct load *load)
{
    struct client client = {.load = load, .busy = load->connections, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    client.connections = calloc(load->connections, sizeof *client.connections);
    for (unsigned i = 0; i < load->connections; i++) {
        struct connection *c = &client.connections[i];
        *c = (struct connection){
            .index = i, .fd = load_connect(port_of(load, i)), .in = malloc(1 << 16), .room = 1 << 16};
        if (c->fd < 0 || !c->in)
            bench_die("no connection");
        watch(&client, c, EPOLL_CTL_ADD, EPOLLIN);
    }
    uint64_t begin_ns = bench_real_ns();
    client.end_ns = begin_ns + (uint64_t)(load->max_seconds * 1e9);
    for (unsigned i = 0; i < load->connections; i++)
        ask(&client, &client.connections[i]);
    work(&client);
    double seconds = (double)(bench_real_ns() - begin_ns) / 1e9;
    for (unsigned i = 0; i < load->connections; i++) {
        close(client.connections[i].fd);
        free(client.connections[i].in);
    }
    close(client.epoll);
    free(client.connections);
    return seconds;
}
