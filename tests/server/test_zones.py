#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Changes of time zone rules: two trees of tzdata, of which the server sees the one or the other."""

import json
import os
import re
import shutil
import signal
import threading

from e2e import Server, await_, expect, folder, problem, quote, run, test

ZONES = "/usr/share/zoneinfo"


class Trees:
    """Two trees. In both, Test/Moves is a zone with a fixed offset, given in hours east of Greenwich."""

    def __init__(self, before, after):
        self.place = folder()
        for name, hours in (("before", before), ("after", after)):
            os.makedirs(os.path.join(self.place, name, "Test"))
            zone = "Etc/GMT" + (f"{-hours:+d}" if hours else "")
            shutil.copy(os.path.join(ZONES, zone), os.path.join(self.place, name, "Test", "Moves"))
            shutil.copy(os.path.join(ZONES, "Etc/UTC"), os.path.join(self.place, name, "UTC"))
            with open(os.path.join(self.place, name, "+VERSION"), "w", encoding="ascii") as file:
                file.write(name + "\n")
        self.link = os.path.join(self.place, "now")
        self.show("before")

    def show(self, name):
        os.symlink(name, self.link + ".new")
        os.replace(self.link + ".new", self.link)

    def server(self, **named):
        return Server("--test-clock", shards=2, env={"TZDIR": self.link}, **named)


class Moves:
    """The events that something has moved."""

    def __init__(self, server):
        self.socket, self.text = server.socket(), b""
        self.socket.sendall(b"GET /v1/events?namespace=demo&type=moved HTTP/1.1\r\nHost: localhost\r\n\r\n")
        threading.Thread(target=self.read, daemon=True).start()
        await_(lambda: b": listening" in self.text, "listening")

    def read(self):
        while piece := self.socket.recv(65536):
            self.text += piece

    def all(self):
        return [json.loads(data) for data in re.findall(rb"^data: (\{.*\})$", self.text, re.M)]


def reload(server, trees):
    trees.show("after")
    server.process.send_signal(signal.SIGHUP)
    await_(lambda: server.get("/version").json["tzdata"] == "after", "the server has read the other rules")


def put(server, name, **fields):
    return server.put(f"/v1/schedules/demo/{name}", {"zone": "Test/Moves", "payload": name, **fields}).must(201)


def go_to(server, when):
    server.post("/v1/clock", {"to": when}).must(200)


def lease_all(server):
    timers = server.post("/v1/lease/demo", {"max": 10000}).must(200)["timers"]
    server.post("/v1/ack", {"acks": [{"lease": timer["lease"], "result": "done"} for timer in timers]})
    return sorted((timer.get("schedule") or timer["name"], timer.get("occurrence") or timer["due"]) for timer in timers)


def next_of(server, name):
    return server.get(f"/v1/schedules/demo/{name}").json["next"]


def civil(server, name, local):
    server.put(f"/v1/timers/demo/{name}", {"due": {"local": local, "zone": "Test/Moves"}}).must(201)


def due_of(server, name):
    return server.get(f"/v1/timers/demo/{name}").must(200)["due"]


@test("SIGHUP with other rules moves schedules and timers in civil time, and says so")
def _():
    trees = Trees(1, 3)
    with trees.server() as server:
        go_to(server, "2031-01-01T00:00:00Z")
        put(server, "nine", cron="0 9 * * *")
        put(server, "utc", cron="0 9 * * *", zone="UTC")
        put(server, "idle", cron="0 9 * * *", paused=True)
        civil(server, "once", "2031-06-01T09:00:00")
        server.put("/v1/timers/demo/plain", {"due": "2031-06-01T09:00:00Z"}).must(201)
        expect((next_of(server, "nine"), due_of(server, "once")), ("2031-01-01T08:00:00Z", "2031-06-01T08:00:00Z"))
        events = Moves(server)
        reload(server, trees)
        await_(lambda: due_of(server, "once") == "2031-06-01T06:00:00Z", "the timer moves")
        await_(lambda: len(events.all()) >= 2, "both are reported")
        expect(sorted((event.get("schedule") or event["name"], event["due"]) for event in events.all()),
               [("nine", "2031-01-01T06:00:00Z"), ("once", "2031-06-01T06:00:00Z")])
        expect(next_of(server, "nine"), "2031-01-01T06:00:00Z")
        expect((next_of(server, "utc"), due_of(server, "plain")), ("2031-01-01T09:00:00Z", "2031-06-01T09:00:00Z"))
        go_to(server, "2031-01-01T06:00:00Z")
        expect(lease_all(server), [("nine", "2031-01-01T06:00:00Z")])
        go_to(server, "2031-01-01T08:59:00Z")
        expect(lease_all(server), [], "not at the old time again")
        server.await_log("due times were moved")


