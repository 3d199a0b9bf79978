/* SPDX-License-Identifier: MIT */
/* The other servers of the store: which there are, links to them, and what is asked of them.
 *
 * The first worker meets them (cluster.c) and tells the workers of shards what to take and what to leave. Every worker has a
 * link of its own to every other server, so that nobody waits for another worker on the way. */

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <foliot/version.h>

#include "text/log.h"
#include "node/server.h"
#include "node/wire.h"

struct link {
    struct worker *worker;
    struct peer *peer;
    uint64_t incarnation; /* to which process of that address */
    peer_link *link;
    struct peer_call events;
    bool listening;
};

peer_link *link_to(struct worker *worker, const struct peer *peer)
{
    struct link *link = peer->index < worker->link_count ? worker->links[peer->index] : NULL;
    return link ? link->link : NULL;
}

/* --- Jobs and pages ----------------------------------------------------------------------------------------------- */

/* It was not begun, or it does not matter if it is done twice. */
static void job_moved(struct job *job)
{
    job->moved = true;
    job_return(job);
}

static bool only_reads(const struct job *job)
{
    for (size_t i = 0; i < job->batch.count; i++)
        if (job->batch.ops[i].kind != FL_OP_GET && job->batch.ops[i].kind != FL_OP_DEAD_GET)
            return false;
    return true;
}

static void job_answered(struct peer_call *call, int result, fl_bytes answer)
{
    struct job *job = (struct job *)((char *)call - offsetof(struct job, remote));
    struct wire wire = wire_begin(answer);
    if (result == FL_CAPACITY_EXCEEDED && !call->sent) {
        job_fail(job, result); /* it does not wait: too much does already */
        job_return(job);
        return;
    }
    if (result == PEER_MOVED || (result < 0 && (!call->sent || only_reads(job)))) {
        job_moved(job);
        return;
    }
    for (size_t i = 0; i < job->batch.count && result == 0; i++)
        wire_answer(&wire, &job->batch.ops[i], job->brief);
    if (result < 0 || wire.bad)
        job_fail(job, FL_OUTCOME_UNKNOWN);
    else
        job->render(job);
    job_return(job);
}

void job_forward(struct job *job, struct peer *peer)
{
    peer_link *link = link_to(job->errand.home, peer);
    struct out body = {0};
    wire_put_number(&body, job->shard->number);
    wire_put_number(&body, job->brief);
    wire_put_number(&body, job->batch.count);
    for (size_t i = 0; i < job->batch.count; i++)
        wire_put_op(&body, &job->batch.ops[i]);
    if (!link || body.failed) {
        out_free(&body);
        job_moved(job);
        return;
    }
    job->remote = (struct peer_call){.done = job_answered};
    peer_call(link, &job->remote, PEER_JOB, out_bytes(&body));
    out_free(&body);
}

static void page_answered(struct peer_call *call, int result, fl_bytes answer)
{
    struct page *page = (struct page *)((char *)call - offsetof(struct page, remote));
    struct wire wire = wire_begin(answer);
    size_t limit = page->listing.limit > 0 ? page->listing.limit : 1;
    fl_op *room = result == 0 ? calloc(limit, sizeof *room) : NULL;
    fl_cursor cursor = page->listing.cursor;
    if (room)
        wire_found(&wire, &page->listing, room);
    page->moved = !room || wire.bad;
    if (result == FL_TOO_LARGE && limit > 1)
        page->listing.limit = limit / 2;
    if (page->moved)
        page->listing.cursor = cursor;
    else
        page->render(page);
    free(room);
    page_return(page);
}

void page_forward(struct page *page, struct peer *peer)
{
    peer_link *link = link_to(page->errand.home, peer);
    struct out body = {0};
    wire_put_number(&body, page->shard->number);
    wire_put_listing(&body, &page->listing);
    if (!link || body.failed) {
        out_free(&body);
        page->moved = true;
        page_return(page);
        return;
    }
    page->remote = (struct peer_call){.done = page_answered};
    peer_call(link, &page->remote, PEER_PAGE, out_bytes(&body));
    out_free(&body);
}

