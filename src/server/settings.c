/* SPDX-License-Identifier: MIT */
/* The one table from which options, variables, keys, help and checks come. */

#include "server/settings.h"

#include <string.h>

const struct group setting_groups[GROUPS] = {
    [GROUP_SERVER] = {"server", "Server"},
    [GROUP_ENGINE] = {"engine", "Engine"},
    [GROUP_WEBHOOKS] = {"webhooks", "Webhooks"},
    [GROUP_LIMITS] = {"limits", "Limits"},
};

#define AT(member) .offset = offsetof(struct server_config, member), .size = sizeof(((struct server_config *)0)->member)

#define MS UINT64_C(1000)
#define SECOND (1000 * MS)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define YEAR (365 * DAY)
#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define ADDRESS "HOST:PORT"

static const char *const stores[] = {"sqlite:", "postgres://", "postgresql://", "memory:", NULL};
static const char *const levels[] = {"error", "warning", "info", "debug", NULL};
static const char *const formats[] = {"auto", "json", "logfmt", NULL};
static const char *const strategies[] = {"preload", "lookahead", NULL};

/* clang-format off */
const struct setting settings[] = {
    {"listen", GROUP_SERVER, SETTING_ADDRESSES, AT(listen), .max = 4096, .initial = "127.0.0.1:7411",
     .value_name = ADDRESS "[,...]",
     .help = "Addresses to listen on. Addresses other than loopback need tokens. Port 0 picks a free port."},
    {"store", GROUP_SERVER, SETTING_URL, AT(store), .max = 4096, .initial = "sqlite:foliot-data", .choices = stores,
     .value_name = "URL",
     .help = "Where timers are stored: sqlite:FOLDER, postgres://..., or memory: for tests."},
    {"shards", GROUP_SERVER, SETTING_NUMBER, AT(shards), .min = 1, .max = 65536,
     .otherwise = "one per processor, at most 4; an existing store keeps its number", .value_name = "N",
     .help = "Number of shards of a new store. It cannot be changed later."},
    {"workers", GROUP_SERVER, SETTING_NUMBER, AT(workers), .min = 1, .max = 1024, .otherwise = "one per processor",
     .value_name = "N",
     .help = "Number of threads. They share the connections, the shards and the webhooks."},
    {"owner", GROUP_SERVER, SETTING_TEXT, AT(owner), .max = FL_STORE_NAME_MAX,
     .otherwise = "host name and process ID", .value_name = "NAME",
     .help = "Name under which the server claims shards. Servers of one store need different names."},
    {"advertise", GROUP_SERVER, SETTING_TEXT, AT(advertise), .max = FL_STORE_NAME_MAX,
     .otherwise = "the server is alone", .value_name = ADDRESS,
     .help = "Address at which the other servers of the store reach this one. Needs PostgreSQL."},
    {"allowed-host", GROUP_SERVER, SETTING_HOSTS, AT(allowed_host), .max = 4096,
     .otherwise = "loopback names and addresses", .value_name = "HOST[,...]",
     .help = "Without tokens: further names that a client may use for this server, such as that of a proxy."},
    {"tls-certificate", GROUP_SERVER, SETTING_TEXT, AT(tls_certificate), .max = 4096, .reload = true,
     .otherwise = "no TLS", .value_name = "FILE", .help = "Certificate and its chain (PEM). Needs tls-key."},
    {"tls-key", GROUP_SERVER, SETTING_TEXT, AT(tls_key), .max = 4096, .reload = true, .otherwise = "no TLS",
     .value_name = "FILE",
     .help = "Private key of the certificate (PEM). Needs tls-certificate."},
    {"log-level", GROUP_SERVER, SETTING_CHOICE, AT(log_level), .reload = true, .initial = "info", .choices = levels,
     .value_name = "LEVEL",
     .help = "Lowest level to log: error, warning, info or debug."},
    {"log-format", GROUP_SERVER, SETTING_CHOICE, AT(log_format), .reload = true, .initial = "auto", .choices = formats,
     .value_name = "FORMAT",
     .help = "logfmt, json, or auto: a short form on a terminal, logfmt elsewhere."},
    {"echo", GROUP_SERVER, SETTING_FLAG, AT(echo), .otherwise = "yes if all addresses are loopback",
     .help = "Serve the built-in target /echo, which writes each callback to the log."},
    {"ui", GROUP_SERVER, SETTING_FLAG, AT(ui), .initial = "yes", .help = "Serve the dashboard at /ui/."},
    {"hello", GROUP_SERVER, SETTING_FLAG, AT(hello), .initial = "no",
     .help = "Print commands to try, and send a first callback to /echo."},
    {"test-clock", GROUP_SERVER, SETTING_FLAG, AT(test_clock), .initial = "no",
     .help = "Time stands still until POST /v1/clock advances it. For tests of programs that use Foliot."},

    {"strategy", GROUP_ENGINE, SETTING_CHOICE, AT(engine.strategy), .initial = "preload", .choices = strategies,
     .value_name = "NAME",
     .help = "preload keeps timers that are due soon in memory. lookahead keeps almost none and reads the store more often."},
    {"lease", GROUP_ENGINE, SETTING_DURATION, AT(engine.claim_us), .min = 100 * MS, .max = DAY, .initial = "3s",
     .value_name = "TIME",
     .help = "How long a server may keep a shard without renewing its claim. This is also the longest failover time."},
    {"record-interval", GROUP_ENGINE, SETTING_DURATION, AT(engine.record_interval_us), .min = MS, .max = DAY,
     .initial = "1s", .value_name = "TIME",
     .help = "How often a shard records its progress. After a crash, at most this much is repeated."},
    {"max-memory-timers", GROUP_ENGINE, SETTING_NUMBER, AT(engine.max_memory_timers), .min = 16, .max = 1000000000,
     .otherwise = "one per 2KiB of max-memory, at least 100000", .value_name = "N",
     .help = "Maximum number of timers that a shard keeps in memory."},
    {"max-in-flight", GROUP_ENGINE, SETTING_NUMBER, AT(engine.max_in_flight), .min = 1, .max = 10000000,
     .initial = "50000", .value_name = "N",
     .help = "Maximum number of due timers per shard that are not yet in the queue of their host or namespace."},
    {"dispatch-batch", GROUP_ENGINE, SETTING_NUMBER, AT(engine.dispatch_batch), .min = 1, .max = 1000000,
     .initial = "1000", .value_name = "N",
     .help = "Maximum number of timers that a shard fires in one step."},
    {"preload", GROUP_ENGINE, SETTING_DURATION, AT(engine.preload_us), .min = SECOND, .max = 12 * HOUR, .initial = "2m",
     .value_name = "TIME",
     .help = "With strategy preload: how far ahead a shard loads timers."},
    {"delete-interval", GROUP_ENGINE, SETTING_DURATION, AT(engine.delete_interval_us), .min = 100 * MS, .max = DAY,
     .initial = "30s", .value_name = "TIME",
     .help = "With strategy preload: how often a shard deletes settled timers."},
    {"lookahead", GROUP_ENGINE, SETTING_DURATION, AT(engine.lookahead_us), .min = MS, .max = MINUTE, .initial = "1s",
     .value_name = "TIME",
     .help = "With strategy lookahead: how far ahead a shard loads timers."},
    {"load-interval", GROUP_ENGINE, SETTING_DURATION, AT(engine.load_interval_us), .min = SECOND, .max = 30 * SECOND,
     .initial = "5s", .value_name = "TIME",
     .help = "With strategy lookahead: longest time between two reads of the store."},
    {"load-batch", GROUP_ENGINE, SETTING_NUMBER, AT(engine.load_batch), .min = 1, .max = 1000000, .initial = "1000",
     .value_name = "N",
     .help = "With strategy lookahead: number of timers per read of the store."},
    {"delete-batch", GROUP_ENGINE, SETTING_NUMBER, AT(engine.delete_batch), .min = 1, .max = 1000000, .initial = "1000",
     .value_name = "N",
     .help = "With strategy lookahead: number of settled timers per delete."},
    {"catch-up-rate", GROUP_ENGINE, SETTING_NUMBER, AT(engine.catch_up_rate), .min = 1, .max = 1000000000, .none = true,
     .initial = "none", .value_name = "N",
     .help = "Timers per second and shard that fire if they were missed while no server ran. none: no limit."},
    {"skip-older", GROUP_ENGINE, SETTING_DURATION, AT(engine.skip_older_us), .min = MS, .max = 100 * YEAR, .none = true,
     .initial = "none", .value_name = "TIME",
     .help = "Timers that were missed by more than this do not fire. none: all fire."},
    {"history-bytes", GROUP_ENGINE, SETTING_SIZE, AT(engine.history_bytes), .min = MIB, .max = 1024 * 1024 * MIB,
     .initial = "1GiB", .value_name = "SIZE",
     .help = "Bytes of history per shard. Beyond that, the oldest goes first."},
    {"retry-initial", GROUP_ENGINE, SETTING_DURATION, AT(engine.retry.initial_us), .min = MS, .max = 30 * DAY,
     .initial = "1s", .value_name = "TIME",
     .help = "Wait after the first failed attempt."},
    {"retry-multiplier", GROUP_ENGINE, SETTING_FACTOR, AT(engine.retry.multiplier_1000), .min = 1000, .max = 100000,
     .initial = "2", .value_name = "FACTOR",
     .help = "Each further wait is this many times as long."},
    {"retry-max-interval", GROUP_ENGINE, SETTING_DURATION, AT(engine.retry.max_interval_us), .min = MS, .max = YEAR,
     .initial = "1h", .value_name = "TIME",
     .help = "Longest wait between two attempts."},
    {"retry-max-attempts", GROUP_ENGINE, SETTING_NUMBER, AT(engine.retry.max_attempts), .min = 1, .max = 1000000,
     .none = true, .initial = "10", .value_name = "N",
     .help = "After this many attempts, a timer becomes a dead letter. none: no limit."},
    {"retry-max-age", GROUP_ENGINE, SETTING_DURATION, AT(engine.retry.max_age_us), .min = MS, .max = 100 * YEAR,
     .none = true, .initial = "none", .value_name = "TIME",
     .help = "This long after its due time, a timer that still fails becomes a dead letter. none: no limit."},

    {"allow-private-targets", GROUP_WEBHOOKS, SETTING_FLAG, AT(allow_private_targets), .initial = "no",
     .help = "Also call targets in private, loopback and link-local networks."},
    {"webhook-concurrency", GROUP_WEBHOOKS, SETTING_NUMBER, AT(webhook_concurrency), .min = 1, .max = 100000,
     .initial = "1000", .value_name = "N",
     .help = "Maximum number of webhooks in progress."},
    {"webhook-per-host", GROUP_WEBHOOKS, SETTING_NUMBER, AT(webhook_per_host), .min = 1, .max = 100000,
     .initial = "100", .value_name = "N",
     .help = "Maximum number of webhooks in progress per host."},
    {"webhook-timeout", GROUP_WEBHOOKS, SETTING_DURATION, AT(webhook_timeout_us), .min = 100 * MS, .max = HOUR,
     .initial = "30s", .value_name = "TIME",
     .help = "How long a target may take if its timer has no timeout."},

    {"max-connections", GROUP_LIMITS, SETTING_NUMBER, AT(max_connections), .min = 1, .max = 1000000, .initial = "10000",
     .value_name = "N",
     .help = "Maximum number of connections. Further connections get 503."},
    {"max-head", GROUP_LIMITS, SETTING_SIZE, AT(max_head), .min = KIB, .max = MIB, .initial = "16KiB",
     .value_name = "SIZE",
     .help = "Maximum size of a request line and headers together."},
    {"max-url", GROUP_LIMITS, SETTING_SIZE, AT(max_url), .min = 256, .max = 64 * KIB, .initial = "8KiB",
     .value_name = "SIZE",
     .help = "Maximum size of path and query. At most max-head."},
    {"max-body", GROUP_LIMITS, SETTING_SIZE, AT(max_body), .min = KIB, .max = 64 * MIB,
     .otherwise = "1MiB, or twice max-payload if that is more", .value_name = "SIZE",
     .help = "Maximum size of a request body, or of one line of a batch. At least max-payload."},
    {"max-memory", GROUP_LIMITS, SETTING_SIZE, AT(max_memory), .min = 32 * MIB, .max = UINT64_C(1) << 50,
     .otherwise = "a quarter of the memory that the process may use, at most 1GiB", .value_name = "SIZE",
     .help = "Memory for timers that are due soon, large requests and responses together. Beyond it, work waits."},
    {"event-buffer", GROUP_LIMITS, SETTING_SIZE, AT(event_buffer), .min = 4 * KIB, .max = 1024 * MIB, .initial = "8MiB",
     .value_name = "SIZE",
     .help = "Memory for the latest events. Clients that reconnect with Last-Event-ID get the events that they missed."},
    {"max-payload", GROUP_LIMITS, SETTING_SIZE, AT(max_payload), .min = 1, .max = 8 * MIB, .initial = "256KiB",
     .value_name = "SIZE",
     .help = "Maximum size of the payload of a timer."},
    {"max-timers-per-namespace", GROUP_LIMITS, SETTING_NUMBER, AT(max_timers_per_namespace), .min = 1,
     .max = UINT64_C(1000000000000), .none = true, .initial = "none", .value_name = "N",
     .help = "Maximum number of pending timers per namespace. none: no limit."},
    {"max-request-rate", GROUP_LIMITS, SETTING_NUMBER, AT(max_request_rate), .min = 1, .max = 1000000000, .none = true,
     .initial = "none", .value_name = "N",
     .help = "Requests per second from one address. none: no limit."},
    {"head-timeout", GROUP_LIMITS, SETTING_DURATION, AT(head_timeout_us), .min = 100 * MS, .max = HOUR,
     .initial = "10s", .value_name = "TIME",
     .help = "How long a client may take to send a request line and headers."},
    {"body-timeout", GROUP_LIMITS, SETTING_DURATION, AT(body_timeout_us), .min = 100 * MS, .max = HOUR,
     .initial = "30s", .value_name = "TIME",
     .help = "How long a client may neither send nor receive a byte during a request."},
    {"idle-timeout", GROUP_LIMITS, SETTING_DURATION, AT(idle_timeout_us), .min = 100 * MS, .max = DAY,
     .initial = "75s", .value_name = "TIME",
     .help = "How long a connection may stay idle between requests."},
    {"stop-timeout", GROUP_LIMITS, SETTING_DURATION, AT(stop_timeout_us), .min = 0, .max = HOUR, .initial = "30s",
     .value_name = "TIME",
     .help = "How long requests and webhooks in progress may take to finish when the server stops."},
};
/* clang-format on */

