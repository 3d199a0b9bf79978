/* SPDX-License-Identifier: MIT */
/* Tells what a benchmark found: a table for the terminal, a JSON file for programs, a page with charts for readers. */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "plot.h"
#include "results.h"

/* ---- shared by all forms ---- */

static const struct bench_measure *measure_at(const struct results *r, unsigned i)
{
    return &r->bench->measures[r->measures[i]];
}

static const struct bench_rival *rival_at(const struct results *r, unsigned i)
{
    return &r->bench->rivals[r->rivals[i]];
}

static double value_at(const struct results *r, unsigned measure, unsigned size, unsigned rival)
{
    return results_value(r, r->measures[measure], size, r->rivals[rival]);
}

/* How many sizes the measure was taken at, and which the i-th of them is. */
static unsigned sizes_of(const struct results *r, unsigned measure)
{
    return measure_at(r, measure)->fixed_size ? 1 : r->n_sizes;
}

static size_t size_at(const struct results *r, unsigned measure, unsigned i)
{
    return measure_at(r, measure)->fixed_size ? measure_at(r, measure)->fixed_size : r->sizes[i];
}

/* The value as a multiple of the first rival's, or NAN. */
static double ratio_at(const struct results *r, unsigned measure, unsigned size, unsigned rival)
{
    double base = results_value(r, r->measures[measure], size, 0);
    return rival_at(r, rival)->floor || !(base > 0) ? NAN : value_at(r, measure, size, rival) / base;
}

/* "57.1 (4.76×)" */
static const char *cell(const struct results *r, unsigned measure, unsigned size, unsigned rival, char buffer[64])
{
    char number[24];
    double ratio = ratio_at(r, measure, size, rival);
    plot_number(value_at(r, measure, size, rival), number);
    if (isnan(ratio))
        snprintf(buffer, 64, "%s", number);
    else
        snprintf(buffer, 64, "%s (%.*f×)", number, ratio < 9.995 ? 2 : ratio < 99.95 ? 1 : 0, ratio);
    return buffer;
}

static FILE *create(const char *directory, const char *file)
{
    char path[4096];
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        fprintf(stderr, "bench: %s: %s\n", directory, strerror(errno));
    snprintf(path, sizeof path, "%s/%s", directory, file);
    FILE *f = fopen(path, "w");
    if (!f)
        fprintf(stderr, "bench: %s: %s\n", path, strerror(errno));
    return f;
}

static bool finish(FILE *f, const char *file)
{
    bool good = !ferror(f);
    good = fclose(f) == 0 && good;
    if (!good)
        fprintf(stderr, "bench: %s cannot be written\n", file);
    return good;
}

/* ---- the terminal's table ---- */

/* Pads by what is seen: a sign of several bytes takes one column. */
static void pad(FILE *out, const char *words, int width)
{
    int seen = 0;
    for (const char *c = words; *c; c++)
        seen += (*c & 0xc0) != 0x80;
    if (width < 0)
        fprintf(out, "%s%*s", words, seen < -width ? -width - seen : 0, "");
    else
        fprintf(out, "%*s%s", seen < width ? width - seen : 0, "", words);
}

static void table_of_size(const struct results *r, unsigned size, FILE *out)
{
    char words[64], row[128];
    fprintf(out, "\n%s %s\n", results_size_name(r->sizes[size], words), r->bench->size_name);
    pad(out, "", -44);
    for (unsigned i = 0; i < r->n_rivals; i++)
        pad(out, rival_at(r, i)->name, 15);
    fputc('\n', out);
    for (unsigned m = 0; m < r->n_measures; m++) {
        snprintf(row, sizeof row, "%s, %s (%s)", measure_at(r, m)->name, measure_at(r, m)->unit, measure_at(r, m)->id);
        pad(out, row, -44);
        for (unsigned i = 0; i < r->n_rivals; i++)
            pad(out, cell(r, m, size, i, words), 15);
        fputc('\n', out);
    }
}

void report_table(const struct results *r, FILE *out)
{
    const struct machine *m = &r->machine;
    for (unsigned size = 0; size < r->n_sizes; size++)
        table_of_size(r, size, out);
    fprintf(out,
            "\nThis machine: %s, %u processors, %.0f GiB; %s\n"
            "Random memory (%zu MiB), ns: %.0f one after the other, %.1f many at once; "
            "on 2 MiB pages %.0f and %.1f\nTook %.0f s.\n",
            m->cpu, m->processors, m->memory_gib, m->kernel, m->span >> 20, m->small_pages.dependent_ns,
            m->small_pages.independent_ns, m->large_pages.dependent_ns, m->large_pages.independent_ns, r->seconds);
}

