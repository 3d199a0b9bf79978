/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_WEBHOOK_RECEIVER_H
#define FOLIOT_TESTS_WEBHOOK_RECEIVER_H

/* A receiver of webhooks on a loopback port: threads with plain sockets, that behave as well or as badly as the path of the
 * request says.
 *
 *   /canned        answers with the bytes that were set, and keeps the connection
 *   /close         the same, and closes
 *   /drip          the same, a byte at a time
 *   /hang          reads and says nothing
 *   /early         closes without an answer
 *   /half          closes in the middle of the canned bytes
 *   /endless       a body that never ends; /endless-chunked: the same in chunks; /endless-head
 *   /stale         a good answer, and closes the connection after it without having said so
 *   anything else  200, no body
 */

#include <stddef.h>
#include <stdint.h>

typedef struct receiver receiver;

receiver *receiver_new(void);
receiver *receiver_new_at(unsigned port);        /* at this port; 0: any */
receiver *receiver_new_tls(const char *ca_file); /* with TLS; writes the certificate, for 127.0.0.1, to this file */
void receiver_free(receiver *receiver);          /* ends every connection */
unsigned receiver_port(const receiver *receiver);

/* The bytes for /canned and its kin; for all requests from now on. */
void receiver_set(receiver *receiver, const char *response);

/* Requests so far, and connections. */
unsigned receiver_requests(receiver *receiver);
unsigned receiver_connections(receiver *receiver);

/* Waits until there have been so many requests. */
void receiver_wait(receiver *receiver, unsigned count);

/* The last request: head and body as they came, ended by NUL. Until the next call. */
const char *receiver_last(receiver *receiver, size_t *ret_size);

#endif
