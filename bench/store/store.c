/* SPDX-License-Identifier: MIT */
/* Measures a store through its interface, as an engine would use it: batches of rows, a few requests under way at once.
 *
 *     measure-store URL [--rows N] [--batch N] [--depth N] [--windows N] [--shards N] [--named] [--rounds N]
 *
 * Each round writes N rows, with --named after having looked for their names; then everything is loaded, re-filed if that
 * is asked for, and finished. What is printed: rows a second, how long a request took from submission to answer, memory
 * and processor time of this process, bytes on disk.
 */

#include <dirent.h>
#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include <foliot/store.h>

enum { BODY = 107, NAME = 24, LATENCIES = 1 << 20, SPAN_US = 33000000 };

static struct {
    const char *url;
    uint64_t rows, rounds;
    uint32_t batch, depth, windows, shards;
    bool named, keep;
} options = {.rows = 4000000, .rounds = 1, .batch = 10000, .depth = 4, .windows = 1, .shards = 1};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fail(const char *what, int result, const char *message)
{
    fprintf(stderr, "measure-store: %s: %s: %s\n", what, fl_errname(result), message);
    exit(1);
}

/* --- What took how long ------------------------------------------------------------------------------------------- */

static uint32_t latencies_us[LATENCIES];
static size_t latency_count;
static uint64_t began_ns;
static double began_cpu;

static void start(void)
{
    latency_count = 0;
    began_ns = now_ns();
    began_cpu = cpu_s();
}

static void note(uint64_t submitted_ns)
{
    if (latency_count < LATENCIES)
        latencies_us[latency_count++] = (uint32_t)((now_ns() - submitted_ns) / 1000);
}

