#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The life of a server: its options, its start, signals, its end, the next one; and what it tells of itself."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

from e2e import (FOLIOT, Postgres, Receiver, Server, Skip, await_, check, cleanups, expect, foliot, folder, need_program, now_ms,
                 problem, run, test)

# --- Options ----------------------------------------------------------------------------------------------------------


@test("a bad value names the option, the value and what is allowed, wherever it comes from")
def _():
    for option, value, allowed in (("--shards", "0", "1"), ("--shards", "many", "number"), ("--listen", "nowhere", "HOST:PORT"),
                                   ("--store", "mysql://x", "sqlite:"), ("--log-level", "loud", "warning"),
                                   ("--webhook-timeout", "soon", "100ms"), ("--max-body", "1", "KiB"),
                                   ("--retry-multiplier", "0", "1"), ("--strategy", "guess", "preload")):
        done = foliot("serve", "--check", option, value)
        check(done.returncode != 0, f"{option} {value} is refused")
        for word in (option.lstrip("-"), value, allowed):
            check(word in done.stderr, f"{option} {value}: '{word}' is in {done.stderr!r}")
        variable = "FOLIOT_" + option.lstrip("-").replace("-", "_").upper()
        done = foliot("serve", "--check", env={variable: value})
        check(done.returncode != 0 and variable in done.stderr and value in done.stderr, f"{variable}: {done.stderr!r}")
    for arguments in (["--nonsense"], ["--shard", "1"], ["--shards"], ["nonsense"], ["--config", "/nonexistent/foliot.conf"]):
        done = foliot("serve", "--check", *arguments)
        check(done.returncode != 0 and done.stderr, f"{arguments}: {done.stderr!r}")


@test("--check prints what is in effect, from file, environment and options, and starts nothing")
def _():
    path = os.path.join(folder(), "foliot.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write('[server]\nshards = 7 # seven\nlog-level = debug\n[engine]\nrecord-interval = 250ms ; or so\n'
                   '[limits]\nmax-body = 2MiB # two\n')
    done = foliot("serve", "--check", "--config", path, "--log-level", "warning", env={"FOLIOT_SHARDS": "5"})
    expect(done.returncode, 0, done.stderr)
    for line in ("shards = 5", "record-interval = 250ms", "max-body = 2MiB", "log-level = warning"):
        check(line in done.stdout.replace('"', ""), f"{line} is in {done.stdout}")
    with open(path, "a", encoding="utf-8") as file:
        file.write("nonsense = 1\n")
    done = foliot("serve", "--check", "--config", path)
    check(done.returncode != 0 and "nonsense" in done.stderr and "foliot.conf:8" in done.stderr, done.stderr)


@test("--check looks into the certificate and its key")
def _():
    path = os.path.join(folder(), "cert.pem")
    with open(path, "w", encoding="utf-8") as file:
        file.write("nothing of the kind\n")
    done = foliot("serve", "--check", "--tls-certificate", path, "--tls-key", path)
    check(done.returncode != 0 and "cannot use the certificate" in done.stderr and path in done.stderr, done.stderr)
    expect(done.stdout, "")


@test("listening elsewhere than on loopback without tokens is refused")
def _():
    for address in ("0.0.0.0:0", "[::]:0"):
        done = foliot("serve", "--check", "--listen", address)
        check(done.returncode != 0 and "token" in done.stderr, f"{address}: {done.stderr!r}")


@test("an address that is taken, a store that cannot be opened: a sentence, and no server")
def _():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = foliot("serve", "--listen", address, "--store", "sqlite:" + os.path.join(folder(), "data"))
        expect(done.returncode, 1)
        expect(len(done.stderr.splitlines()), 1, done.stderr)
        check(f"cannot listen on {address} (address already in use); stop the other server or choose another address with "
              "--listen" in done.stderr, done.stderr)
    done = foliot("serve", "--listen", "127.0.0.1:0", "--store", "sqlite:/proc/nothing/here")
    check(done.returncode != 0 and "/proc/nothing/here" in done.stderr, done.stderr)
    done = foliot("serve", "--listen", "127.0.0.1:0", "--store", "postgres://nobody:secret-word@127.0.0.1:1/none?connect_timeout=2")
    check(done.returncode != 0 and done.stderr, done.stderr)
    check("secret-word" not in done.stderr, "the password is not told")


