/* SPDX-License-Identifier: MIT */
/* History: what became of attempts.
 *
 * A row is written on the shard's worker when an attempt is settled, a timer is cancelled, or occurrences are skipped, if the
 * namespace's setting `history` wants it. The engine writes it with the next record of progress. A failed attempt after which
 * the retry policy allows no other one is `dead`; one that is given up for its age alone is `failed`. */

#include <stdlib.h>

#include "node/internal.h"

enum { VERSION = 1 };

/* --- Rows --------------------------------------------------------------------------------------------------------- */

static void write_entry(struct out *out, const struct history_entry *entry)
{
    const int64_t times[] = {entry->due_us, entry->occurrence_us, entry->ended_us};
    const uint64_t numbers[] = {entry->late_us, entry->took_us, entry->attempt, entry->status, entry->count};
    const fl_bytes texts[] = {entry->target, entry->reason, entry->response};
    out_clear(out);
    wire_put_number(out, VERSION);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        wire_put_signed(out, times[i]);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        wire_put_number(out, numbers[i]);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        wire_put_bytes(out, texts[i]);
}

bool history_read(const fl_history_row *row, struct history_entry *ret)
{
    struct wire wire = wire_begin(row->body);
    bool known = wire_number(&wire) == VERSION;
    *ret = (struct history_entry){.began_us = row->began_us};
    ret->due_us = wire_signed(&wire);
    ret->occurrence_us = wire_signed(&wire);
    ret->ended_us = wire_signed(&wire);
    ret->late_us = wire_number(&wire);
    ret->took_us = wire_number(&wire);
    ret->attempt = (uint32_t)wire_number(&wire);
    ret->status = (uint32_t)wire_number(&wire);
    ret->count = wire_number(&wire);
    ret->target = wire_bytes(&wire);
    ret->reason = wire_bytes(&wire);
    ret->response = wire_bytes(&wire);
    return known && !wire.bad && row->result < HISTORY_RESULTS;
}

static void add(struct shard *shard, const fl_durable *timer, enum history_result result,
                const struct history_entry *entry)
{
    struct out *out = &shard->worker->history;
    if (!shard->engine)
        return;
    write_entry(out, entry);
    if (out->failed)
        return;
    fl_history_row row = {.id = timer->id,
                          .began_us = entry->began_us,
                          .result = result,
                          .ns = timer->ns,
                          .name = timer->name,
                          .schedule = timer->schedule,
                          .body = out_bytes(out)};
    fl_engine_history(shard->engine, &row, 1);
}

/* --- What is told ------------------------------------------------------------------------------------------------- */

static const struct history_rule *rule_of(const struct space *space)
{
    const struct settings *settings =
        space ? atomic_load_explicit(&space->settings, memory_order_acquire) : &no_settings;
    return &settings->history;
}

/* To cancel what was never attempted is no failure. */
static bool is_wanted(const struct history_rule *rule, enum history_result result, uint32_t attempt)
{
    bool good = result == HISTORY_DONE || result == HISTORY_AGAIN || (result == HISTORY_CANCELLED && attempt == 0);
    return rule->only == HISTORY_ONLY_ALL || (rule->only == HISTORY_ONLY_FAILURES && !good);
}

static uint64_t between(int64_t from_us, int64_t until_us)
{
    return until_us > from_us ? (uint64_t)until_us - (uint64_t)from_us : 0;
}

void history_settled(struct shard *shard, const struct space *space, const fl_firing *firing,
                     const fl_settlement *settlement, const struct tried *tried)
{
    static const enum history_result results[] = {[FL_DONE] = HISTORY_DONE,
                                                  [FL_FAILED] = HISTORY_FAILED,
                                                  [FL_AGAIN] = HISTORY_AGAIN,
                                                  [FL_DEAD] = HISTORY_DEAD,
                                                  [FL_EXPIRED] = HISTORY_EXPIRED};
    const struct history_rule *rule = rule_of(space);
    const fl_durable *timer = &firing->timer;
    if (settlement->result == FL_LATER || settlement->result > FL_EXPIRED)
        return; /* it was no attempt */
    enum history_result result = results[settlement->result];
    if (!is_wanted(rule, result, timer->attempt))
        return;
    if (tried->last && (result == HISTORY_FAILED || result == HISTORY_EXPIRED))
        result = HISTORY_DEAD;
    int64_t now_us = node_now(shard->worker->node), began_us = tried->began_us > 0 ? tried->began_us : now_us;
    int64_t since_us = timer->due_us > timer->created_us ? timer->due_us : timer->created_us;
    if (timer->attempt > 1 && !firing->parked)
        since_us = firing->at_us;
    struct history_entry entry = {.due_us = timer->due_us,
                                  .occurrence_us = timer->occurrence_us,
                                  .began_us = began_us,
                                  .ended_us = now_us,
                                  .late_us = between(since_us, began_us),
                                  .took_us = tried->took_us,
                                  .attempt = timer->attempt,
                                  .status = tried->status,
                                  .target = timer->target,
                                  .reason = settlement->reason,
                                  .response = tried->response};
    if (entry.response.size > rule->body)
        entry.response.size = rule->body;
    add(shard, timer, result, &entry);
}

static void tell(struct shard *shard, const struct space *space, const fl_durable *timer, enum history_result result,
                 uint64_t count, fl_bytes reason)
{
    int64_t now_us = node_now(shard->worker->node);
    if (!is_wanted(rule_of(space), result, timer->attempt))
        return;
    struct history_entry entry = {.due_us = timer->due_us,
                                  .occurrence_us = timer->occurrence_us,
                                  .began_us = now_us,
                                  .ended_us = now_us,
                                  .late_us = between(timer->due_us, now_us),
                                  .attempt = result == HISTORY_CANCELLED ? timer->attempt : 0,
                                  .count = count,
                                  .target = timer->target,
                                  .reason = reason};
    if (result == HISTORY_CANCELLED)
        entry.late_us = 0;
    add(shard, timer, result, &entry);
}

void history_skipped(struct shard *shard, const fl_durable *timer, uint64_t count, fl_bytes reason)
{
    if (!is_own_namespace(timer->ns))
        tell(shard, space_if_any(shard->worker->node, timer->ns), timer, HISTORY_SKIPPED, count, reason);
}

void history_cancelled(struct shard *shard, const struct space *space, const fl_durable *timer)
{
    tell(shard, space, timer, HISTORY_CANCELLED, 0, (fl_bytes){0});
}
