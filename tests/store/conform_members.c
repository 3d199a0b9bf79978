/* SPDX-License-Identifier: MIT */
/* The suite, for stores that several processes may have open: FL_STORE_MEET. */

#include <pthread.h>

#include "store/conformance.h"

/* Asks, and gives the answer. It must succeed. */
static struct asked met(fl_shard *which, struct asked asked)
{
    CHECK_EQ(perform(which, &asked), 0);
    return asked;
}

static struct asked joined(const char *address, uint64_t incarnation)
{
    return met(shard, to_meet(address, incarnation, HOUR_US, true));
}

static struct asked stayed(const char *address, uint64_t incarnation)
{
    return met(shard, to_meet(address, incarnation, HOUR_US, false));
}

static struct asked left(const char *address, uint64_t incarnation)
{
    return met(shard, to_meet(address, incarnation, 0, false));
}

static struct asked looked(void)
{
    return met(shard, to_meet(NULL, 0, 0, false));
}

static const fl_store_member *member_of(const struct asked *asked, const char *address)
{
    for (size_t i = 0; i < asked->request.meet.member_count; i++)
        if (strcmp(asked->request.meet.members[i].address, address) == 0)
            return &asked->request.meet.members[i];
    return NULL;
}

static bool has_time_left(int64_t left_us)
{
    return left_us > 0 && left_us <= (int64_t)HOUR_US;
}

/* --- Servers ------------------------------------------------------------------------------------------------------ */

TEST(a_new_store_has_no_servers)
{
    begin();
    CHECK_EQ(looked().request.meet.member_count, 0);
    end();
}

TEST(servers_of_one_store_find_each_other_through_whatever_shard)
{
    begin();
    fl_shard *other = attach(1);
    struct asked first = to_meet("10.0.0.1:8080", 7, HOUR_US, true);
    first.request.meet.about = "one";
    first = met(shard, first);
    CHECK_EQ(first.request.meet.member_count, 1); /* itself */
    struct asked second = to_meet("10.0.0.2:8080", INT64_MAX, HOUR_US, true);
    second.request.meet.about = "two";
    second = met(other, second);
    struct asked look = looked();
    const struct asked *answers[] = {&second, &look};
    for (int i = 0; i < 2; i++) {
        const fl_store_member *members = answers[i]->request.meet.members;
        CHECK_EQ(answers[i]->request.meet.member_count, 2);
        CHECK(strcmp(members[0].address, "10.0.0.1:8080") == 0);
        CHECK(strcmp(members[0].about, "one") == 0);
        CHECK_EQ(members[0].incarnation, 7);
        CHECK(has_time_left(members[0].left_us));
        CHECK(strcmp(members[1].address, "10.0.0.2:8080") == 0);
        CHECK(strcmp(members[1].about, "two") == 0);
        CHECK_EQ(members[1].incarnation, INT64_MAX);
        CHECK(has_time_left(members[1].left_us));
    }
    detach(other);
    end();
}

TEST(servers_are_in_the_order_of_the_bytes_of_their_addresses)
{
    static const char *const addresses[] = {"A",   "B:1", "B:10", "B:2",      "a-1",
                                            "a.1", "aa",  "b",    "\xc3\xa4", "\xe2\x82\xac"};
    enum { COUNT = sizeof addresses / sizeof *addresses };
    begin();
    for (int i = 0; i < COUNT; i++)
        joined(addresses[i * 7 % COUNT], 1);
    struct asked look = looked();
    CHECK_EQ(look.request.meet.member_count, COUNT);
    for (int i = 0; i < COUNT; i++)
        CHECK(strcmp(look.request.meet.members[i].address, addresses[i]) == 0);
    end();
}

