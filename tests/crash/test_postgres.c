/* SPDX-License-Identifier: MIT */
/* Processes with engines on PostgreSQL: they are killed, the server is, and one of two owners sleeps. */

#include "crash/drive.h"
#include "pg.h"
#include "test.h"

static bool started;

static void begin(struct drive *drive, const char *schema, uint64_t seed)
{
    static char url[300];
    if (!started)
        pg_start(true);
    started = true;
    snprintf(url, sizeof url, "%s", pg_url(schema));
    drive_init(drive, url, seed);
}

TEST(killed_again_and_again_nothing_is_lost)
{
    struct drive drive;
    begin(&drive, "killed", 3);
    for (uint32_t i = drive_kills(15); i > 0; i--)
        drive_life(&drive);
    drive_finish(&drive);
    drive_free(&drive);
}

TEST(the_server_killed_under_load_nothing_is_lost)
{
    struct drive drive;
    begin(&drive, "server", 4);
    drive_start(&drive);
    drive_await_ready(&drive);
    for (uint32_t i = drive_kills(4); i > 0; i--) {
        drive_run(&drive, 50 + (int)drive_draw(&drive, 200));
        pg_kill();
        drive_run(&drive, (int)drive_draw(&drive, 200));
        pg_start(true);
        if (drive_draw(&drive, 4) == 0) { /* both at once */
            drive_kill(&drive);
            drive_start(&drive);
        }
        drive_settle_down(&drive);
    }
    drive_kill(&drive);
    drive_finish(&drive);
    drive_free(&drive);
}

TEST(one_that_slept_past_its_claim_gives_way)
{
    static const char *const owners[] = {"one", "two"};
    struct drive drive;
    begin(&drive, "slept", 5);
    drive.config.claim_us = 400000;
    drive_start(&drive);
    drive_await_ready(&drive);
    for (uint32_t i = 1; i <= drive_kills(6); i++) {
        drive_run(&drive, 50 + (int)drive_draw(&drive, 200));
        drive_sleep_and_lose(&drive, owners[i % 2]);
    }
    drive_kill(&drive);
    drive_finish(&drive);
    drive_free(&drive);
}
