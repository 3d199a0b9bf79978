/* SPDX-License-Identifier: MIT */
/* The small parts that every layer uses: hash table, arena, growing buffer, varint, hexadecimal digits, UTF-8, histogram,
 * assertions. */

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <foliot/alloc.h>
#include <foliot/loop.h>

#include "base/base.h"
#include "test.h"

/* --- An allocator that fails --------------------------------------------------------------------------------------- */

static long left;      /* allocations until they all fail */
static long given_out; /* blocks */

static void *scarce_alloc(size_t size)
{
    void *block = left > 0 ? malloc(size) : NULL;
    left -= left > 0;
    given_out += block != NULL;
    return block;
}

static void *scarce_resize(void *old, size_t size)
{
    void *block = left > 0 ? realloc(old, size) : NULL;
    left -= left > 0;
    given_out += block && !old;
    return block;
}

static void scarce_release(void *block)
{
    given_out -= block != NULL;
    free(block);
}

static void allow(long allocations)
{
    static const fl_allocator scarce = {scarce_alloc, scarce_resize, scarce_release, NULL, NULL};
    left = allocations;
    CHECK_EQ(fl_set_allocator(&scarce), 0);
}

static void allow_all(void)
{
    CHECK_EQ(given_out, 0);
    CHECK_EQ(fl_set_allocator(NULL), 0);
}

/* --- Hash table ---------------------------------------------------------------------------------------------------- */

enum { THINGS = 1000 };

struct thing {
    int number;
    bool in, seen;
    struct hash_link link;
};

static struct thing things[THINGS];

static uint64_t hash_of(int number)
{
    return fl__hash_number((uint64_t)number % (THINGS / 2)); /* each hash twice */
}

static struct thing *find(const struct hash_table *table, int number)
{
    struct thing *found = NULL;
    for (struct hash_link *link = fl__hash_first(table, hash_of(number)); link; link = fl__hash_next(link)) {
        struct thing *thing = hash_entry(link, struct thing, link);
        CHECK(link->hash == hash_of(number));
        if (thing->number == number)
            found = thing;
    }
    return found;
}

static size_t walk(const struct hash_table *table)
{
    size_t count = 0;
    for (int i = 0; i < THINGS; i++)
        things[i].seen = false;
    for (struct hash_link *link = fl__hash_walk(table, NULL); link; link = fl__hash_walk(table, link), count++) {
        struct thing *thing = hash_entry(link, struct thing, link);
        CHECK(thing->in && !thing->seen);
        thing->seen = true;
    }
    return count;
}

/* Puts in and takes out in an order that looks random, and compares with what should be there. */
static void exercise(struct hash_table *table)
{
    memset(things, 0, sizeof things);
    size_t count = 0;
    uint64_t random = 1;
    for (int step = 0; step < 20 * THINGS; step++) {
        random = random * 6364136223846793005 + 1442695040888963407;
        int number = (int)((random >> 33) % THINGS);
        struct thing *thing = &things[number];
        CHECK((find(table, number) != NULL) == thing->in);
        thing->number = number;
        if (thing->in)
            fl__hash_remove(table, &thing->link);
        else
            fl__hash_insert(table, &thing->link, hash_of(number));
        thing->in = !thing->in;
        count = thing->in ? count + 1 : count - 1;
        CHECK_EQ(table->count, count);
        if (step % 1000 == 0)
            CHECK_EQ(walk(table), count);
    }
    CHECK_EQ(walk(table), count);
}

TEST(a_hash_table_has_what_was_put_in_and_not_taken_out)
{
    struct hash_table table = {0};
    CHECK(!fl__hash_first(&table, 0) && !fl__hash_walk(&table, NULL));
    exercise(&table);
    CHECK(table.mask + 1 >= table.count);
    fl__hash_free(&table);
    CHECK(!fl__hash_walk(&table, NULL));
}

TEST(a_hash_table_that_cannot_grow_has_everything_all_the_same)
{
    for (long allocations = 0; allocations < 5; allocations++) {
        struct hash_table table = {0};
        allow(allocations);
        exercise(&table);
        CHECK_EQ(table.buckets != NULL, allocations > 0);
        fl__hash_free(&table);
        allow_all();
    }
}

