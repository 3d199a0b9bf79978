/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_ENGINE_BED_H
#define FOLIOT_TESTS_ENGINE_BED_H

/* An engine on the memory store and a virtual clock, and what a test does with it. */

#include <stdbool.h>

#include <foliot/engine.h>

#define SECOND ((int64_t)1000000)
#define START (1700000000 * SECOND)

enum { FIRED_MOST = 4096 };

struct fired {
    char payload[32];
    int64_t at_us;
    uint32_t attempt;
};

extern struct bed {
    /* The wall clock follows the loop's. */
    struct wall {
        fl_wall_clock clock;
        fl_virtual_clock time;
        int64_t offset_us;
    } wall;
    fl_loop *loop;
    fl_store *store;
    fl_engine *engine;
    struct fired fired[FIRED_MOST];
    size_t fired_count;
    enum fl_settle answer; /* to the first `failures` firings; then FL_DONE */
    size_t failures;
    int64_t answer_at_us; /* 0: 10 s later, for FL_AGAIN and FL_LATER */
    bool keep;            /* do not settle */
    uint64_t tokens[FIRED_MOST];
    int events[8];
    bool stopped;
} bed;

void set_up(fl_engine_config config); /* with a store of one shard */
void tear_down(void);
void set_up_store(void); /* without an engine */
void tear_down_store(void);
void start_engine(fl_engine_config config);
int try_start(fl_engine_config config);
void stop_engine(bool now);

int64_t wall_now(fl_wall_clock *clock);
void step_clock(int64_t by_us); /* and tells the engine */
void run_for(int64_t us);       /* and checks the engine */

fl_bytes text(const char *s);
fl_op run_op(fl_op op);
fl_op create(const char *name, int64_t after_us, const char *payload);
fl_op by_name(enum fl_op_kind kind, const char *name);

#endif
