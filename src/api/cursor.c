/* SPDX-License-Identifier: MIT */
/* Cursors: the place where a page ended, sealed with the list that it belongs to.
 *
 * The seal is a hash of the path, the namespace, the place, and all parameters but those that a client may change between two
 * pages. So a list that goes on with another filter is refused: its pages would repeat timers or leave some out. The seal is
 * no secret. A place that was made up leads nowhere, and the reader of a place checks it. */

#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/hash.h"
#include "text/base64.h"

enum { SEAL = 8, VALUE = 4096 }; /* bytes: of the seal in front of the place; of the longest parameter */

static uint64_t hash_add(uint64_t hash, fl_bytes bytes)
{
    hash = fl__hash_number(hash + bytes.size + 1);
    for (size_t i = 0; i < bytes.size; i++)
        hash = fl__hash_number(hash ^ ((const unsigned char *)bytes.data)[i]);
    return hash;
}

/* However it was encoded. */
static uint64_t hash_value(uint64_t hash, fl_bytes value)
{
    char room[VALUE];
    ssize_t made = percent_decode(value.data, value.size, room, sizeof room, true);
    return hash_add(hash, made < 0 ? value : (fl_bytes){room, (size_t)made});
}

static bool may_change(fl_bytes name)
{
    static const char *const names[] = {"cursor", "limit", "payload"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (name.size == strlen(names[i]) && memcmp(name.data, names[i], name.size) == 0)
            return true;
    return false;
}

/* The order of the parameters does not matter. */
static void make_seal(const struct call *call, fl_bytes place, char seal[SEAL])
{
    fl_bytes query = call->request->query, name, value;
    uint64_t sum = hash_add(hash_add(hash_add(0, bytes_of(call->route->path)), call->ns), place);
    while (call_next_parameter(&query, &name, &value))
        if (!may_change(name))
            sum += hash_value(hash_add(1, name), value);
    for (int i = 0; i < SEAL; i++)
        seal[i] = (char)(sum >> 8 * i);
}

void cursor_write(struct call *call, fl_bytes place)
{
    struct out bytes = {0}, *out = &call->out;
    char seal[SEAL];
    make_seal(call, place, seal);
    out_put(&bytes, seal, SEAL);
    out_put(&bytes, place.data, place.size);
    out_text(out, ",\"cursor\":\"");
    size_t from = out->size;
    out_base64_digits(out, out_bytes(&bytes));
    out->failed = out->failed || bytes.failed;
    out_free(&bytes);
    for (size_t i = from; i < out->size && !out->failed; i++) /* the alphabet that a URL may have */
        out->data[i] = (char)(out->data[i] == '+' ? '-' : out->data[i] == '/' ? '_' : out->data[i]);
    while (!out->failed && out->data[out->size - 1] == '=')
        out->size--;
    out_text(out, "\"");
}

int cursor_refuse(struct call *call)
{
    return problem_set(&call->problem, 400, "invalid-field", "cursor",
                       "cursor must be the cursor of an earlier page of the same list, with the same filters");
}

/* Takes the place out of what the text stands for. */
static int unseal(struct call *call, fl_bytes bytes, void *room, size_t size, fl_bytes *ret)
{
    char seal[SEAL];
    if (bytes.size < SEAL || bytes.size - SEAL > size)
        return cursor_refuse(call);
    fl_bytes place = {(const char *)bytes.data + SEAL, bytes.size - SEAL};
    make_seal(call, place, seal);
    if (memcmp(seal, bytes.data, SEAL) != 0)
        return cursor_refuse(call);
    memcpy(room, place.data, place.size);
    *ret = (fl_bytes){room, place.size};
    return 1;
}

int cursor_read(struct call *call, void *room, size_t size, fl_bytes *ret)
{
    size_t most = call->request->query.size;
    char *text = malloc(2 * most + 1);
    fl_bytes given;
    if (!text)
        return problem_of_result(&call->problem, FL_NO_MEMORY);
    int r = call_query(call, "cursor", text, most, &given);
    if (r > 0) {
        ssize_t made = base64_decode_to(given, (unsigned char *)text + most);
        r = made < 0 ? cursor_refuse(call) : unseal(call, (fl_bytes){text + most, (size_t)made}, room, size, ret);
    }
    free(text);
    return r;
}
