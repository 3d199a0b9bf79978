#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The dashboard in a browser while people work with it: what they type stays, what they see is up to date, what fails says so."""

import json
import os
import urllib.parse

from dashboard import LOST, bury, dead, fill, flood, tokens, viewed
from e2e import Receiver, await_, check, expect, folder, run



def sampled(look, server):
    """Waits until the page has got a sample that counts something that happened after this call."""
    look.run("window.counted = 0; import('./live.js').then(({ stream }) => stream({ query: { sample: '4/s' }, onState() {}, onEvent: (type, data) => { window.counted += data.counts?.scheduled ?? 0; } }))")
    look.until(lambda: server.put("/v1/timers/elsewhere/x", {"after": "9h"}).status and look.run("return window.counted > 0"), "a sample")


# --- What the viewer types stays --------------------------------------------------------------------------------------


@viewed("settings that the viewer types stay when the tab was hidden, and the counts above them change")
def _(look):
    with look.serve() as server:
        fill(server, count=1)
        look.at(server, "#/namespaces/demo")
        look.link("live")
        look.type("input[name=spread]", "77s")
        fill(server, count=3)
        look.find(".figures", "3")
        look.hide(True)
        look.find(".state", "Paused")
        look.hide(False)
        look.link("live")
        fill(server, count=4)
        look.find(".figures", "4")
        expect(look.run("return document.querySelector('input[name=spread]').value"), "77s")


@viewed("the page of a schedule shows what others do with it, and keeps what the viewer types")
def _(look):
    with look.serve() as server:
        server.put("/v1/schedules/demo/report", {"every": "1h"}).must(201)
        look.at(server, "#/schedules/demo/report")
        look.link("live")
        look.type("input[name=target]", "https://example.com/")
        look.click("main button", "Pause")
        look.find("main .pill", "paused")
        expect(look.run("return document.activeElement.textContent"), "Resume", "the focus stays")
        server.patch("/v1/schedules/demo/report", {"paused": False}).must(200)
        server.post("/v1/schedules/demo/report/trigger").must(202)
        look.await_none("main .pill", "paused")
        look.find("main button", "Pause")
        expect(look.run("return document.querySelector('input[name=target]').value"), "https://example.com/")


@viewed("a form says which field is incomplete, and the preview follows the form")
def _(look):
    with look.serve() as server:
        look.at(server, "#/new-schedule/demo")
        look.type(".editor input:not([name])", "report")
        look.type("input[name=cron]", "0 9 * * *")
        look.find(".preview li")
        look.set("input[name=cron]", "")
        look.find(".aside", "appear here")
        look.type("input[name=every]", "1h")
        look.run("document.querySelector('input[name=end]').focus()")
        look.press("0", "1")
        look.click("button", "Create")
        look.find("main .error", "End is incomplete.")
        expect(server.get("/v1/schedules/demo/report").status, 404)


@viewed("large numbers in the payload of a schedule keep their digits, and a binary payload stays")
def _(look):
    with look.serve() as server:
        server.put("/v1/schedules/demo/number", '{"every": "1h", "payload": {"id": 12345678901234567890}}').must(201)
        look.at(server, "#/schedules/demo/number")
        look.find("textarea[name=payload]")
        check("12345678901234567890" in look.run("return document.querySelector('textarea[name=payload]').value"), "as it is")
        look.set("textarea[name=payload]", '{"id": 12345678901234567891}')
        look.click("button", "Save changes")
        look.said("Saved the schedule.")
        check(b"12345678901234567891" in server.get("/v1/schedules/demo/number").body, "as typed")
        server.put("/v1/schedules/demo/bytes", {"every": "1h", "payload_base64": "AAEC"}).must(201)
        look.to("#/schedules/demo/bytes", "bytes")
        look.find("textarea[placeholder*='binary']")
        look.set("input[name=every]", "2h")
        look.click("button", "Save changes")
        await_(lambda: server.get("/v1/schedules/demo/bytes").must(200)["every"] == "2h", "saved")
        expect(server.get("/v1/schedules/demo/bytes").must(200)["payload_base64"], "AAEC")


