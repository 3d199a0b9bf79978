#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pictures of every page of the dashboard, in light and dark: screenshots.py FOLDER [WIDTH]. `./dev screenshots` runs it.

The server has a test clock, so an hour of work takes seconds, and every picture shows the same.
"""

import os
import random
import sys

from dashboard import Look, bury, dead
from e2e import Receiver, Server, await_, check, cleanups, microseconds, rfc3339

SIZES = {360: 740, 1280: 860, 3840: 2160}
SHOPS = ["mail.example.com", "billing.example.com", "hooks.example.org"]
KINDS = ["welcome-mail", "trial-ends", "invoice-reminder", "session-timeout", "retry-payment", "cart-abandoned", "subscription-renewal"]
SCHEDULES = {
    "morning-report": {"cron": "0 9 * * MON-FRI", "zone": "Europe/Berlin", "target": "https://mail.example.com/reports"},
    "nightly-cleanup": {"cron": "30 2 * * *", "zone": "Europe/Berlin"},
    "heartbeat": {"every": "15m"},
    "invoice-run": {"cron": "0 6 1 * *", "zone": "America/New_York"},
    "sync": {"cron": "0 */6 * * *"},
    "weekly-digest": {"cron": "0 18 * * SUN", "zone": "Australia/Sydney", "paused": True},
}


def now(server):
    return microseconds(server.get("/v1/clock").must(200)["now"]) // 1000


def pending(server, chance):
    """Timers of the next month: some soon, most later."""
    lines = []
    for i in range(4000):
        after = chance.choice([chance.uniform(30, 3600), chance.uniform(3600, 86400), chance.expovariate(1 / 600000) + 86400])
        lines.append({"op": "create", "namespace": "shop", "name": f"{chance.choice(KINDS)}-{chance.randrange(100000):05}", "after": f"{int(after)}s",
                      "target": f"https://{chance.choice(SHOPS)}/hooks/{chance.choice(['send', 'run', 'expire'])}", "payload": {"customer": chance.randrange(9999), "plan": "team"}})
    lines += [{"op": "create", "namespace": space, "name": f"job-{i}", "after": f"{i + 1}h"} for space in ("billing", "search", "mail") for i in range(chance.randrange(9, 60))]
    check(all(line["ok"] for line in server.batch(lines)), "all are created")


def work(server, receiver, chance):
    """The last hour: timers that fire, some late, some that fail."""
    for step in range(360):
        at, lines = now(server), []
        for _ in range(int(14 + 8 * chance.random() + (10 if 120 < step < 200 else 0))):
            slow = 2000 if 250 < step < 262 else 1
            late = min(int(chance.expovariate(1 / (3 * slow))), 50000)
            failing = "/broken" if chance.random() < (0.25 if 300 < step < 318 else 0.01) else "/ok"
            lines.append({"op": "create", "namespace": "shop", "due": rfc3339(at - late), "target": receiver.url + failing, "retry": {"max_attempts": 1 if chance.random() < 0.3 else 4, "initial": "5s"}})
        server.batch(lines)
        server.advance("10s")


def furnish(server):
    chance = random.Random(20)
    receiver = Receiver(lambda call: 503 if call.path == "/broken" else 200)
    for name, schedule in SCHEDULES.items():
        server.put(f"/v1/schedules/shop/{name}", schedule).must(201)
    server.put("/v1/namespaces/billing", {"max_rate": 100, "spread": "30s", "retry": {"max_attempts": 5}}).must(200)
    work(server, receiver, chance)  # first: the others' targets do not exist
    print("an hour has passed", flush=True)
    pending(server, chance)
    bury(server, "shop", ["refund-118", "refund-231"])
    server.put("/v1/timers/shop/renewal-4711", {"after": "5h", "target": "https://billing.example.com/v2/renew", "timeout": "10s", "headers": {"x-tenant": "north"},
                                                 "retry": {"max_attempts": 5, "initial": "2s"}, "payload": {"customer": 4711, "plan": "team", "seats": 12}}).must(201)
    await_(lambda: dead(server, "shop"), "dead letters")
    return receiver


def stir(server, receiver):
    """Events to look at."""
    names = ["welcome-mail-11873", "cart-abandoned-40112", "trial-ends-2291", "retry-payment-99310", "invoice-reminder-518"]
    server.batch([{"op": "create", "namespace": "shop", "name": name, "after": f"{i + 1}s", "target": receiver.url + ("/broken" if "payment" in name else "/ok")} for i, name in enumerate(names)])
    server.advance("6s")


PAGES = {
    "now": "#/now", "timers": "#/timers/shop", "timer": "#/timers/shop/renewal-4711", "schedules": "#/schedules/shop", "schedule": "#/schedules/shop/morning-report",
    "dead": "#/dead/shop", "targets": "#/targets", "namespaces": "#/namespaces", "cluster": "#/cluster", "live": "#/live", "clock": "#/clock",
}


def main():
    place, widths = sys.argv[1], [int(word) for word in sys.argv[2:]] or [1280]
    os.makedirs(place, exist_ok=True)
    with cleanups, Server("--test-clock", store="memory:", shards=16) as server, Look() as look:
        receiver = furnish(server)
        for width in widths:
            for dark in (False, True):
                look.look(width, SIZES[width], dark)
                for name, route in PAGES.items():
                    look.at(server, route)
                    look.link("live")
                    if name == "timer":
                        look.click("button", "Show payload")
                        look.find("pre.payload")
                    if name in ("live", "clock"):
                        look.await_text("Waiting for events")
                        stir(server, receiver)
                        look.row("fired")
                    look.run("window.scrollTo(0, 0); return new Promise((done) => setTimeout(done, 700))")
                    extra = "" if width == 1280 else f"-{width}"
                    look.picture(os.path.join(place, f"{name}{extra}-{'dark' if dark else 'light'}.webp"), full=width < 800)
                    print(name, width, "dark" if dark else "light", flush=True)


main()
