/* SPDX-License-Identifier: MIT */
/* Pages of timers and of dead letters, and what can be done with many at once.
 *
 * A page goes through the shards one after the other, until it has as many timers as were asked for, or LIST_BYTES; the
 * cursor (cursor.c) says in which shard it ended and where. Within a shard, the
 * order is roughly that of time. Cancelling by filter goes through the same pages. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/filter.h"
#include "api/schedule.h"
#include "api/timer.h"
#include "base/assert.h"
#include "base/hex.h"
#include "text/json.h"
#include "text/when.h"

#define SEARCH_NS UINT64_C(500000000)
#define EARLIEST_MS (-(INT64_C(1) << 50)) /* a bound before it means the same */

enum { LIMIT = 100, LIMIT_MOST = 10000, CANCEL_PAGE = 1000, CURSOR_PARTS = sizeof(fl_cursor) / sizeof(uint64_t) };

struct list {
    struct shard_call page;
    struct call *call;
    uint64_t left; /* timers that the page still takes */
    size_t found;
    int result;
    uint64_t began_ns;
    bool dry_run;
    uint64_t matched, cancelled;
    struct shard_call cancel; /* what a page has found */
    fl_op *ops;
    bool schedules; /* instead of timers */
    char ns[SCHEDULE_NS_ROOM];
    char prefix[FL_STORE_NAME_MAX];
    struct filter filter;
};

/* --- What is asked for -------------------------------------------------------------------------------------------- */

static int bad(struct call *call, const char *field, const char *what)
{
    return problem_set(&call->problem, 400, "invalid-field", field, "%s must be %s", field, what);
}

/* Digits, perhaps with a minus in front, and nothing else. */
static bool read_integer(fl_bytes text, int64_t *ret)
{
    const char *last = (const char *)text.data + text.size - 1;
    return text.size > 0 && *last >= '0' && *last <= '9' && json_integer((struct json){JSON_NUMBER, text}, ret);
}

int call_time(struct call *call, const char *name, int64_t *ret)
{
    char room[64];
    fl_bytes text;
    int given = call_query(call, name, room, sizeof room - 1, &text);
    if (given <= 0)
        return given;
    int64_t ms;
    if (read_integer(text, &ms) && (ms <= 0 || ms >= WHEN_PLAUSIBLE_US / 1000) && ms <= FL_STORE_TIME_END / 1000) {
        *ret = (ms > EARLIEST_MS ? ms : EARLIEST_MS) * 1000;
        return 0;
    }
    if (read_integer(text, &ms))
        return problem_set(&call->problem, 400, "invalid-field", name,
                           "%s must be milliseconds since 1970, from the year 2001 to 3111%s", name, when_hint(ms));
    if (when_parse(text, ret) < 0)
        return bad(call, name, "a time (RFC 3339, with + written as %2B) or milliseconds since 1970");
    return 0;
}

int call_bound(struct call *call, const char *name, int64_t *ret)
{
    *ret = 0;
    int r = call_time(call, name, ret);
    char room[64];
    if (r == 0 && *ret <= 0 && call_query(call, name, room, sizeof room, &(fl_bytes){0}) > 0)
        *ret = 1;
    return r;
}

/* The place: the shard and the engine's cursor, as numbers of eight bytes. */
static int read_cursor(struct call *call, struct list *list, uint32_t *ret_shard)
{
    uint64_t place[1 + CURSOR_PARTS];
    fl_bytes given;
    *ret_shard = 0;
    int r = cursor_read(call, place, sizeof place, &given);
    if (r <= 0)
        return r;
    if (given.size != sizeof place || place[0] >= call->worker->node->shard_count)
        return cursor_refuse(call);
    memcpy(list->page.listing.cursor.part, place + 1, sizeof list->page.listing.cursor.part);
    *ret_shard = (uint32_t)place[0];
    return 0;
}

static void write_cursor(struct call *call, const struct list *list)
{
    uint64_t place[1 + CURSOR_PARTS] = {list->page.shard->number};
    memcpy(place + 1, list->page.listing.cursor.part, sizeof list->page.listing.cursor.part);
    cursor_write(call, (fl_bytes){place, sizeof place});
}

