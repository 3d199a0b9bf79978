/* SPDX-License-Identifier: MIT */
/* Looking at living timers: by ID, and one after the other.
 *
 * References have a copy of a timer's data, so that firing need not read the slot. A leaf in which data was replaced says so,
 * and then firing reads the slot after all.
 *
 * Timers are visited by level, spoke, leaf and slot. A timer's ID tells all four, so it also tells which timer is next, even
 * if it has been cancelled meanwhile. */

#include "wheel/wheel_private.h"

enum {
    NEAR_LEAVES = 16
}; /* serial numbers that are looked up one by one before all leaves of the spoke are searched */

int fl_wheel_deadline_ns(const fl_wheel *w, fl_timer_id id, uint64_t *ret_ns)
{
    const struct leaf *leaf = fl__wheel_find(w, id);
    if (!leaf)
        return fl__wheel_why_not_found(w, id);
    *ret_ns = fl__leaf_slot(leaf, fl__id_index(id))->deadline_ns;
    return 0;
}

int fl_wheel_set_data(fl_wheel *w, fl_timer_id id, void *data, void **ret_old_data)
{
    struct leaf *leaf = fl__wheel_find(w, id);
    if (!leaf)
        return fl__wheel_why_not_found(w, id);
    struct slot *slot = fl__leaf_slot(leaf, fl__id_index(id));
    if (ret_old_data)
        *ret_old_data = slot->data;
    slot->data = data;
    leaf->has_new_data = true;
    return 0;
}

/* The leaf of a spoke with the least serial number from this one on; NULL if there is none. */
static const struct leaf *leaf_from(const struct spoke *spoke, unsigned level, uint32_t number, uint64_t serial)
{
    if (spoke->leaf_count == 0)
        return NULL;
    for (uint64_t near = serial; near < serial + NEAR_LEAVES && near < SERIAL_END; near++) {
        const struct leaf *leaf = fl__spoke_leaf(spoke, fl__leaf_id(level, number, near));
        if (leaf)
            return leaf;
    }
    uint64_t oldest = fl__spoke_oldest(spoke, serial);
    return oldest < UINT64_MAX ? fl__spoke_leaf(spoke, fl__leaf_id(level, number, oldest)) : NULL;
}

static void tell(const struct leaf *leaf, uint32_t index, fl_expired *ret)
{
    const struct slot *slot = fl__leaf_slot(leaf, index);
    *ret = (fl_expired){.id = leaf->id + index, .deadline_ns = slot->deadline_ns, .data = slot->data};
}

/* The first living timer of a spoke at or after a slot of a leaf; false if there is none. */
static bool next_in_spoke(const fl_wheel *w, unsigned level, uint32_t number, uint64_t serial, uint32_t index,
                          fl_expired *ret)
{
    const struct spoke *spoke = &w->levels[level].spokes[number];
    const struct leaf *leaf;
    for (; (leaf = leaf_from(spoke, level, number, serial)); serial++) {
        index = fl__leaf_serial(leaf) == serial ? index : 0;
        serial = fl__leaf_serial(leaf);
        index = index < LEAF_SLOTS ? fl__leaf_next(leaf, index) : LEAF_SLOTS;
        if (index < LEAF_SLOTS) {
            tell(leaf, index, ret);
            return true;
        }
        index = 0;
    }
    return false;
}

bool fl_wheel_next_timer(const fl_wheel *w, fl_expired *timer)
{
    fl_timer_id id = timer->id;
    unsigned level = (unsigned)(id >> LEVEL_SHIFT);
    uint32_t number = id >> SLOT_BITS & ((1u << SPOKE_BITS) - 1), index = id != 0 ? fl__id_index(id) + 1 : 0;
    uint64_t serial = fl__id_serial(id);
    for (; level < LEVELS; level++, number = 0)
        for (; number < w->spokes; number++, serial = 0, index = 0)
            if (next_in_spoke(w, level, number, serial, index, timer))
                return true;
    return false;
}
