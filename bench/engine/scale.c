/* SPDX-License-Identifier: MIT */
/* A fleet on one virtual clock: as many engines as there are shards, each with its own share of the load, on the memory
 * store. It shows that nothing in an engine grows with the number of shards, that a million executions a second are met by
 * every one of them, in time, and what one shard asks of its database and of its machine meanwhile. The clock stands still
 * while an engine works: lateness here is what the design costs, not what the machine does. */

#include <stdlib.h>
#include <time.h>

#include <foliot/engine.h>

#include "../frame.h"
#include "scale.h"

#define SECOND_US 1000000ll
#define START_US (1700000000 * SECOND_US)

enum { BATCH = 1000, AHEAD_S = 300 };

struct fleet {
    fl_virtual_clock time;
    fl_wall_clock clock;
    fl_loop *loop;
    fl_store *store;
    fl_engine **engines;
    unsigned shards, rate, seconds;
    uint64_t created, fired, early;
    int64_t latest_us;
};

struct wave {
    struct fleet *fleet;
    fl_batch batch;
    fl_op ops[BATCH];
};

static int64_t now_us(fl_wall_clock *clock)
{
    struct fleet *fleet = (struct fleet *)((char *)clock - offsetof(struct fleet, clock));
    return START_US + (int64_t)(fleet->time.time_ns / 1000);
}

static void dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    struct fleet *fleet = arg;
    int64_t now = now_us(&fleet->clock);
    for (size_t i = 0; i < count; i++) {
        int64_t late_us = now - firings[i].timer.due_us;
        fleet->early += late_us < 0;
        if (late_us > fleet->latest_us)
            fleet->latest_us = late_us;
        fl_engine_settle(engine, &(fl_settlement){.token = firings[i].token}, 1);
    }
    fleet->fired += count;
}

static void created(fl_batch *batch)
{
    struct wave *wave = batch->arg;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->ops[i].result < 0)
            bench_die("a timer was not created: %s", fl_strerror(batch->ops[i].result));
    wave->fleet->created += batch->count;
    free(wave);
}

/* A shard's timers of one second, five minutes ahead. */
static void schedule(struct fleet *fleet, unsigned shard, unsigned second)
{
    int64_t from_us = START_US + (AHEAD_S + (int64_t)second) * SECOND_US;
    for (unsigned done = 0; done < fleet->rate;) {
        struct wave *wave = malloc(sizeof *wave);
        if (!wave)
            bench_die("no memory");
        wave->fleet = fleet;
        size_t count = fleet->rate - done < BATCH ? fleet->rate - done : BATCH;
        for (size_t i = 0; i < count; i++)
            wave->ops[i] = (fl_op){.kind = FL_OP_CREATE,
                                   .timer = {.ns = FL_TEXT("bench"),
                                             .payload = FL_TEXT("payload"),
                                             .due_us = from_us + SECOND_US * (int64_t)(done + i) / fleet->rate}};
        wave->batch = (fl_batch){.ops = wave->ops, .count = count, .done = created, .arg = wave};
        fl_engine_submit(fleet->engines[shard], &wave->batch);
        done += (unsigned)count;
    }
}

static void stop_loop(fl_loop *loop, void *arg)
{
    (void)arg;
    fl_loop_stop(loop);
}

static void run_for(struct fleet *fleet, uint64_t us)
{
    if (fl_loop_timer(fleet->loop, us * 1000, stop_loop, NULL, NULL) < 0)
        bench_die("no memory");
    fl_loop_run(fleet->loop);
}

