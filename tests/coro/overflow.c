/* SPDX-License-Identifier: MIT */
/* Coroutines: a stack overflow names the culprit, and other faults go where they went before. */

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <foliot/coro.h>

#include "coro/context.h"
#include "test.h"

/* Runs a function in a child and returns its exit status; what it writes to standard error goes to `text`. */
static int run_in_child(void (*fn)(void), char *text, size_t size)
{
    int fds[2], status;
    size_t length = 0;
    ssize_t n;
    CHECK_EQ(pipe(fds), 0);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(fds[1], STDERR_FILENO);
        fn();
        _exit(0);
    }
    close(fds[1]);
    while ((n = read(fds[0], text + length, size - 1 - length)) > 0)
        length += (size_t)n;
    text[length] = '\0';
    close(fds[0]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    return status;
}

/* NOLINTNEXTLINE(misc-no-recursion): that is what it is for */
__attribute__((noinline)) static int bottomless(int level)
{
    volatile char frame[512];
    frame[level % 512] = (char)level;
    return level < 0 ? 0 : bottomless(level + 1) + frame[level % 512];
}

/* Frames of 50 KB, of which only the far end is touched. NOLINTNEXTLINE(misc-no-recursion): the same */
__attribute__((noinline)) static int bottomless_in_leaps(int level)
{
    volatile char frame[50000];
    frame[0] = (char)level;
    return level < 0 ? 0 : bottomless_in_leaps(level + 1) + frame[0];
}

static void fall(void *arg)
{
    fl_sleep_ns(1000);
    *(volatile int *)arg = bottomless(1);
}

static void fall_in_leaps(void *arg)
{
    fl_sleep_ns(1000);
    *(volatile int *)arg = bottomless_in_leaps(1);
}

static int sink;

static void overflow_with(size_t stack_size, fl_task_fn fn)
{
    fl_runtime *rt;
    fl_coro *coro;
    fl_coro_options options = {.name = "Icarus", .stack_size = stack_size};
    if (fl_runtime_new(NULL, &rt) == 0 && fl_coro_spawn(rt, &options, fn, &sink, &coro) == 0)
        fl_coro_join(coro);
}

static void overflow_own(void)
{
    overflow_with(64 << 10, fall);
}

static void overflow_shared(void)
{
    overflow_with(0, fall);
}

static void overflow_in_leaps(void)
{
    overflow_with(0, fall_in_leaps);
}

static void check_overflow(void (*fn)(void))
{
    static char text[65536];
    int status = run_in_child(fn, text, sizeof(text));
    CHECK(strstr(text, "foliot: stack overflow in coroutine Icarus"));
#if !defined(FL__ASAN) && !defined(FL__TSAN) /* they end the program in their own way */
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
#else
    CHECK(status != 0);
#endif
}

TEST(an_overflow_of_an_own_stack_is_named)
{
    check_overflow(overflow_own);
}

TEST(an_overflow_of_the_shared_stack_is_named)
{
    check_overflow(overflow_shared);
}

TEST(an_overflow_with_large_frames_is_named)
{
    check_overflow(overflow_in_leaps);
}

static void other_handler(int signal_number)
{
    (void)signal_number;
    static const char text[] = "the other handler\n";
    ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);
    _exit(n > 0 ? 42 : 1);
}

static void touch_nothing(void *arg)
{
    *(volatile int *)arg = 1;
}

static void plain_fault(void)
{
    fl_runtime *rt;
    fl_coro *coro;
    signal(SIGSEGV, other_handler);
    if (fl_runtime_new(NULL, &rt) == 0 && fl_coro_spawn(rt, NULL, touch_nothing, (void *)16, &coro) == 0)
        fl_coro_join(coro);
}

TEST(another_fault_goes_to_the_handler_that_was_there)
{
    static char text[65536];
    int status = run_in_child(plain_fault, text, sizeof(text));
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 42);
    CHECK(strstr(text, "the other handler"));
    CHECK(!strstr(text, "overflow"));
}

/* --- SIGSEGV without a fault */

static atomic_int calls;

static void count_call(int signal_number)
{
    (void)signal_number;
    atomic_fetch_add(&calls, 1);
}

static void send_then_fall(void *arg)
{
    raise(SIGSEGV);
    kill(getpid(), SIGSEGV);
    while (atomic_load(&calls) < *(int *)arg) /* the runtime's other thread may be the one who gets it */
        sched_yield();
    if (atomic_load(&calls) == *(int *)arg)
        fall(&sink);
}

static void spawn_sender(int expected)
{
    static int expected_calls;
    expected_calls = expected;
    fl_runtime *rt;
    fl_coro *coro;
    fl_coro_options options = {.name = "Icarus"};
    fl_runtime_config config = {.workers = 1};
    sigset_t fault;
    sigemptyset(&fault);
    sigaddset(&fault, SIGSEGV);
    pthread_sigmask(SIG_BLOCK, &fault, NULL); /* so that the worker is the one who gets it */
    if (fl_runtime_new(&config, &rt) == 0 && fl_coro_spawn(rt, &options, send_then_fall, &expected_calls, &coro) == 0)
        fl_coro_join(coro);
}

static void send_to_nobody(void)
{
    signal(SIGSEGV, SIG_IGN);
    spawn_sender(0);
}

static void send_and_survive(void *arg)
{
    (void)arg;
    raise(SIGSEGV);
    _exit(0);
}

static void send_to_default(void)
{
    fl_runtime *rt;
    fl_coro *coro;
    signal(SIGSEGV, SIG_DFL);
    if (fl_runtime_new(NULL, &rt) == 0 && fl_coro_spawn(rt, NULL, send_and_survive, NULL, &coro) == 0)
        fl_coro_join(coro);
}

/* The handler that was there returns from the fault and is called again and again: it must not be there any more. */
static void count_calls_until_the_fault(int signal_number)
{
    count_call(signal_number);
    if (atomic_load(&calls) > 2)
        signal(signal_number, SIG_DFL);
}

static void send_to_one_who_leaves(void)
{
    signal(SIGSEGV, count_calls_until_the_fault);
    spawn_sender(2);
}

TEST(a_signal_that_somebody_sends_goes_to_the_handler_and_faults_are_still_named)
{
    static char text[65536];
    int status = run_in_child(send_to_one_who_leaves, text, sizeof(text));
    CHECK(status != 0);
    CHECK(strstr(text, "foliot: stack overflow in coroutine Icarus"));
}

TEST(a_signal_that_somebody_sends_is_ignored_if_it_was_and_faults_are_still_named)
{
    check_overflow(send_to_nobody);
}

TEST(a_signal_that_somebody_sends_ends_the_program_if_nobody_wants_it)
{
    static char text[65536];
    int status = run_in_child(send_to_default, text, sizeof(text));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    CHECK(!strstr(text, "overflow"));
}
