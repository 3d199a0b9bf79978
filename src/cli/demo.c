/* SPDX-License-Identifier: MIT */
/* `foliot demo`: a wheel under the load of a busy server, on the machine's own clock.
 *
 * Every timer belongs to one of three kinds and keeps it, so that all levels of the wheel stay populated: of ten, six
 * are request timeouts (up to a second), three are idle sessions (up to a quarter of an hour) and one is a reminder (up
 * to 19 hours). Once a millisecond the demo polls the wheel, arms what fired anew, and then does what requests that are
 * answered in time do: it cancels timers at random and schedules them again, each about once a second.
 *
 * Cancels, schedules and polls are done in batches and the clock is read around a batch: reading it around each one
 * would cost as much as what it measures.
 */

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <foliot/error.h>
#include <foliot/wheel.h>

#include "cli/cli.h"
#include "cli/demo.h"

#define SECOND_NS 1000000000ull
#define TURN_NS 1000000ull
#define BATCH 1024

static uint64_t timers = 1000000, seconds = 10;

struct demo {
    fl_wheel *wheel;
    fl_timer_id *ids; /* of each timer; a timer's data points to its place here */
    uint64_t random;
    struct demo_state state;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* Without SA_RESTART: the sleep between two turns ends at once. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
    struct timespec until = {.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* A number below `limit`, by a linear congruence whose upper half is good enough for a demo. */
static uint64_t random_below(struct demo *d, uint64_t limit)
{
    d->random = d->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint64_t)((unsigned __int128)d->random * limit >> 64);
}

static uint64_t random_delay_ns(struct demo *d, const fl_timer_id *timer)
{
    static const uint64_t request = SECOND_NS, session = 900 * SECOND_NS, reminder = 19 * 3600 * SECOND_NS;
    unsigned kind = (unsigned)((timer - d->ids) % 10);
    return random_below(d, kind < 6 ? request : kind < 9 ? session : reminder);
}

static int arm(struct demo *d, fl_timer_id *const *batch, size_t n)
{
    struct demo_work *work = &d->state.recent.schedule;
    uint64_t begin = clock_ns();
    for (size_t i = 0; i < n; i++) {
        int r = fl_wheel_schedule(d->wheel, begin + random_delay_ns(d, batch[i]), batch[i], batch[i]);
        if (r < 0)
            return r;
    }
    work->count += n;
    work->ns += clock_ns() - begin;
    return 0;
}

/* Takes out one batch of due timers and arms them anew. Sets *ret to their number. */
static int fire_batch(struct demo *d, uint64_t now, size_t *ret)
{
    struct demo_span *recent = &d->state.recent;
    fl_expired due[BATCH];
    fl_timer_id *batch[BATCH];
    uint64_t begin = clock_ns();
    size_t n = fl_wheel_poll(d->wheel, now, due, BATCH);
    uint64_t end = clock_ns();

    recent->fire.count += n;
    recent->fire.ns += end - begin;
    for (size_t i = 0; i < n; i++) {
        histogram_add(&recent->late_ns, end - due[i].deadline_ns);
        batch[i] = due[i].data;
    }
    *ret = n;
    return arm(d, batch, n);
}

static int fire_due(struct demo *d)
{
    uint64_t now = clock_ns();
    size_t n;
    do {
        int r = fire_batch(d, now, &n);
        if (r < 0)
            return r;
    } while (n == BATCH);
    return 0;
}

/* Polls as it goes: the first timers are due long before the last of many millions is armed. */
static int arm_all(struct demo *d)
{
    fl_timer_id *batch[BATCH];
    for (uint64_t next = 0; next < timers;) {
        size_t n = 0;
        while (n < BATCH && next < timers)
            batch[n++] = &d->ids[next++];
        int r = arm(d, batch, n);
        if (r == 0)
            r = fire_due(d);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Cancels timers at random and schedules them again. One may be drawn twice: the second cancel does not find it. */
static int answer_requests(struct demo *d)
{
    struct demo_work *work = &d->state.recent.cancel;
    fl_timer_id *batch[BATCH];
    size_t n = 0, draws = timers / 1000 < BATCH ? timers / 1000 + 1 : BATCH;
    for (size_t i = 0; i < draws; i++)
        batch[i] = &d->ids[random_below(d, timers)];

    uint64_t begin = clock_ns();
    for (size_t i = 0; i < draws; i++)
        if (fl_wheel_cancel(d->wheel, *batch[i], NULL) == 0)
            batch[n++] = batch[i];
    work->count += n;
    work->ns += clock_ns() - begin;
    return arm(d, batch, n);
}

static void add_work(struct demo_work *to, const struct demo_work *more)
{
    to->count += more->count;
    to->ns += more->ns;
}

static void show(struct demo *d, uint64_t elapsed_ns)
{
    struct demo_span *recent = &d->state.recent, *whole = &d->state.whole;
    recent->ns = elapsed_ns - d->state.elapsed_ns;
    whole->ns = d->state.elapsed_ns = elapsed_ns;
    add_work(&whole->schedule, &recent->schedule);
    add_work(&whole->cancel, &recent->cancel);
    add_work(&whole->fire, &recent->fire);
    fl__histogram_merge(&whole->late_ns, &recent->late_ns);
    demo_view_show(&d->state);
    memset(recent, 0, sizeof *recent);
}

/* Turns once a millisecond until the time is over; what could not be done in time is not made up for. */
static int turn_until(struct demo *d, uint64_t start, uint64_t end)
{
    uint64_t next_turn = start, next_show = start + demo_view_interval_ns();
    for (;;) {
        uint64_t now = clock_ns();
        bool last = interrupted || now >= end;
        if (last || now >= next_show) {
            show(d, now - start);
            next_show += demo_view_interval_ns();
        }
        if (last)
            return 0;
        int r = fire_due(d);
        if (r == 0)
            r = answer_requests(d);
        if (r < 0)
            return r;
        next_turn = now - next_turn < 2 * TURN_NS ? next_turn + TURN_NS : now + TURN_NS;
        sleep_until(next_turn);
    }
}

static int run(struct demo *d)
{
    fl_wheel_config config = {.start_ns = clock_ns()};
    int r = fl_wheel_new(&config, &d->wheel);
    if (r < 0)
        return r;
    d->state.wheel = d->wheel;
    d->random = config.start_ns;
    r = arm_all(d);
    if (r < 0)
        return r;
    memset(&d->state.recent, 0, sizeof d->state.recent); /* the rates are those of the steady state */
    uint64_t start = clock_ns();
    demo_view_begin();
    r = turn_until(d, start, start + d->state.planned_ns);
    demo_view_end(&d->state);
    return r;
}

static int demo_run(void)
{
    struct demo *d = calloc(1, sizeof *d);
    int r = FL_NO_MEMORY;
    if (d && (d->ids = calloc(timers, sizeof *d->ids))) {
        d->state.planned_ns = seconds * SECOND_NS;
        catch_signals();
        r = run(d);
        fl_wheel_free(d->wheel);
        free(d->ids);
    }
    free(d);
    if (r < 0) {
        fprintf(stderr, "foliot demo: %s (%s)\n", fl_strerror(r), fl_errname(r));
        return CLI_FAILED;
    }
    return CLI_OK;
}

static const struct cli_option options[] = {
    {"timers", "N", "number of timers in the wheel", &timers, 1, 100000000},
    {"seconds", "S", "how long to run, in seconds", &seconds, 1, 86400},
    {0},
};

const struct cli_command demo_command = {
    .name = "demo",
    .summary = "shows a timing wheel under load",
    .options = options,
    .run = demo_run,
};
