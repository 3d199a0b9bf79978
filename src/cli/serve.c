/* SPDX-License-Identifier: MIT */
/* `foliot serve`: the durable timer server. What it takes is read by src/server/config.c. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "server/config.h"
#include "server/server.h"

static int run(int argc, char **argv)
{
    struct server_config config;
    if (config_read(&config, argc, argv, environ, stderr) < 0)
        return CLI_USAGE;
    if (config.help)
        config_help(stdout);
    else if (config.check)
        config_print(&config, stdout);
    int status = config.help || config.check ? CLI_OK : server_run(&config);
    config_free(&config);
    return status;
}

const struct cli_command serve_command = {
    .name = "serve",
    .summary = "keeps timers and calls you back when they are due, whatever crashes in between",
    .run_with = run,
};
