/* SPDX-License-Identifier: MIT */
/* Processes with engines on the embedded store, killed. */

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
