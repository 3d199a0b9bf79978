/* SPDX-License-Identifier: MIT */
/* A loop that ticks until another thread has finished its work and says so. */

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include <foliot/loop.h>

#define MS 1000000u

struct job {
    fl_loop *loop;
    fl_loop_task done; /* posting it cannot fail: its memory is here */
    unsigned ticks;
};

static void tick(fl_loop *loop, void *arg)
{
    struct job *job = arg;
    (void)loop;
    printf("tick %u\n", ++job->ticks);
}

/* Runs on the loop's thread, so it may use the job without a lock. */
static void finished(fl_loop *loop, void *arg)
{
    const struct job *job = arg;
    printf("finished, after %u ticks\n", job->ticks);
    fl_loop_stop(loop); /* the interval alone would keep it running for ever */
}

static void *work(void *arg)
{
    struct job *job = arg;
    usleep(55000);
    fl_loop_post_task(job->loop, &job->done);
    return NULL;
}

int main(void)
{
    struct job job = {.done = {.fn = finished, .arg = &job}};
    pthread_t thread;
    if (fl_loop_new(NULL, &job.loop) < 0)
        return 1;
    if (fl_loop_interval(job.loop, 10 * MS, FL_INTERVAL_SKIP, tick, &job, NULL) < 0)
        return 1;
    if (pthread_create(&thread, NULL, work, &job) != 0)
        return 1;
    int r = fl_loop_run(job.loop);
    pthread_join(thread, NULL);
    fl_loop_free(job.loop);
    return r < 0;
}
