/* SPDX-License-Identifier: MIT */
/* The `foliot` command: finds the command asked for in a table, reads its options, runs it. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <foliot/version.h>

#include "cli/cli.h"

const struct cli_command *const cli_commands[] = {
#ifdef FOLIOT_SERVER
    &serve_command,
    &add_command,
    &get_command,
    &list_command,
    &update_command,
    &cancel_command,
    &watch_command,
    &lease_command,
    &ack_command,
    &dead_command,
    &namespace_command,
    &hosts_command,
    &pause_command,
    &resume_command,
    &schedule_command,
    &history_command,
    &clock_command,
    &stats_command,
    &cluster_command,
    &export_command,
    &import_command,
    &doctor_command,
    &bench_command,
#endif
    &demo_command,
    &js_command,
#ifdef FOLIOT_SERVER
    &completion_command,
    &version_command,
#endif
    NULL,
};

static const char *last_word(const char *name)
{
    const char *space = strrchr(name, ' ');
    return space ? space + 1 : name;
}

const struct cli_command *cli_find(const struct cli_command *const *table, const char *name)
{
    for (; *table; table++)
        if (strcmp(last_word((*table)->name), name) == 0)
            return *table;
    return NULL;
}

/* --- Help --------------------------------------------------------------------------------------------------------- */

static void print_table(const struct cli_command *const *table, FILE *to)
{
    for (; *table; table++)
        fprintf(to, "  %-10s %s\n", last_word((*table)->name), (*table)->summary);
}

static void print_help(FILE *to)
{
    fputs("Usage: foliot COMMAND [OPTION...]\n\nCommands:\n", to);
    print_table(cli_commands, to);
    fputs("  help       prints this help, or the help of a command\n\n"
          "Options:\n"
          "  --help        print this help\n"
          "  --version     print the version\n"
          "  --server URL  the server to talk to, before or after the command; default: FOLIOT_URL, or\n"
          "                http://127.0.0.1:7411 if that is not set\n\n"
          "Set FOLIOT_TOKEN if the server needs a token. `man foliot` lists exit statuses and examples.\n",
          to);
}

static void print_option(const struct cli_option *o)
{
    char usage[64];
    snprintf(usage, sizeof usage, "--%s%s%s", o->name, o->flag ? "" : " ", o->flag ? "" : o->value_name);
    printf("  %-22s %s", usage, o->help);
    if (o->value && *o->value >= o->min && *o->value <= o->max)
        printf(" (%" PRIu64 " to %" PRIu64 "; default: %" PRIu64 ")", o->min, o->max, *o->value);
    putchar('\n');
}

static void print_command_help(const struct cli_command *command)
{
    printf("Usage: foliot %s [OPTION...]", command->name);
    for (const struct cli_argument *a = command->arguments; a && a->name; a++)
        printf(a->optional ? " [%s]" : " %s", a->name);
    printf("\n\nfoliot %s %s.\n", command->name, command->summary);
    if (command->arguments)
        fputs("\nArguments:\n", stdout);
    for (const struct cli_argument *a = command->arguments; a && a->name; a++)
        printf("  %-22s %s\n", a->name, a->help);
    fputs("\nOptions:\n", stdout);
    for (const struct cli_option *o = command->options; o && o->name; o++)
        print_option(o);
    printf("  %-22s %s\n", "--help", "print this help");
    if (command->notes)
        printf("\n%s\n", command->notes);
}

static void print_commands_help(const struct cli_command *command, FILE *to)
{
    fprintf(to, "Usage: foliot %s COMMAND [OPTION...]\n\nfoliot %s %s.\n\nCommands:\n", command->name, command->name,
            command->summary);
    print_table(command->commands, to);
}

static int help_of(const struct cli_command *command)
{
    if (command->run_with)
        return command->run_with(1, (char *[]){"--help", NULL});
    if (command->commands)
        print_commands_help(command, stdout);
    else
        print_command_help(command);
    return CLI_OK;
}

/* --- Finding and running ------------------------------------------------------------------------------------------ */

static int no_such_command(const struct cli_command *within, const char *name)
{
    const char *space = within ? " " : "", *outer = within ? within->name : "";
    struct cli_meant meant = cli_meant(name);
    for (const struct cli_command *const *table = within ? within->commands : cli_commands; *table; table++)
        cli_offer(&meant, last_word((*table)->name));
    fprintf(stderr, "foliot%s%s: unknown command '%s'; ", space, outer, name);
    if (meant.word)
        fprintf(stderr, "did you mean 'foliot%s%s %s'? ", space, outer, meant.word);
    fprintf(stderr, "'foliot help%s%s' lists the commands\n", space, outer);
    return CLI_USAGE;
}

static int no_such_option(const char *name)
{
    struct cli_meant meant = cli_meant(name);
    cli_offer(&meant, "--help");
    cli_offer(&meant, "--server");
    cli_offer(&meant, "--version");
    fprintf(stderr, "foliot: unknown option '%s'; ", name);
    if (meant.word)
        fprintf(stderr, "did you mean '%s'? ", meant.word);
    fputs("'foliot help' lists the options\n", stderr);
    return CLI_USAGE;
}

static int help(int argc, char **argv)
{
    const struct cli_command *command = NULL;
    for (int i = 0; i < argc; i++) {
        const struct cli_command *within = command;
        if (within && !within->commands)
            break;
        command = cli_find(within ? within->commands : cli_commands, argv[i]);
        if (!command)
            return no_such_command(within, argv[i]);
    }
    if (command)
        return help_of(command);
    print_help(stdout);
    return CLI_OK;
}

static bool is_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (is_help(argv[i]))
            return true;
    return false;
}

static int run_command(const struct cli_command *command, int argc, char **argv)
{
    while (command->commands && argc > 0 && !is_help(argv[0])) {
        const struct cli_command *inner = cli_find(command->commands, argv[0]);
        if (!inner)
            return no_such_command(command, argv[0]);
        command = inner;
        argc--;
        argv++;
    }
    if (command->run_with)
        return command->run_with(argc, argv);
    if (asks_for_help(argc, argv))
        return help_of(command);
    if (command->commands) {
        print_commands_help(command, stderr);
        return CLI_USAGE;
    }
    int status = cli_parse(command, argc, argv);
    return status == CLI_OK ? command->run() : status;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    static const char server[] = "--server=";
    bool apart = strcmp(argv[1], "--server") == 0;
    if (apart && argc < 4) {
        fputs("foliot: --server needs a value and a command: foliot --server URL COMMAND\n", stderr);
        return CLI_USAGE;
    }
    if (apart || (argc > 2 && strncmp(argv[1], server, sizeof server - 1) == 0)) {
        cli_server = apart ? argv[2] : argv[1] + sizeof server - 1;
        argc -= 1 + apart;
        argv += 1 + apart;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        puts("foliot " FL_VERSION);
        return CLI_OK;
    }
    if (strcmp(name, "help") == 0 || is_help(name))
        return help(argc - 2, argv + 2);
    if (*name == '-')
        return no_such_option(name);
    const struct cli_command *command = cli_find(cli_commands, name);
    return command ? run_command(command, argc - 2, argv + 2) : no_such_command(NULL, name);
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
