/* SPDX-License-Identifier: MIT */
/* The `foliot-js` command, which `foliot js` runs: a script on JavaScriptCore and the loop. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <foliot/version.h>

#include "js/js.h"
#include "js/text.h"

enum { OK = 0, FAILED = 1, USAGE = 2 }; /* exit statuses, as those of foliot */

static const char help[] = "Usage: foliot js FILE [ARGUMENT...]\n"
                           "       foliot js - [ARGUMENT...]\n"
                           "       foliot js -e CODE [ARGUMENT...]\n"
                           "\n"
                           "Runs a script with the timers of a browser. Ends when no timer is left.\n"
                           "\n"
                           "Options:\n"
                           "  -          read the script from standard input\n"
                           "  -e CODE    run CODE\n"
                           "  --help     print this help\n"
                           "  --version  print the version\n";

/* What to run, in the words of the command line. */
struct command {
    const char *name; /* of the script, in messages */
    const char *code; /* the script; NULL: it is in a file, or on standard input */
    const char *file; /* NULL: standard input */
    int argument_count;
    char **arguments;
};

static int usage(const char *what, const char *argument)
{
    fprintf(stderr, "foliot js: %s%s; see 'foliot js --help'\n", what, argument);
    return USAGE;
}

/* Options come before the script: what follows it is the script's. */
static int parse(int argc, char **argv, struct command *ret)
{
    if (argc < 2)
        return usage("no script; give FILE, - for standard input, or -e CODE", "");
    int rest = 2;
    if (strcmp(argv[1], "-e") == 0) {
        if (argc < 3)
            return usage("-e needs a value: -e CODE", "");
        ret->name = argv[1];
        ret->code = argv[rest++];
    } else if (strcmp(argv[1], "--") == 0) {
        if (argc < 3)
            return usage("no FILE after --", "");
        ret->name = ret->file = argv[rest++];
    } else if (strcmp(argv[1], "-") == 0) {
        ret->name = "standard input";
    } else if (argv[1][0] == '-') {
        return usage("unknown option ", argv[1]);
    } else {
        ret->name = ret->file = argv[1];
    }
    ret->argument_count = argc - rest;
    ret->arguments = argv + rest;
    return OK;
}

static int read_script(const struct command *command, JSStringRef *ret)
{
    if (command->code) {
        *ret = text_from_utf8(command->code, strlen(command->code));
        return *ret ? OK : FAILED;
    }
    int r = host_read(command->file, ret);
    if (r == 0)
        return OK;
    fprintf(stderr, "foliot js: cannot read %s: %s\n", command->name, strerror(r));
    return FAILED;
}

static int run(const struct command *command)
{
    JSStringRef source;
    int status = read_script(command, &source);
    if (status != OK)
        return status;
    JSStringRef name = text_from_utf8(command->name, strlen(command->name));
    int r = host_begin(name, source, command->argument_count, command->arguments);
    if (r < 0) {
        fprintf(stderr, "foliot js: cannot start: %s\n", fl_strerror(r));
        return FAILED;
    }
    return host_run(name, source);
}

/* A standard descriptor that the caller has closed must not become one of the loop's or the engine's, which scripts would
 * read and write. What takes its place can be neither read nor written, as before. */
static void occupy_closed(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
            exit(FAILED); /* nobody can be told */
}

int main(int argc, char **argv)
{
    occupy_closed();
    struct command command = {.name = ""};
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help, stdout);
        host_exit(OK);
    }
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)) {
        puts("foliot-js " FL_VERSION);
        host_exit(OK);
    }
    int status = parse(argc, argv, &command);
    host_exit(status == OK ? run(&command) : status);
}
