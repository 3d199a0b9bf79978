/* SPDX-License-Identifier: MIT */
/* Attempts that wait.
 *
 * A lane has some flights in memory: attempts that wait for the dispatcher, and attempts that have begun. Timers beyond its
 * share are parked: they are refiled under the window of the lane, by the same change as a timer that is put off. The time of
 * this window never comes. So no load reads it, the front never passes it, and the timers' former windows are deleted as if
 * the timers had fired. Finding, cancelling and listing work for parked rows as for any row.
 *
 * Sequence numbers grow, so rows of the window are in the order of parking. When half of the lane's share is free, the next
 * rows are called: they become flights. Their rows stay until they are settled, like rows of attempts that were in progress
 * when the clock was set back. A pass through the window skips rows that are being changed. So passes are repeated until one
 * finds no new row. An empty window is dropped.
 *
 * After a claim, the existing windows show which lanes have parked timers. These lanes are open: the dispatcher gets some
 * timers of each, and so learns that the lanes exist.
 */

#include "engine/internal.h"

enum { LANE_BITS = 24, LANE_SHIFT = FL_WINDOW_SHIFT_NEAR, READ_MOST = 2000 };

/* The last 17 years before FL_STORE_TIME_END. Timers that are due then are filed under longer windows. */
#define LANES_BEGIN (FL_STORE_TIME_END - ((int64_t)1 << (LANE_BITS + LANE_SHIFT)))

/* --- Windows ------------------------------------------------------------------------------------------------------ */

bool fl__is_lane_time(int64_t at_us)
{
    return at_us >= LANES_BEGIN && (at_us & (((int64_t)1 << LANE_SHIFT) - 1)) == 0;
}

bool fl__is_lane(uint64_t window)
{
    return fl_window_shift(window) == LANE_SHIFT && fl_window_begin(window) >= LANES_BEGIN;
}

fl_key fl__lane_key(uint32_t lane, uint64_t seq)
{
    return (fl_key){LANES_BEGIN + ((int64_t)lane << LANE_SHIFT), seq};
}

uint64_t fl__lane_window(uint32_t lane)
{
    return fl_window_of(fl__lane_key(lane, 0).at_us, LANE_SHIFT);
}

uint32_t fl__lane_of_time(int64_t at_us)
{
    return (uint32_t)((at_us - LANES_BEGIN) >> LANE_SHIFT);
}

int64_t fl__lanes_begin_us(void)
{
    return LANES_BEGIN;
}

/* --- Which there are ---------------------------------------------------------------------------------------------- */

void fl__lanes_init(struct lanes *lanes)
{
    TAILQ_INIT(&lanes->all);
}

/* Returns NULL if the lane does not exist. fl__hash_number() gives different numbers different hashes. */
static struct lane *find(const struct lanes *lanes, uint32_t number)
{
    struct hash_link *link = fl__hash_first(&lanes->by_number, fl__hash_number(number));
    return link ? hash_entry(link, struct lane, by_number) : NULL;
}

/* The lane of a number, made if it does not exist; NULL: no memory. */
static struct lane *lane_of(fl_engine *e, uint32_t number)
{
    struct lanes *lanes = &e->lanes;
    struct lane *lane = find(lanes, number);
    if (lane)
        return lane;
    lane = fl__alloc_zeroed(sizeof *lane);
    if (!lane)
        return NULL;
    lane->number = number;
    fl__hash_insert(&lanes->by_number, &lane->by_number, fl__hash_number(number));
    TAILQ_INSERT_TAIL(&lanes->all, lane, next);
    return lane;
}

static void drop_if_unused(fl_engine *e, struct lane *lane)
{
    fl__assert(lane->waiting <= lane->held);
    if (lane->held > 0 || lane->closed || lane->filed || lane->unread || e->lanes.reading == lane)
        return;
    fl__hash_remove(&e->lanes.by_number, &lane->by_number);
    TAILQ_REMOVE(&e->lanes.all, lane, next);
    fl__release(lane);
}

static void set_unread(fl_engine *e, struct lane *lane, bool unread)
{
    fl__assert(!lane->unread || e->lanes.unread > 0);
    e->lanes.unread += (uint32_t)unread - lane->unread;
    lane->unread = unread;
}

int fl__lane_filed(fl_engine *e, uint64_t window)
{
    struct lane *lane = lane_of(e, fl__lane_of_time(fl_window_begin(window)));
    if (!lane)
        return FL_NO_MEMORY;
    set_unread(e, lane, true);
    lane->filed = true;
    lane->empty = false;
    return 0;
}

