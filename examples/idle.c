/* SPDX-License-Identifier: MIT */
/* Connections that are closed when nothing came for 30 s: every request moves its connection's timer.
 *
 * The time is simulated, as in a test: the wheel has no clock of its own and takes what it is told.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <foliot/wheel.h>

#define SECOND UINT64_C(1000000000)
#define CONNECTIONS 4

struct connection {
    unsigned number;
    fl_timer_id idle; /* always that of a living timer: each move gives a new one */
};

static void must(int r)
{
    if (r < 0) {
        fprintf(stderr, "%s: %s\n", fl_errname(r), fl_strerror(r));
        exit(1);
    }
}

static void request(fl_wheel *wheel, struct connection *c)
{
    must(fl_wheel_reschedule(wheel, c->idle, fl_wheel_now_ns(wheel) + 30 * SECOND, &c->idle));
}

static void close_idle(fl_wheel *wheel, uint64_t now)
{
    fl_expired due[CONNECTIONS];
    size_t n = fl_wheel_poll(wheel, now, due, CONNECTIONS);
    for (size_t i = 0; i < n; i++) {
        const struct connection *c = due[i].data;
        printf("%3" PRIu64 " s: connection %u was idle since %" PRIu64 " s\n", now / SECOND, c->number,
               due[i].deadline_ns / SECOND - 30);
    }
}

int main(void)
{
    struct connection connections[CONNECTIONS];
    fl_wheel *wheel;

    must(fl_wheel_new(NULL, &wheel));
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        connections[i].number = i;
        must(fl_wheel_schedule(wheel, 30 * SECOND, &connections[i], &connections[i].idle));
    }
    for (uint64_t now = 0; fl_wheel_count(wheel) > 0; now += SECOND) {
        close_idle(wheel, now);
        /* Connection i makes a request every 10 s until second 20 * i. */
        for (unsigned i = 0; i < CONNECTIONS; i++)
            if (now % (10 * SECOND) == 0 && now > 0 && now <= 20 * i * SECOND)
                request(wheel, &connections[i]);
    }
    fl_wheel_free(wheel);
    return 0;
}
