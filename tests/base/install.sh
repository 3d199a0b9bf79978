#!/bin/sh
# SPDX-License-Identifier: MIT
# `meson install` puts everything in its place, and programs build against what it has put there.
# From Meson also: PREFIX and LIBDIR of the build.

. "$(dirname "$0")/tap.sh"

root=$work/root$PREFIX
lib=$root/$LIBDIR
man=$root/share/man

# flags PACKAGE OPTION...: our own packages are in the new root, those they need are the system's.
flags() {
    package=$1
    shift
    PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --define-variable=prefix="$root" "$@" "$package"
}

package_of() {
    if grep -q -e 'foliot/engine.h' -e 'foliot/store.h' "$1"; then echo foliot-durable; else echo foliot; fi
}

build_shared() {
    # shellcheck disable=SC2046
    $CC -std=gnu17 -Wall -Wextra -Werror "$1" -o "$work/program" $(flags "$(package_of "$1")" --cflags --libs)
    readelf -d "$work/program" | grep -q 'NEEDED.*libfoliot.*\.so\.0' &&
        LD_LIBRARY_PATH=$lib timeout 60 "$work/program"
}

build_static() {
    # shellcheck disable=SC2046
    $CC -std=gnu17 -Wall -Wextra -Werror -static "$1" -o "$work/program" $(flags foliot --cflags --static --libs)
    timeout 60 "$work/program"
}

build_cxx() {
    cat >"$work/program.cc" <<'END'
#include <cstring>
#include <foliot/wheel.h>
int main()
{
    fl_wheel *wheel = nullptr;
    int r = fl_wheel_new(nullptr, &wheel);
    fl_wheel_free(wheel);
    return r != 0 || std::strcmp(fl_errname(r), "FL_OK") != 0;
}
END
    # shellcheck disable=SC2046
    $CXX -std=c++17 -Wall -Wextra -Werror "$work/program.cc" -o "$work/program" $(flags foliot --cflags --libs)
    LD_LIBRARY_PATH=$lib timeout 60 "$work/program"
}

all_headers_installed() {
    diff -r "$SOURCE/include/foliot" "$root/include/foliot"
}

# The page behind a name: the file, or the one it refers to.
page() {
    alias=$(sed -n '1s/^\.so //p' "$man/man3/$1.3")
    cat "$man/${alias:-man3/$1.3}"
}

named_in_manual() {
    page "$1" | grep -E "^\.Nm $1( ,)?\$" && page "$1" | grep "^\.Fo $1\$"
}

# Of our own pages; those of the system may not be installed.
references_lead_somewhere() {
    sed -n 's/^\.Xr \([a-z_]*foliot\|fl_[a-z_]*\) \([0-9]\).*/man\2\/\1.\2/p' "$man"/man?/*.? | sort -u >"$work/references"
    while read -r reference; do
        [ -e "$man/$reference" ] || { echo "$reference: there is no such page" && return 1; }
    done <"$work/references"
    [ -s "$work/references" ]
}

# The declarations in the SYNOPSIS sections, one a line and without spaces, as public_declarations prints them.
manual_declarations() {
    awk '
        /^\.Ft / { type = substr($0, 5) }
        /^\.Fo / { name = $2; arguments = "" }
        /^\.Fa / && name { gsub(/^\.Fa |"/, ""); arguments = arguments (arguments ? "," : "") $0 }
        /^\.Fc/ { gsub(/"/, "", type); print type name "(" arguments ")"; name = "" }
    ' "$man"/man3/*.3 | tr -d ' ' | sort -u
}

manual_matches_headers() {
    public_declarations >"$work/declared"
    manual_declarations >"$work/documented"
    diff -u "$work/declared" "$work/documented"
}

errors_in_manual() {
    sed -n 's/^ *X(\([A-Z_]*\),.*/FL_\1/p' "$SOURCE/include/foliot/error.h" >"$work/errors"
    sed -n 's/^\.It Dv \(FL_[A-Z_]*\)$/\1/p' "$man/man3/fl_error.3" >"$work/documented"
    diff -u "$work/errors" "$work/documented"
}

# The names that the static libraries define for others: a process may hold each of them once.
library_names() {
    nm -g --defined-only "$lib/libfoliot.a" "$lib/libfoliot-durable.a" | awk 'NF == 3 { print $3 }' | sort -u
}

# loaded FILE: the file, and the libraries of ours that it is loaded with.
loaded() {
    echo "$1"
    LD_LIBRARY_PATH=$lib ldd "$1" | awk '$1 ~ /libfoliot/ { print $3 }'
}

