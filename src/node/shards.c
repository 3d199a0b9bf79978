/* SPDX-License-Identifier: MIT */
/* The engines, each on the loop of its worker, and how other workers get at them. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/budget.h"
#include "text/log.h"
#include "node/server.h"

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
        tour->home->under_way--;
        tour->back(tour);
        return;
    }
    *errand = (struct errand){
        .home = tour->home, .there = &server->workers[tour->next++], .go = tour_visit, .back = tour_go_on};
    errand_send(errand);
}

void tour_begin(struct tour *tour, struct worker *home)
{
    home->under_way++;
    tour->home = home;
    tour->next = 0;
    tour_go_on(&tour->errand);
}

/* --- Jobs and pages ----------------------------------------------------------------------------------------------- */

/* A shard can be nobody's for a while: before the server has claimed it (it listens first), and while it moves from one
 * server to another. What comes meanwhile waits at home, and tries again. If the shard moves in order, or this server has yet to
 * learn who has it, that is worth waiting for; if its owner does not answer, it takes longer than anybody would wait. */
#define WAIT_NS 1000000000ull
#define WAIT_LONG_NS (5 * 1000000000ull)
#define AGAIN_NS (20 * 1000000ull)

static bool may_wait(const struct shard *shard, const struct worker *worker, uint64_t since_ns)
{
    const struct server *server = worker->server;
    bool moves = atomic_load_explicit(&shard->moving, memory_order_relaxed) ||
                 (server->cluster && !atomic_load_explicit(&server->settings_known, memory_order_relaxed));
    return fl_loop_now_ns(worker->loop) - since_ns < (moves ? WAIT_LONG_NS : WAIT_NS);
}

/* Whether the shard is here and takes work; if it is leaving, the errand is kept until it has left. */
static bool takes_work(struct shard *shard, struct errand *errand)
{
    if (!shard->engine)
        return false;
    if (!shard->leaving)
        return true;
    errand->next = NULL;
    if (shard->kept)
        shard->kept_last->next = errand;
    else
        shard->kept = errand;
    shard->kept_last = errand;
    return true;
}

static void left_inside(struct shard *shard)
{
    shard->inside--;
    if (shard->leaving)
        shard_leave_on(shard);
}

/* Whether the engine was stopped before it began anything of it. */
static bool was_stopped(const fl_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->ops[i].result != FL_STOPPED)
            return false;
    return true;
}

static void job_done(fl_batch *batch)
{
    struct job *job = batch->arg;
    struct shard *shard = job->shard;
    job->moved = shard->leaving && was_stopped(batch);
    for (size_t i = 0; i < batch->count && !job->moved; i++)
        timers_tell(shard, &batch->ops[i], job->places ? &job->places[i] : NULL);
    if (!job->moved)
        job->render(job);
    errand_return(&job->errand);
    left_inside(shard);
}

static void job_go(struct errand *errand)
{
    struct job *job = (struct job *)errand;
    struct shard *shard = job->shard;
    if (!takes_work(shard, errand)) {
        job->moved = true;
        errand_return(errand);
    } else if (!shard->leaving) {
        shard->inside++;
        fl_engine_submit(shard->engine, &job->batch);
    }
}

static void job_route(struct job *job)
{
    struct peer *peer = job->local ? NULL : atomic_load_explicit(&job->shard->peer, memory_order_acquire);
    job->moved = false;
    job->routed_ns = fl_loop_now_ns(job->errand.home->loop);
    job->errand.there = job->shard->worker;
    if (peer)
        job_forward(job, peer);
    else
        errand_send(&job->errand);
}

void job_fail(struct job *job, int result)
{
    for (size_t i = 0; i < job->batch.count; i++)
        job->batch.ops[i].result = result;
    job->render(job);
}

static void job_end(struct job *job)
{
    job->errand.home->under_way--;
    job->back(&job->errand);
}

/* Jobs of one worker for a shard that is nobody's just now. They stay in the order in which they were submitted, though they
 * may have been tried in different places: the first is tried alone, and when it has got through the others follow. */
struct waiting {
    struct job *first;
    struct job *tried; /* on its way; NULL: none */
    bool planned;      /* the first will be tried soon */
};

static struct waiting *waiting_with(const struct job *job)
{
    return &job->errand.home->waiting[job->shard->number];
}

static void wait_in_line(struct waiting *waiting, struct job *job)
{
    struct job **at = &waiting->first;
    while (*at && (*at)->number < job->number)
        at = &(*at)->next;
    job->next = *at;
    *at = job;
}

