/* SPDX-License-Identifier: MIT */
/* UTF-8 and UTF-16: see text.h. */

#include "js/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { REPLACEMENT = 0xfffd };

struct reader {
    const unsigned char *next, *end;
};

/* What may follow the first byte of a sequence: its length, and the range of the second byte, which keeps out
 * surrogates, what is beyond U+10FFFF and sequences that are longer than necessary. */
struct lead {
    unsigned length, low, high;
};

static struct lead lead_of(unsigned char byte)
{
    if (byte >= 0xc2 && byte <= 0xdf)
        return (struct lead){2, 0x80, 0xbf};
    if (byte >= 0xe0 && byte <= 0xef)
        return (struct lead){3, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf};
    if (byte >= 0xf0 && byte <= 0xf4)
        return (struct lead){4, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf};
    return (struct lead){0};
}

/* The next character. Of a bad sequence, as much is taken as could have been the beginning of a good one. */
static uint32_t read_character(struct reader *r)
{
    unsigned char byte = *r->next++;
    if (byte < 0x80)
        return byte;
    struct lead lead = lead_of(byte);
    if (lead.length == 0)
        return REPLACEMENT;
    uint32_t character = byte & (0x7fu >> lead.length);
    for (unsigned i = 1; i < lead.length; i++) {
        if (r->next == r->end || *r->next < lead.low || *r->next > lead.high)
            return REPLACEMENT;
        character = character << 6 | (*r->next++ & 0x3fu);
        lead.low = 0x80;
        lead.high = 0xbf;
    }
    return character;
}

JSStringRef text_from_utf8(const char *bytes, size_t length)
{
    if (length >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) {
        bytes += 3;
        length -= 3;
    }
    JSChar *units = malloc((length + 1) * sizeof(*units)); /* never more units than bytes */
    if (!units)
        return NULL;
    struct reader r = {(const unsigned char *)bytes, (const unsigned char *)bytes + length};
    size_t count = 0;
    while (r.next < r.end) {
        uint32_t character = read_character(&r);
        if (character >= 0x10000) {
            units[count++] = (JSChar)(0xd7c0 + (character >> 10));
            units[count++] = (JSChar)(0xdc00 + (character & 0x3ff));
        } else {
            units[count++] = (JSChar)character;
        }
    }
    JSStringRef text = JSStringCreateWithCharacters(units, count);
    free(units);
    return text;
}

static size_t write_character(char *to, uint32_t character)
{
    if (character < 0x80) {
        to[0] = (char)character;
        return 1;
    }
    unsigned length = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (unsigned i = length - 1; i > 0; i--, character >>= 6)
        to[i] = (char)(0x80 | (character & 0x3f));
    to[0] = (char)(0xf00u >> length | character);
    return length;
}

static bool is_pair(JSChar first, JSChar second)
{
    return first >> 10 == 0x36 && second >> 10 == 0x37;
}

char *text_to_utf8(JSStringRef text, size_t *ret_length)
{
    size_t count = JSStringGetLength(text), length = 0;
    const JSChar *units = JSStringGetCharactersPtr(text);
    char *bytes = malloc(3 * count + 1); /* a pair takes four bytes */
    if (!bytes)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        uint32_t character = units[i];
        if (i + 1 < count && is_pair(units[i], units[i + 1]))
            character = 0x10000 + ((character & 0x3ff) << 10) + (units[++i] & 0x3ffu);
        else if (character >> 11 == 0x1b) /* half of a pair */
            character = REPLACEMENT;
        length += write_character(bytes + length, character);
    }
    bytes[length] = '\0';
    *ret_length = length;
    return bytes;
}
