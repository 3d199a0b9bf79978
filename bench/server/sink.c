/* SPDX-License-Identifier: MIT */
/* Who is called back: see sink.h. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../engine/server.h"
#include "../frame.h"
#include "sink.h"

/* --- nginx -------------------------------------------------------------------------------------------------------- */

bool sink_is_here(void)
{
    return server_program("nginx") && server_program("wrk");
}

const char *sink_version(void)
{
    return server_version(server_program("nginx"), "-v");
}

static const char configuration[] =
    "daemon off;\nworker_processes auto;\npid nginx.pid;\nerror_log error.log;\n"
    "events { worker_connections 4096; }\n"
    "http {\n"
    "    access_log off;\n    keepalive_requests 1000000000;\n    keepalive_timeout 1h;\n"
    "    client_body_temp_path body;\n    proxy_temp_path proxy;\n    fastcgi_temp_path fastcgi;\n"
    "    uwsgi_temp_path uwsgi;\n    scgi_temp_path scgi;\n"
    "    server {\n        listen 127.0.0.1:%d;\n        location / { return 200; }\n"
    "        location = /status { stub_status; }\n    }\n}\n";

void sink_open(struct target *target)
{
    char path[256];
    target->port = load_free_port();
    snprintf(path, sizeof path, "%s/nginx.conf", target->folder);
    FILE *f = fopen(path, "w");
    if (!f || fprintf(f, configuration, target->port) < 0 || fclose(f) != 0)
        bench_die("%s: %s", path, strerror(errno));
    char *arguments[] = {(char *)server_program("nginx"), "-p", target->folder, "-c", path, "-e", "error.log", NULL};
    target->server = server_start(target->folder, arguments, NULL, SIGTERM);
    int fd;
    for (int i = 0; (fd = load_connect(target->port)) < 0; i++) {
        usleep(10000);
        if (i == 3000 || waitpid(target->server, NULL, WNOHANG) != 0)
            bench_die("nginx does not start: see %s/log", target->folder);
    }
    close(fd);
}

/* Its page says: connections accepted, handled, and requests, of which this one is one. */
double sink_requests(const struct target *target)
{
    static const char request[] = "GET /status HTTP/1.0\r\n\r\n";
    char page[2048];
    size_t size = 0;
    ssize_t n = 0;
    int fd = load_connect(target->port);
    if (fd < 0 || write(fd, request, sizeof request - 1) < 0)
        bench_die("nginx does not answer");
    while (size < sizeof page - 1 && (n = read(fd, page + size, sizeof page - 1 - size)) > 0)
        size += (size_t)n;
    close(fd);
    page[size] = '\0';
    char *at = strstr(page, "requests\n");
    if (!at)
        bench_die("nginx answers %s", page);
    strtoull(at + 9, &at, 10);
    strtoull(at, &at, 10);
    return strtod(at, NULL) - 1;
}

double sink_ceiling(const struct target *target, double seconds)
{
    char path[256], command[600], line[256], payload[PAYLOAD + 1];
    double rate = 0;
    snprintf(path, sizeof path, "%s/post.lua", target->folder);
    payload_text(0, payload);
    FILE *f = fopen(path, "w");
    if (!f || fprintf(f, "wrk.method = \"POST\"\nwrk.body = \"%s\"\n", payload) < 0 || fclose(f) != 0)
        bench_die("%s: %s", path, strerror(errno));
    snprintf(command, sizeof command, "'%s' -t2 -c100 -d%.0fs -s '%s' http://127.0.0.1:%d/", server_program("wrk"),
             seconds, path, target->port);
    FILE *answer = popen(command, "r"); /* NOLINT(cert-env33-c): a program that was found by its path */
    while (answer && fgets(line, sizeof line, answer)) {
        if (strstr(line, "Non-2xx") || strstr(line, "Socket errors"))
            bench_die("wrk says: %s", line);
        if (strncmp(line, "Requests/sec:", 13) == 0)
            rate = strtod(line + 13, NULL);
    }
    if (!answer || pclose(answer) != 0 || rate <= 0)
        bench_die("wrk does not work");
    return rate;
}

/* --- A receiver --------------------------------------------------------------------------------------------------- */

enum { MOST_CALLERS = 1024 };

struct caller {
    size_t size;
    char in[4096];
};

int receiver_listen(int *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        bench_die("no port");
    *ret_port = ntohs(address.sin_port);
    return fd;
}

/* The size of a whole call, or 0. */
static size_t call_size(const char *in, size_t size)
{
    const char *end = memmem(in, size, "\r\n\r\n", 4), *length = end ? strcasestr(in, "\ncontent-length:") : NULL;
    size_t all = end && length ? (size_t)(end + 4 - in) + strtoull(length + 16, NULL, 10) : 0;
    return all <= size ? all : 0;
}

static int64_t call_due_us(const char *in)
{
    struct tm tm = {0};
    const char *due = strcasestr(in, "\nfoliot-due:"), *rest;
    if (!due || !(rest = strptime(due + 12 + strspn(due + 12, " "), "%Y-%m-%dT%H:%M:%S", &tm)))
        bench_die("a call without its due time: %s", in);
    return (int64_t)timegm(&tm) * 1000000 + (int64_t)(*rest == '.' ? strtod(rest, NULL) * 1e6 + 0.5 : 0);
}

/* Reads; answers if that was all of a call, and says how late it came and what it has sent, which is valid until the next. */
static const char *answer_call(struct caller *caller, int fd, double *ret_late_ms)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    ssize_t n = recv(fd, caller->in + caller->size, sizeof caller->in - 1 - caller->size, MSG_DONTWAIT);
    int64_t now_us = wall_now_us();
    if (n < 0 && errno == EAGAIN)
        return NULL;
    if (n <= 0) {
        close(fd);
        caller->size = 0;
        return NULL;
    }
    caller->size += (size_t)n;
    caller->in[caller->size] = '\0';
    if (call_size(caller->in, caller->size) == 0)
        return NULL;
    (void)!send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL); /* a caller may be dead by now */
    *ret_late_ms = (double)(now_us - call_due_us(caller->in)) / 1000;
    caller->size = 0;
    return strstr(caller->in, "\r\n\r\n") + 4;
}

static void take_caller(int epoll, int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), yes = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (fd >= MOST_CALLERS)
        bench_die("too many callers");
    if (fd >= 0 && (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0 ||
                    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0))
        bench_die("epoll: %s", strerror(errno));
}

void receiver_run(int listener, bool (*called)(void *arg, const char *body, double late_ms), void *arg)
{
    struct caller *callers = calloc(MOST_CALLERS, sizeof *callers);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[64];
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!callers || epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) != 0)
        bench_die("no receiver");
    for (bool more = true; more;) {
        int n = epoll_wait(epoll, events, 64, 30000);
        if (n == 0)
            bench_die("not all calls have come");
        for (int i = 0; i < n && more; i++) {
            int fd = events[i].data.fd;
            double late_ms = 0;
            const char *body = fd == listener ? NULL : answer_call(&callers[fd], fd, &late_ms);
            if (fd == listener)
                take_caller(epoll, listener);
            if (body)
                more = called(arg, body, late_ms);
        }
    }
    for (int fd = 0; fd < MOST_CALLERS; fd++)
        if (fd != listener && fd != epoll && epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL) == 0)
            close(fd);
    close(epoll);
    free(callers);
}
