#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Schedules: docs/schedules.md against a server whose clock is turned by hand, and across restarts."""

from e2e import Receiver, Server, await_, check, expect, folder, microseconds, problem, run, test


def advance(server, how):
    return server.post("/v1/clock", {"advance": how}).must(200)


def put(server, name, **fields):
    return server.put(f"/v1/schedules/demo/{name}", fields)


def lease_all(server, result="done"):
    """Leases and acknowledges what is due; returns the occurrences."""
    found = []
    while True:
        timers = server.post("/v1/lease/demo", {"max": 10000}).must(200)["timers"]
        if not timers:
            return found
        found += [timer["occurrence"] for timer in timers]
        if result:
            server.post("/v1/ack", {"acks": [{"lease": timer["lease"], "result": result} for timer in timers]}).must(200)


@test("one timer per occurrence, ten years of them")
def _():
    with Server("--test-clock") as server:
        made = put(server, "daily", cron="0 9 * * *", zone="Europe/Berlin", payload=1).must(201)
        check(made["next"] and made["last"] is None and made["made"] == 0, made)
        for _ in range(10):
            advance(server, "365d")
            found = lease_all(server)
            expect(len(found), 365)
            expect(found, sorted(set(found)))
        schedule = server.get("/v1/schedules/demo/daily").json
        expect((schedule["made"], schedule["last"]), (3650, found[-1]))


@test("every, start, end and count")
def _():
    with Server("--test-clock") as server:
        put(server, "thrice", every="1h", count=3).must(201)
        advance(server, "1d")
        expect(len(lease_all(server)), 3)
        done = server.get("/v1/schedules/demo/thrice").json
        expect((done["next"], done["made"]), (None, 3))
        now = server.get("/v1/clock").json["now"]
        server.put("/v1/schedules/demo/soon", {"every": "1m", "start": "2100-01-01T00:00:30Z", "end": "2100-01-01T00:03:00Z"}).must(201)
        expect(server.get("/v1/schedules/demo/soon").json["next"], "2100-01-01T00:00:30Z", now)
        preview = server.get("/v1/schedules/demo/soon/preview").json["occurrences"]
        expect([one["at"][14:20] for one in preview], ["00:30Z", "01:30Z", "02:30Z"])


@test("a pause, and what was missed")
def _():
    for policy, count in (("last", 1), ("all", 10), ("skip", 0)):
        with Server("--test-clock") as server:
            put(server, "x", every="1m", missed=policy, paused=True).must(201)
            expect(server.get("/v1/schedules/demo/x").json["next"], None)
            advance(server, "10m30s")
            expect(lease_all(server), [])
            server.patch("/v1/schedules/demo/x", {"paused": False}).must(200)
            advance(server, "1s")
            expect(len(lease_all(server)), count, policy)
            advance(server, "29s")
            expect(len(lease_all(server)), 1, "the next one is on time")


@test("PUT and PATCH lift a pause, whatever else they change but the rule")
def _():
    rule = {"cron": "* * * * *", "missed": "all"}
    for change, count in ((lambda server, path: server.patch(path, {"paused": False, "payload": 2}), 10),
                          (lambda server, path: server.put(path, {**rule, "zone": "UTC", "gap": "after", "payload": 2}), 10),
                          (lambda server, path: server.patch(path, {"paused": False, "missed": "skip"}), 0),
                          (lambda server, path: server.patch(path, {"paused": False, "cron": "*/2 * * * *"}), 0),
                          (lambda server, path: server.put(path, {**rule, "except": ["2031-01-01T00:01"]}), 0)):
        with Server("--test-clock") as server:
            path = "/v1/schedules/demo/x"
            go_to(server, "2031-01-01T00:00:30Z")
            server.put(path, {**rule, "paused": True, "payload": 1}).must(201)
            advance(server, "5m")
            server.patch(path, {"paused": True}).must(200)  # this changes nothing
            advance(server, "5m")
            change(server, path).must(200)
            server.patch(path, {"paused": False}).must(200)  # nor does this
            advance(server, "1s")
            found = lease_all(server)
            expect(found, [f"2031-01-01T00:{minute:02}:00Z" for minute in range(1, 1 + count)])
            advance(server, "1m")
            expect(len(lease_all(server)) <= 1, True, "then it goes on")