static int read_filter(struct call *call, struct list *list)
{
    fl_listing *listing = &list->page.listing;
    uint32_t shard;
    fl_bytes prefix = {0};
    if (call_bound(call, "due_after", &listing->from_us) < 0 ||
        call_bound(call, "due_before", &listing->until_us) < 0 ||
        call_count(call, "limit", LIMIT_MOST, &list->left) < 0 || read_cursor(call, list, &shard) < 0)
        return -1;
    if (call_query(call, "prefix", list->prefix, sizeof list->prefix, &prefix) < 0)
        return -1;
    listing->prefix = prefix;
    if (filter_read(call, &list->filter, listing) < 0)
        return -1;
    list->page.shard = &call->worker->node->shards[shard];
    listing->ns = call->ns;
    return 0;
}

/* --- Pages -------------------------------------------------------------------------------------------------------- */

static void list_free(struct list *list)
{
    free(list->ops);
    free(list);
}

static struct list *list_new(struct call *call)
{
    struct list *list = calloc(1, sizeof *list);
    if (!list) {
        call_refuse_result(call, FL_NO_MEMORY);
        return NULL;
    }
    list->call = call;
    list->left = LIMIT;
    list->began_ns = fl_loop_now_ns(call->worker->loop);
    list->page.errand.home = list->cancel.errand.home = call->worker;
    return list;
}

static void list_refuse(struct list *list)
{
    struct call *call = list->call;
    list_free(list);
    call_refuse(call);
}

static void write_found(struct call *call, uint32_t shard, const fl_op *found, bool dead)
{
    struct out *out = &call->out;
    out_put(out, "{", 1);
    timer_write(out, shard, &found->timer, call->part == PART_BRIEF);
    if (dead) {
        out_key(out, "died");
        out_time(out, found->died_us);
        out_key(out, "reason");
        out_string(out, found->reason);
    }
    out_put(out, "}", 1);
}

static void render_page(struct shard_call *page)
{
    struct list *list = (struct list *)page;
    list->result = page->listing.result;
    size_t taken = 0;
    fl__assert(page->kind == CALL_PAGE && page->listing.count <= page->listing.limit);
    for (size_t i = 0; i < page->listing.count && list->result == 0; i++) {
        if (!filter_takes(&list->filter, &page->listing.found[i]))
            continue;
        taken++;
        if (list->found++ > 0)
            out_put(&list->call->out, ",", 1);
        if (list->schedules)
            schedule_stored_to_json(&list->call->out, page->listing.found[i].timer.payload,
                                    node_zones(page->shard->worker->node), list->call->part == PART_BRIEF);
        else
            write_found(list->call, page->shard->number, &page->listing.found[i], page->listing.dead);
    }
    list->left -= taken < list->left ? taken : list->left;
}

static bool next_shard(struct shard_call *page, const struct node *node)
{
    if (page->shard->number + 1 == node->shard_count)
        return false;
    page->shard++;
    page->listing.cursor = (fl_cursor){{0}};
    return true;
}

/* A search ends with what it has found so far: when it has taken long, or the engine has looked at many rows in vain. */
static bool searched_enough(const struct list *list)
{
    const fl_listing *listing = &list->page.listing;
    if (!filter_searches(&list->filter, listing))
        return false;
    return fl_loop_now_ns(list->call->worker->loop) - list->began_ns >= SEARCH_NS ||
           (listing->more && listing->count == 0);
}

static void page_back(struct shard_call *over)
{
    struct list *list = (struct list *)over;
    struct call *call = list->call;
    if (list->result < 0) {
        if (list->result == FL_INVALID_ARGUMENT) /* everything else was looked at before */
            cursor_refuse(call);
        else
            problem_of_result(&call->problem, list->result);
        list_refuse(list);
        return;
    }
    fl__assert(list->page.shard->number < call->worker->node->shard_count);
    bool more = list->page.listing.more || next_shard(&list->page, call->worker->node);
    if (more && list->left > 0 && call->out.size < LIST_BYTES && !searched_enough(list)) {
        list->page.listing.limit = list->left;
        shard_call_submit(&list->page);
        return;
    }
    out_text(&call->out, "]");
    if (more)
        write_cursor(call, list);
    out_text(&call->out, "}");
    list_free(list);
    call_answer(call, 200);
}

