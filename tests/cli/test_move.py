#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""foliot export, import and doctor: what is in a store, taken out, put into another, and looked at."""

import base64
import json
import os
import re
import sqlite3
import subprocess

from cli import STORE, Command, Ran, serve, store_url
from e2e import FOLIOT, Server, Skip, await_, check, expect, folder, run, test
import cli

OF_THE_STORE = {"id", "created", "attempt"}


def everything(server):
    """All timers of all namespaces, but for what belongs to the store they are in."""
    found = []
    for space in server.namespaces():
        for timer in server.timers(space["namespace"], limit=10000):
            found.append(json.dumps({key: value for key, value in timer.items() if key not in OF_THE_STORE}, sort_keys=True))
    return sorted(found)


def fill(server, count):
    """Timers of every kind."""
    lines = [
        {"name": "all", "due": "2999-12-31T23:59:59.123456Z", "target": "http://127.0.0.1:9/x?y=1", "timeout": "2.5s",
         "payload": {"n": 1.50, "s": "ü \" \\ \n", "deep": [[[]]]}, "headers": {"X-A": "b", "X-B": "c: d"},
         "retry": {"max_attempts": 3, "initial": "1.5s", "multiplier": 1.333, "max_interval": "1h", "max_age": "2d"}},
        {"name": "bytes", "after": "1h", "payload_base64": base64.b64encode(bytes(range(256))).decode()},
        {"name": "ü/ %", "after": "1h", "payload": None},
        {"after": "1h", "payload": "nameless"},
        {"after": "1h", "payload": "nameless"},
        {"after": "1h"},
    ]
    lines += [{"name": f"n{i}", "after": f"{i % 5000 + 600}s", "payload": i} for i in range(count)]
    answers = server.batch([{"op": "create", "namespace": ("one", "zwei ü/", "3")[i % 3], **line} for i, line in enumerate(lines)])
    check(all(answer["ok"] for answer in answers), answers[:10])


# --- export and import ------------------------------------------------------------------------------------------------


def moves(source_store, target_store):
    with Server(store=source_store) as source, Server(store=target_store) as target:
        fill(source, 3000)
        exported = Command(source.url)("export").must()
        Command(target.url)("import", stdin=exported).must(out=r"\A3006 imported, 0 refused\n\Z")
        check(everything(target) == everything(source), "both have the same")
        # Once more: named ones are replaced by the same, nameless ones are there twice.
        Command(target.url)("import", "-", stdin=exported).must()
        expect(len(everything(target)), 3006 + 3)


@test("export of a running server and import into another store give the same timers")
def _():
    moves(store_url(), "memory:")


@test("and back from memory")
def _():
    moves("memory:", store_url())


@test("a server that was stopped and started again has all its namespaces")
def _():
    if STORE == "memory":
        raise Skip("nothing is left of it when it ends")
    with serve() as server:
        fill(server, 300)
        before = Command(server.url)("export").must()
        server.restart()
        after = Command(server.url)("export").must()
        check(sorted(after.splitlines()) == sorted(before.splitlines()), f"{len(after)} of {len(before)} bytes are there")


@test("export of one namespace, into a file; lines can be sent to /v1/batch as they are")
def _():
    path = os.path.join(folder(), "timers.ndjson")
    with serve() as source, serve() as target:
        fill(source, 30)
        Command(source.url)("export", "zwei ü/", "--output", path).must(err=r"\A\d+ timers and schedules exported\n\Z")
        with open(path, encoding="utf-8") as file:
            lines = file.read()
        expect({json.loads(line)["namespace"] for line in lines.splitlines()}, {"zwei ü/"})
        check(all(answer["ok"] for answer in target.batch(lines.splitlines())), "the server takes them")
        mine = sorted(map(json.dumps, (json.loads(line) for line in lines.splitlines())))
        again = Command(target.url)("export").must()
        expect(sorted(map(json.dumps, (json.loads(line) for line in again.splitlines()))), mine)


