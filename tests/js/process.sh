#!/bin/sh
# SPDX-License-Identifier: MIT
# `foliot js` as a program: what it takes, prints and returns, and when it ends.
# From Meson also: JS, the path of foliot-js, and FOLIOT, that of foliot.

. "$SOURCE/tests/base/tap.sh"

# runs STATUS STDOUT STDERR ARGUMENT...: ends with that status and prints what matches these patterns. An empty pattern
# stands for no output, - for any.
runs() {
    status=$1 out=$2 err=$3
    shift 3
    timeout 60 "$JS" "$@" >"$work/stdout" 2>"$work/stderr"
    actual=$?
    cat "$work/stdout" "$work/stderr"
    [ "$actual" -eq "$status" ] && matches "$out" "$work/stdout" && matches "$err" "$work/stderr"
}

matches() {
    case $1 in
    -) true ;;
    '') [ ! -s "$2" ] ;;
    *) grep -q -e "$1" "$2" ;;
    esac
}

# prints TEXT ARGUMENT...: ends well with exactly this on standard output.
prints() {
    expected=$1
    shift
    timeout 60 "$JS" "$@" >"$work/stdout" 2>"$work/stderr" || return 1
    printf '%s\n' "$expected" | diff -u - "$work/stdout" && [ ! -s "$work/stderr" ]
}

by_foliot() {
    [ "$("$FOLIOT" js -e 'print(args)' a --help -e)" = 'a,--help,-e' ] &&
        "$FOLIOT" js --help | grep -q '^Usage: foliot js FILE' && "$FOLIOT" help js | grep -q '^Usage: foliot js FILE'
}

# Found beside the command, wherever that is; and not found at all.
elsewhere() {
    mkdir -p "$work/bin" "$work/alone" && cp "$FOLIOT" "$work/bin/" && cp "$FOLIOT" "$work/alone/" &&
        printf '#!/bin/sh\necho beside "$@"\n' >"$work/bin/foliot-js" && chmod +x "$work/bin/foliot-js" &&
        [ "$("$work/bin/foliot" js x)" = 'beside x' ] &&
        [ "$(PATH="$work/bin:$PATH" "$work/alone/foliot" js x)" = 'beside x' ]
}

missing() {
    mkdir -p "$work/alone" && cp "$FOLIOT" "$work/alone/"
    if [ -e "$PREFIX/bin/foliot-js" ]; then
        return 0 # it is installed on this machine
    fi
    PATH=/nowhere "$work/alone/foliot" js x 2>"$work/stderr"
    [ $? -eq 1 ] && grep -q 'install JavaScriptCore' "$work/stderr"
}

server_has_no_engine() {
    ! readelf -d "$FOLIOT" | grep -q javascriptcore && ! readelf -d "$BUILD/libfoliot.so" | grep -q javascriptcore
}

cat >"$work/uncaught.js" <<'END'
// a comment
function f() {
    throw new Error('boom');
}
setTimeout(f, 1);
setTimeout(() => print('after'), 2);
END

uncaught() {
    runs 1 '^after$' '^Uncaught Error: boom$' "$work/uncaught.js" || return 1
    grep -q 'uncaught.js:3$' "$work/stderr" && grep -q "^    throw new Error('boom');\$" "$work/stderr" &&
        grep -q '^ *^$' "$work/stderr" && grep -q '^    at f (.*uncaught.js:3:' "$work/stderr" &&
        ! grep -q 'foliot:' "$work/stderr"
}

bytes_in_and_out() {
    printf 'print("gr\303\274n \360\237\230\200", "\\ud800", readFile(args[0]))' >"$work/utf8.js"
    printf '\357\273\277a\000b\377\n' >"$work/data"
    [ "$("$JS" "$work/utf8.js" "$work/data" | od -An -tx1 | tr -d ' \n')" = \
        "6772c3bc6e20f09f988020efbfbd20610062efbfbd0a0a" ]
}

full_disk() {
    ! "$JS" -e 'print(1)' >/dev/full 2>"$work/stderr" && grep -q 'cannot write' "$work/stderr"
}

