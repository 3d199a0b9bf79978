/* SPDX-License-Identifier: MIT */
/* Namespaces: what was set for them, and how much is in them.
 *
 * One that is used once is there until the process ends; so a pointer to it is good everywhere, and so is one to its settings,
 * which are replaced as a whole (what was replaced is kept until the end: it is small, and seldom).
 *
 * Where it is kept: each namespace is a timer of its own in the store, in a namespace that no user can name, due on the last
 * day there is; so it is as durable as the timers it is about, on every store, and is read before anything fires. How many
 * timers there are in it is written there every few seconds: after a crash the count may be off by what happened since. */

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "server/json.h"
#include "server/log.h"
#include "server/server.h"
#include "server/timer.h"
#include "server/when.h"

#define OWN_NAMESPACE ((fl_bytes){"\1namespaces", 11})
#define FLUSH_NS (5 * 1000000000ull)

enum { BUCKETS = 4096, PAGE = 1000 };

struct spaces {
    pthread_rwlock_t lock;
    struct space *buckets[BUCKETS];
    struct kept {
        struct kept *next;
        struct settings *settings;
    } * kept;
    atomic_ulong saved; /* namespaces that are in the store */
    bool flushing;
    size_t bucket;                          /* how far this round of flushing has got */
    uint64_t round;                         /* from 1 */
    void (*flushed)(struct worker *worker); /* who waits until all of them are written; NULL: nobody */
    fl_timer_id flush_timer;
};

static const struct settings no_settings = {.skip_older_us = UINT64_MAX};

int spaces_new(struct server *server)
{
    server->spaces = calloc(1, sizeof *server->spaces);
    if (!server->spaces)
        return FL_NO_MEMORY;
    pthread_rwlock_init(&server->spaces->lock, NULL);
    server->spaces->round = 1;
    return 0;
}

static void settings_free(struct settings *settings)
{
    for (unsigned i = 0; settings && i < settings->secret_count; i++) {
        explicit_bzero((void *)(uintptr_t)settings->secrets[i].data, settings->secrets[i].size);
        free((void *)(uintptr_t)settings->secrets[i].data);
    }
    free(settings);
}

void spaces_free(struct server *server)
{
    struct spaces *spaces = server->spaces;
    if (!spaces)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct space *space = spaces->buckets[i], *next; space; space = next) {
            next = space->next;
            free(space->name);
            free(space);
        }
    for (struct kept *kept = spaces->kept, *next; kept; kept = next) {
        next = kept->next;
        settings_free(kept->settings);
        free(kept);
    }
    pthread_rwlock_destroy(&spaces->lock);
    free(spaces);
    server->spaces = NULL;
}

/* --- Finding ------------------------------------------------------------------------------------------------------ */

static uint64_t hash_of(fl_bytes ns)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < ns.size; i++)
        hash = (hash ^ ((const unsigned char *)ns.data)[i]) * 0x100000001b3;
    return hash ^ hash >> 29;
}

static struct space *find(struct spaces *spaces, fl_bytes ns, uint64_t hash)
{
    for (struct space *space = spaces->buckets[hash % BUCKETS]; space; space = space->next)
        if (space->hash == hash && space->size == ns.size && memcmp(space->name, ns.data, ns.size) == 0)
            return space;
    return NULL;
}

static struct space *add(struct spaces *spaces, fl_bytes ns, uint64_t hash)
{
    struct space *space = calloc(1, sizeof *space);
    char *name = malloc(ns.size + 1);
    if (!space || !name) {
        free(space);
        free(name);
        return NULL;
    }
    memcpy(name, ns.data, ns.size);
    name[ns.size] = '\0';
    space->name = name;
    space->size = ns.size;
    space->hash = hash;
    space->settings = &no_settings;
    space->next = spaces->buckets[hash % BUCKETS];
    spaces->buckets[hash % BUCKETS] = space;
    return space;
}

