/* SPDX-License-Identifier: MIT */
/* What texts of options may look like. */

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "text/when.h"

static bool is_duration(const char *text)
{
    uint64_t us;
    return duration_parse((fl_bytes){text, strlen(text)}, &us) == 0;
}

static bool is_time(const char *text)
{
    int64_t us;
    size_t digits = strspn(text, "0123456789");
    return (digits > 0 && digits < 16 && text[digits] == '\0') || when_parse((fl_bytes){text, strlen(text)}, &us) == 0;
}

const struct cli_format cli_duration = {"a duration like 500ms, 90s or 1h30m", is_duration};
const struct cli_format cli_time = {"a time like 2030-01-31T09:00:00+01:00 (RFC 3339) or milliseconds since 1970",
                                    is_time};
