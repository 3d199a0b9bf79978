/* SPDX-License-Identifier: MIT */
/* The intrusive wheel against its model, with the histories that the fuzzer finds: see tests/wheel/nodes_history.c. */

#include "wheel/nodes_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    return nodes_history(bytes, size);
}
