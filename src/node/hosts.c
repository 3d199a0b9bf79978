/* SPDX-License-Identifier: MIT */
/* How calls of each host went.
 *
 * Each worker counts for itself, so nothing is shared. It knows the HOSTS_MOST hosts that were called last, which bounds the
 * memory: about 5 MB per worker. A host that was not called for longest is forgotten for a new one; if it is called again,
 * its counts begin at zero. A host with an attempt that waits or is in progress stays.
 *
 * Latencies are counted in buckets, four per doubling. Every HALVE_NS, all of them are halved, so that they tell about the
 * last minutes.
 *
 * A page has the first hosts in the order of their names. Each worker, and each server, adds its own to the page, and the
 * largest names give way. A name that has given way never comes back, because the largest that stays only becomes smaller:
 * so each sum is complete. */

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/assert.h"
#include "base/hash.h"
#include "node/internal.h"

enum { HOSTS_MOST = 4096 };
#define HALVE_NS (300 * 1000000000ull)

struct called_host {
    struct hash_link by_name;
    TAILQ_ENTRY(called_host) entry; /* in order of use: the last used is at the end */
    uint64_t halved_ns;
    struct host_counts counts;
    size_t size;
    char name[];
};

struct hosts {
    struct hash_table by_name;
    TAILQ_HEAD(host_list, called_host) used;
};

int hosts_new(struct worker *worker)
{
    worker->hosts = calloc(1, sizeof *worker->hosts);
    if (!worker->hosts)
        return FL_NO_MEMORY;
    TAILQ_INIT(&worker->hosts->used);
    return 0;
}

void hosts_free(struct worker *worker)
{
    struct hosts *hosts = worker->hosts;
    if (!hosts)
        return;
    for (struct called_host *host = TAILQ_FIRST(&hosts->used), *next; host; host = next) {
        next = TAILQ_NEXT(host, entry);
        free(host);
    }
    fl__hash_free(&hosts->by_name);
    free(hosts);
    worker->hosts = NULL;
}

uint64_t hosts_known(const struct worker *worker)
{
    return worker->hosts->by_name.count;
}

/* NULL, or what is wrong. An attempt has at most one host, so the hosts have no more of them than the shards of the worker. */
const char *hosts_check(const struct worker *worker)
{
    const struct hosts *hosts = worker->hosts;
    const struct node *node = worker->node;
    uint64_t known = 0, attempts = 0, delivering = 0;
    for (const struct called_host *host = TAILQ_FIRST(&hosts->used); host; host = TAILQ_NEXT(host, entry)) {
        known++;
        attempts += host->counts.waiting + host->counts.in_flight;
    }
    for (uint32_t i = worker->index; i < node->shard_count; i += node->worker_count)
        delivering += node->shards[i].delivering;
    if (known != hosts->by_name.count || known > HOSTS_MOST)
        return "every known host is in the list and in the table";
    return attempts > delivering ? "an attempt of a host is an attempt of a shard" : NULL;
}

/* --- Counting ----------------------------------------------------------------------------------------------------- */

static struct called_host *find(const struct hosts *hosts, fl_bytes name, uint64_t hash)
{
    for (struct hash_link *link = fl__hash_first(&hosts->by_name, hash); link; link = fl__hash_next(link)) {
        struct called_host *host = hash_entry(link, struct called_host, by_name);
        if (host->size == name.size && memcmp(host->name, name.data, name.size) == 0)
            return host;
    }
    return NULL;
}

/* Frees the least recently used idle host, among the first few. Returns false if none of them is idle. */
static bool forget_one(struct hosts *hosts)
{
    unsigned looked = 0;
    for (struct called_host *host = TAILQ_FIRST(&hosts->used); host && looked < 16; looked++) {
        struct called_host *next = TAILQ_NEXT(host, entry);
        if (host->counts.in_flight + host->counts.waiting == 0) {
            TAILQ_REMOVE(&hosts->used, host, entry);
            fl__hash_remove(&hosts->by_name, &host->by_name);
            free(host);
            return true;
        }
        TAILQ_REMOVE(&hosts->used, host, entry); /* it is in use */
        TAILQ_INSERT_TAIL(&hosts->used, host, entry);
        host = next;
    }
    return false;
}

