/* SPDX-License-Identifier: MIT */
/* Reads bytes as the history of a shard and lives it through beside the model: see history.h.
 *
 * Two owners are attached to the shard and take turns, each believing in the version that its last claim gave. Requests
 * are submitted without waiting, so that several are under way; the model carries each out when it is submitted, and when
 * the answers come they are compared. There is a wait for all answers where the order would be open otherwise: before the
 * other owner's turn, around a claim, and around what takes several requests (pages, filing a window step by step).
 *
 * Times are few and windows of all sizes are used, so that rows meet; names are few, so that they are used again.
 */

#include <stdlib.h>

#include "store/conformance.h"
#include "store/history.h"
#include "store/model.h"

enum { UNDER_WAY = 16, BATCH = 12, WINDOWS = 64, NAMES = 24, FINISHED = 256 };

struct step {
    struct asked asked;
    char *expected;
};

static struct history {
    const uint8_t *at, *end;
    struct model model;
    fl_shard *owners[2];
    uint64_t versions[2]; /* what each believes in */
    unsigned turn;        /* whose it is */
    uint64_t seq;         /* the last that was used */
    struct step steps[UNDER_WAY];
    size_t step_count;
    uint64_t finished[FINISHED]; /* windows of which a store may keep settled rows */
    size_t finished_count;
} h;

static unsigned byte(void)
{
    return h.at < h.end ? *h.at++ : 0;
}

static unsigned below(unsigned limit)
{
    return byte() % limit;
}

/* --- Answers ------------------------------------------------------------------------------------------------------ */

static void tell_answer(const struct asked *asked, FILE *out)
{
    const fl_store_request *request = &asked->request;
    if (request->result < 0) {
        fprintf(out, "%s\n", fl_errname(request->result));
    } else if (request->op == FL_STORE_FIND) {
        for (size_t i = 0; i < request->find.count; i++)
            tell_want(out, request->find.wants[i].found ? &request->find.wants[i].row : NULL);
    } else if (request->op == FL_STORE_LOAD) {
        for (size_t i = 0; i < asked->count; i++)
            tell_row(out, &asked->rows[i]);
        tell_load_end(out, request->load.more, request->load.next);
    } else if (request->op == FL_STORE_FINISH) {
        fprintf(out, "finished %u\n", under_test.counts_deleted ? (unsigned)request->finish.deleted : 0);
    } else if (request->op == FL_STORE_WRITE) {
        fputs("written\n", out);
    } else {
        fputs("done\n", out);
    }
}

/* Text that is written to `out` until the text is taken. */
static struct {
    FILE *out;
    char *text;
    size_t size;
} telling;

static FILE *tell(void)
{
    telling.out = open_memstream(&telling.text, &telling.size);
    CHECK(telling.out);
    return telling.out;
}

static char *told(void)
{
    CHECK_EQ(fclose(telling.out), 0);
    return telling.text;
}

static void compare(int op, char *expected, char *actual)
{
    if (strcmp(expected, actual) != 0)
        test_fail(__FILE__, __LINE__, "request %d: expected\n%sbut the answer is\n%s", op, expected, actual);
    free(expected);
    free(actual);
}

static void settle(void)
{
    for (size_t i = 0; i < h.step_count; i++) {
        struct step *step = &h.steps[i];
        await(&step->asked);
        CHECK(i == 0 || step->asked.place == h.steps[i - 1].asked.place + 1);
        tell_answer(&step->asked, tell());
        compare(step->asked.request.op, step->expected, told());
    }
    h.step_count = 0;
}

static bool is_lost(void)
{
    return h.versions[h.turn] == 0 || h.versions[h.turn] != h.model.version;
}

/* Submits; the text that is being told is what is expected. */
static void submit(const struct asked *asked)
{
    struct step *step = &h.steps[h.step_count++];
    *step = (struct step){*asked, told()};
    ask(h.owners[h.turn], &step->asked);
    if (h.step_count == UNDER_WAY)
        settle();
}

/* --- Choosing ----------------------------------------------------------------------------------------------------- */