@test("settings, pauses, schedules and civil times move, too; secrets do not, and export says so")
def _():
    secret = "whsec_" + base64.b64encode(b"s" * 32).decode()
    settings = {"max_rate": 7, "spread": "3s", "skip_older": "1h", "history": {"keep": "7d", "only": "all", "body": 99},
                "retry": {"max_attempts": 3, "initial": "2s", "multiplier": 1.5, "max_interval": "5m", "max_age": "2d"}}
    with serve() as source, serve() as target:
        source.put("/v1/namespaces/set%20%C3%BC", {**settings, "secrets": [secret]}).must(200)
        source.post("/v1/namespaces/set%20%C3%BC/pause", {"reason": "repair", "until": "2999-01-01T00:00:00Z"}).must(200)
        source.post("/v1/namespaces/only/pause").must(200)
        source.post("/v1/hosts/example.com:443/pause", {"reason": "slow"}).must(200)
        source.put("/v1/timers/set%20%C3%BC/civil", {"due": {"local": "2031-06-01T09:00:00", "zone": "Europe/Berlin"}, "max_wait": "3650d"}).must(201)
        source.put("/v1/schedules/set%20%C3%BC/s", {"cron": "0 9 * * MON", "zone": "Europe/Berlin", "paused": True, "payload": [1],
                                             "missed": "skip", "overlap": "queue", "except": ["2030-01-07"]}).must(201)
        lines = Command(source.url)("export").must(err="the secrets of namespace set ü are not exported")
        civil = next(json.loads(line) for line in lines.splitlines() if '"civil"' in line)
        expect(civil["due"], {"local": "2031-06-01T09:00:00", "zone": "Europe/Berlin"})
        check(all(answer["ok"] for answer in target.batch([line for line in lines.splitlines() if "2031" in line or "cron" in line])),
              "lines of timers and schedules can be sent as they are")
        Command(target.url)("import", stdin=lines).must(out=r"\A5 imported, 0 refused\n\Z")
        for path in ("/v1/namespaces/set%20%C3%BC", "/v1/namespaces/only", "/v1/timers/set%20%C3%BC/civil", "/v1/schedules/set%20%C3%BC/s"):
            before, after = source.get(path).must(200), target.get(path).must(200)
            for one in (before, after):
                one.get("paused") and one["paused"] is not True and one["paused"].pop("since")
                one.get("settings", {}).pop("secret_count", 0)
                for key in ("id", "created"):
                    one.pop(key, 0)
            expect(after, before, path)
        expect(target.get("/v1/hosts").must(200)["hosts"][0]["paused"]["reason"], "slow")
        check("paused" in Command(source.url)("export", "only").must(), "those of one namespace")
        Command(target.url)("import", stdin='{"op":"namespace","namespace":"x","settings":{"frob":1}}\n').must(
            1, out=r"\A0 imported, 1 refused\n\Z", err="frob")


@test("more namespaces than a page has are all listed and exported")
def _():
    with serve() as server:
        names = sorted(f"n{i:04}" for i in range(1050))
        check(all(answer["ok"] for answer in server.batch([{"op": "create", "namespace": name, "after": "1h"} for name in names])), "created")
        command = Command(server.url)
        expect([json.loads(line)["namespace"] for line in command("namespace", "list", "--json").must().splitlines()], names)
        expect(len(command("namespace", "list").must().splitlines()), len(names) + 1)
        expect([json.loads(line)["namespace"] for line in command("export").must().splitlines()], names)
        expect([json.loads(line)["namespace"] for line in command("export", names[-1]).must().splitlines()], names[-1:])


@test("a payload with line breaks is one line wherever lines of JSON are printed")
def _():
    with serve() as source, serve() as target:
        source.put("/v1/timers/demo/tree", '{"after": "1h", "payload": {\n  "a":\r\n\t[1]\n}}').must(201)
        command = Command(source.url)
        for arguments in (("export",), ("list", "demo", "--json"), ("get", "demo", "tree", "--json")):
            expect(json.loads(command(*arguments).must())["payload"], {"a": [1]}, arguments)
            expect(len(command(*arguments).must().splitlines()), 1, arguments)
        Command(target.url)("import", stdin=command("export").must()).must(out=r"\A1 imported, 0 refused\n\Z")
        expect(target.get("/v1/timers/demo/tree").must(200)["payload"], {"a": [1]})


@test("import takes what list --json prints; refuses what is wrong, and says which")
def _():
    with serve() as source, serve() as target:
        foliot = Command(target.url)
        Command(source.url)("add", "ns", "x", "--after", "1h", "--payload", "1").must()
        foliot("import", stdin=Command(source.url)("list", "ns", "--json").must()).must(out="^1 imported")
        check(everything(target) == everything(source), "both have the same")
        text = 'nonsense\n\n{"namespace":"ns","name":"y","after":"1h"}\n{"namespace":"ns"}\n[1]\n'
        foliot("import", stdin=text).must(1, out=r"\A1 imported, 3 refused\n\Z", err=r"\Afoliot import: record 1: the line is not JSON"
                                          r".*\nfoliot import: record 3: due or after is missing.*\nfoliot import: record 4: ")
        foliot("import", stdin="x\n" * 25).must(1, err=r"^and 15 more$")
        foliot("import", stdin="").must(out="^0 imported, 0 refused$")
        foliot("import", "/not/there").must(1, err="cannot open /not/there: No such file")
        foliot("export", "--output", "/not/there").must(1, err="cannot write /not/there: No such file")
        subprocess_full(foliot)


