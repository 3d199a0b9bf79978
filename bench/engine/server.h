/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_ENGINE_SERVER_H
#define FOLIOT_BENCH_ENGINE_SERVER_H

/* Servers of others: starting them in a folder, what they use, ending them. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Starts a program with its output in `folder`/log. Where it refuses to run as root, `user` says as whom. It gets `end`
 * when this process ends before it. */
pid_t server_start(const char *folder, char *const arguments[], const char *user, int end);

/* Sends the signal and waits. */
void server_end(pid_t server, int signal);

/* Connects to a socket in the file system, as soon as there is one. */
int server_connect(const char *path, pid_t server);

/* The program by this name: in the path or where Debian hides it. NULL: it is not installed. */
const char *server_program(const char *name);
/* The first line that the program prints when it is asked for its version, without its name. */
const char *server_version(const char *program, const char *option);

/* Of the process and its children, those included that have ended. */
uint64_t server_cpu_ns(pid_t server);
double server_memory_bytes(pid_t server); /* anonymous */

uint64_t own_cpu_ns(void);
/* A new one on the disk: in TMPDIR, or where it is not lost in memory. */
void folder_make(char *folder, size_t size);
double folder_bytes(const char *folder);
void folder_remove(const char *folder);

/* A stream of bytes to a server and back. Both ends give up by ending the program. */
struct stream {
    int fd;
    size_t begin, end, used; /* read and not consumed; to be written */
    char in[1 << 18], out[1 << 18];
};
void stream_flush(struct stream *s);
void stream_put(struct stream *s, const void *data, size_t size);
void stream_printf(struct stream *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *stream_line(struct stream *s); /* without its end; valid until the next call */
void stream_skip(struct stream *s, size_t size);

#endif
