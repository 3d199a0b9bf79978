/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_SIM_FLEET_H
#define FOLIOT_TESTS_SIM_FLEET_H

/* What a fleet is made of: see fleet.c. */

#include "node/cluster.h"
#include "sim/world.h"

struct server {
    struct sim *sim;
    char address[16];
    unsigned number; /* as an actor: of the cluster */
    fl_clock time;
    uint64_t wakes_ns; /* nothing happens before */
    uint64_t read_ns;  /* the time, as it was read last, and how often it was the same */
    unsigned readings;
    fl_wall_clock wall;
    int64_t offset_us;
    fl_loop *loop;
    cluster *cluster; /* NULL: it has not begun, or is over */
    struct actor *engines[SHARDS_MOST];
    bool asked_to_stop, stopping, dead, paused;
    bool over; /* it has left, and only says to whoever still asks that nothing is there */
    struct server *next;
};

struct fleet {
    struct server *servers; /* all that ever were, the latest first */
    unsigned lives;
    uint64_t wakes_ns;
    bool stirred; /* a server has something for the world to do now */
    bool over;
    bool gentle; /* nothing happens that a client may notice */
    unsigned lose_percent;
    uint64_t late_ns; /* messages are, at most */
};

/* --- fleet.c */
void fleet_post(struct server *server, fl_loop_fn fn, void *arg);
void fleet_at(fl_loop *loop, uint64_t delay_ns, fl_loop_fn fn, void *arg);
void fleet_in_the_world(struct sim *s, uint64_t delay_ns, fl_loop_fn fn, void *arg);
bool fleet_serves(const struct server *server);                                 /* it lives, and is not to stop */
struct server *fleet_some_server(struct sim *s);                                /* NULL: there is none */
struct server *fleet_server_at(const struct fleet *fleet, const char *address); /* NULL: there is none */

/* --- travel.c */

/* `arrived` is called there, or `lost`, wherever; that may be NULL. */
void fleet_send(struct server *to, fl_loop_fn arrived, void (*lost)(void *arg), void *arg);

#endif
