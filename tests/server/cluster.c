/* SPDX-License-Identifier: MIT */
/* Who has which shard: the rule, and servers that meet over a store in memory on a virtual clock. What a server has here is
 * a claim and nothing else. The linker leads allocations here (--wrap), and each fails once. */

#include "node/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

#define SECOND 1000000ull
enum { SHARDS = 5, MEMBERS = 4 };

/* --- Memory ------------------------------------------------------------------------------------------------------- */

static int left = -1; /* allocations until one fails; -1: none does */

static bool fails(void)
{
    return left >= 0 && left-- == 0;
}

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the linker's names */
#pragma GCC visibility push(default) /* a sanitizer's library asks for them too */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
char *__wrap_strdup(const char *text);
#pragma GCC visibility pop

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

/* --- The rule ----------------------------------------------------------------------------------------------------- */

static unsigned count_moves(const int32_t *from, const int32_t *to, uint32_t shards)
{
    unsigned moves = 0;
    for (uint32_t i = 0; i < shards; i++)
        moves += from[i] != to[i];
    return moves;
}

static bool is_fair(const int32_t *owners, uint32_t shards, size_t count)
{
    unsigned have[MEMBERS] = {0}, least = shards, most = 0;
    for (uint32_t i = 0; i < shards; i++)
        have[owners[i]]++;
    for (size_t i = 0; i < count; i++) {
        least = have[i] < least ? have[i] : least;
        most = have[i] > most ? have[i] : most;
    }
    return most <= least + 1;
}

/* The next of all ways to write numbers from `least` to below `count`. False: that was the last. */
static bool next_way(int32_t *owners, uint32_t shards, int32_t least, int32_t count)
{
    for (uint32_t i = 0; i < shards; i++) {
        if (++owners[i] < count)
            return true;
        owners[i] = least;
    }
    return false;
}

static unsigned fewest_moves(const int32_t *from, uint32_t shards, size_t count)
{
    int32_t way[SHARDS] = {0};
    unsigned fewest = shards;
    do
        if (is_fair(way, shards, count) && count_moves(from, way, shards) < fewest)
            fewest = count_moves(from, way, shards);
    while (next_way(way, shards, 0, (int32_t)count));
    return fewest;
}

/* From wherever it starts, no shard, one, more than there are servers or fewer; nobody's shards among them. */
TEST(the_plan_is_fair_and_no_fair_one_moves_less)
{
    uint32_t room[2 * MEMBERS];
    for (uint32_t shards = 0; shards <= SHARDS; shards++)
        for (size_t count = 1; count <= MEMBERS; count++) {
            int32_t from[SHARDS], plan[SHARDS], again[SHARDS];
            memset(from, 0xff, sizeof from);
            do {
                memcpy(plan, from, sizeof plan);
                cluster_plan(plan, shards, count, room);
                CHECK(is_fair(plan, shards, count));
                CHECK_EQ(count_moves(from, plan, shards), fewest_moves(from, shards, count));
                memcpy(again, plan, sizeof again);
                cluster_plan(again, shards, count, room);
                CHECK_EQ(count_moves(plan, again, shards), 0);
            } while (next_way(from, shards, -1, (int32_t)count));
        }
}

TEST(a_plan_for_nobody_is_what_it_was)
{
    int32_t owners[] = {-1, -1};
    cluster_plan(owners, 2, 0, NULL);
    CHECK(owners[0] == -1 && owners[1] == -1);
}

/* --- Servers ------------------------------------------------------------------------------------------------------ */

struct claim {
    struct node *node;
    uint32_t shard;
    fl_shard *attached;
    fl_store_request request;
    bool here;
};

struct node {
    cluster *cluster;
    const char *address;
    struct claim claims[SHARDS];
    unsigned takes, leaves, changes, moves, replaced, troubles;
    bool done, freed;
};

static fl_virtual_clock clock_;
static fl_loop *loop;
static fl_store *store;
static fl_wall_clock wall;
static unsigned meetings, refuse_meetings;
static uint64_t delay_ns;

static int64_t wall_us(fl_wall_clock *clock)
{
    (void)clock;
    return (int64_t)(clock_.time_ns / 1000);
}

