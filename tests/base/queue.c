/* SPDX-License-Identifier: MIT */
/* The queue, and the stack that many threads push onto. */

#include <pthread.h>

#include "base/queue.h"
#include "test.h"

enum { THREADS = 4, PER_THREAD = 20000 };

struct node {
    struct node *next;
    unsigned number; /* grows by one from node to node of a thread */
    unsigned thread;
};

FL__QUEUE(node_queue, struct node);

#define MARK ((struct node *)5)

static struct node nodes[THREADS][PER_THREAD];

TEST(a_queue_gives_out_what_came_first)
{
    struct node_queue queue = {0};
    struct node *a = &nodes[0][0], *b = &nodes[0][1], *c = &nodes[0][2];
    CHECK(!fl__queue_pop(&queue));
    fl__queue_append(&queue, a);
    fl__queue_append(&queue, b);
    CHECK(fl__queue_pop(&queue) == a);
    fl__queue_append(&queue, c);
    CHECK(fl__queue_pop(&queue) == b && fl__queue_pop(&queue) == c && !fl__queue_pop(&queue));
    fl__queue_append(&queue, a);
    CHECK(fl__queue_pop(&queue) == a && !fl__queue_pop(&queue));
}

TEST(moving_a_queue_keeps_the_order)
{
    struct node_queue queue = {0}, more = {0};
    struct node *a = &nodes[0][0], *b = &nodes[0][1], *c = &nodes[0][2];
    fl__queue_move(&queue, &more);
    CHECK(!queue.first);
    fl__queue_append(&more, a);
    fl__queue_move(&queue, &more);
    fl__queue_append(&more, b);
    fl__queue_append(&more, c);
    fl__queue_move(&queue, &more);
    CHECK_EQ(queue.count, 3);
    CHECK(!more.first && more.count == 0 && fl__queue_pop(&queue) == a && fl__queue_pop(&queue) == b);
    fl__queue_append(&queue, a);
    CHECK(fl__queue_pop(&queue) == c && fl__queue_pop(&queue) == a && !fl__queue_pop(&queue));
}

TEST(a_push_returns_the_head_that_it_has_replaced)
{
    _Atomic(struct node *) stack = NULL;
    struct node *a = &nodes[0][0], *b = &nodes[0][1];
    CHECK(fl__stack_is_empty(&stack) && !fl__stack_take(&stack));
    CHECK(!fl__stack_push(&stack, a));
    CHECK(fl__stack_push(&stack, b) == a);
    CHECK(!fl__stack_is_empty(&stack));
    struct node *taken = fl__stack_take(&stack);
    CHECK(taken == a && a->next == b && !b->next && fl__stack_is_empty(&stack));
    atomic_store(&stack, MARK);
    CHECK(fl__stack_is_empty(&stack) && !fl__stack_take(&stack) && atomic_load(&stack) == MARK);
    CHECK(fl__stack_push(&stack, a) == MARK);
    CHECK(fl__stack_take(&stack) == a && !a->next && !atomic_load(&stack));
}

TEST(nothing_is_pushed_onto_a_closed_stack)
{
    _Atomic(struct node *) stack = NULL;
    struct node *a = &nodes[0][0], *b = &nodes[0][1];
    fl__stack_push(&stack, a);
    fl__stack_push(&stack, b);
    struct node *last = fl__stack_close(&stack);
    CHECK(last == a && a->next == b && !b->next);
    CHECK((uintptr_t)fl__stack_push(&stack, a) == FL__STACK_CLOSED);
    CHECK(fl__stack_is_empty(&stack) && !fl__stack_take(&stack) && !fl__stack_close(&stack));
    atomic_store(&stack, NULL);
    CHECK(!fl__stack_push(&stack, a));
}

static _Atomic(struct node *) shared;

static void *push_all(void *arg)
{
    struct node *own = arg;
    for (unsigned i = 0; i < PER_THREAD; i++)
        fl__stack_push(&shared, &own[i]);
    return NULL;
}

TEST(each_thread_s_nodes_are_taken_once_and_in_their_order)
{
    pthread_t threads[THREADS];
    unsigned next[THREADS] = {0}, taken = 0;
    for (unsigned i = 0; i < THREADS; i++)
        for (unsigned n = 0; n < PER_THREAD; n++)
            nodes[i][n] = (struct node){.number = n, .thread = i};
    for (unsigned i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, push_all, nodes[i]), 0);
    while (taken < THREADS * PER_THREAD)
        for (struct node *node = fl__stack_take(&shared); node; node = node->next, taken++)
            CHECK_EQ(node->number, next[node->thread]++);
    for (unsigned i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK(fl__stack_is_empty(&shared));
}
