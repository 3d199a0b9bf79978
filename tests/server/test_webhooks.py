#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Webhooks: what is sent, to receivers that are slow, fail, hang, redirect, close early, or ask to be called again."""

import base64
import email.utils
import ipaddress
import json
import os
import socket
import subprocess
import threading
import time

from e2e import (PATIENCE, SOURCE, Receiver, Server, Skip, await_, check, cleanups, expect, microseconds, npm, now_ms, problem, run, test)

server = Server("--retry-initial", "10ms", "--retry-multiplier", "1", shards=2)
SECRET, OLD_SECRET = ("whsec_" + base64.b64encode(bytes([n]) * 32).decode() for n in (7, 8))


def fire(receiver, namespace="hooks", path="", **fields):
    url = receiver if isinstance(receiver, str) else receiver.url
    return server.post(f"/v1/timers/{namespace}", {"after": "0s", "target": url + path, **fields}).must(201)


def await_gone(made):
    await_(lambda: server.get(f"/v1/timers/{made['namespace']}/{made['id']}").status == 404, "it is settled")


def await_dead(made):
    path = f"/v1/dead/{made['namespace']}/{made['id']}"
    await_(lambda: server.get(path).status == 200, "it is dead")
    return server.get(path).json


# --- What is sent -----------------------------------------------------------------------------------------------------


@test("a delivery is a POST of the payload, with what it is about")
def _():
    receiver = Receiver()
    given = '{"b":1.0,"a":"\\u00fc\\n"}'
    text = f'{{"after":"0s","target":"{receiver.url}/path?query=1","headers":{{"X-Mine":"yes"}},"payload":{given}}}'
    made = server.post("/v1/timers/sent", text).must(201)
    call = receiver.await_calls(1)[0]
    expect((call.method, call.path), ("POST", "/path?query=1"))
    expect(call.body, given.encode(), "the payload as it came")
    expect(call.headers["content-type"], "application/json")
    expect(call.headers["x-mine"], "yes")
    expect(call.headers["webhook-id"], made["id"])
    expect(call.headers["foliot-attempt"], "1")
    expect(call.headers["foliot-due"], made["due"])
    check(abs(int(call.headers["webhook-timestamp"]) - time.time()) < 60, "the timestamp is in seconds, and now")
    check(call.at_us >= microseconds(made["due"]), "never early")
    check(call.headers["webhook-signature"] is None, "there is no secret, so no signature")
    check(call.headers["user-agent"].startswith("Foliot/") or call.headers["user-agent"].startswith("foliot/"), "who calls")


@test("bytes go as they are, nothing as nothing, and a large payload whole")
def _():
    receiver = Receiver()
    for fields, body in (({"payload_base64": "AP8="}, b"\0\xff"), ({}, b""), ({"payload": "x" * 250_000}, b'"' + b"x" * 250_000 + b'"')):
        await_gone(fire(receiver, **fields))
        expect(receiver.calls[-1].body, body)
    expect(receiver.calls[0].headers["content-type"], "application/octet-stream")


@test("signatures are what Standard Webhooks' own verifier wants, with one secret and with two")
def _():
    package = npm("standardwebhooks@1.0.0")
    verifier = subprocess.Popen(["node", os.path.join(SOURCE, "tests/server/verify.mjs"), package], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)
    cleanups.callback(verifier.kill)

    def verdict(secret, call, body=None):
        line = {"secret": secret, "headers": {name.lower(): value for name, value in call.headers.items()},
                "body": base64.b64encode(call.body if body is None else body).decode()}
        verifier.stdin.write(json.dumps(line) + "\n")
        verifier.stdin.flush()
        return verifier.stdout.readline().strip()

    receiver = Receiver()
    payloads = [{"a": 1}, "Grüße \U0001f570", [], 0, None, "x" * 100_000]
    for secrets in ([SECRET], [SECRET, OLD_SECRET], [OLD_SECRET]):
        server.put("/v1/namespaces/signed", {"secrets": secrets}).must(200)
        for payload in payloads:
            await_gone(fire(receiver, "signed", payload=payload))
            call = receiver.calls[-1]
            expect(len(call.headers["webhook-signature"].split()), len(secrets))
            for secret in (SECRET, OLD_SECRET):
                expect(verdict(secret, call) == "ok", secret in secrets, f"{payload!r} with {secrets.index(secret) if secret in secrets else 'another'}")
            check(verdict(secrets[0], call, call.body + b" ") != "ok", "what was changed is not good")
    verifier.stdin.close()
    expect(verifier.wait(60), 0)


