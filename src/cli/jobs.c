/* SPDX-License-Identifier: MIT */
/* See jobs.h.
 *
 * Each command leads a process group of its own. So Ctrl-C on a terminal reaches only foliot, which waits for the command.
 * Several commands that have ended are acknowledged in one request. */

#include "cli/jobs.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/show.h"
#include "text/base64.h"

#define RETRY_NS UINT64_C(200000000)
enum { ACK_SECONDS = 30, EXTEND_SECONDS = 5, GIVE_UP_SIGNALS = 4 };

int jobs_open(struct jobs *jobs, size_t capacity, const struct cli_command *command)
{
    assert(capacity > 0);
    int status = client_prepare(&jobs->client, command);
    if (status != CLI_OK)
        return status;
    jobs->capacity = capacity;
    jobs->list = calloc(capacity, sizeof *jobs->list);
    if (jobs->list)
        return CLI_OK;
    client_close(&jobs->client);
    return client_no_memory(&jobs->client);
}

void jobs_close(struct jobs *jobs)
{
    assert(jobs->count == 0);
    free(jobs->list);
    client_close(&jobs->client);
}

/* --- Running a command -------------------------------------------------------------------------------------------- */

static bool write_all(int file, fl_bytes bytes)
{
    for (size_t at = 0; at < bytes.size;) {
        ssize_t size = write(file, (const char *)bytes.data + at, bytes.size - at);
        if (size < 0 && errno != EINTR)
            return false;
        at += size > 0 ? (size_t)size : 0;
    }
    return lseek(file, 0, SEEK_SET) == 0;
}

/* Puts the payload into a file without a name. It becomes the command's standard input, which the command may ignore. */
static int payload_file(struct json timer)
{
    struct json payload;
    unsigned char *decoded = NULL;
    struct out text = {0};
    fl_bytes bytes = {"", 0};
    if (json_get(timer, "payload_base64", &payload)) {
        put_string(&text, payload);
        size_t size = 0;
        if (!text.failed && base64_decode(out_bytes(&text), &decoded, &size) == 0)
            bytes = (fl_bytes){decoded, size};
    } else if (json_get(timer, "payload", &payload) && payload.kind != JSON_NULL) {
        bytes = payload.text;
    }
    int file = memfd_create("payload", MFD_CLOEXEC);
    if (file >= 0 && !write_all(file, bytes)) {
        close(file);
        file = -1;
    }
    free(decoded);
    out_free(&text);
    return file;
}

static void set_variable(struct json timer, const char *variable, const char *key)
{
    struct out text = {0};
    struct json value;
    if (json_get(timer, key, &value) && value.kind == JSON_STRING)
        put_string(&text, value);
    else if (json_get(timer, key, &value))
        out_put(&text, value.text.data, value.text.size);
    out_put(&text, "", 1);
    if (!text.failed)
        setenv(variable, text.data, 1);
    out_free(&text);
}

static _Noreturn void become_command(const struct jobs *jobs, struct json timer, int payload)
{
    setpgid(0, 0);
    set_variable(timer, "FOLIOT_ID", "id");
    set_variable(timer, "FOLIOT_NAME", "name");
    set_variable(timer, "FOLIOT_DUE", "due");
    set_variable(timer, "FOLIOT_ATTEMPT", "attempt");
    set_variable(timer, "FOLIOT_LEASE", "lease");
    setenv("FOLIOT_NAMESPACE", jobs->ns, 1);
    if (dup2(payload, STDIN_FILENO) >= 0)
        execl("/bin/sh", "sh", "-c", jobs->command, (char *)NULL);
    perror("foliot lease: cannot run /bin/sh");
    _exit(127);
}

void jobs_start(struct jobs *jobs, struct json timer)
{
    struct json lease;
    assert(jobs->count < jobs->capacity);
    struct job *job = &jobs->list[jobs->count++];
    uint64_t now_ns = clock_now_ns();
    *job = (struct job){.expires_ns = now_ns + jobs->lease_ns, .extend_ns = now_ns + jobs->lease_ns / 2};
    if (json_get(timer, "lease", &lease))
        out_put(&job->lease, lease.text.data, lease.text.size);
    int payload = payload_file(timer);
    fflush(NULL);
    pid_t child = payload >= 0 ? fork() : -1;
    if (child == 0)
        become_command(jobs, timer, payload);
    if (child < 0) {
        client_say(&jobs->client, 0, "cannot run the command: %s", strerror(errno));
        jobs->failed = true;
    } else {
        setpgid(child, child); /* the child does it too: whichever comes first */
        job->pid = child;
        jobs->running++;
    }
    if (payload >= 0)
        close(payload);
}

