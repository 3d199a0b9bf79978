/* SPDX-License-Identifier: MIT */
/* Wake-ups at a time, of any coroutine, by any thread.
 *
 * A wake-up is a timer of the runtime and a slot in the group's table. The slot's ID counts up each time the slot is
 * freed, so an ID names one wake-up for ever: a slot that has given its 2^32 names is not used again. That costs 20 bytes
 * every seven minutes at ten million wake-ups a second. Whether a wake-up comes or is cancelled is decided by the timer alone: when
 * cancelling it succeeds, its callback will not be called and the canceller frees the wake-up, else the callback
 * does. Both change the table under the group's lock.
 */

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "coro/coro.h"

struct coro_wake {
    struct coro_group *group;
    struct fl_coro *coro;
    fl_timer *timer;
    uint32_t slot;
};

#define NEXT_ID ((uint64_t)1 << 32)

/* --- The table; the group is locked */

static int grow(struct wake_table *table)
{
    uint32_t capacity = table->capacity ? table->capacity * 2 : 64;
    if (capacity < table->capacity)
        return FL_CAPACITY_EXCEEDED;
    struct coro_wake **wakes = fl__resize(table->wakes, capacity * sizeof(struct coro_wake *));
    if (wakes)
        table->wakes = wakes;
    uint64_t *ids = wakes ? fl__resize(table->ids, capacity * sizeof(*ids)) : NULL;
    if (ids)
        table->ids = ids;
    uint32_t *free = ids ? fl__resize(table->free, capacity * sizeof(*free)) : NULL;
    if (!free)
        return FL_NO_MEMORY;
    table->free = free;
    for (uint32_t slot = capacity; slot-- > table->capacity;) {
        table->wakes[slot] = NULL;
        table->ids[slot] = NEXT_ID | slot;
        table->free[table->free_count++] = slot;
    }
    table->capacity = capacity;
    return 0;
}

static int insert(struct wake_table *table, struct coro_wake *wake, uint64_t *ret_id)
{
    int r = table->free_count > 0 ? 0 : grow(table);
    if (r < 0)
        return r;
    wake->slot = table->free[--table->free_count];
    table->wakes[wake->slot] = wake;
    *ret_id = table->ids[wake->slot];
    return 0;
}

static void remove_wake(struct wake_table *table, const struct coro_wake *wake)
{
    assert(table->wakes[wake->slot] == wake);
    table->wakes[wake->slot] = NULL;
    table->ids[wake->slot] += NEXT_ID;
    if (table->ids[wake->slot] >= NEXT_ID) /* else it is worn out */
        table->free[table->free_count++] = wake->slot;
}

static struct coro_wake *find(const struct wake_table *table, uint64_t id)
{
    uint32_t slot = (uint32_t)id;
    return slot < table->capacity && table->ids[slot] == id ? table->wakes[slot] : NULL;
}

/* --- Wake-ups */

static void free_wake(struct coro_wake *wake)
{
    fl_timer_unref(wake->timer);
    fl_coro_unref(wake->coro);
    fl__release(wake);
}

static void on_time(void *arg)
{
    struct coro_wake *wake = arg;
    struct coro_group *group = wake->group;
    pthread_mutex_lock(&group->lock);
    remove_wake(&group->wakes, wake);
    pthread_mutex_unlock(&group->lock);
    fl_coro_unpark(wake->coro);
    free_wake(wake);
}

static int new_wake(fl_coro *coro, struct coro_wake **ret)
{
    struct coro_wake *wake = fl__alloc_zeroed(sizeof(*wake));
    if (!wake)
        return FL_NO_MEMORY;
    wake->group = coro->sched->group;
    int r = fl_timer_new(wake->group->rt, on_time, wake, &wake->timer);
    if (r < 0) {
        fl__release(wake);
        return r;
    }
    wake->coro = fl_coro_ref(coro);
    *ret = wake;
    return 0;
}

static int start(struct coro_wake *wake, uint64_t deadline_ns, uint64_t *ret_id)
{
    assert(wake->timer && wake->coro);
    struct coro_group *group = wake->group;
    pthread_mutex_lock(&group->lock);
    int r = insert(&group->wakes, wake, ret_id);
    if (r == 0) {
        r = fl_timer_start(wake->timer, deadline_ns);
        if (r < 0)
            remove_wake(&group->wakes, wake);
    }
    pthread_mutex_unlock(&group->lock);
    return r;
}

int fl_coro_wake_at(fl_coro *coro, uint64_t deadline_ns, fl_coro_wake *ret)
{
    uint64_t id = 0;
    if (!(atomic_load(&coro->word) & CORO_DONE)) {
        struct coro_wake *wake;
        int r = new_wake(coro, &wake);
        if (r < 0)
            return r;
        r = start(wake, deadline_ns, &id);
        if (r < 0) {
            free_wake(wake);
            return r;
        }
    }
    if (ret)
        *ret = id;
    return 0;
}

int fl_coro_wake_after(fl_coro *coro, uint64_t delay_ns, fl_coro_wake *ret)
{
    uint64_t now_ns = 0;
    if (!(atomic_load(&coro->word) & CORO_DONE))
        now_ns = fl__runtime_now_ns(coro->sched->group->rt);
    return fl_coro_wake_at(coro, add_time(now_ns, delay_ns), ret);
}

int fl_coro_wake_cancel(fl_runtime *rt, fl_coro_wake wake)
{
    struct fl__runtime_layer *layer = fl__runtime_get_layer(rt);
    if (!layer)
        return FL_TIMER_NOT_FOUND;
    struct coro_group *group = fl__coro_group_of(rt);
    pthread_mutex_lock(&group->lock);
    struct coro_wake *found = find(&group->wakes, wake);
    if (found && !fl_timer_cancel(found->timer))
        found = NULL;
    if (found)
        remove_wake(&group->wakes, found);
    pthread_mutex_unlock(&group->lock);
    if (!found)
        return FL_TIMER_NOT_FOUND;
    free_wake(found);
    return 0;
}

void fl__coro_wakes_free(struct coro_group *group)
{
    struct wake_table *table = &group->wakes;
    for (uint32_t slot = 0; slot < table->capacity; slot++)
        if (table->wakes[slot])
            free_wake(table->wakes[slot]);
    fl__release(table->wakes);
    fl__release(table->ids);
    fl__release(table->free);
}
