/* SPDX-License-Identifier: MIT */
/* See drive.h. */

#include "crash/drive.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

enum { TIMERS_MOST = 400000, OUTSTANDING_MOST = 48, PATIENCE_MS = 20000 };

#define SECOND_US ((int64_t)1000000)

static int64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t wall_us(const struct drive *drive)
{
    fl_wall_clock *clock = fl_wall_clock_system();
    return clock->now_us(clock) + drive->config.offset_us;
}

uint64_t drive_draw(struct drive *drive, uint64_t limit)
{
    drive->random = drive->random * 6364136223846793005u + 1442695040888963407u;
    return (drive->random >> 33) % limit;
}

void drive_init(struct drive *drive, const char *url, uint64_t seed)
{
    *drive = (struct drive){.config = {.url = url, .owner = "one", .shards = 2}, .random = seed, .loaded = true};
    ledger_init(&drive->ledger, TIMERS_MOST);
}

void drive_free(struct drive *drive)
{
    printf("# %u lives: %" PRIu64 " acknowledged, %" PRIu64 " fired, %" PRIu64 " of them again; %" PRIu64 " unknown\n",
           drive->lives, drive->ledger.acknowledged, drive->ledger.fired, drive->ledger.repeated,
           drive->ledger.unknown);
    ledger_free(&drive->ledger);
}

uint32_t drive_kills(uint32_t count)
{
    const char *wanted = getenv("FOLIOT_KILLS");
    return wanted ? (uint32_t)strtoul(wanted, NULL, 10) : count;
}

/* --- Asking -------------------------------------------------------------------------------------------------------- */

/* Most are due soon, some while the next lives last, some far away. */
static int64_t draw_due(struct drive *drive)
{
    static const int64_t spans[] = {20000, 200000, SECOND_US, 30 * SECOND_US, 300 * SECOND_US, 86400 * SECOND_US};
    return wall_us(drive) - 1000 + (int64_t)drive_draw(drive, (uint64_t)spans[drive_draw(drive, 6)]);
}

static uint32_t draw_timer(struct drive *drive)
{
    uint32_t recent = drive->ledger.count < 300 ? drive->ledger.count : 300;
    uint32_t among = drive_draw(drive, 4) == 0 ? drive->ledger.count : recent;
    return drive->ledger.count - 1 - (uint32_t)drive_draw(drive, among);
}

static bool choose(struct drive *drive, struct packet *ret)
{
    uint64_t dice = drive_draw(drive, 100);
    int64_t due_us = draw_due(drive);
    struct ledger *ledger = &drive->ledger;
    if (dice < 55 || ledger->count == 0)
        return ledger_ask(ledger, ASK_CREATE, ledger_add(ledger, dice % 2 == 0), due_us, ret);
    uint32_t number = draw_timer(drive);
    if (dice < 60)
        return ledger->timers[number].named && ledger_ask(ledger, ASK_CREATE, number, due_us, ret);
    return ledger_ask(ledger, dice < 72 ? ASK_MOVE : dice < 86 ? ASK_CANCEL : ASK_GET, number, due_us, ret);
}

static void ask(struct drive *drive)
{
    struct packet packet;
    while (drive->ledger.outstanding < OUTSTANDING_MOST && drive->ledger.count < TIMERS_MOST - 1)
        if (choose(drive, &packet) && send(drive->socket, &packet, sizeof packet, MSG_NOSIGNAL) < 0)
            return; /* it has just died: nobody knows */
}

/* What a crash has left unknown is asked for. */
static void ask_unsure(struct drive *drive)
{
    struct packet packet;
    struct ledger *ledger = &drive->ledger;
    for (uint32_t i = 0; i < ledger->count && ledger->outstanding < OUTSTANDING_MOST; i++)
        if (ledger->timers[i].unsure && ledger_ask(ledger, ASK_GET, i, 0, &packet))
            send(drive->socket, &packet, sizeof packet, MSG_NOSIGNAL);
}

/* --- Listening ----------------------------------------------------------------------------------------------------- */

