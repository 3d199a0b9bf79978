/* SPDX-License-Identifier: MIT */
/* Runs a benchmark: reads the options, interleaves the rivals, keeps the best of their runs, shows progress. */

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>

#include "frame.h"
#include "results.h"

/* A rival that has had this much time at a size, and at least two runs, is not run again: else the slowest ones would
 * take most of an hour. Noise of a second does not matter to a run of a minute. */
#define PATIENCE_NS 60000000000u

struct bench_run {
    struct results results;
    const char *directory;
    bool show_progress;
    uint64_t begin_ns;

    /* Where we are. */
    unsigned size_index, rival, round;
    double done, total;                  /* for the progress line; in runs, weighted by size */
    double *steps[BENCH_MAX][BENCH_MAX]; /* measure, rival; the best of each step at this size, or NULL */
};

/* ---- results ---- */

static unsigned stored_at(const struct results *r, unsigned measure, unsigned size_index)
{
    return r->bench->measures[measure].fixed_size ? 0 : size_index;
}

double results_value(const struct results *r, unsigned measure, unsigned size_index, unsigned rival)
{
    return r->best[measure][stored_at(r, measure, size_index)][rival];
}

unsigned results_runs(const struct results *r, unsigned measure, unsigned size_index, unsigned rival)
{
    return r->runs[measure][stored_at(r, measure, size_index)][rival];
}

int results_find_measure(const struct bench *bench, const char *id)
{
    for (unsigned i = 0; i < bench->n_measures; i++)
        if (strcmp(bench->measures[i].id, id) == 0)
            return (int)i;
    return -1;
}

const char *results_size_name(size_t size, char buffer[16])
{
    if (size >= 1000000 && size % 100000 == 0)
        snprintf(buffer, 16, "%g M", (double)size / 1e6);
    else if (size >= 1000 && size % 100 == 0)
        snprintf(buffer, 16, "%g k", (double)size / 1e3);
    else
        snprintf(buffer, 16, "%zu", size);
    return buffer;
}

/* ---- what run() calls ---- */

static void keep_best(struct bench_run *run, unsigned measure, double value)
{
    struct results *r = &run->results;
    double *best = &r->best[measure][run->size_index][run->rival];
    bool more = r->bench->measures[measure].kind == BENCH_RATE;
    if (isnan(*best) || (more ? value > *best : value < *best))
        *best = value;
    r->runs[measure][run->size_index][run->rival] = run->round + 1;
}

bool bench_wants(const struct bench_run *run, unsigned measure)
{
    const struct results *r = &run->results;
    const struct bench_measure *m = &r->bench->measures[measure];
    if (m->kind == BENCH_ISOLATED || (m->fixed_size && run->size_index > 0))
        return false;
    for (unsigned i = 0; i < r->n_measures; i++)
        if (r->measures[i] == measure)
            return true;
    return false;
}

bool bench_is_quick(const struct bench_run *run)
{
    return run->results.quick;
}

void bench_record(struct bench_run *run, unsigned measure, double value)
{
    if (bench_wants(run, measure))
        keep_best(run, measure, value);
}

void bench_record_steps(struct bench_run *run, unsigned measure, const double *steps, size_t count)
{
    double **best = &run->steps[measure][run->rival], longest = 0;
    bool first = !*best;
    if (first && !(*best = malloc(count * sizeof **best)))
        bench_die("no memory for %zu steps", count);
    for (size_t i = 0; i < count; i++) {
        (*best)[i] = first ? steps[i] : fmin((*best)[i], steps[i]);
        longest = fmax(longest, (*best)[i]);
    }
    bench_record(run, measure, longest);
}

void bench_working_on(struct bench_run *run, unsigned measure)
{
    const struct results *r = &run->results;
    char size[16], bar[21] = "....................";
    if (!run->show_progress)
        return;
    double part = run->total > 0 ? run->done / run->total : 0;
    memset(bar, '#', (size_t)(part * 20));
    unsigned seconds = (unsigned)((bench_real_ns() - run->begin_ns) / 1000000000u);
    fprintf(stderr, "\r[%s] %3.0f %%  %u:%02u  %s %s, run %u of %u: %s %s\033[K", bar, part * 100, seconds / 60,
            seconds % 60, results_size_name(r->sizes[run->size_index], size), r->bench->size_name, run->round + 1,
            r->rounds, r->bench->rivals[run->rival].name, r->bench->measures[measure].name);
}

