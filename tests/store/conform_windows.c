/* SPDX-License-Identifier: MIT */
/* The suite, about windows: listing, loading, filing them again, finishing them; and progress. */

#include <stdlib.h>

#include "store/conformance.h"

static int compare_rows(const void *x, const void *y)
{
    const fl_row *a = x, *b = y;
    if (a->key.at_us != b->key.at_us)
        return a->key.at_us < b->key.at_us ? -1 : 1;
    return a->key.seq < b->key.seq ? -1 : a->key.seq > b->key.seq;
}

static bool contains(const uint64_t *windows, size_t count, uint64_t window)
{
    for (size_t i = 0; i < count; i++)
        if (windows[i] == window)
            return true;
    return false;
}

/* --- Listing ------------------------------------------------------------------------------------------------------ */

enum { LISTED = 60 };

/* Rows of one window: two namespaces, every third without a name, times that go to and fro. */
static fl_row *make_listed(uint64_t version)
{
    static fl_row rows[LISTED];
    for (uint64_t i = 0; i < LISTED; i++) {
        char name[16];
        snprintf(name, sizeof name, "%s-%02d", i % 2 ? "red" : "green", (int)i);
        rows[i] = make_named(2 + 2 * i, (int64_t)(i * 31 % LISTED) * 1000, 25, name);
        if (i % 3 == 0)
            rows[i].name.size = 0;
        rows[i].ns = text(i % 5 ? "many" : "few");
    }
    put(shard, version, rows, LISTED);
    return rows;
}

static bool fits(const fl_row *row, const fl_store_request *request)
{
    fl_bytes prefix = request->list.prefix, ns = request->list.ns;
    return row->key.at_us >= request->list.from_us && row->key.at_us < request->list.until_us &&
           row->key.seq > request->list.after_seq && (ns.size == 0 || same_bytes(row->ns, ns)) &&
           row->name.size >= prefix.size && same_bytes((fl_bytes){row->name.data, prefix.size}, prefix);
}

/* Reads page after page and compares with what should be there. */
static void check_listed(const fl_row *rows, struct asked asked)
{
    struct asked page = asked;
    size_t at = 0;
    for (;;) {
        CHECK_EQ(perform(shard, &page), 0);
        CHECK(page.request.list.count <= asked.request.list.limit);
        for (size_t i = 0; i < page.request.list.count; i++, at++) {
            while (at < LISTED && !fits(&rows[at], &asked.request))
                at++;
            CHECK(at < LISTED && same_row(&page.request.list.rows[i], &rows[at]));
        }
        uint64_t next = page.request.list.next_seq;
        if (next == 0)
            break;
        CHECK(next > page.request.list.after_seq);
        page = asked;
        page.request.list.after_seq = next;
    }
    while (at < LISTED && !fits(&rows[at], &asked.request))
        at++;
    CHECK_EQ(at, LISTED);
}

/* However many rows are asked for, a page ends with the body that reaches FL_STORE_PAGE_BYTES; none is left out. */
TEST(a_page_of_large_rows_is_bounded_in_bytes)
{
    enum { COUNT = 12, SIZE = 300 << 10 };
    static char body[SIZE];
    static fl_row rows[COUNT];
    static fl_dead_row dead[COUNT];
    static fl_store_change changes[COUNT];
    begin();
    uint64_t version = claim(shard, "me");
    for (uint64_t i = 0; i < COUNT; i++) {
        rows[i] = make_row(2 + 2 * i, 1000, 25);
        rows[i].body = (fl_bytes){body, i % 4 == 3 ? 10 : SIZE};
        dead[i] = make_dead(make_row(1002 + 2 * i, 1000, 25), "large");
        dead[i].row.body = rows[i].body;
        changes[i] = (fl_store_change){.put = &rows[i], .bury = &dead[i]};
    }
    struct asked writing = to_write(version, changes, COUNT);
    CHECK_EQ(perform(shard, &writing), 0);
    size_t found = 0, buried = 0;
    for (uint64_t after = 0, more = 1; more; after = more) {
        struct asked page = to_list(rows[0].window);
        page.request.list.after_seq = after;
        CHECK_EQ(perform(shard, &page), 0);
        size_t bytes = 0;
        for (size_t i = 0; i < page.request.list.count; i++) {
            CHECK(bytes < FL_STORE_PAGE_BYTES);
            CHECK(same_row(&page.request.list.rows[i], &rows[found++]));
            bytes += page.request.list.rows[i].body.size;
        }
        more = page.request.list.next_seq;
    }
    for (uint64_t after = 0, more = 1; more; after = more) {
        struct asked page = to_list_dead();
        page.request.dead_list.after_seq = after;
        CHECK_EQ(perform(shard, &page), 0);
        size_t bytes = 0;
        for (size_t i = 0; i < page.request.dead_list.count; i++) {
            CHECK(bytes < FL_STORE_PAGE_BYTES);
            CHECK_EQ(page.request.dead_list.rows[i].row.id.seq, dead[buried++].row.id.seq);
            bytes += page.request.dead_list.rows[i].row.body.size;
        }
        more = page.request.dead_list.next_seq;
    }
    CHECK_EQ(found, COUNT);
    CHECK_EQ(buried, COUNT);
    end();
}

