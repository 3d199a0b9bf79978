/* SPDX-License-Identifier: MIT */
/* Stores: the functions of the interface, and what all stores share. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <foliot/version.h>

#include "store/store.h"

enum { SHARDS_MAX = 65536 };

static int64_t system_now_us(fl_wall_clock *clock)
{
    (void)clock;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

fl_wall_clock *fl_wall_clock_system(void)
{
    static fl_wall_clock clock = {system_now_us};
    return &clock;
}

const char *fl_durable_version(void)
{
    return FL_VERSION;
}

/* --- Opening ------------------------------------------------------------------------------------------------------ */

/* Not called where all databases are. */
__attribute__((unused)) static int absent(const char *what, char *message, size_t size)
{
    snprintf(message, size, "this Foliot was built without %s; install its development package and build again", what);
    return FL_INVALID_ARGUMENT;
}

#ifndef FOLIOT_SQLITE
int fl__sqlite_open(const char *rest, const fl_store_config *config, fl_store **ret, char *message, size_t size)
{
    (void)rest, (void)config, (void)ret;
    return absent("SQLite", message, size);
}
#endif

#ifndef FOLIOT_POSTGRES
int fl__postgres_open(const char *rest, const fl_store_config *config, fl_store **ret, char *message, size_t size)
{
    (void)rest, (void)config, (void)ret;
    return absent("libpq", message, size);
}
#endif

static const struct scheme {
    const char *name;
    fl__store_open_fn *open;
    bool whole; /* it wants the URL as it is */
} schemes[] = {
    {"sqlite:", fl__sqlite_open, false},
    {"memory:", fl__memory_open, false},
    {"postgres://", fl__postgres_open, true},
    {"postgresql://", fl__postgres_open, true},
};

int fl_store_open(const char *url, const fl_store_config *config, fl_store **ret, char *message, size_t size)
{
    fl_store_config chosen = config ? *config : (fl_store_config){0};
    char unread[1];
    if (!message || size == 0) {
        message = unread;
        size = sizeof unread;
    }
    message[0] = 0;
    if (chosen.shards > SHARDS_MAX) {
        snprintf(message, size, "%u shards are too many; at most %d are allowed", chosen.shards, SHARDS_MAX);
        return FL_INVALID_ARGUMENT;
    }
    if (!chosen.clock)
        chosen.clock = fl_wall_clock_system();
    if (chosen.timeout_us == 0)
        chosen.timeout_us = 10 * 1000000;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t length = strlen(schemes[i].name);
        if (strncmp(url, schemes[i].name, length) == 0) {
            int r = schemes[i].open(schemes[i].whole ? url : url + length, &chosen, ret, message, size);
            if (r < 0 && message[0] == 0)
                snprintf(message, size, "%s", fl_strerror(r));
            return r;
        }
    }
    snprintf(message, size,
             "'%.80s' is not the URL of a store; it must begin with sqlite:, postgres:// or memory:", url);
    return FL_INVALID_ARGUMENT;
}

/* --- The interface ------------------------------------------------------------------------------------------------ */

void fl_store_close(fl_store *store)
{
    if (store)
        store->ops->close(store);
}

uint32_t fl_store_shards(const fl_store *store)
{
    return store->shards;
}

bool fl_store_is_shared(const fl_store *store)
{
    return store->ops->shared;
}

int64_t fl_store_clock_ahead_us(const fl_store *store)
{
    return store->ops->clock_ahead_us ? store->ops->clock_ahead_us(store) : 0;
}

bool fl_store_is_away(fl_store *store, char *message, size_t size)
{
    return store->ops->is_away && store->ops->is_away(store, message, size);
}

int fl_store_attach(fl_store *store, uint32_t shard, fl_loop *loop, fl_shard **ret)
{
    if (shard >= store->shards || !loop)
        return FL_INVALID_ARGUMENT;
    return store->ops->attach(store, shard, loop, ret);
}

void fl_store_detach(fl_shard *shard, fl_loop_fn done, void *arg)
{
    shard->store->ops->detach(shard, done, arg);
}

void fl_store_submit(fl_shard *shard, fl_store_request *request)
{
    request->result = 0;
    request->message[0] = 0;
    shard->store->ops->submit(shard, request);
}

bool fl_store_absent(fl_shard *shard, const fl_store_want *want)
{
    const struct fl_store_ops *ops = shard->store->ops;
    return ops->absent && ops->absent(shard, want);
}

