#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The dashboard in a browser: every action does what the API does (docs/dashboard.md)."""

import subprocess

from dashboard import bury, dead, fill, viewed
from e2e import FOLIOT, Receiver, await_, check, expect, microseconds, quote, run

HOUR_US = 3_600_000_000


def names(server, namespace="demo"):
    return sorted(timer["name"] for timer in server.timers(namespace))


# --- Timers -----------------------------------------------------------------------------------------------------------


@viewed("selected timers are cancelled")
def _(look):
    with look.serve() as server:
        fill(server, count=4)
        look.at(server, "#/timers/demo")
        look.row("t003")
        for name in ("t001", "t002"):
            look.click(f"input[aria-label*='{name}']")
        look.find(".bulk", "2 rows selected")
        look.click(".bulk button", "Cancel")
        look.find("dialog[open]", "Cancel 2 timers?")
        look.confirm()
        look.said("Cancelled 2 timers.")
        expect(names(server), ["t000", "t003"])
        look.until(lambda: look.rows() == 2, "two rows are left")


@viewed("cancelling by filter counts first")
def _(look):
    with look.serve() as server:
        fill(server, count=12)
        look.at(server, "#/timers/demo?prefix=t00")
        look.row("t009")
        look.click("button", "Cancel by filter…")
        look.find("dialog[open]", "Cancel 10 timers?")
        look.click("dialog[open] button", "Close")
        expect(len(names(server)), 12)
        look.click("button", "Cancel by filter…")
        look.find("dialog[open]", "Cancel 10 timers?")
        look.confirm()
        expect(names(server), ["t010", "t011"])


@viewed("a timer fires now")
def _(look):
    with look.serve() as server:
        receiver = Receiver()
        server.put("/v1/timers/demo/tea", {"after": "1d", "target": f"{receiver.url}/hook"}).must(201)
        look.at(server, "#/timers/demo/tea")
        look.click("button", "Fire now…")
        look.confirm()
        receiver.await_calls(1)
        look.allowed = ("404 (Not Found)",)
        look.await_text("No such timer is pending")


def due(server, name="tea"):
    return microseconds(server.get(f"/v1/timers/demo/{name}").must(200)["due"])


@viewed("a timer is moved: by a duration, a time, dragging and keys")
def _(look):
    with look.serve() as server:
        server.put("/v1/timers/demo/tea", {"due": "2031-01-31T09:00:00Z"}).must(201)
        look.at(server, "#/timers/demo/tea")
        look.set("input[type=datetime-local]", "2031-02-01T10:30:00")
        look.click("button.primary", "Move")
        await_(lambda: server.get("/v1/timers/demo/tea").must(200)["due"].startswith("2031-02-01T09:30:00"), "the time in Berlin")
        look.until(lambda: look.run("return document.querySelector('button.primary').disabled"), "the page shows the new time")
        before = due(server)
        look.type("input[placeholder='1h30m']", "2d")
        look.click("button.primary", "Move")
        await_(lambda: due(server) < before, "two days from now")
        for move in (lambda: look.drag(".knob", 200), lambda: (look.run("document.querySelector('.knob').focus()"), look.press("\ue012"))):
            before = due(server)
            look.until(lambda: look.run("return document.querySelector('button.primary').disabled"), "the page shows the new time")
            move()
            look.find("button", "Reset")
            look.click("button.primary", "Move")
            await_(lambda: due(server) != before, "moved")


@viewed("a timer is cancelled")
def _(look):
    look.allowed = ("404 (Not Found)",)  # the page may look for it again before it is left
    with look.serve() as server:
        fill(server, count=2)
        look.at(server, "#/timers/demo/t000")
        look.click("button", "Cancel…")
        look.confirm()
        look.find("main h1", "Timers of demo")
        expect(names(server), ["t001"])


def copied(look, label):
    """The command that a button copies: a page without TLS has no clipboard and shows it."""
    look.run("Object.defineProperty(navigator, 'clipboard', {configurable: true, value: {writeText: (text) => { window.copied = text; return Promise.resolve(); }}})")
    look.run("window.copied = null")
    look.click("button", label)
    return look.until(lambda: look.run("return window.copied"), "a copied command")


@viewed("copied commands create the same timer, and contain no token")
def _(look):
    with look.serve() as server:
        timer = {"due": "2031-01-31T09:00:00Z", "target": "http://127.0.0.1:9/x?a='b'", "payload": {"it's": "\"quoted\" $HOME `x`"},
                 "headers": {"x-one": "two 'three'"}, "timeout": "7s", "retry": {"max_attempts": 3}}
        for name in ("tea", "it's $HOME; `ls` \"x\"", "-rf"):
            where = "/v1/timers/demo/" + quote(name)
            server.put(where, timer).must(201)
            wanted = server.get(where).must(200)
            for label in ("Copy as curl", "Copy as foliot"):
                look.open("about:blank")
                look.at(server, "#/timers/demo/" + quote(name))
                command = copied(look, label)
                look.open("about:blank")  # the page would notice that its timer is gone
                server.delete(where)
                program = {"curl": "curl", "foliot": FOLIOT}[command.split(" ")[0]]
                done = subprocess.run(["sh", "-euc", f"{command.split(' ')[0]}() {{ '{program}' \"$@\"; }}; {command}" if program == FOLIOT else command],
                                      capture_output=True, text=True, check=False)
                expect(done.returncode, 0, done.stderr)
                found = server.get(where).must(200)
                for key in ("name", "due", "target", "payload", "headers", "timeout", "retry"):
                    expect(found.get(key), wanted.get(key), f"{label}: {key}")


