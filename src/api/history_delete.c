/* SPDX-License-Identifier: MIT */
/* History: DELETE /v1/history/{namespace}, and the history of a namespace that is deleted. */

#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/assert.h"

int history_read_id(struct call *call, fl_key *ret, struct shard **ret_shard)
{
    char room[FL_ID_TEXT + 1];
    fl_bytes text;
    uint32_t shard;
    int given = call_query(call, "id", room, sizeof room, &text);
    if (given <= 0)
        return given;
    if (!is_id(call->worker->node, text, &shard, ret))
        return problem_set(&call->problem, 400, "invalid-field", "id", "id must be the ID of a timer");
    *ret_shard = &call->worker->node->shards[shard];
    return 1;
}

struct erasure {
    struct shard_call call;
    bool all;
    int result;
    void (*done)(void *arg, int result);
    void *arg;
    char ns[FL_STORE_NAME_MAX];
};

static void erased(struct shard_call *call)
{
    ((struct erasure *)call)->result = call->erasure.result;
}

static void erased_back(struct shard_call *call)
{
    struct erasure *erasure = (struct erasure *)call;
    const struct node *node = call->errand.home->node;
    if (erasure->result == 0 && erasure->all && call->shard->number + 1 < node->shard_count) {
        call->shard++;
        shard_call_submit(call);
        return;
    }
    int result = erasure->result;
    void (*done)(void *arg, int result) = erasure->done;
    void *arg = erasure->arg;
    free(erasure);
    done(arg, result);
}

void history_erase(struct worker *worker, fl_bytes ns, struct shard *shard, fl_key id,
                   void (*done)(void *arg, int result), void *arg)
{
    struct erasure *erasure = calloc(1, sizeof *erasure);
    if (!erasure) {
        done(arg, FL_NO_MEMORY);
        return;
    }
    fl__assert(ns.size > 0 && ns.size <= sizeof erasure->ns);
    memcpy(erasure->ns, ns.data, ns.size);
    erasure->all = !shard;
    erasure->done = done;
    erasure->arg = arg;
    erasure->call.kind = CALL_FORGET;
    erasure->call.errand.home = worker;
    erasure->call.shard = shard ? shard : worker->node->shards;
    erasure->call.render = erased;
    erasure->call.done = erased_back;
    erasure->call.erasure = (fl_history_erasure){.ns = {erasure->ns, ns.size}, .id = id};
    shard_call_submit(&erasure->call);
}

static void deleted(void *arg, int result)
{
    struct call *call = arg;
    if (result < 0)
        call_refuse_result(call, result);
    else
        call_answer(call, 204);
}

void history_delete(struct call *call)
{
    static const char *const only_id[] = {"id", NULL};
    struct shard *shard = NULL;
    fl_key id = {0};
    int given = call_check_query(call, only_id) < 0 ? -1 : history_read_id(call, &id, &shard);
    if (given == 0)
        problem_set(&call->problem, 400, "missing-field", "id", "id is missing; give the ID of a timer");
    if (given <= 0)
        call_refuse(call);
    else
        history_erase(call->worker, call->ns, shard, id, deleted, call);
}
