/* SPDX-License-Identifier: MIT */
/* What the prelude may call. Scripts do not see these functions; they see what the prelude makes of them. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "js/js.h"
#include "js/text.h"

#define NS_PER_MS 1000000

/* JavaScriptCore's, for those who know the engine well: not in the headers that Debian installs. */
extern JSObjectRef JSObjectGetProxyTarget(JSObjectRef object);

/* A function for the prelude. Not every one looks at all that it is given; NULL is `undefined`. */
#define UNUSED __attribute__((unused))
#define NATIVE(name)                                                                                          \
    static JSValueRef name(UNUSED JSContextRef context, UNUSED JSObjectRef function, UNUSED JSObjectRef self, \
                           UNUSED size_t argument_count, UNUSED const JSValueRef arguments[],                 \
                           UNUSED JSValueRef *exception)

/* --- Timers */

NATIVE(read_queue)
{
    queue_read();
    return NULL;
}

NATIVE(mark_queue)
{
    queue_mark();
    return NULL;
}

/* The slot of the prelude's function that is to be called is all that a callback of the loop carries. */
static void *slot_of(JSContextRef context, JSValueRef argument)
{
    return (void *)(uintptr_t)JSValueToNumber(context, argument, NULL);
}

static void expire(fl_loop *loop, void *arg)
{
    (void)loop;
    JSValueRef slot = JSValueMakeNumber(host.context, (double)(uintptr_t)arg);
    host_call(host.entries.expire, 1, &slot);
}

/* immediate(slot) */
NATIVE(immediate)
{
    int r = fl_loop_immediate(host.loop, expire, slot_of(context, arguments[0]), NULL);
    if (r < 0)
        host_die(r);
    return NULL;
}

/* after(slot, milliseconds): a timer that does not keep the loop alive unless it is told to. Returns its ID. */
NATIVE(after)
{
    fl_timer_id id;
    double ns = JSValueToNumber(context, arguments[1], NULL) * NS_PER_MS;
    uint64_t delay_ns = ns < 0x1p63 ? (uint64_t)ns : UINT64_MAX, now_ns = fl_loop_now_ns(host.loop);
    fl_clock *clock = fl_clock_monotonic();
    uint64_t since_ns = clock->now_ns(clock) - now_ns; /* the loop's own time is not moved: see fl_webtimers_options */
    delay_ns = delay_ns + since_ns < delay_ns ? UINT64_MAX : delay_ns + since_ns;
    int r = fl_loop_timer(host.loop, delay_ns, expire, slot_of(context, arguments[0]), &id);
    if (r < 0)
        host_die(r);
    fl_loop_unref(host.loop, id);
    return JSValueMakeNumber(context, (double)id);
}

/* ref(id), unref(id) */
NATIVE(ref)
{
    fl_loop_ref(host.loop, (fl_timer_id)JSValueToNumber(context, arguments[0], NULL));
    return NULL;
}

NATIVE(unref)
{
    fl_loop_unref(host.loop, (fl_timer_id)JSValueToNumber(context, arguments[0], NULL));
    return NULL;
}

/* cancel(id) */
NATIVE(cancel)
{
    fl_loop_cancel(host.loop, (fl_timer_id)JSValueToNumber(context, arguments[0], NULL));
    return NULL;
}

/* The clock of the timers, in milliseconds since the host began. */
NATIVE(now)
{
    fl_clock *clock = fl_clock_monotonic();
    uint64_t now_ns = clock->now_ns(clock);
    queue_stamp(now_ns);
    return JSValueMakeNumber(context, (double)(now_ns - host.origin_ns) / NS_PER_MS);
}

NATIVE(hold)
{
    int r = glib_hold();
    if (r < 0)
        host_die(r);
    return NULL;
}

NATIVE(unhold)
{
    glib_unhold();
    return NULL;
}

/* --- The outside */

static JSValueRef throw_error(JSContextRef context, const char *what, const char *why, JSValueRef *exception)
{
    char message[4096 + 128];
    snprintf(message, sizeof(message), "%s: %s", what, why);
    JSStringRef string = text_from_utf8(message, strlen(message));
    JSValueRef value = JSValueMakeString(context, string);
    JSStringRelease(string);
    *exception = JSObjectMakeError(context, 1, &value, NULL);
    return NULL;
}

