/* SPDX-License-Identifier: MIT */
/* The tables and the statements.
 *
 * Every statement names one shard and touches only rows of that shard, and all tables that scale have `shard` as the first
 * column of their keys. (Those of a meeting do not: they are about all shards, few, and far between.) So the database may
 * keep the shards on as many machines as it likes (Citus: tables distributed by and co-located on `shard`; YugabyteDB:
 * hashed by the first column of the key; CockroachDB: ranges), and each transaction stays on one of them. Types are bigint,
 * bytea and text, functions few and old; a statement changes one table only.
 *
 * A transaction that writes begins with the fence (PG_FENCE, or a statement that contains it). If the fence does not pass,
 * that statement fails, and the database passes over the rest: so a whole transaction can be sent without waiting for the
 * answer to its first statement, and the other statements need not look at the shard's row.
 *
 * A statement about one row is plain, without arrays: its plan is kept. That matters most on Citus, which plans anything else
 * again each time, on the coordinator: about a millisecond for a statement that takes its rows from an array.
 */

#include <stddef.h>

#include <foliot/store.h>

#include "store/postgres/sql.h"

#define NOW_US "(extract(epoch FROM now()) * 1000000)::bigint"

/* The fence: the new number, or an error that names the shard owner (SQLSTATE 22P02: the text is not a number). */
#define FENCE                                                                          \
    "UPDATE foliot_shard SET applied = CASE WHEN version = $2::bigint AND version > 0" \
    " AND applied = $3::bigint THEN $4::bigint ELSE ('the shard was lost to ' || owner)::bigint END"

/* The same where rows come from arrays. Their shard is taken from the shard's row and not from the parameter: a database of
 * many nodes sees then that the rows belong where that row is. (Citus: else it brings them to the coordinator and needs two
 * phases to commit.) */
#define OWNED " FROM foliot_shard s CROSS JOIN "
#define OWNER " s.shard = $1::bigint"
#define ROW(t) t "win, " t "seq, " t "at, " t "ns, " t "name, " t "id, " t "body"

/* fl_progress_settled() of ($2, $3), ($4, $5) and the kept $6. */
#define IS_SETTLED                                                   \
    " (((seq & 1) = 0 AND (at, seq) <= ($2::bigint, $3::bigint))"    \
    " OR ((seq & 1) = 1 AND (at, seq) <= ($4::bigint, $5::bigint)))" \
    " AND seq NOT IN (SELECT k FROM unnest($6::bigint[]) AS k)"

/* Rows that are about to leave their window, fewer of each namespace. */
#define ADD_TO_COUNT "INSERT INTO foliot_count AS c (shard, win, ns, n) "
#define COUNT_ROWS ADD_TO_COUNT "SELECT shard, win, ns, -count(*) FROM foliot_timer WHERE shard = $1::bigint AND"
#define ADD_COUNT " ON CONFLICT (shard, win, ns) DO UPDATE SET n = c.n + excluded.n"

/* Those that are filed under the windows of shift $3: at most $4 of the window $2. */
#define REFILED                                                                                      \
    " shard = $1::bigint AND win = $2::bigint AND $3::bigint > 0 AND seq <= (SELECT max(p.seq) FROM" \
    " (SELECT seq FROM foliot_timer WHERE shard = $1::bigint AND win = $2::bigint"                   \
    " ORDER BY seq LIMIT $4::bigint) p)"
#define REFILED_AS "($3::bigint << 56) | (at >> ($3::bigint)::int)"

/* fl__window_candidates() */
#define LEVEL(shift) "(" #shift "::bigint << 56) | (m.key_at >> " #shift ")"
#define CANDIDATES                                                                                            \
    "ARRAY[" LEVEL(55) ", " LEVEL(49) ", " LEVEL(43) ", " LEVEL(37) ", " LEVEL(31) ", " LEVEL(25) ", " LEVEL( \
        19) ", " LEVEL(13) "]"

/* A claim that lasts longer than `most` was made before the clock of the database was set back. It is shortened to `most`:
 * its owner renews it before that if it lives, and is missed if it does not. */
#define CAP(most) " SET lease_until = " NOW_US " + " most " WHERE lease_until > " NOW_US " + " most

