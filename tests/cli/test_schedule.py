#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""foliot schedule: each of its commands, in a pipe and on a terminal, and what it says when something is wrong."""

import json

from cli import Command, columns_of, serve
from e2e import check, expect, run, test

server = serve("--test-clock")
foliot = Command(server.url)
EVERYTHING = {
    "cron": "30 9 * * MON-FRI", "zone": "Europe/Berlin", "start": "2999-01-01T00:00:00Z", "end": "3000-01-01T00:00:00Z", "count": 7,
    "except": ["2999-12-25", "2999-12-31T09:30"], "missed": "all", "grace": "30s", "missed_within": "1d", "overlap": "queue",
    "window": "5m", "gap": "skip", "repeat": "both", "paused": True, "target": "http://127.0.0.1:9/x", "payload": {"a": 1},
    "headers": {"X-One": "1"}, "timeout": "7s", "retry": {"max_attempts": 3, "initial": "2s"},
}


def schedule(*arguments, **how):
    return foliot("schedule", *arguments, **how)


def options_of(fields):
    """The options for the members of a schedule."""
    given = []
    for field, value in fields.items():
        option = {"target": "to", "headers": "header"}.get(field, field.replace("_", "-"))
        if field == "headers":
            given += [part for name, text in value.items() for part in ("--header", f"{name}: {text}")]
        elif field == "retry":
            given += ["--retry", ",".join(f"{key}={part}" for key, part in value.items())]
        elif field == "except":
            given += [part for one in value for part in ("--except", one)]
        elif value is True:
            given += ["--" + option]
        else:
            given += ["--" + option, json.dumps(value) if field == "payload" else str(value)]
    return given


@test("add has an option for every member of a schedule")
def _():
    shown = json.loads(schedule("add", "all", "x", *options_of(EVERYTHING), "--json").must())
    expect(server.get("/v1/schedules/all/x").must(200), shown)
    for field, value in EVERYTHING.items():
        if field == "retry":
            expect({key: shown["retry"][key] for key in value}, value)
        else:
            expect(shown[field], value, field)
    document = server.get("/openapi.json").json["components"]["schemas"]
    known = set(document["ScheduleIn"]["properties"])
    expect(known - set(EVERYTHING), {"every", "payload_base64"}, "members that this test leaves out")


@test("add prints the next occurrence; on a terminal also how far away it is")
def _():
    shown = schedule("add", "demo", "soon", "--cron", "0 9 1 1 *", "--zone", "Europe/Berlin").must().strip()
    expect(shown, server.get("/v1/schedules/demo/soon").json["next"])
    foliot.on_terminal("schedule", "add", "demo", "soon", "--every", "2h").must(out=r"^next \S+Z, in .*$")
    schedule("add", "demo", "idle", "--every", "2h", "--paused").must(out=r"\A-\n\Z")
    foliot.on_terminal("schedule", "add", "demo", "idle", "--every", "2h", "--paused").must(out="no next occurrence")


@test("add replaces, and with --only-new does not")
def _():
    schedule("add", "new", "x", "--every", "1h", "--only-new").must()
    schedule("add", "new", "x", "--every", "1h", "--only-new").must(6, err="^foliot schedule add: a schedule with this name exists")
    schedule("add", "new", "x", "--every", "2h").must()
    expect(server.get("/v1/schedules/new/x").json["every"], "2h")


@test("get and list")
def _():
    for i in range(3):
        schedule("add", "list", f"n{i}", "--cron", f"{i} 9 * * *").must()
    schedule("add", "list", "other", "--every", "90s", "--paused").must()
    schedule("get", "list", "n1").must(out=r"^cron +1 9 \* \* \*$")
    expect(json.loads(schedule("get", "list", "n1", "--json").must()), server.get("/v1/schedules/list/n1").json)
    rows = columns_of(schedule("list", "list").must())
    expect(rows[0], ["NAME", "NEXT", "LAST", "MADE", "PAUSED", "ZONE", "EVERY", "CRON"])
    expect({row[0]: row[7] for row in rows[1:]}, {"n0": "0 9 * * *", "n1": "1 9 * * *", "n2": "2 9 * * *", "other": "-"})
    expect([row[1:7] for row in rows if row[0] == "other"], [["-", "-", "0", "true", "-", "1m30s"]])
    names = [json.loads(line)["name"] for line in schedule("list", "list", "--prefix", "n", "--json").must().splitlines()]
    expect(sorted(names), ["n0", "n1", "n2"])
    expect(len(schedule("list", "list", "--limit", "2", "--json").must().splitlines()), 2)
    schedule("list", "nothing").must(out=r"\A\Z")
    foliot.on_terminal("schedule", "list", "nothing").must(out="^No schedules.$")


