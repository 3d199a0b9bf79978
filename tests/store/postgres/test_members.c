/* SPDX-License-Identifier: MIT */
/* Servers that meet in PostgreSQL (FL_STORE_MEET): connections that break, databases that hang, shards that are locked, and
 * what becomes of the rows. What a meeting is for is in the suite for all stores. */

#include <libpq-fe.h>
#include <unistd.h>

#include "pg.h"
#include "store/conformance.h"
#include "store/postgres/proxy.h"

static unsigned schema;
static uint64_t timeout_us = 60000000;

static int open_through_proxy(uint32_t shards, fl_store **ret)
{
    char name[24], url[300];
    if (schema++ == 0) {
        pg_start(false);
        proxy_start();
    }
    snprintf(name, sizeof name, "s%u", schema);
    pg_url(name);
    snprintf(url, sizeof url, "postgres://foliot@/postgres?host=%s&options=-csearch_path%%3D%s", proxy_folder(), name);
    return fl_store_open(url, &(fl_store_config){.shards = shards, .timeout_us = timeout_us}, ret, NULL, 0);
}

static void drop(void)
{
    pg_sql("SET client_min_messages = error; DROP SCHEMA s%u CASCADE", schema);
}

const struct store_under_test under_test = {.open = open_through_proxy, .remove = drop};

static struct asked met(struct asked asked)
{
    CHECK_EQ(perform(shard, &asked), 0);
    return asked;
}

/* --- Connections -------------------------------------------------------------------------------------------------- */

static void fail_everywhere(enum proxy_direction direction, size_t step)
{
    begin();
    met(to_meet("other", 1, HOUR_US, true));
    proxy_bytes(direction);
    met(to_meet("me", 1, HOUR_US, true));
    size_t bytes = proxy_bytes(direction);
    CHECK(bytes > 100);
    uint64_t incarnation = 1;
    unsigned failures = 0, points = 0;
    for (size_t after = 0; after < bytes; after += step, points++) {
        proxy_fail(direction, after, PROXY_CUT);
        struct asked join = met(to_meet("me", ++incarnation, HOUR_US, true));
        CHECK_EQ(join.request.meet.member_count, 2);
        CHECK_EQ(join.request.meet.members[0].incarnation, incarnation);
        failures += proxy_has_failed();
        proxy_release();
    }
    CHECK(failures > points / 2);
    CHECK_EQ(pg_number("SELECT incarnation FROM s%u.foliot_member WHERE address = 'me'", schema), (long)incarnation);
    end();
}

TEST(a_meeting_whose_connection_is_cut_while_sending_is_repeated)
{
    fail_everywhere(PROXY_UP, SCALE(11, 37));
}

TEST(a_meeting_whose_connection_is_cut_while_receiving_is_repeated)
{
    fail_everywhere(PROXY_DOWN, SCALE(11, 37));
}

/* Writes before and after it have the same connection. */
TEST(a_meeting_among_writes_whose_connection_is_cut_hurts_none_of_them)
{
    begin();
    uint64_t version = claim(shard, "me"), seq = 0;
    met(to_meet("me", 1, HOUR_US, true));
    size_t bytes = 0;
    for (size_t after = 0; after <= bytes; after += SCALE(37, 150)) {
        fl_row rows[2];
        fl_store_change changes[2];
        for (int i = 0; i < 2; i++) {
            rows[i] = make_row(seq += 2, 1000, 25);
            changes[i] = (fl_store_change){.put = &rows[i]};
        }
        struct asked asked[] = {to_write(version, &changes[0], 1), to_meet("me", 1, HOUR_US, false),
                                to_write(version, &changes[1], 1)};
        proxy_bytes(PROXY_UP);
        if (bytes > 0)
            proxy_fail(PROXY_UP, after, PROXY_CUT);
        for (int i = 0; i < 3; i++)
            ask(shard, &asked[i]);
        for (int i = 0; i < 3; i++)
            CHECK_EQ(await(&asked[i]), 0);
        CHECK_EQ(asked[1].request.meet.member_count, 1);
        proxy_release();
        if (bytes == 0)
            bytes = proxy_bytes(PROXY_UP);
    }
    CHECK_EQ(load(shard, fl_window_of(1000, 25), NULL), seq / 2);
    end();
}

TEST(a_meeting_that_is_not_answered_in_time_is_unknown_and_a_look_is_not)
{
    timeout_us = 1000000;
    begin();
    struct asked join = to_meet("me", 1, HOUR_US, true), look = to_meet(NULL, 0, 0, false), ready = look;
    while (perform(shard, &ready) != 0)
        ready = to_meet(NULL, 0, 0, false);
    pg_freeze(true);
    CHECK_EQ(perform(shard, &join), FL_OUTCOME_UNKNOWN);
    CHECK_EQ(perform(shard, &look), FL_STORE_UNAVAILABLE);
    join = to_meet("me", 1, HOUR_US, true);
    CHECK_EQ(perform(shard, &join), FL_STORE_UNAVAILABLE); /* it was never sent */
    pg_freeze(false);
    do
        join = to_meet("me", 1, HOUR_US, true);
    while (perform(shard, &join) != 0);
    CHECK_EQ(join.request.meet.member_count, 1);
    end();
    timeout_us = 60000000;
}

