/* SPDX-License-Identifier: MIT */
/* Operations and pages of a shard, wherever it is. */

#include <stdlib.h>
#include <string.h>

#include "node/internal.h"

/* --- Jobs and pages ----------------------------------------------------------------------------------------------- */

/* A shard can be nobody's for a while: before the server has claimed it (it listens first), and while it moves from one
 * server to another. What comes meanwhile waits at home, and tries again. If the shard moves in order, or this server has yet to
 * learn who has it, that is worth waiting for; if its owner does not answer, it takes longer than anybody would wait. */
#define WAIT_NS 1000000000ull
#define WAIT_LONG_NS (5 * 1000000000ull)
#define AGAIN_NS (20 * 1000000ull)

static bool may_wait(const struct shard *shard, const struct worker *worker, uint64_t since_ns)
{
    const struct node *node = worker->node;
    bool moves = atomic_load_explicit(&shard->moving, memory_order_relaxed) ||
                 (node->cluster && !atomic_load_explicit(&node->settings_known, memory_order_relaxed));
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

/* The server's own timers concern nobody. */
static void publish_change(struct shard *shard, const fl_op *op)
{
    bool cancelled = op->kind == FL_OP_CANCEL;
    if (op->result < 0 || op->kind == FL_OP_GET || op->kind == FL_OP_DEAD_GET || op->kind == FL_OP_DEAD_DELETE ||
        (op->kind == FL_OP_CREATE && op->outcome == FL_SAME) || is_own_namespace(op->timer.ns))
        return;
    if (op->kind == FL_OP_CREATE || cancelled)
        stats_count(shard->worker, space_of(shard->worker->node, op->timer.ns),
                    cancelled ? STATS_CANCELLED : STATS_CREATED);
    shard->worker->node->ports->publish(shard->worker, cancelled ? EVENT_CANCELLED : EVENT_SCHEDULED, shard->number,
                                        &op->timer, (fl_bytes){0});
}

static void job_done(fl_batch *batch)
{
    struct job *job = batch->arg;
    struct shard *shard = job->shard;
    job->moved = shard->leaving && was_stopped(batch);
    for (size_t i = 0; i < batch->count && !job->moved; i++) {
        publish_change(shard, &batch->ops[i]);
        if (job->places)
            place_give(shard->worker->node, &job->places[i]);
    }
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

int calls_new(struct worker *worker)
{
    worker->waiting = calloc(worker->node->shard_count, sizeof *worker->waiting);
    return worker->waiting ? 0 : FL_NO_MEMORY;
}

void calls_free(struct worker *worker)
{
    free(worker->waiting);
}

/* --- Which shard -------------------------------------------------------------------------------------------------- */

/* In capitals it is a name: others' IDs of as many letters are often written so, and are used as names. */
bool is_id(const struct node *node, fl_bytes text, uint32_t *ret_shard, fl_key *ret_id)
{
    for (size_t i = 0; i < text.size; i++)
        if (((const char *)text.data)[i] >= 'A' && ((const char *)text.data)[i] <= 'Z')
            return false;
    return fl_id_parse(text.data, text.size, ret_shard, ret_id) == 0 && *ret_shard < node->shard_count;
}

struct shard *shard_of_name(struct node *node, fl_bytes ns, fl_bytes name)
{
    return &node->shards[fl_store_shard_of(node->shard_count, ns, name)];
}

/* One of its own if it has any: then nobody else is involved. Always the same for a while, so that what comes together is
 * committed together. */
struct shard *shard_of_worker(struct worker *worker)
{
    struct node *node = worker->node;
    uint32_t own =
        worker->index < node->shard_count ? (node->shard_count - worker->index - 1) / node->worker_count + 1 : 0;
    uint32_t turn = worker->turn++ >> 8;
    for (uint32_t i = 0; i < own; i++) {
        struct shard *shard = &node->shards[worker->index + (turn + i) % own * node->worker_count];
        if (shard->engine && !shard->leaving)
            return shard;
    }
    return &node->shards[turn % node->shard_count];
}