TEST(a_hash_table_may_be_moved_and_emptied_while_it_is_walked)
{
    struct hash_table table = {0}, moved;
    exercise(&table);
    moved = table;
    memset(&table, 0xee, sizeof table);
    for (struct hash_link *link = fl__hash_walk(&moved, NULL), *next; link; link = next) {
        next = fl__hash_walk(&moved, link);
        fl__hash_remove(&moved, link);
    }
    CHECK_EQ(moved.count, 0);
    fl__hash_free(&moved);
}

TEST(different_numbers_have_different_hashes_and_different_low_bits)
{
    bool taken[1 << 12] = {0};
    unsigned collisions = 0;
    for (uint64_t i = 0; i < 1 << 11; i++) {
        uint64_t place = fl__hash_number(i) & ((1 << 12) - 1);
        collisions += taken[place];
        taken[place] = true;
        CHECK(fl__hash_number(i << 32) != fl__hash_number((i + 1) << 32));
    }
    CHECK(collisions < 1 << 9); /* half full, at random: 2^11 - 2^12 * (1 - e^(-1/2)) = 436 */
}

/* --- Arena --------------------------------------------------------------------------------------------------------- */

TEST(an_arena_gives_memory_of_every_size_that_does_not_overlap)
{
    struct arena arena = {0};
    static const size_t sizes[] = {1, 16, 17, 1000, 65535, 65536, 65537, 1 << 20, 3};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    unsigned char *taken[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        taken[i] = fl__arena_take(&arena, sizes[i]);
        CHECK(taken[i] && (uintptr_t)taken[i] % 16 == 0);
        memset(taken[i], (int)i, sizes[i]);
    }
    for (size_t i = 0; i < COUNT; i++)
        for (size_t k = 0; k < sizes[i]; k++)
            CHECK_EQ(taken[i][k], i);
    CHECK(fl__arena_take(&arena, 0));
    CHECK(!fl__arena_take(&arena, SIZE_MAX));
    CHECK(memcmp(fl__arena_copy(&arena, "abc", 4), "abc", 4) == 0);
    fl__arena_free(&arena);
    CHECK(!arena.blocks);
}

TEST(an_arena_without_memory_says_so_and_keeps_what_it_has)
{
    struct arena arena = {0};
    allow(1);
    char *first = fl__arena_copy(&arena, "first", 6);
    static const char large[70000];
    CHECK(first && !fl__arena_take(&arena, 65536) && !fl__arena_copy(&arena, large, sizeof large));
    CHECK(strcmp(first, "first") == 0);
    CHECK(fl__arena_take(&arena, 60000)); /* the rest of the block */
    fl__arena_free(&arena);
    CHECK(!fl__arena_take(&arena, 1));
    allow_all();
}

/* --- Growing buffer ------------------------------------------------------------------------------------------------ */

TEST(a_buffer_has_what_was_put_into_it)
{
    struct out out = {0};
    for (int i = 0; i < 1000; i++) {
        out_put(&out, &i, sizeof i);
        out_text(&out, "abc");
    }
    CHECK_EQ(out.size, 7000);
    for (int i = 0; i < 1000; i++)
        CHECK(memcmp(out.data + (size_t)7 * (size_t)i, &i, sizeof i) == 0 &&
              memcmp(out.data + 7 * i + 4, "abc", 3) == 0);
    char *data = out.data;
    out_clear(&out);
    CHECK(out.size == 0 && out.data == data);
    out_free(&out);
    CHECK(!out.data && out.capacity == 0);
}

TEST(a_buffer_without_memory_stays_failed_until_it_is_cleared)
{
    struct out out = {0};
    allow(1);
    out_text(&out, "x");
    out_put(&out, things, sizeof things);
    CHECK(out.failed && out.size == 1);
    out_text(&out, "y"); /* would fit */
    CHECK(out.failed && out.size == 1 && !out_reserve(&out, 0));
    out_clear(&out);
    out_text(&out, "y");
    CHECK(!out.failed && out.size == 1 && out.data[0] == 'y');
    CHECK(!out_reserve(&out, SIZE_MAX - 1) && out.failed);
    out_free(&out);
    allow_all();
}

