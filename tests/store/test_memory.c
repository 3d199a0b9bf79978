/* SPDX-License-Identifier: MIT */
/* The memory store: the suite for all stores, and what only this one has: faults, a clock of its own for claims, memory
 * that runs out at every point. */

#include <stdlib.h>

#include "store/conformance.h"
#include "store/model.h"
#include "wheel/allocator.h"

static int open_memory(uint32_t shards, fl_store **ret)
{
    char message[100];
    return fl_store_open("memory:", &(fl_store_config){.shards = shards}, ret, message, sizeof message);
}

const struct store_under_test under_test = {.open = open_memory, .counts_deleted = true};

/* --- On virtual time ---------------------------------------------------------------------------------------------- */

static fl_virtual_clock ticks;
static int64_t wall_us;

static int64_t read_wall(fl_wall_clock *clock)
{
    (void)clock;
    return wall_us;
}

static void begin_virtual(void)
{
    static fl_wall_clock wall = {read_wall};
    fl_virtual_clock_init(&ticks, SECOND);
    wall_us = 1000000;
    CHECK_EQ(fl_loop_new(&(fl_loop_config){.clock = &ticks.clock}, &loop), 0);
    CHECK_EQ(fl_store_open("memory:", &(fl_store_config){.shards = 2, .clock = &wall}, &store, NULL, 0), 0);
    shard = attach(0);
}

TEST(a_claim_runs_out_to_the_microsecond_by_the_clock_of_the_store)
{
    begin_virtual();
    struct asked mine = to_claim("me", 500, false);
    CHECK_EQ(perform(shard, &mine), 0);
    wall_us += 499;
    struct asked early = to_claim("you", 500, false);
    CHECK_EQ(perform(shard, &early), FL_SHARD_HELD);
    wall_us++;
    struct asked late = to_claim("you", 500, false);
    CHECK_EQ(perform(shard, &late), 0);
    end();
}

TEST(a_renewed_claim_counts_from_the_renewal)
{
    begin_virtual();
    struct asked mine = to_claim("me", 500, false);
    CHECK_EQ(perform(shard, &mine), 0);
    wall_us += 400;
    struct asked renew = simple(FL_STORE_RENEW, mine.request.claim.version);
    renew.request.renew.claim_us = 200;
    CHECK_EQ(perform(shard, &renew), 0);
    wall_us += 199;
    struct asked early = to_claim("you", 500, false);
    CHECK_EQ(perform(shard, &early), FL_SHARD_HELD);
    wall_us++;
    struct asked late = to_claim("you", 500, false);
    CHECK_EQ(perform(shard, &late), 0);
    end();
}

static struct asked met(struct asked asked)
{
    CHECK_EQ(perform(shard, &asked), 0);
    return asked;
}

TEST(the_time_of_a_server_runs_out_to_the_microsecond_by_the_clock_of_the_store)
{
    begin_virtual();
    struct asked mine = to_claim("a", 700, false);
    CHECK_EQ(perform(shard, &mine), 0);
    struct asked asked = met(to_meet("a", 1, 500, true));
    CHECK_EQ(asked.request.meet.members[0].left_us, 500);
    wall_us += 501;
    asked = met(to_meet(NULL, 0, 0, false));
    CHECK_EQ(asked.request.meet.members[0].left_us, -1);
    CHECK_EQ(asked.request.meet.holders[0].left_us, 199);
    asked = met(to_meet("a", 1, 100, false));
    CHECK_EQ(asked.request.meet.members[0].left_us, 100);
    end();
}

TEST(who_joins_takes_those_off_the_list_whose_time_ran_out_more_than_an_hour_ago)
{
    begin_virtual();
    met(to_meet("a", 1, 500, true));
    met(to_meet("b", 1, 501, true));
    wall_us += 501 + (int64_t)HOUR_US;
    CHECK_EQ(met(to_meet("b", 2, 1, false)).request.meet.member_count, 2); /* does not join */
    CHECK_EQ(met(to_meet(NULL, 0, 0, false)).request.meet.member_count, 2);
    struct asked asked = met(to_meet("c", 1, 500, true));
    CHECK_EQ(asked.request.meet.member_count, 2);
    CHECK(strcmp(asked.request.meet.members[0].address, "b") == 0);
    CHECK_EQ(asked.request.meet.members[0].left_us, -(int64_t)HOUR_US);
    end();
}

