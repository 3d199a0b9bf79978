/* SPDX-License-Identifier: MIT */
/* Operations on the same name, or on the same row, one after the other.
 *
 * An operation by name holds the name from beginning to end, so that nobody else creates it between the look and the
 * write; one that changes a row holds the row; one about a dead letter holds that first. Who holds a row never waits for a
 * name, and who holds a name never for a dead letter, so nobody waits in a circle. Two names
 * with the same hash wait for each other without need, which is harmless.
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
    lock->held = true;
    fl__hash_insert(locks, &lock->link, fl__hash_number(lock->key));
}

/* Returns true if the lock is held now; else `granted` is called when it is. */
bool fl__lock(fl_engine *e, struct lock *lock, uint64_t key, void (*granted)(fl_engine *, struct lock *))
{
    struct lock *other = holder(&e->locks, key);
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
    STAILQ_REMOVE_HEAD(&lock->waiting, next);
    STAILQ_CONCAT(&heir->waiting, &lock->waiting);
    hold(&e->locks, heir);
    heir->granted(e, heir);
}

bool fl__is_locked(const fl_engine *e, uint64_t key)
{
    return holder(&e->locks, key) != NULL;
}
