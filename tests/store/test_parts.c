/* SPDX-License-Identifier: MIT */
/* What the stores share: progress and how it is written down, hashes, windows, URLs. */

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/varint.h"
#include "store/store.h"
#include "test.h"
#include "wheel/allocator.h"
#include "wheel/wheel_test.h"

/* --- Progress ----------------------------------------------------------------------------------------------------- */

TEST(settled_is_what_is_not_after_the_front_of_its_kind_and_not_kept)
{
    const uint64_t keep[] = {4, 7, 10};
    fl_progress progress = {.front = {{1000, 10}, {500, 7}}, .keep = keep, .keep_count = 3};
    CHECK(fl_progress_settled(&progress, (fl_key){999, 100}));
    CHECK(fl_progress_settled(&progress, (fl_key){1000, 8}));
    CHECK(!fl_progress_settled(&progress, (fl_key){1000, 10})); /* kept */
    CHECK(!fl_progress_settled(&progress, (fl_key){1000, 12}));
    CHECK(!fl_progress_settled(&progress, (fl_key){1001, 2}));
    CHECK(!fl_progress_settled(&progress, (fl_key){1, 4})); /* kept, wherever it is */
    CHECK(fl_progress_settled(&progress, (fl_key){499, 9999}));
    CHECK(fl_progress_settled(&progress, (fl_key){500, 5}));
    CHECK(!fl_progress_settled(&progress, (fl_key){500, 7})); /* kept */
    CHECK(!fl_progress_settled(&progress, (fl_key){500, 9}));
    CHECK(!fl_progress_settled(&progress, (fl_key){999, 3})); /* settled if it were even */
    progress.keep_count = 0;
    CHECK(fl_progress_settled(&progress, (fl_key){1000, 10}));
    CHECK(fl_progress_settled(&progress, (fl_key){500, 7}));
}

TEST(nothing_is_settled_in_the_beginning)
{
    fl_progress progress = {0};
    CHECK(!fl_progress_settled(&progress, (fl_key){0, 1}));
    CHECK(!fl_progress_settled(&progress, (fl_key){0, 2}));
}

static unsigned char encoded[100000];

static void check_round_trip(const fl_progress *progress)
{
    size_t size = fl__progress_encode(progress, encoded);
    fl_progress read;
    CHECK(size <= fl__progress_size(progress) && size <= sizeof encoded);
    CHECK_EQ(fl__progress_decode((fl_bytes){encoded, size}, &read), 0);
    CHECK(memcmp(read.front, progress->front, sizeof read.front) == 0);
    CHECK(read.seq_limit == progress->seq_limit && read.pending == progress->pending);
    CHECK_EQ(read.keep_count, progress->keep_count);
    CHECK(read.keep_count == 0 || memcmp(read.keep, progress->keep, read.keep_count * sizeof(uint64_t)) == 0);
    fl__release((void *)read.keep);
}

TEST(progress_is_read_as_it_was_written)
{
    uint64_t keep[5000], random = 3, seq = 0;
    for (size_t i = 0; i < 5000; i++)
        keep[i] = seq += 1 + random_below(&random, i % 50 ? 9 : (uint64_t)1 << 42);
    fl_key last = {FL_STORE_TIME_END - 1, ((uint64_t)1 << 56) - 1};
    check_round_trip(&(fl_progress){0});
    check_round_trip(&(fl_progress){.seq_limit = 2});
    check_round_trip(&(fl_progress){.front = {last, last}, .seq_limit = UINT64_MAX, .pending = UINT64_MAX});
    for (size_t count = 1; count <= 5000; count += count)
        check_round_trip(
            &(fl_progress){.front = {{1, 2}, {3, 4}}, .keep = keep, .keep_count = count, .seq_limit = seq});
}

TEST(ten_thousand_kept_take_little_room)
{
    static uint64_t keep[10000];
    for (size_t i = 0; i < 10000; i++)
        keep[i] = ((uint64_t)1 << 40) + i * 60;
    fl_progress progress = {.keep = keep, .keep_count = 10000, .seq_limit = (uint64_t)1 << 41};
    CHECK(fl__progress_encode(&progress, encoded) < 20000);
}

