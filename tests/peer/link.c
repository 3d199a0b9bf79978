/* SPDX-License-Identifier: MIT */
/* Links between servers: what is called is answered, once; what is lost is told apart from what has not happened; and
 * nobody gets in who does not have the secret. */

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pair.h"
#include "test.h"

static void start(bool tls)
{
    pair_start(tls);
    pair_link(tls);
}

/* --- Calls -------------------------------------------------------------------------------------------------------- */

TEST(calls_are_answered)
{
    for (int tls = 0; tls < 2; tls++) {
        start(tls);
        struct asked *a = ask_text(ECHO, "hello"), *b = ask(ECHO, NULL, 0), *c = ask_text(WRONG, "x");
        asked_wait(a);
        asked_wait(b);
        asked_wait(c);
        CHECK(a->result == 0 && strcmp(a->text, "hello") == 0 && a->call.sent);
        CHECK(b->result == 0 && b->size == 0);
        CHECK(c->result == FL_NOT_FOUND && strcmp(c->text, "not here") == 0);
        CHECK(strcmp(pair.address, "me:1") == 0);
        free(a);
        free(b);
        free(c);
        pair_end();
    }
}

TEST(answers_come_in_any_order)
{
    enum { COUNT = 20 };
    struct asked *asked[COUNT];
    start(false);
    for (int i = 0; i < COUNT; i++)
        asked[i] = ask(KEEP, &i, sizeof i);
    UNTIL(pair.kept_count == COUNT);
    for (int i = 0; i < COUNT; i++) {
        int k = i * 7 % COUNT;
        peer_answer(pair.kept[k], 100 + k, (fl_bytes){&k, sizeof k});
        asked_wait(asked[k]);
        CHECK_EQ(asked[k]->result, 100 + k);
        CHECK_EQ(asked[k]->sum, sum_of((fl_bytes){&k, sizeof k}));
        for (int other = 0; other < COUNT; other++)
            CHECK_EQ(asked[other]->done + (asked[other]->result == 0), 1);
    }
    pair.kept_count = 0;
    for (int i = 0; i < COUNT; i++)
        free(asked[i]);
    pair_end();
}

TEST(an_answer_may_come_in_pieces)
{
    start(false);
    struct asked *asked = ask_text(PIECES, "x"), *without = calloc(1, sizeof *without);
    asked_wait(asked);
    CHECK_EQ(asked->pieces, 3);
    CHECK(asked->result == 3 && strcmp(asked->text, "end") == 0);
    CHECK(without);
    without->call.done = asked->call.done; /* and no `piece` */
    peer_call(pair.link, &without->call, PIECES, (fl_bytes){0});
    asked_wait(without);
    CHECK(without->result == 3 && strcmp(without->text, "end") == 0);
    free(asked);
    free(without);
    pair_end();
}

TEST(large_bodies_go_both_ways)
{
    size_t size = 40 << 20;
    char *body = malloc(size);
    CHECK(body);
    for (size_t i = 0; i < size; i++)
        body[i] = (char)(i * 11 % 253);
    for (int tls = 0; tls < 2; tls++) {
        start(tls);
        struct asked *small = ask_text(ECHO, "small"), *large = ask(ECHO, body, size), *after = ask_text(ECHO, "after");
        asked_wait(after);
        CHECK(small->done && large->done);
        CHECK_EQ(large->size, size);
        CHECK_EQ(large->sum, sum_of((fl_bytes){body, size}));
        free(small);
        free(large);
        free(after);
        pair_end();
    }
    free(body);
}

static int urgent_result;

static void urgent_done(struct peer_call *call, int result, fl_bytes answer)
{
    (void)call, (void)answer;
    urgent_result = result;
}

TEST(bodies_have_a_limit)
{
    uint64_t size = PEER_BODY_MOST;
    char *body = calloc(1, size + 1);
    CHECK(body);
    start(false);
    struct asked *asked[] = {ask(ECHO, body, size), ask(ECHO, body, size + 1), ask(LARGE, &size, sizeof size), NULL};
    size++;
    asked[3] = ask(LARGE, &size, sizeof size);
    static const int results[] = {0, FL_TOO_LARGE, 0, FL_TOO_LARGE};
    static const size_t sizes[] = {PEER_BODY_MOST, 0, PEER_BODY_MOST, 0};
    for (int i = 0; i < 4; i++) {
        asked_wait(asked[i]);
        CHECK_EQ(asked[i]->result, results[i]);
        CHECK_EQ(asked[i]->size, sizes[i]);
        CHECK_EQ(asked[i]->call.sent, i != 1);
        free(asked[i]);
    }
    CHECK(peer_link_up(pair.link));
    free(body);
    pair_end();
}

TEST(a_link_may_be_full)
{
    char *body = calloc(1, PEER_BODY_MOST);
    CHECK(body);
    start(false);
    struct asked *asked[4];
    for (int i = 0; i < 4; i++)
        asked[i] = ask(ECHO, body, i < 2 ? PEER_BODY_MOST : 10); /* nothing is sent before the turn ends */
    static struct peer_call urgent;
    urgent = (struct peer_call){.done = urgent_done, .urgent = true};
    urgent_result = -1;
    peer_call(pair.link, &urgent, ECHO, (fl_bytes){"now", 3});
    for (int i = 0; i < 4; i++) {
        asked_wait(asked[i]);
        CHECK_EQ(asked[i]->result, i < 2 ? 0 : FL_CAPACITY_EXCEEDED);
        CHECK_EQ(asked[i]->call.sent, i < 2);
        free(asked[i]);
    }
    UNTIL(urgent_result == 0);
    struct asked *after = ask(ECHO, body, 10); /* there is room again */
    asked_wait(after);
    CHECK_EQ(after->result, 0);
    free(after);
    pair_end();
    free(body);
}

