/* SPDX-License-Identifier: MIT */
/* The side of a link that calls. */

#include "server/peer.h"

#include <stdlib.h>

struct peer_link {
    struct peer_link_config config;
};

int peer_link_new(const struct peer_link_config *config, peer_link **ret)
{
    peer_link *link = calloc(1, sizeof *link);
    if (!link)
        return FL_NO_MEMORY;
    link->config = *config;
    *ret = link;
    return 0;
}

bool peer_link_up(const peer_link *link)
{
    (void)link;
    return false;
}

const char *peer_link_trouble(const peer_link *link)
{
    (void)link;
    return "it has not been connected yet";
}

void peer_link_free(peer_link *link)
{
    free(link);
}

static void refuse(fl_loop *loop, void *arg)
{
    struct peer_call *call = arg;
    (void)loop;
    call->done(call, FL_STORE_UNAVAILABLE, (fl_bytes){0});
}

void peer_call(peer_link *link, struct peer_call *call, uint8_t kind, fl_bytes body)
{
    (void)kind;
    (void)body;
    call->sent = false;
    fl_loop_immediate(link->config.loop, refuse, call, &call->id);
}

void peer_cancel(peer_link *link, struct peer_call *call)
{
    fl_loop_cancel(link->config.loop, call->id);
}
