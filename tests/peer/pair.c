/* SPDX-License-Identifier: MIT */
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

struct pair pair;
struct between between;
const fl_bytes secret = {"correct horse battery staple", 28};

static void between_turn(void);

/* --- The host ----------------------------------------------------------------------------------------------------- */

static void on_gone(struct peer_request *request)
{
    pair.gone++;
    (void)request;
}

static void answer_large(struct peer_request *request)
{
    uint64_t size;
    CHECK_EQ(request->body.size, sizeof size);
    memcpy(&size, request->body.data, sizeof size);
    char *body = malloc(size + 1);
    CHECK(body);
    for (size_t i = 0; i < size; i++)
        body[i] = (char)(i * 7 % 251);
    peer_answer(request, 0, (fl_bytes){body, size});
    free(body);
}

static void answer_pieces(struct peer_request *request)
{
    static char large[100000];
    peer_piece(request, (fl_bytes){"one", 3});
    peer_piece(request, (fl_bytes){0});
    peer_piece(request, (fl_bytes){large, sizeof large});
    peer_answer(request, 3, (fl_bytes){"end", 3});
}

static void on_call(void *arg, struct peer_request *request)
{
    CHECK(arg == &pair);
    pair.handled++;
    if (request->body.size > 0)
        pair.seen |= 1ull << *(const unsigned char *)request->body.data % 64;
    snprintf(pair.address, sizeof pair.address, "%s", request->address);
    switch (request->kind) {
    case ECHO:
        peer_answer(request, 0, request->body);
        break;
    case KEEP:
        CHECK(pair.kept_count < KEPT_MOST);
        request->gone = on_gone;
        pair.kept[pair.kept_count++] = request;
        break;
    case PIECES:
        answer_pieces(request);
        break;
    case LARGE:
        answer_large(request);
        break;
    case STOP:
        peer_sessions_stop(pair.sessions);
        peer_answer(request, 0, (fl_bytes){0});
        break;
    default:
        peer_answer(request, FL_NOT_FOUND, (fl_bytes){"not here", 8});
    }
}

void pair_answer_kept(int result)
{
    while (pair.kept_count > 0)
        peer_answer(pair.kept[--pair.kept_count], result, (fl_bytes){"kept", 4});
}

static void on_head(http_request *request)
{
    peer_accept(pair.sessions, request);
}

static size_t write_problem(int status, const char *what, char *out, size_t size)
{
    return (size_t)snprintf(out, size, "%d %s", status, what);
}

static const struct http_handlers handlers = {.head = on_head, .problem = write_problem};

void pair_start(bool tls)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    char message[200];
    pair = (struct pair){.host = {secret, on_call, &pair}};
    fl_virtual_clock_init(&pair.clock, 1000000000);
    fl_loop_config config = {.clock = &pair.clock.clock};
    CHECK_EQ(fl_loop_new(&config, &pair.loop), 0);
    if (tls)
        pair.tls = make_tls();
    struct http_config http = {.loop = pair.loop, .handlers = &handlers, .tls = pair.tls};
    CHECK_EQ(http_server_new(&http, &pair.http), 0);
    CHECK_EQ(peer_sessions_new(pair.loop, &pair.host, &pair.sessions), 0);
    CHECK_EQ(
        http_server_listen(pair.http, (struct sockaddr *)&address, sizeof address, &pair.port, message, sizeof message),
        0);
}

void pair_stop_host(void)
{
    http_server_free(pair.http);
    pair.http = NULL;
}

void pair_end(void)
{
    peer_link_free(pair.link);
    peer_sessions_free(pair.sessions);
    pair_answer_kept(0);
    http_server_free(pair.http);
    http_tls_free(pair.tls);
    CHECK(!fl_loop_alive(pair.loop));
    CHECK_EQ(fl_loop_check(pair.loop, stderr), 0);
    fl_loop_free(pair.loop);
}

/* --- The link ----------------------------------------------------------------------------------------------------- */

static void on_changed(void *arg, peer_link *link, bool up)
{
    CHECK(arg == &pair);
    CHECK(!pair.link || link == pair.link);
    CHECK(peer_link_up(link) == up);
    CHECK((peer_link_trouble(link)[0] == '\0') == up);
    CHECK_EQ(pair.ups - pair.downs, !up);
    *(up ? &pair.ups : &pair.downs) += 1;
    if (pair.changed)
        pair.changed(up);
}