/* --- Faults ------------------------------------------------------------------------------------------------------- */

/* One fault for each request that comes, in order; none after the last. */
static fl_memory_fault faults[16];
static unsigned fault_count, fault_at;
static enum fl_store_op faulty_ops[16];

static fl_memory_fault next_fault(void *arg, uint32_t number, const fl_store_request *request)
{
    CHECK(arg == faults);
    CHECK_EQ(number, 0);
    if (fault_at == fault_count)
        return (fl_memory_fault){0};
    faulty_ops[fault_at] = request->op;
    return faults[fault_at++];
}

static void plan_faults(const fl_memory_fault *list, unsigned count)
{
    memcpy(faults, list, count * sizeof *list);
    fault_count = count;
    fault_at = 0;
    CHECK_EQ(fl_memory_store_faults(store, next_fault, faults), 0);
}

TEST(a_fault_before_the_request_leaves_everything_as_it_was)
{
    begin_virtual();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25);
    fl_store_change change = {.put = &row};
    plan_faults((fl_memory_fault[]){{.result = FL_STORE_FULL}, {.result = FL_OUTCOME_UNKNOWN}}, 2);
    struct asked full = to_write(version, &change, 1), unknown = to_write(version, &change, 1);
    CHECK_EQ(perform(shard, &full), FL_STORE_FULL);
    CHECK_EQ(perform(shard, &unknown), FL_OUTCOME_UNKNOWN);
    CHECK_EQ(fault_at, 2);
    CHECK_EQ(faulty_ops[0], FL_STORE_WRITE);
    CHECK(!is_there(shard, row.id, NULL));
    end();
}

TEST(an_unknown_outcome_may_have_taken_effect)
{
    begin_virtual();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25);
    fl_store_change change = {.put = &row};
    plan_faults((fl_memory_fault[]){{.result = FL_OUTCOME_UNKNOWN, .applied = true}}, 1);
    struct asked unknown = to_write(version, &change, 1);
    CHECK_EQ(perform(shard, &unknown), FL_OUTCOME_UNKNOWN);
    CHECK(is_there(shard, row.id, NULL));
    end();
}

TEST(a_claim_of_unknown_outcome_shows_nothing_and_may_have_taken_the_shard)
{
    begin_virtual();
    uint64_t version = claim(shard, "me");
    plan_faults((fl_memory_fault[]){{.result = FL_OUTCOME_UNKNOWN, .applied = true}}, 1);
    struct asked unknown = to_claim("you", HOUR_US, true), lost = to_write(version, NULL, 0);
    CHECK_EQ(perform(shard, &unknown), FL_OUTCOME_UNKNOWN);
    CHECK(unknown.request.claim.version == 0 && !unknown.request.claim.windows);
    CHECK_EQ(perform(shard, &lost), FL_SHARD_LOST);
    CHECK(claim(shard, "you") > version + 1);
    end();
}

TEST(a_meeting_has_faults_like_any_other_request)
{
    begin_virtual();
    plan_faults((fl_memory_fault[]){{.result = FL_STORE_UNAVAILABLE},
                                    {.result = FL_OUTCOME_UNKNOWN},
                                    {0},
                                    {.result = FL_OUTCOME_UNKNOWN, .applied = true},
                                    {.delay_ns = SECOND}},
                5);
    struct asked asked = to_meet("a", 1, HOUR_US, true);
    CHECK_EQ(perform(shard, &asked), FL_STORE_UNAVAILABLE);
    asked = to_meet("a", 1, HOUR_US, true);
    CHECK_EQ(perform(shard, &asked), FL_OUTCOME_UNKNOWN);
    CHECK_EQ(met(to_meet(NULL, 0, 0, false)).request.meet.member_count, 0);
    asked = to_meet("a", 1, HOUR_US, true);
    CHECK_EQ(perform(shard, &asked), FL_OUTCOME_UNKNOWN);
    CHECK(!asked.request.meet.members && !asked.request.meet.holders);
    uint64_t before_ns = fl_loop_now_ns(loop);
    asked = met(to_meet(NULL, 0, 0, false));
    CHECK_EQ(fl_loop_now_ns(loop), before_ns + SECOND);
    CHECK_EQ(asked.request.meet.member_count, 1);
    CHECK_EQ(fault_at, 5);
    CHECK_EQ(faulty_ops[4], FL_STORE_MEET);
    end();
}

