/* SPDX-License-Identifier: MIT */
/* What an ID of the wheel names, and for how long. */

#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "wheel/model.h"
#include "wheel/wheel.h"
#include "wheel/wheel_test.h"

static fl_wheel *new_wheel(const fl_wheel_config *config)
{
    fl_wheel *w = NULL;
    CHECK_EQ(fl_wheel_new(config, &w), 0);
    return w;
}

/* A few timers live all along while their neighbours, in the same spokes, come and go a thousand times and compaction
 * takes the memory between them away. */
TEST(id_is_valid_exactly_while_its_timer_lives)
{
    enum { RESIDENTS = 60, GUESTS = 600 };
    struct twin t;
    fl_timer_id residents[RESIDENTS], guests[GUESTS];
    uint64_t random = 1;
    twin_new(&t, NULL);
    t.lazy_checks = true;
    for (int i = 0; i < RESIDENTS; i++)
        twin_schedule(&t, (i % 3 == 0 ? 100 : i % 3 == 1 ? 100 * 1000 : 10000 * 1000) * MILLISECOND, &residents[i]);
    for (int round = 0; round < SCALE(200, 40); round++) {
        for (int i = 0; i < GUESTS; i++)
            twin_schedule(&t, twin_timer(&t, random_below(&random, t.count))->deadline_ns, &guests[i]);
        for (int i = 0; i < GUESTS; i++)
            CHECK_EQ(twin_cancel(&t, guests[i]), 0);
        if (round % 3 == 0)
            twin_compact(&t);
        for (int i = 0; i < GUESTS; i++)
            CHECK_EQ(twin_cancel(&t, guests[i]), FL_TIMER_NOT_FOUND);
    }
    for (int i = 0; i < RESIDENTS; i += 2)
        CHECK_EQ(twin_cancel(&t, residents[i]), 0);
    CHECK_EQ(twin_poll(&t, HOUR * 10, SIZE_MAX), RESIDENTS / 2);
    for (int i = 0; i < RESIDENTS; i++)
        CHECK_EQ(twin_cancel(&t, residents[i]), FL_TIMER_NOT_FOUND);
    twin_free(&t);
}

/* Waiting does not change an ID: at any moment until it fires, the timer answers to it. */
TEST(id_holds_at_every_moment_of_a_timers_life)
{
    static const uint64_t lives_ns[] = {SECOND / 2, 10 * SECOND, MINUTE, 30 * MINUTE, 12 * HOUR};
    for (size_t i = 0; i < sizeof(lives_ns) / sizeof(*lives_ns); i++)
        for (uint64_t left_ns = 1; left_ns < lives_ns[i]; left_ns *= 2) {
            struct twin t;
            fl_timer_id id, other;
            twin_new(&t, NULL);
            twin_schedule(&t, lives_ns[i], &id);
            twin_schedule(&t, lives_ns[i], &other);
            twin_poll(&t, lives_ns[i] - left_ns, SIZE_MAX);
            CHECK_EQ(twin_cancel(&t, id), 0);
            CHECK_EQ(twin_reschedule(&t, other, lives_ns[i] + left_ns, &id), 0);
            CHECK_EQ(twin_cancel(&t, other), FL_TIMER_NOT_FOUND);
            twin_poll(&t, lives_ns[i], SIZE_MAX);
            CHECK_EQ(twin_cancel(&t, id), 0);
            twin_free(&t);
        }
}

TEST(id_of_a_fired_timer_is_not_found)
{
    struct twin t;
    twin_new(&t, NULL);
    for (int round = 0; round < 50; round++) {
        fl_timer_id ids[30];
        for (uint64_t i = 0; i < 30; i++)
            twin_schedule(&t, t.now_ns + 1 + (i % 3 == 0 ? i : i % 3 == 1 ? i * SECOND : i * HOUR / 2), &ids[i]);
        CHECK_EQ(twin_poll(&t, t.now_ns + DAY, SIZE_MAX), 30);
        for (int i = 0; i < 30; i++) {
            CHECK_EQ(twin_cancel(&t, ids[i]), FL_TIMER_NOT_FOUND);
            CHECK_EQ(twin_reschedule(&t, ids[i], t.now_ns + 1, NULL), FL_TIMER_NOT_FOUND);
        }
    }
    twin_free(&t);
}

