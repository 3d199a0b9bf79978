/* SPDX-License-Identifier: MIT */
/* Operations on a shard and pages of it, at whichever server it is.
 *
 * A shard has no owner for a while before the server has claimed it (the server listens first), and while it moves from one
 * server to another. A call that comes meanwhile waits at home and is retried. If the shard moves in order, or this server
 * does not know the new owner yet, the wait is short. If its owner does not answer, the wait would be longer than clients
 * wait.
 *
 * Calls of one worker for such a shard wait in one line, in the order in which they were submitted, though they may have been
 * tried in different places: the first is tried alone, and when it has got through the others follow. */

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/internal.h"

#define WAIT_NS 1000000000ull
#define WAIT_LONG_NS (5 * 1000000000ull)
#define AGAIN_NS (20 * 1000000ull)
#define AVOID_NS (5 * 1000000000ull)

/* --- Here: the engine --------------------------------------------------------------------------------------------- */

/* Changes of the server's own timers are not published. */
static void publish_change(struct shard *shard, const fl_op *op)
{
    bool cancelled = op->kind == FL_OP_CANCEL;
    if (op->result < 0 || op->kind == FL_OP_GET || op->kind == FL_OP_DEAD_GET || op->kind == FL_OP_DEAD_DELETE ||
        (op->kind == FL_OP_CREATE && op->outcome == FL_SAME) || is_own_namespace(op->timer.ns))
        return;
    struct space *space = space_of(shard->worker->node, op->timer.ns);
    if (op->kind == FL_OP_CREATE || cancelled)
        stats_count(shard->worker, space, cancelled ? STATS_CANCELLED : STATS_CREATED);
    if (cancelled && space)
        history_cancelled(shard, space, &op->timer);
    if (cancelled)
        schedule_nudge(shard, &op->timer);
    shard->worker->node->ports->publish(shard->worker, cancelled ? EVENT_CANCELLED : EVENT_SCHEDULED, shard->number,
                                        &op->timer, (fl_bytes){0});
}

/* The engine has answered. If it was stopped before it began, nothing has happened. */
void shard_call_answered(struct shard_call *call, bool stopped)
{
    struct shard *shard = call->shard;
    fl__assert(shard->inside > 0);
    if (shard_is_leaving(shard) && stopped)
        call->result = LINK_MOVED;
    else
        call->render(call);
    call_return(call);
    shard_call_left(shard);
}

static bool were_stopped(const fl_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->ops[i].result != FL_STOPPED)
            return false;
    return true;
}

void shard_call_ops_done(fl_batch *batch)
{
    struct shard_call *call = batch->arg;
    bool stopped = shard_is_leaving(call->shard) && were_stopped(batch);
    fl__assert(batch == &call->batch && call->kind == CALL_OPS);
    for (size_t i = 0; i < batch->count && !stopped; i++) {
        publish_change(call->shard, &batch->ops[i]);
        if (call->places)
            place_give(call->shard->worker->node, &call->places[i]);
    }
    shard_call_answered(call, stopped);
}

/* --- The line of waiting calls ------------------------------------------------------------------------------------ */

struct line {
    struct shard_call *first;
    struct shard_call *hint;  /* the last that was put in; NULL: it may be gone */
    struct shard_call *tried; /* on its way; NULL: none */
    fl_timer_id planned;      /* the first will be tried then; 0: no time is set */
    uint64_t avoid_until_ns;  /* an operation has failed because of the shard: timers without a name go elsewhere */
};

static struct line *line_of(const struct shard_call *call)
{
    return &call->errand.home->lines[call->shard->number];
}

/* Calls come back in about the order of their numbers: the next place is at, or soon behind, the last one. */
static void line_add(struct line *line, struct shard_call *call)
{
    bool behind = line->hint && line->hint->number < call->number;
    struct shard_call **at = behind ? &line->hint->next : &line->first;
    fl__assert(!call->out);
    while (*at && (*at)->number < call->number)
        at = &(*at)->next;
    call->next = *at;
    *at = call;
    line->hint = call;
}

static struct shard_call *line_take(struct line *line)
{
    struct shard_call *call = line->first;
    fl__assert(call && (!call->next || call->number < call->next->number));
    line->first = call->next;
    if (line->hint == call)
        line->hint = NULL;
    return call;
}

