#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs clang-tidy over files, but not over those that it has found clean before: tidy.py CLEAN BUILD FILE...

What clang-tidy finds in a file depends on its own version and settings, on the file, on every header that the file
includes, the system's too, and on how the file is compiled. A hash of all that is the file's fingerprint. CLEAN is a
list of the fingerprints of files in which nothing was found: a file whose fingerprint is there is passed over.

A file that is compiled for several programs is looked at once for each way in which it is compiled, not once for each
program. BUILD is a build directory of Meson, which knows these ways.
"""

import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile

KEPT = 4000  # fingerprints; those of other branches and older states are among them

# How many states of a function the analyzer visits before it gives up. Nearly all of the time of clang-tidy goes there, about in
# proportion to this number. Of null pointers that were put at the ends of 24 long functions, it found 22 with 75,000 and with 30,000
# states, and 21 with 15,000. Its own default is 225,000.
NODES = 30000


def run(*command, cwd=None):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, errors="replace")


def way(command):
    """The arguments that matter of the command that compiles a file: not where the result goes."""
    kept = []
    arguments = iter(shlex.split(command))
    for argument in arguments:
        if argument in ("-o", "-MF", "-MQ"):
            next(arguments)
        elif argument not in ("-c", "-MD") and not (argument.startswith("-I") and argument.endswith(".p")):
            kept.append(argument)
    return kept


def ways_to_compile(build):
    """For each file, by its full path, the different ways in which it is compiled."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as commands:
        entries = json.load(commands)
    ways = {}
    for entry in entries:
        path = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
        found = ways.setdefault(path, [])
        arguments = way(entry["command"])
        if arguments not in [other["arguments"] for other in found]:
            found.append({"directory": entry["directory"], "file": path, "arguments": arguments})
    return ways


def included(entry):
    """All files that this way of compiling reads; None if it does not compile."""
    result = run(*entry["arguments"], "-M", cwd=entry["directory"])
    if result.returncode != 0:
        return None
    names = shlex.split(result.stdout.replace("\\\n", " "))[1:]
    return sorted({os.path.realpath(os.path.join(entry["directory"], name)) for name in names})


def fingerprint(tool, entries):
    """None if there is none: then clang-tidy will say why."""
    digest = hashlib.sha256(tool)
    for entry in entries:
        names = included(entry)
        if names is None:
            return None
        digest.update(repr(entry["arguments"]).encode())
        for name in names:
            with open(name, "rb") as file:
                digest.update(name.encode() + b"\0" + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def tidy(path, entries):
    """What clang-tidy has to say; "" if the file is clean."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as commands:
            json.dump(entries, commands)
        depth = [f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={NODES}")]
        result = run("clang-tidy", "--quiet", "-p", folder, *depth, path)
    return "" if result.returncode == 0 else result.stdout + result.stderr or f"{path}: clang-tidy failed\n"


def read_lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().split()
    except FileNotFoundError:
        return []


def look(tool, clean, path, entries):
    """The file's fingerprint, and what was found in it."""
    if not entries:
        return None, f"{path}: it is not known how it is compiled\n"
    print_of_file = fingerprint(tool, entries)
    if print_of_file in clean:
        return print_of_file, ""
    return print_of_file, tidy(path, entries)


def main():
    list_path, build, paths = sys.argv[1], sys.argv[2], sys.argv[3:]
    ways = ways_to_compile(build)
    before = read_lines(list_path)
    clean = set(before)
    with open(".clang-tidy", "rb") as settings, open(__file__, "rb") as this:
        tool = run("clang-tidy", "--version").stdout.encode() + settings.read() + this.read()
    paths = sorted((os.path.realpath(path) for path in paths), key=os.path.getsize, reverse=True)  # long ones first
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(lambda path: look(tool, clean, path, ways.get(path, [])), paths))
    now = [print_of_file for print_of_file, found in results if print_of_file and not found]
    known = [line for line in before if line not in set(now)] + now
    os.makedirs(os.path.dirname(list_path) or ".", exist_ok=True)
    with open(list_path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in known[-KEPT:])
    print(f"{sum(line in clean for line in now)} of {len(paths)} files have not changed since they were found clean")
    for _, found in results:
        print(found, end="")
    sys.exit(any(found for _, found in results))


main()