/* One slot, used again and again; the dead IDs looked at are from all its times. */
static void reuse(uint64_t times, uint64_t distance_ns, bool fire, bool compact)
{
    enum { OLD = 64 };
    fl_timer_id old[OLD], id = 0;
    fl_wheel *w = new_wheel(NULL);
    fl_expired out;
    for (uint64_t i = 0; i < times; i++) {
        CHECK_EQ(fl_wheel_schedule(w, fl_wheel_now_ns(w) + distance_ns, NULL, &id), 0);
        CHECK(i == 0 || id != old[i < OLD ? 0 : i % OLD]);
        if (i > 0)
            CHECK_EQ(fl_wheel_cancel(w, old[i < OLD ? i - 1 : i % OLD], NULL), FL_TIMER_NOT_FOUND);
        if (fire)
            CHECK_EQ(fl_wheel_poll(w, fl_wheel_now_ns(w) + distance_ns, &out, 1), 1);
        else
            CHECK_EQ(fl_wheel_cancel(w, id, NULL), 0);
        CHECK_EQ(fl_wheel_cancel(w, id, NULL), FL_TIMER_NOT_FOUND);
        if (compact && i % 1024 == 0)
            fl_wheel_compact(w);
        if (i < OLD)
            old[i] = id;
    }
    CHECK_EQ(fl_wheel_count(w), 0);
    CHECK_EQ(fl_wheel_check(w, stdout), 0);
    fl_wheel_free(w);
}

TEST(id_of_a_dead_timer_is_not_found_after_a_million_reuses)
{
    reuse(SCALE(1000000, 100000), TICK0, false, false);
    reuse(SCALE(1000000, 100000), TICK0 * 1024, true, false); /* a whole turn of L0: always the same spoke */
    reuse(SCALE(1000000, 100000), TICK1 * 1024, true, true);
    reuse(SCALE(1000000, 100000), 10 * HOUR, false, true);
}

/* A chunk of cells whose generations are used up is not used again: another takes its place. */
TEST(ids_do_not_come_again_when_generations_are_used_up)
{
    enum { TURNS = 3 * LIVES * CHUNK_CELLS };
    for (int way = 0; way < 3; way++) {
        struct twin t;
        fl_timer_id id;
        twin_new(&t, NULL);
        t.lazy_checks = true;
        t.wheel->cells[0].generation = GENERATION_END - LIVES;
        for (int i = 0; i < TURNS; i++) {
            CHECK_EQ(twin_schedule(&t, t.now_ns + 10 * TICK0, &id), 0);
            if (way == 0)
                twin_cancel(&t, id);
            else if (way == 1)
                twin_poll(&t, t.now_ns + 10 * TICK0, SIZE_MAX);
            else
                twin_clear(&t);
        }
        CHECK_EQ(t.wheel->cells[0].chunks[0].state, CHUNK_RETIRED);
        CHECK(way == 2 || ID_SLOT(id) > CHUNK_CELLS);
        twin_free(&t);
    }
}

TEST(a_level_that_has_used_up_its_ids_says_so)
{
    fl_wheel *w = new_wheel(NULL);
    fl_timer_id id, none = 7;
    CHECK_EQ(fl_wheel_schedule(w, HOUR, NULL, &id), 0);
    struct cells *level = &w->cells[0];
    level->count = UNLISTED;
    CHECK_EQ(fl_wheel_schedule(w, SECOND, NULL, &none), FL_CAPACITY_EXCEEDED);
    CHECK_EQ(fl_wheel_reschedule(w, id, SECOND, &none), FL_CAPACITY_EXCEEDED);
    CHECK_EQ(none, 7);
    level->count = 0;
    CHECK_EQ(fl_wheel_schedule(w, SECOND, NULL, &none), 0);
    CHECK_EQ(fl_wheel_reschedule(w, id, 2 * HOUR, &id), 0);
    CHECK_EQ(fl_wheel_check(w, stdout), 0);
    fl_wheel_free(w);
}

