/* SPDX-License-Identifier: MIT */
/* Calls: one path for all of them, whether they go to a worker of this server or to another server.
 *
 *     call_send() ── here ──> errand ──> run() on the worker ──────────────────────> call_return() ──> home: over()
 *          └──────── there ─> encode() ──> link ──> decode(), run(), reply() there ──> take_reply() at home: over()
 *
 * A kind of call says how it is written, run and answered (struct call_ops): operations and pages in shard_calls.c, leases in
 * leasing.c, acknowledgements in acks.c. Nothing is passed on: a server that does not have the shard says so. */

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/internal.h"

static const struct call_ops *const kinds[] = {
    [CALL_OPS] = &call_ops_of_ops,       [CALL_PAGE] = &call_ops_of_page,         [CALL_HISTORY] = &call_ops_of_history,
    [CALL_FORGET] = &call_ops_of_forget, [CALL_FORECAST] = &call_ops_of_forecast, [CALL_LEASE] = &call_ops_of_lease,
    [CALL_WATCH] = &call_ops_of_watch,   [CALL_ACKS] = &call_ops_of_acks,
};
enum { KINDS = CALL_ACKS + 1 };
_Static_assert(sizeof kinds == KINDS * sizeof(struct call_ops *), "every kind of call has its functions");

static const struct call_ops *ops_of(const struct shard_call *call)
{
    fl__assert((unsigned)call->kind < KINDS);
    return kinds[call->kind];
}

/* --- Home --------------------------------------------------------------------------------------------------------- */

/* It has been where it was sent, or could not be sent. */
static void over(struct shard_call *call)
{
    fl__assert(call->out);
    fl__assert(call->errand.home->under_way > 0);
    call->out = false;
    call->errand.home->under_way--;
    call->over(call);
}

static void came_home(struct errand *errand)
{
    over((struct shard_call *)errand);
}

static void go(struct errand *errand)
{
    struct shard_call *call = (struct shard_call *)errand;
    ops_of(call)->run(call);
}

void call_return(struct shard_call *call)
{
    fl__assert(call->out && !call->peer);
    errand_return(&call->errand);
}

/* --- At another server -------------------------------------------------------------------------------------------- */

static void answered(struct link_call *remote, int result, fl_bytes answer)
{
    struct shard_call *call = (struct shard_call *)((char *)remote - offsetof(struct shard_call, remote));
    struct wire wire = wire_begin(answer);
    fl__assert(call->out && call->peer);
    call->link = NULL;
    call->result = result;
    if (result == 0 && !ops_of(call)->take_reply(&wire, call))
        call->result = LINK_BAD;
    over(call);
}

static void cannot_be_sent(fl_loop *loop, void *arg)
{
    (void)loop;
    over(arg);
}

/* The call never ends inside this function, so the sender continues first. */
static void forward(struct shard_call *call)
{
    struct worker *home = call->errand.home;
    struct out body = {0};
    fl__assert(call->out && call->peer && !call->link);
    call->link = link_to(home, call->peer);
    call->remote = (struct link_call){.done = answered};
    if (call->link)
        ops_of(call)->encode(&body, call);
    if (!call->link || body.failed) {
        call->result = call->link ? FL_NO_MEMORY : FL_STORE_UNAVAILABLE;
        call->link = NULL;
        call->errand.task = (fl_loop_task){.fn = cannot_be_sent, .arg = call};
        fl_loop_post_task(home->loop, &call->errand.task);
    } else {
        home->node->ports->link_call(call->link, &call->remote, (uint8_t)ops_of(call)->link_kind, out_bytes(&body));
    }
    out_free(&body);
}

void call_send(struct shard_call *call)
{
    fl__assert(!call->out && !call->cancelling);
    call->out = true;
    call->result = 0;
    call->remote.sent = false;
    atomic_store_explicit(&call->unwanted, false, memory_order_relaxed);
    call->errand.home->under_way++;
    if (call->peer) {
        forward(call);
        return;
    }
    call->errand.there = ops_of(call)->place(call);
    call->errand.go = go;
    call->errand.back = came_home;
    errand_send(&call->errand);
}

