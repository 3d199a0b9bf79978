/* SPDX-License-Identifier: MIT */
/* The other servers of the store: which there are, links to them, and what is asked of them.
 *
 * The first worker meets them (cluster.c) and tells the workers of shards what to take and what to leave. Every worker has a
 * link of its own to every other server, so that nobody waits for another worker on the way. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <foliot/version.h>

#include "node/internal.h"
#include "text/log.h"

struct link {
    struct worker *worker;
    struct peer *peer;
    uint64_t incarnation; /* to which process of that address */
    struct node_link *link;
    struct link_call events;
    bool listening;
};

struct node_link *link_to(struct worker *worker, const struct peer *peer)
{
    struct link *link = peer->index < worker->link_count ? worker->links[peer->index] : NULL;
    return link ? link->link : NULL;
}

/* --- News --------------------------------------------------------------------------------------------------------- */

/* A call whose answer says nothing. */
struct notice {
    struct link_call call;
};

static void noticed(struct link_call *call, int result, fl_bytes answer)
{
    (void)result, (void)answer;
    free(call);
}

static void tell_all(struct worker *worker, enum link_kind kind, fl_bytes body)
{
    for (unsigned i = 0; i < worker->link_count; i++) {
        struct notice *notice = worker->links[i] ? calloc(1, sizeof *notice) : NULL;
        if (!notice)
            continue;
        notice->call = (struct link_call){.done = noticed, .urgent = true};
        worker->node->ports->link_call(worker->links[i]->link, &notice->call, (uint8_t)kind, body);
    }
}

void servers_tell_settings(struct worker *worker, fl_bytes ns)
{
    tell_all(worker, LINK_SETTINGS, ns);
}

static void events_over(struct link_call *call, int result, fl_bytes answer)
{
    struct link *link = (struct link *)((char *)call - offsetof(struct link, events));
    (void)result, (void)answer;
    link->listening = false;
}

static void event_came(struct link_call *call, fl_bytes piece)
{
    struct link *link = (struct link *)((char *)call - offsetof(struct link, events));
    link->worker->node->ports->relay(link->worker, piece);
}

static void listen_to(struct link *link, bool want)
{
    const struct node_ports *ports = link->worker->node->ports;
    if (want == link->listening || (want && !ports->link_up(link->link)))
        return;
    link->listening = want;
    if (want) {
        link->events = (struct link_call){.done = events_over, .piece = event_came};
        ports->link_call(link->link, &link->events, LINK_EVENTS, (fl_bytes){0});
    } else {
        ports->link_cancel(link->link, &link->events);
    }
}

void servers_want_events(struct worker *worker, bool want)
{
    worker->wants_events = want;
    for (unsigned i = 0; i < worker->link_count; i++)
        if (worker->links[i])
            listen_to(worker->links[i], want);
}

/* --- Gathering ---------------------------------------------------------------------------------------------------- */

/* A question to all other servers. */
struct question {
    struct worker *worker;
    void (*done)(void *arg, const struct out *answers, size_t count);
    void *arg;
    size_t left, count;
    struct out *answers;
    struct asked {
        struct link_call call;
        struct question *question;
    } calls[];
};

static void question_end(struct question *question)
{
    question->done(question->arg, question->answers, question->count);
    for (size_t i = 0; i < question->count; i++)
        out_free(&question->answers[i]);
    free(question->answers);
    free(question);
}

static void question_answered(struct link_call *call, int result, fl_bytes answer)
{
    struct asked *one = (struct asked *)call;
    struct question *question = one->question;
    if (result == 0)
        out_put(&question->answers[one - question->calls], answer.data, answer.size);
    if (--question->left == 0)
        question_end(question);
}