TEST(what_is_called_in_one_turn_is_sent_together)
{
    enum { COUNT = 5000, HUNDRED = 100 };
    struct asked **asked = calloc(COUNT, sizeof(void *));
    struct http_stats before, after;
    CHECK(asked);
    start(false);
    http_get_stats(pair.http, &before);
    for (int i = 0; i < HUNDRED; i++)
        asked[i] = ask(ECHO, NULL, 0);
    UNTIL((http_get_stats(pair.http, &after), after.bytes_in > before.bytes_in));
    CHECK_EQ(after.bytes_in - before.bytes_in, HUNDRED * PEER_HEAD); /* all with the first */
    UNTIL(asked[0]->done);
    CHECK(asked[HUNDRED - 1]->done);
    http_get_stats(pair.http, &after);
    CHECK_EQ(after.bytes_out - before.bytes_out, HUNDRED * (PEER_HEAD + PEER_RESULT));
    for (int i = 0; i < HUNDRED; i++)
        free(asked[i]);
    for (int i = 0; i < COUNT; i++)
        asked[i] = ask(ECHO, &i, sizeof i);
    for (int i = 0; i < COUNT; i++) {
        asked_wait(asked[i]);
        CHECK_EQ(asked[i]->sum, sum_of((fl_bytes){&i, sizeof i}));
        free(asked[i]);
    }
    http_get_stats(pair.http, &before);
    CHECK_EQ(before.bytes_in - after.bytes_in, COUNT * (PEER_HEAD + sizeof(int)));
    free(asked);
    pair_end();
}

TEST(what_is_not_taken_is_known)
{
    start(false);
    struct asked *asked = ask_text(KEEP, "x");
    static char large[1 << 20];
    UNTIL(pair.kept_count == 1);
    CHECK_EQ(peer_unsent(pair.kept[0]), 0);
    for (int i = 0; i < 32; i++)
        peer_piece(pair.kept[0], (fl_bytes){large, sizeof large});
    CHECK(peer_unsent(pair.kept[0]) > sizeof large);
    peer_piece(pair.kept[0], (fl_bytes){"abc", 3});
    CHECK(peer_unsent(pair.kept[0]) > sizeof large + 3);
    UNTIL(peer_unsent(pair.kept[0]) == 0);
    UNTIL(asked->pieces == 33);
    pair_answer_kept(0);
    asked_wait(asked);
    free(asked);
    pair_end();
}

/* --- Cancelling --------------------------------------------------------------------------------------------------- */

TEST(a_call_can_be_cancelled)
{
    start(false);
    struct asked *kept = ask_text(KEEP, "x"), *other = ask_text(KEEP, "y");
    UNTIL(pair.kept_count == 2);
    peer_cancel(pair.link, &kept->call);
    CHECK(kept->call.sent);
    UNTIL(pair.gone == 1);
    CHECK_EQ(peer_unsent(pair.kept[0]), 0);
    peer_piece(pair.kept[0], (fl_bytes){"nobody", 6});
    pair_answer_kept(5);
    asked_wait(other);
    CHECK_EQ(other->result, 5);
    CHECK(!kept->done && !kept->pieces);
    CHECK_EQ(pair.gone, 1);
    free(kept);
    free(other);
    pair_end();
}

TEST(a_call_can_be_cancelled_at_any_moment)
{
    start(false);
    struct asked *at_once = ask_text(KEEP, "x");
    peer_cancel(pair.link, &at_once->call);
    CHECK(!at_once->call.sent);
    struct asked *crossing = ask_text(ECHO, "y"); /* its answer is on its way */
    UNTIL(pair.handled == 2);
    if (!crossing->done)
        peer_cancel(pair.link, &crossing->call);
    struct asked *last = ask_text(ECHO, "z");
    asked_wait(last);
    CHECK(!at_once->done);
    CHECK_EQ(pair.gone, 1);
    peer_link_free(pair.link);
    pair_link_to(1, secret, false);
    struct asked *refused = ask_text(ECHO, "z"), *stays = ask_text(ECHO, "z"), *first = ask_text(ECHO, "z");
    peer_cancel(pair.link, &refused->call);
    peer_cancel(pair.link, &first->call);
    asked_wait(stays);
    CHECK_EQ(stays->result, FL_STORE_UNAVAILABLE);
    CHECK(!refused->done && !first->done);
    free(at_once);
    free(crossing);
    free(last);
    free(refused);
    free(stays);
    free(first);
    pair_end();
}

/* --- Losing it ---------------------------------------------------------------------------------------------------- */

TEST(a_call_without_a_link_has_not_happened)
{
    pair_start(false);
    pair_link_to(pair.port, secret, false);
    struct asked *early = ask_text(ECHO, "early");
    asked_wait(early);
    CHECK(early->result == FL_STORE_UNAVAILABLE && !early->call.sent);
    UNTIL(peer_link_up(pair.link));
    struct asked *kept = ask_text(KEEP, "x");
    UNTIL(pair.kept_count == 1);
    pair_stop_host();
    struct asked *unsent = ask_text(KEEP, "x"); /* the link does not know it yet */
    asked_wait(kept);
    asked_wait(unsent);
    CHECK(kept->result == FL_OUTCOME_UNKNOWN && kept->call.sent);
    CHECK(unsent->result == FL_OUTCOME_UNKNOWN || !unsent->call.sent);
    struct asked *late = ask_text(ECHO, "late");
    asked_wait(late);
    CHECK(late->result == FL_STORE_UNAVAILABLE && !late->call.sent);
    CHECK_EQ(pair.handled, 1);
    CHECK_EQ(pair.downs, 1);
    CHECK_EQ(pair.gone, 1);
    free(early);
    free(kept);
    free(unsent);
    free(late);
    pair_end();
}

