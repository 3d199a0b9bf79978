/* SPDX-License-Identifier: MIT */
/* Failed attempts, dead letters and ignored responses in the log.
 *
 * Each has a line, as long as they are few. A target that is down may fail thousands of attempts per second, and the log must
 * not fill the disk: each worker may write BURST lines at once, and then one per second. It counts the others, and says
 * every SUMMARY_S seconds how many they were. A target whose response is ignored may do well without: a line per minute says so. */

#include <stdio.h>

#include "node/internal.h"
#include "text/log.h"

enum { BURST = 20, SUMMARY_S = 10, IGNORED_S = 60 };

static const uint64_t second_ns = 1000000000;

/* Whether there may be one more line now. */
static bool allows(struct attempts_log *log, uint64_t now_ns)
{
    if (log->next_ns > now_ns + (BURST - 1) * second_ns)
        return false;
    log->next_ns = (log->next_ns > now_ns ? log->next_ns : now_ns) + second_ns;
    return true;
}

static void summarize(fl_loop *loop, void *arg)
{
    struct attempts_log *log = &((struct worker *)arg)->attempts_log;
    (void)loop;
    log->summary = 0;
    if (log->failed > 0 || log->dead > 0)
        log_warning("more attempts have failed than the log shows; GET /v1/events shows each", "failed_attempts",
                    log_int(log->failed), "dead_letters", log_int(log->dead), NULL);
    log->failed = log->dead = 0;
}

static void write_line(enum log_level level, const char *what, uint32_t shard, const fl_durable *timer, fl_bytes reason)
{
    char id[FL_ID_TEXT + 1];
    char ns[FL_STORE_NAME_MAX + 1], name[FL_STORE_NAME_MAX + 1], why[256];
    snprintf(ns, sizeof ns, "%.*s", (int)timer->ns.size, (const char *)timer->ns.data);
    snprintf(name, sizeof name, "%.*s", (int)timer->name.size, timer->name.size ? (const char *)timer->name.data : "");
    snprintf(why, sizeof why, "%.*s", (int)reason.size, reason.size ? (const char *)reason.data : "");
    fl_id_format(shard, timer->id, id);
    log_line(level, what, "namespace", ns, "name", name, "id", id, "attempt", log_int(timer->attempt), "why", why,
             NULL);
}

void attempts_log(struct worker *worker, bool dead, uint32_t shard, const fl_durable *timer, fl_bytes reason)
{
    struct attempts_log *log = &worker->attempts_log;
    if (log_level_now() < LOG_WARNING || is_own_namespace(timer->ns))
        return;
    if (allows(log, fl_loop_now_ns(worker->loop))) {
        write_line(LOG_WARNING, dead ? "a timer has become a dead letter" : "an attempt has failed", shard, timer,
                   reason);
        return;
    }
    log->failed += !dead;
    log->dead += dead;
    if (!log->summary)
        fl_loop_timer(worker->loop, SUMMARY_S * second_ns, summarize, worker, &log->summary);
}

void attempts_log_ignored(struct worker *worker, uint32_t shard, const fl_durable *timer, fl_bytes reason)
{
    uint64_t now_ns = fl_loop_now_ns(worker->loop);
    if (log_level_now() < LOG_INFO || now_ns < worker->attempts_log.ignored_ns)
        return;
    worker->attempts_log.ignored_ns = now_ns + IGNORED_S * second_ns;
    write_line(LOG_INFO, "the response of a target was ignored; the attempt counts as done", shard, timer, reason);
}

void attempts_log_stop(struct worker *worker)
{
    if (!worker->attempts_log.summary)
        return;
    fl_loop_cancel(worker->loop, worker->attempts_log.summary);
    summarize(worker->loop, worker);
}
