/* SPDX-License-Identifier: MIT */
/* The suite, about rows: putting, removing, moving, finding them, and those that were given up. */

#include "store/conformance.h"
#include "store/store.h" /* fl_store_hash() */

TEST(a_row_is_found_as_it_was_put)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_named(2, 123456789, 25, "name"), found;
    put(shard, version, &row, 1);
    CHECK(is_there(shard, row.id, &found) && same_row(&found, &row));
    CHECK(is_named(shard, "name", &found) && same_row(&found, &row));
    end();
}

TEST(what_is_not_there_is_not_found)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_named(2, 1000, 25, "name");
    CHECK(!is_there(shard, row.id, NULL) && !is_named(shard, "name", NULL));
    put(shard, version, &row, 1);
    CHECK(!is_there(shard, (fl_key){1000, 4}, NULL));
    CHECK(!is_there(shard, (fl_key){1001, 2}, NULL)); /* an ID is both, time and number */
    CHECK(!is_there(shard, (fl_key){1000 + ((int64_t)1 << 40), 2}, NULL));
    CHECK(!is_there(shard, (fl_key){0}, NULL));
    CHECK(!is_there(shard, (fl_key){-1, UINT64_MAX}, NULL));
    CHECK(!is_named(shard, "nam", NULL) && !is_named(shard, "name ", NULL) && !is_named(shard, "Name", NULL));
    fl_store_want want = {.ns = text("other"), .name = text("name")};
    struct asked asked = to_find(&want, 1);
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK(!want.found);
    end();
}

TEST(one_name_in_two_namespaces_is_two_names)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row rows[3] = {make_named(2, 1000, 25, "bc"), make_named(4, 1000, 25, "c"), make_named(6, 1000, 25, "bc")};
    rows[0].ns = text("a");
    rows[1].ns = text("ab");
    rows[2].ns = text("A");
    put(shard, version, rows, 3);
    fl_store_want wants[3] = {{.ns = text("a"), .name = text("bc")},
                              {.ns = text("ab"), .name = text("c")},
                              {.ns = text("A"), .name = text("bc")}};
    struct asked asked = to_find(wants, 3);
    CHECK_EQ(perform(shard, &asked), 0);
    for (int i = 0; i < 3; i++)
        CHECK(wants[i].found && same_row(&wants[i].row, &rows[i]));
    end();
}

TEST(rows_without_names_have_nothing_in_common)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row rows[2] = {make_row(2, 1000, 25), make_row(4, 1000, 25)}, found;
    put(shard, version, rows, 2);
    for (int i = 0; i < 2; i++)
        CHECK(is_there(shard, rows[i].id, &found) && same_row(&found, &rows[i]));
    end();
}

TEST(a_row_that_was_removed_is_gone_and_its_name_is_free)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_named(2, 1000, 25, "name"), next = make_named(4, 5000, 25, "name"), found;
    put(shard, version, &row, 1);
    write_one(shard, version, (fl_store_change){.remove = row.key});
    CHECK(!is_there(shard, row.id, NULL) && !is_named(shard, "name", NULL));
    CHECK_EQ(load(shard, row.window, NULL), 0);
    put(shard, version, &next, 1);
    CHECK(is_named(shard, "name", &found) && same_row(&found, &next));
    end();
}

TEST(removing_what_is_not_there_is_no_error)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25);
    put(shard, version, &row, 1);
    write_one(shard, version, (fl_store_change){.remove = {1000, 4}});
    write_one(shard, version, (fl_store_change){.remove = {1001, 2}}); /* the number of another row, at another time */
    write_one(shard, version, (fl_store_change){.remove = {1000 + ((int64_t)1 << 45), 2}});
    CHECK(is_there(shard, row.id, NULL));
    end();
}

TEST(a_row_is_removed_whatever_window_it_is_in)
{
    begin();
    uint64_t version = claim(shard, "me");
    int64_t at = ((int64_t)1 << 50) + 12345;
    uint64_t seq = 2;
    for (unsigned shift = FL_WINDOW_SHIFT_MIN; shift <= FL_WINDOW_SHIFT_MAX; shift += FL_WINDOW_STEP, seq += 2) {
        fl_row row = make_named(seq, at, shift, "name");
        put(shard, version, &row, 1);
        CHECK(is_there(shard, row.id, NULL) && is_named(shard, "name", NULL));
        CHECK_EQ(load(shard, row.window, NULL), 1);
        write_one(shard, version, (fl_store_change){.remove = row.key});
        CHECK(!is_there(shard, row.id, NULL) && !is_named(shard, "name", NULL));
        CHECK_EQ(load(shard, row.window, NULL), 0);
    }
    end();
}

