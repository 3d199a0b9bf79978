/* SPDX-License-Identifier: MIT */
/* For users who start a server for the first time (--hello): commands to try, and a first callback, which the server sends to
 * its own echo. */

#include <stdio.h>
#include <stdlib.h>

#include "server/internal.h"

struct first {
    struct shard_call call;
    fl_op op;
    char target[128];
};

static void nothing_to_render(struct shard_call *call)
{
    (void)call;
}

static void first_made(struct shard_call *over)
{
    free(over);
}

static void make_first(void *arg)
{
    struct first *first = arg;
    shard_call_submit(&first->call);
}

/* Due in two seconds. */
static void first_callback(struct server *server, const char *url)
{
    struct first *first = calloc(1, sizeof *first);
    if (!first)
        return;
    snprintf(first->target, sizeof first->target, "%s/echo", url);
    first->op = (fl_op){.kind = FL_OP_CREATE,
                        .timer = {.ns = FL_TEXT("hello"),
                                  .name = FL_TEXT("first"),
                                  .due_us = node_now(&server->node) + 2000000,
                                  .target = bytes_of(first->target),
                                  .payload = FL_TEXT("\"this is your first callback\"")}};
    first->call.batch.ops = &first->op;
    first->call.batch.count = 1;
    first->call.render = nothing_to_render;
    first->call.errand.home = server->node.workers;
    first->call.done = first_made;
    first->call.shard = shard_of_op(&server->node, &first->op);
    if (fl_runtime_spawn_on(server->runtime, 0, make_first, first) < 0)
        free(first);
}

void hello(struct server *server, const char *url)
{
    printf("\nFoliot listens on %s. In a second terminal, watch what happens:\n\n"
           "  curl -N %s/v1/events\n\n"
           "In a third terminal, create a timer and look at it:\n\n"
           "  curl -X PUT %s/v1/timers/demo/tea -d '{\"after\":\"5s\",\"target\":\"%s/echo\",\"payload\":\"tea is "
           "ready\"}'\n"
           "  curl %s/v1/timers/demo/tea\n\n"
           "A first callback comes in two seconds. Ctrl-C stops the server. It keeps its timers.\n\n",
           url, url, url, url, url);
    fflush(stdout);
    first_callback(server, url);
}
