/* SPDX-License-Identifier: MIT */
/* The error table: foliot/error.h. */

#include <limits.h>
#include <string.h>

#include <foliot/error.h>

#include "test.h"

struct entry {
    const char *name, *text;
    int code;
};

static const struct entry table[] = {
#define ENTRY(name, code, text) {"FL_" #name, text, code},
    FL_ERROR_MAP(ENTRY)};

#define ENTRIES (sizeof table / sizeof *table)

TEST(every_error_code_is_negative)
{
    for (size_t i = 0; i < ENTRIES; i++)
        CHECK(table[i].code < 0);
}

TEST(every_error_code_name_and_text_is_unique)
{
    for (size_t i = 0; i < ENTRIES; i++)
        for (size_t j = 0; j < i; j++) {
            CHECK(table[i].code != table[j].code);
            CHECK(strcmp(table[i].name, table[j].name) != 0);
            CHECK(strcmp(table[i].text, table[j].text) != 0);
        }
}

TEST(every_error_answers_with_its_own_name_and_text)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        CHECK(strcmp(fl_errname(table[i].code), table[i].name) == 0);
        CHECK(strcmp(fl_strerror(table[i].code), table[i].text) == 0);
        CHECK(strlen(table[i].text) > 0);
    }
}

/* Programs are compiled with these numbers: a new error goes to the end. */
TEST(codes_keep_their_numbers)
{
    static const int codes[] = {FL_INVALID_TIMER_ID, FL_INVALID_DEADLINE, FL_DEADLINE_TOO_FAR, FL_CAPACITY_EXCEEDED,
                                FL_OVERFLOW,         FL_TIMER_NOT_FOUND,  FL_NO_MEMORY,        FL_INVALID_ARGUMENT};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        CHECK_EQ(codes[i], -(int)i - 1);
}

TEST(zero_is_success)
{
    CHECK(strcmp(fl_errname(0), "FL_OK") == 0);
    CHECK(strcmp(fl_strerror(0), "success") == 0);
}

TEST(a_foreign_code_is_called_unknown)
{
    static const int foreign[] = {1, INT_MAX, INT_MIN, -100000};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        CHECK(strcmp(fl_errname(foreign[i]), "FL_UNKNOWN") == 0);
        CHECK(strcmp(fl_strerror(foreign[i]), "unknown error code") == 0);
    }
}
