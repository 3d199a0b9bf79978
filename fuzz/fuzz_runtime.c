/* SPDX-License-Identifier: MIT */
/* The runtime against its model, with the histories that the fuzzer finds: see tests/runtime/history.c. */

#include "runtime/history.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    return runtime_history(bytes, size);
}