/* As the engine replaces a timer: the new row and the end of the old one are one change. */
TEST(a_row_can_be_replaced_by_another_of_the_same_name)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row old = make_named(2, 1000, 25, "name"), new = make_named(4, (int64_t)1 << 40, 31, "name"), found;
    put(shard, version, &old, 1);
    write_one(shard, version, (fl_store_change){.remove = old.key, .put = &new});
    CHECK(is_named(shard, "name", &found) && same_row(&found, &new));
    CHECK(!is_there(shard, old.id, NULL) && is_there(shard, new.id, NULL));
    CHECK_EQ(load(shard, old.window, NULL), 0);
    end();
}

TEST(a_row_that_was_moved_is_found_by_its_first_key_by_its_key_and_by_name)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_named(2, 1000, 25, "name"), moved = move_row(row, 4, (int64_t)1 << 33, 31), found;
    put(shard, version, &row, 1);
    write_one(shard, version, (fl_store_change){.remove = row.key, .put = &moved});
    CHECK(is_there(shard, row.id, &found) && same_row(&found, &moved));
    CHECK(is_there(shard, moved.key, &found) && same_row(&found, &moved));
    CHECK(is_named(shard, "name", &found) && same_row(&found, &moved));
    CHECK_EQ(load(shard, row.window, NULL), 0);
    end();
}

TEST(a_row_that_was_moved_often_keeps_its_id)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25), last = row, found;
    put(shard, version, &row, 1);
    for (uint64_t seq = 4; seq < 20; seq += 2) {
        fl_row next = move_row(last, seq, (int64_t)(seq << 26), seq % 4 ? 25 : 31);
        uint64_t remove_id = last.key.seq == row.id.seq ? 0 : row.id.seq;
        write_one(shard, version, (fl_store_change){.remove = last.key, .remove_id = remove_id, .put = &next});
        CHECK(is_there(shard, row.id, &found) && same_row(&found, &next));
        CHECK(!same_key(last.key, row.id) ? !is_there(shard, last.key, NULL) : true);
        last = next;
    }
    write_one(shard, version, (fl_store_change){.remove = last.key, .remove_id = row.id.seq});
    CHECK(!is_there(shard, row.id, NULL) && !is_there(shard, last.key, NULL));
    end();
}

/* A retry: an odd number, the first key stays the ID. */
TEST(a_row_that_is_filed_again_under_an_odd_number_keeps_its_id)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25), retry = move_row(row, 3, 1000 + (30 << 20), 25), found;
    put(shard, version, &row, 1);
    write_one(shard, version, (fl_store_change){.remove = row.key, .put = &retry});
    CHECK(is_there(shard, row.id, &found) && same_row(&found, &retry));
    end();
}

TEST(a_batch_that_is_refused_changes_nothing)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row there = make_named(2, 1000, 25, "there"), good = make_named(4, 1000, 25, "good"),
           bad = make_row(6, 1000, 25);
    fl_dead_row dead = make_dead(there, "because");
    put(shard, version, &there, 1);
    bad.window = fl_window_of((int64_t)1 << 40, 25);
    fl_store_change changes[] = {{.remove = there.key}, {.put = &good}, {.bury = &dead}, {.put = &bad}};
    struct asked asked = to_write(version, changes, 4);
    CHECK_EQ(perform(shard, &asked), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_store_failure(asked.request.result), FL_FAILURE_REFUSED);
    CHECK(is_there(shard, there.id, NULL) && is_named(shard, "there", NULL));
    CHECK(!is_there(shard, good.id, NULL) && !is_named(shard, "good", NULL));
    struct asked listed = to_list_dead();
    CHECK_EQ(perform(shard, &listed), 0);
    CHECK_EQ(listed.request.dead_list.count, 0);
    end();
}

static void check_invalid(uint64_t version, fl_store_change change)
{
    struct asked asked = to_write(version, &change, 1);
    CHECK_EQ(perform(shard, &asked), FL_INVALID_ARGUMENT);
}

