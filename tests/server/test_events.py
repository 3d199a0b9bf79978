#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Events that a client resumes with Last-Event-ID: nothing twice, nothing lost without `dropped`, in the order of their numbers."""

import json

from e2e import Server, check, expect, run, test
from members import Cluster


class Stream:
    """The blocks of a stream of events. `at` is what a browser would send as Last-Event-ID."""

    def __init__(self, server, query="", last=None):
        self.socket = server.socket()
        more = "" if last is None else f"Last-Event-ID: {last}\r\n"
        self.socket.sendall(f"GET /v1/events{query} HTTP/1.0\r\nHost: localhost\r\n{more}\r\n".encode())
        self.file = self.socket.makefile("rb")
        check(b" 200 " in self.file.readline(), "the stream begins")
        while self.file.readline() != b"\r\n":
            pass
        self.at = last
        self.block()

    def block(self):
        fields = {}
        while (line := self.file.readline().decode().rstrip("\n")) != "":
            if not line.startswith(":"):
                key, _, value = line.partition(": ")
                check(key not in fields, f"{key} is there once")
                fields[key] = value
        if "id" in fields:
            self.at = fields["id"]
        return fields

    def next(self):
        """(type, data) of the next event."""
        while "data" not in (fields := self.block()):
            pass
        data = json.loads(fields["data"])
        if fields["event"] != "dropped":
            expect(fields["event"], data["type"])
        return fields["event"], data

    def names(self, count):
        """The names of the next timers; each number is the one before plus at least one."""
        found, before = [], int(self.at)
        for _ in range(count):
            kind, data = self.next()
            check(kind != "dropped", f"nothing is missed: {data}")
            check(int(self.at) > before, "numbers increase")
            before = int(self.at)
            found.append(data["name"])
        return found

    def close(self):
        self.file.close()
        self.socket.close()
        return self.at


def create(server, names, ns="events"):
    for name in names:
        server.put(f"/v1/timers/{ns}/{name}", {"after": "1h"}).must(201)


def numbered(count, prefix=""):
    return [f"{prefix}{n}" for n in range(count)]


@test("a client that reconnects gets exactly the events that it has missed, on any worker")
def _():
    with Server("--workers", "3", shards=4) as server:
        stream = Stream(server)
        create(server, ["a", "b"])
        first = int(stream.at)
        expect(stream.names(2), ["a", "b"])
        expect(int(stream.at), first + 2, "a counter")
        last = stream.close()
        create(server, numbered(50))
        for _ in range(6):  # connections go to different workers
            stream = Stream(server, last=last)
            expect(stream.names(50), numbered(50))
            create(server, ["live"])
            expect(stream.names(1), ["live"])
            server.delete("/v1/timers/events/live").must(204)
            expect(stream.next()[0], "cancelled")
            stream.close()
            stream = Stream(server, "?type=scheduled", last=last)  # its own event, and that of each round before
            expect(stream.names(51)[:50], numbered(50))
            stream.close()
        kind, data = "", {}
        stream = Stream(server, last=last)
        kind, data = stream.next()
        expect((kind, data["name"], len(data["id"])), ("scheduled", "0", 26), "the ID of the timer is in the data")
        stream.close()


@test("a client that has got no event yet resumes too, and so does one that has got all")
def _():
    with Server() as server:
        stream = Stream(server)
        last = stream.close()
        create(server, ["a"])
        stream = Stream(server, last=last)
        expect(stream.names(1), ["a"])
        last = stream.close()
        stream = Stream(server, last=last)
        create(server, ["b"])
        expect(stream.names(1), ["b"])
        stream.close()


@test("filters apply to what is resumed, and pings are not needed to stay up to date")
def _():
    with Server() as server:
        stream = Stream(server, "?namespace=mine&type=cancelled")
        last = stream.close()
        for ns in ("mine", "other"):
            create(server, numbered(10), ns)
            for name in numbered(10):
                server.delete(f"/v1/timers/{ns}/{name}").must(204)
        stream = Stream(server, "?namespace=mine&type=cancelled", last=last)
        for name in numbered(10):
            kind, data = stream.next()
            expect((kind, data["namespace"], data["name"]), ("cancelled", "mine", name))
        create(server, ["end"], "mine")
        server.delete("/v1/timers/mine/end").must(204)
        expect(stream.next()[1]["name"], "end")
        stream.close()


