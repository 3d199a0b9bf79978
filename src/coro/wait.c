/* SPDX-License-Identifier: MIT */
/* Waiting for descriptors.
 *
 * The worker's loop has a descriptor once, so the host keeps the waiters of each and asks the loop for all that they want
 * together. They are in eight lists, one for each union of events that can be asked for: what has happened concerns all
 * of a list or none of it, so a wait takes no longer because of waiters for other events. The loop hears of it only when
 * the union of all changes.
 *
 * A waiter is on the heap, because the stack of the coroutine is not there while it waits. It is in a list until its
 * events come, or until the coroutine takes it out because the time is up; then the coroutine looks once more, as the
 * loop may not have had its turn since the descriptor became ready. When a scheduler moves to another worker, its
 * waiters go along and ask the new loop; if that refuses, the wait ends with its error. A waiter whose wait has ended is
 * in a list of its scheduler until its coroutine runs, which may be never: then it is freed with the scheduler.
 */

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "coro/coro.h"

enum {
    ASKABLE = FL_READ | FL_WRITE | FL_HANGUP,
    KINDS = 8,
};

struct coro_waiter {
    struct coro_waiter *next, **link;
    struct fl_coro *coro;
    struct coro_host *host; /* in whose list it is; NULL: in none */
    int fd;
    unsigned events;
    int result; /* what is ready, or an error; 0: nothing yet */
};

struct watched {
    struct coro_waiter *waiters[KINDS];
    unsigned asked; /* of the loop */
};

/* --- Looking */

static short to_poll(unsigned events)
{
    return (short)((events & FL_READ ? POLLIN : 0) | (events & FL_WRITE ? POLLOUT : 0) |
                   (events & FL_HANGUP ? POLLRDHUP : 0));
}

/* After an error or a hang-up a read or write does not block either, and tells what happened. */
static int from_poll(int events, unsigned wanted)
{
    bool over = events & (POLLERR | POLLHUP);
    if (events & POLLNVAL)
        return FL_INVALID_ARGUMENT;
    unsigned asked = (events & POLLIN || over ? FL_READ : 0u) | (events & POLLOUT || over ? FL_WRITE : 0u);
    return (int)((asked & wanted) | (events & POLLERR ? FL_ERROR : 0u) |
                 (events & (POLLHUP | POLLRDHUP) ? FL_HANGUP : 0u));
}

/* What is ready now, or an error. */
static int look(int fd, unsigned events)
{
    struct pollfd entry = {fd, to_poll(events), 0};
    while (poll(&entry, 1, 0) < 0)
        if (errno != EINTR)
            return FL_SYSTEM;
    return from_poll(entry.revents, events);
}

/* --- Lists */

static unsigned kind_of(unsigned events)
{
    return (events & (FL_READ | FL_WRITE)) | (events & FL_HANGUP ? 4u : 0u);
}

static unsigned events_of(unsigned kind)
{
    return (kind & (FL_READ | FL_WRITE)) | (kind & 4 ? FL_HANGUP : 0u);
}

/* False: there is no waiter. */
static bool wanted(const struct watched *watched, unsigned *ret)
{
    bool some = false;
    *ret = 0;
    for (unsigned kind = 0; kind < KINDS; kind++)
        if (watched->waiters[kind]) {
            some = true;
            *ret |= events_of(kind);
        }
    return some;
}

static void link_waiter(struct coro_waiter **head, struct coro_waiter *waiter)
{
    waiter->next = *head;
    waiter->link = head;
    if (waiter->next)
        waiter->next->link = &waiter->next;
    *head = waiter;
}

static void unlink_waiter(struct coro_waiter *waiter)
{
    assert(*waiter->link == waiter);
    *waiter->link = waiter->next;
    if (waiter->next)
        waiter->next->link = waiter->link;
    waiter->host = NULL;
}

static void move_watched(struct watched *to, const struct watched *from)
{
    *to = *from;
    for (unsigned kind = 0; kind < KINDS; kind++)
        if (to->waiters[kind])
            to->waiters[kind]->link = &to->waiters[kind];
}

static int make_room(struct coro_host *host, int fd)
{
    uint32_t capacity = host->watched_capacity ? host->watched_capacity : 64;
    if ((uint32_t)fd < host->watched_capacity)
        return 0;
    if (fcntl(fd, F_GETFD) < 0) /* no memory for a number that means nothing */
        return FL_INVALID_ARGUMENT;
    while (capacity <= (uint32_t)fd)
        capacity *= 2;
    struct watched *watched = fl__alloc_zeroed(capacity * sizeof(*watched));
    if (!watched)
        return FL_NO_MEMORY;
    for (uint32_t i = 0; i < host->watched_capacity; i++)
        move_watched(&watched[i], &host->watched[i]);
    fl__release(host->watched);
    host->watched = watched;
    host->watched_capacity = capacity;
    return 0;
}

/* --- The loop */

/* Asks the loop for what is still wanted after waiters have gone. */
static void ask_for_less(struct coro_host *host, int fd)
{
    assert((uint32_t)fd < host->watched_capacity);
    fl_loop *loop = fl__worker_loop(host->worker);
    struct watched *watched = &host->watched[fd];
    unsigned events;
    if (!wanted(watched, &events)) {
        fl_loop_fd_remove(loop, fd);
    } else if (events != watched->asked && fl_loop_fd_modify(loop, fd, events) == 0) {
        watched->asked = events;
    }
}

/* The waiter is in no list. */
static void end_wait(struct coro_waiter *waiter, int result)
{
    assert(!waiter->host);
    waiter->result = result;
    link_waiter(&waiter->coro->sched->answered, waiter);
    fl__coro_sched_end_wait(waiter->coro);
}

