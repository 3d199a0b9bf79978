/* SPDX-License-Identifier: MIT */
/* What is done beside the commits, a little in each, or on its own while nothing else is to be done: fresh names are
 * written as runs and runs are merged, settled rows are swept, slots are erased, and entries of moved rows whose windows
 * are gone are taken away. */

#include "store/sqlite/worker.h"
#include "store/sqlite/names/names.h"

enum { MOVED_PAGE = 256 };

/* A page of the table `moved`. A window that is gone took its rows with it; all others take their entry with them. */
static int sweep_moved(struct base *base)
{
    int64_t stale[MOVED_PAGE];
    size_t count = 0, seen = 0;
    sqlite3_stmt *statement = fl__query(base, SQL_MOVED_PAGE, "ii", (int64_t)base->moved_after, (int64_t)MOVED_PAGE);
    if (!statement)
        return FL_NO_MEMORY;
    int r;
    while ((r = fl__step(base, statement)) > 0) {
        base->moved_after = (uint64_t)sqlite3_column_int64(statement, 0);
        if (!fl__windows_reach(base, sqlite3_column_int64(statement, 1)))
            stale[count++] = (int64_t)base->moved_after;
        seen++;
    }
    for (size_t i = 0; i < count && r == 0; i++)
        r = fl__run(base, SQL_MOVED_DROP, "i", stale[i]);
    if (seen < MOVED_PAGE) {
        base->moved_sweep = false;
        base->moved_after = 0;
    }
    return r;
}

static int sweep_all_moved(struct base *base, uint64_t deadline_ns)
{
    int r = 0;
    do
        r = sweep_moved(base);
    while (r == 0 && base->moved_sweep && fl__monotonic_ns() < deadline_ns);
    return r;
}

static bool has_sweeps(const struct base *base)
{
    return base->sweep_count > 0;
}

static bool has_doomed(const struct base *base)
{
    return base->doomed > 0;
}

static bool has_moved(const struct base *base)
{
    return base->moved_sweep;
}

/* Each does something each time, even if it is late. */
static const struct kind {
    bool (*waiting)(const struct base *base);
    int (*step)(struct base *base, uint64_t deadline_ns);
} kinds[] = {{fl__names_waiting, fl__names_merge},
             {has_sweeps, fl__windows_sweep},
             {has_doomed, fl__slots_erase},
             {has_moved, sweep_all_moved}};

enum { KINDS = sizeof kinds / sizeof *kinds };

bool fl__background_waiting(const struct base *base)
{
    for (size_t i = 0; i < KINDS && base->loaded; i++)
        if (kinds[i].waiting(base))
            return true;
    return false;
}

/* What is due for names that came in is merged whatever the time; for the rest, the kinds take turns in being first. */
int fl__background_step(struct base *base, uint64_t deadline_ns)
{
    int r = fl__names_freeze(base);
    if (r == 0 && fl__names_debt(base) > 0)
        r = fl__names_merge(base, 0);
    base->turn++;
    for (size_t i = 0; i < KINDS && r == 0; i++) {
        const struct kind *kind = &kinds[(base->turn + i) % KINDS];
        if (!kind->waiting(base))
            continue;
        r = kind->step(base, deadline_ns);
        if (fl__monotonic_ns() >= deadline_ns)
            break;
    }
    return r;
}
