#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The test clock: time that stands still until it is told to go on."""

import random
import time

from e2e import Postgres, Receiver, Server, check, expect, microseconds, problem, run, test

DAY_US = 86_400_000_000


def clock_server(*options, **named):
    return Server("--test-clock", *options, **named)


def now_us(server):
    return microseconds(server.get("/v1/clock").must(200)["now"])


@test("time stands still, and goes on as far as it is told")
def _():
    with clock_server() as server:
        first = server.get("/v1/clock").must(200)
        expect(first["test"], True)
        time.sleep(0.05)
        expect(server.get("/v1/clock").must(200), first)
        before = now_us(server)
        answer = server.advance("1d")
        expect((answer["fired"], microseconds(answer["now"])), (0, before + DAY_US))
        expect(now_us(server), before + DAY_US)
        to = (before + 3 * DAY_US) // 1000
        expect(microseconds(server.post("/v1/clock", {"to": to}).must(200)["now"]), to * 1000)
        expect(microseconds(server.post("/v1/clock", {"to": to + 0.5}).must(200)["now"]), to * 1000 + 500)
        expect(server.post("/v1/clock", {"to": "2100-01-01T00:00:00+01:00"}).must(200)["now"], "2099-12-31T23:00:00Z")
        expect(server.advance("0s")["now"], "2099-12-31T23:00:00Z")


@test("the clock goes to the end of the year 2553, and no further")
def _():
    with clock_server() as server:
        server.put("/v1/timers/end/beyond", {"due": "2600-01-01T00:00:00Z"}).must(201)
        server.put("/v1/timers/end/before", {"due": "2553-12-31T23:59:59Z"}).must(201)
        for to in ("2554-01-01T00:00:00Z", "2600-01-01T00:00:00Z", "3110-01-01T00:00:00Z"):
            problem(server.post("/v1/clock", {"to": to}), 400, "invalid-field", "to")
        problem(server.post("/v1/clock", {"advance": "300000d"}), 400, "invalid-field", "advance")
        expect(server.post("/v1/clock", {"to": "2553-12-31T23:59:59.999999Z"}).must(200)["fired"], 1)


@test("what is not understood, or goes backwards, is refused")
def _():
    with clock_server() as server:
        for body, kind, field in (({}, "invalid-body", None), ([], "invalid-body", None), ({"advance": 5}, "invalid-field", "advance"),
                                  ({"advance": "-1s"}, "invalid-field", "advance"), ({"to": "yesterday"}, "invalid-field", "to"),
                                  ({"to": 5}, "invalid-field", "to"), ({"to": "2001-01-01T00:00:00Z"}, "invalid-field", "to"),
                                  ({"advance": "1s", "to": 5}, "invalid-body", None), ({"by": "1s"}, "unknown-field", "by"),
                                  ({"to": "9999-01-01T00:00:00Z"}, "invalid-field", "to"), ({"to": True}, "invalid-field", "to"),
                                  ({"advance": "2000000d"}, "invalid-field", "advance")):
            problem(server.post("/v1/clock", body), 400, kind, field)
        problem(server.post("/v1/clock", "x"), 400, "invalid-json")


