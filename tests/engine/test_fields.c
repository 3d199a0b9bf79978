/* SPDX-License-Identifier: MIT */
/* What a timer keeps for its users; debounce; search; pauses. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bed.h"
#include "engine/internal.h"
#include "test.h"

/* --- Bytes ---------------------------------------------------------------------------------------------------------- */

/* As version 0.1 has written them before there were more fields: flags, creation, due time, attempts, target, payload. */
TEST(bodies_of_earlier_versions_are_read)
{
    static const unsigned char plain[] = {0, 20, 't', 'e', 'a'};
    static const unsigned char full[] = {1 | 2 | 16, 20, 200, 1, 3, 2, 'h', 'i', 't', 'e', 'a'};
    fl_durable timer = {0};
    CHECK_EQ(fl__body_decode((fl_bytes){plain, sizeof plain}, 50000, &timer), 0);
    CHECK(timer.due_us == 50000 && timer.created_us == 40000 && timer.payload.size == 3 && timer.schedule.size == 0);
    CHECK_EQ(fl__body_decode((fl_bytes){full, sizeof full}, 50000, &timer), 0);
    CHECK(timer.due_us == 100 && timer.attempt == 3 && timer.target.size == 2 && timer.payload.size == 3);
}

/* A body that was cut, or has flags of a later version, is not read beyond its end. */
TEST(bodies_that_are_cut_are_refused)
{
    fl_durable timer = {.due_us = 7,
                        .attempt = 3,
                        .target = text("target"),
                        .schedule = text("daily"),
                        .occurrence_us = START,
                        .local = text("local"),
                        .zone = text("zone"),
                        .max_wait_us = 1,
                        .merge_first = true,
                        .replaced = 300,
                        .first_created_us = START};
    unsigned char bytes[512];
    size_t size = fl__body_encode(&timer, START, bytes);
    CHECK(size <= fl__body_size(&timer));
    for (size_t cut = 0; cut <= size; cut++) {
        unsigned char *copy = malloc(cut + 1); /* so that a sanitizer sees where it ends */
        fl_durable read = {0};
        CHECK(copy);
        memcpy(copy, bytes, cut);
        CHECK_EQ(fl__body_decode((fl_bytes){copy, cut}, START, &read), cut < size ? FL_STORE_CORRUPT : 0);
        CHECK(cut < size || (read.replaced == 300 && read.merge_first && read.first_created_us == START));
        free(copy);
    }
    bytes[0] |= 128;
    CHECK_EQ(fl__body_decode((fl_bytes){bytes, size}, START, &timer), FL_STORE_CORRUPT);
}

/* The engine accepts no name of a schedule that is longer than this, so a longer one is damage. */
TEST(bodies_with_a_schedule_that_is_too_long_are_refused)
{
    char name[FL_STORE_NAME_MAX + 1];
    unsigned char bytes[512];
    memset(name, 'a', sizeof name);
    for (size_t size = FL_STORE_NAME_MAX; size <= sizeof name; size++) {
        fl_durable timer = {.schedule = {name, size}, .occurrence_us = START}, read = {0};
        size_t written = fl__body_encode(&timer, START, bytes);
        CHECK_EQ(fl__body_decode((fl_bytes){bytes, written}, START, &read),
                 size > FL_STORE_NAME_MAX ? FL_STORE_CORRUPT : 0);
    }
}

/* --- Fields --------------------------------------------------------------------------------------------------------- */

static fl_firing seen;
static char seen_schedule[16], seen_zone[16];

static void look(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    (void)arg;
    seen = firings[0];
    memcpy(seen_schedule, seen.timer.schedule.data, seen.timer.schedule.size);
    memcpy(seen_zone, seen.timer.zone.data, seen.timer.zone.size);
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(fl_engine_settle(engine, &(fl_settlement){.token = firings[i].token}, 1), 1);
    bed.fired_count += count;
}

