/* SPDX-License-Identifier: MIT */
/* The runtime's threads: what is said when there can be no more, and what becomes of faults in them. */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rt.h"

/* A stack as large as the address space: the system refuses. */
static void allow_threads(bool yes)
{
    static pthread_attr_t usual;
    pthread_attr_t attributes;
    if (yes) {
        CHECK_EQ(pthread_setattr_default_np(&usual), 0);
        return;
    }
    CHECK_EQ(pthread_getattr_default_np(&usual), 0);
    CHECK_EQ(pthread_attr_init(&attributes), 0);
    CHECK_EQ(pthread_attr_setstacksize(&attributes, (size_t)1 << 47), 0);
    CHECK_EQ(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
}

TEST(errno_says_why_there_is_no_thread)
{
    fl_runtime *rt = NULL, *none = NULL;
    CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.workers = 1}, &rt), 0);
    allow_threads(false);
    errno = 0;
    CHECK_EQ(fl_runtime_new(NULL, &none), FL_SYSTEM);
    CHECK_EQ(errno, EAGAIN);
    CHECK(none == NULL);
    errno = 0;
    CHECK_EQ(fl_runtime_resize(rt, 3), FL_SYSTEM);
    CHECK_EQ(errno, EAGAIN);
    CHECK_EQ(stats_of(rt).workers, 1);
    allow_threads(true);
    CHECK_EQ(fl_runtime_resize(rt, 3), 0);
    fl_runtime_free(rt);
}

/* --- Faults */

enum { HANDLED = 42 };

static void on_fault(int number)
{
    (void)number;
    _exit(HANDLED);
}

static void fault(void *arg)
{
    raise(*(const int *)arg);
    _exit(1); /* it was blocked */
}

/* In a process of its own, whose handler ends it. */
static void fault_in_task(int number)
{
    fl_runtime *rt = make_runtime(1);
    signal(number, on_fault);
    fl_runtime_spawn(rt, fault, &number);
    for (;;)
        pause();
}

TEST(a_fault_in_a_task_reaches_the_handler_of_the_program)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    for (unsigned i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        int status;
        pid_t child = fork();
        if (child == 0)
            fault_in_task(faults[i]);
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), HANDLED);
    }
}

static atomic_int handled_by;

static void note_thread(int number)
{
    (void)number;
    /* NOLINTNEXTLINE(bugprone-signal-handler,cert-sig30-c): it only reads a variable of the thread */
    atomic_store(&handled_by, fl_runtime_worker());
}

TEST(other_signals_stay_with_the_threads_of_the_program)
{
    fl_runtime *rt = make_runtime(4);
    for (unsigned i = 0; i < 100; i++) {
        atomic_store(&handled_by, 0);
        signal(SIGUSR1, note_thread);
        CHECK_EQ(kill(getpid(), SIGUSR1), 0);
        AWAIT(atomic_load(&handled_by) != 0);
        CHECK_EQ(atomic_load(&handled_by), FL_NOT_FOUND);
    }
    fl_runtime_free(rt);
}
