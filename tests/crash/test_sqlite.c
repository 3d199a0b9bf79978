/* SPDX-License-Identifier: MIT */
/* Processes with engines on the embedded store, killed. */

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash/drive.h"
#include "store/sqlite/place.h"
#include "test.h"

/* The ledger itself: the version that was acknowledged stays what must fire if the outcome of its replacement is unknown. */
TEST(a_replacement_of_unknown_outcome_may_never_have_been)
{
    struct ledger ledger;
    struct packet ask;
    ledger_init(&ledger, 1);
    uint32_t number = ledger_add(&ledger, true);
    CHECK(ledger_ask(&ledger, ASK_CREATE, number, 100, &ask));
    uint32_t first = ask.version;
    ledger_hear(&ledger, &(struct packet){.said = SAY_ANSWER, .asked = ASK_CREATE, .number = number, .version = first});
    struct packet fired = {.said = SAY_FIRED, .number = number, .version = first, .due_us = 100, .at_us = 100};
    struct packet settled = {.said = SAY_SETTLED, .number = number, .version = first, .result = FL_DONE, .at_us = 100};
    ledger_hear(&ledger, &fired);
    ledger_hear(&ledger, &settled);
    CHECK(ledger_ask(&ledger, ASK_CREATE, number, 200, &ask));
    ledger_hear(&ledger, &(struct packet){.said = SAY_ANSWER,
                                          .asked = ASK_CREATE,
                                          .number = number,
                                          .version = ask.version,
                                          .result = FL_OUTCOME_UNKNOWN});
    ledger_crash(&ledger);
    ledger_hear(&ledger, &fired);
    ledger_hear(&ledger, &settled);
    CHECK_EQ(ledger_left(&ledger), 0);
    ledger_free(&ledger);
}

/* A creation of unknown outcome stays in doubt if the timer fires from memory and then refuses to be moved. */
TEST(a_refused_move_does_not_prove_a_creation_of_unknown_outcome)
{
    for (int is_there = 0; is_there < 2; is_there++) {
        struct ledger ledger;
        struct packet ask;
        ledger_init(&ledger, 1);
        uint32_t number = ledger_add(&ledger, true);
        CHECK(ledger_ask(&ledger, ASK_CREATE, number, 100, &ask));
        struct packet answer = {.said = SAY_ANSWER, .asked = ASK_CREATE, .number = number, .version = ask.version};
        answer.result = FL_OUTCOME_UNKNOWN;
        ledger_hear(&ledger, &answer);
        struct packet fired = {
            .said = SAY_FIRED, .number = number, .version = ask.version, .due_us = 100, .at_us = 100};
        ledger_hear(&ledger, &fired);
        CHECK(ledger_ask(&ledger, ASK_MOVE, number, 200, &ask));
        answer = (struct packet){.said = SAY_ANSWER, .asked = ASK_MOVE, .number = number, .version = ask.version};
        answer.result = FL_STORE_FULL;
        ledger_hear(&ledger, &answer);
        ledger_crash(&ledger);
        CHECK_EQ(ledger_left(&ledger), 0);
        if (is_there)
            ledger_hear(&ledger, &fired);
        CHECK_EQ(ledger_left(&ledger), (uint32_t)is_there);
        ledger_free(&ledger);
    }
}

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