static void try_first(fl_loop *loop, void *arg)
{
    struct waiting *waiting = arg;
    struct job *job = waiting->first;
    (void)loop;
    waiting->first = job->next;
    waiting->planned = false;
    waiting->tried = job;
    job_route(job);
}

static void let_follow(struct waiting *waiting)
{
    struct job *job = waiting->first;
    waiting->first = NULL;
    for (struct job *next; job; job = next) {
        next = job->next;
        job_route(job);
    }
}

/* Those who have waited long enough are told no. Without memory to try again, everybody is. */
static void try_again(struct waiting *waiting, struct worker *worker)
{
    bool planned = waiting->planned || waiting->tried;
    for (struct job *job; (job = waiting->first) != NULL;) {
        if (may_wait(job->shard, worker, job->since_ns)) {
            if (!planned && fl_loop_timer(worker->loop, AGAIN_NS, try_first, waiting, NULL) == 0)
                waiting->planned = planned = true;
            if (planned)
                return;
        }
        waiting->first = job->next;
        job_fail(job, FL_STORE_UNAVAILABLE);
        job_end(job);
    }
}

void job_return(struct job *job)
{
    if (job->local) {
        job_end(job);
        return;
    }
    struct waiting *waiting = waiting_with(job);
    bool tried = waiting->tried == job;
    if (tried)
        waiting->tried = NULL;
    if (job->moved) {
        job->since_ns += fl_loop_now_ns(job->errand.home->loop) - job->routed_ns;
        wait_in_line(waiting, job);
        try_again(waiting, job->errand.home);
        return;
    }
    if (tried)
        let_follow(waiting);
    job_end(job);
}

static void job_home(struct errand *errand)
{
    job_return((struct job *)errand);
}

static void job_prepare(struct job *job)
{
    job->errand.home->under_way++;
    job->errand.go = job_go;
    job->errand.back = job_home;
    job->batch.done = job_done;
    job->batch.arg = job;
}

void job_submit_inside(struct job *job)
{
    job_prepare(job);
    job->local = true;
    job->errand.there = job->errand.home;
    job->shard->inside++;
    fl_engine_submit(job->shard->engine, &job->batch);
}

void job_submit(struct job *job)
{
    job_prepare(job);
    job->since_ns = fl_loop_now_ns(job->errand.home->loop);
    job->number = job->errand.home->jobs++;
    struct waiting *waiting = job->local ? NULL : waiting_with(job);
    if (waiting && (waiting->first || waiting->tried))
        wait_in_line(waiting, job);
    else
        job_route(job);
}

static void page_done(fl_listing *listing)
{
    struct page *page = listing->arg;
    struct shard *shard = page->shard;
    page->moved = shard->leaving && listing->result == FL_STOPPED;
    if (!page->moved)
        page->render(page);
    errand_return(&page->errand);
    left_inside(shard);
}

static void page_go(struct errand *errand)
{
    struct page *page = (struct page *)errand;
    struct shard *shard = page->shard;
    if (!takes_work(shard, errand)) {
        page->moved = true;
        errand_return(errand);
    } else if (!shard->leaving) {
        shard->inside++;
        fl_engine_list(shard->engine, &page->listing);
    }
}

static void page_route(struct page *page)
{
    struct peer *peer = page->local ? NULL : atomic_load_explicit(&page->shard->peer, memory_order_acquire);
    page->moved = false;
    page->routed_ns = fl_loop_now_ns(page->errand.home->loop);
    page->errand.there = page->shard->worker;
    if (peer)
        page_forward(page, peer);
    else
        errand_send(&page->errand);
}

static void page_again(fl_loop *loop, void *arg)
{
    (void)loop;
    page_route(arg);
}

void page_return(struct page *page)
{
    fl_loop *loop = page->errand.home->loop;
    if (page->moved && !page->local) {
        page->since_ns += fl_loop_now_ns(loop) - page->routed_ns;
        if (may_wait(page->shard, page->errand.home, page->since_ns) &&
            fl_loop_timer(loop, AGAIN_NS, page_again, page, NULL) == 0)
            return;
        page->listing.result = FL_STORE_UNAVAILABLE;
        page->listing.count = 0;
        page->render(page);
    }
    page->errand.home->under_way--;
    page->back(&page->errand);
}

static void page_home(struct errand *errand)
{
    page_return((struct page *)errand);
}

void page_submit(struct page *page)
{
    page->errand.home->under_way++;
    page->errand.go = page_go;
    page->errand.back = page_home;
    page->listing.done = page_done;
    page->listing.arg = page;
    page->since_ns = fl_loop_now_ns(page->errand.home->loop);
    page_route(page);
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
    for (uint32_t i = 0; i < own; i++) {
        struct shard *shard = &server->shards[worker->index + (turn + i) % own * server->worker_count];
        if (shard->engine && !shard->leaving)
            return shard;
    }
    return &server->shards[turn % server->shard_count];
}