/* What a later version or a damaged disk could give: never more than an error. */
TEST(progress_that_is_cut_off_is_corrupt)
{
    const uint64_t keep[] = {1, 200, 300000};
    fl_progress progress = {.front = {{77777, 2}, {3, 4}}, .keep = keep, .keep_count = 3, .seq_limit = 9}, read;
    size_t size = fl__progress_encode(&progress, encoded);
    memset(&read, 7, sizeof read);
    fl_progress before = read;
    for (size_t i = 0; i < size; i++) {
        void *exact = malloc(i + 1); /* a sanitizer sees who reads beyond it */
        CHECK(exact);
        memcpy(exact, encoded, i);
        CHECK_EQ(fl__progress_decode((fl_bytes){exact, i}, &read), FL_STORE_CORRUPT);
        CHECK(memcmp(&read, &before, sizeof read) == 0);
        free(exact);
    }
}

TEST(progress_of_another_format_is_corrupt)
{
    fl_progress progress = {.seq_limit = 9}, read;
    size_t size = fl__progress_encode(&progress, encoded);
    encoded[0]++;
    CHECK_EQ(fl__progress_decode((fl_bytes){encoded, size}, &read), FL_STORE_CORRUPT);
}

TEST(a_count_that_cannot_be_takes_no_memory)
{
    unsigned char bytes[8 * FL__VARINT_MAX];
    const uint64_t numbers[8] = {1, 0, 0, 0, 0, 2, 0, UINT64_MAX};
    size_t size = 0;
    for (int i = 0; i < 8; i++)
        size += fl__varint_put(bytes + size, numbers[i]);
    fl_progress read;
    memory_install();
    CHECK_EQ(fl__progress_decode((fl_bytes){bytes, size}, &read), FL_STORE_CORRUPT);
    CHECK_EQ(memory.requests, 0);
    memory_remove();
}

TEST(random_bytes_are_no_progress_or_some)
{
    uint64_t random = 5;
    for (int i = 0; i < 20000; i++) {
        unsigned char bytes[40];
        size_t size = random_below(&random, sizeof bytes);
        for (size_t j = 0; j < size; j++)
            bytes[j] = (unsigned char)(random_next(&random) >> (random_below(&random, 2) * 3));
        bytes[0] = 1;
        fl_progress read;
        int r = fl__progress_decode((fl_bytes){bytes, size}, &read);
        CHECK(r == 0 || r == FL_STORE_CORRUPT);
        if (r == 0)
            fl__release((void *)read.keep);
    }
}

TEST(reading_progress_can_run_out_of_memory)
{
    const uint64_t keep[] = {1, 2};
    fl_progress progress = {.keep = keep, .keep_count = 2, .seq_limit = 9}, read;
    size_t size = fl__progress_encode(&progress, encoded);
    memory_install();
    memory_fail(1, false);
    CHECK_EQ(fl__progress_decode((fl_bytes){encoded, size}, &read), FL_NO_MEMORY);
    memory_remove();
}

/* --- Hashes ------------------------------------------------------------------------------------------------------- */

static fl_bytes text(const char *s)
{
    return (fl_bytes){s, strlen(s)};
}

/* Timers are where these say: they must never change. */
TEST(hashes_are_the_same_for_ever)
{
    unsigned char all[255];
    for (unsigned i = 0; i < 255; i++)
        all[i] = (unsigned char)i;
    fl_bytes bytes = {all, 255};
    CHECK(fl_store_hash(text(""), text("")) == 0x3da4588b8c08334f);
    CHECK(fl_store_hash(text("ns"), text("name")) == 0x88cebfe64c1cf1b9);
    CHECK(fl_store_hash(text("default"), text("order-12345678")) == 0xc26d438c768f9e06);
    CHECK(fl_store_hash(bytes, bytes) == 0x359ee7155c1910a4);
    CHECK(fl_store_hash((fl_bytes){"\0\0", 2}, (fl_bytes){"\0", 1}) == 0x2b5c427cdaaa2dc4);
    CHECK(fl_store_hash((fl_bytes){"\0", 1}, (fl_bytes){"\0\0", 2}) == 0xd14a16816f9cf16a);
}

