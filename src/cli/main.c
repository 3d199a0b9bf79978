/* SPDX-License-Identifier: MIT */
/* The `foliot` command: finds the command asked for in a table, reads its options, runs it. */

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const struct cli_command *const commands[] = {
#ifdef FOLIOT_SERVER
    &serve_command,
#endif
    &demo_command, &js_command, NULL};

static const struct cli_command *find_command(const char *name)
{
    for (const struct cli_command *const *c = commands; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

static void print_help(FILE *to)
{
    fputs("Usage: foliot COMMAND [OPTION...]\n\nCommands:\n", to);
    for (const struct cli_command *const *c = commands; *c; c++)
        fprintf(to, "  %-8s %s\n", (*c)->name, (*c)->summary);
    fputs("  help     says this, or with the name of a command what it takes\n\n"
          "Options:\n"
          "  --help     says this\n"
          "  --version  says which version this is\n",
          to);
}

static void print_command_help(const struct cli_command *command)
{
    printf("Usage: foliot %s [OPTION...]\n\nfoliot %s %s.\n\nOptions:\n", command->name, command->name,
           command->summary);
    for (const struct cli_option *o = command->options; o->name; o++) {
        char usage[64];
        snprintf(usage, sizeof usage, "--%s %s", o->name, o->value_name);
        printf("  %-12s %s (%" PRIu64 " to %" PRIu64 "; %" PRIu64 " if not given)\n", usage, o->help, o->min, o->max,
               *o->value);
    }
    printf("  %-12s %s\n", "--help", "says this");
}

static int no_such_command(const char *name)
{
    fprintf(stderr, "foliot: there is no command '%s'. 'foliot help' lists those there are.\n", name);
    return CLI_USAGE;
}

static int help(int argc, char **argv)
{
    if (argc == 0) {
        print_help(stdout);
        return CLI_OK;
    }
    const struct cli_command *command = find_command(argv[0]);
    if (!command)
        return no_such_command(argv[0]);
    if (command->run_with)
        return command->run_with(1, (char *[]){"--help", NULL});
    print_command_help(command);
    return CLI_OK;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        puts("foliot " FOLIOT_VERSION);
        return CLI_OK;
    }
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help(argc - 2, argv + 2);
    const struct cli_command *command = find_command(name);
    if (!command)
        return no_such_command(name);
    if (command->run_with)
        return command->run_with(argc - 2, argv + 2);
    if (asks_for_help(argc - 2, argv + 2))
        return help(1, argv + 1);
    int status = cli_parse(command, argc - 2, argv + 2);
    return status == CLI_OK ? command->run() : status;
}

int main(int argc, char **argv)
{
    int status = run(argc, argv);
    /* A full disk or a closed descriptor is noticed only when the buffer is written out. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("foliot: cannot write to standard output");
        return CLI_FAILED;
    }
    return status;
}
