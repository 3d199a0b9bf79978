/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WHEEL_WHEEL_H
#define FOLIOT_WHEEL_WHEEL_H

/* The timing wheels: data structures without clock, thread or I/O; the caller says what time it is. foliot/nodes.h and
 * foliot/wheel.h are the contract. This folder may use base. No other folder includes this header.
 *
 *     nodes.c        the intrusive wheel: its functions
 *     rings.c        its structure: rings of 16 children; rings_check.c: what is legal
 *     rebase.c       how the rings follow the time
 *     spokes.c       the nodes of a spoke; sorted.c: of the spoke that is first in time
 *     wheel.c        the wheel with IDs: its functions; wheel_check.c: what is legal
 *     cells.c        the memory of timers with IDs
 *
 * Below is the structure of the wheel with IDs. */

#include <stdatomic.h>

#include <foliot/wheel.h>

#include "wheel/rings.h"

/* An ID: level, generation, spoke, and the number of the cell in its level. The cells of a level are dealt to its spokes
 * by chunks. */
enum {
    LEVELS = FL_WHEEL_LEVELS,
    ENDING = 64, /* so many cancelled timers may still be in the rings */
    ID_SPOKE_SHIFT = NUMBER_BITS,
    ID_SPOKE_BITS = 12,
    ID_GENERATION_SHIFT = ID_SPOKE_SHIFT + ID_SPOKE_BITS,
    ID_LEVEL_SHIFT = ID_GENERATION_SHIFT + GENERATION_BITS,
};

struct fl_wheel {
    _Atomic uint64_t now_ns;
    uint64_t start_ns;
    uint64_t coverage_ns[LEVELS];
    uint8_t tick_shift[LEVELS]; /* of a deadline, to get its tick */
    bool coarse;
    uint32_t spokes; /* in each level */
    uint32_t worker_id;
    uint32_t ending_count;
    uint32_t ending[ENDING]; /* the names of their cells */
    struct cells cells[LEVELS];
    struct rings rings[]; /* one, but in a coarse wheel one per level */
};

static inline unsigned fl__wheel_rings(const fl_wheel *w)
{
    return w->coarse ? LEVELS : 1;
}

static inline struct rings *fl__wheel_level_rings(fl_wheel *w, unsigned level)
{
    return &w->rings[w->coarse ? level : 0];
}

/* The ID of the timer that a cell of the chunk has, or of the next one that it will have. */
static inline fl_timer_id fl__wheel_id(const fl_wheel *w, const struct cell_chunk *chunk, unsigned level,
                                       uint32_t number)
{
    uint64_t generation = chunk->generation + fl__chunk_life(chunk, number % CHUNK_CELLS);
    uint64_t spoke = ((number >> CELL_BITS) + level) & (w->spokes - 1);
    return level * (1ull << ID_LEVEL_SHIFT) | generation << ID_GENERATION_SHIFT | spoke << ID_SPOKE_SHIFT | number;
}

#endif