/* ---- JSON ---- */

static void json_string(FILE *f, const char *words)
{
    fputc('"', f);
    for (; *words; words++) {
        if (*words == '"' || *words == '\\')
            fputc('\\', f);
        if ((unsigned char)*words >= 0x20)
            fputc(*words, f);
    }
    fputc('"', f);
}

static void json_member(FILE *f, const char *indent, const char *name, const char *value, const char *after)
{
    fprintf(f, "%s\"%s\": ", indent, name);
    json_string(f, value);
    fputs(after, f);
}

static void json_machine(FILE *f, const struct machine *m)
{
    fputs("  \"machine\": {\n", f);
    json_member(f, "    ", "cpu", m->cpu, ",\n");
    json_member(f, "    ", "kernel", m->kernel, ",\n");
    json_member(f, "    ", "compiler", m->compiler, ",\n");
    json_member(f, "    ", "transparent_huge_pages", m->huge_pages, ",\n");
    fprintf(f, "    \"processors\": %u,\n    \"memory_gib\": %.1f,\n    \"page_size\": %ld,\n", m->processors,
            m->memory_gib, m->page_size);
    fprintf(f,
            "    \"random_memory\": {\"span_bytes\": %zu, \"dependent_ns\": %.2f, \"independent_ns\": %.2f, "
            "\"dependent_2m_ns\": %.2f, \"independent_2m_ns\": %.2f}\n  },\n",
            m->span, m->small_pages.dependent_ns, m->small_pages.independent_ns, m->large_pages.dependent_ns,
            m->large_pages.independent_ns);
}

static void json_rivals(FILE *f, const struct results *r)
{
    fputs("  \"rivals\": [", f);
    for (unsigned i = 0; i < r->n_rivals; i++) {
        const struct bench_rival *rival = rival_at(r, i);
        fputs(i ? ",\n    {" : "\n    {", f);
        json_member(f, "", "name", rival->name, ", ");
        json_member(f, "", "version", rival->version ? rival->version() : "", "}");
    }
    fputs("\n  ],\n", f);
}

static void json_measures(FILE *f, const struct results *r)
{
    fputs("  \"measures\": [", f);
    for (unsigned i = 0; i < r->n_measures; i++) {
        fputs(i ? ",\n    {" : "\n    {", f);
        json_member(f, "", "id", measure_at(r, i)->id, ", ");
        json_member(f, "", "name", measure_at(r, i)->name, ", ");
        json_member(f, "", "unit", measure_at(r, i)->unit, "}");
    }
    fputs("\n  ],\n", f);
}

static void json_result(FILE *f, const struct results *r, unsigned m, unsigned size, unsigned rival)
{
    fprintf(f, "    {\"measure\": \"%s\", \"size\": %zu, \"rival\": \"%s\", \"value\": %.4f, \"runs\": %u}",
            measure_at(r, m)->id, size_at(r, m, size), rival_at(r, rival)->name, value_at(r, m, size, rival),
            results_runs(r, r->measures[m], size, r->rivals[rival]));
}

static void json_results(FILE *f, const struct results *r)
{
    const char *before = "\n";
    fputs("  \"results\": [", f);
    for (unsigned m = 0; m < r->n_measures; m++) {
        for (unsigned size = 0; size < sizes_of(r, m); size++) {
            for (unsigned i = 0; i < r->n_rivals; i++) {
                if (isnan(value_at(r, m, size, i)))
                    continue;
                fputs(before, f);
                json_result(f, r, m, size, i);
                before = ",\n";
            }
        }
    }
    fputs("\n  ]\n}\n", f);
}

bool report_json(const struct results *r, const char *directory)
{
    char file[128];
    snprintf(file, sizeof file, "%s.json", r->bench->name);
    FILE *f = create(directory, file);
    if (!f)
        return false;
    fputs("{\n", f);
    json_member(f, "  ", "benchmark", r->bench->name, ",\n");
    json_member(f, "  ", "date", r->machine.date, ",\n");
    fprintf(f, "  \"quick\": %s,\n  \"seconds\": %.0f,\n", r->quick ? "true" : "false", r->seconds);
    json_machine(f, &r->machine);
    json_rivals(f, r);
    json_measures(f, r);
    json_results(f, r);
    return finish(f, file);
}

