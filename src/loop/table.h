/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_TABLE_H
#define FOLIOT_LOOP_TABLE_H

/* The records behind the loop's timer IDs: timers, intervals, immediates, hooks.
 *
 * An ID is a generation (26 bits) above a slot number (27 bits), so it stays below 2^53. Finding its record takes a shift
 * and two loads, without hashing.
 *
 * Records never move. They lie in chunks, each twice as large as the one before: chunk h holds the slots from 2^h up to
 * 2^(h+1), so the highest bit of a slot's number says which chunk it is in. A chunk is one mapping: first the records of 32
 * bytes, then the tags of 4 bytes, one per record. A tag has the state, the flags and the generation. It is apart from the
 * record, because it outlives it: when the loop sleeps, the memory of empty chunks is given back, except for that of the
 * smallest one, but their tags stay. So a timer costs 36 bytes while it lives. A loop that has had n timers at a time keeps
 * 4 n bytes.
 *
 * A new record comes from the lowest chunk with room, so the high ones empty themselves. In a chunk, the slot that was freed
 * last is taken first, because it is still in the processor's cache. A chunk that becomes empty gives out its slots in order
 * again.
 *
 * Each time a slot is taken, its generation grows by one. A slot that has had its last generation is worn and is not taken
 * again: memory for one record is lost after 2^26 timers. When all slots are taken or worn, after about 2^53 timers, the
 * worn ones start over: an ID from years ago may then name a new timer. Living records keep their IDs.
 *
 * Chunk HEADS_CHUNK is a part of the table. Its records are the heads of lists. */

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include <foliot/loop.h>
#include <foliot/nodes.h>

#include "base/assert.h"

enum {
    TABLE_LIMIT = 1 << 26, /* records */
    TABLE_SLOT_BITS = 27,
    TABLE_FIRST = 11, /* the first chunk that is not part of the table: 2^11 slots */
    TABLE_GENERATION_BITS = 53 - TABLE_SLOT_BITS,
    TABLE_GENERATION_MAX = (1 << TABLE_GENERATION_BITS) - 1,
    HEADS_CHUNK = 3,
    HEADS_BEGIN = 1 << HEADS_CHUNK, /* the slots of list heads */
    HEADS = 1 << HEADS_CHUNK,
};

/* A record's life. From STATE_WAITING on it has an ID.
 *
 *     from              to                                   by
 *     STATE_FREE        STATE_WAITING, _IMMEDIATE, _HOOK     table_try_take(), fl__loop_table_take()
 *     STATE_WAITING     STATE_DUE                            the beginning of a turn
 *     STATE_DUE         STATE_RUNNING                        the call of an interval
 *     STATE_DUE         STATE_WAITING                        fl_loop_rearm()
 *     STATE_RUNNING     STATE_WAITING                        the end of the call, or fl_loop_rearm() during the call
 *     all but _HEAD     STATE_FREE                           fl_loop_cancel(), the call of a timer or immediate
 *
 * entry_set_state() asserts that a change is in this table. */
enum loop_record_state {
    STATE_FREE,      /* in the list of its chunk, not yet taken since the chunk was empty, or worn */
    STATE_HEAD,      /* the head of a list */
    STATE_WAITING,   /* a timer in the wheel, or about to be put there */
    STATE_DUE,       /* a timer in the list of this turn, not called yet */
    STATE_RUNNING,   /* an interval whose callback runs */
    STATE_IMMEDIATE, /* in a list of immediates */
    STATE_HOOK,      /* in a list of hooks */
    STATES
};

/* The parts of a tag. */
enum {
    TAG_STATE = 7,
    TAG_UNREF = 8,
    TAG_EXTENDED = 16, /* `extra` is valid */
    TAG_GENERATION_SHIFT = 6,
    TAG_NOT_GENERATION = (1 << TAG_GENERATION_SHIFT) - 1,
};

