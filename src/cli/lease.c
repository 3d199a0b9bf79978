/* SPDX-License-Identifier: MIT */
/* `foliot lease`: takes due timers that have no target. It prints them, or runs a command for each and tells the server how
 * that went.
 *
 * A lease is not renewed while a command runs: it must be long enough for all that were leased at once, which therefore is
 * one unless told otherwise. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/client.h"
#include "cli/show.h"
#include "server/timer.h"

static const char *ns, *wait_text, *lease_text, *command;
static uint64_t max;
static bool forever;

/* --- Running a command -------------------------------------------------------------------------------------------- */

/* Puts the payload into a file without a name, which is the command's standard input: so it may read it or not. */
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
    for (size_t at = 0; file >= 0 && at < bytes.size;) {
        ssize_t size = write(file, (const char *)bytes.data + at, bytes.size - at);
        if (size < 0 && errno != EINTR) {
            close(file);
            file = -1;
        }
        at += size > 0 ? (size_t)size : 0;
    }
    if (file >= 0)
        lseek(file, 0, SEEK_SET);
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

static void become_command(struct json timer, int payload)
{
    set_variable(timer, "FOLIOT_ID", "id");
    set_variable(timer, "FOLIOT_NAME", "name");
    set_variable(timer, "FOLIOT_DUE", "due");
    set_variable(timer, "FOLIOT_ATTEMPT", "attempt");
    set_variable(timer, "FOLIOT_LEASE", "lease");
    setenv("FOLIOT_NAMESPACE", ns, 1);
    if (dup2(payload, STDIN_FILENO) >= 0)
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    perror("foliot lease: cannot run /bin/sh");
    _exit(127);
}

/* True: it has succeeded. */
static bool run_command(const struct client *client, struct json timer)
{
    int status = 0, payload = payload_file(timer);
    fflush(NULL);
    pid_t child = payload >= 0 ? fork() : -1;
    if (child == 0)
        become_command(timer, payload);
    if (payload >= 0)
        close(payload);
    if (child < 0) {
        client_say(client, 0, "cannot run the command: %s.", strerror(errno));
        return false;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* --- Leasing ------------------------------------------------------------------------------------------------------ */

static int acknowledge(struct client *client, struct json timer, bool done)
{
    struct out path = {0}, body = {0}, answer = {0};
    struct json lease, result, unknown, element;
    out_text(&path, "/v1/ack");
    if (json_get(timer, "lease", &lease))
        out_format(&body, "{\"acks\":[{\"lease\":%.*s,\"result\":\"%s\"}]}", (int)lease.text.size,
                   (const char *)lease.text.data, done ? "done" : "retry");
    int status = client_ask(client, "POST", &path, &body, &answer, &result);
    if (status == CLI_OK && json_get(result, "unknown", &unknown) && unknown.kind == JSON_ARRAY) {
        struct json_walk walk = json_walk(unknown);
        if (json_element(&walk, &element))
            status = client_say(client, CLI_FAILED,
                                "the lease had run out before the command ended: the timer comes again. Give a longer "
                                "--lease.");
    }
    out_free(&path);
    out_free(&body);
    out_free(&answer);
    return status;
}

/* What fails here does not end it: the other timers are still to be seen to. */
static int take(struct client *client, struct json timer)
{
    if (!command) {
        show_json(timer);
        return CLI_OK;
    }
    bool done = run_command(client, timer);
    int status = acknowledge(client, timer, done);
    return status == CLI_OK && !done ? CLI_FAILED : status;
}

static void put_request(struct out *body, bool waits)
{
    uint64_t most = max > 0 ? max : command ? 1 : 100;
    out_format(body, "{\"max\":%" PRIu64, most);
    if (waits && (wait_text || forever)) {
        out_key(body, "wait");
        out_string(body, bytes_of(wait_text ? wait_text : "60s"));
    }
    if (lease_text) {
        out_key(body, "lease");
        out_string(body, bytes_of(lease_text));
    }
    out_text(body, "}");
}

/* One request, which may wait. `*ret_count`: how many there were. */
static int lease(struct client *client, bool waits, size_t *ret_count)
{
    struct out path = {0}, body = {0}, answer = {0};
    struct json result, timers, timer;
    *ret_count = 0;
    put_path(&path, "/v1/lease", ns, NULL);
    put_request(&body, waits);
    int status = client_ask(client, "POST", &path, &body, &answer, &result), worst = CLI_OK;
    if (status == CLI_OK && !client_interrupted() && json_get(result, "timers", &timers))
        for (struct json_walk walk = json_walk(timers); !client_interrupted() && json_element(&walk, &timer);) {
            status = take(client, timer);
            worst = status != CLI_OK ? status : worst;
            (*ret_count)++;
        }
    fflush(stdout);
    out_free(&path);
    out_free(&body);
    out_free(&answer);
    return worst != CLI_OK ? worst : status;
}

/* Without --forever and with --exec: until nothing is due, and only the first is waited for. */
static int run(void)
{
    struct client client;
    size_t count = 0;
    bool waits = true;
    int worst = CLI_OK, status = client_open(&client, &lease_command);
    if (status != CLI_OK)
        return status;
    client_catch_signals();
    do {
        status = lease(&client, waits, &count);
        worst = status != CLI_OK ? status : worst;
        waits = forever;
    } while (!client_interrupted() && !ferror(stdout) &&
             (forever ? status == CLI_OK || status == CLI_FAILED : command && max == 0 && count > 0));
    client_close(&client);
    return forever && client_interrupted() ? CLI_OK : worst;
}

static const struct cli_option options[] = {
    {"max", "N", "how many at once, up to 10000; 100 if not given, with --exec one after the other until none is due",
     .value = &max, .min = 1, .max = 10000},
    {"wait", "DURATION", "wait so long for one to fall due, up to 60s; 0s if not given, 60s with --forever",
     .text = &wait_text, .format = &cli_duration},
    {"lease", "DURATION", "for how long nobody else gets them; 30s if not given", .text = &lease_text,
     .format = &cli_duration},
    {"exec", "COMMAND", "run it (sh -c) for each one; status 0: it is done, else it comes again", .text = &command},
    {"forever", "", "go on until interrupted", .flag = &forever},
    {0},
};

static const struct cli_argument arguments[] = {{"NAMESPACE", "whose timers", &ns, false}, {0}};

const struct cli_command lease_command = {
    .name = "lease",
    .summary = "takes due timers without a target: prints them, or runs a command for each",
    .options = options,
    .arguments = arguments,
    .notes = "The command has the payload on its standard input, and FOLIOT_ID, FOLIOT_NAME, FOLIOT_NAMESPACE,\n"
             "FOLIOT_DUE, FOLIOT_ATTEMPT and FOLIOT_LEASE in its environment. Without --exec, what is printed comes\n"
             "again when the lease has run out, unless somebody acknowledges it (POST /v1/ack).",
    .run = run,
};
