/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_ENGINE_POSTGRES_SERVER_H
#define FOLIOT_BENCH_ENGINE_POSTGRES_SERVER_H

/* A PostgreSQL server of our own, in a folder. */

#include <libpq-fe.h>
#include <sys/types.h>

struct postgres_server {
    pid_t pid;
    char folder[256];
};

struct postgres_server *postgres_server_start(const char *folder);
void postgres_server_end(struct postgres_server *server);
PGconn *postgres_server_connect(const struct postgres_server *server);
double postgres_server_query(PGconn *conn, const char *sql); /* the first value */
const char *postgres_server_version(void);

#endif
