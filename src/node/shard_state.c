/* SPDX-License-Identifier: MIT */
/* The states of a shard on this server, which of them may follow which, and what is true in each.
 *
 *     AWAY ─> CLAIMING ─> LOADING ─> SERVING <─> LAPSED
 *              └<─────────┴──────────┴───────────┘        (the engine begins again)
 *              └──────────┴──────────┴───────────┴──> LOST
 *              └──────────┴──────────┴───────────┴─────┴──> ENDING ─> PURGING ─> EMPTYING ─> STOPPING ─> AWAY
 *
 * The counts of the node (how many shards are here, ready, lapsed) follow from the states and are kept here only. */

#include "base/assert.h"
#include "node/internal.h"
#include "text/log.h"

#define BIT(state) (1u << (state))

/* For each state, the states that may follow. */
static const unsigned may_follow[SHARD_STATES] = {
    [SHARD_AWAY] = BIT(SHARD_CLAIMING),
    [SHARD_CLAIMING] = BIT(SHARD_LOADING) | BIT(SHARD_SERVING) | BIT(SHARD_LOST) | BIT(SHARD_ENDING),
    [SHARD_LOADING] = BIT(SHARD_CLAIMING) | BIT(SHARD_SERVING) | BIT(SHARD_LOST) | BIT(SHARD_ENDING),
    [SHARD_SERVING] = BIT(SHARD_CLAIMING) | BIT(SHARD_LAPSED) | BIT(SHARD_LOST) | BIT(SHARD_ENDING),
    [SHARD_LAPSED] = BIT(SHARD_CLAIMING) | BIT(SHARD_SERVING) | BIT(SHARD_LOST) | BIT(SHARD_ENDING),
    [SHARD_LOST] = BIT(SHARD_ENDING),
    [SHARD_ENDING] = BIT(SHARD_PURGING),
    [SHARD_PURGING] = BIT(SHARD_EMPTYING),
    [SHARD_EMPTYING] = BIT(SHARD_STOPPING),
    [SHARD_STOPPING] = BIT(SHARD_AWAY),
};

/* The names in the log. */
static const char *shard_state_name(enum shard_state state)
{
    static const char *const names[SHARD_STATES] = {
        [SHARD_AWAY] = "away",         [SHARD_CLAIMING] = "claiming", [SHARD_LOADING] = "loading",
        [SHARD_SERVING] = "serving",   [SHARD_LAPSED] = "lapsed",     [SHARD_LOST] = "lost",
        [SHARD_ENDING] = "ending",     [SHARD_PURGING] = "purging",   [SHARD_EMPTYING] = "emptying",
        [SHARD_STOPPING] = "stopping",
    };
    return names[state];
}

/* What is true of a shard in its state; NULL, or what is not. On the shard's worker. */
const char *shard_check(const struct shard *shard)
{
    enum shard_state state = shard->state;
    if (state >= SHARD_STATES)
        return "a shard has a state";
    if ((shard->engine != NULL) != (state != SHARD_AWAY && state != SHARD_STOPPING))
        return "a shard has an engine from CLAIMING to EMPTYING";
    if (shard->kept && !shard_is_leaving(shard))
        return "only a shard that leaves keeps calls";
    if (shard->patience && !(state >= SHARD_ENDING && state <= SHARD_EMPTYING))
        return "only a shard that leaves has a limit of patience";
    if (state > SHARD_ENDING && shard->delivering > 0)
        return "a shard without its attempts is purged";
    if (state == SHARD_AWAY && (shard->inside > 0 || shard->delivering > 0 || shard->held > 0 || shard->loading))
        return "nothing is left of a shard that is away";
    if (state == SHARD_AWAY && shard->claim_timer)
        return "a shard that is away has no claim";
    if (shard->hindered && (state < SHARD_CLAIMING || state > SHARD_LAPSED))
        return "only a shard that is claimed, or is to be, is hindered";
    return NULL;
}

void shard_enter(struct shard *shard, enum shard_state state)
{
    struct node *node = shard->worker->node;
    enum shard_state before = shard->state;
    fl__assert((unsigned)before < SHARD_STATES && (unsigned)state < SHARD_STATES);
    fl__assert(may_follow[before] & BIT(state));
    shard->state = state;
    atomic_store_explicit(&shard->serving, state == SHARD_SERVING, memory_order_relaxed);
    atomic_fetch_add(&node->here, (unsigned)(state != SHARD_AWAY) - (before != SHARD_AWAY));
    atomic_fetch_add(&node->ready, (unsigned)(state == SHARD_SERVING) - (before == SHARD_SERVING));
    unsigned lapsed = atomic_fetch_add(&node->lapsed, (unsigned)(state == SHARD_LAPSED) - (before == SHARD_LAPSED));
    if (state != SHARD_CLAIMING && state != SHARD_LOADING && state != SHARD_LAPSED)
        shard_unhindered(shard);
    fl__assert(shard_check(shard) == NULL);
    log_debug("a shard has another state", "shard", log_int(shard->number), "state", shard_state_name(state), NULL);
    if (state == SHARD_LAPSED && lapsed == 0)
        node_lapsed(true);
    else if (before == SHARD_LAPSED && lapsed == 1)
        node_lapsed(false);
}