TEST(a_lost_link_comes_back)
{
    for (int tls = 0; tls < 2; tls++) {
        pair_start(tls);
        between_start(false);
        pair_link_to(between.port, secret, tls);
        for (int i = 1; i <= 5; i++) {
            UNTIL((pair_pass(50), peer_link_up(pair.link)));
            CHECK_EQ(pair.ups, i);
            struct asked *asked = ask_text(ECHO, "hello");
            asked_wait(asked);
            CHECK_EQ(asked->result, 0);
            free(asked);
            between_cut();
            UNTIL(!peer_link_up(pair.link));
        }
        CHECK_EQ(between.connections, 5);
        pair_end();
        between_end();
    }
}

TEST(it_is_tried_at_once_and_then_ever_more_slowly)
{
    pair_start(false);
    between_start(false);
    between.left = 0; /* whatever comes is cut off */
    pair_link_to(between.port, secret, false);
    static const uint64_t at_ms[] = {0, 50, 150, 350, 750, 1550, 2550, 3550};
    uint64_t begin = pair.clock.time_ns;
    for (int i = 0; i < 8; i++) {
        for (int turns = 0; turns < 200; turns++)
            pair_turn();
        CHECK_EQ(between.connections, i + 1);
        uint64_t next = i + 1 < 8 ? begin + at_ms[i + 1] * 1000000 : 0;
        if (!next)
            break;
        fl_virtual_clock_move(&pair.clock, next - 1);
        for (int turns = 0; turns < 100; turns++)
            pair_turn();
        CHECK_EQ(between.connections, i + 1);
        fl_virtual_clock_move(&pair.clock, next);
    }
    CHECK(strstr(peer_link_trouble(pair.link), "closed the connection") ||
          strstr(peer_link_trouble(pair.link), "lost"));
    CHECK_EQ(pair.ups + pair.downs, 0);
    pair_end();
    between_end();
}

TEST(both_sides_give_a_silent_link_up)
{
    pair_start(false);
    between_start(false);
    pair_link_to(between.port, secret, false);
    UNTIL(peer_link_up(pair.link));
    pair_pass(60000); /* signs of life go by */
    CHECK_EQ(pair.downs, 0);
    struct asked *asked = ask_text(KEEP, "x");
    UNTIL(pair.kept_count == 1);
    between.stalled = true;
    pair_pass(2000);
    CHECK_EQ(pair.downs + pair.gone, 0);
    pair_pass(2000);
    CHECK_EQ(pair.downs, 1);
    CHECK_EQ(pair.gone, 1);
    CHECK(asked->done && asked->result == FL_OUTCOME_UNKNOWN);
    struct http_stats stats;
    between_cut();
    between.stalled = true; /* and nobody accepts */
    pair_pass(10000);
    CHECK(!peer_link_up(pair.link));
    between.stalled = false;
    UNTIL((pair_pass(50), peer_link_up(pair.link)));
    http_get_stats(pair.http, &stats);
    CHECK_EQ(stats.timeouts, 0);
    free(asked);
    pair_end();
    between_end();
}

TEST(a_loop_that_was_held_up_gives_nobody_up)
{
    start(false);
    struct asked *asked = ask_text(KEEP, "x");
    UNTIL(pair.kept_count == 1);
    for (int i = 0; i < 20; i++) {
        fl_virtual_clock_move(&pair.clock, pair.clock.time_ns + 5000000000);
        for (int turns = 0; turns < 5; turns++)
            pair_turn();
    }
    pair_answer_kept(0);
    asked_wait(asked);
    CHECK_EQ(asked->result, 0);
    CHECK_EQ(pair.downs, 0);
    free(asked);
    pair_end();
}

TEST(a_large_body_that_takes_long_is_a_sign_of_life)
{
    pair_start(false);
    between_start(false);
    pair_link_to(between.port, secret, false);
    UNTIL(peer_link_up(pair.link));
    size_t size = 8 << 20;
    char *body = calloc(1, size);
    CHECK(body);
    struct asked *asked = ask(ECHO, body, size);
    uint64_t begin = pair.clock.time_ns;
    while (!asked->done) /* 32 KiB a turn */
        pair_pass(100);
    CHECK(asked->result == 0 && asked->size == size);
    CHECK(pair.clock.time_ns - begin > 1000000000);
    CHECK_EQ(pair.downs, 0);
    free(asked);
    free(body);
    pair_end();
    between_end();
}

/* Wherever it is cut: every call is done once, and what is said not to have happened has not. */
static void cut_after(size_t bytes, bool tls)
{
    enum { COUNT = 30 };
    struct asked *asked[COUNT];
    pair_start(tls);
    between_start(false);
    between.left = bytes;
    pair_link_to(between.port, secret, tls);
    for (int i = 0; i < 300 && !peer_link_up(pair.link) && between.left > 0; i++)
        pair_turn();
    static char body[1000];
    for (int i = 0; i < COUNT; i++) {
        body[0] = (char)i;
        asked[i] = ask(i % 3 ? ECHO : PIECES, body, (size_t)i * 30 + 1);
        if (i % 5 == 0)
            pair_turn();
    }
    for (int i = 0; i < COUNT; i++) {
        asked_wait(asked[i]);
        bool seen = pair.seen >> i & 1;
        if (asked[i]->result == FL_STORE_UNAVAILABLE)
            CHECK(!seen && !asked[i]->call.sent);
        else
            CHECK(asked[i]->call.sent && (seen || asked[i]->result == FL_OUTCOME_UNKNOWN));
        free(asked[i]);
    }
    between.left = SIZE_MAX;
    UNTIL((pair_pass(50), peer_link_up(pair.link)));
    struct asked *again = ask_text(ECHO, "again");
    asked_wait(again);
    CHECK_EQ(again->result, 0);
    free(again);
    pair_end();
    between_end();
}

