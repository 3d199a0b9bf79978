#!/bin/sh
# SPDX-License-Identifier: MIT
# A leak detector in a program that uses the library as it is shipped reports what was leaked and nothing else.

. "$(dirname "$0")/tap.sh"

build() {
    $CC -std=gnu17 -g -fsanitize=address "$SOURCE/tests/base/leaks.c" -I"$SOURCE/include" "$BUILD/libfoliot.a" -pthread \
        -o "$work/leaks"
}

run() {
    ASAN_OPTIONS=detect_leaks=1 timeout 60 "$work/leaks" "$@"
}

reports_one_leak() {
    ! run leak 2>"$work/report" && grep -q '24 byte(s) leaked in 1 allocation' "$work/report"
}

if ! build >"$work/build.log" 2>&1; then
    skip "a program with AddressSanitizer sees no leaks that are none" "the compiler has no AddressSanitizer"
    done_testing
fi
check "a leak is found" reports_one_leak
check "a program with AddressSanitizer sees no leaks that are none" run
done_testing
