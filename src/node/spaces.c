/* SPDX-License-Identifier: MIT */
/* Namespaces: finding one, how much is in it.
 *
 * A namespace that has been used is there until the process ends; so a pointer to it is good everywhere. */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/internal.h"

int spaces_new(struct node *node)
{
    static _Atomic uint64_t made;
    node->spaces = calloc(1, sizeof *node->spaces);
    if (!node->spaces)
        return FL_NO_MEMORY;
    node->spaces->number = atomic_fetch_add(&made, 1) + 1;
    pthread_rwlock_init(&node->spaces->lock, NULL);
    pthread_mutex_init(&node->spaces->gathering, NULL);
    pthread_mutex_init(&node->spaces->placing, NULL);
    return 0;
}

void spaces_free(struct node *node)
{
    struct spaces *spaces = node->spaces;
    if (!spaces)
        return;
    for (struct space *space = spaces->first, *next; space; space = next) {
        next = space->next;
        for (unsigned w = 0; w < node->worker_count; w++)
            free(space->rings[w]);
        if (atomic_load(&space->settings) != &no_settings)
            settings_free((struct settings *)(uintptr_t)atomic_load(&space->settings));
        free(space->name);
        free(space);
    }
    fl__hash_free(&spaces->by_name);
    pthread_rwlock_destroy(&spaces->lock);
    pthread_mutex_destroy(&spaces->gathering);
    pthread_mutex_destroy(&spaces->placing);
    free(spaces);
    node->spaces = NULL;
}

/* --- Finding ------------------------------------------------------------------------------------------------------ */

static struct space *find(const struct spaces *spaces, fl_bytes ns, uint64_t hash)
{
    for (struct hash_link *link = fl__hash_first(&spaces->by_name, hash); link; link = fl__hash_next(link)) {
        struct space *space = hash_entry(link, struct space, by_name);
        if (space->size == ns.size && memcmp(space->name, ns.data, ns.size) == 0)
            return space;
    }
    return NULL;
}

static void relate(struct space *space, struct space *schedules)
{
    if (space)
        atomic_store_explicit(&space->schedules, schedules, memory_order_relaxed);
}

/* Puts it in the table, without its relations. */
static struct space *insert(struct node *node, fl_bytes ns, uint64_t hash)
{
    struct spaces *spaces = node->spaces;
    struct space *space = calloc(1, sizeof *space + node->worker_count * sizeof(struct stats_ring *));
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
    space->settings = &no_settings;
    fl__hash_insert(&spaces->by_name, &space->by_name, hash);
    *(spaces->last ? &spaces->last->next : &spaces->first) = space;
    spaces->last = space;
    return space;
}

/* A namespace knows the one in which its schedules are kept. That one may be known first, when a shard is claimed: it brings the
 * other, which would not be listed otherwise. From the hash of a long name, the other is found by trying. */
static void relate_new(struct node *node, struct space *space)
{
    const struct spaces *spaces = node->spaces;
    char room[SCHEDULE_NS_ROOM];
    fl_bytes name = space_name(space);
    if (!is_own_namespace(name)) {
        fl_bytes ns = schedule_ns(name, room);
        relate(space, find(spaces, ns, fl__hash_text(ns.data, ns.size)));
        return;
    }
    if (!is_schedule_namespace(name))
        return;
    if (*space->name == '\2') {
        fl_bytes ns = {space->name + 1, space->size - 1};
        struct space *other = find(spaces, ns, fl__hash_text(ns.data, ns.size));
        relate(other ? other : insert(node, ns, fl__hash_text(ns.data, ns.size)), space);
        return;
    }
    for (struct space *other = spaces->first; other; other = other->next)
        if (other->size == FL_STORE_NAME_MAX) {
            fl_bytes ns = schedule_ns(space_name(other), room);
            relate(ns.size == name.size && memcmp(ns.data, name.data, ns.size) == 0 ? other : NULL, space);
        }
}

static struct space *add(struct node *node, fl_bytes ns, uint64_t hash)
{
    struct space *space = insert(node, ns, hash);
    if (space)
        relate_new(node, space);
    return space;
}

struct space *space_if_any(struct node *node, fl_bytes ns)
{
    pthread_rwlock_rdlock(&node->spaces->lock);
    struct space *space = find(node->spaces, ns, fl__hash_text(ns.data, ns.size));
    pthread_rwlock_unlock(&node->spaces->lock);
    return space;
}

