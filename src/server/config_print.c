/* SPDX-License-Identifier: MIT */
/* The settings for people: complaints, as a file, and as help. */

#include "server/config.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "server/settings.h"

void config_complain(struct reading *reading, const char *format, ...)
{
    va_list arguments;
    reading->wrong++;
    fputs("foliot serve: ", reading->errors);
    va_start(arguments, format);
    vfprintf(reading->errors, format, arguments);
    va_end(arguments);
    fputc('\n', reading->errors);
}

/* --- As a file --------------------------------------------------------------------------------------------------- */

enum { COMMENT_COLUMN = 44 };

static void print_origin(const struct server_config *config, const struct config_origin *origin, FILE *to)
{
    static const char *const words[] = {"default", "file", "environment", "option"};
    fprintf(to, " ; %s", words[origin->from]);
    if (origin->from == CONFIG_FILE)
        fprintf(to, " %s, line %u", config->file, origin->line);
}

static void print_setting(const struct server_config *config, const struct setting *setting, FILE *to)
{
    char *text = NULL;
    size_t size = 0;
    if (!setting_is_set(config, setting)) {
        fprintf(to, "; %s: %s\n", setting->name, setting->otherwise);
        return;
    }
    FILE *line = open_memstream(&text, &size); /* to know its width */
    if (line) {
        fprintf(line, "%s = ", setting->name);
        setting_write(config, setting, line);
        fclose(line);
    }
    fprintf(to, "%-*s", COMMENT_COLUMN, text ? text : "; out of memory");
    print_origin(config, &config->origins[setting - settings], to);
    fputc('\n', to);
    free(text);
}

static void print_token(const struct token *token, FILE *to)
{
    static const char *const rights[] = {"read", "write", "admin"};
    fprintf(to, "\n[token %s]\n; sha256: not shown\nnamespaces = ", token->name);
    if (!token->namespaces)
        fputs("*", to);
    for (char **name = token->namespaces; name && *name; name++)
        fprintf(to, "%s%s", name == token->namespaces ? "" : ", ", *name);
    fputs("\nrights = ", to);
    const char *separator = "";
    for (unsigned i = 0; i < 3; i++)
        if (token->rights & 1u << i) {
            fprintf(to, "%s%s", separator, rights[i]);
            separator = ", ";
        }
    fputc('\n', to);
}

void config_print(const struct server_config *config, FILE *to)
{
    for (size_t group = 0; group < GROUPS; group++) {
        fprintf(to, "%s[%s]\n", group == 0 ? "" : "\n", setting_groups[group].section);
        for (size_t i = 0; i < setting_count; i++)
            if (settings[i].group == group)
                print_setting(config, &settings[i], to);
    }
    for (size_t i = 0; i < config->tokens.count; i++)
        print_token(&config->tokens.list[i], to);
}

/* --- As help ----------------------------------------------------------------------------------------------------- */

enum { HELP_COLUMN = 32, HELP_WIDTH = 100 };

/* Words from a column on; `at` is where the line stands. */
static void print_words(const char *text, int *at, FILE *to)
{
    while (*text) {
        int size = (int)strcspn(text, " ");
        if (*at + 1 + size > HELP_WIDTH) {
            fprintf(to, "\n%*s", HELP_COLUMN, "");
            *at = HELP_COLUMN;
        }
        *at += fprintf(to, " %.*s", size, text);
        text += size;
        text += strspn(text, " ");
    }
}

static void print_option(const char *name, const char *value_name, const char *help, const char *initial, FILE *to)
{
    int at = fprintf(to, "  --%s%s%s", name, value_name ? " " : "", value_name ? value_name : "");
    if (at >= HELP_COLUMN) {
        fputc('\n', to);
        at = 0;
    }
    at += fprintf(to, "%*s", HELP_COLUMN - at, "");
    print_words(help, &at, to);
    if (initial) {
        char *text;
        if (asprintf(&text, "[%s]", initial) < 0)
            text = NULL;
        print_words(text ? text : "", &at, to);
        free(text);
    }
    fputc('\n', to);
}

void config_help(FILE *to)
{
    fputs("Usage: foliot serve [OPTION...]\n\n"
          "Runs the timer server. Every option is also a variable (--max-body: FOLIOT_MAX_BODY) and a key of the\n"
          "file (max-body = 1MiB); an option overrides a variable, and a variable overrides the file.\n\n",
          to);
    print_option("config", "FILE", "Read settings and tokens from this file; see foliot-serve(1).", NULL, to);
    print_option("check", NULL, "Report errors, or print the effective configuration, and exit.", NULL, to);
    print_option("help", NULL, "Print this help and exit.", NULL, to);
    for (size_t group = 0; group < GROUPS; group++) {
        fprintf(to, "\n%s:\n", setting_groups[group].title);
        for (size_t i = 0; i < setting_count; i++)
            if (settings[i].group == group)
                print_option(settings[i].name, settings[i].value_name, settings[i].help,
                             settings[i].initial ? settings[i].initial : settings[i].otherwise, to);
    }
    fputs("\nTIME is like 500ms, 90s, 1h30m or 7d. SIZE is in bytes, or like 64KiB or 1MiB.\n"
          "Options without a value also accept =yes or =no. --no-NAME is the same as --NAME=no.\n",
          to);
}
