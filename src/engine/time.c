/* SPDX-License-Identifier: MIT */
/* The wall clock as the engine sees it: it does not go back while anything is decided. */

#include <errno.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "engine/internal.h"

enum { TOLERATED_US = 1000000 }; /* set back by less: time stands still until it has caught up */

/* Times in nanoseconds have 64 bits: they end in the year 2554. A clock that says more is taken to say this, which leaves a
 * day for what is loaded ahead. */
#define NOW_MOST_US ((int64_t)(UINT64_MAX / NS_PER_US - 86400 * SECOND_US))

int64_t fl__engine_read_clock(const fl_engine *e)
{
    int64_t now_us = e->config.clock->now_us(e->config.clock);
    return now_us < 0 ? 0 : now_us < NOW_MOST_US ? now_us : NOW_MOST_US;
}

void fl__engine_look_at_clock(fl_engine *e)
{
    int64_t now_us = fl__engine_read_clock(e);
    e->wall_seen_ns = fl_loop_now_ns(e->loop);
    e->clock_us = now_us;
    if (now_us >= e->wall_us) {
        e->wall_us = now_us;
    } else if (e->wall_us - now_us > TOLERATED_US && !e->set_back) {
        e->set_back = true;
        e->back_us = now_us;
        fl__engine_flush_soon(e);
    } else if (e->set_back && now_us < e->back_us) {
        e->back_us = now_us;
    }
}

/* The wall clock's time in this turn of the loop. It does not go back while anything is decided. */
int64_t fl__engine_now(fl_engine *e)
{
    if (e->wall_seen_ns != fl_loop_now_ns(e->loop))
        fl__engine_look_at_clock(e);
    return e->wall_us;
}

/* What is filed now is filed by this: nothing is written before a clock that was set back has been seen to. */
int64_t fl__engine_filing_now(fl_engine *e)
{
    int64_t now_us = fl__engine_now(e);
    return e->set_back ? e->clock_us : now_us;
}

void fl__engine_follow_clock(fl_engine *e)
{
    fl__engine_look_at_clock(e);
    fl__progress_set_back(e);
    fl__engine_look_at_clock(e);
}

void fl_engine_clock_changed(fl_engine *engine)
{
    fl__engine_look_at_clock(engine);
    fl__fire_soon(engine);
    if (engine->state == ENGINE_RUNNING)
        fl__alarm_set(engine, &engine->load_alarm, 0);
}

/* The earliest there can be in the store and not in memory. */
static int64_t next_unloaded(const fl_engine *e)
{
    int64_t next_us = INT64_MAX;
    for (size_t i = 0; i < e->window_count; i++) {
        int64_t begin_us = fl_window_begin(e->windows[i]);
        if (begin_us >= fl__lanes_begin_us())
            continue; /* FL_TIME_NEVER_US */
        if (begin_us < e->until.at_us)
            begin_us = e->until.at_us;
        if (fl_window_end(e->windows[i]) > e->until.at_us && begin_us < next_us)
            next_us = begin_us;
    }
    return next_us;
}

/* When something in memory comes near that is in no wheel yet; or when it may be due, if nothing is done about it now. */
static int64_t next_unarmed(const fl_engine *e, int64_t now_us)
{
    int64_t arm_us = fl__memory_arm_next_us(e);
    return arm_us > now_us ? arm_us : arm_us + ((int64_t)1 << SPAN_SHIFT);
}

/* Whether something is under way that will end by itself. */
static bool is_busy(const fl_engine *e)
{
    if (e->outstanding > 0 || e->flushing)
        return true;
    return e->state != ENGINE_LOST && (e->state != ENGINE_RUNNING || !e->ready || e->set_back || e->queued ||
                                       e->to_repeat.count > 0 || e->in_doubt || e->unsure_count > 0);
}

bool fl_engine_idle(fl_engine *engine, int64_t *ret_next_us)
{
    fl_engine *e = engine;
    if (is_busy(e))
        return false;
    bool lost = e->state == ENGINE_LOST;
    if (!lost &&
        fl__engine_now(e) > e->clock_us) { /* set back a little: nothing fires before the clock has caught up */
        *ret_next_us = e->wall_us;
        return true;
    }
    int64_t now_us = fl__engine_now(e), next_us = lost ? INT64_MAX : next_unloaded(e);
    if (next_us <= now_us && !fl__load_has_room(e))
        next_us = INT64_MAX; /* it waits for what is in memory */
    for (int kind = 0; kind < 2 && !lost; kind++) {
        bool stuck = e->config.wait || !fl__fire_has_room(e, kind);
        if (!stuck && e->flights.late[kind].count > 0)
            return false;
        if (!stuck && fl__memory_next_armed_us(e, kind) < next_us)
            next_us = fl__memory_next_armed_us(e, kind);
    }
    if (!lost && !e->config.wait && fl__fire_has_room(e, 0)) {
        int64_t near_us = next_unarmed(e, now_us);
        next_us = near_us < next_us ? near_us : next_us;
    }
    if (next_us <= now_us)
        return false;
    *ret_next_us = next_us;
    return true;
}

/* The kernel tells when the clock is set, through a timer that never expires. */
static void clock_was_set(fl_loop *loop, int fd, unsigned events, void *arg)
{
    uint64_t count;
    (void)loop, (void)events;
    if (read(fd, &count, sizeof count) < 0 && errno == ECANCELED) {
        struct itimerspec never = {.it_value.tv_sec = INT64_MAX / 1000000000};
        timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL);
        fl_engine_clock_changed(arg);
    }
}

void fl__engine_watch_clock(fl_engine *e)
{
    struct itimerspec never = {.it_value.tv_sec = INT64_MAX / 1000000000};
    e->clock_fd = -1;
    if (e->config.clock != fl_wall_clock_system())
        return;
    int fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0)
        return;
    if (timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL) < 0 ||
        fl_loop_fd_add(e->loop, fd, FL_READ, clock_was_set, e) < 0)
        close(fd);
    else
        e->clock_fd = fd;
}