/* NULL: no memory, or too many hosts are in use. */
static struct called_host *host_of(struct worker *worker, fl_bytes name)
{
    struct hosts *hosts = worker->hosts;
    uint64_t hash = fl__hash_text(name.data, name.size);
    struct called_host *host = find(hosts, name, hash);
    fl__assert(name.size > 0);
    if (host) {
        TAILQ_REMOVE(&hosts->used, host, entry);
        TAILQ_INSERT_TAIL(&hosts->used, host, entry);
        return host;
    }
    if (hosts->by_name.count >= HOSTS_MOST && !forget_one(hosts))
        return NULL;
    host = calloc(1, sizeof *host + name.size);
    if (!host)
        return NULL;
    host->halved_ns = fl_loop_now_ns(worker->loop);
    host->size = name.size;
    memcpy(host->name, name.data, name.size);
    fl__hash_insert(&hosts->by_name, &host->by_name, hash);
    TAILQ_INSERT_TAIL(&hosts->used, host, entry);
    return host;
}

void host_waits(struct worker *worker, struct attempt *attempt)
{
    char room[HOST_TEXT];
    fl_bytes name = worker->node->ports->host_of(attempt->firing.timer.target, room);
    attempt->host = name.size > 0 ? host_of(worker, name) : NULL;
    if (attempt->host)
        attempt->host->counts.waiting++;
}

void host_begins(struct attempt *attempt)
{
    if (!attempt->host)
        return;
    fl__assert(attempt->host->counts.waiting > 0);
    attempt->host->counts.waiting--;
    attempt->host->counts.in_flight++;
}

/* Four buckets per doubling, from 64 us to more than an hour. */
static unsigned bucket_of(uint64_t us)
{
    if (us < 64)
        return 0;
    unsigned power = 63 - (unsigned)__builtin_clzll(us);
    unsigned bucket = (power - 6) * 4 + (unsigned)((us >> (power - 2)) & 3) + 1;
    return bucket < HOST_LATENCIES ? bucket : HOST_LATENCIES - 1;
}

/* Where a bucket ends. */
static uint64_t bucket_end_us(unsigned bucket)
{
    unsigned power = bucket > 0 ? (bucket - 1) / 4 + 6 : 0;
    return bucket == 0 ? 64 : ((uint64_t)(5 + (bucket - 1) % 4) << power) / 4;
}

static void halve(struct called_host *host, uint64_t now_ns)
{
    uint64_t times = (now_ns - host->halved_ns) / HALVE_NS;
    fl__assert(now_ns >= host->halved_ns);
    host->halved_ns += times * HALVE_NS;
    for (unsigned i = 0; times > 0 && i < HOST_LATENCIES; i++)
        host->counts.latencies[i] = times < 64 ? host->counts.latencies[i] >> times : 0;
}

void host_left(struct worker *worker, struct attempt *attempt, bool called)
{
    struct called_host *host = attempt->host;
    attempt->host = NULL;
    if (!host)
        return;
    struct host_counts *counts = &host->counts;
    uint64_t *place = attempt->begun ? &counts->in_flight : &counts->waiting;
    fl__assert(*place > 0);
    (*place)--;
    if (!called)
        return;
    halve(host, fl_loop_now_ns(worker->loop));
    counts->calls++;
    counts->failures += attempt->result == FL_FAILED || attempt->result == FL_DEAD;
    counts->responses[attempt->status / 100 % 6]++;
    counts->latencies[bucket_of(attempt->duration_ns / 1000)]++;
}

uint64_t host_latency_us(const struct host_counts *counts, unsigned permille)
{
    uint64_t sum = 0, seen = 0;
    unsigned bucket = 0;
    for (unsigned i = 0; i < HOST_LATENCIES; i++)
        sum += counts->latencies[i];
    if (sum == 0)
        return 0;
    for (; bucket < HOST_LATENCIES - 1; bucket++) {
        seen += counts->latencies[bucket];
        if (seen * 1000 >= sum * permille)
            break;
    }
    return bucket_end_us(bucket);
}

