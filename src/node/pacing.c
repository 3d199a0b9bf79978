/* SPDX-License-Identifier: MIT */
/* Which work may begin when. All limits are here, or named here:
 *
 *   in flight    A shard dispatches at most max-in-flight timers that are not settled, and keeps half of the places for first
 *                attempts. That is the engine's (engine/fire.c), since it holds the timers.
 *   lane         A due timer that cannot begin waits in the lane of its host, or of its namespace if it is polled. A lane has a
 *                bounded share of the engine's memory, so it delays no other lane.
 *   pause        What falls due in a paused namespace waits in a lane that is closed (pause.c).
 *   spread       Of a crowd (more than CROWD timers of one namespace that are due at one moment), each is put off to a moment
 *                that its ID decides: so it is put off once.
 *   rate         A namespace begins at most max_rate attempts per second: each server as many as it has of the shards. A tenth of
 *                a second's worth may begin at once. Timers over the limit are put off one behind the other.
 *   host         A worker has its part of webhook-concurrency and webhook-per-host. Of its places, a host gets at most half of
 *                what the other hosts leave (webhook/webhook.c).
 *   leases       A response has at most LEASE_MOST bytes of timers, and less if memory is short. Those that wait are
 *                served in order; news of timers goes to as many watchers as can take all of them (pull.c).
 *
 * A timer that is put off goes back to the engine (FL_LATER): it takes no memory, delays no other timer, and this is not an
 * attempt. */

#include "base/assert.h"
#include "node/internal.h"

enum { CROWD = 16 };
#define BURST_US 100000
#define LEASE_LEAST ((size_t)64 << 10)
#define LEASE_MOST ((size_t)16 << 20) /* and one more timer: it must fit into an answer of one server to another */

/* --- Lanes -------------------------------------------------------------------------------------------------------- */

enum { LANE_PULL = 1 << 23, LANE_PAUSE = 3 << 22, LANE_MASK = LANE_PULL - 1, LANE_SPACE_MASK = (1 << 22) - 1 };

uint32_t lane_of_host(uint64_t hash)
{
    return (uint32_t)hash & LANE_MASK;
}

uint32_t lane_of_space(const struct space *space)
{
    return LANE_PULL | ((uint32_t)space->by_name.hash & LANE_SPACE_MASK);
}

uint32_t lane_of_pause(const struct space *space)
{
    return LANE_PAUSE | ((uint32_t)space->by_name.hash & LANE_SPACE_MASK);
}

/* --- Spread and rate ---------------------------------------------------------------------------------------------- */

/* Takes a place in a row of places that are `interval_us` apart, not before `from_us`. */
static int64_t book(_Atomic int64_t *next_us, int64_t from_us, int64_t interval_us)
{
    int64_t seen = atomic_load_explicit(next_us, memory_order_relaxed), place;
    do
        place = seen > from_us ? seen : from_us;
    while (!atomic_compare_exchange_weak_explicit(next_us, &seen, place + interval_us, memory_order_relaxed,
                                                  memory_order_relaxed));
    return place;
}

/* Whether one more may begin now: a tenth of a second's worth may begin at once. */
static bool pace_allows(struct space *space, int64_t interval_us, int64_t now_us)
{
    int64_t seen = atomic_load_explicit(&space->next_us, memory_order_relaxed), next;
    do {
        if (seen > now_us + BURST_US)
            return false;
        next = (seen > now_us ? seen : now_us) + interval_us;
    } while (!atomic_compare_exchange_weak_explicit(&space->next_us, &seen, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

static bool in_crowd(struct space *space, int64_t due_us)
{
    if (atomic_exchange_explicit(&space->crowd_due_us, due_us, memory_order_relaxed) != due_us)
        atomic_store_explicit(&space->crowd_size, 0, memory_order_relaxed);
    return atomic_fetch_add_explicit(&space->crowd_size, 1, memory_order_relaxed) >= CROWD;
}

/* When the crowd is due that it belongs to: those that waited for the end of a pause are one. */
static int64_t crowd_time(const struct space *space, const struct settings *settings, const fl_firing *firing)
{
    int64_t end_us = firing->parked && firing->lane == lane_of_pause(space) ? pauses_last_end(&settings->pauses) : 0;
    return end_us > firing->timer.due_us ? end_us : firing->timer.due_us;
}

/* How far apart attempts are to be: of what the namespace may have, a server has as much as it has of the shards. */
static int64_t pace_interval(const struct node *node, uint32_t rate)
{
    uint32_t here = atomic_load_explicit(&node->here, memory_order_relaxed);
    fl__assert(rate > 0);
    return (int64_t)1000000 * node->shard_count / ((int64_t)rate * (here > 0 ? here : 1));
}

/* The pace goes by monotonic time: a wall clock that is set back must not stop a namespace until it has caught up. Only a test clock
 * is its own measure. */
static int64_t pace_now_us(const struct worker *worker, int64_t now_us)
{
    return worker->node->config.test_clock ? now_us : (int64_t)(fl_loop_now_ns(worker->loop) / 1000);
}

/* When it may begin; `now_us`: at once. */
int64_t pace_begin_us(const struct worker *worker, struct space *space, const struct settings *settings,
                      const fl_firing *firing, int64_t now_us)
{
    const fl_durable *timer = &firing->timer;
    if (settings->spread_us > 0 && timer->attempt <= 1) {
        uint64_t share = (timer->id.seq * 0x9e3779b97f4a7c15) >> 11;
        int64_t from_us = crowd_time(space, settings, firing);
        int64_t at_us = from_us + (int64_t)(share % settings->spread_us);
        if (now_us < at_us && in_crowd(space, from_us))
            return at_us;
    }
    if (settings->max_rate == 0)
        return now_us;
    int64_t interval_us = pace_interval(worker->node, settings->max_rate), pace_us = pace_now_us(worker, now_us);
    if (pace_allows(space, interval_us, pace_us))
        return now_us;
    return now_us + book(&space->booked_us, pace_us + BURST_US, interval_us) - pace_us;
}

/* --- Hosts and leases --------------------------------------------------------------------------------------------- */

uint32_t pace_share(uint32_t limit, unsigned workers)
{
    fl__assert(workers > 0);
    return (limit + workers - 1) / workers;
}

size_t pace_lease_bytes(const struct worker *worker)
{
    size_t share = worker->node->ports->response_room(worker) / 8;
    return share > LEASE_MOST ? LEASE_MOST : share < LEASE_LEAST ? LEASE_LEAST : share;
}