TEST(a_timer_keeps_what_belongs_to_its_schedule_and_its_civil_time)
{
    set_up((fl_engine_config){.dispatch = look});
    fl_op op = {.kind = FL_OP_CREATE,
                .timer = {.ns = text("ns"),
                          .name = text("a"),
                          .due_us = START + SECOND,
                          .schedule = text("daily"),
                          .occurrence_us = START,
                          .previous_us = -5 * SECOND, /* before 1970 */
                          .next_us = START + 86400 * SECOND,
                          .local = text("2023-11-14T23:13:20"),
                          .zone = text("Europe/Berlin")}};
    CHECK_EQ(run_op(op).result, 0);
    CHECK_EQ(run_op(op).outcome, FL_SAME);
    fl_durable there = by_name(FL_OP_GET, "a").timer;
    CHECK_EQ(there.occurrence_us, START);
    CHECK_EQ(there.previous_us, -5 * SECOND);
    CHECK_EQ(there.next_us, START + 86400 * SECOND);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    CHECK(strcmp(seen_schedule, "daily") == 0 && strcmp(seen_zone, "Europe/Berlin") == 0);
    CHECK_EQ(seen.at_us, START + SECOND);
    CHECK(!seen.parked);
    tear_down();
}

TEST(another_due_time_is_another_civil_time)
{
    fl_op seen_op;
    set_up((fl_engine_config){0});
    fl_op op = {.kind = FL_OP_CREATE,
                .timer = {.ns = text("ns"),
                          .name = text("a"),
                          .due_us = START + 10 * SECOND,
                          .local = text("2023-11-14T23:13:30"),
                          .zone = text("Europe/Berlin")}};
    CHECK_EQ(run_op(op).result, 0);
    op = (fl_op){.kind = FL_OP_UPDATE, .flags = FL_OP_SET_PAYLOAD, .timer = {.ns = text("ns"), .name = text("a")}};
    seen_op = run_op(op);
    CHECK_EQ(seen_op.timer.zone.size, 13);
    op.flags = FL_OP_SET_DUE;
    op.timer.due_us = START + 20 * SECOND;
    seen_op = run_op(op);
    CHECK_EQ(seen_op.timer.zone.size, 0);
    CHECK_EQ(seen_op.timer.local.size, 0);
    op.timer.local = text("x");
    op.timer.zone = text("UTC");
    CHECK_EQ(run_op(op).timer.zone.size, 3);
    char large[300] = {0};
    op.timer.local = (fl_bytes){large, 65};
    CHECK_EQ(run_op(op).result, FL_TOO_LARGE);
    op.timer.local = text("");
    op.timer.zone = (fl_bytes){large, 256};
    CHECK_EQ(run_op(op).result, FL_TOO_LARGE);
    tear_down();
}

/* --- Debounce ------------------------------------------------------------------------------------------------------- */

static fl_op put(const char *payload, int64_t after_us, uint64_t max_wait_us, bool first)
{
    return run_op((fl_op){.kind = FL_OP_CREATE,
                          .timer = {.ns = text("ns"),
                                    .name = text("a"),
                                    .payload = text(payload),
                                    .due_us = wall_now(&bed.wall.clock) + after_us,
                                    .max_wait_us = max_wait_us,
                                    .merge_first = first}});
}