/* Old timers among thousands of chunks that were filled and became empty later. */
TEST(id_of_an_old_timer_is_found_among_many_younger_ones)
{
    enum { OLD = 40, CHUNKS_BETWEEN = 64 };
    struct twin t;
    fl_timer_id old[OLD], id;
    twin_new(&t, NULL);
    t.lazy_checks = true;
    for (int i = 0; i < OLD; i++) {
        CHECK_EQ(twin_schedule(&t, HOUR + (uint64_t)i, &old[i]), 0);
        for (int j = 0; j < CHUNKS_BETWEEN * CHUNK_CELLS; j++) {
            CHECK_EQ(fl_wheel_schedule(t.wheel, HOUR, NULL, &id), 0);
            CHECK_EQ(fl_wheel_cancel(t.wheel, id, NULL), 0);
        }
    }
    twin_check(&t);
    for (int i = 0; i < OLD; i += 2) {
        CHECK_EQ(twin_cancel(&t, old[i]), 0);
        CHECK_EQ(twin_cancel(&t, old[i]), FL_TIMER_NOT_FOUND);
    }
    twin_check(&t);
    twin_poll(&t, HOUR + OLD, 1000);
    twin_free(&t);
}

/* Memory that was given back and taken again does not bring dead IDs back to life. */
TEST(id_of_a_dead_timer_is_not_found_after_its_memory_came_back)
{
    enum { COUNT = 5000 };
    struct twin t;
    static fl_timer_id ids[COUNT];
    twin_new(&t, NULL);
    t.lazy_checks = true;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < COUNT; i++)
            twin_schedule(&t, t.now_ns + SECOND / 2 + (uint64_t)i % 7, &ids[i]);
        if (round % 3 == 0)
            twin_clear(&t);
        else if (round % 3 == 1)
            twin_poll(&t, t.now_ns + SECOND, SIZE_MAX);
        else
            for (int i = 0; i < COUNT; i++)
                twin_cancel(&t, ids[i]);
        twin_compact(&t);
        for (size_t i = 0; i < t.dead_count; i += 1 + (size_t)round)
            CHECK_EQ(twin_cancel(&t, t.dead[i]), FL_TIMER_NOT_FOUND);
    }
    for (int i = 0; i < COUNT; i++)
        twin_schedule(&t, t.now_ns + SECOND / 2 + (uint64_t)i % 7, &ids[i]);
    for (size_t i = 0; i < t.dead_count; i++)
        CHECK_EQ(twin_cancel(&t, t.dead[i]), FL_TIMER_NOT_FOUND);
    CHECK_EQ(t.count, COUNT);
    twin_free(&t);
}

/* ---- Garbage. */

static void fill_some(struct twin *t, unsigned count, uint64_t random)
{
    for (unsigned i = 0; i < count; i++)
        twin_schedule(t, 1 + random_distance(&random, fl_wheel_max_duration_ns(t->wheel) - 1), NULL);
}

static void try_garbage(struct twin *t, fl_timer_id id)
{
    CHECK(twin_cancel(t, id) < 0);
    CHECK(twin_reschedule(t, id, t->now_ns + 1, NULL) < 0);
}

TEST(garbage_ids_are_errors)
{
    for (uint32_t spokes = 1; spokes <= 4096; spokes *= 16) {
        struct twin t;
        uint64_t random = spokes;
        twin_new(&t, &(fl_wheel_config){.spokes = spokes});
        t.lazy_checks = true;
        for (int round = 0; round < 2; round++) {
            try_garbage(&t, 0);
            try_garbage(&t, UINT64_MAX);
            for (unsigned bit = 0; bit < 64; bit++)
                if (t.count == 0)
                    try_garbage(&t, 1ull << bit);
            for (int i = 0; i < 2000; i++) {
                fl_timer_id id = random_next(&random);
                try_garbage(&t, id | 3ull << 62);
                if (t.count == 0)
                    try_garbage(&t, id);
                try_garbage(&t, ID(random_below(&random, 3), 0x2aaaaa, random_below(&random, 4096), id & 0xff));
                try_garbage(&t, id | 0x8000000);
            }
            fill_some(&t, 500, random);
        }
        CHECK_EQ(twin_cancel(&t, 0), FL_INVALID_TIMER_ID);
        CHECK_EQ(twin_cancel(&t, 3ull << 62), FL_INVALID_TIMER_ID);
        CHECK_EQ(twin_cancel(&t, UINT64_MAX), FL_INVALID_TIMER_ID);
        twin_free(&t);
    }
}

