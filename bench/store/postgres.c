/* SPDX-License-Identifier: MIT */
/* What the store in PostgreSQL does in a second, beside what COPY does on the same server in the same run.
 *
 *     [ROWS=1000000] [SHARDS=2] [BATCH=10000] [STORE=postgres://...] measure-postgres
 *
 * Starts a server of its own, with fsync; or uses the given one, in schemas that it makes and drops, without COPY. Rows have 100-byte bodies and are due within the next hour; every answer comes
 * after its commit. Two batches of each shard are under way at a time. One thread drives all shards.
 */

#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <foliot/store.h>

#include "../copy.h"
#include "pg.h"
#include "test.h"

enum { SHARDS_MAX = 8, AHEAD = 2, BODY = 100, WINDOWS = 108 };

static size_t total = 1000000, batch = 10000;
static unsigned shards = 2;
static fl_loop *loop;
static fl_store *store;
static unsigned running;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void say(const char *what, size_t rows, double seconds)
{
    double rate = (double)rows / seconds / 1e3;
    printf("%-44s %8.*f k/s\n", what, rate < 10 ? 2 : 0, rate);
    fflush(stdout);
}

/* --- COPY --------------------------------------------------------------------------------------------------------- */

/* A batch of rows. Returns where they end. */
static char *put_batch(char *at, uint64_t *seq)
{
    static const char body[BODY] = "x";
    for (size_t i = 0; i < batch; i++, *seq += 2) {
        int64_t due = (int64_t)(i * WINDOWS / batch) << 25; /* in order of windows, as the store does it */
        at = copy_columns(at, 6);
        at = copy_number(at, 0);
        at = copy_number(at, fl_window_of(due, 25));
        at = copy_number(at, *seq);
        at = copy_number(at, (uint64_t)due);
        at = copy_bytes(at, "default", 7);
        at = copy_bytes(at, body, BODY);
    }
    return at;
}

static void measure_copy(void)
{
    char info[200];
    snprintf(info, sizeof info, "host=%s user=foliot dbname=postgres", pg_folder());
    PGconn *conn = PQconnectdb(info);
    pg_sql("CREATE TABLE copied (shard bigint, win bigint, seq bigint, at bigint, ns bytea, name bytea, id bytea,"
           " body bytea, PRIMARY KEY (shard, win, seq))");
    char *buffer = malloc(batch * (BODY + 100));
    uint64_t seq = 2;
    double began = now_s();
    for (size_t done = 0; done < total; done += batch) {
        copy_begin(conn, "COPY copied (shard, win, seq, at, ns, body) FROM STDIN BINARY");
        copy_send(conn, buffer, put_batch(buffer, &seq));
        copy_end(conn);
    }
    say("COPY, one connection", total, now_s() - began);
    free(buffer);
    PQfinish(conn);
    pg_sql("DROP TABLE copied");
    pg_sql("CHECKPOINT");
}

/* --- The store ---------------------------------------------------------------------------------------------------- */

struct lane { /* one batch that is under way */
    struct worker *worker;
    fl_store_request request;
    fl_row *rows;
    fl_store_change *changes;
    fl_store_want *wants;
    char (*names)[32];
};

static struct worker {
    fl_shard *shard;
    uint64_t version, seq;
    size_t left;
    struct lane lanes[AHEAD];
    size_t seen;
} workers[SHARDS_MAX];

static bool named;

static void check(const fl_store_request *request)
{
    if (request->result < 0)
        test_fail(__FILE__, __LINE__, "%s", request->message);
}

static void write_next(struct lane *lane);

static void written(fl_store_request *request)
{
    check(request);
    write_next(request->arg);
}

