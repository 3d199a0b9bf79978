/* SPDX-License-Identifier: MIT */
/* From the store into memory.
 *
 * Preloading takes windows whole, two minutes of them at a time, and the next two minutes shortly before these are over. If
 * they do not fit, it takes the earliest that do, and `until` says how far it got. Looking ahead takes what is due within a
 * second, and sleeps until the next that it has seen.
 *
 * Where rows are filed. Windows of every length are opened some time before they begin: from then on, what is new is filed
 * under the shorter ones that they are made of, and what is in them is filed again. A near window that turns out to be too
 * large for memory is opened in the same way, because slices of a short window are cheaper to find.
 */

#include "engine/internal.h"

enum { REFILE_STEP = 5000 };

/* --- Windows ------------------------------------------------------------------------------------------------------ */

static bool window_before(uint64_t a, uint64_t b)
{
    int64_t x = fl_window_begin(a), y = fl_window_begin(b);
    return x != y ? x < y : a > b; /* of those that begin together, the longest first */
}

static size_t window_place(const fl_engine *e, uint64_t window)
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
    size_t at = window_place(e, window);
    if (at == e->window_count || e->windows[at] != window) {
        if (fl__windows_reserve(e, 1) < 0) {
            fl__engine_restart(e, "out of memory for another window");
            return;
        }
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
    size_t at = window_place(e, window);
    if (at < e->window_count && e->windows[at] == window) {
        memmove(&e->windows[at], &e->windows[at + 1], (e->window_count - at - 1) * sizeof *e->windows);
        e->window_count--;
    }
    e->last_window = 0;
}

