/* SPDX-License-Identifier: MIT */
/* The configuration: where it comes from, what is refused and how, and what is printed. The table of settings, the manual
 * page, the documentation and the example file must say the same. */

#include "server/config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/settings.h"
#include "test.h"

#define HASH_A "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" /* of "test" */
#define HASH_B "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae" /* of "foo" */
#define TOKEN_A "[token a]\nsha256 = " HASH_A "\nnamespaces = *\nrights = read\n"

/* --- Reading ----------------------------------------------------------------------------------------------------- */

static char said[65536]; /* what the last reading has complained about */
static char *environment[16] = {NULL};
static char path[] = "/tmp/foliot-config-XXXXXX";

/* Ended by NULL. */
static int read_with(struct server_config *config, const char *first, ...)
{
    static char *argv[32]; /* config_reload() needs them still */
    int argc = 0;
    va_list arguments;
    va_start(arguments, first);
    for (const char *argument = first; argument; argument = va_arg(arguments, const char *))
        argv[argc++] = (char *)argument;
    argv[argc] = NULL;
    va_end(arguments);
    said[0] = '\0';
    FILE *errors = fmemopen(said, sizeof said, "w");
    CHECK(errors != NULL);
    int result = config_read(config, argc, argv, environment, errors);
    fclose(errors);
    return result;
}

static void must_read(int result)
{
    if (result != 0)
        test_fail(__FILE__, __LINE__, "refused: %s", said);
    if (*said)
        test_fail(__FILE__, __LINE__, "taken, but: %s", said);
}

#define MUST_READ(config, ...) must_read(read_with(config, __VA_ARGS__, NULL))

static void must_say(int result, const char *text)
{
    if (result != -1)
        test_fail(__FILE__, __LINE__, "taken instead of '%s'", text);
    if (!strstr(said, text))
        test_fail(__FILE__, __LINE__, "'%s' is not in: %s", text, said);
}

#define REFUSED(text, ...)                                      \
    do {                                                        \
        struct server_config config_;                           \
        must_say(read_with(&config_, __VA_ARGS__, NULL), text); \
    } while (0)

static size_t lines_said(void)
{
    size_t count = 0;
    for (const char *at = said; (at = strchr(at, '\n')) != NULL; at++)
        count++;
    return count;
}

static void write_file(const char *text, size_t size)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fwrite(text, 1, size, file) == size && fclose(file) == 0);
}

/* Writes the file and reads it. */
static int read_file_of(struct server_config *config, const char *text)
{
    static char option[64];
    write_file(text, strlen(text));
    snprintf(option, sizeof option, "--config=%s", path);
    return read_with(config, option, NULL);
}

static void refused_file(const char *text, const char *message)
{
    struct server_config config;
    must_say(read_file_of(&config, text), message);
}

static char *printed(const struct server_config *config)
{
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    config_print(config, to);
    fclose(to);
    return text;
}

__attribute__((constructor)) static void make_path(void)
{
    int file = mkstemp(path);
    if (file >= 0)
        close(file);
}

__attribute__((destructor)) static void remove_path(void)
{
    unlink(path);
}

/* --- Where values come from -------------------------------------------------------------------------------------- */

TEST(defaults)
{
    struct server_config c;
    must_read(read_with(&c, NULL));
    CHECK(strcmp(c.listen, "127.0.0.1:7411") == 0);
    CHECK(strcmp(c.store, "sqlite:foliot-data") == 0);
    CHECK_EQ(c.address_count, 1);
    CHECK_EQ(ntohs(c.addresses[0].address.v4.sin_port), 7411);
    CHECK(c.loopback_only && c.echo && !c.test_clock && !c.allow_private_targets && !c.check && !c.help);
    CHECK(!c.owner && !c.tls_certificate && !c.tls_key && !c.file && c.tokens.count == 0);
    CHECK(c.shards == 0 && c.workers == 0);
    CHECK_EQ(c.log_level, LOG_INFO);
    CHECK_EQ(c.log_format, LOG_AUTO);
    CHECK_EQ(c.max_body, 1 << 20);
    CHECK_EQ(c.max_payload, 256 << 10);
    CHECK_EQ(c.engine.max_payload, (256 + 64) << 10);
    CHECK_EQ(c.engine.claim_us, 3000000);
    CHECK_EQ(c.engine.retry.multiplier_1000, 2000);
    CHECK_EQ(c.engine.retry.max_attempts, 10);
    CHECK_EQ(c.engine.retry.max_age_us, 0);
    CHECK_EQ(c.idle_timeout_us, 75000000);
    CHECK_EQ(c.webhook_per_host, 100);
    config_free(&c);
}

