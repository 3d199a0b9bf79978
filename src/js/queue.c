/* SPDX-License-Identifier: MIT */
/* The timers that scripts set and clear: see queue.h. */

#include "js/queue.h"

#include <assert.h>
#include <time.h>

#include "js/js.h"

#define NS_PER_MS INT64_C(1000000)

enum {
    PLACES_KEPT = 4096,    /* that are not worth giving back */
    TOLERANCE_NS = 100000, /* by which the two clocks may be read apart */
    DRIFT_PARTS = 1000,    /* the wall clock is slewed by less than 1/1000 */
};

struct queue queue;

/* --- When */

/* A moment on both clocks. Timers from index `first` of the queue on, up to the next mark, were set at it or later. */
struct mark {
    int64_t now_ns, wall_ns;
    int32_t first;
};

/* Every mark is made for a timer, so there are never more. */
static struct mark marks[QUEUE_LENGTH];
static int32_t mark_count;

static struct mark read_clocks(void)
{
    struct timespec wall;
    fl_clock *clock = fl_clock_monotonic();
    clock_gettime(CLOCK_REALTIME, &wall);
    return (struct mark){
        .now_ns = (int64_t)clock->now_ns(clock),
        .wall_ns = (int64_t)wall.tv_sec * 1000 * NS_PER_MS + wall.tv_nsec,
        .first = queue.state[STATE_SET],
    };
}

void queue_mark(void)
{
    assert(mark_count < QUEUE_LENGTH);
    marks[mark_count++] = read_clocks();
}

/* Before these moments the first `stamped` timers of the queue were set. */
static uint64_t stamp_ns[QUEUE_LENGTH];
static int32_t stamped;

void queue_stamp(uint64_t now_ns)
{
    while (stamped < queue.state[STATE_SET])
        stamp_ns[stamped++] = now_ns;
}

/* Before which moment the timers between two marks were set, but for the first of them, which was set at `from`. */
static int64_t end_ns(const struct mark *from, const struct mark *to)
{
    int64_t passed_ns = to->now_ns - from->now_ns, wall_ns = to->wall_ns - from->wall_ns;
    int64_t tolerance_ns = TOLERANCE_NS + passed_ns / DRIFT_PARTS;
    bool steady = passed_ns - wall_ns <= tolerance_ns && wall_ns - passed_ns <= tolerance_ns;
    int64_t end_ns = from->now_ns + NS_PER_MS + tolerance_ns;
    return steady && end_ns < to->now_ns ? end_ns : to->now_ns;
}

static void stamp(int32_t i, int64_t ns)
{
    if (i >= stamped || (uint64_t)ns < stamp_ns[i])
        stamp_ns[i] = (uint64_t)ns;
}

/* Finds for each timer of the queue when it was set, or a little later; on the loop's clock. */
static void stamp_by_marks(void)
{
    struct mark end = read_clocks();
    for (int32_t m = 0; m < mark_count; m++) {
        const struct mark *from = &marks[m], *to = m + 1 < mark_count ? &marks[m + 1] : &end;
        int64_t at_ns = from->now_ns, later_ns = end_ns(from, to);
        for (int32_t i = from->first; i < to->first; i++, at_ns = later_ns)
            stamp(i, at_ns);
    }
    mark_count = 0;
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
    stamp_by_marks();
    for (int32_t i = 0; i < count; i++) {
        fl_webtimers_options options = {
            .delay = queue.delays[i],
            .called_ns = stamp_ns[i],
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
    define_array(object, "cleared", kJSTypedArrayTypeInt32Array, queue.cleared, sizeof(queue.cleared));
    return reserve(QUEUE_LENGTH);
}