void jobs_signal(const struct jobs *jobs, int signal)
{
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->list[i].pid > 0)
            kill(-jobs->list[i].pid, signal);
}

/* --- Acknowledging ------------------------------------------------------------------------------------------------ */

static void reap(struct jobs *jobs)
{
    for (size_t i = 0; i < jobs->count; i++) {
        struct job *job = &jobs->list[i];
        int status;
        if (job->pid == 0 || waitpid(job->pid, &status, WNOHANG) <= 0)
            continue;
        job->pid = 0;
        job->succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        jobs->failed |= !job->succeeded;
        jobs->running--;
    }
}

/* Removes the jobs whose command has ended. */
static void forget_ended(struct jobs *jobs)
{
    size_t kept = 0;
    for (size_t i = 0; i < jobs->count; i++) {
        if (jobs->list[i].pid > 0)
            jobs->list[kept++] = jobs->list[i];
        else
            out_free(&jobs->list[i].lease);
    }
    jobs->count = kept;
    jobs->retry_ns = 0;
    assert(jobs->count == jobs->running);
}

static void put_acks(const struct jobs *jobs, struct out *body)
{
    out_text(body, "{\"acks\":[");
    bool first = true;
    for (size_t i = 0; i < jobs->count; i++) {
        const struct job *job = &jobs->list[i];
        if (job->pid > 0)
            continue;
        out_text(body, first ? "{\"lease\":" : ",{\"lease\":");
        out_put(body, job->lease.data, job->lease.size);
        out_format(body, ",\"result\":\"%s\"}", job->succeeded ? "done" : "retry");
        first = false;
    }
    out_text(body, "]}");
}

static void report_expired(struct jobs *jobs, struct json answer)
{
    struct json unknown, element;
    size_t count = 0;
    if (json_get(answer, "unknown", &unknown) && unknown.kind == JSON_ARRAY)
        for (struct json_walk walk = json_walk(unknown); json_element(&walk, &element);)
            count++;
    if (count > 0)
        jobs->ack_status =
            client_say(&jobs->client, CLI_FAILED,
                       "%zu lease%s ended before the command did (expired, or the server restarted), so the timer "
                       "will fire again; if it expired, give a longer --lease",
                       count, count == 1 ? "" : "s");
}

/* Whether acknowledging again can help: the server may be back before the leases expire. */
static bool may_retry(const struct jobs *jobs, int status)
{
    uint64_t now_ns = clock_now_ns();
    if ((status != CLI_UNREACHABLE && status != CLI_LATER) || client_signals() >= GIVE_UP_SIGNALS)
        return false;
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->list[i].pid == 0 && jobs->list[i].expires_ns > now_ns)
            return true;
    return false;
}

static int acknowledge(struct jobs *jobs, bool quiet)
{
    struct out path = {0}, body = {0}, answer = {0};
    struct json result;
    size_t at;
    const char *why;
    out_text(&path, "/v1/ack");
    put_acks(jobs, &body);
    struct client_request request = {.method = "POST",
                                     .path = &path,
                                     .body = out_bytes(&body),
                                     .signals = GIVE_UP_SIGNALS,
                                     .timeout_s = ACK_SECONDS};
    jobs->client.quiet = quiet;
    jobs->client.about = "cannot acknowledge the timer of a finished command: ";
    int status = body.failed ? client_no_memory(&jobs->client) : client_send(&jobs->client, &request, &answer);
    jobs->client.quiet = false;
    jobs->client.about = NULL;
    if (status == CLI_OK && json_parse(out_bytes(&answer), &result, &at, &why) == 0)
        report_expired(jobs, result);
    out_free(&path);
    out_free(&body);
    out_free(&answer);
    return status;
}

/* --- Extending ---------------------------------------------------------------------------------------------------- */