@test("each store that there is can be served from; --shards must be the store's")
def _():
    with Server(store="memory:") as server:
        server.put("/v1/timers/a/b", {"after": "1h"}).must(201)
    with Server(shards=3) as server:
        server.put("/v1/timers/a/b", {"after": "1h"}).must(201)
        server.stop()
        done = foliot("serve", "--listen", "127.0.0.1:0", "--store", server.store, "--shards", "4")
        check(done.returncode != 0 and "3" in done.stderr, done.stderr)
        server.start()
        server.get("/v1/timers/a/b").must(200)


# --- The next one -----------------------------------------------------------------------------------------------------


def keeps_everything(store=None):
    receiver = Receiver(lambda call: 404 if call.json == "dead" else 200)
    settings = {"retry": {"max_attempts": 3, "initial": "5s", "multiplier": 2, "max_interval": "1h"}, "max_rate": 1000, "spread": "2s"}
    with Server(store=store, shards=4) as server:
        server.put("/v1/namespaces/kept", {**settings, "secrets": ["whsec_" + "A" * 32]}).must(200)
        made = [server.put(f"/v1/timers/kept/t{n}", {"after": "1h", "payload": {"n": n}, "headers": {"x": str(n)}}).must(201)
                for n in range(50)]
        made += [server.post("/v1/timers/kept", {"after": "2h", "payload_base64": "AP8="}).must(201) for _ in range(10)]
        server.post("/v1/timers/kept", {"after": "0s", "target": receiver.url, "payload": "dead"}).must(201)
        await_(lambda: server.get("/v1/dead/kept").must(200)["timers"], "one is dead")
        dead = server.get("/v1/dead/kept").json
        space = await_(lambda: [one for one in server.get("/v1/namespaces").json["namespaces"]
                                if one["namespace"] == "kept" and one["pending"] == 60], "sixty are pending")
        for end in ("stop", "kill"):
            time.sleep(1.2 if end == "kill" else 0)  # how often counts are written
            getattr(server, end)()
            server.start()
            await_(lambda: server.get("/readyz").status == 200, "it is ready")
            expect(sorted(server.timers("kept"), key=lambda one: one["id"]), sorted(made, key=lambda one: one["id"]))
            expect(server.get("/v1/dead/kept").json, dead)
            expect([one for one in server.get("/v1/namespaces").json["namespaces"] if one["namespace"] == "kept"], space, end)


@test("a restart keeps timers, dead letters and the settings of namespaces, after a kill too")
def _():
    keeps_everything()


@test("the same with PostgreSQL")
def _():
    keeps_everything(Postgres().url())


@test("what fell due while no server ran fires at the next start, unless its namespace says otherwise")
def _():
    receiver = Receiver()
    with Server() as server:
        server.put("/v1/namespaces/forgetful", {"skip_older": "1ms"}).must(200)
        for namespace in ("faithful", "forgetful"):
            for n in range(5):
                server.put(f"/v1/timers/{namespace}/{n}", {"after": "300ms", "target": receiver.url, "payload": namespace}).must(201)
        server.stop()
        expect(receiver.calls, [])
        time.sleep(0.5)
        server.start()
        receiver.await_calls(5)
        await_(lambda: server.timers("forgetful") == [] and server.timers("faithful") == [], "all are settled")
        expect(receiver.bodies(), ["faithful"] * 5)


@test("a second server on the same folder is told who holds it")
def _():
    with Server("--owner", "the-first") as server:
        server.put("/v1/timers/a/b", {"after": "1h"}).must(201)
        second = foliot("serve", "--listen", "127.0.0.1:0", "--store", server.store, "--log-format", "logfmt")
        check(second.returncode != 0, "it does not start")
        check(str(server.process.pid) in second.stderr or "the-first" in second.stderr, f"it is told who: {second.stderr}")
        server.get("/v1/timers/a/b").must(200)


# --- Signals ----------------------------------------------------------------------------------------------------------


