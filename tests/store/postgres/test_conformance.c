/* SPDX-License-Identifier: MIT */
/* The suite for all stores, against PostgreSQL. Each empty store is a schema of its own. */

#include "pg.h"
#include "store/conformance.h"

static unsigned schema;

static int open_schema(uint32_t shards, fl_store **ret)
{
    char name[24], message[300];
    snprintf(name, sizeof name, "s%u", schema);
    int r = fl_store_open(pg_url(name), &(fl_store_config){.shards = shards, .timeout_us = 60000000}, ret, message,
                          sizeof message);
    if (r < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", fl_errname(r), message);
    return r;
}

static int open_new(uint32_t shards, fl_store **ret)
{
    if (schema == 0)
        pg_start(false);
    schema++;
    return open_schema(shards, ret);
}

static int open_again(fl_store **ret)
{
    return open_schema(0, ret);
}

static void drop(void)
{
    pg_sql("SET client_min_messages = error; DROP SCHEMA s%u CASCADE", schema);
}

const struct store_under_test under_test = {
    .open = open_new, .reopen = open_again, .remove = drop, .counts_deleted = true, .histories = SCALE(30, 10)};
