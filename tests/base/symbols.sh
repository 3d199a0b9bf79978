#!/bin/sh
# SPDX-License-Identifier: MIT
# What leaves the libraries: the functions in their public headers, and nothing else. libfoliot-durable has those of the
# headers below; it uses a few private functions of libfoliot, which are marked.

. "$(dirname "$0")/tap.sh"

durable="foliot/engine.h foliot/store.h"

exported() {
    nm -D --defined-only "$BUILD/lib$1.so" | awk '{ print $NF }' | sort
}

declared() {
    # shellcheck disable=SC2086 # one word a header
    case $1 in
    foliot-durable) public_functions $durable ;;
    foliot) public_functions | grep -vx -F "$(public_functions $durable)" ;;
    esac
}

shared_inside() {
    sed -n 's/^FL__SHARED .*\(fl__[a-z_]*\)(.*/\1/p' "$SOURCE"/src/*/*.h | sort
}

# A static library cannot hide names, but it can keep to its own.
archive_outside_prefix() {
    nm -g --defined-only "$BUILD/lib$1.a" | awk 'NF == 3 { print $3 }' | grep -v -e '^fl_' -e '^kc_'
}

# Whoever links with both must get the right one.
archives_collide() {
    for library in foliot foliot-durable; do
        nm -g --defined-only "$BUILD/lib$library.a" | awk 'NF == 3 { print $3 }' | sort -u
    done | sort | uniq -d
}

same() {
    declared "$1" >"$work/declared"
    exported "$1" | grep -v '^fl__' >"$work/exported"
    diff -u "$work/declared" "$work/exported"
}

same_inside() {
    shared_inside >"$work/marked"
    exported foliot | grep '^fl__' >"$work/exported"
    diff -u "$work/marked" "$work/exported"
}

for library in foliot foliot-durable; do
    check "$library: there are public functions" test "$(declared "$library" | wc -l)" -gt 10
    check "$library: the shared library exports exactly the functions of its public headers" same "$library"
    check "$library: the static library defines no name without the prefix" test -z "$(archive_outside_prefix "$library")"
done
check "no name is defined in both static libraries" test -z "$(archives_collide)"
check "of the private names only those leave libfoliot that are marked" same_inside
check "no private name leaves libfoliot-durable" test -z "$(exported foliot-durable | grep '^fl__')"
done_testing
