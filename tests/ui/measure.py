#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the dashboard costs: measure.py [paint | cpu]. docs/bench/dashboard.md has the figures and explains them.

paint: when each page is first painted and when its data is there, with a million pending timers, in chromium.
cpu: processor time of a server that fires 50,000 timers per second: without dashboards, with 50 that show the page Now, and with 50
that show all pages, in turn.
FOLIOT_UI_TIMERS and FOLIOT_UI_RATE set smaller numbers, for a trial.
"""

import http.client
import itertools
import json
import os
import re
import selectors
import socket
import statistics
import sys
import threading
import time

from dashboard import Look, bury, dead, tokens
from e2e import Client, Server, await_, check, cleanups, expect, folder

MANY = int(os.environ.get("FOLIOT_UI_TIMERS", "1000000"))
RATE = int(os.environ.get("FOLIOT_UI_RATE", "50000"))  # firings per second
VIEWERS = 50
ROUND_S = 8
ROUNDS = 4  # each: without dashboards, then with
SPANS = {"1h": 30, "1d": 120, "30d": 120}  # how often the page Now loads each forecast, in seconds
PAGES = {"Now": "#/now", "Timers": "#/timers/demo", "Timers, filtered": "#/timers/demo?prefix=order-00001", "One timer": f"#/timers/demo/order-{MANY // 2:07}",
         "Schedules": "#/schedules/demo", "One schedule": "#/schedules/demo/report-250", "New schedule": "#/new-schedule/demo",
         "Dead letters": "#/dead/demo", "Targets": "#/targets", "Namespaces": "#/namespaces", "One namespace": "#/namespaces/demo",
         "Cluster": "#/cluster", "Live": "#/live"}

# What each page requests while timers fire all the time: {page: [(path, every so many seconds)]}. All pages have a stream of samples.
LOADS = {
    "Now": [(f"/v1/forecast?span={span}", every) for span, every in SPANS.items()],
    "Timers": [("/v1/timers/load?limit=50&payload=false", 2), ("/v1/namespaces/load", 2)],
    "One timer": [("/v1/timers/load/{timer}?payload=false", 2), ("/v1/history/load?id={timer}&limit=20", 2)],
    "Schedules": [("/v1/schedules/load?limit=25&payload=false", 5)],
    "Dead letters": [("/v1/dead/load?limit=50&payload=false", 5), ("/v1/dead/load?group=reason&limit=20", 5), ("/v1/dead/load?group=host&limit=20", 5)],
    "Targets": [("/v1/hosts?limit=50", 2)],
    "Namespaces": [("/v1/namespaces?limit=50", 3)],
    "One namespace": [("/v1/namespaces/load", 2)],
    "Cluster": [("/v1/cluster", 2)],
}


def create(server, lines):
    """Creates timers over several connections, because timers without a name go to the shards of the connection's worker."""
    clients = itertools.cycle([Client("127.0.0.1", server.port) for _ in range(8)])
    lines = iter(lines)
    while batch := "".join(itertools.islice(lines, 50_000)):
        expect(next(clients).call("POST", "/v1/batch", batch, {"Content-Type": "application/x-ndjson"}).status, 200)


# --- First paint ------------------------------------------------------------------------------------------------------


def fill(server):
    create(server, (f'{{"op":"create","namespace":"demo","name":"order-{i:07}","after":"{60 + i * 2591940 // MANY}s","target":"https://hooks{i % 7}.example.com/run","payload":{{"order":{i}}}}}\n'
                    for i in range(MANY)))
    await_(lambda: server.get("/v1/namespaces/demo").must(200)["pending"] == MANY, "all are pending")


