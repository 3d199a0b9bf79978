/* SPDX-License-Identifier: MIT */
/* The allocator seam: foliot/alloc.h, and src/base/alloc.h behind it. */

#include <stdlib.h>
#include <string.h>

#include <foliot/alloc.h>
#include <foliot/error.h>

#include "base/alloc.h"
#include "test.h"

#define MAPPING ((size_t)1 << 16)

static unsigned allocs, resizes, releases, maps, unmaps;
static _Alignas(1 << 16) char arena[1 << 16];

static void *counting_alloc(size_t size)
{
    allocs++;
    return malloc(size);
}

static void *counting_resize(void *block, size_t size)
{
    resizes++;
    return realloc(block, size);
}

static void counting_release(void *block)
{
    releases++;
    free(block);
}

static void *counting_map(size_t size)
{
    maps++;
    return size <= sizeof arena ? arena : NULL;
}

static void counting_unmap(void *block, size_t size)
{
    (void)block;
    (void)size;
    unmaps++;
}

static void *failing_alloc(size_t size)
{
    (void)size;
    return NULL;
}

static const fl_allocator counting = {counting_alloc, counting_resize, counting_release, counting_map, counting_unmap};

static void reset_counts(void)
{
    allocs = resizes = releases = maps = unmaps = 0;
}

static void use_heap(void)
{
    void *block = fl__alloc(8);
    CHECK(block != NULL);
    block = fl__resize(block, 16);
    CHECK(block != NULL);
    fl__release(block);
}

static void use_mapping(void)
{
    void *block = fl__map(MAPPING);
    CHECK(block != NULL);
    fl__unmap(block, MAPPING);
}

TEST(every_request_goes_through_the_allocator_that_was_set)
{
    reset_counts();
    CHECK_EQ(fl_set_allocator(&counting), 0);
    use_heap();
    use_mapping();
    fl__release(fl__alloc_zeroed(8));
    CHECK_EQ(fl_set_allocator(NULL), 0);
    CHECK_EQ(allocs, 2);
    CHECK_EQ(resizes, 1);
    CHECK_EQ(releases, 2);
    CHECK_EQ(maps, 1);
    CHECK_EQ(unmaps, 1);
}

TEST(null_brings_the_default_back)
{
    CHECK_EQ(fl_set_allocator(&counting), 0);
    CHECK_EQ(fl_set_allocator(NULL), 0);
    reset_counts();
    use_heap();
    use_mapping();
    CHECK_EQ(allocs + resizes + releases + maps + unmaps, 0);
}

TEST(the_heap_can_be_replaced_alone)
{
    fl_allocator heap = {.alloc = counting_alloc, .resize = counting_resize, .release = counting_release};
    reset_counts();
    CHECK_EQ(fl_set_allocator(&heap), 0);
    use_heap();
    use_mapping();
    CHECK_EQ(fl_set_allocator(NULL), 0);
    CHECK_EQ(allocs, 1);
    CHECK_EQ(maps + unmaps, 0);
}

TEST(mappings_can_be_replaced_alone)
{
    fl_allocator mapping = {.map = counting_map, .unmap = counting_unmap};
    reset_counts();
    CHECK_EQ(fl_set_allocator(&mapping), 0);
    use_heap();
    use_mapping();
    CHECK_EQ(fl_set_allocator(NULL), 0);
    CHECK_EQ(allocs + resizes + releases, 0);
    CHECK_EQ(maps, 1);
    CHECK_EQ(unmaps, 1);
}

TEST(half_a_heap_or_half_a_mapping_is_refused_and_changes_nothing)
{
    CHECK_EQ(fl_set_allocator(&counting), 0);
    for (unsigned present = 0; present < 32; present++) {
        fl_allocator a = {
            .alloc = present & 1 ? malloc : NULL,
            .resize = present & 2 ? realloc : NULL,
            .release = present & 4 ? free : NULL,
            .map = present & 8 ? counting_map : NULL,
            .unmap = present & 16 ? counting_unmap : NULL,
        };
        bool whole = ((present & 7) == 0 || (present & 7) == 7) && ((present & 24) == 0 || (present & 24) == 24);
        if (whole)
            continue;
        CHECK_EQ(fl_set_allocator(&a), FL_INVALID_ARGUMENT);
        reset_counts();
        use_heap();
        use_mapping();
        CHECK_EQ(allocs, 1);
        CHECK_EQ(maps, 1);
    }
    CHECK_EQ(fl_set_allocator(NULL), 0);
}

TEST(an_allocator_without_members_is_the_default)
{
    fl_allocator none = {NULL};
    CHECK_EQ(fl_set_allocator(&none), 0);
    use_heap();
    use_mapping();
}

TEST(zeroed_memory_is_zero)
{
    static const char zeros[256];
    char *block = fl__alloc(sizeof zeros);
    CHECK(block != NULL);
    memset(block, 0xff, sizeof zeros);
    fl__release(block);
    block = fl__alloc_zeroed(sizeof zeros);
    CHECK(block != NULL);
    CHECK(memcmp(block, zeros, sizeof zeros) == 0);
    fl__release(block);
}

TEST(every_request_can_fail)
{
    fl_allocator failing = {.alloc = failing_alloc, .resize = counting_resize, .release = counting_release};
    CHECK_EQ(fl_set_allocator(&failing), 0);
    CHECK(fl__alloc(1) == NULL);
    CHECK(fl__alloc_zeroed(1) == NULL);
    CHECK(fl__alloc_zeroed_lines(1) == NULL);
    CHECK_EQ(fl_set_allocator(NULL), 0);
}

TEST(lines_are_zeroed_and_begin_at_a_cache_line)
{
    static const char zeros[640];
    for (size_t size = 1; size <= sizeof zeros; size += 7) {
        char *block = fl__alloc_zeroed_lines(size);
        CHECK(block != NULL);
        CHECK_EQ((uintptr_t)block % 64, 0);
        CHECK(memcmp(block, zeros, size) == 0);
        memset(block, 0xff, size);
        fl__release_lines(block);
    }
    fl__release_lines(NULL);
}

TEST(lines_come_from_the_allocator_that_was_set)
{
    reset_counts();
    CHECK_EQ(fl_set_allocator(&counting), 0);
    fl__release_lines(fl__alloc_zeroed_lines(100));
    CHECK_EQ(fl_set_allocator(NULL), 0);
    CHECK_EQ(allocs, 1);
    CHECK_EQ(releases, 1);
}

TEST(a_mapping_is_zeroed_aligned_to_its_size_and_writable_to_its_end)
{
    for (size_t size = MAPPING; size <= (size_t)1 << 24; size *= 2) {
        char *block = fl__map(size);
        CHECK(block != NULL);
        CHECK_EQ((uintptr_t)block % size, 0);
        CHECK_EQ(block[0], 0);
        CHECK_EQ(block[size - 1], 0);
        memset(block, 1, size);
        fl__unmap(block, size);
    }
}

TEST(a_mapping_that_cannot_be_is_null)
{
    CHECK(fl__map((size_t)1 << 62) == NULL);
}
