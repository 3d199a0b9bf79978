/* SPDX-License-Identifier: MIT */
/* Several servers on one store: each is a cluster (node/cluster.h) and the engines of the shards that it has, on a loop of
 * its own, with a wall clock of its own. Clients ask any of them, which asks whoever has the shard as far as it knows, by
 * messages that are late, overtake each other or are lost. Servers crash, are started again under the same address or
 * another, leave, and stand still for a while as if they were stopped by a signal.
 *
 * All loops share one time, which moves on when none of them has anything to do: see pass_time().
 *
 * Clocks that disagree: no server may fire a timer before its own clock says so. So nothing is early by the clock of the one
 * that fires; by any other, it is at most by as much as the two disagree. Leases go by the store's clock and by monotonic
 * time, and do not depend on any of this. */

#include <stdlib.h>
#include <string.h>

#include "sim/fleet.h"

enum { SERVERS_MOST = 6, LIVES_MOST = 40 };

/* --- Time --------------------------------------------------------------------------------------------------------- */

static struct server *server_of(const void *member, size_t offset)
{
    return (struct server *)((char *)(uintptr_t)member - offset);
}

/* Who is busy for ever at one moment would never let time go on. */
static uint64_t server_now_ns(fl_clock *clock)
{
    struct server *server = server_of(clock, offsetof(struct server, time));
    uint64_t now_ns = (uint64_t)sim_mono_ns(server->sim);
    server->readings = server->read_ns == now_ns ? server->readings + 1 : 0;
    server->read_ns = now_ns;
    if (server->readings > 200000) {
        ledger_fail(&server->sim->ledger, "%s is busy, and has no end", server->address);
        fl_loop_stop(server->loop);
    }
    return now_ns;
}

/* It has nothing to do before: others may go on. */
static void server_waits(fl_clock *clock, uint64_t deadline_ns)
{
    struct server *server = server_of(clock, offsetof(struct server, time));
    server->wakes_ns = deadline_ns;
    fl_loop_stop(server->loop);
}

static void world_waits(fl_clock *clock, uint64_t deadline_ns)
{
    struct sim *s = (struct sim *)((char *)clock - offsetof(struct sim, time.clock));
    s->fleet->wakes_ns = deadline_ns;
    fl_loop_stop(s->loop);
}

int64_t fleet_clock_us(const struct server *server)
{
    return sim_wall_us(server->sim) + server->offset_us;
}

static int64_t server_wall_us(fl_wall_clock *clock)
{
    return fleet_clock_us(server_of(clock, offsetof(struct server, wall)));
}

/* Lets everybody do what is to be done at this moment, and moves on to the next one. */
static void pass_time(struct sim *s)
{
    struct fleet *fleet = s->fleet;
    uint64_t next_ns;
    do {
        fleet->stirred = false;
        fleet->wakes_ns = next_ns = UINT64_MAX;
        fl_loop_run(s->loop);
        for (struct server *server = fleet->servers; server; server = server->next) {
            if (server->paused)
                continue;
            server->wakes_ns = UINT64_MAX;
            fl_loop_run(server->loop);
            if (server->wakes_ns < next_ns)
                next_ns = server->wakes_ns;
        }
    } while (fleet->stirred && !fleet->over && !s->ledger.failure[0]);
    if (fleet->wakes_ns < next_ns)
        next_ns = fleet->wakes_ns;
    if (next_ns != UINT64_MAX && !fleet->over)
        fl_virtual_clock_move(&s->time, next_ns);
}

static void end_run(fl_loop *loop, void *arg)
{
    (void)loop;
    ((struct fleet *)arg)->over = true;
}

static void run(struct sim *s)
{
    for (s->fleet->over = false; !s->fleet->over && !s->ledger.failure[0];)
        pass_time(s);
}

void fleet_at(fl_loop *loop, uint64_t delay_ns, fl_loop_fn fn, void *arg)
{
    if (fl_loop_timer(loop, delay_ns, fn, arg, NULL) < 0)
        abort();
}

/* In the world, from wherever: its loop may not have looked at the time yet. */
void fleet_in_the_world(struct sim *s, uint64_t delay_ns, fl_loop_fn fn, void *arg)
{
    if (fl_loop_timer_at(s->loop, (uint64_t)sim_mono_ns(s) + delay_ns, fn, arg, NULL) < 0)
        abort();
    s->fleet->stirred = true;
}

void fleet_post(struct server *server, fl_loop_fn fn, void *arg)
{
    if (fl_loop_post(server->loop, fn, arg) < 0)
        abort();
}

