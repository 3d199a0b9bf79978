#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The commands of the documentation work: README.md, docs/http.md, docs/operation.md and docs/cluster.md, each from top to bottom.

The shell blocks that talk to a server on 127.0.0.1:7411 (or, with a test clock, 7412) are run against one, and so are those
that deal with its store in foliot-data. Every command must succeed. If a block of JSON follows before the next heading, the
last answer must look like it: the same members, with values of the same types.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess

from e2e import FOLIOT, PATIENCE, SOURCE, Postgres, Server, check, expect, folder, need_program, run, test

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
OURS = re.compile(r"//127\.0\.0\.1:741[12]|foliot-data/")

# A stream that is listened to has no end: a while is enough.
FRAME = """set -eu
curl() { command curl -fsS -m 5 "$@" || { status=$?; [ "$status" -eq 28 ] && case "$*" in *-N*) return 0 ;; esac; return "$status"; }; echo; }
"""


def blocks(name, ours=OURS):
    """The blocks to be run, each with the JSON that follows it, or None."""
    with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
        text = file.read()
    found = list(BLOCK.finditer(text))
    for block, after in zip(found, found[1:] + [None]):
        if block[1] != "sh" or not ours.search(block[2]):
            continue
        follows = after and after[1] == "json" and "\n#" not in text[block.end() : after.start()]
        yield block[2], json.loads(after[2]) if follows else None


def shape(value):
    """What it is made of, without the values themselves."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shape(part) for part in value[:1]]
    return type(value).__name__


def run_block(text, where, servers):
    for port, server in servers.items():
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{server.port}")
    path = os.path.dirname(FOLIOT) + os.pathsep + os.environ["PATH"]
    done = subprocess.run(
        ["sh", "-c", FRAME + text],
        cwd=where,
        env={**os.environ, "PATH": path},
        text=True,
        capture_output=True,
        timeout=120,
    )
    check(done.returncode == 0, f"{text}\nended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def run_page(name, least):
    need_program("curl")
    where, count = folder(), 0
    with Server(store="sqlite:" + os.path.join(where, "foliot-data")) as server, Server("--test-clock") as tests:
        for text, wanted in blocks(name):
            said = run_block(text, where, {7411: server, 7412: tests})
            count += 1
            if wanted:
                answer = json.loads(said.strip().splitlines()[-1])
                check(shape(answer) == shape(wanted), f"{text}\nis answered {answer}, and not as {wanted}")
    check(count >= least, f"only {count} blocks of {name} were run")


@test("the commands of README.md work")
def _():
    run_page("README.md", 2)


@test("the commands of docs/http.md work, and are answered as it says")
def _():
    run_page("docs/http.md", 15)


@test("the commands of docs/operation.md work: timers are copied, and moved")
def _():
    need_program("sqlite3")
    names = [f"n{i}" for i in range(2500)]
    lines = [{"op": "create", "namespace": "a/b", "name": name, "after": "1d", "payload": name} for name in names]

    def has_all(server):
        found = server.timers("a/b", limit=10000)
        expect(sorted(timer["payload"] for timer in found), sorted(names))

    where = folder()
    with Server(store="sqlite:" + os.path.join(where, "foliot-data")) as server, Server() as other:
        server.batch(lines)
        server.put("/v1/timers/a%2Fb/n0", {"after": "2d", "payload": "n0", "max_wait": "9d"}).must(200)
        server.put("/v1/timers/a%2Fb/n1", {"due": {"local": "2099-01-01T09:00:00", "zone": "Europe/Berlin"}, "payload": "n1"}).must(200)
        for text, _ in blocks("docs/operation.md"):
            run_block(text, where, {7411: server, 7412: other})
        has_all(other)
        expect(server.timers("a/b"), [])
    with Server(store="sqlite:" + os.path.join(where, "copy")) as restored:
        has_all(restored)



def free_ports(count):
    made = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in made]
    for one in made:
        one.close()
    return ports


@test("the commands of docs/cluster.md work: three servers are started, and are one")
def _():
    need_program("curl")
    found = list(blocks("docs/cluster.md", re.compile("foliot serve|//127")))
    script = FRAME
    for number, (text, _) in enumerate(found):
        if "/v1/cluster" in text:  # until each server has its share of the shards
            script += """until [ "$(curl -s http://127.0.0.1:7413/v1/cluster | grep -o '"shards":8,' | wc -l)" -eq 3 ]; do sleep 0.1; done\n"""
        script += f"echo '== {number}'\n{text}"
    for named, port in zip((7411, 7412, 7413), free_ports(3)):
        script = script.replace(f"127.0.0.1:{named}", f"127.0.0.1:{port}")
    script = script.replace("postgres://foliot@db.example.com/timers", f"'{Postgres().url()}'")
    where = folder()
    path = os.path.dirname(FOLIOT) + os.pathsep + os.environ["PATH"]
    with open(os.path.join(where, "said"), "w+", encoding="utf-8") as said:
        shell = subprocess.Popen(["sh", "-c", script], cwd=where, stdout=said, stderr=subprocess.STDOUT,
                                 env={**os.environ, "PATH": path}, start_new_session=True)
        try:
            status = shell.wait(PATIENCE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # the servers, which go on in the background
        said.seek(0)
        text = said.read()
    check(status == 0, f"{script}\nended with {status}: {text}")
    parts = re.split(r"^== \d+$", text, flags=re.M)[1:]
    expect(len(parts), 4, "blocks")
    answers = [json.loads(line) for line in parts[3].splitlines() if line.startswith('{"servers"')]
    expect(shape(answers[0]), shape(found[3][1]))
    expect(sorted(server["shards"] for server in answers[0]["servers"]), [8, 8, 8])


run()
