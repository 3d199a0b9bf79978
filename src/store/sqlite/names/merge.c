/* SPDX-License-Identifier: MIT */
/* Merging runs of names.
 *
 * Runs of about one size, four of them, are merged into one: so there are few of them to be asked, a dozen for twenty
 * million names, and a name is written about once for each power of four that there are. Smaller merges go before larger
 * ones, and the more names come in, the more is merged.
 *
 * A merge goes from the smallest hash to the largest, a block of the new run after the other, and takes effect as it goes:
 * for hashes up to where it has got the new run is asked, for those behind it the old ones. So it can stop after any
 * block and go on in another transaction or another process; and the filters of the old runs are freed while that of the
 * new one is made, so that they never need twice the memory.
 *
 * Entries whose row is gone are left out if this is known without reading: the windows that could have the row are gone.
 * Some blocks of each run tell how many will be left. A run of which less than half is left is written anew by itself, when
 * windows have gone; so what names have cost is given back when their timers are over.
 *
 * Where several entries have the same hash, their rows are looked for: a name that is often moved has an entry for every
 * place it has been to.
 */

#include "base/alloc.h"
#include "store/sqlite/names/internal.h"

enum { SAMPLES = 4 };

static int64_t time_of(const struct name_entry *entry)
{
    return (int64_t)(entry->tick << FL_WINDOW_SHIFT_MIN);
}

static bool mergeable(const struct run *run)
{
    return !run->into && run->done == run->blocks;
}

/* --- Making merges ------------------------------------------------------------------------------------------------ */

static void free_merge(struct merge *merge)
{
    for (size_t i = 0; i < merge->count; i++) {
        merge->inputs[i].run->into = NULL;
        fl__release(merge->inputs[i].entries);
    }
    fl__release(merge);
}

int fl__merge_resume(struct base *base, struct run *out, struct merge **ret)
{
    struct merge *merge = fl__alloc_zeroed(sizeof *merge);
    if (!merge)
        return base_no_memory(base);
    merge->out = out;
    merge->next = base->names->merges;
    base->names->merges = merge;
    *ret = merge;
    return 0;
}

int fl__merge_add(struct base *base, struct merge *merge, struct run *run)
{
    if (merge->count == FAN_MAX)
        return base_corrupt(base, "too many runs of names go into one");
    merge->inputs[merge->count++] = (struct run_cursor){.run = run};
    run->into = merge;
    return 0;
}

void fl__merges_unload(struct base *base)
{
    while (base->names->merges) {
        struct merge *next = base->names->merges->next;
        free_merge(base->names->merges);
        base->names->merges = next;
    }
}

/* How many entries of a run are still good, about: some blocks tell for all. */
static int estimate(struct base *base, struct run *run, uint64_t *ret)
{
    uint64_t seen = 0, good = 0;
    for (uint64_t i = 0; i < SAMPLES && i < run->blocks; i++) {
        struct run_cursor cursor = {.run = run, .next = run->blocks * i / SAMPLES};
        int r = fl__cursor_advance(base, &cursor);
        for (size_t j = 0; j < cursor.count && r > 0; j++) {
            good += fl__windows_reach(base, time_of(&cursor.entries[j]));
            seen++;
        }
        fl__release(cursor.entries);
        if (r < 0)
            return r;
    }
    *ret = seen > 0 ? run->entries * good / seen : 0;
    return 0;
}

static int begin(struct base *base, struct run **runs, size_t count)
{
    uint64_t entries = 0, good;
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++) {
        r = estimate(base, runs[i], &good);
        entries += r == 0 ? good : 0;
    }
    struct run *out = NULL;
    struct merge *merge = NULL;
    fl__names_sure(base, false);
    if (r == 0)
        r = fl__run_make(base, entries, &out);
    if (r != 0)
        return r;
    out->next = base->names->runs;
    base->names->runs = out;
    r = fl__merge_resume(base, out, &merge);
    for (size_t i = 0; i < count && r == 0; i++) {
        r = fl__merge_add(base, merge, runs[i]);
        if (r == 0)
            r = fl__run_note(base, runs[i]);
    }
    return r == 0 ? fl__run_note(base, out) : r;
}

/* Runs of a class, if they are enough. */
static size_t enough_of(const struct base *base, unsigned class, struct run **out)
{
    size_t count = 0;
    for (struct run *run = base->names->runs; run && count < FAN_MAX; run = run->next)
        if (mergeable(run) && fl__run_class(run->entries) == class)
            out[count++] = run;
    return count >= fl__sqlite_tuning.fan ? count : 0;
}

/* When windows have gone, a run may be left with little that is good: it is written anew. */
static int tidy(struct base *base)
{
    for (struct run *run = base->names->runs; run; run = run->next) {
        uint64_t good;
        if (!mergeable(run))
            continue;
        int r = estimate(base, run, &good);
        if (r == 0 && good < run->entries / 2)
            r = begin(base, &run, 1);
        if (r < 0)
            return r;
    }
    base->names->tidy = false;
    return 0;
}

static int begin_merges(struct base *base)
{
    struct run *runs[FAN_MAX];
    for (unsigned class = 0; class <= RUN_CLASSES; class ++) {
        size_t count = enough_of(base, class, runs);
        int r = count > 0 ? begin(base, runs, count) : 0;
        if (r < 0)
            return r;
    }
    return base->names->tidy ? tidy(base) : 0;
}

/* --- Going on ----------------------------------------------------------------------------------------------------- */

static int yes(struct base *base, struct window *window, const struct entry *entry, void *arg)
{
    (void)base, (void)window, (void)entry, (void)arg;
    return 1;
}