/* --- Varint -------------------------------------------------------------------------------------------------------- */

TEST(numbers_come_back_and_take_seven_bits_a_byte)
{
    unsigned char bytes[FL__VARINT_MAX];
    for (unsigned bit = 0; bit < 64; bit++) {
        for (int off = -1; off <= 1; off++) {
            uint64_t value = ((uint64_t)1 << bit) + (uint64_t)off, read = 0;
            size_t size = fl__varint_put(bytes, value);
            const unsigned char *at = bytes;
            CHECK_EQ(size, value == 0 ? 1 : (64 - (unsigned)__builtin_clzll(value) + 6) / 7);
            CHECK(fl__varint_get(&at, bytes + size, &read));
            CHECK(read == value && at == bytes + size);
        }
    }
}

TEST(a_number_that_is_cut_off_is_none)
{
    unsigned char bytes[FL__VARINT_MAX];
    size_t size = fl__varint_put(bytes, UINT64_MAX);
    CHECK_EQ(size, FL__VARINT_MAX);
    for (size_t i = 0; i < size; i++) {
        const unsigned char *at = bytes;
        uint64_t read = 77;
        CHECK(!fl__varint_get(&at, bytes + i, &read));
        CHECK(at == bytes && read == 77);
    }
}

TEST(a_number_of_more_than_64_bits_is_none)
{
    unsigned char too_large[10] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2}, endless[11];
    memset(endless, 0x80, sizeof endless);
    const unsigned char *at = too_large;
    uint64_t read;
    CHECK(!fl__varint_get(&at, too_large + 10, &read));
    at = endless;
    CHECK(!fl__varint_get(&at, endless + 11, &read));
    too_large[9] = 1;
    at = too_large;
    CHECK(fl__varint_get(&at, too_large + 10, &read));
    CHECK(read == (uint64_t)1 << 63);
}

TEST(signed_numbers_come_back_and_are_short_near_zero)
{
    static const int64_t values[] = {0, -1, 1, -64, 63, -65, 64, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        CHECK_EQ(fl__unzigzag(fl__zigzag(values[i])), values[i]);
        CHECK_EQ(fl__zigzag(values[i]) < 128, values[i] >= -64 && values[i] < 64);
    }
    CHECK(fl__zigzag(INT64_MIN) == UINT64_MAX && fl__zigzag(INT64_MAX) == UINT64_MAX - 1);
}

/* --- Hexadecimal digits -------------------------------------------------------------------------------------------- */

TEST(hexadecimal_digits_are_22_characters)
{
    int digits = 0;
    for (int c = -128; c < 128; c++) {
        const char *found = c ? strchr("0123456789abcdefABCDEF", (unsigned char)c) : NULL;
        CHECK_EQ(fl__hex_digit((char)c) >= 0, found != NULL);
        digits += found != NULL;
    }
    CHECK_EQ(digits, 22);
    CHECK(fl__hex_digit('7') == 7 && fl__hex_digit('c') == 12 && fl__hex_digit('C') == 12);
}

TEST(hexadecimal_numbers_and_bytes_come_back)
{
    uint64_t number = 5;
    CHECK(fl__hex_number("fedcba9876543210", 16, &number) && number == 0xfedcba9876543210);
    CHECK(fl__hex_number("0aX", 2, &number) && number == 10);
    CHECK(!fl__hex_number("0aX", 3, &number) && number == 10);
    CHECK(!fl__hex_number("", 0, &number) && !fl__hex_number("00000000000000000", 17, &number));
    unsigned char bytes[256], back[256];
    char text[512];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    fl__hex_put(text, bytes, sizeof bytes);
    CHECK(memcmp(text, "000102", 6) == 0 && memcmp(text + 508, "feff", 4) == 0);
    CHECK(fl__hex_bytes(text, back, sizeof back) && memcmp(bytes, back, sizeof back) == 0);
    fl__hex_put_number(text, 0xfedcba9876543210, 16);
    fl__hex_put_number(text + 16, 0x1ab, 4);
    fl__hex_put_number(text + 20, 0x1ab, 2);
    CHECK(memcmp(text, "fedcba987654321001abab", 22) == 0);
    CHECK(!fl__hex_bytes("0", back, 1) && !fl__hex_bytes("00g0", back, 2) && fl__hex_bytes("", back, 0));
}

