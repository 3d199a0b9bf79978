#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The dashboard in a browser: logins and rights, a server that dies, a hidden tab, several servers, a proxy, many timers."""

import http.client
import http.server
import os
import socketserver
import threading

from dashboard import LOST, bury, dead, fill, flood, tokens, viewed
from e2e import Server, await_, check, comment, expect, folder, run
from members import Cluster

MANY = int(os.environ.get("FOLIOT_UI_TIMERS", "1000000"))


def guarded(look, **rights):
    config = os.path.join(folder(), "foliot.conf")
    tokens(config, {"root": ("*", "admin"), **rights})
    return look.serve("--config", config, token="token of root")


def sign_in(look, name):
    look.find("main h1", "Sign in to Foliot")
    look.type("input[type=password]", f"token of {name}")
    look.click("button", "Sign in")


# --- Logins and rights ------------------------------------------------------------------------------------------------


@viewed("a server with tokens asks for one, and signing out ends the login")
def _(look):
    look.allowed = ("401 (Unauthorized)",)
    with guarded(look) as server:
        fill(server, count=2)
        look.at(server, "#/timers/demo")
        sign_in(look, "nobody")
        look.find(".error", "The server does not know this token.")
        sign_in(look, "root")
        look.find("main h1", "Timers of demo")
        look.row("t001")
        look.find("#foot", "Token root")
        expect(look.run("return document.cookie"), "", "scripts cannot read the cookie")
        look.at(server, "#/timers/demo")
        look.row("t001")
        command = "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => { window.copied = text; }}})"
        look.to("#/timers/demo/t000", "t000")
        look.run(command)
        look.click("button", "Copy as curl")
        copied = look.until(lambda: look.run("return window.copied"), "a command")
        check("token of" not in copied and "$FOLIOT_TOKEN" in copied, copied)
        look.click("button", "Sign out")
        look.find("main h1", "Sign in to Foliot")


@viewed("a token that may only read gets no buttons that change something")
def _(look):
    look.allowed = ("401 (Unauthorized)",)
    with guarded(look, viewer=("*", "read")) as server:
        fill(server, count=2)
        bury(server, "demo", ["lost"])
        letter = dead(server, "demo")[0]["id"]
        server.put("/v1/schedules/demo/morning", {"cron": "0 9 * * *"}).must(201)
        look.at(server)
        sign_in(look, "viewer")
        look.find("#foot", "read-only")
        harmless = {"Menu", "Keys", "Sign out", "Clear filter", "Pause", "Clear", "Copy as curl", "Copy as foliot", "Pretty", "Raw", "Show"}
        for route, heading in {"#/now": "Now", "#/timers/demo": "Timers of demo", "#/timers/demo/t000": "t000", "#/dead/demo": "Dead letters of demo",
                               f"#/dead/demo/{letter}": "lost", "#/schedules/demo": "Schedules of demo", "#/schedules/demo/morning": "morning",
                               "#/targets": "Targets", "#/namespaces": "Namespaces", "#/namespaces/demo": "demo", "#/cluster": "Cluster", "#/live": "Live"}.items():
            look.to(route, heading)
            look.await_none("main .error")
            found = look.run("return [...document.querySelectorAll('button')].filter((b) => b.checkVisibility()).map((b) => b.textContent)")
            left = [label for label in found if label not in harmless and not label.endswith("B") and "payload" not in label and "127.0.0.1" not in label]
            expect([label for label in left if ":" not in label], [], route)
            expect(look.run("return document.querySelectorAll('main input[type=checkbox]').length"), 0, route)
        look.to("#/schedules/demo/morning", "morning")
        check(look.run("return document.querySelector('input[name=cron]').disabled"), "fields cannot be changed")


