/* SPDX-License-Identifier: MIT */
/* See show.h. */

#include "cli/show.h"

#include <assert.h>
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "text/when.h"

uint64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

void put_string(struct out *out, struct json string)
{
    if (!out_reserve(out, string.text.size + 1))
        return;
    assert(out->data);
    char *room = out->data + out->size;
    fl_bytes bytes = json_string(string, room);
    memmove(room, bytes.data, bytes.size);
    room[bytes.size] = '\0';
    out->size += bytes.size;
}

/* The characters that a terminal obeys instead of showing them: controls, line separators, and those that turn the direction of
 * text around. */
static const struct {
    uint32_t first, last;
} obeyed[] = {{0, 0x1f}, {0x7f, 0x9f}, {0x61c, 0x61c}, {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}};

/* The size of such a character at the beginning of a text, and the character; 0: another character is there. */
static size_t obeyed_size(const char *text, size_t size, uint32_t *ret)
{
    const unsigned char *t = (const unsigned char *)text;
    size_t length = t[0] < 0x80 ? 1 : t[0] >> 5 == 6 ? 2 : t[0] >> 4 == 14 ? 3 : 0;
    if (length == 0 || length > size)
        return 0;
    uint32_t character = length == 1 ? t[0] : t[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++)
        character = character << 6 | (t[i] & 0x3fu);
    for (size_t i = 0; i < sizeof obeyed / sizeof *obeyed; i++)
        if (character >= obeyed[i].first && character <= obeyed[i].last) {
            *ret = character;
            return length;
        }
    return 0;
}

/* Each byte of such a character becomes a question mark. */
static void clean(char *text, size_t size)
{
    uint32_t character;
    for (size_t i = 0, length; i<size; i += length> 0 ? length : 1) {
        length = obeyed_size(text + i, size - i, &character);
        memset(text + i, '?', length);
    }
}

void put_shown(struct out *out, struct json value)
{
    size_t before = out->size;
    if (value.kind == JSON_STRING)
        put_string(out, value);
    else
        out_put(out, value.text.data, value.text.size);
    if (!out->failed)
        clean(out->data + before, out->size - before);
}

void put_pairs_shown(struct out *out, struct json value)
{
    struct json key, member;
    bool first = true;
    if (value.kind == JSON_NULL)
        out_text(out, "-");
    else if (value.kind != JSON_OBJECT)
        put_shown(out, value);
    for (struct json_walk walk = json_walk(value); value.kind == JSON_OBJECT && json_member(&walk, &key, &member);
         first = false) {
        out_text(out, first ? "" : ",");
        put_shown(out, key);
        out_text(out, "=");
        put_shown(out, member);
    }
}

void put_member_shown(struct out *out, struct json object, const char *key)
{
    struct json value;
    if (json_get(object, key, &value))
        put_shown(out, value);
}

void put_json_line(struct out *out, struct json value)
{
    size_t before = out->size;
    out_put(out, value.text.data, value.text.size);
    for (size_t i = before; i < out->size; i++)
        if (out->data[i] == '\n' || out->data[i] == '\r')
            out->data[i] = ' ';
}

/* For a terminal: characters that it would obey are escaped, as JSON allows in strings. Elsewhere there are only blanks. */
static void put_escaped(struct out *out, struct json value)
{
    struct out plain = {0};
    uint32_t character;
    put_json_line(&plain, value);
    for (size_t i = 0, length; i<plain.size; i += length> 0 ? length : 1) {
        length = obeyed_size(plain.data + i, plain.size - i, &character);
        if (length == 1 && character == '\t')
            out_text(out, " ");
        else if (length > 0)
            out_format(out, "\\u%04x", (unsigned)character);
        else
            out_put(out, plain.data + i, 1);
    }
    out->failed |= plain.failed;
    out_free(&plain);
}

void show_json(struct json value)
{
    struct out line = {0};
    if (isatty(STDOUT_FILENO))
        put_escaped(&line, value);
    else
        put_json_line(&line, value);
    out_text(&line, "\n");
    if (line.failed)
        fputs("foliot: not enough memory to print the result\n", stderr);
    else
        fwrite(line.data, 1, line.size, stdout);
    out_free(&line);
}

/* --- Terminals ---------------------------------------------------------------------------------------------------- */

bool show_colours(FILE *to)
{
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    return isatty(fileno(to)) && term && strcmp(term, "dumb") != 0 && !(no_colour && *no_colour);
}

