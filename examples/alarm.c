/* SPDX-License-Identifier: MIT */
/* An alarm clock that survives its own end: what was set is in a database, and rings when its time has come, or as soon as
 * the program runs again.
 *
 *     alarm FOLDER SECONDS TEXT...   sets an alarm and ends
 *     alarm FOLDER                   rings what is set, until nothing is left
 *
 * Without arguments it does both in a folder of its own, as a demonstration.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <foliot/engine.h>

struct clock {
    fl_loop *loop;
    fl_store *store;
    fl_engine *engine;
    bool begun;
};

/* What is due comes here. Settled means done: it will not come again. */
static void ring(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++) {
        printf("%.*s\n", (int)firings[i].timer.payload.size, (const char *)firings[i].timer.payload.data);
        fl_engine_settle(engine, &(fl_settlement){.token = firings[i].token, .result = FL_DONE}, 1);
    }
}

static void gone(fl_loop *loop, void *arg)
{
    (void)arg;
    fl_loop_stop(loop);
}

static void look(fl_loop *loop, void *arg)
{
    struct clock *clock = arg;
    fl_engine_stats stats;
    (void)loop;
    fl_engine_get_stats(clock->engine, &stats);
    if (clock->begun && stats.pending == 0) {
        clock->begun = false;
        fl_engine_stop(clock->engine, false, gone, NULL);
    }
}

static void notify(void *arg, fl_engine *engine, enum fl_engine_event event, int result, const char *message)
{
    struct clock *clock = arg;
    (void)engine, (void)result;
    if (event == FL_ENGINE_READY)
        clock->begun = true;
    else
        fprintf(stderr, "alarm: %s\n", message);
}

static void stop(fl_loop *loop, void *arg)
{
    struct clock *clock = arg;
    (void)loop;
    fl_engine_stop(clock->engine, false, gone, NULL);
}

static void created(fl_batch *batch)
{
    struct clock *clock = batch->arg;
    if (batch->ops[0].result < 0)
        fprintf(stderr, "alarm: %s\n", fl_strerror(batch->ops[0].result));
    if (fl_loop_immediate(clock->loop, stop, clock, NULL) < 0) /* it is on the disk. Not from inside the engine */
        abort();
}

static void open_clock(struct clock *clock, const char *folder)
{
    char url[512], message[256];
    snprintf(url, sizeof url, "sqlite:%s", folder);
    if (fl_store_open(url, &(fl_store_config){.shards = 1}, &clock->store, message, sizeof message) < 0) {
        fprintf(stderr, "alarm: %s\n", message);
        exit(1);
    }
    fl_engine_config config = {
        .store = clock->store, .owner = "alarm", .dispatch = ring, .notify = notify, .arg = clock};
    if (fl_loop_new(NULL, &clock->loop) < 0)
        abort();
    config.loop = clock->loop;
    if (fl_engine_start(&config, &clock->engine) < 0)
        abort();
}

static void close_clock(struct clock *clock)
{
    fl_store_close(clock->store);
    fl_loop_free(clock->loop);
}

static void set_alarm(const char *folder, double seconds, const char *text)
{
    struct clock clock = {0};
    fl_wall_clock *wall = fl_wall_clock_system();
    open_clock(&clock, folder);
    fl_op op = {.kind = FL_OP_CREATE,
                .timer = {.ns = FL_TEXT("alarms"),
                          .due_us = wall->now_us(wall) + (int64_t)(seconds * 1e6),
                          .payload = {text, strlen(text)}}};
    fl_batch batch = {.ops = &op, .count = 1, .done = created, .arg = &clock};
    fl_engine_submit(clock.engine, &batch);
    fl_loop_run(clock.loop);
    close_clock(&clock);
}

static void ring_alarms(const char *folder)
{
    struct clock clock = {0};
    open_clock(&clock, folder);
    if (fl_loop_interval(clock.loop, 20 * 1000000ull, FL_TIMER_UNREF, look, &clock, NULL) < 0)
        abort();
    fl_loop_run(clock.loop);
    close_clock(&clock);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/alarm-XXXXXX";
    if (argc > 3) {
        set_alarm(argv[1], strtod(argv[2], NULL), argv[3]);
    } else if (argc == 2) {
        ring_alarms(argv[1]);
    } else if (mkdtemp(folder)) {
        set_alarm(folder, 0.3, "the tea is ready");
        set_alarm(folder, 0.1, "the water boils");
        puts("both are set, and nobody is there to wait for them; now somebody is");
        ring_alarms(folder);
        char *remove[] = {"rm", "-r", folder, NULL};
        fflush(stdout);
        execvp("rm", remove);
    }
    return 0;
}