@test("a change never repeats an occurrence and never makes one at once")
def _():
    with Server("--test-clock") as server:
        put(server, "x", cron="0 * * * *", missed="all").must(201)
        advance(server, "3h")
        expect(len(lease_all(server)), 3)
        put(server, "x", cron="0 * * * *", missed="all", payload=2).must(200)
        server.patch("/v1/schedules/demo/x", {"payload": 3}).must(200)
        advance(server, "1s")
        expect(lease_all(server), [])
        advance(server, "1h")
        expect(len(lease_all(server)), 1)
        expect(server.get("/v1/schedules/demo/x").json["made"], 1, "a PUT begins the count again")


@test("overlap: skip, and queue one")
def _():
    with Server("--test-clock") as server:
        put(server, "skip", every="1m", overlap="skip").must(201)
        advance(server, "1m")
        held = server.post("/v1/lease/demo", {"lease": "24h"}).must(200)["timers"]
        expect(len(held), 1)
        for _ in range(3):
            advance(server, "1m")
        expect(lease_all(server), [])
        server.post("/v1/ack", {"acks": [{"lease": held[0]["lease"], "result": "done"}]}).must(200)
        advance(server, "1m")
        expect(len(lease_all(server)), 1)
        server.delete("/v1/schedules/demo/skip").must(204)
        put(server, "queue", every="1m", overlap="queue").must(201)
        advance(server, "1m")
        held = server.post("/v1/lease/demo", {"lease": "24h"}).must(200)["timers"]
        for _ in range(3):
            advance(server, "1m")
        expect(lease_all(server), [])
        server.post("/v1/ack", {"acks": [{"lease": held[0]["lease"], "result": "done"}]}).must(200)
        queued = await_(lambda: lease_all(server), "the one that was queued begins")
        expect(len(queued), 1)


@test("the test clock counts timers, not the steps of schedules")
def _():
    with Server("--test-clock") as server:
        put(server, "x", every="1h").must(201)
        expect(advance(server, "22h")["fired"], 22)
        expect(advance(server, "30m")["fired"], 0)


@test("a schedule in a paused namespace waits for the resume, and does not look meanwhile")
def _():
    with Server("--test-clock") as server:
        for name, policy in (("one", "last"), ("each", "all"), ("none", "skip"), ("gone", "all"), ("moved", "all")):
            put(server, name, every="1d", missed=policy, payload=name).must(201)
        advance(server, "1d")
        expect(len(lease_all(server)), 5)
        server.post("/v1/namespaces/demo/pause", {}).must(200)
        advance(server, "100d12h")  # looking once per second would take 8.6 million steps
        expect(lease_all(server), [])
        server.delete("/v1/schedules/demo/gone").must(204)
        server.patch("/v1/schedules/demo/moved", {"payload": 0}).must(200)
        server.post("/v1/namespaces/demo/resume", {}).must(200)
        advance(server, "1s")
        found = lease_all(server)
        expect((len(found), len(set(found))), (1 + 100, 100), "the last of one, each of the other")
        advance(server, "12h")
        expect(len(lease_all(server)), 4, "the next ones are on time; a change has dropped what was missed")


@test("a pause holds across a kill, and the resume wakes the schedule")
def _():
    place = folder()
    with Server(store="sqlite:" + place) as server:
        put(server, "x", every="100ms", grace="0s").must(201)
        server.post("/v1/namespaces/demo/pause", {}).must(200)
        made = server.get("/v1/schedules/demo/x").json["made"]
        server.kill()
    with Server(store="sqlite:" + place) as server:
        await_(lambda: server.get("/readyz").status == 200, "ready")
        expect(server.get("/v1/schedules/demo/x").json["made"], made, "it is still paused")
        server.post("/v1/namespaces/demo/resume", {}).must(200)
        await_(lambda: server.get("/v1/schedules/demo/x").json["made"] > made + 2, "it goes on")


