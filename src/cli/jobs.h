/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CLI_JOBS_H
#define FOLIOT_CLI_JOBS_H

/* The commands that `foliot lease --exec` runs, one per leased timer, and the acknowledgements of those that have ended. */

#include <sys/types.h>

#include "cli/client.h"
#include "text/json.h"

struct job {
    pid_t pid;           /* of the command, which leads a process group; 0: it has ended */
    bool succeeded;      /* it has ended with status 0 */
    struct out lease;    /* as JSON */
    uint64_t expires_ns; /* when the lease expires, by clock_now_ns() */
    uint64_t extend_ns;  /* when to extend it, by clock_now_ns(); UINT64_MAX: it cannot be extended any more */
};

struct jobs {
    struct client client; /* for acknowledgements */
    const char *command, *ns, *lease_text;
    uint64_t lease_ns;               /* as `lease_text` says */
    size_t capacity, count, running; /* all jobs; jobs with a running command */
    struct job *list;
    uint64_t retry_ns; /* when to acknowledge again, by clock_now_ns(); 0: at once */
    bool failed;       /* a command has failed, or could not be run */
    int ack_status;    /* of the last acknowledgement that was given up; CLI_OK: none was */
};

/* Runs at most `capacity` commands at once. The other fields of `*jobs` are set already. */
int jobs_open(struct jobs *jobs, size_t capacity, const struct cli_command *command);
void jobs_close(struct jobs *jobs);

/* Runs the command for a timer. If that cannot be done, the timer is acknowledged as failed. */
void jobs_start(struct jobs *jobs, struct json timer);

/* Acknowledges the commands that have ended, and extends the leases of those that run, each time when half of a lease has
 * passed. What fails for now is repeated until the lease expires. */
void jobs_settle(struct jobs *jobs);

/* How long jobs_settle() need not be called unless a command ends. -1: for any time. */
int jobs_wait_ms(const struct jobs *jobs);

/* Sends a signal to all commands that run, and to the processes that they have started. */
void jobs_signal(const struct jobs *jobs, int signal);

#endif
