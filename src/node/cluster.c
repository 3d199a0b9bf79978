/* SPDX-License-Identifier: MIT */
/* The list of servers, and the owner of each shard: see cluster.h.
 *
 * A meeting is one request to the store. Only one is in progress at a time. The next meeting is a third of a claim later. It
 * is earlier if another server's entry or the claim of a shard expires earlier, so that the shards of a dead server are
 * taken as soon as the store allows it. It is at once when another server says that shards have moved.
 *
 * After an outage of the store, all claims have expired, and the first server to reconnect would take every shard. So a
 * server that has just reached the store, again or for the first time, leaves shards with claims that expired before to
 * their owners. The owners have a head start of one claim plus a second to connect. Claims that expire while a server meets
 * regularly are free at once. */

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/cluster_internal.h"

/* JUST_LEFT: left during a meeting, which may still report us as the owner. */
enum { NOT_HERE, TAKEN, LEAVING, JUST_LEFT };

#define SLACK_US 5000 /* so that an expiry time has passed when we meet */
#define IN_TOUCH(claim_us) \
    ((claim_us) / 3 * 2) /* after a longer time without a meeting, a claim may have expired unnoticed */

const struct cluster_view *cluster_view(const cluster *c)
{
    return &c->view;
}

/* --- Following the plan ------------------------------------------------------------------------------------------- */

/* Whether we may claim a shard now. A claim under our own address is from an earlier process. */
static bool is_free(const struct cluster *c, const fl_store_holder *holder)
{
    return !*holder->owner || cluster_has_run_out(c, holder->left_us) || strcmp(holder->owner, c->address) == 0;
}

static void take(struct cluster *c, uint32_t shard)
{
    fl__assert(shard < c->view.shard_count && c->here[shard] == NOT_HERE);
    c->here[shard] = TAKEN;
    c->here_count++;
    c->config.take(c->config.arg, shard);
}

static void leave(struct cluster *c, uint32_t shard)
{
    fl__assert(shard < c->view.shard_count && c->here[shard] == TAKEN);
    c->here[shard] = LEAVING;
    c->config.leave(c->config.arg, shard);
}

/* Numbers the members that have a share, in `places`, and writes the owners by these numbers. Returns the number of members
 * with a share. */
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
    fl__assert(c->view.self < c->view.member_count && !c->stopping);
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

/* Whether another process has joined with our address. Our entry overwrote any earlier one. If an earlier one is there again,
 * the store has gone back to an earlier state, and we join again. The time that an entry has left tells when it was
 * written. */
static bool joined_by_other(const struct cluster *c)
{
    uint64_t joined_us = (fl_loop_now_ns(c->config.loop) - c->joined_ns) / 1000;
    int64_t left_us = joined_us < c->config.claim_us ? (int64_t)(c->config.claim_us - joined_us) : 0;
    for (size_t i = 0; i < c->request.meet.member_count; i++) {
        const fl_store_member *member = &c->request.meet.members[i];
        if (strcmp(member->address, c->address) == 0)
            return member->incarnation != c->config.incarnation && member->left_us > left_us;
    }
    return false;
}

/* Takes the secret of the store, because another server wrote its secret first, or an operator rotated it. Returns whether it
 * has changed. */
static bool take_secret(struct cluster *c)
{
    const char *found = c->request.meet.secret;
    char *secret = *found && strcmp(c->secret, found) != 0 ? strdup(found) : NULL;
    if (!secret)
        return false;
    free(c->secret);
    c->secret = secret;
    return true;
}

/* Takes in the result of a meeting. */
static void take_in(struct cluster *c)
{
    struct cluster_view fresh = {.shard_count = c->view.shard_count};
    if (!cluster_view_read(c, &fresh)) {
        cluster_view_free(&fresh);
        return; /* the next meeting tries again */
    }
    bool same = !take_secret(c) && cluster_view_is_same(&c->view, &fresh);
    fresh.secret = c->secret;
    struct cluster_view before = c->view;
    c->view = fresh;
    cluster_view_free(&before);
    if (!same)
        c->config.changed(c->config.arg, &c->view);
    if (c->view.self != SIZE_MAX && !c->stopping)
        follow_plan(c);
}

/* --- Meetings ----------------------------------------------------------------------------------------------------- */

static void meet(struct cluster *c);

/* Whether all shards have new owners, or there is no server that could take them. */
static bool is_succeeded(const struct cluster *c)
{
    bool others = false;
    for (size_t i = 0; i < c->view.member_count; i++)
        others |= i != c->view.self && !c->view.members[i].waits;
    for (uint32_t i = 0; others && i < c->view.shard_count; i++)
        if (!c->view.owners || c->view.owners[i] < 0 || (size_t)c->view.owners[i] == c->view.self)
            return false;
    return true;
}

static void stopped_if_over(struct cluster *c)
{
    if (c->stopped || !c->left_list || c->here_count > 0 || !(c->impatient || is_succeeded(c)))
        return;
    fl__assert(c->stopping && c->done);
    c->stopped = true;
    if (c->patience)
        fl_loop_cancel(c->config.loop, c->patience);
    c->patience = 0;
    c->done(c->config.arg);
}

static void out_of_patience(fl_loop *loop, void *arg)
{
    struct cluster *c = arg;
    (void)loop;
    c->patience = 0;
    c->impatient = true;
    stopped_if_over(c);
}

static void leave_all(struct cluster *c)
{
    fl__assert(c->stopping);
    c->left_list = true;
    for (uint32_t i = 0; i < c->view.shard_count; i++)
        if (c->here[i] == TAKEN)
            leave(c, i);
}

