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
 * Settings in memory are replaced as a whole, and freed when no worker can be using them any more. */

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/internal.h"
#include "text/log.h"

#define AGAIN_NS (100 * 1000000ull)

enum { TRIES = 1000 }; /* each one that fails means that another change has succeeded */

/* --- In memory ---------------------------------------------------------------------------------------------------- */

/* Settings that were replaced. A worker uses settings only within a callback, so they can be freed when every worker has been
 * visited since. */
struct retired {
    struct tour tour;
    struct settings *settings;
};

static void retired_visit(struct tour *tour, struct worker *worker)
{
    (void)tour, (void)worker;
}

static void retired_back(struct tour *tour)
{
    settings_free(((struct retired *)tour)->settings);
    free(tour);
}

/* Under the lock of all namespaces. A page of a list may be older than what the queue of changes has found. */
static bool stays_as_it_is(const struct space *space, const struct settings *settings, bool from_page)
{
    const struct settings *now = atomic_load_explicit(&space->settings, memory_order_relaxed);
    return (from_page && space->found) || settings_are_same(now, settings ? settings : &no_settings);
}

static void note_pauses(struct node *node, const struct space *space)
{
    atomic_store(&node->has_pauses, true);
    if (is_host_space(space_name(space)))
        atomic_store(&node->has_host_pauses, true);
}

/* Makes settings those of a namespace, which owns them from then on, even on failure. NULL: it has none. With `from_page`, a
 * namespace stays as it is if a change has found its settings. Returns 0; 1 if there has been a change, so that the page may be
 * older; or FL_NO_MEMORY. */
static int replace(struct worker *here, struct space *space, struct settings *settings, bool from_page)
{
    struct spaces *spaces = here->node->spaces;
    if (settings && (settings->pauses.now.since_us > 0 || settings->pauses.past_count > 0))
        note_pauses(here->node, space);
    struct retired *retired = malloc(sizeof *retired);
    if (!retired) {
        settings_free(settings);
        return FL_NO_MEMORY;
    }
    pthread_rwlock_wrlock(&spaces->lock);
    bool changed = from_page && space->changed;
    const struct settings *old = settings;
    space->found |= !from_page;
    if (!stays_as_it_is(space, settings, from_page))
        old = atomic_exchange_explicit(&space->settings, settings ? settings : &no_settings, memory_order_acq_rel);
    pthread_rwlock_unlock(&spaces->lock);
    *retired = (struct retired){.tour = {.fn = retired_visit, .back = retired_back},
                                .settings = old == &no_settings ? NULL : (struct settings *)(uintptr_t)old};
    if (retired->settings && old != settings)
        tour_begin(&retired->tour, here);
    else
        retired_back(&retired->tour);
    return changed;
}

/* The settings that a row has; NULL: no memory, or it cannot be read. */
static struct settings *settings_of_row(const struct node *node, const fl_durable *timer)
{
    struct settings *settings = calloc(1, sizeof *settings);
    if (!settings)
        return NULL;
    *settings = no_settings;
    if (node->ports->settings_read(timer->payload, timer->name, settings) == 0)
        return settings;
    settings_free(settings);
    return NULL;
}

void settings_take(struct worker *here, const fl_durable *timer)
{
    struct node *node = here->node;
    struct space *space = space_of(node, timer->name);
    struct settings *settings = space ? settings_of_row(node, timer) : NULL;
    if (!settings)
        return;
    atomic_store(&space->load, atomic_load(&node->spaces->loads));
    if (replace(here, space, settings, true) == 1)
        settings_reload(node, space);
}

/* --- For engines ---------------------------------------------------------------------------------------------------- */

void settings_tell_engine(struct shard *shard)
{
    struct spaces *spaces = shard->worker->node->spaces;
    pthread_rwlock_rdlock(&spaces->lock);
    for (const struct space *space = spaces->first; space; space = space->next)
        if (atomic_load(&space->settings) != &no_settings)
            pause_tell_engine(shard, space);
    pthread_rwlock_unlock(&spaces->lock);
}

struct skip_tour {
    struct tour tour;
    struct space *space;
};

