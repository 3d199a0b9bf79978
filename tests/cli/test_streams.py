#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""foliot watch, dead, namespace, stats, bench: in a pipe and on a terminal."""

import json
import os
import re
import signal
import subprocess
import threading

from cli import Command, columns_of, serve
from e2e import FOLIOT, PATIENCE, await_, check, expect, folder, run, test

server = serve()
foliot = Command(server.url)


def watched(process, namespace, count):
    """Its lines, once there are some: it must have begun to listen before something can be seen."""
    foliot("add", namespace, "seen", "--after", "1h").must()
    await_(lambda: process.lines or foliot("update", namespace, "seen", "--after", "1h").must() and False, "it listens")
    foliot("add", namespace, "rings", "--after", "0s", "--to", server.url + "/echo").must()
    foliot("cancel", namespace, "seen").must()
    return await_(lambda: len(process.lines) >= count and list(process.lines), f"{count} lines; there are {process.lines}")


# --- watch ------------------------------------------------------------------------------------------------------------


@test("watch prints a readable line for each event, until interrupted")
def _():
    process = foliot.start("watch", "seen")
    await_(lambda: any(" fired " in line for line in watched(process, "seen", 4)), "it fires")
    text = "\n".join(process.lines)
    check("seen/rings  attempt 1, late by " in text, text)
    check("  scheduled  seen/seen  due " in text and "  cancelled  seen/seen" in text, text)
    check("\x1b" not in text, text)
    process.send_signal(signal.SIGINT)
    expect(process.wait(PATIENCE), 0)


@test("watch names hosts, namespaces and schedules, too")
def _():
    process = foliot.start("watch", "--type", "paused,resumed")

    def again():
        for path in ("/v1/namespaces/subject", "/v1/hosts/example.com:443"):
            server.post(path + "/pause", {"reason": "repair"}).must(200)
            server.post(path + "/resume").must(200)
        text = "\n".join(process.lines)
        return all(what in text for what in ("  paused     subject", "  resumed    subject", "  paused     example.com:443"))

    await_(again, "it listens")
    check(not any("attempt" in line or "/" in line for line in process.lines), process.lines)


@test("watch --json: an object a line; --type: only those; --count: so many")
def _():
    process = foliot.start("watch", "json", "--json", "--type", "scheduled,fired", "--count", "4")
    while process.poll() is None:
        foliot("add", "json", "rings", "--after", "0s", "--to", server.url + "/echo").must()
    process.reader.join(PATIENCE)
    events = [json.loads(line) for line in process.lines]
    expect(len(events), 4)
    expect({event["namespace"] for event in events}, {"json"})
    check({event["type"] for event in events} <= {"scheduled", "fired"}, events)
    expect(process.returncode, 0)


@test("watch on a terminal says that it listens, in colour what has fired")
def _():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(foliot.on_terminal("watch", "tty", "--type", "fired", "--count", "1")))
    thread.start()
    while thread.is_alive():
        foliot("add", "tty", "x", "--after", "0s", "--to", server.url + "/echo").must()
    seen[0].must(out=r"(?s)Listening\. Press Ctrl-C to stop\..*  \x1b\[32mfired    \x1b\[0m  tty/x  attempt 1")


@test("watch ends quietly when nobody reads it any more")
def _():
    pipeline = f'"{FOLIOT}" watch head --json | head -n 1; exit "${{PIPESTATUS[0]}}"'
    process = subprocess.Popen(["bash", "-c", pipeline], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=foliot.env)
    while process.poll() is None:
        foliot("add", "head", "x", "--after", "1h").must()
        foliot("cancel", "head", "x").must()
    out, err = process.communicate()
    expect((process.returncode, err, out.count("\n")), (128 + signal.SIGPIPE, "", 1))


@test("watch refuses a type that there is not, and ends when the server does")
def _():
    foliot("watch", "--type", "frob").must(1, err="type must be a list of scheduled, fired")
    with serve() as other:
        process = Command(other.url).start("watch")
        await_(lambda: other.post("/v1/timers/a", {"after": "1h"}).must(201) and process.lines, "it listens")
    expect(process.wait(PATIENCE), 4)
    check("the server has closed the event stream" in process.stderr.read(), "it says so")


# --- dead -------------------------------------------------------------------------------------------------------------


def kill_timers(namespace, *names):
    for name in names:
        foliot("add", namespace, name, "--after", "0s", "--retry", "max_attempts=1").must()
    dead = []
    while len(dead) < len(names):
        foliot("lease", namespace, "--wait", "100ms", "--exec", "false")
        dead = [json.loads(line) for line in foliot("dead", "list", namespace, "--json").must().splitlines()]
    return {timer["name"]: timer["id"] for timer in dead}


