/* SPDX-License-Identifier: MIT */
/* A PostgreSQL server for one test program: see pg.h. */

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pg.h"
#include "test.h"

static char bin[200], folder[64];
static pid_t server, watcher;
static PGconn *talk;     /* for pg_sql() */
static int watched = -1; /* the end of a pipe that closes when this program ends */

/* --- Where it is -------------------------------------------------------------------------------------------------- */

static bool find_in(const char *pattern)
{
    glob_t found;
    bool there = glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0;
    if (there) {
        snprintf(bin, sizeof bin, "%s", found.gl_pathv[found.gl_pathc - 1]);
        *strrchr(bin, '/') = 0;
        globfree(&found);
    }
    return there;
}

static bool is_installed(void)
{
    return bin[0] || find_in("/usr/lib/postgresql/*/bin/initdb") || find_in("/usr/local/pgsql/bin/initdb") ||
           find_in("/usr/local/bin/initdb") || find_in("/usr/bin/initdb");
}

__attribute__((constructor)) static void skip_all_without(void)
{
    if (is_installed())
        return;
    puts("1..0 # SKIP PostgreSQL is not installed: apt-get install postgresql");
    exit(0);
}

static const struct passwd *server_user(void)
{
    if (getuid() != 0)
        return NULL;
    const struct passwd *user = getpwnam("postgres");
    if (!user)
        user = getpwnam("nobody");
    CHECK(user);
    return user;
}

/* --- Processes ---------------------------------------------------------------------------------------------------- */

static void become(const struct passwd *user)
{
    if (user && (setgroups(0, NULL) != 0 || setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0))
        _exit(126);
}

/* Starts a program of PostgreSQL, its output into a file in the folder. It finds its siblings by the path it was called
 * by, which is therefore its first argument. */
static pid_t spawn(const char *program, char *arguments[])
{
    char path[300], log[100];
    const struct passwd *user = server_user();
    snprintf(path, sizeof path, "%s/%s", bin, program);
    snprintf(log, sizeof log, "%s/%s.log", folder, program);
    fflush(stdout); /* or both have what is in it */
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0)
        return pid;
    become(user);
    setpgid(0, 0);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600), in = open("/dev/null", O_RDONLY);
    if (out < 0 || in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 || chdir(folder) != 0)
        _exit(126);
    close(watched);
    arguments[0] = path;
    execv(path, arguments);
    _exit(127);
}