static fl_memory_fault fault(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    if (request->op != FL_STORE_MEET || !request->meet.offer)
        return (fl_memory_fault){0};
    meetings++;
    if (refuse_meetings > 0) {
        refuse_meetings--;
        return (fl_memory_fault){.result = FL_STORE_UNAVAILABLE};
    }
    return (fl_memory_fault){.delay_ns = delay_ns};
}

static void open_world(void)
{
    char message[200];
    meetings = refuse_meetings = 0;
    delay_ns = 0;
    wall.now_us = wall_us;
    fl_virtual_clock_init(&clock_, 1000000000);
    CHECK(fl_loop_new(&(fl_loop_config){.clock = &clock_.clock}, &loop) == 0);
    fl_store_config config = {.shards = SHARDS, .clock = &wall};
    CHECK(fl_store_open("memory:", &config, &store, message, sizeof message) == 0);
    CHECK(fl_memory_store_faults(store, fault, NULL) == 0);
}

static void close_world(void)
{
    fl_store_close(store);
    fl_loop_free(loop);
}

static void stop_loop(fl_loop *l, void *arg)
{
    (void)arg;
    fl_loop_stop(l);
}

static void run_for(uint64_t us)
{
    CHECK(fl_loop_timer(loop, us * 1000, stop_loop, NULL, NULL) == 0);
    CHECK(fl_loop_run(loop) == 0);
}

static void claimed(fl_store_request *request)
{
    struct claim *claim = request->arg;
    if (request->result == FL_NO_MEMORY) {
        fl_store_submit(claim->attached, request);
        return;
    }
    CHECK_EQ(request->result, 0);
    claim->here = true;
    cluster_look(claim->node->cluster);
}

static bool cannot_take;

static void fail(fl_loop *l, void *arg)
{
    struct claim *claim = arg;
    (void)l;
    cluster_failed(claim->node->cluster, claim->shard);
}

static void take(void *arg, uint32_t shard)
{
    struct node *node = arg;
    struct claim *claim = &node->claims[shard];
    int saved = left;
    if (cannot_take) {
        *claim = (struct claim){.node = node, .shard = shard};
        CHECK(fl_loop_post(loop, fail, claim) == 0);
        node->takes++;
        return;
    }
    left = -1; /* what is here is not what is tried */
    CHECK(!claim->attached);
    *claim = (struct claim){.node = node, .shard = shard};
    CHECK(fl_store_attach(store, shard, loop, &claim->attached) == 0);
    claim->request = (fl_store_request){.op = FL_STORE_CLAIM,
                                        .done = claimed,
                                        .arg = claim,
                                        .claim = {.owner = node->address, .claim_us = 3600 * SECOND}};
    fl_store_submit(claim->attached, &claim->request);
    node->takes++;
    left = saved;
}

static void detached(fl_loop *l, void *arg)
{
    struct claim *claim = arg;
    (void)l;
    claim->attached = NULL;
    claim->here = false;
    cluster_left(claim->node->cluster, claim->shard);
}

static void detach(fl_loop *l, void *arg)
{
    (void)l;
    fl_store_detach(((struct claim *)arg)->attached, detached, arg);
}

static void released(fl_store_request *request)
{
    CHECK(fl_loop_post(loop, detach, request->arg) == 0);
}

static void leave(void *arg, uint32_t shard)
{
    struct node *node = arg;
    struct claim *claim = &node->claims[shard];
    int saved = left;
    left = -1;
    CHECK(claim->here);
    claim->request = (fl_store_request){
        .op = FL_STORE_RELEASE, .version = claim->request.claim.version, .done = released, .arg = claim};
    fl_store_submit(claim->attached, &claim->request);
    node->leaves++;
    left = saved;
}

static void changed(void *arg, const struct cluster_view *view)
{
    (void)view;
    ((struct node *)arg)->changes++;
}

static void moved(void *arg)
{
    ((struct node *)arg)->moves++;
}

static void replaced(void *arg)
{
    ((struct node *)arg)->replaced++;
}

static void trouble(void *arg, const char *message)
{
    CHECK(*message);
    ((struct node *)arg)->troubles++;
}

static bool waits; /* who joins */