/* The argument as UTF-8; free() it. The prelude passes strings only. */
static char *argument_text(JSContextRef context, JSValueRef argument, size_t *ret_length, JSValueRef *exception)
{
    JSStringRef string = JSValueToStringCopy(context, argument, exception);
    if (!string)
        return NULL;
    char *bytes = text_to_utf8(string, ret_length);
    JSStringRelease(string);
    if (!bytes)
        throw_error(context, "text", fl_strerror(FL_NO_MEMORY), exception);
    return bytes;
}

static JSValueRef write_line(JSContextRef context, FILE *to, JSValueRef text, JSValueRef *exception)
{
    size_t length;
    char *bytes = argument_text(context, text, &length, exception);
    if (!bytes)
        return NULL;
    bytes[length] = '\n';
    fwrite(bytes, 1, length + 1, to); /* that it could not be written is found out at the end */
    fflush(to);
    free(bytes);
    return NULL;
}

NATIVE(print_out)
{
    return write_line(context, stdout, arguments[0], exception);
}

NATIVE(print_error)
{
    return write_line(context, stderr, arguments[0], exception);
}

NATIVE(read_file)
{
    size_t length;
    JSStringRef string;
    char *path = argument_text(context, arguments[0], &length, exception);
    if (!path)
        return NULL;
    int r = strlen(path) == length ? host_read(path, &string) : EINVAL; /* a zero byte ends no path */
    if (r != 0)
        throw_error(context, path, strerror(r), exception);
    free(path);
    if (r != 0)
        return NULL;
    JSValueRef text = JSValueMakeString(context, string);
    JSStringRelease(string);
    return text;
}

NATIVE(fail)
{
    host.status = 1;
    return NULL;
}

NATIVE(leave)
{
    int status = argument_count > 0 ? (int)JSValueToNumber(context, arguments[0], exception) : host.status;
    host_exit(status);
}

/* --- The engine */

/* Global code, unlike what eval() runs: its `let` and `const` are seen by other scripts. */
NATIVE(evaluate)
{
    JSStringRef source = JSValueToStringCopy(context, arguments[0], exception);
    JSStringRef name = source ? JSValueToStringCopy(context, arguments[1], exception) : NULL;
    JSValueRef value = name ? JSEvaluateScript(context, source, NULL, name, 1, exception) : NULL;
    if (source)
        JSStringRelease(source);
    if (name)
        JSStringRelease(name);
    return value;
}

/* proxyTarget(object): what is behind a proxy; undefined for any other object. */
NATIVE(proxy_target)
{
    JSObjectRef object = JSValueToObject(context, arguments[0], exception);
    return object ? JSObjectGetProxyTarget(object) : NULL;
}

/* typeOf(object): puts the engine's own numbers for what an object is inside into state[STATE_TYPE], and for its shape (which
 * properties it has, and where) into state[STATE_SHAPE]; 0 if we do not know where they are. They are in every object's header
 * (JSCell::m_type and m_structureID). Nothing else tells a plain object from one with slots, or that an array has items only.
 * The numbers differ between versions of the engine: the prelude finds out what they mean from objects that it knows. */
NATIVE(type_of)
{
    enum { SHAPE_OFFSET = 0, TYPE_OFFSET = 5 };
    queue.state[STATE_TYPE] = queue.state[STATE_SHAPE] = 0;
    if (sizeof(JSValueRef) == 8) { /* a value that is an object is the address of its header then */
        const unsigned char *header = (const unsigned char *)arguments[0];
        memcpy(&queue.state[STATE_SHAPE], header + SHAPE_OFFSET, sizeof queue.state[STATE_SHAPE]);
        queue.state[STATE_TYPE] = header[TYPE_OFFSET];
    }
    return NULL;
}

/* --- The table */

static const struct {
    const char *name;
    JSObjectCallAsFunctionCallback function;
} functions[] = {
    {"readQueue", read_queue},
    {"markQueue", mark_queue},
    {"immediate", immediate},
    {"after", after},
    {"ref", ref},
    {"unref", unref},
    {"cancel", cancel},
    {"now", now},
    {"hold", hold},
    {"unhold", unhold},
    {"print", print_out},
    {"printError", print_error},
    {"readFile", read_file},
    {"fail", fail},
    {"exit", leave},
    {"evaluate", evaluate},
    {"proxyTarget", proxy_target},
    {"typeOf", type_of},
};

void natives_define(JSObjectRef object)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        host_set(object, functions[i].name,
                 JSObjectMakeFunctionWithCallback(host.context, NULL, functions[i].function));
}
