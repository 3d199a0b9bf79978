/* SPDX-License-Identifier: MIT */
/* See content.h. */

#include "cli/content.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct content content;

static int read_file(const struct client *client, const char *name, FILE *file, struct out *ret)
{
    while (!ret->failed && !feof(file) && !ferror(file) && out_reserve(ret, 65536))
        ret->size += fread(ret->data + ret->size, 1, 65536, file);
    if (ferror(file))
        return client_say(client, CLI_FAILED, "cannot read %s: %s", name, strerror(errno));
    return ret->failed ? client_no_memory(client) : CLI_OK;
}

int read_source(const struct client *client, const char *text, struct out *ret)
{
    if (strcmp(text, "-") == 0)
        return read_file(client, "standard input", stdin, ret);
    if (text[0] != '@') {
        out_text(ret, text);
        return ret->failed ? client_no_memory(client) : CLI_OK;
    }
    FILE *file = fopen(text + 1, "re");
    if (!file)
        return client_say(client, CLI_FAILED, "cannot open %s: %s", text + 1, strerror(errno));
    int status = read_file(client, text + 1, file, ret);
    fclose(file);
    return status;
}

/* JSON is taken as it is, other text as a JSON string, anything else as bytes. */
static int put_payload(const struct client *client, struct out *out, const char *text)
{
    struct out payload = {0};
    struct json value;
    size_t at;
    const char *why;
    int status = read_source(client, text, &payload);
    fl_bytes bytes = out_bytes(&payload);
    if (status == CLI_OK && json_parse(bytes, &value, &at, &why) == 0) {
        out_key(out, "payload");
        out_put(out, value.text.data, value.text.size);
    } else if (status == CLI_OK && utf8_is_good(bytes)) {
        out_key(out, "payload");
        out_string(out, bytes);
    } else if (status == CLI_OK) {
        out_key(out, "payload_base64");
        out_base64(out, bytes);
    }
    out_free(&payload);
    return status;
}

static int put_headers(const struct client *client, struct out *out)
{
    out_key(out, "headers");
    out_text(out, "{");
    for (size_t i = 0; i < content.headers.count; i++) {
        const char *header = content.headers.list[i], *colon = strchr(header, ':');
        if (!colon || colon == header)
            return cli_usage(client->command, "invalid value '%s' for --header: expected 'NAME: VALUE';", header);
        out_text(out, i > 0 ? "," : "");
        out_string(out, (fl_bytes){header, (size_t)(colon - header)});
        out_text(out, ":");
        out_string(out, bytes_of(colon + 1 + strspn(colon + 1, " \t")));
    }
    out_text(out, "}");
    return CLI_OK;
}

static bool is_number(const char *text, size_t size)
{
    size_t digits = strspn(text, "0123456789.");
    return digits == size;
}

int put_pairs(const struct client *client, struct out *out, const char *option, const char *text)
{
    out_key(out, option);
    out_text(out, "{");
    for (const char *at = text, *next; *at; at = next) {
        size_t size = strcspn(at, ","), key = strcspn(at, "=");
        if (key == 0 || key + 1 >= size)
            return cli_usage(client->command, "invalid value '%s' for --%s: expected KEY=VALUE,KEY=VALUE;", text,
                             option);
        const char *value = at + key + 1;
        out_text(out, at > text ? "," : "");
        out_string(out, (fl_bytes){at, key});
        out_text(out, ":");
        if (is_number(value, size - key - 1))
            out_put(out, value, size - key - 1);
        else
            out_string(out, (fl_bytes){value, size - key - 1});
        next = at + size + (at[size] == ',');
    }
    out_text(out, "}");
    return CLI_OK;
}

void put_time(struct out *out, const char *key, const char *time)
{
    out_key(out, key);
    if (strspn(time, "0123456789") == strlen(time))
        out_text(out, time);
    else
        out_string(out, bytes_of(time));
}

void put_text(struct out *out, const char *key, const char *text)
{
    out_key(out, key);
    out_string(out, bytes_of(text));
}

int attempt_write(const struct client *client, struct out *out)
{
    int status = CLI_OK;
    if (content.to && *content.to)
        put_text(out, "target", content.to);
    if (content.to && !*content.to) {
        out_key(out, "target");
        out_text(out, "null");
    }
    if (content.timeout)
        put_text(out, "timeout", content.timeout);
    if (content.payload)
        status = put_payload(client, out, content.payload);
    if (status == CLI_OK && content.headers.count > 0)
        status = put_headers(client, out);
    if (status == CLI_OK && content.retry)
        status = put_pairs(client, out, "retry", content.retry);
    return status == CLI_OK && out->failed ? client_no_memory(client) : status;
}

static int put_due(const struct client *client, struct out *out)
{
    if (!content.after + !content.at + !content.local < 2)
        return cli_usage(client->command, "give only one of --after, --at and --local;");
    if (!content.local != !content.zone)
        return cli_usage(client->command, "give --local and --zone together;");
    if (content.after)
        put_text(out, "after", content.after);
    if (content.at)
        put_time(out, "due", content.at);
    if (content.local) {
        out_key(out, "due");
        out_text(out, "{");
        put_text(out, "local", content.local);
        put_text(out, "zone", content.zone);
        out_text(out, "}");
    }
    return CLI_OK;
}

int content_write(const struct client *client, struct out *out)
{
    out_text(out, "{");
    int status = put_due(client, out);
    if (content.max_wait)
        put_text(out, "max_wait", content.max_wait);
    if (content.merge)
        put_text(out, "merge", content.merge);
    if (status == CLI_OK)
        status = attempt_write(client, out);
    out_text(out, "}");
    return status == CLI_OK && out->failed ? client_no_memory(client) : status;
}