TEST(a_timer_that_is_replaced_again_and_again_does_not_wait_for_ever)
{
    set_up((fl_engine_config){0});
    for (int i = 0; i < 9; i++) {
        fl_op op = put("x", 5 * SECOND, 20 * SECOND, false);
        CHECK_EQ(op.result, 0);
        CHECK_EQ(op.timer.replaced, i);
        CHECK_EQ(op.timer.due_us, i < 8 ? wall_now(&bed.wall.clock) + 5 * SECOND : START + 20 * SECOND);
        CHECK_EQ(op.timer.first_created_us, i > 0 ? START : 0);
        run_for(2 * SECOND);
    }
    CHECK_EQ(bed.fired_count, 0);
    run_for(3 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    CHECK_EQ(bed.fired[0].at_us, START + 20 * SECOND);
    CHECK_EQ(put("x", 5 * SECOND, 20 * SECOND, false).timer.replaced, 0); /* it begins anew */
    tear_down();
}

TEST(no_due_time_that_is_set_is_later_than_the_longest_wait)
{
    set_up((fl_engine_config){0});
    CHECK_EQ(put("x", 60 * SECOND, 20 * SECOND, false).timer.due_us, START + 20 * SECOND);
    run_for(SECOND);
    fl_op move = {.kind = FL_OP_UPDATE,
                  .flags = FL_OP_SET_DUE,
                  .timer = {.ns = text("ns"), .name = text("a"), .due_us = START + 30 * SECOND}};
    CHECK_EQ(run_op(move).timer.due_us, START + 20 * SECOND);
    fl_op same = put("x", 90 * SECOND, 20 * SECOND, false);
    CHECK_EQ(same.outcome, FL_SAME);
    CHECK_EQ(same.timer.replaced, 0);
    run_for(18 * SECOND);
    CHECK_EQ(bed.fired_count, 0);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    fl_op nameless = {.kind = FL_OP_CREATE,
                      .timer = {.ns = text("ns"), .due_us = START + 90 * SECOND, .max_wait_us = SECOND}};
    nameless = run_op(nameless);
    CHECK_EQ(nameless.timer.due_us, nameless.timer.created_us + SECOND);
    tear_down();
}

TEST(the_payload_of_the_first_or_of_the_last_stays)
{
    for (int first = 0; first < 2; first++) {
        set_up((fl_engine_config){0});
        put("one", 5 * SECOND, 0, first);
        run_for(SECOND);
        put("two", 5 * SECOND, 0, first);
        run_for(SECOND);
        fl_op last = put("three", 5 * SECOND, 0, first);
        CHECK_EQ(last.timer.replaced, 2);
        CHECK_EQ(last.timer.first_created_us, START);
        run_for(10 * SECOND);
        CHECK_EQ(bed.fired_count, 1);
        CHECK(strcmp(bed.fired[0].payload, first ? "one" : "three") == 0);
        tear_down();
    }
}

TEST(what_has_begun_to_fire_is_not_debounced)
{
    set_up((fl_engine_config){0});
    bed.keep = true;
    put("one", SECOND, 3 * SECOND, true);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    fl_op op = put("two", 10 * SECOND, 3 * SECOND, true);
    CHECK_EQ(op.timer.replaced, 0);
    CHECK_EQ(op.timer.due_us, op.timer.created_us + 3 * SECOND);
    bed.keep = false;
    run_for(20 * SECOND);
    CHECK_EQ(bed.fired_count, 2);
    CHECK(strcmp(bed.fired[1].payload, "two") == 0);
    tear_down();
}

/* --- Search --------------------------------------------------------------------------------------------------------- */

static struct page {
    size_t count, pages;
    char names[64][16];
} page;

static void listed(fl_listing *listing)
{
    CHECK_EQ(listing->result, 0);
    page.pages++;
    for (size_t i = 0; i < listing->count; i++)
        snprintf(page.names[page.count++], sizeof *page.names, "%.*s", (int)listing->found[i].timer.name.size,
                 (const char *)listing->found[i].timer.name.data);
    if (listing->more)
        fl_engine_list(bed.engine, listing);
    else
        fl_loop_stop(bed.loop);
}

static size_t search(fl_listing listing)
{
    page = (struct page){0};
    listing.done = listed;
    fl_engine_list(bed.engine, &listing);
    CHECK_EQ(fl_loop_run(bed.loop), 0);
    return page.count;
}

static void make_searchable(int64_t after_us)
{
    for (int i = 0; i < 40; i++) {
        char name[16], target[32];
        snprintf(name, sizeof name, "order-%02d", i);
        snprintf(target, sizeof target, "http://%s/%d", i % 2 ? "odd" : "even", i);
        fl_op op = {.kind = FL_OP_CREATE,
                    .timer = {.ns = text("ns"),
                              .name = text(name),
                              .due_us = START + after_us,
                              .target = text(target),
                              .payload = text("x"),
                              .schedule = text(i % 10 == 7   ? "weekly"
                                               : i % 10 == 3 ? "daily"
                                                             : "")}};
        CHECK_EQ(run_op(op).result, 0);
    }
}

static void search_all(bool dead)
{
    for (size_t limit = 1; limit < 100; limit = limit * 3 + 1) {
        CHECK_EQ(search((fl_listing){.dead = dead, .limit = limit}), 40);
        CHECK_EQ(search((fl_listing){.dead = dead, .limit = limit, .name_contains = text("r-1")}), 10);
        CHECK_EQ(search((fl_listing){.dead = dead, .limit = limit, .prefix = text("order-1")}), 10);
        CHECK_EQ(search((fl_listing){.dead = dead, .limit = limit, .prefix = text("rder-1")}), 0);
        CHECK_EQ(search((fl_listing){.dead = dead, .limit = limit, .target_prefix = text("http://odd/")}), 20);
        CHECK_EQ(search((fl_listing){.dead = dead, .limit = limit, .schedule = text("daily")}), 4);
        CHECK_EQ(search((fl_listing){.dead = dead, .limit = limit, .schedule = text("dail")}), 0);
        fl_listing all = {.dead = dead,
                          .limit = limit,
                          .ns = text("ns"),
                          .name_contains = text("-3"),
                          .target_prefix = text("http://odd"),
                          .schedule = text("weekly")};
        CHECK_EQ(search(all), 1);
        CHECK(strcmp(page.names[0], "order-37") == 0);
    }
}

TEST(timers_are_found_by_what_they_are)
{
    set_up((fl_engine_config){0});
    make_searchable(60 * SECOND);
    search_all(false);
    tear_down();
}

TEST(dead_letters_are_found_by_what_they_are)
{
    set_up((fl_engine_config){0});
    bed.answer = FL_DEAD;
    bed.failures = 40;
    make_searchable(2 * SECOND);
    run_for(10 * SECOND);
    search_all(true);
    CHECK_EQ(search((fl_listing){.dead = true, .reason_contains = text("cause")}), 40);
    CHECK_EQ(search((fl_listing){.dead = true, .reason_contains = text("causes")}), 0);
    tear_down();
}

/* --- Pauses --------------------------------------------------------------------------------------------------------- */

enum { PAUSED = 1000, OPEN = 7 };

static struct {
    bool on, skips;
    uint64_t waiting[64];
    size_t waiting_count, skipped;
    uint64_t credit_us;
    char order[64][4];
    size_t count;
} pause;

static void dispatch_paused(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++) {
        const fl_firing *firing = &firings[i];
        if (pause.on) {
            CHECK(!fl_engine_wait(engine, firing->token, PAUSED, NULL));
            continue;
        }
        if (pause.skips && firing->parked && firing->lane == PAUSED) {
            CHECK_EQ(fl_engine_settle(engine, &(fl_settlement){.token = firing->token, .result = FL_SKIP}, 1), 1);
            pause.skipped++;
            continue;
        }
        memcpy(pause.order[pause.count++], firing->timer.payload.data, firing->timer.payload.size);
        CHECK_EQ(fl_engine_settle(engine, &(fl_settlement){.token = firing->token}, 1), 1);
    }
}