static int try_to_join(struct node *node, const char *address, uint64_t incarnation)
{
    *node = (struct node){.address = address};
    struct cluster_config config = {.loop = loop,
                                    .store = store,
                                    .address = address,
                                    .about = "a test",
                                    .incarnation = incarnation,
                                    .waits = waits,
                                    .claim_us = 3 * SECOND,
                                    .secret = address,
                                    .take = take,
                                    .leave = leave,
                                    .changed = changed,
                                    .moved = moved,
                                    .replaced = replaced,
                                    .trouble = trouble,
                                    .arg = node};
    return cluster_start(&config, &node->cluster);
}

static void join(struct node *node, const char *address, uint64_t incarnation)
{
    CHECK_EQ(try_to_join(node, address, incarnation), 0);
}

static void done(void *arg)
{
    ((struct node *)arg)->done = true;
}

static void freed(fl_loop *l, void *arg)
{
    (void)l;
    ((struct node *)arg)->freed = true;
}

static void stop(struct node *node)
{
    cluster_stop(node->cluster, 5 * SECOND, done);
    run_for(10 * SECOND);
    CHECK(node->done);
    cluster_free(node->cluster, freed, node);
    run_for(SECOND);
    CHECK(node->freed);
}

static unsigned count_here(const struct node *node)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < SHARDS; i++)
        count += node->claims[i].here;
    return count;
}

/* --- Others, of whom only the store knows ------------------------------------------------------------------------- */

static fl_store_request other;
static size_t listed;

static void other_done(fl_store_request *request)
{
    CHECK_EQ(request->result, 0);
    if (request->op == FL_STORE_MEET)
        listed = request->meet.member_count;
    fl_loop_stop(loop);
}

static void other_detached(fl_loop *l, void *arg)
{
    (void)arg;
    fl_loop_stop(l);
}

/* At this moment. */
static void ask_as_other(uint32_t shard, fl_store_request request)
{
    fl_shard *attached;
    CHECK(fl_store_attach(store, shard, loop, &attached) == 0);
    other = request;
    other.done = other_done;
    fl_store_submit(attached, &other);
    CHECK(fl_loop_run(loop) == 0);
    fl_store_detach(attached, other_detached, NULL);
    CHECK(fl_loop_run(loop) == 0);
}

static void other_meets(const char *address, uint64_t incarnation, uint64_t claim_us)
{
    ask_as_other(
        0,
        (fl_store_request){
            .op = FL_STORE_MEET,
            .meet = {.address = address, .incarnation = incarnation, .claim_us = claim_us, .join = address != NULL}});
}

static size_t count_listed(void)
{
    other_meets(NULL, 0, 0);
    return listed;
}

static void other_claims(const char *owner, uint32_t shard, uint64_t claim_us)
{
    ask_as_other(shard, (fl_store_request){.op = FL_STORE_CLAIM,
                                           .claim = {.owner = owner, .claim_us = claim_us, .force = true}});
}

/* --- Meeting ------------------------------------------------------------------------------------------------------ */

TEST(who_is_alone_takes_everything)
{
    struct node a;
    open_world();
    join(&a, "a", 1);
    run_for(SECOND / 10);
    const struct cluster_view *view = cluster_view(a.cluster);
    CHECK(count_here(&a) == SHARDS && a.takes == SHARDS && view->member_count == 1 && view->self == 0);
    CHECK(view->shard_count == SHARDS && view->members[0].shards == SHARDS && strcmp(view->secret, "a") == 0);
    CHECK(strcmp(view->members[0].address, "a") == 0 && strcmp(view->members[0].about, "a test") == 0);
    unsigned changes = a.changes;
    run_for(60 * SECOND);
    CHECK(a.takes == SHARDS && a.leaves == 0 && a.changes == changes && a.troubles == 0 && a.replaced == 0);
    stop(&a);
    CHECK(a.leaves == SHARDS && a.moves == SHARDS && count_listed() == 0);
    close_world();
}

TEST(who_comes_gets_a_share_and_who_goes_leaves_it_and_nothing_else_moves)
{
    struct node a, b, c;
    open_world();
    join(&a, "a", 1);
    run_for(SECOND);
    join(&b, "b", 2);
    run_for(10 * SECOND);
    CHECK(count_here(&a) == 3 && count_here(&b) == 2 && a.leaves == 2 && b.takes == 2);
    CHECK(strcmp(cluster_view(b.cluster)->secret, "a") == 0); /* the first one's */
    join(&c, "c", 3);
    run_for(10 * SECOND);
    CHECK(count_here(&a) == 2 && count_here(&b) == 2 && count_here(&c) == 1 && a.leaves == 3 && b.leaves == 0);
    stop(&a);
    CHECK(count_listed() == 2 && a.takes == SHARDS);
    CHECK(count_here(&b) + count_here(&c) == SHARDS && b.leaves == 0 && c.leaves == 0);
    CHECK(b.takes + c.takes == 3 + 2);
    stop(&b);
    stop(&c);
    close_world();
}