TEST(a_connection_may_be_cut_at_any_byte)
{
    for (size_t bytes = 1; bytes < 3000; bytes += 1 + bytes * 7 % 13)
        cut_after(bytes, false);
    for (size_t bytes = 3000; bytes < 200000; bytes += 9973)
        cut_after(bytes, false);
    for (size_t bytes = 1; bytes < 6000; bytes += 211)
        cut_after(bytes, true);
}

/* --- Freeing and stopping ----------------------------------------------------------------------------------------- */

TEST(a_link_can_be_freed_with_calls_outstanding)
{
    start(false);
    struct asked *sent = ask_text(KEEP, "x");
    UNTIL(pair.kept_count == 1);
    struct asked *unsent = ask_text(KEEP, "y");
    peer_link_free(pair.link);
    pair.link = NULL;
    CHECK(sent->done && sent->result == FL_OUTCOME_UNKNOWN && sent->call.sent);
    CHECK(unsent->done && unsent->result == FL_STORE_UNAVAILABLE && !unsent->call.sent);
    CHECK_EQ(pair.downs, 0);
    UNTIL(pair.gone == 1);
    free(sent);
    free(unsent);
    pair_end();
}

static struct asked *freed_too;

static void free_link(struct asked *asked)
{
    (void)asked;
    peer_link_free(pair.link);
    pair.link = NULL;
    CHECK(!freed_too || freed_too->done);
}

TEST(a_link_can_be_freed_when_a_call_is_done)
{
    start(false);
    struct asked *answered = ask_text(ECHO, "hello");
    struct asked *next = ask_text(ECHO, "next");
    answered->then = free_link; /* and looks at the answer afterwards */
    freed_too = next;
    asked_wait(answered);
    CHECK(strcmp(answered->text, "hello") == 0);
    CHECK(next->done && next->result == FL_OUTCOME_UNKNOWN);
    free(answered);
    free(next);
    pair_end();
    pair_start(false);
    pair_link_to(pair.port, secret, false);
    struct asked *refused = ask_text(ECHO, "a");
    refused->then = free_link;
    freed_too = next = ask_text(ECHO, "b");
    asked_wait(refused);
    CHECK(next->done);
    freed_too = NULL;
    free(refused);
    free(next);
    pair_end();
}

static void free_when_up(bool up)
{
    if (up)
        free_link(NULL);
}

static void free_when_down(bool up)
{
    if (!up)
        free_link(NULL);
}

TEST(a_link_can_be_freed_when_it_changes)
{
    pair_start(false);
    pair.changed = free_when_up;
    pair_link_to(pair.port, secret, false);
    UNTIL(!pair.link);
    pair_end();
    start(false);
    pair.changed = free_when_down;
    struct asked *kept = ask_text(KEEP, "x");
    UNTIL(pair.kept_count == 1);
    pair_stop_host();
    UNTIL(!pair.link);
    CHECK(kept->done && kept->result == FL_OUTCOME_UNKNOWN);
    free(kept);
    pair_end();
}

static int again;

static void call_again(struct asked *asked)
{
    if (again-- == 0)
        return;
    asked->done = 0;
    peer_call(pair.link, &asked->call, ECHO, (fl_bytes){0});
}

TEST(who_calls_again_at_once_waits_for_the_next_turn)
{
    pair_start(false);
    pair_link_to(1, secret, false);
    struct asked *asked = ask_text(ECHO, "first");
    asked->then = call_again;
    again = 1000000;
    for (int i = 0; i < 100; i++)
        pair_turn();
    CHECK(again > 1000000 - 300 && again < 1000000 - 50);
    again = 0;
    UNTIL(asked->done);
    free(asked);
    pair_end();
}

TEST(sessions_can_be_stopped_with_calls_outstanding)
{
    start(false);
    struct asked *kept = ask_text(KEEP, "x"), *more = ask_text(KEEP, "y");
    UNTIL(pair.kept_count == 2);
    peer_sessions_stop(pair.sessions);
    CHECK_EQ(pair.gone, 2);
    CHECK_EQ(peer_unsent(pair.kept[0]), 0);
    asked_wait(kept);
    asked_wait(more);
    CHECK_EQ(kept->result, FL_OUTCOME_UNKNOWN);
    CHECK_EQ(pair.downs, 1);
    UNTIL((pair_pass(50), strstr(peer_link_trouble(pair.link), "503")));
    peer_piece(pair.kept[0], (fl_bytes){"late", 4});
    peer_sessions_free(pair.sessions);
    pair.sessions = NULL;
    pair_stop_host();
    pair_answer_kept(0);
    free(kept);
    free(more);
    pair_end();
}

/* The other side says that it has read nothing more, and has answered what it had read. */
TEST(a_call_that_comes_when_sessions_are_stopped_has_not_happened)
{
    start(false);
    struct asked *kept = ask_text(KEEP, "x");
    UNTIL(pair.kept_count == 1);
    pair.kept[0]->harmless = true;
    struct asked *late = ask_text(ECHO, "y");
    int handled = pair.handled;
    peer_sessions_stop(pair.sessions);
    asked_wait(late);
    asked_wait(kept);
    CHECK(late->result == FL_STORE_UNAVAILABLE && !late->call.sent && pair.handled == handled);
    CHECK(kept->result == FL_STORE_UNAVAILABLE && !kept->call.sent);
    pair_answer_kept(0);
    free(kept);
    free(late);
    pair_end();
}

TEST(sessions_can_be_stopped_by_a_call)
{
    start(false);
    struct asked *kept = ask_text(KEEP, "x"), *stop = ask_text(STOP, "y"), *after = ask_text(ECHO, "z");
    asked_wait(after);
    CHECK(kept->result == FL_OUTCOME_UNKNOWN && stop->result == FL_OUTCOME_UNKNOWN &&
          after->result == FL_OUTCOME_UNKNOWN);
    CHECK_EQ(pair.handled, 2);
    CHECK_EQ(pair.gone, 1);
    free(kept);
    free(stop);
    free(after);
    pair_end();
}

