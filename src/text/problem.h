/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_PROBLEM_H
#define FOLIOT_SERVER_PROBLEM_H

/* What is wrong with a request, as RFC 9457 has it (application/problem+json). The types are stable; docs/http.md lists
 * them. */

#include "text/json.h"
#include "text/out.h"

#define PROBLEM_TYPE "application/problem+json"

struct problem {
    int status;
    const char *type;  /* what follows "urn:foliot:problem:" */
    const char *field; /* NULL: it is not about one */
    char detail[256];
    char field_room[64]; /* for the name of an unknown field */
};

/* Sets it and returns -1. */
int problem_set(struct problem *problem, int status, const char *type, const char *field, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* A field or a query parameter (`what`) that is not allowed here; `inside` is NULL, or the field that contains it. `allowed`
 * ends with NULL. Returns -1. */
int problem_unknown(struct problem *problem, const char *what, const char *inside, fl_bytes name,
                    const char *const *allowed);
int problem_unknown_member(struct problem *problem, const char *inside, struct json key, const char *const *allowed);

/* Which of the names, of which there are at most 32, a member has: its index. One that has none of them, or was there before,
 * is a problem: -1. `given` has a bit for each that was there. */
int problem_member(struct problem *problem, const char *inside, const char *const *names, struct json key,
                   unsigned *given);

/* Turns a result of the engine into a problem for the client. Returns -1. */
int problem_of_result(struct problem *problem, int result);

void problem_write(struct out *out, const struct problem *problem);

/* The reason phrase of an HTTP status; "Error" for a status that Foliot does not use. */
const char *status_text(int status);

#endif
