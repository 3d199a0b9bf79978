/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_TEXT_TZIF_H
#define FOLIOT_TESTS_TEXT_TZIF_H

/* Writes TZif files for tests, and folders full of them. */

#include <stddef.h>
#include <stdint.h>

#include "text/zone.h"

struct tzif_change {
    int64_t at_s;
    int32_t offset_s; /* from then on */
};

/* A file of version `version` (1 to 4) with these changes and this footer. Returns its size. */
enum { TZIF_MAX = 4096, TZIF_TYPES = 16 };
size_t tzif_write(int version, int32_t first_s, const struct tzif_change *changes, size_t count, const char *footer,
                  uint8_t out[TZIF_MAX]);

/* A zone with these changes; the test fails if it cannot be read. */
struct zone *tzif_zone(int32_t first_s, const struct tzif_change *changes, size_t count, const char *footer);

/* The instant of a UTC time such as "2026-03-29T01:00:00", and that as text again (of a buffer that is used in turn). */
int64_t utc_s(const char *text);
const char *utc_text(int64_t s);

/* A new folder that is removed, with all that is in it, when the program ends. */
const char *folder_new(void);
void folder_write(const char *folder, const char *name, const void *data, size_t size);

#endif
