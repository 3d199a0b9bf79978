/* SPDX-License-Identifier: MIT */
/* Copies while the shard is at work: FL_STORE_BACKUP.
 *
 * SQLite copies some pages at a time; what is committed in between by the same connection goes into the copy too, so that
 * in the end it is the shard as it is at that moment. In between, requests of other ports are served; those of the port
 * that asked wait for the copy. The second thread syncs it.
 */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/sqlite/worker.h"

enum { STEP_PAGES = 256 };

struct backup {
    struct port *port;
    fl_store_request *request;
    sqlite3 *to;
    sqlite3_backup *steps; /* NULL: all has been copied and is being synced */
};

/* Answers the request; a copy that failed is taken away. */
static void end(struct worker *worker, int result, const char *why)
{
    struct backup *backup = worker->backup;
    fl_store_request *request = backup->request;
    sqlite3_backup_finish(backup->steps);
    sqlite3_close(backup->to);
    fl__store_answer(request, result, "cannot write the copy %.80s: %.100s", request->backup.path, why);
    if (result < 0)
        unlink(request->backup.path);
    backup->port->held = false;
    request->next = NULL;
    fl__port_answer(backup->port, request);
    worker->backup = NULL;
    fl__release(backup);
    fl__shard_worker_wake(worker); /* for what has waited for it */
}

/* The file must not be there; from now on it is ours. */
static int make_file(const char *path, fl_store_request *request)
{
    if (!path || !path[0]) {
        fl__store_answer(request, FL_INVALID_ARGUMENT, "the name of the copy is missing");
        return request->result;
    }
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (fd >= 0)
        return close(fd);
    if (errno == EEXIST)
        fl__store_answer(request, FL_EXISTS, "%.150s exists already; choose another name for the copy", path);
    else
        fl__store_answer(request, fl__code_of_errno(errno), "cannot create %.150s: %s", path, strerror(errno));
    return request->result;
}

static int start(struct backup *backup, struct base *base, const char *path)
{
    int rc = fl__base_connect(path, &backup->to);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(backup->to, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", NULL, NULL, NULL);
    if (rc != SQLITE_OK)
        return rc;
    backup->steps = sqlite3_backup_init(backup->to, "main", base->db, "main");
    return backup->steps ? SQLITE_OK : sqlite3_errcode(backup->to);
}

static void failed(struct worker *worker, int rc)
{
    char message[232];
    int code = fl__sqlite_explain(worker->backup->to, rc, "it", message, sizeof message);
    end(worker, code, message);
}

/* Whether a copy can be made now, and there is a file for it. */
static int prepare(const struct worker *worker, fl_store_request *request)
{
    if (!worker->backup)
        return make_file(request->backup.path, request);
    fl__store_answer(request, FL_STORE_UNAVAILABLE, "another copy of this shard is in progress; wait for it");
    return request->result;
}

int fl__backup_begin(struct worker *worker, struct port *port, fl_store_request *request)
{
    request->next = NULL;
    struct backup *backup = fl__alloc_zeroed(sizeof *backup);
    if (!backup)
        fl__store_answer(request, FL_NO_MEMORY, NULL);
    if (!backup || prepare(worker, request) < 0) {
        fl__release(backup);
        fl__port_answer(port, request);
        return request->result;
    }
    *backup = (struct backup){.port = port, .request = request};
    worker->backup = backup;
    port->held = true;
    int rc = start(backup, worker->base, request->backup.path);
    if (rc != SQLITE_OK)
        failed(worker, rc);
    return rc == SQLITE_OK ? 0 : FL_STORE_UNAVAILABLE;
}

/* Says in the file that it is a copy, as SQLite's VACUUM INTO does: it is not in the mode with a log (folder.c). */
static int note_copy(const char *path)
{
    static const char no_log[2] = {1, 1};
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return SQLITE_CANTOPEN;
    int rc = pwrite(fd, no_log, sizeof no_log, FILE_MODE_AT) == sizeof no_log ? SQLITE_OK : SQLITE_IOERR_WRITE;
    close(fd);
    return rc;
}

static void copied(struct worker *worker)
{
    struct backup *backup = worker->backup;
    sqlite3_backup_finish(backup->steps);
    backup->steps = NULL;
    int rc = sqlite3_close(backup->to);
    backup->to = NULL;
    if (rc == SQLITE_OK)
        rc = note_copy(backup->request->backup.path);
    size_t size = strlen(backup->request->backup.path) + 1;
    char *path = rc == SQLITE_OK ? fl__alloc(size) : NULL;
    if (rc != SQLITE_OK)
        failed(worker, rc);
    else if (!path)
        end(worker, FL_NO_MEMORY, fl_strerror(FL_NO_MEMORY));
    else
        fl__helper_sync(worker->helper, memcpy(path, backup->request->backup.path, size));
}

void fl__backup_step(struct worker *worker)
{
    struct backup *backup = worker->backup;
    int error;
    if (!backup->steps) {
        if (fl__helper_synced(worker->helper, &error))
            end(worker, error ? fl__code_of_errno(error) : 0, strerror(error));
        return;
    }
    int rc = sqlite3_backup_step(backup->steps, STEP_PAGES);
    if (rc == SQLITE_DONE)
        copied(worker);
    else if (rc != SQLITE_OK && rc != SQLITE_BUSY && rc != SQLITE_LOCKED)
        failed(worker, rc);
}

bool fl__backup_waiting(const struct worker *worker)
{
    return worker->backup && worker->backup->steps;
}

void fl__backup_abort(struct worker *worker, const char *why)
{
    end(worker, FL_STORE_UNAVAILABLE, why);
}

struct port *fl__backup_port(const struct worker *worker)
{
    return worker->backup ? worker->backup->port : NULL;
}
