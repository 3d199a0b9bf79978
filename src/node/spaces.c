/* SPDX-License-Identifier: MIT */
/* Namespaces: finding one, how much is in it, what users ask about it.
 *
 * A namespace that has been used is there until the process ends; so a pointer to it is good everywhere. */

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "text/json.h"
#include "text/log.h"
#include "node/spaces.h"
#include "node/wire.h"

int spaces_new(struct server *server)
{
    server->spaces = calloc(1, sizeof *server->spaces);
    if (!server->spaces)
        return FL_NO_MEMORY;
    pthread_rwlock_init(&server->spaces->lock, NULL);
    pthread_mutex_init(&server->spaces->gathering, NULL);
    pthread_mutex_init(&server->spaces->placing, NULL);
    return 0;
}

void spaces_free(struct server *server)
{
    struct spaces *spaces = server->spaces;
    if (!spaces)
        return;
    for (size_t i = 0; i < SPACE_BUCKETS; i++)
        for (struct space *space = spaces->buckets[i], *next; space; space = next) {
            next = space->next;
            free(space->name);
            free(space);
        }
    for (struct kept *kept = spaces->kept, *next; kept; kept = next) {
        next = kept->next;
        settings_free(kept->settings);
        free(kept);
    }
    pthread_rwlock_destroy(&spaces->lock);
    pthread_mutex_destroy(&spaces->gathering);
    pthread_mutex_destroy(&spaces->placing);
    free(spaces);
    server->spaces = NULL;
}

/* --- Finding ------------------------------------------------------------------------------------------------------ */

static uint64_t hash_of(fl_bytes ns)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < ns.size; i++)
        hash = (hash ^ ((const unsigned char *)ns.data)[i]) * 0x100000001b3;
    return hash ^ hash >> 29;
}

static struct space *find(struct spaces *spaces, fl_bytes ns, uint64_t hash)
{
    for (struct space *space = spaces->buckets[hash % SPACE_BUCKETS]; space; space = space->next)
        if (space->hash == hash && space->size == ns.size && memcmp(space->name, ns.data, ns.size) == 0)
            return space;
    return NULL;
}

static struct space *add(struct spaces *spaces, fl_bytes ns, uint64_t hash)
{
    struct space *space = calloc(1, sizeof *space);
    char *name = malloc(ns.size + 1);
    if (!space || !name) {
        free(space);
        free(name);
        return NULL;
    }
    memcpy(name, ns.data, ns.size);
    name[ns.size] = '\0';
    space->name = name;
    space->size = ns.size;
    space->hash = hash;
    space->settings = &no_settings;
    space->next = spaces->buckets[hash % SPACE_BUCKETS];
    spaces->buckets[hash % SPACE_BUCKETS] = space;
    return space;
}

struct space *space_if_any(struct server *server, fl_bytes ns)
{
    pthread_rwlock_rdlock(&server->spaces->lock);
    struct space *space = find(server->spaces, ns, hash_of(ns));
    pthread_rwlock_unlock(&server->spaces->lock);
    return space;
}

/* Most look for the one that they have just looked for. */
struct space *space_of(struct server *server, fl_bytes ns)
{
    static _Thread_local struct space *last;
    static _Thread_local const struct server *last_server;
    struct spaces *spaces = server->spaces;
    if (last && last_server == server && last->size == ns.size && memcmp(last->name, ns.data, ns.size) == 0)
        return last;
    uint64_t hash = hash_of(ns);
    pthread_rwlock_rdlock(&spaces->lock);
    struct space *space = find(spaces, ns, hash);
    pthread_rwlock_unlock(&spaces->lock);
    if (!space) {
        pthread_rwlock_wrlock(&spaces->lock);
        space = find(spaces, ns, hash);
        if (!space)
            space = add(spaces, ns, hash);
        pthread_rwlock_unlock(&spaces->lock);
    }
    last = space;
    last_server = server;
    return space;
}

/* --- All of them -------------------------------------------------------------------------------------------------- */

enum { VISITED_AT_ONCE = 1024 };

