#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pause: nothing in a namespace begins while it is paused, and nothing is lost."""

import re
import threading

from e2e import Receiver, Server, await_, check, expect, foliot, microseconds, now_ms, problem, run, test
from members import Cluster, Events


def clock_server(**named):
    return Server("--test-clock", shards=4, **named)


def now_us(server):
    return microseconds(server.get("/v1/clock").must(200)["now"])


def pause(server, namespace, **body):
    return server.post(f"/v1/namespaces/{namespace}/pause", body).must(200)


def resume(server, namespace, **body):
    return server.post(f"/v1/namespaces/{namespace}/resume", body).must(200)


def add(server, namespace, name, after, **fields):
    server.put(f"/v1/timers/{namespace}/{name}", {"after": after, "payload": name, **fields}).must(201)


def get(server, namespace):
    return server.get(f"/v1/namespaces/{namespace}").must(200)


@test("a paused namespace says so; settings do not change the pause; both requests can be repeated")
def _():
    with clock_server() as server:
        check("paused" not in get(server, "a"), "it is not paused")
        first = pause(server, "a", reason="repair")
        expect((first["namespace"], first["paused"]["reason"], "until" in first["paused"]), ("a", "repair", False))
        expect(microseconds(first["paused"]["since"]), now_us(server))
        server.advance("1m")
        expect(pause(server, "a", reason="repair"), first)
        for change in (server.put, server.patch):
            expect(change("/v1/namespaces/a", {"max_rate": 7}).must(200)["paused"], first["paused"])
        expect([space["namespace"] for space in server.get("/v1/namespaces").must(200)["namespaces"]], ["a"])
        metrics = server.get("/metrics").body.decode()
        check('foliot_namespace_paused{namespace="a"} 1' in metrics, "the metric says so")
        since = microseconds(first["paused"]["since"]) // 1_000_000
        check(f'foliot_namespace_paused_since_seconds{{namespace="a",reason="repair"}} {since}' in metrics, "and since when, and why")
        expect(pause(server, "a", reason="a \"b\"\n")["paused"]["since"], first["paused"]["since"])
        check('{namespace="a",reason="a \\"b\\"\\n"}' in server.get("/metrics").body.decode(), "labels are escaped")
        for _ in range(2):
            answer = resume(server, "a")
            check("paused" not in answer, "it goes on")
            expect(answer["settings"]["max_rate"], 7)
        metrics = server.get("/metrics").body.decode()
        check('foliot_namespace_paused{namespace="a"} 0' in metrics and 'paused_since_seconds{namespace="a"' not in metrics, "no more")


@test("a pause without settings leaves no namespace behind")
def _():
    with clock_server() as server:
        server.post("/v1/namespaces/gone/pause").must(200)
        server.advance("1m")
        server.post("/v1/namespaces/gone/resume").must(200)
        expect(server.get("/v1/namespaces").must(200)["namespaces"], [])


@test("what is not understood is refused")
def _():
    with clock_server() as server:
        for body, kind, field in (([], "invalid-body", None), ({"why": 1}, "unknown-field", "why"), ({"reason": 1}, "invalid-field", "reason"),
                                  ({"reason": "x" * 256}, "invalid-field", "reason"), ({"until": "soon"}, "invalid-field", "until"),
                                  ({"until": None}, "invalid-field", "until"), ({"until": 5}, "invalid-field", "until")):
            problem(server.post("/v1/namespaces/a/pause", body), 400, kind, field)
        for body, kind, field in (([], "invalid-body", None), ({"missed": "all"}, "invalid-field", "missed"), ({"x": 1}, "unknown-field", "x")):
            problem(server.post("/v1/namespaces/a/resume", body), 400, kind, field)
        check("paused" not in get(server, "a"), "nothing has happened")
        pause(server, "a", reason="\u00e4" * 127)
        expect(get(server, "a")["paused"]["reason"], "\u00e4" * 127)
        check("paused" not in pause(server, "a", until="2020-01-01T00:00:00Z"), "an end that is past ends it")


