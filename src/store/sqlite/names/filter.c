/* SPDX-License-Identifier: MIT */
/* The Bloom filters of runs.
 *
 * Most names that are looked for are not there. For each block there are some lines of 64 bytes in memory, a
 * Bloom filter each, with six questions in one line:
 *
 *     lines per block  bits per name  "perhaps" for a name that is absent
 *     5                15             one in 600
 *     4                12             one in 230
 *     3                9              one in 70
 *
 * All runs are asked, and the largest have nearly all names: so those have three lines, which saves nearly half of the
 * memory, and the many small ones five, which costs little. 60 lines make a piece, which is stored too, under the key
 * -1 - number.
 */

#include <string.h>

#include "base/alloc.h"
#include "store/sqlite/names/internal.h"

enum { PROBES = 6, PROBE_BITS = 9 };

unsigned char *fl__filter_line_of(const struct run *run, uint64_t hash)
{
    uint64_t block = block_of(run, hash);
    uint64_t rest = hash * run->blocks; /* how far into the block, of 2^64 */
    uint64_t line = block % run->piece_blocks * run->lines + (uint64_t)((unsigned __int128)rest * run->lines >> 64);
    return run->pieces[fl__run_piece_of(run, block)] + line * LINE_BYTES;
}

static uint64_t probes_of(uint64_t hash)
{
    return hash * 0x9e3779b97f4a7c15;
}

void fl__filter_add(const struct run *run, uint64_t hash)
{
    unsigned char *line = fl__filter_line_of(run, hash);
    uint64_t probes = probes_of(hash);
    for (int i = 0; i < PROBES; i++) {
        probes = probes << PROBE_BITS | probes >> (64 - PROBE_BITS);
        line[(probes & 511) >> 3] |= (unsigned char)(1 << (probes & 7));
    }
}

bool fl__filter_has(const struct run *run, uint64_t hash)
{
    const unsigned char *line = fl__filter_line_of(run, hash);
    uint64_t probes = probes_of(hash);
    for (int i = 0; i < PROBES; i++) {
        probes = probes << PROBE_BITS | probes >> (64 - PROBE_BITS);
        if (!(line[(probes & 511) >> 3] & 1 << (probes & 7)))
            return false;
    }
    return true;
}

int fl__filter_make_piece(struct base *base, struct run *run, size_t piece)
{
    struct spare_piece *spare = base->names->spare;
    if (run->pieces[piece])
        return 0;
    if (spare) {
        base->names->spare = spare->next;
        run->pieces[piece] = memset(spare, 0, PIECE_BYTES);
    } else {
        run->pieces[piece] = fl__alloc_zeroed(PIECE_BYTES);
    }
    return run->pieces[piece] ? 0 : base_no_memory(base);
}

void fl__run_forget(struct base *base, struct run *run, uint64_t hash)
{
    size_t below = fl__run_piece_of(run, block_of(run, hash));
    while (below > 0 && run->pieces[below - 1]) {
        struct spare_piece *spare = (struct spare_piece *)run->pieces[--below];
        run->pieces[below] = NULL;
        spare->next = base->names->spare;
        base->names->spare = spare;
    }
}

void fl__pieces_release(struct base *base)
{
    while (base->names->spare) {
        struct spare_piece *next = base->names->spare->next;
        fl__release(base->names->spare);
        base->names->spare = next;
    }
}