/* Each field of a living ID changed to every other value it can have, or as many as are worth it. */
TEST(ids_of_foreign_levels_spokes_slots_and_generations_are_errors)
{
    struct twin t;
    fl_timer_id ids[3];
    twin_new(&t, &(fl_wheel_config){.spokes = 64});
    t.lazy_checks = true;
    twin_schedule(&t, 10 * MILLISECOND, &ids[0]);
    twin_schedule(&t, 20 * SECOND, &ids[1]); /* another spoke than the first: no ID becomes another by its level */
    twin_schedule(&t, HOUR, &ids[2]);
    for (int k = 0; k < 3; k++) {
        unsigned level = ID_LEVEL(ids[k]), generation = ID_GENERATION(ids[k]), spoke = ID_SPOKE(ids[k]);
        for (unsigned i = 1; i < 4; i++)
            try_garbage(&t, ID(level ^ i, generation, spoke, ID_SLOT(ids[k])));
        for (unsigned i = 1; i < 4096; i++) {
            try_garbage(&t, ID(level, generation ^ i, spoke, ID_SLOT(ids[k])));
            try_garbage(&t, ID(level, generation ^ i << 10, spoke, ID_SLOT(ids[k])));
            try_garbage(&t, ID(level, generation, spoke ^ i, ID_SLOT(ids[k])));
            try_garbage(&t, ID(level, generation, spoke, ID_SLOT(ids[k]) ^ i));
            try_garbage(&t, ID(level, generation, spoke, ID_SLOT(ids[k]) ^ i << 16));
        }
        CHECK_EQ(twin_cancel(&t, ID(level, generation, 64, ID_SLOT(ids[k]))), FL_INVALID_TIMER_ID);
    }
    for (int k = 0; k < 3; k++)
        CHECK_EQ(twin_cancel(&t, ids[k]), 0);
    twin_free(&t);
}

/* IDs of a wheel with more spokes, most of which this one does not have. */
TEST(ids_of_another_wheel_do_no_harm)
{
    enum { COUNT = 3000 };
    static fl_timer_id foreign[COUNT];
    fl_wheel *other = new_wheel(&(fl_wheel_config){.spokes = 4096});
    uint64_t random = 3;
    struct twin t;
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ(fl_wheel_schedule(other, 1 + random_distance(&random, REACH), NULL, &foreign[i]), 0);
    fl_wheel_free(other);
    twin_new(&t, &(fl_wheel_config){.spokes = 16});
    t.lazy_checks = true;
    fill_some(&t, COUNT, random);
    for (int i = 0; i < COUNT; i++) /* some may be IDs of this wheel too: the model knows which */
        twin_cancel(&t, foreign[i]);
    twin_free(&t);
}

/* ---- Rescheduling. */

TEST(reschedule_ends_the_old_id_and_keeps_the_data)
{
    static const uint64_t deadlines_ns[] = {TICK0, 5 * SECOND, HOUR, 10 * HOUR, MINUTE, MILLISECOND, REACH, 1};
    struct twin t;
    fl_timer_id id, next;
    twin_new(&t, NULL);
    twin_schedule(&t, SECOND, &id);
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ(twin_reschedule(&t, id, deadlines_ns[(unsigned)i % 8], &next), 0);
        CHECK(next != id);
        CHECK_EQ(twin_cancel(&t, id), FL_TIMER_NOT_FOUND);
        CHECK_EQ(twin_reschedule(&t, id, SECOND, NULL), FL_TIMER_NOT_FOUND);
        id = next;
    }
    CHECK_EQ(twin_poll(&t, DAY, SIZE_MAX), 1);
    CHECK(t.out[0].data == (void *)1 && t.out[0].id == id);
    twin_free(&t);
}

