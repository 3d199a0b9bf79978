/* SPDX-License-Identifier: MIT */
/* Pages of timers.
 *
 * A list goes through the windows by their beginning, longer ones first, and through a window by sequence number. A window
 * may be refiled into its parts while it is being listed. The parts come later in the list, and contain rows that were
 * already listed. Sequence numbers tell these rows: the rows that were filed under the window itself have lower numbers than
 * the rows that were filed under its parts. So rows of a part up to the highest number seen in the window have been listed.
 * This does not hold while a window is being refiled: a list that reaches such a window waits until it is gone.
 *
 * Windows go by the time under which a timer is filed, and a range goes by due times. Timers that were overdue when they were
 * created, retries, and timers that were put off are filed later than they are due, at any time after now. If the clock was
 * set back between two attempts, the second attempt is filed before the timer is due. So a range that begins in the future is
 * also a range of windows. For any other range, the list goes through all windows. In both cases a filter compares due times.
 *
 * A cursor is the window, the last number seen in it, and up to two longer windows that it is a part of and that were seen in
 * part before they were filed again, each as its shift and the highest number seen in it. A third such window is forgotten,
 * and its rows are listed twice. This needs three windows to be refiled during one list.
 */

#include "engine/internal.h"

enum { PAGE_DEFAULT = 100, PAGE_MOST = 10000, ROWS_AT_ONCE = 1000, ROWS_MOST = 50000, BYTES_MOST = 1 << 20 };
enum { ROWS_PER_READ = 100 }; /* what a read of the store costs beside its rows: windows may be nearly empty */
enum { C_WINDOW, C_SEQ, C_OUTER, C_INNER };

struct fl_listing_state {
    fl_store_request request;
    fl_engine *engine;
    fl_listing *listing;
    fl_op *found;
    size_t count, limit, looked, bytes;
    struct arena arena;
    int result;
    bool waits; /* for the shard, or until a window is refiled */
    bool woken;
    struct fl_listing_state *next;
};

static void finish(struct fl_listing_state *s, int result, bool more)
{
    fl_listing *listing = s->listing;
    fl_engine *e = s->engine;
    struct fl_listing_state **link = &e->listings;
    while (*link != s) {
        fl__assert(*link); /* it is in the list */
        link = &(*link)->next;
    }
    *link = s->next;
    listing->result = result;
    listing->found = s->found;
    listing->count = result < 0 ? 0 : s->count;
    listing->more = result == 0 && more;
    listing->done(listing);
    fl__arena_free(&s->arena);
    fl__release(s->found);
    fl__release(s);
}

static bool copy_bytes(struct arena *arena, fl_bytes *bytes)
{
    if (bytes->size == 0)
        return true;
    bytes->data = fl__arena_copy(arena, bytes->data, bytes->size);
    return bytes->data;
}

static int add(struct fl_listing_state *s, const fl_row *row)
{
    fl_op *op = &s->found[s->count];
    fl__assert(s->count < s->limit);
    *op = (fl_op){.kind = FL_OP_GET};
    fl__row_timer(row, &op->timer);
    fl_durable *timer = &op->timer;
    if (!copy_bytes(&s->arena, &timer->ns) || !copy_bytes(&s->arena, &timer->name) ||
        !copy_bytes(&s->arena, &timer->payload) || !copy_bytes(&s->arena, &timer->target) ||
        !copy_bytes(&s->arena, &timer->headers) || !copy_bytes(&s->arena, &timer->schedule) ||
        !copy_bytes(&s->arena, &timer->local) || !copy_bytes(&s->arena, &timer->zone))
        return FL_NO_MEMORY;
    s->bytes += row->body.size;
    s->count++;
    return 0;
}

static bool is_full(const struct fl_listing_state *s)
{
    return s->count == s->limit || s->bytes >= BYTES_MOST;
}

/* --- Filters ------------------------------------------------------------------------------------------------------ */

static bool begins_with(fl_bytes text, fl_bytes prefix)
{
    return prefix.size == 0 || (text.size >= prefix.size && memcmp(text.data, prefix.data, prefix.size) == 0);
}

static bool contains(fl_bytes text, fl_bytes part)
{
    return part.size == 0 || (text.size >= part.size && memmem(text.data, text.size, part.data, part.size));
}