static void run_for(struct sim *s, int64_t us)
{
    if (s->ledger.failure[0])
        return;
    fleet_in_the_world(s, (uint64_t)us * 1000, end_run, s->fleet);
    run(s);
}

/* --- Who is there ------------------------------------------------------------------------------------------------- */

bool fleet_lives(const struct server *server)
{
    return !server->dead;
}

bool fleet_same_address(const struct server *a, const struct server *b)
{
    return strcmp(a->address, b->address) == 0;
}

bool fleet_serves(const struct server *server)
{
    return !server->dead && !server->asked_to_stop;
}

static unsigned count_serving(const struct fleet *fleet)
{
    unsigned count = 0;
    for (const struct server *server = fleet->servers; server; server = server->next)
        count += fleet_serves(server);
    return count;
}

/* NULL: there is none. */
struct server *fleet_some_server(struct sim *s)
{
    unsigned count = count_serving(s->fleet);
    unsigned skip = count > 0 ? (unsigned)below(&s->luck, count) : 0;
    for (struct server *server = s->fleet->servers; server; server = server->next)
        if (fleet_serves(server) && skip-- == 0)
            return server;
    return NULL;
}

struct server *fleet_server_at(const struct fleet *fleet, const char *address)
{
    for (struct server *server = fleet->servers; server; server = server->next)
        if (!server->dead && !server->over && strcmp(server->address, address) == 0)
            return server;
    return NULL;
}

/* --- Engines ------------------------------------------------------------------------------------------------------ */

static void engine_gone(fl_loop *loop, void *arg)
{
    struct actor *actor = arg;
    struct server *server = actor->server;
    uint32_t shard = actor->shard;
    (void)loop;
    sim_say(server->sim, "engine %u is gone", actor->number);
    server->engines[shard] = NULL;
    *actor = (struct actor){0};
    cluster_left(server->cluster, shard);
}

static void stop_engine(struct actor *actor, bool now)
{
    if (actor->stopping)
        return;
    actor->stopping = true;
    actor->crashed = now;
    fl_engine_stop(actor->engine, now, engine_gone, actor);
}

static void stop_lost(fl_loop *loop, void *arg)
{
    struct server *server = arg;
    (void)loop;
    for (uint32_t i = 0; i < server->sim->shards; i++)
        if (server->engines[i] && server->engines[i]->lost)
            stop_engine(server->engines[i], true);
}

static void look(fl_loop *loop, void *arg)
{
    struct server *server = arg;
    (void)loop;
    if (server->cluster)
        cluster_look(server->cluster);
}

/* The others should look. */
static void moved(void *arg)
{
    const struct server *server = arg;
    const struct cluster_view *view = cluster_view(server->cluster);
    for (size_t i = 0; i < view->member_count && !server->dead; i++) {
        struct server *other = fleet_server_at(server->sim->fleet, view->members[i].address);
        if (other && other != server)
            fleet_send(other, look, NULL, other);
    }
}

static void tell_and_look(fl_loop *loop, void *arg)
{
    const struct server *server = arg;
    if (!server->cluster || server->stopping)
        return;
    moved(arg);
    look(loop, arg);
}

static void notify(void *arg, fl_engine *engine, enum fl_engine_event event, int result, const char *message)
{
    struct sim *s = arg;
    struct actor *actor = s->actors;
    while (actor->engine != engine)
        actor++;
    sim_say(s, "engine %u: event %d, %s: %s", actor->number, (int)event, fl_errname(result), message);
    if (event == FL_ENGINE_READY) {
        actor->ready = true;
        fleet_post(actor->server, tell_and_look, actor->server);
    } else if (event == FL_ENGINE_LOST) {
        actor->lost = true;
        fleet_post(actor->server, stop_lost, actor->server);
    }
}

/* --- What a cluster asks for -------------------------------------------------------------------------------------- */

static void take(void *arg, uint32_t shard)
{
    struct server *server = arg;
    struct sim *s = server->sim;
    struct actor *actor = s->actors;
    while (actor->engine)
        actor++;
    fl_engine_config config = s->config;
    config.loop = server->loop;
    config.owner = server->address;
    config.notify = notify;
    config.clock = &server->wall;
    config.shard = shard;
    config.seed = draw(&s->luck) | 1;
    *actor = (struct actor){.number = ++s->actor_count, .server = server, .shard = shard};
    road_actor(s->road, actor->number);
    sim_say(s, "%s takes shard %u: engine %u", server->address, shard, actor->number);
    if (actor == s->actors + ACTORS - 1 || server->engines[shard] || fl_engine_start(&config, &actor->engine) < 0)
        abort();
    server->engines[shard] = actor;
}

