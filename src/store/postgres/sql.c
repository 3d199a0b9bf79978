/* SPDX-License-Identifier: MIT */
/* The tables and the statements.
 *
 * Every statement names one shard and touches only rows of that shard, and all tables that scale have `shard` as the first
 * column of their keys. (Those of a meeting do not: they are about all shards, few, and far between.) So the database may keep the shards on as many machines as it likes (Citus: tables distributed by
 * and co-located on `shard`; YugabyteDB: hashed by the first column of the key; CockroachDB: ranges), and each transaction
 * stays on one of them. Types are bigint, bytea and text, functions few and old; a statement changes one table only.
 *
 * Statements that write repeat the fence: they do nothing unless the shard's row says that the transaction's own fence
 * (PG_FENCE) has passed, so that a whole transaction can be sent without waiting for the answer to its first statement.
 */

#include <stddef.h>

#include "store/postgres/sql.h"

#define NOW_US "(extract(epoch FROM now()) * 1000000)::bigint"
#define PASSED " EXISTS (SELECT 1 FROM foliot_shard s WHERE s.shard = $1::bigint AND s.applied = $2::bigint)"

/* The same where rows come from arrays. Their shard is taken from the shard's row and not from the parameter: a database of
 * many nodes sees then that the rows belong where that row is. (Citus: else it brings them to the coordinator and needs two
 * phases to commit.) */
#define OWNED " FROM foliot_shard s CROSS JOIN "
#define OWNER " s.shard = $1::bigint AND s.applied = $2::bigint"
#define ROW(t) t "win, " t "seq, " t "at, " t "ns, " t "name, " t "id, " t "body"

/* fl_progress_settled() of ($3, $4), ($5, $6) and the kept $7. */
#define IS_SETTLED                                                   \
    " (((seq & 1) = 0 AND (at, seq) <= ($3::bigint, $4::bigint))"    \
    " OR ((seq & 1) = 1 AND (at, seq) <= ($5::bigint, $6::bigint)))" \
    " AND seq NOT IN (SELECT k FROM unnest($7::bigint[]) AS k)"

/* fl__window_candidates() */
#define LEVEL(shift) "(" #shift "::bigint << 56) | (m.key_at >> " #shift ")"
#define CANDIDATES                                                                                            \
    "ARRAY[" LEVEL(55) ", " LEVEL(49) ", " LEVEL(43) ", " LEVEL(37) ", " LEVEL(31) ", " LEVEL(25) ", " LEVEL( \
        19) ", " LEVEL(13) "]"

/* What a load may see: from ($3, $4), before $5. */
#define LOADED \
    " shard = $1::bigint AND win = ANY ($2::bigint[]) AND (at, seq) >= ($3::bigint, $4::bigint) AND at < $5::bigint"