void servers_ask(struct worker *worker, enum link_kind kind, fl_bytes body,
                 void (*done)(void *arg, const struct out *answers, size_t count), void *arg)
{
    unsigned count = worker->link_count;
    struct question *question = count ? calloc(1, sizeof *question + count * sizeof *question->calls) : NULL;
    struct out *answers = question ? calloc(count, sizeof *answers) : NULL;
    if (!answers) {
        free(question);
        done(arg, NULL, 0);
        return;
    }
    *question =
        (struct question){.worker = worker, .done = done, .arg = arg, .left = 1, .count = count, .answers = answers};
    for (unsigned i = 0; i < count; i++) {
        question->calls[i] = (struct asked){.call.done = question_answered, .question = question};
        if (!worker->links[i] || atomic_load(&worker->links[i]->peer->incarnation) == 0)
            continue;
        question->left++;
        worker->node->ports->link_call(worker->links[i]->link, &question->calls[i].call, (uint8_t)kind, body);
    }
    if (--question->left == 0)
        question_end(question);
}

struct gather {
    struct node *node;
    void (*done)(void *arg);
    void *arg;
    size_t size;
    char ns[FL_STORE_NAME_MAX];
};

static void gathered(void *arg, const struct out *answers, size_t count)
{
    struct gather *gather = arg;
    void (*done)(void *) = gather->done;
    void *their = gather->arg;
    spaces_take_counts(gather->node, (fl_bytes){gather->ns, gather->size}, answers, count);
    free(gather);
    done(their);
}

void servers_gather(struct worker *worker, fl_bytes ns, void (*done)(void *arg), void *arg)
{
    struct gather *gather = worker->link_count ? calloc(1, sizeof *gather) : NULL;
    if (!gather) {
        done(arg);
        return;
    }
    *gather = (struct gather){.node = worker->node, .done = done, .arg = arg, .size = ns.size};
    memcpy(gather->ns, ns.data ? ns.data : "", ns.size);
    servers_ask(worker, LINK_SPACES, (fl_bytes){gather->ns, gather->size}, gathered, gather);
}

#define COUNT_NS 1000000000ull
#define AGAIN_NS 1000000000ull

static void counted(void *arg)
{
    (void)arg;
}

/* Where there is a limit, each server must know about how much the others have. */
static void count_all(fl_loop *loop, void *arg)
{
    struct node *node = arg;
    (void)loop;
    servers_gather(&node->workers[0], (fl_bytes){0}, counted, NULL);
}

/* --- Links -------------------------------------------------------------------------------------------------------- */

static void links_again(fl_loop *loop, void *arg);
static void ready_if_linked(struct worker *worker);

/* While it was away, something may have been said that it, or we, did not hear. */
static void link_changed(void *arg, bool up)
{
    struct link *link = arg;
    if (link->worker->index == 0)
        log_info(up ? "linked with another server" : "the link with another server is lost", "server",
                 link->peer->address, NULL);
    if (up && link->worker->index == 0 && atomic_load(&link->worker->node->settings_known))
        settings_load(link->worker, NULL);
    if (!up) {
        if (atomic_load(&link->peer->incarnation) == 0)
            fl_loop_post(link->worker->loop, links_again, link->worker);
        return;
    }
    listen_to(link, link->worker->wants_events);
    leases_ask_again(link->worker);
    if (link->worker->index == 0)
        ready_if_linked(link->worker);
}

static void link_free(struct link **slot)
{
    struct link *link = *slot;
    *slot = NULL;
    if (!link)
        return;
    link->worker->node->ports->link_free(link->link);
    free(link);
}

static void link_make(struct worker *worker, struct peer *peer, uint64_t incarnation)
{
    struct node *node = worker->node;
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        return; /* and at the next change */
    *link = (struct link){.worker = worker, .peer = peer, .incarnation = incarnation};
    struct link_config config = {.address = peer->address,
                                 .self = node->config.advertise,
                                 .secret = bytes_of(worker->secret),
                                 .changed = link_changed,
                                 .arg = link};
    int r = node->ports->link_new(worker, &config, &link->link);
    if (r < 0) {
        log_error("cannot link with another server", "server", peer->address, "why", fl_strerror(r), NULL);
        free(link);
        return;
    }
    worker->links[peer->index] = link;
}

static bool make_room(struct worker *worker, unsigned count)
{
    if (worker->link_count >= count)
        return true;
    struct link **links = realloc(worker->links, count * sizeof(struct link *));
    if (!links)
        return false;
    memset(links + worker->link_count, 0, (count - worker->link_count) * sizeof(struct link *));
    worker->links = links;
    worker->link_count = count;
    return true;
}

