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
done_testing
