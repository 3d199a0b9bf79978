/* SPDX-License-Identifier: MIT */
/* Coroutines against a model, on a clock that moves only when nothing can run.
 *
 * Up to eight coroutines (actors) take their steps from one string of bytes: the one that runs takes the next step. They
 * sleep, yield, park, unpark each other, ask for wake-ups and cancel them, spawn and join each other, and wait for pipes
 * that others write to. There is one worker, so the model needs no locks, and each step knows the state of all actors.
 *
 * No two deadlines are equal, and the clock goes from one deadline to the next. So each moment has one event, and the model
 * knows at each moment who is ready and in which order they became ready. It checks:
 *
 *   - who runs: an actor that the model calls ready, and none that became ready before it is still waiting for its turn
 *   - when: sleeps and timeouts end at the nanosecond, and nothing else lets time pass while somebody can run
 *   - what each call returns
 *   - the end: what is left waits for something that has not happened
 *
 * The model does not predict when an actor runs that waits for a pipe, because the worker looks at descriptors when it likes.
 * Nor does it order the actors that join the same one. */

#include "coro/history.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <foliot/coro.h>

enum {
    ACTORS = 8,
    MOST_STEPS = 1000,
    MOST_WAKES = 64,
    GRAIN_NS = 4096, /* the deadlines of a history differ modulo this */
    OWN_STACK_BYTES = 32 << 10,
};

#define START_NS 1000000000ull
#define LAST_NS (1ull << 62)

/* What an actor can be, and what follows.
 *
 *     FREE       no coroutine              -> READY (spawned)
 *     READY      runs when it is its turn  -> RUNNING
 *     RUNNING    takes steps               -> SLEEPING, YIELDED, PARKED, JOINING, WATCHING, ENDED
 *     SLEEPING   until its deadline        -> READY
 *     YIELDED    until others have run     -> RUNNING
 *     PARKED     until it is woken         -> READY
 *     JOINING    until another has ended   -> READY
 *     WATCHING   until its pipe has bytes, or its deadline  -> RUNNING
 *     ENDED      has returned              -> READY (another coroutine in the same place) */
enum actor_state { FREE, READY, RUNNING, SLEEPING, YIELDED, PARKED, JOINING, WATCHING, ENDED };

struct actor {
    fl_coro *coro;
    enum actor_state state;
    bool has_token;    /* an unpark has come since the last park returned */
    uint64_t turn;     /* READY, YIELDED: a lower number goes first */
    uint64_t until_ns; /* SLEEPING, WATCHING */
    struct actor *joins;
    fl_coro *joined; /* the actor's reference to it; the end of the history gives it back if the actor does not go on */
    int pipe[2];
    unsigned bytes;      /* in the pipe */
    uint64_t written_ns; /* when the first of them was written */
};

struct expected_wake {
    struct actor *actor;
    fl_coro *coro; /* the actor may have ended since, and be another coroutine now */
    uint64_t deadline_ns;
    fl_coro_wake id;
    bool is_pending;
};

static struct coro_model {
    fl_clock clock;
    _Atomic uint64_t time_ns;
    fl_runtime *rt;
    const uint8_t *bytes, *end;
    unsigned steps;
    uint64_t deadlines; /* made so far */
    uint64_t turns;     /* given out so far */
    uint64_t switches;  /* how often an actor began or went on */
    struct actor actors[ACTORS];
    struct expected_wake wakes[MOST_WAKES];
    unsigned n_wakes;
    atomic_bool is_over;
} m;

#define REQUIRE(condition)                                                  \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                        \
        }                                                                   \
    } while (0)

static uint64_t clock_now(fl_clock *clock)
{
    (void)clock;
    return atomic_load(&m.time_ns);
}

static void clock_wait(fl_clock *clock, uint64_t deadline_ns)
{
    (void)clock;
    if (deadline_ns > LAST_NS) /* the end: somebody outside is about to free the runtime */
        nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    else if (deadline_ns > atomic_load(&m.time_ns))
        atomic_store(&m.time_ns, deadline_ns);
}