/* Whether there may be rows under a part of this window. */
static bool has_parts(const fl_engine *e, uint64_t window)
{
    size_t at = window_place(e, window);
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

/* How long before it begins a window is opened: so long that it can be filed again in peace. */
static int64_t opening_us(const fl_engine *e, unsigned shift)
{
    int64_t span = ((int64_t)1 << shift) / 8, hour = 3600 * (int64_t)SECOND_US;
    return (int64_t)e->config.preload_us * 2 + (span < hour ? span : hour);
}

static void open_windows(fl_engine *e, int64_t now_us)
{
    for (unsigned shift = FL_WINDOW_SHIFT_NEAR + FL_WINDOW_STEP; shift <= FL_WINDOW_SHIFT_MAX;
         shift += FL_WINDOW_STEP) {
        uint64_t index = (uint64_t)(now_us + opening_us(e, shift)) >> shift;
        if (index > e->opened[shift])
            e->opened[shift] = index;
    }
}

/* Its parts are cheaper to look through. Without memory for that, it stays as it is. */
static void split_window(fl_engine *e, uint64_t window)
{
    size_t at, kept = 0;
    if (fl_window_shift(window) <= FL_WINDOW_SHIFT_MIN || split_find(e, window, &at))
        return;
    for (size_t i = 0; i < e->split_count; i++) /* those that are long over, and without parts, are of no use */
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
    e->split[e->split_count++] = window;
}

/* One that the owner before has filed something under. The longer ones that it is a part of were open: they stay so,
 * whatever the clock says, because whoever lists them relies on that their parts have the higher numbers. */
void fl__windows_inherit(fl_engine *e, uint64_t window)
{
    int64_t begin = fl_window_begin(window);
    unsigned shift = fl_window_shift(window) + FL_WINDOW_STEP;
    fl__windows_add(e, window);
    if (fl__is_lane(window))
        return;
    for (; shift <= FL_WINDOW_SHIFT_MAX; shift += FL_WINDOW_STEP) {
        if (shift <= FL_WINDOW_SHIFT_NEAR)
            split_window(e, fl_window_of(begin, shift));
        else if ((uint64_t)begin >> shift > e->opened[shift])
            e->opened[shift] = (uint64_t)begin >> shift;
    }
}

/* --- Filing again ------------------------------------------------------------------------------------------------- */

static void refile_step(fl_engine *e, uint64_t window);

/* There is, or may be, something in these parts now. */
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
    e->refile_busy = false;
    if (!fl__engine_answered(e, request))
        return;
    if (request->result < 0) { /* found again by the alarm */
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
    if (e->set_back) { /* that waits for this; the rest of it later */
        fl__engine_flush_soon(e);
    } else if (request->refile.more) {
        refile_step(e, window);
    } else {
        if (!fl__write_files_under(e, window)) /* else once more */
            fl__windows_remove(e, window);
        fl__engine_load(e);
        fl__lists_go_on(e);
    }
}

static void refile_step(fl_engine *e, uint64_t window)
{
    fl_store_request *request = &e->refile_request;
    request->arg = e;
    request->refile.window = window;
    request->refile.shift = fl_window_shift(window) - FL_WINDOW_STEP;
    request->refile.limit = REFILE_STEP;
    e->refile_busy = true;
    e->stats.store_writes++;
    fl__engine_submit_request(e, request, FL_STORE_REFILE, refile_done);
}

/* Whether this window, which is there, is open and has not been filed again, or not all of it. */
bool fl__window_in_parts(const fl_engine *e, uint64_t window)
{
    return fl_window_shift(window) > FL_WINDOW_SHIFT_MIN && is_open(e, window);
}

/* The first of those. */
static bool window_to_refile(const fl_engine *e, uint64_t *ret)
{
    for (size_t i = 0; i < e->window_count; i++)
        if (fl__window_in_parts(e, e->windows[i])) {
            *ret = e->windows[i];
            return true;
        }
    return false;
}

/* --- Loading ------------------------------------------------------------------------------------------------------ */

static bool lookahead(const fl_engine *e)
{
    return e->config.strategy == FL_LOOKAHEAD;
}

/* How long before the end of what is loaded more is loaded. */
static int64_t margin_us(const fl_engine *e)
{
    uint64_t margin = e->preload_us / 8, most = 10 * SECOND_US;
    if (lookahead(e)) {
        margin = e->config.lookahead_us / 2;
        most = SECOND_US / 20;
    }
    return (int64_t)(margin > most ? most : margin);
}

/* How far to load: when preloading, to the end of a window; and no further than the wheels reach, when years have been
 * missed. */
int64_t fl__load_horizon_us(const fl_engine *e, int64_t now_us)
{
    int64_t window = (int64_t)1 << FL_WINDOW_SHIFT_NEAR, reach = 12 * 3600 * (int64_t)SECOND_US;
    int64_t horizon = now_us + (int64_t)(lookahead(e) ? e->config.lookahead_us : e->preload_us);
    if (!lookahead(e) && e->preload_us >= (uint64_t)window)
        horizon = (horizon + window - 1) & -window;
    return horizon < e->until.at_us + reach ? horizon : e->until.at_us + reach;
}

static void set_alarm(fl_engine *e, int64_t now_us)
{
    int64_t next_us = e->until.at_us;
    if (lookahead(e)) {
        next_us = now_us + (int64_t)e->config.load_interval_us;
        if (e->peeked_us < next_us)
            next_us = e->peeked_us;
        if (next_us < e->until.at_us)
            next_us = e->until.at_us;
    }
    next_us -= margin_us(e);
    fl__alarm_set(e, &e->load_alarm, next_us > now_us ? (uint64_t)(next_us - now_us) * NS_PER_US : 0);
}

/* What was loaded lasted longer than it took to use half of the memory: try to load further ahead again. */
static void recover_preload(fl_engine *e)
{
    if (e->preload_us < e->config.preload_us && !fl__memory_is_filled(e, 50)) {
        e->preload_us += e->preload_us / 4 + 1000;
        if (e->preload_us > e->config.preload_us)
            e->preload_us = e->config.preload_us;
    }
}

static void loaded_to(fl_engine *e, fl_key until)
{
    if (key_before(e->until, until))
        e->until = until;
    if (e->recovering && e->lanes.unread == 0 && key_before(e->front[0], e->until) && key_before(e->front[1], e->until))
        e->recovering = false;
    if (!e->ready) {
        e->ready = true;
        if (e->config.notify)
            e->config.notify(e->config.arg, e, FL_ENGINE_READY, 0, "ready");
    }
}

/* Room was made for something nearer while a load was under way: it does not begin where the view ends now. */
static bool outdated(const fl_engine *e, const fl_store_request *request)
{
    return key_before(e->until, request->load.from);
}

static void load_row(fl_engine *e, const fl_row *row)
{
    if (e->unsure_count > 0)
        fl__doubt_found(e, row->key.seq);
    fl_key cut = fl__memory_load_room(e, row->key);
    if (key_before(cut, e->load_cut))
        e->load_cut = cut;
    if (!key_before(row->key, e->load_cut))
        return;
    if (fl__progress_was_begun(e, row->key.seq))
        fl__settle_expired(e, row);
    else if (fl__memory_insert(e, row, 0) < 0)
        fl__engine_restart(e, "out of memory for what is due soon");
}

static void load_rows(fl_store_request *request, const fl_row *rows, size_t count)
{
    fl_engine *e = request->arg;
    e->stats.rows_read += count;
    for (size_t i = 0; i < count && e->state == ENGINE_RUNNING && !outdated(e, request); i++) {
        const fl_row *row = &rows[i];
        if (row->key.at_us >= e->load_until_us) { /* only looked at */
            if (row->key.at_us < e->peeked_us)
                e->peeked_us = row->key.at_us;
        } else if (key_before(row->key, e->load_cut) && !fl__settled(e, row->key) &&
                   !fl__flight_find(e, row->key.seq)) {
            load_row(e, row);
        }
    }
}

/* A window that alone fills the memory is looked through for every slice: it is better in parts. */
static void split_if_large(fl_engine *e, const fl_store_request *request)
{
    uint64_t windows[FL__WINDOW_LEVELS];
    size_t count = fl__window_candidates(request->load.next.at_us, windows);
    for (size_t i = 0; i < count; i++) {
        size_t at = window_place(e, windows[i]);
        if (at < e->window_count && e->windows[at] == windows[i] && fl_window_begin(windows[i]) <= e->until.at_us)
            split_window(e, windows[i]);
    }
}

static void load_done(fl_store_request *request)
{
    fl_engine *e = request->arg;
    e->load_busy = false;
    bool running = fl__engine_answered(e, request);
    if (!running)
        return;
    if (e->set_back)
        fl__engine_flush_soon(e);
    if (request->result < 0 || outdated(e, request)) {
        fl__memory_evict(e, e->until); /* some may have come */
        fl__alarm_set(e, &e->load_alarm, request->result < 0 ? SECOND_US * NS_PER_US / 10 : 0);
        return;
    }
    fl_key end = {e->load_until_us, 0};
    if (key_before(e->load_cut, end) && (!request->load.more || key_before(e->load_cut, request->load.next))) {
        request->load.more = true;
        request->load.next = e->load_cut;
    }
    if (request->load.more && e->load_wide && !lookahead(e))
        split_if_large(e, request);
    if (request->load.more && key_before(request->load.next, end))
        end = request->load.next;
    else if (request->load.more && request->load.next.at_us < e->peeked_us)
        e->peeked_us = request->load.next.at_us; /* the first that did not fit was to be looked at, too */
    e->stuck_bytes = key_before(request->load.from, end) ? 0 : e->bytes;
    loaded_to(e, end);
    fl__engine_load(e);
    fl__fire_soon(e);
}

/* The windows with something in [until, end). They are the request's, and stay as they are while others come and go. */
static int windows_to_load(fl_engine *e, int64_t end_us, size_t *ret)
{
    size_t count = 0;
    if (e->load_capacity < e->window_count) {
        uint64_t *windows = fl__resize(e->load_windows, e->window_capacity * sizeof *windows);
        if (!windows)
            return FL_NO_MEMORY;
        e->load_windows = windows;
        e->load_capacity = e->window_capacity;
    }
    for (size_t i = 0; i < e->window_count && fl_window_begin(e->windows[i]) < end_us; i++)
        if (fl_window_end(e->windows[i]) > e->until.at_us)
            e->load_windows[count++] = e->windows[i];
    *ret = count;
    return 0;
}

static void send_load(fl_engine *e, size_t windows, int64_t end_us, size_t limit)
{
    fl_store_request *request = &e->load_request;
    request->arg = e;
    request->load.windows = e->load_windows;
    request->load.window_count = windows;
    request->load.from = e->until;
    request->load.until_us = end_us;
    request->load.limit = limit;
    request->load.rows = load_rows;
    e->load_cut = (fl_key){INT64_MAX, 0};
    e->load_wide = !fl__memory_is_filled(e, 50);
    e->load_busy = true;
    e->stats.store_reads++;
    fl__engine_submit_request(e, request, FL_STORE_LOAD, load_done);
}

/* For how many rows there is room, if they are like those in memory. */
static size_t room(const fl_engine *e)
{
    uint64_t most = e->config.max_memory_timers, most_bytes = e->config.max_memory_bytes;
    uint64_t room = e->loaded < most ? most - e->loaded : 0;
    if (e->loaded > 0) {
        uint64_t each = e->bytes / e->loaded + 1;
        uint64_t fit = e->bytes < most_bytes ? (most_bytes - e->bytes) / each : 0;
        room = fit < room ? fit : room;
    }
    return lookahead(e) && room > e->config.load_batch ? e->config.load_batch : room;
}

/* Where nothing is filed there is nothing to load. */
static void pass_gap(fl_engine *e, int64_t end_us)
{
    int64_t begin_us = end_us;
    for (size_t i = 0; i < e->window_count && begin_us > e->until.at_us; i++)
        if (fl_window_end(e->windows[i]) > e->until.at_us && fl_window_begin(e->windows[i]) < begin_us)
            begin_us = fl_window_begin(e->windows[i]);
    if (begin_us > e->until.at_us)
        e->until = (fl_key){begin_us, 0};
}

/* Enough room for the trouble, or nothing that would make more. */
bool fl__load_has_room(const fl_engine *e)
{
    if (e->stuck_bytes > 0 && e->bytes >= e->stuck_bytes)
        return false; /* the next row did not fit, and nothing has ended since */
    size_t free = room(e);
    bool quarter = !fl__memory_is_filled(e, 75) && (!lookahead(e) || free >= e->config.max_memory_timers / 4);
    return free > 0 && (e->loaded <= free || quarter);
}

static void load_more(fl_engine *e, int64_t now_us)
{
    pass_gap(e, now_us + (int64_t)(lookahead(e) ? e->config.lookahead_us : e->preload_us));
    int64_t keep_us = fl__load_horizon_us(e, now_us), end_us = keep_us;
    if (keep_us <= e->until.at_us) {
        loaded_to(e, e->until);
        set_alarm(e, now_us);
        return;
    }
    if (!fl__load_has_room(e)) {
        fl__alarm_set(e, &e->load_alarm, SECOND_US * NS_PER_US); /* and whenever something is settled */
        return;
    }
    if (lookahead(e) && keep_us == now_us + (int64_t)e->config.lookahead_us &&
        e->config.load_interval_us > e->config.lookahead_us)
        end_us = now_us + (int64_t)e->config.load_interval_us;
    e->load_until_us = keep_us;
    e->peeked_us = INT64_MAX;
    size_t windows;
    if (windows_to_load(e, end_us, &windows) < 0) {
        fl__alarm_set(e, &e->load_alarm, SECOND_US * NS_PER_US / 10);
        return;
    }
    if (windows > 0) {
        send_load(e, windows, end_us, room(e));
        return;
    }
    loaded_to(e, (fl_key){keep_us, 0});
    set_alarm(e, now_us);
}

void fl__engine_load(fl_engine *e)
{
    if (e->state != ENGINE_RUNNING || e->load_busy || e->refile_busy || e->retreat || e->set_back)
        return;
    int64_t now_us = fl__engine_now(e);
    uint64_t window;
    open_windows(e, now_us);
    if (window_to_refile(e, &window)) {
        refile_step(e, window);
        return;
    }
    recover_preload(e);
    if (e->until.at_us - now_us <= margin_us(e) ||
        (lookahead(e) && e->peeked_us - now_us <= (int64_t)e->config.lookahead_us))
        load_more(e, now_us);
    else {
        loaded_to(e, e->until); /* there was a gap, and what comes after it could not be loaded yet */
        set_alarm(e, now_us);
    }
}

/* Something has been fired: perhaps there is room for what did not fit. */
void fl__load_if_room(fl_engine *e)
{
    if (e->until.at_us - e->wall_us <= margin_us(e))
        fl__engine_load(e);
}

/* Something was created beyond what is loaded: looking ahead must not sleep past it. */
void fl__load_hint(fl_engine *e, int64_t at_us)
{
    if (lookahead(e) && at_us < e->peeked_us) {
        e->peeked_us = at_us;
        set_alarm(e, e->wall_us);
    }
}

/* The view ends earlier than it did: what comes after it must be loaded again in time. */
void fl__load_sooner(fl_engine *e)
{
    if (e->until.at_us < e->peeked_us)
        e->peeked_us = e->until.at_us;
    set_alarm(e, e->wall_us);
}