@test("SIGTERM: what is under way is finished, new work is refused, and nothing is lost")
def _():
    go = threading.Event()
    receiver = Receiver(lambda call: go.wait(60) and 200)
    with Server() as server:
        for n in range(5):
            server.put(f"/v1/timers/a/{n}", {"after": "0s", "target": receiver.url, "payload": n}).must(201)
        receiver.await_calls(5)
        server.put("/v1/timers/a/later", {"after": "1h"}).must(201)
        server.signal(signal.SIGTERM)
        server.await_log("stopping")
        check(server.process.poll() is None, "it waits for them")
        go.set()
        expect(server.process.wait(60), 0)
        server.await_log("stopped")
        server.start()
        expect([one["name"] for one in server.timers("a")], ["later"])
        expect(len(receiver.calls), 5, "nothing came twice")


@test("SIGTERM: who does not finish is given up after the limit, and comes again at the next start")
def _():
    go = threading.Event()
    receiver = Receiver(lambda call: go.wait(60) and 200)
    with Server("--stop-timeout", "300ms", "--retry-initial", "10ms") as server:
        server.put("/v1/timers/a/x", {"after": "0s", "target": receiver.url}).must(201)
        receiver.await_calls(1)
        server.stop()
        expect(len(receiver.calls), 1)
        go.set()
        server.start()
        receiver.await_calls(2)
        await_(lambda: server.timers("a") == [], "it is done")


@test("SIGTERM: what falls due while it stops fires at the next start")
def _():
    go = threading.Event()
    slow, receiver = Receiver(lambda call: go.wait(60) and 200), Receiver()
    with Server("--workers", "2") as server:
        server.put("/v1/timers/a/slow", {"after": "0s", "target": slow.url}).must(201)
        slow.await_calls(1)
        due = int(time.time() * 1000) + 500
        for n in range(100):
            server.put(f"/v1/timers/a/{n}", {"due": due + 5 * n, "target": receiver.url, "payload": n}).must(201)
        server.signal(signal.SIGTERM)
        server.await_log("stopping")
        await_(lambda: time.time() * 1000 > due + 1000, "they are due")
        go.set()
        expect(server.process.wait(60), 0)
        server.start()
        await_(lambda: set(receiver.bodies()) == set(range(100)), "all have come")


@test("SIGTERM ends long polls and streams of events, and SIGINT is the same")
def _():
    for number in (signal.SIGTERM, signal.SIGINT):
        with Server() as server:
            found = []
            asker = threading.Thread(target=lambda: found.append(server.post("/v1/lease/a", {"wait": "60s"})))
            asker.start()
            events = server.socket()
            events.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            check(b"200" in events.recv(100), "it listens")
            time.sleep(0.1)
            server.signal(number)
            expect(server.process.wait(20), 0)
            asker.join()
            check(not found or found[0].status in (200, 503), f"{found}")


@test("SIGHUP reloads tokens and the log level; what cannot be read changes nothing")
def _():
    path = os.path.join(folder(), "foliot.conf")

    def write(level, *tokens):
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'[server]\nlog-level = {level}\n')
            for name in tokens:
                digest = subprocess.run(["sha256sum"], input=name, capture_output=True, text=True, check=True).stdout.split()[0]
                file.write(f'[token {name}]\nsha256 = {digest}\nnamespaces = *\nrights = read, write\n')

    write("info", "first")
    with Server("--config", path) as server:
        server.token = "first"
        server.put("/v1/timers/a/b", {"after": "1h"}).must(201)
        write("info", "second")
        server.signal(signal.SIGHUP)
        await_(lambda: server.get("/v1/timers/a/b").status == 401, "the old token is worth nothing")
        server.token = "second"
        server.get("/v1/timers/a/b").must(200)
        with open(path, "w", encoding="utf-8") as file:
            file.write("[server\nnonsense")
        server.signal(signal.SIGHUP)
        server.await_log("keeps the old one")
        server.get("/v1/timers/a/b").must(200)
        write("error", "second")
        server.signal(signal.SIGHUP)
        time.sleep(0.3)
        server.signal(signal.SIGHUP)
        server.get("/v1/timers/a/b").must(200)