# --- What is answered -------------------------------------------------------------------------------------------------


@test("408, 425, 429 and 5xx are tried again, with the next attempt's number and the same ID")
def _():
    for status in (408, 425, 429, 500, 502, 503, 504, 599):
        receiver = Receiver(lambda call, status=status: 200 if call.headers["foliot-attempt"] == "3" else status)
        made = fire(receiver, payload=status)
        await_gone(made)
        expect([call.headers["foliot-attempt"] for call in receiver.calls], ["1", "2", "3"], status)
        expect({call.headers["webhook-id"] for call in receiver.calls}, {made["id"]})
        expect({call.headers["foliot-due"] for call in receiver.calls}, {made["due"]})


@test("other 4xx are dead at once, and say so")
def _():
    for status in (400, 401, 403, 404, 405, 410, 413, 422, 451):
        receiver = Receiver(lambda call, status=status: status)
        dead = await_dead(fire(receiver))
        expect(len(receiver.calls), 1)
        check(str(status) in dead["reason"], dead["reason"])


@test("any 2xx is done, whatever is in it")
def _():
    for answer in (200, 201, 202, 204, (200, {}, "{"), (200, {}, "x" * 10_000_000), (200, {"Content-Type": "application/json"}, "[]"),
                   (200, {"Content-Type": "application/json"}, '{"other":1}'), (200, {"Content-Type": "text/html"}, "<p>")):
        receiver = Receiver(lambda call, answer=answer: answer)
        await_gone(fire(receiver))
        expect(len(receiver.calls), 1)


@test("attempts come to an end: a dead letter that says why")
def _():
    receiver = Receiver(lambda call: 503)
    dead = await_dead(fire(receiver, retry={"max_attempts": 3, "initial": "1ms"}))
    expect((len(receiver.calls), dead["attempt"]), (3, 3))
    check("503" in dead["reason"], dead["reason"])


@test("nobody there: tried again, then dead")
def _():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = await_dead(fire(f"http://127.0.0.1:{unused.getsockname()[1]}/", retry={"max_attempts": 3, "initial": "1ms"}))
    expect(dead["attempt"], 3)
    check(dead["reason"], "it says why")


@test("who takes longer than the timeout is tried again; who is slow but in time is not")
def _():
    go = threading.Event()
    receiver = Receiver(lambda call: 200 if call.headers["foliot-attempt"] != "1" else go.wait(100) and 200)
    await_gone(fire(receiver, timeout="100ms"))
    go.set()
    expect([call.headers["foliot-attempt"] for call in receiver.calls], ["1", "2"])
    slow = Receiver(lambda call: time.sleep(0.3) or 200)
    await_gone(fire(slow, timeout="1m"))
    expect(len(slow.calls), 1)


@test("who closes the connection without an answer is tried again")
def _():
    receiver = Receiver(lambda call: None if call.headers["foliot-attempt"] == "1" else 200)
    await_gone(fire(receiver))
    expect(len(receiver.calls), 2)


class Rude:
    """Sends bytes of which it says nothing else, a text for each connection, and closes it."""

    def __init__(self, *texts):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.count = 0
        threading.Thread(target=self.serve, args=(texts,), daemon=True).start()

    def serve(self, texts):
        while True:
            connection, _ = self.listener.accept()
            text = texts[min(self.count, len(texts) - 1)]
            self.count += 1
            connection.recv(65536)
            connection.sendall(text)
            connection.close()


