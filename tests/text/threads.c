/* SPDX-License-Identifier: MIT */
/* Zones and rules on several threads: each finds zones, compiles rules and walks them while the set is read again. */

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "test.h"
#include "text/calendar.h"
#include "tzif.h"

enum { THREADS = 4, ROUNDS = 200 };

static struct zones *set;
static struct rule *shared;
static atomic_uint walked;

static void walk(const struct rule *rule)
{
    struct occurrence next = {.at_us = utc_s("2026-01-01T00:00") * 1000000};
    for (int i = 0; i < 400; i++)
        CHECK(rule_next(rule, next.at_us, &next));
    CHECK(rule_count(rule, utc_s("2026-01-01T00:00") * 1000000, next.at_us) == 400);
    atomic_fetch_add(&walked, 1);
}

static void *work(void *unused)
{
    struct rule_text text = {.cron = {"30 2 * * *", 10}, .zone = {"Europe/Berlin", 13}};
    for (int i = 0; i < ROUNDS; i++) {
        struct rule *rule;
        struct rule_error error = {0};
        CHECK(rule_new(&text, set, &rule, &error) == 0);
        CHECK(rule_zone(rule) == rule_zone(shared));
        walk(i % 2 ? rule : shared);
        rule_free(rule);
    }
    return unused;
}

TEST(threads_share_zones_and_rules)
{
    uint8_t file[TZIF_MAX];
    char error[ZONE_ERROR_TEXT];
    struct rule_error problem = {0};
    const char *folder = folder_new();
    pthread_t threads[THREADS];
    folder_write(folder, "Europe/Berlin", file, tzif_write(2, 0, NULL, 0, "CET-1CEST,M3.5.0,M10.5.0/3", file));
    CHECK_EQ(zones_load(folder, NULL, &set, error), 0);
    struct rule_text text = {.cron = {"*/30 2 * * *", 12}, .zone = {"Europe/Berlin", 13}};
    CHECK_EQ(rule_new(&text, set, &shared, &problem), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, work, NULL), 0);
    for (int i = 0; i < 20; i++) {
        struct zones *again;
        CHECK_EQ(zones_load(folder, set, &again, error), 0);
        zones_free(again);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(walked, THREADS * ROUNDS);
    rule_free(shared);
    zones_free(set);
}
