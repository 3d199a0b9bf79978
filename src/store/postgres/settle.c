/* SPDX-License-Identifier: MIT */
/* Settling what was in doubt, over the next connection (postgres.h says what that is): lock the row, read how far the
 * database has got, and put a new number there. */

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "store/postgres/postgres.h"

void fl__pg_proven(struct pg_shard *shard)
{
    shard->proven = true;
    shard->node_down = false;
    shard->trouble[0] = 0;
}

void fl__pg_ready(struct pg_shard *shard)
{
    shard->state = PG_READY;
    fl__pg_set_away(shard, false);
}

/* The version of the chain that may be taken over: the version of the waiting write. */
static uint64_t settling_version(struct pg_shard *shard)
{
    for (unsigned i = 0; i < shard->flight_count; i++) {
        struct pg_flight *flight = fl__pg_flight(shard, i);
        if (flight->state != PG_FINISHED && fl__store_is_write(flight->request))
            return flight->request->version;
    }
    return shard->version;
}

void fl__pg_settle_begin(struct pg_shard *shard)
{
    struct pg_args *args = &shard->args;
    shard->state = PG_SETTLING;
    shard->due_ns = fl_loop_now_ns(shard->base.loop) + fl__pg_timeout_ns(shard);
    shard->settling.stage = SETTLE_LOCK;
    if (!fl__pg_reserve(args, 5 * PG_INT_SIZE)) {
        fl__pg_link_fail(shard, fl_strerror(FL_NO_MEMORY));
        return;
    }
    fl__pg_transact(shard, NULL);
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_say(shard, NULL, PG_LOCK, args);
    fl__pg_sync(shard, NULL);
}

static bool in_our_chain(const struct pg_shard *shard)
{
    return shard->settling.applied >= shard->base_number && shard->settling.applied <= shard->number;
}

/* Whether the database no longer knows what it had acknowledged. With a later version, another owner came; that one has
 * built upon it, or will be told the same. */
static bool has_forgotten(const struct pg_shard *shard)
{
    return shard->acknowledged && shard->settling.version <= shard->version &&
           !(in_our_chain(shard) && shard->settling.applied >= shard->applied);
}

static void settle_commit(struct pg_shard *shard)
{
    shard->settling.stage = SETTLE_END;
    fl__pg_say(shard, NULL, PG_COMMIT, NULL);
    fl__pg_sync(shard, NULL);
}

static void settle_bar(struct pg_shard *shard)
{
    struct pg_args *args = &shard->args;
    shard->settling.tried = (fl__pg_random() >> 2) + 1;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_int(args, shard->settling.tried);
    fl__pg_int(args, in_our_chain(shard) ? shard->settling.found : UINT64_MAX); /* never another owner's */
    fl__pg_int(args, settling_version(shard));
    fl__pg_say(shard, NULL, PG_BAR, args);
    fl__pg_sync(shard, NULL);
    settle_commit(shard);
}

static void finish(struct pg_flight *flight, int result, const char *format, const char *detail)
{
    fl__store_answer(flight->request, result, format, detail);
    flight->state = PG_FINISHED;
}

void fl__pg_refuse_forgotten(struct pg_flight *flight)
{
    finish(flight, FL_SHARD_LOST,
           "the database has lost acknowledged writes; perhaps a replica that lagged behind was promoted, or a backup "
           "was restored",
           NULL);
}

static void settle_write(struct pg_shard *shard, struct pg_flight *flight)
{
    bool applied = in_our_chain(shard) && flight->number <= shard->settling.applied;
    bool lost = flight->request->version != shard->settling.version || flight->request->version == 0;
    if (flight->fenced && lost)
        finish(flight, FL_SHARD_LOST, "%s owns the shard now",
               shard->settling.owner[0] ? shard->settling.owner : "no server");
    else if (!flight->fenced && applied && flight->request->op != FL_STORE_REFILE)
        finish(flight, 0, NULL, NULL);
    else if (!flight->fenced && !applied && !in_our_chain(shard))
        finish(flight, FL_OUTCOME_UNKNOWN,
               "the connection broke (%s), and another server has written to the shard since", shard->trouble);
    else if (!applied && flight->request->result < 0)
        flight->state = PG_FINISHED; /* the database refused it when it was to commit: so it has its answer */
    else {
        flight->doubt = flight->doubt || (applied && !flight->fenced);
        fl__pg_flight_reset(flight);
    }
}

