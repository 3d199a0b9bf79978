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

/* Makes the tables: version 1. */
extern const char *const fl__pg_schema[];
/* Where there is create_distributed_table(), that is, on Citus. */
extern const char *const fl__pg_distribute[];

enum { PG_SCHEMA_VERSION = 1 };

#endif
