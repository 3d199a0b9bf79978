/* SPDX-License-Identifier: MIT */
/* How the loop waits.
 *
 * Without descriptors it waits on a futex, with the next deadline as an absolute timeout. With descriptors it waits in
 * epoll, where an eventfd stands for other threads. The kernel delays epoll's own timeout by up to 0.1 % of the wait. So
 * only waits of at most BRIEF_NS use it; for the others, an absolute timerfd stands for the next deadline. A wait costs one
 * system call, and arming the timerfd another.
 *
 * The timerfd is armed anew only if it would go off too late. If the next deadline has moved away, as it does when
 * timeouts are pushed ahead by every packet, one wake-up for nothing replaces many system calls. Both descriptors are
 * edge-triggered in epoll, so that neither is ever read.
 *
 * Never early: the kernel ends the wait when CLOCK_MONOTONIC has reached the deadline, and the loop then reads its clock. A
 * wait that ended for another reason is simply repeated: what counts is whether something can run.
 *
 * On a clock that lets time pass by itself (foliot/clock.h), the loop looks whether anything is ready now and otherwise
 * asks the clock to go on.
 */

#include <assert.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>

#include "base/moment.h"
#include "loop/internal.h"

enum { BRIEF_NS = 10000000 };

/* The kernel lets a thread's timed waits end late by its timer slack, 50 us unless changed, so that wake-ups can be bundled.
 * For a loop, its configuration decides about that. One system call per thread turns it off. */
static void set_exact_waits(void)
{
    static _Thread_local bool exact;
    if (!exact)
        prctl(PR_SET_TIMERSLACK, 1);
    exact = true;
}

static void arm_timerfd(struct poller *poller, uint64_t deadline_ns, uint64_t now_ns)
{
    assert(poller->timer_fd >= 0 && deadline_ns > 0);
    if (deadline_ns == NEVER || (now_ns < poller->armed_ns && poller->armed_ns <= deadline_ns))
        return;
    struct itimerspec time = {.it_value = {(time_t)(deadline_ns / 1000000000), (long)(deadline_ns % 1000000000)}};
    if (timerfd_settime(poller->timer_fd, TFD_TIMER_ABSTIME, &time, NULL) == 0)
        poller->armed_ns = deadline_ns;
}

static int wait_in_epoll(fl_loop *loop, uint64_t now_ns, uint64_t deadline_ns)
{
    assert(loop->poller.epoll_fd >= 0 && deadline_ns > now_ns);
    bool brief = deadline_ns - now_ns <= BRIEF_NS && !loop->poller.no_brief_waits;
    if (!brief)
        arm_timerfd(&loop->poller, deadline_ns, now_ns);
    if (!fl__loop_inbox_sleep(&loop->inbox, INBOX_POLLING))
        return fl__loop_poller_poll(loop, 0);
    int r = fl__loop_poller_poll(loop, brief ? (int64_t)(deadline_ns - now_ns) : -1);
    fl__loop_inbox_awake(&loop->inbox);
    return r;
}

/* Waits until `deadline_ns` of CLOCK_MONOTONIC; NEVER: without a limit. */
static int wait_in_kernel(fl_loop *loop, uint64_t now_ns, uint64_t deadline_ns)
{
    assert(deadline_ns > 0);
    set_exact_waits();
    if (loop->poller.added > 0)
        return wait_in_epoll(loop, now_ns, deadline_ns);
    if (!fl__loop_inbox_sleep(&loop->inbox, INBOX_ASLEEP))
        return 0;
    fl__loop_inbox_wait(&loop->inbox, deadline_ns);
    fl__loop_inbox_awake(&loop->inbox);
    return 0;
}

/* Another clock than the machine's counts at the same pace, but from another moment: the kernel is told how long it is from
 * now. The machine's clock is read first, so that the wait ends too early, if anything, and is repeated. Returns what the
 * deadline is on CLOCK_MONOTONIC, and in *ret_now_ns a time that has passed there; 0 if the deadline has passed. */
static uint64_t deadline_of_machine(fl_loop *loop, uint64_t deadline_ns, uint64_t *ret_now_ns)
{
    fl_clock *machine = fl_clock_monotonic();
    *ret_now_ns = loop->read_ns;
    if (loop->clock == machine || deadline_ns == NEVER)
        return deadline_ns;
    *ret_now_ns = machine->now_ns(machine);
    uint64_t now_ns = fl__loop_read_clock(loop);
    return now_ns < deadline_ns ? add_time(*ret_now_ns, deadline_ns - now_ns) : 0;
}