/* Most look for the one that they have just looked for. */
struct space *space_of(struct server *server, fl_bytes ns)
{
    static _Thread_local struct space *last;
    static _Thread_local const struct server *last_server;
    struct spaces *spaces = server->spaces;
    if (last && last_server == server && last->size == ns.size && memcmp(last->name, ns.data, ns.size) == 0)
        return last;
    uint64_t hash = hash_of(ns);
    pthread_rwlock_rdlock(&spaces->lock);
    struct space *space = find(spaces, ns, hash);
    pthread_rwlock_unlock(&spaces->lock);
    if (!space) {
        pthread_rwlock_wrlock(&spaces->lock);
        space = find(spaces, ns, hash);
        if (!space)
            space = add(spaces, ns, hash);
        pthread_rwlock_unlock(&spaces->lock);
    }
    last = space;
    last_server = server;
    return space;
}

/* --- Settings as JSON --------------------------------------------------------------------------------------------- */

static int bad(struct problem *problem, const char *field, const char *what)
{
    return problem_set(problem, 400, "invalid-field", field, "%s must be %s", field, what);
}

static int read_duration(struct json value, const char *field, uint64_t none, uint64_t *ret, struct problem *problem)
{
    char room[64];
    *ret = none;
    if (value.kind == JSON_NULL)
        return 0;
    if (value.kind != JSON_STRING || value.text.size > sizeof room || duration_parse(json_string(value, room), ret) < 0)
        return bad(problem, field, "a duration like \"10s\", or null");
    return 0;
}

static int read_rate(struct json value, uint32_t *ret, struct problem *problem)
{
    int64_t rate = 0;
    if (value.kind != JSON_NULL &&
        (value.kind != JSON_NUMBER || !json_integer(value, &rate) || rate < 1 || rate > 1000000))
        return bad(problem, "max_rate", "deliveries a second from 1 to 1000000, or null");
    *ret = (uint32_t)rate;
    return 0;
}

/* As Standard Webhooks writes them: whsec_ and base64. */
static int read_secret(struct json value, fl_bytes *ret, struct problem *problem)
{
    char room[128];
    unsigned char *key;
    size_t size;
    if (value.kind != JSON_STRING || value.text.size > sizeof room)
        return bad(problem, "secrets", "at most two of \"whsec_\" and 24 to 64 bytes in base64");
    fl_bytes text = json_string(value, room);
    if (text.size < 6 || memcmp(text.data, "whsec_", 6) != 0 ||
        base64_decode((fl_bytes){(const char *)text.data + 6, text.size - 6}, &key, &size) < 0)
        return bad(problem, "secrets", "at most two of \"whsec_\" and 24 to 64 bytes in base64");
    *ret = (fl_bytes){key, size};
    return size >= 24 && size <= 64 ? 0
                                    : bad(problem, "secrets", "at most two of \"whsec_\" and 24 to 64 bytes in base64");
}

static int read_secrets(struct json value, struct settings *settings, struct problem *problem)
{
    struct json secret;
    if (value.kind != JSON_ARRAY)
        return bad(problem, "secrets", "an array");
    for (struct json_walk walk = json_walk(value); json_element(&walk, &secret);) {
        if (settings->secret_count == 2)
            return bad(problem, "secrets",
                       "at most two: the new one first, and the old one for as long as it is in use");
        settings->secrets[settings->secret_count] = (fl_bytes){0};
        int r = read_secret(secret, &settings->secrets[settings->secret_count], problem);
        settings->secret_count += settings->secrets[settings->secret_count].data != NULL;
        if (r < 0)
            return r;
    }
    return 0;
}

static int copy_secrets(const struct settings *from, struct settings *to)
{
    for (; to->secret_count < from->secret_count; to->secret_count++) {
        fl_bytes secret = from->secrets[to->secret_count];
        char *copy = malloc(secret.size);
        if (!copy)
            return -1;
        memcpy(copy, secret.data, secret.size);
        to->secrets[to->secret_count] = (fl_bytes){copy, secret.size};
    }
    return 0;
}

