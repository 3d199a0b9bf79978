/* SPDX-License-Identifier: MIT */
/* What a server has read of the others, and the plan that follows from it: see cluster.h. */

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/cluster_internal.h"

#define CONNECT_US 1000000 /* the longest time between two attempts of a server to connect to its store */

/* --- The rule ----------------------------------------------------------------------------------------------------- */

/* All members have equal shares. If the number of shards is not divisible, the members with most shards get one more each. */
static void make_shares(const uint32_t *have, uint32_t *share, size_t count, uint32_t shards)
{
    for (size_t i = 0; i < count; i++)
        share[i] = shards / (uint32_t)count;
    for (uint32_t extra = shards % (uint32_t)count; extra > 0; extra--) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < count; i++)
            if (share[i] == shards / count && (best == SIZE_MAX || have[i] > have[best]))
                best = i;
        share[best]++;
    }
}

void cluster_plan(int32_t *owners, uint32_t shards, size_t count, uint32_t *room)
{
    uint32_t *left = room, *share = room + count;
    if (count == 0)
        return;
    memset(left, 0, count * sizeof *left);
    for (uint32_t i = 0; i < shards; i++)
        if (owners[i] >= 0)
            left[owners[i]]++;
    make_shares(left, share, count, shards);
    memcpy(left, share, count * sizeof *left);
    for (uint32_t i = 0; i < shards; i++) {
        if (owners[i] >= 0 && left[owners[i]] > 0)
            left[owners[i]]--;
        else
            owners[i] = -1;
    }
    size_t next = 0;
    for (uint32_t i = 0; i < shards; i++) {
        if (owners[i] >= 0)
            continue;
        while (left[next] == 0)
            next++;
        fl__assert(next < count);
        owners[i] = (int32_t)next;
        left[next]--;
    }
}

/* --- What was read ------------------------------------------------------------------------------------------------ */

void cluster_view_free(struct cluster_view *view)
{
    struct cluster_member *members = (struct cluster_member *)(uintptr_t)view->members;
    for (size_t i = 0; members && i < view->member_count; i++) {
        free(members[i].address);
        free(members[i].about);
    }
    free(members);
    free((int32_t *)(uintptr_t)view->owners);
    *view = (struct cluster_view){0};
}

static int64_t touched_for_us(const struct cluster *c)
{
    return (int64_t)((c->met_ns - c->touched_ns) / 1000);
}

int64_t cluster_head_start_us(const struct cluster *c)
{
    return (int64_t)c->config.claim_us + CONNECT_US - touched_for_us(c);
}

bool cluster_has_run_out(const struct cluster *c, int64_t left_us)
{
    return left_us <= 0 && (cluster_head_start_us(c) <= 0 || -left_us <= touched_for_us(c));
}

static bool has_shards(const struct cluster *c, const char *address)
{
    for (uint32_t i = 0; i < c->view.shard_count; i++) {
        const fl_store_holder *holder = &c->request.meet.holders[i];
        if (strcmp(holder->owner, address) == 0 && !cluster_has_run_out(c, holder->left_us))
            return true;
    }
    return false;
}

/* Only members that own shards get a head start. */
static bool is_gone(const struct cluster *c, const fl_store_member *member)
{
    return member->left_us <= 0 && (cluster_has_run_out(c, member->left_us) || !has_shards(c, member->address));
}

static bool copy_members(const struct cluster *c, struct cluster_view *view)
{
    const fl_store_member *all = c->request.meet.members;
    size_t count = c->request.meet.member_count;
    struct cluster_member *members = calloc(count + 1, sizeof *members);
    view->members = members;
    view->self = SIZE_MAX;
    for (size_t i = 0; members && i < count; i++) {
        if (is_gone(c, &all[i]))
            continue;
        fl__assert(view->member_count < count);
        struct cluster_member *member = &members[view->member_count++];
        bool waits = all[i].about[0] == CLUSTER_WAITS;
        *member =
            (struct cluster_member){strdup(all[i].address), strdup(all[i].about + waits), all[i].incarnation, 0, waits};
        if (!member->address || !member->about)
            return false;
        if (member->incarnation == c->config.incarnation && strcmp(member->address, c->address) == 0)
            view->self = view->member_count - 1;
    }
    return members != NULL;
}

static int by_address(const void *key, const void *member)
{
    return strcmp(key, ((const struct cluster_member *)member)->address);
}

static int by_listed_address(const void *key, const void *member)
{
    return strcmp(key, ((const fl_store_member *)member)->address);
}

/* For a shard whose holder is not a member. A server that stops leaves the list before it gives up its shards. */
static int32_t is_moving_or_dead(const struct cluster *c, const fl_store_holder *holder)
{
    const fl_store_member *listed = c->request.meet.members;
    bool dead = *holder->owner &&
                (cluster_has_run_out(c, holder->left_us) ||
                 bsearch(holder->owner, listed, c->request.meet.member_count, sizeof *listed, by_listed_address));
    return dead ? CLUSTER_DEAD : CLUSTER_MOVING;
}

static bool copy_owners(const struct cluster *c, struct cluster_view *view)
{
    const fl_store_holder *holders = c->request.meet.holders;
    int32_t *owners = malloc(view->shard_count * sizeof *owners);
    view->owners = owners;
    for (uint32_t i = 0; owners && i < view->shard_count; i++) {
        struct cluster_member *member = NULL;
        if (*holders[i].owner && !cluster_has_run_out(c, holders[i].left_us))
            member = bsearch(holders[i].owner, view->members, view->member_count, sizeof *member, by_address);
        owners[i] = member ? (int32_t)(member - view->members) : is_moving_or_dead(c, &holders[i]);
        if (member)
            member->shards++;
    }
    return owners != NULL;
}

bool cluster_view_is_same(const struct cluster_view *a, const struct cluster_view *b)
{
    if (a->member_count != b->member_count || a->self != b->self || !a->owners)
        return false;
    for (size_t i = 0; i < a->member_count; i++)
        if (a->members[i].incarnation != b->members[i].incarnation || a->members[i].waits != b->members[i].waits ||
            strcmp(a->members[i].address, b->members[i].address) != 0)
            return false;
    return memcmp(a->owners, b->owners, a->shard_count * sizeof *a->owners) == 0;
}

bool cluster_view_read(const struct cluster *c, struct cluster_view *view)
{
    return copy_members(c, view) && copy_owners(c, view);
}
