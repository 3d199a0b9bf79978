/* SPDX-License-Identifier: MIT */
/* What each kind of request says to the database, and what it makes of the answer.
 *
 * Writes are one exchange: begin, fence, statements; commit; and so are meetings, without a fence (meet.c). Finding and
 * listing are single statements. Two kinds take several exchanges, and have the connection for themselves meanwhile. A claim
 * locks the shard's row, looks at who has it, and takes it in the same transaction. A load reads page by page in one
 * snapshot, each page from the number at which the one before ended: that is one step of the index, it bounds what is in
 * memory, and it works the same in every database. The next page is asked for before the rows of the last one are handed on.
 * If the connection breaks, a load goes on where it was: nothing of ours can have been written since.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "store/postgres/postgres.h"

enum { PAGE_FIRST = 128, PAGE_MAX = 1024, PAGE_BYTES = 1 << 20 };

bool fl__pg_is_write(const fl_store_request *request)
{
    switch (request->op) {
    case FL_STORE_RENEW:
    case FL_STORE_RELEASE:
    case FL_STORE_WRITE:
    case FL_STORE_REFILE:
    case FL_STORE_FINISH:
    case FL_STORE_RECORD:
    case FL_STORE_FORGET:
        return true;
    default:
        return false;
    }
}

bool fl__pg_is_alone(const fl_store_request *request)
{
    return request->op == FL_STORE_CLAIM || request->op == FL_STORE_LOAD || request->op == FL_STORE_MEET;
}

bool fl__pg_is_unowned(const fl_store_request *request)
{
    return request->op == FL_STORE_CLAIM || request->op == FL_STORE_MEET;
}

/* --- Errors ------------------------------------------------------------------------------------------------------- */

static const char *sqlstate(const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    return state ? state : "";
}

bool fl__pg_is_retry(const PGresult *result)
{
    static const char *const states[] = {"40001", "40P01", "55P03"};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(sqlstate(result), states[i]) == 0)
            return true;
    return false;
}

bool fl__pg_is_node_down(const PGresult *result)
{
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    return strncmp(sqlstate(result), "08", 2) == 0 && severity && strcmp(severity, "ERROR") == 0;
}

bool fl__pg_is_broken(const PGresult *result)
{
    static const char *const states[] = {"40003", "57P01", "57P02", "57P03", "57P05", "25P03"};
    const char *state = sqlstate(result);
    if (state[0] == 0) /* libpq's own */
        return true;
    if (strncmp(state, "08", 2) == 0)
        return !fl__pg_is_node_down(result);
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(state, states[i]) == 0)
            return true;
    return false;
}

static bool is_state(const char *text)
{
    bool digit = false;
    for (unsigned i = 0; i < 5; i++) {
        if (!(text[i] >= '0' && text[i] <= '9') && !(text[i] >= 'A' && text[i] <= 'Z'))
            return false;
        digit = digit || text[i] <= '9'; /* every SQLSTATE has one, and "FATAL" and "ERROR" have none */
    }
    return digit;
}

const char *fl__pg_find_state(const char *text)
{
    for (const char *end = strstr(text, ": "); end; end = strstr(end + 1, ": "))
        if (end - text >= 5 && (end - text == 5 || end[-6] == ' ') && is_state(end - 5))
            return end - 5;
    return NULL;
}

#define POOLER                                                                                               \
    "a connection pooler in transaction mode does not work; use its session mode, or connect to PostgreSQL " \
    "directly"

/* The database's own texts are in its language: it is known by the SQLSTATE. libpq's are English, since the program does
 * not set its locale for messages. The first that fits is taken. */
const char *fl__pg_advice(const char *state, const char *text)
{
    static const struct {
        const char *state, *text; /* how the SQLSTATE begins; what the text contains. "": any */
        const char *advice;
    } table[] = {
        {"26000", "", POOLER},
        {"42P05", "", POOLER},
        {"08P01", "startup parameter",
         "a connection pooler refuses a parameter of the URL; add it to the pooler's ignore_startup_parameters, or set"
         " it for the role (ALTER ROLE ... SET ...)"},
        {"25006", "",
         "this server is read-only; name the primary in the URL, or several hosts and"
         " target_session_attrs=read-write"},
        {"42501", "",
         "the role in the URL needs SELECT, INSERT, UPDATE and DELETE on the tables of the store, USAGE on"
         " their schema, and CREATE there if they do not exist yet"},
        {"3F000", "", "create the schema and give the role USAGE on it, or name another one in search_path"},
        {"28P01", "", "check the user and the password in the URL of the store"},
        {"28", "no encryption",
         "pg_hba.conf of the server demands TLS or refuses this address; set sslmode=require"
         " in the URL"},
        {"28", "",
         "pg_hba.conf of the server refuses this user, address or kind of connection; if it demands TLS, set"
         " sslmode=require in the URL"},
        {"3D000", "", "create the database, or name another one in the URL"},
        {"53300", "", "the server has no free connection, and each shard needs one; raise max_connections"},
        {"", "server does not support SSL",
         "the URL demands TLS (sslmode), and the server offers none; enable TLS on"
         " the server, or change sslmode"},
        {"", "no password supplied", "give the password in the URL of the store, or in a file with passfile=FILE"},
    };
    const char *found = *state ? state : fl__pg_find_state(text);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if ((!*table[i].state || (found && strncmp(found, table[i].state, strlen(table[i].state)) == 0)) &&
            strstr(text, table[i].text))
            return table[i].advice;
    return "";
}

