#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the dashboard costs: measure.py [paint | cpu]. docs/bench/dashboard.md has the figures and explains them.

paint: when each page is first painted and when its data is there, with a million pending timers, in chromium.
cpu: processor time of a server that fires 50,000 timers per second, with 50 dashboards open and without, in turn.
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

from dashboard import Look
from e2e import Client, Server, await_, check, cleanups, expect

MANY = 1_000_000
RATE = 50_000  # firings per second
VIEWERS = 50
ROUND_S = 8
ROUNDS = 4  # each: without dashboards, then with
SPANS = {"1h": 30, "1d": 120, "30d": 120}  # how often the page Now loads each forecast, in seconds
PAGES = {"Now": "#/now", "Timers": "#/timers/demo", "Timers, filtered": "#/timers/demo?prefix=order-00001", "One timer": "#/timers/demo/order-0500000",
         "Schedules": "#/schedules/demo", "Dead letters": "#/dead/demo", "Targets": "#/targets", "Namespaces": "#/namespaces",
         "One namespace": "#/namespaces/demo", "Cluster": "#/cluster", "Live": "#/live"}


def create(server, lines):
    """Creates timers over several connections, because timers without a name go to the shards of the connection's worker."""
    clients = itertools.cycle([Client("127.0.0.1", server.port) for _ in range(8)])
    lines = iter(lines)
    while batch := "".join(itertools.islice(lines, 50_000)):
        expect(next(clients).call("POST", "/v1/batch", batch, {"Content-Type": "application/x-ndjson"}).status, 200)


# --- First paint ------------------------------------------------------------------------------------------------------


def paint():
    with Server() as server, Look() as look:
        create(server, (f'{{"op":"create","namespace":"demo","name":"order-{i:07}","after":"{60 + i * 2591940 // MANY}s","target":"https://hooks{i % 7}.example.com/run","payload":{{"order":{i}}}}}\n'
                        for i in range(MANY)))
        for i in range(500):
            server.put(f"/v1/schedules/demo/report-{i:03}", {"cron": f"{i % 60} {i % 24} * * *", "zone": "Europe/Berlin"}).must(201)
        await_(lambda: server.get("/v1/namespaces/demo").must(200)["pending"] == MANY, "all are pending")
        print("| page | first paint, ms | data shown, ms | bytes |\n| --- | ---: | ---: | ---: |")
        for label, route in PAGES.items():
            paints, times = [], []
            for _ in range(5):
                look.open("about:blank")
                look.cdp("Network.clearBrowserCache")
                look.at(server, route)
                look.link("live")
                paints.append(look.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime"))
                times.append(look.run("return Math.max(...performance.getEntriesByType('resource').filter((r) => r.name.includes('/v1/') && !r.name.includes('/events')).map((r) => r.responseEnd))"))
                size = look.run("return performance.getEntriesByType('resource').filter((r) => !r.name.includes('/events')).reduce((sum, r) => sum + r.encodedBodySize, 0)")
            print(f"| {label} | {statistics.median(paints):.0f} | {statistics.median(times):.0f} | {size} |", flush=True)
        for span in SPANS:
            began = time.monotonic()
            for _ in range(20):
                server.get(f"/v1/forecast?span={span}&namespace=demo").must(200)
            print(f"forecast {span}: {(time.monotonic() - began) * 50:.1f} ms", flush=True)


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
    """Requests what so many pages Now request: the stream of samples, and forecasts from time to time."""

    def __init__(self, server):
        self.server, self.bytes = server, 0
        self.stopped = threading.Event()
        self.selector = selectors.DefaultSelector()
        self.streams = []
        for _ in range(VIEWERS):
            stream = socket.create_connection(("127.0.0.1", server.port))
            stream.sendall(f"GET /v1/events?sample=2/s HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
            self.selector.register(stream, selectors.EVENT_READ)
            self.streams.append(stream)
        self.threads = [threading.Thread(target=run, daemon=True) for run in (self.read, self.load)]
        for thread in self.threads:
            thread.start()

    def read(self):
        while not self.stopped.is_set():
            for key, _ in self.selector.select(0.2):
                self.bytes += len(key.fileobj.recv(65536))

    def load(self):
        client = Client("127.0.0.1", self.server.port)
        turns = [[time.monotonic() + every * i / VIEWERS, span, every] for span, every in SPANS.items() for i in range(VIEWERS)]
        while not self.stopped.is_set():
            for turn in turns:
                if turn[0] <= time.monotonic():
                    client.call("GET", f"/v1/forecast?span={turn[1]}")
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


def cpu():
    seconds = 2 * ROUNDS * (ROUND_S + 1) + 10
    with Server() as server:
        began = time.monotonic()
        create(server, ('{"op":"create","namespace":"load","after":"1d"}\n' for _ in range(100_000)))
        begin = time.time() + 5 + 1.3 * (time.monotonic() - began) * seconds * RATE / 100_000
        create(server, (f'{{"op":"create","namespace":"load","due":{round((begin + i / RATE) * 1000)}}}\n' for i in range(RATE * seconds)))
        print(f"{RATE * seconds} timers created, {begin - time.time():.0f} s before the first is due", flush=True)
        stop = threading.Event()
        workers = [threading.Thread(target=worker, args=(server, stop), daemon=True) for _ in range(2)]
        for thread in workers:
            thread.start()
        time.sleep(max(0, begin + 3 - time.time()))
        with_, without = [], []
        for _ in range(ROUNDS):
            check(server.process.poll() is None, f"the server has ended: {server.process.poll()} {server.log[-5:]}")
            without.append(measure(server))
            viewers = Viewers(server)
            time.sleep(1)
            with_.append(measure(server))
            viewers.close()
            print(f"without: {without[-1][0]:.0f} ms per {RATE} firings at {without[-1][1]:.0f}/s; with {VIEWERS} dashboards: {with_[-1][0]:.0f} ms at {with_[-1][1]:.0f}/s", flush=True)
        stop.set()
        a, b = (statistics.median(one[0] for one in list_) for list_ in (without, with_))
        print(json.dumps({"ms_per_50000_without": round(a, 1), "ms_per_50000_with": round(b, 1), "more_percent": round(100 * (b / a - 1), 1)}))


with cleanups:
    for part in sys.argv[1:] or ["paint", "cpu"]:
        {"paint": paint, "cpu": cpu}[part]()
