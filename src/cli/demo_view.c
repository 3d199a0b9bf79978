/* SPDX-License-Identifier: MIT */
/* Shows the demo: on a terminal a screen redrawn in place, elsewhere a line a second; in the end a summary.
 *
 * The screen is the terminal's alternate one, so that what was there before comes back. A picture is put together in a
 * buffer and written with one call, each line erased to its end: nothing flickers, nothing is left over. It fits 80
 * columns and 20 rows; a wider terminal gets longer bars. Without UTF-8 bars are made of '#'; NO_COLOR is honoured.
 */

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <foliot/version.h>

#include "cli/demo.h"

#define HISTORY 512
#define TEXT 32

static struct {
    bool terminal, colour, utf8;
    unsigned columns;
    uint64_t fired[HISTORY]; /* a second, one entry a picture */
    unsigned pictures;
} view;

enum { PLAIN = 0, BOLD = 1, DIM = 2, GREEN = 32, YELLOW = 33, CYAN = 36 };

/* 1234567 as "1 234 567". */
static const char *number(char text[TEXT], uint64_t value)
{
    char digits[24];
    size_t length = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, value), at = 0;
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[at++] = ' ';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

/* Three digits and a unit: the largest of `units` that leaves at least 1. */
static const char *scaled(char text[TEXT], double value, const char *const *units, const double *sizes)
{
    unsigned u = 0;
    while (units[u + 1] && value >= sizes[u + 1])
        u++;
    value /= sizes[u];
    snprintf(text, TEXT, "%.*f %s", u == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2, value, units[u]);
    return text;
}

static const char *duration(char text[TEXT], uint64_t ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s", "min", "h", NULL};
    static const double sizes[] = {1, 1e3, 1e6, 1e9, 60e9, 3600e9};
    return scaled(text, (double)ns, units, sizes);
}

static const char *bytes(char text[TEXT], uint64_t count)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", NULL};
    static const double sizes[] = {1, 1 << 10, 1 << 20, 1 << 30};
    return scaled(text, (double)count, units, sizes);
}

static uint64_t per_second(const struct demo_span *span, uint64_t count)
{
    return span->ns ? (uint64_t)((double)count * 1e9 / (double)span->ns) : 0;
}

static double ns_each(const struct demo_work *work)
{
    return work->count ? (double)work->ns / (double)work->count : 0;
}

static void style(int code)
{
    if (view.colour)
        printf("\033[%dm", code);
}

static void styled(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void styled(int code, const char *format, ...)
{
    va_list args;
    style(code);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    style(PLAIN);
}

static void end_line(void)
{
    fputs("\033[K\n", stdout);
}

/* A bar of `width` columns filled to `part` (0 to 1), in eighths of a column. */
static void bar(double part, unsigned width)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    unsigned filled = (unsigned)(part * width * 8 + 0.5), rest = view.utf8 ? filled % 8 : 0, used = filled / 8;
    for (unsigned i = 0; i < used; i++)
        fputs(view.utf8 ? "█" : "#", stdout);
    fputs(eighths[rest], stdout);
    printf("%*s", (int)(width - used - (rest > 0)), "");
}

/* The last `width` rates as a curve that fills one row, the newest to the right. */
static void sparkline(unsigned width)
{
    static const char *const heights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    unsigned n = view.pictures < width ? view.pictures : width;
    uint64_t highest = 1;
    for (unsigned i = 0; i < n; i++) {
        uint64_t rate = view.fired[(view.pictures - n + i) % HISTORY];
        highest = rate > highest ? rate : highest;
    }
    for (unsigned i = 0; i < n; i++) {
        uint64_t rate = view.fired[(view.pictures - n + i) % HISTORY];
        unsigned height = (unsigned)((double)rate * 7 / (double)highest + 0.5);
        if (view.utf8)
            fputs(heights[height], stdout);
        else
            putchar("_.:-=+*#"[height]);
    }
}

static void draw_head(const struct demo_state *s, const fl_wheel_stats *stats)
{
    char live[TEXT], size[TEXT], time[TEXT];
    uint64_t count = fl_wheel_count(s->wheel);
    snprintf(time, sizeof time, "%.1f of %.0f s", (double)s->elapsed_ns / 1e9, (double)s->planned_ns / 1e9);
    styled(BOLD, "Foliot " FL_VERSION);
    printf("  a timing wheel under load%*s", (int)(view.columns - 41), time);
    end_line();
    end_line();
    printf("  ");
    styled(BOLD, "%s", number(live, count));
    printf(" timers in %s", bytes(size, stats->bytes));
    if (count > 0)
        printf(", %.1f bytes each", (double)stats->bytes / (double)count);
    end_line();
    end_line();
}

static void draw_levels(const struct demo_state *s, const fl_wheel_stats *stats)
{
    static const int colours[FL_WHEEL_LEVELS] = {GREEN, YELLOW, CYAN};
    unsigned width = view.columns - 54;
    uint64_t count = fl_wheel_count(s->wheel);
    styled(DIM, "  level     tick    reaches  %*s        timers    memory", (int)width, "");
    end_line();
    for (unsigned i = 0; i < FL_WHEEL_LEVELS; i++) {
        char tick[TEXT], reach[TEXT], active[TEXT], size[TEXT];
        const fl_wheel_level_stats *level = &stats->level[i];
        uint64_t coverage_ns = fl_wheel_coverage_ns(s->wheel, i);
        printf("  L%u    %8s   %8s  ", i, duration(tick, level->spokes ? coverage_ns / level->spokes : 0),
               duration(reach, coverage_ns));
        style(colours[i]);
        bar(count ? (double)level->active / (double)count : 0, width);
        style(PLAIN);
        printf("  %12s  %8s", number(active, level->active), bytes(size, level->bytes));
        end_line();
    }
    end_line();
}