int fl__pg_code(const PGresult *result)
{
    static const struct {
        const char *state; /* or how it begins */
        int code;
    } codes[] = {
        {"53100", FL_STORE_FULL},    {"53200", FL_NO_MEMORY},     {"25006", FL_STORE_READ_ONLY},
        {"XX001", FL_STORE_CORRUPT}, {"XX002", FL_STORE_CORRUPT}, {"42P01", FL_STORE_CORRUPT},
        {"42703", FL_STORE_CORRUPT}, {"22", FL_INVALID_ARGUMENT}, {"23", FL_INVALID_ARGUMENT},
        {"54", FL_TOO_LARGE},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strncmp(sqlstate(result), codes[i].state, strlen(codes[i].state)) == 0)
            return codes[i].code;
    return FL_STORE_UNAVAILABLE;
}

static void take_error(struct pg_flight *flight, const PGresult *result)
{
    if (flight->request->result < 0 || flight->redo)
        return;
    bool can_redo = fl__pg_is_write(flight->request) || fl__pg_is_alone(flight->request);
    if (can_redo && fl__pg_is_retry(result)) {
        flight->redo = true;
    } else if (strcmp(sqlstate(result), "23505") == 0 && !flight->replace) {
        flight->replace = flight->redo = true;
    } else {
        const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
        const char *text = message ? message : "an error", *advice = fl__pg_advice(sqlstate(result), text);
        fl__store_answer(flight->request, fl__pg_code(result), "%s%sPostgreSQL: %s: %s%s", advice, *advice ? " (" : "",
                         sqlstate(result), text, *advice ? ")" : "");
    }
}

static void fail(struct pg_flight *flight, int code)
{
    if (flight->request->result == 0)
        fl__store_answer(flight->request, code, NULL);
}

/* --- Writes ------------------------------------------------------------------------------------------------------- */

/* Begins the transaction of a write and its fence; `args` has room for it, and for one argument more. */
static void begin_fence(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    shard->chained = true;
    shard->version = flight->request->version;
    flight->number = ++shard->number;
    fl__pg_transact(shard, flight);
    fl__pg_begin_write(shard);
    fl__pg_int(args, flight->request->version < INT64_MAX ? flight->request->version : 0);
    fl__pg_int(args, shard->sent);
    fl__pg_int(args, flight->number);
    shard->sent = flight->number;
}

static void begin_write(struct pg_shard *shard, struct pg_flight *flight)
{
    begin_fence(shard, flight);
    fl__pg_say(shard, flight, PG_FENCE, &shard->args);
}

void fl__pg_commit(struct pg_shard *shard, struct pg_flight *flight)
{
    fl__pg_sync(shard, flight);
    fl__pg_say(shard, flight, PG_COMMIT, NULL);
    fl__pg_sync(shard, flight);
}

static int start_renew(struct pg_shard *shard, struct pg_flight *flight)
{
    if (!fl__pg_reserve(&shard->args, 5 * PG_INT_SIZE))
        return FL_NO_MEMORY;
    begin_fence(shard, flight);
    fl__pg_int(&shard->args, fl__pg_claim(flight->request->renew.claim_us));
    fl__pg_say(shard, flight, PG_RENEW, &shard->args);
    fl__pg_commit(shard, flight);
    return 0;
}

static int start_release(struct pg_shard *shard, struct pg_flight *flight)
{
    if (!fl__pg_reserve(&shard->args, 4 * PG_INT_SIZE))
        return FL_NO_MEMORY;
    begin_fence(shard, flight);
    fl__pg_say(shard, flight, PG_RELEASE, &shard->args);
    fl__pg_commit(shard, flight);
    return 0;
}

static int start_write(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_batch batch;
    fl_store_request *request = flight->request;
    int r = fl__pg_batch_make(shard, request->write.changes, request->write.count, flight->replace, &batch);
    if (r < 0)
        return r;
    begin_write(shard, flight);
    fl__pg_batch_send(shard, flight, &batch);
    fl__pg_batch_release(&batch);
    fl__pg_commit(shard, flight);
    return 0;
}

/* `args` has room for it. */
static void send_record(struct pg_shard *shard, struct pg_flight *flight, const fl_progress *progress,
                        unsigned char *encoded)
{
    size_t size = fl__progress_encode(progress, encoded);
    fl__pg_begin_write(shard);
    fl__pg_bytes(&shard->args, (fl_bytes){encoded, size});
    fl__pg_say(shard, flight, PG_RECORD, &shard->args);
}

static int start_record(struct pg_shard *shard, struct pg_flight *flight)
{
    const fl_progress *progress = &flight->request->record.progress;
    const fl_history_change *history = &flight->request->record.history;
    size_t size = fl__progress_size(progress);
    unsigned char *encoded = fl__alloc(size);
    if (!encoded || !fl__pg_reserve(&shard->args, 4 * PG_INT_SIZE + size + fl__pg_history_room(history))) {
        fl__release(encoded);
        return FL_NO_MEMORY;
    }
    begin_write(shard, flight);
    fl__pg_history_send(shard, flight, history);
    send_record(shard, flight, progress, encoded);
    fl__pg_commit(shard, flight);
    fl__release(encoded);
    return 0;
}

static int start_forget(struct pg_shard *shard, struct pg_flight *flight)
{
    if (!fl__pg_reserve(&shard->args, 8 * PG_INT_SIZE + flight->request->forget.ns.size))
        return FL_NO_MEMORY;
    flight->request->forget.erased = 0;
    begin_write(shard, flight);
    fl__pg_history_forget(shard, flight);
    fl__pg_commit(shard, flight);
    return 0;
}

static void part_windows(const fl_store_request *request, uint64_t windows[64])
{
    int64_t begin = fl_window_begin(request->refile.window);
    for (unsigned i = 0; i < 64; i++)
        windows[i] = fl_window_of(begin + ((int64_t)i << request->refile.shift), request->refile.shift);
}