static bool may_wait(const struct shard_call *call)
{
    const struct worker *worker = call->errand.home;
    const struct node *node = worker->node;
    bool moves = atomic_load_explicit(&call->shard->moving, memory_order_relaxed) ||
                 (node->cluster && !atomic_load_explicit(&node->settings_known, memory_order_relaxed));
    return fl_loop_now_ns(worker->loop) - call->since_ns < (moves ? WAIT_LONG_NS : WAIT_NS);
}

static void route(struct shard_call *call)
{
    fl__assert(!call->out);
    call->peer = atomic_load_explicit(&call->shard->peer, memory_order_acquire);
    call->routed_ns = fl_loop_now_ns(call->errand.home->loop);
    call_send(call);
}

static void try_first(fl_loop *loop, void *arg)
{
    struct line *line = arg;
    fl__assert(line->planned && !line->tried);
    (void)loop;
    line->planned = 0;
    line->tried = line_take(line);
    route(line->tried);
}

static void let_follow(struct line *line)
{
    struct shard_call *call = line->first;
    fl__assert(!line->tried);
    line->first = line->hint = NULL;
    for (struct shard_call *next; call; call = next) {
        next = call->next;
        route(call);
    }
}

bool shard_result_is_failure(int result)
{
    return result == FL_STORE_UNAVAILABLE || result == FL_STORE_READ_ONLY || result == FL_STORE_CORRUPT ||
           result == FL_SHARD_LOST;
}

static void note_failure(const struct shard_call *call)
{
    bool failed = shard_result_is_failure(call->batch.ops[0].result);
    line_of(call)->avoid_until_ns = failed ? fl_loop_now_ns(call->errand.home->loop) + AVOID_NS : 0;
}

static void end(struct shard_call *call)
{
    if (call->kind == CALL_OPS && !call->local)
        note_failure(call);
    fl__assert(!call->out && call->errand.home->under_way > 0);
    call->errand.home->under_way--;
    call->done(call);
}

/* Whether the first will be tried. */
static bool is_planned(struct line *line, struct worker *worker)
{
    return line->planned || line->tried || fl_loop_timer(worker->loop, AGAIN_NS, try_first, line, &line->planned) == 0;
}

/* Those that have waited long enough fail. Without memory to try again, all do. */
static void try_again(struct line *line, struct worker *worker)
{
    while (line->first) {
        if (may_wait(line->first) && is_planned(line, worker))
            return;
        struct shard_call *call = line_take(line);
        shard_call_fail(call, FL_STORE_UNAVAILABLE);
        end(call);
    }
    if (line->planned)
        fl_loop_cancel(worker->loop, line->planned); /* there is no first */
    line->planned = 0;
}

/* --- Wherever it is ----------------------------------------------------------------------------------------------- */

static bool only_reads(const struct shard_call *call)
{
    for (size_t i = 0; call->kind == CALL_OPS && i < call->batch.count; i++)
        if (call->batch.ops[i].kind != FL_OP_GET && call->batch.ops[i].kind != FL_OP_DEAD_GET)
            return false;
    return true;
}

/* Whether it has not happened, or does not matter if it happens twice. A page that is too large for a link is asked for in
 * smaller ones. */
static bool must_try_again(struct shard_call *call)
{
    bool full = call->result == FL_CAPACITY_EXCEEDED && !call->remote.sent; /* too much waits already */
    bool spoilt = call->result == LINK_BAD; /* the operations may have been overwritten */
    fl__assert(call->kind <= CALL_FORECAST);
    if (call->result == 0 || (call->kind == CALL_OPS && (full || spoilt)))
        return false;
    if (call->kind == CALL_PAGE && call->result == FL_TOO_LARGE && call->listing.limit > 1)
        call->listing.limit /= 2;
    if (call->kind == CALL_HISTORY && call->result == FL_TOO_LARGE && call->past.limit > 1)
        call->past.limit /= 2;
    return call->result == LINK_MOVED || !call->remote.sent || only_reads(call);
}

static void routed(struct shard_call *call)
{
    struct line *line = line_of(call);
    struct worker *home = call->errand.home;
    bool tried = line->tried == call;
    fl__assert(!call->out && call->errand.home == home);
    if (tried)
        line->tried = NULL;
    if (must_try_again(call)) {
        call->since_ns += fl_loop_now_ns(home->loop) - call->routed_ns;
        line_add(line, call);
        try_again(line, home);
        return;
    }
    if (call->result != 0)
        shard_call_fail(call, call->remote.sent ? FL_OUTCOME_UNKNOWN : call->result);
    if (tried)
        let_follow(line);
    end(call);
}

