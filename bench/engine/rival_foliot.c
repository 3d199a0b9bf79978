/* SPDX-License-Identifier: MIT */
/* Foliot's engine, on `sqlite:` and on `postgres://`, driven as a program would: a thread with a loop and an engine for each
 * shard, batches of operations, a dispatcher that answers FL_DONE.
 *
 * Timers that are due long ago are scheduled by an engine whose clock is slow: it takes them for future ones. */

#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <foliot/engine.h>

#include "../frame.h"
#include "postgres_server.h"
#include "rival.h"
#include "server.h"

enum { BATCH = 1000, UNDER_WAY = 16, DISPATCHED = 1000, LOADED_MOST = 2000000 };
#define SECOND_US ((int64_t)1000000)
#define AHEAD_US (180 * SECOND_US) /* filed under the shortest windows already, and not loaded yet */

struct foliot {
    char folder[256], url[400];
    uint32_t shards;
    struct postgres_server *server; /* of postgres:// */
    PGconn *conn;
    fl_store *store;
    atomic_uint over; /* shards that have done what they were asked to */
};

/* --- A shard's thread --------------------------------------------------------------------------------------------- */

struct slow_clock {
    fl_wall_clock clock;
    int64_t behind_us;
};

static int64_t slow_now_us(fl_wall_clock *clock)
{
    return wall_now_us() - ((struct slow_clock *)clock)->behind_us;
}

struct shard;
static void batch_done(fl_batch *batch);

/* A batch that is used again and again. */
struct lane {
    struct shard *shard;
    fl_batch batch;
    fl_op ops[BATCH];
    char payloads[BATCH][PAYLOAD], names[BATCH][24];
};

/* What to do with every shard. It is over when all of what is asked for has happened. */
struct task {
    struct timers timers; /* of all shards together */
    int64_t behind_us;    /* of the clock */
    bool schedule;        /* the timers, or for `seconds` timers that are due a second later */
    double seconds;
    bool until_fired; /* all that were scheduled */
    bool until_deleted;
    bool until_loaded;
    uint64_t until_dispatched; /* on any shard */
    double *late_ms;           /* how late each was */
};

struct shard {
    struct foliot *foliot;
    const struct task *task;
    uint32_t number;
    pthread_t thread;
    fl_loop *loop;
    fl_engine *engine;
    struct slow_clock clock;
    struct lane *lanes;
    size_t first, next, end, answered; /* timers */
    size_t busy;                       /* lanes */
    int64_t ready_us, over_us, last_answer_us;
    uint64_t dispatched, longest_us, cpu_ns;
    double resident; /* when it was over */
    bool over, stopping;
    fl_engine_stats stats;
};

static uint64_t cpu_ns(const struct foliot *self)
{
    return own_cpu_ns() + (self->server ? server_cpu_ns(self->server->pid) : 0);
}

static void stopped(fl_loop *loop, void *arg)
{
    (void)arg;
    fl_loop_stop(loop);
}

static void stop(fl_loop *loop, void *arg)
{
    struct shard *s = arg;
    (void)loop;
    fl_engine_stop(s->engine, false, stopped, s);
}

/* --- Whether it is over ------------------------------------------------------------------------------------------- */

static bool exhausted(const struct shard *s)
{
    const struct task *task = s->task;
    return !task->schedule ||
           (task->seconds > 0 ? wall_now_us() >= s->ready_us + (int64_t)(task->seconds * 1e6) : s->next >= s->end);
}

static bool is_over(struct shard *s)
{
    const struct task *task = s->task;
    const fl_engine_stats *stats = &s->stats;
    if (s->ready_us == 0 || s->busy > 0 || !exhausted(s) || s->dispatched < task->until_dispatched)
        return false;
    fl_engine_get_stats(s->engine, &s->stats);
    return (!task->until_fired || stats->fired >= (task->seconds > 0 ? s->answered : s->end - s->first)) &&
           (!task->until_deleted || stats->windows == 0) && (!task->until_loaded || stats->loaded == stats->pending);
}

static void look_whether_over(struct shard *s)
{
    if (s->over || !is_over(s))
        return;
    s->over = true;
    s->over_us = wall_now_us();
    s->cpu_ns = cpu_ns(s->foliot) - s->cpu_ns;
    atomic_fetch_add(&s->foliot->over, 1);
}

