/* SPDX-License-Identifier: MIT */
/* Spokes, leaves and slots: where timers live.
 *
 * A timer lives in a slot of 24 bytes: deadline, data, and a stamp of the slot's generation and the timer's sequence
 * number. Its ID says where: level, spoke and slot number, with the generation to tell it from the slot's earlier
 * timers. Cancelling therefore touches one random cache line, the slot's; the tables on the way to it are small enough
 * to be in the cache.
 *
 * A spoke numbers its slots from 0. 512 consecutive numbers are a leaf, and the leaf owns their memory:
 *
 *     spoke ──> leaves[]   ──> 512 slots, from the pool
 *               32 bytes   ──> fewer, from the heap: the first leaf grows by half until it is whole
 *               each       ──> packed: only the slots that hold a timer, each with its index, sorted by it
 *                          ──> nothing: no timer is there
 *
 * A new timer takes a free slot of the first leaf that has room, so the line it writes is one that was written a
 * moment ago (or was prefetched then): no cache miss, however many timers there are. Leaves with room are in a list;
 * one that has lost its room stays in it until it is met.
 *
 * Packing is what compaction means here. A timer's memory moves but its number does not, so IDs stay valid. A packed
 * leaf takes no new timers; when its last one goes, its numbers are free for a new life.
 *
 * Generations make an ID name one timer only. A slot's generation rises by one when its timer goes. When memory is
 * given back the generations in it are forgotten, but the leaf (and when the directory goes, the spoke) keeps a number
 * above all of them, and slots that get memory again start from there. A slot whose 22 bits are used up is retired,
 * and so is a leaf when it has given out its last generation: the spoke goes on with higher numbers. So an ID never
 * names a second timer; a spoke that has used up its 2^28 slot numbers answers FL_CAPACITY_EXCEEDED. That takes at least
 * 2^29 timers in this one spoke, and they must all have used the same few slots: spread evenly, it takes 2^50. (The sequence number has 42 bits and begins anew when the spoke is empty.
 * Should a spoke see 2^42 timers without ever being empty, two of them with the same deadline may change places.)
 *
 * Each leaf knows the earliest deadline in it, or that it does not know since that timer went: the earliest of a spoke
 * is found by asking its leaves and searching only those. */

#include <string.h>

#include "base/alloc.h"
#include "wheel/spoke.h"

enum {
    FIRST_CAPACITY = 4,
    KEPT_CAPACITY = 16, /* a leaf no larger than this keeps its memory when it is empty: timers come and go */
};

/* The lowest generation that no slot of the leaf has had. */
static uint32_t next_generation(const struct leaf *leaf)
{
    uint64_t next = leaf->generation;
    for (uint32_t i = 0; leaf->live > 0 && i < fl__leaf_size(leaf); i++) {
        uint32_t index;
        const struct slot *slot = fl__leaf_at(leaf, i, &index);
        if (slot->deadline_ns != 0 && fl__generation(slot) >= next)
            next = fl__generation(slot) + 1;
    }
    return (uint32_t)next;
}

static void release_memory(struct spoke *spoke, struct leaf *leaf, struct pool *pool)
{
    fl__whole(spoke)[leaf - spoke->leaves] = NULL;
    leaf->generation = next_generation(leaf);
    if (leaf->capacity == LEAF_SLOTS && !leaf->is_packed)
        fl__pool_give(pool, leaf->slots);
    else
        fl__release(leaf->slots);
    leaf->slots = NULL;
    leaf->is_packed = 0;
    leaf->used = leaf->free = leaf->capacity = 0;
    leaf->min_ns = UINT64_MAX;
}

static uint32_t larger_capacity(const struct spoke *spoke, const struct leaf *leaf)
{
    if (leaf->capacity == 0 && spoke->live >= LEAF_SLOTS * 8)
        return LEAF_SLOTS;
    if (leaf->capacity == 0) /* an eighth more than there are: no spoke has much memory to spare */
        return spoke->live / 8 > FIRST_CAPACITY ? spoke->live / 8 & ~3u : FIRST_CAPACITY;
    uint32_t capacity = (leaf->capacity + leaf->capacity / 2u + 3) & ~3u;
    return capacity < LEAF_SLOTS ? capacity : LEAF_SLOTS;
}

