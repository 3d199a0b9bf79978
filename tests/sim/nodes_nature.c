/* SPDX-License-Identifier: MIT */
/* What the world of simulated nodes is like: its size, its troubles and the settings of its servers. */

#include <inttypes.h>

#include "sim/nodes.h"

/* What is unusual does not come out of the luck of the others, whose seeds the tests remember. */
void nature_choose_size(struct nodes *w, uint64_t seed)
{
    struct luck own;
    luck_begin(&own, ~seed);
    bool wide = seed & NODES_WIDE;
    w->shards = wide && chance(&own, 70) ? 1 + (uint32_t)below(&own, SHARDS_MOST) : 4;
    w->workers = wide && chance(&own, 70) ? 1 + (unsigned)below(&own, WORKERS_MOST) : 2;
    w->max_memory = 64 << 20;
}

static uint64_t some(struct luck *luck, unsigned percent, uint64_t least, uint64_t range)
{
    return chance(luck, percent) ? least + below(luck, range) : 0;
}

static void widen(struct nodes *w)
{
    struct luck *luck = &w->luck;
    if (w->nature.hosts > 1)
        w->nature.hosts = 2 + (unsigned)below(luck, 4);
    w->nature.goes_back = chance(luck, 30);
    w->skew_us = chance(luck, 40) ? (int64_t)below(luck, 100 * SECOND) : w->skew_us;
    w->claim_us = chance(luck, 40) ? SECOND + (int64_t)below(luck, 60 * SECOND) : w->claim_us;
    w->max_memory = chance(luck, 40) ? 1 << 20 : w->max_memory;
    w->limits = (fl_engine_config){.strategy = chance(luck, 30) ? FL_LOOKAHEAD : FL_PRELOAD,
                                   .record_interval_us = some(luck, 50, 10000, 2 * SECOND),
                                   .max_memory_timers = some(luck, 50, 16, 50),
                                   .max_in_flight = (uint32_t)some(luck, 50, 1, 20),
                                   .max_waiting = (uint32_t)some(luck, 50, 1, 8),
                                   .dispatch_batch = (uint32_t)some(luck, 50, 1, 20),
                                   .preload_us = some(luck, 50, 1000, 10 * SECOND),
                                   .delete_interval_us = some(luck, 50, SECOND, SECOND),
                                   .lookahead_us = some(luck, 50, 1000, 5 * SECOND),
                                   .load_interval_us = some(luck, 50, SECOND, 29 * SECOND),
                                   .load_batch = (uint32_t)some(luck, 50, 1, 20),
                                   .delete_batch = (uint32_t)some(luck, 50, 1, 20),
                                   .catch_up_rate = some(luck, 20, 20, 100)};
}

static void say_limits(struct nodes *w)
{
    const fl_engine_config *l = &w->limits;
    nodes_say(w, "claims last %.3f s, clocks are off by up to %.3f s", (double)w->claim_us / 1e6,
              (double)w->skew_us / 1e6);
    nodes_say(w, "%s, record %" PRIu64 ", timers %" PRIu64 ", in flight %u, waiting %u, batches %u %u %u",
              l->strategy == FL_PRELOAD ? "preload" : "lookahead", l->record_interval_us, l->max_memory_timers,
              l->max_in_flight, l->max_waiting, l->dispatch_batch, l->load_batch, l->delete_batch);
    nodes_say(w, "preload %" PRIu64 ", delete %" PRIu64 ", lookahead %" PRIu64 ", load %" PRIu64 ", catch-up %" PRIu64,
              l->preload_us, l->delete_interval_us, l->lookahead_us, l->load_interval_us, l->catch_up_rate);
}

void nature_choose(struct nodes *w, uint64_t seed)
{
    struct luck *luck = &w->luck;
    w->nature.hosts = chance(luck, 40) ? 1 : 2 + (unsigned)below(luck, 2);
    w->nature.faulty = chance(luck, 30);
    w->nature.slow = chance(luck, 30);
    w->nature.crashes = chance(luck, 50);
    w->nature.jumps = chance(luck, 30);
    w->nature.breaks = chance(luck, 40);
    w->nature.pauses = chance(luck, 50);
    if (chance(luck, 15)) /* a world without trouble */
        w->nature = (struct nature){.hosts = w->nature.hosts};
    w->skew_us = chance(luck, 50) ? SECOND / 2 : 0;
    w->claim_us = SECOND + (int64_t)below(luck, 4 * SECOND);
    w->actions = 50 + (unsigned)below(luck, 250);
    w->nature.edits = seed & NODES_EDITS;
    if (seed & NODES_WIDE)
        widen(w);
    say_limits(w);
}
