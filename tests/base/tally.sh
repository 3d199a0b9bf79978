#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/tally.py: a test that did not run has failed, and no failure is lost.

. "$(dirname "$0")/tap.sh"

# counts EXPECTED RESULT OUTPUT: one program that ended with RESULT after having printed OUTPUT.
counts() {
    printf '{"name": "n", "command": ["c"], "returncode": 1, "result": "%s", "stdout": "%s"}\n' "$2" "$3" >"$work/log.json"
    actual=$(python3 "$SOURCE/tests/tally.py" "$work/log.json" | head -n 1)
    echo "expected $1, counted $actual"
    [ "$actual" = "$1" ]
}

two_programs() {
    printf '{"name": "n", "command": ["c"], "returncode": 0, "result": "OK", "stdout": "%s"}\n' \
        '1..1\nok 1 - a' '1..2\nok 1 - a\nok 2 - b' >"$work/log.json"
    [ "$(python3 "$SOURCE/tests/tally.py" "$work/log.json")" = "3 0 0" ]
}

shows_the_output_of_a_failure() {
    counts "0 1 0" FAIL '1..1\nnot ok 1 - a\n# because' && python3 "$SOURCE/tests/tally.py" "$work/log.json" | grep '# because'
}

no_log() {
    ! python3 "$SOURCE/tests/tally.py" "$work/there-is-none"
}

check "passed" counts "2 0 0" OK '1..2\nok 1 - a\nok 2 - b'
check "the plan may come last" counts "2 0 0" OK 'ok 1 - a\nok 2 - b\n1..2'
check "failed" counts "1 1 0" FAIL '1..2\nok 1 - a\nnot ok 2 - b'
check "skipped" counts "1 0 1" OK '1..2\nok 1 - a\nok 2 - b # SKIP no'
check "skipped altogether" counts "0 0 1" SKIP '1..0 # SKIP no'
check "skipped altogether, and then crashed" counts "0 1 1" ERROR '1..0 # SKIP no'
check "bailed out: what did not run has failed" counts "1 3 0" FAIL '1..4\nok 1 - a\nnot ok 2 - b\nBail out! b'
check "crashed in the middle" counts "1 2 0" FAIL '1..3\nok 1 - a'
check "crashed before the first" counts "0 3 0" FAIL '1..3'
check "crashed before the plan" counts "0 1 0" ERROR ''
check "all is well but the end" counts "1 1 0" ERROR '1..1\nok 1 - a'
check "timed out" counts "1 1 0" TIMEOUT '1..2\nok 1 - a'
check "a program without TAP passed" counts "1 0 0" OK 'hello'
check "a program without TAP failed" counts "0 1 0" FAIL 'hello'
check "a program without TAP was skipped" counts "0 0 1" SKIP ''
check "programs are added up" two_programs
check "a failure is shown" shows_the_output_of_a_failure
check "no log is an error" no_log
done_testing
