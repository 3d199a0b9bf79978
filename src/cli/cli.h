/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CLI_CLI_H
#define FOLIOT_CLI_CLI_H

/* What a command of `foliot` consists of. To add one: define a cli_command in a file of its own, declare it below and
 * put it in the table of main.c. Help, options and their errors then come by themselves. */

#include <stdint.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 }; /* exit statuses */

/* An option that takes a whole number: `--name 5` or `--name=5`. */
struct cli_option {
    const char *name;       /* without the dashes; NULL ends the table */
    const char *value_name; /* for the help: "N" */
    const char *help;
    uint64_t *value; /* holds the default */
    uint64_t min, max;
};

struct cli_command {
    const char *name;
    const char *summary; /* one line, no full stop */
    const struct cli_option *options;
    int (*run)(void); /* with the options read; returns an exit status */

    /* Instead of `options` and `run`: takes the arguments as they are, --help included. */
    int (*run_with)(int argc, char **argv);
};

extern const struct cli_command serve_command, demo_command, js_command;

/* Reads the arguments after the command's name. Returns CLI_OK, or CLI_USAGE after having said what is wrong. */
int cli_parse(const struct cli_command *command, int argc, char **argv);

#endif
