/* SPDX-License-Identifier: MIT */
/* History: GET /v1/history/{namespace}. history_delete.c erases it.
 *
 * Each shard gives its rows newest first, in the order in which they were written. A page is merged of them: it takes the row
 * that ended last, of all shards, until it has as many as were asked for. The cursor says how far each shard was read. An
 * ID, a name and a schedule have their history in one shard, and only that is asked. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/assert.h"
#include "base/utf8.h"
#include "base/varint.h"
#include "text/when.h"

enum { LIMIT = 100, LIMIT_MOST = 1000, PIECES = 100, ROUNDS = 40 };

static const char *const result_names[HISTORY_RESULTS] = {
    [HISTORY_DONE] = "done",           [HISTORY_FAILED] = "failed",   [HISTORY_DEAD] = "dead",
    [HISTORY_AGAIN] = "again",         [HISTORY_EXPIRED] = "expired", [HISTORY_SKIPPED] = "skipped",
    [HISTORY_CANCELLED] = "cancelled",
};

/* A source of the merge: the rows of one shard. */
struct source {
    struct shard_call page;
    struct past *past;
    struct out rows; /* as JSON */
    struct piece {
        size_t end; /* in `rows` */
        int64_t ended_us;
        uint64_t seq;
    } pieces[PIECES];
    size_t count, next;
    uint64_t began[2]; /* the cursor with which the page began */
    int result;
    bool more; /* behind these */
};

struct past {
    struct call *call;
    uint64_t left; /* rows that the page still takes */
    size_t written, ask, waiting;
    unsigned rounds;
    uint32_t results;
    int64_t from_us, until_us;
    fl_key id;
    fl_bytes name, schedule;
    char name_room[FL_STORE_NAME_MAX + 1], schedule_room[FL_STORE_NAME_MAX + 1];
    size_t source_count;
    struct source sources[];
};

/* --- A row as JSON ------------------------------------------------------------------------------------------------ */

static void write_bytes(struct out *out, const char *key, fl_bytes bytes)
{
    if (bytes.size == 0)
        return;
    out_key(out, key);
    out_string(out, bytes);
}

static void write_time(struct out *out, const char *key, int64_t us)
{
    if (us == 0)
        return;
    out_key(out, key);
    out_time(out, us);
}

static void write_number(struct out *out, const char *key, uint64_t number)
{
    out_key(out, key);
    out_number(out, (int64_t)number);
}

/* A response may be cut within a character. */
static void write_response(struct out *out, fl_bytes response)
{
    size_t size = response.size;
    for (int i = 0; i < 4 && size > 0 && !fl__utf8_is_good(response.data, size); i++)
        size--;
    if (response.size > 0 && size > 0 && fl__utf8_is_good(response.data, size)) {
        write_bytes(out, "response", (fl_bytes){response.data, size});
    } else if (response.size > 0) {
        out_key(out, "response_base64");
        out_base64(out, response);
    }
}

static void write_row(struct out *out, uint32_t shard, const fl_history_row *row, const struct history_entry *entry)
{
    char id[FL_ID_TEXT + 1];
    out_put(out, "{", 1);
    if (row->id.seq > 0) {
        fl_id_format(shard, row->id, id);
        write_bytes(out, "id", bytes_of(id));
    }
    write_bytes(out, "name", row->name);
    write_bytes(out, "schedule", row->schedule);
    write_time(out, "occurrence", entry->occurrence_us);
    write_time(out, "due", entry->due_us);
    if (entry->attempt > 0)
        write_number(out, "attempt", entry->attempt);
    write_time(out, "began", entry->began_us);
    write_number(out, "late_ms", entry->late_us / 1000);
    write_number(out, "took_ms", entry->took_us / 1000);
    write_bytes(out, "target", entry->target);
    if (entry->status > 0)
        write_number(out, "status", entry->status);
    fl__assert(row->result < HISTORY_RESULTS);
    write_bytes(out, "result", bytes_of(result_names[row->result]));
    write_bytes(out, "reason", entry->reason);
    if (entry->count > 0)
        write_number(out, "count", entry->count);
    write_response(out, entry->response);
    out_put(out, "}", 1);
}