/* A moment after now that no other deadline has. */
static uint64_t new_deadline_ns(uint64_t span_ns)
{
    uint64_t base_ns = (fl_coro_now_ns() + span_ns) / GRAIN_NS * GRAIN_NS + GRAIN_NS;
    return base_ns + m.deadlines++;
}

/* ---- The model ---- */

static void make_ready(struct actor *actor)
{
    actor->state = READY;
    actor->turn = ++m.turns;
}

static void expect_unpark(struct actor *actor)
{
    if (actor->state == PARKED)
        make_ready(actor);
    actor->has_token = actor->state != ENDED;
}

static void expect_wake(struct expected_wake *wake)
{
    wake->is_pending = false;
    if (wake->actor->coro == wake->coro)
        expect_unpark(wake->actor);
}

/* Makes the earliest thing happen that was to happen by now. False: there is none. */
static bool expect_next(uint64_t now_ns)
{
    struct actor *sleeper = NULL;
    struct expected_wake *wake = NULL;
    uint64_t first_ns = UINT64_MAX;
    for (struct actor *actor = m.actors; actor < m.actors + ACTORS; actor++)
        if (actor->state == SLEEPING && actor->until_ns <= now_ns && actor->until_ns < first_ns) {
            first_ns = actor->until_ns;
            sleeper = actor;
        }
    for (unsigned i = 0; i < m.n_wakes; i++)
        if (m.wakes[i].is_pending && m.wakes[i].deadline_ns <= now_ns && m.wakes[i].deadline_ns < first_ns) {
            first_ns = m.wakes[i].deadline_ns;
            wake = &m.wakes[i];
        }
    if (wake)
        expect_wake(wake);
    else if (sleeper)
        make_ready(sleeper);
    return wake || sleeper;
}

static void expect_what_is_due(void)
{
    while (expect_next(fl_coro_now_ns()))
        ;
}

/* An actor begins or goes on. Those that were ready before it have had their turns. */
static void resume(struct actor *actor, enum actor_state from)
{
    expect_what_is_due();
    m.switches++;
    REQUIRE(actor->state == from);
    REQUIRE(fl_coro_self() == actor->coro);
    for (const struct actor *other = m.actors; other < m.actors + ACTORS && from != WATCHING; other++)
        REQUIRE(other->state != READY || other->turn >= actor->turn);
    actor->state = RUNNING;
}

/* ---- Steps ---- */

static uint8_t next_byte(void)
{
    return m.bytes < m.end ? *m.bytes++ : 0;
}

static uint64_t span_of(uint8_t how)
{
    static const uint64_t spans_ns[] = {0, 1000, 1000000, 1000000000, 3600000000000, 72000000000000, 31536000000000000};
    return spans_ns[how / ACTORS % (sizeof(spans_ns) / sizeof(spans_ns[0]))];
}

static void step_sleep(struct actor *self, uint8_t how, bool until)
{
    if (how >= 240) { /* for no time at all: it goes on at once */
        uint64_t before = m.switches;
        REQUIRE((until ? fl_sleep_until_ns(fl_coro_now_ns()) : fl_sleep_ns(0)) == 0);
        REQUIRE(m.switches == before);
        return;
    }
    self->until_ns = new_deadline_ns(span_of(how));
    self->state = SLEEPING;
    uint64_t duration_ns = self->until_ns - fl_coro_now_ns();
    REQUIRE((until ? fl_sleep_until_ns(self->until_ns) : fl_sleep_ns(duration_ns)) == 0);
    resume(self, READY);
    REQUIRE(fl_coro_now_ns() == self->until_ns);
}

static void step_yield(struct actor *self)
{
    uint64_t now_ns = fl_coro_now_ns();
    make_ready(self);
    self->state = YIELDED;
    fl_coro_yield();
    resume(self, YIELDED);
    REQUIRE(fl_coro_now_ns() == now_ns);
}