static void live_paused(bool skips)
{
    fl_engine_stats stats;
    memset(&pause, 0, sizeof pause);
    pause.on = true;
    pause.skips = skips;
    set_up((fl_engine_config){.dispatch = dispatch_paused, .max_waiting = 8});
    CHECK_EQ(fl_engine_close_lane(bed.engine, PAUSED, true), 0);
    for (int i = 0; i < 40; i++) {
        char payload[4];
        snprintf(payload, sizeof payload, "%02d", i);
        CHECK_EQ(create(NULL, (i + 1) * SECOND, payload).result, 0);
    }
    run_for(31 * SECOND - SECOND / 2);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK_EQ(stats.parked, 30);
    CHECK_EQ(stats.in_flight + stats.waiting, 0);
    CHECK_EQ(stats.loaded, 10);
    pause.on = false;
    CHECK_EQ(fl_engine_close_lane(bed.engine, PAUSED, false), 0);
    run_for(SECOND / 4);
    CHECK_EQ(pause.count, skips ? 0 : 30);
    run_for(20 * SECOND);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK_EQ(pause.skipped, skips ? 30 : 0);
    CHECK_EQ(stats.skipped, pause.skipped);
    CHECK_EQ(stats.fired, 40 - pause.skipped);
    CHECK_EQ(stats.pending, 0);
    for (size_t i = 0; i < pause.count; i++)
        CHECK_EQ(strtol(pause.order[i], NULL, 10), (long)(i + pause.skipped));
    tear_down();
}

