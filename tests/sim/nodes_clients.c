/* SPDX-License-Identifier: MIT */
/* Clients of simulated nodes: they lease and acknowledge timers, and pause namespaces, at any server. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/nodes.h"

enum { TAKEN_MOST = 20 };

/* --- Leasing ------------------------------------------------------------------------------------------------------ */

struct taking {
    struct leasing leasing;
    struct host *host;
    uint32_t tags[TAKEN_MOST];
    struct ack acks[TAKEN_MOST];
    char texts[TAKEN_MOST][LEASE_TEXT + 1];
    size_t count;
};

static void took(struct out *out, const struct leased *leased, size_t count)
{
    struct taking *taking = (struct taking *)(void *)((char *)out - offsetof(struct taking, leasing.take.asker.out));
    struct host *host = taking->host;
    struct nodes *w = host->world;
    const struct entry *e = ledger_entry(w, leased->timer);
    if (!e || count != taking->count || count >= taking->leasing.max) {
        nodes_fail(w, "a client gets more leases than it asked for");
        return;
    }
    if (!host->dead && !taking->leasing.take.peer)
        ledger_begin(host, leased->shard, leased->timer, leased->serial, taking->leasing.lease_us);
    taking->tags[count] = e->tag;
    lease_format(leased, taking->texts[count]);
    ack_parse(&taking->acks[count], (fl_bytes){taking->texts[count], LEASE_TEXT});
    if (taking->acks[count].serial != leased->serial || taking->acks[count].slot != leased->slot)
        nodes_fail(w, "a lease is read as another one");
    taking->count++;
}

struct settling {
    struct acks acks;
    struct host *host;
    struct ack list[TAKEN_MOST];
    uint32_t tags[TAKEN_MOST];
    bool calm, linked;
};

static void settled(struct acks *acks)
{
    struct settling *settling = (struct settling *)acks;
    struct host *host = settling->host;
    struct nodes *w = host->world;
    for (size_t i = 0; i < acks->count; i++) {
        struct entry *e = &w->entries[settling->tags[i] - 1];
        const struct host *owner = nodes_host(w, e->host);
        bool serves = owner && !owner->leaving && owner->node.shards[e->shard].state == SHARD_SERVING &&
                      atomic_load(&owner->node.shards[e->shard].good_until_ns) > fl_loop_now_ns(w->loop);
        bool known = settling->list[i].known && !host->dead;
        nodes_say(w, "%s: ack %d of #%u is %s", host->address, (int)settling->list[i].result, e->tag,
                  known ? "known" : "unknown");
        if (!known && (owner != host || host->dead) && (w->nature.crashes || w->nature.breaks))
            ledger_unanswered(e, settling->list[i].serial);
        ledger_acknowledged(w, e, settling->list[i].serial, known,
                            serves && (owner == host || (settling->calm && settling->linked)));
    }
    w->open--;
    free(settling);
}

/* An occurrence that is done again has another ID. */
static void choose_ack(struct nodes *w, struct ack *ack, bool occurrence)
{
    static const enum ack_result results[] = {ACK_DONE,  ACK_DONE, ACK_DONE,    ACK_RETRY, ACK_RETRY,
                                              ACK_AGAIN, ACK_DEAD, ACK_RELEASE, ACK_EXTEND};
    ack->result = w->calm ? ACK_DONE : results[below(&w->luck, sizeof results / sizeof *results)];
    if (ack->result == ACK_AGAIN && occurrence)
        ack->result = ACK_RETRY;
    ack->after_us = 0;
    if (ack->result == ACK_EXTEND)
        ack->after_us = 1000 + below(&w->luck, 4 * SECOND);
    else if ((ack->result == ACK_RETRY || ack->result == ACK_AGAIN) && chance(&w->luck, 50))
        ack->after_us = 1 + below(&w->luck, 2 * SECOND);
}

