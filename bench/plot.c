/* SPDX-License-Identifier: MIT */
/* Draws charts as SVG.
 *
 * All panels of a logarithmic chart share one scale, so that lengths and heights compare across them. Colours are classes of one
 * style sheet with a second set for dark pages; a chart brings its own background, because the reader's system and the
 * page that shows the chart may not agree. Every mark has a <title>, which browsers show as a tooltip. */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plot.h"

enum {
    WIDTH = 960,
    MARGIN = 24,
    HEADER = 64, /* title and caption */
    GAP = 28,    /* between panels */
    PANEL_TITLE = 30,
    ROW = 19, /* a bar with its space */
    BAR = 13,
    NAMES = 76,      /* left of bars */
    VALUES = 52,     /* right of the longest bar */
    AXIS = 22,       /* under a panel: the scale's numbers */
    TICK_SPACE = 30, /* least distance of two numbers on a scale */
    LINES_HEIGHT = 200,
    LEFT_NUMBERS = 44,
    RIGHT_NAMES = 74,
    LABEL = 13, /* least distance of two labels */
    MAX_SERIES = 16,
    MAX_TICKS = 20,
};

/* What the scale runs from and to. On a logarithmic scale both are powers of ten. */
struct scale {
    double low, high;
    bool linear;
};

/* One panel's place. */
struct box {
    double x, y, width, height;
};

const char *plot_number(double value, char buffer[24])
{
    if (isnan(value))
        snprintf(buffer, 24, "–");
    else if (value == 0)
        snprintf(buffer, 24, "0");
    else
        snprintf(buffer, 24, "%.*f", fabs(value) >= 99.95 ? 0 : fabs(value) >= 9.995 ? 1 : 2, value);
    return buffer;
}

/* ---- scale ---- */

/* The least 1, 2 or 5 times a power of ten that is not less than the value. */
static double round_number_above(double value)
{
    double power = pow(10, floor(log10(value)));
    double digits = value / power;
    return power * (digits <= 1 ? 1 : digits <= 2 ? 2 : digits <= 5 ? 5 : 10);
}

/* For one panel, or for all of them if the scale is logarithmic. */
static struct scale scale_for(const struct plot *plot, unsigned panel)
{
    struct scale scale = {INFINITY, 0, plot->linear};
    unsigned first = plot->linear ? panel : 0, last = plot->linear ? panel : plot->n_panels - 1;
    for (unsigned p = first; p <= last && p < plot->n_panels; p++) {
        for (unsigned i = 0; i < plot->n_series * plot->n_points; i++) {
            double value = plot->panels[p].values[i];
            if (!isnan(value) && value > 0) {
                scale.low = fmin(scale.low, value);
                scale.high = fmax(scale.high, value);
            }
        }
    }
    if (scale.high == 0)
        return (struct scale){plot->linear ? 0 : 1, 10, plot->linear};
    if (plot->linear) {
        scale.low = 0;
        return scale;
    }
    /* A bar of the least value should still be seen, so the scale begins well below it. */
    scale.low = pow(10, floor(log10(scale.low / 1.5)));
    scale.high = pow(10, ceil(log10(scale.high)));
    return scale;
}

/* 0 at the low end, 1 at the high end. */
static double place(const struct scale *scale, double value)
{
    if (scale->linear)
        return (value - scale->low) / (scale->high - scale->low);
    return fmax(0, log(value / scale->low) / log(scale->high / scale->low));
}

/* The numbers to write on the scale, from low to high. Returns how many. */
static unsigned ticks_of(const struct scale *scale, double ret[MAX_TICKS])
{
    double step = scale->linear ? round_number_above(scale->high / 5) : 10;
    double tick = scale->low;
    unsigned n = 0;
    while (n < MAX_TICKS && tick <= scale->high * 1.0001) {
        ret[n++] = tick;
        tick = scale->linear ? tick + step : tick * step;
    }
    return n;
}

static const char *tick_name(double value, char buffer[24])
{
    snprintf(buffer, 24, "%g", value);
    if (value >= 10000)
        snprintf(buffer, 24, value >= 1e6 ? "%g M" : "%g k", value / (value >= 1e6 ? 1e6 : 1e3));
    return buffer;
}

