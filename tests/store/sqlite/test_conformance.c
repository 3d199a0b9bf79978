/* SPDX-License-Identifier: MIT */
/* The embedded store passes the suite for all stores; and with -DSMALL once more with everything that is done when there
 * is much of something done at once: a few rows fill a chunk, a few names a run, two runs are merged, one block at a time,
 * hashes collide, what is finished is left for later, the log is carried over all the time. */

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

#ifdef SMALL
#include "store/sqlite/base.h"

__attribute__((constructor)) static void make_small(void)
{
    fl__sqlite_tuning = (struct sqlite_tuning){.chunk_size = 150,
                                               .hash_mask = (uint64_t)3 << 62,
                                               .fresh_max = 4,
                                               .rows_max = 20,
                                               .fan = 2,
                                               .step_ns = 0,
                                               .checkpoint_frames = 4,
                                               .log_frames = 8,
                                               .log_frames_max = 64,
                                               .finish_chunks = 1};
}
#endif

const struct store_under_test under_test = {
    .open = open_new, .reopen = open_again, .remove = remove_folder, .claims_end = true, .histories = SCALE(100, 15)};
