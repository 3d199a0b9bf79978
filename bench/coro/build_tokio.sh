#!/bin/sh
# Builds the tokio rival from Debian's crates, without a network: build_tokio.sh CARGO SOURCE WORK OUTPUT
set -eu
cargo=$1 source=$2 work=$3 output=$4
mkdir -p "$work/src"
cp "$source/Cargo.toml" "$work/"
cp "$source/src/main.rs" "$work/src/"
"$cargo" build --quiet --release --offline --manifest-path "$work/Cargo.toml" --target-dir "$work/target" \
    --config 'source.crates-io.replace-with="debian"' --config 'source.debian.directory="/usr/share/cargo/registry"'
cp "$work/target/release/coro-tokio" "$output"