TEST(a_read_of_unknown_outcome_shows_nothing)
{
    begin_virtual();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25);
    put(shard, version, &row, 1);
    fl_memory_fault fault = {.result = FL_OUTCOME_UNKNOWN, .applied = true};
    plan_faults((fl_memory_fault[]){fault, fault}, 2);
    fl_store_want want = {.id = row.id};
    struct asked find = to_find(&want, 1), load = to_load(&row.window, 1);
    CHECK_EQ(perform(shard, &find), FL_OUTCOME_UNKNOWN);
    CHECK(!want.found);
    CHECK_EQ(perform(shard, &load), FL_OUTCOME_UNKNOWN);
    CHECK_EQ(load.count, 0);
    end();
}

/* It is only the answer that a fault makes up: who has lost the shard writes nothing. */
TEST(an_unknown_outcome_does_not_pass_by_the_version)
{
    begin_virtual();
    uint64_t version = claim(shard, "me");
    claim(shard, "you");
    fl_row row = make_row(2, 1000, 25);
    fl_store_change change = {.put = &row};
    plan_faults((fl_memory_fault[]){{.result = FL_OUTCOME_UNKNOWN, .applied = true}}, 1);
    struct asked unknown = to_write(version, &change, 1);
    CHECK_EQ(perform(shard, &unknown), FL_OUTCOME_UNKNOWN);
    CHECK(!is_there(shard, row.id, NULL));
    end();
}

TEST(faults_end_when_they_are_taken_away)
{
    begin_virtual();
    fl_memory_fault fault = {.result = FL_STORE_UNAVAILABLE};
    plan_faults((fl_memory_fault[]){fault, fault}, 2);
    struct asked first = to_claim("me", HOUR_US, false);
    CHECK_EQ(perform(shard, &first), FL_STORE_UNAVAILABLE);
    CHECK_EQ(fl_memory_store_faults(store, NULL, NULL), 0);
    claim(shard, "me");
    CHECK_EQ(fault_at, 1);
    end();
}

TEST(only_the_memory_store_has_faults)
{
    struct fl_store_ops other = {0};
    fl_store foreign = {&other, 1};
    CHECK_EQ(fl_memory_store_faults(&foreign, next_fault, faults), FL_INVALID_ARGUMENT);
}

static uint64_t elapsed_ms(void)
{
    return (ticks.time_ns - SECOND) / MILLISECOND;
}

TEST(answers_that_are_delayed_keep_their_order)
{
    begin_virtual();
    uint64_t version = claim(shard, "me");
    plan_faults((fl_memory_fault[]){{.delay_ns = 30 * MILLISECOND}, {.delay_ns = 10 * MILLISECOND}, {0}}, 3);
    struct asked all[3];
    for (int i = 0; i < 3; i++) {
        all[i] = to_write(version, NULL, 0);
        ask(shard, &all[i]);
    }
    CHECK_EQ(await(&all[0]), 0);
    CHECK_EQ(elapsed_ms(), 30);
    CHECK(!all[1].answered);
    CHECK_EQ(await(&all[1]), 0);
    CHECK_EQ(elapsed_ms(), 40);
    CHECK_EQ(await(&all[2]), 0);
    CHECK_EQ(elapsed_ms(), 40);
    CHECK(all[0].place < all[1].place && all[1].place < all[2].place);
    end();
}

TEST(a_delayed_load_gives_no_rows_before_its_time)
{
    begin_virtual();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25);
    put(shard, version, &row, 1);
    plan_faults((fl_memory_fault[]){{.delay_ns = 5 * MILLISECOND}}, 1);
    struct asked load = to_load(&row.window, 1);
    ask(shard, &load);
    CHECK_EQ(fl_loop_run_once(loop, false), 0);
    CHECK_EQ(load.count, 0);
    CHECK_EQ(await(&load), 0);
    CHECK(load.count == 1 && elapsed_ms() == 5);
    end();
}

