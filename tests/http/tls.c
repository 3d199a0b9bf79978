/* SPDX-License-Identifier: MIT */
/* The HTTP server behind TLS, with certificates that are made here. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "test.h"

static char certificate_file[64], key_file[64], message[200];

/* Writes a certificate for `name`, signed by itself, and its key. */
static void make_certificate(const char *name)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    CHECK(key && certificate);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME *subject = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(certificate, subject);
    CHECK(X509_sign(certificate, key, EVP_sha256()) > 0);
    snprintf(certificate_file, sizeof(certificate_file), "/tmp/foliot-http-%d-%s.pem", (int)getpid(), name);
    snprintf(key_file, sizeof(key_file), "/tmp/foliot-http-%d-%s.key", (int)getpid(), name);
    FILE *file = fopen(certificate_file, "we");
    CHECK(file && PEM_write_X509(file, certificate));
    fclose(file);
    file = fopen(key_file, "we");
    CHECK(file && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL));
    fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

static void remove_certificate(void)
{
    unlink(certificate_file);
    unlink(key_file);
}

/* --- A client ---------------------------------------------------------------------------------------------------- */

struct tls_client {
    struct client *raw;
    SSL_CTX *context;
    SSL *ssl;
};

static struct tls_client tls_client_new(int version)
{
    struct tls_client client = {client_new(), SSL_CTX_new(TLS_client_method()), NULL};
    CHECK(client.context);
    SSL_CTX_set_security_level(client.context, 0);
    SSL_CTX_set_min_proto_version(client.context, version);
    SSL_CTX_set_max_proto_version(client.context, version);
    client.ssl = SSL_new(client.context);
    CHECK(client.ssl);
    fcntl(client.raw->fd, F_SETFL, O_NONBLOCK);
    SSL_set_fd(client.ssl, client.raw->fd);
    SSL_set_connect_state(client.ssl);
    return client;
}

static void tls_client_free(struct tls_client *client)
{
    SSL_free(client->ssl);
    SSL_CTX_free(client->context);
    client_free(client->raw);
}

static bool again(const struct tls_client *client, int result)
{
    int error = SSL_get_error(client->ssl, result);
    ERR_clear_error();
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
}

static bool tls_connect(struct tls_client *client)
{
    int r;
    while ((r = SSL_do_handshake(client->ssl)) <= 0 && again(client, r))
        service_turn();
    return r == 1;
}

static void tls_receive(struct tls_client *client)
{
    struct client *raw = client->raw;
    int r = 1;
    while (r > 0 && raw->size < ANSWER_ROOM) {
        r = SSL_read(client->ssl, raw->data + raw->size, (int)(ANSWER_ROOM - raw->size));
        if (r > 0)
            raw->size += (size_t)r;
    }
    raw->closed = raw->closed || (r <= 0 && !again(client, r));
}

static void tls_send(struct tls_client *client, const char *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        int r = SSL_write(client->ssl, data + at, (int)(size - at < 10000 ? size - at : 10000));
        CHECK(r > 0 || again(client, r));
        at += r > 0 ? (size_t)r : 0;
        service_turn();
    }
}

static int tls_answer(struct tls_client *client)
{
    UNTIL((tls_receive(client), client_take(client->raw, false)));
    return client->raw->status;
}

static int tls_ask(struct tls_client *client, const char *request)
{
    tls_send(client, request, strlen(request));
    return tls_answer(client);
}

static http_tls *start(void)
{
    http_tls *tls;
    make_certificate("first");
    CHECK_EQ(http_tls_new(certificate_file, key_file, &tls, message, sizeof(message)), 0);
    remove_certificate();
    service_start(&(struct http_config){.tls = tls});
    return tls;
}

static void end(http_tls *tls)
{
    service_end();
    http_tls_free(tls);
}

/* --- Tests ------------------------------------------------------------------------------------------------------- */