/* A server that leaves is off the list before it has answered everything: its link is there until it ends. */
static bool is_over(const struct link *link, uint64_t incarnation)
{
    return incarnation == 0 ? !link->worker->node->ports->link_up(link->link) : link->incarnation != incarnation;
}

static void learn_secret(struct worker *worker)
{
    struct node *node = worker->node;
    pthread_mutex_lock(&node->secret_lock);
    memcpy(worker->secret, node->secret, sizeof worker->secret);
    pthread_mutex_unlock(&node->secret_lock);
    node->ports->secret_changed(worker);
}

/* Makes and ends links, as servers have come and gone. */
static void update_links_of(struct worker *worker)
{
    struct node *node = worker->node;
    if (atomic_load(&node->closing) || !make_room(worker, atomic_load(&node->peer_count)))
        return;
    learn_secret(worker);
    for (struct peer *peer = atomic_load(&node->peers); peer; peer = atomic_load(&peer->next)) {
        if (peer->index >= worker->link_count)
            continue;
        uint64_t incarnation = atomic_load(&peer->incarnation);
        struct link *link = worker->links[peer->index];
        if (link && is_over(link, incarnation))
            link_free(&worker->links[peer->index]);
        if (incarnation != 0 && !worker->links[peer->index])
            link_make(worker, peer, incarnation);
        else if (worker->links[peer->index])
            node->ports->link_rotate(worker->links[peer->index]->link, bytes_of(worker->secret));
    }
}

static void links_again(fl_loop *loop, void *arg)
{
    (void)loop;
    update_links_of(arg);
}

static void links_visit(struct tour *tour, struct worker *worker)
{
    (void)tour;
    update_links_of(worker);
}

/* A server that cannot reach the others could neither learn the settings of namespaces nor pass requests on: it has no shards
 * before it is linked with all of them. */
static void ready_if_linked(struct worker *worker)
{
    struct node *node = worker->node;
    for (struct peer *peer = atomic_load(&node->peers); peer; peer = atomic_load(&peer->next)) {
        struct node_link *link = link_to(worker, peer);
        if (atomic_load(&peer->incarnation) != 0 && (!link || !node->ports->link_up(link)))
            return;
    }
    if (!atomic_load(&node->stopping))
        cluster_ready(node->cluster);
}

static void links_back(struct tour *tour)
{
    ready_if_linked(tour->home);
    free(tour);
}

static void update_links(struct node *node)
{
    struct tour *tour = calloc(1, sizeof *tour);
    if (!tour)
        return;
    *tour = (struct tour){.fn = links_visit, .back = links_back};
    tour_begin(tour, &node->workers[0]);
}

void servers_stop_links(struct worker *worker)
{
    for (unsigned i = 0; i < worker->link_count; i++)
        link_free(&worker->links[i]);
    free(worker->links);
    worker->links = NULL;
    worker->link_count = 0;
}

/* --- Who is there ------------------------------------------------------------------------------------------------- */

struct peer *peer_of_address(struct node *node, const char *address)
{
    struct peer *peer = atomic_load(&node->peers);
    while (peer && strcmp(peer->address, address) != 0)
        peer = atomic_load(&peer->next);
    if (peer)
        return peer;
    peer = calloc(1, sizeof *peer + strlen(address) + 1);
    if (!peer)
        return NULL;
    peer->index = atomic_load(&node->peer_count);
    memcpy(peer->address, address, strlen(address) + 1);
    _Atomic(struct peer *) *end = &node->peers;
    while (atomic_load(end))
        end = &atomic_load(end)->next;
    atomic_store(end, peer);
    atomic_fetch_add(&node->peer_count, 1);
    return peer;
}

static const struct cluster_member *member_of(const struct cluster_view *view, const struct peer *peer)
{
    for (size_t i = 0; i < view->member_count; i++)
        if (i != view->self && strcmp(view->members[i].address, peer->address) == 0)
            return &view->members[i];
    return NULL;
}