TEST(a_delayed_failure_fails_after_its_delay)
{
    begin_virtual();
    uint64_t version = claim(shard, "me");
    plan_faults((fl_memory_fault[]){{.delay_ns = 7 * MILLISECOND, .result = FL_OUTCOME_UNKNOWN}}, 1);
    struct asked asked = to_write(version, NULL, 0);
    CHECK_EQ(perform(shard, &asked), FL_OUTCOME_UNKNOWN);
    CHECK_EQ(elapsed_ms(), 7);
    end();
}

/* What a crash looks like: one request has taken effect and nobody was told, those behind it have not. */
TEST(an_owner_that_is_dropped_leaves_one_request_done_and_the_others_not)
{
    begin_virtual();
    fl_shard *victim = attach(0);
    uint64_t version = claim(victim, "me");
    fl_row rows[3];
    fl_store_change changes[3];
    struct asked all[3];
    plan_faults((fl_memory_fault[]){{.delay_ns = 30 * MILLISECOND}}, 1);
    for (unsigned i = 0; i < 3; i++) {
        rows[i] = make_row(2 + 2 * i, 1000, 25);
        changes[i] = (fl_store_change){.put = &rows[i]};
        all[i] = to_write(version, &changes[i], 1);
        ask(victim, &all[i]);
    }
    CHECK_EQ(fl_loop_run_once(loop, false), 0);
    CHECK(is_there(shard, rows[0].id, NULL) && !all[0].answered);
    detach(victim);
    CHECK_EQ(elapsed_ms(), 30);
    CHECK_EQ(all[0].request.result, 0);
    for (unsigned i = 1; i < 3; i++) {
        CHECK_EQ(all[i].request.result, FL_STORE_UNAVAILABLE);
        CHECK(!is_there(shard, rows[i].id, NULL));
    }
    end();
}

static void submit_another(fl_store_request *request)
{
    CHECK_EQ(request->result, FL_STORE_UNAVAILABLE);
    ask(shard, request->arg);
}

TEST(what_is_submitted_while_the_shard_is_detached_is_answered_too)
{
    begin_virtual();
    struct asked another = to_list_dead();
    fl_store_request first = {.op = FL_STORE_WRITE, .done = submit_another, .arg = &another};
    fl_store_submit(shard, &first);
    detach(shard);
    CHECK(another.answered);
    CHECK_EQ(another.request.result, FL_STORE_UNAVAILABLE);
    shard = attach(0);
    end();
}

/* --- Sizes -------------------------------------------------------------------------------------------------------- */

TEST(there_are_four_shards_unless_told_otherwise)
{
    static const uint32_t counts[] = {0, 1, 65536};
    for (int i = 0; i < 3; i++) {
        fl_store *made;
        CHECK_EQ(fl_store_open("memory:", &(fl_store_config){.shards = counts[i]}, &made, NULL, 0), 0);
        CHECK_EQ(fl_store_shards(made), counts[i] ? counts[i] : 4);
        fl_store_close(made);
    }
    fl_store *made;
    CHECK_EQ(fl_store_open("memory:", NULL, &made, NULL, 0), 0);
    CHECK_EQ(fl_store_shards(made), 4);
    CHECK(fl_store_is_shared(made));
    fl_store_close(made);
}

TEST(what_is_in_memory_cannot_be_copied_into_a_file)
{
    begin_virtual();
    struct asked backup = simple(FL_STORE_BACKUP, claim(shard, "me"));
    backup.request.backup.path = "unused";
    CHECK_EQ(perform(shard, &backup), FL_INVALID_ARGUMENT);
    end();
}

