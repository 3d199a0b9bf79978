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
     .help = "Where to listen. Other than loopback addresses need tokens. Port 0: one that is free."},
    {"store", GROUP_SERVER, SETTING_URL, AT(store), .max = 4096, .initial = "sqlite:foliot-data", .choices = stores,
     .value_name = "URL", .help = "Where timers are kept: sqlite:FOLDER, postgres://..., or memory: for tests."},
    {"shards", GROUP_SERVER, SETTING_NUMBER, AT(shards), .min = 1, .max = 65536,
     .otherwise = "as many as the store has; a new one as there are processors, at most 4", .value_name = "N",
     .help = "How many parts the store has. Fixed when it is made."},
    {"workers", GROUP_SERVER, SETTING_NUMBER, AT(workers), .min = 1, .max = 1024, .otherwise = "one a processor",
     .value_name = "N", .help = "How many threads share the connections, the shards and the webhooks."},
    {"owner", GROUP_SERVER, SETTING_TEXT, AT(owner), .max = FL_STORE_NAME_MAX,
     .otherwise = "the host's name and the process", .value_name = "NAME",
     .help = "As whom to claim the shards. No two servers of one store may have the same name."},
    {"advertise", GROUP_SERVER, SETTING_TEXT, AT(advertise), .max = FL_STORE_NAME_MAX,
     .otherwise = "this server is alone", .value_name = ADDRESS,
     .help = "Share the store with other servers, which reach this one here. Needs PostgreSQL."},
    {"tls-certificate", GROUP_SERVER, SETTING_TEXT, AT(tls_certificate), .max = 4096, .reload = true,
     .otherwise = "no TLS", .value_name = "FILE", .help = "The certificate and its chain (PEM). Needs tls-key."},
    {"tls-key", GROUP_SERVER, SETTING_TEXT, AT(tls_key), .max = 4096, .reload = true, .otherwise = "no TLS",
     .value_name = "FILE", .help = "The certificate's private key (PEM). Needs tls-certificate."},
    {"log-level", GROUP_SERVER, SETTING_CHOICE, AT(log_level), .reload = true, .initial = "info", .choices = levels,
     .value_name = "LEVEL", .help = "What goes to the log: error, warning, info or debug, and what is graver."},
    {"log-format", GROUP_SERVER, SETTING_CHOICE, AT(log_format), .reload = true, .initial = "auto", .choices = formats,
     .value_name = "FORMAT", .help = "logfmt, json, or auto: a short form on a terminal, and logfmt elsewhere."},
    {"echo", GROUP_SERVER, SETTING_FLAG, AT(echo), .otherwise = "yes if all addresses are loopback",
     .help = "Have the built-in target /echo, which shows the callbacks it gets."},
    {"hello", GROUP_SERVER, SETTING_FLAG, AT(hello), .initial = "no",
     .help = "Say what can be tried, and send a first callback to /echo."},
    {"test-clock", GROUP_SERVER, SETTING_FLAG, AT(test_clock), .initial = "no",
     .help = "Time stands still until POST /v1/clock moves it: for the tests of programs that use Foliot."},

    {"strategy", GROUP_ENGINE, SETTING_CHOICE, AT(engine.strategy), .initial = "preload", .choices = strategies,
     .value_name = "NAME",
     .help = "preload holds what is near in memory, lookahead almost nothing, and asks the store more often."},
    {"lease", GROUP_ENGINE, SETTING_DURATION, AT(engine.lease_us), .min = 100 * MS, .max = DAY, .initial = "3s",
     .value_name = "TIME", .help = "How long a claim of a shard is good. After a crash, others wait so long at most."},
    {"record-interval", GROUP_ENGINE, SETTING_DURATION, AT(engine.record_interval_us), .min = MS, .max = DAY,
     .initial = "1s", .value_name = "TIME", .help = "How often progress is recorded. A crash repeats at most as much."},
    {"max-memory-timers", GROUP_ENGINE, SETTING_NUMBER, AT(engine.max_memory_timers), .min = 16, .max = 1000000000,
     .initial = "100000", .value_name = "N", .help = "Timers that a shard holds in memory."},
    {"max-in-flight", GROUP_ENGINE, SETTING_NUMBER, AT(engine.max_in_flight), .min = 1, .max = 10000000,
     .initial = "50000", .value_name = "N", .help = "Timers of a shard that have fired and are not settled."},
    {"dispatch-batch", GROUP_ENGINE, SETTING_NUMBER, AT(engine.dispatch_batch), .min = 1, .max = 1000000,
     .initial = "1000", .value_name = "N", .help = "Timers of a shard that fire in one go."},
    {"preload", GROUP_ENGINE, SETTING_DURATION, AT(engine.preload_us), .min = SECOND, .max = 12 * HOUR, .initial = "2m",
     .value_name = "TIME", .help = "With strategy preload: how far ahead timers are loaded."},
    {"delete-interval", GROUP_ENGINE, SETTING_DURATION, AT(engine.delete_interval_us), .min = 100 * MS, .max = DAY,
     .initial = "30s", .value_name = "TIME", .help = "With strategy preload: how often what is settled is deleted."},
    {"lookahead", GROUP_ENGINE, SETTING_DURATION, AT(engine.lookahead_us), .min = MS, .max = MINUTE, .initial = "1s",
     .value_name = "TIME", .help = "With strategy lookahead: how far ahead timers are loaded."},
    {"load-interval", GROUP_ENGINE, SETTING_DURATION, AT(engine.load_interval_us), .min = SECOND, .max = 30 * SECOND,
     .initial = "5s", .value_name = "TIME", .help = "With strategy lookahead: how often at least to ask the store."},
    {"load-batch", GROUP_ENGINE, SETTING_NUMBER, AT(engine.load_batch), .min = 1, .max = 1000000, .initial = "1000",
     .value_name = "N", .help = "With strategy lookahead: timers that the store is asked for at once."},
    {"delete-batch", GROUP_ENGINE, SETTING_NUMBER, AT(engine.delete_batch), .min = 1, .max = 1000000, .initial = "1000",
     .value_name = "N", .help = "With strategy lookahead: timers that are settled before they are deleted."},
    {"catch-up-rate", GROUP_ENGINE, SETTING_NUMBER, AT(engine.catch_up_rate), .min = 1, .max = 1000000000, .none = true,
     .initial = "none", .value_name = "N",
     .help = "Timers of a shard, missed while no server ran, that fire in a second. none: no limit."},
    {"skip-older", GROUP_ENGINE, SETTING_DURATION, AT(engine.skip_older_us), .min = MS, .max = 100 * YEAR, .none = true,
     .initial = "none", .value_name = "TIME",
     .help = "Timers that were missed by more than this do not fire any more. none: all fire."},
    {"retry-initial", GROUP_ENGINE, SETTING_DURATION, AT(engine.retry.initial_us), .min = MS, .max = 30 * DAY,
     .initial = "1s", .value_name = "TIME", .help = "How long after the first failure a timer fires again."},
    {"retry-multiplier", GROUP_ENGINE, SETTING_FACTOR, AT(engine.retry.multiplier_1000), .min = 1000, .max = 100000,
     .initial = "2", .value_name = "FACTOR", .help = "How many times as long after each further failure."},
    {"retry-max-interval", GROUP_ENGINE, SETTING_DURATION, AT(engine.retry.max_interval_us), .min = MS, .max = YEAR,
     .initial = "1h", .value_name = "TIME", .help = "But never longer than this."},
    {"retry-max-attempts", GROUP_ENGINE, SETTING_NUMBER, AT(engine.retry.max_attempts), .min = 1, .max = 1000000,
     .none = true, .initial = "10", .value_name = "N",
     .help = "Attempts after which a timer goes to the dead letters. none: no limit."},
    {"retry-max-age", GROUP_ENGINE, SETTING_DURATION, AT(engine.retry.max_age_us), .min = MS, .max = 100 * YEAR,
     .none = true, .initial = "none", .value_name = "TIME",
     .help = "How long after it was first due a timer goes to the dead letters. none: no limit."},

    {"allow-private-targets", GROUP_WEBHOOKS, SETTING_FLAG, AT(allow_private_targets), .initial = "no",
     .help = "Call targets in private, loopback and link-local networks too."},
    {"webhook-concurrency", GROUP_WEBHOOKS, SETTING_NUMBER, AT(webhook_concurrency), .min = 1, .max = 100000,
     .initial = "1000", .value_name = "N", .help = "Calls under way at once."},
    {"webhook-per-host", GROUP_WEBHOOKS, SETTING_NUMBER, AT(webhook_per_host), .min = 1, .max = 100000,
     .initial = "100", .value_name = "N", .help = "Of them to one host."},
    {"webhook-timeout", GROUP_WEBHOOKS, SETTING_DURATION, AT(webhook_timeout_us), .min = 100 * MS, .max = HOUR,
     .initial = "30s", .value_name = "TIME", .help = "How long a target may take, unless the timer says."},

    {"max-connections", GROUP_LIMITS, SETTING_NUMBER, AT(max_connections), .min = 1, .max = 1000000, .initial = "10000",
     .value_name = "N", .help = "Connections at once."},
    {"max-head", GROUP_LIMITS, SETTING_SIZE, AT(max_head), .min = KIB, .max = MIB, .initial = "16KiB",
     .value_name = "SIZE", .help = "Of a request's first line and headers together."},
    {"max-url", GROUP_LIMITS, SETTING_SIZE, AT(max_url), .min = 256, .max = 64 * KIB, .initial = "8KiB",
     .value_name = "SIZE", .help = "Of a request's path and query. At most max-head."},
    {"max-body", GROUP_LIMITS, SETTING_SIZE, AT(max_body), .min = KIB, .max = 64 * MIB,
     .otherwise = "1MiB, or twice max-payload if that is more", .value_name = "SIZE",
     .help = "Of a request's body; a batch may be of any size, and its lines are limited. At least max-payload."},
    {"max-payload", GROUP_LIMITS, SETTING_SIZE, AT(max_payload), .min = 1, .max = 8 * MIB, .initial = "256KiB",
     .value_name = "SIZE", .help = "Of a timer's payload."},
    {"max-timers-per-namespace", GROUP_LIMITS, SETTING_NUMBER, AT(max_timers_per_namespace), .min = 1,
     .max = UINT64_C(1000000000000), .none = true, .initial = "none", .value_name = "N",
     .help = "Pending timers that a namespace may have. none: no limit."},
    {"max-request-rate", GROUP_LIMITS, SETTING_NUMBER, AT(max_request_rate), .min = 1, .max = 1000000000, .none = true,
     .initial = "none", .value_name = "N", .help = "Requests a second from one address. none: no limit."},
    {"head-timeout", GROUP_LIMITS, SETTING_DURATION, AT(head_timeout_us), .min = 100 * MS, .max = HOUR,
     .initial = "10s", .value_name = "TIME", .help = "How long a request's first line and headers may take."},
    {"body-timeout", GROUP_LIMITS, SETTING_DURATION, AT(body_timeout_us), .min = 100 * MS, .max = HOUR,
     .initial = "30s", .value_name = "TIME", .help = "How long a client may neither send nor take a byte."},
    {"idle-timeout", GROUP_LIMITS, SETTING_DURATION, AT(idle_timeout_us), .min = 100 * MS, .max = DAY,
     .initial = "75s", .value_name = "TIME", .help = "How long a connection is kept between requests."},
    {"stop-timeout", GROUP_LIMITS, SETTING_DURATION, AT(stop_timeout_us), .min = 0, .max = HOUR, .initial = "30s",
     .value_name = "TIME", .help = "How long requests and callbacks may take to end when the server is to stop."},
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
