/* SPDX-License-Identifier: MIT */
/* Waiting for descriptors.
 *
 * The worker's loop has a descriptor once, so the host keeps a list of waiters for each and asks the loop for all that
 * they want together. A waiter is on the heap, because the stack of the coroutine is not there while it waits. It is in
 * the list until its events come, or until the coroutine takes it out because the time is up. When a scheduler
 * moves to another worker, its waiters go along and ask the new loop; if that refuses, the wait ends with its error.
 * A waiter whose wait has ended is in a list of its scheduler until its coroutine runs, which may be never: then it is
 * freed with the scheduler.
 */

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "coro/internal.h"

enum { ASKABLE = FL_READ | FL_WRITE | FL_HANGUP };

struct waiter {
    struct waiter *next, **link;
    struct fl_coro *coro;
    struct host *host; /* in whose list it is; NULL: in none */
    int fd;
    unsigned events;
    int result; /* what is ready, or an error; 0: nothing yet */
};

/* --- Lists */

static unsigned wanted(const struct host *host, int fd)
{
    unsigned events = 0;
    for (const struct waiter *waiter = host->waiters[fd]; waiter; waiter = waiter->next)
        events |= waiter->events;
    return events;
}

static void link_waiter(struct waiter **head, struct waiter *waiter)
{
    waiter->next = *head;
    waiter->link = head;
    if (waiter->next)
        waiter->next->link = &waiter->next;
    *head = waiter;
}

static void unlink_waiter(struct waiter *waiter)
{
    *waiter->link = waiter->next;
    if (waiter->next)
        waiter->next->link = waiter->link;
    waiter->host = NULL;
}

static int make_room(struct host *host, int fd)
{
    uint32_t capacity = host->waiters_capacity ? host->waiters_capacity : 64;
    if ((uint32_t)fd < host->waiters_capacity)
        return 0;
    if (fcntl(fd, F_GETFD) < 0) /* no memory for a number that means nothing */
        return FL_INVALID_ARGUMENT;
    while (capacity <= (uint32_t)fd)
        capacity *= 2;
    struct waiter **waiters = fl__alloc_zeroed(capacity * sizeof(struct waiter *));
    if (!waiters)
        return FL_NO_MEMORY;
    for (uint32_t i = 0; i < host->waiters_capacity; i++) {
        waiters[i] = host->waiters[i];
        if (waiters[i])
            waiters[i]->link = &waiters[i];
    }
    fl__release(host->waiters);
    host->waiters = waiters;
    host->waiters_capacity = capacity;
    return 0;
}

/* --- The loop */

/* Asks the loop for what is still wanted after waiters have gone. */
static void ask_for_less(struct host *host, int fd)
{
    fl_loop *loop = fl__worker_loop(host->worker);
    if (host->waiters[fd])
        fl_loop_fd_modify(loop, fd, wanted(host, fd));
    else
        fl_loop_fd_remove(loop, fd);
}

/* The waiter is in no list. */
static void end_wait(struct waiter *waiter, int result)
{
    waiter->result = result;
    link_waiter(&waiter->coro->sched->answered, waiter);
    fl__sched_end_wait(waiter->coro);
}

static void on_ready(fl_loop *loop, int fd, unsigned events, void *arg)
{
    (void)loop;
    struct host *host = arg;
    for (struct waiter *waiter = host->waiters[fd], *next; waiter; waiter = next) {
        next = waiter->next;
        unsigned ready = events & (waiter->events | FL_ERROR | FL_HANGUP);
        if (!ready)
            continue;
        unlink_waiter(waiter);
        end_wait(waiter, (int)ready);
    }
    ask_for_less(host, fd);
}

static int enter(struct host *host, struct waiter *waiter)
{
    fl_loop *loop = fl__worker_loop(host->worker);
    int r = make_room(host, waiter->fd);
    if (r < 0)
        return r;
    if (host->waiters[waiter->fd])
        r = fl_loop_fd_modify(loop, waiter->fd, wanted(host, waiter->fd) | waiter->events);
    else
        r = fl_loop_fd_add(loop, waiter->fd, waiter->events, on_ready, host);
    if (r < 0)
        return r;
    link_waiter(&host->waiters[waiter->fd], waiter);
    waiter->host = host;
    return 0;
}

