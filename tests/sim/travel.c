/* SPDX-License-Identifier: MIT */
/* Messages between servers of a fleet, and what clients ask of it: see fleet.c. */

#include <stdlib.h>

#include "node/wire.h"
#include "sim/fleet.h"

/* --- Messages ----------------------------------------------------------------------------------------------------- */

struct message {
    struct server *to;
    fl_loop_fn arrived;      /* there */
    void (*lost)(void *arg); /* anywhere; may be NULL */
    void *arg;
};

static void lose(struct message *message)
{
    if (message->lost)
        message->lost(message->arg);
    free(message);
}

static void is_lost(fl_loop *loop, void *arg)
{
    (void)loop;
    lose(arg);
}

static void arrive(fl_loop *loop, void *arg)
{
    struct message *message = arg;
    if (message->to->dead) {
        lose(message);
        return;
    }
    message->arrived(loop, message->arg);
    free(message);
}

static void reach(fl_loop *loop, void *arg)
{
    (void)loop;
    fleet_post(((struct message *)arg)->to, arrive, arg);
}

void fleet_send(struct server *to, fl_loop_fn arrived, void (*lost)(void *arg), void *arg)
{
    struct sim *s = to->sim;
    struct message *message = malloc(sizeof *message);
    if (!message)
        abort();
    *message = (struct message){to, arrived, lost, arg};
    bool good = s->calm || !chance(&s->luck, s->fleet->lose_percent);
    uint64_t late_ns = s->calm ? 0 : below(&s->luck, chance(&s->luck, 90) ? 2000000 : s->fleet->late_ns + 1);
    fleet_in_the_world(s, late_ns, good ? reach : is_lost, message);
}

/* --- What clients ask --------------------------------------------------------------------------------------------- */

#define WAIT_NS 1000000000u     /* for a shard that moves */
#define AGAIN_NS 20000000u      /* and is tried again after this */
#define PATIENCE_NS 10000000000 /* of a client */

/* On its way: to a server, perhaps to another one, and back. */
struct travel {
    struct sim *sim;
    fl_batch *batch;
    uint32_t shard;
    unsigned *ret_actor;
    struct server *home;
    uint64_t began_ns;
    struct out question, answer;
    bool moved; /* it was not there: nothing was done */
};

/* What of it is at an engine. */
struct visit {
    struct travel *travel;
    struct server *there;
    unsigned actor;
    uint64_t tick;
    fl_batch batch;
    fl_op ops[ASKS_MOST];
};

static void end_travel(struct travel *travel, int result)
{
    struct sim *s = travel->sim;
    struct wire wire = wire_begin(out_bytes(&travel->answer));
    if (result == 0 && (uint64_t)sim_mono_ns(s) - travel->began_ns > PATIENCE_NS)
        result = FL_OUTCOME_UNKNOWN;
    for (size_t i = 0; i < travel->batch->count; i++)
        if (result < 0)
            travel->batch->ops[i].result = result;
        else
            wire_answer(&wire, &travel->batch->ops[i], false);
    if (wire.bad)
        ledger_fail(&s->ledger, "an answer cannot be read");
    if (result < 0 && s->fleet->gentle && fleet_serves(travel->home))
        ledger_fail(&s->ledger, "an operation on shard %u fails, with nothing wrong: %s", travel->shard,
                    fl_errname(result));
    travel->batch->done(travel->batch);
    out_free(&travel->question);
    out_free(&travel->answer);
    free(travel);
}

static void travel_lost(void *arg)
{
    end_travel(arg, FL_OUTCOME_UNKNOWN);
}

static void route(fl_loop *loop, void *arg);

/* The answer has come home. */
static void come_home(fl_loop *loop, void *arg)
{
    struct travel *travel = arg;
    if (!travel->moved)
        end_travel(travel, 0);
    else if (travel->home->dead || (uint64_t)sim_mono_ns(travel->sim) > travel->began_ns + WAIT_NS)
        end_travel(travel, FL_STORE_UNAVAILABLE);
    else
        fleet_at(loop, AGAIN_NS, route, travel);
}

static void go_home(struct server *from, struct travel *travel)
{
    if (travel->home == from)
        come_home(from->loop, travel);
    else if (from->dead)
        travel_lost(travel);
    else
        fleet_send(travel->home, come_home, travel_lost, travel);
}

