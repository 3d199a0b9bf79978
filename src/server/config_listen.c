/* SPDX-License-Identifier: MIT */
/* Addresses to listen on, from text to what bind() takes. A name may stand for several. */

#include "server/settings.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include <foliot/error.h>

bool config_is_loopback(const struct sockaddr *address)
{
    const struct sockaddr_in6 *v6 = (const void *)address;
    const struct sockaddr_in *v4 = (const void *)address;
    if (address->sa_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        return v6->sin6_addr.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static int append(struct server_config *config, const struct addrinfo *found)
{
    size_t count = config->address_count;
    struct config_address *longer = realloc(config->addresses, (count + 1) * sizeof *longer);
    if (!longer)
        return FL_NO_MEMORY;
    longer[count] = (struct config_address){.size = found->ai_addrlen};
    memcpy(&longer[count].address, found->ai_addr, found->ai_addrlen);
    config->addresses = longer;
    config->address_count = count + 1;
    config->loopback_only &= config_is_loopback(found->ai_addr);
    return 0;
}

/* What of a machine's own kinds of addresses a name stands for; if it has none but loopback, what the name stands for. */
static int look_up(const char *host, const char *port, struct addrinfo **ret)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV | AI_ADDRCONFIG};
    int result = getaddrinfo(host, port, &hints, ret);
    if (result == 0)
        return 0;
    hints.ai_flags &= ~AI_ADDRCONFIG;
    return getaddrinfo(host, port, &hints, ret);
}

/* One HOST:PORT, which is changed on the way. */
static int resolve(struct server_config *config, char *text, char *message, size_t size)
{
    char *port = strrchr(text, ':'), *host = text;
    struct addrinfo *found;
    *port++ = '\0';
    if (host[0] == '[') {
        host[strlen(host) - 1] = '\0';
        host++;
    }
    int result = look_up(strcmp(host, "*") == 0 ? NULL : host, port, &found);
    if (result == EAI_MEMORY)
        return FL_NO_MEMORY;
    if (result != 0) {
        snprintf(message, size, "cannot resolve '%s' (%s)", host, gai_strerror(result));
        return FL_INVALID_ARGUMENT;
    }
    result = 0;
    for (const struct addrinfo *at = found; at && result == 0; at = at->ai_next)
        if (at->ai_addrlen <= sizeof((struct config_address *)0)->address)
            result = append(config, at);
    freeaddrinfo(found);
    return result;
}

int config_resolve(struct server_config *config, char *message, size_t size)
{
    char *list = strdup(config->listen), *rest = list;
    int result = list ? 0 : FL_NO_MEMORY;
    config->loopback_only = true;
    for (char *one; result == 0 && (one = strsep(&rest, ", ")) != NULL;)
        if (*one)
            result = resolve(config, one, message, size);
    free(list);
    return result;
}
