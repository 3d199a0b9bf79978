/* SPDX-License-Identifier: MIT */
/* What each kind of request says to the database, and what it makes of the answer.
 *
 * Writes are one exchange (writes.c), and so are meetings, without a fence (meet.c). Finding and listing are single statements
 * (reads.c). Two kinds take several exchanges, and have the connection for themselves meanwhile: a claim (claim.c) and a load
 * (load.c). */

#include <stdlib.h>
#include <string.h>

#include "store/postgres/postgres.h"

bool fl__pg_is_alone(const fl_store_request *request)
{
    return request->op == FL_STORE_CLAIM || request->op == FL_STORE_LOAD || request->op == FL_STORE_MEET;
}

bool fl__pg_is_unowned(const fl_store_request *request)
{
    return request->op == FL_STORE_CLAIM || request->op == FL_STORE_MEET;
}

int fl__pg_start(struct pg_shard *shard, struct pg_flight *flight)
{
    switch (flight->request->op) {
    case FL_STORE_CLAIM:
        return fl__pg_start_claim(shard, flight);
    case FL_STORE_RENEW:
        return fl__pg_start_renew(shard, flight);
    case FL_STORE_RELEASE:
        return fl__pg_start_release(shard, flight);
    case FL_STORE_WRITE:
        return fl__pg_start_write(shard, flight);
    case FL_STORE_FIND:
        return fl__pg_start_find(shard, flight);
    case FL_STORE_LIST:
        return fl__pg_start_list(shard, flight);
    case FL_STORE_LOAD:
        return fl__pg_start_load(shard, flight);
    case FL_STORE_REFILE:
        return fl__pg_start_refile(shard, flight);
    case FL_STORE_FINISH:
        return fl__pg_start_finish(shard, flight);
    case FL_STORE_RECORD:
        return fl__pg_start_record(shard, flight);
    case FL_STORE_DEAD_LIST:
        return fl__pg_start_dead_list(shard, flight);
    case FL_STORE_COUNT:
        return fl__pg_start_count(shard, flight);
    case FL_STORE_MEET:
        return fl__pg_start_meet(shard, flight);
    case FL_STORE_HISTORY:
        return fl__pg_start_history(shard, flight);
    case FL_STORE_FORGET:
        return fl__pg_start_forget(shard, flight);
    default:
        return FL_INVALID_ARGUMENT;
    }
}

static void take_meet(struct pg_shard *shard, struct pg_flight *flight, unsigned what, const PGresult *result)
{
    int r = fl__pg_take_meet(shard, flight, what, result);
    if (r < 0 && flight->doubt && flight->request->result == 0) /* the commit is under way */
        fl__store_answer(flight->request, FL_OUTCOME_UNKNOWN, "the response of the database is invalid: %s",
                         fl_strerror(r));
    else if (r < 0)
        fl__pg_fail(flight, r);
}

static bool is_find(unsigned what)
{
    return what == PG_FIND_ONE || what == PG_FIND_NAME || what == PG_FIND_ID || what == PG_FIND_MOVED;
}

static bool is_fence(unsigned what)
{
    return what == PG_FENCE || what == PG_RENEW || what == PG_RELEASE;
}

/* The database read its clock, at the beginning of the transaction, after we sent and before we received: a time outside of
 * that span is a difference of the clocks. */
static void compare_clocks(struct pg_shard *shard, const struct pg_flight *flight, unsigned what,
                           const PGresult *result)
{
    int column = what == PG_LOCK ? 3 : what == PG_RENEW ? 0 : what == PG_MEMBERS ? 4 : -1;
    if (column < 0 || PQntuples(result) == 0)
        return;
    int64_t theirs = (int64_t)fl__pg_get_int(result, 0, column);
    if (what == PG_RENEW) /* Citus returns columns, but not now() */
        theirs -= (int64_t)fl__pg_claim(flight->request->renew.claim_us);
    int64_t received_us = fl_wall_clock_system()->now_us(fl_wall_clock_system());
    int64_t ahead_us = theirs < flight->sent_us ? flight->sent_us - theirs
                       : theirs > received_us   ? received_us - theirs
                                                : 0;
    atomic_store_explicit(&fl__pg_store(shard)->ahead_us, ahead_us, memory_order_relaxed);
}

