/* SPDX-License-Identifier: MIT */
/* What servers write for each other: it is read as it was written; what is cut off, or says more than is there, is found out
 * and never looked behind. Every message is read from memory of exactly its size, so that a sanitizer sees a step too far. */

#include "node/wire.h"

#include <stdlib.h>
#include <string.h>

#include "sim/random.h"
#include "test.h"

static struct luck luck;

static void *exactly(fl_bytes bytes)
{
    void *copy = malloc(bytes.size > 0 ? bytes.size : 1);
    CHECK(copy);
    if (bytes.size > 0)
        memcpy(copy, bytes.data, bytes.size);
    return copy;
}

/* --- Something to write ------------------------------------------------------------------------------------------- */

static uint64_t some_number(void)
{
    return draw(&luck) >> below(&luck, 64);
}

static int64_t some_signed(void)
{
    return chance(&luck, 50) ? (int64_t)some_number() : -(int64_t)(some_number() >> 1);
}

static fl_bytes some_bytes(void)
{
    static const char text[] = "any bytes, some of which \0 are zero \x80\xff";
    return (fl_bytes){text, below(&luck, sizeof text)};
}

static fl_durable some_timer(void)
{
    return (fl_durable){.ns = some_bytes(),
                        .name = some_bytes(),
                        .id = {some_signed(), some_number()},
                        .due_us = some_signed(),
                        .created_us = some_signed(),
                        .payload = some_bytes(),
                        .target = some_bytes(),
                        .headers = some_bytes(),
                        .timeout_us = some_number(),
                        .retry = {.max_attempts = (uint32_t)some_number(),
                                  .multiplier_1000 = (uint32_t)some_number(),
                                  .initial_us = some_number(),
                                  .max_interval_us = some_number(),
                                  .max_age_us = some_number()},
                        .attempt = (uint32_t)some_number(),
                        .revision = some_number(),
                        .schedule = some_bytes(),
                        .occurrence_us = some_signed(),
                        .previous_us = some_signed(),
                        .next_us = some_signed(),
                        .local = some_bytes(),
                        .zone = some_bytes(),
                        .max_wait_us = some_number(),
                        .merge_first = chance(&luck, 50),
                        .replaced = (uint32_t)some_number(),
                        .first_created_us = some_signed()};
}

