/* SPDX-License-Identifier: MIT */
#include "receiver.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "test.h"

enum { REQUEST_MOST = 4 << 20, CONNECTIONS_MOST = 4096 };

struct connection {
    receiver *receiver;
    int fd;
    SSL *ssl; /* NULL: without */
    pthread_t thread;
};

struct receiver {
    int fd;
    SSL_CTX *tls;
    unsigned port;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ends;
    unsigned requests, connections;
    struct connection all[CONNECTIONS_MOST];
    char *response;
    char *last, *shown;
    size_t last_size;
};

/* --- One connection ----------------------------------------------------------------------------------------------- */

typedef struct connection connection;

static ssize_t receive(connection *c, char *data, size_t size)
{
    return c->ssl ? SSL_read(c->ssl, data, (int)size) : recv(c->fd, data, size, 0);
}

static bool send_all(connection *c, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = c->ssl ? SSL_write(c->ssl, data, (int)size) : send(c->fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

static bool send_text(connection *c, const char *text)
{
    return send_all(c, text, strlen(text));
}

/* The size of the request in `data`; 0 if it is not complete. */
static size_t request_size(const char *data, size_t size)
{
    const char *end = memmem(data, size, "\r\n\r\n", 4);
    if (!end)
        return 0;
    size_t head = (size_t)(end - data) + 4, body = 0;
    for (const char *line = data; line < end; line = (const char *)memmem(line, size, "\r\n", 2) + 2)
        if (strncasecmp(line, "content-length:", 15) == 0)
            body = strtoul(line + 15, NULL, 10);
    return size >= head + body ? head + body : 0;
}

/* Reads one whole request; NULL at the end of the connection. */
static char *read_request(connection *c, size_t *ret_size)
{
    char *data = malloc(REQUEST_MOST + 1);
    size_t size = 0;
    while (data && size < REQUEST_MOST) {
        ssize_t got = receive(c, data + size, REQUEST_MOST - size);
        if (got <= 0)
            break;
        size += (size_t)got;
        data[size] = '\0';
        if (request_size(data, size) == size) {
            *ret_size = size;
            return data;
        }
    }
    free(data);
    return NULL;
}

static bool drip(connection *c, const char *text)
{
    for (; *text; text++) {
        if (!send_all(c, text, 1))
            return false;
        usleep(200);
    }
    return true;
}

static bool pour(connection *c, const char *head, const char *piece)
{
    if (!send_text(c, head))
        return false;
    while (send_text(c, piece))
        continue;
    return false;
}

static void wait_for_end(connection *c)
{
    char waste[256];
    while (receive(c, waste, sizeof waste) > 0)
        continue;
}

static bool is(const char *request, const char *path)
{
    size_t size = strlen(path);
    return strncmp(request, "POST ", 5) == 0 && strncmp(request + 5, path, size) == 0 &&
           strchr(" ?/", request[5 + size]) != NULL;
}

/* Behaves as the request wants it. Whether the connection goes on. */
static bool behave(connection *c, const char *request, const char *response)
{
    static const char good[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    if (is(request, "/canned"))
        return send_text(c, response);
    if (is(request, "/close"))
        return send_text(c, response) && false;
    if (is(request, "/half"))
        return send_all(c, response, strlen(response) / 2) && false;
    if (is(request, "/drip"))
        return drip(c, response);
    if (is(request, "/endless"))
        return pour(c, "HTTP/1.1 200 OK\r\n\r\n", "and so on and on ");
    if (is(request, "/endless-chunked"))
        return pour(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nagain\r\n");
    if (is(request, "/endless-head"))
        return pour(c, "HTTP/1.1 200 OK\r\n", "x-more: and more and more and more\r\n");
    if (is(request, "/early"))
        return false;
    if (is(request, "/stale"))
        return send_text(c, good) && false;
    if (is(request, "/hang")) {
        wait_for_end(c);
        return false;
    }
    return send_text(c, good);
}

static char *record(receiver *r, char *request, size_t size)
{
    pthread_mutex_lock(&r->lock);
    free(r->last);
    r->last = malloc(size + 1);
    CHECK(r->last);
    memcpy(r->last, request, size + 1);
    r->last_size = size;
    r->requests++;
    char *response = strdup(r->response ? r->response : "");
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return response;
}

static void *serve(void *arg)
{
    connection *c = arg;
    bool goes_on = !c->ssl || SSL_accept(c->ssl) == 1;
    while (goes_on) {
        size_t size;
        char *request = read_request(c, &size);
        if (!request)
            break;
        char *response = record(c->receiver, request, size);
        goes_on = behave(c, request, response);
        free(response);
        free(request);
    }
    shutdown(c->fd, SHUT_RDWR);
    return NULL;
}

/* --- TLS ---------------------------------------------------------------------------------------------------------- */

static X509 *make_certificate(EVP_PKEY *key)
{
    X509 *certificate = X509_new();
    CHECK(certificate && X509_set_version(certificate, 2));
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
    X509_NAME *name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0);
    X509_EXTENSION *names = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "IP:127.0.0.1");
    CHECK(X509_set_issuer_name(certificate, name) && X509_set_pubkey(certificate, key) && names &&
          X509_add_ext(certificate, names, -1) && X509_sign(certificate, key, EVP_sha256()));
    X509_EXTENSION_free(names);
    return certificate;
}

static SSL_CTX *make_tls(const char *ca_file)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = make_certificate(key);
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    FILE *file = fopen(ca_file, "we");
    CHECK(tls && SSL_CTX_use_certificate(tls, certificate) == 1 && SSL_CTX_use_PrivateKey(tls, key) == 1);
    CHECK(file && PEM_write_X509(file, certificate));
    fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return tls;
}

/* --- All of them -------------------------------------------------------------------------------------------------- */

static void *take_connections(void *arg)
{
    receiver *r = arg;
    int fd, one = 1;
    while ((fd = accept(r->fd, NULL, NULL)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        pthread_mutex_lock(&r->lock);
        CHECK(r->connections < CONNECTIONS_MOST);
        connection *c = &r->all[r->connections++];
        *c = (connection){.receiver = r, .fd = fd, .ssl = r->tls ? SSL_new(r->tls) : NULL};
        CHECK(!r->tls || (c->ssl && SSL_set_fd(c->ssl, fd)));
        CHECK(pthread_create(&c->thread, NULL, serve, c) == 0);
        pthread_mutex_unlock(&r->lock);
    }
    return NULL;
}

static receiver *make(unsigned port, SSL_CTX *tls)
{
    receiver *r = calloc(1, sizeof *r);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1;
    CHECK(r);
    r->tls = tls;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    r->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(r->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    CHECK(r->fd >= 0 && bind(r->fd, (struct sockaddr *)&address, size) == 0 && listen(r->fd, 1024) == 0);
    CHECK(getsockname(r->fd, (struct sockaddr *)&address, &size) == 0);
    r->port = ntohs(address.sin_port);
    CHECK(pthread_create(&r->thread, NULL, take_connections, r) == 0);
    return r;
}

receiver *receiver_new(void)
{
    return make(0, NULL);
}

receiver *receiver_new_at(unsigned port)
{
    return make(port, NULL);
}

receiver *receiver_new_tls(const char *ca_file)
{
    return make(0, make_tls(ca_file));
}

void receiver_free(receiver *r)
{
    shutdown(r->fd, SHUT_RDWR);
    pthread_join(r->thread, NULL);
    close(r->fd);
    for (unsigned i = 0; i < r->connections; i++)
        shutdown(r->all[i].fd, SHUT_RDWR);
    for (unsigned i = 0; i < r->connections; i++) {
        pthread_join(r->all[i].thread, NULL);
        SSL_free(r->all[i].ssl);
        close(r->all[i].fd);
    }
    SSL_CTX_free(r->tls);
    free(r->response);
    free(r->last);
    free(r->shown);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

unsigned receiver_port(const receiver *r)
{
    return r->port;
}

void receiver_set(receiver *r, const char *response)
{
    pthread_mutex_lock(&r->lock);
    free(r->response);
    r->response = strdup(response);
    pthread_mutex_unlock(&r->lock);
}

unsigned receiver_requests(receiver *r)
{
    pthread_mutex_lock(&r->lock);
    unsigned count = r->requests;
    pthread_mutex_unlock(&r->lock);
    return count;
}

unsigned receiver_connections(receiver *r)
{
    pthread_mutex_lock(&r->lock);
    unsigned count = r->connections;
    pthread_mutex_unlock(&r->lock);
    return count;
}

void receiver_wait(receiver *r, unsigned count)
{
    pthread_mutex_lock(&r->lock);
    while (r->requests < count)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

const char *receiver_last(receiver *r, size_t *ret_size)
{
    pthread_mutex_lock(&r->lock);
    free(r->shown);
    r->shown = r->last;
    r->last = NULL;
    if (ret_size)
        *ret_size = r->last_size;
    pthread_mutex_unlock(&r->lock);
    return r->shown;
}