/* Returns whether there was something. */
static bool hear(struct drive *drive)
{
    struct packet packet;
    ssize_t size = recv(drive->socket, &packet, sizeof packet, MSG_DONTWAIT);
    if (size <= 0)
        return false;
    CHECK_EQ(size, sizeof packet);
    drive->ready += packet.said == SAY_READY;
    drive->lost += packet.said == SAY_LOST;
    if (packet.said == SAY_FAILED)
        drive->failed = packet.result;
    ledger_hear(&drive->ledger, &packet);
    return true;
}

static void check_alive(const struct drive *drive)
{
    int status;
    if (waitpid(drive->pid, &status, WNOHANG) != 0)
        test_fail(__FILE__, __LINE__, "the child ended by itself: status %#x", (unsigned)status);
}

void drive_run(struct drive *drive, int milliseconds)
{
    int64_t end_ms = monotonic_ms() + milliseconds, now_ms;
    while ((now_ms = monotonic_ms()) < end_ms) {
        if (drive->loaded)
            ask(drive);
        struct pollfd wait = {.fd = drive->socket, .events = POLLIN};
        poll(&wait, 1, (int)(end_ms - now_ms));
        while (hear(drive))
            ;
        if (drive->failed)
            return;
        if (wait.revents & POLLHUP)
            check_alive(drive);
    }
}

/* Runs until `done`; fails when nothing happens any more. */
static void run_until(struct drive *drive, bool (*done)(const struct drive *), const char *what)
{
    uint64_t settled = drive->ledger.settled;
    int64_t since_ms = monotonic_ms();
    while (!done(drive)) {
        drive_run(drive, 10);
        if (settled != drive->ledger.settled)
            since_ms = monotonic_ms();
        settled = drive->ledger.settled;
        if (monotonic_ms() - since_ms > PATIENCE_MS) {
            printf("# %s: nothing happens any more, and %u timers are left\n", what, ledger_left(&drive->ledger));
            ledger_complain_left(&drive->ledger);
            test_fail(__FILE__, __LINE__, "%s: nothing happens any more", what);
        }
    }
}

/* --- Lives --------------------------------------------------------------------------------------------------------- */

void drive_start(struct drive *drive)
{
    drive->ready = drive->lost = 0;
    drive->failed = 0;
    drive->lives++;
    drive->config.seed = drive_draw(drive, UINT32_MAX);
    drive->pid = child_start(&drive->config, &drive->socket);
}

static void bury(struct drive *drive)
{
    while (hear(drive))
        ;
    close(drive->socket);
    ledger_crash(&drive->ledger);
}

