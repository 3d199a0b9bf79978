/* SPDX-License-Identifier: MIT */
/* PostgreSQL, and the plain way to keep timers in it: a table with an index of the due time, filled by COPY, emptied by
 * DELETE … FOR UPDATE SKIP LOCKED … RETURNING. Two connections at a time. */

#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../copy.h"
#include "../frame.h"
#include "postgres_server.h"
#include "rival.h"
#include "server.h"

enum { CONNECTIONS = 2, BATCH = 10000 };

/* --- The rival's life --------------------------------------------------------------------------------------------- */

struct plain {
    struct postgres_server *server;
    PGconn *conns[CONNECTIONS];
    const struct timers *timers;
    atomic_size_t next, taken;
    atomic_int numbers;
};

static void *open_plain(const char *folder)
{
    struct plain *self = calloc(1, sizeof *self);
    self->server = postgres_server_start(folder);
    for (int i = 0; i < CONNECTIONS; i++)
        self->conns[i] = postgres_server_connect(self->server);
    postgres_server_query(self->conns[0],
                          "CREATE TABLE timer (id bigint NOT NULL, due bigint NOT NULL, payload bytea)");
    postgres_server_query(self->conns[0], "CREATE INDEX ON timer (due)");
    return self;
}

static void close_plain(void *arg)
{
    struct plain *self = arg;
    for (int i = 0; i < CONNECTIONS; i++)
        PQfinish(self->conns[i]);
    postgres_server_end(self->server);
    free(self);
}

/* Runs `work` on each connection. */
static void in_parallel(struct plain *self, void *(*work)(void *))
{
    pthread_t threads[CONNECTIONS];
    atomic_store(&self->numbers, 0);
    for (int i = 0; i < CONNECTIONS; i++)
        if (pthread_create(&threads[i], NULL, work, self) != 0)
            bench_die("no thread");
    for (int i = 0; i < CONNECTIONS; i++)
        pthread_join(threads[i], NULL);
}

/* --- Work --------------------------------------------------------------------------------------------------------- */

static char *put_row(char *at, size_t id, int64_t due_us)
{
    char payload[PAYLOAD];
    timer_payload(id, payload);
    at = copy_columns(at, 3);
    at = copy_number(at, id);
    at = copy_number(at, (uint64_t)due_us);
    return copy_bytes(at, payload, PAYLOAD);
}

static void copy_batch(PGconn *conn, const struct timers *timers, size_t first, size_t count)
{
    char rows[64 * 130], *at = rows;
    copy_begin(conn, "COPY timer FROM STDIN (FORMAT binary)");
    for (size_t i = first; i < first + count; i++) {
        at = put_row(at, i, timer_due_us(timers, i));
        if ((i - first) % 64 == 63 || i + 1 == first + count) {
            copy_send(conn, rows, at);
            at = rows;
        }
    }
    copy_end(conn);
}

static void *copy_all(void *arg)
{
    struct plain *self = arg;
    PGconn *conn = self->conns[atomic_fetch_add(&self->numbers, 1)];
    size_t first;
    while ((first = atomic_fetch_add(&self->next, BATCH)) < self->timers->count) {
        size_t left = self->timers->count - first;
        copy_batch(conn, self->timers, self->timers->first + first, left < BATCH ? left : BATCH);
    }
    return NULL;
}

static struct outcome schedule(void *arg, const struct timers *timers)
{
    struct plain *self = arg;
    int64_t begin_us = wall_now_us();
    self->timers = timers;
    atomic_store(&self->next, 0);
    in_parallel(self, copy_all);
    return (struct outcome){timers->count, (double)(wall_now_us() - begin_us) / 1e6, 0};
}

static size_t take(PGconn *conn, int64_t until_us)
{
    char until[32];
    const char *values[] = {until};
    snprintf(until, sizeof until, "%lld", (long long)until_us);
    PGresult *result =
        PQexecParams(conn,
                     "DELETE FROM timer WHERE ctid = ANY (ARRAY(SELECT ctid FROM timer WHERE due <= "
                     "$1::bigint ORDER BY due LIMIT 10000 FOR UPDATE SKIP LOCKED)) RETURNING id, payload",
                     1, NULL, values, NULL, NULL, 1);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        bench_die("DELETE: %s", PQerrorMessage(conn));
    size_t count = (size_t)PQntuples(result);
    PQclear(result);
    return count;
}

static void *take_all(void *arg)
{
    struct plain *self = arg;
    PGconn *conn = self->conns[atomic_fetch_add(&self->numbers, 1)];
    size_t count;
    while ((count = take(conn, wall_now_us())) > 0)
        atomic_fetch_add(&self->taken, count);
    return NULL;
}

static struct outcome fire(void *arg, size_t count)
{
    struct plain *self = arg;
    int64_t begin_us = wall_now_us();
    atomic_store(&self->taken, 0);
    while (atomic_load(&self->taken) < count)
        in_parallel(self, take_all);
    return (struct outcome){atomic_load(&self->taken), (double)(wall_now_us() - begin_us) / 1e6, 0};
}

static uint64_t server_cpu(void *arg)
{
    return server_cpu_ns(((struct plain *)arg)->server->pid);
}

static uint64_t all_cpu_ns(struct plain *self)
{
    return own_cpu_ns() + server_cpu(self);
}

/* The reader asks when the next is due, and takes it then. */
static uint64_t punctual(void *arg, size_t count, double *late_ms)
{
    struct plain *self = arg;
    struct timers timers = {.count = count, .from_us = wall_now_us() + 1000000, .step_us = 1000};
    copy_batch(self->conns[0], &timers, 0, count);
    uint64_t cpu_ns = all_cpu_ns(self);
    for (size_t taken = 0; taken < count;) {
        double next_us = postgres_server_query(self->conns[0], "SELECT min(due) FROM timer");
        struct timespec at = {(int64_t)next_us / 1000000, (int64_t)next_us % 1000000 * 1000};
        clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL);
        size_t n = take(self->conns[0], wall_now_us());
        for (int64_t now_us = wall_now_us(); n > 0; n--, taken++)
            late_ms[taken] = (double)(now_us - timer_due_us(&timers, taken)) / 1000;
    }
    return all_cpu_ns(self) - cpu_ns;
}

static double disk_bytes(void *arg)
{
    return postgres_server_query(((struct plain *)arg)->conns[0], "SELECT pg_total_relation_size('timer')");
}

const struct rival rival_postgres = {
    .name = "postgres",
    .about =
        "A table with an index of the due time, filled by COPY, 10,000 rows a transaction, and emptied by `DELETE … "
        "FOR UPDATE SKIP LOCKED … RETURNING`, as many at a time: at most once. Two connections work at the same "
        "time. `shared_buffers` 512 MB, `max_wal_size` 4 GB, all else as it comes, fsync included. Its disk is "
        "that of the table with its index.",
    .version = postgres_server_version,
    .needs = "initdb",
    .open = open_plain,
    .close = close_plain,
    .schedule = schedule,
    .fire = fire,
    .punctual = punctual,
    .disk_bytes = disk_bytes,
    .server_cpu = server_cpu,
};
