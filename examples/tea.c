/* SPDX-License-Identifier: MIT */
/* The wheel on the machine's own clock: sleep until the next deadline, poll, do what is due. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <foliot/wheel.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
    struct timespec until = {.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void must(int r)
{
    if (r < 0) {
        fprintf(stderr, "%s: %s\n", fl_errname(r), fl_strerror(r));
        exit(1);
    }
}

int main(void)
{
    uint64_t start = now_ns(), wake_up;
    fl_wheel_config config = {.start_ns = start};
    fl_wheel *wheel;
    fl_timer_id burnt;

    must(fl_wheel_new(&config, &wheel));
    must(fl_wheel_schedule(wheel, start + 150 * MS, "the tea is ready", NULL));
    must(fl_wheel_schedule(wheel, start + 50 * MS, "the water boils", NULL));
    must(fl_wheel_schedule(wheel, start + 100 * MS, "the kettle is dry", &burnt));

    while (fl_wheel_next_poll(wheel, &wake_up)) {
        fl_expired due[16];
        sleep_until(wake_up);
        size_t n = fl_wheel_poll(wheel, now_ns(), due, 16);
        for (size_t i = 0; i < n; i++)
            printf("%3" PRIu64 " ms: %s\n", (due[i].deadline_ns - start) / MS, (const char *)due[i].data);
        if (fl_wheel_cancel(wheel, burnt, NULL) == 0)
            puts("        (the kettle is off the fire)");
    }
    fl_wheel_free(wheel);
    return 0;
}
