/* SPDX-License-Identifier: MIT */
/* The browser's timers against their model, with the histories that the fuzzer finds: see tests/webtimers/model.c. */

#include "webtimers/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    return webtimers_history(bytes, size);
}
