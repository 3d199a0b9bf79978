/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_MEMORY_HISTORY_H
#define FOLIOT_STORE_MEMORY_HISTORY_H

/* The history of one shard in memory. Whatever can fail is done by fl__past_plan(); applying cannot. */

#include "base/arena.h"
#include "store/store.h"

struct fl__past_item {
    struct fl__past_item *older;
    fl_history_row row; /* its bytes are behind it */
    unsigned char bytes[];
};

struct fl__past_part {
    struct fl__past_part *next; /* in the order of their numbers */
    fl_history_span span;
    struct fl__past_item *newest;
};

/* The zero value has no rows. */
struct fl__past {
    struct fl__past_part *first;
};

/* What a change needs. */
struct fl__past_plan {
    struct fl__past_item *items; /* newest first */
    struct fl__past_part *part;  /* should there be no such span */
};

bool fl__past_plan(const fl_history_change *change, struct fl__past_plan *ret); /* false: no memory */
void fl__past_plan_drop(struct fl__past_plan *plan);
void fl__past_apply(struct fl__past *history, const fl_history_change *change, struct fl__past_plan *plan);

/* What a claim, a list and an erasure give back; copies are in the arena. False: no memory. */
bool fl__past_tell(const struct fl__past *history, struct arena *arena, fl_store_request *request);
bool fl__past_list(const struct fl__past *history, struct arena *arena, fl_store_request *request);
void fl__past_forget(struct fl__past *history, fl_store_request *request);

bool fl__past_copy(struct fl__past *to, const struct fl__past *from); /* false: no memory; clear it then */
void fl__past_clear(struct fl__past *history);

#endif
