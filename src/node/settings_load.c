/* SPDX-License-Identifier: MIT */
/* Reading the settings of all namespaces, before anything fires: those of a shard when it is claimed, and those of all shards
 * when the server starts, when a link is up again, and when the database may have gone back to an earlier state. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "node/internal.h"
#include "text/log.h"

#define AGAIN_NS (100 * 1000000ull)

enum { PAGE = 1000 };

/* A server that stops waits for it. False: there is no memory. */
static bool submit_later(const struct shard_call *page, fl_loop_fn again, void *arg)
{
    struct worker *home = page->errand.home;
    bool planned = fl_loop_timer(home->loop, AGAIN_NS, again, arg, NULL) == 0;
    home->under_way += planned;
    return planned;
}

/* --- Of one shard ------------------------------------------------------------------------------------------------- */

static void load_render(struct shard_call *page)
{
    for (size_t i = 0; i < page->listing.count; i++)
        settings_take(page->shard->worker, &page->listing.found[i].timer);
}

static void load_again(fl_loop *loop, void *arg)
{
    struct shard_call *page = arg;
    struct shard *shard = page->shard;
    (void)loop;
    page->errand.home->under_way--;
    if (shard->loading == page)
        shard_call_submit(page);
    else
        free(page); /* the shard has left, and perhaps come back */
}

static void loaded(struct shard_call *over)
{
    struct shard_call *page = (struct shard_call *)over;
    struct shard *shard = page->shard;
    bool failed = page->result == LINK_MOVED || page->listing.result < 0;
    if (shard->loading != page || !shard_is_here(shard)) {
        free(page);
        return;
    }
    if (failed && submit_later(page, load_again, page))
        return;
    if (!failed && page->listing.more) {
        shard_call_submit(page);
        return;
    }
    if (failed)
        log_error("cannot read the settings of the namespaces of a shard", "shard", log_int(shard->number), NULL);
    free(page);
    shard_loaded(shard);
}

void settings_of_shard(struct shard *shard)
{
    struct shard_call *page = calloc(1, sizeof *page);
    if (!page) {
        shard_loaded(shard);
        return;
    }
    page->errand.home = shard->worker;
    page->local = true;
    page->kind = CALL_PAGE;
    page->done = loaded;
    page->render = load_render;
    page->shard = shard;
    page->listing.ns = SETTINGS_NAMESPACE;
    page->listing.from_us = FL_STORE_TIME_END - 1;
    page->listing.limit = PAGE;
    shard->loading = page;
    shard_call_submit(page);
}

/* --- Of all ------------------------------------------------------------------------------------------------------- */

/* One at a time, on the first worker. Its memory is there from the beginning: a server that could not read the settings would
 * have to stop. */
struct loading {
    struct shard_call page;
    struct tour tour; /* lets the engines go */
    void (*done)(struct worker *worker);
    uint64_t number;  /* of this load */
    bool busy, again; /* it goes on; and begins anew then */
    bool second;      /* the first one took long, and was asked for again meanwhile */
    bool troubled;    /* the log says that the settings cannot be read yet */
};

int loading_new(struct node *node)
{
    node->loading = calloc(1, sizeof *node->loading);
    return node->loading ? 0 : FL_NO_MEMORY;
}

static void all_render(struct shard_call *page)
{
    struct worker *here = page->peer ? page->errand.home : page->shard->worker;
    for (size_t i = 0; i < page->listing.count; i++)
        settings_take(here, &page->listing.found[i].timer);
}

static void let_go(struct tour *tour, struct worker *worker)
{
    struct node *node = worker->node;
    (void)tour;
    for (uint32_t i = worker->index; i < node->shard_count; i += node->worker_count)
        if (node->shards[i].engine)
            shard_let_go(&node->shards[i]);
}

static void all_let_go(struct tour *tour)
{
    struct loading *loading = (struct loading *)((char *)tour - offsetof(struct loading, tour));
    bool again = loading->again;
    fl__assert(loading->busy);
    loading->busy = loading->again = false;
    if (again && !atomic_load(&tour->home->node->stopping))
        settings_load(tour->home, NULL);
}

/* Settings that were known and were not among those that have been read may have been removed: their rows are looked at. */
static void look_for_removed(struct node *node, uint64_t number)
{
    struct spaces *spaces = node->spaces;
    pthread_rwlock_rdlock(&spaces->lock);
    for (struct space *space = spaces->first; space; space = space->next)
        if (atomic_load(&space->load) < number && atomic_load(&space->settings) != &no_settings)
            settings_reload(node, space);
    pthread_rwlock_unlock(&spaces->lock);
}

static void all_loaded(struct shard_call *over);

static void all_again(fl_loop *loop, void *arg)
{
    struct loading *loading = arg;
    struct worker *home = loading->page.errand.home;
    (void)loop;
    home->under_way--;
    if (atomic_load(&home->node->stopping))
        all_loaded(&loading->page);
    else
        shard_call_submit(&loading->page);
}

