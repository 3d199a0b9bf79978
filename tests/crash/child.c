/* SPDX-License-Identifier: MIT */
/* See child.h.
 *
 * To know exactly what a crash may repeat, the child looks at what its engines submit: a store of its own hands every
 * request on to the real one and reports when progress is being recorded and when it has been. */

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crash/child.h"
#include "crash/protocol.h"
#include "test.h"

enum { SHARDS_MOST = 8, JOB_MOST = 32, NAME_SIZE = 16 };

static struct child {
    struct child_config config;
    fl_wall_clock clock;
    int64_t offset_us;
    int socket;
    fl_loop *loop;
    fl_store *store;
    fl_engine *engines[SHARDS_MOST];
    uint32_t running;
    uint64_t random;
} child;

/* Returns a number below `limit`. */
static uint64_t draw(uint64_t limit)
{
    child.random = child.random * 6364136223846793005u + 1442695040888963407u;
    return (child.random >> 33) % limit;
}

static int64_t wall_now(fl_wall_clock *clock)
{
    (void)clock;
    fl_wall_clock *system = fl_wall_clock_system();
    return system->now_us(system) + child.offset_us;
}

static void say(struct packet packet)
{
    packet.at_us = wall_now(&child.clock);
    while (send(child.socket, &packet, sizeof packet, MSG_NOSIGNAL) < 0)
        if (errno != EINTR)
            _exit(3); /* nobody listens any more */
}

/* --- A store that looks at what is recorded ------------------------------------------------------------------------ */

struct watched_shard {
    fl_shard base;
    fl_shard *inner;
    fl_store_request *recording; /* one at a time */
    void (*done)(fl_store_request *request);
    fl_loop_fn detached;
    void *detached_arg;
};

static struct watched {
    fl_store base;
    fl_store *inner;
    struct watched_shard shards[SHARDS_MOST];
} watched;

static void recorded(fl_store_request *request)
{
    struct watched_shard *shard = watched.shards;
    while (shard->recording != request)
        shard++;
    shard->recording = NULL;
    request->done = shard->done;
    if (request->result == 0)
        say((struct packet){.said = SAY_RECORDED, .shard = shard->base.shard});
    request->done(request);
}

static void watched_submit(fl_shard *base, fl_store_request *request)
{
    struct watched_shard *shard = (struct watched_shard *)base;
    if (request->op == FL_STORE_RECORD || request->op == FL_STORE_FINISH) {
        CHECK(!shard->recording);
        shard->recording = request;
        shard->done = request->done;
        request->done = recorded;
        say((struct packet){.said = SAY_RECORDING, .shard = base->shard});
    }
    fl_store_submit(shard->inner, request);
}

static int watched_attach(fl_store *store, uint32_t index, fl_loop *loop, fl_shard **ret)
{
    struct watched_shard *shard = &watched.shards[index];
    shard->base = (fl_shard){.store = store, .loop = loop, .shard = index};
    *ret = &shard->base;
    return fl_store_attach(watched.inner, index, loop, &shard->inner);
}

static void watched_detach(fl_shard *base, fl_loop_fn done, void *arg)
{
    fl_store_detach(((struct watched_shard *)base)->inner, done, arg);
}

static void watched_close(fl_store *store)
{
    (void)store;
    fl_store_close(watched.inner);
}

static bool watched_absent(fl_shard *base, const fl_store_want *want)
{
    return fl_store_absent(((struct watched_shard *)base)->inner, want);
}

static const struct fl_store_ops watched_ops = {.close = watched_close,
                                                .attach = watched_attach,
                                                .detach = watched_detach,
                                                .submit = watched_submit,
                                                .absent = watched_absent};

static void open_store(void)
{
    char message[256] = "";
    fl_store_config config = {.shards = child.config.shards, .timeout_us = 1000000};
    int r = fl_store_open(child.config.url, &config, &watched.inner, message, sizeof message);
    if (r < 0) {
        fprintf(stderr, "# %s\n", message);
        say((struct packet){.said = SAY_FAILED, .result = r});
        _exit(0);
    }
    watched.base = (fl_store){.ops = &watched_ops, .shards = fl_store_shards(watched.inner)};
    child.store = &watched.base;
}

/* --- Firing -------------------------------------------------------------------------------------------------------- */

struct late {
    fl_engine *engine;
    fl_settlement settlement;
    struct packet packet;
};

static void settle(fl_engine *engine, const fl_settlement *settlement, struct packet packet)
{
    packet.said = SAY_SETTLED;
    packet.result = settlement->result;
    if (fl_engine_settle(engine, settlement, 1) == 1)
        say(packet);
}

static void settle_late(fl_loop *loop, void *arg)
{
    struct late *late = arg;
    (void)loop;
    settle(late->engine, &late->settlement, late->packet);
    free(late);
}

