/* SPDX-License-Identifier: MIT */
/* The timers that scripts set and clear: see queue.h. */

#include "js/queue.h"

#include <time.h>

#include "js/host.h"

#define NS_PER_MS INT64_C(1000000)

enum {
    TOLERANCE_NS = 100000, /* by which the wall clock may have drifted between two readings */
    PLACES_KEPT = 4096,    /* that are not worth giving back */
};

struct queue queue;

/* --- When */

/* The moment of a reading. `offset_ns` is what to add to the wall clock to have the loop's. */
struct reading {
    int64_t now_ns, offset_ns;
    bool steady; /* the wall clock was not set since the last reading */
};

static struct reading last;

/* Before these moments the first `stamped` timers of the queue were set. */
static uint64_t stamp_ns[QUEUE_LENGTH];
static int32_t stamped;

void queue_stamp(uint64_t now_ns)
{
    while (stamped < queue.state[STATE_SET])
        stamp_ns[stamped++] = now_ns;
}

static struct reading read_clocks(void)
{
    struct timespec wall;
    fl_clock *clock = fl_clock_monotonic();
    clock_gettime(CLOCK_REALTIME, &wall);
    struct reading now = {.now_ns = (int64_t)clock->now_ns(clock)};
    now.offset_ns = now.now_ns - ((int64_t)wall.tv_sec * 1000 * NS_PER_MS + wall.tv_nsec);
    int64_t drift_ns = now.offset_ns - last.offset_ns;
    now.steady = drift_ns <= TOLERANCE_NS && drift_ns >= -TOLERANCE_NS;
    last = now;
    return now;
}

/* When the i-th timer was set, or a little later; on the loop's clock. */
static uint64_t called_ns(const struct reading *reading, int32_t i)
{
    int64_t end_ns = ((int64_t)queue.called_ms[i] + 1) * NS_PER_MS + reading->offset_ns + TOLERANCE_NS;
    bool long_ago = reading->steady && end_ns > 0 && end_ns < reading->now_ns;
    uint64_t called_ns = (uint64_t)(long_ago ? end_ns : reading->now_ns);
    return i < stamped && stamp_ns[i] < called_ns ? stamp_ns[i] : called_ns;
}

/* --- What */

static void must(int r)
{
    if (r < 0)
        host_die(r);
}

static void read_cleared(void)
{
    int32_t count = queue.state[STATE_CLEARED];
    for (int32_t i = 0; i < count; i++)
        fl_webtimers_clear(host.timers, queue.cleared[i]);
    queue.state[STATE_CLEARED] = 0;
}

/* One that was cleared in the meantime is no longer reserved. */
static void read_set(int32_t count)
{
    struct reading reading = read_clocks();
    for (int32_t i = 0; i < count; i++) {
        fl_webtimers_options options = {
            .delay = queue.delays[i],
            .called_ns = called_ns(&reading, i),
            .repeat = queue.flags[i] & SET_REPEATS,
            .microtask = !(queue.flags[i] & SET_HANDLING),
        };
        int r = fl_webtimers_start(host.timers, queue.ids[i], &options);
        if (r != FL_TIMER_NOT_FOUND)
            must(r);
    }
}

static int reserve(int32_t count)
{
    int r = 0;
    for (int32_t i = 0; i < count && r == 0; i++)
        r = fl_webtimers_reserve(host.timers, &queue.ids[i]);
    queue.state[STATE_PLACES] = (int32_t)fl_webtimers_places(host.timers);
    return r;
}

void queue_read(void)
{
    int32_t count = queue.state[STATE_SET];
    if (queue.state[STATE_CLEARED] > 0)
        read_cleared();
    if (count > 0) {
        read_set(count);
        queue.state[STATE_SET] = stamped = 0;
        must(reserve(count));
    }
}

void queue_rest(void)
{
    if (fl_webtimers_places(host.timers) <= PLACES_KEPT || fl_webtimers_count(host.timers) > 0)
        return;
    for (int32_t i = 0; i < QUEUE_LENGTH; i++)
        fl_webtimers_clear(host.timers, queue.ids[i]);
    must(reserve(QUEUE_LENGTH));
}

/* --- Beginning */

static void define_array(JSObjectRef object, const char *name, JSTypedArrayType type, void *bytes, size_t size)
{
    host_set(object, name, JSObjectMakeTypedArrayWithBytesNoCopy(host.context, type, bytes, size, NULL, NULL, NULL));
}

int queue_begin(JSObjectRef object)
{
    define_array(object, "state", kJSTypedArrayTypeInt32Array, queue.state, sizeof(queue.state));
    define_array(object, "ids", kJSTypedArrayTypeInt32Array, queue.ids, sizeof(queue.ids));
    define_array(object, "delays", kJSTypedArrayTypeInt32Array, queue.delays, sizeof(queue.delays));
    define_array(object, "flags", kJSTypedArrayTypeInt32Array, queue.flags, sizeof(queue.flags));
    define_array(object, "calledMs", kJSTypedArrayTypeFloat64Array, queue.called_ms, sizeof(queue.called_ms));
    define_array(object, "cleared", kJSTypedArrayTypeInt32Array, queue.cleared, sizeof(queue.cleared));
    read_clocks();
    return reserve(QUEUE_LENGTH);
}