static void answer_all(struct peer_request *request)
{
    (void)request;
    pair.gone++;
    pair_answer_kept(0);
}

TEST(who_is_gone_may_answer_all)
{
    start(false);
    struct asked *asked[] = {ask_text(KEEP, "x"), ask_text(KEEP, "y"), ask_text(KEEP, "z")};
    UNTIL(pair.kept_count == 3);
    for (int i = 0; i < 3; i++)
        pair.kept[i]->gone = answer_all;
    pair_stop_host();
    CHECK_EQ(pair.kept_count, 0);
    CHECK_EQ(pair.gone, 1);
    for (int i = 0; i < 3; i++) {
        asked_wait(asked[i]);
        free(asked[i]);
    }
    pair_end();
}

/* --- Trust -------------------------------------------------------------------------------------------------------- */

TEST(another_secret_is_refused)
{
    for (int tls = 0; tls < 2; tls++) {
        pair_start(tls);
        pair_link_to(pair.port, (fl_bytes){"correct horse battery stable", 28}, tls);
        UNTIL(strstr(peer_link_trouble(pair.link), "another secret"));
        pair_pass(5000);
        CHECK_EQ(pair.ups + pair.handled, 0);
        pair_end();
    }
}

TEST(tls_on_one_side_only_does_not_work)
{
    pair_start(true);
    pair_link_to(pair.port, secret, false);
    pair_pass(1000);
    CHECK(!peer_link_up(pair.link) && peer_link_trouble(pair.link)[0]);
    pair_end();
    pair_start(false);
    pair_link_to(pair.port, secret, true);
    pair_pass(1000);
    CHECK(!peer_link_up(pair.link));
    CHECK(strstr(peer_link_trouble(pair.link), "wrong version number"));
    pair_end();
}

TEST(who_passes_a_proof_on_over_tls_gains_nothing)
{
    pair_start(true);
    between_start(true);
    pair_link_to(between.port, secret, true);
    UNTIL((pair_pass(50), strstr(peer_link_trouble(pair.link), "terminates TLS")));
    const struct http_buffer *record = &between.record; /* it has read the proof */
    CHECK(memmem(record->data, http_buffer_size(record), "POST /v1/peer", 13));
    const char *end = memmem(record->data, http_buffer_size(record), "\r\n\r\n", 4);
    CHECK(end && record->data + record->end - end >= 4 + PEER_HEAD + PEER_MAC);
    pair_pass(5000);
    CHECK_EQ(pair.ups + pair.handled, 0);
    pair_end();
    between_end();
}

static struct {
    char data[8192];
    size_t size;
    bool closed;
} raw;

static bool raw_receive(int fd)
{
    ssize_t n = 0;
    while (raw.size < sizeof raw.data - 1 &&
           (n = recv(fd, raw.data + raw.size, sizeof raw.data - 1 - raw.size, 0)) >= 0) {
        raw.size += (size_t)n;
        raw.data[raw.size] = '\0';
        if (n == 0) {
            raw.closed = true;
            break;
        }
    }
    raw.closed = raw.closed || (errno != EAGAIN && n < 0);
    return raw.closed;
}

static bool raw_has(int fd, const void *what, size_t size)
{
    raw_receive(fd);
    return memmem(raw.data, raw.size, what, size);
}

static int raw_request(const char *headers)
{
    char text[1000];
    int fd = connect_to(pair.port);
    memset(&raw, 0, sizeof raw);
    int size = snprintf(text, sizeof text, "POST /v1/peer HTTP/1.1\r\nHost: x\r\n%s\r\n", headers);
    CHECK_EQ(send(fd, text, (size_t)size, MSG_NOSIGNAL), size);
    return fd;
}

#define RANDOM "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define UPGRADE "Connection: upgrade\r\nUpgrade: foliot-peer\r\n"
#define HELLO UPGRADE "Foliot-Peer-Version: 2\r\nFoliot-Peer-Random: " RANDOM "\r\nFoliot-Peer-Address: a:1\r\n"

TEST(a_handshake_that_is_played_back_is_refused)
{
    pair_start(false);
    between_start(false);
    pair_link_to(between.port, secret, false);
    UNTIL(peer_link_up(pair.link));
    struct asked *asked = ask_text(ECHO, "hello");
    asked_wait(asked);
    CHECK_EQ(pair.handled, 1);
    memset(&raw, 0, sizeof raw);
    int fd = connect_to(pair.port);
    const struct http_buffer *record = &between.record;
    ssize_t size = (ssize_t)http_buffer_size(record);
    CHECK_EQ(send(fd, record->data + record->start, (size_t)size, MSG_NOSIGNAL), size);
    UNTIL(raw_receive(fd));
    unsigned char refused[PEER_HEAD] = {9, 0, 0, 0, PEER_REFUSED};
    CHECK(raw_has(fd, refused, sizeof refused));
    CHECK_EQ(pair.handled, 1);
    close(fd);
    free(asked);
    pair_end();
    between_end();
}

static void put_bytes(int fd, const struct http_buffer *bytes)
{
    ssize_t size = (ssize_t)http_buffer_size(bytes);
    CHECK_EQ(send(fd, http_buffer_data(bytes), (size_t)size, MSG_NOSIGNAL), size);
}

static void send_frame(int fd, uint8_t kind, fl_bytes body)
{
    struct http_buffer frames = {0};
    CHECK(peer_put(&frames, kind, 7, body));
    put_bytes(fd, &frames);
    http_buffer_free(&frames);
}

