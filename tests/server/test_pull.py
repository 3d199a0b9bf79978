#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pull: leases and acknowledgements."""

import base64
import socket
import threading
import time

from e2e import Server, await_, check, expect, microseconds, now_ms, problem, run, test

server = Server("--retry-initial", "20ms", shards=4)


def make(namespace, count, **fields):
    answers = server.batch([{"op": "create", "namespace": namespace, "after": "0s", "payload": n, **fields} for n in range(count)])
    check(all(answer["ok"] for answer in answers), "all were made")
    return [answer["id"] for answer in answers]


def lease_all(namespace, count, **options):
    found = []
    while len(found) < count:
        found += server.lease(namespace, **{"wait": "10s", "max": 1000, **options})
    expect(len(found), count)
    return found


def done(found, **how):
    return server.ack(*((one["lease"], {"result": "done", **how}) for one in found))


@test("what is due is leased once, acknowledged once, and then gone")
def _():
    ids = make("plain", 300)
    found = lease_all("plain", 300)
    expect(sorted(one["id"] for one in found), sorted(ids))
    expect(sorted(one["payload"] for one in found), list(range(300)))
    expect({one["attempt"] for one in found}, {1})
    expect(len({one["lease"] for one in found}), 300)
    expect(server.lease("plain"), [])
    expect(done(found), {"settled": 300, "unknown": []})
    second = done(found)
    expect((second["settled"], sorted(second["unknown"])), (0, sorted(one["lease"] for one in found)))
    await_(lambda: server.timers("plain") == [], "they are gone")
    expect(server.get("/v1/namespaces/plain").must(200)["pending"], 0)


@test("what comes with a leased timer")
def _():
    server.put("/v1/timers/what/n", {"due": 1000000005000, "payload": {"a": [1]}}).must(201)
    one = lease_all("what", 1)[0]
    expect((one["name"], one["payload"], one["due"]), ("n", {"a": [1]}, "2001-09-09T01:46:45Z"))
    done([one])
    server.put("/v1/timers/what/b", {"after": "0s", "payload_base64": base64.b64encode(b"\0\xff").decode()}).must(201)
    one = lease_all("what", 1)[0]
    expect(base64.b64decode(one["payload_base64"]), b"\0\xff")
    done([one])
    server.put("/v1/timers/what/c", {"after": "0s"}).must(201)
    one = lease_all("what", 1)[0]
    expect(one["payload"], None)
    done([one])


@test("never early, and not what has a target, nor what is another namespace's")
def _():
    server.put("/v1/timers/early/later", {"after": "1h"}).must(201)
    server.put("/v1/timers/early/target", {"after": "0s", "target": "http://127.0.0.1:1/"}).must(201)
    make("elsewhere", 1)
    server.put("/v1/timers/early/soon", {"after": "200ms"}).must(201)
    one = lease_all("early", 1)[0]
    expect(one["name"], "soon")
    check(now_ms() * 1000 + 1000 > microseconds(one["due"]), "it is due")
    done([one])
    expect(server.lease("early"), [])


@test("who waits is answered when something is due, or when the wait is over")
def _():
    expect(server.lease("wait", wait="50ms"), [])
    found = []
    asker = threading.Thread(target=lambda: found.extend(server.lease("wait", wait="60s")))
    asker.start()
    make("wait", 1)
    asker.join()
    expect(len(found), 1)
    done(found)


@test("max is kept to; who asks first is served first")
def _():
    make("max", 10)
    got = []
    while len(got) < 10:
        part = server.lease("max", max=3, wait="10s")
        check(1 <= len(part) <= 3, f"at most three: {len(part)}")
        got += part
    expect(sorted(one["payload"] for one in got), list(range(10)))
    done(got)


@test("a lease that runs out: it comes again as the next attempt, and the old lease is worth nothing")
def _():
    make("expiry", 3)
    first = lease_all("expiry", 3, lease="30ms")
    second = lease_all("expiry", 3, lease="30s")
    expect(sorted(one["id"] for one in first), sorted(one["id"] for one in second))
    expect({one["attempt"] for one in second}, {2})
    late = done(first)
    expect((late["settled"], len(late["unknown"])), (0, 3))
    expect(done(second)["settled"], 3)
    await_(lambda: server.timers("expiry") == [], "they are gone")


