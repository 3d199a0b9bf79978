#!/bin/sh
# SPDX-License-Identifier: MIT
# What leaves the library: the functions in its public headers, and nothing else.

. "$(dirname "$0")/tap.sh"

exported() {
    nm -D --defined-only "$BUILD/libfoliot.so" | awk '{ print $NF }' | sort
}

# A static library cannot hide names, but it can keep to its own.
archive_outside_prefix() {
    nm -g --defined-only "$BUILD/libfoliot.a" | awk 'NF == 3 { print $3 }' | grep -v -e '^fl_' -e '^kc_'
}

same() {
    public_functions >"$work/declared"
    exported >"$work/exported"
    diff -u "$work/declared" "$work/exported"
}

check "there are public functions" test "$(public_functions | wc -l)" -gt 10
check "the shared library exports exactly the functions of its public headers" same
check "no name shared inside the library leaves it" test -z "$(exported | grep '^fl__')"
check "the static library defines no name without the prefix" test -z "$(archive_outside_prefix)"
done_testing