TEST(rows_that_cannot_be_are_refused)
{
    begin();
    uint64_t version = claim(shard, "me");
    static char long_name[FL_STORE_NAME_MAX + 1];
    fl_row row = make_row(2, 1000, 25), bad;
    fl_store_change change = {.put = &bad};
#define REFUSED(member, value)          \
    do {                                \
        bad = row;                      \
        bad.member = (value);           \
        check_invalid(version, change); \
    } while (0)
    REFUSED(key.seq, 0);
    REFUSED(key.seq, (uint64_t)1 << 56);
    REFUSED(key.at_us, -1);
    REFUSED(key.at_us, FL_STORE_TIME_END);
    REFUSED(id.seq, 0);
    REFUSED(id.at_us, -1);
    REFUSED(ns.size, 0);
    REFUSED(ns, ((fl_bytes){long_name, sizeof long_name}));
    REFUSED(name, ((fl_bytes){long_name, sizeof long_name}));
    REFUSED(body.size, FL_STORE_BODY_MAX + 1); /* it is not read */
    REFUSED(window, 0);
    REFUSED(window, fl_window_of(1000, 26));
    REFUSED(window, fl_window_of(1000, 7));
    REFUSED(window, fl_window_of(1000, 25) + 1);
#undef REFUSED
    check_invalid(version, (fl_store_change){.remove = {-1, 2}});
    check_invalid(version, (fl_store_change){.remove = {1000, (uint64_t)1 << 56}});
    CHECK_EQ(load(shard, row.window, NULL), 0);
    end();
}

TEST(an_empty_batch_is_done)
{
    begin();
    uint64_t version = claim(shard, "me");
    struct asked write = to_write(version, NULL, 0), find = to_find(NULL, 0);
    CHECK_EQ(perform(shard, &write), 0);
    CHECK_EQ(perform(shard, &find), 0);
    write_one(shard, version, (fl_store_change){0}); /* nor does an empty change do anything */
    end();
}

/* --- Bytes -------------------------------------------------------------------------------------------------------- */

/* Names of one byte, of all bytes, the longest, with zeros at both ends, and a few that differ in little. */
enum { ODD_NAMES = 256 + 9 };

static fl_bytes odd_name(int i)
{
    static const unsigned char alike[7] = {'a', 0, 0, 0xff, '\'', '\\', '%'};
    static unsigned char bytes[FL_STORE_NAME_MAX];
    size_t size = 1;
    memset(bytes, 0, sizeof bytes);
    if (i < 256) {
        bytes[0] = (unsigned char)i;
    } else if (i == 256) {
        for (size = 0; size < FL_STORE_NAME_MAX; size++)
            bytes[size] = (unsigned char)size;
    } else if (i == 257) {
        size = FL_STORE_NAME_MAX; /* zeros */
    } else if (i == 258) {
        memset(bytes, 0xff, size = FL_STORE_NAME_MAX);
    } else {
        memcpy(bytes, alike, sizeof alike);
        size = (size_t)(i - 259) + 2; /* "a\0", "a\0\0"… */
    }
    return (fl_bytes){remember(bytes, size), size};
}

TEST(names_may_have_any_bytes)
{
    begin();
    uint64_t version = claim(shard, "me");
    static fl_row rows[ODD_NAMES];
    static fl_store_want wants[ODD_NAMES];
    for (int i = 0; i < ODD_NAMES; i++) {
        rows[i] = make_row(2 + 2 * (uint64_t)i, 1000, 25);
        rows[i].name = odd_name(i);
        wants[i] = (fl_store_want){.ns = text("ns"), .name = rows[i].name};
    }
    put(shard, version, rows, ODD_NAMES);
    struct asked asked = to_find(wants, ODD_NAMES);
    CHECK_EQ(perform(shard, &asked), 0);
    for (int i = 0; i < ODD_NAMES; i++)
        CHECK(wants[i].found && same_row(&wants[i].row, &rows[i]));
    CHECK_EQ(load(shard, rows[0].window, NULL), ODD_NAMES);
    end();
}

TEST(namespaces_may_have_any_bytes)
{
    begin();
    uint64_t version = claim(shard, "me");
    static fl_row rows[ODD_NAMES];
    static fl_store_want wants[ODD_NAMES];
    for (int i = 0; i < ODD_NAMES; i++) {
        rows[i] = make_named(2 + 2 * (uint64_t)i, 1000, 25, "name");
        rows[i].ns = odd_name(i);
        wants[i] = (fl_store_want){.ns = rows[i].ns, .name = text("name")};
    }
    put(shard, version, rows, ODD_NAMES);
    struct asked asked = to_find(wants, ODD_NAMES);
    CHECK_EQ(perform(shard, &asked), 0);
    for (int i = 0; i < ODD_NAMES; i++)
        CHECK(wants[i].found && same_row(&wants[i].row, &rows[i]));
    end();
}

