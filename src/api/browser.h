/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_BROWSER_H
#define FOLIOT_SERVER_BROWSER_H

/* Whether a request can be the work of a web page of another site. `authority` is the value of the Host header; `allowed` has the
 * names of the setting allowed-host, with commas between them, or is NULL. */

#include <stdbool.h>

#include <foliot/store.h> /* fl_bytes */

/* Whether the Host is a loopback name, a loopback address or an allowed name. */
bool browser_host_is_good(fl_bytes authority, const char *allowed);

/* Whether the Origin is the server's own, or that of an allowed name (a page behind the same proxy). */
bool browser_origin_is_good(fl_bytes origin, fl_bytes authority, const char *allowed);

/* Whether a Content-Type is JSON, or lines of JSON. */
bool browser_type_is_json(fl_bytes type);

#endif