# What the caller has closed must not become a descriptor of the loop's or the engine's.
closed() {
    "$JS" -e 'print(1); print("1234567")' >&- 2>"$work/stderr"
    [ $? -eq 1 ] && grep -q 'cannot write' "$work/stderr" &&
        [ "$(timeout 10 "$JS" -e 'print(JSON.stringify(readFile("/dev/stdin")))' <&-)" = '""' ] &&
        [ "$(timeout 10 "$JS" -e 'setTimeout(() => { console.error("12345678"); print("end") }, 1)' 2>&-)" = end ]
}

# A line of 3000 characters, in the middle of which is an error.
long_line() {
    x=$(printf '%1000s' '' | tr ' ' x)
    printf 'print(1);\n/*%s*/ let = ; /*%s*/' "$x" "$x$x" >"$work/long.js"
    printf 'print(1);\n/*%s*/ throw new Error("far"); /*%s*/' "$x" "$x$x" >"$work/far.js"
    runs 1 '' '^Uncaught SyntaxError' "$work/long.js" && grep -q 'long.js:2$' "$work/stderr" &&
        grep -q '^/\*x*\.\.\.$' "$work/stderr" && ! grep -q '.\{200\}' "$work/stderr" &&
        runs 1 '^1$' '^Uncaught Error: far' "$work/far.js" && grep -q 'far.js:2$' "$work/stderr" &&
        grep -q '^\.\.\.x*\*/ throw new Error("far"); /\*x*\.\.\.$' "$work/stderr" && ! grep -q '.\{200\}' "$work/stderr"
}

string_handler() {
    runs 1 '^after$' '^Uncaught Error: x$' -e 'setTimeout("1;\n  throw new Error(\"x\")"); setTimeout("print(\"after\")", 1)' &&
        grep -q '^setTimeout handler:2$' "$work/stderr" && grep -q '^  throw new Error("x")$' "$work/stderr" &&
        runs 1 '' '^Uncaught SyntaxError' -e 'const id = setInterval("let = ;"); setTimeout(clearInterval, 0, id)' &&
        grep -q '^setInterval handler:1$' "$work/stderr" && grep -q '^let = ;$' "$work/stderr"
}

# Whatever a script does to built-in objects.
patched() {
    runs 1 - - "$SOURCE/tests/js/patched.js" || return 1
    tr '\n' ' ' <"$work/stdout" >"$work/line"
    grep -q '^listener clone 1 { a: \[ 1, 2 \] } x 5 any microtask rejection immediate 2 timeout 2 error 1 interval 2 script TimeoutError $' \
        "$work/line" && grep -q '^Uncaught Error: printed$' "$work/stderr" && grep -q '^    at .*patched.js:' "$work/stderr" &&
        grep -q '^Uncaught (in promise) Error: lost$' "$work/stderr"
}

printf '#!/usr/bin/env foliot-js\nprint("hash-bang")' >"$work/hashbang.js"
printf 'let = ;' >"$work/syntax.js"

from_stdin() {
    [ "$(echo 'print("in", args)' | "$JS" - a b)" = 'in a,b' ]
}

set_back_and_forth() {
    WALL_BACK="300 700 300" LD_PRELOAD=$WALL timeout 60 "$JS" "$SOURCE/tests/js/wall.js" >"$work/stdout" || return 1
    grep -q '^in time$' "$work/stdout"
}

check "a script runs" runs 0 '^hash-bang$' '' "$work/hashbang.js"
check "-e runs code" prints 'x 3' -e 'print("x", 1 + 2)'
check "arguments are the script's" prints '["a","-e","--help"]' -e 'print(JSON.stringify(args))' a -e --help
check "foliot js runs foliot-js" by_foliot
check "foliot js finds it beside itself, and in PATH" elsewhere
check "foliot js says what is missing" missing
check "neither foliot nor the library loads an engine" server_has_no_engine
check "--version says the name and the version" runs 0 '^foliot-js [0-9]*\.[0-9]*\.[0-9]*$' '' --version
check "--help says what it takes" runs 0 '^Usage: foliot js FILE' '' --help
check "no script is an error" runs 2 '' 'no script; give FILE'
check "- is a script on standard input" from_stdin
check "-e without code is an error" runs 2 '' '-e needs' -e
check "an unknown option is named" runs 2 '' 'unknown option --frob' --frob
check "a file that is not there is named" runs 1 '' 'cannot read /nowhere' /nowhere
check "a folder is no script" runs 1 '' 'cannot read /' /
check "after -- comes a file, whatever its name" runs 1 '' 'cannot read -e' -- -e

