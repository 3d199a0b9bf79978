#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The dashboard in a browser: every page, what it shows and what it requests (docs/dashboard.md)."""

import glob
import os
import urllib.parse

from dashboard import HOSTILE, bury, dead, dumps, fill, viewed
from e2e import SOURCE, Receiver, check, comment, expect, npm, quote, run, test

SCHEDULE = {"cron": "0 9 * * MON-FRI", "zone": "Europe/Berlin", "payload": {"report": 1}}


def furnish(server):
    """Something to see on every page; returns the routes of all pages with their headings."""
    fill(server, count=3, payload={"to": "you"})
    server.put("/v1/schedules/demo/morning", SCHEDULE).must(201)
    bury(server, "demo", ["lost"])
    letter = dead(server, "demo")[0]["id"]
    return {
        "#/now": "Now", "#/timers/demo": "Timers of demo", "#/timers/demo/t000": "t000", "#/dead/demo": "Dead letters of demo",
        "#/schedules/demo": "Schedules of demo", "#/schedules/demo/morning": "morning", "#/new-schedule/demo": "New schedule", "#/targets": "Targets",
        f"#/dead/demo/{letter}": "lost", "#/namespaces": "Namespaces", "#/namespaces/demo": "demo", "#/cluster": "Cluster",
        "#/live": "Live", "#/clock": "Test clock",
    }


@test("the files together are smaller than 150 KB")
def _():
    sizes = {path: os.path.getsize(path) for path in glob.glob(os.path.join(SOURCE, "src/ui/*.*")) if not path.endswith("meson.build")}
    comment(f"{sum(sizes.values())} bytes in {len(sizes)} files")
    check(0 < sum(sizes.values()) < 150_000, sizes)


@viewed("every page opens, by its address and by a link")
def _(look):
    with look.serve() as server:
        pages = furnish(server)
        for route, heading in pages.items():
            look.at(server, route)
            look.find("main h1", heading)
            look.link("live")
            look.await_none("main .error")
        for label in ("Now", "Timers", "Schedules", "Dead letters", "Targets", "Namespaces", "Cluster", "Live"):
            look.click("#nav a", label)
            look.find("main h1", label)
            look.find("#nav a[aria-current]", label)
        for nowhere in ("#/nowhere", "#/constructor"):
            look.at(server, nowhere)
            look.find("main h1", "Not found")


@viewed("axe-core finds nothing serious, in light and dark, narrow and wide")
def _(look):
    with open(os.path.join(npm("axe-core@4"), "node_modules/axe-core/axe.min.js"), encoding="utf-8") as file:
        axe = file.read()
    with look.serve("--test-clock") as server:
        server.advance("1s")
        for route, heading in furnish(server).items():
            for width, dark in ((1280, False), (1280, True), (360, False)):
                look.look(width, 900, dark)
                look.at(server, route)
                look.find("main h1", heading)
                look.link("live")
                look.run(axe)  # by the driver: the page's policy does not apply to it
                found = look.run("return axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((v) => [v.impact, v.id, v.nodes.map((n) => n.html)]))")
                serious = [one for one in found if one[0] in ("serious", "critical")]
                expect(serious, [], f"{route} at {width} px{', dark' if dark else ''}")


@viewed("no page is wider than a narrow screen")
def _(look):
    with look.serve() as server:
        pages = furnish(server)
        fill(server, "n" * 255, 1)
        for route in [*pages, "#/timers/" + "n" * 255, "#/namespaces/" + "n" * 255]:
            look.look(360, 740)
            look.at(server, route)
            wide = look.run("return document.documentElement.scrollWidth")
            check(wide <= 360, f"{route} is {wide} px wide")
        look.click("#menu")
        look.click("#nav a", "Cluster")
        look.find("main h1", "Cluster")


@viewed("names are shown as they are, and lead to their page")
def _(look):
    with look.serve() as server:
        for name in HOSTILE:
            line = {"op": "create", "namespace": name if name != ".." else "dots", "name": name, "after": "1h", "payload": {name: name}}
            for created in server.batch([dumps(line), dumps({**line, "namespace": "demo"})]):
                check(created["ok"], name)
        for name in HOSTILE:
            look.at(server, "#/timers/demo?" + urllib.parse.urlencode({"prefix": name}))
            expect(look.run("return arguments[0].textContent", look.find("td.main .name")), name)
            look.click("td.main a")
            look.find(".countdown")
            expect(look.run("return document.querySelector('main h1').textContent"), name)
            look.click("button", "Show payload")
            check(name.replace("\"", "\\\"") in look.run("return arguments[0].textContent", look.find("pre.payload")), name)
            if name == "..":
                continue
            look.to("#/timers/" + quote(name))
            look.row(name)
            look.to("#/namespaces/" + quote(name))
            look.find("main h1", name)
        look.to("#/namespaces", "Namespaces")
        for name in HOSTILE:
            look.find("td.main .name", name if name != ".." else "dots")