static void leave(void *arg, uint32_t shard)
{
    struct server *server = arg;
    struct actor *actor = server->engines[shard];
    sim_say(server->sim, "%s leaves shard %u", server->address, shard);
    if (actor)
        stop_engine(actor, server->dead || actor->lost);
    else
        ledger_fail(&server->sim->ledger, "%s leaves shard %u, which it does not have", server->address, shard);
}

static void changed(void *arg, const struct cluster_view *view)
{
    const struct server *server = arg;
    sim_say(server->sim, "%s sees %zu servers", server->address, view->member_count);
}

static void trouble(void *arg, const char *message)
{
    const struct server *server = arg;
    sim_say(server->sim, "%s: %s", server->address, message);
}

static void freed(fl_loop *loop, void *arg)
{
    struct server *server = arg;
    (void)loop;
    sim_say(server->sim, "%s is over", server->address);
    server->over = true;
    server->cluster = NULL;
}

static void free_it(fl_loop *loop, void *arg)
{
    struct server *server = arg;
    (void)loop;
    cluster_free(server->cluster, freed, server);
}

static void left_all(void *arg)
{
    fleet_post(arg, free_it, arg);
}

/* --- Servers come and go ------------------------------------------------------------------------------------------ */

static void stop_server(fl_loop *loop, void *arg)
{
    struct server *server = arg;
    (void)loop;
    if (server->stopping || !server->cluster)
        return;
    server->stopping = true;
    sim_say(server->sim, "%s stops", server->address);
    cluster_stop(server->cluster, 1000000, left_all);
}

/* It does when it gets to it. */
static void ask_to_stop(struct server *server)
{
    server->asked_to_stop = true;
    fleet_post(server, stop_server, server);
}

static void replaced(void *arg)
{
    const struct server *server = arg;
    sim_say(server->sim, "%s is replaced", server->address);
    ask_to_stop(arg);
}

static void begin(fl_loop *loop, void *arg)
{
    struct server *server = arg;
    struct sim *s = server->sim;
    struct cluster_config config = {.loop = loop,
                                    .store = road_store(s->road),
                                    .address = server->address,
                                    .about = "simulated",
                                    .incarnation = draw(&s->luck) >> 1 | 1,
                                    .claim_us = s->config.claim_us,
                                    .secret = "secret",
                                    .take = take,
                                    .leave = leave,
                                    .changed = changed,
                                    .moved = moved,
                                    .replaced = replaced,
                                    .trouble = trouble,
                                    .arg = server};
    if (server->dead)
        return;
    road_actor(s->road, server->number);
    if (cluster_start(&config, &server->cluster) < 0)
        abort();
}

static struct server *start_server(struct sim *s, const char *address)
{
    struct server *server = calloc(1, sizeof *server);
    if (!server)
        abort();
    *server = (struct server){.sim = s,
                              .number = ++s->actor_count,
                              .time = {server_now_ns, server_waits},
                              .wall = {server_wall_us},
                              .offset_us = (int64_t)below(&s->luck, (uint64_t)s->skew_us * 2 + 1) - s->skew_us,
                              .next = s->fleet->servers};
    snprintf(server->address, sizeof server->address, "%s", address);
    s->fleet->servers = server;
    s->fleet->lives++;
    if (fl_loop_new(&(fl_loop_config){.clock = &server->time}, &server->loop) < 0)
        abort();
    sim_say(s, "%s starts, its clock is %+.3f s off", address, (double)server->offset_us / 1e6);
    fleet_post(server, begin, server);
    return server;
}

static struct server *start_new(struct sim *s)
{
    char address[16];
    snprintf(address, sizeof address, "server %u", (unsigned)below(&s->luck, 100) * 100 + s->fleet->lives);
    return start_server(s, address);
}

static void die(fl_loop *loop, void *arg)
{
    struct server *server = arg;
    for (uint32_t i = 0; i < server->sim->shards; i++)
        if (server->engines[i])
            stop_engine(server->engines[i], true);
    stop_server(loop, server);
}

/* Nothing of it has any effect from now on. It is cleaned up. */
static void crash(struct server *server)
{
    struct sim *s = server->sim;
    sim_say(s, "%s crashes", server->address);
    server->dead = true;
    server->paused = false;
    road_cut(s->road, server->number);
    for (uint32_t i = 0; i < s->shards; i++)
        if (server->engines[i])
            road_cut(s->road, server->engines[i]->number);
    fleet_post(server, die, server);
}

static void wake(fl_loop *loop, void *arg)
{
    struct server *server = arg;
    (void)loop;
    if (server->paused)
        sim_say(server->sim, "%s wakes up", server->address);
    server->paused = false;
}

