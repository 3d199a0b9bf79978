/* SPDX-License-Identifier: MIT */
/* The embedded store passes the suite for all stores. */

#include "store/conformance.h"
#include "store/sqlite/place.h"

static int open_again(fl_store **ret)
{
    char message[300];
    return fl_store_open(folder_url(), NULL, ret, message, sizeof message);
}

static int open_new(uint32_t shards, fl_store **ret)
{
    char message[300];
    new_folder();
    return fl_store_open(folder_url(), &(fl_store_config){.shards = shards}, ret, message, sizeof message);
}

const struct store_under_test under_test = {.open = open_new, .reopen = open_again, .remove = remove_folder};
