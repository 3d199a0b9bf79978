/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_CLUSTER_FLEET_H
#define FOLIOT_BENCH_CLUSTER_FLEET_H

/* Several servers on one PostgreSQL. The database is started once, and ends with the program; each fleet has a schema of
 * its own in it, which goes with the fleet. */

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../server/rival.h"

/* As many for each server, be there one, two or three; and as many for each of their workers, on two processors. */
enum { SHARDS = 12, MOST_SERVERS = 3 };

struct fleet {
    char schema[16];
    struct target servers[MOST_SERVERS]; /* of each its process, port and folder */
    unsigned count;
    unsigned owners[SHARDS]; /* which server had it when fleet_settle() returned */
};

struct fleet *fleet_start(unsigned count);
void fleet_end(struct fleet *fleet);

/* Waits until the shards are shared out evenly, all of them loaded, and everybody is linked with everybody. */
void fleet_settle(struct fleet *fleet);
void fleet_kill(struct fleet *fleet, unsigned server);
void fleet_restart(struct fleet *fleet, unsigned server);

/* Where to send work: to the first of them only, or to all. */
struct target fleet_target(const struct fleet *fleet, bool spread);
/* Which server has the timer of this name in the namespace `bench`. */
unsigned fleet_owner(const struct fleet *fleet, const char *name);

uint64_t fleet_cpu_ns(const struct fleet *fleet);
uint64_t database_cpu_ns(void);
/* A connection that works in the fleet's schema. */
PGconn *database_connect(const struct fleet *fleet);

#endif
