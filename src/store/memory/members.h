/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_MEMORY_MEMBERS_H
#define FOLIOT_STORE_MEMORY_MEMBERS_H

/* The list of servers of the memory store. The caller holds its lock. */

#include "store/store.h"

struct fl__member {
    struct fl__member *next;
    uint64_t incarnation;
    int64_t claim_until_us;
    char address[FL_STORE_NAME_MAX + 1], about[FL_STORE_NAME_MAX + 1];
};

struct fl__members {
    struct fl__member *first; /* by address */
    size_t count;
    char secret[FL_STORE_NAME_MAX + 1];
};

/* Writes down what a FL_STORE_MEET says, at `now_us`, of a claim until `until_us`. Returns 0, or FL_NO_MEMORY: then nothing
 * was. */
int fl__members_note(struct fl__members *members, const fl_store_request *request, int64_t now_us, int64_t until_us);

void fl__members_clear(struct fl__members *members); /* frees everything in it */

#endif
