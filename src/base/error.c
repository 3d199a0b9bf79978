/* SPDX-License-Identifier: MIT */
/* The texts of the error table in foliot/error.h. */

#include <foliot/error.h>

const char *fl_strerror(int error)
{
    switch (error) {
    case 0:
        return "success";
#define TEXT_CASE(name, code, text) \
    case code:                      \
        return text;
        FL_ERROR_MAP(TEXT_CASE)
    default:
        return "unknown error code";
    }
}

const char *fl_errname(int error)
{
    switch (error) {
    case 0:
        return "FL_OK";
#define NAME_CASE(name, code, text) \
    case code:                      \
        return "FL_" #name;
        FL_ERROR_MAP(NAME_CASE)
    default:
        return "FL_UNKNOWN";
    }
}
