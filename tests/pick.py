#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of a build directory by their suites: pick.py names|targets BUILD SUITE... [not SUITE...]

Prints the tests that are in all of the suites and in none of those after "not", one per line: their names, or the targets
that must be built to run them.
"""
import json
import os
import subprocess
import sys


def introspect(what, build):
    return json.loads(subprocess.run(["meson", "introspect", what, build], check=True, capture_output=True).stdout)


def pick(tests, arguments):
    split = arguments.index("not") if "not" in arguments else len(arguments)
    wanted = {f"foliot:{suite}" for suite in arguments[:split]}
    unwanted = {f"foliot:{suite}" for suite in arguments[split + 1:]}
    return [test for test in tests if wanted <= set(test["suite"]) and not unwanted & set(test["suite"])]


def targets(tests, build):
    files = {target["id"]: target["filename"] for target in introspect("--targets", build)}
    needed = set()
    for test in tests:
        needed |= {path for target in test["depends"] for path in files.get(target, [])}
        needed.add(test["cmd"][0])
    root = os.path.realpath(build)
    paths = {os.path.relpath(os.path.join(root, path), root) for path in needed}
    return sorted(path for path in paths if not path.startswith(".."))


def main():
    what, build = sys.argv[1:3]
    picked = pick(introspect("--tests", build), sys.argv[3:])
    lines = targets(picked, build) if what == "targets" else [test["name"] for test in picked]
    print("".join(line + "\n" for line in lines), end="")


main()