@test("who lets leases run out too often: a dead letter")
def _():
    make("hopeless", 1, retry={"max_attempts": 2, "initial": "1ms"})
    for attempt in (1, 2):
        expect(lease_all("hopeless", 1, lease="10ms")[0]["attempt"], attempt)
    dead = await_(lambda: server.get("/v1/dead/hopeless").must(200)["timers"], "it is dead")
    expect(len(dead), 1)
    check("lease" in dead[0]["reason"], dead[0]["reason"])
    expect(server.lease("hopeless"), [])


@test("retry: it comes again, by the policy or not before `after`; too often: a dead letter")
def _():
    make("retry", 1, retry={"max_attempts": 3, "initial": "1ms"})
    for attempt, how in ((1, {}), (2, {"after": "20ms"}), (3, {})):
        one = lease_all("retry", 1)[0]
        expect(one["attempt"], attempt)
        before = now_ms()
        expect(done([one], result="retry", **how)["settled"], 1)
        if how:
            one = lease_all("retry", 1)[0]
            check(now_ms() >= before + 20, "not before")
            expect(one["attempt"], 3)
            expect(done([one], result="retry")["settled"], 1)
            break
    dead = await_(lambda: server.get("/v1/dead/retry").must(200)["timers"], "it is dead")
    expect((len(dead), dead[0]["attempt"]), (1, 3))


@test("again: it is scheduled anew, its attempts from the beginning")
def _():
    server.put("/v1/timers/again/x", {"after": "0s", "payload": "p"}).must(201)
    for _ in range(4):
        one = lease_all("again", 1)[0]
        expect((one["attempt"], one["payload"], one["name"]), (1, "p", "x"))
        done([one], result="again", after="5ms")
    one = lease_all("again", 1)[0]
    done([one], result="again", after="1h")
    await_(lambda: server.get("/v1/timers/again/x").must(200)["attempt"] == 0, "it waits for its next time")
    expect(server.lease("again"), [])
    expect(server.get("/v1/namespaces/again").must(200)["pending"], 1)


@test("dead: a dead letter at once; raised, it comes again")
def _():
    make("dead", 1)
    done(lease_all("dead", 1), result="dead")
    dead = await_(lambda: server.get("/v1/dead/dead").must(200)["timers"], "it is dead")[0]
    check(dead["reason"], "it has a reason")
    server.post(f"/v1/dead/dead/{dead['id']}/redrive").must(200)
    one = lease_all("dead", 1)[0]
    expect((one["payload"], one["attempt"]), (0, 1))
    done([one])


@test("extend: the lease ends so long from now, its token stays, and others of the same request run out")
def _():
    make("extend", 2)
    first = server.lease("extend", wait="10s", max=2, lease="400ms")
    while len(first) < 2:
        first += server.lease("extend", wait="10s", max=2, lease="400ms")
    kept, lost = first
    expect(done([kept], result="extend", after="1h"), {"settled": 0, "extended": 1, "unknown": []})
    again = lease_all("extend", 1)
    expect((again[0]["id"], again[0]["attempt"]), (lost["id"], 2))
    expect(done([kept, *again], result="extend", after="1h"), {"settled": 0, "extended": 2, "unknown": []})
    expect(done([lost], result="extend", after="1h"), {"settled": 0, "extended": 0, "unknown": [lost["lease"]]})
    expect(server.lease("extend"), [])
    expect(done([kept], result="extend", after="10ms")["extended"], 1)
    shorter = lease_all("extend", 1)
    expect((shorter[0]["id"], shorter[0]["attempt"]), (kept["id"], 2))
    expect(done([*shorter, *again]), {"settled": 2, "unknown": []})
    await_(lambda: server.timers("extend") == [], "they are gone")


