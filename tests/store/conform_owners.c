/* SPDX-License-Identifier: MIT */
/* The suite, about owners: claims, versions, and that nobody else writes. */

#include "store/conformance.h"

static void set(fl_loop *on, void *arg)
{
    (void)on;
    *(bool *)arg = true;
}

static void wait_ms(uint64_t ms)
{
    bool over = false;
    CHECK_EQ(fl_loop_timer(loop, ms * MILLISECOND, set, &over, NULL), 0);
    while (!over)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
}

TEST(a_new_shard_has_no_progress_and_no_windows)
{
    begin();
    struct asked asked = to_claim("me", HOUR_US, false);
    CHECK_EQ(perform(shard, &asked), 0);
    const fl_progress *progress = &asked.request.claim.progress;
    CHECK(asked.request.claim.version > 0);
    CHECK_EQ(asked.request.claim.window_count, 0);
    CHECK_EQ(progress->seq_limit, 2);
    CHECK_EQ(progress->pending, 0);
    CHECK_EQ(progress->keep_count, 0);
    for (int i = 0; i < 2; i++)
        CHECK(progress->front[i].at_us == 0 && progress->front[i].seq == 0);
    end();
}

TEST(a_claim_gives_a_larger_version_each_time)
{
    begin();
    uint64_t last = 0;
    for (int i = 0; i < 5; i++) {
        struct asked asked = to_claim("me", HOUR_US, false);
        CHECK_EQ(perform(shard, &asked), 0); /* what one owns one may claim again */
        CHECK(asked.request.claim.version > last);
        last = asked.request.claim.version;
    }
    CHECK(claim(shard, "you") > last);
    end();
}

TEST(what_another_holds_is_held_and_the_message_says_by_whom)
{
    begin();
    uint64_t version = claim(shard, "server-7:8080");
    struct asked asked = to_claim("you", HOUR_US, false);
    CHECK_EQ(perform(shard, &asked), FL_SHARD_HELD);
    CHECK(strstr(asked.request.message, "server-7:8080"));
    CHECK_EQ(fl_store_failure(asked.request.result), FL_FAILURE_REFUSED);
    fl_row row = make_row(2, 1000, 25);
    put(shard, version, &row, 1); /* the claim that failed has changed nothing */
    end();
}

TEST(force_takes_what_another_holds)
{
    begin();
    uint64_t version = claim(shard, "me");
    struct asked asked = to_claim("you", HOUR_US, true);
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK(asked.request.claim.version > version);
    end();
}

TEST(a_claim_that_has_run_out_holds_nobody_off)
{
    begin();
    struct asked mine = to_claim("me", 1, false), yours = to_claim("you", HOUR_US, false);
    CHECK_EQ(perform(shard, &mine), 0);
    wait_ms(20);
    CHECK_EQ(perform(shard, &yours), 0);
    end();
}

TEST(an_owner_whose_claim_has_run_out_goes_on_until_another_claims)
{
    begin();
    struct asked mine = to_claim("me", 1, false);
    CHECK_EQ(perform(shard, &mine), 0);
    wait_ms(20);
    fl_row row = make_row(2, 1000, 25);
    put(shard, mine.request.claim.version, &row, 1);
    end();
}

TEST(renewing_makes_the_claim_longer)
{
    begin();
    struct asked mine = to_claim("me", 1, false), yours = to_claim("you", HOUR_US, false);
    CHECK_EQ(perform(shard, &mine), 0);
    struct asked renew = simple(FL_STORE_RENEW, mine.request.claim.version);
    renew.request.renew.claim_us = HOUR_US;
    CHECK_EQ(perform(shard, &renew), 0);
    wait_ms(20);
    CHECK_EQ(perform(shard, &yours), FL_SHARD_HELD);
    end();
}

