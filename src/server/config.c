/* SPDX-License-Identifier: MIT */
/* Reads the configuration: the defaults first, then the file, the environment and the options, each over what was there
 * before; then looks at what the settings mean together. Nothing stops at the first mistake. */

#include "server/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <foliot/error.h>

#include "node/node.h"
#include "server/settings.h"

static const char prefix[] = "FOLIOT_";

static void write_variable(const char *name, FILE *to)
{
    fputs(prefix, to);
    for (; *name; name++)
        fputc(*name == '-' ? '_' : toupper((unsigned char)*name), to);
}

/* A setting as it was given: "--listen", "FOLIOT_LISTEN", "foliot.conf:3: listen". */
static void begin_complaint(const struct reading *reading, const struct setting *setting, struct config_origin origin)
{
    FILE *to = reading->errors;
    fputs("foliot serve: ", to);
    if (origin.from == CONFIG_ENVIRONMENT)
        write_variable(setting->name, to);
    else if (origin.from == CONFIG_FILE)
        fprintf(to, "%s:%u: %s", reading->config->file, origin.line, setting->name);
    else
        fprintf(to, "--%s", setting->name);
}

static void mark_wrong(struct reading *reading, const struct setting *setting)
{
    reading->wrong++;
    reading->refused |= UINT64_C(1) << (setting - settings);
}

/* "…: 'VALUE' is not allowed: a whole number from 1 to 65536" */
static void refuse(struct reading *reading, const struct setting *setting, const char *value,
                   struct config_origin origin)
{
    mark_wrong(reading, setting);
    begin_complaint(reading, setting, origin);
    fputs(": '", reading->errors);
    setting_write_masked(value, reading->errors);
    fputs("' is not allowed; expected ", reading->errors);
    setting_allowed(setting, reading->errors);
    fputc('\n', reading->errors);
}

/* A list that is given again by the same source grows. */
static int add_or_set(struct reading *reading, const struct setting *setting, const char *value, enum config_from from)
{
    struct server_config *config = reading->config;
    if (!setting_is_list(setting) || config->origins[setting - settings].from != from || from == CONFIG_DEFAULT)
        return setting_set(config, setting, value);
    char *longer;
    if (asprintf(&longer, "%s,%s", *(char **)((char *)config + setting->offset), value) < 0)
        return FL_NO_MEMORY;
    int result = setting_set(config, setting, longer);
    free(longer);
    return result;
}

void config_take(struct reading *reading, const struct setting *setting, const char *value, struct config_origin origin)
{
    int result = add_or_set(reading, setting, value, origin.from);
    if (result == FL_NO_MEMORY)
        config_complain(reading, "%s: out of memory", setting->name);
    else if (result < 0)
        refuse(reading, setting, value, origin);
    else
        reading->config->origins[setting - settings] = origin;
}

/* --- Options ----------------------------------------------------------------------------------------------------- */

static const struct config_origin from_option = {.from = CONFIG_OPTION};

struct option {
    const char *name; /* "max-body=1MiB" */
    size_t name_size;
    const char *value; /* behind the '='; NULL: none */
};

/* "-h", "--NAME" or "--NAME=VALUE"; false for anything else. */
static bool split_option(const char *argument, struct option *ret)
{
    if (strcmp(argument, "-h") == 0)
        argument = "--help";
    if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0')
        return false;
    const char *equals = strchr(argument, '=');
    *ret = (struct option){argument + 2, equals ? (size_t)(equals - argument - 2) : strlen(argument + 2),
                           equals ? equals + 1 : NULL};
    return true;
}

static bool is_named(const struct option *option, const char *name)
{
    return strlen(name) == option->name_size && strncmp(option->name, name, option->name_size) == 0;
}

/* --NAME or --no-NAME of a flag. */
static const struct setting *find_flag(const struct option *option, bool *ret_negated)
{
    *ret_negated = option->name_size > 3 && strncmp(option->name, "no-", 3) == 0;
    size_t skip = *ret_negated ? 3 : 0;
    const struct setting *setting = setting_find(option->name + skip, option->name_size - skip);
    return setting && setting->kind == SETTING_FLAG ? setting : NULL;
}

/* Behind the '=', or the next argument unless that is an option. */
static const char *value_of(const struct option *option, int argc, char **argv, int *i)
{
    if (option->value || *i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0)
        return option->value;
    return argv[++*i];
}

