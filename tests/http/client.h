/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_HTTP_CLIENT_H
#define FOLIOT_TESTS_HTTP_CLIENT_H

/* A server whose handlers do what the path says, and raw clients, all on one thread: whoever waits for the server turns
 * its loop. Time is virtual and passes only when told to. */

#include <foliot/loop.h>

#include "http/http.h"

enum { ANSWER_ROOM = 1 << 20 };

struct service {
    fl_virtual_clock clock;
    fl_loop *loop;
    http_server *server;
    uint16_t port;
    int heads, handled, gone, sent; /* how often each was called */
    http_request *kept;             /* by /keep and its like: not answered yet */
    bool answer_gone;               /* answer it as soon as it is gone; all others are anyway */
    size_t streamed;                /* bytes that `data` got */
    uint64_t sum;                   /* of them */
    bool last;
    bool done; /* of http_server_stop() */
};

extern struct service service;

/* The members of `config` that are not the fixture's own may be set. */
void service_start(const struct http_config *config);
void service_end(void);
void service_turn(void);
void service_pass(uint64_t ns); /* lets time pass, a turn at the end */
void service_stop(void);        /* begins to; `done` tells when */

/* Turns the loop until the condition holds; fails if that does not happen. */
#define UNTIL(condition)                               \
    do {                                               \
        for (int turns_ = 0; !(condition); turns_++) { \
            CHECK(turns_ < 100000);                    \
            service_turn();                            \
            if (turns_ > 100)                          \
                usleep(100);                           \
        }                                              \
    } while (0)

struct client {
    int fd;
    bool closed; /* the server has, or has reset the connection */
    size_t size;
    char *data; /* come, and not looked at yet */
    int status; /* of the last answer */
    char head[4096];
    size_t body_size;
    char *body;
};

struct client *client_new(void);
void client_free(struct client *client);
void client_send(struct client *client, const void *data, size_t size);
void client_say(struct client *client, const char *text);
void client_dribble(struct client *client, const char *text); /* byte by byte */
void client_receive(struct client *client);                   /* what has come */
bool client_take(struct client *client, bool to_head);        /* an answer, if it is whole */
int client_answer(struct client *client);                     /* waits for the next answer; its status */
bool client_body_is(const struct client *client, const char *text);

#endif
