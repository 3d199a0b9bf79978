/* SPDX-License-Identifier: MIT */
/* The intrusive wheel. Random histories beside a model: FL_TEST_SEEDS=n runs n of them, FL_TEST_SEED=s the one of that
 * seed. And the cases that a user relies on, one by one. */

#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "wheel/allocator.h"
#include "wheel/nodes_model.h"
#include "wheel/nodes_private.h"
#include "wheel/wheel_test.h"

static void run_seed(uint64_t seed)
{
    static uint8_t bytes[4096];
    uint64_t random = seed;
    size_t size = 64 + random_next(&random) % (sizeof bytes - 64);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)random_next(&random);
    snprintf(nodes_context, sizeof nodes_context, "FL_TEST_SEED=%" PRIu64, seed);
    nodes_history(bytes, size);
}

TEST(random_histories_are_as_the_model_says)
{
    const char *one = getenv("FL_TEST_SEED"), *many = getenv("FL_TEST_SEEDS");
    uint64_t count = many ? strtoull(many, NULL, 0) : SCALE(60, 15);
    if (one)
        run_seed(strtoull(one, NULL, 0));
    else
        for (uint64_t seed = 1; seed <= count; seed++)
            run_seed(seed);
    nodes_context[0] = 0;
}

TEST(a_node_is_small_and_zero_means_not_waiting)
{
    fl_nodes *nodes;
    fl_node node = {0};
    CHECK(sizeof(fl_node) <= 32);
    CHECK_EQ(fl_nodes_new(NULL, &nodes), 0);
    CHECK(!fl_node_is_waiting(&node));
    CHECK(!fl_nodes_stop(nodes, &node));
    fl_nodes_start(nodes, &node, 5);
    CHECK(fl_node_is_waiting(&node));
    CHECK_EQ(fl_node_deadline_ns(&node), 5);
    CHECK(fl_nodes_stop(nodes, &node));
    CHECK(!fl_nodes_stop(nodes, &node));
    CHECK(!fl_node_is_waiting(&node));
    fl_nodes_free(nodes);
    fl_nodes_free(NULL);
}

TEST(deadlines_at_both_ends_of_time_are_deadlines_like_any_other)
{
    static const uint64_t deadlines[] = {UINT64_MAX, 0, UINT64_MAX - 1, 1, 500, UINT64_MAX, 0};
    struct pair p;
    pair_new(&p, 500, 7);
    for (size_t i = 0; i < 7; i++)
        pair_start(&p, &p.objects[i], deadlines[i]);
    pair_next(&p);
    CHECK_EQ(pair_poll(&p, 500, 10), 4);
    pair_next(&p);
    CHECK_EQ(pair_poll(&p, UINT64_MAX - 1, 10), 1);
    CHECK_EQ(pair_poll(&p, UINT64_MAX, 10), 2);
    pair_start(&p, &p.objects[0], UINT64_MAX);
    pair_next(&p);
    CHECK_EQ(pair_poll(&p, 0, 10), 1);
    pair_free(&p);
}

TEST(equal_deadlines_come_out_in_the_order_of_their_starts)
{
    enum { COUNT = 5000 };
    struct pair p;
    pair_new(&p, 0, COUNT);
    p.check_rarely = true;
    for (size_t i = 0; i < COUNT; i++)
        pair_start(&p, &p.objects[i], HOUR);
    for (size_t i = 0; i < COUNT; i += 3)
        pair_stop(&p, &p.objects[i]);
    for (size_t i = 0; i < COUNT; i += 5)
        pair_start(&p, &p.objects[i], HOUR);
    while (pair_poll(&p, HOUR, 100) == 100)
        pair_start(&p, &p.objects[7], HOUR);
    pair_free(&p);
}