@test("no webhook begins while it is paused; then they come in order; other namespaces go on")
def _():
    receiver = Receiver()
    with clock_server() as server:
        for n in range(1, 31):
            add(server, "held", str(n), f"{n}m", target=receiver.url)
        add(server, "free", "free", "10m", target=receiver.url)
        server.advance("5m")
        expect(receiver.bodies(), [str(n) for n in range(1, 6)])
        pause(server, "held")
        server.advance("15m")
        expect(receiver.bodies()[5:], ["free"])
        expect(get(server, "held")["pending"], 25)
        add(server, "held", "new", "1m", target=receiver.url)
        server.delete("/v1/timers/held/7").must(204)
        server.patch("/v1/timers/held/8", {"after": "1h"}).must(200)
        server.advance("2m")
        expect(len(receiver.calls), 6)
        resume(server, "held")
        server.advance("0s")
        came = receiver.bodies()[6:]
        expect(sorted(came), sorted(["6", *(str(n) for n in range(9, 23)), "new"]))
        server.advance("2h")
        expect(sorted(receiver.bodies()[6 + len(came):]), sorted(["8", *(str(n) for n in range(23, 31))]))
        expect(get(server, "held")["pending"], 0)


@test("timers of one shard fire in the order in which they fell due, also after a restart in the middle")
def _():
    receiver = Receiver()
    with Server("--webhook-per-host", "1", "--workers", "1", shards=1) as server:
        pause(server, "order", reason="restart")
        begin = now_ms()
        for n in range(40):
            server.put(f"/v1/timers/order/{n}", {"after": f"{n * 10}ms", "payload": n, "target": receiver.url}).must(201)
        await_(lambda: now_ms() > begin + 250, "some are due")
        server.restart()
        expect(get(server, "order")["paused"]["reason"], "restart")
        await_(lambda: now_ms() > begin + 1000, "all are due")
        expect((receiver.bodies(), get(server, "order")["pending"]), ([], 40))
        server.patch("/v1/namespaces/order", {"max_rate": 100}).must(200)
        resume(server, "order")
        receiver.await_calls(40)
        expect(receiver.bodies(), list(range(40)))


@test("nothing is leased while it is paused, not even what waited for a lease; work in progress finishes")
def _():
    with clock_server() as server:
        for n in range(4):
            add(server, "pull", str(n), "1s")
        server.advance("1s")
        [working] = server.lease("pull", max=1, wait="5s", lease="1h")
        pause(server, "pull")
        expect(server.lease("pull", max=10), [])
        expect(server.ack((working["lease"], {"result": "done"}))["settled"], 1)
        add(server, "pull", "later", "1s")
        server.advance("2s")
        expect(server.lease("pull", max=10, wait="100ms"), [])
        found = []
        waiting = threading.Thread(target=lambda: found.extend(server.lease("pull", max=10, wait="30s")))
        waiting.start()
        resume(server, "pull")
        waiting.join()
        while len(found) < 4:
            found += server.lease("pull", max=10, wait="10s")
        expect(sorted(one["payload"] for one in found), sorted([*(str(n) for n in range(4) if str(n) != working["payload"]), "later"]))


@test("no retry begins, and time paused does not count toward max_age")
def _():
    broken = True
    receiver = Receiver(lambda call: 503 if broken else 200)
    with clock_server() as server:
        for namespace in ("aged", "old"):
            add(server, namespace, namespace, "1s", target=receiver.url, retry={"initial": "10s", "max_attempts": 5, "max_age": "1m"})
        server.advance("2s")
        expect(sorted(receiver.bodies()), ["aged", "old"])
        pause(server, "aged")
        server.advance("1h")
        expect(receiver.bodies().count("aged"), 1)
        expect(len(server.get("/v1/dead/old").must(200)["timers"]), 1)
        resume(server, "aged")
        server.advance("0s")
        expect(receiver.bodies().count("aged"), 2)
        expect(server.get("/v1/dead/aged").must(200)["timers"], [])
        broken = False
        server.advance("30s")
        expect(receiver.bodies().count("aged"), 3)
        expect(get(server, "aged")["pending"], 0)


@test("until ends the pause by itself")
def _():
    receiver = Receiver()
    with clock_server() as server:
        add(server, "until", "x", "1m", target=receiver.url)
        until = (now_us(server) + 600_000_000) // 1000
        expect(microseconds(pause(server, "until", until=until)["paused"]["until"]), until * 1000)
        server.advance("9m")
        expect(receiver.bodies(), [])
        server.advance("1m")
        expect(receiver.bodies(), ["x"])
        check("paused" not in get(server, "until"), "it is over")