/* --- Cancelling --------------------------------------------------------------------------------------------------- */

static void cancel_go(struct errand *errand)
{
    struct shard_call *call = (struct shard_call *)((char *)errand - offsetof(struct shard_call, cancel));
    ops_of(call)->cancel(errand->there, call);
    errand_return(errand);
}

static void cancel_back(struct errand *errand)
{
    struct shard_call *call = (struct shard_call *)((char *)errand - offsetof(struct shard_call, cancel));
    fl__assert(call->cancelling);
    call->cancelling = false;
    call->cancelled(call);
}

void call_cancel(struct shard_call *call)
{
    fl__assert(ops_of(call)->cancel && call->cancelled);
    if (!call->out || call->cancelling)
        return;
    if (call->link) {
        call->errand.home->node->ports->link_cancel(call->link, &call->remote);
        call->link = NULL;
        call->out = false;
        call->errand.home->under_way--;
    } else if (!call->peer) {
        call->cancelling = true;
        atomic_store(&call->unwanted, true);
        call->cancel = (struct errand){
            .home = call->errand.home, .there = call->errand.there, .go = cancel_go, .back = cancel_back};
        errand_send(&call->cancel);
    }
}

/* --- Serving other servers ---------------------------------------------------------------------------------------- */

struct served {
    struct shard_call call;
    struct link_request *request;
    struct out answer;
    _Alignas(max_align_t) unsigned char room[]; /* what the call consists of, then a copy of the request */
};

static void served_render(struct shard_call *call)
{
    ops_of(call)->reply(&((struct served *)call)->answer, call);
}

static void served_free_if_over(struct shard_call *call)
{
    struct served *served = (struct served *)call;
    if (call->out || call->cancelling)
        return;
    if (ops_of(call)->release)
        ops_of(call)->release(call);
    out_free(&served->answer);
    free(served);
}

static void served_over(struct shard_call *call)
{
    struct served *served = (struct served *)call;
    fl__assert(served->request && !call->out);
    if (ops_of(call)->replies_at_home)
        served_render(call);
    if (ops_of(call)->cancel)
        link_watch(served->request, NULL, NULL);
    int result = call->result == 0 && served->answer.failed ? ops_of(call)->no_room : call->result;
    link_answer(served->request, result, out_bytes(&served->answer));
    served->request = NULL;
    served_free_if_over(call);
}

/* The asking server no longer waits for the answer. */
static void served_gone(struct link_request *request)
{
    struct served *served = request->arg;
    link_watch(request, NULL, NULL);
    call_cancel(&served->call);
}

static void serve(struct worker *worker, struct link_request *request, enum call_kind kind)
{
    struct wire wire = wire_begin(request->body);
    size_t size = kinds[kind]->room ? kinds[kind]->room(wire) : 0, behind = request->body.size;
    struct served *served = size < SIZE_MAX / 2 ? malloc(sizeof *served + size + behind) : NULL;
    if (!served) {
        link_answer(request, FL_NO_MEMORY, (fl_bytes){0});
        return;
    }
    memset(served, 0, sizeof *served);
    served->request = request;
    served->call.kind = kind;
    served->call.errand.home = worker;
    served->call.render = served_render;
    served->call.over = served_over;
    served->call.cancelled = served_free_if_over;
    if (behind > 0)
        memcpy(served->room + size, request->body.data, behind);
    wire = wire_begin((fl_bytes){served->room + size, behind});
    int r = kinds[kind]->decode(&wire, &served->call, served->room);
    if (r < 0 || wire.bad) {
        free(served);
        link_answer(request, r < 0 ? r : FL_INVALID_ARGUMENT, (fl_bytes){0});
        return;
    }
    if (kinds[kind]->cancel)
        link_watch(request, served_gone, served);
    call_send(&served->call);
}

bool calls_serve(struct worker *worker, struct link_request *request)
{
    for (unsigned i = 0; i < KINDS; i++)
        if (kinds[i]->link_kind == request->kind) {
            serve(worker, request, (enum call_kind)i);
            return true;
        }
    return false;
}