const size_t setting_count = sizeof settings / sizeof settings[0];

_Static_assert(sizeof settings / sizeof settings[0] <= CONFIG_SETTINGS, "there is room for all origins");

const struct setting *setting_find(const char *name, size_t size)
{
    for (size_t i = 0; i < setting_count; i++)
        if (strlen(settings[i].name) == size && memcmp(settings[i].name, name, size) == 0)
            return &settings[i];
    return NULL;
}

/* --- Names that are nearly right --------------------------------------------------------------------------------- */

enum { NAME_MAX_SIZE = 40 };

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* How many letters have to be added, left out, changed or exchanged with the next to make one of the other. A row of the
 * usual table for each letter of `a`, of which the last three are kept. */
static unsigned distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    unsigned rows[3][NAME_MAX_SIZE + 1];
    for (size_t j = 0; j <= b_size; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_size; i++) {
        unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_size; j++) {
            row[j] = least(least(row[j - 1], above[j]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], above2[j - 2] + 1);
        }
    }
    return rows[a_size % 3][b_size];
}

const char *setting_nearest(const char *name, size_t size, bool option)
{
    static const char *const others[] = {"config", "check", "help"};
    const char *nearest = NULL;
    unsigned best = (unsigned)(size / 3) + 1; /* more would be another word */
    for (size_t i = 0; size <= NAME_MAX_SIZE && i < setting_count + (option ? 3 : 0); i++) {
        const char *known = i < setting_count ? settings[i].name : others[i - setting_count];
        unsigned d = distance(name, size, known, strlen(known));
        if (d < best) {
            best = d;
            nearest = known;
        }
    }
    return nearest;
}

bool config_option(size_t index, struct config_option *ret)
{
    if (index >= setting_count)
        return false;
    const struct setting *setting = &settings[index];
    *ret = (struct config_option){setting->name, setting->help,
                                  setting->kind == SETTING_FLAG ? NULL : setting->value_name};
    return true;
}
