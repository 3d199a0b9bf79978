/* SPDX-License-Identifier: MIT */
/* The version that libfoliot was compiled as. */

#include <foliot/version.h>

const char *fl_version(void)
{
    return FL_VERSION;
}
