/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_STORE_CONFORMANCE_H
#define FOLIOT_TESTS_STORE_CONFORMANCE_H

/* One suite for all stores: what foliot/store.h promises, sentence by sentence.
 *
 * The program of a store says in `under_test` how to open an empty one and is linked with the files of the suite
 * (`conformance_sources` in meson.build; `shared_…` if several processes may have the store open), whose tests register
 * themselves. They are driven from the outside: a loop on the machine's clock, requests, answers.
 *
 *     begin();                                    // an empty store, a loop, shard 0 attached
 *     uint64_t version = claim(shard, "me");
 *     fl_row row = make_row(2, 1000, 25);
 *     put(shard, version, &row, 1);
 *     CHECK(is_there(shard, row.id, NULL));
 *     end();
 *
 * What a store gives back lives until `done` returns; the suite copies it, and it then lives until end().
 */

#include <string.h>

#include <foliot/store.h>

#include "test.h"
#include "wheel/wheel_test.h" /* SCALE, random numbers */

struct store_under_test {
    int (*open)(uint32_t shards, fl_store **ret); /* a new and empty one */
    int (*reopen)(fl_store **ret);                /* the same again, after it was closed. NULL: nothing survives that */
    void (*remove)(void);                         /* of what is left after it was closed. NULL: nothing */
    bool counts_deleted;                          /* FL_STORE_FINISH says how many it has deleted */
    bool claims_end;                              /* with the last attachment: no other process can have a claim */
    unsigned histories;                           /* random ones; 0: 100 */
};

extern const struct store_under_test under_test;

extern fl_loop *loop;
extern fl_store *store;
extern fl_shard *shard; /* of shard 0, attached by begin() */

void begin(void); /* with two shards */
void end(void);
fl_shard *attach(uint32_t number);
void detach(fl_shard *which);
void reopen(void); /* detaches `shard`, closes and opens the store again, attaches `shard` */

/* A request, and what came back. */
struct asked {
    fl_store_request request;
    bool answered;
    unsigned place;       /* it was the n-th answer of this test */
    unsigned rows_called; /* how often rows came */
    fl_row *rows;         /* FL_STORE_LOAD: all of them */
    size_t count, room;
};

void ask(fl_shard *which, struct asked *asked); /* submits; `asked` must stay where it is */
int await(struct asked *asked);                 /* its result */
int perform(fl_shard *which, struct asked *asked);

/* Requests. */
struct asked to_claim(const char *owner, uint64_t claim_us, bool force);
struct asked to_write(uint64_t version, const fl_store_change *changes, size_t count);
struct asked to_find(fl_store_want *wants, size_t count);
struct asked to_list(uint64_t window);
struct asked to_load(const uint64_t *windows, size_t count); /* everything */
struct asked to_refile(uint64_t version, uint64_t window, size_t limit);
struct asked to_record(uint64_t version, const fl_progress *progress);
struct asked to_list_dead(void);
struct asked to_meet(const char *address, uint64_t incarnation, uint64_t claim_us, bool join);
struct asked simple(enum fl_store_op op, uint64_t version);

#define HOUR_US (3600 * (uint64_t)1000000)

/* Rows in namespace "ns", with the number in the body; filed under the window of that shift. */
fl_row make_row(uint64_t seq, int64_t at_us, unsigned shift);
fl_row make_named(uint64_t seq, int64_t at_us, unsigned shift, const char *name);
fl_row move_row(fl_row row, uint64_t seq, int64_t at_us, unsigned shift);
fl_dead_row make_dead(fl_row row, const char *reason);
fl_bytes text(const char *s);
void *remember(const void *data, size_t size); /* a copy until end() */

/* The common ways to do something that must succeed. */
uint64_t claim(fl_shard *which, const char *owner); /* with force, for an hour */
void put(fl_shard *which, uint64_t version, const fl_row *rows, size_t count);
void write_one(fl_shard *which, uint64_t version, fl_store_change change);
bool is_there(fl_shard *which, fl_key id, fl_row *ret); /* `ret` may be NULL */
bool is_named(fl_shard *which, const char *name, fl_row *ret);
size_t load(fl_shard *which, uint64_t window, fl_row **ret); /* all rows of a window; `ret` may be NULL */

bool same_key(fl_key a, fl_key b);
bool same_bytes(fl_bytes a, fl_bytes b);
bool same_row(const fl_row *a, const fl_row *b);

#endif