TEST(who_waits_is_seen_and_has_no_share_before_it_is_ready)
{
    struct node a, b;
    open_world();
    join(&a, "a", 1);
    run_for(SECOND);
    waits = true;
    join(&b, "b", 2);
    waits = false;
    run_for(10 * SECOND);
    const struct cluster_view *view = cluster_view(a.cluster);
    CHECK(count_here(&a) == SHARDS && count_here(&b) == 0 && a.leaves == 0 && b.takes == 0);
    CHECK(view->member_count == 2 && !view->members[0].waits && view->members[1].waits);
    CHECK(strcmp(view->members[1].about, "a test") == 0);
    cluster_ready(b.cluster);
    run_for(10 * SECOND);
    CHECK(count_here(&a) == 3 && count_here(&b) == 2 && !cluster_view(a.cluster)->members[1].waits);
    cluster_ready(b.cluster);
    stop(&a);
    CHECK(count_here(&b) == SHARDS);
    stop(&b);
    close_world();
}

TEST(what_a_dead_server_had_is_taken_when_its_time_has_run_out_and_not_before)
{
    struct node a;
    open_world();
    other_meets("dead", 7, 2500000);
    for (uint32_t i = 0; i < SHARDS; i++)
        other_claims("dead", i, 2500000);
    join(&a, "a", 1);
    run_for(2490000);
    CHECK_EQ(a.takes, 0);
    run_for(20000);
    CHECK_EQ(count_here(&a), SHARDS);
    CHECK_EQ(cluster_view(a.cluster)->member_count, 1);
    stop(&a);
    close_world();
}

TEST(what_somebody_has_who_is_not_on_the_list_is_waited_for)
{
    struct node a;
    open_world();
    other_claims("a stranger", 2, 1300000);
    join(&a, "a", 1);
    run_for(1290000);
    CHECK(count_here(&a) == SHARDS - 1 && cluster_view(a.cluster)->owners[2] == CLUSTER_MOVING);
    run_for(20000);
    CHECK_EQ(count_here(&a), SHARDS);
    stop(&a);
    close_world();
}

TEST(what_a_process_before_had_under_the_same_address_is_taken_at_once)
{
    struct node a;
    open_world();
    other_meets("a", 7, 3600 * SECOND);
    other_claims("a", 2, 3600 * SECOND);
    join(&a, "a", 1);
    run_for(SECOND / 10);
    CHECK(count_here(&a) == SHARDS && a.replaced == 0 && count_listed() == 1);
    stop(&a);
    close_world();
}

TEST(who_is_replaced_is_told_once_and_takes_nothing_more)
{
    struct node a;
    open_world();
    join(&a, "a", 1);
    run_for(SECOND);
    other_meets("a", 7, 3600 * SECOND);
    run_for(10 * SECOND);
    CHECK(a.replaced == 1 && a.takes == SHARDS && cluster_view(a.cluster)->self == SIZE_MAX);
    stop(&a);
    CHECK_EQ(count_listed(), 1); /* the other one */
    close_world();
}

TEST(who_finds_nobody_in_its_place_on_the_list_is_written_down_again)
{
    struct node a;
    open_world();
    join(&a, "a", 1);
    run_for(SECOND);
    other_meets("a", 7, 3600 * SECOND);
    other_meets("a", 7, 0);
    CHECK_EQ(count_listed(), 0);
    run_for(5 * SECOND);
    CHECK(a.replaced == 0 && count_here(&a) == SHARDS && a.leaves == 0);
    CHECK(count_listed() == 1 && cluster_view(a.cluster)->self == 0);
    stop(&a);
    close_world();
}

