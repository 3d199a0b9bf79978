/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TEXT_TEXT_H
#define FOLIOT_TEXT_TEXT_H

/* Text: reading and writing what people and programs exchange with the server.
 *
 * A file includes the header of the tool that it uses; this one includes all of them. The tools know bytes, numbers and
 * times, and nothing of timers, requests and connections: a timer as JSON is read and written by the folder that knows its
 * type. This folder may use base, and of store the type fl_bytes. Only the log does I/O and reads the clock.
 *
 *     base64.c   Base64, by OpenSSL
 *     json.c     reads JSON where it lies: a value is a piece of the text
 *     log.c      log lines, as logfmt or JSON
 *     out.c      text and JSON, written into a buffer that grows
 *     problem.c  problem documents (RFC 9457): status, title, detail
 *     when.c     times and durations: 2026-11-18T09:00:00Z, 1h30m
 *
 * The calendar needs none of these:
 *
 *     calendar.c occurrences of rules; rule.c: rules, from what users write
 *     civil.c    civil times, as text; cursor.h: reading numbers of a fixed width
 *     cron.c     which civil times an expression matches; cron_parse.c: reads expressions
 *     zone.c     a time zone; zone_file.c: TZif files; zone_rule.c: TZ strings; zones.c: all zones of a directory */

#include "text/calendar.h"
#include "text/civil.h"
#include "text/cron.h"
#include "text/json.h"
#include "text/log.h"
#include "text/out.h"
#include "text/problem.h"
#include "text/when.h"
#include "text/zone.h"

#endif
