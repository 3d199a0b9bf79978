/* SPDX-License-Identifier: MIT */
/* Many dead letters at once: redrive and delete by filter, and how many there are of each reason or host.
 *
 * All of it goes through the shards page by page, like a list. Dead letters that came after the request began are left
 * alone: what is redriven may die again meanwhile, and would be redriven without end. `rate` spaces the due times, so the
 * server keeps the pace whatever becomes of the client. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/filter.h"
#include "base/assert.h"
#include "base/hash.h"
#include "text/json.h"

enum {
    PAGE = 1000,
    GROUPS = 100,
    GROUPS_MOST = 1000,
    LETTERS_MOST = 200000, /* that are counted; there may be millions */
    RATE_MOST = 1000000
};

struct group {
    struct hash_link link;
    uint64_t count;
    bool none; /* without a target */
    size_t size;
    char text[];
};

struct many {
    struct shard_call page;
    struct shard_call change; /* the operations on the dead letters of a page */
    struct call *call;
    struct filter filter;
    char prefix[FL_STORE_NAME_MAX];
    enum fl_op_kind does; /* FL_OP_DEAD_GET: counts groups */
    bool dry_run, by_host, incomplete;
    uint64_t matched, changed;
    uint64_t rate; /* 0: all are due now */
    int64_t began_us;
    int result;
    fl_op *ops;
    size_t limit; /* groups in the answer */
    struct hash_table groups;
};

static void many_free(struct many *many)
{
    struct hash_link *next, *link = fl__hash_walk(&many->groups, NULL);
    for (; link; link = next) {
        next = fl__hash_walk(&many->groups, link);
        fl__hash_remove(&many->groups, link);
        free(hash_entry(link, struct group, link));
    }
    fl__hash_free(&many->groups);
    free(many->ops);
    free(many);
}

static void many_refuse(struct many *many)
{
    struct call *call = many->call;
    many_free(many);
    call_refuse(call);
}

/* --- Groups ------------------------------------------------------------------------------------------------------- */

static void count_one(struct many *many, const fl_op *found)
{
    char room[FILTER_HOST];
    fl_bytes text = many->by_host ? filter_host(found->timer.target, room) : found->reason;
    uint64_t hash = fl__hash_text(text.data, text.size);
    for (struct hash_link *link = fl__hash_first(&many->groups, hash); link; link = fl__hash_next(link)) {
        struct group *group = hash_entry(link, struct group, link);
        if (group->size == text.size && memcmp(group->text, text.data, text.size) == 0) {
            group->count++;
            return;
        }
    }
    struct group *group = many->groups.count < GROUPS_MOST ? malloc(sizeof *group + text.size) : NULL;
    if (!group) {
        many->incomplete = true;
        return;
    }
    group->count = 1;
    group->size = text.size;
    group->none = many->by_host && text.size == 0;
    memcpy(group->text, text.data, text.size);
    fl__hash_insert(&many->groups, &group->link, hash);
}

/* The most frequent first; among those, by their text. */
static int compare_groups(const void *a, const void *b)
{
    const struct group *x = *(struct group *const *)a, *y = *(struct group *const *)b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    int r = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    return r != 0 ? r : (x->size > y->size) - (x->size < y->size);
}

static void answer_groups(struct many *many)
{
    struct call *call = many->call;
    struct out *out = &call->out;
    const char *key = many->by_host ? "host" : "reason";
    size_t count = 0;
    struct group **sorted = malloc((many->groups.count + 1) * sizeof(struct group *));
    if (!sorted) {
        problem_of_result(&call->problem, FL_NO_MEMORY);
        many_refuse(many);
        return;
    }
    for (struct hash_link *link = NULL; (link = fl__hash_walk(&many->groups, link));)
        sorted[count++] = hash_entry(link, struct group, link);
    qsort(sorted, count, sizeof(struct group *), compare_groups);
    out_format(out, "{\"group\":\"%s\",\"total\":%" PRIu64 ",\"groups\":[", key, many->matched);
    for (size_t i = 0; i < count && i < many->limit; i++) {
        out_format(out, "%s{\"%s\":", i ? "," : "", key);
        if (sorted[i]->none)
            out_text(out, "null");
        else
            out_string(out, (fl_bytes){sorted[i]->text, sorted[i]->size});
        out_format(out, ",\"count\":%" PRIu64 "}", sorted[i]->count);
    }
    out_format(out, "],\"complete\":%s}", many->incomplete || count > many->limit ? "false" : "true");
    free(sorted);
    many_free(many);
    call_answer(call, 200);
}

/* --- Going through them ------------------------------------------------------------------------------------------- */

static void take(struct many *many, const fl_op *found)
{
    uint64_t number = many->matched++;
    if (many->does == FL_OP_DEAD_GET) {
        count_one(many, found);
        return;
    }
    if (many->dry_run)
        return;
    fl__assert(many->change.batch.count < PAGE);
    fl_op *op = &many->ops[many->change.batch.count++];
    *op = (fl_op){.kind = many->does, .timer = {.ns = many->call->ns, .id = found->timer.id}};
    if (many->rate > 0) {
        op->flags = FL_OP_SET_DUE;
        op->timer.due_us = many->began_us + (int64_t)(number * 1000000 / many->rate);
    }
}

static void render_found(struct shard_call *page)
{
    struct many *many = (struct many *)page;
    many->result = page->listing.result;
    many->change.batch.count = 0;
    for (size_t i = 0; i < page->listing.count && many->result == 0; i++) {
        const fl_op *found = &page->listing.found[i];
        if (found->died_us <= many->began_us && filter_takes(&many->filter, found))
            take(many, found);
    }
}

