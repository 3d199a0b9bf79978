/* SPDX-License-Identifier: MIT */
/* Flights: timers that are taken out of a wheel and not settled.
 *
 * A flight is found by its sequence number, through a hash table, and by its token: the place in the list and how often
 * that place has been used. Places are used in turn, so that with ten thousand of them and a million firings a second a
 * token comes again after centuries.
 */

#include "engine/internal.h"

enum { TOKEN_PLACE_BITS = 24 };

static uint32_t mark_of(uint64_t seq)
{
    return (uint32_t)(seq * 0x9e3779b97f4a7c15 >> 32);
}

static uint64_t seq_at(const struct flights *flights, uint32_t index)
{
    fl__assert(flights->list[index].item);
    return flights->list[index].item->seq;
}

static void table_put(struct flights *flights, struct flight_entry entry)
{
    uint32_t mask = flights->table_size - 1, slot = entry.mark & mask;
    fl__assert(entry.index != 0 && flights->count < flights->table_size);
    while (flights->table[slot].index)
        slot = (slot + 1) & mask;
    flights->table[slot] = entry;
}

/* Fills the gap, so that no search ends there too early. */
static void table_remove(struct flights *flights, uint32_t index)
{
    struct flight_entry *table = flights->table;
    uint32_t mask = flights->table_size - 1, gap = mark_of(seq_at(flights, index)) & mask;
    fl__assert(flights->count > 0);
    while (table[gap].index != index) {
        fl__assert(table[gap].index); /* it is in the table */
        gap = (gap + 1) & mask;
    }
    for (uint32_t slot = (gap + 1) & mask; table[slot].index; slot = (slot + 1) & mask)
        if (((slot - table[slot].mark) & mask) >= ((slot - gap) & mask)) {
            table[gap] = table[slot];
            gap = slot;
        }
    table[gap] = (struct flight_entry){0};
}

static int grow_table(struct flights *flights)
{
    uint32_t size = flights->table_size ? flights->table_size * 2 : 256;
    struct flight_entry *table = fl__alloc_zeroed(size * sizeof *table), *old = flights->table;
    if (!table)
        return FL_NO_MEMORY;
    uint32_t old_size = flights->table_size;
    flights->table = table;
    flights->table_size = size;
    for (uint32_t i = 0; i < old_size; i++)
        if (old[i].index)
            table_put(flights, old[i]);
    fl__release(old);
    return 0;
}

static int grow_list(struct flights *flights)
{
    uint32_t capacity = flights->capacity ? flights->capacity * 2 : 128;
    if (capacity > 1u << TOKEN_PLACE_BITS)
        return FL_CAPACITY_EXCEEDED;
    struct flight *list = fl__resize(flights->list, capacity * sizeof *list);
    if (!list)
        return FL_NO_MEMORY;
    flights->list = list;
    flights->capacity = capacity;
    if (flights->used == 0)
        flights->used = 1; /* index 0 is unused */
    return 0;
}

static uint32_t take_place(struct flights *flights)
{
    uint32_t index = flights->free_first;
    if (flights->used == flights->capacity && index == 0 && grow_list(flights) < 0)
        return 0;
    if (flights->used < flights->capacity) { /* unused places first, so that used ones are reused later */
        index = flights->used++;
        flights->list[index] = (struct flight){0};
        return index;
    }
    fl__assert(index != 0 && flights->list[index].state == FLIGHT_FREE);
    flights->free_first = flights->list[index].next;
    if (flights->free_first == 0)
        flights->free_last = 0;
    return index;
}

uint32_t fl__flight_new(fl_engine *e, struct item *item, enum flight_state state)
{
    struct flights *flights = &e->flights;
    if ((uint64_t)flights->count * 2 >= flights->table_size && grow_table(flights) < 0)
        return 0;
    uint32_t index = take_place(flights);
    if (index == 0)
        return 0;
    struct flight *flight = &flights->list[index];
    *flight = (struct flight){.item = item, .serial = flight->serial + 1, .state = FLIGHT_HELD};
    table_put(flights, (struct flight_entry){index, mark_of(item->seq)});
    flights->count++;
    if (state == FLIGHT_LATE)
        fl__flight_late(e, index);
    return index;
}

