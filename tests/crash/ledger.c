/* SPDX-License-Identifier: MIT */
/* See ledger.h. */

#include "crash/ledger.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

#define REQUIRE(condition, packet, timer)                  \
    do {                                                   \
        if (!(condition))                                  \
            complain(__LINE__, #condition, packet, timer); \
    } while (0)

/* Everything that was said, to be printed should something be wrong. */
static struct history {
    struct packet *packets;
    size_t count, capacity;
} history;

static void remember(const struct packet *packet)
{
    if (history.count == history.capacity) {
        history.capacity = history.capacity * 2 + 1000;
        history.packets = realloc(history.packets, history.capacity * sizeof *history.packets);
        CHECK(history.packets);
    }
    history.packets[history.count++] = *packet;
}

static void print_history(uint32_t number)
{
    static const char *const names[] = {"create",  "move",      "cancel",   "get",   "list",   "step",
                                        "full",    "stop",      "answer",   "ready", "lost",   "fired",
                                        "settled", "recording", "recorded", "dead",  "failed", "CRASH"};
    for (size_t i = 0; i < history.count; i++) {
        const struct packet *p = &history.packets[i];
        if (p->said == CRASHED || (p->said != SAY_RECORDING && p->said != SAY_RECORDED && p->number == number))
            printf("# %s %s: shard %u version %u result %d id %" PRIu64 " due %" PRId64 " at %" PRId64 "\n",
                   names[p->said], p->said == SAY_ANSWER ? names[p->asked] : "", p->shard, p->version, p->result,
                   p->id.seq, p->due_us, p->at_us);
    }
}

static void complain(int line, const char *rule, const struct packet *p, const struct timer *t)
{
    print_history(p->number);
    test_fail(__FILE__, line,
              "%s: timer %u (version %u at %" PRId64 ", maybe %s %u at %" PRId64 " by %d; flying %d over %d fired %d "
              "finished %d final %d), said %d asked %d version %u result %d due %" PRId64 " at %" PRId64,
              rule, p->number, t->now.there ? t->now.version : 0, t->now.due_us, t->unsure ? "" : "not",
              t->maybe.there ? t->maybe.version : 0, t->maybe.due_us, (int)t->by, t->flying, t->over, t->fired,
              t->finished, t->final, (int)p->said, (int)p->asked, p->version, p->result, p->due_us, p->at_us);
}

void ledger_init(struct ledger *ledger, uint32_t capacity)
{
    *ledger = (struct ledger){.capacity = capacity};
    ledger->timers = calloc(capacity, sizeof *ledger->timers);
    CHECK(ledger->timers);
}

void ledger_free(struct ledger *ledger)
{
    for (int i = 0; i < 8; i++) {
        free(ledger->shards[i].numbers);
        free(ledger->shards[i].versions);
    }
    free(ledger->timers);
    free(history.packets);
    history = (struct history){0};
}

/* --- Asking -------------------------------------------------------------------------------------------------------- */

uint32_t ledger_add(struct ledger *ledger, bool named)
{
    CHECK(ledger->count < ledger->capacity);
    ledger->timers[ledger->count].named = named;
    return ledger->count++;
}

static bool can_ask(const struct timer *t, enum said what)
{
    if (t->asked || (!t->named && !t->known_id && (what != ASK_CREATE || t->versions > 0)))
        return false;
    return what == ASK_GET || !t->unsure;
}

bool ledger_ask(struct ledger *ledger, enum said what, uint32_t number, int64_t due_us, struct packet *ret)
{
    struct timer *t = &ledger->timers[number];
    if (!can_ask(t, what))
        return false;
    *ret = (struct packet){.said = what, .number = number, .named = t->named, .id = t->id, .due_us = due_us};
    remember(ret);
    t->asked = true;
    t->raced = false;
    ledger->outstanding++;
    if (what == ASK_GET)
        return true;
    t->by = what;
    t->unheard = what == ASK_CREATE;
    t->was_finished = false;
    t->maybe = (struct state){.there = what != ASK_CANCEL, .version = ++t->versions, .due_us = due_us};
    t->unsure = true;
    ret->version = t->maybe.version;
    return true;
}

/* --- Learning ------------------------------------------------------------------------------------------------------ */

/* The operation took effect: what is there now has not fired yet. */
static void take(struct timer *t)
{
    t->before = t->finished && !t->final ? t->now : (struct state){0};
    t->now = t->maybe;
    t->not_before_us = t->now.due_us;
    t->unsure = t->flying = t->over = t->fired = t->finished = t->dead = t->final = false;
}

static bool is_ghost(const struct timer *t)
{
    return t->ghost != 0 && t->ghost == t->now.version;
}

static void check_refusal(const struct timer *t, const struct packet *p)
{
    if (p->result == FL_TIMER_NOT_FOUND)
        REQUIRE(!t->now.there || t->fired, p, t);
    else if (p->result == FL_BUSY)
        REQUIRE(t->now.there && (t->fired || t->now.due_us <= p->at_us), p, t);
    else
        REQUIRE(p->result == FL_STORE_UNAVAILABLE || p->result == FL_STORE_FULL || p->result == FL_SHARD_LOST ||
                    p->result == FL_STOPPED,
                p, t);
}

static void hear_change(struct ledger *ledger, struct timer *t, const struct packet *p)
{
    t->unheard = false;
    if (p->result == FL_OUTCOME_UNKNOWN) {
        ledger->unknown++;
        if (p->asked == ASK_CREATE && (!t->now.there || t->finished || t->now.version == p->version))
            t->ghost = p->version;
        return;
    }
    if (p->result < 0) {
        check_refusal(t, p);
        t->unsure = false;
        return;
    }
    ledger->acknowledged++;
    if (p->asked == ASK_CREATE && !t->named) {
        t->id = p->id;
        t->known_id = true;
    }
    if (t->unsure) { /* else it has fired before the answer came, which has told as much */
        REQUIRE(p->asked == ASK_CREATE || (t->now.there && !t->final && !t->over), p, t);
        take(t);
    }
}

/* A timer in doubt is not in the store. If it was settled before the crash, its creation may have taken effect, and the late
 * answer may still say so: then it is over. */
static void hear_absent(struct timer *t)
{
    t->unsure = false;
    if (t->was_finished) {
        take(t);
        t->fired = t->finished = t->final = true;
    }
}

static void hear_get(struct timer *t, const struct packet *p)
{
    if (p->result == 0) {
        bool is_now = t->now.there && p->version == t->now.version;
        REQUIRE(is_now || (t->unsure && t->maybe.there && p->version == t->maybe.version), p, t);
        if (!is_now)
            take(t);
        t->ghost = 0;
        REQUIRE(t->raced || t->dead || (!t->final && !t->over), p, t);
        t->unsure = false;
    } else if (p->result == FL_TIMER_NOT_FOUND) {
        REQUIRE(!t->now.there || t->fired || (t->unsure && !t->maybe.there), p, t);
        if (t->unsure && !t->maybe.there && !t->fired)
            take(t);
        else if (t->unsure && !t->now.there)
            hear_absent(t);
    }
}

static void hear_answer(struct ledger *ledger, const struct packet *p)
{
    if (p->asked > ASK_GET)
        return;
    struct timer *t = &ledger->timers[p->number];
    REQUIRE(t->asked, p, t);
    t->asked = false;
    ledger->outstanding--;
    if (p->asked == ASK_GET)
        hear_get(t, p);
    else
        hear_change(ledger, t, p);
}

/* --- Firing -------------------------------------------------------------------------------------------------------- */

static void hear_fired(struct ledger *ledger, const struct packet *p)
{
    REQUIRE(p->number < ledger->count, p, ledger->timers);
    struct timer *t = &ledger->timers[p->number];
    bool is_now = t->now.there && p->version == t->now.version;
    REQUIRE(is_now || (t->unsure && t->maybe.there && p->version == t->maybe.version), p, t);
    if (!is_now)
        take(t);
    else if (!t->asked)
        t->unsure = false;
    REQUIRE(p->at_us >= t->not_before_us, p, t);
    REQUIRE(!t->flying, p, t);
    REQUIRE(!t->over, p, t);
    REQUIRE(!t->final, p, t);
    ledger->fired++;
    ledger->repeated += t->finished;
    t->fired = t->flying = t->raced = true;
}

static void note_done(struct ledger *ledger, const struct packet *p)
{
    typeof(ledger->shards[0]) *shard = &ledger->shards[p->shard];
    if (shard->count == shard->capacity) {
        shard->capacity = shard->capacity * 2 + 64;
        shard->numbers = realloc(shard->numbers, shard->capacity * sizeof *shard->numbers);
        shard->versions = realloc(shard->versions, shard->capacity * sizeof *shard->versions);
        CHECK(shard->numbers && shard->versions);
    }
    shard->numbers[shard->count] = p->number;
    shard->versions[shard->count++] = p->version;
}

static void hear_settled(struct ledger *ledger, const struct packet *p)
{
    struct timer *t = &ledger->timers[p->number];
    ledger->settled++;
    if (!t->now.there || p->version != t->now.version)
        return; /* it was replaced while it was under way */
    REQUIRE(t->flying, p, t);
    t->flying = false;
    t->raced = true;
    if (p->result != FL_DONE && p->at_us < t->not_before_us)
        t->not_before_us = p->at_us; /* the clock was set back; a repetition counts from there */
    if (p->result == FL_DONE)
        note_done(ledger, p);
    if (p->result == FL_DONE || p->result == FL_DEAD) {
        t->over = t->finished = true;
        t->dead = p->result == FL_DEAD;
    }
}

static void hear_recorded(struct ledger *ledger, uint32_t index)
{
    typeof(ledger->shards[0]) *shard = &ledger->shards[index];
    for (uint32_t i = 0; i < shard->begun; i++) {
        struct timer *t = &ledger->timers[shard->numbers[i]];
        if (t->now.there && t->now.version == shard->versions[i])
            t->final = true;
    }
    shard->count -= shard->begun;
    if (shard->count > 0) {
        memmove(shard->numbers, shard->numbers + shard->begun, shard->count * sizeof *shard->numbers);
        memmove(shard->versions, shard->versions + shard->begun, shard->count * sizeof *shard->versions);
    }
    shard->begun = 0;
}

void ledger_hear(struct ledger *ledger, const struct packet *p)
{
    remember(p);
    if (p->said == SAY_ANSWER)
        hear_answer(ledger, p);
    else if (p->said == SAY_FIRED)
        hear_fired(ledger, p);
    else if (p->said == SAY_SETTLED)
        hear_settled(ledger, p);
    else if (p->said == SAY_RECORDING)
        ledger->shards[p->shard].begun = ledger->shards[p->shard].count;
    else if (p->said == SAY_RECORDED)
        hear_recorded(ledger, p->shard);
    else if (p->said == SAY_DEAD) {
        struct timer *t = &ledger->timers[p->number];
        t->listed |= p->version == t->now.version;
    }
}

void ledger_hear_late(struct ledger *ledger, const struct packet *p)
{
    remember(p);
    if (p->said != SAY_ANSWER || p->asked > ASK_CANCEL || p->result != 0)
        return;
    struct timer *t = &ledger->timers[p->number];
    if (t->unsure && t->maybe.version == p->version) {
        take(t);
        t->finished = t->was_finished; /* which may be on record */
    }
    REQUIRE(t->now.version >= p->version, p, t);
}

void ledger_crash(struct ledger *ledger)
{
    remember(&(struct packet){.said = CRASHED});
    for (uint32_t i = 0; i < ledger->count; i++) {
        struct timer *t = &ledger->timers[i];
        t->asked = t->flying = t->over = false;
        bool is_doubtful = is_ghost(t) || (t->unheard && t->now.version == t->maybe.version);
        if (is_doubtful && t->fired) { /* it was in memory; nobody knows about the store */
            t->was_finished = t->finished;
            t->maybe = t->now;
            t->now = t->before;
            t->not_before_us = t->now.due_us;
            t->fired = t->finished = t->now.there;
            t->dead = t->final = false;
            t->unsure = true;
        }
        t->ghost = 0;
        t->unheard = false;
    }
    for (int i = 0; i < 8; i++)
        ledger->shards[i].count = ledger->shards[i].begun = 0;
    ledger->outstanding = 0;
}

/* --- At the end ---------------------------------------------------------------------------------------------------- */

static bool is_left(const struct timer *t)
{
    bool there = t->now.there && !is_ghost(t) && (!t->unsure || t->maybe.there);
    return t->asked || t->flying || (there && !t->finished);
}

uint32_t ledger_left(const struct ledger *ledger)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < ledger->count; i++)
        left += is_left(&ledger->timers[i]);
    return left;
}

void ledger_complain_left(const struct ledger *ledger)
{
    for (uint32_t i = 0; i < ledger->count; i++) {
        struct packet packet = {.said = ASK_GET, .number = i};
        REQUIRE(!is_left(&ledger->timers[i]), &packet, &ledger->timers[i]);
    }
}

void ledger_check_dead(const struct ledger *ledger)
{
    for (uint32_t i = 0; i < ledger->count; i++) {
        const struct timer *t = &ledger->timers[i];
        struct packet packet = {.said = SAY_DEAD, .number = i};
        REQUIRE(!t->dead || !t->now.there || t->listed, &packet, t);
    }
}