/* --- What is asked for -------------------------------------------------------------------------------------------- */

static int bad(struct call *call, const char *field, const char *what)
{
    return problem_set(&call->problem, 400, "invalid-field", field, "%s must be %s", field, what);
}

static int read_result(struct call *call, uint32_t *ret)
{
    char room[16];
    fl_bytes text;
    int given = call_query(call, "result", room, sizeof room, &text);
    if (given <= 0)
        return given;
    for (uint32_t i = 0; i < HISTORY_RESULTS; i++)
        if (strlen(result_names[i]) == text.size && memcmp(result_names[i], room, text.size) == 0) {
            *ret = 1u << i;
            return 0;
        }
    return bad(call, "result", "done, failed, dead, again, expired, skipped or cancelled");
}

/* A place has numbers (base/varint.h): the highest position, then two for each shard, how far its position is below that, plus
 * one, and its span; 0 for a shard that is at its end. With many shards, a cursor must still fit into a URL. */
static bool parse_positions(struct past *past, fl_bytes place)
{
    const unsigned char *at = place.data, *end = at + place.size;
    uint64_t top, below;
    if (!fl__varint_get(&at, end, &top))
        return false;
    for (size_t i = 0; i < past->source_count; i++) {
        struct source *source = &past->sources[i];
        uint64_t *part = source->page.past.cursor.part;
        if (!fl__varint_get(&at, end, &below) || below > top + 1)
            return false;
        source->more = below > 0;
        part[1] = below > 0 ? top + 1 - below : 0;
        if (below > 0 && !fl__varint_get(&at, end, &part[0]))
            return false;
    }
    return at == end;
}

static size_t place_room(const struct past *past)
{
    return FL__VARINT_MAX * (1 + 2 * past->source_count);
}

static int read_cursor(struct call *call, struct past *past)
{
    fl_bytes place;
    char *room = malloc(place_room(past));
    if (!room)
        return problem_of_result(&call->problem, FL_NO_MEMORY);
    int given = cursor_read(call, room, place_room(past), &place);
    if (given > 0 && !parse_positions(past, place))
        given = cursor_refuse(call);
    free(room);
    return given < 0 ? -1 : 0;
}

static const char *const known[] = {"id", "name", "schedule", "result", "after", "before", "limit", "cursor", NULL};

/* Reads all but the cursor. Sets the only shard that is asked, or leaves it NULL. */
static int read_filter(struct call *call, struct past *past, struct shard **ret_shard)
{
    struct node *node = call->worker->node;
    char room[SCHEDULE_NS_ROOM];
    struct shard *by_id = NULL;
    if (call_check_query(call, known) < 0 || history_read_id(call, &past->id, &by_id) < 0 ||
        read_result(call, &past->results) < 0 || call_count(call, "limit", LIMIT_MOST, &past->left) < 0 ||
        call_bound(call, "after", &past->from_us) < 0 || call_bound(call, "before", &past->until_us) < 0)
        return -1;
    int name = call_query(call, "name", past->name_room, FL_STORE_NAME_MAX, &past->name);
    int schedule = call_query(call, "schedule", past->schedule_room, FL_STORE_NAME_MAX, &past->schedule);
    if (name < 0 || schedule < 0)
        return -1;
    if ((name > 0 && past->name.size == 0) || (schedule > 0 && past->schedule.size == 0))
        return bad(call, name > 0 && past->name.size == 0 ? "name" : "schedule", "a name of 1 to 255 bytes");
    *ret_shard = by_id                     ? by_id
                 : past->name.size > 0     ? shard_of_name(node, call->ns, past->name)
                 : past->schedule.size > 0 ? shard_of_name(node, schedule_ns(call->ns, room), past->schedule)
                                           : NULL;
    return 0;
}

