/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_SERVER_LOAD_H
#define FOLIOT_BENCH_SERVER_LOAD_H

/* The load generator, the same for every server: one thread, connections over loopback that are kept, each with one request
 * under way, the next as soon as it is answered. What a request is and when it is answered is the rival's. */

#include <stdbool.h>
#include <stddef.h>

struct span {
    const char *data;
    size_t size;
};

struct load {
    /* The next request of a connection; it stays valid until it is answered. Empty: there is none any more. */
    struct span (*next)(void *arg, unsigned connection);
    /* What has come of the answer. Returns how much of it was used and need not be shown again, and sets *ret_whole if that
     * was the end of the answer. Ends the program if it is not the right one. */
    size_t (*take)(void *arg, unsigned connection, const char *in, size_t size, bool *ret_whole);
    void *arg;
    unsigned connections;
    int port;
    double max_seconds; /* nothing new is asked after this */
    /* Several servers: connections go to `port` and to these in turn. */
    const int *other_ports;
    unsigned other_count;
};

/* Returns the seconds from the first request to the last answer. */
double load_run(const struct load *load);

/* A port of loopback that nobody listens on. */
int load_free_port(void);
/* A blocking connection to it; -1 if nobody listens. */
int load_connect(int port);

#endif
