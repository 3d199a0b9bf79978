/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "store/conformance.h"
#include "store/sqlite/life.h"

enum { CHANGES = 8, NAMES = 40, WINDOWS = 64, HORIZON_US = 1 << 28, SHIFTS = 3 };

static uint64_t below(struct life *life, uint64_t limit)
{
    return random_below(&life->seed, limit);
}

void life_begin(struct life *life, uint64_t seed)
{
    memset(life, 0, sizeof *life);
    life->seed = seed;
    life->now.progress.seq_limit = 2;
}

int life_claim(struct life *life, fl_shard *which)
{
    struct asked asked = to_claim("me", HOUR_US, true);
    int r = perform(which, &asked);
    if (r == 0)
        life->version = asked.request.claim.version;
    return r;
}

/* --- Changes ------------------------------------------------------------------------------------------------------ */

/* Most numbers rise, but some come late. */
static uint64_t new_seq(struct life *life)
{
    uint64_t late = life->late;
    if (below(life, 6) == 0) {
        life->late = late ? 0 : ++life->seq;
        if (late)
            return late;
    }
    return life->seq += 1 + below(life, 2);
}

static fl_row new_row(struct life *life)
{
    char body[300];
    size_t size = below(life, 8) ? below(life, 40) : below(life, sizeof body);
    for (size_t i = 0; i < size; i++)
        body[i] = (char)('a' + (life->seq + i) % 26);
    int64_t at = (int64_t)below(life, HORIZON_US);
    fl_row row = make_row(new_seq(life), at, FL_WINDOW_SHIFT_NEAR + (unsigned)below(life, SHIFTS) * FL_WINDOW_STEP);
    row.body = (fl_bytes){remember(body, size), size};
    return row;
}

static bool is_free(const fl_store_change *changes, size_t count, const fl_row *row)
{
    for (size_t i = 0; i < count; i++) {
        if (row && same_key(changes[i].remove, row->key))
            return false;
        if (row && row->name.size > 0 && changes[i].put && same_bytes(changes[i].put->name, row->name))
            return false;
    }
    return true;
}

static void replace(fl_store_change *change, const fl_row *old)
{
    change->remove = old->key;
    change->remove_id = same_key(old->id, old->key) ? 0 : old->id.seq;
}

static bool create(struct life *life, const fl_store_change *others, size_t count, fl_store_change *ret)
{
    fl_row row = new_row(life);
    if (below(life, 2)) {
        char name[20];
        size_t size = (size_t)snprintf(name, sizeof name, "name %d", (int)below(life, NAMES));
        row.name = (fl_bytes){remember(name, size), size};
        const fl_row *old = model_by_name(&life->now, row.ns, row.name);
        if (!is_free(others, count, &row) || !is_free(others, count, old))
            return false;
        if (old)
            replace(ret, old);
    }
    ret->put = remember(&row, sizeof row);
    return true;
}

static bool change_old(struct life *life, const fl_store_change *others, size_t count, fl_store_change *ret)
{
    const fl_row *old = life->now.count ? &life->now.rows[below(life, life->now.count)] : NULL;
    if (!old || !is_free(others, count, old))
        return false;
    replace(ret, old);
    if (below(life, 2)) { /* move it */
        fl_row row = new_row(life);
        row.name = old->name;
        row.id = old->id;
        ret->put = remember(&row, sizeof row);
    } else if (below(life, 2)) { /* give it up */
        fl_dead_row dead = make_dead(*old, "no reason");
        ret->bury = remember(&dead, sizeof dead);
    }
    return true;
}

static const fl_store_change *choose_changes(struct life *life, size_t *ret_count)
{
    fl_store_change changes[CHANGES] = {0};
    size_t count = 0, tries = 1 + below(life, CHANGES);
    for (size_t i = 0; i < tries; i++)
        count += below(life, 4) ? create(life, changes, count, &changes[count])
                                : change_old(life, changes, count, &changes[count]);
    *ret_count = count;
    return remember(changes, sizeof changes);
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

static uint64_t choose_window(struct life *life)
{
    return life->now.count ? life->now.rows[below(life, life->now.count)].window : fl_window_of(0, 31);
}

static struct asked choose_finish(struct life *life)
{
    fl_key front = {(int64_t)below(life, HORIZON_US), 0};
    struct fl_store_span spans[2] = {{choose_window(life), below(life, 4) == 0}, {choose_window(life), false}};
    uint64_t keep[1] = {below(life, life->seq + 1)};
    fl_progress progress = {.front = {front, front}, .keep = remember(keep, sizeof keep), .keep_count = 1};
    progress.seq_limit = life->seq + 1;
    struct asked asked = simple(FL_STORE_FINISH, life->version);
    asked.request.finish.spans = remember(spans, sizeof spans);
    asked.request.finish.span_count = spans[0].window == spans[1].window ? 1 : 2;
    asked.request.finish.settled = asked.request.finish.record = progress;
    return asked;
}

static struct asked choose(struct life *life)
{
    uint64_t kind = below(life, 10), window = choose_window(life);
    if (kind == 0)
        return choose_finish(life);
    if (kind == 1 && fl_window_shift(window) > FL_WINDOW_SHIFT_NEAR)
        return to_refile(life->version, window, MODEL_ROWS);
    if (kind == 2) {
        fl_progress progress = {.front = {{1, life->seq}, {2, life->seq}}, .seq_limit = life->seq + 1, .pending = 3};
        return to_record(life->version, &progress);
    }
    struct asked asked = to_write(life->version, NULL, 0);
    asked.request.write.changes = choose_changes(life, &asked.request.write.count);
    return asked;
}

static void apply(struct model *model, const fl_store_request *request)
{
    FILE *nowhere = fopen("/dev/null", "w");
    if (request->op == FL_STORE_WRITE)
        model_write(model, request, nowhere);
    else if (request->op == FL_STORE_FINISH)
        model_finish(model, request, nowhere);
    else if (request->op == FL_STORE_REFILE)
        model_refile(model, request, nowhere);
    else
        model_record(model, &request->record.progress);
    fclose(nowhere);
}

static void copy(struct model *to, const struct model *from)
{
    *to = *from;
    if (to->progress.keep_count > 0)
        to->progress.keep = to->keep;
}

int life_step(struct life *life, fl_shard *which)
{
    CHECK(!life->doubt);
    struct asked asked = choose(life);
    copy(&life->next, &life->now);
    apply(&life->next, &asked.request);
    int r = perform(which, &asked);
    if (r == 0)
        copy(&life->now, &life->next);
    else
        CHECK(asked.request.message[0]);
    life->doubt = fl_store_failure(r) == FL_FAILURE_UNKNOWN;
    return r;
}

/* --- Looking ------------------------------------------------------------------------------------------------------ */

static void tell_wants(FILE *out, const struct model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        tell_want(out, model_by_id(model, model->rows[i].id));
        if (model->rows[i].name.size > 0)
            tell_want(out, model_by_name(model, model->rows[i].ns, model->rows[i].name));
    }
}