static void take_good(struct pg_shard *shard, struct pg_flight *flight, unsigned what, PGresult *result)
{
    fl_store_request *request = flight->request;
    compare_clocks(shard, flight, what, result);
    if (is_fence(what)) /* without a row it does not fail */
        flight->fenced = strcmp(PQcmdTuples(result), "1") != 0;
    else if (what == PG_COMMIT && strcmp(PQcmdStatus(result), "COMMIT") != 0 && !flight->redo && !flight->fenced)
        fl__pg_fail(flight, FL_STORE_UNAVAILABLE);
    else if (request->op == FL_STORE_CLAIM)
        fl__pg_take_claim(flight, what, result);
    else if (request->op == FL_STORE_MEET)
        take_meet(shard, flight, what, result);
    else if (request->op == FL_STORE_REFILE)
        fl__pg_take_refile(flight, what, result);
    else if (what == PG_DROP || what == PG_SETTLED)
        request->finish.deleted += strtoull(PQcmdTuples(result), NULL, 10);
    else if (is_find(what))
        fl__pg_take_found(flight, result);
    else if (what == PG_LIST)
        fl__pg_take_list(flight, result);
    else if (what == PG_DEAD)
        fl__pg_take_dead_list(flight, result);
    else if (what == PG_COUNT_WINDOWS)
        fl__pg_take_count(flight, result);
    else if (what == PG_HISTORY && fl__pg_take_history(flight, result) < 0)
        fl__pg_fail(flight, FL_NO_MEMORY);
    else if (what == PG_HISTORY_ERASE)
        request->forget.erased = strtoull(PQcmdTuples(result), NULL, 10);
    else if (what == PG_CUT)
        fl__pg_take_cut(flight, result);
}

/* Whether the answer points into a result of this statement. */
static bool is_kept(unsigned what)
{
    return is_find(what) || what == PG_LIST || what == PG_DEAD || what == PG_HISTORY || what == PG_PAGE ||
           what == PG_MEMBERS || what == PG_HOLDERS || what == PG_NODES || what == PG_COUNTS;
}

void fl__pg_take(struct pg_shard *shard, struct pg_flight *flight, unsigned what, PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    bool good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    if (what == PG_NODE_HOLDERS)
        fl__pg_take_node(shard, result);
    else if (good)
        take_good(shard, flight, what, result);
    else if (is_fence(what) && strcmp(fl__pg_sqlstate(result), "22P02") == 0)
        flight->fenced = true;
    else if (status != PGRES_PIPELINE_ABORTED)
        fl__pg_take_error(flight, result);
    if (good && is_kept(what) && flight->kept_count < PG_KEPT)
        flight->kept[flight->kept_count++] = result;
    else
        PQclear(result);
}

static void claimed(struct pg_shard *shard, const struct pg_flight *flight)
{
    if (flight->request->result < 0 || flight->redo)
        return;
    shard->sent = flight->number;
    fl__pg_acknowledge(shard, flight->number);
    shard->forgotten = false;
    shard->version = flight->request->claim.version;
}

bool fl__pg_go_on(struct pg_shard *shard, struct pg_flight *flight)
{
    if (flight->request->op == FL_STORE_MEET)
        return fl__pg_store(shard)->spread && fl__pg_go_on_meeting(shard, flight);
    if (!fl__pg_is_alone(flight->request))
        return false;
    bool failed = flight->request->result < 0 || flight->redo;
    if (flight->stage == STAGE_END) {
        if (flight->request->op == FL_STORE_CLAIM)
            claimed(shard, flight);
        return false;
    }
    if (failed)
        fl__pg_end_stages(shard, flight);
    else if (flight->request->op == FL_STORE_CLAIM)
        fl__pg_send_claim(shard, flight);
    else
        fl__pg_go_on_loading(shard, flight);
    return true;
}