/* The events that every waiter gets: an error, and a hang-up of both directions. A hang-up that was asked for may be that of
 * one direction. */
static unsigned for_all(const struct watched *watched, int fd, unsigned events)
{
    bool half = events & FL_HANGUP && watched->asked & FL_HANGUP && !(look(fd, 0) & FL_HANGUP);
    return events & (half ? FL_ERROR : FL_ERROR | FL_HANGUP);
}

static void on_ready(fl_loop *loop, int fd, unsigned events, void *arg)
{
    (void)loop;
    struct coro_host *host = arg;
    struct watched *watched = &host->watched[fd];
    unsigned unasked = for_all(watched, fd, events);
    for (unsigned kind = 0; kind < KINDS; kind++) {
        unsigned ready = (events & events_of(kind)) | unasked;
        while (ready && watched->waiters[kind]) {
            struct coro_waiter *waiter = watched->waiters[kind];
            unlink_waiter(waiter);
            end_wait(waiter, (int)ready);
        }
    }
    ask_for_less(host, fd);
}

static int ask_for_more(struct coro_host *host, int fd, unsigned events)
{
    fl_loop *loop = fl__worker_loop(host->worker);
    struct watched *watched = &host->watched[fd];
    unsigned before;
    bool is_new = !wanted(watched, &before);
    if (!is_new && (watched->asked | events) == watched->asked)
        return 0;
    int r = is_new ? fl_loop_fd_add(loop, fd, events, on_ready, host) : fl_loop_fd_modify(loop, fd, before | events);
    if (r < 0)
        return r;
    watched->asked = before | events;
    return 0;
}

static int enter(struct coro_host *host, struct coro_waiter *waiter)
{
    assert(!waiter->host);
    int r = make_room(host, waiter->fd);
    if (r == 0)
        r = ask_for_more(host, waiter->fd, waiter->events);
    if (r < 0)
        return r;
    link_waiter(&host->watched[waiter->fd].waiters[kind_of(waiter->events)], waiter);
    waiter->host = host;
    return 0;
}

static void leave(struct coro_waiter *waiter)
{
    struct coro_host *host = waiter->host;
    unlink_waiter(waiter);
    if (host)
        ask_for_less(host, waiter->fd);
}

/* --- Moving */

/* Takes the scheduler's waiters out of a list; true if there were any. */
static bool take_out(struct coro_waiter *waiter, struct coro_sched *sched)
{
    bool some = false;
    for (struct coro_waiter *next; waiter; waiter = next) {
        next = waiter->next;
        if (waiter->coro->sched != sched)
            continue;
        some = true;
        unlink_waiter(waiter);
        link_waiter(&sched->moving, waiter);
    }
    return some;
}

void fl__coro_waiters_leave(struct coro_host *host, struct coro_sched *sched)
{
    for (uint32_t fd = 0; fd < host->watched_capacity; fd++) {
        bool some = false;
        for (unsigned kind = 0; kind < KINDS; kind++)
            some = take_out(host->watched[fd].waiters[kind], sched) || some;
        if (some)
            ask_for_less(host, (int)fd);
    }
}

void fl__coro_waiters_arrive(struct coro_host *host, struct coro_sched *sched)
{
    while (sched->moving) {
        struct coro_waiter *waiter = sched->moving;
        unlink_waiter(waiter);
        int r = enter(host, waiter);
        if (r < 0)
            end_wait(waiter, r);
    }
}

void fl__coro_waiters_free(struct coro_host *host)
{
    fl__release(host->watched);
}

static void drop_all(struct coro_waiter *waiter)
{
    while (waiter) {
        struct coro_waiter *next = waiter->next;
        fl__release(waiter);
        waiter = next;
    }
}

void fl__coro_waiters_drop(struct coro_sched *sched)
{
    drop_all(sched->moving);
    drop_all(sched->answered);
}

/* --- Waiting */

static int wait_here(struct coro_sched *sched, struct coro_waiter *waiter, uint64_t deadline_ns)
{
    int r = enter(sched->host, waiter);
    if (r < 0)
        return r;
    bool time_is_up = fl__coro_sched_suspend_until(sched, deadline_ns);
    leave(waiter);
    return time_is_up && waiter->result == 0 ? look(waiter->fd, waiter->events) : waiter->result;
}

/* Plain files cannot be watched by the loop, because they are always ready: looking is enough. */
static int wait_as_coroutine(struct coro_sched *sched, int fd, unsigned events, uint64_t deadline_ns)
{
    struct coro_waiter *waiter = fl__alloc_zeroed(sizeof(*waiter));
    if (!waiter)
        return FL_NO_MEMORY;
    waiter->coro = sched->running;
    waiter->fd = fd;
    waiter->events = events;
    int r = wait_here(sched, waiter, deadline_ns);
    fl__release(waiter);
    if (r != FL_INVALID_ARGUMENT)
        return r;
    r = look(fd, events);
    return r == 0 ? FL_INVALID_ARGUMENT : r;
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
    return n < 0 ? FL_SYSTEM : from_poll(entry.revents, events);
}

int fl_coro_wait_fd(int fd, unsigned events, uint64_t timeout_ns)
{
    if (fd < 0 || events & ~(unsigned)ASKABLE)
        return FL_INVALID_ARGUMENT;
    if (timeout_ns == 0)
        return look(fd, events);
    struct coro_sched *sched = fl__coro_sched_current();
    uint64_t deadline_ns = add_time(fl_coro_now_ns(), timeout_ns);
    return sched ? wait_as_coroutine(sched, fd, events, deadline_ns) : wait_as_thread(fd, events, deadline_ns);
}
