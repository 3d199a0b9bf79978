/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TEXT_ZONE_H
#define FOLIOT_TEXT_ZONE_H

/* Time zones: from instants to the time on the wall and back, by the system's tzdata.
 *
 * glibc has no reader for a zone of the caller's choice that several threads can use, so this is one of our own. It
 * reads TZif files (RFC 8536 and 9636, versions 1 to 4) with their footers.
 *
 *     zone.c       a zone: a table of changes, and the questions one can ask it
 *     zone_file.c  makes a zone from the bytes of a TZif file
 *     zone_rule.c  the TZ string in the footer: the rule for the time after the last change
 *     zones.c      all zones of a directory, by name
 *
 * Instants are seconds since 1970-01-01T00:00:00Z without leap seconds; civil times are those of text/civil.h. Both may
 * be from ZONE_BEGIN_S / 2 to ZONE_END_S / 2, which is far more than the years 1 to 9999. A zone never changes, so any
 * number of threads may ask it at the same time. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <foliot/store.h> /* fl_bytes */

struct zone;

#define ZONE_BEGIN_S (-(INT64_C(1) << 60))
#define ZONE_END_S (INT64_C(1) << 60)

/* Offsets are smaller than this, in either direction. */
enum { ZONE_OFFSET_MAX_S = 26 * 3600 };

enum { ZONE_ERROR_TEXT = 256, ZONE_FILE_MAX = 256 * 1024, ZONE_NAME_MAX = 64 };

/* A span of time, begin_s <= t < end_s, in which the clock does not change. Neighbours have different offsets. */
struct zone_span {
    int64_t begin_s, end_s; /* ZONE_BEGIN_S, ZONE_END_S: always before, always after */
    int32_t offset_s;       /* civil time minus instant */
    int32_t before_s;       /* the offset before begin_s; offset_s if there is nothing before it */
};

/* Reads a TZif file. Returns 0, FL_NO_MEMORY, or FL_INVALID_ARGUMENT with a reason in `ret_error` ("the file is cut
 * off after 44 bytes"). Give the zone back with zone_unref(). */
int zone_parse(fl_bytes file, struct zone **ret, char ret_error[ZONE_ERROR_TEXT]);

/* Universal time, which needs no file. Never NULL; may be given to zone_unref(). */
struct zone *zone_utc(void);

struct zone *zone_ref(struct zone *zone);
void zone_unref(struct zone *zone); /* NULL is allowed */

/* Whether the two have the same changes, and so always show the same time. */
bool zone_same(const struct zone *a, const struct zone *b);

/* The span that an instant lies in. */
struct zone_span zone_span(const struct zone *zone, int64_t at_s);

int32_t zone_offset(const struct zone *zone, int64_t at_s);

/* The first instant after `at_s` at which the clock changes; false if there is none. */
bool zone_next_change(const struct zone *zone, int64_t at_s, int64_t *ret_s);

/* All instants at which the clock shows a civil time, in order: none in a gap, two in an overlap. (A zone with changes
 * within hours of each other could have more.) Writes at most `max`; returns how many there are. */
int zone_instants(const struct zone *zone, int64_t local_s, int64_t *ret_s, int max);

/* The instant that a civil time means for a single timer: the first at which the clock shows it. A time in a gap, which
 * the clock never shows, means the first moment after the gap. */
struct zone_place {
    int64_t at_s;
    int passes; /* how often the clock shows it; 0: it is in a gap */
};
struct zone_place zone_place(const struct zone *zone, int64_t local_s);

/* The same for a timer's {"local":…, "zone":…}, in microseconds. */
int64_t zone_place_us(const struct zone *zone, int64_t local_us);

/* --- All zones of a directory ------------------------------------------------------------------------------------ */

/* The set is read at once and never changes: files that are replaced later do not show until zones_load() is called
 * again. That gives a new set, and the old one stays valid until it is freed. Zones have counted references, so a zone
 * outlives its set while a rule uses it. A zone that is the same in both sets is the same object: if
 * zones_find(new, name) is the zone that a rule has, nothing has changed for it. */
struct zones;

/* Reads `directory`; NULL: that of the environment's TZDIR, or /usr/share/zoneinfo. With `old`, which may be NULL, zones
 * that have disappeared or are damaged now keep their last known rules. Returns 0, FL_NO_MEMORY, FL_NOT_FOUND if there
 * are no zones there, or FL_SYSTEM; `ret_error` then has a sentence for the log. */
int zones_load(const char *directory, const struct zones *old, struct zones **ret, char ret_error[ZONE_ERROR_TEXT]);
void zones_free(struct zones *zones); /* NULL is allowed */

/* The zone of an IANA name, exactly as it is written in the directory; a reference for the caller. UTC is always there,
 * also without a set (NULL). Returns 0, FL_NOT_FOUND, or FL_INVALID_ARGUMENT if its file is damaged; `ret_error` has a
 * sentence for the user. */
int zones_find(const struct zones *zones, fl_bytes name, struct zone **ret, char ret_error[ZONE_ERROR_TEXT]);

/* "2025b", or "hash-" and 16 digits if the directory does not say. Lives as long as the set. "none" without a set. */
const char *zones_version(const struct zones *zones);

/* A hash of all names and files: whether anything has changed, whatever the version says. 0 without a set. */
uint64_t zones_hash(const struct zones *zones);

const char *zones_directory(const struct zones *zones);
size_t zones_count(const struct zones *zones); /* those that zones_find() finds */

/* Zones in the order of their names. A zone with a `problem` ("… has disappeared …") has its last known rules, or
 * none (NULL). Returns false at the end. */
struct zones_entry {
    const char *name;
    const struct zone *zone;
    const char *problem; /* NULL: all is well */
};
bool zones_at(const struct zones *zones, size_t index, struct zones_entry *ret);

#endif
