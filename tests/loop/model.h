/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_LOOP_MODEL_H
#define FOLIOT_TESTS_LOOP_MODEL_H

/* A loop and its model, side by side: for random tests and for the fuzzer.
 *
 * The model is the contract in its simplest form: a list of timers that is searched for the earliest, plain queues, and
 * the phases of a turn written down one after the other. Whenever the loop calls a callback, the model says which one it
 * had to be; whenever the loop returns, the model says whether something was left out.
 */

#include <stddef.h>
#include <stdint.h>

/* Lives through the history that `bytes` spell, whatever they are, on a virtual clock; aborts, having said why, where
 * loop and model differ. Returns 0. */
int loop_history(const uint8_t *bytes, size_t size);

#endif