/* --- Engines ------------------------------------------------------------------------------------------------------ */

static void dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    struct shard *shard = arg;
    (void)engine;
    if (!shard->leaving) /* else it is not settled, and the next owner fires it */
        deliver(shard, firings, count);
}

static bool withdraw(void *arg, fl_engine *engine, uint64_t token, void *handle)
{
    const struct shard *shard = arg;
    struct waiter *waiter = handle;
    (void)engine, (void)token;
    /* Of a shard that is given up, what waits is forgotten, and the engine is not told. */
    bool forgotten = shard->leaving || atomic_load(&shard->worker->server->stopping);
    return !forgotten && waiter->withdraw(waiter);
}

static void ended(void *arg, fl_engine *engine, const fl_durable *timer, enum fl_ended how, fl_bytes reason)
{
    struct shard *shard = arg;
    struct space *space = space_of(shard->worker->server, timer->ns);
    (void)engine;
    if (space && how == FL_ENDED_DEAD)
        atomic_fetch_add_explicit(&space->dead, 1, memory_order_relaxed);
    event_tell(shard->worker, how == FL_ENDED_DEAD ? EVENT_DEAD : EVENT_SKIPPED, shard->number, timer, reason);
    if (how == FL_ENDED_DEAD)
        attempts_log(shard->worker, true, shard->number, timer, reason);
}

static void look_whether_ready(struct shard *shard)
{
    bool ready = shard->claimed && shard->loaded && !shard->leaving && !shard->lost && !shard->lapsed;
    if (ready != shard->ready)
        atomic_fetch_add(&shard->worker->server->ready, ready ? 1 : -1u);
    shard->ready = ready;
}

#define DATABASE_AWAY "the database has not responded for longer than lease; timers do not fire until it responds"

/* The claim may have run out, since it could not be renewed: the engine fires nothing. For all shards, that is said once. */
static void set_lapsed(struct shard *shard, bool lapsed)
{
    struct server *server = shard->worker->server;
    if (lapsed == shard->lapsed)
        return;
    shard->lapsed = lapsed;
    look_whether_ready(shard);
    if (lapsed && atomic_fetch_add(&server->lapsed, 1) == 0) {
        server_hindered(server, DATABASE_AWAY);
        log_error(DATABASE_AWAY, NULL);
    } else if (!lapsed && atomic_fetch_sub(&server->lapsed, 1) == 1) {
        server_hindered(server, "");
        log_info("the database responds again, or the server has given up the shards", NULL);
    }
}

/* The server's own timers are nobody's business. */
static void counted(void *arg, fl_engine *engine, fl_bytes ns, int64_t more)
{
    struct shard *shard = arg;
    struct space *space = is_own_namespace(ns) ? NULL : space_of(shard->worker->server, ns);
    (void)engine;
    if (!space)
        return;
    shard->pending += more;
    timers_counted(shard->worker->server, space, more);
}

/* Others must know until when the shard is ours: what is on its way elsewhere may come back after a long silence, in which
 * another server has taken over. A claim is renewed after a third of its time, and looked at twice as often. */
static void look_at_claim(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    fl_engine_stats stats;
    (void)loop;
    fl_engine_get_stats(shard->engine, &stats);
    atomic_store(&shard->good_until_ns, stats.owner_until_ns);
    set_lapsed(shard, stats.owner && fl_loop_now_ns(shard->worker->loop) >= stats.owner_until_ns);
}

static int watch_claim(struct shard *shard)
{
    const struct server *server = shard->worker->server;
    bool shared = strncmp(server->config.store, "postgres", 8) == 0;
    atomic_store(&shard->good_until_ns, shared ? 0 : UINT64_MAX);
    if (!shared)
        return 0;
    return fl_loop_interval(shard->worker->loop, server->config.engine.lease_us * 1000 / 6, FL_TIMER_UNREF,
                            look_at_claim, shard, &shard->claim_timer);
}

static void unwatch_claim(struct shard *shard)
{
    if (shard->claim_timer)
        fl_loop_cancel(shard->worker->loop, shard->claim_timer);
    shard->claim_timer = 0;
    atomic_store(&shard->good_until_ns, 0);
    set_lapsed(shard, false);
}

#define MINUTE_NS (60 * 1000000000ull)

