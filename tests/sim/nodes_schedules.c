/* SPDX-License-Identifier: MIT */
/* Schedules of simulated nodes. Clients create, change, pause, resume and delete them as the HTTP interface does, at any server; the ledger
 * holds docs/schedules.md against what comes of them: each occurrence creates at most one timer, a change creates nothing at once, and no
 * occurrence is lost but by policy. The timers of occurrences are in the ledger like those of clients. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/nodes.h"

enum { TRIES = 50, LAST_MS = 20000 };

/* --- The ledger ----------------------------------------------------------------------------------------------------- */

/* Since the beginning of the world. */
static int64_t ms_of(int64_t at_us)
{
    return (at_us - START_US) / 1000;
}

static struct plan *plan_of(struct nodes *w, const fl_durable *timer)
{
    char name[sizeof w->plans->name];
    snprintf(name, sizeof name, "%.*s", (int)timer->schedule.size, (const char *)timer->schedule.data);
    for (unsigned i = 0; i < w->plan_count; i++)
        if (strcmp(w->plans[i].name, name) == 0)
            return &w->plans[i];
    return NULL;
}

static bool is_nominal(const struct plan *plan, int64_t at_us)
{
    struct occurrence found;
    if (plan->writing && rule_next(plan->writing, at_us - 1, &found) && found.at_us == at_us)
        return true;
    for (unsigned i = 0; i < plan->rule_count; i++)
        if (rule_next(plan->rules[i], at_us - 1, &found) && found.at_us == at_us)
            return true;
    return false;
}

static struct entry *find(struct nodes *w, const struct plan *plan, int64_t at_us)
{
    for (uint32_t i = 0; i < w->entry_count; i++)
        if (w->entries[i].plan == plan && w->entries[i].due_us == at_us)
            return &w->entries[i];
    return NULL;
}

struct entry *schedules_entry(struct nodes *w, const fl_durable *timer)
{
    struct plan *plan = plan_of(w, timer);
    int64_t at_us = timer->occurrence_us;
    struct entry *e = plan ? find(w, plan, at_us) : NULL;
    bool same = e && e->id.at_us == timer->id.at_us && e->id.seq == timer->id.seq;
    if (e && e->wild)
        e->id = timer->id;
    else if (e && !same)
        nodes_fail(w, "the occurrence of %s at %" PRId64 " ms is created twice", plan->name, ms_of(at_us));
    if (e)
        return e;
    if (!plan || !is_nominal(plan, at_us))
        nodes_fail(w, "a timer is an occurrence of no schedule");
    else if (plan->refused || (plan->gone_us > 0 && at_us > plan->gone_us + w->skew_us))
        nodes_fail(w, "%s occurs, and was %s", plan->name, plan->refused ? "refused" : "deleted");
    if (!plan || w->failure[0] || w->entry_count == ENTRIES_MOST)
        return NULL;
    e = &w->entries[w->entry_count++];
    *e = (struct entry){.tag = w->entry_count,
                        .plan = plan,
                        .id = timer->id,
                        .space = plan->space,
                        .hook = plan->hook,
                        .there = true,
                        .touched_us = nodes_mono_us(w),
                        .due_us = at_us,
                        .shard = plan->shard,
                        .most = plan->most};
    nodes_say(w, "#%u is the occurrence of %s at %.6f", e->tag, plan->name, (double)(at_us - START_US) / 1e6);
    return e;
}

/* It is certain that it is not settled. */
static bool goes_on(const struct entry *e)
{
    return e->there && !e->unsure && !e->wild && !e->gone && !e->done_once && !e->dead && !e->doomed && !e->acking &&
           e->fate != FATE_VAGUE && e->attempt < e->most;
}

static uint64_t occurrences_after(const struct nodes *w, const struct plan *plan, int64_t at_us)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < w->entry_count; i++)
        count += w->entries[i].plan == plan && w->entries[i].due_us > at_us;
    return count;
}

