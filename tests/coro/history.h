/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_CORO_HISTORY_H
#define FOLIOT_TESTS_CORO_HISTORY_H

#include <stddef.h>
#include <stdint.h>

/* A life of some coroutines on one worker, described by bytes and checked against a simple model. Ends the program if they
 * differ. Returns 0. */
int coro_history(const uint8_t *bytes, size_t size);

#endif