static void time_to_meet(fl_loop *loop, void *arg)
{
    struct cluster *c = arg;
    (void)loop;
    c->timer = 0;
    meet(c);
}

/* The time until the next meeting, at most. */
static uint64_t next_us(const struct cluster *c)
{
    uint64_t next = c->config.claim_us / 3;
    if (c->request.result < 0)
        return next / 3;
    if (cluster_head_start_us(c) > 0 && (uint64_t)cluster_head_start_us(c) < next)
        next = (uint64_t)cluster_head_start_us(c);
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
    fl__assert(c->asking);
    c->asking = false;
    if (c->again || fl_loop_timer(c->config.loop, (next_us(c) + SLACK_US) * 1000, time_to_meet, c, &c->timer) < 0)
        meet(c);
}

static void keep_in_touch(struct cluster *c)
{
    uint64_t now_ns = fl_loop_now_ns(c->config.loop);
    if (c->touched_ns == 0 || now_ns - c->met_ns > IN_TOUCH(c->config.claim_us) * 1000)
        c->touched_ns = now_ns;
    c->met_ns = now_ns;
}

static void met(fl_store_request *request)
{
    struct cluster *c = request->arg;
    fl__assert(c->asking);
    if (c->freeing) {
        fl_loop_post_task(c->config.loop, &c->detach_task); /* not inside a callback of the store */
        return;
    }
    if (request->result < 0 && !c->stopping)
        c->config.trouble(c->config.arg, request->message);
    if (request->result == 0)
        keep_in_touch(c);
    if (request->result == 0 && c->stopping) {
        take_in(c);
    } else if (request->result == 0) {
        bool replaced = c->joined && joined_by_other(c);
        if (request->meet.join)
            c->joined_ns = fl_loop_now_ns(c->config.loop);
        c->joined = true;
        take_in(c);
        if (c->view.self == SIZE_MAX || (*c->secret && !*request->meet.secret))
            c->joined = false; /* the next meeting joins again */
        if (replaced) {
            c->asking = false;
            c->config.replaced(c->config.arg);
            return;
        }
    }
    if (c->stopping && request->meet.claim_us == 0 && !c->left_list)
        leave_all(c);
    stopped_if_over(c);
    plan_meeting(c);
}

static void meet(struct cluster *c)
{
    fl__assert(!c->asking && !c->held);
    c->again = false;
    c->asking = true;
    for (uint32_t i = 0; i < c->view.shard_count; i++)
        if (c->here[i] == JUST_LEFT)
            c->here[i] = NOT_HERE;
    c->request = (fl_store_request){
        .op = FL_STORE_MEET,
        .done = met,
        .arg = c,
        .meet = {.address = c->left_list ? NULL : c->address, /* NULL: it only reads */
                 .about = c->about + !c->waits,
                 .incarnation = c->config.incarnation,
                 .claim_us = c->stopping ? 0 : c->config.claim_us,
                 .join = !c->joined && !c->stopping, /* does not overwrite a process that has joined with our address */
                 .offer = c->secret}};
    fl_store_submit(c->attached, &c->request);
}

void cluster_look(cluster *c)
{
    if (c->asking) {
        c->again = true;
        return;
    }
    if (c->freeing || c->held)
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

/* Returns whether the shard was taken or leaving. */
static bool forget(struct cluster *c, uint32_t shard)
{
    fl__assert(shard < c->view.shard_count);
    if (c->here[shard] == NOT_HERE || c->here[shard] == JUST_LEFT)
        return false;
    c->here[shard] = c->asking ? JUST_LEFT : NOT_HERE;
    fl__assert(c->here_count > 0);
    c->here_count--;
    return true;
}

void cluster_left(cluster *c, uint32_t shard)
{
    if (!forget(c, shard))
        return;
    c->config.moved(c->config.arg);
    cluster_look(c);
}

void cluster_failed(cluster *c, uint32_t shard)
{
    if (forget(c, shard) && c->stopping)
        cluster_look(c);
}

/* --- Beginning and end -------------------------------------------------------------------------------------------- */

static void release(struct cluster *c)
{
    cluster_view_free(&c->view);
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
    c->held = config->hold;
    c->waits = config->waits;
    c->secret = strdup(config->secret);
    int r = c->here && c->address && c->about && c->secret
                ? fl_store_attach(config->store, 0, config->loop, &c->attached)
                : FL_NO_MEMORY;
    if (r < 0) {
        release(c);
        return r;
    }
    c->about[0] = CLUSTER_WAITS;
    memcpy(c->about + 1, config->about, strlen(config->about) + 1);
    *ret = c;
    if (!c->held)
        meet(c);
    return 0;
}

void cluster_join(cluster *c)
{
    if (!c->held || c->stopping)
        return;
    c->held = false;
    meet(c);
}

void cluster_stop(cluster *c, uint64_t patience_us, void (*done)(void *arg))
{
    c->stopping = true;
    c->done = done;
    if (c->held) {
        c->left_list = true;
        stopped_if_over(c);
        return;
    }
    c->impatient = fl_loop_timer(c->config.loop, patience_us * 1000, out_of_patience, c, &c->patience) < 0;
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

static void detach(fl_loop *loop, void *arg)
{
    struct cluster *c = arg;
    (void)loop;
    fl_store_detach(c->attached, detached, c);
}

/* Waits for the end of the current meeting. */
void cluster_free(cluster *c, fl_loop_fn done, void *arg)
{
    c->freed = done;
    c->freed_arg = arg;
    c->freeing = true;
    c->detach_task = (fl_loop_task){.fn = detach, .arg = c};
    if (c->timer)
        fl_loop_cancel(c->config.loop, c->timer);
    if (!c->asking)
        detach(c->config.loop, c);
}
