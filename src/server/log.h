/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_LOG_H
#define FOLIOT_SERVER_LOG_H

/* Lines for operators, on standard error: logfmt or JSON, one write() each. Any thread.
 *
 *     log_info("shard claimed", "shard", log_int(3), "owner", "a:1", NULL);
 *
 * After the message come pairs of key and value, ended by NULL; values are strings (log_int() makes one of a number, good
 * until the end of the call's full expression). */

#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

void log_set(enum log_level level, int json); /* any thread, at any time */
enum log_level log_level_now(void);
void log_line(enum log_level level, const char *message, ...) __attribute__((sentinel));

const char *log_int(int64_t value);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