/* The filters that the store does not apply. */
static bool fits(const fl_listing *listing, const fl_durable *timer)
{
    return (listing->from_us == 0 || timer->due_us >= listing->from_us) && timer->due_us < listing->until_us &&
           contains(timer->name, listing->name_contains) && begins_with(timer->target, listing->target_prefix) &&
           (listing->schedule.size == 0 || same_bytes(timer->schedule, listing->schedule));
}

/* --- The living --------------------------------------------------------------------------------------------------- */

static bool is_part(uint64_t window, uint64_t of)
{
    return fl_window_shift(window) < fl_window_shift(of) && fl_window_begin(window) >= fl_window_begin(of) &&
           fl_window_end(window) <= fl_window_end(of);
}

/* A level of the cursor: the shift of a longer window that was seen in part, and the highest number seen in it. 0: none. */
static uint64_t seen_in(uint64_t level)
{
    return level & SEQ_MAX;
}

static uint64_t highest_seen(const uint64_t cursor[4])
{
    uint64_t outer = seen_in(cursor[C_OUTER]), inner = seen_in(cursor[C_INNER]);
    return outer > inner ? outer : inner;
}

/* Whether a window is part of the longer window of a level of the cursor. */
static bool is_within(const uint64_t cursor[4], int level, uint64_t window)
{
    unsigned shift = (unsigned)(cursor[level] >> 56);
    return cursor[level] && is_part(window, fl_window_of(fl_window_begin(cursor[C_WINDOW]), shift));
}

static void move_on(uint64_t cursor[4], uint64_t window)
{
    bool part = cursor[C_WINDOW] && is_part(window, cursor[C_WINDOW]);
    fl__assert(window != cursor[C_WINDOW]);
    if (!is_within(cursor, C_INNER, window))
        cursor[C_INNER] = 0;
    if (!is_within(cursor, C_OUTER, window))
        cursor[C_OUTER] = 0;
    if (part && cursor[C_SEQ] > highest_seen(cursor))
        cursor[cursor[C_OUTER] ? C_INNER : C_OUTER] = (uint64_t)fl_window_shift(cursor[C_WINDOW]) << 56 | cursor[C_SEQ];
    cursor[C_WINDOW] = window;
    cursor[C_SEQ] = highest_seen(cursor);
}

static bool is_ahead(fl_engine *e, const fl_listing *listing)
{
    return listing->from_us > fl__engine_now(e);
}

/* All timers that are due from `from_us` on are filed at this time or later. */
static int64_t filed_from(fl_engine *e, const fl_listing *listing)
{
    return is_ahead(e, listing) ? listing->from_us : 0;
}

/* All timers that are due before `until_us` are filed before this time. */
static int64_t filed_until(fl_engine *e, const fl_listing *listing)
{
    return is_ahead(e, listing) ? listing->until_us : FL_STORE_TIME_END;
}

/* Whether a row that was found belongs to the list. */
static bool is_wanted(const fl_engine *e, const fl_listing *listing, const fl_row *row)
{
    fl_durable timer;
    if (fl__settled(e, row->key) || fl__flight_done(e, row->key.seq))
        return false;
    fl__row_timer(row, &timer);
    return fits(listing, &timer);
}

/* Lanes come after all other windows. Parked timers are due. Their numbers are unrelated to numbers in longer windows. */
static bool next_lane(const fl_engine *e, uint64_t cursor[4], bool past)
{
    uint64_t window, after = fl__is_lane(cursor[C_WINDOW]) ? cursor[C_WINDOW] : 0;
    if (!fl__lane_next_window(e, after > 0 && !past ? after - 1 : after, &window))
        return false;
    if (window != cursor[C_WINDOW]) {
        cursor[C_WINDOW] = window;
        cursor[C_SEQ] = cursor[C_OUTER] = cursor[C_INNER] = 0;
    }
    return true;
}

/* The window to continue with: the window of the cursor if it still exists and is not at its end. */
static bool next_window(fl_engine *e, const fl_listing *listing, uint64_t cursor[4], bool past)
{
    int64_t from_us = filed_from(e, listing), until_us = filed_until(e, listing);
    for (size_t i = 0; i < e->window_count && !fl__is_lane(cursor[C_WINDOW]); i++) {
        uint64_t window = e->windows[i];
        int64_t begin = fl_window_begin(window), at = cursor[C_WINDOW] ? fl_window_begin(cursor[C_WINDOW]) : -1;
        if (window == cursor[C_WINDOW] && !past)
            return true;
        bool later = begin != at ? begin > at : window < cursor[C_WINDOW];
        if (!later || fl_window_end(window) <= from_us)
            continue;
        if (begin >= until_us)
            return false;
        fl__assert(!fl__is_lane(window)); /* those are not among the windows of time */
        move_on(cursor, window);
        return true;
    }
    return !is_ahead(e, listing) && next_lane(e, cursor, past);
}

