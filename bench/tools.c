/* SPDX-License-Identifier: MIT */
/* Clocks, random order and memory for benchmarks.
 *
 * The clocks go to the kernel by system call: a benchmark may replace clock_gettime() in the whole program to run
 * libraries on a virtual clock, and must not stop its own watch with it. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "frame.h"

#define HUGE_PAGE ((size_t)2 << 20)

_Noreturn void bench_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("\nbench: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec ts;
    syscall(SYS_clock_gettime, clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t bench_cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t bench_real_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

double bench_tick_ns(void)
{
    static double tick_ns;
    if (tick_ns == 0) {
        uint64_t ns = bench_real_ns(), ticks = bench_ticks();
        while (bench_real_ns() - ns < 20000000)
            ;
        tick_ns = (double)(bench_real_ns() - ns) / (double)(bench_ticks() - ticks);
    }
    return tick_ns;
}

uint64_t bench_random_below(uint64_t *state, uint64_t limit)
{
    return (uint64_t)(((unsigned __int128)bench_random(state) * limit) >> 64);
}

uint32_t *bench_permutation(uint64_t seed, size_t count)
{
    uint32_t *order = malloc(count * sizeof *order);
    if (!order)
        bench_die("no memory for a permutation of %zu", count);
    for (size_t i = 0; i < count; i++) {
        size_t j = bench_random_below(&seed, i + 1);
        order[i] = order[j];
        order[j] = (uint32_t)i;
    }
    return order;
}

/* A process may forbid itself transparent huge pages. That makes 4 KiB mean 4 KiB where the system's default is
 * "always"; where it is "madvise", nobody gets a huge page who did not ask. */
void bench_allow_huge_pages(bool allow)
{
    prctl(PR_SET_THP_DISABLE, !allow, 0, 0, 0);
}

static size_t round_up(size_t size)
{
    return (size + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
}

void *bench_map(size_t size, bool huge)
{
    size_t wanted = round_up(size);
    char *raw = mmap(NULL, wanted + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        bench_die("no memory: %zu bytes", size);
    size_t before = -(uintptr_t)raw & (HUGE_PAGE - 1);
    if (before > 0)
        munmap(raw, before);
    munmap(raw + before + wanted, HUGE_PAGE - before);
    if (madvise(raw + before, wanted, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0 && huge)
        fputs("bench: the kernel has no 2 MiB pages for us\n", stderr);
    memset(raw + before, 0, size);
    return raw + before;
}

void bench_unmap(void *block, size_t size)
{
    munmap(block, round_up(size));
}

/* smaps_rollup counts the pages one by one; the figures in /proc/self/statm are approximate on machines with many
 * processors. */
uint64_t bench_resident_bytes(void)
{
    char line[256];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    if (!f)
        bench_die("/proc/self/smaps_rollup cannot be read");
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "Anonymous:", 10) == 0)
            kib = strtoull(line + 10, NULL, 10);
    fclose(f);
    return kib * 1024;
}
