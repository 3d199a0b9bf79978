/* SPDX-License-Identifier: MIT */
/* Coroutines: the switch and the stacks, without a scheduler. */

#include <stdlib.h>
#include <string.h>

#include "coro/context.h"
#include "base/image.h"
#include "coro/stack.h"
#include "test.h"

enum { STACK_SIZE = 64 << 10 };

struct pair {
    void *main, *other;
    struct fl__coro_fiber main_fiber;
    struct fl__coro_stack *stack;
    struct fl__coro_stacks pool;
    int steps;
    double value;
};

static void go_to_other(struct pair *pair)
{
    fl__coro_fiber_leave(&pair->main_fiber, &pair->stack->fiber);
    fl__coro_context_switch(&pair->main, pair->other);
    fl__coro_fiber_arrive(&pair->main_fiber, &pair->stack->fiber);
}

static void go_to_main(struct pair *pair)
{
    fl__coro_fiber_leave(&pair->stack->fiber, &pair->main_fiber);
    fl__coro_context_switch(&pair->other, pair->main);
    fl__coro_fiber_arrive(&pair->stack->fiber, &pair->main_fiber);
}

static void setup(struct pair *pair, void (*entry)(void *))
{
    memset(pair, 0, sizeof(*pair));
    fl__coro_stacks_init(&pair->pool);
    pair->stack = fl__coro_stacks_take(&pair->pool, STACK_SIZE);
    CHECK(pair->stack);
    fl__coro_fiber_of_thread(&pair->main_fiber);
    pair->other = fl__coro_context_make(pair->stack->bottom, pair->stack->top, entry, pair);
}

static void teardown(struct pair *pair)
{
    fl__coro_stacks_destroy(&pair->pool);
}

static void count_steps(void *arg)
{
    struct pair *pair = arg;
    fl__coro_fiber_arrive(&pair->stack->fiber, &pair->main_fiber);
    for (;;) {
        pair->steps++;
        go_to_main(pair);
    }
}

TEST(a_context_goes_on_where_it_was)
{
    struct pair pair;
    setup(&pair, count_steps);
    for (int i = 1; i <= 1000; i++) {
        go_to_other(&pair);
        CHECK_EQ(pair.steps, i);
    }
    teardown(&pair);
}

/* Vector instructions want their stack aligned to 16; printf with a double uses them. */
static void print_number(void *arg)
{
    struct pair *pair = arg;
    fl__coro_fiber_arrive(&pair->stack->fiber, &pair->main_fiber);
    char text[64];
    CHECK_EQ((uintptr_t)__builtin_frame_address(0) % 16, 0);
    snprintf(text, sizeof(text), "%.3f", pair->value);
    CHECK(strcmp(text, "1.250") == 0);
    pair->steps = 1;
    for (;;)
        go_to_main(pair);
}

TEST(a_first_context_has_an_aligned_stack)
{
    struct pair pair;
    setup(&pair, print_number);
    pair.value = 1.25;
    go_to_other(&pair);
    CHECK_EQ(pair.steps, 1);
    teardown(&pair);
}

static void spoil_registers(void *arg)
{
    struct pair *pair = arg;
    fl__coro_fiber_arrive(&pair->stack->fiber, &pair->main_fiber);
    for (long i = 0;; i++) {
        long a = i * 3, b = i * 5, c = i * 7, d = i * 11, e = i * 13, f = i * 17;
        double p = (double)a, q = (double)b, r = (double)c,
               s = (double)d; /* some machines preserve these in registers */
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
        go_to_main(pair);
        CHECK_EQ(a + b + c + d + e + f, i * 56);
        CHECK(p + q + r + s == (double)(i * 26));
    }
}

TEST(what_a_call_preserves_is_preserved)
{
    struct pair pair;
    setup(&pair, spoil_registers);
    for (long i = 0; i < 1000; i++) {
        long a = i, b = i * 2, c = i * 4, d = i * 8, e = i * 16, f = i * 32;
        double p = (double)a, q = (double)b, r = (double)c, s = (double)d;
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
        go_to_other(&pair);
        CHECK_EQ(a + b + c + d + e + f, i * 63);
        CHECK(p + q + r + s == (double)(i * 15));
    }
    teardown(&pair);
}

#if defined(FL__CONTEXT_IS_BYTES)
TEST(a_context_is_its_bytes)
{
    struct pair pair;
    setup(&pair, count_steps);
    go_to_other(&pair);
    size_t size = (size_t)(pair.stack->top - (char *)pair.other);
    CHECK(size < 512);
    void *image = malloc(size), *context = pair.other;
    memcpy(image, context, size);
    memset(pair.stack->bottom, 0xa5, stack_size(pair.stack));
    memcpy(context, image, size);
    free(image);
    go_to_other(&pair);
    CHECK_EQ(pair.steps, 2);
    teardown(&pair);
}
#endif

/* --- Stacks */

TEST(stacks_are_writable_apart_and_large_enough)
{
    struct fl__coro_stacks pool;
    fl__coro_stacks_init(&pool);
    static const size_t sizes[] = {1, 16 << 10, (16 << 10) + 1, 1 << 20, 20 << 20};
    struct fl__coro_stack *stacks[5];
    for (int i = 0; i < 5; i++) {
        stacks[i] = fl__coro_stacks_take(&pool, sizes[i]);
        CHECK(stacks[i] && stack_size(stacks[i]) >= sizes[i]);
        CHECK_EQ((uintptr_t)stacks[i]->top % 16, 0);
        memset(stacks[i]->bottom, i + 1, 4096);
        memset(stacks[i]->top - 4096, i + 1, 4096);
    }
    for (int i = 0; i < 5; i++) {
        CHECK(stacks[i]->bottom[0] == i + 1 && stacks[i]->top[-1] == i + 1);
        fl__coro_stacks_give(&pool, stacks[i]);
    }
    CHECK(!fl__coro_stacks_take(&pool, ((size_t)1 << 30) + 1));
    fl__coro_stacks_destroy(&pool);
}

TEST(stacks_come_back_by_the_thousand)
{
    enum { COUNT = 2000 };
    static struct fl__coro_stack *stacks[COUNT];
    struct fl__coro_stacks pool;
    fl__coro_stacks_init(&pool);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            stacks[i] = fl__coro_stacks_take(&pool, 16 << 10);
            CHECK(stacks[i]);
            stacks[i]->top[-1] = 1;
        }
        for (int i = 0; i < COUNT; i++)
            fl__coro_stacks_give(&pool, stacks[(i * 7 + round) % COUNT]);
    }
    fl__coro_stacks_destroy(&pool);
}

/* --- Images */

TEST(images_keep_their_bytes)
{
    enum { COUNT = 20000 };
    static unsigned char *images[COUNT];
    struct fl__images pool = {0};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            size_t size = 1 + (size_t)i % 1500;
            images[i] = fl__image_alloc(&pool, size);
            size_t unit = (size + 7) / 8, align = 8 * (unit & -unit);
            CHECK(images[i] && (uintptr_t)images[i] % (size > 1024 ? 16 : align < 64 ? align : 64) == 0);
            memset(images[i], i % 251, size);
        }
        for (int i = 0; i < COUNT; i++) {
            size_t size = 1 + (size_t)i % 1500;
            CHECK(images[i][0] == i % 251 && images[i][size - 1] == i % 251);
            fl__image_free(&pool, images[i], size);
        }
    }
    fl__images_destroy(&pool);
}