/* Does as a caller does, with the secret. */
static int raw_session(void)
{
    struct peer_pact pact = {.secret = secret};
    unsigned char proof[PEER_MAC];
    int fd = raw_request(HELLO);
    UNTIL(raw_has(fd, "\r\n\r\n", 4));
    char *random = strstr(raw.data, "Foliot-Peer-Random: ");
    CHECK(random && peer_pact_hear(&pact, PEER_CALLER, (fl_bytes){"2", 1}, (fl_bytes){RANDOM, 64}) &&
          peer_pact_hear(&pact, PEER_CALLED, (fl_bytes){"2", 1}, (fl_bytes){random + 20, 64}));
    CHECK(peer_prove(&pact, PEER_CALLER, proof));
    send_frame(fd, PEER_PROOF, (fl_bytes){proof, sizeof proof});
    CHECK(peer_prove(&pact, PEER_CALLED, proof));
    UNTIL(raw_has(fd, proof, sizeof proof));
    return fd;
}

TEST(nothing_is_heard_before_the_proof)
{
    static const char proof[PEER_MAC], long_proof[PEER_MAC + 1];
    static const struct {
        uint8_t kind;
        fl_bytes body;
    } frames[] = {{ECHO, {"x", 1}},          {PEER_PROOF, {proof, 32}},      {PEER_PROOF, {0}},
                  {PEER_PROOF, {proof, 31}}, {PEER_PROOF, {long_proof, 33}}, {PEER_ALIVE, {0}},
                  {PEER_CANCEL, {0}}};
    pair_start(false);
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        int fd = raw_request(HELLO);
        UNTIL(raw_has(fd, "\r\n\r\n", 4));
        send_frame(fd, frames[i].kind, frames[i].body);
        UNTIL(raw_receive(fd));
        CHECK(strstr(raw.data, "HTTP/1.1 101 "));
        close(fd);
    }
    CHECK_EQ(pair.handled, 0);
    pair_end();
}

TEST(what_is_malformed_ends_a_session)
{
    pair_start(false);
    int fd = raw_session();
    send_frame(fd, ECHO, (fl_bytes){"hello", 5});
    UNTIL(raw_has(fd, "hello", 5));
    send_frame(fd, PEER_PROOF, (fl_bytes){0}); /* once is enough */
    UNTIL(raw_receive(fd));
    close(fd);
    static const struct {
        const char *bytes;
        size_t size;
    } frames[] = {{"\x08\0\0\0\x10\0\0\0\0\0\0\0", 12}, /* too small to be one */
                  {"\0\0\0\0", 4},
                  {"\x0a\0\0\4", 4}, /* a byte too large */
                  {"\xff\xff\xff\xff", 4},
                  {"\x09\0\0\0\x0f\0\0\0\0\0\0\0\0", 13}, /* no such kind */
                  {"\x09\0\0\0\0\0\0\0\0\0\0\0\0", 13},
                  {"\x0d\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0", 17}}; /* an answer, to what? */
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        fd = raw_session();
        struct http_buffer bytes = {0};
        CHECK(http_buffer_append(&bytes, frames[i].bytes, frames[i].size));
        put_bytes(fd, &bytes);
        UNTIL(raw_receive(fd));
        http_buffer_free(&bytes);
        close(fd);
    }
    fd = raw_session();
    CHECK_EQ(shutdown(fd, SHUT_WR), 0); /* one side ends, and so does the other */
    UNTIL(raw_receive(fd));
    close(fd);
    CHECK_EQ(pair.handled, 1);
    pair_end();
}

TEST(frames_may_come_byte_by_byte)
{
    struct http_buffer frame = {0};
    pair_start(false);
    int fd = raw_session();
    CHECK(peer_put(&frame, ECHO, 7, (fl_bytes){"hello", 5}));
    for (size_t i = 0; i < frame.end; i++) {
        struct http_buffer one = {frame.data, frame.capacity, i, i + 1};
        put_bytes(fd, &one);
        pair_turn();
    }
    UNTIL(raw_has(fd, "hello", 5));
    http_buffer_free(&frame);
    close(fd);
    pair_end();
}

TEST(a_session_without_a_proof_does_not_last)
{
    pair_start(false);
    int fd = raw_request(HELLO);
    UNTIL(raw_has(fd, "\r\n\r\n", 4));
    static const char frame[PEER_HEAD] = {9 + PEER_MAC, 0, 0, 0, PEER_PROOF};
    for (int i = 0; i < 9; i++) { /* it is not silent either */
        CHECK_EQ(send(fd, frame + i, 1, MSG_NOSIGNAL), 1);
        pair_pass(500);
        CHECK(!raw_receive(fd));
    }
    pair_pass(2000);
    UNTIL(raw_receive(fd));
    close(fd);
    pair_end();
}

