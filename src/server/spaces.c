/* SPDX-License-Identifier: MIT */
/* Namespaces, and what was set for them. How much is in them is counted in counts.c.
 *
 * One that is used once is there until the process ends; so a pointer to it is good everywhere, and so is one to its settings,
 * which are replaced as a whole (what was replaced is kept until the end: it is small, and seldom).
 *
 * Where settings are kept: those of a namespace are a timer of its own in the store, in a namespace that no user can name, due
 * on the last day there is; so they are as durable as the timers they are about, on every store, and are read before anything
 * fires. Every server knows them all: whoever changes them tells the others, which read them again; and who could not be
 * told reads all of them when it can be reached again. */

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "server/json.h"
#include "server/log.h"
#include "server/server.h"
#include "server/timer.h"
#include "server/when.h"
#include "server/wire.h"

#define AGAIN_NS (100 * 1000000ull)
#define TELL_NS (10 * 1000000000ull)

enum { BUCKETS = 4096, PAGE = 1000 };

struct spaces {
    pthread_rwlock_t lock;
    pthread_mutex_t gathering; /* whoever writes how much others have */
    struct space *buckets[BUCKETS];
    struct kept {
        struct kept *next;
        struct settings *settings;
    } * kept;
};

static const struct settings no_settings = {.skip_older_us = UINT64_MAX};

int spaces_new(struct server *server)
{
    server->spaces = calloc(1, sizeof *server->spaces);
    if (!server->spaces)
        return FL_NO_MEMORY;
    pthread_rwlock_init(&server->spaces->lock, NULL);
    pthread_mutex_init(&server->spaces->gathering, NULL);
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
    pthread_mutex_destroy(&spaces->gathering);
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

static struct space *space_if_any(struct server *server, fl_bytes ns)
{
    pthread_rwlock_rdlock(&server->spaces->lock);
    struct space *space = find(server->spaces, ns, hash_of(ns));
    pthread_rwlock_unlock(&server->spaces->lock);
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

/* Takes in what the store has for a namespace. */
void spaces_take(struct server *server, const fl_durable *timer)
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
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);)
        if (json_is(key, "settings") && settings_read(value, &no_settings, settings, &problem) < 0)
            log_error("the settings of a namespace are not understood", "namespace", space->name, "why", problem.detail,
                      NULL);
    if (settings_take(server, space, settings) < 0)
        settings_free(settings);
}

void spaces_tell_engine(struct shard *shard)
{
    struct spaces *spaces = shard->worker->server->spaces;
    pthread_rwlock_rdlock(&spaces->lock);
    for (size_t k = 0; k < BUCKETS; k++)
        for (struct space *space = spaces->buckets[k]; space; space = space->next) {
            uint64_t skip_us = atomic_load(&space->settings)->skip_older_us;
            if (skip_us != UINT64_MAX)
                fl_engine_skip_older(shard->engine, (fl_bytes){space->name, space->size}, skip_us);
        }
    pthread_rwlock_unlock(&spaces->lock);
}

struct loading {
    struct page page;
    void (*done)(struct worker *worker);
    uint64_t told_ns; /* when it was last said that this takes long; 0: never */
};

static void load_render(struct page *page)
{
    for (size_t i = 0; i < page->listing.count; i++)
        spaces_take(page->errand.home->server, &page->listing.found[i].timer);
}

static void let_go(struct tour *tour, struct worker *worker)
{
    struct server *server = worker->server;
    (void)tour;
    for (uint32_t i = worker->index; i < server->shard_count; i += server->worker_count)
        if (server->shards[i].engine)
            shard_let_go(&server->shards[i]);
}

static void all_let_go(struct tour *tour)
{
    free(tour);
}

static void load_again(fl_loop *loop, void *arg)
{
    struct loading *loading = arg;
    (void)loop;
    page_submit(&loading->page);
}

/* It is said at once, and then every ten seconds: until they are known, nothing fires here. */
static void tell_trouble(struct loading *loading)
{
    uint64_t now_ns = fl_loop_now_ns(loading->page.errand.home->loop);
    const struct shard *shard = loading->page.shard;
    const struct peer *peer = atomic_load(&shard->peer);
    if (now_ns < loading->told_ns + TELL_NS && loading->told_ns > 0)
        return;
    loading->told_ns = now_ns;
    log_warning("the settings of namespaces cannot be read yet, and are asked for again: until then nothing fires here",
                "shard", log_int(shard->number), "server", peer ? peer->address : "none", NULL);
}

