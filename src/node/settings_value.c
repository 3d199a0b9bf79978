/* SPDX-License-Identifier: MIT */
/* Settings of a namespace as values: to copy, to compare, to free. */

#include <stdlib.h>
#include <string.h>

#include "node/internal.h"

const struct settings no_settings = {
    .skip_older_us = UINT64_MAX,
    .history = {.keep_us = UINT64_C(3) * 86400 * 1000000, .body = 1024, .only = HISTORY_ONLY_FAILURES},
};

/* settings_are_default(), settings_copy() and settings_are_same() know every member. */
_Static_assert(sizeof(struct settings) == 2 * sizeof(fl_bytes) + 8 + sizeof(fl_retry) + 3 * 8 +
                                              sizeof(struct history_rule) + sizeof(struct pauses),
               "one more setting");

static void drop_secrets(struct settings *settings)
{
    while (settings->secret_count > 0) {
        fl_bytes secret = settings->secrets[--settings->secret_count];
        explicit_bzero((void *)(uintptr_t)secret.data, secret.size);
        free((void *)(uintptr_t)secret.data);
    }
}

void settings_free(struct settings *settings)
{
    if (settings)
        drop_secrets(settings);
    free(settings);
}

bool settings_are_default(const struct settings *settings)
{
    return settings->secret_count == 0 && settings->retry.initial_us == 0 && settings->skip_older_us == UINT64_MAX &&
           settings->max_rate == 0 && settings->spread_us == 0 &&
           memcmp(&settings->history, &no_settings.history, sizeof settings->history) == 0;
}

static int copy_secrets(const struct settings *from, struct settings *to)
{
    for (; to->secret_count < from->secret_count; to->secret_count++) {
        fl_bytes secret = from->secrets[to->secret_count];
        char *copy = malloc(secret.size);
        if (!copy)
            return -1;
        memcpy(copy, secret.data, secret.size);
        to->secrets[to->secret_count] = (fl_bytes){copy, secret.size};
    }
    return 0;
}

int settings_copy(const struct settings *from, struct settings *to, unsigned which)
{
    to->pauses = from->pauses;
    if (which & SETTING_RETRY)
        to->retry = from->retry;
    if (which & SETTING_SKIP_OLDER)
        to->skip_older_us = from->skip_older_us;
    if (which & SETTING_MAX_RATE)
        to->max_rate = from->max_rate;
    if (which & SETTING_SPREAD)
        to->spread_us = from->spread_us;
    if (which & SETTING_HISTORY)
        to->history = from->history;
    if (!(which & SETTING_SECRETS))
        return 0;
    drop_secrets(to);
    return copy_secrets(from, to);
}

static bool same_secrets(const struct settings *a, const struct settings *b)
{
    bool same = a->secret_count == b->secret_count;
    for (unsigned i = 0; same && i < a->secret_count; i++)
        same = a->secrets[i].size == b->secrets[i].size &&
               memcmp(a->secrets[i].data, b->secrets[i].data, a->secrets[i].size) == 0;
    return same;
}

bool settings_are_same(const struct settings *a, const struct settings *b)
{
    return memcmp(&a->retry, &b->retry, sizeof a->retry) == 0 && a->skip_older_us == b->skip_older_us &&
           a->max_rate == b->max_rate && a->spread_us == b->spread_us &&
           memcmp(&a->history, &b->history, sizeof a->history) == 0 &&
           memcmp(&a->pauses, &b->pauses, sizeof a->pauses) == 0 && same_secrets(a, b);
}
