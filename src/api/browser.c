/* SPDX-License-Identifier: MIT */
/* Requests that a web page makes a browser send.
 *
 * A server without tokens listens on this machine only, but a browser on the machine runs pages of any site. Such a page can
 * send requests to it in two ways:
 *
 *   - Directly, to the loopback address. Then the browser adds an Origin that is not the server's, at least to every request
 *     that may change something.
 *   - Under a name of its own that it has pointed at the loopback address after the page was loaded (DNS rebinding). Then the
 *     browser takes the server for the page's own, but the Host is that name.
 *
 * So the Host must be one that only this machine has or that the operator has allowed, and an Origin must be the server's own.
 * With tokens, none of this is needed: the page does not know any. A body that comes with an Origin must say that it is JSON,
 * in any case: a browser asks before it sends that to another site, and is not given leave. */

#include "api/browser.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

static bool same(fl_bytes a, const char *b, size_t size)
{
    return a.size == size && strncasecmp(a.data, b, size) == 0;
}

static bool is_port(fl_bytes text)
{
    const char *at = text.data;
    if (text.size == 0)
        return true;
    if (*at != ':' || text.size > 6)
        return false;
    for (size_t i = 1; i < text.size; i++)
        if (at[i] < '0' || at[i] > '9')
            return false;
    return true;
}

/* The host of "HOST", "HOST:PORT" or "[ADDRESS]:PORT", without a final dot. Size 0: it has another form. */
static fl_bytes host_of(fl_bytes authority)
{
    const char *at = authority.data;
    const char *end = authority.size == 0 ? NULL : memchr(at, *at == '[' ? ']' : ':', authority.size);
    size_t size = !end ? authority.size : (size_t)(end - at) + (*at == '[');
    if (authority.size == 0 || (*at == '[' && !end) || !is_port((fl_bytes){at + size, authority.size - size}))
        return (fl_bytes){0};
    if (size > 1 && at[size - 1] == '.')
        size--;
    return (fl_bytes){at, size};
}

static bool is_loopback_address(fl_bytes host)
{
    char text[INET6_ADDRSTRLEN + 2];
    struct in_addr v4;
    struct in6_addr v6;
    const char *at = host.data;
    if (host.size == 0 || host.size >= sizeof text)
        return false;
    bool bracketed = *at == '[';
    size_t size = host.size - (bracketed ? 2 : 0);
    memcpy(text, at + bracketed, size);
    text[size] = '\0';
    if (!bracketed)
        return inet_pton(AF_INET, text, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, text, &v6) == 1 &&
           (IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127));
}

/* Only this machine has these names (RFC 6761). */
static bool is_loopback_name(fl_bytes host)
{
    static const char suffix[] = ".localhost";
    size_t size = sizeof suffix - 1;
    const char *end = (const char *)host.data + host.size;
    return same(host, suffix + 1, size - 1) || (host.size > size && strncasecmp(end - size, suffix, size) == 0);
}

/* `list` has names with commas and spaces between them; NULL: none. */
static bool is_listed(fl_bytes host, const char *list)
{
    for (const char *at = list; at && *at;) {
        at += strspn(at, ", ");
        size_t size = strcspn(at, ", ");
        if (size > 0 && same(host, at, size))
            return true;
        at += size;
    }
    return false;
}

bool browser_host_is_good(fl_bytes authority, const char *allowed)
{
    fl_bytes host = host_of(authority);
    return host.size > 0 && (is_loopback_name(host) || is_loopback_address(host) || is_listed(host, allowed));
}

bool browser_origin_is_good(fl_bytes origin, fl_bytes authority, const char *allowed)
{
    const char *at = origin.data;
    size_t scheme = origin.size > 7 && strncasecmp(at, "http://", 7) == 0    ? 7
                    : origin.size > 8 && strncasecmp(at, "https://", 8) == 0 ? 8
                                                                             : 0;
    if (scheme == 0)
        return false;
    fl_bytes page = {at + scheme, origin.size - scheme};
    return same(page, authority.data, authority.size) || is_listed(host_of(page), allowed);
}

bool browser_type_is_json(fl_bytes type)
{
    static const char *const types[] = {"application/json", "application/x-ndjson"};
    const char *at = type.data;
    size_t size = 0;
    while (size < type.size && at[size] != ';' && at[size] != ' ' && at[size] != '\t')
        size++;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (same((fl_bytes){at, size}, types[i], strlen(types[i])))
            return true;
    return false;
}
