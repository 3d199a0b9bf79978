/* SPDX-License-Identifier: MIT */
/* A reminder a year away, further than a wheel reaches: schedule by best fit, and again whenever it fires too early. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <foliot/wheel.h>

#define SECOND UINT64_C(1000000000)
#define YEAR (365 * 24 * 3600 * SECOND)

static void must(int r)
{
    if (r < 0) {
        fprintf(stderr, "%s: %s\n", fl_errname(r), fl_strerror(r));
        exit(1);
    }
}

int main(void)
{
    const uint64_t target = YEAR;
    uint64_t wheel_deadline, stages = 0;
    fl_expired due;
    fl_wheel *wheel;

    must(fl_wheel_new(NULL, &wheel));
    printf("The wheel reaches %" PRIu64 " h ahead.\n", fl_wheel_max_duration_ns(wheel) / (3600 * SECOND));
    do {
        must(fl_wheel_schedule_best_fit(wheel, target, "happy new year", NULL, &wheel_deadline));
        if (fl_wheel_poll(wheel, wheel_deadline, &due, 1) != 1)
            abort();
        stages++;
    } while (fl_wheel_now_ns(wheel) < target);
    printf("After %" PRIu64 " stages and %" PRIu64 " days: %s\n", stages, fl_wheel_now_ns(wheel) / (24 * 3600 * SECOND),
           (const char *)due.data);
    fl_wheel_free(wheel);
    return 0;
}
