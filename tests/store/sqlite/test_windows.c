/* SPDX-License-Identifier: MIT */
/* Windows of a shard's file, looked at from inside: chunks, and what is finished step by step. Without threads. */

#include <stdlib.h>

#include "store/conformance.h"
#include "store/sqlite/place.h"
#include "store/sqlite/worker.h"

static int open_none(uint32_t shards, fl_store **ret)
{
    (void)shards, (void)ret;
    return FL_INVALID_ARGUMENT;
}

const struct store_under_test under_test = {.open = open_none};

static struct base *base;

static void run(fl_store_request request)
{
    request.version = base->version;
    CHECK_EQ(fl__base_begin(base), 0);
    CHECK_EQ(fl__request_run(base, fl_wall_clock_system(), &request), 0);
    CHECK_EQ(request.result, 0);
    CHECK_EQ(fl__base_commit(base), 0);
    fl__answer_free(request.store_data);
}

static void open_file(void)
{
    char message[300];
    CHECK_EQ(fl__base_open(folder_file("shard-0000.db"), NULL, &base, message, sizeof message), 0);
}

static void begin_file(void)
{
    fl_store *made;
    new_folder();
    CHECK_EQ(fl_store_open(folder_url(), &(fl_store_config){.shards = 1}, &made, NULL, 0), 0);
    fl_store_close(made);
    open_file();
    fl_store_request claim = {.op = FL_STORE_CLAIM};
    claim.claim.owner = "me";
    run(claim);
}

static void end_file(void)
{
    fl__base_close(base);
    remove_folder();
}

enum { ROWS = 1000, BODY = 100 };

static uint64_t window_of(uint64_t i)
{
    return fl_window_of(0, FL_WINDOW_SHIFT_NEAR) + i;
}

static fl_row row_of(uint64_t window, uint64_t seq)
{
    static char body[BODY];
    fl_key key = {fl_window_begin(window) + (int64_t)seq, seq};
    return (fl_row){.key = key, .id = key, .window = window, .ns = text("ns"), .body = {body, BODY}};
}

static void put_rows(uint64_t window, uint64_t first, uint64_t step, size_t count)
{
    fl_store_change *changes = calloc(count, sizeof *changes);
    fl_row *rows = calloc(count, sizeof *rows);
    for (size_t i = 0; i < count; i++) {
        rows[i] = row_of(window, first + i * step);
        changes[i].put = &rows[i];
    }
    fl_store_request write = {.op = FL_STORE_WRITE};
    write.write.changes = changes;
    write.write.count = count;
    run(write);
    free(changes);
    free(rows);
}

static bool there(uint64_t window, uint64_t seq)
{
    fl_store_want want = {.id = row_of(window, seq).key};
    fl_store_request find = {.op = FL_STORE_FIND};
    find.find.wants = &want;
    find.find.count = 1;
    CHECK_EQ(fl__request_run(base, NULL, &find), 0);
    fl__answer_free(find.store_data);
    return want.found;
}

/* How many chunks a window has, and bytes in them. All are in order and none overlaps another. */
static size_t chunks_of(uint64_t number, size_t *ret_bytes)
{
    struct window *window = fl__window_find(base, number);
    struct record record;
    size_t count = 0, bytes = 0;
    uint64_t last = 0;
    int r = fl__window_scan(base, window, 0, &record);
    for (; r > 0; r = fl__record_next(base, &record)) {
        struct chunk_reader reader = fl__chunk_read(number, (uint64_t)record.k, record.v);
        struct entry entry;
        CHECK((uint64_t)record.k > last && record.v.size > 0 && record.v.size <= CHUNK_SIZE);
        while ((r = fl__chunk_next(&reader, &entry)) > 0) {
            CHECK(entry.key.seq > last);
            last = entry.key.seq;
        }
        CHECK_EQ(r, 0);
        count++;
        bytes += record.v.size;
    }
    CHECK_EQ(r, 0);
    if (ret_bytes)
        *ret_bytes = bytes;
    return count;
}

TEST(rows_take_eight_bytes_and_fill_their_chunks)
{
    begin_file();
    for (uint64_t i = 0; i < 10; i++)
        put_rows(window_of(0), 2 + i * 2 * ROWS, 2, ROWS);
    size_t bytes, chunks = chunks_of(window_of(0), &bytes);
    CHECK_EQ(bytes, 10 * ROWS * (BODY + 8));
    CHECK(chunks <= bytes / (CHUNK_SIZE - BODY - 8) + 1);
    end_file();
}

TEST(rows_that_come_out_of_order_find_their_places)
{
    begin_file();
    put_rows(window_of(0), 5, 5, ROWS);
    put_rows(window_of(0), 3, 5, ROWS);
    put_rows(window_of(0), 10001, 7, ROWS);
    put_rows(window_of(0), 1, 5, ROWS);
    for (uint64_t i = 0; i < ROWS; i++)
        CHECK(there(window_of(0), 1 + 5 * i) && there(window_of(0), 3 + 5 * i) && there(window_of(0), 5 + 5 * i) &&
              !there(window_of(0), 2 + 5 * i));
    CHECK(chunks_of(window_of(0), NULL) < 4 * ROWS * (BODY + 10) / (CHUNK_SIZE / 3));
    end_file();
}

/* --- Finishing ---------------------------------------------------------------------------------------------------- */

/* All rows up to `at_us`, of some windows. */
static void finish(uint64_t windows, int64_t at_us)
{
    struct fl_store_span spans[8] = {0};
    fl_store_request finish = {.op = FL_STORE_FINISH};
    for (uint64_t i = 0; i < windows; i++)
        spans[i].window = window_of(i);
    finish.finish.spans = spans;
    finish.finish.span_count = windows;
    finish.finish.settled.front[0] = finish.finish.settled.front[1] = (fl_key){at_us, UINT64_MAX >> 8};
    run(finish);
}

