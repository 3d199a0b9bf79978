#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Batches: an answer a line, in order, while the request still comes; whatever the lines, and whatever their number."""

import concurrent.futures
import json
import socket
import time

from e2e import Server, await_, check, expect, run, test

server = Server(shards=4)


class Stream:
    """A batch that is written and read piece by piece."""

    def __init__(self, chunked=True, length=None):
        self.socket = server.socket()
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}"
        self.socket.sendall(f"POST /v1/batch HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n".encode())
        self.file = self.socket.makefile("rb")
        self.chunked = chunked
        self.text = b""
        self.head = None

    def send(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        self.socket.sendall(b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data)

    def send_line(self, **line):
        self.send(json.dumps(line) + "\n")

    def end(self):
        self.socket.sendall(b"0\r\n\r\n")

    def read_head(self):
        self.head = b""
        while not self.head.endswith(b"\r\n\r\n"):
            byte = self.file.read(1)
            check(byte, f"the head ends: {self.head}")
            self.head += byte
        check(self.head.startswith(b"HTTP/1.1 200 "), self.head)

    def line(self):
        """The next answer; None at the end."""
        if self.head is None:
            self.read_head()
        while b"\n" not in self.text:
            size = int(self.file.readline(), 16)
            data = self.file.read(size)
            self.file.readline()
            if not data:
                check(not self.text, f"no half a line: {self.text}")
                return None
            self.text += data
        line, _, self.text = self.text.partition(b"\n")
        return json.loads(line)

    def close(self):
        self.file.close()
        self.socket.close()


def create(name=None, **fields):
    line = {"op": "create", "namespace": "batch", **({"name": name} if name else {}), "after": "1h", **fields}
    return {key: value for key, value in line.items() if value is not ...}


def kinds(answers):
    return ["ok" if answer["ok"] else answer["problem"]["type"].rsplit(":", 1)[1] for answer in answers]


@test("create, update and cancel, mixed, in order")
def _():
    due = {"after": ..., "due": "2030-01-01T00:00:00Z"}
    answers = server.batch([
        create("a", payload=1, **due), create("a", payload=1, **due), create("a", payload=2), create("a", only_new=True),
        {"op": "update", "namespace": "batch", "name": "a", "payload": 3}, create("b"), create(),
        {"op": "cancel", "namespace": "batch", "name": "b"}, {"op": "cancel", "namespace": "batch", "name": "b"},
        {"op": "update", "namespace": "batch", "name": "b", "payload": 3}, create("b", payload="again"),
    ])
    expect(kinds(answers), ["ok", "ok", "ok", "exists", "ok", "ok", "ok", "ok", "not-found", "not-found", "ok"])
    check(answers[0]["id"] == answers[1]["id"], "the same timer")
    expect(server.get("/v1/timers/batch/a").must(200)["payload"], 3)
    expect(server.get("/v1/timers/batch/b").must(200)["payload"], "again")
    nameless = answers[6]["id"]
    expect(server.get("/v1/timers/batch/" + nameless).must(200)["id"], nameless)
    for op in ("update", "cancel"):
        expect(kinds(server.batch([{"op": op, "namespace": "batch", "id": nameless}])), ["ok"])
    expect(server.get("/v1/timers/batch/" + nameless).status, 404)


@test("lines that are wrong have an answer each, and the others are done")
def _():
    wrong = [
        ("{", "invalid-json", None), ("x", "invalid-json", None), ("[]", "invalid-body", None), ("null", "invalid-body", None),
        ("{}", "missing-field", "op"), ({"op": "create"}, "missing-field", "namespace"),
        ({"op": "create", "namespace": "w"}, "missing-field", "due"),
        ({"op": "destroy", "namespace": "w"}, "invalid-field", "op"), ({"op": 1}, "invalid-field", "op"),
        ({"op": "create", "namespace": "", "after": "1h"}, "invalid-field", "namespace"),
        ({"op": "create", "namespace": "w", "name": "x" * 256, "after": "1h"}, "invalid-field", "name"),
        ({"op": "create", "namespace": "w", "name": "a\u0000", "after": "1h"}, "invalid-field", "name"),
        ({"op": "create", "namespace": "w", "id": "x", "after": "1h"}, "invalid-field", "id"),
        ({"op": "create", "namespace": "w", "after": "1h", "due": 1900000000000}, "invalid-field", "after"),
        ({"op": "create", "namespace": "w", "after": "1h", "only_new": 1}, "invalid-field", "only_new"),
        ({"op": "create", "namespace": "w", "after": "1h", "nonsense": 1}, "unknown-field", "nonsense"),
        ({"op": "update", "namespace": "w"}, "missing-field", "name"),
        ({"op": "update", "namespace": "w", "name": "a", "id": "b"}, "missing-field", "name"),
        ({"op": "update", "namespace": "w", "name": "a", "only_new": True}, "unknown-field", "only_new"),
        ({"op": "cancel", "namespace": "w", "name": "a", "after": "1h"}, "unknown-field", "after"),
        ({"op": "cancel", "namespace": "w", "id": "nonsense"}, "not-found", None),
        ({"op": "cancel", "namespace": "w", "name": "nobody"}, "not-found", None),
        ({"op": "create", "namespace": "w", "after": "1h", "payload": "x" * 300_000}, "too-large", "payload"),
    ]
    lines = [line for n, (text, _, _) in enumerate(wrong)
             for line in (text, {"op": "create", "namespace": "right", "name": str(n), "after": "1h"})]
    answers = server.batch(lines)
    expect(len(answers), len(lines))
    for (text, kind, field), answer, good in zip(wrong, answers[::2], answers[1::2]):
        expect(answer["ok"], False, text)
        expect(answer["problem"]["type"], "urn:foliot:problem:" + kind, text)
        expect(answer["problem"].get("field"), field, text)
        check(answer["problem"]["detail"] and answer["problem"]["status"] >= 400, "it says why")
        expect(good["ok"], True)
    expect(server.timers("w"), [])
    expect(len(server.timers("right")), len(wrong))


@test("blank lines are nothing, the last line needs no end, and CRLF ends a line too")
def _():
    text = "\n \n" + json.dumps(create("c1")) + "\r\n\r\n\n" + json.dumps(create("c2"))
    answer = server.post("/v1/batch", text)
    expect(answer.status, 200)
    expect(answer.headers["content-type"], "application/x-ndjson")
    expect(kinds(answer.lines), ["ok", "ok"])
    for empty in ("", "\n", "\n\n  \n"):
        answer = server.post("/v1/batch", empty)
        expect((answer.status, answer.body), (200, b""))


@test("answers come while the request still does")
def _():
    stream = Stream()
    for n in range(50):
        stream.send_line(**create(f"s{n}"))
        expect(stream.line()["ok"], True)
    half = json.dumps(create("half"))
    stream.send(half[:20])
    expect(server.get("/v1/timers/batch/half").status, 404)
    stream.send(half[20:] + "\n" + "nonsense\n")
    expect([stream.line()["ok"], stream.line()["ok"]], [True, False])
    server.get("/v1/timers/batch/half").must(200)
    stream.end()
    expect(stream.line(), None)
    stream.close()


@test("a hundred thousand lines")
def _():
    count = 100_000
    text = "".join(f'{{"op":"create","namespace":"many","name":"n{n}","after":"1h"}}\n' for n in range(count))
    answer = server.post("/v1/batch", text)
    expect(answer.status, 200)
    answers = answer.lines
    expect(len(answers), count)
    check(all(line["ok"] for line in answers), "all were made")
    expect(len({line["id"] for line in answers}), count)
    expect(server.get("/v1/namespaces/many").must(200)["pending"], count)
    for n in (0, 1, count // 2, count - 1):
        expect(server.get(f"/v1/timers/many/n{n}").must(200)["id"], answers[n]["id"], "answers are in order")
    expect(server.delete("/v1/timers/many?all=true").must(200)["cancelled"], count)


@test("a line too long is answered, and those after it are done")
def _():
    stream = Stream()
    stream.send_line(**create("before"))
    expect(stream.line()["ok"], True)
    for _ in range(40):
        stream.send("x" * 100_000)
    expect(kinds([stream.line()]), ["too-large"])
    for _ in range(40):
        stream.send("x" * 100_000)
    stream.send("\n")
    stream.send_line(**create("after"))
    expect(stream.line()["ok"], True)
    stream.send("y" * 3_000_000)
    stream.end()
    expect(kinds([stream.line()]), ["too-large"])
    expect(stream.line(), None)
    stream.close()


@test("long lines that are allowed go through")
def _():
    lines = [create(f"long{n}", payload="p" * 250_000) for n in range(40)]
    expect(kinds(server.batch(lines)), ["ok"] * 40)
    expect(len(server.get("/v1/timers/batch/long39").must(200)["payload"]), 250_000)


@test("who goes in the middle leaves whole lines, and the server")
def _():
    for n in range(30):
        stream = Stream(chunked=n % 2 == 0, length=1_000_000)
        stream.send("".join(json.dumps({"op": "create", "namespace": "gone", "name": f"{n}-{k}", "after": "1h"}) + "\n"
                            for k in range(200)) + '{"op":"create","namespace":"gone","name":"half')
        if n % 3 == 0:
            stream.line()
        if n % 3 == 1:
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        stream.close()
    names = {one["name"] for one in server.timers("gone", limit=10000)}
    check("half" not in names, "no half a line")
    expect(server.get("/healthz").status, 200)
    expect(kinds(server.batch([create("alive")])), ["ok"])


@test("who does not read the answers is not read from either")
def _():
    stream = Stream()
    stream.socket.settimeout(1)
    line = (json.dumps({"op": "cancel", "namespace": "nobody", "name": "x"}) + "\n").encode() * 2000
    sent = 0
    try:
        while sent < 400_000_000:
            stream.send(line)
            sent += len(line)
    except socket.timeout:
        pass
    check(sent < 400_000_000, "at some point it takes no more")
    expect(server.get("/healthz").status, 200)
    stream.close()
    await_(lambda: server.get("/healthz").status == 200, "it lives")


@test("two batches at once, on the same timers, are in order each")
def _():
    one, two = Stream(), Stream()
    for n in range(100):
        one.send_line(**create("race", payload=n))
        two.send_line(**create("race", payload=-n))
    for stream in (one, two):
        stream.end()
        expect([stream.line()["ok"] for _ in range(100)], [True] * 100)
        expect(stream.line(), None)
        stream.close()
    check(server.get("/v1/timers/batch/race").must(200)["payload"] in (99, -99), "the last of one of them")


@test("a namespace that is full: lines about one timer take effect in order")
def _():
    with Server("--max-timers-per-namespace", "10") as small:
        def line(op, name, **fields):
            return {"op": op, "namespace": "full", "name": name, **({"after": "1h"} if op == "create" else {}), **fields}

        expect(kinds(small.batch([line("create", f"n{i}") for i in range(10)])), ["ok"] * 10, "exactly as many as allowed")
        expect(kinds(small.batch([line("create", "x")])), ["namespace-full"])
        for _ in range(5):
            expect(kinds(small.batch([line("cancel", "n0"), line("create", "n0", payload=1)])), ["ok"] * 2)
        expect(kinds(small.batch([line("cancel", "n0"), line("create", "x"), line("create", "y"), line("cancel", "x"),
                                  line("create", "y"), line("create", "y", payload=2), line("create", "z")])),
               ["ok", "ok", "namespace-full", "ok", "ok", "ok", "namespace-full"])
        expect(sorted(timer["name"] for timer in small.timers("full")), sorted([f"n{i}" for i in range(1, 10)] + ["y"]))
        small.delete("/v1/timers/full?all=true").must(200)
        for names in ([f"a{i % 10}" for i in range(3000)], [f"b{i % 10}" for i in range(3000)]):
            lines = [line("create", name, payload=n) for n, name in enumerate(names)]
            expect(set(kinds(small.batch(lines))), {"ok"}, "the same ten again and again")
            expect(len(small.timers("full")), 10)
            expect(set(kinds(small.batch([line("cancel", name) for name in set(names)]))), {"ok"})


@test("a namespace is filled to its limit exactly by those who come at once")
def _():
    with Server("--max-timers-per-namespace", "200", shards=4) as small:
        for n in range(5):
            with concurrent.futures.ThreadPoolExecutor(20) as crowd:
                statuses = list(crowd.map(lambda i, n=n: small.put(f"/v1/timers/exact{n}/t{i}", {"after": "1h"}).status, range(200)))
            expect(statuses.count(201), 200)
            lines = [{"op": "create", "namespace": f"lines{n}", "name": f"t{i}", "after": "1h"} for i in range(200)]
            parts = [lines[k::10] for k in range(10)]
            with concurrent.futures.ThreadPoolExecutor(10) as crowd:
                answers = [answer for part in crowd.map(small.batch, parts) for answer in part]
            expect(kinds(answers), ["ok"] * 200)


@test("a batch may come as slowly as it likes; one that does not come for body-timeout ends with a line that says so")
def _():
    def send(connection, line):
        connection.sendall(b"%x\r\n%s\n\r\n" % (len(line) + 1, line))

    line = b'{"op":"create","namespace":"drip","after":"1h"}'
    with Server("--body-timeout", "4s") as server:
        connection = server.socket()
        connection.sendall(b"POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(7):  # 25 bytes per second, for longer than a rate is measured
            send(connection, line)
            time.sleep(2)
        found = b""
        while piece := connection.recv(65536):
            found += piece
        expect(found.count(b'"ok":true'), 7, found)
        check(b"urn:foliot:problem:request-timeout" in found and found.endswith(b"0\r\n\r\n"), f"{found} says why")


run()
