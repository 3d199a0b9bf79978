#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Servers on Citus: nodes that are down, commits on the nodes, connections to every node (docs/store-postgres.md)."""

import functools
import itertools
import json

from citus import Citus, StandIn
from e2e import await_, check, expect, foliot, run, test
from members import SHARDS, Member, postgres, settled, shard_of

numbers = itertools.count(1)


@functools.cache
def citus():
    return Citus()


def settle(members):
    await_(lambda: settled(members), "the shards are shared out")


def create_named(member, count):
    """Timers with new names, which go to all shards. Returns what was answered, by line."""
    return member.batch([json.dumps({"op": "create", "namespace": "spread", "name": f"n{next(numbers)}", "after": "1h"})
                         for _ in range(count)])


def end(members):
    for member in members:
        if member.process.poll() is None:
            member.kill()


@test("without Citus: while a node is down, the shards of the other nodes are taken over from a server that dies")
def _():
    store = StandIn(postgres())
    members = [Member(store.url) for _ in range(3)]
    settle(members)
    even, alive = set(range(0, SHARDS, 2)), {member.address for member in members[1:]}

    def taken():
        owners = {shard["shard"]: shard["owner"] for shard in members[1].cluster()["shards"]}
        return all(owners[shard] in alive for shard in even)

    with store.without_odd_shards():
        members[0].kill()
        await_(taken, "the shards of the healthy node have owners that are alive")
        await_(lambda: {shard_of(a["id"]) for a in create_named(members[1], 200) if a["ok"]} == even,
               "timers are created in all shards of the healthy node, and in no other")
    settle(members[1:])
    check(all(answer["ok"] for answer in create_named(members[2], 200)), "all are created when the node is back")
    end(members)


@test("a worker node has no tables before the coordinator has them, and gets none of its own")
def _():
    schema = citus().schema()
    worker = citus().workers[0]
    done = foliot("serve", "--listen", "127.0.0.1:0", "--store", worker.url(schema))
    check(done.returncode != 0 and "address of the coordinator" in done.stderr, done.stderr)
    expect(worker.ask(f"SELECT to_regclass('{schema}.foliot_meta') IS NULL"), "t")
    with Member(citus().coordinator.url(schema)):
        pass
    with Member(worker.url(schema)) as member:
        await_(member.ready, "a server on the worker node")


@test("servers connect to every node, and are one cluster")
def _():
    schema = citus().schema()
    members = [Member(node.url(schema)) for node in citus().nodes]
    settle(members)
    for i in range(12):
        members[i % 3].put(f"/v1/timers/any/n{i}", {"after": "1h", "payload": i}).must(201)
    for i in range(12):
        expect(members[(i + 1) % 3].get(f"/v1/timers/any/n{i}").must(200)["payload"], i)
    members[0].kill()
    await_(lambda: all(members[1].get(f"/v1/timers/any/n{i}").status == 200 for i in range(12)), "the others take over")
    end(members)


@test("commits are on disk on the node of the shard, whatever its configuration says")
def _():
    schema = citus().schema()
    with Member(citus().coordinator.url(schema)) as member:
        await_(member.ready, "ready")
        for worker in citus().workers:
            worker.ask("ALTER SYSTEM SET synchronous_commit = off")
            worker.ask("SELECT pg_reload_conf()")
        before = [len(worker.log()) for worker in citus().workers]
        check(all(answer["ok"] for answer in create_named(member, 100)), "all are created")
        for worker, length in zip(citus().workers, before):
            worker.ask("ALTER SYSTEM RESET synchronous_commit")
            worker.ask("SELECT pg_reload_conf()")
            begun = [line for line in worker.log()[length:].splitlines() if "BEGIN TRANSACTION" in line]
            weak = [line for line in begun if "READ COMMITTED" in line and "synchronous_commit = 'on'" not in line]
            check(begun and not weak, (len(begun), weak[:3]))


@test("when a worker node and then a server die, the shards of the other nodes are taken over")
def _():
    schema = citus().schema()
    members = [Member(citus().coordinator.url(schema)) for _ in range(3)]
    settle(members)
    healthy = set(citus().shards_of(schema, citus().workers[1], SHARDS))
    check(0 < len(healthy) < SHARDS, f"shards on both nodes: {healthy}")
    alive = {member.address for member in members[1:]}

    def taken():
        owners = {shard["shard"]: shard["owner"] for shard in members[1].cluster()["shards"]}
        return all(owners[shard] in alive for shard in healthy)

    with citus().without(citus().workers[0]):
        members[0].kill()
        await_(taken, "the shards of the healthy node have owners that are alive")
        await_(lambda: {shard_of(a["id"]) for a in create_named(members[1], 200) if a["ok"]} == healthy,
               "timers are created in all shards of the healthy node")
    settle(members[1:])
    check(all(answer["ok"] for answer in create_named(members[2], 200)), "all are created when the node is back")
    end(members)


@test("lines of a batch for a node that is down are refused, and hold up no other")
def _():
    schema = citus().schema()
    member = Member(citus().coordinator.url(schema))
    await_(member.ready, "ready")
    healthy = set(citus().shards_of(schema, citus().workers[1], SHARDS))
    with citus().without(citus().workers[0]):
        for _ in range(20):  # if each of these waited for the store's time-out, this would take minutes
            answers = create_named(member, 50)
            good = {shard_of(answer["id"]) for answer in answers if answer["ok"]}
            check(good and good <= healthy, (good, healthy))
            check({answer["problem"]["status"] for answer in answers if not answer["ok"]} <= {503}, answers)
    await_(lambda: all(answer["ok"] for answer in create_named(member, 50)), "the node is back")
    member.kill()


run()
