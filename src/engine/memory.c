/* SPDX-License-Identifier: MIT */
/* Timers in memory.
 *
 * An item stands in a span, half a second of time, in which it is found by its key and through which the far end of what is
 * loaded is dropped when room is needed. When that half second is the next, the item is armed: put into a wheel, which
 * knows when exactly it is due. So what is far costs no more than its place in the span, and what is put into a wheel goes
 * straight into its finest level. Everything due before `armed_us` is armed.
 *
 * A wheel's time is the wall clock in nanoseconds, but before `armed_us`, and never past `until`, so that whatever is armed
 * or loaded next is not in its past; when the clock is set back, the wheels are made anew.
 *
 * A span is an array in the order of arrival. That is the order of sequence numbers, unless a slice of a large window ended
 * in the middle of it; it is sorted when something is looked for. In either order, those of the same time are armed in the
 * order of their numbers.
 */

#include <stdlib.h>

#include "engine/internal.h"

enum { ARM_BATCHES = 4, AHEAD = 8 };

/* --- Namespaces --------------------------------------------------------------------------------------------------- */

static uint32_t *space_slot(const struct spaces *spaces, uint64_t hash, fl_bytes ns)
{
    uint32_t mask = spaces->table_size - 1, slot = (uint32_t)hash & mask;
    for (; spaces->table[slot]; slot = (slot + 1) & mask) {
        const struct space *space = &spaces->list[spaces->table[slot] - 1];
        if (space->hash == hash && space->size == ns.size && memcmp(space->name, ns.data, ns.size) == 0)
            break;
    }
    return &spaces->table[slot];
}

static int grow_space_table(struct spaces *spaces)
{
    struct spaces larger = *spaces;
    larger.table_size = spaces->table_size ? spaces->table_size * 2 : 16;
    larger.table = fl__alloc_zeroed(larger.table_size * sizeof *larger.table);
    if (!larger.table)
        return FL_NO_MEMORY;
    for (uint32_t i = 0; i < spaces->count; i++) {
        const struct space *space = &spaces->list[i];
        *space_slot(&larger, space->hash, (fl_bytes){space->name, space->size}) = i + 1;
    }
    fl__release(spaces->table);
    *spaces = larger;
    return 0;
}

static int grow_space_list(struct spaces *spaces)
{
    uint32_t capacity = spaces->capacity ? spaces->capacity * 2 : 8;
    struct space *list = fl__resize(spaces->list, capacity * sizeof *list);
    if (!list)
        return FL_NO_MEMORY;
    spaces->list = list;
    spaces->capacity = capacity;
    return 0;
}

/* The number of a namespace, which it gets if it has none. */
int fl__space(fl_engine *e, fl_bytes ns, uint32_t *ret)
{
    struct spaces *spaces = &e->spaces;
    if (spaces->count * 2 >= spaces->table_size && grow_space_table(spaces) < 0)
        return FL_NO_MEMORY;
    uint64_t hash = fl_store_hash(ns, (fl_bytes){0});
    uint32_t *slot = space_slot(spaces, hash, ns);
    if (*slot == 0) {
        if (spaces->count == spaces->capacity && grow_space_list(spaces) < 0)
            return FL_NO_MEMORY;
        char *name = fl__alloc(ns.size);
        if (!name)
            return FL_NO_MEMORY;
        memcpy(name, ns.data, ns.size);
        bool own = ns.size > 0 && *(const unsigned char *)ns.data < ' '; /* the program's: see fl_engine_skip_older() */
        spaces->list[spaces->count] = (struct space){.name = name,
                                                     .hash = hash,
                                                     .skip_older_us = own ? 0 : UINT64_MAX,
                                                     .keep_us = UINT64_MAX,
                                                     .size = (uint8_t)ns.size};
        *slot = ++spaces->count;
    }
    *ret = *slot - 1;
    return 0;
}

/* So many more timers of a namespace are pending. */
void fl__count(fl_engine *e, uint32_t space, int64_t more)
{
    struct space *s = &e->spaces.list[space];
    s->pending += more;
    e->stats.pending += (uint64_t)more;
    if (e->config.counted && more != 0)
        e->config.counted(e->config.arg, e, (fl_bytes){s->name, s->size}, more);
}

/* What is in the shard is not the engine's to count, or not any more. */
void fl__count_none(fl_engine *e)
{
    for (uint32_t i = 0; i < e->spaces.count; i++)
        fl__count(e, i, -e->spaces.list[i].pending);
}

