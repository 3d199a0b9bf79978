/* SPDX-License-Identifier: MIT */
/* What `foliot doctor` finds: problems, which it prints at once, and facts that the store and its rows must agree on. */

#include "cli/doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <foliot/error.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/show.h"
#include "engine/engine.h"
#include "server/server.h"
#include "text/when.h"
#include "store/store.h"

void doctor_problem(struct doctor *doctor, uint32_t shard, const char *format, ...)
{
    va_list arguments;
    if (doctor->problems++ >= DOCTOR_COMPLAINTS)
        return;
    show_style(stdout, STYLE_RED);
    fputs("problem", stdout);
    show_style(stdout, STYLE_PLAIN);
    if (shard != UINT32_MAX)
        printf("  shard %" PRIu32, shard);
    fputs("  ", stdout);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

bool doctor_reserve(void **array, size_t count, size_t size)
{
    if (count & (count - 1)) /* it grows at powers of two */
        return true;
    void *larger = realloc(*array, (count > 0 ? count * 2 : 1) * size);
    if (larger)
        *array = larger;
    return larger != NULL;
}

bool facts_add_window(struct facts *facts, uint64_t window)
{
    void *array = facts->windows;
    bool good = doctor_reserve(&array, facts->window_count, sizeof window);
    facts->windows = array;
    if (good)
        facts->windows[facts->window_count++] = window;
    return good;
}

bool facts_add_span(struct facts *facts, uint64_t span)
{
    void *array = facts->spans;
    bool good = doctor_reserve(&array, facts->span_count, sizeof span);
    facts->spans = array;
    if (good)
        facts->spans[facts->span_count++] = span;
    return good;
}

bool facts_add_moved(struct facts *facts, struct moved moved)
{
    void *array = facts->moved;
    bool good = doctor_reserve(&array, facts->moved_count, sizeof moved);
    facts->moved = array;
    if (good)
        facts->moved[facts->moved_count++] = moved;
    return good;
}

static struct tally *tally_of(struct tally *table, size_t room, uint64_t hash)
{
    size_t at = hash & (room - 1);
    while (table[at].used && table[at].hash != hash)
        at = (at + 1) & (room - 1);
    return &table[at];
}

static bool grow_tallies(struct facts *facts)
{
    size_t room = facts->tally_room ? 2 * facts->tally_room : 64;
    struct tally *table = fl__alloc_zeroed(room * sizeof *table);
    if (!table)
        return false;
    for (size_t i = 0; i < facts->tally_room; i++)
        if (facts->tallies[i].used)
            *tally_of(table, room, facts->tallies[i].hash) = facts->tallies[i];
    fl__release(facts->tallies);
    facts->tallies = table;
    facts->tally_room = room;
    return true;
}

bool facts_count(struct facts *facts, fl_bytes ns, int64_t more)
{
    if (2 * (facts->tally_count + 1) > facts->tally_room && !grow_tallies(facts))
        return false;
    uint64_t hash = fl_store_hash(ns, (fl_bytes){0});
    struct tally *tally = tally_of(facts->tallies, facts->tally_room, hash);
    facts->tally_count += !tally->used;
    *tally = (struct tally){hash, tally->more + more, true};
    return true;
}

void facts_free(struct facts *facts)
{
    fl__release(facts->tallies);
    fl__release((void *)facts->progress.keep);
    free(facts->windows);
    free(facts->spans);
    free(facts->moved);
}
