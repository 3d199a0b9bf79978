/* SPDX-License-Identifier: MIT */
/* What may be a target. URLs are taken apart strictly, so that no other program can understand one differently. Addresses are
 * looked up in IANA's registries of special-purpose addresses, which are not on the public Internet. An IPv6 address that
 * stands for an IPv4 address is judged by the latter. */

#include "webhook/internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"

/* --- URLs --------------------------------------------------------------------------------------------------------- */

static const char *parse_scheme(fl_bytes url, bool *ret_https, size_t *ret_size)
{
    const char *text = url.data;
    *ret_https = url.size >= 8 && strncasecmp(text, "https://", 8) == 0;
    if (!*ret_https && (url.size < 7 || strncasecmp(text, "http://", 7) != 0))
        return "a URL must begin with http:// or https://";
    *ret_size = *ret_https ? 8 : 7;
    return NULL;
}

/* An address in brackets; moves `at` behind it. */
static const char *parse_bracketed(const char **at, const char *end, fl_bytes *ret)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr address;
    const char *begin = *at + 1, *close = memchr(begin, ']', (size_t)(end - begin));
    size_t size = close ? (size_t)(close - begin) : 0;
    if (!close || size >= sizeof text)
        return "the host is not an IPv6 address";
    memcpy(text, begin, size);
    text[size] = '\0';
    if (inet_pton(AF_INET6, text, &address) != 1)
        return "the host is not an IPv6 address";
    *ret = (fl_bytes){begin, size};
    *at = close + 1;
    return NULL;
}

static bool is_name_byte(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '.' || c == '_';
}

static const char *parse_name(const char **at, const char *end, fl_bytes *ret)
{
    const char *begin = *at;
    while (*at < end && is_name_byte(**at))
        (*at)++;
    *ret = (fl_bytes){begin, (size_t)(*at - begin)};
    if (ret->size == 0)
        return "the host is missing";
    return ret->size > 253 ? "the host is too long" : NULL;
}

static const char *parse_port(const char *at, const char *end, uint16_t *ret)
{
    unsigned port = 0;
    for (; at < end && isdigit((unsigned char)*at) && port <= 65535; at++)
        port = port * 10 + (unsigned)(*at - '0');
    if (at != end || port == 0 || port > 65535)
        return "the port must be a number from 1 to 65535";
    *ret = (uint16_t)port;
    return NULL;
}

static const char *parse_authority(const char *at, const char *end, struct webhook_target *target)
{
    target->authority = (fl_bytes){at, (size_t)(end - at)};
    if (memchr(at, '@', (size_t)(end - at)))
        return "a URL must not contain a user or a password";
    bool bracket = at < end && *at == '[';
    const char *problem = bracket ? parse_bracketed(&at, end, &target->host) : parse_name(&at, end, &target->host);
    if (problem)
        return problem;
    target->port = target->https ? 443 : 80;
    if (at == end)
        return NULL;
    return *at == ':' ? parse_port(at + 1, end, &target->port) : "the host contains a forbidden character";
}

static const char *parse(fl_bytes url, struct webhook_target *target)
{
    const char *at = url.data, *end = at + url.size;
    size_t scheme;
    const char *problem = parse_scheme(url, &target->https, &scheme);
    if (problem)
        return problem;
    for (const char *c = at; c < end; c++)
        if (*c <= ' ' || *c > '~')
            return "a URL must consist of printable ASCII characters without spaces";
    at += scheme;
    const char *path = at;
    while (path < end && *path != '/' && *path != '?' && *path != '#')
        path++;
    problem = parse_authority(at, path, target);
    if (problem)
        return problem;
    const char *fragment = memchr(path, '#', (size_t)(end - path));
    target->path = (fl_bytes){path, (size_t)((fragment ? fragment : end) - path)};
    return NULL;
}

/* Of scheme, port, and name in lower case. */
static uint64_t hash_host(const struct webhook_target *target)
{
    const uint64_t prime = 0x100000001b3;
    const char *name = target->host.data;
    uint64_t hash = (0xcbf29ce484222325 ^ ((uint64_t)target->https << 16 | target->port)) * prime;
    for (size_t i = 0; i < target->host.size; i++)
        hash = (hash ^ (uint64_t)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] | 0x20 : name[i])) * prime;
    return hash ^ hash >> 32;
}

