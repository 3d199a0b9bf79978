/* SPDX-License-Identifier: MIT */
/* The headers of a request. The signature is that of Standard Webhooks: HMAC-SHA256 over ID, timestamp and body with dots
 * between them, in Base64, for each secret: who rotates a secret has two that are valid at once. */

#include "webhook/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <openssl/core_names.h>
#include <openssl/params.h>

#include "text/when.h"

/* --- Text that grows ---------------------------------------------------------------------------------------------- */

void webhook_text_add(struct webhook_text *text, const void *data, size_t size)
{
    if (text->room - text->size < size && !text->failed) {
        size_t room = text->room ? text->room : 512;
        while (room - text->size < size)
            room *= 2;
        char *bigger = realloc(text->data, room);
        text->failed = !bigger;
        if (bigger) {
            text->data = bigger;
            text->room = room;
        }
    }
    if (text->failed || size == 0)
        return;
    memcpy(text->data + text->size, data, size);
    text->size += size;
}

static void add(struct webhook_text *text, const char *string)
{
    webhook_text_add(text, string, strlen(string));
}

static void add_line(struct webhook_text *text, const char *name, const char *value)
{
    add(text, name);
    add(text, ": ");
    add(text, value);
    add(text, "\r\n");
}

/* What printf() does, in a tenth of its time: there are several numbers in every head. */
char *webhook_decimal(uint64_t number, char out[WEBHOOK_DECIMAL])
{
    char *at = out + WEBHOOK_DECIMAL - 1;
    *at = '\0';
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    return at;
}

/* --- Signing ------------------------------------------------------------------------------------------------------ */

int webhook_signer_init(struct webhook_signer *signer)
{
    static char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                           OSSL_PARAM_construct_end()};
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    signer->context = hmac ? EVP_MAC_CTX_new(hmac) : NULL;
    EVP_MAC_free(hmac);
    if (signer->context && EVP_MAC_CTX_set_params(signer->context, params))
        return 0;
    webhook_signer_free(signer);
    return FL_NO_MEMORY;
}

void webhook_signer_free(struct webhook_signer *signer)
{
    EVP_MAC_CTX_free(signer->context);
    signer->context = NULL;
}

/* One signature in Base64, 44 characters. */
static bool sign(struct webhook_signer *signer, fl_bytes secret, const webhook_call *call, const char *timestamp,
                 unsigned char out[45])
{
    static const unsigned char none[1];
    unsigned char mac[32];
    size_t size;
    EVP_MAC_CTX *context = signer->context;
    /* An empty key is a key; NULL would mean the one before. */
    const unsigned char *key = secret.size ? secret.data : none;
    bool good = EVP_MAC_init(context, key, secret.size, NULL) &&
                EVP_MAC_update(context, (const unsigned char *)call->id, strlen(call->id)) &&
                EVP_MAC_update(context, (const unsigned char *)".", 1) &&
                EVP_MAC_update(context, (const unsigned char *)timestamp, strlen(timestamp)) &&
                EVP_MAC_update(context, (const unsigned char *)".", 1) &&
                EVP_MAC_update(context, call->body.data, call->body.size) &&
                EVP_MAC_final(context, mac, &size, sizeof mac);
    if (good)
        EVP_EncodeBlock(out, mac, sizeof mac);
    return good;
}

static void add_signatures(struct webhook_text *text, struct webhook_signer *signer, const webhook_call *call,
                           const char *timestamp)
{
    unsigned char signature[45];
    if (call->secret_count == 0)
        return;
    add(text, "webhook-signature:");
    for (unsigned i = 0; i < call->secret_count; i++) {
        if (!sign(signer, call->secrets[i], call, timestamp, signature))
            text->failed = true;
        add(text, " v1,");
        webhook_text_add(text, signature, 44);
    }
    add(text, "\r\n");
}

/* --- The user's --------------------------------------------------------------------------------------------------- */

static bool is_token(fl_bytes name)
{
    const unsigned char *at = name.data;
    for (size_t i = 0; i < name.size; i++)
        if (!isalnum(at[i]) && (at[i] == '\0' || !strchr("!#$%&'*+-.^_`|~", at[i])))
            return false;
    return name.size > 0;
}

static bool is_reserved(fl_bytes name)
{
    static const char *const reserved[] = {
        "connection",        "content-length",    "content-type", "expect",
        "foliot-attempt",    "foliot-due",        "host",         "http2-settings",
        "keep-alive",        "proxy-connection",  "te",           "trailer",
        "transfer-encoding", "upgrade",           "user-agent",   "webhook-id",
        "webhook-signature", "webhook-timestamp",
    };
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strlen(reserved[i]) == name.size && strncasecmp(reserved[i], name.data, name.size) == 0)
            return true;
    return false;
}

static bool is_field_value(fl_bytes value)
{
    const unsigned char *at = value.data;
    for (size_t i = 0; i < value.size; i++)
        if ((at[i] < ' ' && at[i] != '\t') || at[i] == 0x7f)
            return false;
    return true;
}

static const char *header_problem(fl_bytes name, fl_bytes value)
{
    if (!is_token(name))
        return "a header name may contain only letters, digits and !#$%&'*+-.^_`|~";
    if (is_reserved(name))
        return "Foliot or HTTP sets this header itself; remove it";
    return is_field_value(value) ? NULL : "a header value must not contain control characters";
}

int webhook_check_header(fl_bytes name, fl_bytes value, char *message, size_t size)
{
    const char *problem = header_problem(name, value);
    if (!problem)
        return 0;
    snprintf(message, size, "%s", problem);
    return FL_INVALID_ARGUMENT;
}

static fl_bytes take_string(const char **at, const char *end)
{
    const char *begin = *at, *nul = memchr(begin, '\0', (size_t)(end - begin));
    *at = nul ? nul + 1 : end;
    return (fl_bytes){begin, (size_t)((nul ? nul : end) - begin)};
}

static int add_users(struct webhook_text *text, fl_bytes headers)
{
    const char *at = headers.data, *end = at + headers.size;
    while (at < end) {
        fl_bytes name = take_string(&at, end), value = take_string(&at, end);
        if (header_problem(name, value))
            return FL_INVALID_ARGUMENT;
        webhook_text_add(text, name.data, name.size);
        add(text, ": ");
        webhook_text_add(text, value.data, value.size);
        add(text, "\r\n");
    }
    return 0;
}

/* --- All together ------------------------------------------------------------------------------------------------- */

int webhook_head(struct webhook_text *text, struct webhook_signer *signer, const webhook_call *call, int64_t now_us,
                 const char *user_agent, bool stranger)
{
    char number[WEBHOOK_DECIMAL], second[WEBHOOK_DECIMAL], due[WHEN_TEXT];
    const char *timestamp = webhook_decimal((uint64_t)(now_us > 0 ? now_us : 0) / 1000000, second);
    add_line(text, "content-type", call->content_type);
    add_line(text, "user-agent", user_agent);
    add_line(text, "webhook-id", call->id);
    add_line(text, "webhook-timestamp", timestamp);
    add_line(text, "foliot-attempt", webhook_decimal(call->attempt, number));
    add(text, "foliot-due: ");
    webhook_text_add(text, due, when_format(call->due_us, due));
    add(text, "\r\n");
    if (!stranger) {
        add_signatures(text, signer, call, timestamp);
        int result = add_users(text, call->headers);
        if (result < 0)
            return result;
    }
    return text->failed ? FL_NO_MEMORY : 0;
}