def subprocess_full(foliot):
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([FOLIOT, "export"], stdout=full, stderr=subprocess.PIPE, text=True, env=foliot.env, check=False)
    Ran(["export"], done.returncode, "", done.stderr).must(1, err="cannot write")


@test("timers that a schedule has created, and timers that were replaced, can be moved")
def _():
    with serve() as source, serve() as target:
        source.put("/v1/schedules/demo/x", {"cron": "0 9 * * *", "payload": 7}).must(201)
        source.post("/v1/schedules/demo/x/trigger").must(202)
        for _ in range(2):
            source.put("/v1/timers/demo/often", {"after": "1h", "max_wait": "2h"})
        exported = Command(source.url)("export", "demo").must()
        check('"op":"create"' in exported and "occurrence" not in exported, exported)
        Command(target.url)("import", stdin=exported).must(out="^3 imported, 0 refused$")
        expect([timer["payload"] for timer in target.lease("demo")], [7])


@test("schedules can be moved, and occur at the same times")
def _():
    with serve() as source, serve() as target:
        source.put("/v1/schedules/demo/cron", {"cron": "0 9 * * *", "zone": "Europe/Berlin", "except": ["2030-12-25"], "payload": 7}).must(201)
        source.put("/v1/schedules/demo/every", {"every": "77m", "count": 3, "window": "1m", "headers": {"a": "b"}}).must(201)
        source.put("/v1/schedules/only/one", {"cron": "H H * * *", "start": "2030-01-01T00:00:00Z", "paused": True}).must(201)
        Command(target.url)("import", stdin=Command(source.url)("export").must()).must(out="^3 imported, 0 refused$")
        for path in ("demo/cron", "demo/every", "only/one"):
            there, here = (one.get("/v1/schedules/" + path).must(200) for one in (source, target))
            for field in ("created", "start") if path == "demo/every" else ("created",):
                there.pop(field, None), here.pop(field)
            expect(here, there)
        listed = Command(source.url)("schedule", "list", "demo", "--json").must()
        Command(target.url)("import", stdin=listed).must(out="^2 imported, 0 refused$")


@test("both show a bar on a terminal, and nothing of it in a pipe")
def _():
    path = os.path.join(folder(), "timers.ndjson")
    with serve() as source, serve() as target:
        fill(source, 3000)
        with open(path, "wb") as file:
            shown = Command(source.url).on_terminal("export", stdout=file)
        shown.must(out=r"\rexporting .*█.* 100 %  3 006\x1b\[K\r\x1b\[K\Z")
        shown = Command(target.url).on_terminal("import", path)
        shown.must(out=r"(?s)\rimporting .*█.* %  .*\r\x1b\[K3006 imported, 0 refused\n\Z")
        check(everything(target) == everything(source), "both have the same")


# --- doctor -----------------------------------------------------------------------------------------------------------

foliot = Command("http://127.0.0.1:1")


def sound_store(count=300):
    """A store that a server has used for everything, and left."""
    with Server(store=store_url(), shards=2) as server:
        fill(server, count)
        ours = Command(server.url)
        for i in range(20):
            ours("update", "one", "all", "--at", f"29{i + 10}-01-01T00:00:00Z").must()
        ours("add", "due", "dies", "--after", "0s", "--retry", "max_attempts=1").must()
        await_(lambda: ours("lease", "due", "--wait", "1s", "--exec", "false").status == 1, "it dies")
        await_(lambda: ours("dead", "list", "due").must(), "it is dead")
        count = len(everything(server))
    return server.store, count


def need_database():
    if STORE == "memory":
        raise Skip("nothing is left of it when it ends")


@test("doctor says of a sound store what is in it")
def _():
    need_database()
    store, count = sound_store()
    shown = foliot("doctor", store).must(out=r"^store    .*  2 shards$").splitlines()
    expect(shown[-1], "The store is sound.")
    shards = [line.split() for line in shown if line.startswith("shard ") and " timers" in line]
    expect(sum(int(line[2]) for line in shards), count)
    expect(sum(int(line[line.index("dead") - 1]) for line in shards), 1)
    expect({line[-1] for line in shards}, {"none"})
    expect([line.split("  ", 1)[1] for line in shown if "of history" in line], ["1 row of history"])
    check("\x1b" not in foliot.on_terminal("doctor", store).must(out="sound"), "nothing is red")
    with Server(store=store) as again:
        expect(len(everything(again)), count)


