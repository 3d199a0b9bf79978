/* SPDX-License-Identifier: MIT */
/* How many timers of each namespace are in a shard.
 *
 * A shard has a list of the namespaces that were ever used in it, on its worker and nobody else's; what all shards of this
 * server have together is in the namespace itself. The list goes where the shard goes: each entry is a timer of the
 * shard, in a namespace that no user can name, due on the last day there is. It is read when the shard is claimed, and
 * written every few seconds, before the shard is given up, and at once when a namespace is new. After a crash a count may be off
 * by what happened since. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/json.h"
#include "server/log.h"
#include "server/server.h"

#define FLUSH_NS (5 * 1000000000ull)
#define AGAIN_NS (100 * 1000000ull)

enum { PAGE = 1000, FLUSHED_AT_ONCE = 256 };

struct count {
    struct space *space;
    int64_t pending, saved;
    bool targets, saved_targets, written;
};

/* Entries that are being written. */
struct flush {
    struct job job;
    size_t count;
    struct out text;
    struct flushed {
        size_t entry, begin, size;
        int64_t pending;
        bool targets;
    } entries[FLUSHED_AT_ONCE];
    fl_op ops[FLUSHED_AT_ONCE];
};

struct counts {
    struct count *list;
    size_t count, capacity;
    uint32_t *table; /* by the namespace's hash: a place in the list, from 1; 0: none */
    size_t table_size;
    size_t last; /* most look for the one that they have just looked for */
    size_t next; /* where this round of flushing goes on */
    bool flushing;
    void (*flushed)(struct shard *shard); /* who waits until all is written; NULL: nobody */
    fl_timer_id timer;
    const struct page *loading; /* that of this life of the shard */
};

/* --- The list ----------------------------------------------------------------------------------------------------- */

static void enter(struct counts *counts, size_t place)
{
    size_t at = counts->list[place].space->hash & (counts->table_size - 1);
    while (counts->table[at])
        at = (at + 1) & (counts->table_size - 1);
    counts->table[at] = (uint32_t)place + 1;
}

static bool grow(struct counts *counts)
{
    size_t capacity = counts->capacity * 2 + 16, table_size = 32;
    while (table_size < capacity * 2)
        table_size *= 2;
    struct count *list = realloc(counts->list, capacity * sizeof *list);
    if (list)
        counts->list = list;
    uint32_t *table = list ? calloc(table_size, sizeof *table) : NULL;
    if (!table)
        return false;
    free(counts->table);
    counts->table = table;
    counts->table_size = table_size;
    counts->capacity = capacity;
    for (size_t i = 0; i < counts->count; i++)
        enter(counts, i);
    return true;
}

/* The entry of a namespace, made if there is none; NULL: there is no memory. */
static struct count *count_of(struct counts *counts, struct space *space)
{
    if (counts->last < counts->count && counts->list[counts->last].space == space)
        return &counts->list[counts->last];
    size_t mask = counts->table_size - 1;
    for (size_t at = space->hash & mask; counts->table_size > 0 && counts->table[at]; at = (at + 1) & mask)
        if (counts->list[counts->table[at] - 1].space == space) {
            counts->last = counts->table[at] - 1;
            return &counts->list[counts->last];
        }
    if (counts->count == counts->capacity && !grow(counts))
        return NULL;
    counts->last = counts->count++;
    counts->list[counts->last] = (struct count){.space = space};
    enter(counts, counts->last);
    return &counts->list[counts->last];
}

static void add_to_space(struct server *server, struct space *space, int64_t more, bool targets)
{
    atomic_fetch_add_explicit(&space->pending, more, memory_order_relaxed);
    if (targets && !atomic_load_explicit(&space->has_targets, memory_order_relaxed)) {
        atomic_store(&space->has_targets, true);
        atomic_store(&server->has_targets, true);
    }
}

static void flush_next(struct shard *shard);

void counts_add(struct shard *shard, struct space *space, int64_t more, bool targets)
{
    struct count *count = shard->counts ? count_of(shard->counts, space) : NULL;
    if (!count)
        return;
    count->pending += more;
    count->targets |= targets;
    add_to_space(shard->worker->server, space, more, targets);
    if (!count->written && more > 0 && shard->loaded && !shard->counts->flushing)
        flush_next(shard); /* or a crash would leave the namespace out of the list */
}

/* --- Writing ------------------------------------------------------------------------------------------------------ */

static bool is_unsaved(const struct count *count)
{
    return !count->written || count->pending != count->saved || count->targets != count->saved_targets;
}

static void flush_over(struct shard *shard)
{
    void (*done)(struct shard *) = shard->counts->flushed;
    shard->counts->flushed = NULL;
    shard->counts->next = 0;
    if (done)
        done(shard);
}

/* What changes while it is written has its turn in the next round, however busy it is. */
static void flush_back(struct errand *errand)
{
    struct flush *flush = (struct flush *)errand;
    struct shard *shard = flush->job.shard;
    struct counts *counts = shard->counts;
    bool failed = flush->job.moved;
    for (size_t i = 0; i < flush->count; i++) {
        struct count *count = &counts->list[flush->entries[i].entry];
        if (failed || flush->ops[i].result < 0) {
            failed = true;
            continue;
        }
        count->written = true;
        count->saved = flush->entries[i].pending;
        count->saved_targets = flush->entries[i].targets;
    }
    out_free(&flush->text);
    free(flush);
    counts->flushing = false;
    if (failed)
        flush_over(shard);
    else
        flush_next(shard);
}

