/* SPDX-License-Identifier: MIT */
/* Who is there, and which shards each has: see cluster.h.
 *
 * A meeting is one request to the store, and only one is under way at a time. The next is a third of a lease later; or when
 * somebody's time, or the lease of a shard, could run out, so that what a dead server had is taken at the first moment at
 * which the store allows it; or at once, when somebody tells that something has moved. */

#include <stdlib.h>
#include <string.h>

#include "server/cluster.h"

enum { NOT_HERE, TAKEN, LEAVING, JUST_LEFT }; /* the last: a meeting is under way that does not know of it yet */

enum { WAITS = '~' }; /* the mark */

#define SLACK_US 5000 /* so that a moment has passed when we look */

struct cluster {
    struct cluster_config config;
    char *address, *secret;
    char *about; /* behind the mark of those who wait */
    bool waits;
    fl_shard *attached;
    fl_store_request request;
    bool asking, again; /* a meeting is under way, or what it has found is being acted on; another is wanted at once */
    bool joined;
    fl_timer_id timer; /* of the next; 0: none */
    struct cluster_view view;
    uint8_t *here; /* of each shard */
    uint32_t here_count;
    bool stopping, left_list, stopped;
    void (*done)(void *arg);
    fl_loop_fn freed;
    void *freed_arg;
};

/* --- The rule ----------------------------------------------------------------------------------------------------- */

/* Everybody has an equal share; where that does not come out even, those who have most anyway have one more. */
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
        owners[i] = (int32_t)next;
        left[next]--;
    }
}

/* --- What was read ------------------------------------------------------------------------------------------------ */

static void view_free(struct cluster_view *view)
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

