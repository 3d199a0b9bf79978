/* SPDX-License-Identifier: MIT */
/* What happened in the last hour, in steps of ten seconds: for charts that are not empty when a page opens.
 *
 * Each worker counts for itself, for all namespaces together and for each one in which something happens, so nothing is shared.
 * A ring has an hour of steps. A step that is used again begins at zero: it notes which ten seconds it is about. Rings of
 * namespaces are made when something happens there first; a worker has at most RINGS_MOST, which bounds the memory. Namespaces
 * beyond that have no chart of their own, and count in the sum. */

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/internal.h"

enum { RINGS_MOST = 256 }; /* of a worker: about 6 MB */

static const uint32_t lateness_ms[STATS_BUCKETS - 1] = {1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 60000};

uint32_t stats_bucket_ms(unsigned bucket)
{
    fl__assert(bucket < STATS_BUCKETS - 1);
    return lateness_ms[bucket];
}

int stats_new(struct worker *worker)
{
    worker->stats = calloc(1, sizeof *worker->stats);
    return worker->stats ? 0 : FL_NO_MEMORY;
}

void stats_free(struct worker *worker)
{
    free(worker->stats);
    worker->stats = NULL;
}

/* NULL, or what is wrong. */
const char *stats_check(const struct worker *worker)
{
    unsigned rings = 0;
    for (const struct space *space = worker->node->spaces->first; space; space = space->next)
        rings += space->rings[worker->index] != NULL;
    return rings != worker->stats->rings ? "a worker counts the rings of its namespaces" : NULL;
}

static struct stats_step *step_at(struct stats_ring *ring, int64_t now_us)
{
    int64_t number = now_us / STATS_STEP_US;
    struct stats_step *step = &ring->steps[number % STATS_STEPS];
    if (step->number != number)
        *step = (struct stats_step){.number = number};
    return step;
}

/* The ring of a namespace here; NULL: it has none. */
static struct stats_ring *ring_of(struct worker *worker, struct space *space)
{
    struct stats_ring **ring = space ? &space->rings[worker->index] : NULL;
    fl__assert(worker->stats->rings <= RINGS_MOST);
    if (!ring || *ring || worker->stats->rings == RINGS_MOST)
        return ring ? *ring : NULL;
    *ring = calloc(1, sizeof **ring);
    worker->stats->rings += *ring != NULL;
    return *ring;
}

/* When this turn of the loop began, or so: to read the clock takes longer than to count. A test clock jumps within a turn. */
static int64_t turn_us(struct worker *worker)
{
    struct worker_stats *stats = worker->stats;
    uint64_t turn_ns = fl_loop_now_ns(worker->loop);
    if (stats->turn_us == 0 || stats->turn_ns != turn_ns || worker->node->config.test_clock) {
        stats->turn_ns = turn_ns;
        stats->turn_us = node_now(worker->node);
    }
    return stats->turn_us;
}

void stats_count(struct worker *worker, struct space *space, enum stats_kind kind)
{
    int64_t now_us = turn_us(worker);
    struct stats_ring *ring = ring_of(worker, space);
    fl__assert((unsigned)kind < STATS_KINDS);
    worker->stats->all.total.counts[kind]++;
    step_at(&worker->stats->all, now_us)->counts[kind]++;
    if (!ring)
        return;
    ring->total.counts[kind]++;
    step_at(ring, now_us)->counts[kind]++;
}

static unsigned bucket_of(uint64_t late_ns)
{
    unsigned bucket = 0;
    while (bucket < STATS_BUCKETS - 1 && late_ns > (uint64_t)lateness_ms[bucket] * 1000000)
        bucket++;
    return bucket;
}

void stats_late(struct worker *worker, struct space *space, uint64_t late_ns)
{
    int64_t now_us = turn_us(worker);
    unsigned bucket = bucket_of(late_ns);
    struct stats_ring *ring = ring_of(worker, space);
    worker->stats->all.total.lateness[bucket]++;
    step_at(&worker->stats->all, now_us)->lateness[bucket]++;
    if (!ring)
        return;
    ring->total.lateness[bucket]++;
    step_at(ring, now_us)->lateness[bucket]++;
}