@viewed("a question that is closed while the server works says its result all the same")
def _(look):
    with look.serve() as server:
        fill(server, count=1)
        look.at(server, "#/timers/demo")
        look.row("t000")
        look.run("window.fetch = ((real) => async (url, init) => { if (init.method === 'DELETE') await new Promise((go) => { window.go = go; }); return real(url, init); })(window.fetch)")
        look.click("input[aria-label*='t000']")
        look.click(".bulk button", "Cancel")
        look.click("dialog[open] button[type=submit]")
        look.until(lambda: look.run("return Boolean(window.go)"), "the request begins")
        look.press("\ue00c")
        look.await_none("dialog[open]")
        look.run("window.go()")
        look.said("Cancelled 1 timer.")
        look.await_none("tr[data-row]")


# --- What the viewer sees is up to date -------------------------------------------------------------------------------


@viewed("a list that stood still under the pointer is loaded when the pointer leaves it")
def _(look):
    with look.serve() as server:
        fill(server, count=3)
        look.at(server, "#/timers/demo")
        look.link("live")
        point(look, look.row("t000"))
        server.delete("/v1/timers/demo/t001").must(204)
        sampled(look, server)
        expect(look.rows(), 3)
        point(look, look.find("main h1"))
        look.until(lambda: look.rows() == 2, "the row is gone")


def point(look, element):
    x, y = look.run("const b = arguments[0].getBoundingClientRect(); return [b.x + 60, b.y + b.height / 2].map(Math.round)", element)
    look.call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"},
                                                "actions": [{"type": "pointerMove", "duration": 20, "origin": "viewport", "x": x, "y": y}]}]})


@viewed("a page that comes after the viewer has left it takes nothing from the page that is shown")
def _(look):
    with look.serve() as server:
        fill(server, "one", 1)
        fill(server, "two", 1)
        look.at(server, "#/now")
        look.link("live")
        look.run("window.fetch = ((real) => async (url, init) => { if (String(url).includes('/one/t000')) await new Promise((go) => { window.go = go; }); return real(url, init); })(window.fetch)")
        look.go("#/timers/one/t000")
        look.until(lambda: look.run("return Boolean(window.go)"), "the request begins")
        look.to("#/timers/two", "Timers of two")
        look.row("t000")
        look.run("window.go(); return new Promise((done) => setTimeout(done, 300))")
        fill(server, "two", 2)
        look.row("t001")


@viewed("the first timer ends the words of welcome")
def _(look):
    with look.serve() as server:
        look.at(server, "#/timers")
        look.await_text("This server has no timers yet.")
        look.link("live")
        fill(server, count=1)
        look.find("main h1", "Timers of demo")
        look.row("t000")


@viewed("lists are in the order of time")
def _(look):
    with look.serve() as server:
        for i in range(30):
            server.put(f"/v1/timers/demo/t{i:02}", {"after": f"{(i * 7) % 30 + 2000}h"}).must(201)
        look.at(server, "#/timers/demo")
        look.until(lambda: look.rows() == 30, "all rows")
        times = look.run("return [...document.querySelectorAll('td.due time:first-child')].map((time) => time.dateTime)")
        expect(times, sorted(times))


@viewed("after an upgrade of the server, the next page is a new start")
def _(look):
    with look.serve() as server:
        fill(server, count=1)
        look.at(server, "#/timers/demo")
        look.link("live")
        look.run("window.fetch = ((real) => (url, init) => (String(url).endsWith('/version') ? Promise.resolve(new Response('{\"version\":\"next\"}')).then((one) => { window.told = true; return one; }) : real(url, init)))(window.fetch); window.old = true")
        look.hide(True)
        look.find(".state", "Paused")
        look.hide(False)
        look.until(lambda: look.run("return Boolean(window.told)"), "the page asks for the version")
        look.click("#nav a", "Cluster")
        look.find("main h1", "Cluster")
        look.until(lambda: not look.run("return Boolean(window.old)"), "the page has begun anew")


@viewed("a computer whose clock is wrong shows the server's time, and says so")
def _(look):
    shift = look.cdp("Page.addScriptToEvaluateOnNewDocument", source="Date.now = ((real) => () => real() - 7200000)(Date.now)")["identifier"]
    try:
        with look.serve() as server:
            server.put("/v1/timers/demo/tea", {"after": "10h"}).must(201)
            look.at(server, "#/timers/demo/tea")
            look.find("#foot", "clock is ")
            check("behind the server's" in look.text("#foot"), look.text("#foot"))
            check(look.text(".countdown").startswith(("in 9h", "in 10h")), look.text(".countdown"))
    finally:
        look.cdp("Page.removeScriptToEvaluateOnNewDocument", identifier=shift)