TEST(requests_are_answered_over_both_versions)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    http_tls *tls = start();
    for (int i = 0; i < 2; i++) {
        struct tls_client client = tls_client_new(versions[i]);
        CHECK(tls_connect(&client));
        CHECK_EQ(tls_ask(&client, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
        CHECK(client_body_is(client.raw, "/a"));
        CHECK_EQ(tls_ask(&client, "GET /pieces HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
        CHECK(client_body_is(client.raw, "one, two, three"));
        CHECK_EQ(tls_answer(&client), 200);
        CHECK(client_body_is(client.raw, "/b"));
        tls_client_free(&client);
    }
    end(tls);
}

TEST(older_versions_and_plain_text_are_refused)
{
    http_tls *tls = start();
    struct tls_client client = tls_client_new(TLS1_1_VERSION);
    CHECK(!tls_connect(&client));
    tls_client_free(&client);
    struct client *plain = client_new();
    client_say(plain, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    UNTIL((client_receive(plain), plain->closed));
    client_free(plain);
    CHECK_EQ(service.heads, 0);
    end(tls);
}

TEST(large_bodies_go_both_ways)
{
    http_tls *tls = start();
    struct tls_client client = tls_client_new(TLS1_3_VERSION);
    size_t size = 900000;
    char *body = malloc(size);
    CHECK(body && tls_connect(&client));
    for (size_t i = 0; i < size; i++)
        body[i] = (char)(i * 11 % 253);
    for (int i = 0; i < 3; i++) {
        char head[100];
        snprintf(head, sizeof(head), "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n", size);
        tls_send(&client, head, strlen(head));
        tls_send(&client, body, size);
        CHECK_EQ(tls_answer(&client), 200);
        CHECK_EQ(client.raw->body_size, size);
        CHECK(memcmp(client.raw->body, body, size) == 0);
    }
    free(body);
    tls_client_free(&client);
    end(tls);
}

TEST(a_paused_body_goes_on_though_no_descriptor_tells)
{
    http_tls *tls = start();
    struct tls_client client = tls_client_new(TLS1_3_VERSION);
    char body[20000] = {0};
    CHECK(tls_connect(&client));
    static const char head[] = "POST /stream/pause HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n";
    tls_send(&client, head, strlen(head));
    tls_send(&client, body, sizeof(body));
    UNTIL((http_resume(service.kept), service.last));
    CHECK_EQ(service.streamed, sizeof(body));
    CHECK_EQ(tls_answer(&client), 200);
    tls_client_free(&client);
    end(tls);
}

TEST(a_handshake_that_does_not_end_is_cut_off)
{
    http_tls *tls = start();
    struct client *silent = client_new();
    service_pass(0);
    client_say(silent, "\x16\x03\x01");
    for (int i = 0; i < 12; i++)
        service_pass(1000000000);
    UNTIL((client_receive(silent), silent->closed));
    client_free(silent);
    end(tls);
}

static bool is_certificate_of(const struct tls_client *client, const char *name)
{
    char found[100] = "";
    X509 *certificate = SSL_get1_peer_certificate(client->ssl);
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, found, sizeof(found));
    X509_free(certificate);
    return strcmp(found, name) == 0;
}

TEST(a_new_certificate_is_for_new_connections)
{
    http_tls *tls = start();
    struct tls_client old = tls_client_new(TLS1_3_VERSION);
    CHECK(tls_connect(&old));
    CHECK(is_certificate_of(&old, "first"));
    make_certificate("second");
    CHECK_EQ(http_tls_load(tls, certificate_file, key_file, message, sizeof(message)), 0);
    remove_certificate();
    struct tls_client new = tls_client_new(TLS1_3_VERSION);
    CHECK(tls_connect(&new));
    CHECK(is_certificate_of(&new, "second"));
    CHECK_EQ(tls_ask(&old, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    CHECK_EQ(tls_ask(&new, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    tls_client_free(&old);
    tls_client_free(&new);
    end(tls);
}

TEST(a_bad_certificate_is_refused_and_the_old_one_stays)
{
    http_tls *tls = start(), *none = NULL;
    CHECK_EQ(http_tls_load(tls, "/nonexistent", "/nonexistent", message, sizeof(message)), FL_INVALID_ARGUMENT);
    CHECK(strstr(message, "the certificate /nonexistent: "));
    make_certificate("other");
    char other_key[64], other[64];
    memcpy(other_key, key_file, sizeof(other_key));
    memcpy(other, certificate_file, sizeof(other));
    make_certificate("third");
    CHECK_EQ(http_tls_new(certificate_file, other_key, &none, message, sizeof(message)), FL_INVALID_ARGUMENT);
    CHECK(strstr(message, other_key));
    CHECK_EQ(http_tls_new(certificate_file, certificate_file, &none, message, sizeof(message)), FL_INVALID_ARGUMENT);
    CHECK(strstr(message, "the key "));
    CHECK(!none);
    remove_certificate();
    unlink(other);
    unlink(other_key);
    struct tls_client client = tls_client_new(TLS1_3_VERSION);
    CHECK(tls_connect(&client));
    CHECK(is_certificate_of(&client, "first"));
    tls_client_free(&client);
    end(tls);
}

TEST(the_end_is_said_and_a_client_that_goes_is_noticed)
{
    http_tls *tls = start();
    struct tls_client client = tls_client_new(TLS1_3_VERSION);
    CHECK(tls_connect(&client));
    CHECK_EQ(tls_ask(&client, "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), 200);
    UNTIL((tls_receive(&client), client.raw->closed));
    CHECK(SSL_get_shutdown(client.ssl) & SSL_RECEIVED_SHUTDOWN);
    tls_client_free(&client);
    client = tls_client_new(TLS1_3_VERSION);
    CHECK(tls_connect(&client));
    static const char request[] = "GET /events HTTP/1.1\r\nHost: x\r\n\r\n";
    tls_send(&client, request, strlen(request));
    UNTIL(service.kept);
    tls_client_free(&client);
    UNTIL(service.gone == 1);
    http_end(service.kept);
    end(tls);
}

static bool channel_keys(int version, unsigned char ours[HTTP_CHANNEL_KEY], unsigned char theirs[HTTP_CHANNEL_KEY])
{
    struct tls_client client = tls_client_new(version);
    CHECK(tls_connect(&client));
    static const char request[] = "GET /keep HTTP/1.1\r\nHost: x\r\n\r\n";
    service.kept = NULL;
    tls_send(&client, request, strlen(request));
    UNTIL(service.kept);
    CHECK_EQ(SSL_export_keying_material(client.ssl, theirs, HTTP_CHANNEL_KEY, HTTP_CHANNEL_LABEL,
                                        strlen(HTTP_CHANNEL_LABEL), NULL, 0, 0),
             1);
    bool is_there = http_channel_key(service.kept, ours);
    http_answer(service.kept, 204, NULL, NULL, (fl_bytes){0});
    CHECK_EQ(tls_answer(&client), 204);
    tls_client_free(&client);
    return is_there;
}

TEST(both_ends_of_a_connection_know_a_key_and_no_other_connection_has_it)
{
    unsigned char ours[2][HTTP_CHANNEL_KEY], theirs[2][HTTP_CHANNEL_KEY];
    http_tls *tls = start();
    for (int i = 0; i < 2; i++) {
        CHECK(channel_keys(TLS1_3_VERSION, ours[i], theirs[i]));
        CHECK(memcmp(ours[i], theirs[i], HTTP_CHANNEL_KEY) == 0);
    }
    CHECK(memcmp(ours[0], ours[1], HTTP_CHANNEL_KEY) != 0);
    CHECK(!channel_keys(TLS1_2_VERSION, ours[0], theirs[0]));
    end(tls);
}

TEST(a_connection_without_encryption_has_no_such_key)
{
    unsigned char key[HTTP_CHANNEL_KEY];
    service_start(NULL);
    struct client *plain = client_new();
    client_say(plain, "GET /poll HTTP/1.1\r\nHost: x\r\n\r\n");
    UNTIL(service.kept);
    CHECK(!http_channel_key(service.kept, key));
    client_free(plain);
    UNTIL(service.gone == 1);
    CHECK(!http_channel_key(service.kept, key));
    http_end(service.kept);
    service_end();
}

TEST(certificates_may_be_made_any_number_of_times)
{
    make_certificate("many");
    for (int i = 0; i < 300; i++) {
        http_tls *tls;
        CHECK_EQ(http_tls_new(certificate_file, key_file, &tls, message, sizeof(message)), 0);
        http_tls_free(tls);
    }
    remove_certificate();
}