/* All stop together, so that what is in memory is there on all of them when it is looked at. */
static void look(fl_loop *loop, void *arg)
{
    struct shard *s = arg;
    fl_timer_id id;
    look_whether_over(s);
    if (s->stopping || atomic_load(&s->foliot->over) < s->foliot->shards)
        return;
    s->stopping = true;
    malloc_trim(0);
    s->resident = (double)bench_resident_bytes();
    fl_loop_immediate(loop, stop, s, &id);
}

/* --- Scheduling --------------------------------------------------------------------------------------------------- */

static void fill_op(struct lane *lane, size_t i, size_t timer)
{
    const struct task *task = lane->shard->task;
    fl_op *op = &lane->ops[i];
    timer_payload(timer, lane->payloads[i]);
    *op = (fl_op){.kind = FL_OP_CREATE, .timer = {.ns = FL_TEXT("bench"), .payload = {lane->payloads[i], PAYLOAD}}};
    op->timer.due_us = task->seconds > 0 ? wall_now_us() + SECOND_US : timer_due_us(&task->timers, timer);
    if (task->timers.named) {
        uint64_t state = timer;
        int size =
            snprintf(lane->names[i], sizeof lane->names[i], "order-%016llx", (unsigned long long)bench_random(&state));
        op->timer.name = (fl_bytes){lane->names[i], (size_t)size};
    }
}

static void next_batch(struct lane *lane)
{
    struct shard *s = lane->shard;
    size_t count = s->task->seconds > 0 || s->end - s->next > BATCH ? BATCH : s->end - s->next;
    for (size_t i = 0; i < count; i++)
        fill_op(lane, i, s->next + i);
    lane->batch = (fl_batch){.ops = lane->ops, .count = count, .done = batch_done, .arg = lane};
    s->next += count;
    s->busy++;
    fl_engine_submit(s->engine, &lane->batch);
}

static void batch_done(fl_batch *batch)
{
    struct lane *lane = batch->arg;
    struct shard *s = lane->shard;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->ops[i].result < 0 || batch->ops[i].outcome != FL_CREATED)
            bench_die("a timer was not created: %s", fl_strerror(batch->ops[i].result));
    int64_t now_us = wall_now_us();
    if ((uint64_t)(now_us - s->last_answer_us) > s->longest_us)
        s->longest_us = (uint64_t)(now_us - s->last_answer_us);
    s->last_answer_us = now_us;
    s->answered += batch->count;
    s->busy--;
    if (exhausted(s))
        look_whether_over(s);
    else
        next_batch(lane);
}

/* --- Firing ------------------------------------------------------------------------------------------------------- */

static void dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    struct shard *s = arg;
    const struct task *task = s->task;
    fl_settlement settlements[DISPATCHED];
    int64_t now_us = wall_now_us();
    if (s->dispatched == 0 && task->late_ms)
        s->cpu_ns = cpu_ns(s->foliot);
    for (size_t i = 0; i < count; i++) {
        if (task->late_ms)
            task->late_ms[s->first + s->dispatched + i] = (double)(now_us - firings[i].timer.due_us) / 1000;
        settlements[i] = (fl_settlement){.token = firings[i].token, .result = FL_DONE};
    }
    s->dispatched += count;
    fl_engine_settle(engine, settlements, count);
    look_whether_over(s);
}

/* --- From beginning to end ---------------------------------------------------------------------------------------- */

static void notify(void *arg, fl_engine *engine, enum fl_engine_event event, int result, const char *message)
{
    struct shard *s = arg;
    (void)engine, (void)result;
    if (event != FL_ENGINE_READY)
        bench_die("the engine is in trouble: %s", message);
    s->ready_us = s->last_answer_us = wall_now_us();
    for (size_t i = 0; i < UNDER_WAY && !exhausted(s); i++)
        next_batch(&s->lanes[i]);
}

static void set_up(struct shard *s)
{
    const struct task *task = s->task;
    s->lanes = task->schedule ? calloc(UNDER_WAY, sizeof *s->lanes) : NULL;
    for (size_t i = 0; s->lanes && i < UNDER_WAY; i++)
        s->lanes[i].shard = s;
    s->clock = (struct slow_clock){{slow_now_us}, task->behind_us};
    s->first = task->timers.first + task->timers.count * s->number / s->foliot->shards;
    s->end = task->timers.first + task->timers.count * (s->number + 1) / s->foliot->shards;
    s->next = s->first;
}