/* What is not given is not set, but for secrets, which stay as in `before`. */
static int settings_read(struct json object, const struct settings *before, struct settings *ret,
                         struct problem *problem)
{
    enum { SECRETS, RETRY, SKIP_OLDER, MAX_RATE, SPREAD };
    static const char *const names[] = {"secrets", "retry", "skip_older", "max_rate", "spread", NULL};
    struct json key, value;
    unsigned given = 0;
    *ret = no_settings;
    if (object.kind != JSON_OBJECT)
        return problem_set(problem, 400, "invalid-body", NULL, "a JSON object is wanted");
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);) {
        int r = problem_member(problem, NULL, names, key, &given);
        if (r == SECRETS)
            r = read_secrets(value, ret, problem);
        else if (r == RETRY)
            r = value.kind == JSON_NULL ? 0 : retry_read(value, &ret->retry, problem);
        else if (r == SKIP_OLDER)
            r = read_duration(value, "skip_older", UINT64_MAX, &ret->skip_older_us, problem);
        else if (r == MAX_RATE)
            r = read_rate(value, &ret->max_rate, problem);
        else if (r == SPREAD)
            r = read_duration(value, "spread", 0, &ret->spread_us, problem);
        if (r < 0)
            return r;
    }
    return (given & 1u << SECRETS) || copy_secrets(before, ret) == 0 ? 0 : problem_of_result(problem, FL_NO_MEMORY);
}

static void settings_write(struct out *out, const struct settings *settings, bool with_secrets)
{
    out_put(out, "{", 1);
    if (with_secrets) {
        out_text(out, "\"secrets\":[");
        for (unsigned i = 0; i < settings->secret_count; i++) {
            out_text(out, i > 0 ? ",\"whsec_" : "\"whsec_");
            out_base64_digits(out, settings->secrets[i]);
            out_put(out, "\"", 1);
        }
        out_put(out, "]", 1);
    } else {
        out_format(out, "\"secret_count\":%u", settings->secret_count);
    }
    if (settings->retry.initial_us > 0) {
        out_key(out, "retry");
        retry_write(out, &settings->retry);
    }
    if (settings->skip_older_us != UINT64_MAX) {
        out_key(out, "skip_older");
        out_duration(out, settings->skip_older_us);
    }
    if (settings->max_rate > 0)
        out_format(out, ",\"max_rate\":%" PRIu32, settings->max_rate);
    if (settings->spread_us > 0) {
        out_key(out, "spread");
        out_duration(out, settings->spread_us);
    }
    out_put(out, "}", 1);
}

/* Makes settings those of a namespace. They are the spaces' from then on. */
static int settings_take(struct server *server, struct space *space, struct settings *settings)
{
    struct spaces *spaces = server->spaces;
    struct kept *kept = malloc(sizeof *kept);
    if (!kept)
        return FL_NO_MEMORY;
    kept->settings = settings;
    pthread_rwlock_wrlock(&spaces->lock);
    kept->next = spaces->kept;
    spaces->kept = kept;
    pthread_rwlock_unlock(&spaces->lock);
    atomic_store_explicit(&space->settings, settings, memory_order_release);
    return 0;
}

/* --- In the store ------------------------------------------------------------------------------------------------- */

struct saving {
    struct job job;
    fl_op op;
    struct space *space;
    struct out text;
    int64_t pending;
    struct call *call;         /* whom to answer; NULL: nobody */
    struct settings *settings; /* what to take when it is written; NULL: nothing */
};

static void save_render(struct job *job)
{
    (void)job;
}

static int save(struct worker *worker, struct saving *saving, const struct settings *settings,
                void (*back)(struct errand *))
{
    struct space *space = saving->space;
    saving->pending = atomic_load(&space->pending);
    out_format(&saving->text, "{\"pending\":%" PRId64 ",\"has_targets\":%s,\"settings\":", saving->pending,
               atomic_load(&space->has_targets) ? "true" : "false");
    settings_write(&saving->text, settings, true);
    out_text(&saving->text, "}");
    if (saving->text.failed)
        return FL_NO_MEMORY;
    saving->op = (fl_op){.kind = FL_OP_CREATE,
                         .timer = {.ns = OWN_NAMESPACE,
                                   .name = {space->name, space->size},
                                   .due_us = FL_STORE_TIME_END - 1,
                                   .payload = out_bytes(&saving->text)}};
    saving->job.batch.ops = &saving->op;
    saving->job.batch.count = 1;
    saving->job.errand.home = worker;
    saving->job.errand.back = back;
    saving->job.render = save_render;
    saving->job.shard = shard_of_name(worker->server, OWN_NAMESPACE, saving->op.timer.name);
    job_submit(&saving->job);
    return 0;
}

static void saving_free(struct saving *saving)
{
    if (saving->text.data)
        explicit_bzero(saving->text.data, saving->text.capacity);
    out_free(&saving->text);
    free(saving);
}