TEST(a_window_is_listed_in_pages_by_number)
{
    begin();
    const fl_row *rows = make_listed(claim(shard, "me"));
    for (size_t limit = 1; limit < 2 * LISTED; limit += 1 + limit / 2) {
        struct asked asked = to_list(rows[0].window);
        asked.request.list.limit = limit;
        check_listed(rows, asked);
        asked.request.list.after_seq = 41;
        check_listed(rows, asked);
    }
    end();
}

TEST(a_window_is_listed_by_namespace_prefix_and_time)
{
    begin();
    const fl_row *rows = make_listed(claim(shard, "me"));
    static const char *const spaces[] = {"", "few", "many", "man", "none"};
    static const char *const prefixes[] = {"", "r", "red-", "red-07", "red-077", "green", "x"};
    static const int64_t times[][2] = {{0, FL_STORE_TIME_END}, {0, 1}, {1000, 30000}, {59000, 59001}, {60000, 70000}};
    for (size_t i = 0; i < 5 * 7 * 5; i++) {
        struct asked asked = to_list(rows[0].window);
        asked.request.list.ns = text(spaces[i % 5]);
        asked.request.list.prefix = text(prefixes[i / 5 % 7]);
        asked.request.list.from_us = times[i / 35][0];
        asked.request.list.until_us = times[i / 35][1];
        asked.request.list.limit = 7;
        check_listed(rows, asked);
    }
    end();
}

TEST(a_prefix_may_have_any_bytes)
{
    begin();
    uint64_t version = claim(shard, "me");
    static const char names[][4] = {"%a", "\\%", "a_b", "a\0b", "a\xff\xff", "\xff\xff\xff", "\xff\xfe"};
    static const size_t sizes[] = {2, 2, 3, 3, 3, 3, 2};
    fl_row rows[7];
    for (uint64_t i = 0; i < 7; i++) {
        rows[i] = make_row(2 + 2 * i, 1000, 25);
        rows[i].name = (fl_bytes){names[i], sizes[i]};
    }
    put(shard, version, rows, 7);
    for (uint64_t i = 0; i < 7 * 3; i++) {
        fl_bytes prefix = {names[i % 7], sizes[i % 7] < i / 7 + 1 ? sizes[i % 7] : i / 7 + 1};
        struct asked asked = to_list(rows[0].window);
        asked.request.list.prefix = prefix;
        CHECK_EQ(perform(shard, &asked), 0);
        size_t expected = 0;
        for (size_t j = 0; j < 7; j++)
            if (rows[j].name.size >= prefix.size && memcmp(rows[j].name.data, prefix.data, prefix.size) == 0)
                CHECK(same_row(&asked.request.list.rows[expected++], &rows[j]));
        CHECK_EQ(asked.request.list.count, expected);
    }
    end();
}

TEST(a_window_in_which_there_is_nothing_lists_and_loads_nothing)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25);
    put(shard, version, &row, 1);
    struct asked asked = to_list(fl_window_of(1000, 31)); /* the same time, but not filed there */
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK(asked.request.list.count == 0 && asked.request.list.next_seq == 0);
    CHECK_EQ(load(shard, fl_window_of(1000, 31), NULL), 0);
    CHECK_EQ(load(shard, row.window + 1, NULL), 0);
    struct asked none = to_load(NULL, 0);
    CHECK_EQ(perform(shard, &none), 0);
    CHECK(!none.request.load.more && none.count == 0);
    end();
}

