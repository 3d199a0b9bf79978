/* SPDX-License-Identifier: MIT */
/* The benchmark of several servers on one PostgreSQL: what is measured.
 *
 * One program drives them over TCP, as in the benchmark of one server, whose load generator this is. All of it is on one
 * machine, so that servers, database and load share its processors: more servers cannot be faster here. What can be seen here is
 * what a timer costs and where, and from that what more machines would do. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../engine/postgres_server.h"
#include "../engine/server.h"
#include "../frame.h"
#include "../server/sink.h"
#include "ceiling.h"
#include "fleet.h"

#define SECOND_US ((int64_t)1000000)
#define DAY_US (86400 * SECOND_US)
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Of each kind of work: how many a second, and the processor's time of the servers and of PostgreSQL for each. */
enum { RATE, SERVERS, DATABASE, PARTS };
enum measure {
    BATCH,
    NAMED = BATCH + PARTS,
    SINGLE = NAMED + PARTS,
    FIRE = SINGLE + PARTS,
    SINGLE_HERE = FIRE + PARTS,
    SINGLE_THERE,
    LINE_HERE,
    LINE_THERE,
    WAIT_HERE,
    WAIT_THERE,
    GAP,
    GAP_MEDIAN,
    N_MEASURES
};

static const struct setup {
    unsigned servers; /* 0: the database alone */
    bool spread;
} setups[] = {{3, true}, {3, false}, {2, true}, {2, false}, {1, false}, {0, false}};

enum { SINGLE_CONNECTIONS = 48, WAITS = 31, WAITED = 10, KILLS = 5, STEP_MS = 10 };

/* --- Costs -------------------------------------------------------------------------------------------------------- */

struct cpu {
    uint64_t servers_ns, database_ns;
};

static struct cpu cpu_now(const struct fleet *fleet)
{
    return (struct cpu){fleet_cpu_ns(fleet), database_cpu_ns()};
}

static double us_each(uint64_t ns, size_t count)
{
    return (double)ns / 1000 / (double)count;
}

/* The least of all runs with three servers, for what is told in the end. */
static double least_us[N_MEASURES];
static double least_removal_us; /* of the database alone, for a row */

static void record_cost(struct bench_run *run, unsigned measure, uint64_t ns, size_t count, const struct fleet *fleet)
{
    double us = us_each(ns, count);
    bench_record(run, measure, us);
    if (fleet->count == MOST_SERVERS && us > 0 && (least_us[measure] == 0 || us < least_us[measure]))
        least_us[measure] = us;
}

static void record_work(struct bench_run *run, unsigned work, struct done done, const struct fleet *fleet,
                        struct cpu before)
{
    struct cpu after = cpu_now(fleet);
    bench_record(run, work + RATE, (double)done.count / done.seconds / 1000);
    record_cost(run, work + SERVERS, after.servers_ns - before.servers_ns, done.count, fleet);
    record_cost(run, work + DATABASE, after.database_ns - before.database_ns, done.count, fleet);
}

static bool wants_work(const struct bench_run *run, unsigned work)
{
    return bench_wants(run, work + RATE) || bench_wants(run, work + SERVERS) || bench_wants(run, work + DATABASE);
}

/* --- Throughput --------------------------------------------------------------------------------------------------- */

/* Names that begin with a letter of their own for each measure. */
static void plain_name(char name[32], size_t i, void *arg)
{
    snprintf(name, 32, "%c%zu", *(const char *)arg, i);
}

static void measure_batch(struct bench_run *run, const struct fleet *fleet, const struct target *target, size_t size)
{
    bench_working_on(run, BATCH);
    struct cpu before = cpu_now(fleet);
    record_work(run, BATCH, foliot_batch(target, size, wall_now_us() + DAY_US, NULL, NULL), fleet, before);
}

static void measure_named(struct bench_run *run, const struct fleet *fleet, const struct target *target, size_t size)
{
    bench_working_on(run, NAMED);
    struct cpu before = cpu_now(fleet);
    struct done done = foliot_batch(target, size, wall_now_us() + DAY_US, plain_name, "n");
    record_work(run, NAMED, done, fleet, before);
}

static void measure_single(struct bench_run *run, const struct fleet *fleet, const struct target *target, size_t size)
{
    bench_working_on(run, SINGLE);
    struct cpu before = cpu_now(fleet);
    record_work(run, SINGLE, foliot_create(target, SINGLE_CONNECTIONS, size, plain_name, "s"), fleet, before);
}