/* --- A page ------------------------------------------------------------------------------------------------------- */

static int compare(fl_bytes a, fl_bytes b)
{
    int r = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return r != 0 ? r : (a.size > b.size) - (a.size < b.size);
}

static bool is_wanted(const struct host_page *page, fl_bytes name)
{
    return name.size >= page->prefix.size && name.size <= HOST_TEXT &&
           memcmp(name.data, page->prefix.data ? page->prefix.data : "", page->prefix.size) == 0 &&
           (page->after.size == 0 || compare(name, page->after) > 0);
}

static void add_counts(struct host_counts *sum, const struct host_counts *counts)
{
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)counts;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        to[i] += from[i];
}

/* The place of a name in the page; `*ret_there`: it has one already. */
static size_t place_of(const struct host_page *page, fl_bytes name, bool *ret_there)
{
    size_t low = 0, high = page->count;
    *ret_there = false;
    while (low < high && !*ret_there) {
        size_t middle = low + (high - low) / 2;
        const struct host_sum *host = page->hosts[middle];
        int r = compare((fl_bytes){host->name, host->size}, name);
        *ret_there = r == 0;
        low = r < 0 ? middle + 1 : low;
        high = r >= 0 ? middle : high;
    }
    return high;
}

static void add(struct host_page *page, fl_bytes name, const struct host_counts *counts)
{
    bool there;
    if (!is_wanted(page, name))
        return;
    size_t at = place_of(page, name, &there);
    if (!there) {
        page->more = page->more || page->count == page->limit;
        if (at == page->limit)
            return;
        struct host_sum *host = page->count == page->limit ? page->hosts[--page->count] : malloc(sizeof *host);
        if (!host) {
            page->failed = true;
            return;
        }
        fl__assert(at <= page->count && page->count < page->limit && name.size <= HOST_TEXT);
        memmove(page->hosts + at + 1, page->hosts + at, (page->count - at) * sizeof(struct host_sum *));
        page->count++;
        *host = (struct host_sum){.size = name.size};
        memcpy(host->name, name.data, name.size);
        page->hosts[at] = host;
    }
    add_counts(&page->hosts[at]->counts, counts);
}

static void visit(struct tour *tour, struct worker *worker)
{
    struct host_page *page = (struct host_page *)((char *)tour - offsetof(struct host_page, tour));
    uint64_t now_ns = fl_loop_now_ns(worker->loop);
    for (struct called_host *host = TAILQ_FIRST(&worker->hosts->used); host; host = TAILQ_NEXT(host, entry)) {
        halve(host, now_ns);
        add(page, (fl_bytes){host->name, host->size}, &host->counts);
    }
}

void host_page_free(struct host_page *page)
{
    while (page->count > 0)
        free(page->hosts[--page->count]);
    free(page->hosts);
    page->hosts = NULL;
    out_free(&page->question);
}

/* --- Other servers ------------------------------------------------------------------------------------------------ */

static void put_hosts(struct out *out, const struct host_page *page)
{
    wire_put_number(out, page->more);
    for (size_t i = 0; i < page->count; i++) {
        const struct host_sum *host = page->hosts[i];
        const uint64_t *numbers = (const uint64_t *)&host->counts;
        wire_put_bytes(out, (fl_bytes){host->name, host->size});
        for (size_t k = 0; k < sizeof host->counts / sizeof *numbers; k++)
            wire_put_number(out, numbers[k]);
    }
}

static void take_hosts(struct host_page *page, fl_bytes answer)
{
    struct wire wire = wire_begin(answer);
    bool more = wire_number(&wire) != 0;
    fl__assert(page->limit > 0);
    while (wire.at < wire.end && !wire.bad) {
        struct host_counts counts;
        uint64_t *numbers = (uint64_t *)&counts;
        fl_bytes name = wire_bytes(&wire);
        for (size_t k = 0; k < sizeof counts / sizeof *numbers; k++)
            numbers[k] = wire_number(&wire);
        if (!wire.bad)
            add(page, name, &counts);
    }
    page->more = page->more || more;
}

