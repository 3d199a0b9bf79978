/* SPDX-License-Identifier: MIT */
/* The settings of namespaces, in the store and in memory.
 *
 * In the store, the settings of a namespace are a timer in a namespace that no user can name, due on the last day there is.
 * So they are as durable as the timers they are about, on every store, and are read before anything fires.
 *
 * A change reads the stored settings, applies what the request says, and replaces exactly the row that it has read
 * (FL_OP_ONLY_THIS). If another server has changed the row meanwhile, the change begins again with what is there now. So
 * concurrent changes take effect one after the other, whichever servers they come to.
 *
 * Within a server, the changes of a namespace go through a queue on one worker, the namespace's home. Only the first of the
 * queue is at work, and it ends with the stored settings in memory. So memory never goes back to older settings. A server that
 * has changed settings tells the others, and these read the row again, through the same queue. A server that could not be told
 * reads all settings when the link is up again.
 *
 * Settings in memory are replaced as a whole. Replaced ones are kept until the process ends: deliveries may still use them. */

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "text/log.h"
#include "node/pull.h"
#include "node/spaces.h"

#define AGAIN_NS (100 * 1000000ull)
#define TELL_NS (10 * 1000000000ull)

enum { PAGE = 1000, TRIES = 1000 }; /* TRIES: each one that fails means that another change has succeeded */

/* --- In memory ---------------------------------------------------------------------------------------------------- */

/* Makes settings those of a namespace, which owns them from then on, even on failure. NULL: it has none. A page of a list may be
 * older than what the queue of changes has found: with `from_page`, a namespace that has had a change stays as it is.
 * Returns 0, 1 if it stays as it is, or FL_NO_MEMORY. */
static int settings_take(struct server *server, struct space *space, struct settings *settings, bool from_page)
{
    struct spaces *spaces = server->spaces;
    struct kept *kept = settings ? malloc(sizeof *kept) : NULL;
    if (settings && !kept) {
        settings_free(settings);
        return FL_NO_MEMORY;
    }
    pthread_rwlock_wrlock(&spaces->lock);
    bool stays = from_page && space->changed;
    if (!stays) {
        atomic_store_explicit(&space->settings, settings ? settings : &no_settings, memory_order_release);
        if (kept) {
            *kept = (struct kept){spaces->kept, settings};
            spaces->kept = kept;
        }
    }
    pthread_rwlock_unlock(&spaces->lock);
    if (stays) {
        free(kept);
        settings_free(settings);
    }
    return stays;
}

/* The settings that a row has; NULL: no memory, or it cannot be read. */
static struct settings *settings_of_row(const fl_durable *timer)
{
    struct json object, key, value;
    struct problem problem;
    size_t at;
    const char *why;
    unsigned given;
    struct settings *settings = calloc(1, sizeof *settings);
    if (!settings || json_parse(timer->payload, &object, &at, &why) < 0 || object.kind != JSON_OBJECT) {
        free(settings);
        return NULL;
    }
    *settings = no_settings;
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);)
        if (json_is(key, "settings") && settings_read(value, settings, &given, &problem) < 0) {
            char name[FL_STORE_NAME_MAX + 1] = "";
            memcpy(name, timer->name.data, timer->name.size);
            log_error("cannot read the stored settings of a namespace; set them again", "namespace", name, "why",
                      problem.detail, NULL);
        }
    return settings;
}

static void read_stored(struct server *server, struct space *space);

void spaces_take(struct server *server, const fl_durable *timer)
{
    struct space *space = space_of(server, timer->name);
    struct settings *settings = space ? settings_of_row(timer) : NULL;
    if (!settings)
        return;
    atomic_store(&space->load, atomic_load(&server->spaces->loads));
    if (settings_take(server, space, settings, true) == 1)
        read_stored(server, space);
}

/* --- For engines ---------------------------------------------------------------------------------------------------- */

