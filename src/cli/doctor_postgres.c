/* SPDX-License-Identifier: MIT */
/* What the tables in PostgreSQL say of a shard, asked for over a connection of its own. */

#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/doctor.h"
#include "store/store.h"

#define NOW_US "(extract(epoch from clock_timestamp()) * 1000000)::bigint"

/* libpq's messages end with a new line. */
static const char *trimmed(const char *text, char out[200])
{
    snprintf(out, 200, "%s", text);
    out[strcspn(out, "\n")] = '\0';
    return out;
}

int postgres_is_there(const struct doctor *doctor, char *message, size_t size)
{
    char text[200];
    PGconn *conn = PQconnectdb(doctor->url);
    int status = CLI_NOT_FOUND;
    if (PQstatus(conn) != CONNECTION_OK) {
        snprintf(message, size, "%s", trimmed(PQerrorMessage(conn), text));
        if (!strstr(text, "does not exist")) /* the database: libpq tells of no other reason */
            status = CLI_LATER;
    } else {
        PGresult *result = PQexec(conn, "SELECT value FROM foliot_meta WHERE key = 'schema' AND value > 0");
        if (PQntuples(result) == 1)
            status = CLI_OK;
        else
            snprintf(message, size, "this database has no store: the table foliot_meta does not exist");
        PQclear(result);
    }
    PQfinish(conn);
    return status;
}

struct query {
    struct doctor *doctor;
    uint32_t shard;
    PGconn *conn;
    struct facts *facts;
};

static int64_t number(const PGresult *result, int row, int column)
{
    return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

/* `sql` has the shard as $1. */
static int query(struct query *q, const char *sql, bool (*row)(struct query *q, PGresult *result, int i))
{
    char text[200], shard[16];
    const char *const parameters[] = {shard};
    int r = 0;
    snprintf(shard, sizeof shard, "%" PRIu32, q->shard);
    PGresult *result = PQexecParams(q->conn, sql, 1, NULL, parameters, NULL, NULL, 0);
    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        doctor_problem(q->doctor, q->shard, "%s", trimmed(PQerrorMessage(q->conn), text));
        r = -1;
    }
    for (int i = 0; r == 0 && i < PQntuples(result); i++)
        if (!row(q, result, i)) {
            doctor_problem(q->doctor, q->shard, "a row of the shard cannot be read");
            r = -1;
        }
    PQclear(result);
    return r;
}

static bool shard_row(struct query *q, PGresult *result, int i)
{
    snprintf(q->facts->owner, sizeof q->facts->owner, "%s", PQgetvalue(result, i, 0));
    q->facts->lease_until_us = number(result, i, 1);
    q->facts->now_us = number(result, i, 2);
    return true;
}

static bool progress_row(struct query *q, PGresult *result, int i)
{
    fl_bytes bytes = {0};
    if (PQgetisnull(result, i, 0))
        return true;
    unsigned char *data = PQunescapeBytea((const unsigned char *)PQgetvalue(result, i, 0), &bytes.size);
    bytes.data = data;
    bool good = data && (bytes.size == 0 || fl__progress_decode(bytes, &q->facts->progress) == 0);
    PQfreemem(data);
    return good;
}

static bool window_row(struct query *q, PGresult *result, int i)
{
    return facts_add_window(q->facts, (uint64_t)number(result, i, 0));
}

static bool span_row(struct query *q, PGresult *result, int i)
{
    return facts_add_span(q->facts, (uint64_t)number(result, i, 0));
}

static bool moved_row(struct query *q, PGresult *result, int i)
{
    return facts_add_moved(q->facts, (struct moved){(uint64_t)number(result, i, 0),
                                                    {number(result, i, 1), (uint64_t)number(result, i, 2)}});
}

static bool count_row(struct query *q, PGresult *result, int i)
{
    fl_bytes ns = {0};
    unsigned char *data = PQunescapeBytea((const unsigned char *)PQgetvalue(result, i, 0), &ns.size);
    ns.data = data;
    bool good = data && facts_count(q->facts, ns, -number(result, i, 1));
    PQfreemem(data);
    return good;
}

static bool lost_row(struct query *q, PGresult *result, int i)
{
    if (number(result, i, 0) > 0)
        doctor_problem(q->doctor, UINT32_MAX, "%" PRId64 " timers are in shards that do not exist",
                       number(result, i, 0));
    return true;
}

int postgres_facts(struct doctor *doctor, uint32_t shard, struct facts *ret)
{
    char text[200];
    struct query q = {.doctor = doctor, .shard = shard, .facts = ret, .conn = PQconnectdb(doctor->url)};
    int r = -1;
    if (PQstatus(q.conn) != CONNECTION_OK)
        doctor_problem(doctor, shard, "%s", trimmed(PQerrorMessage(q.conn), text));
    else if (query(&q, "SELECT owner, lease_until, " NOW_US " FROM foliot_shard WHERE shard = $1::bigint", shard_row) ==
                 0 &&
             query(&q, "SELECT progress FROM foliot_progress WHERE shard = $1::bigint", progress_row) == 0 &&
             query(&q, "SELECT DISTINCT win FROM foliot_timer WHERE shard = $1::bigint ORDER BY win", window_row) ==
                 0 &&
             query(&q, "SELECT span FROM foliot_history_span WHERE shard = $1::bigint ORDER BY span", span_row) == 0 &&
             query(&q, "SELECT seq, key_at, key_seq FROM foliot_moved WHERE shard = $1::bigint", moved_row) == 0 &&
             query(&q,
                   "SELECT ns, sum(n)::bigint FROM foliot_count WHERE shard = $1::bigint GROUP BY ns UNION ALL SELECT "
                   "''::bytea, 0",
                   count_row) == 0 &&
             (shard > 0 || query(&q,
                                 "SELECT count(*) FROM foliot_timer WHERE shard < $1::bigint"
                                 " OR shard >= (SELECT value FROM foliot_meta WHERE key = 'shards')",
                                 lost_row) == 0))
        r = 0;
    PQfinish(q.conn);
    return r;
}