/* The next in this round that has changed; NULL ends the round. Each has its turn once in a round, however busy it is. */
static struct space *next_unsaved(struct spaces *spaces)
{
    struct space *found = NULL;
    pthread_rwlock_rdlock(&spaces->lock);
    for (; spaces->bucket < BUCKETS; spaces->bucket++) {
        for (found = spaces->buckets[spaces->bucket]; found; found = found->next)
            if (found->round != spaces->round && found->saved_pending != atomic_load(&found->pending) &&
                found->name[0] != '\1')
                break;
        if (found)
            break;
    }
    pthread_rwlock_unlock(&spaces->lock);
    if (found) {
        found->round = spaces->round;
    } else {
        spaces->bucket = 0;
        spaces->round++;
    }
    return found;
}

static void flush_next(struct worker *worker);

static void flush_over(struct worker *worker)
{
    void (*done)(struct worker * worker) = worker->server->spaces->flushed;
    worker->server->spaces->flushed = NULL;
    if (done)
        done(worker);
}

static void flushed(struct errand *errand)
{
    struct saving *saving = (struct saving *)errand;
    struct worker *worker = errand->home;
    int result = saving->op.result;
    if (result == 0)
        saving->space->saved_pending = saving->pending;
    if (result == 0 && saving->op.outcome == FL_CREATED)
        atomic_fetch_add(&worker->server->spaces->saved, 1);
    saving_free(saving);
    worker->server->spaces->flushing = false;
    if (result == 0)
        flush_next(worker);
    else
        flush_over(worker);
}

/* One after the other: there is no hurry. */
static void flush_next(struct worker *worker)
{
    struct spaces *spaces = worker->server->spaces;
    if (spaces->flushing)
        return; /* and goes on by itself */
    struct space *space = next_unsaved(spaces);
    struct saving *saving = space ? calloc(1, sizeof *saving) : NULL;
    if (!saving) {
        flush_over(worker);
        return;
    }
    saving->space = space;
    spaces->flushing = true;
    if (save(worker, saving, atomic_load(&space->settings), flushed) < 0) {
        spaces->flushing = false;
        saving_free(saving);
        flush_over(worker);
    }
}

static void flush_now(fl_loop *loop, void *arg)
{
    (void)loop;
    flush_next(arg);
}

/* The first timer of a namespace: it is written down at once, or a crash would leave it out of the list. */
void space_used(struct server *server, struct space *space)
{
    if (!atomic_load_explicit(&space->used, memory_order_relaxed) && !atomic_exchange(&space->used, true))
        fl_loop_post(server->workers[0].loop, flush_now, &server->workers[0]);
}

void spaces_flush(struct worker *worker, void (*done)(struct worker *worker))
{
    worker->server->spaces->flushed = done;
    flush_next(worker);
}

/* --- Reading them at the start ------------------------------------------------------------------------------------ */

struct loading {
    struct page page;
    void (*done)(struct worker *worker);
};

static void take_in(struct server *server, const fl_durable *timer)
{
    struct json object, key, value;
    struct problem problem;
    size_t at;
    const char *why;
    struct space *space = space_of(server, timer->name);
    struct settings *settings = space ? calloc(1, sizeof *settings) : NULL;
    if (!settings || json_parse(timer->payload, &object, &at, &why) < 0 || object.kind != JSON_OBJECT) {
        free(settings);
        return;
    }
    *settings = no_settings;
    atomic_fetch_add(&server->spaces->saved, 1);
    space->used = true;
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);) {
        int64_t pending;
        if (json_is(key, "pending") && json_integer(value, &pending))
            space->pending = space->saved_pending = pending;
        else if (json_is(key, "has_targets") && value.kind == JSON_TRUE)
            server->has_targets = space->has_targets = true;
        else if (json_is(key, "settings") && settings_read(value, &no_settings, settings, &problem) < 0)
            log_error("the settings of a namespace are not understood", "namespace", space->name, "why", problem.detail,
                      NULL);
    }
    if (settings_take(server, space, settings) < 0)
        settings_free(settings);
}

static void load_render(struct page *page)
{
    for (size_t i = 0; i < page->listing.count; i++)
        take_in(page->shard->worker->server, &page->listing.found[i].timer);
}

