/* SPDX-License-Identifier: MIT */
/* Options of a command, read by its table. An error names what is wrong and what would be right. */

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static const struct cli_option *find(const struct cli_command *command, const char *name, size_t length)
{
    for (const struct cli_option *o = command->options; o->name; o++)
        if (strlen(o->name) == length && strncmp(o->name, name, length) == 0)
            return o;
    return NULL;
}

/* strtoull() alone would take a sign and spaces, and call the empty string 0. */
static bool parse_number(const char *text, uint64_t *ret)
{
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *ret = value;
    return true;
}

static int set(const struct cli_command *command, const struct cli_option *option, const char *text)
{
    uint64_t value;
    if (!parse_number(text, &value) || value < option->min || value > option->max) {
        fprintf(stderr, "foliot %s: '%s' is not what --%s takes: a whole number from %" PRIu64 " to %" PRIu64 ".\n",
                command->name, text, option->name, option->min, option->max);
        return CLI_USAGE;
    }
    *option->value = value;
    return CLI_OK;
}

static int unknown(const struct cli_command *command, const char *argument)
{
    fprintf(stderr, "foliot %s: there is no option '%s'. 'foliot %s --help' lists those there are.\n", command->name,
            argument, command->name);
    return CLI_USAGE;
}

int cli_parse(const struct cli_command *command, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0)
            return unknown(command, argv[i]);
        const char *name = argv[i] + 2;
        size_t length = strcspn(name, "=");
        const struct cli_option *option = find(command, name, length);
        if (!option)
            return unknown(command, argv[i]);
        const char *value = name[length] == '=' ? name + length + 1 : argv[++i];
        if (!value) {
            fprintf(stderr, "foliot %s: --%s needs a value: --%s %s.\n", command->name, option->name, option->name,
                    option->value_name);
            return CLI_USAGE;
        }
        int status = set(command, option, value);
        if (status != CLI_OK)
            return status;
    }
    return CLI_OK;
}
