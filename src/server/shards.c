/* SPDX-License-Identifier: MIT */
/* The engines, each on the loop of its worker, and how other workers get at them. */

#include <stdlib.h>
#include <string.h>

#include "server/log.h"
#include "server/server.h"

/* --- Errands ------------------------------------------------------------------------------------------------------ */

static void arrive(fl_loop *loop, void *arg)
{
    struct errand *errand = arg;
    (void)loop;
    errand->go(errand);
}

static void come_home(fl_loop *loop, void *arg)
{
    struct errand *errand = arg;
    (void)loop;
    errand->back(errand);
}

static void post(struct errand *errand, struct worker *to, fl_loop_fn fn)
{
    errand->task = (fl_loop_task){.fn = fn, .arg = errand};
    fl_loop_post_task(to->loop, &errand->task);
}

void errand_send(struct errand *errand)
{
    if (errand->there == errand->home)
        errand->go(errand);
    else
        post(errand, errand->there, arrive);
}

void errand_return(struct errand *errand)
{
    if (errand->there == errand->home)
        errand->back(errand);
    else
        post(errand, errand->home, come_home);
}

static void tour_visit(struct errand *errand)
{
    struct tour *tour = (struct tour *)errand;
    tour->fn(tour, errand->there);
    errand_return(errand);
}

static void tour_go_on(struct errand *errand)
{
    struct tour *tour = (struct tour *)errand;
    struct server *server = tour->home->server;
    if (tour->next == server->worker_count) {
        tour->back(tour);
        return;
    }
    *errand = (struct errand){
        .home = tour->home, .there = &server->workers[tour->next++], .go = tour_visit, .back = tour_go_on};
    errand_send(errand);
}

void tour_begin(struct tour *tour, struct worker *home)
{
    tour->home = home;
    tour->next = 0;
    tour_go_on(&tour->errand);
}

/* --- Jobs and pages ----------------------------------------------------------------------------------------------- */

/* A request can come before there are engines: the server listens first, and claims the store then. */

static void job_done(fl_batch *batch)
{
    struct job *job = batch->arg;
    job->render(job);
    errand_return(&job->errand);
}

static void job_go(struct errand *errand)
{
    struct job *job = (struct job *)errand;
    if (job->shard->engine) {
        fl_engine_submit(job->shard->engine, &job->batch);
        return;
    }
    for (size_t i = 0; i < job->batch.count; i++)
        job->batch.ops[i].result = FL_STORE_UNAVAILABLE;
    job_done(&job->batch);
}

void job_submit(struct job *job)
{
    job->errand.there = job->shard->worker;
    job->errand.go = job_go;
    job->batch.done = job_done;
    job->batch.arg = job;
    errand_send(&job->errand);
}

static void page_done(fl_listing *listing)
{
    struct page *page = listing->arg;
    page->render(page);
    errand_return(&page->errand);
}

static void page_go(struct errand *errand)
{
    struct page *page = (struct page *)errand;
    if (page->shard->engine) {
        fl_engine_list(page->shard->engine, &page->listing);
        return;
    }
    page->listing.result = FL_STORE_UNAVAILABLE;
    page_done(&page->listing);
}

void page_submit(struct page *page)
{
    page->errand.there = page->shard->worker;
    page->errand.go = page_go;
    page->listing.done = page_done;
    page->listing.arg = page;
    errand_send(&page->errand);
}

/* --- Which shard -------------------------------------------------------------------------------------------------- */

struct shard *shard_of_name(struct server *server, fl_bytes ns, fl_bytes name)
{
    return &server->shards[fl_store_shard_of(server->shard_count, ns, name)];
}

/* One of its own if it has any: then nobody else is involved. Always the same for a while, so that what comes together is
 * committed together. */
struct shard *shard_of_worker(struct worker *worker)
{
    struct server *server = worker->server;
    uint32_t own =
        worker->index < server->shard_count ? (server->shard_count - worker->index - 1) / server->worker_count + 1 : 0;
    uint32_t turn = worker->turn++ >> 8;
    if (own == 0)
        return &server->shards[turn % server->shard_count];
    return &server->shards[worker->index + turn % own * server->worker_count];
}