/* All shards run into the same trouble, again and again: a message is told once per minute. Some alternate. */
bool trouble_is_news(const char *message, uint64_t now_ns)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        char text[256];
        uint64_t told_ns;
    } recent[4];
    static unsigned next;
    bool news = true;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof recent / sizeof *recent; i++)
        if (recent[i].told_ns > 0 && now_ns - recent[i].told_ns < MINUTE_NS && strcmp(recent[i].text, message) == 0)
            news = false;
    if (news) {
        snprintf(recent[next % 4].text, sizeof recent[0].text, "%s", message);
        recent[next++ % 4].told_ns = now_ns;
    }
    pthread_mutex_unlock(&lock);
    return news;
}

static void tell_trouble(const struct shard *shard, const char *message)
{
    if (trouble_is_news(message, fl_loop_now_ns(shard->worker->loop)))
        log_error("the store fails or does not respond; the server keeps trying", "shard", log_int(shard->number),
                  "why", message, NULL);
    if (shard->lapsed) {
        char why[sizeof shard->worker->server->hindrance.text];
        snprintf(why, sizeof why, DATABASE_AWAY ": %s", message);
        server_hindered(shard->worker->server, why);
    }
}

static void leave_lost(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    if (shard->engine && !shard->leaving)
        shard_leave(shard, true);
}

static void notify(void *arg, fl_engine *engine, enum fl_engine_event event, int result, const char *message)
{
    struct shard *shard = arg;
    (void)engine, (void)result;
    switch (event) {
    case FL_ENGINE_READY:
        shard->claimed = true;
        if (shard->claim_timer)
            look_at_claim(shard->worker->loop, shard);
        look_whether_ready(shard);
        servers_look(shard->worker->server);
        spaces_load_again(shard->worker->server);
        log_debug("shard ready", "shard", log_int(shard->number), NULL);
        break;
    case FL_ENGINE_LOST:
        shard->lost = true;
        look_whether_ready(shard);
        log_error("lost a shard; its timers do not fire here until this server claims it again", "shard",
                  log_int(shard->number), "why", message, NULL);
        atomic_store(&shard->worker->server->settings_old, true);
        fl_loop_post(shard->worker->loop, leave_lost, shard); /* not inside a callback of the engine's */
        break;
    case FL_ENGINE_HELD:
        if (trouble_is_news("waiting for a shard", fl_loop_now_ns(shard->worker->loop)))
            log_warning("waiting for a shard that another server holds", "shard", log_int(shard->number), "why",
                        message, NULL);
        break;
    case FL_ENGINE_TROUBLE:
        tell_trouble(shard, message);
        break;
    }
}

int shard_start(struct shard *shard)
{
    struct worker *worker = shard->worker;
    struct server *server = worker->server;
    fl_engine_config config = server->config.engine;
    config.loop = worker->loop;
    config.store = server->store;
    config.owner = server->config.owner;
    config.dispatch = dispatch;
    config.notify = notify;
    config.ended = ended;
    config.withdraw = withdraw;
    config.counted = counted;
    config.arg = shard;
    config.shard = shard->number;
    config.clock = server->clock;
    config.max_memory_bytes = budget_of_shard(server->config.max_memory, server->shard_count);
    config.wait = true;
    int r = watch_claim(shard);
    if (r == 0)
        r = fl_engine_start(&config, &shard->engine);
    if (r < 0) {
        unwatch_claim(shard);
        log_error("cannot start the engine of a shard", "shard", log_int(shard->number), "why", fl_strerror(r), NULL);
        return r;
    }
    atomic_fetch_add(&server->here, 1);
    space_load(shard);
    return 0;
}

int shards_new(struct worker *worker)
{
    worker->waiting = calloc(worker->server->shard_count, sizeof *worker->waiting);
    return worker->waiting ? 0 : FL_NO_MEMORY;
}

void shards_free(struct worker *worker)
{
    free(worker->waiting);
}

int shards_start(struct worker *worker)
{
    struct server *server = worker->server;
    int r = 0;
    for (uint32_t i = worker->index; i < server->shard_count && r == 0; i += server->worker_count)
        r = shard_start(&server->shards[i]);
    return r;
}

void shard_let_go(struct shard *shard)
{
    if (!shard->loaded || shard->leaving || !atomic_load(&shard->worker->server->settings_known))
        return;
    spaces_tell_engine(shard);
    fl_engine_go(shard->engine);
}

void shard_loaded(struct shard *shard)
{
    shard->loaded = true;
    look_whether_ready(shard);
    shard_let_go(shard);
}

/* --- Giving up ---------------------------------------------------------------------------------------------------- */

