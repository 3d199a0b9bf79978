#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""foliot history: lists, filters and erases; `namespace set --history` says what is kept."""

import json

from cli import Command, columns_of, serve
from e2e import check, expect, run, test

server = serve("--test-clock")
foliot = Command(server.url)


def history(*arguments):
    return foliot("history", *arguments)


def settle(namespace, name, result):
    """A timer that is leased and acknowledged; returns its ID."""
    server.put(f"/v1/timers/{namespace}/{name}", {"after": "1s", "payload": 1}).must(201)
    server.advance("2s")
    timer = server.post(f"/v1/lease/{namespace}", {"max": 1, "lease": "30s", "wait": "5s"}).must(200)["timers"][0]
    server.post("/v1/ack", {"acks": [{"lease": timer["lease"], "result": result}]}).must(200)
    return timer["id"]


def names(*arguments):
    return [json.loads(line)["name"] for line in history("list", *arguments, "--json").must().splitlines()]


@test("namespace set --history: keys that are not given take their defaults, and none resets it")
def _():
    shown = json.loads(foliot("namespace", "set", "set", "--history", "only=all,body=7", "--json").must())
    expect(shown["settings"]["history"], {"keep": "3d", "only": "all", "body": 7})
    shown = json.loads(foliot("namespace", "set", "set", "--history", "none", "--max-rate", "5", "--json").must())
    check("history" not in shown["settings"], shown)
    foliot("namespace", "set", "set", "--history", "all").must(2, err="invalid value 'all' for --history: expected KEY=VALUE")
    foliot("namespace", "set", "set", "--history", "only=some").must(1, err="history.only must be")


@test("a table, newest first; every filter; a limit; JSON")
def _():
    foliot("namespace", "set", "list", "--history", "only=all").must()
    first = settle("list", "a", "done")
    settle("list", "b", "dead")
    settle("list", "c", "done")
    rows = columns_of(history("list").must())
    expect(rows[0], ["BEGAN", "ID", "NAME", "ATTEMPT", "RESULT", "STATUS", "TOOK-MS", "REASON"])
    expect([row[2:6] for row in rows[1:]], [["c", "1", "done", "-"], ["b", "1", "dead", "-"], ["a", "1", "done", "-"]])
    shown = [json.loads(line) for line in history("list", "--json").must().splitlines()]
    expect(shown, server.get("/v1/history/list").json["history"])
    middle = shown[1]["began"]
    expect(names("--result", "done"), ["c", "a"])
    expect(names("--name", "b"), ["b"])
    expect(names("--id", first), ["a"])
    expect(names("--schedule", "none"), [])
    expect(names("--after", middle), ["c", "b"])
    expect(names("--before", middle), ["a"])
    expect(names("--limit", "2"), ["c", "b"])
    foliot.on_terminal("history", "nothing").must(out="^No history.$")


@test("--erase erases the history of one timer")
def _():
    first = settle("erase", "a", "dead")
    settle("erase", "b", "dead")
    history("erase", "--erase").must(2, err="no timer selected; give its ID with --id")
    history("erase", "--erase", "--id", first, "--result", "dead").must(2, err="--erase takes no other option than --id")
    history("erase", "--erase", "--id", first).must(out=r"\Aerased\n\Z")
    expect([json.loads(line)["name"] for line in history("erase", "--json").must().splitlines()], ["b"])
    history("erase", "--result", "maybe").must(1, err="^foliot history: result must be done, failed")


run()