static void acknowledge(fl_loop *loop, void *arg)
{
    struct taking *taking = arg;
    struct nodes *w = taking->host->world;
    struct host *host = chance(&w->luck, 50) && !taking->host->leaving ? taking->host : nodes_some_host(w);
    (void)loop;
    w->open--;
    if (!host || taking->count == 0 || (!w->calm && chance(&w->luck, 15))) { /* some workers just die */
        free(taking);
        return;
    }
    struct settling *settling = nodes_need(calloc(1, sizeof *settling));
    *settling = (struct settling){.host = host, .calm = w->calm, .linked = atomic_load(&host->node.settings_known)};
    for (size_t i = 0; i < taking->count; i++) {
        struct entry *e = &w->entries[taking->tags[i] - 1];
        struct ack *ack = &settling->list[i];
        *ack = taking->acks[i];
        settling->tags[i] = taking->tags[i];
        choose_ack(w, ack, e->plan != NULL);
        if (e->serial != ack->serial || e->acking)
            continue;
        e->acking = true;
        e->ack = ack->result;
        e->after_us = ack->after_us;
        e->acked_us = nodes_mono_us(w);
        if (ack->result == ACK_EXTEND && e->acked_us + (int64_t)ack->after_us < e->ends_us)
            e->ends_us = e->acked_us + (int64_t)ack->after_us;
    }
    settling->acks = (struct acks){.count = taking->count, .list = settling->list, .done = settled};
    free(taking);
    w->open++;
    acks_settle(&settling->acks, clients_worker(host));
}

static void leased(struct leasing *leasing)
{
    const struct taking *taking = (struct taking *)leasing;
    if (leasing->take.asker.count != taking->count)
        nodes_fail(taking->host->world, "a client is told of another number of leases than it got");
}

static void released(struct leasing *leasing)
{
    struct taking *taking = (struct taking *)leasing;
    struct nodes *w = taking->host->world;
    out_free(&leasing->take.asker.out);
    nodes_at(w, w->calm ? 1000 : below(&w->luck, chance(&w->luck, 70) ? 300000 : 5 * SECOND), acknowledge, taking,
             NULL);
}

void clients_lease(struct nodes *w, unsigned space)
{
    struct host *host = nodes_some_host(w);
    if (!host)
        return;
    struct taking *taking = nodes_need(calloc(1, sizeof *taking));
    taking->host = host;
    struct worker *worker = clients_worker(host);
    taking->leasing = (struct leasing){.worker = worker,
                                       .space = space_of(&host->node, bytes_of(space_names[space])),
                                       .max = 1 + (uint32_t)below(&w->luck, TAKEN_MOST),
                                       .lease_us = w->calm ? 5 * SECOND : 1000 + below(&w->luck, 4 * SECOND),
                                       .write = took,
                                       .done = leased,
                                       .release = released};
    w->open++;
    leasing_begin(&taking->leasing, chance(&w->luck, 50) ? 0 : below(&w->luck, 4 * SECOND));
}

/* --- Pausing ------------------------------------------------------------------------------------------------------ */

struct pausing {
    struct host *host;
    unsigned space, went_back;
    bool begin;
};

static void paused(void *arg, int result)
{
    struct pausing *pausing = arg;
    struct nodes *w = pausing->host->world;
    struct space_state *space = &w->spaces[pausing->space];
    bool good = result == 0 && !pausing->host->dead && pausing->went_back == w->went_back;
    nodes_say(w, "%s: %s %s: %s", pausing->host->address, pausing->begin ? "pause" : "resume",
              space_names[pausing->space], fl_errname(result));
    w->open--;
    space->touched_us = nodes_mono_us(w);
    space->unsure = !good;
    space->paused_us = good && pausing->begin ? nodes_ran_us(w) : 0;
    space->paused_by = pausing->host->number;
    free(pausing);
}

