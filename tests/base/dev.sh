#!/bin/sh
# SPDX-License-Identifier: MIT
# ./dev: a build directory is what the tree and the machine are now, not what they were when it was made.

. "$(dirname "$0")/tap.sh"

# A project without sources, and tools that note what they were asked for. `installed` is what dpkg knows of.
project=$work/project
mkdir -p "$project/bin" "$project/src/store" "$project/src/js"
cp "$SOURCE/dev" "$project"
cd "$project" || exit 1
cat >bin/meson <<'END'
#!/bin/sh
echo "meson $*" >>asked
mkdir -p "$2" && touch "$2/build.ninja"
END
cat >bin/ninja <<'END'
#!/bin/sh
echo "ninja $*" >>asked
END
cat >bin/dpkg-query <<'END'
#!/bin/sh
for package; do :; done
grep -qx "$package" installed && echo installed
END
printf '#!/bin/sh\nexit 1\n' >bin/apt-get
printf '#!/bin/sh\nexit 0\n' >bin/gcc
cp bin/gcc bin/pkg-config
cp bin/apt-get bin/sudo
chmod +x bin/*
printf '%s\n' libc6-dev libpq-dev >installed

# asks MESON NINJA: `./dev build` asks the two so many times.
asks() {
    : >asked
    PATH=$project/bin:$PATH ./dev build
    cat asked
    [ "$(grep -c ^meson asked)" -eq "$1" ] && [ "$(grep -c ^ninja asked)" -eq "$2" ]
}

check "a build directory is made" asks 1 1
check "it is used again, and brought up to date with its description first" asks 0 2
check "that is the first thing asked for" grep -qx 'ninja -C build build.ninja' asked
echo libsqlite3-dev >>installed
check "it is made anew when there is another library" asks 1 1
check "and used again from then on" asks 0 2

# runs: `./dev run` builds the command alone, in a build directory without tests, and starts it.
runs() {
    : >asked
    printf '%s\n' libsqlite3-dev libcurl4-openssl-dev libssl-dev libinih-dev tzdata >>installed
    mkdir -p src/server build/src/cli
    PATH=$project/bin:$PATH ./dev build
    mkdir -p build/src/cli
    printf '#!/bin/sh\necho "foliot $*" >>asked\n' >build/src/cli/foliot
    chmod +x build/src/cli/foliot
    : >asked
    PATH=$project/bin:$PATH ./dev run --no-echo
    cat asked
    grep -qx 'ninja -C build src/cli/foliot' asked && ! grep -qx 'ninja -C build' asked &&
        grep -q '^foliot serve .*--no-echo$' asked
}

check "./dev run builds nothing but the command, and starts it" runs
rm -rf build
: >asked
check "a build for users has no tests" asks 1 1
check "it is configured without them" grep -q -e '-Dtests=false' asked

# says STATUS TEXT COMMAND...: the command ends with that status, and the text is in what it prints.
says() {
    status=$1 text=$2
    shift 2
    "$@" >said 2>&1
    [ $? -eq "$status" ] && cat said && grep -q -e "$text" said
}

check "./dev test refuses a layer that does not exist, and names those that do" \
    says 1 'no folder src/nothing\. There are:.* store' ./dev test nothing

# Steps in the background: their counts are added to those in the foreground, and no failure is lost.
sed '/^name=\${1-help}$/,$d' dev >functions
cat >background <<'END'
. ./functions
two_steps() {
    step "good" true
    built good 0
    step "bad" false || built bad 1
    skip "left out" "for a reason"
}
go_beside two_steps
await good && ! await bad || exit 3
step "in front" true
join_beside
finish
END
check "steps in the background count, and a failure among them fails the script" \
    says 1 '^2 passed, 1 failed, 1 skipped$' sh background
check "each has its line" grep -q '^bad  *FAILED' said
sed 's/step "bad" false/step "bad" true/; s/! await bad/! await never/' background >background-good
check "without a failure, the script succeeds" says 0 '^3 passed, 0 failed, 1 skipped$' sh background-good
sed 's/built good 0/exit 7/; s/await good && ! await bad/! await good/' background >background-killed
check "steps in the background that do not come to their end are a failure" \
    says 1 '^1 passed, 1 failed, 0 skipped$' sh background-killed

# The real build directory: which tests there are, by suite.
pick() {
    python3 "$SOURCE/tests/pick.py" "$@"
}

picks() {
    pick names "$BUILD" base once >picked
    cat picked
    grep -qx base-layers picked && ! grep -qx base-parts picked && ! pick names "$BUILD" base not once | grep -qx base-layers
}

check "tests are picked by all of their suites" picks
check "with the targets that they need" sh -c "python3 '$SOURCE/tests/pick.py' targets '$BUILD' base | grep -qx src/cli/foliot"
done_testing
