/* SPDX-License-Identifier: MIT */
/* The addresses on which the server listens. */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/internal.h"
#include "text/log.h"

void write_address(const struct config_address *address, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN];
    bool v6 = address->address.any.sa_family == AF_INET6;
    inet_ntop(address->address.any.sa_family,
              v6 ? (const void *)&address->address.v6.sin6_addr : (const void *)&address->address.v4.sin_addr, host,
              sizeof host);
    unsigned port = ntohs(v6 ? address->address.v6.sin6_port : address->address.v4.sin_port);
    snprintf(out, size, v6 ? "[%s]:%u" : "%s:%u", host, port);
}

/* Why an address cannot be had, and what to do. */
static void explain_bind(int error, char *message, size_t size)
{
    static const struct {
        int error;
        const char *text;
    } known[] = {
        {EADDRINUSE, "(address already in use); stop the other server or choose another address with --listen"},
        {EADDRNOTAVAIL, "(this machine does not have the address); choose another address with --listen"},
        {EACCES, "(permission denied); choose a port above 1023 with --listen or grant CAP_NET_BIND_SERVICE"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].error == error) {
            snprintf(message, size, "%s", known[i].text);
            return;
        }
    snprintf(message, size, "(%s); choose another address with --listen", strerrordesc_np(error));
}

/* The workers share each address, and the kernel would let another server share it too: it must be free before the first. */
static int claim_address(const struct config_address *address, char *message, size_t size)
{
    int fd = socket(address->address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (address->address.any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    int r = bind(fd, &address->address.any, address->size);
    if (r < 0)
        explain_bind(errno, message, size);
    close(fd);
    return r < 0 ? FL_SYSTEM : 0;
}

static void tell_cannot_listen(struct server *server, const struct config_address *address, const char *why)
{
    char text[64], message[320];
    write_address(address, text, sizeof text);
    snprintf(message, sizeof message, "cannot listen on %s %s", text, why);
    log_error(message, NULL);
    atomic_store(&server->told, true);
}

/* A port that the first worker was given by the kernel is the others' too. */
static void listen_here(struct worker *worker)
{
    struct server *server = server_of(worker);
    char message[200], refusal[160];
    int r = 0;
    for (size_t i = 0; i < server->config.address_count && r == 0; i++) {
        struct config_address *address = &server->config.addresses[i];
        uint16_t port = 0;
        if (worker->index == 0)
            r = claim_address(address, message, sizeof message);
        if (r == 0) {
            r = http_server_listen(api_here(worker)->http, &address->address.any, address->size, &port, refusal,
                                   sizeof refusal);
            snprintf(message, sizeof message, "(%s)", r < 0 ? refusal : "");
        }
        if (r < 0) {
            tell_cannot_listen(server, address, message);
        } else if (address->address.any.sa_family == AF_INET) {
            address->address.v4.sin_port = htons(port);
        } else {
            address->address.v6.sin6_port = htons(port);
        }
    }
    step_end(r);
}

/* The webhooks have the list from their beginning; it is complete when all ports are known, before the first timer fires. */
int make_own_targets(struct server *server)
{
    server->api.own_targets = calloc(2 * server->config.address_count + 1, sizeof *server->api.own_targets);
    return server->api.own_targets ? 0 : FL_NO_MEMORY;
}

static int name_own_targets(struct server *server)
{
    size_t count = 0;
    const char *scheme = server->tls ? "https" : "http";
    for (size_t i = 0; server->config.echo && i < server->config.address_count; i++) {
        const struct config_address *address = &server->config.addresses[i];
        bool v6 = address->address.any.sa_family == AF_INET6;
        unsigned port = ntohs(v6 ? address->address.v6.sin6_port : address->address.v4.sin_port);
        char text[64], *url;
        write_address(address, text, sizeof text);
        if (asprintf(&url, "%s://%s/echo", scheme, text) < 0)
            return FL_NO_MEMORY;
        server->api.own_targets[count++] = url;
        if (!server->config.loopback_only)
            continue;
        if (asprintf(&url, "%s://localhost:%u/echo", scheme, port) < 0)
            return FL_NO_MEMORY;
        server->api.own_targets[count++] = url;
    }
    return 0;
}

void free_own_targets(struct server *server)
{
    for (size_t i = 0; server->api.own_targets[i]; i++)
        free((void *)server->api.own_targets[i]);
    free(server->api.own_targets);
}

static void listen_on_first(struct worker *worker)
{
    if (worker->index == 0)
        listen_here(worker);
    else
        step_end(0);
}

static void listen_on_others(struct worker *worker)
{
    if (worker->index > 0)
        listen_here(worker);
    else
        step_end(0);
}

int listen_all(struct server *server)
{
    int r = all_workers(server, listen_on_first); /* before the store is claimed: a second server ends here */
    if (r == 0)
        r = all_workers(server, listen_on_others);
    return r == 0 ? name_own_targets(server) : r;
}
