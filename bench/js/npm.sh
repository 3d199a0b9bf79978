#!/bin/sh
# SPDX-License-Identifier: MIT
# Fetches a rival from npm: npm.sh NAME VERSION OUTPUT
#
# OUTPUT becomes a link to the program. One that cannot be had is left out: OUTPUT is then an empty file.
set -eu
name=$1 version=$2
mkdir -p "$3.npm"
folder=$(cd "$3.npm" && pwd)

# The package brings the program itself, or a script of it has put it there; where exactly depends on npm's version.
find_program() {
    for path in "$folder"/node_modules/@oven/*/bin/bun "$folder"/node_modules/@deno/*/deno "$folder/node_modules/.bin/$name"; do
        if [ -x "$path" ] && "$path" --version >/dev/null 2>&1; then
            echo "$path"
            return 0
        fi
    done
    return 1
}

if command -v npm >/dev/null && npm install --silent --no-audit --no-fund --prefix "$folder" "$name@$version" >&2 &&
    path=$(find_program); then
    ln -sf "$path" "$3"
else
    echo "$name is left out of the comparison: npm cannot install it" >&2
    rm -f "$3"
    : >"$3"
fi
