#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The dashboard's side of the server: its files, the root, logins, and who a client is. tests/ui drives the pages themselves."""

import hashlib
import http.client
import json
import os
import re
import signal

from e2e import SOURCE, Server, await_, check, expect, folder, microseconds, problem, quote, run, test

PAGE = {"Foliot-UI": "1"}


def config(*tokens):
    """A file with tokens: (name, rights, namespaces)."""
    path = os.path.join(folder(), "foliot.conf")
    write_config(path, *tokens)
    return path


def write_config(path, *tokens):
    with open(path, "w", encoding="utf-8") as file:
        for name, rights, spaces in tokens:
            digest = hashlib.sha256(f"token-{name}".encode()).hexdigest()
            file.write(f"[token {name}]\nsha256 = {digest}\nnamespaces = {spaces}\nrights = {rights}\n")


def sign_in(server, name):
    answer = server.call("POST", "/ui/session", {"token": f"token-{name}"}, PAGE)
    expect(answer.status, 204)
    cookie = answer.headers["set-cookie"]
    check("HttpOnly" in cookie and "SameSite=Strict" in cookie and "Max-Age=43200" in cookie, cookie)
    return {"Cookie": cookie.split(";")[0]}


@test("the list of files is the folder's")
def _():
    place = os.path.join(SOURCE, "src/ui")
    with open(os.path.join(place, "meson.build"), encoding="utf-8") as file:
        listed = set(re.findall(r"'([^']+)'", file.read()))
    expect(listed, {name for name in os.listdir(place) if name != "meson.build"})
    check(sum(os.path.getsize(os.path.join(place, name)) for name in listed) < 150_000, "150 KB at most")


@test("files have a type, a validator and the policy")
def _():
    with Server() as server:
        page = server.call("GET", "/ui/")
        expect(page.status, 200)
        expect(page.headers["content-type"], "text/html; charset=utf-8")
        check("default-src 'none'" in page.headers["content-security-policy"], page.headers)
        for name in re.findall(r'(?:src|href)="([^"#]+)"', page.body.decode()):
            answer = server.call("GET", "/ui/" + name)
            expect(answer.status, 200, name)
            for have in (answer.headers["etag"], "W/" + answer.headers["etag"], f'"other", {answer.headers["etag"]}'):
                again = server.call("GET", "/ui/" + name, None, {"If-None-Match": have})
                expect((again.status, again.body), (304, b""), name)
            expect(server.call("GET", "/ui/" + name, None, {"If-None-Match": '"other"'}).status, 200, name)
        expect(server.call("GET", "/ui/nothing.js").status, 404)
        expect(server.call("GET", "/ui/..%2fapi.c").status, 404)
        expect(server.call("HEAD", "/ui/app.js").status, 200)
        expect(server.call("GET", "/ui").headers["location"], "ui/")