TEST(requests_that_make_no_sense_are_refused)
{
    begin();
    uint64_t version = claim(shard, "me"), window = fl_window_of(1000, 25), wrong = 7;
    struct asked list = to_list(window), dead = to_list_dead(), far = to_list(wrong), cursor = to_list(window);
    list.request.list.limit = dead.request.dead_list.limit = 0;
    cursor.request.list.after_seq = UINT64_MAX;
    struct asked load = to_load(&window, 1), load_wrong = to_load(&wrong, 1);
    load.request.load.limit = 0;
    struct asked twice = to_load((uint64_t[]){window, window}, 2), back = to_load((uint64_t[]){window + 1, window}, 2);
    struct asked over = to_load((uint64_t[]){fl_window_of(1000, 31), window + 5}, 2);
    struct asked refile = to_refile(version, window, 0), by_two = to_refile(version, fl_window_of(1000, 37), 10),
                 finest = to_refile(version, fl_window_of(1000, 13), 10);
    by_two.request.refile.shift = 25;
    struct asked *all[] = {&list, &dead, &far,    &cursor, &load,   &load_wrong, &twice,
                           &back, &over, &refile, &by_two, &finest, NULL};
    for (size_t i = 0; all[i]; i++)
        CHECK_EQ(perform(shard, all[i]), FL_INVALID_ARGUMENT);
    end();
}

/* --- Loading ------------------------------------------------------------------------------------------------------ */

/* Three windows next to each other, of two sizes, with crowds of rows at the same moment. */
enum { LOADED = 3000, LOAD_WINDOWS = 3 };

static uint64_t load_windows[LOAD_WINDOWS];

static fl_row *make_loaded(uint64_t version)
{
    static fl_row rows[LOADED];
    const int64_t begins[LOAD_WINDOWS] = {((int64_t)1 << 31) - ((int64_t)2 << 25),
                                          ((int64_t)1 << 31) - ((int64_t)1 << 25), (int64_t)1 << 31};
    const unsigned shifts[LOAD_WINDOWS] = {25, 25, 31};
    uint64_t random = 1;
    for (uint64_t i = 0; i < LOADED; i++) {
        size_t w = random_below(&random, LOAD_WINDOWS);
        int64_t at = begins[w] + (int64_t)(random_below(&random, 20) << 18);
        rows[i] = make_row(2 + i, at, shifts[w]);
    }
    for (size_t w = 0; w < LOAD_WINDOWS; w++)
        load_windows[w] = fl_window_of(begins[w], shifts[w]);
    put(shard, version, rows, LOADED);
    return rows;
}

/* What a load must give: windows in order and numbers in order, and exactly the earliest `limit`. */
static void check_loaded(const fl_row *sorted, fl_key from, int64_t until_us, size_t limit)
{
    struct asked asked = to_load(load_windows, LOAD_WINDOWS);
    asked.request.load.from = from;
    asked.request.load.until_us = until_us;
    asked.request.load.limit = limit;
    CHECK_EQ(perform(shard, &asked), 0);
    for (size_t i = 1; i < asked.count; i++) {
        const fl_row *a = &asked.rows[i - 1], *b = &asked.rows[i];
        CHECK(a->window == b->window ? a->key.seq < b->key.seq
                                     : fl_window_begin(a->window) < fl_window_begin(b->window));
    }
    if (asked.count > 1)
        qsort(asked.rows, asked.count, sizeof *asked.rows, compare_rows);
    size_t first = 0, end;
    fl_row low = {.key = from};
    while (first < LOADED && compare_rows(&sorted[first], &low) < 0)
        first++;
    for (end = first; end < LOADED && sorted[end].key.at_us < until_us;)
        end++;
    size_t expected = end - first < limit ? end - first : limit;
    CHECK_EQ(asked.count, expected);
    for (size_t i = 0; i < expected; i++)
        CHECK(same_row(&asked.rows[i], &sorted[first + i]));
    CHECK_EQ(asked.request.load.more, end - first > limit);
    if (asked.request.load.more)
        CHECK(same_key(asked.request.load.next, sorted[first + limit].key));
}

TEST(a_load_gives_the_earliest_rows_of_its_windows)
{
    begin();
    fl_row *rows = make_loaded(claim(shard, "me"));
    qsort(rows, LOADED, sizeof *rows, compare_rows);
    check_loaded(rows, (fl_key){0}, FL_STORE_TIME_END, SIZE_MAX);
    static const size_t limits[] = {1, 2, 49, 50, 999, 1000, 1001, LOADED - 1, LOADED, LOADED + 1};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        check_loaded(rows, (fl_key){0}, FL_STORE_TIME_END, limits[i]);
    check_loaded(rows, (fl_key){0}, 0, 10);
    check_loaded(rows, (fl_key){FL_STORE_TIME_END - 1, 1}, FL_STORE_TIME_END, 10);
    end();
}