/* The window of a lane after this one, in the order of numbers. */
bool fl__lane_next_window(const fl_engine *e, uint64_t after, uint64_t *ret)
{
    uint64_t next = UINT64_MAX;
    const struct lane *lane;
    TAILQ_FOREACH(lane, &e->lanes.all, next)
    if (lane->filed && fl__lane_window(lane->number) > after && fl__lane_window(lane->number) < next)
        next = fl__lane_window(lane->number);
    *ret = next;
    return next != UINT64_MAX;
}

/* The engine forgets its flights, and another server may own the shard. Closed lanes stay closed. */
void fl__lanes_clear(fl_engine *e)
{
    struct lanes *lanes = &e->lanes;
    lanes->held = lanes->waiting = lanes->unread = lanes->called = 0;
    lanes->bytes = 0;
    lanes->reading = NULL;
    for (struct lane *lane = TAILQ_FIRST(&lanes->all), *next; lane; lane = next) {
        next = TAILQ_NEXT(lane, next);
        lane->held = lane->waiting = 0;
        lane->bytes = 0;
        lane->filed = lane->unread = lane->empty = false;
        drop_if_unused(e, lane);
    }
}

void fl__lanes_free(struct lanes *lanes)
{
    for (struct lane *lane = TAILQ_FIRST(&lanes->all), *next; lane; lane = next) {
        next = TAILQ_NEXT(lane, next);
        fl__release(lane);
    }
    fl__hash_free(&lanes->by_number);
}

/* --- Waiting ------------------------------------------------------------------------------------------------------ */

/* The share of a lane in flights: half of the flights that other lanes leave, but at least one. */
static uint32_t share_of(const fl_engine *e, const struct lane *lane)
{
    uint32_t others = e->lanes.held - lane->held, most = e->config.max_waiting;
    uint32_t room = others < most ? most - others : 0;
    fl__assert(lane->held <= e->lanes.held);
    return room / 2 > 0 ? room / 2 : 1;
}

/* Whether the lane has room in bytes: the share is as above. A single timer always has room, however large it is. */
static bool has_bytes(const fl_engine *e, const struct lane *lane, unsigned part)
{
    uint64_t others = e->lanes.bytes - lane->bytes, most = e->config.max_memory_bytes / 2;
    uint64_t room = others < most ? most - others : 0;
    fl__assert(lane->bytes <= e->lanes.bytes);
    return lane->held == 0 || lane->bytes <= room / 2 / part;
}

static bool wants_more(const fl_engine *e, const struct lane *lane)
{
    return lane->unread && !lane->closed && lane->held <= share_of(e, lane) / 2 && has_bytes(e, lane, 2);
}

static bool takes(const fl_engine *e, const struct lane *lane, bool is_from_here)
{
    return !lane->closed &&
           (is_from_here || (!lane->unread && lane->held < share_of(e, lane) && has_bytes(e, lane, 1)));
}

/* Parks a flight without a write, because its row is still in the window of the lane. */
static void put_back(fl_engine *e, struct lane *lane, uint32_t index)
{
    fl__assert(e->flights.list[index].state == FLIGHT_DISPATCHED);
    e->flights.dispatched[e->flights.list[index].item->seq & 1]--;
    fl__memory_free_item(e, fl__flight_recall(e, index));
    set_unread(e, lane, true);
    lane->read_seq = 0;
}

/* Takes a waiting flight out of its lane, as if it had just been dispatched. Returns false if the engine is stopping: then
 * the flight stays where it is. */
static bool change_lanes(fl_engine *e, struct flight *flight)
{
    fl__assert(flight->state == FLIGHT_WAITING && flight->lane);
    if (e->state != ENGINE_RUNNING)
        return false;
    fl__lane_leave(e, flight);
    e->flights.dispatched[flight->item->seq & 1]++;
    return true;
}

bool fl_engine_wait(fl_engine *engine, uint64_t token, uint32_t number, void *handle)
{
    fl_engine *e = engine;
    uint32_t index = fl__flight_of_token(e, token);
    struct flight *flight = &e->flights.list[index];
    fl__assert(number >> LANE_BITS == 0);
    if (index == 0)
        return false;
    if (flight->state == FLIGHT_ORPHAN) {
        fl__flight_end(e, index);
        return false;
    }
    if (flight->state == FLIGHT_WAITING && !change_lanes(e, flight))
        return true;
    fl__assert(flight->state == FLIGHT_DISPATCHED && !flight->lane);
    struct lane *lane = lane_of(e, number);
    bool is_from_here = item_at_us(flight->item) == fl__lane_key(number, 0).at_us;
    if (!lane || !takes(e, lane, is_from_here)) {
        if (lane)
            set_unread(e, lane, true); /* later timers go behind this one */
        if (lane && is_from_here && !flight->superseded)
            put_back(e, lane, index);
        else
            fl__settle_begin(e, index, &(fl_settlement){.token = token, .result = FL_LATER}, WORK_PARK, number);
        return false;
    }
    fl__assert(e->flights.dispatched[flight->item->seq & 1] > 0);
    e->flights.dispatched[flight->item->seq & 1]--;
    lane->held++;
    lane->waiting++;
    lane->bytes += flight->item->size;
    e->lanes.held++;
    e->lanes.waiting++;
    e->lanes.bytes += flight->item->size;
    flight->lane = lane;
    flight->handle = handle;
    flight->state = FLIGHT_WAITING;
    return true;
}

