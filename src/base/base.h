/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_BASE_H
#define FOLIOT_BASE_BASE_H

/* Base: the small tools that every other folder uses. None of them knows what a timer is.
 *
 * A file includes the header of the tool that it uses; this one includes all of them. Memory comes from alloc.h alone, so
 * that a test can make any allocation fail. This folder may use the C library alone. Nothing here reads a clock, starts a thread or does I/O, except that a failed
 * assertion writes to standard error. Lists are those of <sys/queue.h>; queue.h has what is missing there.
 *
 *     alloc.c      memory, from malloc() or from the program's allocator; mappings
 *     arena.c      memory that is given back all at once
 *     assert.c     assertions: always on (fl__assert), and in debug builds (fl__assert_debug)
 *     counter.h    counters that other threads read
 *     error.c      codes, names and texts of errors
 *     hash.c       a hash table of links
 *     hex.h        hexadecimal digits
 *     histogram.c  durations, counted in buckets: percentiles
 *     image.c      many blocks of few sizes, for one thread
 *     out.c        bytes in memory that grows
 *     moment.h     sums of times
 *     queue.h      a queue, and a lock-free stack
 *     record.c     many blocks of one size, for many threads
 *     sanitizer.h  whether this is a build with sanitizers
 *     utf8.h       whether bytes are UTF-8
 *     varint.h     numbers as bytes, small ones in few
 *     version.c    the version of the library
 *
 * libfoliot-durable is a library of its own: functions of libfoliot that it calls are marked FL__SHARED (alloc.h). */

#include "base/alloc.h"
#include "base/arena.h"
#include "base/assert.h"
#include "base/counter.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/histogram.h"
#include "base/image.h"
#include "base/moment.h"
#include "base/out.h"
#include "base/queue.h"
#include "base/record.h"
#include "base/sanitizer.h"
#include "base/utf8.h"
#include "base/varint.h"

#endif