static void stand_still(struct server *server)
{
    struct sim *s = server->sim;
    if (server->paused)
        return;
    sim_say(s, "%s stands still", server->address);
    server->paused = true;
    fleet_in_the_world(s, below(&s->luck, 3 * s->config.claim_us) * 1000, wake, server);
}

/* Some come back, some take the place of one that lives. */
static void start_some(struct sim *s)
{
    struct server *known = s->fleet->servers;
    for (uint64_t skip = below(&s->luck, s->fleet->lives); known && skip > 0; skip--)
        known = known->next;
    if (count_serving(s->fleet) >= SERVERS_MOST || s->fleet->lives >= LIVES_MOST)
        return;
    if (known && chance(&s->luck, fleet_serves(known) ? 20 : 60))
        start_server(s, known->address);
    else
        start_new(s);
}

static void disaster(struct sim *s)
{
    if (s->nature.goes_back && chance(&s->luck, 30)) {
        sim_go_back(s);
        return;
    }
    struct server *server = fleet_some_server(s);
    switch (count_serving(s->fleet) < 2 ? 5 : below(&s->luck, 6)) {
    case 0:
        crash(server);
        break;
    case 1:
        ask_to_stop(server);
        break;
    case 2:
    case 3:
        stand_still(server);
        break;
    default:
        start_some(s);
    }
}

/* --- A life ------------------------------------------------------------------------------------------------------- */

static void settle_some(fl_loop *loop, void *arg)
{
    const struct server *server = arg;
    (void)loop;
    target_settle(server->sim, server, server->sim->calm ? 100 : 40);
}

static void list(const struct server *server, bool dead)
{
    for (uint32_t i = 0; i < server->sim->shards; i++)
        if (server->engines[i] && !server->engines[i]->stopping)
            clients_list(server->sim, server->engines[i], dead);
}

static void list_living(fl_loop *loop, void *arg)
{
    (void)loop;
    list(arg, false);
}

static void list_dead(fl_loop *loop, void *arg)
{
    (void)loop;
    list(arg, true);
}

static void everywhere(struct sim *s, fl_loop_fn fn)
{
    for (struct server *server = s->fleet->servers; server; server = server->next)
        if (fleet_serves(server))
            fleet_post(server, fn, server);
}

static void act(fl_loop *loop, void *arg)
{
    struct sim *s = arg;
    struct luck *luck = &s->luck;
    unsigned what = (unsigned)below(luck, 100);
    struct server *server = fleet_some_server(s);
    if (s->calm)
        return;
    if (what < 78)
        clients_act(s);
    else if (what < 88)
        everywhere(s, settle_some);
    else if (what < 91 && server)
        fleet_post(server, list_living, server);
    else
        disaster(s);
    sim_check_engines(s);
    if (--s->actions == 0) {
        s->fleet->over = true;
        return;
    }
    uint64_t pause_us = chance(luck, 5) ? below(luck, 10 * SECOND) : below(luck, chance(luck, 30) ? SECOND : 5000);
    fleet_at(loop, pause_us * 1000, act, s);
}

/* Every shard is at work at a server that serves, and nobody has two more than another. */
static void check_shares(struct sim *s, const char *when)
{
    unsigned least = UINT32_MAX, most = 0;
    for (const struct server *server = s->fleet->servers; server; server = server->next) {
        unsigned count = 0;
        for (uint32_t i = 0; i < s->shards && fleet_serves(server); i++) {
            const struct actor *actor = server->engines[i];
            count += actor && actor->ready && !actor->stopping && actor->number == s->ledger.tenures[i].owner;
        }
        if (!fleet_serves(server))
            continue;
        least = count < least ? count : least;
        most = count > most ? count : most;
    }
    for (uint32_t i = 0; i < s->shards; i++) {
        const struct actor *owner = sim_actor(s, s->ledger.tenures[i].owner);
        if (!owner || !owner->ready || owner->stopping || !fleet_serves(owner->server))
            ledger_fail(&s->ledger, "%s, shard %u is at nobody", when, i);
    }
    if (most > least + 1)
        ledger_fail(&s->ledger, "%s, one has %u shards and another %u", when, most, least);
}

static void ask_meanwhile(struct sim *s)
{
    for (int i = 0; i < 20; i++) {
        clients_act(s);
        everywhere(s, settle_some);
        run_for(s, (int64_t)below(&s->luck, 20000));
    }
}

