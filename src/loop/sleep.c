/* SPDX-License-Identifier: MIT */
/* How the loop waits.
 *
 * Without descriptors it waits on a futex, with the next deadline as an absolute timeout. With descriptors it waits in
 * epoll, where an absolute timerfd stands for the next deadline and an eventfd for other threads: epoll's own timeout
 * is relative, and the kernel delays it by up to 0.1 % of the wait.
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

#include <sys/timerfd.h>

#include "loop/internal.h"

static void arm_timerfd(struct poller *poller, uint64_t deadline_ns, uint64_t now_ns)
{
    if (deadline_ns == UINT64_MAX || (now_ns < poller->armed_ns && poller->armed_ns <= deadline_ns))
        return;
    struct itimerspec time = {.it_value = {(time_t)(deadline_ns / 1000000000), (long)(deadline_ns % 1000000000)}};
    if (timerfd_settime(poller->timer_fd, TFD_TIMER_ABSTIME, &time, NULL) == 0)
        poller->armed_ns = deadline_ns;
}

static int wait_in_epoll(fl_loop *loop, uint64_t now_ns, uint64_t deadline_ns)
{
    arm_timerfd(&loop->poller, deadline_ns, now_ns);
    if (!fl__inbox_sleep(&loop->inbox, INBOX_POLLING))
        return fl__poller_poll(loop, 0);
    int r = fl__poller_poll(loop, -1);
    fl__inbox_awake(&loop->inbox);
    return r;
}

/* Waits until `deadline_ns` of CLOCK_MONOTONIC; UINT64_MAX: for ever. */
static int wait_in_kernel(fl_loop *loop, uint64_t now_ns, uint64_t deadline_ns)
{
    if (loop->poller.added > 0)
        return wait_in_epoll(loop, now_ns, deadline_ns);
    if (!fl__inbox_sleep(&loop->inbox, INBOX_ASLEEP))
        return 0;
    fl__inbox_wait(&loop->inbox, now_ns, deadline_ns);
    fl__inbox_awake(&loop->inbox);
    return 0;
}

/* Another clock than the machine's counts at the same pace, but from another moment: the kernel is told how long it is from
 * now. The machine's clock is read first, so that the wait ends too early, if anything, and is repeated. */
static int wait_on_clock(fl_loop *loop, uint64_t deadline_ns)
{
    fl_clock *machine = fl_clock_monotonic();
    if (loop->clock == machine || deadline_ns == UINT64_MAX)
        return wait_in_kernel(loop, loop->read_ns, deadline_ns);
    uint64_t machine_ns = machine->now_ns(machine), now_ns = fl__loop_read_clock(loop), end_ns;
    if (now_ns >= deadline_ns)
        return fl__poller_poll(loop, 0);
    if (__builtin_add_overflow(machine_ns, deadline_ns - now_ns, &end_ns))
        end_ns = UINT64_MAX;
    return wait_in_kernel(loop, machine_ns, end_ns);
}

/* Something outside wants the loop: looked at before each wait. */
static bool called_for(const fl_loop *loop)
{
    return loop->poller.ready_count > 0 || !inbox_empty(&loop->inbox) || inbox_stop(&loop->inbox) != STOP_NO;
}

static int pass_time(fl_loop *loop, bool timed, uint64_t deadline_ns)
{
    if (!loop->clock->wait_until || !timed)
        return wait_on_clock(loop, deadline_ns);
    loop->clock->wait_until(loop->clock, deadline_ns);
    return fl__poller_poll(loop, 0);
}

int fl__loop_sleep(fl_loop *loop)
{
    uint64_t deadline_ns;
    bool timed = fl__timers_next(loop, &deadline_ns), slept = false;
    if (timed && deadline_ns <= loop->read_ns)
        return 0;
    int r = loop->clock->wait_until ? fl__poller_poll(loop, 0) : 0;
    while (r == 0 && !called_for(loop) && (fl__loop_read_clock(loop) < deadline_ns || !timed)) {
        r = pass_time(loop, timed, deadline_ns);
        slept = true;
    }
    loop->counters.sleeps += slept;
    return r;
}
