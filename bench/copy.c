/* SPDX-License-Identifier: MIT */
/* See copy.h. Numbers have their most significant byte first; a value has its size before it. */

#include "copy.h"

#include <endian.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *put_32(char *at, uint32_t number)
{
    number = htobe32(number);
    memcpy(at, &number, sizeof number);
    return at + sizeof number;
}

char *copy_columns(char *at, unsigned count)
{
    uint16_t number = htobe16((uint16_t)count);
    memcpy(at, &number, sizeof number);
    return at + sizeof number;
}

char *copy_number(char *at, uint64_t number)
{
    at = put_32(at, sizeof number);
    number = htobe64(number);
    memcpy(at, &number, sizeof number);
    return at + sizeof number;
}

char *copy_bytes(char *at, const void *data, uint32_t size)
{
    at = put_32(at, size);
    memcpy(at, data, size);
    return at + size;
}

static void must(PGconn *conn, bool good)
{
    if (good)
        return;
    fprintf(stderr, "bench: COPY: %s", PQerrorMessage(conn));
    exit(1);
}

void copy_begin(PGconn *conn, const char *sql)
{
    static const char head[COPY_HEAD] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0";
    PGresult *result = PQexec(conn, sql);
    must(conn, PQresultStatus(result) == PGRES_COPY_IN);
    PQclear(result);
    copy_send(conn, head, head + sizeof head);
}

void copy_send(PGconn *conn, const char *begin, const char *end)
{
    must(conn, PQputCopyData(conn, begin, (int)(end - begin)) == 1);
}

void copy_end(PGconn *conn)
{
    must(conn, PQputCopyData(conn, "\377\377", 2) == 1 && PQputCopyEnd(conn, NULL) == 1);
    copy_finish(conn);
}

void copy_finish(PGconn *conn)
{
    PGresult *result = PQgetResult(conn);
    must(conn, PQresultStatus(result) == PGRES_COMMAND_OK);
    do
        PQclear(result);
    while ((result = PQgetResult(conn)));
}
