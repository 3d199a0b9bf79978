/* SPDX-License-Identifier: MIT */
/* Processes with engines on the embedded store, killed. */

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash/drive.h"
#include "store/sqlite/place.h"
#include "test.h"

TEST(killed_again_and_again_nothing_is_lost)
{
    struct drive drive;
    new_folder();
    drive_init(&drive, folder_url(), 1);
    for (uint32_t i = drive_kills(25); i > 0; i--)
        drive_life(&drive);
    drive_finish(&drive);
    drive_free(&drive);
}

TEST(the_same_looking_ahead)
{
    struct drive drive;
    new_folder();
    drive_init(&drive, folder_url(), 2);
    drive.config.lookahead = true;
    for (uint32_t i = drive_kills(15); i > 0; i--)
        drive_life(&drive);
    drive_finish(&drive);
    drive_free(&drive);
}

/* A file has one owner: one that sleeps too. */
TEST(a_second_process_is_told_who_has_the_store)
{
    struct drive first, second;
    new_folder();
    drive_init(&first, folder_url(), 6);
    drive_init(&second, folder_url(), 7);
    second.loaded = false;
    drive_start(&first);
    drive_await_ready(&first);
    drive_run(&first, 50);
    CHECK_EQ(kill(first.pid, SIGSTOP), 0);
    drive_start(&second);
    drive_await_ready(&second);
    CHECK_EQ(second.failed, FL_STORE_LOCKED);
    CHECK_EQ(waitpid(second.pid, NULL, 0), second.pid);
    close(second.socket);
    CHECK_EQ(kill(first.pid, SIGCONT), 0);
    drive_run(&first, 50);
    drive_kill(&first);
    drive_finish(&first);
    drive_free(&first);
    drive_free(&second);
}

TEST(the_disk_is_full_again_and_again)
{
    struct drive drive;
    new_folder();
    drive_init(&drive, folder_url(), 8);
    drive_start(&drive);
    drive_await_ready(&drive);
    for (uint32_t i = drive_kills(8); i > 0; i--) {
        drive_run(&drive, (int)drive_draw(&drive, 100));
        drive_fill_disk(&drive, 1 + (int64_t)drive_draw(&drive, 1 << 20));
        drive_run(&drive, (int)drive_draw(&drive, 300));
        if (drive_draw(&drive, 3) == 0) {
            drive_kill(&drive);
            drive_start(&drive);
        } else {
            drive_fill_disk(&drive, 0);
        }
        drive_settle_down(&drive);
    }
    drive_kill(&drive);
    drive_finish(&drive);
    drive_free(&drive);
}
