/* SPDX-License-Identifier: MIT */
/* Clients of simulated nodes that create, replace, move and cancel timers, one by one and in batches. */

#include <stdlib.h>
#include <string.h>

#include "sim/nodes.h"

enum { LINES_MOST = 6 };

/* Operations on one shard, in order. */
struct ask {
    struct shard_call call;
    struct host *host;
    unsigned went_back;
    uint64_t term;
    size_t count;
    fl_op ops[LINES_MOST];
    struct line {
        struct entry *entry, *old; /* the timer that has its name; NULL: none has */
        int64_t began_us;          /* of the attempt that was going on; 0: none was */
        uint32_t tag;
        int64_t due_us;
        char name[16];
        int result;
        enum fl_outcome outcome;
    } lines[LINES_MOST];
};

struct worker *clients_worker(struct host *host)
{
    return &host->node.workers[below(&host->world->luck, host->world->workers)];
}

/* --- Answers ------------------------------------------------------------------------------------------------------ */

static void render(struct shard_call *call)
{
    struct ask *ask = (struct ask *)call;
    for (size_t i = 0; i < ask->count; i++) {
        ask->lines[i].result = ask->ops[i].result;
        ask->lines[i].outcome = ask->ops[i].outcome;
    }
}

static bool is_unknown(int result)
{
    return result == FL_OUTCOME_UNKNOWN || result == FL_SHARD_LOST;
}

/* Nothing may have ended it. */
static bool is_there(const struct entry *e)
{
    return e->there && !e->unsure && !e->wild && !e->gone && !e->finished && !e->dead && !e->doomed && !e->acking &&
           e->fate == FATE_NEW && !e->live;
}

static bool goes_on(struct nodes *w, const struct ask *ask, const struct line *line)
{
    const struct entry *e = line->entry;
    return line->began_us > 0 && line->began_us == e->began_us && !e->wild && e->live && !e->acking &&
           ask->term == w->terms[e->shard] && e->term == ask->term && nodes_mono_us(w) < e->ends_us;
}

static void replaced(struct nodes *w, const struct line *line)
{
    if (line->outcome == FL_CREATED && is_there(line->old))
        nodes_fail(w, "#%u is created, and #%u has its name", line->tag, line->old->tag);
    line->old->gone = true;
}

static void created(struct nodes *w, const struct line *line, int result)
{
    struct entry *e = line->entry;
    if (result == 0)
        e->there = true;
    else if (is_unknown(result))
        e->unsure = true;
    else
        e->refused = true;
    if (line->old && result == 0)
        replaced(w, line);
    else if (line->old && is_unknown(result))
        line->old->wild = e->wild = true; /* whose the name is, nobody knows */
}

static void moved(struct nodes *w, const struct ask *ask, const struct line *line, int result)
{
    struct entry *e = line->entry;
    if (result == 0 && goes_on(w, ask, line))
        nodes_fail(w, "#%u is moved during an attempt", e->tag);
    else if (result == FL_TIMER_NOT_FOUND && is_there(e))
        nodes_fail(w, "#%u is not found", e->tag);
    e->due_unsure |= is_unknown(result); /* it has one of the two times */
    if (result == 0)
        e->due_unsure = false;
    if (!e->due_unsure)
        e->other_due_us = 0;
    if (result != 0)
        return;
    e->due_us = line->due_us;
    e->moved_us = nodes_mono_us(w);
    e->not_before_us = 0;
    e->live = false; /* a lease has expired */
    e->fate = e->attempt > 0 ? FATE_VAGUE : e->fate;
}

static void cancelled(struct nodes *w, const struct ask *ask, const struct line *line, int result)
{
    struct entry *e = line->entry;
    if (result == 0 && goes_on(w, ask, line))
        nodes_fail(w, "#%u is cancelled during an attempt", e->tag);
    if (result == 0)
        e->gone = true;
    else if (result == FL_TIMER_NOT_FOUND && is_there(e))
        nodes_fail(w, "#%u is not found", e->tag);
    else if (is_unknown(result))
        e->unsure = true;
}

