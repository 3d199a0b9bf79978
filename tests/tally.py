#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts the single tests in the log of `meson test` (testlog.json: one test program a line).

The first line printed is "PASSED FAILED SKIPPED"; after it comes the output of each program in which something failed.

A program that speaks TAP announces how many tests it has. Those that it did not get to, because it crashed or gave up,
have failed. So has a program that reports only successes but does not end well: a leak, for instance, is found at the
end. A program that speaks no TAP is one test.
"""

import json
import re
import sys

PLAN = re.compile(r"^1\.\.(\d+)", re.M)
RESULT = re.compile(r"^(not )?ok\b(.*)$", re.M)
SHOWN_LINES = 80


def count(program):
    output = program.get("stdout") or ""
    result = program["result"]
    plan = PLAN.search(output)
    if not plan:
        skipped = result == "SKIP"
        passed = result == "OK" and not skipped
        return int(passed), int(not passed and not skipped), int(skipped)
    passed = failed = skipped = 0
    if int(plan.group(1)) == 0:
        skipped = 1  # all of it, for a reason it gives
    for refused, text in RESULT.findall(output):
        if re.search(r"#\s*skip", text, re.I):
            skipped += 1
        elif refused:
            failed += 1
        else:
            passed += 1
    failed += max(0, int(plan.group(1)) - passed - failed - skipped)
    if failed == 0 and result not in ("OK", "SKIP"):
        failed = 1
    return passed, failed, skipped


def show(program):
    print(f"--- {program['name']}: {program['result']}, exit status {program['returncode']}")
    print("    " + " ".join(program["command"]))
    for stream in ("stdout", "stderr"):
        lines = [line for line in (program.get(stream) or "").splitlines() if not line.startswith("ok ")]
        if len(lines) > SHOWN_LINES:
            lines = [f"({len(lines) - SHOWN_LINES} lines left out)"] + lines[-SHOWN_LINES:]
        print("\n".join(lines))


def main():
    with open(sys.argv[1], encoding="utf-8") as log:
        programs = [json.loads(line) for line in log]
    counts = [count(program) for program in programs]
    print(*(sum(column) for column in zip(*counts)) if counts else (0, 0, 0))
    for program, (_, failed, _) in zip(programs, counts):
        if failed:
            show(program)


main()
