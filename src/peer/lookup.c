/* SPDX-License-Identifier: MIT */
/* Looks host names up, on a detached thread.
 *
 * The thread shares a piece of memory with the link that waits; the last of the two frees it. The thread reports by an event
 * descriptor. It never touches the loop, which may be gone by then. */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "peer/internal.h"

struct peer_lookup {
    atomic_int owners; /* the thread, and the link that waits */
    int event;
    char *host, *port;
    struct addrinfo *found;
    int error;
    atomic_bool finished; /* both are set */
    /* The link's. */
    fl_loop *loop;
    void (*fn)(void *arg, struct addrinfo *found, int error);
    void *arg;
};

static void let_go(struct peer_lookup *lookup)
{
    int owners = atomic_fetch_sub(&lookup->owners, 1);
    fl__assert(owners > 0);
    if (owners > 1)
        return;
    if (lookup->found)
        freeaddrinfo(lookup->found);
    if (lookup->event >= 0)
        close(lookup->event);
    free(lookup->host);
    free(lookup->port);
    free(lookup);
}

static int look_up(const char *host, const char *port, int flags, struct addrinfo **ret)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    return getaddrinfo(host, port, &hints, ret);
}

static void *run(void *arg)
{
    struct peer_lookup *lookup = arg;
    struct addrinfo *found = NULL;
    int error = look_up(lookup->host, lookup->port, 0, &found);
    lookup->error = error;
    lookup->found = error ? NULL : found;
    lookup->finished = true;
    eventfd_write(lookup->event, 1);
    let_go(lookup);
    return NULL;
}

static void on_found(fl_loop *loop, int fd, unsigned events, void *arg)
{
    struct peer_lookup *lookup = arg;
    (void)events;
    if (!lookup->finished)
        return;
    struct addrinfo *found = lookup->found;
    lookup->found = NULL;
    fl_loop_fd_remove(loop, fd);
    void (*fn)(void *, struct addrinfo *, int) = lookup->fn;
    void *fn_arg = lookup->arg;
    int error = lookup->error;
    let_go(lookup);
    fn(fn_arg, found, error);
}

/* Signals are for the other threads. */
static bool start_thread(struct peer_lookup *lookup)
{
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&detached) != 0)
        return false;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, &detached, run, lookup) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return started;
}

int peer_lookup_begin(fl_loop *loop, const char *host, const char *port,
                      void (*fn)(void *arg, struct addrinfo *found, int error), void *arg, struct addrinfo **ret_found,
                      struct peer_lookup **ret)
{
    if (look_up(host, port, AI_NUMERICHOST, ret_found) == 0)
        return 1;
    struct peer_lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return FL_NO_MEMORY;
    lookup->owners = 1;
    lookup->loop = loop;
    lookup->fn = fn;
    lookup->arg = arg;
    lookup->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    lookup->host = strdup(host);
    lookup->port = strdup(port);
    int r = !lookup->host || !lookup->port ? FL_NO_MEMORY : lookup->event < 0 ? FL_SYSTEM : 0;
    if (r == 0)
        r = fl_loop_fd_add(loop, lookup->event, FL_READ, on_found, lookup);
    if (r < 0) {
        let_go(lookup);
        return r;
    }
    lookup->owners = 2;
    if (!start_thread(lookup)) {
        lookup->owners = 1;
        peer_lookup_cancel(lookup);
        return FL_SYSTEM;
    }
    *ret = lookup;
    return 0;
}

void peer_lookup_cancel(struct peer_lookup *lookup)
{
    if (!lookup)
        return;
    fl_loop_fd_remove(lookup->loop, lookup->event);
    let_go(lookup);
}