TEST(a_load_begins_at_a_key_and_ends_before_a_time)
{
    begin();
    fl_row *rows = make_loaded(claim(shard, "me"));
    qsort(rows, LOADED, sizeof *rows, compare_rows);
    uint64_t random = 5;
    for (int i = 0; i < 40; i++) {
        size_t a = random_below(&random, LOADED), b = random_below(&random, LOADED);
        fl_key from = rows[a].key;
        if (i % 3 == 0)
            from.seq += i % 2 ? 1 : -1; /* one that need not be there */
        check_loaded(rows, from, rows[b].key.at_us + i % 2, i % 4 ? 1 + random_below(&random, 500) : SIZE_MAX);
    }
    end();
}

/* As an engine with little memory does it: `next` is where the next slice begins. */
TEST(slices_of_a_load_give_every_row_once)
{
    begin();
    make_loaded(claim(shard, "me"));
    static bool seen[LOADED + 2];
    memset(seen, 0, sizeof seen);
    fl_key from = {0};
    size_t total = 0;
    for (bool more = true; more;) {
        struct asked asked = to_load(load_windows, LOAD_WINDOWS);
        asked.request.load.from = from;
        asked.request.load.limit = 333;
        CHECK_EQ(perform(shard, &asked), 0);
        for (size_t i = 0; i < asked.count; i++) {
            CHECK(!seen[asked.rows[i].key.seq]);
            seen[asked.rows[i].key.seq] = true;
        }
        total += asked.count;
        more = asked.request.load.more;
        from = asked.request.load.next;
    }
    CHECK_EQ(total, LOADED);
    end();
}

TEST(a_crowd_at_one_moment_is_loaded_in_slices_too)
{
    enum { CROWD = 1000 };
    begin();
    uint64_t version = claim(shard, "me"), window = fl_window_of(5000, 25);
    static fl_row rows[CROWD];
    for (uint64_t i = 0; i < CROWD; i++)
        rows[i] = make_row(2 + 2 * i, 5000, 25);
    put(shard, version, rows, CROWD);
    fl_key from = {0};
    for (size_t given = 0; given < CROWD;) {
        struct asked asked = to_load(&window, 1);
        asked.request.load.from = from;
        asked.request.load.limit = 70;
        CHECK_EQ(perform(shard, &asked), 0);
        for (size_t i = 0; i < asked.count; i++)
            CHECK(same_row(&asked.rows[i], &rows[given + i]));
        given += asked.count;
        CHECK_EQ(asked.request.load.more, given < CROWD);
        from = asked.request.load.next;
    }
    end();
}

TEST(rows_of_a_large_window_come_in_parts)
{
    enum { COUNT = SCALE(50000, 10000) };
    begin();
    uint64_t version = claim(shard, "me");
    static fl_row rows[COUNT];
    for (uint64_t i = 0; i < COUNT; i++)
        rows[i] = make_row(2 + 2 * i, (int64_t)(i * 7919 % COUNT), 25);
    for (size_t i = 0; i < COUNT; i += 10000)
        put(shard, version, rows + i, 10000);
    struct asked asked = to_load(&rows[0].window, 1);
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK_EQ(asked.count, COUNT);
    CHECK(asked.rows_called > 1); /* between them the loop has other things to do */
    for (size_t i = 0; i < COUNT; i++)
        CHECK(same_row(&asked.rows[i], &rows[i]));
    end();
}

/* --- Filing again ------------------------------------------------------------------------------------------------- */

enum { REFILED = 500 };

/* Rows all over a window of shift 31, and what is in each of its parts. */
static fl_row *make_refiled(uint64_t version, size_t counts[64])
{
    static fl_row rows[REFILED];
    uint64_t random = 3;
    memset(counts, 0, 64 * sizeof *counts);
    for (uint64_t i = 0; i < REFILED; i++) {
        uint64_t part = random_below(&random, 64) & ~(uint64_t)2; /* every other pair stays empty */
        char name[16];
        snprintf(name, sizeof name, "name %d", (int)i);
        int64_t at = ((int64_t)3 << 31) + (int64_t)(part << 25 | random_below(&random, 1 << 25));
        rows[i] = make_named(2 + 2 * i, at, 31, name);
        if (i % 2)
            rows[i].name.size = 0;
        counts[part]++;
    }
    put(shard, version, rows, REFILED);
    return rows;
}