@test("doctor leaves a store alone that is in use")
def _():
    need_database()
    with Server(store=store_url()) as server:
        refused = foliot("doctor", server.store)
        refused.must(6, out="", err="is in use by process|is claimed by .* until .*; stop that server")


@test("doctor finds a store sound whose server was killed")
def _():
    need_database()
    server = Server(store=store_url(), shards=2)
    fill(server, 1000)
    for i in range(50):
        server.post("/v1/timers/due", {"after": "0s", "payload": i}).must(201)
    server.ack(*((timer["lease"], {"result": "done"}) for timer in server.lease("due", wait="10s")))
    server.kill()

    if STORE == "sqlite":  # who has the files open is locked out: nobody has, whatever the shards say
        shown = foliot("doctor", server.store).must(out="^The store is sound.$")
        check(len(re.findall(r"; owner \S+, which was killed$", shown, re.M)) == 2, shown)
        return

    def answered():
        found = foliot("doctor", server.store)
        return None if found.status == 6 else found

    await_(answered, "its lease runs out").must(out="^The store is sound.$")


@test("doctor makes no store where there is none")
def _():
    place = folder()
    foliot("doctor", place).must(3, err="has no store")
    foliot("doctor", "sqlite:" + place + "/not/there").must(3, err="has no store")
    expect(os.listdir(place), [])
    foliot("doctor", "memory:").must(2, err="cannot check the store 'memory:'")
    foliot("doctor", place + "/nope").must(3, err=f"the folder {place}/nope does not exist;")
    foliot("doctor", "nope").must(3, err="the folder nope does not exist;")
    foliot("doctor", "/etc/passwd").must(3, err="/etc/passwd is not a folder;")
    if STORE == "postgres":
        foliot("doctor", store_url()).must(3, err="this database has no store")
        foliot("doctor", "postgres:///x?host=/not/there").must(7, err="foliot doctor: ")
        foliot("doctor", store_url().replace("/postgres", "/nope", 1)).must(3, err="does not exist")


def damage_sqlite(store, *statements):
    for shard in (0, 1):
        with sqlite3.connect(f"{store[7:]}/shard-000{shard}.db") as db:
            for statement in statements:
                db.execute(statement)
        db.close()


@test("doctor finds what is wrong with files")
def _():
    if STORE != "sqlite":
        raise Skip("there are no files")
    store, _ = sound_store()
    damage_sqlite(store, "INSERT INTO moved VALUES (999999, 99999999999999999, 777777)", "CREATE TABLE slot_4711(k INTEGER PRIMARY KEY, v)",
                  "INSERT INTO slot_4711 VALUES (1, 'x')")
    shown = foliot("doctor", store).must(1, out="^The store is damaged")
    for found in ("problem  shard 0  1 entries for moved timers have no timer", "problem  shard 1  the table slot_4711 has rows, but no window, index or history uses it"):
        check(found in shown, shown)
    foliot.on_terminal("doctor", store).must(1, out=r"^\x1b\[31mproblem\x1b\[0m  shard 0")
    damage_sqlite(store, "UPDATE progress SET progress = x'ffffff'")
    foliot("doctor", store).must(1, out="the recorded progress of the shard cannot be read")
    with open(f"{store[7:]}/shard-0001.db", "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(4096 * 3))
    found = foliot("doctor", store)
    check(found.status == 1 and "damaged" in found.out + found.err, found)


@test("doctor finds what is wrong with tables")
def _():
    if STORE != "postgres":
        raise Skip("that is for PostgreSQL")
    store, _ = sound_store()
    schema = store.rsplit("%3D", 1)[1]
    for statement in ("INSERT INTO foliot_moved VALUES (0, 999999, 99999999999999999, 777777)",
                      "UPDATE foliot_timer SET shard = 9 WHERE shard = 0"):
        cli.postgres.run("psql", "-q", "-h", cli.postgres.folder, "-U", "foliot", "-d", "postgres", "-c",
                         f"SET search_path = {schema}; {statement}")
    shown = foliot("doctor", store).must(1, out="timers are in shards that do not exist")
    check("shard 0  2 entries for moved timers have no timer" in shown, shown)


run()
