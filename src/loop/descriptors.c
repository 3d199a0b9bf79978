/* SPDX-License-Identifier: MIT */
/* Descriptors: a table by number, and an epoll instance that mirrors it.
 *
 * What is ready is looked for when the loop goes to sleep, and again before the callbacks if anything was called in
 * between: a timer may have read from a descriptor, and a callback that reads from it once more would block.
 *
 * Each time a descriptor is added it gets a generation that no other has had, and the kernel hands back number and
 * generation with every event. Callbacks run after all events were collected, so a descriptor may by then have been
 * removed, or closed and its number used anew: the generation no longer fits and the event is dropped.
 *
 * A program that closes a descriptor without removing it first leaves a stale entry if another descriptor shares the open file
 * (dup, fork): the kernel goes on reporting it, under a number through which it can no longer be removed. Such an event
 * has a generation that was dead before it was collected. The only cure is to start a new epoll instance with what is in
 * the table; it happens as soon as a stale entry is seen, for it would keep the loop from sleeping.
 */

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "loop/internal.h"

#ifndef SYS_epoll_pwait2 /* headers before Linux 5.11; the number is the same on all architectures but alpha */
#define SYS_epoll_pwait2 441
#endif

enum {
    ASKABLE = FL_READ | FL_WRITE | FL_HANGUP | FL_PRIORITY,
    OWN_FDS = 2, /* in the epoll instance: the timer and the wake-up */
};

static int error_of_errno(void)
{
    switch (errno) {
    case ENOMEM:
        return FL_NO_MEMORY;
    case EMFILE:
    case ENFILE:
    case ENOSPC:
        return FL_CAPACITY_EXCEEDED;
    case EEXIST:
        return FL_EXISTS;
    default: /* EBADF, EPERM, ELOOP, EINVAL, ENOENT: not open, or of a kind that cannot be waited for */
        return FL_INVALID_ARGUMENT;
    }
}

static void close_if_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

void fl__loop_poller_init(struct poller *poller)
{
    *poller = (struct poller){.epoll_fd = -1, .timer_fd = -1, .outer_fd = -1};
}

void fl__loop_poller_destroy(struct poller *poller, int wake_fd)
{
    close_if_open(poller->epoll_fd);
    close_if_open(poller->timer_fd);
    close_if_open(poller->outer_fd);
    close_if_open(wake_fd);
    fl__release(poller->ready);
    fl__release(poller->watches);
}

/* --- The kernel's copy */

static uint32_t to_epoll(unsigned events)
{
    return (events & FL_READ ? EPOLLIN : 0u) | (events & FL_WRITE ? EPOLLOUT : 0u) |
           (events & FL_HANGUP ? EPOLLRDHUP : 0u) | (events & FL_PRIORITY ? EPOLLPRI : 0u);
}

/* The events that were asked for and have come. After an error or a hang-up, a read or write does not block either, and
 * reports the cause. */
static unsigned from_epoll(uint32_t events, unsigned wanted)
{
    bool over = events & (EPOLLERR | EPOLLHUP);
    unsigned asked = (events & EPOLLIN || over ? FL_READ : 0u) | (events & EPOLLOUT || over ? FL_WRITE : 0u) |
                     (events & EPOLLRDHUP ? FL_HANGUP : 0u) | (events & EPOLLPRI ? FL_PRIORITY : 0u);
    return (asked & wanted) | (events & EPOLLERR ? FL_ERROR : 0u) | (events & EPOLLHUP ? FL_HANGUP : 0u);
}

static int control(int epoll_fd, int operation, int fd, const struct loop_watch *watch)
{
    assert(epoll_fd >= 0 && watch->generation != 0);
    struct epoll_event event = {to_epoll(watch->events), {.u64 = (uint64_t)watch->generation << 32 | (uint32_t)fd}};
    return epoll_ctl(epoll_fd, operation, fd, &event) == 0 ? 0 : error_of_errno();
}

/* No watch has generation 0: these two only end the wait. */
static bool add_own(int epoll_fd, int fd)
{
    struct epoll_event event = {EPOLLIN | EPOLLET, {.u64 = (uint32_t)fd}};
    return fd >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* The loop's own descriptors. */
struct own_fds {
    int epoll, timer, wake;
};

static void close_own(const struct own_fds *own)
{
    close_if_open(own->epoll);
    close_if_open(own->timer);
    close_if_open(own->wake);
}

static int open_own(struct own_fds *ret)
{
    ret->epoll = epoll_create1(EPOLL_CLOEXEC);
    ret->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    ret->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ret->epoll >= 0 && add_own(ret->epoll, ret->timer) && add_own(ret->epoll, ret->wake))
        return 0;
    int r = error_of_errno();
    close_own(ret);
    return r;
}

static void use_own(fl_loop *loop, const struct own_fds *own)
{
    assert(own->epoll >= 0 && own->timer >= 0 && own->wake >= 0);
    loop->poller.epoll_fd = own->epoll;
    loop->poller.timer_fd = own->timer;
    loop->poller.armed_ns = 0;
    loop->inbox.wake_fd = own->wake;
}