/* --- Locks -------------------------------------------------------------------------------------------------------- */

static void run(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    CHECK(PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK);
    PQclear(result);
}

/* All shards are locked by somebody, as by a session of their owners that hangs. */
TEST(a_meeting_waits_for_nobodys_shard)
{
    begin();
    char name[24];
    snprintf(name, sizeof name, "s%u", schema);
    PGconn *conn = PQconnectdb(pg_url(name));
    run(conn, "BEGIN");
    run(conn, "SELECT shard FROM foliot_shard FOR UPDATE");
    run(conn, "UPDATE foliot_shard SET owner = 'nobody yet'");
    CHECK(met(to_meet("me", 1, HOUR_US, true)).request.meet.holders[0].owner[0] == 0);
    pg_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'foliot shard%%'");
    CHECK_EQ(met(to_meet("me", 1, HOUR_US, false)).request.meet.member_count, 1); /* over the next connection, too */
    run(conn, "COMMIT");
    CHECK(strcmp(met(to_meet(NULL, 0, 0, false)).request.meet.holders[1].owner, "nobody yet") == 0);
    PQfinish(conn);
    end();
}

/* --- Rows --------------------------------------------------------------------------------------------------------- */

static void set_left(const char *address, const char *left)
{
    pg_sql("UPDATE s%u.foliot_member SET lease_until = (extract(epoch FROM now() + interval '%s') * 1000000)::bigint"
           " WHERE address = '%s'",
           schema, left, address);
}

TEST(who_joins_takes_those_off_the_list_whose_time_ran_out_more_than_an_hour_ago)
{
    begin();
    met(to_meet("a", 1, HOUR_US, true));
    met(to_meet("b", 1, HOUR_US, true));
    met(to_meet("c", 1, HOUR_US, true));
    set_left("a", "-61 minutes");
    set_left("b", "-58 minutes");
    CHECK_EQ(met(to_meet("c", 1, HOUR_US, false)).request.meet.member_count, 3); /* does not join */
    struct asked asked = met(to_meet("d", 1, HOUR_US, true));
    CHECK_EQ(asked.request.meet.member_count, 3);
    CHECK(strcmp(asked.request.meet.members[0].address, "b") == 0);
    CHECK(asked.request.meet.members[0].left_us <= -58 * 60 * (int64_t)1000000);
    set_left("b", "-61 minutes");
    asked = met(to_meet("b", 1, HOUR_US, false)); /* it comes back in time */
    CHECK_EQ(asked.request.meet.member_count, 3);
    CHECK(asked.request.meet.members[0].left_us > 0);
    end();
}

TEST(a_meeting_that_the_database_gives_up_because_of_a_conflict_is_done_again)
{
    begin();
    pg_sql("CREATE SEQUENCE s%u.tries;"
           "CREATE FUNCTION s%u.conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
           " IF nextval('s%u.tries') %% 3 = 0 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF;"
           " RETURN NEW; END $$;"
           "CREATE TRIGGER conflict BEFORE INSERT ON s%u.foliot_member FOR EACH ROW EXECUTE FUNCTION s%u.conflict()",
           schema, schema, schema, schema, schema);
    uint64_t version = claim(shard, "me");
    for (uint64_t i = 1; i <= 20; i++) {
        struct asked join = to_meet("me", i, HOUR_US, true),
                     record = to_record(version, &(fl_progress){.seq_limit = 2});
        ask(shard, &join);
        ask(shard, &record);
        CHECK_EQ(await(&join), 0);
        CHECK_EQ(await(&record), 0);
        CHECK_EQ(join.request.meet.members[0].incarnation, i);
    }
    CHECK(pg_number("SELECT last_value FROM s%u.tries", schema) > 20);
    end();
}

TEST(a_meeting_that_the_database_refuses_says_so_and_hurts_no_other)
{
    begin();
    uint64_t version = claim(shard, "me");
    pg_sql("ALTER TABLE s%u.foliot_member ADD CONSTRAINT odd CHECK (incarnation %% 2 = 0)", schema);
    struct asked refused = to_meet("me", 1, HOUR_US, true), record = to_record(version, &(fl_progress){.seq_limit = 2});
    ask(shard, &refused);
    ask(shard, &record);
    CHECK_EQ(await(&refused), FL_INVALID_ARGUMENT);
    CHECK(strstr(refused.request.message, "odd"));
    CHECK_EQ(await(&record), 0);
    CHECK_EQ(met(to_meet(NULL, 0, 0, false)).request.meet.member_count, 0);
    struct asked not_text = to_meet("\xff", 2, HOUR_US, true); /* not UTF-8 */
    CHECK_EQ(perform(shard, &not_text), FL_INVALID_ARGUMENT);
    end();
}

TEST(a_shard_that_is_missing_is_noticed)
{
    begin();
    pg_sql("DELETE FROM s%u.foliot_shard WHERE shard = 1", schema);
    struct asked look = to_meet(NULL, 0, 0, false);
    CHECK_EQ(perform(shard, &look), FL_STORE_CORRUPT);
    end();
}
