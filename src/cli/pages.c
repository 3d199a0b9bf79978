/* SPDX-License-Identifier: MIT */
/* See pages.h. */

#include "cli/pages.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/show.h"

enum { PAGE = 1000 };

bool filter_is_given(const struct filter *filter)
{
    return filter->prefix || filter->name_contains || filter->target_prefix || filter->schedule ||
           filter->reason_contains || filter->due_after || filter->due_before;
}

void put_filter(struct out *path, const struct filter *filter)
{
    put_query(path, "prefix", filter->prefix);
    put_query(path, "name_contains", filter->name_contains);
    put_query(path, "target_prefix", filter->target_prefix);
    put_query(path, "schedule", filter->schedule);
    put_query(path, "reason_contains", filter->reason_contains);
    put_query(path, "due_after", filter->due_after);
    put_query(path, "due_before", filter->due_before);
}

static void put_page(struct out *path, const struct pages *pages, uint64_t left, const struct out *cursor)
{
    char limit[24];
    out_clear(path);
    out_put(path, pages->path->data, pages->path->size);
    snprintf(limit, sizeof limit, "%" PRIu64, left < PAGE ? left : PAGE);
    put_query(path, "limit", limit);
    if (cursor->size > 0)
        put_query(path, "cursor", cursor->data);
}

/* Hands out the timers of a page; takes the cursor of the next, if there is one. */
static int take_page(const struct pages *pages, struct json page, uint64_t *left, struct out *cursor)
{
    struct json timers, timer, next;
    int status = CLI_OK;
    if (json_get(page, pages->member ? pages->member : "timers", &timers) && timers.kind == JSON_ARRAY)
        for (struct json_walk walk = json_walk(timers); status == CLI_OK && json_element(&walk, &timer);) {
            status = pages->timer(pages->arg, timer);
            (*left)--;
        }
    if (status == CLI_OK && pages->page)
        status = pages->page(pages->arg);
    out_clear(cursor);
    if (json_get(page, "cursor", &next) && next.kind == JSON_STRING)
        put_string(cursor, next);
    return status;
}

int pages_follow(struct client *client, const struct pages *pages)
{
    struct out path = {0}, answer = {0}, cursor = {0};
    uint64_t left = pages->limit > 0 ? pages->limit : UINT64_MAX;
    int status;
    do {
        struct json page;
        put_page(&path, pages, left, &cursor);
        status = client_ask(client, "GET", &path, NULL, &answer, &page);
        if (status == CLI_OK && !client_interrupted())
            status = take_page(pages, page, &left, &cursor);
    } while (status == CLI_OK && left > 0 && cursor.size > 0 && !client_interrupted());
    if (status == CLI_OK && cursor.failed)
        status = client_no_memory(client);
    out_free(&path);
    out_free(&answer);
    out_free(&cursor);
    return status;
}
