/* SPDX-License-Identifier: MIT */
/* The loop against its model, with the histories that the fuzzer finds: see tests/loop/model.c. */

#include "loop/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    return loop_history(bytes, size);
}
