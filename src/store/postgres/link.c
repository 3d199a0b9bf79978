/* SPDX-License-Identifier: MIT */
/* The connection of a shard.
 *
 *     DOWN -> CONNECTING -> PREPARING -> SETTLING -> READY <-> DRAINING
 *                                           ^                     |
 *                                           +---------------------+
 *
 * libpq does the protocol, in pipeline mode: statements are sent without waiting, and `expected` lists the answers to come,
 * with their requests. A transaction has two parts, each ended by a sync: everything up to the last change, then the commit.
 * If a statement of the first part fails, the database skips the rest of it, and the commit rolls back. So a failed
 * transaction leaves the pipeline usable for the next.
 *
 * When a write does not take effect (its fence did not pass, or the database refused it), the requests after it must not be
 * answered, because they were carried out without it. Writes among them have failed as well, because the chain is broken. The
 * link waits for the answers of all of them and sends them again: DRAINING. If the fence did not pass, the link first locks
 * and reads the row: SETTLING.
 *
 * A commit that fails is in doubt, whatever the error: the connection is closed, and the next one settles.
 *
 * Every error of a connection ends in fl__pg_link_break(), at the end of the event that noticed it. The link closes the
 * connection and connects again: at once if the connection had worked, then after 50 ms, then after twice the delay each
 * time, up to 1 s, minus up to 25 % jitter. libpq resolves host names inside PQconnectStartParams() and blocks meanwhile.
 */

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "store/postgres/postgres.h"

#define MILLISECOND_NS 1000000ull

enum { BACKOFF_FIRST_MS = 50, BACKOFF_MAX_MS = 1000, BACKOFF_STEPS = 5 };

static void on_event(fl_loop *loop, int fd, unsigned events, void *arg);

