/* SPDX-License-Identifier: MIT */
/* `foliot js`: becomes `foliot-js`, which is a program of its own so that nothing else loads a JavaScript engine.
 *
 * It is looked for beside this program, then where it was to be installed, then in PATH. */

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define PROGRAM "foliot-js"

/* The path of PROGRAM beside this program; false if that is not known. */
static bool beside_this(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    if (length <= 0)
        return false;
    path[length] = '\0';
    char *name = strrchr(path, '/') + 1;
    if (size - (size_t)(name - path) < sizeof PROGRAM)
        return false;
    memcpy(name, PROGRAM, sizeof PROGRAM);
    return true;
}

static int run(int argc, char **argv)
{
    char path[4096];
    char **arguments = malloc(((size_t)argc + 2) * sizeof *arguments);
    if (!arguments) {
        perror("foliot js");
        return CLI_FAILED;
    }
    arguments[0] = PROGRAM;
    memcpy(arguments + 1, argv, ((size_t)argc + 1) * sizeof *argv); /* NULL ends both */
    if (beside_this(path, sizeof path))
        execv(path, arguments);
    execv(FOLIOT_LIBEXECDIR "/" PROGRAM, arguments);
    execv(FOLIOT_BINDIR "/" PROGRAM, arguments);
    execvp(PROGRAM, arguments);
    int reason = errno;
    free(arguments);
    if (reason == ENOENT)
        fputs(
            "foliot js: " PROGRAM
            " is not installed; install JavaScriptCore (Debian: libjavascriptcoregtk-4.1-dev) and build Foliot again\n",
            stderr);
    else
        fprintf(stderr, "foliot js: cannot run " PROGRAM ": %s\n", strerror(reason));
    return CLI_FAILED;
}

const struct cli_command js_command = {
    .name = "js",
    .summary = "runs a script with the browser's timers",
    .run_with = run,
};
