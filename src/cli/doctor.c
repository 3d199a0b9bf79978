/* SPDX-License-Identifier: MIT */
/* `foliot doctor`: checks a store that no server uses.
 *
 * Opening the store checks its kind, its schema, and that no process has it open. Then, shard by shard, it runs the
 * database's own checks (doctor_sqlite.c, doctor_postgres.c), and reads every row through the store. It claims nothing and
 * so changes nothing. A row is sound if it is in its window, can be read, and belongs to this shard by its name, which no
 * other row has. An orphan is a record of where a row was moved to, without that row. */

#include "cli/doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <foliot/error.h>

#include "cli/cli.h"
#include "cli/show.h"
#include "engine/engine.h"
#include "server/server.h"
#include "text/when.h"
#include "store/store.h"

static const char *store_argument;
static bool accept_loss;

enum { PAGE = 1000 };

/* --- Rows --------------------------------------------------------------------------------------------------------- */

struct examination {
    struct doctor *doctor;
    fl_loop *loop;
    fl_shard *shard;
    struct facts facts;
    uint32_t number, shards;
    bool answered;
    void (*look)(struct examination *x, fl_store_request *request);
    uint64_t timers, settled, dead, own; /* own: what the server keeps for itself */
    uint64_t history;                    /* rows */
    uint64_t *names, *seqs;              /* hashes of names, numbers of rows */
    size_t name_count, seq_count;
    bool no_memory;
};

/* What the store gives back is looked at inside of this, for it is valid no longer. */
static void answered(fl_store_request *request)
{
    struct examination *x = request->arg;
    x->answered = true;
    if (request->result < 0)
        doctor_problem(x->doctor, x->number, "%s", request->message);
    else
        x->look(x, request);
}

static int ask(struct examination *x, fl_store_request *request,
               void (*look)(struct examination *x, fl_store_request *request))
{
    request->done = answered;
    request->arg = x;
    x->answered = false;
    x->look = look;
    fl_store_submit(x->shard, request);
    while (!x->answered)
        fl_loop_run_once(x->loop, true);
    return request->result;
}

static void note(struct examination *x, uint64_t **array, size_t *count, uint64_t value)
{
    void *grown = *array;
    if (!doctor_reserve(&grown, *count, sizeof value))
        x->no_memory = true;
    *array = grown;
    if (!x->no_memory)
        (*array)[(*count)++] = value;
}

static void check_row(struct examination *x, const fl_row *row, uint64_t window)
{
    fl_durable timer;
    char due[WHEN_TEXT];
    when_format(row->key.at_us, due);
    note(x, &x->seqs, &x->seq_count, row->key.seq);
    x->no_memory |= x->facts.tallies && !facts_count(&x->facts, row->ns, 1);
    if (fl_progress_settled(&x->facts.progress, row->key)) {
        x->settled++;
        return;
    }
    bool own = row->ns.size > 0 && *(const char *)row->ns.data == '\1';
    x->timers++;
    x->own += row->ns.size > 0 && *(const unsigned char *)row->ns.data < ' '; /* settings, schedules */
    if (row->key.at_us < fl_window_begin(window) || row->key.at_us >= fl_window_end(window))
        doctor_problem(x->doctor, x->number, "the timer due %s is in the wrong window of time", due);
    if (fl__body_decode(row->body, row->key.at_us, &timer) < 0)
        doctor_problem(x->doctor, x->number, "the timer due %s cannot be read", due);
    if (x->facts.progress.seq_limit > 0 && row->key.seq >= x->facts.progress.seq_limit)
        doctor_problem(x->doctor, x->number, "the timer due %s has a sequence number that the store has not assigned",
                       due);
    if (row->name.size == 0)
        return;
    if (!own && fl_store_shard_of(x->shards, row->ns, row->name) != x->number) /* the server's own may be in each */
        doctor_problem(x->doctor, x->number, "the timer due %s is in the wrong shard for its name", due);
    note(x, &x->names, &x->name_count, fl_store_hash(row->ns, row->name));
}

