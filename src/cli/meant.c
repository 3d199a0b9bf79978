/* SPDX-License-Identifier: MIT */
/* Which word was meant by one that is mistyped. */

#include <stdbool.h>
#include <string.h>

#include "cli/cli.h"

enum { LONGEST = 16, TOO_FAR = 3 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many letters have to be inserted, deleted, replaced or exchanged with the next to make one word of the other. */
static size_t distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t steps[LONGEST + 1][LONGEST + 1];
    if (a_size > LONGEST || b_size > LONGEST)
        return TOO_FAR;
    for (size_t i = 0; i <= a_size; i++)
        for (size_t j = 0; j <= b_size; j++) {
            steps[i][j] = i + j;
            if (i == 0 || j == 0)
                continue;
            steps[i][j] =
                smaller(steps[i - 1][j - 1] + (a[i - 1] != b[j - 1]), 1 + smaller(steps[i - 1][j], steps[i][j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                steps[i][j] = smaller(steps[i][j], 1 + steps[i - 2][j - 2]);
        }
    return steps[a_size][b_size];
}

struct cli_meant cli_meant(const char *given)
{
    return (struct cli_meant){.given = given, .size = strcspn(given, "="), .distance = TOO_FAR};
}

void cli_offer(struct cli_meant *meant, const char *word)
{
    bool begins = meant->size > 0 && strncmp(word, meant->given, meant->size) == 0;
    size_t away = begins ? 1 : distance(meant->given, meant->size, word, strlen(word));
    if (away < meant->distance && away <= meant->size) {
        meant->distance = away;
        meant->word = word;
    }
}
