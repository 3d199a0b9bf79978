/* SPDX-License-Identifier: MIT */
/* Opening: connects, makes the tables if they are not there or brings them up to date, and reads what the store is like.
 *
 * foliot_meta says which version the schema has, which version a program must know at least to work with it, and how many
 * shards there are. It is made first, by itself; its row 'schema' is the lock under which everything else is made, in one
 * transaction: whoever opens a new database at the same moment waits for that row and then finds everything there. A row's
 * lock is something that every database has.
 *
 * Messages never have a password: libpq puts none into its own, except that it quotes the part of a URL that it cannot read. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "store/postgres/postgres.h"

enum { SHARDS_DEFAULT = 4 };

struct opening {
    PGconn *conn;
    const fl_store_config *config;
    uint64_t schema, compatible, shards; /* what foliot_meta says; 0: nothing */
    char *message;
    size_t size;
};

/* --- Messages ----------------------------------------------------------------------------------------------------- */

/* libpq's messages have lines: they become one. */
static void explain(struct opening *opening, const char *what, const char *why, const char *advice)
{
    int n = snprintf(opening->message, opening->size, "%s: ", what);
    size_t at = n > 0 ? (size_t)n : 0;
    for (; *why && at + 1 < opening->size; why++) {
        if (*why != '\n' && *why != '\t')
            opening->message[at++] = *why;
        else if (why[1])
            opening->message[at++] = ' ';
    }
    if (at < opening->size) {
        opening->message[at] = 0;
        snprintf(opening->message + at, opening->size - at, "%s%s", advice[0] ? ": " : "", advice);
    }
}

static const char *primary(const PGresult *result, PGconn *conn)
{
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    return message ? message : PQerrorMessage(conn);
}

static bool has_state(const PGresult *result, const char *state)
{
    const char *found = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    return found && strcmp(found, state) == 0;
}

static int refuse(struct opening *opening, const PGresult *result)
{
    const char *advice = "";
    if (has_state(result, "42501"))
        advice =
            "the tables must belong to the user in the URL, who needs the right to make them (CREATE on the schema)"
            " if they are not there yet";
    else if (has_state(result, "3F000"))
        advice = "make the schema, or name another in search_path";
    else if (has_state(result, "25006"))
        advice = "this server only reads: name the primary in the URL, or several hosts and"
                 " target_session_attrs=read-write";
    explain(opening, "PostgreSQL", primary(result, opening->conn), advice);
    return fl__pg_is_broken(result) ? FL_STORE_UNAVAILABLE : fl__pg_code(result);
}

/* --- Statements --------------------------------------------------------------------------------------------------- */

static bool is_good(const PGresult *result)
{
    return PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK;
}

static int run(struct opening *opening, const char *sql)
{
    PGresult *result = PQexec(opening->conn, sql);
    int r = is_good(result) ? 0 : refuse(opening, result);
    PQclear(result);
    return r;
}

static int run_all(struct opening *opening, const char *const *statements)
{
    int r = 0;
    for (; *statements && r == 0; statements++)
        r = run(opening, *statements);
    return r;
}

/* Returns 0 too if there is no such table: then `schema` is 0. */
static int read_meta(struct opening *opening, const char *lock)
{
    char sql[100];
    snprintf(sql, sizeof sql, "SELECT key, value FROM foliot_meta%s", lock);
    PGresult *result = PQexec(opening->conn, sql);
    int r = is_good(result) || has_state(result, "42P01") ? 0 : refuse(opening, result);
    opening->schema = opening->compatible = opening->shards = 0;
    for (int i = 0; r == 0 && i < PQntuples(result); i++) {
        uint64_t value = strtoull(PQgetvalue(result, i, 1), NULL, 10);
        if (strcmp(PQgetvalue(result, i, 0), "schema") == 0)
            opening->schema = value;
        else if (strcmp(PQgetvalue(result, i, 0), "compatible") == 0)
            opening->compatible = value;
        else if (strcmp(PQgetvalue(result, i, 0), "shards") == 0)
            opening->shards = value;
    }
    PQclear(result);
    return r;
}

