/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_WHEEL_NODES_MODEL_H
#define FOLIOT_TESTS_WHEEL_NODES_MODEL_H

/* An intrusive wheel and its model, side by side.
 *
 * The model is an array of the waiting nodes, sorted by deadline and then by start. Every operation below is done to both,
 * and the program aborts where they differ. Memory comes from the allocator of allocator.h while a pair exists. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <foliot/nodes.h>

struct object {
    uint64_t before; /* guards: the wheel writes to the node only */
    fl_node node;
    uint64_t after;
    uint64_t deadline_ns; /* what the model knows of the node */
    bool waits;
};

struct pair {
    fl_nodes *nodes;
    uint64_t now_ns;
    struct object *objects;
    size_t objects_count;
    struct object **waiting; /* sorted */
    size_t waiting_count;
    fl_node **out; /* what the last poll returned */
    size_t out_count;
    uint64_t operations;
    bool check_rarely; /* fl_nodes_check() after one operation in a hundred only */
};

/* Printed with every deviation: the seed, for example. */
extern char nodes_context[128];

void pair_new(struct pair *p, uint64_t start_ns, size_t objects_count);
void pair_free(struct pair *p);
void pair_start(struct pair *p, struct object *object, uint64_t deadline_ns);
void pair_stop(struct pair *p, struct object *object);
size_t pair_poll(struct pair *p, uint64_t now_ns, size_t limit);
void pair_next(struct pair *p);
void pair_check(struct pair *p);

/* Runs the history that `bytes` spell, whatever they are. Returns 0. */
int nodes_history(const uint8_t *bytes, size_t size);

#endif
