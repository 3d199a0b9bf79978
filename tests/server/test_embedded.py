#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The server on the embedded store: its files in use, after a crash, and at rest."""

import os
import shutil
import signal
import sqlite3
import time

from e2e import Server, await_, check, expect, foliot, run, test

LATER = {"due": "2100-01-01T00:00:00Z"}


def data(server):
    return server.store.removeprefix("sqlite:")


def files(server):
    """What says whether anything was written: times and sizes of all files."""
    return {entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns) for entry in os.scandir(data(server))
            if not entry.name.endswith("-shm")}


def is_ready(server):
    return server.get("/readyz").status == 200


def written(server):
    """Bytes that the process has sent to a disk, and calls of write(2) and its like."""
    with open(f"/proc/{server.process.pid}/io") as io:
        return dict(line.split(": ") for line in io.read().splitlines())["write_bytes"]


@test("a second server does not start on the same files, with or without foliot.lock")
def _():
    with Server() as server:
        second = Server(store=server.store, start=False)
        for what in ("process", "another process"):
            second.start(until="in use by " + what)
            check(second.process.wait(10) != 0, "it ends with an error")
            if what == "process":
                os.remove(os.path.join(data(server), "foliot.lock"))
        expect(server.put("/v1/timers/a/still-there", LATER).status, 201)


@test("files that are removed under a server are missed: it acknowledges nothing and says why")
def _():
    with Server("--lease", "300ms", shards=1) as server:
        await_(lambda: is_ready(server), "it is ready")
        expect(server.put("/v1/timers/a/first", LATER).status, 201)
        aside = data(server) + ".aside"
        os.mkdir(aside)
        for name in ("shard-0000.db", "shard-0000.db-wal"):
            os.rename(os.path.join(data(server), name), os.path.join(aside, name))
            await_(lambda: expect(server.put("/v1/timers/a/second", LATER).status, 503)
                   or server.logged(name + " was removed"), "the log says what is wrong")
            await_(lambda name=name: name + " was removed" in server.get("/readyz").json.get("reason", ""),
                   "it is not ready, and says why")
            expect(server.get("/readyz").status, 503)
            os.rename(os.path.join(aside, name), os.path.join(data(server), name))
            await_(lambda: is_ready(server), "it is ready again")
        await_(lambda: server.put("/v1/timers/a/second", LATER).status == 201, "it goes on when they are back")


@test("timers without a name go to other shards while the store of one fails")
def _():
    with Server("--workers", "2", shards=4) as server:
        await_(lambda: is_ready(server), "it is ready")
        broken = os.path.join(data(server), "shard-0001.db")
        os.rename(broken, broken + ".aside")
        await_(lambda: 503 in {server.put(f"/v1/timers/a/{n}", LATER).status for n in range(10)}, "a shard fails")
        ids = []
        for _ in range(10):  # connections go to different workers
            server.connection().close()
            ids += [server.post("/v1/timers/a", LATER).must(201)["id"] for _ in range(10)]
        answers = server.batch([{"op": "create", "namespace": "a", **LATER} for _ in range(100)])
        check(all(answer["ok"] for answer in answers), [answer for answer in answers if not answer["ok"]][:1])
        for each in ids[::10]:
            server.get(f"/v1/timers/a/{each}").must(200)
        os.rename(broken + ".aside", broken)
        await_(lambda: {server.put(f"/v1/timers/a/{n}", LATER).status for n in range(10)} <= {200, 201}, "it goes on")


@test("a server that stood still for longer than its lease goes on, without a complaint about its store")
def _():
    with Server("--lease", "3s", shards=1) as server:
        await_(lambda: is_ready(server), "it is ready")
        server.signal(signal.SIGSTOP)
        time.sleep(3.5)
        server.signal(signal.SIGCONT)
        await_(lambda: is_ready(server), "it is ready")
        time.sleep(0.6)  # a claim is looked at twice in a second
        expect(server.logged("the store has failed"), None)


@test("after a crash the next server has its shards at once, whatever the lease was and whoever it is")
def _():
    server = Server("--lease", "1h", "--owner", "one")
    await_(lambda: is_ready(server), "it is ready")
    expect(server.put("/v1/timers/a/b", LATER).status, 201)
    server.kill()
    server.options[server.options.index("one")] = "two"
    server.start()
    await_(lambda: is_ready(server), "it is ready")
    check(not server.logged("waiting for a shard"), "it did not wait")
    expect(server.get("/v1/timers/a/b").status, 200)
    server.stop()


