#!/bin/sh
# SPDX-License-Identifier: MIT
# Fetches the rivals from npm: npm.sh OUTPUT PACKAGE@VERSION...
#
# OUTPUT becomes a file with the folder that they are in. If they cannot be had, they are left out: OUTPUT is then empty.
set -eu
output=$1
shift
mkdir -p "$output.npm"
folder=$(cd "$output.npm" && pwd)
if command -v npm >/dev/null && command -v node >/dev/null &&
    npm install --silent --no-audit --no-fund --prefix "$folder" "$@" >&2; then
    printf '%s' "$folder" >"$output"
else
    echo "$* is left out of the comparison: npm cannot install it" >&2
    : >"$output"
fi