const struct pg_text fl__pg_sql[PG_STATEMENTS] = {
    [PG_BEGIN] = {"foliot_begin", "BEGIN ISOLATION LEVEL READ COMMITTED"},
    [PG_BEGIN_READ] = {"foliot_begin_read", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"},
    [PG_COMMIT] = {"foliot_commit", "COMMIT"},

    /* Owners. */
    [PG_LOCK] = {"foliot_lock", "SELECT version, applied, lease_until, " NOW_US ", owner FROM foliot_shard"
                                " WHERE shard = $1::bigint FOR UPDATE"},
    [PG_BAR] = {"foliot_bar", "UPDATE foliot_shard SET applied = $2::bigint WHERE shard = $1::bigint"
                              " AND (applied = $3::bigint OR (version = $4::bigint AND version > 0))"},
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
    [PG_FENCE] = {"foliot_fence", "UPDATE foliot_shard SET applied = $4::bigint WHERE shard = $1::bigint"
                                  " AND version = $2::bigint AND version > 0 AND applied = $3::bigint"},
    [PG_RENEW] = {"foliot_renew", "UPDATE foliot_shard SET lease_until = " NOW_US " + $3::bigint"
                                  " WHERE shard = $1::bigint AND applied = $2::bigint"},
    [PG_RELEASE] = {"foliot_release",
                    "UPDATE foliot_shard SET owner = '' WHERE shard = $1::bigint AND applied = $2::bigint"},
    [PG_RECORD] = {"foliot_record",
                   "UPDATE foliot_progress SET progress = $3::bytea WHERE shard = $1::bigint AND" PASSED},

    /* Changes. */
    [PG_PUT] = {"foliot_put", "INSERT INTO foliot_timer (shard, win, seq, at, ns, body)"
                              " SELECT s.shard, r.win, r.seq, r.at, r.ns, r.body" OWNED "unnest($3::bigint[],"
                              " $4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[]) AS r(win, seq, at, ns, body)"
                              " WHERE" OWNER},
    [PG_PUT_FULL] = {"foliot_put_full",
                     "INSERT INTO foliot_timer (shard, win, seq, at, ns, body, name, id)"
                     " SELECT s.shard, r.win, r.seq, r.at, r.ns, r.body, r.name, r.id" OWNED "unnest($3::bigint[],"
                     " $4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[])"
                     " AS r(win, seq, at, ns, body, name, id) WHERE" OWNER},
    [PG_REMOVE] = {"foliot_remove",
                   "INSERT INTO foliot_timer AS o (shard, win, seq, at, ns, body)"
                   " SELECT r.shard, r.win, r.seq, r.at, ''::bytea, ''::bytea"
                   " FROM unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS k(win, seq, at)"
                   " CROSS JOIN LATERAL (SELECT t.shard, t.win, t.seq, t.at FROM foliot_timer t"
                   " WHERE t.shard = $1::bigint AND t.win = k.win AND t.seq = k.seq AND t.at = k.at LIMIT 1) r"
                   " WHERE" PASSED " ON CONFLICT (shard, win, seq) DO UPDATE SET win = -o.win"},
    [PG_REMOVED] = {"foliot_removed", "DELETE FROM foliot_timer WHERE shard = $1::bigint AND win < 0 AND" PASSED},
    [PG_MOVED] = {"foliot_moved", "INSERT INTO foliot_moved (shard, seq, key_at, key_seq)"
                                  " SELECT s.shard, r.seq, r.key_at, r.key_seq" OWNED
                                  "unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS r(seq, key_at, key_seq)"
                                  " WHERE" OWNER " ON CONFLICT (shard, seq)"
                                  " DO UPDATE SET key_at = excluded.key_at, key_seq = excluded.key_seq"},
    [PG_UNMOVE] = {"foliot_unmove",
                   "DELETE FROM foliot_moved WHERE shard = $1::bigint AND seq = ANY ($3::bigint[]) AND" PASSED},
    [PG_BURY] = {"foliot_bury",
                 "INSERT INTO foliot_dead (shard, seq, at, ns, name, body, died, reason)"
                 " SELECT s.shard, r.seq, r.at, r.ns, r.name, r.body, r.died, r.reason" OWNED "unnest($3::bigint[],"
                 " $4::bigint[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bigint[], $9::bytea[])"
                 " AS r(seq, at, ns, name, body, died, reason) WHERE" OWNER " ON CONFLICT (shard, seq)"
                 " DO UPDATE SET at = excluded.at, ns = excluded.ns, name = excluded.name, body = excluded.body,"
                 " died = excluded.died, reason = excluded.reason"},
    [PG_UNBURY] = {"foliot_unbury",
                   "DELETE FROM foliot_dead WHERE shard = $1::bigint AND seq = ANY ($3::bigint[]) AND" PASSED},

    /* Windows. */
    [PG_DROP] = {"foliot_drop",
                 "DELETE FROM foliot_timer WHERE shard = $1::bigint AND win = ANY ($3::bigint[]) AND" PASSED},
    [PG_SETTLED] = {"foliot_settled", "DELETE FROM foliot_timer WHERE shard = $1::bigint"
                                      " AND win = ANY ($8::bigint[]) AND" IS_SETTLED " AND" PASSED},
    [PG_SWEEP] = {"foliot_sweep", /* an entry whose row is gone is no entry */
                  "INSERT INTO foliot_moved AS o (shard, seq, key_at, key_seq)"
                  " SELECT DISTINCT m.shard, m.seq, m.key_at, m.key_seq"
                  " FROM unnest($3::bigint[], $4::bigint[]) AS w(low, high)"
                  " CROSS JOIN LATERAL (SELECT n.shard, n.seq, n.key_at, n.key_seq FROM foliot_moved n"
                  " WHERE n.shard = $1::bigint AND n.key_at >= w.low AND n.key_at < w.high OFFSET 0) m"
                  " WHERE NOT EXISTS (SELECT 1 FROM unnest(" CANDIDATES ") AS c(win)"
                  " CROSS JOIN LATERAL (SELECT 1 FROM foliot_timer t WHERE t.shard = $1::bigint AND t.win = c.win"
                  " AND t.seq = m.key_seq LIMIT 1) r) AND" PASSED
                  " ON CONFLICT (shard, seq) DO UPDATE SET seq = -o.seq"},
    [PG_SWEPT] = {"foliot_swept", "DELETE FROM foliot_moved WHERE shard = $1::bigint AND seq < 0 AND" PASSED},
    [PG_REFILE] = {"foliot_refile",
                   "WITH part AS (UPDATE foliot_timer SET win = ($4::bigint << 56) | (at >> ($4::bigint)::int)"
                   " WHERE shard = $1::bigint AND win = $3::bigint AND seq <= (SELECT max(p.seq) FROM"
                   " (SELECT seq FROM foliot_timer WHERE shard = $1::bigint AND win = $3::bigint"
                   " ORDER BY seq LIMIT $5::bigint) p)"
                   " AND" PASSED " RETURNING win) SELECT win, count(*) FROM part GROUP BY win"},
    [PG_REST] = {"foliot_rest",
                 "SELECT win FROM foliot_timer WHERE shard = $1::bigint AND win = $2::bigint ORDER BY seq LIMIT 1"},
    [PG_PARTS] = {"foliot_parts", "SELECT w.win FROM unnest($2::bigint[]) AS w(win) CROSS JOIN LATERAL"
                                  " (SELECT 1 FROM foliot_timer t WHERE t.shard = $1::bigint AND t.win = w.win"
                                  " LIMIT 1) r"},

    /* Reads. */
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
        {"foliot_list", /* of rows that do not fit, no more than the number is sent */
         "SELECT f.fits, f.win, f.seq, f.at, CASE WHEN f.fits THEN f.ns END, CASE WHEN f.fits THEN f.name END,"
         " CASE WHEN f.fits THEN f.id END, CASE WHEN f.fits THEN f.body END FROM (SELECT q.*,"
         " q.at >= $5::bigint AND q.at < $6::bigint AND ($7::bytea = ''::bytea OR q.ns = $7::bytea)"
         " AND ($8::bytea = ''::bytea OR coalesce(substring(q.name FROM 1 FOR length($8::bytea)) = $8::bytea,"
         " false)) AS fits FROM (SELECT " ROW(
             "") " FROM foliot_timer WHERE shard = $1::bigint"
                 " AND win = $2::bigint AND seq > $3::bigint ORDER BY seq LIMIT $4::bigint) q) f ORDER BY f.seq"},
    [PG_CUT] = {"foliot_cut", /* the first that is too many; sorted only if there is one */
                "SELECT at, seq FROM foliot_timer WHERE" LOADED " AND $6::bigint <"
                " (SELECT count(*) FROM (SELECT 1 FROM foliot_timer WHERE" LOADED " LIMIT $6::bigint + 1) n)"
                " ORDER BY at, seq OFFSET $6::bigint LIMIT 1"},
    [PG_PAGE] = {"foliot_page",
                 "SELECT " ROW("") " FROM foliot_timer WHERE shard = $1::bigint AND win = $2::bigint"
                                   " AND seq > $3::bigint AND (at, seq) >= ($4::bigint, $5::bigint)"
                                   " AND (at, seq) < ($6::bigint, $7::bigint) ORDER BY seq LIMIT $8::bigint"},
    [PG_DEAD] = {"foliot_dead", "SELECT seq, at, ns, name, body, died, reason FROM foliot_dead"
                                " WHERE shard = $1::bigint AND seq > $2::bigint"
                                " AND ($3::bytea = ''::bytea OR ns = $3::bytea) ORDER BY seq LIMIT $4::bigint"},

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
    [PG_OFFER] = {"foliot_offer", /* the secret is that of nobody, who never leaves */
                  "INSERT INTO foliot_member (address, incarnation, lease_until, about)"
                  " VALUES ('', 1, 4611686018427387904, $1::text) ON CONFLICT (address) DO NOTHING"},
    [PG_MEMBERS] = {"foliot_members",
                    "SELECT address, about, incarnation, lease_until - " NOW_US " FROM foliot_member"},
    [PG_HOLDERS] = {"foliot_holders", "SELECT shard, owner, version, lease_until - " NOW_US " FROM foliot_shard"},
};

/* Plans: there is an index for every statement, and LATERAL with a LIMIT makes one look-up in it for each item of an array.
 * A table that was filled since it was last analysed, or whose rows come and go, must not make the planner believe that
 * reading all of it is cheaper. The table of a DELETE cannot stand in a LATERAL: joined with an array, it would be read from
 * end to end and compared with every item whenever the planner takes it for small. So removing is an INSERT of what is
 * there already: its conflicts are found in the key, one by one, and turn the row's key negative; what is negative is
 * deleted next, in the same transaction. (Generic plans are not forced: Citus has none for most of these.) Time-outs: a session whose
 * client is gone must not hold the shard's row for long. Commits: never acknowledged before they are on disk, whatever the
 * default. */
const char *const fl__pg_settings[] = {
    "SELECT set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false), "
    "set_config('enable_hashjoin', 'off', false),"
    " set_config('enable_mergejoin', 'off', false), set_config('enable_material', 'off', false),"
    " set_config('jit', 'off', false)",
    "SELECT set_config('enable_memoize', 'off', false)",
    "SELECT set_config('work_mem', '32MB', false)",
    "SELECT set_config('idle_in_transaction_session_timeout', $1::text, false)",
    "SELECT set_config('statement_timeout', $1::text, false)",
    "SELECT set_config('transaction_timeout', $1::text, false)", /* since PostgreSQL 17 */
    "SELECT set_config('tcp_user_timeout', $1::text, false), set_config('tcp_keepalives_idle', '5', false),"
    " set_config('tcp_keepalives_interval', '2', false), set_config('tcp_keepalives_count', '3', false)",
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
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

static const char *const members_step[] = {
    "CREATE TABLE foliot_member (address text PRIMARY KEY, incarnation bigint NOT NULL, lease_until bigint NOT NULL,"
    " about text NOT NULL)",
    NULL,
};

const char *const *const fl__pg_steps[] = {[2] = members_step};
