/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_SERVER_HTTP_H
#define FOLIOT_BENCH_SERVER_HTTP_H

/* Reads answers of HTTP/1.1 with a length or in chunks, as their bytes come. */

#include <stdbool.h>
#include <stddef.h>

struct http_answer {
    int status; /* 0: its head has not come */
    bool chunked, last;
    size_t left; /* of the body or of the chunk, with what ends it */
    char *body;  /* what has come of it; whoever uses it up sets size back */
    size_t size, room;
};

/* Returns how much was used, and sets *ret_whole at the end of the answer. */
size_t http_take(struct http_answer *answer, const char *in, size_t size, bool *ret_whole);
/* Begins anew; keeps the room. */
void http_reset(struct http_answer *answer);
void http_free(struct http_answer *answer);

#endif
