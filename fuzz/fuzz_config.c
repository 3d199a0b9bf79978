/* SPDX-License-Identifier: MIT */
/* Options and files that the fuzzer makes up: lines of arguments, then, behind a form feed, the file.
 *
 * What is refused is refused with a message. What is taken can be printed, the printed file is taken again (but for what
 * cannot be in a file: masked passwords, long lines, blanks with a semicolon) with the same numbers, and reading everything a
 * second time has nothing to say. */

#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/config.h"
#include "server/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* In place of the C library's: names are not looked up in the network. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *req, struct addrinfo **pai)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    struct addrinfo numeric = *req;
    numeric.ai_flags = (numeric.ai_flags & ~AI_ADDRCONFIG) | AI_NUMERICHOST;
    return real(name, service, &numeric, pai);
}

static void check(bool good)
{
    if (!good)
        abort();
}

/* A file of these bytes. */
static int file_of(const void *bytes, size_t size, char path[64])
{
    int file = memfd_create("fuzz", 0);
    check(file >= 0 && write(file, bytes, size) == (ssize_t)size);
    snprintf(path, 64, "--config=/proc/self/fd/%d", file);
    return file;
}

static void read_printed(const struct server_config *config)
{
    char *text = NULL, path[64], *said = NULL;
    size_t size = 0, said_size = 0;
    FILE *to = open_memstream(&text, &size), *errors = open_memstream(&said, &said_size);
    config_print(config, to);
    fclose(to);
    int file = file_of(text, size, path);
    struct server_config again;
    if (config_read(&again, 1, (char *[]){path, NULL}, NULL, errors) == 0) {
        for (size_t i = 0; i < setting_count; i++)
            check(settings[i].size == sizeof(char *) || setting_equal(config, &again, &settings[i]));
        config_free(&again);
    }
    fclose(errors);
    free(said);
    free(text);
    close(file);
}

static void read_again(const struct server_config *config)
{
    struct server_config again;
    char *said = NULL;
    size_t size = 0;
    FILE *errors = open_memstream(&said, &size);
    check(config_reload(config, &again, errors) == 0);
    config_free(&again);
    fclose(errors);
    check(size == 0);
    free(said);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    enum { ARGUMENTS = 32 };
    const uint8_t *feed = memchr(bytes, '\f', size);
    size_t arguments_size = feed ? (size_t)(feed - bytes) : 0;
    char *text = strndup((const char *)bytes, arguments_size), *rest = text, *argv[ARGUMENTS + 2], path[64];
    int argc = 0;
    check(text != NULL);
    for (char *one; argc < ARGUMENTS && arguments_size > 0 && (one = strsep(&rest, "\n")) != NULL;)
        argv[argc++] = one;
    const uint8_t *begin = feed ? feed + 1 : bytes;
    int file = file_of(begin, size - (size_t)(begin - bytes), path);
    argv[argc++] = path; /* the last one counts: no other file is read */
    argv[argc] = NULL;
    char *said = NULL;
    size_t said_size = 0;
    FILE *errors = open_memstream(&said, &said_size);
    struct server_config config;
    int result = config_read(&config, argc, argv, NULL, errors);
    fclose(errors);
    check((result == 0) == (said_size == 0));
    if (result == 0 && !config.help) {
        read_printed(&config);
        read_again(&config);
    }
    if (result == 0)
        config_free(&config);
    free(said);
    free(text);
    close(file);
    return 0;
}
