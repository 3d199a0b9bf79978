/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_JS_JS_H
#define FOLIOT_JS_JS_H

/* The JavaScript host, the program foliot-js: an engine (JavaScriptCore), a loop, and the browser's timers between them. This
 * folder may use base, loop and webtimers. No other folder includes this header.
 *
 *     main.c      the command line
 *     host.c      making all of it, running a script and the loop
 *     natives.c   what the prelude calls
 *     queue.c     the timers that scripts set and clear
 *     glib.c      the engine's own asynchronous work
 *     text.c      UTF-8 and UTF-16
 *     prelude/    the globals, in JavaScript
 *
 * One process has one host.
 */

#include <JavaScriptCore/JavaScript.h>
#include <stdbool.h>
#include <stdint.h>

#include <foliot/loop.h>
#include <foliot/webtimers.h>

#include "js/queue.h"

/* Functions of the prelude that are called from here. */
struct entries {
    JSObjectRef fire;   /* the handler of the timer in queue.state[STATE_ID] */
    JSObjectRef expire; /* the handler in the slot that is its argument: no timer of the user's */
    JSObjectRef report; /* what was thrown */
    JSObjectRef reject; /* an unhandled promise and its reason */
};

struct host {
    fl_loop *loop;
    fl_webtimers *timers;
    JSGlobalContextRef context;
    struct entries entries;
    JSValueRef thrown; /* by the handler that was called last */
    uint64_t origin_ns;
    int status; /* with which the program will end */
};

extern struct host host;

/* Makes everything. The prelude shows lines of the script `name` in its messages, and hands the arguments to it. Returns
 * 0 or a negative code of foliot/error.h. */
int host_begin(JSStringRef name, JSStringRef source, int argument_count, char **arguments);

/* Runs the script, and the loop until nothing keeps it alive. Returns the exit status. */
int host_run(JSStringRef name, JSStringRef source);

/* Ends the program because of an error of foliot/error.h that a script cannot do anything about. */
_Noreturn void host_die(int error);

/* Ends the program, without the engine's own end: that would wait for its threads and free what is freed anyway. */
_Noreturn void host_exit(int status);

/* Reads a file, or standard input if `path` is NULL, as text. Returns 0 or an errno. */
int host_read(const char *path, JSStringRef *ret);

/* Calls a function of the prelude. What it throws is reported. */
void host_call(JSObjectRef function, size_t argument_count, const JSValueRef arguments[]);

/* Sets a property; the engine has no reason to refuse it. */
void host_set(JSObjectRef object, const char *name, JSValueRef value);

/* natives.c: defines what the prelude may call. */
void natives_define(JSObjectRef object);

/* glib.c: the context in which the engine does what it does later, before the engine is made. Returns 0 or FL_NO_MEMORY. */
int glib_begin(void);

/* Does what is due of it. */
void glib_pump(void);

/* While there is a hold, the loop stays alive and wakes up when the engine has something for it. Returns 0; FL_NOT_FOUND
 * if the context cannot wake anybody; or as fl_loop_fd_add(). */
int glib_hold(void);
void glib_unhold(void);

#endif