static int start_refile(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    fl_store_request *request = flight->request;
    if (!fl__pg_reserve(args, PG_ARRAY_SIZE + 70 * PG_INT_SIZE))
        return FL_NO_MEMORY;
    request->refile.parts = request->refile.moved = request->refile.more = 0;
    begin_write(shard, flight);
    fl__pg_begin_write(shard);
    fl__pg_int(args, request->refile.window);
    fl__pg_int(args, request->refile.shift);
    fl__pg_int(args, request->refile.limit < INT64_MAX ? request->refile.limit : INT64_MAX);
    fl__pg_say(shard, flight, PG_REFILE, args);
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_int(args, request->refile.window);
    fl__pg_say(shard, flight, PG_REST, args);
    if (flight->doubt) { /* what came of it the first time is no longer known: all parts in which there is something */
        uint64_t windows[64];
        part_windows(request, windows);
        fl__pg_begin(args);
        fl__pg_int(args, shard->base.shard);
        fl__pg_array(args, PG_OID_BIGINT, 64, false);
        for (int i = 0; i < 64; i++)
            fl__pg_item_int(args, windows[i]);
        fl__pg_array_end(args);
        fl__pg_say(shard, flight, PG_PARTS, args);
    }
    fl__pg_commit(shard, flight);
    return 0;
}

static void take_refile(struct pg_flight *flight, unsigned what, const PGresult *result)
{
    fl_store_request *request = flight->request;
    if (what == PG_REST) {
        request->refile.more = PQntuples(result) > 0;
        return;
    }
    for (int i = 0; i < PQntuples(result); i++) {
        uint64_t window = fl__pg_get_int(result, i, 0);
        int64_t into = fl_window_begin(window) - fl_window_begin(request->refile.window);
        request->refile.parts |= (uint64_t)1 << (into >> request->refile.shift & 63);
        if (what == PG_REFILE)
            request->refile.moved += fl__pg_get_int(result, i, 1);
    }
}

/* --- Finishing ---------------------------------------------------------------------------------------------------- */

static size_t count_spans(const fl_store_request *request, bool whole)
{
    size_t count = 0;
    for (size_t i = 0; i < request->finish.span_count; i++)
        count += request->finish.spans[i].whole == whole;
    return count;
}

static void spans_array(struct pg_args *args, const fl_store_request *request, bool whole)
{
    fl__pg_array(args, PG_OID_BIGINT, count_spans(request, whole), false);
    for (size_t i = 0; i < request->finish.span_count; i++)
        if (request->finish.spans[i].whole == whole)
            fl__pg_item_int(args, request->finish.spans[i].window);
    fl__pg_array_end(args);
}

static void put_progress(struct pg_args *args, const fl_progress *settled)
{
    for (int i = 0; i < 2; i++) {
        fl__pg_int(args, (uint64_t)settled->front[i].at_us);
        fl__pg_int(args, settled->front[i].seq);
    }
    fl__pg_array(args, PG_OID_BIGINT, settled->keep_count, false);
    for (size_t i = 0; i < settled->keep_count; i++)
        fl__pg_item_int(args, settled->keep[i]);
    fl__pg_array_end(args);
}

static void send_settled(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    if (count_spans(flight->request, false) == 0)
        return;
    fl__pg_begin_write(shard);
    put_progress(args, &flight->request->finish.settled);
    spans_array(args, flight->request, false);
    fl__pg_say(shard, flight, PG_COUNT_SETTLED, args);
    fl__pg_say(shard, flight, PG_SETTLED, args);
}

static void send_drop(struct pg_shard *shard, struct pg_flight *flight)
{
    if (count_spans(flight->request, true) == 0)
        return;
    fl__pg_begin_write(shard);
    spans_array(&shard->args, flight->request, true);
    fl__pg_say(shard, flight, PG_COUNT_DROP, &shard->args);
    fl__pg_say(shard, flight, PG_DROP, &shard->args);
}

/* Entries of moved rows that led into these windows; windows that follow each other are one range. */
static void send_sweep(struct pg_shard *shard, struct pg_flight *flight)
{
    const fl_store_request *request = flight->request;
    for (size_t i = 0, next; i < request->finish.span_count; i = next) {
        uint64_t last = request->finish.spans[i].window;
        for (next = i + 1; next < request->finish.span_count; next++) {
            if (fl_window_begin(request->finish.spans[next].window) != fl_window_end(last))
                break;
            last = request->finish.spans[next].window;
        }
        fl__pg_begin_write(shard);
        fl__pg_int(&shard->args, (uint64_t)fl_window_begin(request->finish.spans[i].window));
        fl__pg_int(&shard->args, (uint64_t)fl_window_end(last));
        fl__pg_say(shard, flight, PG_SWEEP, &shard->args);
    }
}

static void send_spans(struct pg_shard *shard, struct pg_flight *flight)
{
    if (flight->request->finish.span_count == 0)
        return;
    send_drop(shard, flight);
    send_settled(shard, flight);
    send_sweep(shard, flight);
}

static int start_finish(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_batch batch;
    fl_store_request *request = flight->request;
    request->finish.deleted = 0;
    int r = fl__pg_batch_make(shard, request->finish.changes, request->finish.change_count, flight->replace, &batch);
    if (r < 0)
        return r;
    size_t size = fl__progress_size(&request->finish.record);
    unsigned char *encoded = fl__alloc(size);
    size_t numbers = 2 * request->finish.span_count + request->finish.settled.keep_count;
    size_t room =
        numbers * PG_INT_SIZE + PG_ARGS_MAX * PG_ARRAY_SIZE + size + fl__pg_history_room(&request->finish.history);
    if (encoded && fl__pg_reserve(&shard->args, room)) {
        begin_write(shard, flight);
        send_spans(shard, flight);
        fl__pg_batch_send(shard, flight, &batch);
        fl__pg_history_send(shard, flight, &request->finish.history);
        send_record(shard, flight, &request->finish.record, encoded);
        fl__pg_commit(shard, flight);
    } else {
        r = FL_NO_MEMORY;
    }
    fl__release(encoded);
    fl__pg_batch_release(&batch);
    return r;
}

