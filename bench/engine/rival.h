/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_ENGINE_RIVAL_H
#define FOLIOT_BENCH_ENGINE_RIVAL_H

/* What can be kept waiting for a long time and survives a crash, behind one interface. Each rival is started empty, in a
 * folder of its own, by the process that measures it, and ends with it.
 *
 * A function that cannot do what it is asked to ends the program. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PAYLOAD = 100, FOLIOT_SHARDS = 2 };

/* Timers first … first + count - 1, due from from_us on: step_us after each other, or spread over span_us without order. */
struct timers {
    size_t first, count;
    int64_t from_us, span_us, step_us;
    bool named;
};

static inline int64_t timer_due_us(const struct timers *t, size_t i)
{
    if (t->span_us > 0)
        return t->from_us + (int64_t)((uint64_t)i * 2654435761u % (uint64_t)t->span_us);
    return t->from_us + (int64_t)(i - t->first) * t->step_us;
}

/* 100 bytes, others for each timer. */
void timer_payload(size_t i, char payload[PAYLOAD]);

int64_t wall_now_us(void);

/* Rivals whose fsync is slow are asked for as much as fits into this. */
#define PATIENCE_US 8000000

struct outcome {
    size_t count; /* fewer than asked for if the patience is at its end */
    double seconds;
    double longest_ms; /* in which nothing was acknowledged */
};

struct rival {
    const char *name, *about;
    const char *(*version)(void);
    const char *needs; /* the program that must be installed; NULL: none */
    void *(*open)(const char *folder);
    void (*close)(void *self);

    /* Schedules in batches, as many under way as it takes best, until all are acknowledged. */
    struct outcome (*schedule)(void *self, const struct timers *timers);
    /* All that are there are due: takes them out and removes them. */
    struct outcome (*fire)(void *self, size_t count);
    /* Schedules `count` timers, 1 ms apart, and takes each out when it is due: how late each was. Returns the processor
     * time of all that took part, from the first to the last. NULL: it cannot take so many. */
    uint64_t (*punctual)(void *self, size_t count, double *late_ms);

    double (*memory_bytes)(void *self); /* in use now; NULL: cannot be told */
    double (*disk_bytes)(void *self);   /* for what is scheduled */
    uint64_t (*server_cpu)(void *self); /* processor time of its server until now, ns; NULL: it has none */
};

extern const struct rival rival_sqlite, rival_postgres_store, rival_redis_always, rival_redis_everysec,
    rival_beanstalkd_always, rival_beanstalkd, rival_postgres;

/* --- What only Foliot is asked for ---------------------------------------------------------------------------------- */

/* Schedules as fast as it can for so long, timers that are due a second later: how many were scheduled, fired and deleted,
 * and until the last of them had fired. */
struct outcome foliot_sustain(void *self, double seconds);

/* A process of its own opens the store: how much memory it uses, and how long it took, until
 *   "ready"   the engines are ready
 *   "loaded"  all that is pending has been loaded
 *   "fired"   a timer has fired on every shard */
struct foliot_look {
    double seconds, memory_bytes;
};
struct foliot_look foliot_look(void *self, const char *until);
int foliot_answer_look(const char *url, const char *until); /* in that process */

#endif