@test("half an answer, or none that is HTTP, is no answer")
def _():
    done = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
    for rude in (b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Le", b"220 smtp.example.com\r\n", b"\0" * 100, b"",
                 b"HTTP/1.1 2000 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 500_000):
        receiver = Rude(rude, done)
        await_gone(fire(receiver))
        expect(receiver.count, 2, rude[:40])
    receiver = Rude(b"HTTP/1.1 100 Continue\r\n\r\n" + done)
    await_gone(fire(receiver))
    expect(receiver.count, 1)


# --- Elsewhere, and again ---------------------------------------------------------------------------------------------


@test("redirects: the same POST goes there; 303 is dead; a circle ends")
def _():
    there = Receiver()
    server.put("/v1/namespaces/moved", {"secrets": [SECRET]}).must(200)
    for status in (301, 302, 307, 308):
        here = Receiver(lambda call, status=status: (status, {"Location": there.url + "/new"}, b""))
        before = len(there.calls)
        await_gone(fire(here, "moved", payload={"n": status}, headers={"x-secret": "s"}))
        call = there.await_calls(before + 1)[-1]
        expect((call.method, call.path, call.json), ("POST", "/new", {"n": status}))
        check(call.headers["webhook-signature"] is None and call.headers["x-secret"] is None, "no secrets go to another host")
        check(here.calls[0].headers["webhook-signature"], "but the signature to this one")
    same = Receiver(lambda call: 200 if call.path == "/there" else (307, {"Location": "/there"}, b""))
    await_gone(fire(same, "moved", payload=1))
    expect([call.path for call in same.calls], ["/", "/there"])
    check(same.calls[1].headers["webhook-signature"], "the same host gets it")
    other = Receiver(lambda call: (303, {"Location": there.url}, b""))
    await_dead(fire(other))
    circle = Receiver(lambda call: (307, {"Location": "/again"}, b""))
    await_dead(fire(circle, retry={"max_attempts": 1}))
    check(2 <= len(circle.calls) <= 20, f"{len(circle.calls)} calls")


@test("again_after and again_at: it fires again then, as a first attempt, and each time under an ID of its own")
def _():
    def answer(call):
        turn = len(receiver.calls)
        if turn == 1:
            return 200, {"Content-Type": "application/json"}, '{"again_after":"30ms"}'
        if turn == 2:
            at.append(now_ms() + 50)
            return 200, {"Content-Type": "application/json"}, json.dumps({"again_at": at[0]})
        return 200

    at = []
    receiver = Receiver(answer)
    made = fire(receiver, payload="p")
    calls = receiver.await_calls(3)
    await_gone(made)
    expect([call.headers["foliot-attempt"] for call in calls], ["1", "1", "1"])
    ids = [call.headers["webhook-id"] for call in calls]
    expect(ids[0], made["id"])
    expect((len(set(ids)), [one[:26] for one in ids]), (3, [made["id"]] * 3), "each firing has an ID of its own")
    check(calls[1].at_us >= calls[0].at_us + 30_000, "not before again_after")
    check(calls[2].at_us >= at[0] * 1000, "not before again_at")
    expect(calls[2].headers["foliot-due"][:-1][:19], time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at[0] / 1000)))


@test("retries of a firing that comes again keep its ID")
def _():
    def answer(call):
        with receiver.lock:
            turn = len(receiver.calls)
        return {1: (200, {"Content-Type": "application/json"}, '{"again_after":"10ms"}'), 2: 503}.get(turn, 200)

    receiver = Receiver(answer)
    await_gone(fire(receiver))
    ids = [call.headers["webhook-id"] for call in receiver.calls]
    expect((len(ids), ids[1] == ids[2], ids[0] == ids[1]), (3, True, False))


@test("a timer that is fired early and comes again before its first due time: each firing has an ID of its own")
def _():
    receiver = Receiver(lambda call: (200, {"Content-Type": "application/json"}, '{"again_after":"10ms"}')
                        if len(receiver.calls) < 4 else 200)
    made = server.post("/v1/timers/hooks", {"after": "1h", "target": receiver.url}).must(201)
    server.post(f"/v1/timers/hooks/{made['id']}/fire").must(200)
    await_gone(made)
    ids = [call.headers["webhook-id"] for call in receiver.calls]
    expect((len(ids), len(set(ids))), (4, 4), "IDs of firings")


@test("no two firings share an ID, over retries, crashes and restarts, and each ID has attempts 1, 2, 3 …")
def _():
    def answer(call):
        with receiver.lock:
            turn = len(receiver.calls)
        return 503 if turn % 3 == 0 else (200, {"Content-Type": "application/json"}, '{"again_after":"20ms"}')

    receiver = Receiver(answer)
    with Server() as own:
        own.put("/v1/timers/a/x", {"after": "0s", "target": receiver.url, "retry": {"initial": "10ms"}}).must(201)
        for end in (own.kill, own.stop):
            receiver.await_calls(len(receiver.calls) + 7)
            end()
            own.start()
        receiver.await_calls(len(receiver.calls) + 7)
        own.kill()  # it is not called while the calls are looked at
    firings = {}
    for call in receiver.calls:
        firings.setdefault(call.headers["webhook-id"], []).append(call)
    check(len(firings) > 12, f"{len(firings)} firings of {len(receiver.calls)} calls")
    for calls in firings.values():
        expect(len({call.headers["foliot-due"] for call in calls}), 1, "one firing has one due time")
        attempts = [int(call.headers["foliot-attempt"]) for call in calls]
        check(set(attempts) == set(range(1, max(attempts) + 1)), f"attempts {attempts}")  # a crash may repeat one
    expect(len({calls[0].headers["foliot-due"] for calls in firings.values()}), len(firings), "and another due time")