TEST(a_claim_of_any_length_is_a_claim)
{
    begin();
    struct asked mine = to_claim("me", UINT64_MAX, false), yours = to_claim("you", HOUR_US, false);
    CHECK_EQ(perform(shard, &mine), 0);
    CHECK_EQ(perform(shard, &yours), FL_SHARD_HELD);
    struct asked renew = simple(FL_STORE_RENEW, mine.request.claim.version);
    renew.request.renew.claim_us = UINT64_MAX;
    CHECK_EQ(perform(shard, &renew), 0);
    struct asked again = to_claim("you", HOUR_US, false);
    CHECK_EQ(perform(shard, &again), FL_SHARD_HELD);
    end();
}

TEST(what_was_released_can_be_claimed_at_once)
{
    begin();
    uint64_t version = claim(shard, "me");
    struct asked release = simple(FL_STORE_RELEASE, version), yours = to_claim("you", HOUR_US, false);
    CHECK_EQ(perform(shard, &release), 0);
    CHECK_EQ(perform(shard, &yours), 0);
    CHECK(yours.request.claim.version > version);
    end();
}

TEST(an_owner_has_a_name_of_1_to_255_bytes)
{
    begin();
    char longest[257];
    memset(longest, 'x', 256);
    longest[256] = 0;
    struct asked too_long = to_claim(longest, HOUR_US, true), none = to_claim("", HOUR_US, true);
    CHECK_EQ(perform(shard, &too_long), FL_INVALID_ARGUMENT);
    CHECK_EQ(perform(shard, &none), FL_INVALID_ARGUMENT);
    longest[255] = 0;
    claim(shard, longest);
    struct asked yours = to_claim("you", HOUR_US, false);
    CHECK_EQ(perform(shard, &yours), FL_SHARD_HELD);
    end();
}

/* Every kind of write, with a version. */
static struct asked a_write(int kind, uint64_t version)
{
    static fl_row row;
    static fl_store_change change;
    static struct fl_store_span span;
    row = make_row(100, 1000, 25);
    change = (fl_store_change){.put = &row};
    span = (struct fl_store_span){row.window, true};
    struct asked asked = simple(FL_STORE_RENEW, version);
    switch (kind) {
    case 0:
        return asked;
    case 1:
        return to_write(version, &change, 1);
    case 2:
        return to_write(version, NULL, 0);
    case 3:
        return to_refile(version, fl_window_of(1000, 31), 10);
    case 4:
        return to_record(version, &(fl_progress){.seq_limit = 7});
    case 5:
        asked = simple(FL_STORE_FINISH, version);
        asked.request.finish.spans = &span;
        asked.request.finish.span_count = 1;
        return asked;
    default:
        return simple(FL_STORE_RELEASE, version);
    }
}

enum { KINDS_OF_WRITES = 7 };

static void check_lost(fl_shard *which, uint64_t version)
{
    for (int kind = 0; kind < KINDS_OF_WRITES; kind++) {
        struct asked asked = a_write(kind, version);
        CHECK_EQ(perform(which, &asked), FL_SHARD_LOST);
        CHECK_EQ(fl_store_failure(asked.request.result), FL_FAILURE_LOST);
    }
}

TEST(every_write_of_an_owner_that_lost_the_shard_is_refused_and_changes_nothing)
{
    begin();
    fl_shard *other = attach(0);
    uint64_t mine = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25), far = make_row(4, 1000, 31);
    put(shard, mine, (fl_row[]){row, far}, 2);
    uint64_t yours = claim(other, "you");
    check_lost(shard, mine);
    check_lost(shard, mine); /* and it stays so */
    CHECK(is_there(other, row.id, NULL));
    CHECK(!is_there(other, (fl_key){1000, 100}, NULL));
    CHECK_EQ(load(other, far.window, NULL), 1);
    struct asked third = to_claim("third", HOUR_US, false); /* it was not released */
    CHECK_EQ(perform(shard, &third), FL_SHARD_HELD);
    struct asked again = to_claim("you", HOUR_US, false);
    CHECK_EQ(perform(other, &again), 0);
    CHECK(again.request.claim.version > yours);
    CHECK_EQ(again.request.claim.progress.seq_limit, 2);
    detach(other);
    end();
}

