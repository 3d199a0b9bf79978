/* SPDX-License-Identifier: MIT */
/* The side of a link that is called. */

#include "server/peer.h"

#include <stdlib.h>

struct peer_sessions {
    fl_loop *loop;
    const struct peer_host *host;
};

int peer_sessions_new(fl_loop *loop, const struct peer_host *host, peer_sessions **ret)
{
    peer_sessions *sessions = calloc(1, sizeof *sessions);
    if (!sessions)
        return FL_NO_MEMORY;
    *sessions = (peer_sessions){loop, host};
    *ret = sessions;
    return 0;
}

void peer_accept(peer_sessions *sessions, http_request *request)
{
    (void)sessions;
    http_answer(request, 401, NULL, NULL, (fl_bytes){0});
}

void peer_sessions_stop(peer_sessions *sessions)
{
    (void)sessions;
}

void peer_sessions_free(peer_sessions *sessions)
{
    free(sessions);
}

void peer_answer(struct peer_request *request, int result, fl_bytes body)
{
    (void)result;
    (void)body;
    free(request);
}

void peer_piece(struct peer_request *request, fl_bytes piece)
{
    (void)request;
    (void)piece;
}

size_t peer_unsent(const struct peer_request *request)
{
    (void)request;
    return 0;
}