/* ---- pieces ---- */

static void escaped(FILE *f, const char *words)
{
    for (; *words; words++) {
        if (*words == '&' || *words == '<')
            fputs(*words == '&' ? "&amp;" : "&lt;", f);
        else
            fputc(*words, f);
    }
}

static void text(FILE *f, const char *class, double x, double y, const char *anchor, const char *words)
{
    fprintf(f, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", class, x, y, anchor);
    escaped(f, words);
    fputs("</text>\n", f);
}

/* What a browser shows when the pointer rests on a mark; goes inside of it. `point` may be NULL. */
static void tooltip(FILE *f, const struct plot *plot, const char *panel, const char *series, const char *point,
                    double value)
{
    char number[24];
    fputs("<title>", f);
    escaped(f, panel);
    fputs(", ", f);
    escaped(f, series);
    if (point) {
        fputs(", ", f);
        escaped(f, point);
    }
    fprintf(f, ": %s %s</title>", plot_number(value, number), plot->unit);
}

static void line(FILE *f, const char *class, double x1, double y1, double x2, double y2)
{
    fprintf(f, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1, x2, y2);
}

static const char *const light[] = {"#c2410c", "#d97706", "#1d4ed8", "#7c3aed",
                                    "#0f766e", "#475569", "#94a3b8", "#be185d"};
static const char *const dark[] = {"#fb923c", "#fcd34d", "#60a5fa", "#c4b5fd",
                                   "#2dd4bf", "#cbd5e1", "#7c8aa0", "#f472b6"};

static void style(FILE *f)
{
    fputs("<style>\n"
          "text{font-family:system-ui,'Segoe UI',Roboto,'Helvetica Neue','DejaVu Sans',sans-serif;font-size:11.5px;"
          "fill:#1f2937}\n"
          ".title{font-size:18px;font-weight:600}.caption,.tick{fill:#6b7280}.tick{font-size:10px}\n"
          ".panel{font-size:13px;font-weight:600}.ours{font-weight:600}\n"
          ".value{paint-order:stroke;stroke:#ffffff;stroke-width:4px}.page{fill:#ffffff}.grid{stroke:#e5e7eb}\n"
          ".curve{fill:none;stroke-width:1.6}.thick{stroke-width:3}\n",
          f);
    for (unsigned i = 0; i < 8; i++)
        fprintf(f, ".f%u{fill:%s}.s%u{stroke:%s}", i, light[i], i, light[i]);
    fputs("\n@media (prefers-color-scheme:dark){text{fill:#e5e7eb}.caption,.tick{fill:#9ca3af}"
          ".value{stroke:#0f172a}.page{fill:#0f172a}.grid{stroke:#334155}\n",
          f);
    for (unsigned i = 0; i < 8; i++)
        fprintf(f, ".f%u{fill:%s}.s%u{stroke:%s}", i, dark[i], i, dark[i]);
    fputs("}\n</style>\n", f);
}

/* For those who hear the chart: every value of it. */
static void description(FILE *f, const struct plot *plot)
{
    char number[24];
    fputs("<title id=\"t\">", f);
    escaped(f, plot->title);
    fputs("</title>\n<desc id=\"d\">", f);
    escaped(f, plot->caption);
    for (unsigned p = 0; p < plot->n_panels; p++) {
        fputc('\n', f);
        escaped(f, plot->panels[p].title);
        fputc(':', f);
        for (unsigned s = 0; s < plot->n_series; s++) {
            fprintf(f, " %s", plot->series[s].name);
            for (unsigned i = 0; i < plot->n_points; i++)
                fprintf(f, " %s", plot_number(plot->panels[p].values[s * plot->n_points + i], number));
            fputs(s + 1 < plot->n_series ? "," : ".", f);
        }
    }
    fputs("</desc>\n", f);
}

static unsigned rows_of(const struct plot *plot)
{
    return (plot->n_panels + plot->columns - 1) / plot->columns;
}

static FILE *begin(const char *path, const struct plot *plot, double panel_height)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return NULL;
    double height = HEADER + rows_of(plot) * (panel_height + GAP) + MARGIN - GAP;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\" "
            "role=\"img\" aria-labelledby=\"t d\">\n",
            WIDTH, height, WIDTH, height);
    description(f, plot);
    style(f);
    fprintf(f, "<rect class=\"page\" width=\"%d\" height=\"%.0f\" rx=\"8\"/>\n", WIDTH, height);
    text(f, "title", MARGIN, 30, "start", plot->title);
    text(f, "caption", MARGIN, 48, "start", plot->caption);
    return f;
}

