#!/bin/sh
# SPDX-License-Identifier: MIT
# The `foliot` command: what it says, where it says it and how it ends.

. "$(dirname "$0")/tap.sh"

foliot=$BUILD/src/cli/foliot
escape=$(printf '\033')

# answers STATUS STREAM PATTERN ARGUMENT...: ends with that status, and that stream alone has something to say.
answers() {
    status=$1 stream=$2 pattern=$3
    shift 3
    "$foliot" "$@" >"$work/stdout" 2>"$work/stderr"
    actual=$?
    cat "$work/stdout" "$work/stderr"
    case $stream in
    stdout) other=stderr ;;
    *) other=stdout ;;
    esac
    [ "$actual" -eq "$status" ] && grep -q -e "$pattern" "$work/$stream" && [ ! -s "$work/$other" ]
}

# It prints a line a second; a line more or less is the machine's business.
demo_on_a_pipe() {
    "$foliot" demo --timers 100000 --seconds=2 >"$work/stdout" || return 1
    cat "$work/stdout"
    grep -q 'live 100000 ' "$work/stdout" && grep -q '^  fired ' "$work/stdout" && ! grep -q "$escape" "$work/stdout"
}

demo_on_a_terminal() {
    TERM=xterm LC_ALL=C.UTF-8 script -qec "$foliot demo --timers 1000 --seconds 1" /dev/null >"$work/screen"
    status=$?
    cat -v "$work/screen"
    for expected in "$escape\[?1049h" "$escape\[32m" "$escape\[?1049l" 'lateness   p50'; do
        grep -q "$expected" "$work/screen" || return 1
    done
    [ "$status" -eq 0 ]
}

no_colour() {
    NO_COLOR=1 TERM=xterm script -qec "$foliot demo --timers 10 --seconds 1" /dev/null >"$work/screen"
    status=$?
    cat -v "$work/screen"
    [ "$status" -eq 0 ] && ! grep -q "$escape\[[0-9]*m" "$work/screen"
}

interrupted_demo() {
    rm -f "$work/stdout"
    "$foliot" demo --timers 1000 --seconds 3600 >"$work/stdout" &
    demo=$!
    while [ ! -s "$work/stdout" ] && kill -0 "$demo"; do
        sleep 0.1
    done
    kill -"$1" "$demo"
    wait "$demo" && grep -q 'lateness   p50' "$work/stdout"
}

full_disk() {
    ! "$foliot" --help >/dev/full
}

check "--version says the name and the version" answers 0 stdout '^foliot [0-9]*\.[0-9]*\.[0-9]*$' --version
check "--help lists the commands" answers 0 stdout '^  demo ' --help
check "help lists the commands" answers 0 stdout '^  demo ' help
check "help of a command lists its options" answers 0 stdout '--timers N' help demo
check "--help of a command does too" answers 0 stdout '--seconds S' demo --help
check "no command is an error that shows the help" answers 2 stderr '^Usage: foliot COMMAND'
check "an unknown command is named" answers 2 stderr "unknown command 'frobnicate'" frobnicate
check "help of an unknown command too" answers 2 stderr "unknown command 'frobnicate'" help frobnicate
check "an unknown option is named" answers 2 stderr "unknown option '--frob'" demo --frob
check "a stray argument is named" answers 2 stderr "unknown option 'stray'" demo stray
check "a missing value is asked for" answers 2 stderr '--timers needs a value: --timers N' demo --timers
for value in abc '' -1 +1 ' 1' 1x 0 100000001 99999999999999999999; do
    check "the value '$value' is refused" answers 2 stderr "invalid value '$value' for --timers" demo --timers "$value"
done
check "the demo prints lines and a summary on a pipe" demo_on_a_pipe
if script -qec true /dev/null >/dev/null 2>&1; then
    check "the demo draws on a terminal and gives it back" demo_on_a_terminal
    check "NO_COLOR is honoured" no_colour
else
    skip "the demo draws on a terminal and gives it back" "there is no script(1)"
    skip "NO_COLOR is honoured" "there is no script(1)"
fi
check "Ctrl-C ends the demo with its summary" interrupted_demo INT
check "so does a request to terminate" interrupted_demo TERM
check "what cannot be written is an error" full_disk
done_testing