static bool is_to_extend(const struct job *job, uint64_t now_ns)
{
    return job->pid > 0 && job->extend_ns <= now_ns;
}

static size_t put_extensions(const struct jobs *jobs, uint64_t now_ns, struct out *body)
{
    size_t count = 0;
    out_text(body, "{\"acks\":[");
    for (size_t i = 0; i < jobs->count; i++) {
        const struct job *job = &jobs->list[i];
        if (!is_to_extend(job, now_ns))
            continue;
        out_text(body, count++ == 0 ? "{\"lease\":" : ",{\"lease\":");
        out_put(body, job->lease.data, job->lease.size);
        out_format(body, ",\"result\":\"extend\",\"after\":\"%s\"}", jobs->lease_text);
    }
    out_text(body, "]}");
    return count;
}

static bool is_unknown(struct json answer, const struct job *job)
{
    struct json unknown, lease;
    if (json_get(answer, "unknown", &unknown) && unknown.kind == JSON_ARRAY)
        for (struct json_walk walk = json_walk(unknown); json_element(&walk, &lease);)
            if (lease.text.size == job->lease.size && memcmp(lease.text.data, job->lease.data, lease.text.size) == 0)
                return true;
    return false;
}

/* What has expired meanwhile is reported when its command ends. */
static void note_extensions(struct jobs *jobs, uint64_t now_ns, int status, struct json answer)
{
    bool for_now = status == CLI_UNREACHABLE || status == CLI_LATER;
    for (size_t i = 0; i < jobs->count; i++) {
        struct job *job = &jobs->list[i];
        if (!is_to_extend(job, now_ns))
            continue;
        if (status == CLI_OK && !is_unknown(answer, job)) {
            job->expires_ns = now_ns + jobs->lease_ns;
            job->extend_ns = now_ns + jobs->lease_ns / 2;
        } else {
            uint64_t again_ns = clock_now_ns() + RETRY_NS;
            job->extend_ns = for_now && again_ns < job->expires_ns ? again_ns : UINT64_MAX;
        }
    }
}

static void extend(struct jobs *jobs)
{
    struct out path = {0}, body = {0}, answer = {0};
    struct json result = {0};
    size_t at;
    const char *why;
    uint64_t now_ns = clock_now_ns();
    if (put_extensions(jobs, now_ns, &body) > 0) {
        out_text(&path, "/v1/ack");
        struct client_request request = {.method = "POST",
                                         .path = &path,
                                         .body = out_bytes(&body),
                                         .signals = GIVE_UP_SIGNALS,
                                         .timeout_s = EXTEND_SECONDS};
        jobs->client.quiet = true;
        int status = body.failed ? CLI_LATER : client_send(&jobs->client, &request, &answer);
        jobs->client.quiet = false;
        if (status == CLI_OK && json_parse(out_bytes(&answer), &result, &at, &why) < 0)
            status = CLI_FAILED;
        note_extensions(jobs, now_ns, status, result);
    }
    out_free(&path);
    out_free(&body);
    out_free(&answer);
}

void jobs_settle(struct jobs *jobs)
{
    reap(jobs);
    extend(jobs);
    if (jobs->count == jobs->running || clock_now_ns() < jobs->retry_ns)
        return;
    bool quiet = may_retry(jobs, CLI_LATER);
    int status = acknowledge(jobs, quiet);
    if (may_retry(jobs, status)) {
        jobs->retry_ns = clock_now_ns() + RETRY_NS;
        return;
    }
    if (status != CLI_OK && quiet)
        status = acknowledge(jobs, false); /* says why it fails */
    if (status != CLI_OK)
        jobs->ack_status = status;
    forget_ended(jobs);
}

int jobs_wait_ms(const struct jobs *jobs)
{
    uint64_t now_ns = clock_now_ns(), next_ns = jobs->count > jobs->running ? jobs->retry_ns : UINT64_MAX;
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->list[i].pid > 0 && jobs->list[i].extend_ns < next_ns)
            next_ns = jobs->list[i].extend_ns;
    if (next_ns == UINT64_MAX)
        return -1;
    uint64_t left_ms = next_ns > now_ns ? (next_ns - now_ns) / 1000000 + 1 : 0;
    return left_ms < INT_MAX ? (int)left_ms : INT_MAX;
}
