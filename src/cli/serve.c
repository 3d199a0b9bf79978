/* SPDX-License-Identifier: MIT */
/* `foliot serve`: the durable timer server. What it takes is read by src/server/config.c. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "http/http.h"
#include "server/server.h"

/* What is in the files of the certificate is only seen by reading them. */
static int check(const struct server_config *config)
{
    char message[256];
    http_tls *tls = NULL;
    if (config->tls_certificate &&
        http_tls_new(config->tls_certificate, config->tls_key, &tls, message, sizeof message) < 0) {
        fprintf(stderr, "foliot serve: cannot use the certificate: %s\n", message);
        return CLI_USAGE;
    }
    http_tls_free(tls);
    config_print(config, stdout);
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    struct server_config config;
    if (config_read(&config, argc, argv, environ, stderr) < 0)
        return CLI_USAGE;
    if (config.help)
        config_help(stdout);
    int status = config.help ? CLI_OK : config.check ? check(&config) : server_run(&config);
    config_free(&config);
    return status;
}

const struct cli_command serve_command = {
    .name = "serve",
    .summary = "runs the timer server",
    .run_with = run,
};