static int64_t choose_time(void)
{
    unsigned a = byte(), b = byte();
    switch (a % 4) {
    case 0:
        return (int64_t)(a / 4 % 8) << 25 | (int64_t)b << 9;
    case 1:
        return (int64_t)(a / 4 % 4) << 31 | (int64_t)(b % 64) << 25 | (int64_t)(b / 64);
    case 2:
        return (int64_t)(a / 4) << 49 | (int64_t)b << 40;
    default:
        return FL_STORE_TIME_END - 1 - (int64_t)(b % 16) - ((int64_t)(a / 4) << 13);
    }
}

static uint64_t choose_window(void)
{
    uint64_t windows[WINDOWS];
    size_t count = model_windows(&h.model, windows, WINDOWS);
    unsigned i = byte();
    if (count > 0 && i % 8 > 0)
        return windows[i / 8 % count];
    return fl_window_of(choose_time(), FL_WINDOW_SHIFT_MIN + below(8) * FL_WINDOW_STEP);
}

static const fl_row *choose_row(void)
{
    return h.model.count > 0 ? &h.model.rows[(byte() << 8 | byte()) % h.model.count] : NULL;
}

static fl_key choose_key(void)
{
    const fl_row *row = byte() % 4 > 0 ? choose_row() : NULL;
    if (row)
        return byte() % 2 ? row->key : row->id;
    return (fl_key){choose_time(), 1 + byte() % (h.seq + 2)};
}

static fl_bytes choose_ns(void)
{
    static const char *const spaces[] = {"ns", "n", "other"};
    return text(spaces[below(3)]);
}

static fl_bytes choose_name(void)
{
    unsigned i = below(NAMES);
    unsigned char name[4] = {'a' + i % 2, i % 5 ? 'b' : 0, (unsigned char)(i * 11), 0xff};
    return (fl_bytes){remember(name, sizeof name), 2 + i % 3}; /* some are the same; few enough to meet */
}

static fl_bytes choose_body(void)
{
    static unsigned char bytes[6000];
    for (size_t i = 0; bytes[sizeof bytes - 1] == 0 && i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * i >> 3 | 1);
    unsigned i = byte(), from = byte();
    return (fl_bytes){bytes + from, i < 8 ? 600 * (size_t)i : i / 4};
}

static fl_row choose_content(void)
{
    int64_t at = choose_time();
    uint64_t seq = ++h.seq;
    return (fl_row){.key = {at, seq},
                    .id = {at, seq},
                    .window = fl_window_of(at, FL_WINDOW_SHIFT_MIN + below(8) * FL_WINDOW_STEP),
                    .ns = choose_ns(),
                    .body = choose_body()};
}

/* --- Batches ------------------------------------------------------------------------------------------------------ */

/* What the changes of one batch are about: no row and no name twice. */
struct batch {
    fl_store_change changes[BATCH];
    size_t count;
    fl_key rows[2 * BATCH];
    fl_row puts[BATCH];
    uint64_t dead[2 * BATCH];
    size_t row_count, put_count, dead_count;
};

static bool is_touched(const struct batch *batch, fl_key key)
{
    for (size_t i = 0; i < batch->row_count; i++)
        if (same_key(batch->rows[i], key))
            return true;
    return false;
}

static bool is_named_in(const struct batch *batch, fl_bytes ns, fl_bytes name)
{
    for (size_t i = 0; i < batch->put_count; i++)
        if (same_bytes(batch->puts[i].ns, ns) && same_bytes(batch->puts[i].name, name))
            return true;
    return false;
}

/* Whether this is the first change about the one given up with that number. */
static bool touch_dead(struct batch *batch, uint64_t id_seq)
{
    for (size_t i = 0; i < batch->dead_count; i++)
        if (batch->dead[i] == id_seq)
            return false;
    batch->dead[batch->dead_count++] = id_seq;
    return true;
}

static void change_remove(struct batch *batch, fl_store_change *change, const fl_row *row)
{
    batch->rows[batch->row_count++] = row->key;
    change->remove = row->key;
    change->remove_id = same_key(row->id, row->key) ? 0 : row->id.seq;
}

static void change_put(struct batch *batch, fl_store_change *change, fl_row row)
{
    batch->puts[batch->put_count++] = row;
    change->put = remember(&row, sizeof row);
}

