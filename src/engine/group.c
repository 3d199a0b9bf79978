/* SPDX-License-Identifier: MIT */
/* Several changes in one transaction.
 *
 * The store carries out a write completely or not at all, so all changes of a group are in one write. One of them, the head,
 * is the change of a work like any other: an operation by name or ID, or the settlement of an attempt (FL_ADVANCE). The
 * others, its followers, are timers without names that are created with it. They are right before the head in the write, and
 * the work of the head answers for them.
 *
 * If the outcome of the write is unknown, the engine asks the store for the head and for the followers. Meanwhile the
 * followers are held like the row of the head: none of them fires, and progress does not pass them. So a settlement that has
 * not taken effect can be written again, and its timers are created once.
 *
 * A batch of creations without names has no head, because it is never retried. Once all its changes are in the write, each is
 * handled on its own.
 */

#include "engine/internal.h"

/* --- Making ------------------------------------------------------------------------------------------------------- */

struct atomic_group *fl__group_new(fl_batch *batch)
{
    size_t count = batch->count - 1;
    struct atomic_group *group = fl__alloc_zeroed(sizeof *group + count * sizeof *group->followers);
    fl__assert(batch->count > 0);
    if (!group)
        return NULL;
    group->batch = batch;
    group->count = count;
    return group;
}

/* Files the followers in the open write. After it their IDs are known. */
int fl__group_file(fl_engine *e, struct atomic_group *group)
{
    fl__assert(e->group_write && group->batch && group->batch->count == group->count + 1);
    for (size_t i = 0; i < group->count; i++) {
        struct write_entry *entry;
        int r = fl__ops_file_new(e, &group->batch->ops[i + 1], &entry);
        if (r < 0)
            return r;
        group->followers[i].key = entry->row.key;
        group->followers[i].space = entry->space;
    }
    if (group->batch->compose)
        group->batch->compose(group->batch);
    return 0;
}

/* --- Answering ---------------------------------------------------------------------------------------------------- */

/* Answers the followers. The work answers the head. */
void fl__group_answer(fl_engine *e, struct atomic_group *group, int result)
{
    fl_batch *batch = group->batch;
    if (!batch)
        return;
    fl__assert(batch->count == group->count + 1);
    group->batch = NULL;
    for (size_t i = 0; i < group->count; i++) {
        batch->ops[i + 1].outcome = FL_CREATED;
        fl__ops_answer(e, batch, &batch->ops[i + 1], result);
    }
}

void fl__group_refuse(fl_engine *e, fl_batch *batch, int result)
{
    batch->left = batch->count;
    for (size_t i = 0; i < batch->count; i++)
        fl__ops_answer(e, batch, &batch->ops[i], result);
}

/* --- Taking effect ------------------------------------------------------------------------------------------------ */

void fl__group_count(fl_engine *e, const struct atomic_group *group)
{
    for (size_t i = 0; i < group->count; i++)
        fl__count(e, group->followers[i].space, 1);
    e->stats.created += group->count;
}

/* The write took effect. `head` is the entry of the head. */
void fl__group_applied(fl_engine *e, const struct atomic_group *group, const struct write_entry *head)
{
    fl__group_count(e, group);
    const struct write_entry *first = head - group->count;
    for (size_t i = 0; i < group->count && e->state == ENGINE_RUNNING; i++) {
        fl__assert(first[i].row.key.seq == group->followers[i].key.seq);
        fl__ops_take_in(e, &first[i].row, 0);
    }
}

/* --- Doubt -------------------------------------------------------------------------------------------------------- */

/* Locks the followers. They are new, so no other operation holds their locks. */
void fl__group_hold(fl_engine *e, struct atomic_group *group)
{
    fl__assert(group->count == 0 || !group->followers[0].lock.held);
    for (size_t i = 0; i < group->count; i++)
        fl__lock(e, &group->followers[i].lock, lock_of_seq(group->followers[i].key.seq), NULL);
}

void fl__group_let_go(fl_engine *e, struct atomic_group *group)
{
    for (size_t i = 0; i < group->count; i++)
        fl__unlock(e, &group->followers[i].lock);
}

void fl__group_want(const struct atomic_group *group, fl_store_want *wants)
{
    for (size_t i = 0; i < group->count; i++)
        wants[i].id = group->followers[i].key;
}

/* The store has said that the followers were filed. A load may have brought some of them. */
void fl__group_found(fl_engine *e, const struct atomic_group *group, const fl_store_want *wants)
{
    fl__group_count(e, group);
    for (size_t i = 0; i < group->count && e->state == ENGINE_RUNNING; i++)
        if (wants[i].found)
            fl__doubt_take_in(e, &wants[i].row);
}

bool fl__group_has(const struct atomic_group *group, uint64_t seq)
{
    for (size_t i = 0; group && i < group->count; i++)
        if (group->followers[i].key.seq == seq)
            return true;
    return false;
}
