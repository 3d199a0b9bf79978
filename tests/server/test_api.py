#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The HTTP interface of `foliot serve`: each endpoint, each rule for a field, each kind of error."""

import base64
import concurrent.futures
import json
import re
import threading

from e2e import (Answer, Receiver, Server, await_, check, expect, microseconds, now_ms, problem, quote, race_settings, rfc3339,
                 run, test)

server = Server(shards=4)
FAR = "2999-12-31T23:59:59Z"


def timer(**fields):
    return {"after": "1h", **fields}


# --- One timer --------------------------------------------------------------------------------------------------------


@test("PUT: 201 for a new timer, 200 for the same and for another, 412 if it must be new")
def _():
    path = "/v1/timers/put/one"
    first = server.put(path, {"due": FAR, "payload": {"a": 1}}).must(201)
    expect(first["due"], FAR)
    same = server.put(path, {"due": FAR, "payload": {"a": 1}}).must(200)
    expect(same["id"], first["id"])
    other = server.put(path, {"due": FAR, "payload": {"a": 2}}).must(200)
    expect(other["payload"], {"a": 2})
    problem(server.put(path, timer(), {"If-None-Match": "*"}), 412, "exists")
    expect(server.get(path).must(200), other, "the one that was there")
    server.put("/v1/timers/put/two", timer(), {"If-None-Match": "*"}).must(201)


@test("debounce: a timer that is replaced is due at the latest max_wait after the first; merge says whose payload stays")
def _():
    path = "/v1/timers/debounce/x"
    first = server.put(path, timer(max_wait="2h", payload=1)).must(201)
    expect((first["max_wait"], "merge" in first, "replaced" in first), ("2h", False, False))
    second = server.put(path, {"after": "3h", "max_wait": "2h", "payload": 2}).must(200)
    expect((second["payload"], second["replaced"]), (2, 1))
    late = microseconds(second["due"]) - microseconds(first["created"])
    check(abs(late - 7200 * 1000000) < 2000, f"two hours after the first was created: {late}")
    third = server.put(path, {"after": "10m", "merge": "first", "payload": 3}).must(200)
    expect((third["payload"], third["replaced"], third["merge"], "max_wait" in third), (2, 2, "first", False))
    expect(server.get(path).must(200), third)
    changed = server.patch(path, {"max_wait": "1d"}).must(200)
    expect((changed["max_wait"], changed["merge"]), ("1d", "first"))
    changed = server.patch(path, {"merge": "last"}).must(200)
    expect((changed["max_wait"], "merge" in changed), ("1d", False))
    expect("max_wait" in server.patch(path, {"max_wait": None}).must(200), False)
    create = {"op": "create", "namespace": "debounce", "name": "x", "after": "9h", "max_wait": "1h", "merge": "first", "payload": 4}
    expect(server.batch([create, {**create, "after": "8h"}, {"op": "update", "namespace": "debounce", "name": "x", "max_wait": "5m"}])[-1]["ok"],
           True)
    last = server.get(path).must(200)
    expect((last["payload"], last["max_wait"], last["replaced"]), (2, "5m", 4))
    late = microseconds(last["due"]) - microseconds(first["created"])
    check(abs(late - 3600 * 1000000) < 2000, f"an hour after the first was created: {late}")
    for field, value in (("max_wait", 1), ("max_wait", "0s"), ("max_wait", "x"), ("merge", "both"), ("merge", None), ("merge", 1)):
        problem(server.put(path, timer(**{field: value})), 400, "invalid-field", field)


@test("civil time: due as a local time and a zone; gaps and repeated times; responses have UTC, local and zone")
def _():
    path = "/v1/timers/civil/x"

    def due(local, zone="Europe/Berlin"):
        made = server.put(path, {"due": {"local": local, "zone": zone}}).json
        expect((made["local"], made["zone"]), (local, zone))
        expect(server.get(path).must(200), made)
        return made["due"]

    expect(due("2031-06-01T09:00:00"), "2031-06-01T07:00:00Z")
    expect(due("2031-12-01T09:00"), "2031-12-01T08:00:00Z")
    expect(due("2031-03-30T02:30:00"), "2031-03-30T01:00:00Z", "in a gap: the first moment after it")
    expect(due("2031-10-26T02:30:00"), "2031-10-26T00:30:00Z", "twice: the first")
    expect(due("2031-06-01T09:00:00.25", "UTC"), "2031-06-01T09:00:00.250Z")
    civil = {"local": "2031-06-01T09:00:00", "zone": "Asia/Tokyo"}
    changed = server.patch(path, {"due": civil}).must(200)
    expect((changed["due"], changed["zone"]), ("2031-06-01T00:00:00Z", "Asia/Tokyo"))
    expect("local" in server.patch(path, {"after": "1h"}).must(200), False, "it has no civil time any more")
    line = server.batch([{"op": "create", "namespace": "civil", "name": "y", "due": civil}])[0]
    expect((line["ok"], server.get("/v1/timers/civil/y").must(200)["local"]), (True, civil["local"]))
    for wrong, field in (({}, "due"), ({"local": "2031-06-01T09:00"}, "due"), ({"zone": "UTC"}, "due"),
                         ({**civil, "zone": "Europe/Nowhere"}, "due.zone"), ({**civil, "zone": "../etc/passwd"}, "due.zone"),
                         ({**civil, "zone": 1}, "due.zone"), ({**civil, "local": "2031-06-01T09:00:00Z"}, "due.local"),
                         ({**civil, "local": "2031-02-30T09:00:00"}, "due.local"), ({**civil, "local": "1999-01-01T09:00"}, "due.local"),
                         ({**civil, "local": 5}, "due.local")):
        problem(server.put(path, {"due": wrong}), 400, "invalid-field", field)


@test("preconditions: one that is not supported is refused, and nothing happens")
def _():
    path = "/v1/timers/condition/x"
    made = server.put(path, timer(payload=1)).must(201)
    for name, value in (("If-None-Match", '"x"'), ("If-None-Match", '"x", "y"'), ("If-None-Match", "*, *"), ("If-None-Match", ""),
                        ("If-Match", "*"), ("If-Match", '"x"'), ("If-Unmodified-Since", "Sat, 29 Oct 1994 19:43:31 GMT")):
        for method, where, body in (("PUT", path, timer(payload=2)), ("PATCH", path, {"payload": 2}), ("DELETE", path, None),
                                    ("POST", "/v1/timers/condition", timer()), ("DELETE", "/v1/timers/condition?all=true", None)):
            problem(server.call(method, where, body, {name: value}), 400, "invalid-field", name)
    for method in ("PATCH", "POST", "DELETE"):
        problem(server.call(method, path.rsplit("/", method == "POST")[0], timer(), {"If-None-Match": "*"}), 400, "invalid-field",
                "If-None-Match")
    with server.socket() as twice:
        twice.sendall(f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: *\r\nIf-None-Match: \"x\"\r\nConnection: close\r\n"
                      "Content-Length: 14\r\n\r\n{\"after\":\"1s\"}".encode())
        check(b" 400 " in twice.makefile("rb").readline(), "two of them")
    server.get(path, **{"If-None-Match": '"x"'}).must(200)
    expect(server.get(path).must(200), made)
    expect(len(server.timers("condition")), 1)


