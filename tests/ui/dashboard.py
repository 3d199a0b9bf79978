# SPDX-License-Identifier: MIT
"""For the tests of the dashboard: one browser for all tests of a program, and a server for each test.

    @viewed("the page of a timer fires it")
    def _(look):
        with look.serve() as server:
            look.at(server, "#/timers/demo/tea")

After each test the browser must have nothing to complain about: no console error, no violation of the content security policy,
and no request to another origin.
"""

import contextlib
import json
import os
import sys

sys.path.insert(0, os.path.join(os.environ["SOURCE"], "tests", "server"))
sys.dont_write_bytecode = True

import e2e  # noqa: E402
from browser import Browser, missing  # noqa: E402

# Names that a careless page would not survive. 255 bytes is the longest.
HOSTILE = ["<script>hacked = 1</script>", "<img src=x onerror=hacked=1>", "\"quotes\" & 'more'", "عنوان من اليمين", "\u202eleft-to-right?",
           "a/b?c#d%20&e=f", "größer 茶 🕰", "..", "'; DROP TABLE timers; --", "n" * 255, "${hacked=1}", "__proto__", "-rf"]

# Messages of the browser about a server that the test has stopped, or a request that the test wants refused.
LOST = ("net::ERR_CONNECTION_REFUSED", "net::ERR_INCOMPLETE_CHUNKED_ENCODING", "net::ERR_EMPTY_RESPONSE", "net::ERR_CONNECTION_RESET", "net::ERR_SOCKET_NOT_CONNECTED")


class Look(Browser):
    """A browser that looks at the dashboard of a server."""

    base = ""
    allowed = ()

    def at(self, server, route="", path="/ui/"):
        self.base = f"http://127.0.0.1:{server.port}"
        self.open(f"{self.base}{path}{route}")
        self.find("main h1")
        return self

    @contextlib.contextmanager
    def serve(self, *options, **more):
        """A server for this test. Complaints are collected before it stops, because its end gives reasons for some."""
        with e2e.Server(*options, **more) as server:
            yield server
            self.complaints(self.base, self.allowed)
            e2e.expect(self.run("return typeof hacked"), "undefined", "scripts in names")
            self.open("about:blank")

    def to(self, route, heading=None):
        self.go(route)
        self.find("main h1", heading)

    def link(self, state):
        self.find(f".state.{state}")

    def row(self, text):
        return self.find("tr[data-row]", text)

    def rows(self):
        return self.run("return document.querySelectorAll('tr[data-row]').length")

    def confirm(self):
        """Confirms the question that is open, and waits until it is gone."""
        self.click("dialog[open] button[type=submit]")
        self.await_none("dialog[open]")

    def said(self, text):
        self.find("#toasts", text)

    def queries(self, path):
        """Queries of the requests to `path` since the last call."""
        prefix = self.base + path
        return [url[len(prefix):].lstrip("?") for url in self.requests() if url.split("?")[0] == prefix]


shared = []


def browser():
    if not shared:
        shared.append(Look())
        e2e.cleanups.callback(lambda: shared.pop().close())
    return shared[0]


def viewed(name):
    """A test that gets the browser. It is skipped where there is none."""
    def add(function):
        @e2e.test(name)
        def _():
            if missing():
                raise e2e.Skip(missing())
            look = browser()
            look.allowed, look.found = (), []
            look.look(1280, 900)
            look.logs("browser")
            look.requests()
            try:
                function(look)
                e2e.expect(look.found, [], "complaints of the browser")
            except e2e.Skip:
                raise
            except Exception:
                e2e.comment(f"at {look.run('return location.href')}: {look.text('body')[:300]}")
                raise
            finally:
                look.open("about:blank")

        return function

    return add


def fill(server, namespace="demo", count=5, **fields):
    """Creates timers t000, t001, … due in some hours, and returns their names."""
    names = [f"t{i:03}" for i in range(count)]
    for line in server.batch([{"op": "create", "namespace": namespace, "name": name, "after": f"{i + 2}h", **fields} for i, name in enumerate(names)]):
        e2e.check(line["ok"], line)
    return names


def flood(server, count):
    """Many timers, spread over a month, in few requests."""
    for begin in range(0, count, 100_000):
        lines = (f'{{"op":"create","namespace":"demo","name":"order-{i:07}","after":"{60 + i * 2591940 // count}s","target":"https://hooks{i % 7}.example.com/run","payload":{{"order":{i}}}}}\n'
                 for i in range(begin, min(begin + 100_000, count)))
        e2e.expect(server.call("POST", "/v1/batch", "".join(lines), {"Content-Type": "application/x-ndjson"}).status, 200)


def bury(server, namespace, names, path="/nowhere"):
    """Creates timers whose target does not exist, and waits until they are dead letters."""
    for name in names:
        server.put(f"/v1/timers/{namespace}/{e2e.quote(name)}", {"after": "0s", "target": f"http://127.0.0.1:{server.port}{path}", "payload": {"of": name}}).must(201)
    e2e.await_(lambda: len(dead(server, namespace)) >= len(names), "dead letters")


def dead(server, namespace):
    return server.get(f"/v1/dead/{namespace}?limit=1000").must(200)["timers"]


def tokens(path, rights):
    """Writes a configuration with tokens: {name: (namespaces, rights)}; a token is 'token of NAME'."""
    import hashlib

    with open(path, "w", encoding="utf-8") as file:
        for name, (namespaces, allowed) in rights.items():
            digest = hashlib.sha256(f"token of {name}".encode()).hexdigest()
            file.write(f"[token {name}]\nsha256 = {digest}\nnamespaces = {namespaces}\nrights = {allowed}\n")


def dumps(value):
    return json.dumps(value, ensure_ascii=False)
