#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the rival with Debian's crates, offline: build.sh SOURCE OUTPUT
set -eu
source=$(cd "$1" && pwd)
output=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/.cargo"
cp -r "$source/Cargo.toml" "$source/src" "$work"
cat >"$work/.cargo/config.toml" <<'END'
[source.crates-io]
replace-with = "debian"
[source.debian]
directory = "/usr/share/cargo/registry"
END
(cd "$work" && CARGO_HOME="$work/home" cargo build --offline --release --quiet)
cp "$work/target/release/rival-tokio" "$output"