@test("the root sends browsers to the dashboard and tells others what there is")
def _():
    with Server() as server:
        browser = server.call("GET", "/", None, {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
        expect((browser.status, browser.headers["location"]), (302, "ui/"))
        expect(server.call("GET", "/", None, {"Accept": "*/*"}).json["dashboard"], "/ui/")
    with Server("--no-ui") as server:
        expect(server.call("GET", "/ui/").status, 404)
        expect(server.call("GET", "/", None, {"Accept": "text/html"}).status, 200)
        check("dashboard" not in server.call("GET", "/").json, "there is none")


@test("a login has the rights of its token, changes need the header, and signing out ends it")
def _():
    with Server("--config", config(("all", "admin", "*"), ("some", "read", "demo"))) as server:
        expect(server.call("GET", "/v1/whoami").status, 401)
        expect(server.call("POST", "/ui/session", {"token": "wrong"}, PAGE).status, 401)
        expect(server.call("POST", "/ui/session", {"token": "token-all"}).status, 403, "without the header")
        me = sign_in(server, "some")
        who = server.call("GET", "/v1/whoami", None, me).json
        expect((who["token"], who["namespaces"], who["rights"]), ("some", ["demo"], ["read"]))
        check("expires" in who["session"], who)
        expect(server.call("PUT", "/v1/timers/demo/a", {"after": "1h"}, {**me, **PAGE}).status, 403, "it may only read")
        root = sign_in(server, "all")
        expect(server.call("PUT", "/v1/timers/demo/a", {"after": "1h"}, root).status, 403, "without the header")
        expect(server.call("PUT", "/v1/timers/demo/a", {"after": "1h"}, {**root, **PAGE}).status, 201)
        expect(server.call("GET", "/v1/timers/demo/a", None, me).status, 200)
        expect(server.call("DELETE", "/ui/session", None, me).status, 403)
        expect(server.call("DELETE", "/ui/session", None, {**me, **PAGE}).status, 204)
        expect(server.call("GET", "/v1/timers/demo/a", None, me).status, 401)
        expect(server.call("GET", "/v1/timers/demo/a", None, root).status, 200)
        expect(server.call("GET", "/v1/timers/demo/a", None, {"Cookie": "foliot_session=" + "0" * 64}).status, 401)
        expect([space["namespace"] for space in server.call("GET", "/v1/namespaces", None, root).json["namespaces"]], ["demo"])


@test("a login ends when its token is revoked, and survives a restart")
def _():
    path, place = config(("all", "admin", "*"), ("other", "admin", "*")), folder()
    with Server("--config", path, store="sqlite:" + place) as server:
        me, other = sign_in(server, "all"), sign_in(server, "other")
    with Server("--config", path, store="sqlite:" + place) as server:
        await_(lambda: server.get("/readyz").status == 200, "ready")
        expect(server.call("GET", "/v1/whoami", None, me).status, 200)
        write_config(path, ("all", "admin", "*"))
        server.signal(signal.SIGHUP)
        await_(lambda: server.call("GET", "/v1/whoami", None, other).status == 401, "the token is gone")
        expect(server.call("GET", "/v1/whoami", None, me).status, 200)


@test("fire now")
def _():
    with Server() as server:
        server.put("/v1/timers/demo/later", {"after": "1h", "payload": 1}).must(201)
        fired = server.call("POST", "/v1/timers/demo/later/fire")
        expect(fired.status, 200)
        leased = server.call("POST", "/v1/lease/demo", {"wait": "5s"}).json["timers"]
        expect([timer["name"] for timer in leased], ["later"])
        expect(server.call("POST", "/v1/timers/demo/later/fire").status, 409, "an attempt is in progress")
        expect(server.call("POST", "/v1/timers/demo/nobody/fire").status, 404)
        expect(server.call("POST", "/v1/timers/demo/later/fire", {"after": "1h"}).status, 400)


def sums(stats):
    return {kind: sum(stats[kind]) for kind in ("created", "fired", "failed", "dead", "cancelled", "skipped")}


WANTED = {"created": 6, "fired": 3, "failed": 1, "dead": 1, "cancelled": 1, "skipped": 0}


def make_history(server):
    for name in "abc":
        server.put(f"/v1/timers/busy/{name}", {"after": "0s"}).must(201)
    server.put("/v1/timers/busy/lost", {"after": "0s", "retry": {"max_attempts": 1}}).must(201)
    server.put("/v1/timers/busy/gone", {"after": "1h"}).must(201)
    server.put("/v1/timers/busy/later", {"after": "1h"}).must(201)
    server.call("DELETE", "/v1/timers/busy/gone")
    left = {"a", "b", "c", "lost"}
    while left:
        leased = server.call("POST", "/v1/lease/busy", {"wait": "5s"}).json["timers"]
        server.call("POST", "/v1/ack", {"acks": [
            {"lease": timer["lease"], "result": "retry" if timer["name"] == "lost" else "done"} for timer in leased]})
        left -= {timer["name"] for timer in leased}
    await_(lambda: sums(server.get("/v1/stats?namespace=busy").json) == WANTED, "all is counted")


@test("the last hour: each event is counted once, by namespace and in all")
def _():
    with Server() as server:
        make_history(server)
        one, every = server.get("/v1/stats?namespace=busy").json, server.get("/v1/stats").json
        expect(sums(every), WANTED)
        expect(sum(map(sum, one["lateness"]["counts"])), 4, "first attempts")
        expect(len(one["lateness"]["counts"]), len(one["lateness"]["le_ms"]) + 1)
        expect((one["gauges"]["pending"], every["gauges"]["pending"], every["servers"]), (1, 1, 1))
        expect(sums(server.get("/v1/stats?namespace=nothing").json)["fired"], 0)
        expect(server.get("/v1/stats?namespace=%01").status, 400)


@test("samples: differences of the counts, the first at once")
def _():
    with Server() as server:
        stream = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        stream.request("GET", "/v1/events?sample=20/s&namespace=busy")
        answer = stream.getresponse()

        def sample():
            lines = [answer.readline().decode() for _ in range(3)]
            expect(lines[0], "event: sample\n")
            return json.loads(lines[1].removeprefix("data: "))

        expect(sum(sample()["counts"].values()), 0)
        make_history(server)
        total, late = {}, 0
        while total.get("fired", 0) < 3 or total.get("dead", 0) < 1:
            found = sample()
            total = {kind: total.get(kind, 0) + count for kind, count in found["counts"].items()}
            late += sum(found["lateness"])
        expect(total, {"scheduled": 6, **{kind: count for kind, count in WANTED.items() if kind != "created"}})
        expect(late, 4)
        stream.close()
        for bad in ("sample=0/s", "sample=21/s", "sample=4", "sample=4/m", "sample=", "sample=4/s&type=fired"):
            expect(server.get("/v1/events?" + bad).status, 400, bad)



@test("payloads: left out of lists, and on their own")
def _():
    with Server() as server:
        server.put("/v1/timers/demo/json", {"after": "1h", "payload": {"a": 1}}).must(201)
        server.put("/v1/timers/demo/bytes", {"after": "1h", "payload_base64": "AAEC"}).must(201)
        server.put("/v1/timers/demo/none", {"after": "1h"}).must(201)
        wanted = {"json": (8, "json"), "bytes": (3, "binary"), "none": (0, None)}
        for timer in server.get("/v1/timers/demo?payload=false").must(200)["timers"] + [server.get(f"/v1/timers/demo/{name}?payload=false").must(200) for name in wanted]:
            expect((timer["payload_bytes"], timer.get("payload_type")), wanted[timer["name"]])
            check("payload" not in timer and "payload_base64" not in timer, timer)
        check("payload_bytes" not in server.get("/v1/timers/demo/json?payload=true").must(200), "as without the parameter")
        for name, body, kind in (("json", b'{"a": 1}', "application/json"), ("bytes", b"\0\1\2", "application/octet-stream")):
            answer = server.get(f"/v1/timers/demo/{name}/payload")
            expect((answer.status, answer.body, answer.headers["content-type"]), (200, body, kind))
            expect((answer.headers["content-disposition"], answer.headers["x-content-type-options"]), ("attachment", "nosniff"))
        problem(server.get("/v1/timers/demo/none/payload"), 404, "not-found")
        problem(server.get("/v1/timers/demo/nobody/payload"), 404, "not-found")
        problem(server.get("/v1/timers/demo/json?payload=no"), 400, "invalid-field", "payload")
        problem(server.get("/v1/timers/demo/json/payload?payload=false"), 400, "unknown-field", "payload")
        problem(server.get("/v1/timers/demo/json?limit=1"), 400, "unknown-field", "limit")
        for name, payload in (("a", {"payload": 7}), ("b", {})):
            server.put(f"/v1/timers/lost/{name}", {"after": "0s", "target": f"http://127.0.0.1:{server.port}/nowhere", **payload}).must(201)
        letters = await_(lambda: (found := server.get("/v1/dead/lost?payload=false").must(200)["timers"]) and len(found) == 2 and {x["name"]: x for x in found}, "dead letters")
        expect((letters["a"]["payload_bytes"], letters["a"]["payload_type"], letters["b"]["payload_bytes"]), (1, "json", 0))
        expect(server.get(f"/v1/dead/lost/{letters['a']['id']}?payload=false").must(200)["payload_bytes"], 1)
        expect(server.get(f"/v1/dead/lost/{letters['a']['id']}/payload").body, b"7")
        problem(server.get(f"/v1/dead/lost/{letters['b']['id']}/payload"), 404, "not-found")


@test("namespaces in pages, in order, by prefix and by text")
def _():
    with Server("--config", config(("all", "admin", "*"), ("some", "read", "n007, n100"))) as server:
        server.token = "token-all"
        names = [f"n{i:03}" for i in range(137)] + ["größer", "a/b", "A"]
        check(all(line["ok"] for line in server.batch([{"op": "create", "namespace": name, "after": "1h"} for name in names])), "created")
        for limit in (1, 7, 140, 1000):
            check(len(server.get(f"/v1/namespaces?limit={limit}").must(200)["namespaces"]) <= limit, "a page has at most so many")
            found = [space["namespace"] for space in server.namespaces(limit=limit)]
            expect(found, sorted(names, key=str.encode), f"limit={limit}")
        page = server.get("/v1/namespaces").must(200)
        expect([space["namespace"] for space in page["namespaces"]], sorted(names, key=str.encode)[:100], "a page has 100 by default")
        check("cursor" in page, "there is another page")
        expect([space["namespace"] for space in server.get("/v1/namespaces?prefix=n00&limit=3").must(200)["namespaces"]], ["n000", "n001", "n002"])
        expect([space["namespace"] for space in server.get("/v1/namespaces?name_contains=" + quote("öß")).must(200)["namespaces"]], ["größer"])
        expect(server.get("/v1/namespaces?prefix=x&limit=1").must(200), {"namespaces": []})
        for query, field in (("limit=0", "limit"), ("limit=1001", "limit"), ("limit=", "limit"), ("limit=1x", "limit")):
            problem(server.get("/v1/namespaces?" + query), 400, "invalid-field", field)
        server.token = "token-some"
        expect([space["namespace"] for space in server.get("/v1/namespaces?limit=5").must(200)["namespaces"]], ["n007", "n100"])


@test("search: by a part of the name, by target, in lists and when cancelling")
def _():
    with Server(shards=3) as server:
        for i in range(12):
            server.put(f"/v1/timers/demo/order-{i:02}", {"after": "1h", "target": f"https://h{i % 3}.example.com/x"}).must(201)
        names = lambda query: sorted(timer["name"] for timer in server.timers("demo", **query))  # noqa: E731
        expect(names({"name_contains": "r-1"}), ["order-10", "order-11"])
        expect(names({"target_prefix": "https://h1."}), ["order-01", "order-04", "order-07", "order-10"])
        expect(names({"target_prefix": "https://h1.", "name_contains": "0", "limit": "1"}), ["order-01", "order-04", "order-07", "order-10"])
        expect(names({"schedule": "none"}), [])
        expect(server.delete("/v1/timers/demo?name_contains=r-1&dry_run=true").must(200), {"matched": 2, "cancelled": 0, "dry_run": True})
        expect(server.delete("/v1/timers/demo?target_prefix=https://h1.").must(200)["cancelled"], 4)
        expect(len(names({})), 8)


@test("dead letters by filter: groups, redrive at a rate, delete")
def _():
    with Server(shards=3) as server:
        here = f"127.0.0.1:{server.port}"
        for name, target in [(f"a{i}", f"http://{here}/nowhere") for i in range(5)] + [("b0", f"http://{here}/healthz"), ("b1", f"http://{here}/healthz")]:
            server.put(f"/v1/timers/demo/{name}", {"after": "0s", "target": target}).must(201)
        server.put("/v1/timers/demo/pull", {"after": "0s"}).must(201)
        server.ack((server.lease("demo", wait="10s")[0]["lease"], {"result": "dead"}))
        letters = lambda query="": sorted(x["name"] for x in server.get("/v1/dead/demo?limit=100" + query).must(200)["timers"])  # noqa: E731
        await_(lambda: len(letters()) == 8, "dead letters")
        groups = server.get("/v1/dead/demo?group=reason").must(200)
        expect((groups["group"], groups["total"], groups["complete"], [group["count"] for group in groups["groups"]]), ("reason", 8, True, [5, 2, 1]))
        expect(groups["groups"][0], {"reason": "answered with status 404", "count": 5})
        hosts = server.get("/v1/dead/demo?group=host").must(200)
        expect(hosts["groups"], [{"host": here, "count": 7}, {"host": None, "count": 1}])
        limited = server.get("/v1/dead/demo?group=reason&limit=1").must(200)
        expect((len(limited["groups"]), limited["complete"]), (1, False))
        problem(server.get("/v1/dead/demo?group=name"), 400, "invalid-field", "group")
        expect(letters("&host="), ["pull"])
        expect(letters(f"&host={here}&reason_contains=405"), ["b0", "b1"])
        expect(letters("&reason=answered+with+status+40"), [])
        expect(letters("&prefix=a&name_contains=3"), ["a3"])
        problem(server.delete("/v1/dead/demo"), 400, "missing-field")
        problem(server.post("/v1/dead/demo/redrive"), 400, "missing-field")
        problem(server.delete("/v1/dead/demo?all=true&rate=1"), 400, "unknown-field", "rate")
        expect(server.delete("/v1/dead/demo?reason_contains=405&dry_run=true").must(200), {"matched": 2, "deleted": 0, "dry_run": True})
        expect(server.delete("/v1/dead/demo?reason_contains=405").must(200), {"matched": 2, "deleted": 2, "dry_run": False})
        expect(len(letters()), 6)
        expect(server.post("/v1/dead/demo/redrive?prefix=a&rate=1&dry_run=true").must(200)["redriven"], 0)
    with Server("--test-clock") as server:
        for i in range(5):
            server.put(f"/v1/timers/demo/c{i}", {"after": "0s", "target": f"http://127.0.0.1:{server.port}/nowhere"}).must(201)
        server.advance("1s")
        expect(server.post("/v1/dead/demo/redrive?all=true&rate=2").must(200), {"matched": 5, "redriven": 5, "dry_run": False})
        await_(lambda: len(server.timers("demo")) == 4, "the first is due at once")
        times = sorted(microseconds(timer["due"]) for timer in server.timers("demo"))
        expect([b - a for a, b in zip(times, times[1:])], [500_000] * 3)
    with Server() as server:
        server.batch([{"op": "create", "namespace": "demo", "after": "0s"} for _ in range(50)])
        leases = []
        while len(leases) < 50:
            leases += [(timer["lease"], {"result": "dead"}) for timer in server.lease("demo", max=50, wait="10s")]
        server.ack(*leases)
        await_(lambda: server.get("/v1/dead/demo?group=reason").must(200)["total"] == 50, "all are dead letters")
        expect(server.post("/v1/dead/demo/redrive?all=true&rate=100000").must(200)["redriven"], 50)
        times = sorted(microseconds(timer["due"]) for timer in server.timers("demo"))
        expect([b - a for a, b in zip(times, times[1:])], [10] * 49, "also if their times pass while the request runs")



def bars(server, query):
    answer = server.get(f"/v1/forecast?{query}").must(200)
    check(len(answer["bars"]) == {"1h": 60, "1d": 24, "30d": 30}[answer["span"]], answer)
    return answer["bars"]


def total(server, query):
    return sum(bar["timers"] for bar in bars(server, query))


@test("what comes next is counted per minute, hour and day")
def _():
    with Server("--test-clock") as server:
        now = server.get("/v1/clock").json["now"]
        for i in range(20):
            server.put(f"/v1/timers/{'demo' if i % 2 else 'other'}/t{i}", {"after": f"{i + 2}m"}).must(201)
        server.put("/v1/timers/demo/far", {"after": "20d"}).must(201)
        server.put("/v1/schedules/demo/hourly", {"cron": "30 * * * *"}).must(201)
        server.put("/v1/schedules/demo/paused", {"cron": "* * * * *", "paused": True}).must(201)
        server.put("/v1/schedules/demo/thrice", {"every": "1h", "start": now, "count": 3}).must(201)
        expect(total(server, f"span=1h&from={now}"), 20 + 1)
        expect(total(server, f"span=1h&from={now}&namespace=other"), 10)
        day = bars(server, f"span=1d&from={now}&namespace=demo")
        expect(sum(bar["occurrences"] for bar in day), 24 + 3)
        month = bars(server, f"span=30d&from={now}")
        expect(sum(bar["timers"] for bar in month), 21 + 30 * 24 + 3)
        expect([bar["exact"] for bar in month][0], True)
        check(not all(bar["exact"] for bar in month[18:22]), "a window of 38 hours is longer than a day")
        server.delete("/v1/timers/demo/far").must(204)
        server.delete("/v1/schedules/demo/hourly").must(204)
        expect(total(server, f"span=30d&from={now}&namespace=demo"), 10 + 3)
        expect(total(server, f"span=1h&from={now}&namespace=nobody"), 0)
        expect([space["schedules"] for space in server.get("/v1/namespaces?limit=9").json["namespaces"]], [2, 0])
        expect(server.get("/v1/forecast").must(200)["span"], "1h")
        problem(server.get("/v1/forecast?span=2h"), 400, "invalid-field", "span")
        problem(server.get("/v1/forecast?span=1h&from=soon"), 400, "invalid-field", "from")
        problem(server.get("/v1/forecast?span=1h&namespace=%01"), 400, "invalid-field", "namespace")


@test("a forecast counts the shards of all servers, and only what the token may read")
def _():
    conf = config(("one", "read", "demo"), ("all", "admin", "*"))
    with Server("--config", conf, "--shards", "4") as server:
        key, narrow = {"Authorization": "Bearer token-all"}, {"Authorization": "Bearer token-one"}
        for i in range(40):
            expect(server.call("PUT", f"/v1/timers/{'demo' if i % 4 else 'secret'}/t{i}", {"after": "30m"}, key).status, 201)
        asked = server.call("GET", "/v1/forecast?span=1h&namespace=demo", None, narrow)
        expect(sum(bar["timers"] for bar in asked.json["bars"]), 30)
        expect(server.call("GET", "/v1/forecast?span=1h", None, narrow).status, 403)
        expect(server.call("GET", "/v1/forecast?span=1h&namespace=secret", None, narrow).status, 403)
        expect(server.call("GET", "/v1/forecast?span=1h").status, 401)
        expect(sum(bar["timers"] for bar in server.call("GET", "/v1/forecast?span=1h", None, key).json["bars"]), 40)


run()
