/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_TIMER_H
#define FOLIOT_SERVER_TIMER_H

/* A timer as JSON: what users send and what they get. */

#include <foliot/engine.h>

#include "text/json.h"
#include "text/out.h"
#include "text/problem.h"
#include "webhook/webhook.h"

/* Memory for what cannot be used where it lies; given back all at once. */
struct scratch {
    struct scratch_block *first;
};
void *scratch_take(struct scratch *scratch, size_t size); /* NULL: there is none */
void scratch_free(struct scratch *scratch);

/* Which members a JSON object had. */
enum {
    GAVE_DUE = 1,
    GAVE_AFTER = 2,
    GAVE_TARGET = 4,
    GAVE_PAYLOAD = 8,
    GAVE_PAYLOAD_BASE64 = 16,
    GAVE_HEADERS = 32,
    GAVE_TIMEOUT = 64,
    GAVE_RETRY = 128,
    GAVE_OP = 256,
    GAVE_NAMESPACE = 512,
    GAVE_NAME = 1024,
    GAVE_ID = 2048,
    GAVE_ONLY_NEW = 4096,
    GAVE_MAX_WAIT = 8192,
    GAVE_MERGE = 16384,
    GAVE_CONTENT = 255,
    GAVE_TIMER = GAVE_CONTENT | GAVE_MAX_WAIT | GAVE_MERGE, /* all that a timer may have */
};

#define TIMER_OPS "\"create\", \"update\", \"cancel\", \"schedule\" or \"unschedule\"" /* of a line of a batch */

struct timer_rules {
    unsigned allowed; /* GAVE_… */
    int64_t now_us;
    bool allow_private; /* targets */
    webhook_urls own;   /* targets that are allowed all the same */
    size_t max_payload;
    const struct zones *zones; /* for civil time */
};

/* What was sent. Its bytes are in the text, or in the scratch. */
struct timer_in {
    unsigned given;
    fl_durable timer;
    enum { TIMER_CREATE, TIMER_UPDATE, TIMER_CANCEL } op;
    bool only_new;
    fl_bytes id;
};

/* Returns 0, or -1 and the problem. */
int timer_read(struct json object, const struct timer_rules *rules, struct scratch *scratch, struct timer_in *ret,
               struct problem *problem);

/* Reads one member of those in GAVE_CONTENT that are not times. Returns 1; 0: it is none of them; -1 and the problem. */
int timer_read_content(struct json key, struct json value, const struct timer_rules *rules, struct scratch *scratch,
                       struct timer_in *in, struct problem *problem);

/* The first of the given members is not among those that are allowed. Returns -1. */
int timer_refuse_member(struct problem *problem, unsigned given, unsigned allowed);

/* Makes an update of it: which parts are to be set. */
unsigned timer_update_flags(const struct timer_in *in);

int retry_read(struct json object, fl_retry *ret, struct problem *problem);
void retry_write(struct out *out, const fl_retry *retry);

/* Writes target, payload, headers, timeout and retry. With `brief`, size and type of the payload instead of the payload. */
void timer_write_content(struct out *out, const fl_durable *timer, bool brief);

void timer_write_origin(struct out *out, const fl_durable *timer); /* schedule and occurrence; local and zone */

/* Writes the members of a timer, without the braces. With `brief`, size and type of the payload instead of the payload. */
void timer_write(struct out *out, uint32_t shard, const fl_durable *timer, bool brief);

/* Whether a text can be a namespace or a name: 1 to 255 bytes of UTF-8 without control characters. */
bool name_is_good(fl_bytes text);

#endif
