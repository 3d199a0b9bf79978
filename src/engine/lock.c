/* SPDX-License-Identifier: MIT */
/* Operations on the same name, or on the same row, one after the other.
 *
 * An operation by name holds the name from beginning to end, so that nobody else creates it between the look and the
 * write; one that changes a row holds the row; one about a dead letter holds that first. Who holds a row never waits for a
 * name, and who holds a name never for a dead letter, so nobody waits in a circle. Two names
 * with the same hash wait for each other without need, which is harmless.
 */

#include "engine/internal.h"

static struct lock **bucket(const struct locks *locks, uint64_t key)
{
    return &locks->buckets[(key * 0x9e3779b97f4a7c15) >> 32 & (locks->size - 1)];
}

static struct lock *holder(const struct locks *locks, uint64_t key)
{
    struct lock *lock = *bucket(locks, key);
    while (lock && lock->key != key)
        lock = lock->next;
    return lock;
}

static void put(struct locks *locks, struct lock *lock)
{
    struct lock **head = bucket(locks, lock->key);
    lock->next = *head;
    *head = lock;
}

int fl__locks_init(struct locks *locks)
{
    locks->size = 64;
    locks->buckets = fl__alloc_zeroed(locks->size * sizeof(struct lock *));
    return locks->buckets ? 0 : FL_NO_MEMORY;
}

/* Without memory for more buckets, the chains become longer. */
static void grow(struct locks *locks)
{
    struct locks larger = {.size = locks->size * 2};
    larger.buckets = fl__alloc_zeroed(larger.size * sizeof(struct lock *));
    if (!larger.buckets)
        return;
    for (uint32_t i = 0; i < locks->size; i++)
        for (struct lock *lock = locks->buckets[i], *next; lock; lock = next) {
            next = lock->next;
            put(&larger, lock);
        }
    fl__release(locks->buckets);
    locks->buckets = larger.buckets;
    locks->size = larger.size;
}

/* Returns true if the lock is held now; else `granted` is called when it is. */
bool fl__lock(fl_engine *e, struct lock *lock, uint64_t key, void (*granted)(fl_engine *, struct lock *))
{
    struct locks *locks = &e->locks;
    struct lock *other = holder(locks, key);
    *lock = (struct lock){.key = key, .granted = granted};
    if (other) {
        if (other->waiting)
            other->waiting_last->next = lock;
        else
            other->waiting = lock;
        other->waiting_last = lock;
        return false;
    }
    if (locks->count >= locks->size)
        grow(locks);
    lock->held = true;
    locks->count++;
    put(locks, lock);
    return true;
}

void fl__unlock(fl_engine *e, struct lock *lock)
{
    if (!lock->held)
        return;
    struct lock **link = bucket(&e->locks, lock->key), *heir = lock->waiting;
    while (*link != lock)
        link = &(*link)->next;
    *link = lock->next;
    lock->held = false;
    e->locks.count--;
    if (!heir)
        return;
    heir->waiting = heir->next;
    heir->waiting_last = lock->waiting_last;
    heir->held = true;
    e->locks.count++;
    put(&e->locks, heir);
    heir->granted(e, heir);
}

bool fl__is_locked(const fl_engine *e, uint64_t key)
{
    return holder(&e->locks, key) != NULL;
}

void fl__locks_free(struct locks *locks)
{
    fl__release(locks->buckets);
}
