/* SPDX-License-Identifier: MIT */
/* A shard as a list of rows: see model.h. */

#include <stdlib.h>
#include <string.h>

#include "store/conformance.h"
#include "store/model.h"
#include "store/store.h" /* fl_store_hash() */

/* --- Telling ------------------------------------------------------------------------------------------------------ */

static void tell_bytes(FILE *out, fl_bytes bytes)
{
    fprintf(out, " %zu:", bytes.size);
    for (size_t i = 0; i < bytes.size && i < 40; i++) {
        unsigned char c = ((const unsigned char *)bytes.data)[i];
        fprintf(out, c > ' ' && c < 127 ? "%c" : "<%02x>", c);
    }
    if (bytes.size > 40)
        fprintf(out, "…%016" PRIx64, fl_store_hash(bytes, (fl_bytes){"", 0}));
}

static void tell_key(FILE *out, fl_key key)
{
    fprintf(out, " %" PRId64 ".%" PRIu64, key.at_us, key.seq);
}

void tell_row(FILE *out, const fl_row *row)
{
    fprintf(out, "%u/%" PRIx64, fl_window_shift(row->window), row->window & (((uint64_t)1 << 56) - 1));
    tell_key(out, row->key);
    tell_key(out, row->id);
    tell_bytes(out, row->ns);
    tell_bytes(out, row->name);
    tell_bytes(out, row->body);
    fputc('\n', out);
}

void tell_dead(FILE *out, const fl_dead_row *dead)
{
    fprintf(out, "dead");
    tell_key(out, dead->row.id);
    tell_bytes(out, dead->row.ns);
    tell_bytes(out, dead->row.name);
    tell_bytes(out, dead->row.body);
    fprintf(out, " %" PRId64, dead->died_us);
    tell_bytes(out, dead->reason);
    fputc('\n', out);
}

void tell_want(FILE *out, const fl_row *row)
{
    if (row)
        tell_row(out, row);
    else
        fputs("not found\n", out);
}

void tell_load_end(FILE *out, bool more, fl_key next)
{
    fputs(more ? "more from" : "all", out);
    if (more)
        tell_key(out, next);
    fputc('\n', out);
}

void tell_refiled(FILE *out, size_t moved, uint64_t parts)
{
    fprintf(out, "moved %zu into %016" PRIx64 "\n", moved, parts);
}

void tell_progress(FILE *out, const fl_progress *progress)
{
    tell_key(out, progress->front[0]);
    tell_key(out, progress->front[1]);
    fprintf(out, " %" PRIu64 " %" PRIu64 " kept", progress->seq_limit, progress->pending);
    for (size_t i = 0; i < progress->keep_count; i++)
        fprintf(out, " %" PRIu64, progress->keep[i]);
    fputc('\n', out);
}

/* --- What is there ------------------------------------------------------------------------------------------------ */

const fl_row *model_by_name(const struct model *model, fl_bytes ns, fl_bytes name)
{
    for (size_t i = 0; i < model->count; i++)
        if (same_bytes(model->rows[i].ns, ns) && same_bytes(model->rows[i].name, name))
            return &model->rows[i];
    return NULL;
}

const fl_row *model_by_id(const struct model *model, fl_key id)
{
    for (size_t i = 0; i < model->count; i++)
        if (same_key(model->rows[i].id, id) || same_key(model->rows[i].key, id))
            return &model->rows[i];
    return NULL;
}

static int compare_windows(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    int64_t a_begin = fl_window_begin(a), b_begin = fl_window_begin(b);
    if (a_begin != b_begin)
        return a_begin < b_begin ? -1 : 1;
    return a < b ? -1 : a > b;
}

size_t model_windows(const struct model *model, uint64_t *out, size_t room)
{
    size_t count = 0;
    for (size_t i = 0; i < model->count && count < room; i++) {
        size_t j = 0;
        while (j < count && out[j] != model->rows[i].window)
            j++;
        if (j == count)
            out[count++] = model->rows[i].window;
    }
    if (count > 0)
        qsort(out, count, sizeof *out, compare_windows);
    return count;
}

/* --- Changes ------------------------------------------------------------------------------------------------------ */

static void delete_row(struct model *model, size_t i)
{
    model->count--;
    memmove(&model->rows[i], &model->rows[i + 1], (model->count - i) * sizeof *model->rows);
}

static void remove_row(struct model *model, fl_key key)
{
    for (size_t i = 0; i < model->count; i++)
        if (same_key(model->rows[i].key, key)) {
            delete_row(model, i);
            return;
        }
}

static void unbury(struct model *model, uint64_t id_seq)
{
    for (size_t i = 0; i < model->dead_count; i++)
        if (model->dead[i].row.id.seq == id_seq) {
            model->dead_count--;
            memmove(&model->dead[i], &model->dead[i + 1], (model->dead_count - i) * sizeof *model->dead);
            return;
        }
}

static void bury(struct model *model, const fl_dead_row *dead)
{
    unbury(model, dead->row.id.seq);
    size_t i = model->dead_count++;
    CHECK(i < MODEL_ROWS);
    for (; i > 0 && model->dead[i - 1].row.id.seq > dead->row.id.seq; i--)
        model->dead[i] = model->dead[i - 1];
    model->dead[i] = *dead;
}

static void put_row(struct model *model, const fl_row *row)
{
    size_t i = model->count++;
    CHECK(i < MODEL_ROWS);
    for (; i > 0 && model->rows[i - 1].key.seq > row->key.seq; i--)
        model->rows[i] = model->rows[i - 1];
    model->rows[i] = *row;
}