static void loaded(struct errand *errand)
{
    struct loading *loading = (struct loading *)errand;
    struct worker *worker = errand->home;
    struct server *server = worker->server;
    fl_listing *listing = &loading->page.listing;
    if (listing->result < 0 && !atomic_load(&server->stopping) &&
        fl_loop_timer(worker->loop, AGAIN_NS, load_again, loading, NULL) == 0) {
        if (!atomic_load(&server->settings_known))
            tell_trouble(loading);
        return;
    }
    if (listing->result == 0 && !listing->more && loading->page.shard->number + 1 < server->shard_count) {
        loading->page.shard++;
        listing->cursor = (fl_cursor){{0}};
        listing->more = true;
    }
    if (listing->result == 0 && listing->more) {
        page_submit(&loading->page);
        return;
    }
    if (loading->done)
        loading->done(worker);
    free(loading);
    atomic_store(&server->settings_known, true);
    struct tour *tour = calloc(1, sizeof *tour);
    if (tour) {
        tour->fn = let_go;
        tour->back = all_let_go;
        tour_begin(tour, worker);
    }
}

/* Nothing fires before this is over: what was missed may be to be skipped. */
void spaces_load(struct worker *worker, void (*done)(struct worker *worker))
{
    struct loading *loading = calloc(1, sizeof *loading);
    if (!loading)
        abort();
    loading->done = done;
    loading->page.errand.home = worker;
    loading->page.back = loaded;
    loading->page.render = load_render;
    loading->page.shard = worker->server->shards;
    loading->page.listing.ns = SETTINGS_NAMESPACE;
    loading->page.listing.from_us = FL_STORE_TIME_END - 1;
    loading->page.listing.limit = PAGE;
    page_submit(&loading->page);
}

/* --- When they have changed --------------------------------------------------------------------------------------- */

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

static void tell_engines(struct worker *worker, struct space *space)
{
    struct skip_tour *tour = calloc(1, sizeof *tour);
    if (!tour)
        return;
    *tour = (struct skip_tour){.tour = {.fn = skip_visit, .back = skip_back}, .space = space};
    tour_begin(&tour->tour, worker);
}

struct reloading {
    struct job job;
    fl_op op;
    struct space *space;
};

static void reload_render(struct job *job)
{
    const fl_op *op = job->batch.ops;
    if (op->result == 0)
        spaces_take(job->errand.home->server, &op->timer);
}

static void reload_back(struct errand *errand)
{
    struct reloading *reloading = (struct reloading *)errand;
    tell_engines(errand->home, reloading->space);
    free(reloading);
}

void spaces_reload(struct worker *worker, fl_bytes ns)
{
    struct space *space = space_of(worker->server, ns);
    struct reloading *reloading = space ? calloc(1, sizeof *reloading) : NULL;
    if (!reloading)
        return;
    fl_bytes name = {space->name, space->size};
    reloading->space = space;
    reloading->op = (fl_op){.kind = FL_OP_GET, .timer = {.ns = SETTINGS_NAMESPACE, .name = name}};
    reloading->job = (struct job){.errand.home = worker,
                                  .batch = {.ops = &reloading->op, .count = 1},
                                  .render = reload_render,
                                  .back = reload_back,
                                  .shard = shard_of_name(worker->server, SETTINGS_NAMESPACE, name)};
    job_submit(&reloading->job);
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

static void write_space(struct out *out, struct space *space)
{
    out_text(out, "{\"namespace\":");
    out_string(out, (fl_bytes){space->name, space->size});
    out_format(out, ",\"pending\":%" PRId64 ",\"settings\":", space_pending(space));
    settings_write(out, atomic_load(&space->settings), false);
    out_text(out, "}");
}

static void namespaces_answer(void *arg)
{
    struct call *call = arg;
    struct spaces *spaces = call->worker->server->spaces;
    size_t count = 0;
    out_text(&call->out, "{\"namespaces\":[");
    pthread_rwlock_rdlock(&spaces->lock);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct space *space = spaces->buckets[i]; space; space = space->next) {
            fl_bytes name = {space->name, space->size};
            if (!is_own_namespace(name) && call_may(call, RIGHT_READ, name)) {
                if (count++ > 0)
                    out_put(&call->out, ",", 1);
                write_space(&call->out, space);
            }
        }
    pthread_rwlock_unlock(&spaces->lock);
    out_text(&call->out, "]}");
    call_answer(call, 200);
}

void namespaces_get(struct call *call)
{
    servers_gather(call->worker, (fl_bytes){0}, namespaces_answer, call);
}

/* One that nobody has used is as if it were there, but who only looks does not make it. */
static void namespace_answer(void *arg)
{
    struct call *call = arg;
    struct space unused = {.name = call->ns_room, .size = call->ns.size, .settings = &no_settings};
    struct space *space = space_if_any(call->worker->server, call->ns);
    write_space(&call->out, space ? space : &unused);
    call_answer(call, 200);
}

