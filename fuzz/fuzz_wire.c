/* SPDX-License-Identifier: MIT */
/* What another server says: whatever can be read is the same again when it has been written. */

#include <stdlib.h>
#include <string.h>

#include "node/wire.h"

enum { LIMIT = 20 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* What was written from what was read: reading it and writing it again gives the same bytes. */
static void same(const struct out *first, const struct out *second)
{
    if (first->size != second->size || memcmp(first->data, second->data, first->size) != 0)
        abort();
}

static void put_again(int kind, struct wire *wire, struct out *out)
{
    static fl_op room[LIMIT];
    fl_op op = {0};
    fl_listing listing = {.limit = LIMIT};
    switch (kind) {
    case 0:
        wire_op(wire, &op);
        wire_put_op(out, &op);
        break;
    case 1:
    case 2:
        wire_answer(wire, &op, kind == 1);
        wire_put_answer(out, &op, kind == 1);
        break;
    case 3:
        wire_read(wire, &wire_of_listing, &listing);
        wire_put(out, &wire_of_listing, &listing);
        break;
    default:
        wire_found(wire, &listing, room);
        wire_put_found(out, &listing);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    for (int kind = 0; kind < 5; kind++) {
        struct out first = {0}, second = {0};
        struct wire wire = wire_begin((fl_bytes){bytes, size});
        put_again(kind, &wire, &first);
        if (!wire.bad) {
            wire = wire_begin(out_bytes(&first));
            put_again(kind, &wire, &second);
            same(&first, &second);
            if (wire.bad)
                abort();
        }
        out_free(&first);
        out_free(&second);
    }
    return 0;
}
