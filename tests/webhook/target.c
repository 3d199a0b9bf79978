/* SPDX-License-Identifier: MIT */
/* Which addresses may be called: every row of IANA's registries of special-purpose addresses, and what lies beside them. */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "webhook/internal.h"
#include "test.h"

enum { REFUSED, BY_IPV4 }; /* BY_IPV4: the IPv4 address in it decides */

static const struct row {
    const char *block;
    int rule;
} rows[] = {
    /* IPv4, https://www.iana.org/assignments/iana-ipv4-special-registry */
    {"0.0.0.0/8", REFUSED},
    {"0.0.0.0/32", REFUSED},
    {"10.0.0.0/8", REFUSED},
    {"100.64.0.0/10", REFUSED},
    {"127.0.0.0/8", REFUSED},
    {"169.254.0.0/16", REFUSED},
    {"172.16.0.0/12", REFUSED},
    {"192.0.0.0/24", REFUSED},
    {"192.0.0.0/29", REFUSED},
    {"192.0.0.8/32", REFUSED},
    {"192.0.0.9/32", REFUSED},
    {"192.0.0.10/32", REFUSED},
    {"192.0.0.170/32", REFUSED},
    {"192.0.0.171/32", REFUSED},
    {"192.0.2.0/24", REFUSED},
    {"192.31.196.0/24", REFUSED},
    {"192.52.193.0/24", REFUSED},
    {"192.88.99.0/24", REFUSED},
    {"192.88.99.2/32", REFUSED},
    {"192.168.0.0/16", REFUSED},
    {"192.175.48.0/24", REFUSED},
    {"198.18.0.0/15", REFUSED},
    {"198.51.100.0/24", REFUSED},
    {"203.0.113.0/24", REFUSED},
    {"240.0.0.0/4", REFUSED},
    {"255.255.255.255/32", REFUSED},
    /* IPv6, https://www.iana.org/assignments/iana-ipv6-special-registry */
    {"::1/128", REFUSED},
    {"::/128", REFUSED},
    {"::ffff:0:0/96", BY_IPV4},
    {"64:ff9b::/96", BY_IPV4},
    {"64:ff9b:1::/48", REFUSED},
    {"100::/64", REFUSED},
    {"100:0:0:1::/64", REFUSED},
    {"2001::/23", REFUSED},
    {"2001::/32", REFUSED},
    {"2001:1::1/128", REFUSED},
    {"2001:1::2/128", REFUSED},
    {"2001:1::3/128", REFUSED},
    {"2001:2::/48", REFUSED},
    {"2001:3::/32", REFUSED},
    {"2001:4:112::/48", REFUSED},
    {"2001:10::/28", REFUSED},
    {"2001:20::/28", REFUSED},
    {"2001:30::/28", REFUSED},
    {"2001:db8::/32", REFUSED},
    {"2002::/16", BY_IPV4},
    {"2620:4f:8000::/48", REFUSED},
    {"3fff::/20", REFUSED},
    {"5f00::/16", REFUSED},
    {"fc00::/7", REFUSED},
    {"fe80::/10", REFUSED},
    /* Beside the registries */
    {"224.0.0.0/4", REFUSED},     /* multicast */
    {"::/96", REFUSED},           /* IPv4-compatible, withdrawn */
    {"::ffff:0:0:0/96", REFUSED}, /* IPv4 translated by a stateless translator (SIIT) */
    {"fec0::/10", REFUSED},       /* site-local, withdrawn */
    {"ff00::/8", REFUSED},        /* multicast */
    {"4000::/3", REFUSED},        /* not allocated, as all that follow */
    {"6000::/3", REFUSED},
    {"8000::/3", REFUSED},
    {"a000::/3", REFUSED},
    {"c000::/3", REFUSED},
    {"e000::/4", REFUSED},
    {"200::/7", REFUSED},
};

struct address {
    int family;
    unsigned char bytes[16];
    unsigned size; /* of them */
};

