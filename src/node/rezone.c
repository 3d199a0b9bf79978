/* SPDX-License-Identifier: MIT */
/* Changes of time zone rules. "09:00 in Berlin" is kept as it was given; when the rules of the zone change, it is another
 * moment.
 *
 * A row of each shard, the mark, has the hash of the rules by which the due times of the shard were calculated. When a
 * server takes a shard, and when it reads other rules (SIGHUP), it compares. If they differ, it walks through the timers of
 * the shard, a page at a time, and moves the schedules and the timers in civil time that are now due at another moment; then
 * it writes the mark. So a change while no server runs is noticed too, and each server does its own shards. A walk that is
 * cut short leaves the old mark: the next one repeats all of it, and moves the timers that are not moved yet.
 *
 * A change or a firing at the same moment wins: the update is for the revision that was seen. What is written meanwhile is
 * calculated by the new rules already. A shard without anything in civil time has no mark while it is small, and is looked
 * at each time.
 *
 * Why no occurrence is created again: schedule_rezone(). */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/engine.h"
#include "node/internal.h"
#include "text/civil.h"
#include "text/log.h"

enum { PAGE = 200, SMALL = 10000 };

#define MARK_NS ((fl_bytes){"\4", 1})

struct rezone {
    struct shard *shard;
    const struct zones *zones;
    char name[32]; /* of the mark */
    fl_batch batch;
    fl_listing listing;
    uint64_t hash, seen, zoned, schedules, timers;
    char *text; /* of what the updates and their events point to */
    size_t used;
    fl_op ops[PAGE];
    fl_durable moved[PAGE]; /* as the event has it */
};

/* The mark is found by its name, so the name must belong to the shard. */
static void name_mark(struct rezone *rezone)
{
    struct node *node = rezone->shard->worker->node;
    for (unsigned i = 0;; i++) {
        int size = snprintf(rezone->name, sizeof rezone->name, "zones-%u", i);
        if (shard_of_name(node, MARK_NS, (fl_bytes){rezone->name, (size_t)size}) == rezone->shard)
            return;
    }
}

static fl_bytes mark_name(const struct rezone *rezone)
{
    return (fl_bytes){rezone->name, strlen(rezone->name)};
}

static void finish(struct rezone *rezone)
{
    struct shard *shard = rezone->shard;
    fl__assert(shard->rezone == rezone && shard->inside > 0);
    if (rezone->schedules + rezone->timers > 0)
        log_info("time zone rules have changed; due times were moved", "shard", log_int(shard->number), "schedules",
                 log_int((int64_t)rezone->schedules), "timers", log_int((int64_t)rezone->timers), "tzdata",
                 zones_version(rezone->zones), NULL);
    bool again = rezone->zones != node_zones(shard->worker->node);
    free(rezone->text);
    free(rezone);
    shard->rezone = NULL;
    if (again)
        rezone_shard(shard);
    shard_call_left(shard);
}

static bool may_go_on(const struct rezone *rezone)
{
    return rezone->shard->engine && !shard_is_leaving(rezone->shard) &&
           rezone->zones == node_zones(rezone->shard->worker->node);
}

static void marked(fl_batch *batch)
{
    finish(batch->arg);
}

static void write_mark(struct rezone *rezone)
{
    if (!may_go_on(rezone) || (rezone->zoned == 0 && rezone->seen < SMALL)) {
        finish(rezone);
        return;
    }
    rezone->ops[0] = (fl_op){.kind = FL_OP_CREATE,
                             .timer = {.ns = MARK_NS,
                                       .name = mark_name(rezone),
                                       .due_us = FL_TIME_NEVER_US,
                                       .payload = {&rezone->hash, sizeof rezone->hash}}};
    rezone->batch = (fl_batch){.ops = rezone->ops, .count = 1, .done = marked, .arg = rezone};
    fl_engine_submit(rezone->shard->engine, &rezone->batch);
}

/* --- What moves ----------------------------------------------------------------------------------------------------- */

static fl_bytes keep(struct rezone *rezone, fl_bytes bytes)
{
    char *to = rezone->text + rezone->used;
    if (bytes.size > 0)
        memcpy(to, bytes.data, bytes.size);
    rezone->used += bytes.size;
    return (fl_bytes){to, bytes.size};
}

