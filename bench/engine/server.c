/* SPDX-License-Identifier: MIT */
/* Servers of others: see server.h. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../frame.h"
#include "server.h"

/* --- Processes ---------------------------------------------------------------------------------------------------- */

static void become(const char *name, const char *folder)
{
    const struct passwd *user = getuid() == 0 && name ? getpwnam(name) : NULL;
    if (getuid() == 0 && name && !user)
        user = getpwnam("nobody");
    if (user && (chown(folder, user->pw_uid, user->pw_gid) != 0 || setgroups(0, NULL) != 0 ||
                 setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0))
        _exit(126);
}

pid_t server_start(const char *folder, char *const arguments[], const char *user, int end)
{
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        bench_die("no process for %s", arguments[0]);
    if (pid > 0)
        return pid;
    become(user, folder);
    prctl(PR_SET_PDEATHSIG, end);
    int log = chdir(folder) == 0 ? open("log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (log < 0 || nothing < 0 || dup2(nothing, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0 || getppid() != parent)
        _exit(126);
    execv(arguments[0], arguments);
    _exit(127);
}

void server_end(pid_t server, int signal)
{
    kill(server, signal);
    while (waitpid(server, NULL, 0) < 0 && errno == EINTR)
        ;
}

int server_connect(const char *path, pid_t server)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s", path) >= (int)sizeof address.sun_path)
        bench_die("%s is too long for a socket: set TMPDIR", path);
    for (int i = 0; i < 3000; i++) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return fd;
        close(fd);
        if (waitpid(server, NULL, WNOHANG) != 0)
            bench_die("the server for %s has ended: see the file log beside it", path);
        usleep(10000);
    }
    bench_die("nobody answers at %s", path);
}

static const char *first_of(const char *pattern)
{
    glob_t found;
    char *path = glob(pattern, 0, NULL, &found) == 0 ? strdup(found.gl_pathv[found.gl_pathc - 1]) : NULL;
    globfree(&found);
    return path;
}

const char *server_program(const char *name)
{
    static const char *const places[] = {"/usr/lib/postgresql/*/bin", "/usr/local/bin", "/usr/local/sbin", "/usr/bin",
                                         "/usr/sbin"};
    char pattern[128];
    const char *path = NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places && !path; i++) {
        snprintf(pattern, sizeof pattern, "%s/%s", places[i], name);
        path = first_of(pattern);
    }
    return path;
}

const char *server_version(const char *program, const char *option)
{
    static char versions[8][64];
    static unsigned used;
    char command[300], line[200] = "";
    snprintf(command, sizeof command, "'%s' %s 2>&1", program, option);
    FILE *answer = popen(command, "r"); /* NOLINT(cert-env33-c): a program that was found by its path */
    if (answer && !fgets(line, sizeof line, answer))
        line[0] = '\0';
    if (answer)
        pclose(answer);
    char *number = line + strcspn(line, "0123456789"), *kept = versions[used++ % 8];
    snprintf(kept, sizeof versions[0], "%.*s", (int)strspn(number, "0123456789."), number);
    return kept;
}

/* --- What they use ------------------------------------------------------------------------------------------------ */

static uint64_t ticks_ns(unsigned long ticks)
{
    return ticks * (1000000000ull / (unsigned long)sysconf(_SC_CLK_TCK));
}

/* The parent of a process and the processor time of its children that have ended, by the line that the system has of it. */
static bool read_stat(const char *path, pid_t *ret_parent, uint64_t *ret_ended_ns)
{
    char line[512] = "", *rest, *end;
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    bool read = fgets(line, sizeof line, f) && (rest = strrchr(line, ')'));
    fclose(f);
    if (!read)
        return false;
    *ret_parent = (pid_t)strtol(rest + 4, &end, 10);
    for (int field = 5; field < 16; field++)
        end += strspn(end, " ") + strcspn(end + strspn(end, " "), " ");
    unsigned long user = strtoul(end, &end, 10), system = strtoul(end, &end, 10);
    *ret_ended_ns = ticks_ns(user + system);
    return true;
}

