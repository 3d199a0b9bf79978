/* SPDX-License-Identifier: MIT */
/* A PostgreSQL server of our own: see postgres_server.h. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../frame.h"
#include "postgres_server.h"
#include "server.h"

static void make_cluster(const char *folder, char *data)
{
    int status = -1;
    char *arguments[] = {
        (char *)server_program("initdb"), "-D", data, "-U", "foliot", "-A", "trust", "-E", "UTF8", "--no-locale", NULL};
    pid_t maker = server_start(folder, arguments, "postgres", SIGKILL);
    if (waitpid(maker, &status, 0) != maker || status != 0)
        bench_die("initdb has failed: see %s/log", folder);
}

struct postgres_server *postgres_server_start(const char *folder)
{
    struct postgres_server *server = calloc(1, sizeof *server);
    char data[300], socket[300];
    snprintf(server->folder, sizeof server->folder, "%s", folder);
    snprintf(data, sizeof data, "%s/data", folder);
    snprintf(socket, sizeof socket, "%s/.s.PGSQL.5432", folder);
    make_cluster(folder, data);
    char *arguments[] = {(char *)server_program("postgres"),
                         "-D",
                         data,
                         "-k",
                         server->folder,
                         "-h",
                         "",
                         "-p",
                         "5432",
                         "-c",
                         "shared_buffers=512MB",
                         "-c",
                         "max_wal_size=4GB",
                         "-c",
                         "wal_buffers=64MB",
                         NULL};
    server->pid = server_start(folder, arguments, "postgres", SIGQUIT);
    close(server_connect(socket, server->pid));
    return server;
}

void postgres_server_end(struct postgres_server *server)
{
    server_end(server->pid, SIGINT);
    free(server);
}

PGconn *postgres_server_connect(const struct postgres_server *server)
{
    char info[400];
    snprintf(info, sizeof info, "host=%s port=5432 user=foliot dbname=postgres", server->folder);
    for (int i = 0; i < 1000; i++) {
        PGconn *conn = PQconnectdb(info);
        if (PQstatus(conn) == CONNECTION_OK)
            return conn;
        PQfinish(conn);
        usleep(10000); /* it is starting */
    }
    bench_die("PostgreSQL does not let us in: see %s/log", server->folder);
}

double postgres_server_query(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        bench_die("%s: %s", sql, PQerrorMessage(conn));
    double number = status == PGRES_TUPLES_OK && PQntuples(result) > 0 ? strtod(PQgetvalue(result, 0, 0), NULL) : 0;
    PQclear(result);
    return number;
}

const char *postgres_server_version(void)
{
    return server_version(server_program("postgres"), "--version");
}