static bool same_bytes(fl_bytes a, fl_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static bool same_timer(const fl_durable *a, const fl_durable *b)
{
    return same_bytes(a->ns, b->ns) && same_bytes(a->name, b->name) && a->id.at_us == b->id.at_us &&
           a->id.seq == b->id.seq && a->due_us == b->due_us && a->created_us == b->created_us &&
           same_bytes(a->payload, b->payload) && same_bytes(a->target, b->target) &&
           same_bytes(a->headers, b->headers) && a->timeout_us == b->timeout_us &&
           memcmp(&a->retry, &b->retry, sizeof a->retry) == 0 && a->attempt == b->attempt &&
           a->revision == b->revision && same_bytes(a->schedule, b->schedule) && a->occurrence_us == b->occurrence_us &&
           a->previous_us == b->previous_us && a->next_us == b->next_us && same_bytes(a->local, b->local) &&
           same_bytes(a->zone, b->zone) && a->max_wait_us == b->max_wait_us && a->merge_first == b->merge_first &&
           a->replaced == b->replaced && a->first_created_us == b->first_created_us;
}

/* --- Numbers and bytes -------------------------------------------------------------------------------------------- */

TEST(numbers_are_read_as_they_were_written)
{
    static const uint64_t edges[] = {0, 1, 0x7f, 0x80, 0x3fff, 0x4000, INT64_MAX, (uint64_t)1 << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        struct out out = {0};
        wire_put_number(&out, edges[i]);
        wire_put_signed(&out, (int64_t)edges[i]);
        struct wire wire = wire_begin(out_bytes(&out));
        CHECK(wire_number(&wire) == edges[i] && wire_signed(&wire) == (int64_t)edges[i]);
        CHECK(!wire.bad && wire.at == wire.end);
        out_free(&out);
    }
}

TEST(a_small_number_takes_one_byte_whatever_its_sign)
{
    struct out out = {0};
    wire_put_number(&out, 127);
    wire_put_signed(&out, -64);
    wire_put_signed(&out, 63);
    CHECK_EQ(out.size, 3);
    out_free(&out);
}

TEST(a_number_without_an_end_is_bad)
{
    unsigned char endless[16];
    memset(endless, 0xff, sizeof endless);
    struct wire wire = wire_begin((fl_bytes){endless, sizeof endless});
    CHECK(wire_number(&wire) == 0 && wire.bad);
    CHECK(wire_number(&wire) == 0 && wire_bytes(&wire).size == 0 && wire_count(&wire) == 0 && wire.bad);
}

TEST(a_size_that_lies_is_bad)
{
    for (uint64_t more = 1; more != 0; more <<= 1) {
        struct out out = {0};
        wire_put_number(&out, 3 + more);
        out_put(&out, "abc", 3);
        struct wire bytes = wire_begin(out_bytes(&out)), count = bytes;
        CHECK(wire_bytes(&bytes).size == 0 && bytes.bad && bytes.at == bytes.end);
        CHECK(wire_count(&count) == 0 && count.bad);
        out_free(&out);
    }
    struct wire right = wire_begin((fl_bytes)FL_TEXT("\3abc")), all = right;
    CHECK(wire_bytes(&right).size == 3 && !right.bad);
    CHECK(wire_count(&all) == 3 && !all.bad);
}

/* --- Messages ----------------------------------------------------------------------------------------------------- */

/* A message is written, and read again whole, cut off everywhere, with more behind it, and with a byte that is another. */
struct kind {
    void (*put)(struct out *out);
    void (*check)(struct wire *wire); /* it is what was put */
    void (*read)(struct wire *wire);  /* whatever it is */
};

static fl_op op;
static bool brief;
static fl_listing listing;
static fl_op found[5], room[5];

static void put_op(struct out *out)
{
    op = (fl_op){.kind = (enum fl_op_kind)below(&luck, FL_OP_DEAD_DELETE + 1),
                 .flags = (unsigned)below(&luck, 256),
                 .timer = some_timer()};
    wire_put_op(out, &op);
}

static void check_op(struct wire *wire)
{
    fl_op read;
    wire_op(wire, &read);
    CHECK(read.kind == op.kind && read.flags == op.flags && same_timer(&read.timer, &op.timer));
}

static void read_op(struct wire *wire)
{
    fl_op read;
    wire_op(wire, &read);
    CHECK(wire->bad || read.kind <= FL_OP_DEAD_DELETE);
}

static void put_answer(struct out *out)
{
    op = (fl_op){.result = chance(&luck, 30) ? FL_TIMER_NOT_FOUND : 0,
                 .outcome = FL_REPLACED,
                 .died_us = some_signed(),
                 .reason = some_bytes(),
                 .timer = some_timer()};
    brief = chance(&luck, 50);
    wire_put_answer(out, &op, brief);
}

static void check_answer(struct wire *wire)
{
    fl_op read = {.timer.due_us = 77};
    wire_answer(wire, &read, brief);
    CHECK_EQ(read.result, op.result);
    if (op.result < 0)
        return;
    CHECK(read.outcome == FL_REPLACED && read.timer.id.seq == op.timer.id.seq);
    if (brief)
        CHECK_EQ(read.timer.due_us, 77);
    else
        CHECK(same_timer(&read.timer, &op.timer) && read.died_us == op.died_us && same_bytes(read.reason, op.reason));
}

static void read_answer(struct wire *wire)
{
    fl_op read = {0};
    wire_answer(wire, &read, brief);
}

static void put_listing(struct out *out)
{
    listing = (fl_listing){.dead = chance(&luck, 50),
                           .ns = some_bytes(),
                           .prefix = some_bytes(),
                           .name_contains = some_bytes(),
                           .target_prefix = some_bytes(),
                           .schedule = some_bytes(),
                           .reason_contains = some_bytes(),
                           .from_us = some_signed(),
                           .until_us = some_signed(),
                           .limit = (size_t)some_number(),
                           .cursor = {{some_number(), some_number(), some_number(), some_number()}}};
    wire_put(out, &wire_of_listing, &listing);
}

static void check_listing(struct wire *wire)
{
    fl_listing read;
    wire_read(wire, &wire_of_listing, &read);
    CHECK(read.dead == listing.dead && same_bytes(read.ns, listing.ns) && same_bytes(read.prefix, listing.prefix));
    CHECK(same_bytes(read.name_contains, listing.name_contains) &&
          same_bytes(read.target_prefix, listing.target_prefix));
    CHECK(same_bytes(read.schedule, listing.schedule) && same_bytes(read.reason_contains, listing.reason_contains));
    CHECK(read.from_us == listing.from_us && read.until_us == listing.until_us && read.limit == listing.limit);
    CHECK(memcmp(&read.cursor, &listing.cursor, sizeof read.cursor) == 0);
}

static void read_listing(struct wire *wire)
{
    fl_listing read;
    wire_read(wire, &wire_of_listing, &read);
}

static void put_found(struct out *out)
{
    listing = (fl_listing){.limit = 5,
                           .result = chance(&luck, 20) ? FL_STORE_UNAVAILABLE : 0,
                           .found = found,
                           .count = below(&luck, 6),
                           .more = chance(&luck, 50),
                           .cursor = {{some_number(), some_number(), some_number(), some_number()}}};
    for (size_t i = 0; i < listing.count; i++)
        found[i] = (fl_op){.died_us = some_signed(), .reason = some_bytes(), .timer = some_timer()};
    wire_put_found(out, &listing);
}

static void check_found(struct wire *wire)
{
    fl_listing read = {.limit = 5};
    wire_found(wire, &read, room);
    CHECK(read.result == listing.result && read.count == (listing.result < 0 ? 0 : listing.count));
    for (size_t i = 0; i < read.count; i++)
        CHECK(same_timer(&read.found[i].timer, &found[i].timer) && read.found[i].died_us == found[i].died_us &&
              same_bytes(read.found[i].reason, found[i].reason));
    CHECK(read.more == listing.more && memcmp(&read.cursor, &listing.cursor, sizeof read.cursor) == 0);
}

static void read_found(struct wire *wire)
{
    fl_listing read = {.limit = 5};
    wire_found(wire, &read, room);
    CHECK(read.count <= 5);
}

static const struct kind kinds[] = {{put_op, check_op, read_op},
                                    {put_answer, check_answer, read_answer},
                                    {put_listing, check_listing, read_listing},
                                    {put_found, check_found, read_found}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static struct wire read_from(void *memory, size_t size, void (*read)(struct wire *wire))
{
    struct wire wire = wire_begin((fl_bytes){memory, size});
    read(&wire);
    CHECK(wire.at <= wire.end);
    return wire;
}

static void each_message(void (*fn)(const struct kind *kind, fl_bytes message))
{
    luck_begin(&luck, 1);
    for (int i = 0; i < 200 * KINDS; i++) {
        struct out out = {0};
        kinds[i % KINDS].put(&out);
        CHECK(!out.failed);
        fn(&kinds[i % KINDS], out_bytes(&out));
        out_free(&out);
    }
}

static void whole(const struct kind *kind, fl_bytes message)
{
    void *copy = exactly(message);
    struct wire wire = read_from(copy, message.size, kind->check);
    CHECK(!wire.bad && wire.at == wire.end);
    free(copy);
}

TEST(messages_are_read_as_they_were_written)
{
    each_message(whole);
}

static void cut(const struct kind *kind, fl_bytes message)
{
    for (size_t size = 0; size < message.size; size++) {
        void *copy = exactly((fl_bytes){message.data, size});
        CHECK(read_from(copy, size, kind->read).bad);
        free(copy);
    }
}

TEST(a_message_that_is_cut_off_is_bad_wherever_that_is)
{
    each_message(cut);
}

static void longer(const struct kind *kind, fl_bytes message)
{
    struct out out = {0};
    out_put(&out, message.data, message.size);
    out_text(&out, "what a later version adds");
    CHECK(!read_from(out.data, out.size, kind->check).bad);
    out_free(&out);
}

TEST(what_a_later_version_adds_at_the_end_is_not_looked_at)
{
    each_message(longer);
}

static void damaged(const struct kind *kind, fl_bytes message)
{
    for (int i = 0; i < 50; i++) {
        unsigned char *copy = exactly(message);
        for (uint64_t bytes = 1 + below(&luck, 4); bytes > 0; bytes--)
            copy[below(&luck, message.size)] = (unsigned char)draw(&luck);
        read_from(copy, message.size, kind->read);
        free(copy);
    }
}

TEST(a_message_that_is_damaged_is_never_read_beyond_its_end)
{
    each_message(damaged);
}

TEST(what_is_no_message_is_never_read_beyond_its_end)
{
    luck_begin(&luck, 2);
    for (int i = 0; i < 20000; i++) {
        unsigned char noise[64];
        size_t size = below(&luck, sizeof noise);
        for (size_t k = 0; k < size; k++)
            noise[k] = (unsigned char)(chance(&luck, 50) ? below(&luck, 8) : draw(&luck));
        void *copy = exactly((fl_bytes){noise, size});
        read_from(copy, size, kinds[i % KINDS].read);
        free(copy);
    }
}

TEST(an_operation_that_nobody_knows_is_bad)
{
    struct out out = {0};
    op = (fl_op){.kind = (enum fl_op_kind)(FL_OP_DEAD_DELETE + 1)};
    wire_put_op(&out, &op);
    CHECK(read_from(out.data, out.size, read_op).bad);
    out_free(&out);
}

TEST(more_timers_than_were_asked_for_are_bad)
{
    struct out out = {0};
    fl_op many[6] = {{0}};
    wire_put_found(&out, &(fl_listing){.found = many, .count = 6});
    CHECK(read_from(out.data, out.size, read_found).bad);
    out_free(&out);
}
