#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The memory budget (max-memory): whatever clients and timers do, the process stays near it, and nothing is lost."""

import contextlib
import json
import os
import re
import socket
import subprocess
import threading

from e2e import FOLIOT, PATIENCE, Server, Skip, await_, check, comment, expect, run, test

MIB = 1 << 20
BUDGET = 64 * MIB
SLACK = 110 * MIB  # program, libraries, caches of SQLite, buffers of single requests, what malloc() keeps; sanitizers take more
LARGE = "x" * (250 << 10)


def resident(server, what="VmRSS"):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
        return int(re.search(rf"{what}:\s+(\d+) kB", file.read())[1]) << 10


def has_sanitizer(server):
    with open(f"/proc/{server.process.pid}/maps", encoding="utf-8") as file:
        return "libasan" in file.read()


def stays_small(server):
    if not has_sanitizer(server):  # it keeps what was freed
        used = resident(server, "VmHWM")
        comment(f"the most it has used is {used / MIB:.0f} MiB")
        check(used < BUDGET + SLACK, f"the most it has used is {used / MIB:.0f} MiB")


def fill(server, namespace, count, **fields):
    for first in range(0, count, 20):
        answers = server.batch([{"op": "create", "namespace": namespace, "name": f"{n:05}", "payload": LARGE, **fields}
                                for n in range(first, min(first + 20, count))])
        check(all(answer["ok"] for answer in answers), answers)


def start():
    return Server("--max-memory", "64MiB", shards=2)


@contextlib.contextmanager
def control_group(limit):
    """A control group of version 1 or 2 with a limit of memory, inside another one. Gives the file that processes join by."""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        mine = {kind: path for kind, path in (line.rstrip("\n").split(":", 2)[1:] for line in file)}
    root, own, name = (("/sys/fs/cgroup/memory", mine["memory"], "memory.limit_in_bytes") if "memory" in mine
                       else ("/sys/fs/cgroup", mine.get("", "/"), "memory.max"))
    outer = os.path.join(root + own if os.path.exists(root + own) else root, f"foliot-test-{os.getpid()}")
    made = []
    try:
        try:
            for group in (outer, outer + "/inner"):
                os.mkdir(group)
                made.insert(0, group)
            with open(os.path.join(outer, name), "w", encoding="ascii") as file:
                file.write(str(limit))
        except OSError as why:
            raise Skip(f"no control group with a limit can be made here: {why}") from why
        yield outer + "/inner/cgroup.procs"
    finally:
        for group in made:
            os.rmdir(group)


@test("by default, the budget is a quarter of what the control groups of the process allow")
def _():
    with control_group(512 * MIB) as processes:
        told = subprocess.run(["sh", "-c", 'echo $$ >"$1" && exec "$2" serve --check', "sh", processes, FOLIOT], check=True,
                              capture_output=True, text=True, timeout=PATIENCE).stdout
    expect(re.search(r"^max-memory *= *(\S+)", told, re.M)[1], "128MiB")


@test("large timers that are due soon do not all come into memory, and are leased all the same")
def _():
    with start() as server:
        fill(server, "large", 1200, after="3s")
        server.kill()
        server.start()
        await_(lambda: server.get("/readyz").status == 200, "it is ready")
        found = set()
        while len(found) < 1200:
            leased = server.lease("large", max=1000, wait="10s")
            check(leased, f"after {len(found)} there are more")
            found |= {one["name"] for one in leased}
            server.ack(*((one["lease"], {"result": "done"}) for one in leased))
        stays_small(server)


@test("the budget holds with many shards")
def _():
    with Server("--max-memory", "64MiB", shards=64) as server:
        for first in range(0, 3200, 100):
            answers = server.batch([{"op": "create", "namespace": "spread", "name": f"{n}", "payload": LARGE[:20 << 10],
                                     "after": "30s"} for n in range(first, first + 100)])
            check(all(answer["ok"] for answer in answers), answers)
        used = server.metric("foliot_timer_memory_bytes")
        check(8 * MIB < used < 40 * MIB, f"{used / MIB:.0f} MiB of timers")


def ask(server, path, method="GET", body=""):
    """Sends a request and does not read the response."""
    client = socket.create_connection(("127.0.0.1", server.port))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    return client


@test("a list is given in pages that are bounded in bytes; many that nobody reads do not fill the memory")
def _():
    with start() as server:
        fill(server, "large", 400, after="1d")
        page = server.get("/v1/timers/large?limit=10000").must(200)
        check(0 < len(page["timers"]) < 20 and "cursor" in page, f"{len(page['timers'])} timers of 250 KiB on a page")
        clients = [ask(server, "/v1/timers/large?limit=10000") for _ in range(100)]
        expect(server.put("/v1/timers/small/one", {"after": "1h"}).status, 201)  # small ones do not wait
        names = [timer["name"] for timer in server.timers("large", limit=10000)]  # large ones wait their turn
        expect(sorted(names), [f"{n:05}" for n in range(400)])
        for client in clients:
            client.close()
        stays_small(server)


@test("bodies that come slowly, from many clients at once, wait for memory and are all taken")
def _():
    with start() as server:
        body = json.dumps({"after": "1h", "payload": "y" * (200 << 10)})
        answers = []

        def send(n):
            answers.append(server.put(f"/v1/timers/many/{n}", body).status)

        threads = [threading.Thread(target=send, args=(n,)) for n in range(150)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect(answers, [201] * 150)
        expect(len(server.timers("many", limit=10000)), 150)
        stays_small(server)


@test("subscribers that do not read events lose some, and cost little")
def _():
    with start() as server:
        clients = [ask(server, "/v1/events") for _ in range(100)]
        for client in clients:
            check(client.recv(15, socket.MSG_WAITALL) == b"HTTP/1.1 200 OK", "the stream begins")
        for _ in range(10):
            server.batch([{"op": "create", "namespace": "e" * 200, "after": "1d"} for _ in range(1000)])
        for client in clients:
            client.close()
        stays_small(server)


@test("several large batches take turns")
def _():
    with start() as server:
        def send(n):
            fill(server, f"batch{n}", 60, after="1d")

        threads = [threading.Thread(target=send, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for n in range(12):
            expect(server.get(f"/v1/namespaces/batch{n}").must(200)["pending"], 60)
        stays_small(server)


run()
