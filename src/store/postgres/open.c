/* SPDX-License-Identifier: MIT */
/* Opening: connects, makes the tables if they are not there or brings them up to date, and reads what the store is like.
 *
 * foliot_meta says which version the schema has, which version a program must know at least to work with it, and how many
 * shards there are. It is made first, by itself; its row 'schema' is the lock under which everything else is made, in one
 * transaction: a server that opens a new database at the same time waits for that row and then finds everything made. A row's
 * lock is something that every database has.
 *
 * Messages never have a password: libpq puts none into its own, except that it quotes the part of a URL that it cannot
 * read. */

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
    bool spread;                         /* over the nodes of Citus */
    char *message;
    size_t size;
};

/* --- Messages ----------------------------------------------------------------------------------------------------- */

static void explain(struct opening *opening, const char *what, const char *why, const char *advice)
{
    char text[400];
    fl__pg_flatten(why, text, sizeof text);
    snprintf(opening->message, opening->size, "%s: %s%s%s", what, text, advice[0] ? ": " : "", advice);
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
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE), *text = primary(result, opening->conn);
    explain(opening, "PostgreSQL", text, fl__pg_advice(state ? state : "", text));
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

static int refuse_meta(struct opening *opening, const char *key, const char *value)
{
    snprintf(opening->message, opening->size,
             "foliot_meta says '%.20s' for '%s', which is not a number; restore the row from a backup", value, key);
    return FL_STORE_CORRUPT;
}

static int take_meta(struct opening *opening, const char *key, const char *value)
{
    const struct {
        const char *key;
        uint64_t *value;
    } known[] = {{"schema", &opening->schema}, {"compatible", &opening->compatible}, {"shards", &opening->shards}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(key, known[i].key) != 0)
            continue;
        size_t digits = strspn(value, "0123456789");
        if (digits == 0 || digits > 18 || value[digits])
            return refuse_meta(opening, known[i].key, value);
        *known[i].value = strtoull(value, NULL, 10);
    }
    return 0;
}

/* Returns 0 too if there is no such table: then `schema` is 0. */
static int read_meta(struct opening *opening, const char *lock)
{
    char sql[100];
    snprintf(sql, sizeof sql, "SELECT key, value FROM foliot_meta%s", lock);
    PGresult *result = PQexec(opening->conn, sql);
    int r = is_good(result) || has_state(result, "42P01") ? 0 : refuse(opening, result);
    opening->schema = opening->compatible = opening->shards = 0;
    for (int i = 0; r == 0 && i < PQntuples(result); i++)
        r = take_meta(opening, PQgetvalue(result, i, 0), PQgetvalue(result, i, 1));
    PQclear(result);
    return r;
}

/* --- Making ------------------------------------------------------------------------------------------------------- */

/* If two servers make the same table at the same time, one of them fails, even with IF NOT EXISTS, and with various errors.
 * So errors are ignored if the table exists afterwards. */
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

/* Whether a query finds a row. */
static bool finds(struct opening *opening, const char *sql)
{
    PGresult *result = PQexec(opening->conn, sql);
    bool found = PQntuples(result) > 0;
    PQclear(result);
    return found;
}

static bool has_citus(struct opening *opening)
{
    return finds(opening, "SELECT 1 FROM pg_proc WHERE proname = 'create_distributed_table'");
}

/* Tables are made and changed on the coordinator. A worker node would make a table that no other node knows. */
static int refuse_worker(struct opening *opening)
{
    if (!has_citus(opening) || !finds(opening, "SELECT 1 FROM pg_dist_local_group WHERE groupid <> 0"))
        return 0;
    bool stray = finds(opening, "SELECT 1 FROM pg_class WHERE oid = to_regclass('foliot_meta') AND NOT EXISTS"
                                " (SELECT 1 FROM pg_dist_partition WHERE logicalrelid = to_regclass('foliot_meta'))");
    explain(opening, "this is a worker node of Citus",
            stray ? "its table foliot_meta is not that of the other nodes"
                  : "Foliot's tables are missing here, or have an older version",
            stray ? "drop it on this node, then start a server with the address of the coordinator"
                  : "start a server with the address of the coordinator, which creates them for all nodes");
    return FL_STORE_UNAVAILABLE;
}