static void let_go(struct tour *tour, struct worker *worker)
{
    struct server *server = worker->server;
    (void)tour;
    for (uint32_t i = worker->index; i < server->shard_count; i += server->worker_count) {
        fl_engine *engine = server->shards[i].engine;
        if (!engine)
            continue;
        for (size_t k = 0; k < BUCKETS; k++)
            for (struct space *space = server->spaces->buckets[k]; space; space = space->next) {
                uint64_t skip_us = atomic_load(&space->settings)->skip_older_us;
                if (skip_us != UINT64_MAX)
                    fl_engine_skip_older(engine, (fl_bytes){space->name, space->size}, skip_us);
            }
        fl_engine_go(engine);
    }
}

static void all_let_go(struct tour *tour)
{
    free(tour);
}

static void loaded(struct errand *errand)
{
    struct loading *loading = (struct loading *)errand;
    struct worker *worker = errand->home;
    struct server *server = worker->server;
    if (loading->page.listing.result == 0 && loading->page.listing.more) {
        page_submit(&loading->page);
        return;
    }
    if (loading->page.listing.result == 0 && loading->page.shard->number + 1 < server->shard_count) {
        loading->page.shard++;
        loading->page.listing.cursor = (fl_cursor){{0}};
        page_submit(&loading->page);
        return;
    }
    if (loading->page.listing.result < 0)
        log_error("the settings of namespaces could not be read", "why", fl_strerror(loading->page.listing.result),
                  NULL);
    loading->done(worker);
    free(loading);
    struct tour *tour = calloc(1, sizeof *tour);
    if (tour) {
        tour->fn = let_go;
        tour->back = all_let_go;
        tour_begin(tour, worker);
    }
    fl_loop_interval(worker->loop, FLUSH_NS, FL_TIMER_UNREF, flush_now, worker, &server->spaces->flush_timer);
}

/* Nothing fires before this is over: what was missed may be to be skipped. */
void spaces_load(struct worker *worker, void (*done)(struct worker *worker))
{
    struct loading *loading = calloc(1, sizeof *loading);
    if (!loading)
        abort();
    loading->done = done;
    loading->page.errand.home = worker;
    loading->page.errand.back = loaded;
    loading->page.render = load_render;
    loading->page.shard = worker->server->shards;
    loading->page.listing.ns = OWN_NAMESPACE;
    loading->page.listing.from_us = FL_STORE_TIME_END - 1;
    loading->page.listing.limit = PAGE;
    page_submit(&loading->page);
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

static void write_space(struct out *out, struct space *space)
{
    out_text(out, "{\"namespace\":");
    out_string(out, (fl_bytes){space->name, space->size});
    int64_t pending = atomic_load(&space->pending);
    out_format(out, ",\"pending\":%" PRId64 ",\"settings\":", pending > 0 ? pending : 0);
    settings_write(out, atomic_load(&space->settings), false);
    out_text(out, "}");
}

void namespaces_get(struct call *call)
{
    struct spaces *spaces = call->worker->server->spaces;
    size_t count = 0;
    out_text(&call->out, "{\"namespaces\":[");
    pthread_rwlock_rdlock(&spaces->lock);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct space *space = spaces->buckets[i]; space; space = space->next)
            if (space->name[0] != '\1' && call_may(call, RIGHT_READ, (fl_bytes){space->name, space->size})) {
                if (count++ > 0)
                    out_put(&call->out, ",", 1);
                write_space(&call->out, space);
            }
    pthread_rwlock_unlock(&spaces->lock);
    out_text(&call->out, "]}");
    call_answer(call, 200);
}

/* One that nobody has used is as if it were there, but who only looks does not make it. */
void namespace_get(struct call *call)
{
    struct spaces *spaces = call->worker->server->spaces;
    struct space unused = {.name = call->ns_room, .size = call->ns.size, .settings = &no_settings};
    pthread_rwlock_rdlock(&spaces->lock);
    struct space *space = find(spaces, call->ns, hash_of(call->ns));
    pthread_rwlock_unlock(&spaces->lock);
    write_space(&call->out, space ? space : &unused);
    call_answer(call, 200);
}

struct skip_tour {
    struct tour tour;
    struct space *space;
};