/* The overlap policy looks at the latest occurrences only. */
static bool is_among_latest(const struct plan *plan, const struct entry *e, int64_t before_us)
{
    for (unsigned i = 0; i < plan->rule_count; i++)
        if (rule_count(plan->rules[i], e->due_us, before_us - 1) >= SCHEDULE_UNSETTLED)
            return false;
    return true;
}

/* The server says that it has just created an occurrence. */
void schedules_made(struct host *host, uint32_t shard, const fl_durable *timer)
{
    struct nodes *w = host->world;
    if (w->went_back > 0 && host->terms[shard] != w->terms[shard])
        return; /* the store may have forgotten it before its answer came */
    const struct entry *made = schedules_entry(w, timer);
    const struct plan *plan = made ? made->plan : NULL;
    if (!plan)
        return;
    if (made->due_us >
        START_US + w->stood_us + w->spaces[plan->space].paused_us + w->skew_us) /* else it may have been under way */
        ledger_check_pause(host, made);
    if (plan->busy || plan->vague)
        return;
    if (plan->count > 0 && w->went_back == 0 && occurrences_after(w, plan, plan->put_us[1] + w->skew_us) > plan->count)
        nodes_fail(w, "%s occurs more than %" PRIu64 " times", plan->name, plan->count);
    if (plan->paused)
        nodes_fail(w, "%s occurs while it is paused", plan->name);
    if (plan->overlap != OVERLAP_QUEUE /* one that was queued comes */ && made->due_us <= plan->asked_us - w->skew_us)
        nodes_fail(w, "a change of %s causes an occurrence at once", plan->name);
    for (uint32_t i = 0; plan->overlap != OVERLAP_ALLOW && i < w->entry_count; i++) {
        const struct entry *e = &w->entries[i];
        if (e->plan == plan && e != made && goes_on(e) && is_among_latest(plan, e, made->due_us))
            nodes_fail(w, "an occurrence of %s begins while #%u is not settled", plan->name, e->tag);
    }
}

/* Whether each occurrence must have been created, however late. */
static bool is_strict(const struct nodes *w, const struct plan *plan)
{
    bool trouble = w->skew_us > SECOND || w->nature.goes_back || w->nature.faulty || w->nature.slow ||
                   w->nature.crashes || w->nature.jumps || w->nature.breaks || w->nature.pauses;
    return plan->overlap == OVERLAP_ALLOW && (plan->missed == MISSED_ALL || (!trouble && !plan->was_paused));
}

static void close_plan(struct nodes *w, const struct plan *plan)
{
    struct occurrence found;
    int64_t from_us = plan->since_us + w->skew_us, last_us = 0;
    const struct rule *rule = plan->rule_count > 0 ? plan->rules[plan->rule_count - 1] : NULL;
    if (!plan->there || plan->busy || plan->vague || plan->gone_us > 0 || plan->overlap != OVERLAP_ALLOW)
        return;
    if (plan->count > 0 && occurrences_after(w, plan, plan->put_us[0] - w->skew_us) >= plan->count)
        return; /* it is finished */
    for (; rule_next(rule, from_us, &found); from_us = last_us = found.at_us)
        if (is_strict(w, plan) && !find(w, plan, found.at_us))
            nodes_fail(w, "the occurrence of %s at %" PRId64 " ms was lost", plan->name, ms_of(found.at_us));
    if (last_us > 0 && plan->missed != MISSED_SKIP && !find(w, plan, last_us))
        nodes_fail(w, "the last occurrence of %s, at %" PRId64 " ms, was lost", plan->name, ms_of(last_us));
}

void schedules_close(struct nodes *w)
{
    for (unsigned i = 0; i < w->plan_count && w->entry_count < ENTRIES_MOST; i++)
        close_plan(w, &w->plans[i]);
}

/* Of a schedule that has changed since the mark, nobody knows what it is now. */
void schedules_go_back(struct nodes *w)
{
    for (unsigned i = 0; i < w->plan_count; i++) {
        struct plan *plan = &w->plans[i];
        if (!plan->busy && plan->touched_us <= w->marked_us)
            continue;
        plan->vague = true;
        plan->gone_us = 0;
    }
}

