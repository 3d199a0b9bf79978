/* SPDX-License-Identifier: MIT */
/* `foliot stats`: how the server is doing, from its /metrics. With --watch again and again: on a terminal a screen with rates
 * and a curve of lateness, elsewhere a line each time.
 *
 * A rate is the difference of a counter between two looks; the lateness of a moment is that of what was dispatched between
 * them. Lateness comes as a histogram, so a percentile is the upper end of the bucket that it lies in: it is not above that. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/client.h"
#include "cli/show.h"
#include "text/when.h"

static bool as_json, watching;
static const char *interval_text = "1s";
static uint64_t count;

enum { SECONDS_KIND, COUNT_KIND, LATENESS_KIND };
enum { HISTORY = 256 };

/* What is shown, and which metric it is, or which percentile of lateness. Those with a `rate` have that a second while
 * watching. */
static const struct figure {
    const char *name, *metric, *label;
    int kind;
    bool rate;
} figures[] = {
    {"pending", "foliot_timers_pending", "timers pending", COUNT_KIND, false},
    {"in_memory", "foliot_timers_loaded", "timers in memory", COUNT_KIND, false},
    {"in_flight", "foliot_timers_in_flight", "attempts in progress", COUNT_KIND, false},
    {"waiting_for_lease", "foliot_timers_waiting_for_lease", "waiting for a lease", COUNT_KIND, false},
    {"oldest_overdue_seconds", "foliot_oldest_overdue_seconds", "oldest overdue by", SECONDS_KIND, false},
    {"created", "foliot_timers_created_total", "created", COUNT_KIND, true},
    {"cancelled", "foliot_timers_cancelled_total", "cancelled", COUNT_KIND, true},
    {"attempts", "foliot_attempts_total", "attempts", COUNT_KIND, true},
    {"done", "foliot_attempts_done_total", "done", COUNT_KIND, true},
    {"failed", "foliot_attempts_failed_total", "failed", COUNT_KIND, true},
    {"dead", "foliot_timers_dead_total", "dead letters", COUNT_KIND, true},
    {"lateness_mean_seconds", NULL, "lateness, mean", SECONDS_KIND, false},
    {"lateness_p50_seconds", "0.5", "lateness, p50", LATENESS_KIND, false},
    {"lateness_p99_seconds", "0.99", "lateness, p99", LATENESS_KIND, false},
    {"lateness_max_seconds", "1", "lateness, maximum", LATENESS_KIND, false},
};
enum { FIGURES = sizeof figures / sizeof *figures };

struct look {
    double values[FIGURES];
    double late_sum, late_count;
    uint64_t at_ns;
};

/* The value of a metric that stands at the beginning of a line; 0 if there is none. */
static double metric(const char *text, const char *name)
{
    size_t size = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, size) == 0 && line[size] == ' ')
            return strtod(line + size, NULL);
    }
    return 0;
}

/* The upper end of the bucket that a percentile lies in. The last one has none: there, none can be later than all together. */
static double percentile(const char *text, double part)
{
    static const char bucket[] = "foliot_lateness_seconds_bucket{le=\"";
    double count = metric(text, "foliot_lateness_seconds_count");
    for (const char *at = strstr(text, bucket); count > 0 && at; at = strstr(at, bucket)) {
        char *behind;
        double limit = strtod(at + strlen(bucket), &behind);
        double below = strncmp(behind, "\"} ", 3) == 0 ? strtod(behind + 3, NULL) : 0;
        if (below >= count * part)
            return isfinite(limit) ? limit : metric(text, "foliot_lateness_seconds_sum");
        at = behind;
    }
    return 0;
}

static double value_of(const struct figure *figure, const char *text)
{
    double count = metric(text, "foliot_lateness_seconds_count");
    if (figure->kind == LATENESS_KIND)
        return percentile(text, strtod(figure->metric, NULL));
    if (figure->metric)
        return metric(text, figure->metric);
    return count > 0 ? metric(text, "foliot_lateness_seconds_sum") / count : 0;
}

static int look(struct client *client, struct look *ret)
{
    struct out path = {0}, answer = {0};
    out_text(&path, "/metrics");
    int status = client_call(client, "GET", &path, NULL, &answer);
    out_put(&answer, "", 1);
    if (status == CLI_OK && answer.failed)
        status = client_no_memory(client);
    if (status == CLI_OK && !client_interrupted() && !strstr(answer.data, "foliot_timers_pending"))
        status = client_say(client, CLI_FAILED, "%s/metrics has no metrics of Foliot; check FOLIOT_URL or --server",
                            client->url);
    if (status == CLI_OK) {
        for (int i = 0; i < FIGURES; i++)
            ret->values[i] = value_of(&figures[i], answer.data);
        ret->late_sum = metric(answer.data, "foliot_lateness_seconds_sum");
        ret->late_count = metric(answer.data, "foliot_lateness_seconds_count");
        ret->at_ns = clock_now_ns();
    }
    out_free(&path);
    out_free(&answer);
    return status;
}

static const char *shown(char text[SHOWN], int i, double value)
{
    return figures[i].kind == COUNT_KIND ? show_count(text, value) : show_seconds(text, value);
}

static double rate(const struct look *now, const struct look *before, int i)
{
    double seconds = (double)(now->at_ns - before->at_ns) / 1e9;
    double made = now->values[i] - before->values[i]; /* less than none: the server was started again */
    return seconds > 0 && made > 0 ? made / seconds : 0;
}

