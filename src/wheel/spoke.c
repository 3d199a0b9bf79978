/* SPDX-License-Identifier: MIT */
/* Spokes, leaves and slots: where timers live.
 *
 * A timer lives in a slot of 16 bytes: deadline and data. 256 slots are a leaf, and the leaf has a header of one cache
 * line, with a bit for each slot whose timer has gone. New timers are appended to the newest leaf of their spoke, the
 * tail, and a slot is never given to a second timer. Three things follow:
 *
 *   - To cancel a timer is to set its bit. The slot is not touched, so that cancelling one of ten million timers in random
 *     order fetches nothing but headers, a quarter of a byte for each timer, which mostly are in the cache.
 *   - The place of a timer is its rank: of two timers of a spoke, the one that was scheduled first has the lower ID.
 *   - Scheduling writes where it wrote last: the line is in the cache, and there is no list of free slots to keep.
 *
 *     spoke ──> leaves, in a table ───> header ──> 256 slots: a block of the pool
 *       └────────── tail ───────────────────^  ──> fewer, from the heap: a spoke's first leaves grow
 *                                              ──> packed: only the slots that hold a timer
 *
 * IDs. Each leaf that a spoke makes has a new serial number of 42 bits, and an ID is the level, the spoke, the leaf's
 * serial number and the index in the leaf. What an ID of a leaf that is gone leads to in the table is another leaf, with
 * another serial number, or none. When three quarters of the numbers have been given out, they start over as soon as the
 * spoke is empty: that keeps the ranks, and no reference (index.c) is left from so long ago. A spoke that is not empty
 * until the last number answers FL_CAPACITY_EXCEEDED; but a turn of the wheel would have to last for 2^40 leaves. So an ID
 * may name a second timer after 3 * 2^40 leaves. That is 2^49 timers and half as many again; 2^43 if each is gone before the
 * next comes; 2^41 if the wheel is cleared or compacted after each, which takes the tail away.
 *
 * Packing is what compaction means here. The slots that hold a timer move together, and the leaf remembers which they
 * were: a timer's place is the number of those before it. Its index stays as it is, and so does its ID. A leaf that has no
 * timer left is freed.
 *
 * Whether a leaf is sparse or empty has to be looked at only when enough of its timers have gone. `patience` counts down
 * to that, and is never more than the number of its timers; but a small tail is left in peace until it is full.
 *
 * Each leaf knows its earliest deadline, or a lower bound since that timer went: the earliest of a spoke is found by
 * asking its leaves and searching only those. */

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "wheel/spoke.h"

enum {
    FIRST_CAPACITY = 4,
    YOUNG = 16, /* a larger one is left in peace until so many of its timers have gone */
    FIRST_TABLE = 4,
};

struct leaf fl__no_leaf;

/* Without the instruction for it, which not every processor has, the compiler would call a function. */
static uint32_t count_bits(uint64_t word)
{
    word -= word >> 1 & 0x5555555555555555;
    word = (word & 0x3333333333333333) + (word >> 2 & 0x3333333333333333);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
    return (uint32_t)(word * 0x0101010101010101 >> 56);
}

/* ---- The table of leaves --------------------------------------------------------------------------------------- */

/* A table has two halves. In the first, a leaf has a place of its own, by the low bits of its serial number: leaves that
 * were made one after the other never meet there. A leaf that is still there when the numbers have come round makes way
 * for the younger one and goes to the second half, the crowd, which is searched by a hash that scatters: with serial
 * numbers for hashes, whoever is out of place would push all its successors out of theirs. */
static uint32_t own_place(fl_timer_id leaf_id, uint32_t mask)
{
    return (uint32_t)(leaf_id >> LEAF_BITS) & mask;
}

static uint32_t crowd_place(fl_timer_id leaf_id, uint32_t mask)
{
    return (uint32_t)(leaf_id * 0x9e3779b97f4a7c15 >> 32) & mask;
}

static _Noreturn void fail_full_crowd(void)
{
    fputs("foliot: the leaf table of a timing wheel has no empty place; memory is damaged, or two versions of "
          "libfoliot share "
          "one wheel\n",
          stderr);
    abort();
}

/* The place of the leaf, or the first empty place behind the leaf's hash. At least a quarter of the crowd is empty, so the
 * search ends before it has come round. An endless search would hang the thread: abort in release builds too. */
static uint32_t find_in_crowd(struct leaf *const *crowd, uint32_t mask, fl_timer_id leaf_id)
{
    uint32_t at = crowd_place(leaf_id, mask);
    for (uint32_t steps = 0; fl__is_leaf(crowd[at]) && crowd[at]->id != leaf_id; steps++) {
        if (steps == mask)
            fail_full_crowd();
        at = (at + 1) & mask;
    }
    return at;
}