@test("SIGTERM while the database does not answer for seconds: it ends when that does")
def _():
    postgres = Postgres()
    with Server("--stop-timeout", "1s", store=postgres.url(), shards=1) as server:
        server.put("/v1/timers/held/a", {"after": "1h"}).must(201)  # and its namespace is written at once
        server.put("/v1/timers/held/b", {"after": "1h"}).must(201)  # which changes how much is in it
        lock = "BEGIN; LOCK TABLE e2e1.foliot_timer IN EXCLUSIVE MODE; SELECT pg_sleep(8)"

        def create():
            with contextlib.suppress(http.client.HTTPException, ConnectionError):  # it is cut off
                server.put("/v1/timers/held/c", {"after": "1h"})

        threads = [threading.Thread(target=postgres.sql, args=(lock,)), threading.Thread(target=create)]
        for thread in threads:
            thread.start()
            time.sleep(0.5)
        server.signal(signal.SIGTERM)
        expect(server.process.wait(60), 0)
        for thread in threads:
            thread.join()


@test("signals in quick succession, and two SIGTERM")
def _():
    with Server() as server:
        for _ in range(50):
            server.signal(signal.SIGHUP)
        expect(server.get("/healthz").status, 200)
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGTERM)
        expect(server.process.wait(60), 0)


# --- What it tells of itself ------------------------------------------------------------------------------------------


def small_disk():
    disk = folder()
    if os.getuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk], check=False).returncode != 0:
        raise Skip("a small disk cannot be made here")
    cleanups.callback(subprocess.run, ["umount", disk], check=False)
    return disk


@test("a disk that fills up: new timers are refused, those that are there fire, and there is room again afterwards")
def _():
    disk = small_disk()
    receiver = Receiver()
    fields = {"due": now_ms() + 15_000, "target": receiver.url, "payload": "x" * 100_000}
    with Server("--delete-interval", "100ms", store=f"sqlite:{disk}/data", shards=1) as server:
        made = 0
        while (answer := server.put(f"/v1/timers/full/{made}", fields)).status == 201:
            made += 1
            check(made < 240, "the disk is full at some time")
        problem(answer, 507, "store-full")
        for number in range(100):
            problem(server.put(f"/v1/timers/full/more-{number}", fields), 507, "store-full")
        check(len([entry for entry in server.log if "trouble" in entry["msg"]]) < 50, "the log says it, and not each time")
        receiver.await_calls(made)
        await_(lambda: server.put("/v1/timers/full/again", {"after": "1h"}).status == 201, "there is room again")
        expect(len(receiver.calls), made)


def refused_while_away(server):
    """No server has the shard, and each request is answered all the same."""
    answers = [server.get("/v1/timers/away/one"), server.get("/v1/timers/away"), server.put("/v1/timers/away/two", {"after": "1h"}),
               server.delete("/v1/timers/away/one"), server.get("/v1/dead/away"), server.get("/v1/schedules/away"),
               server.get("/v1/forecast?namespace=away"), server.get("/v1/history/away")]
    for answer in answers:
        problem(answer, 503, "store-unavailable")
    line = {"op": "create", "namespace": "away", "name": "three", "after": "1h"}
    expect([answer["problem"]["status"] for answer in server.batch([line, {"op": "cancel", "namespace": "away", "name": "four"}])], [503] * 2)


@test("a disk that something else has filled before the server starts: requests are refused until there is room")
def _():
    disk = small_disk()
    with Server(store=f"sqlite:{disk}/data", shards=1) as server:
        server.put("/v1/timers/away/one", {"after": "1h"}).must(201)
        server.kill()
        with open(f"{disk}/other", "wb", buffering=0) as other, contextlib.suppress(OSError):
            while other.write(b"x" * 4096):
                pass
        server.start(until=None)
        server.await_log("the store fails")
        answer = server.get("/readyz").must(503)
        for words in ("shard 0 waits", "disk", "free space"):
            check(words in answer.get("reason", ""), f"'{words}' in {answer}")
        refused_while_away(server)
        time.sleep(12)
        lines = lambda words: len([entry for entry in list(server.log) if words in entry["msg"]])
        expect(lines("cannot read the settings"), 1, "the beginning is told once")
        expect(lines("have been read"), 0, "no end")
        os.unlink(f"{disk}/other")
        await_(lambda: server.get("/readyz").status == 200, "ready")
        check("reason" not in server.get("/readyz").json, "the reason is gone")
        expect([lines("cannot read the settings"), lines("have been read")], [1, 1], "beginning and end")
        server.get("/v1/timers/away/one").must(200)