@test("dead letters by filter: lists, counts, redrives at a rate, deletes")
def _():
    kill_timers("filter", "a1", "a2", "b1")
    rows = columns_of(foliot("dead", "list", "filter", "--name-contains", "1").must())
    expect(sorted(row[1] for row in rows[1:]), ["a1", "b1"])
    expect(foliot("dead", "list", "filter", "--reason-contains", "no such reason").must(), "")
    foliot("dead", "redrive", "filter", "--prefix", "a", "--dry-run").must(out=r"\A2 would be redriven\n\Z")
    foliot("dead", "redrive", "filter", "--prefix", "a", "--rate", "1").must(out=r"\A2 redriven\n\Z")
    dues = [json.loads(line)["due"] for line in foliot("list", "filter", "--prefix", "a", "--json").must().splitlines()]
    check(all(due for due in dues), dues)
    foliot("dead", "delete", "filter", "--target-prefix", "ftp:").must(out=r"\A0 deleted\n\Z")
    foliot("dead", "delete", "filter", "--prefix", "b", "--dry-run").must(out=r"\A1 would be deleted\n\Z")
    foliot("dead", "delete", "filter", "--prefix", "b").must(out=r"\A1 deleted\n\Z")
    foliot("dead", "delete", "filter", "--prefix", "b", "some-id").must(2, err="give ID or a filter, not both")
    foliot("dead", "redrive", "filter", "--rate", "0", "--all").must(2, err="rate")


@test("dead lists, shows, revives and deletes")
def _():
    ids = kill_timers("dead", "a", "b", "c", "d")
    rows = columns_of(foliot("dead", "list", "dead").must())
    expect(rows[0], ["ID", "NAME", "DUE", "DIED", "ATTEMPT", "REASON"])
    expect({row[1]: row[0] for row in rows[1:]}, ids)
    expect(len(foliot("dead", "list", "dead", "--limit", "2").must().splitlines()), 3)
    foliot("dead", "get", "dead", ids["a"]).must(out="^reason +.+$")
    expect(json.loads(foliot("dead", "get", "dead", ids["a"], "--json").must())["name"], "a")
    foliot("dead", "redrive", "dead", ids["a"]).must(out=r"\A1 redriven\n\Z")
    foliot("lease", "dead", "--wait", "10s", "--max", "1", "--exec", "echo again $FOLIOT_NAME").must(out="^again a$")
    foliot("dead", "delete", "dead", ids["b"]).must(out=r"\A1 deleted\n\Z")
    foliot("dead", "get", "dead", ids["b"]).must(3, err="the dead letter does not exist")
    foliot("dead", "redrive", "dead").must(2, err="no dead letter selected")
    foliot("dead", "redrive", "dead", "--all").must(out=r"\A2 redriven\n\Z")
    expect(foliot("dead", "list", "dead").must(), "")
    foliot.on_terminal("dead", "list", "dead").must(out=r"\ANo dead letters\.\n\Z")


@test("dead delete --all")
def _():
    kill_timers("dead2", "a", "b")
    foliot("dead", "delete", "dead2", "--all").must(out=r"\A2 deleted\n\Z")


# --- namespace --------------------------------------------------------------------------------------------------------


@test("namespace lists, shows and sets; what is not given stays")
def _():
    path = os.path.join(folder(), "secret")
    with open(path, "w", encoding="ascii") as file:
        file.write("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz\n")
    foliot("namespace", "set", "ns", "--max-rate", "10", "--spread", "30s", "--secret", "@" + path).must()
    foliot("namespace", "set", "ns", "--retry", "max_attempts=3,initial=1s", "--spread", "none").must()
    settings = json.loads(foliot("namespace", "get", "ns", "--json").must())["settings"]
    expect((settings["secret_count"], settings["max_rate"], settings["retry"]["max_attempts"]), (1, 10, 3))
    check("spread" not in settings, settings)
    foliot("namespace", "get", "ns").must(out="^pending +0$")
    heads = ["NAMESPACE", "PENDING", "SCHEDULES", "MAX-RATE", "SPREAD", "SKIP-OLDER", "SECRETS", "RETRY", "PAUSED"]
    rows = columns_of(foliot("namespace", "list").must())
    expect(rows[0], heads)
    row = next(row for row in rows if row[0] == "ns")
    check(row[3] == "10" and row[7].startswith("max_attempts=3,initial=1s,") and row[8] == "-", row)
    foliot("pause", "ns", "--reason", "repair").must(out="^paused +since=.*Z,reason=repair$")
    row = next(row for row in columns_of(foliot("namespace", "list").must()) if row[0] == "ns")
    check(re.fullmatch("since=.*Z,reason=repair", row[8]), row)
    foliot("namespace", "get", "ns").must(out="^paused +since=.*Z,reason=repair$")
    foliot("namespace", "get", "ns").must(out="^retry +max_attempts=3,")
    check("paused" not in foliot("resume", "ns").must(), "it goes on")
    foliot("namespace", "set", "ns").must(2, err="nothing to set")
    foliot("namespace", "set", "ns", "--max-rate", "many").must(2, err="invalid value 'many' for --max-rate")
    foliot("namespace", "set", "ns", "--spread", "soon").must(1, err="spread must be")


