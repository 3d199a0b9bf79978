# shellcheck shell=sh
# SPDX-License-Identifier: MIT
# The test frame for shell scripts, which source it. A test is a command that must succeed:
#
#     check "the archive is not empty" test -s "$archive"
#     done_testing
#
# From Meson come SOURCE and BUILD (the roots of the source and build trees), CC, and CXX if there is a C++ compiler.

set -u
tests=0
failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check NAME COMMAND...: what the command prints is shown if it fails.
check() {
    tests=$((tests + 1))
    test_name=$1
    shift
    if "$@" >"$work/check.log" 2>&1 </dev/null; then
        printf 'ok %d - %s\n' "$tests" "$test_name"
    else
        printf 'not ok %d - %s\n' "$tests" "$test_name"
        sed 's/^/# /; 40q' "$work/check.log"
        failures=$((failures + 1))
    fi
}

skip() {
    tests=$((tests + 1))
    printf 'ok %d - %s # SKIP %s\n' "$tests" "$1" "$2"
}

done_testing() {
    printf '1..%d\n' "$tests"
    [ "$failures" -eq 0 ]
    exit
}

public_headers() {
    (cd "$SOURCE/include" && printf '%s\n' foliot/*.h)
}

# The declarations of all functions in the public headers, or in those that are named, one a line and without spaces.
public_declarations() {
    # shellcheck disable=SC2048 # one word a header
    for header in ${*:-$(public_headers)}; do
        echo "#include <$header>" | $CC -I "$SOURCE/include" -E -x c - |
            awk -v only="${1:+$header}" '/^# /{ ours = only ? index($0, "include/" only) : /include\/foliot\// } ours && !/^#/' |
            tr '\n' ' ' | sed 's/static inline [^{]*{[^}]*}//g' | tr ';' '\n' |
            grep -v -e '^ *typedef' -e '^ *static' | grep -E '[^a-z0-9_](fl|kc)_[a-z0-9_]* *\(' | sed 's/_Bool/bool/g; s/[ \t]//g'
    done | sort -u
}

public_functions() {
    public_declarations "$@" | sed -E 's/^[^(]*((fl|kc)_[a-z0-9_]*)\(.*/\1/' | sort -u
}