uint64_t fl__pg_random(void)
{
    uint64_t number = 0;
    while (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        ;
    return number;
}

uint64_t fl__pg_timeout_ns(const struct pg_shard *shard)
{
    uint64_t us = fl__pg_store(shard)->timeout_us;
    return us < UINT64_MAX / 4000 ? us * 1000 : UINT64_MAX / 4;
}

/* --- Breaking ----------------------------------------------------------------------------------------------------- */

void fl__pg_flatten(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (; *text && n + 1 < size; text++) {
        if (*text == '\n' && strncmp(text + 1, "LOCATION:", 9) == 0)
            text += strcspn(text + 1, "\n");
        else if (*text != '\n' && *text != '\t' && *text != ' ')
            out[n++] = *text;
        else if (n > 0 && out[n - 1] != ' ')
            out[n++] = ' ';
    }
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = 0;
}

/* Advice comes first, because the end may be cut off. */
static void keep_trouble(struct pg_shard *shard, const char *why)
{
    char text[sizeof shard->trouble];
    const char *advice = fl__pg_advice("", why);
    fl__pg_flatten(why, text, sizeof text);
    snprintf(shard->trouble, sizeof shard->trouble, *advice ? "%s (%.180s)" : "%s%s", advice, text);
}

void fl__pg_link_fail(struct pg_shard *shard, const char *why)
{
    if (!shard->broken)
        keep_trouble(shard, why);
    shard->broken = true;
}

static void fail_by_libpq(struct pg_shard *shard)
{
    const char *why = PQerrorMessage(shard->conn);
    fl__pg_link_fail(shard, why && why[0] ? why : "the connection broke");
}

/* --- What the loop waits for -------------------------------------------------------------------------------------- */

static void watch(struct pg_shard *shard, unsigned events)
{
    int fd = events ? PQsocket(shard->conn) : -1;
    if (shard->fd == fd && shard->events == events)
        return;
    int r = 0;
    if (shard->fd >= 0 && shard->fd == fd) {
        r = fl_loop_fd_modify(shard->base.loop, fd, events);
    } else {
        if (shard->fd >= 0)
            fl_loop_fd_remove(shard->base.loop, shard->fd);
        shard->fd = -1;
        if (fd >= 0)
            r = fl_loop_fd_add(shard->base.loop, fd, events, on_event, shard);
    }
    if (r < 0) {
        fl__pg_link_fail(shard, fl_strerror(r));
        return;
    }
    shard->fd = fd;
    shard->events = events;
}

/* --- Connecting --------------------------------------------------------------------------------------------------- */

static uint64_t backoff_ns(const struct pg_shard *shard)
{
    if (shard->attempts == 0)
        return 0;
    unsigned step = shard->attempts - 1 < BACKOFF_STEPS ? shard->attempts - 1 : BACKOFF_STEPS;
    uint64_t ms = BACKOFF_FIRST_MS << step, ns = (ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS) * MILLISECOND_NS;
    return ns - fl__pg_random() % (ns / 4);
}

void fl__pg_link_close(struct pg_shard *shard)
{
    if (!shard->conn)
        return;
    watch(shard, 0);
    PQfinish(shard->conn);
    shard->conn = NULL;
    shard->expected_count = 0;
    shard->unflushed = false;
    shard->broken = false;
    for (unsigned i = 0; i < shard->flight_count; i++)
        fl__pg_flight(shard, i)->open = 0;
}

void fl__pg_link_break(struct pg_shard *shard, const char *why)
{
    if (why)
        keep_trouble(shard, why);
    fl__pg_link_close(shard);
    shard->attempts = shard->proven ? 0 : shard->attempts + 1;
    shard->proven = false;
    shard->state = PG_DOWN;
    fl__pg_set_away(shard, true);
    shard->due_ns = fl_loop_now_ns(shard->base.loop) + backoff_ns(shard);
    for (unsigned i = 0; i < shard->flight_count; i++) { /* reads and claims are sent again */
        struct pg_flight *flight = fl__pg_flight(shard, i);
        if (flight->state == PG_SENT && !fl__store_is_write(flight->request))
            fl__pg_flight_reset(flight);
    }
}

/* A warning with a commit is doubt, too: where a synchronous standby is waited for, a session that is told to stop waiting
 * says that the transaction has been committed here and perhaps not there, and then reports success. What settles the
 * doubt waits for the standby again. */
static void take_notice(void *arg, const PGresult *result)
{
    struct pg_shard *shard = arg;
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    bool commit = shard->expected_count > 0 && shard->expected[shard->expected_first].what == PG_COMMIT;
    if (commit && state && strcmp(state, "01000") == 0)
        fl__pg_link_fail(shard, PQresultErrorMessage(result));
}

static void connect_begin(struct pg_shard *shard)
{
    const char *names[] = {"dbname", "client_encoding", "application_name", NULL};
    const char *values[] = {fl__pg_store(shard)->url, "UTF8", shard->session, NULL};
    shard->state = PG_CONNECTING;
    shard->due_ns = fl_loop_now_ns(shard->base.loop) + fl__pg_timeout_ns(shard);
    shard->conn = PQconnectStartParams(names, values, 1);
    if (!shard->conn || PQstatus(shard->conn) == CONNECTION_BAD) {
        fl__pg_link_break(shard, shard->conn ? PQerrorMessage(shard->conn) : fl_strerror(FL_NO_MEMORY));
        return;
    }
    PQsetNoticeReceiver(shard->conn, take_notice, shard);
    PQsetErrorVerbosity(shard->conn, PQERRORS_VERBOSE); /* texts have the SQLSTATE, for fl__pg_advice() */
    watch(shard, FL_WRITE);
}

/* --- Sending ------------------------------------------------------------------------------------------------------ */

static void expect(struct pg_shard *shard, struct pg_flight *flight, unsigned what)
{
    if (flight)
        flight->open++;
    if (shard->expected_count > 0) {
        unsigned last = (shard->expected_first + shard->expected_count - 1) % PG_EXPECTED;
        if (shard->expected[last].flight == flight && shard->expected[last].what == what) {
            shard->expected[last].times++;
            return;
        }
    }
    assert(shard->expected_count < PG_EXPECTED);
    unsigned at = (shard->expected_first + shard->expected_count++) % PG_EXPECTED;
    shard->expected[at] = (struct pg_expected){flight, (uint16_t)what, 1};
}

void fl__pg_sent(struct pg_shard *shard, struct pg_flight *flight, unsigned what, int good)
{
    shard->unflushed = true;
    if (good)
        expect(shard, flight, what);
    else
        fail_by_libpq(shard);
}

void fl__pg_say(struct pg_shard *shard, struct pg_flight *flight, enum pg_statement statement, struct pg_args *args)
{
    if (flight && args)
        flight->size += args->size;
    if (!shard->broken)
        fl__pg_sent(shard, flight, statement, fl__pg_send(shard->conn, fl__pg_sql[statement].name, args));
}

void fl__pg_transact(struct pg_shard *shard, struct pg_flight *flight)
{
    fl__pg_say(shard, flight, PG_BEGIN, NULL);
    fl__pg_say(shard, flight, PG_DURABLE, NULL);
}

void fl__pg_sync(struct pg_shard *shard, struct pg_flight *flight)
{
    if (!shard->broken)
        fl__pg_sent(shard, flight, PG_WHAT_SYNC, PQpipelineSync(shard->conn));
}

/* --- Preparing ---------------------------------------------------------------------------------------------------- */

static void say_setting(struct pg_shard *shard, const char *sql, const char *value)
{
    if (shard->broken)
        return;
    int count = strstr(sql, "$1") ? 1 : 0;
    fl__pg_sent(shard, NULL, PG_WHAT_SETTING, PQsendQueryParams(shard->conn, sql, count, NULL, &value, NULL, NULL, 0));
    fl__pg_sync(shard, NULL);
}

static void prepare(struct pg_shard *shard)
{
    char timeout_ms[24];
    uint64_t ms = fl__pg_timeout_ns(shard) / MILLISECOND_NS;
    snprintf(timeout_ms, sizeof timeout_ms, "%d", ms < 1 ? 1 : ms > INT32_MAX ? INT32_MAX : (int)ms);
    shard->state = PG_PREPARING;
    if (PQsetnonblocking(shard->conn, 1) != 0 || PQenterPipelineMode(shard->conn) != 1) {
        fail_by_libpq(shard);
        return;
    }
    if (shard->had_session)
        say_setting(shard, fl__pg_terminate, shard->session);
    shard->had_session = true;
    for (const char *const *setting = fl__pg_settings; *setting; setting++)
        say_setting(shard, *setting, timeout_ms);
    unsigned count = fl__pg_store(shard)->spread ? PG_STATEMENTS : PG_STATEMENTS_PLAIN;
    for (unsigned i = 0; i < count && !shard->broken; i++)
        fl__pg_sent(shard, NULL, PG_WHAT_PREPARE,
                    PQsendPrepare(shard->conn, fl__pg_sql[i].name, fl__pg_sql[i].sql, 0, NULL));
    fl__pg_sync(shard, NULL);
}

/* --- Receiving ---------------------------------------------------------------------------------------------------- */

static void end_drain(struct pg_shard *shard)
{
    shard->sent = shard->applied;
    for (unsigned i = 0; i < shard->flight_count; i++) {
        struct pg_flight *flight = fl__pg_flight(shard, i);
        if (flight->state == PG_SENT && !flight->fenced)
            fl__pg_flight_reset(flight);
    }
    if (shard->settle_after_drain)
        fl__pg_settle_begin(shard);
    else
        shard->state = PG_READY;
}

static void drain(struct pg_shard *shard, bool settle)
{
    shard->state = PG_DRAINING;
    shard->settle_after_drain = settle;
    if (shard->expected_count == 0)
        end_drain(shard);
}

/* Everything of a request has come back. */
static void flight_over(struct pg_shard *shard, struct pg_flight *flight)
{
    if (shard->state == PG_DRAINING || fl__pg_go_on(shard, flight))
        return;
    if (flight->request->result == 0)
        fl__pg_proven(shard);
    bool write = fl__store_is_write(flight->request);
    if (flight->fenced) {
        drain(shard, true);
    } else if (flight->redo) {
        fl__pg_flight_reset(flight);
        drain(shard, false);
    } else {
        flight->state = PG_FINISHED;
        if (write && flight->request->result < 0)
            drain(shard, false);
        else if (write)
            fl__pg_acknowledge(shard, flight->number);
    }
}

static void expected_over(struct pg_shard *shard)
{
    struct pg_expected *next = &shard->expected[shard->expected_first];
    struct pg_flight *flight = next->flight;
    if (--next->times == 0) {
        shard->expected_first = (shard->expected_first + 1) % PG_EXPECTED;
        shard->expected_count--;
    }
    if (flight && --flight->open == 0)
        flight_over(shard, flight);
    if (shard->expected_count > 0 || shard->broken)
        return;
    if (shard->state == PG_DRAINING)
        end_drain(shard);
    else if (shard->state == PG_SETTLING)
        fl__pg_settle_next(shard);
    else if (shard->state == PG_PREPARING && shard->chained)
        fl__pg_settle_begin(shard);
    else if (shard->state == PG_PREPARING)
        fl__pg_ready(shard);
}

static bool is_error(const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    return status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_PIPELINE_ABORTED;
}

static void take_own(struct pg_shard *shard, unsigned what, PGresult *result)
{
    if (is_error(result) && what != PG_WHAT_SETTING) {
        shard->node_down = fl__pg_is_node_down(result);
        fl__pg_link_fail(shard, PQresultErrorMessage(result));
    } else if (!is_error(result)) {
        fl__pg_take_settling(shard, what, result);
    }
    PQclear(result);
}

/* Whether the outcome of the transaction is unknown. It is after any error on COMMIT, because the database may have committed
 * before the error (on Citus, the node may have committed although the coordinator reports an error). */
static bool is_doubt(const struct pg_expected *expected, const PGresult *result)
{
    return is_error(result) && expected->what != PG_WHAT_SETTING && !fl__pg_is_of_node(expected->what, result) &&
           (expected->what == PG_COMMIT || fl__pg_is_broken(result));
}

static void take_result(struct pg_shard *shard, const struct pg_expected *expected, PGresult *result)
{
    if (is_doubt(expected, result)) {
        fl__pg_link_fail(shard, PQresultErrorMessage(result));
        if (expected->flight && !fl__pg_is_broken(result)) /* that is the answer, should it turn out to be true */
            fl__pg_take(shard, expected->flight, expected->what, result);
        else
            PQclear(result);
    } else if (!expected->flight) {
        take_own(shard, expected->what, result);
    } else if (shard->state == PG_DRAINING) {
        PQclear(result);
    } else {
        fl__pg_take(shard, expected->flight, expected->what, result);
    }
}

static void take_results(struct pg_shard *shard)
{
    while (shard->expected_count > 0 && !shard->broken && !PQisBusy(shard->conn)) {
        const struct pg_expected *next = &shard->expected[shard->expected_first];
        bool sync_expected = next->what == PG_WHAT_SYNC;
        PGresult *result = PQgetResult(shard->conn);
        bool sync = result && PQresultStatus(result) == PGRES_PIPELINE_SYNC;
        if (result && !sync && !sync_expected) {
            take_result(shard, next, result);
            continue;
        }
        PQclear(result);
        if (sync == sync_expected)
            expected_over(shard); /* a sync, or the end of a statement */
        else
            fail_by_libpq(shard);
    }
}

static void poll_connecting(struct pg_shard *shard)
{
    watch(shard, 0); /* libpq may close it and go on with another */
    switch (PQconnectPoll(shard->conn)) {
    case PGRES_POLLING_READING:
        watch(shard, FL_READ);
        break;
    case PGRES_POLLING_WRITING:
        watch(shard, FL_WRITE);
        break;
    case PGRES_POLLING_OK:
        prepare(shard);
        break;
    default:
        fail_by_libpq(shard);
    }
}

static void on_event(fl_loop *loop, int fd, unsigned events, void *arg)
{
    (void)loop, (void)fd;
    struct pg_shard *shard = arg;
    if (shard->state == PG_CONNECTING) {
        poll_connecting(shard);
    } else {
        if ((events & ~(unsigned)FL_WRITE) && !PQconsumeInput(shard->conn))
            fail_by_libpq(shard);
        take_results(shard);
    }
    fl__pg_step(shard);
}

void fl__pg_link_tick(struct pg_shard *shard, uint64_t now_ns)
{
    if (shard->broken)
        fl__pg_link_break(shard, NULL);
    if (shard->state == PG_DOWN && now_ns >= shard->due_ns && (!shard->detaching || shard->flight_count > 0))
        connect_begin(shard);
    else if ((shard->state == PG_CONNECTING || shard->state == PG_PREPARING || shard->state == PG_SETTLING) &&
             now_ns >= shard->due_ns)
        fl__pg_link_break(shard, "the database does not respond");
}

void fl__pg_flush(struct pg_shard *shard)
{
    if (!shard->unflushed || shard->broken)
        return;
    int r = PQflush(shard->conn);
    shard->unflushed = r > 0;
    if (r < 0)
        fail_by_libpq(shard);
}

void fl__pg_link_watch(struct pg_shard *shard)
{
    if (!shard->conn || shard->broken || shard->state == PG_CONNECTING)
        return;
    fl__pg_flush(shard);
    bool idle = shard->state == PG_READY && shard->flight_count == 0;
    if (!shard->broken)
        watch(shard, idle ? 0 : shard->unflushed ? FL_READ | FL_WRITE : FL_READ);
}