/* --- Engines ------------------------------------------------------------------------------------------------------ */

static void dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    (void)engine;
    deliver(arg, firings, count);
}

static void ended(void *arg, fl_engine *engine, const fl_durable *timer, enum fl_ended how, fl_bytes reason)
{
    struct shard *shard = arg;
    struct space *space = space_of(shard->worker->server, timer->ns);
    (void)engine;
    if (space) {
        atomic_fetch_sub_explicit(&space->pending, 1, memory_order_relaxed);
        if (how == FL_ENDED_DEAD)
            atomic_fetch_add_explicit(&space->dead, 1, memory_order_relaxed);
    }
    event_tell(shard->worker, how == FL_ENDED_DEAD ? EVENT_DEAD : EVENT_SKIPPED, shard->number, timer, reason);
}

/* Once a second is enough: every request may run into it. */
static void tell_trouble(struct shard *shard, const char *message)
{
    uint64_t now_ns = fl_loop_now_ns(shard->worker->loop);
    if (shard->trouble_ns > 0 && now_ns - shard->trouble_ns < 1000000000)
        return;
    shard->trouble_ns = now_ns;
    log_error("the store is in trouble, and is asked again", "shard", log_int(shard->number), "why", message, NULL);
}

static void notify(void *arg, fl_engine *engine, enum fl_engine_event event, int result, const char *message)
{
    struct shard *shard = arg;
    struct server *server = shard->worker->server;
    (void)engine, (void)result;
    bool ready = event == FL_ENGINE_READY;
    if (ready != shard->ready && (ready || event == FL_ENGINE_LOST)) {
        shard->ready = ready;
        atomic_fetch_add(&server->ready, ready ? 1 : -1u);
    }
    switch (event) {
    case FL_ENGINE_READY:
        log_debug("shard is ready", "shard", log_int(shard->number), NULL);
        break;
    case FL_ENGINE_LOST:
        log_error("another server has taken a shard over: nothing of it fires here any more", "shard",
                  log_int(shard->number), NULL);
        break;
    case FL_ENGINE_HELD:
        log_warning("waiting for a shard that another server holds", "shard", log_int(shard->number), "why", message,
                    NULL);
        break;
    case FL_ENGINE_TROUBLE:
        tell_trouble(shard, message);
        break;
    }
}

int shards_start(struct worker *worker)
{
    struct server *server = worker->server;
    for (uint32_t i = worker->index; i < server->shard_count; i += server->worker_count) {
        struct shard *shard = &server->shards[i];
        fl_engine_config config = server->config.engine;
        config.loop = worker->loop;
        config.store = server->store;
        config.owner = server->config.owner;
        config.dispatch = dispatch;
        config.notify = notify;
        config.ended = ended;
        config.arg = shard;
        config.shard = i;
        config.clock = server->clock;
        int r = fl_engine_start(&config, &shard->engine);
        if (r < 0) {
            log_error("cannot start the engine of a shard", "shard", log_int(i), "why", fl_strerror(r), NULL);
            return r;
        }
    }
    return 0;
}

struct stopping {
    struct worker *worker;
    unsigned left;
    void (*done)(struct worker *worker);
};

static void engine_stopped(fl_loop *loop, void *arg)
{
    struct stopping *stopping = arg;
    (void)loop;
    if (--stopping->left > 0)
        return;
    stopping->done(stopping->worker);
    free(stopping);
}

void shards_stop(struct worker *worker, void (*done)(struct worker *worker))
{
    struct server *server = worker->server;
    struct stopping *stopping = calloc(1, sizeof *stopping);
    if (!stopping)
        abort(); /* what it has settled since its last record comes again */
    *stopping = (struct stopping){worker, 1, done};
    for (uint32_t i = worker->index; i < server->shard_count; i += server->worker_count)
        if (server->shards[i].engine) {
            stopping->left++;
            fl_engine_stop(server->shards[i].engine, false, engine_stopped, stopping);
            server->shards[i].engine = NULL;
        }
    engine_stopped(worker->loop, stopping);
}
