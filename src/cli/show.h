/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CLI_SHOW_H
#define FOLIOT_CLI_SHOW_H

/* What people see: JSON as lines and tables, colours, bars. Nothing that came from elsewhere is shown with control characters
 * in it: a terminal would obey them. */

#include <stdio.h>

#include "cli/cli.h"
#include "text/json.h"
#include "text/out.h"

/* Puts a value as people want to see it: a string without quotation marks, anything else as JSON. */
void put_shown(struct out *out, struct json value);
/* The same, but an object as KEY=VALUE,..., as options take it. */
void put_pairs_shown(struct out *out, struct json value);
void put_member_shown(struct out *out, struct json object, const char *key); /* nothing if it is not there */

/* Puts a value as JSON without line breaks, which can only be between its parts: blanks say the same. */
void put_json_line(struct out *out, struct json value);

/* The bytes of a string, ended with a NUL that is not counted. */
void put_string(struct out *out, struct json string);

bool show_colours(FILE *to); /* it is a terminal, and NO_COLOR is not set */
bool show_utf8(void);
enum {
    STYLE_PLAIN = 0,
    STYLE_BOLD = 1,
    STYLE_DIM = 2,
    STYLE_RED = 31,
    STYLE_GREEN = 32,
    STYLE_YELLOW = 33,
    STYLE_CYAN = 36
};
void show_style(FILE *to, int style);

/* How many columns a text takes, if each character takes one. */
unsigned show_width(const char *text);

/* Prints the members of an object, a line each; settings have a line for each of theirs. */
void show_object(struct json object);

/* Prints a value as one line of JSON. */
void show_json(struct json value);

/* A number with three digits and a unit: "1.25 ms". */
enum { SHOWN = 32 };
const char *show_seconds(char text[SHOWN], double seconds);
const char *show_count(char text[SHOWN], double count); /* 1 234 567 */

/* "in 3h", "5s ago": how far away a time is, in its two largest units. */
const char *show_away(char text[SHOWN], fl_bytes time);

/* A table: cells row by row; table_flush() prints the rows there are, in columns that fit them. Later rows fit into the same
 * columns if they can. */
enum { TABLE_COLUMNS = 9 };
struct table {
    const char *heads[TABLE_COLUMNS + 1];
    unsigned widths[TABLE_COLUMNS];
    struct out cells; /* a NUL behind each */
    bool headed;
};
void table_cell(struct table *table, struct json object, const char *key); /* "-" if it is not there */
void table_text(struct table *table, const char *text);
int table_flush(struct table *table);                              /* CLI_OK, or CLI_FAILED without memory */
void table_say_empty(const struct table *table, const char *what); /* on a terminal, if no row was printed */
void table_free(struct table *table);

/* A bar on stderr while something long is done, if that is a terminal. `total` 0: it is not known. */
struct progress {
    const char *what;
    uint64_t total, shown_ns;
    bool visible;
};
void progress_begin(struct progress *progress, const char *what, uint64_t total);
void progress_show(struct progress *progress, uint64_t done, uint64_t count);
void progress_end(struct progress *progress);

uint64_t clock_now_ns(void);

/* One curve, as high as a line. */
void show_sparkline(const double *values, size_t count);

#endif