@viewed("a token for one namespace sees that namespace")
def _(look):
    look.allowed = ("401 (Unauthorized)",)
    with guarded(look, billing=("billing", "read, write")) as server:
        fill(server, "billing", 2)
        fill(server, "other", 2)
        look.at(server)
        sign_in(look, "billing")
        look.find("main h1", "Now")
        look.link("live")
        check(look.none("#nav a", "Targets"), "hosts are for tokens of all namespaces")
        look.click("#nav a", "Timers")
        look.find("main h1", "Timers of billing")
        look.click("#nav a", "Namespaces")
        look.row("billing")
        check(look.none("tr[data-row]", "other"), "other namespaces are not shown")


# --- Servers that come and go -----------------------------------------------------------------------------------------


@viewed("the server dies and comes back: the page says so, and goes on")
def _(look):
    look.allowed = LOST
    with look.serve() as server:
        fill(server, count=1)
        look.at(server, "#/timers/demo")
        look.link("live")
        server.kill()
        look.link("lost")
        look.row("t000")
        server.start()
        server.put("/v1/timers/demo/later", {"after": "3h"}).must(201)
        look.link("live")
        look.row("later")


@viewed("a page opened while the server is away begins when it is there")
def _(look):
    look.allowed = LOST
    with look.serve() as server:
        fill(server, count=1)
        look.at(server, "#/timers/demo")
        look.row("t000")
        look.run("window.fetch = ((real) => (...args) => window.away ? Promise.reject(new TypeError('away')) : real(...args))(window.fetch); window.away = true")
        look.go("#/cluster")
        look.find("main .error", "The server does not respond.")
        look.run("window.away = false")
        look.click("button", "Try again")
        look.find("main h1", "Cluster")


@viewed("a hidden tab requests nothing, and catches up when it is visible again")
def _(look):
    with look.serve() as server:
        fill(server, count=1)
        look.at(server, "#/now")
        look.link("live")
        for title in ("Next hour", "Next 24 hours", "Next 30 days", "Lateness"):
            look.find(f"svg[aria-label^='{title}']")
        look.until(lambda: "–" not in look.text(".figures"), "all figures are there")
        look.hide(True)
        look.find(".state", "Paused")
        look.requests()
        drawn = look.text("main")
        fill(server, "demo", 30)
        # The throttle and the stream are what could still act; the page has no other source of updates.
        look.run("return new Promise((done) => setTimeout(done, 1500))")
        expect(look.requests(), [])
        expect(look.text("main"), drawn)
        look.hide(False)
        look.link("live")
        look.find(".figures", "30")


@viewed("what is drawn is held back: at most four times per second")
def _(look):
    with look.serve() as server:
        look.at(server)
        drawn = look.run("""
            return import('./live.js').then(({ throttle }) => {
              let now = 0;
              const timers = [];
              const real = [performance.now, window.setTimeout];
              performance.now = () => now;
              window.setTimeout = (run, ms) => timers.push({ run, at: now + ms });
              const times = [];
              const draw = throttle(() => times.push(now));
              for (now = 0; now < 2000; now++) {
                draw();
                for (const timer of timers.splice(0)) timer.at <= now ? timer.run() : timers.push(timer);
              }
              [performance.now, window.setTimeout] = real;
              return times;
            });""")
        expect(len(drawn), 8)
        check(all(b - a >= 250 for a, b in zip(drawn, drawn[1:])), drawn)


@viewed("two servers: both show the same, and one that dies is seen to be gone")
def _(look):
    look.allowed = LOST
    with Cluster(2) as (a, b):
        fill(a, count=6)
        a.put("/v1/schedules/demo/daily", {"every": "1d"}).must(201)
        for server in (a, b):
            expect(sum(bar["timers"] for bar in server.get("/v1/forecast?span=30d").must(200)["bars"]), 6 + 29)
        look.at(a, "#/cluster")
        look.until(lambda: look.rows() == 2, "two servers")
        look.find("tr[data-row]", "linked")
        look.find(".shards .mine")
        look.find(".shards .other")
        look.complaints(look.base, LOST)
        look.open("about:blank")
        look.requests()
        look.at(b, "#/timers/demo")
        look.until(lambda: look.rows() == 6, "all timers at the other server")
        a.kill()
        look.to("#/cluster", "Cluster")
        look.until(lambda: look.run("return document.querySelectorAll('.shards .other, .shards .nobody').length") == 0, "the shards have moved")
        look.complaints(look.base, LOST)
        look.open("about:blank")