static void unknown_option(struct reading *reading, const struct option *option)
{
    const char *nearest = setting_nearest(option->name, option->name_size, true);
    if (nearest)
        config_complain(reading, "unknown option '--%.*s'; did you mean '--%s'?", (int)option->name_size, option->name,
                        nearest);
    else
        config_complain(reading, "unknown option '--%.*s'; 'foliot serve --help' lists the options",
                        (int)option->name_size, option->name);
}

static void take_flag(struct reading *reading, const struct setting *setting, const struct option *option, bool negated)
{
    if (negated && option->value)
        config_complain(reading, "--no-%s takes no value; remove '%s'", setting->name, option->value);
    else
        config_take(reading, setting, option->value ? option->value : negated ? "no" : "yes", from_option);
}

static void take_file(struct reading *reading, const char *path)
{
    free(reading->config->file);
    reading->config->file = strdup(path);
    if (!reading->config->file)
        config_complain(reading, "out of memory");
}

/* What is no setting: --help, --check, --config. Read first, since a file is below the rest. */
static bool take_other(struct reading *reading, const struct option *option, const char *value)
{
    struct server_config *config = reading->config;
    bool help = is_named(option, "help"), check = is_named(option, "check");
    if ((help || check) && option->value)
        config_complain(reading, "--%.*s takes no value; remove '%s'", (int)option->name_size, option->name,
                        option->value);
    config->help |= help;
    config->check |= check;
    if (!is_named(option, "config"))
        return help || check;
    if (!value || !*value)
        config_complain(reading, "--config needs a value; expected the path of a file");
    else
        take_file(reading, value);
    return true;
}

static void take_setting(struct reading *reading, const struct option *option, const char *value)
{
    const struct setting *setting = setting_find(option->name, option->name_size);
    if (!setting) {
        unknown_option(reading, option);
        return;
    }
    if (value) {
        config_take(reading, setting, value, from_option);
        return;
    }
    mark_wrong(reading, setting);
    begin_complaint(reading, setting, from_option);
    fputs(" needs a value; expected ", reading->errors);
    setting_allowed(setting, reading->errors);
    fputc('\n', reading->errors);
}

/* Reads either the options that are no settings, or the settings. */
static void read_options(struct reading *reading, bool other)
{
    const struct server_config *config = reading->config;
    for (int i = 0; i < config->argc; i++) {
        struct option option;
        bool negated;
        if (!split_option(config->argv[i], &option)) {
            if (!other)
                config_complain(reading, "unexpected argument '%s'; 'foliot serve --help' lists the options",
                                config->argv[i]);
            continue;
        }
        const struct setting *flag = find_flag(&option, &negated);
        if (flag) {
            if (!other)
                take_flag(reading, flag, &option, negated);
            continue;
        }
        bool bare = is_named(&option, "help") || is_named(&option, "check");
        const char *value = bare ? NULL : value_of(&option, config->argc, config->argv, &i);
        if (other)
            take_other(reading, &option, value);
        else if (!bare && !is_named(&option, "config"))
            take_setting(reading, &option, value);
    }
}

/* --- The environment --------------------------------------------------------------------------------------------- */

/* "FOLIOT_MAX_BODY=1MiB" has the name "max-body" and the value "1MiB". Returns false for a variable that is not Foliot's, or
 * empty. */
static bool split_variable(const char *variable, char name[64], const char **ret_value)
{
    const char *equals = strchr(variable, '=');
    if (!equals || equals[1] == '\0' || strncmp(variable, prefix, sizeof prefix - 1) != 0)
        return false;
    size_t size = (size_t)(equals - variable) - (sizeof prefix - 1);
    if (size >= 64)
        return false;
    for (size_t i = 0; i < size; i++) {
        char c = variable[sizeof prefix - 1 + i];
        name[i] = (char)(c == '_' ? '-' : tolower((unsigned char)c));
    }
    name[size] = '\0';
    *ret_value = equals + 1;
    return true;
}

/* One that is nearly a setting's is a mistake. Others are not ours: a cluster sets FOLIOT_SERVICE_HOST and the like for a
 * service of that name. */
static void unknown_variable(struct reading *reading, const char *variable, const char *name)
{
    const char *nearest = setting_nearest(name, strlen(name), false);
    if (!nearest)
        return;
    reading->wrong++;
    fprintf(reading->errors, "foliot serve: unknown variable '%.*s'; did you mean '", (int)strcspn(variable, "="),
            variable);
    write_variable(nearest, reading->errors);
    fputs("'?\n", reading->errors);
}