enum fl_store_failure fl_store_failure(int result)
{
    if (result >= 0)
        return FL_FAILURE_NONE;
    if (result == FL_SHARD_LOST)
        return FL_FAILURE_LOST;
    return result == FL_OUTCOME_UNKNOWN ? FL_FAILURE_UNKNOWN : FL_FAILURE_REFUSED;
}

/* --- What stores share -------------------------------------------------------------------------------------------- */

void fl__store_answer(fl_store_request *request, int result, const char *format, ...)
{
    request->result = result;
    if (result >= 0) {
        request->message[0] = 0;
        return;
    }
    if (!format) {
        snprintf(request->message, sizeof request->message, "%s", fl_strerror(result));
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(request->message, sizeof request->message, format, arguments);
    va_end(arguments);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    return x ^ x >> 32;
}

static uint64_t hash_bytes(uint64_t hash, fl_bytes bytes)
{
    const unsigned char *at = bytes.data;
    size_t left = bytes.size;
    for (; left >= 8; left -= 8, at += 8) {
        uint64_t word = 0;
        for (int i = 0; i < 8; i++) /* the same on every machine; compilers make one load of it */
            word |= (uint64_t)at[i] << (8 * i);
        hash = mix(hash ^ word);
    }
    uint64_t tail = 0;
    for (size_t i = 0; i < left; i++)
        tail |= (uint64_t)at[i] << (8 * i);
    return mix(hash ^ tail ^ (uint64_t)bytes.size << 56);
}

uint64_t fl_store_hash(fl_bytes ns, fl_bytes name)
{
    return hash_bytes(hash_bytes(0x9e3779b97f4a7c15, ns), name);
}

uint32_t fl_store_shard_of(uint32_t shards, fl_bytes ns, fl_bytes name)
{
    return (uint32_t)(fl_store_hash(ns, name) % shards);
}

size_t fl__window_candidates(int64_t at_us, uint64_t out[FL__WINDOW_LEVELS])
{
    size_t count = 0;
    for (unsigned shift = FL_WINDOW_SHIFT_MAX; shift >= FL_WINDOW_SHIFT_MIN; shift -= FL_WINDOW_STEP)
        out[count++] = fl_window_of(at_us, shift);
    return count;
}

/* --- Validation --------------------------------------------------------------------------------------------------- */

static bool valid_key(fl_key key)
{
    return key.at_us >= 0 && key.at_us < FL_STORE_TIME_END && key.seq > 0 && key.seq < (uint64_t)1 << 56;
}

static bool valid_shift(unsigned shift)
{
    return shift >= FL_WINDOW_SHIFT_MIN && shift <= FL_WINDOW_SHIFT_MAX &&
           (shift - FL_WINDOW_SHIFT_MIN) % FL_WINDOW_STEP == 0;
}

static bool valid_window(uint64_t window)
{
    unsigned shift = fl_window_shift(window);
    return valid_shift(shift) && (window & (((uint64_t)1 << 56) - 1)) < (uint64_t)FL_STORE_TIME_END >> shift;
}

/* What is wrong with the parts that living and dead rows have in common. */
static const char *wrong_content(const fl_row *row)
{
    if (!valid_key(row->id))
        return "an ID is out of range";
    if (row->ns.size == 0 || row->ns.size > FL_STORE_NAME_MAX)
        return "a namespace must have 1 to 255 bytes";
    if (row->name.size > FL_STORE_NAME_MAX)
        return "a name must not have more than 255 bytes";
    if (row->body.size > FL_STORE_BODY_MAX)
        return "a body is too large";
    return NULL;
}

static const char *wrong_row(const fl_row *row)
{
    if (!valid_key(row->key))
        return "a key is out of range";
    if (!valid_window(row->window) || row->window != fl_window_of(row->key.at_us, fl_window_shift(row->window)))
        return "a row is in the wrong window";
    return wrong_content(row);
}

static const char *wrong_dead_row(const fl_dead_row *dead)
{
    return dead->reason.size > FL_STORE_BODY_MAX ? "a reason is too large" : wrong_content(&dead->row);
}

static const char *wrong_changes(const fl_store_change *changes, size_t count)
{
    const char *wrong = NULL;
    for (size_t i = 0; i < count && !wrong; i++) {
        const fl_store_change *change = &changes[i];
        if (change->remove.seq != 0 && !valid_key(change->remove))
            wrong = "the key of a row to remove is out of range";
        else if (change->put)
            wrong = wrong_row(change->put);
        if (change->bury && !wrong)
            wrong = wrong_dead_row(change->bury);
    }
    return wrong;
}

static const char *const no_window = "the window does not exist";

static const char *wrong_limit(size_t limit)
{
    return limit == 0 ? "a limit must not be 0" : NULL;
}

static const char *wrong_page(uint64_t after_seq, size_t limit)
{
    return after_seq >> 56 ? "the sequence number to continue from is out of range" : wrong_limit(limit);
}

static const char *wrong_load(const fl_store_request *request)
{
    for (size_t i = 0; i < request->load.window_count; i++) {
        uint64_t window = request->load.windows[i];
        if (!valid_window(window))
            return no_window;
        if (i > 0 && fl_window_begin(window) < fl_window_end(request->load.windows[i - 1]))
            return "windows to load must be in order of time and not overlap";
    }
    return wrong_limit(request->load.limit);
}

static const char *wrong_refile(const fl_store_request *request)
{
    uint64_t window = request->refile.window;
    if (!valid_window(window) || !valid_shift(request->refile.shift) ||
        fl_window_shift(window) != request->refile.shift + FL_WINDOW_STEP)
        return "a window can be divided only into its 64 parts";
    return wrong_limit(request->refile.limit);
}

static const char *wrong_history_row(const fl_history_row *row, uint64_t after_seq)
{
    if (row->seq <= after_seq || row->seq >> 56)
        return "the number of a row of history is out of range or out of order";
    if (row->ns.size == 0 || row->ns.size > FL_STORE_NAME_MAX || row->name.size > FL_STORE_NAME_MAX ||
        row->schedule.size > FL_STORE_NAME_MAX)
        return "a namespace, name or schedule in the history is too long or missing";
    if (row->result >= FL_HISTORY_RESULTS)
        return "a result in the history is out of range";
    return row->body.size > FL_HISTORY_BODY_MAX ? "a row of history is too large" : NULL;
}

static const char *wrong_history(const fl_history_change *change)
{
    const char *wrong = change->span >> 56 ? "the number of a span of history is out of range" : NULL;
    for (size_t i = 0; i < change->count && !wrong; i++)
        wrong = wrong_history_row(&change->rows[i], i > 0 ? change->rows[i - 1].seq : 0);
    return wrong;
}

static const char *wrong_finish(const fl_store_request *request)
{
    for (size_t i = 0; i < request->finish.span_count; i++)
        if (!valid_window(request->finish.spans[i].window))
            return no_window;
    return wrong_history(&request->finish.history);
}

static bool valid_name(const char *name)
{
    return name && name[0] && strlen(name) <= FL_STORE_NAME_MAX;
}

static const char *wrong_meeting(const fl_store_request *request)
{
    if (!request->meet.address)
        return NULL;
    if (!valid_name(request->meet.address))
        return "the address of a server must have 1 to 255 bytes";
    if (request->meet.about && strlen(request->meet.about) > FL_STORE_NAME_MAX)
        return "the description of a server must not have more than 255 bytes";
    if (request->meet.offer && strlen(request->meet.offer) > FL_STORE_NAME_MAX)
        return "the secret is too long";
    if (request->meet.incarnation == 0 || request->meet.incarnation > INT64_MAX)
        return "an incarnation is out of range";
    return NULL;
}

static const char *wrong_request(const fl_store_request *request)
{
    switch (request->op) {
    case FL_STORE_CLAIM:
        return valid_name(request->claim.owner) ? NULL : "an owner must have a name of 1 to 255 bytes";
    case FL_STORE_WRITE:
        return wrong_changes(request->write.changes, request->write.count);
    case FL_STORE_LIST:
        return valid_window(request->list.window) ? wrong_page(request->list.after_seq, request->list.limit)
                                                  : no_window;
    case FL_STORE_LOAD:
        return wrong_load(request);
    case FL_STORE_REFILE:
        return wrong_refile(request);
    case FL_STORE_FINISH:
        return wrong_finish(request);
    case FL_STORE_RECORD:
        return wrong_history(&request->record.history);
    case FL_STORE_DEAD_LIST:
        return wrong_page(request->dead_list.after_seq, request->dead_list.limit);
    case FL_STORE_HISTORY:
        return wrong_page(request->history.before_seq, request->history.limit);
    case FL_STORE_COUNT:
        return request->count.ns.size <= FL_STORE_NAME_MAX ? NULL : "a namespace must have 1 to 255 bytes";
    case FL_STORE_MEET:
        return wrong_meeting(request);
    default:
        return NULL;
    }
}

bool fl__store_is_write(const fl_store_request *request)
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

int fl__store_validate(fl_store_request *request)
{
    const char *wrong = wrong_request(request);
    if (wrong)
        fl__store_answer(request, FL_INVALID_ARGUMENT, "%s", wrong);
    return request->result;
}
