/* SPDX-License-Identifier: MIT */
/* Operations on the same name, or on the same row, one after the other.
 *
 * An operation by name holds the lock of the name from beginning to end, so that no other operation creates the name between
 * its read and its write. An operation that changes a row holds the lock of the row. An operation on a dead letter locks the
 * dead letter first. The order is dead letter, name, row: the holder of a later lock never waits for an earlier one, so
 * there is no deadlock. Operations on two names with the same hash wait for each other without need, which is harmless.
 */

#include "engine/internal.h"

static struct lock *holder(const struct hash_table *locks, uint64_t key)
{
    for (struct hash_link *link = fl__hash_first(locks, fl__hash_number(key)); link; link = fl__hash_next(link)) {
        struct lock *lock = hash_entry(link, struct lock, link);
        if (lock->key == key)
            return lock;
    }
    return NULL;
}

static void hold(struct hash_table *locks, struct lock *lock)
{
    fl__assert(!lock->held);
    lock->held = true;
    fl__hash_insert(locks, &lock->link, fl__hash_number(lock->key));
}

/* Returns true if it has the lock now; else calls `granted` when it gets the lock. */
bool fl__lock(fl_engine *e, struct lock *lock, uint64_t key, void (*granted)(fl_engine *, struct lock *))
{
    struct lock *other = holder(&e->locks, key);
    fl__assert(!other || granted); /* a caller that cannot wait knows that the lock is free */
    fl__assert(!lock->held);
    *lock = (struct lock){.key = key, .granted = granted};
    STAILQ_INIT(&lock->waiting);
    if (other) {
        STAILQ_INSERT_TAIL(&other->waiting, lock, next);
        return false;
    }
    hold(&e->locks, lock);
    return true;
}

void fl__unlock(fl_engine *e, struct lock *lock)
{
    if (!lock->held)
        return;
    fl__hash_remove(&e->locks, &lock->link);
    lock->held = false;
    struct lock *heir = STAILQ_FIRST(&lock->waiting);
    if (!heir)
        return;
    fl__assert(heir->key == lock->key && heir->granted);
    STAILQ_REMOVE_HEAD(&lock->waiting, next);
    STAILQ_CONCAT(&heir->waiting, &lock->waiting);
    hold(&e->locks, heir);
    heir->granted(e, heir);
}

bool fl__is_locked(const fl_engine *e, uint64_t key)
{
    return holder(&e->locks, key) != NULL;
}
