/* SPDX-License-Identifier: MIT */
/* A zone as a table of changes: see zone_internal.h for its form.
 *
 * An offset is less than 26 hours. So the instants at which a clock can show a civil time L lie within 26 hours of L,
 * and looking at the spans that touch this range is enough, however close to each other the changes are. */

#include "text/zone.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "text/civil.h"
#include "text/zone_internal.h"

static const int32_t utc_offset[1];
static struct zone utc = {.refs = 1, .fold_s = ZONE_END_S, .offsets = utc_offset};

struct zone *zone_utc(void)
{
    return zone_ref(&utc);
}

struct zone *zone_ref(struct zone *zone)
{
    atomic_fetch_add_explicit(&zone->refs, 1, memory_order_relaxed);
    return zone;
}

void zone_unref(struct zone *zone)
{
    if (zone && atomic_fetch_sub_explicit(&zone->refs, 1, memory_order_acq_rel) == 1) {
        assert(zone != &utc);
        fl__release(zone);
    }
}

bool zone_changes_add(struct zone_changes *changes, int64_t at_s, int32_t offset_s)
{
    assert(changes->count == 0 || at_s >= changes->list[changes->count - 1].at_s);
    if (changes->count > 0 && changes->list[changes->count - 1].at_s == at_s) {
        changes->list[changes->count - 1].offset_s = offset_s;
        return true;
    }
    if (changes->count == changes->room) {
        size_t room = changes->room ? changes->room * 2 : 64;
        void *list = fl__resize(changes->list, room * sizeof *changes->list);
        if (!list)
            return false;
        changes->list = list;
        changes->room = room;
    }
    changes->list[changes->count++] = (struct zone_change){at_s, offset_s};
    return true;
}

struct zone *zone_new(const struct zone_changes *changes, int64_t fold_s)
{
    size_t room = changes->count;
    struct zone *zone = fl__alloc(sizeof *zone + room * sizeof *zone->changes_s + (room + 1) * sizeof *zone->offsets);
    if (!zone)
        return NULL;
    int32_t *offsets = (int32_t *)(zone->changes_s + room);
    uint32_t count = 0;
    offsets[0] = changes->first_s;
    for (size_t i = 0; i < room; i++) {
        if (changes->list[i].offset_s == offsets[count])
            continue; /* another name for the same time */
        zone->changes_s[count++] = changes->list[i].at_s;
        offsets[count] = changes->list[i].offset_s;
    }
    atomic_init(&zone->refs, 1);
    zone->count = count;
    zone->offsets = offsets;
    /* A rule that changes nothing, such as daylight saving time throughout the year, has nothing to repeat. */
    zone->fold_s = count > 0 && zone->changes_s[count - 1] >= fold_s ? fold_s : ZONE_END_S;
    return zone;
}

bool zone_same(const struct zone *a, const struct zone *b)
{
    return a == b || (a->count == b->count && a->fold_s == b->fold_s &&
                      memcmp(a->changes_s, b->changes_s, a->count * sizeof *a->changes_s) == 0 &&
                      memcmp(a->offsets, b->offsets, (a->count + 1) * sizeof *a->offsets) == 0);
}

/* How many changes are at or before `at_s`. The loop has no branch that depends on the data. */
static uint32_t changes_until(const struct zone *zone, int64_t at_s)
{
    const int64_t *base = zone->changes_s;
    uint32_t n = zone->count;
    if (n == 0)
        return 0;
    while (n > 1) {
        uint32_t half = n / 2;
        base += base[half - 1] <= at_s ? half : 0;
        n -= half;
    }
    return (uint32_t)(base - zone->changes_s) + (*base <= at_s);
}

struct zone_span zone_span(const struct zone *zone, int64_t at_s)
{
    assert(at_s > ZONE_BEGIN_S && at_s < ZONE_END_S);
    int64_t shift_s = 0;
    if (at_s >= zone->fold_s)
        shift_s = ((at_s - zone->fold_s) / CIVIL_CYCLE_S + 1) * CIVIL_CYCLE_S;
    uint32_t i = changes_until(zone, at_s - shift_s);
    assert(shift_s == 0 || (i > 0 && i < zone->count));
    return (struct zone_span){
        .begin_s = i > 0 ? zone->changes_s[i - 1] + shift_s : ZONE_BEGIN_S,
        .end_s = i < zone->count ? zone->changes_s[i] + shift_s : ZONE_END_S,
        .offset_s = zone->offsets[i],
        .before_s = zone->offsets[i > 0 ? i - 1 : 0],
    };
}

int32_t zone_offset(const struct zone *zone, int64_t at_s)
{
    return zone_span(zone, at_s).offset_s;
}

bool zone_next_change(const struct zone *zone, int64_t at_s, int64_t *ret_s)
{
    struct zone_span span = zone_span(zone, at_s);
    if (span.end_s == ZONE_END_S)
        return false;
    *ret_s = span.end_s;
    return true;
}

int zone_instants(const struct zone *zone, int64_t local_s, int64_t *ret_s, int max)
{
    int count = 0;
    struct zone_span span = zone_span(zone, local_s - ZONE_OFFSET_MAX_S);
    for (;; span = zone_span(zone, span.end_s)) {
        int64_t at_s = local_s - span.offset_s;
        if (at_s >= span.begin_s && at_s < span.end_s && count++ < max)
            ret_s[count - 1] = at_s;
        if (span.end_s > local_s + ZONE_OFFSET_MAX_S)
            return count;
    }
}

/* The first moment at which the clock jumps over a civil time that it never shows. */
static int64_t gap_end(const struct zone *zone, int64_t local_s)
{
    struct zone_span span = zone_span(zone, local_s - ZONE_OFFSET_MAX_S);
    while (span.begin_s + span.before_s > local_s || span.begin_s + span.offset_s <= local_s) {
        assert(span.end_s <= local_s + ZONE_OFFSET_MAX_S);
        span = zone_span(zone, span.end_s);
    }
    return span.begin_s;
}

struct zone_place zone_place(const struct zone *zone, int64_t local_s)
{
    struct zone_place place = {0};
    place.passes = zone_instants(zone, local_s, &place.at_s, 1);
    if (place.passes == 0)
        place.at_s = gap_end(zone, local_s);
    return place;
}

int64_t zone_place_us(const struct zone *zone, int64_t local_us)
{
    int64_t local_s = local_us / 1000000 - (local_us % 1000000 < 0);
    struct zone_place place = zone_place(zone, local_s);
    return place.at_s * 1000000 + (place.passes > 0 ? local_us - local_s * 1000000 : 0);
}