/* A spoke whose numbers for the order of starts run out gives its nodes new ones. */
TEST(the_order_of_starts_survives_four_thousand_million_of_them)
{
    struct pair p;
    pair_new(&p, 0, 600);
    for (int is_sorted = 0; is_sorted < 2; is_sorted++) {
        for (size_t i = 0; i < 300; i++)
            pair_start(&p, &p.objects[i], HOUR + i % 3);
        if (is_sorted)
            pair_next(&p);
        struct spoke *spoke = fl__spoke_by_number(&p.nodes->rings, fl__place_spoke(p.objects[0].node.place));
        spoke->next_order = UINT32_MAX - 2;
        for (size_t i = 300; i < 310; i++)
            pair_start(&p, &p.objects[i], HOUR + i % 3);
        pair_check(&p);
        CHECK(spoke->next_order < 1000);
        CHECK_EQ(pair_poll(&p, HOUR + 5, 1000), 310);
    }
    pair_free(&p);
}

/* Makes every allocation fail from the n-th on, for every n: nothing is lost and the order is the same. */
TEST(without_memory_all_guarantees_hold)
{
    for (uint64_t fail_in = 1; fail_in < 40; fail_in++) {
        struct pair p;
        uint64_t random = fail_in;
        pair_new(&p, 0, 3000);
        p.check_rarely = true;
        memory_fail(fail_in, true);
        for (size_t i = 0; i < 3000; i++)
            pair_start(&p, &p.objects[random_below(&random, 3000)], random_below(&random, i % 2 ? HOUR : 40));
        for (size_t i = 0; i < 1000; i++)
            pair_stop(&p, &p.objects[random_below(&random, 3000)]);
        CHECK(memory.failed > 0);
        pair_next(&p);
        pair_poll(&p, 20, 100);
        pair_poll(&p, 30 * MINUTE, 100);
        if (fail_in % 2)
            memory_fail(0, false); /* there is memory again: the next poll uses it */
        for (size_t i = 0; i < 100; i++)
            pair_start(&p, &p.objects[random_below(&random, 3000)], 31 * MINUTE);
        pair_poll(&p, 40 * MINUTE, SIZE_MAX);
        CHECK_EQ(p.nodes->overflow_count > 0, p.waiting_count > 0 && fail_in % 2 == 0);
        pair_poll(&p, HOUR, SIZE_MAX);
        CHECK_EQ(p.waiting_count, 0);
        pair_free(&p);
    }
}

TEST(a_wheel_without_memory_is_not_made)
{
    fl_nodes *nodes = (fl_nodes *)&nodes;
    memory_install();
    memory_fail(1, false);
    CHECK_EQ(fl_nodes_new(NULL, &nodes), FL_NO_MEMORY);
    CHECK(nodes == (fl_nodes *)&nodes);
    memory_remove();
}

TEST(a_wheel_that_is_not_used_takes_little_memory)
{
    fl_nodes *nodes;
    CHECK_EQ(fl_nodes_new(NULL, &nodes), 0);
    CHECK(fl_nodes_bytes(nodes) < 8192);
    fl_nodes_free(nodes);
}

/* The wheel has only notes about nodes that were stopped. With AddressSanitizer, this fails if it follows a pointer to one. */
TEST(a_node_may_be_freed_as_soon_as_it_was_stopped)
{
    enum { COUNT = 3000 };
    static fl_node *all[COUNT];
    uint64_t random = 9, next_ns, now_ns = 0;
    fl_nodes *nodes;
    CHECK_EQ(fl_nodes_new(NULL, &nodes), 0);
    memset(all, 0, sizeof all);
    for (unsigned i = 0; i < SCALE(400000, 60000); i++) {
        fl_node **node = &all[random_below(&random, COUNT)], *out[8];
        if (!*node) {
            *node = calloc(1, sizeof **node);
            fl_nodes_start(nodes, *node, now_ns + random_below(&random, i % 2 ? HOUR : MILLISECOND));
        } else {
            bool waits = fl_node_is_waiting(*node);
            CHECK_EQ(fl_nodes_stop(nodes, *node), waits);
            free(*node);
            *node = NULL;
        }
        if (i % 97 == 0)
            fl_nodes_next_deadline(nodes, &next_ns);
        if (i % 1009 == 0)
            CHECK_EQ(fl_nodes_check(nodes, stdout), 0);
        if (i % 31 == 0)
            fl_nodes_poll(nodes, now_ns += 1000, out, 8);
    }
    fl_nodes_free(nodes);
    for (unsigned i = 0; i < COUNT; i++)
        free(all[i]);
}

