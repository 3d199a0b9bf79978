#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""foliot add, get, list, update, cancel: in a pipe and on a terminal."""

import base64
import json
import os

from cli import Command, columns_of, serve
from e2e import check, expect, folder, run, test

server = serve()
foliot = Command(server.url)
FAR = "2999-12-31T23:59:59Z"


@test("add: civil time, debounce; list and cancel: filters")
def _():
    made = json.loads(foliot("add", "more", "civil", "--local", "2031-06-01T09:00:00", "--zone", "Europe/Berlin", "--json").must())
    expect((made["due"], made["local"], made["zone"]), ("2031-06-01T07:00:00Z", "2031-06-01T09:00:00", "Europe/Berlin"))
    foliot("update", "more", "civil", "--local", "2031-06-01T10:00:00", "--zone", "Europe/Berlin").must(out="^due +2031-06-01T08:00:00Z$")
    foliot("add", "more", "--local", "2031-06-01T09:00:00").must(2, err="give --local and --zone together")
    foliot("add", "more", "--zone", "Europe/Berlin", "--after", "1s").must(2, err="give --local and --zone together")
    foliot("add", "more", "--local", "2031-06-01T09:00:00", "--zone", "UTC", "--after", "1s").must(2, err="give only one of")
    foliot("add", "more", "--local", "2031-06-01T09:00:00", "--zone", "Nowhere/City").must(1, err="Nowhere/City")
    for payload, merge in ((1, "last"), (2, "first")):
        made = json.loads(foliot("add", "more", "burst", "--after", "1h", "--max-wait", "1m", "--merge", merge, "--payload", str(payload),
                                 "--to", "http://127.0.0.1:9/x", "--json").must())
    expect((made["payload"], made["replaced"]), (1, 1))
    foliot("update", "more", "burst", "--max-wait", "2m").must()
    foliot("add", "more", "--after", "1h", "--merge", "both").must(1, err="merge")
    for given in (["--name-contains", "urs"], ["--target-prefix", "http://127.0.0.1:9"]):
        rows = foliot("list", "more", *given).must().splitlines()
        check(len(rows) == 2 and " burst " in rows[1], rows)
    expect(foliot("list", "more", "--schedule", "none").must(), "")
    foliot("cancel", "more", "--name-contains", "ivi", "--dry-run").must(out="^1 would be cancelled$")
    foliot("cancel", "more", "--target-prefix", "http://127.0.0.1:9").must(out="^1 cancelled$")
    foliot("cancel", "more", "--schedule", "none").must(out="^0 cancelled$")


@test("add prints the ID, and only that, in a pipe")
def _():
    timer_id = foliot("add", "add", "one", "--after", "10m").must(out=r"\A[0-9a-z]{26}\n\Z").strip()
    expect(server.get("/v1/timers/add/one").must(200)["id"], timer_id)
    nameless = foliot("add", "add", "--after=10m").must().strip()
    check("name" not in server.get(f"/v1/timers/add/{nameless}").must(200), "it has no name")


@test("add tells people on a terminal when it will be, in colour unless NO_COLOR is set")
def _():
    shown = foliot.on_terminal("add", "add", "two", "--after", "90s")
    shown.must(out=r"^[0-9a-z]{26}\x1b\[2m  due .*, in \d+m?\d*s\x1b\[0m$")
    plain = foliot.on_terminal("add", "add", "two", "--after", "90s", NO_COLOR="1")
    check("\x1b" not in plain.must(out="due"), plain)


@test("add takes everything that a timer can have")
def _():
    shown = json.loads(foliot("add", "add", "all", "--at", FAR, "--to", "http://127.0.0.1:9/hook", "--payload", '{"a": [1, 2.50]}',
                              "--header", "X-One: 1", "--header", "X-Two:two: three", "--timeout", "7s", "--retry",
                              "max_attempts=3,initial=2s,multiplier=1.5,max_interval=1m,max_age=1d", "--json").must())
    kept = server.get("/v1/timers/add/all")
    expect(kept.must(200), shown)
    check(b'"payload":{"a": [1, 2.50]}' in kept.body, "the payload is as it was given")
    for field, value in {"due": FAR, "target": "http://127.0.0.1:9/hook", "timeout": "7s",
                         "headers": {"X-One": "1", "X-Two": "two: three"},
                         "retry": {"max_attempts": 3, "initial": "2s", "multiplier": 1.5, "max_interval": "1m",
                                   "max_age": "1d"}}.items():
        expect(shown[field], value, field)


@test("payloads: JSON as it is, text as a string, anything else as bytes; from files and standard input")
def _():
    path = os.path.join(folder(), "payload")

    def payload(given, stdin=None):
        shown = json.loads(foliot("add", "p", "x", "--after", "1h", "--payload", given, "--json", stdin=stdin).must())
        return base64.b64decode(shown["payload_base64"]) if "payload_base64" in shown else shown["payload"]

    expect(payload("42"), 42)
    expect(payload("grün \"x\""), "grün \"x\"")
    expect(payload("-", "[1,\n2]\n"), [1, 2])
    for content, wanted in ((b'{"a":1}\n', {"a": 1}), (b"two\nlines\n", "two\nlines\n"), (b"\xff\x00x", b"\xff\x00x"), (b"", "")):
        with open(path, "wb") as file:
            file.write(content)
        expect(payload("@" + path), wanted)
    foliot("add", "p", "x", "--after", "1h", "--payload", "@" + path + "-not-there").must(
        1, err=r"^foliot add: cannot open .*-not-there: No such file")


