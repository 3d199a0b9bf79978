#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A database that goes back to an earlier state: a replica that lags is promoted. What was replicated fires; what was not is
lost, which no server can prevent; and every server goes on, without help."""

import itertools
import time

from e2e import Postgres, Receiver, Server, await_, check, comment, expect, run, test
from members import SHARDS, Member, settled
from replica import Replica, query, url_of_both

TIMERS = 3000


def rows(database, schema, condition="true"):
    return int(query(database, f"SELECT count(*) FROM {schema}.foliot_timer WHERE ns = 'failover' AND {condition}")[0][0])


def create(server, receiver, count, prefix, after, spread=20):
    """`count` timers that are due from `after` seconds on, within `spread` seconds."""
    lines = ({"op": "create", "namespace": "failover", "name": f"{prefix}{i}", "after": f"{after + i % spread}s",
              "target": f"{receiver.url}/{prefix}{i}"} for i in range(count))
    for part in iter(lambda: list(itertools.islice(lines, 500)), []):
        for answer in server.batch(part):
            check(answer["ok"], answer)


def within_a_window(after, spread):
    """From when on, not before `after`, so many seconds are in one of the store's near windows."""
    while (time.time_ns() // 1000 + after * 1_000_000) >> 25 != (time.time_ns() // 1000 + (after + spread) * 1_000_000) >> 25:
        after += 1
    return after


def fired(receiver):
    return {call.path[1:] for call in list(receiver.calls)}


def all_ready(servers):
    return all(server.process.poll() is None and server.get("/readyz").status == 200 for server in servers)


class Failover:
    """A primary, a replica, and a store on them."""

    def __init__(self):
        self.primary = Postgres()
        self.replica = Replica(self.primary)
        self.url, self.schema = url_of_both(self.primary, self.replica)
        self.receiver = Receiver()

    def cut(self, server):
        """Everything up to now is replicated, and what happens next is not."""
        self.replica.await_all()
        self.replica.cut()
        create(server, self.receiver, 100, "lost", 7200)
        server.put("/v1/timers/failover/kept1", {"after": "4h", "target": self.receiver.url + "/moved"}).must(200)
        server.delete("/v1/timers/failover/kept2").must(204)

    def all_fire(self, servers, go_on=lambda: None):
        wanted = {f"kept{i}" for i in range(TIMERS)}
        await_(lambda: all_ready(servers), "ready again")
        end = time.monotonic() + 90
        while not wanted <= fired(self.receiver) and time.monotonic() < end:
            go_on()
            time.sleep(0.1)
        missing = wanted - fired(self.receiver)
        check(not missing, f"{len(missing)} of {TIMERS} never fired")
        comment(f"{len(self.receiver.calls)} calls for {len(fired(self.receiver))} timers")
        servers[0].put("/v1/timers/failover/new", {"after": "1s", "target": self.receiver.url + "/new"}).must(201)
        go_on()
        await_(lambda: "new" in fired(self.receiver), "a new timer fires")
        for server in servers:
            expect(server.process.poll(), None, "it has not ended")


@test("one server: a replica that lags is promoted, and what was replicated fires")
def _():
    world = Failover()
    with Server("--test-clock", "--lease", "2s", store=world.url, shards=2) as server:
        await_(lambda: all_ready([server]), "ready")
        create(server, world.receiver, TIMERS, "kept", 7200)  # near windows are open an hour ahead
        world.cut(server)
        server.advance("6800s")  # they are not loaded yet
        near = "win < 26::bigint << 56"
        await_(lambda: rows(world.primary, world.schema, near) == TIMERS + 98, "filed under near windows")
        expect(rows(world.replica, world.schema, near), 0, "filed so in the replica")
        world.replica.promote()
        world.all_fire([server], lambda: server.advance("40s"))


@test("three servers: a replica that lags is promoted, and what was replicated fires")
def _():
    world = Failover()
    servers = [Member(world.url, "--lease", "2s") for _ in range(3)]
    await_(lambda: settled(servers), "the shards are shared out")
    create(servers[0], world.receiver, TIMERS, "kept", within_a_window(35, 10), 5)
    world.cut(servers[0])
    for server in servers:  # with so little memory that windows are filed under finer ones
        server.stop()
        server.options += ["--max-memory-timers", "64"]
        server.start()
    finer = "win < 25::bigint << 56"
    await_(lambda: rows(world.primary, world.schema, finer) > TIMERS / 2, "filed under finer windows")
    expect(rows(world.replica, world.schema, finer), 0, "filed so in the replica")
    world.replica.promote()
    world.all_fire(servers)
    await_(lambda: settled(servers), "the shards are shared out again")
    for server in servers:
        server.stop()


@test("three servers: settings and pauses go back with the database, also at a server whose shards have lost nothing")
def _():
    world = Failover()
    servers = [Member(world.url, "--lease", "2s") for _ in range(3)]
    await_(lambda: settled(servers), "the shards are shared out")
    for i in range(24):
        servers[0].put(f"/v1/namespaces/n{i}", {"max_rate": 10}).must(200)
    world.replica.await_all()
    found = query(world.primary, f"SELECT shard, convert_from(name, 'UTF8') FROM {world.schema}.foliot_timer"
                                 " WHERE ns = '\\x016e616d65737061636573'")
    owners = [shard["owner"] for shard in servers[0].cluster()["shards"]]
    there = [name for shard, name in found if owners[int(shard)] != servers[0].address]
    check(len(found) == 24 and len(there) >= 4, found)
    world.replica.cut()
    for name in there[::2]:
        servers[0].put(f"/v1/namespaces/{name}", {"max_rate": 20}).must(200)
        servers[0].post(f"/v1/namespaces/{name}/pause", {}).must(200)
    for name in there[1::2]:
        servers[0].delete(f"/v1/namespaces/{name}").must(204)
    world.replica.promote()
    await_(lambda: any(server.logged("the database has lost acknowledged writes") for server in servers), "it is noticed")
    await_(lambda: all_ready(servers), "ready again")
    wanted = {"secret_count": 0, "max_rate": 10}

    def differ():
        spaces = [(name, server.get(f"/v1/namespaces/{name}").must(200)) for name in there for server in servers]
        return [(name, space) for name, space in spaces if space["settings"] != wanted or "paused" in space]

    await_(lambda: not differ(), "every server has the settings that are in the database", 20)
    for server in servers:
        server.stop()


run()