static struct address read_address(const char *text)
{
    struct address a = {.family = strchr(text, ':') ? AF_INET6 : AF_INET};
    a.size = a.family == AF_INET6 ? 16 : 4;
    if (inet_pton(a.family, text, a.bytes) != 1)
        test_fail(__FILE__, __LINE__, "%s is not an address", text);
    return a;
}

static bool is_public(const struct address *a)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    memcpy(&v4.sin_addr, a->bytes, 4);
    memcpy(&v6.sin6_addr, a->bytes, 16);
    return webhook_address_is_public(a->family == AF_INET ? (const struct sockaddr *)&v4
                                                          : (const struct sockaddr *)&v6);
}

static bool text_is_public(const char *text)
{
    struct address a = read_address(text);
    return is_public(&a);
}

/* The block's first address, with all bits behind the prefix set to `bit`. */
static struct address in_block(const char *block, bool bit)
{
    char text[64];
    snprintf(text, sizeof text, "%s", block);
    char *slash = strchr(text, '/');
    unsigned bits = (unsigned)strtoul(slash + 1, NULL, 10);
    *slash = '\0';
    struct address a = read_address(text);
    for (unsigned i = bits; bit && i < a.size * 8; i++)
        a.bytes[i / 8] |= (unsigned char)(0x80 >> i % 8);
    return a;
}

static unsigned bits_of(const char *block)
{
    return (unsigned)strtoul(strchr(block, '/') + 1, NULL, 10);
}

TEST(no_row_of_the_registries_is_public)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int last = 0; last < 2 && rows[i].rule == REFUSED; last++) {
            struct address a = in_block(rows[i].block, last);
            if (is_public(&a))
                test_fail(__FILE__, __LINE__, "the %s address of %s is public", last ? "last" : "first", rows[i].block);
        }
}

TEST(an_ipv4_address_inside_decides)
{
    struct address public_4 = read_address("93.184.216.34");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].rule != BY_IPV4)
            continue;
        struct address a = in_block(rows[i].block, false);
        unsigned at = bits_of(rows[i].block) / 8;
        memcpy(a.bytes + at, public_4.bytes, 4);
        CHECK(is_public(&a));
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            struct address inside = in_block(rows[k].block, true);
            if (inside.family != AF_INET)
                continue;
            memcpy(a.bytes + at, inside.bytes, 4);
            if (is_public(&a))
                test_fail(__FILE__, __LINE__, "%s is public inside %s", rows[k].block, rows[i].block);
        }
    }
    CHECK(!text_is_public("2a00:1450::5efe:10.0.0.1") && !text_is_public("2a00:1450::200:5efe:127.0.0.1"));
    CHECK(text_is_public("2a00:1450::5efe:93.184.216.34"));
    CHECK(!text_is_public("2001:db8::5efe:93.184.216.34"));
}

TEST(what_lies_beside_them_is_public)
{
    static const char *const public[] = {
        "1.0.0.0",         "9.255.255.255",    "11.0.0.0",        "100.63.255.255",  "100.128.0.0",
        "126.255.255.255", "128.0.0.0",        "169.253.255.255", "169.255.0.0",     "172.15.255.255",
        "172.32.0.0",      "191.255.255.255",  "192.0.1.0",       "192.0.3.0",       "192.31.195.255",
        "192.31.197.0",    "192.52.192.255",   "192.52.194.0",    "192.88.98.255",   "192.88.100.0",
        "192.167.255.255", "192.169.0.0",      "192.175.47.255",  "192.175.49.0",    "198.17.255.255",
        "198.20.0.0",      "198.51.99.255",    "198.51.101.0",    "203.0.112.255",   "203.0.114.0",
        "223.255.255.255", "2000::",           "2001:200::",      "2001:db7:ffff::", "2001:db9::",
        "2003::",          "2620:4f:7fff::",   "2620:4f:8001::",  "2a00:1450::1",    "3ffe:ffff::",
        "3fff:1000::",     "2600::5efd:a00:1",
    };
    for (size_t i = 0; i < sizeof public / sizeof *public; i++)
        if (!text_is_public(public[i]))
            test_fail(__FILE__, __LINE__, "%s is not public", public[i]);
}
