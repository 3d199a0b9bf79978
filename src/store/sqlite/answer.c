/* SPDX-License-Identifier: MIT */
/* The memory of answers: blocks that belong to a request until it has been answered. */

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/sqlite/worker.h"
#include "store/sqlite/names/names.h"

struct block {
    struct block *next;
    size_t used, room;
    max_align_t bytes[];
};

enum { BLOCK_BYTES = 16 << 10 };

void *fl__answer_alloc(fl_store_request *request, size_t size)
{
    size = (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    struct block *block = request->store_data;
    if (!block || block->room - block->used < size) {
        size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        block = fl__alloc(sizeof *block + room);
        if (!block)
            return NULL;
        *block = (struct block){.next = request->store_data, .room = room};
        request->store_data = block;
    }
    fl__assert(block->used + size <= block->room);
    void *bytes = (char *)block->bytes + block->used;
    block->used += size;
    return bytes;
}

void fl__answer_free(void *store_data)
{
    struct block *block = store_data;
    while (block) {
        struct block *next = block->next;
        fl__release(block);
        block = next;
    }
}

bool fl__answer_keep(fl_store_request *request, fl_bytes *bytes)
{
    void *copy = fl__answer_alloc(request, bytes->size);
    if (copy && bytes->size > 0)
        memcpy(copy, bytes->data, bytes->size);
    bytes->data = copy;
    return copy;
}

int fl__row_of(struct base *base, const struct window *window, const struct entry *entry, fl_row *ret)
{
    *ret = (fl_row){
        .key = entry->key, .id = entry->id, .window = window->number, .name = entry->name, .body = entry->body};
    return fl__namespace_text(base, entry->ns, &ret->ns);
}

int fl__answer_row(struct base *base, fl_store_request *request, const struct window *window, const struct entry *entry,
                   fl_row *ret)
{
    int r = fl__row_of(base, window, entry, ret);
    if (r == 0 && (!fl__answer_keep(request, &ret->name) || !fl__answer_keep(request, &ret->body)))
        r = base_no_memory(base);
    return r;
}

void *fl__answer_grow(fl_store_request *request, void *array, size_t count, size_t size)
{
    enum { FIRST = 16 };
    fl__assert(size > 0 && (count == 0 || array));
    if (count >= FIRST && (count & (count - 1)) != 0)
        return array;
    if (count > 0 && count < FIRST)
        return array;
    void *larger = fl__answer_alloc(request, (count ? count * 2 : FIRST) * size);
    if (larger && count > 0)
        memcpy(larger, array, count * size);
    return larger;
}
