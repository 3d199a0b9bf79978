#!/bin/sh
# SPDX-License-Identifier: MIT
# The documentation's code is true: each C block that is a whole program compiles and runs, each JavaScript block runs,
# each shell block parses, and every link to a file leads to one.

. "$(dirname "$0")/tap.sh"

# blocks LANGUAGE FILE: writes the file's fenced blocks of that language to $work/block.1, .2 ...
blocks() {
    rm -f "$work"/block.*
    awk -v fence="\`\`\`$1" -v to="$work/block." '
        !inside && $0 == fence { inside = 1; n++; next }
        inside && /^```$/ { inside = 0; close(to n); next }
        inside { print > (to n) }
    ' "$2"
}

compile_and_run() {
    cp "$1" "$work/program.c"
    $CC -std=gnu17 -Wall -Wextra -Werror -I "$SOURCE/include" -o "$work/program" "$work/program.c" \
        "$BUILD/libfoliot.a" -lpthread && timeout 60 "$work/program"
}

run_script() {
    timeout 60 "$BUILD/src/cli/foliot-js" "$1"
}

links_lead_somewhere() {
    grep -o '](\([^)#]*\)' "$1" | sed 's/](//' | grep -v -e '^[a-z]*:' -e '^$' >"$work/links"
    while read -r link; do
        [ -e "$(dirname "$1")/$link" ] || { echo "$link: there is no such file" && return 1; }
    done <"$work/links"
}

programs=0
for file in "$SOURCE"/README.md "$SOURCE"/docs/*.md; do
    [ -e "$file" ] || continue
    name=${file#"$SOURCE"/}
    blocks c "$file"
    for block in "$work"/block.*; do
        if [ -e "$block" ] && grep -q 'int main' "$block"; then
            programs=$((programs + 1))
            check "$name, C block ${block##*.} compiles and runs" compile_and_run "$block"
        fi
    done
    blocks js "$file"
    for block in "$work"/block.*; do
        if [ ! -e "$block" ]; then
            continue
        elif [ -x "$BUILD/src/cli/foliot-js" ]; then
            check "$name, JavaScript block ${block##*.} runs" run_script "$block"
        else
            skip "$name, JavaScript block ${block##*.} runs" "there is no JavaScriptCore here"
        fi
    done
    blocks sh "$file"
    for block in "$work"/block.*; do
        [ ! -e "$block" ] || check "$name, shell block ${block##*.} parses" sh -n "$block"
    done
    check "$name links to files that are there" links_lead_somewhere "$file"
done
check "the documentation has a whole program" test "$programs" -gt 0
done_testing