static void begin(struct fleet *fleet)
{
    fl_virtual_clock_init(&fleet->time, 1000);
    fleet->clock.now_us = now_us;
    fleet->engines = calloc(fleet->shards, sizeof(fl_engine *));
    if (!fleet->engines || fl_loop_new(&(fl_loop_config){.clock = &fleet->time.clock}, &fleet->loop) < 0 ||
        fl_store_open("memory:", &(fl_store_config){.shards = fleet->shards, .clock = &fleet->clock}, &fleet->store,
                      NULL, 0) < 0)
        bench_die("no memory");
    for (unsigned i = 0; i < fleet->shards; i++) {
        fl_engine_config config = {.loop = fleet->loop,
                                   .store = fleet->store,
                                   .owner = "bench",
                                   .dispatch = dispatch,
                                   .arg = fleet,
                                   .shard = i,
                                   .clock = &fleet->clock,
                                   .claim_us = 3600 * SECOND_US};
        if (fl_engine_start(&config, &fleet->engines[i]) < 0)
            bench_die("no engine");
    }
    run_for(fleet, SECOND_US);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void end(struct fleet *fleet)
{
    for (unsigned i = 0; i < fleet->shards; i++) {
        fl_engine_stop(fleet->engines[i], false, stop_loop, NULL);
        fl_loop_run(fleet->loop);
    }
    fl_store_close(fleet->store);
    fl_loop_free(fleet->loop);
    free(fleet->engines);
}

static void tell(FILE *out, unsigned shards, unsigned rate, unsigned seconds)
{
    struct fleet fleet = {.shards = shards, .rate = rate, .seconds = seconds};
    uint64_t all = (uint64_t)shards * rate * seconds, asked = 0, bytes = 0;
    begin(&fleet);
    for (unsigned s = 0; s < seconds; s++) {
        for (unsigned i = 0; i < shards; i++)
            schedule(&fleet, i, s);
        run_for(&fleet, 10000);
    }
    run_for(&fleet, (AHEAD_S - 30) * SECOND_US);
    for (unsigned i = 0; i < shards; i++) {
        fl_engine_stats stats;
        fl_engine_get_stats(fleet.engines[i], &stats);
        bytes += stats.bytes;
        asked -= stats.store_reads + stats.store_deletes + stats.store_records;
    }
    double before = cpu_seconds();
    run_for(&fleet, (30 + seconds + 60) * SECOND_US);
    double cpu = cpu_seconds() - before;
    for (unsigned i = 0; i < shards; i++) {
        fl_engine_stats stats;
        fl_engine_get_stats(fleet.engines[i], &stats);
        asked += stats.store_reads + stats.store_deletes + stats.store_records;
    }
    if (fleet.created != all || fleet.fired != all || fleet.early > 0)
        bench_die("of %llu timers %llu have fired, %llu of them early", (unsigned long long)all,
                  (unsigned long long)fleet.fired, (unsigned long long)fleet.early);
    fprintf(out, "| %u | %u | %llu | %llu | 0 | %.3f | %.2f | %.1f | %.1f |\n", shards, shards * rate,
            (unsigned long long)all, (unsigned long long)fleet.fired, (double)fleet.latest_us / 1000,
            cpu * 1e6 / (double)all, (double)asked / shards, (double)bytes / shards / 1e6);
    end(&fleet);
}

void scale_tell(FILE *out, bool quick)
{
    fputs(
        "## Many shards\n\n"
        "Engines of many shards on one virtual clock and the memory store: each has its own timers, scheduled five "
        "minutes\nahead, so that all of them come from the store. Lateness is in virtual time. The processor's time is "
        "that of loading,\nfiring, settling and deleting in the engine and in the memory store. Requests are those for "
        "reading, deleting and\nrecording progress, of one shard, from thirty seconds before the first is due until a "
        "minute after the last.\n\n"
        "| shards | executions a second | timers | fired | early | latest, ms | processor, µs each | requests a shard "
        "| "
        "memory a shard, MB |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        out);
    if (quick) {
        tell(out, 20, 100, 2);
        return;
    }
    tell(out, 1, 10000, 5);
    tell(out, 10, 10000, 5);
    tell(out, 100, 10000, 5);
    tell(out, 1000, 1000, 5);
    tell(out, 4, 10000, 60);
    fputs("\nThe last row has six times as many in a minute as the 100,000 that a shard may hold: it loads less far "
          "ahead, and more\noften.\n",
          out);
}
