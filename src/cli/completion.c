/* SPDX-License-Identifier: MIT */
/* `foliot completion`: completion for bash and zsh, made from the same tables as everything else about commands. */

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "server/server.h"

static const char *shell;

/* Calls `fn` for every command, and for those inside of it. */
static void each(void (*fn)(const struct cli_command *command))
{
    for (const struct cli_command *const *outer = cli_commands; *outer; outer++) {
        fn(*outer);
        for (const struct cli_command *const *inner = (*outer)->commands; inner && *inner; inner++)
            fn(*inner);
    }
}

static const char *last_word(const char *name)
{
    const char *space = strrchr(name, ' ');
    return space ? space + 1 : name;
}

/* --- bash --------------------------------------------------------------------------------------------------------- */

static void bash_words(const struct cli_command *command)
{
    printf("    '%s') words='", command->name);
    for (const struct cli_command *const *c = command->commands; c && *c; c++)
        printf("%s ", last_word((*c)->name));
    for (const struct cli_option *o = command->options; o && o->name; o++)
        printf("--%s ", o->name);
    if (command == &serve_command)
        fputs("--config --check ", stdout);
    struct config_option option;
    for (size_t i = 0; command == &serve_command && config_option(i, &option); i++)
        printf("--%s ", option.name);
    puts("--help' ;;");
}

static void bash(void)
{
    fputs("# bash completion for foliot\n"
          "_foliot() {\n"
          "  local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=\n"
          "  if ((COMP_CWORD == 1)); then\n"
          "    words='",
          stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        printf("%s ", (*c)->name);
    fputs("help --help --version'\n"
          "  else\n"
          "    case $command in\n",
          stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        if ((*c)->commands)
            printf("    %s) ((COMP_CWORD > 2)) && command+=\" ${COMP_WORDS[2]}\" ;;\n", (*c)->name);
    fputs("    esac\n"
          "    case $command in\n",
          stdout);
    each(bash_words);
    fputs("    esac\n"
          "  fi\n"
          "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
          "}\n"
          "complete -o default -F _foliot foliot\n",
          stdout);
}

/* --- zsh ---------------------------------------------------------------------------------------------------------- */

/* Inside of '…[…]': what has a meaning there is taken away or escaped. */
static void zsh_text(const char *text)
{
    for (; *text; text++) {
        if (strchr("[]:\\", *text))
            putchar('\\');
        if (*text == '\'')
            fputs("'\\'", stdout);
        putchar(*text);
    }
}

static void zsh_option(const char *name, const char *help, const char *value, bool repeats)
{
    printf(" \\\n      '%s--%s[", repeats ? "*" : "", name);
    zsh_text(help);
    putchar(']');
    if (value && *value) {
        putchar(':');
        zsh_text(value);
        fputs(":_files", stdout);
    }
    putchar('\'');
}

static void zsh_list(const struct cli_command *const *table)
{
    for (; *table; table++) {
        printf("      '%s:", last_word((*table)->name));
        zsh_text((*table)->summary);
        puts("'");
    }
}

static void zsh_case(const struct cli_command *command)
{
    printf("  '%s')\n", command->name);
    if (command->commands) {
        puts("    commands=(");
        zsh_list(command->commands);
        puts("    )\n    _describe command commands ;;");
        return;
    }
    fputs("    _arguments '--help[print this help]'", stdout);
    for (const struct cli_option *o = command->options; o && o->name; o++)
        zsh_option(o->name, o->help, o->flag ? NULL : o->value_name, o->texts);
    if (command == &serve_command)
        fputs(" '--config[read settings from this file]:FILE:_files' '--check[check the configuration and exit]'",
              stdout);
    struct config_option option;
    for (size_t i = 0; command == &serve_command && config_option(i, &option); i++)
        zsh_option(option.name, option.help, option.value_name, false);
    puts(" '*:: :_files' ;;");
}

static void zsh(void)
{
    fputs("#compdef foliot\n"
          "_foliot() {\n"
          "  local -a commands\n"
          "  if ((CURRENT == 2)); then\n"
          "    commands=(\n",
          stdout);
    zsh_list(cli_commands);
    fputs("      'help:prints this help, or the help of a command'\n"
          "    )\n"
          "    _describe command commands\n"
          "    return\n"
          "  fi\n"
          "  local command=$words[2] depth=1\n"
          "  case $command in\n",
          stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        if ((*c)->commands)
            printf("  %s) ((CURRENT > 3)) && command+=\" $words[3]\" depth=2 ;;\n", (*c)->name);
    fputs("  esac\n"
          "  shift $depth words\n"
          "  ((CURRENT -= depth))\n"
          "  case $command in\n",
          stdout);
    each(zsh_case);
    fputs("  esac\n"
          "}\n"
          "_foliot \"$@\"\n",
          stdout);
}

static int run(void)
{
    if (strcmp(shell, "bash") == 0)
        bash();
    else if (strcmp(shell, "zsh") == 0)
        zsh();
    else
        return cli_usage(&completion_command, "unknown shell '%s'; expected bash or zsh;", shell);
    return CLI_OK;
}

static const struct cli_argument arguments[] = {{"SHELL", "bash or zsh", &shell, false}, {0}};

const struct cli_command completion_command = {
    .name = "completion",
    .summary = "prints the completion script for a shell",
    .arguments = arguments,
    .notes = "Packages install the script. Otherwise, run this in bash: source <(foliot completion bash)",
    .run = run,
};