TEST(timers_in_memory_are_limited_by_the_memory)
{
    struct server_config c;
    MUST_READ(&c, "--max-memory", "64MiB");
    CHECK_EQ(c.engine.max_memory_timers, 100000);
    config_free(&c);
    MUST_READ(&c, "--max-memory", "4GiB");
    CHECK_EQ(c.engine.max_memory_timers, 2 << 20);
    config_free(&c);
    MUST_READ(&c, "--max-memory", "4GiB", "--max-memory-timers", "99");
    CHECK_EQ(c.engine.max_memory_timers, 99);
    config_free(&c);
}

TEST(an_option_in_both_forms)
{
    struct server_config c;
    MUST_READ(&c, "--max-body", "2MiB", "--shards=16", "--echo=no", "--test-clock", "--log-format", "json");
    CHECK_EQ(c.max_body, 2 << 20);
    CHECK_EQ(c.shards, 16);
    CHECK(!c.echo && c.test_clock);
    CHECK_EQ(c.log_format, LOG_JSON);
    config_free(&c);
    MUST_READ(&c, "--shards", "2", "--shards", "3", "--no-echo", "--check");
    CHECK_EQ(c.shards, 3); /* the last one counts */
    CHECK(!c.echo && c.check);
    config_free(&c);
}

TEST(help_looks_at_nothing_else)
{
    struct server_config c;
    MUST_READ(&c, "--shards", "0", "--help");
    CHECK(c.help);
    config_free(&c);
    MUST_READ(&c, "-h");
    CHECK(c.help);
    config_free(&c);
}

TEST(precedence)
{
    struct server_config c;
    char file[64], variable[64];
    write_file("shards = 1\nworkers = 1\n[limits]\nmax-url = 1KiB\n", 47);
    snprintf(file, sizeof file, "%s", path);
    snprintf(variable, sizeof variable, "FOLIOT_CONFIG=%s", path);
    environment[0] = "FOLIOT_SHARDS=2", environment[1] = "FOLIOT_WORKERS=2";
    MUST_READ(&c, "--config", file, "--shards", "3");
    CHECK_EQ(c.shards, 3);
    CHECK_EQ(c.workers, 2);
    CHECK_EQ(c.max_url, 1024);
    config_free(&c);
    environment[2] = variable;
    must_read(read_with(&c, NULL));
    CHECK_EQ(c.shards, 2);
    CHECK_EQ(c.max_url, 1024);
    char *text = printed(&c);
    CHECK(strstr(text, "shards = 2                                   ; environment\n") != NULL);
    CHECK(strstr(text, "max-url = 1KiB                               ; file /tmp/foliot-config-") != NULL);
    CHECK(strstr(text, ", line 4\n") != NULL);
    CHECK(strstr(text, "max-head = 16KiB                             ; default\n") != NULL);
    free(text);
    config_free(&c);
    memset(environment, 0, sizeof environment);
}

TEST(the_environment)
{
    struct server_config c;
    environment[0] = "FOLIOT_MAX_BODY=3MiB", environment[1] = "FOLIOT_OWNER=", environment[2] = "PATH=/bin";
    environment[3] = "FOLIOT_SERVICE_HOST=10.0.0.1", environment[4] = "FOLIOT_PORT=tcp://10.0.0.1:7411";
    environment[5] = "FOLIOT_TEST_CLOCK=on", environment[6] = "FOLIOT_",
    environment[7] = "FOLIOT_PORT_7411_TCP_PROTO=tcp";
    must_read(read_with(&c, NULL));
    CHECK_EQ(c.max_body, 3 << 20);
    CHECK(c.owner == NULL && c.test_clock);
    config_free(&c);
    memset(environment, 0, sizeof environment);
    environment[0] = "FOLIOT_MAX_BODY=much", environment[1] = "FOLIOT_SHRADS=3";
    must_say(read_with(&c, NULL), "foliot serve: FOLIOT_MAX_BODY: 'much' is not allowed; expected a size in bytes");
    CHECK(strstr(said, "unknown variable 'FOLIOT_SHRADS'; did you mean 'FOLIOT_SHARDS'?\n") != NULL);
    CHECK_EQ(lines_said(), 2);
    memset(environment, 0, sizeof environment);
}

