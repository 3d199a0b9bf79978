/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_CRASH_CHILD_H
#define FOLIOT_TESTS_CRASH_CHILD_H

/* The process that is killed: an engine for each shard of a store, on one loop, that does what it is told over a socket and
 * says what it does. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { CHILD_DISPATCH_BATCH = 16 };

struct child_config {
    const char *url;
    const char *owner;
    uint32_t shards;
    int64_t offset_us; /* of its wall clock */
    uint64_t seed;
    uint64_t claim_us; /* 0: the engine's default */
    bool lookahead;
    bool gentle; /* settles everything as done, at once */
};

/* `ret_socket` is the ledger's end. */
pid_t child_start(const struct child_config *config, int *ret_socket);

#endif