struct leaf *fl__spoke_search(const struct spoke *spoke, fl_timer_id leaf_id)
{
    uint32_t mask = spoke->mask;
    if (mask == 0)
        return NULL;
    struct leaf *const *crowd = spoke->leaves + mask + 1;
    struct leaf *leaf = crowd[find_in_crowd(crowd, mask, leaf_id)];
    return fl__is_leaf(leaf) ? leaf : NULL;
}

static void insert(struct leaf **table, uint32_t mask, struct leaf *leaf)
{
    struct leaf **own = &table[own_place(leaf->id, mask)], *other = *own, **crowd = table + mask + 1;
    struct leaf *older = other->id < leaf->id ? other : leaf; /* fl__no_leaf, whose ID is 0, is older than any */
    *own = other->id < leaf->id ? leaf : other;
    if (fl__is_leaf(older))
        crowd[find_in_crowd(crowd, mask, older->id)] = older;
}

/* Takes a leaf out of the crowd, and moves those up that came to stand behind it because their place was taken. */
static void erase_from_crowd(struct leaf **crowd, uint32_t mask, const struct leaf *leaf)
{
    uint32_t hole = find_in_crowd(crowd, mask, leaf->id), first = hole;
    assert(crowd[hole] == leaf);
    for (uint32_t at = (hole + 1) & mask; fl__is_leaf(crowd[at]); at = (at + 1) & mask) {
        if (at == first)
            fail_full_crowd();
        uint32_t distance = (at - crowd_place(crowd[at]->id, mask)) & mask;
        if (distance >= ((at - hole) & mask)) {
            crowd[hole] = crowd[at];
            hole = at;
        }
    }
    crowd[hole] = &fl__no_leaf;
}

static void erase(struct leaf **table, uint32_t mask, const struct leaf *leaf)
{
    struct leaf **own = &table[own_place(leaf->id, mask)];
    if (*own == leaf)
        *own = &fl__no_leaf;
    else
        erase_from_crowd(table + mask + 1, mask, leaf);
}

/* Moves the leaves to a table with halves of another size, which is not the one within the spoke. */
static bool resize_table(struct spoke *spoke, uint32_t size)
{
    struct leaf **table = fl__alloc(2 * size * sizeof(void *)), *leaf;
    if (!table)
        return false;
    for (uint32_t i = 0; i < 2 * size; i++)
        table[i] = &fl__no_leaf;
    for (uint64_t at = 0; (leaf = fl__spoke_next_leaf(spoke, &at));)
        insert(table, size - 1, leaf);
    if (spoke->mask > 0)
        fl__release(spoke->leaves);
    spoke->leaves = table;
    spoke->mask = size - 1;
    return true;
}

/* Room for one more leaf in the table. */
static bool reserve_table(struct spoke *spoke)
{
    if (spoke->leaf_count == 0)
        return true;
    uint32_t size = spoke->mask + 1;
    if (size == 1)
        return resize_table(spoke, FIRST_TABLE);
    return (spoke->leaf_count + 1) * 4ull <= size * 3ull || resize_table(spoke, size * 2);
}

static void add_to_table(struct spoke *spoke, struct leaf *leaf)
{
    if (spoke->leaf_count++ == 0)
        spoke->leaves = &spoke->tail;
    else
        insert(spoke->leaves, spoke->mask, leaf);
    spoke->tail = leaf;
}

static void remove_from_table(struct spoke *spoke, struct leaf *leaf)
{
    uint32_t size = spoke->mask + 1;
    if (--spoke->leaf_count == 0) {
        if (size > 1)
            fl__release(spoke->leaves);
        spoke->leaves = NULL;
        spoke->tail = NULL;
        spoke->mask = 0;
        return;
    }
    erase(spoke->leaves, spoke->mask, leaf);
    if (spoke->tail == leaf)
        spoke->tail = NULL;
    if (size > FIRST_TABLE && spoke->leaf_count < size / 8)
        resize_table(spoke, size / 4);
}

uint64_t fl__spoke_oldest(const struct spoke *spoke, uint64_t from)
{
    uint64_t oldest = UINT64_MAX;
    struct leaf *leaf;
    for (uint64_t at = 0; (leaf = fl__spoke_next_leaf(spoke, &at));) {
        uint64_t serial = fl__leaf_serial(leaf);
        oldest = serial >= from && serial < oldest ? serial : oldest;
    }
    return oldest;
}

