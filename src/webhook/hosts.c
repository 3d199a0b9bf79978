/* SPDX-License-Identifier: MIT */
/* Hosts: each has a queue of attempts that wait. Hosts that may begin an attempt take turns, so that a host with many attempts
 * delays no other host. */

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "webhook/internal.h"

bool webhook_host_is(const struct webhook_host *host, const struct webhook_target *target)
{
    return host->https == target->https && host->port == target->port && host->name_size == target->host.size &&
           strncasecmp(host->name, target->host.data, host->name_size) == 0;
}

struct webhook_host *webhook_host_of(webhooks *hooks, const struct webhook_target *target)
{
    fl__assert(!target->problem);
    for (struct hash_link *link = fl__hash_first(&hooks->hosts, target->host_hash); link; link = fl__hash_next(link))
        if (webhook_host_is(hash_entry(link, struct webhook_host, by_name), target))
            return hash_entry(link, struct webhook_host, by_name);
    struct webhook_host *host = calloc(1, sizeof *host + target->host.size);
    if (!host)
        return NULL;
    TAILQ_INIT(&host->waiting);
    LIST_INIT(&host->idle);
    host->https = target->https;
    host->port = target->port;
    host->name_size = target->host.size;
    memcpy(host->name, target->host.data, target->host.size);
    fl__hash_insert(&hooks->hosts, &host->by_name, target->host_hash);
    return host;
}

void webhook_hosts_free(webhooks *hooks, uint64_t unused_since_ns)
{
    for (struct hash_link *link = fl__hash_walk(&hooks->hosts, NULL), *next; link; link = next) {
        next = fl__hash_walk(&hooks->hosts, link);
        struct webhook_host *host = hash_entry(link, struct webhook_host, by_name);
        webhook_plain_close_idle(host, unused_since_ns);
        if (host->waiting_count > 0 || host->under_way > 0 || host->used_ns > unused_since_ns)
            continue;
        fl__assert(!host->takes_turns && LIST_EMPTY(&host->idle));
        fl__hash_remove(&hooks->hosts, link);
        free(host);
    }
}

/* --- Addresses ---------------------------------------------------------------------------------------------------- */

void webhook_learn(struct webhook_host *host, const struct sockaddr_storage *address, uint64_t now_ns)
{
    if (memcmp(&host->address, address, sizeof *address) != 0)
        host->generation++;
    host->address = *address;
    host->learned_ns = now_ns;
}

/* --- Waiting ------------------------------------------------------------------------------------------------------ */

void webhook_host_changed(webhooks *hooks, struct webhook_host *host)
{
    bool takes_turns = host->waiting_count > 0 && host->under_way < hooks->config.max_per_host;
    fl__assert(host->under_way <= hooks->stats.under_way);
    if (host->takes_turns == takes_turns)
        return;
    host->takes_turns = takes_turns;
    if (takes_turns) {
        TAILQ_INSERT_TAIL(&hooks->turns, host, entry);
        hooks->turn_count++;
    } else {
        TAILQ_REMOVE(&hooks->turns, host, entry);
        hooks->turn_count--;
    }
}

void webhook_wait(webhooks *hooks, struct webhook_host *host, webhook_attempt *attempt)
{
    fl__assert(!attempt->host);
    host->used_ns = webhook_now_ns(hooks);
    host->waiting_count++;
    hooks->stats.waiting++;
    attempt->host = host;
    TAILQ_INSERT_TAIL(&host->waiting, attempt, entry);
    webhook_host_changed(hooks, host);
}

/* The caller calls webhook_host_changed(), once for many. */
void webhook_unwait(webhooks *hooks, webhook_attempt *attempt)
{
    struct webhook_host *host = attempt->host;
    fl__assert(host->waiting_count > 0 && hooks->stats.waiting > 0);
    TAILQ_REMOVE(&host->waiting, attempt, entry);
    attempt->host = NULL;
    host->waiting_count--;
    hooks->stats.waiting--;
}

/* Whether a host has less than half of what the others leave. Every host may have one attempt under way. */
static bool has_share(const webhooks *hooks, const struct webhook_host *host)
{
    uint64_t left = hooks->config.max_under_way - (hooks->stats.under_way - host->under_way);
    return host->under_way == 0 || host->under_way < left / 2;
}

struct webhook_host *webhook_next_host(webhooks *hooks)
{
    if (hooks->stats.under_way >= hooks->config.max_under_way)
        return NULL;
    for (size_t left = hooks->turn_count; left > 0; left--) {
        struct webhook_host *host = TAILQ_FIRST(&hooks->turns);
        TAILQ_REMOVE(&hooks->turns, host, entry);
        TAILQ_INSERT_TAIL(&hooks->turns, host, entry);
        if (has_share(hooks, host))
            return host;
    }
    return NULL;
}
