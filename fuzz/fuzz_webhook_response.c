/* SPDX-License-Identifier: MIT */
/* Responses to webhooks: the first byte says how the rest is cut into pieces. However it is cut, the same must come of it, and
 * what comes of it must be a settlement that the engine takes. */

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "webhook/internal.h"

struct outcome {
    enum webhook_read parsed, end;
    bool any;
    webhook_attempt attempt;
};

static struct outcome read_response(const char *text, size_t size, size_t step)
{
    struct outcome outcome = {0};
    struct webhook_reader reader = {0};
    struct webhook_response response = {0};
    webhook_reader_begin(&reader);
    webhook_response_begin(&response, 0);
    for (size_t at = 0; at < size && outcome.parsed == WEBHOOK_MORE; at += step)
        outcome.parsed = webhook_read(&reader, &response, text + at, size - at < step ? size - at : step);
    outcome.any = reader.any;
    outcome.end = webhook_read_end(&reader);
    assert(response.body_size <= WEBHOOK_BODY_MOST && response.body.size <= response.body_size);
    if (outcome.parsed == WEBHOOK_WHOLE || (outcome.parsed == WEBHOOK_MORE && outcome.end == WEBHOOK_WHOLE))
        webhook_response_settle(&response, 1614265330000000, &outcome.attempt);
    webhook_reader_free(&reader);
    webhook_response_free(&response);
    return outcome;
}

static void check_attempt(const webhook_attempt *attempt)
{
    assert(attempt->result <= FL_DEAD);
    assert(attempt->at_us >= 0 && attempt->at_us < FL_STORE_TIME_END);
    assert(attempt->result != FL_FAILED || attempt->at_us <= 1614265330000000 + INT64_C(86400) * 1000000);
    assert(strlen(attempt->reason) < sizeof attempt->reason);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    size_t step = 1 + data[0];
    struct outcome whole = read_response(text, size - 1, size), pieces = read_response(text, size - 1, step);
    assert(whole.parsed == pieces.parsed && whole.end == pieces.end && whole.any == pieces.any);
    assert(whole.attempt.status == pieces.attempt.status && whole.attempt.result == pieces.attempt.result);
    assert(whole.attempt.at_us == pieces.attempt.at_us && strcmp(whole.attempt.reason, pieces.attempt.reason) == 0);
    check_attempt(&whole.attempt);

    /* The same bytes as a body alone, which is where the JSON is. */
    webhook_attempt attempt = {0};
    struct webhook_response response = {0};
    webhook_response_begin(&response, 200);
    webhook_response_body(&response, text, size - 1);
    webhook_response_settle(&response, 1614265330000000, &attempt);
    webhook_response_free(&response);
    check_attempt(&attempt);
    return 0;
}