/* --- UTF-8 --------------------------------------------------------------------------------------------------------- */

static size_t encode(uint32_t c, unsigned char *out)
{
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    size_t size = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, c >>= 6)
        out[i] = (unsigned char)(0x80 | (c & 0x3f));
    out[0] = (unsigned char)((0xf00 >> size & 0xf0) | c);
    return size;
}

/* All sequences of up to four bytes that are UTF-8, counted: each code point once, and nothing else. */
TEST(utf8_is_every_code_point_in_its_shortest_form)
{
    unsigned char text[4];
    for (uint32_t c = 0; c < 0x120000; c++) {
        size_t size = encode(c, text);
        bool good = c < 0xd800 || (c > 0xdfff && c < 0x110000);
        CHECK_EQ(fl__utf8_size(text, sizeof text), good ? size : 0);
        CHECK_EQ(fl__utf8_is_good(text, size), good);
        CHECK_EQ(fl__utf8_size(text, size - 1), 0);
    }
    uint64_t found = 0;
    for (uint32_t head = 0; head < 1 << 16; head++) {
        text[0] = (unsigned char)(head >> 8);
        text[1] = (unsigned char)head;
        text[2] = text[3] = 0x80; /* which of 64 these are does not matter */
        switch (fl__utf8_size(text, sizeof text)) {
        case 1:
            found += text[1] == 0;
            break;
        case 2:
            found++;
            break;
        case 3:
            found += 64;
            break;
        case 4:
            found += (uint64_t)64 * 64;
            break;
        }
    }
    CHECK_EQ(found, 0x110000 - 0x800);
}

TEST(utf8_needs_its_continuation_bytes)
{
    CHECK(fl__utf8_is_good("", 0) && fl__utf8_is_good("a\0b", 3) && fl__utf8_is_good("\xe2\x82\xac\xc3\xa4", 5));
    CHECK(!fl__utf8_is_good("\x80", 1) && !fl__utf8_is_good("\xc0\x80", 2) && !fl__utf8_is_good("\xe2\x82", 2));
    CHECK(!fl__utf8_is_good("\xe2\x82.", 3) && !fl__utf8_is_good("\xf0\x90\x80\x7f", 4) &&
          !fl__utf8_is_good("\xff", 1));
    CHECK_EQ(fl__utf8_size((const unsigned char *)"\xf0\x90", SIZE_MAX), 0); /* the NUL ends it */
}

/* --- Histogram ---------------------------------------------------------------------------------------------------- */

