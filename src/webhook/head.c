/* SPDX-License-Identifier: MIT */
/* The headers of a request. The signature is that of Standard Webhooks: HMAC-SHA256 over ID, timestamp and body with dots
 * between them, in Base64. There is one per secret, because two are valid while a secret is rotated. */

#include "webhook/internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <openssl/core_names.h>
#include <openssl/params.h>

#include "text/when.h"

static void add_line(struct out *out, const char *name, const char *value)
{
    out_text(out, name);
    out_text(out, ": ");
    out_text(out, value);
    out_text(out, "\r\n");
}

static void add_time(struct out *out, const char *name, int64_t us)
{
    char text[WHEN_TEXT + 1];
    if (us == 0)
        return;
    text[when_format(us, text)] = '\0';
    add_line(out, name, text);
}

/* A name may have any character but control characters; in a header, others than visible ASCII are percent-encoded. */
static void add_name(struct out *out, const char *name, fl_bytes value)
{
    const unsigned char *at = value.data;
    out_text(out, name);
    out_text(out, ": ");
    for (size_t i = 0; i < value.size; i++)
        if (at[i] <= ' ' || at[i] > '~' || at[i] == '%')
            out_format(out, "%%%02X", at[i]);
        else
            out_put(out, &at[i], 1);
    out_text(out, "\r\n");
}

/* What only some timers have. */
static void add_origin(struct out *out, const webhook_attempt *attempt)
{
    if (attempt->replaced > 0) {
        out_text(out, "foliot-replaced: ");
        out_number(out, attempt->replaced);
        out_text(out, "\r\n");
    }
    if (attempt->schedule.size == 0)
        return;
    add_name(out, "foliot-schedule", attempt->schedule);
    add_time(out, "foliot-occurrence", attempt->occurrence_us);
    add_time(out, "foliot-previous", attempt->previous_us);
    add_time(out, "foliot-next", attempt->next_us);
}

/* --- Signing ------------------------------------------------------------------------------------------------------ */

EVP_MAC_CTX *webhook_signer(void)
{
    static char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                           OSSL_PARAM_construct_end()};
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *signer = hmac ? EVP_MAC_CTX_new(hmac) : NULL;
    EVP_MAC_free(hmac);
    if (signer && EVP_MAC_CTX_set_params(signer, params))
        return signer;
    EVP_MAC_CTX_free(signer);
    return NULL;
}

/* One signature in Base64, 44 characters. */
static bool sign(EVP_MAC_CTX *signer, fl_bytes secret, const webhook_attempt *attempt, const char *timestamp,
                 unsigned char out[45])
{
    static const unsigned char none[1];
    unsigned char mac[32];
    size_t size;
    /* An empty key is a key; NULL would mean the one before. */
    const unsigned char *key = secret.size ? secret.data : none;
    bool good = EVP_MAC_init(signer, key, secret.size, NULL) &&
                EVP_MAC_update(signer, (const unsigned char *)attempt->id, strlen(attempt->id)) &&
                EVP_MAC_update(signer, (const unsigned char *)".", 1) &&
                EVP_MAC_update(signer, (const unsigned char *)timestamp, strlen(timestamp)) &&
                EVP_MAC_update(signer, (const unsigned char *)".", 1) &&
                EVP_MAC_update(signer, attempt->body.data, attempt->body.size) &&
                EVP_MAC_final(signer, mac, &size, sizeof mac);
    if (good)
        EVP_EncodeBlock(out, mac, sizeof mac);
    return good;
}

static void add_signatures(struct out *out, EVP_MAC_CTX *signer, const webhook_attempt *attempt, const char *timestamp)
{
    unsigned char signature[45];
    if (attempt->secret_count == 0)
        return;
    out_text(out, "webhook-signature:");
    for (unsigned i = 0; i < attempt->secret_count; i++) {
        if (!sign(signer, attempt->secrets[i], attempt, timestamp, signature))
            out->failed = true;
        out_text(out, " v1,");
        out_put(out, signature, 44);
    }
    out_text(out, "\r\n");
}

/* --- The user's --------------------------------------------------------------------------------------------------- */

static bool is_reserved(fl_bytes name)
{
    static const char *const reserved[] = {
        "connection",      "content-length",    "content-type",      "expect",
        "foliot-attempt",  "foliot-due",        "foliot-next",       "foliot-occurrence",
        "foliot-previous", "foliot-replaced",   "foliot-schedule",   "host",
        "http2-settings",  "keep-alive",        "proxy-connection",  "te",
        "trailer",         "transfer-encoding", "upgrade",           "user-agent",
        "webhook-id",      "webhook-signature", "webhook-timestamp",
    };
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strlen(reserved[i]) == name.size && strncasecmp(reserved[i], name.data, name.size) == 0)
            return true;
    return false;
}

static const char *header_problem(fl_bytes name, fl_bytes value)
{
    if (!http_is_name(name))
        return "a header name may contain only letters, digits and !#$%&'*+-.^_`|~";
    if (is_reserved(name))
        return "Foliot or HTTP sets this header itself; remove it";
    return http_is_value(value) ? NULL : "a header value must not contain control characters";
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

static int add_users(struct out *out, fl_bytes headers)
{
    const char *at = headers.data, *end = at + headers.size;
    while (at < end) {
        fl_bytes name = take_string(&at, end), value = take_string(&at, end);
        if (header_problem(name, value))
            return FL_INVALID_ARGUMENT;
        out_put(out, name.data, name.size);
        out_text(out, ": ");
        out_put(out, value.data, value.size);
        out_text(out, "\r\n");
    }
    return 0;
}

/* --- All together ------------------------------------------------------------------------------------------------- */

int webhook_head(struct out *out, EVP_MAC_CTX *signer, const webhook_attempt *attempt, int64_t now_us,
                 const char *user_agent, bool stranger)
{
    char timestamp[24], due[WHEN_TEXT];
    add_line(out, "content-type", attempt->content_type);
    add_line(out, "user-agent", user_agent);
    add_line(out, "webhook-id", attempt->id);
    out_text(out, "webhook-timestamp: ");
    size_t before = out->size;
    out_number(out, (now_us > 0 ? now_us : 0) / 1000000);
    if (out->failed)
        return FL_NO_MEMORY;
    memcpy(timestamp, out->data + before, out->size - before);
    timestamp[out->size - before] = '\0';
    out_text(out, "\r\nfoliot-attempt: ");
    out_number(out, attempt->number);
    out_text(out, "\r\nfoliot-due: ");
    out_put(out, due, when_format(attempt->due_us, due));
    out_text(out, "\r\n");
    add_origin(out, attempt);
    if (!stranger) {
        add_signatures(out, signer, attempt, timestamp);
        int result = add_users(out, attempt->headers);
        if (result < 0)
            return result;
    }
    return out->failed ? FL_NO_MEMORY : 0;
}