void namespace_get(struct call *call)
{
    servers_gather(call->worker, call->ns, namespace_answer, call);
}

/* Settings on their way into the store. */
struct saving {
    struct job job;
    fl_op op;
    struct space *space;
    struct out text;
    struct call *call;
    struct settings *settings;
};

static void save_render(struct job *job)
{
    (void)job;
}

static void saving_free(struct saving *saving)
{
    if (saving->text.data)
        explicit_bzero(saving->text.data, saving->text.capacity);
    out_free(&saving->text);
    free(saving);
}

static void put_back(struct errand *errand)
{
    struct saving *saving = (struct saving *)errand;
    struct call *call = saving->call;
    struct space *space = saving->space;
    int result = saving->op.result;
    if (result == 0)
        result = settings_take(call->worker->server, space, saving->settings);
    if (result < 0)
        settings_free(saving->settings);
    saving_free(saving);
    if (result < 0) {
        call_refuse_result(call, result);
        return;
    }
    tell_engines(call->worker, space);
    servers_tell_settings(call->worker, call->ns);
    namespace_get(call);
}

static int save(struct saving *saving)
{
    struct space *space = saving->space;
    struct worker *worker = saving->call->worker;
    out_text(&saving->text, "{\"settings\":");
    settings_write(&saving->text, saving->settings, true);
    out_text(&saving->text, "}");
    if (saving->text.failed)
        return problem_of_result(&saving->call->problem, FL_NO_MEMORY);
    saving->op = (fl_op){.kind = FL_OP_CREATE,
                         .timer = {.ns = SETTINGS_NAMESPACE,
                                   .name = {space->name, space->size},
                                   .due_us = FL_STORE_TIME_END - 1,
                                   .payload = out_bytes(&saving->text)}};
    saving->job = (struct job){.errand.home = worker,
                               .batch = {.ops = &saving->op, .count = 1},
                               .render = save_render,
                               .back = put_back,
                               .shard = shard_of_name(worker->server, SETTINGS_NAMESPACE, saving->op.timer.name)};
    job_submit(&saving->job);
    return 0;
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
    if (settings_read(body, atomic_load(&space->settings), settings, &call->problem) < 0 || save(saving) < 0) {
        settings_free(settings);
        saving_free(saving);
        call_refuse(call);
    }
}

/* --- How much there is elsewhere ---------------------------------------------------------------------------------- */

static void put_count(struct out *out, struct space *space)
{
    wire_put_bytes(out, (fl_bytes){space->name, space->size});
    wire_put_signed(out, atomic_load(&space->pending)); /* below 0 after a crash: what is too much elsewhere */
}

void spaces_put_counts(struct server *server, fl_bytes ns, struct out *out)
{
    struct spaces *spaces = server->spaces;
    pthread_rwlock_rdlock(&spaces->lock);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct space *space = spaces->buckets[i]; space; space = space->next) {
            fl_bytes name = {space->name, space->size};
            if (!is_own_namespace(name) &&
                (ns.size == 0 || (ns.size == name.size && memcmp(ns.data, name.data, ns.size) == 0)))
                put_count(out, space);
        }
    pthread_rwlock_unlock(&spaces->lock);
}

static void forget_counts(struct server *server, fl_bytes ns)
{
    struct spaces *spaces = server->spaces;
    struct space *only = ns.size > 0 ? space_if_any(server, ns) : NULL;
    if (only)
        atomic_store_explicit(&only->elsewhere, 0, memory_order_relaxed);
    if (ns.size > 0)
        return;
    pthread_rwlock_rdlock(&spaces->lock);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct space *space = spaces->buckets[i]; space; space = space->next)
            atomic_store_explicit(&space->elsewhere, 0, memory_order_relaxed);
    pthread_rwlock_unlock(&spaces->lock);
}

void spaces_take_counts(struct server *server, fl_bytes ns, const struct out *answers, size_t count)
{
    pthread_mutex_lock(&server->spaces->gathering);
    forget_counts(server, ns);
    for (size_t i = 0; i < count; i++)
        for (struct wire wire = wire_begin(out_bytes(&answers[i])); wire.at < wire.end;) {
            struct space *space = space_of(server, wire_bytes(&wire));
            int64_t pending = wire_signed(&wire);
            if (space && !wire.bad)
                atomic_fetch_add_explicit(&space->elsewhere, pending, memory_order_relaxed);
        }
    pthread_mutex_unlock(&server->spaces->gathering);
}

/* --- Metrics ------------------------------------------------------------------------------------------------------ */

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