check "it ends when nothing is left to wait for" runs 0 '' '' -e 'setTimeout(() => {}, 5); setImmediate(() => {}); queueMicrotask(() => {})'
check "it ends when the last timer is cleared" runs 0 '' '' -e 'const id = setInterval(() => clearInterval(id), 1); clearTimeout(setTimeout(() => {}, 1e9))'
check "a promise alone does not keep it alive" runs 0 '' '' -e 'new Promise(() => {}).then(() => print(1))'
check "a signal's time-out does not either" runs 0 '' '' -e 'AbortSignal.timeout(1e9)'
check "unless somebody listens to it" prints 'TimeoutError' -e 'const s = AbortSignal.timeout(5); s.onabort = () => print(s.reason.name)'
check "or to one that depends on it" prints 'TimeoutError' -e 'const s = AbortSignal.any([AbortSignal.timeout(5)]); s.onabort = () => print(s.reason.name)'
check "nor is a time-out of one that is aborted waited for" prints 'TimeoutError' -e 'const s = AbortSignal.any([AbortSignal.timeout(1e9), AbortSignal.timeout(5)]); s.onabort = () => print(s.reason.name)'
check "who no longer listens does not" runs 0 '' '' -e 'const s = AbortSignal.timeout(1e9), f = () => {}; s.addEventListener("abort", f); s.removeEventListener("abort", f)'
check "WebAssembly that compiles does" prints 'Error' -e 'WebAssembly.compile(new Uint8Array(1)).catch(e => print(e instanceof Error && "Error"))'
check "exit ends it at once" runs 7 '^before$' '' -e 'setInterval(() => {}, 1); print("before"); exit(7); print("after")'
check "exit without a status is 0" runs 0 '' '' -e 'exit()'
if [ "$WALL" ]; then
    check "a timer is not early when the wall clock is set back and forth while a task runs" set_back_and_forth
else
    skip "a timer is not early when the wall clock is set back and forth while a task runs" "not with a sanitizer"
fi
check "exit inside of a timer" runs 3 '' '' -e 'setTimeout(() => exit(3), 1)'

check "an uncaught error prints its line and stack; the rest runs; the status is 1" uncaught
check "a syntax error too" runs 1 '' 'Uncaught SyntaxError' "$work/syntax.js"
check "a long line is cut, and its file and number printed" long_line
check "an error in a string has its line" string_handler
check "patched built-ins get in the way of nothing" patched
check "nor of a rejection" runs 1 '' '^Uncaught (in promise) Error: lost' -e 'Array.prototype[Symbol.iterator] = () => { throw 1 }; Promise.reject(new Error("lost"))'
check "what is thrown need not be an error" runs 1 '' '^Uncaught { a: 1 }' -e 'throw { a: 1 }'
check "nor something that can be shown" runs 1 '' '^Uncaught {' -e 'throw { get x() { throw 1 }, toString() { throw 1 }, [Symbol.toPrimitive]: 1, __proto__: new Proxy({}, { getPrototypeOf() { throw 1 }, get() { throw 1 } }) }'
check "an error that is prevented is none" prints 'seen' -e 'onerror = () => { print("seen"); return true }; throw new Error("x")'
check "a rejection that nobody handles is an error" runs 1 '' '^Uncaught (in promise) Error: no' -e 'Promise.reject(new Error("no"))'
check "one that is prevented is none" runs 0 '' '' -e 'addEventListener("unhandledrejection", e => e.preventDefault()); Promise.reject(1)'
check "an error while reporting is printed, not reported" runs 1 '' 'Uncaught second' -e 'addEventListener("error", () => { throw "second" }); throw "first"'
check "endless recursion is an error" runs 1 '' 'RangeError' -e '(function f() { f() })()'
check "the errors of an error are shown" runs 1 '' '^    Error: one$' -e 'Promise.any([Promise.reject(new Error("one")), Promise.reject(2)])'
check "the cause of an error is shown" runs 1 '' 'cause.*Error: deep' -e 'throw new Error("top", { cause: new Error("deep") })'