static void work_to_the_end(void)
{
    for (int i = 0; fl__background_waiting(base); i++) {
        CHECK(i < 10000);
        CHECK_EQ(fl__base_begin(base), 0);
        CHECK_EQ(fl__background_step(base, 0), 0);
        CHECK_EQ(fl__base_commit(base), 0);
    }
}

TEST(finishing_many_rows_is_done_in_steps_and_is_seen_at_once)
{
    struct sqlite_tuning before = fl__sqlite_tuning;
    fl__sqlite_tuning.finish_chunks = 5;
    begin_file();
    for (uint64_t i = 0; i < 4; i++)
        put_rows(window_of(i), 2 + i * 10000, 2, ROWS);
    finish(4, fl_window_begin(window_of(2)) + 20000 + ROWS);
    CHECK_EQ(base->sweep_count, 4);
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 2; i <= 2 * ROWS; i += 2) {
            CHECK(!there(window_of(0), i) && !there(window_of(1), 10000 + i) && there(window_of(3), 30000 + i));
            CHECK_EQ(there(window_of(2), 20000 + i), i > ROWS);
        }
        fl__base_close(base);
        open_file();
        CHECK_EQ(base->sweep_count, round ? 0 : 4);
        if (round == 0)
            work_to_the_end();
    }
    CHECK(!fl__window_find(base, window_of(0)) && !fl__window_find(base, window_of(1)));
    CHECK(fl__window_find(base, window_of(2)) && fl__window_find(base, window_of(3)));
    fl__sqlite_tuning = before;
    end_file();
}

TEST(a_row_filed_anew_is_not_swept_with_the_old_ones)
{
    struct sqlite_tuning before = fl__sqlite_tuning;
    fl__sqlite_tuning.finish_chunks = 1;
    begin_file();
    put_rows(window_of(0), 2, 2, ROWS);
    finish(1, 2 * ROWS);
    CHECK_EQ(base->sweep_count, 1);
    put_rows(window_of(0), ROWS, 1, 1);
    CHECK(there(window_of(0), ROWS));
    work_to_the_end();
    CHECK(there(window_of(0), ROWS) && !there(window_of(0), ROWS + 2));
    fl__sqlite_tuning = before;
    end_file();
}

/* --- Namespaces --------------------------------------------------------------------------------------------------- */

enum { SPACES = 1000, STAYS = 50, DIES = 70 };

static void change_one(fl_store_change change)
{
    fl_store_request write = {.op = FL_STORE_WRITE};
    write.write.changes = &change;
    write.write.count = 1;
    run(write);
}

static fl_bytes space_name(uint64_t i, char room[32])
{
    return (fl_bytes){room, (size_t)snprintf(room, 32, "space %d", (int)i)};
}

static fl_row row_in(uint64_t i, char room[32])
{
    fl_row row = row_of(window_of(0), 2 * i);
    row.ns = space_name(i, room);
    return row;
}

/* The row of each namespace goes before that of the next comes, but some stay or become dead letters. */
static void use_namespaces(void)
{
    char room[32];
    for (uint64_t i = 1; i <= SPACES; i++) {
        fl_row row = row_in(i, room);
        fl_dead_row dead = {.row = row, .reason = text("why")};
        change_one((fl_store_change){.put = &row});
        if (i % DIES == 0)
            change_one((fl_store_change){.remove = row.key, .bury = &dead});
        else if (i % STAYS != 0)
            change_one((fl_store_change){.remove = row.key});
    }
}

static void check_namespaces(void)
{
    char room[32];
    CHECK(base->namespaces.count <= 128);
    for (uint64_t i = 1; i <= SPACES; i++) {
        fl_store_request count = {.op = FL_STORE_COUNT}, dead = {.op = FL_STORE_DEAD_LIST};
        bool died = i % DIES == 0, stayed = !died && i % STAYS == 0;
        count.count.ns = dead.dead_list.ns = space_name(i, room);
        dead.dead_list.limit = 10;
        CHECK_EQ(fl__request_run(base, NULL, &count), 0);
        CHECK_EQ(count.count.count, stayed);
        fl__answer_free(count.store_data);
        CHECK_EQ(fl__request_run(base, NULL, &dead), 0);
        CHECK_EQ(dead.dead_list.count, died);
        CHECK(!died || same_bytes(dead.dead_list.rows[0].row.ns, space_name(i, room)));
        fl__answer_free(dead.store_data);
    }
}

TEST(numbers_of_namespaces_that_are_gone_are_used_again)
{
    begin_file();
    use_namespaces();
    check_namespaces();
    fl__base_close(base);
    open_file();
    check_namespaces();
    end_file();
}

/* A name that comes again while another one may have got its number: never two numbers for a name. */
TEST(a_namespace_that_comes_again_has_one_number)
{
    char room[32];
    begin_file();
    for (uint64_t i = 1; i <= 2000; i++) {
        fl_row row = row_of(window_of(0), 2 * i), old = row_of(window_of(0), 2 * i - 10);
        row.ns = space_name(i * 7919 % 97, room);
        change_one((fl_store_change){.put = &row});
        uint64_t number = fl__namespace_find(base, row.ns);
        CHECK(number > 0);
        for (uint64_t other = 1; other <= base->namespaces.count; other++) {
            fl_bytes ns;
            CHECK_EQ(fl__namespace_text(base, other, &ns), 0);
            CHECK_EQ(same_bytes(ns, row.ns), other == number);
        }
        if (i > 5)
            change_one((fl_store_change){.remove = old.key});
        if (i % 300 == 0) {
            fl__base_close(base);
            open_file();
        }
    }
    CHECK(base->namespaces.count <= 64);
    end_file();
}