void drive_kill(struct drive *drive)
{
    int status;
    CHECK_EQ(kill(drive->pid, SIGKILL), 0);
    CHECK_EQ(waitpid(drive->pid, &status, 0), drive->pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    bury(drive);
}

void drive_stop(struct drive *drive)
{
    struct packet packet = {.said = ASK_STOP};
    int status;
    CHECK_EQ(send(drive->socket, &packet, sizeof packet, MSG_NOSIGNAL), sizeof packet);
    for (int64_t since_ms = monotonic_ms(); waitpid(drive->pid, &status, WNOHANG) == 0;) {
        while (hear(drive))
            ;
        usleep(1000);
        if (monotonic_ms() - since_ms > PATIENCE_MS)
            test_fail(__FILE__, __LINE__, "the child does not stop");
    }
    CHECK_EQ(status, 0);
    bury(drive);
}

static bool is_ready(const struct drive *drive)
{
    return drive->ready == drive->config.shards || drive->failed;
}

void drive_await_ready(struct drive *drive)
{
    run_until(drive, is_ready, "waiting for the shards");
}

void drive_step(struct drive *drive, int64_t by_us)
{
    struct packet packet = {.said = ASK_STEP, .due_us = by_us};
    drive->config.offset_us += by_us;
    CHECK_EQ(send(drive->socket, &packet, sizeof packet, MSG_NOSIGNAL), sizeof packet);
}

void drive_fill_disk(struct drive *drive, int64_t bytes)
{
    struct packet packet = {.said = ASK_FULL, .due_us = bytes};
    CHECK_EQ(send(drive->socket, &packet, sizeof packet, MSG_NOSIGNAL), sizeof packet);
}

static bool answers(const struct drive *drive)
{
    return drive->ledger.acknowledged > drive->acknowledged;
}

void drive_settle_down(struct drive *drive)
{
    drive->acknowledged = drive->ledger.acknowledged;
    run_until(drive, answers, "waiting for the store");
    ask_unsure(drive);
}

void drive_life(struct drive *drive)
{
    drive_start(drive);
    if (drive_draw(drive, 4) > 0) { /* else it is killed before it has begun */
        drive_await_ready(drive);
        ask_unsure(drive);
    }
    drive_run(drive, (int)drive_draw(drive, drive_draw(drive, 3) == 0 ? 400 : 60));
    if (drive_draw(drive, 8) == 0) {
        drive_step(drive, drive_draw(drive, 2) ? 5 * SECOND_US : -3 * SECOND_US);
        drive_run(drive, (int)drive_draw(drive, 100));
    }
    drive_kill(drive);
    drive->config.offset_us += (int64_t)drive_draw(drive, (uint64_t)(drive_draw(drive, 2) ? 40 : 2) * SECOND_US);
}

/* --- Two owners ---------------------------------------------------------------------------------------------------- */

struct loser {
    int socket;
    uint32_t fired, lost;
};

static void hear_loser(struct drive *drive, struct loser *loser)
{
    struct packet packet;
    while (recv(loser->socket, &packet, sizeof packet, MSG_DONTWAIT) > 0) {
        loser->fired += packet.said == SAY_FIRED;
        loser->lost += packet.said == SAY_LOST;
        ledger_hear_late(&drive->ledger, &packet);
    }
}

void drive_sleep_and_lose(struct drive *drive, const char *other)
{
    pid_t pid = drive->pid;
    struct loser loser = {.socket = drive->socket};
    int status;
    CHECK_EQ(kill(pid, SIGSTOP), 0);
    CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
    while (hear(drive))
        ;
    ledger_crash(&drive->ledger);
    drive->config.owner = other;
    drive_start(drive);
    drive_await_ready(drive);
    ask_unsure(drive);
    drive_run(drive, 100);
    CHECK_EQ(kill(pid, SIGCONT), 0);
    for (int64_t since_ms = monotonic_ms(); loser.lost < drive->config.shards;) {
        drive_run(drive, 10);
        hear_loser(drive, &loser);
        if (monotonic_ms() - since_ms > PATIENCE_MS)
            test_fail(__FILE__, __LINE__, "the one that slept does not notice that it has lost its shards");
    }
    CHECK(loser.fired <= CHILD_DISPATCH_BATCH);
    CHECK_EQ(kill(pid, SIGKILL), 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    close(loser.socket);
}

/* --- The end ------------------------------------------------------------------------------------------------------- */

static bool nothing_left(const struct drive *drive)
{
    return ledger_left(&drive->ledger) == 0;
}

static bool nothing_asked(const struct drive *drive)
{
    return drive->ledger.outstanding == 0;
}

static void check_dead(struct drive *drive)
{
    for (uint32_t i = 0; i < drive->config.shards; i++) {
        struct packet packet = {.said = ASK_DEAD, .shard = i};
        CHECK_EQ(send(drive->socket, &packet, sizeof packet, MSG_NOSIGNAL), sizeof packet);
    }
    drive_run(drive, 500);
    ledger_check_dead(&drive->ledger);
}

void drive_finish(struct drive *drive)
{
    drive->loaded = false;
    drive->config.offset_us += 2 * 86400 * SECOND_US; /* everything is due now */
    drive->config.gentle = true;
    drive_start(drive);
    drive_await_ready(drive);
    run_until(drive, nothing_left, "the last life");
    ask_unsure(drive);
    run_until(drive, nothing_asked, "asking");
    check_dead(drive);
    drive_stop(drive);
    uint64_t fired = drive->ledger.fired;
    drive->config.offset_us += 3600 * SECOND_US;
    drive_start(drive);
    drive_await_ready(drive);
    drive_run(drive, 300);
    CHECK_EQ(drive->ledger.fired, fired);
    drive_stop(drive);
}
