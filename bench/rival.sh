#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds a rival in a language of its own: rival.sh go|tokio SOURCE OUTPUT
#
# Go's is one file, tokio's a folder for cargo, built without a network from Debian's crates. One that cannot be built
# must not keep the others from being measured: OUTPUT is then an empty file that is not a program, and what it lacks is
# said here. The benchmarks leave out what is not a program.
set -eu
kind=$1 output=$3
source=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
crates=/usr/share/cargo/registry
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build_go() {
    GO111MODULE=off GOCACHE="$work/cache" go build -o "$output" "$source"
}

# The crates are Debian's, whoever made the cargo: its own first, which knows them.
build_tokio() {
    cargo=cargo
    [ ! -x /usr/bin/cargo ] || cargo=/usr/bin/cargo
    name=$(sed -n 's/^name = "\(.*\)"/\1/p' "$source/Cargo.toml")
    cp -r "$source/." "$work"
    mkdir "$work/.cargo"
    printf '[source.crates-io]\nreplace-with = "debian"\n[source.debian]\ndirectory = "%s"\n' "$crates" \
        >"$work/.cargo/config.toml"
    (cd "$work" && CARGO_HOME="$work/home" "$cargo" build --offline --release --quiet) &&
        cp "$work/target/release/$name" "$output"
}

missing() {
    case $kind in
    go) command -v go >/dev/null || echo "there is no go (Debian: golang-go)" ;;
    tokio)
        command -v cargo >/dev/null || echo "there is no cargo"
        ls "$crates"/tokio-[0-9]* >/dev/null 2>&1 || echo "Debian's crate is not there (librust-tokio-dev)"
        ;;
    esac
}

lack=$(missing)
if [ -n "$lack" ] || ! "build_$kind"; then
    echo "$kind is left out of the comparison: ${lack:-it cannot be built}" >&2
    rm -f "$output"
    : >"$output"
fi
