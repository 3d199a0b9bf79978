/* SPDX-License-Identifier: MIT */
/* Several servers: see fleet.h. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <foliot/store.h>

#include "../engine/postgres_server.h"
#include "../engine/server.h"
#include "../frame.h"
#include "../server/http.h"
#include "fleet.h"

/* --- The database ------------------------------------------------------------------------------------------------- */

static struct {
    struct postgres_server *server;
    char folder[200];
    unsigned schemas;
} database;

static void end_database(void)
{
    postgres_server_end(database.server);
    folder_remove(database.folder);
}

static const struct postgres_server *the_database(void)
{
    if (!database.server) {
        folder_make(database.folder, sizeof database.folder);
        database.server = postgres_server_start(database.folder);
        atexit(end_database);
    }
    return database.server;
}

uint64_t database_cpu_ns(void)
{
    return server_cpu_ns(the_database()->pid);
}

static void ask_database(const char *format, const char *schema)
{
    char sql[100];
    PGconn *conn = postgres_server_connect(the_database());
    snprintf(sql, sizeof sql, format, schema); /* NOLINT: a constant of ours */
    postgres_server_query(conn, "SET client_min_messages = warning");
    postgres_server_query(conn, sql);
    postgres_server_query(conn, "CHECKPOINT");
    PQfinish(conn);
}

PGconn *database_connect(const struct fleet *fleet)
{
    char sql[64];
    PGconn *conn = postgres_server_connect(the_database());
    snprintf(sql, sizeof sql, "SET search_path = %s", fleet->schema);
    postgres_server_query(conn, sql);
    return conn;
}

/* --- Servers ------------------------------------------------------------------------------------------------------ */

void fleet_restart(struct fleet *fleet, unsigned server)
{
    struct target *target = &fleet->servers[server];
    char address[32], store[500], shards[8];
    snprintf(address, sizeof address, "127.0.0.1:%d", target->port);
    snprintf(store, sizeof store, "postgres://foliot@/postgres?host=%s&port=5432&options=-csearch_path%%3D%s",
             the_database()->folder, fleet->schema);
    snprintf(shards, sizeof shards, "%d", SHARDS);
    char *arguments[] = {BENCH_FOLIOT,
                         "serve",
                         "--listen",
                         address,
                         "--advertise",
                         address,
                         "--store",
                         store,
                         "--shards",
                         shards,
                         "--allow-private-targets",
                         NULL};
    target->server = server_start(target->folder, arguments, NULL, SIGKILL);
}

void fleet_kill(struct fleet *fleet, unsigned server)
{
    server_end(fleet->servers[server].server, SIGKILL);
    fleet->servers[server].server = 0;
}

/* Whether a server sees the shards shared out evenly and is linked with all; and who has which. */
static bool read_owners(struct fleet *fleet, const char *view)
{
    char text[64];
    unsigned linked = 0, shares = 0;
    for (const char *at = view; (at = strstr(at, "\"linked\":true")); at++)
        linked++;
    snprintf(text, sizeof text, "\"shards\":%u,", SHARDS / fleet->count);
    for (const char *at = view; (at = strstr(at, text)); at++)
        shares++;
    for (unsigned i = 0; i < SHARDS; i++) {
        snprintf(text, sizeof text, "{\"shard\":%u,\"owner\":\"127.0.0.1:", i);
        const char *at = strstr(view, text);
        int port = at ? (int)strtol(at + strlen(text), NULL, 10) : 0;
        for (unsigned j = 0; j < fleet->count; j++)
            if (fleet->servers[j].port == port)
                fleet->owners[i] = j;
    }
    return linked == fleet->count && shares == fleet->count;
}

static bool is_settled(struct fleet *fleet, const struct target *server)
{
    struct http_answer answer = {0};
    bool settled = foliot_ask(server->port, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n", &answer) &&
                   answer.status == 200 &&
                   foliot_ask(server->port, "GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\n\r\n", &answer) &&
                   answer.status == 200;
    char *view = settled ? strndup(answer.body, answer.size) : NULL;
    settled = view && read_owners(fleet, view);
    free(view);
    http_free(&answer);
    return settled;
}

void fleet_settle(struct fleet *fleet)
{
    for (unsigned i = 0, tries = 0; i < fleet->count; tries++) {
        const struct target *server = &fleet->servers[i];
        if (tries == 3000 || waitpid(server->server, NULL, WNOHANG) != 0)
            bench_die("the servers do not get together: see %s/log", server->folder);
        if (is_settled(fleet, server))
            i++;
        else
            usleep(20000);
    }
    usleep(300000); /* the links of the other workers */
}

struct fleet *fleet_start(unsigned count)
{
    struct fleet *fleet = calloc(1, sizeof *fleet);
    if (!fleet)
        bench_die("no memory");
    fleet->count = count;
    snprintf(fleet->schema, sizeof fleet->schema, "fleet%u", database.schemas++);
    ask_database("CREATE SCHEMA %s", fleet->schema);
    for (unsigned i = 0; i < count; i++) {
        struct target *target = &fleet->servers[i];
        folder_make(target->folder, sizeof target->folder);
        target->port = load_free_port();
        fleet_restart(fleet, i);
        if (i == 0)
            foliot_await(target); /* it makes the tables */
    }
    fleet_settle(fleet);
    return fleet;
}

void fleet_end(struct fleet *fleet)
{
    for (unsigned i = 0; i < fleet->count; i++) {
        if (fleet->servers[i].server)
            fleet_kill(fleet, i);
        folder_remove(fleet->servers[i].folder);
    }
    ask_database("DROP SCHEMA %s CASCADE", fleet->schema);
    free(fleet);
}

struct target fleet_target(const struct fleet *fleet, bool spread)
{
    struct target target = fleet->servers[0];
    target.pullers = 2 * MOST_SERVERS;
    for (unsigned i = 1; i < fleet->count && spread; i++)
        target.others[target.other_count++] = fleet->servers[i].port;
    return target;
}

unsigned fleet_owner(const struct fleet *fleet, const char *name)
{
    return fleet->owners[fl_store_shard_of(SHARDS, (fl_bytes){"bench", 5}, (fl_bytes){name, strlen(name)})];
}

uint64_t fleet_cpu_ns(const struct fleet *fleet)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < fleet->count; i++)
        sum += server_cpu_ns(fleet->servers[i].server);
    return sum;
}
