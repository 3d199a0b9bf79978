/* SPDX-License-Identifier: MIT */
/* Answers to webhooks: the first byte says how the rest is cut into pieces. However it is cut, the same must come of it, and
 * what comes of it must be a settlement that the engine takes. */

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "webhook/internal.h"

struct outcome {
    enum webhook_parsed parsed, end;
    bool any;
    webhook_call call;
};

static struct outcome read_answer(const char *text, size_t size, size_t step)
{
    struct outcome outcome = {0};
    struct webhook_parse parse = {0};
    struct webhook_answer answer = {0};
    webhook_parse_begin(&parse);
    webhook_answer_begin(&answer, 0);
    for (size_t at = 0; at < size && outcome.parsed == WEBHOOK_MORE; at += step)
        outcome.parsed = webhook_parse(&parse, &answer, text + at, size - at < step ? size - at : step);
    outcome.any = parse.any;
    outcome.end = webhook_parse_end(&parse);
    assert(answer.body_size <= WEBHOOK_BODY_MOST && answer.body.size <= answer.body_size);
    if (outcome.parsed == WEBHOOK_WHOLE || (outcome.parsed == WEBHOOK_MORE && outcome.end == WEBHOOK_WHOLE))
        webhook_answer_settle(&answer, 1614265330000000, &outcome.call);
    webhook_parse_free(&parse);
    webhook_answer_free(&answer);
    return outcome;
}

static void check_call(const webhook_call *call)
{
    assert(call->result <= FL_DEAD);
    assert(call->at_us >= 0 && call->at_us < FL_STORE_TIME_END);
    assert(call->result != FL_FAILED || call->at_us <= 1614265330000000 + INT64_C(86400) * 1000000);
    assert(strlen(call->reason) < sizeof call->reason);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    size_t step = 1 + data[0];
    struct outcome whole = read_answer(text, size - 1, size), pieces = read_answer(text, size - 1, step);
    assert(whole.parsed == pieces.parsed && whole.end == pieces.end && whole.any == pieces.any);
    assert(whole.call.status == pieces.call.status && whole.call.result == pieces.call.result);
    assert(whole.call.at_us == pieces.call.at_us && strcmp(whole.call.reason, pieces.call.reason) == 0);
    check_call(&whole.call);

    /* The same bytes as a body alone, which is where the JSON is. */
    webhook_call call = {0};
    struct webhook_answer answer = {0};
    webhook_answer_begin(&answer, 200);
    webhook_answer_body(&answer, text, size - 1);
    webhook_answer_settle(&answer, 1614265330000000, &call);
    webhook_answer_free(&answer);
    check_call(&call);
    return 0;
}
