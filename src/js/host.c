/* SPDX-License-Identifier: MIT */
/* Making and running the host: see host.h.
 *
 * Microtasks run when the outermost call into the engine returns. So every callback of the loop makes one such call, and
 * the checkpoint that the standard wants after each task comes by itself. What the task has asked of timers is done
 * right after it, before the next one can run.
 */

#include "js/js.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "js/text.h"
#include "prelude.h" /* made of prelude/ at build time: struct prelude prelude[] */

/* JavaScriptCore's, for those who know the engine well: not in the headers that Debian installs. */
extern void JSDisableGCTimer(void);
extern void JSGlobalContextSetUnhandledRejectionCallback(JSGlobalContextRef context, JSObjectRef function,
                                                         JSValueRef *exception);

/* A wake-up may serve all timers within this time. */
#define SLACK_NS 100000u

struct host host;

/* --- Small things */

static JSValueRef make_string(const char *bytes)
{
    JSStringRef text = text_from_utf8(bytes, strlen(bytes));
    JSValueRef value = JSValueMakeString(host.context, text);
    JSStringRelease(text);
    return value;
}

void host_set(JSObjectRef object, const char *name, JSValueRef value)
{
    JSStringRef text = JSStringCreateWithUTF8CString(name);
    JSObjectSetProperty(host.context, object, text, value, kJSPropertyAttributeNone, NULL);
    JSStringRelease(text);
}

static JSValueRef get(JSObjectRef object, const char *name)
{
    JSStringRef text = JSStringCreateWithUTF8CString(name);
    JSValueRef value = JSObjectGetProperty(host.context, object, text, NULL);
    JSStringRelease(text);
    return value;
}

void host_exit(int status)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("foliot-js: cannot write to standard output");
        status = status ? status : 1;
    }
    fflush(stderr);
    _exit(status);
}

void host_die(int error)
{
    fprintf(stderr, "foliot-js: %s\n", fl_strerror(error));
    host_exit(1);
}

static int read_all(FILE *file, char **ret, size_t *ret_length)
{
    size_t length = 0, capacity = 1 << 16;
    char *bytes = malloc(capacity);
    while (bytes) {
        length += fread(bytes + length, 1, capacity - length, file);
        if (length < capacity)
            break;
        capacity *= 2;
        char *larger = realloc(bytes, capacity);
        if (!larger)
            free(bytes);
        bytes = larger;
    }
    if (!bytes)
        return ENOMEM;
    if (ferror(file)) {
        int error = errno ? errno : EIO;
        free(bytes);
        return error;
    }
    *ret = bytes;
    *ret_length = length;
    return 0;
}

int host_read(const char *path, JSStringRef *ret)
{
    char *bytes = NULL;
    size_t length = 0;
    FILE *file = path ? fopen(path, "rbe") : stdin;
    if (!file)
        return errno;
    int r = read_all(file, &bytes, &length);
    if (path)
        fclose(file);
    if (r != 0)
        return r;
    *ret = text_from_utf8(bytes, length);
    free(bytes);
    return *ret ? 0 : ENOMEM;
}

/* --- Calling JavaScript */

/* The prelude's report() throws nothing, unless there is no stack or no memory left for it. */
static void report_value(JSValueRef thrown)
{
    JSValueRef again = NULL;
    if (host.entries.report) {
        JSObjectCallAsFunction(host.context, host.entries.report, NULL, 1, &thrown, &again);
        queue_read();
        if (!again)
            return;
    }
    JSStringRef text = JSValueToStringCopy(host.context, thrown, NULL);
    size_t length;
    char *bytes = text ? text_to_utf8(text, &length) : NULL;
    fprintf(stderr, "Uncaught %s\n", bytes ? bytes : "error");
    free(bytes);
    host.status = 1;
}

void host_call(JSObjectRef function, size_t argument_count, const JSValueRef arguments[])
{
    JSValueRef thrown = NULL;
    JSObjectCallAsFunction(host.context, function, NULL, argument_count, arguments, &thrown);
    queue_read();
    if (thrown)
        report_value(thrown);
}

/* --- What the timers call */

static int invoke(void *unused, const fl_webtimers_call *call)
{
    (void)unused;
    host.thrown = NULL;
    queue.state[STATE_ID] = call->id;
    JSObjectCallAsFunction(host.context, host.entries.fire, NULL, 0, NULL, &host.thrown);
    queue_read();
    return host.thrown != NULL;
}

