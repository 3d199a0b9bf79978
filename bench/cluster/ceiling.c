/* SPDX-License-Identifier: MIT */
/* What the database can do: see ceiling.h. Every connection has a thread. */

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../copy.h"
#include "../engine/postgres_server.h"
#include "../frame.h"
#include "ceiling.h"

enum { COPIERS = 6, INSERTERS = 32, COPIED = 5000, COLUMNS = 8 };

/* --- Rows --------------------------------------------------------------------------------------------------------- */

static void add_row(struct rows *rows, size_t *room, const char *data, size_t size)
{
    size_t at = rows->count > 0 ? rows->ends[rows->count - 1] : 0;
    if (rows->count == *room) {
        *room = 2 * *room + 1024;
        rows->ends = realloc(rows->ends, *room * sizeof *rows->ends);
    }
    if (rows->room < at + size) {
        rows->room = 2 * (at + size);
        rows->data = realloc(rows->data, rows->room);
    }
    if (!rows->ends || !rows->data)
        bench_die("no memory");
    memcpy(rows->data + at, data, size);
    rows->ends[rows->count++] = at + size;
}

/* Not those that Foliot keeps for itself. A piece is a row, but the first begins with the head, and the last is the end. */
void rows_take(struct rows *rows, const struct fleet *fleet)
{
    PGconn *conn = database_connect(fleet);
    size_t room = 0;
    char *piece;
    int size;
    *rows = (struct rows){0};
    PQclear(PQexec(conn, "COPY (SELECT * FROM foliot_timer WHERE ns = 'bench') TO STDOUT BINARY"));
    for (bool first = true; (size = PQgetCopyData(conn, &piece, 0)) > 0; first = false) {
        int head = first ? COPY_HEAD : 0;
        if (size > head + 2)
            add_row(rows, &room, piece + head, (size_t)(size - head));
        PQfreemem(piece);
    }
    PQclear(PQgetResult(conn));
    if (rows->count == 0)
        bench_die("there are no rows: %s", PQerrorMessage(conn));
    postgres_server_query(conn, "TRUNCATE foliot_timer");
    postgres_server_query(conn, "CHECKPOINT");
    PQfinish(conn);
}

void rows_free(struct rows *rows)
{
    free(rows->data);
    free(rows->ends);
}

static const char *row_at(const struct rows *rows, size_t i)
{
    return rows->data + (i > 0 ? rows->ends[i - 1] : 0);
}

/* --- Threads ------------------------------------------------------------------------------------------------------ */

struct crowd {
    const struct rows *rows;
    atomic_size_t next, done;
    uint64_t end_ns;
    PGconn *conns[INSERTERS];
    atomic_uint number;
};

static struct done work(const struct rows *rows, const struct fleet *fleet, unsigned count, double seconds,
                        void *(*fn)(void *), uint64_t *ret_cpu_ns)
{
    struct crowd crowd = {.rows = rows};
    pthread_t threads[INSERTERS];
    for (unsigned i = 0; i < count; i++)
        crowd.conns[i] = database_connect(fleet);
    uint64_t cpu_ns = database_cpu_ns(), begin_ns = bench_real_ns();
    crowd.end_ns = begin_ns + (uint64_t)(seconds * 1e9);
    for (unsigned i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, fn, &crowd) != 0)
            bench_die("no thread");
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    struct done done = {atomic_load(&crowd.done), (double)(bench_real_ns() - begin_ns) / 1e9};
    *ret_cpu_ns = database_cpu_ns() - cpu_ns;
    for (unsigned i = 0; i < count; i++)
        PQfinish(crowd.conns[i]);
    return done;
}

/* --- All in ------------------------------------------------------------------------------------------------------- */

static void *copy_rows(void *arg)
{
    struct crowd *crowd = arg;
    const struct rows *rows = crowd->rows;
    PGconn *conn = crowd->conns[atomic_fetch_add(&crowd->number, 1)];
    size_t first;
    while ((first = atomic_fetch_add(&crowd->next, COPIED)) < rows->count) {
        size_t end = first + COPIED < rows->count ? first + COPIED : rows->count;
        copy_begin(conn, "COPY foliot_timer FROM STDIN BINARY");
        copy_send(conn, row_at(rows, first), rows->data + rows->ends[end - 1]);
        copy_end(conn);
        atomic_fetch_add(&crowd->done, end - first);
    }
    return NULL;
}

struct done rows_copy(const struct rows *rows, const struct fleet *fleet, uint64_t *ret_cpu_ns)
{
    return work(rows, fleet, COPIERS, 3600, copy_rows, ret_cpu_ns);
}

/* --- One by one --------------------------------------------------------------------------------------------------- */

static void insert_row(PGconn *conn, const char *at)
{
    const char *values[COLUMNS];
    int sizes[COLUMNS], formats[COLUMNS];
    uint32_t size;
    at += 2;
    for (int i = 0; i < COLUMNS; i++) {
        memcpy(&size, at, 4);
        sizes[i] = (int)ntohl(size);
        formats[i] = 1;
        values[i] = sizes[i] < 0 ? NULL : at + 4;
        at += 4 + (sizes[i] > 0 ? sizes[i] : 0);
    }
    PGresult *result = PQexecPrepared(conn, "row", COLUMNS, values, sizes, formats, 1);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        bench_die("INSERT: %s", PQerrorMessage(conn));
    PQclear(result);
}

static void *insert_rows(void *arg)
{
    struct crowd *crowd = arg;
    PGconn *conn = crowd->conns[atomic_fetch_add(&crowd->number, 1)];
    size_t i;
    PQclear(PQprepare(conn, "row", "INSERT INTO foliot_timer VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", 0, NULL));
    while (bench_real_ns() < crowd->end_ns && (i = atomic_fetch_add(&crowd->next, 1)) < crowd->rows->count) {
        insert_row(conn, row_at(crowd->rows, i));
        atomic_fetch_add(&crowd->done, 1);
    }
    return NULL;
}

struct done rows_insert(const struct rows *rows, const struct fleet *fleet, uint64_t *ret_cpu_ns)
{
    return work(rows, fleet, INSERTERS, PATIENCE_S, insert_rows, ret_cpu_ns);
}

/* --- All out ------------------------------------------------------------------------------------------------------ */

static void *remove_rows(void *arg)
{
    struct crowd *crowd = arg;
    PGconn *conn = crowd->conns[atomic_fetch_add(&crowd->number, 1)];
    char sql[100], *piece;
    for (size_t shard; (shard = atomic_fetch_add(&crowd->next, 1)) < SHARDS;) {
        snprintf(sql, sizeof sql, "COPY (SELECT * FROM foliot_timer WHERE shard = %zu) TO STDOUT BINARY", shard);
        PQclear(PQexec(conn, sql));
        while (PQgetCopyData(conn, &piece, 0) > 0)
            PQfreemem(piece);
        copy_finish(conn);
        snprintf(sql, sizeof sql, "DELETE FROM foliot_timer WHERE shard = %zu", shard);
        PGresult *result = PQexec(conn, sql);
        if (PQresultStatus(result) != PGRES_COMMAND_OK)
            bench_die("DELETE: %s", PQerrorMessage(conn));
        atomic_fetch_add(&crowd->done, strtoul(PQcmdTuples(result), NULL, 10));
        PQclear(result);
    }
    return NULL;
}

struct done rows_remove(const struct rows *rows, const struct fleet *fleet, uint64_t *ret_cpu_ns)
{
    return work(rows, fleet, COPIERS, 3600, remove_rows, ret_cpu_ns);
}
