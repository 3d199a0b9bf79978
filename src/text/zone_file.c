/* SPDX-License-Identifier: MIT */
/* TZif files: RFC 9636.
 *
 *     header   "TZif", version, 15 unused bytes, six counts of 4 bytes
 *     data     times (4 or 8 bytes each), a type for each, types of 6 bytes, names, leap seconds, indicators
 *
 * A file of version 1 has one header with 4-byte times. Later versions have the same for old readers, then again with
 * 8-byte times, then a footer: a TZ string between two newlines that governs the time after the last change. All numbers
 * are big-endian.
 *
 * The counts come from the file, so each is checked against the bytes that are there before it is used; the arithmetic is
 * in 64 bits, which six 32-bit counts of a few bytes each do not overflow. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <foliot/error.h>

#include "base/alloc.h"
#include "text/zone_internal.h"

enum { HEADER = 44, TYPE = 6 };

/* Moments that RFC 9636 allows (section 3.2: not before -2^59); ours are inside, with room for offsets. */
#define MOMENT_MAX (INT64_C(1) << 59)

struct block {
    uint64_t isutc, isstd, leap, time, type, names; /* counts */
    int width;                                      /* of a time */
    const uint8_t *times, *indices, *types;
    const uint8_t *end;
};

struct reader {
    const uint8_t *begin, *end;
    char *error;
};

__attribute__((format(printf, 2, 3))) static void say(const struct reader *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->error, ZONE_ERROR_TEXT, format, arguments);
    va_end(arguments);
}

#define damaged(...) (say(__VA_ARGS__), FL_INVALID_ARGUMENT)

static uint32_t read_32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int64_t read_time(const struct block *block, uint64_t index)
{
    const uint8_t *at = block->times + index * (unsigned)block->width;
    if (block->width == 4)
        return (int32_t)read_32(at);
    return (int64_t)((uint64_t)read_32(at) << 32 | read_32(at + 4));
}

static int32_t read_offset(const struct block *block, uint8_t type)
{
    return (int32_t)read_32(block->types + (size_t)type * TYPE);
}

/* Reads a header at `at` and finds the parts of its data, all of which must be there. */
static int read_block(const struct reader *reader, const uint8_t *at, int width, struct block *ret)
{
    size_t there = (size_t)(reader->end - at);
    if (there < HEADER)
        return damaged(reader, "the file is cut off after %zu bytes, inside of a header",
                       (size_t)(reader->end - reader->begin));
    if (memcmp(at, "TZif", 4) != 0)
        return damaged(reader, "a header does not begin with \"TZif\"");
    struct block block = {.isutc = read_32(at + 20),
                          .isstd = read_32(at + 24),
                          .leap = read_32(at + 28),
                          .time = read_32(at + 32),
                          .type = read_32(at + 36),
                          .names = read_32(at + 40),
                          .width = width};
    uint64_t size = block.time * (unsigned)(width + 1) + block.type * TYPE + block.names +
                    block.leap * (unsigned)(width + 4) + block.isstd + block.isutc;
    if (size > there - HEADER)
        return damaged(reader, "the file is cut off after %zu bytes, where its header announces %llu more",
                       (size_t)(reader->end - reader->begin), (unsigned long long)(size - (there - HEADER)));
    block.times = at + HEADER;
    block.indices = block.times + block.time * (unsigned)width;
    block.types = block.indices + block.time;
    block.end = at + HEADER + size;
    *ret = block;
    return 0;
}