/* Each setting by option, by variable and by key, in its section and without one. */
TEST(every_setting_comes_from_everywhere)
{
    for (size_t i = 0; i < setting_count; i++) {
        static const char *const values[] = {"no", "2MiB", "64MiB", "17", "x"};
        const struct setting *setting = &settings[i];
        struct server_config c, probe = {0};
        char text[256], variable[256];
        const char *value = setting->initial;
        for (size_t v = 0; v < sizeof values / sizeof values[0] && !value; v++)
            if (setting_set(&probe, setting, values[v]) == 0)
                value = values[v];
        config_free(&probe);
        if (strstr(setting->name, "tls-") || strcmp(setting->name, "advertise") == 0)
            continue; /* not alone */
        CHECK(value != NULL);
        snprintf(text, sizeof text, "--%s=%s", setting->name, value);
        MUST_READ(&c, text);
        CHECK_EQ(c.origins[i].from, CONFIG_OPTION);
        config_free(&c);
        snprintf(variable, sizeof variable, "FOLIOT_%s=%s", setting->name, value);
        for (char *at = variable; *at != '='; at++)
            *at = (char)(*at == '-' ? '_' : *at >= 'a' && *at <= 'z' ? *at - 32 : *at);
        environment[0] = variable;
        must_read(read_with(&c, NULL));
        CHECK_EQ(c.origins[i].from, CONFIG_ENVIRONMENT);
        config_free(&c);
        environment[0] = NULL;
        snprintf(text, sizeof text, "%s = %s\n", setting->name, value);
        must_read(read_file_of(&c, text));
        CHECK_EQ(c.origins[i].from, CONFIG_FILE);
        CHECK_EQ(c.origins[i].line, 1);
        config_free(&c);
        snprintf(text, sizeof text, "[%s]\n%s = %s\n", setting_groups[setting->group].section, setting->name, value);
        must_read(read_file_of(&c, text));
        CHECK_EQ(c.origins[i].line, 2);
        config_free(&c);
    }
}

/* --- What is refused --------------------------------------------------------------------------------------------- */

TEST(a_bad_value_is_named_with_what_is_allowed)
{
    REFUSED("foliot serve: --shards: '0' is not allowed; expected a whole number from 1 to 65536\n", "--shards", "0");
    REFUSED("foliot serve: --shards: '-1' is not allowed", "--shards", "-1");
    REFUSED("foliot serve: --shards: '65537' is not allowed", "--shards=65537");
    REFUSED("foliot serve: --shards: '' is not allowed", "--shards=");
    REFUSED("foliot serve: --shards: '99999999999999999999999' is not allowed", "--shards=99999999999999999999999");
    REFUSED("foliot serve: --shards: '4294967297' is not allowed", "--shards=4294967297");
    REFUSED("--lease: '5' is not allowed; expected a duration like 500ms or 1h30m, from 100ms to 1d\n", "--lease", "5");
    REFUSED("--lease: '25h' is not allowed", "--lease", "25h");
    REFUSED("--max-body: '1MB' is not allowed; expected a size in bytes, or with KiB, MiB or GiB, from 1KiB to 64MiB\n",
            "--max-body", "1MB");
    REFUSED("--max-payload: '9MiB' is not allowed", "--max-payload", "9MiB");
    REFUSED("--max-body: '18014398509481985KiB' is not allowed", "--max-body", "18014398509481985KiB");
    REFUSED("--load-interval: '31s' is not allowed", "--load-interval", "31s");
    REFUSED(
        "--skip-older: 'never' is not allowed; expected a duration like 500ms or 1h30m, from 1ms to 36500d, or none\n",
        "--skip-older", "never");
    REFUSED("--retry-multiplier: '0.5' is not allowed; expected a number with up to three decimals, from 1 to 100\n",
            "--retry-multiplier", "0.5");
    REFUSED("--retry-multiplier: '1.2345' is not allowed", "--retry-multiplier", "1.2345");
    REFUSED("--log-level: 'loud' is not allowed; expected error, warning, info or debug\n", "--log-level", "loud");
    REFUSED("--echo: 'maybe' is not allowed; expected yes or no\n", "--echo=maybe");
    REFUSED("--no-echo takes no value", "--no-echo=yes");
    REFUSED("--check takes no value", "--check=yes");
    REFUSED("--store: 'mysql:x' is not allowed; expected a URL that begins with sqlite:, postgres://, postgresql:// or "
            "memory:\n",
            "--store", "mysql:x");
    REFUSED("--owner: 'a\nb' is not allowed; expected printable text of 1 to 255 bytes\n", "--owner", "a\nb");
}

TEST(unknown_options)
{
    REFUSED("foliot serve: unknown option '--shrads'; did you mean '--shards'?\n", "--shrads", "4");
    REFUSED("foliot serve: unknown option '--max-boddy'; did you mean '--max-body'?\n", "--max-boddy=1");
    REFUSED("foliot serve: unknown option '--confg'; did you mean '--config'?\n", "--confg=x");
    REFUSED("foliot serve: unknown option '--frobnicate'; 'foliot serve --help' lists the options\n", "--frobnicate");
    REFUSED("unexpected argument 'stray'", "stray");
    REFUSED("unexpected argument '--'", "--");
    REFUSED("unexpected argument '-x'", "-x");
    REFUSED("--no-shards", "--no-shards");
    REFUSED("--config needs a value", "--config");
    REFUSED("--config needs a value", "--config=");
    REFUSED("--listen needs a value; expected HOST:PORT", "--listen", "--shards=2");
}

