/* SPDX-License-Identifier: MIT */
/* Opening a store in PostgreSQL: what is made, what is refused, and what the messages say; and memory that runs out. */

#include <libpq-fe.h>
#include <pthread.h>
#include <stdlib.h>

#include "pg.h"
#include "store/conformance.h"
#include "store/postgres/postgres.h"
#include "wheel/allocator.h"

static unsigned schema;

static const char *new_schema(void)
{
    static char name[24];
    if (schema++ == 0)
        pg_start(false);
    snprintf(name, sizeof name, "s%u", schema);
    return name;
}

static int open_new(uint32_t shards, fl_store **ret)
{
    return fl_store_open(pg_url(new_schema()), &(fl_store_config){.shards = shards, .timeout_us = 60000000}, ret, NULL,
                         0);
}

const struct store_under_test under_test = {.open = open_new};

static char message[400];

static int try_open(const char *url, uint32_t shards)
{
    fl_store *opened = NULL;
    int r = fl_store_open(url, &(fl_store_config){.shards = shards}, &opened, message, sizeof message);
    CHECK((r == 0) == (opened != NULL) && (r == 0) == (message[0] == 0));
    CHECK(!strstr(message, "secret") && !strchr(message, '\n'));
    fl_store_close(opened);
    return r;
}

static const char *url_of(const char *who, const char *database, const char *options)
{
    static char url[300];
    snprintf(url, sizeof url, "postgres://%s@/%s?host=%s%s", who, database, pg_folder(), options);
    return url;
}

/* Everything once. What cannot be done fails with `failure`; 0: everything can. */
static void ask_everything(uint64_t *version, uint64_t *seq, int failure)
{
    fl_row row = make_named(*seq, 1000, 31, "name"), moved = move_row(row, *seq + 2, 5000, 31);
    fl_dead_row dead = make_dead(row, "reason");
    fl_store_change changes[] = {{.put = &row}}, more[] = {{.remove = row.key, .put = &moved, .bury = &dead}},
                    last[] = {{.remove = moved.key, .remove_id = row.id.seq, .unbury = row.id.seq}};
    fl_store_want wants[] = {{.id = row.id}, {.ns = text("ns"), .name = text("name")}};
    uint64_t keep[] = {7, 9};
    fl_progress progress = {.keep = keep, .keep_count = 2, .seq_limit = 100};
    struct fl_store_span span = {fl_window_of((int64_t)1 << 40, 25), false};
    struct asked all[] = {to_claim("me", HOUR_US, true),
                          to_write(*version, changes, 1),
                          to_find(wants, 2),
                          to_list(row.window),
                          to_load(&row.window, 1),
                          to_write(*version, more, 1),
                          to_list_dead(),
                          to_refile(*version, row.window, 10),
                          to_record(*version, &progress),
                          simple(FL_STORE_FINISH, *version),
                          to_write(*version, last, 1),
                          simple(FL_STORE_RENEW, *version),
                          to_meet("me", 1, HOUR_US, true),
                          to_meet("me", 1, HOUR_US, false),
                          to_meet("me", 1, 0, false),
                          simple(FL_STORE_RELEASE, *version)};
    all[9].request.finish.spans = &span;
    all[9].request.finish.span_count = 1;
    all[9].request.finish.settled = all[9].request.finish.record = progress;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        all[i].request.version = *version;
        int r = perform(shard, &all[i]);
        bool met = all[i].request.op == FL_STORE_MEET; /* it may be done, and there is no memory for the answer */
        CHECK(r == 0 || r == failure || (met && failure < 0 && r == FL_OUTCOME_UNKNOWN));
        if (i == 0 && r == 0)
            *version = all[i].request.claim.version;
    }
    *seq += 4;
}

/* --- What is made ------------------------------------------------------------------------------------------------- */

TEST(the_number_of_shards_is_fixed_when_the_store_is_made)
{
    const char *name = new_schema();
    CHECK_EQ(try_open(pg_url(name), 3), 0);
    CHECK_EQ(try_open(pg_url(name), 3), 0);
    CHECK_EQ(try_open(pg_url(name), 0), 0);
    CHECK_EQ(try_open(pg_url(name), 4), FL_INVALID_ARGUMENT);
    CHECK(strstr(message, "3 shards"));
    CHECK_EQ(pg_number("SELECT count(*) FROM %s.foliot_shard", name), 3);
    CHECK_EQ(try_open(pg_url(new_schema()), 0), 0);
    CHECK_EQ(pg_number("SELECT count(*) FROM s%u.foliot_shard", schema), 4);
}