static void report(void *unused, int thrown)
{
    (void)unused, (void)thrown;
    JSValueRef value = host.thrown; /* on the stack, where the collector sees it */
    report_value(value);
}

/* --- The prelude */

static JSObjectRef make_arguments(int argument_count, char **arguments)
{
    JSObjectRef array = JSObjectMakeArray(host.context, 0, NULL, NULL);
    for (int i = 0; i < argument_count; i++)
        JSObjectSetPropertyAtIndex(host.context, array, (unsigned)i, make_string(arguments[i]), NULL);
    return array;
}

/* Every file of the prelude finds what it may use in `this`. */
static bool run_prelude(JSObjectRef natives, JSObjectRef shared)
{
    JSValueRef thrown = NULL;
    JSObjectRef self = JSObjectMake(host.context, NULL, NULL);
    host_set(self, "native", natives);
    host_set(self, "shared", shared);
    for (size_t i = 0; i < prelude_count && !thrown; i++) {
        JSStringRef source = JSStringCreateWithUTF8CString(prelude[i].source);
        JSStringRef name = JSStringCreateWithUTF8CString(prelude[i].name);
        JSEvaluateScript(host.context, source, self, name, 1, &thrown);
        JSStringRelease(source);
        JSStringRelease(name);
    }
    if (thrown)
        report_value(thrown);
    return !thrown;
}

static JSObjectRef entry(JSObjectRef shared, const char *name)
{
    JSValueRef function = get(shared, name);
    JSValueProtect(host.context, function);
    return (JSObjectRef)function;
}

static int begin_globals(JSStringRef name, JSStringRef source, int argument_count, char **arguments)
{
    JSObjectRef natives = JSObjectMake(host.context, NULL, NULL), shared = JSObjectMake(host.context, NULL, NULL);
    natives_define(natives);
    int r = queue_begin(natives);
    if (r < 0)
        return r;
    host_set(natives, "args", make_arguments(argument_count, arguments));
    host_set(natives, "scriptName", JSValueMakeString(host.context, name));
    host_set(natives, "scriptSource", JSValueMakeString(host.context, source));
    if (!run_prelude(natives, shared))
        return FL_SYSTEM;
    host.entries = (struct entries){
        .fire = entry(shared, "fire"),
        .expire = entry(shared, "expire"),
        .report = entry(shared, "report"),
        .reject = entry(shared, "reject"),
    };
    JSGlobalContextSetUnhandledRejectionCallback(host.context, host.entries.reject, NULL);
    return 0;
}

/* --- Making and running */

int host_begin(JSStringRef name, JSStringRef source, int argument_count, char **arguments)
{
    fl_webtimers_host functions = {.invoke = invoke, .report = report};
    fl_clock *clock = fl_clock_monotonic();
    host.origin_ns = clock->now_ns(clock);
    fl_loop_config config = {.slack_ns = SLACK_NS};
    int r = fl_loop_new(&config, &host.loop);
    if (r == 0)
        r = fl_webtimers_new(host.loop, &functions, &host.timers);
    if (r == 0)
        r = glib_begin();
    if (r < 0)
        return r;
    /* The collector's timer asks a memory pressure handler that only a browser has, and would crash (2.50). Without it,
     * garbage is collected as memory is asked for. */
    JSDisableGCTimer();
    host.context = JSGlobalContextCreate(NULL);
    return begin_globals(name, source, argument_count, arguments);
}

/* The engine's own work calls scripts, too. */
static void pump(void)
{
    glib_pump();
    queue_read();
    queue_rest();
}

static int run_loop(void)
{
    int r = 0;
    pump();
    while (r == 0 && fl_loop_alive(host.loop)) {
        r = fl_loop_run_once(host.loop, true);
        pump();
    }
    return r;
}

int host_run(JSStringRef name, JSStringRef source)
{
    JSValueRef thrown = NULL;
    JSEvaluateScript(host.context, source, NULL, name, 1, &thrown);
    queue_read();
    if (thrown)
        report_value(thrown);
    int r = run_loop();
    if (r < 0) {
        fprintf(stderr, "foliot-js: the event loop cannot wait: %s\n", strerror(errno));
        host.status = 1;
    }
    return host.status;
}
