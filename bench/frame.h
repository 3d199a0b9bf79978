/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_FRAME_H
#define FOLIOT_BENCH_FRAME_H

/* The frame of every benchmark: rivals × measures × sizes in, a table, a JSON file, charts and a page out.
 *
 * A benchmark describes itself in one structure, `benchmark`; main() is here. The frame calls run() for each rival
 * and size, several times; run() does the work, takes the time with bench_cpu_ns() and hands in what it found with
 * bench_record(). All else is done here, and the same for every rival:
 *
 *   - The rivals are interleaved: a round runs each of them once, and each round begins with another one. A machine
 *     that becomes slower or faster in the meantime does so for all of them.
 *   - Of several runs the best counts. Noise on a machine only ever adds time, so the least is nearest to the truth.
 *   - Times are CPU time of the thread, so that waiting for other processes does not count.
 *   - Nothing is subtracted. What the harness itself costs is the row of a rival that does nothing (`floor`).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum bench_kind {
    BENCH_COST,     /* a value a run; the least over the runs counts */
    BENCH_RATE,     /* the same, and the most counts */
    BENCH_LONGEST,  /* the longest of many steps. The runs do the same work step by step, so each step counts with its
                     * best run: what is left is the longest step that is long every time, not a preemption */
    BENCH_ISOLATED, /* found by isolated() in a process of its own, once: for memory */
};

struct bench_measure {
    const char *id;   /* "W1": for --only and the JSON file */
    const char *name; /* "schedule" */
    const char *unit; /* "ns" */
    const char *what; /* for the page: what exactly is done and counted */
    enum bench_kind kind;
    size_t fixed_size; /* measured at this size only; 0: at every size */
};

struct bench_rival {
    const char *name;             /* one word: for --rivals */
    const char *about;            /* for the page: what it is, how it is driven */
    const char *(*version)(void); /* may be NULL */
    bool ours;                    /* drawn in the colour of the house; the first rival is what ratios refer to */
    bool floor;                   /* does nothing: shows the harness's own cost, is in no chart */
};

enum bench_chart_kind { BENCH_BARS, BENCH_LINES };

struct bench_chart {
    const char *file; /* "overview": becomes <name>-overview.svg */
    const char *title, *caption;
    const char *measures[8]; /* a panel each; NULL ends. Bars of a single measure: a panel each size */
    enum bench_chart_kind kind;
    bool linear; /* each panel a linear scale from zero, else one logarithmic scale for all */
};

struct bench_run;

struct bench {
    const char *name;      /* "wheel": names the files */
    const char *title;     /* of the page */
    const char *intro;     /* first paragraphs of the page, Markdown */
    const char *size_name; /* "live timers" */
    const struct bench_measure *measures;
    const struct bench_rival *rivals;
    const struct bench_chart *charts;
    unsigned n_measures, n_rivals, n_charts;
    const size_t *sizes, *quick_sizes; /* ascending, ended by 0 */

    /* Fills `rivals` with those that are here and returns how many; 0: there is nothing to measure, and it has said why. NULL:
     * all of them are here. */
    unsigned (*find_rivals)(void);
    /* A command of the benchmark's own, for processes that it starts: true if this was one. May be NULL. */
    bool (*command)(int argc, char **argv, int *ret_status);
    /* One run of everything that bench_wants(), at one size. May record a measure several times: the best counts. */
    void (*run)(struct bench_run *run, unsigned rival, size_t size);
    double (*isolated)(unsigned measure, unsigned rival, size_t size);
    /* Ends the program if the rival does not do what it is asked to. Called once, before anything is measured. */
    void (*check)(unsigned rival);
    /* What else is to be told, in Markdown: on the terminal and on the page. May be NULL. */
    void (*more)(FILE *out, bool quick);
};

/* The one that this program is; each benchmark defines it. */
extern const struct bench benchmark;

/* The members that are tables with the same names in every benchmark. */
#define BENCH_COUNT(array) (sizeof(array) / sizeof *(array))
#define BENCH_TABLES                                                                                    \
    .intro = intro, .measures = measures, .n_measures = BENCH_COUNT(measures), .rivals = rivals,        \
    .n_rivals = BENCH_COUNT(rivals), .charts = charts, .n_charts = BENCH_COUNT(charts), .sizes = sizes, \
    .quick_sizes = quick_sizes

/* For run(): */
bool bench_wants(const struct bench_run *run, unsigned measure);
bool bench_is_quick(const struct bench_run *run);
void bench_record(struct bench_run *run, unsigned measure, double value);
void bench_record_steps(struct bench_run *run, unsigned measure, const double *steps, size_t count);
void bench_working_on(struct bench_run *run, unsigned measure); /* for the progress line */

/* Tools. None of them is fooled by a benchmark that replaces clock_gettime() by a clock of its own. */
uint64_t bench_cpu_ns(void);  /* CPU time of this thread */
uint64_t bench_real_ns(void); /* monotonic */

/* A counter that is cheap to read, for short spans of real time, and its length in nanoseconds. */
static inline uint64_t bench_ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return bench_real_ns();
#endif
}
double bench_tick_ns(void);

/* The same sequence for the same seed, on every machine. */
static inline uint64_t bench_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
uint64_t bench_random_below(uint64_t *state, uint64_t limit);
uint32_t *bench_permutation(uint64_t seed, size_t count); /* of 0 … count-1; free() it */

/* Memory in pages of 4 KiB or 2 MiB, whatever the system's default is; all of it is touched already. */
void *bench_map(size_t size, bool huge);
void bench_unmap(void *block, size_t size);
void bench_allow_huge_pages(bool allow); /* for what libraries ask of the system from now on */
uint64_t bench_resident_bytes(void);     /* anonymous memory of this process */

_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
