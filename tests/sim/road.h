/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_SIM_ROAD_H
#define FOLIOT_TESTS_SIM_ROAD_H

/* The road between engines and the store: a store of its own that hands everything on to another one, in order, but late;
 * that keeps answers back, so that much may have taken effect of which the sender has not heard; and that loses what is on
 * its way when the one who sent it dies. It tells who has sent what. */

#include <foliot/store.h>

struct road;

struct road_watch {
    /* How long a request is on its way before it arrives. */
    uint64_t (*delay_ns)(void *arg, unsigned actor, const fl_store_request *request);
    /* How long its answer, and whatever is answered meanwhile, is on its way back. */
    uint64_t (*hold_ns)(void *arg, unsigned actor, const fl_store_request *request);
    /* When it was sent; remembered for it. */
    uint64_t (*sent)(void *arg, unsigned actor, const fl_store_request *request);
    void (*answered)(void *arg, unsigned actor, uint32_t shard, const fl_store_request *request);
    void *arg;
};

/* `store` must outlive the road. NULL: no memory. */
struct road *road_new(fl_store *store, const struct road_watch *watch);
void road_free(struct road *road);
fl_store *road_store(struct road *road);

/* Who attaches from now on. */
void road_actor(struct road *road, unsigned actor);

/* Whatever this one has sent and has not arrived never does. */
void road_cut(struct road *road, unsigned actor);

/* Who has sent the request that is at the store now, and when. */
unsigned road_sender(struct road *road, const fl_store_request *request, uint64_t *ret_sent);

#endif