void fl__spaces_free(struct spaces *spaces)
{
    for (uint32_t i = 0; i < spaces->count; i++)
        fl__release(spaces->list[i].name);
    fl__release(spaces->list);
    fl__release(spaces->table);
    *spaces = (struct spaces){0};
}

/* --- Spans -------------------------------------------------------------------------------------------------------- */

/* The first span that does not begin before. */
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

static void drop_span(fl_engine *e, struct span *span)
{
    fl__release(span->items);
    uint32_t i = (uint32_t)(span - e->spans);
    memmove(span, span + 1, (e->span_count - i - 1) * sizeof *span);
    e->span_count--;
}

/* Spans are dropped late, so that one that is filled and emptied in turn keeps its array. */
static void drop_empty_spans(fl_engine *e)
{
    for (uint32_t i = e->span_count; i-- > 0;)
        if (e->spans[i].live == 0)
            drop_span(e, &e->spans[i]);
}

static struct span *make_span(fl_engine *e, int64_t at_us)
{
    if (e->span_count == e->span_capacity) {
        drop_empty_spans(e);
        uint32_t capacity = e->span_count + e->span_count / 2 + 16;
        struct span *spans = fl__resize(e->spans, capacity * sizeof *spans);
        if (!spans)
            return NULL;
        e->spans = spans;
        e->span_capacity = capacity;
    }
    int64_t index = at_us >> SPAN_SHIFT;
    uint32_t i = span_from(e, index);
    memmove(&e->spans[i + 1], &e->spans[i], (e->span_count - i) * sizeof *e->spans);
    e->span_count++;
    e->spans[i] = (struct span){.index = index, .sorted = true};
    return &e->spans[i];
}

/* Its places have changed, and there are no gaps. */
static void count_armed(struct span *span)
{
    span->armed = 0;
    while (span->armed < span->count && span->items[span->armed]->wheel_id)
        span->armed++;
}

/* Closes the gaps. */
static void pack_span(struct span *span)
{
    uint32_t to = 0;
    for (uint32_t i = 0; i < span->count; i++)
        if (span->items[i]) {
            span->items[to] = span->items[i];
            span->items[to]->place = to;
            to++;
        }
    span->count = to;
    count_armed(span);
}

