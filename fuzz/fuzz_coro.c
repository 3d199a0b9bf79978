/* SPDX-License-Identifier: MIT */
/* Coroutines against their model, with the histories that the fuzzer finds: see tests/coro/history.c. */

#include "coro/history.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    return coro_history(bytes, size);
}
