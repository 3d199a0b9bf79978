/* SPDX-License-Identifier: MIT */
/* A heap as good as we can make it: what a programmer who knows the memory would write instead of taking a library.
 *
 * Four-ary, with the deadline cached in the entry, so that comparing two timers does not touch them. An entry is 16
 * bytes; the root is at index 3 and the array begins on a page, so the four children of a node share one cache line of
 * 64 bytes. The handle is the timer's place in the heap, so that cancelling finds it. Moving an entry writes the handle
 * of the timer that it belongs to: that store to random memory is what cancelling costs. */

#include <sys/mman.h>

#include "../frame.h"
#include "rival.h"
#include "virtual_clock.h"

enum { ROOT = 3, FIRST_CAPACITY = 1024 };

struct entry {
    uint64_t deadline_ns;
    uint32_t *place; /* the handle: where this entry is */
};

struct heap {
    struct entry *entries;
    size_t end, capacity; /* entries are at ROOT … end-1 */
    bool huge_pages;
};

static uint64_t encode(uint64_t delay_ns)
{
    return delay_ns;
}

static inline size_t parent_of(size_t i)
{
    return (i - ROOT - 1) / 4 + ROOT;
}

static inline size_t first_child_of(size_t i)
{
    return 4 * (i - ROOT) + ROOT + 1;
}

static inline void put(struct heap *h, size_t i, struct entry entry)
{
    h->entries[i] = entry;
    *entry.place = (uint32_t)i;
}

static void sift_up(struct heap *h, size_t i, struct entry entry)
{
    while (i > ROOT && h->entries[parent_of(i)].deadline_ns > entry.deadline_ns) {
        put(h, i, h->entries[parent_of(i)]);
        i = parent_of(i);
    }
    put(h, i, entry);
}

static inline size_t least_child(const struct heap *h, size_t first)
{
    size_t least = first, last = first + 4 < h->end ? first + 4 : h->end;
    for (size_t i = first + 1; i < last; i++)
        least = h->entries[i].deadline_ns < h->entries[least].deadline_ns ? i : least;
    return least;
}

static void sift_down(struct heap *h, size_t i, struct entry entry)
{
    for (size_t first; (first = first_child_of(i)) < h->end;) {
        size_t child = least_child(h, first);
        if (h->entries[child].deadline_ns >= entry.deadline_ns)
            break;
        put(h, i, h->entries[child]);
        i = child;
    }
    put(h, i, entry);
}

/* Puts an entry where another has left. */
static void settle(struct heap *h, size_t i, struct entry entry)
{
    if (i > ROOT && h->entries[parent_of(i)].deadline_ns > entry.deadline_ns)
        sift_up(h, i, entry);
    else
        sift_down(h, i, entry);
}

static void grow(struct heap *h, size_t capacity)
{
    void *moved =
        h->entries
            ? mremap(h->entries, h->capacity * sizeof(struct entry), capacity * sizeof(struct entry), MREMAP_MAYMOVE)
            : mmap(NULL, capacity * sizeof(struct entry), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (moved == MAP_FAILED)
        bench_die("no memory for a heap of %zu", capacity);
    if (h->huge_pages)
        madvise(moved, capacity * sizeof(struct entry), MADV_HUGEPAGE);
    h->entries = moved;
    h->capacity = capacity;
}

static void *create(bool huge_pages)
{
    static struct heap heap;
    heap = (struct heap){.end = ROOT, .huge_pages = huge_pages};
    grow(&heap, FIRST_CAPACITY);
    return &heap;
}

static void destroy(void *self)
{
    struct heap *h = self;
    munmap(h->entries, h->capacity * sizeof(struct entry));
}

static void prepare(void *self, void *handle)
{
    (void)self, (void)handle;
}

static void schedule(void *self, void *handle, uint64_t delay)
{
    struct heap *h = self;
    if (h->end == h->capacity)
        grow(h, h->capacity * 2);
    sift_up(h, h->end++, (struct entry){virtual_clock_ns() + delay, handle});
}

static void cancel(void *self, void *handle)
{
    struct heap *h = self;
    size_t i = *(uint32_t *)handle;
    struct entry last = h->entries[--h->end];
    if (i < h->end)
        settle(h, i, last);
}

static void reschedule(void *self, void *handle, uint64_t delay)
{
    settle(self, *(uint32_t *)handle, (struct entry){virtual_clock_ns() + delay, handle});
}

static void poll(void *self)
{
    struct heap *h = self;
    uint64_t now_ns = virtual_clock_ns();
    while (h->end > ROOT && h->entries[ROOT].deadline_ns <= now_ns) {
        void *handle = h->entries[ROOT].place;
        struct entry last = h->entries[--h->end];
        if (h->end > ROOT)
            sift_down(h, ROOT, last);
        timer_fired(handle);
    }
}

const struct timer_rival rival_heap = {
    .handle_size = sizeof(uint32_t),
    .leaves_handle = true,
    .encode = encode,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .schedule = schedule,
    .cancel = cancel,
    .reschedule = reschedule,
    .poll = poll,
};