@test("release: it comes again at once, and that was no attempt")
def _():
    make("release", 1, retry={"max_attempts": 2})
    for _ in range(5):
        one = lease_all("release", 1, lease="1h")[0]
        expect(one["attempt"], 1)
        expect(done([one], result="release"), {"settled": 0, "released": 1, "unknown": []})
        expect(done([one], result="release"), {"settled": 0, "released": 0, "unknown": [one["lease"]]})
    one = lease_all("release", 1)
    expect(one[0]["attempt"], 1)
    done(one)
    expect(server.get("/v1/dead/release").must(200)["timers"], [])


@test("one acknowledgement is the body itself")
def _():
    make("single", 1)
    one = lease_all("single", 1)[0]["lease"]
    expect(server.post("/v1/ack", {"lease": one, "result": "extend", "after": "30s"}).must(200),
           {"settled": 0, "extended": 1, "unknown": []})
    expect(server.post("/v1/ack", {"lease": one, "result": "release"}).must(200), {"settled": 0, "released": 1, "unknown": []})
    expect(server.post("/v1/ack", {"lease": one, "result": "release"}).must(200),
           {"settled": 0, "released": 0, "unknown": [one]})
    one = lease_all("single", 1)[0]["lease"]
    for bad, kind, field in (({"lease": one}, "invalid-field", "result"), ({"result": "done"}, "invalid-field", "lease"),
                             ({"lease": one, "result": "done", "ack": 1}, "unknown-field", "ack"),
                             ({"lease": one, "result": "done", "acks": []}, "unknown-field", "acks"),
                             ({"lease": one, "result": "done", "after": "1s"}, "invalid-field", "after"),
                             ({"lease": one, "result": "extend"}, "invalid-field", "after")):
        problem(server.post("/v1/ack", bad), 400, kind, field)
    expect(server.post("/v1/ack", {"lease": one, "result": "done"}).must(200), {"settled": 1, "unknown": []})


@test("acknowledgements that are wrong are refused as a whole")
def _():
    make("wrong", 2)
    found = lease_all("wrong", 2)
    good = {"lease": found[0]["lease"], "result": "done"}
    for bad, field in (({"lease": "x"}, "result"), ({"result": "done"}, "lease"), ({"lease": 1, "result": "done"}, "lease"),
                       ({"lease": "x", "result": "maybe"}, "result"), ({"lease": "x", "result": 1}, "result"),
                       ({"lease": "x", "result": "retry", "after": 5}, "after"),
                       ({"lease": "x", "result": "done", "after": "5s"}, "after"),
                       ({"lease": "x", "result": "dead", "after": "5s"}, "after"),
                       ({"lease": "x", "result": "release", "after": "5s"}, "after"),
                       ({"lease": "x", "result": "extend"}, "after"), ({"lease": "x", "result": "extend", "after": "25h"}, "after"),
                       ({"lease": "x", "result": "extend", "after": "0s"}, "after"), (1, "acks"), ([], "acks"), (None, "acks")):
        problem(server.post("/v1/ack", {"acks": [good, bad]}), 400, "invalid-field", field)
    problem(server.post("/v1/ack", {}), 400, "missing-field", "acks")
    problem(server.post("/v1/ack", {"acks": {}}), 400, "invalid-field", "acks")
    problem(server.post("/v1/ack", []), 400, "invalid-body")
    expect(done(found)["settled"], 2, "none of that has settled anything")
    expect(server.ack(), {"settled": 0, "unknown": []})
    strange = ["", "x", "0" * 28, "f" * 28, "\u00e9\"\\", "z" * 28, "F" * 28, "0" * 10000]
    expect(server.ack(*((lease, {"result": "done"}) for lease in strange)), {"settled": 0, "unknown": strange})


