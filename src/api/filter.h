/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_API_FILTER_H
#define FOLIOT_API_FILTER_H

#include "api/internal.h"
#include "webhook/webhook.h"

enum { FILTER_HOST = WEBHOOK_HOST_TEXT };

/* What a listing points to, and what the engine does not compare. */
struct filter {
    fl_bytes reason; /* size 0: any */
    bool by_host;
    fl_bytes host; /* size 0: without a target */
    char name_contains[FL_STORE_NAME_MAX], schedule[FL_STORE_NAME_MAX], target_prefix[4096];
    char reason_contains[1024], reason_room[1024], host_room[FILTER_HOST];
};

/* Reads the parameters of the query into both. Returns 0, or -1 and the problem. */
int filter_read(struct call *call, struct filter *filter, fl_listing *listing);
bool filter_is_empty(const struct filter *filter, const fl_listing *listing);
/* Whether it may read many that do not match: no store finds them by this. */
bool filter_searches(const struct filter *filter, const fl_listing *listing);
/* Whether it matches, of those that the engine has found. */
bool filter_takes(const struct filter *filter, const fl_op *found);
/* HOST:PORT of a target; size 0: there is none. */
fl_bytes filter_host(fl_bytes url, char room[FILTER_HOST]);

#endif