/* One comes or goes, and only what must be moved is. `server`: who goes; NULL: one comes. */
static void check_move(struct sim *s, struct server *server, bool crashes)
{
    unsigned had = 0, moves = 0, count = count_serving(s->fleet);
    uint64_t terms[SHARDS_MOST] = {0};
    for (uint32_t i = 0; i < s->shards; i++) {
        terms[i] = s->ledger.tenures[i].term;
        had += server && server->engines[i] != NULL;
    }
    s->fleet->gentle = !crashes;
    if (!server)
        start_new(s);
    else if (crashes)
        crash(server);
    else
        ask_to_stop(server);
    ask_meanwhile(s);
    run_for(s, (int64_t)s->config.claim_us + SECOND / 10);
    s->fleet->gentle = false;
    for (uint32_t i = 0; i < s->shards; i++)
        moves += s->ledger.tenures[i].term != terms[i];
    check_shares(s, server ? crashes ? "a claim after a crash" : "after one has left" : "after one has come");
    if (moves != (server ? had : s->shards / (count + 1)))
        ledger_fail(&s->ledger, "%u shards have moved when %s", moves, server ? "one went" : "one came");
}

static void find_peace(struct sim *s)
{
    s->calm = true;
    for (struct server *server = s->fleet->servers; server; server = server->next)
        server->paused = false;
    everywhere(s, settle_some);
    run_for(s, (int64_t)s->config.claim_us + 15 * SECOND); /* what was late is over, and who was replaced knows it */
    while (count_serving(s->fleet) < 2)
        start_new(s);
    run_for(s,
            (int64_t)s->config.claim_us + 6 * SECOND); /* new ones give those a head start whose claims have run out */
    check_shares(s, "long after the last trouble");
}

static void check_moves(struct sim *s)
{
    for (int i = 0; i < 4 && !s->ledger.failure[0]; i++) {
        bool comes = count_serving(s->fleet) < 2 || chance(&s->luck, 50);
        check_move(s, comes ? NULL : fleet_some_server(s), !comes && chance(&s->luck, 40));
    }
}

static void end_well(struct sim *s)
{
    find_peace(s);
    check_moves(s);
    everywhere(s, list_living);
    for (int i = 0; i < 200 && !s->ledger.failure[0] && ledger_next_due(&s->ledger) > 0; i++) {
        everywhere(s, settle_some);
        run_for(s, 5 * SECOND);
        sim_check_engines(s);
    }
    everywhere(s, list_dead);
    run_for(s, 10 * SECOND);
    if (s->ledger.failure[0])
        return;
    if (clients_wait(s))
        ledger_fail(&s->ledger, "an operation was never answered");
    ledger_close(&s->ledger, sim_wall_us(s) - s->skew_us);
    if (ledger_next_due(&s->ledger) > 0)
        ledger_fail(&s->ledger, "time does not come to an end");
}

static bool all_are_over(const struct fleet *fleet)
{
    for (const struct server *server = fleet->servers; server; server = server->next)
        if (server->cluster)
            return false;
    return true;
}

static bool tear_down(struct sim *s, char failure[512])
{
    s->calm = true;
    memcpy(failure, s->ledger.failure, sizeof s->ledger.failure);
    for (struct server *server = s->fleet->servers; server; server = server->next)
        if (!server->dead)
            crash(server);
    for (int i = 0; i < 30; i++) {
        s->ledger.failure[0] = 0;
        run_for(s, SECOND);
    }
    if (!all_are_over(s->fleet)) {
        snprintf(failure, sizeof s->ledger.failure, "a server does not come to its end");
        return false;
    }
    while (s->fleet->servers) {
        struct server *server = s->fleet->servers;
        s->fleet->servers = server->next;
        fl_loop_free(server->loop);
        free(server);
    }
    free(s->fleet);
    return true;
}

static void choose(struct sim *s)
{
    struct luck *luck = &s->luck;
    s->nature.steps = s->nature.far = s->nature.thieves = false;
    s->config.claim_us = (uint64_t)SECOND + below(luck, 4 * SECOND);
    s->config.skip_older_us = 0;
    s->skip_odd_us = UINT64_MAX;
    s->skew_us = SECOND / 2;
    s->fleet->lose_percent = chance(luck, 50) ? (unsigned)below(luck, 20) : 0;
    s->fleet->late_ns = chance(luck, 50) ? 6000000000 : 0;
}

bool fleet_live(struct sim *s, char failure[512])
{
    s->fleet = calloc(1, sizeof *s->fleet);
    if (!s->fleet)
        abort();
    s->time.clock.wait_until = world_waits;
    choose(s);
    for (uint64_t count = 1 + below(&s->luck, 4); count > 0; count--)
        start_new(s);
    fleet_at(s->loop, 1000, act, s);
    run(s);
    end_well(s);
    return tear_down(s, failure);
}