/* Most look for the one that they have just looked for. */
struct space *space_of(struct node *node, fl_bytes ns)
{
    static _Thread_local struct space *last;
    static _Thread_local uint64_t last_number;
    struct spaces *spaces = node->spaces;
    if (last && last_number == spaces->number && last->size == ns.size && memcmp(last->name, ns.data, ns.size) == 0)
        return last;
    uint64_t hash = fl__hash_text(ns.data, ns.size);
    pthread_rwlock_rdlock(&spaces->lock);
    struct space *space = find(spaces, ns, hash);
    pthread_rwlock_unlock(&spaces->lock);
    if (!space) {
        pthread_rwlock_wrlock(&spaces->lock);
        space = find(spaces, ns, hash);
        if (!space)
            space = add(node, ns, hash);
        pthread_rwlock_unlock(&spaces->lock);
    }
    last = space;
    last_number = spaces->number;
    return space;
}

/* NULL, or what is wrong with one. */
static const char *space_check(const struct node *node, const struct space *space)
{
    if (atomic_load(&space->pending) < 0 || atomic_load(&space->coming) < 0 || space->counted < 0)
        return "a namespace does not have fewer timers, or places for timers, than none";
    if (node->config.max_timers_per_namespace == 0 && (atomic_load(&space->coming) > 0 || space->counted > 0))
        return "without a limit, no places are counted";
    return pauses_check(node, space);
}

/* Of all workers' engines together, the namespaces have the timers that the shards have. */
const char *spaces_check(const struct node *node)
{
    const struct spaces *spaces = node->spaces;
    int64_t pending = 0;
    size_t known = 0;
    for (const struct space *space = spaces->first; space; space = space->next, known++) {
        const char *wrong = space_check(node, space);
        if (wrong)
            return wrong;
        if (!is_own_namespace(space_name(space)))
            pending += atomic_load(&space->pending);
        if (!space->next && spaces->last != space)
            return "the last namespace is the last one in the list";
    }
    for (uint32_t i = 0; i < node->shard_count; i++)
        pending -= node->shards[i].pending;
    if (known != spaces->by_name.count)
        return "every namespace is in the list and in the table";
    return pending != 0 ? "a timer counts once in its shard and once in its namespace" : NULL;
}

/* --- All of them -------------------------------------------------------------------------------------------------- */

enum { VISITED_AT_ONCE = 1024 };

static void walk_on(fl_loop *loop, void *arg)
{
    struct space_walk *walk = arg;
    struct spaces *spaces = walk->worker->node->spaces;
    pthread_rwlock_rdlock(&spaces->lock);
    for (size_t visited = 0; walk->at && visited < VISITED_AT_ONCE; visited++) {
        fl_bytes name = space_name(walk->at);
        if (walk->schedules ? is_schedule_namespace(name) : !is_own_namespace(name))
            walk->visit(walk, walk->at);
        walk->at = walk->at == walk->last ? NULL : walk->at->next;
    }
    pthread_rwlock_unlock(&spaces->lock);
    if (walk->at)
        fl_loop_post_task(loop, &walk->task);
    else
        walk->done(walk);
}

void space_walk_begin(struct space_walk *walk, struct worker *worker)
{
    struct spaces *spaces = worker->node->spaces;
    walk->worker = worker;
    pthread_rwlock_rdlock(&spaces->lock);
    walk->at = spaces->first;
    walk->last = spaces->last;
    pthread_rwlock_unlock(&spaces->lock);
    walk->task = (fl_loop_task){.fn = walk_on, .arg = walk};
    walk_on(worker->loop, walk);
}

int64_t space_schedules(const struct space *space)
{
    struct space *schedules = atomic_load_explicit(&space->schedules, memory_order_relaxed);
    return schedules ? space_pending(schedules) : 0;
}

bool space_exists(struct space *space)
{
    const struct settings *settings = atomic_load(&space->settings);
    return space_pending(space) > 0 || space_schedules(space) > 0 || !settings_are_default(settings) ||
           settings->pauses.now.since_us > 0;
}

atomic_uint *spaces_series(struct node *node)
{
    return &node->spaces->series;
}