@test("an attempt that a crash cuts off counts, so that max_attempts is reached")
def _():
    hanging = threading.Event()
    receiver = Receiver(lambda call: hanging.wait(PATIENCE) and 200)
    with Server("--record-interval", "50ms", shards=1) as own:
        log = os.path.join(own.store.removeprefix("sqlite:"), "shard-0000.db-wal")
        made = own.post("/v1/timers/cut", {"after": "0s", "target": receiver.url, "retry": {"max_attempts": 3, "initial": "1ms"}}).must(201)
        for attempt in (1, 2, 3):
            began_us = receiver.await_calls(attempt)[-1].at_us
            await_(lambda began_us=began_us: os.stat(log).st_mtime_ns > began_us * 1000, "something is recorded")
            time.sleep(0.5)  # the record after that, should this one have been on its way
            own.kill()
            own.start()
        dead = await_(lambda: own.get(f"/v1/dead/cut/{made['id']}").status == 200 and own.get(f"/v1/dead/cut/{made['id']}").json, "dead")
        check("stopped before the attempt ended" in dead["reason"], dead)
    expect(([int(call.headers["foliot-attempt"]) for call in receiver.calls], dead["attempt"]), ([1, 2, 3], 3))
    expect(len({call.headers["webhook-id"] for call in receiver.calls}), 1, "one firing")
    hanging.set()


@test("Retry-After is honoured, in seconds and as a date")
def _():
    for value in ("1", lambda: email.utils.formatdate(time.time() + 1.999, usegmt=True)):
        stamps = []

        def answer(call, value=value, stamps=stamps):
            if call.headers["foliot-attempt"] != "1":
                return 200
            text = value if isinstance(value, str) else value()
            date = email.utils.parsedate_to_datetime(text).timestamp() if not isinstance(value, str) else time.time() + 1
            stamps.append(date)
            return 429, {"Retry-After": text}, b""

        receiver = Receiver(answer)
        await_gone(fire(receiver))
        expect(len(receiver.calls), 2)
        check(receiver.calls[1].at_us >= (stamps[0] - 0.001) * 1_000_000, "not before it was asked to")


# --- Who gets how much ------------------------------------------------------------------------------------------------


@test("a host that hangs takes its own share: the others are served while it does")
def _():
    go = threading.Event()
    hanging = Receiver(lambda call: go.wait(100) and 200)
    prompt = Receiver()
    with Server("--webhook-concurrency", "8", "--webhook-per-host", "4", "--webhook-timeout", "90s", "--workers", "1") as small:
        lines = [{"op": "create", "namespace": "h", "after": "0s", "payload": n, "target": hanging.url} for n in range(500)]
        small.batch(lines)
        hanging.await_calls(1)
        lines = [{"op": "create", "namespace": "p", "after": "0s", "payload": n, "target": prompt.url} for n in range(300)]
        small.batch(lines)
        calls = prompt.await_calls(300)
        check(not go.is_set() and len(hanging.calls) <= 4, f"no more than its share: {len(hanging.calls)}")
        expect(sorted(call.json for call in calls), list(range(300)))
        go.set()
        await_(lambda: len({call.json for call in list(hanging.calls)}) == 500, "then those that waited come")


@test("a namespace's limit of attempts per second is kept")
def _():
    receiver = Receiver()
    server.put("/v1/namespaces/paced", {"max_rate": 50}).must(200)
    server.batch([{"op": "create", "namespace": "paced", "after": "0s", "payload": n, "target": receiver.url} for n in range(80)])
    calls = receiver.await_calls(80)
    stamps = sorted(call.at_us for call in calls)
    check(stamps[-1] - stamps[0] >= 1_000_000, f"80 at 50 a second took {stamps[-1] - stamps[0]} us")
    expect(sorted(call.json for call in calls), list(range(80)))