static void list_more(struct fl_listing_state *s, bool past);

static void listed(fl_store_request *request)
{
    struct fl_listing_state *s = (struct fl_listing_state *)request;
    fl_engine *e = s->engine;
    uint64_t *cursor = s->listing->cursor.part;
    fl__engine_answered(e, request);
    int r = request->result;
    for (size_t i = 0; i < request->list.count && r == 0; i++) {
        const fl_row *row = &request->list.rows[i];
        bool wanted = is_wanted(e, s->listing, row);
        if (wanted && is_full(s)) { /* the page is full: this row is the first of the next */
            finish(s, 0, true);
            return;
        }
        cursor[C_SEQ] = row->key.seq;
        if (wanted)
            r = add(s, row);
    }
    s->looked += request->list.count + ROWS_PER_READ;
    if (r < 0) {
        finish(s, r, false);
        return;
    }
    if (request->list.next_seq)
        cursor[C_SEQ] = request->list.next_seq;
    list_more(s, request->list.next_seq == 0);
}

static void list_more(struct fl_listing_state *s, bool past)
{
    fl_engine *e = s->engine;
    uint64_t *cursor = s->listing->cursor.part;
    if (e->state != ENGINE_RUNNING) {
        finish(s, fl__engine_refusal(e), false);
        return;
    }
    if (!next_window(e, s->listing, cursor, past)) {
        finish(s, 0, false);
        return;
    }
    if (s->looked >= ROWS_MOST || is_full(s)) {
        finish(s, 0, true);
        return;
    }
    s->waits = fl__window_in_parts(e, cursor[C_WINDOW]);
    if (s->waits) {
        fl__alarm_set(e, &e->load_alarm, 0); /* which refiles first */
        return;
    }
    fl_store_request *request = &s->request;
    request->list.window = cursor[C_WINDOW];
    request->list.after_seq = cursor[C_SEQ];
    request->list.ns = s->listing->ns;
    request->list.prefix = s->listing->prefix;
    request->list.from_us = filed_from(e, s->listing);
    request->list.until_us = filed_until(e, s->listing);
    request->list.limit = ROWS_AT_ONCE;
    e->stats.store_reads++;
    fl__engine_submit_request(e, request, FL_STORE_LIST, listed);
}

/* --- The dead ----------------------------------------------------------------------------------------------------- */

static bool is_wanted_dead(const fl_listing *listing, const fl_dead_row *dead)
{
    fl_durable timer;
    fl__row_timer(&dead->row, &timer);
    return fits(listing, &timer) && begins_with(timer.name, listing->prefix) &&
           contains(dead->reason, listing->reason_contains);
}

static int add_dead(struct fl_listing_state *s, const fl_dead_row *dead)
{
    int r = add(s, &dead->row);
    if (r < 0)
        return r;
    fl_op *op = &s->found[s->count - 1];
    op->died_us = dead->died_us;
    op->reason = dead->reason;
    return copy_bytes(&s->arena, &op->reason) ? 0 : FL_NO_MEMORY;
}

static void list_dead(struct fl_listing_state *s);

static void dead_listed(fl_store_request *request)
{
    struct fl_listing_state *s = (struct fl_listing_state *)request;
    fl__engine_answered(s->engine, request);
    uint64_t next_seq = request->dead_list.next_seq, *at = &s->listing->cursor.part[C_SEQ];
    int r = request->result;
    for (size_t i = 0; i < request->dead_list.count && r == 0; i++) {
        const fl_dead_row *dead = &request->dead_list.rows[i];
        bool wanted = is_wanted_dead(s->listing, dead);
        if (wanted && is_full(s)) { /* the page is full: this row is the first of the next */
            finish(s, 0, true);
            return;
        }
        *at = dead->row.id.seq;
        if (wanted)
            r = add_dead(s, dead);
    }
    s->looked += request->dead_list.count + ROWS_PER_READ;
    if (r == 0 && next_seq)
        *at = next_seq;
    if (r < 0 || next_seq == 0 || is_full(s) || s->looked >= ROWS_MOST)
        finish(s, r, next_seq != 0);
    else
        list_dead(s);
}

