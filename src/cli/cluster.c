/* SPDX-License-Identifier: MIT */
/* `foliot cluster`: the servers that share a store, and which shards each of them has. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/ask.h"

static bool as_json;
static const fl_bytes nobody = {"", 0};

/* Whether a shard has this owner; "": whether it has none. */
static bool has_owner(struct json shard, fl_bytes address)
{
    struct json owner;
    if (!json_get(shard, "owner", &owner) || owner.kind != JSON_STRING)
        return address.size == 0;
    return owner.text.size == address.size && memcmp(owner.text.data, address.data, address.size) == 0;
}

static void put_range(struct out *out, int64_t first, int64_t last)
{
    out_format(out, "%s%" PRId64, out->size > 0 ? " " : "", first);
    if (last > first)
        out_format(out, "-%" PRId64, last);
}

/* The shards of an owner as a cell of the table: "0-3 7". */
static void put_shards(struct table *table, struct json shards, fl_bytes address)
{
    struct out text = {0};
    struct json shard, number;
    int64_t first = -1, last = -1, i;
    for (struct json_walk walk = json_walk(shards); json_element(&walk, &shard);) {
        if (!has_owner(shard, address) || !json_get(shard, "shard", &number) || !json_integer(number, &i))
            continue;
        if (first >= 0 && i != last + 1) {
            put_range(&text, first, last);
            first = i;
        }
        first = first < 0 ? i : first;
        last = i;
    }
    if (first >= 0)
        put_range(&text, first, last);
    out_put(&text, "", 1);
    table->cells.failed |= text.failed;
    table_text(table, text.failed || !*text.data ? "-" : text.data);
    out_free(&text);
}

static void put_link(struct table *table, struct json server)
{
    struct json self, linked;
    if (json_get(server, "self", &self) && self.kind == JSON_TRUE)
        table_text(table, "this one");
    else if (json_get(server, "linked", &linked) && linked.kind == JSON_TRUE)
        table_text(table, "linked");
    else
        table_cell(table, server, "trouble");
}

static bool has_orphans(struct json shards)
{
    struct json shard;
    for (struct json_walk walk = json_walk(shards); json_element(&walk, &shard);)
        if (has_owner(shard, nobody))
            return true;
    return false;
}

static int print_table(struct json servers, struct json shards)
{
    struct table table = {.heads = {"SERVER", "VERSION", "SHARDS", "WHICH", "LINK"}};
    struct json server, address;
    for (struct json_walk walk = json_walk(servers); json_element(&walk, &server);) {
        if (!json_get(server, "address", &address))
            continue;
        table_cell(&table, server, "address");
        table_cell(&table, server, "version");
        table_cell(&table, server, "shards");
        put_shards(&table, shards, address.text);
        put_link(&table, server);
    }
    if (has_orphans(shards)) {
        for (const char *const *text = (const char *const[]){"no owner", "-", "-", NULL}; *text; text++)
            table_text(&table, *text);
        put_shards(&table, shards, nobody);
        table_text(&table, "-");
    }
    int status = table_flush(&table);
    table_free(&table);
    return status;
}

static int show_cluster(struct json answer)
{
    struct json servers, shards;
    bool good = json_get(answer, "servers", &servers) && json_get(answer, "shards", &shards);
    return good ? print_table(servers, shards) : CLI_OK;
}

static int run(void)
{
    return ask_and_show(
        &(struct ask){.command = &cluster_command, .path = {"/v1/cluster"}, .as_json = as_json, .show = show_cluster});
}

static const struct cli_option options[] = {{"json", "", "print JSON", .flag = &as_json}, {0}};

const struct cli_command cluster_command = {
    .name = "cluster",
    .summary = "shows the servers of a store and the shards of each",
    .options = options,
    .run = run,
};