static fl_settlement judge(const fl_firing *firing, int64_t now_us)
{
    fl_settlement settlement = {.token = firing->token, .reason = FL_TEXT("so it was drawn")};
    uint64_t dice = child.config.gentle ? 99 : draw(100);
    if (dice < 8) {
        settlement.result = FL_FAILED;
    } else if (dice < 11) {
        settlement.result = FL_AGAIN;
        settlement.at_us = now_us + 100000;
    } else if (dice < 13) {
        settlement.result = FL_DEAD;
    }
    return settlement;
}

static void fire(fl_engine *engine, uint32_t shard, const fl_firing *firing)
{
    const fl_durable *timer = &firing->timer;
    struct cargo cargo;
    if (timer->payload.size != sizeof cargo)
        test_fail(__FILE__, __LINE__, "a payload of %zu bytes", timer->payload.size);
    memcpy(&cargo, timer->payload.data, sizeof cargo);
    struct packet packet = {.said = SAY_FIRED,
                            .shard = shard,
                            .number = cargo.number,
                            .version = cargo.version,
                            .named = timer->name.size > 0,
                            .id = timer->id,
                            .due_us = timer->due_us};
    say(packet);
    fl_settlement settlement = judge(firing, wall_now(&child.clock));
    struct late *late = !child.config.gentle && draw(10) == 0 ? malloc(sizeof *late) : NULL;
    if (!late) {
        settle(engine, &settlement, packet);
        return;
    }
    *late = (struct late){engine, settlement, packet};
    CHECK_EQ(fl_loop_timer(child.loop, draw(50000000), settle_late, late, NULL), 0);
}

static uint32_t shard_of_engine(const fl_engine *engine)
{
    uint32_t shard = 0;
    while (child.engines[shard] != engine)
        shard++;
    return shard;
}

static void dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++)
        fire(engine, shard_of_engine(engine), &firings[i]);
}

static void notify(void *arg, fl_engine *engine, enum fl_engine_event event, int result, const char *message)
{
    (void)arg;
    if (event == FL_ENGINE_READY || event == FL_ENGINE_LOST)
        say((struct packet){.said = event == FL_ENGINE_READY ? SAY_READY : SAY_LOST, .shard = shard_of_engine(engine)});
    if (event == FL_ENGINE_TROUBLE && getenv("FOLIOT_CRASH_LOG"))
        fprintf(stderr, "# %" PRId64 " shard %u trouble: %d: %.60s\n", wall_now(&child.clock), shard_of_engine(engine),
                result, message);
}

/* --- What it is told ----------------------------------------------------------------------------------------------- */

struct job {
    fl_batch batch;
    fl_op ops[JOB_MOST];
    struct packet asked[JOB_MOST];
    char names[JOB_MOST][NAME_SIZE];
    struct cargo cargos[JOB_MOST];
};

static void answer(const struct packet *asked, const fl_op *op)
{
    struct packet packet = *asked;
    packet.said = SAY_ANSWER;
    packet.asked = asked->said;
    packet.result = op->result;
    packet.id = op->timer.id;
    packet.due_us = op->timer.due_us;
    if (asked->said == ASK_GET && op->result == 0) {
        struct cargo cargo;
        CHECK_EQ(op->timer.payload.size, sizeof cargo);
        memcpy(&cargo, op->timer.payload.data, sizeof cargo);
        CHECK_EQ(cargo.number, asked->number);
        packet.version = cargo.version;
    }
    say(packet);
}

static void job_done(fl_batch *batch)
{
    struct job *job = (struct job *)batch;
    for (size_t i = 0; i < batch->count; i++)
        answer(&job->asked[i], &job->ops[i]);
    free(job);
}

static void add_op(struct job *job, const struct packet *asked)
{
    static const enum fl_op_kind kinds[] = {
        [ASK_CREATE] = FL_OP_CREATE, [ASK_MOVE] = FL_OP_UPDATE, [ASK_CANCEL] = FL_OP_CANCEL, [ASK_GET] = FL_OP_GET};
    size_t i = job->batch.count++;
    job->asked[i] = *asked;
    job->cargos[i] = (struct cargo){asked->number, asked->version};
    fl_op *op = &job->ops[i];
    op->kind = kinds[asked->said];
    op->flags = asked->said == ASK_MOVE ? FL_OP_SET_DUE | FL_OP_SET_PAYLOAD : 0;
    op->timer = (fl_durable){.ns = FL_TEXT("crash"),
                             .id = asked->id,
                             .due_us = asked->due_us,
                             .payload = {&job->cargos[i], sizeof job->cargos[i]}};
    if (asked->named) {
        int size = snprintf(job->names[i], NAME_SIZE, "t%u", asked->number);
        op->timer.name = (fl_bytes){job->names[i], (size_t)size};
    }
}

static uint32_t shard_of(const struct packet *asked)
{
    char name[NAME_SIZE];
    if (!asked->named)
        return asked->number % watched.base.shards;
    int size = snprintf(name, sizeof name, "t%u", asked->number);
    return fl_store_shard_of(watched.base.shards, (fl_bytes)FL_TEXT("crash"), (fl_bytes){name, (size_t)size});
}

