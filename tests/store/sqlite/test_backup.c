/* SPDX-License-Identifier: MIT */
/* Copies of an embedded store while it is at work. */

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/conformance.h"
#include "store/sqlite/life.h"
#include "store/sqlite/place.h"

static int open_again(fl_store **ret)
{
    char message[300] = "";
    int r = fl_store_open(folder_url(), NULL, ret, message, sizeof message);
    if (r < 0)
        printf("# %s\n", message);
    return r;
}

static int open_new(uint32_t shards, fl_store **ret)
{
    (void)shards;
    new_folder();
    return fl_store_open(folder_url(), &(fl_store_config){.shards = 2}, ret, NULL, 0);
}

const struct store_under_test under_test = {.open = open_new, .reopen = open_again, .remove = remove_folder};

static struct asked to_copy(const char *name)
{
    struct asked asked = simple(FL_STORE_BACKUP, 0);
    const char *path = folder_file(name);
    asked.request.backup.path = remember(path, strlen(path) + 1);
    return asked;
}

/* Puts a copy in the place of shard 0. */
static void restore(const char *name)
{
    char from[300];
    snprintf(from, sizeof from, "%s", folder_file(name));
    detach(shard);
    fl_store_close(store);
    CHECK_EQ(rename(from, folder_file("shard-0000.db")), 0);
    CHECK_EQ(open_again(&store), FL_STORE_CORRUPT); /* it may lack what the other shards have */
    CHECK_EQ(fl_store_open(folder_url(), &(fl_store_config){.accept_loss = true}, &store, NULL, 0), 0);
    shard = attach(0);
}

static struct life life;

TEST(a_copy_is_the_shard_as_it_was)
{
    begin();
    life_begin(&life, 1);
    CHECK_EQ(life_claim(&life, shard), 0);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(life_step(&life, shard), 0);
    struct asked copy = to_copy("copy");
    CHECK_EQ(perform(shard, &copy), 0);
    struct life then = life;
    for (int i = 0; i < 20; i++)
        CHECK_EQ(life_step(&then, shard), 0);
    restore("copy");
    CHECK_EQ(life_look(&life, shard), 0);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(life_step(&life, shard), 0);
    CHECK_EQ(life_look(&life, shard), 0);
    end();
}

enum { BATCH = 50, BODY = 900 };

static void write_batch(uint64_t version, uint64_t *seq)
{
    static char body[BODY];
    fl_row rows[BATCH];
    for (int i = 0; i < BATCH; i++) {
        rows[i] = make_row(*seq += 2, 1000 + i, FL_WINDOW_SHIFT_NEAR);
        rows[i].body = (fl_bytes){body, sizeof body};
    }
    put(shard, version, rows, BATCH);
}

TEST(others_write_while_a_copy_is_made_and_it_is_whole)
{
    begin();
    uint64_t version = claim(shard, "me"), seq = 0, during = 0;
    for (int i = 0; i < SCALE(600, 100); i++)
        write_batch(version, &seq);
    uint64_t before = seq;
    fl_shard *other = attach(0);
    struct asked copy = to_copy("copy"), after = to_list(fl_window_of(1000, FL_WINDOW_SHIFT_NEAR));
    ask(other, &copy);
    ask(other, &after);
    while (!copy.answered) {
        write_batch(version, &seq);
        during++;
    }
    CHECK_EQ(await(&copy), 0);
    CHECK_EQ(await(&after), 0);
    CHECK(after.place > copy.place && during > 1);
    detach(other);
    restore("copy");
    fl_row *rows;
    size_t count = load(shard, fl_window_of(1000, FL_WINDOW_SHIFT_NEAR), &rows);
    CHECK(count % BATCH == 0 && count >= before / 2 && count <= seq / 2);
    CHECK_EQ(rows[count - 1].key.seq, count * 2);
    end();
}

TEST(what_waits_for_a_copy_goes_on_after_it_without_being_pushed)
{
    begin();
    struct asked copy = to_copy("copy"), after = to_list(fl_window_of(1000, FL_WINDOW_SHIFT_NEAR));
    claim(shard, "me");
    ask(shard, &copy);
    ask(shard, &after);
    CHECK_EQ(await(&copy), 0);
    CHECK_EQ(await(&after), 0);
    end();
}

TEST(a_copy_takes_no_name_that_is_taken)
{
    begin();
    struct asked first = to_copy("copy"), second = to_copy("copy"), nowhere = to_copy("not/there"), none = to_copy("x");
    none.request.backup.path = NULL;
    CHECK_EQ(perform(shard, &first), 0);
    struct stat before, after;
    CHECK_EQ(stat(first.request.backup.path, &before), 0);
    CHECK_EQ(perform(shard, &second), FL_EXISTS);
    CHECK(strstr(second.request.message, "exists already"));
    CHECK_EQ(stat(first.request.backup.path, &after), 0);
    CHECK_EQ(before.st_mtime, after.st_mtime);
    CHECK_EQ(perform(shard, &nowhere), FL_STORE_UNAVAILABLE);
    CHECK_EQ(perform(shard, &none), FL_INVALID_ARGUMENT);
    end();
}

TEST(a_copy_that_nobody_waits_for_is_taken_away)
{
    begin();
    uint64_t version = claim(shard, "me"), seq = 0;
    for (int i = 0; i < SCALE(400, 60); i++)
        write_batch(version, &seq);
    fl_shard *other = attach(0);
    struct asked copy = to_copy("copy"), second = to_copy("second");
    ask(other, &copy);
    int r = perform(shard, &second); /* refused, unless the first was quick */
    CHECK(r == FL_STORE_UNAVAILABLE || (r == 0 && copy.answered));
    detach(other);
    CHECK(copy.answered);
    if (copy.request.result < 0)
        CHECK(access(copy.request.backup.path, F_OK) < 0);
    write_batch(version, &seq);
    end();
}
