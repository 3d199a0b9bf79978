/* SPDX-License-Identifier: MIT */
/* The windows of the store: their list, and the window of each row.
 *
 * Windows of every length are opened some time before they begin. From then on, new rows are filed under the shorter windows
 * that they consist of (their parts), and their rows are refiled there. A near window that is too large for memory is opened
 * in the same way, because slices of a short window are cheaper to find.
 */

#include "engine/internal.h"

enum { REFILE_STEP = 5000 };

/* --- Windows ------------------------------------------------------------------------------------------------------ */

static bool window_before(uint64_t a, uint64_t b)
{
    int64_t x = fl_window_begin(a), y = fl_window_begin(b);
    return x != y ? x < y : a > b; /* windows that begin together: longest first */
}

size_t fl__window_place(const fl_engine *e, uint64_t window)
{
    size_t low = 0, high = e->window_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (window_before(e->windows[middle], window))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int fl__windows_reserve(fl_engine *e, size_t more)
{
    size_t need = e->window_count + more;
    if (need <= e->window_capacity)
        return 0;
    uint64_t *windows = fl__resize(e->windows, (need + need / 2) * sizeof *windows);
    if (!windows)
        return FL_NO_MEMORY;
    e->windows = windows;
    e->window_capacity = need + need / 2;
    return 0;
}

void fl__windows_add(fl_engine *e, uint64_t window)
{
    if (window == e->last_window)
        return;
    if (fl__is_lane(window)) {
        if (fl__lane_filed(e, window) < 0)
            fl__engine_restart(e, "out of memory for another lane");
        return;
    }
    size_t at = fl__window_place(e, window);
    if (at == e->window_count || e->windows[at] != window) {
        if (fl__windows_reserve(e, 1) < 0) {
            fl__engine_restart(e, "out of memory for another window");
            return;
        }
        fl__assert(e->window_count < e->window_capacity);
        memmove(&e->windows[at + 1], &e->windows[at], (e->window_count - at) * sizeof *e->windows);
        e->windows[at] = window;
        e->window_count++;
    }
    e->last_window = window;
}

static bool split_find(const fl_engine *e, uint64_t window, size_t *ret)
{
    for (size_t i = 0; i < e->split_count; i++)
        if (e->split[i] == window) {
            *ret = i;
            return true;
        }
    return false;
}

void fl__windows_remove(fl_engine *e, uint64_t window)
{
    size_t at = fl__window_place(e, window);
    if (at < e->window_count && e->windows[at] == window) {
        memmove(&e->windows[at], &e->windows[at + 1], (e->window_count - at - 1) * sizeof *e->windows);
        e->window_count--;
    }
    e->last_window = 0;
}

/* Whether there may be rows under a part of this window. */
static bool has_parts(const fl_engine *e, uint64_t window)
{
    size_t at = fl__window_place(e, window);
    at += at < e->window_count && e->windows[at] == window;
    return at < e->window_count && fl_window_begin(e->windows[at]) < fl_window_end(window);
}

/* Whether new rows are filed under the parts of this window. */
static bool is_open(const fl_engine *e, uint64_t window)
{
    unsigned shift = fl_window_shift(window);
    size_t at;
    if (shift > FL_WINDOW_SHIFT_NEAR)
        return (uint64_t)fl_window_begin(window) >> shift <= e->opened[shift];
    return e->split_count > 0 && split_find(e, window, &at);
}

uint64_t fl__window_for(fl_engine *e, int64_t at_us)
{
    unsigned shift = FL_WINDOW_SHIFT_MAX;
    while (shift > FL_WINDOW_SHIFT_MIN && is_open(e, fl_window_of(at_us, shift)))
        shift -= FL_WINDOW_STEP;
    return fl_window_of(at_us, shift);
}

/* How long before its beginning a window is opened. The time is enough to refile it. Forecasts count by windows, so the next
 * hour has windows of 33 seconds, the next day windows of 36 minutes and the next month windows of 38 hours. */
static int64_t opening_us(const fl_engine *e, unsigned shift)
{
    const int64_t hour = 3600 * (int64_t)SECOND_US;
    int64_t ahead = shift == FL_WINDOW_SHIFT_NEAR + FL_WINDOW_STEP       ? hour
                    : shift == FL_WINDOW_SHIFT_NEAR + 2 * FL_WINDOW_STEP ? 24 * hour
                                                                         : 31 * 24 * hour;
    return (int64_t)e->config.preload_us * 2 + ahead;
}

void fl__windows_open(fl_engine *e, int64_t now_us)
{
    for (unsigned shift = FL_WINDOW_SHIFT_NEAR + FL_WINDOW_STEP; shift <= FL_WINDOW_SHIFT_MAX;
         shift += FL_WINDOW_STEP) {
        uint64_t index = (uint64_t)(now_us + opening_us(e, shift)) >> shift;
        if (index > e->opened[shift])
            e->opened[shift] = index;
    }
}

void fl__window_split(fl_engine *e, uint64_t window)
{
    size_t at, kept = 0;
    if (fl_window_shift(window) <= FL_WINDOW_SHIFT_MIN || split_find(e, window, &at))
        return;
    for (size_t i = 0; i < e->split_count; i++) /* drops windows that ended long ago and have no parts */
        if (fl_window_end(e->split[i]) > e->wall_us - 60 * (int64_t)SECOND_US || has_parts(e, e->split[i]))
            e->split[kept++] = e->split[i];
    e->split_count = kept;
    if (kept == e->split_capacity) {
        uint64_t *split = fl__resize(e->split, (kept * 2 + 8) * sizeof *split);
        if (!split)
            return;
        e->split = split;
        e->split_capacity = kept * 2 + 8;
    }
    fl__assert(e->split_count < e->split_capacity);
    e->split[e->split_count++] = window;
}

/* Adds a window under which the previous owner has filed rows. The longer windows that it is a part of were open. They stay
 * open, whatever the clock says, because lists rely on the higher sequence numbers of the parts. */
void fl__windows_inherit(fl_engine *e, uint64_t window)
{
    int64_t begin = fl_window_begin(window);
    unsigned shift = fl_window_shift(window) + FL_WINDOW_STEP;
    fl__windows_add(e, window);
    if (fl__is_lane(window))
        return;
    for (; shift <= FL_WINDOW_SHIFT_MAX; shift += FL_WINDOW_STEP) {
        if (shift <= FL_WINDOW_SHIFT_NEAR)
            fl__window_split(e, fl_window_of(begin, shift));
        else if ((uint64_t)begin >> shift > e->opened[shift])
            e->opened[shift] = (uint64_t)begin >> shift;
    }
}

/* --- Filing again ------------------------------------------------------------------------------------------------- */

/* These parts have rows now, or may have. */
static void add_parts(fl_engine *e, const fl_store_request *request, uint64_t parts)
{
    unsigned shift = request->refile.shift;
    int64_t begin = fl_window_begin(request->refile.window);
    for (unsigned i = 0; i < 64; i++)
        if (parts >> i & 1)
            fl__windows_add(e, fl_window_of(begin + ((int64_t)i << shift), shift));
}

static void refile_done(fl_store_request *request)
{
    fl_engine *e = request->arg;
    uint64_t window = request->refile.window;
    fl__assert(e->refile_busy);
    e->refile_busy = false;
    if (!fl__engine_answered(e, request))
        return;
    if (request->result < 0) { /* the alarm tries again */
        if (request->result == FL_OUTCOME_UNKNOWN)
            add_parts(e, request, UINT64_MAX);
        if (e->set_back)
            fl__engine_flush_soon(e);
        fl__alarm_set(e, &e->load_alarm, SECOND_US * NS_PER_US / 10);
        return;
    }
    e->stats.rows_written += request->refile.moved;
    add_parts(e, request, request->refile.parts);
    if (e->state != ENGINE_RUNNING)
        return;
    if (e->set_back) { /* moving the front back waits for this; the rest of the window is refiled later */
        fl__engine_flush_soon(e);
    } else if (request->refile.more) {
        fl__windows_refile(e, window);
    } else {
        if (!fl__write_files_under(e, window)) /* else it is refiled once more */
            fl__windows_remove(e, window);
        fl__engine_load(e);
        fl__lists_go_on(e);
    }
}

void fl__windows_refile(fl_engine *e, uint64_t window)
{
    fl_store_request *request = &e->refile_request;
    fl__assert(!e->refile_busy && fl_window_shift(window) > FL_WINDOW_SHIFT_MIN);
    request->arg = e;
    request->refile.window = window;
    request->refile.shift = fl_window_shift(window) - FL_WINDOW_STEP;
    request->refile.limit = REFILE_STEP;
    e->refile_busy = true;
    e->stats.store_writes++;
    fl__engine_submit_request(e, request, FL_STORE_REFILE, refile_done);
}

/* Whether this existing window is open and not completely refiled. */
bool fl__window_in_parts(const fl_engine *e, uint64_t window)
{
    return fl_window_shift(window) > FL_WINDOW_SHIFT_MIN && is_open(e, window);
}

bool fl__window_to_refile(const fl_engine *e, uint64_t *ret)
{
    for (size_t i = 0; i < e->window_count; i++)
        if (fl__window_in_parts(e, e->windows[i])) {
            *ret = e->windows[i];
            return true;
        }
    return false;
}