static void read_environment(struct reading *reading, bool other)
{
    for (char **variable = reading->config->environment; variable && *variable; variable++) {
        char name[64];
        const char *value;
        if (!split_variable(*variable, name, &value))
            continue;
        const struct setting *setting = setting_find(name, strlen(name));
        bool file = strcmp(name, "config") == 0;
        if (file && other)
            take_file(reading, value);
        else if (setting && !other)
            config_take(reading, setting, value, (struct config_origin){.from = CONFIG_ENVIRONMENT});
        else if (!file && !setting && !other)
            unknown_variable(reading, *variable, name);
    }
}

/* --- What settings mean together --------------------------------------------------------------------------------- */

static const struct setting *setting_named(const char *name)
{
    return setting_find(name, strlen(name));
}

static bool is_given(const struct server_config *config, const char *name)
{
    return config->origins[setting_named(name) - settings].from != CONFIG_DEFAULT;
}

/* Whether all of these values were accepted. A refused value gets no second error. */
static bool are_sound(const struct reading *reading, const char *first, const char *second)
{
    uint64_t bits = UINT64_C(1) << (setting_named(first) - settings) | UINT64_C(1)
                                                                           << (setting_named(second) - settings);
    return (reading->refused & bits) == 0;
}

/* A complaint about a setting that does not fit to the others: "NAME: 'VALUE' is not allowed: REASON". */
static void refuse_because(struct reading *reading, const char *name, const char *reason)
{
    const struct setting *setting = setting_named(name);
    reading->wrong++;
    begin_complaint(reading, setting, reading->config->origins[setting - settings]);
    fputs(": '", reading->errors);
    setting_write(reading->config, setting, reading->errors);
    fprintf(reading->errors, "' is not allowed: %s\n", reason);
}

static void check_listen(struct reading *reading)
{
    struct server_config *config = reading->config;
    char message[256];
    int result = config_resolve(config, message, sizeof message);
    if (result == FL_NO_MEMORY)
        config_complain(reading, "out of memory");
    else if (result < 0)
        refuse_because(reading, "listen", message);
    else if (!config->loopback_only && config->tokens.count == 0 && !reading->tokens_unknown)
        refuse_because(reading, "listen",
                       "an address that other machines can reach needs tokens; listen on 127.0.0.1, or add a [token "
                       "NAME] section to the file given with --config, see foliot-serve(1)");
    if (!is_given(config, "echo"))
        config->echo = config->loopback_only;
}

static void check_readable(struct reading *reading, const char *name, const char *path)
{
    char reason[128];
    if (!path || access(path, R_OK) == 0)
        return;
    snprintf(reason, sizeof reason, "the file cannot be read (%s)", strerror(errno));
    refuse_because(reading, name, reason);
}

static void check_tls(struct reading *reading)
{
    const struct server_config *config = reading->config;
    if (are_sound(reading, "tls-certificate", "tls-key") && !config->tls_certificate != !config->tls_key)
        refuse_because(reading, config->tls_key ? "tls-key" : "tls-certificate",
                       "tls-certificate and tls-key must be given together");
    check_readable(reading, "tls-certificate", config->tls_certificate);
    check_readable(reading, "tls-key", config->tls_key);
}

/* A server that shares its store. */
static void check_cluster(struct reading *reading)
{
    const struct server_config *config = reading->config;
    if (!config->advertise)
        return;
    const char *port = strrchr(config->advertise, ':');
    char *end = NULL;
    unsigned long number = port ? strtoul(port + 1, &end, 10) : 0;
    if (!port || port == config->advertise || !isdigit((unsigned char)port[1]) || *end || number == 0 || number > 65535)
        refuse_because(reading, "advertise", "expected HOST:PORT, the address at which other servers reach this one");
    if (strncmp(config->store, "sqlite:", 7) == 0)
        refuse_because(reading, "advertise", "several servers need a shared store; set store to postgres://...");
    if (config->owner)
        refuse_because(reading, "owner", "with advertise, the address is the owner; remove owner");
    if (config->test_clock)
        refuse_because(reading, "test-clock", "a test clock is not available with advertise; remove one of them");
}

/* Half of them may wait in lanes, where each has an attempt beside it, half a kilobyte large. */
static uint64_t timers_in_memory(uint64_t budget)
{
    const uint64_t least = 100000, each = 2 << 10;
    return budget / each > least ? budget / each : least;
}