/* --- Finding ------------------------------------------------------------------------------------------------------ */

static bool is_findable(fl_key id)
{
    return id.at_us >= 0 && id.at_us < FL_STORE_TIME_END && id.seq > 0 && id.seq < (uint64_t)1 << 56;
}

/* The wants by name, or those by ID; each with its index. */
static bool next_want(const fl_store_request *request, bool named, size_t *i)
{
    for (; *i < request->find.count; ++*i) {
        const fl_store_want *want = &request->find.wants[*i];
        if (named ? want->name.size > 0 : want->name.size == 0 && is_findable(want->id))
            return true;
    }
    return false;
}

#define EACH_WANT(request, named, i) for (size_t i = 0; next_want((request), (named), &(i)); (i)++)

static void send_find_named(struct pg_shard *shard, struct pg_flight *flight, size_t count)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_array(args, PG_OID_BIGINT, count, false);
    EACH_WANT(request, true, i)
    fl__pg_item_int(args, i);
    fl__pg_array_end(args);
    fl__pg_array(args, PG_OID_BYTEA, count, false);
    EACH_WANT(request, true, i)
    fl__pg_item_bytes(args, request->find.wants[i].ns);
    fl__pg_array_end(args);
    fl__pg_array(args, PG_OID_BYTEA, count, false);
    EACH_WANT(request, true, i)
    fl__pg_item_bytes(args, request->find.wants[i].name);
    fl__pg_array_end(args);
    fl__pg_say(shard, flight, PG_FIND_NAME, args);
}

static void send_find_one(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    EACH_WANT(flight->request, true, i)
    {
        fl__pg_begin(args);
        fl__pg_int(args, shard->base.shard);
        fl__pg_bytes(args, flight->request->find.wants[i].ns);
        fl__pg_bytes(args, flight->request->find.wants[i].name);
        fl__pg_int(args, i);
        fl__pg_say(shard, flight, PG_FIND_ONE, args);
    }
}

static void send_find_ids(struct pg_shard *shard, struct pg_flight *flight, size_t count)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    for (int column = 0; column < 3; column++) {
        fl__pg_array(args, PG_OID_BIGINT, count * FL__WINDOW_LEVELS, false);
        EACH_WANT(request, false, i)
        {
            uint64_t windows[FL__WINDOW_LEVELS];
            fl__window_candidates(request->find.wants[i].id.at_us, windows);
            for (int level = 0; level < FL__WINDOW_LEVELS; level++)
                fl__pg_item_int(args, column == 0 ? i : column == 1 ? windows[level] : request->find.wants[i].id.seq);
        }
        fl__pg_array_end(args);
    }
    fl__pg_say(shard, flight, PG_FIND_ID, args);
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    for (int column = 0; column < 2; column++) {
        fl__pg_array(args, PG_OID_BIGINT, count, false);
        EACH_WANT(request, false, i)
        fl__pg_item_int(args, column == 0 ? i : request->find.wants[i].id.seq);
        fl__pg_array_end(args);
    }
    fl__pg_say(shard, flight, PG_FIND_MOVED, args);
}

static int start_find(struct pg_shard *shard, struct pg_flight *flight)
{
    fl_store_request *request = flight->request;
    size_t ids = 0, names = 0, name_bytes = 0;
    for (size_t i = 0; i < request->find.count; i++)
        request->find.wants[i].found = false;
    EACH_WANT(request, true, i)
    {
        names++;
        name_bytes +=
            PG_INT_SIZE + 2 * PG_BYTES_SIZE + request->find.wants[i].ns.size + request->find.wants[i].name.size;
    }
    EACH_WANT(request, false, i)
    ids++;
    size_t id_bytes = ids * FL__WINDOW_LEVELS * 3 * PG_INT_SIZE;
    if (!fl__pg_reserve(&shard->args, PG_ARGS_MAX * PG_ARRAY_SIZE + (id_bytes > name_bytes ? id_bytes : name_bytes)))
        return FL_NO_MEMORY;
    if (names == 1)
        send_find_one(shard, flight);
    else if (names > 0)
        send_find_named(shard, flight, names);
    if (ids > 0)
        send_find_ids(shard, flight, ids);
    if (names + ids > 0)
        fl__pg_sync(shard, flight);
    return 0;
}

/* An ID is both, time and number. A name is that of the row with the greatest number, should there be two. */
static bool is_better(const fl_store_want *want, const fl_row *row)
{
    if (want->name.size > 0)
        return !want->found || row->key.seq > want->row.key.seq;
    return (row->key.at_us == want->id.at_us && row->key.seq == want->id.seq) ||
           (row->id.at_us == want->id.at_us && row->id.seq == want->id.seq);
}

static void take_found(struct pg_flight *flight, PGresult *result)
{
    fl_store_request *request = flight->request;
    for (int i = 0; i < PQntuples(result); i++) {
        uint64_t index = fl__pg_get_int(result, i, 0);
        fl_row row = fl__pg_get_row(result, i, 1);
        if (index < request->find.count && is_better(&request->find.wants[index], &row)) {
            request->find.wants[index].found = true;
            request->find.wants[index].row = row;
        }
    }
}

