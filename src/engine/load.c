/* SPDX-License-Identifier: MIT */
/* From the store into memory.
 *
 * Preloading loads whole windows, two minutes at a time, and the next two minutes shortly before these end. If the rows do
 * not fit, it loads the earliest ones, and `until` is the key of the first that did not fit. Look-ahead loads the rows that
 * are due within a second, and sleeps until the next row that it has seen.
 */

#include "engine/internal.h"

static bool lookahead(const fl_engine *e)
{
    return e->config.strategy == FL_LOOKAHEAD;
}

/* How long before the end of the loaded time the next load begins. */
static int64_t margin_us(const fl_engine *e)
{
    uint64_t margin = e->preload_us / 8, most = 10 * SECOND_US;
    if (lookahead(e)) {
        margin = e->config.lookahead_us / 2;
        most = SECOND_US / 20;
    }
    return (int64_t)(margin > most ? most : margin);
}

/* How far to load. When preloading, this is the end of a window. If years were missed, it is at most half a day at a time. */
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

/* Loads further ahead again when at most half of the memory is in use. */
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

/* Whether rows were dropped during a load to make room for earlier ones: then the load does not begin at `until`. */
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
    fl__assert(e->load_busy);
    e->stats.rows_read += count;
    for (size_t i = 0; i < count && e->state == ENGINE_RUNNING && !outdated(e, request); i++) {
        const fl_row *row = &rows[i];
        if (row->key.at_us >= e->load_until_us) { /* beyond the end: only its time matters */
            if (row->key.at_us < e->peeked_us)
                e->peeked_us = row->key.at_us;
        } else if (key_before(row->key, e->load_cut) && !fl__settled(e, row->key) &&
                   !fl__flight_find(e, row->key.seq)) {
            load_row(e, row);
        }
    }
}

/* A window that fills the memory alone is read again for every slice. Its parts are cheaper. */
static void split_if_large(fl_engine *e, const fl_store_request *request)
{
    uint64_t windows[FL__WINDOW_LEVELS];
    size_t count = fl__window_candidates(request->load.next.at_us, windows);
    for (size_t i = 0; i < count; i++) {
        size_t at = fl__window_place(e, windows[i]);
        if (at < e->window_count && e->windows[at] == windows[i] && fl_window_begin(windows[i]) <= e->until.at_us)
            fl__window_split(e, windows[i]);
    }
}

static void load_done(fl_store_request *request)
{
    fl_engine *e = request->arg;
    fl__assert(e->load_busy);
    e->load_busy = false;
    bool running = fl__engine_answered(e, request);
    if (!running)
        return;
    if (e->set_back)
        fl__engine_flush_soon(e);
    if (request->result < 0 || outdated(e, request)) {
        fl__memory_evict(e, e->until); /* some rows may have arrived */
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
        e->peeked_us = request->load.next.at_us; /* look-ahead wakes for the first row that did not fit */
    e->stuck_bytes = key_before(request->load.from, end) ? 0 : e->bytes;
    loaded_to(e, end);
    fl__engine_load(e);
    fl__fire_soon(e);
}

/* The windows that overlap [until, end), copied for the request, because the engine's list may change meanwhile. */
static int windows_to_load(fl_engine *e, int64_t end_us, size_t *ret)
{
    size_t count = 0;
    fl__assert(!e->load_busy); /* or they are the store's */
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
    fl__assert(count <= e->load_capacity);
    *ret = count;
    return 0;
}

static void send_load(fl_engine *e, size_t windows, int64_t end_us, size_t limit)
{
    fl_store_request *request = &e->load_request;
    fl__assert(!e->load_busy && windows > 0 && limit > 0);
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

/* The number of rows for which there is room, if they are as large as the rows in memory. */
static size_t room(const fl_engine *e)
{
    uint64_t most = e->config.max_memory_timers, most_bytes = e->config.max_memory_bytes;
    uint64_t room = e->loaded < most ? most - e->loaded : 0;
    if (e->loaded > 0) {
        uint64_t each = e->bytes / e->loaded + 1;
        uint64_t fit = e->bytes < most_bytes ? (most_bytes - e->bytes) / each : 0;
        room = fit < room ? fit : room;
    }
    return room;
}

/* Look-ahead loads a batch at a time. */
static size_t load_limit(const fl_engine *e)
{
    size_t free = room(e);
    return lookahead(e) && free > e->config.load_batch ? e->config.load_batch : free;
}

/* Moves `until` over a time without windows, where there is nothing to load. */
static void pass_gap(fl_engine *e, int64_t end_us)
{
    int64_t begin_us = end_us;
    fl__assert(!e->load_busy);
    for (size_t i = 0; i < e->window_count && begin_us > e->until.at_us; i++)
        if (fl_window_end(e->windows[i]) > e->until.at_us && fl_window_begin(e->windows[i]) < begin_us)
            begin_us = fl_window_begin(e->windows[i]);
    if (begin_us > e->until.at_us)
        e->until = (fl_key){begin_us, 0};
}

/* Whether a load is worth its cost: there is enough room, or no timer in memory whose end would make more. */
bool fl__load_has_room(const fl_engine *e)
{
    if (e->stuck_bytes > 0 && e->bytes >= e->stuck_bytes)
        return false; /* the next row did not fit, and no memory was freed since */
    size_t free = room(e);
    return free > 0 && (e->loaded <= free || !fl__memory_is_filled(e, 75));
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
        fl__alarm_set(e, &e->load_alarm, SECOND_US * NS_PER_US); /* and whenever a timer is settled */
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
        send_load(e, windows, end_us, load_limit(e));
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
    fl__windows_open(e, now_us);
    if (fl__window_to_refile(e, &window)) {
        fl__windows_refile(e, window);
        return;
    }
    recover_preload(e);
    if (e->until.at_us - now_us <= margin_us(e) ||
        (lookahead(e) && e->peeked_us - now_us <= (int64_t)e->config.lookahead_us))
        load_more(e, now_us);
    else {
        loaded_to(e, e->until); /* a gap was passed, and the rows after it could not be loaded yet */
        set_alarm(e, now_us);
    }
}

/* A timer has ended: loads more if there is room now. */
void fl__load_if_room(fl_engine *e)
{
    if (e->until.at_us - e->wall_us <= margin_us(e))
        fl__engine_load(e);
}

/* A timer was created after the loaded time. Look-ahead must not sleep past it. */
void fl__load_hint(fl_engine *e, int64_t at_us)
{
    if (lookahead(e) && at_us < e->peeked_us) {
        e->peeked_us = at_us;
        set_alarm(e, e->wall_us);
    }
}

/* `until` has become earlier. The rows after it must be loaded again in time. */
void fl__load_sooner(fl_engine *e)
{
    if (e->until.at_us < e->peeked_us)
        e->peeked_us = e->until.at_us;
    set_alarm(e, e->wall_us);
}