/* ---- charts ---- */

/* A chart being put together from the results. */
struct drawing {
    struct plot plot;
    struct plot_series series[BENCH_MAX];
    struct plot_panel panels[BENCH_MAX];
    double values[BENCH_MAX][BENCH_MAX * BENCH_MAX];
    double x[BENCH_MAX];
    const char *x_names[BENCH_MAX];
    char size_names[BENCH_MAX][16], titles[BENCH_MAX][64];
    unsigned rivals[BENCH_MAX]; /* of each series */
};

static void add_series(struct drawing *d, const struct results *r)
{
    unsigned ours = 0, others = 2;
    for (unsigned i = 0; i < r->n_rivals; i++) {
        const struct bench_rival *rival = rival_at(r, i);
        if (rival->floor)
            continue;
        d->rivals[d->plot.n_series] = r->rivals[i];
        d->series[d->plot.n_series++] = (struct plot_series){rival->name, rival->ours ? ours++ % 2 : others++ % 8};
    }
}

static void add_panel(struct drawing *d, const struct results *r, unsigned measure, unsigned first_size,
                      unsigned n_sizes, const char *title)
{
    unsigned p = d->plot.n_panels++;
    for (unsigned s = 0; s < d->plot.n_series; s++)
        for (unsigned i = 0; i < n_sizes; i++)
            d->values[p][s * n_sizes + i] = results_value(r, measure, first_size + i, d->rivals[s]);
    snprintf(d->titles[p], sizeof d->titles[p], "%s", title);
    d->panels[p] = (struct plot_panel){d->titles[p], d->values[p]};
}

static void add_panels(struct drawing *d, const struct results *r, const struct bench_chart *chart)
{
    char title[64], size[16];
    unsigned n_measures = 0;
    while (n_measures < 8 && chart->measures[n_measures])
        n_measures++;
    for (unsigned i = 0; i < n_measures; i++) {
        int measure = results_find_measure(r->bench, chart->measures[i]);
        if (measure < 0)
            continue;
        const struct bench_measure *m = &r->bench->measures[measure];
        d->plot.unit = m->unit;
        snprintf(title, sizeof title, "%s", m->name);
        if (chart->kind == BENCH_LINES)
            add_panel(d, r, (unsigned)measure, 0, r->n_sizes, title);
        else if (n_measures > 1)
            add_panel(d, r, (unsigned)measure, r->n_sizes - 1, 1, title);
        for (unsigned s = 0; chart->kind == BENCH_BARS && n_measures == 1 && s < r->n_sizes; s++) {
            snprintf(title, sizeof title, "%s %s", results_size_name(r->sizes[s], size), r->bench->size_name);
            add_panel(d, r, (unsigned)measure, s, 1, title);
        }
    }
}

static bool draw(const struct results *r, const struct bench_chart *chart, const char *directory)
{
    char path[4096], title[256], size[16];
    struct drawing *d = calloc(1, sizeof *d);
    if (!d)
        return false;
    if (chart->kind == BENCH_BARS && chart->measures[1])
        snprintf(title, sizeof title, "%s, %s %s", chart->title, results_size_name(r->sizes[r->n_sizes - 1], size),
                 r->bench->size_name);
    else
        snprintf(title, sizeof title, "%s", chart->title);
    add_series(d, r);
    add_panels(d, r, chart);
    for (unsigned i = 0; i < r->n_sizes; i++) {
        d->x[i] = (double)r->sizes[i];
        d->x_names[i] = results_size_name(r->sizes[i], d->size_names[i]);
    }
    d->plot.title = title;
    d->plot.caption = chart->caption;
    d->plot.series = d->series;
    d->plot.panels = d->panels;
    d->plot.linear = chart->linear;
    d->plot.x = d->x;
    d->plot.x_names = d->x_names;
    d->plot.n_points = chart->kind == BENCH_LINES ? r->n_sizes : 1;
    d->plot.columns = d->plot.n_panels == 4 || d->plot.n_panels < 3 ? 2 : 3;
    snprintf(path, sizeof path, "%s/%s-%s.svg", directory, r->bench->name, chart->file);
    int failed = chart->kind == BENCH_LINES ? plot_lines(path, &d->plot) : plot_bars(path, &d->plot);
    if (failed)
        fprintf(stderr, "bench: %s: %s\n", path, strerror(errno));
    free(d);
    return !failed;
}