static void step_park(struct actor *self)
{
    uint64_t before = m.switches;
    if (self->has_token) {
        self->has_token = false;
        fl_coro_park();
        REQUIRE(m.switches == before);
        return;
    }
    self->state = PARKED;
    fl_coro_park();
    resume(self, READY);
    self->has_token = false; /* all unparks until now count as one */
}

static void step_unpark(struct actor *other)
{
    if (!other->coro)
        return;
    expect_unpark(other);
    fl_coro_unpark(other->coro);
}

static void step_wake(struct actor *other, uint8_t how)
{
    if (!other->coro || m.n_wakes == MOST_WAKES)
        return;
    struct expected_wake *wake = &m.wakes[m.n_wakes++];
    *wake = (struct expected_wake){other, other->coro, new_deadline_ns(span_of(how)), 1, other->state != ENDED};
    if (how % 2)
        REQUIRE(fl_coro_wake_at(other->coro, wake->deadline_ns, &wake->id) == 0);
    else
        REQUIRE(fl_coro_wake_after(other->coro, wake->deadline_ns - fl_coro_now_ns(), &wake->id) == 0);
    REQUIRE((wake->id != 0) == wake->is_pending);
}

static void step_cancel_wake(uint8_t how)
{
    if (m.n_wakes == 0)
        return;
    struct expected_wake *wake = &m.wakes[how % m.n_wakes];
    REQUIRE(fl_coro_wake_cancel(m.rt, wake->id) == (wake->is_pending ? 0 : FL_TIMER_NOT_FOUND));
    wake->is_pending = false;
}

static void run_actor(void *arg);

static void spawn(struct actor *actor, bool with_stack)
{
    fl_coro_options options = {.name = "actor", .stack_size = with_stack ? OWN_STACK_BYTES : 0};
    fl_coro_unref(actor->coro);
    make_ready(actor);
    actor->has_token = false;
    REQUIRE(fl_coro_spawn(m.rt, &options, run_actor, actor, &actor->coro) == 0);
}

static void step_spawn(struct actor *other, uint8_t how)
{
    if (other->state == FREE || other->state == ENDED)
        spawn(other, how % 2);
}

static void step_join(struct actor *self, struct actor *other)
{
    uint64_t before = m.switches;
    if (!other->coro)
        return;
    if (other == self || other->state == ENDED) {
        REQUIRE(fl_coro_join(other->coro) == (other == self ? FL_INVALID_ARGUMENT : 0));
        REQUIRE(m.switches == before);
        return;
    }
    fl_coro *coro = fl_coro_ref(other->coro);
    self->joins = other;
    self->joined = coro;
    self->state = JOINING;
    REQUIRE(fl_coro_join(coro) == 0);
    resume(self, READY);
    self->joined = NULL;
    fl_coro_unref(coro);
}

static void step_watch(struct actor *self, uint8_t how)
{
    char bytes[64];
    bool forever = how % 4 == 0;
    uint64_t began_ns = fl_coro_now_ns();
    self->until_ns = forever ? UINT64_MAX : new_deadline_ns(span_of(how));
    self->state = WATCHING;
    int r = fl_coro_wait_fd(self->pipe[0], FL_READ, forever ? FL_CORO_FOREVER : self->until_ns - began_ns);
    resume(self, WATCHING);
    REQUIRE(r == (self->bytes > 0 ? FL_READ : 0));
    uint64_t ready_ns = self->written_ns > began_ns ? self->written_ns : began_ns;
    REQUIRE(fl_coro_now_ns() == (r > 0 ? ready_ns : self->until_ns));
    if (r > 0)
        REQUIRE(read(self->pipe[0], bytes, sizeof(bytes)) == (ssize_t)self->bytes);
    self->bytes = 0;
}