@test("missed: skip drops what fell due, and nothing else")
def _():
    receiver = Receiver()
    with clock_server() as server:
        pause(server, "skip")
        for n in (1, 2, 20):
            add(server, "skip", str(n), f"{n}m", target=receiver.url)
        server.advance("10m")
        resume(server, "skip", missed="skip")
        server.advance("1m")
        expect((receiver.bodies(), get(server, "skip")["pending"]), ([], 1))
        server.put("/v1/timers/skip/past", {"due": "2020-01-01T00:00:00Z", "payload": "past", "target": receiver.url}).must(201)
        server.advance("1h")
        expect(receiver.bodies(), ["past", "20"])


@test("missed: skip drops the timers that waited; the occurrences that are still to be created follow their schedule")
def _():
    with clock_server() as server:
        for name, policy in (("last", "last"), ("all", "all"), ("none", "skip")):
            server.put(f"/v1/schedules/rest/{name}", {"every": "1h", "missed": policy, "payload": name}).must(201)
        server.put("/v1/schedules/rest/made", {"every": "1h", "missed": "skip", "window": "55m", "payload": "made"}).must(201)
        server.advance("1h")
        first = server.lease("rest", max=10)
        expect(sorted(timer["payload"] for timer in first), ["all", "last", "none"])
        server.ack(*((timer["lease"], {"result": "done"}) for timer in first))
        check(server.get("/v1/timers/rest?schedule=made").must(200)["timers"], "this occurrence has its timer, due a little later")
        pause(server, "rest")
        server.advance("10h30m")
        add(server, "rest", "waits", "0s")
        server.advance("0s")
        resume(server, "rest", missed="skip")
        add(server, "rest", "new", "0s")
        server.advance("0s")
        expect(sorted(timer["payload"] for timer in server.lease("rest", max=100)), 10 * ["all"] + ["last", "new"])


@test("spread applies to what waited for the end of the pause")
def _():
    receiver = Receiver()
    with clock_server() as server:
        server.put("/v1/namespaces/spread", {"spread": "1h"}).must(200)
        pause(server, "spread")
        server.batch([{"op": "create", "namespace": "spread", "after": "1m", "payload": n, "target": receiver.url} for n in range(200)])
        server.advance("1d")
        resume(server, "spread")
        server.advance("1s")
        check(len(receiver.calls) < 40, f"they do not come all at once: {len(receiver.calls)}")
        server.advance("1h")
        expect(sorted(receiver.bodies()), list(range(200)))


@test("all servers of a store know of the pause, and of its end")
def _():
    receiver = Receiver()
    with Cluster(2) as (a, b):
        pause(a, "both", reason="two")
        await_(lambda: get(b, "both").get("paused", {}).get("reason") == "two", "the other server knows")
        begin = now_ms()
        for n in range(20):
            (a, b)[n % 2].put(f"/v1/timers/both/{n}", {"after": "0s", "payload": n, "target": receiver.url}).must(201)
        await_(lambda: now_ms() > begin + 500, "there was time to fire")
        expect(receiver.bodies(), [])
        resume(b, "both")
        receiver.await_calls(20)
        expect(sorted(receiver.bodies()), list(range(20)))
        check("paused" not in get(a, "both"), "it is over")


@test("until ends a pause by the clock of the machine; events say when it began and ended")
def _():
    receiver = Receiver()
    with Server(shards=2) as server:
        events = Events(server)
        until = now_ms() + 300
        pause(server, "fire", reason="short", until=until)
        add(server, "fire", "x", "0s", target=receiver.url)
        receiver.await_calls(1)
        check(now_ms() >= until, "it does not fire before")
        await_(lambda: (events.count("paused"), events.count("resumed"), events.count("fired")) == (1, 1, 1), "all is told")
        check(re.search(rb'"namespace":"fire","since":"[^"]+","until":"[^"]+","reason":"short"}', events.text), "since when, and why")
        pause(server, "fire")
        resume(server, "fire")
        await_(lambda: (events.count("paused"), events.count("resumed")) == (2, 2), "the same without until")


@test("the command line pauses and resumes")
def _():
    with clock_server() as server:
        env = {"FOLIOT_URL": server.url}
        done = foliot("pause", "cli", "--reason", "repair", "--until", "2100-01-01T00:00:00Z", "--json", env=env)
        expect((done.returncode, get(server, "cli")["paused"]["reason"]), (0, "repair"))
        expect(get(server, "cli")["paused"]["until"], "2100-01-01T00:00:00Z")
        expect(foliot("resume", "cli", "--skip", env=env).returncode, 0)
        check("paused" not in get(server, "cli"), "it goes on")


run()