_Static_assert(TAG_GENERATION_SHIFT + TABLE_GENERATION_BITS <= 32, "the last generation overflows");
_Static_assert(STATE_FREE == 0, "a generation without flags is a free record's tag");
_Static_assert(STATES <= TAG_STATE + 1, "a state has no room");

struct loop_link {
    uint32_t previous, next; /* slots */
};

/* What only intervals and timers with a slack need. */
struct loop_extra {
    void *arg;
    uint64_t deadline_ns; /* before the slack; of an interval: on its grid */
    uint64_t period_ns;   /* 0: not an interval */
    uint64_t slack_ns;
    unsigned flags; /* FL_INTERVAL_... */
};

/* Half a cache line. */
struct loop_record {
    union {
        fl_node node;          /* of a timer */
        struct loop_link link; /* of immediates, hooks, list heads */
    };
    union {
        fl_loop_fn fn;
        uint32_t next_free; /* a slot; apart from the node, which leaves the wheel after its record was freed */
    };
    union {
        void *arg;
        struct loop_extra *extra; /* TAG_EXTENDED */
    };
};

_Static_assert(sizeof(struct loop_record) == 32, "a timer has grown");

struct loop_chunk {
    uintptr_t records, tags; /* where those of slot 0 would be; 0: not mapped */
    uint32_t free;           /* the slot that was freed last, or 0 */
    uint32_t next;           /* this slot and those behind it have not been taken since the chunk was empty */
    uint32_t end;
    uint32_t live; /* records that are not free */
};

_Static_assert(sizeof(struct loop_chunk) == 32, "a chunk has grown");

/* What is needed less often. */
struct loop_span {
    uint32_t begin; /* the slots before this one are worn */
    uint32_t reach; /* records below have memory, as have those below `next` */
    uint32_t used;  /* slots below have been taken at some time, as have those below `next` */
};

struct loop_table {
    struct loop_chunk *from; /* the lowest chunk with room, or the last one that is mapped */
    uint32_t live, limit;    /* records */
    uint32_t worn_tag;       /* tags from this one on are of the last generation */
    bool may_trim;           /* there may be empty chunks with memory */
    bool huge_pages;
    unsigned last_mapped, last; /* chunks; `last` is TABLE_SLOT_BITS - 1, except in tests */
    uint64_t extras;
    struct loop_chunk chunk[TABLE_SLOT_BITS];
    struct loop_span span[TABLE_SLOT_BITS]; /* by chunk */
    struct loop_record heads[HEADS];
    uint32_t head_tags[HEADS];
};

/* A record, its tag and its chunk. */
struct loop_entry {
    struct loop_record *record;
    uint32_t *tag;
    struct loop_chunk *chunk;
    uint32_t slot;
};

/* On failure the table can only be destroyed. Returns 0 or FL_NO_MEMORY. */
int fl__loop_table_init(struct loop_table *t, bool huge_pages);
void fl__loop_table_destroy(struct loop_table *t);

/* Takes a record, whose node is not waiting. Returns 0, FL_NO_MEMORY or FL_CAPACITY_EXCEEDED. */
int fl__loop_table_take(struct loop_table *t, enum loop_record_state state, struct loop_entry *ret);

/* A chunk is empty: it gives out its slots in order again. */
void fl__loop_table_restart(struct loop_table *t, struct loop_chunk *chunk);

/* Gives back memory of empty chunks: at most 2 MiB, so that it does not take long. If there may be more, `may_trim` stays. */
void fl__loop_table_trim(struct loop_table *t);

/* Gives a record a struct loop_extra, a copy of `values`, to which its argument moves. Returns 0 or FL_NO_MEMORY. */
int fl__loop_table_extend(struct loop_table *t, struct loop_entry e, const struct loop_extra *values);

/* Takes it away again. */
void fl__loop_table_shorten(struct loop_table *t, struct loop_entry e);

uint64_t fl__loop_table_bytes(const struct loop_table *t);