struct webhook_target webhook_target(fl_bytes url)
{
    struct webhook_target target = {.url = url};
    target.problem = parse(url, &target);
    if (!target.problem)
        target.host_hash = hash_host(&target);
    return target;
}

/* --- Hosts -------------------------------------------------------------------------------------------------------- */

static size_t write_name(const struct webhook_target *target, char *to)
{
    const char *name = target->host.data;
    for (size_t i = 0; i < target->host.size; i++)
        to[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] | 0x20 : name[i]);
    return target->host.size;
}

static size_t write_address(const struct webhook_target *target, char *to)
{
    char text[INET6_ADDRSTRLEN] = "";
    struct in6_addr address;
    fl__assert(target->host.size < sizeof text); /* parse_bracketed() */
    to[0] = '[';
    memcpy(text, target->host.data, target->host.size);
    if (inet_pton(AF_INET6, text, &address) != 1 || !inet_ntop(AF_INET6, &address, to + 1, INET6_ADDRSTRLEN))
        return write_name(target, to);
    size_t size = strlen(to);
    to[size] = ']';
    return size + 1;
}

fl_bytes webhook_host_text(const struct webhook_target *target, char room[WEBHOOK_HOST_TEXT])
{
    char digits[6];
    unsigned port = target->port, count = 0;
    fl__assert(!target->problem && target->host.size <= 253);
    size_t size =
        memchr(target->host.data, ':', target->host.size) ? write_address(target, room) : write_name(target, room);
    room[size++] = ':';
    do
        digits[count++] = (char)('0' + port % 10);
    while ((port /= 10) > 0);
    while (count > 0)
        room[size++] = digits[--count];
    return (fl_bytes){room, size};
}

fl_bytes webhook_read_host(fl_bytes text, char room[WEBHOOK_HOST_TEXT])
{
    char url[WEBHOOK_HOST_TEXT + 8] = "http://"; /* a NUL is behind it */
    if (text.size == 0 || text.size > WEBHOOK_HOST_TEXT)
        return (fl_bytes){0};
    memcpy(url + 7, text.data, text.size);
    const struct webhook_target target = webhook_target((fl_bytes){url, 7 + text.size});
    if (target.problem || target.authority.size != text.size)
        return (fl_bytes){0};
    const char *behind = (const char *)target.host.data + target.host.size;
    behind += *behind == ']';
    return *behind == ':' ? webhook_host_text(&target, room) : (fl_bytes){0};
}

/* --- Addresses ---------------------------------------------------------------------------------------------------- */

/* All rows of IANA's registry of special-purpose addresses, and multicast. The few that can be reached from everywhere are in
 * it too: they are for services of the network itself, and the nearest of them may be one's own. */
static bool is_public_4(uint32_t address)
{
    static const struct {
        uint32_t net;
        unsigned bits;
    } special[] = {
        {0x00000000, 8},  /* 0.0.0.0/8: this network */
        {0x0a000000, 8},  /* 10.0.0.0/8: private */
        {0x64400000, 10}, /* 100.64.0.0/10: shared by a provider's customers */
        {0x7f000000, 8},  /* 127.0.0.0/8: loopback */
        {0xa9fe0000, 16}, /* 169.254.0.0/16: link-local */
        {0xac100000, 12}, /* 172.16.0.0/12: private */
        {0xc0000000, 24}, /* 192.0.0.0/24: protocols */
        {0xc0000200, 24}, /* 192.0.2.0/24: documentation */
        {0xc01fc400, 24}, /* 192.31.196.0/24: AS112, which responses for private addresses */
        {0xc034c100, 24}, /* 192.52.193.0/24: multicast tunnels */
        {0xc0586300, 24}, /* 192.88.99.0/24: 6to4 relays, withdrawn */
        {0xc0a80000, 16}, /* 192.168.0.0/16: private */
        {0xc0af3000, 24}, /* 192.175.48.0/24: AS112 */
        {0xc6120000, 15}, /* 198.18.0.0/15: benchmarks */
        {0xc6336400, 24}, /* 198.51.100.0/24: documentation */
        {0xcb007100, 24}, /* 203.0.113.0/24: documentation */
        {0xe0000000, 4},  /* 224.0.0.0/4: multicast */
        {0xf0000000, 4},  /* 240.0.0.0/4: reserved, and broadcast */
    };
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if ((address ^ special[i].net) >> (32 - special[i].bits) == 0)
            return false;
    return true;
}