TEST(all_errors_are_reported)
{
    REFUSED("--workers", "stray", "--shards=0", "--workers=x", "--nothing-like-it", "--tls-key=/nowhere/key",
            "--retry-initial=2h", "--webhook-per-host=2000");
    CHECK_EQ(lines_said(), 8);
    CHECK(strstr(said, "--shards: '0'") && strstr(said, "'stray'"));
    CHECK(strstr(said, "--tls-key: '/nowhere/key' is not allowed: tls-certificate and tls-key must be given together"));
    CHECK(strstr(said, "--tls-key: '/nowhere/key' is not allowed: the file cannot be read (No such file"));
    CHECK(strstr(said, "--retry-initial: '2h' is not allowed: retry-initial must not exceed retry-max-interval\n"));
    CHECK(strstr(said, "--webhook-per-host: '2000' is not allowed: webhook-per-host must not exceed "));
}

TEST(what_was_refused_is_not_judged_again)
{
    REFUSED("--retry-initial", "--retry-initial=forever", "--retry-max-interval=1ms");
    CHECK_EQ(lines_said(), 1);
    REFUSED("cannot read /nowhere/foliot.conf", "--config=/nowhere/foliot.conf", "--listen=0.0.0.0:1");
    CHECK_EQ(lines_said(), 1);
}

TEST(rules)
{
    REFUSED("--max-body: '1KiB' is not allowed: it must be at least max-payload\n", "--max-body=1KiB");
    REFUSED("--max-url: '32KiB' is not allowed: max-url must not exceed max-head\n", "--max-url=32KiB");
    REFUSED("--max-head: '4KiB' is not allowed: max-url must not exceed max-head\n", "--max-head=4KiB");
    REFUSED("--tls-certificate", "--tls-certificate", path);
    struct server_config c;
    MUST_READ(&c, "--tls-certificate", path, "--tls-key", path);
    config_free(&c);
    MUST_READ(&c, "--max-payload=8MiB");
    CHECK_EQ(c.max_body, 16 << 20);
    CHECK_EQ(c.engine.max_payload, 8 << 20);
    config_free(&c);
    MUST_READ(&c, "--retry-max-attempts=none", "--max-request-rate=0", "--skip-older=0s", "--retry-multiplier=1.5");
    CHECK(c.engine.retry.max_attempts == 0 && c.max_request_rate == 0 && c.engine.skip_older_us == 0);
    CHECK_EQ(c.engine.retry.multiplier_1000, 1500);
    config_free(&c);
}