static void step_write(struct actor *other)
{
    if (other->bytes == 8)
        return;
    if (other->bytes++ == 0)
        other->written_ns = fl_coro_now_ns();
    REQUIRE(write(other->pipe[1], "x", 1) == 1);
}

/* False: the actor returns. */
static bool take_step(struct actor *self)
{
    uint8_t what = next_byte(), how = next_byte();
    struct actor *other = &m.actors[how % ACTORS];
    switch (what % 16) {
    case 0:
    case 1:
        step_sleep(self, how, what % 2);
        break;
    case 2:
        step_yield(self);
        break;
    case 3:
        step_park(self);
        break;
    case 4:
    case 5:
        step_unpark(other);
        break;
    case 6:
    case 7:
        step_wake(other, how);
        break;
    case 8:
        step_cancel_wake(how);
        break;
    case 9:
        step_join(self, other);
        break;
    case 10:
        step_watch(self, how);
        break;
    case 11:
    case 12:
        step_write(other);
        break;
    case 13:
        return how % 4 != 0;
    default:
        step_spawn(other, what / 16);
    }
    return true;
}

static void run_actor(void *arg)
{
    struct actor *self = arg;
    resume(self, READY);
    while (m.bytes < m.end && m.steps++ < MOST_STEPS && take_step(self))
        ;
    self->state = ENDED;
    uint64_t turn = ++m.turns; /* the same for all that join it */
    for (struct actor *other = m.actors; other < m.actors + ACTORS; other++)
        if (other->state == JOINING && other->joins == self) {
            other->state = READY;
            other->turn = turn;
        }
}

/* ---- Begin and end ---- */

/* When all deadlines are over, whoever is left waits for something that has not happened. */
static void check_the_end(void *arg)
{
    (void)arg;
    REQUIRE(fl_sleep_until_ns(LAST_NS) == 0);
    expect_what_is_due();
    for (const struct actor *actor = m.actors; actor < m.actors + ACTORS; actor++)
        switch (actor->state) {
        case FREE:
        case ENDED:
        case PARKED:
            break;
        case JOINING:
            REQUIRE(actor->joins->state != ENDED);
            break;
        case WATCHING:
            REQUIRE(actor->until_ns == UINT64_MAX && actor->bytes == 0);
            break;
        case READY:
        case RUNNING:
        case SLEEPING:
        case YIELDED:
            REQUIRE(!"an actor did not go on");
        }
    atomic_store(&m.is_over, true);
}

static void begin(void *arg)
{
    (void)arg;
    spawn(&m.actors[0], false);
    REQUIRE(fl_coro_spawn(NULL, NULL, check_the_end, NULL, NULL) == 0);
}

static void set_up(const uint8_t *bytes, size_t size)
{
    memset(&m, 0, sizeof(m));
    m.clock = (fl_clock){clock_now, clock_wait};
    m.time_ns = START_NS;
    m.bytes = bytes;
    m.end = bytes + size;
    for (struct actor *actor = m.actors; actor < m.actors + ACTORS; actor++)
        REQUIRE(pipe2(actor->pipe, O_NONBLOCK | O_CLOEXEC) == 0);
    REQUIRE(fl_runtime_new(&(fl_runtime_config){.workers = 1, .clock = &m.clock}, &m.rt) == 0);
}

int coro_history(const uint8_t *bytes, size_t size)
{
    set_up(bytes, size);
    REQUIRE(fl_runtime_spawn(m.rt, begin, NULL) == 0);
    while (!atomic_load(&m.is_over))
        nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    uint64_t switches = m.switches;
    fl_runtime_free(m.rt);
    REQUIRE(m.switches == switches);
    for (struct actor *actor = m.actors; actor < m.actors + ACTORS; actor++) {
        if (actor->coro)
            REQUIRE(fl_coro_join(actor->coro) == 0); /* also if it never returned */
        fl_coro_unref(actor->coro);
        fl_coro_unref(actor->joined);
        close(actor->pipe[0]);
        close(actor->pipe[1]);
    }
    return 0;
}