/* All are due when it begins. Deleting comes when their window of time is over, half a minute later: it is not in it. */
static void measure_fire(struct bench_run *run, const struct fleet *fleet, const struct target *target, size_t size)
{
    bench_working_on(run, FIRE);
    foliot_batch(target, size, wall_now_us(), NULL, NULL);
    usleep(300000);
    struct cpu before = cpu_now(fleet);
    struct done done = rival_foliot.pull(target, size);
    if (done.count != size)
        bench_die("%zu timers of %zu have come", done.count, size);
    record_work(run, FIRE, done, fleet, before);
}

/* --- The database alone ------------------------------------------------------------------------------------------- */

static struct rows make_rows(struct fleet **ret_fleet, size_t size, bool named)
{
    struct rows rows;
    struct fleet *fleet = fleet_start(1);
    struct target target = fleet_target(fleet, false);
    foliot_batch(&target, size, wall_now_us() + DAY_US, named ? plain_name : NULL, "n");
    fleet_kill(fleet, 0);
    rows_take(&rows, fleet);
    if (rows.count != size)
        bench_die("there are %zu rows and not %zu", rows.count, size);
    *ret_fleet = fleet;
    return rows;
}

static void record_ceiling(struct bench_run *run, unsigned work, struct done done, uint64_t cpu_ns)
{
    bench_record(run, work + RATE, (double)done.count / done.seconds / 1000);
    bench_record(run, work + DATABASE, us_each(cpu_ns, done.count));
    if (work == FIRE && (least_removal_us == 0 || us_each(cpu_ns, done.count) < least_removal_us))
        least_removal_us = us_each(cpu_ns, done.count);
}

static void measure_ceiling(struct bench_run *run, size_t size)
{
    struct fleet *fleet;
    uint64_t cpu_ns;
    bench_working_on(run, BATCH);
    struct rows rows = make_rows(&fleet, size, false);
    struct done done = rows_copy(&rows, fleet, &cpu_ns);
    record_ceiling(run, BATCH, done, cpu_ns);
    bench_working_on(run, FIRE);
    done = rows_remove(&rows, fleet, &cpu_ns);
    record_ceiling(run, FIRE, done, cpu_ns);
    rows_free(&rows);
    fleet_end(fleet);

    bench_working_on(run, NAMED);
    rows = make_rows(&fleet, size, true);
    done = rows_copy(&rows, fleet, &cpu_ns);
    record_ceiling(run, NAMED, done, cpu_ns);
    rows_free(&rows);
    rows_take(&rows, fleet);
    bench_working_on(run, SINGLE);
    done = rows_insert(&rows, fleet, &cpu_ns);
    record_ceiling(run, SINGLE, done, cpu_ns);
    rows_free(&rows);
    fleet_end(fleet);
}

/* --- Forwarding --------------------------------------------------------------------------------------------------- */

/* Names whose shard the first server has, or has not. */
struct choice {
    const struct fleet *fleet;
    bool here;
    char letter;
    size_t next;
};

static void chosen_name(char name[32], size_t i, void *arg)
{
    struct choice *choice = arg;
    (void)i;
    do
        plain_name(name, choice->next++, &choice->letter);
    while ((fleet_owner(choice->fleet, name) == 0) != choice->here);
}

