/* SPDX-License-Identifier: MIT */
/* Which part of a timer a client gets: all of it, everything but the payload (?payload=false), or the payload alone (…/payload).
 * Lists of large payloads are slow to send and to read, and most readers want them only of a few timers. */

#include <string.h>

#include "api/internal.h"
#include "api/timer.h"

int part_read(struct call *call)
{
    char room[8];
    fl_bytes text;
    int given = call_query(call, "payload", room, sizeof room, &text);
    if (given <= 0)
        return given;
    bool without = text.size == 5 && memcmp(room, "false", 5) == 0;
    if (!without && !(text.size == 4 && memcmp(room, "true", 4) == 0))
        return problem_set(&call->problem, 400, "invalid-field", "payload", "payload must be true or false");
    call->part = without ? PART_BRIEF : PART_WHOLE;
    return 0;
}

int part_check(struct call *call)
{
    static const char *const known[] = {"payload", NULL};
    static const char *const none[] = {NULL};
    if (call->part == PART_PAYLOAD)
        return call_check_query(call, none);
    return call_check_query(call, known) < 0 ? -1 : part_read(call);
}

int part_write_payload(struct call *call, const fl_durable *timer)
{
    if (timer->payload.size == 0)
        return problem_set(&call->problem, 404, "not-found", NULL, "the timer has no payload");
    call->binary = timer_is_binary(timer);
    fl_bytes payload = timer_payload(timer);
    out_put(&call->out, payload.data, payload.size);
    return 0;
}

void part_answer(struct call *call, int status)
{
    static const char download[] = "Content-Disposition: attachment\r\nX-Content-Type-Options: nosniff\r\n";
    if (call->part == PART_PAYLOAD)
        call_answer_as(call, status, call->binary ? "application/octet-stream" : "application/json", download);
    else
        call_answer(call, status);
}
