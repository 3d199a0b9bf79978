/* SPDX-License-Identifier: MIT */
/* Links to the other servers. Every worker has a link of its own to every other server, so that no worker waits for another
 * one on the way. */

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
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

/* A call with an empty answer. */
struct notice {
    struct link_call call;
};

static void noticed(struct link_call *call, int result, fl_bytes answer)
{
    (void)result, (void)answer;
    free(call);
}

static void link_tell(struct link *link, enum link_kind kind, fl_bytes body)
{
    struct notice *notice = calloc(1, sizeof *notice);
    fl__assert(link->link);
    if (!notice)
        return;
    notice->call = (struct link_call){.done = noticed, .urgent = true};
    link->worker->node->ports->link_call(link->link, &notice->call, (uint8_t)kind, body);
}

void links_tell(struct worker *worker, enum link_kind kind, fl_bytes body)
{
    for (unsigned i = 0; i < worker->link_count; i++)
        if (worker->links[i])
            link_tell(worker->links[i], kind, body);
}

struct settings_news {
    struct tour tour;
    size_t size;
    char ns[FL_STORE_NAME_MAX];
};

static void news_visit(struct tour *tour, struct worker *worker)
{
    const struct settings_news *news = (struct settings_news *)tour;
    if (worker->index == 0)
        links_tell(worker, LINK_SETTINGS, (fl_bytes){news->ns, news->size});
}

static void news_back(struct tour *tour)
{
    free(tour);
}

/* By the links of the first worker: when one of these is up again, the other server reads all settings. */
void servers_tell_settings(struct worker *worker, fl_bytes ns)
{
    struct settings_news *news = worker->node->cluster ? malloc(sizeof *news) : NULL;
    if (!news)
        return;
    *news = (struct settings_news){.tour = {.fn = news_visit, .back = news_back}, .size = ns.size};
    memcpy(news->ns, ns.data, ns.size);
    tour_begin(&news->tour, worker);
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
    fl__assert(question->left == 0);
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
    fl__assert(question->left > 0);
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
    fl__assert(ns.size <= FL_STORE_NAME_MAX);
    if (!gather) {
        done(arg);
        return;
    }
    *gather = (struct gather){.node = worker->node, .done = done, .arg = arg, .size = ns.size};
    memcpy(gather->ns, ns.data ? ns.data : "", ns.size);
    servers_ask(worker, LINK_SPACES, (fl_bytes){gather->ns, gather->size}, gathered, gather);
}

/* --- Links -------------------------------------------------------------------------------------------------------- */

static void links_again(fl_loop *loop, void *arg);
static void ready_if_linked(struct worker *worker);

/* While it was away, something may have been said that it, or we, did not hear. Each reads the settings again: it may have
 * read them by its own link before a change of which we could not tell it. */
static void link_changed(void *arg, bool up)
{
    struct link *link = arg;
    if (link->worker->index == 0)
        log_info(up ? "linked with another server" : "the link with another server is lost", "server",
                 link->peer->address, NULL);
    if (link->worker->index == 0) /* also when it is lost: the other may have died before it told of a change */
        settings_load_missed(link->worker->node);
    if (up && link->worker->index == 0)
        link_tell(link, LINK_SETTINGS, (fl_bytes){0});
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
    fl__assert(peer->index < worker->link_count && !worker->links[peer->index] && incarnation != 0);
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

void links_update(struct node *node)
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
