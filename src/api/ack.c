/* SPDX-License-Identifier: MIT */
/* POST /v1/ack: each lease says whose it is. Those of this server are settled first, then the others are asked, all at once.
 * What a server does not answer for is as unknown as a lease that has run out: its timer comes again. */

#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "text/json.h"
#include "node/pull.h"
#include "api/timer.h"
#include "text/when.h"
#include "node/wire.h"

struct acking {
    struct acks acks;
    struct call *call;
    size_t capacity;
    size_t left; /* servers that have not answered */
};

/* Those of another server. */
struct forwarded {
    struct peer_call call;
    struct acking *acking;
    uint32_t server;
};

/* --- What is said ------------------------------------------------------------------------------------------------- */

static int bad_field(struct call *call, const char *field, const char *what)
{
    return problem_set(&call->problem, 400, "invalid-field", field, "%s must be %s", field, what);
}

/* A lease that was never given out is as unknown as one that has run out. */
static void read_lease(struct ack *ack, fl_bytes text)
{
    uint64_t server, worker, slot, serial;
    const char *at = text.data;
    ack->lease = text;
    ack->worker = UINT16_MAX;
    if (text.size == LEASE_TEXT && fl__hex_number(at, 8, &server) && fl__hex_number(at + 8, 4, &worker) &&
        fl__hex_number(at + 12, 8, &slot) && fl__hex_number(at + 20, 16, &serial)) {
        ack->server = (uint32_t)server;
        ack->worker = (uint16_t)worker;
        ack->slot = (uint32_t)slot;
        ack->serial = serial;
    }
}

static int read_after(struct call *call, struct json value, uint64_t *ret)
{
    char room[64];
    if (value.kind != JSON_STRING || value.text.size > sizeof room || duration_parse(json_string(value, room), ret) < 0)
        return bad_field(call, "after", "a duration like \"10s\"");
    return 0;
}

static bool read_result(struct json value, enum fl_settle *ret)
{
    static const struct {
        const char *name;
        enum fl_settle result;
    } results[] = {{"done", FL_DONE}, {"retry", FL_FAILED}, {"again", FL_AGAIN}, {"dead", FL_DEAD}};
    for (int i = 0; i < 4; i++)
        if (json_is(value, results[i].name)) {
            *ret = results[i].result;
            return true;
        }
    return false;
}

static int read_ack(struct call *call, struct json object, struct ack *ack)
{
    enum { LEASE, RESULT, AFTER };
    static const char *const names[] = {"lease", "result", "after", NULL};
    struct json key, value;
    bool lease = false, known = false;
    unsigned given = 0;
    *ack = (struct ack){0};
    if (object.kind != JSON_OBJECT)
        return bad_field(call, "acks", "an array of objects");
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);) {
        int member = problem_member(&call->problem, "acks", names, key, &given);
        if (member < 0)
            return -1;
        if (member == LEASE) {
            lease = value.kind == JSON_STRING;
            if (!lease)
                break;
            read_lease(ack, (fl_bytes){(const char *)value.text.data + 1, value.text.size - 2});
        } else if (member == RESULT) {
            known = read_result(value, &ack->result);
        } else if (read_after(call, value, &ack->after_us) < 0) {
            return -1;
        }
    }
    if (!lease)
        return bad_field(call, "lease", "given as a string");
    if (!known)
        return bad_field(call, "result", "\"done\", \"retry\", \"again\" or \"dead\"");
    if (ack->after_us > 0 && (ack->result == FL_DONE || ack->result == FL_DEAD))
        return bad_field(call, "after", "given with retry and again only");
    return 0;
}

static int add_ack(struct acking *acking, struct json object)
{
    struct acks *acks = &acking->acks;
    if (acks->count == acking->capacity) {
        size_t capacity = acking->capacity * 2 + 64;
        struct ack *list = realloc(acks->list, capacity * sizeof *list);
        if (!list)
            return problem_of_result(&acking->call->problem, FL_NO_MEMORY);
        acks->list = list;
        acking->capacity = capacity;
    }
    return read_ack(acking->call, object, &acks->list[acks->count++]);
}

static int read_acks(struct acking *acking)
{
    struct call *call = acking->call;
    struct json body, key, value, element;
    size_t at;
    const char *why;
    if (json_parse(call->request->body, &body, &at, &why) < 0)
        return problem_set(&call->problem, 400, "invalid-json", NULL, "the body is not JSON: %s (at byte %zu)", why,
                           at);
    bool given = false;
    if (body.kind != JSON_OBJECT)
        return problem_set(&call->problem, 400, "invalid-body", NULL, "the body must be a JSON object");
    for (struct json_walk walk = json_walk(body); json_member(&walk, &key, &value); given = true) {
        if (!json_is(key, "acks"))
            return problem_unknown_member(&call->problem, NULL, key, (const char *const[]){"acks", NULL});
        if (value.kind != JSON_ARRAY || given)
            return bad_field(call, "acks", "an array, given once");
        for (struct json_walk inner = json_walk(value); json_element(&inner, &element);)
            if (add_ack(acking, element) < 0)
                return -1;
    }
    return given ? 0
                 : problem_set(&call->problem, 400, "missing-field", "acks",
                               "acks is missing; give an array of acknowledgements");
}

/* --- Here --------------------------------------------------------------------------------------------------------- */