# --- What fails says so -----------------------------------------------------------------------------------------------


@viewed("a name that a browser cannot request does not hide the others")
def _(look):
    with look.serve() as server:
        expect(server.batch([{"op": "create", "namespace": "..", "name": "x", "after": "1h"}])[0]["ok"], True)
        fill(server, count=1)
        look.at(server, "#/namespaces")
        look.row("demo")
        look.run("arguments[0].querySelector('.act button').click()", look.row(".."))
        look.click("dialog[open] button[type=submit]")
        look.find("dialog[open] .error", "A browser cannot request")


@viewed("live says why it gets no events, and shows pauses of hosts")
def _(look):
    look.allowed = ("400 (Bad Request)",)
    with look.serve() as server:
        look.at(server, "#/live?type=nonsense")
        look.await_text("type must be a list")
        look.at(server, "#/live?type=paused")
        look.link("live")
        look.until(lambda: server.post("/v1/hosts/example.com:443/pause", {"reason": "repair"}).status and look.rows() > 0, "an event")
        expect(look.run("return arguments[0].querySelector('a').hash", look.row("example.com:443")), "#/targets?prefix=" + urllib.parse.quote("example.com:443", safe=""))


@viewed("the namespace and the type of live events do not change each other")
def _(look):
    with look.serve() as server:
        fill(server, count=1)
        look.at(server, "#/live?type=fired")
        look.set("#namespace", "demo")
        look.until(lambda: look.run("return location.hash") == "#/live?type=fired&namespace=demo", "both")
        look.click("button", "Clear filter")
        look.until(lambda: look.run("return location.hash") == "#/live?namespace=demo", "the namespace stays")
        check(look.none("button", "Clear filter"), "nothing else to clear")


@viewed("a token that may not read is told so, and can sign out")
def _(look):
    look.allowed = ("401 (Unauthorized)", "403 (Forbidden)")
    config = os.path.join(folder(), "foliot.conf")
    tokens(config, {"root": ("*", "admin"), "writer": ("*", "write")})
    with look.serve("--config", config, token="token of root") as server:
        look.at(server, "#/timers")
        look.type("input[type=password]", "token of writer")
        look.click("button", "Sign in")
        look.find("main .error", "the token has no right")
        look.click("#foot button", "Sign out")
        look.find("main h1", "Sign in to Foliot")
        look.type("input[type=password]", "token of root")
        look.click("button", "Sign in")
        look.await_text("$FOLIOT_TOKEN")


@viewed("hosts that do not respond look different from hosts that were not called")
def _(look):
    with look.serve() as server:
        server.put("/v1/timers/demo/x", {"after": "0s", "target": "http://127.0.0.1:1/", "retry": {"max_attempts": 1}}).must(201)
        await_(lambda: dead(server, "demo"), "a dead letter")
        look.at(server, "#/targets")
        look.find("tr[data-row] .bar.lost")
        look.find("main .legend", "no response")
        look.click("tr[data-row] button", "Pause…")
        look.type("dialog[open] input[type=text]", "a new disk")
        look.confirm()
        look.find("tr[data-row]", "a new disk")


@viewed("a page that was never opened before the server went away appears when it is back")
def _(look):
    look.allowed = LOST
    with look.serve() as server:
        fill(server, count=1)
        look.at(server, "#/timers/demo")
        look.link("live")
        server.kill()
        look.link("lost")
        look.go("#/cluster")
        look.find("main .error", "The server does not respond.")
        server.start()
        look.find("main h1", "Cluster")
        look.row("this server")


@viewed("one part of a page that cannot be loaded does not hide the others")
def _(look):
    look.allowed = ("503 (Service Unavailable)",)
    with look.serve() as server:
        fill(server, count=1)
        look.at(server)
        look.link("live")
        look.run("""window.away = true;
            window.fetch = ((real) => async (url, init) => (window.away && String(url).includes('/forecast')
              ? new Response('{"detail":"another server does not respond"}', { status: 503 }) : real(url, init)))(window.fetch)""")
        look.to("#/cluster", "Cluster")
        look.to("#/now", "Now")
        look.find("figure", "another server does not respond")
        look.find(".figures", "pending")
        look.run("window.away = false")
        look.find("svg[aria-label^='Next hour, by minute. 0 timers']")


