/* SPDX-License-Identifier: MIT */
/* GET /v1/namespaces and /v1/namespaces/{namespace}. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "text/json.h"

enum { LIMIT = 100, LIMIT_MOST = 1000 };

static void write_space(struct out *out, const struct node *node, struct space *space)
{
    out_text(out, "{\"namespace\":");
    out_string(out, space_name(space));
    out_format(out, ",\"pending\":%" PRId64 ",\"schedules\":%" PRId64 ",\"settings\":", space_pending(space),
               space_schedules(space));
    const struct settings *settings = atomic_load(&space->settings);
    settings_write(out, settings, false);
    pause_write(out, &settings->pauses, node_now(node));
    out_text(out, "}");
}

/* A page has the first names after the cursor, in order of their bytes. The walk comes by the namespaces in no order, so the
 * smallest names so far are kept, and the largest of them gives way to a smaller one. */
struct listing {
    struct space_walk walk;
    struct call *call;
    size_t count;
    fl_bytes prefix, contains, after;
    char prefix_room[FL_STORE_NAME_MAX], contains_room[FL_STORE_NAME_MAX], after_room[FL_STORE_NAME_MAX];
    uint64_t limit;
    bool more;
    struct kept {
        unsigned char size;
        char name[FL_STORE_NAME_MAX];
    } * rooms, **kept; /* `limit` of them; `count` are in use, in order */
};

static int compare(fl_bytes a, fl_bytes b)
{
    int r = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return r != 0 ? r : (a.size > b.size) - (a.size < b.size);
}

static bool matches(const struct listing *listing, fl_bytes name)
{
    fl_bytes prefix = listing->prefix, contains = listing->contains;
    return (prefix.size == 0 || (name.size >= prefix.size && memcmp(name.data, prefix.data, prefix.size) == 0)) &&
           (contains.size == 0 || memmem(name.data, name.size, contains.data, contains.size)) &&
           (listing->after.size == 0 || compare(name, listing->after) > 0);
}

static void keep(struct listing *listing, fl_bytes name)
{
    size_t at = listing->count, low = 0;
    while (low < at) {
        size_t middle = low + (at - low) / 2;
        const struct kept *kept = listing->kept[middle];
        if (compare((fl_bytes){kept->name, kept->size}, name) < 0)
            low = middle + 1;
        else
            at = middle;
    }
    listing->more = listing->more || listing->count == listing->limit;
    if (at == listing->limit)
        return;
    if (listing->count < listing->limit)
        listing->kept[listing->count] = &listing->rooms[listing->count];
    else
        listing->count--;
    struct kept *room = listing->kept[listing->count];
    memmove(listing->kept + at + 1, listing->kept + at, (listing->count - at) * sizeof(struct kept *));
    listing->kept[at] = room;
    listing->count++;
    room->size = (unsigned char)name.size;
    memcpy(room->name, name.data, name.size);
}

static void list_visit(struct space_walk *walk, struct space *space)
{
    struct listing *listing = (struct listing *)walk;
    if (space_exists(space) && call_may(listing->call, RIGHT_READ, space_name(space)) &&
        matches(listing, space_name(space)))
        keep(listing, space_name(space));
}

static void listing_free(struct listing *listing)
{
    free(listing->rooms);
    free(listing->kept);
    free(listing);
}

static void write_kept(struct listing *listing)
{
    struct out *out = &listing->call->out;
    for (size_t i = 0; i < listing->count; i++) {
        if (out->size >= LIST_BYTES) {
            listing->count = i;
            listing->more = true;
            return;
        }
        fl_bytes name = {listing->kept[i]->name, listing->kept[i]->size};
        struct space *space = space_if_any(listing->call->worker->node, name);
        struct space gone = {.name = listing->kept[i]->name, .size = name.size, .settings = &no_settings};
        if (i > 0)
            out_put(out, ",", 1);
        write_space(out, listing->call->worker->node, space ? space : &gone);
    }
}

static void list_done(struct space_walk *walk)
{
    struct listing *listing = (struct listing *)walk;
    struct call *call = listing->call;
    write_kept(listing);
    out_text(&call->out, "]");
    if (listing->more) {
        const struct kept *last = listing->kept[listing->count - 1];
        cursor_write(call, (fl_bytes){last->name, last->size});
    }
    out_text(&call->out, "}");
    listing_free(listing);
    call_answer(call, 200);
}

static int read_query(struct call *call, struct listing *listing)
{
    static const char *const known[] = {"prefix", "name_contains", "limit", "cursor", NULL};
    if (call_check_query(call, known) < 0 || call_count(call, "limit", LIMIT_MOST, &listing->limit) < 0 ||
        call_query(call, "prefix", listing->prefix_room, FL_STORE_NAME_MAX, &listing->prefix) < 0 ||
        call_query(call, "name_contains", listing->contains_room, FL_STORE_NAME_MAX, &listing->contains) < 0 ||
        cursor_read(call, listing->after_room, FL_STORE_NAME_MAX, &listing->after) < 0)
        return -1;
    listing->rooms = calloc(listing->limit, sizeof *listing->rooms);
    listing->kept = calloc(listing->limit, sizeof(struct kept *));
    return listing->rooms && listing->kept ? 0 : problem_of_result(&call->problem, FL_NO_MEMORY);
}

static void namespaces_answer(void *arg)
{
    struct listing *listing = arg;
    struct call *call = listing->call;
    out_text(&call->out, "{\"namespaces\":[");
    space_walk_begin(&listing->walk, call->worker);
}

void namespaces_get(struct call *call)
{
    struct listing *listing = calloc(1, sizeof *listing);
    if (!listing) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    listing->walk = (struct space_walk){.visit = list_visit, .done = list_done};
    listing->call = call;
    listing->limit = LIMIT;
    if (read_query(call, listing) < 0) {
        listing_free(listing);
        call_refuse(call);
        return;
    }
    servers_gather(call->worker, (fl_bytes){0}, namespaces_answer, listing);
}

/* An unused namespace is answered as if it existed. Reading it does not create it. */
static void namespace_answer(void *arg)
{
    struct call *call = arg;
    struct space unused = {.name = call->ns_room, .size = call->ns.size, .settings = &no_settings};
    struct space *space = space_if_any(call->worker->node, call->ns);
    write_space(&call->out, call->worker->node, space ? space : &unused);
    call_answer(call, 200);
}

void namespace_get(struct call *call)
{
    servers_gather(call->worker, call->ns, namespace_answer, call);
}
