#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""foliot lease and ack: printing, running commands, several at once, and being told to stop at every moment."""

import http.server
import json
import os
import random
import signal
import subprocess
import threading
import time

from cli import Command, serve
from e2e import FOLIOT, PATIENCE, await_, check, expect, folder, run, test

server = serve()
foliot = Command(server.url)


# --- lease ------------------------------------------------------------------------------------------------------------


@test("lease prints what is due as JSON lines, and does not acknowledge it")
def _():
    for name in ("a", "b"):
        foliot("add", "due", name, "--after", "0s", "--payload", f'"{name}"').must()
    seen = []
    while len(seen) < 2:
        seen += [json.loads(line) for line in foliot("lease", "due", "--wait", "10s", "--lease", "1h").must().splitlines()]
    expect(sorted((timer["name"], timer["payload"], timer["attempt"]) for timer in seen), [("a", "a", 1), ("b", "b", 1)])
    expect(foliot("lease", "due").must(), "")
    expect(server.ack(*((timer["lease"], {"result": "done"}) for timer in seen))["settled"], 2)


@test("lease --exec runs a command with the payload and the variables; status 0 acknowledges")
def _():
    foliot("add", "exec", "job", "--after", "0s", "--payload", '{"a": 1}').must()
    out = foliot("lease", "exec", "--wait", "10s", "--exec", "cat; echo; env").must(out=r'\A\{"a": 1\}$')
    variables = dict(line.split("=", 1) for line in out.splitlines() if line.startswith("FOLIOT_"))
    expect((variables["FOLIOT_NAME"], variables["FOLIOT_NAMESPACE"], variables["FOLIOT_ATTEMPT"]), ("job", "exec", "1"))
    check(len(variables["FOLIOT_ID"]) == 26 and variables["FOLIOT_DUE"] and variables["FOLIOT_LEASE"], variables)
    foliot("get", "exec", "job").must(3, err="the timer does not exist")


@test("lease --exec gives bytes as they are, to commands that read them or not, one after the other")
def _():
    path = os.path.join(folder(), "bytes")
    with open(path, "wb") as file:
        file.write(bytes(range(256)) * 500)
    foliot("add", "bytes", "--after", "0s", "--payload", "@" + path).must()
    foliot("lease", "bytes", "--wait", "10s", "--exec", f"cmp - {path}").must()
    for _ in range(5):
        foliot("add", "bytes", "--after", "0s", "--payload", "@" + path).must()
    done = ""
    while done.count("x") < 5:
        done += foliot("lease", "bytes", "--wait", "10s", "--exec", "echo x").must()
    expect(server.get("/v1/namespaces/bytes").must(200)["pending"], 0)


@test("a command that fails brings the timer back")
def _():
    foliot("add", "again", "x", "--after", "0s", "--retry", "initial=1ms,max_interval=1ms").must()
    foliot("lease", "again", "--max", "1", "--wait", "10s", "--exec", "exit 7").must(1)
    out = foliot("lease", "again", "--max", "1", "--wait", "10s", "--exec", "echo attempt $FOLIOT_ATTEMPT").must()
    expect(out, "attempt 2\n")


@test("a lease that has run out is told")
def _():
    foliot("add", "late", "x", "--after", "0s").must()
    stops_foliot = "kill -STOP $PPID; sleep 0.3; kill -CONT $PPID"
    foliot("lease", "late", "--max", "1", "--wait", "10s", "--lease", "50ms", "--exec", stops_foliot).must(
        1, err=r"1 lease ended before the command did \(expired, or the server restarted\), so the timer will fire again")


@test("a lease is extended while its command runs")
def _():
    foliot("add", "long", "x", "--after", "0s").must()
    asks = f"curl -s {server.url}/v1/lease/long -d '{{}}'"
    foliot("lease", "long", "--max", "1", "--wait", "10s", "--lease", "500ms", "--exec", f"sleep 2; {asks}").must(
        out=r'^\{"timers":\[\]\}$')
    expect(server.timers("long"), [])


@test("lease --forever goes on until it is told to stop")
def _():
    process = foliot.start("lease", "ever", "--forever", "--exec", "echo got $FOLIOT_NAME")
    for name in ("a", "b", "c"):
        foliot("add", "ever", name, "--after", "0s").must()
        await_(lambda: f"got {name}" in process.lines, f"{name} in {process.lines}")
    process.send_signal(signal.SIGTERM)
    expect(process.wait(PATIENCE), 0)