static void fill(struct lane *lane)
{
    static const char body[BODY] = "x";
    struct worker *worker = lane->worker;
    for (size_t i = 0; i < batch; i++, worker->seq += 2) {
        int64_t due = (int64_t)(worker->seq * 2654435761u % ((uint64_t)WINDOWS << 25));
        lane->rows[i] = (fl_row){.key = {due, worker->seq}, .id = {due, worker->seq}, .ns = {"default", 7}};
        lane->rows[i].window = fl_window_of(due, 25);
        lane->rows[i].body = (fl_bytes){body, BODY};
        lane->changes[i] = (fl_store_change){.put = &lane->rows[i]};
        if (named) {
            int n = snprintf(lane->names[i], 32, "name-%llx", worker->seq * 0x9e3779b97f4a7c15ull);
            lane->rows[i].name = (fl_bytes){lane->names[i], (size_t)n};
            lane->wants[i] = (fl_store_want){.ns = lane->rows[i].ns, .name = lane->rows[i].name};
        }
    }
}

static void write_found(fl_store_request *request)
{
    check(request);
    struct lane *lane = request->arg;
    for (size_t i = 0; named && i < batch; i++)
        CHECK(!lane->wants[i].found);
    *request = (fl_store_request){.op = FL_STORE_WRITE,
                                  .version = lane->worker->version,
                                  .done = written,
                                  .arg = lane,
                                  .write = {lane->changes, batch}};
    fl_store_submit(lane->worker->shard, request);
}

static void write_next(struct lane *lane)
{
    if (lane->worker->left < batch) {
        running--;
        return;
    }
    lane->worker->left -= batch;
    fill(lane);
    if (!named) {
        lane->request.arg = lane;
        write_found(&lane->request);
        return;
    }
    lane->request =
        (fl_store_request){.op = FL_STORE_FIND, .done = write_found, .arg = lane, .find = {lane->wants, batch}};
    fl_store_submit(lane->worker->shard, &lane->request);
}

static void run(void)
{
    while (running > 0)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
}

static void measure_write(const char *what)
{
    double began = now_s();
    for (unsigned i = 0; i < shards; i++) {
        workers[i].left = total / shards;
        for (int j = 0; j < AHEAD; j++) {
            running++;
            workers[i].lanes[j].request = (fl_store_request){0};
            write_next(&workers[i].lanes[j]);
        }
    }
    run();
    say(what, total / shards / batch * batch * shards, now_s() - began);
}

static void finished(fl_store_request *request)
{
    check(request);
    if (request->op == FL_STORE_CLAIM)
        ((struct worker *)request->arg)->version = request->claim.version;
    running--;
}

static void take_rows(fl_store_request *request, const fl_row *rows, size_t count)
{
    (void)rows;
    ((struct worker *)request->arg)->seen += count;
}

static uint64_t windows[WINDOWS];

static void submit(struct worker *worker, fl_store_request request)
{
    request.version = worker->version;
    request.done = finished;
    request.arg = worker;
    worker->lanes[0].request = request;
    running++;
    fl_store_submit(worker->shard, &worker->lanes[0].request);
}

static void measure_load(size_t at_once)
{
    double began = now_s();
    size_t seen = 0;
    for (size_t w = 0; w < WINDOWS; w += at_once) {
        for (unsigned i = 0; i < shards; i++)
            submit(&workers[i], (fl_store_request){.op = FL_STORE_LOAD,
                                                   .load = {.windows = windows + w,
                                                            .window_count = at_once,
                                                            .until_us = FL_STORE_TIME_END,
                                                            .limit = 1000000,
                                                            .rows = take_rows}});
        run();
    }
    for (unsigned i = 0; i < shards; i++)
        seen += workers[i].seen;
    say("load, four windows at a time", seen, now_s() - began);
}

static void measure_finish(const char *what, bool whole, size_t from, size_t until)
{
    double began = now_s();
    size_t deleted = 0;
    for (size_t w = from; w < until; w++) {
        struct fl_store_span span = {windows[w], whole};
        fl_progress all = {.front = {{FL_STORE_TIME_END - 1, 1}, {FL_STORE_TIME_END - 1, 1}}};
        for (unsigned i = 0; i < shards; i++)
            submit(&workers[i],
                   (fl_store_request){.op = FL_STORE_FINISH,
                                      .finish = {.spans = &span, .span_count = 1, .settled = all, .record = all}});
        run();
        for (unsigned i = 0; i < shards; i++)
            deleted += workers[i].lanes[0].request.finish.deleted;
    }
    say(what, deleted, now_s() - began);
}

