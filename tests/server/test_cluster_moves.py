#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several servers on one PostgreSQL while shards move, links break and the store is away; and what is shared out among them."""

import collections
import contextlib
import hashlib
import os
import random
import signal
import subprocess
import threading
import time

from e2e import PATIENCE, Postgres, Receiver, await_, check, comment, expect, folder, need_program, run, test
from members import Cluster, Events, Member, Wire, postgres, settled, shard_of


@contextlib.contextmanager
def restless(cluster, seconds):
    """Servers join and leave all the time."""
    stop = threading.Event()
    failures = []

    def go():
        try:
            while not stop.is_set():
                guest = Member(cluster.store, *cluster.options)
                time.sleep(random.uniform(0.2, seconds))
                guest.stop()
        except Exception as failure:
            failures.append(failure)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join()
    expect(failures, [])


@test("lines of a batch about one timer take effect in order while shards move, and each is answered once")
def _():
    cluster = Cluster(2)
    with cluster as (a, b):
        with restless(cluster, 1):
            for turn in range(6):
                lines = []
                for i in range(500):
                    name = {"namespace": "order", "name": f"t{turn}-{i}"}
                    lines += [{"op": "create", **name, "after": "1h", "payload": 1, "only_new": True},
                              {"op": "update", **name, "payload": 2}, {"op": "cancel", **name},
                              {"op": "create", **name, "after": "1h", "payload": i, "only_new": True}]
                answers = (a, b)[turn % 2].batch(lines)
                expect(len(answers), len(lines))
                expect([(line, answer) for line, answer in zip(lines, answers) if not answer["ok"]][:3], [])
                time.sleep(0.3)
        found = a.timers("order", limit=1000)
        expect(len(found), 6 * 500)
        expect([one["name"] for one in found if one["payload"] != int(one["name"].split("-")[1])], [])
        cluster.settle()
        expect(b.get("/v1/namespaces/order").must(200)["pending"], 3000)


@test("a list that is read while shards move has every timer once")
def _():
    cluster = Cluster(2)
    with cluster as (a, b):
        lines = [{"op": "create", "namespace": "pages", "name": f"p{i}", "after": "1h"} for i in range(1000)]
        expect([answer for answer in a.batch(lines) if not answer["ok"]], [])
        with restless(cluster, 1):
            for turn in range(6):
                names = collections.Counter(one["name"] for one in (a, b)[turn % 2].timers("pages", limit=20))
                expect(names, {f"p{i}": 1 for i in range(1000)})


@test("a lease that waits is given what falls due at a server that has come since")
def _():
    cluster = Cluster(1)
    with cluster as members:
        first = members[0]
        taken = []

        def wait():
            taken.extend(first.post("/v1/lease/later", {"max": 100, "wait": "60s"}).must(200)["timers"])

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        second = cluster.join()
        cluster.settle()
        shards = {shard["shard"] for shard in first.cluster()["shards"] if shard["owner"] == second.address}
        begun = time.monotonic()
        name = name_in(first, shards, "later")
        second.put(f"/v1/timers/later/{name}", {"after": "0s"}).must(201)
        waiting.join(PATIENCE)
        expect([timer["name"] for timer in taken], [name])
        check(time.monotonic() - begun < 50, "before the wait is over")


def name_in(server, shards, namespace):
    """A name that belongs to one of the shards."""
    for i in range(1000):
        made = server.put(f"/v1/timers/{namespace}/n{i}", {"after": "1h"}).must(201)
        server.delete(f"/v1/timers/{namespace}/n{i}").must(204)
        if shard_of(made["id"]) in shards:
            return f"n{i}"
    raise AssertionError(f"no name is in {shards}")


@test("leases are fresh when they are given, though another server does not answer")
def _():
    cluster = Cluster(3)
    with cluster as members:
        lines = [{"op": "create", "namespace": "fresh", "name": f"f{i}", "after": "0s"} for i in range(300)]
        members[0].batch(lines)
        asleep = members[2]
        asleep.signal(signal.SIGSTOP)
        for _ in range(30):
            taken = members[0].lease("fresh", max=1000, lease="500ms")
            if taken:
                expect(members[0].ack(*[(one["lease"], {"result": "done"}) for one in taken])["unknown"], [])
        asleep.signal(signal.SIGCONT)
        cluster.settle()


@test("who listens for events hears those of a server that has come since")
def _():
    cluster = Cluster(1)
    with cluster as members:
        events = Events(members[0])
        second = cluster.join()
        cluster.settle()
        for i in range(20):
            second.put(f"/v1/timers/fire/e{i}", {"after": "1h"}).must(201)
        await_(lambda: events.count("scheduled") == 20, "all are heard")


