/* SPDX-License-Identifier: MIT */
/* What rivals share: see rival.h. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../frame.h"
#include "rival.h"

int64_t wall_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void payload_text(size_t i, char text[PAYLOAD + 1])
{
    static const char digits[] = "0123456789abcdef";
    memset(text, '.', PAYLOAD);
    text[PAYLOAD] = '\0';
    for (int at = 16; at-- > 0; i >>= 4)
        text[at] = digits[i & 15];
}

void script_printf(struct script *script, const char *format, ...)
{
    va_list arguments;
    if (script->room - script->size < 1024) {
        script->room = 2 * script->room + 4096;
        script->data = realloc(script->data, script->room);
        if (!script->data)
            bench_die("no memory");
    }
    va_start(arguments, format);
    int n = vsnprintf(script->data + script->size, script->room - script->size, format, arguments);
    va_end(arguments);
    if (n < 0 || n >= 1024)
        bench_die("a line is too long");
    script->size += (size_t)n;
}

void script_mark(struct script *script)
{
    if (script->mark_count == script->mark_room) {
        script->mark_room = 2 * script->mark_room + 16;
        script->marks = realloc(script->marks, script->mark_room * sizeof *script->marks);
        if (!script->marks)
            bench_die("no memory");
    }
    script->marks[script->mark_count++] = script->size;
}

struct span script_next(struct script *script)
{
    if (script->next == script->mark_count)
        return (struct span){0};
    size_t begin = script->marks[script->next++];
    size_t end = script->next < script->mark_count ? script->marks[script->next] : script->size;
    return (struct span){script->data + begin, end - begin};
}

void script_free(struct script *script)
{
    free(script->data);
    free(script->marks);
}