@test("a crowd of one moment is spread, and nobody is early or lost")
def _():
    receiver = Receiver()
    server.put("/v1/namespaces/spread", {"spread": "1s"}).must(200)
    due = now_ms() + 300
    server.batch([{"op": "create", "namespace": "spread", "due": due, "payload": n, "target": receiver.url} for n in range(100)])
    calls = receiver.await_calls(100)
    expect(sorted(call.json for call in calls), list(range(100)))
    check(all(call.at_us >= due * 1000 for call in calls), "none is early")
    late = sum(call.at_us >= due * 1000 + 300_000 for call in calls)
    check(late >= 30, f"{late} of 100 came in the last seven tenths")


# --- Where it may go --------------------------------------------------------------------------------------------------


@test("targets that are private are refused unless they are allowed, by address and by name")
def _():
    with Server("--retry-initial", "10ms", private=False) as strict:
        for host in ("127.0.0.1", "127.1.2.3", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "0.0.0.0", "[::1]",
                     "[fe80::1]", "[fc00::1]", "[::ffff:127.0.0.1]", "[::]", "100.64.0.1", "2130706433", "0x7f000001",
                     "localhost", "127.1", "224.0.0.1", "255.255.255.255", "[64:ff9b::7f00:1]"):
            for target in (f"http://{host}:{strict.port}/", f"http://{host}/echo"):
                answer = strict.post("/v1/timers/strict", {"after": "0s", "target": target})
                found = problem(answer, 400, "invalid-field", "target")
                check("--allow-private-targets" in found["detail"], found)
            line = strict.batch([{"op": "create", "namespace": "strict", "after": "0s", "target": f"http://{host}/"}])[0]
            expect((line["ok"], not line["ok"] and line["problem"]["field"]), (False, "target"))
            expect(strict.logged("echo received a callback"), None)


@test("the server's own /echo may be called, and nothing else of it, on the same connection or by a redirect")
def _():
    with Server("--retry-initial", "10ms", private=False) as strict:
        for host in ("127.0.0.1", "localhost"):
            strict.put(f"/v1/timers/own/{host}", {"after": "0s", "target": f"http://{host}:{strict.port}/echo", "payload": host}).must(201)
            strict.await_log(f'\\"{host}\\"')
        for target in (f"http://127.0.0.1:{strict.port}/v1/timers/own", f"http://127.0.0.1:{strict.port}/echo/../v1/ack",
                       f"http://127.0.0.1:{strict.port}/echo?a", f"http://127.0.0.1:{strict.port + 1}/echo",
                       f"http://127.0.0.2:{strict.port}/echo", f"HTTP://127.0.0.1:{strict.port}/echo"):
            problem(strict.post("/v1/timers/own", {"after": "0s", "target": target}), 400, "invalid-field", "target")
        strict.options.append("--no-echo")
        strict.restart()
        problem(strict.post("/v1/timers/own", {"after": "0s", "target": strict.url + "/echo"}), 400, "invalid-field", "target")


@test("a name that leads to a private address is found out when it is called")
def _():
    name = socket.gethostname()
    try:
        address = ipaddress.ip_address(socket.gethostbyname(name))
    except OSError:
        address = None
    if not address or address.is_global or not all(part.isalnum() for part in name.replace("-", "").split(".")):
        raise Skip("this machine has no name that leads to a private address")
    with Server(private=False) as strict:
        made = strict.post("/v1/timers/strict", {"after": "0s", "target": f"http://{name}:{strict.port}/echo"}).must(201)
        path = f"/v1/dead/strict/{made['id']}"
        await_(lambda: strict.get(path).status == 200, "it is dead")
        check("Internet" in strict.get(path).json["reason"], strict.get(path).json["reason"])
        expect(strict.logged("echo received a callback"), None)


@test("the last attempt that is allowed is one call, even if a kept connection is closed without an answer")
def _():
    receiver = Receiver(lambda call: 200 if call.json == "first" else None)
    for n in range(3):
        server.put(f"/v1/timers/once/first{n}", {"after": "0s", "target": receiver.url, "payload": "first"}).must(201)
        receiver.await_calls(2 * n + 1)
        await_(lambda: server.timers("once") == [], "it is done")
        server.put(f"/v1/timers/once/x{n}", {"after": "0s", "target": receiver.url, "payload": n, "retry": {"max_attempts": 1}}).must(201)
        await_(lambda n=n: len(server.get("/v1/dead/once").must(200)["timers"]) == n + 1, "it is dead")
        expect([call.json for call in receiver.calls].count(n), 1)


run()