/* --- Making ------------------------------------------------------------------------------------------------------- */

/* Two who make the same table at the same moment get in each other's way, IF NOT EXISTS or not, and the errors for that are
 * many. So what counts is whether the table is there afterwards. */
static int make_meta(struct opening *opening)
{
    PGresult *made =
        PQexec(opening->conn, "CREATE TABLE IF NOT EXISTS foliot_meta (key text PRIMARY KEY, value bigint NOT NULL)");
    int r = run(opening, "INSERT INTO foliot_meta (key, value) VALUES ('schema', 0) ON CONFLICT (key) DO NOTHING");
    if (r < 0 && !is_good(made))
        r = refuse(opening, made);
    PQclear(made);
    return r;
}

static bool has_citus(struct opening *opening)
{
    PGresult *result = PQexec(opening->conn, "SELECT 1 FROM pg_proc WHERE proname = 'create_distributed_table'");
    bool there = PQntuples(result) > 0;
    PQclear(result);
    return there;
}

static int make_shards(struct opening *opening, uint32_t shards)
{
    char sql[300];
    snprintf(sql, sizeof sql,
             "INSERT INTO foliot_shard (shard, version, applied, lease_until, owner)"
             " SELECT i, 0, 0, 0, '' FROM generate_series(0, %u) AS i",
             shards - 1);
    int r = run(opening, sql);
    snprintf(sql, sizeof sql, "INSERT INTO foliot_progress (shard) SELECT i FROM generate_series(0, %u) AS i",
             shards - 1);
    return r == 0 ? run(opening, sql) : r;
}

static int make_tables(struct opening *opening)
{
    uint32_t shards = opening->config->shards > 0 ? opening->config->shards : SHARDS_DEFAULT;
    char sql[200];
    int r = run_all(opening, fl__pg_schema);
    if (r == 0)
        r = make_shards(opening, shards);
    if (r == 0 && has_citus(opening))
        r = run_all(opening, fl__pg_distribute);
    snprintf(sql, sizeof sql, "INSERT INTO foliot_meta (key, value) VALUES ('shards', %u)", shards);
    return r == 0 ? run(opening, sql) : r;
}

/* From version 1 or a later one, step by step. */
static int make_steps(struct opening *opening, uint64_t version)
{
    char sql[200];
    int r = 0;
    while (version < PG_SCHEMA_VERSION && r == 0)
        r = run_all(opening, fl__pg_steps[++version]);
    snprintf(sql, sizeof sql,
             "INSERT INTO foliot_meta (key, value) VALUES ('compatible', %d)"
             " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
             PG_SCHEMA_COMPATIBLE);
    if (r == 0)
        r = run(opening, sql);
    snprintf(sql, sizeof sql, "UPDATE foliot_meta SET value = %d WHERE key = 'schema'", PG_SCHEMA_VERSION);
    return r == 0 ? run(opening, sql) : r;
}

/* In one transaction, under the lock; nothing if somebody else has done it meanwhile. */
static int bring_up_to_date(struct opening *opening)
{
    int r = opening->schema == 0 ? make_meta(opening) : 0;
    if (r == 0)
        r = run(opening, "BEGIN ISOLATION LEVEL READ COMMITTED");
    if (r < 0)
        return r;
    r = read_meta(opening, " WHERE key = 'schema' FOR UPDATE");
    if (r == 0 && opening->schema == 0)
        r = make_tables(opening);
    if (r == 0 && opening->schema < PG_SCHEMA_VERSION)
        r = make_steps(opening, opening->schema == 0 ? 1 : opening->schema);
    if (r < 0) {
        PQclear(PQexec(opening->conn, "ROLLBACK"));
        return r;
    }
    r = run(opening, "COMMIT");
    return r == 0 ? read_meta(opening, "") : r;
}

/* --- Opening ------------------------------------------------------------------------------------------------------ */

