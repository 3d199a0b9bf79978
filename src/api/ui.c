/* SPDX-License-Identifier: MIT */
/* The dashboard's files, and what stands at the root of the server. The files are those of src/ui, in the program itself.
 *
 * A file has one name in every version, and its hash is its validator: a browser asks before it uses a copy (no-cache), and
 * after an upgrade gets the new files, all of them at the next load of the page. */

#include <string.h>

#include <foliot/version.h>

#include "api/ui_files.h"
#include "api/internal.h"

#define SECURITY                                                                                             \
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " \
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'\r\n"                  \
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n"

static bool is_off(struct call *call)
{
    if (api_of(call->worker)->config.ui)
        return false;
    problem_set(&call->problem, 404, "no-such-path", NULL,
                "the dashboard is turned off; start the server without --no-ui");
    call_refuse(call);
    return true;
}

static const char *type_of(const char *name)
{
    static const struct {
        const char *ending, *type;
    } types[] = {
        {".html", "text/html; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".svg", "image/svg+xml"},
    };
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t ending = strlen(types[i].ending);
        if (length > ending && strcmp(name + length - ending, types[i].ending) == 0)
            return types[i].type;
    }
    return "application/octet-stream";
}

static const struct ui_files *find_file(fl_bytes name)
{
    for (size_t i = 0; i < ui_files_count; i++)
        if (strlen(ui_files[i].name) == name.size && memcmp(ui_files[i].name, name.data, name.size) == 0)
            return &ui_files[i];
    return NULL;
}

/* Whether the client has this version: If-None-Match lists validators, each in quotes. A star is refused before. */
static bool client_has(struct call *call, const char *hash)
{
    fl_bytes have = http_header(call->request, "if-none-match");
    return have.size > 0 && memmem(have.data, have.size, hash, strlen(hash));
}

void ui_file_get(struct call *call)
{
    if (is_off(call))
        return;
    const struct ui_files *file = find_file(call->ns.size > 0 ? call->ns : (fl_bytes){"index.html", 10});
    if (!file) {
        problem_set(&call->problem, 404, "no-such-path", NULL, "the dashboard has no such file; its page is /ui/");
        call_refuse(call);
        return;
    }
    char extra[1024];
    snprintf(extra, sizeof extra, "ETag: \"%s\"\r\nCache-Control: no-cache\r\n" SECURITY, file->hash);
    if (client_has(call, file->hash)) {
        call_answer_as(call, 304, NULL, extra);
        return;
    }
    out_put(&call->out, file->source, file->length);
    call_answer_as(call, 200, type_of(file->name), extra);
}

/* Relative, so that it leads to the same place behind a proxy that adds a path of its own. */
void ui_redirect(struct call *call)
{
    if (!is_off(call))
        call_answer_as(call, 308, NULL, "Location: ui/\r\nCache-Control: no-store\r\n");
}

static bool is_browser(struct call *call)
{
    fl_bytes accept = http_header(call->request, "accept");
    return accept.size > 0 && memmem(accept.data, accept.size, "text/html", 9);
}

void root_get(struct call *call)
{
    bool ui = api_of(call->worker)->config.ui;
    if (ui && is_browser(call)) {
        call_answer_as(call, 302, NULL, "Location: ui/\r\nVary: Accept\r\nCache-Control: no-store\r\n");
        return;
    }
    out_text(&call->out, "{\"name\":\"foliot\",\"version\":\"" FL_VERSION "\"");
    if (ui)
        out_text(&call->out, ",\"dashboard\":\"/ui/\"");
    out_text(&call->out,
             ",\"openapi\":\"/openapi.json\",\"api\":\"/v1/\",\"health\":\"/healthz\",\"ready\":\"/readyz\","
             "\"metrics\":\"/metrics\"}");
    call_answer_as(call, 200, "application/json", "Vary: Accept\r\n");
}
