/* SPDX-License-Identifier: MIT */
/* Lines of the log, as they come out of standard error: through a pipe, or a terminal's. */

#include "text/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text/json.h"
#include "test.h"

static int kept, end; /* standard error as it was; what is read */

static void catch_pipe(void)
{
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    kept = dup(STDERR_FILENO);
    end = ends[0];
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
}

/* Until the other end is closed, or, of a terminal, as much as is there. */
static char *caught(void)
{
    static char text[1 << 20];
    size_t used = 0;
    dup2(kept, STDERR_FILENO);
    close(kept);
    for (ssize_t size; used < sizeof text - 1 && (size = read(end, text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)size;
    text[used] = '\0';
    close(end);
    return text;
}

/* What follows the time, which has to be one. */
static const char *after_time(const char *text, const char *before)
{
    static const char form[] = "dddd-dd-ddTdd:dd:dd.dddZ";
    CHECK(strncmp(text, before, strlen(before)) == 0);
    text += strlen(before);
    for (size_t i = 0; i < sizeof form - 1; i++)
        CHECK(form[i] == 'd' ? text[i] >= '0' && text[i] <= '9' : text[i] == form[i]);
    return text + sizeof form - 1;
}

static void is_text(const char *actual, const char *expected)
{
    if (strcmp(actual, expected) != 0)
        test_fail(__FILE__, __LINE__, "'%s' instead of '%s'", actual, expected);
}

TEST(logfmt)
{
    log_set(LOG_INFO, LOG_LOGFMT);
    catch_pipe();
    log_info("shard claimed", "shard", log_int(3), "owner", "a:1", "low", log_int(INT64_MIN), NULL);
    is_text(after_time(caught(), "time="),
            " level=info msg=\"shard claimed\" shard=3 owner=a:1 low=-9223372036854775808\n");
    catch_pipe();
    log_error("broken", NULL);
    is_text(after_time(caught(), "time="), " level=error msg=broken\n");
}

TEST(logfmt_quotes_what_needs_it)
{
    log_set(LOG_INFO, LOG_LOGFMT);
    catch_pipe();
    log_warning("", "a", "", "b", "x y", "c", "k=v", "d", "\"", "e", "\\", "f", "l\nl\r\t", "g", "\033[31m\x7f", "h",
                "ä…", "i", "\xff", "j", "\xc2\x9b", "bad key=", "v", NULL);
    is_text(after_time(caught(), "time="),
            " level=warning msg=\"\" a=\"\" b=\"x y\" c=\"k=v\" d=\"\\\"\" e=\"\\\\\" f=\"l\\nl\\r\\t\""
            " g=\"\\u001b[31m\\u007f\" h=ä… i=\"\\ufffd\" j=\"\\u009b\" bad_key_=v\n");
}

TEST(json)
{
    log_set(LOG_INFO, LOG_JSON);
    catch_pipe();
    log_info("a \"b\"", "key", "x y", "n", log_int(-1), "odd\"key", "\n\x01", NULL);
    is_text(
        after_time(caught(), "{\"time\":\""),
        "\",\"level\":\"info\",\"msg\":\"a \\\"b\\\"\",\"key\":\"x y\",\"n\":\"-1\",\"odd\\\"key\":\"\\n\\u0001\"}\n");
}

/* Whatever the bytes are, the line is JSON, and one line. */
TEST(json_of_any_bytes)
{
    uint64_t state = 7;
    log_set(LOG_INFO, LOG_JSON);
    for (int i = 0; i < 3000; i++) {
        char value[40];
        size_t size = 0;
        for (; size < sizeof value - 1; size++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            unsigned r = (unsigned)(state >> 33);
            value[size] = (char)(r % 3 == 0 ? 0x80 + r / 3 % 128 : r % 3 == 1 ? 0xe0 + r / 3 % 32 : 1 + r / 3 % 255);
        }
        value[size] = '\0';
        catch_pipe();
        log_info(value, value, value, NULL);
        char *text = caught();
        struct json json;
        size_t at;
        const char *problem;
        CHECK_EQ(json_parse((fl_bytes){text, strlen(text)}, &json, &at, &problem), 0);
        CHECK(strchr(text, '\n') == text + strlen(text) - 1);
    }
}

static void check_cut(enum log_format format, const char *long_text, const char *message)
{
    log_set(LOG_INFO, format);
    catch_pipe();
    log_info(message, "short", "s", "long", long_text, "lost", "l", NULL);
    char *text = caught();
    CHECK(strlen(text) <= LOG_LINE);
    CHECK(strstr(text, "…") != NULL);
    CHECK(text[strlen(text) - 1] == '\n');
    CHECK(strstr(text, "lost") == NULL);
    struct json json;
    size_t at;
    const char *problem;
    if (format == LOG_JSON)
        CHECK_EQ(json_parse((fl_bytes){text, strlen(text)}, &json, &at, &problem), 0);
}

TEST(a_line_that_is_too_long_is_cut_and_still_a_line)
{
    static char text[3 * LOG_LINE];
    static const char *const fillings[] = {"x", "\n", "ä", "\xff", "€"};
    for (size_t i = 0; i < sizeof fillings / sizeof fillings[0]; i++) {
        size_t size = strlen(fillings[i]);
        for (size_t used = 0; used + size < sizeof text; used += size)
            memcpy(text + used, fillings[i], size + 1);
        for (enum log_format format = LOG_AUTO; format <= LOG_LOGFMT; format++) {
            check_cut(format, text, "message");
            check_cut(format, "short", text);
        }
    }
}

/* Every length near the limit: the line ends well wherever it is cut. */
TEST(cut_at_every_place)
{
    static char text[LOG_LINE + 100], key[200];
    memset(key, 'k', sizeof key - 1);
    for (enum log_format format = LOG_JSON; format <= LOG_LOGFMT; format++)
        for (size_t size = LOG_LINE - 300; size < LOG_LINE; size++) {
            memset(text, 'x', size);
            text[size] = '\0';
            log_set(LOG_INFO, format);
            catch_pipe();
            log_info("m", "a", text, "b", "x y", key, "c", NULL);
            char *line = caught();
            struct json json;
            size_t at;
            const char *problem;
            CHECK(strlen(line) <= LOG_LINE && line[strlen(line) - 1] == '\n');
            if (format == LOG_JSON)
                CHECK_EQ(json_parse((fl_bytes){line, strlen(line)}, &json, &at, &problem), 0);
        }
}

TEST(levels)
{
    log_set(LOG_WARNING, LOG_LOGFMT);
    CHECK_EQ(log_level_now(), LOG_WARNING);
    catch_pipe();
    log_info("no", NULL);
    log_debug("no", NULL);
    log_warning("yes", NULL);
    log_set(LOG_DEBUG, LOG_LOGFMT);
    log_debug("also", NULL);
    const char *text = after_time(caught(), "time=");
    CHECK(strstr(text, " level=warning msg=yes\n") == text);
    is_text(after_time(strchr(text, '\n') + 1, "time="), " level=debug msg=also\n");
}

TEST(a_value_that_is_missing_ends_the_line)
{
    log_set(LOG_INFO, LOG_LOGFMT);
    catch_pipe();
    log_info("m", "a", "1", "b", (char *)NULL, "c", "3", NULL);
    is_text(after_time(caught(), "time="), " level=info msg=m a=1 b=\"\"\n");
}

TEST(errno_is_left_alone)
{
    log_set(LOG_INFO, LOG_LOGFMT);
    kept = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = EPERM;
    log_info("nobody reads it", NULL);
    int error = errno;
    dup2(kept, STDERR_FILENO);
    close(kept);
    CHECK_EQ(error, EPERM);
}

/* What a terminal shows. */
static char *on_terminal(const char *no_colour)
{
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int other = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    CHECK(other >= 0);
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", no_colour, 1);
    kept = dup(STDERR_FILENO);
    dup2(other, STDERR_FILENO);
    close(other);
    log_info("shard claimed", "shard", log_int(3), "owner", "a b", NULL);
    end = terminal;
    return caught();
}

TEST(short_and_coloured_on_a_terminal)
{
    log_set(LOG_INFO, LOG_AUTO);
    is_text(on_terminal("1") + strlen("12:34:56.789"), " info    shard claimed shard=3 owner=\"a b\"\r\n");
    char *text = on_terminal("");
    CHECK(strncmp(text, "\033[2m", 4) == 0);
    is_text(text + strlen("\033[2m12:34:56.789"), " \033[0m\033[32minfo    \033[0mshard claimed \033[2mshard=\033[0m3"
                                                  " \033[2mowner=\033[0m\"a b\"\r\n");
    log_set(LOG_INFO, LOG_LOGFMT);
    after_time(on_terminal(""), "time=");
}

enum { THREADS = 4, LINES = 500 };

static void *write_lines(void *arg)
{
    char value[200];
    memset(value, *(char *)arg, sizeof value - 1);
    value[sizeof value - 1] = '\0';
    for (int i = 0; i < LINES; i++) {
        log_set(LOG_INFO, LOG_LOGFMT);
        log_info("line", "value", value, NULL);
    }
    return NULL;
}

/* Lines of several threads do not run into each other, while the level is set again and again. */
TEST(whole_lines_from_many_threads)
{
    static char names[] = "abcd";
    char path[] = "/tmp/foliot-log-XXXXXX";
    pthread_t writers[THREADS];
    kept = dup(STDERR_FILENO);
    end = mkstemp(path);
    int file = open(path, O_WRONLY | O_APPEND);
    CHECK(end >= 0 && file >= 0 && unlink(path) == 0);
    dup2(file, STDERR_FILENO);
    close(file);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&writers[i], NULL, write_lines, &names[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(writers[i], NULL);
    const char *text = caught();
    int count = 0;
    for (; *text; text = strchr(text, '\n') + 1, count++) {
        text = after_time(text, "time=");
        text += strlen(" level=info msg=line value=");
        CHECK(strspn(text, (char[]){*text, '\0'}) == 199);
    }
    CHECK_EQ(count, THREADS * LINES);
}
