/* SPDX-License-Identifier: MIT */
/* Schedules in the engine. A schedule is a timer in a namespace that no user can name, due at its next occurrence. When it fires,
 * the occurrences that it creates and where it goes on are written in one transaction (FL_ADVANCE), so a crash neither repeats
 * nor loses one. Occurrences are timers without a name, in the same shard.
 *
 * Overlap. A schedule that must not overlap notes the IDs of its occurrences. Before it creates another one, it asks the engine
 * which of them are still there. One that is queued begins when an occurrence is settled or cancelled: schedule_nudge() then
 * makes the schedule due. A bit per hash of the name says which schedules may have one that is queued, so that the others cost
 * nothing; at first, all may. A nudge clears the bit. It is set before a schedule looks: if it is clear when the one that is
 * queued has been written, an occurrence was settled meanwhile, and the schedule is nudged again. Should the bit be set by another
 * schedule with the same hash just then, the schedule looks again after a minute. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/internal.h"
#include "text/log.h"

/* --- Names ---------------------------------------------------------------------------------------------------------- */

/* FNV-1a, 128 bits in two halves: only for namespaces that are too long for a mark in front. */
static void hash_ns(fl_bytes ns, char out[33])
{
    uint64_t a = 0xcbf29ce484222325, b = 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < ns.size; i++) {
        unsigned char byte = ((const unsigned char *)ns.data)[i];
        a = (a ^ byte) * 0x100000001b3;
        b = (b ^ byte ^ (a >> 32)) * 0xff51afd7ed558ccd;
    }
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, a, b);
}

fl_bytes schedule_ns(fl_bytes ns, char room[SCHEDULE_NS_ROOM])
{
    if (ns.size < FL_STORE_NAME_MAX) {
        room[0] = '\2';
        memcpy(room + 1, ns.data, ns.size);
        return (fl_bytes){room, ns.size + 1};
    }
    room[0] = '\3';
    hash_ns(ns, room + 1);
    return (fl_bytes){room, 33};
}

void schedule_occurrence(struct node *node, const struct schedule *s, const struct rule *rule, int64_t at_us,
                         fl_durable *ret)
{
    struct space *space = space_of(node, s->ns);
    schedule_timer(s, rule, at_us, ret);
    if (space && ret->retry.initial_us == 0)
        ret->retry = atomic_load_explicit(&space->settings, memory_order_acquire)->retry;
}

/* --- Nudges --------------------------------------------------------------------------------------------------------- */

/* If a schedule has an occurrence that is queued, it is due now. */
struct nudge {
    fl_batch batch;
    fl_op op;
    struct shard *shard;
    fl_bytes ns, name; /* in the rooms */
    char ns_room[SCHEDULE_NS_ROOM], name_room[FL_STORE_NAME_MAX];
};

static void nudge_end(fl_batch *batch)
{
    struct nudge *nudge = batch->arg;
    struct shard *shard = nudge->shard;
    fl__assert(shard->inside > 0);
    free(nudge);
    shard_call_left(shard);
}

static void nudge_found(fl_batch *batch)
{
    struct nudge *nudge = batch->arg;
    struct schedule schedule = {0};
    int64_t now_us = node_now(nudge->shard->worker->node);
    bool wanted = nudge->op.result == 0 && nudge->op.timer.due_us > now_us &&
                  schedule_read(nudge->op.timer.payload, &schedule) == 0 && schedule.queued_us != 0;
    uint64_t revision = nudge->op.timer.revision;
    schedule_free(&schedule);
    if (!wanted || !nudge->shard->engine) {
        nudge_end(batch);
        return;
    }
    nudge->op = (fl_op){.kind = FL_OP_UPDATE,
                        .flags = FL_OP_SET_DUE | FL_OP_ONLY_REVISION,
                        .timer = {.ns = nudge->ns, .name = nudge->name, .due_us = now_us, .revision = revision}};
    nudge->batch = (fl_batch){.ops = &nudge->op, .count = 1, .done = nudge_end, .arg = nudge};
    fl_engine_submit(nudge->shard->engine, &nudge->batch);
}