void fl__lane_stop_waiting(fl_engine *e, struct flight *flight)
{
    if (flight->state != FLIGHT_WAITING)
        return;
    fl__assert(flight->lane && flight->lane->waiting > 0 && e->lanes.waiting > 0);
    flight->state = FLIGHT_DISPATCHED;
    flight->handle = NULL;
    flight->lane->waiting--;
    e->lanes.waiting--;
}

bool fl_engine_begin(fl_engine *engine, uint64_t token, bool counted)
{
    uint32_t index = fl__flight_of_token(engine, token);
    struct flight *flight = &engine->flights.list[index];
    if (index == 0 || flight->state == FLIGHT_ORPHAN || !fl_engine_owns(engine))
        return false;
    fl__engine_now(engine);
    if (fl__item_due(engine, flight->item) > engine->clock_us)
        return false; /* the clock was set back */
    fl__lane_stop_waiting(engine, flight);
    flight->counted = counted;
    engine->dirty |= counted;
    return true;
}

/* The flight ends, or moves to another lane. */
void fl__lane_leave(fl_engine *e, struct flight *flight)
{
    struct lane *lane = flight->lane;
    if (!lane)
        return;
    fl__lane_stop_waiting(e, flight);
    fl__assert(lane->held > 0 && e->lanes.held > 0);
    fl__assert(lane->bytes >= flight->item->size && e->lanes.bytes >= flight->item->size);
    flight->lane = NULL;
    lane->held--;
    lane->bytes -= flight->item->size;
    e->lanes.held--;
    e->lanes.bytes -= flight->item->size;
    if (wants_more(e, lane))
        fl__fire_soon(e);
    else
        drop_if_unused(e, lane);
}

/* Invalidates the token: the next attempt has a new one. */
bool fl__lane_withdraw(fl_engine *e, uint32_t index)
{
    struct flight *flight = &e->flights.list[index];
    fl__assert(flight->state == FLIGHT_WAITING);
    if (!e->config.withdraw || !e->config.withdraw(e->config.arg, e, fl__flight_token(e, index), flight->handle)) {
        fl__lane_stop_waiting(e, flight);
        return false;
    }
    fl__lane_leave(e, flight);
    flight->state = FLIGHT_HELD;
    flight->serial++;
    return true;
}

int fl_engine_close_lane(fl_engine *engine, uint32_t lane, bool closed)
{
    if (lane >> LANE_BITS)
        return FL_INVALID_ARGUMENT;
    struct lane *found = lane_of(engine, lane);
    if (!found)
        return FL_NO_MEMORY;
    found->closed = closed;
    if (!closed)
        fl__fire_soon(engine);
    drop_if_unused(engine, found);
    return 0;
}

/* --- Reading ------------------------------------------------------------------------------------------------------ */

void fl__lane_not_called(fl_engine *e, struct flight *flight)
{
    fl__assert(e->lanes.called >= flight->called);
    e->lanes.called -= flight->called;
    flight->called = false;
}

/* Whether a change that may file a row under this window is in progress. */
static bool is_being_filed(const fl_engine *e, uint64_t window)
{
    if (fl__write_files_under(e, window))
        return true;
    for (const struct work *work = e->in_doubt; work; work = work->next_in_doubt)
        if (work->new_key.at_us == fl_window_begin(window))
            return true;
    return false;
}