static void render_changed(struct shard_call *call)
{
    struct many *many = (struct many *)((char *)call - offsetof(struct many, change));
    for (size_t i = 0; i < call->batch.count; i++) {
        int r = many->ops[i].result;
        many->changed += r == 0;
        if (r < 0 && r != FL_TIMER_NOT_FOUND && r != FL_EXISTS)
            many->result = r;
    }
}

static bool next_shard(struct many *many)
{
    const struct node *node = many->call->worker->node;
    if (many->page.shard->number + 1 == node->shard_count)
        return false;
    many->page.shard++;
    many->page.listing.cursor = (fl_cursor){{0}};
    return true;
}

static void answer_changed(struct many *many)
{
    struct call *call = many->call;
    out_format(&call->out, "{\"matched\":%" PRIu64 ",\"%s\":%" PRIu64 ",\"dry_run\":%s}", many->matched,
               many->does == FL_OP_DEAD_DELETE ? "deleted" : "redriven", many->changed,
               many->dry_run ? "true" : "false");
    many_free(many);
    call_answer(call, 200);
}

static void go_on(struct many *many)
{
    if (many->result < 0) {
        problem_of_result(&many->call->problem, many->result);
        many_refuse(many);
        return;
    }
    bool counts = many->does == FL_OP_DEAD_GET;
    bool more = many->page.listing.more || next_shard(many);
    if (more && !(counts && many->matched >= LETTERS_MOST)) {
        shard_call_submit(&many->page);
        return;
    }
    many->incomplete = many->incomplete || more;
    if (counts)
        answer_groups(many);
    else
        answer_changed(many);
}

static void changed_back(struct shard_call *over)
{
    go_on((struct many *)((char *)over - offsetof(struct many, change)));
}

static void page_back(struct shard_call *over)
{
    struct many *many = (struct many *)over;
    if (many->result < 0 || many->change.batch.count == 0) {
        go_on(many);
        return;
    }
    fl__assert(many->does != FL_OP_DEAD_GET && !many->dry_run);
    many->change.shard = many->page.shard;
    shard_call_submit(&many->change);
}

/* --- What is asked for -------------------------------------------------------------------------------------------- */

static int read_group(struct call *call, struct many *many)
{
    static const char *const known[] = {"group",           "prefix", "name_contains", "target_prefix", "schedule",
                                        "reason_contains", "reason", "host",          "limit",         NULL};
    char room[8];
    fl_bytes text = {"", 0};
    uint64_t limit = GROUPS;
    if (call_check_query(call, known) < 0 || call_query(call, "group", room, sizeof room, &text) < 0 ||
        call_count(call, "limit", GROUPS_MOST, &limit) < 0)
        return -1;
    many->limit = (size_t)limit;
    many->by_host = text.size == 4 && memcmp(room, "host", 4) == 0;
    if (!many->by_host && !(text.size == 6 && memcmp(room, "reason", 6) == 0))
        return problem_set(&call->problem, 400, "invalid-field", "group", "group must be reason or host");
    return 0;
}

static int read_change(struct call *call, struct many *many)
{
    static const char *const known[] = {"prefix", "name_contains", "target_prefix", "schedule", "reason_contains",
                                        "reason", "host",          "dry_run",       "all",      "rate",
                                        NULL};
    bool all = false;
    if (call_check_query(call, known) < 0 || call_true(call, "dry_run", &many->dry_run) < 0 ||
        call_true(call, "all", &all) < 0)
        return -1;
    if (many->does == FL_OP_DEAD_DELETE && call_query(call, "rate", (char[16]){0}, 16, &(fl_bytes){0}) != 0)
        return problem_set(&call->problem, 400, "unknown-field", "rate",
                           "unknown parameter \"rate\"; dead letters are deleted at once");
    if (call_count(call, "rate", RATE_MOST, &many->rate) < 0)
        return -1;
    if (!all && filter_is_empty(&many->filter, &many->page.listing))
        return problem_set(&call->problem, 400, "missing-field", NULL,
                           "the filter is missing; give prefix, name_contains, target_prefix, schedule, "
                           "reason_contains, reason or host, or all=true for every dead letter of the namespace");
    return 0;
}

static int read_request(struct call *call, struct many *many)
{
    fl_listing *listing = &many->page.listing;
    *listing = (fl_listing){.dead = true, .ns = call->ns, .limit = PAGE};
    if (call_query(call, "prefix", many->prefix, sizeof many->prefix, &listing->prefix) < 0 ||
        filter_read(call, &many->filter, listing) < 0)
        return -1;
    if (many->does == FL_OP_DEAD_GET)
        return read_group(call, many);
    many->ops = malloc(PAGE * sizeof *many->ops);
    return many->ops ? read_change(call, many) : problem_of_result(&call->problem, FL_NO_MEMORY);
}

static void many_begin(struct call *call, enum fl_op_kind does)
{
    struct many *many = calloc(1, sizeof *many);
    if (!many) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    many->call = call;
    many->does = does;
    many->began_us = node_now(call->worker->node);
    many->page.errand.home = many->change.errand.home = call->worker;
    many->page.kind = CALL_PAGE;
    if (read_request(call, many) < 0) {
        many_refuse(many);
        return;
    }
    many->page.shard = &call->worker->node->shards[0];
    many->page.render = render_found;
    many->page.done = page_back;
    many->change.batch.ops = many->ops;
    many->change.render = render_changed;
    many->change.brief = true;
    many->change.done = changed_back;
    shard_call_submit(&many->page);
}

void dead_groups(struct call *call)
{
    many_begin(call, FL_OP_DEAD_GET);
}

void dead_redrive_many(struct call *call)
{
    if (call_no_fields(call) == 0)
        many_begin(call, FL_OP_DEAD_REDRIVE);
}

void dead_delete_many(struct call *call)
{
    many_begin(call, FL_OP_DEAD_DELETE);
}