@test("ack acknowledges a lease, or those on standard input, and says which are unknown")
def _():
    for name in ("a", "b", "c"):
        foliot("add", "acks", name, "--after", "0s", "--retry", "initial=1ms,max_interval=1ms").must()
    lines = []
    while len(lines) < 3:
        lines += foliot("lease", "acks", "--wait", "10s", "--lease", "1h").must().splitlines()
    first, second, third = lines
    foliot("ack", json.loads(first)["lease"]).must(out=r"\A1 acknowledged\n\Z")
    foliot("ack", "-", stdin=second + "\n" + json.loads(first)["lease"] + "\n").must(
        3, out="^1 acknowledged$", err=f"lease {json.loads(first)['lease']} is unknown or has expired")
    foliot("ack", json.loads(third)["lease"], "--result", "retry").must(out="^1 acknowledged$")
    foliot("lease", "acks", "--wait", "10s", "--exec", "echo $FOLIOT_ATTEMPT").must(out="^2$")
    foliot("ack", "x", "--result", "frob").must(1, err="result must be")
    server.put("/v1/timers/acks/long", {"after": "0s"}).must(201)
    one = json.loads(foliot("lease", "acks", "--wait", "10s", "--lease", "1h").must())["lease"]
    foliot("ack", one, "--result", "extend", "--after", "2h").must(out=r"\A1 extended\n\Z")
    foliot("ack", one, "--result", "extend").must(1, err="after must be given with extend")
    foliot("ack", one, "--result", "release").must(out=r"\A1 released\n\Z")
    foliot("ack", one, "--result", "release").must(3, out=r"\A0 released\n\Z", err="unknown or has expired")
    one = json.loads(foliot("lease", "acks", "--wait", "10s", "--lease", "1h").must())
    expect((one["name"], one["attempt"]), ("long", 1))
    foliot("ack", one["lease"]).must(out="^1 acknowledged$")
    foliot("ack", "-", stdin="").must(2, err="no lease on standard input")


# --- several at once --------------------------------------------------------------------------------------------------


@test("lease --parallel runs so many commands at once, and acknowledges each when it ends")
def _():
    where = folder()
    for i in range(4):
        foliot("add", "many", f"t{i}", "--after", "0s").must()
    # Each command waits until all four run, so that fewer at once would not end.
    together = f'touch {where}/$FOLIOT_NAME; while [ $(ls {where} | wc -l) -lt 4 ]; do sleep 0.01; done; echo $FOLIOT_NAME'
    out = foliot("lease", "many", "--wait", "10s", "--parallel", "4", "--max", "4", "--exec", together).must()
    expect(sorted(out.split()), ["t0", "t1", "t2", "t3"])
    expect(server.get("/v1/namespaces/many").must(200)["pending"], 0)


@test("a command that has ended is acknowledged while others run and the next timers are waited for")
def _():
    where = folder()
    for name in ("long", "short"):
        foliot("add", "mixed", name, "--after", "0s").must()
    wait = f'if [ $FOLIOT_NAME = long ]; then while [ ! -e {where}/go ]; do sleep 0.01; done; fi'
    process = foliot.start("lease", "mixed", "--forever", "--parallel", "3", "--exec", wait)
    await_(lambda: server.get("/v1/timers/mixed/short").status == 404, "the short one is acknowledged")
    expect(server.get("/v1/timers/mixed/long").status, 200)
    open(f"{where}/go", "w", encoding="ascii").close()
    await_(lambda: server.get("/v1/timers/mixed/long").status == 404, "the long one too")
    process.send_signal(signal.SIGTERM)
    expect((process.wait(PATIENCE), process.stderr.read()), (0, ""))


@test("lease --max is how many timers in all; --parallel needs --exec")
def _():
    for i in range(3):
        foliot("add", "most", f"t{i}", "--after", "0s").must()
    done = 0
    while done < 2:
        done += foliot("lease", "most", "--wait", "10s", "--max", str(2 - done), "--exec", "echo x").must().count("x")
    expect((done, server.get("/v1/namespaces/most").must(200)["pending"]), (2, 1))
    foliot("lease", "most", "--parallel", "2").must(2, err="--parallel needs --exec")


# --- being told to stop -----------------------------------------------------------------------------------------------


