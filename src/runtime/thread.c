/* SPDX-License-Identifier: MIT */
/* Starting the runtime's threads.
 *
 * Signals are for the program's own threads, so they are blocked here, except, in a thread that runs callbacks, those that
 * it brings on itself by a fault: while such a one is blocked, the kernel ends the process at the fault and the program's
 * handler never hears of it.
 */

#include <errno.h>
#include <signal.h>

#include "runtime/internal.h"

static void block_signals(bool faults_too, sigset_t *ret_before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t set;
    sigfillset(&set);
    for (unsigned i = 0; i < sizeof(faults) / sizeof(*faults) && !faults_too; i++)
        sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_SETMASK, &set, ret_before);
}

int fl__runtime_thread_start(pthread_t *ret, const char *name, bool has_callbacks, void *(*run)(void *arg), void *arg)
{
    sigset_t before;
    block_signals(!has_callbacks, &before);
    int error = pthread_create(ret, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        errno = error;
        return FL_SYSTEM;
    }
    pthread_setname_np(*ret, name);
    return 0;
}
