/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_TOKENS_H
#define FOLIOT_SERVER_TOKENS_H

/* Bearer tokens: kept as SHA-256, compared in constant time, each with what it may do and where. admin includes the others.
 *
 * In the file, a section each; the hash is what `printf %s "$TOKEN" | sha256sum` prints:
 *
 *     [token billing]
 *     sha256 = 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
 *     namespaces = billing, billing-test      (* : all)
 *     rights = read, write                    (read, write, admin) */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <foliot/store.h>

enum { RIGHT_READ = 1, RIGHT_WRITE = 2, RIGHT_ADMIN = 4 };

struct token {
    char *name;
    unsigned char hash[32];
    unsigned rights;
    char **namespaces; /* ended by NULL; NULL: all */
};

struct tokens {
    struct token *list;
    size_t count;
};

/* The token of an Authorization header ("Bearer …"), or NULL. Takes the same time whichever it is, and if there is none. */
const struct token *tokens_find(const struct tokens *tokens, fl_bytes authorization);

/* The token of the same secret after the tokens were read again; NULL: it was removed. */
const struct token *tokens_same(const struct tokens *tokens, const struct token *token);

/* Whether it may; `ns` of size 0: in all namespaces. */
bool token_allows(const struct token *token, unsigned right, fl_bytes ns);

#endif
