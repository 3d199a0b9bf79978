/* SPDX-License-Identifier: MIT */
/* GET /v1/namespaces and /v1/namespaces/{namespace}. */

#include <inttypes.h>
#include <stdlib.h>

#include "api/internal.h"

static void write_space(struct out *out, struct space *space)
{
    out_text(out, "{\"namespace\":");
    out_string(out, space_name(space));
    out_format(out, ",\"pending\":%" PRId64 ",\"settings\":", space_pending(space));
    settings_write(out, atomic_load(&space->settings), false);
    out_text(out, "}");
}

struct listing {
    struct space_walk walk;
    struct call *call;
    size_t count;
};

static void list_visit(struct space_walk *walk, struct space *space)
{
    struct listing *listing = (struct listing *)walk;
    struct out *out = &listing->call->out;
    if (!space_exists(space) || !call_may(listing->call, RIGHT_READ, space_name(space)))
        return;
    if (listing->count++ > 0)
        out_put(out, ",", 1);
    write_space(out, space);
}

static void list_done(struct space_walk *walk)
{
    struct listing *listing = (struct listing *)walk;
    struct call *call = listing->call;
    free(listing);
    out_text(&call->out, "]}");
    call_answer(call, 200);
}

static void namespaces_answer(void *arg)
{
    struct call *call = arg;
    struct listing *listing = calloc(1, sizeof *listing);
    if (!listing) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    *listing = (struct listing){.walk = {.visit = list_visit, .done = list_done}, .call = call};
    out_text(&call->out, "{\"namespaces\":[");
    space_walk_begin(&listing->walk, call->worker);
}

void namespaces_get(struct call *call)
{
    servers_gather(call->worker, (fl_bytes){0}, namespaces_answer, call);
}

/* One that nobody has used is as if it were there, but who only looks does not make it. */
static void namespace_answer(void *arg)
{
    struct call *call = arg;
    struct space unused = {.name = call->ns_room, .size = call->ns.size, .settings = &no_settings};
    struct space *space = space_if_any(call->worker->node, call->ns);
    write_space(&call->out, space ? space : &unused);
    call_answer(call, 200);
}

void namespace_get(struct call *call)
{
    servers_gather(call->worker, call->ns, namespace_answer, call);
}
