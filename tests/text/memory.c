/* SPDX-License-Identifier: MIT */
/* Every allocation may fail: then a call says so, and nothing is lost or left over. */

#include <stdlib.h>
#include <string.h>

#include <foliot/alloc.h>
#include <foliot/error.h>

#include "test.h"
#include "text/calendar.h"
#include "tzif.h"

static long until_failure = -1; /* -1: never */
static long live;

static bool fails(void)
{
    return until_failure >= 0 && until_failure-- == 0;
}

static void *alloc(size_t size)
{
    void *block = fails() ? NULL : malloc(size);
    live += block != NULL;
    return block;
}

static void *resize(void *block, size_t size)
{
    void *result = fails() ? NULL : realloc(block, size);
    live += !block && result;
    return result;
}

static void release(void *block)
{
    live -= block != NULL;
    free(block);
}

__attribute__((constructor)) static void begin(void)
{
    static const fl_allocator allocator = {.alloc = alloc, .resize = resize, .release = release};
    fl_set_allocator(&allocator);
}

static fl_bytes bytes(const char *text)
{
    return (fl_bytes){text, strlen(text)};
}

static int load_twice(const char *first, const char *second)
{
    char error[ZONE_ERROR_TEXT] = "";
    struct zones *old = NULL, *new = NULL;
    int r = zones_load(first, NULL, &old, error);
    if (r == 0) {
        r = zones_load(second, old, &new, error);
        zones_free(new);
    }
    zones_free(old);
    if (r < 0)
        CHECK(strcmp(error, "cannot read the time zones: out of memory; nothing was changed") == 0);
    return r;
}

TEST(loading_zones)
{
    uint8_t file[TZIF_MAX];
    const char *first = folder_new(), *second = folder_new();
    size_t size = tzif_write(2, 0, NULL, 0, "CET-1CEST,M3.5.0,M10.5.0/3", file);
    folder_write(first, "Europe/Berlin", file, size);
    folder_write(first, "Europe/Paris", file, size);
    folder_write(first, "Europe/Gone", file, size);
    folder_write(second, "Europe/Berlin", file, size);
    folder_write(second, "Europe/Paris", "TZif", 4);
    folder_write(second, "Europe/Rome", "TZif", 4);
    long failures = 0;
    for (;; failures++) {
        until_failure = failures;
        int r = load_twice(first, second);
        until_failure = -1;
        CHECK_EQ(live, 0);
        if (r == 0)
            break;
        CHECK_EQ(r, FL_NO_MEMORY);
    }
    CHECK(failures > 10);
}

TEST(a_rule)
{
    const fl_bytes except[] = {bytes("2026-12-25")};
    struct rule_text text = {.cron = bytes("0 9 * * *"), .except = except, .n_except = 1};
    struct rule *rule = NULL;
    struct rule_error error;
    until_failure = 0;
    CHECK_EQ(rule_new(&text, NULL, &rule, &error), FL_NO_MEMORY);
    CHECK(!error.field && strstr(error.text, "out of memory"));
    CHECK_EQ(live, 0);
    until_failure = -1;
    CHECK_EQ(rule_new(&text, NULL, &rule, &error), 0);
    until_failure = 0; /* from here on, nothing is allocated */
    struct occurrence next;
    CHECK(rule_next(rule, 0, &next) && rule_last(rule, next.at_us, &next) && rule_count(rule, 0, next.at_us) == 1);
    CHECK_EQ(until_failure, 0);
    rule_free(rule);
    until_failure = -1;
    CHECK_EQ(live, 0);
}
