/* SPDX-License-Identifier: MIT */
/* The message about a stack overflow: see overflow.h. Only async-signal-safe functions are used in the handler. */

#include "coro/overflow.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "coro/coro.h"

enum { SIGNAL_STACK_SIZE = 64 << 10 };

static struct sigaction previous;

static size_t append(char *line, size_t length, size_t capacity, const char *text)
{
    while (*text && length < capacity)
        line[length++] = *text++;
    return length;
}

static size_t append_number(char *line, size_t length, size_t capacity, size_t number)
{
    char digits[24];
    size_t at = sizeof(digits) - 1;
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return append(line, length, capacity, digits + at);
}

static void say(const struct fl_coro *coro)
{
    char line[256];
    size_t capacity = sizeof(line) - 1, room_for_name = 160;
    size_t n = append(line, 0, capacity, "foliot: stack overflow in coroutine ");
    n = append(line, n, room_for_name, coro->name ? coro->name : "without a name");
    n = append(line, n, capacity, ": its stack has ");
    n = append_number(line, n, capacity, stack_size(coro->stack));
    n = append(line, n, capacity, " bytes");
    line[n++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, n);
    (void)written;
}

static const struct fl_coro *overflown(const char *address)
{
    const struct coro_sched *sched = fl__coro_sched_current();
    const struct fl_coro *coro = sched ? sched->running : NULL;
    return coro && address >= coro->stack->guard && address < coro->stack->bottom ? coro : NULL;
}

/* There was no handler before, or the signal was ignored, which has no effect on a fault. An instruction that has
 * faulted is tried again and ends the process; a signal that was sent has to be sent again. */
static void do_default(int signal_number, bool sent)
{
    if (sent && previous.sa_handler == SIG_IGN)
        return;
    signal(signal_number, SIG_DFL);
    if (sent)
        raise(signal_number);
}

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    bool sent = info->si_code <= 0; /* by raise(), kill() and the like: there is no address */
    const struct fl_coro *coro = sent ? NULL : overflown(info->si_addr);
    if (coro)
        say(coro);
    if (previous.sa_flags & SA_SIGINFO)
        previous.sa_sigaction(signal_number, info, context);
    else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
        previous.sa_handler(signal_number);
    else
        do_default(signal_number, sent);
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, NULL, &previous);
    sigaction(SIGSEGV, &action, NULL);
}

void *fl__coro_overflow_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    sigset_t fault;
    sigemptyset(&fault);
    sigaddset(&fault, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &fault, NULL); /* a fault while it is blocked ends the process without a word */
    stack_t old, stack = {.ss_size = SIGNAL_STACK_SIZE};
    if (sigaltstack(NULL, &old) < 0 || !(old.ss_flags & SS_DISABLE))
        return NULL;
    stack.ss_sp = fl__alloc(stack.ss_size);
    if (stack.ss_sp)
        sigaltstack(&stack, NULL);
    return stack.ss_sp;
}

void fl__coro_overflow_unwatch(void *signal_stack)
{
    if (!signal_stack)
        return;
    stack_t none = {.ss_flags = SS_DISABLE};
    sigaltstack(&none, NULL);
    fl__release(signal_stack);
}