@viewed("the shards of a server that does not respond are marked")
def _(look):
    with look.serve() as server:
        look.at(server, "#/now")
        look.run("""window.fetch = ((real) => async (url, init) => (String(url).endsWith('/v1/cluster') ? new Response(JSON.stringify({
              servers: [{ address: 'a:1', version: '1', shards: 2, self: true, linked: true }, { address: 'b:1', version: '1', shards: 2, linked: false, trouble: 'refused' }],
              shards: ['a:1', 'b:1', 'b:1', null].map((owner, shard) => ({ shard, owner }))})) : real(url, init)))(window.fetch)""")
        look.to("#/cluster", "Cluster")
        look.await_text("Without a server that responds: 1–3.")
        expect(look.run("return document.querySelectorAll('.shards .nobody').length"), 3)


@viewed("the page of a due timer says why it waits")
def _(look):
    with look.serve() as server:
        receiver = Receiver()
        host = receiver.url.split("//")[1]
        server.post(f"/v1/hosts/{host}/pause", {"reason": "a new disk"}).must(200)
        server.put("/v1/timers/demo/tea", {"after": "0s", "target": f"{receiver.url}/hook"}).must(201)
        look.at(server, "#/timers/demo/tea")
        look.await_text("The host is paused a new disk")
        server.post("/v1/namespaces/demo/pause", {"reason": "repair"}).must(200)
        look.open("about:blank")
        look.at(server, "#/timers/demo/tea")
        look.await_text("The namespace is paused repair")


@viewed("schedules are found behind many timers that wait")
def _(look):
    with look.serve("--test-clock") as server:
        server.put("/v1/schedules/demo/often", {"every": "30m"}).must(201)
        server.put("/v1/schedules/demo/daily", {"every": "1d"}).must(201)
        server.advance("100d")
        look.at(server, "#/schedules/demo")
        look.row("often")
        look.row("daily")
        look.find(".pager", "2 schedules")


@viewed("a search goes on until it finds something")
def _(look):
    with look.serve() as server:
        flood(server, 60_000)
        look.at(server, "#/timers/demo?name_contains=order-0059999")
        look.row("order-0059999")
        look.at(server, "#/timers/demo?name_contains=nothing")
        look.await_text("No timer matches the filter.")


# --- Small screens, keys, text ----------------------------------------------------------------------------------------


@viewed("keys reach rows without links, and the menu says whether it is open")
def _(look):
    with look.serve() as server:
        bury(server, "demo", ["a"])
        look.at(server, f"#/dead/demo/{dead(server, 'demo')[0]['id']}")
        look.row("answered with status 404")
        look.press("j")
        check(look.run("return document.activeElement.closest('tr[data-row]') !== null"), "the row has the focus")
        look.look(360, 740)
        expanded = lambda: look.run("return document.getElementById('menu').getAttribute('aria-expanded')")  # noqa: E731
        look.click("#menu")
        expect(expanded(), "true")
        look.click("#nav a", "Cluster")
        look.find("main h1", "Cluster")
        expect(expanded(), "false")


@viewed("a payload with many brackets is indented at once")
def _(look):
    with look.serve() as server:
        look.at(server)
        lines = look.run("""return import('./payload.js').then(({ pretty }) => pretty('[' + '[1],'.repeat(200000) + '{}, {"a": []}]').split('\\n'))
            .then((lines) => [lines.length, ...lines.slice(0, 4), ...lines.slice(-5)])""")
        expect(lines, [200000 * 3 + 6, "[", "  [", "    1", "  ],", "  {},", "  {", '    "a": []', "  }", "]"])


@viewed("a copied curl command keeps civil time and debounce")
def _(look):
    with look.serve() as server:
        timer = {"due": {"local": "2031-03-30T09:00:00", "zone": "Europe/Berlin"}, "max_wait": "1h", "merge": "first"}
        server.put("/v1/timers/demo/tea", timer).must(201)
        look.at(server, "#/timers/demo/tea")
        look.find(".facts", "first payload")
        look.run("Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => { window.copied = text; }}})")
        look.click("button", "Copy as curl")
        copied = look.until(lambda: look.run("return window.copied"), "a command")
        expect({key: json.loads(copied.split("-d '")[1].rstrip("'"))[key] for key in timer}, timer)
        look.click("button", "Copy as foliot")
        look.until(lambda: look.run("return window.copied").endswith("# without the time zone, max_wait, merge"), "what is left out")


run()
