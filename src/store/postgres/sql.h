/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_POSTGRES_SQL_H
#define FOLIOT_STORE_POSTGRES_SQL_H

/* Everything that is said to the database. Each connection prepares all statements once; their names are their numbers. */

enum pg_statement {
    PG_BEGIN,
    PG_BEGIN_READ,
    PG_DURABLE,
    PG_COMMIT,
    PG_LOCK,
    PG_BAR,
    PG_CAP_CLAIM,
    PG_CLAIM,
    PG_PROGRESS,
    PG_WINDOWS,
    PG_COUNTS,
    PG_COUNT_CLEAR,
    PG_OVER,
    PG_FENCE,
    PG_RENEW,
    PG_RELEASE,
    PG_RECORD,
    PG_PUT_ONE,
    PG_PUT,
    PG_PUT_FULL,
    PG_REMOVE,
    PG_REMOVED,
    PG_MOVED,
    PG_UNMOVE,
    PG_BURY,
    PG_UNBURY,
    PG_COUNT_ONE,
    PG_COUNT_PUT,
    PG_COUNT_REMOVED,
    PG_COUNT_DROP,
    PG_COUNT_SETTLED,
    PG_COUNT_PARTS,
    PG_COUNT_REFILED,
    PG_COUNT_WINDOWS,
    PG_DROP,
    PG_SETTLED,
    PG_SWEEP,
    PG_REFILE,
    PG_REST,
    PG_PARTS,
    PG_FIND_ONE,
    PG_FIND_NAME,
    PG_FIND_ID,
    PG_FIND_MOVED,
    PG_LIST,
    PG_CUT,
    PG_PAGE,
    PG_DEAD,
    PG_HISTORY_ADD,
    PG_HISTORY_NOTE,
    PG_HISTORY_DROP,
    PG_HISTORY_SPANS_DROP,
    PG_HISTORY_SPANS,
    PG_HISTORY,
    PG_HISTORY_ERASE,
    PG_JOIN,
    PG_STAY,
    PG_LEAVE,
    PG_FORGET,
    PG_OFFER,
    PG_CAP_MEMBERS,
    PG_CAP_CLAIMS,
    PG_MEMBERS,
    PG_HOLDERS,
    PG_PATIENCE,
    PG_NODES,
    PG_NODE_HOLDERS,
    PG_STATEMENTS,
};

enum { PG_STATEMENTS_PLAIN = PG_PATIENCE }; /* the others are for Citus, and known only there */

struct pg_text {
    const char *name; /* as it is prepared */
    const char *sql;
};

extern const struct pg_text fl__pg_sql[PG_STATEMENTS];

/* What a session sets for itself. A database that does not know one of these does without. */
extern const char *const fl__pg_settings[];

/* Ends the remains of an earlier session, by its name. */
extern const char fl__pg_terminate[];

/* Versions of the tables. A version that only adds (a table, or a column with a default) keeps the lowest version that a
 * program must know, so that programs of both versions can use the store at once. A version that changes existing tables
 * raises it. */
enum { PG_SCHEMA_VERSION = 5, PG_SCHEMA_COMPATIBLE = 5, PG_SCHEMA_COUNTED = 5, PG_SCHEMA_HISTORY = 4 };

/* Makes the tables: version 1. */
extern const char *const fl__pg_schema[];
/* Where there is create_distributed_table(), that is, on Citus. */
extern const char *const fl__pg_distribute[];
/* There, lets every node read and write the other tables; each does nothing if that is done. foliot_member is not a copy on
 * every node, as foliot_meta is: such a table cannot be written to while a node is down. */
extern const char *const fl__pg_share[];
/* Makes each version from the one before it: from 2 on. New tables are made by all of these, one after the other. */
extern const char *const *const fl__pg_steps[PG_SCHEMA_VERSION + 1];
/* After the step to PG_SCHEMA_COUNTED: on Citus; and everywhere. */
extern const char *const fl__pg_distribute_counts[];
extern const char *const fl__pg_count_all[];
/* After the step to PG_SCHEMA_HISTORY, on Citus. */
extern const char *const fl__pg_distribute_history[];

#endif
