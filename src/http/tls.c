/* SPDX-License-Identifier: MIT */
/* Encryption, by OpenSSL, on the loop's descriptors. It may have to write in order to read and the other way round; the
 * connection waits for what is wanted, and then tries both.
 *
 * The certificate is in a context of OpenSSL that connections hold on to while they live: a new one is for new
 * connections. OpenSSL's own way to the socket raises SIGPIPE when the peer is gone, so there is another one here. */

#include <errno.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "http/internal.h"

struct http_tls {
    pthread_mutex_t mutex;
    SSL_CTX *context;
};

/* --- The way to the socket --------------------------------------------------------------------------------------- */

static int after(BIO *bio, ssize_t n, int retry)
{
    BIO_clear_retry_flags(bio);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    return (int)n;
}

static int bio_write(BIO *bio, const char *data, int size)
{
    const int *fd = BIO_get_data(bio);
    return after(bio, send(*fd, data, (size_t)size, MSG_NOSIGNAL), BIO_FLAGS_WRITE);
}

static int bio_read(BIO *bio, char *data, int size)
{
    const int *fd = BIO_get_data(bio);
    return after(bio, recv(*fd, data, (size_t)size, 0), BIO_FLAGS_READ);
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH; /* everything else there is to ask has the answer no */
}

static BIO_METHOD *make_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "foliot socket");
    if (method && BIO_meth_set_write(method, bio_write) && BIO_meth_set_read(method, bio_read) &&
        BIO_meth_set_ctrl(method, bio_control))
        return method;
    BIO_meth_free(method);
    return NULL;
}

/* OpenSSL has numbers for some hundred methods, and takes none back: there is one for all, and it stays. */
static BIO_METHOD *the_method(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static BIO_METHOD *method;
    pthread_mutex_lock(&mutex);
    if (!method)
        method = make_method();
    pthread_mutex_unlock(&mutex);
    return method;
}

bool http_tls_attach(SSL *ssl, const int *fd)
{
    BIO_METHOD *method = the_method();
    BIO *bio = method ? BIO_new(method) : NULL;
    if (!bio)
        return false;
    BIO_set_data(bio, (void *)fd); /* it is only read */
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    return true;
}

/* --- Certificates ------------------------------------------------------------------------------------------------ */

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

int http_tls_new(const char *certificate, const char *key, http_tls **ret, char *message, size_t size)
{
    http_tls *tls = calloc(1, sizeof(*tls));
    int r = tls ? load(certificate, key, &tls->context, message, size) : FL_NO_MEMORY;
    if (!tls)
        snprintf(message, size, "%s", fl_strerror(FL_NO_MEMORY));
    if (r < 0) {
        free(tls);
        return r;
    }
    pthread_mutex_init(&tls->mutex, NULL);
    *ret = tls;
    return 0;
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

/* --- Connections ------------------------------------------------------------------------------------------------- */

bool http_tls_open(http_tls *tls, struct http_connection *connection)
{
    pthread_mutex_lock(&tls->mutex);
    SSL *ssl = SSL_new(tls->context);
    pthread_mutex_unlock(&tls->mutex);
    if (!ssl || !http_tls_attach(ssl, &connection->fd)) {
        SSL_free(ssl);
        ERR_clear_error();
        return false;
    }
    SSL_set_accept_state(ssl);
    connection->ssl = ssl;
    return true;
}

void http_tls_close(struct http_connection *connection)
{
    SSL_free(connection->ssl);
    connection->ssl = NULL;
}

/* Says that this was all, so that the peer can tell the end from a cut. Whether that still fits does not matter. */
void http_tls_shutdown(struct http_connection *connection)
{
    if (!connection->ssl)
        return;
    ERR_clear_error();
    SSL_shutdown(connection->ssl);
    ERR_clear_error();
}

/* The result of a call as that of recv() and send(). */
static ssize_t translate(struct http_connection *connection, int result)
{
    int error = SSL_get_error(connection->ssl, result);
    ERR_clear_error();
    if (result > 0)
        return result;
    if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
    connection->tls_wants_write = error == SSL_ERROR_WANT_WRITE;
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return -1;
}

static int int_size(size_t size)
{
    return size < INT_MAX ? (int)size : INT_MAX;
}

ssize_t http_tls_read(struct http_connection *connection, char *data, size_t size)
{
    ERR_clear_error();
    return translate(connection, SSL_read(connection->ssl, data, int_size(size)));
}

ssize_t http_tls_write(struct http_connection *connection, const char *data, size_t size)
{
    ERR_clear_error();
    ssize_t n = translate(connection, SSL_write(connection->ssl, data, int_size(size)));
    if (n == 0) { /* the peer has said that it takes no more */
        errno = EPIPE;
        return -1;
    }
    return n;
}

bool http_tls_pending(const struct http_connection *connection)
{
    return connection->ssl && SSL_pending(connection->ssl) > 0;
}

bool http_tls_in_handshake(const struct http_connection *connection)
{
    return connection->ssl && !SSL_is_init_finished(connection->ssl);
}

/* In TLS 1.2, two connections can be made to have the same keys. */
bool http_tls_channel_key(SSL *ssl, unsigned char out[HTTP_CHANNEL_KEY])
{
    ERR_clear_error();
    bool done = ssl && SSL_is_init_finished(ssl) && SSL_version(ssl) >= TLS1_3_VERSION &&
                SSL_export_keying_material(ssl, out, HTTP_CHANNEL_KEY, HTTP_CHANNEL_LABEL,
                                           sizeof(HTTP_CHANNEL_LABEL) - 1, NULL, 0, 0) == 1;
    ERR_clear_error();
    return done;
}

bool http_channel_key(http_request *request, unsigned char out[HTTP_CHANNEL_KEY])
{
    return http_tls_channel_key(http_connection_of(request)->ssl, out);
}
