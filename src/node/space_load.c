/* SPDX-License-Identifier: MIT */
/* When a shard is claimed: the settings of namespaces that are kept in it are read before anything fires. */

#include <stdlib.h>

#include "text/log.h"
#include "node/server.h"

#define AGAIN_NS (100 * 1000000ull)

enum { PAGE = 1000 };

static void load_render(struct page *page)
{
    for (size_t i = 0; i < page->listing.count; i++)
        spaces_take(page->shard->worker->server, &page->listing.found[i].timer);
}

static void load_again(fl_loop *loop, void *arg)
{
    struct page *page = arg;
    struct shard *shard = page->shard;
    (void)loop;
    if (shard->loading == page)
        page_submit(page);
    else
        free(page); /* the shard has left, and perhaps come back */
}

static void loaded(struct errand *errand)
{
    struct page *page = (struct page *)errand;
    struct shard *shard = page->shard;
    bool failed = page->moved || page->listing.result < 0;
    if (!shard->engine || shard->leaving) {
        free(page);
        return;
    }
    if (failed && fl_loop_timer(shard->worker->loop, AGAIN_NS, load_again, page, NULL) == 0)
        return;
    if (!failed && page->listing.more) {
        page_submit(page);
        return;
    }
    if (failed)
        log_error("cannot read the settings of the namespaces of a shard", "shard", log_int(shard->number), NULL);
    free(page);
    shard->loading = NULL;
    shard_loaded(shard);
}

void space_load(struct shard *shard)
{
    struct page *page = calloc(1, sizeof *page);
    if (!page) {
        shard_loaded(shard);
        return;
    }
    page->errand.home = shard->worker;
    page->local = true;
    page->back = loaded;
    page->render = load_render;
    page->shard = shard;
    page->listing.ns = SETTINGS_NAMESPACE;
    page->listing.from_us = FL_STORE_TIME_END - 1;
    page->listing.limit = PAGE;
    shard->loading = page;
    page_submit(page);
}
