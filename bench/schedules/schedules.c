/* SPDX-License-Identifier: MIT */
/* The benchmark of schedules: how long the next occurrence takes, and reading an expression.
 *
 * Each rule is written as a cron expression and as a recurrence rule of RFC 5545, because some rivals know only one of the
 * two. A rival that does not know a rule has no figure for it. Rivals in other languages measure themselves (rival.mjs,
 * rival.py); libical, where it is installed, is linked. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef BENCH_LIBICAL
#include <libical/ical.h>
#endif

#include "../frame.h"
#include "many.h"
#include "text/calendar.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum measure { MINUTES, WEEKDAYS, LAST_DAY, LEAP_FRIDAY, COMPILE, N_MEASURES };

static const struct bench_measure measures[] = {
    [MINUTES] = {"S1", "every 5 minutes", "ns",
                 "`*/5 * * * *` in UTC: processor time for the next occurrence after the one before.", BENCH_COST},
    [WEEKDAYS] = {"S2", "weekdays at 09:00 in Berlin", "ns", "`0 9 * * MON-FRI` in Europe/Berlin: the same.",
                  BENCH_COST},
    [LAST_DAY] = {"S3", "last day of the month", "ns", "`0 0 L * *` in UTC: the same.", BENCH_COST},
    [LEAP_FRIDAY] =
        {"S4", "29 February on a Friday", "ns",
         "`0 0 29 2 +FRI` in UTC, which occurs every 28 years: the same. Rivals without a `+` are left out.",
         BENCH_COST},
    [COMPILE] = {"S5", "read an expression", "ns", "`0 9 * * MON-FRI` in Europe/Berlin is read and made ready for use.",
                 BENCH_COST},
};

static const struct {
    const char *cron, *recurrence, *zone;
} rules[] = {
    [MINUTES] = {"*/5 * * * *", "FREQ=MINUTELY;INTERVAL=5", "UTC"},
    [WEEKDAYS] = {"0 9 * * MON-FRI", "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=9;BYMINUTE=0;BYSECOND=0",
                  "Europe/Berlin"},
    [LAST_DAY] = {"0 0 L * *", "FREQ=MONTHLY;BYMONTHDAY=-1;BYHOUR=0;BYMINUTE=0;BYSECOND=0", "UTC"},
    [LEAP_FRIDAY] = {"0 0 29 2 +FRI", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=FR;BYHOUR=0;BYMINUTE=0;BYSECOND=0",
                     "UTC"},
};

enum { SECOND_US = 1000000 };

/* 2026-01-01 and 2100-01-01, where all begin and start over. */
#define BEGIN_S INT64_C(1767225600)
#define END_S INT64_C(4102444800)

struct result {
    double ns;
    int64_t last_s;
};

/* --- Ours -------------------------------------------------------------------------------------------------------- */

static struct zones *zones;

static fl_bytes bytes(const char *text)
{
    return (fl_bytes){text, strlen(text)};
}

static struct rule *compile(enum measure measure)
{
    struct rule_text text = {.cron = bytes(rules[measure].cron), .zone = bytes(rules[measure].zone)};
    struct rule_error error = {0};
    struct rule *rule;
    if (rule_new(&text, zones, &rule, &error) < 0)
        bench_die("%s: %s", error.field, error.text);
    return rule;
}

static struct result run_foliot(enum measure measure, size_t count)
{
    uint64_t begin_ns = bench_cpu_ns();
    int64_t at_us = BEGIN_S * SECOND_US;
    if (measure == COMPILE) {
        for (size_t i = 0; i < count; i++)
            rule_free(compile(WEEKDAYS));
    } else {
        struct rule *rule = compile(measure);
        struct occurrence next;
        for (size_t i = 0; i < count; i++)
            at_us = rule_next(rule, at_us, &next) && next.at_us < END_S * SECOND_US ? next.at_us : BEGIN_S * SECOND_US;
        rule_free(rule);
    }
    return (struct result){(double)(bench_cpu_ns() - begin_ns) / (double)count, at_us / SECOND_US};
}

/* --- libical ----------------------------------------------------------------------------------------------------- */

#ifdef BENCH_LIBICAL
static icalrecur_iterator *iterate(enum measure measure, const icaltimezone **ret_zone)
{
    struct icaltimetype begin = icaltime_from_string("20260101T000000");
    *ret_zone = strcmp(rules[measure].zone, "UTC") == 0 ? icaltimezone_get_utc_timezone()
                                                        : icaltimezone_get_builtin_timezone(rules[measure].zone);
    icalrecur_iterator *iterator =
        icalrecur_iterator_new(icalrecurrencetype_from_string(rules[measure].recurrence), begin);
    if (!iterator || !*ret_zone)
        bench_die("libical does not take %s", rules[measure].recurrence);
    return iterator;
}

static struct result run_libical(enum measure measure, size_t count)
{
    const icaltimezone *zone;
    uint64_t begin_ns = bench_cpu_ns();
    int64_t at_s = BEGIN_S;
    if (measure == COMPILE) {
        for (size_t i = 0; i < count; i++)
            icalrecur_iterator_free(iterate(WEEKDAYS, &zone));
    } else {
        icalrecur_iterator *iterator = iterate(measure, &zone);
        for (size_t i = 0; i < count; i++) {
            struct icaltimetype next = icalrecur_iterator_next(iterator);
            at_s = icaltime_is_null_time(next) ? END_S : icaltime_as_timet_with_zone(next, (icaltimezone *)zone);
            if (at_s >= END_S) {
                icalrecur_iterator_free(iterator);
                iterator = iterate(measure, &zone);
                at_s = BEGIN_S;
            }
        }
        icalrecur_iterator_free(iterator);
    }
    return (struct result){(double)(bench_cpu_ns() - begin_ns) / (double)count, at_s};
}

static const char *libical_version(void)
{
    return ICAL_VERSION;
}
#endif

/* --- Programs of their own --------------------------------------------------------------------------------------- */

/* The first line that a command prints, or "". */
static const char *line_of(const char *command, char *line, int size)
{
    FILE *output = popen(command, "r"); /* NOLINT(cert-env33-c): the commands are written in this file */
    if (!output || !fgets(line, size, output))
        line[0] = 0;
    if (output)
        pclose(output);
    line[strcspn(line, "\n")] = 0;
    return line;
}

static struct result ask(const char *command, const char *rule, enum measure measure, size_t count)
{
    char text[1024], line[256], *rest;
    snprintf(text, sizeof text, "%s '%s' %s %zu%s", command, rule, rules[measure == COMPILE ? WEEKDAYS : measure].zone,
             count, measure == COMPILE ? " compile" : "");
    line_of(text, line, sizeof line);
    double ns = strtod(line, &rest);
    if (rest == line)
        bench_die("%s: it printed no figure", text);
    return (struct result){ns, (int64_t)strtod(rest, NULL)};
}

static char npm_folder[512];

static struct result run_npm(const char *library, enum measure measure, size_t count)
{
    char command[800];
    snprintf(command, sizeof command, "node '%s/rival.mjs' '%s' %s", BENCH_SCHEDULES, npm_folder, library);
    return ask(command, rules[measure == COMPILE ? WEEKDAYS : measure].cron, measure, count);
}

static struct result run_croner(enum measure measure, size_t count)
{
    return run_npm("croner", measure, count);
}

static struct result run_cron_parser(enum measure measure, size_t count)
{
    return run_npm("cron-parser", measure, count);
}

static struct result run_dateutil(enum measure measure, size_t count)
{
    char command[800];
    snprintf(command, sizeof command, "python3 '%s/rival.py' dateutil", BENCH_SCHEDULES);
    return ask(command, rules[measure == COMPILE ? WEEKDAYS : measure].recurrence, measure, count);
}

static const char *npm_version(const char *library, char *line)
{
    char command[800];
    snprintf(command, sizeof command, "node -p \"require('%s/node_modules/%s/package.json').version\"", npm_folder,
             library);
    return line_of(command, line, 64);
}

static const char *croner_version(void)
{
    static char line[64];
    return npm_version("croner", line);
}

static const char *cron_parser_version(void)
{
    static char line[64];
    return npm_version("cron-parser", line);
}

static const char *dateutil_version(void)
{
    static char line[64];
    return line_of("python3 -c 'import dateutil; print(dateutil.__version__)' 2>/dev/null", line, sizeof line);
}

static bool have_npm(void)
{
    FILE *file = fopen(BENCH_SCHEDULES_NPM, "r");
    if (file) {
        if (!fgets(npm_folder, sizeof npm_folder, file))
            npm_folder[0] = 0;
        fclose(file);
    }
    return npm_folder[0] != 0;
}

static bool have_dateutil(void)
{
    return dateutil_version()[0] != 0;
}

static bool always(void)
{
    return true;
}

/* --- The benchmark ----------------------------------------------------------------------------------------------- */

static const struct known {
    struct bench_rival rival;
    struct result (*run)(enum measure measure, size_t count);
    bool (*is_here)(void);
    bool without_leap_friday;
    unsigned divisor; /* of the size: a slow rival does less */
} known[] = {
    {{"foliot", "This project's calendar, linked.", .ours = true}, run_foliot, always, false, 1},
#ifdef BENCH_LIBICAL
    {{"libical",
      "The C library behind most calendars, linked: recurrence rules in local time, each occurrence converted to "
      "an instant.",
      libical_version},
     run_libical,
     always,
     false,
     1},
#endif
    {{"croner", "From npm, on Node.js.", croner_version}, run_croner, have_npm, false, 10},
    {{"cron-parser", "From npm, on Node.js.", cron_parser_version}, run_cron_parser, have_npm, true, 10},
    {{"dateutil", "For Python: recurrence rules in local time, each occurrence converted to an instant.",
      dateutil_version},
     run_dateutil,
     have_dateutil,
     false,
     10},
};

static struct bench_rival rivals[COUNT(known)];
static const struct known *chosen[COUNT(known)];
static unsigned n_rivals;

static unsigned find_rivals(void)
{
    char error[ZONE_ERROR_TEXT];
    if (zones_load(NULL, NULL, &zones, error) < 0)
        bench_die("%s", error);
    for (size_t i = 0; i < COUNT(known); i++) {
        if (!known[i].is_here()) {
            fprintf(stderr, "bench: %s is left out: it is not here\n", known[i].rival.name);
            continue;
        }
        rivals[n_rivals] = known[i].rival;
        chosen[n_rivals++] = &known[i];
    }
    return n_rivals;
}

static void run_once(struct bench_run *run, unsigned rival, size_t size)
{
    size_t count = size / chosen[rival]->divisor + 1;
    for (unsigned i = 0; i < N_MEASURES; i++) {
        if (!bench_wants(run, i) || (i == LEAP_FRIDAY && chosen[rival]->without_leap_friday))
            continue;
        bench_working_on(run, i);
        bench_record(run, i, chosen[rival]->run((enum measure)i, count).ns);
    }
}

/* Before anything is measured: all of them mean the same occurrences. */
static void check(unsigned rival)
{
    for (unsigned i = 0; i < COMPILE; i++) {
        if (i == LEAP_FRIDAY && chosen[rival]->without_leap_friday)
            continue;
        /* Recurrence rules include their beginning, which some of these rules match. */
        int64_t wanted_s = run_foliot((enum measure)i, 2).last_s;
        int64_t found_s = chosen[rival]->run((enum measure)i, 2).last_s;
        int64_t again_s = chosen[rival]->run((enum measure)i, 3).last_s;
        if (found_s != wanted_s && again_s != wanted_s)
            bench_die("%s: %s occurs at %lld, ours at %lld", rivals[rival].name, rules[i].cron, (long long)found_s,
                      (long long)wanted_s);
    }
}

static const struct bench_chart charts[] = {
    {.file = "next",
     .title = "The next occurrence",
     .caption = "Nanoseconds of processor time, on a logarithmic scale. Less is better.",
     .kind = BENCH_BARS,
     .measures = {"S1", "S2", "S3", "S4", "S5"}},
};

static const size_t sizes[] = {100000, 0};
static const size_t quick_sizes[] = {10000, 0};

static const char intro[] = "How long it takes to find the next occurrence of a schedule, beside libraries that people "
                            "use for it. Each call begins at\n"
                            "the occurrence before. Libraries for scripts run in their own process and measure "
                            "themselves after they have warmed up.";

const struct bench benchmark = {
    .name = "schedules",
    .title = "Benchmark: schedules",
    .size_name = "occurrences",
    BENCH_TABLES,
    .find_rivals = find_rivals,
    .run = run_once,
    .check = check,
#ifdef BENCH_FOLIOT
    .more = many_tell,
#endif
};