static void leave(struct waiter *waiter)
{
    struct host *host = waiter->host;
    unlink_waiter(waiter);
    if (host)
        ask_for_less(host, waiter->fd);
}

/* --- Moving */

void fl__waiters_leave(struct host *host, struct sched *sched)
{
    for (uint32_t fd = 0; fd < host->waiters_capacity; fd++) {
        bool some = false;
        for (struct waiter *waiter = host->waiters[fd], *next; waiter; waiter = next) {
            next = waiter->next;
            if (waiter->coro->sched != sched)
                continue;
            some = true;
            unlink_waiter(waiter);
            link_waiter(&sched->moving, waiter);
        }
        if (some)
            ask_for_less(host, (int)fd);
    }
}

void fl__waiters_arrive(struct host *host, struct sched *sched)
{
    while (sched->moving) {
        struct waiter *waiter = sched->moving;
        unlink_waiter(waiter);
        int r = enter(host, waiter);
        if (r < 0)
            end_wait(waiter, r);
    }
}

void fl__waiters_free(struct host *host)
{
    fl__release(host->waiters);
}

static void drop_all(struct waiter *waiter)
{
    while (waiter) {
        struct waiter *next = waiter->next;
        fl__release(waiter);
        waiter = next;
    }
}

void fl__waiters_drop(struct sched *sched)
{
    drop_all(sched->moving);
    drop_all(sched->answered);
}

/* --- Waiting */

static int wait_here(struct sched *sched, struct waiter *waiter, uint64_t deadline_ns)
{
    int r = enter(sched->host, waiter);
    if (r < 0)
        return r;
    r = fl__sched_suspend_until(sched, deadline_ns);
    leave(waiter);
    return r < 0 ? r : waiter->result;
}

static int wait_as_coroutine(struct sched *sched, int fd, unsigned events, uint64_t deadline_ns)
{
    struct waiter *waiter = fl__alloc_zeroed(sizeof(*waiter));
    if (!waiter)
        return FL_NO_MEMORY;
    waiter->coro = sched->running;
    waiter->fd = fd;
    waiter->events = events;
    int r = wait_here(sched, waiter, deadline_ns);
    fl__release(waiter);
    return r;
}

static short to_poll(unsigned events)
{
    return (short)((events & FL_READ ? POLLIN : 0) | (events & FL_WRITE ? POLLOUT : 0) |
                   (events & FL_HANGUP ? POLLRDHUP : 0));
}

/* After an error or a hang-up a read or write does not block either, and tells what happened. */
static int from_poll(int events)
{
    bool over = events & (POLLERR | POLLHUP);
    if (events & POLLNVAL)
        return FL_INVALID_ARGUMENT;
    return (events & POLLIN || over ? FL_READ : 0) | (events & POLLOUT || over ? FL_WRITE : 0) |
           (events & POLLERR ? FL_ERROR : 0) | (events & (POLLHUP | POLLRDHUP) ? FL_HANGUP : 0);
}

static int wait_as_thread(int fd, unsigned events, uint64_t deadline_ns)
{
    struct pollfd entry = {fd, to_poll(events), 0};
    int n;
    do {
        uint64_t now_ns = fl_coro_now_ns(), left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
        struct timespec left = {(time_t)(left_ns / 1000000000), (long)(left_ns % 1000000000)};
        n = ppoll(&entry, 1, deadline_ns == NEVER ? NULL : &left, NULL);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return FL_SYSTEM;
    int ready = from_poll(entry.revents);
    return ready < 0 ? ready : ready & (int)(events | FL_ERROR | FL_HANGUP);
}

int fl_coro_wait_fd(int fd, unsigned events, uint64_t timeout_ns)
{
    if (fd < 0 || events & ~(unsigned)ASKABLE)
        return FL_INVALID_ARGUMENT;
    struct sched *sched = fl__sched_current();
    uint64_t now_ns = fl_coro_now_ns(), deadline_ns = NEVER;
    if (timeout_ns <= TIME_MAX - now_ns)
        deadline_ns = now_ns + timeout_ns;
    if (sched && timeout_ns > 0)
        return wait_as_coroutine(sched, fd, events, deadline_ns);
    return wait_as_thread(fd, events, timeout_ns > 0 ? deadline_ns : 0);
}
