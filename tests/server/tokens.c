/* SPDX-License-Identifier: MIT */
/* Bearer tokens: which is found, and what it may do. */

#include "api/tokens.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "test.h"

static fl_bytes bytes(const char *text)
{
    return (fl_bytes){text, strlen(text)};
}

static void set(struct token *token, const char *secret)
{
    CHECK_EQ(EVP_Digest(secret, strlen(secret), token->hash, NULL, EVP_sha256(), NULL), 1);
}

TEST(the_hash_is_what_sha256sum_prints)
{
    static const unsigned char expected[] = {0x9f, 0x86, 0xd0, 0x81, 0x88, 0x4c, 0x7d, 0x65};
    struct token token = {.name = "t"};
    set(&token, "test");
    CHECK(memcmp(token.hash, expected, sizeof expected) == 0);
    struct tokens tokens = {&token, 1};
    CHECK(tokens_find(&tokens, bytes("Bearer test")) == &token);
}

TEST(each_is_found_wherever_it_stands)
{
    enum { COUNT = 50 };
    struct token list[COUNT] = {0};
    struct tokens tokens = {list, COUNT};
    char text[64];
    for (int i = 0; i < COUNT; i++) {
        snprintf(text, sizeof text, "secret-%d", i);
        set(&list[i], text);
    }
    for (int i = 0; i < COUNT; i++) {
        snprintf(text, sizeof text, "Bearer secret-%d", i);
        CHECK(tokens_find(&tokens, bytes(text)) == &list[i]);
    }
    CHECK(tokens_find(&tokens, bytes("Bearer secret-50")) == NULL);
}

TEST(what_is_no_bearer_token_finds_nothing)
{
    static const char *const headers[] = {
        "",
        "Bearer",
        "Bearer ",
        "Bearer   ",
        "secret",
        "Basic secret",
        "Bearersecret",
        "Bearer s",
        "Bearer Secret",
        "Bearer secret ",
        "Bearer secrets",
        "Bearer\tsecret",
        " Bearer secret",
    };
    struct token list[2] = {0};
    struct tokens tokens = {list, 2};
    set(&list[0], "secret");
    set(&list[1], ""); /* even if somebody has hashed nothing */
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        if (tokens_find(&tokens, bytes(headers[i])))
            test_fail(__FILE__, __LINE__, "'%s' found a token", headers[i]);
    CHECK(tokens_find(&tokens, (fl_bytes){NULL, 0}) == NULL);
    CHECK(tokens_find(&(struct tokens){0}, bytes("Bearer secret")) == NULL);
    CHECK(tokens_find(&tokens, bytes("bearer secret")) == &list[0]);
    CHECK(tokens_find(&tokens, bytes("BEARER   secret")) == &list[0]);
}

TEST(a_token_is_any_bytes)
{
    struct token token = {0};
    struct tokens tokens = {&token, 1};
    set(&token, "a");
    CHECK(tokens_find(&tokens, (fl_bytes){"Bearer a\0", 9}) == NULL);
    size_t size = 100000;
    char *header = malloc(size);
    CHECK(header != NULL);
    memset(header, 'a', size);
    for (int i = 0; i < 7; i++)
        header[i] = "Bearer "[i];
    CHECK(tokens_find(&tokens, (fl_bytes){header, size}) == NULL);
    CHECK(tokens_find(&tokens, (fl_bytes){header, 8}) == &token);
    free(header);
}

TEST(what_a_token_allows)
{
    char *namespaces[] = {"billing", "billing-test", NULL};
    struct token some = {.rights = RIGHT_READ | RIGHT_WRITE, .namespaces = namespaces};
    struct token all = {.rights = RIGHT_READ};
    CHECK(token_allows(&some, RIGHT_READ, bytes("billing")));
    CHECK(token_allows(&some, RIGHT_READ | RIGHT_WRITE, bytes("billing-test")));
    CHECK(!token_allows(&some, RIGHT_ADMIN, bytes("billing")));
    CHECK(!token_allows(&some, RIGHT_READ | RIGHT_ADMIN, bytes("billing")));
    CHECK(!token_allows(&some, RIGHT_READ, bytes("billin")));
    CHECK(!token_allows(&some, RIGHT_READ, bytes("billing-")));
    CHECK(!token_allows(&some, RIGHT_READ, bytes("Billing")));
    CHECK(!token_allows(&some, RIGHT_READ, (fl_bytes){NULL, 0}));
    CHECK(token_allows(&all, RIGHT_READ, (fl_bytes){NULL, 0}));
    CHECK(token_allows(&all, RIGHT_READ, bytes("anything")));
    CHECK(!token_allows(&all, RIGHT_WRITE, bytes("anything")));
    namespaces[0] = NULL;
    CHECK(!token_allows(&some, RIGHT_READ, bytes("billing")));
}
