/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CLI_CONTENT_H
#define FOLIOT_CLI_CONTENT_H

/* What a timer consists of, as options of `add`, `update` and `schedule add`. */

#include "cli/client.h"

struct content {
    const char *after, *at, *local, *zone, *max_wait, *merge, *to, *payload, *timeout, *retry;
    struct cli_texts headers;
};
extern struct content content;

#define CONTENT_OPTIONS                                                                                         \
    {"after", "DURATION", "due so long from now: 10m, 1h30m", .text = &content.after, .format = &cli_duration}, \
        {"at", "TIME", "due then: 2030-01-31T09:00:00+01:00, or milliseconds since 1970", .text = &content.at,  \
         .format = &cli_time},                                                                                  \
        {"local", "LOCAL", "due at this local time in --zone: 2030-06-01T09:00:00", .text = &content.local},    \
        {"zone", "ZONE", "time zone of --local, such as Europe/Berlin", .text = &content.zone},                 \
        {"max-wait", "DURATION",                                                                                \
         "due at the latest DURATION after it was first created, however often it is replaced",                 \
         .text = &content.max_wait, .format = &cli_duration},                                                   \
        ATTEMPT_OPTIONS

#define ATTEMPT_OPTIONS                                                                                             \
    {"to", "URL", "where it is sent to; none: it is to be leased", .text = &content.to},                            \
        {"payload", "TEXT", "what it carries: TEXT, @FILE, or - for standard input", .text = &content.payload},     \
        {"header", "'NAME: VALUE'", "a header of the call; may be repeated", .texts = &content.headers},            \
        {"timeout", "DURATION", "how long an attempt may take", .text = &content.timeout, .format = &cli_duration}, \
    {                                                                                                               \
        "retry", "KEY=VALUE,...",                                                                                   \
            "when to try again: max_attempts=5,initial=1s,multiplier=2,max_interval=1h,max_age=1d",                 \
            .text = &content.retry                                                                                  \
    }

/* Writes what was given as a JSON object. */
int content_write(const struct client *client, struct out *out);

/* Writes the members of ATTEMPT_OPTIONS that were given into the object that is open. */
int attempt_write(const struct client *client, struct out *out);

/* Writes a member with a time: digits as a number. */
void put_time(struct out *out, const char *key, const char *time);
void put_text(struct out *out, const char *key, const char *text);

/* Writes the member `option`, given as --option KEY=VALUE,..., as an object: numbers as such, anything else as strings. */
int put_pairs(const struct client *client, struct out *out, const char *option, const char *text);

/* Reads what an option means by TEXT, @FILE or -. */
int read_source(const struct client *client, const char *text, struct out *ret);

#endif