TEST(the_start_is_no_poll)
{
    fl_nodes *nodes;
    fl_node node = {0}, *out[1];
    CHECK_EQ(fl_nodes_new(&(fl_wheel_config){.start_ns = 1000}, &nodes), 0);
    fl_nodes_start(nodes, &node, 900);
    CHECK_EQ(fl_nodes_poll(nodes, 800, out, 1), 0);
    CHECK_EQ(fl_nodes_poll(nodes, 900, out, 1), 1);
    fl_nodes_free(nodes);
}

/* ---- No pauses ---- */

struct crowd {
    fl_nodes *nodes;
    fl_node *all, *out[1024];
    size_t count;
};

static void crowd_new(struct crowd *c, size_t count)
{
    CHECK_EQ(fl_nodes_new(NULL, &c->nodes), 0);
    c->count = count;
    c->all = calloc(count, sizeof *c->all);
}

static void crowd_free(struct crowd *c)
{
    fl_nodes_free(c->nodes);
    free(c->all);
}

/* Polls until nothing is left. No poll may visit more than 16 nodes per node of its limit. */
static void drain_within_bounds(struct crowd *c, uint64_t now_ns)
{
    uint64_t last_ns = 0;
    size_t n, left = c->count;
    do {
        uint64_t before = c->nodes->rings.touched;
        n = fl_nodes_poll(c->nodes, now_ns, c->out, 1024);
        CHECK(c->nodes->rings.touched - before <= 16 * 1024);
        for (size_t i = 0; i < n; i++) {
            CHECK(c->out[i]->deadline_ns >= last_ns);
            last_ns = c->out[i]->deadline_ns;
        }
        left -= n;
    } while (n == 1024);
    CHECK_EQ(left, 0);
}

TEST(no_poll_visits_many_nodes_whatever_the_pattern)
{
    size_t count = SCALE(1000000, 60000);
    for (unsigned pattern = 0; pattern < 7; pattern++) {
        struct crowd c;
        uint64_t random = pattern, ns = 0;
        crowd_new(&c, count);
        for (size_t i = 0; i < count; i++) {
            switch (pattern) {
            case 0: /* one tick */
                ns = HOUR + random_below(&random, MILLISECOND);
                break;
            case 1: /* one moment */
                ns = HOUR;
                break;
            case 2: /* two moments side by side */
                ns = HOUR + i % 2;
                break;
            case 3: /* clusters in clusters */
                ns = HOUR + (random_below(&random, 2) ? 0 : 1ull << random_below(&random, 45));
                break;
            case 4:
                ns = random_below(&random, HOUR);
                break;
            case 5: /* backwards */
                ns = HOUR - i;
                break;
            default:
                ns = random_distance(&random, 10 * YEAR);
            }
            fl_nodes_start(c.nodes, &c.all[i], ns);
        }
        drain_within_bounds(&c, 20 * YEAR);
        crowd_free(&c);
    }
}

/* Stopping the earliest and asking for the next visits each node a few times in all, not all nodes each time. */
static int compare_deadlines(const void *a, const void *b)
{
    const fl_node *const *left = a, *const *right = b;
    return ((*left)->deadline_ns > (*right)->deadline_ns) - ((*left)->deadline_ns < (*right)->deadline_ns);
}

/* The nodes of a crowd, earliest first. */
static fl_node **sorted_nodes(struct crowd *c, size_t count)
{
    fl_node **nodes = malloc(count * sizeof *nodes);
    for (size_t i = 0; i < count; i++)
        nodes[i] = &c->all[i];
    qsort(nodes, count, sizeof(fl_node *), compare_deadlines);
    return nodes;
}