@test("large payloads come back from other servers, in lists and leases too")
def _():
    with Cluster(2) as (a, b):
        payload = "x" * 250_000
        for i in range(400):
            (a, b)[i % 2].put(f"/v1/timers/large/l{i}", {"after": "1h", "payload": payload}).must(201)
            a.put(f"/v1/timers/heap/l{i}", {"after": "0s", "payload": payload}).must(201)
        expect(b.get("/v1/timers/large/l3").must(200)["payload"], payload)
        for member in (a, b):
            found = member.timers("large", limit=10000)
            expect(sorted(one["name"] for one in found), sorted(f"l{i}" for i in range(400)))
            check(all(one["payload"] == payload for one in found), "in full")
        taken = []
        while len(taken) < 400:
            got = a.post("/v1/lease/heap", {"max": 10000, "wait": "20s", "lease": "10m"}).must(200)["timers"]
            check(got, "something comes")
            taken += got
        expect(sorted(one["name"] for one in taken), sorted(f"l{i}" for i in range(400)))
        expect(b.ack(*[(one["lease"], {"result": "done"}) for one in taken]), {"settled": 400, "unknown": []})
        expect(b.delete("/v1/timers/large?prefix=l").must(200)["cancelled"], 400)


@test("a limit of timers holds for all servers together")
def _():
    with Cluster(2, "--max-timers-per-namespace", "40") as (a, b):
        for i in range(40):
            (a, b)[i % 2].put(f"/v1/timers/full/n{i}", {"after": "1h"}).must(201)
        for member in (a, b):
            await_(lambda: time.sleep(0.1) or member.post("/v1/timers/full", {"after": "1h"}).status == 429, "it is full")
            for i in range(40):  # on both servers, and none is added
                member.put(f"/v1/timers/full/n{i}", {"after": "2h"}).must(200)
            member.put("/v1/timers/full/more", {"after": "1h"}).must(429)
        check(a.get("/v1/namespaces/full").must(200)["pending"] < 80, "and does not fill on")


@test("a rate is shared by the servers")
def _():
    target = Receiver()
    with Cluster(2) as (a, b):
        a.put("/v1/namespaces/slow", {"max_rate": 20}).must(200)
        await_(lambda: b.get("/v1/namespaces/slow").must(200)["settings"].get("max_rate") == 20, "known")
        lines = [{"op": "create", "namespace": "slow", "name": f"s{i}", "after": "1s", "target": target.url, "payload": i}
                 for i in range(100)]
        a.batch(lines)
        target.await_calls(100)
        times = sorted(call.at_us for call in target.calls)
        # Were each to take 20, there would be some second with twice as many.
        most = max(sum(begin <= at < begin + 1_000_000 for at in times) for begin in times)
        comment(f"{most} in a second at most")
        check(most < 32, "not twice as many as allowed")


