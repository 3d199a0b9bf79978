/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_RUNTIME_HISTORY_H
#define FOLIOT_TESTS_RUNTIME_HISTORY_H

#include <stddef.h>
#include <stdint.h>

/* A life of a runtime, described by bytes, and checked step by step against a simple model; ends the program if they
 * differ. Returns 0. */
int runtime_history(const uint8_t *bytes, size_t size);

#endif