static int wait_on_clock(fl_loop *loop, uint64_t deadline_ns)
{
    uint64_t now_ns;
    deadline_ns = deadline_of_machine(loop, deadline_ns, &now_ns);
    return deadline_ns > 0 ? wait_in_kernel(loop, now_ns, deadline_ns) : fl__loop_poller_poll(loop, 0);
}

/* Whether another thread or a descriptor needs the loop. */
static bool called_for(const fl_loop *loop)
{
    return loop->poller.ready_count > 0 || !inbox_empty(&loop->inbox) || inbox_stop(&loop->inbox) != STOP_NO;
}

static int pass_time(fl_loop *loop, bool timed, uint64_t deadline_ns)
{
    if (!loop->clock->wait_until || !timed)
        return wait_on_clock(loop, deadline_ns);
    loop->clock->wait_until(loop->clock, deadline_ns);
    return fl__loop_poller_poll(loop, 0);
}

/* When the loop must turn because of timers or of fl__loop_run_until(). Returns false, and NEVER, if because of neither. */
static bool find_deadline(const fl_loop *loop, uint64_t *ret_ns)
{
    uint64_t next_ns = NEVER;
    bool timed = fl_nodes_next_poll(loop->wheel, &next_ns) || loop->until_ns != NEVER;
    *ret_ns = earlier(next_ns, loop->until_ns);
    return timed;
}

void fl__loop_trim(fl_loop *loop, bool sleeps)
{
    uint64_t deadline_ns;
    find_deadline(loop, &deadline_ns);
    do
        fl__loop_table_trim(&loop->table);
    while (sleeps && loop->table.may_trim && !called_for(loop) && fl__loop_read_clock(loop) < deadline_ns);
}

/* The loop may wake up later than at the deadline by its slack, but once the deadline has passed there is no reason to
 * sleep on. */
int fl__loop_sleep(fl_loop *loop)
{
    assert(loop->running && !loop->poller.marked);
    uint64_t deadline_ns, began_ns = 0;
    bool timed = find_deadline(loop, &deadline_ns);
    if (timed && deadline_ns <= loop->read_ns)
        return 0;
    int r = loop->clock->wait_until ? fl__loop_poller_poll(loop, 0) : 0;
    while (r == 0 && !called_for(loop) && (fl__loop_read_clock(loop) < deadline_ns || !timed)) {
        if (began_ns == 0)
            began_ns = loop->read_ns;
        r = pass_time(loop, timed, add_time(deadline_ns, loop->slack_ns));
    }
    if (began_ns > 0) {
        loop->counters.sleeps++;
        loop->counters.slept_ns += fl__loop_read_clock(loop) - began_ns;
    }
    return r;
}

/* --- Waiting outside */

void fl__loop_unmark(fl_loop *loop)
{
    if (loop->poller.marked)
        fl__loop_inbox_awake(&loop->inbox);
    loop->poller.marked = false;
}

static void begin_outside(fl_loop *loop)
{
    assert(!loop->running && !loop->poller.marked);
    uint64_t deadline_ns, now_ns;
    if (!fl_loop_next_ns(loop, &deadline_ns))
        deadline_ns = NEVER;
    if (loop->table.may_trim)
        fl__loop_trim(loop, true);
    bool now = deadline_ns <= fl__loop_read_clock(loop) || !fl__loop_inbox_sleep(&loop->inbox, INBOX_POLLING);
    loop->poller.outside = true;
    loop->poller.marked = !now;
    if (!now && loop->clock->wait_until)
        return;
    if (!now)
        deadline_ns = deadline_of_machine(loop, add_time(deadline_ns, loop->slack_ns), &now_ns);
    if (now || deadline_ns == 0)
        arm_timerfd(&loop->poller, 1, 1); /* a moment that has passed makes the timerfd ready at once */
    else
        arm_timerfd(&loop->poller, deadline_ns, now_ns);
}

/* The events of the loop's own descriptors are taken out of epoll, so that outer_fd is no longer ready because of them. */
int fl__loop_end_outside(fl_loop *loop)
{
    fl__loop_unmark(loop);
    int r = fl__loop_poller_poll(loop, 0);
    loop->poller.outside = false;
    return r;
}

int fl_loop_poll_fd(fl_loop *loop, int *ret_fd)
{
    if (loop->running)
        return FL_BUSY;
    int r = fl__loop_poller_open_outer(loop);
    if (r < 0)
        return r;
    fl__loop_unmark(loop);
    begin_outside(loop);
    *ret_fd = loop->poller.outer_fd;
    return 0;
}

int fl_loop_after_fork(fl_loop *loop)
{
    int r = fl__loop_poller_after_fork(loop);
    if (r < 0)
        return r;
    fl__loop_inbox_after_fork(&loop->inbox);
    loop->poller.outside = loop->poller.marked = false;
    return 0;
}
