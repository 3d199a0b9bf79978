/* SPDX-License-Identifier: MIT */
#include "store/store.h"

int fl__memory_open(const char *rest, const fl_store_config *config, fl_store **ret, char *message, size_t size)
{
    (void)rest, (void)config, (void)ret, (void)message, (void)size;
    return FL_NO_MEMORY;
}

int fl_memory_store_faults(fl_store *store, fl_memory_fault_fn fn, void *arg)
{
    (void)store, (void)fn, (void)arg;
    return FL_INVALID_ARGUMENT;
}
