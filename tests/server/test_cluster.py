#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several servers on one PostgreSQL: every one takes every request, shards are shared out, and move (docs/cluster.md)."""

import collections
import json
import signal
import threading
import time

from e2e import PATIENCE, Receiver, Server, await_, check, expect, foliot, race_settings, run, test
from members import SHARDS, Cluster, Events, Member, Wire, postgres


@test("a server that is alone has everything")
def _():
    with Server(shards=3) as server:
        view = server.get("/v1/cluster").must(200)
        expect(len(view["servers"]), 1)
        expect({shard["owner"] for shard in view["shards"]}, {view["servers"][0]["address"]})


@test("--advertise needs a store that can be shared, and an address")
def _():
    for options, words in [
        (["--advertise", "127.0.0.1:7411"], "postgres://"),
        (["--advertise", "here", "--store", "postgres://x/y"], "HOST:PORT"),
        (["--advertise", "127.0.0.1:7411", "--store", "postgres://x/y", "--test-clock"], "test clock"),
        (["--advertise", "127.0.0.1:7411", "--store", "postgres://x/y", "--owner", "me"], "owner"),
    ]:
        done = foliot("serve", "--check", *options)
        expect(done.returncode, 2)
        check(words in done.stderr, done.stderr)


@test("two servers share the shards, and each takes every request")
def _():
    with Cluster(2) as (a, b):
        expect(sorted(a.owned().values()), [SHARDS // 2, SHARDS // 2])
        names = [f"n{i}" for i in range(40)]
        for i, name in enumerate(names):
            (a, b)[i % 2].put(f"/v1/timers/many/{name}", {"after": "1h", "payload": i}).must(201)
        for i, name in enumerate(names):
            expect((b, a)[i % 2].get(f"/v1/timers/many/{name}").must(200)["payload"], i)
        a.patch("/v1/timers/many/n1", {"payload": "changed"}).must(200)
        b.patch("/v1/timers/many/n2", {"payload": "changed"}).must(200)
        expect([b.get(f"/v1/timers/many/n{i}").must(200)["payload"] for i in (1, 2)], ["changed"] * 2)
        expect(a.put("/v1/timers/many/n3", {"after": "1h"}, {"If-None-Match": "*"}).status, 412)
        expect(b.put("/v1/timers/many/n3", {"after": "1h"}, {"If-None-Match": "*"}).status, 412)
        for member in (a, b):
            found = {timer["name"] for timer in member.get("/v1/timers/many?limit=1000").must(200)["timers"]}
            expect(found, set(names))
        await_(lambda: a.get("/v1/namespaces/many").must(200)["pending"] == 40, "a counts all")
        expect({n["namespace"]: n["pending"] for n in b.get("/v1/namespaces").must(200)["namespaces"]}["many"], 40)
        for i, name in enumerate(names[:10]):
            (b, a)[i % 2].delete(f"/v1/timers/many/{name}").must(204)
        expect(a.get("/v1/timers/many/n1").status, 404)
        expect(a.delete("/v1/timers/many?prefix=n1").must(200)["cancelled"], 10)
        expect(b.get("/v1/namespaces/many").must(200)["pending"], 20)
        made = a.post("/v1/timers/many", {"after": "1h"}).must(201)
        expect(b.get("/v1/timers/many/" + made["id"]).must(200)["id"], made["id"])


@test("a batch is split by owner, and its answers come in order")
def _():
    with Cluster(2) as (a, b):
        lines = [json.dumps({"op": "create", "namespace": "lot", "name": f"b{i}", "after": "1h"}) for i in range(500)]
        lines[250] = "nonsense"
        answers = a.batch(lines)
        expect(len(answers), 500)
        expect([i for i, answer in enumerate(answers) if not answer["ok"]], [250])
        for i in (0, 100, 499):
            expect(b.get(f"/v1/timers/lot/b{i}").must(200)["id"], answers[i]["id"])


@test("timers fire wherever they are, and events are heard everywhere")
def _():
    target = Receiver()
    with Cluster(2) as (a, b):
        heard = [Events(member) for member in (a, b)]
        for i in range(20):
            (a, b)[i % 2].put(f"/v1/timers/fire/f{i}", {"after": "200ms", "target": target.url, "payload": i}).must(201)
        target.await_calls(20)
        expect(sorted(target.bodies()), list(range(20)))
        for events in heard:
            await_(lambda: events.count("fired") == 20 and events.count("scheduled") == 20, "all is heard")


@test("a lease waits at all servers, and an acknowledgement finds its own")
def _():
    with Cluster(2) as (a, b):
        for i in range(40):
            a.put(f"/v1/timers/pull/p{i}", {"after": "0s", "payload": i}).must(201)
        got = []
        while len(got) < 40:
            answer = b.post("/v1/lease/pull", {"max": 15, "wait": "5s"}).must(200)["timers"]
            check(0 < len(answer) <= 15, "as many as were asked for")
            got += answer
        expect(sorted(timer["payload"] for timer in got), list(range(40)))
        acks = {"acks": [{"lease": timer["lease"], "result": "done"} for timer in got]}
        expect(a.post("/v1/ack", acks).must(200), {"settled": 40, "unknown": []})
        expect(b.post("/v1/ack", acks).must(200)["settled"], 0)
        begun = time.monotonic()
        a.put("/v1/timers/pull/late", {"after": "700ms"}).must(201)
        for member in (b, a):
            answer = member.post("/v1/lease/pull", {"max": 5, "wait": "10s" if member is b else "0s"}).must(200)["timers"]
            expect([timer["name"] for timer in answer], ["late"] if member is b else [])
        check(time.monotonic() - begun >= 0.7, "never early")


@test("settings of a namespace are known to all")
def _():
    with Cluster(2) as (a, b):
        for i in range(6):
            (a, b)[i % 2].put(f"/v1/namespaces/set{i}", {"max_rate": 5 + i}).must(200)
        for i in range(6):
            for member in (a, b):
                await_(lambda: member.get(f"/v1/namespaces/set{i}").must(200)["settings"].get("max_rate") == 5 + i, "known")
        late = Member(a.store)
        await_(lambda: late.get("/readyz").status == 200, "the third is ready")
        expect([late.get(f"/v1/namespaces/set{i}").must(200)["settings"]["max_rate"] for i in range(6)],
               [5 + i for i in range(6)])
        late.stop()
        race_settings((a, b), 15, "race")
        await_(lambda: a.namespaces() == b.namespaces(), "both know the same")


def moved(before, after):
    return [a["shard"] for a, b in zip(after["shards"], before["shards"]) if a["owner"] != b["owner"]]


@test("who joins or leaves moves only what must be moved, and requests wait meanwhile")
def _():
    cluster = Cluster(2)
    with cluster as members:
        for i in range(50):
            members[0].put(f"/v1/timers/stay/s{i}", {"after": "1h"}).must(201)
        before = members[0].cluster()
        third = cluster.join()
        statuses = collections.Counter(members[i % 2].get(f"/v1/timers/stay/s{i % 50}").status for i in range(2000))
        expect(statuses, {200: 2000})
        cluster.settle()
        joined = members[0].cluster()
        gone = moved(before, joined)
        expect(len(gone), third.owned()[third.address])
        check(len(gone) in (SHARDS // 3, SHARDS // 3 + 1), f"{gone} have moved")
        expect(members[1].get("/v1/namespaces/stay").must(200)["pending"], 50)
        third.signal(signal.SIGTERM)
        statuses = collections.Counter(members[i % 2].get(f"/v1/timers/stay/s{i % 50}").status for i in range(2000))
        expect(statuses, {200: 2000})
        expect(third.process.wait(PATIENCE), 0)
        members.remove(third)
        cluster.settle()
        expect(set(moved(joined, members[0].cluster())), set(gone))
        expect(members[0].get("/v1/namespaces/stay").must(200)["pending"], 50)


@test("the shards of a server that is killed are taken over, with all that is in them")
def _():
    target = Receiver()
    cluster = Cluster(3)
    with cluster as members:
        for i in range(60):
            members[i % 3].put(f"/v1/timers/kept/k{i}", {"after": "4s", "target": target.url, "payload": i}).must(201)
        members.pop().kill()
        await_(lambda: len(set(target.bodies())) == 60, "all fire")
        cluster.settle()


@test("a server that was stopped and woken gives up what it has lost, and joins again")
def _():
    cluster = Cluster(2, "--lease", "1s")
    with cluster as (a, b):
        a.put("/v1/timers/asleep/one", {"after": "1h"}).must(201)
        b.signal(signal.SIGSTOP)
        await_(lambda: a.owned()[a.address] == SHARDS, "the other takes all")
        await_(lambda: a.get("/v1/timers/asleep/one").status == 200, "and answers for all")
        b.signal(signal.SIGCONT)
        cluster.settle()
        expect(b.get("/v1/timers/asleep/one").must(200)["name"], "one")


@test("a server that was stopped begins no webhook of what another has taken over")
def _():
    go_on = threading.Event()
    target = Receiver(lambda call: go_on.wait() and 200)
    cluster = Cluster(2, "--lease", "1s", "--webhook-per-host", "2")
    with cluster as (a, b):
        for i in range(100):
            a.put(f"/v1/timers/late/n{i}", {"after": "0s", "target": target.url, "payload": i}).must(201)
        await_(lambda: all(member.metric("foliot_webhooks_waiting") > 10 for member in (a, b)), "both have some waiting")
        b.signal(signal.SIGSTOP)
        begun = len(target.calls)
        go_on.set()
        await_(lambda: a.owned()[a.address] == SHARDS, "the other takes all")
        await_(lambda: len(set(target.bodies())) == 100, "and calls back for all")
        await_(lambda: a.metric("foliot_timers_in_flight") == 0, "and all is settled")
        b.signal(signal.SIGCONT)
        cluster.settle()
        time.sleep(0.5)
        check(len(target.calls) <= 100 + begun, f"only what had begun comes twice: {len(target.calls)} calls, {begun} had begun")


@test("of two processes with one address the second stays")
def _():
    store, wire = postgres().url(), Wire()
    first = Member(store, reached_by=wire)
    second = Member(store, reached_by=wire)  # to which the address leads now
    expect(first.process.wait(PATIENCE), 1)  # so that a service manager starts it again
    check(first.logged("another server uses the address"), "it says why")
    await_(lambda: second.get("/readyz").status == 200, "ready")
    second.stop()


run()