TEST(who_is_no_server_of_this_kind_is_sent_away)
{
    static const struct {
        const char *headers;
        int status;
    } requests[] = {
        {"", 401},
        {UPGRADE "Foliot-Peer-Version: 2\r\nFoliot-Peer-Random: " RANDOM "\r\n", 401},
        {UPGRADE "Foliot-Peer-Version: 2\r\nFoliot-Peer-Random: " RANDOM "0\r\nFoliot-Peer-Address: a:1\r\n", 401},
        {UPGRADE "Foliot-Peer-Version: 2\r\nFoliot-Peer-Random: x\r\nFoliot-Peer-Address: a:1\r\n", 401},
        {UPGRADE "Foliot-Peer-Version: -1\r\nFoliot-Peer-Random: " RANDOM "\r\nFoliot-Peer-Address: a:1\r\n", 401},
        {UPGRADE "Foliot-Peer-Version: 2\r\nFoliot-Peer-Random: " RANDOM "\r\nFoliot-Peer-Address: a b\r\n", 401},
        {UPGRADE "Foliot-Peer-Version: 0\r\nFoliot-Peer-Random: " RANDOM "\r\nFoliot-Peer-Address: a:1\r\n", 400},
        {UPGRADE "Foliot-Peer-Version: 4\r\nFoliot-Peer-Random: " RANDOM "\r\nFoliot-Peer-Address: a:1\r\n", 400},
        /* the first version, which had chunks in a body */
        {"Transfer-Encoding: chunked\r\nFoliot-Peer-Version: 1\r\nFoliot-Peer-Random: " RANDOM
         "\r\nFoliot-Peer-Address: a:1\r\n",
         400},
        {"Foliot-Peer-Version: 2\r\nFoliot-Peer-Random: " RANDOM "\r\nFoliot-Peer-Address: a:1\r\n", 426},
        {"Content-Length: 5\r\n" HELLO, 400},
        {"Connection: close\r\n" HELLO, 400},
        {UPGRADE "Foliot-Peer-Version: 3\r\nFoliot-Peer-Random: " RANDOM "\r\nFoliot-Peer-Address: a:1\r\n", 101},
        {HELLO, 101},
    };
    pair_start(false);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        char status[20];
        int fd = raw_request(requests[i].headers);
        UNTIL(raw_has(fd, "\r\n\r\n", 4));
        snprintf(status, sizeof status, "HTTP/1.1 %d ", requests[i].status);
        CHECK(strstr(raw.data, status));
        close(fd);
    }
    pair_end();
}

/* --- Who pretends to be the other ---------------------------------------------------------------------------------- */

static int pretender(uint16_t *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 10) == 0 &&
          getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

