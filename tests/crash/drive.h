/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_CRASH_DRIVE_H
#define FOLIOT_TESTS_CRASH_DRIVE_H

/* Drives a child (child.h) and keeps the ledger (ledger.h). */

#include "crash/child.h"
#include "crash/ledger.h"

struct drive {
    struct child_config config;
    struct ledger ledger;
    pid_t pid;
    int socket;
    bool loaded; /* operations are asked for */
    uint32_t ready, lost;
    int failed; /* why the store could not be opened */
    uint64_t random;
    uint64_t acknowledged; /* when it began to wait */
    uint32_t lives;
};

void drive_init(struct drive *drive, const char *url, uint64_t seed);
void drive_free(struct drive *drive);

uint64_t drive_draw(struct drive *drive, uint64_t limit);

void drive_start(struct drive *drive);
void drive_kill(struct drive *drive);                  /* SIGKILL */
void drive_stop(struct drive *drive);                  /* in an orderly way, and waits for it */
void drive_run(struct drive *drive, int milliseconds); /* listens, and asks if it is `loaded` */
void drive_await_ready(struct drive *drive);
void drive_step(struct drive *drive, int64_t by_us); /* sets the child's clock, while it runs or for the next one */

/* Asks for what the store has left unknown, until operations are answered again. */
void drive_settle_down(struct drive *drive);

/* One life of a random length, loaded, with a kill at its end. The clock is further on in the next. */
void drive_life(struct drive *drive);

/* Lets everything fire that has to, holds the dead letters against the ledger, stops, and looks whether anything that was
 * settled comes again. */
void drive_finish(struct drive *drive);

/* Kills so often as $FOLIOT_KILLS says, else `count` times. */
uint32_t drive_kills(uint32_t count);

#endif
