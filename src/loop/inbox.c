/* SPDX-License-Identifier: MIT */
/* Posting, waking and taking: see inbox.h for the design and why it is correct. */

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/moment.h"
#include "loop/inbox.h"

_Static_assert(sizeof(void *) == 8, "the futex is one half of a pointer");

/* The half of the head in which the marks differ from each other and from every address. */
static uint32_t *futex_word(struct inbox *inbox)
{
    return (uint32_t *)&inbox->head + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

static void wake(struct inbox *inbox, const fl_loop_task *mark)
{
    assert(inbox_is_mark(mark));
    int saved = errno;
    if (mark == INBOX_ASLEEP) {
        syscall(SYS_futex, futex_word(inbox), FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    } else {
        ssize_t n = write(inbox->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
        (void)n; /* it can only fail when 2^64 - 2 wake-ups are waiting to be seen */
    }
    errno = saved;
    atomic_fetch_add_explicit(&inbox->wakeups, 1, memory_order_release); /* the last access: the loop may go now */
}

/* A task's number is where it lies in its block, and the next one that is free fits below the block's alignment. */
_Static_assert(offsetof(struct task_block, task) == sizeof(fl_loop_task), "the first task has another number");
_Static_assert(sizeof(struct task_block) == TASK_BLOCK_BYTES, "a block has a bad size");

static struct task_block *new_block(struct inbox *inbox)
{
    struct task_block *block = atomic_exchange_explicit(&inbox->spare, NULL, memory_order_acquire);
    if (block)
        return block;
    block = fl__map(sizeof(*block));
    if (block)
        atomic_fetch_add_explicit(&inbox->blocks, 1, memory_order_relaxed);
    return block;
}

void fl__loop_inbox_release_block(struct inbox *inbox, struct task_block *block)
{
    assert(block->left == 0 || block->left == TASKS_OF_BLOCK);
    struct task_block *none = NULL;
    if (atomic_compare_exchange_strong_explicit(&inbox->spare, &none, block, memory_order_release,
                                                memory_order_relaxed))
        return;
    atomic_fetch_sub_explicit(&inbox->blocks, 1, memory_order_relaxed);
    fl__unmap(block, sizeof(*block));
}

/* Provides a block to cut from, unless another thread was faster. Returns false if there is no memory. */
static __attribute__((noinline)) bool add_block(struct inbox *inbox)
{
    struct task_block *block = new_block(inbox);
    uintptr_t none = 0;
    if (!block)
        return false;
    block->left = TASKS_OF_BLOCK;
    if (!atomic_compare_exchange_strong_explicit(&inbox->cut, &none, (uintptr_t)block + 1, memory_order_acq_rel,
                                                 memory_order_relaxed))
        fl__loop_inbox_release_block(inbox, block);
    return true;
}

fl_loop_task *fl__loop_inbox_task(struct inbox *inbox, fl_loop_fn fn, void *arg, unsigned flags)
{
    uintptr_t cut = atomic_load_explicit(&inbox->cut, memory_order_relaxed), number, next;
    do {
        while (__builtin_expect(cut == 0, 0)) {
            if (!add_block(inbox))
                return NULL;
            cut = atomic_load_explicit(&inbox->cut, memory_order_relaxed);
        }
        number = cut & (TASK_BLOCK_BYTES - 1);
        next = number == TASKS_OF_BLOCK ? 0 : cut + 1;
    } while (
        !atomic_compare_exchange_weak_explicit(&inbox->cut, &cut, next, memory_order_acq_rel, memory_order_relaxed));
    fl_loop_task *task = (fl_loop_task *)(cut - number) + number;
    *task = (fl_loop_task){NULL, fn, arg, flags | (unsigned)number << TASK_NUMBER_SHIFT};
    return task;
}

void fl__loop_inbox_destroy(struct inbox *inbox)
{
    assert(inbox_empty(inbox));
    uintptr_t cut = atomic_load(&inbox->cut);
    struct task_block *spare = atomic_load(&inbox->spare);
    if (cut != 0)
        fl__unmap((struct task_block *)(cut & ~(uintptr_t)(TASK_BLOCK_BYTES - 1)), TASK_BLOCK_BYTES);
    if (spare)
        fl__unmap(spare, TASK_BLOCK_BYTES);
}

uint64_t fl__loop_inbox_bytes(const struct inbox *inbox)
{
    return (uint64_t)atomic_load_explicit(&inbox->blocks, memory_order_relaxed) * TASK_BLOCK_BYTES;
}

void fl__loop_inbox_post(struct inbox *inbox, fl_loop_task *task)
{
    const fl_loop_task *head = fl__stack_push(&inbox->head, task);
    if (inbox_is_mark(head))
        wake(inbox, head);
}

void fl__loop_inbox_stop(struct inbox *inbox, enum inbox_stop how)
{
    assert(how > STOP_NO && how <= STOP_NOW);
    atomic_fetch_add(&inbox->stopping, 1);
    int old = atomic_load(&inbox->stop);
    while (old < (int)how && !atomic_compare_exchange_weak(&inbox->stop, &old, (int)how))
        ;
    fl_loop_task *head = atomic_load(&inbox->head);
    if (inbox_is_mark(head) && atomic_compare_exchange_strong(&inbox->head, &head, NULL))
        wake(inbox, head);
    atomic_fetch_sub(&inbox->stopping, 1);
}

void fl__loop_inbox_init(struct inbox *inbox)
{
    *inbox = (struct inbox){.wake_fd = -1};
}

void fl__loop_inbox_after_fork(struct inbox *inbox)
{
    if (inbox_is_mark(atomic_load(&inbox->head)))
        atomic_store(&inbox->head, NULL);
    atomic_store(&inbox->stopping, 0);
    atomic_store(&inbox->wakeups, inbox->woken);
}

void fl__loop_inbox_close(struct inbox *inbox)
{
    while (atomic_load(&inbox->wakeups) != inbox->woken || atomic_load(&inbox->stopping) != 0)
        sched_yield();
}

bool fl__loop_inbox_sleep(struct inbox *inbox, fl_loop_task *mark)
{
    assert(inbox_is_mark(mark) && (mark != INBOX_POLLING || inbox->wake_fd >= 0));
    fl_loop_task *head = NULL;
    if (!atomic_compare_exchange_strong(&inbox->head, &head, mark))
        return false;
    if (atomic_load(&inbox->stop) == STOP_NO)
        return true;
    fl__loop_inbox_awake(inbox);
    return false;
}

void fl__loop_inbox_awake(struct inbox *inbox)
{
    fl_loop_task *head = atomic_load(&inbox->head);
    if (!inbox_is_mark(head) || !atomic_compare_exchange_strong(&inbox->head, &head, NULL))
        inbox->woken++;
}

void fl__loop_inbox_wait(struct inbox *inbox, uint64_t deadline_ns)
{
    struct timespec deadline = {(time_t)(deadline_ns / 1000000000), (long)(deadline_ns % 1000000000)};
    syscall(SYS_futex, futex_word(inbox), FUTEX_WAIT_BITSET_PRIVATE, (uint32_t)(uintptr_t)INBOX_ASLEEP,
            deadline_ns == NEVER ? NULL : &deadline, NULL, FUTEX_BITSET_MATCH_ANY);
}

void fl__loop_inbox_take(struct inbox *inbox, struct task_list *urgent, struct task_list *others)
{
    fl_loop_task *task = inbox_empty(inbox) ? NULL : fl__stack_take(&inbox->head), *newer;
    for (; task; task = newer) {
        struct task_list *list = task->flags & FL_TASK_URGENT ? urgent : others;
        newer = task->next;
        fl__queue_append(list, task);
    }
}

void fl__loop_tasks_count(const fl_loop_task *first, uint64_t *urgent, uint64_t *others)
{
    for (const fl_loop_task *task = first; task && !inbox_is_mark(task); task = task->next)
        *(task->flags & FL_TASK_URGENT ? urgent : others) += 1;
}