static void say_to(const char *url, const char *format, const char *schema)
{
    char sql[200];
    snprintf(sql, sizeof sql, format, schema);
    PGconn *conn = PQconnectdb(url);
    PGresult *result = PQexec(conn, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, PQerrorMessage(conn));
    PQclear(result);
    PQfinish(conn);
}

/* Of a new schema, on our own server or on the given one. */
static const char *make_schema(const char *schema)
{
    static char url[500];
    const char *given = getenv("STORE");
    if (!given)
        return pg_url(schema);
    say_to(given, "CREATE SCHEMA measure_%s", schema);
    snprintf(url, sizeof url, "%s%coptions=-csearch_path%%3Dmeasure_%s", given, strchr(given, '?') ? '&' : '?', schema);
    return url;
}

static void detached(fl_loop *of, void *arg)
{
    (void)of, (void)arg;
    running--;
}

static void end(const char *schema)
{
    for (unsigned i = 0; i < shards; i++, running++)
        fl_store_detach(workers[i].shard, detached, NULL);
    run();
    fl_store_close(store);
    if (getenv("STORE"))
        say_to(getenv("STORE"), "SET client_min_messages = error; DROP SCHEMA measure_%s CASCADE", schema);
}

static void begin(const char *schema)
{
    char message[300];
    int r = fl_store_open(make_schema(schema), &(fl_store_config){.shards = shards, .timeout_us = 600000000}, &store,
                          message, sizeof message);
    if (r < 0)
        test_fail(__FILE__, __LINE__, "%s", message);
    for (unsigned i = 0; i < shards; i++) {
        struct worker *worker = &workers[i];
        *worker = (struct worker){.seq = 2};
        CHECK_EQ(fl_store_attach(store, i, loop, &worker->shard), 0);
        submit(worker,
               (fl_store_request){.op = FL_STORE_CLAIM, .claim = {.owner = "bench", .claim_us = 1, .force = true}});
        for (int j = 0; j < AHEAD; j++)
            worker->lanes[j] = (struct lane){.worker = worker,
                                             .request = worker->lanes[j].request,
                                             .rows = calloc(batch, sizeof(fl_row)),
                                             .changes = calloc(batch, sizeof(fl_store_change)),
                                             .wants = calloc(batch, sizeof(fl_store_want)),
                                             .names = calloc(batch, 32)};
    }
    run();
}

static size_t setting(const char *name, size_t otherwise)
{
    const char *value = getenv(name);
    return value ? strtoul(value, NULL, 10) : otherwise;
}

TEST(measure)
{
    total = setting("ROWS", total);
    batch = setting("BATCH", batch);
    shards = (unsigned)setting("SHARDS", shards);
    CHECK(batch > 0 && shards > 0 && shards <= SHARDS_MAX);
    if (!getenv("STORE"))
        pg_start(true);
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    fl_loop_hold(loop);
    for (uint64_t i = 0; i < WINDOWS; i++)
        windows[i] = fl_window_of((int64_t)i << 25, 25);
    if (!getenv("STORE"))
        measure_copy();
    begin("plain");
    measure_write("write, without names");
    if (!getenv("STORE"))
        printf("%-44s %8ld B\n", "disk per row, with its index",
               pg_number("SELECT pg_total_relation_size('plain.foliot_timer') / count(*) FROM plain.foliot_timer"));
    measure_load(4);
    measure_finish("finish, whole windows", true, 0, WINDOWS / 2);
    measure_finish("finish, by what is settled", false, WINDOWS / 2, WINDOWS);
    end("plain");
    named = true;
    begin("named");
    measure_write("find, then write, with names");
    end("named");
}
