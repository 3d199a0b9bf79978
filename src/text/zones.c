/* SPDX-License-Identifier: MIT */
/* All zones of a directory.
 *
 * The directory is read whole, once, and then nothing of it is used any more: a name from a user is looked up in this
 * list and never becomes a path. Reading all files takes some milliseconds, and files with the same contents (a third of
 * the names are links to others) share one zone. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <foliot/error.h>

#include "base/alloc.h"
#include "text/mix.h"
#include "text/zone.h"

enum { DEPTH_MAX = 4, VERSION_TEXT = 32 };

struct entry {
    char name[ZONE_NAME_MAX + 1];
    uint64_t hash; /* of the file */
    struct zone *zone;
    char *problem;
};

struct zones {
    char *directory;
    char version[VERSION_TEXT];
    uint64_t hash;
    size_t count, room;
    struct entry *entries;
};

struct scan {
    struct zones *zones;
    uint8_t *file; /* ZONE_FILE_MAX + 1 bytes */
    char *error;
};

static int no_memory(const struct scan *scan)
{
    snprintf(scan->error, ZONE_ERROR_TEXT, "cannot read the time zones: %s", fl_strerror(FL_NO_MEMORY));
    return FL_NO_MEMORY;
}

static int cannot_read(const struct scan *scan, const char *folder)
{
    snprintf(scan->error, ZONE_ERROR_TEXT, "cannot read the directory of time zones %.100s/%.64s (%s)",
             scan->zones->directory, folder, strerror(errno));
    return FL_SYSTEM;
}

/* --- Problems ---------------------------------------------------------------------------------------------------- */

static bool set_problem(struct entry *entry, const char *reason, bool kept)
{
    char text[ZONE_ERROR_TEXT * 2];
    int size = snprintf(text, sizeof text, "time zone %s %s%s", entry->name, reason,
                        kept ? "; its last known rules stay in use" : "");
    entry->problem = fl__alloc((size_t)size + 1);
    if (entry->problem)
        memcpy(entry->problem, text, (size_t)size + 1);
    return entry->problem;
}

/* --- Reading the directory --------------------------------------------------------------------------------------- */

/* A name as IANA's rules allow it, one part of it: not hidden, nothing that means something to a shell or a path. */
static bool is_part(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-.";
    return name[0] != '.' && name[0] != '-' && name[0] != '+' && name[strspn(name, allowed)] == 0;
}

/* Beside the zones there are copies of all of them, with and without leap seconds, and names that mean the zone of this
 * machine: a schedule must mean the same on every server. */
static bool is_other(const char *name)
{
    static const char *const others[] = {"posix", "right", "localtime", "posixrules", "Factory"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0)
            return true;
    return false;
}

static struct entry *add_entry(struct zones *zones, const char *name)
{
    if (zones->count == zones->room) {
        size_t room = zones->room ? zones->room * 2 : 256;
        void *entries = fl__resize(zones->entries, room * sizeof *zones->entries);
        if (!entries)
            return NULL;
        zones->entries = entries;
        zones->room = room;
    }
    struct entry *entry = &zones->entries[zones->count++];
    *entry = (struct entry){0};
    snprintf(entry->name, sizeof entry->name, "%s", name);
    return entry;
}

static struct zone *find_same_file(const struct zones *zones, uint64_t hash)
{
    for (size_t i = 0; i < zones->count; i++)
        if (zones->entries[i].hash == hash && zones->entries[i].zone)
            return zone_ref(zones->entries[i].zone);
    return NULL;
}

/* At most ZONE_FILE_MAX + 1 bytes of a regular file; -1 if that cannot be read. */
static ssize_t read_whole(int directory, const char *name, uint8_t *buffer)
{
    struct stat status;
    int file = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t size = -1, got = 0;
    if (file < 0)
        return -1;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode))
        for (size = 0; size <= ZONE_FILE_MAX; size += got)
            if ((got = read(file, buffer + size, ZONE_FILE_MAX + 1 - (size_t)size)) <= 0)
                break;
    close(file);
    return got < 0 ? -1 : size;
}