static void visit(struct tour *tour, struct worker *worker)
{
    struct acks *acks = (struct acks *)tour;
    for (size_t i = 0; i < acks->count; i++) {
        struct ack *ack = &acks->list[i];
        if (ack->worker == worker->index && ack->server == (uint32_t)worker->server->nonce)
            ack->known = pull_settle(worker, acks->token, ack);
    }
}

static void visited(struct tour *tour)
{
    struct acks *acks = (struct acks *)tour;
    acks->done(acks);
}

void acks_settle(struct acks *acks, struct worker *home)
{
    acks->tour.fn = visit;
    acks->tour.back = visited;
    tour_begin(&acks->tour, home);
}

/* --- There -------------------------------------------------------------------------------------------------------- */

static void answer(struct acking *acking)
{
    struct call *call = acking->call;
    const struct acks *acks = &acking->acks;
    size_t settled = 0, unknown = 0;
    for (size_t i = 0; i < acks->count; i++)
        settled += acks->list[i].known;
    out_text(&call->out, "{\"settled\":");
    out_number(&call->out, (int64_t)settled);
    out_text(&call->out, ",\"unknown\":[");
    for (size_t i = 0; i < acks->count; i++)
        if (!acks->list[i].known) {
            if (unknown++ > 0)
                out_put(&call->out, ",", 1);
            out_put(&call->out, "\"", 1);
            out_put(&call->out, acks->list[i].lease.data,
                    acks->list[i].lease.size); /* as it came: escaped, if it was */
            out_put(&call->out, "\"", 1);
        }
    out_text(&call->out, "]}");
    free(acking->acks.list);
    free(acking);
    call_answer(call, 200);
}

static void answered_if_over(struct acking *acking)
{
    if (--acking->left == 0)
        answer(acking);
}

static bool is_of(const struct ack *ack, uint32_t server)
{
    return ack->worker != UINT16_MAX && ack->server == server;
}

/* A bit for each that was sent: whether it was known. */
static void forwarded_back(struct peer_call *call, int result, fl_bytes bits)
{
    struct forwarded *forwarded = (struct forwarded *)call;
    struct acking *acking = forwarded->acking;
    const unsigned char *bit = bits.data;
    size_t at = 0;
    for (size_t i = 0; i < acking->acks.count && result == 0; i++) {
        struct ack *ack = &acking->acks.list[i];
        if (!is_of(ack, forwarded->server))
            continue;
        ack->known = at / 8 < bits.size && bit[at / 8] >> at % 8 & 1;
        at++;
    }
    free(forwarded);
    answered_if_over(acking);
}

static void put_token(struct out *body, const struct token *token)
{
    size_t count = 0;
    for (char **name = token ? token->namespaces : NULL; name && *name; name++)
        count++;
    wire_put_number(body, token && token->namespaces ? count + 1 : 0); /* 0: all of them */
    for (size_t i = 0; i < count; i++)
        wire_put_bytes(body, bytes_of(token->namespaces[i]));
}

static size_t count_of(const struct acking *acking, uint32_t server)
{
    size_t count = 0;
    for (size_t i = 0; i < acking->acks.count; i++)
        count += is_of(&acking->acks.list[i], server);
    return count;
}

static void put_acks(struct out *body, const struct acking *acking, uint32_t server)
{
    wire_put_number(body, count_of(acking, server));
    for (size_t i = 0; i < acking->acks.count; i++) {
        const struct ack *ack = &acking->acks.list[i];
        if (!is_of(ack, server))
            continue;
        wire_put_number(body, ack->worker);
        wire_put_number(body, ack->slot);
        wire_put_number(body, ack->serial);
        wire_put_number(body, ack->result);
        wire_put_number(body, ack->after_us);
    }
}

static void forward(struct acking *acking, const struct peer *peer)
{
    peer_link *link = link_to(acking->call->worker, peer);
    struct forwarded *forwarded = link ? calloc(1, sizeof *forwarded) : NULL;
    struct out body = {0};
    if (!forwarded)
        return;
    *forwarded = (struct forwarded){
        .call.done = forwarded_back, .acking = acking, .server = (uint32_t)atomic_load(&peer->incarnation)};
    put_token(&body, acking->call->token);
    put_acks(&body, acking, forwarded->server);
    if (body.failed) {
        free(forwarded);
    } else {
        acking->left++;
        peer_call(link, &forwarded->call, PEER_ACK, out_bytes(&body));
    }
    out_free(&body);
}

static void settled_here(struct acks *acks)
{
    struct acking *acking = (struct acking *)acks;
    acking->left = 1; /* for ourselves */
    for (const struct peer *peer = atomic_load(&acking->call->worker->server->peers); peer;
         peer = atomic_load(&peer->next))
        if (count_of(acking, (uint32_t)atomic_load(&peer->incarnation)) > 0)
            forward(acking, peer);
    answered_if_over(acking);
}

void ack_post(struct call *call)
{
    struct acking *acking = calloc(1, sizeof *acking);
    if (!acking) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    acking->call = call;
    if (read_acks(acking) < 0) {
        free(acking->acks.list);
        free(acking);
        call_refuse(call);
        return;
    }
    acking->acks.token = call->token;
    acking->acks.done = settled_here;
    acks_settle(&acking->acks, call->worker);
}