/* To the nanosecond, which the line is not. */
static uint64_t process_cpu_ns(pid_t process)
{
    clockid_t clock;
    struct timespec t = {0};
    if (clock_getcpuclockid(process, &clock) == 0)
        clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t server_cpu_ns(pid_t server)
{
    glob_t found;
    uint64_t sum = 0, ended_ns;
    pid_t parent;
    if (glob("/proc/[0-9]*/stat", 0, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        pid_t process = (pid_t)strtol(found.gl_pathv[i] + 6, NULL, 10);
        if (read_stat(found.gl_pathv[i], &parent, &ended_ns) && (parent == server || process == server))
            sum += ended_ns + process_cpu_ns(process);
    }
    globfree(&found);
    return sum;
}

double server_memory_bytes(pid_t server)
{
    char path[64], line[128];
    double kilobytes = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)server);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "RssAnon:", 8) == 0)
            kilobytes = strtod(line + 8, NULL);
    if (f)
        fclose(f);
    return kilobytes * 1024;
}

uint64_t own_cpu_ns(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

/* --- Folders ------------------------------------------------------------------------------------------------------ */

void folder_make(char *folder, size_t size)
{
    const char *parent = getenv("TMPDIR");
    snprintf(folder, size, "%s/foliot-bench-XXXXXX", parent ? parent : "/var/tmp");
    if (!mkdtemp(folder))
        bench_die("no folder %s", folder);
}

static double counted_bytes;

static int count_file(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)path, (void)where;
    if (type == FTW_F)
        counted_bytes += (double)status->st_blocks * 512;
    return 0;
}

double folder_bytes(const char *folder)
{
    counted_bytes = 0;
    nftw(folder, count_file, 16, FTW_PHYS);
    return counted_bytes;
}

static int remove_file(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status, (void)type, (void)where;
    return remove(path);
}

void folder_remove(const char *folder)
{
    nftw(folder, remove_file, 16, FTW_PHYS | FTW_DEPTH);
}

/* --- Streams ------------------------------------------------------------------------------------------------------ */

static void stream_read(struct stream *s)
{
    if (s->begin > 0) {
        memmove(s->in, s->in + s->begin, s->end - s->begin);
        s->end -= s->begin;
        s->begin = 0;
    }
    if (s->end == sizeof s->in)
        bench_die("a server answers more than it was asked for");
    ssize_t n = read(s->fd, s->in + s->end, sizeof s->in - s->end);
    if (n <= 0)
        bench_die("a server has hung up");
    s->end += (size_t)n;
}

/* A server that cannot get rid of its answers reads no more questions: they are read meanwhile. */
void stream_flush(struct stream *s)
{
    for (size_t at = 0; at < s->used;) {
        ssize_t n = send(s->fd, s->out + at, s->used - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            at += (size_t)n;
            continue;
        }
        if (n == 0 || errno != EAGAIN)
            bench_die("a server has hung up");
        struct pollfd fd = {s->fd, POLLIN | POLLOUT, 0};
        poll(&fd, 1, -1);
        if (fd.revents & POLLIN)
            stream_read(s);
    }
    s->used = 0;
}

void stream_put(struct stream *s, const void *data, size_t size)
{
    if (sizeof s->out - s->used < size)
        stream_flush(s);
    memcpy(s->out + s->used, data, size);
    s->used += size;
}

void stream_printf(struct stream *s, const char *format, ...)
{
    char words[512];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    stream_put(s, words, (size_t)n);
}

char *stream_line(struct stream *s)
{
    char *end;
    while (!(end = memchr(s->in + s->begin, '\n', s->end - s->begin)))
        stream_read(s);
    char *line = s->in + s->begin;
    s->begin = (size_t)(end + 1 - s->in);
    end[end > line && end[-1] == '\r' ? -1 : 0] = '\0';
    return line;
}

void stream_skip(struct stream *s, size_t size)
{
    while (s->end - s->begin < size)
        stream_read(s);
    s->begin += size;
}