TEST(what_a_server_says_of_itself_is_what_it_said_last)
{
    begin();
    struct asked asked = to_meet("a", 1, HOUR_US, true);
    asked.request.meet.about = "first";
    met(shard, asked);
    asked = to_meet("a", 1, HOUR_US, false);
    asked.request.meet.about = "then \xe2\x82\xac";
    CHECK(strcmp(met(shard, asked).request.meet.members[0].about, "then \xe2\x82\xac") == 0);
    CHECK(strcmp(stayed("a", 1).request.meet.members[0].about, "") == 0); /* NULL: nothing */
    end();
}

TEST(a_process_takes_the_place_of_an_earlier_one_of_its_address)
{
    begin();
    joined("a", 9);
    struct asked second = joined("a", 3); /* which is larger does not matter */
    CHECK_EQ(second.request.meet.member_count, 1);
    CHECK_EQ(second.request.meet.members[0].incarnation, 3);
    end();
}

TEST(who_was_replaced_changes_nothing_and_does_not_find_itself)
{
    begin();
    joined("a", 1);
    struct asked second = to_meet("a", 2, HOUR_US, true);
    second.request.meet.about = "the second";
    met(shard, second);
    struct asked first = to_meet("a", 1, UINT64_MAX, false);
    first.request.meet.about = "the first";
    first = met(shard, first);
    CHECK_EQ(first.request.meet.member_count, 1);
    CHECK_EQ(first.request.meet.members[0].incarnation, 2);
    CHECK(strcmp(first.request.meet.members[0].about, "the second") == 0);
    CHECK(has_time_left(first.request.meet.members[0].left_us));
    CHECK_EQ(left("a", 1).request.meet.member_count, 1);
    CHECK_EQ(looked().request.meet.members[0].incarnation, 2);
    end();
}

TEST(only_who_joins_is_put_on_the_list)
{
    begin();
    CHECK_EQ(stayed("a", 1).request.meet.member_count, 0);
    CHECK_EQ(left("a", 1).request.meet.member_count, 0);
    CHECK_EQ(met(shard, to_meet("a", 1, 0, true)).request.meet.member_count, 0);
    CHECK_EQ(looked().request.meet.member_count, 0);
    end();
}

TEST(who_is_gone_is_off_the_list)
{
    begin();
    joined("a", 1);
    joined("b", 1);
    struct asked gone = left("a", 1);
    CHECK_EQ(gone.request.meet.member_count, 1);
    CHECK(strcmp(gone.request.meet.members[0].address, "b") == 0);
    CHECK_EQ(stayed("a", 1).request.meet.member_count, 1); /* for good */
    CHECK_EQ(joined("a", 1).request.meet.member_count, 2); /* until it joins again */
    CHECK_EQ(met(shard, to_meet("b", 2, 0, true)).request.meet.member_count, 1);
    end();
}

TEST(who_has_run_out_of_time_is_still_on_the_list_and_may_go_on)
{
    begin();
    met(shard, to_meet("a", 1, 1, true));
    joined("b", 1); /* it has not been an hour */
    struct asked look;
    do {
        look = looked();
        CHECK_EQ(look.request.meet.member_count, 2);
    } while (look.request.meet.members[0].left_us > 0);
    CHECK(has_time_left(look.request.meet.members[1].left_us));
    CHECK(has_time_left(stayed("a", 1).request.meet.members[0].left_us));
    end();
}

TEST(a_time_of_any_length_is_a_time)
{
    begin();
    struct asked asked = met(shard, to_meet("a", 1, UINT64_MAX, true));
    CHECK(asked.request.meet.members[0].left_us > (int64_t)HOUR_US);
    asked = met(shard, to_meet("a", 1, HOUR_US, false));
    CHECK(has_time_left(asked.request.meet.members[0].left_us));
    end();
}