static void skip_visit(struct tour *tour, struct worker *worker)
{
    struct node *node = worker->node;
    const struct space *space = ((struct skip_tour *)tour)->space;
    for (uint32_t i = worker->index; i < node->shard_count; i += node->worker_count)
        if (node->shards[i].engine)
            pause_tell_engine(&node->shards[i], space);
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
    struct shard_call call;
    fl_op op;
    struct space *space;
    struct worker *home;       /* of the namespace */
    struct worker *asker;      /* NULL: the stored settings are only read again */
    struct settings *settings; /* that are asked for; NULL: none */
    unsigned keep;             /* SETTING_…: those stay as they are stored */
    struct pause_request pause;
    bool paused, resumed;    /* the pause has begun, or ended */
    int64_t since_us;        /* when it began */
    struct settings *stored; /* NULL: there is no row */
    fl_key row;              /* its ID */
    unsigned tries;
    int result;
    struct out text;
    void (*done)(void *arg, int result); /* on the asker's worker */
    void *arg;
    struct change *next;
};

static void change_read(struct change *change);

static void change_free(struct change *change)
{
    if (change->text.data)
        explicit_bzero(change->text.data, change->text.capacity);
    out_free(&change->text);
    settings_free(change->settings);
    settings_free(change->stored);
    free(change);
}

static void tell_pause(const struct change *change)
{
    const struct pause_request *pause = &change->pause;
    if (change->paused || change->resumed)
        change->asker->node->ports->publish(change->asker, change->paused ? EVENT_PAUSED : EVENT_RESUMED, 0,
                                            &(fl_durable){.ns = space_name(change->space),
                                                          .created_us = change->since_us,
                                                          .due_us = change->paused ? pause->until_us : 0},
                                            (fl_bytes){pause->reason, change->paused ? pause->reason_size : 0});
}

static void change_home(fl_loop *loop, void *arg)
{
    struct change *change = arg;
    void (*done)(void *, int) = change->done;
    void *done_arg = change->arg;
    int result = change->result;
    (void)loop;
    if (result == 0) {
        tell_pause(change);
        tell_engines(change->asker, change->space);
        servers_tell_settings(change->asker, space_name(change->space));
    }
    change_free(change);
    done(done_arg, result);
}

static void read_again(fl_loop *loop, void *arg)
{
    struct change *change = arg;
    (void)loop;
    change->home->under_way--;
    if (!atomic_load(&change->home->node->stopping))
        settings_reload(change->home->node, change->space);
    change_free(change);
}

