/* SPDX-License-Identifier: MIT */
/* A line is put together on the stack and written at once, so that threads need no lock: a pipe takes up to PIPE_BUF bytes
 * whole, a file opened for appending any number. Some bytes at the end of the room are kept back for what must follow when
 * the room is over: the mark of the cut, a quote, a brace, a newline.
 *
 * Quoted strings are those of JSON in both formats, as readers of logfmt expect. Control characters are always escaped,
 * those of Unicode's second set too: what a client sends cannot steer the operator's terminal. */

#include "base/utf8.h"
#include "text/log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "text/when.h"

_Static_assert((int)LOG_LINE <= PIPE_BUF, "a pipe takes a line whole");

static _Atomic(enum log_level) level_now = LOG_INFO;
static _Atomic(enum log_format) format_now = LOG_AUTO;

void log_set(enum log_level level, enum log_format format)
{
    atomic_store_explicit(&level_now, level, memory_order_relaxed);
    atomic_store_explicit(&format_now, format, memory_order_relaxed);
}

enum log_level log_level_now(void)
{
    return atomic_load_explicit(&level_now, memory_order_relaxed);
}

const char *log_int_text(char out[LOG_INT], int64_t value)
{
    snprintf(out, LOG_INT, "%" PRId64, value);
    return out;
}

/* --- The line ---------------------------------------------------------------------------------------------------- */

enum { KEPT_BACK = 16 }; /* for: … " ESC[0m } newline */

struct line {
    char text[LOG_LINE];
    size_t used;
    bool full; /* something has been cut off: nothing more is added */
    bool colour;
};

static void put(struct line *line, const char *text, size_t size)
{
    if (line->full || line->used + size > LOG_LINE - KEPT_BACK) {
        line->full = true;
        return;
    }
    memcpy(line->text + line->used, text, size);
    line->used += size;
}

static void put_text(struct line *line, const char *text)
{
    put(line, text, strlen(text));
}

/* What must follow, from the bytes that were kept back. */
static void put_end(struct line *line, const char *text)
{
    size_t size = strlen(text);
    memcpy(line->text + line->used, text, size);
    line->used += size;
}

static void put_colour(struct line *line, const char *colour)
{
    if (line->colour)
        put_text(line, colour);
}

static void put_plain(struct line *line)
{
    if (line->colour)
        put_end(line, "\033[0m");
}

/* --- Any bytes --------------------------------------------------------------------------------------------------- */

/* The size of the character at `text`, which ends with a NUL; 0 if it is not UTF-8. */
static size_t utf8_size(const unsigned char *text)
{
    return fl__utf8_size(text, SIZE_MAX);
}

/* A control character that is not ASCII: U+0080 to U+009F. */
static bool is_late_control(const unsigned char *text)
{
    return text[0] == 0xc2 && text[1] < 0xa0;
}

