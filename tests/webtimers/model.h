/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_WEBTIMERS_MODEL_H
#define FOLIOT_TESTS_WEBTIMERS_MODEL_H

/* The browser's timers beside a model of them: a list, in which the next one is looked for. Aborts where they differ. */

#include <stddef.h>
#include <stdint.h>

/* Lives a history through that is written in bytes, whatever they are; returns 0, as fuzzers want it. */
int webtimers_history(const uint8_t *bytes, size_t size);

#endif