static int end(FILE *f)
{
    fputs("</svg>\n", f);
    int error = ferror(f) ? EIO : 0;
    if (fclose(f) != 0)
        return -1;
    errno = error;
    return error ? -1 : 0;
}

static struct box box_of(const struct plot *plot, unsigned panel, double panel_height)
{
    unsigned row = panel / plot->columns, column = panel % plot->columns;
    double width = (WIDTH - 2.0 * MARGIN - (plot->columns - 1.0) * GAP) / plot->columns;
    return (struct box){MARGIN + column * (width + GAP), HEADER + row * (panel_height + GAP), width, panel_height};
}

/* ---- bars ---- */

static bool panel_has(const struct plot *plot, const struct plot_panel *panel, unsigned series)
{
    for (unsigned i = 0; i < plot->n_points; i++)
        if (!isnan(panel->values[series * plot->n_points + i]))
            return true;
    return false;
}

static void bar(FILE *f, const struct plot *plot, const struct plot_panel *panel, unsigned s, struct box area, double y,
                const struct scale *scale)
{
    const struct plot_series *series = &plot->series[s];
    double value = panel->values[s];
    double length = isnan(value) ? 0 : fmax(1.5, place(scale, value) * area.width);
    char number[24];
    plot_number(value, number);
    bool ours = series->tone < 2;
    text(f, ours ? "ours" : "other", area.x - 6, y + BAR - 2.5, "end", series->name);
    if (!isnan(value)) {
        fprintf(f, "<rect class=\"f%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"2\">", series->tone,
                area.x, y, length, BAR);
        tooltip(f, plot, panel->title, series->name, NULL, value);
        fputs("</rect>\n", f);
    }
    text(f, ours ? "value ours" : "value", area.x + length + 5, y + BAR - 2.5, "start", number);
}

static void bars_panel(FILE *f, const struct plot *plot, const struct plot_panel *panel, struct box box,
                       const struct scale *scale)
{
    char name[24];
    double ticks[MAX_TICKS];
    unsigned n_ticks = ticks_of(scale, ticks);
    struct box area = {box.x + NAMES, box.y + PANEL_TITLE, box.width - NAMES - VALUES, plot->n_series * ROW};
    double bottom = area.y + area.height;
    text(f, "panel", box.x, box.y + 12, "start", panel->title);
    double named = -INFINITY; /* where the last number stands: the next one must not touch it */
    for (unsigned i = 0; i < n_ticks; i++) {
        double x = area.x + place(scale, ticks[i]) * area.width;
        line(f, "grid", x, area.y - 2, x, bottom);
        if (x < named + TICK_SPACE)
            continue;
        text(f, "tick", x, bottom + 13, "middle", tick_name(ticks[i], name));
        named = x;
    }
    for (unsigned s = 0; s < plot->n_series; s++)
        bar(f, plot, panel, s, area, area.y + s * ROW + 2, scale);
}

int plot_bars(const char *path, const struct plot *plot)
{
    double height = PANEL_TITLE + plot->n_series * ROW + AXIS;
    FILE *f = begin(path, plot, height);
    if (!f)
        return -1;
    for (unsigned p = 0; p < plot->n_panels; p++) {
        struct scale scale = scale_for(plot, p);
        bars_panel(f, plot, &plot->panels[p], box_of(plot, p, height), &scale);
    }
    return end(f);
}

/* ---- lines ---- */

struct label {
    unsigned series;
    double y;
};

/* Sorts the labels by height and pushes them apart, downwards first and back up where that leaves the panel. */
static void spread(struct label *labels, unsigned n, double bottom)
{
    for (unsigned i = 1; i < n; i++) {
        struct label moving = labels[i];
        unsigned j = i;
        for (; j > 0 && labels[j - 1].y > moving.y; j--)
            labels[j] = labels[j - 1];
        labels[j] = moving;
    }
    for (unsigned i = 1; i < n; i++)
        labels[i].y = fmax(labels[i].y, labels[i - 1].y + LABEL);
    for (unsigned i = n; i-- > 0;)
        labels[i].y = fmin(labels[i].y, bottom - (n - 1 - i) * LABEL);
}

