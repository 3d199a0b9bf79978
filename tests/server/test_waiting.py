#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Due timers that wait, for a lease or for a host: they delay nobody, and they can be cancelled and replaced.

FOLIOT_TIMERS says how many wait. From 200,000 on, the limits of the server are its default ones.
"""

import itertools
import os
import threading

from e2e import PATIENCE, Receiver, Server, await_, check, expect, run, test

MANY = int(os.environ.get("FOLIOT_TIMERS", "3000"))
SMALL = ["--stop-timeout", "300ms"]
if MANY < 200_000:
    SMALL += ["--max-in-flight", "100", "--max-memory-timers", "400", "--webhook-per-host", "2"]


def fill(server, namespace, count, **fields):
    for first in range(0, count, 10_000):
        lines = [{"op": "create", "namespace": namespace, "name": f"t{n}", "after": "0s", "payload": n, **fields}
                 for n in range(first, min(first + 10_000, count))]
        check(all(answer["ok"] for answer in server.batch(lines)), "all were created")


probes = itertools.count()


def probe(server, receiver, count=20):
    """Timers of another namespace fire although others wait."""
    before = len(receiver.calls)
    for n in range(count):
        server.put(f"/v1/timers/probe/p{next(probes)}", {"after": "0s", "payload": n, "target": receiver.url}).must(201)
    receiver.await_calls(before + count)


def pending(server, namespace):
    return server.get(f"/v1/namespaces/{namespace}").must(200)["pending"]


@test("timers that nobody leases delay no others, survive a restart and a crash, and can all be cancelled")
def _():
    receiver = Receiver()
    with Server(*SMALL, shards=1) as server:
        fill(server, "nobody", MANY)
        probe(server, receiver)
        server.restart()
        probe(server, receiver)
        server.kill()
        server.start()
        probe(server, receiver)
        expect(len({timer["name"] for timer in server.timers("nobody", limit=1000)}), MANY)
        server.delete("/v1/timers/nobody?all=true").must(200)
        expect(server.lease("nobody", wait="200ms"), [])
        expect(server.timers("nobody"), [])


@test("timers that had to wait in the store are all leased, each once")
def _():
    with Server(*SMALL, shards=1) as server:
        fill(server, "late", MANY)
        found = []
        while len(found) < MANY:
            some = server.lease("late", max=500, wait="10s", lease="10m")
            check(some, "there is more")
            expect(server.ack(*((one["lease"], {"result": "done"}) for one in some))["unknown"], [])
            found += [one["payload"] for one in some]
        expect(sorted(found), list(range(MANY)))
        expect(server.lease("late", wait="100ms"), [])


@test("a worker that leases and does not acknowledge delays no others")
def _():
    receiver = Receiver()
    with Server(*SMALL, shards=1) as server:
        fill(server, "kept", 1000)
        leased = 0
        while some := server.lease("kept", max=1000, wait="300ms", lease="1h"):
            leased += len(some)
        check(0 < leased < 1000, f"a share is leased: {leased}")
        probe(server, receiver)


@test("timers of a host that hangs delay no others, and arrive when it answers")
def _():
    go = threading.Event()
    hanging, receiver = Receiver(lambda call: go.wait(100) and 200), Receiver()
    with Server(*SMALL, shards=1) as server:
        fill(server, "hangs", MANY, target=hanging.url)
        hanging.await_calls(1)
        probe(server, receiver)
        server.restart()
        probe(server, receiver)
        go.set()
        await_(lambda: len(hanging.calls) >= MANY and set(hanging.bodies()) == set(range(MANY)), "all arrive",
               PATIENCE + MANY // 200)


@test("a timer that waits for a lease can be cancelled, replaced and changed")
def _():
    with Server(shards=4) as server:
        for n in range(60):
            server.put(f"/v1/timers/w/t{n}", {"after": "0s", "payload": "old"}).must(201)
        await_(lambda: server.metric("foliot_timers_waiting_for_lease") == 60, "they wait")
        for n in range(20):
            server.delete(f"/v1/timers/w/t{n}").must(204)
            server.put(f"/v1/timers/w/t{n + 20}", {"after": "0s", "payload": "new"}).must(200)
            server.patch(f"/v1/timers/w/t{n + 40}", {"payload": "new"}).must(200)
        found = []
        while some := server.lease("w", wait="500ms", max=100):
            found += some
        expect(sorted(one["name"] for one in found), sorted(f"t{n}" for n in range(20, 60)))
        expect({one["payload"] for one in found}, {"new"})
        server.delete("/v1/timers/w/t20").status == 409 or check(False, "its attempt has begun")
        server.ack(*((one["lease"], {"result": "done"}) for one in found))
        expect(pending(server, "w") if server.get("/v1/namespaces/w").status == 200 else 0, 0)


@test("a timer that waits in the queue of a host can be cancelled, replaced and changed")
def _():
    go = threading.Event()
    hanging = Receiver(lambda call: go.wait(100) and 200)
    with Server("--webhook-per-host", "1", shards=1) as server:
        for n in range(31):
            server.put(f"/v1/timers/w/t{n}", {"after": "0s", "payload": ["old", n], "target": hanging.url}).must(201)
            if n == 0:
                hanging.await_calls(1)
        expect(server.delete("/v1/timers/w/t0").status, 409, "this one has begun")
        for n in range(1, 11):
            server.delete(f"/v1/timers/w/t{n}").must(204)
            server.put(f"/v1/timers/w/t{n + 10}", {"after": "0s", "payload": ["new", n + 10], "target": hanging.url}).must(200)
            server.patch(f"/v1/timers/w/t{n + 20}", {"payload": ["new", n + 20]}).must(200)
        go.set()
        await_(lambda: len(server.timers("w")) == 0, "all have fired")
        expect(sorted(hanging.bodies()), sorted([["new", n] for n in range(11, 31)] + [["old", 0]]))


@test("attempts that end with an expired lease, a stop or a crash count: the limit holds across restarts")
def _():
    retry = {"max_attempts": 4, "initial": "10ms"}
    with Server("--record-interval", "100ms", shards=1) as server:
        server.put("/v1/timers/count/x", {"after": "0s", "retry": retry}).must(201)
        first = server.lease("count", wait="60s", lease="50ms")[0]
        expect(first["attempt"], 1)
        await_(lambda: server.get("/v1/timers/count/x").must(200)["attempt"] == 1, "the expired lease counts")
        second = server.lease("count", wait="60s", lease="1h")[0]
        expect(second["attempt"], 2)
        server.restart()
        third = server.lease("count", wait="60s", lease="1h")[0]
        expect(third["attempt"], 3)
        threading.Event().wait(1)
        server.kill()
        server.start()
        fourth = server.lease("count", wait="60s", lease="1h")[0]
        expect(fourth["attempt"], 4)
        server.restart()
        await_(lambda: server.get("/v1/dead/count").must(200)["timers"], "it was given up")
        dead = server.get("/v1/dead/count").must(200)["timers"][0]
        expect((dead["name"], dead["attempt"]), ("x", 4))


run()
