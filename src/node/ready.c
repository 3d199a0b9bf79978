/* SPDX-License-Identifier: MIT */
/* Whether the server is ready, why not, and what to do: /readyz says it. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "node/internal.h"

void node_hindered(struct node *node, enum hindered by, const char *why)
{
    fl__assert(by < HINDERED_CAUSES);
    pthread_mutex_lock(&node->hindrance.lock);
    snprintf(node->hindrance.text[by], sizeof node->hindrance.text[by], "%s", why);
    pthread_mutex_unlock(&node->hindrance.lock);
}

/* --- Shards ------------------------------------------------------------------------------------------------------- */

static const char *advice(int result)
{
    switch (result) {
    case FL_SHARD_HELD:
        return "the shard moves here when the other server stops or does not renew its claim; to end the wait, stop "
               "that "
               "server";
    case FL_STORE_FULL:
        return "free space on the disk of the store, and the server goes on by itself";
    case FL_STORE_READ_ONLY:
        return "let the server write to the store: check the rights of its files or of its role, and whether it is "
               "read-only";
    case FL_STORE_CORRUPT:
        return "examine the store with \"foliot doctor\", or stop the server and restore a backup";
    case FL_NO_MEMORY:
        return "give the server more memory, or lower max-memory";
    default:
        return "see that the store works and can be reached, and the server goes on by itself";
    }
}

static const char *effect(const struct shard *shard)
{
    return shard->state == SHARD_LAPSED ? "fires no timers" : shard->state == SHARD_SERVING ? "has trouble" : "waits";
}

void shard_hindered(struct shard *shard, int result, const char *message)
{
    struct hindrance *hindrance = &shard->worker->node->hindrance;
    fl__assert(shard->state >= SHARD_CLAIMING && shard->state <= SHARD_LAPSED);
    pthread_mutex_lock(&hindrance->lock);
    hindrance->shards += !shard->hindered;
    shard->hindered = true;
    snprintf(hindrance->text[HINDERED_BY_SHARD], sizeof hindrance->text[0], "shard %" PRIu32 " %s: %.300s; %s",
             shard->number, effect(shard), message, advice(result));
    pthread_mutex_unlock(&hindrance->lock);
}

void shard_unhindered(struct shard *shard)
{
    struct hindrance *hindrance = &shard->worker->node->hindrance;
    if (!shard->hindered)
        return;
    shard->hindered = false;
    pthread_mutex_lock(&hindrance->lock);
    fl__assert(hindrance->shards > 0);
    if (--hindrance->shards == 0)
        hindrance->text[HINDERED_BY_SHARD][0] = '\0';
    pthread_mutex_unlock(&hindrance->lock);
}

/* --- Clocks ------------------------------------------------------------------------------------------------------- */

#define CLOCKS_DIFFER_US (10 * INT64_C(1000000)) /* timers would fire so much too early or too late */

bool node_clock_is_off(const struct node *node, char *why, size_t size)
{
    int64_t ahead_us = node->config.test_clock ? 0 : fl_store_clock_ahead_us(node->store);
    bool ahead = ahead_us > 0;
    if (ahead_us >= -CLOCKS_DIFFER_US && ahead_us <= CLOCKS_DIFFER_US)
        return false;
    snprintf(why, size,
             "the clock of this machine is %" PRId64 " s %s that of the database, so timers fire too %s;"
             " set both by NTP",
             (ahead ? ahead_us : -ahead_us) / 1000000, ahead ? "ahead of" : "behind", ahead ? "early" : "late");
    return true;
}

/* --- All of it ---------------------------------------------------------------------------------------------------- */

/* Connections are broken, and no request has failed for it yet. */
static bool is_away(struct node *node, char why[HINDRANCE_ROOM])
{
    char text[320];
    bool away = fl_store_is_away(node->store, text, sizeof text);
    if (away)
        snprintf(why, HINDRANCE_ROOM, "no connection to the database: %s; %s", text, advice(FL_STORE_UNAVAILABLE));
    return away;
}

bool node_is_ready(struct node *node, char why[HINDRANCE_ROOM])
{
    unsigned ready = atomic_load(&node->ready), here = atomic_load(&node->here);
    bool all = ready == here && (here == node->shard_count || node->cluster) && atomic_load(&node->joined) &&
               atomic_load(&node->settings_known) && !atomic_load(&node->stopping);
    if (node_clock_is_off(node, why, HINDRANCE_ROOM))
        return false;
    why[0] = '\0';
    pthread_mutex_lock(&node->hindrance.lock);
    bool hindered = node->hindrance.shards > 0;
    for (size_t i = 0; i < HINDERED_CAUSES && !why[0]; i++)
        memcpy(why, node->hindrance.text[i], HINDRANCE_ROOM);
    pthread_mutex_unlock(&node->hindrance.lock);
    if (!why[0])
        hindered = is_away(node, why);
    if (all && !hindered)
        return true;
    if (!why[0])
        snprintf(why, HINDRANCE_ROOM, "the server %s",
                 atomic_load(&node->stopping) ? "was told to stop" : "is still reading its shards and its namespaces");
    return false;
}

#define MINUTE_NS (60 * 1000000000ull)

/* All shards run into the same trouble, again and again: a message is told once per minute. Some alternate. */
bool trouble_is_news(const char *message, uint64_t now_ns)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        char text[256];
        uint64_t told_ns;
    } recent[4];
    static unsigned next;
    bool news = true;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof recent / sizeof *recent; i++)
        if (recent[i].told_ns > 0 && now_ns - recent[i].told_ns < MINUTE_NS && strcmp(recent[i].text, message) == 0)
            news = false;
    if (news) {
        snprintf(recent[next % 4].text, sizeof recent[0].text, "%s", message);
        recent[next++ % 4].told_ns = now_ns;
    }
    pthread_mutex_unlock(&lock);
    return news;
}
