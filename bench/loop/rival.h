/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_LOOP_RIVAL_H
#define FOLIOT_BENCH_LOOP_RIVAL_H

/* What an event loop must do to be measured: one table of functions each.
 *
 * Starting, stopping and firing many timers is what the benchmark of the wheel asks of a library too, so `timers` is
 * the table from there; ours is in rival_foliot.c. The rest is about a loop that lives: it sleeps, it is late, other
 * threads send it messages. Times are whole milliseconds, because libuv knows no others. */

#include <stdbool.h>
#include <stdint.h>

#include "../wheel/rival.h"

struct loop_rival {
    const struct timer_rival *timers;

    void *(*open)(void); /* ends the program where it fails, as all of these do */
    void (*close)(void *self);

    /* Makes the loop's idea of the time the present. */
    void (*refresh)(void *self);

    /* Calls loop_fired(number) once, or every `period_ms` until the loop is closed. There are at most LOOP_TIMERS. */
    void (*once)(void *self, unsigned number, uint64_t delay_ms);
    void (*every)(void *self, uint64_t period_ms);

    /* Runs until leave() is called from inside of it. It must not end because there is nothing to do. */
    void (*run)(void *self);
    void (*leave)(void *self);

    /* From another thread: loop_received(message) is called on the loop's. No message is lost, and one thread's keep their
     * order. */
    void (*post)(void *self, void *message);
};

enum { LOOP_TIMERS = 1000 };

extern void (*loop_fired)(unsigned number);
extern void (*loop_received)(void *message);

extern const struct loop_rival loop_foliot, loop_libuv, loop_libevent, loop_libev;

/* What a program builds for itself where a library only has a call that wakes the loop: a list under a lock, of messages
 * that are allocated, taken all at once. */
struct mailbox;
struct mailbox *mailbox_new(void);
void mailbox_free(struct mailbox *box);
bool mailbox_put(struct mailbox *box, void *message); /* true if it was empty, and the loop has to be woken */
void mailbox_receive(struct mailbox *box);            /* calls loop_received() for each */

#endif