static void check_sizes(struct reading *reading)
{
    struct server_config *config = reading->config;
    const uint64_t least = UINT64_C(1) << 20;
    if (!is_given(config, "max-body"))
        config->max_body = 2 * config->max_payload > least ? 2 * config->max_payload : least;
    else if (config->max_body < config->max_payload && are_sound(reading, "max-body", "max-payload"))
        refuse_because(reading, "max-body", "it must be at least max-payload");
    if (!is_given(config, "max-memory"))
        config->max_memory = budget_default();
    if (!is_given(config, "max-memory-timers"))
        config->engine.max_memory_timers = timers_in_memory(config->max_memory);
    /* A schedule is kept as the payload of a timer, with the payload of its own timers in it. */
    uint64_t most = config->max_payload + (64 << 10);
    config->engine.max_payload = (uint32_t)(most < 8 << 20 ? most : 8 << 20);
}

/* `smaller` may not be more than `larger`. The error names the setting that was given; if both were, the smaller. */
static void check_order(struct reading *reading, const char *smaller, uint64_t a, const char *larger, uint64_t b)
{
    char reason[128];
    if (a <= b || !are_sound(reading, smaller, larger))
        return;
    snprintf(reason, sizeof reason, "%s must not exceed %s", smaller, larger);
    refuse_because(reading, is_given(reading->config, smaller) ? smaller : larger, reason);
}

static void check_rules(struct reading *reading)
{
    const struct server_config *c = reading->config;
    check_listen(reading);
    check_tls(reading);
    check_cluster(reading);
    check_sizes(reading);
    check_order(reading, "max-url", c->max_url, "max-head", c->max_head);
    check_order(reading, "retry-initial", c->engine.retry.initial_us, "retry-max-interval",
                c->engine.retry.max_interval_us);
    check_order(reading, "webhook-per-host", c->webhook_per_host, "webhook-concurrency", c->webhook_concurrency);
}

/* --- All of it --------------------------------------------------------------------------------------------------- */

static void take_defaults(struct reading *reading)
{
    for (size_t i = 0; i < setting_count; i++)
        if (settings[i].initial)
            config_take(reading, &settings[i], settings[i].initial, (struct config_origin){0});
}

/* What cannot change while the server runs stays as it is, before the rules are applied: they are about what the server
 * does, not about what the file would have it do. TLS may get another certificate but not begin or end. */
static void keep(struct reading *reading, const struct server_config *running)
{
    struct server_config *config = reading->config;
    for (size_t i = 0; i < setting_count; i++) {
        struct config_origin *origin = &config->origins[i];
        bool same = (origin->from == CONFIG_DEFAULT && running->origins[i].from == CONFIG_DEFAULT) ||
                    setting_equal(config, running, &settings[i]);
        bool comes_or_goes = setting_is_set(config, &settings[i]) != setting_is_set(running, &settings[i]);
        if (same || (settings[i].reload && !comes_or_goes))
            continue;
        begin_complaint(reading, &settings[i], *origin);
        fputs(": the change needs a restart\n", reading->errors);
        *origin = running->origins[i];
        if (setting_copy(config, running, &settings[i]) < 0)
            config_complain(reading, "out of memory");
    }
}

/* Every source, each over what was there before. */
static void read_sources(struct reading *reading)
{
    take_defaults(reading);
    if (reading->config->file)
        config_read_file(reading);
    read_environment(reading, false);
    read_options(reading, false);
}

static int read_all(struct reading *reading, const struct server_config *running)
{
    struct server_config *config = reading->config;
    read_environment(reading, true);
    read_options(reading, true);
    if (!config->help)
        read_sources(reading);
    if (running && reading->wrong == 0)
        keep(reading, running);
    if (!config->help && config->listen)
        check_rules(reading);
    if (reading->wrong == 0)
        return 0;
    config_free(config);
    return -1;
}

int config_read(struct server_config *config, int argc, char **argv, char **environment, FILE *errors)
{
    *config = (struct server_config){.argc = argc, .argv = argv, .environment = environment};
    return read_all(&(struct reading){.config = config, .errors = errors}, NULL);
}

int config_reload(const struct server_config *config, struct server_config *ret, FILE *errors)
{
    struct server_config fresh = {.argc = config->argc, .argv = config->argv, .environment = config->environment};
    if (read_all(&(struct reading){.config = &fresh, .errors = errors}, config) < 0)
        return -1;
    *ret = fresh;
    return 0;
}

void config_free(struct server_config *config)
{
    free(config->listen);
    free(config->addresses);
    free(config->store);
    free(config->owner);
    free(config->advertise);
    free(config->allowed_host);
    free(config->tls_certificate);
    free(config->tls_key);
    free(config->file);
    tokens_free(&config->tokens);
    *config = (struct server_config){0};
}