static void nothing_to_render(struct job *job)
{
    (void)job;
}

static void flush_fill(struct flush *flush, struct counts *counts)
{
    for (; counts->next < counts->count && flush->count < FLUSHED_AT_ONCE; counts->next++) {
        const struct count *count = &counts->list[counts->next];
        if (!is_unsaved(count))
            continue;
        struct flushed *entry = &flush->entries[flush->count++];
        *entry = (struct flushed){counts->next, flush->text.size, 0, count->pending, count->targets};
        out_format(&flush->text, "{\"pending\":%" PRId64 ",\"has_targets\":%s}", count->pending,
                   count->targets ? "true" : "false");
        entry->size = flush->text.size - entry->begin;
    }
    for (size_t i = 0; i < flush->count && !flush->text.failed; i++) {
        const struct space *space = counts->list[flush->entries[i].entry].space;
        flush->ops[i] =
            (fl_op){.kind = FL_OP_CREATE,
                    .timer = {.ns = COUNTS_NAMESPACE,
                              .name = {space->name, space->size},
                              .due_us = FL_STORE_TIME_END - 1,
                              .payload = {flush->text.data + flush->entries[i].begin, flush->entries[i].size}}};
    }
}

static void flush_next(struct shard *shard)
{
    struct counts *counts = shard->counts;
    struct flush *flush = shard->engine ? calloc(1, sizeof *flush) : NULL; /* or it is being stopped */
    if (flush)
        flush_fill(flush, counts);
    if (!flush || flush->text.failed || flush->count == 0) {
        if (flush)
            out_free(&flush->text);
        free(flush);
        flush_over(shard);
        return;
    }
    counts->flushing = true;
    flush->job.batch.ops = flush->ops;
    flush->job.batch.count = flush->count;
    flush->job.errand.home = shard->worker;
    flush->job.render = nothing_to_render;
    flush->job.back = flush_back;
    flush->job.shard = shard;
    job_submit_inside(&flush->job);
}

static void time_to_flush(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    if (!shard->counts->flushing && shard->loaded)
        flush_next(shard);
}

void counts_flush(struct shard *shard, void (*done)(struct shard *shard))
{
    struct counts *counts = shard->counts;
    counts->flushed = done;
    counts->next = 0;
    if (!counts->flushing) /* else it goes on by itself */
        flush_next(shard);
}

/* --- Reading ------------------------------------------------------------------------------------------------------ */

static void take_in(struct shard *shard, const fl_durable *timer)
{
    struct server *server = shard->worker->server;
    struct json object, key, value;
    size_t at;
    const char *why;
    struct space *space = space_of(server, timer->name);
    struct count *count = space ? count_of(shard->counts, space) : NULL;
    if (!count || json_parse(timer->payload, &object, &at, &why) < 0 || object.kind != JSON_OBJECT)
        return;
    shard->own++;
    count->written = true;
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);) {
        if (json_is(key, "pending") && json_integer(value, &count->saved))
            count->pending += count->saved;
        else if (json_is(key, "has_targets") && value.kind == JSON_TRUE)
            count->targets = count->saved_targets = true;
    }
    add_to_space(server, space, count->saved, count->targets);
}

static void load_render(struct page *page)
{
    for (size_t i = 0; i < page->listing.count; i++)
        take_in(page->shard, &page->listing.found[i].timer);
}

/* The settings of namespaces that are kept in this shard. */
static void load_settings(struct page *page)
{
    for (size_t i = 0; i < page->listing.count; i++) {
        page->shard->own++;
        spaces_take(page->shard->worker->server, &page->listing.found[i].timer);
    }
}

static void load_again(fl_loop *loop, void *arg)
{
    struct page *page = arg;
    struct shard *shard = page->shard;
    (void)loop;
    if (shard->counts && shard->counts->loading == page)
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
    if (!failed && !page->listing.more && page->render == load_render) {
        page->render = load_settings;
        page->listing.ns = SETTINGS_NAMESPACE;
        page->listing.cursor = (fl_cursor){{0}};
        page->listing.more = true;
    }
    if (!failed && page->listing.more) {
        page_submit(page);
        return;
    }
    if (failed)
        log_error("how much is in the namespaces of a shard could not be read", "shard", log_int(shard->number), NULL);
    free(page);
    shard_loaded(shard);
}

void counts_load(struct shard *shard)
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
    page->listing.ns = COUNTS_NAMESPACE;
    page->listing.from_us = FL_STORE_TIME_END - 1;
    page->listing.limit = PAGE;
    shard->counts->loading = page;
    page_submit(page);
}

/* --- Beginning and end -------------------------------------------------------------------------------------------- */

int counts_new(struct shard *shard)
{
    struct counts *counts = calloc(1, sizeof *counts);
    shard->counts = counts;
    if (!counts)
        return FL_NO_MEMORY;
    return fl_loop_interval(shard->worker->loop, FLUSH_NS, FL_TIMER_UNREF, time_to_flush, shard, &counts->timer);
}

/* What is in the shard is no longer here. */
void counts_free(struct shard *shard)
{
    struct counts *counts = shard->counts;
    if (!counts)
        return;
    for (size_t i = 0; i < counts->count; i++)
        atomic_fetch_sub_explicit(&counts->list[i].space->pending, counts->list[i].pending, memory_order_relaxed);
    if (counts->timer)
        fl_loop_cancel(shard->worker->loop, counts->timer);
    free(counts->list);
    free(counts->table);
    free(counts);
    shard->counts = NULL;
}