/* The hash of names is no secret and can be turned round: anybody can make names that share one. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    return x ^ x >> 32;
}

enum { ALIKE = 50 };

/* Of two words each; the second makes up for what the first one changed. */
static void make_alike(fl_row rows[ALIKE])
{
    uint64_t ns = mix(0x9e3779b97f4a7c15 ^ ('n' | 's' << 8) ^ (uint64_t)2 << 56);
    for (uint64_t i = 0; i < ALIKE; i++) {
        uint64_t words[2] = {0x1234567812345678 + i, mix(ns ^ (0x1234567812345678 + i)) ^ 0x4711};
        rows[i] = make_row(2 + 2 * i, (int64_t)i << 25, 25);
        rows[i].name = (fl_bytes){remember(words, sizeof words), sizeof words};
        CHECK(fl_store_hash(rows[i].ns, rows[i].name) == fl_store_hash(rows[0].ns, rows[0].name));
    }
}

TEST(names_that_share_their_hash_are_different_names)
{
    begin();
    uint64_t version = claim(shard, "me");
    static fl_row rows[ALIKE];
    static fl_store_want wants[ALIKE];
    make_alike(rows);
    put(shard, version, rows, ALIKE / 2); /* the others are looked for in vain */
    for (unsigned i = 0; i < ALIKE; i++)
        wants[i] = (fl_store_want){.ns = rows[i].ns, .name = rows[i].name};
    struct asked asked = to_find(wants, ALIKE);
    CHECK_EQ(perform(shard, &asked), 0);
    for (unsigned i = 0; i < ALIKE; i++)
        CHECK(i < ALIKE / 2 ? wants[i].found && same_row(&wants[i].row, &rows[i]) : !wants[i].found);
    write_one(shard, version, (fl_store_change){.remove = rows[3].key});
    struct asked again = to_find(wants, ALIKE);
    CHECK_EQ(perform(shard, &again), 0);
    for (unsigned i = 0; i < ALIKE / 2; i++)
        CHECK_EQ(wants[i].found, i != 3);
    end();
}

/* The same over two namespaces, with names of one word. */
TEST(namespaces_are_told_apart_even_if_hashes_do_not)
{
    begin();
    uint64_t version = claim(shard, "me");
    uint64_t one = mix(0x9e3779b97f4a7c15 ^ 'a' ^ (uint64_t)1 << 56),
             two = mix(0x9e3779b97f4a7c15 ^ 'b' ^ (uint64_t)1 << 56);
    uint64_t first = 0x1234567812345678, second = first ^ one ^ two;
    fl_row row = make_row(2, 1000, 25), found;
    row.ns = text("a");
    row.name = (fl_bytes){&first, sizeof first};
    CHECK(fl_store_hash(row.ns, row.name) == fl_store_hash(text("b"), (fl_bytes){&second, sizeof second}));
    put(shard, version, &row, 1);
    fl_store_want wants[3] = {{.ns = row.ns, .name = row.name},
                              {.ns = text("b"), .name = {&second, sizeof second}},
                              {.ns = text("b"), .name = row.name}};
    struct asked asked = to_find(wants, 3);
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK(wants[0].found && !wants[1].found && !wants[2].found);
    CHECK(is_there(shard, row.id, &found) && same_row(&found, &row));
    end();
}

TEST(bodies_of_every_size_come_back)
{
    begin();
    static const size_t sizes[] = {0, 1, 2, 127, 128, 255, 256, 4095, 4096, 4097, 65535, 65536, 100000, 1 << 20};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    uint64_t version = claim(shard, "me"), random = 7;
    fl_row rows[COUNT], found;
    static unsigned char bytes[1 << 20];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)random_next(&random);
    for (size_t i = 0; i < COUNT; i++) {
        rows[i] = make_row(2 + 2 * i, 1000, 25);
        rows[i].body = (fl_bytes){bytes + (sizeof bytes - sizes[i]), sizes[i]};
    }
    rows[0].body.data = NULL;
    put(shard, version, rows, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(is_there(shard, rows[i].id, &found) && same_row(&found, &rows[i]));
    fl_row *loaded;
    CHECK_EQ(load(shard, rows[0].window, &loaded), COUNT);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(same_row(&loaded[i], &rows[i]));
    end();
}

