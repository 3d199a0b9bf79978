/* SPDX-License-Identifier: MIT */
/* The rate limit of requests per client address (max-request-rate).
 *
 * For every address, one word has the time at which its next request would be on time at exactly the allowed rate. A client
 * that is more than a second ahead of this time is refused. Addresses are hashed into a table that is never cleaned, because
 * a time that has passed has no effect. Two addresses in the same place share the limit. IPv6 addresses count by /64,
 * because this is the usual assignment to one customer. */

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"

enum { PLACES = 1 << 16 };

struct rates {
    uint64_t secret; /* so that a client cannot choose to share the place of another */
    _Atomic int64_t next_us[PLACES];
};

int rates_new(struct api *api, uint64_t secret)
{
    if (api->config.max_request_rate == 0)
        return 0;
    api->rates = calloc(1, sizeof *api->rates);
    if (!api->rates)
        return FL_NO_MEMORY;
    api->rates->secret = secret;
    return 0;
}

void rates_free(struct api *api)
{
    free(api->rates);
}

static size_t place_of(const struct rates *rates, const struct sockaddr *peer)
{
    uint64_t address = 0;
    if (peer->sa_family == AF_INET)
        address = ((const struct sockaddr_in *)peer)->sin_addr.s_addr;
    else if (peer->sa_family == AF_INET6)
        memcpy(&address, &((const struct sockaddr_in6 *)peer)->sin6_addr, sizeof address);
    uint64_t hash = (address ^ rates->secret) * 0x9e3779b97f4a7c15;
    hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93;
    return hash >> 48;
}

/* `now_us` is monotonic. With a wall clock that is set back, all requests would be refused until it has caught up. */
bool rate_allows(struct api *api, const struct sockaddr *peer, int64_t now_us)
{
    if (!api->rates || !peer)
        return true;
    _Atomic int64_t *place = &api->rates->next_us[place_of(api->rates, peer)];
    int64_t seen = atomic_load_explicit(place, memory_order_relaxed), next;
    do {
        if (seen > now_us + 1000000)
            return false;
        next = (seen > now_us ? seen : now_us) + 1000000 / api->config.max_request_rate;
    } while (!atomic_compare_exchange_weak_explicit(place, &seen, next, memory_order_relaxed, memory_order_relaxed));
    return true;
}