@test("webhooks say which occurrence it is; trigger and backfill")
def _():
    receiver = Receiver()
    with Server("--test-clock") as server:
        server.put("/v1/schedules/demo/call", {"cron": "0 9 * * *", "target": receiver.url}).must(201)
        first = server.get("/v1/schedules/demo/call").json["next"]
        advance(server, "1d")
        call = receiver.await_calls(1)[0]
        expect(call.headers["foliot-schedule"], "call")
        expect(call.headers["foliot-occurrence"], first)
        check(call.headers["foliot-previous"] < first < call.headers["foliot-next"], call.headers)
        made = server.post("/v1/schedules/demo/call/trigger").must(202)
        check(len(made["id"]) == 26, made)
        before = server.get("/v1/schedules/demo/call").json
        expect(before["made"], 1)
        answer = server.post("/v1/schedules/demo/call/backfill", {"from": "2026-01-01T00:00:00Z", "to": "2026-01-11T00:00:00Z"})
        expect(answer.must(202), {"made": 10})
        big = server.post("/v1/schedules/demo/call/backfill", {"from": "1990-01-01T00:00:00Z", "to": "2026-01-11T00:00:00Z"})
        expect(big.status, 400)


@test("no grace at all loses no occurrence of a server that is in time")
def _():
    with Server() as server:
        put(server, "x", every="500ms", grace="0s", missed="skip").must(201)
        await_(lambda: server.get("/v1/schedules/demo/x").json["made"] > 1, "it occurs")


@test("the last occurrence that count allows has no next; the header has the name percent-encoded")
def _():
    receiver = Receiver()
    with Server("--test-clock") as server:
        go_to(server, "2031-01-01T00:00:30Z")
        server.put("/v1/schedules/demo/caf%C3%A9%20%25", {"cron": "0 * * * *", "count": 2, "start": "2031-01-01T01:00:00Z",
                                                         "target": receiver.url}).must(201)
        advance(server, "1d")
        server.post("/v1/schedules/demo/caf%C3%A9%20%25/trigger").must(202)
        receiver.await_calls(2)
        advance(server, "1s")
        found = [[call.headers.get(f"foliot-{name}") for name in ("schedule", "occurrence", "previous", "next")] for call in receiver.await_calls(3)]
        name, one, two = "caf%C3%A9%20%25", "2031-01-01T01:00:00Z", "2031-01-01T02:00:00Z"
        expect(found[:2], [[name, one, None, two], [name, two, one, None]])
        expect(found[2][3], None, "one that is triggered later has none either")


@test("previews respect count: what was made, what is queued, and what comes before the first one shown")
def _():
    def preview(server, query=""):
        found = server.get("/v1/schedules/demo/x/preview" + query).must(200)["occurrences"]
        return [one["at"][11:13] for one in found]

    with Server("--test-clock") as server:
        go_to(server, "2031-01-01T00:30:00Z")
        fields = {"cron": "0 * * * *", "count": 4}
        put(server, "x", overlap="queue", **fields).must(201)
        expect(preview(server), ["01", "02", "03", "04"])
        go_to(server, "2031-01-01T01:30:00Z")
        expect(preview(server), ["02", "03", "04"])
        expect(preview(server, "?from=2031-01-01T02:00:00Z"), ["03", "04"])
        expect(preview(server, "?from=2031-01-01T04:00:00Z"), [])
        expect(preview(server, "?from=2031-01-01T00:00:00Z"), ["01", "02", "03", "04"])
        go_to(server, "2031-01-01T02:30:00Z")
        expect(server.get("/v1/schedules/demo/x").json["made"], 1, "the second one is queued")
        expect(preview(server), ["03", "04"])
        expect(preview(server, "?n=1"), ["03"])
        put(server, "x", paused=True, **fields).must(200)
        go_to(server, "2031-01-01T12:30:00Z")
        expect(preview(server), ["13", "14", "15", "16"], "a pause does not matter")
        for start, hours in (("2031-01-01T12:30:00Z", ["13", "14", "15", "16"]), ("2031-01-01T14:30:00Z", ["15", "16"]),
                             ("2030-01-01T12:30:00Z", ["13", "14", "15", "16"])):
            found = server.post("/v1/schedules/preview?from=" + start, fields).must(200)["occurrences"]
            expect([one["at"][11:13] for one in found], hours)