/* 1 if there is a row with that number where the entry says. */
static int has_row(struct base *base, const struct name_entry *entry)
{
    uint64_t candidates[FL__WINDOW_LEVELS];
    size_t count = fl__window_candidates(time_of(entry), candidates);
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++) {
        struct window *window = fl__window_find(base, candidates[i]);
        r = window ? fl__window_look(base, window, entry->seq, yes, NULL) : 0;
    }
    return r;
}

/* Removes the entries whose row is gone. */
static int weed(struct base *base, struct name_entry *entries, size_t *count)
{
    size_t left = 0;
    uint64_t last = 0;
    for (size_t i = 0; i < *count; i++) {
        bool twin = (i > 0 && last == entries[i].hash) || (i + 1 < *count && entries[i + 1].hash == entries[i].hash);
        last = entries[i].hash;
        int r = fl__windows_reach(base, time_of(&entries[i]));
        if (r && twin)
            r = has_row(base, &entries[i]);
        if (r < 0)
            return r;
        if (r)
            entries[left++] = entries[i];
    }
    *count = left;
    return 0;
}

/* Puts the cursors where the new run has got to. */
static int start(struct base *base, struct merge *merge)
{
    uint64_t from = hash_of(merge->out, merge->out->done);
    for (size_t i = 0; i < merge->count; i++) {
        struct run_cursor *cursor = &merge->inputs[i];
        cursor->next = block_of(cursor->run, from);
        int r;
        do
            r = fl__cursor_advance(base, cursor);
        while (r > 0 && cursor->entries[cursor->at].hash < from);
        if (r < 0)
            return r;
    }
    merge->started = true;
    return 0;
}

static struct run_cursor *smallest(struct merge *merge)
{
    struct run_cursor *least = NULL;
    for (size_t i = 0; i < merge->count; i++) {
        struct run_cursor *cursor = &merge->inputs[i];
        if (cursor->count > 0 && (!least || cursor->entries[cursor->at].hash < least->entries[least->at].hash))
            least = cursor;
    }
    return least;
}

static int collect(struct base *base, struct name_entry entry, size_t *count)
{
    struct names *names = base->names;
    if (*count == names->merged_room) {
        size_t room = *count ? *count * 2 : 512;
        struct name_entry *larger = fl__resize(names->merged, room * sizeof *larger);
        if (!larger)
            return base_no_memory(base);
        names->merged = larger;
        names->merged_room = room;
    }
    names->merged[(*count)++] = entry;
    return 0;
}

/* Writes the next block of the new run. Gives how many entries it has looked at. */
static int merge_block(struct base *base, struct merge *merge)
{
    struct run *out = merge->out;
    struct run_cursor *cursor;
    size_t count = 0;
    int r = merge->started ? 0 : start(base, merge);
    while (r >= 0 && (cursor = smallest(merge))) {
        struct name_entry entry = cursor->entries[cursor->at];
        if (block_of(out, entry.hash) != out->done)
            break;
        r = collect(base, entry, &count);
        if (r == 0)
            r = fl__cursor_advance(base, cursor);
    }
    if (r < 0)
        return r;
    int looked = (int)count;
    r = weed(base, base->names->merged, &count);
    if (r == 0)
        r = fl__run_write(base, out, base->names->merged, count);
    return r < 0 ? r : looked;
}

/* All blocks are written: the old runs go. */
static int end_merge(struct base *base, struct merge *merge)
{
    struct run *olds[FAN_MAX], *out = merge->out;
    size_t count = merge->count;
    for (size_t i = 0; i < count; i++)
        olds[i] = merge->inputs[i].run;
    struct merge **at = &base->names->merges;
    while (*at != merge)
        at = &(*at)->next;
    *at = merge->next;
    free_merge(merge);
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++)
        r = fl__run_end(base, olds[i]);
    fl__pieces_release(base);
    if (r == 0 && out->entries == 0)
        return fl__run_end(base, out);
    return r;
}

static struct merge *next_merge(const struct base *base)
{
    struct merge *least = base->names->merges;
    for (struct merge *merge = least; merge; merge = merge->next)
        if (merge->out->blocks < least->out->blocks)
            least = merge;
    return least;
}

/* One merge until its end, or until it is time to stop. */
static int merge_some(struct base *base, struct merge *merge, uint64_t deadline_ns)
{
    struct run *out = merge->out;
    struct names *names = base->names;
    fl__names_sure(base, false);
    do {
        int r = merge_block(base, merge);
        if (r < 0)
            return r;
        names->debt -= names->debt < (uint64_t)r ? names->debt : (uint64_t)r;
    } while (out->done < out->blocks && (names->debt > 0 || fl__monotonic_ns() < deadline_ns));
    int r = fl__run_note(base, out);
    if (r < 0)
        return r;
    if (out->done == out->blocks)
        return end_merge(base, merge);
    uint64_t hash = hash_of(out, out->done);
    for (size_t i = 0; i < merge->count; i++)
        fl__run_forget(base, merge->inputs[i].run, hash);
    return 0;
}

int fl__names_merge(struct base *base, uint64_t deadline_ns)
{
    int r = begin_merges(base);
    while (r == 0 && base->names->merges) {
        r = merge_some(base, next_merge(base), deadline_ns);
        if (r == 0)
            r = begin_merges(base);
        if (base->names->debt == 0 && fl__monotonic_ns() >= deadline_ns)
            break;
    }
    if (!base->names->merges)
        base->names->debt = 0;
    return r;
}