static void remove_folder(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", folder, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

/* A signal for the server's processes: each is in a group of its own, but the first is the parent of all. */
static void signal_all(int signal)
{
    glob_t found;
    CHECK_EQ(glob("/proc/[0-9]*/stat", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        long pid, parent = 0;
        FILE *file = fopen(found.gl_pathv[i], "r");
        char line[300] = "", *after;
        if (!file)
            continue;
        if (fgets(line, sizeof line, file) && (after = strrchr(line, ')')))
            parent = strtol(after + 4, NULL, 10);
        fclose(file);
        pid = strtol(line, NULL, 10);
        if (parent == server && pid > 1)
            kill((pid_t)pid, signal);
    }
    globfree(&found);
}

/* The server writes its process into a file, which outlives this program. */
static void end_leftover(void)
{
    char path[100], line[32] = "";
    snprintf(path, sizeof path, "%s/data/postmaster.pid", folder);
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    long pid = fgets(line, sizeof line, file) ? strtol(line, NULL, 10) : 0;
    fclose(file);
    if (pid <= 1)
        return;
    server = (pid_t)pid;
    signal_all(SIGCONT);
    kill(server, SIGCONT);
    kill(server, SIGQUIT); /* it ends all the others at once */
    for (int i = 0; i < 500 && kill(server, 0) == 0; i++)
        usleep(10000);
}

static void watch_over(void)
{
    int ends[2];
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    fflush(stdout);
    watcher = fork();
    CHECK(watcher >= 0);
    if (watcher == 0) {
        char byte;
        setpgid(0, 0);
        close(ends[1]);
        while (read(ends[0], &byte, 1) != 0)
            ;
        end_leftover();
        remove_folder();
        _exit(0);
    }
    close(ends[0]);
    watched = ends[1];
}

static void finish(void)
{
    PQfinish(talk);
    close(watched);
    waitpid(watcher, NULL, 0);
}

/* --- The server --------------------------------------------------------------------------------------------------- */

/* A role for which a password is asked. */
static void ask_for_password(void)
{
    char path[100], rest[8192] = "";
    snprintf(path, sizeof path, "%s/data/pg_hba.conf", folder);
    FILE *file = fopen(path, "r+");
    CHECK(file);
    size_t size = fread(rest, 1, sizeof rest, file);
    CHECK(size < sizeof rest);
    rewind(file);
    fprintf(file, "local all locked scram-sha-256\n%.*s", (int)size, rest);
    CHECK_EQ(fclose(file), 0);
}

/* The folder with the log is gone when this program has ended. */
static void fail_with_log(const char *program)
{
    char path[100], text[2000] = "";
    snprintf(path, sizeof path, "%s/%s.log", folder, program);
    FILE *file = fopen(path, "r");
    size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    test_fail(__FILE__, __LINE__, "%s failed: %.*s", program, (int)size, text);
}

static void make(void)
{
    const struct passwd *user = server_user();
    const char *where = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/foliot-pg-XXXXXX", where ? where : "/tmp");
    CHECK(mkdtemp(folder));
    CHECK(!user || chown(folder, user->pw_uid, user->pw_gid) == 0);
    watch_over();
    atexit(finish);
    char data[100];
    snprintf(data, sizeof data, "%s/data", folder);
    char *arguments[] = {"initdb", "-D", data, "-U", "foliot", "-A", "trust", "-N", "-E", "UTF8", "--no-locale", NULL};
    int status = -1;
    pid_t pid = spawn("initdb", arguments);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (status != 0)
        fail_with_log("initdb");
    ask_for_password();
}

/* The URL of a server to use instead of one of our own, or NULL. */
static const char *given(void)
{
    return getenv("FL_TEST_POSTGRES");
}

static PGconn *connect_to_server(void)
{
    if (given())
        return PQconnectdb(given());
    char info[200];
    snprintf(info, sizeof info, "host=%s user=foliot dbname=postgres connect_timeout=10", folder);
    return PQconnectdb(info);
}

/* False: it has ended. */
static bool await_server(void)
{
    for (int i = 0; i < 3000; i++) {
        PGconn *conn = connect_to_server();
        bool there = PQstatus(conn) == CONNECTION_OK;
        PQfinish(conn);
        if (there)
            return true;
        if (waitpid(server, NULL, WNOHANG) != 0)
            return false;
        usleep(20000);
    }
    test_fail(__FILE__, __LINE__, "the server does not answer");
}

void pg_start(bool with_fsync)
{
    CHECK(server == 0);
    if (given())
        return;
    if (!folder[0])
        make();
    char data[100];
    snprintf(data, sizeof data, "%s/data", folder);
    char *arguments[] = {"postgres", "-D", data, "-k", folder, "-h", "", "-c", with_fsync ? "fsync=on" : "fsync=off",
                         "-c", "max_connections=50", "-c", with_fsync ? "shared_buffers=256MB" : "shared_buffers=64MB",
                         "-c", "max_wal_size=512MB",
                         /* a reboot of this server must not look like an attack on the next */
                         "-c", "restart_after_crash=off", NULL};
    /* After a kill, processes of the server before may hold its memory for a while yet: then it does not start. */
    for (int tries = 0; tries < 100; tries++) {
        server = spawn("postgres", arguments);
        if (await_server())
            return;
        usleep(200000);
    }
    test_fail(__FILE__, __LINE__, "the server does not start: see %s/postgres.log", folder);
}

static void await_end(void)
{
    PQfinish(talk);
    talk = NULL;
    CHECK_EQ(waitpid(server, NULL, 0), server);
    server = 0;
}

void pg_stop(void)
{
    CHECK(server > 0);
    CHECK_EQ(kill(server, SIGINT), 0);
    await_end();
}

void pg_kill(void)
{
    CHECK(server > 0);
    kill(server, SIGSTOP); /* it must not start another for each that ends */
    signal_all(SIGKILL);
    CHECK_EQ(kill(server, SIGKILL), 0);
    await_end();
}

void pg_freeze(bool frozen)
{
    CHECK(server > 0);
    if (frozen)
        kill(server, SIGSTOP);
    signal_all(frozen ? SIGSTOP : SIGCONT);
    if (!frozen)
        kill(server, SIGCONT);
}

/* --- Talking to it ------------------------------------------------------------------------------------------------ */

const char *pg_folder(void)
{
    return folder;
}

static PGresult *execute(const char *format, va_list arguments)
{
    char sql[8000];
    vsnprintf(sql, sizeof sql, format, arguments);
    if (!talk)
        talk = connect_to_server();
    PGresult *result = PQexec(talk, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, PQerrorMessage(talk));
    return result;
}

void pg_sql(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    PGresult *result = execute(format, arguments);
    va_end(arguments);
    PQclear(result);
}

long pg_number(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    PGresult *result = execute(format, arguments);
    va_end(arguments);
    CHECK(PQntuples(result) == 1 && PQnfields(result) == 1);
    long number = PQgetisnull(result, 0, 0) ? -1 : strtol(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return number;
}

const char *pg_url(const char *schema)
{
    static char url[300];
    pg_sql("SET client_min_messages = error; CREATE SCHEMA IF NOT EXISTS %s", schema);
    if (given())
        snprintf(url, sizeof url, "%s%coptions=-csearch_path%%3D%s", given(), strchr(given(), '?') ? '&' : '?', schema);
    else
        snprintf(url, sizeof url, "postgres://foliot@/postgres?host=%s&options=-csearch_path%%3D%s", folder, schema);
    return url;
}
