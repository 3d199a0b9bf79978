#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A server that is killed in the middle, again and again, while clients work and keep a ledger (ledger.py, ticks.py):
test_crash.py sqlite|postgres

FOLIOT_KILLS says how often it is killed.
"""

import os
import sys
import time

from e2e import Postgres, Server, Skip, comment, expect, run, test
from ledger import SEED, Ledger, again, early, late_cancels, late_moves
from ticks import Ticks

STORE = sys.argv.pop(1)
KILLS = int(os.environ.get("FOLIOT_KILLS", "5"))
ledger = None


@test(f"{STORE}: killed {KILLS} times, and every timer that was acknowledged fires")
def _():
    global ledger
    store = None
    if STORE == "postgres":
        store = Postgres().url()
    options = ["--record-interval", "100ms", "--lease", "1s", "--owner", "crash", "--workers", "2"]
    if SEED % 2:
        options += ["--strategy", "lookahead"]
    comment(f"FOLIOT_SEED={SEED}, {' '.join(options)}")
    server = Server(*options, store=store, shards=3)
    made = Ledger(lambda: server)

    def torment():
        for _ in range(KILLS):
            time.sleep(made.luck.uniform(0.3, 3.5))
            made.blow()
            server.kill()
            server.start()

    made.run(torment)
    server.stop()
    ledger = made


def need_ledger():
    if not ledger:
        raise Skip("there was no run")
    return ledger


@test("none fired early")
def _():
    expect(early(need_ledger()), [])


@test("none fired after a cancel that was acknowledged")
def _():
    expect(late_cancels(need_ledger()), [])


@test("none fired with an old due time after a move that was acknowledged")
def _():
    expect(late_moves(need_ledger()), [])


@test("none fired again that was settled longer ago than the record allows")
def _():
    unexplained, explained = again(need_ledger())
    comment(f"{explained} fired again because of a kill")
    expect(unexplained, [])


@test(f"{STORE}: killed {KILLS} times, each occurrence of a schedule comes once, a pause lasts, and the history is there")
def _():
    store = Postgres().url() if STORE == "postgres" else None
    server = Server("--record-interval", "100ms", "--lease", "1s", "--owner", "crash", "--workers", "2", store=store, shards=3)
    made = Ledger(lambda: server)  # for its requests
    ticks = Ticks(made.ask, made.luck)
    ticks.begin()
    for i in range(KILLS):
        if i % 2 == 0:
            ticks.pause()
            ticks.hold()
        time.sleep(made.luck.uniform(0.1, 1.5) + (3 if i == KILLS - 1 else 0))  # what is recorded must be there
        made.blow()
        server.kill()
        server.start()
        if ticks.paused:
            ticks.is_held()
            ticks.hold()
        if i % 2 == 1:
            ticks.resume()
    ticks.end()
    ticks.check_occurrences()
    ticks.check_pauses()
    ticks.check_history(made.blows)
    server.stop()


run()