TEST(a_meeting_that_makes_no_sense_is_refused)
{
    char longest[FL_STORE_NAME_MAX + 1], longer[FL_STORE_NAME_MAX + 2];
    memset(longest, 'x', sizeof longest);
    memset(longer, 'x', sizeof longer);
    longest[sizeof longest - 1] = longer[sizeof longer - 1] = 0;
    begin();
    struct asked wrong[] = {to_meet("", 1, HOUR_US, true), to_meet(longer, 1, HOUR_US, true),
                            to_meet("a", 1, HOUR_US, true), to_meet("a", 0, HOUR_US, true),
                            to_meet("a", (uint64_t)1 << 63, HOUR_US, true)};
    wrong[2].request.meet.about = longer;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_EQ(perform(shard, &wrong[i]), FL_INVALID_ARGUMENT);
    CHECK_EQ(looked().request.meet.member_count, 0);
    struct asked good = to_meet(longest, 1, HOUR_US, true);
    good.request.meet.about = longest;
    good = met(shard, good);
    CHECK(strcmp(good.request.meet.members[0].address, longest) == 0);
    CHECK(strcmp(good.request.meet.members[0].about, longest) == 0);
    end();
}

TEST(a_server_is_on_the_list_after_the_store_was_closed)
{
    if (!under_test.reopen)
        return;
    begin();
    joined("a", 5);
    reopen();
    struct asked look = looked();
    CHECK_EQ(look.request.meet.member_count, 1);
    CHECK_EQ(look.request.meet.members[0].incarnation, 5);
    end();
}

/* --- Shards ------------------------------------------------------------------------------------------------------- */

TEST(a_meeting_tells_who_has_the_shards)
{
    begin();
    struct asked look = looked();
    for (int i = 0; i < 2; i++) {
        CHECK(strcmp(look.request.meet.holders[i].owner, "") == 0);
        CHECK_EQ(look.request.meet.holders[i].version, 0);
        CHECK(look.request.meet.holders[i].left_us <= 0);
    }
    fl_shard *other = attach(1);
    uint64_t version = claim(other, "10.0.0.2:8080");
    const fl_store_holder *holders = looked().request.meet.holders;
    CHECK(strcmp(holders[0].owner, "") == 0);
    CHECK(strcmp(holders[1].owner, "10.0.0.2:8080") == 0);
    CHECK_EQ(holders[1].version, version);
    CHECK(has_time_left(holders[1].left_us));
    struct asked release = simple(FL_STORE_RELEASE, version);
    CHECK_EQ(perform(other, &release), 0);
    holders = looked().request.meet.holders;
    CHECK(strcmp(holders[1].owner, "") == 0);
    CHECK_EQ(holders[1].version, version);
    CHECK(holders[1].left_us <= 0);
    detach(other);
    end();
}

TEST(a_shard_whose_claim_has_run_out_is_still_its_owners)
{
    begin();
    struct asked asked = to_claim("a", 1, false), look;
    CHECK_EQ(perform(shard, &asked), 0);
    do {
        look = looked();
        CHECK(strcmp(look.request.meet.holders[0].owner, "a") == 0);
    } while (look.request.meet.holders[0].left_us > 0);
    end();
}

TEST(meeting_is_for_any_attachment_and_takes_nothing_from_who_has_claimed)
{
    begin();
    uint64_t version = claim(shard, "a");
    fl_shard *other = attach(0);
    CHECK_EQ(met(other, to_meet("b", 1, HOUR_US, true)).request.meet.member_count, 1);
    struct asked look = to_meet("a", 1, HOUR_US, true);
    look.request.version = version + 1000; /* of no meaning */
    CHECK_EQ(met(shard, look).request.meet.member_count, 2);
    CHECK_EQ(claim(other, "b"), version + 1);
    CHECK_EQ(stayed("a", 1).request.meet.member_count, 2); /* through an attachment that has lost its shard, too */
    fl_row row = make_row(2, 1000, 25);
    put(other, version + 1, &row, 1);
    detach(other);
    end();
}