static void set_secret(struct node *node, const char *secret)
{
    pthread_mutex_lock(&node->secret_lock);
    bool rotated = node->secret[0] && strncmp(node->secret, secret, sizeof node->secret - 1) != 0;
    snprintf(node->secret, sizeof node->secret, "%s", secret);
    pthread_mutex_unlock(&node->secret_lock);
    if (rotated)
        log_info("the secret of the servers has changed in the store; new links use the new secret", NULL);
}

static void changed(void *arg, const struct cluster_view *view)
{
    struct node *node = arg;
    for (size_t i = 0; i < view->member_count; i++)
        if (i != view->self)
            peer_of_address(node, view->members[i].address);
    for (struct peer *peer = atomic_load(&node->peers); peer; peer = atomic_load(&peer->next)) {
        const struct cluster_member *member = member_of(view, peer);
        uint64_t now = member ? member->incarnation : 0, before = atomic_exchange(&peer->incarnation, now);
        if (now != before)
            log_info(now ? "another server has joined" : "another server has left", "server", peer->address, NULL);
    }
    for (uint32_t i = 0; i < view->shard_count; i++) {
        bool other = view->owners[i] >= 0 && (size_t)view->owners[i] != view->self;
        struct peer *peer = other ? peer_of_address(node, view->members[view->owners[i]].address) : NULL;
        atomic_store_explicit(&node->shards[i].moving, view->owners[i] == CLUSTER_MOVING, memory_order_relaxed);
        atomic_store_explicit(&node->shards[i].peer, peer, memory_order_release);
    }
    set_secret(node, view->secret);
    if (view->self != SIZE_MAX)
        atomic_store(&node->joined, true);
    update_links(node);
}

static void not_taken(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    cluster_failed(shard->worker->node->cluster, shard->number);
}

static void take_here(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    log_info("taking a shard", "shard", log_int(shard->number), NULL);
    if (shard_start(shard) == 0)
        return;
    shard->left_task = (fl_loop_task){.fn = not_taken, .arg = shard};
    fl_loop_post_task(shard->worker->node->workers[0].loop, &shard->left_task);
}

static void take(void *arg, uint32_t number)
{
    struct node *node = arg;
    struct shard *shard = &node->shards[number];
    atomic_store_explicit(&shard->peer, NULL, memory_order_release);
    shard->take_task = (fl_loop_task){.fn = take_here, .arg = shard};
    fl_loop_post_task(shard->worker->loop, &shard->take_task);
}

static void leave_here(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    if (!shard_is_here(shard))
        return; /* it is on its way already */
    log_info("giving up a shard", "shard", log_int(shard->number), NULL);
    shard_leave(shard);
}

static void leave(void *arg, uint32_t number)
{
    struct node *node = arg;
    struct shard *shard = &node->shards[number];
    shard->leave_task = (fl_loop_task){.fn = leave_here, .arg = shard};
    fl_loop_post_task(shard->worker->loop, &shard->leave_task);
}

static void left(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    cluster_left(shard->worker->node->cluster, shard->number);
}

/* A server that is alone claims what it has lost: it waits for another that holds it. */
static void start_again(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    if (atomic_load(&shard->worker->node->stopping) || shard->state != SHARD_AWAY)
        return;
    if (shard_start(shard) < 0)
        fl_loop_timer(loop, AGAIN_NS, start_again, shard, NULL);
}

void shard_left(struct shard *shard)
{
    struct node *node = shard->worker->node;
    if (!node->cluster) {
        start_again(shard->worker->loop, shard);
        return;
    }
    shard->left_task = (fl_loop_task){.fn = left, .arg = shard};
    fl_loop_post_task(node->workers[0].loop, &shard->left_task);
}

static void moved(void *arg)
{
    struct node *node = arg;
    tell_all(&node->workers[0], LINK_LOOK, (fl_bytes){0});
}

static void look_here(fl_loop *loop, void *arg)
{
    struct node *node = arg;
    (void)loop;
    atomic_store(&node->looking, false);
    if (atomic_load(&node->stopping))
        return;
    moved(node);
    cluster_look(node->cluster);
}

