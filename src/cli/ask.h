/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CLI_ASK_H
#define FOLIOT_CLI_ASK_H

/* What most commands do: ask the server once and show its answer, or list what it has page by page. */

#include "cli/pages.h"
#include "cli/show.h"

struct ask {
    const struct cli_command *command;
    const char *method;              /* NULL: GET */
    const char *path[4];             /* "/v1/timers", namespace, name: up to the first NULL */
    void (*query)(struct out *path); /* adds parameters; NULL: there are none */
    int (*body)(const struct client *client, struct out *body); /* NULL: the request has none */
    const char *header;                                         /* one more, or NULL */
    bool as_json;                                               /* show the answer as it came */
    int (*show)(struct json answer);                            /* otherwise this; NULL: a line per member */
};

/* Returns an exit status. */
int ask_and_show(const struct ask *ask);

struct ask_list {
    const struct cli_command *command;
    const char *path[4];
    const char *member;              /* of the answer, which has the list; NULL: "timers" */
    const struct filter *filter;     /* or NULL */
    void (*query)(struct out *path); /* adds parameters; NULL: there are none */
    uint64_t limit;                  /* 0: all */
    bool as_json;                    /* one object per line */
    struct {
        const char *head, *member;
        const char *inside; /* which member of the row has it; NULL: the row itself */
    } columns[TABLE_COLUMNS + 1];
    const char *none; /* what to say on a terminal if there is nothing */
};

/* Returns an exit status. */
int ask_and_list(const struct ask_list *ask);

#endif
