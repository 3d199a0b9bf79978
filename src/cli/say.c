/* SPDX-License-Identifier: MIT */
/* What is wrong, in words: what the server says, what libcurl says, and what to do about it. */

#include "cli/client.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <foliot/version.h>

#include "cli/show.h"

int client_say(const struct client *client, int status, const char *format, ...)
{
    va_list arguments;
    if (client->quiet)
        return status;
    fflush(stdout); /* what was done comes before what was not */
    fprintf(stderr, "foliot %s: %s", client->command->name, client->about ? client->about : "");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return status;
}

int client_no_memory(const struct client *client)
{
    client_say(client, CLI_FAILED, "out of memory");
    return CLI_FAILED;
}

static const struct {
    int from, to;
    int exit;
    const char *advice;
} meanings[] = {
    {401, 401, CLI_REFUSED, "set FOLIOT_TOKEN to a token from the server's configuration"},
    {403, 403, CLI_REFUSED, "set FOLIOT_TOKEN to a token with this right"},
    {404, 404, CLI_NOT_FOUND, ""},
    {409, 409, CLI_CONFLICT, ""},
    {412, 412, CLI_CONFLICT, ""},
    {429, 429, CLI_LATER, ""},
    {503, 503, CLI_LATER, ""},
    {507, 507, CLI_LATER, ""},
    {0, 999, CLI_FAILED, ""},
};

int client_explain(const struct client *client, const char *about, struct json problem)
{
    struct json value;
    struct out text = {0};
    int64_t status = 0;
    size_t i = 0;
    if (json_get(problem, "status", &value))
        json_integer(value, &status);
    while (status < meanings[i].from || status > meanings[i].to)
        i++;
    if (json_get(problem, "detail", &value))
        put_shown(&text, value);
    out_format(&text, "%s%s", *meanings[i].advice ? "; " : "", meanings[i].advice);
    if (text.failed)
        client_no_memory(client);
    else
        client_say(client, 0, "%s%s", about, text.data);
    out_free(&text);
    return meanings[i].exit;
}

static bool is_problem(fl_bytes body, struct json *ret)
{
    struct json type;
    size_t at;
    const char *why;
    return json_parse(body, ret, &at, &why) == 0 && ret->kind == JSON_OBJECT && json_get(*ret, "detail", &type);
}

int client_explain_status(struct client *client, long status, const struct out *body)
{
    struct json problem;
    if (is_problem(out_bytes(body), &problem))
        return client_explain(client, "", problem);
    return client_say(client, status == 404 ? CLI_NOT_FOUND : CLI_FAILED,
                      "%s answered with status %ld, but not as Foliot does; check FOLIOT_URL or --server", client->url,
                      status);
}

int client_explain_failure(struct client *client, CURLcode code)
{
    long number = 0, status = 0;
    curl_easy_getinfo(client->curl, CURLINFO_OS_ERRNO, &number);
    curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &status);
    char reason[sizeof client->error];
    snprintf(reason, sizeof reason, "%s",
             code == CURLE_COULDNT_CONNECT && number ? strerror((int)number)
             : client->error[0]                      ? client->error
                                                     : curl_easy_strerror(code));
    reason[0] = (char)tolower((unsigned char)reason[0]);
    if (code == CURLE_OUT_OF_MEMORY)
        return client_no_memory(client);
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL)
        return client_say(client, CLI_USAGE,
                          "'%s' is not the URL of a server; give FOLIOT_URL or --server as http://HOST:PORT",
                          client->url);
    if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST)
        return client_say(client, CLI_UNREACHABLE,
                          "cannot reach %s: %s; start `foliot serve`, or set FOLIOT_URL or --server", client->url,
                          reason);
    return client_say(client, CLI_UNREACHABLE,
                      "the connection to %s failed: %s; the server may or may not have executed the request",
                      client->url, reason);
}
