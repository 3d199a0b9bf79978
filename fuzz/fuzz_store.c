/* SPDX-License-Identifier: MIT */
/* The memory store against its model, with the histories that the fuzzer finds: see tests/store/history.c. */

#include <stdarg.h>
#include <stdlib.h>

#include "store/conformance.h"
#include "store/history.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int open_memory(uint32_t shards, fl_store **ret)
{
    return fl_store_open("memory:", &(fl_store_config){.shards = shards}, ret, NULL, 0);
}

const struct store_under_test under_test = {.open = open_memory, .counts_deleted = true};

/* In place of the frame that runs tests. */
void test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    return store_history(bytes, size);
}