/* --- Listing ------------------------------------------------------------------------------------------------------ */

static int64_t one_more(size_t limit)
{
    return limit < INT32_MAX ? (int64_t)limit + 1 : INT32_MAX;
}

int fl__pg_page_count(const PGresult *result, size_t limit, int too_long, bool *ret_more)
{
    int got = PQntuples(result), count = 0;
    while (count < got && (size_t)count < limit) {
        fl_bytes flag = fl__pg_get_bytes(result, count, too_long);
        if (flag.size == 1 && *(const char *)flag.data)
            break;
        count++;
    }
    *ret_more = count < got;
    return count;
}

static int start_list(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    if (!fl__pg_reserve(args, 8 * PG_INT_SIZE + request->list.ns.size + request->list.prefix.size))
        return FL_NO_MEMORY;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_int(args, request->list.window);
    fl__pg_int(args, request->list.after_seq);
    fl__pg_int(args, (uint64_t)one_more(request->list.limit));
    fl__pg_int(args, (uint64_t)request->list.from_us);
    fl__pg_int(args, (uint64_t)request->list.until_us);
    fl__pg_bytes(args, request->list.ns);
    fl__pg_bytes(args, request->list.prefix);
    fl__pg_say(shard, flight, PG_LIST, args);
    fl__pg_sync(shard, flight);
    return 0;
}

static void take_list(struct pg_flight *flight, const PGresult *result)
{
    fl_store_request *request = flight->request;
    bool more;
    int count = fl__pg_page_count(result, request->list.limit, 8, &more);
    fl_row *rows = flight->block = fl__alloc((size_t)(count > 0 ? count : 1) * sizeof *rows);
    if (!rows) {
        fail(flight, FL_NO_MEMORY);
        return;
    }
    size_t n = 0;
    for (int i = 0; i < count; i++) {
        fl_bytes fits = fl__pg_get_bytes(result, i, 0);
        if (fits.size == 1 && *(const char *)fits.data)
            rows[n++] = fl__pg_get_row(result, i, 1);
    }
    request->list.rows = rows;
    request->list.count = n;
    request->list.next_seq = more ? fl__pg_get_int(result, count - 1, 2) : 0;
}

static int start_dead_list(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    uint64_t only = request->dead_list.id_seq;
    if (!fl__pg_reserve(args, 4 * PG_INT_SIZE + request->dead_list.ns.size))
        return FL_NO_MEMORY;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_int(args, only > 0 ? only - 1 : request->dead_list.after_seq);
    fl__pg_bytes(args, request->dead_list.ns);
    fl__pg_int(args, only > 0 ? 1 : (uint64_t)one_more(request->dead_list.limit));
    fl__pg_say(shard, flight, PG_DEAD, args);
    fl__pg_sync(shard, flight);
    return 0;
}

static fl_dead_row get_dead(const PGresult *result, int i)
{
    fl_key id = {(int64_t)fl__pg_get_int(result, i, 1), fl__pg_get_int(result, i, 0)};
    return (fl_dead_row){.row = {.key = id,
                                 .id = id,
                                 .ns = fl__pg_get_bytes(result, i, 2),
                                 .name = fl__pg_get_bytes(result, i, 3),
                                 .body = fl__pg_get_bytes(result, i, 4)},
                         .died_us = (int64_t)fl__pg_get_int(result, i, 5),
                         .reason = fl__pg_get_bytes(result, i, 6)};
}

static void take_dead_list(struct pg_flight *flight, const PGresult *result)
{
    fl_store_request *request = flight->request;
    uint64_t only = request->dead_list.id_seq;
    bool more;
    int count = fl__pg_page_count(result, request->dead_list.limit, 7, &more);
    if (only > 0 && count > 0 && fl__pg_get_int(result, 0, 0) != only) {
        count = 0;
        more = false;
    }
    fl_dead_row *rows = flight->block = fl__alloc((size_t)(count > 0 ? count : 1) * sizeof *rows);
    if (!rows) {
        fail(flight, FL_NO_MEMORY);
        return;
    }
    for (int i = 0; i < count; i++)
        rows[i] = get_dead(result, i);
    request->dead_list.rows = rows;
    request->dead_list.count = (size_t)count;
    request->dead_list.next_seq = more ? rows[count - 1].row.id.seq : 0;
}

/* --- Claiming ----------------------------------------------------------------------------------------------------- */

/* Ends the transaction of a request of several exchanges. */
static void end_stages(struct pg_shard *shard, struct pg_flight *flight)
{
    flight->stage = STAGE_END;
    fl__pg_say(shard, flight, PG_COMMIT, NULL);
    fl__pg_sync(shard, flight);
}

static int start_claim(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    if (!fl__pg_reserve(args, 6 * PG_INT_SIZE + strlen(flight->request->claim.owner)))
        return FL_NO_MEMORY;
    shard->chained = true;
    flight->stage = STAGE_FIRST;
    fl__pg_transact(shard, flight);
    if (flight->request->claim.claim_us > 0) {
        fl__pg_begin(args);
        fl__pg_int(args, shard->base.shard);
        fl__pg_int(args, fl__pg_longest(flight->request->claim.claim_us));
        fl__pg_say(shard, flight, PG_CAP_CLAIM, args);
    }
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_say(shard, flight, PG_LOCK, args);
    fl__pg_say(shard, flight, PG_PROGRESS, args);
    fl__pg_say(shard, flight, PG_WINDOWS, args);
    fl__pg_say(shard, flight, PG_COUNTS, args);
    fl__pg_say(shard, flight, PG_HISTORY_SPANS, args);
    fl__pg_sync(shard, flight);
    return 0;
}

