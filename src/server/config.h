/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_CONFIG_H
#define FOLIOT_SERVER_CONFIG_H

/* What `foliot serve` is told: by options, by the environment (FOLIOT_…), by a file, in that order of precedence. One table
 * (config.c) has for each setting its name, its kind, its limits and its help: the flag `--max-body`, the variable
 * FOLIOT_MAX_BODY and the key `max-body` are the same setting. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <foliot/engine.h>

#include "server/log.h"
#include "server/tokens.h"

struct server_config {
    char *listen;     /* "HOST:PORT[,HOST:PORT…]"; "127.0.0.1:7411" */
    char *store;      /* URL; "sqlite:foliot-data" */
    uint32_t shards;  /* 0: as the store has, or its default */
    uint32_t workers; /* 0: one a processor */
    char *owner;      /* who claims the shards; NULL: host name and process */
    bool allow_private_targets;
    bool test_clock;
    char *tls_certificate, *tls_key;
    struct tokens tokens;
    enum log_level log_level;
    bool log_json;
    /* The engine's (foliot/engine.h), by the same names: strategy, lease, record-interval, max-memory-timers, max-in-flight,
     * preload, delete-interval, lookahead, load-interval, load-batch, delete-batch, catch-up-rate, skip-older, retry-… */
    fl_engine_config engine;
    /* Limits. */
    uint32_t max_connections, max_head, max_url;
    uint64_t max_body, max_payload;
    uint64_t max_timers_per_namespace; /* 0: none */
    uint32_t max_request_rate;         /* a second and client address; 0: none */
    uint64_t idle_timeout_us, body_timeout_us, stop_timeout_us;
    /* Webhooks. */
    uint32_t webhook_concurrency, webhook_per_host;
    uint64_t webhook_timeout_us;
};

/* Reads everything. Returns 0, or -1 after having written to `errors`, a line each, the name of the option, the value and
 * what is allowed. */
int config_read(struct server_config *config, int argc, char **argv, char **environment, FILE *errors);

/* Reads again what may change while the server runs: tokens, certificate paths, log level and format. */
int config_reload(struct server_config *config, FILE *errors);

/* The effective configuration as a file that would have this effect; secrets are not in it. */
void config_print(const struct server_config *config, FILE *to);
void config_help(FILE *to);
void config_free(struct server_config *config);

#endif
