/* SPDX-License-Identifier: MIT */
/* What other servers ask of us. Nothing is passed on: what is not here is answered so, and whoever asks looks again. */

#include <stdlib.h>
#include <string.h>

#include "node/pull.h"
#include "node/wire.h"

static void refuse(struct peer_request *request, int result)
{
    peer_answer(request, result, (fl_bytes){0});
}

/* What is read from a request must outlive it: a copy of its body lies behind the rest. */
static void *copy_behind(void *made, size_t size, fl_bytes *body)
{
    if (made && body->size > 0)
        memcpy((char *)made + size, body->data, body->size);
    if (made)
        body->data = (char *)made + size;
    return made;
}

/* --- Operations --------------------------------------------------------------------------------------------------- */

struct served_job {
    struct job job;
    struct peer_request *request;
    struct out answer;
    fl_op ops[];
};

static void job_render(struct job *job)
{
    struct served_job *served = (struct served_job *)job;
    for (size_t i = 0; i < job->batch.count; i++)
        wire_put_answer(&served->answer, &served->ops[i], job->brief);
}

static void job_back(struct errand *errand)
{
    struct served_job *served = (struct served_job *)errand;
    int result = served->job.moved ? PEER_MOVED : served->answer.failed ? FL_OUTCOME_UNKNOWN : 0;
    peer_answer(served->request, result, out_bytes(&served->answer));
    out_free(&served->answer);
    free(served);
}

static void serve_job(struct worker *worker, struct peer_request *request)
{
    struct server *server = worker->server;
    struct wire wire = wire_begin(request->body);
    uint64_t shard = wire_number(&wire);
    bool brief = wire_number(&wire) != 0;
    size_t count = wire_count(&wire);
    if (wire.bad || count == 0 || shard >= server->shard_count) {
        refuse(request, FL_INVALID_ARGUMENT);
        return;
    }
    fl_bytes body = {wire.at, (size_t)(wire.end - wire.at)};
    size_t size = sizeof(struct served_job) + count * sizeof(fl_op);
    struct served_job *served = copy_behind(malloc(size + body.size), size, &body);
    if (!served) {
        refuse(request, FL_NO_MEMORY);
        return;
    }
    wire = wire_begin(body);
    for (size_t i = 0; i < count; i++)
        wire_op(&wire, &served->ops[i]);
    if (wire.bad) {
        free(served);
        refuse(request, FL_INVALID_ARGUMENT);
        return;
    }
    served->request = request;
    served->answer = (struct out){0};
    served->job = (struct job){.errand.home = worker,
                               .batch = {.ops = served->ops, .count = count},
                               .shard = &server->shards[shard],
                               .render = job_render,
                               .back = job_back,
                               .brief = brief,
                               .local = true};
    job_submit(&served->job);
}

struct served_page {
    struct page page;
    struct peer_request *request;
    struct out answer;
};

static void page_render(struct page *page)
{
    wire_put_found(&((struct served_page *)page)->answer, &page->listing);
}

static void page_back(struct errand *errand)
{
    struct served_page *served = (struct served_page *)errand;
    int result = served->page.moved ? PEER_MOVED : served->answer.failed ? FL_NO_MEMORY : 0;
    peer_answer(served->request, result, out_bytes(&served->answer));
    out_free(&served->answer);
    free(served);
}

static void serve_page(struct worker *worker, struct peer_request *request)
{
    struct server *server = worker->server;
    fl_bytes body = request->body;
    size_t size = sizeof(struct served_page);
    struct served_page *served = copy_behind(malloc(size + body.size), size, &body);
    if (!served) {
        refuse(request, FL_NO_MEMORY);
        return;
    }
    *served = (struct served_page){.request = request};
    struct wire wire = wire_begin(body);
    uint64_t shard = wire_number(&wire);
    wire_listing(&wire, &served->page.listing);
    if (wire.bad || shard >= server->shard_count) {
        free(served);
        refuse(request, FL_INVALID_ARGUMENT);
        return;
    }
    served->page.errand.home = worker;
    served->page.shard = &server->shards[shard];
    served->page.render = page_render;
    served->page.back = page_back;
    served->page.local = true;
    page_submit(&served->page);
}

