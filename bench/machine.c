/* SPDX-License-Identifier: MIT */
/* The machine: what it is, and how fast it reaches random memory.
 *
 * The memory is cut into lines of 64 bytes and visited in an order without pattern, given by a bijection of line
 * numbers that is computed, not stored: a table of the order would itself be memory traffic.
 *
 * Dependent: each line holds the number of the next one, so that a load cannot begin before the last one has ended.
 * That is what following a pointer costs. Independent: the numbers are computed ahead and the processor overlaps the
 * loads. That is what a loop over random places costs at best. */

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/utsname.h>

#include "frame.h"
#include "machine.h"

struct line {
    uint64_t next;
    char rest[56];
};

/* Each step can be undone, modulo a power of two, so no two numbers meet. */
static inline uint64_t scatter(uint64_t i, uint64_t mask, unsigned half)
{
    for (int round = 0; round < 2; round++) {
        i = (i * 0x9e3779b97f4a7c15u + 0x7f4a7c15u) & mask;
        i ^= i >> half;
    }
    return i;
}

static volatile uint64_t sink;

static struct machine_limits look_at_memory(size_t span, bool huge)
{
    uint64_t lines = span / sizeof(struct line), mask = lines - 1, visits = lines < (1u << 21) ? lines : 1u << 21;
    unsigned half = (unsigned)__builtin_ctzll(lines) / 2;
    struct line *memory = bench_map(span, huge);
    for (uint64_t i = 0; i < lines; i++)
        memory[scatter(i, mask, half)].next = scatter((i + 1) & mask, mask, half);

    uint64_t begin = bench_cpu_ns(), at = 0;
    for (uint64_t i = 0; i < visits; i++)
        at = memory[at].next;
    uint64_t middle = bench_cpu_ns();
    for (uint64_t i = 0; i < visits; i++)
        at += memory[scatter((i + lines / 2) & mask, mask, half)].next;
    uint64_t end = bench_cpu_ns();

    sink = at;
    bench_unmap(memory, span);
    return (struct machine_limits){(double)(middle - begin) / (double)visits, (double)(end - middle) / (double)visits};
}

/* The part after the colon of the first line of `path` that begins with `key`; the whole first line if `key` is "". */
static void read_value(const char *path, const char *key, char *ret, size_t size)
{
    char line[512];
    FILE *f = fopen(path, "r");
    snprintf(ret, size, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *colon = *key ? strchr(line, ':') : NULL;
        const char *value = colon ? colon + 1 + strspn(colon + 1, " \t") : line;
        snprintf(ret, size, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (f)
        fclose(f);
}

static void describe(struct machine *ret)
{
    struct utsname system;
    char modes[128];
    time_t now = time(NULL);
    uname(&system);
    read_value("/proc/cpuinfo", "model name", ret->cpu, sizeof ret->cpu);
    snprintf(ret->kernel, sizeof ret->kernel, "%.20s %.60s, %.20s", system.sysname, system.release, system.machine);
#ifdef __clang__
    snprintf(ret->compiler, sizeof ret->compiler, "clang %s", __clang_version__);
#else
    snprintf(ret->compiler, sizeof ret->compiler, "gcc %s", __VERSION__);
#endif
    read_value("/sys/kernel/mm/transparent_hugepage/enabled", "", modes, sizeof modes);
    if (sscanf(modes, "%*[^[][%31[^]]", ret->huge_pages) != 1 && sscanf(modes, "[%31[^]]", ret->huge_pages) != 1)
        snprintf(ret->huge_pages, sizeof ret->huge_pages, "none");
    strftime(ret->date, sizeof ret->date, "%Y-%m-%d", gmtime(&now));
    ret->processors = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    ret->page_size = sysconf(_SC_PAGESIZE);
    ret->memory_gib = (double)sysconf(_SC_PHYS_PAGES) * (double)ret->page_size / (1u << 30);
}

void machine_look(struct machine *ret, size_t span)
{
    describe(ret);
    ret->span = span;
    bench_allow_huge_pages(true);
    ret->small_pages = look_at_memory(span, false);
    ret->large_pages = look_at_memory(span, true);
}
