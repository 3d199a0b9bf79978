/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_INBOX_H
#define FOLIOT_LOOP_INBOX_H

/* Where other threads reach the loop: a stack of tasks whose head also says whether the loop sleeps.
 *
 * The stack is that of base/queue.h. Before the loop sleeps, it swaps an empty head for the mark INBOX_ASLEEP or
 * INBOX_POLLING. That fails if a task is there, so the loop does not sleep while a task waits. The push that replaces a mark
 * wakes the loop: one wake-up for any number of posts. ASLEEP means that the loop waits on the head itself as a futex; no
 * task has an address whose low half is a mark. POLLING means that the loop waits in epoll for `wake_fd`. To stop the loop,
 * a thread first sets `stop` and then takes the mark away from the head; the loop first sets the mark and then reads
 * `stop`. These four accesses are sequentially consistent, so one of the two sees the other.
 *
 * Tasks that are not the caller's are cut from blocks of TASKS_OF_BLOCK. `cut` says from where: the address of a block,
 * and in its low bits, which alignment leaves free, the next task that is free; 0 if all are taken. A thread takes one by
 * compare-and-swap. If the same word comes back in between, it does no harm: a block that is in `cut` has a task left, so it
 * is not given back, and the task that the word names is free. Only the loop gives tasks back, so a block's count of them
 * needs no care; the block goes with the last, or is kept as a spare one.
 *
 * Freeing: what a thread sent may have arrived, and the loop may be freed because of it, before that thread has made its
 * wake-up call. The loop knows how often its mark was taken away (`woken`, its own count), the threads count the calls
 * they have finished (`wakeups`) as the last thing they do, and stops are counted while they run. fl_loop_free() waits
 * until the counts agree.
 */

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <foliot/loop.h>

#include "base/alloc.h"
#include "base/queue.h"

#define INBOX_ASLEEP ((fl_loop_task *)2)
#define INBOX_POLLING ((fl_loop_task *)3)

enum {
    TASK_BLOCK_BYTES = 1 << 16,
    TASKS_OF_BLOCK = TASK_BLOCK_BYTES / sizeof(fl_loop_task) - 1,
    TASK_NUMBER_SHIFT = 8, /* in a task's flags: which one of its block it is, from 1 on; 0 if it is the caller's */
};

/* Aligned to its size. */
struct task_block {
    uint64_t left; /* tasks that have not been given back */
    char unused[24];
    fl_loop_task task[TASKS_OF_BLOCK]; /* the first is number 1 */
};

/* Each is sooner than the one before. */
enum inbox_stop { STOP_NO, STOP_DRAIN, STOP_TURN, STOP_NOW };

/* Threads that post keep writing to `cut`, they and the loop to the head, and the loop reads the rest after every callback:
 * none shares a cache line with another. */
struct inbox {
    char before[CACHE_LINE];
    atomic_uintptr_t cut; /* where to take the next task from */
    _Atomic(struct task_block *) spare;
    atomic_uint blocks; /* how many there are */
    char between[CACHE_LINE];
    _Atomic(fl_loop_task *) head; /* the newest task, NULL, INBOX_ASLEEP or INBOX_POLLING */
    atomic_ullong wakeups;        /* finished wake-up calls */
    char after[CACHE_LINE];
    atomic_int stop;      /* enum inbox_stop */
    atomic_uint stopping; /* threads that are inside fl__loop_inbox_stop() */
    uint64_t woken;       /* the loop's own: how often it found its mark taken away */
    int wake_fd;          /* an eventfd; set before the head is INBOX_POLLING for the first time */
};

FL__QUEUE(task_list, fl_loop_task);

/* --- for any thread */

/* Makes a task. NULL: no memory. */
fl_loop_task *fl__loop_inbox_task(struct inbox *inbox, fl_loop_fn fn, void *arg, unsigned flags);

void fl__loop_inbox_post(struct inbox *inbox, fl_loop_task *task);
void fl__loop_inbox_stop(struct inbox *inbox, enum inbox_stop how);

/* --- for the loop's thread */

void fl__loop_inbox_init(struct inbox *inbox);

/* In the child of a fork, where there are no other threads. */
void fl__loop_inbox_after_fork(struct inbox *inbox);

/* Waits until no other thread is inside anymore. */
void fl__loop_inbox_close(struct inbox *inbox);

/* When it is closed and all tasks were given back: the blocks that are left. */
void fl__loop_inbox_destroy(struct inbox *inbox);

/* Any thread: no task of the block is in use. */
void fl__loop_inbox_release_block(struct inbox *inbox, struct task_block *block);

/* Puts the mark into the head: false if there is a task or a stop, and the loop must not sleep. */
bool fl__loop_inbox_sleep(struct inbox *inbox, fl_loop_task *mark);

/* Takes the mark back, unless another thread has taken it away. */
void fl__loop_inbox_awake(struct inbox *inbox);

/* Waits on the head until a wake-up, a signal, or `deadline_ns` of CLOCK_MONOTONIC (NEVER: for ever); it may end
 * before that for no reason. The head must be INBOX_ASLEEP, or have been. */
void fl__loop_inbox_wait(struct inbox *inbox, uint64_t deadline_ns);

/* Takes all tasks, oldest first, to the ends of two lists. */
void fl__loop_inbox_take(struct inbox *inbox, struct task_list *urgent, struct task_list *others);

/* Counts the tasks from `first` on, which may be the head of an inbox. Takes time in proportion to them. */
void fl__loop_tasks_count(const fl_loop_task *first, uint64_t *urgent, uint64_t *others);

/* What was allocated for tasks. */
uint64_t fl__loop_inbox_bytes(const struct inbox *inbox);

static inline bool inbox_is_mark(const fl_loop_task *head)
{
    return head && fl__stack_is_mark(head);
}

static inline bool inbox_empty(const struct inbox *inbox)
{
    return fl__stack_is_mark(atomic_load_explicit(&inbox->head, memory_order_relaxed));
}

static inline enum inbox_stop inbox_stop(const struct inbox *inbox)
{
    return (enum inbox_stop)atomic_load_explicit(&inbox->stop, memory_order_relaxed);
}

/* Gives a task back, unless it is the caller's. */
static inline void inbox_release(struct inbox *inbox, fl_loop_task *task)
{
    unsigned number = task->flags >> TASK_NUMBER_SHIFT;
    if (number == 0)
        return;
    struct task_block *block = (struct task_block *)((char *)task - number * sizeof(*task));
    if (__builtin_expect(--block->left == 0, 0))
        fl__loop_inbox_release_block(inbox, block);
}

static inline fl_loop_task *task_list_pop(struct task_list *list)
{
    fl_loop_task *task = fl__queue_pop(list);
    assert(task);
    __builtin_prefetch(list->first);
    return task;
}

#endif
