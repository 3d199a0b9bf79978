#!/bin/sh
# SPDX-License-Identifier: MIT
# The web platform's own tests (web-platform-tests) of what the host has: timers, microtasks, events, signals, the clock,
# the console. Each file is a test here.
#
# The tests are in no package of npm. Debian has them in the source of Node.js, from which they are taken, and checked, into
# the build folder. Their harness comes from npm (wpt-runner) where npm is, else from the same place. With WPT=FOLDER, a
# checkout of web-platform-tests is used instead.
# From Meson also: JS, the path of foliot-js.

. "$SOURCE/tests/base/tap.sh"

mirror=${DEBIAN_MIRROR-http://deb.debian.org/debian}
archive=nodejs_18.20.4+dfsg.orig.tar.xz
sum=6ce58062c71eae37d9c5ac31eeaeff9c2d48561d21c2849179d056c9c1bd9ebc
inside=node-v18.20.4/test/fixtures/wpt
runner=wpt-runner@7.0.0
kept=$BUILD/wpt

# download URL FILE SHA256
download() {
    python3 - "$@" <<'END'
import hashlib, sys, urllib.request
url, file, expected = sys.argv[1:]
data = urllib.request.urlopen(url, timeout=60).read()
if hashlib.sha256(data).hexdigest() != expected:
    sys.exit(f"{url}: not the file that was expected")
with open(file, "wb") as out:
    out.write(data)
END
}

fetch_tests() {
    [ ! -e "$kept/tests/complete" ] || return 0
    mkdir -p "$kept/tests" &&
        download "$mirror/pool/main/n/nodejs/$archive" "$work/archive" "$sum" &&
        tar -xJf "$work/archive" -C "$kept/tests" --strip-components=4 "$inside" && : >"$kept/tests/complete"
}

fetch_harness() {
    [ ! -e "$kept/package/testharness/testharness.js" ] || return 0
    command -v npm || return 1
    (cd "$work" && npm pack --silent "$runner") && tar -xzf "$work"/wpt-runner-*.tgz -C "$kept"
}

# Files that the host can run. Left out are those that need the rest of a browser: idlharness (the IDL of every interface),
# reporterror (URL), queue-microtask.window (a document).
list() {
    for file in "$1"/html/webappapis/timers/*.any.js "$1"/html/webappapis/timers/evil-spec-example.html \
        "$1"/html/webappapis/timers/timer-nesting-not-inherited-in-microtask.html \
        "$1"/html/webappapis/microtask-queuing/*.any.js \
        "$1"/html/webappapis/structured-clone/*.any.js \
        "$1"/html/webappapis/scripting/event-loops/microtask_after_script.html \
        "$1"/dom/abort/*.any.js "$1"/dom/events/*.any.js "$1"/hr-time/*.any.js "$1"/console/*.any.js; do
        case $file in
        */idlharness*) ;;
        *) [ ! -e "$file" ] || printf '%s\n' "${file#"$1"/}" ;;
        esac
    done
}

# run_once FILE: a test that waits for what does not happen ends like any other, but without a plan.
run_once() {
    timeout 60 "$JS" "$SOURCE/tests/js/wpt.js" "$root" "$harness" "$1" >"$work/result" 2>&1
    status=$?
    cat "$work/result"
    [ "$status" -eq 0 ] && grep -q '^1\.\.[1-9]' "$work/result"
}

# Some of them assert how long something takes, which a busy machine may exceed: three tries.
run_test() {
    for try in 1 2 3; do
        ! run_once "$root/$1" || return 0
        echo "try $try failed"
    done
    return 1
}

# Tests that must not pass.
notices() {
    echo 'test(() => assert_true(false), "fails")' >"$work/fails.any.js"
    echo 'async_test(t => {}, "does not end")' >"$work/waits.any.js"
    echo 'promise_test(() => new Promise(() => {}), "waits"); test(() => {}, "passes")' >"$work/half.any.js"
    echo '' >"$work/empty.any.js"
    for name in fails waits half empty; do
        ! run_once "$work/$name.any.js" || return 1
    done
}

root=${WPT-$kept/tests}
if [ -z "${WPT-}" ] && ! fetch_tests >"$work/log" 2>&1; then
    skip "the web platform's tests" "they cannot be fetched: $(tail -n 1 "$work/log")"
    done_testing
fi
harness=$root/resources/testharness.js
if [ -z "${WPT-}" ] && fetch_harness >"$work/log" 2>&1; then
    harness=$kept/package/testharness/testharness.js
fi
for file in $(list "$root"); do
    check "$file" run_test "$file"
done
check "tests that fail, do not end or are none are noticed" notices
check "there are tests of timers" test -e "$root/html/webappapis/timers/negative-settimeout.any.js"
done_testing