TEST(addresses)
{
    struct server_config c;
    MUST_READ(&c, "--listen", "127.0.0.1:0, [::1]:7412,127.9.9.9:65535");
    CHECK_EQ(c.address_count, 3);
    CHECK_EQ(c.addresses[1].address.any.sa_family, AF_INET6);
    CHECK_EQ(ntohs(c.addresses[1].address.v6.sin6_port), 7412);
    CHECK(c.loopback_only);
    config_free(&c);
    MUST_READ(&c, "--listen", "127.0.0.1:1", "--listen=127.0.0.1:2");
    CHECK(strcmp(c.listen, "127.0.0.1:1,127.0.0.1:2") == 0);
    CHECK_EQ(c.address_count, 2);
    config_free(&c);
    MUST_READ(&c, "--listen", "localhost:80");
    CHECK(c.address_count >= 1 && c.loopback_only);
    config_free(&c);
    MUST_READ(&c, "--listen", "[::ffff:127.0.0.1]:80");
    CHECK(c.loopback_only);
    config_free(&c);
    static const char *const bad[] = {"7411",          ":7411",        "127.0.0.1",       "127.0.0.1:",
                                      "127.0.0.1:x",   "127.0.0.1:-1", "127.0.0.1:65536", "127.0.0.1:000080",
                                      "::1:80",        "[::1]",        "[]:80",           "127.0.0.1:80,",
                                      ",127.0.0.1:80", "a b:80",       "127.0.0.1:80;x",  ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        REFUSED("is not allowed; expected HOST:PORT, [IPV6]:PORT or *:PORT", "--listen", bad[i]);
    REFUSED("cannot resolve", "--listen", "[::zz]:80");
}

TEST(others_need_tokens)
{
    static const char *const open_to_all[] = {
        "0.0.0.0:80", "*:80", "[::]:80", "192.0.2.1:80", "127.0.0.1:80,0.0.0.0:80", "[::ffff:192.0.2.1]:80"};
    for (size_t i = 0; i < sizeof open_to_all / sizeof open_to_all[0]; i++)
        REFUSED("an address that other machines can reach needs tokens", "--listen", open_to_all[i]);
    struct server_config c;
    must_read(read_file_of(&c, "listen = *:80\n" TOKEN_A));
    CHECK(!c.loopback_only && !c.echo && c.tokens.count == 1);
    config_free(&c);
    must_read(read_file_of(&c, "listen = *:80\necho = yes\n" TOKEN_A));
    CHECK(c.echo);
    config_free(&c);
}

/* --- The file ---------------------------------------------------------------------------------------------------- */

TEST(a_file)
{
    struct server_config c;
    must_read(read_file_of(&c, "\xef\xbb\xbf# a comment\n; another\n\nshards = 3 ; why\n[server]\r\nworkers=4\r\n"
                               "  [engine]\n\tlease : 6s\n    preload = 3m\n[limits]\nmax-url=2KiB\n[server]\n"
                               "listen = 127.0.0.1:1\nlisten = 127.0.0.1:2\nowner = a;b"));
    CHECK_EQ(c.shards, 3);
    CHECK_EQ(c.workers, 4);
    CHECK_EQ(c.engine.claim_us, 6000000);
    CHECK_EQ(c.engine.preload_us, 180000000);
    CHECK_EQ(c.max_url, 2048);
    CHECK_EQ(c.address_count, 2);
    CHECK(strcmp(c.owner, "a;b") == 0);
    config_free(&c);
    must_read(read_file_of(&c, ""));
    config_free(&c);
}

TEST(a_list_has_commas_or_lines)
{
    struct server_config c;
    must_read(read_file_of(&c, "listen = 127.0.0.1:1, [::1]:2 # two\nlisten = 127.0.0.1:3 ; and one\n"));
    CHECK(strcmp(c.listen, "127.0.0.1:1, [::1]:2,127.0.0.1:3") == 0);
    CHECK_EQ(c.address_count, 3);
    config_free(&c);
    must_read(read_file_of(&c, "listen = [::1]:2\n"));
    CHECK(strcmp(c.listen, "[::1]:2") == 0);
    config_free(&c);
}

TEST(the_syntax_of_toml_is_refused_with_what_to_write_instead)
{
    static const char quoted[] = "this file is ini, not TOML; write the value without quotation marks\n";
    static const char list[] =
        "this file is ini, not TOML; write the list without brackets and quotation marks, as in a, b\n";
    refused_file("shards = 1\nlog-level = \"debug\"\n", ":2: log-level: ");
    refused_file("log-level = \"debug\"\n", quoted);
    refused_file("max-body = '2MiB' # two\n", quoted);
    refused_file("owner = \"\"\n", quoted);
    refused_file("listen = [\"127.0.0.1:1\"\n", list);
    refused_file("listen = [ \"127.0.0.1:3\" ]\n", list);
    refused_file("listen = []\n", list);
    refused_file("[token a]\nrights = ['read']\n", list);
    refused_file("[token a]\nsha256 = \"my-secret\"\n", ":2: sha256: this file is ini, not TOML;");
    refused_file("[token.a]\nrights = read\n", ":2: [token.a]: this file is ini, not TOML; write [token a]\n");
}

TEST(errors_of_a_file_have_their_line)
{
    refused_file("\nshards = 0\n", ":2: shards: '0' is not allowed; expected a whole number from 1 to 65536\n");
    refused_file("shards = 1\nshards = 2\n", ":2: shards appears twice, first in line 1; give it once\n");
    refused_file("shards\n", ":1: a line must be 'key = value', '[section]' or '# comment'\n");
    refused_file("[limits]\nshards = 1\n", ":2: 'shards' belongs in [server], not in [limits]\n");
    refused_file("shrads = 1\n", ":1: unknown key 'shrads'; did you mean 'shards'?\n");
    refused_file("config = x\n", ":1: unknown key 'config'");
    refused_file("= x\n", ":1: unknown key ''");
    refused_file("[what]\nx = y\n",
                 ":2: unknown section [what]; expected [server], [engine], [webhooks], [limits] or [token");
    refused_file("[limits\n", ":1: a ']' is missing\n");
    refused_file("[limits\n\nx\n\n\nshards = 0\n", ":6: shards");
    CHECK_EQ(lines_said(), 3);
    refused_file("store =\n", ":1: store: '' is not allowed");
    write_file("shards = 1\0", 11);
    REFUSED(":1: this line contains a NUL character\n", "--config", path);
    REFUSED("cannot read /tmp: Is a directory\n", "--config", "/tmp");
    REFUSED("cannot read /nowhere/x: No such file or directory\n", "--config", "/nowhere/x");
}

TEST(a_line_of_the_file_is_whole_or_refused)
{
    for (size_t size = 150; size < 300; size++) {
        char text[400] = "owner = ";
        struct server_config c;
        memset(text + 8, 'x', size);
        memcpy(text + 8 + size, "\nworkers = 3\n", 14);
        if (read_file_of(&c, text) < 0) {
            CHECK(strstr(said, ":1: this line is longer than ") && lines_said() == 1);
            CHECK(size > 180);
            continue;
        }
        CHECK_EQ(strlen(c.owner), size);
        CHECK_EQ(c.workers, 3);
        config_free(&c);
    }
}

TEST(tokens_of_a_file)
{
    struct server_config c;
    must_read(read_file_of(&c, TOKEN_A "[token  b.c]\nsha256 = 2C26B46B68FFC68FF99B453C1D30413413422D706483BFA0F98A5E88"
                                       "6266E7AE\nrights = admin\nnamespaces = x, y\nnamespaces = z\n"));
    CHECK_EQ(c.tokens.count, 2);
    const struct token *a = tokens_find(&c.tokens, (fl_bytes)FL_TEXT("Bearer test"));
    const struct token *b = tokens_find(&c.tokens, (fl_bytes)FL_TEXT("Bearer foo"));
    CHECK(a == &c.tokens.list[0] && strcmp(a->name, "a") == 0 && a->rights == RIGHT_READ && !a->namespaces);
    CHECK(b == &c.tokens.list[1] && strcmp(b->name, "b.c") == 0);
    CHECK_EQ(b->rights, RIGHT_READ | RIGHT_WRITE | RIGHT_ADMIN);
    CHECK(strcmp(b->namespaces[0], "x") == 0 && strcmp(b->namespaces[2], "z") == 0 && !b->namespaces[3]);
    config_free(&c);
}

TEST(bad_tokens)
{
    refused_file("[token a]\nrights = read\n", ":2: [token a]: 'sha256' is missing");
    CHECK(strstr(said, ":2: [token a]: 'namespaces' is missing; give names, or * for all\n"));
    refused_file("[token a]\nsha256 = " HASH_A "\nnamespaces = *\n",
                 ":2: [token a]: 'rights' is missing; give read, write");
    refused_file("[token a]\nsha256 = my-secret\n",
                 ":2: sha256: the value is not allowed; expected 64 hexadecimal digits");
    CHECK(!strstr(said, "my-secret"));
    refused_file("[token a]\nsha256 = " HASH_A "0\n", ":2: sha256: the value is not allowed");
    refused_file("[token a]\nsha256 = e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n",
                 "empty text");
    refused_file(TOKEN_A "sha256 = " HASH_B "\n", ":5: sha256 appears twice for this token; give it once\n");
    refused_file(TOKEN_A "[token b]\nsha256 = " HASH_A "\nrights=read\nnamespaces=a\n",
                 ":6: [token b]: the same token as [token a]\n");
    refused_file("[token a]\nrights = read, delete\n",
                 ":2: rights: 'delete' is not allowed; expected read, write or admin\n");
    refused_file("[token a]\nrights = ,\n", ":2: rights: '' is not allowed");
    refused_file("[token a]\nnamespaces =\n", ":2: namespaces: '' is not allowed");
    refused_file("[token a]\ncolour = red\n",
                 ":2: [token a]: unknown key 'colour'; expected sha256, namespaces or rights\n");
    refused_file("[token ]\nrights = read\n", ":2: [token ]: '' is not allowed; expected letters, digits,");
    refused_file("[token]\nrights = read\n", ":2: unknown section [token]");
    refused_file("[token a/b]\nrights = read\n", ":2: [token a/b]: 'a/b' is not allowed; expected letters, digits,");
    refused_file("[token abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz]\nrights = read\n",
                 ":1: the name of this section is too long\n");
}

/* --- Reloading --------------------------------------------------------------------------------------------------- */

static int reload(const struct server_config *config, struct server_config *ret)
{
    said[0] = '\0';
    FILE *errors = fmemopen(said, sizeof said, "w");
    CHECK(errors != NULL);
    int result = config_reload(config, ret, errors);
    fclose(errors);
    return result;
}

TEST(reloading_takes_what_may_change)
{
    struct server_config c, d;
    must_read(read_file_of(&c, "shards = 3\nlog-level = info\n" TOKEN_A));
    write_file("shards = 4\nlog-level = debug\nmax-payload = 1MiB\n", 48);
    CHECK_EQ(reload(&c, &d), 0);
    CHECK(strstr(said, ":1: shards: the change needs a restart\n"));
    CHECK(strstr(said, ":3: max-payload: the change needs a restart"));
    CHECK_EQ(lines_said(), 2);
    CHECK_EQ(d.shards, 3);
    CHECK_EQ(d.max_payload, 256 << 10);
    CHECK_EQ(d.engine.max_payload, (256 + 64) << 10);
    CHECK_EQ(d.log_level, LOG_DEBUG);
    CHECK(d.tokens.count == 0 && c.tokens.count == 1 && c.log_level == LOG_INFO);
    config_free(&d);
    write_file("log-level = loud\n", 17);
    CHECK_EQ(reload(&c, &d), -1);
    CHECK(strstr(said, ":1: log-level: 'loud' is not allowed"));
    config_free(&c);
}

/* A certificate may be another one, but TLS neither begins nor ends. */
TEST(reloading_keeps_tls_as_it_is)
{
    static const char certificate[] = "tls-certificate = /etc/passwd\ntls-key = /etc/passwd\n";
    static const char another[] = "tls-certificate = /etc/group\ntls-key = /etc/passwd\n";
    struct server_config c, d;
    must_read(read_file_of(&c, certificate));
    write_file(another, strlen(another));
    CHECK_EQ(reload(&c, &d), 0);
    CHECK(strcmp(d.tls_certificate, "/etc/group") == 0 && *said == '\0');
    config_free(&d);
    write_file("", 0);
    CHECK_EQ(reload(&c, &d), 0);
    CHECK(strcmp(d.tls_certificate, "/etc/passwd") == 0 && strcmp(d.tls_key, "/etc/passwd") == 0);
    CHECK(strstr(said, "tls-certificate: the change needs a restart\n"));
    config_free(&d);
    config_free(&c);
    must_read(read_file_of(&c, ""));
    write_file(certificate, strlen(certificate));
    CHECK_EQ(reload(&c, &d), 0);
    CHECK(!d.tls_certificate && !d.tls_key);
    config_free(&d);
    config_free(&c);
}

/* The rule is about where the server listens, not about where it would after a restart. */
TEST(reloading_does_not_open_a_server_to_all)
{
    struct server_config c, d;
    must_read(read_file_of(&c, "listen = 0.0.0.0:7411\n" TOKEN_A));
    write_file("listen = 127.0.0.1:7411\n", 24);
    CHECK_EQ(reload(&c, &d), -1);
    CHECK(strstr(said, "needs tokens"));
    config_free(&c);
}

/* --- Printing ---------------------------------------------------------------------------------------------------- */

/* What is printed has the same effect when it is read. */
TEST(what_is_printed_can_be_read)
{
    struct server_config c, d;
    MUST_READ(&c, "--shards=7", "--max-body=3MiB", "--skip-older=90m", "--no-echo", "--strategy=lookahead",
              "--owner=me", "--retry-multiplier=1.25", "--listen=127.0.0.1:1,[::1]:2", "--stop-timeout=0s",
              "--store=memory:", "--catch-up-rate=5", "--max-url=1000");
    char *text = printed(&c);
    must_read(read_file_of(&d, text));
    for (size_t i = 0; i < setting_count; i++)
        if (!setting_equal(&c, &d, &settings[i]))
            test_fail(__FILE__, __LINE__, "%s is another one after printing:\n%s", settings[i].name, text);
    free(text);
    config_free(&c);
    config_free(&d);
}

TEST(secrets_are_not_printed)
{
    static const char *const stores[] = {
        "postgres://user:sesame@host/db",
        "postgresql://user:se:sa@me/x@host:5432/db?sslmode=require",
        "postgres://host/db?user=u&password=sesame&sslmode=require",
        "postgres://host/db?sslpassword=sesame",
        "postgres://user:sesame@",
        "postgres://:sesame@host/a?password=sesame",
    };
    struct server_config c;
    for (size_t i = 0; i < sizeof stores / sizeof stores[0]; i++) {
        MUST_READ(&c, "--store", stores[i]);
        char *text = printed(&c);
        CHECK(strstr(text, "***") && !strstr(text, "se:sa") && !strstr(text, "me/x"));
        CHECK(!strstr(text, "sesame"));
        free(text);
        config_free(&c);
    }
    REFUSED("--store: 'mysql://user:***@host' is not allowed", "--store", "mysql://user:sesame@host");
    must_read(read_file_of(&c, TOKEN_A));
    char *text = printed(&c);
    CHECK(strstr(text, "\n[token a]\n; sha256: not shown\nnamespaces = *\nrights = read\n"));
    CHECK(!strstr(text, "9f86") && !strstr(text, "0a08"));
    free(text);
    config_free(&c);
}

TEST(values_are_written_as_people_write_them)
{
    static const struct {
        const char *option, *line;
    } cases[] = {
        {"--max-body=1048577", "\nmax-body = 1048577 "},
        {"--max-body=2048KiB", "\nmax-body = 2MiB "},
        {"--lease=60500ms", "\nlease = 1m500ms "},
        {"--retry-multiplier=1.050", "\nretry-multiplier = 1.05 "},
        {"--retry-multiplier=10", "\nretry-multiplier = 10 "},
        {"--retry-max-age=0s", "\nretry-max-age = none "},
        {"--test-clock=1", "\ntest-clock = yes "},
        {"--max-timers-per-namespace=0", "per-namespace = none "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct server_config c;
        MUST_READ(&c, cases[i].option);
        char *text = printed(&c);
        if (!strstr(text, cases[i].line))
            test_fail(__FILE__, __LINE__, "%s: no '%s' in\n%s", cases[i].option, cases[i].line, text);
        free(text);
        config_free(&c);
    }
}

/* --- What is written elsewhere ----------------------------------------------------------------------------------- */

static char *file_text(const char *name)
{
    char place[4096];
    snprintf(place, sizeof place, "%s/%s", getenv("SOURCE") ? getenv("SOURCE") : ".", name);
    FILE *file = fopen(place, "r");
    if (!file)
        test_fail(__FILE__, __LINE__, "%s is not there", place);
    char *text = NULL;
    size_t room = 0;
    CHECK(getdelim(&text, &room, '\0', file) > 0);
    fclose(file);
    return text;
}

static char *help_text(void)
{
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    config_help(to);
    fclose(to);
    return text;
}

TEST(help_is_complete_and_fits)
{
    char *text = help_text(), name[64];
    for (size_t i = 0; i < setting_count; i++) {
        snprintf(name, sizeof name, "\n  --%s%s", settings[i].name, settings[i].value_name ? " " : "");
        CHECK(strstr(text, name) != NULL);
    }
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        CHECK(strcspn(line, "\n") <= 103);
    free(text);
}

/* Counts the lines that begin so. */
static size_t count_lines(const char *text, const char *begin)
{
    size_t count = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        count += strncmp(line, begin, strlen(begin)) == 0;
    return count;
}

/* The page has each option of the table with its default, in the same order, and no other. */
TEST(the_manual_page_has_all_options)
{
    char *page = file_text("man/foliot-serve.1"), expected[256];
    const char *at = page;
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *s = &settings[i];
        snprintf(expected, sizeof expected, "\n.It Fl -%s%s%s\n", s->name, s->value_name ? " Ar " : "",
                 !s->value_name                 ? ""
                 : s->kind == SETTING_ADDRESSES ? "HOST:PORT Ns Op , Ns ..."
                 : s->kind == SETTING_HOSTS     ? "HOST Ns Op , Ns ..."
                                                : s->value_name);
        at = strstr(at, expected);
        if (!at)
            test_fail(__FILE__, __LINE__, "the page has no '%s'", expected + 1);
        const char *next = strstr(at + 1, "\n.It ");
        if (s->initial) {
            snprintf(expected, sizeof expected, "\nDefault: %s.\n", s->initial);
            const char *found = strstr(at, expected);
            if (!found || (next && found > next))
                test_fail(__FILE__, __LINE__, "the page has no 'Default: %s.' for %s", s->initial, s->name);
        }
    }
    CHECK_EQ(count_lines(page, ".It Fl -"), setting_count + 3);
    free(page);
}

/* The table has a row for each setting with its default, and no other. */
TEST(the_documentation_has_all_settings)
{
    char *page = file_text("docs/configuration.md"), expected[256];
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *s = &settings[i];
        snprintf(expected, sizeof expected, "\n| `%s` | %s%s%s |", s->name, s->initial ? "`" : "",
                 s->initial ? s->initial : s->otherwise, s->initial ? "`" : "");
        if (!strstr(page, expected))
            test_fail(__FILE__, __LINE__, "the page has no row '%s'", expected + 1);
    }
    CHECK_EQ(count_lines(page, "| `"), setting_count);
    free(page);
}