# --- Dead letters -----------------------------------------------------------------------------------------------------


@viewed("dead letters are grouped, and redriven or deleted: one, selected ones, by filter")
def _(look):
    with look.serve() as server:
        bury(server, "demo", [f"a{i}" for i in range(6)])
        bury(server, "demo", ["b0", "b1"], "/healthz")
        look.at(server, "#/dead/demo")
        look.find(".groups a", "answered with status 404")
        look.click(".groups a", "answered with status 405")
        look.until(lambda: look.rows() == 2, "the filter of the group")
        check("reason=" in look.run("return location.hash"), "the group is in the address")
        look.click("button", "Delete by filter…")
        look.find("dialog[open]", "Delete 2 dead letters?")
        look.confirm()
        expect(len(dead(server, "demo")), 6)
        look.to("#/dead/demo")
        look.row("a5")
        look.click("input[aria-label*='a0']")
        look.click(".bulk button", "Delete")
        look.confirm()
        look.said("Deleted 1 dead letter.")
        await_(lambda: len(dead(server, "demo")) == 5, "one less")
        old = {letter["id"]: letter["died"] for letter in dead(server, "demo")}
        look.click("input[aria-label*='a1']")
        look.click(".bulk button", "Redrive")
        look.said("Redriven: 1 timer.")
        await_(lambda: [x for x in dead(server, "demo") if old.get(x["id"]) != x["died"]], "it has died again")
        look.click("button", "Redrive by filter…")
        look.find("dialog[open]", "Redrive 5 dead letters?")
        look.type("dialog[open] input[type=number]", "1000")
        look.confirm()
        await_(lambda: len(dead(server, "demo")) == 5 and all(old.get(x["id"]) != x["died"] for x in dead(server, "demo")), "all have died again")


@viewed("the page of a dead letter redrives and deletes it")
def _(look):
    look.allowed = ("404 (Not Found)",)  # the page may look for it again before it is left
    with look.serve() as server:
        bury(server, "demo", ["a", "b"])
        letters = {letter["name"]: letter for letter in dead(server, "demo")}
        look.at(server, f"#/dead/demo/{letters['a']['id']}")
        look.await_text("answered with status 404")
        look.click("button", "Delete…")
        look.confirm()
        look.find("main h1", "Dead letters of demo")
        expect([letter["name"] for letter in dead(server, "demo")], ["b"])
        look.to(f"#/dead/demo/{letters['b']['id']}", "b")
        look.click("button", "Redrive")
        look.find("main h1", "Dead letters of demo")
        await_(lambda: dead(server, "demo") and dead(server, "demo")[0]["died"] != letters["b"]["died"], "it has died again")


# --- Schedules --------------------------------------------------------------------------------------------------------


def schedule(server, name="report"):
    return server.get(f"/v1/schedules/demo/{name}").must(200)


@viewed("a schedule is created, with a preview while typing")
def _(look):
    with look.serve() as server:
        look.at(server, "#/new-schedule/demo")
        look.allowed = ("400 (Bad Request)",)
        look.type("input[name=cron]", "0 9 *")
        look.find(".aside .error")
        look.find("input[name=cron][aria-invalid=true]")
        look.type("input[name=cron]", "30 2 ? 3 SUNL")
        look.type("input[name=zone]", "Europe/Berlin")
        look.find(".preview li", " 03:00:00")  # on the last Sunday of March, there is no 02:30: clocks go from 2 to 3
        look.find(".preview .pill", "clock gap")
        look.type("input[aria-label=Name], .editor input:not([name])", "report")
        look.type("textarea[name=payload]", '{"a": 1}')
        look.click("button", "Create")
        look.find("main h1", "report")
        made = schedule(server)
        expect((made["cron"], made["zone"], made["payload"]), ("30 2 ? 3 SUNL", "Europe/Berlin", {"a": 1}))