TEST(the_largest_numbers_and_the_furthest_times_come_back)
{
    begin();
    uint64_t version = claim(shard, "me"), seq_max = ((uint64_t)1 << 56) - 1;
    int64_t last = FL_STORE_TIME_END - 1;
    fl_row rows[] = {make_row(seq_max, last, 55),
                     make_row(seq_max - 1, last, 49),
                     make_row(seq_max - 3, last, 25),
                     make_row(seq_max - 5, last, 13),
                     make_row(1, 0, 13),
                     make_row(2, 0, 55),
                     make_row(3, 1, 25)};
    enum { COUNT = sizeof rows / sizeof *rows };
    fl_row found;
    put(shard, version, rows, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(is_there(shard, rows[i].id, &found) && same_row(&found, &rows[i]));
    struct asked asked = to_claim("me", HOUR_US, false);
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK_EQ(load(shard, rows[0].window, NULL), 2); /* the window that is all of time: the first one and (0, 2) */
    CHECK_EQ(load(shard, rows[3].window, NULL), 1);
    end();
}

TEST(a_large_batch_is_one_batch)
{
    enum { COUNT = 10000 };
    begin();
    uint64_t version = claim(shard, "me");
    static fl_row rows[COUNT];
    static fl_store_want wants[COUNT];
    for (uint64_t i = 0; i < COUNT; i++) {
        char name[24];
        snprintf(name, sizeof name, "name %" PRIu64, i);
        rows[i] = make_named(2 + 2 * i, (int64_t)(i * 7919 % COUNT) << 18, 25, name); /* in some eighty windows */
        if (i % 2)
            rows[i].name.size = 0;
        wants[i] = (fl_store_want){.ns = text("ns"), .name = rows[i].name, .id = rows[i].id};
    }
    put(shard, version, rows, COUNT);
    struct asked asked = to_find(wants, COUNT);
    CHECK_EQ(perform(shard, &asked), 0);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(wants[i].found && same_row(&wants[i].row, &rows[i]));
    static fl_store_change changes[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        changes[i] = (fl_store_change){.remove = rows[i].key};
    struct asked removing = to_write(version, changes, COUNT), again = to_find(wants, COUNT);
    CHECK_EQ(perform(shard, &removing), 0);
    CHECK_EQ(perform(shard, &again), 0);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(!wants[i].found);
    end();
}

/* --- Those given up ----------------------------------------------------------------------------------------------- */

static size_t list_dead(fl_bytes ns, uint64_t only, size_t limit, fl_dead_row *out)
{
    size_t count = 0;
    uint64_t after = 0;
    do {
        struct asked asked = to_list_dead();
        asked.request.dead_list.ns = ns;
        asked.request.dead_list.id_seq = only;
        asked.request.dead_list.after_seq = after;
        asked.request.dead_list.limit = limit;
        CHECK_EQ(perform(shard, &asked), 0);
        CHECK(asked.request.dead_list.count <= limit);
        for (size_t i = 0; i < asked.request.dead_list.count; i++)
            out[count++] = asked.request.dead_list.rows[i];
        CHECK(asked.request.dead_list.next_seq == 0 || asked.request.dead_list.next_seq > after);
        after = asked.request.dead_list.next_seq;
    } while (after > 0);
    return count;
}

static bool same_dead(const fl_dead_row *a, const fl_dead_row *b)
{
    return same_key(a->row.id, b->row.id) && same_bytes(a->row.ns, b->row.ns) && same_bytes(a->row.name, b->row.name) &&
           same_bytes(a->row.body, b->row.body) && a->died_us == b->died_us && same_bytes(a->reason, b->reason);
}

TEST(a_row_can_be_given_up_and_taken_back_with_its_reason)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_named(2, 1000, 25, "name");
    fl_dead_row dead = make_dead(row, "nobody listens there"), found[4];
    put(shard, version, &row, 1);
    write_one(shard, version, (fl_store_change){.remove = row.key, .bury = &dead});
    CHECK(!is_there(shard, row.id, NULL) && !is_named(shard, "name", NULL));
    CHECK_EQ(list_dead((fl_bytes){0}, 0, 10, found), 1);
    CHECK(same_dead(&found[0], &dead));
    fl_row again = make_named(4, 9000, 25, "name");
    write_one(shard, version, (fl_store_change){.unbury = row.id.seq, .put = &again});
    CHECK_EQ(list_dead((fl_bytes){0}, 0, 10, found), 0);
    CHECK(is_named(shard, "name", NULL));
    write_one(shard, version, (fl_store_change){.unbury = row.id.seq}); /* it is not there: no error */
    end();
}

TEST(those_given_up_are_listed_by_number_and_namespace_in_pages)
{
    enum { COUNT = 100 };
    begin();
    uint64_t version = claim(shard, "me");
    static fl_dead_row dead[COUNT], found[COUNT];
    static fl_store_change changes[COUNT];
    for (uint64_t i = 0; i < COUNT; i++) {
        fl_row row = make_row(2 + 2 * i, (int64_t)(COUNT - i) << 30, 25);
        row.ns = text(i % 3 ? "often" : "seldom");
        dead[i] = make_dead(row, i % 2 ? "" : "reason");
        changes[(i * 37) % COUNT] = (fl_store_change){.bury = &dead[i]};
    }
    struct asked asked = to_write(version, changes, COUNT);
    CHECK_EQ(perform(shard, &asked), 0);
    for (size_t limit = 1; limit <= 1000; limit *= 10) {
        CHECK_EQ(list_dead((fl_bytes){0}, 0, limit, found), COUNT);
        for (size_t i = 0; i < COUNT; i++)
            CHECK(same_dead(&found[i], &dead[i]));
        CHECK_EQ(list_dead(text("seldom"), 0, limit, found), 34);
        for (size_t i = 0; i < 34; i++)
            CHECK(same_dead(&found[i], &dead[3 * i]));
        CHECK_EQ(list_dead(text("never"), 0, limit, found), 0);
    }
    end();
}

TEST(one_that_was_given_up_is_found_by_its_number)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_dead_row dead[3], found[3];
    for (uint64_t i = 0; i < 3; i++) {
        dead[i] = make_dead(make_row(2 + 2 * i, 1000, 25), "reason");
        write_one(shard, version, (fl_store_change){.bury = &dead[i]});
    }
    CHECK_EQ(list_dead((fl_bytes){0}, 4, 10, found), 1);
    CHECK(same_dead(&found[0], &dead[1]));
    CHECK_EQ(list_dead((fl_bytes){0}, 4, 1, found), 1);
    CHECK_EQ(list_dead((fl_bytes){0}, 5, 10, found), 0);
    CHECK_EQ(list_dead(text("other"), 4, 10, found), 0);
    end();
}

