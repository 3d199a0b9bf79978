/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_NODES_H
#define FOLIOT_NODES_H

/* An intrusive timing wheel: the program puts an fl_node into its own object, and the wheel orders the nodes by time.
 *
 *     struct request {
 *         fl_node timeout;        // all zero: not waiting
 *         int socket;
 *     };
 *
 *     fl_nodes *nodes;
 *     fl_node *due[64];
 *     struct request request = {.socket = 7};
 *
 *     if (fl_nodes_new(NULL, &nodes) < 0)
 *         abort();
 *     fl_nodes_start(nodes, &request.timeout, 20 * 1000000ull);        // 20 ms after time zero
 *     fl_nodes_start(nodes, &request.timeout, 30 * 1000000ull);        // no: 30 ms
 *     size_t n = fl_nodes_poll(nodes, 35 * 1000000ull, due, 64);       // it is 35 ms now: n is 1
 *     for (size_t i = 0; i < n; i++) {
 *         struct request *late = (struct request *)((char *)due[i] - offsetof(struct request, timeout));
 *         close(late->socket);
 *     }
 *     fl_nodes_free(nodes);
 *
 * The wheel is a data structure. It has no clock, no thread and no callback. Time is a count of nanoseconds since a moment
 * that the program chooses; CLOCK_MONOTONIC is the usual choice. Programs that prefer IDs to nodes use foliot/wheel.h.
 *
 * The wheel guarantees:
 *
 *   - A node never comes out before its deadline. A poll at or after the deadline brings it out: timers are exact.
 *   - Nothing is lost, however long the program does not poll. A node comes out at most once per start.
 *   - A poll returns nodes in order of deadline, and nodes with equal deadlines in the order in which they were started.
 *   - No operation fails for lack of memory. Without memory the operations take longer.
 *   - No pauses. A poll with a limit of 1,024 or more visits at most 16 nodes for each node of its limit, whatever the
 *     pattern of deadlines and whether or not the program has polled before. Starting a node visits at most 2,048 others,
 *     each at most three times, and on average less than three.
 *
 * Threads: a wheel and its nodes belong to one thread at a time.
 *
 * Ownership: the program owns the nodes. While a node waits, the wheel keeps its address: the program must not move, free or
 * overwrite it. Only one wheel may have a node at a time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <foliot/error.h>
#include <foliot/wheel.h> /* fl_wheel_config */

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A timer inside the program's object: 16 bytes. All zero means "not waiting", so objects from calloc() need no
 * preparation. The members belong to the wheel. */
typedef struct fl_node {
    uint64_t deadline_ns;
    uint64_t place;
} fl_node;

typedef struct fl_nodes fl_nodes;

/* Makes a wheel without nodes. `config` may be NULL. The only member with a meaning here is `start_ns`: the wheel is fastest
 * for deadlines that are not far from the last poll, and before the first poll from start_ns. All other members are
 * ignored: tick_ns, spokes, worker_id, coarse, compaction, huge_pages.
 * Returns 0 or FL_NO_MEMORY. */
int fl_nodes_new(const fl_wheel_config *config, fl_nodes **ret);

/* Frees the wheel. Nodes that still wait are forgotten and not written to: the program sets such a node to all zero before
 * it uses it with another wheel. NULL is allowed. */
void fl_nodes_free(fl_nodes *nodes);

/* Starts a node, or moves one that waits: then it counts as started now. Accepts every deadline. A deadline that has passed,
 * such as 0, is due at the next poll. UINT64_MAX is a deadline like any other. Cannot fail. */
void fl_nodes_start(fl_nodes *nodes, fl_node *node, uint64_t deadline_ns);

/* Stops a node. Returns false if it was not waiting.
 *
 * A node that poll has put into `out` no longer waits, also while the program still works through that batch: stopping it
 * returns false, and the program itself has to remember that it does not want it any more. */
bool fl_nodes_stop(fl_nodes *nodes, fl_node *node);

/* Moves the wheel to `now_ns` and takes out at most `limit` nodes that are due. The others stay and come first at the next
 * poll: poll again with the same `now_ns` until fewer than `limit` come out. A `now_ns` before that of an earlier poll
 * counts as that one. `out` may be NULL if `limit` is 0. Returns the number of nodes in `out`. They no longer wait, and may
 * be started again or freed at once. */
size_t fl_nodes_poll(fl_nodes *nodes, uint64_t now_ns, fl_node **out, size_t limit);

/* The exact deadline of the earliest node; false if no node waits. */
bool fl_nodes_next_deadline(fl_nodes *nodes, uint64_t *ret_ns);

/* When to poll next: the program may sleep until then. False if no node waits. Never later than the earliest deadline. It
 * may be earlier, and then the poll finds nothing due; asked again, the answer is later. It needs less work than the exact
 * deadline. */
bool fl_nodes_next_poll(fl_nodes *nodes, uint64_t *ret_ns);

/* The number of nodes that wait. */
uint64_t fl_nodes_count(const fl_nodes *nodes);

/* Whether the node waits in a wheel. */
bool fl_node_is_waiting(const fl_node *node);

/* The deadline of the last start, also after the node has come out or was stopped. 0 if it was never started. */
uint64_t fl_node_deadline_ns(const fl_node *node);

/* The memory that the wheel has from the allocator, in bytes. The nodes are not part of it. */
uint64_t fl_nodes_bytes(const fl_nodes *nodes);

/* Checks every invariant of the wheel, in time proportional to its size. Returns 0, or FL_INVALID_ARGUMENT after it has
 * written what is broken to `explain` (may be NULL). For tests and debugging. */
int fl_nodes_check(const fl_nodes *nodes, FILE *explain);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
