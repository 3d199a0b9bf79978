/* SPDX-License-Identifier: MIT */
/* Timers in memory.
 *
 * Each item is in a span, which has the items of half a second. Spans serve to find an item by its key, and to drop the
 * latest items when memory is needed. When its span is the next one, an item is armed: its node is started in a wheel. So an
 * item that is due later costs no more than its place in the span. All items that are due before `armed_us` are armed.
 *
 * The time of a wheel is the wall clock in microseconds, but before `armed_us` and not past `until`. So items that are armed
 * or loaded next are not in its past. When the clock is set back, the wheels are replaced.
 *
 * A span is an array in the order of arrival. This is the order of sequence numbers, unless a slice of a large window ended
 * inside the span. A search sorts the span. In either order, items with the same time are armed in the order of their
 * numbers.
 */

#include <stdlib.h>

#include "engine/internal.h"

enum { ARM_BATCHES = 4, AHEAD = 8, PLACES = 1 << 29 /* item.place has 29 bits */ };

/* --- Spans -------------------------------------------------------------------------------------------------------- */

/* The place of the first span with at least this index. */
static uint32_t span_from(const fl_engine *e, int64_t index)
{
    uint32_t low = 0, high = e->span_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (e->spans[middle].index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct span *span_of(fl_engine *e, int64_t at_us)
{
    int64_t index = at_us >> SPAN_SHIFT;
    uint32_t i = span_from(e, index);
    return i < e->span_count && e->spans[i].index == index ? &e->spans[i] : NULL;
}

void fl__memory_drop_span(fl_engine *e, struct span *span)
{
    fl__assert(span->live == 0);
    fl__assert(span >= e->spans && span < e->spans + e->span_count);
    fl__release(span->items);
    uint32_t i = (uint32_t)(span - e->spans);
    memmove(span, span + 1, (e->span_count - i - 1) * sizeof *span);
    e->span_count--;
}

void fl__memory_drop_empty_spans(fl_engine *e)
{
    for (uint32_t i = e->span_count; i-- > 0;)
        if (e->spans[i].live == 0)
            fl__memory_drop_span(e, &e->spans[i]);
}

static struct span *make_span(fl_engine *e, int64_t at_us)
{
    if (e->span_count == e->span_capacity) {
        fl__memory_drop_empty_spans(e);
        uint32_t capacity = e->span_count + e->span_count / 2 + 16;
        struct span *spans = fl__resize(e->spans, capacity * sizeof *spans);
        if (!spans)
            return NULL;
        e->spans = spans;
        e->span_capacity = capacity;
    }
    int64_t index = at_us >> SPAN_SHIFT;
    uint32_t i = span_from(e, index);
    fl__assert(e->span_count < e->span_capacity);
    fl__assert(i == e->span_count || e->spans[i].index != index);
    memmove(&e->spans[i + 1], &e->spans[i], (e->span_count - i) * sizeof *e->spans);
    e->span_count++;
    e->spans[i] = (struct span){.index = index, .sorted = true};
    return &e->spans[i];
}

static bool is_armed(const struct item *item)
{
    return fl_node_is_waiting(&item->node);
}

/* Call it after places have changed. The span must have no gaps. */
static void count_armed(struct span *span)
{
    span->armed = 0;
    while (span->armed < span->count && is_armed(span->items[span->armed]))
        span->armed++;
}

void fl__memory_pack_span(struct span *span)
{
    uint32_t to = 0;
    for (uint32_t i = 0; i < span->count; i++)
        if (span->items[i]) {
            span->items[to] = span->items[i];
            span->items[to]->place = to;
            to++;
        }
    fl__assert(to == span->live);
    span->count = to;
    count_armed(span);
}

static int span_add(fl_engine *e, struct item *item)
{
    struct span *span = span_of(e, item_at_us(item));
    if (!span)
        span = make_span(e, item_at_us(item));
    if (!span)
        return FL_NO_MEMORY;
    if (span->count == span->capacity) {
        if (span->live < span->count / 2) {
            fl__memory_pack_span(span);
        } else {
            uint32_t capacity = span->capacity + span->capacity / 2 + 8;
            struct item **items = fl__resize(span->items, capacity * sizeof(struct item *));
            if (!items)
                return FL_NO_MEMORY;
            span->items = items;
            span->capacity = capacity;
        }
    }
    if (span->count > 0 && (!span->items[span->count - 1] || span->items[span->count - 1]->seq > item->seq))
        span->sorted = false;
    if (is_armed(item) && span->armed == span->count)
        span->armed++;
    fl__assert(span->count < span->capacity);
    fl__assert(span->count < PLACES);
    item->place = span->count;
    span->items[span->count++] = item;
    span->live++;
    return 0;
}

static void span_remove(fl_engine *e, const struct item *item)
{
    struct span *span = span_of(e, item_at_us(item));
    fl__assert(span && span->items[item->place] == item);
    span->items[item->place] = NULL;
    if (--span->live == 0) {
        span->count = span->armed = 0;
        span->sorted = true;
    }
}

static int by_seq(const void *a, const void *b)
{
    uint64_t x = (*(struct item *const *)a)->seq, y = (*(struct item *const *)b)->seq;
    return x < y ? -1 : x > y;
}

static void sort_span(struct span *span)
{
    fl__memory_pack_span(span);
    qsort(span->items, span->count, sizeof(struct item *), by_seq);
    for (uint32_t i = 0; i < span->count; i++)
        span->items[i]->place = i;
    count_armed(span);
    span->sorted = true;
}

/* Finds a number in a sorted span with gaps. A gap counts as the item before it. */
static struct item *search_span(const struct span *span, uint64_t seq)
{
    uint32_t low = 0, high = span->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2, at = middle;
        while (at > low && !span->items[at])
            at--;
        if (!span->items[at] || span->items[at]->seq < seq)
            low = middle + 1;
        else
            high = at;
    }
    return low < span->count && span->items[low] && span->items[low]->seq == seq ? span->items[low] : NULL;
}

struct item *fl__memory_find(fl_engine *e, fl_key key)
{
    struct span *span = span_of(e, key.at_us);
    if (!span || span->live == 0)
        return NULL;
    if (!span->sorted)
        sort_span(span);
    else if (span->live < span->count / 2)
        fl__memory_pack_span(span); /* long gaps would have to be stepped over again and again */
    return search_span(span, key.seq);
}

/* --- Items -------------------------------------------------------------------------------------------------------- */

static size_t room_for(size_t size)
{
    return (sizeof(struct item) + size + IMAGE_UNIT - 1) / IMAGE_UNIT * IMAGE_UNIT;
}

static unsigned char *put(unsigned char *at, const void *bytes, size_t size)
{
    if (size > 0)
        memcpy(at, bytes, size);
    return at + size;
}

/* A body that is larger than any that can be filed is dropped: it could not be decoded either. */
static struct item *make_item(fl_engine *e, const fl_row *row, uint8_t flags)
{
    bool moved = row->id.seq != row->key.seq;
    size_t body_size = row->body.size <= BODY_MOST ? row->body.size : 0;
    uint32_t space;
    if (fl__space(e, row->ns, &space) < 0)
        return NULL;
    size_t far_size = space >= SPACE_FAR ? sizeof space : 0;
    size_t size = far_size + (moved ? sizeof row->id : 0) + row->name.size + body_size;
    struct item *item = fl__image_alloc(&e->images, room_for(size));
    if (!item)
        return NULL;
    *item = (struct item){.node = {.deadline_ns = (uint64_t)row->key.at_us},
                          .flags = flags | (moved ? ITEM_MOVED : 0),
                          .seq = row->key.seq,
                          .name_size = row->name.size,
                          .size = (uint32_t)size,
                          .space = far_size ? SPACE_FAR : space};
    unsigned char *at = put(item->bytes, &space, far_size);
    at = put(at, &row->id, moved ? sizeof row->id : 0);
    at = put(at, row->name.data, row->name.size);
    fl__assert(at + body_size == item->bytes + size);
    put(at, row->body.data, body_size);
    e->bytes += room_for(size);
    return item;
}

void fl__memory_free_item(fl_engine *e, struct item *item)
{
    fl__assert(e->bytes >= room_for(item->size));
    e->bytes -= room_for(item->size);
    fl__image_free(&e->images, item, room_for(item->size));
}

uint32_t fl__item_space(const struct item *item)
{
    uint32_t space = item->space;
    if (space == SPACE_FAR)
        memcpy(&space, item->bytes, sizeof space);
    return space;
}

/* The row of an item, but for its window. */
void fl__item_row(const fl_engine *e, const struct item *item, fl_row *ret)
{
    const struct space *space = &e->spaces.list[fl__item_space(item)];
    const unsigned char *at = item->bytes + (item->space == SPACE_FAR ? sizeof(uint32_t) : 0);
    fl__assert(fl__item_space(item) < e->spaces.count);
    *ret = (fl_row){.key = item_key(item), .id = item_key(item), .ns = {space->name, space->size}};
    if (item->flags & ITEM_MOVED) {
        memcpy(&ret->id, at, sizeof ret->id);
        at += sizeof ret->id;
    }
    ret->name = (fl_bytes){at, item->name_size};
    at += item->name_size;
    fl__assert(at <= item->bytes + item->size);
    ret->body = (fl_bytes){at, (size_t)(item->bytes + item->size - at)};
}

/* --- Into the wheels ---------------------------------------------------------------------------------------------- */

static void wheel_put(fl_engine *e, struct item *item)
{
    fl__assert(!is_armed(item));
    fl_nodes_start(e->wheel[item->seq & 1], &item->node, (uint64_t)item_at_us(item));
}

static void wheel_take(fl_engine *e, struct item *item)
{
    fl_nodes_stop(e->wheel[item->seq & 1], &item->node);
}

int64_t fl__memory_next_armed_us(const fl_engine *e, int kind)
{
    uint64_t at_us;
    return e->wheel[kind] && fl_nodes_next_deadline(e->wheel[kind], &at_us) ? (int64_t)at_us : INT64_MAX;
}

size_t fl__memory_poll(fl_engine *e, int kind, int64_t now_us, size_t limit)
{
    int64_t reach_us = fl__memory_reach_us(e, now_us);
    fl__assert(e->wheel[kind] && limit <= e->config.dispatch_batch);
    if (e->wheel_us[kind] < reach_us)
        e->wheel_us[kind] = reach_us;
    return fl_nodes_poll(e->wheel[kind], (uint64_t)reach_us, e->due, limit);
}

/* How far the wheels may advance now. Not to `armed_us`, because only some of the items of that instant may be armed. */
int64_t fl__memory_reach_us(const fl_engine *e, int64_t now_us)
{
    int64_t reach_us = now_us < e->until.at_us ? now_us : e->until.at_us;
    if (e->armed_us <= reach_us)
        reach_us = e->armed_us - 1;
    return reach_us > 0 ? reach_us : 0;
}

int64_t fl__memory_span_begin_us(const struct span *span)
{
    return span->index << SPAN_SHIFT;
}

/* The first span with an item that is not armed. */
static struct span *unarmed_span(const fl_engine *e)
{
    for (uint32_t i = span_from(e, e->armed_us >> SPAN_SHIFT); i < e->span_count; i++)
        if (e->spans[i].armed < e->spans[i].count)
            return &e->spans[i];
    return NULL;
}

/* The due time of the next item to arm; INT64_MAX: no item waits, or its span is still being loaded. */
int64_t fl__memory_arm_next_us(const fl_engine *e)
{
    const struct span *span = unarmed_span(e);
    return span && fl__memory_span_begin_us(span) <= e->until.at_us
               ? fl__memory_span_begin_us(span) - ((int64_t)1 << SPAN_SHIFT)
               : INT64_MAX;
}

/* When the earliest item that is not armed is due; INT64_MAX: all are armed. */
int64_t fl__memory_next_unarmed_us(const fl_engine *e)
{
    const struct span *span = unarmed_span(e);
    int64_t first_us = INT64_MAX;
    for (uint32_t i = span ? span->armed : 0; span && i < span->count; i++)
        if (span->items[i] && item_at_us(span->items[i]) < first_us)
            first_us = item_at_us(span->items[i]);
    return first_us;
}

/* The index of the first span that is not to be armed yet. A span that is being loaded waits until it is complete. */
static int64_t arm_end(const fl_engine *e, int64_t now_us)
{
    int64_t near = (now_us >> SPAN_SHIFT) + 2, loaded = (e->until.at_us >> SPAN_SHIFT) + 1;
    return near < loaded ? near : loaded;
}

/* Where there is nothing to arm, `armed_us` and the wheels follow the clock. */
void fl__memory_follow(fl_engine *e, int64_t now_us)
{
    int64_t to_us = arm_end(e, now_us) << SPAN_SHIFT;
    const struct span *span = unarmed_span(e);
    if (span && fl__memory_span_begin_us(span) < to_us)
        to_us = fl__memory_span_begin_us(span);
    if (e->until.at_us < to_us)
        to_us = e->until.at_us + 1; /* items of that same instant may be loaded */
    if (to_us <= e->armed_us)
        return;
    e->armed_us = to_us;
    for (int kind = 0; kind < 2; kind++)
        fl__memory_poll(e, kind, now_us, 0);
}

/* Arms at most `*left` items. */
static void arm_span(fl_engine *e, struct span *span, size_t *left)
{
    fl__assert(span->armed <= span->count);
    for (; span->armed<span->count && * left> 0; span->armed++, --*left) {
        struct item *item = span->items[span->armed];
        if (span->armed + AHEAD < span->count) /* long loaded, and no longer in a cache */
            __builtin_prefetch(span->items[span->armed + AHEAD]);
        if (item && !is_armed(item))
            wheel_put(e, item);
    }
}

/* Whether enough first attempts that were due before `armed_us` wait in the wheel: a wheel is fastest with few distant
 * timers. Retries do not count, because they may wait long and must not hold up first attempts. */
static bool has_backlog(const fl_engine *e, int64_t now_us)
{
    return e->armed_us <= now_us && fl_nodes_count(e->wheel[0]) >= e->config.dispatch_batch &&
           fl__memory_next_armed_us(e, 0) < e->armed_us;
}

/* Arms the items of this half second and of the next. Each call arms a few batches at most, so that it stays ahead of firing
 * without blocking the loop. */
bool fl__memory_arm(fl_engine *e, int64_t now_us)
{
    size_t left = ARM_BATCHES * (size_t)e->config.dispatch_batch;
    struct span *span;
    fl__memory_follow(e, now_us);
    while ((span = unarmed_span(e)) && span->index < arm_end(e, now_us) && !has_backlog(e, now_us)) {
        if (left == 0)
            return false;
        arm_span(e, span, &left);
        fl__memory_follow(e, now_us);
    }
    return true;
}

/* --- In and out --------------------------------------------------------------------------------------------------- */

static int insert_late(fl_engine *e, struct item *item)
{
    if (fl__flight_new(e, item, FLIGHT_LATE) == 0)
        return FL_NO_MEMORY;
    e->loaded++;
    fl__fire_soon(e);
    return 0;
}

static int insert_waiting(fl_engine *e, struct item *item)
{
    if (item_at_us(item) < e->armed_us)
        wheel_put(e, item);
    int r = span_add(e, item);
    if (r < 0) {
        wheel_take(e, item);
        return r;
    }
    e->loaded++;
    fl__fire_soon(e);
    return 0;
}

/* Takes a row into memory; its key is before `until`. If the front or the time of the wheel has passed the key, the wheel
 * could not give it out in order, so the row becomes a late flight. */
int fl__memory_insert(fl_engine *e, const fl_row *row, uint8_t flags)
{
    if (e->locks.count > 0 && fl__is_locked(e, lock_of_seq(row->key.seq)))
        flags |= ITEM_HELD;
    struct item *item = make_item(e, row, flags);
    if (!item)
        return FL_NO_MEMORY;
    bool late = behind_front(e, row->key) || row->key.at_us <= e->wheel_us[row->key.seq & 1];
    int r = late ? insert_late(e, item) : insert_waiting(e, item);
    if (r < 0) {
        fl__memory_free_item(e, item);
        return r;
    }
    return 0;
}

/* For a row that does not fire, because its outcome is about to be written. */
uint32_t fl__memory_flight(fl_engine *e, const fl_row *row)
{
    struct item *item = make_item(e, row, 0);
    uint32_t index = item ? fl__flight_new(e, item, FLIGHT_HELD) : 0;
    if (index)
        e->loaded++;
    else if (item)
        fl__memory_free_item(e, item);
    return index;
}

void fl__memory_take(fl_engine *e, struct item *item)
{
    span_remove(e, item);
}

void fl__memory_remove(fl_engine *e, struct item *item)
{
    span_remove(e, item);
    wheel_take(e, item);
    fl__assert(e->loaded > 0);
    e->loaded--;
    fl__memory_free_item(e, item);
}

/* Drops items with this key or a later one from memory. They are loaded again later. */
void fl__memory_evict(fl_engine *e, fl_key from)
{
    for (uint32_t i = span_from(e, from.at_us >> SPAN_SHIFT); i < e->span_count; i++) {
        struct span *span = &e->spans[i];
        for (uint32_t j = 0; j < span->count; j++) {
            struct item *item = span->items[j];
            if (item && !key_before(item_key(item), from))
                fl__memory_remove(e, item);
        }
    }
    if (key_before(from, e->until)) {
        e->until = from;
        fl__load_sooner(e);
    }
}
