/* SPDX-License-Identifier: MIT */
/* Pull: what is leased, until it is acknowledged or its lease expires. See pull.c. */

#include <stdlib.h>
#include <string.h>

#include "node/pull.h"

/* --- The time of a lease ------------------------------------------------------------------------------------------- */

static void lease_ended(fl_loop *loop, void *arg)
{
    struct lease *lease = arg;
    struct worker *worker = lease->worker;
    int64_t now_us = node_now(worker->node);
    (void)loop;
    for (size_t i = 0; i < lease->count; i++) {
        struct item *item = worker->pull->slots[lease->items[i].slot];
        if (!item || item->serial != lease->items[i].serial || item->lease != lease)
            continue; /* it was acknowledged, or extended with a new lease */
        worker->counts.leases_expired++;
        fl_settlement expired = {.result = FL_EXPIRED, .reason = bytes_of("the lease expired")};
        item_settle(worker, item, expired, now_us);
    }
    items_settled(worker);
    free(lease);
}

int lease_begin(struct worker *worker, struct lease *lease, uint64_t lease_us)
{
    struct pull *pull = worker->pull;
    fl__assert(lease->worker == worker);
    if (!worker->node->config.test_clock)
        return fl_loop_timer(worker->loop, lease_us * 1000, lease_ended, lease, &lease->timer);
    lease->end_us = node_now(worker->node) + (int64_t)lease_us;
    lease->next = pull->leases;
    pull->leases = lease;
    return 0;
}

static void lease_unlink(struct pull *pull, const struct lease *lease)
{
    struct lease **at = &pull->leases;
    while (*at != lease) {
        fl__assert(*at); /* it is out */
        at = &(*at)->next;
    }
    *at = lease->next;
}

/* Takes an expired lease out of the list; NULL: there is no other. */
static struct lease *lease_take_over(struct pull *pull, int64_t now_us)
{
    struct lease *lease = pull->leases;
    while (lease && lease->end_us > now_us)
        lease = lease->next;
    if (lease)
        lease_unlink(pull, lease);
    return lease;
}

int64_t pull_clock_changed(struct worker *worker)
{
    struct pull *pull = worker->pull;
    int64_t now_us = node_now(worker->node), next_us = INT64_MAX;
    for (struct lease *lease; (lease = lease_take_over(pull, now_us)) != NULL;)
        lease_ended(worker->loop, lease);
    for (const struct lease *lease = pull->leases; lease; lease = lease->next)
        if (lease->end_us < next_us)
            next_us = lease->end_us;
    return next_us;
}

void lease_free(struct worker *worker, struct lease *lease)
{
    if (worker->node->config.test_clock)
        lease_unlink(worker->pull, lease);
    else
        fl_loop_cancel(worker->loop, lease->timer);
    free(lease);
}

void lease_drop(struct worker *worker, struct lease *lease)
{
    fl__assert(lease->worker == worker && lease->left > 0 && lease->left <= lease->count);
    if (--lease->left == 0)
        lease_free(worker, lease);
}

/* Gives the item a lease of its own that ends `lease_us` from now. The serial number stays. Returns false without memory:
 * then the lease ends as before. */
static bool lease_extend(struct worker *worker, struct item *item, uint64_t lease_us)
{
    struct lease *lease = malloc(sizeof *lease + sizeof *lease->items);
    fl__assert(item->serial != 0 && item->lease && item_state(item) == ITEM_LEASED);
    if (!lease)
        return false;
    *lease = (struct lease){.worker = worker, .left = 1, .count = 1};
    lease->items[0] = (struct lease_item){item->slot, item->serial};
    if (lease_begin(worker, lease, lease_us) < 0) {
        free(lease);
        return false;
    }
    lease_drop(worker, item->lease);
    item->lease = lease;
    return true;
}

/* --- Acknowledgements --------------------------------------------------------------------------------------------- */

static bool is_among(char *const *namespaces, fl_bytes ns)
{
    if (!namespaces)
        return true;
    for (; *namespaces; namespaces++)
        if (strlen(*namespaces) == ns.size && memcmp(*namespaces, ns.data, ns.size) == 0)
            return true;
    return false;
}

static const enum fl_settle settle_of[ACK_RESULTS] = {
    [ACK_DONE] = FL_DONE, [ACK_RETRY] = FL_FAILED,  [ACK_AGAIN] = FL_AGAIN,
    [ACK_DEAD] = FL_DEAD, [ACK_RELEASE] = FL_LATER,
};

static bool settle(struct worker *worker, char *const *namespaces, const struct ack *ack, int64_t now_us)
{
    struct pull *pull = worker->pull;
    struct item *item = ack->slot < pull->slot_count ? pull->slots[ack->slot] : NULL;
    if (!item || item->serial == 0 || item->serial != ack->serial || !is_among(namespaces, item->firing.timer.ns) ||
        !shard_is_ours(worker, item->shard))
        return false;
    fl__assert(item_state(item) == ITEM_LEASED && (unsigned)ack->result < ACK_RESULTS);
    if (ack->result == ACK_EXTEND)
        return lease_extend(worker, item, ack->after_us);
    lease_drop(worker, item->lease);
    item->serial = 0;
    bool given_up = ack->result == ACK_RETRY || ack->result == ACK_DEAD;
    bool later = ack->result == ACK_AGAIN || ack->after_us > 0;
    item_settle(worker, item,
                (fl_settlement){.result = settle_of[ack->result],
                                .at_us = later ? now_us + (int64_t)ack->after_us : 0,
                                .reason = bytes_of(given_up ? "the worker reported a failure" : "")},
                now_us);
    worker->counts.acknowledged++;
    return true;
}

void pull_settle(struct worker *worker, char *const *namespaces, struct ack *first)
{
    int64_t now_us = node_now(worker->node);
    for (struct ack *ack = first; ack; ack = ack->next)
        ack->known = settle(worker, namespaces, ack, now_us);
    items_settled(worker);
}