def month(store=None):
    """Timers of a month, retries included: each comes at its time and in order, over several shards."""
    luck = random.Random(31)
    fails = {}

    def answer(call):
        number = call.json
        left = fails.get(number, 0)
        fails[number] = left - 1
        return 503 if left > 0 else 200

    receiver = Receiver(answer)
    with clock_server(store=store, shards=4) as server:
        begin = now_us(server)
        expected = []
        lines = []
        for number in range(200):
            after_s = luck.randrange(1, 30 * 86400)
            retries = luck.choice((0, 0, 0, 1, 2))
            fails[number] = retries
            lines.append({"op": "create", "namespace": "month", "name": f"t{number}", "after": f"{after_s}s", "payload": number,
                          "target": receiver.url, "retry": {"initial": "1h", "multiplier": 2, "max_interval": "1d"}})
            expected.append((begin + after_s * 1_000_000, number))
        check(all(line["ok"] for line in server.batch(lines)), "all were made")
        expect(server.advance("1s")["fired"] + len(receiver.calls), 2 * len(receiver.calls), "each is counted once")
        server.advance("40d")
        calls = list(receiver.calls)
        firsts = [call.json for call in calls if call.headers["foliot-attempt"] == "1"]
        expect(firsts, [number for _, number in sorted(expected)], "first attempts are in the order of time")
        retried = sum(luck_left < -1 for luck_left in fails.values())
        expect(len(calls), 200 + sum(call.headers["foliot-attempt"] != "1" for call in calls))
        expect(retried, 0)
        expect(server.timers("month"), [])
        stamps = [int(call.headers["webhook-timestamp"]) for call in calls]
        expect(stamps, sorted(stamps), "what is sent later says so")
        by_number = {}
        for call in calls:
            by_number.setdefault(call.json, []).append(int(call.headers["webhook-timestamp"]))
        for due_us, number in expected:
            times = by_number[number]
            expect(times[0], due_us // 1_000_000, "sent when it was due, to the second")
            for earlier, later in zip(times, times[1:]):
                check(1800 <= later - earlier <= 4 * 3600, f"tried again after {later - earlier} s")


@test("a month passes, retries included, in the order of time, over several shards")
def _():
    month()


@test("the same with PostgreSQL")
def _():
    month(Postgres().url())


@test("the answer comes when all is settled, and counts what has fired")
def _():
    receiver = Receiver(lambda call: time.sleep(0.02) or 200)
    with clock_server(shards=2) as server:
        server.batch([{"op": "create", "namespace": "n", "after": f"{n}s", "target": receiver.url} for n in range(1, 31)])
        expect(server.advance("10s")["fired"], 10)
        expect(len(receiver.calls), 10)
        expect(server.advance("9500ms")["fired"], 9)
        expect(server.advance("1h")["fired"], 11)
        expect(len(receiver.calls), 30)
        expect(server.timers("n"), [])


@test("what asks to be called again is, on the way")
def _():
    receiver = Receiver(lambda call: (200, {"Content-Type": "application/json"}, '{"again_after":"1d"}')
                        if len(receiver.calls) < 30 else 200)
    with clock_server() as server:
        server.put("/v1/timers/daily/x", {"after": "1h", "target": receiver.url}).must(201)
        expect(server.advance("10d")["fired"], 10)
        expect(server.advance("60d")["fired"], 20)
        expect(len(receiver.calls), 30)
        stamps = [int(call.headers["webhook-timestamp"]) for call in receiver.calls]
        expect({later - earlier for earlier, later in zip(stamps, stamps[1:])}, {86400})


@test("moved and cancelled while time stands still")
def _():
    receiver = Receiver()
    with clock_server() as server:
        for name in "abc":
            server.put(f"/v1/timers/m/{name}", {"after": "1d", "target": receiver.url, "payload": name}).must(201)
        server.patch("/v1/timers/m/a", {"after": "3d"}).must(200)
        server.delete("/v1/timers/m/b").must(204)
        expect(server.advance("2d")["fired"], 1)
        expect(server.advance("2d")["fired"], 1)
        expect(receiver.bodies(), ["c", "a"])


@test("pull: what is due waits to be leased, and comes again when it was asked to")
def _():
    with clock_server() as server:
        server.put("/v1/timers/p/x", {"after": "1d", "payload": 1}).must(201)
        expect(server.lease("p"), [])
        server.advance("1d")
        one = server.lease("p", wait="10s")[0]
        expect(one["attempt"], 1)
        expect(server.ack((one["lease"], {"result": "retry", "after": "1d"}))["settled"], 1)
        server.advance("23h")
        expect(server.lease("p"), [])
        server.advance("2h")
        again = server.lease("p", wait="10s")
        expect([(item["id"], item["attempt"]) for item in again], [(one["id"], 2)])
        expect(server.ack((again[0]["lease"], {"result": "done"}))["settled"], 1)


@test("pull: a lease runs out by the same clock, and by no other")
def _():
    with clock_server("--workers", "2") as server:
        server.batch([{"op": "create", "namespace": f"p{n}", "after": "1d", "payload": n} for n in range(8)])
        server.advance("1d")
        first = [server.lease(f"p{n}", lease="1h" if n % 2 else "1ms", wait="10s")[0] for n in range(8)]
        time.sleep(0.05)
        expect([server.lease(f"p{n}") for n in range(8)], [[]] * 8, "time stands still")
        server.advance("59m")
        expect([len(server.lease(f"p{n}", lease="1d")) for n in range(8)], [1, 0] * 4)
        server.advance("2m")
        again = [server.lease(f"p{n}", lease="1d", wait="10s")[0] for n in range(1, 8, 2)]
        expect({one["attempt"] for one in again}, {2})
        expect({one["id"] for one in again}, {one["id"] for one in first[1::2]})
        expect(server.ack(*((one["lease"], {"result": "done"}) for one in first))["settled"], 0)
        expect(server.ack(*((one["lease"], {"result": "done"}) for one in again))["settled"], 4)


@test("a restart: what was to come still comes")
def _():
    receiver = Receiver()
    with clock_server() as server:
        server.put("/v1/timers/r/x", {"after": "10d", "target": receiver.url}).must(201)
        server.advance("5d")
        server.restart()
        server.advance("11d")
        expect(len(receiver.calls), 1)


run()