/* ---- Leaves ---------------------------------------------------------------------------------------------------- */

uint32_t fl__leaf_live(const struct leaf *leaf)
{
    uint32_t live = 0;
    for (uint32_t i = 0; i < LEAF_WORDS; i++)
        live += count_bits(fl__leaf_living(leaf, i));
    return live;
}

static bool is_empty(const struct leaf *leaf)
{
    uint64_t living = 0;
    for (uint32_t i = 0; i < LEAF_WORDS; i++)
        living |= fl__leaf_living(leaf, i);
    return living == 0;
}

static uint32_t packed_count(const struct packed *packed)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < LEAF_WORDS; i++)
        count += count_bits(packed->kept[i]);
    return count;
}

uint32_t fl__leaf_capacity(const struct leaf *leaf)
{
    return leaf->is_packed ? packed_count(leaf->packed) : leaf->capacity;
}

struct slot *fl__leaf_packed_slot(const struct leaf *leaf, uint32_t index)
{
    struct packed *packed = leaf->packed;
    uint64_t before = packed->kept[index / 64] & ((1ull << index % 64) - 1);
    uint32_t place = count_bits(before);
    for (uint32_t i = 0; i < index / 64; i++)
        place += count_bits(packed->kept[i]);
    return &packed->slots[place];
}

static size_t packed_bytes(uint32_t slots)
{
    return sizeof(struct packed) + slots * sizeof(struct slot);
}

static size_t leaf_bytes(const struct leaf *leaf)
{
    return leaf->is_packed ? packed_bytes(packed_count(leaf->packed)) : leaf->capacity * sizeof *leaf->slots;
}

static void release_slots(struct leaf *leaf, struct store *store)
{
    if (!leaf->is_packed && leaf->capacity == LEAF_SLOTS)
        fl__pool_give(&store->slots, leaf->slots);
    else
        fl__release(leaf->slots);
}

static void release_leaf(struct leaf *leaf, struct store *store)
{
    release_slots(leaf, store);
    fl__pool_give_line(&store->leaves, leaf);
}

static struct slot *take_slots(uint32_t capacity, struct store *store)
{
    return capacity == LEAF_SLOTS ? fl__pool_take(&store->slots) : fl__alloc(capacity * sizeof(struct slot));
}

/* A small tail need not be looked at before it is full. */
static uint16_t first_patience(uint32_t capacity)
{
    return capacity <= KEPT_CAPACITY ? (uint16_t)(capacity + 1) : 1;
}

static void begin_leaf(struct leaf *leaf, fl_timer_id id)
{
    memset(leaf->gone, 0, sizeof leaf->gone);
    leaf->id = id;
    leaf->min_ns = UINT64_MAX;
    leaf->used = 0;
    leaf->patience = first_patience(leaf->capacity);
    leaf->min_index = 0;
    leaf->min_is_bound = false;
}

/* A new leaf has an eighth of the slots that the spoke has: none has much memory to spare. */
static uint32_t fair_capacity(uint32_t leaves)
{
    uint32_t eighth = leaves * (LEAF_SLOTS / 8);
    return eighth == 0 ? FIRST_CAPACITY : eighth < LEAF_SLOTS ? eighth : LEAF_SLOTS;
}

static int add_leaf(struct spoke *spoke, unsigned level, uint32_t number, struct store *store)
{
    uint32_t capacity = fair_capacity(spoke->leaf_count);
    if (!reserve_table(spoke))
        return FL_NO_MEMORY;
    struct leaf *leaf = fl__pool_take_line(&store->leaves);
    struct slot *slots = leaf ? take_slots(capacity, store) : NULL;
    if (!slots) {
        if (leaf)
            fl__pool_give_line(&store->leaves, leaf);
        return FL_NO_MEMORY;
    }
    leaf->slots = slots;
    leaf->capacity = (uint16_t)capacity;
    leaf->is_packed = false;
    begin_leaf(leaf, fl__leaf_id(level, number, fl__spoke_next_serial(spoke)));
    spoke->leaves_made++;
    add_to_table(spoke, leaf);
    return 0;
}

/* Moves the timers of a tail to memory for more of them, or fewer. */
static int resize_leaf(struct leaf *leaf, uint32_t capacity, struct store *store)
{
    struct slot *slots = take_slots(capacity, store);
    if (!slots)
        return FL_NO_MEMORY;
    memcpy(slots, leaf->slots, leaf->used * sizeof *slots);
    release_slots(leaf, store);
    leaf->slots = slots;
    leaf->capacity = (uint16_t)capacity;
    leaf->patience = first_patience(capacity);
    return 0;
}