/* One at a time per namespace. */
void clients_pause(struct nodes *w, unsigned space, bool begin)
{
    struct host *host = nodes_some_host(w);
    if (!host)
        return;
    struct pausing *pausing = nodes_need(malloc(sizeof *pausing));
    *pausing = (struct pausing){host, space, w->went_back, begin};
    struct pause_request request = {.kind = begin ? PAUSE_BEGIN : PAUSE_END};
    w->spaces[space].unsure = true;
    w->open++;
    settings_pause(clients_worker(host), bytes_of(space_names[space]), &request, paused, pausing);
}

/* --- Settings ----------------------------------------------------------------------------------------------------- */

static const unsigned setting_bits[SETTINGS] = {SETTING_MAX_RATE, SETTING_SPREAD, SETTING_HISTORY};

struct setting_change {
    struct host *host;
    unsigned space, setting, went_back;
    uint64_t value;
};

static void changed(void *arg, int result)
{
    struct setting_change *change = arg;
    struct nodes *w = change->host->world;
    struct setting_state *state = &w->spaces[change->space].settings[change->setting];
    bool unknown = change->host->dead || change->went_back != w->went_back;
    nodes_say(w, "%s: setting %u of %s to %" PRIu64 ": %s", change->host->address, change->setting,
              space_names[change->space], change->value, fl_errname(unknown ? FL_OUTCOME_UNKNOWN : result));
    w->open--;
    state->busy = false;
    state->known_us = nodes_mono_us(w);
    state->unsure = unknown || result != 0;
    state->value = change->value;
    free(change);
}

/* Changes one setting, while others may be changed at other servers. */
static void change_setting(struct nodes *w, unsigned space, unsigned setting, uint64_t value)
{
    struct host *host = nodes_some_host(w);
    struct setting_state *state = &w->spaces[space].settings[setting];
    if (!host || state->busy)
        return;
    struct setting_change *change = nodes_need(malloc(sizeof *change));
    struct settings *settings = nodes_need(malloc(sizeof *settings));
    *change = (struct setting_change){host, space, setting, w->went_back, value};
    *settings = no_settings;
    settings->max_rate = setting == 0 ? (uint32_t)value : 0;
    settings->spread_us = setting == 1 ? value : 0;
    settings->history.only = setting == 2 ? (uint32_t)value : no_settings.history.only;
    state->busy = state->unsure = true;
    w->open++;
    settings_change(clients_worker(host), bytes_of(space_names[space]), settings, SETTING_ALL & ~setting_bits[setting],
                    changed, change);
}

void clients_change_settings(struct nodes *w, unsigned space)
{
    unsigned setting = (unsigned)below(&w->luck, SETTINGS);
    static const uint64_t most[SETTINGS] = {20, 2 * SECOND, HISTORY_ONLY_ALL};
    change_setting(w, space, setting,
                   chance(&w->luck, 30) ? 0 : below(&w->luck, most[setting]) + (setting == 0 ? 3 : 1));
}

void clients_reset_settings(struct nodes *w)
{
    for (unsigned i = 0; i < SPACES && w->nature.edits; i++)
        for (unsigned setting = 0; setting < SETTINGS; setting++)
            change_setting(w, i, setting, setting == 2 ? no_settings.history.only : 0);
}

void clients_act(struct nodes *w)
{
    struct host *host = nodes_some_host(w);
    unsigned what = (unsigned)below(&w->luck, 100), space = (unsigned)below(&w->luck, SPACES);
    if (!host)
        return;
    if (w->nature.edits && chance(&w->luck, 30))
        clients_edit(w, host);
    else if (what < 50)
        clients_create(w, host);
    else if (what < 60)
        clients_cancel(w, host);
    else if (what < 66)
        clients_schedule(w);
    else if (what < 95)
        clients_lease(w, space);
    else if (w->nature.pauses && !w->spaces[space].unsure)
        clients_pause(w, space, w->spaces[space].paused_us == 0);
}
