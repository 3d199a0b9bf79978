/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_STORE_HISTORY_H
#define FOLIOT_TESTS_STORE_HISTORY_H

#include <stddef.h>
#include <stdint.h>

/* Lives through the history of a shard that `bytes` spell, whatever they are, with the store under test and with the model
 * of model.h; ends the program where they differ. Returns 0. */
int store_history(const uint8_t *bytes, size_t size);

#endif
