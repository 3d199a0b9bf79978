/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_SQLITE_CHUNK_H
#define FOLIOT_STORE_SQLITE_CHUNK_H

/* Chunks: the rows of a window, some forty at a time, as bytes. chunk.c has the format. */

#include "store/store.h"

/* A chunk that is not larger lies in one page of 4096 bytes together with what SQLite needs for itself. */
enum { CHUNK_SIZE = 4052 };

/* A row as it stands in a chunk: its namespace is a number, and `name` and `body` point into the chunk. */
struct entry {
    fl_key key, id;
    uint64_t ns;
    fl_bytes name, body;
    const unsigned char *begin; /* where it stands; it ends where its body ends */
};

/* Reads a chunk from the beginning. */
struct chunk_reader {
    uint64_t window, first;
    const unsigned char *at, *end;
};

struct chunk_reader fl__chunk_read(uint64_t window, uint64_t first, fl_bytes chunk);

/* Returns 1 and the next row, 0 at the end, FL_STORE_CORRUPT for what is no row. */
int fl__chunk_next(struct chunk_reader *reader, struct entry *ret);

/* Finds the row `seq`, or the place where it would stand: ret->begin. Returns 1, 0 or FL_STORE_CORRUPT. */
int fl__chunk_find(struct chunk_reader reader, uint64_t seq, struct entry *ret);

/* How many bytes a row takes at most, and writes them; returns how many it were. */
size_t fl__entry_size_max(const struct entry *entry);
size_t fl__entry_encode(const struct entry *entry, uint64_t window, uint64_t first, unsigned char *out);

static inline const unsigned char *entry_end(const struct entry *entry)
{
    return (const unsigned char *)entry->body.data + entry->body.size;
}

#endif
