#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every endpoint with clients that are not ours: curl, and fetch() of Node.js."""

import json
import os
import subprocess

from e2e import SOURCE, Answer, Server, check, cleanups, expect, need_program, run, test


class Curl:
    def __init__(self, server):
        need_program("curl")
        self.url = server.url

    def ask(self, method, path, body=None, headers=None):
        command = ["curl", "-sS", "-m", "60", "-X", method, "-w", "\n%{http_code} %{content_type}", self.url + path]
        if method == "HEAD":
            command[5:7] = ["-I"]
        for name, value in (headers or {}).items():
            command += ["-H", f"{name}: {value}"]
        if body is not None:
            command += ["--data-binary", body]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        expect((done.returncode, done.stderr), (0, ""), f"{method} {path}")
        text, _, last = done.stdout.rpartition("\n")
        status, _, kind = last.partition(" ")
        return Answer(int(status), {"content-type": kind or None}, text.encode())


class Node:
    def __init__(self, server):
        need_program("node")
        self.process = subprocess.Popen(["node", os.path.join(SOURCE, "tests/server/client.mjs"), server.url], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        cleanups.callback(self.process.kill)

    def ask(self, method, path, body=None, headers=None):
        line = {"method": method, "path": path, "headers": headers or {}, **({"body": body} if body is not None else {})}
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return Answer(answer["status"], {"content-type": answer["type"]}, answer["body"].encode())


def walk(client):
    """Through all endpoints, as a user would go."""

    def ask(wanted, method, path, body=None, headers=None):
        text = body if body is None or isinstance(body, str) else json.dumps(body)
        answer = client.ask(method, path, text, headers)
        expect(answer.status, wanted, f"{method} {path}: {answer}")
        kind = answer.headers["content-type"]
        if wanted >= 400:
            expect(kind, "application/problem+json")
            check(answer.json["type"].startswith("urn:foliot:problem:"), answer.body)
        return answer.json if kind and "json" in kind and "ndjson" not in kind else answer.body.decode()

    timer = {"after": "1h", "payload": {"hello": "Wörld"}}
    json_type = {"Content-Type": "application/json"}
    made = ask(201, "PUT", "/v1/timers/walk/one", timer, json_type)
    ask(200, "PUT", "/v1/timers/walk/one", timer, json_type)
    ask(412, "PUT", "/v1/timers/walk/one", timer, {"If-None-Match": "*"})
    ask(400, "PUT", "/v1/timers/walk/one", "{")
    expect(ask(200, "GET", "/v1/timers/walk/one")["payload"], timer["payload"])
    posted = ask(201, "POST", "/v1/timers/walk", timer)
    ask(200, "PATCH", "/v1/timers/walk/" + posted["id"], {"payload": 2})
    expect(ask(200, "GET", "/v1/timers/walk/" + posted["id"])["payload"], 2)
    expect(len(ask(200, "GET", "/v1/timers/walk?limit=10&prefix=o")["timers"]), 1)
    ask(204, "DELETE", "/v1/timers/walk/one")
    ask(404, "DELETE", "/v1/timers/walk/one")
    ask(404, "GET", "/v1/timers/walk/" + made["id"])
    lines = ask(200, "POST", "/v1/batch", '{"op":"create","namespace":"walk","name":"b","after":"1h"}\nnonsense\n').splitlines()
    expect([json.loads(line)["ok"] for line in lines], [True, False])
    expect(ask(200, "DELETE", "/v1/timers/walk?prefix=b&dry_run=true"), {"matched": 1, "cancelled": 0, "dry_run": True})
    expect(ask(200, "DELETE", "/v1/timers/walk?all=true")["cancelled"], 2)
    ask(200, "PUT", "/v1/namespaces/walk", {"max_rate": 100})
    expect(ask(200, "GET", "/v1/namespaces/walk")["settings"]["max_rate"], 100)
    check("walk" in [one["namespace"] for one in ask(200, "GET", "/v1/namespaces")["namespaces"]], "it is listed")
    ask(201, "POST", "/v1/timers/walk", {"after": "0s", "payload": "due"})
    leased = ask(200, "POST", "/v1/lease/walk", {"wait": "30s", "max": 5})["timers"]
    expect([one["payload"] for one in leased], ["due"])
    expect(ask(200, "POST", "/v1/ack", {"acks": [{"lease": leased[0]["lease"], "result": "dead"}]})["settled"], 1)
    dead = []
    while not dead:
        dead = ask(200, "GET", "/v1/dead/walk")["timers"]
    path = "/v1/dead/walk/" + dead[0]["id"]
    expect(ask(200, "GET", path)["payload"], "due")
    ask(200, "POST", path + "/redrive")
    leased = ask(200, "POST", "/v1/lease/walk", {"wait": "30s"})["timers"]
    ask(200, "POST", "/v1/ack", {"acks": [{"lease": leased[0]["lease"], "result": "dead"}]})
    while not ask(200, "GET", "/v1/dead/walk")["timers"]:
        pass
    ask(204, "DELETE", "/v1/dead/walk/" + dead[0]["id"])
    ask(404, "GET", path)
    expect(ask(200, "GET", "/v1/clock")["test"], False)
    ask(409, "POST", "/v1/clock", {"advance": "1d"})
    for path in ("/healthz", "/readyz", "/version", "/metrics", "/openapi.json"):
        ask(200, "GET", path)
    ask(200, "POST", "/echo", "hello")
    ask(404, "GET", "/nothing")
    ask(405, "GET", "/v1/batch")


@test("curl")
def _():
    with Server() as server:
        walk(Curl(server))


@test("fetch() of Node.js")
def _():
    with Server() as server:
        walk(Node(server))


@test("curl: a large batch from a file, and events as they come")
def _():
    need_program("curl")
    with Server() as server:
        events = subprocess.Popen(["curl", "-sS", "-N", server.url + "/v1/events?namespace=many&type=cancelled"], text=True,
                                  stdout=subprocess.PIPE)
        cleanups.callback(events.kill)
        check(events.stdout.readline().startswith(":"), "it listens")
        lines = "".join(f'{{"op":"create","namespace":"many","name":"n{n}","after":"1h"}}\n' for n in range(20_000))
        done = subprocess.run(["curl", "-sS", "-T", "-", "-X", "POST", server.url + "/v1/batch"], input=lines, capture_output=True,
                              text=True, check=False)
        expect(done.returncode, 0, done.stderr)
        expect(done.stdout.count('"ok":true'), 20_000)
        server.delete("/v1/timers/many/n7").must(204)
        text = ""
        while "data:" not in text:
            text = events.stdout.readline()
        expect(json.loads(text.partition(":")[2])["name"], "n7")
        events.kill()


run()
