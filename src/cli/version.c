/* SPDX-License-Identifier: MIT */
/* `foliot version`: that of this command and that of the server. */

#include <stdio.h>

#include <foliot/version.h>

#include "cli/client.h"

static int run(void)
{
    struct client client;
    puts("foliot " FL_VERSION);
    int status = client_prepare(&client, &version_command);
    if (status != CLI_OK)
        return status;
    client.quiet = true;
    if (client_ask_version(&client) == CLI_OK)
        printf("server %s at %s\n", client.version.data, client.url);
    else
        printf("server does not respond at %s\n", client.url);
    client_close(&client);
    return CLI_OK;
}

const struct cli_command version_command = {
    .name = "version",
    .summary = "prints the version of the command and of the server",
    .run = run,
};
