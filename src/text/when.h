/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_WHEN_H
#define FOLIOT_SERVER_WHEN_H

/* Points in time and durations as people and programs write them. */

#include <stdint.h>

#include <foliot/store.h> /* fl_bytes */

/* RFC 3339 with any offset, fractions to the microsecond (more digits are rounded up, so that nothing is early); a leap
 * second, which there can be at the end of a month (UTC), counts as the second after it. Returns 0 or
 * FL_INVALID_ARGUMENT. */
int when_parse(fl_bytes text, int64_t *ret_us);

/* "500ms", "90s", "1h30m", "2.5s", "1d": numbers with w, d, h, m, s, ms, us, ns, each unit at most once and from long to
 * short; rounded up to a microsecond. At most DURATION_MAX_US. Returns 0 or FL_INVALID_ARGUMENT. */
int duration_parse(fl_bytes text, uint64_t *ret_us);

#define DURATION_MAX_US (UINT64_C(365000) * 86400 * 1000000) /* a thousand years */

enum { WHEN_TEXT = 32, DURATION_TEXT = 48, THOUSANDTHS_TEXT = 16 };

/* The year 2001. A time before it cannot be meant: most often it is seconds where milliseconds are wanted. */
#define WHEN_PLAUSIBLE_US (INT64_C(978307200) * 1000000)

/* What is wrong with such a number of milliseconds, or with one that is too large, as a hint for the user. */
const char *when_hint(int64_t ms);

/* "2026-11-17T09:00:00Z", with as many decimals (0, 3 or 6) as are needed. Returns the length. What lies outside of the
 * years 0 to 9999 is shown as the nearest that does not. */
size_t when_format(int64_t us, char out[WHEN_TEXT]);

/* The same to the millisecond, rounded down, always with 3 decimals. */
size_t when_format_ms(int64_t us, char out[WHEN_TEXT]);

/* "1h30m", "2.5s", "500ms", "30d": what duration_parse() reads as the same. Returns the length. */
size_t duration_format(uint64_t us, char out[DURATION_TEXT]);

/* A number of thousandths: 2, 1.5, 0.125. */
size_t thousandths_format(uint32_t number, char out[THOUSANDTHS_TEXT]);

#endif