static void *run_shard(void *arg)
{
    struct shard *s = arg;
    fl_timer_id id;
    set_up(s);
    if (fl_loop_new(NULL, &s->loop) < 0)
        bench_die("no loop");
    fl_engine_config config = {.loop = s->loop,
                               .store = s->foliot->store,
                               .owner = "bench",
                               .shard = s->number,
                               .dispatch = dispatch,
                               .notify = notify,
                               .arg = s,
                               .max_memory_timers = LOADED_MOST,
                               .dispatch_batch = DISPATCHED,
                               .delete_interval_us = SECOND_US / 10,
                               .clock = s->task->behind_us ? &s->clock.clock : NULL};
    uint64_t look_ns = s->task->until_deleted ? 5000000 : 50000000; /* nothing else tells when all is deleted */
    int r = fl_engine_start(&config, &s->engine);
    if (r < 0 || fl_loop_interval(s->loop, look_ns, FL_INTERVAL_FROM_CALLBACK, look, s, &id) < 0)
        bench_die("no engine: %s", fl_strerror(r));
    fl_loop_run(s->loop);
    fl_loop_free(s->loop);
    free(s->lanes);
    return NULL;
}

static void open_store(struct foliot *self)
{
    char message[300];
    int r = fl_store_open(self->url, &(fl_store_config){.shards = self->shards}, &self->store, message, sizeof message);
    if (r < 0)
        bench_die("%s: %s", self->url, message);
}

/* Does the task on every shard. `shards` has what became of it. */
static void run(struct foliot *self, const struct task *task, struct shard shards[FOLIOT_SHARDS])
{
    atomic_store(&self->over, 0);
    open_store(self);
    for (uint32_t i = 0; i < self->shards; i++) {
        shards[i] = (struct shard){.foliot = self, .task = task, .number = i};
        if (pthread_create(&shards[i].thread, NULL, run_shard, &shards[i]) != 0)
            bench_die("no thread");
    }
    for (uint32_t i = 0; i < self->shards; i++)
        pthread_join(shards[i].thread, NULL);
    fl_store_close(self->store);
}

/* --- What every rival does ---------------------------------------------------------------------------------------- */

static struct outcome schedule(void *arg, const struct timers *timers)
{
    struct foliot *self = arg;
    struct shard shards[FOLIOT_SHARDS];
    struct task task = {.timers = *timers, .schedule = true};
    struct outcome outcome = {.count = timers->count};
    int64_t now_us = wall_now_us();
    if (timers->from_us < now_us)
        task.behind_us = now_us - timers->from_us + AHEAD_US;
    run(self, &task, shards);
    for (uint32_t i = 0; i < self->shards; i++) {
        outcome.longest_ms = fmax(outcome.longest_ms, (double)shards[i].longest_us / 1000);
        outcome.seconds = fmax(outcome.seconds, (double)(shards[i].last_answer_us - shards[i].ready_us) / 1e6);
    }
    return outcome;
}

/* The time from the start on, of the shard that takes longest. */
static struct outcome outcome_of(const struct foliot *self, const struct shard *shards, int64_t begin_us)
{
    struct outcome outcome = {0};
    for (uint32_t i = 0; i < self->shards; i++) {
        outcome.count += shards[i].stats.fired;
        outcome.seconds = fmax(outcome.seconds, (double)(shards[i].over_us - begin_us) / 1e6);
    }
    return outcome;
}

static struct outcome fire(void *arg, size_t count)
{
    struct shard shards[FOLIOT_SHARDS];
    struct task task = {.timers = {.count = count}, .until_fired = true, .until_deleted = true};
    int64_t begin_us = wall_now_us();
    run(arg, &task, shards);
    return outcome_of(arg, shards, begin_us);
}

static uint64_t punctual(void *arg, size_t count, double *late_ms)
{
    struct foliot *self = arg;
    struct shard shards[FOLIOT_SHARDS];
    struct task task = {.timers = {.count = count, .from_us = wall_now_us() + 2 * SECOND_US, .step_us = 1000},
                        .schedule = true,
                        .until_fired = true,
                        .late_ms = late_ms};
    uint64_t most_ns = 0;
    run(self, &task, shards);
    for (uint32_t i = 0; i < self->shards; i++) /* each has seen the time of all */
        most_ns = shards[i].cpu_ns > most_ns ? shards[i].cpu_ns : most_ns;
    return most_ns;
}

/* --- Looking from outside ----------------------------------------------------------------------------------------- */