class Work:
    """A timer whose command runs until it is let go."""

    def __init__(self, namespace, *options, names=("x",), command=""):
        self.where, self.namespace, self.names = folder(), namespace, names
        for name in names:
            foliot("add", namespace, name, "--after", "0s", "--retry", "initial=1ms,max_interval=1ms").must()
        text = f'{command} touch {self.where}/began-$FOLIOT_NAME; while [ ! -e {self.where}/go ]; do sleep 0.01; done; echo ended'
        self.process = foliot.start("lease", namespace, "--wait", "10s", *options, "--exec", text)
        for name in names:
            await_(lambda: os.path.exists(f"{self.where}/began-{name}"), f"the command of {name} runs")

    def let_go(self):
        open(f"{self.where}/go", "w", encoding="ascii").close()

    def end(self):
        status = self.process.wait(PATIENCE)
        self.process.reader.join(PATIENCE)
        return status, self.process.lines, self.process.stderr.read()

    def left(self):
        return [name for name in self.names if server.get(f"/v1/timers/{self.namespace}/{name}").status != 404]


@test("told to stop while a command runs: waits for it and acknowledges it")
def _():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for options in (["--forever"], ["--max", "1"], []):
            work = Work(f"stop-{number}-{len(options)}{options[:1]}", *options)
            foliot("add", work.namespace, "later", "--after", "0s").must()
            work.process.send_signal(number)
            check("waiting for 1 running command" in work.process.stderr.readline(), "it says that it waits")
            check(work.process.poll() is None, "it waits")
            work.let_go()
            status, lines, err = work.end()
            expect((status, lines, err, work.left()), (0, ["ended"], "", []), f"{number} {options}")
            expect(server.get(f"/v1/timers/{work.namespace}/later").status, 200, "no further one was begun")


@test("told to stop while several run: all of them are acknowledged")
def _():
    work = Work("stop-many", "--forever", "--parallel", "5", names=("a", "b", "c"))
    work.process.send_signal(signal.SIGTERM)
    check("waiting for 3 running commands" in work.process.stderr.readline(), "it says that it waits")
    work.let_go()
    status, lines, err = work.end()
    expect((status, lines, err, work.left()), (0, ["ended"] * 3, "", []))


@test("Ctrl-C on a terminal reaches foliot, not the command")
def _():
    foliot("add", "ctrl-c", "x", "--after", "0s").must()
    where = folder()
    text = f'echo running; while [ ! -e {where}/go ]; do sleep 0.01; done; echo ended'
    ran = foliot.on_terminal("lease", "ctrl-c", "--wait", "10s", "--exec", text, control=True,
                             replies=[(b"running", b"\x03"), (b"waiting for 1", f"{where}/go")])
    ran.must(0, out="(?s)running.*waiting for 1 running command.*ended")
    expect(server.get("/v1/timers/ctrl-c/x").status, 404)


@test("told to stop twice: the command is told to stop, and the timer comes again; a third time kills it")
def _():
    for command, times in (("", 2), ("trap : TERM;", 3)):
        work = Work(f"twice-{times}", "--forever", command=command)
        for count in range(times):
            work.process.send_signal(signal.SIGTERM)
            if count < 2:
                check(work.process.stderr.readline(), "it says what it does")
        status, lines, err = work.end()
        expect((status, lines, work.left()), (0, [], ["x"]), err)
        foliot("lease", work.namespace, "--max", "1", "--wait", "10s", "--exec", "echo attempt $FOLIOT_ATTEMPT").must(out="^attempt 2$")


@test("told to stop while it waits for timers: ends at once")
def _():
    for options in (["--forever"], ["--wait", "60s"], ["--wait", "60s", "--exec", "true"]):
        process = foliot.start("lease", "idle", *options)
        await_(lambda: os.path.exists(f"/proc/{process.pid}/wchan") and sleeps_in_poll(process.pid), "it waits")
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        expect((process.wait(PATIENCE), process.stderr.read()), (0, ""))
        check(time.monotonic() - began < 20, "it did not wait to the end of its request")


