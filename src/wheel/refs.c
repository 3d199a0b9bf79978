/* SPDX-License-Identifier: MIT */
/* Vectors, sorting and heaps of references.
 *
 * Sorting is where expiry spends its time, so it is made for what comes out of a tick: deadlines spread over the tick,
 * already in order where many are equal. One pass looks whether there is anything to do. Then the references are dealt
 * into about half as many buckets as there are references, by the leading bits of their distance from the earliest,
 * and an insertion sort finishes the few that share a bucket: about 10 ns a reference, whatever their number. Where the
 * deadlines are bunched and a bucket overflows, a merge sort does it in n log n. Both are stable, though nothing
 * depends on it: no two timers have the same deadline and rank. */

#include <string.h>

#include "base/alloc.h"
#include "wheel/refs.h"

enum {
    INSERTION_MAX = 16, /* below this, insertion sort is the fastest */
    BUCKET_MAX = 16,    /* more in one bucket, and insertion sort would be slow */
    BUCKETS_MAX = 2048, /* 8 KiB of counters: they stay in the first-level cache */
    RELAXED_MIN = 64,   /* room for so many is nothing to give back */
};

static bool resize(struct refs *refs, size_t capacity)
{
    struct ref *items = fl__resize(refs->items, capacity * sizeof *items);
    if (!items)
        return false;
    refs->items = items;
    refs->capacity = (uint32_t)capacity;
    return true;
}

bool fl__refs_grow(struct refs *refs, size_t more)
{
    size_t wanted = (size_t)refs->length + more, doubled = (size_t)refs->capacity * 2;
    size_t capacity = wanted < 4 ? 4 : wanted < doubled ? doubled : wanted;
    return capacity <= UINT32_MAX && resize(refs, capacity);
}

void fl__refs_release(struct refs *refs)
{
    fl__release(refs->items);
    *refs = (struct refs){0};
}

void fl__refs_shrink(struct refs *refs)
{
    if (refs->length == 0)
        fl__refs_release(refs);
    else
        resize(refs, refs->length);
}

void fl__refs_relax(struct refs *refs)
{
    if (refs->length == 0)
        fl__refs_release(refs);
    else if (refs->capacity > RELAXED_MIN && refs->length < refs->capacity / 4)
        resize(refs, (size_t)refs->length * 2);
}

static void insertion_sort(struct ref *items, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct ref moving = items[i];
        size_t hole = i;
        for (; hole > 0 && fl__ref_before(&moving, &items[hole - 1]); hole--)
            items[hole] = items[hole - 1];
        items[hole] = moving;
    }
}

static void merge(const struct ref *left, const struct ref *middle, const struct ref *end, struct ref *to)
{
    const struct ref *right = middle;
    while (left < middle && right < end)
        *to++ = fl__ref_before(right, left) ? *right++ : *left++;
    memcpy(to, left, (size_t)(middle - left) * sizeof *to);
    memcpy(to + (middle - left), right, (size_t)(end - right) * sizeof *to);
}

static void merge_sort(struct ref *items, size_t count, struct ref *scratch)
{
    for (size_t i = 0; i < count; i += INSERTION_MAX)
        insertion_sort(items + i, count - i < INSERTION_MAX ? count - i : INSERTION_MAX);
    struct ref *from = items, *to = scratch;
    for (size_t width = INSERTION_MAX; width < count; width *= 2) {
        for (size_t i = 0; i < count; i += 2 * width) {
            size_t middle = i + width < count ? i + width : count, end = i + 2 * width < count ? i + 2 * width : count;
            merge(from + i, from + middle, from + end, to + i);
        }
        struct ref *swap = from;
        from = to;
        to = swap;
    }
    if (from != items)
        memcpy(items, from, count * sizeof *items);
}

/* How far to shift a distance of at most `range` so that it numbers one of `buckets`. */
static unsigned bucket_shift(uint64_t range, uint32_t buckets)
{
    unsigned shift = 0;
    while (range >> shift >= buckets)
        shift++;
    return shift;
}

/* Deals the references into buckets by deadline; false, with nothing changed, if a bucket would overflow. */
static bool bucket_sort(struct ref *items, size_t count, uint64_t first_ns, uint64_t last_ns, struct ref *scratch)
{
    uint32_t starts[BUCKETS_MAX];
    uint32_t buckets = 8;
    while (buckets < BUCKETS_MAX && buckets * 2 < count)
        buckets *= 2;
    unsigned shift = bucket_shift(last_ns - first_ns, buckets);

    memset(starts, 0, buckets * sizeof *starts);
    for (size_t i = 0; i < count; i++)
        starts[(items[i].deadline_ns - first_ns) >> shift]++;
    uint32_t start = 0, fullest = 0;
    for (uint32_t i = 0; i < buckets; i++) {
        uint32_t size = starts[i];
        fullest = size > fullest ? size : fullest;
        starts[i] = start;
        start += size;
    }
    if (fullest > BUCKET_MAX)
        return false;
    for (size_t i = 0; i < count; i++)
        scratch[starts[(items[i].deadline_ns - first_ns) >> shift]++] = items[i];
    memcpy(items, scratch, count * sizeof *items);
    insertion_sort(items, count);
    return true;
}

void fl__refs_sort(struct ref *items, size_t count, struct ref *scratch)
{
    if (count <= INSERTION_MAX) {
        insertion_sort(items, count);
        return;
    }
    uint64_t first_ns = items[0].deadline_ns, last_ns = first_ns;
    bool sorted = true;
    for (size_t i = 1; i < count; i++) {
        uint64_t deadline_ns = items[i].deadline_ns;
        sorted &= !fl__ref_before(&items[i], &items[i - 1]);
        first_ns = deadline_ns < first_ns ? deadline_ns : first_ns;
        last_ns = deadline_ns > last_ns ? deadline_ns : last_ns;
    }
    if (!sorted && !bucket_sort(items, count, first_ns, last_ns, scratch))
        merge_sort(items, count, scratch);
}

static void sift_down(struct ref *items, uint32_t length, uint32_t hole, struct ref moving)
{
    for (;;) {
        uint64_t child = 2 * (uint64_t)hole + 1;
        if (child >= length)
            break;
        if (child + 1 < length && fl__ref_before(&items[child + 1], &items[child]))
            child++;
        if (!fl__ref_before(&items[child], &moving))
            break;
        items[hole] = items[child];
        hole = (uint32_t)child;
    }
    items[hole] = moving;
}

void fl__heap_build(struct refs *refs)
{
    for (uint32_t i = refs->length / 2; i-- > 0;)
        sift_down(refs->items, refs->length, i, refs->items[i]);
}

static void sift_up(struct ref *items, uint32_t hole, struct ref moving)
{
    while (hole > 0 && fl__ref_before(&moving, &items[(hole - 1) / 2])) {
        items[hole] = items[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    items[hole] = moving;
}

void fl__heap_push(struct refs *refs, struct ref ref)
{
    sift_up(refs->items, refs->length++, ref);
}

/* The last one takes its place, and moves from there to where it belongs. */
void fl__heap_remove(struct refs *refs, uint32_t at)
{
    struct ref last = refs->items[--refs->length];
    if (at > 0 && fl__ref_before(&last, &refs->items[(at - 1) / 2]))
        sift_up(refs->items, at, last);
    else if (at < refs->length)
        sift_down(refs->items, refs->length, at, last);
}
