/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_STORE_SQLITE_DISK_H
#define FOLIOT_TESTS_STORE_SQLITE_DISK_H

/* A disk that fails on demand: a VFS of SQLite that stands before the real one and knows what has been synced.
 *
 *     disk_install();                     // from now on all stores are on it
 *     disk_fail(DISK_POWER, 7, 1);        // at the seventh sync from here on, and nothing works any more
 *     ... use a store, close it ...
 *     disk_power_on(DISK_LOST, seed);     // files are as they would be found again
 *
 * Nothing is really synced, so that a test takes no time.
 */

#include <stdbool.h>
#include <stdint.h>

enum disk_fault {
    DISK_NONE,
    DISK_FULL,  /* a write finds no room */
    DISK_WRITE, /* a write fails */
    DISK_SYNC,  /* a sync fails: what was written before may be there or not */
    DISK_READ,  /* a read fails */
    DISK_POWER, /* at a sync, which is not carried out: everything fails from then on */
};

/* What happens to what was written and not synced when the power fails. */
enum disk_loss {
    DISK_LOST,  /* all of it is gone */
    DISK_KEPT,  /* nothing is */
    DISK_MIXED, /* any of it may be, and of a write any of its sectors */
};

void disk_install(void);
void disk_remove(void);

/* The n-th operation of that kind from here on fails, and of those after it every so many-th until disk_heal(); 0: none. */
void disk_fail(enum disk_fault kind, uint64_t n, unsigned and_every);
void disk_heal(void);
bool disk_failed(void); /* whether anything has failed since */

/* Makes the files what they would be after the power was off. No store may be open. */
void disk_power_on(enum disk_loss loss, uint64_t seed);

#endif
