/* SPDX-License-Identifier: MIT */
/* The store in PostgreSQL when things go wrong between it and the server, and in the server.
 *
 * Every answer is held against what is there, read from the tables by another connection: success means that it is there,
 * FL_OUTCOME_UNKNOWN that it may be, anything else that it is not; and what a read that is submitted after the answers sees is
 * how it stays. */

#include <stdlib.h>
#include <unistd.h>

#include "pg.h"
#include "store/conformance.h"
#include "store/postgres/proxy.h"

static unsigned schema;
static uint64_t timeout_us = 60000000;
static const char *user = "foliot";

static int open_through_proxy(uint32_t shards, fl_store **ret)
{
    char name[24], url[300], message[300];
    if (schema++ == 0) {
        pg_start(false);
        proxy_start();
        /* One who cannot end what is left of its sessions. */
        pg_sql("CREATE ROLE weak LOGIN; REVOKE EXECUTE ON FUNCTION pg_terminate_backend(int, bigint) FROM PUBLIC");
    }
    snprintf(name, sizeof name, "s%u", schema);
    pg_url(name);
    pg_sql("GRANT ALL ON SCHEMA %s TO weak", name);
    snprintf(url, sizeof url, "postgres://%s@/postgres?host=%s&options=-csearch_path%%3D%s", user, proxy_folder(),
             name);
    int r = fl_store_open(url, &(fl_store_config){.shards = shards, .timeout_us = timeout_us}, ret, message,
                          sizeof message);
    if (r < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", fl_errname(r), message);
    return r;
}

static void drop(void)
{
    pg_sql("SET client_min_messages = error; DROP SCHEMA s%u CASCADE", schema);
}

const struct store_under_test under_test = {.open = open_through_proxy, .remove = drop};

/* Which of `count` rows with numbers from `seq` on are there: a bit for each. */
static uint64_t rows_there(uint64_t seq, unsigned count)
{
    return (uint64_t)pg_number("SELECT coalesce(sum(1 << (seq - %llu)::int / 2), 0) FROM s%u.foliot_timer"
                               " WHERE seq BETWEEN %llu AND %llu",
                               (unsigned long long)seq, schema, (unsigned long long)seq,
                               (unsigned long long)seq + 2 * count - 1);
}

/* Until it is done, where time-outs are short: removing and claiming may be repeated. */
static void insist(struct asked *asked)
{
    struct asked again = *asked;
    for (;;) {
        int r = perform(shard, asked);
        if (r == 0)
            return;
        CHECK(r == FL_OUTCOME_UNKNOWN || r == FL_STORE_UNAVAILABLE);
        *asked = again;
    }
}

static uint64_t claim_insisting(void)
{
    struct asked asked = to_claim("me", HOUR_US, true);
    insist(&asked);
    return asked.request.claim.version;
}

/* --- At every byte ------------------------------------------------------------------------------------------------ */

/* Some of everything that writes, with reads between, all under way at once: */
enum { WRITES = 4, STEPS = 8 };

struct scenario {
    fl_row rows[WRITES];
    fl_store_change changes[WRITES];
    fl_store_want wants[2];
    struct fl_store_span span;
    uint64_t window;
    struct asked asked[STEPS];
};

static uint64_t next_seq = 2;

static void prepare(struct scenario *s, uint64_t version)
{
    for (unsigned i = 0; i < WRITES; i++, next_seq += 2) {
        s->rows[i] = i % 2 ? make_named(next_seq, 1000, 25, "name") : make_row(next_seq, 1000, 25);
        s->changes[i] = (fl_store_change){.put = &s->rows[i]};
    }
    s->changes[3].remove = s->rows[1].key; /* the name goes from one row to another */
    s->window = s->rows[0].window;
    s->span = (struct fl_store_span){fl_window_of((int64_t)1 << 40, 25), true};
    s->wants[0] = (fl_store_want){.id = s->rows[0].id};
    s->wants[1] = (fl_store_want){.ns = text("ns"), .name = text("name")};
    s->asked[0] = to_write(version, &s->changes[0], 1);
    s->asked[1] = to_find(s->wants, 2);
    s->asked[2] = to_write(version, &s->changes[1], 1);
    s->asked[3] = to_write(version, &s->changes[2], 1);
    s->asked[4] = to_write(version, &s->changes[3], 1);
    s->asked[5] = simple(FL_STORE_RENEW, version);
    s->asked[5].request.renew.claim_us = HOUR_US;
    s->asked[6] = to_load(&s->window, 1);
    s->asked[7] = simple(FL_STORE_FINISH, version);
    s->asked[7].request.finish.spans = &s->span;
    s->asked[7].request.finish.span_count = 1;
    s->asked[7].request.finish.record.seq_limit = next_seq;
}

static int result_of(const struct scenario *s, unsigned step)
{
    return s->asked[step].request.result;
}

/* What was read agrees with what was written, in the order of submission. */
static void check_reads(struct scenario *s)
{
    if (result_of(s, 1) == 0 && result_of(s, 0) == 0)
        CHECK(s->wants[0].found);
    if (result_of(s, 1) == 0)
        CHECK(!s->wants[1].found); /* the name comes later */
    if (result_of(s, 6) != 0)
        return;
    size_t expected = (size_t)(result_of(s, 0) == 0) + (result_of(s, 3) == 0) + (result_of(s, 4) == 0);
    if (result_of(s, 2) == 0 && result_of(s, 4) != 0)
        expected++;
    CHECK(s->asked[6].count >= expected);
}

/* Which rows a read sees. It may have to wait for a session that hangs with the shard's row in its hands. */
static uint64_t rows_seen(struct scenario *s)
{
    fl_store_want wants[WRITES];
    for (unsigned i = 0; i < WRITES; i++)
        wants[i] = (fl_store_want){.id = s->rows[i].id};
    for (;;) {
        struct asked asked = to_find(wants, WRITES);
        int r = perform(shard, &asked);
        if (r == 0)
            break;
        CHECK_EQ(r, FL_STORE_UNAVAILABLE);
        proxy_release();
    }
    uint64_t seen = 0;
    for (unsigned i = 0; i < WRITES; i++)
        seen |= (uint64_t)wants[i].found << i;
    return seen;
}

/* What was delivered late has been carried out, or not, when its session is over. */
static void await_late(void)
{
    proxy_release();
    while (pg_number("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'foliot shard 0%%'") > 1)
        usleep(1000);
}

static void check_outcomes(struct scenario *s)
{
    static const unsigned step_of[WRITES] = {0, 2, 3, 4};
    uint64_t seen = rows_seen(s);
    await_late();
    uint64_t there = rows_there(s->rows[0].key.seq, WRITES);
    CHECK(there == seen);
    CHECK((there & 10) != 10); /* one name, one row */
    for (unsigned i = 0; i < WRITES; i++) {
        int r = result_of(s, step_of[i]);
        bool is = there >> i & 1;
        if (r == 0)
            CHECK(is || (i == 1 && result_of(s, 4) != FL_STORE_UNAVAILABLE)); /* it was replaced */
        else if (r != FL_OUTCOME_UNKNOWN)
            CHECK(!is);
    }
}

static void live_through(struct scenario *s, bool must_succeed)
{
    for (unsigned i = 0; i < STEPS; i++)
        ask(shard, &s->asked[i]);
    for (unsigned i = 0; i < STEPS; i++) {
        int r = await(&s->asked[i]);
        CHECK(i == 0 || s->asked[i].place == s->asked[i - 1].place + 1);
        bool late_read = (i == 1 || i == 6) && r == FL_STORE_UNAVAILABLE;
        if (must_succeed && r != 0 && !late_read)
            test_fail(__FILE__, __LINE__, "step %u: %s: %s", i, fl_errname(r), s->asked[i].request.message);
        CHECK(r == 0 || r == FL_OUTCOME_UNKNOWN || r == FL_STORE_UNAVAILABLE);
    }
    check_reads(s);
    check_outcomes(s);
}

static void take_away(struct scenario *s, uint64_t version)
{
    fl_store_change changes[WRITES];
    for (unsigned i = 0; i < WRITES; i++)
        changes[i] = (fl_store_change){.remove = s->rows[i].key};
    struct asked asked = to_write(version, changes, WRITES);
    insist(&asked);
}

static size_t bytes_of_a_scenario(enum proxy_direction direction, uint64_t version, bool must_succeed)
{
    static struct scenario s;
    prepare(&s, version);
    proxy_bytes(direction);
    live_through(&s, must_succeed);
    size_t bytes = proxy_bytes(direction);
    take_away(&s, version);
    return bytes;
}

/* After every `step` bytes; eight times as often in the first `dense`, where the first write has not yet begun. */
static void fail_everywhere(enum proxy_direction direction, enum proxy_fault fault, size_t step, size_t dense)
{
    bool must_succeed = fault == PROXY_CUT;
    begin();
    uint64_t version = claim_insisting();
    size_t bytes = bytes_of_a_scenario(direction, version, must_succeed);
    CHECK(bytes > 500);
    unsigned failures = 0, points = 0;
    for (size_t after = 0; after < bytes; after += after < dense ? step / 8 : step, points++) {
        static struct scenario s;
        prepare(&s, version);
        proxy_fail(direction, after, fault);
        live_through(&s, must_succeed);
        failures += proxy_has_failed();
        take_away(&s, version);
    }
    CHECK(failures > points / 2);
    end();
}

TEST(a_connection_that_is_cut_while_sending_is_made_up_for)
{
    fail_everywhere(PROXY_UP, PROXY_CUT, SCALE(37, 101), 0);
}

TEST(a_connection_that_is_cut_while_receiving_is_made_up_for)
{
    fail_everywhere(PROXY_DOWN, PROXY_CUT, SCALE(23, 61), 0);
}

/* The connection that settles what was in doubt is cut as well: while it connects, prepares, locks, reads, writes. */
TEST(a_connection_that_is_cut_while_settling_is_made_up_for)
{
    enum { ROUNDS = SCALE(80, 30) };
    begin();
    uint64_t version = claim(shard, "me"), random = 23;
    size_t bytes[2], again[2];
    for (int i = 0; i < 2; i++)
        bytes[i] = bytes_of_a_scenario((enum proxy_direction)i, version, true);
    static struct scenario s;
    for (int i = 0; i < 2; i++) { /* how much goes over a connection until all is settled, and what follows */
        prepare(&s, version);
        proxy_fail(PROXY_UP, bytes[PROXY_UP] - 1, PROXY_CUT);
        proxy_bytes((enum proxy_direction)i);
        live_through(&s, true);
        again[i] = proxy_bytes((enum proxy_direction)i) - bytes[i];
        take_away(&s, version);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        enum proxy_direction first = i & 1, second = i >> 1 & 1;
        size_t tail = again[second] < 800 ? again[second] : 800; /* where it settles */
        prepare(&s, version);
        proxy_fail(first, random_below(&random, bytes[first]), PROXY_CUT);
        proxy_fail_again(second,
                         again[second] - (i % 8 ? random_below(&random, tail) : random_below(&random, again[second])));
        live_through(&s, true);
        take_away(&s, version);
    }
    end();
}

/* A window is filed again, and the answer that says where to is lost. */
TEST(parts_of_a_window_are_known_even_if_the_answer_was_lost)
{
    begin();
    uint64_t version = claim(shard, "me"), window = fl_window_of(0, 31);
    fl_row rows[3];
    for (unsigned i = 0; i < 3; i++)
        rows[i] = make_row(2 + 2 * i, (int64_t)(5 * i) << 25, 31);
    size_t bytes = 0;
    for (size_t after = 0; after <= bytes; after += 11) {
        put(shard, version, rows, 3);
        proxy_bytes(PROXY_DOWN);
        if (bytes > 0)
            proxy_fail(PROXY_DOWN, after, PROXY_CUT);
        struct asked asked = to_refile(version, window, 10);
        CHECK_EQ(perform(shard, &asked), 0);
        CHECK(asked.request.refile.parts == (1 | 1 << 5 | 1 << 10) && !asked.request.refile.more);
        proxy_release();
        if (bytes == 0)
            bytes = proxy_bytes(PROXY_DOWN);
        for (unsigned i = 0; i < 3; i++)
            write_one(shard, version, (fl_store_change){.remove = rows[i].key});
    }
    CHECK(bytes > 50);
    end();
}

/* The claim has taken effect, its answer is lost, and then there is no server until it is too late. */
TEST(a_claim_whose_answer_was_lost_is_unknown)
{
    timeout_us = 1000000;
    begin();
    claim_insisting();
    proxy_bytes(PROXY_DOWN);
    uint64_t version = claim_insisting();
    size_t bytes = proxy_bytes(PROXY_DOWN);
    proxy_fail(PROXY_DOWN, bytes - 5, PROXY_CUT);
    struct asked asked = to_claim("me", HOUR_US, false);
    ask(shard, &asked);
    while (!proxy_has_failed() && !asked.answered)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    pg_freeze(true);
    int r = await(&asked);
    pg_freeze(false);
    CHECK(r == 0 || r == FL_OUTCOME_UNKNOWN); /* the former if it was quick enough to claim again */
    CHECK(pg_number("SELECT version FROM s%u.foliot_shard WHERE shard = 0", schema) > (long)version);
    proxy_release();
    claim_insisting();
    end();
    timeout_us = 60000000;
}

/* What was under way is delivered after all, when everything has been settled over another connection: too late. The
 * sessions of this one cannot be ended from outside, so that only the chain holds them off. */
TEST(what_is_delivered_late_has_no_effect)
{
    timeout_us = 1000000;
    user = "weak";
    fail_everywhere(PROXY_UP, PROXY_HANG, 400, SCALE(200, 100));
    user = "foliot";
    timeout_us = 60000000;
}

TEST(answers_that_hang_are_unknown_and_then_known)
{
    timeout_us = 1000000;
    fail_everywhere(PROXY_DOWN, PROXY_HANG, SCALE(200, 400), 0);
    timeout_us = 60000000;
}

/* --- The server --------------------------------------------------------------------------------------------------- */

static void set(fl_loop *on, void *arg)
{
    (void)on;
    *(bool *)arg = true;
}

static void run_for(uint64_t ns)
{
    bool over = false;
    CHECK_EQ(fl_loop_timer(loop, ns, set, &over, NULL), 0);
    while (!over)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
}

/* Small writes, always some under way, each of one row, while `harm` is done to the server again and again. */
enum { UNDER_WAY = 8, HARMED = SCALE(2000, 600) };

struct load {
    uint64_t version, seq;
    unsigned open;
    bool stop;
    int results[1 << 16];
    struct slot {
        fl_store_request request;
        fl_row row;
        fl_store_change change;
    } slots[UNDER_WAY];
};

static struct load under_load;

static void write_more(fl_store_request *request);

static void submit_slot(struct slot *slot)
{
    uint64_t seq = under_load.seq += 2;
    CHECK(seq < 1 << 16);
    slot->row = (fl_row){.key = {1000, seq}, .id = {1000, seq}, .ns = text("ns")};
    slot->row.window = fl_window_of(1000, 25);
    slot->change = (fl_store_change){.put = &slot->row};
    slot->request = (fl_store_request){.op = FL_STORE_WRITE,
                                       .version = under_load.version,
                                       .done = write_more,
                                       .arg = slot,
                                       .write = {&slot->change, 1}};
    under_load.open++;
    fl_store_submit(shard, &slot->request);
}

static void write_more(fl_store_request *request)
{
    struct slot *slot = request->arg;
    under_load.results[slot->row.key.seq] = request->result;
    under_load.open--;
    if (!under_load.stop)
        submit_slot(slot);
}

/* Returns how many were written. */
static unsigned check_loaded(void)
{
    fl_row *rows;
    size_t count = load(shard, fl_window_of(1000, 25), &rows), at = 0;
    unsigned good = 0;
    for (uint64_t seq = 2; seq <= under_load.seq; seq += 2) {
        bool there = at < count && rows[at].key.seq == seq;
        at += there;
        int r = under_load.results[seq];
        good += r == 0;
        CHECK(r == FL_OUTCOME_UNKNOWN || there == (r == 0));
        CHECK(r == 0 || r == FL_OUTCOME_UNKNOWN || r == FL_STORE_UNAVAILABLE);
    }
    CHECK_EQ(at, count);
    CHECK_EQ(pg_number("SELECT count(*) FROM s%u.foliot_timer", schema), (long)count);
    return good;
}

static void live_under(void (*harm)(void), unsigned times)
{
    begin();
    memset(&under_load, 0, sizeof under_load);
    under_load.version = claim(shard, "me");
    for (int i = 0; i < UNDER_WAY; i++)
        submit_slot(&under_load.slots[i]);
    uint64_t random = 17;
    for (unsigned i = 0; i < times; i++) {
        run_for(random_below(&random, 60) * MILLISECOND);
        harm();
    }
    uint64_t before = under_load.seq;
    while (under_load.seq < before + 200) /* it goes on */
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    under_load.stop = true;
    while (under_load.open > 0)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK(check_loaded() > 100);
    end();
}

static void end_sessions(void)
{
    pg_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'foliot shard 0%%'");
}

TEST(sessions_that_the_server_ends_are_made_up_for)
{
    live_under(end_sessions, SCALE(60, 20));
}

static void kill_server(void)
{
    pg_kill();
    pg_start(false);
}

TEST(a_server_that_is_killed_and_started_again_has_what_was_acknowledged)
{
    live_under(kill_server, SCALE(6, 3));
}

static void restart_server(void)
{
    pg_stop();
    pg_start(false);
}

TEST(a_server_that_is_restarted_is_waited_for)
{
    live_under(restart_server, 3);
}

/* --- Time --------------------------------------------------------------------------------------------------------- */

TEST(a_server_that_does_not_answer_leaves_outcomes_unknown_until_it_does)
{
    timeout_us = 1000000;
    begin();
    uint64_t version = claim_insisting();
    fl_row row = make_row(2, 1000, 25);
    fl_store_change change = {.put = &row};
    pg_freeze(true);
    struct asked write = to_write(version, &change, 1), list = to_list(row.window);
    ask(shard, &write);
    ask(shard, &list);
    CHECK_EQ(await(&write), FL_OUTCOME_UNKNOWN);
    CHECK_EQ(await(&list), FL_STORE_UNAVAILABLE);
    struct asked later = to_write(version, NULL, 0);
    CHECK_EQ(perform(shard, &later), FL_STORE_UNAVAILABLE); /* it was never sent */
    pg_freeze(false);
    fl_store_want want = {.id = row.id};
    struct asked find = to_find(&want, 1);
    insist(&find);
    run_for(200 * MILLISECOND);
    CHECK(rows_there(2, 1) == want.found);
    end();
    timeout_us = 60000000;
}

TEST(without_a_server_requests_wait_and_are_then_refused)
{
    timeout_us = 300000;
    begin();
    uint64_t version = claim_insisting();
    pg_stop();
    run_for(50 * MILLISECOND);
    struct asked write = to_write(version, NULL, 0), read = to_find(NULL, 0), list = to_list(fl_window_of(0, 25));
    ask(shard, &write);
    ask(shard, &list);
    int r = await(&write);
    CHECK(r == FL_STORE_UNAVAILABLE || r == FL_OUTCOME_UNKNOWN); /* the latter if it was sent into the void */
    CHECK_EQ(await(&list), FL_STORE_UNAVAILABLE);
    CHECK_EQ(perform(shard, &read), FL_STORE_UNAVAILABLE);
    CHECK(read.request.message[0]);
    pg_start(false);
    struct asked again = to_write(version, NULL, 0);
    insist(&again);
    end();
    timeout_us = 60000000;
}

TEST(a_shard_can_be_detached_while_there_is_no_server)
{
    timeout_us = 500000;
    begin();
    uint64_t version = claim_insisting();
    pg_stop();
    struct asked write = to_write(version, NULL, 0);
    ask(shard, &write);
    detach(shard);
    CHECK(write.answered && write.request.result < 0);
    shard = attach(0);
    detach(shard);
    pg_start(false);
    shard = attach(0);
    end();
    timeout_us = 60000000;
}

/* --- Refusals in the middle of a pipeline ------------------------------------------------------------------------- */

enum { NEIGHBOURS = 30 };

/* Writes and reads in turns, all under way at once; row i is refused if its number divides by `bad`. */
static void write_neighbours(uint64_t version, uint64_t bad)
{
    static fl_row rows[NEIGHBOURS];
    static fl_store_change changes[NEIGHBOURS];
    static struct asked writes[NEIGHBOURS], reads[NEIGHBOURS];
    static fl_store_want wants[NEIGHBOURS];
    for (unsigned i = 0; i < NEIGHBOURS; i++) {
        rows[i] = make_row(2 + 2 * i, 1000, 25);
        changes[i] = (fl_store_change){.put = &rows[i]};
        wants[i] = (fl_store_want){.id = rows[i].id};
        writes[i] = to_write(version, &changes[i], 1);
        reads[i] = to_find(&wants[i], 1);
        ask(shard, &writes[i]);
        ask(shard, &reads[i]);
    }
    for (unsigned i = 0; i < NEIGHBOURS; i++) {
        bool refused = rows[i].key.seq % bad == 0;
        CHECK_EQ(await(&writes[i]), refused ? FL_INVALID_ARGUMENT : 0);
        CHECK_EQ(await(&reads[i]), 0);
        CHECK(wants[i].found == !refused && reads[i].place == writes[i].place + 1);
        CHECK(!refused || strstr(writes[i].request.message, "odd"));
    }
}

TEST(what_the_database_refuses_does_not_hurt_its_neighbours)
{
    begin();
    uint64_t version = claim(shard, "me");
    pg_sql("ALTER TABLE s%u.foliot_timer ADD CONSTRAINT odd CHECK (seq %% 10 <> 0)", schema);
    write_neighbours(version, 10);
    end();
}

TEST(what_the_database_gives_up_because_of_a_conflict_is_done_again)
{
    begin();
    uint64_t version = claim(shard, "me");
    pg_sql("CREATE SEQUENCE s%u.tries; GRANT ALL ON SEQUENCE s%u.tries TO PUBLIC;"
           "CREATE FUNCTION s%u.conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
           " IF nextval('s%u.tries') %% 4 = 0 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF;"
           " RETURN NEW; END $$;"
           "CREATE TRIGGER conflict BEFORE INSERT ON s%u.foliot_timer FOR EACH ROW EXECUTE FUNCTION s%u.conflict()",
           schema, schema, schema, schema, schema, schema);
    write_neighbours(version, UINT64_MAX);
    CHECK(pg_number("SELECT last_value FROM s%u.tries", schema) > NEIGHBOURS);
    end();
}

/* An error on COMMIT, of whatever state, says nothing about what became of the transaction: it is read back. */
TEST(a_commit_that_fails_in_words_only_has_succeeded)
{
    static const char *const states[] = {"XX000", "40001", "58030", "57014", "53100", "23505", "08006"};
    static struct scenario s;
    begin();
    uint64_t version = claim(shard, "me");
    for (unsigned i = 0; i < sizeof states / sizeof *states; i++)
        for (unsigned times = 1; times <= SCALE(7, 3); times++) { /* the commit that settles it is lied about, too */
            prepare(&s, version);
            proxy_lie(times, states[i]);
            live_through(&s, true);
            proxy_lie(0, "");
            take_away(&s, version);
        }
    end();
}

TEST(a_claim_whose_commit_fails_in_words_only_is_made_again)
{
    begin();
    proxy_lie(2, "XX000");
    uint64_t version = claim(shard, "me");
    CHECK_EQ(proxy_lies_left(), 0u);
    fl_row row = make_row(2, 1000, 25);
    put(shard, version, &row, 1);
    CHECK_EQ(pg_number("SELECT version FROM s%u.foliot_shard WHERE shard = 0", schema), (long)version);
    end();
}

/* What the database really takes back at the commit is refused, in its words. */
TEST(a_commit_that_really_fails_is_refused)
{
    begin();
    uint64_t version = claim(shard, "me");
    pg_sql("CREATE FUNCTION s%u.late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
           " IF NEW.seq %% 10 = 0 THEN RAISE EXCEPTION 'odd' USING ERRCODE = '23514'; END IF; RETURN NULL; END $$;"
           "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON s%u.foliot_timer DEFERRABLE INITIALLY DEFERRED"
           " FOR EACH ROW EXECUTE FUNCTION s%u.late()",
           schema, schema, schema);
    write_neighbours(version, 10);
    end();
}

TEST(what_is_put_again_replaces_what_is_there)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25), same = row, found;
    same.body = text("other");
    put(shard, version, &row, 1);
    put(shard, version, &same, 1);
    CHECK(is_there(shard, row.id, &found) && same_row(&found, &same));
    end();
}