TEST(a_window_is_filed_again_into_its_parts_step_by_step)
{
    begin();
    uint64_t version = claim(shard, "me"), parts = 0;
    size_t counts[64], moved = 0;
    fl_row *rows = make_refiled(version, counts);
    for (bool more = true; more;) {
        struct asked asked = to_refile(version, rows[0].window, 70);
        CHECK_EQ(perform(shard, &asked), 0);
        CHECK(asked.request.refile.moved <= 70 && asked.request.refile.moved > 0);
        moved += asked.request.refile.moved;
        parts |= asked.request.refile.parts;
        more = asked.request.refile.more;
        CHECK_EQ(load(shard, rows[0].window, NULL), REFILED - moved);
        CHECK_EQ(more, moved < REFILED);
        for (size_t i = 0; i < REFILED; i += 17) /* halfway, everything is found */
            CHECK(is_there(shard, rows[i].id, NULL));
    }
    CHECK_EQ(moved, REFILED);
    for (unsigned i = 0; i < 64; i++) {
        CHECK_EQ(parts >> i & 1, counts[i] > 0);
        CHECK_EQ(load(shard, fl_window_of(((int64_t)3 << 31) + ((int64_t)i << 25), 25), NULL), counts[i]);
    }
    for (size_t i = 0; i < REFILED; i++) {
        fl_row found, expected = rows[i];
        expected.window = fl_window_of(expected.key.at_us, 25);
        CHECK(is_there(shard, expected.id, &found) && same_row(&found, &expected));
        if (expected.name.size > 0)
            CHECK(is_named(shard, expected.name.data, &found) && same_row(&found, &expected));
    }
    end();
}

TEST(parts_that_were_not_empty_are_filed_into_all_the_same)
{
    begin();
    uint64_t version = claim(shard, "me");
    int64_t at = (int64_t)3 << 31;
    fl_row far[2] = {make_row(2, at, 31), make_row(6, at + 1, 31)}, near = make_row(4, at + 2, 25), *loaded;
    put(shard, version, far, 2);
    put(shard, version, &near, 1);
    struct asked asked = to_refile(version, far[0].window, 10);
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK(asked.request.refile.moved == 2 && asked.request.refile.parts == 1 && !asked.request.refile.more);
    CHECK_EQ(load(shard, near.window, &loaded), 3);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(loaded[i].key.seq, 2 + 2 * i);
    end();
}

TEST(an_empty_window_is_filed_again_in_no_time)
{
    begin();
    uint64_t version = claim(shard, "me");
    struct asked asked = to_refile(version, fl_window_of(1000, 31), 10);
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK(asked.request.refile.moved == 0 && asked.request.refile.parts == 0 && !asked.request.refile.more);
    end();
}

TEST(a_row_is_filed_down_through_all_sizes_of_windows)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_named(2, FL_STORE_TIME_END - 1, FL_WINDOW_SHIFT_MAX, "name"), found;
    row.id = (fl_key){77, 1}; /* it was moved before */
    put(shard, version, &row, 1);
    for (unsigned shift = FL_WINDOW_SHIFT_MAX; shift > FL_WINDOW_SHIFT_MIN; shift -= FL_WINDOW_STEP) {
        struct asked asked = to_refile(version, fl_window_of(row.key.at_us, shift), 1);
        CHECK_EQ(perform(shard, &asked), 0);
        CHECK(asked.request.refile.moved == 1 && asked.request.refile.parts == (uint64_t)1 << 63);
        CHECK(!asked.request.refile.more);
        row.window = fl_window_of(row.key.at_us, shift - FL_WINDOW_STEP);
        CHECK(is_there(shard, row.id, &found) && same_row(&found, &row));
        CHECK(is_there(shard, row.key, &found) && same_row(&found, &row));
        CHECK(is_named(shard, "name", &found) && same_row(&found, &row));
    }
    write_one(shard, version, (fl_store_change){.remove = row.key, .remove_id = row.id.seq});
    CHECK(!is_there(shard, row.id, NULL) && !is_named(shard, "name", NULL));
    end();
}

/* --- Finishing and progress --------------------------------------------------------------------------------------- */