uint32_t fl__flight_find(const fl_engine *e, uint64_t seq)
{
    const struct flights *flights = &e->flights;
    if (flights->count == 0)
        return 0;
    const struct flight_entry *table = flights->table;
    uint32_t mask = flights->table_size - 1, mark = mark_of(seq), slot = mark & mask;
    while (table[slot].index && (table[slot].mark != mark || seq_at(flights, table[slot].index) != seq))
        slot = (slot + 1) & mask;
    return table[slot].index;
}

/* Whether the timer is settled although its row still exists. */
bool fl__flight_done(const fl_engine *e, uint64_t seq)
{
    uint32_t index = fl__flight_find(e, seq);
    return index && e->flights.list[index].done;
}

/* Removes a flight from the table of unsettled ones. */
void fl__flight_forget(fl_engine *e, uint32_t index)
{
    table_remove(&e->flights, index);
    e->flights.count--;
}

static void give_place(struct flights *flights, uint32_t index)
{
    struct flight *flight = &flights->list[index];
    fl__assert(flight->state != FLIGHT_FREE);
    flight->state = FLIGHT_FREE;
    flight->item = NULL;
    flight->next = 0;
    if (flights->free_last)
        flights->list[flights->free_last].next = index;
    else
        flights->free_first = index;
    flights->free_last = index;
}

/* Ends a flight and frees its item. It must not be in a list of late flights. */
void fl__flight_end(fl_engine *e, uint32_t index)
{
    struct flight *flight = &e->flights.list[index];
    fl__assert(flight->state != FLIGHT_FREE && flight->state != FLIGHT_LATE);
    fl__lane_not_called(e, flight);
    if (flight->lane)
        fl__lane_leave(e, flight);
    else if (flight->state == FLIGHT_DISPATCHED || flight->state == FLIGHT_SETTLING) {
        fl__assert(e->flights.dispatched[flight->item->seq & 1] > 0);
        e->flights.dispatched[flight->item->seq & 1]--;
    }
    if (flight->state != FLIGHT_ORPHAN) {
        fl__assert(e->loaded > 0);
        fl__flight_forget(e, index);
        e->loaded--;
    }
    fl__memory_free_item(e, flight->item);
    give_place(&e->flights, index);
}

/* Ends a flight and returns its item, which is no longer counted as loaded. It must not be in a list of late flights. */
struct item *fl__flight_recall(fl_engine *e, uint32_t index)
{
    struct item *item = e->flights.list[index].item;
    fl__lane_not_called(e, &e->flights.list[index]);
    fl__assert(item && !e->flights.list[index].lane && e->loaded > 0);
    fl__flight_forget(e, index);
    e->loaded--;
    give_place(&e->flights, index);
    return item;
}

void fl__flight_late(fl_engine *e, uint32_t index)
{
    struct flights *flights = &e->flights;
    unsigned kind = flights->list[index].item->seq & 1;
    fl__assert(flights->list[index].state == FLIGHT_HELD || flights->list[index].state == FLIGHT_LATE);
    flights->list[index].state = FLIGHT_LATE;
    flights->list[index].next = 0;
    if (flights->late[kind].last)
        flights->list[flights->late[kind].last].next = index;
    else
        flights->late[kind].first = index;
    flights->late[kind].last = index;
    flights->late[kind].count++;
}

/* Takes the next late flight from its list, in state FLIGHT_HELD. 0: none. */
uint32_t fl__flight_next_late(fl_engine *e, int kind)
{
    struct flights *flights = &e->flights;
    uint32_t index = flights->late[kind].first;
    if (index == 0)
        return 0;
    fl__assert(flights->list[index].state == FLIGHT_LATE && flights->late[kind].count > 0);
    flights->late[kind].first = flights->list[index].next;
    if (flights->late[kind].first == 0)
        flights->late[kind].last = 0;
    flights->late[kind].count--;
    flights->list[index].state = FLIGHT_HELD;
    return index;
}

uint64_t fl__flight_token(const fl_engine *e, uint32_t index)
{
    return e->flights.list[index].serial << TOKEN_PLACE_BITS | index;
}

uint32_t fl__flight_of_token(const fl_engine *e, uint64_t token)
{
    uint32_t index = (uint32_t)(token & ((1u << TOKEN_PLACE_BITS) - 1));
    if (index == 0 || index >= e->flights.used)
        return 0;
    const struct flight *flight = &e->flights.list[index];
    bool named =
        flight->serial == token >> TOKEN_PLACE_BITS &&
        (flight->state == FLIGHT_WAITING || flight->state == FLIGHT_DISPATCHED || flight->state == FLIGHT_ORPHAN);
    return named ? index : 0;
}
