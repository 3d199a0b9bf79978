/* SPDX-License-Identifier: MIT */
/* The wheel against its model, with the histories that the fuzzer finds: see tests/wheel/history.c. */

#include "wheel/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    return wheel_history(bytes, size);
}