static void walk_on(fl_loop *loop, void *arg)
{
    struct space_walk *walk = arg;
    struct spaces *spaces = walk->worker->server->spaces;
    size_t visited = 0;
    pthread_rwlock_rdlock(&spaces->lock);
    for (; walk->bucket < SPACE_BUCKETS && visited < VISITED_AT_ONCE; walk->bucket++) {
        visited++;
        for (struct space *space = spaces->buckets[walk->bucket]; space; space = space->next, visited++)
            if (!is_own_namespace((fl_bytes){space->name, space->size}))
                walk->visit(walk, space);
    }
    pthread_rwlock_unlock(&spaces->lock);
    if (walk->bucket < SPACE_BUCKETS)
        fl_loop_post_task(loop, &walk->task);
    else
        walk->done(walk);
}

void space_walk_begin(struct space_walk *walk, struct worker *worker)
{
    walk->worker = worker;
    walk->bucket = 0;
    walk->task = (fl_loop_task){.fn = walk_on, .arg = walk};
    walk_on(worker->loop, walk);
}

bool space_exists(struct space *space)
{
    return space_pending(space) > 0 || atomic_load(&space->settings) != &no_settings;
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

static void write_space(struct out *out, struct space *space)
{
    out_text(out, "{\"namespace\":");
    out_string(out, (fl_bytes){space->name, space->size});
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
    if (!space_exists(space) || !call_may(listing->call, RIGHT_READ, (fl_bytes){space->name, space->size}))
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
    struct space *space = space_if_any(call->worker->server, call->ns);
    write_space(&call->out, space ? space : &unused);
    call_answer(call, 200);
}

void namespace_get(struct call *call)
{
    servers_gather(call->worker, call->ns, namespace_answer, call);
}

/* --- How much there is elsewhere ---------------------------------------------------------------------------------- */

static void put_count(struct out *out, struct space *space)
{
    wire_put_bytes(out, (fl_bytes){space->name, space->size});
    wire_put_signed(out, atomic_load(&space->pending));
}

void spaces_put_counts(struct server *server, fl_bytes ns, struct out *out)
{
    struct spaces *spaces = server->spaces;
    pthread_rwlock_rdlock(&spaces->lock);
    for (size_t i = 0; i < SPACE_BUCKETS; i++)
        for (struct space *space = spaces->buckets[i]; space; space = space->next) {
            fl_bytes name = {space->name, space->size};
            if (!is_own_namespace(name) &&
                (ns.size == 0 || (ns.size == name.size && memcmp(ns.data, name.data, ns.size) == 0)))
                put_count(out, space);
        }
    pthread_rwlock_unlock(&spaces->lock);
}

static void forget_counts(struct server *server, fl_bytes ns)
{
    struct spaces *spaces = server->spaces;
    struct space *only = ns.size > 0 ? space_if_any(server, ns) : NULL;
    if (only)
        atomic_store_explicit(&only->elsewhere, 0, memory_order_relaxed);
    if (ns.size > 0)
        return;
    pthread_rwlock_rdlock(&spaces->lock);
    for (size_t i = 0; i < SPACE_BUCKETS; i++)
        for (struct space *space = spaces->buckets[i]; space; space = space->next)
            atomic_store_explicit(&space->elsewhere, 0, memory_order_relaxed);
    pthread_rwlock_unlock(&spaces->lock);
}

void spaces_take_counts(struct server *server, fl_bytes ns, const struct out *answers, size_t count)
{
    pthread_mutex_lock(&server->spaces->gathering);
    forget_counts(server, ns);
    for (size_t i = 0; i < count; i++)
        for (struct wire wire = wire_begin(out_bytes(&answers[i])); wire.at < wire.end;) {
            struct space *space = space_of(server, wire_bytes(&wire));
            int64_t pending = wire_signed(&wire);
            if (space && !wire.bad)
                atomic_fetch_add_explicit(&space->elsewhere, pending, memory_order_relaxed);
        }
    pthread_mutex_unlock(&server->spaces->gathering);
}