static inline enum loop_record_state entry_state(struct loop_entry e)
{
    return (enum loop_record_state)(*e.tag & TAG_STATE);
}

static inline void entry_set_state(struct loop_entry e, enum loop_record_state state)
{
    static const uint16_t allowed[STATES] = {
        [STATE_FREE] = 1 << STATE_WAITING | 1 << STATE_IMMEDIATE | 1 << STATE_HOOK,
        [STATE_WAITING] = 1 << STATE_WAITING | 1 << STATE_DUE,
        [STATE_DUE] = 1 << STATE_RUNNING | 1 << STATE_WAITING,
        [STATE_RUNNING] = 1 << STATE_WAITING,
    };
    fl__assert_debug(allowed[entry_state(e)] >> state & 1);
    *e.tag = (*e.tag & ~(uint32_t)TAG_STATE) | state;
}

static inline fl_timer_id entry_id(struct loop_entry e)
{
    return (uint64_t)(*e.tag >> TAG_GENERATION_SHIFT) << TABLE_SLOT_BITS | e.slot;
}

/* NULL if the record has none. */
static inline struct loop_extra *entry_extra(struct loop_entry e)
{
    return *e.tag & TAG_EXTENDED ? e.record->extra : NULL;
}

static inline void *entry_arg(struct loop_entry e)
{
    return __builtin_expect(*e.tag & TAG_EXTENDED, 0) ? e.record->extra->arg : e.record->arg;
}

/* The highest bit of a slot's number; 0 for 0. The instruction of x86 leaves its target unchanged if no bit is
 * set, so it depends on the last write to that register, which is often a load that is still under way. Clearing the target
 * first removes the dependency. */
static inline unsigned table_highest_bit(uint32_t slot)
{
#if defined(__x86_64__)
    uint64_t highest = 0;
    __asm__("bsr %1, %0" : "+r"(highest) : "r"((uint64_t)slot) : "cc");
    return (unsigned)highest;
#else
    return slot ? 31 - (unsigned)__builtin_clz(slot) : 0;
#endif
}

static inline struct loop_entry chunk_entry(const struct loop_chunk *chunk, uint32_t slot)
{
    return (struct loop_entry){(struct loop_record *)(chunk->records + slot * sizeof(struct loop_record)),
                               (uint32_t *)(chunk->tags + slot * sizeof(uint32_t)), (struct loop_chunk *)chunk, slot};
}

/* A slot of a chunk that is mapped. */
static inline struct loop_entry table_entry(const struct loop_table *t, uint32_t slot)
{
    const struct loop_chunk *chunk = &t->chunk[table_highest_bit(slot)];
    fl__assert_debug(chunk->records != 0);
    return chunk_entry(chunk, slot);
}

/* The slot of a record. More than half of all records are in the last chunk, so that is where the search begins. */
static inline uint32_t table_slot(const struct loop_table *t, const struct loop_record *record)
{
    unsigned h = t->last_mapped;
    uintptr_t slot;
    while ((slot = ((uintptr_t)record - t->chunk[h].records) / sizeof(*record)) >> h != 1) {
        fl__assert_debug(h > 0);
        h--;
    }
    return (uint32_t)slot;
}

/* Finds the record of an ID. Returns false if nothing in the loop has that ID. */
static inline bool table_find(const struct loop_table *t, fl_timer_id id, struct loop_entry *ret)
{
    uint32_t slot = id & ((1u << TABLE_SLOT_BITS) - 1);
    const struct loop_chunk *chunk = &t->chunk[table_highest_bit(slot)];
    if (__builtin_expect(chunk->records == 0, 0))
        return false;
    *ret = chunk_entry(chunk, slot);
    return *ret->tag >> TAG_GENERATION_SHIFT == id >> TABLE_SLOT_BITS && entry_state(*ret) >= STATE_WAITING;
}

/* The slot that the chunk gives out next; `end` if it has none. */
static inline uint32_t chunk_first(const struct loop_chunk *chunk)
{
    return chunk->free ? chunk->free : chunk->next;
}