/* A read that was to see the shard before writes that have taken effect by now comes too late. */
static void refuse_late_reads(struct pg_shard *shard)
{
    unsigned last = 0;
    for (unsigned i = 0; i < shard->flight_count; i++) {
        const struct pg_flight *flight = fl__pg_flight(shard, i);
        if (flight->state == PG_FINISHED && fl__store_is_write(flight->request) && flight->request->result == 0)
            last = i;
    }
    for (unsigned i = 0; i < last; i++) {
        struct pg_flight *flight = fl__pg_flight(shard, i);
        if (flight->state == PG_WAITING && !fl__store_is_write(flight->request) && !fl__pg_is_alone(flight->request))
            finish(flight, FL_STORE_UNAVAILABLE, "the connection broke (%s) before the response was read",
                   shard->trouble);
    }
}

/* What was in doubt is not there, since what came before it is not. */
static void settle_forgotten(struct pg_shard *shard)
{
    shard->forgotten = true;
    shard->chained = shard->acknowledged = false;
    shard->settling.tried = fl__pg_random() >> 2;
    for (unsigned i = 0; i < shard->flight_count; i++) {
        struct pg_flight *flight = fl__pg_flight(shard, i);
        if (flight->state != PG_FINISHED && !fl__pg_is_unowned(flight->request))
            fl__pg_refuse_forgotten(flight);
    }
}

static void settle_end(struct pg_shard *shard)
{
    if (has_forgotten(shard))
        settle_forgotten(shard);
    for (unsigned i = 0; i < shard->flight_count; i++) {
        struct pg_flight *flight = fl__pg_flight(shard, i);
        if (flight->state == PG_SENT)
            settle_write(shard, flight);
    }
    refuse_late_reads(shard);
    bool barred = in_our_chain(shard) && !shard->forgotten;
    fl__pg_proven(shard);
    shard->base_number = shard->number = shard->sent = shard->applied = shard->settling.tried;
    shard->settling.tried = 0;
    shard->acknowledged |= barred; /* the new number was */
    fl__pg_ready(shard);
}

void fl__pg_settle_next(struct pg_shard *shard)
{
    switch (shard->settling.stage) {
    case SETTLE_READ:
        if (has_forgotten(shard))
            settle_commit(shard);
        else
            settle_bar(shard);
        break;
    case SETTLE_DONE:
        settle_end(shard);
        break;
    default:
        fl__pg_link_fail(shard, "cannot read the row of the shard; check that the table foliot_shard is complete");
    }
}

static void take_lock(struct pg_shard *shard, const PGresult *result)
{
    uint64_t found = fl__pg_get_int(result, 0, 1);
    if (found != shard->settling.tried)
        shard->settling.applied = found; /* else it is what an earlier attempt has found and overwritten */
    shard->settling.found = found;
    shard->settling.version = fl__pg_get_int(result, 0, 0);
    fl_bytes owner = fl__pg_get_bytes(result, 0, 4);
    snprintf(shard->settling.owner, sizeof shard->settling.owner, "%.*s", (int)owner.size, (const char *)owner.data);
    shard->settling.stage = SETTLE_READ;
}

void fl__pg_take_settling(struct pg_shard *shard, unsigned what, PGresult *result)
{
    if (what == PG_LOCK && PQntuples(result) == 1)
        take_lock(shard, result);
    else if (what == PG_COMMIT && strcmp(PQcmdStatus(result), "COMMIT") == 0)
        shard->settling.stage = SETTLE_DONE;
}