/* --- Pages -------------------------------------------------------------------------------------------------------- */

static void past_free(struct past *past)
{
    for (size_t i = 0; i < past->source_count; i++)
        out_free(&past->sources[i].rows);
    free(past);
}

/* On the shard's worker, or at home. What does not fit is asked for again. */
static void render(struct shard_call *page)
{
    struct source *source = (struct source *)page;
    const fl_history_listing *listing = &page->past;
    struct history_entry entry;
    size_t most = LIST_BYTES / source->past->source_count;
    out_clear(&source->rows);
    source->count = source->next = 0;
    source->result = listing->result;
    source->more = listing->result == 0 && listing->more;
    for (size_t i = 0; i < listing->count && listing->result == 0; i++) {
        const fl_history_row *row = &listing->found[i];
        if (source->count == PIECES || source->rows.size > most) {
            source->more = true;
            break;
        }
        if (!history_read(row, &entry))
            continue; /* of a later version */
        write_row(&source->rows, page->shard->number, row, &entry);
        source->pieces[source->count++] = (struct piece){source->rows.size, entry.ended_us, row->seq};
    }
    if (source->rows.failed)
        source->result = FL_NO_MEMORY;
}

static void merge(struct past *past);

static void back(struct shard_call *page)
{
    struct past *past = ((struct source *)page)->past;
    fl__assert(past->waiting > 0);
    if (--past->waiting == 0)
        merge(past);
}

/* If a page was cut, its cursor is behind what was left out. */
static void ask(struct past *past, struct source *source)
{
    uint64_t *part = source->page.past.cursor.part;
    if (source->count > 0) {
        part[0] = source->began[0];
        part[1] = source->pieces[source->count - 1].seq;
    }
    source->began[0] = part[0];
    source->began[1] = part[1];
    fl__assert(source->more && past->ask > 0 && past->ask <= PIECES);
    source->page.past.limit = past->ask;
    source->count = source->next = 0;
    past->waiting++;
    shard_call_submit(&source->page);
}

/* Asks the shards whose rows are used up. Returns whether all of them have answered already; if not, back() goes on. */
static bool ask_empty(struct past *past)
{
    past->waiting++; /* for ourselves: answers may come at once */
    for (size_t i = 0; i < past->source_count; i++)
        if (past->sources[i].next == past->sources[i].count && past->sources[i].more)
            ask(past, &past->sources[i]);
    return --past->waiting == 0;
}

/* Where a shard goes on: behind the last of its rows that was taken. */
static uint64_t position_of(const struct source *source, uint64_t *ret_span)
{
    *ret_span = source->count > 0 ? source->began[0] : source->page.past.cursor.part[0];
    if (source->next < source->count)
        return source->next > 0 ? source->pieces[source->next - 1].seq : source->pieces[0].seq + 1;
    return source->count > 0 ? source->pieces[source->count - 1].seq : source->page.past.cursor.part[1];
}

static bool is_at_end(const struct source *source)
{
    return source->next == source->count && !source->more;
}

static void write_cursor(struct past *past)
{
    struct call *call = past->call;
    unsigned char *room = malloc(place_room(past));
    uint64_t top = 0, span;
    if (!room) {
        call->out.failed = true;
        return;
    }
    for (size_t i = 0; i < past->source_count; i++) {
        uint64_t position = is_at_end(&past->sources[i]) ? 0 : position_of(&past->sources[i], &span);
        top = position > top ? position : top;
    }
    size_t size = fl__varint_put(room, top);
    for (size_t i = 0; i < past->source_count; i++) {
        bool over = is_at_end(&past->sources[i]);
        size += fl__varint_put(room + size, over ? 0 : top + 1 - position_of(&past->sources[i], &span));
        size += over ? 0 : fl__varint_put(room + size, span);
    }
    cursor_write(call, (fl_bytes){room, size});
    free(room);
}

