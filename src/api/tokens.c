/* SPDX-License-Identifier: MIT */
/* A token is as good as a password, so how long a wrong one takes to be refused must not tell how nearly right it was: it is
 * hashed, and the hash is compared with every one that is known, each in full; the one that matches is chosen without a
 * branch. The hash needs no salt: tokens are random and too long to try them all. */

#include "api/tokens.h"

#include <pthread.h>
#include <string.h>
#include <strings.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

/* The text after "Bearer" in upper or lower case. Size 0: no such header. */
static fl_bytes bearer(fl_bytes authorization)
{
    static const char scheme[] = "bearer ";
    const char *at = authorization.data, *end = at + authorization.size;
    if (authorization.size < sizeof scheme || strncasecmp(at, scheme, sizeof scheme - 1) != 0)
        return (fl_bytes){"", 0};
    at += sizeof scheme - 1;
    while (at < end && *at == ' ')
        at++;
    return (fl_bytes){at, (size_t)(end - at)};
}

static EVP_MD *sha256; /* looked up once: that takes longer than a hash */

static void fetch_sha256(void)
{
    sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
}

const struct token *tokens_find(const struct tokens *tokens, fl_bytes authorization)
{
    fl_bytes secret = bearer(authorization);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    unsigned char hash[EVP_MAX_MD_SIZE] = {0};
    pthread_once(&once, fetch_sha256);
    bool valid = sha256 && EVP_Digest(secret.data, secret.size, hash, NULL, sha256, NULL) == 1 && secret.size > 0;
    size_t found = 0; /* 1 for the first */
    for (size_t i = 0; i < tokens->count; i++) {
        size_t same = (size_t)0 - (CRYPTO_memcmp(hash, tokens->list[i].hash, sizeof tokens->list[i].hash) == 0);
        found = (found & ~same) | ((i + 1) & same);
    }
    OPENSSL_cleanse(hash, sizeof hash);
    return valid && found > 0 ? &tokens->list[found - 1] : NULL;
}

const struct token *tokens_same(const struct tokens *tokens, const struct token *token)
{
    for (size_t i = 0; i < tokens->count; i++)
        if (CRYPTO_memcmp(token->hash, tokens->list[i].hash, sizeof token->hash) == 0)
            return &tokens->list[i];
    return NULL;
}

bool token_allows(const struct token *token, unsigned right, fl_bytes ns)
{
    if ((token->rights & right) != right)
        return false;
    if (!token->namespaces)
        return true;
    for (char **name = token->namespaces; *name; name++)
        if (ns.size > 0 && strlen(*name) == ns.size && memcmp(*name, ns.data, ns.size) == 0)
            return true;
    return false;
}
