/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CLI_DOCTOR_H
#define FOLIOT_CLI_DOCTOR_H

/* What `foliot doctor` must know of a shard that only its database can say. */

#include <foliot/store.h>

struct doctor {
    const char *url;  /* of the store */
    const char *path; /* of its folder, or NULL */
    uint64_t problems;
};

/* A row that was moved, and where to. */
struct moved {
    uint64_t id_seq;
    fl_key key;
};

struct facts {
    char owner[256];
    int64_t lease_until_us, now_us; /* by the clock that leases go by */
    fl_progress progress;           /* `keep` is allocated */
    uint64_t *windows;
    size_t window_count;
    uint64_t *spans; /* of the history */
    size_t span_count;
    struct moved *moved;
    size_t moved_count;
    struct tally *tallies; /* a hash table; NULL: the rows cannot be compared with what the store has counted */
    size_t tally_room, tally_count;
};

/* How many more rows a namespace has than the store has counted. */
struct tally {
    uint64_t hash; /* of the namespace */
    int64_t more;
    bool used;
};

/* Of each database: whether there is a store at all (CLI_OK, or another exit status and a message); its own checks and the facts of a shard
 * (0, or -1 after doctor_problem()). What the facts point to is to be freed with facts_free() either way. */
int sqlite_is_there(const struct doctor *doctor, char *message, size_t size);
int sqlite_facts(struct doctor *doctor, uint32_t shard, struct facts *ret);
void sqlite_examine(struct doctor *doctor); /* reads everything in a store that cannot be opened */
int postgres_is_there(const struct doctor *doctor, char *message, size_t size);
int postgres_facts(struct doctor *doctor, uint32_t shard, struct facts *ret);

enum { DOCTOR_COMPLAINTS = 20 }; /* that are printed */

/* Says that something is wrong with a shard, or with the store (UINT32_MAX). */
void doctor_problem(struct doctor *doctor, uint32_t shard, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Add to the arrays. False: there is no memory. */
bool facts_add_window(struct facts *facts, uint64_t window);
bool facts_add_span(struct facts *facts, uint64_t span);
bool facts_add_moved(struct facts *facts, struct moved moved);
bool facts_count(struct facts *facts, fl_bytes ns, int64_t more);
void facts_free(struct facts *facts);
/* Makes room for one more than `count`. */
bool doctor_reserve(void **array, size_t count, size_t size);

#endif
