/* SPDX-License-Identifier: MIT */
/* The road between engines and the store: see road.h. */

#include "sim/road.h"

#include <assert.h>
#include <stdlib.h>

#include "store/store.h"

struct parcel {
    fl_store_request *request;
    void (*done)(fl_store_request *request); /* the sender's */
    uint64_t sent;
    struct parcel *next;
};

struct lane {
    fl_shard shard;
    struct road *road;
    fl_shard *inner;
    unsigned actor;
    bool cut, under_way; /* the first is on its way or at the store */
    bool holding;        /* answers are on their way back */
    struct parcel *first, *last;
    struct parcel *held, *held_last; /* answered */
    struct lane *next;
    fl_loop_fn gone;
    void *gone_arg;
};

struct road {
    fl_store store;
    fl_store *inner;
    struct road_watch watch;
    unsigned actor;
    struct lane *lanes;
    struct road *next;
};

static void *need(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

static struct lane *lane_of(struct road *road, const fl_store_request *request)
{
    struct lane *lane = road->lanes;
    while (lane && !(lane->first && lane->first->request == request))
        lane = lane->next;
    return lane;
}

static void go_on(struct lane *lane);

/* Whether its answer is nothing but numbers. Rows, and what a claim says, are only lent. */
static bool is_plain(const fl_store_request *request)
{
    return request->op == FL_STORE_WRITE || request->op == FL_STORE_RECORD || request->op == FL_STORE_FINISH ||
           request->op == FL_STORE_REFILE || request->op == FL_STORE_RENEW;
}

static void deliver(struct lane *lane, struct parcel *parcel)
{
    fl_store_request *request = parcel->request;
    request->done = parcel->done;
    free(parcel);
    lane->road->watch.answered(lane->road->watch.arg, lane->actor, lane->shard.shard, request);
    request->done(request);
}

static void deliver_held(fl_loop *loop, void *arg)
{
    struct lane *lane = arg;
    (void)loop;
    lane->holding = false;
    while (lane->held) {
        struct parcel *parcel = lane->held;
        lane->held = parcel->next;
        deliver(lane, parcel);
    }
    lane->held_last = NULL;
    go_on(lane);
}

static void hold(struct lane *lane, struct parcel *parcel)
{
    parcel->next = NULL;
    if (lane->held_last)
        lane->held_last->next = parcel;
    else
        lane->held = parcel;
    lane->held_last = parcel;
}

/* NOLINTNEXTLINE(misc-no-recursion): a request that is answered lets the next go, and a lost one is answered at once */
static void answer(struct lane *lane)
{
    const struct road_watch *watch = &lane->road->watch;
    struct parcel *parcel = lane->first;
    lane->first = parcel->next;
    if (!lane->first)
        lane->last = NULL;
    lane->under_way = false;
    uint64_t hold_ns = 0;
    if (!lane->holding && is_plain(parcel->request) && !lane->cut)
        hold_ns = watch->hold_ns(watch->arg, lane->actor, parcel->request);
    if (hold_ns > 0 && fl_loop_timer(lane->shard.loop, hold_ns, deliver_held, lane, NULL) < 0)
        abort();
    lane->holding |= hold_ns > 0;
    if (lane->holding)
        hold(lane, parcel);
    else
        deliver(lane, parcel);
    go_on(lane);
}

static struct road *roads; /* a request says nothing about where it came from */

static void back(fl_store_request *request)
{
    struct lane *lane = NULL;
    for (struct road *road = roads; road && !lane; road = road->next)
        lane = lane_of(road, request);
    answer(need(lane));
}

/* NOLINTNEXTLINE(misc-no-recursion): a request that is answered lets the next go, and a lost one is answered at once */
static void arrive(fl_loop *loop, void *arg)
{
    struct lane *lane = arg;
    (void)loop;
    if (lane->cut) {
        fl__store_answer(lane->first->request, FL_STORE_UNAVAILABLE, "lost on its way");
        answer(lane);
        return;
    }
    lane->first->request->done = back;
    fl_store_submit(lane->inner, lane->first->request);
}

/* NOLINTNEXTLINE(misc-no-recursion): a request that is answered lets the next go, and a lost one is answered at once */
static void go_on(struct lane *lane)
{
    if (!lane->first || lane->under_way || (lane->holding && !is_plain(lane->first->request) && !lane->cut))
        return;
    lane->under_way = true;
    const struct road_watch *watch = &lane->road->watch;
    uint64_t delay_ns = lane->cut ? 0 : watch->delay_ns(watch->arg, lane->actor, lane->first->request);
    if (delay_ns == 0 && !lane->cut)
        arrive(lane->shard.loop, lane);
    else if (fl_loop_timer(lane->shard.loop, delay_ns, arrive, lane, NULL) < 0)
        abort();
}

static void submit(fl_shard *shard, fl_store_request *request)
{
    struct lane *lane = (struct lane *)shard;
    const struct road_watch *watch = &lane->road->watch;
    struct parcel *parcel = need(malloc(sizeof *parcel));
    *parcel = (struct parcel){request, request->done, watch->sent(watch->arg, lane->actor, request), NULL};
    if (lane->last)
        lane->last->next = parcel;
    else
        lane->first = parcel;
    lane->last = parcel;
    go_on(lane);
}

static bool absent(fl_shard *shard, const fl_store_want *want)
{
    struct lane *lane = (struct lane *)shard;
    return !lane->cut && fl_store_absent(lane->inner, want);
}

static int attach(fl_store *store, uint32_t shard, fl_loop *loop, fl_shard **ret)
{
    struct road *road = (struct road *)store;
    struct lane *lane = need(calloc(1, sizeof *lane));
    int r = fl_store_attach(road->inner, shard, loop, &lane->inner);
    if (r < 0) {
        free(lane);
        return r;
    }
    lane->shard = (fl_shard){store, loop, shard};
    lane->road = road;
    lane->actor = road->actor;
    lane->next = road->lanes;
    road->lanes = lane;
    *ret = &lane->shard;
    return 0;
}

static void detached(fl_loop *loop, void *arg)
{
    struct lane *lane = arg, **link = &lane->road->lanes;
    while (*link != lane)
        link = &(*link)->next;
    *link = lane->next;
    fl_loop_fn gone = lane->gone;
    void *gone_arg = lane->gone_arg;
    free(lane);
    gone(loop, gone_arg);
}

static void detach(fl_shard *shard, fl_loop_fn done, void *arg)
{
    struct lane *lane = (struct lane *)shard;
    assert(!lane->first && !lane->held);
    lane->gone = done;
    lane->gone_arg = arg;
    fl_store_detach(lane->inner, detached, lane);
}

static void close_road(fl_store *store)
{
    (void)store;
}

static const struct fl_store_ops ops = {close_road, attach, detach, submit, absent, .shared = true};

struct road *road_new(fl_store *store, const struct road_watch *watch)
{
    struct road *road = calloc(1, sizeof *road);
    if (!road)
        return NULL;
    *road = (struct road){.store = {&ops, store->shards}, .inner = store, .watch = *watch, .next = roads};
    roads = road;
    return road;
}

void road_free(struct road *road)
{
    struct road **at = &roads;
    assert(!road->lanes);
    while (*at != road)
        at = &(*at)->next;
    *at = road->next;
    free(road);
}

fl_store *road_store(struct road *road)
{
    return &road->store;
}

void road_actor(struct road *road, unsigned actor)
{
    road->actor = actor;
}

void road_cut(struct road *road, unsigned actor)
{
    for (struct lane *lane = road->lanes; lane; lane = lane->next)
        if (lane->actor == actor)
            lane->cut = true;
}

unsigned road_sender(struct road *road, const fl_store_request *request, uint64_t *ret_sent)
{
    const struct lane *lane = need(lane_of(road, request));
    *ret_sent = lane->first->sent;
    return lane->actor;
}
