/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_SERVER_RIVAL_H
#define FOLIOT_BENCH_SERVER_RIVAL_H

/* A server that keeps timers. It is started empty in a folder for each measure. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "load.h"

enum { PAYLOAD = 100, PULLERS = 2, MOST_PULLERS = 12, MOST_OTHERS = 7 };

/* How long a server that needs an fsync for every timer may take for one measure, seconds. */
#define PATIENCE_S 1.5

struct target {
    pid_t server;
    int port;
    char folder[200];
    /* Of several servers that are one: the ports of the others that are to be asked too, and over how many connections work
     * goes that is done in batches; 0: PULLERS. */
    int others[MOST_OTHERS];
    unsigned other_count, pullers;
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

/* Of foliot alone. One request on a connection of its own; false: nobody has answered. */
struct http_answer;
bool foliot_ask(int port, const char *request, struct http_answer *answer);
/* Waits until it is ready. */
void foliot_await(const struct target *target);
/* What a timer is to be called, by its number. */
typedef void foliot_name_fn(char name[32], size_t i, void *arg);
/* Timers one by one, by name; and in batches, with or without (NULL) names, due at one moment. */
struct done foliot_create(const struct target *target, unsigned connections, size_t count, foliot_name_fn *name,
                          void *arg);
struct done foliot_batch(const struct target *target, size_t count, int64_t due_us, foliot_name_fn *name, void *arg);
/* Lines of a batch, one request for each connection; frees them. */
struct done foliot_lines(const struct target *target, struct script lines[MOST_PULLERS]);
/* Timers with a webhook and a name, by which they are spread evenly over the shards, each due step_us after
 * the one before it. */
void foliot_hooks(const struct target *target, const char *url, size_t count, int64_t from_us, int64_t step_us);
/* Sets which attempts it records in its history: "none", "failures" or "all". */
void foliot_keep(const struct target *target, const char *only);
/* Whether its history has rows. */
bool foliot_has_history(const struct target *target);
/* The value of one of its metrics. */
double foliot_metric(const struct target *target, const char *name);

#endif