@test("what has no effect is refused")
def _():
    with Server("--test-clock") as server:
        put(server, "x", cron="0 9 * * *").must(201)
        for path in ("/v1/schedules/demo/x/trigger", "/v1/dead/demo/redrive?all=true"):
            for body, kind in (({"at": 1}, "invalid-body"), ("[]", "invalid-body"), ("1", "invalid-body"), ("now", "invalid-json")):
                problem(server.post(path, body), 400, kind)
            check(server.post(path, {}).status < 300, "no field is no harm")
        for field, value in (("except", ["2031-01-01"]), ("zone", "UTC"), ("gap", "skip"), ("repeat", "both")):
            problem(put(server, "y", every="1h", **{field: value}), 400, "invalid-field", field)
            problem(server.patch("/v1/schedules/demo/x", {"cron": None, "every": "1h", field: value}), 400, "invalid-field", field)
        found = put(server, "y", cron="4294967301 * * * *")
        problem(found, 400, "invalid-field", "cron")
        check("the value is 4294967301;" in found.json["detail"], found.json)
        for zone, shown in (("Europe/Berlin\0x", "Europe/Berlin?x"), ("Z" * 300, "Z" * 64 + "...")):
            found = put(server, "y", cron="0 9 * * *", zone=zone)
            problem(found, 400, "invalid-field", "zone")
            check(f'"{shown}"' in found.json["detail"], found.json)
        problem(server.put("/v1/timers/demo/y", {"due": {"local": "2031-01-01T09:00", "zone": "Z" * 300}}), 400, "invalid-field", "due.zone")
        problem(server.get("/v1/hosts?cursor=x"), 400, "invalid-field", "cursor")


@test("a schedule survives a kill, and misses nothing but by policy")
def _():
    place = folder()
    with Server(store="sqlite:" + place) as server:
        put(server, "fast", every="100ms", missed="all").must(201)
        await_(lambda: server.get("/v1/schedules/demo/fast").json["made"] >= 3, "it runs")
        server.kill()
    with Server(store="sqlite:" + place) as server:
        await_(lambda: server.get("/readyz").status == 200, "ready")
        made = server.get("/v1/schedules/demo/fast").json["made"]
        await_(lambda: server.get("/v1/schedules/demo/fast").json["made"] > made + 3, "it goes on")
        server.patch("/v1/schedules/demo/fast", {"paused": True}).must(200)
        schedule = server.get("/v1/schedules/demo/fast").json
        found = await_(lambda: lease_all(server, None), "occurrences wait")
        expect(len(found), schedule["made"])
        expect(len(set(found)), len(found), "none twice")


def go_to(server, when):
    return server.post("/v1/clock", {"to": when}).must(200)


@test("missed_within, grace, except and count together with what was missed")
def _():
    with Server("--test-clock") as server:
        go_to(server, "2031-01-01T00:00:00Z")
        put(server, "within", cron="0 * * * *", missed="all", missed_within="3h", paused=True).must(201)
        put(server, "graceful", cron="0 * * * *", missed="skip", grace="2h45m", paused=True).must(201)
        put(server, "except", cron="0 * * * *", **{"except": ["2031-01-01T01:00", "2031-01-02"]}, count=3).must(201)
        advance(server, "10h30m")
        expect(lease_all(server), ["2031-01-01T02:00:00Z", "2031-01-01T03:00:00Z", "2031-01-01T04:00:00Z"], "except and count")
        for name, wanted in (("within", ["08", "09", "10"]), ("graceful", ["08", "09", "10"])):
            server.patch(f"/v1/schedules/demo/{name}", {"paused": False}).must(200)
            advance(server, "1s")
            expect([at[11:13] for at in lease_all(server)], wanted, name)
        server.patch("/v1/schedules/demo/except", {"payload": 1}).must(200)
        expect(server.get("/v1/schedules/demo/except").json["made"], 3, "PATCH keeps the count")
        put(server, "except", cron="0 * * * *", count=1).must(200)
        expect(server.get("/v1/schedules/demo/except").json["made"], 0, "PUT begins it again")


