/* SPDX-License-Identifier: MIT */
/* A ring of pointers, indexed by the number of the event. It is limited by bytes; the number of pointers follows from the
 * least size that an event has, so a look-up takes one access. */

#include "api/event_ring.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define EVENT_LEAST 128 /* bytes: the head of an event and the shortest text */

struct event_ring {
    pthread_mutex_t lock;
    uint64_t begin;        /* the number before the first event */
    uint64_t oldest, next; /* the range of kept events */
    uint64_t bytes, bytes_most, slots;
    struct event_kept *kept[]; /* index: number modulo slots */
};

int event_ring_new(uint64_t bytes, uint64_t random, struct event_ring **ret)
{
    uint64_t slots = bytes / EVENT_LEAST;
    fl__assert(slots > 0);
    struct event_ring *ring = calloc(1, sizeof *ring + slots * sizeof(struct event_kept *));
    if (!ring)
        return FL_NO_MEMORY;
    ring->begin = random & ((UINT64_C(1) << 52) - 1);
    ring->oldest = ring->next = ring->begin + 1;
    ring->bytes_most = bytes;
    ring->slots = slots;
    pthread_mutex_init(&ring->lock, NULL);
    *ret = ring;
    return 0;
}

static uint64_t size_of(const struct event_kept *event)
{
    return sizeof *event + event->text.size + event->ns.size;
}

static void drop_oldest(struct event_ring *ring)
{
    struct event_kept **slot = &ring->kept[ring->oldest++ % ring->slots];
    fl__assert(ring->oldest <= ring->next);
    if (*slot)
        ring->bytes -= size_of(*slot);
    free(*slot);
    *slot = NULL;
}

void event_ring_free(struct event_ring *ring)
{
    if (!ring)
        return;
    while (ring->oldest < ring->next)
        drop_oldest(ring);
    fl__assert(ring->bytes == 0);
    pthread_mutex_destroy(&ring->lock);
    free(ring);
}

void event_ring_lock(struct event_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
}

void event_ring_unlock(struct event_ring *ring)
{
    pthread_mutex_unlock(&ring->lock);
}

static struct event_kept *copy_of(enum event_kind kind, fl_bytes text, fl_bytes ns)
{
    struct event_kept *event = malloc(sizeof *event + text.size + ns.size);
    if (!event)
        return NULL;
    memcpy(event->bytes, text.data, text.size);
    memcpy(event->bytes + text.size, ns.data, ns.size);
    event->kind = kind;
    event->text = (fl_bytes){event->bytes, text.size};
    event->ns = (fl_bytes){event->bytes + text.size, ns.size};
    return event;
}

uint64_t event_ring_add(struct event_ring *ring, enum event_kind kind, fl_bytes text, fl_bytes ns)
{
    struct event_kept *event = copy_of(kind, text, ns);
    uint64_t bytes = event ? size_of(event) : 0;
    while (ring->oldest < ring->next &&
           (ring->bytes + bytes > ring->bytes_most || ring->next - ring->oldest == ring->slots))
        drop_oldest(ring);
    fl__assert(!ring->kept[ring->next % ring->slots]);
    ring->kept[ring->next % ring->slots] = event;
    ring->bytes += bytes;
    return ring->next++;
}

uint64_t event_ring_last(const struct event_ring *ring)
{
    return ring->next - 1;
}

uint64_t event_ring_oldest(const struct event_ring *ring)
{
    return ring->oldest;
}

bool event_ring_knows(const struct event_ring *ring, uint64_t id)
{
    return id >= ring->begin && id < ring->next;
}

const struct event_kept *event_ring_at(const struct event_ring *ring, uint64_t id)
{
    fl__assert(id >= ring->oldest && id < ring->next);
    return ring->kept[id % ring->slots];
}