/* A schedule that has a zone: when it is due by the rules of now. False: it stays where it is. One that is due already looks
 * again now, because its zone may have been unknown when it was due. */
static bool move_schedule(struct rezone *rezone, const fl_durable *row, int64_t now_us, int64_t *ret_due_us,
                          fl_durable *ret_event)
{
    struct schedule s;
    struct rule *rule = NULL;
    struct rule_error error;
    struct occurrence next;
    if (schedule_read(row->payload, &s) < 0)
        return false;
    bool has_zone = s.zone.size > 0 && schedule_rule(&s, rezone->zones, &rule, &error) == 0, moves = false;
    rezone->zoned += s.zone.size > 0;
    if (has_zone && !s.paused) {
        schedule_rezone(&s, rule);
        int64_t due_us =
            schedule_next(&s, rule, &next) && next.at_us < FL_TIME_NEVER_US ? next.at_us : FL_TIME_NEVER_US;
        bool other = s.queued_us != 0 ? due_us < row->due_us : due_us != row->due_us;
        moves = other || row->due_us <= now_us;
        *ret_due_us = due_us > now_us ? due_us : now_us;
        if (other)
            *ret_event = (fl_durable){
                .ns = keep(rezone, s.ns), .schedule = keep(rezone, s.name), .due_us = due_us, .occurrence_us = due_us};
    }
    rule_free(rule);
    schedule_free(&s);
    return moves;
}

static bool move_timer(struct rezone *rezone, const fl_durable *timer, int64_t *ret_due_us, fl_durable *ret_event)
{
    char why[ZONE_ERROR_TEXT];
    struct zone *zone;
    int64_t local_us;
    rezone->zoned++;
    if (timer->attempt > 0 || civil_parse_time(timer->local, &local_us) < 0 ||
        zones_find(rezone->zones, timer->zone, &zone, why) < 0)
        return false; /* it has fired, or its due time cannot be calculated */
    *ret_due_us = zone_place_us(zone, local_us);
    zone_unref(zone);
    int64_t latest_us = fl__latest_due_us(timer);
    *ret_due_us = *ret_due_us < latest_us ? *ret_due_us : latest_us;
    if (*ret_due_us == timer->due_us)
        return false;
    *ret_event = (fl_durable){.id = timer->id,
                              .ns = keep(rezone, timer->ns),
                              .name = keep(rezone, timer->name),
                              .local = keep(rezone, timer->local),
                              .zone = keep(rezone, timer->zone),
                              .due_us = *ret_due_us};
    return true;
}

/* Whether the row moves: then `*ret` is the update, and `*ret_event` what is reported (no namespace: nothing). A timer that is due
 * already fires, whatever the rules say. */
static bool look_at(struct rezone *rezone, const fl_durable *row, int64_t now_us, fl_op *ret, fl_durable *ret_event)
{
    bool schedule = is_schedule_namespace(row->ns);
    int64_t due_us;
    *ret_event = (fl_durable){0};
    if (!schedule && (row->due_us <= now_us || row->zone.size == 0))
        return false;
    if (!(schedule ? move_schedule(rezone, row, now_us, &due_us, ret_event)
                   : move_timer(rezone, row, &due_us, ret_event)))
        return false;
    *ret = (fl_op){.kind = FL_OP_UPDATE,
                   .flags = FL_OP_SET_DUE | FL_OP_ONLY_REVISION,
                   .timer = {.id = row->id,
                             .ns = keep(rezone, row->ns),
                             .due_us = due_us,
                             .revision = row->revision,
                             .local = ret_event->local,
                             .zone = ret_event->zone}};
    return true;
}

/* --- The walk ------------------------------------------------------------------------------------------------------- */

static void list_page(struct rezone *rezone);

static void page_over(struct rezone *rezone)
{
    free(rezone->text);
    rezone->text = NULL;
    if (!may_go_on(rezone))
        finish(rezone);
    else if (rezone->listing.more)
        list_page(rezone);
    else
        write_mark(rezone);
}

