/* SPDX-License-Identifier: MIT */
/* Options and arguments of a command, read by its tables. An error names the wrong value and the allowed ones. */

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

int cli_usage(const struct cli_command *command, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "foliot %s: ", command->name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, " see 'foliot %s --help'\n", command->name);
    return CLI_USAGE;
}

const char *cli_server;

static const struct cli_option common_options[] = {
    {"server", "URL", "the server to talk to, instead of FOLIOT_URL", .text = &cli_server},
};

static const struct cli_option *find(const struct cli_command *command, const char *name, size_t length)
{
    for (const struct cli_option *o = command->options; o && o->name; o++)
        if (strlen(o->name) == length && strncmp(o->name, name, length) == 0)
            return o;
    if (length == strlen(common_options->name) && strncmp(common_options->name, name, length) == 0)
        return common_options;
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

static int set_number(const struct cli_command *command, const struct cli_option *option, const char *text)
{
    uint64_t value;
    if (!parse_number(text, &value) || value < option->min || value > option->max) {
        fprintf(stderr,
                "foliot %s: invalid value '%s' for --%s: expected a whole number from %" PRIu64 " to %" PRIu64 "\n",
                command->name, text, option->name, option->min, option->max);
        return CLI_USAGE;
    }
    *option->value = value;
    return CLI_OK;
}

static int set(const struct cli_command *command, const struct cli_option *option, const char *text)
{
    if (option->value)
        return set_number(command, option, text);
    if (option->format && !option->format->check(text)) {
        fprintf(stderr, "foliot %s: invalid value '%s' for --%s: expected %s\n", command->name, text, option->name,
                option->format->what);
        return CLI_USAGE;
    }
    if (option->text) {
        *option->text = text;
        return CLI_OK;
    }
    if (option->texts->count == CLI_TEXTS)
        return cli_usage(command, "--%s may be given %d times at most;", option->name, CLI_TEXTS);
    option->texts->list[option->texts->count++] = text;
    return CLI_OK;
}

static int unknown(const struct cli_command *command, const char *argument)
{
    bool is_long = strncmp(argument, "--", 2) == 0;
    struct cli_meant meant = cli_meant(is_long ? argument + 2 : "");
    for (const struct cli_option *o = command->options; o && o->name; o++)
        cli_offer(&meant, o->name);
    cli_offer(&meant, common_options->name);
    fprintf(stderr, "foliot %s: unknown option '%s'; ", command->name, argument);
    if (meant.word)
        fprintf(stderr, "did you mean '--%s'? ", meant.word);
    fprintf(stderr, "see 'foliot %s --help'\n", command->name);
    return CLI_USAGE;
}

/* Reads the option argv[*at], and moves on to its value if that stands apart. */
static int take_option(const struct cli_command *command, char **argv, int *at)
{
    const char *name = argv[*at] + 2;
    size_t length = strcspn(name, "=");
    const struct cli_option *option = find(command, name, length);
    bool joined = name[length] == '=';
    if (!option)
        return unknown(command, argv[*at]);
    if (option->flag && joined)
        return cli_usage(command, "--%s takes no value;", option->name);
    if (option->flag) {
        *option->flag = true;
        return CLI_OK;
    }
    const char *value = joined ? name + length + 1 : argv[++*at];
    if (!value) {
        fprintf(stderr, "foliot %s: --%s needs a value: --%s %s.\n", command->name, option->name, option->name,
                option->value_name);
        return CLI_USAGE;
    }
    return set(command, option, value);
}

static int take_argument(const struct cli_command *command, const struct cli_argument **next, const char *text)
{
    if (!command->arguments)
        return unknown(command, text);
    if (!(*next)->name)
        return cli_usage(command, "unexpected argument '%s';", text);
    if (*text == '\0')
        return cli_usage(command, "%s must not be empty;", (*next)->name);
    *(*next)->text = text;
    (*next)++;
    return CLI_OK;
}

int cli_parse(const struct cli_command *command, int argc, char **argv)
{
    const struct cli_argument *next = command->arguments;
    bool only_arguments = false;
    for (int i = 0; i < argc; i++) {
        int status = CLI_OK;
        if (!only_arguments && strcmp(argv[i], "--") == 0)
            only_arguments = true;
        else if (!only_arguments && strncmp(argv[i], "--", 2) == 0)
            status = take_option(command, argv, &i);
        else if (!only_arguments && argv[i][0] == '-' && argv[i][1])
            status = unknown(command, argv[i]);
        else
            status = take_argument(command, &next, argv[i]);
        if (status != CLI_OK)
            return status;
    }
    if (next && next->name && !next->optional)
        return cli_usage(command, "%s is missing;", next->name);
    return CLI_OK;
}