static int add_file(const struct scan *scan, int directory, const char *part, const char *name)
{
    char error[ZONE_ERROR_TEXT], reason[ZONE_ERROR_TEXT + 32];
    ssize_t size = read_whole(directory, part, scan->file);
    if (size < 4 || memcmp(scan->file, "TZif", 4) != 0)
        return 0; /* a table, a document */
    uint64_t hash = mix_end(mix_bytes(MIX_BEGIN, scan->file, (size_t)size));
    struct zone *zone = find_same_file(scan->zones, hash);
    int r = zone ? 0 : zone_parse((fl_bytes){scan->file, (size_t)size}, &zone, error);
    if (r == FL_NO_MEMORY)
        return no_memory(scan);
    struct entry *entry = add_entry(scan->zones, name);
    if (!entry) {
        zone_unref(zone);
        return no_memory(scan);
    }
    entry->hash = hash;
    entry->zone = zone;
    scan->zones->hash += mix_end(mix_bytes(hash, name, strlen(name)));
    if (r < 0) {
        snprintf(reason, sizeof reason, "has a damaged file: %s", error);
        if (!set_problem(entry, reason, false))
            return no_memory(scan);
    }
    return 0;
}

/* Folders that are open, one inside the other. */
struct walk {
    const struct scan *scan;
    struct level {
        DIR *stream;
        char prefix[ZONE_NAME_MAX + 1]; /* of the names in it: "", "Europe/" */
    } levels[DEPTH_MAX];
    int depth;
};

/* Goes into a folder; takes over the descriptor, which may be -1. */
static int enter(struct walk *walk, int directory, const char *prefix)
{
    struct level *level = &walk->levels[walk->depth];
    level->stream = directory < 0 ? NULL : fdopendir(directory);
    if (!level->stream) {
        int r = cannot_read(walk->scan, prefix);
        if (directory >= 0)
            close(directory);
        return r;
    }
    snprintf(level->prefix, sizeof level->prefix, "%s", prefix);
    walk->depth++;
    return 0;
}