@test("after a crash, what is pending is what is there, and a limit is for that")
def _():
    server = Server("--max-timers-per-namespace", "100", "--record-interval", "10m")
    made = [{"op": "create", "namespace": "full", "name": f"n{i}", **LATER} for i in range(100)]
    for kill_after in ("create", "cancel"):
        if kill_after == "create":
            server.batch(made)
        else:
            server.batch({"op": "cancel", "namespace": "full", "name": f"n{i}"} for i in range(100))
        server.kill()
        server.start()
        await_(lambda: is_ready(server), "it is ready")
        there = 100 if kill_after == "create" else 0
        expect(server.metric("foliot_timers_pending"), there)
        expect(server.put("/v1/timers/full/more", LATER).status, 429 if there else 201)
    server.stop()
    expect("sound" in foliot("doctor", data(server)).stdout, True)


@test("a server that has nothing to do writes nothing")
def _():
    with Server("--lease", "300ms", "--record-interval", "100ms") as server:
        await_(lambda: is_ready(server), "it is ready")
        expect(server.put("/v1/timers/a/b", LATER).status, 201)
        time.sleep(1.5)  # until what is done about that is over
        before = files(server), written(server)
        time.sleep(2)
        expect((files(server), written(server)), before)


def crashed(shards=2):
    """A server that was killed, with timers in each shard."""
    server = Server("--lease", "300ms", shards=shards)
    await_(lambda: is_ready(server), "it is ready")
    server.batch({"op": "create", "namespace": "a", "name": f"n{i}", **LATER} for i in range(50))
    server.kill()
    return server


def file_of(server, shard, ending=""):
    return os.path.join(data(server), f"shard-{shard:04}.db{ending}")


def check_noticed(server, what):
    """Neither a server nor the doctor takes the store for sound, also the second time, until the loss is accepted."""
    for _ in range(2):
        server.start(until=what)
        check(server.process.wait(10) != 0, "it ends with an error")
        found = foliot("doctor", data(server))
        check(found.returncode == 1 and what in found.stdout and "The store is damaged" in found.stdout, found)
    foliot("doctor", "--accept", data(server))
    expect("The store is sound." in foliot("doctor", data(server)).stdout, True)
    server.start()
    await_(lambda: is_ready(server), "it is ready")
    server.stop()


@test("a log that is removed after a crash is missed")
def _():
    server = crashed()
    os.remove(file_of(server, 1, "-wal"))
    check_noticed(server, "shard-0001.db-wal is missing")


@test("an older copy of one shard is noticed")
def _():
    server = crashed()
    server.start()
    await_(lambda: is_ready(server), "it is ready")
    server.stop()
    shutil.copy(file_of(server, 0), file_of(server, 0, ".older"))
    server.start()
    await_(lambda: is_ready(server), "it is ready")
    server.stop()
    os.replace(file_of(server, 0, ".older"), file_of(server, 0))
    check_noticed(server, "shard-0000.db is older than the others")


@test("a backup made while the server runs can be restored, although its copies are of several moments")
def _():
    with Server(shards=2) as server:
        copies = data(server) + ".copy"
        os.mkdir(copies)
        for shard in range(2):
            server.batch({"op": "create", "namespace": "a", "name": f"{shard}-{i}", **LATER} for i in range(50))
            with sqlite3.connect(file_of(server, shard)) as db:
                db.execute("VACUUM INTO ?", (os.path.join(copies, f"shard-{shard:04}.db"),))
            db.close()
        with Server(store="sqlite:" + copies) as restored:
            await_(lambda: is_ready(restored), "it is ready")
            check(restored.metric("foliot_timers_pending") >= 50, "the timers are there")
        expect("The store is sound." in foliot("doctor", copies).stdout, True)


@test("the doctor names each kind of damage in a store that cannot be opened")
def _():
    server = crashed(1)
    server.start()
    await_(lambda: is_ready(server), "it is ready")
    server.stop()
    with sqlite3.connect(file_of(server, 0)) as db:
        slot = db.execute("SELECT slot FROM windows").fetchone()[0]
        db.execute(f"UPDATE slot_{slot} SET v = v || x'00'")
        db.execute("UPDATE namespaces SET s = s + 1")
    db.close()
    found = foliot("doctor", data(server))
    expect(found.returncode, 1)
    for what in ("cannot be opened", f"the table slot_{slot} has 1 records", "the table namespaces has 1 records"):
        check(what in found.stdout, found)


run()
