/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_LIST_H
#define FOLIOT_BASE_LIST_H

/* Lists that are linked by a member called `next`. */

#include <stddef.h>

/* Turns a list round and returns its new first one: what threads have pushed one by one onto a shared stack is newest
 * first, and is to be dealt with in the order in which it came. */
#define fl__list_reverse(list)                    \
    ({                                            \
        __typeof__(list) rest_ = (list);          \
        __typeof__(list) turned_ = NULL;          \
        while (rest_) {                           \
            __typeof__(list) next_ = rest_->next; \
            rest_->next = turned_;                \
            turned_ = rest_;                      \
            rest_ = next_;                        \
        }                                         \
        turned_;                                  \
    })

#endif