void servers_look(struct node *node)
{
    if (!node->cluster || atomic_exchange(&node->looking, true))
        return;
    node->look_task = (fl_loop_task){.fn = look_here, .arg = node};
    fl_loop_post_task(node->workers[0].loop, &node->look_task);
}

static void replaced(void *arg)
{
    struct node *node = arg;
    log_error(
        "another server uses the address of this server, so this server stops; give each server its own --advertise",
        "address", node->config.advertise, NULL);
    node->ports->replaced(node);
}

static void trouble(void *arg, const char *message)
{
    struct node *node = arg;
    if (trouble_is_news(message, fl_loop_now_ns(node->workers[0].loop)))
        log_warning("cannot read the list of servers from the store; the server keeps trying", "why", message, NULL);
}

static int cluster_prepare(struct node *node)
{
    struct cluster_config config = {.secret = node->own_secret,
                                    .loop = node->workers[0].loop,
                                    .store = node->store,
                                    .address = node->config.advertise,
                                    .about = FL_VERSION,
                                    .hold = true,
                                    .waits = true,
                                    .incarnation = node->config.incarnation,
                                    .lease_us = node->config.engine.lease_us,
                                    .take = take,
                                    .leave = leave,
                                    .changed = changed,
                                    .moved = moved,
                                    .replaced = replaced,
                                    .trouble = trouble,
                                    .arg = node};
    if (node->config.max_timers_per_namespace > 0 &&
        fl_loop_interval(config.loop, COUNT_NS, FL_TIMER_UNREF, count_all, node, NULL) < 0)
        return FL_NO_MEMORY;
    return cluster_start(&config, &node->cluster);
}

int servers_start(struct worker *worker)
{
    struct node *node = worker->node;
    memcpy(worker->secret, node->own_secret, sizeof node->own_secret);
    return worker->index == 0 ? cluster_prepare(node) : 0;
}

/* --- Reaching ourselves ------------------------------------------------------------------------------------------- */

/* A server with an address at which it cannot be reached, or at which another is, would get shards that nobody can ask for, or drive
 * that other from the list. So it first calls itself there. Nobody else can answer: what proves who answers is a secret that has not
 * left this process yet. */

#define SELF_LOOK_NS (20 * 1000000ull)
#define SELF_TELL_NS (30 * 1000000000ull)

static void tell_unreachable(struct node *node)
{
    char text[sizeof node->hindrance.text];
    const char *why = node->ports->link_trouble(node->self);
    uint64_t now_ns = fl_loop_now_ns(node->workers[0].loop);
    snprintf(text, sizeof text, "the server cannot reach itself at %.80s (--advertise): %s", node->config.advertise,
             why);
    node_hindered(node, text);
    if (node->self_told_ns > 0 && now_ns - node->self_told_ns < SELF_TELL_NS)
        return;
    node->self_told_ns = now_ns;
    log_error("cannot reach this server at its own address, so it does not join the others; correct --advertise",
              "address", node->config.advertise, "why", why, NULL);
}

static void self_free(struct node *node)
{
    if (!node->self)
        return;
    fl_loop_cancel(node->workers[0].loop, node->self_timer);
    node->ports->link_free(node->self);
    node->self = NULL;
}

static void look_at_self(fl_loop *loop, void *arg)
{
    struct node *node = arg;
    (void)loop;
    if (node->ports->link_up(node->self)) {
        self_free(node);
        node_hindered(node, "");
        cluster_join(node->cluster);
    } else if (node->ports->link_has_failed(node->self)) {
        tell_unreachable(node);
    }
}

int servers_join(struct node *node)
{
    struct worker *worker = &node->workers[0];
    struct link_config config = {
        .address = node->config.advertise, .self = node->config.advertise, .secret = bytes_of(node->own_secret)};
    int r = node->ports->link_new(worker, &config, &node->self);
    if (r == 0)
        r = fl_loop_interval(worker->loop, SELF_LOOK_NS, 0, look_at_self, node, &node->self_timer);
    return r;
}

void servers_stop(struct node *node, uint64_t patience_us, void (*done)(void *node))
{
    self_free(node);
    cluster_stop(node->cluster, patience_us, done);
}
