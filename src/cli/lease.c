/* SPDX-License-Identifier: MIT */
/* `foliot lease`: takes due timers that have no target. It prints them, or runs a command for each and acknowledges it.
 *
 * One request for timers is under way while commands run. It asks for as many timers as commands can be started at once, so
 * no lease grows old in a queue. Leases are extended while their commands run (jobs.h).
 *
 * Stopping. The first signal ends the request by hanging up (client.h): timers that the server has leased to us by then still
 * arrive, and are printed or run like the others. Then we wait for the commands and acknowledge them. The second signal is
 * passed on to the commands as SIGTERM, the third as SIGKILL. They are acknowledged as failed then. The fourth cuts off an
 * acknowledgement that the server does not answer. */

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/jobs.h"
#include "cli/show.h"
#include "text/when.h"

enum { HANG_UP_MS = 2000, PRINTED_AT_ONCE = 100 };
#define DEFAULT_LEASE_US UINT64_C(30000000)

static const char *ns, *wait_text, *lease_text, *command;
static uint64_t max, parallel = 1;
static bool forever;

struct leasing {
    struct client client; /* for leases */
    struct jobs jobs;
    struct out path, body, answer;
    struct client_request request;
    bool waited;   /* a request that waits was sent */
    bool over;     /* no further request */
    uint64_t left; /* how many timers may still be taken */
    int heeded;    /* signals */
    uint64_t hung_up_ns;
    int status; /* of the last request for timers */
};

/* --- Requests ----------------------------------------------------------------------------------------------------- */

static uint64_t room(const struct leasing *leasing)
{
    uint64_t room = command ? leasing->jobs.capacity - leasing->jobs.count : max > 0 ? max : PRINTED_AT_ONCE;
    return room < leasing->left ? room : leasing->left;
}

static void put_request(struct leasing *leasing)
{
    struct out *body = &leasing->body;
    out_clear(body);
    out_format(body, "{\"max\":%" PRIu64, room(leasing));
    if (forever || (wait_text && !leasing->waited)) {
        out_key(body, "wait");
        out_string(body, bytes_of(wait_text ? wait_text : "60s"));
    }
    if (lease_text) {
        out_key(body, "lease");
        out_string(body, bytes_of(lease_text));
    }
    out_text(body, "}");
}

static void ask(struct leasing *leasing)
{
    put_request(leasing);
    leasing->waited = true;
    leasing->request = (struct client_request){
        .method = "POST", .path = &leasing->path, .body = out_bytes(&leasing->body), .signals = INT_MAX};
    leasing->status = leasing->body.failed ? client_no_memory(&leasing->client)
                                           : client_begin(&leasing->client, &leasing->request, &leasing->answer);
    leasing->over = leasing->over || leasing->status != CLI_OK;
}

static uint64_t take_all(struct leasing *leasing, struct json timers)
{
    struct json timer;
    uint64_t count = 0;
    for (struct json_walk walk = json_walk(timers); json_element(&walk, &timer); count++) {
        if (!command)
            show_json(timer);
        else if (leasing->jobs.count < leasing->jobs.capacity)
            jobs_start(&leasing->jobs, timer);
    }
    fflush(stdout);
    return count;
}

/* Without --forever, the end is when nothing is due, when there were enough, or after the first answer that is printed. */
static void take_answer(struct leasing *leasing, int status)
{
    struct json timers;
    uint64_t count = 0;
    leasing->status = status;
    if (status == CLI_OK && leasing->answer.size > 0) { /* empty after hanging up */
        struct json result;
        leasing->status = client_read(&leasing->client, &leasing->answer, &result);
        if (leasing->status == CLI_OK && json_get(result, "timers", &timers) && timers.kind == JSON_ARRAY)
            count = take_all(leasing, timers);
    }
    leasing->left -= count < leasing->left ? count : leasing->left;
    if (leasing->status != CLI_OK || ferror(stdout) || leasing->left == 0 || (!forever && (count == 0 || !command)))
        leasing->over = true;
}

/* --- Working ------------------------------------------------------------------------------------------------------ */

static void say_stopping(const struct leasing *leasing)
{
    size_t running = leasing->jobs.running;
    static const char *const does[] = {"waiting for %zu running command%s; interrupt again to end %s",
                                       "ending %zu running command%s; interrupt again to kill %s"};
    size_t i = leasing->heeded < 2 ? 0 : 1;
    if (running > 0 && leasing->heeded < 3)
        client_say(&leasing->client, 0, does[i], running, running == 1 ? "" : "s", running == 1 ? "it" : "them");
}

static void heed_signals(struct leasing *leasing)
{
    int signals = client_signals();
    if (signals == leasing->heeded)
        return;
    leasing->heeded = signals;
    leasing->over = true;
    if (leasing->client.exchange && !leasing->client.hung_up) {
        client_hang_up(&leasing->client);
        leasing->hung_up_ns = clock_now_ns();
    }
    say_stopping(leasing);
    if (signals > 1)
        jobs_signal(&leasing->jobs, signals == 2 ? SIGTERM : SIGKILL);
}