@test("leases that are wrong are refused")
def _():
    for body, field in (({"max": 0}, "max"), ({"max": 10001}, "max"), ({"max": "1"}, "max"), ({"max": 1.5}, "max"),
                        ({"wait": "61s"}, "wait"), ({"wait": 1}, "wait"), ({"wait": "x"}, "wait"), ({"lease": "0s"}, "lease"),
                        ({"lease": "25h"}, "lease"), ({"lease": 1}, "lease")):
        problem(server.post("/v1/lease/wrong", body), 400, "invalid-field", field)
    expect(server.post("/v1/lease/nobody").must(200), {"timers": []}, "everything has a default")


@test("who has leases cannot tell from them what the next will be")
def _():
    make("guess", 1024)
    numbers = [int(one["lease"][12:], 16) for one in lease_all("guess", 1024)]
    expect(len(set(numbers)), 1024)
    for shift in range(0, 64, 8):  # a generator that multiplies and adds repeats its low bits after a while
        digits = [number >> shift & 0xff for number in numbers]
        for period in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
            check(digits[period:] != digits[:-period], f"byte {shift // 8} repeats after {period}")


@test("two workers share the work, and nothing is done twice or left")
def _():
    seen, lock = [], threading.Lock()
    count = 3000

    def work():
        while True:
            part = server.lease("shared", max=100, wait="200ms")
            with lock:
                if not part and len(seen) >= count:
                    return
                seen.extend(one["id"] for one in part)
            if part:
                expect(done(part)["settled"], len(part))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    ids = make("shared", count)
    for worker in workers:
        worker.join()
    expect(len(seen), count, "nothing twice")
    expect(set(seen), set(ids))
    await_(lambda: server.timers("shared") == [], "nothing is left")


@test("who asks and goes takes nothing along")
def _():
    for n in range(10):
        connection = server.socket()
        body = b'{"wait":"60s","lease":"1h"}'
        connection.sendall(b"POST /v1/lease/goner HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        if n % 2:
            connection.close()
        else:
            connection.shutdown(1)
            connection.close()
    expect(server.lease("goner", wait="100ms"), [])
    ids = make("goner", 5)
    found = lease_all("goner", 5)
    expect(sorted(one["id"] for one in found), sorted(ids))
    done(found)


@test("a timer that waits to be leased can be cancelled, or has fired")
def _():
    server.put("/v1/timers/cancel/x", {"after": "0s"}).must(201)
    status = server.delete("/v1/timers/cancel/x").status
    check(status in (204, 409), f"answered {status}")
    found = server.lease("cancel", wait="200ms")
    expect(len(found), 0 if status == 204 else 1)
    done(found)


@test("a timer that is replaced while it is leased: the lease is the last of it, and the other is counted")
def _():
    def pending():
        return server.get("/v1/namespaces/replaced").must(200)["pending"]

    for result in ("done", "retry", "again", "dead"):
        server.put("/v1/timers/replaced/x", {"after": "0s", "payload": result}).must(201)
        old = server.lease("replaced", wait="60s")[0]
        server.put("/v1/timers/replaced/x", {"after": "1h", "payload": "new"}).must(200)
        expect(server.ack((old["lease"], {"result": result})), {"settled": 1, "unknown": []})
        expect(server.lease("replaced", wait="100ms"), [], f"nothing comes again after {result}")
        expect(server.get("/v1/timers/replaced/x").must(200)["payload"], "new")
        expect(pending(), 1, result)
        expect(server.get("/v1/dead/replaced").must(200)["timers"], [])
        server.delete("/v1/timers/replaced/x").must(204)
        expect(pending(), 0, result)


@test("leases are told in the metrics")
def _():
    check(server.metric("foliot_leased_total") > 3000, "leased")
    check(server.metric("foliot_acknowledged_total") > 3000, "acknowledged")


@test("a client that closes its sending direction while it waits for timers gets its answer at once")
def _():
    with server.socket() as client:
        client.sendall(b'POST /v1/lease/waits HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n{"wait":"60s"}')
        time.sleep(0.1)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(30)
        answer = b""
        while piece := client.recv(4096):
            answer += piece
    check(answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b'{"timers":[]}'), answer)
    make("waits", 1)
    done(lease_all("waits", 1))


run()