static int span_add(fl_engine *e, struct item *item)
{
    struct span *span = span_of(e, item->at_us);
    if (!span)
        span = make_span(e, item->at_us);
    if (!span)
        return FL_NO_MEMORY;
    if (span->count == span->capacity) {
        if (span->live < span->count / 2) {
            pack_span(span);
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
    if (item->wheel_id && span->armed == span->count)
        span->armed++;
    item->place = span->count;
    span->items[span->count++] = item;
    span->live++;
    return 0;
}

static void span_remove(fl_engine *e, const struct item *item)
{
    struct span *span = span_of(e, item->at_us);
    assert(span && span->items[item->place] == item);
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
    pack_span(span);
    qsort(span->items, span->count, sizeof(struct item *), by_seq);
    for (uint32_t i = 0; i < span->count; i++)
        span->items[i]->place = i;
    count_armed(span);
    span->sorted = true;
}

/* The place of a number in a sorted span with gaps: gaps count as what comes before them. */
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
        pack_span(span); /* long gaps would have to be stepped over again and again */
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

/* A body that nobody can have filed counts as none: it could not be read either. */
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
    *item = (struct item){.at_us = row->key.at_us,
                          .flags = flags | (moved ? ITEM_MOVED : 0),
                          .seq = row->key.seq,
                          .name_size = row->name.size,
                          .size = (uint32_t)size,
                          .space = far_size ? SPACE_FAR : space};
    unsigned char *at = put(item->bytes, &space, far_size);
    at = put(at, &row->id, moved ? sizeof row->id : 0);
    at = put(at, row->name.data, row->name.size);
    put(at, row->body.data, body_size);
    e->bytes += room_for(size);
    return item;
}

void fl__memory_free_item(fl_engine *e, struct item *item)
{
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
    *ret = (fl_row){.key = item_key(item), .id = item_key(item), .ns = {space->name, space->size}};
    if (item->flags & ITEM_MOVED) {
        memcpy(&ret->id, at, sizeof ret->id);
        at += sizeof ret->id;
    }
    ret->name = (fl_bytes){at, item->name_size};
    at += item->name_size;
    ret->body = (fl_bytes){at, (size_t)(item->bytes + item->size - at)};
}

/* --- Into the wheels ---------------------------------------------------------------------------------------------- */

static int wheel_put(fl_engine *e, struct item *item)
{
    fl_timer_id id;
    int r = fl_wheel_schedule(e->wheel[item->seq & 1], (uint64_t)item->at_us * NS_PER_US, item, &id);
    if (r == 0)
        item->wheel_id = id;
    return r;
}

static void wheel_take(fl_engine *e, const struct item *item)
{
    if (item->wheel_id)
        fl_wheel_cancel(e->wheel[item->seq & 1], item->wheel_id, NULL);
}

/* How far the wheels may go by now: what is due at `armed_us` may be there in part. */
int64_t fl__memory_reach_us(const fl_engine *e, int64_t now_us)
{
    int64_t reach_us = now_us < e->until.at_us ? now_us : e->until.at_us;
    if (e->armed_us <= reach_us)
        reach_us = e->armed_us - 1;
    return reach_us > 0 ? reach_us : 0;
}

static int64_t span_begin_us(const struct span *span)
{
    return span->index << SPAN_SHIFT;
}

/* The first span of which not all is armed. */
static struct span *unarmed_span(const fl_engine *e)
{
    for (uint32_t i = span_from(e, e->armed_us >> SPAN_SHIFT); i < e->span_count; i++)
        if (e->spans[i].armed < e->spans[i].count)
            return &e->spans[i];
    return NULL;
}

/* When there will be something to arm; INT64_MAX: nothing is there, or it is still being loaded. */
int64_t fl__memory_arm_next_us(const fl_engine *e)
{
    const struct span *span = unarmed_span(e);
    return span && span_begin_us(span) <= e->until.at_us ? span_begin_us(span) - ((int64_t)1 << SPAN_SHIFT) : INT64_MAX;
}

/* The earliest that is not armed; INT64_MAX: everything is. */
int64_t fl__memory_next_unarmed_us(const fl_engine *e)
{
    const struct span *span = unarmed_span(e);
    int64_t first_us = INT64_MAX;
    for (uint32_t i = span ? span->armed : 0; span && i < span->count; i++)
        if (span->items[i] && span->items[i]->at_us < first_us)
            first_us = span->items[i]->at_us;
    return first_us;
}

/* The first span that is not to be armed yet. One that is being loaded waits until it has all. */
static int64_t arm_end(const fl_engine *e, int64_t now_us)
{
    int64_t near = (now_us >> SPAN_SHIFT) + 2, loaded = (e->until.at_us >> SPAN_SHIFT) + 1;
    return near < loaded ? near : loaded;
}

/* Where there is nothing to arm, `armed_us` goes with the clock. So do the wheels: what is armed next must be in their
 * reach. */
void fl__memory_follow(fl_engine *e, int64_t now_us)
{
    int64_t to_us = arm_end(e, now_us) << SPAN_SHIFT;
    const struct span *span = unarmed_span(e);
    if (span && span_begin_us(span) < to_us)
        to_us = span_begin_us(span);
    if (e->until.at_us < to_us)
        to_us = e->until.at_us + 1; /* some of the same time may be loaded */
    if (to_us <= e->armed_us)
        return;
    e->armed_us = to_us;
    uint64_t wheel_ns = (uint64_t)fl__memory_reach_us(e, now_us) * NS_PER_US;
    for (int kind = 0; kind < 2; kind++)
        fl_wheel_poll(e->wheel[kind], wheel_ns, NULL, 0);
}

/* Arms at most so many. */
static int arm_span(fl_engine *e, struct span *span, size_t *left)
{
    for (; span->armed<span->count && * left> 0; span->armed++, --*left) {
        struct item *item = span->items[span->armed];
        if (span->armed + AHEAD < span->count) /* long loaded, and no longer in a cache */
            __builtin_prefetch(span->items[span->armed + AHEAD]);
        int r = item && !item->wheel_id ? wheel_put(e, item) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

/* There is enough to fire of what was due before `armed_us`: a wheel is quickest with what is near together. Repeated ones
 * may wait for long, and first ones not for them. */
static bool has_backlog(const fl_engine *e, int64_t now_us)
{
    uint64_t next_ns;
    return e->armed_us <= now_us && fl_wheel_count(e->wheel[0]) >= e->config.dispatch_batch &&
           fl_wheel_next_deadline(e->wheel[0], &next_ns) && next_ns < (uint64_t)e->armed_us * NS_PER_US;
}

/* Arms what is due in this half second and in the next: as much at a time as fires in some turns, so that it is ahead of
 * that and others have their turn, too. */
bool fl__memory_arm(fl_engine *e, int64_t now_us)
{
    size_t left = ARM_BATCHES * (size_t)e->config.dispatch_batch;
    struct span *span;
    fl__memory_follow(e, now_us);
    while ((span = unarmed_span(e)) && span->index < arm_end(e, now_us) && !has_backlog(e, now_us)) {
        if (left == 0)
            return false;
        if (arm_span(e, span, &left) < 0) {
            fl__engine_restart(e, "out of memory for what is due soon");
            return true;
        }
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
    int r = item->at_us < e->armed_us ? wheel_put(e, item) : 0;
    if (r < 0)
        return r;
    r = span_add(e, item);
    if (r < 0) {
        wheel_take(e, item);
        return r;
    }
    e->loaded++;
    fl__fire_soon(e);
    return 0;
}

/* Takes a row into memory that is before `until`. One that the front has passed, or the wheel's time, could no longer come
 * out of the wheel in order: it waits among the late ones. */
int fl__memory_insert(fl_engine *e, const fl_row *row, uint8_t flags)
{
    if (e->locks.count > 0 && fl__is_locked(e, lock_of_seq(row->key.seq)))
        flags |= ITEM_HELD;
    struct item *item = make_item(e, row, flags);
    if (!item)
        return FL_NO_MEMORY;
    uint64_t now_ns = fl_wheel_now_ns(e->wheel[row->key.seq & 1]);
    bool late = behind_front(e, row->key) || (uint64_t)row->key.at_us * NS_PER_US <= now_ns;
    int r = late ? insert_late(e, item) : insert_waiting(e, item);
    if (r < 0) {
        fl__memory_free_item(e, item);
        return r;
    }
    return 0;
}

/* For a row that is not to fire now: what becomes of it is to be written. */
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
    e->loaded--;
    fl__memory_free_item(e, item);
}

/* Forgets what has this key or a later one, until it is loaded. */
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

/* --- Room --------------------------------------------------------------------------------------------------------- */

/* Whether `percent` of the memory is in use, by count or by bytes. */
bool fl__memory_is_filled(const fl_engine *e, unsigned percent)
{
    double part = percent / 100.0;
    return (double)e->loaded >= part * (double)e->config.max_memory_timers ||
           (double)e->bytes >= part * (double)e->config.max_memory_bytes;
}

static void memory_is_short(fl_engine *e)
{
    e->stats.pressure++;
    e->pressed = true;
    if (e->preload_us > SECOND_US / 8)
        e->preload_us = e->preload_us * 4 / 5;
    drop_empty_spans(e);
}

/* Makes room for a timer at this key, by forgetting what is further away. False: it is the furthest itself; then it is not
 * to be inserted, and `until` says so. */
bool fl__memory_room(fl_engine *e, fl_key key)
{
    if (!fl__memory_is_filled(e, 100))
        return true;
    memory_is_short(e);
    while (fl__memory_is_filled(e, 90) && e->span_count > 0) {
        struct span *last = &e->spans[e->span_count - 1];
        if (last->index <= key.at_us >> SPAN_SHIFT)
            break;
        fl__memory_evict(e, (fl_key){last->index << SPAN_SHIFT, 0});
        drop_span(e, last);
    }
    if (!fl__memory_is_filled(e, 100))
        return true;
    if (!behind_front(e, key))
        fl__memory_evict(e, key);
    return false;
}

static int by_key(const void *a, const void *b)
{
    fl_key x = item_key(*(struct item *const *)a), y = item_key(*(struct item *const *)b);
    return key_before(x, y) ? -1 : key_before(y, x);
}

/* The key in the middle of a span: the later half of its items has it or a later one. */
static fl_key middle_of(struct span *span)
{
    pack_span(span);
    qsort(span->items, span->count, sizeof(struct item *), by_key);
    fl_key middle = item_key(span->items[span->count / 2]);
    span->sorted = false;
    pack_span(span); /* they know their places again */
    return middle;
}

/* From where on to forget, so that there is room for a row at this key: the last half second if the row is not in it, else
 * the later half of that, but nothing before the row. */
static fl_key load_cut_for(fl_engine *e, fl_key key)
{
    struct span *last = e->span_count > 0 ? &e->spans[e->span_count - 1] : NULL;
    if (!last || last->index < key.at_us >> SPAN_SHIFT)
        return key;
    if (last->index > key.at_us >> SPAN_SHIFT)
        return (fl_key){last->index << SPAN_SHIFT, 0};
    fl_key middle = middle_of(last);
    return key_before(key, middle) ? middle : key;
}

/* Makes room for a row that is being loaded, by forgetting the latest of what has been loaded: rows of a window come in any
 * order of time. Returns the key from which on rows are left for later, which is the row's own if there is no room. A single
 * row always has room, however large it is. */
fl_key fl__memory_load_room(fl_engine *e, fl_key key)
{
    fl_key cut = {INT64_MAX, 0};
    assert(!key_before(key, e->until)); /* what is before it is not for us to forget */
    if (e->loaded == 0 || !fl__memory_is_filled(e, 100))
        return cut;
    memory_is_short(e);
    while (fl__memory_is_filled(e, 90) && key_before(key, cut)) {
        fl_key from = load_cut_for(e, key);
        fl__memory_evict(e, from);
        drop_empty_spans(e);
        if (!key_before(from, cut)) /* nothing more to forget */
            break;
        cut = from;
    }
    if (fl__memory_is_filled(e, 100) && key_before(key, cut)) {
        fl__memory_evict(e, key);
        cut = key;
    }
    return cut;
}

/* What was due and has not been dispatched may not be due any more. The store has it: others of its time may be ahead of it
 * in the wheel, so it is loaded in its turn. */
static void recall_flights(fl_engine *e)
{
    memset(e->flights.late, 0, sizeof e->flights.late);
    for (uint32_t i = 1; i < e->flights.used; i++) {
        const struct flight *flight = &e->flights.list[i];
        bool late = flight->state == FLIGHT_LATE;
        if (flight->state == FLIGHT_WAITING && flight->item->at_us > e->wall_us)
            fl__lane_withdraw(e, i);
        if ((late || flight->state == FLIGHT_HELD) && !flight->superseded && flight->item->at_us > e->wall_us) {
            struct item *item = fl__flight_recall(e, i);
            fl__memory_evict(e, item_key(item));
            fl__memory_free_item(e, item);
        } else if (late) {
            fl__flight_late(e, i);
        }
    }
}

static int fresh_wheel(fl_engine *e, int kind)
{
    fl_wheel *fresh;
    int r =
        fl_wheel_new(&(fl_wheel_config){.start_ns = (uint64_t)fl__memory_reach_us(e, e->wall_us) * NS_PER_US}, &fresh);
    if (r < 0)
        return r;
    fl_wheel_free(e->wheel[kind]);
    e->wheel[kind] = fresh;
    return 0;
}

/* After the clock was set back: fresh wheels, which stand where time does or where what is overdue begins, and nothing is
 * armed. On failure the engine has to begin anew. */
int fl__memory_rebuild(fl_engine *e)
{
    recall_flights(e);
    for (uint32_t i = 0; i < e->span_count; i++) {
        struct span *span = &e->spans[i];
        for (uint32_t j = 0; j < span->count; j++)
            if (span->items[j])
                span->items[j]->wheel_id = 0;
        span->armed = 0;
    }
    e->armed_us = e->wall_us < e->until.at_us ? e->wall_us : e->until.at_us;
    if (e->span_count > 0 && span_begin_us(&e->spans[0]) < e->armed_us)
        e->armed_us = span_begin_us(&e->spans[0]);
    int r = fresh_wheel(e, 0);
    return r < 0 ? r : fresh_wheel(e, RETRIED);
}

/* Forgets everything but orphans. */
void fl__memory_clear(fl_engine *e)
{
    for (uint32_t i = 0; i < e->span_count; i++) {
        for (uint32_t j = 0; j < e->spans[i].count; j++)
            if (e->spans[i].items[j])
                fl__memory_free_item(e, e->spans[i].items[j]);
        fl__release(e->spans[i].items);
    }
    e->span_count = 0;
    for (uint32_t i = 1; i < e->flights.used; i++) {
        struct flight *flight = &e->flights.list[i];
        flight->lane = NULL;
        flight->called = false;
        if (flight->state == FLIGHT_DISPATCHED || flight->state == FLIGHT_WAITING) {
            fl__flight_forget(e, i);
            flight->state = FLIGHT_ORPHAN;
        } else if (flight->state != FLIGHT_FREE && flight->state != FLIGHT_ORPHAN) {
            flight->state = FLIGHT_HELD;
            fl__flight_end(e, i);
        }
    }
    memset(e->flights.late, 0, sizeof e->flights.late);
    memset(e->flights.dispatched, 0, sizeof e->flights.dispatched);
    fl__lanes_clear(e);
    for (int kind = 0; kind < 2; kind++) {
        fl_wheel_free(e->wheel[kind]);
        e->wheel[kind] = NULL;
    }
    e->armed_us = 0;
    e->loaded = 0;
}