static void look_at_rows(struct examination *x, fl_store_request *request)
{
    for (size_t i = 0; i < request->list.count; i++)
        check_row(x, &request->list.rows[i], request->list.window);
}

static int check_window(struct examination *x, uint64_t window)
{
    fl_store_request request = {
        .op = FL_STORE_LIST,
        .list = {.window = window, .from_us = 0, .until_us = FL_STORE_TIME_END, .limit = PAGE},
    };
    int r;
    do {
        r = ask(x, &request, look_at_rows);
        request.list.after_seq = request.list.next_seq;
    } while (r == 0 && request.list.next_seq != 0);
    return r;
}

static void look_at_dead(struct examination *x, fl_store_request *request)
{
    fl_durable timer;
    x->dead += request->dead_list.count;
    for (size_t i = 0; i < request->dead_list.count; i++) {
        const fl_row *row = &request->dead_list.rows[i].row;
        if (fl__body_decode(row->body, row->id.at_us, &timer) < 0)
            doctor_problem(x->doctor, x->number, "the dead letter with sequence number %" PRIu64 " cannot be read",
                           row->id.seq);
    }
}

static int check_dead(struct examination *x)
{
    fl_store_request request = {.op = FL_STORE_DEAD_LIST, .dead_list = {.limit = PAGE}};
    int r;
    do {
        r = ask(x, &request, look_at_dead);
        request.dead_list.after_seq = request.dead_list.next_seq;
    } while (r == 0 && request.dead_list.next_seq != 0);
    return r;
}

static void look_at_history(struct examination *x, fl_store_request *request)
{
    x->history += request->history.count;
}

/* The store checks what it reads. */
static int check_history(struct examination *x, uint64_t span)
{
    fl_store_request request = {
        .op = FL_STORE_HISTORY,
        .history = {.span = span, .from_us = INT64_MIN, .until_us = INT64_MAX, .limit = PAGE},
    };
    int r;
    do {
        r = ask(x, &request, look_at_history);
        request.history.before_seq = request.history.next_seq;
    } while (r == 0 && request.history.next_seq != 0);
    return r;
}