/* Logged when it begins and when it ends: until the settings are known, nothing fires here. */
static void tell_trouble(struct loading *loading)
{
    const struct shard *shard = loading->page.shard;
    const struct peer *peer = atomic_load(&shard->peer);
    char why[HINDRANCE_ROOM];
    snprintf(why, sizeof why,
             "the settings of namespaces in shard %" PRIu32 " cannot be read, and no timer fires here until they are; "
             "see that %s%.200s is up and ready",
             shard->number, peer ? "its server " : "a server for it", peer ? peer->address : "");
    node_hindered(shard->worker->node, HINDERED_BY_SETTINGS, why);
    if (!loading->troubled)
        log_warning("cannot read the settings of namespaces yet; trying again, and nothing fires here until then",
                    "shard", log_int(shard->number), "server", peer ? peer->address : "none", NULL);
    loading->troubled = true;
}

static void tell_end(struct loading *loading)
{
    if (!loading->troubled)
        return;
    loading->troubled = false;
    node_hindered(loading->page.shard->worker->node, HINDERED_BY_SETTINGS, "");
    log_info("the settings of namespaces have been read", NULL);
}

static void load_begin(struct worker *worker, struct loading loading)
{
    struct loading *all = worker->node->loading;
    loading.busy = true;
    loading.number = atomic_fetch_add(&worker->node->spaces->loads, 1) + 1;
    *all = loading;
    all->page.errand.home = worker;
    all->page.kind = CALL_PAGE;
    all->page.done = all_loaded;
    all->page.render = all_render;
    all->page.shard = worker->node->shards;
    all->page.listing.ns = SETTINGS_NAMESPACE;
    all->page.listing.from_us = FL_STORE_TIME_END - 1;
    all->page.listing.limit = PAGE;
    shard_call_submit(&all->page);
}

/* The first load waits for the shard owners, perhaps for long. If a change may have been missed meanwhile, the pages that were read
 * first are read once more before anything fires. */
static bool read_twice(const struct loading *loading, const struct node *node)
{
    return loading->again && !loading->second && !atomic_load(&node->settings_known) && !atomic_load(&node->stopping);
}

static void all_loaded(struct shard_call *over)
{
    struct loading *loading = (struct loading *)over;
    struct worker *worker = over->errand.home;
    struct node *node = worker->node;
    fl_listing *listing = &loading->page.listing;
    fl__assert(loading->busy && worker->index == 0);
    if (listing->result < 0 && !atomic_load(&node->stopping) && submit_later(&loading->page, all_again, loading)) {
        if (!atomic_load(&node->settings_known))
            tell_trouble(loading);
        return;
    }
    if (listing->result == 0 && !listing->more && loading->page.shard->number + 1 < node->shard_count) {
        loading->page.shard++;
        listing->cursor = (fl_cursor){{0}};
        listing->more = true;
    }
    if (listing->result == 0 && listing->more) {
        shard_call_submit(&loading->page);
        return;
    }
    if (listing->result == 0)
        look_for_removed(node, loading->number);
    if (read_twice(loading, node)) {
        load_begin(worker, (struct loading){.done = loading->done, .second = true, .troubled = loading->troubled});
        return;
    }
    if (loading->done)
        loading->done(worker);
    if (listing->result < 0 && atomic_load(&node->stopping)) {
        loading->busy = false;
        return;
    }
    tell_end(loading);
    atomic_store(&node->settings_known, true);
    loading->tour = (struct tour){.fn = let_go, .back = all_let_go};
    tour_begin(&loading->tour, worker);
}

/* Nothing fires before this is over: what was missed may be to be skipped. */
void settings_load(struct worker *worker, void (*done)(struct worker *worker))
{
    struct loading *loading = worker->node->loading;
    fl__assert(worker->index == 0 && (!loading->busy || !done));
    if (loading->busy) {
        loading->again = true;
        return;
    }
    load_begin(worker, (struct loading){.done = done});
}

static void load_missed(fl_loop *loop, void *arg)
{
    struct node *node = arg;
    (void)loop;
    if (!atomic_load(&node->stopping) && (atomic_load(&node->settings_known) || node->loading->busy))
        settings_load(&node->workers[0], NULL);
}

void settings_load_missed(struct node *node)
{
    fl_loop_post(node->workers[0].loop, load_missed, node);
}

static void load_here(fl_loop *loop, void *arg)
{
    struct node *node = arg;
    (void)loop;
    atomic_store(&node->settings_asked, false);
    atomic_store(&node->settings_old, false);
    if (atomic_load(&node->stopping))
        return;
    settings_load(&node->workers[0], NULL);
    servers_tell_settings(&node->workers[0], (fl_bytes){"", 0}); /* a server that has lost no shard knows of nothing */
}

/* The database may have gone back to an earlier state, and the settings with it. */
void settings_load_again(struct node *node)
{
    if (!atomic_load(&node->settings_known) || !atomic_load(&node->settings_old) ||
        atomic_exchange(&node->settings_asked, true))
        return;
    node->settings_task = (fl_loop_task){.fn = load_here, .arg = node};
    fl_loop_post_task(node->workers[0].loop, &node->settings_task);
}