/* Also in the order that is worst for a tree: by number, from both ends, through one window into another. */
TEST(many_rows_are_found_filed_and_finished)
{
    enum { BATCH = 10000, COUNT = SCALE(500000, 50000) };
    begin_virtual();
    uint64_t version = claim(shard, "me");
    static fl_row rows[BATCH];
    static char names[BATCH][16];
    for (unsigned first = 0; first < COUNT; first += BATCH) {
        for (unsigned i = 0; i < BATCH; i++) {
            uint64_t seq = first / BATCH % 2 ? first + i : COUNT * 2 - first - i;
            rows[i] = (fl_row){.key = {(int64_t)(seq % 100) << 24, 2 * seq + 2}, .ns = {"ns", 2}};
            rows[i].id = rows[i].key;
            rows[i].window = fl_window_of(rows[i].key.at_us, 31);
            rows[i].name = (fl_bytes){names[i], (size_t)snprintf(names[i], sizeof names[i], "%" PRIu64, seq)};
        }
        put(shard, version, rows, BATCH);
    }
    CHECK_EQ(load(shard, fl_window_of(0, 31), NULL), COUNT);
    CHECK(is_there(shard, rows[77].id, NULL));
    struct asked asked = to_refile(version, fl_window_of(0, 31), SIZE_MAX);
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK_EQ(asked.request.refile.moved, COUNT);
    CHECK_EQ(load(shard, fl_window_of(0, 25), NULL), COUNT / 50);
    struct fl_store_span spans[50];
    for (unsigned i = 0; i < 50; i++)
        spans[i] = (struct fl_store_span){fl_window_of((int64_t)i << 25, 25), true};
    struct asked finish = simple(FL_STORE_FINISH, version);
    finish.request.finish.spans = spans;
    finish.request.finish.span_count = 50;
    CHECK_EQ(perform(shard, &finish), 0);
    CHECK_EQ(finish.request.finish.deleted, COUNT);
    CHECK(!is_there(shard, rows[77].id, NULL));
    end();
}

/* --- Memory that runs out ----------------------------------------------------------------------------------------- */

/* Everything in shard 0, as text. */
static char *tell_everything(void)
{
    char *told;
    size_t size;
    FILE *out = open_memstream(&told, &size);
    CHECK(out);
    fl_shard *reader = attach(0);
    for (unsigned shift = 25; shift <= 31; shift += 6)
        for (int64_t at = 0; at < 3; at++) {
            fl_row *rows;
            size_t count = load(reader, fl_window_of(at << 25, shift), &rows);
            for (size_t i = 0; i < count; i++)
                tell_row(out, &rows[i]);
            if (shift == 31)
                break;
        }
    struct asked dead = to_list_dead();
    CHECK_EQ(perform(reader, &dead), 0);
    for (size_t i = 0; i < dead.request.dead_list.count; i++)
        tell_dead(out, &dead.request.dead_list.rows[i]);
    struct asked look = to_meet(NULL, 0, 0, false);
    CHECK_EQ(perform(reader, &look), 0);
    for (size_t i = 0; i < look.request.meet.member_count; i++) {
        const fl_store_member *member = &look.request.meet.members[i];
        fprintf(out, "%s %s %" PRIu64 " %" PRId64 "\n", member->address, member->about, member->incarnation,
                member->left_us);
    }
    detach(reader);
    CHECK_EQ(fclose(out), 0);
    return told;
}

/* Lets the first allocation fail, then the second and so on, until the request needs no more than there are. Whenever it
 * was refused, nothing has changed. Returns how often it was. */
static unsigned perform_starving(const struct asked *asked)
{
    unsigned refused = 0;
    for (uint64_t n = 1;; n++) {
        char *before = tell_everything();
        struct asked attempt = *asked;
        uint64_t failed = memory.failed;
        memory_fail(n, false);
        int r = perform(shard, &attempt);
        memory_fail(0, false);
        CHECK(r == 0 || r == FL_NO_MEMORY);
        if (r < 0) {
            char *after = tell_everything();
            CHECK(strcmp(before, after) == 0);
            free(after);
            refused++;
        }
        free(before);
        if (memory.failed == failed) {
            CHECK_EQ(r, 0);
            return refused;
        }
    }
}

