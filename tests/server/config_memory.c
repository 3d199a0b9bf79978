/* SPDX-License-Identifier: MIT */
/* The configuration when there is no memory: each of its allocations fails once. The linker leads the calls here (--wrap). */

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/config.h"
#include "test.h"

static int left = -1; /* allocations until one fails; -1: none does */

static bool fails(void)
{
    return left >= 0 && left-- == 0;
}

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the linker's names */
void *__real_realloc(void *memory, size_t size);
void *__real_calloc(size_t count, size_t size);
char *__real_strdup(const char *text);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_calloc(size_t count, size_t size);
char *__wrap_strdup(const char *text);
int __wrap_asprintf(char **ret, const char *format, ...) __attribute__((format(printf, 2, 3)));

void *__wrap_realloc(void *memory, size_t size)
{
    return fails() ? NULL : __real_realloc(memory, size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

int __wrap_asprintf(char **ret, const char *format, ...)
{
    va_list arguments;
    if (fails())
        return -1;
    va_start(arguments, format);
    int result = vasprintf(ret, format, arguments);
    va_end(arguments);
    return result;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

static char path[] = "/tmp/foliot-config-XXXXXX";
static char *arguments[] = {"--config",        path, "--listen", "127.0.0.1:1", "--listen=127.0.0.1:2", "--owner=me",
                            "--store=memory:", NULL};
enum { COUNT = sizeof arguments / sizeof arguments[0] - 1 };

static void write_file(void)
{
    static const char text[] =
        "listen = 127.0.0.1:3, [::1]:4\nlisten = 127.0.0.1:5\n"
        "[token a]\nsha256 = 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\nnamespaces = x, y\n"
        "rights = read, write\n[token b]\n"
        "sha256 = 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae\nnamespaces = *\nrights = admin\n";
    int file = mkstemp(path);
    CHECK(file >= 0 && write(file, text, sizeof text - 1) == sizeof text - 1 && close(file) == 0);
}

/* It is refused with a message, and nothing is left behind (which the sanitizer sees); then nothing fails any more. */
TEST(every_allocation_fails_once)
{
    static char said[65536];
    bool failed = true;
    int most = 0;
    write_file();
    for (; failed; most++) {
        struct server_config config, again;
        said[0] = '\0';
        FILE *errors = fmemopen(said, sizeof said, "w");
        CHECK(errors != NULL);
        left = most;
        int result = config_read(&config, COUNT, arguments, NULL, errors);
        if (result == 0) {
            CHECK_EQ(config.tokens.count, 2);
            CHECK_EQ(config.address_count, 2);
            if (config_reload(&config, &again, errors) == 0)
                config_free(&again);
            config_free(&config);
        }
        failed = left < 0;
        left = -1;
        fclose(errors);
        CHECK(failed == (strstr(said, "out of memory") != NULL));
    }
    CHECK(most > 40);
    unlink(path);
}