int foliot_answer_look(const char *url, const char *until)
{
    struct foliot self = {.shards = FOLIOT_SHARDS};
    struct shard shards[FOLIOT_SHARDS];
    struct task task = {.until_loaded = strcmp(until, "loaded") == 0, .until_dispatched = strcmp(until, "fired") == 0};
    snprintf(self.url, sizeof self.url, "%s", url);
    int64_t begin_us = wall_now_us();
    run(&self, &task, shards);
    printf("%.6f %.0f\n", outcome_of(&self, shards, begin_us).seconds, fmax(shards[0].resident, shards[1].resident));
    return 0;
}

struct foliot_look foliot_look(void *self, const char *until)
{
    struct foliot_look look = {0};
    const struct foliot *foliot = self;
    char path[300], command[800], line[100] = "", *rest = line;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    snprintf(command, sizeof command, "'%s' --look '%s' %s", path, foliot->url, until);
    FILE *answer = popen(command, "r"); /* NOLINT(cert-env33-c): this program, by its path */
    if (answer && fgets(line, sizeof line, answer)) {
        look.seconds = strtod(line, &rest);
        look.memory_bytes = strtod(rest, NULL);
    }
    if (!answer || pclose(answer) != 0 || look.memory_bytes <= 0)
        bench_die("%s has failed", command);
    return look;
}

static double memory_bytes(void *arg)
{
    return foliot_look(arg, "ready").memory_bytes;
}

/* --- What only we do ---------------------------------------------------------------------------------------------- */

struct outcome foliot_sustain(void *self, double seconds)
{
    struct shard shards[FOLIOT_SHARDS];
    struct task task = {.schedule = true, .seconds = seconds, .until_fired = true};
    int64_t begin_us = wall_now_us();
    run(self, &task, shards);
    return outcome_of(self, shards, begin_us);
}

/* --- Two stores --------------------------------------------------------------------------------------------------- */

static void *open_sqlite(const char *folder)
{
    struct foliot *self = calloc(1, sizeof *self);
    snprintf(self->folder, sizeof self->folder, "%s/store", folder);
    snprintf(self->url, sizeof self->url, "sqlite:%s", self->folder);
    self->shards = FOLIOT_SHARDS;
    return self;
}

static void close_sqlite(void *arg)
{
    free(arg);
}

static double disk_sqlite(void *arg)
{
    return folder_bytes(((struct foliot *)arg)->folder);
}

static void *open_postgres(const char *folder)
{
    struct foliot *self = calloc(1, sizeof *self);
    self->server = postgres_server_start(folder);
    self->conn = postgres_server_connect(self->server);
    snprintf(self->url, sizeof self->url, "postgres://foliot@/postgres?host=%s", folder);
    self->shards = FOLIOT_SHARDS;
    return self;
}

static void close_postgres(void *arg)
{
    struct foliot *self = arg;
    PQfinish(self->conn);
    postgres_server_end(self->server);
    free(self);
}

static uint64_t cpu_postgres(void *arg)
{
    return server_cpu_ns(((struct foliot *)arg)->server->pid);
}

static double disk_postgres(void *arg)
{
    return postgres_server_query(
        ((struct foliot *)arg)->conn,
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname "
        "LIKE 'foliot%'");
}

const struct rival rival_sqlite = {
    .name = "foliot",
    .about =
        "The engine on `sqlite:`, two shards, each with a loop and a thread of its own in this process. Operations "
        "in batches of 1,000, 16 batches under way a shard; every answer after an fsync. Fired at least once: the "
        "dispatcher answers at once that it is done. Up to 2 M timers in memory a shard, what has fired is deleted "
        "ten times a second; all else as it comes.",
    .open = open_sqlite,
    .close = close_sqlite,
    .schedule = schedule,
    .fire = fire,
    .punctual = punctual,
    .memory_bytes = memory_bytes,
    .disk_bytes = disk_sqlite,
};

const struct rival rival_postgres_store = {
    .name = "foliot-pg",
    .about = "The same engine on `postgres://`, two shards, on a server with the settings of the plain one.",
    .version = postgres_server_version,
    .needs = "initdb",
    .open = open_postgres,
    .close = close_postgres,
    .schedule = schedule,
    .fire = fire,
    .punctual = punctual,
    .memory_bytes = memory_bytes,
    .disk_bytes = disk_postgres,
    .server_cpu = cpu_postgres,
};