def row(look, server, label, route, ready):
    """Opens the page five times with an empty cache, and prints the medians; ready() waits until the page is there."""
    paints, times = [], []
    for _ in range(5):
        look.open("about:blank")
        look.cdp("Network.clearBrowserCache")
        look.at(server, route)
        ready()
        paints.append(look.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        times.append(look.run("return Math.max(...performance.getEntriesByType('resource').filter((r) => r.name.includes('/v1/') && !r.name.includes('/events')).map((r) => r.responseEnd))"))
        size = look.run("return performance.getEntriesByType('resource').filter((r) => !r.name.includes('/events')).reduce((sum, r) => sum + r.encodedBodySize, 0)")
    print(f"| {label} | {statistics.median(paints):.0f} | {statistics.median(times):.0f} | {size} |", flush=True)


def paint():
    print("| page | first paint, ms | data shown, ms | bytes |\n| --- | ---: | ---: | ---: |")
    with Server() as server, Look() as look:
        fill(server)
        for i in range(500):
            server.put(f"/v1/schedules/demo/report-{i:03}", {"cron": f"{i % 60} {i % 24} * * *", "zone": "Europe/Berlin"}).must(201)
        bury(server, "demo", ["lost"])
        letter = dead(server, "demo")[0]["id"]
        for label, route in {**PAGES, "One dead letter": f"#/dead/demo/{letter}"}.items():
            row(look, server, label, route, lambda: look.link("live"))
        client = Client("127.0.0.1", server.port)  # a new connection: the server has closed the one that was silent
        for span in SPANS:
            began = time.monotonic()
            for _ in range(20):
                client.call("GET", f"/v1/forecast?span={span}&namespace=demo").must(200)
            print(f"forecast {span}: {(time.monotonic() - began) * 50:.1f} ms", flush=True)
    with Server("--test-clock") as server, Look() as look:
        fill(server)
        row(look, server, "Test clock", "#/clock", lambda: look.link("live"))
    config = os.path.join(folder(), "foliot.conf")
    tokens(config, {"root": ("*", "admin")})
    with Server("--config", config, token="token of root") as server, Look() as look:
        row(look, server, "Sign-in", "", lambda: look.find("input[type=password]"))


# --- Processor time ---------------------------------------------------------------------------------------------------


def processor_s(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fired(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", "/metrics")
    return int(re.search(rb"^foliot_attempts_done_total (\d+)", connection.getresponse().read(), re.M).group(1))


def worker(server, stop):
    """Leases timers and acknowledges them."""
    client = Client("127.0.0.1", server.port)
    while not stop.is_set():
        answer = client.call("POST", "/v1/lease/load", {"max": 5000, "wait": "1s", "lease": "60s"})
        leases = re.findall(rb'"lease":"([0-9a-f]+)"', answer.body)
        if leases:
            acks = b'{"acks":[' + b",".join(b'{"lease":"' + lease + b'","result":"done"}' for lease in leases) + b"]}"
            expect(client.call("POST", "/v1/ack", acks.decode(), {"Content-Type": "application/json"}).status, 200)


class Viewers:
    """Requests what so many dashboards request that show these pages in turn: the stream of samples, and what LOADS says."""

    def __init__(self, server, pages, timer):
        self.server, self.bytes = server, 0
        self.stopped = threading.Event()
        self.selector = selectors.DefaultSelector()
        self.streams, self.turns = [], []
        for i in range(VIEWERS):
            self.open("/v1/events?sample=2/s")
            page = pages[i % len(pages)]
            if page == "Live":
                self.open("/v1/events?sample=4/s")
            for path, every in LOADS.get(page, []):
                self.turns.append([time.monotonic() + every * i / VIEWERS, path.replace("{timer}", timer), every])
        self.threads = [threading.Thread(target=run, daemon=True) for run in (self.read, self.load)]
        for thread in self.threads:
            thread.start()

    def open(self, path):
        stream = socket.create_connection(("127.0.0.1", self.server.port))
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.server.port}\r\n\r\n".encode())
        self.selector.register(stream, selectors.EVENT_READ)
        self.streams.append(stream)

    def read(self):
        while not self.stopped.is_set():
            for key, _ in self.selector.select(0.2):
                self.bytes += len(key.fileobj.recv(65536))

    def load(self):
        client = Client("127.0.0.1", self.server.port)
        while not self.stopped.is_set():
            for turn in self.turns:
                if turn[0] <= time.monotonic():
                    expect(client.call("GET", turn[1]).status, 200)
                    turn[0] += turn[2]
            time.sleep(0.02)

    def close(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        for stream in self.streams:
            stream.close()


def measure(server):
    """Processor time per 50,000 firings, in ms, over one round; and the firings per second."""
    first, used, began = fired(server), processor_s(server), time.monotonic()
    time.sleep(ROUND_S)
    used, took, done = processor_s(server) - used, time.monotonic() - began, fired(server) - first
    return 1000 * used * RATE / done, done / took


KINDS = {"without": [], "Now": ["Now"], "all pages": [*LOADS, "Live"]}


def cpu():
    seconds = len(KINDS) * ROUNDS * (ROUND_S + 1) + 10
    with Server() as server:
        began = time.monotonic()
        create(server, ('{"op":"create","namespace":"load","after":"1d"}\n' for _ in range(100_000)))
        timer = server.put("/v1/timers/load/one", {"after": "1d"}).must(201)["id"]
        begin = time.time() + 5 + 1.3 * (time.monotonic() - began) * seconds * RATE / 100_000
        create(server, (f'{{"op":"create","namespace":"load","due":{round((begin + i / RATE) * 1000)}}}\n' for i in range(RATE * seconds)))
        print(f"{RATE * seconds} timers created, {begin - time.time():.0f} s before the first is due", flush=True)
        stop = threading.Event()
        workers = [threading.Thread(target=worker, args=(server, stop), daemon=True) for _ in range(2)]
        for thread in workers:
            thread.start()
        time.sleep(max(0, begin + 3 - time.time()))
        found = {kind: [] for kind in KINDS}
        for _ in range(ROUNDS):
            for kind, pages in KINDS.items():
                check(server.process.poll() is None, f"the server has ended: {server.process.poll()} {server.log[-5:]}")
                viewers = Viewers(server, pages, timer) if pages else None
                time.sleep(1)
                found[kind].append(measure(server))
                if viewers:
                    viewers.close()
                print(f"{kind}: {found[kind][-1][0]:.0f} ms per {RATE} firings at {found[kind][-1][1]:.0f}/s", flush=True)
        stop.set()
        for thread in workers:
            thread.join()
        used = {kind: statistics.median(one[0] for one in list_) for kind, list_ in found.items()}
        for kind, ms in used.items():
            print(json.dumps({"dashboards": kind, f"ms_per_{RATE}": round(ms, 1), "more_percent": round(100 * (ms / used["without"] - 1), 1)}))


with cleanups:
    for part in sys.argv[1:] or ["paint", "cpu"]:
        {"paint": paint, "cpu": cpu}[part]()