@test("names: one that looks like an ID is refused, so that a path means one timer")
def _():
    id = server.post("/v1/timers/alike", timer(payload="mine")).must(201)["id"]
    problem(server.put(f"/v1/timers/alike/{id}", timer()), 400, "invalid-field", "name")
    problem(server.put(f"/v1/timers/other/{id}", timer()), 400, "invalid-field", "name")
    line = server.batch([{"op": "create", "namespace": "alike", "name": id, "after": "1h"}])[0]
    expect(line["problem"].get("field"), "name")
    expect(server.get(f"/v1/timers/alike/{id}").must(200)["payload"], "mine")
    for name in (id.upper(), "01ARZ3NDEKTSV4RRFFQ69G5FAV", id + "x", id[:-1]):
        made = server.put(f"/v1/timers/alike/{name}", timer(payload=name)).must(201)
        expect(server.get(f"/v1/timers/alike/{name}").must(200)["id"], made["id"])
        expect(server.delete(f"/v1/timers/alike/{name}").status, 204)
    expect(server.get(f"/v1/timers/alike/{id}").must(200)["payload"], "mine")


@test("names: no control characters, of any kind")
def _():
    for character in ("\0", "\n", "\x1f", "\x7f", "\x80", "\x85", "\x9b", "\x9f"):
        name = quote("a" + character)
        problem(server.put(f"/v1/timers/c1/{name}", timer()), 400, "invalid-field", "name")
        problem(server.put(f"/v1/timers/{name}/x", timer()), 400, "invalid-field", "namespace")
        line = server.batch([{"op": "create", "namespace": "c1", "name": "a" + character, "after": "1h"}])[0]
        expect(line["problem"].get("field"), "name")
    server.put("/v1/timers/c1/" + quote("a\xa0\xc2"), timer()).must(201)


@test("everything that goes in comes out again")
def _():
    given = {
        "due": "2031-02-03T04:05:06.789Z",
        "target": "http://127.0.0.1:9/somewhere?x=y",
        "payload": {"text": "Grüße \U0001f570", "list": [1, 2.5, None, True], "nested": {"a": {}}},
        "headers": {"X-One": "1", "x-two": "zwei und drei"},
        "timeout": "1m30s",
        "retry": {"max_attempts": 3, "initial": "2s", "multiplier": 1.5, "max_interval": "1m", "max_age": "1d"},
    }
    before = now_ms() * 1000
    made = server.put("/v1/timers/out/all", given).must(201)
    for name, value in given.items():
        expect(made[name], value, name)
    expect(set(made), set(given) | {"id", "namespace", "name", "created", "attempt"})
    expect((made["namespace"], made["name"], made["attempt"]), ("out", "all", 0))
    check(before <= microseconds(made["created"]) <= now_ms() * 1000 + 1000, "created is now")
    expect(server.get("/v1/timers/out/all").must(200), made)
    expect(server.get("/v1/timers/out/" + made["id"]).must(200), made, "found by its ID")


@test("POST: the server makes the ID, and each time another")
def _():
    made = [server.post("/v1/timers/post", timer(payload=n)).must(201) for n in range(20)]
    expect(len({one["id"] for one in made}), 20)
    for n, one in enumerate(made):
        check("name" not in one, "it has no name")
        expect(server.get("/v1/timers/post/" + one["id"]).must(200)["payload"], n)


@test("a parameter where there is none is refused, and nothing is done")
def _():
    path = "/v1/timers/query/one"
    server.put(path, timer()).must(201)
    problem(server.delete(path + "?dry_run=true"), 400, "unknown-field", "dry_run")
    problem(server.put(path + "?only_new=true", timer()), 400, "unknown-field", "only_new")
    problem(server.call("PATCH", path + "?after", {"after": "2h"}), 400, "unknown-field", "after")
    problem(server.post("/v1/timers/query?name=two", timer()), 400, "unknown-field", "name")
    problem(server.post("/v1/batch?dry_run=true", b'{"op":"cancel","namespace":"query","name":"one"}\n'), 400, "unknown-field", "dry_run")
    problem(server.get("/v1/namespaces?all=true"), 400, "unknown-field", "all")
    expect(len(server.timers("query")), 1)
    server.get("/healthz?from=balancer").must(200)
    server.delete(path + "?").must(204)


@test("GET, PATCH and DELETE by name and by ID; what is not there is 404")
def _():
    for key in ("name", "id"):
        made = server.put("/v1/timers/one/x", timer(payload="before", timeout="5s")).must(201)
        path = "/v1/timers/one/" + made[key]
        changed = server.patch(path, {"payload": "after"}).must(200)
        expect(changed, {**made, "payload": "after"}, "only what was given has changed")
        changed = server.patch(path, {"due": FAR}).must(200)
        expect((changed["due"], changed["payload"], changed["id"]), (FAR, "after", made["id"]))
        expect(server.patch(path, {}).must(200), changed, "nothing given, nothing changed")
        answer = server.delete(path)
        expect((answer.status, answer.body), (204, b""))
        for method, body in (("GET", None), ("PATCH", {"payload": 1}), ("DELETE", None)):
            problem(server.call(method, path, body), 404, "not-found")
    problem(server.get("/v1/timers/other/x"), 404, "not-found")


@test("a timer is found in its own namespace only, by its ID too")
def _():
    made = server.put("/v1/timers/mine/x", timer()).must(201)
    for key in ("name", "id"):
        problem(server.get("/v1/timers/yours/" + made[key]), 404, "not-found")
        problem(server.patch("/v1/timers/yours/" + made[key], {"payload": 1}), 404, "not-found")
        problem(server.delete("/v1/timers/yours/" + made[key]), 404, "not-found")
    server.get("/v1/timers/mine/x").must(200)


@test("PATCH: a target can be taken away, and headers, timeout and retry set anew")
def _():
    path = "/v1/timers/patch/x"
    server.put(path, timer(target="http://127.0.0.1:9/", headers={"a": "b"}, retry={"max_attempts": 2})).must(201)
    changed = server.patch(path, {"target": None, "headers": {"c": "d"}, "timeout": "2s", "retry": {"max_attempts": 7}})
    changed = changed.must(200)
    check("target" not in changed, f"there is no target in {changed}")
    expect((changed["headers"], changed["timeout"], changed["retry"]["max_attempts"]), ({"c": "d"}, "2s", 7))
    before = now_ms() * 1000
    changed = server.patch(path, {"after": "10m"}).must(200)
    left = microseconds(changed["due"]) - before
    check(600_000_000 <= left <= 660_000_000, f"due in ten minutes: {left} us")


@test("what has fired is 404")
def _():
    receiver = Receiver()
    made = server.put("/v1/timers/fired/x", {"after": "1ms", "target": receiver.url}).must(201)
    receiver.await_calls(1)
    await_(lambda: server.get("/v1/timers/fired/x").status == 404, "it is gone")
    for path in ("/v1/timers/fired/x", "/v1/timers/fired/" + made["id"]):
        problem(server.delete(path), 404, "not-found")
        problem(server.patch(path, {"after": "1h"}), 404, "not-found")
    server.put("/v1/timers/fired/x", timer()).must(201)


@test("a timer that is being delivered can be seen, but neither changed nor cancelled")
def _():
    go = threading.Event()
    receiver = Receiver(lambda call: go.wait(60) and 200)
    server.put("/v1/timers/busy/x", {"after": "1ms", "target": receiver.url}).must(201)
    receiver.await_calls(1)
    for answer in (server.delete("/v1/timers/busy/x"), server.patch("/v1/timers/busy/x", {"after": "1h"})):
        problem(answer, 409, "busy")
    go.set()
    await_(lambda: server.get("/v1/timers/busy/x").status == 404, "it is gone")
    expect(len(receiver.calls), 1)