static void put_escape(struct line *line, unsigned char c)
{
    static const char letters[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    char escape[8];
    for (const char *l = letters; *l; l += 2)
        if ((unsigned char)*l == c) {
            put(line, (char[]){'\\', l[1]}, 2);
            return;
        }
    put(line, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", c));
}

/* One character, as inside of quotes. Returns its size. */
static size_t put_character(struct line *line, const unsigned char *text)
{
    size_t size = utf8_size(text);
    if (size == 0) {
        put_text(line, "\\ufffd");
        return 1;
    }
    if (size == 1 && (*text < 0x20 || *text == 0x7f || *text == '"' || *text == '\\'))
        put_escape(line, *text);
    else if (size == 2 && is_late_control(text))
        put_escape(line, text[1]);
    else
        put(line, (const char *)text, size);
    return size;
}

/* All of a text, as inside of quotes; if it does not fit, with the mark of the cut. */
static void put_inside(struct line *line, const char *text)
{
    if (line->full)
        return;
    for (const unsigned char *at = (const unsigned char *)text; *at && !line->full;)
        at += put_character(line, at);
    if (line->full)
        put_end(line, "…");
}

static void put_quoted(struct line *line, const char *text)
{
    put_text(line, "\"");
    if (line->full)
        return;
    put_inside(line, text);
    put_end(line, "\"");
}

/* Whether a reader of logfmt needs no quotes around it. */
static bool is_bare(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    if (*at == '\0')
        return false;
    while (*at) {
        size_t size = utf8_size(at);
        if (size == 0 || *at <= ' ' || *at == 0x7f || *at == '"' || *at == '=' || *at == '\\' || is_late_control(at))
            return false;
        at += size;
    }
    return true;
}

static void put_value(struct line *line, const char *text)
{
    if (is_bare(text))
        put_inside(line, text);
    else
        put_quoted(line, text);
}

/* A key in logfmt, which has no quotes for them. */
static void put_key(struct line *line, const char *key)
{
    if (is_bare(key)) {
        put_text(line, key);
        return;
    }
    for (; *key; key++)
        put(line, *key > ' ' && *key < 0x7f && !strchr("\"=\\", *key) ? key : "_", 1);
}

/* Takes back what was begun and does not fit even in part. */
static void cut_at(struct line *line, size_t used)
{
    line->used = used;
    line->full = true;
}

/* --- Formats ----------------------------------------------------------------------------------------------------- */

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void begin_json(struct line *line, enum log_level level, const char *message)
{
    char time[WHEN_TEXT];
    when_format_ms(now_us(), time);
    put_text(line, "{\"time\":\"");
    put_text(line, time);
    put_text(line, "\",\"level\":\"");
    put_text(line, level_names[level]);
    put_text(line, "\",\"msg\":");
    put_quoted(line, message);
}

static void pair_json(struct line *line, const char *key, const char *value)
{
    size_t before = line->used;
    put_text(line, ",");
    put_quoted(line, key);
    put_text(line, ":\"");
    if (line->full) {
        cut_at(line, before);
        return;
    }
    put_inside(line, value);
    put_end(line, "\"");
}

static void begin_logfmt(struct line *line, enum log_level level, const char *message)
{
    char time[WHEN_TEXT];
    when_format_ms(now_us(), time);
    put_text(line, "time=");
    put_text(line, time);
    put_text(line, " level=");
    put_text(line, level_names[level]);
    put_text(line, " msg=");
    put_value(line, message);
}

static void pair_logfmt(struct line *line, const char *key, const char *value)
{
    size_t before = line->used;
    put_text(line, " ");
    put_colour(line, "\033[2m");
    put_key(line, key);
    put_text(line, "=");
    if (line->full) {
        cut_at(line, before);
        return;
    }
    put_plain(line);
    put_value(line, value);
}

/* For a terminal: the local time without the date, and colours. */
static void begin_short(struct line *line, enum log_level level, const char *message)
{
    static const char *const colours[] = {"\033[1;31m", "\033[33m", "\033[32m", "\033[2m"};
    struct timespec now;
    struct tm local = {0};
    char text[32];
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    snprintf(text, sizeof text, "%02d:%02d:%02d.%03d ", local.tm_hour, local.tm_min, local.tm_sec,
             (int)(now.tv_nsec / 1000000));
    put_colour(line, "\033[2m");
    put_text(line, text);
    put_plain(line);
    put_colour(line, colours[level]);
    snprintf(text, sizeof text, "%-7s ", level_names[level]);
    put_text(line, text);
    put_plain(line);
    put_inside(line, message);
}

static const struct style {
    void (*begin)(struct line *line, enum log_level level, const char *message);
    void (*pair)(struct line *line, const char *key, const char *value);
    const char *end;
} styles[] = {
    {begin_json, pair_json, "}\n"},
    {begin_logfmt, pair_logfmt, "\n"},
    {begin_short, pair_logfmt, "\n"},
};

/* What LOG_AUTO means is asked each time: standard error may have been given another place. */
static const struct style *choose_style(bool *ret_colour)
{
    enum log_format format = atomic_load_explicit(&format_now, memory_order_relaxed);
    *ret_colour = false;
    if (format == LOG_JSON)
        return &styles[0];
    if (format == LOG_LOGFMT || !isatty(STDERR_FILENO))
        return &styles[1];
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    *ret_colour = (!no_colour || !*no_colour) && terminal && strcmp(terminal, "dumb") != 0;
    return &styles[2];
}

/* A line that cannot be written is lost, because errors are reported in the log. */
static void write_line(const struct line *line)
{
    ssize_t written;
    do
        written = write(STDERR_FILENO, line->text, line->used);
    while (written < 0 && errno == EINTR);
}

void log_line(enum log_level level, const char *message, ...)
{
    if (level > log_level_now())
        return;
    int error = errno;
    struct line line;
    line.used = 0;
    line.full = false;
    const struct style *style = choose_style(&line.colour);
    style->begin(&line, level, message);
    va_list pairs;
    va_start(pairs, message);
    for (const char *key; (key = va_arg(pairs, const char *)) && !line.full;) {
        const char *value = va_arg(pairs, const char *);
        style->pair(&line, key, value ? value : "");
        if (!value)
            break; /* it may have been the end */
    }
    va_end(pairs);
    put_end(&line, style->end);
    write_line(&line);
    errno = error;
}
