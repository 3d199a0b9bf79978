/* SPDX-License-Identifier: MIT */
/* Finding damage: checksums of records, and a look at the log before SQLite reads it.
 *
 * The log. SQLite reads it up to the first frame (a page) whose checksum does not match and takes the rest for a torn tail,
 * which a crash may leave. Damage in the middle looks the same to it, and everything behind it would be lost without a word.
 * But a transaction is written only when the one before it has been synced. So if the frame that does not match is followed
 * by a later transaction that does, it was on the disk once and is damaged now. Checksums are a chain: that of a
 * frame begins with the one that stands in the frame before, so that each frame can be checked without those before it.
 * A frame of an earlier use of the log has other salts and does not count.
 */

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "store/sqlite/base.h"

/* --- Checksums ---------------------------------------------------------------------------------------------------- */

static uint64_t word_at(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a checksum is the same on every machine");

static uint64_t mix(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * 0x9e3779b97f4a7c15;
    return sum ^ sum >> 29;
}

/* Four at a time, so that the processor does not wait for one multiplication after the other. */
int64_t fl__checksum(int64_t k, fl_bytes bytes)
{
    const unsigned char *at = bytes.data;
    uint64_t sums[4] = {(uint64_t)k, bytes.size, 1, 2};
    size_t left = bytes.size;
    for (; left >= 32; left -= 32, at += 32)
        for (int i = 0; i < 4; i++)
            sums[i] = mix(sums[i], word_at(at + 8 * i));
    for (; left >= 8; left -= 8, at += 8)
        sums[0] = mix(sums[0], word_at(at));
    uint64_t last = 0;
    if (left > 0)
        memcpy(&last, at, left);
    uint64_t sum = mix(mix(mix(mix(sums[0], last), sums[1]), sums[2]), sums[3]);
    return (int32_t)(uint32_t)(sum ^ sum >> 32);
}

int64_t fl__dead_sum(const int64_t numbers[4], fl_bytes name, fl_bytes reason, fl_bytes body)
{
    int64_t sum = fl__checksum(numbers[0], (fl_bytes){numbers, 4 * sizeof *numbers});
    return fl__checksum(fl__checksum(fl__checksum(sum, name), reason), body);
}

/* --- The log ------------------------------------------------------------------------------------------------------ */

enum { HEAD = 32, FRAME_HEAD = 24, PAGE = 4096, FRAME = FRAME_HEAD + PAGE };

struct log_sum {
    uint32_t a, b;
};

struct log_scan {
    FILE *file;
    bool big; /* words are summed as big endian */
    unsigned char salts[8];
    struct log_sum stored; /* that of the frame before, as it stands there */
    unsigned char frame[FRAME];
    unsigned char commit[FRAME]; /* the last commit from the bad frame on */
};

static uint32_t big_at(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint32_t word32(const unsigned char *at, bool big)
{
    return big ? big_at(at) : __builtin_bswap32(big_at(at));
}

/* As SQLite's documentation of the file format has it. */
static struct log_sum sum_bytes(struct log_sum sum, const unsigned char *at, size_t size, bool big)
{
    for (size_t i = 0; i < size; i += 8) {
        sum.a += word32(at + i, big) + sum.b;
        sum.b += word32(at + i + 4, big) + sum.a;
    }
    return sum;
}

static bool same_sum(struct log_sum sum, const unsigned char *stored)
{
    return sum.a == big_at(stored) && sum.b == big_at(stored + 4);
}

/* `*ret_empty`: there is nothing in the log, which a program that only looked may have left. */
static bool read_head(struct log_scan *scan, bool *ret_empty)
{
    unsigned char head[HEAD];
    size_t size = fread(head, 1, HEAD, scan->file);
    *ret_empty = size == 0;
    if (size != HEAD || (big_at(head) & ~1u) != 0x377f0682 || big_at(head + 8) != PAGE)
        return false;
    scan->big = big_at(head) & 1;
    struct log_sum sum = sum_bytes((struct log_sum){0, 0}, head, 24, scan->big);
    if (!same_sum(sum, head + 24))
        return false;
    memcpy(scan->salts, head + 16, 8);
    scan->stored = sum;
    return true;
}

struct frame {
    bool ours;   /* of this use of the log */
    bool good;   /* and as it was written, if the checksum before it is */
    bool commit; /* the last of its transaction; or a copy of it, to fill a sector */
};

static bool read_frame(struct log_scan *scan, struct frame *ret)
{
    const unsigned char *frame = scan->frame;
    if (fread(scan->frame, 1, FRAME, scan->file) != FRAME)
        return false;
    struct log_sum sum = sum_bytes(scan->stored, frame, 8, scan->big);
    sum = sum_bytes(sum, frame + FRAME_HEAD, PAGE, scan->big);
    ret->ours = memcmp(frame + 8, scan->salts, 8) == 0;
    ret->good = ret->ours && same_sum(sum, frame + 16);
    ret->commit = ret->ours && big_at(frame + 4) != 0;
    scan->stored = (struct log_sum){big_at(frame + 16), big_at(frame + 20)};
    return true;
}

/* A commit that fills a sector is written again and again: the same page with the same content. */
static bool repeats(const struct log_scan *scan)
{
    return memcmp(scan->frame, scan->commit, 4) == 0 &&
           memcmp(scan->frame + FRAME_HEAD, scan->commit + FRAME_HEAD, PAGE) == 0;
}

/* The number of the damaged frame, from 1; 0: no frame is damaged, or the damage cannot be told from a torn tail. The first
 * commit from the damaged frame on may be that of the torn transaction itself. What is left of a commit that failed has been
 * cut off (base.c), so every other commit behind it is of a later transaction. */
static uint64_t find_damage(struct log_scan *scan)
{
    uint64_t number = 0, bad = 0;
    bool ended = false; /* the transaction of the bad frame */
    struct frame frame;
    while (read_frame(scan, &frame)) {
        number++;
        if (!frame.good && bad == 0)
            bad = number;
        if (bad == 0 || !frame.commit)
            continue;
        if (ended && frame.good && !repeats(scan))
            return bad;
        memcpy(scan->commit, scan->frame, FRAME);
        ended = true;
    }
    return 0;
}

static int lost(const char *log, const char *what, char *message, size_t size)
{
    snprintf(message, size,
             "%.120s %s, and the process that used it did not close it, so the last changes are lost; put the log "
             "back, restore the shard from a backup, or continue without these changes: foliot doctor --accept FOLDER",
             log, what);
    return FL_STORE_CORRUPT;
}

int fl__log_check(const char *path, bool expected, char *message, size_t size)
{
    char log[4096];
    struct log_scan *scan = fl__alloc_zeroed(sizeof *scan);
    if (!scan)
        return FL_NO_MEMORY;
    snprintf(log, sizeof log, "%s-wal", path);
    scan->file = fopen(log, "re");
    bool empty = true, valid = scan->file && read_head(scan, &empty);
    uint64_t bad = valid ? find_damage(scan) : 0;
    if (scan->file)
        fclose(scan->file);
    fl__release(scan);
    if (expected && !valid)
        return lost(log, empty ? "is missing" : "has no valid header", message, size);
    if (bad == 0)
        return 0;
    snprintf(message, size,
             "%.120s is damaged at page %llu, and later commits cannot be read; restore the shard from a backup, or "
             "continue without these commits: foliot doctor --accept FOLDER",
             log, (unsigned long long)bad);
    return FL_STORE_CORRUPT;
}