static struct asked to_finish(uint64_t version, const struct fl_store_span *spans, size_t count)
{
    struct asked asked = simple(FL_STORE_FINISH, version);
    asked.request.finish.spans = spans;
    asked.request.finish.span_count = count;
    asked.request.finish.record.seq_limit = 2;
    return asked;
}

static void check_deleted(const struct asked *asked, uint64_t count)
{
    if (under_test.counts_deleted)
        CHECK_EQ(asked->request.finish.deleted, count);
}

TEST(a_whole_window_is_finished_and_its_neighbours_are_not)
{
    begin();
    uint64_t version = claim(shard, "me");
    int64_t width = (int64_t)1 << 25;
    fl_row rows[5], moved = move_row(make_row(20, 5, 25), 22, width + 9, 25);
    for (uint64_t i = 0; i < 5; i++)
        rows[i] = make_named(2 + i, (int64_t)i * width / 2, 25, i % 2 ? "odd" : "even");
    rows[0].name = rows[1].name = rows[4].name = (fl_bytes){0};
    put(shard, version, rows, 5); /* two, two and one in a window */
    put(shard, version, &moved, 1);
    struct fl_store_span span = {fl_window_of(width, 25), true};
    struct asked asked = to_finish(version, &span, 1);
    CHECK_EQ(perform(shard, &asked), 0);
    check_deleted(&asked, 3);
    CHECK_EQ(load(shard, span.window, NULL), 0);
    CHECK_EQ(load(shard, span.window - 1, NULL), 2);
    CHECK_EQ(load(shard, span.window + 1, NULL), 1);
    CHECK(!is_named(shard, "even", NULL) && !is_named(shard, "odd", NULL));
    CHECK(!is_there(shard, rows[2].id, NULL) && is_there(shard, rows[1].id, NULL));
    CHECK(!is_there(shard, moved.id, NULL) && !is_there(shard, moved.key, NULL));
    end();
}

TEST(a_window_that_was_finished_can_be_filed_into_again)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_named(2, 1000, 25, "name"), next = make_named(4, 2000, 25, "name"), found;
    struct fl_store_span span = {row.window, true};
    put(shard, version, &row, 1);
    struct asked first = to_finish(version, &span, 1), second = to_finish(version, &span, 1);
    CHECK_EQ(perform(shard, &first), 0);
    CHECK_EQ(perform(shard, &second), 0); /* nothing is there: no error */
    check_deleted(&second, 0);
    put(shard, version, &next, 1);
    CHECK(is_named(shard, "name", &found) && same_row(&found, &next));
    CHECK_EQ(load(shard, row.window, NULL), 1);
    end();
}

/* Even and odd numbers have fronts of their own, and what is kept is kept on either side. */
TEST(of_a_window_that_is_not_whole_the_settled_rows_go)
{
    enum { COUNT = 200 };
    begin();
    uint64_t version = claim(shard, "me");
    static fl_row rows[COUNT];
    for (uint64_t i = 0; i < COUNT; i++)
        rows[i] = make_row(2 + i, (int64_t)(i * 7919 % COUNT) / 4 * 1000, i % 3 ? 25 : 31);
    put(shard, version, rows, COUNT);
    static const uint64_t keep[] = {7, 8, 50, 51, 201, 5000};
    fl_progress settled = {.front = {{20000, 100}, {31000, 0}}, .keep = keep, .keep_count = 6};
    struct fl_store_span spans[2] = {{fl_window_of(0, 25), false}, {fl_window_of(0, 31), false}};
    struct asked asked = to_finish(version, spans, 2);
    asked.request.finish.settled = settled;
    CHECK_EQ(perform(shard, &asked), 0);
    uint64_t gone = 0;
    for (size_t i = 0; i < COUNT; i++) {
        bool is_settled = fl_progress_settled(&settled, rows[i].key);
        CHECK_EQ(is_there(shard, rows[i].id, NULL), !is_settled);
        gone += is_settled;
    }
    CHECK(gone > 50 && gone < 150);
    check_deleted(&asked, gone);
    end();
}

TEST(only_the_windows_that_were_named_are_finished)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row near = make_row(2, 1000, 25), far = make_row(4, 1000, 31);
    put(shard, version, (fl_row[]){near, far}, 2);
    struct fl_store_span span = {far.window, false};
    struct asked asked = to_finish(version, &span, 1);
    asked.request.finish.settled = (fl_progress){.front = {{FL_STORE_TIME_END - 1, 99}, {FL_STORE_TIME_END - 1, 99}}};
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK(is_there(shard, near.id, NULL) && !is_there(shard, far.id, NULL));
    end();
}

