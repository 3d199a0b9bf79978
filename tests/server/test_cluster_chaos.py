#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Three servers on one PostgreSQL under load, of which one is killed and started again every few seconds, and another is
stopped until others have taken over, and woken; with the ledger of ledger.py, and what is true of several servers only:

  - requests to a server that lives succeed, but for 503 while the shard is that of a server that is dead or asleep, which is
    over ALLOWED_S after the blow, and is never so for a shard whose owner lives;
  - who has leased a timer has it alone, and may acknowledge it, until a blow or a move of its shard;
  - what is counted is right, but for what happened in the seconds before a blow;
  - each occurrence of a schedule comes, as one timer (ticks.py).

FOLIOT_ROUNDS says how often somebody is killed, and somebody stopped.
"""

import os
import signal
import threading
import time

from e2e import Skip, await_, check, comment, expect, run, test
from ledger import LEASE_US, SEED, SLACK_US, Ledger, again, early, late_cancels, late_moves, now_us, parse_us
from members import Cluster, shard_of
from ticks import NAMESPACE, Ticks

ROUNDS = int(os.environ.get("FOLIOT_ROUNDS", "3"))
LEASE_S = 1
ALLOWED_S = 5
PROBES = 48


class Life:
    """What is known of a member: since when it lives, and when it was struck."""

    def __init__(self, member):
        self.member = member
        self.alive_since_us = now_us()
        self.struck_us = 0
        self.alive = True


class Chaos(Ledger):
    def __init__(self, members):
        super().__init__(self.choose)
        self.lives = {member.address: Life(member) for member in members}
        self.refused = []  # by servers that live: when asked, when answered, what
        self.probes = {}  # name: shard
        self.asked = 0
        self.moves = []  # when shards were taken and given up, by the logs

    # --- Who lives

    def choose(self):
        living = [life.member for life in self.lives.values() if life.alive]
        chosen = self.luck.choice(living)
        threading.current_thread().life = self.lives[chosen.address]
        return chosen

    def strike(self, life):
        life.struck_us = now_us()
        life.alive = False
        self.blow()

    def revive(self, life):
        await_(life.member.ready, "ready again")
        life.alive_since_us = now_us()
        life.alive = True

    def recently_struck(self, since_us):
        return any(blow + ALLOWED_S * 1_000_000 > since_us for blow in self.blows)

    # --- Requests

    def ask(self, *request):
        begun_us = now_us()
        answer = super().ask(*request)
        life = threading.current_thread().life
        if answer is None and life.alive and life.alive_since_us < begun_us and not self.recently_struck(begun_us):
            self.refused.append((begun_us, now_us(), request, "no answer, or an unknown outcome"))
        if answer is not None and answer.status == 503:
            check(answer.headers["Retry-After"], f"{answer} says when to ask again")
            check("detail" in answer.json, f"{answer} says why")
            if not self.recently_struck(begun_us):
                self.refused.append((begun_us, now_us(), request, answer))
        return answer

    # --- Probes: timers whose shards are known

    def make_probes(self):
        for i in range(PROBES):
            made = self.choose().put(f"/v1/timers/probe/p{i}", {"after": "1h", "payload": 0}).must(201)
            self.probes[f"p{i}"] = shard_of(made["id"])
        check(len(set(self.probes.values())) > 4, f"{self.probes} are in many shards")

    def look(self):
        """Whose the shards are, as one that lives sees it."""
        try:
            return [shard["owner"] for shard in self.choose().cluster()["shards"]]
        except Exception:  # it has just been struck
            return None

    def is_excused(self, owner, begun_us):
        life = self.lives.get(owner)
        return life is None or not life.alive or life.struck_us + ALLOWED_S * 1_000_000 > begun_us

    def probe(self):
        names = list(self.probes)
        while self.pulling:
            before = self.look()
            for name in self.luck.sample(names, 4):
                begun_us = now_us()
                member = self.choose()
                try:
                    answer = member.patch(f"/v1/timers/probe/{name}", {"payload": self.asked})
                except Exception:
                    continue  # a server that was struck meanwhile; ask() looks at those that were not
                self.asked += 1
                if answer.status == 200:
                    continue
                after, shard = self.look(), self.probes[name]
                seen = {view[shard] for view in (before, after) if view}
                if answer.status != 503 or not any(self.is_excused(owner, begun_us) for owner in seen or {None}):
                    self.refused.append((begun_us, now_us(), f"probe {name} of shard {shard}", answer, seen))
            time.sleep(0.05)

    # --- Blows

    def kill(self, life, awhile):
        self.strike(life)
        life.member.kill()
        awhile()
        self.read_log(life.member)
        life.member.start()
        self.revive(life)

    def suspend(self, life, awhile):
        self.strike(life)
        life.member.signal(signal.SIGSTOP)
        awhile()
        life.member.signal(signal.SIGCONT)
        self.revive(life)

    def torment(self):
        for turn in range(ROUNDS):
            first, second, _ = self.luck.sample(list(self.lives.values()), 3)

            def sleep():
                time.sleep(LEASE_S + self.luck.uniform(0.3, 2))

            def both():
                time.sleep(self.luck.uniform(0.1, 1.5))
                self.suspend(second, sleep)

            if turn % 3 == 1:
                self.kill(first, both)
                continue
            self.kill(first, sleep)
            time.sleep(self.luck.uniform(0, 2))
            self.suspend(second, sleep)
            time.sleep(self.luck.uniform(0, 2))

    # --- The end

    def read_log(self, member):
        self.moves += [parse_us(entry["time"]) for entry in list(member.log)
                       if entry["msg"] in ("taking a shard", "giving up a shard")]

    def settle(self, cluster):
        cluster.settle()
        for member in cluster.members:
            self.read_log(member)
        self.check_counts(cluster)

    def check_counts(self, cluster):
        """Whatever was killed, the counts are exact: only the probes are pending. What another server has is known a moment later."""
        def views():
            return [{one["namespace"]: one["pending"] for one in member.namespaces()}
                    for member in cluster.members]

        await_(lambda: all(view == {"probe": PROBES} for view in views()), f"only the probes are pending: {views()}")

    def is_disturbed(self, since_us, until_us):
        return any(since_us - SLACK_US < at_us < until_us for at_us in self.blows + self.moves)

    def broken_leases(self):
        """Timers that came again while somebody had them."""
        return [(number, after.at_us - before.at_us) for number, firings in self.firings.items()
                for before, after in zip(firings, firings[1:])
                if before.leased_until_us and after.at_us < before.leased_until_us and not before.settled_us
                and not self.is_disturbed(before.at_us, after.at_us)]

    def vain_acks(self):
        return [(until_us - since_us, count) for since_us, until_us, count in self.unknown
                if until_us - since_us < LEASE_US and not self.is_disturbed(since_us, until_us)]


chaos = None


def end_ticks(ticks):
    """Schedules that went on all the time; nothing is left of them."""
    ticks.end()
    ticks.check_occurrences()
    await_(lambda: getattr(ticks.ask("DELETE", f"/v1/namespaces/{NAMESPACE}?all=true"), "status", 0) in (204, 404),
           "their namespace is removed")


@test(f"three servers, killed and stopped {ROUNDS} times each, and every timer that was acknowledged fires")
def _():
    global chaos
    options = ["--record-interval", "100ms", "--lease", f"{LEASE_S}s", "--workers", "2"]
    comment(f"FOLIOT_SEED={SEED}, {' '.join(options)}")
    cluster = Cluster(3, *options)
    with cluster as members:
        made = Chaos(members)
        made.make_probes()
        ticks = Ticks(lambda *request: Ledger.ask(made, *request), made.luck)
        ticks.begin()
        made.begin(made.probe)
        made.run(made.torment)
        end_ticks(ticks)
        chaos = made
        made.settle(cluster)
    comment(f"{made.asked} probes, of {len(made.timers)} timers")


def need_chaos():
    if not chaos:
        raise Skip("there was no run")
    return chaos


@test("whoever lives answers")
def _():
    expect(need_chaos().refused, [])


@test("none fired early")
def _():
    expect(early(need_chaos()), [])


@test("none fired after a cancel that was acknowledged")
def _():
    expect(late_cancels(need_chaos()), [])


@test("none fired with an old due time after a move that was acknowledged")
def _():
    expect(late_moves(need_chaos()), [])


@test("none fired again that was settled longer ago than the record allows")
def _():
    unexplained, explained = again(need_chaos())
    comment(f"{explained} fired again because of a blow")
    expect(unexplained, [])


@test("who has leased a timer has it alone, and what is acknowledged in time is known")
def _():
    expect(need_chaos().broken_leases(), [])
    expect(need_chaos().vain_acks(), [])


run()