static const char *const known_timers[] = {"due_after", "due_before", "prefix", "name_contains", "target_prefix",
                                           "schedule",  "limit",      "cursor", "payload",       NULL};
static const char *const known_dead[] = {"group",    "prefix",          "name_contains", "target_prefix",
                                         "schedule", "reason_contains", "reason",        "host",
                                         "limit",    "cursor",          "payload",       NULL};
static const char *const known_schedules[] = {"prefix", "name_contains", "limit", "cursor", "payload", NULL};

static void list_begin(struct call *call, const char *const *known)
{
    struct list *list = list_new(call);
    if (!list)
        return;
    if (call_check_query(call, known) < 0 || part_read(call) < 0 || read_filter(call, list) < 0) {
        list_refuse(list);
        return;
    }
    list->schedules = known == known_schedules;
    if (list->schedules)
        list->page.listing.ns = schedule_ns(call->ns, list->ns);
    list->page.listing.dead = known == known_dead;
    list->page.listing.limit = list->left;
    list->page.render = render_page;
    list->page.kind = CALL_PAGE;
    list->page.done = page_back;
    out_text(&call->out, list->schedules ? "{\"schedules\":[" : "{\"timers\":[");
    shard_call_submit(&list->page);
}

void list_get(struct call *call)
{
    list_begin(call, known_timers);
}

void dead_list(struct call *call)
{
    if (call_query(call, "group", (char[8]){0}, 8, &(fl_bytes){0}) != 0)
        dead_groups(call);
    else
        list_begin(call, known_dead);
}

void schedules_list(struct call *call)
{
    list_begin(call, known_schedules);
}

/* --- Cancelling by filter ----------------------------------------------------------------------------------------- */

/* Notes what is to be cancelled, while it is there. */
static void render_matches(struct shard_call *page)
{
    struct list *list = (struct list *)page;
    list->result = page->listing.result;
    list->matched += page->listing.count;
    fl__assert(page->listing.count <= CANCEL_PAGE);
    list->cancel.batch.count = 0;
    for (size_t i = 0; i < page->listing.count && !list->dry_run; i++)
        list->ops[list->cancel.batch.count++] =
            (fl_op){.kind = FL_OP_CANCEL, .timer = {.ns = list->call->ns, .id = page->listing.found[i].timer.id}};
}

static void render_cancelled(struct shard_call *call)
{
    struct list *list = (struct list *)((char *)call - offsetof(struct list, cancel));
    for (size_t i = 0; i < call->batch.count; i++) {
        int r = list->ops[i].result;
        list->cancelled += r == 0;
        if (r < 0 && r != FL_TIMER_NOT_FOUND && r != FL_BUSY)
            list->result = r;
    }
}

static void matches_go_on(struct list *list)
{
    struct call *call = list->call;
    if (list->result < 0) {
        problem_of_result(&call->problem, list->result);
        list_refuse(list);
        return;
    }
    if (list->page.listing.more || next_shard(&list->page, call->worker->node)) {
        shard_call_submit(&list->page);
        return;
    }
    out_format(&call->out, "{\"matched\":%" PRIu64 ",\"cancelled\":%" PRIu64 ",\"dry_run\":%s}", list->matched,
               list->cancelled, list->dry_run ? "true" : "false");
    list_free(list);
    call_answer(call, 200);
}

static void cancelled_back(struct shard_call *over)
{
    matches_go_on((struct list *)((char *)over - offsetof(struct list, cancel)));
}

static void matches_back(struct shard_call *over)
{
    struct list *list = (struct list *)over;
    if (list->result < 0 || list->cancel.batch.count == 0) {
        matches_go_on(list);
        return;
    }
    fl__assert(list->cancel.batch.count <= CANCEL_PAGE && !list->dry_run);
    list->cancel.shard = list->page.shard;
    shard_call_submit(&list->cancel);
}