static void dead_page(fl_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++) {
        struct cargo cargo;
        memcpy(&cargo, listing->found[i].timer.payload.data, sizeof cargo);
        say((struct packet){.said = SAY_DEAD, .number = cargo.number, .version = cargo.version});
    }
    bool more = listing->more && listing->result == 0;
    fl_engine *engine = listing->arg;
    if (more) {
        fl_engine_list(engine, listing);
    } else {
        say((struct packet){.said = SAY_ANSWER, .asked = ASK_DEAD, .result = listing->result});
        free(listing);
    }
}

static void list_dead(uint32_t shard)
{
    fl_listing *listing = calloc(1, sizeof *listing);
    CHECK(listing);
    *listing = (fl_listing){.dead = true, .limit = 7, .done = dead_page, .arg = child.engines[shard]};
    fl_engine_list(child.engines[shard], listing);
}

static void closed(fl_loop *loop, void *arg)
{
    (void)arg;
    if (--child.running > 0)
        return;
    fl_store_close(child.store);
    fl_loop_stop(loop);
}

static void stop_all(void)
{
    fl_loop_fd_remove(child.loop, child.socket);
    for (uint32_t i = 0; i < watched.base.shards; i++)
        fl_engine_stop(child.engines[i], false, closed, NULL);
}

/* The kernel's way of a full disk, for this process alone. */
static void limit_files(int64_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes > 0 ? (rlim_t)bytes : limit.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void obey(const struct packet *asked, struct job **jobs)
{
    switch (asked->said) {
    case ASK_STEP:
        child.offset_us += asked->due_us;
        for (uint32_t i = 0; i < watched.base.shards; i++)
            fl_engine_clock_changed(child.engines[i]);
        say((struct packet){.said = SAY_ANSWER, .asked = ASK_STEP});
        break;
    case ASK_FULL:
        limit_files(asked->due_us);
        break;
    case ASK_STOP:
        stop_all();
        break;
    case ASK_DEAD:
        list_dead(asked->shard);
        break;
    default: {
        struct job **job = &jobs[shard_of(asked)];
        if (!*job)
            *job = calloc(1, sizeof **job);
        CHECK(*job);
        add_op(*job, asked);
    }
    }
}

static void told(fl_loop *loop, int fd, unsigned events, void *arg)
{
    struct job *jobs[SHARDS_MOST] = {0};
    struct packet packet;
    ssize_t size = -1;
    (void)loop, (void)events, (void)arg;
    for (int i = 0; i < JOB_MOST && (size = recv(fd, &packet, sizeof packet, MSG_DONTWAIT)) > 0; i++)
        obey(&packet, jobs);
    if (size == 0)
        _exit(0);
    for (uint32_t i = 0; i < SHARDS_MOST; i++)
        if (jobs[i]) {
            jobs[i]->batch.ops = jobs[i]->ops;
            jobs[i]->batch.done = job_done;
            fl_engine_submit(child.engines[i], &jobs[i]->batch);
        }
}

/* --- Its life ------------------------------------------------------------------------------------------------------ */

/* Everything is short, so that a life of a tenth of a second sees some of it. */
static void start_engine(uint32_t shard)
{
    fl_engine_config config = {
        .loop = child.loop,
        .store = child.store,
        .owner = child.config.owner,
        .dispatch = dispatch,
        .notify = notify,
        .shard = shard,
        .clock = &child.clock,
        .claim_us = child.config.claim_us,
        .record_interval_us = 30000,
        .dispatch_batch = CHILD_DISPATCH_BATCH,
        .max_memory_timers = 2000,
        .retry = {.max_attempts = 20, .multiplier_1000 = 1500, .initial_us = 20000, .max_interval_us = 100000},
        .preload_us = 20000000,
        .delete_interval_us = 50000,
        .strategy = child.config.lookahead ? FL_LOOKAHEAD : FL_PRELOAD,
        .delete_batch = 20,
        .seed = child.random | 1};
    CHECK_EQ(fl_engine_start(&config, &child.engines[shard]), 0);
    child.running++;
}

static void live(void)
{
    child.clock.now_us = wall_now;
    child.offset_us = child.config.offset_us;
    child.random = child.config.seed;
    CHECK_EQ(fl_loop_new(NULL, &child.loop), 0);
    open_store();
    for (uint32_t i = 0; i < watched.base.shards; i++)
        start_engine(i);
    CHECK_EQ(fl_loop_fd_add(child.loop, child.socket, FL_READ, told, NULL), 0);
    CHECK_EQ(fl_loop_run(child.loop), 0);
    fl_loop_free(child.loop);
    _exit(0);
}

pid_t child_start(const struct child_config *config, int *ret_socket)
{
    int ends[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    fflush(stdout);
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(3);
        close(ends[0]);
        child.config = *config;
        child.socket = ends[1];
        live();
    }
    close(ends[1]);
    *ret_socket = ends[0];
    return pid;
}
