/* SPDX-License-Identifier: MIT */
/* Whole nodes in a simulated world: the real code of src/node, its engines and a store in memory, on virtual time. Clients create,
 * cancel, lease and acknowledge timers, have schedules (nodes_schedules.c) and pause namespaces at any server; targets fail and hang; the store fails and is slow; links
 * are late and break; servers crash, stop and come back; all of them stand still for a while; their clocks disagree. One seed decides
 * everything. Some lives (NODES_WIDE) have unusual settings: more servers, shards and workers, small limits, long claims, clocks that
 * are far off, and a store that goes back to an earlier state. After every turn of the loop, every node must be legal (node_check()). A ledger outside (nodes_ledger.c) holds what
 * docs/http.md promises against what happens.
 *
 * All nodes share one loop, so that a life is one sequence of callbacks. A server that has crashed is cut off from the store, the
 * other servers and the ledger, and then freed like one that stops. */

#include "sim/nodes.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define SKEW_SMALL_US (SECOND / 2)

/* --- The world ---------------------------------------------------------------------------------------------------- */

int64_t nodes_mono_us(struct nodes *w)
{
    return (int64_t)(w->time.clock.now_ns(&w->time.clock) / 1000);
}

int64_t nodes_ran_us(struct nodes *w)
{
    return nodes_mono_us(w) - w->stood_us;
}

int64_t nodes_wall_us(struct nodes *w)
{
    return START_US + nodes_mono_us(w);
}

static int64_t store_wall_us(fl_wall_clock *clock)
{
    return nodes_wall_us((struct nodes *)((char *)clock - offsetof(struct nodes, wall)));
}

static int64_t host_wall_us(fl_wall_clock *clock)
{
    const struct host *host = (struct host *)((char *)clock - offsetof(struct host, wall));
    return nodes_wall_us(host->world) + host->offset_us;
}

void nodes_say(struct nodes *w, const char *format, ...)
{
    if (!w->trace)
        return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(w->trace, "%15.6f  ", (double)nodes_mono_us(w) / 1e6);
    vfprintf(w->trace, format, arguments);
    fputc('\n', w->trace);
    va_end(arguments);
}