/* ---- the page ---- */

static void page_table(const struct results *r, unsigned size, FILE *f)
{
    char words[64];
    fprintf(f, "\n### %s %s\n\n| |", results_size_name(r->sizes[size], words), r->bench->size_name);
    for (unsigned i = 0; i < r->n_rivals; i++)
        fprintf(f, " %s |", rival_at(r, i)->name);
    fputs("\n| --- |", f);
    for (unsigned i = 0; i < r->n_rivals; i++)
        fputs(" ---: |", f);
    for (unsigned m = 0; m < r->n_measures; m++) {
        fprintf(f, "\n| %s, %s |", measure_at(r, m)->name, measure_at(r, m)->unit);
        for (unsigned i = 0; i < r->n_rivals; i++)
            fprintf(f, rival_at(r, i)->ours ? " **%s** |" : " %s |", cell(r, m, size, i, words));
    }
    fputc('\n', f);
}

static void page_machine(const struct results *r, FILE *f)
{
    const struct machine *m = &r->machine;
    fprintf(
        f,
        "\n## The machine\n\n| | |\n| --- | --- |\n| processor | %s, %u in use |\n| memory | %.0f GiB, pages of %ld "
        "bytes, transparent huge pages: %s |\n| kernel | %s |\n| compiler | %s |\n| date | %s |\n",
        m->cpu, m->processors, m->memory_gib, m->page_size, m->huge_pages, m->kernel, m->compiler, m->date);
    fprintf(f,
            "\nIts limits, measured in the same run: one access to a random line of %zu MiB of memory, ns.\n\n"
            "| | 4 KiB pages | 2 MiB pages |\n| --- | ---: | ---: |\n"
            "| each needs the one before it (following pointers) | %.0f | %.0f |\n"
            "| independent, as many at once as the processor can | %.1f | %.1f |\n",
            m->span >> 20, m->small_pages.dependent_ns, m->large_pages.dependent_ns, m->small_pages.independent_ns,
            m->large_pages.independent_ns);
}

static void page_explanations(const struct results *r, FILE *f)
{
    fputs("\n## What is measured\n\n", f);
    for (unsigned m = 0; m < r->n_measures; m++)
        fprintf(f, "- **%s** (%s; `--only %s`). %s\n", measure_at(r, m)->name, measure_at(r, m)->unit,
                measure_at(r, m)->id, measure_at(r, m)->what);
    fputs("\n## Who is measured, and how each is driven\n\n", f);
    for (unsigned i = 0; i < r->n_rivals; i++) {
        const struct bench_rival *rival = rival_at(r, i);
        fprintf(f, "- **%s**%s%s. %s\n", rival->name, rival->version ? " " : "", rival->version ? rival->version() : "",
                rival->about);
    }
}

static void page_text(const struct results *r, FILE *f)
{
    const struct bench *b = r->bench;
    fprintf(f, "# %s\n\n%s\n", b->title, b->intro);
    for (unsigned i = 0; i < b->n_charts; i++)
        fprintf(f, "\n![%s. %s](%s-%s.svg)\n", b->charts[i].title, b->charts[i].caption, b->name, b->charts[i].file);
    fprintf(
        f,
        "\n## Results\n\nThe best of %u runs, or of two where a rival needs more than a minute for them; in brackets "
        "the multiple of %s's figure.\n",
        r->rounds, b->rivals[0].name);
    for (unsigned size = r->n_sizes; size-- > 0;)
        page_table(r, size, f);
    page_machine(r, f);
    page_explanations(r, f);
    fprintf(f,
            "\n## Again, on your machine\n\n    ./dev bench %s\n\nThis run took %.0f s%s. The figures are also in "
            "[%s.json](%s.json).\n",
            b->name, r->seconds, r->quick ? " (`--quick`)" : "", b->name, b->name);
}

bool report_page(const struct results *r, const char *directory)
{
    char file[128];
    snprintf(file, sizeof file, "%s.md", r->bench->name);
    FILE *f = create(directory, file);
    if (!f)
        return false;
    page_text(r, f);
    bool good = finish(f, file);
    for (unsigned i = 0; good && i < r->bench->n_charts; i++)
        good = draw(r, &r->bench->charts[i], directory);
    return good;
}
