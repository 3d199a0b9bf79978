/* SPDX-License-Identifier: MIT */
/* Sockets, with TLS or without.
 *
 * OpenSSL may have to write in order to read, and the other way round. http_stream_events() says what to wait for; then the owner
 * of the stream tries both. OpenSSL's own way to the socket raises SIGPIPE when the peer is gone, so there is another one here. */

#include <errno.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "http/internal.h"

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
    const struct http_stream *stream = BIO_get_data(bio);
    return after(bio, send(stream->fd, data, (size_t)size, MSG_NOSIGNAL), BIO_FLAGS_WRITE);
}

static int bio_read(BIO *bio, char *data, int size)
{
    const struct http_stream *stream = BIO_get_data(bio);
    return after(bio, recv(stream->fd, data, (size_t)size, 0), BIO_FLAGS_READ);
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

static bool attach(struct http_stream *stream, SSL *ssl)
{
    BIO_METHOD *method = the_method();
    BIO *bio = method ? BIO_new(method) : NULL;
    if (!bio)
        return false;
    BIO_set_data(bio, stream);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    return true;
}

static bool encrypt(struct http_stream *stream, http_tls *tls, void (*set_role)(SSL *ssl))
{
    SSL *ssl = http_tls_session(tls);
    bool done = ssl && attach(stream, ssl);
    ERR_clear_error();
    if (!done) {
        SSL_free(ssl);
        return false;
    }
    set_role(ssl);
    stream->ssl = ssl;
    return true;
}

/* --- Opening and closing ----------------------------------------------------------------------------------------- */

bool http_stream_accept(struct http_stream *stream, int fd, http_tls *tls)
{
    *stream = (struct http_stream){.fd = fd};
    return !tls || encrypt(stream, tls, SSL_set_accept_state);
}

int http_stream_dial(struct http_stream *stream, const struct sockaddr *to, socklen_t size, http_tls *tls)
{
    static const int on = 1;
    *stream = (struct http_stream){.fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (stream->fd < 0)
        return errno;
    setsockopt(stream->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int error = 0;
    if (connect(stream->fd, to, size) < 0 && errno != EINPROGRESS)
        error = errno;
    else if (tls && !encrypt(stream, tls, SSL_set_connect_state))
        error = ENOMEM;
    if (error)
        http_stream_close(stream);
    return error;
}

int http_stream_dialled(const struct http_stream *stream)
{
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ? errno : error;
}

/* Whether the message still fits into the socket does not matter. */
void http_stream_finish(struct http_stream *stream)
{
    if (!stream->ssl)
        return;
    ERR_clear_error();
    SSL_shutdown(stream->ssl);
    ERR_clear_error();
}

void http_stream_close(struct http_stream *stream)
{
    if (stream->fd < 0)
        return;
    SSL_free(stream->ssl);
    close(stream->fd);
    *stream = (struct http_stream){.fd = -1};
}

/* --- Reading and writing ----------------------------------------------------------------------------------------- */

/* The result of a call of OpenSSL as that of recv() and send(). */
static ssize_t translate(struct http_stream *stream, int result, int *ret_error)
{
    *ret_error = SSL_get_error(stream->ssl, result);
    stream->problem = NULL;
    if (result <= 0 && *ret_error == SSL_ERROR_SSL)
        stream->problem = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    if (result > 0)
        return result;
    if (*ret_error == SSL_ERROR_ZERO_RETURN)
        return 0;
    errno = *ret_error == SSL_ERROR_WANT_READ || *ret_error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return -1;
}

static int int_size(size_t size)
{
    return size < INT_MAX ? (int)size : INT_MAX;
}

ssize_t http_stream_read(struct http_stream *stream, char *data, size_t size)
{
    int error;
    fl__assert(stream->fd >= 0);
    if (!stream->ssl)
        return recv(stream->fd, data, size, 0);
    ERR_clear_error();
    ssize_t n = translate(stream, SSL_read(stream->ssl, data, int_size(size)), &error);
    stream->read_wants_write = error == SSL_ERROR_WANT_WRITE;
    return n;
}

ssize_t http_stream_write(struct http_stream *stream, const char *data, size_t size)
{
    int error;
    fl__assert(stream->fd >= 0 && size > 0);
    if (!stream->ssl)
        return send(stream->fd, data, size, MSG_NOSIGNAL);
    ERR_clear_error();
    ssize_t n = translate(stream, SSL_write(stream->ssl, data, int_size(size)), &error);
    stream->write_wants_read = error == SSL_ERROR_WANT_READ;
    if (n == 0) { /* the peer has said that it takes no more */
        errno = EPIPE;
        return -1;
    }
    return n;
}

unsigned http_stream_events(const struct http_stream *stream, bool reading, bool writing)
{
    bool read = reading || (writing && stream->write_wants_read);
    bool write = (writing && !stream->write_wants_read) || stream->read_wants_write;
    return (read ? FL_READ : 0u) | (write ? FL_WRITE : 0u);
}

bool http_stream_pending(const struct http_stream *stream)
{
    return stream->ssl && SSL_pending(stream->ssl) > 0;
}

bool http_stream_in_handshake(const struct http_stream *stream)
{
    return stream->ssl && !SSL_is_init_finished(stream->ssl);
}

/* In TLS 1.2, two connections can be made to have the same keys. */
bool http_stream_key(const struct http_stream *stream, unsigned char out[HTTP_CHANNEL_KEY])
{
    SSL *ssl = stream->ssl;
    ERR_clear_error();
    bool done = ssl && SSL_is_init_finished(ssl) && SSL_version(ssl) >= TLS1_3_VERSION &&
                SSL_export_keying_material(ssl, out, HTTP_CHANNEL_KEY, HTTP_CHANNEL_LABEL,
                                           sizeof(HTTP_CHANNEL_LABEL) - 1, NULL, 0, 0) == 1;
    ERR_clear_error();
    return done;
}
