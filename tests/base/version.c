/* SPDX-License-Identifier: MIT */
/* The version of the libraries: a string of three numbers, which are also there one by one. */

#include <stdio.h>
#include <string.h>

#include <foliot/store.h>
#include <foliot/version.h>

#include "../test.h"

TEST(the_version_is_that_of_the_headers)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", FL_VERSION_MAJOR, FL_VERSION_MINOR, FL_VERSION_PATCH);
    CHECK(strcmp(FL_VERSION, text) == 0);
    CHECK(strcmp(fl_version(), FL_VERSION) == 0);
    CHECK(strcmp(fl_durable_version(), FL_VERSION) == 0);
}
