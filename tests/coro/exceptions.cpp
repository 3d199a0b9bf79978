/* SPDX-License-Identifier: MIT */
/* Coroutines in C++: exceptions stay with the coroutine that has them, whoever runs while it waits. */

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include <cstdio>
#include <cstdlib>

#include <foliot/coro.h>

namespace
{

int number;

void check(bool condition, const char *what)
{
    if (condition)
        return;
    std::printf("not ok %d - %s\nBail out!\n", number + 1, what);
    std::exit(1);
}

void pause()
{
    fl_coro_yield();
    fl_sleep_ns(1000);
}

/* --- A wait in a catch block, and exceptions within exceptions */

void catch_own(void *arg)
{
    std::string name = std::to_string(*static_cast<int *>(arg));
    for (int i = 0; i < 20; i++) {
        try {
            throw std::runtime_error(name);
        } catch (const std::exception &error) {
            pause();
            check(name == error.what(), "the exception at hand is one's own");
            try {
                throw std::logic_error(name + "!");
            } catch (const std::exception &inner) {
                pause();
                check(name + "!" == inner.what(), "the inner one too");
            }
            try {
                pause();
                throw;
            } catch (const std::exception &again) {
                check(name == again.what(), "thrown again, it is the same");
            }
        }
        check(!std::current_exception(), "none is left");
    }
}

/* --- A wait in a destructor while an exception is on its way */

struct Slow {
    ~Slow()
    {
        check(std::uncaught_exceptions() == 1, "one is on its way");
        pause();
        check(std::uncaught_exceptions() == 1, "and still is");
    }
};

void unwind_slowly(void *arg)
{
    int mine = *static_cast<int *>(arg);
    for (int i = 0; i < 20; i++) {
        check(std::uncaught_exceptions() == 0, "none is on its way");
        try {
            Slow slow;
            throw mine;
        } catch (int caught) {
            check(caught == mine, "what is caught is what was thrown");
        }
    }
}

void keep_none(void *)
{
    for (int i = 0; i < 60; i++) {
        check(!std::current_exception() && std::uncaught_exceptions() == 0, "others have nothing to do with it");
        pause();
    }
}

/* --- */

struct Kind {
    const char *name;
    fl_task_fn fn;
};

void run(fl_runtime *rt, const std::vector<Kind> &kinds, size_t stack_size, bool resizing)
{
    static int ids[60];
    std::vector<fl_coro *> coros;
    fl_coro_options options = {"C++", stack_size};
    for (int i = 0; i < 60; i++) {
        ids[i] = i;
        fl_coro *coro;
        if (fl_coro_spawn(rt, &options, kinds[i % kinds.size()].fn, &ids[i], &coro) < 0)
            std::abort();
        coros.push_back(coro);
    }
    for (unsigned workers = 1; resizing && workers < 20; workers++)
        if (fl_runtime_resize(rt, workers % 3) < 0)
            std::abort();
    if (fl_runtime_resize(rt, 2) < 0)
        std::abort();
    for (fl_coro *coro : coros) {
        fl_coro_join(coro);
        fl_coro_unref(coro);
    }
}

void report(const char *what)
{
    std::printf("ok %d - %s\n", ++number, what);
}

} // namespace

int main()
{
    fl_runtime *rt;
    if (fl_runtime_new(nullptr, &rt) < 0)
        return 1;
    std::printf("1..5\n");
    run(rt, {{"catch", catch_own}}, 0, false);
    report("a coroutine may wait in a catch block");
    run(rt, {{"unwind", unwind_slowly}}, 0, false);
    report("a coroutine may wait in a destructor while an exception is on its way");
    run(rt, {{"catch", catch_own}, {"unwind", unwind_slowly}, {"none", keep_none}}, 0, false);
    report("those who have none are not concerned");
    run(rt, {{"catch", catch_own}, {"unwind", unwind_slowly}, {"none", keep_none}}, 65536, false);
    report("the same on stacks of their own");
    run(rt, {{"catch", catch_own}, {"unwind", unwind_slowly}, {"none", keep_none}}, 0, true);
    report("exceptions go along to another worker");
    fl_runtime_free(rt);
}