static int grow_leaf(const struct spoke *spoke, struct leaf *leaf, struct pool *pool)
{
    uint32_t capacity = larger_capacity(spoke, leaf);
    struct slot *slots;
    if (capacity < LEAF_SLOTS) {
        slots = fl__resize(leaf->slots, capacity * sizeof *slots);
        if (!slots)
            return FL_NO_MEMORY;
    } else {
        slots = fl__pool_take(pool);
        if (!slots)
            return FL_NO_MEMORY;
        if (leaf->used > 0)
            memcpy(slots, leaf->slots, leaf->used * sizeof *slots);
        memset(slots + leaf->used, 0, (LEAF_SLOTS - leaf->used) * sizeof *slots);
        fl__release(leaf->slots);
        fl__whole(spoke)[leaf - spoke->leaves] = slots;
    }
    leaf->slots = slots;
    leaf->free = (uint16_t)(leaf->used + 1);
    leaf->capacity = (uint16_t)capacity;
    return 0;
}

static int add_leaf(struct spoke *spoke)
{
    if (spoke->first_leaf + spoke->leaf_count == MAX_LEAVES)
        return FL_CAPACITY_EXCEEDED;
    if (spoke->leaf_count == spoke->leaf_room) {
        uint32_t room = spoke->leaf_room > 0 ? spoke->leaf_room * 2 : 1;
        struct leaf *leaves = fl__resize(spoke->leaves, room * (sizeof *leaves + sizeof(struct slot *)));
        if (!leaves)
            return FL_NO_MEMORY;
        spoke->leaves = leaves;
        struct slot **whole = fl__whole(spoke);
        spoke->leaf_room = room;
        memmove(fl__whole(spoke), whole, spoke->leaf_count * sizeof(struct slot *));
    }
    fl__whole(spoke)[spoke->leaf_count] = NULL;
    struct leaf *leaf = &spoke->leaves[spoke->leaf_count++];
    *leaf = (struct leaf){.min_ns = UINT64_MAX, .generation = spoke->generation > 0 ? spoke->generation : 1};
    fl__list_leaf(spoke, leaf);
    return 0;
}

int fl__spoke_make_room(struct spoke *spoke, struct pool *pool)
{
    for (;;) {
        if (spoke->with_room == 0) {
            int r = add_leaf(spoke);
            if (r < 0)
                return r;
        }
        struct leaf *leaf = &spoke->leaves[spoke->with_room - 1];
        if (leaf->free > 0)
            return 0;
        if (!leaf->is_packed && leaf->capacity < LEAF_SLOTS && leaf->generation < GENERATION_END)
            return grow_leaf(spoke, leaf, pool);
        fl__unlist_first(spoke);
    }
}