def sleeps_in_poll(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        state = file.read().split(") ")[1][0]
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        caught = int(next(line for line in file if line.startswith("SigCgt")).split()[1], 16)
    return state == "S" and caught >> (signal.SIGINT - 1) & 1


class Slow:
    """A server whose answers to leases and acknowledgements a test holds back."""

    def __init__(self, version, refusals=0):
        self.leased, self.acked = threading.Event(), threading.Event()
        self.answer_lease, self.answer_ack = threading.Event(), threading.Event()
        self.acks, self.refusals, slow = [], refusals, self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, body, status=200):
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):
                self.answer({"version": version, "api": "v1"})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path == "/v1/ack":
                    slow.acked.set()
                    slow.answer_ack.wait(PATIENCE)
                    slow.refusals -= 1
                    if slow.refusals >= 0:
                        self.answer({"status": 503, "detail": "not now"}, 503)
                        return
                    slow.acks += [ack["result"] for ack in body["acks"]]
                    self.answer({"settled": len(body["acks"]), "unknown": []})
                    return
                first = not slow.leased.is_set()
                slow.leased.set()
                slow.answer_lease.wait(PATIENCE)
                timer = {"id": "0" * 26, "attempt": 1, "lease": "abc", "due": "2030-01-01T00:00:00Z", "payload": None}
                self.answer({"timers": [timer] if first else []})

            def log_message(self, *arguments):
                pass

        self.web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.web.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.web.server_address[1]}"
        threading.Thread(target=self.web.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


def own_version():
    return foliot("--version").must().split()[1]


@test("told to stop while the acknowledgement is under way: it arrives, once or twice told")
def _():
    for times in (1, 2):
        slow = Slow(own_version())
        slow.answer_lease.set()
        process = Command(slow.url).start("lease", "a", "--forever", "--exec", "true")
        check(slow.acked.wait(PATIENCE), "the acknowledgement is sent")
        for _ in range(times):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        slow.answer_ack.set()
        expect((process.wait(PATIENCE), slow.acks, process.stderr.read()), (0, ["done"], ""))


@test("told to stop while the server's answer to a lease is under way: what it has leased is done")
def _():
    for options, said in ((["--exec", "echo ran"], ["ran"]), ([], None)):
        slow = Slow(own_version())
        process = Command(slow.url).start("lease", "a", "--wait", "60s", *options)
        check(slow.leased.wait(PATIENCE), "timers are asked for")
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        slow.answer_lease.set()
        slow.answer_ack.set()
        status = process.wait(PATIENCE)
        process.reader.join(PATIENCE)
        expect((status, slow.acks, process.stderr.read()), (0, ["done"] if said else [], ""))
        check(process.lines == said if said else json.loads(process.lines[0])["lease"] == "abc", process.lines)


@test("an acknowledgement that is refused for now is repeated while the lease lasts, and then reported")
def _():
    slow = Slow(own_version(), refusals=3)
    slow.answer_lease.set()
    slow.answer_ack.set()
    Command(slow.url)("lease", "a", "--exec", "true").must()
    expect(slow.acks, ["done"])
    slow = Slow(own_version(), refusals=1000)
    slow.answer_lease.set()
    slow.answer_ack.set()
    Command(slow.url)("lease", "a", "--lease", "500ms", "--exec", "true").must(7, err=r"\Afoliot lease: cannot acknowledge .* not now")


@test("a worker that is stopped and started again and again leaves nothing behind and does nothing twice")
def _():
    log, created, until = os.path.join(folder(), "log"), 0, time.monotonic() + 3
    note = f"echo $FOLIOT_ID $FOLIOT_ATTEMPT >> {log}"
    while time.monotonic() < until:
        server.batch([{"op": "create", "namespace": "flow", "after": f"{random.randint(0, 200)}ms"} for _ in range(20)])
        created += 20
        process = foliot.start("lease", "flow", "--forever", "--parallel", random.choice("14"), "--exec", note)
        time.sleep(random.random() / 4)
        process.send_signal(random.choice((signal.SIGTERM, signal.SIGINT)))
        check(process.wait(PATIENCE) in (0, -signal.SIGTERM, -signal.SIGINT), process.returncode)
    while server.get("/v1/namespaces/flow").must(200)["pending"] > 0:
        foliot("lease", "flow", "--wait", "1s", "--exec", note).must()
    with open(log, encoding="ascii") as file:
        lines = file.read().splitlines()
    expect((len(lines), len(set(lines)), {line.split()[1] for line in lines}), (created, created, {"1"}))


@test("a command does not keep the connection of foliot")
def _():
    foliot("add", "descriptors", "x", "--after", "0s").must()
    out = foliot("lease", "descriptors", "--wait", "10s", "--exec", "ls -l /proc/self/fd; cat /proc/net/tcp").must()
    connections = {line.split()[9] for line in out.splitlines() if ": 0100007F:" in line}
    check(connections and not any(f"socket:[{inode}]" in out for inode in connections) and "eventfd" not in out, out)


run()
