/* SPDX-License-Identifier: MIT */
/* Whatever bytes come over a link, from either side, before the proofs or after them, in whatever portions: nothing breaks, every
 * call is done once, and every request that is handed out can be answered. The first byte says which; the rest goes over a
 * connection. Frames are the same however they are cut up. */

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/internal.h"
#include "peer/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define RANDOM "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define UPGRADE "Connection: upgrade\r\nUpgrade: foliot-peer\r\n"
#define HELLO UPGRADE "Foliot-Peer-Version: 2\r\nFoliot-Peer-Random: " RANDOM "\r\n"

enum { PROVED = 1, LINK = 2, TIME = 8, STEPS = 4 };

static const fl_bytes secret = {"secret", 6};

static struct {
    fl_virtual_clock clock;
    fl_loop *loop;
    char taken[65536];
    size_t taken_size;
    struct peer_request *kept;
    int done;
} fuzz;

static void turn(int fd)
{
    int r = fl_loop_run_once(fuzz.loop, false);
    assert(r == 0);
    (void)r;
    ssize_t n = recv(fd, fuzz.taken + fuzz.taken_size, sizeof fuzz.taken - 1 - fuzz.taken_size, MSG_DONTWAIT);
    fuzz.taken_size += n > 0 ? (size_t)n : 0;
    fuzz.taken[fuzz.taken_size] = '\0';
}

static void say(int fd, const void *data, size_t size)
{
    send(fd, data, size, MSG_NOSIGNAL);
    for (int i = 0; i < 3; i++)
        turn(fd);
}

/* The other side's random number has come: proves to have the secret, too. */
static void prove(int fd, enum peer_role role)
{
    struct peer_pact pact = {.secret = secret};
    enum peer_role other = role == PEER_CALLER ? PEER_CALLED : PEER_CALLER;
    unsigned char proof[PEER_MAC];
    struct http_buffer frame = {0};
    const char *random = strstr(fuzz.taken, "Foliot-Peer-Random: ");
    if (!random || !peer_pact_hear(&pact, role, (fl_bytes){"2", 1}, (fl_bytes){RANDOM, 64}) ||
        !peer_pact_hear(&pact, other, (fl_bytes){"2", 1}, (fl_bytes){random + 20, 64}) ||
        !peer_prove(&pact, role, proof) || !peer_put(&frame, PEER_PROOF, 0, (fl_bytes){proof, sizeof proof}))
        abort();
    say(fd, frame.data, frame.end);
    http_buffer_free(&frame);
}

static void deliver(int fd, unsigned ways, const uint8_t *bytes, size_t size)
{
    size_t step = ways >> STEPS ? (size_t)(ways >> STEPS) * 3 : size;
    for (size_t at = 0; at < size; at += step) {
        size_t portion = step < size - at ? step : size - at;
        say(fd, bytes + at, portion);
    }
    for (int i = 0; ways & TIME && i < 10; i++) {
        fl_virtual_clock_move(&fuzz.clock, fuzz.clock.time_ns + PEER_TICK_NS);
        turn(fd);
    }
}

static void start(void)
{
    memset(&fuzz, 0, sizeof fuzz);
    fl_virtual_clock_init(&fuzz.clock, 1000000000);
    fl_loop_config config = {.clock = &fuzz.clock.clock};
    if (fl_loop_new(&config, &fuzz.loop) < 0)
        abort();
}

/* --- The side that is called -------------------------------------------------------------------------------------- */

static void on_gone(struct peer_request *request)
{
    assert(request == fuzz.kept);
    fuzz.kept = NULL;
    peer_answer(request, 0, (fl_bytes){0});
}

static void on_call(void *arg, struct peer_request *request)
{
    (void)arg;
    assert(request->kind >= PEER_CALL && strcmp(request->address, "a:1") == 0);
    if (request->kind % 2 == 0 && !fuzz.kept) {
        request->gone = on_gone;
        fuzz.kept = request;
        return;
    }
    peer_piece(request, request->body);
    peer_answer(request, 1, request->body);
}

static peer_sessions *sessions;

static void on_head(http_request *request)
{
    peer_accept(sessions, request);
}

static size_t write_problem(int status, const char *what, char *out, size_t size)
{
    return (size_t)snprintf(out, size, "%d %s", status, what);
}