/* --- Leases ------------------------------------------------------------------------------------------------------- */

struct served_asker {
    struct asker asker;
    struct peer_request *request;
    struct errand cancel;
    bool out, cancelling, answered;
};

static void asker_free_if_over(struct served_asker *served)
{
    if (served->out || served->cancelling)
        return;
    out_free(&served->asker.out);
    free(served);
}

static void asker_back(struct errand *errand)
{
    struct served_asker *served = (struct served_asker *)errand;
    const struct asker *asker = &served->asker;
    struct out answer = {0};
    served->out = false;
    if (asker->watch) {
        wire_put_number(&answer, asker->found);
    } else {
        wire_put_number(&answer, asker->count);
        wire_put_bytes(&answer, out_bytes(&asker->out));
    }
    served->request->gone = NULL;
    peer_answer(served->request, answer.failed || asker->out.failed ? FL_NO_MEMORY : asker->result, out_bytes(&answer));
    out_free(&answer);
    asker_free_if_over(served);
}

static void cancel_go(struct errand *errand)
{
    struct served_asker *served = (struct served_asker *)((char *)errand - offsetof(struct served_asker, cancel));
    pull_unask(errand->there, &served->asker);
    errand_return(errand);
}

static void cancel_back(struct errand *errand)
{
    struct served_asker *served = (struct served_asker *)((char *)errand - offsetof(struct served_asker, cancel));
    served->cancelling = false;
    asker_free_if_over(served);
}

/* Nobody waits any more. */
static void asker_gone(struct peer_request *request)
{
    struct served_asker *served = request->arg;
    request->gone = NULL;
    atomic_store(&served->asker.gone, true);
    served->cancelling = true;
    served->cancel = (struct errand){
        .home = served->asker.errand.home, .there = served->asker.errand.there, .go = cancel_go, .back = cancel_back};
    errand_send(&served->cancel);
}

static void serve_asker(struct worker *worker, struct peer_request *request, bool watch)
{
    struct server *server = worker->server;
    struct wire wire = wire_begin(request->body);
    fl_bytes ns = wire_bytes(&wire);
    uint64_t max = wire_number(&wire), us = wire_number(&wire);
    struct space *space = wire.bad || ns.size == 0 || ns.size > FL_STORE_NAME_MAX ? NULL : space_of(server, ns);
    struct served_asker *served = space ? calloc(1, sizeof *served) : NULL;
    if (!served) {
        refuse(request, wire.bad ? FL_INVALID_ARGUMENT : FL_NO_MEMORY);
        return;
    }
    served->request = request;
    served->asker.space = space;
    served->asker.max = max < UINT32_MAX ? (uint32_t)max : UINT32_MAX;
    served->asker.watch = watch;
    if (watch)
        served->asker.wait_us = us;
    else
        served->asker.lease_us = us;
    served->asker.errand =
        (struct errand){.home = worker, .there = pull_home(server, space), .go = pull_ask, .back = asker_back};
    request->gone = asker_gone;
    request->harmless = true; /* what is leased and not heard of is leased again */
    request->arg = served;
    served->out = true;
    errand_send(&served->asker.errand);
}

/* --- Acknowledgements --------------------------------------------------------------------------------------------- */

struct served_acks {
    struct acks acks;
    struct peer_request *request;
    struct token token;
};

static void acks_end(struct served_acks *served)
{
    for (char **name = served->token.namespaces; name && *name; name++)
        free(*name);
    free(served->token.namespaces);
    free(served->acks.list);
    free(served);
}

static void acks_done(struct acks *acks)
{
    struct served_acks *served = (struct served_acks *)acks;
    struct out bits = {0};
    if (out_reserve(&bits, acks->count / 8 + 1)) {
        bits.size = acks->count / 8 + 1;
        memset(bits.data, 0, bits.size);
        for (size_t i = 0; i < acks->count; i++)
            if (acks->list[i].known)
                bits.data[i / 8] = (char)((unsigned char)bits.data[i / 8] | 1u << i % 8);
    }
    peer_answer(served->request, bits.failed ? FL_OUTCOME_UNKNOWN : 0, out_bytes(&bits));
    out_free(&bits);
    acks_end(served);
}