static uint32_t big_endian_32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool has_prefix(const unsigned char *address, const unsigned char *prefix, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;
    if (memcmp(address, prefix, whole) != 0)
        return false;
    return rest == 0 || (address[whole] ^ prefix[whole]) >> (8 - rest) == 0;
}

/* Where in the address an IPv4 address is that decides; 0: nowhere. */
static unsigned embedded_4(const unsigned char address[16])
{
    static const struct {
        unsigned char prefix[12];
        unsigned bits, at;
    } known[] = {
        {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96, 12}, /* ::ffff:0:0/96: mapped */
        {{0, 0x64, 0xff, 0x9b}, 96, 12},                      /* 64:ff9b::/96: translated (NAT64) */
        {{0x20, 0x02}, 16, 2},                                /* 2002::/16: 6to4 */
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (has_prefix(address, known[i].prefix, known[i].bits))
            return known[i].at;
    bool isatap = (address[8] & 0xfd) == 0 && address[9] == 0 && address[10] == 0x5e && address[11] == 0xfe;
    return isatap && address[0] >> 5 == 1 ? 12 : 0;
}

/* Only 2000::/3 is for hosts that can be reached from everywhere. All other rows of the registry are outside of it: loopback,
 * IPv4 translated in other ways (::ffff:0:0:0/96, 64:ff9b:1::/48), 100::/64, 100:0:0:1::/64, 5f00::/16, fc00::/7,
 * fe80::/10. So are multicast and all that is not allocated. */
static bool is_public_6(const unsigned char address[16])
{
    static const struct {
        unsigned char prefix[6];
        unsigned bits;
    } special[] = {
        {{0x20, 0x01}, 23},                         /* 2001::/23: protocols, Teredo and benchmarks among them */
        {{0x20, 0x01, 0x0d, 0xb8}, 32},             /* 2001:db8::/32: documentation */
        {{0x26, 0x20, 0x00, 0x4f, 0x80, 0x00}, 48}, /* 2620:4f:8000::/48: AS112 */
        {{0x3f, 0xff}, 20},                         /* 3fff::/20: documentation */
    };
    unsigned embedded = embedded_4(address);
    if (embedded > 0 && !is_public_4(big_endian_32(address + embedded)))
        return false;
    if (embedded > 0 && address[0] >> 5 != 1)
        return true;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (has_prefix(address, special[i].prefix, special[i].bits))
            return false;
    return address[0] >> 5 == 1;
}

bool webhook_address_is_public(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return is_public_4(ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr));
    if (address->sa_family == AF_INET6)
        return is_public_6(((const struct sockaddr_in6 *)(const void *)address)->sin6_addr.s6_addr);
    return false;
}

/* --- Checking what users give ------------------------------------------------------------------------------------- */

/* Whether a host is a name that always means this machine, or an address, in any spelling, that is not public. */
static bool is_private_host(fl_bytes host)
{
    static const struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    char name[256];
    struct addrinfo *found;
    fl__assert(host.size > 0 && host.size < sizeof name); /* parse_name(), parse_bracketed() */
    memcpy(name, host.data, host.size);
    name[host.size] = '\0';
    size_t size = host.size - (name[host.size - 1] == '.');
    if (size >= 9 && strncasecmp(name + size - 9, "localhost", 9) == 0 && (size == 9 || name[size - 10] == '.'))
        return true;
    if (getaddrinfo(name, NULL, &numeric, &found) != 0)
        return false;
    bool private = !webhook_address_is_public(found->ai_addr);
    freeaddrinfo(found);
    return private;
}

int webhook_check_url(fl_bytes url, bool allow_private, char *message, size_t size)
{
    const struct webhook_target target = webhook_target(url);
    const char *problem = target.problem;
    if (!problem && !allow_private && is_private_host(target.host))
        problem =
            "the address is not on the public Internet; start the server with --allow-private-targets to allow it";
    if (!problem)
        return 0;
    snprintf(message, size, "%s", problem);
    return FL_INVALID_ARGUMENT;
}

bool webhook_is_own(webhook_urls own, fl_bytes url)
{
    const char *one;
    while (own && (one = atomic_load_explicit(own++, memory_order_acquire)) != NULL)
        if (strlen(one) == url.size && memcmp(one, url.data, url.size) == 0)
            return true;
    return false;
}