static void finish(struct past *past)
{
    struct call *call = past->call;
    bool more = false;
    for (size_t i = 0; i < past->source_count; i++)
        more |= !is_at_end(&past->sources[i]);
    out_text(&call->out, "]");
    if (more)
        write_cursor(past);
    out_text(&call->out, "}");
    past_free(past);
    call_answer(call, 200);
}

static void take(struct past *past, struct source *source)
{
    fl__assert(source->next < source->count && past->left > 0);
    size_t from = source->next > 0 ? source->pieces[source->next - 1].end : 0;
    struct out *out = &past->call->out;
    if (past->written++ > 0)
        out_put(out, ",", 1);
    out_put(out, source->rows.data + from, source->pieces[source->next].end - from);
    source->next++;
    past->left--;
}

/* The source whose next row ended last; NULL: there are none. Sets whether one must be asked first. */
static struct source *newest(struct past *past, bool *ret_ask)
{
    struct source *best = NULL;
    *ret_ask = false;
    for (size_t i = 0; i < past->source_count; i++) {
        struct source *source = &past->sources[i];
        if (source->next == source->count)
            *ret_ask |= source->more;
        else if (!best || source->pieces[source->next].ended_us > best->pieces[best->next].ended_us)
            best = source;
    }
    return best;
}

/* Refuses the request if a shard failed. */
static bool has_failed(struct past *past)
{
    struct call *call = past->call;
    int result = 0;
    for (size_t i = 0; i < past->source_count && result == 0; i++)
        if (past->sources[i].result < 0)
            result = past->sources[i].result;
    if (result == 0)
        return false;
    past_free(past);
    if (result == FL_INVALID_ARGUMENT) /* everything else was looked at before */
        cursor_refuse(call);
    else
        problem_of_result(&call->problem, result);
    call_refuse(call);
    return true;
}

static void merge(struct past *past)
{
    if (has_failed(past))
        return;
    while (past->left > 0 && past->call->out.size < LIST_BYTES) {
        bool must_ask;
        struct source *source = newest(past, &must_ask);
        if (must_ask && past->rounds++ < ROUNDS) {
            if (!ask_empty(past) || has_failed(past))
                return;
            continue;
        }
        if (must_ask || !source)
            break;
        take(past, source);
    }
    finish(past);
}

static void sources_new(struct past *past, struct shard *only)
{
    fl__assert(past->source_count > 0 && past->left > 0);
    struct node *node = past->call->worker->node;
    size_t share = 2 * past->left / past->source_count + 10;
    past->ask = share < past->left ? share : past->left;
    if (past->ask > PIECES)
        past->ask = PIECES;
    for (size_t i = 0; i < past->source_count; i++) {
        struct source *source = &past->sources[i];
        source->past = past;
        source->more = true;
        source->page.kind = CALL_HISTORY;
        source->page.shard = only ? only : &node->shards[i];
        source->page.errand.home = past->call->worker;
        source->page.render = render;
        source->page.done = back;
        source->page.past = (fl_history_listing){.ns = past->call->ns,
                                                 .name = past->name,
                                                 .schedule = past->schedule,
                                                 .id = past->id,
                                                 .results = past->results,
                                                 .from_us = past->from_us,
                                                 .until_us = past->until_us};
    }
}

void history_list(struct call *call)
{
    size_t count = call->worker->node->shard_count;
    struct shard *only = NULL;
    struct past *past = calloc(1, sizeof *past + count * sizeof *past->sources);
    if (!past) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    past->call = call;
    past->left = LIMIT;
    int r = read_filter(call, past, &only);
    past->source_count = only ? 1 : count;
    if (r == 0) {
        sources_new(past, only);
        r = read_cursor(call, past);
    }
    if (r < 0) {
        past_free(past);
        call_refuse(call);
        return;
    }
    out_text(&call->out, "{\"history\":[");
    merge(past);
}