static bool copy_members(struct cluster *c, struct cluster_view *view)
{
    const fl_store_member *all = c->request.meet.members;
    size_t count = c->request.meet.member_count;
    struct cluster_member *members = calloc(count + 1, sizeof *members);
    view->members = members;
    view->self = SIZE_MAX;
    for (size_t i = 0; members && i < count; i++) {
        if (all[i].left_us <= 0)
            continue;
        struct cluster_member *member = &members[view->member_count++];
        bool waits = all[i].about[0] == WAITS;
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

static bool copy_owners(struct cluster *c, struct cluster_view *view)
{
    const fl_store_holder *holders = c->request.meet.holders;
    int32_t *owners = malloc(view->shard_count * sizeof *owners);
    view->owners = owners;
    for (uint32_t i = 0; owners && i < view->shard_count; i++) {
        struct cluster_member *member = NULL;
        if (*holders[i].owner && holders[i].left_us > 0)
            member = bsearch(holders[i].owner, view->members, view->member_count, sizeof *member, by_address);
        owners[i] = member ? (int32_t)(member - view->members) : -1;
        if (member)
            member->shards++;
    }
    return owners != NULL;
}

static bool same_view(const struct cluster_view *a, const struct cluster_view *b)
{
    if (a->member_count != b->member_count || a->self != b->self || !a->owners)
        return false;
    for (size_t i = 0; i < a->member_count; i++)
        if (a->members[i].incarnation != b->members[i].incarnation || a->members[i].waits != b->members[i].waits ||
            strcmp(a->members[i].address, b->members[i].address) != 0)
            return false;
    return memcmp(a->owners, b->owners, a->shard_count * sizeof *a->owners) == 0;
}

const struct cluster_view *cluster_view(const cluster *c)
{
    return &c->view;
}

/* --- Acting on it ------------------------------------------------------------------------------------------------- */

/* Whether we may claim it now. What the store still has under our own name is from a process before this one. */
static bool is_free(const struct cluster *c, const fl_store_holder *holder)
{
    return !*holder->owner || holder->left_us <= 0 || strcmp(holder->owner, c->address) == 0;
}

static void take(struct cluster *c, uint32_t shard)
{
    c->here[shard] = TAKEN;
    c->here_count++;
    c->config.take(c->config.arg, shard);
}

static void leave(struct cluster *c, uint32_t shard)
{
    c->here[shard] = LEAVING;
    c->config.leave(c->config.arg, shard);
}

/* Numbers those who have a share, in `places`, and has the owners by these numbers. Returns how many they are. */
static size_t begin_plan(const struct cluster *c, int32_t *plan, int32_t *places)
{
    size_t count = 0;
    for (size_t i = 0; i < c->view.member_count; i++)
        places[i] = c->view.members[i].waits ? -1 : (int32_t)count++;
    for (uint32_t i = 0; i < c->view.shard_count; i++)
        plan[i] = c->view.owners[i] < 0 ? -1 : places[c->view.owners[i]];
    return count;
}

static void follow_plan(struct cluster *c)
{
    uint32_t shards = c->view.shard_count;
    int32_t *plan = malloc(shards * sizeof *plan), *places = malloc(c->view.member_count * sizeof *places);
    uint32_t *room = malloc(2 * c->view.member_count * sizeof *room);
    if (plan && places && room) {
        size_t count = begin_plan(c, plan, places);
        int32_t self = places[c->view.self];
        cluster_plan(plan, shards, count, room);
        for (uint32_t i = 0; i < shards && self >= 0; i++) {
            if (plan[i] != self && c->here[i] == TAKEN)
                leave(c, i);
            else if (plan[i] == self && c->here[i] == NOT_HERE && is_free(c, &c->request.meet.holders[i]))
                take(c, i);
        }
    }
    free(plan);
    free(places);
    free(room);
}

static bool joined_by_other(const struct cluster *c)
{
    for (size_t i = 0; i < c->request.meet.member_count; i++)
        if (strcmp(c->request.meet.members[i].address, c->address) == 0)
            return c->request.meet.members[i].incarnation != c->config.incarnation;
    return false;
}

/* Takes in what a meeting has found. */
static void take_in(struct cluster *c)
{
    struct cluster_view fresh = {.shard_count = c->view.shard_count};
    if (!copy_members(c, &fresh) || !copy_owners(c, &fresh)) {
        view_free(&fresh);
        return; /* and does so the next time */
    }
    if (strcmp(c->secret, c->request.meet.secret) != 0) { /* somebody else was first */
        char *secret = strdup(c->request.meet.secret);
        if (secret) {
            free(c->secret);
            c->secret = secret;
        }
    }
    fresh.secret = c->secret;
    bool same = same_view(&c->view, &fresh);
    struct cluster_view before = c->view;
    c->view = fresh;
    view_free(&before);
    if (!same)
        c->config.changed(c->config.arg, &c->view);
    if (c->view.self != SIZE_MAX)
        follow_plan(c);
}

/* --- Meetings ----------------------------------------------------------------------------------------------------- */

static void meet(struct cluster *c);

static void stopped_if_over(struct cluster *c)
{
    if (c->stopped || !c->left_list || c->here_count > 0)
        return;
    c->stopped = true;
    c->done(c->config.arg);
}

static void leave_all(struct cluster *c)
{
    c->left_list = true;
    for (uint32_t i = 0; i < c->view.shard_count; i++)
        if (c->here[i] == TAKEN)
            leave(c, i);
    stopped_if_over(c);
}

static void time_to_meet(fl_loop *loop, void *arg)
{
    struct cluster *c = arg;
    (void)loop;
    c->timer = 0;
    meet(c);
}

/* When the next meeting is to be, at the latest. */
static uint64_t next_us(const struct cluster *c)
{
    uint64_t next = c->config.lease_us / 3;
    if (c->request.result < 0)
        return next / 3;
    for (size_t i = 0; i < c->request.meet.member_count; i++) {
        int64_t left = c->request.meet.members[i].left_us;
        if (left > 0 && (uint64_t)left < next)
            next = (uint64_t)left;
    }
    for (uint32_t i = 0; i < c->view.shard_count; i++) {
        const fl_store_holder *holder = &c->request.meet.holders[i];
        if (c->here[i] == NOT_HERE && *holder->owner && holder->left_us > 0 && (uint64_t)holder->left_us < next)
            next = (uint64_t)holder->left_us;
    }
    return next;
}

static void plan_meeting(struct cluster *c)
{
    c->asking = false;
    if (c->again || fl_loop_timer(c->config.loop, (next_us(c) + SLACK_US) * 1000, time_to_meet, c, &c->timer) < 0)
        meet(c);
}

static void met(fl_store_request *request)
{
    struct cluster *c = request->arg;
    if (request->result < 0 && !c->stopping)
        c->config.trouble(c->config.arg, request->message);
    if (request->result == 0 && request->meet.lease_us > 0 && !c->stopping) {
        bool replaced = c->joined && joined_by_other(c);
        c->joined = true;
        take_in(c);
        if (c->view.self == SIZE_MAX)
            c->joined = false; /* it is written down again */
        if (replaced) {
            c->asking = false;
            c->config.replaced(c->config.arg);
            return;
        }
    }
    if (c->stopping && request->meet.lease_us == 0)
        leave_all(c);
    else
        plan_meeting(c);
}

static void meet(struct cluster *c)
{
    c->again = false;
    c->asking = true;
    for (uint32_t i = 0; i < c->view.shard_count; i++)
        if (c->here[i] == JUST_LEFT)
            c->here[i] = NOT_HERE;
    c->request = (fl_store_request){.op = FL_STORE_MEET,
                                    .done = met,
                                    .arg = c,
                                    .meet = {.address = c->address,
                                             .about = c->about + !c->waits,
                                             .incarnation = c->config.incarnation,
                                             .lease_us = c->stopping ? 0 : c->config.lease_us,
                                             .join = !c->joined && !c->stopping, /* who has our place keeps it */
                                             .offer = c->secret}};
    fl_store_submit(c->attached, &c->request);
}

void cluster_look(cluster *c)
{
    if (c->asking) {
        c->again = true;
        return;
    }
    if (c->left_list)
        return;
    if (c->timer)
        fl_loop_cancel(c->config.loop, c->timer);
    c->timer = 0;
    meet(c);
}

void cluster_ready(cluster *c)
{
    if (!c->waits)
        return;
    c->waits = false;
    cluster_look(c);
}

/* Returns whether it was here. */
static bool forget(struct cluster *c, uint32_t shard)
{
    if (c->here[shard] == NOT_HERE || c->here[shard] == JUST_LEFT)
        return false;
    c->here[shard] = c->asking ? JUST_LEFT : NOT_HERE;
    c->here_count--;
    return true;
}

void cluster_left(cluster *c, uint32_t shard)
{
    if (!forget(c, shard))
        return;
    c->config.moved(c->config.arg);
    if (c->stopping)
        stopped_if_over(c);
    else
        cluster_look(c);
}

void cluster_failed(cluster *c, uint32_t shard)
{
    if (forget(c, shard) && c->stopping)
        stopped_if_over(c);
}

/* --- Beginning and end -------------------------------------------------------------------------------------------- */

static void release(struct cluster *c)
{
    view_free(&c->view);
    free(c->here);
    free(c->address);
    free(c->about);
    free(c->secret);
    free(c);
}

int cluster_start(const struct cluster_config *config, cluster **ret)
{
    struct cluster *c = calloc(1, sizeof *c);
    if (!c)
        return FL_NO_MEMORY;
    c->config = *config;
    c->view.shard_count = fl_store_shards(config->store);
    c->here = calloc(c->view.shard_count, 1);
    c->address = strdup(config->address);
    c->about = malloc(strlen(config->about) + 2);
    c->waits = config->waits;
    c->secret = strdup(config->secret);
    int r = c->here && c->address && c->about && c->secret
                ? fl_store_attach(config->store, 0, config->loop, &c->attached)
                : FL_NO_MEMORY;
    if (r < 0) {
        release(c);
        return r;
    }
    c->about[0] = WAITS;
    memcpy(c->about + 1, config->about, strlen(config->about) + 1);
    *ret = c;
    meet(c);
    return 0;
}

void cluster_stop(cluster *c, void (*done)(void *arg))
{
    c->stopping = true;
    c->done = done;
    cluster_look(c);
}

static void detached(fl_loop *loop, void *arg)
{
    struct cluster *c = arg;
    fl_loop_fn done = c->freed;
    void *done_arg = c->freed_arg;
    release(c);
    done(loop, done_arg);
}

void cluster_free(cluster *c, fl_loop_fn done, void *arg)
{
    c->freed = done;
    c->freed_arg = arg;
    fl_store_detach(c->attached, detached, c);
}