/* Removes that slot. */
static inline void chunk_pop(struct loop_chunk *chunk, struct loop_entry first)
{
    if (first.slot == chunk->free)
        chunk->free = first.record->next_free;
    else
        chunk->next++;
}

/* As fl__loop_table_take(), but only where it is quick. */
static inline bool table_try_take(struct loop_table *t, enum loop_record_state state, struct loop_entry *ret)
{
    struct loop_chunk *chunk = t->from;
    if (__builtin_expect(chunk_first(chunk) == chunk->end || t->live == t->limit, 0))
        return false;
    *ret = chunk_entry(chunk, chunk_first(chunk));
    if (__builtin_expect(*ret->tag >= t->worn_tag, 0))
        return false;
    fl__assert_debug(entry_state(*ret) == STATE_FREE && !fl_node_is_waiting(&ret->record->node));
    chunk_pop(chunk, *ret);
    *ret->tag = ((*ret->tag | TAG_NOT_GENERATION) + 1) | state;
    chunk->live++;
    t->live++;
    return true;
}

/* What is common to all records that are freed. */
static inline void table_push(struct loop_table *t, struct loop_entry e)
{
    fl__assert_debug(entry_state(e) >= STATE_WAITING && t->live > 0 && e.chunk->live > 0);
    *e.tag &= ~(uint32_t)TAG_NOT_GENERATION;
    e.record->next_free = e.chunk->free;
    e.chunk->free = e.slot;
    e.chunk->live--;
    t->live--;
    if (e.chunk < t->from)
        t->from = e.chunk;
}

/* Frees a record; its ID ends. */
static inline void table_put(struct loop_table *t, struct loop_entry e)
{
    if (__builtin_expect(*e.tag & TAG_EXTENDED, 0))
        fl__loop_table_shorten(t, e);
    table_push(t, e);
    if (__builtin_expect(e.chunk->live == 0, 0))
        fl__loop_table_restart(t, e.chunk);
}

/* Whether table_push() does all that table_put() does for a timer that waits, and it is in no list. */
static inline bool entry_is_plain(struct loop_entry e)
{
    return (*e.tag & (TAG_STATE | TAG_EXTENDED)) == STATE_WAITING && e.chunk->live > 1;
}

/* Lists of records are circular and have a record as their head, so that one can be taken out without knowing where it
 * is. */
static inline struct loop_link *table_link(const struct loop_table *t, uint32_t slot)
{
    return &table_entry(t, slot).record->link;
}

static inline void table_list_init(struct loop_table *t, uint32_t head)
{
    *table_link(t, head) = (struct loop_link){head, head};
}

static inline bool table_list_empty(const struct loop_table *t, uint32_t head)
{
    return table_link(t, head)->next == head;
}

static inline void table_list_append(struct loop_table *t, uint32_t head, uint32_t slot)
{
    fl__assert_debug(head != slot);
    struct loop_link *first = table_link(t, head);
    *table_link(t, slot) = (struct loop_link){.previous = first->previous, .next = head};
    table_link(t, first->previous)->next = slot;
    first->previous = slot;
}

static inline void table_list_remove(struct loop_table *t, uint32_t slot)
{
    const struct loop_link *link = table_link(t, slot);
    table_link(t, link->previous)->next = link->next;
    table_link(t, link->next)->previous = link->previous;
}

/* Moves all of list `from` to the end of list `to`. */
static inline void table_list_splice(struct loop_table *t, uint32_t to, uint32_t from)
{
    fl__assert_debug(to != from);
    struct loop_link *target = table_link(t, to);
    const struct loop_link *source = table_link(t, from);
    if (source->next == from)
        return;
    table_link(t, target->previous)->next = source->next;
    table_link(t, source->next)->previous = target->previous;
    table_link(t, source->previous)->next = to;
    target->previous = source->previous;
    table_list_init(t, from);
}

#endif