void shard_call_submit(struct shard_call *call)
{
    struct worker *home = call->errand.home;
    fl__assert(call->shard && call->render && call->done && call->kind <= CALL_FORECAST);
    home->under_way++;
    if (call->local) {
        call->over = end;
        call_send(call);
        return;
    }
    struct line *line = line_of(call);
    call->over = routed;
    call->since_ns = fl_loop_now_ns(home->loop);
    call->number = home->calls++;
    if (line->first || line->tried)
        line_add(line, call);
    else
        route(call);
}

void shard_call_fail(struct shard_call *call, int result)
{
    if (call->kind == CALL_PAGE) {
        call->listing.result = result;
        call->listing.count = 0;
    }
    if (call->kind == CALL_HISTORY) {
        call->past.result = result;
        call->past.count = 0;
    }
    if (call->kind == CALL_FORGET)
        call->erasure.result = result;
    if (call->kind == CALL_FORECAST)
        call->forecast.result = result;
    for (size_t i = 0; call->kind == CALL_OPS && i < call->batch.count; i++)
        call->batch.ops[i].result = result;
    call->render(call);
}

const char *line_check(const struct worker *worker, uint32_t shard)
{
    const struct line *line = &worker->lines[shard];
    bool hint = !line->hint;
    fl__assert(shard < worker->node->shard_count);
    for (const struct shard_call *call = line->first; call; call = call->next) {
        hint |= call == line->hint;
        if (call->out || call->shard->number != shard || call->errand.home != worker)
            return "a call that waits is at home, in the line of its shard";
        if (call->next && call->number >= call->next->number)
            return "calls wait in the order in which they were submitted";
    }
    if (!hint)
        return "the hint of a line is in it";
    if (line->planned && !line->first)
        return "a line without calls plans nothing";
    return line->first && !line->planned && !line->tried ? "a line that has a first call tries it" : NULL;
}

int lines_new(struct worker *worker)
{
    worker->lines = calloc(worker->node->shard_count, sizeof *worker->lines);
    return worker->lines ? 0 : FL_NO_MEMORY;
}

void lines_free(struct worker *worker)
{
    for (uint32_t i = 0; worker->lines && i < worker->node->shard_count; i++)
        fl__assert(!worker->lines[i].first && !worker->lines[i].tried && !worker->lines[i].planned);
    free(worker->lines);
}

/* --- Which shard -------------------------------------------------------------------------------------------------- */

/* In capitals it is a name: others' IDs of as many letters are often written so, and are used as names. */
bool is_id(const struct node *node, fl_bytes text, uint32_t *ret_shard, fl_key *ret_id)
{
    for (size_t i = 0; i < text.size; i++)
        if (((const char *)text.data)[i] >= 'A' && ((const char *)text.data)[i] <= 'Z')
            return false;
    return fl_id_parse(text.data, text.size, ret_shard, ret_id) == 0 && *ret_shard < node->shard_count;
}

struct shard *shard_of_name(struct node *node, fl_bytes ns, fl_bytes name)
{
    return &node->shards[fl_store_shard_of(node->shard_count, ns, name)];
}

struct shard *shard_of_op(struct node *node, fl_op *op)
{
    op->name_hash = fl_store_hash(op->timer.ns, op->timer.name);
    return &node->shards[op->name_hash % node->shard_count];
}

static bool is_served(const struct worker *worker, const struct shard *shard)
{
    bool moving = atomic_load_explicit(&shard->moving, memory_order_relaxed);
    return (atomic_load_explicit(&shard->serving, memory_order_relaxed) || (!moving && atomic_load(&shard->peer))) &&
           worker->lines[shard->number].avoid_until_ns <= fl_loop_now_ns(worker->loop);
}

/* A shard of this worker if it has any, so that no other worker is involved. It stays the same for some calls, so that
 * operations that arrive together are committed together. A shard whose store fails is passed over. */
struct shard *shard_of_worker(struct worker *worker)
{
    struct node *node = worker->node;
    uint32_t count = node->shard_count, step = node->worker_count;
    uint32_t own = worker->index < count ? (count - worker->index - 1) / step + 1 : 0;
    uint32_t turn = worker->turn++ >> 8;
    fl__assert(count > 0);
    for (uint32_t i = 0; i < own; i++) {
        struct shard *shard = &node->shards[worker->index + (turn + i) % own * step];
        if (shard_is_here(shard) && is_served(worker, shard))
            return shard;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct shard *shard = &node->shards[(turn + i) % count];
        if (is_served(worker, shard))
            return shard;
    }
    return &node->shards[turn % count];
}