void pair_link_to(uint16_t port, fl_bytes with, bool tls)
{
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    struct peer_link_config config = {.loop = pair.loop,
                                      .address = address,
                                      .self = "me:1",
                                      .secret = with,
                                      .tls = tls,
                                      .changed = on_changed,
                                      .arg = &pair};
    CHECK_EQ(peer_link_new(&config, &pair.link), 0);
    CHECK(!peer_link_up(pair.link));
}

void pair_link(bool tls)
{
    pair_link_to(pair.port, secret, tls);
    UNTIL(peer_link_up(pair.link));
    CHECK_EQ(pair.ups, 1);
}

void pair_turn(void)
{
    CHECK_EQ(fl_loop_run_once(pair.loop, false), 0);
    if (between.listener > 0)
        between_turn();
}

void pair_pass(uint64_t ms)
{
    for (uint64_t i = 0; i < ms; i += 50) {
        fl_virtual_clock_move(&pair.clock, pair.clock.time_ns + 50000000);
        for (int turns = 0; turns < 10; turns++)
            pair_turn();
    }
}

/* --- Calls -------------------------------------------------------------------------------------------------------- */

uint64_t sum_of(fl_bytes bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes.size; i++)
        sum = sum * 31 + ((const unsigned char *)bytes.data)[i];
    return sum;
}

static void on_done(struct peer_call *call, int result, fl_bytes answer)
{
    struct asked *asked = (struct asked *)call;
    CHECK_EQ(asked->done, 0);
    asked->done++;
    asked->result = result;
    asked->size = answer.size;
    asked->sum = sum_of(answer);
    if (asked->then)
        asked->then(asked);
    snprintf(asked->text, sizeof asked->text, "%.*s", (int)(answer.size < 60 ? answer.size : 60),
             answer.size ? (const char *)answer.data : "");
}

static void on_piece(struct peer_call *call, fl_bytes piece)
{
    struct asked *asked = (struct asked *)call;
    CHECK_EQ(asked->done, 0);
    asked->pieces++;
    asked->size += piece.size;
    CHECK(sum_of(piece) == 0 || piece.size == 3);
}

struct asked *ask(uint8_t kind, const void *data, size_t size)
{
    struct asked *asked = calloc(1, sizeof *asked);
    CHECK(asked);
    asked->call.done = on_done;
    asked->call.piece = on_piece;
    peer_call(pair.link, &asked->call, kind, (fl_bytes){data, size});
    CHECK_EQ(asked->done, 0);
    return asked;
}

struct asked *ask_text(uint8_t kind, const char *text)
{
    return ask(kind, text, strlen(text));
}

void asked_wait(struct asked *asked)
{
    UNTIL(asked->done);
}

/* --- Certificates ------------------------------------------------------------------------------------------------- */

static void make_certificate(X509 **ret, EVP_PKEY **ret_key)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    CHECK(key && certificate);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME *subject = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)"peer", -1, -1, 0);
    X509_set_issuer_name(certificate, subject);
    CHECK(X509_sign(certificate, key, EVP_sha256()) > 0);
    *ret = certificate;
    *ret_key = key;
}

http_tls *make_tls(void)
{
    char certificate_file[64], key_file[64], message[200];
    X509 *certificate;
    EVP_PKEY *key;
    http_tls *tls;
    make_certificate(&certificate, &key);
    snprintf(certificate_file, sizeof certificate_file, "/tmp/foliot-peer-%d.pem", (int)getpid());
    snprintf(key_file, sizeof key_file, "/tmp/foliot-peer-%d.key", (int)getpid());
    FILE *file = fopen(certificate_file, "we");
    CHECK(file && PEM_write_X509(file, certificate));
    fclose(file);
    file = fopen(key_file, "we");
    CHECK(file && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL));
    fclose(file);
    CHECK_EQ(http_tls_new(certificate_file, key_file, &tls, message, sizeof message), 0);
    unlink(certificate_file);
    unlink(key_file);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return tls;
}

SSL_CTX *make_tls_server(void)
{
    X509 *certificate;
    EVP_PKEY *key;
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    make_certificate(&certificate, &key);
    CHECK(context && SSL_CTX_use_certificate(context, certificate) == 1 && SSL_CTX_use_PrivateKey(context, key) == 1);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return context;
}

/* --- Who is between ----------------------------------------------------------------------------------------------- */

