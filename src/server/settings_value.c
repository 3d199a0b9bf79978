/* SPDX-License-Identifier: MIT */
/* Values of settings: what each kind looks like, how it is kept in the configuration, how it is written again. */

#include "server/settings.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <foliot/error.h>

#include "text/when.h"

/* --- Where values are kept --------------------------------------------------------------------------------------- */

static void *place(const struct server_config *config, const struct setting *setting)
{
    return (char *)config + setting->offset;
}

static void store_number(struct server_config *config, const struct setting *setting, uint64_t value)
{
    uint32_t small = (uint32_t)value;
    if (setting->size == sizeof small)
        memcpy(place(config, setting), &small, sizeof small);
    else
        memcpy(place(config, setting), &value, sizeof value);
}

static uint64_t load_number(const struct server_config *config, const struct setting *setting)
{
    uint32_t small;
    uint64_t value;
    if (setting->size == sizeof small) {
        memcpy(&small, place(config, setting), sizeof small);
        return small;
    }
    memcpy(&value, place(config, setting), sizeof value);
    return value;
}

static bool is_text(const struct setting *setting)
{
    return setting->kind == SETTING_TEXT || setting->kind == SETTING_URL || setting_is_list(setting);
}

bool setting_is_list(const struct setting *setting)
{
    return setting->kind == SETTING_ADDRESSES || setting->kind == SETTING_HOSTS;
}

static char *load_text(const struct server_config *config, const struct setting *setting)
{
    return *(char **)place(config, setting);
}

static int store_text(struct server_config *config, const struct setting *setting, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return FL_NO_MEMORY;
    char **at = place(config, setting);
    free(*at);
    *at = copy;
    return 0;
}

bool setting_equal(const struct server_config *a, const struct server_config *b, const struct setting *setting)
{
    if (!is_text(setting))
        return memcmp(place(a, setting), place(b, setting), setting->size) == 0;
    const char *x = load_text(a, setting), *y = load_text(b, setting);
    return x && y ? strcmp(x, y) == 0 : x == y;
}

int setting_copy(struct server_config *to, const struct server_config *from, const struct setting *setting)
{
    if (is_text(setting) && load_text(from, setting))
        return store_text(to, setting, load_text(from, setting));
    if (is_text(setting))
        free(load_text(to, setting));
    memcpy(place(to, setting), place(from, setting), setting->size);
    return 0;
}

