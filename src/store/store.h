/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_STORE_H
#define FOLIOT_STORE_STORE_H

/* Stores: where durable timers are kept. foliot/store.h is the contract; all stores pass the same suite of tests
 * (tests/store/conformance.c).
 *
 * This folder may use base and loop. A store keeps rows and answers requests, in order, on the loop of the shard's engine. It knows nothing of attempts,
 * retries and payloads: the body of a row is bytes.
 *
 *     store.c      opening by URL; functions common to all stores: checking requests, hashes of names, windows
 *     progress.c   which rows are settled, as bytes
 *     history.c    rows of history: which are wanted, and as bytes
 *     memory/      rows in memory, for tests and simulation, with faults on demand: memory/memory.h says which file does what
 *     sqlite/      one SQLite file and two threads per shard: sqlite/sqlite.c says which file does what
 *     postgres/    a shard is a few rows in common tables: postgres/postgres.h says which file does what
 *
 * This header is for the stores, the engine, and programs that look into stores. */

#include <foliot/store.h>

/* Opens what stands behind the scheme in a URL. On failure, `message` says why. */
typedef int fl__store_open_fn(const char *rest, const fl_store_config *config, fl_store **ret, char *message,
                              size_t size);

/* The number of shards of a new store, unless it is given. */
enum { FL__STORE_SHARDS = 4 };

fl__store_open_fn fl__memory_open, fl__sqlite_open, fl__postgres_open;

/* Sets a request's result and its message, which is that of the code if `format` is NULL. */
void fl__store_answer(fl_store_request *request, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns 0, or FL_INVALID_ARGUMENT with a message that says what is wrong with the request. */
int fl__store_validate(fl_store_request *request);

/* Whether only the owner of a shard may ask it: it carries the version of a claim. */
bool fl__store_is_write(const fl_store_request *request);

/* Whether a row of history matches an FL_STORE_HISTORY, or is to be erased by an FL_STORE_FORGET. */
bool fl__history_fits(const fl_store_request *request, const fl_history_row *row);
bool fl__history_is_of(const fl_store_request *request, const fl_history_row *row);

/* A row was appended to the span. */
void fl__history_note(fl_history_span *span, const fl_history_row *row);

/* A row of history as bytes: at most fl__history_size(). Decoding gives pointers into the bytes, and moves `*at` behind the
 * row; false: they are damaged. */
size_t fl__history_size(const fl_history_row *row);
size_t fl__history_encode(const fl_history_row *row, unsigned char *out);
bool fl__history_decode(const unsigned char **at, const unsigned char *end, fl_history_row *ret);

/* Progress as bytes, for the databases. fl__progress_size() bytes at most are written; returns how many. */
size_t fl__progress_size(const fl_progress *progress);
size_t fl__progress_encode(const fl_progress *progress, unsigned char *out);

/* The reverse. `ret->keep` is allocated: fl__release() it. Returns 0, FL_STORE_CORRUPT or FL_NO_MEMORY. */
int fl__progress_decode(fl_bytes encoded, fl_progress *ret);

/* The windows in which a row with that time can be filed, coarse to fine. Returns how many. */
enum { FL__WINDOW_LEVELS = 8 };
size_t fl__window_candidates(int64_t at_us, uint64_t out[FL__WINDOW_LEVELS]);

/* --- For programs that look into the files of the SQLite store ---------------------------------------------------- */

/* A checksum of 32 bits, of bytes and of the number under which they stand. */
int64_t fl__checksum(int64_t k, fl_bytes bytes);

/* That of a dead letter: its id.seq, id.at_us, number of the namespace and died_us, and its bytes. */
int64_t fl__dead_sum(const int64_t numbers[4], fl_bytes name, fl_bytes reason, fl_bytes body);

/* Whether the log of a file is damaged in a way that a crash does not leave it, or is missing although it is `expected`. 0,
 * or FL_STORE_CORRUPT and a message. */
int fl__log_check(const char *path, bool expected, char *message, size_t size);

/* Whether a file has the mark that it is in use. Returns SQLite's code. */
struct sqlite3;
int fl__mark_find(struct sqlite3 *db, bool *ret);

#endif