/* The store has forgotten that we joined, and has the process before us again; or nobody; or not even the secret. */
static void go_back_to(uint64_t other_claim_us, int64_t wait_us)
{
    struct node a;
    open_world();
    if (other_claim_us > 0)
        other_meets("a", 7, other_claim_us);
    CHECK_EQ(fl_memory_store_mark(store), 0);
    join(&a, "a", 1);
    run_for(wait_us);
    CHECK_EQ(fl_memory_store_go_back(store), 0);
    CHECK_EQ(count_listed(), other_claim_us > 0);
    run_for(5 * SECOND);
    CHECK(a.replaced == 0 && count_listed() == 1 && cluster_view(a.cluster)->self == 0);
    CHECK(cluster_view(a.cluster)->secret[0]);
    other_meets("a", 7, 3 * SECOND); /* and a real one is still noticed */
    run_for(5 * SECOND);
    CHECK_EQ(a.replaced, 1);
    stop(&a);
    close_world();
}

TEST(a_store_that_goes_back_does_not_replace_anybody)
{
    go_back_to(3 * SECOND, SECOND / 10);
    go_back_to(3 * SECOND, 30 * SECOND);
    go_back_to(0, SECOND);
}

TEST(a_store_that_fails_is_asked_again)
{
    struct node a;
    open_world();
    refuse_meetings = 4;
    join(&a, "a", 1);
    run_for(3 * SECOND);
    CHECK(a.troubles == 4 && count_here(&a) == SHARDS);
    refuse_meetings = 3;
    run_for(10 * SECOND);
    CHECK(a.troubles == 7 && count_here(&a) == SHARDS && a.leaves == 0);
    stop(&a);
    close_world();
}

TEST(looks_that_come_during_a_meeting_are_one_after_it)
{
    struct node a;
    open_world();
    join(&a, "a", 1);
    run_for(SECOND / 10);
    delay_ns = 50000000;
    unsigned before = meetings;
    for (int i = 0; i < 5; i++)
        cluster_look(a.cluster);
    run_for(200000);
    CHECK_EQ(meetings - before, 2);
    stop(&a);
    close_world();
}

/* The answer says what was so before. */
TEST(what_was_lost_during_a_meeting_is_not_taken_again_because_of_it)
{
    struct node a;
    open_world();
    join(&a, "a", 1);
    run_for(SECOND / 10);
    delay_ns = 50000000;
    cluster_look(a.cluster);
    run_for(1000); /* the store has answered, and the answer is on its way */
    other_meets("b", 7, 3600 * SECOND);
    other_claims("b", 2, 3600 * SECOND);
    leave(&a, 2); /* it is another's: nothing is released */
    run_for(SECOND);
    CHECK(a.takes == SHARDS && !a.claims[2].here);
    stop(&a);
    close_world();
}

TEST(what_cannot_be_started_is_tried_again_after_a_while)
{
    struct node a;
    open_world();
    cannot_take = true;
    join(&a, "a", 1);
    run_for(SECOND / 10);
    CHECK_EQ(a.takes, SHARDS);
    run_for(30 * SECOND);
    CHECK(a.takes >= 20 * SHARDS && a.takes <= 40 * SHARDS); /* about once a second: a third of a lease */
    CHECK_EQ(a.moves, 0);
    cannot_take = false;
    run_for(2 * SECOND);
    CHECK_EQ(count_here(&a), SHARDS);
    stop(&a);
    cannot_take = true;
    join(&a, "a", 2);
    run_for(SECOND / 10);
    stop(&a); /* does not wait for what is not here */
    cannot_take = false;
    close_world();
}

/* --- The store was away ------------------------------------------------------------------------------------------- */

/* Whoever comes back first finds that everybody's time has run out, and leaves to the others what they had. */
TEST(those_who_had_shards_before_the_store_was_away_have_a_head_start)
{
    struct node a;
    open_world();
    other_meets("b", 7, 3 * SECOND);
    other_claims("b", 2, 3 * SECOND);
    join(&a, "a", 1);
    run_for(SECOND);
    CHECK_EQ(count_here(&a), 3); /* the other has its share */
    refuse_meetings = 100;
    run_for(20 * SECOND);
    refuse_meetings = 0;
    run_for(3 * SECOND);
    CHECK(count_here(&a) == 3 && cluster_view(a.cluster)->member_count == 2 && cluster_view(a.cluster)->owners[2] >= 0);
    run_for(3 * SECOND); /* it does not come back */
    CHECK(count_here(&a) == SHARDS && cluster_view(a.cluster)->member_count == 1);
    stop(&a);
    close_world();
}

