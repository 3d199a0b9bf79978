/* SPDX-License-Identifier: MIT */
/* What a worker offers to layers above the runtime, and the parts it is made of. */

#include "rt.h"
#include "runtime/entries.h"
#include "runtime/internal.h"

/* --- Requests */

static atomic_bool asked_enough;

static void *ask_again_and_again(void *arg)
{
    struct fl__worker *worker = arg;
    while (!atomic_load(&asked_enough))
        fl__runtime_request(&worker->requests, &worker->mailbox, REQUEST_SCRUB);
    return NULL;
}

/* Who asks when the worker is not there yet, and goes on when it is, must not take another's request with him. */
TEST(a_worker_hears_that_it_shall_leave_whoever_else_asks_something)
{
    enum { ASKERS = 4, ROUNDS = 500 };
    pthread_t threads[ASKERS];
    fl_runtime *rt = make_runtime(2);
    for (unsigned i = 0; i < ASKERS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, ask_again_and_again, fl__runtime_worker(rt, 1)), 0);
    for (unsigned round = 0; round < ROUNDS; round++)
        CHECK_EQ(fl_runtime_resize(rt, round % 2 + 1), 0); /* hangs if the worker does not hear it */
    atomic_store(&asked_enough, true);
    for (unsigned i = 0; i < ASKERS; i++)
        pthread_join(threads[i], NULL);
    fl_runtime_free(rt);
}

/* --- Messages */

struct note {
    struct fl__message message;
    atomic_uint runs;
    unsigned left; /* how often it sends itself again */
    void (*again)(struct fl__worker *worker, struct fl__message *message);
    struct fl__worker *worker;
};

static void on_note(struct fl__worker *worker, struct fl__message *message)
{
    struct note *note = (struct note *)message;
    CHECK(worker == fl__worker_self());
    note->worker = worker;
    if (note->left > 0) {
        note->left--;
        note->again(worker, message);
    }
    atomic_fetch_add(&note->runs, 1);
}

TEST(a_message_runs_on_the_worker_it_was_sent_to)
{
    fl_runtime *rt = make_runtime(3);
    CHECK(fl__worker_self() == NULL);
    CHECK_EQ(fl__runtime_workers(rt), 3);
    for (unsigned i = 0; i < 30; i++) {
        struct note note = {.message.run = on_note};
        struct fl__worker *worker = fl__runtime_worker(rt, i % 3);
        CHECK_EQ(fl__worker_index(worker), i % 3);
        CHECK(fl__worker_runtime(worker) == rt);
        CHECK(fl__worker_send(worker, &note.message));
        AWAIT(atomic_load(&note.runs) == 1);
        CHECK(note.worker == worker);
    }
    fl_runtime_free(rt);
}

TEST(a_message_may_go_round_and_round)
{
    struct note again = {.message.run = on_note, .left = 5000, .again = fl__worker_again};
    struct note later = {.message.run = on_note, .left = 5000, .again = fl__worker_defer};
    fl_runtime *rt = make_runtime(1);
    CHECK(fl__worker_send(fl__runtime_worker(rt, 0), &again.message));
    CHECK(fl__worker_send(fl__runtime_worker(rt, 0), &later.message));
    AWAIT(atomic_load(&again.runs) == 5001 && atomic_load(&later.runs) == 5001);
    fl_runtime_free(rt);
}

TEST(a_worker_that_has_left_takes_no_message)
{
    struct note note = {.message.run = on_note};
    fl_runtime *rt = make_runtime(2);
    struct fl__worker *worker = fl__runtime_worker(rt, 1);
    CHECK_EQ(fl_runtime_resize(rt, 1), 0);
    CHECK(!fl__worker_send(worker, &note.message));
    CHECK_EQ(fl_runtime_resize(rt, 0), 0);
    fl__runtime_send(rt, &note.message);
    CHECK_EQ(fl_runtime_resize(rt, 1), 0);
    AWAIT(atomic_load(&note.runs) == 1);
    fl_runtime_free(rt);
}

/* --- Local timers */

struct local {
    struct fl__local_timer timer;
    unsigned *order, *length;
    unsigned number;
    struct fl__local_timer *victim; /* to cancel when this one fires */
    bool cancelled;
};

