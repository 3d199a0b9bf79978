/* SPDX-License-Identifier: MIT */
/* How many system calls a sleep takes. A child runs the loop under ptrace(2), and the parent counts. */

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop/loop_test.h"

enum {
    TIMERS = 50,
    CANNOT = 77, /* the child's status */
    EPOLL_PWAIT2 = 441,
};

/* What the child reports. */
static struct report {
    uint64_t sleeps, turns, called;
} * report;

static fl_loop_config config;
static uint64_t step_ns;
static bool with_descriptor, without_pwait2;

/* In the child: the kernel does not know epoll_pwait2(). */
static void refuse_pwait2(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, EPOLL_PWAIT2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(*filter), .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(CANNOT);
}

static uint64_t last_ns;

/* Never early, and in order. */
static void on_timer(fl_loop *l, void *arg)
{
    const uint64_t *deadline_ns = arg;
    fl_clock *clock = fl_clock_monotonic();
    if (clock->now_ns(clock) < *deadline_ns || *deadline_ns < last_ns || fl_loop_now_ns(l) < *deadline_ns)
        _exit(3);
    last_ns = *deadline_ns;
    report->called++;
}

static void ignore(fl_loop *l, int fd, unsigned events, void *arg)
{
    (void)l, (void)fd, (void)events, (void)arg;
}

static void run_in_child(void)
{
    static uint64_t deadlines[TIMERS];
    fl_loop_stats before, after;
    if (fl_loop_new(&config, &loop) < 0)
        _exit(4);
    if (with_descriptor) {
        int fd = eventfd(0, 0);
        if (fl_loop_fd_add(loop, fd, FL_READ, ignore, NULL) < 0 || fl_loop_fd_unref(loop, fd) < 0)
            _exit(4);
    }
    for (unsigned i = 0; i < TIMERS; i++) {
        deadlines[i] = fl_loop_now_ns(loop) + 1000000 + i * step_ns;
        if (fl_loop_timer_at(loop, deadlines[i], on_timer, &deadlines[i], NULL) < 0)
            _exit(4);
    }
    if (fl_loop_run_once(loop, true) < 0) /* what a thread or the kernel is asked once is asked in the first sleep */
        _exit(4);
    fl_loop_get_stats(loop, &before);
    syscall(SYS_getppid);
    while (report->called < TIMERS)
        if (fl_loop_run_once(loop, true) < 0)
            _exit(4);
    syscall(SYS_getppid);
    fl_loop_get_stats(loop, &after);
    report->sleeps = after.sleeps - before.sleeps;
    report->turns = after.turns - before.turns;
    _exit(0);
}

static uint64_t number_of_call(pid_t child)
{
    struct __ptrace_syscall_info info = {0};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof(info), &info) <= 0)
        return UINT64_MAX;
    return info.op == PTRACE_SYSCALL_INFO_ENTRY ? info.entry.nr : UINT64_MAX;
}

/* Counts the system calls between the two getppid(). */
static uint64_t count_calls(pid_t child)
{
    uint64_t calls = 0, marks = 0;
    int status;
    do {
        ptrace(PTRACE_SYSCALL, child, NULL, NULL);
        CHECK_EQ(waitpid(child, &status, 0), child);
        uint64_t number = WIFSTOPPED(status) ? number_of_call(child) : UINT64_MAX;
        calls += marks == 1 && number != UINT64_MAX && number != SYS_getppid;
        marks += number == SYS_getppid;
    } while (WIFSTOPPED(status));
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    CHECK_EQ(marks, 2);
    return calls;
}

/* Runs the child and counts its system calls. Returns false if it may not be traced. */
static bool trace_child(uint64_t *ret_calls)
{
    int status;
    fflush(stdout);
    report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(report != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            _exit(CANNOT);
        if (without_pwait2)
            refuse_pwait2();
        raise(SIGSTOP);
        run_in_child();
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
        CHECK_EQ(WEXITSTATUS(status), CANNOT);
        test_skip("system calls cannot be traced or filtered here");
        return false;
    }
    ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
    *ret_calls = count_calls(child);
    CHECK_EQ(report->called, TIMERS);
    return true;
}

/* A turn with a descriptor looks once more whether it is ready, after its timers. A few calls more are the sanitizer's. */
static void check_calls(uint64_t calls_of_sleep)
{
    uint64_t calls;
    if (trace_child(&calls))
        CHECK(calls <= report->sleeps * calls_of_sleep + (with_descriptor ? report->turns : 0) + 5);
    config.slack_ns = 0;
    with_descriptor = without_pwait2 = false;
}

TEST(a_sleep_without_descriptors_takes_one_call)
{
    step_ns = 200000;
    check_calls(1);
}

TEST(a_brief_sleep_with_a_descriptor_takes_one_call)
{
    step_ns = 200000;
    with_descriptor = true;
    check_calls(1);
}

TEST(a_long_sleep_with_a_descriptor_takes_two_calls)
{
    step_ns = 11000000;
    with_descriptor = true;
    check_calls(2);
}

TEST(an_old_kernel_takes_two_calls)
{
    step_ns = 200000;
    with_descriptor = without_pwait2 = true;
    check_calls(2);
}

/* A sleep ends at least 1 ms after the first deadline, and then 20 timers more are due. */
TEST(with_slack_a_wake_up_serves_many_timers)
{
    for (unsigned i = 0; i < 2; i++) {
        step_ns = 50000;
        config.slack_ns = 1000000;
        with_descriptor = i == 1;
        check_calls(2);
        CHECK(report->sleeps <= 1 + TIMERS / 20);
    }
}