TEST(who_comes_back_after_the_store_was_away_has_what_it_had)
{
    struct node a, b;
    open_world();
    join(&a, "a", 1);
    run_for(SECOND);
    join(&b, "b", 2);
    run_for(10 * SECOND);
    unsigned takes = a.takes + b.takes;
    for (int i = 0; i < 10; i++) {
        refuse_meetings = i % 2 ? 60 : 61;
        run_for(20 * SECOND);
        refuse_meetings = 0;
        run_for(5 * SECOND);
    }
    CHECK(a.takes + b.takes == takes && a.leaves + b.leaves == 2); /* what went to the second */
    CHECK(count_here(&a) + count_here(&b) == SHARDS);
    stop(&a);
    stop(&b);
    close_world();
}

/* --- Stopping ----------------------------------------------------------------------------------------------------- */

TEST(stopping_waits_for_the_meeting_that_is_under_way)
{
    struct node a;
    open_world();
    delay_ns = 100000000;
    join(&a, "a", 1);
    stop(&a); /* it has not even joined */
    CHECK(a.takes == 0 && count_listed() == 0);
    join(&a, "a", 2);
    run_for(SECOND);
    cluster_look(a.cluster);
    stop(&a);
    CHECK(a.takes == SHARDS && a.leaves == SHARDS && count_listed() == 0);
    close_world();
}

TEST(stopping_does_not_depend_on_the_store)
{
    struct node a;
    open_world();
    join(&a, "a", 1);
    run_for(SECOND);
    refuse_meetings = 1000;
    stop(&a);
    CHECK(a.leaves == SHARDS && count_listed() == 1); /* its time runs out */
    close_world();
}

/* Requests can be passed on all the time: a server that leaves learns who has its shards. */
TEST(stopping_ends_when_others_have_the_shards)
{
    struct node a, b;
    open_world();
    join(&a, "a", 1);
    run_for(SECOND / 10);
    join(&b, "b", 2);
    run_for(5 * SECOND);
    CHECK(count_here(&a) > 0 && count_here(&b) > 0);
    cluster_stop(a.cluster, 3600 * SECOND, done);
    run_for(3 * SECOND);
    CHECK(a.done && count_here(&b) == SHARDS);
    const struct cluster_view *view = cluster_view(a.cluster);
    CHECK(view->self == SIZE_MAX && view->member_count == 1 && view->members[0].shards == SHARDS);
    cluster_free(a.cluster, freed, &a);
    run_for(SECOND);
    CHECK(a.freed);
    stop(&b);
    close_world();
}

TEST(stopping_does_not_wait_for_others_for_ever)
{
    struct node a;
    open_world();
    join(&a, "a", 1);
    run_for(SECOND);
    other_meets("b", 7, 3600 * SECOND); /* and takes nothing */
    cluster_stop(a.cluster, 5 * SECOND, done);
    run_for(4900000);
    CHECK(!a.done && count_here(&a) == 0);
    CHECK_EQ(cluster_view(a.cluster)->owners[2], CLUSTER_MOVING);
    run_for(200000);
    CHECK(a.done);
    cluster_free(a.cluster, freed, &a);
    run_for(SECOND);
    CHECK(a.freed);
    close_world();
}

/* --- No memory ---------------------------------------------------------------------------------------------------- */

/* Whether one was to fail and has not been asked for. */
static bool live_without(int nth)
{
    struct node a;
    open_world();
    left = nth;
    int result = try_to_join(&a, "a", 1);
    if (result == 0) {
        for (int i = 0; i < 5; i++) {
            CHECK(fl_loop_run_once(loop, true) == 0);
            cluster_look(a.cluster);
        }
    }
    bool spare = left >= 0;
    left = -1;
    CHECK(result == 0 || result == FL_NO_MEMORY);
    if (result == 0) {
        run_for(5 * SECOND);
        CHECK(count_here(&a) == SHARDS);
        stop(&a);
    }
    close_world();
    return spare;
}

TEST(every_allocation_may_fail_and_is_made_up_for)
{
    int nth = 0;
    while (!live_without(nth))
        nth++;
    CHECK(nth > 10);
}