static uint64_t *queued_bit(struct shard *shard, fl_bytes ns, fl_bytes name, uint64_t *ret_mask)
{
    uint64_t hash = cron_seed(ns, name) % (64 * sizeof shard->queued / sizeof *shard->queued);
    *ret_mask = UINT64_C(1) << hash % 64;
    return &shard->queued[hash / 64];
}

static void nudge(struct shard *shard, fl_bytes ns, fl_bytes name)
{
    struct nudge *nudge = calloc(1, sizeof *nudge);
    if (!nudge)
        return; /* the schedule looks by itself after a minute */
    memcpy(nudge->name_room, name.data, name.size);
    nudge->name = (fl_bytes){nudge->name_room, name.size};
    nudge->ns = schedule_ns(ns, nudge->ns_room);
    nudge->shard = shard;
    nudge->op = (fl_op){.kind = FL_OP_GET, .timer = {.ns = nudge->ns, .name = nudge->name}};
    nudge->batch = (fl_batch){.ops = &nudge->op, .count = 1, .done = nudge_found, .arg = nudge};
    shard->inside++;
    fl_engine_submit(shard->engine, &nudge->batch);
}

void schedule_nudge(struct shard *shard, const fl_durable *timer)
{
    if (timer->schedule.size == 0 || !shard->engine || shard_is_leaving(shard))
        return;
    uint64_t mask, *bit = queued_bit(shard, timer->ns, timer->schedule, &mask);
    if (*bit & mask)
        nudge(shard, timer->ns, timer->schedule);
    *bit &= ~mask;
}

/* --- Firing --------------------------------------------------------------------------------------------------------- */

/* A schedule that fires, from the look at its earlier occurrences to the end of the transaction. */
struct advance {
    fl_batch batch; /* of the engine: first the look, then the transaction */
    struct shard *shard;
    uint64_t token;
    struct schedule schedule;
    struct rule *rule;
    struct out stored;
    struct schedule_plan plan;
    char *text; /* the stored form as it was, which the schedule points into */
    fl_op look[SCHEDULE_UNSETTLED];
    fl_op ops[];
};

static void advance_free(struct advance *advance)
{
    schedule_free(&advance->schedule);
    rule_free(advance->rule);
    out_free(&advance->stored);
    free(advance->text);
    free(advance);
}

static void put_off(struct shard *shard, uint64_t token, uint64_t delay_us)
{
    int64_t at_us = node_now(shard->worker->node) + (int64_t)delay_us;
    if (shard->engine)
        fl_engine_settle(shard->engine, &(fl_settlement){.token = token, .result = FL_LATER, .at_us = at_us}, 1);
}

static void tell(struct advance *advance)
{
    struct shard *shard = advance->shard;
    const struct node_ports *ports = shard->worker->node->ports;
    struct space *space = space_of(shard->worker->node, advance->schedule.ns);
    for (size_t i = 0; i < advance->plan.count; i++) {
        stats_count(shard->worker, space, STATS_CREATED);
        ports->publish(shard->worker, EVENT_SCHEDULED, shard->number, &advance->ops[1 + i].timer, (fl_bytes){0});
    }
    if (advance->plan.skipped == 0)
        return;
    char why[64];
    int size = snprintf(why, sizeof why, "%" PRIu64 " occurrences were skipped", advance->plan.skipped);
    fl_durable run = {.ns = advance->schedule.ns,
                      .schedule = advance->schedule.name,
                      .due_us = advance->plan.skipped_us,
                      .occurrence_us = advance->plan.skipped_us,
                      .replaced = (uint32_t)(advance->plan.skipped < UINT32_MAX ? advance->plan.skipped : UINT32_MAX)};
    stats_count(shard->worker, space, STATS_SKIPPED);
    history_skipped(shard, &run, advance->plan.skipped, (fl_bytes){why, (size_t)size});
    ports->publish(shard->worker, EVENT_SKIPPED, shard->number, &run, (fl_bytes){why, (size_t)size});
}