void schedules_free(struct nodes *w)
{
    for (unsigned i = 0; i < w->plan_count; i++)
        while (w->plans[i].rule_count > 0)
            rule_free(w->plans[i].rules[--w->plans[i].rule_count]);
}

/* --- Clients -------------------------------------------------------------------------------------------------------- */

struct plan_ask {
    struct shard_call call;
    fl_op op;
    struct host *host;
    struct plan *plan;
    enum plan_change { PLAN_PUT, PLAN_PAUSE, PLAN_RESUME, PLAN_DELETE } change;
    int result;
    unsigned tries;
    int64_t asked_us;
    unsigned went_back;
    uint64_t revision;
    struct schedule wanted; /* with PLAN_PUT */
    struct schedule found;
    struct rule *rule;
    void *stored;
    struct out written;
    char ns_room[SCHEDULE_NS_ROOM];
};

static void render(struct shard_call *call)
{
    struct plan_ask *ask = (struct plan_ask *)call;
    const fl_durable *timer = &ask->op.timer;
    ask->result = ask->op.result;
    if (ask->op.kind != FL_OP_GET || ask->result < 0)
        return;
    ask->revision = timer->revision;
    ask->stored = nodes_need(malloc(timer->payload.size));
    memcpy(ask->stored, timer->payload.data, timer->payload.size);
    if (schedule_read((fl_bytes){ask->stored, timer->payload.size}, &ask->found) < 0)
        nodes_fail(ask->host->world, "the row of a schedule cannot be read");
}

static void submit(struct plan_ask *ask, fl_op op, void (*done)(struct shard_call *call))
{
    struct host *host = ask->host;
    ask->op = op;
    ask->op.timer.ns = schedule_ns(bytes_of(space_names[ask->plan->space]), ask->ns_room);
    ask->op.timer.name = bytes_of(ask->plan->name);
    ask->result = FL_OUTCOME_UNKNOWN;
    ask->call = (struct shard_call){.errand.home = &host->node.workers[below(&host->world->luck, host->world->workers)],
                                    .batch = {.ops = &ask->op, .count = 1},
                                    .render = render,
                                    .done = done,
                                    .shard = shard_of_name(&host->node, ask->op.timer.ns, ask->op.timer.name)};
    ask->plan->shard = ask->call.shard->number;
    shard_call_submit(&ask->call);
}

static void forget(struct plan_ask *ask)
{
    free(ask->stored);
    ask->stored = NULL;
    ask->found = (struct schedule){0};
    ask->revision = 0;
    ask->plan->writing = NULL;
    rule_free(ask->rule);
    ask->rule = NULL;
}

/* It was acknowledged, or may have been done. */
static void keep_rule(struct plan *plan, struct plan_ask *ask)
{
    if (ask->change != PLAN_PUT || !ask->rule)
        return;
    plan->rules[plan->rule_count++] = ask->rule;
    ask->rule = NULL;
}

/* It was acknowledged. */
static void changed(struct nodes *w, struct plan *plan, const struct plan_ask *ask)
{
    if (ask->change != PLAN_RESUME)
        plan->asked_us = ask->asked_us;
    if (ask->change == PLAN_DELETE)
        plan->gone_us = nodes_wall_us(w);
    else if (ask->change != PLAN_RESUME)
        plan->since_us = nodes_wall_us(w);
    plan->paused = ask->change == PLAN_PAUSE;
    plan->was_paused |= plan->paused;
    plan->there = true;
    if (ask->change != PLAN_PUT)
        return;
    plan->count = ask->wanted.count;
    plan->put_us[0] = ask->asked_us;
    plan->put_us[1] = nodes_wall_us(w);
    plan->missed = ask->wanted.missed;
    plan->overlap = ask->wanted.overlap;
}

