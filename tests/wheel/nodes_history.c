/* SPDX-License-Identifier: MIT */
/* Reads bytes as the history of an intrusive wheel and runs it beside the model of nodes_model.h.
 *
 * Every string of bytes is a history, so that a fuzzer may change any of them. Deadlines are chosen where they are likely to
 * go wrong: at every distance, in clusters of any width, equal to others, past, 0, UINT64_MAX. */

#include <stdlib.h>

#include "wheel/allocator.h"
#include "wheel/nodes_model.h"
#include "wheel/wheel_test.h"

#define OBJECTS 6000
#define MAX_OPERATIONS 3000

struct history {
    const uint8_t *bytes, *end;
    struct pair pair;
    uint64_t random;
    uint64_t recent_ns;
};

static uint8_t byte(struct history *h)
{
    return h->bytes < h->end ? *h->bytes++ : 0;
}

static uint64_t number(struct history *h, unsigned bytes)
{
    uint64_t n = 0;
    while (bytes-- > 0)
        n = n << 8 | byte(h);
    return n;
}

static uint64_t magnitude(struct history *h)
{
    return (number(h, 2) | 1ull << 16) << byte(h) % 48 >> 16;
}

static uint64_t some_time(struct history *h)
{
    const struct pair *p = &h->pair;
    uint64_t back_ns;
    switch (byte(h) % 12) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX - byte(h) % 3;
    case 2:
        back_ns = magnitude(h);
        return p->now_ns > back_ns ? p->now_ns - back_ns : 0;
    case 3:
        return number(h, 8);
    case 4:
        return h->recent_ns;
    case 5:
        return p->waiting_count > 0 ? p->waiting[number(h, 2) % p->waiting_count]->deadline_ns : p->now_ns;
    case 6:
        return saturating_add(p->now_ns | ((1ull << byte(h) % 48) - 1), byte(h) % 3); /* beside the borders of spokes */
    default:
        return saturating_add(p->now_ns, magnitude(h));
    }
}

static struct object *some_object(struct history *h)
{
    return &h->pair.objects[number(h, 2) % OBJECTS];
}

static struct object *waiting_object(struct history *h)
{
    struct pair *p = &h->pair;
    if (p->waiting_count == 0)
        return some_object(h);
    return p->waiting[byte(h) % 2 ? number(h, 2) % p->waiting_count : 0];
}

static void do_start(struct history *h)
{
    h->recent_ns = some_time(h);
    pair_start(&h->pair, some_object(h), h->recent_ns);
}

static void do_move(struct history *h)
{
    struct object *object = waiting_object(h);
    pair_start(&h->pair, object, some_time(h));
}

/* Many nodes: equal, in a cluster of any width, or with gaps that grow. */
static void do_start_many(struct history *h)
{
    uint64_t from_ns = some_time(h), span_ns = magnitude(h);
    unsigned count = 1 + byte(h) * (1 + byte(h) % 16), kind = byte(h) % 4;
    for (unsigned i = 0; i < count; i++) {
        struct object *object = &h->pair.objects[random_below(&h->random, OBJECTS)];
        uint64_t after_ns = kind == 0   ? 0
                            : kind == 1 ? 1ull << random_below(&h->random, 40)
                                        : random_below(&h->random, span_ns + 1);
        pair_start(&h->pair, object, saturating_add(from_ns, after_ns));
    }
}

static void do_stop(struct history *h)
{
    pair_stop(&h->pair, byte(h) % 4 == 0 ? some_object(h) : waiting_object(h));
}

static void do_stop_many(struct history *h)
{
    struct pair *p = &h->pair;
    size_t keep = byte(h) % 4, from = p->waiting_count > 0 ? number(h, 2) % p->waiting_count : 0;
    for (size_t count = byte(h) * 8u, rank = from; count > 0 && rank < p->waiting_count; count--) {
        if (random_below(&h->random, 4) >= keep)
            pair_stop(p, p->waiting[rank]);
        else
            rank++;
    }
}

/* Stops the earliest again and again, and asks for the next. */
static void do_stop_earliest(struct history *h)
{
    for (unsigned count = byte(h); count > 0 && h->pair.waiting_count > 0; count--) {
        pair_stop(&h->pair, h->pair.waiting[0]);
        pair_next(&h->pair);
    }
}

static uint64_t next_now(struct history *h)
{
    const struct pair *p = &h->pair;
    uint64_t first_ns = p->waiting_count > 0 ? p->waiting[0]->deadline_ns : p->now_ns;
    switch (byte(h) % 8) {
    case 0:
        return p->now_ns;
    case 1:
        return number(h, 7);
    case 2:
        return first_ns;
    case 3:
        return first_ns > 0 ? first_ns - 1 : 0;
    case 4:
        return p->waiting_count > 0 ? p->waiting[number(h, 2) % p->waiting_count]->deadline_ns : p->now_ns;
    case 5:
        return byte(h) == 0 ? UINT64_MAX : saturating_add(p->now_ns, MILLISECOND);
    default:
        return saturating_add(p->now_ns, magnitude(h));
    }
}

static void do_poll(struct history *h)
{
    static const size_t limits[] = {0, 1, 2, 3, 17, 64, 500, SIZE_MAX};
    pair_poll(&h->pair, next_now(h), limits[byte(h) % 8]);
}

/* As a server does: timers that come out are started again. */
static void do_poll_and_restart(struct history *h)
{
    struct pair *p = &h->pair;
    size_t limit = 1 + byte(h) % 64;
    for (unsigned left = byte(h) % 32; left > 0; left--) {
        pair_poll(p, saturating_add(p->now_ns, MILLISECOND), limit);
        for (size_t i = 0; i < p->out_count; i++) {
            struct object *object = (struct object *)((char *)p->out[i] - offsetof(struct object, node));
            pair_start(p, object, saturating_add(p->now_ns, random_distance(&h->random, HOUR)));
        }
    }
}

static void do_next(struct history *h)
{
    pair_next(&h->pair);
}

static void do_fail(struct history *h)
{
    uint8_t kind = byte(h);
    memory_fail(kind % 3 == 0 ? 0 : 1 + byte(h) % 32, kind % 3 == 2);
}

static void (*const operations[])(struct history *h) = {
    do_start,         do_start, do_start, do_start_many, do_move, do_stop, do_stop_many,
    do_stop_earliest, do_poll,  do_poll,  do_poll,       do_next, do_fail, do_poll_and_restart,
};

int nodes_history(const uint8_t *bytes, size_t size)
{
    struct history h = {.bytes = bytes, .end = bytes + size};
    uint8_t kind = byte(&h);
    h.random = number(&h, 2);
    pair_new(&h.pair, kind % 4 == 0 ? number(&h, 8) : kind % 4 == 1 ? 0 : number(&h, 6), OBJECTS);
    h.pair.check_rarely = kind & 4;
    unsigned weight = 1 + kind / 8 % 4;
    for (unsigned i = 0; h.bytes < h.end && i < MAX_OPERATIONS; i++) {
        unsigned operation = byte(&h) % (sizeof operations / sizeof *operations);
        /* Histories differ in kind: some leave out what empties the wheel, or what fills it. */
        if (operation % 4 + 1 != weight || byte(&h) % 2)
            operations[operation](&h);
    }
    pair_free(&h.pair);
    return 0;
}