static void advanced(fl_batch *batch)
{
    struct advance *advance = batch->arg;
    const struct schedule *s = &advance->schedule;
    struct shard *shard = advance->shard;
    uint64_t mask, *bit = queued_bit(shard, s->ns, s->name, &mask);
    fl__assert(shard->inside > 0);
    shard->steps++;
    if (advance->ops[0].result == 0)
        tell(advance); /* else it was replaced, or fires again */
    if (s->queued_us != 0 && !(*bit & mask) && shard->engine && !shard_is_leaving(shard))
        nudge(shard, s->ns, s->name);
    advance_free(advance);
    shard_call_left(shard);
}

/* The IDs of the new occurrences are known now. */
static void compose(fl_batch *batch)
{
    struct advance *advance = batch->arg;
    struct schedule *s = &advance->schedule;
    struct schedule noted = *s;
    fl__assert(s->unsettled_count <= SCHEDULE_UNSETTLED);
    for (size_t i = 0; i < advance->plan.count; i++) {
        if (noted.unsettled_count == SCHEDULE_UNSETTLED)
            memmove(noted.unsettled, noted.unsettled + 1, --noted.unsettled_count * sizeof *noted.unsettled);
        noted.unsettled[noted.unsettled_count++] = advance->ops[1 + i].timer.id;
    }
    schedule_note_zone(&noted, advance->rule);
    out_clear(&advance->stored);
    schedule_write(&advance->stored, &noted);
    advance->ops[0].timer.payload = out_bytes(&advance->stored);
}

static size_t step_size(const struct node *node)
{
    uint64_t rate = node->config.engine.catch_up_rate;
    return rate == 0 || rate / 10 >= SCHEDULE_STEP ? SCHEDULE_STEP : rate < 10 ? 1 : (size_t)rate / 10;
}

static void advance_go(struct advance *advance, bool unsettled)
{
    struct shard *shard = advance->shard;
    struct node *node = shard->worker->node;
    struct schedule_plan *plan = &advance->plan;
    int64_t now_us = node_now(node);
    schedule_plan(&advance->schedule, advance->rule, now_us, unsettled, step_size(node), plan);
    fl__assert(plan->count <= step_size(node) + 1);
    if (plan->more && node->config.engine.catch_up_rate > 0)
        plan->due_us = now_us + (int64_t)(plan->count * 1000000 / node->config.engine.catch_up_rate);
    advance->ops[0] = (fl_op){.kind = FL_OP_UPDATE,
                              .flags = FL_OP_SET_DUE | FL_OP_SET_PAYLOAD,
                              .timer.due_us = plan->due_us > now_us ? plan->due_us : now_us};
    for (size_t i = 0; i < plan->count; i++) {
        advance->ops[1 + i] = (fl_op){.kind = FL_OP_CREATE};
        schedule_occurrence(node, &advance->schedule, advance->rule, plan->make[i], &advance->ops[1 + i].timer);
    }
    advance->batch =
        (fl_batch){.ops = advance->ops, .count = 1 + plan->count, .done = advanced, .arg = advance, .compose = compose};
    compose(&advance->batch);
    fl_settlement settlement = {.token = advance->token, .result = FL_ADVANCE, .batch = &advance->batch};
    if (!advance->stored.failed && shard->engine && fl_engine_settle(shard->engine, &settlement, 1) == 1)
        return;
    put_off(shard, advance->token, 1000000);
    advance_free(advance);
    shard_call_left(shard);
}

/* Those that are not there any more are settled, or dead letters. */
static void looked(fl_batch *batch)
{
    struct advance *advance = batch->arg;
    struct schedule *s = &advance->schedule;
    unsigned left = 0;
    int trouble = 0;
    fl__assert(batch->count == s->unsettled_count);
    for (unsigned i = 0; i < batch->count; i++) {
        int result = advance->look[i].result;
        if (result == 0)
            s->unsettled[left++] = s->unsettled[i];
        else if (result != FL_TIMER_NOT_FOUND)
            trouble = result;
    }
    s->unsettled_count = left;
    if (trouble == 0) {
        advance_go(advance, left > 0);
        return;
    }
    struct shard *shard = advance->shard;
    put_off(shard, advance->token, 1000000);
    advance_free(advance);
    shard_call_left(shard);
}

