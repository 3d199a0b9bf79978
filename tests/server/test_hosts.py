#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Hosts: how their calls went, and pauses: nothing to a paused host begins, and nothing is lost."""

import re
from urllib.parse import quote, urlsplit

from e2e import Receiver, Server, await_, check, expect, foliot, microseconds, now_ms, problem, run, test
from members import Cluster, Events


def clock_server(*options, **named):
    return Server("--test-clock", *options, shards=4, **named)


def host_of(receiver):
    return urlsplit(receiver.url).netloc


def hosts(server, **query):
    text = "&".join(f"{key}={quote(str(value))}" for key, value in query.items())
    return server.get(f"/v1/hosts?{text}").must(200)


def pause(server, host, **body):
    return server.post(f"/v1/hosts/{quote(host)}/pause", body).must(200)


def resume(server, host, **body):
    return server.post(f"/v1/hosts/{quote(host)}/resume", body).must(200)


def add(server, name, after, **fields):
    server.put(f"/v1/timers/demo/{name}", {"after": after, "payload": name, **fields}).must(201)


@test("calls, responses and latencies are counted per host, in one spelling")
def _():
    receiver = Receiver()
    with clock_server() as server:
        expect(hosts(server), {"hosts": []})
        for n in range(3):
            add(server, f"g{n}", "1s", target=receiver.url.replace("http", "HTTP"))
        server.advance("2s")
        [host] = hosts(server)["hosts"]
        expect((host["host"], host["calls"], host["in_flight"], host["waiting"]), (host_of(receiver), 3, 0, 0))
        expect(sum(host["responses"].values()), 3)
        check(0 < host["latency_ms"]["p50"] <= host["latency_ms"]["p99"], f"latencies: {host}")
        check("paused" not in host, "it is not paused")


@test("pages are in the order of names; a paused host is listed without calls")
def _():
    with clock_server() as server:
        names = [f"h{n:02}.example:443" for n in range(12)]
        for name in reversed(names):
            pause(server, name)
        seen, cursor = [], {}
        while True:
            page = hosts(server, limit=5, **cursor)
            seen += [one["host"] for one in page["hosts"]]
            if "cursor" not in page:
                break
            cursor = {"cursor": page["cursor"]}
        expect(seen, names)
        expect([one["host"] for one in hosts(server, prefix="h1")["hosts"]], names[10:])
        check(all(one["latency_ms"] is None for one in page["hosts"]), "there were no calls")
        metrics = server.get("/metrics").body.decode()
        check('foliot_host_paused{host="h03.example:443"} 1' in metrics and "foliot_hosts_paused 12" in metrics, "metrics")
        check('foliot_host_paused_since_seconds{host="h03.example:443",reason="' in metrics, "since when, and why")
        expect(server.get("/v1/namespaces").must(200)["namespaces"], [])


@test("all spellings of a host are one; what is no host is refused")
def _():
    with clock_server() as server:
        for given, host in (("EXAMPLE.com:443", "example.com:443"), ("[0:0::1]:80", "[::1]:80"), ("127.0.0.1:8080", "127.0.0.1:8080")):
            first = pause(server, given, reason="x")
            expect((first["host"], first["paused"]["reason"]), (host, "x"))
            server.advance("1s")
            expect(pause(server, host, reason="x"), first)
            for _ in range(2):
                check("paused" not in resume(server, given), "it goes on")
        for bad in ("example.com", "[::1]", "example.com:0", "a/b:80", "a@b:80", ":80", "a b:80", "x" * 250 + ":8080"):
            problem(server.post(f"/v1/hosts/{quote(bad, safe='')}/pause"), 400, "invalid-field", "host")
        problem(server.post("/v1/hosts/a:1/pause", {"why": 1}), 400, "unknown-field", "why")
        problem(server.get("/v1/hosts?limit=0"), 400, "invalid-field", "limit")
        problem(server.get("/v1/hosts?sort=x"), 400, "unknown-field", "sort")