/* ---- running ---- */

static void forget_steps(struct bench_run *run)
{
    for (unsigned measure = 0; measure < BENCH_MAX; measure++)
        for (unsigned rival = 0; rival < BENCH_MAX; rival++)
            free(run->steps[measure][rival]);
    memset(run->steps, 0, sizeof run->steps);
}

static void run_size(struct bench_run *run)
{
    struct results *r = &run->results;
    uint64_t spent_ns[BENCH_MAX] = {0};
    for (run->round = 0; run->round < r->rounds; run->round++) {
        for (unsigned i = 0; i < r->n_rivals; i++) {
            run->rival = r->rivals[(i + run->round) % r->n_rivals];
            run->done += (double)r->sizes[run->size_index];
            if (run->round >= 2 && spent_ns[run->rival] > PATIENCE_NS)
                continue;
            uint64_t begin = bench_real_ns();
            r->bench->run(run, run->rival, r->sizes[run->size_index]);
            spent_ns[run->rival] += bench_real_ns() - begin;
        }
    }
    forget_steps(run);
}

/* Starts this program anew to find one value: a process that has done nothing yet has no memory to reuse. */
static double ask_other_process(const char *measure, const char *rival, size_t size)
{
    int ends[2];
    char line[64] = "", *rest;
    if (pipe(ends) != 0)
        bench_die("no pipe");
    pid_t child = fork();
    if (child == 0) {
        char number[32];
        snprintf(number, sizeof number, "%zu", size);
        dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", "bench", "--isolated", measure, rival, number, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *answer = fdopen(ends[0], "r");
    int status = 0;
    bool answered = child > 0 && answer && fgets(line, sizeof line, answer) && waitpid(child, &status, 0) == child;
    double value = strtod(line, &rest);
    if (!answered || status != 0 || rest == line)
        bench_die("%s of %s at %zu cannot be measured", measure, rival, size);
    fclose(answer);
    return value;
}

static void run_isolated(struct bench_run *run)
{
    struct results *r = &run->results;
    const struct bench *b = r->bench;
    for (unsigned i = 0; i < r->n_measures; i++) {
        unsigned measure = r->measures[i];
        if (b->measures[measure].kind != BENCH_ISOLATED)
            continue;
        for (unsigned j = 0; j < r->n_rivals; j++) {
            run->rival = r->rivals[j];
            bench_working_on(run, measure);
            double value =
                ask_other_process(b->measures[measure].id, b->rivals[run->rival].name, r->sizes[run->size_index]);
            keep_best(run, measure, value);
        }
    }
}

static void tell_more(struct results *r)
{
    size_t size;
    if (!r->bench->more || r->n_measures < r->bench->n_measures)
        return;
    FILE *out = open_memstream(&r->more, &size);
    if (!out)
        bench_die("no memory");
    r->bench->more(out, r->quick);
    fclose(out);
}

static void run_all(struct bench_run *run)
{
    struct results *r = &run->results;
    run->begin_ns = bench_real_ns();
    for (unsigned i = 0; i < r->n_sizes; i++)
        run->total += (double)r->sizes[i] * r->n_rivals * r->rounds;
    if (r->bench->check)
        for (unsigned i = 0; i < r->n_rivals; i++)
            r->bench->check(r->rivals[i]);
    for (run->size_index = 0; run->size_index < r->n_sizes; run->size_index++) {
        run->round = 0;
        run_isolated(run);
        run_size(run);
    }
    if (run->show_progress)
        fputs("\r\033[K", stderr);
    tell_more(r);
    machine_look(&r->machine, (size_t)(r->quick ? 256 : 1024) << 20);
    r->seconds = (double)(bench_real_ns() - run->begin_ns) / 1e9;
}

/* ---- options ---- */

static void usage(const struct bench *b, FILE *out)
{
    fprintf(out,
            "Usage: bench-%s [--out DIRECTORY] [--quick] [--runs N] [--sizes N,...] [--only MEASURE,...] "
            "[--rivals NAME,...]\n\nMeasures:\n",
            b->name);
    for (unsigned i = 0; i < b->n_measures; i++)
        fprintf(out, "  %-6s %s (%s)\n", b->measures[i].id, b->measures[i].name, b->measures[i].unit);
    fputs("Rivals:\n ", out);
    for (unsigned i = 0; i < b->n_rivals; i++)
        fprintf(out, " %s", b->rivals[i].name);
    fputs("\nWithout --out nothing is written but the table.\n", out);
}

static bool in_list(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncasecmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

static unsigned list_length(const char *list)
{
    unsigned n = 1;
    for (; *list; list++)
        n += *list == ',';
    return n;
}

static void choose(struct results *r, const char *measures, const char *rivals)
{
    const struct bench *b = r->bench;
    for (unsigned i = 0; i < b->n_measures; i++)
        if (!measures || in_list(measures, b->measures[i].id))
            r->measures[r->n_measures++] = i;
    for (unsigned i = 0; i < b->n_rivals; i++)
        if (!rivals || in_list(rivals, b->rivals[i].name))
            r->rivals[r->n_rivals++] = i;
    if ((measures && r->n_measures != list_length(measures)) || (rivals && r->n_rivals != list_length(rivals))) {
        usage(b, stderr);
        bench_die("there is no such measure or rival");
    }
}

static void choose_sizes(struct results *r, const char *list)
{
    const size_t *sizes = r->quick ? r->bench->quick_sizes : r->bench->sizes;
    for (; !list && *sizes; sizes++)
        r->sizes[r->n_sizes++] = *sizes;
    while (list && *list && r->n_sizes < BENCH_MAX) {
        char *end;
        size_t size = strtoull(list, &end, 10);
        if (size == 0 || size > UINT32_MAX || (*end != ',' && *end != '\0'))
            bench_die("--sizes wants numbers with commas between them");
        r->sizes[r->n_sizes++] = size;
        list = *end ? end + 1 : end;
    }
}

static int answer_isolated(const struct bench *b, char **words)
{
    int measure = results_find_measure(b, words[0]);
    for (unsigned rival = 0; measure >= 0 && rival < b->n_rivals; rival++) {
        if (strcmp(b->rivals[rival].name, words[1]) == 0) {
            printf("%.6f\n", b->isolated((unsigned)measure, rival, strtoull(words[2], NULL, 10)));
            return 0;
        }
    }
    return 1;
}

static void read_options(struct bench_run *run, int argc, char **argv)
{
    static const struct option options[] = {
        {"out", required_argument, NULL, 'o'},  {"quick", no_argument, NULL, 'q'},
        {"runs", required_argument, NULL, 'n'}, {"sizes", required_argument, NULL, 's'},
        {"only", required_argument, NULL, 'm'}, {"rivals", required_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0}};
    const char *sizes = NULL, *measures = NULL, *rivals = NULL;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'o':
            run->directory = optarg;
            break;
        case 'q':
            run->results.quick = true;
            break;
        case 'n':
            run->results.rounds = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 's':
            sizes = optarg;
            break;
        case 'm':
            measures = optarg;
            break;
        case 'r':
            rivals = optarg;
            break;
        case 'h':
            usage(run->results.bench, stdout);
            exit(0);
        default:
            usage(run->results.bench, stderr);
            exit(2);
        }
    }
    if (optind < argc || run->results.rounds > 1000) {
        usage(run->results.bench, stderr);
        exit(2);
    }
    if (run->results.rounds == 0)
        run->results.rounds = run->results.quick ? 2 : 3;
    choose(&run->results, measures, rivals);
    choose_sizes(&run->results, sizes);
}

static int run_bench(const struct bench *bench, int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--isolated") == 0)
        return answer_isolated(bench, argv + 2);
    struct bench_run *run = calloc(1, sizeof *run);
    if (!run || bench->n_rivals > BENCH_MAX || bench->n_measures > BENCH_MAX)
        bench_die("the benchmark is too large for its frame");
    struct results *r = &run->results;
    r->bench = bench;
    for (size_t i = 0; i < sizeof r->best / sizeof(double); i++)
        (&r->best[0][0][0])[i] = NAN;
    read_options(run, argc, argv);
    run->show_progress = isatty(STDERR_FILENO);
    run_all(run);
    report_table(r, stdout);
    bool written = !run->directory || (report_json(r, run->directory) && report_page(r, run->directory));
    free(r->more);
    free(run);
    return written ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct bench bench = benchmark;
    int status;
    if (bench.command && bench.command(argc, argv, &status))
        return status;
    if (bench.find_rivals)
        bench.n_rivals = bench.find_rivals();
    return bench.n_rivals > 0 ? run_bench(&bench, argc, argv) : 0;
}