@viewed("a schedule is edited, paused, triggered and deleted")
def _(look):
    with look.serve() as server:
        server.put("/v1/schedules/demo/report", {"cron": "0 9 * * *", "zone": "Europe/Berlin", "missed": "all", "payload": 1}).must(201)
        look.at(server, "#/schedules/demo")
        look.row("report")
        look.find(".strip .mark")
        look.click("tr[data-row] button", "Pause")
        await_(lambda: schedule(server)["paused"], "paused")
        look.find("tr[data-row] .pill", "paused")
        look.click("tr[data-row] button", "Resume")
        await_(lambda: not schedule(server)["paused"], "resumed")
        look.click("tr[data-row] button", "Trigger")
        await_(lambda: len(server.lease("demo")) == 1, "an occurrence")
        look.click("td.main a", "report")
        look.find(".preview li")
        look.type("input[name=cron]", "15 10 * * *")
        look.find(".preview li", "10:15:00")
        look.click("button", "Save changes")
        await_(lambda: schedule(server)["cron"] == "15 10 * * *", "the new expression")
        expect(schedule(server)["missed"], "all", "what was not changed stays")
        look.said("Saved the schedule.")
        look.click("button", "Delete…")
        look.confirm()
        look.find("main h1", "Schedules of demo")
        expect(server.get("/v1/schedules/demo/report").status, 404)


# --- Targets, namespaces, clock, live ---------------------------------------------------------------------------------


@viewed("a host is paused and resumed")
def _(look):
    with look.serve() as server:
        receiver = Receiver()
        host = receiver.url.split("//")[1]
        server.put("/v1/timers/demo/first", {"after": "0s", "target": f"{receiver.url}/1"}).must(201)
        receiver.await_calls(1)
        look.at(server, "#/targets")
        look.row(host)
        look.click("tr[data-row] button", "Pause…")
        look.type("dialog[open] input[type=text]", "repair")
        look.confirm()
        look.find("tr[data-row] .pill", "paused")
        server.put("/v1/timers/demo/second", {"after": "0s", "target": f"{receiver.url}/2"}).must(201)
        look.click("tr[data-row] button", "Resume…")
        look.confirm()
        receiver.await_calls(2)
        look.await_none("tr[data-row] .pill", "paused")


@viewed("settings of a namespace are changed, and it is paused and resumed")
def _(look):
    with look.serve() as server:
        fill(server, count=1)
        server.put("/v1/namespaces/demo", {"spread": "30s", "retry": {"max_attempts": 5}}).must(200)
        look.at(server, "#/namespaces/demo")
        look.type("input[name=max_rate]", "100")
        look.type("input[name=spread]", "")
        look.type("input[name='retry.max_attempts']", "7")
        look.click("button", "Save settings")
        look.said("Saved the settings.")
        found = server.get("/v1/namespaces/demo").must(200)["settings"]
        expect((found.get("max_rate"), found.get("spread"), found["retry"]["max_attempts"]), (100, None, 7))
        look.click("button", "Pause…")
        look.type("dialog[open] input[type=text]", "we repair <b>it</b>")
        look.confirm()
        look.find(".notice", "we repair <b>it</b>")
        expect(server.get("/v1/namespaces/demo").must(200)["paused"]["reason"], "we repair <b>it</b>")
        look.to("#/namespaces", "Namespaces")
        look.click("tr[data-row] button", "Resume…")
        look.confirm()
        look.await_none("tr[data-row] .pill", "paused")
        check("paused" not in server.get("/v1/namespaces/demo").must(200), "resumed")


@viewed("the test clock advances, and the page shows what happens")
def _(look):
    with look.serve("--test-clock") as server:
        fill(server, count=3, target=f"http://127.0.0.1:{server.port}/echo")
        look.at(server, "#/clock")
        look.find(".countdown")
        look.await_text("Waiting for events")
        look.click("button", "+1d")
        look.said("3 timers fired.")
        look.find("tr[data-row]", "t002")
        look.find("tr[data-row] .pill", "fired")
        look.type("input[placeholder='1h30m']", "2w")
        before = server.get("/v1/clock").must(200)["now"]
        look.click("button", "Advance")
        await_(lambda: microseconds(server.get("/v1/clock").must(200)["now"]) >= microseconds(before) + 14 * 24 * HOUR_US, "two weeks later")


@viewed("live shows events as they happen, filtered by namespace and type")
def _(look):
    with look.serve() as server:
        look.at(server, "#/live")
        look.await_text("Waiting for events")
        look.link("live")
        fill(server, "one", 1)
        look.row("t000")
        look.at(server, "#/live?namespace=two&type=cancelled")
        look.link("live")
        fill(server, "two", 2)
        fill(server, "one", 1)
        look.until(lambda: server.put("/v1/timers/two/x", {"after": "1h"}).status and server.delete("/v1/timers/two/x").status == 204 and look.rows() > 0, "a cancelled timer")
        shown = look.text("tbody")
        check("cancelled" in shown and "scheduled" not in shown and "one" not in shown, shown)
        look.click("button", "Pause")
        look.click("button", "Continue")
        look.click("button", "Clear")
        look.until(lambda: look.rows() <= 1, "cleared")


@viewed("the namespace field leads to the same page of another namespace")
def _(look):
    with look.serve() as server:
        fill(server, "one", 1)
        fill(server, "two", 2)
        look.at(server, "#/timers/one")
        look.set("#namespace", "two")
        look.find("main h1", "Timers of two")
        look.click("#nav a", "Now")
        look.set("#namespace", "one")
        look.until(lambda: look.run("return location.hash") == "#/now?namespace=one", "the filter of Now")


run()
