/* SPDX-License-Identifier: MIT */
/* Chunks: the rows of a window as bytes.
 *
 * SQLite needs a microsecond and a dozen bytes for every record, whatever is in it. So a record is not a row but a chunk
 * of them: as many as fit into a page, in the order of their sequence numbers. A row in a chunk:
 *
 *     varint     seq - first, `first` being the key of the chunk, which is not above any sequence number in it
 *     fixed      at_us - begin of the window, little endian, in as many bytes as the length of the window needs
 *     varint     size of the body * 4 + has a name * 2 + was moved
 *     varint     number of the namespace
 *     byte       size of the name, and the name         (if it has one)
 *     varint     id.at_us, and a varint id.seq          (if it was moved)
 *     bytes      the body
 *
 * That is 8 bytes for a nameless row in a near window. Nothing in a row depends on its neighbours, so that one can be
 * taken out or put in by moving what stands behind it.
 */

#include <string.h>

#include "base/assert.h"
#include "base/varint.h"
#include "store/sqlite/chunk.h"

enum { MOVED = 1, NAMED = 2, FLAG_BITS = 2 };

static unsigned time_bytes(uint64_t window)
{
    return (fl_window_shift(window) + 7) / 8;
}

struct chunk_reader fl__chunk_read(uint64_t window, uint64_t first, fl_bytes chunk)
{
    const unsigned char *begin = chunk.data;
    return (struct chunk_reader){window, first, begin, begin + chunk.size};
}

static bool get_time(const unsigned char **at, const unsigned char *end, uint64_t window, int64_t *ret)
{
    unsigned bytes = time_bytes(window);
    fl__assert(*at <= end && bytes <= sizeof(uint64_t));
    if ((size_t)(end - *at) < bytes)
        return false;
    uint64_t offset = 0;
    for (unsigned i = 0; i < bytes; i++)
        offset |= (uint64_t)(*at)[i] << (8 * i);
    *at += bytes;
    *ret = fl_window_begin(window) + (int64_t)offset;
    return offset >> fl_window_shift(window) == 0;
}

static bool get_bytes(const unsigned char **at, const unsigned char *end, uint64_t size, fl_bytes *ret)
{
    fl__assert(*at <= end);
    if (size > (uint64_t)(end - *at))
        return false;
    *ret = (fl_bytes){*at, size};
    *at += size;
    return true;
}

static bool get_name(const unsigned char **at, const unsigned char *end, fl_bytes *ret)
{
    if (*at == end)
        return false;
    uint64_t size = *(*at)++;
    return get_bytes(at, end, size, ret);
}

static bool get_id(const unsigned char **at, const unsigned char *end, fl_key *ret)
{
    uint64_t time;
    if (!fl__varint_get(at, end, &time) || !fl__varint_get(at, end, &ret->seq))
        return false;
    ret->at_us = (int64_t)time;
    return true;
}

int fl__chunk_next(struct chunk_reader *reader, struct entry *ret)
{
    const unsigned char *at = reader->at, *end = reader->end;
    if (at == end)
        return 0;
    uint64_t offset, head;
    ret->begin = at;
    if (!fl__varint_get(&at, end, &offset) || !get_time(&at, end, reader->window, &ret->key.at_us) ||
        !fl__varint_get(&at, end, &head) || !fl__varint_get(&at, end, &ret->ns))
        return FL_STORE_CORRUPT;
    ret->key.seq = reader->first + offset;
    ret->name = (fl_bytes){0};
    if (head & NAMED && !get_name(&at, end, &ret->name))
        return FL_STORE_CORRUPT;
    ret->id = ret->key;
    if (head & MOVED && !get_id(&at, end, &ret->id))
        return FL_STORE_CORRUPT;
    if (!get_bytes(&at, end, head >> FLAG_BITS, &ret->body))
        return FL_STORE_CORRUPT;
    fl__assert(at <= end);
    reader->at = at;
    return 1;
}

int fl__chunk_find(struct chunk_reader reader, uint64_t seq, struct entry *ret)
{
    int r;
    while ((r = fl__chunk_next(&reader, ret)) > 0)
        if (ret->key.seq >= seq)
            return ret->key.seq == seq;
    if (r == 0)
        ret->begin = reader.end;
    return r;
}

size_t fl__entry_size_max(const struct entry *entry)
{
    enum { NUMBERS = 5 }; /* and a time, and the size of the name */
    return NUMBERS * FL__VARINT_MAX + sizeof(uint64_t) + 1 + entry->name.size + entry->body.size;
}

static size_t put_bytes(unsigned char *out, fl_bytes bytes)
{
    if (bytes.size > 0)
        memcpy(out, bytes.data, bytes.size);
    return bytes.size;
}

size_t fl__entry_encode(const struct entry *entry, uint64_t window, uint64_t first, unsigned char *out)
{
    bool named = entry->name.size > 0;
    bool moved = entry->id.seq != entry->key.seq || entry->id.at_us != entry->key.at_us;
    uint64_t offset = (uint64_t)(entry->key.at_us - fl_window_begin(window));
    unsigned bytes = time_bytes(window);
    size_t size = fl__varint_put(out, entry->key.seq - first);
    fl__assert(entry->name.size <= FL_STORE_NAME_MAX);
    for (unsigned i = 0; i < bytes; i++)
        out[size++] = (unsigned char)(offset >> (8 * i));
    size +=
        fl__varint_put(out + size, (uint64_t)entry->body.size << FLAG_BITS | (named ? NAMED : 0) | (moved ? MOVED : 0));
    size += fl__varint_put(out + size, entry->ns);
    if (named)
        out[size++] = (unsigned char)entry->name.size;
    size += put_bytes(out + size, entry->name);
    if (moved) {
        size += fl__varint_put(out + size, (uint64_t)entry->id.at_us);
        size += fl__varint_put(out + size, entry->id.seq);
    }
    return size + put_bytes(out + size, entry->body);
}
