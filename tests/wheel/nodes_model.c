/* SPDX-License-Identifier: MIT */
/* See nodes_model.h. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wheel/allocator.h"
#include "wheel/nodes_model.h"

#define GUARD 0x5afe5afe5afe5afeull

char nodes_context[128];

__attribute__((format(printf, 2, 3))) static _Noreturn void deviates(const struct pair *p, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%s, operation %" PRIu64 ", now %" PRIu64 ": ", nodes_context, p->operations, p->now_ns);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

void pair_check(struct pair *p)
{
    if (fl_nodes_check(p->nodes, stderr) != 0)
        deviates(p, "the wheel is broken");
    for (size_t i = 0; i < p->objects_count; i++) {
        const struct object *object = &p->objects[i];
        if (object->before != GUARD || object->after != GUARD)
            deviates(p, "object %zu was overwritten", i);
        if (fl_node_is_waiting(&object->node) != object->waits)
            deviates(p, "object %zu %s", i, object->waits ? "should wait" : "should not wait");
        if (fl_node_deadline_ns(&object->node) != object->deadline_ns)
            deviates(p, "object %zu has another deadline", i);
    }
}

static void end_operation(struct pair *p)
{
    if (fl_nodes_count(p->nodes) != p->waiting_count)
        deviates(p, "the wheel counts %" PRIu64 " nodes instead of %zu", fl_nodes_count(p->nodes), p->waiting_count);
    if (++p->operations % (p->check_rarely ? 101 : p->waiting_count / 16 + 1) == 0)
        pair_check(p);
}

void pair_new(struct pair *p, uint64_t start_ns, size_t objects_count)
{
    fl_wheel_config config = {.start_ns = start_ns};
    *p = (struct pair){.objects_count = objects_count};
    p->objects = calloc(objects_count, sizeof *p->objects);
    p->waiting = calloc(objects_count, sizeof *p->waiting);
    p->out = calloc(objects_count + 1, sizeof *p->out);
    for (size_t i = 0; i < objects_count; i++)
        p->objects[i].before = p->objects[i].after = GUARD;
    memory_install();
    if (fl_nodes_new(&config, &p->nodes) != 0)
        deviates(p, "there is no wheel");
}

void pair_free(struct pair *p)
{
    pair_check(p);
    memory_fail(0, false);
    fl_nodes_free(p->nodes);
    memory_remove();
    free(p->objects);
    free(p->waiting);
    free(p->out);
}

/* The rank of the first node that is due after this time. */
static size_t rank_after(const struct pair *p, uint64_t ns)
{
    size_t begin = 0, end = p->waiting_count;
    while (begin < end) {
        size_t middle = (begin + end) / 2;
        if (p->waiting[middle]->deadline_ns <= ns)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

static void forget(struct pair *p, struct object *object)
{
    size_t rank = rank_after(p, object->deadline_ns);
    while (p->waiting[--rank] != object)
        ;
    p->waiting_count--;
    memmove(&p->waiting[rank], &p->waiting[rank + 1], (p->waiting_count - rank) * sizeof(struct object *));
    object->waits = false;
}

void pair_start(struct pair *p, struct object *object, uint64_t deadline_ns)
{
    fl_nodes_start(p->nodes, &object->node, deadline_ns);
    if (object->waits)
        forget(p, object);
    size_t rank = rank_after(p, deadline_ns);
    memmove(&p->waiting[rank + 1], &p->waiting[rank], (p->waiting_count - rank) * sizeof(struct object *));
    p->waiting[rank] = object;
    p->waiting_count++;
    object->waits = true;
    object->deadline_ns = deadline_ns;
    end_operation(p);
}

void pair_stop(struct pair *p, struct object *object)
{
    if (fl_nodes_stop(p->nodes, &object->node) != object->waits)
        deviates(p, "stopping %s node is wrong", object->waits ? "a waiting" : "an idle");
    if (object->waits)
        forget(p, object);
    end_operation(p);
}

size_t pair_poll(struct pair *p, uint64_t now_ns, size_t limit)
{
    p->now_ns = now_ns > p->now_ns ? now_ns : p->now_ns;
    size_t due = rank_after(p, p->now_ns), room = limit < p->waiting_count + 1 ? limit : p->waiting_count + 1;
    size_t expected = due < room ? due : room;
    /* Exactly as long as needed, so that a sanitizer sees what is written behind it. */
    fl_node **out = room > 0 ? malloc(room * sizeof *out) : NULL;
    size_t n = fl_nodes_poll(p->nodes, now_ns, out, room);
    if (n != expected)
        deviates(p, "a poll with limit %zu returned %zu nodes instead of %zu", limit, n, expected);
    for (size_t i = 0; i < n; i++) {
        if (out[i] != &p->waiting[i]->node)
            deviates(p, "node %zu of a poll is another one", i);
        p->waiting[i]->waits = false;
        p->out[i] = out[i];
    }
    p->out_count = n;
    p->waiting_count -= n;
    memmove(p->waiting, p->waiting + n, p->waiting_count * sizeof(struct object *));
    free(out);
    end_operation(p);
    return n;
}

void pair_next(struct pair *p)
{
    uint64_t deadline_ns = 7, poll_ns = 7;
    bool any_poll = fl_nodes_next_poll(p->nodes, &poll_ns), any = fl_nodes_next_deadline(p->nodes, &deadline_ns);
    uint64_t expected_ns = p->waiting_count > 0 ? p->waiting[0]->deadline_ns : 7;
    if (any != (p->waiting_count > 0) || any_poll != any)
        deviates(p, "the wheel says that there is %s next deadline", any ? "a" : "no");
    if (deadline_ns != expected_ns)
        deviates(p, "the next deadline is %" PRIu64 " instead of %" PRIu64, deadline_ns, expected_ns);
    if (any && poll_ns > deadline_ns)
        deviates(p, "the next poll is after the next deadline");
    end_operation(p);
}