bool show_utf8(void)
{
    setlocale(LC_CTYPE, "");
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

void show_style(FILE *to, int style)
{
    if (show_colours(to))
        fprintf(to, "\033[%dm", style);
}

unsigned show_width(const char *text)
{
    unsigned width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void pad(unsigned width)
{
    for (; width > 0; width--)
        putchar(' ');
}

/* --- Numbers ------------------------------------------------------------------------------------------------------ */

const char *show_seconds(char text[SHOWN], double seconds)
{
    static const struct {
        const char *name;
        double size;
    } units[] = {{"h", 3600}, {"min", 60}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
    size_t unit = 0;
    while (unit < sizeof units / sizeof *units - 1 && seconds < units[unit].size)
        unit++;
    double value = seconds / units[unit].size;
    snprintf(text, SHOWN, "%.*f %s", value >= 100 || value == 0 ? 0 : value >= 10 ? 1 : 2, value, units[unit].name);
    return seconds > 0 ? text : "0";
}

const char *show_count(char text[SHOWN], double count)
{
    char digits[SHOWN];
    int length = snprintf(digits, sizeof digits, "%.0f", count < 1e15 ? count : 1e15);
    size_t at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[at++] = ' ';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

const char *show_away(char text[SHOWN], fl_bytes time)
{
    static const struct {
        char name;
        int64_t seconds;
    } units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
    int64_t us;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (when_parse(time, &us) < 0)
        return "";
    int64_t away = us / 1000000 - now.tv_sec, left = away < 0 ? -away : away;
    size_t unit = 0, at = 0;
    at += (size_t)snprintf(text, SHOWN, "%s", away < 0 ? "" : "in ");
    while (unit < 3 && left < units[unit].seconds)
        unit++;
    for (size_t i = unit; i < 4 && i < unit + 2; left %= units[i++].seconds)
        if (left / units[i].seconds > 0 || i == 3)
            at += (size_t)snprintf(text + at, SHOWN - at, "%" PRId64 "%c", left / units[i].seconds, units[i].name);
    snprintf(text + at, SHOWN - at, "%s", away < 0 ? " ago" : "");
    return text;
}

/* --- Objects and tables ------------------------------------------------------------------------------------------- */

/* Payloads and the like stay as they are. */
static bool is_of_pairs(struct json key)
{
    static const char *const keys[] = {"retry", "history", "paused", "responses", "latency_ms"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_is(key, keys[i]))
            return true;
    return false;
}

static void show_member(struct json key, struct json value, unsigned width)
{
    char away[SHOWN];
    struct out name = {0}, text = {0};
    put_shown(&name, key);
    if (is_of_pairs(key))
        put_pairs_shown(&text, value);
    else
        put_shown(&text, value);
    out_put(&name, "", 1);
    out_put(&text, "", 1);
    if (!name.failed && !text.failed) {
        show_style(stdout, STYLE_DIM);
        fputs(name.data, stdout);
        pad(width - show_width(name.data) + 2);
        show_style(stdout, STYLE_PLAIN);
        fputs(text.data, stdout);
        if (json_is(key, "due") && isatty(STDOUT_FILENO))
            printf(" (%s)", show_away(away, (fl_bytes){text.data, text.size - 1}));
        putchar('\n');
    }
    out_free(&name);
    out_free(&text);
}

/* The members of an object, those of its settings among them. */
struct flat_walk {
    struct json_walk outer, inner;
    bool inside;
};

static bool flat_member(struct flat_walk *walk, struct json *ret_key, struct json *ret_value)
{
    for (;;) {
        if (walk->inside && json_member(&walk->inner, ret_key, ret_value))
            return true;
        walk->inside = false;
        if (!json_member(&walk->outer, ret_key, ret_value))
            return false;
        if (!json_is(*ret_key, "settings") || ret_value->kind != JSON_OBJECT)
            return true;
        walk->inner = json_walk(*ret_value);
        walk->inside = true;
    }
}

void show_object(struct json object)
{
    struct json key, value;
    unsigned width = 0;
    for (struct flat_walk walk = {.outer = json_walk(object)}; flat_member(&walk, &key, &value);)
        width = key.text.size - 2 > width ? (unsigned)key.text.size - 2 : width;
    for (struct flat_walk walk = {.outer = json_walk(object)}; flat_member(&walk, &key, &value);)
        show_member(key, value, width);
}

void table_text(struct table *table, const char *text)
{
    out_put(&table->cells, text, strlen(text) + 1);
}

void table_cell(struct table *table, struct json object, const char *key)
{
    struct json value;
    if (!json_get(object, key, &value) || value.kind == JSON_NULL) {
        table_text(table, "-");
        return;
    }
    put_pairs_shown(&table->cells, value);
    out_put(&table->cells, "", 1);
}

static void print_cell(const struct table *table, size_t column, const char *text)
{
    fputs(text, stdout);
    if (!table->heads[column + 1])
        putchar('\n');
    else
        pad(table->widths[column] - show_width(text) + 2);
}

static void measure(struct table *table, size_t columns)
{
    const char *at = table->cells.data, *end = at + table->cells.size;
    for (size_t i = 0; at < end; i = i + 1 < columns ? i + 1 : 0, at += strlen(at) + 1) {
        unsigned width = show_width(at);
        table->widths[i] = width > table->widths[i] ? width : table->widths[i];
    }
}

static void print_heads(struct table *table)
{
    show_style(stdout, STYLE_BOLD);
    for (size_t i = 0; table->heads[i]; i++)
        print_cell(table, i, table->heads[i]);
    show_style(stdout, STYLE_PLAIN);
    table->headed = true;
}

int table_flush(struct table *table)
{
    size_t columns = 0;
    if (table->cells.failed)
        return CLI_FAILED;
    for (; table->heads[columns]; columns++)
        if (!table->headed && show_width(table->heads[columns]) > table->widths[columns])
            table->widths[columns] = show_width(table->heads[columns]);
    measure(table, columns);
    if (!table->headed && table->cells.size > 0)
        print_heads(table);
    const char *at = table->cells.data, *end = at + table->cells.size;
    for (size_t i = 0; at < end; i = i + 1 < columns ? i + 1 : 0, at += strlen(at) + 1)
        print_cell(table, i, at);
    out_clear(&table->cells);
    return CLI_OK;
}

void table_say_empty(const struct table *table, const char *what)
{
    if (!table->headed && isatty(STDOUT_FILENO))
        printf("%s\n", what);
}

void table_free(struct table *table)
{
    out_free(&table->cells);
}

/* --- Progress ----------------------------------------------------------------------------------------------------- */

enum { BAR = 30 };
#define REDRAW_NS 100000000u

void progress_begin(struct progress *progress, const char *what, uint64_t total)
{
    *progress = (struct progress){.what = what, .total = total, .visible = isatty(STDERR_FILENO)};
}

static void draw(const struct progress *progress, uint64_t done, uint64_t count)
{
    char text[SHOWN];
    double part = progress->total > 0 ? (double)done / (double)progress->total : 0;
    fprintf(stderr, "\r%s ", progress->what);
    if (progress->total > 0) {
        int filled = (int)((part > 1 ? 1 : part) * BAR);
        const char *full = show_utf8() ? "█" : "#", *empty = show_utf8() ? "░" : ".";
        show_style(stderr, STYLE_GREEN);
        for (int i = 0; i < BAR; i++)
            fputs(i < filled ? full : empty, stderr);
        show_style(stderr, STYLE_PLAIN);
        fprintf(stderr, " %3.0f %% ", (part > 1 ? 1 : part) * 100);
    }
    fprintf(stderr, " %s\033[K", show_count(text, (double)count));
    fflush(stderr);
}

void progress_show(struct progress *progress, uint64_t done, uint64_t count)
{
    uint64_t now = progress->visible ? clock_now_ns() : 0;
    if (!progress->visible ||
        (progress->shown_ns > 0 && now - progress->shown_ns < REDRAW_NS && done < progress->total))
        return;
    progress->shown_ns = now;
    draw(progress, done, count);
}

void progress_end(struct progress *progress)
{
    if (progress->visible)
        fputs("\r\033[K", stderr);
}

void show_sparkline(const double *values, size_t count)
{
    static const char *const heights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double highest = 0;
    bool utf8 = show_utf8();
    for (size_t i = 0; i < count; i++)
        highest = values[i] > highest ? values[i] : highest;
    for (size_t i = 0; i < count; i++) {
        int height = highest > 0 ? (int)(values[i] / highest * 7 + 0.5) : 0;
        if (utf8)
            fputs(heights[height], stdout);
        else
            putchar("_.:-=+*#"[height]);
    }
}