#define HOLDERS "SELECT shard, owner, version, lease_until - " NOW_US " FROM foliot_shard"

/* What a load may see: from ($3, $4), before $5. */
#define LOADED \
    " shard = $1::bigint AND win = ANY ($2::bigint[]) AND (at, seq) >= ($3::bigint, $4::bigint) AND at < $5::bigint"

/* Whether the rows before this one fill a page (FL_STORE_PAGE_BYTES) already. */
_Static_assert(FL_STORE_PAGE_BYTES == 1048576, "the statements know it");
#define TOO_LONG(size, order)                                                                             \
    " coalesce(sum(" size ") OVER (ORDER BY " order " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)," \
    " 0) >= 1048576"

const struct pg_text fl__pg_sql[PG_STATEMENTS] = {
    [PG_BEGIN] = {"foliot_begin", "BEGIN ISOLATION LEVEL READ COMMITTED"},
    [PG_BEGIN_READ] = {"foliot_begin_read", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"},
    [PG_DURABLE] = {"foliot_durable", "SET LOCAL synchronous_commit = 'on'"},
    [PG_COMMIT] = {"foliot_commit", "COMMIT"},

    /* Owners. */
    [PG_LOCK] = {"foliot_lock", "SELECT version, applied, lease_until, " NOW_US ", owner FROM foliot_shard"
                                " WHERE shard = $1::bigint FOR UPDATE"},
    [PG_BAR] = {"foliot_bar", "UPDATE foliot_shard SET applied = $2::bigint WHERE shard = $1::bigint"
                              " AND (applied = $3::bigint OR (version = $4::bigint AND version > 0))"},
    [PG_CAP_CLAIM] = {"foliot_cap_claim",
                      "UPDATE foliot_shard" CAP("$2::bigint") " AND shard = $1::bigint AND owner <> ''"},
    [PG_CLAIM] = {"foliot_claim", "UPDATE foliot_shard SET version = version + 1, applied = $3::bigint,"
                                  " lease_until = " NOW_US " + $4::bigint, owner = $5::text"
                                  " WHERE shard = $1::bigint AND version = $2::bigint RETURNING version"},
    [PG_PROGRESS] = {"foliot_progress", "SELECT progress FROM foliot_progress WHERE shard = $1::bigint"},
    [PG_WINDOWS] = {"foliot_windows", /* one step of an index for each, however many rows there are */
                    "WITH RECURSIVE w(win) AS ("
                    "(SELECT win FROM foliot_timer WHERE shard = $1::bigint ORDER BY win LIMIT 1)"
                    " UNION ALL SELECT (SELECT t.win FROM foliot_timer t WHERE t.shard = $1::bigint AND t.win > w.win"
                    " ORDER BY t.win LIMIT 1) FROM w WHERE w.win IS NOT NULL)"
                    " SELECT win FROM w WHERE win IS NOT NULL"},
    [PG_COUNTS] = {"foliot_counts", "SELECT ns, sum(n)::bigint FROM foliot_count WHERE shard = $1::bigint GROUP BY ns"
                                    " HAVING sum(n) <> 0 ORDER BY ns"},
    [PG_COUNT_CLEAR] = {"foliot_count_clear", "DELETE FROM foliot_count WHERE shard = $1::bigint AND n = 0"},
    [PG_OVER] = {"foliot_over", "SELECT ns, count(*) FROM foliot_timer WHERE shard = $1::bigint"
                                " AND win = ANY ($7::bigint[]) AND" IS_SETTLED " GROUP BY ns ORDER BY ns"},
    [PG_FENCE] = {"foliot_fence", FENCE " WHERE shard = $1::bigint"},
    [PG_RENEW] = {"foliot_renew", FENCE ", lease_until = " NOW_US " + $5::bigint WHERE shard = $1::bigint"
                                        " RETURNING lease_until"},
    [PG_RELEASE] = {"foliot_release", FENCE ", owner = '' WHERE shard = $1::bigint"},
    [PG_RECORD] = {"foliot_record", "UPDATE foliot_progress SET progress = $2::bytea WHERE shard = $1::bigint"},

    /* Changes. */
    [PG_PUT_ONE] = {"foliot_put_one", "INSERT INTO foliot_timer (shard, win, seq, at, ns, body, name, id) VALUES"
                                      " ($1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bytea, $6::bytea,"
                                      " $7::bytea, $8::bytea)"},
    [PG_PUT] = {"foliot_put", "INSERT INTO foliot_timer (shard, win, seq, at, ns, body)"
                              " SELECT s.shard, r.win, r.seq, r.at, r.ns, r.body" OWNED "unnest($2::bigint[],"
                              " $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[]) AS r(win, seq, at, ns, body)"
                              " WHERE" OWNER},
    [PG_PUT_FULL] = {"foliot_put_full",
                     "INSERT INTO foliot_timer (shard, win, seq, at, ns, body, name, id)"
                     " SELECT s.shard, r.win, r.seq, r.at, r.ns, r.body, r.name, r.id" OWNED "unnest($2::bigint[],"
                     " $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[])"
                     " AS r(win, seq, at, ns, body, name, id) WHERE" OWNER},
    [PG_REMOVE] = {"foliot_remove",
                   "INSERT INTO foliot_timer AS o (shard, win, seq, at, ns, body)"
                   " SELECT r.shard, r.win, r.seq, r.at, ''::bytea, ''::bytea"
                   " FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS k(win, seq, at)"
                   " CROSS JOIN LATERAL (SELECT t.shard, t.win, t.seq, t.at FROM foliot_timer t"
                   " WHERE t.shard = $1::bigint AND t.win = k.win AND t.seq = k.seq AND t.at = k.at LIMIT 1) r"
                   " WHERE r.shard = $1::bigint ON CONFLICT (shard, win, seq) DO UPDATE SET win = -o.win"},
    [PG_REMOVED] = {"foliot_removed", "DELETE FROM foliot_timer WHERE shard = $1::bigint AND win < 0"},
    [PG_MOVED] = {"foliot_moved", "INSERT INTO foliot_moved (shard, seq, key_at, key_seq)"
                                  " SELECT s.shard, r.seq, r.key_at, r.key_seq" OWNED
                                  "unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS r(seq, key_at, key_seq)"
                                  " WHERE" OWNER " ON CONFLICT (shard, seq)"
                                  " DO UPDATE SET key_at = excluded.key_at, key_seq = excluded.key_seq"},
    [PG_UNMOVE] = {"foliot_unmove", "DELETE FROM foliot_moved WHERE shard = $1::bigint AND seq = ANY ($2::bigint[])"},
    [PG_BURY] = {"foliot_bury",
                 "INSERT INTO foliot_dead (shard, seq, at, ns, name, body, died, reason)"
                 " SELECT s.shard, r.seq, r.at, r.ns, r.name, r.body, r.died, r.reason" OWNED "unnest($2::bigint[],"
                 " $3::bigint[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bigint[], $8::bytea[])"
                 " AS r(seq, at, ns, name, body, died, reason) WHERE" OWNER " ON CONFLICT (shard, seq)"
                 " DO UPDATE SET at = excluded.at, ns = excluded.ns, name = excluded.name, body = excluded.body,"
                 " died = excluded.died, reason = excluded.reason"},
    [PG_UNBURY] = {"foliot_unbury", "DELETE FROM foliot_dead WHERE shard = $1::bigint AND seq = ANY ($2::bigint[])"},

    /* How many rows of each namespace are in a window, settled or not: before rows are taken away, and for those that are
     * put. */
    [PG_COUNT_ONE] = {"foliot_count_one",
                      ADD_TO_COUNT "VALUES ($1::bigint, $2::bigint, $3::bytea, $4::bigint)" ADD_COUNT},
    [PG_COUNT_PUT] = {"foliot_count_put",
                      ADD_TO_COUNT "SELECT s.shard, r.win, r.ns, sum(r.n)::bigint" OWNED
                                   "unnest($2::bigint[], $3::bytea[], $4::bigint[]) AS r(win, ns, n) WHERE" OWNER
                                   " GROUP BY s.shard, r.win, r.ns" ADD_COUNT},
    [PG_COUNT_REMOVED] = {"foliot_count_removed",
                          ADD_TO_COUNT "SELECT shard, -win, ns, -count(*) FROM foliot_timer WHERE shard = $1::bigint"
                                       " AND win < 0 GROUP BY shard, win, ns" ADD_COUNT},
    [PG_COUNT_DROP] = {"foliot_count_drop",
                       "DELETE FROM foliot_count WHERE shard = $1::bigint AND win = ANY ($2::bigint[])"},
    [PG_COUNT_SETTLED] = {"foliot_count_settled",
                          COUNT_ROWS " win = ANY ($7::bigint[]) AND" IS_SETTLED " GROUP BY shard, win, ns" ADD_COUNT},
    [PG_COUNT_PARTS] = {"foliot_count_parts",
                        ADD_TO_COUNT "SELECT shard, " REFILED_AS ", ns, count(*) FROM foliot_timer WHERE" REFILED
                                     " GROUP BY 1, 2, 3" ADD_COUNT},
    [PG_COUNT_REFILED] = {"foliot_count_refiled", COUNT_ROWS REFILED " GROUP BY shard, win, ns" ADD_COUNT},
    [PG_COUNT_WINDOWS] = {"foliot_count_windows",
                          "SELECT win, sum(n)::bigint FROM foliot_count WHERE shard = $1::bigint"
                          " AND CASE WHEN $2::bytea = ''::bytea THEN ns >= $3::bytea ELSE ns = $2::bytea END"
                          " GROUP BY win HAVING sum(n) > 0"},

    /* Windows. */
    [PG_DROP] = {"foliot_drop", "DELETE FROM foliot_timer WHERE shard = $1::bigint AND win = ANY ($2::bigint[])"},
    [PG_SETTLED] = {"foliot_settled", "DELETE FROM foliot_timer WHERE shard = $1::bigint"
                                      " AND win = ANY ($7::bigint[]) AND" IS_SETTLED},
    [PG_SWEEP] = {"foliot_sweep", /* entries from $2 on, before $3, whose row is gone */
                  "DELETE FROM foliot_moved m WHERE m.shard = $1::bigint AND m.key_at >= $2::bigint"
                  " AND m.key_at < $3::bigint AND NOT EXISTS (SELECT 1 FROM foliot_timer t WHERE t.shard = $1::bigint"
                  " AND t.win = ANY (" CANDIDATES ") AND t.seq = m.key_seq OFFSET 0)"},
    [PG_REFILE] = {"foliot_refile", "WITH part AS (UPDATE foliot_timer SET win = " REFILED_AS " WHERE" REFILED
                                    " RETURNING win) SELECT win, count(*) FROM part GROUP BY win"},
    [PG_REST] = {"foliot_rest",
                 "SELECT win FROM foliot_timer WHERE shard = $1::bigint AND win = $2::bigint ORDER BY seq LIMIT 1"},
    [PG_PARTS] = {"foliot_parts", "SELECT w.win FROM unnest($2::bigint[]) AS w(win) CROSS JOIN LATERAL"
                                  " (SELECT 1 FROM foliot_timer t WHERE t.shard = $1::bigint AND t.win = w.win"
                                  " LIMIT 1) r"},

    /* Reads. */
    [PG_FIND_ONE] = {"foliot_find_one",
                     "SELECT $4::bigint, " ROW(
                         "") " FROM foliot_timer WHERE shard = $1::bigint AND ns = $2::bytea AND name = $3::bytea"
                             " AND name IS NOT NULL LIMIT 2"},
    [PG_FIND_NAME] = {"foliot_find_name",
                      "SELECT w.i, " ROW(
                          "t.") " FROM unnest($2::bigint[], $3::bytea[], $4::bytea[]) AS w(i, ns, name)"
                                " CROSS JOIN LATERAL (SELECT " ROW(
                                    "r.") " FROM foliot_timer r WHERE r.shard = $1::bigint"
                                          " AND r.ns = w.ns AND r.name = w.name AND r.name IS NOT NULL LIMIT 2) t"},
    [PG_FIND_ID] = {"foliot_find_id",
                    "SELECT w.i, " ROW("t.") " FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS w(i, win, seq)"
                                             " CROSS JOIN LATERAL (SELECT " ROW(
                                                 "r.") " FROM foliot_timer r WHERE r.shard = $1::bigint"
                                                       " AND r.win = w.win AND r.seq = w.seq LIMIT 1) t"},
    [PG_FIND_MOVED] =
        {"foliot_find_moved",
         "SELECT w.i, " ROW(
             "t.") " FROM unnest($2::bigint[], $3::bigint[]) AS w(i, seq)"
                   " CROSS JOIN LATERAL (SELECT key_at, key_seq FROM foliot_moved n WHERE n.shard = $1::bigint"
                   " AND n.seq = w.seq LIMIT 1) m CROSS JOIN LATERAL unnest(" CANDIDATES ") AS c(win)"
                   " CROSS JOIN LATERAL (SELECT " ROW(
                       "r.") " FROM foliot_timer r WHERE r.shard = $1::bigint"
                             " AND r.win = c.win AND r.seq = m.key_seq AND r.at = m.key_at LIMIT 1) t"},
    [PG_LIST] =
        {"foliot_list", /* of rows that do not fit, or would make the page too long, no more than the number is sent */
         "SELECT g.fits, g.win, g.seq, g.at, CASE WHEN g.fits THEN g.ns END, CASE WHEN g.fits THEN g.name END,"
         " CASE WHEN g.fits THEN g.id END, CASE WHEN g.fits AND NOT g.long THEN g.body END, g.long"
         " FROM (SELECT f.*," TOO_LONG(
             "CASE WHEN f.fits THEN octet_length(f.body) ELSE 0 END",
             "f.seq") " AS long FROM (SELECT q.*,"
                      " q.at >= $5::bigint AND q.at < $6::bigint AND ($7::bytea = ''::bytea OR q.ns = $7::bytea)"
                      " AND ($8::bytea = ''::bytea OR coalesce(substring(q.name FROM 1 FOR length($8::bytea)) ="
                      " $8::bytea, false)) AS fits FROM (SELECT " ROW(
                          "") " FROM foliot_timer WHERE shard = $1::bigint"
                              " AND win = $2::bigint AND seq > $3::bigint ORDER BY seq LIMIT $4::bigint) q) f) g"
                              " ORDER BY g.seq"},
    [PG_CUT] = {"foliot_cut", /* the first that is too many; sorted only if there is one */
                "SELECT at, seq FROM foliot_timer WHERE" LOADED " AND $6::bigint <"
                " (SELECT count(*) FROM (SELECT 1 FROM foliot_timer WHERE" LOADED " LIMIT $6::bigint + 1) n)"
                " ORDER BY at, seq OFFSET $6::bigint LIMIT 1"},
    [PG_PAGE] = {"foliot_page",
                 "SELECT " ROW("") " FROM foliot_timer WHERE shard = $1::bigint AND win = $2::bigint"
                                   " AND seq > $3::bigint AND (at, seq) >= ($4::bigint, $5::bigint)"
                                   " AND (at, seq) < ($6::bigint, $7::bigint) ORDER BY seq LIMIT $8::bigint"},
    [PG_DEAD] = {"foliot_dead",
                 "SELECT d.seq, d.at, d.ns, d.name, CASE WHEN NOT d.long THEN d.body END, d.died, d.reason,"
                 " d.long FROM (SELECT q.*," TOO_LONG(
                     "octet_length(q.body)", "q.seq") " AS long FROM (SELECT seq, at, ns, name, body, died, reason"
                                                      " FROM foliot_dead WHERE shard = $1::bigint AND seq > $2::bigint"
                                                      " AND ($3::bytea = ''::bytea OR ns = $3::bytea) ORDER BY seq"
                                                      " LIMIT $4::bigint) q) d ORDER BY d.seq"},

    /* History. */
    [PG_HISTORY_ADD] =
        {"foliot_history_add",
         "INSERT INTO foliot_history (shard, span, seq, began, result, id_at, id_seq, ns, name, schedule, body)"
         " SELECT s.shard, $2::bigint, r.seq, r.began, r.result, r.id_at, r.id_seq, r.ns, r.name, r.schedule,"
         " r.body" OWNED "unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[],"
         " $9::bytea[], $10::bytea[], $11::bytea[])"
         " AS r(seq, began, result, id_at, id_seq, ns, name, schedule, body) WHERE" OWNER
         " ON CONFLICT (shard, span, seq) DO NOTHING"},
    [PG_HISTORY_NOTE] = {"foliot_history_note",
                         "INSERT INTO foliot_history_span AS h (shard, span, n, size, first_us, last_us) VALUES"
                         " ($1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::bigint)"
                         " ON CONFLICT (shard, span) DO UPDATE SET n = h.n + excluded.n, size = h.size + excluded.size,"
                         " first_us = least(h.first_us, excluded.first_us),"
                         " last_us = greatest(h.last_us, excluded.last_us)"},
    [PG_HISTORY_DROP] = {"foliot_history_drop",
                         "DELETE FROM foliot_history WHERE shard = $1::bigint AND span < $2::bigint"},
    [PG_HISTORY_SPANS_DROP] = {"foliot_history_spans_drop",
                               "DELETE FROM foliot_history_span WHERE shard = $1::bigint AND span < $2::bigint"},
    [PG_HISTORY_SPANS] = {"foliot_history_spans", "SELECT span, n, size, first_us, last_us FROM foliot_history_span"
                                                  " WHERE shard = $1::bigint ORDER BY span"},
    [PG_HISTORY] =
        {"foliot_history_page", /* as PG_LIST, from the end */
         "SELECT g.fits, g.seq, g.began, g.result, g.id_at, g.id_seq, CASE WHEN g.fits THEN g.ns END,"
         " CASE WHEN g.fits THEN g.name END, CASE WHEN g.fits THEN g.schedule END,"
         " CASE WHEN g.fits AND NOT g.long THEN g.body END, g.long"
         " FROM (SELECT f.*," TOO_LONG(
             "CASE WHEN f.fits THEN octet_length(f.body) ELSE 0 END",
             "f.seq DESC") " AS long FROM (SELECT q.*,"
                           " q.began >= $5::bigint AND q.began < $6::bigint"
                           " AND ($7::bytea = ''::bytea OR q.ns = $7::bytea)"
                           " AND ($8::bytea = ''::bytea OR q.name = $8::bytea)"
                           " AND ($9::bytea = ''::bytea OR q.schedule = $9::bytea)"
                           " AND ($10::bigint = 0 OR q.id_seq = $10::bigint)"
                           " AND ($11::bigint = 0 OR ($11::bigint >> q.result::int) & 1 = 1) AS fits"
                           " FROM (SELECT seq, began, result, id_at, id_seq, ns, name, schedule, body"
                           " FROM foliot_history WHERE shard = $1::bigint AND span = $2::bigint AND seq < $3::bigint"
                           " ORDER BY seq DESC LIMIT $4::bigint) q) f) g ORDER BY g.seq DESC"},
    [PG_HISTORY_ERASE] = {"foliot_history_erase",
                          "DELETE FROM foliot_history WHERE shard = $1::bigint AND span = $2::bigint"
                          " AND ($3::bigint = 0 OR id_seq = $3::bigint) AND ($4::bytea = ''::bytea OR ns = $4::bytea)"},

    /* Servers. */
    [PG_JOIN] = {"foliot_join", "INSERT INTO foliot_member (address, incarnation, lease_until, about)"
                                " VALUES ($1::text, $2::bigint, " NOW_US " + $3::bigint, $4::text)"
                                " ON CONFLICT (address) DO UPDATE SET incarnation = excluded.incarnation,"
                                " lease_until = excluded.lease_until, about = excluded.about"},
    [PG_STAY] = {"foliot_stay", "UPDATE foliot_member SET lease_until = " NOW_US " + $3::bigint, about = $4::text"
                                " WHERE address = $1::text AND incarnation = $2::bigint"},
    [PG_LEAVE] = {"foliot_leave", "DELETE FROM foliot_member WHERE address = $1::text"
                                  " AND (incarnation = $2::bigint OR $3::bigint > 0)"},
    [PG_FORGET] = {"foliot_forget", "DELETE FROM foliot_member WHERE lease_until < " NOW_US " - 3600000000"},
    [PG_OFFER] = {"foliot_offer", /* the secret is in a row without an address, which never expires */
                  "INSERT INTO foliot_member (address, incarnation, lease_until, about)"
                  " VALUES ('', 1, 4611686018427387904, $1::text) ON CONFLICT (address) DO NOTHING"},
    [PG_CAP_MEMBERS] = {"foliot_cap_members", "UPDATE foliot_member" CAP("$1::bigint") " AND address <> ''"},
    [PG_CAP_CLAIMS] = {"foliot_cap_claims", "UPDATE foliot_shard" CAP("$1::bigint") " AND owner <> ''"},
    [PG_MEMBERS] = {"foliot_members",
                    "SELECT address, about, incarnation, lease_until - " NOW_US ", " NOW_US " FROM foliot_member"},
    [PG_HOLDERS] = {"foliot_holders", HOLDERS},

    /* The same where the shards are on several nodes of Citus. */
    [PG_PATIENCE] = {"foliot_patience", "SELECT set_config('statement_timeout', $1::text, false)"},
    [PG_NODES] = {"foliot_nodes",
                  "SELECT i, p.groupid::bigint FROM generate_series(0, $1::bigint - 1) AS i JOIN pg_dist_placement p"
                  " ON p.shardid = get_shard_id_for_distribution_column('foliot_shard', i) ORDER BY 2, 1"},
    [PG_NODE_HOLDERS] = {"foliot_node_holders", HOLDERS " WHERE shard = ANY ($1::bigint[])"},
};

/* Plans: there is an index for every statement, and LATERAL with a LIMIT makes one look-up in it for each item of an array.
 * A table that was filled since it was last analysed, or whose rows come and go, must not make the planner believe that
 * reading all of it is cheaper. The table of a DELETE cannot stand in a LATERAL: joined with an array, it would be read from
 * end to end and compared with every item whenever the planner takes it for small. So removing is an INSERT of the existing
 * rows: its conflicts are found in the key, one by one, and turn the row's key negative. Rows with negative keys are
 * deleted next, in the same transaction. (Generic plans are not forced: Citus has none for most of these.) Time-outs: a
 * session whose client is gone must not hold the shard's row for long.
 *
 * Commits are on disk before they are acknowledged, whatever the configuration says, now or later: each transaction sets
 * that for itself (PG_DURABLE). Citus passes a SET LOCAL on to the node of the shard, if it is told to, but no setting of a
 * session. */
const char *const fl__pg_settings[] = {
    ("SELECT set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false),"
     " set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false),"
     " set_config('enable_material', 'off', false), set_config('jit', 'off', false)"),
    "SELECT set_config('enable_memoize', 'off', false)",
    "SELECT set_config('work_mem', '32MB', false)",
    "SELECT set_config('idle_in_transaction_session_timeout', $1::text, false)",
    "SELECT set_config('statement_timeout', $1::text, false)",
    "SELECT set_config('transaction_timeout', $1::text, false)", /* since PostgreSQL 17 */
    ("SELECT set_config('tcp_user_timeout', $1::text, false), set_config('tcp_keepalives_idle', '5', false),"
     " set_config('tcp_keepalives_interval', '2', false), set_config('tcp_keepalives_count', '3', false)"),
    "SELECT set_config('citus.propagate_set_commands', 'local', false)",
    "SELECT set_config('citus.node_connection_timeout', '3s', false)",
    NULL,
};

const char fl__pg_terminate[] = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
                                "$1::text AND pid <> pg_backend_pid()";

/* `id` is null unless the row was moved; then it is its first key, eight bytes of time and eight of number, the most
 * significant first. One column and not two: with more than eight columns PostgreSQL's rows grow by eight bytes. */
const char *const fl__pg_schema[] = {
    "CREATE TABLE foliot_shard (shard bigint PRIMARY KEY, version bigint NOT NULL, applied bigint NOT NULL,"
    " lease_until bigint NOT NULL, owner text NOT NULL)",
    "CREATE TABLE foliot_progress (shard bigint PRIMARY KEY, progress bytea)",
    "CREATE TABLE foliot_timer (shard bigint NOT NULL, win bigint NOT NULL, seq bigint NOT NULL, at bigint NOT NULL,"
    " ns bytea NOT NULL, name bytea, id bytea, body bytea NOT NULL, PRIMARY KEY (shard, win, seq))",
    "CREATE INDEX foliot_timer_name ON foliot_timer (shard, ns, name) WHERE name IS NOT NULL",
    "CREATE TABLE foliot_moved (shard bigint NOT NULL, seq bigint NOT NULL, key_at bigint NOT NULL,"
    " key_seq bigint NOT NULL, PRIMARY KEY (shard, seq))",
    "CREATE INDEX foliot_moved_key ON foliot_moved (shard, key_at)",
    "CREATE TABLE foliot_dead (shard bigint NOT NULL, seq bigint NOT NULL, at bigint NOT NULL, ns bytea NOT NULL,"
    " name bytea, body bytea NOT NULL, died bigint NOT NULL, reason bytea NOT NULL, PRIMARY KEY (shard, seq))",
    NULL,
};

const char *const fl__pg_distribute[] = {
    "SELECT create_distributed_table('foliot_shard', 'shard')",
    "SELECT create_distributed_table('foliot_progress', 'shard', colocate_with => 'foliot_shard')",
    "SELECT create_distributed_table('foliot_timer', 'shard', colocate_with => 'foliot_shard')",
    "SELECT create_distributed_table('foliot_moved', 'shard', colocate_with => 'foliot_shard')",
    "SELECT create_distributed_table('foliot_dead', 'shard', colocate_with => 'foliot_shard')",
    NULL,
};

#define UNLESS_SHARED(table) \
    " WHERE NOT EXISTS (SELECT 1 FROM pg_dist_partition WHERE logicalrelid = to_regclass('" table "'))"

const char *const fl__pg_share[] = {
    "SELECT create_reference_table('foliot_meta')" UNLESS_SHARED("foliot_meta"),
    "SELECT citus_add_local_table_to_metadata('foliot_member')" UNLESS_SHARED("foliot_member"),
    NULL,
};

static const char *const members_step[] = {
    "CREATE TABLE foliot_member (address text PRIMARY KEY, incarnation bigint NOT NULL, lease_until bigint NOT NULL,"
    " about text NOT NULL)",
    NULL,
};

/* How many rows a span has, their bytes, and the earliest and latest time, are noted when rows are appended. */
static const char *const history_step[] = {
    "CREATE TABLE foliot_history (shard bigint NOT NULL, span bigint NOT NULL, seq bigint NOT NULL,"
    " began bigint NOT NULL, result bigint NOT NULL, id_at bigint NOT NULL, id_seq bigint NOT NULL, ns bytea NOT NULL,"
    " name bytea NOT NULL, schedule bytea NOT NULL, body bytea NOT NULL, PRIMARY KEY (shard, span, seq))",
    "CREATE TABLE foliot_history_span (shard bigint NOT NULL, span bigint NOT NULL, n bigint NOT NULL,"
    " size bigint NOT NULL, first_us bigint NOT NULL, last_us bigint NOT NULL, PRIMARY KEY (shard, span))",
    NULL,
};

/* Versions 3 and 4 counted without windows. */
static const char *const counts_step[] = {
    "DROP TABLE IF EXISTS foliot_count",
    "CREATE TABLE foliot_count (shard bigint NOT NULL, win bigint NOT NULL, ns bytea NOT NULL, n bigint NOT NULL,"
    " PRIMARY KEY (shard, win, ns))",
    NULL,
};

static const char *const no_step[] = {NULL};

const char *const *const fl__pg_steps[] = {[2] = members_step, [3] = no_step, [4] = history_step, [5] = counts_step};

const char *const fl__pg_distribute_history[] = {
    "SELECT create_distributed_table('foliot_history', 'shard', colocate_with => 'foliot_shard')",
    "SELECT create_distributed_table('foliot_history_span', 'shard', colocate_with => 'foliot_shard')",
    NULL,
};

const char *const fl__pg_distribute_counts[] = {
    "SELECT create_distributed_table('foliot_count', 'shard', colocate_with => 'foliot_shard')",
    NULL,
};

/* Timers of the first are what versions 1 and 2 counted with. */
const char *const fl__pg_count_all[] = {
    "DELETE FROM foliot_timer WHERE ns = '\\x01636f756e7473'::bytea",
    "INSERT INTO foliot_count (shard, win, ns, n) SELECT shard, win, ns, count(*) FROM foliot_timer"
    " GROUP BY shard, win, ns",
    NULL,
};