static int ascending(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static double percentile_ms(double part)
{
    return latency_count == 0 ? 0 : latencies_us[(size_t)(part * (double)(latency_count - 1))] / 1e3;
}

static double resident_mb(void)
{
    char line[200] = "";
    FILE *file = fopen("/proc/self/statm", "r");
    char *second = file && fgets(line, sizeof line, file) ? strchr(line, ' ') : NULL;
    if (file)
        fclose(file);
    return second ? (double)strtoul(second, NULL, 10) * 4096 / 1e6 : 0;
}

static void report(const char *what, uint64_t count)
{
    double seconds = (double)(now_ns() - began_ns) / 1e9, cpu = cpu_s() - began_cpu;
    qsort(latencies_us, latency_count, sizeof *latencies_us, ascending);
    printf("%-8s %9.0f k/s  %5.2f us of processor each  request p50 %.1f p99 %.1f max %.1f ms  resident %.0f MB\n",
           what, (double)count / seconds / 1e3, cpu / (double)count * 1e6, percentile_ms(0.5), percentile_ms(0.99),
           percentile_ms(1), resident_mb());
    fflush(stdout);
}

/* --- Work --------------------------------------------------------------------------------------------------------- */

/* A request that goes round. */
struct lane {
    struct lead *lead;
    fl_store_request request;
    fl_row *rows;
    fl_store_change *changes;
    fl_store_want *wants;
    char (*names)[NAME];
    uint64_t submitted_ns;
};

/* A shard. */
struct lead {
    fl_shard *shard;
    uint64_t version, seq, left, loaded;
    unsigned active;
    struct lane *lanes;
};

static fl_loop *loop;
static struct lead *leads;
static uint64_t serial;
static unsigned char body[BODY];
static int64_t base_us;
static int64_t from_us; /* rows are due so much after the beginning of their window, or later */
static uint64_t *windows;

static void submit(struct lane *lane)
{
    lane->submitted_ns = now_ns();
    fl_store_submit(lane->lead->shard, &lane->request);
}

static void check(const char *what, const fl_store_request *request)
{
    if (request->result < 0)
        fail(what, request->result, request->message);
}

static void fill_lane(struct lane *lane)
{
    struct lead *lead = lane->lead;
    for (uint32_t i = 0; i < options.batch; i++) {
        fl_row *row = &lane->rows[i];
        uint64_t window = windows[serial % options.windows];
        lead->seq += 2;
        row->key = row->id = (fl_key){
            fl_window_begin(window) + from_us + (int64_t)(serial * 7919 % (uint64_t)(SPAN_US - from_us)), lead->seq};
        row->window = window;
        if (options.named) {
            snprintf(lane->names[i], NAME, "order-%016llx", (unsigned long long)serial * 0x9e3779b97f4a7c15);
            row->name = lane->wants[i].name = (fl_bytes){lane->names[i], NAME - 1};
            lane->wants[i].ns = row->ns;
        }
        serial++;
    }
}

static void next_batch(struct lane *lane);

static void written(fl_store_request *request)
{
    struct lane *lane = request->arg;
    check("write", request);
    note(lane->submitted_ns);
    next_batch(lane);
}

static void write_batch(struct lane *lane)
{
    lane->request =
        (fl_store_request){.op = FL_STORE_WRITE, .version = lane->lead->version, .done = written, .arg = lane};
    lane->request.write.changes = lane->changes;
    lane->request.write.count = options.batch;
    submit(lane);
}

static void searched(fl_store_request *request)
{
    struct lane *lane = request->arg;
    check("find", request);
    for (uint32_t i = 0; i < options.batch; i++)
        if (lane->wants[i].found)
            fail("find", 0, "a name that is not there was found");
    write_batch(lane);
}

static void next_batch(struct lane *lane)
{
    struct lead *lead = lane->lead;
    if (lead->left == 0) {
        if (--lead->active == 0)
            fl_loop_unhold(loop);
        return;
    }
    lead->left--;
    fill_lane(lane);
    if (!options.named) {
        write_batch(lane);
        return;
    }
    lane->request = (fl_store_request){.op = FL_STORE_FIND, .done = searched, .arg = lane};
    lane->request.find.wants = lane->wants;
    lane->request.find.count = options.batch;
    submit(lane);
}

static void write_all(const char *what)
{
    start();
    for (uint32_t i = 0; i < options.shards; i++) {
        leads[i].left = options.rows / options.shards / options.batch;
        leads[i].active = options.depth;
        fl_loop_hold(loop);
        for (uint32_t j = 0; j < options.depth; j++)
            next_batch(&leads[i].lanes[j]);
    }
    fl_loop_run(loop);
    report(what, options.rows);
}

static void take_rows(fl_store_request *request, const fl_row *rows, size_t count)
{
    struct lane *lane = request->arg;
    for (size_t i = 0; i < count; i++)
        lane->lead->loaded += rows[i].body.size == BODY;
}

static void simple_done(fl_store_request *request)
{
    struct lane *lane = request->arg;
    check("request", request);
    note(lane->submitted_ns);
}

static void load_all(void)
{
    uint64_t loaded = 0;
    start();
    for (uint32_t i = 0; i < options.shards; i++) {
        struct lane *lane = &leads[i].lanes[0];
        leads[i].loaded = 0;
        lane->request = (fl_store_request){.op = FL_STORE_LOAD, .done = simple_done, .arg = lane};
        lane->request.load.windows = windows;
        lane->request.load.window_count = options.windows;
        lane->request.load.until_us = INT64_MAX;
        lane->request.load.limit = SIZE_MAX;
        lane->request.load.rows = take_rows;
        submit(lane);
    }
    fl_loop_run(loop);
    for (uint32_t i = 0; i < options.shards; i++)
        loaded += leads[i].loaded;
    report("load", loaded);
}

/* Deletes half of the rows of the first window, or all. */
static void finish_all(uint64_t rows, bool whole)
{
    struct fl_store_span *spans = calloc(options.windows, sizeof *spans);
    for (uint32_t i = 0; i < options.windows; i++)
        spans[i] = (struct fl_store_span){windows[i], whole};
    fl_key half = {fl_window_begin(windows[0]) + SPAN_US / 2, 0};
    start();
    for (uint32_t i = 0; i < options.shards; i++) {
        struct lane *lane = &leads[i].lanes[0];
        lane->request =
            (fl_store_request){.op = FL_STORE_FINISH, .version = leads[i].version, .done = simple_done, .arg = lane};
        lane->request.finish.spans = spans;
        lane->request.finish.span_count = options.windows;
        lane->request.finish.settled.front[0] = half;
        submit(lane);
    }
    fl_loop_run(loop);
    report(whole ? "finish" : "half", whole ? rows : rows / options.windows / 2);
    free(spans);
}

/* Moves some thousand rows at a time into the windows that make up the first one. */
static void refiled(fl_store_request *request)
{
    struct lane *lane = request->arg;
    check("refile", request);
    note(lane->submitted_ns);
    lane->lead->loaded += request->refile.moved;
    if (request->refile.more)
        submit(lane);
}

static void refile_first(void)
{
    uint64_t count = 0;
    start();
    for (uint32_t i = 0; i < options.shards; i++) {
        struct lane *lane = &leads[i].lanes[0];
        leads[i].loaded = 0;
        lane->request =
            (fl_store_request){.op = FL_STORE_REFILE, .version = leads[i].version, .done = refiled, .arg = lane};
        lane->request.refile.window = windows[0];
        lane->request.refile.shift = FL_WINDOW_SHIFT_NEAR - FL_WINDOW_STEP;
        lane->request.refile.limit = 8192;
        submit(lane);
    }
    fl_loop_run(loop);
    for (uint32_t i = 0; i < options.shards; i++)
        count += leads[i].loaded;
    report("refile", count);
}

/* Small writes, one at a time, while the store has something to do in the background. */
static void probe(const char *what)
{
    uint32_t batch = options.batch, depth = options.depth;
    bool named = options.named;
    uint64_t rows = options.rows;
    options.batch = 100;
    options.depth = 1;
    options.named = false;
    from_us = SPAN_US / 2 + 1; /* an engine files nothing where all is settled */
    options.rows = 100000 * options.shards;
    write_all(what);
    options.batch = batch;
    options.depth = depth;
    options.named = named;
    options.rows = rows;
    from_us = 0;
}

/* --- Beginning and end -------------------------------------------------------------------------------------------- */

static void claimed(fl_store_request *request)
{
    struct lead *lead = request->arg;
    check("claim", request);
    lead->version = request->claim.version;
    lead->seq = request->claim.progress.seq_limit;
}

static void make_lane(struct lead *lead, struct lane *lane)
{
    lane->lead = lead;
    lane->rows = calloc(options.batch, sizeof *lane->rows);
    lane->changes = calloc(options.batch, sizeof *lane->changes);
    lane->wants = calloc(options.batch, sizeof *lane->wants);
    lane->names = calloc(options.batch, sizeof *lane->names);
    for (uint32_t i = 0; i < options.batch; i++) {
        lane->rows[i].ns = (fl_bytes){"default", 7};
        lane->rows[i].body = (fl_bytes){body, sizeof body};
        lane->changes[i].put = &lane->rows[i];
    }
}

static void attach_all(fl_store *store)
{
    leads = calloc(options.shards, sizeof *leads);
    for (uint32_t i = 0; i < options.shards; i++) {
        struct lead *lead = &leads[i];
        int r = fl_store_attach(store, i, loop, &lead->shard);
        if (r < 0)
            fail("attach", r, "");
        lead->lanes = calloc(options.depth, sizeof *lead->lanes);
        for (uint32_t j = 0; j < options.depth; j++)
            make_lane(lead, &lead->lanes[j]);
        fl_store_request claim = {.op = FL_STORE_CLAIM, .done = claimed, .arg = lead};
        claim.claim.owner = "bench";
        claim.claim.claim_us = 1000000;
        claim.claim.force = true;
        fl_store_submit(lead->shard, &claim);
        fl_loop_run(loop);
    }
}

static void ignore(fl_loop *of, void *arg)
{
    (void)of, (void)arg;
}

static uint64_t disk_bytes(void)
{
    const char *path = strchr(options.url, ':') + 1;
    DIR *folder = strncmp(options.url, "sqlite:", 7) == 0 ? opendir(path) : NULL;
    uint64_t bytes = 0;
    if (!folder)
        return 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char file[600];
        struct stat status;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (stat(file, &status) == 0 && S_ISREG(status.st_mode))
            bytes += (uint64_t)status.st_size;
    }
    closedir(folder);
    return bytes;
}