/* --- How it is read ----------------------------------------------------------------------------------------------- */

static void run_sql(PGconn *conn, const char *sql)
{
    const char *value = "60000";
    PGresult *result = PQexecParams(conn, sql, strstr(sql, "$1") ? 1 : 0, NULL, &value, NULL, NULL, 0);
    PQclear(result); /* what a server does not know it does without */
}

static PGresult *explain(PGconn *conn, const struct pg_text *text)
{
    char sql[300], parameter[16];
    int used = snprintf(sql, sizeof sql, "EXPLAIN (COSTS OFF) EXECUTE %s", text->name);
    for (int i = 1; snprintf(parameter, sizeof parameter, "$%d", i), strstr(text->sql, parameter); i++)
        used += snprintf(sql + used, sizeof sql - (size_t)used, i == 1 ? "(NULL" : ", NULL");
    if (strstr(text->sql, "$1"))
        snprintf(sql + used, sizeof sql - (size_t)used, ")");
    PQclear(PQprepare(conn, text->name, text->sql, 0, NULL));
    PGresult *result = PQexec(conn, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", text->name, PQerrorMessage(conn));
    return result;
}

/* What is small and read whole. */
static bool reads_all(int statement)
{
    return statement == PG_FORGET || statement == PG_MEMBERS || statement == PG_HOLDERS ||
           statement == PG_CAP_MEMBERS || statement == PG_CAP_CLAIMS;
}

/* Nothing is compared item by item, and nothing that grows is read by its shard alone. */
static void check_plan(PGconn *conn, const struct pg_text *text, bool reads_shard)
{
    PGresult *result = explain(conn, text);
    bool grows = false;
    for (int i = 0; i < PQntuples(result); i++) {
        const char *line = PQgetvalue(result, i, 0);
        if (strstr(line, "->") || i == 0)
            grows = strstr(line, "foliot_timer") || strstr(line, "foliot_moved") || strstr(line, "foliot_dead");
        bool whole = grows && strstr(line, "Index Cond: (shard = $1)");
        if (strstr(line, "Join Filter") || strstr(line, "Seq Scan") || (whole && !reads_shard))
            test_fail(__FILE__, __LINE__, "%s: %s", text->name, line);
    }
    PQclear(result);
}

/* The worst case: plans made while nothing was there, and kept. */
TEST(plans_do_not_depend_on_statistics)
{
    const char *name = new_schema();
    CHECK_EQ(try_open(pg_url(name), 1), 0);
    PGconn *conn = PQconnectdb(pg_url(name));
    for (const char *const *setting = fl__pg_settings; *setting; setting++)
        run_sql(conn, *setting);
    run_sql(conn, "SET plan_cache_mode = force_generic_plan");
    for (int i = 0; i < PG_STATEMENTS_PLAIN; i++)
        if (i != PG_BEGIN && i != PG_BEGIN_READ && i != PG_COMMIT && !reads_all(i))
            check_plan(conn, &fl__pg_sql[i], i == PG_WINDOWS);
    PQfinish(conn);
}

/* --- Many at once ------------------------------------------------------------------------------------------------- */

static void *open_at_once(void *url)
{
    fl_store *opened;
    char why[300];
    if (fl_store_open(url, NULL, &opened, why, sizeof why) < 0)
        test_fail(__FILE__, __LINE__, "%s", why);
    fl_store_close(opened);
    return NULL;
}

TEST(many_can_make_the_same_store_at_once)
{
    enum { MAKERS = 8 };
    pthread_t makers[MAKERS];
    char url[300];
    for (int round = 0; round < 10; round++) {
        snprintf(url, sizeof url, "%s", pg_url(new_schema()));
        for (int i = 0; i < MAKERS; i++)
            CHECK_EQ(pthread_create(&makers[i], NULL, open_at_once, url), 0);
        for (int i = 0; i < MAKERS; i++)
            CHECK_EQ(pthread_join(makers[i], NULL), 0);
        CHECK_EQ(pg_number("SELECT count(*) FROM s%u.foliot_shard", schema), 4);
    }
}

TEST(what_a_maker_left_half_done_is_made_again)
{
    const char *name = new_schema();
    pg_url(name);
    pg_sql("CREATE TABLE %s.foliot_meta (key text PRIMARY KEY, value bigint NOT NULL)", name);
    CHECK_EQ(try_open(pg_url(name), 2), 0); /* it died before its first row, or after it */
    CHECK_EQ(pg_number("SELECT count(*) FROM %s.foliot_shard", name), 2);
}

/* --- Versions ----------------------------------------------------------------------------------------------------- */

static long meta(const char *name, const char *key)
{
    return pg_number("SELECT coalesce(max(value), 0) FROM %s.foliot_meta WHERE key = '%s'", name, key);
}

static bool has_table(const char *name, const char *table)
{
    return pg_number("SELECT count(*) FROM information_schema.tables WHERE table_schema = '%s' AND table_name = '%s'",
                     name, table) == 1;
}

/* The tables as version 1 made them, with a shard that somebody has claimed and a timer in it. */
static const char version_1[] =
    "CREATE TABLE foliot_meta (key text PRIMARY KEY, value bigint NOT NULL);"
    "CREATE TABLE foliot_shard (shard bigint PRIMARY KEY, version bigint NOT NULL, applied bigint NOT NULL,"
    " lease_until bigint NOT NULL, owner text NOT NULL);"
    "CREATE TABLE foliot_progress (shard bigint PRIMARY KEY, progress bytea);"
    "CREATE TABLE foliot_timer (shard bigint NOT NULL, win bigint NOT NULL, seq bigint NOT NULL, at bigint NOT NULL,"
    " ns bytea NOT NULL, name bytea, id bytea, body bytea NOT NULL, PRIMARY KEY (shard, win, seq));"
    "CREATE INDEX foliot_timer_name ON foliot_timer (shard, ns, name) WHERE name IS NOT NULL;"
    "CREATE TABLE foliot_moved (shard bigint NOT NULL, seq bigint NOT NULL, key_at bigint NOT NULL,"
    " key_seq bigint NOT NULL, PRIMARY KEY (shard, seq));"
    "CREATE INDEX foliot_moved_key ON foliot_moved (shard, key_at);"
    "CREATE TABLE foliot_dead (shard bigint NOT NULL, seq bigint NOT NULL, at bigint NOT NULL, ns bytea NOT NULL,"
    " name bytea, body bytea NOT NULL, died bigint NOT NULL, reason bytea NOT NULL, PRIMARY KEY (shard, seq));"
    "INSERT INTO foliot_shard (shard, version, applied, lease_until, owner)"
    " VALUES (0, 41, 7, 0, 'somebody'), (1, 0, 0, 0, '');"
    "INSERT INTO foliot_progress (shard) VALUES (0), (1);"
    "INSERT INTO foliot_timer (shard, win, seq, at, ns, name, body)"
    " VALUES (0, 25::bigint << 56, 2, 1000, 'ns', 'kept', 'body'),"
    " (0, 25::bigint << 56, 4, 1000, '\\x01636f756e7473', 'ns', '{}');"
    "INSERT INTO foliot_meta (key, value) VALUES ('shards', 2), ('schema', 1);";

static const char *new_version_1(void)
{
    const char *name = new_schema();
    pg_url(name);
    pg_sql("SET search_path = %s; %s RESET search_path", name, version_1);
    return name;
}

/* Of version 4: counts without windows. */
TEST(tables_of_version_4_are_brought_up_to_date)
{
    const char *name = new_version_1();
    CHECK_EQ(try_open(pg_url(name), 0), 0);
    pg_sql("DROP TABLE %s.foliot_count; CREATE TABLE %s.foliot_count (shard bigint, ns bytea, n bigint,"
           " PRIMARY KEY (shard, ns)); UPDATE %s.foliot_meta SET value = 4 WHERE key IN ('schema', 'compatible')",
           name, name, name);
    CHECK_EQ(try_open(pg_url(name), 0), 0);
    CHECK_EQ(meta(name, "schema"), PG_SCHEMA_VERSION);
    CHECK_EQ(meta(name, "compatible"), PG_SCHEMA_COMPATIBLE);
    CHECK_EQ(pg_number("SELECT n FROM %s.foliot_count WHERE win = 25::bigint << 56", name), 1);
}

/* Of version 3: without history. */
TEST(tables_of_version_3_are_brought_up_to_date)
{
    const char *name = new_schema();
    CHECK_EQ(try_open(pg_url(name), 0), 0);
    pg_sql("DROP TABLE %s.foliot_history; DROP TABLE %s.foliot_history_span;"
           " UPDATE %s.foliot_meta SET value = 3 WHERE key IN ('schema', 'compatible')",
           name, name, name);
    CHECK_EQ(try_open(pg_url(name), 0), 0);
    CHECK_EQ(meta(name, "schema"), PG_SCHEMA_VERSION);
    CHECK_EQ(meta(name, "compatible"), PG_SCHEMA_COMPATIBLE);
    CHECK(has_table(name, "foliot_history") && has_table(name, "foliot_history_span"));
}

TEST(tables_of_version_1_are_brought_up_to_date)
{
    const char *name = new_version_1();
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    fl_loop_hold(loop);
    CHECK_EQ(fl_store_open(pg_url(name), NULL, &store, message, sizeof message), 0);
    CHECK_EQ(fl_store_shards(store), 2);
    CHECK_EQ(meta(name, "schema"), PG_SCHEMA_VERSION);
    CHECK_EQ(meta(name, "compatible"), PG_SCHEMA_COMPATIBLE);
    shard = attach(0);
    fl_row found;
    CHECK(is_named(shard, "kept", &found));
    CHECK_EQ(found.key.at_us, 1000);
    struct asked join = to_meet("me", 1, HOUR_US, true);
    CHECK_EQ(perform(shard, &join), 0);
    CHECK_EQ(join.request.meet.member_count, 1);
    CHECK(strcmp(join.request.meet.holders[0].owner, "somebody") == 0);
    struct asked asked = to_claim("me", HOUR_US, true);
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK_EQ(asked.request.claim.count_count, 1);
    CHECK_EQ(asked.request.claim.counts[0].rows, 1);
    CHECK_EQ(pg_number("SELECT count(*) FROM %s.foliot_timer", name), 1); /* without the counts of earlier versions */
    CHECK_EQ(claim(shard, "me"), 43);
    end();
    CHECK_EQ(try_open(pg_url(name), 0), 0);
}

TEST(many_can_bring_the_same_tables_up_to_date_at_once)
{
    enum { OPENERS = 8 };
    pthread_t openers[OPENERS];
    char url[300];
    for (int round = 0; round < 10; round++) {
        snprintf(url, sizeof url, "%s", pg_url(new_version_1()));
        for (int i = 0; i < OPENERS; i++)
            CHECK_EQ(pthread_create(&openers[i], NULL, open_at_once, url), 0);
        for (int i = 0; i < OPENERS; i++)
            CHECK_EQ(pthread_join(openers[i], NULL), 0);
        CHECK_EQ(pg_number("SELECT value FROM s%u.foliot_meta WHERE key = 'schema'", schema), PG_SCHEMA_VERSION);
    }
}

TEST(tables_that_cannot_be_brought_up_to_date_stay_as_they_are)
{
    const char *name = new_version_1();
    pg_sql("CREATE TABLE %s.foliot_member (something_else text)", name); /* stands in the way */
    CHECK(try_open(pg_url(name), 0) < 0);
    CHECK(strstr(message, "foliot_member"));
    CHECK_EQ(meta(name, "schema"), 1);
    CHECK_EQ(meta(name, "compatible"), 0);
    pg_sql("DROP TABLE %s.foliot_member", name);
    CHECK_EQ(try_open(pg_url(name), 0), 0);
    CHECK(has_table(name, "foliot_member"));
}

TEST(a_newer_schema_that_only_adds_is_worked_with)
{
    static const char *const tables[] = {"meta", "shard", "progress", "timer", "moved", "dead", "member"};
    begin();
    detach(shard);
    fl_store_close(store);
    char name[24];
    snprintf(name, sizeof name, "s%u", schema);
    pg_sql("UPDATE %s.foliot_meta SET value = %d WHERE key = 'schema';"
           "UPDATE %s.foliot_meta SET value = %d WHERE key = 'compatible'",
           name, PG_SCHEMA_VERSION + 1, name, PG_SCHEMA_VERSION);
    pg_sql("CREATE TABLE %s.foliot_later (a bigint)", name);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        pg_sql("ALTER TABLE %s.foliot_%s ADD COLUMN later bigint NOT NULL DEFAULT 5", name, tables[i]);
    CHECK_EQ(fl_store_open(pg_url(name), &(fl_store_config){.timeout_us = 60000000}, &store, message, sizeof message),
             0);
    shard = attach(0);
    uint64_t version = claim(shard, "me"), seq = 2;
    ask_everything(&version, &seq, 0);
    CHECK_EQ(meta(name, "schema"), PG_SCHEMA_VERSION + 1); /* as it was */
    CHECK_EQ(meta(name, "compatible"), PG_SCHEMA_VERSION);
    end();
}

TEST(a_newer_schema_that_changes_what_was_there_is_refused)
{
    const char *name = new_schema();
    char needed[24];
    CHECK_EQ(try_open(pg_url(name), 0), 0);
    pg_sql("UPDATE %s.foliot_meta SET value = %d WHERE key = 'schema'", name, PG_SCHEMA_VERSION + 2);
    pg_sql("UPDATE %s.foliot_meta SET value = %d WHERE key = 'compatible'", name, PG_SCHEMA_VERSION + 1);
    CHECK_EQ(try_open(pg_url(name), 0), FL_STORE_NEWER);
    snprintf(needed, sizeof needed, "at least version %d", PG_SCHEMA_VERSION + 1);
    CHECK(strstr(message, "later") && strstr(message, needed));
    pg_sql("DELETE FROM %s.foliot_meta WHERE key = 'compatible'", name); /* it does not say */
    CHECK_EQ(try_open(pg_url(name), 0), FL_STORE_NEWER);
}

TEST(errors_are_known_by_their_sqlstate_in_any_language)
{
    static const struct {
        const char *state, *text, *advice;
    } cases[] = {
        {"", "failed: FATAL:  28P01: Passwort-Authentifizierung f\u00fcr Benutzer \u00bbx\u00ab fehlgeschlagen\n",
         "password"},
        {"", "SCHWERWIEGEND:  28000: kein pg_hba.conf-Eintrag", "sslmode=require"},
        {"42501", "keine Berechtigung", "SELECT, INSERT"},
        {"25006", "kann INSERT nicht ausf\u00fchren", "target_session_attrs"},
        {"26000", "vorbereitete Anweisung existiert nicht", "session mode"},
        {"42P05", "vorbereitete Anweisung existiert bereits", "session mode"},
        {"", "server does not support SSL, but SSL was required", "sslmode"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(strstr(fl__pg_advice(cases[i].state, cases[i].text), cases[i].advice));
    CHECK_EQ(fl__pg_advice("", "")[0], 0);
    CHECK_EQ(fl__pg_advice("XX000", "prepared statement")[0], 0);
    CHECK(!fl__pg_find_state("FATAL:  ERROR: 28P0: x28P01: 28P01 : 28p01: "));
    CHECK_EQ(memcmp(fl__pg_find_state("28P01: x"), "28P01", 5), 0);
}

TEST(a_message_is_one_line_without_places_in_the_source)
{
    char text[64], cut[4];
    fl__pg_flatten("a  b\nLOCATION:  f, auth.c:3\nc\td\n", text, sizeof text);
    CHECK_EQ(strcmp(text, "a b c d"), 0);
    fl__pg_flatten("x\nLOCATION:", text, sizeof text);
    CHECK_EQ(strcmp(text, "x"), 0);
    fl__pg_flatten("abcdef", cut, sizeof cut);
    CHECK_EQ(strcmp(cut, "abc"), 0);
}

TEST(tables_that_do_not_say_what_they_are_are_refused)
{
    const char *name = new_schema();
    CHECK_EQ(try_open(pg_url(name), 0), 0);
    pg_sql("DELETE FROM %s.foliot_meta WHERE key = 'shards'", name);
    CHECK_EQ(try_open(pg_url(name), 0), FL_STORE_CORRUPT);
}

/* There is no Citus here; what would be said to it is written down by a function of the same name. */
TEST(where_there_is_citus_the_tables_are_distributed_by_shard)
{
    const char *name = new_schema();
    pg_url(name);
    pg_sql("CREATE TABLE %s.said (tab text, col text, colocated text);"
           "CREATE FUNCTION %s.create_distributed_table(tab regclass, col text, colocate_with text DEFAULT 'default')"
           " RETURNS void LANGUAGE sql AS 'INSERT INTO %s.said VALUES (tab::text, col, colocate_with)'",
           name, name, name);
    CHECK_EQ(try_open(pg_url(name), 0), 0);
    CHECK_EQ(pg_number("SELECT count(*) FROM %s.said WHERE col = 'shard'", name), 8);
    CHECK_EQ(pg_number("SELECT count(*) FROM %s.said WHERE colocated = 'foliot_shard'", name), 7);
    CHECK_EQ(pg_number("SELECT count(*) FROM information_schema.tables WHERE table_schema = '%s'", name), 11);
    CHECK_EQ(pg_number("SELECT count(*) FROM %s.said WHERE tab LIKE '%%member'", name), 0);
    pg_sql("DROP SCHEMA %s CASCADE", name);
}

/* The n-th block of SQL in the documentation. */
static char *documented(int n)
{
    static char page[40000];
    FILE *file = fopen(SOURCE "/docs/store-postgres.md", "r");
    CHECK(file);
    size_t size = fread(page, 1, sizeof page - 1, file);
    fclose(file);
    CHECK(size < sizeof page - 1);
    page[size] = 0;
    char *block = page;
    for (int i = 0; i < n && block; i++) {
        block = strstr(block, "```sql\n");
        block = block ? block + 7 : NULL;
    }
    char *end = block ? strstr(block, "```") : NULL;
    if (end)
        *end = 0;
    CHECK(end);
    return block;
}

TEST(tables_can_be_made_as_the_documentation_says)
{
    const char *name = new_schema();
    pg_url(name);
    pg_sql("SET search_path = %s; %s RESET search_path", name, documented(1));
    pg_sql("DROP ROLE IF EXISTS user_only; CREATE ROLE user_only LOGIN; GRANT USAGE ON SCHEMA %s TO user_only", name);
    pg_sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO user_only", name);
    char url[300];
    snprintf(url, sizeof url, "postgres://user_only@/postgres?host=%s&options=-csearch_path%%3D%s", pg_folder(), name);
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    fl_loop_hold(loop);
    CHECK_EQ(fl_store_open(url, NULL, &store, message, sizeof message), 0);
    CHECK_EQ(fl_store_shards(store), 4);
    CHECK(fl_store_is_shared(store));
    shard = attach(3);
    uint64_t version = claim(shard, "me");
    fl_row row = make_named(2, 1000, 25, "name");
    put(shard, version, &row, 1);
    CHECK(is_named(shard, "name", NULL));
    struct asked join = to_meet("me", 1, HOUR_US, true);
    CHECK_EQ(perform(shard, &join), 0);
    end();
    /* They are the tables that opening makes. */
    CHECK_EQ(try_open(pg_url(new_schema()), 0), 0);
    static const char columns[] = "SELECT table_name, column_name, ordinal_position, data_type, is_nullable"
                                  " FROM information_schema.columns WHERE table_schema =";
    CHECK_EQ(pg_number("SELECT count(*) FROM ((%s 's%u') EXCEPT (%s 's%u')) d", columns, schema, columns, schema - 1),
             0);
    CHECK_EQ(pg_number("SELECT count(*) FROM ((%s 's%u') EXCEPT (%s 's%u')) d", columns, schema - 1, columns, schema),
             0);
    static const char indexes[] = "SELECT tablename, indexname, regexp_replace(indexdef, 's[0-9]+\\.', '')"
                                  " FROM pg_indexes WHERE schemaname =";
    CHECK_EQ(pg_number("SELECT count(*) FROM ((%s 's%u') EXCEPT (%s 's%u')) d", indexes, schema, indexes, schema - 1),
             0);
}

/* For a role that may not make tables, somebody else brings them up to date. */
TEST(tables_are_brought_up_to_date_as_the_documentation_says)
{
    const char *name = new_version_1();
    pg_sql("CREATE ROLE old_user LOGIN; GRANT USAGE ON SCHEMA %s TO old_user", name);
    pg_sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO old_user", name);
    char options[100];
    snprintf(options, sizeof options, "&options=-csearch_path%%3D%s", name);
    CHECK_EQ(try_open(url_of("old_user", "postgres", options), 0), FL_STORE_UNAVAILABLE);
    CHECK(strstr(message, "permission denied") && strstr(message, "CREATE"));
    pg_sql("SET search_path = %s; %s RESET search_path", name, documented(2));
    pg_sql("SET search_path = %s; %s RESET search_path", name, documented(3));
    pg_sql("SET search_path = %s; %s RESET search_path", name, documented(4));
    pg_sql("SET search_path = %s; %s RESET search_path", name, documented(5));
    pg_sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO old_user", name);
    CHECK_EQ(try_open(url_of("old_user", "postgres", options), 0), 0);
    CHECK_EQ(meta(name, "schema"), PG_SCHEMA_VERSION);
    CHECK_EQ(meta(name, "compatible"), PG_SCHEMA_COMPATIBLE);
}

TEST(tables_are_distributed_as_the_documentation_says)
{
    const char *block = documented(7);
    size_t lines = 0;
    for (const char *const *statement = fl__pg_distribute; *statement; statement++, lines++)
        CHECK(strstr(block, *statement));
    for (const char *const *statement = fl__pg_distribute_counts; *statement; statement++, lines++)
        CHECK(strstr(block, *statement));
    for (const char *const *statement = fl__pg_distribute_history; *statement; statement++, lines++)
        CHECK(strstr(block, *statement));
    for (; *block; block++)
        lines -= *block == '\n';
    CHECK_EQ(lines, 0);
}

/* What makes it run where each shard is on a machine of its own: no statement without its shard, and what is filed has its
 * shard from a row of that shard, or Citus would not see that both are in one place. Except for the statements of a meeting:
 * they are about the list of servers alone, or look at all shards and at nothing else. */
static bool is_about_shards(unsigned statement)
{
    const char *sql = fl__pg_sql[statement].sql;
    bool control = strncmp(sql, "BEGIN", 5) == 0 || strncmp(sql, "SET LOCAL", 9) == 0 || strcmp(sql, "COMMIT") == 0;
    bool row =
        statement == PG_PUT_ONE || statement == PG_COUNT_ONE || statement == PG_HISTORY_NOTE; /* $1 is its shard */
    bool meeting = statement == PG_HOLDERS || statement == PG_CAP_CLAIMS; /* which is not said on Citus */
    return !control && !row && !meeting && !strstr(sql, "foliot_member") && statement < PG_STATEMENTS_PLAIN;
}

TEST(every_statement_names_its_shard)
{
    for (unsigned i = 0; i < PG_STATEMENTS; i++) {
        const char *sql = fl__pg_sql[i].sql;
        CHECK(sql && fl__pg_sql[i].name);
        bool about = is_about_shards(i);
        CHECK(!about || strstr(sql, "shard = $1"));
        CHECK(!about || !strstr(sql, "SELECT $1"));
        for (const char *at = sql; about && (at = strstr(at, "FROM foliot_")); at++)
            CHECK(strstr(at, "shard = $1"));
        CHECK(!strstr(sql, "foliot_member") || !strstr(sql, "foliot_shard"));
        for (unsigned j = 0; j < i; j++)
            CHECK(strcmp(fl__pg_sql[i].name, fl__pg_sql[j].name) != 0);
    }
}

/* --- What is refused ---------------------------------------------------------------------------------------------- */

TEST(a_wrong_password_user_or_database_is_refused_in_words)
{
    pg_url(new_schema());
    pg_sql("CREATE ROLE locked LOGIN PASSWORD 'topsecret'");
    pg_sql("GRANT ALL ON SCHEMA public TO locked");
    CHECK_EQ(try_open(url_of("locked:wrongsecret", "postgres", ""), 0), FL_STORE_UNAVAILABLE);
    CHECK(strstr(message, "password") && strstr(message, "locked"));
    CHECK_EQ(try_open(url_of("locked", "postgres", "&password=notsecret"), 0), FL_STORE_UNAVAILABLE);
    CHECK_EQ(try_open(url_of("locked:topsecret", "postgres", ""), 0), 0);
    CHECK_EQ(try_open(url_of("nobody-known", "postgres", ""), 0), FL_STORE_UNAVAILABLE);
    CHECK(strstr(message, "nobody-known"));
    CHECK_EQ(try_open(url_of("foliot:secret", "nowhere", ""), 0), FL_STORE_UNAVAILABLE);
    CHECK(strstr(message, "nowhere"));
    CHECK_EQ(try_open("postgres://foliot:secret@/postgres?host=/nonexistent", 0), FL_STORE_UNAVAILABLE);
    CHECK_EQ(try_open("postgres://foliot:secret@127.0.0.1:1/postgres", 0), FL_STORE_UNAVAILABLE);
    CHECK(strstr(message, "127.0.0.1"));
}

TEST(a_url_that_cannot_be_read_is_refused_without_its_password)
{
    static const char *const urls[] = {
        "postgres://foliot:secret@[::1/postgres",
        "postgres://foliot:secret@host/postgres?nonsense=1",
        "postgres://foliot:secret@host/postgres?sslmode",
        "postgres://foliot:sec%zzret-secret@host/postgres",
        "postgres://foliot:secret@host/postgres?password=secret%0",
        "postgres://foliot:secret@host:port:port/postgres?=",
        "postgres://foliot:top@secret@host/postgres",
        "postgresql://foliot:top/secret@host/postgres",
        "postgres://foliot:top?secret@host/postgres",
    };
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        int r = try_open(urls[i], 0);
        CHECK(r == FL_INVALID_ARGUMENT || r == FL_STORE_UNAVAILABLE);
    }
}

TEST(without_the_right_to_make_tables_the_message_says_so)
{
    const char *name = new_schema();
    pg_url(name);
    pg_sql("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA %s TO guest", name);
    char options[100];
    snprintf(options, sizeof options, "&options=-csearch_path%%3D%s", name);
    CHECK_EQ(try_open(url_of("guest", "postgres", options), 0), FL_STORE_UNAVAILABLE);
    CHECK(strstr(message, "permission denied") && strstr(message, "CREATE"));
    CHECK_EQ(try_open(pg_url(name), 0), 0);
    CHECK_EQ(try_open(url_of("guest", "postgres", options), 0), FL_STORE_UNAVAILABLE);
    CHECK(strstr(message, "permission denied"));
}

TEST(a_backup_is_left_to_the_database)
{
    begin();
    struct asked asked = simple(FL_STORE_BACKUP, 0);
    asked.request.backup.path = "/tmp/copy";
    CHECK_EQ(perform(shard, &asked), FL_INVALID_ARGUMENT);
    CHECK(strstr(asked.request.message, "pg_dump"));
    end();
}

/* --- Memory ------------------------------------------------------------------------------------------------------- */

TEST(memory_that_runs_out_is_an_answer_and_nothing_is_half_done)
{
    memory_install();
    begin();
    uint64_t version = claim(shard, "me"), seq = 2;
    for (uint64_t n = 1;; n++) {
        memory_fail(n, false);
        ask_everything(&version, &seq, FL_NO_MEMORY);
        uint64_t left = memory.fail_in;
        memory_fail(0, false);
        size_t rows = (size_t)pg_number("SELECT count(*) FROM s%u.foliot_timer", schema);
        CHECK(rows == load(shard, fl_window_of(1000, 31), NULL) + load(shard, fl_window_of(1000, 25), NULL));
        pg_sql("DELETE FROM s%u.foliot_timer; DELETE FROM s%u.foliot_moved; DELETE FROM s%u.foliot_dead", schema,
               schema, schema);
        if (left > 0)
            break; /* it was not reached */
    }
    end();
    memory_remove();
}