@test("what has fired is not created again when its local time comes once more")
def _():
    trees = Trees(3, 1)
    with trees.server() as server:
        go_to(server, "2031-01-01T00:00:00Z")
        put(server, "nine", cron="0 9 * * *")
        put(server, "changed", cron="0 9 * * *")
        civil(server, "once", "2031-01-01T09:00:00")
        go_to(server, "2031-01-01T06:30:00Z")
        expect(len(lease_all(server)), 3)
        reload(server, trees)  # 09:00 is at 08:00Z now, on the same day
        expect(next_of(server, "nine"), "2031-01-02T08:00:00Z")
        server.patch("/v1/schedules/demo/changed", {"payload": 2}).must(200)
        go_to(server, "2031-01-02T07:59:59Z")
        expect(lease_all(server), [])
        go_to(server, "2031-01-02T08:00:00Z")
        expect(lease_all(server), [("changed", "2031-01-02T08:00:00Z"), ("nine", "2031-01-02T08:00:00Z")])


@test("a moment that moves into the past fires at once; a rule in real time repeats nothing")
def _():
    trees = Trees(1, 3)
    with trees.server() as server:
        go_to(server, "2031-01-01T00:00:00Z")
        put(server, "nine", cron="0 9 * * *")
        put(server, "often", cron="*/30 * * * *", missed="all")
        civil(server, "once", "2031-01-01T09:00:00")
        go_to(server, "2031-01-01T07:00:00Z")
        expect(len(lease_all(server)), 14)
        reload(server, trees)  # 09:00 was an hour ago
        await_(lambda: server.post("/v1/clock", {"advance": "1s"}).must(200)
               and server.get("/v1/schedules/demo/nine").json["made"] == 1, "it fires at once")
        found = []
        await_(lambda: found.extend(lease_all(server)) or len(found) >= 2, "both fire")
        expect(sorted(found), [("nine", "2031-01-01T06:00:00Z"), ("once", "2031-01-01T06:00:00Z")])
        go_to(server, "2031-01-01T07:30:00Z")
        expect(lease_all(server), [("often", "2031-01-01T07:30:00Z")])


@test("the rules change while no server runs")
def _():
    trees, place = Trees(1, 3), "sqlite:" + folder()
    for name, hour in (("before", "08"), ("after", "06"), ("before", "08"), ("before", "08")):
        trees.show(name)
        with trees.server(store=place) as server:
            if server.get("/v1/timers/demo/once").status == 404:
                civil(server, "once", "2999-06-01T09:00:00")
                put(server, "nine", cron="0 9 1 1 *", start="2999-01-01T00:00:00Z")
            await_(lambda: due_of(server, "once") == f"2999-06-01T{hour}:00:00Z", f"{name}: the timer is where it belongs")
            expect(next_of(server, "nine"), f"2999-01-01T{hour}:00:00Z")


@test("a zone that has disappeared keeps its rules, and the log says so")
def _():
    trees = Trees(1, 3)
    with trees.server() as server:
        put(server, "nine", cron="0 9 1 1 *", start="2999-01-01T00:00:00Z")
        os.remove(os.path.join(trees.place, "after", "Test", "Moves"))
        reload(server, trees)
        expect(next_of(server, "nine"), "2999-01-01T08:00:00Z")
        server.await_log("keeps its last known rules")


@test("a zone that is missing after a restart: its schedules wait until it is there again")
def _():
    trees, place = Trees(1, 3), "sqlite:" + folder()
    with trees.server(store=place) as server:
        put(server, "nine", cron="0 9 1 1 *", start="2031-01-01T00:00:00Z", missed="all")
    os.rename(os.path.join(trees.place, "before", "Test"), os.path.join(trees.place, "before", "Gone"))
    with trees.server(store=place) as server:
        expect(next_of(server, "nine"), None)
        problem(server.post("/v1/schedules/demo/nine/trigger"), 400, "invalid-field", "zone")
        server.post("/v1/clock", {"to": "2031-01-01T12:00:00Z"}).must(200)
        expect(lease_all(server), [])
        server.await_log("a schedule cannot create its occurrences")
        os.rename(os.path.join(trees.place, "before", "Gone"), os.path.join(trees.place, "before", "Test"))
        os.kill(server.process.pid, signal.SIGHUP)
        found = await_(lambda: lease_all(server), "the zone is back, and what was missed comes at once")
        expect(found, [("nine", "2031-01-01T08:00:00Z")])
        expect(next_of(server, "nine"), "2032-01-01T08:00:00Z")