static void on_local(struct fl__worker *worker, struct fl__local_timer *timer)
{
    struct local *local = (struct local *)timer;
    CHECK(now_ns() >= fl_node_deadline_ns(&timer->node));
    local->order[(*local->length)++] = local->number;
    if (local->victim)
        local->cancelled = fl__local_timer_cancel(worker, local->victim);
}

struct script {
    struct fl__message message;
    struct local locals[6];
    unsigned order[12], length;
    atomic_bool started;
};

/* 0 and 1 are due together, and 0 cancels 1; 2 is cancelled before; 3 is moved from far to near, 4 from near to far and
 * is cancelled; 5 comes last. */
static void run_script(struct fl__worker *worker, struct fl__message *message)
{
    struct script *script = (struct script *)message;
    uint64_t base_ns = fl__worker_now_ns(worker) + 2 * MS;
    static const uint64_t delays[] = {0, 0, MS, HOUR, MS, 3 * MS};
    for (unsigned i = 0; i < 6; i++) {
        struct local *local = &script->locals[i];
        *local = (struct local){{.fire = on_local}, script->order, &script->length, i, NULL, false};
        CHECK(!fl__local_timer_cancel(worker, &local->timer));
        fl__local_timer_start(worker, &local->timer, base_ns + delays[i]);
    }
    script->locals[0].victim = &script->locals[1].timer;
    CHECK(fl__local_timer_cancel(worker, &script->locals[2].timer));
    CHECK(!fl__local_timer_cancel(worker, &script->locals[2].timer));
    fl__local_timer_start(worker, &script->locals[3].timer, base_ns + MS);
    fl__local_timer_start(worker, &script->locals[4].timer, base_ns + HOUR);
    CHECK(fl__local_timer_cancel(worker, &script->locals[4].timer));
    atomic_store(&script->started, true);
}

TEST(local_timers_fire_move_and_cancel)
{
    static struct script script = {.message.run = run_script};
    fl_runtime *rt = make_runtime(1);
    CHECK(fl__worker_send(fl__runtime_worker(rt, 0), &script.message));
    AWAIT(atomic_load(&script.started));
    AWAIT(stats_of(rt).lateness_ns.count == 3);
    fl_runtime_free(rt);
    CHECK_EQ(script.length, 3);
    CHECK(script.locals[0].cancelled);
    CHECK_EQ(script.order[0], 0);
    CHECK_EQ(script.order[1], 3);
    CHECK_EQ(script.order[2], 5);
}

/* --- Layers */

struct layer {
    struct fl__worker_layer hooks;
    unsigned asked;
    atomic_bool set, stopped;
};

static bool layer_leaving(struct fl__worker *worker, struct fl__worker_layer *hooks)
{
    struct layer *layer = (struct layer *)hooks;
    CHECK(fl__worker_get_layer(worker) == hooks);
    return ++layer->asked == 5;
}

static void layer_stop(struct fl__worker *worker, struct fl__worker_layer *hooks)
{
    CHECK(fl__worker_loop(worker) != NULL);
    atomic_store(&((struct layer *)hooks)->stopped, true);
}

static struct layer one_layer = {.hooks = {layer_leaving, layer_stop}};

static void set_layer(void *arg)
{
    (void)arg;
    fl__worker_set_layer(fl__worker_self(), &one_layer.hooks);
    atomic_store(&one_layer.set, true);
}

TEST(a_worker_leaves_when_its_layer_lets_it)
{
    fl_runtime *rt = make_runtime(1);
    call_on_worker(rt, set_layer, NULL);
    CHECK_EQ(fl_runtime_resize(rt, 0), 0);
    CHECK_EQ(one_layer.asked, 5);
    CHECK(atomic_load(&one_layer.stopped));
    CHECK_EQ(fl_runtime_resize(rt, 1), 0);
    CHECK(fl__worker_get_layer(fl__runtime_worker(rt, 0)) == NULL);
    fl_runtime_free(rt);
    CHECK_EQ(one_layer.asked, 5);
}

TEST(a_layer_is_stopped_unasked_when_the_runtime_is_freed)
{
    one_layer.asked = 0;
    atomic_store(&one_layer.stopped, false);
    fl_runtime *rt = make_runtime(1);
    call_on_worker(rt, set_layer, NULL);
    fl_runtime_free(rt);
    CHECK_EQ(one_layer.asked, 0);
    CHECK(atomic_load(&one_layer.stopped));
}

