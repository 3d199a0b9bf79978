/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_CONFIG_H
#define FOLIOT_SERVER_CONFIG_H

/* What `foliot serve` is told: by options, by the environment (FOLIOT_…), by a file, in that order of precedence. One table
 * (settings.c) has for each setting its name, its kind, its limits and its help: the flag `--max-body`, the variable
 * FOLIOT_MAX_BODY and the key `max-body` are the same setting. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

#include <foliot/engine.h>

#include "api/api.h"
#include "text/log.h"

/* One address to listen on, resolved. */
struct config_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    socklen_t size;
};

/* Where the value of a setting is from. */
struct config_origin {
    enum config_from { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_ENVIRONMENT, CONFIG_OPTION } from;
    unsigned line; /* of the file */
};

enum { CONFIG_SETTINGS = 64 }; /* at most */

/* After config_read() every member has its value; where 0 or NULL means something, it is said here. */
struct server_config {
    char *listen; /* "HOST:PORT[,HOST:PORT…]" */
    struct config_address *addresses;
    size_t address_count;
    bool loopback_only; /* all of them are */
    char *store;        /* URL; it may have a password in it */
    uint32_t shards;    /* 0: as the store has, or its default */
    uint32_t workers;   /* 0: one per processor */
    char *owner;        /* the name under which the server claims shards; NULL: host name and process */
    char *advertise;    /* where other servers of the store reach this one: "HOST:PORT"; NULL: no other servers */
    char *allowed_host; /* names that the Host header may have, "NAME[,NAME...]"; NULL: only loopback ones */
    bool allow_private_targets;
    bool echo;  /* the built-in target /echo */
    bool ui;    /* the dashboard */
    bool hello; /* show what can be tried, and a first callback */
    bool test_clock;
    char *tls_certificate, *tls_key; /* both, or NULL */
    struct tokens tokens;
    enum log_level log_level;
    enum log_format log_format;
    /* The engine's (foliot/engine.h), by the same names: all that have a number or a duration, with the defaults filled in.
     * What is not a setting is zero. */
    fl_engine_config engine;
    /* Limits. */
    uint32_t max_connections, max_head, max_url;
    uint64_t max_body;
    uint64_t max_memory;
    uint64_t event_buffer;             /* bytes */
    uint64_t max_payload;              /* engine.max_payload has room for the mark of bytes that are no JSON */
    uint64_t max_timers_per_namespace; /* 0: none */
    uint32_t max_request_rate;         /* per second and client address; 0: no limit */
    uint64_t head_timeout_us, body_timeout_us, idle_timeout_us, stop_timeout_us;
    /* Webhooks. */
    uint32_t webhook_concurrency, webhook_per_host;
    uint64_t webhook_timeout_us;
    /* Asked for by options of these names, which are no settings: then nothing is to be started. With --help, nothing else
     * has been looked at. */
    bool check, help;
    /* The reader's. */
    char *file;
    struct config_origin origins[CONFIG_SETTINGS];
    int argc;
    char **argv, **environment;
};

/* Reads everything: the arguments behind `serve`, the environment (such as `environ`) and the file they name. Returns 0, or
 * -1 after having written to `errors`, a line for each that is wrong, the name of the option, the value and what is allowed;
 * then there is nothing to free. The arguments and the environment must stay for config_reload(). */
int config_read(struct server_config *config, int argc, char **argv, char **environment, FILE *errors);

/* Reads again what may change while the server runs: tokens, certificate paths, log level and format. They are in `ret`,
 * with everything else as it was; `config` is not touched, since others may be using it. Returns as config_read() does: on
 * failure `ret` is untouched, and the server goes on with what it has. If it succeeds, what is written to `errors` is what
 * has changed and takes a restart. */
int config_reload(const struct server_config *config, struct server_config *ret, FILE *errors);

/* The effective configuration as a file that would have this effect; secrets are not in it. */
void config_print(const struct server_config *config, FILE *to);
void config_help(FILE *to);
void config_free(struct server_config *config);

/* A value for people to see: what may be a password is not in it. */
void setting_write_masked(const char *text, FILE *to);

/* The option of a setting, for shell completion. False: there are fewer. */
struct config_option {
    const char *name, *help;
    const char *value_name; /* NULL: it is a flag */
};
bool config_option(size_t index, struct config_option *ret);

#endif