static void add_step(struct stats_step *sum, const struct stats_step *step)
{
    sum->number = step->number;
    for (unsigned i = 0; i < STATS_KINDS; i++)
        sum->counts[i] += step->counts[i];
    for (unsigned i = 0; i < STATS_BUCKETS; i++)
        sum->lateness[i] += step->lateness[i];
}

/* Those of the hour that ends with the step `last`. */
static void add_steps(struct stats_ring *sum, const struct stats_ring *ring, int64_t last)
{
    for (int64_t number = last < STATS_STEPS ? 1 : last - STATS_STEPS + 1; number <= last; number++) {
        const struct stats_step *step = &ring->steps[number % STATS_STEPS];
        if (step->number == number)
            add_step(&sum->steps[number % STATS_STEPS], step);
    }
}

/* --- Gauges ------------------------------------------------------------------------------------------------------- */

/* Of a namespace only what is counted for each. */
static void add_gauges(const struct worker *worker, const struct space *space, struct stats_gauges *sum)
{
    const struct node *node = worker->node;
    int64_t waiting, leased;
    pull_count(worker, space, &waiting, &leased);
    sum->waiting_for_lease += waiting;
    if (space) {
        sum->pending += worker->index == 0 ? atomic_load_explicit(&space->pending, memory_order_relaxed) : 0;
        return;
    }
    sum->leased += leased;
    sum->waiting_for_host -= waiting;
    for (uint32_t i = worker->index; i < node->shard_count; i += node->worker_count) {
        const struct shard *shard = &node->shards[i];
        fl_engine_stats stats;
        if (!shard->engine)
            continue;
        fl_engine_get_stats(shard->engine, &stats);
        sum->pending += shard->pending;
        sum->in_flight += (int64_t)stats.in_flight;
        sum->waiting_for_host += (int64_t)stats.waiting;
        if (stats.oldest_overdue_us > sum->oldest_overdue_us)
            sum->oldest_overdue_us = stats.oldest_overdue_us;
    }
}

/* --- Gathering ------------------------------------------------------------------------------------------------------ */

struct stats_ask {
    struct tour tour;
    struct worker *home;
    struct space *space; /* NULL: all */
    void (*done)(void *arg, const struct stats *sum);
    void *arg;
    bool steps;
    size_t ns_size;
    char question[1 + FL_STORE_NAME_MAX]; /* '+' with steps, '-' without; then the namespace */
    struct stats sum;
};

static void visit(struct tour *tour, struct worker *worker)
{
    struct stats_ask *ask = (struct stats_ask *)tour;
    const struct stats_ring *ring = ask->space ? ask->space->rings[worker->index] : &worker->stats->all;
    if (ring)
        add_step(&ask->sum.ring.total, &ring->total);
    if (ring && ask->steps)
        add_steps(&ask->sum.ring, ring, ask->sum.last);
    add_gauges(worker, ask->space, &ask->sum.gauges);
}

static void put_gauges(struct out *out, const struct stats_gauges *gauges)
{
    const int64_t *numbers = (const int64_t *)gauges;
    for (size_t i = 0; i < sizeof *gauges / sizeof *numbers; i++)
        wire_put_signed(out, numbers[i]);
}

static void put_step(struct out *out, const struct stats_step *step)
{
    wire_put_number(out, (uint64_t)step->number);
    for (unsigned i = 0; i < STATS_KINDS; i++)
        wire_put_number(out, step->counts[i]);
    for (unsigned i = 0; i < STATS_BUCKETS; i++)
        wire_put_number(out, step->lateness[i]);
}

static void put_sum(struct out *out, const struct stats *sum)
{
    put_gauges(out, &sum->gauges);
    put_step(out, &sum->ring.total);
    for (unsigned i = 0; i < STATS_STEPS; i++)
        if (sum->ring.steps[i].number > 0)
            put_step(out, &sum->ring.steps[i]);
}

static void take_gauges(struct wire *wire, struct stats_gauges *sum)
{
    struct stats_gauges other = {0};
    int64_t *numbers = (int64_t *)&other;
    for (size_t i = 0; i < sizeof other / sizeof *numbers; i++)
        numbers[i] = wire_signed(wire);
    sum->pending += other.pending;
    sum->in_flight += other.in_flight;
    sum->leased += other.leased;
    sum->waiting_for_lease += other.waiting_for_lease;
    sum->waiting_for_host += other.waiting_for_host;
    if (other.oldest_overdue_us > sum->oldest_overdue_us)
        sum->oldest_overdue_us = other.oldest_overdue_us;
}