static int open_poller(fl_loop *loop)
{
    struct poller *poller = &loop->poller;
    struct own_fds own;
    if (poller->epoll_fd >= 0)
        return 0;
    if (!poller->ready)
        poller->ready = fl__alloc((loop->budget + OWN_FDS) * sizeof(*poller->ready));
    if (!poller->ready)
        return FL_NO_MEMORY;
    int r = open_own(&own);
    if (r == 0)
        use_own(loop, &own);
    return r;
}

/* Lets outer_fd report what epoll_fd has. */
static bool add_to_outer(int outer_fd, int epoll_fd)
{
    struct epoll_event event = {EPOLLIN, {.u64 = 0}};
    return epoll_ctl(outer_fd, EPOLL_CTL_ADD, epoll_fd, &event) == 0;
}

int fl__loop_poller_open_outer(fl_loop *loop)
{
    struct poller *poller = &loop->poller;
    int r = open_poller(loop);
    if (r < 0 || poller->outer_fd >= 0)
        return r;
    int outer_fd = epoll_create1(EPOLL_CLOEXEC);
    if (outer_fd < 0 || !add_to_outer(outer_fd, poller->epoll_fd)) {
        r = error_of_errno();
        close_if_open(outer_fd);
        return r;
    }
    poller->outer_fd = outer_fd;
    return 0;
}

/* Adds the descriptors that still name the file that they named when they were added: the old instance knows, and what it is
 * told is nothing new. */
static int copy_watches(const struct poller *poller, int epoll_fd)
{
    int r = 0;
    for (uint32_t fd = 0; fd < poller->watches_capacity && r == 0; fd++) {
        const struct loop_watch *watch = &poller->watches[fd];
        if (watch->fn && control(poller->epoll_fd, EPOLL_CTL_MOD, (int)fd, watch) == 0)
            r = control(epoll_fd, EPOLL_CTL_ADD, (int)fd, watch);
    }
    return r;
}

/* The old instance is the parent's, too. */
int fl__loop_poller_after_fork(fl_loop *loop)
{
    struct poller *poller = &loop->poller;
    struct own_fds own, old = {poller->epoll_fd, poller->timer_fd, loop->inbox.wake_fd};
    if (poller->epoll_fd < 0)
        return 0;
    int r = open_own(&own);
    if (r < 0)
        return r;
    r = copy_watches(poller, own.epoll);
    if (r < 0) {
        close_own(&own);
        return r;
    }
    close_own(&old);
    close_if_open(poller->outer_fd);
    poller->outer_fd = -1;
    use_own(loop, &own);
    return 0;
}

/* If the kernel has no room for a new instance, the stale entries stay until it has. */
static void replace_instance(fl_loop *loop)
{
    assert(loop->poller.epoll_fd >= 0);
    struct poller *poller = &loop->poller;
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        return;
    if (add_own(epoll_fd, poller->timer_fd) && add_own(epoll_fd, loop->inbox.wake_fd) &&
        copy_watches(poller, epoll_fd) == 0 && (poller->outer_fd < 0 || add_to_outer(poller->outer_fd, epoll_fd))) {
        if (poller->outer_fd >= 0) /* closing is not enough if the child of a fork has a copy */
            epoll_ctl(poller->outer_fd, EPOLL_CTL_DEL, poller->epoll_fd, NULL);
        close(poller->epoll_fd);
        poller->epoll_fd = epoll_fd;
    } else {
        close(epoll_fd);
    }
}

static struct loop_watch *watch_of_event(const struct poller *poller, const struct epoll_event *event)
{
    uint32_t fd = (uint32_t)event->data.u64, generation = event->data.u64 >> 32;
    struct loop_watch *watch = fd < poller->watches_capacity ? &poller->watches[fd] : NULL;
    return watch && watch->fn && watch->generation == generation ? watch : NULL;
}

/* Some sandboxes refuse system calls that they do not know with EPERM. */
static int wait_for_events(fl_loop *loop, int64_t timeout_ns)
{
    struct poller *poller = &loop->poller;
    int size = (int)loop->budget + OWN_FDS;
    if (timeout_ns <= 0)
        return epoll_wait(poller->epoll_fd, poller->ready, size, timeout_ns < 0 ? -1 : 0);
    struct timespec timeout = {(time_t)(timeout_ns / 1000000000), (long)(timeout_ns % 1000000000)};
    int n = (int)syscall(SYS_epoll_pwait2, poller->epoll_fd, poller->ready, size, &timeout, NULL, 0);
    if (n >= 0 || (errno != ENOSYS && errno != EPERM))
        return n;
    poller->no_brief_waits = true;
    return 0;
}

int fl__loop_poller_poll(fl_loop *loop, int64_t timeout_ns)
{
    struct poller *poller = &loop->poller;
    poller->ready_count = 0;
    poller->polled = true;
    poller->polled_before = fl__loop_calls(loop);
    if (poller->added == 0 && !poller->outside)
        return 0;
    int n = wait_for_events(loop, timeout_ns);
    if (n < 0)
        return errno == EINTR ? 0 : FL_SYSTEM;
    bool stale = false;
    for (int i = 0; i < n; i++) {
        const struct epoll_event *event = &poller->ready[i];
        bool known = watch_of_event(poller, event);
        if (known && poller->ready_count < loop->budget) /* the rest is found again */
            poller->ready[poller->ready_count++] = *event;
        stale = stale || (!known && event->data.u64 >> 32 != 0);
    }
    if (stale)
        replace_instance(loop);
    return 0;
}