static void take_answer(struct nodes *w, const struct ask *ask, size_t i)
{
    static const char *const names[] = {[FL_OP_CREATE] = "create", [FL_OP_UPDATE] = "move", [FL_OP_CANCEL] = "cancel"};
    const struct line *line = &ask->lines[i];
    enum fl_op_kind kind = ask->ops[i].kind;
    int result = ask->host->dead ? FL_OUTCOME_UNKNOWN : line->result;
    ledger_touch(w, line->entry);
    line->entry->wild |= ask->went_back != w->went_back;
    nodes_say(w, "%s: %s #%u: %s", ask->host->address, names[kind], line->entry->tag, fl_errname(result));
    if (line->old) {
        nodes_say(w, "   in place of #%u", line->old->tag);
        ledger_touch(w, line->old);
        line->old->wild |= ask->went_back != w->went_back;
        line->old->busy = false;
    }
    line->entry->busy = false;
    if (kind == FL_OP_CREATE)
        created(w, line, result);
    else if (kind == FL_OP_UPDATE)
        moved(w, ask, line, result);
    else
        cancelled(w, ask, line, result);
}

static void answered(struct shard_call *call)
{
    struct ask *ask = (struct ask *)call;
    ask->host->world->open--;
    for (size_t i = 0; i < ask->count; i++)
        take_answer(ask->host->world, ask, i);
    free(ask);
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

static struct ask *ask_new(struct host *host)
{
    struct ask *ask = nodes_need(calloc(1, sizeof *ask));
    ask->host = host;
    ask->went_back = host->world->went_back;
    return ask;
}

static fl_op *add_line(struct ask *ask, struct entry *e, enum fl_op_kind kind)
{
    struct line *line = &ask->lines[ask->count];
    fl_op *op = &ask->ops[ask->count++];
    *line =
        (struct line){.entry = e, .tag = e->tag, .began_us = e->live ? e->began_us : 0, .result = FL_OUTCOME_UNKNOWN};
    snprintf(line->name, sizeof line->name, "t%u", e->name);
    *op = (fl_op){.kind = kind,
                  .timer = {.ns = bytes_of(space_names[e->space]), .name = {line->name, strlen(line->name)}}};
    e->busy = true;
    return op;
}

static fl_op *add_create(struct ask *ask, struct entry *e, uint64_t delay_us)
{
    struct nodes *w = ask->host->world;
    struct line *line = &ask->lines[ask->count];
    fl_op *op = add_line(ask, e, FL_OP_CREATE);
    op->timer.payload = (fl_bytes){&line->tag, sizeof line->tag};
    op->timer.due_us = e->due_us = nodes_wall_us(w) + (int64_t)delay_us;
    op->timer.retry = (fl_retry){
        .initial_us = 100000, .multiplier_1000 = 1500, .max_interval_us = 2 * SECOND, .max_attempts = e->most};
    op->timer.target = e->hook ? bytes_of("http://target") : (fl_bytes){0};
    return op;
}

static void add_move(struct ask *ask, struct entry *e, uint64_t delay_us)
{
    struct line *line = &ask->lines[ask->count];
    fl_op *op = add_line(ask, e, FL_OP_UPDATE);
    op->flags = FL_OP_SET_DUE;
    op->timer.due_us = line->due_us = nodes_wall_us(ask->host->world) + (int64_t)delay_us;
    if (e->other_due_us == 0 || line->due_us < e->other_due_us)
        e->other_due_us = line->due_us;
}

static void submit(struct ask *ask)
{
    struct nodes *w = ask->host->world;
    ask->call = (struct shard_call){.errand.home = clients_worker(ask->host),
                                    .batch = {.ops = ask->ops, .count = ask->count},
                                    .render = render,
                                    .done = answered,
                                    .shard = shard_of_op(&ask->host->node, &ask->ops[0])};
    for (size_t i = 0; i < ask->count; i++)
        ask->lines[i].entry->shard = ask->call.shard->number;
    ask->term = w->terms[ask->call.shard->number];
    w->open++;
    shard_call_submit(&ask->call);
}

static struct entry *new_entry(struct nodes *w)
{
    struct entry *e = &w->entries[w->entry_count++];
    *e = (struct entry){.tag = w->entry_count,
                        .name = w->entry_count,
                        .space = (unsigned)below(&w->luck, SPACES),
                        .hook = chance(&w->luck, 50),
                        .most = 1 + (uint32_t)below(&w->luck, 6)};
    return e;
}

void clients_create(struct nodes *w, struct host *host)
{
    if (w->entry_count >= TIMERS_MOST)
        return;
    struct ask *ask = ask_new(host);
    add_create(ask, new_entry(w), below(&w->luck, chance(&w->luck, 70) ? 2 * SECOND : 30 * SECOND));
    submit(ask);
}

/* NULL: it has none that can be addressed. If a replacement was not answered, nobody knows whose the name is. */
static struct entry *some_entry(struct nodes *w)
{
    struct entry *e = w->entry_count > 0 ? &w->entries[below(&w->luck, w->entry_count)] : NULL;
    if (e && w->nature.edits && (e->unsure || e->wild))
        return NULL;
    return e && e->there && !e->busy && !e->gone && !e->plan ? e : NULL;
}

void clients_cancel(struct nodes *w, struct host *host)
{
    struct entry *e = some_entry(w);
    if (!e)
        return;
    struct ask *ask = ask_new(host);
    add_line(ask, e, FL_OP_CANCEL);
    submit(ask);
}

static void replace(struct nodes *w, struct host *host, struct entry *old)
{
    struct ask *ask = ask_new(host);
    struct entry *e = new_entry(w);
    e->name = old->name;
    e->space = old->space;
    old->busy = true;
    fl_op *op = add_create(ask, e, below(&w->luck, 10 * SECOND));
    op->flags = chance(&w->luck, 30) ? FL_OP_ONLY_NEW : 0;
    ask->lines[0].old = old;
    submit(ask);
}

/* Those that happen to be in one shard. */
static void send_batch(struct nodes *w, struct host *host)
{
    struct ask *ask = ask_new(host);
    struct entry *e = new_entry(w);
    fl_op *op = add_create(ask, e, below(&w->luck, 5 * SECOND));
    const struct shard *shard = shard_of_op(&host->node, op);
    if (chance(&w->luck, 50))
        add_move(ask, e, below(&w->luck, 5 * SECOND));
    if (chance(&w->luck, 30))
        add_line(ask, e, FL_OP_CANCEL);
    while (ask->count < LINES_MOST && w->entry_count < TIMERS_MOST && chance(&w->luck, 80)) {
        struct entry *other = new_entry(w);
        op = add_create(ask, other, below(&w->luck, 5 * SECOND));
        if (shard_of_op(&host->node, op) == shard)
            continue;
        other->refused = true; /* it is not sent */
        other->busy = false;
        ask->count--;
    }
    submit(ask);
}

void clients_edit(struct nodes *w, struct host *host)
{
    unsigned what = (unsigned)below(&w->luck, 100);
    if (what < 20) {
        clients_change_settings(w, (unsigned)below(&w->luck, SPACES));
        return;
    }
    struct entry *e = some_entry(w);
    if (w->entry_count >= TIMERS_MOST - LINES_MOST || (what < 80 && !e))
        return;
    if (what >= 80) {
        send_batch(w, host);
    } else if (what >= 50) {
        replace(w, host, e);
    } else {
        struct ask *ask = ask_new(host);
        add_move(ask, e, below(&w->luck, 10 * SECOND));
        submit(ask);
    }
}