@test("a zone that disappears and comes back with other rules is used again, also if it was damaged meanwhile")
def _():
    for harm in (os.remove, lambda path: open(path, "wb").close(), lambda path: os.truncate(path, 50)):
        trees = Trees(1, 3)
        with trees.server() as server:
            put(server, "nine", cron="0 9 1 1 *", start="2999-01-01T00:00:00Z")
            civil(server, "once", "2999-06-01T09:00:00")
            path = os.path.join(trees.place, "before", "Test", "Moves")
            harm(path)
            os.kill(server.process.pid, signal.SIGHUP)
            server.await_log("keeps its last known rules")
            text = "\n".join(str(line) for line in server.log)
            expect("has disappeared" in text, harm is os.remove, "a file that is there has not disappeared")
            expect((next_of(server, "nine"), due_of(server, "once")), ("2999-01-01T08:00:00Z", "2999-06-01T08:00:00Z"))
            reload(server, trees)
            await_(lambda: due_of(server, "once") == "2999-06-01T06:00:00Z", "the timer moves")
            await_(lambda: next_of(server, "nine") == "2999-01-01T06:00:00Z", "the schedule moves")


@test("new rules move neither what is redriven or retried, nor anything beyond max_wait")
def _():
    trees = Trees(1, 3)
    with trees.server() as server:
        go_to(server, "2031-01-01T00:00:00Z")
        due = {"local": "2031-01-01T09:00:00", "zone": "Test/Moves"}  # 08:00Z, and by the other rules 06:00Z
        for name in ("dead", "dead too", "retried"):
            server.put(f"/v1/timers/demo/{quote(name)}", {"due": due, "retry": {"initial": "9h", "max_attempts": 2}}).must(201)
        limited = server.put("/v1/timers/demo/limited", {"due": {**due, "local": "2031-06-01T09:00:00"}, "max_wait": "240h"}).must(201)
        expect((limited["due"], limited["local"]), ("2031-01-11T00:00:00Z", "2031-06-01T09:00:00"))
        go_to(server, "2031-01-01T08:00:00Z")
        leases = {timer["name"]: timer["lease"] for timer in server.post("/v1/lease/demo", {"max": 3}).must(200)["timers"]}
        server.post("/v1/ack", {"acks": [{"lease": leases["dead"], "result": "dead"}, {"lease": leases["dead too"], "result": "dead"},
                                         {"lease": leases["retried"], "result": "retry", "after": "9h"}]}).must(200)
        dead = server.get("/v1/dead/demo").must(200)["timers"]
        expect([(one["local"], one["zone"]) for one in dead], 2 * [(due["local"], due["zone"])])
        server.post("/v1/dead/demo/redrive?all=true&rate=1").must(200)
        redriven = server.get("/v1/timers/demo").must(200)["timers"]
        later = [one["name"] for one in redriven if one["due"] == "2031-01-01T08:00:01Z"]
        expect((len(later), ["local" in one for one in redriven if "dead" in one["name"]]), (1, [False, False]), "their civil time is over")
        before = {name: server.get(f"/v1/timers/demo/{quote(name)}").must(200) for name in ("retried", "limited", *later)}
        civil(server, "moves", "2999-06-01T09:00:00")
        reload(server, trees)
        await_(lambda: due_of(server, "moves") == "2999-06-01T06:00:00Z", "this one moves")
        expect({name: server.get(f"/v1/timers/demo/{quote(name)}").must(200) for name in before}, before)
        go_to(server, "2031-01-01T08:00:01Z")
        expect([name for name, _ in lease_all(server)], ["dead", "dead too"])
        go_to(server, "2031-01-10T23:59:59Z")
        expect([name for name, _ in lease_all(server)], ["retried"])
        go_to(server, "2031-01-11T00:00:00Z")
        expect([name for name, _ in lease_all(server)], ["limited"])


run()