static void updated(fl_batch *batch)
{
    struct rezone *rezone = batch->arg;
    struct worker *worker = rezone->shard->worker;
    fl__assert(batch->count <= PAGE);
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->ops[i].result < 0)
            continue; /* it was changed or fires: by the rules of now */
        if (rezone->moved[i].ns.size == 0)
            continue;
        bool schedule = rezone->moved[i].schedule.size > 0;
        rezone->schedules += schedule;
        rezone->timers += !schedule;
        worker->node->ports->publish(worker, EVENT_MOVED, rezone->shard->number, &rezone->moved[i], (fl_bytes){0});
    }
    page_over(rezone);
}

static size_t size_of_page(const fl_listing *listing)
{
    size_t size = 1;
    for (size_t i = 0; i < listing->count; i++) {
        const fl_durable *row = &listing->found[i].timer;
        size += 2 * row->ns.size + row->name.size + row->local.size + row->zone.size;
        size += is_schedule_namespace(row->ns) ? 2 * FL_STORE_NAME_MAX : 0;
    }
    return size;
}

static void listed(fl_listing *listing)
{
    struct rezone *rezone = listing->arg;
    int64_t now_us = node_now(rezone->shard->worker->node);
    size_t count = 0;
    fl__assert(listing->count <= PAGE);
    rezone->used = 0;
    rezone->text = listing->result == 0 ? malloc(size_of_page(listing)) : NULL;
    if (!rezone->text || !may_go_on(rezone)) {
        finish(rezone);
        return;
    }
    rezone->seen += listing->count;
    for (size_t i = 0; i < listing->count; i++)
        count += look_at(rezone, &listing->found[i].timer, now_us, &rezone->ops[count], &rezone->moved[count]);
    if (count == 0) {
        page_over(rezone);
        return;
    }
    rezone->batch = (fl_batch){.ops = rezone->ops, .count = count, .done = updated, .arg = rezone};
    fl_engine_submit(rezone->shard->engine, &rezone->batch);
}

static void list_page(struct rezone *rezone)
{
    fl_cursor cursor = rezone->listing.cursor;
    fl__assert(rezone->shard->engine && !rezone->text);
    rezone->listing = (fl_listing){.limit = PAGE, .cursor = cursor, .done = listed, .arg = rezone};
    fl_engine_list(rezone->shard->engine, &rezone->listing);
}

static void mark_read(fl_batch *batch)
{
    struct rezone *rezone = batch->arg;
    const fl_op *op = &rezone->ops[0];
    uint64_t hash = 0;
    if (op->result == 0 && op->timer.payload.size == sizeof hash)
        memcpy(&hash, op->timer.payload.data, sizeof hash);
    if (!may_go_on(rezone) || (op->result < 0 && op->result != FL_TIMER_NOT_FOUND) || hash == rezone->hash)
        finish(rezone);
    else
        list_page(rezone);
}

void rezone_shard(struct shard *shard)
{
    const struct zones *zones = node_zones(shard->worker->node);
    if (!zones || shard->rezone || !shard->engine || shard_is_leaving(shard))
        return; /* a walk that is under way looks for other rules at its end */
    struct rezone *rezone = calloc(1, sizeof *rezone);
    if (!rezone) {
        log_error("not enough memory to look for due times that a change of time zone rules moves", "shard",
                  log_int(shard->number), NULL);
        return;
    }
    rezone->shard = shard;
    rezone->zones = zones;
    rezone->hash = zones_hash(zones);
    name_mark(rezone);
    shard->rezone = rezone;
    shard->inside++;
    rezone->ops[0] = (fl_op){.kind = FL_OP_GET, .timer = {.ns = MARK_NS, .name = mark_name(rezone)}};
    rezone->batch = (fl_batch){.ops = rezone->ops, .count = 1, .done = mark_read, .arg = rezone};
    fl_engine_submit(shard->engine, &rezone->batch);
}

void node_zones_changed(struct worker *worker)
{
    struct node *node = worker->node;
    for (uint32_t i = worker->index; i < node->shard_count; i += node->worker_count)
        rezone_shard(&node->shards[i]);
}