void nodes_fail(struct nodes *w, const char *format, ...)
{
    if (w->failure[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(w->failure, sizeof w->failure, format, arguments);
    va_end(arguments);
    nodes_say(w, "FAILED: %s", w->failure);
}

void *nodes_need(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

void nodes_at(struct nodes *w, uint64_t delay_us, fl_loop_fn fn, void *arg, fl_timer_id *ret)
{
    if (fl_loop_timer(w->loop, delay_us * 1000, fn, arg, ret) < 0)
        abort();
}

static bool serves(const struct host *host)
{
    return !host->leaving;
}

static unsigned count_serving(const struct nodes *w)
{
    unsigned count = 0;
    const struct host *host;
    for (host = LIST_FIRST(&w->hosts); host; host = LIST_NEXT(host, entry))
        count += serves(host);
    return count;
}

struct host *nodes_some_host(struct nodes *w)
{
    unsigned count = count_serving(w);
    uint64_t skip = count > 0 ? below(&w->luck, count) : 0;
    struct host *host;
    for (host = LIST_FIRST(&w->hosts); host; host = LIST_NEXT(host, entry))
        if (serves(host) && skip-- == 0)
            return host;
    return NULL;
}

struct host *nodes_host(struct nodes *w, unsigned number)
{
    struct host *host;
    for (host = LIST_FIRST(&w->hosts); host; host = LIST_NEXT(host, entry))
        if (host->number == number)
            return host;
    return NULL;
}

struct host *nodes_host_at(struct nodes *w, const char *address)
{
    struct host *host;
    for (host = LIST_FIRST(&w->hosts); host; host = LIST_NEXT(host, entry))
        if (!host->dead && host->step == 0 && strcmp(host->address, address) == 0)
            return host;
    return NULL;
}

/* --- The store ---------------------------------------------------------------------------------------------------- */

static uint64_t delay_ns(void *arg, unsigned actor, const fl_store_request *request)
{
    const struct host *host = arg;
    struct nodes *w = host->world;
    (void)actor, (void)request;
    if (w->calm || !w->nature.slow || !chance(&w->luck, 20))
        return 0;
    return below(&w->luck, chance(&w->luck, 5) ? 3000000000 : 30000000);
}

static uint64_t hold_ns(void *arg, unsigned actor, const fl_store_request *request)
{
    return delay_ns(arg, actor, request) / 4;
}

static uint64_t sent(void *arg, unsigned actor, const fl_store_request *request)
{
    (void)arg, (void)actor, (void)request;
    return 0;
}

static void store_answered(void *arg, unsigned actor, uint32_t shard, const fl_store_request *request)
{
    struct host *host = arg;
    struct nodes *w = host->world;
    bool recorded = !w->nature.faulty && (host->recorded[shard] || w->skew_us == 0);
    if (request->op == FL_STORE_RELEASE && request->result == 0 && recorded)
        w->released[shard] = host->terms[shard];
    host->recorded[shard] = request->op == FL_STORE_RECORD && request->result == 0;
    if (request->op != FL_STORE_CLAIM || request->result != 0)
        return;
    ledger_went_back(w, shard);
    host->terms[shard] = ++w->terms[shard];
    w->claimed_us[shard] = nodes_ran_us(w);
    nodes_say(w, "%s has shard %u", host->address, shard);
    (void)actor;
}

static fl_memory_fault fault(void *arg, uint32_t shard, const fl_store_request *request)
{
    struct nodes *w = arg;
    fl_memory_fault fault = {0};
    (void)shard;
    if (w->calm || !w->nature.faulty || !chance(&w->luck, 4))
        return fault;
    fault.result = chance(&w->luck, 50) ? FL_OUTCOME_UNKNOWN : FL_STORE_UNAVAILABLE;
    fault.applied = fault.result == FL_OUTCOME_UNKNOWN && request->op != FL_STORE_CLAIM && chance(&w->luck, 50);
    return fault;
}

/* --- Servers come and go ------------------------------------------------------------------------------------------ */

/* Its clock is set, forward or back. */
static void set_clock(struct host *host, int64_t offset_us)
{
    host->offset_us = offset_us;
    nodes_say(host->world, "the clock of %s is set: it is off by %.3f s", host->address, (double)offset_us / 1e6);
    for (uint32_t i = 0; host->world->skew_us > SKEW_SMALL_US && i < host->node.shard_count; i++)
        if (host->node.shards[i].engine)
            fl_engine_clock_changed(host->node.shards[i].engine);
}

static void step_clock(struct host *host)
{
    struct nodes *w = host->world;
    set_clock(host, (int64_t)below(&w->luck, (uint64_t)w->skew_us * 2 + 1) - w->skew_us);
}

/* A clock that is far off is set right in the end. */
static void right_clocks(struct nodes *w)
{
    struct host *host;
    for (host = LIST_FIRST(&w->hosts); w->skew_us > SKEW_SMALL_US && host; host = LIST_NEXT(host, entry))
        if (!host->over)
            set_clock(host, 0);
}

static void start_host(struct nodes *w)
{
    struct host *host = nodes_need(calloc(1, sizeof *host));
    bool alone = w->nature.hosts == 1;
    host->world = w;
    host->number = ++w->host_count;
    snprintf(host->address, sizeof host->address, "server %u", host->number);
    host->wall.now_us = host_wall_us;
    LIST_INSERT_HEAD(&w->hosts, host, entry);
    nodes_say(w, "%s starts", host->address);
    if (!w->calm || w->skew_us <= SKEW_SMALL_US)
        step_clock(host);
    struct road_watch watch = {delay_ns, hold_ns, sent, store_answered, host};
    host->road = nodes_need(road_new(w->store, &watch));
    struct node_config config = {.ports = &nodes_ports,
                                 .owner = host,
                                 .store = road_store(host->road),
                                 .clock = &host->wall,
                                 .workers = w->workers,
                                 .claimant = host->address,
                                 .advertise = alone ? NULL : host->address,
                                 .incarnation = random_word(w) >> 1 | 1,
                                 .engine = w->limits,
                                 .max_memory = w->max_memory};
    config.engine.claim_us = (uint64_t)w->claim_us;
    config.engine.seed = draw(&w->luck) | 1;
    if (node_new(&host->node, &config) < 0)
        abort();
    int r = 0;
    for (unsigned i = 0; i < w->workers && r == 0; i++)
        r = worker_new(&host->node.workers[i], w->loop);
    for (unsigned i = 0; i < w->workers && r == 0; i++)
        r = alone ? shards_start(&host->node.workers[i]) : servers_start(&host->node.workers[i]);
    if (r == 0 && !alone)
        r = servers_join(&host->node);
    if (r < 0)
        abort();
    settings_load(&host->node.workers[0], NULL);
}

/* The steps of server_stop() in src/server/stop.c. */
static void stop_on(fl_loop *loop, void *arg);

static void left_others(void *node)
{
    struct host *host = ((struct node *)node)->owner;
    nodes_at(host->world, host->dead ? 0 : 100000, stop_on, host, NULL);
}

static void cluster_freed(fl_loop *loop, void *arg)
{
    (void)loop;
    nodes_at(((struct host *)arg)->world, 0, stop_on, arg, NULL);
}

static void shards_gone(struct worker *worker)
{
    struct host *host = worker->node->owner;
    if (--host->left == 0)
        nodes_at(host->world, 0, stop_on, host, NULL);
}

static void end_waiting(struct host *host)
{
    for (unsigned i = 0; i < host->node.worker_count; i++) {
        pull_stop(&host->node.workers[i]);
        leases_stop(&host->node.workers[i]);
    }
    links_break(host);
    hooks_end(host, true);
}

static void end_shards(struct host *host)
{
    host->left = host->node.worker_count + 1;
    for (unsigned i = 0; i < host->world->shards && host->dead; i++)
        host->node.shards[i].lost = true; /* so that nothing waits for the store */
    for (unsigned i = 0; i < host->node.worker_count; i++)
        servers_stop_links(&host->node.workers[i]);
    for (unsigned i = 0; i < host->node.worker_count; i++)
        shards_stop(&host->node.workers[i], shards_gone);
    shards_gone(&host->node.workers[0]);
}

static bool is_idle(const struct host *host)
{
    for (unsigned i = 0; i < host->node.worker_count; i++)
        if (host->node.workers[i].under_way > 0)
            return false;
    return LIST_EMPTY(&host->requests);
}

static void free_host(struct host *host)
{
    for (unsigned i = 0; i < host->node.worker_count; i++)
        worker_free(&host->node.workers[i]);
    node_free(&host->node);
    road_free(host->road);
    nodes_say(host->world, "%s is over", host->address);
    host->over = true;
}

static void stop_on(fl_loop *loop, void *arg)
{
    struct host *host = arg;
    struct nodes *w = host->world;
    (void)loop;
    switch (++host->step) {
    case 1:
        end_waiting(host);
        nodes_at(w, host->dead ? 0 : 10000, stop_on, host, NULL);
        break;
    case 2:
        if (LIST_EMPTY(&host->hooks))
            atomic_store(&host->node.closing, true);
        else
            host->step--; /* they end now */
        nodes_at(w, 1000, stop_on, host, NULL);
        break;
    case 3:
        if (host->node.cluster)
            cluster_free(host->node.cluster, cluster_freed, host);
        else
            nodes_at(w, 0, stop_on, host, NULL);
        break;
    case 4:
        end_shards(host);
        break;
    default:
        if (is_idle(host))
            free_host(host);
        else
            nodes_at(w, 5000, stop_on, host, NULL);
    }
}

static void stop_host(struct host *host)
{
    nodes_say(host->world, "%s %s", host->address, host->dead ? "crashes" : "stops");
    host->leaving = true;
    host->left_us = nodes_ran_us(host->world);
    atomic_store(&host->node.stopping, true);
    if (host->node.cluster)
        servers_stop(&host->node, host->dead ? 0 : 2 * SECOND, left_others);
    else
        left_others(&host->node);
}

static void crash_host(struct host *host)
{
    host->dead = true;
    road_cut(host->road, 0);
    links_break(host);
    stop_host(host);
}

/* --- A life ------------------------------------------------------------------------------------------------------- */

static void check_nodes(struct nodes *w)
{
    const struct host *host;
    for (host = LIST_FIRST(&w->hosts); host; host = LIST_NEXT(host, entry)) {
        const char *wrong = host->over ? NULL : node_check(&host->node);
        if (wrong)
            nodes_fail(w, "%s is not sound: %s", host->address, wrong);
    }
}

/* It is marked, or goes back to what it was at the last mark, as a database that is restored. */
static void go_back(struct nodes *w)
{
    bool mark = w->marked_us == 0 || chance(&w->luck, 50);
    nodes_say(w, mark ? "the store is marked" : "the store goes back to the mark");
    if ((mark ? fl_memory_store_mark(w->store) : fl_memory_store_go_back(w->store)) < 0)
        abort();
    if (mark)
        w->marked_us = nodes_mono_us(w);
    else
        ledger_go_back(w);
}

static void disaster(struct nodes *w)
{
    if (w->nature.goes_back && chance(&w->luck, 30)) {
        go_back(w);
        return;
    }
    struct host *host = nodes_some_host(w);
    unsigned what = (unsigned)below(&w->luck, 6);
    if (!host || (what == 0 && count_serving(w) < w->nature.hosts))
        start_host(w);
    else if (what == 1 && w->nature.crashes && w->host_count < 12)
        crash_host(host);
    else if (what == 2 && w->nature.crashes && w->host_count < 12)
        stop_host(host);
    else if (what == 3 && w->nature.jumps) {
        uint64_t us = below(&w->luck, (uint64_t)w->claim_us * 2);
        nodes_say(w, "all stand still for %.3f s", (double)us / 1e6);
        w->stood_us += (int64_t)us;
        fl_virtual_clock_move(&w->time, w->time.clock.now_ns(&w->time.clock) + us * 1000);
    } else if (what == 4 && w->nature.breaks)
        link_break_some(w);
    else if (what == 5)
        step_clock(host);
}

static void act(fl_loop *loop, void *arg)
{
    struct nodes *w = arg;
    (void)loop;
    if (w->actions == 0 || --w->actions == 0)
        return;
    if (chance(&w->luck, 94))
        clients_act(w);
    else
        disaster(w);
    nodes_at(w, chance(&w->luck, 60) ? below(&w->luck, 5000) : below(&w->luck, SECOND / 2), act, w, NULL);
}

/* Turns until the time has come, or `over` says so. */
static void run_until(struct nodes *w, int64_t us, bool (*over)(struct nodes *w))
{
    int64_t until_us = nodes_mono_us(w) + us, seen_us = 0;
    for (unsigned turns = 0; !w->failure[0] && nodes_mono_us(w) < until_us && !(over && over(w)); turns++) {
        if (fl_loop_run_once(w->loop, true) < 0)
            abort();
        check_nodes(w);
        turns = nodes_mono_us(w) == seen_us ? turns : 0;
        seen_us = nodes_mono_us(w);
        if (turns > 100000)
            nodes_fail(w, "the servers are busy, and time does not go on");
    }
}

static bool acted(struct nodes *w)
{
    return w->actions == 0;
}

static void tick(fl_loop *loop, void *arg)
{
    struct nodes *w = arg;
    (void)loop;
    nodes_at(w, 50000, tick, w, NULL);
}

/* Every shard is served by exactly one server. */
static void check_shards(struct nodes *w)
{
    for (uint32_t i = 0; i < w->shards; i++) {
        unsigned count = 0;
        const struct host *host;
        for (host = LIST_FIRST(&w->hosts); host; host = LIST_NEXT(host, entry))
            count += serves(host) && host->node.shards[i].state == SHARD_SERVING;
        if (count != 1)
            nodes_fail(w, "long after the last trouble, shard %u is served by %u servers", i, count);
    }
}

static void find_peace(struct nodes *w)
{
    w->calm = true;
    w->calm_us = nodes_ran_us(w);
    while (count_serving(w) < w->nature.hosts)
        start_host(w);
    right_clocks(w);
    run_until(w, 2 * w->claim_us + 15 * SECOND + 2 * w->skew_us, NULL);
    check_shards(w);
    ledger_settings(w);
    for (unsigned i = 0; i < SPACES; i++)
        clients_pause(w, i, false);
    schedules_resume(w);
    run_until(w, (w->nature.edits ? 8 : 2) * SECOND, NULL);
    clients_reset_settings(w);
    if (w->nature.edits)
        run_until(w, 2 * SECOND, NULL);
    if (w->plans_end_us > nodes_wall_us(w))
        run_until(w, w->plans_end_us - nodes_wall_us(w) + SECOND, NULL);
    ledger_settings(w);
    for (unsigned i = 0; i < SPACES && !w->failure[0]; i++)
        if (w->spaces[i].unsure)
            nodes_fail(w, "the pause of %s does not end", space_names[i]);
    ledger_count(w);
}

static void end_well(struct nodes *w)
{
    find_peace(w);
    /* Webhooks that a rate has put off keep their places when it is lifted. */
    int rounds = 100 + (int)(2 * w->skew_us / SECOND) + (w->nature.edits ? 200 : 0);
    for (int i = 0; i < rounds && !w->failure[0] && (i < 3 || ledger_open(w) > 0); i++) {
        for (unsigned space = 0; space < SPACES; space++)
            clients_lease(w, space);
        run_until(w, SECOND, NULL);
    }
    run_until(w, 10 * SECOND, NULL);
    w->over = true;
    ledger_close(w);
    schedules_close(w);
    ledger_count(w);
    if (w->open > 0)
        nodes_fail(w, "%u requests were never answered", w->open);
}

static bool all_are_over(struct nodes *w)
{
    const struct host *host;
    for (host = LIST_FIRST(&w->hosts); host; host = LIST_NEXT(host, entry))
        if (!host->over)
            return false;
    return true;
}

/* False: it does not come to an end, and leaks. */
static bool tear_down(struct nodes *w, char failure[512])
{
    struct host *host;
    memcpy(failure, w->failure, sizeof w->failure);
    w->calm = true;
    w->actions = 0;
    w->failure[0] = '\0';
    for (host = LIST_FIRST(&w->hosts); host; host = LIST_NEXT(host, entry))
        if (serves(host))
            stop_host(host);
    run_until(w, 60 * SECOND, all_are_over);
    if (!failure[0])
        memcpy(failure, w->failure, sizeof w->failure);
    if (!all_are_over(w)) {
        if (!failure[0])
            snprintf(failure, sizeof w->failure, "a server does not stop");
        return false;
    }
    run_until(w, 20 * SECOND, NULL); /* clients end */
    while ((host = LIST_FIRST(&w->hosts))) {
        LIST_REMOVE(host, entry);
        free(host);
    }
    return true;
}

static void set_up(struct nodes *w, uint64_t seed)
{
    char message[256];
    luck_begin(&w->luck, seed);
    nature_choose_size(w, seed);
    fl_virtual_clock_init(&w->time, 1000);
    w->wall.now_us = store_wall_us;
    fl_store_config config = {.shards = w->shards, .clock = &w->wall};
    if (fl_loop_new(&(fl_loop_config){.clock = &w->time.clock}, &w->loop) < 0 ||
        fl_store_open("memory:", &config, &w->store, message, sizeof message) < 0 ||
        fl_memory_store_faults(w->store, fault, w) < 0)
        abort();
    nature_choose(w, seed);
}

bool nodes_run(uint64_t seed, FILE *trace, char failure[512])
{
    struct nodes *w = nodes_need(calloc(1, sizeof *w));
    w->trace = trace;
    set_up(w, seed);
    for (unsigned i = 0; i < w->nature.hosts; i++)
        start_host(w);
    nodes_at(w, 1000, act, w, NULL);
    nodes_at(w, 1000, tick, w, NULL);
    run_until(w, 3600 * SECOND, acted);
    if (!w->failure[0])
        end_well(w);
    if (!tear_down(w, failure))
        return false;
    schedules_free(w);
    fl_store_close(w->store);
    fl_loop_free(w->loop);
    free(w);
    return failure[0] == '\0';
}