@test("names: any UTF-8, written with percent signs, up to 255 bytes")
def _():
    for name in ("a", "ä/ö?ü#%", "x y", "..", "~", "\U0001f570", "e" * 255, "é" * 127, "+", "a&b=c"):
        path = f"/v1/timers/{quote('n ' + name[:80])}/{quote(name)}"
        made = server.put(path, timer()).must(201)
        expect((made["namespace"], made["name"]), ("n " + name[:80], name))
        expect(server.get(path).must(200), made)
        expect(server.timers("n " + name[:80]), [made])
        expect(server.delete(path).status, 204)
    for bad in ("e" * 256, "%00", "%0a", "%7f", "%ff", "%c3", "%zz", "%4", "%ed%a0%80"):
        problem(server.put(f"/v1/timers/names/{bad}", timer()), 400, "invalid-field", "name")
        problem(server.put(f"/v1/timers/{bad}/x", timer()), 400, "invalid-field", "namespace")


# --- Fields -----------------------------------------------------------------------------------------------------------


def refused(fields, kind, field, status=400):
    body = fields if isinstance(fields, str) else {key: value for key, value in fields.items() if value is not ...}
    problem(server.put("/v1/timers/refused/x", body), status, kind, field)
    problem(server.post("/v1/timers/refused", body), status, kind, field)
    if kind != "missing-field":
        problem(server.patch("/v1/timers/refused/x", body), status, kind, field)


