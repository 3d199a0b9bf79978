/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_WHEEL_RIVAL_H
#define FOLIOT_BENCH_WHEEL_RIVAL_H

/* What a timer library must do to be measured: one table of functions each, in rival_*.c.
 *
 * A `handle` is what the library wants the program to keep for each timer: the whole timer where the library links the
 * program's structures (libuv, libevent, libev, the tree), an index or an ID where it keeps the timer itself.
 *
 * A `delay` is the time from now in the unit the library takes, made by encode() before the measurement begins: a
 * division by a million, say, is not the library's work. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct timer_rival {
    size_t handle_size;
    bool leaves_handle; /* expiry does not touch the handle: see W4t */

    uint64_t (*encode)(uint64_t delay_ns); /* rounds up */
    void *(*create)(bool huge_pages);      /* ends the program where it fails, as all of these do */
    void (*destroy)(void *self);
    void (*prepare)(void *self, void *handle); /* once for each handle, which is all zeros */
    void (*schedule)(void *self, void *handle, uint64_t delay);
    void (*cancel)(void *self, void *handle);
    void (*reschedule)(void *self, void *handle, uint64_t delay); /* of a timer that is scheduled */
    void (*poll)(void *self); /* calls timer_fired() for all that is due by virtual_clock_ns() */

    /* Only for ours, else NULL: one poll that takes out at most `limit`, and the earliest deadline. */
    size_t (*poll_some)(void *self, size_t limit);
    bool (*next_deadline)(void *self, uint64_t *ret_ns);

    /* Calls work(arg) as a callback of the event loop is called, where a library is faster there; else NULL. */
    void (*inside)(void *self, void (*work)(void *arg), void *arg);
};

/* What happens when a timer fires; each measure sets its own. */
extern void (*timer_fired)(void *handle);

extern const struct timer_rival rival_nodes, rival_foliot, rival_libuv, rival_libevent, rival_libev, rival_heap,
    rival_rbtree, rival_none;
const char *libuv_version(void), *libevent_version(void), *libev_version(void);

#endif