static void take_owner(struct pg_flight *flight, const PGresult *result)
{
    const fl_store_request *request = flight->request;
    if (PQntuples(result) != 1) {
        fail(flight, FL_STORE_CORRUPT);
        return;
    }
    int64_t until = (int64_t)fl__pg_get_int(result, 0, 2), now = (int64_t)fl__pg_get_int(result, 0, 3);
    fl_bytes owner = fl__pg_get_bytes(result, 0, 4);
    bool ours = owner.size == strlen(request->claim.owner) && memcmp(owner.data, request->claim.owner, owner.size) == 0;
    if (owner.size > 0 && until > now && !ours && !request->claim.force)
        fl__store_answer(flight->request, FL_SHARD_HELD, "'%.*s' holds the shard for another %.3f s", (int)owner.size,
                         (const char *)owner.data, (double)(until - now) / 1e6);
    flight->version = fl__pg_get_int(result, 0, 0);
}

static void take_progress(struct pg_flight *flight, const PGresult *result)
{
    fl_progress *progress = &flight->request->claim.progress;
    fl_bytes encoded = PQntuples(result) == 1 ? fl__pg_get_bytes(result, 0, 0) : (fl_bytes){0};
    *progress = (fl_progress){.seq_limit = 2};
    int r = encoded.size > 0 ? fl__progress_decode(encoded, progress) : 0;
    if (r < 0)
        fail(flight, r);
    flight->keep = (void *)progress->keep;
}

static void take_windows(struct pg_flight *flight, const PGresult *result)
{
    fl_store_request *request = flight->request;
    size_t count = (size_t)PQntuples(result);
    uint64_t *windows = flight->block = fl__alloc((count > 0 ? count : 1) * sizeof *windows);
    if (!windows) {
        fail(flight, FL_NO_MEMORY);
        return;
    }
    for (size_t i = 0; i < count; i++)
        windows[i] = fl__pg_get_int(result, (int)i, 0);
    request->claim.windows = windows;
    request->claim.window_count = count;
}

static void take_counts(struct pg_flight *flight, const PGresult *result)
{
    fl_store_request *request = flight->request;
    size_t count = (size_t)PQntuples(result);
    fl_store_count *counts = flight->counts = fl__alloc((count > 0 ? count : 1) * sizeof *counts);
    if (!counts) {
        fail(flight, FL_NO_MEMORY);
        return;
    }
    for (size_t i = 0; i < count; i++)
        counts[i] = (fl_store_count){fl__pg_get_bytes(result, (int)i, 0), fl__pg_get_int(result, (int)i, 1)};
    request->claim.counts = counts;
    request->claim.count_count = count;
}

/* Rows that are settled do not count. Both are in the order of the namespaces' bytes. */
static void take_over(struct pg_flight *flight, const PGresult *result)
{
    fl_store_count *counts = flight->counts;
    size_t count = flight->request->claim.count_count, i = 0;
    for (int row = 0; row < PQntuples(result); row++) {
        fl_bytes ns = fl__pg_get_bytes(result, row, 0);
        uint64_t over = fl__pg_get_int(result, row, 1);
        while (i < count && (counts[i].ns.size != ns.size || memcmp(counts[i].ns.data, ns.data, ns.size) != 0))
            i++;
        if (i == count || counts[i].rows < over) {
            fail(flight, FL_STORE_CORRUPT);
            return;
        }
        counts[i].rows -= over;
    }
}

static void take_claim(struct pg_flight *flight, unsigned what, const PGresult *result)
{
    fl_store_request *request = flight->request;
    if (what == PG_LOCK)
        take_owner(flight, result);
    else if (what == PG_CLAIM && PQntuples(result) == 1)
        request->claim.version = fl__pg_get_int(result, 0, 0);
    else if (what == PG_CLAIM)
        flight->redo = true;
    else if (what == PG_PROGRESS)
        take_progress(flight, result);
    else if (what == PG_WINDOWS)
        take_windows(flight, result);
    else if (what == PG_COUNTS)
        take_counts(flight, result);
    else if (what == PG_HISTORY_SPANS && fl__pg_take_spans(flight, result) < 0)
        fail(flight, FL_NO_MEMORY);
    else if (what == PG_OVER)
        take_over(flight, result);
}

/* The windows that may have settled rows: those that begin before the front. */
static size_t windows_behind(const fl_store_request *request, uint64_t *ret)
{
    const fl_key *front = request->claim.progress.front;
    int64_t front_us = front[0].at_us > front[1].at_us ? front[0].at_us : front[1].at_us;
    size_t count = 0;
    for (size_t i = 0; i < request->claim.window_count; i++)
        if (fl_window_begin(request->claim.windows[i]) <= front_us) {
            if (ret)
                ret[count] = request->claim.windows[i];
            count++;
        }
    return count;
}

static bool send_over(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    const fl_progress *progress = &request->claim.progress;
    size_t count = windows_behind(request, NULL);
    uint64_t *windows = fl__alloc((count + 1) * sizeof *windows);
    size_t room = 2 * PG_ARRAY_SIZE + (16 + count + progress->keep_count) * PG_INT_SIZE;
    bool good = windows && fl__pg_reserve(args, room + strlen(request->claim.owner));
    if (good && count > 0) {
        windows_behind(request, windows);
        fl__pg_begin(args);
        fl__pg_int(args, shard->base.shard);
        put_progress(args, progress);
        fl__pg_array(args, PG_OID_BIGINT, count, false);
        for (size_t i = 0; i < count; i++)
            fl__pg_item_int(args, windows[i]);
        fl__pg_array_end(args);
        fl__pg_say(shard, flight, PG_OVER, args);
    }
    fl__release(windows);
    return good;
}