static int check(struct opening *opening)
{
    uint32_t wanted = opening->config->shards;
    uint64_t needed = opening->compatible > 0 ? opening->compatible : opening->schema;
    if (needed > PG_SCHEMA_VERSION) {
        snprintf(opening->message, opening->size,
                 "the tables have version %llu, for programs that know version %llu at least, and this Foliot knows"
                 " versions up to %d: use a later Foliot",
                 (unsigned long long)opening->schema, (unsigned long long)needed, PG_SCHEMA_VERSION);
        return FL_STORE_NEWER;
    }
    if (opening->schema == 0 || opening->shards == 0) {
        snprintf(opening->message, opening->size, "foliot_meta does not say what the store is like: restore it");
        return FL_STORE_CORRUPT;
    }
    if (wanted > 0 && wanted != opening->shards) {
        snprintf(opening->message, opening->size, "the store has %llu shards, not %u: that was fixed when it was made",
                 (unsigned long long)opening->shards, wanted);
        return FL_INVALID_ARGUMENT;
    }
    return 0;
}

/* An @ or / in a password that is not written as %40 or %2F would make a part of it the name of a host, for all to read. */
static bool is_ambiguous(const char *url)
{
    const char *at = strstr(url, "://") + 3;
    const char *end = at + strcspn(at, "?"), *first = memchr(at, '@', (size_t)(end - at));
    return first && (memchr(first + 1, '@', (size_t)(end - first - 1)) || memchr(at, '/', (size_t)(first - at)));
}

static int check_url(struct opening *opening, const char *url)
{
    if (is_ambiguous(url)) {
        explain(opening, "the URL cannot be understood",
                "an @ or / in the user, password or database is written %40 or %2F", "");
        return FL_INVALID_ARGUMENT;
    }
    char *error = NULL;
    PQconninfoOption *options = PQconninfoParse(url, &error);
    if (options) {
        PQconninfoFree(options);
        return 0;
    }
    char *quoted = error ? strstr(error, ": \"") : NULL; /* a part of the URL, perhaps its password */
    if (quoted)
        *quoted = 0;
    explain(opening, "the URL cannot be understood", error ? error : "out of memory",
            "write postgres://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETER=VALUE, with % and two digits for special "
            "characters");
    int r = error ? FL_INVALID_ARGUMENT : FL_NO_MEMORY;
    PQfreemem(error);
    return r;
}

static void ignore_notice(void *arg, const PGresult *result)
{
    (void)arg, (void)result;
}

static int connect_to(struct opening *opening, const char *url)
{
    char seconds[24];
    snprintf(seconds, sizeof seconds, "%" PRIu64, opening->config->timeout_us / 1000000 + 2);
    const char *names[] = {"connect_timeout", "dbname", "client_encoding", "application_name", NULL};
    const char *values[] = {seconds, url, "UTF8", "foliot", NULL};
    opening->conn = PQconnectdbParams(names, values, 1);
    if (!opening->conn)
        return FL_NO_MEMORY;
    PQsetNoticeReceiver(opening->conn, ignore_notice, NULL);
    if (PQstatus(opening->conn) == CONNECTION_OK)
        return 0;
    explain(opening, "PostgreSQL", PQerrorMessage(opening->conn), "");
    return FL_STORE_UNAVAILABLE;
}

static int open_database(struct opening *opening, const char *url)
{
    int r = check_url(opening, url);
    if (r == 0)
        r = connect_to(opening, url);
    if (r == 0)
        r = read_meta(opening, "");
    if (r == 0 && opening->schema < PG_SCHEMA_VERSION)
        r = bring_up_to_date(opening);
    if (r == 0)
        r = check(opening);
    PQfinish(opening->conn);
    return r;
}

int fl__postgres_open(const char *url, const fl_store_config *config, fl_store **ret, char *message, size_t size)
{
    struct pg_store *store = fl__alloc(sizeof *store + strlen(url) + 1);
    if (!store)
        return FL_NO_MEMORY;
    struct opening opening = {.config = config, .message = message, .size = size};
    int r = open_database(&opening, url);
    if (r < 0) {
        fl__release(store);
        return r;
    }
    *store = (struct pg_store){.base = {&fl__pg_ops, (uint32_t)opening.shards}, .timeout_us = config->timeout_us};
    memcpy(store->url, url, strlen(url) + 1);
    *ret = &store->base;
    return 0;
}