static void draw_work(const struct demo_span *recent)
{
    const struct {
        const char *name;
        const struct demo_work *work;
    } rows[] = {{"schedule", &recent->schedule}, {"cancel", &recent->cancel}, {"fire", &recent->fire}};
    char rate[TEXT];
    styled(DIM, "                  per s     ns/op   fired per second, history");
    end_line();
    for (unsigned i = 0; i < 3; i++) {
        printf("  %-8s  %11s", rows[i].name, number(rate, per_second(recent, rows[i].work->count)));
        printf("  %8.1f   ", ns_each(rows[i].work));
        if (i == 2) {
            style(GREEN);
            sparkline(view.columns - 36 < HISTORY ? view.columns - 36 : HISTORY);
            style(PLAIN);
        }
        end_line();
    }
    end_line();
}

static void draw_lateness(const char *name, const struct histogram *late_ns)
{
    char p50[TEXT], p99[TEXT], max[TEXT];
    printf("  %-12s  %9s  %9s  %9s", name, duration(p50, fl__histogram_permille(late_ns, 500)),
           duration(p99, fl__histogram_permille(late_ns, 990)), duration(max, late_ns->max));
    end_line();
}

static void measure_terminal(void)
{
    struct winsize size;
    view.columns = 80;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 80)
        view.columns = size.ws_col;
}

static void draw_screen(const struct demo_state *s)
{
    fl_wheel_stats stats;
    fl_wheel_memory_stats(s->wheel, &stats);
    measure_terminal();
    fputs("\033[H", stdout);
    draw_head(s, &stats);
    draw_levels(s, &stats);
    draw_work(&s->recent);
    styled(DIM, "  lateness            p50        p99        max");
    end_line();
    draw_lateness("now", &s->recent.late_ns);
    draw_lateness("since start", &s->whole.late_ns);
    end_line();
    styled(DIM, "  Press Ctrl-C to stop.");
    fputs("\033[J", stdout);
}

static void print_line(const struct demo_state *s)
{
    char p50[TEXT], p99[TEXT], max[TEXT];
    const struct demo_span *r = &s->recent;
    printf("%3.0f s  live %" PRIu64 "  scheduled/s %" PRIu64 "  cancelled/s %" PRIu64 "  fired/s %" PRIu64
           "  late p50 %s p99 %s max %s  ns/op %.1f %.1f %.1f\n",
           (double)s->elapsed_ns / 1e9, fl_wheel_count(s->wheel), per_second(r, r->schedule.count),
           per_second(r, r->cancel.count), per_second(r, r->fire.count),
           duration(p50, fl__histogram_permille(&r->late_ns, 500)),
           duration(p99, fl__histogram_permille(&r->late_ns, 990)), duration(max, r->late_ns.max),
           ns_each(&r->schedule), ns_each(&r->cancel), ns_each(&r->fire));
}

void demo_view_begin(void)
{
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    setlocale(LC_CTYPE, "");
    view.terminal = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
    view.colour = view.terminal && !(no_colour && *no_colour);
    view.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (view.terminal)
        fputs("\033[?1049h\033[?25l", stdout);
}

uint64_t demo_view_interval_ns(void)
{
    return view.terminal ? 200000000 : 1000000000;
}

void demo_view_show(const struct demo_state *state)
{
    view.fired[view.pictures++ % HISTORY] = per_second(&state->recent, state->recent.fire.count);
    if (view.terminal)
        draw_screen(state);
    else
        print_line(state);
    fflush(stdout);
}

static void print_summary_work(const char *name, const struct demo_work *work)
{
    char count[TEXT];
    printf("  %-9s  %13s   %6.1f ns per operation\n", name, number(count, work->count), ns_each(work));
}

void demo_view_end(const struct demo_state *state)
{
    char p50[TEXT], p99[TEXT], max[TEXT], live[TEXT], size[TEXT];
    const struct demo_span *whole = &state->whole;
    fl_wheel_stats stats;
    fl_wheel_memory_stats(state->wheel, &stats);
    if (view.terminal)
        fputs("\033[?25h\033[?1049l", stdout);
    printf("In %.1f s, with %s timers in %s of memory:\n", (double)whole->ns / 1e9,
           number(live, fl_wheel_count(state->wheel)), bytes(size, stats.bytes));
    print_summary_work("scheduled", &whole->schedule);
    print_summary_work("cancelled", &whole->cancel);
    print_summary_work("fired", &whole->fire);
    printf("  lateness   p50 %s, p99 %s, maximum %s\n", duration(p50, fl__histogram_permille(&whole->late_ns, 500)),
           duration(p99, fl__histogram_permille(&whole->late_ns, 990)), duration(max, whole->late_ns.max));
    fflush(stdout);
}
