#!/bin/sh
# SPDX-License-Identifier: MIT
# Every public header compiles alone, in C and C++, and the example in its first comment compiles.

. "$(dirname "$0")/tap.sh"

flags="-Wall -Wextra -Werror -pedantic -fsyntax-only -I $SOURCE/include"

# Twice: a header must guard itself.
include_twice() {
    printf '#include <%s>\n#include <%s>\nint main(void)\n{\n    return 0;\n}\n' "$1" "$1"
}

compile_c() {
    include_twice "$1" >"$work/alone.c"
    # shellcheck disable=SC2086
    $CC -std=c17 $flags "$work/alone.c"
}

compile_cxx() {
    include_twice "$1" >"$work/alone.cc"
    # shellcheck disable=SC2086
    $CXX -std=c++17 $flags "$work/alone.cc"
}

# The example is what is indented by four more, after an empty line of the first comment that is not the licence.
example() {
    awk '
        /^\/\*/ && !/SPDX/ { inside = 1; next }
        inside && /\*\// { exit }
        !inside { next }
        /^ \*$/ { blank = 1; print ""; next }
        /^ \*     / && (blank || code) { code = 1; print substr($0, 4); next }
        { blank = code = 0 }
    ' "$SOURCE/include/$1"
}

# In a main() unless it has its own, with every header of the library and what examples use of the standard one.
compile_example() {
    {
        # shellcheck disable=SC2046
        printf '#include <%s>\n' inttypes.h stdio.h stdlib.h string.h time.h unistd.h $(public_headers)
        example "$1" | grep '^#include'
        if example "$1" | grep -q 'int main'; then
            example "$1" | grep -v '^#include'
        else
            printf 'int main(void)\n{\n'
            example "$1" | grep -v '^#include'
            printf '    return 0;\n}\n'
        fi
    } >"$work/example.c"
    cat "$work/example.c"
    $CC -std=gnu17 -Wall -Wextra -Werror -Wno-unused -Wno-missing-field-initializers -I "$SOURCE/include" \
        -o "$work/example" "$work/example.c" "$BUILD/libfoliot.so" "$BUILD/libfoliot-durable.so" -lpthread
}

for header in $(public_headers); do
    check "$header compiles alone as C17" compile_c "$header"
    if [ -n "${CXX-}" ]; then
        check "$header compiles alone as C++17" compile_cxx "$header"
    else
        skip "$header compiles alone as C++17" "there is no C++ compiler"
    fi
    if [ -n "$(example "$header")" ]; then
        check "the example in $header compiles" compile_example "$header"
    fi
done
check "foliot/wheel.h has an example" test -n "$(example foliot/wheel.h)"
done_testing