static bool was_stopped(const fl_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->ops[i].result != FL_STOPPED)
            return false;
    return true;
}

/* Nobody says that something is done who did not have the shard at any time in which it could have been. */
static void check_owner(const struct visit *visit)
{
    struct ledger *l = &visit->travel->sim->ledger;
    const struct tenure *tenure = &l->tenures[visit->travel->shard];
    for (size_t i = 0; i < visit->batch.count; i++)
        if (visit->ops[i].result == 0 && visit->ops[i].kind != FL_OP_GET && tenure->owner != visit->actor &&
            tenure->since_tick < visit->tick)
            ledger_fail(l, "engine %u acknowledges, and engine %u has the shard", visit->actor, tenure->owner);
}

static void visited(fl_batch *batch)
{
    struct visit *visit = batch->arg;
    struct travel *travel = visit->travel;
    struct server *there = visit->there;
    travel->moved = was_stopped(batch);
    check_owner(visit);
    out_clear(&travel->answer);
    for (size_t i = 0; i < batch->count; i++)
        wire_put_answer(&travel->answer, &visit->ops[i], false);
    free(visit);
    go_home(there, travel);
}

/* At the server that should have the shard. */
static void call_at(struct server *there, struct travel *travel)
{
    const struct actor *actor = there->engines[travel->shard];
    if (!actor || actor->stopping) {
        travel->moved = true;
        go_home(there, travel);
        return;
    }
    struct visit *visit = malloc(sizeof *visit);
    if (!visit)
        abort();
    *visit = (struct visit){.travel = travel,
                            .there = there,
                            .actor = actor->number,
                            .tick = ++travel->sim->ledger.tick,
                            .batch = {.ops = visit->ops, .done = visited, .arg = visit}};
    struct wire wire = wire_begin(out_bytes(&travel->question));
    for (size_t count = wire_count(&wire); count > 0; count--)
        wire_op(&wire, &visit->ops[visit->batch.count++]);
    if (wire.bad)
        ledger_fail(&travel->sim->ledger, "a question cannot be read");
    *travel->ret_actor = actor->number;
    fl_engine_submit(actor->engine, &visit->batch);
}

static struct server *by_loop(const struct fleet *fleet, const fl_loop *loop)
{
    struct server *server = fleet->servers;
    while (server->loop != loop)
        server = server->next;
    return server;
}

static void question_came(fl_loop *loop, void *arg)
{
    struct travel *travel = arg;
    call_at(by_loop(travel->sim->fleet, loop), travel);
}

/* At home: who has it? */
static void route(fl_loop *loop, void *arg)
{
    struct travel *travel = arg;
    struct server *home = travel->home;
    const struct cluster_view *view = home->cluster ? cluster_view(home->cluster) : NULL;
    int32_t owner = view && view->owners ? view->owners[travel->shard] : -1;
    travel->moved = false;
    if (home->dead) {
        travel_lost(travel);
        return;
    }
    if (owner < 0 || (size_t)owner == view->self) {
        call_at(home, travel);
        return;
    }
    struct server *there = fleet_server_at(travel->sim->fleet, view->members[owner].address);
    if (there) {
        fleet_send(there, question_came, travel_lost, travel);
    } else {
        travel->moved = true;
        come_home(loop, travel);
    }
}

static void nobody_is_there(fl_loop *loop, void *arg)
{
    (void)loop;
    end_travel(arg, FL_STORE_UNAVAILABLE);
}

void fleet_ask(struct sim *s, fl_batch *batch, uint32_t shard, unsigned *ret_actor)
{
    struct travel *travel = malloc(sizeof *travel);
    if (!travel)
        abort();
    *travel = (struct travel){.sim = s,
                              .batch = batch,
                              .shard = shard,
                              .ret_actor = ret_actor,
                              .home = fleet_some_server(s),
                              .began_ns = (uint64_t)sim_mono_ns(s)};
    wire_put_number(&travel->question, batch->count);
    for (size_t i = 0; i < batch->count; i++)
        wire_put_op(&travel->question, &batch->ops[i]);
    if (travel->home)
        fleet_post(travel->home, route, travel);
    else
        fleet_in_the_world(s, 0, nobody_is_there, travel);
}