TEST(a_failed_reschedule_leaves_the_timer_as_it_was)
{
    struct twin t;
    fl_timer_id id;
    twin_new(&t, &(fl_wheel_config){.start_ns = HOUR});
    twin_schedule(&t, 2 * HOUR, &id);
    CHECK_EQ(twin_reschedule(&t, id, 0, NULL), FL_INVALID_DEADLINE);
    CHECK_EQ(twin_reschedule(&t, id, HOUR - 1, NULL), FL_INVALID_DEADLINE);
    CHECK_EQ(twin_reschedule(&t, id, HOUR + REACH + 1, NULL), FL_DEADLINE_TOO_FAR);
    CHECK_EQ(twin_reschedule(&t, id, UINT64_MAX, NULL), FL_OVERFLOW);
    CHECK_EQ(twin_poll(&t, 2 * HOUR - 1, SIZE_MAX), 0);
    CHECK_EQ(twin_reschedule(&t, id, HOUR, NULL), FL_INVALID_DEADLINE);
    CHECK_EQ(twin_poll(&t, 2 * HOUR, SIZE_MAX), 1);
    CHECK(t.out[0].id == id);
    twin_free(&t);
}

TEST(reschedule_by_best_fit_accepts_past_and_far_targets)
{
    struct twin t;
    fl_timer_id id, next;
    twin_new(&t, NULL);
    twin_poll(&t, HOUR, SIZE_MAX);
    twin_schedule(&t, 2 * HOUR, &id);
    CHECK_EQ(twin_reschedule_best_fit(&t, id, 1000 * DAY, &next), 0);
    CHECK_EQ(twin_cancel(&t, id), FL_TIMER_NOT_FOUND);
    CHECK_EQ(twin_timer(&t, 0)->deadline_ns, HOUR + REACH);
    CHECK_EQ(twin_reschedule_best_fit(&t, next, 1, &id), 0);
    CHECK_EQ(twin_reschedule_best_fit(&t, id, 0, NULL), FL_INVALID_DEADLINE);
    CHECK_EQ(twin_reschedule_best_fit(&t, id, UINT64_MAX, NULL), FL_OVERFLOW);
    CHECK_EQ(twin_reschedule_best_fit(&t, next, HOUR, NULL), FL_TIMER_NOT_FOUND);
    CHECK_EQ(twin_poll(&t, HOUR, SIZE_MAX), 1);
    twin_free(&t);
}

/* ---- Looking at timers. */

TEST(data_can_be_replaced_at_every_moment_of_a_timers_life)
{
    struct twin t;
    fl_timer_id id;
    twin_new(&t, NULL);
    CHECK_EQ(twin_schedule(&t, 3 * HOUR, &id), 0);
    for (uint64_t now_ns = 0; now_ns < 3 * HOUR; now_ns += MINUTE) {
        CHECK_EQ(twin_poll(&t, now_ns, SIZE_MAX), 0);
        CHECK_EQ(twin_set_data(&t, id), 0);
    }
    CHECK_EQ(twin_poll(&t, 3 * HOUR - 1, SIZE_MAX), 0);
    CHECK_EQ(twin_set_data(&t, id), 0);
    CHECK_EQ(twin_poll(&t, 3 * HOUR, SIZE_MAX), 1);
    CHECK_EQ(twin_set_data(&t, id), FL_TIMER_NOT_FOUND);
    CHECK_EQ(twin_set_data(&t, 0), FL_INVALID_TIMER_ID);
    twin_free(&t);
}

TEST(visiting_finds_every_timer_once_also_while_they_are_cancelled)
{
    enum { COUNT = 5000 };
    struct twin t;
    uint64_t random = 1;
    fl_expired timer = {0};
    size_t visited = 0;
    twin_new(&t, NULL);
    t.lazy_checks = true;
    twin_visit(&t);
    for (int i = 0; i < COUNT; i++)
        twin_schedule(&t, i % 2 ? 5 * HOUR : 1 + random_below(&random, 10 * HOUR), NULL);
    for (size_t rank = t.count; rank-- > 0;)
        if (rank % 3 == 0)
            twin_cancel(&t, twin_timer(&t, rank)->id);
    twin_visit(&t);
    size_t count = t.count;
    for (; fl_wheel_next_timer(t.wheel, &timer); visited++)
        CHECK_EQ(twin_cancel(&t, timer.id), 0);
    CHECK_EQ(visited, count);
    CHECK_EQ(t.count, 0);
    twin_free(&t);
}
