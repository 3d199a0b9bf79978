/* SPDX-License-Identifier: MIT */
/* What is done beside the commits, a little in each, or on its own while nothing else is to be done: fresh names are
 * written as runs and runs are merged, settled rows are swept, slots are erased, and entries of moved rows whose windows
 * are gone are taken away. */

#include "store/sqlite/worker.h"

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

bool fl__background_waiting(const struct base *base)
{
    return base->loaded && (base->sweep_count > 0 || base->doomed > 0 || base->moved_sweep || fl__names_waiting(base));
}

int fl__background_step(struct base *base, uint64_t deadline_ns)
{
    int r = fl__names_freeze(base);
    if (r == 0)
        r = fl__names_merge(base, deadline_ns);
    if (r == 0 && base->sweep_count > 0 && fl__monotonic_ns() < deadline_ns)
        r = fl__windows_sweep(base, deadline_ns);
    if (r == 0 && base->doomed > 0 && fl__monotonic_ns() < deadline_ns)
        r = fl__slots_erase(base, deadline_ns);
    while (r == 0 && base->moved_sweep && fl__monotonic_ns() < deadline_ns)
        r = sweep_moved(base);
    return r;
}