static int check_types(const struct reader *reader, const struct block *block)
{
    if (block->type == 0 || block->type > 256 || block->names == 0)
        return damaged(reader, "the file has no types of local time, or more than 256");
    if ((block->isutc != 0 && block->isutc != block->type) || (block->isstd != 0 && block->isstd != block->type))
        return damaged(reader, "the file does not have an indicator for each type of local time");
    if (block->leap != 0)
        return damaged(reader, "the file counts leap seconds; use a directory without them");
    for (uint64_t i = 0; i < block->type; i++) {
        const uint8_t *type = block->types + i * TYPE;
        int32_t offset_s = (int32_t)read_32(type);
        if (offset_s <= -ZONE_OFFSET_MAX_S || offset_s >= ZONE_OFFSET_MAX_S)
            return damaged(reader, "type %llu has an offset of %d s; the limit is 26 hours", (unsigned long long)i,
                           offset_s);
        if (type[4] > 1 || type[5] >= block->names)
            return damaged(reader, "type %llu of local time is wrong", (unsigned long long)i);
    }
    return 0;
}

static int read_changes(const struct reader *reader, const struct block *block, struct zone_changes *changes)
{
    int64_t last_s = -MOMENT_MAX - 1;
    changes->first_s = read_offset(block, 0);
    for (uint64_t i = 0; i < block->time; i++) {
        int64_t at_s = read_time(block, i);
        if (at_s <= last_s || at_s > MOMENT_MAX)
            return damaged(reader, "change %llu is not after the one before it", (unsigned long long)i);
        if (block->indices[i] >= block->type)
            return damaged(reader, "change %llu has type %d of %llu", (unsigned long long)i, block->indices[i],
                           (unsigned long long)block->type);
        if (!zone_changes_add(changes, at_s, read_offset(block, block->indices[i])))
            return FL_NO_MEMORY;
        last_s = at_s;
    }
    return 0;
}

static int read_footer(const struct reader *reader, const uint8_t *at, struct zone_changes *changes,
                       int64_t *ret_fold_s)
{
    struct zone_rule rule;
    const uint8_t *end = at < reader->end ? memchr(at + 1, '\n', (size_t)(reader->end - at) - 1) : NULL;
    if (!end || *at != '\n')
        return damaged(reader, "the footer is cut off");
    fl_bytes text = {at + 1, (size_t)(end - at) - 1};
    if (text.size == 0)
        return 0;
    const char *wrong = zone_rule_parse(text, &rule);
    if (wrong)
        return damaged(reader, "the rule \"%.*s\" cannot be read: %s", text.size < 80 ? (int)text.size : 80,
                       (const char *)text.data, wrong);
    return zone_rule_apply(&rule, changes, ret_fold_s) ? 0 : FL_NO_MEMORY;
}

static int read_file(const struct reader *reader, struct zone_changes *changes, int64_t *ret_fold_s)
{
    struct block block = {0};
    int r = read_block(reader, reader->begin, 4, &block);
    if (r < 0)
        return r;
    uint8_t version = reader->begin[4];
    if (version != 0 && version < '2')
        return damaged(reader, "version %d of the format is unknown", version);
    if (version != 0 && (r = read_block(reader, block.end, 8, &block)) < 0)
        return r;
    if ((r = check_types(reader, &block)) < 0 || (r = read_changes(reader, &block, changes)) < 0)
        return r;
    return version == 0 ? 0 : read_footer(reader, block.end, changes, ret_fold_s);
}

int zone_parse(fl_bytes file, struct zone **ret, char ret_error[ZONE_ERROR_TEXT])
{
    struct reader reader = {file.data, (const uint8_t *)file.data + file.size, ret_error};
    struct zone_changes changes = {0};
    struct zone *zone = NULL;
    int64_t fold_s = ZONE_END_S;
    int r = file.size > ZONE_FILE_MAX ? damaged(&reader, "the file has more than %d bytes", ZONE_FILE_MAX)
                                      : read_file(&reader, &changes, &fold_s);
    if (r == 0 && !(zone = zone_new(&changes, fold_s)))
        r = FL_NO_MEMORY;
    fl__release(changes.list);
    if (r == FL_NO_MEMORY)
        snprintf(ret_error, ZONE_ERROR_TEXT, "%s", fl_strerror(r));
    if (r == 0)
        *ret = zone;
    return r;
}