# one_copy FILE: nothing of the libraries is in it twice, and a file that contains them does not load them.
one_copy() {
    readelf -d "$1" | grep NEEDED
    ! LD_LIBRARY_PATH=$lib ldd "$1" | grep 'libfoliot.*not found' || return 1
    for object in $(loaded "$1"); do
        nm --defined-only "$object" | awk 'NF == 3 { print $3 }'
    done | sort | uniq -d >"$work/twice"
    library_names | comm -12 - "$work/twice" >"$work/copies"
    cat "$work/copies"
    [ -s "$lib/libfoliot.a" ] && [ ! -s "$work/copies" ]
}

# manual_line N: the Nth command line of libfoliot(3), for $work/program.c in this root.
manual_line() {
    sed -n "s|^\.Dl cc \(program\.c .*\)|$CC \1|p" "$man/man3/libfoliot.3" | sed -n "$1p"
}

# as_the_manual_says N PROGRAM: links it so, and runs it; nothing is in it twice.
as_the_manual_says() {
    mkdir -p "$work/bin"
    printf '#!/bin/sh\nPKG_CONFIG_PATH=%s exec %s --define-variable=prefix=%s "$@"\n' "$lib/pkgconfig" "$(command -v pkg-config)" \
        "$root" >"$work/bin/pkg-config"
    chmod +x "$work/bin/pkg-config"
    cp "$2" "$work/program.c"
    manual_line "$1"
    (cd "$work" && PATH=$work/bin:$PATH sh -e -c "$(manual_line "$1")") && one_copy "$work/a.out" &&
        (cd "$work" && LD_LIBRARY_PATH=$lib timeout 60 ./a.out)
}

check "meson install succeeds" meson install -C "$BUILD" --no-rebuild --destdir "$work/root"
check "the headers are there" all_headers_installed
for file in "$LIBDIR/libfoliot.so" "$LIBDIR/libfoliot.so.0" "$LIBDIR/libfoliot.a" "$LIBDIR/pkgconfig/foliot.pc" \
    "$LIBDIR/libfoliot-durable.so" "$LIBDIR/libfoliot-durable.so.0" "$LIBDIR/libfoliot-durable.a" \
    "$LIBDIR/pkgconfig/foliot-durable.pc" \
    bin/foliot share/man/man1/foliot.1 share/man/man3/libfoliot.3; do
    check "$file is there" test -s "$root/$file"
done
# The file that the systemd unit reads is there; a second installation leaves it as it is.
unit_finds_its_configuration() {
    conf=$(sed -n 's/^ExecStart=.*--config "\(.*\)"$/\1/p' "$root/lib/systemd/system/foliot.service")
    diff "$SOURCE/contrib/foliot.conf" "$work/root$conf" || return 1
    echo '# mine' >>"$work/root$conf"
    meson install -C "$BUILD" --no-rebuild --destdir "$work/root" && tail -n 1 "$work/root$conf" | grep '^# mine$'
}

if [ -e "$root/lib/systemd/system/foliot.service" ]; then
    check "the systemd unit finds its configuration, which a second installation keeps" unit_finds_its_configuration
fi
if [ -e "$BUILD/src/cli/completion/foliot" ]; then
    for file in bash-completion/completions/foliot zsh/site-functions/_foliot; do
        check "share/$file is there" test -s "$root/share/$file"
    done
fi
check "the installed command runs" "$root/bin/foliot" --version
check "foliot.pc says the version that the command says" \
    test "foliot $(flags foliot --modversion)" = "$("$root/bin/foliot" --version)"

for file in "$root"/bin/* "$lib"/libfoliot*.so; do
    check "${file#"$root/"} has one copy of the library" one_copy "$file"
done
check "the command needs no library of ours" test "$(loaded "$root/bin/foliot")" = "$root/bin/foliot"
check "the manual says how to link libfoliot shared" as_the_manual_says 1 "$SOURCE/examples/tea.c"
check "the manual says how to link libfoliot static" as_the_manual_says 2 "$SOURCE/examples/tea.c"
check "the manual says how to link libfoliot-durable shared" as_the_manual_says 3 "$SOURCE/examples/alarm.c"
check "the manual says how to link libfoliot-durable static" as_the_manual_says 4 "$SOURCE/examples/alarm.c"

for program in "$SOURCE"/examples/*.c; do
    check "$(basename "$program") builds and runs with the shared library" build_shared "$program"
    # A static database is not to be had everywhere.
    [ "$(package_of "$program")" != foliot ] ||
        check "$(basename "$program") builds and runs with the static library" build_static "$program"
done
if [ -n "${CXX-}" ]; then
    check "a C++ program builds and runs with the library" build_cxx
else
    skip "a C++ program builds and runs with the library" "there is no C++ compiler"
fi

# shellcheck disable=SC2119 # all of them
for function in $(public_functions); do
    check "$function has a manual page that names it" named_in_manual "$function"
done
check "the manual declares the functions as the headers do" manual_matches_headers
check "the manual refers to pages that are there" references_lead_somewhere
check "every error is in fl_error(3)" errors_in_manual
done_testing