@test("due: RFC 3339 with any offset, or Unix milliseconds; what is past is due at once")
def _():
    for given, due in (
            ("2030-01-31T09:00:00+01:00", "2030-01-31T08:00:00Z"),
            ("2030-01-31T09:00:00.5-23:59", "2030-02-01T08:59:00.500Z"),
            ("2030-01-31t09:00:00.000001z", "2030-01-31T09:00:00.000001Z"),
            ("2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
            (1900000000000, "2030-03-17T17:46:40Z"),
            (1900000000001, "2030-03-17T17:46:40.001Z"),
    ):
        expect(server.post("/v1/timers/due", {"due": given}).must(201)["due"], due, given)
    past = (978307200000, 1e12, "2001-01-01T00:00:00Z", "2020-02-29T00:00:00Z")
    for given in past:
        server.post("/v1/timers/past", {"due": given, "payload": given}).must(201)
    found = []
    while len(found) < len(past):
        found += server.lease("past", wait="10s")
    expect({one["payload"] for one in found}, set(past))


@test("due: a time that cannot be meant is refused, with a hint")
def _():
    for given in (1799999999, 0, 1, -1, 978307199999, 1799999999000000, "1970-01-01T00:00:00Z", "2000-12-31T23:59:59Z",
                  "0000-01-01T00:00:00Z"):
        server.put("/v1/timers/mean/x", timer()).must(201 if given == 1799999999 else 200)
        wrong = [server.post("/v1/timers/mean", {"due": given}), server.put("/v1/timers/mean/y", {"due": given}),
                 server.patch("/v1/timers/mean/x", {"due": given})]
        details = {problem(answer, 400, "invalid-field", "due")["detail"] for answer in wrong}
        line = server.batch([{"op": "create", "namespace": "mean", "due": given}])[0]
        expect(details, {line["problem"]["detail"]})
        check(("looks like" in details.pop()) == (given in (1799999999, 1799999999000000)), given)
    expect([one["name"] for one in server.timers("mean")], ["x"])
    for query in ("due_after=1799999999", "due_before=1799999999", "due_after=1799999999000000"):
        check("looks like" in problem(server.get("/v1/timers/mean?" + query), 400, "invalid-field", query.split("=")[0])["detail"], query)
        problem(server.delete("/v1/timers/mean?" + query), 400, "invalid-field", query.split("=")[0])
    for query, count in (("due_after=1960-01-01T00:00:00Z", 1), ("due_before=1960-01-01T00:00:00Z", 0), ("due_after=-5", 1),
                         ("due_before=-5", 0), ("due_after=0", 1), ("due_before=0", 0), ("due_before=2000-01-01T00:00:00Z", 0)):
        expect(len(server.get("/v1/timers/mean?" + query).must(200)["timers"]), count, query)


@test("lateness is counted from when a timer was there")
def _():
    receiver = Receiver()
    with Server() as fresh:
        fresh.put("/v1/timers/late/x", {"due": "2001-01-01T00:00:00Z", "target": receiver.url}).must(201)
        fresh.put("/v1/timers/late/y", {"due": "2001-01-01T00:00:00Z"}).must(201)
        receiver.await_calls(1)
        await_(lambda: fresh.lease("late", wait="1s"), "leased")
        await_(lambda: fresh.metric("foliot_lateness_seconds_count") == 2, "counted")
        check(fresh.metric("foliot_lateness_seconds_sum") < 3600, "not since 2001")


@test("due: anything else is refused")
def _():
    for given in ("", "tomorrow", "2030-01-31", "2030-01-31T09:00:00", "2030-02-30T00:00:00Z", "2029-02-29T00:00:00Z",
                  "2030-01-31T24:00:00Z", "2030-01-31T09:60:00Z", "2030-13-01T00:00:00Z", "2030-01-31T09:00:00+24:00",
                  "2030-01-31T09:00:00Zx", True, None, [], {}, "9999-01-01T00:00:00Z", 99999999999999999, 1e300):
        refused({"due": given}, "invalid-field", "due")


@test("after: a duration; anything else is refused")
def _():
    for given, us in (("500ms", 500_000), ("90s", 90_000_000), ("1h30m", 5_400_000_000), ("1.5s", 1_500_000), ("0s", 0),
                      ("1w2d3h4m5s6ms", 788645006000), ("1000d", 86_400_000_000_000)):
        before = now_ms() * 1000
        due = microseconds(server.post("/v1/timers/after", {"after": given}).must(201)["due"])
        check(before + us <= due <= now_ms() * 1000 + 1000 + us, f"{given}: due {due - before} us later")
    for given in ("", "1", "s", "-1s", "1h -1m", "1m1h", "1x", 5, None, True, "1000000d", "1e3s", " 1s"):
        refused({"after": given}, "invalid-field", "after")


@test("due and after together, and neither of them")
def _():
    refused({"after": "1h", "due": FAR}, "invalid-field", "after")
    refused({"payload": 1}, "missing-field", "due")


@test("payload: any JSON, as it was given, or bytes in base64; never both")
def _():
    for given in (0, -1.5e-7, "", "x", None, True, False, [], {}, [[[]]], {"a": [1, {"b": None}]}, "\u0000\u001f\"\\/", 1e400):
        text = "1e400" if given == 1e400 else json.dumps(given)
        made = server.post("/v1/timers/payload", '{"after":"1h","payload":' + text + "}").must(201)
        expect(made["payload"], json.loads(text), text)
    exact = '{"a":1.0,"big":123456789012345678901234567890,"a":2}'
    answer = server.post("/v1/timers/payload", '{"after":"1h","payload":' + exact + "}")
    check(exact.encode() in answer.body, f"the payload is as it was: {answer.body}")
    for given in (b"", b"\0", b"a", b"ab", b"abc", bytes(range(256))):
        text = base64.b64encode(given).decode()
        made = server.post("/v1/timers/payload", timer(payload_base64=text)).must(201)
        expect(made["payload_base64"], text)
        check("payload" not in made, "and not as JSON")
    check("payload" not in server.post("/v1/timers/payload", timer()).must(201), "none was given")
    for given in ("a", "a===", "=", "ab=c", "a b=", "ab==\n", "!!!!", "Zh==", 1, None, []):
        refused(timer(payload_base64=given), "invalid-field", "payload_base64")
    refused(timer(payload=1, payload_base64="YQ=="), "invalid-field", "payload_base64")


@test("payload: what is too large is 413")
def _():
    server.put("/v1/timers/large/fits", timer(payload="x" * (256 * 1024 - 2))).must(201)
    problem(server.put("/v1/timers/large/not", timer(payload="x" * (256 * 1024 - 1))), 413, "too-large", "payload")
    limit = base64.b64encode(b"x" * 256 * 1024).decode()
    server.put("/v1/timers/large/bytes", timer(payload_base64=limit)).must(201)
    problem(server.patch("/v1/timers/large/bytes", {"payload_base64": limit[:-4] + "eHh4"}), 413, "too-large", "payload_base64")
    answer = server.put("/v1/timers/large/not", timer(payload="x" * (1 << 20)))
    expect(answer.status, 413)
    problem(server.get("/v1/timers/large/not"), 404, "not-found")


@test("target: an absolute http or https URL; anything else is refused")
def _():
    for given in ("http://example.com", "https://example.com:8443/a?b=c", "HTTP://EXAMPLE.COM/", "http://[2001:db8::1]/",
                  "http://127.0.0.1:1/"):
        expect(server.post("/v1/timers/target", timer(target=given)).must(201)["target"], given)
    for given in ("", "example.com", "/path", "ftp://example.com/", "file:///etc/passwd", "http://", "http://a b/",
                  "http://user:secret@example.com/", "http://example.com:99999/", "http://example.com/\r\nX: y",
                  "javascript:alert(1)", 5, [], {}, "http://" + "a" * 300 + ".com/"):
        refused(timer(target=given), "invalid-field", "target")


@test("headers: strings that may be sent; anything else is refused")
def _():
    made = server.post("/v1/timers/headers", timer(headers={"Authorization": "Bearer x", "x": "", "y": "\t a"})).must(201)
    expect(made["headers"]["Authorization"], "Bearer x")
    for given in ([], "x", 1, {"a": 1}, {"a": None}, {"a": []}, {"": "x"}, {"a b": "x"}, {"a:": "x"}, {"a": "x\r\ny: z"},
                  {"a": "\u0000"}, {"Host": "x"}, {"content-length": "1"}, {"Transfer-Encoding": "x"}, {"connection": "x"},
                  {"webhook-id": "x"}, {"Webhook-Signature": "x"}, {"webhook-timestamp": "x"}, {"foliot-attempt": "x"}):
        refused(timer(headers=given), "invalid-field", "headers")


@test("headers: a hundred of them at most")
def _():
    many = {f"X-{i}": str(i) for i in range(100)}
    expect(server.put("/v1/timers/headers/many", {"after": "1h", "headers": many}).must(201)["headers"], many)
    refused({"after": "1h", "headers": {**many, "X-100": ""}}, "invalid-field", "headers")


@test("timeout: from 1ms to 1h")
def _():
    for given in ("1ms", "1h"):
        expect(server.post("/v1/timers/timeout", timer(timeout=given)).must(201)["timeout"], given)
    for given in ("0s", "999us", "1h1us", "x", 1, [], True):
        refused(timer(timeout=given), "invalid-field", "timeout")


@test("retry: each of its members, and what is not given is as the default")
def _():
    made = server.post("/v1/timers/retry", timer(retry={"initial": "5s"})).must(201)
    expect(made["retry"], {"max_attempts": 10, "initial": "5s", "multiplier": 2, "max_interval": "1h"})
    for given, field in (({"max_attempts": -1}, "retry.max_attempts"), ({"max_attempts": 1.5}, "retry.max_attempts"),
                         ({"max_attempts": "1"}, "retry.max_attempts"), ({"max_attempts": 1 << 32}, "retry.max_attempts"),
                         ({"initial": "0s"}, "retry.initial"), ({"initial": 1}, "retry.initial"),
                         ({"multiplier": 0.99}, "retry.multiplier"), ({"multiplier": 1001}, "retry.multiplier"),
                         ({"multiplier": "2"}, "retry.multiplier"), ({"max_interval": "x"}, "retry.max_interval"),
                         ({"initial": "2s", "max_interval": "1s"}, "retry.max_interval"),
                         ({"max_age": 1}, "retry.max_age"), ([], "retry"), ("x", "retry"), (1, "retry")):
        refused(timer(retry=given), "invalid-field", field)
    refused(timer(retry={"attempts": 1}), "unknown-field", "retry.attempts")


@test("unknown fields are refused and named, wherever they are")
def _():
    refused(timer(nonsense=1), "unknown-field", "nonsense")
    refused('{"after":"1h","du\\u0065 ":1}', "unknown-field", "due ")
    refused({"after": "1h", "é" * 40: 1}, "unknown-field", "é" * 31)
    refused(timer(op="create"), "unknown-field", "op")
    refused(timer(name="x"), "unknown-field", "name")
    problem(server.put("/v1/namespaces/unknown", {"nonsense": 1}), 400, "unknown-field", "nonsense")
    problem(server.put("/v1/namespaces/unknown", {"retry": {"nonsense": 1}}), 400, "unknown-field", "retry.nonsense")
    problem(server.post("/v1/lease/unknown", {"nonsense": 1}), 400, "unknown-field", "nonsense")
    problem(server.post("/v1/ack", {"acks": [], "nonsense": 1}), 400, "unknown-field", "nonsense")
    problem(server.post("/v1/ack", {"acks": [{"lease": "x", "result": "done", "why": 1}]}), 400, "unknown-field", "acks.why")
    for path in ("/v1/timers/unknown", "/v1/dead/unknown", "/v1/events"):
        problem(server.get(path + "?nonsense=1"), 400, "unknown-field", "nonsense")
    problem(server.delete("/v1/timers/unknown?nonsense=1"), 400, "unknown-field", "nonsense")


@test("a field that is given twice is refused")
def _():
    refused('{"after":"1h","after":"2h"}', "invalid-field", "after")
    refused('{"after":"1h","payload":1,"payl\\u006fad":2}', "invalid-field", "payload")
    refused('{"after":"1h","retry":{"initial":"1s","initial":"2s"}}', "invalid-field", "retry.initial")
    refused('{"after":"1h","headers":{"x-a":"1","x-b":"2","X-A":"3"}}', "invalid-field", "headers")
    for method, path, body, field in (
            ("PUT", "/v1/namespaces/twice", '{"max_rate":1,"spread":"1s","max_rate":2}', "max_rate"),
            ("PUT", "/v1/namespaces/twice", '{"secrets":[],"secrets":[]}', "secrets"),
            ("PUT", "/v1/namespaces/twice", '{"retry":{"max_attempts":1,"max_attempts":2}}', "retry.max_attempts"),
            ("POST", "/v1/lease/twice", '{"max":1,"wait":"0s","max":2}', "max"),
            ("POST", "/v1/ack", '{"acks":[],"acks":[]}', "acks"),
            ("POST", "/v1/ack", '{"acks":[{"lease":"a","result":"done","lease":"b"}]}', "acks.lease"),
            ("POST", "/v1/ack", '{"acks":[{"lease":"a","result":"done","result":"dead"}]}', "acks.result"),
            ("POST", "/v1/ack", '{"acks":[{"lease":"a","result":"retry","after":"1s","after":"1s"}]}', "acks.after")):
        problem(server.call(method, path, body), 400, "invalid-field", field)


@test("bodies that are no JSON, and JSON that is no object")
def _():
    for body in ("", "{", "{\"after\":\"1h\"", "{'after':'1h'}", "{\"after\":\"1h\",}", "{\"after\":\"1h\"}x", "nul", "\xff",
                 "{\"after\":\"1h\"}{}", "[" * 100_000, "{\"after\":\"\\ud800\"}", "{\"a\tb\":1}", "{\"after\":01}"):
        for method, path in (("PUT", "/v1/timers/json/x"), ("POST", "/v1/timers/json"), ("PATCH", "/v1/timers/json/x"),
                             ("PUT", "/v1/namespaces/json"), ("POST", "/v1/ack")):
            problem(server.call(method, path, body.encode("latin-1")), 400, "invalid-json")
    for body in ("[]", "1", "\"x\"", "null", "true", "[{}]"):
        for method, path in (("PUT", "/v1/timers/json/x"), ("POST", "/v1/timers/json"), ("PATCH", "/v1/timers/json/x"),
                             ("PUT", "/v1/namespaces/json"), ("POST", "/v1/lease/json")):
            problem(server.call(method, path, body), 400, "invalid-body")
    expect(server.timers("json"), [])


# --- Lists ------------------------------------------------------------------------------------------------------------


@test("lists: every timer once, whatever the page, through all shards")
def _():
    names = [f"{'even' if n % 2 == 0 else 'odd'}-{n:03}" for n in range(250)]
    base = 1_900_000_000_000
    answers = server.batch([{"op": "create", "namespace": "lists", "name": name, "due": base + n * 1000}
                            for n, name in enumerate(names)])
    check(all(answer["ok"] for answer in answers), "all were made")
    for limit in (1, 7, 100, 10000):
        expect(sorted(one["name"] for one in server.timers("lists", limit=limit)), sorted(names), f"pages of {limit}")
    expect(sorted(one["name"] for one in server.timers("lists")), sorted(names))
    page = server.get("/v1/timers/lists?limit=100").must(200)
    expect(len(page["timers"]), 100)
    check("cursor" in page, "and there is more")


@test("lists: by prefix, by time, and by both")
def _():
    base = 1_900_000_000_000

    def found(**query):
        return sorted(int(one["name"][-3:]) for one in server.timers("lists", limit=13, **query))

    expect(found(prefix="even-"), list(range(0, 250, 2)))
    expect(found(prefix="odd-00"), [1, 3, 5, 7, 9])
    expect(found(prefix="nothing"), [])
    expect(found(due_after=base + 200_000), list(range(200, 250)), "due_after")
    expect(found(due_before=base + 10_000), list(range(0, 10)), "due_before")
    expect(found(due_after=rfc3339(base + 5_000), due_before=rfc3339(base + 8_000)), [5, 6, 7])
    expect(found(due_after=base + 5_000, due_before=base + 11_000, prefix="odd"), [5, 7, 9])
    expect(found(due_after=base + 8_000, due_before=base + 5_000), [])
    for early in (-1, -(10**15), 1 - 2**53):
        expect((found(due_before=early), len(found(due_after=early))), ([], len(found())))


@test("lists: parameters that are wrong are refused")
def _():
    for query, field in (("limit=0", "limit"), ("limit=10001", "limit"), ("limit=x", "limit"), ("limit=-1", "limit"),
                         ("limit=", "limit"), ("cursor=x", "cursor"), ("cursor=" + "f" * 72, "cursor"),
                         ("cursor=" + "0" * 8 + "f" * 64, "cursor"), ("cursor=" + "0" * 71, "cursor"), ("due_after=x", "due_after"), ("due_before=2030-01-01", "due_before"), ("limit=" + "1" * 30, "limit"),
                         ("due_after=" + "1" * 100, "due_after"), ("prefix=" + "x" * 256, "prefix"),
                         ("prefix=%zz", "prefix"), ("cursor=", "cursor"), ("limit", "limit"), ("limit=+5", "limit"),
                         ("limit=%2B5", "limit"), ("limit=%0A5", "limit"), ("limit=5%00", "limit"), ("due_after=%2B5", "due_after"),
                         ("due_before=%095", "due_before"), ("due_before=5%00", "due_before"),
                         ("prefix=a&prefix=b", "prefix")):
        problem(server.get("/v1/timers/lists?" + query), 400, "invalid-field", field)


@test("cancelling by filter: a dry run first, then for good, and nothing else")
def _():
    server.batch([{"op": "create", "namespace": "bulk", "name": f"{kind}{n}", "due": 1_900_000_000_000 + n * 1000}
                  for kind in "ab" for n in range(60)])
    path = "/v1/timers/bulk?prefix=a&due_before=1900000030000"
    expect(server.delete(path + "&dry_run=true").must(200), {"matched": 30, "cancelled": 0, "dry_run": True})
    expect(len(server.timers("bulk")), 120)
    expect(server.delete(path).must(200), {"matched": 30, "cancelled": 30, "dry_run": False})
    left = {one["name"] for one in server.timers("bulk")}
    expect(left, {f"a{n}" for n in range(30, 60)} | {f"b{n}" for n in range(60)})
    problem(server.delete("/v1/timers/bulk"), 400, "missing-field")
    for filter_, field in (("dry_run=yes&prefix=a", "dry_run"), ("dry_run&prefix=a", "dry_run"), ("all=maybe", "all"),
                           ("dry_run=true%20%20%20%20%20&prefix=a", "dry_run"), ("all=true&dry_run=true&dry_run=true", "dry_run"),
                           ("due_before=1900000099000&prefix=" + "x" * 256, "prefix"),
                           ("prefix=a&due_before=" + "1" * 70, "due_before"), ("prefix=a&due_after=%2", "due_after")):
        problem(server.delete("/v1/timers/bulk?" + filter_), 400, "invalid-field", field)
    for filter_ in ("prefix=a&due_before=0", "prefix=a&due_before=-5", "prefix=a&due_before=1960-01-01T00:00:00Z"):
        expect(server.delete("/v1/timers/bulk?" + filter_).must(200)["matched"], 0, filter_)
    for early in ("1960-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "0", "-5"):
        expect(server.delete(f"/v1/timers/bulk?dry_run=true&due_after={early}").must(200)["matched"], 90, early)
    problem(server.delete("/v1/timers/bulk?prefix=a&limit=3"), 400, "unknown-field", "limit")
    expect(server.delete("/v1/timers/bulk?all=true").must(200)["cancelled"], 90)
    expect(server.timers("bulk"), [])
    expect(server.delete("/v1/timers/bulk?all=true").must(200)["matched"], 0)


@test("cancelling by filter: thousands")
def _():
    server.batch([{"op": "create", "namespace": "crowd", "after": "1h"} for _ in range(5000)])
    expect(server.delete("/v1/timers/crowd?all=true").must(200)["cancelled"], 5000)
    expect(server.timers("crowd"), [])


# --- Namespaces -------------------------------------------------------------------------------------------------------


@test("namespaces: their settings and how much is in them")
def _():
    secret = "whsec_" + base64.b64encode(b"s" * 32).decode()
    for n in range(3):
        server.post("/v1/timers/space", timer()).must(201)
    settings = {"retry": {"max_attempts": 4, "initial": "2s", "multiplier": 3, "max_interval": "1h"}, "skip_older": "1h",
                "max_rate": 100, "spread": "30s"}
    answer = server.put("/v1/namespaces/space", {"secrets": [secret, secret], **settings})
    wanted = {"namespace": "space", "pending": 3, "schedules": 0, "settings": {"secret_count": 2, **settings}}
    expect(answer.must(200), wanted)
    expect(server.get("/v1/namespaces/space").must(200), wanted)
    check(wanted in server.get("/v1/namespaces").must(200)["namespaces"], "it is in the list")
    check(b"whsec" not in answer.body + server.get("/v1/namespaces").body, "no secret comes out")
    made = server.post("/v1/timers/space", timer()).must(201)
    expect(made["retry"], settings["retry"], "the namespace's policy is the timer's")
    expect(server.put("/v1/namespaces/space", {"max_rate": None}).must(200)["settings"], {"secret_count": 2})
    expect(server.put("/v1/namespaces/space", {"secrets": []}).must(200)["settings"], {"secret_count": 0})


@test("namespaces: PATCH changes what is given, and nothing else")
def _():
    secret = "whsec_" + base64.b64encode(b"s" * 32).decode()
    path = "/v1/namespaces/patched"
    full = {"retry": {"max_attempts": 4, "initial": "2s", "multiplier": 3, "max_interval": "1h"}, "skip_older": "1h", "max_rate": 100,
            "spread": "30s"}
    server.put(path, {"secrets": [secret], **full}).must(200)
    expect(server.patch(path, {}).must(200)["settings"], {"secret_count": 1, **full})
    expect(server.patch(path, {"max_rate": 7}).must(200)["settings"], {"secret_count": 1, **full, "max_rate": 7})
    problem(server.patch(path, {"max_rate": 0}), 400, "invalid-field", "max_rate")
    problem(server.patch(path, {"nonsense": 0}), 400, "unknown-field", "nonsense")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        changes = [{"secrets": []}, {"skip_older": "2h"}, {"retry": None}, {"spread": "5s"}]
        for answer in pool.map(lambda change: server.patch(path, change), changes):
            answer.must(200)
    expect(server.get(path).must(200)["settings"], {"secret_count": 0, "skip_older": "2h", "max_rate": 7, "spread": "5s"})
    server.patch(path, {"skip_older": None, "max_rate": None, "spread": None}).must(200)
    check("patched" not in listed(server), "without settings, it does not exist")


@test("namespaces: settings that are wrong are refused")
def _():
    good = "whsec_" + base64.b64encode(b"s" * 24).decode()
    for given, field in (({"secrets": [good] * 3}, "secrets"), ({"secrets": good}, "secrets"), ({"secrets": ["x"]}, "secrets"),
                         ({"secrets": ["whsec_!"]}, "secrets"), ({"secrets": [1]}, "secrets"),
                         ({"secrets": ["whsec_" + base64.b64encode(b"s" * 23).decode()]}, "secrets"),
                         ({"secrets": ["whsec_" + base64.b64encode(b"s" * 65).decode()]}, "secrets"),
                         ({"skip_older": 1}, "skip_older"), ({"max_rate": 0}, "max_rate"), ({"max_rate": -1}, "max_rate"),
                         ({"max_rate": 1.5}, "max_rate"), ({"spread": "x"}, "spread"),
                         ({"retry": {"multiplier": 0}}, "retry.multiplier"), ({"retry": 1}, "retry")):
        answer = server.put("/v1/namespaces/wrong", given)
        problem(answer, 400, "invalid-field", field)
        check(good.encode() not in answer.body, "no secret comes back")
    expect(server.get("/v1/namespaces/wrong").must(200)["settings"], {"secret_count": 0})


@test("namespaces: of two changes at the same time, none takes back what the other has set")
def _():
    race_settings([server], 40, "race")
    with Server(shards=1) as one:
        race_settings([one], 20, "race")
        before = one.namespaces()
        one.restart()
        expect(one.namespaces(), before, "what is shown is what is stored")


def listed(server):
    return {one["namespace"] for one in server.namespaces()}


def in_metrics(server):
    return set(re.findall(r'namespace="([^"]*)"', server.get("/metrics").body.decode()))


@test("namespaces: one without timers and settings does not exist, whatever was tried with it")
def _():
    with Server() as fresh:
        problem(fresh.put("/v1/timers/refused/x", {"after": "nonsense"}), 400, "invalid-field", "after")
        fresh.lease("leased", wait="1ms")
        fresh.batch([{"op": "cancel", "namespace": "cancelled", "name": "x"}, {"op": "create", "namespace": "wrong"}])
        fresh.delete("/v1/timers/deleted?all=true")
        fresh.put("/v1/namespaces/unset", {"max_rate": 1}).must(200)
        fresh.put("/v1/namespaces/unset", {}).must(200)
        fresh.put("/v1/timers/emptied/x", timer()).must(201)
        expect((listed(fresh), in_metrics(fresh)), ({"emptied"}, {"emptied"}))
        expect(fresh.metric("foliot_namespaces"), 1)
        fresh.delete("/v1/timers/emptied/x").must(204)
        expect((listed(fresh), in_metrics(fresh)), (set(), set()))
        fresh.restart()
        expect((listed(fresh), in_metrics(fresh)), (set(), set()))


@test("namespaces: DELETE removes the settings of an empty one")
def _():
    secret = "whsec_" + base64.b64encode(b"s" * 32).decode()
    receiver = Receiver(lambda call: 400)
    path = "/v1/namespaces/remove"
    expect(server.delete(path).status, 204, "one that does not exist")
    server.put(path, {"secrets": [secret], "max_rate": 5}).must(200)
    expect(server.delete(path).status, 204)
    expect(server.get(path).must(200)["settings"], {"secret_count": 0})
    check("remove" not in listed(server), "it is gone")
    server.put(path, {"secrets": [secret]}).must(200)
    server.put("/v1/timers/remove/a", timer()).must(201)
    check("timers" in problem(server.delete(path), 409, "not-empty")["detail"], "it says why")
    server.put("/v1/timers/remove/dead", {"after": "0s", "target": receiver.url}).must(201)
    await_(lambda: server.get("/v1/dead/remove").must(200)["timers"], "a dead letter")
    server.delete("/v1/timers/remove/a").must(204)
    check("dead letters" in problem(server.delete(path), 409, "not-empty")["detail"], "it says why")
    expect(server.get(path).must(200)["settings"], {"secret_count": 1}, "nothing has happened")
    problem(server.delete(path + "?all=yes"), 400, "invalid-field", "all")
    problem(server.delete(path + "?dry_run=true"), 400, "unknown-field", "dry_run")
    server.batch([{"op": "create", "namespace": "remove", "after": "1h"} for _ in range(2500)])
    expect(server.delete(path + "?all=true").status, 204)
    expect((server.timers("remove"), server.get("/v1/dead/remove").must(200)["timers"]), ([], []))
    expect(server.get(path).must(200), {"namespace": "remove", "pending": 0, "schedules": 0, "settings": {"secret_count": 0}})


@test("namespaces: DELETE waits for no attempt that is under way")
def _():
    gate = threading.Event()
    receiver = Receiver(lambda call: gate.wait(60) and 200)
    server.put("/v1/namespaces/busy", {"max_rate": 5}).must(200)
    server.put("/v1/timers/busy/x", {"after": "0s", "target": receiver.url}).must(201)
    receiver.await_calls(1)
    problem(server.delete("/v1/namespaces/busy?all=true"), 409, "busy")
    gate.set()
    await_(lambda: server.delete("/v1/namespaces/busy").status == 204, "it is empty")


@test("metrics: at most 1,000 namespaces have series of their own")
def _():
    with Server() as many:
        names = [f"n{i}" for i in range(1500)]
        many.batch([{"op": "create", "namespace": name, "after": "1h"} for name in names])
        first = in_metrics(many)
        expect((len(first), first <= set(names)), (1000, True))
        expect((many.metric("foliot_namespaces"), many.metric("foliot_namespaces_without_series")), (1500, 500))
        expect(in_metrics(many), first, "the same ones")
        expect(listed(many), set(names))
        gone = sorted(first)[0]
        many.delete(f"/v1/timers/{gone}?all=true").must(200)
        after = in_metrics(many)
        check(gone not in after and first - {gone} <= after, "the others keep theirs")
        await_(lambda: len(in_metrics(many)) == 1000, "another one has its place")
        many.stop()
        many.start()
        await_(lambda: many.get("/readyz").status == 200, "ready")
        expect(listed(many), set(names) - {gone}, "all are known when it is ready")


@test("namespaces: pending counts what is made, cancelled, fired, dead and raised")
def _():
    def pending():
        return server.get("/v1/namespaces/count").must(200)["pending"]

    receiver = Receiver(lambda call: 400 if b"dead" in call.body else 200)
    expect(pending(), 0)
    for name in "abc":
        server.put("/v1/timers/count/" + name, timer()).must(201)
    server.put("/v1/timers/count/a", timer(payload=1)).must(200)
    expect(pending(), 3)
    server.delete("/v1/timers/count/a").must(204)
    server.delete("/v1/timers/count/a").must(404)
    expect(pending(), 2)
    server.patch("/v1/timers/count/b", {"after": "0s", "target": receiver.url}).must(200)
    await_(lambda: pending() == 1, "one has fired")
    server.patch("/v1/timers/count/c", {"after": "0s", "target": receiver.url, "payload": "dead"}).must(200)
    await_(lambda: pending() == 0, "one has died")
    server.batch([{"op": "create", "namespace": "count", "name": "d", "after": "1h"},
                  {"op": "create", "namespace": "count", "after": "1h"},
                  {"op": "cancel", "namespace": "count", "name": "d"}])
    expect(pending(), 1)
    server.delete("/v1/timers/count?all=true").must(200)
    expect(pending(), 0)


@test("namespaces: looking at one does not make it")
def _():
    for path in ("/v1/namespaces/looked-at", "/v1/timers/looked-at", "/v1/timers/looked-at/x", "/v1/dead/looked-at"):
        server.get(path)
    expect(server.get("/v1/namespaces/looked-at").must(200), {"namespace": "looked-at", "pending": 0, "schedules": 0,
                                                                  "settings": {"secret_count": 0}})
    check("looked-at" not in [one["namespace"] for one in server.get("/v1/namespaces").must(200)["namespaces"]], "it is not there")
    check(b"looked-at" not in server.get("/metrics").body, "nor in the metrics")


@test("a namespace may be full")
def _():
    with Server("--max-timers-per-namespace", "3") as small:
        for name in "abc":
            small.put("/v1/timers/full/" + name, timer()).must(201)
        problem(small.put("/v1/timers/full/d", timer()), 429, "namespace-full")
        problem(small.post("/v1/timers/full", timer()), 429, "namespace-full")
        problem(small.put("/v1/timers/full/d", timer(), {"If-None-Match": "*"}), 429, "namespace-full")
        problem(small.put("/v1/timers/full/c", timer(), {"If-None-Match": "*"}), 412, "exists")
        id = small.put("/v1/timers/full/c", timer(payload="another")).must(200)["id"]  # which adds none
        expect(small.get("/v1/timers/full/c").must(200)["payload"], "another")
        line = small.batch([{"op": "create", "namespace": "full", "name": "c", "after": "2h"}])[0]
        check(line["ok"] and line["id"] != id, "a line may replace one, too: %s" % line)
        line = small.batch([{"op": "create", "namespace": "full", "name": "d", "after": "2h"}])[0]
        expect(line["problem"]["type"], "urn:foliot:problem:namespace-full")
        line = small.batch([{"op": "create", "namespace": "full", "after": "1h"}])[0]
        expect(line["problem"]["type"], "urn:foliot:problem:namespace-full")
        small.put("/v1/timers/other/a", timer()).must(201)
        small.delete("/v1/timers/full/a").must(204)
        small.put("/v1/timers/full/d", timer()).must(201)


@test("a namespace is not filled beyond its limit by those who come at once")
def _():
    with Server("--max-timers-per-namespace", "100") as small:
        answers = small.batch([{"op": "create", "namespace": "crowd", "after": "1h"} for _ in range(300)])
        expect([line["ok"] for line in answers].count(True), 100)
        expect(small.get("/v1/namespaces/crowd").must(200)["pending"], 100)
        small.batch([{"op": "cancel", "namespace": "crowd", "id": line["id"]} for line in answers if line["ok"]])
        answers = small.batch([{"op": "create", "namespace": "crowd", "name": f"n{i}", "after": "1h"} for i in range(300)])
        expect([line["ok"] for line in answers].count(True), 100)
        answers = small.batch([{"op": "create", "namespace": "crowd", "name": f"n{i}", "after": "2h"} for i in range(300)])
        expect([line["ok"] for line in answers].count(True), 100)  # those who are there are replaced
        with concurrent.futures.ThreadPoolExecutor(30) as crowd:
            statuses = list(crowd.map(lambda i: small.post("/v1/timers/single", timer()).status, range(300)))
        expect(statuses.count(201), 100)
        expect(statuses.count(429), 200)


# --- Dead letters -----------------------------------------------------------------------------------------------------


@test("dead letters: list, get, redrive, delete")
def _():
    status = [410]
    receiver = Receiver(lambda call: status[0])
    for n in range(5):
        server.put(f"/v1/timers/dead/d{n}", {"after": "0s", "target": receiver.url, "payload": n}).must(201)
    found = await_(lambda: len(server.get("/v1/dead/dead").must(200)["timers"]) == 5 and
                   server.get("/v1/dead/dead").must(200)["timers"], "five are dead")
    expect(sorted(one["payload"] for one in found), [0, 1, 2, 3, 4])
    for one in found:
        check("410" in one["reason"], f"the reason says why: {one['reason']}")
        check(microseconds(one["died"]) >= microseconds(one["due"]), "it died when it was due")
        expect((one["attempt"], one["target"]), (1, receiver.url))
        expect(server.get("/v1/dead/dead/" + one["id"]).must(200), one)
        problem(server.get("/v1/timers/dead/" + one["id"]), 404, "not-found")
    pages, cursor = [], ""
    while cursor is not None:
        page = server.get(f"/v1/dead/dead?limit=2{cursor}").must(200)
        pages += page["timers"]
        cursor = "&cursor=" + page["cursor"] if "cursor" in page else None
    expect(sorted(one["id"] for one in pages), sorted(one["id"] for one in found))
    expect(server.delete("/v1/dead/dead/" + found[0]["id"]).status, 204)
    problem(server.delete("/v1/dead/dead/" + found[0]["id"]), 404, "not-found")
    status[0] = 200
    before = len(receiver.calls)
    raised = server.post(f"/v1/dead/dead/{found[1]['id']}/redrive").must(200)
    expect(raised["payload"], found[1]["payload"])
    problem(server.post(f"/v1/dead/dead/{found[1]['id']}/redrive"), 404, "not-found")
    again = receiver.await_calls(before + 1)[-1]
    expect(again.json, found[1]["payload"])
    expect(len(server.get("/v1/dead/dead").must(200)["timers"]), 3)
    for path in ("/v1/dead/dead/" + found[1]["id"], "/v1/dead/dead/x", "/v1/dead/other/" + found[2]["id"]):
        problem(server.get(path), 404, "not-found")
        problem(server.delete(path), 404, "not-found")
        problem(server.post(path + "/redrive"), 404, "not-found")


# --- Events -----------------------------------------------------------------------------------------------------------


class Events:
    """Server-sent events as they come."""

    def __init__(self, query=""):
        self.socket = server.socket()
        self.socket.sendall(f"GET /v1/events{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.file = self.socket.makefile("rb")
        self.head = b""
        while not self.head.endswith(b"\r\n\r\n"):
            self.head += self.file.readline()
        self.last = 0
        self.chunked = b"chunked" in self.head.lower()
        self.text = b""
        while b": listening" not in self.text:
            self.read()

    def read(self):
        if self.chunked:
            size = int(self.file.readline(), 16)
            self.text += self.file.read(size)
            self.file.readline()
        else:
            self.text += self.file.readline()

    def next(self):
        while True:
            block, rest, self.text = self.text.partition(b"\n\n") if b"\n\n" in self.text else (b"", b"", self.text)
            if not rest:
                self.read()
                continue
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if not line.startswith(":"))
            if "data" not in fields:
                continue
            data = json.loads(fields["data"])
            if fields["event"] == "dropped":
                return data
            expect(fields["event"], data["type"])
            check(int(fields["id"]) > self.last, "the number of an event is larger than the one before")
            self.last = int(fields["id"])
            return data


@test("events: what happens to timers, in order")
def _():
    receiver = Receiver(lambda call: {b'"ok"': 200, b'"fail"': 503, b'"dead"': 404,
                                      b'"odd"': (200, {"Content-Type": "application/json"}, '{"again_after":"soon"}')}[call.body])
    events = Events("?namespace=events")
    check(b"text/event-stream" in events.head, "it is a stream of events")
    made = server.put("/v1/timers/events/a", timer()).must(201)
    server.put("/v1/timers/unheard/a", timer()).must(201)
    server.delete("/v1/timers/events/a").must(204)
    for kind in ("scheduled", "cancelled"):
        event = events.next()
        expect((event["type"], event["id"], event["namespace"], event["name"]), (kind, made["id"], "events", "a"))
        expect(event["due"], made["due"])
    for payload, kinds in (("ok", ["scheduled", "fired"]), ("dead", ["scheduled", "failed", "dead"])):
        server.post("/v1/timers/events", {"after": "0s", "target": receiver.url, "payload": payload}).must(201)
        for kind in kinds:
            event = events.next()
            expect(event["type"], kind)
            check(("reason" in event) == (kind in ("failed", "dead")), f"a reason if it failed: {event}")
    server.post("/v1/timers/events", {"after": "0s", "target": receiver.url, "payload": "odd"}).must(201)
    expect(events.next()["type"], "scheduled")
    fired = events.next()
    expect((fired["type"], fired["reason"]), ("fired", "the response body was ignored: again_after is not a duration"))
    made = server.post("/v1/timers/events", {"after": "0s", "target": receiver.url, "payload": "fail"}).must(201)
    expect([events.next()["type"] for _ in range(2)], ["scheduled", "failed"])
    server.delete("/v1/timers/events/" + made["id"])
    events.socket.close()


@test("events: who does not keep up is told how many he missed, as soon as he has caught up")
def _():
    events = Events("?namespace=flood")
    lines = [{"op": "create", "namespace": "flood", "name": f"{n}", "after": "1h"} for n in range(20000)]
    happened = heard = 0
    while server.metric("foliot_events_dropped_total") == 0:
        server.batch(lines)
        happened += len(lines)
    while heard < happened:
        heard += events.next().get("count", 1)
    expect(heard, happened)
    server.delete("/v1/timers/flood?all=true").must(200)
    events.socket.close()


@test("events: filtered by type; parameters that are wrong are refused")
def _():
    events = Events("?namespace=typed&type=cancelled,dead")
    server.put("/v1/timers/typed/a", timer()).must(201)
    server.put("/v1/timers/typed/b", timer()).must(201)
    server.delete("/v1/timers/typed/a").must(204)
    server.delete("/v1/timers/typed/b").must(204)
    expect([(event["type"], event["name"]) for event in (events.next(), events.next())], [("cancelled", "a"), ("cancelled", "b")])
    events.socket.close()
    for _ in range(2):
        head = server.call("HEAD", "/v1/events")
        expect((head.status, head.headers["Content-Type"]), (200, "text/event-stream"))
    problem(server.get("/v1/events?type=nonsense"), 400, "invalid-field", "type")
    problem(server.get("/v1/events?type=fired,nonsense"), 400, "invalid-field", "type")
    problem(server.get("/v1/events?namespace=%00"), 400, "invalid-field", "namespace")


# --- The rest ---------------------------------------------------------------------------------------------------------


@test("paths that are not there, and methods that are not possible")
def _():
    for path in ("/v1", "/v1/", "/v1/timers", "/v1/timers/", "/v1/timers/a/b/c", "/v1/timers//b", "/v2/timers/a/b",
                 "/V1/timers/a/b", "/v1/timers/a/", "/v1/batch/x", "/v1/dead/a/b/c", "/echo/x", "/v1/lease/a/b", "//v1/clock"):
        problem(server.get(path), 404, "no-such-path")
    for method, path, allow in (("POST", "/v1/timers/a/b", {"PUT", "GET", "PATCH", "DELETE"}),
                                ("PUT", "/v1/timers/a", {"POST", "GET", "DELETE"}), ("GET", "/v1/batch", {"POST"}),
                                ("GET", "/v1/ack", {"POST"}), ("POST", "/v1/namespaces/a", {"GET", "PUT", "PATCH", "DELETE"}),
                                ("POST", "/healthz", {"GET"}), ("GET", "/v1/dead/a/b/redrive", {"POST"}),
                                ("OPTIONS", "/v1/clock", {"GET", "POST"}), ("BREW", "/version", {"GET"})):
        answer = server.call(method, path)
        problem(answer, 405, "method-not-allowed")
        expect({name.strip() for name in answer.headers["allow"].split(",")} - {"HEAD", "OPTIONS"}, allow, path)


@test("HEAD answers as GET, without a body")
def _():
    server.put("/v1/timers/head/x", timer()).must(201)
    for path in ("/v1/timers/head/x", "/v1/timers/head", "/healthz", "/version", "/metrics", "/openapi.json"):
        full, head = server.get(path), server.call("HEAD", path)
        expect((head.status, head.body), (full.status, b""))
        if path != "/metrics":
            expect(head.headers["content-length"], full.headers["content-length"])
    expect(server.call("HEAD", "/v1/timers/head/nothing").status, 404)


@test("/healthz, /readyz, /version")
def _():
    expect(server.get("/healthz").status, 200)
    expect(server.get("/readyz").status, 200)
    check(server.get("/version").must(200)["version"], "there is a version")


@test("/v1/clock: real time is told, and cannot be changed")
def _():
    clock = server.get("/v1/clock").must(200)
    expect(clock["test"], False)
    check(abs(microseconds(clock["now"]) // 1000 - now_ms()) < 60_000, "it is now")
    problem(server.post("/v1/clock", {"advance": "1s"}), 409, "no-test-clock")


@test("/echo takes whatever comes")
def _():
    expect(server.post("/echo", "no JSON at all").must(200), {"echo": True})
    entry = server.await_log("no JSON at all")
    check("echo" in json.dumps(entry), "and shows it")


@test("a crowd of clients at once")
def _():
    failures = []

    def work(number):
        try:
            for n in range(40):
                path = f"/v1/timers/threads/{number}-{n}"
                server.put(path, timer(payload=[number, n])).must(201)
                expect(server.get(path).must(200)["payload"], [number, n])
                if n % 2:
                    server.delete(path).must(204)
        except Exception as failure:  # told by the test's own thread
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(failures, [])
    expect(len(server.timers("threads")), 16 * 20)


run()