struct slot *fl__leaf_find(const struct leaf *leaf, uint32_t index)
{
    if (!leaf->is_packed)
        return index < leaf->used ? &leaf->slots[index] : NULL;
    uint32_t low = 0, high = leaf->capacity;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (leaf->packed[middle].index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low < leaf->capacity && leaf->packed[low].index == index ? &leaf->packed[low].slot : NULL;
}

void fl__leaf_emptied(struct spoke *spoke, struct leaf *leaf, struct pool *pool)
{
    if (leaf->is_packed || leaf->capacity > KEPT_CAPACITY) {
        release_memory(spoke, leaf, pool);
        fl__list_leaf(spoke, leaf);
    }
    if (spoke->live == 0) {
        spoke->sequence = 0;
        if (spoke->leaf_count > 1)
            fl__spoke_reset(spoke, pool);
    }
}

/* A slot that has no generation left is retired: it is not given back. With it go the fresh slots, at the end of the list
 * of free ones, since they have no generation to start from. */
void fl__leaf_exhausted(struct leaf *leaf)
{
    leaf->generation = GENERATION_END;
    uint32_t last = 0, next = leaf->free;
    while (next > 0 && next <= leaf->used) {
        last = next;
        next = (uint32_t)leaf->slots[last - 1].next_free;
    }
    if (last == 0)
        leaf->free = 0;
    else
        leaf->slots[last - 1].next_free = 0;
    memset(leaf->slots + leaf->used, 0, (leaf->capacity - leaf->used) * sizeof *leaf->slots);
    leaf->used = leaf->capacity;
}

void fl__leaf_pack(struct spoke *spoke, struct leaf *leaf, struct pool *pool)
{
    struct packed_slot *packed = fl__alloc(leaf->live * sizeof *packed);
    if (!packed)
        return;
    uint16_t live = 0;
    for (uint32_t i = 0; i < fl__leaf_size(leaf); i++) {
        uint32_t index;
        const struct slot *slot = fl__leaf_at(leaf, i, &index);
        if (slot->deadline_ns != 0)
            packed[live++] = (struct packed_slot){*slot, index};
    }
    uint64_t min_ns = leaf->min_ns;
    release_memory(spoke, leaf, pool);
    leaf->packed = packed;
    leaf->is_packed = 1;
    leaf->capacity = live;
    leaf->min_ns = min_ns;
}

void fl__spoke_reset(struct spoke *spoke, struct pool *pool)
{
    uint32_t generation = spoke->generation;
    for (uint32_t i = 0; i < spoke->leaf_count; i++) {
        struct leaf *leaf = &spoke->leaves[i];
        release_memory(spoke, leaf, pool);
        generation = leaf->generation > generation ? leaf->generation : generation;
    }
    if (generation == GENERATION_END) {
        spoke->first_leaf += spoke->leaf_count;
        generation = 0;
    }
    fl__release(spoke->leaves);
    spoke->leaves = NULL;
    spoke->leaf_count = spoke->leaf_room = spoke->with_room = spoke->live = 0;
    spoke->sequence = 0;
    spoke->generation = generation;
}

void fl__spoke_compact(struct spoke *spoke, struct pool *pool)
{
    for (uint32_t i = 0; i < spoke->leaf_count; i++) {
        struct leaf *leaf = &spoke->leaves[i];
        size_t bytes = leaf->capacity * (leaf->is_packed ? sizeof *leaf->packed : sizeof *leaf->slots);
        if (leaf->live == 0) {
            release_memory(spoke, leaf, pool);
            fl__list_leaf(spoke, leaf);
        } else if (leaf->live * sizeof *leaf->packed < bytes) {
            fl__leaf_pack(spoke, leaf, pool);
        }
    }
    if (spoke->live == 0)
        fl__spoke_reset(spoke, pool);
}

static uint64_t leaf_min_ns(struct leaf *leaf)
{
    if (leaf->min_ns == 0) {
        leaf->min_ns = UINT64_MAX;
        for (uint32_t i = 0; i < fl__leaf_size(leaf); i++) {
            uint32_t index;
            uint64_t deadline_ns = fl__leaf_at(leaf, i, &index)->deadline_ns;
            if (deadline_ns - 1 < leaf->min_ns - 1) /* 0, a free slot, wraps to the largest */
                leaf->min_ns = deadline_ns;
        }
    }
    return leaf->min_ns;
}

uint64_t fl__spoke_min_ns(struct spoke *spoke)
{
    uint64_t min_ns = UINT64_MAX;
    for (uint32_t i = 0; i < spoke->leaf_count; i++) {
        uint64_t leaf_ns = leaf_min_ns(&spoke->leaves[i]);
        min_ns = leaf_ns < min_ns ? leaf_ns : min_ns;
    }
    return min_ns;
}

uint64_t fl__spoke_capacity(const struct spoke *spoke)
{
    uint64_t capacity = 0;
    for (uint32_t i = 0; i < spoke->leaf_count; i++)
        capacity += spoke->leaves[i].capacity;
    return capacity;
}

uint64_t fl__spoke_bytes(const struct spoke *spoke)
{
    uint64_t bytes = spoke->leaf_room * (sizeof *spoke->leaves + sizeof(struct slot *)) +
                     spoke->refs.capacity * sizeof *spoke->refs.items;
    for (uint32_t i = 0; i < spoke->leaf_count; i++) {
        const struct leaf *leaf = &spoke->leaves[i];
        if (leaf->is_packed)
            bytes += leaf->capacity * sizeof *leaf->packed;
        else
            bytes += leaf->capacity * sizeof *leaf->slots;
    }
    return bytes;
}