/* --- News --------------------------------------------------------------------------------------------------------- */

/* A call whose answer says nothing. */
struct notice {
    struct peer_call call;
};

static void noticed(struct peer_call *call, int result, fl_bytes answer)
{
    (void)result, (void)answer;
    free(call);
}

static void tell_all(struct worker *worker, enum peer_kind kind, fl_bytes body)
{
    for (unsigned i = 0; i < worker->link_count; i++) {
        struct notice *notice = worker->links[i] ? calloc(1, sizeof *notice) : NULL;
        if (!notice)
            continue;
        notice->call = (struct peer_call){.done = noticed, .urgent = true};
        peer_call(worker->links[i]->link, &notice->call, (uint8_t)kind, body);
    }
}

void servers_tell_settings(struct worker *worker, fl_bytes ns)
{
    tell_all(worker, PEER_SETTINGS, ns);
}

static void events_over(struct peer_call *call, int result, fl_bytes answer)
{
    struct link *link = (struct link *)((char *)call - offsetof(struct link, events));
    (void)result, (void)answer;
    link->listening = false;
}

static void event_came(struct peer_call *call, fl_bytes piece)
{
    struct link *link = (struct link *)((char *)call - offsetof(struct link, events));
    events_relay(link->worker, piece);
}

static void listen_to(struct link *link, bool want)
{
    if (want == link->listening || (want && !peer_link_up(link->link)))
        return;
    link->listening = want;
    if (want) {
        link->events = (struct peer_call){.done = events_over, .piece = event_came};
        peer_call(link->link, &link->events, PEER_EVENTS, (fl_bytes){0});
    } else {
        peer_cancel(link->link, &link->events);
    }
}

void servers_want_events(struct worker *worker, bool want)
{
    for (unsigned i = 0; i < worker->link_count; i++)
        if (worker->links[i])
            listen_to(worker->links[i], want);
}

/* --- Gathering ---------------------------------------------------------------------------------------------------- */

struct gather {
    struct worker *worker;
    void (*done)(void *arg);
    void *arg;
    size_t left, count;
    char ns_room[FL_STORE_NAME_MAX];
    fl_bytes ns;
    struct out *answers;
    struct gathered {
        struct peer_call call;
        struct gather *gather;
    } calls[];
};

static void gather_end(struct gather *gather)
{
    void (*done)(void *) = gather->done;
    void *arg = gather->arg;
    spaces_take_counts(gather->worker->server, gather->ns, gather->answers, gather->count);
    for (size_t i = 0; i < gather->count; i++)
        out_free(&gather->answers[i]);
    free(gather->answers);
    free(gather);
    done(arg);
}

static void gathered(struct peer_call *call, int result, fl_bytes answer)
{
    struct gathered *one = (struct gathered *)call;
    struct gather *gather = one->gather;
    if (result == 0)
        out_put(&gather->answers[one - gather->calls], answer.data, answer.size);
    if (--gather->left == 0)
        gather_end(gather);
}

void servers_gather(struct worker *worker, fl_bytes ns, void (*done)(void *arg), void *arg)
{
    unsigned count = worker->link_count;
    struct gather *gather = count ? calloc(1, sizeof *gather + count * sizeof *gather->calls) : NULL;
    struct out *answers = gather ? calloc(count, sizeof *answers) : NULL;
    if (!answers) {
        free(gather);
        done(arg);
        return;
    }
    *gather =
        (struct gather){.worker = worker, .done = done, .arg = arg, .left = 1, .count = count, .answers = answers};
    memcpy(gather->ns_room, ns.data ? ns.data : "", ns.size);
    gather->ns = (fl_bytes){gather->ns_room, ns.size};
    for (unsigned i = 0; i < count; i++) {
        gather->calls[i] = (struct gathered){.call.done = gathered, .gather = gather};
        if (!worker->links[i] || atomic_load(&worker->links[i]->peer->incarnation) == 0)
            continue;
        gather->left++;
        peer_call(worker->links[i]->link, &gather->calls[i].call, PEER_SPACES, gather->ns);
    }
    if (--gather->left == 0)
        gather_end(gather);
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
    struct server *server = arg;
    (void)loop;
    servers_gather(&server->workers[0], (fl_bytes){0}, counted, NULL);
}