/* Lets servers connect to every node, and finds out whether the shards are spread over nodes. Without the right to change
 * the tables, or while a node is down, servers connect to the coordinator only, as before. */
static void share_tables(struct opening *opening)
{
    if (!has_citus(opening) || !finds(opening, "SELECT 1 FROM pg_dist_partition WHERE logicalrelid ="
                                               " to_regclass('foliot_shard')"))
        return;
    opening->spread = true;
    for (const char *const *share = fl__pg_share; *share; share++)
        PQclear(PQexec(opening->conn, *share));
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
    bool uncounted = version < PG_SCHEMA_COUNTED, no_history = version < PG_SCHEMA_HISTORY;
    while (version < PG_SCHEMA_VERSION && r == 0)
        r = run_all(opening, fl__pg_steps[++version]);
    if (r == 0 && uncounted && has_citus(opening))
        r = run_all(opening, fl__pg_distribute_counts);
    if (r == 0 && uncounted)
        r = run_all(opening, fl__pg_count_all);
    if (r == 0 && no_history && has_citus(opening))
        r = run_all(opening, fl__pg_distribute_history);
    snprintf(sql, sizeof sql,
             "INSERT INTO foliot_meta (key, value) VALUES ('compatible', %d)"
             " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
             PG_SCHEMA_COMPATIBLE);
    if (r == 0)
        r = run(opening, sql);
    snprintf(sql, sizeof sql, "UPDATE foliot_meta SET value = %d WHERE key = 'schema'", PG_SCHEMA_VERSION);
    return r == 0 ? run(opening, sql) : r;
}

/* In one transaction, with the lock held. Does nothing if another server has done it meanwhile. */
static int bring_up_to_date(struct opening *opening)
{
    int r = refuse_worker(opening);
    if (r == 0 && opening->schema == 0)
        r = make_meta(opening);
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
                 "the tables have version %llu, for programs that know at least version %llu, and this Foliot knows "
                 "versions up to %d; use a later version of Foliot",
                 (unsigned long long)opening->schema, (unsigned long long)needed, PG_SCHEMA_VERSION);
        return FL_STORE_NEWER;
    }
    if (opening->schema == 0 || opening->shards == 0) {
        snprintf(opening->message, opening->size, "foliot_meta has no row '%s'; restore the row from a backup",
                 opening->schema == 0 ? "schema" : "shards");
        return FL_STORE_CORRUPT;
    }
    if (wanted > 0 && wanted != opening->shards) {
        snprintf(opening->message, opening->size,
                 "the store has %llu shards, not %u; the number is fixed when a store is created",
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
        explain(opening, "the URL cannot be parsed",
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
    explain(opening, "the URL cannot be parsed", error ? error : "out of memory",
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

/* libpq tells the SQLSTATE of an error while connecting only in the text, and only if it was asked to before. So it
 * connects again, unless that takes long once more. */
static void ask_for_state(PGconn *conn)
{
    if (strstr(PQerrorMessage(conn), "timeout expired"))
        return;
    PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
    PQreset(conn);
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
    if (PQstatus(opening->conn) != CONNECTION_OK)
        ask_for_state(opening->conn);
    if (PQstatus(opening->conn) == CONNECTION_OK)
        return 0;
    const char *why = PQerrorMessage(opening->conn);
    explain(opening, "PostgreSQL", why, fl__pg_advice("", why));
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
    if (r == 0)
        share_tables(opening);
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
    *store = (struct pg_store){
        .base = {&fl__pg_ops, (uint32_t)opening.shards}, .timeout_us = config->timeout_us, .spread = opening.spread};
    memcpy(store->url, url, strlen(url) + 1);
    pthread_mutex_init(&store->lock, NULL);
    *ret = &store->base;
    return 0;
}
