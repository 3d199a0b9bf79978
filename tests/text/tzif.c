/* SPDX-License-Identifier: MIT */
#include "tzif.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "test.h"
#include "text/civil.h"

struct writer {
    uint8_t *at;
};

static void put(struct writer *writer, uint64_t value, int width)
{
    while (width-- > 0)
        *writer->at++ = (uint8_t)(value >> width * 8);
}

struct types {
    int32_t offsets[TZIF_TYPES];
    uint8_t count;
};

static uint8_t type_of(struct types *types, int32_t offset_s)
{
    for (uint8_t i = 0; i < types->count; i++)
        if (types->offsets[i] == offset_s)
            return i;
    CHECK(types->count < TZIF_TYPES);
    types->offsets[types->count] = offset_s;
    return types->count++;
}

static void put_block(struct writer *writer, int version, int width, struct types *types,
                      const struct tzif_change *changes, size_t count)
{
    memcpy(writer->at, "TZif", 4);
    writer->at += 4;
    put(writer, version == 1 ? 0 : (uint64_t)('0' + version), 1);
    put(writer, 0, 8);
    put(writer, 0, 7);
    put(writer, 0, 4);
    put(writer, 0, 4);
    put(writer, 0, 4);
    put(writer, count, 4);
    put(writer, types->count, 4);
    put(writer, 4, 4);
    for (size_t i = 0; i < count; i++)
        put(writer, (uint64_t)changes[i].at_s, width);
    for (size_t i = 0; i < count; i++)
        put(writer, type_of(types, changes[i].offset_s), 1);
    for (uint8_t i = 0; i < types->count; i++) {
        put(writer, (uint32_t)types->offsets[i], 4);
        put(writer, 0, 2);
    }
    memcpy(writer->at, "ABC", 4);
    writer->at += 4;
}

size_t tzif_write(int version, int32_t first_s, const struct tzif_change *changes, size_t count, const char *footer,
                  uint8_t out[TZIF_MAX])
{
    struct types types = {.offsets = {first_s}, .count = 1};
    struct writer writer = {out};
    for (size_t i = 0; i < count; i++)
        type_of(&types, changes[i].offset_s);
    put_block(&writer, version, 4, &types, changes, version == 1 ? count : 0);
    if (version > 1) {
        put_block(&writer, version, 8, &types, changes, count);
        writer.at += snprintf((char *)writer.at, 100, "\n%s\n", footer);
    }
    CHECK(writer.at - out < TZIF_MAX);
    return (size_t)(writer.at - out);
}

struct zone *tzif_zone(int32_t first_s, const struct tzif_change *changes, size_t count, const char *footer)
{
    uint8_t file[TZIF_MAX];
    char error[ZONE_ERROR_TEXT] = "";
    struct zone *zone = NULL;
    size_t size = tzif_write(2, first_s, changes, count, footer, file);
    if (zone_parse((fl_bytes){file, size}, &zone, error) < 0)
        test_fail(__FILE__, __LINE__, "\"%s\": %s", footer, error);
    return zone;
}

int64_t utc_s(const char *text)
{
    int64_t us;
    CHECK(civil_parse_time((fl_bytes){text, strlen(text)}, &us) == 0);
    return us / 1000000;
}

const char *utc_text(int64_t s)
{
    static char texts[4][CIVIL_TEXT];
    static unsigned turn;
    char *text = texts[turn++ % 4];
    text[civil_format(s * 1000000, 0, text) - 6] = 0; /* without +00:00 */
    return text;
}

static char made[32][32];
static unsigned n_made;

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status, (void)kind, (void)where;
    return remove(path);
}

static void remove_all(void)
{
    while (n_made > 0)
        nftw(made[--n_made], remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *folder_new(void)
{
    if (n_made == 0)
        atexit(remove_all);
    CHECK(n_made < 32);
    strcpy(made[n_made], "/tmp/foliot-zones-XXXXXX");
    CHECK(mkdtemp(made[n_made]));
    return made[n_made++];
}

void folder_write(const char *folder, const char *name, const void *data, size_t size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
    }
    FILE *file = fopen(path, "w");
    CHECK(file && fwrite(data, 1, size, file) == size);
    fclose(file);
}