@test("nothing to a paused host begins, also after a restart; then all come in order; other hosts go on")
def _():
    held, free = Receiver(), Receiver()
    with Server("--webhook-per-host", "1", "--workers", "1", shards=1) as server:
        pause(server, host_of(held), reason="restart")
        begin = now_ms()
        for n in range(40):
            add(server, str(n), f"{n * 10}ms", target=held.url)
        add(server, "free", "0s", target=free.url)
        free.await_calls(1)
        await_(lambda: now_ms() > begin + 200, "some are due")
        server.restart()
        await_(lambda: now_ms() > begin + 1000, "all are due")
        [host] = hosts(server, prefix=host_of(held))["hosts"]
        expect((held.bodies(), host["paused"]["reason"], host["calls"]), ([], "restart", 0))
        resume(server, host_of(held))
        held.await_calls(40)
        expect(held.bodies(), [str(n) for n in range(40)])


@test("no retry begins, time paused does not count toward max_age, and counts once")
def _():
    broken = True
    receiver = Receiver(lambda call: 503 if broken else 200)
    with clock_server() as server:
        add(server, "aged", "1s", target=receiver.url, retry={"initial": "10s", "max_attempts": 5, "max_age": "1m"})
        server.advance("2s")
        expect(len(receiver.calls), 1)
        pause(server, host_of(receiver))
        server.post("/v1/namespaces/demo/pause").must(200)
        server.advance("1h")
        server.post("/v1/namespaces/demo/resume").must(200)
        server.advance("1s")
        expect(len(receiver.calls), 1)
        resume(server, host_of(receiver))
        server.advance("0s")
        expect(len(receiver.calls), 2)
        expect(server.get("/v1/dead/demo").must(200)["timers"], [])
        server.advance("2m")
        expect(len(server.get("/v1/dead/demo").must(200)["timers"]), 1)


@test("until ends the pause by itself; missed: skip drops what fell due")
def _():
    receiver = Receiver()
    with clock_server() as server:
        add(server, "x", "1m", target=receiver.url)
        now = microseconds(server.get("/v1/clock").must(200)["now"])
        pause(server, host_of(receiver), until=(now + 600_000_000) // 1000)
        server.advance("9m")
        expect(receiver.bodies(), [])
        server.advance("1m")
        expect(receiver.bodies(), ["x"])
        pause(server, host_of(receiver))
        add(server, "dropped", "1m", target=receiver.url)
        add(server, "later", "1h", target=receiver.url)
        server.advance("2m")
        resume(server, host_of(receiver), missed="skip")
        server.advance("2h")
        expect(receiver.bodies(), ["x", "later"])


@test("all servers of a store know of the pause, and their counts are summed; events say it")
def _():
    receiver = Receiver()
    with Cluster(2) as (a, b):
        events = Events(a, "")
        pause(a, host_of(receiver), reason="two")
        await_(lambda: hosts(b)["hosts"] and hosts(b)["hosts"][0].get("paused", {}).get("reason") == "two", "the other server knows")
        begin = now_ms()
        for n in range(20):
            (a, b)[n % 2].put(f"/v1/timers/demo/{n}", {"after": "0s", "payload": n, "target": receiver.url}).must(201)
        await_(lambda: now_ms() > begin + 500, "there was time to fire")
        expect(receiver.bodies(), [])
        resume(b, host_of(receiver))
        receiver.await_calls(20)
        for server in (a, b):
            await_(lambda: [one["calls"] for one in hosts(server)["hosts"]] == [20], "both know of all calls")
        await_(lambda: (events.count("paused"), events.count("resumed")) == (1, 1), "events say it")
        check(re.search(rf'"host":"{host_of(receiver)}","since":"[^"]+","reason":"two"}}'.encode(), events.text), "since when, and why")


@test("the command line lists, pauses and resumes hosts")
def _():
    with clock_server() as server:
        env = {"FOLIOT_URL": server.url}
        done = foliot("pause", "--host", "cli.example:443", "--reason", "repair", "--json", env=env)
        expect((done.returncode, hosts(server)["hosts"][0]["paused"]["reason"]), (0, "repair"))
        check("cli.example:443" in foliot("hosts", env=env).stdout, "the command lists it")
        expect(foliot("resume", "--host", "cli.example:443", env=env).returncode, 0)
        expect(hosts(server)["hosts"], [])
        expect((foliot("pause", env=env).returncode, foliot("pause", "a", "--host", "b:1", env=env).returncode), (2, 2))


run()