@test("dead letters are listed, raised and deleted wherever they are")
def _():
    target = Receiver(lambda call: 500)
    with Cluster(2) as (a, b):
        for i in range(20):
            a.put(f"/v1/timers/dead/d{i}", {"after": "0s", "target": target.url, "retry": {"max_attempts": 1}}).must(201)
        found = await_(lambda: (dead := b.get("/v1/dead/dead").must(200)["timers"]) and len(dead) == 20 and dead, "dead")
        expect({one["name"] for one in a.get("/v1/dead/dead").must(200)["timers"]}, {f"d{i}" for i in range(20)})
        for i, one in enumerate(found):
            if i % 2:
                (a, b)[i // 2 % 2].delete(f"/v1/dead/dead/{one['id']}").must(204)
            else:
                (a, b)[i // 2 % 2].post(f"/v1/dead/dead/{one['id']}/redrive").must(200)
        await_(lambda: len(target.calls) == 30, "raised ones fire")


def certificate():
    need_program("openssl")
    place = folder()
    paths = [os.path.join(place, name) for name in ("a.pem", "a.key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
                    "-subj", "/CN=localhost", "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths


@test("links go over TLS, and need no token")
def _():
    pem, key = certificate()
    config = os.path.join(folder(), "foliot.conf")
    with open(config, "w", encoding="utf-8") as file:
        for name, rights in {"all": "read, write, admin", "reader": "read", "writer": "write"}.items():
            digest = hashlib.sha256(name.encode()).hexdigest()
            file.write(f"[token {name}]\nsha256 = {digest}\nnamespaces = *\nrights = {rights}\n")
    with Cluster(2, "--config", config, "--tls-certificate", pem, "--tls-key", key, token="all", scheme="https") as (a, b):
        for i in range(20):
            (a, b)[i % 2].put(f"/v1/timers/safe/t{i}", {"after": "0s", "payload": i}).must(201)
        taken = []
        while len(taken) < 20:
            taken += a.lease("safe", wait="20s")
        expect(b.ack(*[(one["lease"], {"result": "done"}) for one in taken])["settled"], 20)
        for token, status in {"reader": 200, "writer": 403, "nobody": 401}.items():
            expect(a.get("/v1/cluster", Authorization=f"Bearer {token}").status, status, token)
        expect(a.post("/v1/peer", headers={"Authorization": "Bearer writer"}).status, 401)


@test("PostgreSQL is restarted under three servers, and nothing is lost")
def _():
    target = Receiver()
    store = Postgres()
    url = store.url()
    members = [Member(url, "--lease", "2s") for _ in range(3)]
    await_(lambda: settled(members), "shared out")
    for i in range(60):
        members[i % 3].put(f"/v1/timers/kept/k{i}", {"after": "3s", "target": target.url, "payload": i}).must(201)
    for turn in range(2):
        store.restart()
        await_(lambda: settled(members), "all is as before")
    await_(lambda: set(target.bodies()) == set(range(60)), "all fire")
    for member in members:
        member.put("/v1/timers/kept/after", {"after": "1h"}).must(201 if member is members[0] else 200)
        expect(len(member.timers("kept")), 1)
    for member in members:
        member.stop()


@test("servers that do not hear each other keep their shards and say so; what can be done alone is done")
def _():
    store = postgres().url()
    wires, members = [Wire(), Wire()], []
    for wire in wires:
        members.append(Member(store, reached_by=wire))
    await_(lambda: settled(members), "shared out")
    a, b = members
    own = {shard["shard"] for shard in a.cluster()["shards"] if shard["owner"] == a.address}
    names = {}
    for i in range(40):
        made = a.put(f"/v1/timers/cut/c{i}", {"after": "1h"}).must(201)
        names[f"c{i}"] = shard_of(made["id"]) in own
    for wire in wires:
        wire.whole = False
    await_(lambda: not all(server["linked"] for server in a.cluster()["servers"]), "the loss is noticed")
    statuses = collections.Counter((here, a.get(f"/v1/timers/cut/{name}").status) for name, here in list(names.items())[:20])
    check(set(statuses) <= {(True, 200), (False, 503)}, f"{statuses}")
    check(next(server for server in a.cluster()["servers"] if not server["linked"])["trouble"], "why")
    expect(len(a.cluster()["servers"]), 2)
    for wire in wires:
        wire.whole = True
    await_(lambda: settled(members), "healed")
    expect({a.get(f"/v1/timers/cut/{name}").status for name in names}, {200})
    for member in members:
        member.stop()


@test("all stop at once, with timers on lease and on their way, and all comes again")
def _():
    slow = threading.Event()
    target = Receiver(lambda call: 200 if slow.wait(3) else 200)
    cluster = Cluster(3)
    members = cluster.members
    for i in range(30):
        members[i % 3].put(f"/v1/timers/pull/p{i}", {"after": "0s", "payload": i}).must(201)
        members[i % 3].put(f"/v1/timers/hook/h{i}", {"after": "0s", "target": target.url, "payload": i}).must(201)
    target.await_calls(10)
    check(members[0].lease("pull", max=10, wait="10s"), "some are leased")
    for member in members:
        member.signal(signal.SIGTERM)
    for member in members:
        expect(member.process.wait(PATIENCE), 0)
    slow.set()
    last = Member(cluster.store)
    taken = set()
    while len(taken) < 30:
        taken |= {one["payload"] for one in last.lease("pull", wait="10s")}
    await_(lambda: set(target.bodies()) == set(range(30)), "webhooks too")
    await_(lambda: last.get("/v1/namespaces/hook").must(200)["pending"] == 0, "counted")
    expect(last.get("/v1/namespaces/pull").must(200)["pending"], 30)
    last.stop()


@test("servers with different numbers of workers share many shards")
def _():
    cluster = Cluster(1, "--workers", "1", shards=64)
    with cluster as members:
        members.append(Member(cluster.store, "--workers", "4", shards=64))
        cluster.settle()
        a, b = members
        expect(sorted(a.owned().values()), [32, 32])
        lines = [{"op": "create", "namespace": "wide", "name": f"w{i}", "after": "1h"} for i in range(2000)]
        expect(sum(answer["ok"] for answer in a.batch(lines)), 2000)
        expect(len(b.timers("wide", limit=1000)), 2000)
        expect(b.delete("/v1/timers/wide?prefix=w1").must(200)["cancelled"], 1111)
        expect(a.get("/v1/namespaces/wide").must(200)["pending"], 889)


run()