/* What a shard's last engine had of it is gone: it is as before shard_start(). */
static void forget(struct shard *shard)
{
    atomic_fetch_sub(&shard->worker->server->here, 1);
    shard->engine = NULL;
    shard->loading = NULL;
    shard->held = 0;
    shard->loaded = shard->claimed = shard->leaving = shard->lost = false;
    look_whether_ready(shard);
    shard->purged = shard->purging = shard->withdrawn = shard->hurry = false;
}

static bool all_are_gone(const struct worker *worker)
{
    const struct server *server = worker->server;
    for (uint32_t i = worker->index; i < server->shard_count; i += server->worker_count)
        if (server->shards[i].engine || server->shards[i].leaving)
            return false;
    return true;
}

static void stopped_if_over(struct worker *worker)
{
    void (*done)(struct worker *) = worker->shards_stopped;
    if (!done || !all_are_gone(worker))
        return;
    worker->shards_stopped = NULL;
    done(worker);
}

static void gone(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    struct errand *kept = shard->kept;
    (void)loop;
    shard->kept = NULL;
    forget(shard);
    log_debug("shard given up", "shard", log_int(shard->number), NULL);
    for (struct errand *next; kept; kept = next) {
        next = kept->next;
        kept->go(kept); /* finds that it is not here */
    }
    shard_left(shard);
    stopped_if_over(shard->worker);
}

struct purge {
    struct tour tour;
    struct shard *shard;
};

static void purge_visit(struct tour *tour, struct worker *worker)
{
    pull_purge(worker, ((struct purge *)tour)->shard);
}

static void purge_back(struct tour *tour)
{
    struct shard *shard = ((struct purge *)tour)->shard;
    free(tour);
    shard->purged = true;
    shard_leave_on(shard);
}

/* Nothing that the engine lends may be looked at when it is gone: what waits to be leased is taken away everywhere. What is on
 * its way there, or back, arrives first, since messages between two workers keep their order. */
static void purge(struct shard *shard)
{
    struct purge *tour = calloc(1, sizeof *tour);
    if (!tour)
        return; /* and again when something else has ended */
    shard->purging = true;
    *tour = (struct purge){.tour = {.fn = purge_visit, .back = purge_back}, .shard = shard};
    tour_begin(&tour->tour, shard->worker);
}

/* In this order: callbacks end, leases end, operations end, the engine stops. An engine that
 * has no say in the store any more, or never had, or that does not get on, is stopped with what is in it. */
void shard_leave_on(struct shard *shard)
{
    bool hurry = shard->lost || !shard->claimed || shard->hurry;
    if (shard->delivering > 0 || !shard->engine)
        return;
    if (!shard->purged) {
        if (!shard->purging)
            purge(shard);
        return;
    }
    if (shard->inside > 0 && !hurry)
        return;
    fl_engine *engine = shard->engine;
    shard->engine = NULL;
    unwatch_claim(shard);
    if (shard->patience)
        fl_loop_cancel(shard->worker->loop, shard->patience);
    shard->patience = 0;
    fl_engine_stop(engine, shard->lost, gone, shard);
}

static bool is_of(const webhook_attempt *attempt, void *shard)
{
    return deliver_shard(attempt) == shard;
}

#define PATIENCE_NS (300 * 1000000ull)

static void out_of_patience(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    shard->hurry = shard->withdrawn;
    shard->patience = 0;
    if (!shard->withdrawn && shard->worker->hooks)
        webhooks_withdraw(shard->worker->hooks, is_of, shard, true);
    shard->withdrawn = true;
    if (shard->hurry || fl_loop_timer(loop, 2 * PATIENCE_NS, out_of_patience, shard, &shard->patience) < 0)
        shard->hurry = true;
    shard_leave_on(shard);
}

void shard_leave(struct shard *shard, bool lost)
{
    shard->leaving = true;
    shard->lost |= lost;
    atomic_store_explicit(&shard->moving, !lost, memory_order_relaxed);
    look_whether_ready(shard);
    if (shard->worker->hooks)
        webhooks_withdraw(shard->worker->hooks, is_of, shard, false);
    if (fl_loop_timer(shard->worker->loop, PATIENCE_NS, out_of_patience, shard, &shard->patience) < 0)
        out_of_patience(shard->worker->loop, shard);
    else
        shard_leave_on(shard);
}

/* --- Stopping ----------------------------------------------------------------------------------------------------- */

void shards_stop(struct worker *worker, void (*done)(struct worker *worker))
{
    struct server *server = worker->server;
    worker->shards_stopped = done;
    for (uint32_t i = worker->index; i < server->shard_count; i += server->worker_count)
        if (server->shards[i].engine && !server->shards[i].leaving)
            shard_leave(&server->shards[i], false);
    stopped_if_over(worker);
}
