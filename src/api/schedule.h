/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_API_SCHEDULE_H
#define FOLIOT_API_SCHEDULE_H

/* A schedule as JSON: what users send and what they get. */

#include "api/timer.h"
#include "node/node.h"

/* The members of a line of a batch that say what to do with which schedule. They are passed over if timer_rules.allowed has them. */
enum { SCHEDULE_LINE = GAVE_OP | GAVE_NAMESPACE | GAVE_NAME | GAVE_ONLY_NEW };
static inline bool schedule_is_line_member(struct json key)
{
    return json_is(key, "op") || json_is(key, "namespace") || json_is(key, "name") || json_is(key, "only_new");
}

/* Reads the members that are given into `schedule`, which has the others already: of a new one the defaults, of a change what
 * is there. Null resets a member. `*ret_only_paused`: nothing but `paused` was given. What is read points into the text, or is
 * in the scratch. Returns 0, or -1 and the problem. */
int schedule_from_json(struct json object, const struct timer_rules *rules, struct scratch *scratch,
                       struct schedule *schedule, bool *ret_only_paused, struct problem *problem);

/* Compiles the rule and checks what only that shows. Returns 0, or -1 and the problem. */
int schedule_compile(const struct schedule *schedule, const struct zones *zones, struct rule **ret,
                     struct problem *problem);

/* Writes the schedule, with braces; `rule` is NULL if it cannot be compiled any more. */
void schedule_to_json(struct out *out, const struct schedule *schedule, const struct rule *rule, bool brief);

/* The same for the stored form. */
void schedule_stored_to_json(struct out *out, fl_bytes stored, const struct zones *zones, bool brief);

/* A time in a zone: "2026-03-29T03:00:00+02:00". */
void write_local(struct out *out, const struct occurrence *occurrence);

#endif