static int accept_one(int listener)
{
    int fd = -1;
    UNTIL((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0);
    send_at_once(fd);
    memset(&raw, 0, sizeof raw);
    return fd;
}

static void say(int fd, const char *text)
{
    CHECK_EQ(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

#define ANSWER(version)                                                                                                \
    "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: Foliot-Peer\r\nfoliot-peer-version: " version \
    "\r\nfoliot-peer-random: " RANDOM "\r\n\r\n"

TEST(a_bad_answer_is_explained)
{
    static const struct {
        const char *answer, *trouble;
    } answers[] = {
        {"SSH-2.0-x\r\n", "not HTTP"},
        {"HTTP/1.0 200 OK\r\n\r\n", "not HTTP/1.1"},
        {"HTTP/1.1 2x0 OK\r\n\r\n", "not HTTP/1.1"},
        {"HTTP/1.1 404 Not Found\r\n\r\n", "status 404"},
        {"HTTP/1.1 101 OK\r\nUpgrade: foliot-peer\r\n\r\n", "does not come from a Foliot server"},
        {"HTTP/1.1 101 OK\r\nFoliot-Peer-Version: 2\r\nFoliot-Peer-Random: " RANDOM "\r\n\r\n",
         "does not come from a Foliot server"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "status 200"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nFoliot-Peer-Version: 1\r\nFoliot-Peer-Random: " RANDOM
         "\r\n\r\n",
         "an earlier version of Foliot"},
        {ANSWER("1"), "version 1"},
        {ANSWER("4"), "version 4"},
        {ANSWER("2") "\x2a\x01\x01\x01", "malformed or too large"},
        {ANSWER("3") "\x09", "closed"}, /* and nothing more */
        {"", "closed"},
    };
    uint16_t port;
    int listener = pretender(&port);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        pair_start(false);
        pair_link_to(port, secret, false);
        int fd = accept_one(listener);
        UNTIL(raw_has(fd, "\r\n\r\n", 4));
        say(fd, answers[i].answer);
        for (int turns = 0; turns < 20; turns++)
            pair_turn();
        shutdown(fd, SHUT_WR);
        UNTIL(strstr(peer_link_trouble(pair.link), answers[i].trouble));
        CHECK_EQ(pair.ups, 0);
        close(fd);
        pair_end();
    }
    close(listener);
}

/* A frame that has come from the link, of that kind. */
static bool find_frame(int fd, uint8_t kind, size_t size, fl_bytes *ret)
{
    raw_receive(fd);
    const unsigned char head[] = {(unsigned char)(9 + size), 0, 0, 0, kind};
    const char *at = memmem(raw.data, raw.size, head, sizeof head);
    if (!at || raw.data + raw.size - at < (ptrdiff_t)(PEER_HEAD + size))
        return false;
    *ret = (fl_bytes){at + PEER_HEAD, size};
    return true;
}

TEST(who_cannot_prove_it_is_not_called)
{
    uint16_t port;
    int listener = pretender(&port);
    for (int way = 0; way < 3; way++) {
        pair_start(false);
        pair_link_to(port, secret, false);
        int fd = accept_one(listener);
        unsigned char nonsense[PEER_MAC] = {1};
        fl_bytes theirs;
        UNTIL(raw_has(fd, "\r\n\r\n", 4));
        say(fd, ANSWER("2"));
        UNTIL(find_frame(fd, PEER_PROOF, PEER_MAC, &theirs));
        if (way == 0)
            send_frame(fd, PEER_PROOF, theirs); /* its own */
        else if (way == 1)
            send_frame(fd, PEER_PROOF, (fl_bytes){nonsense, sizeof nonsense});
        else
            send_frame(fd, PEER_ALIVE, (fl_bytes){0});
        UNTIL(strstr(peer_link_trouble(pair.link), "cannot prove"));
        CHECK_EQ(pair.ups, 0);
        close(fd);
        pair_end();
    }
    close(listener);
}

/* With the secret: does as a host does. */
static int prove_to_link(int listener)
{
    struct peer_pact pact = {.secret = secret};
    unsigned char proof[PEER_MAC];
    fl_bytes theirs;
    int fd = accept_one(listener);
    UNTIL(raw_has(fd, "\r\n\r\n", 4));
    char *random = strstr(raw.data, "Foliot-Peer-Random: ");
    CHECK(random && peer_pact_hear(&pact, PEER_CALLER, (fl_bytes){"2", 1}, (fl_bytes){random + 20, 64}) &&
          peer_pact_hear(&pact, PEER_CALLED, (fl_bytes){"2", 1}, (fl_bytes){RANDOM, 64}));
    say(fd, ANSWER("2"));
    UNTIL(find_frame(fd, PEER_PROOF, PEER_MAC, &theirs));
    CHECK(peer_is_proof(&pact, PEER_CALLER, theirs));
    CHECK(peer_prove(&pact, PEER_CALLED, proof));
    send_frame(fd, PEER_PROOF, (fl_bytes){proof, sizeof proof});
    UNTIL(peer_link_up(pair.link));
    return fd;
}

TEST(what_is_malformed_ends_a_link)
{
    static const struct {
        const char *bytes;
        size_t size;
    } frames[] = {
        {"\x08\0\0\0\x04\0\0\0\0\0\0\0", 12},
        {"\x0e\0\0\4", 4}, /* a byte too large */
        {"\x09\0\0\0\x04\0\0\0\0\0\0\0\0", 13},
        {"\x0c\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0", 16}, /* an answer without a whole result */
        {"\x09\0\0\0\x10\0\0\0\0\0\0\0\0", 13},       /* a call */
        {"\x09\0\0\0\x02\0\0\0\0\0\0\0\0", 13},
    };
    uint16_t port;
    int listener = pretender(&port);
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        pair_start(false);
        pair_link_to(port, secret, false);
        int fd = prove_to_link(listener);
        struct asked *asked = ask_text(ECHO, "x");
        fl_bytes theirs;
        struct http_buffer bytes = {0};
        UNTIL(find_frame(fd, ECHO, 1, &theirs));
        CHECK(http_buffer_append(&bytes, frames[i].bytes, frames[i].size));
        put_bytes(fd, &bytes);
        UNTIL(!peer_link_up(pair.link));
        CHECK_EQ(asked->result, FL_OUTCOME_UNKNOWN);
        http_buffer_free(&bytes);
        free(asked);
        close(fd);
        pair_end();
    }
    close(listener);
}

TEST(answers_to_nobody_are_passed_over)
{
    uint16_t port;
    int listener = pretender(&port);
    pair_start(false);
    pair_link_to(port, secret, false);
    int fd = prove_to_link(listener);
    send_frame(fd, PEER_ANSWER, (fl_bytes){"\0\0\0\0hello", 9});
    send_frame(fd, PEER_PIECE, (fl_bytes){"hello", 5});
    send_frame(fd, PEER_ALIVE, (fl_bytes){0});
    for (int i = 0; i < 20; i++)
        pair_turn();
    CHECK(peer_link_up(pair.link));
    close(fd);
    pair_end();
    close(listener);
}

/* --- Addresses ---------------------------------------------------------------------------------------------------- */

TEST(addresses_are_checked)
{
    static const char *const bad[] = {"",        "host",        ":1",        "host:",      "host:0",  "host:65536",
                                      "host:1x", "host:-1",     "::1:80",    "[]:1",       "ho st:1", "host:1\n",
                                      "[::1]",   "host:000001", "a\r\nb:80", "h\xc3\xb6:1"};
    peer_link *link = NULL;
    pair_start(false);
    struct peer_link_config config = {.loop = pair.loop, .self = "me:1", .secret = secret};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        config.address = bad[i];
        CHECK_EQ(peer_link_new(&config, &link), FL_INVALID_ARGUMENT);
    }
    config.address = "host:1";
    config.self = "a\r\nb: c";
    CHECK_EQ(peer_link_new(&config, &link), FL_INVALID_ARGUMENT);
    config.self = "";
    CHECK_EQ(peer_link_new(&config, &link), FL_INVALID_ARGUMENT);
    config.self = "me:1";
    config.secret = (fl_bytes){0};
    CHECK_EQ(peer_link_new(&config, &link), FL_INVALID_ARGUMENT);
    CHECK(!link);
    struct peer_host host = {.handle = pair.host.handle};
    peer_sessions *sessions = NULL;
    CHECK_EQ(peer_sessions_new(pair.loop, &host, &sessions), FL_INVALID_ARGUMENT);
    CHECK(!sessions);
    pair_end();
}

static void link_by_name(const char *name)
{
    char address[64];
    snprintf(address, sizeof address, "%s:%u", name, pair.port);
    struct peer_link_config config = {.loop = pair.loop, .address = address, .self = "me:1", .secret = secret};
    CHECK_EQ(peer_link_new(&config, &pair.link), 0);
}

TEST(names_are_looked_up)
{
    pair_start(false);
    link_by_name("localhost"); /* it may be two addresses, of which one is listened on */
    UNTIL(peer_link_up(pair.link));
    peer_link_free(pair.link);
    link_by_name("no-such-name.invalid");
    UNTIL(strstr(peer_link_trouble(pair.link), "cannot resolve the name no-such-name.invalid"));
    peer_link_free(pair.link);
    for (int i = 0; i < 10; i++) { /* while it is being looked up, or just was */
        link_by_name("localhost");
        for (int turns = 0; turns < i; turns++)
            pair_turn();
        if (i % 2)
            usleep(1000);
        peer_link_free(pair.link);
    }
    pair.link = NULL;
    pair_end();
}

TEST(an_address_of_the_newer_kind_is_tried)
{
    pair_start(false);
    link_by_name("[::1]"); /* nobody listens there */
    UNTIL(strstr(peer_link_trouble(pair.link), "cannot connect"));
    pair_end();
}