static double lateness(const struct look *now, const struct look *before)
{
    double fired = now->late_count - before->late_count, sum = now->late_sum - before->late_sum;
    return fired > 0 && sum > 0 ? sum / fired : 0;
}

/* --- Once --------------------------------------------------------------------------------------------------------- */

static void print_json(const struct look *now)
{
    putchar('{');
    for (int i = 0; i < FIGURES; i++)
        printf("%s\"%s\":%.*g", i > 0 ? "," : "", figures[i].name, figures[i].kind == COUNT_KIND ? 17 : 9,
               now->values[i]);
    puts("}");
}

static void print_figures(const struct look *now)
{
    char text[SHOWN];
    for (int i = 0; i < FIGURES; i++)
        printf("%-22s %s\n", figures[i].label, shown(text, i, now->values[i]));
}

/* --- Again and again ---------------------------------------------------------------------------------------------- */

static double history[HISTORY];
static size_t looks;

static void print_line(const struct look *now, const struct look *before)
{
    char late[SHOWN], clock[16];
    time_t seconds = time(NULL);
    struct tm local;
    strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&seconds, &local));
    printf("%s  pending %.0f", clock, now->values[0]);
    for (int i = 0; i < FIGURES; i++)
        if (figures[i].rate)
            printf("  %s/s %.0f", figures[i].name, rate(now, before, i));
    printf("  late %s\n", show_seconds(late, lateness(now, before)));
}

static unsigned columns(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 40 ? size.ws_col : 80;
}

static void draw_curve(void)
{
    double recent[HISTORY];
    size_t width = columns() - 24, n = looks < width ? looks : width;
    n = n < HISTORY ? n : HISTORY;
    for (size_t i = 0; i < n; i++)
        recent[i] = history[(looks - n + i) % HISTORY];
    show_style(stdout, STYLE_GREEN);
    show_sparkline(recent, n);
    show_style(stdout, STYLE_PLAIN);
}

static void draw(const struct client *client, const struct look *now, const struct look *before)
{
    char text[SHOWN];
    fputs("\033[H", stdout);
    show_style(stdout, STYLE_BOLD);
    printf("Foliot %s", client->version.data);
    show_style(stdout, STYLE_PLAIN);
    printf("  %s\033[K\n\033[K\n", client->url);
    show_style(stdout, STYLE_DIM);
    printf("  %-20s %16s %12s", "", "", "per second");
    show_style(stdout, STYLE_PLAIN);
    fputs("\033[K\n", stdout);
    for (int i = 0; i < FIGURES; i++) {
        printf("  %-20s %16s", figures[i].label, shown(text, i, now->values[i]));
        if (figures[i].rate)
            printf(" %12s", show_count(text, rate(now, before, i)));
        fputs("\033[K\n", stdout);
    }
    printf("\033[K\n  %-20s %16s\033[K\n  %-20s ", "lateness, now", show_seconds(text, lateness(now, before)),
           "lateness, history");
    draw_curve();
    fputs("\033[K\n\033[K\n  Press Ctrl-C to stop.\033[J", stdout);
}

static void pause_for(uint64_t us)
{
    struct timespec span = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    if (!client_interrupted())
        nanosleep(&span, NULL);
}

static int watch(struct client *client, uint64_t interval_us)
{
    const char *term = getenv("TERM");
    bool screen = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
    struct look before = {0}, now = {0};
    int status = look(client, &before);
    if (status == CLI_OK)
        status = client_catch_signals(client, false);
    if (status == CLI_OK && screen)
        fputs("\033[?1049h\033[?25l", stdout);
    for (uint64_t n = 0; status == CLI_OK && (count == 0 || n < count) && !ferror(stdout); n++) {
        pause_for(interval_us);
        if (!client_interrupted())
            status = look(client, &now);
        if (status != CLI_OK || client_interrupted())
            break;
        history[looks++ % HISTORY] = lateness(&now, &before);
        if (screen)
            draw(client, &now, &before);
        else
            print_line(&now, &before);
        fflush(stdout);
        before = now;
    }
    if (screen)
        fputs("\033[?25h\033[?1049l", stdout);
    return status;
}

static int run(void)
{
    struct client client;
    struct look now;
    uint64_t interval_us;
    duration_parse(bytes_of(interval_text), &interval_us);
    int status = client_open(&client, &stats_command);
    if (status != CLI_OK)
        return status;
    if (watching) {
        status = watch(&client, interval_us);
    } else {
        status = look(&client, &now);
        if (status == CLI_OK && as_json)
            print_json(&now);
        else if (status == CLI_OK)
            print_figures(&now);
    }
    client_close(&client);
    return status;
}

static const struct cli_option options[] = {
    {"watch", "", "repeat, with rates per second; on a terminal as a live screen", .flag = &watching},
    {"interval", "DURATION", "with --watch: time between two outputs; default: 1s", .text = &interval_text,
     .format = &cli_duration},
    {"count", "N", "with --watch: stop after N outputs", .value = &count, .min = 1, .max = UINT64_MAX},
    {"json", "", "print JSON, without --watch", .flag = &as_json},
    {0},
};

const struct cli_command stats_command = {
    .name = "stats",
    .summary = "shows the state of the server: timers, attempts, lateness",
    .options = options,
    .notes = "The percentiles and the maximum of lateness are upper bounds.",
    .run = run,
};
