/* SPDX-License-Identifier: MIT */
/* What other servers tell us and ask of us, but for calls (calls.c). */

#include "node/internal.h"

static void serve_spaces(struct worker *worker, struct link_request *request)
{
    struct out answer = {0};
    spaces_put_counts(worker->node, request->body, &answer);
    link_answer(request, answer.failed ? FL_NO_MEMORY : 0, out_bytes(&answer));
    out_free(&answer);
}

static void look(fl_loop *loop, void *arg)
{
    struct node *node = arg;
    (void)loop;
    if (node->cluster && !atomic_load(&node->closing))
        cluster_look(node->cluster);
}

void node_serve(struct worker *worker, struct link_request *request)
{
    struct node *node = worker->node;
    if (calls_serve(worker, request))
        return;
    switch (request->kind) {
    case LINK_EVENTS:
        node->ports->listen(worker, request);
        return;
    case LINK_SPACES:
        serve_spaces(worker, request);
        return;
    case LINK_STATS:
        stats_serve(worker, request);
        return;
    case LINK_HOSTS:
        hosts_serve(worker, request);
        return;
    case LINK_SETTINGS:
        if (request->body.size > 0)
            settings_reload(node, space_of(node, request->body));
        else
            settings_load_missed(node);
        link_answer(request, 0, (fl_bytes){0});
        return;
    case LINK_LOOK:
        fl_loop_post(node->workers[0].loop, look, node);
        link_answer(request, 0, (fl_bytes){0});
        return;
    default: /* of a later version */
        link_answer(request, FL_INVALID_ARGUMENT, (fl_bytes){0});
    }
}