/* The first of the queue is over: the next one begins. */
static void change_end(struct change *change, int result)
{
    struct space *space = change->space;
    struct worker *home = change->home;
    fl__assert(space->changes == change);
    space->changes = change->next;
    if (!space->changes)
        space->changes_last = NULL;
    change->result = result;
    if (change->asker) {
        change->task = (fl_loop_task){.fn = change_home, .arg = change};
        if (result == FL_OUTCOME_UNKNOWN)
            settings_reload(home->node, space);
        fl_loop_post_task(change->asker->loop, &change->task);
    } else if (result < 0 && !atomic_load(&home->node->stopping) &&
               fl_loop_timer(home->loop, AGAIN_NS, read_again, change, NULL) == 0) {
        home->under_way++;
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
    return replace(change->home, change->space, taken, false);
}

/* Settings that are all default need no row. */
static bool wants_none(const struct change *change)
{
    const struct settings *settings = change->settings;
    return !settings ||
           (settings_are_default(settings) && settings->pauses.now.since_us == 0 && settings->pauses.past_count == 0);
}

static int take_wanted(struct change *change)
{
    struct settings *none = NULL;
    return take(change, wants_none(change) ? &none : &change->settings);
}

static void nothing_to_render(struct shard_call *call)
{
    (void)call;
}

static void written(struct shard_call *over)
{
    struct change *change = (struct change *)((char *)over - offsetof(struct change, call));
    int result = change->op.result;
    if ((result == FL_EXISTS || result == FL_TIMER_NOT_FOUND) && change->tries < TRIES)
        change_read(change);
    else
        change_end(change, result < 0 ? result : take_wanted(change));
}

static void submit(struct change *change, fl_op op, void (*render)(struct shard_call *),
                   void (*done)(struct shard_call *))
{
    struct node *node = change->home->node;
    change->op = op;
    change->call = (struct shard_call){.errand.home = change->home,
                                       .batch = {.ops = &change->op, .count = 1},
                                       .render = render,
                                       .done = done,
                                       .shard = shard_of_name(node, SETTINGS_NAMESPACE, space_name(change->space))};
    shard_call_submit(&change->call);
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
    change->home->node->ports->settings_write(&change->text, change->settings);
    if (change->text.failed) {
        change_end(change, FL_NO_MEMORY);
        return;
    }
    submit(change,
           (fl_op){.kind = FL_OP_CREATE,
                   .flags = exists ? FL_OP_ONLY_THIS : FL_OP_ONLY_NEW,
                   .timer = {.ns = SETTINGS_NAMESPACE,
                             .name = space_name(change->space),
                             .id = change->row,
                             .due_us = FL_STORE_TIME_END - 1,
                             .payload = out_bytes(&change->text)}},
           nothing_to_render, written);
}

static void read_render(struct shard_call *call)
{
    struct change *change = (struct change *)((char *)call - offsetof(struct change, call));
    if (change->op.result < 0)
        return;
    change->row = change->op.timer.id;
    change->stored = settings_of_row(change->home->node, &change->op.timer);
    if (!change->stored)
        change->op.result = FL_NO_MEMORY;
}

static void apply_pause(struct change *change)
{
    const struct pause_request *request = &change->pause;
    if (request->kind == PAUSE_NONE)
        return;
    int64_t now_us = node_now(change->home->node);
    bool is_past = request->until_us > 0 && request->until_us <= now_us;
    fl__assert(change->settings); /* a pause is written into them */
    struct pauses *pauses = &change->settings->pauses;
    change->since_us = pauses->now.since_us;
    if (request->kind == PAUSE_BEGIN && !is_past) {
        change->paused =
            pauses_begin(pauses, now_us, request->until_us, (fl_bytes){request->reason, request->reason_size});
        change->since_us = pauses->now.since_us;
    } else {
        change->resumed = pauses_end(pauses, now_us, request->skip);
    }
}

static void read_back(struct shard_call *over)
{
    struct change *change = (struct change *)((char *)over - offsetof(struct change, call));
    int result = change->op.result;
    if (result < 0 && result != FL_TIMER_NOT_FOUND) {
        change_end(change, result);
        return;
    }
    if (!change->asker) {
        change_end(change, take(change, &change->stored));
        return;
    }
    const struct settings *stored = change->stored ? change->stored : &no_settings;
    if (change->settings && settings_copy(stored, change->settings, change->keep) < 0) {
        change_end(change, FL_NO_MEMORY);
    } else {
        apply_pause(change);
        write_row(change);
    }
}

static void change_read(struct change *change)
{
    struct spaces *spaces = change->home->node->spaces;
    change->tries++;
    settings_free(change->stored);
    change->stored = NULL;
    change->row = (fl_key){0};
    pthread_rwlock_wrlock(&spaces->lock);
    change->space->changed = true;
    pthread_rwlock_unlock(&spaces->lock);
    submit(change, (fl_op){.kind = FL_OP_GET, .timer = {.ns = SETTINGS_NAMESPACE, .name = space_name(change->space)}},
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
static int change_begin(struct node *node, struct space *space, struct change from)
{
    struct change *change = space ? malloc(sizeof *change) : NULL;
    if (!change)
        return FL_NO_MEMORY;
    *change = from;
    change->space = space;
    change->home = pull_home(node, space);
    change->task = (fl_loop_task){.fn = change_arrive, .arg = change};
    fl_loop_post_task(change->home->loop, &change->task);
    return 0;
}

void settings_reload(struct node *node, struct space *space)
{
    if (change_begin(node, space, (struct change){0}) < 0)
        log_error("no memory to read the settings of a namespace again", NULL);
}

void settings_change(struct worker *worker, fl_bytes ns, struct settings *settings, unsigned keep,
                     void (*done)(void *arg, int result), void *arg)
{
    struct space *space = settings ? space_of(worker->node, ns) : space_if_any(worker->node, ns);
    struct change change = {.asker = worker, .settings = settings, .keep = keep, .done = done, .arg = arg};
    int result = !settings && !space ? 0 : change_begin(worker->node, space, change);
    if (result == 0 && space)
        return;
    settings_free(settings);
    done(arg, result);
}

void settings_pause(struct worker *worker, fl_bytes ns, const struct pause_request *request,
                    void (*done)(void *arg, int result), void *arg)
{
    struct settings *settings = calloc(1, sizeof *settings);
    struct space *space = settings ? space_of(worker->node, ns) : NULL;
    struct change change = {
        .asker = worker, .settings = settings, .keep = SETTING_ALL, .pause = *request, .done = done, .arg = arg};
    if (space && change_begin(worker->node, space, change) == 0)
        return;
    settings_free(settings);
    done(arg, FL_NO_MEMORY);
}
