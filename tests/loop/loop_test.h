/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_LOOP_LOOP_TEST_H
#define FOLIOT_TESTS_LOOP_LOOP_TEST_H

/* What the tests of the loop share: a loop on a virtual clock, and a diary of what was called.
 *
 *     begin();
 *     make_timer(20, "b");
 *     make_timer(10, "a");
 *     run();
 *     CHECK_DIARY("ab");
 *     end();
 */

#include <string.h>

#include <foliot/loop.h>

#include "test.h"
#include "wheel/wheel_test.h"

#define START SECOND

extern fl_virtual_clock test_time;
extern fl_loop *loop;
extern char diary[1024];

void begin(void);
void begin_with_budget(uint32_t budget);
void end(void); /* checks and frees the loop */

void run(void);                 /* fl_loop_run(), and it must return 0 */
void turn(void);                /* one turn that does not wait */
void write_down(const char *s); /* into the diary */
void note(fl_loop *loop, void *arg);
fl_timer_id make_timer(uint64_t delay_ns, const char *s);
fl_timer_id make_timer_for(uint64_t delay_ns, fl_loop_fn fn, void *arg);
fl_loop_stats stats(void);
char *letter(unsigned n); /* 0 is "a", and after "z" comes "a" again */

static inline uint64_t elapsed(void)
{
    return test_time.time_ns - START;
}

#define CHECK_DIARY(expected)                                                                      \
    do {                                                                                           \
        if (strcmp(diary, (expected)) != 0)                                                        \
            test_fail(__FILE__, __LINE__, "the diary says \"%s\", not \"%s\"", diary, (expected)); \
        diary[0] = '\0';                                                                           \
    } while (0)

#endif
