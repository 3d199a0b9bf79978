/* SPDX-License-Identifier: MIT */
/* Calls: one path for all of them, whether they go to a worker of this server or to another server.
 *
 *     call_send() ── here ──> errand ──> run() on the worker ──────────────────────> call_return() ──> home: over()
 *          └──────── there ─> encode() ──> link ──> decode(), run(), reply() there ──> take_reply() at home: over()
 *
 * The table in call_kinds.c says how each kind of call is written, run and answered. Nothing is passed on: a server that does not
 * have the shard says so. */

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/internal.h"

static const struct call_row *row_of(const struct shard_call *call)
{
    fl__assert((unsigned)call->kind < CALL_KINDS);
    return &call_rows[call->kind];
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
    row_of(call)->run(call);
}

void call_return(struct shard_call *call)
{
    fl__assert(call->out && !call->peer);
    errand_return(&call->errand);
}

/* --- At another server -------------------------------------------------------------------------------------------- */

static void write_question(struct out *out, const struct shard_call *call)
{
    const struct call_row *row = row_of(call);
    if (row->of_shard)
        wire_put_number(out, call->shard->number);
    if (row->asks)
        wire_put(out, row->asks, (const char *)call + row->asks_at);
    if (row->encode)
        row->encode(out, call);
}

/* Returns 0, or why the call is refused. */
static int read_question(struct wire *wire, struct shard_call *call, void *room)
{
    const struct call_row *row = row_of(call);
    if (row->of_shard) {
        struct node *node = call->errand.home->node;
        uint64_t number = wire_number(wire);
        wire->bad |= number >= node->shard_count;
        call->shard = &node->shards[wire->bad ? 0 : number];
        call->local = true;
    }
    if (row->asks)
        wire_read(wire, row->asks, (char *)call + row->asks_at);
    int r = row->decode ? row->decode(wire, call, room) : 0;
    return r == 0 && wire->bad ? FL_INVALID_ARGUMENT : r;
}

static void write_answer(struct out *out, const struct shard_call *call)
{
    const struct call_row *row = row_of(call);
    if (row->answers)
        wire_put(out, row->answers, (const char *)call + row->answers_at);
    if (row->reply)
        row->reply(out, call);
}

/* Returns 0, or LINK_BAD: it makes no sense, or there is no memory for it. */
static int read_answer(struct wire wire, struct shard_call *call)
{
    const struct call_row *row = row_of(call);
    size_t size = row->reply_room ? row->reply_room(call) : 0;
    void *room = size > 0 ? calloc(1, size) : NULL;
    wire.bad |= size > 0 && !room;
    if (row->answers && !wire.bad)
        wire_read(&wire, row->answers, (char *)call + row->answers_at);
    if (row->take_reply && !wire.bad)
        row->take_reply(&wire, call, room);
    if (row->of_shard && !wire.bad)
        call->render(call);
    free(room);
    return wire.bad ? LINK_BAD : 0;
}

static void answered(struct link_call *remote, int result, fl_bytes answer)
{
    struct shard_call *call = (struct shard_call *)((char *)remote - offsetof(struct shard_call, remote));
    fl__assert(call->out && call->peer);
    call->link = NULL;
    call->result = result == 0 ? read_answer(wire_begin(answer), call) : result;
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
        write_question(&body, call);
    if (!call->link || body.failed) {
        call->result = call->link ? FL_NO_MEMORY : FL_STORE_UNAVAILABLE;
        call->link = NULL;
        call->errand.task = (fl_loop_task){.fn = cannot_be_sent, .arg = call};
        fl_loop_post_task(home->loop, &call->errand.task);
    } else {
        home->node->ports->link_call(call->link, &call->remote, (uint8_t)row_of(call)->link_kind, out_bytes(&body));
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
    call->errand.there = row_of(call)->place(call);
    call->errand.go = go;
    call->errand.back = came_home;
    errand_send(&call->errand);
}

/* --- Cancelling --------------------------------------------------------------------------------------------------- */

static void cancel_go(struct errand *errand)
{
    struct shard_call *call = (struct shard_call *)((char *)errand - offsetof(struct shard_call, cancel));
    row_of(call)->cancel(errand->there, call);
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
    fl__assert(row_of(call)->cancel && call->cancelled);
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
    write_answer(&((struct served *)call)->answer, call);
}

static void served_free_if_over(struct shard_call *call)
{
    struct served *served = (struct served *)call;
    if (call->out || call->cancelling)
        return;
    if (row_of(call)->release)
        row_of(call)->release(call);
    out_free(&served->answer);
    free(served);
}

static void served_over(struct shard_call *call)
{
    struct served *served = (struct served *)call;
    fl__assert(served->request && !call->out);
    if (!row_of(call)->of_shard)
        served_render(call);
    if (row_of(call)->cancel)
        link_watch(served->request, NULL, NULL);
    int result = call->result == 0 && served->answer.failed ? row_of(call)->no_room : call->result;
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
    size_t size = call_rows[kind].room ? call_rows[kind].room(wire) : 0, behind = request->body.size;
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
    int r = read_question(&wire, &served->call, served->room);
    if (r < 0) {
        free(served);
        link_answer(request, r, (fl_bytes){0});
        return;
    }
    if (call_rows[kind].cancel)
        link_watch(request, served_gone, served);
    call_send(&served->call);
}

bool calls_serve(struct worker *worker, struct link_request *request)
{
    for (unsigned i = 0; i < CALL_KINDS; i++)
        if (call_rows[i].link_kind == request->kind) {
            serve(worker, request, (enum call_kind)i);
            return true;
        }
    return false;
}