/* A row that was moved keeps its first key, and so is the same one when it is given up again. */
TEST(who_is_given_up_twice_is_there_once)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25), moved = move_row(row, 5, 5000, 25);
    fl_dead_row first = make_dead(row, "first"), second = make_dead(moved, "second"), found[2];
    write_one(shard, version, (fl_store_change){.bury = &first});
    write_one(shard, version, (fl_store_change){.bury = &second});
    CHECK_EQ(list_dead((fl_bytes){0}, 0, 10, found), 1);
    CHECK(same_dead(&found[0], &second));
    write_one(shard, version, (fl_store_change){.unbury = row.id.seq});
    CHECK_EQ(list_dead((fl_bytes){0}, 0, 10, found), 0);
    end();
}

/* --- Absent ------------------------------------------------------------------------------------------------------- */

static void check_not_absent(const fl_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        CHECK(!fl_store_absent(shard, &(fl_store_want){.ns = rows[i].ns, .name = rows[i].name}));
}

/* Whether one that is not there is said to be absent is the store's own business. */
TEST(a_name_that_is_there_is_never_said_to_be_absent)
{
    enum { COUNT = 400 };
    begin();
    uint64_t version = claim(shard, "me");
    static fl_row rows[COUNT];
    static char names[COUNT][16];
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "name-%u", i);
        rows[i] = make_named(2 + 2 * i, 1000 + i, 25, names[i]);
    }
    put(shard, version, rows, COUNT);
    check_not_absent(rows, COUNT);
    for (unsigned i = 0; i < COUNT; i += 2) {
        fl_row moved = move_row(rows[i], 2 + 2 * (COUNT + i), 5000 + i, 25);
        write_one(shard, version, (fl_store_change){.put = &moved, .remove = rows[i].key});
        rows[i] = moved;
    }
    check_not_absent(rows, COUNT);
    if (under_test.reopen) {
        reopen();
        claim(shard, "me");
        check_not_absent(rows, COUNT);
    }
    end();
}
