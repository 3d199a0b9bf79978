#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several servers on one PostgreSQL that are set up wrongly, or whose database is away."""

import time

from e2e import Postgres, Receiver, await_, check, expect, run, test
from members import Cluster, Member, free_port, settled


@test("a server that cannot reach itself at the address it advertises gets no shards, and says so")
def _():
    with Cluster(1) as (a,):
        wrong = {"nobody listens there": f"127.0.0.1:{free_port()}", "no such name": "no-such-name.invalid:7411",
                 "another server": a.address}
        for what, address in wrong.items():
            stranger = Member(a.store, advertise=address, until="cannot reach this server at its own address")
            told = stranger.logged("cannot reach this server")
            expect(told["address"], address)
            check(told["why"], f"{told} says why: {what}")
            ready = stranger.get("/readyz")
            expect(ready.status, 503)
            check(address in ready.json["reason"] and "--advertise" in ready.json["reason"], f"{ready}")
            time.sleep(1.2)  # longer than servers take to meet
            expect([server["address"] for server in a.cluster()["servers"]], [a.address], what)
            expect(a.owned()[a.address], len(a.cluster()["shards"]))
            check(a.ready(), f"the first server is as before: {what}")
            stranger.stop()


@test("a server joins when it can reach itself")
def _():
    port = free_port()
    with Cluster(1) as (a,):
        late = Member(a.store, advertise=f"localhost:{port}", until="cannot reach this server")
        late.stop()
        late.port = port
        late.start()
        await_(lambda: len(a.cluster()["servers"]) == 2 and late.ready() and a.owned()[late.address] > 0, "it has its share")
        late.stop()


def shards_taken(members):
    return sum(entry["msg"] == "taking a shard" for member in members for entry in list(member.log))


@test("the database is away for longer than claims are good: servers say so, and keep their shards")
def _():
    store = Postgres()
    target = Receiver()
    url = store.url()
    members = [Member(url, "--lease", "2s", "--workers", "2", "--record-interval", "500ms") for _ in range(3)]
    await_(lambda: settled(members), "shared out")
    for i in range(60):
        members[i % 3].put(f"/v1/timers/kept/k{i}", {"after": "1h", "payload": i}).must(201)
    fired = range(40)
    for i in fired:
        members[i % 3].put(f"/v1/timers/soon/s{i}", {"after": f"{500 + i * 400}ms", "target": target.url, "payload": i}).must(201)
    before, taken = members[0].cluster()["shards"], shards_taken(members)
    for turn in range(2):
        store.stop()
        for member in members:
            await_(lambda: not member.ready(), "it is not ready without its database")
            await_(lambda: "the store has failed or not responded" in member.get("/readyz").must(503)["reason"], "it says why")
            await_(lambda: member.get("/readyz").must(503)["shards_ready"] == 0, "nothing fires")
        expect(shards_taken(members), taken)
        time.sleep(turn * 3)  # longer than what a first attempt to connect again takes
        store.start()
        await_(lambda: settled(members), "all is as before")
        expect(members[0].cluster()["shards"], before, "who has which shard")
        expect(shards_taken(members), taken, "shards that were taken over")
    await_(lambda: set(target.bodies()) == set(fired), "all fire")
    bodies = target.bodies()
    expect({body: bodies.count(body) for body in set(bodies) if bodies.count(body) > 1}, {}, "fired twice")
    expect(len(members[1].timers("kept")), 60)
    for member in members:
        check(member.logged("the store responds again"), "it says so")
        member.stop()


@test("a server that dies while the database is away is missed when it is back")
def _():
    store = Postgres()
    url = store.url()
    members = [Member(url, "--lease", "2s") for _ in range(2)]
    await_(lambda: settled(members), "shared out")
    store.stop()
    for member in members:
        await_(lambda: not member.ready(), "it is not ready without its database")
    members[0].kill()
    store.start()
    await_(lambda: settled(members[1:]), "the other takes over")
    members[1].stop()


run()
