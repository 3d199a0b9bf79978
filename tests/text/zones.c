/* SPDX-License-Identifier: MIT */
/* Sets of zones: names, two trees, reloading, versions. */

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <foliot/error.h>

#include "test.h"
#include "text/zone.h"
#include "tzif.h"

static void write_zone(const char *folder, const char *name, const char *rule)
{
    uint8_t file[TZIF_MAX];
    folder_write(folder, name, file, tzif_write(2, 0, NULL, 0, rule, file));
}

static const char *tree(const char *version)
{
    const char *folder = folder_new();
    write_zone(folder, "Europe/Berlin", "CET-1CEST,M3.5.0,M10.5.0/3");
    write_zone(folder, "Europe/Paris", "CET-1CEST,M3.5.0,M10.5.0/3");
    write_zone(folder, "America/Argentina/Salta", "<-03>3");
    write_zone(folder, "posix/Europe/Berlin", "CET-1");
    write_zone(folder, "right/Europe/Berlin", "CET-1");
    write_zone(folder, "localtime", "CET-1");
    write_zone(folder, ".hidden", "CET-1");
    folder_write(folder, "zone.tab", "a table", 7);
    if (version)
        folder_write(folder, "tzdata.zi", version, strlen(version));
    return folder;
}

static struct zones *load(const char *folder, const struct zones *old)
{
    char error[ZONE_ERROR_TEXT] = "";
    struct zones *zones = NULL;
    if (zones_load(folder, old, &zones, error) < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", folder, error);
    return zones;
}

static int find(const struct zones *zones, const char *name, struct zone **ret)
{
    static char error[ZONE_ERROR_TEXT];
    struct zone *zone = NULL;
    int r = zones_find(zones, (fl_bytes){name, strlen(name)}, &zone, error);
    if (ret)
        *ret = zone;
    else
        zone_unref(zone);
    return r;
}

static const char *error_of(const struct zones *zones, const char *name)
{
    static char error[ZONE_ERROR_TEXT];
    struct zone *zone = NULL;
    CHECK(zones_find(zones, (fl_bytes){name, strlen(name)}, &zone, error) < 0);
    return error;
}

TEST(names_are_those_of_the_directory)
{
    struct zones *zones = load(tree("# version 2026z\nmore\n"), NULL);
    CHECK_EQ(zones_count(zones), 3);
    CHECK_EQ(find(zones, "Europe/Berlin", NULL), 0);
    CHECK_EQ(find(zones, "America/Argentina/Salta", NULL), 0);
    CHECK_EQ(find(zones, "UTC", NULL), 0);
    CHECK_EQ(find(zones, "Etc/UTC", NULL), 0);
    static const char *const wrong[] = {
        "",
        "Europe",
        "Europe/",
        "/Europe/Berlin",
        "../Europe/Berlin",
        "Europe/../Europe/Berlin",
        "./Europe/Berlin",
        "Europe//Berlin",
        "europe/berlin",
        "posix/Europe/Berlin",
        "right/Europe/Berlin",
        "localtime",
        ".hidden",
        "zone.tab",
        "tzdata.zi",
        "Europe/Berlin ",
        "Europe/Berli",
        "Europe/Berlin/x",
        "/etc/passwd",
        "CET-1CEST",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_EQ(find(zones, wrong[i], NULL), FL_NOT_FOUND);
    char error[ZONE_ERROR_TEXT], many[300];
    struct zone *zone;
    CHECK_EQ(zones_find(zones, (fl_bytes){"Europe/Berlin\0", 14}, &zone, error), FL_NOT_FOUND);
    memset(many, 'a', sizeof many);
    CHECK_EQ(zones_find(zones, (fl_bytes){many, sizeof many}, &zone, error), FL_NOT_FOUND);
    CHECK(strcmp(error_of(zones, "europe/berlin"),
                 "there is no time zone \"europe/berlin\"; did you mean \"Europe/Berlin\"?") == 0);
    CHECK(strstr(error_of(zones, "Nowhere"), "in tzdata 2026z; use an IANA name such as Europe/Berlin"));
    zones_free(zones);
}

TEST(files_with_the_same_contents_are_one_zone)
{
    struct zones *zones = load(tree(NULL), NULL);
    struct zone *berlin, *paris;
    find(zones, "Europe/Berlin", &berlin);
    find(zones, "Europe/Paris", &paris);
    CHECK(berlin == paris);
    zones_free(zones);
    CHECK_EQ(zone_offset(berlin, utc_s("2026-07-01T00:00")), 7200); /* it outlives the set */
    zone_unref(berlin);
    zone_unref(paris);
}

TEST(the_version_is_what_the_directory_says)
{
    const char *folder = tree("# version 2026z\n");
    struct zones *zones = load(folder, NULL);
    CHECK(strcmp(zones_version(zones), "2026z") == 0);
    CHECK(strcmp(zones_directory(zones), folder) == 0);
    uint64_t hash = zones_hash(zones);
    zones_free(zones);

    folder = tree(NULL);
    folder_write(folder, "+VERSION", "2026y\n", 6);
    zones = load(folder, NULL);
    CHECK(strcmp(zones_version(zones), "2026y") == 0);
    CHECK(zones_hash(zones) == hash); /* the same zones */
    zones_free(zones);

    folder = tree("# version \"><script>\n");
    zones = load(folder, NULL);
    char text[32];
    snprintf(text, sizeof text, "hash-%016" PRIx64, hash);
    CHECK(strcmp(zones_version(zones), text) == 0);
    zones_free(zones);
    CHECK(strcmp(zones_version(NULL), "none") == 0);
}

TEST(another_tree_has_other_rules)
{
    const char *before = tree("# version 2026a\n"), *after = tree("# version 2026b\n");
    write_zone(after, "Europe/Paris", "CET-1"); /* summer time is abolished */
    struct zones *old = load(before, NULL), *new = load(after, old);
    struct zone *berlin[2], *paris[2];
    find(old, "Europe/Berlin", &berlin[0]);
    find(new, "Europe/Berlin", &berlin[1]);
    find(old, "Europe/Paris", &paris[0]);
    find(new, "Europe/Paris", &paris[1]);
    CHECK(berlin[0] == berlin[1]); /* nothing has changed for it */
    CHECK(paris[0] != paris[1]);
    CHECK_EQ(zone_offset(paris[0], utc_s("2026-07-01T00:00")), 7200);
    CHECK_EQ(zone_offset(paris[1], utc_s("2026-07-01T00:00")), 3600);
    CHECK(zones_hash(old) != zones_hash(new));
    for (int i = 0; i < 2; i++) {
        zone_unref(berlin[i]);
        zone_unref(paris[i]);
    }
    zones_free(old);
    zones_free(new);
}

static const char *problem_of(const struct zones *zones, const char *name)
{
    struct zones_entry entry;
    for (size_t i = 0; zones_at(zones, i, &entry); i++)
        if (strcmp(entry.name, name) == 0)
            return entry.problem;
    return NULL;
}

TEST(a_zone_that_has_disappeared_keeps_its_rules)
{
    const char *folder = tree("# version 2026a\n");
    char path[PATH_MAX];
    struct zones *sets[4] = {load(folder, NULL)};
    snprintf(path, sizeof path, "%s/Europe/Berlin", folder);
    CHECK_EQ(unlink(path), 0);
    folder_write(folder, "America/Argentina/Salta", "TZif2 and no more", 17);
    for (int i = 1; i < 4; i++) { /* also when it is read again and again */
        sets[i] = load(folder, sets[i - 1]);
        struct zone *berlin, *salta;
        CHECK_EQ(zones_count(sets[i]), 3);
        CHECK_EQ(find(sets[i], "Europe/Berlin", &berlin), 0);
        CHECK_EQ(find(sets[i], "America/Argentina/Salta", &salta), 0);
        CHECK_EQ(zone_offset(berlin, utc_s("2026-07-01T00:00")), 7200);
        CHECK_EQ(zone_offset(salta, utc_s("2026-07-01T00:00")), -10800);
        CHECK(strcmp(problem_of(sets[i], "Europe/Berlin"),
                     "time zone Europe/Berlin has disappeared from the directory; "
                     "its last known rules stay in use") == 0);
        CHECK(strstr(problem_of(sets[i], "America/Argentina/Salta"), "has a damaged file now; its last known rules"));
        CHECK(!problem_of(sets[i], "Europe/Paris"));
        zone_unref(berlin);
        zone_unref(salta);
    }
    for (int i = 0; i < 4; i++)
        zones_free(sets[i]);
}

TEST(a_damaged_file_is_reported_and_harms_no_other)
{
    const char *folder = tree(NULL);
    folder_write(folder, "America/Argentina/Salta", "TZif2 and no more", 17);
    struct zones *zones = load(folder, NULL);
    CHECK_EQ(find(zones, "America/Argentina/Salta", NULL), FL_INVALID_ARGUMENT);
    CHECK(
        strcmp(error_of(zones, "America/Argentina/Salta"),
               "time zone America/Argentina/Salta has a damaged file: the file is cut off after 17 bytes, inside of a "
               "header") == 0);
    CHECK_EQ(find(zones, "Europe/Berlin", NULL), 0);
    zones_free(zones);
}

/* Nothing here may be followed, waited for or read without end. */
TEST(odd_things_in_the_directory_are_passed_over)
{
    const char *folder = tree(NULL);
    char path[PATH_MAX], deep[] = "a/b/c/d/e/f/g/Zone";
    snprintf(path, sizeof path, "%s/Loop", folder);
    CHECK_EQ(symlink(".", path), 0);
    snprintf(path, sizeof path, "%s/Dangling", folder);
    CHECK_EQ(symlink("nothing", path), 0);
    snprintf(path, sizeof path, "%s/Pipe", folder);
    CHECK_EQ(mkfifo(path, 0600), 0);
    snprintf(path, sizeof path, "%s/Link", folder);
    CHECK_EQ(symlink("Europe/Berlin", path), 0);
    write_zone(folder, deep, "CET-1");
    folder_write(folder, "Empty", "", 0);
    struct zones *zones = load(folder, NULL);
    CHECK_EQ(zones_count(zones), 4);
    CHECK_EQ(find(zones, "Link", NULL), 0);
    zones_free(zones);
}

TEST(without_zones_there_is_a_clear_error)
{
    char error[ZONE_ERROR_TEXT];
    struct zones *zones;
    CHECK_EQ(zones_load("/nonexistent", NULL, &zones, error), FL_NOT_FOUND);
    CHECK(strcmp(error,
                 "there are no time zones in /nonexistent (No such file or directory); install the package tzdata, "
                 "or name another directory in TZDIR") == 0);
    CHECK_EQ(zones_load(folder_new(), NULL, &zones, error), FL_NOT_FOUND);
    CHECK(strstr(error, "install the package tzdata"));
    CHECK_EQ(find(NULL, "UTC", NULL), 0);
    CHECK(strstr(error_of(NULL, "Europe/Berlin"), "has no tzdata; only UTC works"));
}

TEST(the_environment_may_name_the_directory)
{
    const char *folder = tree("# version 2026x\n");
    setenv("TZDIR", folder, 1);
    struct zones *zones = load(NULL, NULL);
    CHECK(strcmp(zones_version(zones), "2026x") == 0);
    zones_free(zones);
    unsetenv("TZDIR");
}

/* All that the system has: the file that zic wrote is read without complaint. */
TEST(the_zones_of_this_machine_are_all_good)
{
    struct zones *zones = load(NULL, NULL);
    struct zones_entry entry;
    for (size_t i = 0; zones_at(zones, i, &entry); i++)
        if (entry.problem)
            test_fail(__FILE__, __LINE__, "%s", entry.problem);
    CHECK(zones_count(zones) > 300);
    zones_free(zones);
}