@test("hosts: a table of calls and pauses")
def _():
    foliot("add", "hosts", "--after", "0s", "--to", server.url + "/echo").must()
    name = server.url[len("http://"):]
    rows = await_(lambda: [row for row in columns_of(foliot("hosts", "--prefix", name).must() or "HOST\n") if row[0] == name], "a call")
    expect(columns_of(foliot("hosts").must())[0], ["HOST", "CALLS", "FAILURES", "IN-FLIGHT", "WAITING", "P50-MS", "P99-MS", "PAUSED"])
    expect(rows[0][-1], "-")
    foliot("pause", "--host", "example.com:443", "--reason", "repair").must(out="^paused +since=.*,reason=repair$")
    row = next(row for row in columns_of(foliot("hosts").must()) if row[0] == "example.com:443")
    expect((row[1], row[5]), ("0", "-"))
    check(row[7].endswith(",reason=repair"), row)
    foliot("resume", "--host", "example.com:443").must()
    foliot("pause", "--host", "example.com:443", "--until", "32503680000000").must(out="^paused +.*until=3000-01-01T00:00:00Z$")
    foliot("pause", "--host", "example.com:443", "--until", "soon").must(2, err="invalid value 'soon' for --until")
    foliot("resume", "--host", "example.com:443").must()


# --- stats and bench --------------------------------------------------------------------------------------------------


@test("stats: lines, JSON, lines again and again")
def _():
    foliot("add", "stats", "--after", "1h").must()
    foliot("add", "stats", "--after", "0s", "--to", server.url + "/echo").must()
    await_(lambda: server.metric("foliot_lateness_seconds_count") > 0, "one fires")
    foliot("stats").must(out=r"^timers pending +[1-9]")
    figures = json.loads(foliot("stats", "--json").must())
    check(figures["created"] > 0 and figures["attempts"] > 0, figures)
    check(0 < figures["lateness_p50_seconds"] <= figures["lateness_p99_seconds"] <= figures["lateness_max_seconds"], figures)
    check(0 < figures["lateness_mean_seconds"] <= figures["lateness_max_seconds"], figures)
    lines = foliot("stats", "--watch", "--interval", "20ms", "--count", "3").must(out=r"pending \d+  created/s \d+").splitlines()
    expect(len(lines), 3)


@test("stats --watch is a screen on a terminal, and gives it back")
def _():
    shown = foliot.on_terminal("stats", "--watch", "--interval", "20ms", send=(b"Ctrl-C", signal.SIGINT))
    shown.must(out=r"(?s)\A\x1b\[\?1049h.*lateness, history .*\x1b\[32m[▁▂▃▄▅▆▇█]+.*\x1b\[\?1049l\Z")
    plain = foliot.on_terminal("stats", "--watch", "--interval", "20ms", "--count", "2", NO_COLOR="1").must(out="per second")
    check("\x1b[32m" not in plain and "\x1b[1m" not in plain, plain)


@test("bench measures, and leaves nothing behind")
def _():
    out = foliot("bench", "--count", "300", "--connections", "3", "--namespace", "bench").must()
    for what in ("created, one per request", "created, in one batch", "leased and acknowledged", "cancelled, all in one request"):
        check(what in out, out)
    expect(server.get("/v1/namespaces/bench").must(200)["pending"], 0)
    foliot.on_terminal("bench", "--count", "10", "--connections", "1").must(out="per second")


@test("cluster shows the servers and their shards")
def _():
    foliot("cluster").must(out=r"\ASERVER +VERSION +SHARDS +WHICH +LINK\n\S+ +\d\S+ +\d+ +0(-\d+)? +this one\n\Z")
    foliot.on_terminal("cluster").must(out="this one")
    view = json.loads(foliot("cluster", "--json").must())
    expect([shard["shard"] for shard in view["shards"]], list(range(view["servers"][0]["shards"])))
    expect(len(view["servers"]), 1)


@test("version says both")
def _():
    foliot("version").must(out=r"\Afoliot (\S+)\nserver \1 at http://127.0.0.1:\d+\n\Z")
    foliot.on_terminal("version").must(out="^server ")


run()
