/* SPDX-License-Identifier: MIT */
/* Boost.Context (the switch) and Boost.Fiber (the rest), for the benchmark: see coro.c for what a rival is asked.
 *
 * Stacks come from Boost's own pool, 8 KiB each: its default of 128 KiB would only cost it more. */

#include <boost/context/detail/fcontext.hpp>
#include <boost/fiber/all.hpp>
#include <unistd.h>

#include "rival.h"

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

static size_t count;
static uint64_t sleep_ns;

static void switch_back(transfer_t from)
{
    for (;;)
        from = jump_fcontext(from.fctx, nullptr);
}

static void measure_switch()
{
    alignas(64) static char stack[65536];
    transfer_t other = {make_fcontext(stack + sizeof(stack), sizeof(stack), switch_back), nullptr};
    uint64_t begin_ns = rival_cpu_ns();
    for (size_t i = 0; i < count / 2; i++)
        other = jump_fcontext(other.fctx, nullptr);
    rival_answer((double)(rival_cpu_ns() - begin_ns) / (double)count);
}

static void yield_often()
{
    for (size_t i = 0; i < count / 2; i++)
        boost::this_fiber::yield();
}

static void measure_yield()
{
    boost::fibers::fiber a(yield_often), b(yield_often);
    uint64_t begin_ns = rival_cpu_ns();
    a.join();
    b.join();
    rival_answer((double)(rival_cpu_ns() - begin_ns) / (double)count);
}

static void measure_sleep()
{
    float *lateness_us = rival_lateness(count);
    size_t asleep = 0, awake = 0;
    uint64_t asleep_ns = 0;
    boost::fibers::mutex lock;
    boost::fibers::condition_variable all_awake;
    boost::fibers::pooled_fixedsize_stack stacks(8192);
    auto sleeper = [&] {
        uint64_t deadline_ns = rival_real_ns() + sleep_ns;
        if (++asleep == count)
            asleep_ns = rival_real_ns();
        boost::this_fiber::sleep_for(std::chrono::nanoseconds(sleep_ns));
        lateness_us[awake++] = (float)(rival_real_ns() - deadline_ns) / 1e3f;
        if (awake == count)
            all_awake.notify_all();
    };
    uint64_t begin_ns = rival_real_ns();
    for (size_t i = 0; i < count; i++) {
        boost::fibers::fiber(std::allocator_arg, stacks, sleeper).detach();
        if (i % 256 == 255)
            boost::this_fiber::yield();
    }
    std::unique_lock<boost::fibers::mutex> guard(lock);
    all_awake.wait(guard, [&] { return awake == count; });
    rival_answer_sleep(asleep_ns - begin_ns, lateness_us, count);
    fflush(stdout);
    _exit(0); /* the last fibers are still at their end */
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    count = strtoull(argv[2], nullptr, 10);
    sleep_ns = strtoull(argv[3], nullptr, 10) * 1000000u;
    if (strcmp(argv[1], "switch") == 0)
        measure_switch();
    else if (strcmp(argv[1], "yield") == 0)
        measure_yield();
    else
        measure_sleep();
    return 0;
}