/* Without filters that the engine applies, it asks for no more rows than fit. */
static void list_dead(struct fl_listing_state *s)
{
    fl_store_request *request = &s->request;
    const fl_listing *listing = s->listing;
    if (s->engine->state != ENGINE_RUNNING) {
        finish(s, fl__engine_refusal(s->engine), false);
        return;
    }
    bool filters = listing->prefix.size + listing->name_contains.size + listing->target_prefix.size +
                       listing->schedule.size + listing->reason_contains.size >
                   0;
    size_t limit = filters || s->limit - s->count > ROWS_AT_ONCE ? ROWS_AT_ONCE : s->limit - s->count;
    request->dead_list.ns = listing->ns;
    request->dead_list.after_seq = listing->cursor.part[C_SEQ];
    request->dead_list.id_seq = 0;
    request->dead_list.limit = limit;
    fl__engine_submit_request(s->engine, request, FL_STORE_DEAD_LIST, dead_listed);
}

/* --- Beginning and ending ----------------------------------------------------------------------------------------- */

static void begin(fl_loop *loop, void *arg)
{
    struct fl_listing_state *s = arg;
    (void)loop;
    s->waits = s->engine->state == ENGINE_CLAIMING || s->engine->state == ENGINE_RESTARTING;
    if (s->result < 0)
        finish(s, s->result, false);
    else if (s->waits)
        return;
    else if (s->engine->state == ENGINE_RUNNING && s->listing->dead)
        list_dead(s);
    else
        list_more(s, false);
}

/* Continues the lists that have waited. They may be refused, or wait again. */
void fl__lists_go_on(fl_engine *e)
{
    struct fl_listing_state *s;
    for (s = e->listings; s; s = s->next)
        s->woken = s->waits;
    for (s = e->listings; s;) {
        if (s->woken) {
            s->woken = false;
            begin(e->loop, s);
            s = e->listings; /* the answer may have begun another list */
        } else {
            s = s->next;
        }
    }
}

/* A cursor comes from a client and may be forged. */
static bool is_window(uint64_t window)
{
    unsigned shift = fl_window_shift(window);
    return shift >= FL_WINDOW_SHIFT_MIN && shift <= FL_WINDOW_SHIFT_MAX && fl_window_begin(window) >= 0 &&
           fl_window_begin(window) < FL_STORE_TIME_END && fl_window_of(fl_window_begin(window), shift) == window;
}

static bool is_level(uint64_t level)
{
    return level == 0 || (level >> 56 >= FL_WINDOW_SHIFT_MIN && level >> 56 <= FL_WINDOW_SHIFT_MAX);
}

static int check(const fl_listing *listing)
{
    const uint64_t *cursor = listing->cursor.part;
    uint64_t window = cursor[C_WINDOW];
    if (cursor[C_SEQ] > SEQ_MAX || !is_level(cursor[C_OUTER]) || !is_level(cursor[C_INNER]))
        return FL_INVALID_ARGUMENT;
    return listing->limit > PAGE_MOST || listing->ns.size > FL_STORE_NAME_MAX ||
                   listing->prefix.size > FL_STORE_NAME_MAX || (window && !is_window(window))
               ? FL_INVALID_ARGUMENT
               : 0;
}

void fl_engine_list(fl_engine *engine, fl_listing *listing)
{
    struct fl_listing_state *s = fl__alloc_zeroed(sizeof *s);
    size_t limit = listing->limit ? listing->limit : PAGE_DEFAULT;
    listing->result = check(listing);
    if (s)
        s->found = listing->result < 0 ? NULL : fl__alloc(limit * sizeof *s->found);
    if (listing->until_us == 0)
        listing->until_us = FL_STORE_TIME_END;
    if (!s || (listing->result == 0 && !s->found) || fl_loop_microtask(engine->loop, begin, s) < 0) {
        /* There is no memory even to answer later. */
        if (s)
            fl__release(s->found);
        fl__release(s);
        listing->result = FL_NO_MEMORY;
        listing->count = 0;
        listing->more = false;
        listing->done(listing);
        return;
    }
    s->engine = engine;
    s->listing = listing;
    s->limit = limit;
    s->result = listing->result;
    s->next = engine->listings;
    engine->listings = s;
}