static void look(struct advance *advance)
{
    struct schedule *s = &advance->schedule;
    fl__assert(s->unsettled_count > 0 && s->unsettled_count <= SCHEDULE_UNSETTLED);
    for (unsigned i = 0; i < s->unsettled_count; i++)
        advance->look[i] = (fl_op){.kind = FL_OP_GET, .timer.id = s->unsettled[i]};
    advance->batch = (fl_batch){.ops = advance->look, .count = s->unsettled_count, .done = looked, .arg = advance};
    fl_engine_submit(advance->shard->engine, &advance->batch);
}

static void complain(const fl_durable *timer, const char *why)
{
    char name[FL_STORE_NAME_MAX + 1];
    snprintf(name, sizeof name, "%.*s", (int)timer->name.size, (const char *)timer->name.data);
    log_error("a schedule cannot create its occurrences; it is tried again in an hour", "schedule", name, "why", why,
              NULL);
}

static struct advance *advance_new(struct shard *shard, const fl_firing *firing)
{
    struct advance *advance = calloc(1, sizeof *advance + (1 + step_size(shard->worker->node)) * sizeof *advance->ops +
                                            sizeof *advance->ops /* one that was queued */);
    fl_bytes stored = firing->timer.payload;
    if (!advance || !(advance->text = malloc(stored.size + 1))) {
        free(advance);
        return NULL;
    }
    memcpy(advance->text, stored.data, stored.size);
    advance->shard = shard;
    advance->token = firing->token;
    return advance;
}

/* Reads the schedule and its rule. Returns 0, FL_NO_MEMORY, or another code after it has said what is wrong. */
static int advance_read(struct advance *advance, const fl_firing *firing)
{
    struct rule_error error;
    int r = schedule_read((fl_bytes){advance->text, firing->timer.payload.size}, &advance->schedule);
    if (r == FL_STORE_CORRUPT)
        complain(&firing->timer, "its record is damaged");
    if (r < 0)
        return r;
    r = schedule_rule(&advance->schedule, node_zones(advance->shard->worker->node), &advance->rule, &error);
    if (r < 0 && r != FL_NO_MEMORY)
        complain(&firing->timer, error.text);
    if (r == 0)
        schedule_rezone(&advance->schedule, advance->rule);
    return r;
}

void schedule_fire(struct shard *shard, const fl_firing *firing)
{
    struct advance *advance = advance_new(shard, firing);
    int r = advance ? advance_read(advance, firing) : FL_NO_MEMORY;
    if (r < 0) {
        put_off(shard, firing->token, r == FL_NO_MEMORY ? 1000000 : 3600000000ull);
        if (advance)
            advance_free(advance);
        return;
    }
    if (pause_takes_schedule(shard, advance->schedule.ns, firing->token)) {
        advance_free(advance);
        return;
    }
    shard->inside++;
    uint64_t mask, *bit = queued_bit(shard, advance->schedule.ns, advance->schedule.name, &mask);
    *bit |= advance->schedule.overlap == OVERLAP_QUEUE ? mask : 0;
    if (advance->schedule.overlap != OVERLAP_ALLOW && advance->schedule.unsettled_count > 0)
        look(advance);
    else
        advance_go(advance, false);
}

/* --- Zones ---------------------------------------------------------------------------------------------------------- */

struct zone_set {
    struct zone_set *next;
    struct zones *zones;
};

int node_set_zones(struct node *node, struct zones *zones)
{
    struct zone_set *set = malloc(sizeof *set);
    if (!set)
        return FL_NO_MEMORY;
    *set = (struct zone_set){node->zone_sets, zones};
    node->zone_sets = set;
    atomic_store_explicit(&node->zones, zones, memory_order_release);
    return 0;
}

void node_free_zones(struct node *node)
{
    for (struct zone_set *set = node->zone_sets, *next; set; set = next) {
        next = set->next;
        zones_free(set->zones);
        free(set);
    }
}