static void skip_visit(struct tour *tour, struct worker *worker)
{
    struct server *server = worker->server;
    const struct space *space = ((struct skip_tour *)tour)->space;
    for (uint32_t i = worker->index; i < server->shard_count; i += server->worker_count)
        if (server->shards[i].engine)
            fl_engine_skip_older(server->shards[i].engine, (fl_bytes){space->name, space->size},
                                 atomic_load(&space->settings)->skip_older_us);
}

static void skip_back(struct tour *tour)
{
    free(tour);
}

static void put_back(struct errand *errand)
{
    struct saving *saving = (struct saving *)errand;
    struct call *call = saving->call;
    struct worker *worker = call->worker;
    struct space *space = saving->space;
    int result = saving->op.result;
    if (result == 0 && saving->op.outcome == FL_CREATED)
        atomic_fetch_add(&worker->server->spaces->saved, 1);
    if (result == 0)
        result = settings_take(worker->server, space, saving->settings);
    if (result < 0)
        settings_free(saving->settings);
    saving_free(saving);
    struct skip_tour *tour = result == 0 ? calloc(1, sizeof *tour) : NULL;
    if (tour) {
        *tour = (struct skip_tour){.tour = {.fn = skip_visit, .back = skip_back}, .space = space};
        tour_begin(&tour->tour, worker);
    }
    if (result < 0) {
        call_refuse_result(call, result);
        return;
    }
    write_space(&call->out, space);
    call_answer(call, 200);
}

void namespace_put(struct call *call)
{
    struct json body;
    struct space *space = space_of(call->worker->server, call->ns);
    struct saving *saving = space ? calloc(1, sizeof *saving) : NULL;
    struct settings *settings = saving ? calloc(1, sizeof *settings) : NULL;
    if (!settings) {
        free(saving);
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    if (call_json(call, &body) < 0) {
        free(settings);
        free(saving);
        return;
    }
    *saving = (struct saving){.space = space, .call = call, .settings = settings};
    if (settings_read(body, atomic_load(&space->settings), settings, &call->problem) < 0 ||
        (save(call->worker, saving, settings, put_back) < 0 && problem_of_result(&call->problem, FL_NO_MEMORY))) {
        settings_free(settings);
        saving_free(saving);
        call_refuse(call);
    }
}

/* --- Metrics ------------------------------------------------------------------------------------------------------ */

/* How many of the store's timers are ours. */
uint64_t spaces_saved(struct server *server)
{
    return atomic_load(&server->spaces->saved);
}

static void write_label(struct out *out, const struct space *space)
{
    for (size_t i = 0; i < space->size; i++) {
        if (space->name[i] == '"' || space->name[i] == '\\')
            out_put(out, "\\", 1);
        out_put(out, &space->name[i], 1);
    }
}

static void write_family(struct server *server, struct out *out, const char *name, const char *type, const char *help,
                         int64_t (*value)(struct space *))
{
    out_format(out, "# HELP foliot_%s %s\n# TYPE foliot_%s %s\n", name, help, name, type);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct space *space = server->spaces->buckets[i]; space; space = space->next)
            if (space->name[0] != '\1') {
                out_format(out, "foliot_%s{namespace=\"", name);
                write_label(out, space);
                out_format(out, "\"} %" PRId64 "\n", value(space));
            }
}

static int64_t pending_of(struct space *space)
{
    int64_t pending = atomic_load(&space->pending);
    return pending > 0 ? pending : 0;
}

static int64_t fired_of(struct space *space)
{
    return atomic_load(&space->fired);
}

static int64_t failed_of(struct space *space)
{
    return atomic_load(&space->failed);
}

static int64_t dead_of(struct space *space)
{
    return atomic_load(&space->dead);
}

void spaces_metrics(struct server *server, struct out *out)
{
    pthread_rwlock_rdlock(&server->spaces->lock);
    write_family(server, out, "namespace_timers_pending", "gauge", "Timers that have not fired.", pending_of);
    write_family(server, out, "namespace_attempts_done_total", "counter", "Attempts that succeeded.", fired_of);
    write_family(server, out, "namespace_attempts_failed_total", "counter", "Attempts that failed.", failed_of);
    write_family(server, out, "namespace_timers_dead_total", "counter", "Timers given up.", dead_of);
    pthread_rwlock_unlock(&server->spaces->lock);
}
