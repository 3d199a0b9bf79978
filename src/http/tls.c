/* SPDX-License-Identifier: MIT */
/* Contexts of TLS: a server's certificate with its key, and the client side of links.
 *
 * Connections hold on to the context of OpenSSL with which they began. A new certificate is for new connections. */

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/internal.h"

struct http_tls {
    pthread_mutex_t mutex;
    SSL_CTX *context;
};

static int complain(char *message, size_t size, const char *what, const char *file)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    snprintf(message, size, "%s %s: %s", what, file, reason ? reason : "it cannot be used");
    ERR_clear_error();
    return FL_INVALID_ARGUMENT;
}

/* HTTP/1.1 is all there is to agree on. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_size, const unsigned char *in,
                           unsigned in_size, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen = NULL;
    (void)ssl;
    (void)arg;
    if (SSL_select_next_proto(&chosen, out_size, ours, sizeof(ours) - 1, in, in_size) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int load(const char *certificate, const char *key, SSL_CTX **ret, char *message, size_t size)
{
    ERR_clear_error();
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (!context) {
        snprintf(message, size, "%s", fl_strerror(FL_NO_MEMORY));
        return FL_NO_MEMORY;
    }
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    int r = 0;
    if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1)
        r = complain(message, size, "the certificate", certificate);
    else if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
        r = complain(message, size, "the key", key);
    else if (SSL_CTX_check_private_key(context) != 1)
        r = complain(message, size, "the key does not belong to the certificate:", key);
    if (r < 0)
        SSL_CTX_free(context);
    else
        *ret = context;
    return r;
}

static http_tls *tls_of(SSL_CTX *context)
{
    http_tls *tls = calloc(1, sizeof(*tls));
    if (!tls) {
        SSL_CTX_free(context);
        return NULL;
    }
    pthread_mutex_init(&tls->mutex, NULL);
    tls->context = context;
    return tls;
}

int http_tls_new(const char *certificate, const char *key, http_tls **ret, char *message, size_t size)
{
    SSL_CTX *context;
    int r = load(certificate, key, &context, message, size);
    if (r < 0)
        return r;
    http_tls *tls = tls_of(context);
    if (!tls) {
        snprintf(message, size, "%s", fl_strerror(FL_NO_MEMORY));
        return FL_NO_MEMORY;
    }
    *ret = tls;
    return 0;
}

http_tls *http_tls_unverified(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    ERR_clear_error();
    if (!context)
        return NULL;
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION); /* see http_stream_key() */
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return tls_of(context);
}

int http_tls_load(http_tls *tls, const char *certificate, const char *key, char *message, size_t size)
{
    SSL_CTX *context;
    int r = load(certificate, key, &context, message, size);
    if (r < 0)
        return r;
    pthread_mutex_lock(&tls->mutex);
    SSL_CTX *old = tls->context;
    tls->context = context;
    pthread_mutex_unlock(&tls->mutex);
    SSL_CTX_free(old);
    return 0;
}

void http_tls_free(http_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->context);
    pthread_mutex_destroy(&tls->mutex);
    free(tls);
}

SSL *http_tls_session(http_tls *tls)
{
    pthread_mutex_lock(&tls->mutex);
    SSL *ssl = SSL_new(tls->context);
    pthread_mutex_unlock(&tls->mutex);
    return ssl;
}