@viewed("the filter, the address and the request are the same")
def _(look):
    with look.serve() as server:
        fill(server, count=12)
        look.at(server, "#/timers/demo")
        look.row("t011")
        look.queries("/v1/timers/demo")
        look.type("[data-search]", "t00")
        look.until(lambda: look.rows() == 10, "ten rows are left")
        check("name_contains=t00" in look.run("return location.hash"), "in the address")
        check(any("name_contains=t00" in query for query in look.queries("/v1/timers/demo")), "in the request")
        look.open(look.run("return location.href"))
        look.until(lambda: look.rows() == 10, "after a reload, too")
        look.click("button", "Clear filter")
        look.until(lambda: look.rows() == 12, "all rows are back")
        expect(look.run("return location.hash"), "#/timers/demo")


@viewed("the browser holds one page of a list, and the next one has an address")
def _(look):
    with look.serve() as server:
        fill(server, count=120)
        look.at(server, "#/timers/demo")
        look.until(lambda: look.rows() == 50, "one page")
        names = lambda: look.run("return [...document.querySelectorAll('td.main')].map((cell) => cell.textContent)")  # noqa: E731
        first = names()
        look.click("a", "Next page")
        look.until(lambda: "cursor=" in look.run("return location.hash") and look.rows() == 50 and names() != first, "the second page")
        look.click("a", "Next page")
        look.until(lambda: look.rows() == 20, "the last page")
        look.click("a", "First page")
        look.until(lambda: names() == first, "the first page again")
        check(all("payload=false" in query for query in look.queries("/v1/timers/demo")), "lists come without payloads")


@viewed("payloads load when they are asked for, and only their beginning")
def _(look):
    with look.serve() as server:
        small = '{"n": 12345678901234567890, "list": [1, {}, []]}'
        server.put("/v1/timers/demo/small", f'{{"after": "1h", "payload": {small}}}').must(201)
        server.put("/v1/timers/demo/large", {"after": "2h", "payload": "x" * 200_000}).must(201)
        server.put("/v1/timers/demo/bytes", {"after": "3h", "payload_base64": "AAECA0Zv"}).must(201)
        look.at(server, "#/timers/demo")
        look.row("bytes")
        check(not any(url.endswith("/payload") for url in look.requests()), "no payload was requested")
        look.click("tr[data-row] button", f"{len(small)} B")
        look.await_text('"n": 12345678901234567890,\n  "list": [\n    1,\n    {},\n    []\n  ]')
        look.click("button", "Raw")
        look.await_text(small)
        look.to("#/timers/demo/large", "large")
        look.click("button", "Show payload")
        look.await_text("The first 64 KiB of 195.3 KiB.")
        expect(len(look.run("return document.querySelector('pre.payload').textContent")), 65536)
        check("/v1/timers/demo/" in look.run("return document.querySelector('a[download]').getAttribute('href')"), "a link to the bytes")
        look.to("#/timers/demo/bytes", "bytes")
        look.click("button", "Show payload")
        look.await_text("00 01 02 03 46 6f")


@viewed("keys move, select, search and help")
def _(look):
    with look.serve() as server:
        fill(server, count=4)
        look.at(server, "#/timers/demo")
        look.row("t003")
        rows = look.run("return [...document.querySelectorAll('tr[data-row]')].map((row) => row.dataset.row)")
        here = lambda: look.run("return document.activeElement.closest('tr')?.dataset.row ?? null")  # noqa: E731
        look.press("j")
        expect(here(), rows[0])
        look.press("j", "j", "k")
        expect(here(), rows[1])
        look.press("x")
        look.find(".bulk", "1 row selected")
        look.press("/")
        check(look.run("return document.activeElement.matches('[data-search]')"), "the search field has the focus")
        look.press("j")
        expect(look.run("return document.activeElement.value"), "j", "in a field, a key is a letter")
        look.press("\ue00c")
        look.press("?")
        look.find("dialog[open]", "Next row")
        look.press("\ue00c")
        look.await_none("dialog[open]")


@viewed("times are the viewer's, and UTC on hover")
def _(look):
    with look.serve() as server:
        server.put("/v1/timers/demo/summer", {"due": "2031-07-01T10:00:00Z"}).must(201)
        look.at(server, "#/timers/demo")
        look.row("2031-07-01 12:00:00")  # the browser is in Berlin
        expect(look.run("return document.querySelector('td.due time').title"), "2031-07-01 10:00:00.000 UTC")
        look.find("#foot", "Europe/Berlin")


@viewed("a server without timers says how to begin")
def _(look):
    with look.serve() as server:
        look.at(server, "#/timers")
        look.await_text("curl -X PUT")
        look.to("#/namespaces", "Namespaces")
        look.find(".empty")


@viewed("targets show the hosts that were called")
def _(look):
    with look.serve() as server:
        receiver = Receiver()
        server.put("/v1/timers/demo/call", {"after": "0s", "target": f"{receiver.url}/hook"}).must(201)
        receiver.await_calls(1)
        look.at(server, "#/targets")
        look.row(receiver.url.split("//")[1])


run()