/* --- Links -------------------------------------------------------------------------------------------------------- */

static void links_again(fl_loop *loop, void *arg);
static void ready_if_linked(struct worker *worker);

/* While it was away, something may have been said that it, or we, did not hear. */
static void link_changed(void *arg, peer_link *peer_link, bool up)
{
    struct link *link = arg;
    (void)peer_link;
    if (link->worker->index == 0)
        log_info(up ? "linked with another server" : "the link with another server is lost", "server",
                 link->peer->address, NULL);
    if (up && link->worker->index == 0 && atomic_load(&link->worker->server->settings_known))
        spaces_load(link->worker, NULL);
    if (!up) {
        if (atomic_load(&link->peer->incarnation) == 0)
            fl_loop_post(link->worker->loop, links_again, link->worker);
        return;
    }
    listen_to(link, link->worker->subscribers != NULL);
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
    peer_link_free(link->link);
    free(link);
}

static void link_make(struct worker *worker, struct peer *peer, uint64_t incarnation)
{
    struct server *server = worker->server;
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        return; /* and at the next change */
    *link = (struct link){.worker = worker, .peer = peer, .incarnation = incarnation};
    struct peer_link_config config = {.loop = worker->loop,
                                      .address = peer->address,
                                      .self = server->config.advertise,
                                      .secret = bytes_of(worker->secret),
                                      .tls = server->tls != NULL,
                                      .changed = link_changed,
                                      .arg = link};
    int r = peer_link_new(&config, &link->link);
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
    return incarnation == 0 ? !peer_link_up(link->link) : link->incarnation != incarnation;
}

static void learn_secret(struct worker *worker)
{
    struct server *server = worker->server;
    pthread_mutex_lock(&server->secret_lock);
    memcpy(worker->secret, server->secret, sizeof worker->secret);
    pthread_mutex_unlock(&server->secret_lock);
    worker->host.secret = bytes_of(worker->secret);
}

