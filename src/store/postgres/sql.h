/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_POSTGRES_SQL_H
#define FOLIOT_STORE_POSTGRES_SQL_H

/* Everything that is said to the database. Each connection prepares all statements once; their names are their numbers. */

enum pg_statement {
    PG_BEGIN,
    PG_BEGIN_READ,
    PG_COMMIT,
    PG_LOCK,
    PG_BAR,
    PG_CLAIM,
    PG_PROGRESS,
    PG_WINDOWS,
    PG_FENCE,
    PG_RENEW,
    PG_RELEASE,
    PG_RECORD,
    PG_PUT,
    PG_PUT_FULL,
    PG_REMOVE,
    PG_REMOVED,
    PG_MOVED,
    PG_UNMOVE,
    PG_BURY,
    PG_UNBURY,
    PG_DROP,
    PG_SETTLED,
    PG_SWEEP,
    PG_SWEPT,
    PG_REFILE,
    PG_REST,
    PG_PARTS,
    PG_FIND_NAME,
    PG_FIND_ID,
    PG_FIND_MOVED,
    PG_LIST,
    PG_CUT,
    PG_PAGE,
    PG_DEAD,
    PG_JOIN,
    PG_STAY,
    PG_LEAVE,
    PG_FORGET,
    PG_OFFER,
    PG_MEMBERS,
    PG_HOLDERS,
    PG_STATEMENTS,
};

struct pg_text {
    const char *name; /* as it is prepared */
    const char *sql;
};

extern const struct pg_text fl__pg_sql[PG_STATEMENTS];

/* What a session sets for itself. A database that does not know one of these does without. */
extern const char *const fl__pg_settings[];

/* Ends what is left of an earlier session, by its name. */
extern const char fl__pg_terminate[];

/* Versions of the tables. A version that only adds to what was there (a table; a column with a default) leaves the lowest
 * that a program must know as it is, so that programs of both versions work with the store at once; one that changes what
 * was there raises it. */
enum { PG_SCHEMA_VERSION = 2, PG_SCHEMA_COMPATIBLE = 1 };

/* Makes the tables: version 1. */
extern const char *const fl__pg_schema[];
/* Where there is create_distributed_table(), that is, on Citus. */
extern const char *const fl__pg_distribute[];
/* Makes each version from the one before it: from 2 on. New tables are made by all of these, one after the other. */
extern const char *const *const fl__pg_steps[PG_SCHEMA_VERSION + 1];

#endif