TEST(finishing_takes_rows_away_and_records_progress_in_one)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row rows[] = {make_named(2, 1000, 25, "first"), make_row(4, 2000, 25)};
    put(shard, version, rows, 2);
    struct fl_store_span span = {rows[0].window, true};
    struct asked asked = to_finish(version, &span, 1), claimed = to_claim("me", HOUR_US, false);
    asked.request.finish.record = (fl_progress){.front = {{2000, 4}, {7, 9}}, .seq_limit = 1000, .pending = 1};
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK_EQ(load(shard, rows[0].window, NULL), 0);
    CHECK(!is_there(shard, rows[0].id, NULL) && !is_named(shard, "first", NULL));
    CHECK_EQ(perform(shard, &claimed), 0);
    const fl_progress *progress = &claimed.request.claim.progress;
    CHECK(same_key(progress->front[0], (fl_key){2000, 4}) && same_key(progress->front[1], (fl_key){7, 9}));
    CHECK(progress->seq_limit == 1000 && progress->pending == 1 && progress->keep_count == 0);
    end();
}

TEST(a_finish_that_is_refused_changes_nothing)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25);
    put(shard, version, &row, 1);
    struct fl_store_span span = {row.window, true};
    fl_history_row without_number = {.ns = text("ns")};
    struct asked asked = to_finish(version, &span, 1);
    asked.request.finish.history = (fl_history_change){.rows = &without_number, .count = 1, .span = 2};
    asked.request.finish.record.seq_limit = 500;
    CHECK_EQ(perform(shard, &asked), FL_INVALID_ARGUMENT);
    CHECK(is_there(shard, row.id, NULL));
    struct asked claimed = to_claim("me", HOUR_US, false);
    CHECK_EQ(perform(shard, &claimed), 0);
    CHECK_EQ(claimed.request.claim.progress.seq_limit, 2);
    end();
}

static void check_progress(uint64_t version, const fl_progress *progress)
{
    struct asked recorded = to_record(version, progress), claimed = to_claim("me", HOUR_US, false);
    ask(shard, &recorded);
    ask(shard, &claimed);
    CHECK_EQ(await(&recorded), 0);
    CHECK_EQ(await(&claimed), 0);
    const fl_progress *read = &claimed.request.claim.progress;
    CHECK(same_key(read->front[0], progress->front[0]) && same_key(read->front[1], progress->front[1]));
    CHECK(read->seq_limit == progress->seq_limit && read->pending == progress->pending);
    CHECK_EQ(read->keep_count, progress->keep_count);
    for (size_t i = 0; i < progress->keep_count; i++)
        CHECK(read->keep[i] == progress->keep[i]);
}

