/* SPDX-License-Identifier: MIT */
/* See ask.h. */

#include "cli/ask.h"

static int send_request(struct client *client, const struct ask *ask, const struct out *path, struct out *body,
                        struct out *answer)
{
    int status = ask->body ? ask->body(client, body) : CLI_OK;
    if (status == CLI_OK && body->failed)
        status = client_no_memory(client);
    if (status != CLI_OK)
        return status;
    struct client_request request = {
        .method = ask->method ? ask->method : "GET", .path = path, .body = out_bytes(body), .header = ask->header};
    return client_send(client, &request, answer);
}

static int show(const struct ask *ask, struct json answer)
{
    if (!ask->as_json && ask->show)
        return ask->show(answer);
    if (ask->as_json)
        show_json(answer);
    else
        show_object(answer);
    return CLI_OK;
}

int ask_and_show(const struct ask *ask)
{
    struct client client;
    struct out path = {0}, body = {0}, answer = {0};
    struct json value;
    int status = client_open(&client, ask->command);
    if (status != CLI_OK)
        return status;
    put_path(&path, ask->path[0], ask->path[1], ask->path[2], ask->path[3], NULL);
    if (ask->query)
        ask->query(&path);
    status = send_request(&client, ask, &path, &body, &answer);
    if (status == CLI_OK)
        status = client_read(&client, &answer, &value);
    if (status == CLI_OK)
        status = show(ask, value);
    out_free(&path);
    out_free(&body);
    out_free(&answer);
    client_close(&client);
    return status;
}

/* --- Lists -------------------------------------------------------------------------------------------------------- */

struct listing {
    const struct ask_list *ask;
    struct table table;
};

static int take(void *arg, struct json row)
{
    struct listing *listing = arg;
    if (listing->ask->as_json)
        show_json(row);
    for (size_t i = 0; !listing->ask->as_json && listing->ask->columns[i].head; i++) {
        const char *inside = listing->ask->columns[i].inside;
        struct json object = row;
        if (inside && !json_get(row, inside, &object))
            object = (struct json){0};
        table_cell(&listing->table, object, listing->ask->columns[i].member);
    }
    return CLI_OK;
}

static int flush(void *arg)
{
    return table_flush(&((struct listing *)arg)->table);
}

int ask_and_list(const struct ask_list *ask)
{
    struct client client;
    struct out path = {0};
    struct listing listing = {.ask = ask};
    for (size_t i = 0; ask->columns[i].head; i++)
        listing.table.heads[i] = ask->columns[i].head;
    int status = client_open(&client, ask->command);
    if (status != CLI_OK)
        return status;
    put_path(&path, ask->path[0], ask->path[1], ask->path[2], ask->path[3], NULL);
    if (ask->filter)
        put_filter(&path, ask->filter);
    if (ask->query)
        ask->query(&path);
    struct pages pages = {
        .path = &path, .member = ask->member, .limit = ask->limit, .timer = take, .page = flush, .arg = &listing};
    status = pages_follow(&client, &pages);
    if (status == CLI_OK && !ask->as_json)
        table_say_empty(&listing.table, ask->none);
    table_free(&listing.table);
    out_free(&path);
    client_close(&client);
    return status;
}