/* --- What is there all in all ------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void check_counts(struct examination *x)
{
    size_t wrong = 0;
    for (size_t i = 0; i < x->facts.tally_room; i++)
        wrong += x->facts.tallies[i].more != 0;
    if (wrong > 0)
        doctor_problem(x->doctor, x->number, "the stored number of timers is wrong for %zu namespaces", wrong);
}

static void check_moved(struct examination *x)
{
    size_t orphans = 0;
    if (x->seq_count > 0)
        qsort(x->seqs, x->seq_count, sizeof *x->seqs, compare);
    for (size_t i = 0; i < x->facts.moved_count; i++) {
        const fl_key *key = &x->facts.moved[i].key;
        orphans += !fl_progress_settled(&x->facts.progress, *key) &&
                   (x->seq_count == 0 || !bsearch(&key->seq, x->seqs, x->seq_count, sizeof *x->seqs, compare));
    }
    if (orphans > 0)
        doctor_problem(x->doctor, x->number, "%zu entries for moved timers have no timer", orphans);
}

/* Two timers of one name are no damage: a server that dies may have fired the first without having recorded it. */
static size_t count_doubles(struct examination *x)
{
    size_t doubles = 0;
    if (x->name_count > 0)
        qsort(x->names, x->name_count, sizeof *x->names, compare);
    for (size_t i = 1; i < x->name_count; i++)
        doubles += x->names[i] == x->names[i - 1];
    return doubles;
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void report(struct examination *x)
{
    size_t doubles = count_doubles(x);
    uint64_t timers = x->timers - x->own;
    printf("shard %" PRIu32 "  %" PRIu64 " timer%s, %" PRIu64 " settled and not deleted yet, %" PRIu64
           " dead letter%s; owner %s%s\n",
           x->number, timers, plural(timers), x->settled, x->dead, plural(x->dead),
           x->facts.owner[0] ? x->facts.owner : "none", x->facts.owner[0] ? ", which was killed" : "");
    if (x->history > 0)
        printf("shard %" PRIu32 "  %" PRIu64 " row%s of history\n", x->number, x->history, plural(x->history));
    if (doubles > 0)
        printf("note     shard %" PRIu32
               "  %zu %s two timers: the older one fired before the server died, and may fire again\n",
               x->number, doubles, doubles == 1 ? "name has" : "names have");
}

static void gone(fl_loop *loop, void *arg)
{
    (void)loop;
    ((struct examination *)arg)->answered = true;
}

static void check_rows(struct examination *x)
{
    int r = 0;
    for (size_t i = 0; i < x->facts.window_count && r == 0; i++)
        r = check_window(x, x->facts.windows[i]);
    if (r == 0)
        r = check_dead(x);
    for (size_t i = 0; i < x->facts.span_count && r == 0; i++)
        r = check_history(x, x->facts.spans[i]);
    if (r == 0 && !x->no_memory) {
        check_counts(x);
        check_moved(x);
    }
    if (x->no_memory)
        doctor_problem(x->doctor, x->number, "out of memory; counts and moved timers were not checked");
    report(x);
    x->answered = false;
    fl_store_detach(x->shard, gone, x);
    while (!x->answered)
        fl_loop_run_once(x->loop, true);
}

/* --- The store ---------------------------------------------------------------------------------------------------- */

struct kind {
    const char *prefix;
    int (*is_there)(const struct doctor *doctor, char *message, size_t size);
    int (*facts)(struct doctor *doctor, uint32_t shard, struct facts *ret);
    bool alone;                             /* a process that has it open locks others out */
    void (*examine)(struct doctor *doctor); /* reads everything in a store that is too damaged to be opened; or NULL */
};

static const struct kind kinds[] = {
#ifdef FOLIOT_SQLITE
    {"sqlite:", sqlite_is_there, sqlite_facts, true, sqlite_examine},
#endif
#ifdef FOLIOT_POSTGRES
    {"postgres://", postgres_is_there, postgres_facts, false, NULL},
    {"postgresql://", postgres_is_there, postgres_facts, false, NULL},
#endif
    {0},
};

static int say(int status, const char *message)
{
    fflush(stdout);
    fprintf(stderr, "foliot doctor: %s\n", message);
    return status;
}

/* A claim that its owner could not release, because it was killed or the disk was full, expires by itself. In a store that
 * this process has locked, no owner can be left. */
static bool is_held(const struct kind *kind, const struct facts *facts)
{
    return !kind->alone && facts->owner[0] && facts->lease_until_us > facts->now_us;
}

/* Returns an exit status. */
static int check_shard(struct doctor *doctor, const struct kind *kind, fl_store *store, fl_loop *loop, uint32_t shard)
{
    struct examination x = {.doctor = doctor, .loop = loop, .number = shard, .shards = fl_store_shards(store)};
    int r = kind->facts(doctor, shard, &x.facts), status = CLI_OK;
    if (r == 0 && is_held(kind, &x.facts)) {
        char message[400], until[WHEN_TEXT];
        when_format(x.facts.lease_until_us, until);
        snprintf(message, sizeof message,
                 "shard %" PRIu32 " is claimed by %s until %s; stop that server, or wait until then if it is dead",
                 shard, x.facts.owner, until);
        status = say(CLI_CONFLICT, message);
    } else if (r == 0) {
        r = fl_store_attach(store, shard, loop, &x.shard);
        if (r < 0)
            doctor_problem(doctor, shard, "%s", fl_strerror(r));
        else
            check_rows(&x);
    }
    facts_free(&x.facts);
    free(x.names);
    free(x.seqs);
    return status;
}

static int conclude(const struct doctor *doctor)
{
    char text[SHOWN];
    if (doctor->problems > DOCTOR_COMPLAINTS)
        printf("and %s more problems\n", show_count(text, (double)(doctor->problems - DOCTOR_COMPLAINTS)));
    puts(doctor->problems == 0 ? "The store is sound." : "The store is damaged; restore it from a backup.");
    return doctor->problems == 0 ? CLI_OK : CLI_FAILED;
}

/* Why the store cannot be opened, and what else is wrong with it. */
static int check_refused(struct doctor *doctor, const struct kind *kind, const char *why)
{
    printf("store    ");
    setting_write_masked(doctor->url, stdout);
    puts("  cannot be opened");
    doctor_problem(doctor, UINT32_MAX, "%s", why);
    kind->examine(doctor);
    return conclude(doctor);
}

static int check_store(struct doctor *doctor, const struct kind *kind, fl_store *store, fl_loop *loop)
{
    int status = CLI_OK;
    printf("store    ");
    setting_write_masked(doctor->url, stdout);
    printf("  %" PRIu32 " shard%s\n", fl_store_shards(store), plural(fl_store_shards(store)));
    for (uint32_t i = 0; i < fl_store_shards(store) && status == CLI_OK; i++)
        status = check_shard(doctor, kind, store, loop, i);
    return status == CLI_OK ? conclude(doctor) : status;
}

static int open_and_check(struct doctor *doctor, const struct kind *kind)
{
    char message[400] = "";
    fl_store *store;
    fl_loop *loop;
    int status = kind->is_there(doctor, message, sizeof message);
    if (status != CLI_OK)
        return say(status, message);
    const fl_store_config config = {.accept_loss = accept_loss};
    int r = fl_store_open(doctor->url, &config, &store, message, sizeof message);
    if (r == FL_STORE_CORRUPT && kind->examine)
        return check_refused(doctor, kind, message);
    if (r < 0)
        return say(r == FL_STORE_LOCKED ? CLI_CONFLICT : CLI_FAILED, message);
    r = fl_loop_new(NULL, &loop);
    if (r < 0) {
        status = say(CLI_FAILED, fl_strerror(r));
    } else {
        status = check_store(doctor, kind, store, loop);
        fl_loop_free(loop);
    }
    fl_store_close(store);
    return status;
}

static int run(void)
{
    char url[4200];
    struct stat info;
    bool there = stat(store_argument, &info) == 0, folder = there && S_ISDIR(info.st_mode);
    snprintf(url, sizeof url, "%s%s", folder ? "sqlite:" : "", store_argument);
    for (const struct kind *kind = kinds; kind->prefix; kind++)
        if (strncmp(url, kind->prefix, strlen(kind->prefix)) == 0) {
            bool file = strcmp(kind->prefix, "sqlite:") == 0;
            struct doctor doctor = {.url = url, .path = file ? url + strlen(kind->prefix) : NULL};
            return open_and_check(&doctor, kind);
        }
    if (strchr(store_argument, ':'))
        return cli_usage(&doctor_command, "cannot check the store '%s'; give FOLDER, sqlite:FOLDER or postgres://...;",
                         store_argument);
    fprintf(stderr, "foliot doctor: %s%s %s; give the folder of a store, or postgres://...\n",
            there ? "" : "the folder ", store_argument, there ? "is not a folder" : "does not exist");
    return CLI_NOT_FOUND;
}

static const struct cli_argument arguments[] = {
    {"STORE", "sqlite:FOLDER, FOLDER, or postgres://...", &store_argument, false},
    {0},
};

static const struct cli_option options[] = {
    {"accept", "", "continue without lost changes: a log that is missing or damaged, an older copy of a shard",
     .flag = &accept_loss},
    {0},
};

const struct cli_command doctor_command = {
    .name = "doctor",
    .summary = "checks a store that no server uses: version, owners, counts, every timer",
    .options = options,
    .arguments = arguments,
    .notes = "doctor upgrades a store of an earlier version when it opens it. Without --accept, it changes no timer.",
    .run = run,
};