static void send_claim(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    if (!send_over(shard, flight)) {
        fail(flight, FL_NO_MEMORY);
        end_stages(shard, flight);
        return;
    }
    flight->number = ++shard->number;
    flight->doubt = true;
    flight->stage = STAGE_END;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_int(args, flight->version);
    fl__pg_int(args, flight->number);
    fl__pg_int(args, fl__pg_claim(request->claim.claim_us));
    fl__pg_bytes(args, (fl_bytes){request->claim.owner, strlen(request->claim.owner)});
    fl__pg_say(shard, flight, PG_CLAIM, args);
    fl__pg_commit(shard, flight);
}

/* --- Loading ------------------------------------------------------------------------------------------------------ */

static int start_load(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    fl_store_request *request = flight->request;
    if (!flight->load.cut)
        request->load.more = false;
    if (request->load.window_count == 0)
        return 0;
    if (!fl__pg_reserve(args, PG_ARRAY_SIZE + (8 + request->load.window_count) * PG_INT_SIZE))
        return FL_NO_MEMORY;
    flight->block = fl__alloc(PAGE_MAX * sizeof(fl_row));
    if (!flight->block)
        return FL_NO_MEMORY;
    flight->stage = STAGE_FIRST;
    fl__pg_say(shard, flight, PG_BEGIN_READ, NULL);
    if (!flight->load.cut) {
        flight->load.page = PAGE_FIRST;
        flight->load.end = (fl_key){request->load.until_us, 0};
        fl__pg_begin(args);
        fl__pg_int(args, shard->base.shard);
        fl__pg_array(args, PG_OID_BIGINT, request->load.window_count, false);
        for (size_t i = 0; i < request->load.window_count; i++)
            fl__pg_item_int(args, request->load.windows[i]);
        fl__pg_array_end(args);
        fl__pg_int(args, (uint64_t)request->load.from.at_us);
        fl__pg_int(args, request->load.from.seq);
        fl__pg_int(args, (uint64_t)request->load.until_us);
        fl__pg_int(args, request->load.limit < INT64_MAX ? request->load.limit : INT64_MAX - 1);
        fl__pg_say(shard, flight, PG_CUT, args);
    }
    fl__pg_sync(shard, flight);
    return 0;
}

static void take_cut(struct pg_flight *flight, const PGresult *result)
{
    fl_store_request *request = flight->request;
    flight->load.cut = true;
    request->load.more = PQntuples(result) > 0;
    if (request->load.more) {
        request->load.next = (fl_key){(int64_t)fl__pg_get_int(result, 0, 0), fl__pg_get_int(result, 0, 1)};
        flight->load.end = request->load.next;
    }
}

static void send_page(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_int(args, request->load.windows[flight->load.window]);
    fl__pg_int(args, flight->load.after_seq);
    fl__pg_int(args, (uint64_t)request->load.from.at_us);
    fl__pg_int(args, request->load.from.seq);
    fl__pg_int(args, (uint64_t)flight->load.end.at_us);
    fl__pg_int(args, flight->load.end.seq);
    fl__pg_int(args, flight->load.page);
    fl__pg_say(shard, flight, PG_PAGE, args);
    fl__pg_sync(shard, flight);
    fl__pg_flush(shard);
}

/* Where the next page begins, and how large it should be. */
static void turn_page(struct pg_flight *flight, const PGresult *result, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += 100 + (size_t)PQgetlength(result, i, 6);
    if ((uint32_t)count < flight->load.page) {
        flight->load.window++;
        flight->load.after_seq = 0;
    } else {
        flight->load.after_seq = fl__pg_get_int(result, count - 1, 1);
    }
    if (count > 0) {
        size_t fit = PAGE_BYTES / (bytes / (size_t)count);
        flight->load.page = fit < 1 ? 1 : fit > PAGE_MAX ? PAGE_MAX : (uint32_t)fit;
    }
}

/* The page that has come was kept: asks for the next, then hands it on. */
static void go_on_loading(struct pg_shard *shard, struct pg_flight *flight)
{
    fl_store_request *request = flight->request;
    PGresult *result = flight->kept_count > 0 ? flight->kept[--flight->kept_count] : NULL;
    int count = result ? PQntuples(result) : 0;
    if (result)
        turn_page(flight, result, count);
    flight->stage = STAGE_MIDDLE;
    if (flight->load.window < request->load.window_count)
        send_page(shard, flight);
    else
        end_stages(shard, flight);
    fl_row *rows = flight->block;
    for (int i = 0; i < count; i++)
        rows[i] = fl__pg_get_row(result, i, 0);
    if (count > 0)
        request->load.rows(request, rows, (size_t)count);
    PQclear(result);
}

/* --- All of them -------------------------------------------------------------------------------------------------- */

int fl__pg_start(struct pg_shard *shard, struct pg_flight *flight)
{
    switch (flight->request->op) {
    case FL_STORE_CLAIM:
        return start_claim(shard, flight);
    case FL_STORE_RENEW:
        return start_renew(shard, flight);
    case FL_STORE_RELEASE:
        return start_release(shard, flight);
    case FL_STORE_WRITE:
        return start_write(shard, flight);
    case FL_STORE_FIND:
        return start_find(shard, flight);
    case FL_STORE_LIST:
        return start_list(shard, flight);
    case FL_STORE_LOAD:
        return start_load(shard, flight);
    case FL_STORE_REFILE:
        return start_refile(shard, flight);
    case FL_STORE_FINISH:
        return start_finish(shard, flight);
    case FL_STORE_RECORD:
        return start_record(shard, flight);
    case FL_STORE_DEAD_LIST:
        return start_dead_list(shard, flight);
    case FL_STORE_MEET:
        return fl__pg_start_meet(shard, flight);
    case FL_STORE_HISTORY:
        return fl__pg_start_history(shard, flight);
    case FL_STORE_FORGET:
        return start_forget(shard, flight);
    default:
        return FL_INVALID_ARGUMENT;
    }
}