TEST(progress_comes_back_as_it_was_recorded)
{
    enum { KEPT = 20000 };
    begin();
    static uint64_t keep[KEPT];
    uint64_t seq = 0, random = 11;
    for (size_t i = 0; i < KEPT; i++)
        keep[i] = seq += 1 + random_below(&random, i % 100 ? 40 : (uint64_t)1 << 40);
    fl_key last = {FL_STORE_TIME_END - 1, ((uint64_t)1 << 56) - 1};
    fl_progress all[] = {
        {.front = {{1000, 2}, {0}}, .seq_limit = 3},
        {.front = {{5, 4}, {7, 3}}, .keep = keep, .keep_count = KEPT, .seq_limit = seq + 1, .pending = KEPT},
        {.front = {last, last}, .keep = &last.seq, .keep_count = 1, .seq_limit = (uint64_t)1 << 56},
        {.front = {{1, 2}, {3, 4}}, .seq_limit = 5, .pending = UINT64_MAX >> 1},
        {.seq_limit = 2}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_progress(claim(shard, "me"), &all[i]);
    end();
}

TEST(a_claim_lists_all_windows_with_rows)
{
    enum { COUNT = 300 };
    begin();
    uint64_t version = claim(shard, "me");
    static fl_row rows[COUNT];
    for (uint64_t i = 0; i < COUNT; i++)
        rows[i] =
            make_row(2 + 2 * i, (int64_t)(i % 100) << 46, FL_WINDOW_SHIFT_MIN + (unsigned)(i % 8) * FL_WINDOW_STEP);
    put(shard, version, rows, COUNT);
    struct asked asked = to_claim("me", HOUR_US, false);
    CHECK_EQ(perform(shard, &asked), 0);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(contains(asked.request.claim.windows, asked.request.claim.window_count, rows[i].window));
    end();
}

TEST(windows_that_others_were_filed_into_are_listed_too)
{
    begin();
    uint64_t version = claim(shard, "me");
    int64_t at = (int64_t)1 << 33;
    fl_row row = make_row(2, at, 31), retry = make_row(3, at + ((int64_t)7 << 25), 25);
    put(shard, version, &row, 1);
    struct asked refiled = to_refile(version, row.window, 10);
    CHECK_EQ(perform(shard, &refiled), 0);
    put(shard, version, &retry, 1);
    struct asked asked = to_claim("me", HOUR_US, false);
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK(contains(asked.request.claim.windows, asked.request.claim.window_count, fl_window_of(at, 25)));
    CHECK(contains(asked.request.claim.windows, asked.request.claim.window_count, retry.window));
    end();
}

/* --- Counting ----------------------------------------------------------------------------------------------------- */

static uint64_t counted(const char *ns, char first_byte, uint64_t window)
{
    struct asked asked = simple(FL_STORE_COUNT, 0);
    uint64_t rows = 0;
    asked.request.count.ns = text(ns);
    asked.request.count.first_byte = (uint8_t)first_byte;
    CHECK_EQ(perform(shard, &asked), 0);
    for (size_t i = 0; i < asked.request.count.count; i++)
        rows += asked.request.count.windows[i].window == window ? asked.request.count.windows[i].rows : 0;
    return rows;
}

TEST(rows_are_counted_by_window_and_namespace)
{
    enum { COUNT = 100 };
    static fl_row rows[COUNT];
    begin();
    uint64_t version = claim(shard, "me");
    int64_t at = (int64_t)1 << 33;
    for (uint64_t i = 0; i < COUNT; i++) {
        rows[i] = make_row(2 + 2 * i, at + ((int64_t)(i % 2) << 31), 31);
        rows[i].ns = text(i % 10 == 0 ? "ant" : i % 4 ? "bee" : "\2own");
    }
    put(shard, version, rows, COUNT);
    uint64_t first = rows[0].window, second = rows[1].window;
    CHECK_EQ(counted("ant", 0, first), 10);
    CHECK_EQ(counted("", 'b', first), 20);
    CHECK_EQ(counted("", ' ', first), 30);
    CHECK_EQ(counted("", 0, first), 50);
    CHECK_EQ(counted("", 0, second), 50);
    CHECK_EQ(counted("nobody", 0, first), 0);
    write_one(shard, version, (fl_store_change){.remove = rows[0].key});
    fl_row moved = move_row(rows[10], 1000, at + ((int64_t)1 << 31), 31);
    write_one(shard, version, (fl_store_change){.remove = rows[10].key, .put = &moved});
    CHECK_EQ(counted("ant", 0, first), 8);
    CHECK_EQ(counted("ant", 0, second), 1);
    if (under_test.reopen) {
        reopen();
        version = claim(shard, "me");
    }
    CHECK_EQ(counted("ant", 0, first), 8);
    struct fl_store_span span = {.window = first, .whole = true};
    struct asked finish = to_finish(version, &span, 1);
    CHECK_EQ(perform(shard, &finish), 0);
    CHECK_EQ(counted("", 0, first), 0);
    CHECK_EQ(counted("", 0, second), 51);
    end();
}

TEST(rows_that_are_filed_again_are_counted_where_they_are)
{
    enum { COUNT = 64 };
    static fl_row rows[COUNT];
    begin();
    uint64_t version = claim(shard, "me");
    int64_t at = (int64_t)1 << 33;
    for (uint64_t i = 0; i < COUNT; i++)
        rows[i] = make_row(2 + 2 * i, at + ((int64_t)(i % 4) << 25), 31);
    put(shard, version, rows, COUNT);
    struct asked refile = to_refile(version, rows[0].window, 20);
    for (bool more = true; more;) {
        struct asked part = refile;
        CHECK_EQ(perform(shard, &part), 0);
        more = part.request.refile.more;
        uint64_t all = counted("", 0, rows[0].window);
        for (int64_t i = 0; i < 4; i++)
            all += counted("", 0, fl_window_of(at + (i << 25), 25));
        CHECK_EQ(all, COUNT);
    }
    CHECK_EQ(counted("", 0, rows[0].window), 0);
    CHECK_EQ(counted("", 0, fl_window_of(at, 25)), COUNT / 4);
    end();
}