static double x_of(const struct plot *plot, struct box area, unsigned point)
{
    double first = log(plot->x[0]), last = log(plot->x[plot->n_points - 1]);
    return area.x + (last > first ? (log(plot->x[point]) - first) / (last - first) : 0.5) * area.width;
}

/* Draws one line and returns the height of its last point. */
static double curve(FILE *f, const struct plot *plot, const struct plot_panel *panel, unsigned s, struct box area,
                    const struct scale *scale)
{
    const double *values = panel->values + s * plot->n_points;
    unsigned tone = plot->series[s].tone;
    double y = 0;
    fprintf(f, "<polyline class=\"curve s%u%s\" points=\"", tone, tone < 2 ? " thick" : "");
    for (unsigned i = 0; i < plot->n_points; i++)
        if (!isnan(values[i]))
            fprintf(f, "%.1f,%.1f ", x_of(plot, area, i), area.y + area.height * (1 - place(scale, values[i])));
    fputs("\"/>\n", f);
    for (unsigned i = 0; i < plot->n_points; i++) {
        if (isnan(values[i]))
            continue;
        y = area.y + area.height * (1 - place(scale, values[i]));
        fprintf(f, "<circle class=\"f%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\">", tone, x_of(plot, area, i), y,
                tone < 2 ? "3.4" : "2.6");
        tooltip(f, plot, panel->title, plot->series[s].name, plot->x_names[i], values[i]);
        fputs("</circle>\n", f);
    }
    return y;
}

static void lines_grid(FILE *f, const struct plot *plot, struct box area, const struct scale *scale)
{
    char name[24];
    double ticks[MAX_TICKS];
    unsigned n_ticks = ticks_of(scale, ticks);
    for (unsigned i = 0; i < n_ticks; i++) {
        double y = area.y + area.height * (1 - place(scale, ticks[i]));
        line(f, "grid", area.x - 4, y, area.x + area.width, y);
        text(f, "tick", area.x - 8, y + 3.5, "end", tick_name(ticks[i], name));
    }
    for (unsigned i = 0; i < plot->n_points; i++)
        text(f, "tick", x_of(plot, area, i), area.y + area.height + 16, "middle", plot->x_names[i]);
}

static void lines_panel(FILE *f, const struct plot *plot, const struct plot_panel *panel, struct box box,
                        const struct scale *scale)
{
    struct box area = {box.x + LEFT_NUMBERS, box.y + PANEL_TITLE, box.width - LEFT_NUMBERS - RIGHT_NAMES, LINES_HEIGHT};
    struct label labels[MAX_SERIES];
    unsigned n = 0;
    char class[16];
    text(f, "panel", box.x, box.y + 12, "start", panel->title);
    lines_grid(f, plot, area, scale);
    /* The first series last: nothing should cover it. */
    for (unsigned s = plot->n_series; s-- > 0;)
        if (panel_has(plot, panel, s) && n < MAX_SERIES) {
            double y = curve(f, plot, panel, s, area, scale);
            labels[n++] = (struct label){s, y};
        }
    spread(labels, n, area.y + area.height);
    for (unsigned i = 0; i < n; i++) {
        const struct plot_series *series = &plot->series[labels[i].series];
        snprintf(class, sizeof class, "f%u%s", series->tone, series->tone < 2 ? " ours" : "");
        text(f, class, area.x + area.width + 9, labels[i].y + 4, "start", series->name);
    }
}

int plot_lines(const char *path, const struct plot *plot)
{
    double height = PANEL_TITLE + LINES_HEIGHT + AXIS;
    FILE *f = begin(path, plot, height);
    if (!f)
        return -1;
    for (unsigned p = 0; p < plot->n_panels; p++) {
        struct scale scale = scale_for(plot, p);
        lines_panel(f, plot, &plot->panels[p], box_of(plot, p, height), &scale);
    }
    return end(f);
}
