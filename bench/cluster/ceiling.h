/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_CLUSTER_CEILING_H
#define FOLIOT_BENCH_CLUSTER_CEILING_H

/* What the database can do without Foliot: the rows that Foliot has made are taken out of its table, and put into it again. */

#include "fleet.h"

struct rows {
    char *data; /* of COPY … BINARY */
    size_t *ends, count, room;
};

/* Takes all rows out of the table of timers, which is empty then. */
void rows_take(struct rows *rows, const struct fleet *fleet);
void rows_free(struct rows *rows);

/* All of them in, by COPY; one by one, by INSERT, until the time is over; all of them read and deleted. The processor's time of
 * the database is in *ret_cpu_ns. */
struct done rows_copy(const struct rows *rows, const struct fleet *fleet, uint64_t *ret_cpu_ns);
struct done rows_insert(const struct rows *rows, const struct fleet *fleet, uint64_t *ret_cpu_ns);
struct done rows_remove(const struct rows *rows, const struct fleet *fleet, uint64_t *ret_cpu_ns);

#endif