static void apply(struct model *model, const fl_store_change *changes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (changes[i].remove.seq > 0)
            remove_row(model, changes[i].remove);
        if (changes[i].put)
            put_row(model, changes[i].put);
        if (changes[i].unbury > 0)
            unbury(model, changes[i].unbury);
        if (changes[i].bury)
            bury(model, changes[i].bury);
    }
}

void model_write(struct model *model, const fl_store_request *request, FILE *out)
{
    apply(model, request->write.changes, request->write.count);
    fputs("written\n", out);
}

void model_record(struct model *model, const fl_progress *progress)
{
    CHECK(progress->keep_count <= MODEL_KEEP);
    model->progress = *progress;
    for (size_t i = 0; i < progress->keep_count; i++)
        model->keep[i] = progress->keep[i];
    model->progress.keep = model->keep;
}

static bool is_settled(const fl_progress *progress, fl_key key)
{
    fl_key front = progress->front[key.seq % 2];
    for (size_t i = 0; i < progress->keep_count; i++)
        if (progress->keep[i] == key.seq)
            return false;
    return key.at_us < front.at_us || (key.at_us == front.at_us && key.seq <= front.seq);
}

void model_finish(struct model *model, const fl_store_request *request, FILE *out)
{
    unsigned deleted = 0;
    for (size_t s = 0; s < request->finish.span_count; s++)
        for (size_t i = model->count; i-- > 0;) {
            const struct fl_store_span *span = &request->finish.spans[s];
            if (model->rows[i].window != span->window)
                continue;
            if (span->whole || is_settled(&request->finish.settled, model->rows[i].key)) {
                delete_row(model, i);
                deleted++;
            }
        }
    model_record(model, &request->finish.record);
    fprintf(out, "finished %u\n", under_test.counts_deleted ? deleted : 0);
}

void model_refile(struct model *model, const fl_store_request *request, FILE *out)
{
    size_t moved = 0;
    uint64_t parts = 0, window = request->refile.window;
    for (size_t i = 0; i < model->count; i++) {
        fl_row *row = &model->rows[i];
        if (row->window != window)
            continue;
        row->window = fl_window_of(row->key.at_us, request->refile.shift);
        parts |= (uint64_t)1 << ((row->key.at_us - fl_window_begin(window)) >> request->refile.shift);
        moved++;
    }
    tell_refiled(out, moved, parts);
}

/* --- Reading ------------------------------------------------------------------------------------------------------ */

void model_find(const struct model *model, const fl_store_request *request, FILE *out)
{
    for (size_t i = 0; i < request->find.count; i++) {
        const fl_store_want *want = &request->find.wants[i];
        tell_want(out, want->name.size > 0 ? model_by_name(model, want->ns, want->name) : model_by_id(model, want->id));
    }
}

void model_list(const struct model *model, const fl_store_request *request, FILE *out)
{
    fl_bytes ns = request->list.ns, prefix = request->list.prefix;
    for (size_t i = 0; i < model->count; i++) {
        const fl_row *row = &model->rows[i];
        if (row->window != request->list.window || row->key.seq <= request->list.after_seq)
            continue;
        if (row->key.at_us < request->list.from_us || row->key.at_us >= request->list.until_us)
            continue;
        if (ns.size > 0 && !same_bytes(row->ns, ns))
            continue;
        if (row->name.size < prefix.size || !same_bytes((fl_bytes){row->name.data, prefix.size}, prefix))
            continue;
        tell_row(out, row);
    }
}

void model_list_dead(const struct model *model, const fl_store_request *request, FILE *out)
{
    for (size_t i = 0; i < model->dead_count; i++) {
        const fl_dead_row *dead = &model->dead[i];
        uint64_t only = request->dead_list.id_seq, seq = dead->row.id.seq;
        if (only > 0 ? seq != only : seq <= request->dead_list.after_seq)
            continue;
        if (request->dead_list.ns.size > 0 && !same_bytes(dead->row.ns, request->dead_list.ns))
            continue;
        tell_dead(out, dead);
    }
}

static int compare_keys(const void *x, const void *y)
{
    const fl_key *a = x, *b = y;
    if (a->at_us != b->at_us)
        return a->at_us < b->at_us ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static bool fits_load(const fl_store_request *request, const fl_row *row)
{
    return row->key.at_us < request->load.until_us && compare_keys(&row->key, &request->load.from) >= 0;
}

/* Finds the end by sorting everything that fits, and then gives what is before it in the order of the windows. */
void model_load(const struct model *model, const fl_store_request *request, FILE *out)
{
    static fl_key keys[MODEL_ROWS];
    size_t count = 0;
    for (size_t w = 0; w < request->load.window_count; w++)
        for (size_t i = 0; i < model->count; i++)
            if (model->rows[i].window == request->load.windows[w] && fits_load(request, &model->rows[i]))
                keys[count++] = model->rows[i].key;
    qsort(keys, count, sizeof *keys, compare_keys);
    bool more = count > request->load.limit;
    fl_key end = more ? keys[request->load.limit] : (fl_key){request->load.until_us, 0};
    for (size_t w = 0; w < request->load.window_count; w++)
        for (size_t i = 0; i < model->count; i++)
            if (model->rows[i].window == request->load.windows[w] && fits_load(request, &model->rows[i]) &&
                compare_keys(&model->rows[i].key, &end) < 0)
                tell_row(out, &model->rows[i]);
    tell_load_end(out, more, end);
}
