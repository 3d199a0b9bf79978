/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_SERVER_H
#define FOLIOT_SERVER_SERVER_H

/* `foliot serve`: start, stop, signals, configuration. It makes the node and the API and connects the node's ports with
 * webhooks, links and HTTP. This folder may use base, loop, runtime, store, engine, text, http, webhook, peer, node and api.
 *
 *   server.c     the life of the server: store, workers, listening, signals
 *   stop.c       stopping, step by step
 *   steps.c      a step that every worker takes
 *   ports.c      the node's ports
 *   listen.c     addresses
 *   config.c, config_file.c, config_listen.c, config_print.c, settings.c, settings_value.c   the configuration (config.h)
 *   hello.c      commands to try, for users who start a server for the first time
 *   notify.c     tells systemd
 *
 * Threads: the main thread makes everything, then waits for signals. The workers do the rest. */

#include "server/config.h"

int server_run(struct server_config *config); /* until SIGTERM; returns an exit status */

#endif