static void finish(struct plan_ask *ask)
{
    struct plan *plan = ask->plan;
    struct nodes *w = ask->host->world;
    static const char *const names[] = {"put", "pause", "resume", "delete"};
    bool unknown = ask->host->dead || ask->went_back != w->went_back || ask->result == FL_OUTCOME_UNKNOWN ||
                   ask->result == FL_SHARD_LOST;
    nodes_say(w, "%s: %s %s: %s", ask->host->address, names[ask->change], plan->name,
              fl_errname(ask->host->dead ? FL_OUTCOME_UNKNOWN : ask->result));
    plan->busy = false;
    plan->touched_us = nodes_mono_us(w);
    w->open--;
    if (unknown || ask->result == 0)
        keep_rule(plan, ask);
    if (unknown)
        plan->vague = true;
    else if (ask->result == 0)
        changed(w, plan, ask);
    else if (ask->change == PLAN_PUT && !plan->there && !plan->vague)
        plan->refused = true;
    forget(ask);
    out_free(&ask->written);
    free(ask);
}

static void read_row(fl_loop *loop, void *arg);

static void written(struct shard_call *call)
{
    struct plan_ask *ask = (struct plan_ask *)call;
    int result = ask->result;
    bool race = result == FL_CHANGED || result == FL_EXISTS || result == FL_BUSY;
    if (race && ask->tries++ < TRIES && !ask->host->dead) {
        forget(ask);
        nodes_at(ask->host->world, 2000, read_row, ask, NULL);
        return;
    }
    finish(ask);
}

/* As schedules.c of the HTTP interface does it. */
static struct schedule next_state(struct plan_ask *ask, int64_t now_us)
{
    struct schedule s = ask->found;
    if (ask->change == PLAN_PUT) {
        s = schedule_heir(ask->revision ? &ask->found : NULL, now_us);
        s.ns = bytes_of(space_names[ask->plan->space]);
        s.name = bytes_of(ask->plan->name);
        s.cron = ask->wanted.cron;
        s.every_us = ask->wanted.every_us;
        s.count = ask->wanted.count;
        s.has_end = true;
        s.end_us = ask->wanted.end_us;
        s.missed = ask->wanted.missed;
        s.overlap = ask->wanted.overlap;
        s.content = ask->wanted.content;
    }
    s.paused = ask->change == PLAN_PAUSE;
    return s;
}

static void write_row(struct plan_ask *ask)
{
    struct rule_error error;
    int64_t now_us = node_now(&ask->host->node);
    struct schedule s = next_state(ask, now_us);
    if (schedule_rule(&s, NULL, &ask->rule, &error) < 0)
        abort();
    if (ask->change != PLAN_RESUME)
        schedule_changed(&s, ask->revision ? &ask->found : NULL, now_us);
    ask->plan->writing = ask->rule;
    schedule_note_zone(&s, ask->rule);
    out_clear(&ask->written);
    schedule_write(&ask->written, &s);
    submit(ask,
           (fl_op){.kind = FL_OP_CREATE,
                   .flags = ask->revision ? FL_OP_ONLY_REVISION : FL_OP_ONLY_NEW,
                   .timer = {.due_us = schedule_due_us(&s, ask->rule, now_us),
                             .revision = ask->revision,
                             .payload = out_bytes(&ask->written)}},
           written);
}

static void row_read(struct shard_call *call)
{
    struct plan_ask *ask = (struct plan_ask *)call;
    bool missing = ask->result == FL_TIMER_NOT_FOUND;
    if (ask->host->dead || (ask->result < 0 && !(missing && ask->change == PLAN_PUT))) {
        if (missing && ask->plan->there && !ask->plan->vague && !ask->host->dead)
            nodes_fail(ask->host->world, "%s is not found", ask->plan->name);
        ask->result = missing ? ask->result : FL_STORE_UNAVAILABLE; /* nothing was written */
        finish(ask);
    } else if (ask->change == PLAN_DELETE) {
        submit(ask, (fl_op){.kind = FL_OP_CANCEL, .flags = FL_OP_ONLY_REVISION, .timer.revision = ask->revision},
               written);
    } else {
        write_row(ask);
    }
}