@test("add replaces, and with --only-new does not")
def _():
    first = foliot("add", "new", "x", "--at", FAR, "--only-new").must()
    foliot("add", "new", "x", "--at", FAR, "--only-new").must(6, err="^foliot add: a timer with this name exists")
    foliot("add", "new", "x", "--at", "4102444800000").must()
    expect(server.get("/v1/timers/new/x").must(200)["due"], "2100-01-01T00:00:00Z")
    expect(len(first), 27)


@test("names may be anything")
def _():
    for name in ("a/b", "50%", "ü ☃", "..", ".", "?x=1&y", "-- dash", "+"):
        foliot("add", "names/ü", "--after", "1h", "--", name).must()
        expect(json.loads(foliot("get", "names/ü", "--json", "--", name).must())["name"], name)
        foliot("cancel", "names/ü", "--", name).must(out="^1 cancelled$")


@test("what the server refuses is told, with what it said")
def _():
    foliot("add", "a", "x", "--after", "1h", "--to", "gopher://x").must(1, err="^foliot add: target: ")
    foliot("add", "a", "x", "--after", "1h", "--retry", "max_attempts=x").must(1, err="retry.max_attempts must be a whole number")
    foliot("add", "a", "x" * 256, "--after", "1h").must(1, err="^foliot add: ")


@test("get shows a line for each part; JSON if asked to")
def _():
    foliot("add", "get", "x", "--at", FAR, "--payload", '{"a":1}').must()
    lines = dict(line.split(None, 1) for line in foliot("get", "get", "x").must().splitlines())
    expect(lines["name"], "x")
    expect(lines["due"], FAR)
    expect(lines["payload"], '{"a":1}')
    expect(foliot("get", "get", lines["id"]).must(), foliot("get", "get", "x").must())
    expect(json.loads(foliot("get", "get", "x", "--json").must())["due"], FAR)
    foliot.on_terminal("get", "get", "x").must(out=r"^\x1b\[2mdue +\x1b\[0m2999-12-31T23:59:59Z \(in \d+d\d*h?\)$")
    foliot("get", "get", "y").must(3, err="^foliot get: the timer does not exist, or it has fired$")


@test("a terminal is not told what to do by what is in a timer")
def _():
    foliot("add", "evil", "x", "--after", "1h", "--payload", '"\x9b31m \x7f ü"').must()
    shown = foliot.on_terminal("get", "evil", "x").must(out="payload.* \\? ü")
    check("\x9b" not in shown and "\x7f" not in shown, shown)


@test("list is a table, in a pipe as on a terminal")
def _():
    for i, name in enumerate(("short", "a much longer name", "ümläut")):
        foliot("add", "table", name, "--at", f"2100-01-0{i + 1}T00:00:00Z", "--to", "http://127.0.0.1:9/").must()
    foliot("add", "table", "--at", FAR).must()
    piped = foliot("list", "table").must()
    rows = columns_of(piped)
    expect(rows[0], ["ID", "NAME", "DUE", "ATTEMPT", "TARGET"])
    expect(sorted(row[1] for row in rows[1:]), sorted(["short", "a much longer name", "ümläut", "-"]))
    check(["-", FAR, "0", "-"] in [row[1:] for row in rows], piped)
    seen = foliot.on_terminal("list", "table").must(out=r"^\x1b\[1mID ")
    expect(seen.replace("\x1b[1m", "").replace("\x1b[0m", ""), piped)
    expect(foliot("list", "nothing-in-here").must(), "")


@test("list follows pages, filters and stops at its limit")
def _():
    answers = server.batch([{"op": "create", "namespace": "many", "name": f"{'ab'[i % 2]}{i}", "due": 4102444800000 + i * 1000}
                            for i in range(2500)])
    check(all(answer["ok"] for answer in answers), "all are created")
    names = [json.loads(line)["name"] for line in foliot("list", "many", "--json").must().splitlines()]
    expect(sorted(names), sorted(f"{'ab'[i % 2]}{i}" for i in range(2500)))
    expect(len(foliot("list", "many", "--limit", "1234").must().splitlines()), 1235)
    expect(len(foliot("list", "many", "--prefix", "a", "--json").must().splitlines()), 1250)
    half = foliot("list", "many", "--due-after", "2100-01-01T00:00:10Z", "--due-before", "4102444820000", "--json").must()
    expect(len(half.splitlines()), 10)


@test("update changes what is given and nothing else")
def _():
    foliot("add", "up", "x", "--at", FAR, "--payload", "1", "--to", "http://127.0.0.1:9/").must()
    foliot("update", "up", "x", "--payload", "[2]", "--timeout", "3s").must(out=r"^payload +\[2\]$")
    changed = json.loads(foliot("update", "up", "x", "--to", "", "--json").must())
    expect((changed["due"], changed["payload"], changed["timeout"], "target" in changed), (FAR, [2], "3s", False))
    foliot("update", "up", "x").must(2, err="nothing to change")
    foliot("update", "up", "y", "--after", "1h").must(3, err="the timer does not exist")


@test("cancel takes one, or all that fit, or says how many that would be")
def _():
    for name in ("a1", "a2", "b1", "b2", "b3"):
        foliot("add", "stop", name, "--after", "1h").must()
    foliot("cancel", "stop", "a1").must(out=r"\A1 cancelled\n\Z")
    foliot("cancel", "stop", "a1").must(3, err="the timer does not exist")
    foliot("cancel", "stop", "--prefix", "b", "--dry-run").must(out=r"\A3 would be cancelled\n\Z")
    foliot("cancel", "stop", "--prefix", "b").must(out=r"\A3 cancelled\n\Z")
    foliot("cancel", "stop").must(2, err="no timers selected")
    foliot("cancel", "stop", "a2", "--all").must(2, err="not both")
    foliot("cancel", "stop", "--all").must(out=r"\A1 cancelled\n\Z")
    expect(foliot("list", "stop").must(), "")


run()