/* --- Places ------------------------------------------------------------------------------------------------------- */

/* Whether there is room for another; then it has a place. */
bool place_take(const struct node *node, struct space *space, struct space **ret_place)
{
    int64_t most = (int64_t)node->config.max_timers_per_namespace;
    if (most == 0)
        return true;
    pthread_mutex_lock(&node->spaces->placing);
    bool room = space_pending(space) + atomic_load(&space->coming) < most;
    if (room) {
        atomic_fetch_add(&space->coming, 1);
        *ret_place = space;
    }
    pthread_mutex_unlock(&node->spaces->placing);
    return room;
}

void place_give(const struct node *node, struct space **place)
{
    if (!*place)
        return;
    pthread_mutex_lock(&node->spaces->placing);
    fl__assert((*place)->counted > 0 || atomic_load(&(*place)->coming) > 0);
    if ((*place)->counted > 0) /* what came of it, or of another, is counted */
        (*place)->counted--;
    else
        atomic_fetch_sub(&(*place)->coming, 1);
    pthread_mutex_unlock(&node->spaces->placing);
    *place = NULL;
}

/* A timer that is new has its place from now on because it is counted: no limit must see it twice, or not at all. */
void space_counted(struct node *node, struct space *space, int64_t more)
{
    if (more != 1 || atomic_load(&space->coming) == 0) {
        atomic_fetch_add_explicit(&space->pending, more, memory_order_relaxed);
        return;
    }
    pthread_mutex_lock(&node->spaces->placing);
    atomic_fetch_add_explicit(&space->pending, 1, memory_order_relaxed);
    if (atomic_load(&space->coming) > 0) {
        atomic_fetch_sub(&space->coming, 1);
        space->counted++;
    }
    pthread_mutex_unlock(&node->spaces->placing);
}

/* --- How much there is elsewhere ---------------------------------------------------------------------------------- */

static void put_count(struct out *out, struct space *space)
{
    fl_bytes name = space_name(space);
    if ((is_own_namespace(name) && !is_schedule_namespace(name)) || atomic_load(&space->pending) == 0)
        return;
    wire_put_bytes(out, name);
    wire_put_signed(out, atomic_load(&space->pending));
}

void spaces_put_counts(struct node *node, fl_bytes ns, struct out *out)
{
    struct spaces *spaces = node->spaces;
    struct space *only = ns.size > 0 ? space_if_any(node, ns) : NULL;
    struct space *schedules = only ? atomic_load(&only->schedules) : NULL;
    if (only)
        put_count(out, only);
    if (schedules)
        put_count(out, schedules);
    if (ns.size > 0)
        return;
    pthread_rwlock_rdlock(&spaces->lock);
    for (struct space *space = spaces->first; space; space = space->next)
        put_count(out, space);
    pthread_rwlock_unlock(&spaces->lock);
}

static void forget_counts(struct node *node, fl_bytes ns)
{
    struct spaces *spaces = node->spaces;
    struct space *only = ns.size > 0 ? space_if_any(node, ns) : NULL;
    struct space *schedules = only ? atomic_load(&only->schedules) : NULL;
    if (only)
        atomic_store_explicit(&only->elsewhere, 0, memory_order_relaxed);
    if (schedules)
        atomic_store_explicit(&schedules->elsewhere, 0, memory_order_relaxed);
    if (ns.size > 0)
        return;
    pthread_rwlock_rdlock(&spaces->lock);
    for (struct space *space = spaces->first; space; space = space->next)
        atomic_store_explicit(&space->elsewhere, 0, memory_order_relaxed);
    pthread_rwlock_unlock(&spaces->lock);
}

void spaces_take_counts(struct node *node, fl_bytes ns, const struct out *answers, size_t count)
{
    pthread_mutex_lock(&node->spaces->gathering);
    forget_counts(node, ns);
    for (size_t i = 0; i < count; i++)
        for (struct wire wire = wire_begin(out_bytes(&answers[i])); wire.at < wire.end;) {
            struct space *space = space_of(node, wire_bytes(&wire));
            int64_t pending = wire_signed(&wire);
            if (space && !wire.bad)
                atomic_fetch_add_explicit(&space->elsewhere, pending, memory_order_relaxed);
        }
    pthread_mutex_unlock(&node->spaces->gathering);
}