TEST(the_deadline_after_the_earliest_is_found_without_a_search)
{
    size_t count = SCALE(1000000, 60000);
    for (unsigned pattern = 0; pattern < 3; pattern++) {
        struct crowd c;
        uint64_t random = pattern, next_ns = 0, last_ns = 0;
        crowd_new(&c, count);
        for (size_t i = 0; i < count; i++)
            fl_nodes_start(c.nodes, &c.all[i],
                           pattern == 0 ? HOUR + i % 1000 : random_below(&random, pattern == 1 ? HOUR : MILLISECOND));
        fl_node **sorted = sorted_nodes(&c, count);
        c.nodes->rings.touched = 0;
        for (size_t i = 0; i < count / 2; i++) {
            uint64_t before = c.nodes->rings.touched;
            CHECK(fl_nodes_next_deadline(c.nodes, &next_ns) && next_ns >= last_ns);
            CHECK(c.nodes->rings.touched - before <= 8 * 1024);
            last_ns = next_ns;
            CHECK_EQ(sorted[i]->deadline_ns, next_ns);
            CHECK(fl_nodes_stop(c.nodes, sorted[i]));
        }
        CHECK(c.nodes->rings.touched <= 8 * count);
        free(sorted);
        crowd_free(&c);
    }
}

TEST(no_start_visits_many_nodes_however_close_together_they_are)
{
    struct crowd c;
    crowd_new(&c, 20000);
    for (size_t i = 0; i < c.count; i++) {
        uint64_t before = c.nodes->rings.touched;
        fl_nodes_start(c.nodes, &c.all[i], YEAR + i % 16);
        CHECK(c.nodes->rings.touched - before <= 3 * 2048);
    }
    CHECK(c.nodes->rings.touched <= 3 * c.count);
    drain_within_bounds(&c, YEAR + 16);
    crowd_free(&c);
}

TEST(a_thousand_timers_take_little_memory)
{
    struct crowd c;
    uint64_t random = 4;
    for (unsigned pattern = 0; pattern < 2; pattern++) {
        crowd_new(&c, 1000);
        for (size_t i = 0; i < c.count; i++)
            fl_nodes_start(c.nodes, &c.all[i], HOUR + random_below(&random, pattern ? HOUR : 1));
        CHECK(fl_nodes_bytes(c.nodes) <= (96 - sizeof(fl_node)) * c.count);
        crowd_free(&c);
    }
}

TEST(a_crowd_of_one_moment_that_was_stopped_leaves_no_memory)
{
    struct crowd c;
    crowd_new(&c, 100000);
    for (size_t i = 0; i < c.count; i++)
        fl_nodes_start(c.nodes, &c.all[i], HOUR);
    uint64_t full = fl_nodes_bytes(c.nodes);
    for (size_t i = 0; i < c.count; i++)
        CHECK(fl_nodes_stop(c.nodes, &c.all[i]));
    CHECK(fl_nodes_bytes(c.nodes) < full / 4);
    CHECK_EQ(fl_nodes_check(c.nodes, stdout), 0);
    crowd_free(&c);
}

TEST(memory_is_given_back)
{
    struct crowd c;
    uint64_t random = 3;
    crowd_new(&c, 100000);
    fl_nodes_start(c.nodes, &c.all[0], HOUR); /* the first node brings memory for sorting, which stays */
    uint64_t before = fl_nodes_bytes(c.nodes);
    for (size_t i = 0; i < c.count; i++)
        fl_nodes_start(c.nodes, &c.all[i], random_below(&random, HOUR));
    uint64_t full = fl_nodes_bytes(c.nodes);
    CHECK(full - before < 16 * c.count);
    drain_within_bounds(&c, HOUR);
    fl_nodes_start(c.nodes, &c.all[0], 2 * HOUR);
    CHECK_EQ(fl_nodes_poll(c.nodes, 2 * HOUR, c.out, 1), 1);
    CHECK(fl_nodes_bytes(c.nodes) - before < (full - before) / 8);
    crowd_free(&c);
}
