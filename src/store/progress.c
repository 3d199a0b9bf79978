/* SPDX-License-Identifier: MIT */
/* Progress: which rows are settled, and how that is written down.
 *
 * Encoded, progress is a format version, the two fronts, the limit of sequence numbers and the count of pending rows, then
 * the kept numbers as differences: with ten thousand timers under way some twenty kilobytes.
 */

#include <string.h>

#include "base/alloc.h"
#include "base/varint.h"
#include "store/store.h"

enum { FORMAT = 1, FIXED = 8 }; /* numbers before the kept ones */

static bool after(fl_key key, fl_key front)
{
    return key.at_us != front.at_us ? key.at_us > front.at_us : key.seq > front.seq;
}

static bool kept(const fl_progress *progress, uint64_t seq)
{
    size_t low = 0, high = progress->keep_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (progress->keep[middle] < seq)
            low = middle + 1;
        else
            high = middle;
    }
    return low < progress->keep_count && progress->keep[low] == seq;
}

bool fl_progress_settled(const fl_progress *progress, fl_key key)
{
    return !after(key, progress->front[key.seq & 1]) && !kept(progress, key.seq);
}

size_t fl__progress_size(const fl_progress *progress)
{
    return (FIXED + progress->keep_count) * FL__VARINT_MAX;
}

size_t fl__progress_encode(const fl_progress *progress, unsigned char *out)
{
    const uint64_t fixed[FIXED] = {FORMAT,
                                   (uint64_t)progress->front[0].at_us,
                                   progress->front[0].seq,
                                   (uint64_t)progress->front[1].at_us,
                                   progress->front[1].seq,
                                   progress->seq_limit,
                                   progress->pending,
                                   progress->keep_count};
    size_t size = 0;
    uint64_t last = 0;
    for (int i = 0; i < FIXED; i++)
        size += fl__varint_put(out + size, fixed[i]);
    for (size_t i = 0; i < progress->keep_count; i++) {
        size += fl__varint_put(out + size, progress->keep[i] - last);
        last = progress->keep[i];
    }
    return size;
}

static int decode_kept(const unsigned char *at, const unsigned char *end, uint64_t count, fl_progress *progress)
{
    if (count > (uint64_t)(end - at)) /* each takes a byte at least */
        return FL_STORE_CORRUPT;
    uint64_t *keep = count > 0 ? fl__alloc(count * sizeof *keep) : NULL;
    if (count > 0 && !keep)
        return FL_NO_MEMORY;
    uint64_t last = 0, step;
    for (uint64_t i = 0; i < count; i++) {
        if (!fl__varint_get(&at, end, &step)) {
            fl__release(keep);
            return FL_STORE_CORRUPT;
        }
        keep[i] = last += step;
    }
    progress->keep = keep;
    progress->keep_count = count;
    return 0;
}

int fl__progress_decode(fl_bytes encoded, fl_progress *ret)
{
    uint64_t fixed[FIXED];
    const unsigned char *at = encoded.data, *end = at + encoded.size;
    for (int i = 0; i < FIXED; i++)
        if (!fl__varint_get(&at, end, &fixed[i]))
            return FL_STORE_CORRUPT;
    if (fixed[0] != FORMAT)
        return FL_STORE_CORRUPT;
    fl_progress progress = {.front = {{(int64_t)fixed[1], fixed[2]}, {(int64_t)fixed[3], fixed[4]}},
                            .seq_limit = fixed[5],
                            .pending = fixed[6]};
    int r = decode_kept(at, end, fixed[7], &progress);
    if (r == 0)
        *ret = progress;
    return r;
}