static void measure_way(struct bench_run *run, const struct fleet *fleet, size_t size, bool here)
{
    struct target target = fleet_target(fleet, false);
    struct choice choice = {.fleet = fleet, .here = here, .letter = here ? 'h' : 't'};
    unsigned measure = here ? SINGLE_HERE : SINGLE_THERE;
    bench_working_on(run, measure);
    uint64_t cpu_ns = fleet_cpu_ns(fleet);
    struct done done = foliot_create(&target, SINGLE_CONNECTIONS, size, chosen_name, &choice);
    record_cost(run, measure, fleet_cpu_ns(fleet) - cpu_ns, done.count, fleet);

    measure = here ? LINE_HERE : LINE_THERE;
    bench_working_on(run, measure);
    cpu_ns = fleet_cpu_ns(fleet);
    done = foliot_batch(&target, size, wall_now_us() + DAY_US, chosen_name, &choice);
    record_cost(run, measure, fleet_cpu_ns(fleet) - cpu_ns, done.count, fleet);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Both ways by turns, since a disk has its moods. */
static void measure_waits(struct bench_run *run, const struct fleet *fleet)
{
    struct target target = fleet_target(fleet, false);
    struct choice choices[] = {{.fleet = fleet, .here = true, .letter = 'w'}, {.fleet = fleet, .letter = 'v'}};
    double waits_ms[2][WAITS];
    bench_working_on(run, WAIT_HERE);
    for (unsigned i = 0; i < 2 * WAITS; i++) {
        struct done done = foliot_create(&target, 1, WAITED, chosen_name, &choices[i % 2]);
        waits_ms[i % 2][i / 2] = done.seconds * 1000 / (double)done.count;
    }
    for (unsigned way = 0; way < 2; way++) {
        qsort(waits_ms[way], WAITS, sizeof waits_ms[way][0], by_value);
        bench_record(run, WAIT_HERE + way, waits_ms[way][WAITS / 2]);
    }
}

/* --- A server is killed ------------------------------------------------------------------------------------------- */

static struct kill {
    double dead_ms, living_ms; /* how late the latest timer was */
} kills[KILLS];
static unsigned kills_made;

struct deliveries {
    struct fleet *fleet;
    size_t count, seen;
    double *late_ms; /* of each timer, when it came first; NAN: it has not */
    int64_t kill_us;
    unsigned victim;
    bool killed;
};

static bool delivered(void *arg, const char *body, double late_ms)
{
    struct deliveries *all = arg;
    size_t i = strtoull(body + 1, NULL, 16); /* behind the quotation mark */
    if (i >= all->count || late_ms < 0)
        bench_die("a call that should not be: %.2f ms late, %s", late_ms, body);
    all->seen += isnan(all->late_ms[i]);
    all->late_ms[i] = isnan(all->late_ms[i]) ? late_ms : all->late_ms[i];
    if (!all->killed && wall_now_us() > all->kill_us) {
        all->killed = true;
        fleet_kill(all->fleet, all->victim);
    }
    return all->seen < all->count;
}

static struct kill latest_of(const struct deliveries *all)
{
    struct kill kill = {0};
    char name[32];
    for (size_t i = 0; i < all->count; i++) {
        snprintf(name, sizeof name, "order-%zu", i); /* as foliot_hooks() calls them */
        double *latest = fleet_owner(all->fleet, name) == all->victim ? &kill.dead_ms : &kill.living_ms;
        *latest = fmax(*latest, all->late_ms[i]);
    }
    return kill;
}

/* A claim is renewed every second: the kills come at different moments of it. */
static struct kill kill_one(struct fleet *fleet, unsigned victim, int64_t wait_us)
{
    struct deliveries all = {.fleet = fleet, .count = 7000 / STEP_MS, .victim = victim};
    char url[64];
    int port, listener = receiver_listen(&port);
    all.late_ms = malloc(all.count * sizeof *all.late_ms);
    for (size_t i = 0; i < all.count; i++)
        all.late_ms[i] = NAN;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/hook", port);
    int64_t from_us = (wall_now_us() / 1000 + 1000) * 1000;
    foliot_hooks(&fleet->servers[(victim + 1) % fleet->count], url, all.count, from_us, (int64_t)STEP_MS * 1000);
    all.kill_us = from_us + SECOND_US + wait_us;
    receiver_run(listener, delivered, &all);
    close(listener);
    struct kill kill = latest_of(&all);
    free(all.late_ms);
    fleet_restart(fleet, victim);
    fleet_settle(fleet);
    return kill;
}

static int ascending(const void *a, const void *b)
{
    const struct kill *x = a, *y = b;
    return (x->dead_ms > y->dead_ms) - (x->dead_ms < y->dead_ms);
}

/* Once, and not in every round: of several kills the worst counts. */
static void measure_gap(struct bench_run *run, struct fleet *fleet)
{
    if (kills_made > 0)
        return;
    bench_working_on(run, GAP);
    for (unsigned wanted = bench_is_quick(run) ? 1 : KILLS; kills_made < wanted; kills_made++)
        kills[kills_made] = kill_one(fleet, kills_made % fleet->count, kills_made * SECOND_US / KILLS);
    qsort(kills, kills_made, sizeof kills[0], ascending);
    bench_record(run, GAP, kills[kills_made - 1].dead_ms / 1000);
    bench_record(run, GAP_MEDIAN, kills[kills_made / 2].dead_ms / 1000);
}

/* --- One run ------------------------------------------------------------------------------------------------------ */

static bool wants_any(const struct bench_run *run, unsigned from, unsigned to)
{
    for (unsigned i = from; i <= to; i++)
        if (bench_wants(run, i))
            return true;
    return false;
}

static void run_once(struct bench_run *run, unsigned rival, size_t size)
{
    static void (*const works[])(struct bench_run *, const struct fleet *, const struct target *,
                                 size_t) = {measure_batch, measure_named, measure_single, measure_fire};
    const struct setup *setup = &setups[rival];
    if (setup->servers == 0) {
        if (wants_any(run, BATCH, FIRE + DATABASE))
            measure_ceiling(run, size);
        return;
    }
    struct fleet *fleet = fleet_start(setup->servers);
    struct target target = fleet_target(fleet, setup->spread);
    for (unsigned i = 0; i < COUNT(works); i++)
        if (wants_work(run, i * PARTS))
            works[i](run, fleet, &target, size);
    if (rival == 0 && wants_any(run, SINGLE_HERE, WAIT_THERE)) {
        measure_way(run, fleet, size, true);
        measure_way(run, fleet, size, false);
        measure_waits(run, fleet);
    }
    if (rival == 0 && wants_any(run, GAP, GAP_MEDIAN))
        measure_gap(run, fleet);
    fleet_end(fleet);
}

/* --- What else is told -------------------------------------------------------------------------------------------- */

static void tell_cost(FILE *out, const char *name, unsigned work)
{
    double servers = least_us[work + SERVERS];
    double database = least_us[work + DATABASE] + (work == FIRE ? least_removal_us : 0);
    if (servers > 0 && database > 0)
        fprintf(out, "| %s | %.1f | %.1f | %.0f k | %.1f |\n", name, servers, database, 1000 / database,
                servers / database);
}

static void more(FILE *out, bool quick)
{
    (void)quick;
    fputs(
        "## What this predicts for more machines\n\n"
        "Computed, not measured, from the processor's time with three servers, the lesser of both ways of asking them. "
        "If the\n"
        "database has processors of its own, each of them is enough for so many timers a second; to keep it busy, the\n"
        "servers together need so many. Servers are added until the database is the limit. What is beyond that is a "
        "matter\n"
        "of its disk, of its locks and of how well it uses more processors.\n\n"
        "- With three servers, two thirds of what has a name is forwarded; with more it becomes nearly all, which adds "
        "a third\n"
        "  of the difference between forwarded and not forwarded.\n"
        "- One by one, what the database pays for is the commit: those that come to one shard at a time share one. "
        "Here that\n"
        "  is few, since 48 connections have twelve shards. With more clients for each shard a timer is cheaper.\n"
        "- To lease and acknowledge, what PostgreSQL alone needs to read and delete the rows is added.\n\n"
        "| | servers, µs | PostgreSQL, µs | timers a second for one processor of PostgreSQL | processors of servers "
        "beside it |\n| --- | ---: | ---: | ---: | ---: |\n",
        out);
    tell_cost(out, "create in batches", BATCH);
    tell_cost(out, "create in batches, by name", NAMED);
    tell_cost(out, "create one by one, by name", SINGLE);
    tell_cost(out, "lease and acknowledge", FIRE);
    if (kills_made == 0)
        return;
    fprintf(out,
            "\n## Kills\n\nEvery %d ms a timer is due, with a webhook, in shards of all three servers, for seven "
            "seconds. After "
            "one to two\nseconds a server is killed (SIGKILL). How late the latest timer came, for the first time, of "
            "those in "
            "its shards, and\nof those in the shards of the other two:\n\n"
            "| kill | shards of the dead, ms | of the living, ms |\n| ---: | ---: | ---: |\n",
            STEP_MS);
    for (unsigned i = 0; i < kills_made; i++)
        fprintf(out, "| %u | %.0f | %.1f |\n", i + 1, kills[i].dead_ms, kills[i].living_ms);
    fputs("\n", out);
}

/* --- The benchmark ------------------------------------------------------------------------------------------------ */

#define COSTS(id, name)                                                                                            \
    {id "s", name ": servers", "µs", "The processor's time of all servers together, for each timer.", BENCH_COST}, \
    {                                                                                                              \
        id "p", name ": PostgreSQL", "µs",                                                                         \
            "The processor's time of PostgreSQL, all of its processes, for each timer.", BENCH_COST                \
    }

static const struct bench_measure measures[] = {
    {"C1", "create in batches", "k/s",
     "N timers without names over six connections, each a `POST /v1/batch` that streams, with an answer for every "
     "line. "
     "PostgreSQL: the rows that Foliot made of the same, taken out of its table and put into it again, with the same "
     "indexes, by `COPY … BINARY` over six connections, 5,000 in a transaction.",
     BENCH_RATE},
    COSTS("C1", "create in batches"),
    {"C2", "create in batches, by name", "k/s",
     "The same with a name for each, which decides the shard: with three servers, two thirds are in another's. "
     "PostgreSQL: "
     "the same, without looking for the name first.",
     BENCH_RATE},
    COSTS("C2", "create in batches, by name"),
    {"C3", "create one by one, by name", "k/s",
     "One timer a request (`PUT`), a request at a time on each of 48 connections. N of them, or as many as a second "
     "and a "
     "half allows. PostgreSQL: an `INSERT` of each row, a transaction each, over 32 connections.",
     BENCH_RATE},
    COSTS("C3", "create one by one, by name"),
    {"C4", "lease and acknowledge", "k/s",
     "N timers that are due are leased, 5,000 at a time, and acknowledged, over six connections. They are deleted when "
     "their "
     "window of time is over, half a minute later, which is not in it. PostgreSQL: the same rows read and deleted, a "
     "shard at a "
     "time, over six connections.",
     BENCH_RATE},
    COSTS("C4", "lease and acknowledge"),
    {"C5", "one by one, where it belongs: servers", "µs",
     "As C3s, sent to one server of three, and all of them in its own shards.", BENCH_COST},
    {"C6", "one by one, forwarded: servers", "µs", "The same, and none of them in its own shards.", BENCH_COST},
    {"C7", "in a batch, where it belongs: servers", "µs", "As C2s, in the same way.", BENCH_COST},
    {"C8", "in a batch, forwarded: servers", "µs", "The same, forwarded.", BENCH_COST},
    {"C9", "one create, where it belongs", "ms",
     "From request to answer, one at a time on one connection: ten of them, on average, of which the median of 31 "
     "times, by turns with the next.",
     BENCH_COST},
    {"C10", "one create, forwarded", "ms", "The same, forwarded.", BENCH_COST},
    {"C11", "killed: the latest timer", "s",
     "How late the latest timer of a killed server's shards comes, the worst of five kills: see below. The lease is "
     "the "
     "default, 3 s. It must be at most 5 s.",
     BENCH_RATE, 1},
    {"C12", "killed: median", "s", "The median of the five.", BENCH_RATE, 1},
};
_Static_assert(COUNT(measures) == N_MEASURES, "a measure for each of the enumeration");

static const struct bench_chart charts[] = {
    {"throughput",
     "One, two and three servers on one machine",
     "Thousands a second; all share the processors with the database and the load. More is better.",
     {"C1", "C2", "C3", "C4"},
     BENCH_BARS,
     true},
    {"servers",
     "The servers' share of the processor",
     "Microseconds of all servers for a timer. Less is better.",
     {"C1s", "C2s", "C3s", "C4s"},
     BENCH_BARS,
     true},
    {"database",
     "The database's share of the processor",
     "Microseconds of PostgreSQL for a timer. Less is better.",
     {"C1p", "C2p", "C3p", "C4p"},
     BENCH_BARS,
     true},
};

static const struct bench_rival rivals[] = {
    {"three",
     "Three servers (`foliot serve --advertise`), each asked as often as the others. Twelve shards, four each.", NULL,
     true, false},
    {"three-by-one", "The same, but all requests go to one of them.", NULL, false, false},
    {"two", "Two servers, each asked as often as the other. Six shards each.", NULL, false, false},
    {"two-by-one", "The same, but all requests go to one of them.", NULL, false, false},
    {"one", "One server, with all twelve shards.", NULL, false, false},
    {"postgres",
     "PostgreSQL without Foliot: the ceiling. `shared_buffers` 512 MB, `max_wal_size` 4 GB, all else as it comes, "
     "fsync "
     "included; the same for all.",
     postgres_server_version, false, false},
};

static const size_t sizes[] = {60000, 0};
static const size_t quick_sizes[] = {6000, 0};

static const char intro[] =
    "One, two and three `foliot serve` on one PostgreSQL, beside what that PostgreSQL can do by itself. Servers, "
    "database\n"
    "and the one program that drives them share the processors of one machine, so that more servers are not faster\n"
    "here: the question is what a timer costs, and where. Payloads have 100 bytes; every answer comes after the "
    "commit.\n"
    "The setups take turns, several rounds, and the best round counts (of kills, the worst).";

static unsigned find_rivals(void)
{
    if (server_program("initdb"))
        return BENCH_COUNT(rivals);
    fprintf(stderr, "bench: several servers are left out: there is no PostgreSQL here\n");
    return 0;
}

const struct bench benchmark = {
    .name = "cluster",
    .title = "Benchmark: several servers",
    .size_name = "timers",
    BENCH_TABLES,
    .find_rivals = find_rivals,
    .run = run_once,
    .more = more,
};