static ssize_t end_read(int i, char *data, size_t size)
{
    SSL *ssl = between.end[i].ssl;
    if (!ssl)
        return recv(between.end[i].fd, data, size, 0);
    int n = SSL_read(ssl, data, (int)size), error = SSL_get_error(ssl, n);
    ERR_clear_error();
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return n > 0 ? n : error == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static ssize_t end_write(int i, const char *data, size_t size)
{
    SSL *ssl = between.end[i].ssl;
    if (!ssl)
        return send(between.end[i].fd, data, size, MSG_NOSIGNAL);
    int n = SSL_write(ssl, data, (int)size), error = SSL_get_error(ssl, n);
    ERR_clear_error();
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return n > 0 ? n : -1;
}

/* Ours, and not the kernel's: virtual time does not wait for acknowledgements. */
void send_at_once(int fd)
{
    static const int on = 1;
    CHECK_EQ(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
}

int connect_to(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        return -1;
    }
    send_at_once(fd);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

void between_cut(void)
{
    for (int i = 0; between.open && i < 2; i++) {
        SSL_free(between.end[i].ssl);
        if (between.end[i].fd >= 0)
            close(between.end[i].fd);
        http_buffer_free(&between.end[i].in);
        between.end[i].ssl = NULL;
        between.end[i].closed = false;
    }
    between.open = false;
}

static void between_accept(void)
{
    int fd = accept4(between.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    between.open = true;
    between.connections++;
    between.end[0].fd = fd;
    between.end[1].fd = connect_to(pair.port);
    if (between.end[1].fd < 0) {
        between_cut();
        return;
    }
    send_at_once(fd);
    SSL_CTX *contexts[2] = {between.server, between.client};
    for (int i = 0; i < 2 && between.server; i++) {
        SSL *ssl = SSL_new(contexts[i]);
        CHECK(ssl && SSL_set_fd(ssl, between.end[i].fd) == 1);
        (i == 0 ? SSL_set_accept_state : SSL_set_connect_state)(ssl);
        between.end[i].ssl = ssl;
    }
}

/* One portion from an end. */
static void between_take(int i)
{
    char data[32768];
    ssize_t n = end_read(i, data, sizeof data);
    if (n == 0 || (n < 0 && errno != EAGAIN))
        between.end[i].closed = true;
    if (n <= 0)
        return;
    CHECK(http_buffer_append(&between.end[i].in, data, (size_t)n));
    if (i == 0)
        CHECK(http_buffer_append(&between.record, data, (size_t)n));
}

/* … and to the other. */
static void between_give(int i)
{
    struct http_buffer *in = &between.end[i].in;
    size_t size = http_buffer_size(in) < between.left ? http_buffer_size(in) : between.left;
    ssize_t n = size > 0 ? end_write(!i, in->data + in->start, size) : 0;
    if (n > 0) {
        http_buffer_take(in, (size_t)n);
        between.left -= between.left == SIZE_MAX ? 0 : (size_t)n;
    } else if (n < 0 && errno != EAGAIN) {
        between.end[!i].closed = true;
    }
}

static void between_turn(void)
{
    if (!between.open)
        between_accept();
    if (!between.open || between.stalled)
        return;
    for (int i = 0; i < 2; i++) {
        between_take(i);
        between_give(i);
    }
    bool over = (between.end[0].closed && http_buffer_size(&between.end[0].in) == 0) ||
                (between.end[1].closed && http_buffer_size(&between.end[1].in) == 0);
    if (over || between.left == 0 || (between.end[0].closed && between.end[1].closed))
        between_cut();
}

void between_start(bool tls)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    between = (struct between){.left = SIZE_MAX};
    between.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(between.listener > 0 && bind(between.listener, (struct sockaddr *)&address, size) == 0 &&
          listen(between.listener, 10) == 0 && getsockname(between.listener, (struct sockaddr *)&address, &size) == 0);
    between.port = ntohs(address.sin_port);
    if (tls) {
        between.server = make_tls_server();
        between.client = SSL_CTX_new(TLS_client_method());
        CHECK(between.client);
        SSL_CTX_set_mode(between.client, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        signal(SIGPIPE, SIG_IGN); /* for its own writing: OpenSSL does not ask the kernel to refrain */
    }
}

void between_end(void)
{
    between_cut();
    close(between.listener);
    if (between.server)
        signal(SIGPIPE, SIG_DFL);
    SSL_CTX_free(between.server);
    SSL_CTX_free(between.client);
    http_buffer_free(&between.record);
    between = (struct between){0};
}
