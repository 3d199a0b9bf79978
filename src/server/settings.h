/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_SETTINGS_H
#define FOLIOT_SERVER_SETTINGS_H

/* The table of settings, and what a value of each kind looks like. Private to config*.c and their tests. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "server/config.h"

enum setting_group { GROUP_SERVER, GROUP_ENGINE, GROUP_WEBHOOKS, GROUP_LIMITS, GROUPS };

extern const struct group {
    const char *section, *title;
} setting_groups[GROUPS];

enum setting_kind {
    SETTING_TEXT,      /* char *, of at most `max` bytes */
    SETTING_URL,       /* char *, beginning with one of `choices` */
    SETTING_FLAG,      /* bool */
    SETTING_NUMBER,    /* uint32_t or uint64_t, as all of the following */
    SETTING_SIZE,      /* bytes; with KiB, MiB, GiB */
    SETTING_DURATION,  /* in microseconds */
    SETTING_FACTOR,    /* in thousandths */
    SETTING_CHOICE,    /* an enum whose values are the places in `choices` */
    SETTING_ADDRESSES, /* char *, HOST:PORT with commas between them; repeating it adds to it */
    SETTING_HOSTS,     /* char *, names without ports, the same */
};

struct setting {
    const char *name;
    enum setting_group group;
    enum setting_kind kind;
    size_t offset, size; /* of the member of struct server_config */
    uint64_t min, max;
    bool none;             /* "none" is allowed, and 0 means the same */
    bool reload;           /* may change while the server runs */
    const char *initial;   /* the default, as a value; NULL: not set, */
    const char *otherwise; /* which means this */
    const char *const *choices;
    const char *value_name, *help;
};

extern const struct setting settings[];
extern const size_t setting_count;

const struct setting *setting_find(const char *name, size_t size);

/* The known name that `name` was most likely meant to be, or NULL. Among options there are some that are no settings. */
const char *setting_nearest(const char *name, size_t size, bool option);

/* Whether it is a list, to which repeating it adds. */
bool setting_is_list(const struct setting *setting);

/* Gives a setting the value that `text` says. Returns 0, FL_INVALID_ARGUMENT if it is not allowed, or FL_NO_MEMORY. */
int setting_set(struct server_config *config, const struct setting *setting, const char *text);

/* Says what is allowed: "a whole number from 1 to 65536". */
void setting_allowed(const struct setting *setting, FILE *to);

/* Whether it has a value, and the value as setting_set() takes it; passwords are shown as "***". */
bool setting_is_set(const struct server_config *config, const struct setting *setting);
void setting_write(const struct server_config *config, const struct setting *setting, FILE *to);

/* Whether two configurations have the same value, and making it so: 0 or FL_NO_MEMORY. */
bool setting_equal(const struct server_config *a, const struct server_config *b, const struct setting *setting);
int setting_copy(struct server_config *to, const struct server_config *from, const struct setting *setting);

/* Resolves the addresses of config->listen. Returns 0; FL_NO_MEMORY; FL_INVALID_ARGUMENT: `message` says why. */
int config_resolve(struct server_config *config, char *message, size_t size);

/* Whether an address can be reached from this machine only. */
bool config_is_loopback(const struct sockaddr *address);

/* What is being read, and how many things were wrong. */
struct reading {
    struct server_config *config;
    FILE *errors;
    unsigned wrong;
    uint64_t refused;    /* settings with a value that is not allowed, a bit each */
    bool tokens_unknown; /* since the file could not be read */
};

_Static_assert(CONFIG_SETTINGS <= 64, "there is a bit for each setting");

void config_complain(struct reading *reading, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Takes a value, or complains about it. */
void config_take(struct reading *reading, const struct setting *setting, const char *value,
                 struct config_origin origin);

/* Reads the file config->file. */
void config_read_file(struct reading *reading);

void tokens_free(struct tokens *tokens);

#endif