/* A server behind a proxy may not notice that we have hung up. */
static int wait_ms(struct leasing *leasing)
{
    int ms = jobs_wait_ms(&leasing->jobs);
    if (!leasing->client.hung_up)
        return ms;
    uint64_t passed_ms = (clock_now_ns() - leasing->hung_up_ns) / 1000000;
    int left_ms = passed_ms < HANG_UP_MS ? (int)(HANG_UP_MS - passed_ms) : 0;
    if (left_ms == 0)
        client_abort(&leasing->client);
    return ms >= 0 && ms < left_ms ? ms : left_ms;
}

static void work(struct leasing *leasing)
{
    for (;;) {
        int status;
        heed_signals(leasing);
        jobs_settle(&leasing->jobs);
        if (!leasing->over && !leasing->client.exchange && room(leasing) > 0)
            ask(leasing);
        if (!leasing->client.exchange && leasing->jobs.count == 0)
            return;
        if (client_wait(&leasing->client, wait_ms(leasing), &status))
            take_answer(leasing, status);
    }
}

/* A worker that was told to stop has done well, unless the server did not hear of work that was done. */
static int worst(const struct leasing *leasing)
{
    if (leasing->jobs.ack_status != CLI_OK)
        return leasing->jobs.ack_status;
    if (leasing->status != CLI_OK)
        return leasing->status;
    return leasing->jobs.failed && !(forever && client_interrupted()) ? CLI_FAILED : CLI_OK;
}

static int open_all(struct leasing *leasing)
{
    uint64_t lease_us = DEFAULT_LEASE_US;
    int status = client_open(&leasing->client, &lease_command);
    if (status != CLI_OK)
        return status;
    if (lease_text)
        duration_parse(bytes_of(lease_text), &lease_us);
    leasing->jobs = (struct jobs){
        .command = command, .ns = ns, .lease_text = lease_text ? lease_text : "30s", .lease_ns = lease_us * 1000};
    status = jobs_open(&leasing->jobs, parallel, &lease_command);
    if (status != CLI_OK)
        client_close(&leasing->client);
    return status;
}

static int run(void)
{
    struct leasing leasing = {.left = max > 0 && !forever ? max : UINT64_MAX};
    if (parallel > 1 && !command)
        return cli_usage(&lease_command, "--parallel needs --exec;");
    int status = open_all(&leasing);
    if (status != CLI_OK)
        return status;
    put_path(&leasing.path, "/v1/lease", ns, NULL);
    status = client_catch_signals(&leasing.client, true);
    if (status == CLI_OK) {
        work(&leasing);
        status = worst(&leasing);
    }
    out_free(&leasing.path);
    out_free(&leasing.body);
    out_free(&leasing.answer);
    jobs_close(&leasing.jobs);
    client_close(&leasing.client);
    return status;
}

static const struct cli_option options[] = {
    {"max", "N", "take at most N timers (1 to 10000), with --forever N per request; default: 100, with --exec no limit",
     .value = &max, .min = 1, .max = 10000},
    {"wait", "DURATION", "wait up to DURATION (at most 60s) for the first timer; default: 0s, with --forever 60s",
     .text = &wait_text, .format = &cli_duration},
    {"lease", "DURATION",
     "no other worker gets the timer for DURATION; with --exec, foliot extends the lease while the command runs; "
     "default: 30s",
     .text = &lease_text, .format = &cli_duration},
    {"exec", "COMMAND", "run COMMAND with sh -c for each timer; exit status 0 means done, any other status means retry",
     .text = &command},
    {"parallel", "N", "run up to N commands at once", .value = &parallel, .min = 1, .max = 1000},
    {"forever", "", "continue until interrupted", .flag = &forever},
    {0},
};

static const struct cli_argument arguments[] = {{"NAMESPACE", "the namespace of the timers", &ns, false}, {0}};

const struct cli_command lease_command = {
    .name = "lease",
    .summary = "leases due timers that have no target: prints them, or runs a command for each",
    .options = options,
    .arguments = arguments,
    .notes =
        "The command gets the payload on standard input, and FOLIOT_ID, FOLIOT_NAME, FOLIOT_NAMESPACE, FOLIOT_DUE,\n"
        "FOLIOT_ATTEMPT and FOLIOT_LEASE in its environment. Without --exec, acknowledge each timer with\n"
        "`foliot ack LEASE` before its lease expires. Otherwise it fires again.\n\n"
        "The first SIGINT or SIGTERM stops leasing: foliot waits for the running commands and acknowledges them.\n"
        "A second signal sends SIGTERM to the commands, a third SIGKILL.",
    .run = run,
};
