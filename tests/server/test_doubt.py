#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Commits of which the server does not learn what became of them: database sessions are ended at random, most of them while
they wait for a synchronous standby, when the commit has happened and nobody has said so. Clients try again until they get
an answer.

  - a create that was acknowledged (201 or 200) fires;
  - after a cancel that was acknowledged (204, or 404 when it was tried again), nothing fires;
  - a cancel that was refused as if nothing had happened (503) has not taken the timer away for good: it fires.

FOLIOT_ROUNDS says how often sessions are ended.
"""

import functools
import os
import random
import threading
import time

from e2e import Postgres, Receiver, Server, await_, check, comment, expect, now_ms, rfc3339, run, test
from replica import Replica, Standby, query, url_of_both

ROUNDS = int(os.environ.get("FOLIOT_ROUNDS", "5"))
CLIENTS = 6
SEED = int(os.environ.get("FOLIOT_SEED", "0")) or random.randrange(1, 1 << 31)


class Client(threading.Thread):
    """Creates timers, and cancels some of them."""

    def __init__(self, server, receiver, number, over):
        super().__init__(daemon=True)
        self.server, self.receiver, self.number, self.over = server, receiver, number, over
        self.luck = random.Random(SEED * 100 + number)
        self.created = {}  # by name: due
        self.cancelled = {}  # by name: when that was acknowledged
        self.refused = set()  # names of cancels that were refused, and not tried again
        self.vague = set()  # names of cancels whose outcome was not known, and that were not tried again
        self.tries = 0
        self.failure = None

    def insist(self, method, path, body, good):
        """Until it is acknowledged; gives up after a minute."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            self.tries += 1
            try:
                answer = self.server.call(method, path, body)
            except OSError:
                continue
            if answer.status in good:
                return answer
            check(answer.status in (503, 504), f"{method} {path}: {answer}")
            time.sleep(0.02)
        raise AssertionError(f"{method} {path} is not answered")

    def live(self):
        for count in range(100000):
            if self.over.is_set():
                return
            name, due = f"t{self.number}-{count}", now_ms() + self.luck.randrange(2000, 6000)
            path = f"/v1/timers/doubt/{name}"
            self.insist("PUT", path, {"due": rfc3339(due), "target": self.receiver.url + "/" + name}, (200, 201))
            self.created[name] = due
            if self.luck.random() < 0.3:
                self.insist("DELETE", path, None, (204, 404))
                self.cancelled[name] = now_ms()
            elif self.luck.random() < 0.3:
                answer = self.server.call("DELETE", path)
                if answer.status == 204:
                    self.cancelled[name] = now_ms()
                elif answer.status == 503:
                    self.refused.add(name)
                else:
                    self.vague.add(name)

    def run(self):
        try:
            self.live()
        except Exception as failure:  # told by the test
            self.failure = failure


def end_sessions(primary, how="terminate"):
    query(primary, f"SELECT pg_{how}_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'foliot shard%'")


def live_through(server, receiver, harm):
    over = threading.Event()
    clients = [Client(server, receiver, number, over) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    luck = random.Random(SEED)
    for _ in range(ROUNDS):
        time.sleep(luck.random() * 0.6)
        harm(luck)
    over.set()
    for client in clients:
        client.join()
        check(client.failure is None, f"{client.failure} (FOLIOT_SEED={SEED})")
    return clients


def judge(clients, receiver):
    must = {name for client in clients for name in client.created} - {
        name for client in clients for name in [*client.cancelled, *client.vague]}

    def missing():
        return must - {call.path[1:] for call in list(receiver.calls)}

    end = max(due for client in clients for due in client.created.values()) / 1000
    while missing() and time.time() < end + 20:
        time.sleep(0.1)
    refused = {name for client in clients for name in client.refused}
    check(not missing(), f"never fired: {sorted(missing())[:9]}, {len(missing())} of {len(must)}, of which a cancel was"
                         f" refused: {sorted(missing() & refused)[:9]} (FOLIOT_SEED={SEED})")
    fired = {call.path[1:]: call.at_ms for call in list(receiver.calls)}
    wrong = [name for client in clients for name, at in client.cancelled.items() if fired.get(name, 0) > at + 500]
    check(not wrong, f"fired after a cancel was acknowledged: {wrong} (FOLIOT_SEED={SEED})")
    comment(f"{len(must)} timers, {sum(client.tries for client in clients)} requests,"
            f" {len(refused)} refused cancels, {sum(len(client.vague) for client in clients)} unknown ones")


class Dated(Receiver):
    """Notes when the last call of each kind came."""

    def __init__(self):
        super().__init__(self.note)

    def note(self, call):
        call.at_ms = now_ms()
        return 200


def be_synchronous(primary, yes):
    primary.sql("ALTER SYSTEM " + ("SET synchronous_standby_names = '*'" if yes else "RESET synchronous_standby_names"))
    primary.sql("SELECT pg_reload_conf()")


def waits(primary):
    return query(primary, "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")


@functools.cache
def replicated():
    primary = Postgres()
    return primary, Replica(primary)


def scenario(synchronous):
    primary, replica = replicated()
    be_synchronous(primary, synchronous)
    url, _ = url_of_both(primary, replica)
    receiver = Dated()

    def harm(luck):
        if not synchronous or luck.random() < 0.2:
            end_sessions(primary)
            return
        with Standby(replica):
            await_(lambda: waits(primary), "a commit waits")
            for _ in range(luck.randrange(1, 4)):  # those that settle it wait, too
                time.sleep(luck.random() * 0.1)
                end_sessions(primary, luck.choice(["terminate", "terminate", "cancel"]))

    with Server("--lease", "3s", store=url, shards=2) as server:
        await_(lambda: server.get("/readyz").status == 200, "ready")
        judge(live_through(server, receiver, harm), receiver)
        be_synchronous(primary, False)


@test("sessions that are ended while they wait for a synchronous standby lose nothing")
def _():
    scenario(True)


@test("sessions that are ended at random lose nothing")
def _():
    scenario(False)


@test("a commit whose wait for the standby is cancelled is not acknowledged before the standby has it")
def _():
    primary, replica = replicated()
    be_synchronous(primary, True)
    url, _ = url_of_both(primary, replica)
    with Server("--lease", "1h", store=url, shards=1) as server:
        await_(lambda: server.get("/readyz").status == 200, "ready")
        answers = []
        asking = threading.Thread(target=lambda: answers.append(server.put("/v1/timers/doubt/one", {"after": "1h"})))
        with Standby(replica):
            asking.start()
            await_(lambda: waits(primary), "the commit waits")
            end_sessions(primary, "cancel")
            await_(lambda: query(primary, "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'foliot shard%'"
                                          " AND backend_start > query_start - interval '1 s' AND wait_event = 'SyncRep'"),
                   "another session settles it")
            time.sleep(0.3)
            expect(answers, [])
        asking.join()
        answers[0].must(201)
        be_synchronous(primary, False)


run()