static char *tell_model(const struct model *model)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    uint64_t windows[WINDOWS];
    size_t count = model_windows(model, windows, WINDOWS);
    CHECK(count < WINDOWS);
    tell_progress(out, &model->progress);
    for (size_t i = 0; i < count; i++) {
        struct asked asked = to_load(&windows[i], 1);
        model_load(model, &asked.request, out);
    }
    tell_wants(out, model);
    struct asked dead = to_list_dead();
    model_list_dead(model, &dead.request, out);
    fclose(out);
    return text;
}

static int by_time(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    if (fl_window_begin(a) != fl_window_begin(b))
        return fl_window_begin(a) < fl_window_begin(b) ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Finds every row by its ID and by its name. */
static int tell_found(FILE *out, fl_shard *which, const fl_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fl_store_want wants[2] = {{.id = rows[i].id}, {.ns = rows[i].ns, .name = rows[i].name}};
        struct asked asked = to_find(wants, rows[i].name.size > 0 ? 2 : 1);
        int r = perform(which, &asked);
        if (r < 0)
            return r;
        for (size_t j = 0; j < asked.request.find.count; j++)
            tell_want(out, wants[j].found ? &wants[j].row : NULL);
    }
    return 0;
}

static int by_seq(const void *x, const void *y)
{
    const fl_row *a = x, *b = y;
    return a->key.seq < b->key.seq ? -1 : a->key.seq > b->key.seq;
}

static int tell_windows(FILE *out, fl_shard *which, uint64_t *windows, size_t count)
{
    static fl_row rows[MODEL_ROWS];
    size_t total = 0;
    qsort(windows, count, sizeof *windows, by_time);
    for (size_t i = 0; i < count; i++) {
        struct asked asked = to_load(&windows[i], 1);
        int r = perform(which, &asked);
        if (r < 0)
            return r;
        for (size_t j = 0; j < asked.count; j++) {
            tell_row(out, &asked.rows[j]);
            rows[total++] = asked.rows[j];
        }
        if (asked.count > 0)
            tell_load_end(out, asked.request.load.more, asked.request.load.next);
    }
    qsort(rows, total, sizeof *rows, by_seq);
    return tell_found(out, which, rows, total);
}

static int tell_store(FILE *out, struct life *life, fl_shard *which)
{
    struct asked claim = to_claim("me", HOUR_US, true), dead = to_list_dead();
    int r = perform(which, &claim);
    if (r < 0)
        return r;
    life->version = claim.request.claim.version;
    tell_progress(out, &claim.request.claim.progress);
    size_t count = claim.request.claim.window_count;
    uint64_t *windows = remember(claim.request.claim.windows, count * sizeof *windows);
    r = tell_windows(out, which, windows, count);
    if (r == 0)
        r = perform(which, &dead);
    for (size_t i = 0; i < dead.request.dead_list.count && r == 0; i++)
        tell_dead(out, &dead.request.dead_list.rows[i]);
    return r;
}

int life_look(struct life *life, fl_shard *which)
{
    char *seen = NULL;
    size_t size;
    FILE *out = open_memstream(&seen, &size);
    int r = tell_store(out, life, which);
    fclose(out);
    if (r < 0) {
        free(seen);
        return r;
    }
    char *now = tell_model(&life->now), *next = life->doubt ? tell_model(&life->next) : NULL;
    if (next && strcmp(next, seen) == 0)
        copy(&life->now, &life->next);
    else if (strcmp(now, seen) != 0)
        test_fail(__FILE__, __LINE__, "expected:\n%s\nor:\n%s\nbut there is:\n%s", now, next ? next : "nothing else",
                  seen);
    life->doubt = false;
    free(now);
    free(next);
    free(seen);
    return 0;
}