# --- A proxy ----------------------------------------------------------------------------------------------------------


class Proxy(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Serves a server under /tools/foliot/."""

    daemon_threads = True

    def __init__(self, server):
        upstream = server.port

        class Handler(http.server.BaseHTTPRequestHandler):
            def forward(self):
                if not self.path.startswith("/tools/foliot/"):
                    self.send_error(404)
                    return
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                connection = http.client.HTTPConnection("127.0.0.1", upstream)
                headers = {key: value for key, value in self.headers.items() if key.lower() not in ("host", "origin", "connection")}
                connection.request(self.command, self.path[len("/tools/foliot"):], body or None, headers)
                answer = connection.getresponse()
                self.send_response(answer.status)
                for key, value in answer.getheaders():
                    if key.lower() not in ("transfer-encoding", "connection"):
                        self.send_header(key, value)
                self.end_headers()
                try:
                    while piece := answer.read1(65536):
                        self.wfile.write(piece)
                        self.wfile.flush()
                except OSError:
                    pass  # the page is gone

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()


@viewed("behind a proxy with a base path, every page works")
def _(look):
    with look.serve() as server:
        fill(server, count=3)
        proxy = Proxy(server)
        look.at(proxy, "#/timers/demo", "/tools/foliot/ui/")
        look.row("t002")
        look.link("live")
        look.click("input[aria-label*='t001']")
        look.click(".bulk button", "Cancel")
        look.confirm()
        await_(lambda: len(server.timers("demo")) == 2, "cancelled through the proxy")
        for label in ("Now", "Dead letters", "Namespaces", "Cluster", "Live"):
            look.click("#nav a", label)
            look.find("main h1", label)
            look.await_none("main .error")


# --- Many timers ------------------------------------------------------------------------------------------------------


@viewed(f"with {MANY} timers, every page opens and no page holds more than one page of a list")
def _(look):
    with look.serve() as server:
        flood(server, MANY)
        await_(lambda: server.get("/v1/namespaces/demo").must(200)["pending"] == MANY, "all are pending")
        for route, heading in {"#/now": "Now", "#/timers/demo": "Timers of demo", "#/timers/demo?prefix=order-00001": "Timers of demo",
                               f"#/timers/demo/order-{MANY // 2:07}": "order-", "#/schedules/demo": "Schedules of demo", "#/dead/demo": "Dead letters of demo",
                               "#/targets": "Targets", "#/namespaces": "Namespaces", "#/namespaces/demo": "demo", "#/cluster": "Cluster", "#/live": "Live"}.items():
            look.open("about:blank")
            look.at(server, route)
            look.find("main h1", heading)
            look.link("live")
            check(look.rows() <= 50, f"{route}: {look.rows()} rows")
            paint = look.run("return Math.round(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1)")
            data = look.run("return Math.round(Math.max(...performance.getEntriesByType('resource').filter((r) => r.name.includes('/v1/') && !r.name.includes('/events')).map((r) => r.responseEnd)))")
            size = look.run("return performance.getEntriesByType('resource').filter((r) => !r.name.includes('/events')).reduce((sum, r) => sum + r.encodedBodySize, 0)")
            comment(f"{route}: first paint {paint} ms, data {data} ms, {size} bytes")
        look.to("#/timers/demo", "Timers of demo")
        look.click("button", "Cancel by filter…")
        look.find("dialog[open]", f"Cancel {MANY:,} timers?")


run()
