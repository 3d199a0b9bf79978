#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A server with many shards on the machine's own clock: SHARDS on STORE (the arguments), for FOLIOT_SECONDS (default: 3).

Each shard has several timers, spread over the whole time. All of them fire and none is early. Meanwhile every worker
answers: each round asks on new connections, which the workers share. At the end the server stops when it is asked to.
"""

import json
import os
import random
import sys
import threading
import time

from e2e import Client, Postgres, Receiver, Server, await_, check, comment, expect, now_ms, run, test

STORE, SHARDS = sys.argv[1], int(sys.argv[2])
SECONDS = float(os.environ.get("FOLIOT_SECONDS", "3"))
PER_SHARD = 4
CONNECTIONS = 16  # so many that no worker is without one

sys.argv[1:] = []


def make(server, receiver, luck):
    """Timers with random names, which every shard gets some of; returns when each is due."""
    begin_ms = now_ms()
    due = {f"t{i}": begin_ms + int(luck.random() * SECONDS * 1000) for i in range(PER_SHARD * SHARDS)}
    answers = server.batch({"op": "create", "namespace": "shards", "name": name, "due": due_ms, "target": receiver.url,
                            "payload": {"name": name}} for name, due_ms in due.items())
    expect([answer for answer in answers if "id" not in answer], [])
    return due


def every_worker_answers(server):
    clients = [Client(server.host, server.port) for _ in range(CONNECTIONS)]
    for client in clients:
        client.connection().connect()
    for client in clients:
        expect(client.get("/healthz").status, 200)
        client.connection().close()


@test(f"{SHARDS} shards on {STORE} for {SECONDS:g} s: every timer fires, every worker answers, the server stops")
def _():
    seed = random.getrandbits(32)
    comment(f"seed {seed}")
    postgres = Postgres(max_connections=SHARDS + 20) if STORE == "postgres" else None
    early, fired, lock = [], set(), threading.Lock()
    due = {}

    def take(call):
        name = json.loads(call.body)["name"]
        with lock:
            if name in due and call.at_us // 1000 < due[name]:
                early.append(name)
            fired.add(name)
        return 200

    receiver = Receiver(take)
    with Server(store=postgres.url() if postgres else None, shards=SHARDS) as server:
        await_(lambda: server.get("/readyz").status == 200, "ready")
        due.update(make(server, receiver, random.Random(seed)))
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            every_worker_answers(server)
            time.sleep(0.2)
        await_(lambda: len(fired) == len(due), "all timers fire")
        every_worker_answers(server)
        check(not early, f"early: {early[:10]}")


run()
