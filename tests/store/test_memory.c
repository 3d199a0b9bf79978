/* SPDX-License-Identifier: MIT */
/* The memory store: the suite for all stores, and what only it has. */

#include "store/conformance.h"

static int open_memory(uint32_t shards, fl_store **ret)
{
    char message[100];
    return fl_store_open("memory:", &(fl_store_config){.shards = shards}, ret, message, sizeof message);
}

const struct store_under_test under_test = {.open = open_memory, .counts_deleted = true};