@test("events that are no longer kept are counted, and the rest follows")
def _():
    with Server("--event-buffer", "4KiB") as server:
        stream = Stream(server)
        last = stream.close()
        create(server, numbered(100, "x" * 50))
        stream = Stream(server, last=last)
        kind, data = stream.next()
        expect(kind, "dropped")
        missed = data["count"]
        check(80 < missed < 100, f"4 KiB hold some events: {missed} are missed")
        expect(int(stream.at), int(last) + missed, "the number is that of the last event that was missed")
        expect(stream.names(100 - missed), numbered(100, "x" * 50)[missed:])
        last = stream.close()
        stream = Stream(server, last=last)  # what it was told once is not told again
        create(server, ["more"])
        expect(stream.names(1), ["more"])
        stream.close()


@test("more events than fit into the buffers of a connection are resumed without loss")
def _():
    with Server("--event-buffer", "64MiB", "--workers", "2") as server:
        stream = Stream(server)
        last = stream.close()
        for begin in range(0, 40000, 10000):
            server.batch([{"op": "create", "namespace": "events", "name": f"{begin + n}", "after": "1h"} for n in range(10000)])
        stream = Stream(server, last=last)
        expect(sorted(stream.names(40000), key=int), numbered(40000))
        expect(int(stream.at), int(last) + 40000)
        create(server, ["more"])
        expect(stream.names(1), ["more"])
        stream.close()
        expect(server.metric("foliot_events_dropped_total"), 0)


@test("numbers of before a restart, of the future and nonsense are unknown: null, then new events")
def _():
    with Server() as server:
        stream = Stream(server)
        create(server, ["a"])
        stream.names(1)
        old = stream.close()
        strange = [str(int(old) + 1), str(int(old) - 2), "0", "-1", "18446744073709551616", "9" * 16, "9" * 200, "nonsense", "1e3", old + "x",
                   "0000360tbmabms800000000002"]
        server.stop()
        server.start()
        for round, last in enumerate([old, *strange]):
            stream = Stream(server, last=last)
            kind, data = stream.next()
            expect((kind, data), ("dropped", {"count": None}), last)
            create(server, [f"new{round}"])
            expect(stream.names(1), [f"new{round}"])
            again = stream.close()
            create(server, [f"again{round}"])
            stream = Stream(server, last=again)
            expect(stream.names(1), [f"again{round}"])
            stream.close()
        stream = Stream(server)
        future = int(stream.close()) + 1
        stream = Stream(server, last=future)
        expect(stream.next(), ("dropped", {"count": None}))
        stream.close()
        stream = Stream(server, last="")  # as if it were not there
        create(server, ["plain"])
        expect(stream.names(1), ["plain"])
        stream.close()


@test("events of other servers are resumed; the number of another server is unknown")
def _():
    with Cluster(2) as (a, b):
        stream, other = Stream(a), Stream(b)
        create(a, ["warm"])
        expect((stream.names(1), other.names(1)), (["warm"], ["warm"]))
        last = stream.close()
        other.close()
        create(a, numbered(20))
        create(b, numbered(20, "b"))
        stream = Stream(a, last=last)
        expect(sorted(stream.names(40)), sorted(numbered(20) + numbered(20, "b")))
        stream.close()
        other = Stream(b, last=last)
        expect(other.next(), ("dropped", {"count": None}))
        other.close()


@test("a run of skipped occurrences is an event of its schedule: it has a count, and no ID of a timer")
def _():
    with Server("--test-clock") as server:
        server.put("/v1/schedules/events/s", {"every": "1m", "missed": "skip"}).must(201)
        server.patch("/v1/schedules/events/s", {"paused": True}).must(200)
        server.advance("1h")
        stream = Stream(server, "?type=skipped")
        server.patch("/v1/schedules/events/s", {"paused": False}).must(200)
        server.advance("1m")
        _, data = stream.next()
        stream.close()
        expect(data["schedule"], "s")
        check(data["count"] >= 59, data)
        expect(set(data) & {"id", "name", "attempt"}, set(), "there is no timer")


run()