/* Makes and ends links, as servers have come and gone. */
static void update_links_of(struct worker *worker)
{
    struct server *server = worker->server;
    if (atomic_load(&server->closing) || !make_room(worker, atomic_load(&server->peer_count)))
        return;
    learn_secret(worker);
    for (struct peer *peer = atomic_load(&server->peers); peer; peer = atomic_load(&peer->next)) {
        if (peer->index >= worker->link_count)
            continue;
        uint64_t incarnation = atomic_load(&peer->incarnation);
        struct link *link = worker->links[peer->index];
        if (link && is_over(link, incarnation))
            link_free(&worker->links[peer->index]);
        if (incarnation != 0 && !worker->links[peer->index])
            link_make(worker, peer, incarnation);
        else if (worker->links[peer->index])
            peer_link_rotate(worker->links[peer->index]->link, worker->host.secret);
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
    struct server *server = worker->server;
    for (struct peer *peer = atomic_load(&server->peers); peer; peer = atomic_load(&peer->next)) {
        peer_link *link = link_to(worker, peer);
        if (atomic_load(&peer->incarnation) != 0 && (!link || !peer_link_up(link)))
            return;
    }
    if (!atomic_load(&server->stopping))
        cluster_ready(server->cluster);
}

static void links_back(struct tour *tour)
{
    ready_if_linked(tour->home);
    free(tour);
}

static void update_links(struct server *server)
{
    struct tour *tour = calloc(1, sizeof *tour);
    if (!tour)
        return;
    *tour = (struct tour){.fn = links_visit, .back = links_back};
    tour_begin(tour, &server->workers[0]);
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

static struct peer *peer_of_address(struct server *server, const char *address)
{
    struct peer *peer = atomic_load(&server->peers);
    while (peer && strcmp(peer->address, address) != 0)
        peer = atomic_load(&peer->next);
    if (peer)
        return peer;
    peer = calloc(1, sizeof *peer + strlen(address) + 1);
    if (!peer)
        return NULL;
    peer->index = atomic_load(&server->peer_count);
    memcpy(peer->address, address, strlen(address) + 1);
    _Atomic(struct peer *) *end = &server->peers;
    while (atomic_load(end))
        end = &atomic_load(end)->next;
    atomic_store(end, peer);
    atomic_fetch_add(&server->peer_count, 1);
    return peer;
}

static const struct cluster_member *member_of(const struct cluster_view *view, const struct peer *peer)
{
    for (size_t i = 0; i < view->member_count; i++)
        if (i != view->self && strcmp(view->members[i].address, peer->address) == 0)
            return &view->members[i];
    return NULL;
}

static void set_secret(struct server *server, const char *secret)
{
    pthread_mutex_lock(&server->secret_lock);
    bool rotated = server->secret[0] && strncmp(server->secret, secret, sizeof server->secret - 1) != 0;
    snprintf(server->secret, sizeof server->secret, "%s", secret);
    pthread_mutex_unlock(&server->secret_lock);
    if (rotated)
        log_info("the secret of the servers has changed in the store; new links use the new secret", NULL);
}

static void changed(void *arg, const struct cluster_view *view)
{
    struct server *server = arg;
    for (size_t i = 0; i < view->member_count; i++)
        if (i != view->self)
            peer_of_address(server, view->members[i].address);
    for (struct peer *peer = atomic_load(&server->peers); peer; peer = atomic_load(&peer->next)) {
        const struct cluster_member *member = member_of(view, peer);
        uint64_t now = member ? member->incarnation : 0, before = atomic_exchange(&peer->incarnation, now);
        if (now != before)
            log_info(now ? "another server has joined" : "another server has left", "server", peer->address, NULL);
    }
    for (uint32_t i = 0; i < view->shard_count; i++) {
        bool other = view->owners[i] >= 0 && (size_t)view->owners[i] != view->self;
        struct peer *peer = other ? peer_of_address(server, view->members[view->owners[i]].address) : NULL;
        atomic_store_explicit(&server->shards[i].moving, view->owners[i] == CLUSTER_MOVING, memory_order_relaxed);
        atomic_store_explicit(&server->shards[i].peer, peer, memory_order_release);
    }
    set_secret(server, view->secret);
    if (view->self != SIZE_MAX)
        atomic_store(&server->joined, true);
    update_links(server);
}

static void not_taken(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    cluster_failed(shard->worker->server->cluster, shard->number);
}

static void take_here(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    log_info("taking a shard", "shard", log_int(shard->number), NULL);
    if (shard_start(shard) == 0)
        return;
    shard->left_task = (fl_loop_task){.fn = not_taken, .arg = shard};
    fl_loop_post_task(shard->worker->server->workers[0].loop, &shard->left_task);
}

static void take(void *arg, uint32_t number)
{
    struct server *server = arg;
    struct shard *shard = &server->shards[number];
    atomic_store_explicit(&shard->peer, NULL, memory_order_release);
    shard->take_task = (fl_loop_task){.fn = take_here, .arg = shard};
    fl_loop_post_task(shard->worker->loop, &shard->take_task);
}

static void leave_here(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    if (!shard->engine || shard->leaving)
        return; /* it is on its way already */
    log_info("giving up a shard", "shard", log_int(shard->number), NULL);
    shard_leave(shard, false);
}

static void leave(void *arg, uint32_t number)
{
    struct server *server = arg;
    struct shard *shard = &server->shards[number];
    shard->leave_task = (fl_loop_task){.fn = leave_here, .arg = shard};
    fl_loop_post_task(shard->worker->loop, &shard->leave_task);
}

static void left(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    cluster_left(shard->worker->server->cluster, shard->number);
}

/* A server that is alone claims what it has lost: it waits for another that holds it. */
static void start_again(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    if (atomic_load(&shard->worker->server->stopping) || shard->engine)
        return;
    if (shard_start(shard) < 0)
        fl_loop_timer(loop, AGAIN_NS, start_again, shard, NULL);
}

void shard_left(struct shard *shard)
{
    struct server *server = shard->worker->server;
    if (!server->cluster) {
        start_again(shard->worker->loop, shard);
        return;
    }
    shard->left_task = (fl_loop_task){.fn = left, .arg = shard};
    fl_loop_post_task(server->workers[0].loop, &shard->left_task);
}

static void moved(void *arg)
{
    struct server *server = arg;
    tell_all(&server->workers[0], PEER_LOOK, (fl_bytes){0});
}

static void look_here(fl_loop *loop, void *arg)
{
    struct server *server = arg;
    (void)loop;
    atomic_store(&server->looking, false);
    if (atomic_load(&server->stopping))
        return;
    moved(server);
    cluster_look(server->cluster);
}

void servers_look(struct server *server)
{
    if (!server->cluster || atomic_exchange(&server->looking, true))
        return;
    server->look_task = (fl_loop_task){.fn = look_here, .arg = server};
    fl_loop_post_task(server->workers[0].loop, &server->look_task);
}

static void replaced(void *arg)
{
    struct server *server = arg;
    log_error(
        "another server uses the address of this server, so this server stops; give each server its own --advertise",
        "address", server->config.advertise, NULL);
    kill(getpid(), SIGTERM);
}

static void trouble(void *arg, const char *message)
{
    struct server *server = arg;
    if (trouble_is_news(message, fl_loop_now_ns(server->workers[0].loop)))
        log_warning("cannot read the list of servers from the store; the server keeps trying", "why", message, NULL);
}

/* What the servers know each other by is in the store: who can read that may do anything anyway. */
static int make_secret(char *out, size_t size)
{
    unsigned char random[32];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return FL_SYSTEM;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(out + 2 * i, size - 2 * i, "%02x", random[i]);
    return 0;
}

int servers_prepare(struct server *server)
{
    return make_secret(server->own_secret, sizeof server->own_secret);
}

static int cluster_prepare(struct server *server)
{
    struct cluster_config config = {.secret = server->own_secret,
                                    .loop = server->workers[0].loop,
                                    .store = server->store,
                                    .address = server->config.advertise,
                                    .about = FL_VERSION,
                                    .hold = true,
                                    .waits = true,
                                    .incarnation = server->nonce,
                                    .lease_us = server->config.engine.lease_us,
                                    .take = take,
                                    .leave = leave,
                                    .changed = changed,
                                    .moved = moved,
                                    .replaced = replaced,
                                    .trouble = trouble,
                                    .arg = server};
    if (server->config.max_timers_per_namespace > 0 &&
        fl_loop_interval(config.loop, COUNT_NS, FL_TIMER_UNREF, count_all, server, NULL) < 0)
        return FL_NO_MEMORY;
    return cluster_start(&config, &server->cluster);
}

int servers_start(struct worker *worker)
{
    struct server *server = worker->server;
    worker->host.secret = bytes_of(server->own_secret);
    int r = peer_sessions_new(worker->loop, &worker->host, &worker->sessions);
    return r == 0 && worker->index == 0 ? cluster_prepare(server) : r;
}

/* --- Reaching ourselves ------------------------------------------------------------------------------------------- */

/* A server with an address at which it cannot be reached, or at which another is, would get shards that nobody can ask for, or drive
 * that other from the list. So it first calls itself there. Nobody else can answer: what proves who answers is a secret that has not
 * left this process yet. */

#define SELF_LOOK_NS (20 * 1000000ull)
#define SELF_TELL_NS (30 * 1000000000ull)

static void tell_unreachable(struct server *server)
{
    char text[sizeof server->hindrance.text];
    const char *why = peer_link_trouble(server->self);
    uint64_t now_ns = fl_loop_now_ns(server->workers[0].loop);
    snprintf(text, sizeof text, "the server cannot reach itself at %.80s (--advertise): %s", server->config.advertise,
             why);
    server_hindered(server, text);
    if (server->self_told_ns > 0 && now_ns - server->self_told_ns < SELF_TELL_NS)
        return;
    server->self_told_ns = now_ns;
    log_error("cannot reach this server at its own address, so it does not join the others; correct --advertise",
              "address", server->config.advertise, "why", why, NULL);
}

static void self_free(struct server *server)
{
    if (!server->self)
        return;
    fl_loop_cancel(server->workers[0].loop, server->self_timer);
    peer_link_free(server->self);
    server->self = NULL;
}

static void look_at_self(fl_loop *loop, void *arg)
{
    struct server *server = arg;
    (void)loop;
    if (peer_link_up(server->self)) {
        self_free(server);
        server_hindered(server, "");
        cluster_join(server->cluster);
    } else if (peer_link_has_failed(server->self)) {
        tell_unreachable(server);
    }
}

int servers_join(struct server *server)
{
    struct worker *worker = &server->workers[0];
    struct peer_link_config config = {.loop = worker->loop,
                                      .address = server->config.advertise,
                                      .self = server->config.advertise,
                                      .secret = bytes_of(server->own_secret),
                                      .tls = server->tls != NULL};
    int r = peer_link_new(&config, &server->self);
    if (r == 0)
        r = fl_loop_interval(worker->loop, SELF_LOOK_NS, 0, look_at_self, server, &server->self_timer);
    return r;
}

void servers_stop(struct server *server, uint64_t patience_us, void (*done)(void *server))
{
    self_free(server);
    cluster_stop(server->cluster, patience_us, done);
}

/* --- GET /v1/cluster ---------------------------------------------------------------------------------------------- */

struct showing {
    struct errand errand;
    struct call *call;
};

static void show_member(struct out *out, struct worker *worker, const struct cluster_view *view, size_t i)
{
    const struct cluster_member *member = &view->members[i];
    struct peer *peer = i == view->self ? NULL : peer_of_address(worker->server, member->address);
    peer_link *link = peer ? link_to(worker, peer) : NULL;
    out_text(out, i > 0 ? ",{\"address\":" : "{\"address\":");
    out_string(out, bytes_of(member->address));
    out_key(out, "version");
    out_string(out, bytes_of(member->about));
    out_format(out, ",\"shards\":%" PRIu32 ",\"self\":%s,\"linked\":%s", member->shards,
               i == view->self ? "true" : "false", i == view->self || (link && peer_link_up(link)) ? "true" : "false");
    if (member->waits)
        out_text(out, ",\"waits\":true");
    if (link && !peer_link_up(link)) {
        out_key(out, "trouble");
        out_string(out, bytes_of(peer_link_trouble(link)));
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
    show_cluster(&showing->call->out, errand->there, cluster_view(errand->there->server->cluster));
    errand_return(errand);
}

/* A server that is alone is all there is. */
static void show_alone(struct call *call)
{
    struct server *server = call->worker->server;
    struct cluster_member self = {server->config.owner, FL_VERSION, 0, server->shard_count, false};
    int32_t *owners = calloc(server->shard_count, sizeof *owners);
    show_cluster(&call->out, call->worker, &(struct cluster_view){&self, 1, owners, server->shard_count, 0, ""});
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
    struct server *server = call->worker->server;
    if (!server->cluster) {
        show_alone(call);
        return;
    }
    struct showing *showing = calloc(1, sizeof *showing);
    if (!showing) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    *showing = (struct showing){
        .errand = {.home = call->worker, .there = &server->workers[0], .go = show_here, .back = shown}, .call = call};
    errand_send(&showing->errand);
}