int fl__loop_descriptors_take(fl_loop *loop)
{
    const struct poller *poller = &loop->poller;
    bool same = poller->polled && poller->polled_before == fl__loop_calls(loop);
    return same ? 0 : fl__loop_poller_poll(loop, 0);
}

void fl__loop_descriptors_run(fl_loop *loop)
{
    assert(loop->poller.ready_count <= loop->budget);
    struct poller *poller = &loop->poller;
    uint32_t count = poller->ready_count;
    for (uint32_t i = 0; i < count && !fl__loop_interrupted(loop); i++) {
        const struct epoll_event *event = &poller->ready[i];
        const struct loop_watch *watch = watch_of_event(poller, event);
        unsigned events = watch ? from_epoll(event->events, watch->events) : 0;
        if (!events)
            continue;
        loop->counters.descriptors++;
        watch->fn(loop, (int)(uint32_t)event->data.u64, events, watch->arg);
        fl__loop_checkpoint(loop);
    }
    poller->ready_count = 0; /* what a stop left over is still ready and will be found again */
}

/* --- The table */

static struct loop_watch *find(fl_loop *loop, int fd)
{
    struct poller *poller = &loop->poller;
    bool there = fd >= 0 && (uint32_t)fd < poller->watches_capacity && poller->watches[fd].fn;
    return there ? &poller->watches[fd] : NULL;
}

static int make_room(struct poller *poller, int fd)
{
    assert(fd >= 0);
    uint32_t capacity = poller->watches_capacity ? poller->watches_capacity : 16;
    if ((uint32_t)fd < poller->watches_capacity)
        return 0;
    while (capacity <= (uint32_t)fd)
        capacity *= 2;
    struct loop_watch *watches = fl__resize(poller->watches, capacity * sizeof(*watches));
    if (!watches)
        return FL_NO_MEMORY;
    memset(watches + poller->watches_capacity, 0, (capacity - poller->watches_capacity) * sizeof(*watches));
    poller->watches = watches;
    poller->watches_capacity = capacity;
    return 0;
}

/* The kernel decides whether the descriptor is there already: if our table says so and the kernel does not, the file was
 * closed and the number is a new one. */
int fl_loop_fd_add(fl_loop *loop, int fd, unsigned events, fl_loop_fd_fn fn, void *arg)
{
    struct poller *poller = &loop->poller;
    if (!fn || fd < 0 || events & ~(unsigned)ASKABLE)
        return FL_INVALID_ARGUMENT;
    struct loop_watch watch = {.fn = fn, .arg = arg, .events = (uint16_t)events, .generation = poller->generation + 1};
    if (watch.generation == 0)
        watch.generation = 1;
    int r = open_poller(loop);
    if (r == 0)
        r = control(poller->epoll_fd, EPOLL_CTL_ADD, fd, &watch);
    if (r < 0)
        return r;
    r = make_room(poller, fd); /* only now that the kernel has vouched for the number */
    if (r < 0) {
        epoll_ctl(poller->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        return r;
    }
    struct loop_watch *before = &poller->watches[fd];
    poller->added += !before->fn;
    loop->keep_alive += !before->fn || before->unref;
    poller->watches[fd] = watch;
    poller->generation = watch.generation;
    return 0;
}

int fl_loop_fd_modify(fl_loop *loop, int fd, unsigned events)
{
    struct loop_watch *watch = find(loop, fd);
    if (!watch)
        return FL_NOT_FOUND;
    if (events & ~(unsigned)ASKABLE)
        return FL_INVALID_ARGUMENT;
    struct loop_watch changed = *watch;
    changed.events = (uint16_t)events;
    int r = control(loop->poller.epoll_fd, EPOLL_CTL_MOD, fd, &changed);
    if (r == 0)
        *watch = changed;
    return r;
}

int fl_loop_fd_remove(fl_loop *loop, int fd)
{
    struct loop_watch *watch = find(loop, fd);
    if (!watch)
        return FL_NOT_FOUND;
    epoll_ctl(loop->poller.epoll_fd, EPOLL_CTL_DEL, fd, NULL); /* fails if it was closed, which does the same */
    loop->poller.added--;
    loop->keep_alive -= !watch->unref;
    *watch = (struct loop_watch){0};
    return 0;
}

static int set_unref(fl_loop *loop, int fd, bool unref)
{
    struct loop_watch *watch = find(loop, fd);
    if (!watch)
        return FL_NOT_FOUND;
    loop->keep_alive += (uint64_t)watch->unref - unref;
    watch->unref = unref;
    return 0;
}

int fl_loop_fd_ref(fl_loop *loop, int fd)
{
    return set_unref(loop, fd, false);
}

int fl_loop_fd_unref(fl_loop *loop, int fd)
{
    return set_unref(loop, fd, true);
}
