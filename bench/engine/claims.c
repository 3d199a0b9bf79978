/* SPDX-License-Identifier: MIT */
/* How often an engine asks its store, for both strategies: an hour on a virtual clock, on the memory store.
 *
 * Timers are scheduled five minutes ahead, all along, so that each comes from the store. Only what it takes to load, fire and
 * delete them is counted, not scheduling. */

#include <stdlib.h>

#include <foliot/engine.h>

#include "../frame.h"
#include "claims.h"

enum { SLOT_S = 10, AHEAD_S = 300, HOUR_S = 3600 };
#define SECOND_US 1000000ll
#define START_US (1700000000 * SECOND_US)

struct hour {
    fl_virtual_clock time;
    fl_wall_clock clock;
    fl_loop *loop;
    fl_store *store;
    fl_engine *engine;
    unsigned in_slot; /* timers in ten seconds */
    int64_t next_us;  /* the slot that is scheduled next */
    uint64_t fired;
    fl_op *ops;
    fl_batch batch;
};

static int64_t now_us(fl_wall_clock *clock)
{
    struct hour *hour = (struct hour *)((char *)clock - offsetof(struct hour, clock));
    return START_US + (int64_t)(hour->time.time_ns / 1000);
}

static void dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    struct hour *hour = arg;
    hour->fired += count;
    for (size_t i = 0; i < count; i++)
        fl_engine_settle(engine, &(fl_settlement){.token = firings[i].token}, 1);
}

static void scheduled(fl_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->ops[i].result < 0)
            bench_die("a timer was not created: %s", fl_strerror(batch->ops[i].result));
}

static void schedule_slot(fl_loop *loop, void *arg)
{
    struct hour *hour = arg;
    (void)loop;
    if (hour->next_us >= START_US + HOUR_S * SECOND_US)
        return;
    for (unsigned i = 0; i < hour->in_slot; i++) {
        hour->ops[i] = (fl_op){.kind = FL_OP_CREATE, .timer = {.ns = FL_TEXT("bench"), .payload = FL_TEXT("payload")}};
        hour->ops[i].timer.due_us = hour->next_us + SLOT_S * SECOND_US * i / hour->in_slot;
    }
    hour->batch = (fl_batch){.ops = hour->ops, .count = hour->in_slot, .done = scheduled};
    hour->next_us += SLOT_S * SECOND_US;
    fl_engine_submit(hour->engine, &hour->batch);
}

static void stop_loop(fl_loop *loop, void *arg)
{
    (void)arg;
    fl_loop_stop(loop);
}

static void run_for(struct hour *hour, uint64_t seconds)
{
    if (fl_loop_timer(hour->loop, seconds * SECOND_US * 1000, stop_loop, NULL, NULL) < 0)
        bench_die("no memory");
    fl_loop_run(hour->loop);
}

static void begin(struct hour *hour, fl_engine_config config)
{
    fl_timer_id id;
    fl_virtual_clock_init(&hour->time, 1000);
    hour->clock.now_us = now_us;
    hour->next_us = START_US + AHEAD_S * SECOND_US;
    hour->ops = calloc(hour->in_slot, sizeof *hour->ops);
    config.clock = &hour->clock;
    config.dispatch = dispatch;
    config.arg = hour;
    config.owner = "bench";
    if (!hour->ops || fl_loop_new(&(fl_loop_config){.clock = &hour->time.clock}, &hour->loop) < 0 ||
        fl_store_open("memory:", &(fl_store_config){.shards = 1, .clock = &hour->clock}, &hour->store, NULL, 0) < 0)
        bench_die("no memory");
    config.loop = hour->loop;
    config.store = hour->store;
    if (fl_engine_start(&config, &hour->engine) < 0 ||
        fl_loop_interval(hour->loop, SLOT_S * SECOND_US * 1000, FL_INTERVAL_FROM_CALLBACK, schedule_slot, hour, &id) <
            0)
        bench_die("no engine");
}

/* What the engine has asked its store in the hour. */
static fl_engine_stats live_through(fl_engine_config config, unsigned in_slot)
{
    struct hour hour = {.in_slot = in_slot};
    fl_engine_stats stats;
    begin(&hour, config);
    run_for(&hour, HOUR_S + 120);
    fl_engine_get_stats(hour.engine, &stats);
    if (stats.fired != (uint64_t)in_slot * (HOUR_S - AHEAD_S) / SLOT_S)
        bench_die("%llu timers have fired", (unsigned long long)stats.fired);
    fl_engine_stop(hour.engine, false, stop_loop, NULL);
    fl_loop_run(hour.loop);
    fl_store_close(hour.store);
    fl_loop_free(hour.loop);
    free(hour.ops);
    return stats;
}

static void tell(FILE *out, const char *words, const fl_engine_stats *stats, const fl_engine_stats *preload)
{
    uint64_t asked = stats->store_reads + stats->store_deletes, least = preload->store_reads + preload->store_deletes;
    fprintf(out, "| %s | %llu | %llu (%.0f×) | %llu (%.0f×) | %llu | %llu | %.1f %% |\n", words,
            (unsigned long long)stats->fired, (unsigned long long)stats->store_reads,
            (double)stats->store_reads / (double)preload->store_reads, (unsigned long long)stats->store_deletes,
            (double)stats->store_deletes / (double)preload->store_deletes, (unsigned long long)stats->rows_read,
            (unsigned long long)stats->store_records, 100 * (1 - (double)least / (double)asked));
}

static void tell_workload(FILE *out, const char *words, unsigned in_slot)
{
    fl_engine_stats preload = live_through((fl_engine_config){.strategy = FL_PRELOAD}, in_slot);
    fl_engine_stats ahead = live_through((fl_engine_config){.strategy = FL_LOOKAHEAD}, in_slot);
    fl_engine_stats each = live_through(
        (fl_engine_config){.strategy = FL_LOOKAHEAD, .load_interval_us = SECOND_US, .delete_batch = 1}, in_slot);
    fprintf(out,
            "\n%s\n\n| | fired | reads | deletes | rows read | progress recorded | preload asks less by |\n"
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
            words);
    tell(out, "preload", &preload, &preload);
    tell(out, "look-ahead", &ahead, &preload);
    tell(out, "look-ahead every second, each row deleted by itself", &each, &preload);
}

void claims_tell(FILE *out, bool quick)
{
    fputs("## How often the store is asked\n\n"
          "An hour on a virtual clock, on the memory store: the requests with which an engine loads timers and deletes "
          "those\nthat have fired, by strategy; in brackets the multiple of preload's. The last row is the plain way: "
          "look every "
          "second,\ndelete one by one. Progress is recorded every second in which something has fired, by both.\n",
          out);
    tell_workload(out, "One timer a second:", SLOT_S);
    tell_workload(out, quick ? "50 timers a second:" : "50,000 timers in two minutes:",
                  quick ? 50 * SLOT_S : 50000 * SLOT_S / 120);
}