static struct stats_step read_step(struct wire *wire)
{
    struct stats_step step = {.number = (int64_t)wire_number(wire)};
    for (unsigned i = 0; i < STATS_KINDS; i++)
        step.counts[i] = (uint32_t)wire_number(wire);
    for (unsigned i = 0; i < STATS_BUCKETS; i++)
        step.lateness[i] = (uint32_t)wire_number(wire);
    return step;
}

/* Clocks of servers differ a little: a step that is not in this hour here is left out. */
static void take_answer(struct stats *sum, fl_bytes answer)
{
    struct wire wire = wire_begin(answer);
    take_gauges(&wire, &sum->gauges);
    struct stats_step total = read_step(&wire);
    if (wire.bad)
        return;
    add_step(&sum->ring.total, &total);
    while (wire.at < wire.end) {
        struct stats_step step = read_step(&wire);
        if (wire.bad || step.number > sum->last || step.number <= sum->last - STATS_STEPS || step.number <= 0)
            continue;
        add_step(&sum->ring.steps[step.number % STATS_STEPS], &step);
    }
    sum->servers++;
}

static void answered(void *arg, const struct out *answers, size_t count)
{
    struct stats_ask *ask = arg;
    for (size_t i = 0; i < count; i++)
        if (answers[i].size > 0)
            take_answer(&ask->sum, out_bytes(&answers[i]));
    ask->done(ask->arg, &ask->sum);
    free(ask);
}

static void visited_for_us(struct tour *tour)
{
    struct stats_ask *ask = (struct stats_ask *)tour;
    servers_ask(ask->home, LINK_STATS, (fl_bytes){ask->question, 1 + ask->ns_size}, answered, ask);
}

static struct stats_ask *ask_new(struct worker *worker, fl_bytes ns, bool steps)
{
    struct stats_ask *ask = calloc(1, sizeof *ask);
    fl__assert(ns.size <= FL_STORE_NAME_MAX);
    if (!ask)
        return NULL;
    ask->home = worker;
    ask->sum.last = node_now(worker->node) / STATS_STEP_US;
    ask->sum.servers = 1;
    ask->space = ns.size > 0 ? space_if_any(worker->node, ns) : NULL;
    ask->steps = steps;
    ask->question[0] = steps ? '+' : '-';
    memcpy(ask->question + 1, ns.data ? ns.data : "", ns.size);
    ask->ns_size = ns.size;
    ask->tour.fn = visit;
    return ask;
}

/* A namespace that this server does not know has nothing here. */
static void begin(struct stats_ask *ask)
{
    if (ask->ns_size > 0 && !ask->space)
        ask->tour.back(&ask->tour);
    else
        tour_begin(&ask->tour, ask->home);
}

int stats_ask(struct worker *worker, fl_bytes ns, bool steps, void (*done)(void *arg, const struct stats *sum),
              void *arg)
{
    struct stats_ask *ask = ask_new(worker, ns, steps);
    if (!ask)
        return FL_NO_MEMORY;
    ask->done = done;
    ask->arg = arg;
    ask->tour.back = visited_for_us;
    begin(ask);
    return 0;
}

static void visited_for_another(struct tour *tour)
{
    struct stats_ask *ask = (struct stats_ask *)tour;
    struct out out = {0};
    put_sum(&out, &ask->sum);
    link_answer(ask->arg, out.failed ? FL_NO_MEMORY : 0, out_bytes(&out));
    out_free(&out);
    free(ask);
}

void stats_serve(struct worker *worker, struct link_request *request)
{
    const char *body = request->body.data;
    size_t size = request->body.size;
    if (size == 0 || size > 1 + FL_STORE_NAME_MAX) {
        link_answer(request, FL_INVALID_ARGUMENT, (fl_bytes){0});
        return;
    }
    struct stats_ask *ask = ask_new(worker, (fl_bytes){body + 1, size - 1}, body[0] == '+');
    if (!ask) {
        link_answer(request, FL_NO_MEMORY, (fl_bytes){0});
        return;
    }
    ask->arg = request;
    ask->tour.back = visited_for_another;
    begin(ask);
}