/* Where whoever has sent them may write. */
static bool read_namespaces(struct wire *wire, struct served_acks *served)
{
    size_t count = wire_count(wire);
    served->token.rights = RIGHT_WRITE;
    if (count == 0)
        return true;
    served->token.namespaces = calloc(count, sizeof(char *));
    served->acks.token = &served->token;
    for (size_t i = 0; served->token.namespaces && i + 1 < count; i++) {
        fl_bytes name = wire_bytes(wire);
        served->token.namespaces[i] = strndup(name.size ? name.data : "", name.size);
        if (!served->token.namespaces[i])
            return false;
    }
    return served->token.namespaces != NULL;
}

static bool read_acks(struct wire *wire, struct served_acks *served, uint32_t server)
{
    size_t count = wire_count(wire);
    served->acks.count = count;
    served->acks.list = calloc(count + 1, sizeof *served->acks.list);
    for (size_t i = 0; served->acks.list && i < count; i++) {
        struct ack *ack = &served->acks.list[i];
        ack->server = server;
        ack->worker = (uint16_t)wire_number(wire);
        ack->slot = (uint32_t)wire_number(wire);
        ack->serial = wire_number(wire);
        uint64_t result = wire_number(wire);
        wire->bad |= result > FL_DEAD;
        ack->result = (enum fl_settle)result;
        ack->after_us = wire_number(wire);
    }
    return served->acks.list && !wire->bad;
}

static void serve_acks(struct worker *worker, struct peer_request *request)
{
    struct wire wire = wire_begin(request->body);
    struct served_acks *served = calloc(1, sizeof *served);
    if (!served) {
        refuse(request, FL_NO_MEMORY);
        return;
    }
    served->request = request;
    served->acks.done = acks_done;
    if (!read_namespaces(&wire, served) || !read_acks(&wire, served, (uint32_t)worker->server->nonce)) {
        acks_end(served);
        refuse(request, FL_INVALID_ARGUMENT);
        return;
    }
    acks_settle(&served->acks, worker);
}

/* --- The rest ----------------------------------------------------------------------------------------------------- */

static void serve_spaces(struct worker *worker, struct peer_request *request)
{
    struct out answer = {0};
    spaces_put_counts(worker->server, request->body, &answer);
    peer_answer(request, answer.failed ? FL_NO_MEMORY : 0, out_bytes(&answer));
    out_free(&answer);
}

static void look(fl_loop *loop, void *arg)
{
    struct server *server = arg;
    (void)loop;
    if (server->cluster && !atomic_load(&server->closing))
        cluster_look(server->cluster);
}

void serve_peer(void *arg, struct peer_request *request)
{
    struct worker *worker = arg;
    struct server *server = worker->server;
    switch (request->kind) {
    case PEER_JOB:
        serve_job(worker, request);
        break;
    case PEER_PAGE:
        serve_page(worker, request);
        break;
    case PEER_TAKE:
    case PEER_WATCH:
        serve_asker(worker, request, request->kind == PEER_WATCH);
        break;
    case PEER_ACK:
        serve_acks(worker, request);
        break;
    case PEER_EVENTS:
        events_listen(worker, request);
        break;
    case PEER_SPACES:
        serve_spaces(worker, request);
        break;
    case PEER_SETTINGS:
        spaces_reload(worker, request->body);
        refuse(request, 0);
        break;
    case PEER_LOOK:
        fl_loop_post(server->workers[0].loop, look, server);
        refuse(request, 0);
        break;
    default: /* of a later version */
        refuse(request, FL_INVALID_ARGUMENT);
    }
}

void peer_post(struct call *call)
{
    struct worker *worker = call->worker;
    http_request *request = call->request;
    if (!worker->sessions) {
        problem_set(&call->problem, 503, "unavailable", NULL,
                    "this server was started without --advertise, or has not met the others yet");
        call_refuse(call);
        return;
    }
    call_drop(call);
    peer_accept(worker->sessions, request);
}