static int grow_leaf(struct leaf *leaf, struct store *store)
{
    return resize_leaf(leaf, leaf->capacity * 2u < LEAF_SLOTS ? leaf->capacity * 2u : LEAF_SLOTS, store);
}

/* An empty tail begins anew under another serial number. */
static void renew_leaf(struct spoke *spoke, struct leaf *leaf, unsigned level, uint32_t number)
{
    fl_timer_id id = fl__leaf_id(level, number, fl__spoke_next_serial(spoke));
    if (spoke->mask > 0)
        erase(spoke->leaves, spoke->mask, leaf);
    begin_leaf(leaf, id);
    if (spoke->mask > 0)
        insert(spoke->leaves, spoke->mask, leaf);
    spoke->leaves_made++;
}

int fl__spoke_make_room(struct spoke *spoke, unsigned level, uint32_t number, struct store *store)
{
    struct leaf *tail = spoke->tail;
    bool can_renew = tail && is_empty(tail);
    if (tail && !can_renew && tail->capacity < LEAF_SLOTS && fl__leaf_live(tail) * 2 > tail->used)
        return grow_leaf(tail, store);
    if (fl__spoke_next_serial(spoke) >= SERIAL_WORN && spoke->leaf_count == can_renew)
        spoke->leaves_made = 0; /* it has no timer */
    if (fl__spoke_next_serial(spoke) == SERIAL_END)
        return FL_CAPACITY_EXCEEDED;
    if (can_renew) {
        renew_leaf(spoke, tail, level, number);
        return 0;
    }
    int r = add_leaf(spoke, level, number, store);
    if (r == 0 && tail)
        fl__leaf_tidy(spoke, tail, store); /* as a tail it was left in peace */
    return r;
}

/* ---- Timers that have gone -------------------------------------------------------------------------------------- */

static bool is_kept_when_empty(const struct spoke *spoke, const struct leaf *leaf)
{
    return leaf == spoke->tail && !leaf->is_packed && (leaf->capacity <= KEPT_CAPACITY || leaf->used < YOUNG);
}

/* The spoke has lost a leaf. Its tail is not to have much more memory than a new one would have. */
static void shrink_tail(struct spoke *spoke, struct store *store)
{
    struct leaf *tail = spoke->tail;
    uint32_t capacity = fair_capacity(spoke->leaf_count - 1);
    if (tail->is_packed || tail->capacity <= 2 * capacity || tail->used > capacity)
        return;
    resize_leaf(tail, capacity, store); /* without memory for that, it keeps what it has */
}

static void leaf_emptied(struct spoke *spoke, struct leaf *leaf, struct store *store)
{
    if (is_kept_when_empty(spoke, leaf)) {
        leaf->min_ns = UINT64_MAX;
        leaf->min_is_bound = false;
        leaf->patience = first_patience(leaf->capacity);
        return;
    }
    remove_from_table(spoke, leaf);
    release_leaf(leaf, store);
    if (spoke->tail)
        shrink_tail(spoke, store);
}

/* Copies the living timers, in order. */
static void copy_living(const struct leaf *leaf, struct slot *to)
{
    for (uint32_t i = fl__leaf_next(leaf, 0); i < LEAF_SLOTS; i = fl__leaf_next(leaf, i + 1))
        *to++ = *fl__leaf_slot(leaf, i);
}

static bool pack_leaf(struct leaf *leaf, uint32_t live, struct store *store)
{
    struct packed *packed = fl__alloc(packed_bytes(live));
    if (!packed)
        return false;
    copy_living(leaf, packed->slots);
    for (uint32_t i = 0; i < LEAF_WORDS; i++) {
        packed->kept[i] = fl__leaf_living(leaf, i);
        leaf->gone[i] = ~packed->kept[i];
    }
    release_slots(leaf, store);
    leaf->packed = packed;
    leaf->is_packed = true;
    leaf->used = leaf->capacity = LEAF_SLOTS;
    return true;
}

/* The largest number of timers with which a leaf counts as sparse. */
static uint32_t sparse_limit(const struct spoke *spoke, const struct leaf *leaf, const struct store *store)
{
    if (leaf->is_packed) {
        uint32_t count = packed_count(leaf->packed);
        return count > KEPT_CAPACITY ? (count - 1) / store->compaction.target_multiplier : 0;
    }
    uint64_t spoke_capacity = spoke->leaf_count > 1 ? (uint64_t)spoke->leaf_count * LEAF_SLOTS : leaf->capacity;
    return spoke_capacity >= store->compaction.min_capacity ? (leaf->used - 1u) / store->compaction.ratio : 0;
}