static void read_row(fl_loop *loop, void *arg)
{
    struct plan_ask *ask = arg;
    (void)loop;
    if (ask->host->over) { /* it has ended while its client waited */
        ask->result = FL_STORE_UNAVAILABLE;
        finish(ask);
    } else {
        submit(ask, (fl_op){.kind = FL_OP_GET}, row_read);
    }
}

static void begin(struct nodes *w, struct plan *plan, enum plan_change change, const struct schedule *wanted)
{
    struct host *host = nodes_some_host(w);
    if (!host)
        return;
    struct plan_ask *ask = nodes_need(calloc(1, sizeof *ask));
    ask->host = host;
    ask->plan = plan;
    ask->change = change;
    ask->went_back = w->went_back;
    if (wanted)
        ask->wanted = *wanted;
    plan->busy = true;
    ask->asked_us = nodes_wall_us(w);
    w->open++;
    read_row(NULL, ask);
}

static void put(struct nodes *w, struct plan *plan)
{
    static const char *const rules[] = {"* * * * * *", "*/2 * * * * *", "1,2,3,30 * * * * *"};
    struct schedule wanted = {.end_us = nodes_wall_us(w) + SECOND + (int64_t)below(&w->luck, LAST_MS) * 1000,
                              .missed = chance(&w->luck, 60) ? MISSED_ALL : (enum schedule_missed)below(&w->luck, 3),
                              .overlap =
                                  chance(&w->luck, 60) ? OVERLAP_ALLOW : (enum schedule_overlap)below(&w->luck, 3)};
    wanted.content.retry = (fl_retry){
        .initial_us = 100000, .multiplier_1000 = 1500, .max_interval_us = 2 * SECOND, .max_attempts = plan->most};
    wanted.content.target = plan->hook ? bytes_of("http://target") : (fl_bytes){0};
    if (chance(&w->luck, 50))
        wanted.every_us = 300000 + below(&w->luck, 3 * SECOND);
    else
        wanted.cron = bytes_of(rules[below(&w->luck, sizeof rules / sizeof *rules)]);
    /* That one is queued may be forgotten in a crash: then the schedule looks again after a minute. */
    int64_t end_us = wanted.end_us + (wanted.overlap == OVERLAP_QUEUE ? 61 * SECOND : 0);
    if (w->nature.edits && chance(&w->luck, 30))
        wanted.count = 1 + below(&w->luck, 10);
    w->plans_end_us = end_us > w->plans_end_us ? end_us : w->plans_end_us;
    begin(w, plan, PLAN_PUT, &wanted);
}

void clients_schedule(struct nodes *w)
{
    if (w->plan_count < PLANS_MOST && chance(&w->luck, 50)) {
        struct plan *plan = &w->plans[w->plan_count++];
        *plan = (struct plan){.space = (unsigned)below(&w->luck, SPACES),
                              .hook = chance(&w->luck, 50),
                              .most = 1 + (uint32_t)below(&w->luck, 4)};
        snprintf(plan->name, sizeof plan->name, "s%u", w->plan_count);
        put(w, plan);
        return;
    }
    struct plan *plan = w->plan_count > 0 ? &w->plans[below(&w->luck, w->plan_count)] : NULL;
    if (!plan || plan->busy || !plan->there || plan->gone_us > 0)
        return;
    if (plan->paused)
        begin(w, plan, PLAN_RESUME, NULL);
    else if (chance(&w->luck, 50))
        begin(w, plan, PLAN_PAUSE, NULL);
    else if (chance(&w->luck, 80) && plan->rule_count < PLAN_RULES)
        put(w, plan);
    else
        begin(w, plan, PLAN_DELETE, NULL);
}

void schedules_resume(struct nodes *w)
{
    for (unsigned i = 0; i < w->plan_count; i++)
        if (w->plans[i].paused && !w->plans[i].busy && w->plans[i].gone_us == 0)
            begin(w, &w->plans[i], PLAN_RESUME, NULL);
}
