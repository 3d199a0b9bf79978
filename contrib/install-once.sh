#!/bin/sh
# install-once.sh FROM TO: installs a file under $DESTDIR unless there is one already.
set -eu
to=${DESTDIR-}$2
if [ -e "$to" ]; then
    echo "Keeping $to"
    exit 0
fi
mkdir -p "$(dirname "$to")"
cp "$1" "$to"
chmod 644 "$to"