@test("a window delays the timer by a fixed part, and leaves the nominal time")
def _():
    with Server("--test-clock") as server:
        go_to(server, "2031-01-01T00:00:00Z")
        put(server, "w", cron="0 * * * *", window="30m").must(201)
        advance(server, "1h")
        delays = []
        for hour in (1, 2, 3):
            timer = server.get("/v1/timers/demo?schedule=w").must(200)["timers"][0]
            expect(timer["occurrence"], f"2031-01-01T0{hour}:00:00Z")
            delays.append(timer["due"][14:])
            check(f"2031-01-01T0{hour}:00:00Z" < timer["due"] < f"2031-01-01T0{hour}:30:00Z", timer)
            go_to(server, f"2031-01-01T0{hour}:40:00Z")
            expect(lease_all(server), [f"2031-01-01T0{hour}:00:00Z"])
            go_to(server, f"2031-01-01T0{hour + 1}:00:00Z")
        expect(len(set(delays)), 1, "the same part each time")


@test("leased timers, lists and dead letters say which schedule and occurrence; deleting the schedule leaves them")
def _():
    with Server("--test-clock") as server:
        go_to(server, "2031-01-01T00:00:00Z")
        put(server, "x", cron="0 * * * *", retry={"max_attempts": 1}, overlap="skip").must(201)
        advance(server, "1h")
        timer = server.post("/v1/lease/demo", {}).must(200)["timers"][0]
        expect((timer["schedule"], timer["occurrence"]), ("x", "2031-01-01T01:00:00Z"))
        server.post("/v1/ack", {"acks": [{"lease": timer["lease"], "result": "dead"}]}).must(200)
        dead = await_(lambda: server.get("/v1/dead/demo?schedule=x").must(200)["timers"], "it is dead")
        expect((dead[0]["schedule"], dead[0]["occurrence"]), ("x", "2031-01-01T01:00:00Z"))
        expect(server.get("/v1/dead/demo?schedule=y").must(200)["timers"], [])
        advance(server, "1h")
        waiting = server.get("/v1/timers/demo?schedule=x").must(200)["timers"]
        expect([one["occurrence"] for one in waiting], ["2031-01-01T02:00:00Z"], "a dead letter is settled")
        server.delete("/v1/schedules/demo/x").must(204)
        expect(lease_all(server), ["2031-01-01T02:00:00Z"])
        advance(server, "1d")
        expect(lease_all(server), [])


@test("trigger and backfill change nothing of the schedule, and ignore what would stop it")
def _():
    with Server("--test-clock") as server:
        go_to(server, "2031-01-01T00:00:00Z")
        put(server, "x", cron="0 * * * *", count=1, overlap="skip", paused=True, start="2031-01-01T12:00:00Z").must(201)
        before = server.get("/v1/schedules/demo/x").json
        for _ in range(2):
            server.post("/v1/schedules/demo/x/trigger").must(202)
        advance(server, "1s")
        expect(len(lease_all(server)), 2)
        expect(server.get("/v1/schedules/demo/x").json, before)
        go_to(server, "2031-01-02T00:00:00Z")
        span = {"from": "2031-01-01T13:00:00Z", "to": "2031-01-01T16:00:00Z"}
        for _ in range(2):
            expect(server.post("/v1/schedules/demo/x/backfill", span).must(202), {"made": 3}, "also those that were created before")
        expect(len(await_(lambda: lease_all(server), "they are due")), 6)
        for to in ("2031-02-01T00:00:00Z", "2031-01-01T12:59:59Z"):
            problem(server.post("/v1/schedules/demo/x/backfill", {**span, "to": to}), 400, "invalid-field", "to")
        problem(server.post("/v1/schedules/demo/x/backfill", {**span, "from": 0}), 400, "invalid-field", "from")
        expect(server.get("/v1/schedules/demo/x").json, before)


