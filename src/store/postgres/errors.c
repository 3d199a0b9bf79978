/* SPDX-License-Identifier: MIT */
/* Errors of the database, by their SQLSTATE: which of our codes they are, whether the transaction can be tried again, what became of it,
 * and what to do about them in words. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/postgres/postgres.h"

const char *fl__pg_sqlstate(const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    return state ? state : "";
}

bool fl__pg_is_retry(const PGresult *result)
{
    static const char *const states[] = {"40001", "40P01", "55P03"};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(fl__pg_sqlstate(result), states[i]) == 0)
            return true;
    return false;
}

bool fl__pg_is_node_down(const PGresult *result)
{
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    return strncmp(fl__pg_sqlstate(result), "08", 2) == 0 && severity && strcmp(severity, "ERROR") == 0;
}

bool fl__pg_is_broken(const PGresult *result)
{
    static const char *const states[] = {"40003", "57P01", "57P02", "57P03", "57P05", "25P03"};
    const char *state = fl__pg_sqlstate(result);
    if (state[0] == 0) /* libpq's own */
        return true;
    if (strncmp(state, "08", 2) == 0)
        return !fl__pg_is_node_down(result);
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(state, states[i]) == 0)
            return true;
    return false;
}

static bool is_state(const char *text)
{
    bool digit = false;
    for (unsigned i = 0; i < 5; i++) {
        if (!(text[i] >= '0' && text[i] <= '9') && !(text[i] >= 'A' && text[i] <= 'Z'))
            return false;
        digit = digit || text[i] <= '9'; /* every SQLSTATE has one, and "FATAL" and "ERROR" have none */
    }
    return digit;
}

const char *fl__pg_find_state(const char *text)
{
    for (const char *end = strstr(text, ": "); end; end = strstr(end + 1, ": "))
        if (end - text >= 5 && (end - text == 5 || end[-6] == ' ') && is_state(end - 5))
            return end - 5;
    return NULL;
}

#define POOLER                                                                                               \
    "a connection pooler in transaction mode does not work; use its session mode, or connect to PostgreSQL " \
    "directly"

/* The database's own texts are in its language: it is known by the SQLSTATE. libpq's are English, since the program does
 * not set its locale for messages. The first that fits is taken. */
const char *fl__pg_advice(const char *state, const char *text)
{
    static const struct {
        const char *state, *text; /* how the SQLSTATE begins; what the text contains. "": any */
        const char *advice;
    } table[] = {
        {"26000", "", POOLER},
        {"42P05", "", POOLER},
        {"08P01", "startup parameter",
         "a connection pooler refuses a parameter of the URL; add it to the pooler's ignore_startup_parameters, or set"
         " it for the role (ALTER ROLE ... SET ...)"},
        {"25006", "",
         "this server is read-only; name the primary in the URL, or several hosts and"
         " target_session_attrs=read-write"},
        {"42501", "",
         "the role in the URL needs SELECT, INSERT, UPDATE and DELETE on the tables of the store, USAGE on"
         " their schema, and CREATE there if they do not exist yet"},
        {"3F000", "", "create the schema and give the role USAGE on it, or name another one in search_path"},
        {"28P01", "", "check the user and the password in the URL of the store"},
        {"28", "no encryption",
         "pg_hba.conf of the server demands TLS or refuses this address; set sslmode=require"
         " in the URL"},
        {"28", "",
         "pg_hba.conf of the server refuses this user, address or kind of connection; if it demands TLS, set"
         " sslmode=require in the URL"},
        {"3D000", "", "create the database, or name another one in the URL"},
        {"53300", "", "the server has no free connection, and each shard needs one; raise max_connections"},
        {"", "server does not support SSL",
         "the URL demands TLS (sslmode), and the server offers none; enable TLS on"
         " the server, or change sslmode"},
        {"", "no password supplied", "give the password in the URL of the store, or in a file with passfile=FILE"},
    };
    const char *found = *state ? state : fl__pg_find_state(text);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if ((!*table[i].state || (found && strncmp(found, table[i].state, strlen(table[i].state)) == 0)) &&
            strstr(text, table[i].text))
            return table[i].advice;
    return "";
}

int fl__pg_code(const PGresult *result)
{
    static const struct {
        const char *state; /* or how it begins */
        int code;
    } codes[] = {
        {"53100", FL_STORE_FULL},    {"53200", FL_NO_MEMORY},     {"25006", FL_STORE_READ_ONLY},
        {"XX001", FL_STORE_CORRUPT}, {"XX002", FL_STORE_CORRUPT}, {"42P01", FL_STORE_CORRUPT},
        {"42703", FL_STORE_CORRUPT}, {"22", FL_INVALID_ARGUMENT}, {"23", FL_INVALID_ARGUMENT},
        {"54", FL_TOO_LARGE},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strncmp(fl__pg_sqlstate(result), codes[i].state, strlen(codes[i].state)) == 0)
            return codes[i].code;
    return FL_STORE_UNAVAILABLE;
}

void fl__pg_take_error(struct pg_flight *flight, const PGresult *result)
{
    if (flight->request->result < 0 || flight->redo)
        return;
    bool can_redo = fl__store_is_write(flight->request) || fl__pg_is_alone(flight->request);
    if (can_redo && fl__pg_is_retry(result)) {
        flight->redo = true;
    } else if (strcmp(fl__pg_sqlstate(result), "23505") == 0 && !flight->replace) {
        flight->replace = flight->redo = true;
    } else {
        const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
        const char *text = message ? message : "an error", *advice = fl__pg_advice(fl__pg_sqlstate(result), text);
        fl__store_answer(flight->request, fl__pg_code(result), "%s%sPostgreSQL: %s: %s%s", advice, *advice ? " (" : "",
                         fl__pg_sqlstate(result), text, *advice ? ")" : "");
    }
}

void fl__pg_fail(struct pg_flight *flight, int code)
{
    if (flight->request->result == 0)
        fl__store_answer(flight->request, code, NULL);
}
