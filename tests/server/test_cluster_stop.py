#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Servers of one PostgreSQL are stopped and started again, one after the other, under load: no request fails that another server
can serve. And stopping ends within stop-timeout, whatever is open."""

import collections
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import threading
import time

from e2e import PATIENCE, Receiver, Server, await_, check, comment, expect, run, test
from members import Cluster, Member, postgres, settled

ROUNDS = int(os.environ.get("FOLIOT_ROUNDS", "1"))


class Traffic:
    """Clients that send everything to any server that takes connections. A refused connection is tried at the next server, and a
    kept connection that was closed before the answer is tried again on a new one: every client has to do both."""

    def __init__(self, members):
        self.members = members
        self.failures, self.statuses = [], collections.Counter()
        self.going = True
        self.threads = []
        self.lock = threading.Lock()

    def connect(self, luck):
        for member in luck.sample(self.members, len(self.members)):
            connection = http.client.HTTPConnection(member.host, member.port, timeout=PATIENCE)
            with contextlib.suppress(ConnectionRefusedError):
                connection.connect()
                return connection
        raise AssertionError("no server takes connections")

    def ask(self, luck, kept, method, path, body=None):
        """Returns the status and the body; None: it failed, and that is noted."""
        text = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if text else {}
        for _ in range(10):
            fresh = kept[0] is None or kept[0].sock is None
            if fresh:
                kept[0] = self.connect(luck)
            begun = time.monotonic()
            try:
                kept[0].request(method, path, text, headers)
                answer = kept[0].getresponse()
                data = answer.read()
            except (ConnectionError, http.client.HTTPException) as error:
                port = kept[0].port
                kept[0] = None
                if not fresh:
                    continue
                return self.fail(f"{method} {path} at {port}: {error!r} after {time.monotonic() - begun:.3f} s")
            with self.lock:
                self.statuses[answer.status] += 1
            if answer.status >= 500:
                return self.fail(f"{method} {path} at {kept[0].port}: {answer.status} {data!r} after {time.monotonic() - begun:.3f} s")
            return answer.status, data
        return self.fail(f"{method} {path}: ten connections were closed")

    def fail(self, text):
        with self.lock:
            self.failures.append(text)

    def singles(self, luck, kept, turn):
        name = f"/v1/timers/single/{luck.randrange(1 << 40)}"
        self.ask(luck, kept, "PUT", name, {"after": "1h", "payload": turn})
        self.ask(luck, kept, "GET", name)
        self.ask(luck, kept, "PATCH", name, {"payload": 2})
        self.ask(luck, kept, "DELETE", name)

    def nameless(self, luck, kept, turn):
        self.ask(luck, kept, "POST", "/v1/timers/nameless", {"after": "1h"})
        self.ask(luck, kept, "GET", "/v1/timers/nameless?limit=5")
        self.ask(luck, kept, "GET", "/v1/namespaces/nameless")

    def batches(self, luck, kept, turn):
        lines = [{"op": "create", "namespace": "batch", "name": str(luck.randrange(1 << 40)), "after": "1h"} for _ in range(30)]
        answered = self.ask(luck, kept, "POST", "/v1/batch", "".join(json.dumps(line) + "\n" for line in lines).encode())
        if answered:
            answers = [json.loads(line) for line in answered[1].splitlines()]
            bad = [answer for answer in answers if not answer["ok"]]
            if len(answers) != len(lines) or bad:
                self.fail(f"a batch: {len(answers)} answers to {len(lines)} lines, {bad[:1]}")

    def leases(self, luck, kept, turn):
        self.ask(luck, kept, "POST", "/v1/timers/pull", {"after": "0s"})
        answered = self.ask(luck, kept, "POST", "/v1/lease/pull", {"max": 20, "wait": "1s"})
        taken = json.loads(answered[1])["timers"] if answered else []
        if taken:
            acks = [{"lease": one["lease"], "result": "done"} for one in taken]
            self.ask(luck, kept, "POST", "/v1/ack", {"acks": acks})

    def go(self, what, seed):
        luck, kept, turn = random.Random(seed), [None], 0
        try:
            while self.going:
                what(luck, kept, turn)
                turn += 1
                time.sleep(0.002)
        except Exception as error:  # the thread must not die unseen
            self.fail(repr(error))

    def __enter__(self):
        for seed in range(2):
            for what in (self.singles, self.nameless, self.batches, self.leases):
                self.threads.append(threading.Thread(target=self.go, args=(what, seed), daemon=True))
                self.threads[-1].start()
        return self

    def __exit__(self, kind, value, trace):
        self.going = False
        for thread in self.threads:
            thread.join(PATIENCE)


@test("servers are restarted one after the other under load, and no request fails")
def _():
    target = Receiver(lambda call: (time.sleep(0.2), 200)[1])
    cluster = Cluster(3, "--workers", "2")
    with cluster as members:
        lines = [{"op": "create", "namespace": "hooks", "name": f"h{i}", "after": f"{i * 20}ms", "target": target.url}
                 for i in range(500)]
        members[0].batch(lines)
        with Traffic(members) as traffic:
            time.sleep(0.5)
            for turn in range(ROUNDS):
                for member in members:
                    member.stop()
                    time.sleep(0.2)
                    member.start()
                    await_(member.ready, "ready again")
            time.sleep(0.5)
        comment(dict(traffic.statuses))
        check(sum(traffic.statuses.values()) > 200, "there was traffic")
        expect(traffic.failures[:10], [], f"{len(traffic.failures)} failures")


class Batch:
    """A batch whose end does not come."""

    def __init__(self, server):
        self.socket = server.socket()
        self.socket.sendall(b"POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.text = b""

    def send(self, line):
        data = json.dumps(line).encode() + b"\n"
        self.socket.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def read(self, until):
        """Until the text is there; None: until the end."""
        while until is None or until not in self.text:
            piece = self.socket.recv(65536)
            if not piece:
                check(until is None, f"{until} is in {self.text}")
                return
            self.text += piece


def stop_with_much_open(server, stop_timeout_s):
    """Returns how long it took. Times are compared with each other, never with what this machine can do."""
    hanging = threading.Event()
    target = Receiver(lambda call: 200 if hanging.wait(PATIENCE) else 200)
    server.put("/v1/timers/hang/h", {"after": "0s", "target": target.url}).must(201)
    target.await_calls(1)
    batch = Batch(server)
    batch.send({"op": "create", "namespace": "open", "name": "first", "after": "1h"})
    batch.read(b'"ok":true')
    polled = []
    poll = threading.Thread(target=lambda: polled.append(server.lease("open", wait="60s")), daemon=True)
    poll.start()
    time.sleep(0.2)
    begun = time.monotonic()
    server.signal(signal.SIGTERM)
    batch.read(None)
    expect(server.process.wait(PATIENCE), 0)
    taken = time.monotonic() - begun
    hanging.set()
    comment(f"stopped after {taken:.2f} s with stop-timeout {stop_timeout_s} s")
    check(b"urn:foliot:problem:stopping" in batch.text, f"the batch says why it ends: {batch.text}")
    check(batch.text.endswith(b"0\r\n\r\n"), "and ends in order")
    poll.join(PATIENCE)
    expect(polled, [[]])
    return taken


@test("with a hanging webhook, an open batch and a lease that waits, stopping takes stop-timeout once")
def _():
    check(stop_with_much_open(Server("--stop-timeout", "4s"), 4) < 7, "not twice as long")


@test("the same with several servers, and the others have the shards meanwhile")
def _():
    cluster = Cluster(2, "--stop-timeout", "4s")
    with cluster as members:
        leaving = members.pop(0)
        check(stop_with_much_open(leaving, 4) < 7, "not twice as long")
        cluster.settle()


run()
