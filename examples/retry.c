/* SPDX-License-Identifier: MIT */
/* Requests that are retried, and given up after a while: two timers a request, on as many threads as there are
 * processors.
 *
 * Each attempt starts the retry timer again, with twice the delay. When the answer comes, cancel says whether it was in
 * time: exactly one of the answer and the timeout wins, whatever thread they are on.
 */

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <foliot/runtime.h>

#define MS UINT64_C(1000000)
#define REQUESTS 8

struct request {
    fl_runtime *rt;
    fl_timer *retry, *timeout;
    unsigned number;
    atomic_uint attempts;
};

static atomic_uint finished;

static void must(int r)
{
    if (r < 0) {
        fprintf(stderr, "%s: %s\n", fl_errname(r), fl_strerror(r));
        exit(1);
    }
}

static void answer(void *arg)
{
    struct request *request = arg;
    if (!fl_timer_cancel(request->timeout))
        return; /* too late: on_timeout has it */
    fl_timer_cancel(request->retry);
    printf("request %u: answered at attempt %u\n", request->number, atomic_load(&request->attempts));
    atomic_fetch_add(&finished, 1);
}

/* The server answers the third attempt, and some requests never. */
static void attempt(void *arg)
{
    struct request *request = arg;
    unsigned attempts = atomic_fetch_add(&request->attempts, 1) + 1;
    must(fl_timer_start_after(request->retry, (MS / 2) << attempts));
    if (attempts == 3 && request->number % 4 != 0)
        must(fl_runtime_spawn(request->rt, answer, request));
}

static void on_timeout(void *arg)
{
    struct request *request = arg;
    fl_timer_cancel(request->retry);
    printf("request %u: no answer\n", request->number);
    atomic_fetch_add(&finished, 1);
}

int main(void)
{
    struct request requests[REQUESTS];
    fl_runtime *rt;
    must(fl_runtime_new(NULL, &rt));
    for (unsigned i = 0; i < REQUESTS; i++) {
        requests[i] = (struct request){.rt = rt, .number = i};
        must(fl_timer_new(rt, attempt, &requests[i], &requests[i].retry));
        must(fl_timer_new(rt, on_timeout, &requests[i], &requests[i].timeout));
        must(fl_timer_start_after(requests[i].timeout, 200 * MS));
        must(fl_runtime_spawn(rt, attempt, &requests[i]));
    }
    while (atomic_load(&finished) < REQUESTS)
        usleep(1000);
    fl_runtime_free(rt);
    for (unsigned i = 0; i < REQUESTS; i++) {
        fl_timer_unref(requests[i].retry);
        fl_timer_unref(requests[i].timeout);
    }
    return 0;
}