static unsigned freed;

static void free_layer(fl_runtime *rt, struct fl__runtime_layer *layer)
{
    (void)rt;
    (void)layer;
    freed++;
}

TEST(a_runtime_keeps_one_layer_and_frees_it)
{
    struct fl__runtime_layer first = {free_layer}, second = {free_layer};
    fl_runtime *rt = make_runtime(1);
    CHECK(fl__runtime_get_layer(rt) == NULL);
    CHECK(fl__runtime_set_layer(rt, &first) == &first);
    CHECK(fl__runtime_set_layer(rt, &second) == &first);
    CHECK(fl__runtime_get_layer(rt) == &first);
    fl_runtime_free(rt);
    CHECK_EQ(freed, 1);
}

/* --- The table of entries, and the handle's moves */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 27);
}

TEST(the_table_of_entries_keeps_its_books)
{
    enum { MOST = 20000 };
    static uint32_t slots[MOST];
    struct entries table = {0};
    uint64_t seed = 3;
    unsigned count = 0;
    fl_timer *somebody = (fl_timer *)&seed;
    for (unsigned i = 0; i < 400000; i++) {
        bool growing = i / 50000 % 2 == 0;
        if (count == 0 || (count < MOST && next_random(&seed) % 100 < (growing ? 70 : 30))) {
            struct entry *entry;
            CHECK_EQ(entries_reserve(&table), 0);
            slots[count] = entries_take(&table, &entry);
            *entry = (struct entry){.timer = somebody, .node = {.deadline_ns = slots[count]}};
            count++;
        } else {
            unsigned at = (unsigned)(next_random(&seed) % count);
            struct entry *entry = entries_find(&table, slots[at]);
            CHECK(entry && entry_target_ns(entry) == slots[at]);
            entries_put(&table, slots[at]);
            CHECK(!entries_find(&table, slots[at]));
            slots[at] = slots[--count];
        }
        if (i % 10000 == 0)
            CHECK_EQ(fl__runtime_entries_check(&table), 0);
    }
    CHECK_EQ(table.live, count);
    while (count > 0)
        entries_put(&table, slots[--count]);
    CHECK_EQ(fl__runtime_entries_check(&table), 0);
    CHECK(table.count <= 1);
    fl__runtime_entries_destroy(&table);
}

TEST(segments_leave_the_table_with_what_they_hold)
{
    struct entries table = {0};
    struct entry *entry;
    fl_timer *somebody = (fl_timer *)&table;
    for (unsigned i = 0; i < 3 * SEGMENT_SLOTS; i++) {
        CHECK_EQ(entries_reserve(&table), 0);
        entries_take(&table, &entry);
        entry->timer = somebody;
    }
    for (unsigned i = 3; i-- > 0;) {
        struct segment *segment = table.segments[i == 1 ? 0 : table.count - 1];
        fl__runtime_segment_detach(&table, segment);
        CHECK_EQ(segment->header.live, SEGMENT_SLOTS);
        CHECK_EQ(table.live, i * SEGMENT_SLOTS);
        CHECK_EQ(fl__runtime_entries_check(&table), 0);
        fl__runtime_segment_release(segment);
    }
    fl__runtime_entries_destroy(&table);
}

TEST(only_the_moves_of_the_protocol_are_allowed)
{
    unsigned allowed = 0;
    for (unsigned from = 0; from < TIMER_STATES; from++)
        for (unsigned to = 0; to < TIMER_STATES; to++)
            allowed += move_is_allowed((enum timer_state)from, (enum timer_state)to);
    CHECK_EQ(allowed, 6);
    CHECK(move_is_allowed(TIMER_SCHEDULED, TIMER_FIRING));
    CHECK(move_is_allowed(TIMER_MIGRATING, TIMER_CANCELLED));
    CHECK(!move_is_allowed(TIMER_MIGRATING, TIMER_FIRING));
    CHECK(!move_is_allowed(TIMER_FIRING, TIMER_CANCELLED));
    CHECK(!move_is_allowed(TIMER_CANCELLED, TIMER_FIRING));
    CHECK(!move_is_allowed(TIMER_FIRED, TIMER_FIRING));
}
