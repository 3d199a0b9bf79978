/* SPDX-License-Identifier: MIT */
/* History: which rows a request wants, what a span knows of its rows, and a row as bytes. */

#include <string.h>

#include "base/varint.h"
#include "store/store.h"

static bool is_wanted(fl_bytes bytes, fl_bytes wanted)
{
    return wanted.size == 0 || (bytes.size == wanted.size && memcmp(bytes.data, wanted.data, wanted.size) == 0);
}

bool fl__history_fits(const fl_store_request *request, const fl_history_row *row)
{
    return row->began_us >= request->history.from_us && row->began_us < request->history.until_us &&
           (request->history.id_seq == 0 || request->history.id_seq == row->id.seq) &&
           (request->history.results == 0 || request->history.results >> row->result & 1) &&
           is_wanted(row->ns, request->history.ns) && is_wanted(row->name, request->history.name) &&
           is_wanted(row->schedule, request->history.schedule);
}

bool fl__history_is_of(const fl_store_request *request, const fl_history_row *row)
{
    return (request->forget.id_seq == 0 || request->forget.id_seq == row->id.seq) &&
           is_wanted(row->ns, request->forget.ns);
}

void fl__history_note(fl_history_span *span, const fl_history_row *row)
{
    if (span->rows == 0 || row->began_us < span->first_us)
        span->first_us = row->began_us;
    if (span->rows == 0 || row->began_us > span->last_us)
        span->last_us = row->began_us;
    span->rows++;
    span->bytes += fl__history_size(row);
}

size_t fl__history_size(const fl_history_row *row)
{
    return (size_t)9 * FL__VARINT_MAX + row->ns.size + row->name.size + row->schedule.size + row->body.size;
}

size_t fl__history_encode(const fl_history_row *row, unsigned char *out)
{
    const uint64_t numbers[] = {
        row->seq,       fl__zigzag(row->began_us), (uint64_t)row->id.at_us, row->id.seq, row->result, row->ns.size,
        row->name.size, row->schedule.size,        row->body.size};
    const fl_bytes texts[] = {row->ns, row->name, row->schedule, row->body};
    size_t size = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        size += fl__varint_put(out + size, numbers[i]);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].size > 0)
            memcpy(out + size, texts[i].data, texts[i].size);
        size += texts[i].size;
    }
    return size;
}

bool fl__history_decode(const unsigned char **at, const unsigned char *end, fl_history_row *ret)
{
    uint64_t numbers[9];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!fl__varint_get(at, end, &numbers[i]))
            return false;
    *ret = (fl_history_row){.seq = numbers[0],
                            .began_us = fl__unzigzag(numbers[1]),
                            .id = {(int64_t)numbers[2], numbers[3]},
                            .result = (uint32_t)numbers[4]};
    fl_bytes *texts[4] = {&ret->ns, &ret->name, &ret->schedule, &ret->body};
    for (size_t i = 0; i < 4; i++) {
        if (numbers[5 + i] > (uint64_t)(end - *at))
            return false;
        *texts[i] = (fl_bytes){*at, numbers[5 + i]};
        *at += numbers[5 + i];
    }
    return numbers[4] < FL_HISTORY_RESULTS;
}