/* A new row; with a name, it takes the place of the one that has it. */
static bool add_create(struct batch *batch, fl_store_change *change)
{
    fl_row row = choose_content();
    if (byte() % 2) {
        row.name = choose_name();
        const fl_row *old = model_by_name(&h.model, row.ns, row.name);
        if (is_named_in(batch, row.ns, row.name) || (old && is_touched(batch, old->key)))
            return false;
        if (old)
            change_remove(batch, change, old);
    }
    unsigned again = byte();
    if (again % 16 == 0 && touch_dead(batch, again / 16))
        change->unbury = again / 16;
    change_put(batch, change, row);
    return true;
}

static bool add_move(struct batch *batch, fl_store_change *change)
{
    const fl_row *old = choose_row();
    if (!old || is_touched(batch, old->key) || (old->name.size > 0 && is_named_in(batch, old->ns, old->name)))
        return false;
    fl_row row = choose_content();
    row.ns = old->ns;
    row.name = old->name;
    row.id = old->id;
    change_remove(batch, change, old);
    change_put(batch, change, row);
    return true;
}

/* Takes a row away, and perhaps gives it up. */
static bool add_remove(struct batch *batch, fl_store_change *change)
{
    const fl_row *old = choose_row();
    if (!old || is_touched(batch, old->key))
        return false;
    change_remove(batch, change, old);
    if (byte() % 2 && touch_dead(batch, old->id.seq)) {
        fl_dead_row dead = {.row = *old, .died_us = choose_time(), .reason = choose_body()};
        change->bury = remember(&dead, sizeof dead);
    }
    return true;
}

static void add_change(struct batch *batch)
{
    fl_store_change change = {0};
    bool good;
    switch (below(8)) {
    case 0:
    case 1:
    case 2:
    case 3:
        good = add_create(batch, &change);
        break;
    case 4:
    case 5:
        good = add_move(batch, &change);
        break;
    case 6:
        good = add_remove(batch, &change);
        break;
    default:
        change = (fl_store_change){.remove = {choose_time(), h.seq + 1000}, .unbury = byte()}; /* the one not there */
        good = touch_dead(batch, change.unbury);
        break;
    }
    if (good)
        batch->changes[batch->count++] = change;
}

