/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_VERSION_H
#define FOLIOT_VERSION_H

/* The version of the library, when a program is compiled and when it runs.
 *
 *     if (strcmp(fl_version(), FL_VERSION) != 0)
 *         fprintf(stderr, "compiled with libfoliot %s, running with %s\n", FL_VERSION, fl_version());
 *
 * The numbers are for the preprocessor:
 *
 *     #if FL_VERSION_MAJOR == 0 && FL_VERSION_MINOR < 1
 *     #error "this program needs libfoliot 0.1"
 *     #endif
 */

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define FL_VERSION_MAJOR 0
#define FL_VERSION_MINOR 1
#define FL_VERSION_PATCH 0
#define FL_VERSION "0.1.0"

/* The version of the libfoliot that the program runs with, such as "0.1.0". Never NULL, any thread. libfoliot-durable has
 * fl_durable_version() (foliot/store.h); both libraries must have the same version. */
const char *fl_version(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
