/* SPDX-License-Identifier: MIT */
/* The second thread of a shard: disk work that must not delay commits.
 *
 * Checkpoints. This thread copies pages of the log into the file when there are some thousand of them, with a connection of
 * its own. SQLite resets the log when all of it has been copied and no connection reads or writes. Under load that would
 * never happen, because new pages are written meanwhile. So when few pages are left, the thread of the shard copies them
 * itself, between two commits, in a few milliseconds. The longer the log, the more pages count as few. If this thread cannot
 * keep up, every commit waits for it a little. If the log still grows, commits wait until the checkpoint is complete.
 *
 * Copies. This thread syncs a file that was written without syncing.
 */

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/sqlite/worker.h"

enum { SHORT_PART = 4, SHORT_FRAMES = 1024, PATIENCE_NS = 20000000, SECOND_NS = 1000000000 };

struct helper {
    struct worker *worker;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    sqlite3 *db;
    uint32_t log; /* which log was looked at last; the shard's thread only */

    /* Under the lock. */
    bool stop;
    bool carrying; /* asked for, or under way */
    int carried;   /* pages of the log that are in the file */
    char *path;    /* to be synced */
    bool synced;
    int error; /* errno of that */
};

/* --- The thread --------------------------------------------------------------------------------------------------- */

static int sync_path(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    int error = fd < 0 || fsync(fd) < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error;
}

/* The file, and that it is in its folder. */
static int sync_file(char *path)
{
    int error = sync_path(path, O_RDONLY);
    return error ? error : sync_path(dirname(path), O_RDONLY | O_DIRECTORY);
}

/* Gives how many pages at the beginning of the log are in the file. If that is all of them, the next commit begins the log
 * anew, unless others have been written meanwhile. */
static int carry_over(sqlite3 *db)
{
    int log = -1, carried = -1;
    int rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, &log, &carried);
    if (rc == SQLITE_OK && carried > 0)
        fl__mark_set(db); /* it was cut off, or a page was written over it */
    return rc == SQLITE_OK && carried > 0 ? carried : 0;
}

static void *help(void *arg)
{
    struct helper *helper = arg;
    pthread_mutex_lock(&helper->lock);
    while (!helper->stop) {
        if (helper->carrying) {
            pthread_mutex_unlock(&helper->lock);
            int carried = carry_over(helper->db);
            pthread_mutex_lock(&helper->lock);
            helper->carrying = false;
            helper->carried = carried;
            pthread_cond_broadcast(&helper->changed);
        } else if (helper->path) {
            pthread_mutex_unlock(&helper->lock);
            int error = sync_file(helper->path);
            pthread_mutex_lock(&helper->lock);
            fl__release(helper->path);
            helper->path = NULL;
            helper->error = error;
            helper->synced = true;
            fl__shard_worker_wake(helper->worker);
        } else {
            pthread_cond_wait(&helper->changed, &helper->lock);
        }
    }
    pthread_mutex_unlock(&helper->lock);
    return NULL;
}

/* --- The log ------------------------------------------------------------------------------------------------------ */

/* Waits for the end of the current checkpoint; not longer than a commit may take, unless the log is much too long. */
static void wait_carried(struct helper *helper, int frames)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PATIENCE_NS;
    if (until.tv_nsec >= SECOND_NS) {
        until.tv_sec++;
        until.tv_nsec -= SECOND_NS;
    }
    int late = 0;
    while (helper->carrying && !late)
        if (frames < (int)fl__sqlite_tuning.log_frames_max)
            late = pthread_cond_timedwait(&helper->changed, &helper->lock, &until);
        else
            pthread_cond_wait(&helper->changed, &helper->lock);
}

/* Whether so little is left that it is carried over at once. */
static bool short_rest(const struct helper *helper, int frames)
{
    int most = frames / SHORT_PART < SHORT_FRAMES ? frames / SHORT_PART : SHORT_FRAMES;
    return frames - helper->carried <= most;
}

/* What was carried over of a log that has begun anew since means nothing. */
static void follow_log(struct helper *helper, struct base *base)
{
    uint32_t log = fl__base_log_number(base);
    if (log != helper->log)
        helper->carried = 0;
    helper->log = log;
}

/* Under the lock: the log is long. */
static void look_at_log(struct helper *helper, struct base *base)
{
    int frames = base->frames;
    if (frames >= (int)fl__sqlite_tuning.log_frames)
        wait_carried(helper, frames);
    if (helper->carrying)
        return;
    follow_log(helper, base);
    if (short_rest(helper, frames) || frames >= (int)fl__sqlite_tuning.log_frames_max) {
        helper->carried = 0; /* the log begins anew; or not, and then more is carried over again than need be */
        carry_over(base->db);
    } else {
        helper->carrying = true;
        pthread_cond_broadcast(&helper->changed);
    }
}

void fl__helper_look(struct helper *helper, struct base *base)
{
    if (base->frames < (int)fl__sqlite_tuning.checkpoint_frames)
        return;
    pthread_mutex_lock(&helper->lock);
    look_at_log(helper, base);
    pthread_mutex_unlock(&helper->lock);
}

/* --- Copies ------------------------------------------------------------------------------------------------------- */

void fl__helper_sync(struct helper *helper, char *path)
{
    pthread_mutex_lock(&helper->lock);
    helper->path = path;
    helper->synced = false;
    pthread_cond_broadcast(&helper->changed);
    pthread_mutex_unlock(&helper->lock);
}

bool fl__helper_synced(struct helper *helper, int *ret_errno)
{
    pthread_mutex_lock(&helper->lock);
    bool synced = helper->synced;
    if (synced)
        *ret_errno = helper->error;
    pthread_mutex_unlock(&helper->lock);
    return synced;
}

/* --- Starting and stopping ---------------------------------------------------------------------------------------- */

/* SQLite looks at the log only when something has been read. */
static int connect_to(struct base *base, sqlite3 **ret)
{
    int rc = fl__base_connect(base->path, ret);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(*ret, "PRAGMA cache_size = -64; SELECT 1 FROM shard", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        return 0;
    int r = fl__sqlite_explain(*ret, rc, base->path, base->message, sizeof base->message);
    sqlite3_close(*ret);
    return r;
}

int fl__helper_start(struct worker *worker, struct helper **ret)
{
    struct helper *helper = fl__alloc_zeroed(sizeof *helper);
    if (!helper)
        return FL_NO_MEMORY;
    helper->worker = worker;
    int r = connect_to(worker->base, &helper->db);
    if (r < 0) {
        fl__release(helper);
        return r;
    }
    pthread_mutex_init(&helper->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&helper->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&helper->thread, NULL, help, helper) != 0) {
        sqlite3_close(helper->db);
        fl__release(helper);
        return FL_SYSTEM;
    }
    *ret = helper;
    return 0;
}

void fl__helper_stop(struct helper *helper)
{
    pthread_mutex_lock(&helper->lock);
    helper->stop = true;
    pthread_cond_broadcast(&helper->changed);
    pthread_mutex_unlock(&helper->lock);
    pthread_join(helper->thread, NULL);
    sqlite3_close(helper->db);
    pthread_mutex_destroy(&helper->lock);
    pthread_cond_destroy(&helper->changed);
    fl__release(helper->path);
    fl__release(helper);
}