static void fuzz_session(unsigned ways, const uint8_t *bytes, size_t size)
{
    static const struct http_handlers handlers = {.head = on_head, .problem = write_problem};
    static const char head[] = "POST /v1/peer HTTP/1.1\r\nHost: x\r\n" HELLO "Foliot-Peer-Address: a:1\r\n\r\n";
    struct peer_host host = {.secret = secret, .handle = on_call};
    struct sockaddr_in peer = {.sin_family = AF_INET};
    struct http_config config = {.handlers = &handlers};
    http_server *http;
    int pair[2];
    start();
    config.loop = fuzz.loop;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0 || http_server_new(&config, &http) < 0 ||
        peer_sessions_new(fuzz.loop, &host, &sessions) < 0)
        abort();
    http_connection_open(http, pair[0], (const struct sockaddr *)&peer, sizeof peer);
    say(pair[1], head, sizeof head - 1);
    if (ways & PROVED)
        prove(pair[1], PEER_CALLER);
    deliver(pair[1], ways, bytes, size);
    if (fuzz.kept && ways & TIME)
        on_gone(fuzz.kept);
    peer_sessions_free(sessions);
    assert(!fuzz.kept);
    http_server_free(http);
    fl_loop_free(fuzz.loop);
    close(pair[1]);
}

/* --- The side that calls ------------------------------------------------------------------------------------------ */

static void on_done(struct peer_call *call, int result, fl_bytes answer)
{
    (void)call;
    (void)result;
    fuzz.done++;
    for (size_t i = 0; i < answer.size; i++)
        fuzz.taken_size += ((const uint8_t *)answer.data)[i] & 0; /* it can be read */
}

static int listener(struct sockaddr_in *address)
{
    socklen_t size = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)address, size) < 0 || listen(fd, 10) < 0 ||
        getsockname(fd, (struct sockaddr *)address, &size) < 0)
        abort();
    return fd;
}

static int accept_link(int from)
{
    static const int on = 1;
    static const struct linger none = {1, 0}; /* so that ports are not used up */
    int fd = -1;
    for (int i = 0; i < 1000 && fd < 0; i++) {
        fl_loop_run_once(fuzz.loop, false);
        fd = accept4(from, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    }
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none) < 0)
        abort();
    return fd;
}

static void fuzz_link(unsigned ways, const uint8_t *bytes, size_t size)
{
    static const char head[] = "HTTP/1.1 101 OK\r\n" HELLO "\r\n";
    struct sockaddr_in at;
    char address[32];
    int from = listener(&at); /* a new one: a link that was lost may have come back to the old one */
    start();
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(at.sin_port));
    struct peer_link_config config = {.loop = fuzz.loop, .address = address, .self = "b:1", .secret = secret};
    struct peer_call calls[3] = {{.done = on_done}, {.done = on_done}, {.done = on_done}};
    peer_link *link;
    if (peer_link_new(&config, &link) < 0)
        abort();
    int fd = accept_link(from);
    for (int i = 0; i < 20; i++)
        turn(fd);
    if (ways & PROVED) {
        say(fd, head, sizeof head - 1);
        prove(fd, PEER_CALLED);
        for (int i = 0; i < 100 && !peer_link_up(link); i++)
            turn(fd);
        assert(peer_link_up(link));
    }
    for (int i = 0; i < 3; i++)
        peer_call(link, &calls[i], (uint8_t)(PEER_CALL + i), (fl_bytes){"hello", (size_t)i});
    deliver(fd, ways, bytes, size);
    assert(ways & PROVED || !peer_link_up(link));
    peer_link_free(link);
    assert(fuzz.done == 3);
    fl_loop_free(fuzz.loop);
    close(fd);
    close(from);
}

/* --- Frames alone ------------------------------------------------------------------------------------------------- */

/* What is read from portions of `step` bytes, as a number; `ret` says how it ended. */
static uint64_t digest(const uint8_t *bytes, size_t size, size_t step, int *ret)
{
    struct peer_reader reader = {.most = 1000};
    uint64_t sum = 0;
    *ret = 0;
    for (size_t at = 0; at < size && *ret >= 0; at += step) {
        struct peer_frame frame;
        fl_bytes input = {bytes + at, step < size - at ? step : size - at};
        while ((*ret = peer_read(&reader, &input, &frame)) > 0) {
            assert(frame.body.size <= 1000);
            sum = sum * 31 + frame.kind + frame.id * 7 + frame.body.size;
            for (size_t i = 0; i < frame.body.size; i++)
                sum = sum * 31 + ((const uint8_t *)frame.body.data)[i];
        }
        assert(*ret < 0 || input.size == 0);
    }
    peer_reader_free(&reader);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 2 || size > 4096)
        return 0;
    unsigned ways = bytes[0];
    int a, b;
    uint64_t whole = digest(bytes + 1, size - 1, size, &a), cut = digest(bytes + 1, size - 1, 1 + (ways >> STEPS), &b);
    assert(whole == cut && a == b);
    (void)whole;
    (void)cut;
    if (ways & LINK)
        fuzz_link(ways, bytes + 1, size - 1);
    else
        fuzz_session(ways, bytes + 1, size - 1);
    return 0;
}