static const fl_store_change *choose_changes(size_t limit, size_t *ret_count)
{
    struct batch batch = {0};
    for (size_t i = below((unsigned)limit + 1); i > 0; i--)
        add_change(&batch);
    *ret_count = batch.count;
    return remember(batch.changes, sizeof batch.changes);
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

static fl_progress choose_progress(void)
{
    fl_progress progress = {.front = {choose_key(), choose_key()}, .seq_limit = h.seq + 1, .pending = byte()};
    uint64_t keep[8], seq = 0;
    size_t count = below(8);
    for (size_t i = 0; i < count; i++)
        keep[i] = seq += 1 + byte() % (h.seq / 8 + 1);
    progress.keep = remember(keep, sizeof keep);
    progress.keep_count = count;
    return progress;
}

/* Submits a write: if it comes from the owner the model carries it out, else it is lost. */
static void submit_write(const struct asked *asked)
{
    FILE *out = tell();
    const fl_store_request *request = &asked->request;
    if (is_lost()) {
        fputs("FL_SHARD_LOST\n", out);
    } else if (request->op == FL_STORE_WRITE) {
        model_write(&h.model, request, out);
    } else if (request->op == FL_STORE_FINISH) {
        model_finish(&h.model, request, out);
    } else {
        if (request->op == FL_STORE_RECORD)
            model_record(&h.model, &request->record.progress);
        else if (request->op == FL_STORE_RENEW)
            h.model.claimed = request->renew.claim_us > 0;
        else
            h.model.owner = NULL;
        fputs("done\n", out);
    }
    submit(asked);
}

static void do_write(void)
{
    size_t count;
    const fl_store_change *changes = choose_changes(BATCH, &count);
    struct asked asked = to_write(h.versions[h.turn], changes, count);
    submit_write(&asked);
}

static void do_finish(void)
{
    struct fl_store_span spans[4];
    size_t count = 0;
    for (unsigned i = below(5); i > 0; i--) {
        uint64_t window = choose_window();
        size_t j = 0;
        while (j < count && spans[j].window != window)
            j++;
        if (j == count)
            spans[count++] = (struct fl_store_span){window, byte() % 4 == 0};
        h.finished[h.finished_count++ % FINISHED] = window;
    }
    struct asked asked = simple(FL_STORE_FINISH, h.versions[h.turn]);
    asked.request.finish.spans = remember(spans, sizeof spans);
    asked.request.finish.span_count = count;
    asked.request.finish.settled = choose_progress();
    asked.request.finish.record = choose_progress();
    submit_write(&asked);
}

static void do_small_write(void)
{
    uint64_t version = h.versions[h.turn];
    struct asked asked;
    unsigned i = byte();
    if (i % 8 == 0) {
        asked = simple(FL_STORE_RELEASE, version);
    } else if (i % 2) {
        asked = simple(FL_STORE_RENEW, version);
        asked.request.renew.claim_us = i % 4 == 1 ? HOUR_US : 0;
    } else {
        fl_progress progress = choose_progress();
        asked = to_record(version, &progress);
    }
    submit_write(&asked);
}

static void do_find(void)
{
    fl_store_want wants[BATCH];
    size_t count = below(BATCH + 1);
    for (size_t i = 0; i < count; i++)
        wants[i] = byte() % 2 ? (fl_store_want){.ns = choose_ns(), .name = choose_name()}
                              : (fl_store_want){.id = choose_key()};
    struct asked asked = to_find(remember(wants, sizeof wants), count);
    model_find(&h.model, &asked.request, tell());
    submit(&asked);
}

/* Some of the windows that are there, so that none overlaps another. */
static size_t choose_windows(uint64_t *out)
{
    uint64_t windows[WINDOWS];
    size_t there = model_windows(&h.model, windows, WINDOWS), count = 0;
    unsigned skip = byte();
    int64_t end = 0;
    for (size_t i = 0; i < there; i++, skip = skip >> 1 | (skip & 1) << 7) {
        if (skip & 1 || fl_window_begin(windows[i]) < end)
            continue;
        out[count++] = windows[i];
        end = fl_window_end(windows[i]);
    }
    return count;
}

static void do_load(void)
{
    uint64_t windows[WINDOWS];
    size_t count = choose_windows(windows);
    struct asked asked = to_load(remember(windows, sizeof windows), count);
    unsigned i = byte();
    if (i % 4 > 0)
        asked.request.load.limit = 1 + i / 4 % 32;
    if (byte() % 2)
        asked.request.load.from = choose_key();
    if (byte() % 2)
        asked.request.load.until_us = choose_time();
    model_load(&h.model, &asked.request, tell());
    submit(&asked);
}

static bool was_finished(uint64_t window)
{
    for (size_t i = 0; i < h.finished_count && i < FINISHED; i++)
        if (h.finished[i] == window)
            return true;
    return h.finished_count > FINISHED;
}

static uint64_t rows_told(const fl_store_request *request, uint64_t window)
{
    for (size_t i = 0; i < request->count.count; i++)
        if (request->count.windows[i].window == window)
            return request->count.windows[i].rows;
    return 0;
}

/* Counts the rows of all windows, of a namespace or of those that begin with a letter from some on. */
static void do_count(void)
{
    uint64_t windows[WINDOWS], told = 0, there = 0;
    struct asked asked = simple(FL_STORE_COUNT, 0);
    settle();
    if (byte() % 2)
        asked.request.count.ns = choose_ns();
    else
        asked.request.count.first_byte = (uint8_t)(byte() % 2 ? 'b' : 0);
    CHECK_EQ(perform(h.owners[h.turn], &asked), 0);
    const fl_store_request *request = &asked.request;
    size_t count = model_windows(&h.model, windows, WINDOWS);
    for (size_t i = 0; i < count; i++) {
        uint64_t rows = 0;
        for (size_t j = 0; j < h.model.count; j++) {
            const fl_row *row = &h.model.rows[j];
            bool wanted = request->count.ns.size > 0 ? same_bytes(row->ns, request->count.ns)
                                                     : *(const uint8_t *)row->ns.data >= request->count.first_byte;
            rows += row->window == windows[i] && wanted;
        }
        CHECK(was_finished(windows[i]) ? rows_told(request, windows[i]) >= rows
                                       : rows_told(request, windows[i]) == rows);
        there += was_finished(windows[i]) ? 0 : rows;
    }
    for (size_t i = 0; i < request->count.count; i++)
        told += was_finished(request->count.windows[i].window) ? 0 : request->count.windows[i].rows;
    CHECK(count == WINDOWS || told == there);
}

/* Lists a window page by page. */
static void do_list(void)
{
    struct asked asked = to_list(choose_window());
    asked.request.list.limit = 1 + below(20);
    if (byte() % 2)
        asked.request.list.ns = choose_ns();
    if (byte() % 2)
        asked.request.list.prefix = (fl_bytes){choose_name().data, 1 + below(2)};
    if (byte() % 2)
        asked.request.list.from_us = choose_time();
    if (byte() % 2)
        asked.request.list.until_us = choose_time();
    settle();
    model_list(&h.model, &asked.request, tell());
    char *expected = told();
    FILE *out = tell();
    do {
        struct asked page = asked;
        CHECK_EQ(perform(h.owners[h.turn], &page), 0);
        CHECK(page.request.list.count <= page.request.list.limit);
        for (size_t i = 0; i < page.request.list.count; i++)
            tell_row(out, &page.request.list.rows[i]);
        CHECK(page.request.list.next_seq == 0 || page.request.list.next_seq > page.request.list.after_seq);
        asked.request.list.after_seq = page.request.list.next_seq;
    } while (asked.request.list.after_seq > 0);
    compare(FL_STORE_LIST, expected, told());
}

static void do_list_dead(void)
{
    struct asked asked = to_list_dead();
    asked.request.dead_list.limit = 1 + below(8);
    if (byte() % 2)
        asked.request.dead_list.ns = choose_ns();
    if (byte() % 4 == 0)
        asked.request.dead_list.id_seq = byte();
    settle();
    model_list_dead(&h.model, &asked.request, tell());
    char *expected = told();
    FILE *out = tell();
    do {
        struct asked page = asked;
        CHECK_EQ(perform(h.owners[h.turn], &page), 0);
        CHECK(page.request.dead_list.count <= page.request.dead_list.limit);
        for (size_t i = 0; i < page.request.dead_list.count; i++)
            tell_dead(out, &page.request.dead_list.rows[i]);
        asked.request.dead_list.after_seq = page.request.dead_list.next_seq;
    } while (asked.request.dead_list.after_seq > 0);
    compare(FL_STORE_DEAD_LIST, expected, told());
}

/* Files a window again to the end: which rows a step takes is the store's choice. */
static void do_refile(void)
{
    uint64_t window = choose_window(), parts = 0;
    if (fl_window_shift(window) == FL_WINDOW_SHIFT_MIN)
        return;
    settle();
    struct asked asked = to_refile(h.versions[h.turn], window, 1 + below(20));
    if (is_lost()) {
        CHECK_EQ(perform(h.owners[h.turn], &asked), FL_SHARD_LOST);
        return;
    }
    size_t moved = 0;
    for (bool more = true; more;) {
        struct asked part = asked;
        CHECK_EQ(perform(h.owners[h.turn], &part), 0);
        more = part.request.refile.more;
        CHECK(part.request.refile.moved <= part.request.refile.limit && (!more || part.request.refile.moved > 0));
        moved += part.request.refile.moved;
        parts |= part.request.refile.parts;
    }
    model_refile(&h.model, &asked.request, tell());
    char *expected = told();
    tell_refiled(tell(), moved, parts);
    compare(FL_STORE_REFILE, expected, told());
}

/* A claim counts the rows that are not settled. */
static void check_counts(const struct asked *asked)
{
    size_t counted = 0, there = 0;
    for (size_t i = 0; i < asked->request.claim.count_count; i++) {
        const fl_store_count *count = &asked->request.claim.counts[i];
        size_t rows = 0;
        for (size_t j = 0; j < h.model.count; j++)
            rows += count->ns.size == h.model.rows[j].ns.size &&
                    memcmp(count->ns.data, h.model.rows[j].ns.data, count->ns.size) == 0 &&
                    !fl_progress_settled(&h.model.progress, h.model.rows[j].key);
        CHECK_EQ(count->rows, rows);
        counted += rows;
    }
    for (size_t j = 0; j < h.model.count; j++)
        there += !fl_progress_settled(&h.model.progress, h.model.rows[j].key);
    CHECK_EQ(counted, there);
}

static void check_claimed(const struct asked *asked)
{
    check_counts(asked);
    CHECK(asked->request.claim.version > h.model.version);
    tell_progress(tell(), &h.model.progress);
    char *expected = told();
    tell_progress(tell(), &asked->request.claim.progress);
    compare(FL_STORE_CLAIM, expected, told());
    for (size_t i = 0; i < h.model.count; i++) {
        size_t j = 0;
        while (j < asked->request.claim.window_count && asked->request.claim.windows[j] != h.model.rows[i].window)
            j++;
        CHECK(j < asked->request.claim.window_count);
    }
}

static void do_claim(void)
{
    static const char *const names[2] = {"first", "second"};
    unsigned i = byte();
    uint64_t claim_us = i % 2 ? HOUR_US : 0;
    settle();
    struct asked asked = to_claim(names[h.turn], claim_us, i / 2 % 2);
    bool held = h.model.owner && strcmp(h.model.owner, names[h.turn]) != 0 && h.model.claimed && i / 2 % 2 == 0;
    CHECK_EQ(perform(h.owners[h.turn], &asked), held ? FL_SHARD_HELD : 0);
    if (held)
        return;
    check_claimed(&asked);
    h.model.owner = names[h.turn];
    h.model.claimed = claim_us > 0;
    h.model.version = h.versions[h.turn] = asked.request.claim.version;
}

static void do_turn(void)
{
    settle();
    h.turn = 1 - h.turn;
}

/* As a crash would have it: all attachments are dropped, and the store is opened again if it survives that. */
static void do_restart(void)
{
    settle();
    detach(h.owners[1]);
    if (under_test.reopen) {
        reopen();
        h.model.claimed &= !under_test.claims_end;
    } else {
        detach(shard);
        shard = attach(0);
    }
    h.owners[0] = shard;
    h.owners[1] = attach(0);
}

static void do_something(void)
{
    static void (*const doings[])(void) = {do_write,  do_write, do_write,     do_write,  do_write,       do_find,
                                           do_find,   do_load,  do_load,      do_finish, do_small_write, do_refile,
                                           do_refile, do_list,  do_list_dead, do_count};
    unsigned i = byte();
    if (i == 255)
        do_restart();
    else if (i >= 250)
        do_turn();
    else if (i >= 240 || h.versions[h.turn] == 0)
        do_claim();
    else
        doings[i % (sizeof doings / sizeof *doings)]();
}

/* Everything that should be there is there, and nothing else. */
static void check_all(void)
{
    uint64_t windows[WINDOWS];
    size_t count = model_windows(&h.model, windows, WINDOWS);
    for (size_t i = 0; i < count; i++) {
        struct asked asked = to_load(&windows[i], 1);
        model_load(&h.model, &asked.request, tell());
        submit(&asked);
        settle();
    }
    for (size_t i = 0; i < h.model.count; i++) {
        fl_row *row = &h.model.rows[i];
        fl_store_want wants[3] = {{.id = row->key}, {.id = row->id}, {.ns = row->ns, .name = row->name}};
        struct asked asked = to_find(wants, row->name.size > 0 ? 3 : 2);
        model_find(&h.model, &asked.request, tell());
        submit(&asked);
        settle();
    }
}

int store_history(const uint8_t *bytes, size_t size)
{
    begin();
    memset(&h, 0, sizeof h);
    h.model.progress.seq_limit = 2;
    h.at = bytes;
    h.end = bytes + size;
    h.owners[0] = shard;
    h.owners[1] = attach(0);
    while (h.at < h.end && h.model.count + BATCH < MODEL_ROWS && h.model.dead_count + BATCH < MODEL_ROWS)
        do_something();
    settle();
    check_all();
    detach(h.owners[1]);
    end();
    return 0;
}
