/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CLI_CLI_H
#define FOLIOT_CLI_CLI_H

/* The command `foliot`: a client of the server's HTTP interface, with a file for each of its commands. No command has private
 * access to a server. Three look elsewhere: `serve` is the server, `doctor` reads stores that no server uses, and `demo` has a
 * wheel of its own. This folder may use base, wheel, store and engine (for `doctor`), text, http (for the name of a status) and
 * server.
 *
 *     main.c         finds the command in a table; options.c: reads its options; meant.c: what a mistyped word may have meant;
 *                    formats.c: what their texts look like
 *     ask.c          what most commands do: ask the server, show its answer
 *     client.c       requests and their responses; say.c: errors in words; pages.c: lists that come in pages
 *     show.c         tables, colours and JSON for people; content.c: payloads, from options and files
 *     add.c, get.c, update.c, cancel.c, list.c, dead.c, namespace.c, pause.c, hosts.c   timers, dead letters, namespaces and
 *                    target hosts
 *     schedule.c     schedules; history.c: what became of attempts
 *     lease.c        due timers for this process: jobs.c runs a command for each; ack.c: acknowledges
 *     export.c, import.c   timers as lines of JSON
 *     watch.c        events; stats.c: metrics; cluster.c: servers; clock.c: the test clock; version.c
 *     bench.c        measures a server
 *     completion.c   completion for shells
 *     serve.c        the server; js.c: starts foliot-js
 *     doctor.c       looks into stores, with doctor_facts.c, doctor_sqlite.c and doctor_postgres.c
 *     demo.c, demo_view.c   the demonstration
 *
 * To add one: define a cli_command in a file of its own, declare it below and put it
 * in the table of main.c. Reading its arguments, their errors, help and completion then come from its tables; tests hold the
 * manual page against them. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses. man/foliot.1 has them too. */
enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_NOT_FOUND = 3,
    CLI_UNREACHABLE = 4, /* no server answers */
    CLI_REFUSED = 5,     /* the token is missing, unknown, or has no right to it */
    CLI_CONFLICT = 6,    /* it exists, or an attempt is under way */
    CLI_LATER = 7,       /* the server or its store cannot now: try again later */
};

/* What a text may look like. */
struct cli_format {
    const char *what; /* "a duration like 500ms or 1h30m" */
    bool (*check)(const char *text);
};
extern const struct cli_format cli_duration, cli_time; /* formats.c */

enum { CLI_TEXTS = 64 };

struct cli_texts {
    size_t count;
    const char *list[CLI_TEXTS];
};

/* An option: `--name VALUE`, `--name=VALUE`, or `--name` for a flag. Exactly one of the four pointers is set; they hold the
 * defaults. */
struct cli_option {
    const char *name;       /* without the dashes; NULL ends the table */
    const char *value_name; /* for the help: "N" */
    const char *help;
    uint64_t *value; /* a whole number from `min` to `max`; one outside of them as default means that there is none */
    uint64_t min, max;
    bool *flag;
    const char **text;
    struct cli_texts *texts;         /* may be given several times */
    const struct cli_format *format; /* of a text; NULL: any */
};

struct cli_argument {
    const char *name; /* NULL ends the table */
    const char *help;
    const char **text;
    bool optional; /* those come last */
};

struct cli_command {
    const char *name;    /* of one inside of another: "dead list" */
    const char *summary; /* one line, no full stop; continues "foliot NAME" */
    const struct cli_option *options;
    const struct cli_argument *arguments;
    const char *notes; /* for the end of the help, or NULL */
    int (*run)(void);  /* with the options read; returns an exit status */

    /* Instead of all that: the commands inside of it, NULL at the end. */
    const struct cli_command *const *commands;

    /* Or: takes the arguments as they are, --help included. */
    int (*run_with)(int argc, char **argv);
};

extern const struct cli_command *const cli_commands[]; /* all of them, NULL at the end */

extern const struct cli_command add_command, get_command, list_command, update_command, cancel_command, watch_command,
    lease_command, ack_command, clock_command, dead_command, namespace_command, hosts_command, pause_command,
    resume_command, schedule_command, history_command, stats_command, cluster_command, export_command, import_command,
    doctor_command, bench_command, serve_command, demo_command, js_command, completion_command, version_command;

/* The value of --server, which every command takes that talks to a server; NULL: FOLIOT_URL says where it is. */
extern const char *cli_server;

/* The command with that name in a table; of one inside of another, its last word. NULL: there is none. */
const struct cli_command *cli_find(const struct cli_command *const *table, const char *name);

/* Of the words that are offered, the one that was probably meant by `given`, up to its '='. */
struct cli_meant {
    const char *given, *word; /* NULL: none is like it */
    size_t size, distance;
};

struct cli_meant cli_meant(const char *given);
void cli_offer(struct cli_meant *meant, const char *word);

/* Reads the arguments after the command's name. Returns CLI_OK, or CLI_USAGE after having said what is wrong. */
int cli_parse(const struct cli_command *command, int argc, char **argv);

/* Says on stderr what is wrong with the arguments; returns CLI_USAGE. */
int cli_usage(const struct cli_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
