/* SPDX-License-Identifier: MIT */
/* GET /v1/cluster: the servers of the store, and which shards each of them has. */

#include <inttypes.h>
#include <stdlib.h>

#include <foliot/version.h>

#include "api/internal.h"

struct showing {
    struct errand errand;
    struct call *call;
};

static void show_member(struct out *out, struct worker *worker, const struct cluster_view *view, size_t i)
{
    const struct cluster_member *member = &view->members[i];
    struct peer *peer = i == view->self ? NULL : peer_of_address(worker->node, member->address);
    const struct node_ports *ports = worker->node->ports;
    struct node_link *link = peer ? link_to(worker, peer) : NULL;
    out_text(out, i > 0 ? ",{\"address\":" : "{\"address\":");
    out_string(out, bytes_of(member->address));
    out_key(out, "version");
    out_string(out, bytes_of(member->about));
    out_format(out, ",\"shards\":%" PRIu32 ",\"self\":%s,\"linked\":%s", member->shards,
               i == view->self ? "true" : "false",
               i == view->self || (link && ports->link_up(link)) ? "true" : "false");
    if (member->waits)
        out_text(out, ",\"waits\":true");
    if (link && !ports->link_up(link)) {
        out_key(out, "trouble");
        out_string(out, bytes_of(ports->link_trouble(link)));
    }
    out_put(out, "}", 1);
}

static void show_cluster(struct out *out, struct worker *worker, const struct cluster_view *view)
{
    out_text(out, "{\"servers\":[");
    for (size_t i = 0; i < view->member_count; i++)
        show_member(out, worker, view, i);
    out_text(out, "],\"shards\":[");
    for (uint32_t i = 0; i < view->shard_count; i++) {
        out_format(out, "%s{\"shard\":%" PRIu32 ",\"owner\":", i > 0 ? "," : "", i);
        if (view->owners && view->owners[i] >= 0)
            out_string(out, bytes_of(view->members[view->owners[i]].address));
        else
            out_text(out, "null");
        out_put(out, "}", 1);
    }
    out_text(out, "]}");
}

static void show_here(struct errand *errand)
{
    struct showing *showing = (struct showing *)errand;
    show_cluster(&showing->call->out, errand->there, cluster_view(errand->there->node->cluster));
    errand_return(errand);
}

/* A server that is alone is all there is. */
static void show_alone(struct call *call)
{
    struct node *node = call->worker->node;
    struct cluster_member self = {(char *)(uintptr_t)node->config.claimant, FL_VERSION, 0, node->shard_count, false};
    int32_t *owners = calloc(node->shard_count, sizeof *owners);
    show_cluster(&call->out, call->worker, &(struct cluster_view){&self, 1, owners, node->shard_count, 0, ""});
    free(owners);
    call_answer(call, 200);
}

static void shown(struct errand *errand)
{
    struct call *call = ((struct showing *)errand)->call;
    free(errand);
    call_answer(call, 200);
}

void cluster_get(struct call *call)
{
    struct node *node = call->worker->node;
    if (!node->cluster) {
        show_alone(call);
        return;
    }
    struct showing *showing = calloc(1, sizeof *showing);
    if (!showing) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    *showing = (struct showing){
        .errand = {.home = call->worker, .there = &node->workers[0], .go = show_here, .back = shown}, .call = call};
    errand_send(&showing->errand);
}