@test("a batch creates, replaces and deletes schedules, in the order of its lines")
def _():
    with Server("--test-clock") as server:
        lines = [{"op": "schedule", "namespace": "demo", "name": "a", "cron": "0 9 * * *", "payload": 1},
                 {"op": "schedule", "namespace": "demo", "name": "a", "cron": "0 10 * * *", "payload": 2},
                 {"op": "schedule", "namespace": "demo", "name": "a", "cron": "0 11 * * *", "only_new": True},
                 {"op": "create", "namespace": "demo", "name": "a", "after": "1h"},
                 {"op": "schedule", "namespace": "demo", "name": "b", "every": "1h"},
                 {"op": "unschedule", "namespace": "demo", "name": "b"},
                 {"op": "unschedule", "namespace": "demo", "name": "b"},
                 {"op": "schedule", "namespace": "demo", "name": "c", "cron": "99 * * * *"},
                 {"op": "schedule", "namespace": "demo", "cron": "* * * * *"},
                 {"op": "schedule", "namespace": "demo", "name": "d", "every": "1h", "id": "d"},
                 {"op": "unschedule", "namespace": "demo", "name": "d", "only_new": True}]
        found = server.batch(lines)
        expect([one["ok"] for one in found], [True, True, False, True, True, True, False, False, False, False, False])
        expect([one["problem"]["status"] for one in found if not one["ok"]], [412, 404, 400, 400, 400, 400])
        expect([one["problem"].get("field") for one in found[7:]], ["cron", "name", "id", "only_new"])
        check(set(found[0]) == {"ok"} and "id" in found[3], found)
        schedule = server.get("/v1/schedules/demo/a").must(200)
        expect((schedule["cron"], schedule["payload"]), ("0 10 * * *", 2))
        many = [{"op": "schedule", "namespace": "many", "name": f"n{i % 300}", "every": "1h", "payload": i} for i in range(2500)]
        expect([one for one in server.batch(many) if not one["ok"]], [])
        found = server.get("/v1/schedules/many?limit=1000").must(200)["schedules"]
        expect(sorted(one["payload"] for one in found), list(range(2200, 2500)), "the last line about each counts")


@test("a paused schedule does not create the occurrence that is queued")
def _():
    with Server("--test-clock") as server:
        begin = microseconds(put(server, "x", every="1m", overlap="queue").must(201)["created"])

        def minutes(occurrence):
            return (microseconds(occurrence) - begin) / 60_000_000

        advance(server, "1m")
        held = server.post("/v1/lease/demo", {"lease": "24h"}).must(200)["timers"]
        advance(server, "1m")
        server.patch("/v1/schedules/demo/x", {"paused": True}).must(200)
        server.post("/v1/ack", {"acks": [{"lease": held[0]["lease"], "result": "done"}]}).must(200)
        advance(server, "5m")
        expect((lease_all(server), server.get("/v1/schedules/demo/x").json["made"]), ([], 1))
        server.patch("/v1/schedules/demo/x", {"paused": False}).must(200)
        advance(server, "1s")
        waiting = server.post("/v1/lease/demo", {"lease": "24h", "max": 10}).must(200)["timers"]
        expect([minutes(one["occurrence"]) for one in waiting], [2], "the one that was queued")
        server.post("/v1/ack", {"acks": [{"lease": waiting[0]["lease"], "result": "done"}]}).must(200)
        missed = await_(lambda: lease_all(server), "the latest one that was missed is in the queue meanwhile")
        expect(([minutes(one) for one in missed], server.get("/v1/schedules/demo/x").json["made"]), ([6], 3))


@test("a queued occurrence is created as soon as the earlier one is cancelled, a dead letter, or settled after a restart")
def _():
    place = folder()

    def queue_one(server):
        go_to(server, "2031-01-01T00:59:30Z")
        put(server, "x", cron="0 * * * *", overlap="queue", grace="2h", retry={"max_attempts": 1}).must(201)
        advance(server, "1h1m")
        [waiting] = server.get("/v1/timers/demo?schedule=x").must(200)["timers"]
        expect(waiting["occurrence"], "2031-01-01T01:00:00Z")
        return waiting["id"]

    def is_created(server):
        timers = server.get("/v1/timers/demo?schedule=x").must(200)["timers"]
        return [timer["occurrence"] for timer in timers] == ["2031-01-01T02:00:00Z"]

    def ack(server, result):
        [timer] = server.post("/v1/lease/demo", {}).must(200)["timers"]
        server.post("/v1/ack", {"acks": [{"lease": timer["lease"], "result": result}]}).must(200)

    for settle in (lambda server, timer: server.delete(f"/v1/timers/demo/{timer}").must(204),
                   lambda server, timer: server.delete("/v1/timers/demo?schedule=x").must(200),
                   lambda server, timer: expect(server.batch([{"op": "cancel", "namespace": "demo", "id": timer}])[0]["ok"], True),
                   lambda server, timer: ack(server, "dead"),
                   lambda server, timer: ack(server, "retry"),
                   lambda server, timer: ack(server, "done")):
        with Server("--test-clock") as server:
            settle(server, queue_one(server))
            await_(lambda server=server: is_created(server), "the queued one is created", seconds=20)
    with Server("--test-clock", store="sqlite:" + place) as server:
        timer = queue_one(server)
        now = server.get("/v1/clock").json["now"]
        server.stop()
    with Server("--test-clock", store="sqlite:" + place) as server:
        go_to(server, now)
        server.delete(f"/v1/timers/demo/{timer}").must(204)
        await_(lambda: is_created(server), "the queued one is created after a restart", seconds=20)