static int visit(struct walk *walk, const char *part)
{
    const struct level *level = &walk->levels[walk->depth - 1];
    int directory = dirfd(level->stream);
    struct stat status;
    char name[ZONE_NAME_MAX + 1];
    if (!is_part(part) || (walk->depth == 1 && is_other(part)) ||
        fstatat(directory, part, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    bool folder = S_ISDIR(status.st_mode);
    if (snprintf(name, sizeof name, "%s%s%s", level->prefix, part, folder ? "/" : "") >= (int)sizeof name)
        return 0;
    if (!folder)
        return add_file(walk->scan, directory, part, name);
    if (walk->depth == DEPTH_MAX)
        return 0;
    return enter(walk, openat(directory, part, O_RDONLY | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW), name);
}

static int read_all(const struct scan *scan, int directory)
{
    struct walk walk = {.scan = scan};
    int r = enter(&walk, fcntl(directory, F_DUPFD_CLOEXEC, 0), "");
    while (r == 0 && walk.depth > 0) {
        DIR *stream = walk.levels[walk.depth - 1].stream;
        const struct dirent *item = readdir(stream); /* NOLINT(concurrency-mt-unsafe): a stream of our own */
        if (item) {
            r = visit(&walk, item->d_name);
        } else {
            closedir(stream);
            walk.depth--;
        }
    }
    while (walk.depth > 0)
        closedir(walk.levels[--walk.depth].stream);
    return r;
}

/* --- The version ------------------------------------------------------------------------------------------------- */

/* What follows `before` up to the end of the first line of a file, if that looks like a version. */
static bool read_version(const struct scan *scan, int directory, const char *file, const char *before)
{
    ssize_t size = read_whole(directory, file, scan->file);
    size_t skip = strlen(before);
    if (size < (ssize_t)skip || memcmp(scan->file, before, skip) != 0)
        return false;
    const char *at = (const char *)scan->file + skip;
    size_t length = 0;
    while (length < (size_t)size - skip && at[length] > ' ' && at[length] <= '~' && at[length] != '"' &&
           at[length] != '\\')
        length++;
    if (length == 0 || length >= VERSION_TEXT || (length < (size_t)size - skip && at[length] != '\n'))
        return false;
    memcpy(scan->zones->version, at, length);
    scan->zones->version[length] = 0;
    return true;
}

static void find_version(const struct scan *scan, int directory)
{
    if (!read_version(scan, directory, "tzdata.zi", "# version ") && !read_version(scan, directory, "+VERSION", ""))
        snprintf(scan->zones->version, VERSION_TEXT, "hash-%016llx", (unsigned long long)scan->zones->hash);
}

/* --- The set ----------------------------------------------------------------------------------------------------- */

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static void sort_entries(struct zones *zones)
{
    if (zones->count > 0)
        qsort(zones->entries, zones->count, sizeof *zones->entries, compare_entries);
}

static struct entry *find_entry(const struct zones *zones, const char *name, size_t size)
{
    size_t low = 0, high = zones->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        struct entry *entry = &zones->entries[middle];
        int order = strncmp(entry->name, name, size);
        if (order == 0 && entry->name[size] == 0)
            return entry;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Zones of `old` that have no good file any more keep their rules. Those that are the same become one object. */
static int carry_over(struct zones *zones, const struct zones *old, int directory)
{
    static const char damaged[] = "has a damaged file now";
    size_t count = zones->count;
    for (size_t i = 0; i < old->count; i++) {
        const struct entry *before = &old->entries[i];
        struct zones found = {.count = count, .entries = zones->entries};
        struct entry *entry = find_entry(&found, before->name, strlen(before->name));
        if (!before->zone)
            continue;
        if (entry && entry->zone) {
            if (!zone_same(entry->zone, before->zone))
                continue;
            zone_unref(entry->zone);
        } else if (!entry) {
            bool is_there = faccessat(directory, before->name, F_OK, 0) == 0;
            if (!(entry = add_entry(zones, before->name)) ||
                !set_problem(entry, is_there ? damaged : "has disappeared from the directory", true))
                return FL_NO_MEMORY;
        } else {
            fl__release(entry->problem);
            if (!set_problem(entry, damaged, true))
                return FL_NO_MEMORY;
        }
        entry->zone = zone_ref(before->zone);
    }
    sort_entries(zones);
    return 0;
}

static int load(struct scan *scan, const struct zones *old)
{
    const char *path = scan->zones->directory;
    int directory = open(path, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (directory < 0) {
        snprintf(
            scan->error, ZONE_ERROR_TEXT,
            "there are no time zones in %.120s (%s); install the package tzdata, or name another directory in TZDIR",
            path, strerror(errno));
        return FL_NOT_FOUND;
    }
    int r = read_all(scan, directory);
    if (r == 0)
        find_version(scan, directory);
    sort_entries(scan->zones);
    if (r == 0 && scan->zones->count == 0) {
        snprintf(scan->error, ZONE_ERROR_TEXT,
                 "there are no time zones in %.120s; install the package tzdata, or name another directory in TZDIR",
                 path);
        r = FL_NOT_FOUND;
    } else if (r == 0 && old && (r = carry_over(scan->zones, old, directory)) < 0) {
        no_memory(scan);
    }
    close(directory);
    return r;
}

int zones_load(const char *directory, const struct zones *old, struct zones **ret, char ret_error[ZONE_ERROR_TEXT])
{
    if (!directory)
        directory = secure_getenv("TZDIR");
    if (!directory || !*directory)
        directory = "/usr/share/zoneinfo";
    struct scan scan = {
        .zones = fl__alloc_zeroed(sizeof *scan.zones), .file = fl__alloc(ZONE_FILE_MAX + 1), .error = ret_error};
    int r = FL_NO_MEMORY;
    if (scan.zones && scan.file && (scan.zones->directory = fl__alloc(strlen(directory) + 1))) {
        strcpy(scan.zones->directory, directory); /* NOLINT: as long as it is */
        r = load(&scan, old);
    } else {
        no_memory(&scan);
    }
    fl__release(scan.file);
    if (r < 0)
        zones_free(scan.zones);
    else
        *ret = scan.zones;
    return r;
}

void zones_free(struct zones *zones)
{
    if (!zones)
        return;
    for (size_t i = 0; i < zones->count; i++) {
        zone_unref(zones->entries[i].zone);
        fl__release(zones->entries[i].problem);
    }
    fl__release(zones->entries);
    fl__release(zones->directory);
    fl__release(zones);
}

/* --- Questions --------------------------------------------------------------------------------------------------- */

static bool is_utc(fl_bytes name)
{
    return (name.size == 3 && memcmp(name.data, "UTC", 3) == 0) ||
           (name.size == 7 && memcmp(name.data, "Etc/UTC", 7) == 0);
}

static int not_found(const struct zones *zones, fl_bytes name, char *error)
{
    char text[ZONE_NAME_MAX + sizeof "..."] = "";
    const char *meant = NULL;
    for (size_t i = 0; i < name.size && i < ZONE_NAME_MAX; i++) {
        char c = ((const char *)name.data)[i];
        text[i] = (char)(c >= ' ' && c <= '~' && c != '"' ? c : '?');
    }
    if (name.size > ZONE_NAME_MAX)
        memcpy(text + ZONE_NAME_MAX, "...", sizeof "...");
    for (size_t i = 0; zones && text[0] && i < zones->count && !meant; i++)
        meant = strcasecmp(zones->entries[i].name, text) == 0 ? zones->entries[i].name : NULL;
    if (!zones)
        snprintf(error, ZONE_ERROR_TEXT,
                 "time zone \"%s\" is not available: the server has no tzdata; only UTC works until it is installed",
                 text);
    else if (meant)
        snprintf(error, ZONE_ERROR_TEXT, "there is no time zone \"%s\"; did you mean \"%s\"?", text, meant);
    else
        snprintf(error, ZONE_ERROR_TEXT,
                 "there is no time zone \"%s\" in tzdata %s; use an IANA name such as Europe/Berlin", text,
                 zones->version);
    return FL_NOT_FOUND;
}

int zones_find(const struct zones *zones, fl_bytes name, struct zone **ret, char ret_error[ZONE_ERROR_TEXT])
{
    const struct entry *entry = NULL;
    if (zones && name.size > 0 && name.size <= ZONE_NAME_MAX && !memchr(name.data, 0, name.size))
        entry = find_entry(zones, name.data, name.size);
    if (entry && !entry->zone) {
        snprintf(ret_error, ZONE_ERROR_TEXT, "%s", entry->problem);
        return FL_INVALID_ARGUMENT;
    }
    if (!entry && !is_utc(name))
        return not_found(zones, name, ret_error);
    *ret = entry ? zone_ref(entry->zone) : zone_utc();
    return 0;
}

const char *zones_version(const struct zones *zones)
{
    return zones ? zones->version : "none";
}

uint64_t zones_hash(const struct zones *zones)
{
    return zones ? zones->hash : 0;
}

const char *zones_directory(const struct zones *zones)
{
    return zones ? zones->directory : "";
}

size_t zones_count(const struct zones *zones)
{
    return zones ? zones->count : 0;
}

bool zones_at(const struct zones *zones, size_t index, struct zones_entry *ret)
{
    if (!zones || index >= zones->count)
        return false;
    const struct entry *entry = &zones->entries[index];
    *ret = (struct zones_entry){entry->name, entry->zone, entry->problem};
    return true;
}