static void answered(void *arg, const struct out *answers, size_t count)
{
    struct host_page *page = arg;
    for (size_t i = 0; i < count; i++)
        if (answers[i].size > 0)
            take_hosts(page, out_bytes(&answers[i]));
    page->done(page);
}

static void add_paused(void *arg, fl_bytes host, const struct pauses *pauses)
{
    static const struct host_counts none;
    (void)pauses;
    add(arg, host, &none);
}

static void visited_for_us(struct tour *tour)
{
    struct host_page *page = (struct host_page *)((char *)tour - offsetof(struct host_page, tour));
    struct out *question = &page->question;
    hosts_walk_paused(page->worker->node, add_paused, page);
    wire_put_number(question, page->limit);
    wire_put_bytes(question, page->prefix);
    wire_put_bytes(question, page->after);
    page->failed = page->failed || question->failed;
    servers_ask(page->worker, LINK_HOSTS, out_bytes(question), answered, page);
}

static void begin(struct host_page *page, void (*back)(struct tour *tour))
{
    page->tour = (struct tour){.fn = visit, .back = back};
    tour_begin(&page->tour, page->worker);
}

void hosts_ask(struct worker *worker, struct host_page *page)
{
    fl__assert(page->limit > 0 && page->limit <= HOST_PAGE_MOST);
    page->worker = worker;
    page->hosts = calloc(page->limit, sizeof(struct host_sum *));
    if (page->hosts) {
        begin(page, visited_for_us);
        return;
    }
    page->failed = true;
    page->done(page);
}

static void visited_for_another(struct tour *tour)
{
    struct host_page *page = (struct host_page *)((char *)tour - offsetof(struct host_page, tour));
    struct out out = {0};
    put_hosts(&out, page);
    link_answer(page->request, out.failed || page->failed ? FL_NO_MEMORY : 0, out_bytes(&out));
    out_free(&out);
    host_page_free(page);
    free(page);
}

/* The question is copied: it is gone when this returns. */
void hosts_serve(struct worker *worker, struct link_request *request)
{
    struct host_page *page = calloc(1, sizeof *page + request->body.size);
    if (!page) {
        link_answer(request, FL_NO_MEMORY, (fl_bytes){0});
        return;
    }
    char *copy = (char *)(page + 1);
    if (request->body.size > 0)
        memcpy(copy, request->body.data, request->body.size);
    struct wire wire = wire_begin((fl_bytes){copy, request->body.size});
    page->limit = (size_t)wire_number(&wire);
    page->prefix = wire_bytes(&wire);
    page->after = wire_bytes(&wire);
    page->worker = worker;
    page->request = request;
    bool good = !wire.bad && page->limit > 0 && page->limit <= HOST_PAGE_MOST;
    page->hosts = good ? calloc(page->limit, sizeof(struct host_sum *)) : NULL;
    if (!page->hosts) {
        free(page);
        link_answer(request, good ? FL_NO_MEMORY : FL_INVALID_ARGUMENT, (fl_bytes){0});
        return;
    }
    begin(page, visited_for_another);
}

/* --- Paused ------------------------------------------------------------------------------------------------------- */

void hosts_walk_paused(struct node *node, void (*visit_one)(void *arg, fl_bytes host, const struct pauses *pauses),
                       void *arg)
{
    struct spaces *spaces = node->spaces;
    int64_t now_us = node_now(node);
    if (!atomic_load(&node->has_host_pauses))
        return;
    pthread_rwlock_rdlock(&spaces->lock);
    for (struct space *space = spaces->first; space; space = space->next) {
        const struct pauses *pauses = &atomic_load(&space->settings)->pauses;
        if (is_host_space(space_name(space)) && pauses_are_on(pauses, now_us))
            visit_one(arg, (fl_bytes){space->name + 1, space->size - 1}, pauses);
    }
    pthread_rwlock_unlock(&spaces->lock);
}