@test("a queued occurrence is created as soon as the end of a pause skips the earlier one")
def _():
    receiver = Receiver()
    host = receiver.url.split("/")[2]
    with Server("--test-clock") as server:
        put(server, "x", every="1h", overlap="queue", target=receiver.url).must(201)
        server.post(f"/v1/hosts/{host}/pause").must(200)
        advance(server, "2h")
        expect(server.get("/v1/schedules/demo/x").json["made"], 1)
        server.post(f"/v1/hosts/{host}/resume", {"missed": "skip"}).must(200)
        await_(lambda: server.get("/v1/schedules/demo/x").json["made"] == 2, "the queued one", seconds=20)
        advance(server, "1s")
        expect(len(receiver.await_calls(1)), 1)


@test("a new overlap policy looks at the occurrences from before")
def _():
    with Server("--test-clock") as server:
        put(server, "x", every="1m").must(201)
        advance(server, "1m")
        server.post("/v1/lease/demo", {"lease": "24h"}).must(200)
        server.patch("/v1/schedules/demo/x", {"overlap": "skip"}).must(200)
        advance(server, "1m")
        expect(server.get("/v1/schedules/demo/x").json["made"], 1)


@test("occurrences have the retry policy of the namespace if the schedule has none")
def _():
    with Server("--test-clock") as server:
        server.put("/v1/namespaces/demo", {"retry": {"max_attempts": 1}}).must(200)
        put(server, "x", every="1h").must(201)
        advance(server, "1h")
        server.post("/v1/schedules/demo/x/trigger").must(202)
        expect(len(await_(lambda: lease_all(server, "retry"), "both are due")), 2)
        await_(lambda: len(server.get("/v1/dead/demo").must(200)["timers"]) == 2, "one attempt is all")


@test("a namespace exists while it has schedules, has as many of them as timers, and is deleted with them")
def _():
    with Server("--test-clock", "--max-timers-per-namespace", "3") as server:
        expect([put(server, name, every="1h").status for name in "abcd"], [201, 201, 201, 429])
        put(server, "a", every="2h").must(200)
        expect([one["namespace"] for one in server.get("/v1/namespaces").must(200)["namespaces"]], ["demo"])
        problem(server.delete("/v1/namespaces/demo"), 409, "not-empty")
        server.delete("/v1/namespaces/demo?all=true").must(204)
        expect(server.get("/v1/schedules/demo").must(200), {"schedules": []})
        expect(server.get("/v1/namespaces").must(200), {"namespaces": []})
        server.put("/v1/schedules/preview/x", {"every": "1h"}).must(201)
        expect(len(server.get("/v1/schedules/preview").must(200)["schedules"]), 1, "any name is good for a namespace")


@test("a namespace that has nothing but schedules is there after a restart")
def _():
    with Server() as server:
        for name in "abc":
            put(server, name, every="1h").must(201)
        server.restart()
        await_(lambda: server.get("/readyz").status == 200, "ready")
        expect([one["namespace"] for one in server.get("/v1/namespaces").must(200)["namespaces"]], ["demo"])
        expect(server.get("/v1/namespaces/demo").must(200)["schedules"], 3)


run()