/* Makes a parked row a flight. Skips a row that is being changed. If the clock was set back, the row may no longer be due. */
static void call(fl_engine *e, struct lane *lane, const fl_row *row)
{
    if (fl__is_locked(e, lock_of_seq(row->key.seq)) || fl__flight_find(e, row->key.seq))
        return;
    lane->news = true;
    if (fl__progress_was_begun(e, row->key.seq)) {
        fl__settle_expired(e, row);
        return;
    }
    uint32_t index = fl__memory_flight(e, row);
    if (index == 0) {
        fl__engine_restart(e, "out of memory for a timer that is due");
        return;
    }
    struct flight *flight = &e->flights.list[index];
    if (fl__item_due(e, flight->item) > fl__engine_now(e)) {
        fl__settle_begin(e, index, &(fl_settlement){.result = FL_LATER}, WORK_UNPARK, 0);
        return;
    }
    flight->called = true;
    e->lanes.called++;
    e->stats.unparked++;
    fl__flight_late(e, index);
}

/* A pass has ended. Returns whether another pass is to begin now. */
static bool pass_ended(fl_engine *e, struct lane *lane, bool empty)
{
    bool filing = is_being_filed(e, fl__lane_window(lane->number));
    lane->read_seq = 0;
    if (!lane->news && !filing)
        set_unread(e, lane, false);
    if (empty && !filing)
        lane->empty = lane->filed;
    return lane->news || !filing;
}

static void lane_read(fl_store_request *request)
{
    fl_engine *e = request->arg;
    struct lane *lane = e->lanes.reading;
    fl__assert(lane);
    e->lanes.reading = NULL;
    if (!fl__engine_answered(e, request) || request->result < 0)
        return;
    bool more = request->list.next_seq != 0, go_on = true;
    e->stats.rows_read += request->list.count;
    for (size_t i = 0; i < request->list.count && e->state == ENGINE_RUNNING; i++)
        call(e, lane, &request->list.rows[i]);
    if (more)
        lane->read_seq = request->list.next_seq;
    else if (e->state == ENGINE_RUNNING)
        go_on = pass_ended(e, lane, request->list.count == 0 && request->list.after_seq == 0);
    if (go_on)
        fl__fire_soon(e);
    drop_if_unused(e, lane);
}

/* The number of rows to call at once, limited because they use memory. */
static uint32_t read_most(const fl_engine *e)
{
    uint32_t most = e->config.max_waiting / 4 + 1;
    return most < READ_MOST ? most : READ_MOST;
}

static void read_lane(fl_engine *e, struct lane *lane)
{
    fl_store_request *request = &e->lanes.request;
    uint32_t share = share_of(e, lane), room = share > lane->held ? share - lane->held : 1;
    fl__assert(!e->lanes.reading && lane->unread && !lane->closed);
    if (lane->read_seq == 0)
        lane->news = false;
    request->arg = e;
    request->list.window = fl__lane_window(lane->number);
    request->list.after_seq = lane->read_seq;
    request->list.ns = request->list.prefix = (fl_bytes){0};
    request->list.from_us = 0;
    request->list.until_us = FL_STORE_TIME_END;
    request->list.limit = room < read_most(e) ? room : read_most(e);
    e->lanes.reading = lane;
    e->stats.store_reads++;
    fl__engine_submit_request(e, request, FL_STORE_LIST, lane_read);
}

/* Reads the next lane that has room, when the dispatcher has nearly all timers that were called before. */
void fl__lanes_read(fl_engine *e)
{
    struct lanes *lanes = &e->lanes;
    if (lanes->unread == 0 || lanes->reading || lanes->called > read_most(e) / 4 || !e->ready || e->retreat ||
        e->set_back || !fl__engine_may_fire(e))
        return;
    struct lane *lane;
    TAILQ_FOREACH(lane, &lanes->all, next)
    if (wants_more(e, lane))
        break;
    if (!lane)
        return;
    TAILQ_REMOVE(&lanes->all, lane, next);
    TAILQ_INSERT_TAIL(&lanes->all, lane, next);
    read_lane(e, lane);
}

/* Reads lanes again whose flights are gone, to find the remaining rows. */
void fl__lanes_read_again(fl_engine *e, bool all)
{
    struct lane *lane;
    TAILQ_FOREACH(lane, &e->lanes.all, next)
    if (lane->filed && (all || (lane->held == 0 && !lane->unread))) {
        set_unread(e, lane, true);
        lane->read_seq = 0;
    }
}

/* The windows without rows, as many as fit: the caller drops them. */
size_t fl__lanes_empty(fl_engine *e, struct fl_store_span *spans, size_t most)
{
    size_t count = 0;
    for (struct lane *lane = TAILQ_FIRST(&e->lanes.all), *next; lane && count < most; lane = next) {
        next = TAILQ_NEXT(lane, next);
        if (!lane->empty)
            continue;
        spans[count++] = (struct fl_store_span){fl__lane_window(lane->number), true};
        lane->empty = lane->filed = false;
        drop_if_unused(e, lane);
    }
    return count;
}