TEST(shards_of_names_are_the_same_for_ever)
{
    fl_bytes ns = text("default"), name = text("order-12345678");
    static const uint32_t shards[] = {1, 2, 4, 16, 100, 65536}, expected[] = {0, 0, 2, 6, 10, 40454};
    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++)
        CHECK_EQ(fl_store_shard_of(shards[i], ns, name), expected[i]);
}

TEST(names_are_spread_over_the_shards)
{
    enum { SHARDS = 16, NAMES = 16000 };
    unsigned counts[SHARDS] = {0};
    for (int i = 0; i < NAMES; i++) {
        char name[24];
        snprintf(name, sizeof name, "order-%d", i);
        counts[fl_store_shard_of(SHARDS, text("default"), text(name))]++;
    }
    for (int i = 0; i < SHARDS; i++)
        CHECK(counts[i] > NAMES / SHARDS * 8 / 10 && counts[i] < NAMES / SHARDS * 12 / 10);
}

/* --- Windows ------------------------------------------------------------------------------------------------------ */

TEST(a_time_is_in_its_window_of_every_size)
{
    uint64_t random = 9, windows[FL__WINDOW_LEVELS];
    for (int i = 0; i < 1000; i++) {
        int64_t at = (int64_t)random_distance(&random, (uint64_t)FL_STORE_TIME_END - 1);
        CHECK_EQ(fl__window_candidates(at, windows), FL__WINDOW_LEVELS);
        for (unsigned j = 0; j < FL__WINDOW_LEVELS; j++) {
            CHECK_EQ(fl_window_shift(windows[j]), FL_WINDOW_SHIFT_MAX - j * FL_WINDOW_STEP);
            CHECK(fl_window_begin(windows[j]) <= at && at < fl_window_end(windows[j]));
            CHECK(j == 0 || (fl_window_begin(windows[j]) >= fl_window_begin(windows[j - 1]) &&
                             fl_window_end(windows[j]) <= fl_window_end(windows[j - 1])));
        }
    }
    CHECK(fl_window_begin(fl_window_of(FL_STORE_TIME_END - 1, FL_WINDOW_SHIFT_MAX)) == 0);
    CHECK(fl_window_end(fl_window_of(FL_STORE_TIME_END - 1, FL_WINDOW_SHIFT_MAX)) == FL_STORE_TIME_END);
}

/* --- Requests and URLs -------------------------------------------------------------------------------------------- */

TEST(failures_are_of_three_kinds)
{
    CHECK_EQ(fl_store_failure(0), FL_FAILURE_NONE);
    CHECK_EQ(fl_store_failure(FL_SHARD_LOST), FL_FAILURE_LOST);
    CHECK_EQ(fl_store_failure(FL_OUTCOME_UNKNOWN), FL_FAILURE_UNKNOWN);
    static const int refused[] = {FL_STORE_UNAVAILABLE, FL_STORE_FULL, FL_STORE_READ_ONLY,  FL_STORE_CORRUPT,
                                  FL_NO_MEMORY,         FL_SYSTEM,     FL_INVALID_ARGUMENT, FL_SHARD_HELD};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK_EQ(fl_store_failure(refused[i]), FL_FAILURE_REFUSED);
}

TEST(a_request_that_is_wrong_says_what_is_wrong)
{
    fl_row row = {.key = {1000, 2}, .id = {1000, 2}, .window = fl_window_of(1000, 31), .ns = text("")};
    fl_store_change change = {.put = &row};
    fl_store_request request = {.op = FL_STORE_WRITE, .write = {&change, 1}};
    CHECK_EQ(fl__store_validate(&request), FL_INVALID_ARGUMENT);
    CHECK(strstr(request.message, "namespace"));
    row.ns = text("ns");
    request.result = 0;
    CHECK_EQ(fl__store_validate(&request), 0);
    fl_dead_row dead = {.row = {.id = {0, 5}, .ns = text("ns")}}; /* its key and window do not matter */
    change.bury = &dead;
    CHECK_EQ(fl__store_validate(&request), 0);
    dead.row.id.seq = 0;
    CHECK_EQ(fl__store_validate(&request), FL_INVALID_ARGUMENT);
    request.result = 0;
    dead.row.id.seq = 5;
    dead.reason.size = FL_STORE_BODY_MAX + 1;
    CHECK_EQ(fl__store_validate(&request), FL_INVALID_ARGUMENT);
    CHECK(strstr(request.message, "reason"));
}