static void parse(int argc, char **argv)
{
    static const struct option longs[] = {{"rows", 1, NULL, 'r'},    {"batch", 1, NULL, 'b'},  {"depth", 1, NULL, 'd'},
                                          {"windows", 1, NULL, 'w'}, {"shards", 1, NULL, 's'}, {"named", 0, NULL, 'n'},
                                          {"rounds", 1, NULL, 'o'},  {"keep", 0, NULL, 'k'},   {0}};
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        uint64_t number = optarg ? strtoull(optarg, NULL, 10) : 1;
        if (c == 'r')
            options.rows = number;
        else if (c == 'b')
            options.batch = (uint32_t)number;
        else if (c == 'd')
            options.depth = (uint32_t)number;
        else if (c == 'w')
            options.windows = (uint32_t)number;
        else if (c == 's')
            options.shards = (uint32_t)number;
        else if (c == 'o')
            options.rounds = number;
        else if (c == 'n')
            options.named = true;
        else if (c == 'k')
            options.keep = true;
        else
            exit(2);
    }
    if (optind >= argc)
        fail("usage", 0, "measure-store [OPTION...] URL");
    options.url = argv[optind];
}

int main(int argc, char **argv)
{
    char message[300];
    fl_store *store;
    parse(argc, argv);
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (unsigned char)(i * 37);
    base_us = (int64_t)time(NULL) * 1000000;
    windows = calloc(options.windows, sizeof *windows);
    for (uint32_t i = 0; i < options.windows; i++)
        windows[i] = fl_window_of(base_us, FL_WINDOW_SHIFT_NEAR) + i;
    int r = fl_store_open(options.url, &(fl_store_config){.shards = options.shards}, &store, message, sizeof message);
    if (r < 0)
        fail("open", r, message);
    fl_loop_new(NULL, &loop);
    attach_all(store);
    for (uint64_t i = 0; i < options.rounds; i++)
        write_all(options.named ? "named" : "write");
    printf("disk %.1f bytes a row\n", (double)disk_bytes() / (double)(options.rows * options.rounds));
    load_all();
    if (!options.keep) {
        finish_all(options.rows * options.rounds, false);
        probe("beside");
        refile_first();
        finish_all(options.rows * options.rounds, true);
        probe("beside");
    }
    for (uint32_t i = 0; i < options.shards; i++) {
        fl_store_detach(leads[i].shard, ignore, NULL);
        fl_loop_run(loop);
    }
    fl_store_close(store);
    fl_loop_free(loop);
    return 0;
}