/* --- Reading ----------------------------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits, and what follows them. False if there are none, or too many. */
static bool read_digits(const char **text, uint64_t *ret)
{
    uint64_t value = 0;
    const char *at = *text;
    for (; is_digit(*at); at++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return false;
    bool any = at > *text;
    *text = at;
    *ret = value;
    return any;
}

static bool read_number(const char *text, uint64_t *ret)
{
    return read_digits(&text, ret) && *text == '\0';
}

static const struct {
    const char *name;
    uint64_t size;
} size_units[] = {{"GiB", UINT64_C(1) << 30}, {"MiB", UINT64_C(1) << 20}, {"KiB", UINT64_C(1) << 10}, {"", 1}};

static bool read_size(const char *text, uint64_t *ret)
{
    uint64_t number;
    if (!read_digits(&text, &number))
        return false;
    for (size_t i = 0; i < sizeof size_units / sizeof size_units[0]; i++)
        if (strcmp(text, size_units[i].name) == 0)
            return !__builtin_mul_overflow(number, size_units[i].size, ret);
    return false;
}

/* With up to three decimals. */
static bool read_factor(const char *text, uint64_t *ret)
{
    uint64_t whole, decimals = 0;
    if (!read_digits(&text, &whole) || whole > UINT32_MAX)
        return false;
    if (*text == '.') {
        const char *begin = ++text;
        if (!read_digits(&text, &decimals) || text - begin > 3)
            return false;
        for (size_t i = (size_t)(text - begin); i < 3; i++)
            decimals *= 10;
    }
    *ret = whole * 1000 + decimals;
    return *text == '\0';
}

static bool read_choice(const char *const *choices, const char *text, uint64_t *ret)
{
    for (uint64_t i = 0; choices[i]; i++)
        if (strcmp(choices[i], text) == 0) {
            *ret = i;
            return true;
        }
    return false;
}

static bool read_flag(const char *text, bool *ret)
{
    static const char *const words[] = {"no", "yes", "off", "on", "false", "true", "0", "1", NULL};
    uint64_t word;
    if (!read_choice(words, text, &word))
        return false;
    *ret = word % 2 == 1;
    return true;
}

static bool read_limited(const struct setting *setting, const char *text, uint64_t *ret)
{
    bool good = false;
    *ret = 0;
    if (setting->none && strcmp(text, "none") == 0)
        return true;
    if (setting->kind == SETTING_NUMBER)
        good = read_number(text, ret);
    else if (setting->kind == SETTING_SIZE)
        good = read_size(text, ret);
    else if (setting->kind == SETTING_DURATION)
        good = duration_parse((fl_bytes){text, strlen(text)}, ret) == 0;
    else if (setting->kind == SETTING_FACTOR)
        good = read_factor(text, ret);
    return good && ((*ret >= setting->min && *ret <= setting->max) || (setting->none && *ret == 0));
}

/* Printable, so that it can be shown and written to a file. */
static bool is_printable(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

/* HOST:PORT, where HOST is a name, an address, or [an address] of IPv6, or * for all. */
static bool is_address(const char *text, size_t size)
{
    const char *colon = memrchr(text, ':', size);
    if (!colon || colon == text)
        return false;
    size_t host = (size_t)(colon - text), digits = size - host - 1;
    unsigned port = 0;
    for (size_t i = 0; i < digits && i < 6; i++) {
        if (!is_digit(colon[1 + i]))
            return false;
        port = port * 10 + (unsigned)(colon[1 + i] - '0');
    }
    bool bracketed = text[0] == '[' && text[host - 1] == ']' && host > 2;
    bool plain = !memchr(text, ':', host) && !memchr(text, '[', host) && !memchr(text, ' ', host);
    return digits > 0 && digits < 6 && port <= 65535 && (bracketed || plain);
}

/* A name or an IPv4 address; IPv6 in brackets. No port. */
static bool is_host(const char *text, size_t size)
{
    bool bracketed = size > 2 && text[0] == '[' && text[size - 1] == ']';
    for (size_t i = bracketed; i + bracketed < size; i++)
        if (strchr("[]/ @*?#", text[i]) || (text[i] == ':' && !bracketed))
            return false;
    return size > 0;
}

static bool are_all(const char *text, bool (*is_one)(const char *text, size_t size))
{
    for (;;) {
        text += strspn(text, " ");
        size_t size = strcspn(text, ","), used = size;
        while (used > 0 && text[used - 1] == ' ')
            used--;
        if (!is_one(text, used))
            return false;
        if (text[size] == '\0')
            return true;
        text += size + 1;
    }
}

static bool is_url(const struct setting *setting, const char *text)
{
    for (const char *const *prefix = setting->choices; *prefix; prefix++)
        if (strncmp(text, *prefix, strlen(*prefix)) == 0)
            return true;
    return false;
}

static bool is_allowed_text(const struct setting *setting, const char *text)
{
    if (*text == '\0' || strlen(text) > setting->max || !is_printable(text))
        return false;
    return setting->kind == SETTING_ADDRESSES ? are_all(text, is_address)
           : setting->kind == SETTING_HOSTS   ? are_all(text, is_host)
           : setting->kind == SETTING_URL     ? is_url(setting, text)
                                              : true;
}

int setting_set(struct server_config *config, const struct setting *setting, const char *text)
{
    uint64_t number;
    if (is_text(setting))
        return is_allowed_text(setting, text) ? store_text(config, setting, text) : FL_INVALID_ARGUMENT;
    if (setting->kind == SETTING_FLAG)
        return read_flag(text, place(config, setting)) ? 0 : FL_INVALID_ARGUMENT;
    if (!(setting->kind == SETTING_CHOICE ? read_choice(setting->choices, text, &number)
                                          : read_limited(setting, text, &number)))
        return FL_INVALID_ARGUMENT;
    store_number(config, setting, number);
    return 0;
}

/* --- Writing ----------------------------------------------------------------------------------------------------- */

static void write_size(uint64_t size, FILE *to)
{
    size_t unit = 0;
    while (size_units[unit].size > 1 && (size == 0 || size % size_units[unit].size != 0))
        unit++;
    fprintf(to, "%" PRIu64 "%s", size / size_units[unit].size, size_units[unit].name);
}

static void write_duration(uint64_t us, FILE *to)
{
    char text[DURATION_TEXT];
    duration_format(us, text);
    fputs(text, to);
}

static void write_factor(uint64_t thousandths, FILE *to)
{
    uint64_t rest = thousandths % 1000;
    int digits = 3;
    for (; digits > 0 && rest % 10 == 0; rest /= 10)
        digits--;
    fprintf(to, "%" PRIu64, thousandths / 1000);
    if (digits > 0)
        fprintf(to, ".%0*" PRIu64, digits, rest);
}

static void write_limited(const struct setting *setting, uint64_t value, FILE *to)
{
    if (setting->none && value == 0)
        fputs("none", to);
    else if (setting->kind == SETTING_SIZE)
        write_size(value, to);
    else if (setting->kind == SETTING_DURATION)
        write_duration(value, to);
    else if (setting->kind == SETTING_FACTOR)
        write_factor(value, to);
    else
        fprintf(to, "%" PRIu64, value);
}

static void write_list(const char *const *words, const char *last, FILE *to)
{
    for (size_t i = 0; words[i]; i++)
        fprintf(to, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : last, words[i]);
}

void setting_allowed(const struct setting *setting, FILE *to)
{
    static const char *const what[] = {
        [SETTING_NUMBER] = "a whole number",
        [SETTING_SIZE] = "a size in bytes, or with KiB, MiB or GiB,",
        [SETTING_DURATION] = "a duration like 500ms or 1h30m,",
        [SETTING_FACTOR] = "a number with up to three decimals,",
    };
    switch (setting->kind) {
    case SETTING_TEXT:
        fprintf(to, "printable text of 1 to %" PRIu64 " bytes", setting->max);
        return;
    case SETTING_URL:
        fputs("a URL that begins with ", to);
        write_list(setting->choices, " or ", to);
        return;
    case SETTING_FLAG:
        fputs("yes or no", to);
        return;
    case SETTING_CHOICE:
        write_list(setting->choices, " or ", to);
        return;
    case SETTING_ADDRESSES:
        fputs("HOST:PORT, [IPV6]:PORT or *:PORT, several with commas between them, ports from 0 to 65535", to);
        return;
    case SETTING_HOSTS:
        fputs("names or addresses without a port, IPv6 in brackets, several with commas between them", to);
        return;
    default:
        fprintf(to, "%s from ", what[setting->kind]);
        write_limited(setting, setting->min, to);
        fputs(" to ", to);
        write_limited(setting, setting->max, to);
        fputs(setting->none ? ", or none" : "", to);
    }
}

bool setting_is_set(const struct server_config *config, const struct setting *setting)
{
    if (is_text(setting))
        return load_text(config, setting) != NULL;
    return setting->initial || setting->kind == SETTING_FLAG || load_number(config, setting) != 0;
}

/* The password between the first colon and the last '@' (it may have any characters in it, and showing too little does no
 * harm), and one that is a parameter. */
void setting_write_masked(const char *text, FILE *to)
{
    const char *authority = strstr(text, "://"), *at = text;
    const char *host = authority ? strrchr(authority, '@') : NULL;
    const char *colon = host ? memchr(authority + 3, ':', (size_t)(host - authority - 3)) : NULL;
    if (colon) {
        fprintf(to, "%.*s:***", (int)(colon - text), text);
        at = host;
    }
    for (const char *parameter; (parameter = strcasestr(at, "password=")) != NULL; at = parameter) {
        parameter += strlen("password=");
        fprintf(to, "%.*s***", (int)(parameter - at), at);
        parameter += strcspn(parameter, "&");
    }
    fputs(at, to);
}

void setting_write(const struct server_config *config, const struct setting *setting, FILE *to)
{
    if (setting->kind == SETTING_URL)
        setting_write_masked(load_text(config, setting), to);
    else if (is_text(setting))
        fputs(load_text(config, setting), to);
    else if (setting->kind == SETTING_FLAG)
        fputs(*(bool *)place(config, setting) ? "yes" : "no", to);
    else if (setting->kind == SETTING_CHOICE)
        fputs(setting->choices[load_number(config, setting)], to);
    else
        write_limited(setting, load_number(config, setting), to);
}