static void take_meet(struct pg_shard *shard, struct pg_flight *flight, unsigned what, const PGresult *result)
{
    int r = fl__pg_take_meet(shard, flight, what, result);
    if (r < 0 && flight->doubt && flight->request->result == 0) /* the commit is under way */
        fl__store_answer(flight->request, FL_OUTCOME_UNKNOWN, "the response of the database is invalid: %s",
                         fl_strerror(r));
    else if (r < 0)
        fail(flight, r);
}

static bool is_find(unsigned what)
{
    return what == PG_FIND_ONE || what == PG_FIND_NAME || what == PG_FIND_ID || what == PG_FIND_MOVED;
}

static bool is_fence(unsigned what)
{
    return what == PG_FENCE || what == PG_RENEW || what == PG_RELEASE;
}

/* The database read its clock, at the beginning of the transaction, after we sent and before we received: a time outside of
 * that span is a difference of the clocks. */
static void compare_clocks(struct pg_shard *shard, const struct pg_flight *flight, unsigned what,
                           const PGresult *result)
{
    int column = what == PG_LOCK ? 3 : what == PG_RENEW ? 0 : what == PG_MEMBERS ? 4 : -1;
    if (column < 0 || PQntuples(result) == 0)
        return;
    int64_t theirs = (int64_t)fl__pg_get_int(result, 0, column);
    if (what == PG_RENEW) /* Citus returns columns, but not now() */
        theirs -= (int64_t)fl__pg_claim(flight->request->renew.claim_us);
    int64_t received_us = fl_wall_clock_system()->now_us(fl_wall_clock_system());
    int64_t ahead_us = theirs < flight->sent_us ? flight->sent_us - theirs
                       : theirs > received_us   ? received_us - theirs
                                                : 0;
    atomic_store_explicit(&fl__pg_store(shard)->ahead_us, ahead_us, memory_order_relaxed);
}

static void take_good(struct pg_shard *shard, struct pg_flight *flight, unsigned what, PGresult *result)
{
    fl_store_request *request = flight->request;
    compare_clocks(shard, flight, what, result);
    if (is_fence(what)) /* without a row it does not fail */
        flight->fenced = strcmp(PQcmdTuples(result), "1") != 0;
    else if (what == PG_COMMIT && strcmp(PQcmdStatus(result), "COMMIT") != 0 && !flight->redo && !flight->fenced)
        fail(flight, FL_STORE_UNAVAILABLE);
    else if (request->op == FL_STORE_CLAIM)
        take_claim(flight, what, result);
    else if (request->op == FL_STORE_MEET)
        take_meet(shard, flight, what, result);
    else if (request->op == FL_STORE_REFILE)
        take_refile(flight, what, result);
    else if (what == PG_DROP || what == PG_SETTLED)
        request->finish.deleted += strtoull(PQcmdTuples(result), NULL, 10);
    else if (is_find(what))
        take_found(flight, result);
    else if (what == PG_LIST)
        take_list(flight, result);
    else if (what == PG_DEAD)
        take_dead_list(flight, result);
    else if (what == PG_HISTORY && fl__pg_take_history(flight, result) < 0)
        fail(flight, FL_NO_MEMORY);
    else if (what == PG_HISTORY_ERASE)
        request->forget.erased = strtoull(PQcmdTuples(result), NULL, 10);
    else if (what == PG_CUT)
        take_cut(flight, result);
}

/* Whether the answer points into a result of this statement. */
static bool is_kept(unsigned what)
{
    return is_find(what) || what == PG_LIST || what == PG_DEAD || what == PG_HISTORY || what == PG_PAGE ||
           what == PG_MEMBERS || what == PG_HOLDERS || what == PG_NODES || what == PG_COUNTS;
}

void fl__pg_take(struct pg_shard *shard, struct pg_flight *flight, unsigned what, PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    bool good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    if (what == PG_NODE_HOLDERS)
        fl__pg_take_node(shard, result);
    else if (good)
        take_good(shard, flight, what, result);
    else if (is_fence(what) && strcmp(sqlstate(result), "22P02") == 0)
        flight->fenced = true;
    else if (status != PGRES_PIPELINE_ABORTED)
        take_error(flight, result);
    if (good && is_kept(what) && flight->kept_count < PG_KEPT)
        flight->kept[flight->kept_count++] = result;
    else
        PQclear(result);
}

static void claimed(struct pg_shard *shard, const struct pg_flight *flight)
{
    if (flight->request->result < 0 || flight->redo)
        return;
    shard->sent = flight->number;
    fl__pg_acknowledge(shard, flight->number);
    shard->forgotten = false;
    shard->version = flight->request->claim.version;
}

bool fl__pg_go_on(struct pg_shard *shard, struct pg_flight *flight)
{
    if (flight->request->op == FL_STORE_MEET)
        return fl__pg_store(shard)->spread && fl__pg_go_on_meeting(shard, flight);
    if (!fl__pg_is_alone(flight->request))
        return false;
    bool failed = flight->request->result < 0 || flight->redo;
    if (flight->stage == STAGE_END) {
        if (flight->request->op == FL_STORE_CLAIM)
            claimed(shard, flight);
        return false;
    }
    if (failed)
        end_stages(shard, flight);
    else if (flight->request->op == FL_STORE_CLAIM)
        send_claim(shard, flight);
    else
        go_on_loading(shard, flight);
    return true;
}