check "text is UTF-8, and what is not becomes U+FFFD" bytes_in_and_out
check "what cannot be written is an error" full_disk
check "closed descriptors stay closed" closed
check "console.log shows values" prints "a 1 'b' { c: [ 1, 'x' ], d: null } [Function: f] Map(1) { 1 => 2 } -0 5n" \
    -e "console.log('a', 1, \`'b'\`, { c: [1, 'x'], d: null }, function f() {}, new Map([[1, 2]]), -0, 5n)"
check "console.log formats" prints '5 5.5 x [object] % { a: 1 } %s' -e 'console.log("%i %f %s %s %% %o %s", "5.9", 5.5, "x", "[object]", { a: 1 })'
check "console.log shows what refers to itself" prints '{ a: [Circular] }' -e 'const a = {}; a.a = a; console.log(a)'
check "console.log cuts what is deep" prints '{ a: { b: { c: [Object] } } }' -e 'console.log({ a: { b: { c: { d: 1 } } } })'
check "console.log shows arrays with great holes" prints '[ 1, <1 empty item>, 3, <4294967289 empty items>, 4, <2 empty items> ] [ <1000000 empty items> ]' \
    -e 'const a = [1, , 3]; a[4294967292] = 4; a.length = 4294967295; console.log(a, new Array(1000000))'
check "console.log shows what is behind a proxy, without its traps" prints '{ a: 1 } [ 1 ] [Revoked Proxy] [Function: f]' -e '
    const no = new Proxy({}, { get() { throw new Error("trapped") } }), { proxy, revoke } = Proxy.revocable({}, {});
    revoke(); console.log(new Proxy({ a: 1 }, no), new Proxy([1], no), proxy, new Proxy(function f() {}, no))'
check "console methods do not throw" runs 0 'cannot be shown' '' -e '
    const bad = () => { throw new Error("bad") }, object = { toString: bad, valueOf: bad, get x() { bad() } };
    console.log("%s %d %i %f %o", object, object, object, object, object); console.table([object]);
    console.log(Object.defineProperty(new Error("m"), "stack", { get: bad })); console.log(Object.create({ get constructor() { bad() } }));
    console.log(Object.assign(new Error("m"), { name: { toString: bad } }))'
check "console.error and warn go to standard error" runs 0 '' '^e$' -e 'console.error("e"); console.warn("w")'
check "console.assert says what failed" runs 0 '' '^Assertion failed: no 1$' -e 'console.assert(true); console.assert(false, "no %d", 1)'
check "console.count counts" prints 'default: 1
x: 1
default: 2
default: 1' -e 'console.count(); console.count("x"); console.count(); console.countReset(); console.count()'
check "console.group indents" prints 'a
  b
    c
    d
e' -e 'console.group("a"); console.log("b"); console.group(); console.log("c\nd"); console.groupEnd(); console.groupEnd(); console.groupEnd(); console.log("e")'
check "console.table draws" prints '┌─────────┬───┬─────┬────────┐
│ (index) │ a │ b   │ Values │
├─────────┼───┼─────┼────────┤
│ 0       │ 1 │     │        │
│ 1       │   │ '"'x'"' │        │
│ 2       │   │     │ 7      │
└─────────┴───┴─────┴────────┘' -e 'console.table([{ a: 1 }, { b: "x" }, 7])'
check "console.time measures" runs 0 '^default: [0-9.]* ms$' "already exists" -e 'console.time(); console.time(); console.timeLog(); console.timeEnd()'
check "console.trace shows where it is" runs 0 '' '^    at f (-e:1:' -e 'function f() { console.trace("x") } f()'
check "console.dir takes a depth" prints '{ a: [Object] }' -e 'console.dir({ a: { b: 1 } }, { depth: 0 })'
check "console.dir shows what is very deep" runs 0 '^ *x: 1$\|{ x: 1 }' '' -e 'let o = { x: 1 }; for (let i = 0; i < 1000; i++) o = { o }; console.dir(o, { depth: null })'
check "print joins with spaces" prints '1 x null' -e 'print(1, "x", null)'
done_testing