void spaces_tell_engine(struct shard *shard)
{
    struct spaces *spaces = shard->worker->server->spaces;
    pthread_rwlock_rdlock(&spaces->lock);
    for (size_t k = 0; k < SPACE_BUCKETS; k++)
        for (struct space *space = spaces->buckets[k]; space; space = space->next) {
            uint64_t skip_us = atomic_load(&space->settings)->skip_older_us;
            if (skip_us != UINT64_MAX)
                fl_engine_skip_older(shard->engine, (fl_bytes){space->name, space->size}, skip_us);
        }
    pthread_rwlock_unlock(&spaces->lock);
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

static void tell_engines(struct worker *worker, struct space *space)
{
    struct skip_tour *tour = calloc(1, sizeof *tour);
    if (!tour)
        return;
    *tour = (struct skip_tour){.tour = {.fn = skip_visit, .back = skip_back}, .space = space};
    tour_begin(&tour->tour, worker);
}

/* --- Changes ------------------------------------------------------------------------------------------------------ */

/* One change of the settings of a namespace, or one look at them. */
struct change {
    fl_loop_task task;
    struct job job;
    fl_op op;
    struct space *space;
    struct worker *home;       /* of the namespace */
    struct call *call;         /* NULL: the stored settings are only read again */
    struct settings *settings; /* that are asked for; NULL: none */
    unsigned keep;             /* SPACE_…: those stay as they are stored */
    struct settings *stored;   /* NULL: there is no row */
    fl_key row;                /* its ID */
    unsigned tries;
    int result;
    struct out text;
    void (*done)(struct call *call, int result); /* on the call's worker */
    struct change *next;
};

static void change_read(struct change *change);

static fl_bytes name_of(const struct space *space)
{
    return (fl_bytes){space->name, space->size};
}

static void change_free(struct change *change)
{
    if (change->text.data)
        explicit_bzero(change->text.data, change->text.capacity);
    out_free(&change->text);
    settings_free(change->settings);
    settings_free(change->stored);
    free(change);
}

static void change_home(fl_loop *loop, void *arg)
{
    struct change *change = arg;
    struct call *call = change->call;
    void (*done)(struct call *, int) = change->done;
    int result = change->result;
    (void)loop;
    if (result == 0) {
        tell_engines(call->worker, change->space);
        servers_tell_settings(call->worker, call->ns);
    }
    change_free(change);
    done(call, result);
}

static void read_again(fl_loop *loop, void *arg)
{
    struct change *change = arg;
    (void)loop;
    read_stored(change->home->server, change->space);
    change_free(change);
}

/* The first of the queue is over: the next one begins. */
static void change_end(struct change *change, int result)
{
    struct space *space = change->space;
    struct worker *home = change->home;
    assert(space->changes == change);
    space->changes = change->next;
    if (!space->changes)
        space->changes_last = NULL;
    change->result = result;
    if (change->call) {
        change->task = (fl_loop_task){.fn = change_home, .arg = change};
        if (result == FL_OUTCOME_UNKNOWN)
            read_stored(home->server, space);
        fl_loop_post_task(change->call->worker->loop, &change->task);
    } else if (result < 0 && !atomic_load(&home->server->stopping) &&
               fl_loop_timer(home->loop, AGAIN_NS, read_again, change, NULL) == 0) {
        log_warning("cannot read the settings of a namespace; trying again", "namespace", space->name, "why",
                    fl_strerror(result), NULL);
    } else {
        if (result == 0)
            tell_engines(home, space);
        change_free(change);
    }
    if (space->changes)
        change_read(space->changes);
}

static int take(struct change *change, struct settings **settings)
{
    struct settings *taken = *settings;
    *settings = NULL;
    return settings_take(change->home->server, change->space, taken, false);
}

/* Settings that are all default need no row. */
static bool wants_none(const struct change *change)
{
    return !change->settings || settings_are_default(change->settings);
}

static int take_wanted(struct change *change)
{
    struct settings *none = NULL;
    return take(change, wants_none(change) ? &none : &change->settings);
}

static void nothing_to_render(struct job *job)
{
    (void)job;
}

static void written(struct errand *errand)
{
    struct change *change = (struct change *)((char *)errand - offsetof(struct change, job));
    int result = change->op.result;
    if ((result == FL_EXISTS || result == FL_TIMER_NOT_FOUND) && change->tries < TRIES)
        change_read(change);
    else
        change_end(change, result < 0 ? result : take_wanted(change));
}

static void submit(struct change *change, fl_op op, void (*render)(struct job *), void (*back)(struct errand *))
{
    struct server *server = change->home->server;
    change->op = op;
    change->job = (struct job){.errand.home = change->home,
                               .batch = {.ops = &change->op, .count = 1},
                               .render = render,
                               .back = back,
                               .shard = shard_of_name(server, SETTINGS_NAMESPACE, name_of(change->space))};
    job_submit(&change->job);
}

static void write_row(struct change *change)
{
    bool exists = change->stored != NULL;
    if (wants_none(change) && !exists) {
        change_end(change, take_wanted(change));
        return;
    }
    if (wants_none(change)) {
        submit(change, (fl_op){.kind = FL_OP_CANCEL, .timer = {.ns = SETTINGS_NAMESPACE, .id = change->row}},
               nothing_to_render, written);
        return;
    }
    out_clear(&change->text);
    out_text(&change->text, "{\"settings\":");
    settings_write(&change->text, change->settings, true);
    out_text(&change->text, "}");
    if (change->text.failed) {
        change_end(change, FL_NO_MEMORY);
        return;
    }
    submit(change,
           (fl_op){.kind = FL_OP_CREATE,
                   .flags = exists ? FL_OP_ONLY_THIS : FL_OP_ONLY_NEW,
                   .timer = {.ns = SETTINGS_NAMESPACE,
                             .name = name_of(change->space),
                             .id = change->row,
                             .due_us = FL_STORE_TIME_END - 1,
                             .payload = out_bytes(&change->text)}},
           nothing_to_render, written);
}

static void read_render(struct job *job)
{
    struct change *change = (struct change *)((char *)job - offsetof(struct change, job));
    if (change->op.result < 0)
        return;
    change->row = change->op.timer.id;
    change->stored = settings_of_row(&change->op.timer);
    if (!change->stored)
        change->op.result = FL_NO_MEMORY;
}

static void read_back(struct errand *errand)
{
    struct change *change = (struct change *)((char *)errand - offsetof(struct change, job));
    int result = change->op.result;
    if (result < 0 && result != FL_TIMER_NOT_FOUND) {
        change_end(change, result);
        return;
    }
    if (!change->call) {
        change_end(change, take(change, &change->stored));
        return;
    }
    const struct settings *stored = change->stored ? change->stored : &no_settings;
    if (change->settings && settings_copy(stored, change->settings, change->keep) < 0)
        change_end(change, FL_NO_MEMORY);
    else
        write_row(change);
}

static void change_read(struct change *change)
{
    struct spaces *spaces = change->home->server->spaces;
    change->tries++;
    settings_free(change->stored);
    change->stored = NULL;
    change->row = (fl_key){0};
    pthread_rwlock_wrlock(&spaces->lock);
    change->space->changed = true;
    pthread_rwlock_unlock(&spaces->lock);
    submit(change, (fl_op){.kind = FL_OP_GET, .timer = {.ns = SETTINGS_NAMESPACE, .name = name_of(change->space)}},
           read_render, read_back);
}

static void change_arrive(fl_loop *loop, void *arg)
{
    struct change *change = arg;
    struct space *space = change->space;
    (void)loop;
    if (space->changes_last)
        space->changes_last->next = change;
    else
        space->changes = change;
    space->changes_last = change;
    if (space->changes == change)
        change_read(change);
}

/* From any thread. */
static int change_begin(struct server *server, struct space *space, struct change from)
{
    struct change *change = space ? malloc(sizeof *change) : NULL;
    if (!change)
        return FL_NO_MEMORY;
    *change = from;
    change->space = space;
    change->home = pull_home(server, space);
    change->task = (fl_loop_task){.fn = change_arrive, .arg = change};
    fl_loop_post_task(change->home->loop, &change->task);
    return 0;
}

static void read_stored(struct server *server, struct space *space)
{
    if (change_begin(server, space, (struct change){0}) < 0)
        log_error("no memory to read the settings of a namespace again", NULL);
}

void spaces_reload(struct worker *worker, fl_bytes ns)
{
    read_stored(worker->server, space_of(worker->server, ns));
}

/* --- Loading all ---------------------------------------------------------------------------------------------------- */

struct loading {
    struct page page;
    void (*done)(struct worker *worker);
    uint64_t number;  /* of this load */
    uint64_t told_ns; /* when the trouble was last logged; 0: never */
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

/* Settings that were known and were not among those that have been read may have been removed: their rows are looked at. */
static void look_for_removed(struct server *server, uint64_t number)
{
    struct spaces *spaces = server->spaces;
    pthread_rwlock_rdlock(&spaces->lock);
    for (size_t i = 0; i < SPACE_BUCKETS; i++)
        for (struct space *space = spaces->buckets[i]; space; space = space->next)
            if (atomic_load(&space->load) < number && atomic_load(&space->settings) != &no_settings)
                read_stored(server, space);
    pthread_rwlock_unlock(&spaces->lock);
}

static void load_again(fl_loop *loop, void *arg)
{
    struct loading *loading = arg;
    (void)loop;
    page_submit(&loading->page);
}

/* Logged at once and then every ten seconds: until the settings are known, nothing fires here. */
static void tell_trouble(struct loading *loading)
{
    uint64_t now_ns = fl_loop_now_ns(loading->page.errand.home->loop);
    const struct shard *shard = loading->page.shard;
    const struct peer *peer = atomic_load(&shard->peer);
    if (now_ns < loading->told_ns + TELL_NS && loading->told_ns > 0)
        return;
    loading->told_ns = now_ns;
    log_warning("cannot read the settings of namespaces yet; trying again, and nothing fires here until then", "shard",
                log_int(shard->number), "server", peer ? peer->address : "none", NULL);
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
    if (listing->result == 0)
        look_for_removed(server, loading->number);
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
    struct spaces *spaces = worker->server->spaces;
    loading->number = atomic_fetch_add(&spaces->loads, 1) + 1;
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

static void load_here(fl_loop *loop, void *arg)
{
    struct server *server = arg;
    (void)loop;
    atomic_store(&server->settings_asked, false);
    atomic_store(&server->settings_old, false);
    if (!atomic_load(&server->stopping))
        spaces_load(&server->workers[0], NULL);
}

/* The database may have gone back to an earlier state, and the settings with it. */
void spaces_load_again(struct server *server)
{
    if (!atomic_load(&server->settings_known) || !atomic_load(&server->settings_old) ||
        atomic_exchange(&server->settings_asked, true))
        return;
    server->settings_task = (fl_loop_task){.fn = load_here, .arg = server};
    fl_loop_post_task(server->workers[0].loop, &server->settings_task);
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

static void put_done(struct call *call, int result)
{
    if (result < 0)
        call_refuse_result(call, result == FL_EXISTS || result == FL_TIMER_NOT_FOUND ? FL_STORE_UNAVAILABLE : result);
    else
        namespace_get(call);
}

void spaces_remove_settings(struct call *call, void (*done)(struct call *call, int result))
{
    struct server *server = call->worker->server;
    struct space *space = space_if_any(server, call->ns);
    if (!space)
        done(call, 0);
    else if (change_begin(server, space, (struct change){.call = call, .done = done}) < 0)
        done(call, FL_NO_MEMORY);
}

/* `kept` are the settings that stay as they are if they are not given. */
static void change_settings(struct call *call, unsigned kept)
{
    struct json body;
    unsigned given = 0;
    struct server *server = call->worker->server;
    struct settings *settings = calloc(1, sizeof *settings);
    if (!settings) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    if (call_json(call, &body) < 0) {
        free(settings);
        return;
    }
    int r = settings_read(body, settings, &given, &call->problem);
    struct change change = {.call = call, .settings = settings, .keep = kept & ~given, .done = put_done};
    if (r == 0 && change_begin(server, space_of(server, call->ns), change) == 0)
        return;
    settings_free(settings);
    if (r == 0)
        problem_of_result(&call->problem, FL_NO_MEMORY);
    call_refuse(call);
}

void namespace_put(struct call *call)
{
    change_settings(call, SPACE_SECRETS);
}

void namespace_patch(struct call *call)
{
    change_settings(call, SPACE_ALL);
}
