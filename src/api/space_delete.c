/* SPDX-License-Identifier: MIT */
/* DELETE /v1/namespaces/{namespace}: removes the settings of a namespace that has no timers, schedules and dead letters.
 * With all=true, it first deletes the schedules, cancels the timers and deletes the dead letters, a page at a time, shard by
 * shard. Afterwards the namespace does not exist any more, unless a client uses it meanwhile. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/assert.h"

enum { PAGE = 1000 };

struct deletion {
    struct shard_call page;
    struct shard_call removal; /* of what a page has found */
    fl_op *ops;
    struct call *call;
    enum { SCHEDULES, TIMERS, DEAD_LETTERS } what; /* of the page */
    bool all;
    int result;
    uint64_t busy; /* timers with an attempt in progress */
    char schedule_ns[SCHEDULE_NS_ROOM];
};

static void deletion_free(struct deletion *deletion)
{
    free(deletion->ops);
    free(deletion);
}

static void refuse(struct deletion *deletion)
{
    struct call *call = deletion->call;
    deletion_free(deletion);
    call_refuse(call);
}

static void removed(void *arg, int result)
{
    struct call *call = arg;
    if (result < 0)
        call_refuse_result(call, result);
    else
        call_answer(call, 204);
}

static void forgotten(void *arg, int result)
{
    struct call *call = arg;
    if (result < 0)
        call_refuse_result(call, result);
    else
        settings_change(call->worker, call->ns, NULL, 0, removed, call);
}

static void not_empty(struct deletion *deletion, const char *what)
{
    problem_set(
        &deletion->call->problem, 409, "not-empty", NULL,
        "the namespace has %s: remove them first, or add all=true to delete all its schedules and dead letters and "
        "cancel all its timers",
        what);
    refuse(deletion);
}

/* --- Page by page ------------------------------------------------------------------------------------------------- */

static void render_found(struct shard_call *page)
{
    struct deletion *deletion = (struct deletion *)page;
    enum fl_op_kind kind = page->listing.dead ? FL_OP_DEAD_DELETE : FL_OP_CANCEL;
    deletion->result = page->listing.result;
    fl__assert(page->listing.count <= PAGE);
    deletion->removal.batch.count = 0;
    for (size_t i = 0; i < page->listing.count && deletion->result == 0; i++)
        deletion->ops[deletion->removal.batch.count++] =
            (fl_op){.kind = kind, .timer = {.ns = page->listing.ns, .id = page->listing.found[i].timer.id}};
}

static void render_removed(struct shard_call *call)
{
    struct deletion *deletion = (struct deletion *)((char *)call - offsetof(struct deletion, removal));
    for (size_t i = 0; i < call->batch.count; i++) {
        int r = deletion->ops[i].result;
        deletion->busy += r == FL_BUSY;
        if (r < 0 && r != FL_TIMER_NOT_FOUND && r != FL_BUSY)
            deletion->result = r;
    }
}

/* The next page: of this shard, of the next one, then of the timers, then of the dead letters. False: that was the last. */
static bool next_page(struct deletion *deletion)
{
    struct node *node = deletion->call->worker->node;
    struct shard_call *page = &deletion->page;
    if (page->listing.more)
        return true;
    page->listing.cursor = (fl_cursor){{0}};
    if (page->shard->number + 1 < node->shard_count) {
        page->shard++;
        return true;
    }
    page->shard = node->shards;
    if (deletion->what == DEAD_LETTERS)
        return false;
    deletion->what++;
    page->listing.ns = deletion->call->ns;
    page->listing.dead = deletion->what == DEAD_LETTERS;
    return true;
}

static void go_on(struct deletion *deletion)
{
    struct call *call = deletion->call;
    if (deletion->result < 0) {
        problem_of_result(&call->problem, deletion->result);
        refuse(deletion);
    } else if (next_page(deletion)) {
        shard_call_submit(&deletion->page);
    } else if (deletion->busy > 0) {
        problem_set(&call->problem, 409, "busy", NULL,
                    "%" PRIu64 " timers have an attempt in progress: send the request again when they are over",
                    deletion->busy);
        refuse(deletion);
    } else {
        deletion_free(deletion);
        history_erase(call->worker, call->ns, NULL, (fl_key){0}, forgotten, call);
    }
}

static void removed_back(struct shard_call *over)
{
    go_on((struct deletion *)((char *)over - offsetof(struct deletion, removal)));
}

static void found_back(struct shard_call *over)
{
    struct deletion *deletion = (struct deletion *)over;
    if (deletion->result < 0 || deletion->removal.batch.count == 0) {
        go_on(deletion);
    } else if (!deletion->all) {
        not_empty(deletion, deletion->page.listing.dead ? "dead letters" : "timers");
    } else {
        fl__assert(deletion->removal.batch.count <= PAGE);
        deletion->removal.shard = deletion->page.shard;
        shard_call_submit(&deletion->removal);
    }
}

/* --- The request -------------------------------------------------------------------------------------------------- */

/* How many timers there are is counted: only with all=true need they be looked for. */
static void counted(void *arg)
{
    struct deletion *deletion = arg;
    struct call *call = deletion->call;
    struct space *space = space_if_any(call->worker->node, call->ns);
    if (!deletion->all && space && space_pending(space) + space_schedules(space) > 0) {
        not_empty(deletion, space_pending(space) > 0 ? "timers" : "schedules");
        return;
    }
    deletion->what = deletion->all ? SCHEDULES : DEAD_LETTERS;
    deletion->page.listing.dead = !deletion->all;
    if (deletion->all)
        deletion->page.listing.ns = schedule_ns(call->ns, deletion->schedule_ns);
    shard_call_submit(&deletion->page);
}

static int read_query(struct call *call, bool *ret_all)
{
    static const char *const known[] = {"all", NULL};
    return call_check_query(call, known) < 0 ? -1 : call_true(call, "all", ret_all);
}

void namespace_delete(struct call *call)
{
    bool all;
    if (read_query(call, &all) < 0) {
        call_refuse(call);
        return;
    }
    struct deletion *deletion = calloc(1, sizeof *deletion);
    fl_op *ops = deletion ? malloc(PAGE * sizeof *ops) : NULL;
    if (!ops) {
        free(deletion);
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    *deletion = (struct deletion){
        .call = call,
        .all = all,
        .ops = ops,
        .page = {.kind = CALL_PAGE,
                 .errand.home = call->worker,
                 .shard = call->worker->node->shards,
                 .render = render_found,
                 .done = found_back,
                 .listing = {.ns = call->ns, .limit = PAGE}},
        .removal = {.errand.home = call->worker, .render = render_removed, .done = removed_back, .brief = true},
    };
    deletion->removal.batch.ops = ops;
    servers_gather(call->worker, call->ns, counted, deletion);
}
