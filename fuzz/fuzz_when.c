/* SPDX-License-Identifier: MIT */
/* Times and durations: whatever is taken is the same again when it has been written, and so is every number. */

#include <stdlib.h>
#include <string.h>

#include "text/when.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(bool good)
{
    if (!good)
        abort();
}

static void time_again(int64_t us)
{
    char text[WHEN_TEXT];
    int64_t again;
    size_t size = when_format(us, text);
    check(size < WHEN_TEXT && strlen(text) == size);
    check(when_parse((fl_bytes){text, size}, &again) == 0);
    /* What is outside of the years that can be written is the nearest that is not. */
    check(again == us || us > 253402300799999999 || us < -62167219200000000);
    check(when_format_ms(us, text) == strlen("0000-00-00T00:00:00.000Z"));
}

static void duration_again(uint64_t us)
{
    char text[DURATION_TEXT];
    uint64_t again;
    size_t size = duration_format(us, text);
    check(size < DURATION_TEXT && strlen(text) == size);
    if (us <= DURATION_MAX_US)
        check(duration_parse((fl_bytes){text, size}, &again) == 0 && again == us);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    int64_t us;
    uint64_t duration_us;
    if (when_parse((fl_bytes){bytes, size}, &us) == 0)
        time_again(us);
    if (duration_parse((fl_bytes){bytes, size}, &duration_us) == 0) {
        check(duration_us <= DURATION_MAX_US);
        duration_again(duration_us);
    }
    if (size == sizeof us) {
        memcpy(&us, bytes, sizeof us);
        time_again(us);
        duration_again((uint64_t)us);
    }
    return 0;
}