TEST(what_is_parked_in_a_pause_comes_in_order_or_is_skipped)
{
    live_paused(false);
    live_paused(true);
}

static void dispatch_waiting(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++)
        if (fl_engine_wait(engine, firings[i].token, firings[i].parked ? OPEN + 1 : OPEN, &pause))
            pause.waiting[pause.waiting_count++] = firings[i].token;
}

static bool give_back(void *arg, fl_engine *engine, uint64_t token, void *handle)
{
    (void)arg, (void)engine, (void)token;
    CHECK(handle == &pause);
    return true;
}

TEST(what_waits_may_change_lanes)
{
    fl_engine_stats stats;
    memset(&pause, 0, sizeof pause);
    set_up((fl_engine_config){.dispatch = dispatch_waiting, .withdraw = give_back});
    for (int i = 0; i < 10; i++)
        CHECK_EQ(create(i == 9 ? "nine" : NULL, SECOND, "x").result, 0);
    run_for(2 * SECOND);
    CHECK_EQ(pause.waiting_count, 10);
    CHECK(fl_engine_wait(bed.engine, pause.waiting[9], OPEN + 2, &pause)); /* an open one: it goes on waiting */
    CHECK_EQ(fl_engine_close_lane(bed.engine, PAUSED, true), 0);
    for (int i = 0; i < 9; i++)
        CHECK(!fl_engine_wait(bed.engine, pause.waiting[i], PAUSED, NULL));
    run_for(SECOND);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK_EQ(stats.parked, 9);
    CHECK_EQ(stats.waiting, 1);
    CHECK_EQ(by_name(FL_OP_CANCEL, "nine").result, 0);
    CHECK(!fl_engine_wait(bed.engine, pause.waiting[9], OPEN, NULL)); /* its token is gone */
    pause.waiting_count = 0;
    CHECK_EQ(fl_engine_close_lane(bed.engine, PAUSED, false), 0);
    run_for(SECOND);
    CHECK_EQ(pause.waiting_count, 9);
    for (int i = 0; i < 9; i++) {
        CHECK(fl_engine_begin(bed.engine, pause.waiting[i], false));
        CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = pause.waiting[i]}, 1), 1);
    }
    run_for(SECOND);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK_EQ(stats.pending, 0);
    tear_down();
}

static uint64_t paused(void *arg, fl_engine *engine, const fl_durable *timer, int64_t from_us, int64_t until_us)
{
    (void)arg, (void)engine;
    CHECK_EQ(from_us, timer->due_us);
    CHECK(until_us > from_us);
    return pause.credit_us;
}

/* An attempt each second, for ten seconds, or as many more as it was paused. */
TEST(the_time_of_a_pause_does_not_count_as_age)
{
    for (uint64_t credit = 0; credit < 3; credit++) {
        fl_op op = {.kind = FL_OP_CREATE,
                    .timer = {.ns = text("ns"),
                              .due_us = START + SECOND,
                              .payload = text("x"),
                              .retry = {.multiplier_1000 = 1000,
                                        .initial_us = SECOND,
                                        .max_interval_us = SECOND,
                                        .max_age_us = 10 * SECOND}}};
        set_up((fl_engine_config){.paused = credit ? paused : NULL});
        pause.credit_us = credit * 5 * SECOND;
        bed.answer = FL_FAILED;
        bed.failures = 100;
        CHECK_EQ(run_op(op).result, 0);
        run_for(60 * SECOND);
        int64_t last_us = bed.fired[bed.fired_count - 1].at_us - START - SECOND;
        CHECK(last_us > (int64_t)(8 + credit * 5) * SECOND && last_us <= (int64_t)(10 + credit * 5) * SECOND);
        fl_engine_stats stats;
        fl_engine_get_stats(bed.engine, &stats);
        CHECK_EQ(stats.dead, 1);
        tear_down();
    }
}