@test("a shard that another server holds: requests are refused after a while")
def _():
    with Server("--lease", "1h", store=Postgres().url(), shards=1) as server:
        server.put("/v1/timers/away/one", {"after": "1h"}).must(201)
        server.kill()
        server.start(until=None)
        server.await_log("waiting for a shard")
        answer = server.get("/readyz").must(503)
        for words in ("shard 0 waits", "holds the shard", "stop that server"):
            check(words in answer.get("reason", ""), f"'{words}' in {answer}")
        refused_while_away(server)
        server.kill()


@test("a disk that is full of small timers: those that fail are written again, also after a restart, and there is room afterwards")
def _():
    disk = small_disk()
    fails = {"status": 503}
    receiver = Receiver(lambda call: fails["status"] if call.path == "/fails" else 200)
    fields = {"op": "create", "namespace": "full", "due": now_ms() + 8_000, "payload": "x" * 2_000,
              "retry": {"max_attempts": 0, "max_interval": "1s"}}
    lines = [fields | {"target": receiver.url + ("/fails" if n == 0 else "/")} for n in range(100)]
    with Server("--delete-interval", "100ms", store=f"sqlite:{disk}/data", shards=1) as server:
        while all(answer["ok"] for answer in server.batch(lines)):
            pass
        expect(server.batch(lines[:1])[0]["problem"]["status"], 507)
        failing = lambda: server.get("/v1/namespaces/full").must(200)["pending"] < 100
        await_(failing, "only those that fail are left")
        server.restart()
        await_(lambda: server.get("/readyz").status == 200, "the server is ready")
        fails["status"] = 200
        await_(lambda: server.get("/v1/namespaces/full").must(200)["pending"] == 0, "all are done")
        await_(lambda: server.put("/v1/timers/full/again", {"after": "1h"}).status == 201, "there is room again")


@test("/metrics is what Prometheus' own parser takes, with odd names of namespaces too")
def _():
    receiver = Receiver(lambda call: 503 if call.json == "fail" else 200)
    with Server("--retry-initial", "10s") as server:
        for namespace in ("plain", "with%22quote", "back%5Cslash", "%C3%BCmlaut%7B%7D", "new%20space"):
            server.post(f"/v1/timers/{namespace}", {"after": "0s", "target": receiver.url, "payload": 1}).must(201)
        server.post("/v1/timers/plain", {"after": "0s", "target": receiver.url, "payload": "fail"}).must(201)
        server.post("/v1/timers/plain", {"after": "1h"}).must(201)
        receiver.await_calls(6)
        answer = await_(lambda: server.metric("foliot_webhooks_total") == 6 and server.get("/metrics"), "six calls")
        check(answer.headers["content-type"].startswith("text/plain"), answer.headers["content-type"])
        text = answer.body.decode()
        for wanted in ("lateness_seconds_bucket", "webhook_duration_seconds_bucket", "pending", "overdue", "memory", "store"):
            check(wanted in text, f"{wanted} is in the metrics")
        expect(server.metric('foliot_namespace_timers_pending'), 2)
        for family in ("foliot_lateness_seconds", "foliot_webhook_duration_seconds"):
            buckets = [float(value) for value in re.findall(rf"^{family}_bucket{{.*}} (\S+)$", text, re.M)]
            expect(buckets, sorted(buckets), "buckets add up")
            expect(buckets[-1], float(re.search(rf"^{family}_count (\S+)$", text, re.M)[1]))
        need_program("promtool")
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        expect((done.returncode, done.stdout + done.stderr), (0, ""))


