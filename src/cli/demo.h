/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CLI_DEMO_H
#define FOLIOT_CLI_DEMO_H

/* What `foliot demo` measures (demo.c) and shows (demo_view.c). */

#include <stdbool.h>
#include <stdint.h>

#include <foliot/wheel.h>

#include "base/histogram.h"

/* How often something was done, and the time spent on it. */
struct demo_work {
    uint64_t count, ns;
};

/* What happened in a span of time. */
struct demo_span {
    uint64_t ns;
    struct demo_work schedule, cancel, fire;
    struct histogram late_ns; /* from a timer's deadline until the program had it in its hands */
};

struct demo_state {
    const fl_wheel *wheel;
    uint64_t elapsed_ns, planned_ns;
    struct demo_span recent; /* since the last picture */
    struct demo_span whole;  /* since the start */
};

/* Prepares standard output: a screen that is drawn over and over if it is a terminal, else lines. */
void demo_view_begin(void);
uint64_t demo_view_interval_ns(void); /* how often to show */
void demo_view_show(const struct demo_state *state);

/* Gives the terminal back as it was, then prints the summary. */
void demo_view_end(const struct demo_state *state);

#endif