TEST(an_answer_without_words_gets_those_of_its_code)
{
    fl_store_request request;
    fl__store_answer(&request, FL_STORE_FULL, NULL);
    CHECK_EQ(request.result, FL_STORE_FULL);
    CHECK(strcmp(request.message, fl_strerror(FL_STORE_FULL)) == 0);
    fl__store_answer(&request, FL_SYSTEM, "%0500d", 1); /* longer than there is room for */
    CHECK_EQ(strlen(request.message), sizeof request.message - 1);
    fl__store_answer(&request, 0, NULL);
    CHECK(request.result == 0 && request.message[0] == 0);
}

static int open_wrong(const char *url, uint32_t shards, char *message, size_t size)
{
    fl_store *store = NULL;
    int r = fl_store_open(url, &(fl_store_config){.shards = shards}, &store, message, size);
    CHECK(r < 0 && !store);
    return r;
}

TEST(a_url_that_is_none_is_refused_in_words)
{
    static const char *const urls[] = {"", "memory", "sqlite", "mysql://host", "MEMORY:", "/var/lib", "memory:x"};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        char message[200] = "";
        CHECK_EQ(open_wrong(urls[i], 0, message, sizeof message), FL_INVALID_ARGUMENT);
        CHECK(strlen(message) > 10);
    }
    char message[200];
    open_wrong("mysql://host", 0, message, sizeof message);
    CHECK(strstr(message, "mysql://host") && strstr(message, "sqlite:") && strstr(message, "postgres://"));
}

TEST(more_shards_than_there_can_be_are_refused)
{
    char message[200];
    CHECK_EQ(open_wrong("memory:", 65537, message, sizeof message), FL_INVALID_ARGUMENT);
    CHECK(strstr(message, "65536"));
}

TEST(messages_may_be_unwanted_or_short)
{
    char message[8] = "xxxxxxx";
    CHECK_EQ(open_wrong("mysql://host", 0, NULL, 0), FL_INVALID_ARGUMENT);
    CHECK_EQ(open_wrong("mysql://host", 0, message, 0), FL_INVALID_ARGUMENT);
    CHECK(strcmp(message, "xxxxxxx") == 0);
    CHECK_EQ(open_wrong("mysql://host", 0, message, sizeof message), FL_INVALID_ARGUMENT);
    CHECK_EQ(strlen(message), sizeof message - 1);
}

TEST(closing_nothing_is_allowed)
{
    fl_store_close(NULL);
}

TEST(the_wall_clock_is_the_machines)
{
    fl_wall_clock *clock = fl_wall_clock_system();
    int64_t first = clock->now_us(clock);
    CHECK(first > (int64_t)1600000000 * 1000000 && first < FL_STORE_TIME_END);
}

/* --- History -------------------------------------------------------------------------------------------------------- */

TEST(a_row_of_history_is_read_as_it_was_written_and_not_beyond_its_end)
{
    fl_history_row row = {.seq = 77,
                          .id = {5, 6},
                          .began_us = -3,
                          .result = 31,
                          .ns = {"ns", 2},
                          .name = {"name", 4},
                          .schedule = {"daily", 5},
                          .body = {"what has happened", 17}};
    unsigned char bytes[256];
    size_t size = fl__history_encode(&row, bytes);
    CHECK(size <= fl__history_size(&row));
    for (size_t cut = 0; cut <= size; cut++) {
        unsigned char *copy = malloc(cut + 1); /* so that a sanitizer sees where it ends */
        CHECK(copy);
        memcpy(copy, bytes, cut);
        const unsigned char *at = copy;
        fl_history_row read;
        CHECK_EQ(fl__history_decode(&at, copy + cut, &read), cut == size);
        if (cut == size) {
            CHECK(at == copy + size && read.seq == 77 && read.id.at_us == 5 && read.id.seq == 6);
            CHECK(read.began_us == -3 && read.result == 31 && read.ns.size == 2 && read.name.size == 4);
            CHECK(read.schedule.size == 5 && memcmp(read.body.data, "what has happened", 17) == 0);
        }
        free(copy);
    }
}