TEST(an_owner_that_claims_again_loses_its_old_version)
{
    begin();
    uint64_t old = claim(shard, "me"), new = claim(shard, "me");
    check_lost(shard, old);
    struct asked asked = to_write(new, NULL, 0);
    CHECK_EQ(perform(shard, &asked), 0);
    end();
}

TEST(who_never_claimed_cannot_write)
{
    begin();
    check_lost(shard, 0);
    check_lost(shard, 1000);
    uint64_t version = claim(shard, "me");
    check_lost(shard, 0);
    check_lost(shard, version + 1);
    end();
}

TEST(reads_need_no_version)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25);
    put(shard, version, &row, 1);
    fl_shard *other = attach(0);
    CHECK(is_there(other, row.id, NULL));
    CHECK_EQ(load(other, row.window, NULL), 1);
    struct asked listed = to_list(row.window), dead = to_list_dead();
    CHECK_EQ(perform(other, &listed), 0);
    CHECK_EQ(perform(other, &dead), 0);
    detach(other);
    end();
}

TEST(shards_have_owners_of_their_own)
{
    begin();
    fl_shard *second = attach(1);
    uint64_t first_version = claim(shard, "me");
    struct asked asked = to_claim("you", HOUR_US, false);
    CHECK_EQ(perform(second, &asked), 0);
    fl_row row = make_named(2, 1000, 25, "same"), same = row;
    same.body = text("in the other shard");
    put(shard, first_version, &row, 1);
    put(second, asked.request.claim.version, &same, 1); /* nor do their rows and names meet */
    fl_row found;
    CHECK(is_named(shard, "same", &found) && same_row(&found, &row));
    CHECK(is_named(second, "same", &found) && same_row(&found, &same));
    write_one(second, asked.request.claim.version, (fl_store_change){.remove = same.key});
    CHECK(is_there(shard, row.id, NULL) && !is_there(second, row.id, NULL));
    detach(second);
    end();
}

/* The writes of two owners, in every order in which their requests can come to a shard. */
TEST(a_claim_between_pipelined_writes_parts_them)
{
    begin();
    fl_shard *other = attach(0);
    uint64_t mine = claim(shard, "me");
    fl_row before = make_row(2, 1000, 25), after = make_row(4, 1000, 25);
    fl_store_change first = {.put = &before}, second = {.put = &after};
    struct asked writing = to_write(mine, &first, 1), losing = to_write(mine, &second, 1);
    CHECK_EQ(perform(shard, &writing), 0);
    struct asked claiming = to_claim("you", HOUR_US, true);
    ask(other, &claiming);
    CHECK_EQ(await(&claiming), 0);
    ask(shard, &losing);
    CHECK_EQ(await(&losing), FL_SHARD_LOST);
    CHECK(is_there(other, before.id, NULL) && !is_there(other, after.id, NULL));
    detach(other);
    end();
}

/* Writes and a claim that race: whatever came before the claim is seen by it, and nothing comes after. */
TEST(what_the_new_owner_sees_is_all_there_will_be)
{
    enum { WRITES = 40 };
    begin();
    fl_shard *other = attach(0);
    uint64_t mine = claim(shard, "me");
    static struct asked writes[WRITES];
    static fl_store_change changes[WRITES];
    static fl_row rows[WRITES];
    struct asked claiming = to_claim("you", HOUR_US, true);
    for (unsigned i = 0; i < WRITES; i++) {
        rows[i] = make_row(2 + 2 * i, 1000, 25);
        changes[i] = (fl_store_change){.put = &rows[i]};
        writes[i] = to_write(mine, &changes[i], 1);
        ask(shard, &writes[i]);
        if (i == WRITES / 2)
            ask(other, &claiming);
    }
    CHECK_EQ(await(&claiming), 0);
    size_t seen = load(other, rows[0].window, NULL);
    unsigned good = 0;
    for (unsigned i = 0; i < WRITES; i++) {
        int r = await(&writes[i]);
        CHECK(r == FL_SHARD_LOST || (r == 0 && good == i));
        good += r == 0;
    }
    CHECK_EQ(seen, good);
    CHECK_EQ(load(other, rows[0].window, NULL), good);
    detach(other);
    end();
}
