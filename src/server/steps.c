/* SPDX-License-Identifier: MIT */
/* A step that every worker takes; the main thread waits for the last. */

#include <pthread.h>

#include "base/assert.h"
#include "server/internal.h"

struct step {
    pthread_mutex_t lock;
    pthread_cond_t over;
    unsigned left;
    int result;
    void (*fn)(struct worker *worker);
};

static struct step step = {.lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};

void step_end(int result)
{
    pthread_mutex_lock(&step.lock);
    if (result < 0)
        step.result = result;
    fl__assert(step.left > 0);
    if (--step.left == 0)
        pthread_cond_signal(&step.over);
    pthread_mutex_unlock(&step.lock);
}

void step_done(struct worker *worker)
{
    (void)worker;
    step_end(0);
}

static void step_begin(void *arg)
{
    step.fn(arg);
}

int all_workers(struct server *server, void (*fn)(struct worker *worker))
{
    fl__assert(step.left == 0 && server->worker_count > 0);
    step.left = server->worker_count;
    step.result = 0;
    step.fn = fn;
    for (unsigned i = 0; i < server->worker_count; i++)
        if (fl_runtime_spawn_on(server->runtime, i, step_begin, &server->node.workers[i]) < 0)
            step_end(FL_NO_MEMORY);
    pthread_mutex_lock(&step.lock);
    while (step.left > 0)
        pthread_cond_wait(&step.over, &step.lock);
    pthread_mutex_unlock(&step.lock);
    return step.result;
}