TEST(every_duration_has_its_bucket)
{
    unsigned last = 0;
    for (uint64_t value = 0; value < 100000; value++) {
        unsigned bucket = histogram_bucket(value);
        CHECK(bucket == last || bucket == last + 1);
        last = bucket;
    }
    CHECK_EQ(histogram_bucket((31ull << 59) - 1), HISTOGRAM_BUCKETS - 2);
    CHECK_EQ(histogram_bucket(31ull << 59), HISTOGRAM_BUCKETS - 1);
    CHECK_EQ(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

TEST(percentiles_are_exact_to_one_part_in_16_and_never_below)
{
    static struct histogram h;
    fl_loop_summary summary;
    for (unsigned round = 0; round < 44; round++) {
        h = (struct histogram){0};
        uint64_t scale = 1ull << round;
        for (uint64_t i = 1; i <= 1000; i++)
            histogram_add(&h, i * scale);
        fl__histogram_summary(&h, &summary);
        CHECK_EQ(summary.count, 1000);
        CHECK_EQ(summary.min_ns, scale);
        CHECK_EQ(summary.max_ns, 1000 * scale);
        CHECK_EQ(summary.mean_ns, 1001 * scale / 2);
        CHECK(summary.p50_ns >= 500 * scale && summary.p50_ns <= 500 * scale * 17 / 16);
        CHECK(summary.p90_ns >= 900 * scale && summary.p90_ns <= 900 * scale * 17 / 16);
        CHECK(summary.p99_ns >= 990 * scale && summary.p99_ns <= 1000 * scale);
        CHECK(fl__histogram_permille(&h, (unsigned)(round * 23)) <= summary.max_ns);
    }
}

TEST(a_mean_is_exact_however_long_the_durations)
{
    static struct histogram h;
    fl_loop_summary summary;
    for (unsigned i = 0; i < 5; i++)
        histogram_add(&h, UINT64_MAX - i);
    fl__histogram_summary(&h, &summary);
    CHECK_EQ(summary.mean_ns, UINT64_MAX - 2);
}

TEST(an_empty_histogram_says_zero)
{
    static struct histogram h;
    fl_loop_summary summary;
    fl__histogram_summary(&h, &summary);
    CHECK_EQ(summary.count + summary.min_ns + summary.mean_ns + summary.p50_ns + summary.p999_ns + summary.max_ns, 0);
}

TEST(merged_histograms_are_as_one)
{
    static struct histogram h[3];
    for (uint64_t i = 0; i < 1000; i++) {
        histogram_add(&h[i % 2], i * i);
        histogram_add(&h[2], i * i);
    }
    static struct histogram sum, empty;
    fl__histogram_merge(&sum, &empty);
    fl__histogram_merge(&sum, &h[1]);
    fl__histogram_merge(&sum, &h[0]);
    fl__histogram_merge(&sum, &empty);
    CHECK(sum.count == h[2].count && sum.min == h[2].min && sum.max == h[2].max && sum.sum == h[2].sum);
    CHECK_EQ(fl__histogram_mean(&sum), fl__histogram_mean(&h[2]));
    CHECK(memcmp(sum.bucket, h[2].bucket, sizeof sum.bucket) == 0);
}

/* --- Assertions ---------------------------------------------------------------------------------------------------- */

static int effects;

static bool effect(void)
{
    effects++;
    return true;
}

static void fail(int line)
{
    const char *empty = NULL;
    if (line == 0)
        /* cppcheck-suppress incorrectStringBooleanError */
        fl__assert(empty == NULL && "fine");
    else
        /* cppcheck-suppress incorrectStringBooleanError */
        fl__assert(empty != NULL && "a text");
}

/* What a process that does that writes to its standard error, and how it ends. */
static int run(int line, char *text, size_t size)
{
    int fds[2], status;
    CHECK_EQ(pipe(fds), 0);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(SIGABRT, SIG_DFL);
        dup2(fds[1], STDERR_FILENO);
        fail(line);
        _exit(0);
    }
    close(fds[1]);
    size_t got = 0;
    for (ssize_t n; (n = read(fds[0], text + got, size - 1 - got)) > 0;)
        got += (size_t)n;
    text[got] = '\0';
    close(fds[0]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

TEST(a_failed_assertion_says_where_and_what_and_aborts)
{
    char text[1024];
    CHECK_EQ(run(0, text, sizeof text), 0);
    CHECK_EQ(text[0], '\0');
    CHECK_EQ(run(1, text, sizeof text), SIGABRT);
    CHECK(strncmp(text, "foliot: ", 8) == 0);
    CHECK(strstr(text, "parts.c:") && strstr(text, ": assertion failed: empty != NULL && \"a text\"\n"));
}

TEST(expensive_assertions_are_evaluated_in_debug_builds_only)
{
    effects = 0;
    fl__assert(effect());
    CHECK_EQ(effects, 1);
    fl__assert_debug(effect());
#ifdef NDEBUG
    CHECK_EQ(effects, 1);
#else
    CHECK_EQ(effects, 2);
#endif
}
