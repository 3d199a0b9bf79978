/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_SERVER_RIVAL_H
#define FOLIOT_BENCH_SERVER_RIVAL_H

/* A server that keeps timers. It is started empty in a folder for each measure. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "load.h"

enum { PAYLOAD = 100, PULLERS = 2 };

/* How long a server that needs an fsync for every timer may take for one measure, seconds. */
#define PATIENCE_S 1.5

struct target {
    pid_t server;
    int port;
    char folder[200];
};

struct done {
    size_t count;
    double seconds;
};

struct rival {
    const char *name, *about, *needs;
    const char *(*version)(void);
    void (*open)(struct target *target); /* until it answers */
    int end;                             /* the signal that ends it */
    /* Timers that are due in an hour, one a request, at most so many. Names are for who tells timers by them. */
    struct done (*create)(const struct target *target, unsigned connections, size_t count, bool named);
    /* Many timers at once, of which each is due at the same moment. */
    struct done (*batch)(const struct target *target, size_t count, int64_t due_us);
    /* Takes out all that are due, in batches, and removes them. */
    struct done (*pull)(const struct target *target, size_t count);
};

extern const struct rival rival_foliot, rival_redis_always, rival_redis_everysec, rival_beanstalkd_always,
    rival_beanstalkd;

int64_t wall_now_us(void);
/* Letters and digits, different for each, PAYLOAD characters. */
void payload_text(size_t i, char text[PAYLOAD + 1]);

/* Requests that are made before the clock begins, for each of PULLERS connections; what begins at a mark is sent when what
 * was before it is answered. */
struct script {
    char *data;
    size_t size, room;
    size_t *marks, mark_count, mark_room, next;
};
void script_printf(struct script *script, const char *format, ...) __attribute__((format(printf, 2, 3)));
void script_mark(struct script *script);
struct span script_next(struct script *script);
void script_free(struct script *script);

/* Of foliot alone: timers with a webhook and a name, by which they are spread evenly over the shards, each due step_us after
 * the one before it. */
void foliot_hooks(const struct target *target, const char *url, size_t count, int64_t from_us, int64_t step_us);
/* The value of one of its metrics. */
double foliot_metric(const struct target *target, const char *name);

#endif