static int read_bulk(struct call *call, struct list *list)
{
    static const char *const known[] = {
        "due_after", "due_before", "prefix", "name_contains", "target_prefix", "schedule", "dry_run", "all", NULL};
    if (call_check_query(call, known) < 0 || read_filter(call, list) < 0)
        return -1;
    bool all = false;
    if (call_true(call, "dry_run", &list->dry_run) < 0 || call_true(call, "all", &all) < 0)
        return -1;
    if (!all && filter_is_empty(&list->filter, &list->page.listing))
        return problem_set(&call->problem, 400, "missing-field", NULL,
                           "the filter is missing; give due_after, due_before, prefix, name_contains, target_prefix or "
                           "schedule, or all=true for every timer of the namespace");
    return 0;
}

void list_cancel(struct call *call)
{
    struct list *list = list_new(call);
    if (!list)
        return;
    list->ops = malloc(CANCEL_PAGE * sizeof *list->ops);
    if (!list->ops)
        problem_of_result(&call->problem, FL_NO_MEMORY);
    if (!list->ops || read_bulk(call, list) < 0) {
        list_refuse(list);
        return;
    }
    list->page.listing.limit = CANCEL_PAGE;
    list->page.render = render_matches;
    list->page.kind = CALL_PAGE;
    list->page.done = matches_back;
    list->cancel.batch.ops = list->ops;
    list->cancel.render = render_cancelled;
    list->cancel.brief = true;
    list->cancel.done = cancelled_back;
    shard_call_submit(&list->page);
}

/* --- One dead letter ---------------------------------------------------------------------------------------------- */

struct dead {
    struct shard_call shard_call;
    struct call *call;
    fl_op op;
    bool without; /* its payload is wanted, and it has none */
};

static void dead_render(struct shard_call *shard_call)
{
    struct dead *dead = (struct dead *)shard_call;
    struct call *call = dead->call;
    const fl_op *op = &dead->op;
    if (op->result < 0) {
        problem_of_result(&call->problem, op->result);
        if (op->result == FL_TIMER_NOT_FOUND)
            problem_set(&call->problem, 404, "not-found", NULL, "the dead letter does not exist");
        return;
    }
    if (call->part == PART_PAYLOAD)
        dead->without = part_write_payload(call, &op->timer) < 0;
    else if (op->kind != FL_OP_DEAD_DELETE)
        write_found(call, shard_call->shard->number, op, op->kind == FL_OP_DEAD_GET);
}

static void dead_back(struct shard_call *over)
{
    struct dead *dead = (struct dead *)over;
    struct call *call = dead->call;
    bool failed = dead->op.result < 0 || dead->without;
    bool deleted = dead->op.kind == FL_OP_DEAD_DELETE;
    free(dead);
    if (failed)
        call_refuse(call);
    else
        part_answer(call, deleted ? 204 : 200);
}

static void dead_begin(struct call *call, enum fl_op_kind kind)
{
    struct node *node = call->worker->node;
    uint32_t shard;
    struct dead *dead = calloc(1, sizeof *dead);
    if (!dead) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    dead->op = (fl_op){.kind = kind, .timer.ns = call->ns};
    if (fl_id_parse(call->name.data, call->name.size, &shard, &dead->op.timer.id) < 0 || shard >= node->shard_count) {
        free(dead);
        problem_set(&call->problem, 404, "not-found", NULL, "the dead letter does not exist; give its ID");
        call_refuse(call);
        return;
    }
    dead->call = call;
    dead->shard_call.batch.ops = &dead->op;
    dead->shard_call.batch.count = 1;
    dead->shard_call.errand.home = call->worker;
    dead->shard_call.done = dead_back;
    dead->shard_call.render = dead_render;
    dead->shard_call.shard = &node->shards[shard];
    shard_call_submit(&dead->shard_call);
}

void dead_get(struct call *call)
{
    if (part_check(call) < 0)
        call_refuse(call);
    else
        dead_begin(call, FL_OP_DEAD_GET);
}

void dead_payload(struct call *call)
{
    call->part = PART_PAYLOAD;
    dead_get(call);
}

void dead_redrive(struct call *call)
{
    if (call_no_fields(call) == 0)
        dead_begin(call, FL_OP_DEAD_REDRIVE);
}

void dead_delete(struct call *call)
{
    dead_begin(call, FL_OP_DEAD_DELETE);
}