void fl__leaf_tidy(struct spoke *spoke, struct leaf *leaf, struct store *store)
{
    if (is_empty(leaf)) {
        leaf_emptied(spoke, leaf, store);
        return;
    }
    uint32_t live = fl__leaf_live(leaf), gone = leaf->used - live;
    if (leaf == spoke->tail && leaf->used < leaf->capacity && gone < YOUNG) {
        leaf->patience = (uint16_t)(live < YOUNG - gone ? live : YOUNG - gone);
        return;
    }
    uint32_t limit = sparse_limit(spoke, leaf, store);
    if (live <= limit)
        limit = pack_leaf(leaf, live, store) ? sparse_limit(spoke, leaf, store) : 0;
    leaf->patience = (uint16_t)(live - limit);
}

void fl__leaf_fired(struct spoke *spoke, struct leaf *leaf, struct store *store)
{
    if (is_empty(leaf))
        leaf_emptied(spoke, leaf, store);
    else
        leaf->patience = (uint16_t)fl__leaf_live(leaf);
}

/* ---- The whole spoke -------------------------------------------------------------------------------------------- */

void fl__spoke_reset(struct spoke *spoke, struct store *store)
{
    struct leaf *leaf;
    for (uint64_t at = 0; (leaf = fl__spoke_next_leaf(spoke, &at));)
        release_leaf(leaf, store);
    if (spoke->mask > 0)
        fl__release(spoke->leaves);
    spoke->leaves = NULL;
    spoke->tail = NULL;
    spoke->mask = 0;
    spoke->leaf_count = 0;
}

/* Packs all leaves that are smaller so; says whether there is an empty one. */
static bool pack_leaves(struct spoke *spoke, struct store *store)
{
    struct leaf *leaf;
    bool any_empty = false;
    for (uint64_t at = 0; (leaf = fl__spoke_next_leaf(spoke, &at));) {
        uint32_t live = fl__leaf_live(leaf);
        any_empty |= live == 0;
        if (live > 0 && packed_bytes(live) < leaf_bytes(leaf) && pack_leaf(leaf, live, store))
            leaf->patience = (uint16_t)live;
    }
    return any_empty;
}

void fl__spoke_compact(struct spoke *spoke, struct store *store)
{
    if (!pack_leaves(spoke, store))
        return;
    struct leaf *tail = spoke->tail; /* no other leaf can be empty */
    remove_from_table(spoke, tail);
    release_leaf(tail, store);
}

static uint64_t leaf_min_ns(struct leaf *leaf)
{
    if (leaf->min_is_bound) {
        leaf->min_ns = UINT64_MAX;
        for (uint32_t i = fl__leaf_next(leaf, 0); i < LEAF_SLOTS; i = fl__leaf_next(leaf, i + 1)) {
            uint64_t deadline_ns = fl__leaf_slot(leaf, i)->deadline_ns;
            if (deadline_ns < leaf->min_ns)
                fl__leaf_set_min(leaf, i, deadline_ns);
        }
    }
    return leaf->min_ns;
}

uint64_t fl__spoke_min_ns(struct spoke *spoke)
{
    uint64_t min_ns = UINT64_MAX;
    struct leaf *leaf;
    for (uint64_t at = 0; (leaf = fl__spoke_next_leaf(spoke, &at));) {
        uint64_t leaf_ns = leaf_min_ns(leaf);
        min_ns = leaf_ns < min_ns ? leaf_ns : min_ns;
    }
    return min_ns;
}

uint64_t fl__spoke_live(const struct spoke *spoke)
{
    uint64_t live = 0;
    struct leaf *leaf;
    for (uint64_t at = 0; (leaf = fl__spoke_next_leaf(spoke, &at));)
        live += fl__leaf_live(leaf);
    return live;
}

uint64_t fl__spoke_capacity(const struct spoke *spoke)
{
    uint64_t capacity = 0;
    struct leaf *leaf;
    for (uint64_t at = 0; (leaf = fl__spoke_next_leaf(spoke, &at));)
        capacity += fl__leaf_capacity(leaf);
    return capacity;
}

uint64_t fl__spoke_bytes(const struct spoke *spoke)
{
    uint64_t bytes = spoke->refs.capacity * sizeof *spoke->refs.items;
    if (spoke->mask > 0)
        bytes += fl__spoke_table_size(spoke) * sizeof(void *);
    struct leaf *leaf;
    for (uint64_t at = 0; (leaf = fl__spoke_next_leaf(spoke, &at));)
        bytes += sizeof *leaf + leaf_bytes(leaf);
    return bytes;
}
