/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_LOG_H
#define FOLIOT_SERVER_LOG_H

/* Lines for operators, on standard error: logfmt or JSON, one write() each. Any thread.
 *
 *     log_info("shard claimed", "shard", log_int(3), "owner", "a:1", NULL);
 *
 * After the message come pairs of key and value, ended by NULL; values are strings (log_int() makes one of a number, good
 * until the end of the enclosing block). They may have any bytes: what is not UTF-8 is shown as U+FFFD. The keys "time",
 * "level" and "msg" are taken. A line is at most LOG_LINE bytes long, so that a pipe takes it whole: what goes beyond is cut
 * off at the end of the last value that fits in part, which then ends in "…". Nothing is allocated. */

#include <stdint.h>

enum { LOG_LINE = 4096 };

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

enum log_format {
    LOG_AUTO, /* a short form with colours if standard error is a terminal, else logfmt */
    LOG_JSON,
    LOG_LOGFMT,
};

void log_set(enum log_level level, enum log_format format); /* any thread, at any time. Before: LOG_INFO, LOG_AUTO */
enum log_level log_level_now(void);
void log_line(enum log_level level, const char *message, ...) __attribute__((sentinel));

enum { LOG_INT = 24 };
const char *log_int_text(char out[LOG_INT], int64_t value);
#define log_int(value) log_int_text((char[LOG_INT]){0}, value)

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
