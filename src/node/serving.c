/* SPDX-License-Identifier: MIT */
/* What other servers ask of us. Nothing is passed on: what is not here is answered so, and whoever asks looks again. */

#include <stdlib.h>
#include <string.h>

#include "node/internal.h"

static void refuse(struct link_request *request, int result)
{
    link_answer(request, result, (fl_bytes){0});
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
    struct link_request *request;
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
    int result = served->job.moved ? LINK_MOVED : served->answer.failed ? FL_OUTCOME_UNKNOWN : 0;
    link_answer(served->request, result, out_bytes(&served->answer));
    out_free(&served->answer);
    free(served);
}

static void serve_job(struct worker *worker, struct link_request *request)
{
    struct node *node = worker->node;
    struct wire wire = wire_begin(request->body);
    uint64_t shard = wire_number(&wire);
    bool brief = wire_number(&wire) != 0;
    size_t count = wire_count(&wire);
    if (wire.bad || count == 0 || shard >= node->shard_count) {
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
                               .shard = &node->shards[shard],
                               .render = job_render,
                               .back = job_back,
                               .brief = brief,
                               .local = true};
    job_submit(&served->job);
}

struct served_page {
    struct page page;
    struct link_request *request;
    struct out answer;
};

static void page_render(struct page *page)
{
    wire_put_found(&((struct served_page *)page)->answer, &page->listing);
}

static void page_back(struct errand *errand)
{
    struct served_page *served = (struct served_page *)errand;
    int result = served->page.moved ? LINK_MOVED : served->answer.failed ? FL_NO_MEMORY : 0;
    link_answer(served->request, result, out_bytes(&served->answer));
    out_free(&served->answer);
    free(served);
}

static void serve_page(struct worker *worker, struct link_request *request)
{
    struct node *node = worker->node;
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
    if (wire.bad || shard >= node->shard_count) {
        free(served);
        refuse(request, FL_INVALID_ARGUMENT);
        return;
    }
    served->page.errand.home = worker;
    served->page.shard = &node->shards[shard];
    served->page.render = page_render;
    served->page.back = page_back;
    served->page.local = true;
    page_submit(&served->page);
}

/* --- Leases ------------------------------------------------------------------------------------------------------- */

struct served_asker {
    struct asker asker;
    struct link_request *request;
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
        out_put(&answer, asker->out.data, asker->out.size);
    }
    link_watch(served->request, NULL, NULL);
    link_answer(served->request, answer.failed || asker->out.failed ? FL_NO_MEMORY : asker->result, out_bytes(&answer));
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
static void asker_gone(struct link_request *request)
{
    struct served_asker *served = request->arg;
    link_watch(request, NULL, NULL);
    atomic_store(&served->asker.gone, true);
    served->cancelling = true;
    served->cancel = (struct errand){
        .home = served->asker.errand.home, .there = served->asker.errand.there, .go = cancel_go, .back = cancel_back};
    errand_send(&served->cancel);
}

static void serve_asker(struct worker *worker, struct link_request *request, bool watch)
{
    struct node *node = worker->node;
    struct wire wire = wire_begin(request->body);
    fl_bytes ns = wire_bytes(&wire);
    uint64_t max = wire_number(&wire), us = wire_number(&wire);
    struct space *space = wire.bad || ns.size == 0 || ns.size > FL_STORE_NAME_MAX ? NULL : space_of(node, ns);
    struct served_asker *served = space ? calloc(1, sizeof *served) : NULL;
    if (!served) {
        refuse(request, wire.bad ? FL_INVALID_ARGUMENT : FL_NO_MEMORY);
        return;
    }
    served->request = request;
    served->asker.space = space;
    served->asker.max = max < UINT32_MAX ? (uint32_t)max : UINT32_MAX;
    served->asker.watch = watch;
    served->asker.write = wire_put_leased;
    if (watch)
        served->asker.wait_us = us;
    else
        served->asker.lease_us = us;
    served->asker.errand =
        (struct errand){.home = worker, .there = pull_home(node, space), .go = pull_ask, .back = asker_back};
    link_watch(request, asker_gone, served); /* what is leased and not heard of is leased again */
    served->out = true;
    errand_send(&served->asker.errand);
}

/* --- Acknowledgements --------------------------------------------------------------------------------------------- */

struct served_acks {
    struct acks acks;
    struct link_request *request;
    char **namespaces; /* where whoever has sent them may write */
};

static void acks_end(struct served_acks *served)
{
    for (char **name = served->namespaces; name && *name; name++)
        free(*name);
    free(served->namespaces);
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
    link_answer(served->request, bits.failed ? FL_OUTCOME_UNKNOWN : 0, out_bytes(&bits));
    out_free(&bits);
    acks_end(served);
}

static bool read_namespaces(struct wire *wire, struct served_acks *served)
{
    size_t count = wire_count(wire);
    if (count == 0)
        return true;
    served->acks.namespaces = served->namespaces = calloc(count, sizeof(char *));
    for (size_t i = 0; served->namespaces && i + 1 < count; i++) {
        fl_bytes name = wire_bytes(wire);
        served->namespaces[i] = strndup(name.size ? name.data : "", name.size);
        if (!served->namespaces[i])
            return false;
    }
    return served->namespaces != NULL;
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

static void serve_acks(struct worker *worker, struct link_request *request)
{
    struct wire wire = wire_begin(request->body);
    struct served_acks *served = calloc(1, sizeof *served);
    if (!served) {
        refuse(request, FL_NO_MEMORY);
        return;
    }
    served->request = request;
    served->acks.done = acks_done;
    if (!read_namespaces(&wire, served) || !read_acks(&wire, served, (uint32_t)worker->node->config.incarnation)) {
        acks_end(served);
        refuse(request, FL_INVALID_ARGUMENT);
        return;
    }
    acks_settle_here(&served->acks, worker);
}

/* --- The rest ----------------------------------------------------------------------------------------------------- */

static void serve_spaces(struct worker *worker, struct link_request *request)
{
    struct out answer = {0};
    spaces_put_counts(worker->node, request->body, &answer);
    link_answer(request, answer.failed ? FL_NO_MEMORY : 0, out_bytes(&answer));
    out_free(&answer);
}

static void look(fl_loop *loop, void *arg)
{
    struct node *node = arg;
    (void)loop;
    if (node->cluster && !atomic_load(&node->closing))
        cluster_look(node->cluster);
}

void node_serve(struct worker *worker, struct link_request *request)
{
    struct node *node = worker->node;
    switch (request->kind) {
    case LINK_JOB:
        serve_job(worker, request);
        break;
    case LINK_PAGE:
        serve_page(worker, request);
        break;
    case LINK_TAKE:
    case LINK_WATCH:
        serve_asker(worker, request, request->kind == LINK_WATCH);
        break;
    case LINK_ACK:
        serve_acks(worker, request);
        break;
    case LINK_EVENTS:
        node->ports->listen(worker, request);
        break;
    case LINK_SPACES:
        serve_spaces(worker, request);
        break;
    case LINK_STATS:
        stats_serve(worker, request);
        break;
    case LINK_SETTINGS:
        settings_reload(node, space_of(node, request->body));
        refuse(request, 0);
        break;
    case LINK_LOOK:
        fl_loop_post(node->workers[0].loop, look, node);
        refuse(request, 0);
        break;
    default: /* of a later version */
        refuse(request, FL_INVALID_ARGUMENT);
    }
}