TEST(the_section_in_the_documentation_is_read)
{
    char *page = file_text("docs/configuration.md");
    char *block = strstr(page, "\n```ini\n");
    CHECK(block != NULL);
    block += strlen("\n```ini\n");
    strstr(block, "```\n")[0] = '\0';
    struct server_config c;
    must_read(read_file_of(&c, block));
    CHECK(tokens_find(&c.tokens, (fl_bytes)FL_TEXT("Bearer test")) != NULL);
    config_free(&c);
    free(page);
}

/* Without an explanation in a value, which would become part of it when the comment sign is removed. */
TEST(the_example_has_every_setting_with_its_description)
{
    char *text = file_text("contrib/foliot.conf");
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *s = &settings[i];
        char expected[700];
        int size = s->initial ? snprintf(expected, sizeof expected, "\n# %s\n#%s = %s\n", s->help, s->name, s->initial)
                              : snprintf(expected, sizeof expected, "\n# %s Default: %s.\n# %s = ", s->help,
                                         s->otherwise, s->name);
        const char *at = strstr(text, expected);
        if (!at)
            test_fail(__FILE__, __LINE__, "the example does not contain:%s", expected);
        else if (!s->initial)
            CHECK_EQ(at[size + (int)strcspn(at + size, " \n")], '\n');
    }
    free(text);
}

/* The example can be used as it is; and with its comments taken away, each of its settings has its default. */
TEST(the_example_is_read)
{
    char *text = file_text("contrib/foliot.conf");
    struct server_config c, d;
    must_read(read_file_of(&c, text));
    config_free(&c);
    for (char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (line[0] == '#' && line[1] != ' ' && line[1] != '\n')
            line[0] = ' ';
    must_read(read_file_of(&c, text));
    must_read(read_with(&d, NULL));
    for (size_t i = 0; i < setting_count; i++) {
        if (!settings[i].initial)
            continue;
        CHECK_EQ(c.origins[i].from, CONFIG_FILE);
        if (!setting_equal(&c, &d, &settings[i]))
            test_fail(__FILE__, __LINE__, "%s has not its default in the example", settings[i].name);
    }
    CHECK_EQ(c.tokens.count, 1);
    config_free(&c);
    config_free(&d);
    free(text);
}