@test("the log has no secrets, in any form, nor have answers and metrics")
def _():
    receiver = Receiver(lambda call: 404)
    secret, header, body = "whsec_" + "U2VjcmV0" * 4, "header-secret-value", "payload-secret-value"
    with Server("--log-level", "debug") as server:
        server.put("/v1/namespaces/s", {"secrets": [secret]}).must(200)
        server.put("/v1/namespaces/s", {"secrets": [secret + "!"]}).must(400)
        server.post("/v1/timers/s", {"after": "0s", "target": receiver.url, "headers": {"Authorization": header}, "payload": body}).must(201)
        receiver.await_calls(1)
        await_(lambda: server.get("/v1/dead/s").must(200)["timers"], "it is dead")
        told = json.dumps(server.log) + server.get("/metrics").body.decode() + server.get("/v1/namespaces").body.decode()
        for word in (secret, secret[6:], header, body):
            check(word not in told, f"{word} is not told")


@test("the log as logfmt and as JSON")
def _():
    for form in ("json", "logfmt"):
        path = os.path.join(folder(), "log")
        with open(path, "w", encoding="utf-8") as log:
            process = subprocess.Popen([FOLIOT, "serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--log-format", form],
                                       stderr=log, stdout=log)
        await_(lambda: "listening" in open(path, encoding="utf-8").read(), "it listens")
        process.terminate()
        expect(process.wait(60), 0)
        for line in open(path, encoding="utf-8").read().splitlines():
            if form == "json":
                check({"time", "level", "msg"} <= set(json.loads(line)), line)
            else:
                check(re.match(r'time=\S+ level=\w+ msg=', line), line)


@test("the first line says the version, the store without its password, and where it listens")
def _():
    version = foliot("--version").stdout.split()[1]
    with Server() as server:
        line = server.logged("listening")
        expect((line["version"], line["store"], line["url"]), (version, server.store, server.url))


@test("failed attempts and dead letters are in the log, but a storm of them does not fill it")
def _():
    receiver = Receiver(lambda call: (500, {}, ""))
    with Server("--retry-max-attempts", "2", "--retry-initial", "10ms") as server:
        server.put("/v1/timers/log/one", {"after": "0s", "target": receiver.url}).must(201)
        failed = server.await_log("an attempt has failed")
        expect((failed["namespace"], failed["name"], failed["attempt"], failed["level"]), ("log", "one", "1", "warning"))
        check("500" in failed["why"], failed)
        dead = server.await_log("a timer has become a dead letter")
        expect((dead["name"], dead["id"], dead["attempt"]), ("one", failed["id"], "2"))
        server.batch([{"op": "create", "namespace": "log", "after": "0s", "target": receiver.url}] * 1000)
        await_(lambda: server.metric("foliot_namespace_timers_dead_total") == 1001, "all are dead")
        server.stop()

        def lines():
            return [entry for entry in list(server.log) if "an attempt has failed" in entry["msg"] or "dead letter" in entry["msg"]]

        def told():
            summaries = [entry for entry in list(server.log) if "than the log shows" in entry["msg"]]
            return sum(int(entry["failed_attempts"]) + int(entry["dead_letters"]) for entry in summaries) + len(lines())

        await_(lambda: told() == 3003, "each is told or counted: two failed attempts and a dead letter for each timer")
        check(len(lines()) < 300, f"{len(lines())} lines")


@test("a response that is ignored has a line in the log, but not each")
def _():
    for headers, body, why in (({"Content-Type": "application/json"}, "x" * 70000, "64 KiB"), ({"Content-Type": "text/html"}, "ok", "content type")):
        receiver = Receiver(lambda call, headers=headers, body=body: (200, headers, body))
        with Server("--workers", "1") as server:
            server.put("/v1/timers/log/one", {"after": "0s", "target": receiver.url}).must(201)
            ignored = server.await_log("the response of a target was ignored")
            expect((ignored["namespace"], ignored["name"], ignored["level"]), ("log", "one", "info"))
            check(why in ignored["why"], ignored)
            server.batch([{"op": "create", "namespace": "log", "after": "0s", "target": receiver.url}] * 100)
            await_(lambda server=server: server.metric("foliot_namespace_attempts_done_total") == 101, "all are done")
            server.stop()
            lines = [entry for entry in list(server.log) if "was ignored" in entry["msg"]]
            check(len(lines) < 10, f"{len(lines)} lines")


run()