TEST(a_database_that_only_reads_says_so)
{
    begin();
    uint64_t version = claim(shard, "me");
    detach(shard);
    pg_sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
    shard = attach(0);
    struct asked write = to_write(version, NULL, 0), list = to_list(fl_window_of(0, 25));
    CHECK_EQ(perform(shard, &write), FL_STORE_READ_ONLY);
    CHECK_EQ(perform(shard, &list), 0);
    pg_sql("ALTER DATABASE postgres RESET default_transaction_read_only");
    end();
}

/* --- Durability --------------------------------------------------------------------------------------------------- */

/* Writes down how each commit of a table is made, at the commit. */
static void watch_commits(const char *table)
{
    pg_sql("CREATE CONSTRAINT TRIGGER watch AFTER INSERT OR UPDATE OR DELETE ON s%u.%s DEFERRABLE INITIALLY DEFERRED"
           " FOR EACH ROW EXECUTE FUNCTION s%u.watch()",
           schema, table, schema);
}

/* The setting is changed while the store is connected, which knows nothing of it. */
TEST(a_commit_is_on_disk_before_it_is_answered_whatever_the_database_is_told_meanwhile)
{
    begin();
    uint64_t version = claim(shard, "me");
    pg_sql("CREATE TABLE s%u.watched (setting text);"
           "CREATE FUNCTION s%u.watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
           " INSERT INTO s%u.watched VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$",
           schema, schema, schema);
    static const char *const tables[] = {"foliot_shard", "foliot_timer", "foliot_progress", "foliot_member"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        watch_commits(tables[i]);
    static const char *const settings[] = {"off", "local", "remote_apply"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        pg_sql("ALTER SYSTEM SET synchronous_commit = %s", settings[i]);
        pg_sql("SELECT pg_reload_conf()");
        run_for(200 * MILLISECOND);
        fl_row row = make_row(2 + 2 * i, 1000, 25);
        put(shard, version, &row, 1);
        fl_progress progress = {.seq_limit = 100};
        struct asked record = to_record(version, &progress), meet = to_meet("me", 1, HOUR_US, true);
        CHECK_EQ(perform(shard, &record), 0);
        CHECK_EQ(perform(shard, &meet), 0);
        version = claim(shard, "me");
    }
    CHECK(pg_number("SELECT count(*) FROM s%u.watched", schema) >= 12);
    CHECK_EQ(pg_number("SELECT count(*) FROM s%u.watched WHERE setting <> 'on'", schema), 0);
    pg_sql("ALTER SYSTEM RESET synchronous_commit");
    pg_sql("SELECT pg_reload_conf()");
    end();
}