@test("preview of a saved schedule, and of a rule that is not saved")
def _():
    schedule("add", "demo", "night", "--cron", "30 2 * * *", "--zone", "Europe/Berlin").must()
    given = ("--from", "2026-03-28T12:00:00Z", "--limit", "2")
    wanted = [["AT", "LOCAL", "DST"], ["2026-03-29T01:00:00Z", "2026-03-29T03:00:00+02:00", "gap"],
              ["2026-03-30T00:30:00Z", "2026-03-30T02:30:00+02:00", "-"]]
    expect(columns_of(schedule("preview", "demo", "night", *given).must()), wanted)
    expect(columns_of(schedule("preview", "--cron", "30 2 * * *", "--zone", "Europe/Berlin", *given).must()), wanted)
    skipped = schedule("preview", "--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--gap", "skip", *given, "--json").must()
    expect(json.loads(skipped.splitlines()[0])["at"], "2026-03-30T00:30:00Z")
    expect(len(schedule("preview", "--every", "1h", "--json").must().splitlines()), 10)
    hashed = [schedule("preview", "demo", name, "--cron", "H H * * *", *given).must() for name in ("a", "a", "b")]
    check(hashed[0] == hashed[1] != hashed[2], "the name determines H")
    foliot.on_terminal("schedule", "preview", "--cron", "0 0 1 1 *", "--end", "2020-01-01T00:00:00Z").must(out="^No occurrences.$")


@test("trigger, backfill, pause, resume, remove")
def _():
    schedule("add", "do", "x", "--cron", "0 9 * * *", "--payload", "1").must()
    made = schedule("trigger", "do", "x").must(out=r"\A[0-9a-z]{26}\n\Z").strip()
    expect(server.get(f"/v1/timers/do/{made}").must(200)["schedule"], "x")
    schedule("backfill", "do", "x", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-04T00:00:00Z").must(out=r"\A3 made\n\Z")
    expect(json.loads(schedule("backfill", "do", "x", "--from", "1767225600000", "--to", "2026-01-02T00:00:00Z", "--json").must()),
           {"made": 1})
    schedule("pause", "do", "x").must(out="^paused +true$")
    expect(json.loads(schedule("resume", "do", "x", "--json").must())["paused"], False)
    schedule("remove", "do", "x").must(out=r"\A1 removed\n\Z")
    for command in ("get", "preview", "trigger", "pause", "resume", "remove"):
        schedule(command, "do", "x").must(3, err=f"^foliot schedule {command}: the schedule does not exist")


@test("errors say what is wrong and what to do")
def _():
    schedule("add", "demo", "x").must(2, err=r"^foliot schedule add: no rule; give --cron '0 9 \* \* MON-FRI' or --every 15m;")
    schedule("add", "demo", "x", "--cron", "0 9 * * *", "--every", "1h").must(2, err="give --cron or --every, not both;")
    schedule("add", "demo").must(2, err="NAME is missing")
    schedule("add", "demo", "x", "--every", "soon").must(2, err="invalid value 'soon' for --every: expected a duration")
    schedule("add", "demo", "x", "--count", "0", "--every", "1h").must(2, err="invalid value '0' for --count")
    schedule("add", "demo", "x", "--cron", "0 25 * * *").must(1, err='^foliot schedule add: cron: hour field "25", position 1: ')
    schedule("add", "demo", "x", "--cron", "0 9 * * *", "--zone", "Mars").must(1, err="^foliot schedule add: zone: ")
    schedule("add", "demo", "x", "--every", "1h", "--missed", "never").must(1, err='missed must be "last", "all" or "skip"')
    schedule("preview").must(2, err="no schedule; give NAMESPACE and NAME, or a rule")
    schedule("preview", "demo").must(2, err="no schedule; give NAMESPACE and NAME, or a rule")
    schedule("preview", "--zone", "UTC").must(2, err="no rule; give --cron")
    schedule("backfill", "demo", "x", "--from", "2026-01-01T00:00:00Z").must(2, err="--to is missing; give --from TIME and --to TIME;")
    schedule("frobnicate").must(2, err="unknown command 'frobnicate'")
    schedule("trigge", "demo", "x").must(2, err="did you mean 'foliot schedule trigger'")


run()