static void starve_writes(uint64_t version)
{
    static fl_row rows[40];
    static fl_store_change changes[40];
    for (uint64_t i = 0; i < 40; i++) {
        rows[i] = make_named(2 + 2 * i, (int64_t)i << 21, i % 2 ? 25 : 31, "");
        rows[i].name = (fl_bytes){remember(&i, sizeof i), sizeof i};
        if (i % 3 == 0)
            rows[i].id = (fl_key){i, 1000 + i};
        changes[i] = (fl_store_change){.put = &rows[i]};
    }
    fl_dead_row dead = make_dead(rows[0], "starved");
    changes[7].bury = &dead;
    struct asked write = to_write(version, changes, 40);
    CHECK(perform_starving(&write) >= 41);
    const uint64_t keep[] = {2, 3};
    struct asked record = to_record(version, &(fl_progress){.keep = keep, .keep_count = 2, .seq_limit = 100});
    CHECK_EQ(perform_starving(&record), 1);
    struct fl_store_span span = {fl_window_of(0, 25), true};
    struct asked finish = simple(FL_STORE_FINISH, version);
    finish.request.finish.spans = &span;
    finish.request.finish.span_count = 1;
    finish.request.finish.record = (fl_progress){.keep = keep, .keep_count = 1, .seq_limit = 100};
    CHECK_EQ(perform_starving(&finish), 1);
    struct asked refile = to_refile(version, fl_window_of(0, 31), 5);
    CHECK_EQ(perform_starving(&refile), 0); /* needs none */
}

static void starve_meetings(void)
{
    struct asked join = to_meet("a", 1, HOUR_US, true), again = to_meet("a", 2, HOUR_US, true),
                 gone = to_meet("a", 2, 0, false);
    join.request.meet.about = "something";
    CHECK(perform_starving(&join) >= 2);
    CHECK(perform_starving(&again) >= 1);
    CHECK(perform_starving(&gone) >= 1);
}

static void starve_reads(void)
{
    uint64_t windows[] = {fl_window_of(0, 25), fl_window_of((int64_t)1 << 25, 25)};
    fl_store_want wants[2] = {{.id = {(int64_t)5 << 21, 12}}, {.id = {(int64_t)33 << 21, 68}}};
    struct asked find = to_find(wants, 2), list = to_list(windows[0]), loads = to_load(windows, 2),
                 dead = to_list_dead(), again = to_claim("me", HOUR_US, false);
    loads.request.load.limit = 4;
    CHECK(perform_starving(&find) >= 1);
    CHECK(perform_starving(&list) >= 1);
    CHECK(perform_starving(&loads) >= 2);
    CHECK(perform_starving(&dead) >= 1);
    CHECK(perform_starving(&again) >= 1);
}

TEST(a_request_for_which_there_is_no_memory_changes_nothing)
{
    memory_install();
    begin_virtual();
    uint64_t version = claim(shard, "me");
    starve_writes(version);
    starve_meetings();
    starve_reads();
    end();
    memory_remove();
}

TEST(a_delay_for_which_there_is_no_memory_refuses_the_request)
{
    memory_install();
    begin_virtual();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25);
    fl_store_change change = {.put = &row};
    plan_faults((fl_memory_fault[]){{.delay_ns = MILLISECOND}}, 1);
    struct asked write = to_write(version, &change, 1);
    memory_fail(1, true);
    CHECK_EQ(perform(shard, &write), FL_NO_MEMORY);
    memory_fail(0, false);
    CHECK(!is_there(shard, row.id, NULL));
    end();
    memory_remove();
}

TEST(opening_and_attaching_can_run_out_of_memory)
{
    memory_install();
    fl_loop *quiet;
    fl_store *made = NULL;
    fl_shard *attached = NULL;
    char message[100];
    CHECK_EQ(fl_loop_new(NULL, &quiet), 0);
    memory_fail(1, false);
    CHECK_EQ(fl_store_open("memory:", NULL, &made, message, sizeof message), FL_NO_MEMORY);
    CHECK(!made && strcmp(message, fl_strerror(FL_NO_MEMORY)) == 0);
    CHECK_EQ(fl_store_open("memory:", NULL, &made, NULL, 0), 0);
    memory_fail(1, false);
    CHECK_EQ(fl_store_attach(made, 0, quiet, &attached), FL_NO_MEMORY);
    CHECK(!attached);
    fl_store_close(made);
    fl_loop_free(quiet);
    memory_remove();
}