TEST(meetings_take_their_turn_among_other_requests)
{
    begin();
    uint64_t version = claim(shard, "a");
    struct asked asked[9];
    for (int i = 0; i < 9; i++)
        asked[i] = i % 3 == 0   ? to_meet("a", 1, HOUR_US, i == 0)
                   : i % 3 == 1 ? to_record(version, &(fl_progress){.seq_limit = 2})
                                : to_list_dead();
    asked[5] = to_claim("b", HOUR_US, true);
    asked[7] = simple(FL_STORE_RENEW, version + 1);
    for (int i = 0; i < 9; i++)
        ask(shard, &asked[i]);
    for (int i = 0; i < 9; i++)
        CHECK_EQ(await(&asked[i]), 0);
    for (int i = 1; i < 9; i++)
        CHECK_EQ(asked[i].place, asked[i - 1].place + 1);
    CHECK(strcmp(asked[3].request.meet.holders[0].owner, "a") == 0);
    CHECK(strcmp(asked[6].request.meet.holders[0].owner, "b") == 0);
    end();
}

/* --- Threads ------------------------------------------------------------------------------------------------------ */

enum { SERVERS = 4, ROUNDS = 30 };

struct server {
    pthread_t thread;
    char address[16];
    uint32_t number; /* of the shard it is attached to */
    uint64_t incarnation;
    bool answered;
};

static void check_meeting(fl_store_request *request)
{
    struct server *server = request->arg;
    CHECK_EQ(request->result, 0);
    bool found = false;
    for (size_t i = 0; i < request->meet.member_count; i++)
        found = found || (strcmp(request->meet.members[i].address, server->address) == 0 &&
                          request->meet.members[i].incarnation == server->incarnation);
    CHECK_EQ(found, request->meet.claim_us > 0);
    server->answered = true;
}

static void set(fl_loop *on, void *arg)
{
    (void)on;
    *(bool *)arg = true;
}

/* Joins, stays and leaves, again and again, with an incarnation more each time; joins for good in the end. */
static void *serve(void *arg)
{
    struct server *server = arg;
    fl_loop *own;
    fl_shard *attached;
    CHECK_EQ(fl_loop_new(NULL, &own), 0);
    fl_loop_hold(own);
    CHECK_EQ(fl_store_attach(store, server->number, own, &attached), 0);
    for (int i = 0; i <= ROUNDS * 3; i++) {
        server->incarnation = (uint64_t)i / 3 + 1;
        struct asked asked = to_meet(server->address, server->incarnation, i % 3 == 2 ? 0 : HOUR_US, i % 3 == 0);
        asked.request.done = check_meeting;
        asked.request.arg = server;
        server->answered = false;
        fl_store_submit(attached, &asked.request);
        while (!server->answered)
            CHECK_EQ(fl_loop_run_once(own, true), 0);
    }
    bool gone = false;
    fl_store_detach(attached, set, &gone);
    while (!gone)
        CHECK_EQ(fl_loop_run_once(own, true), 0);
    fl_loop_free(own);
    return NULL;
}

TEST(servers_on_threads_of_their_own_meet_at_any_moment)
{
    begin();
    static struct server servers[SERVERS];
    for (uint32_t i = 0; i < SERVERS; i++) {
        servers[i] = (struct server){.number = i % 2};
        snprintf(servers[i].address, sizeof servers[i].address, "server %u", i);
        CHECK_EQ(pthread_create(&servers[i].thread, NULL, serve, &servers[i]), 0);
    }
    for (int i = 0; i < ROUNDS; i++)
        claim(shard, "somebody"); /* meanwhile */
    for (int i = 0; i < SERVERS; i++)
        CHECK_EQ(pthread_join(servers[i].thread, NULL), 0);
    struct asked look = looked();
    CHECK_EQ(look.request.meet.member_count, SERVERS);
    for (int i = 0; i < SERVERS; i++)
        CHECK_EQ(member_of(&look, servers[i].address)->incarnation, ROUNDS + 1);
    end();
}
