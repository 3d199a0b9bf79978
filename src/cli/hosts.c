/* SPDX-License-Identifier: MIT */
/* `foliot hosts`: how calls of each target host went. */

#include "cli/ask.h"

static struct filter filter;
static uint64_t limit;
static bool as_json;

static int run(void)
{
    return ask_and_list(&(struct ask_list){.command = &hosts_command,
                                           .path = {"/v1/hosts"},
                                           .member = "hosts",
                                           .filter = &filter,
                                           .limit = limit,
                                           .as_json = as_json,
                                           .columns = {{"HOST", "host"},
                                                       {"CALLS", "calls"},
                                                       {"FAILURES", "failures"},
                                                       {"IN-FLIGHT", "in_flight"},
                                                       {"WAITING", "waiting"},
                                                       {"P50-MS", "p50", "latency_ms"},
                                                       {"P99-MS", "p99", "latency_ms"},
                                                       {"PAUSED", "paused"}},
                                           .none = "No calls yet."});
}

static const struct cli_option options[] = {
    {"prefix", "TEXT", "those whose names begin so", .text = &filter.prefix},
    {"limit", "N", "print at most N; default: all", .value = &limit, .min = 1, .max = UINT64_MAX},
    {"json", "", "print one JSON object per line", .flag = &as_json},
    {0},
};

const struct cli_command hosts_command = {
    .name = "hosts",
    .summary = "lists the target hosts: calls, failures, latency, pauses",
    .options = options,
    .run = run,
};
