#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Lists in pages: cursors belong to their list, searches end in bounded time, and unknown parameters are refused everywhere."""

import json
import os
import re

from e2e import SOURCE, Server, await_, check, expect, problem, quote, run, test

server = Server(shards=4)

# Each list: its path, the member with the rows, a filter, and another one.
LISTS = {
    "/v1/timers/a": ("timers", "prefix=n", "prefix=n1"),
    "/v1/schedules/a": ("schedules", "prefix=n", "name_contains=1"),
    "/v1/dead/a": ("timers", "prefix=d", "reason_contains=404"),
    "/v1/history/a": ("history", "result=dead", "after=2020-01-01T00:00:00Z"),
    "/v1/namespaces": ("namespaces", "prefix=a", "name_contains=a"),
    "/v1/hosts": ("hosts", "prefix=127", "prefix=1"),
}


def fill():
    lines = [{"op": "create", "namespace": "a", "name": f"n{n}", "after": "1d"} for n in range(25)]
    lines += [{"op": "create", "namespace": "a", "name": f"d{n}", "after": "0s", "target": server.url + "/nowhere"} for n in range(25)]
    lines += [{"op": "schedule", "namespace": "a", "name": f"n{n}", "every": "1d"} for n in range(25)]
    lines += [{"op": "create", "namespace": f"a {n}/&+?", "after": "1d"} for n in range(25)]
    check(all(answer["ok"] for answer in server.batch(lines)), "all were made")
    for port in range(1, 26):
        server.post(f"/v1/hosts/127.0.0.1:{port}/pause").must(200)
    await_(lambda: len(server.get("/v1/history/a?limit=1000").must(200)["history"]) == 25, "they are dead, and it is known")


fill()


def pages(path, rows, query=""):
    """All rows of a list, two on a page, and its cursors. The cursors are put into the URL as they are."""
    found, cursors = [], []
    while True:
        page = server.get(f"{path}?limit=2{query and '&' + query}" + (f"&cursor={cursors[-1]}" if cursors else "")).must(200)
        found += [json.dumps(row, sort_keys=True) for row in page[rows]]
        if "cursor" not in page:
            return found, cursors
        check(re.fullmatch("[A-Za-z0-9_-]+", page["cursor"]), page["cursor"])
        cursors.append(page["cursor"])


@test("every list: each row once, with and without a filter")
def _():
    for path, (rows, one, other) in LISTS.items():
        for query in ("", one, other):
            found, cursors = pages(path, rows, query)
            check(len(cursors) >= 4, f"{path}?{query} has {len(cursors)} cursors")
            expect(len(set(found)), len(found), f"{path}?{query}: rows that come once")
            expect(len(found), len(server.get(f"{path}?limit=1000&{query}").must(200)[rows]), f"{path}?{query}: rows")


@test("a cursor is refused with another filter, in another namespace, and in another list")
def _():
    for path, (rows, one, other) in LISTS.items():
        cursor = pages(path, rows, one)[1][0]
        for query in ("", other, one + "0", f"{one}&{other.split('=')[0]}x=1"):
            answer = server.get(f"{path}?limit=2&cursor={cursor}{query and '&' + query}")
            check(answer.status == 400, f"{path}?{query}: {answer}")
        for foreign in [*LISTS, "/v1/timers/b", "/v1/dead/b", "/v1/history/b", "/v1/schedules/b"]:
            if foreign != path:
                problem(server.get(f"{foreign}?cursor={cursor}"), 400, "invalid-field", "cursor")


@test("with the same filter, limit and the order of parameters may change")
def _():
    cursor = pages("/v1/timers/a", "timers", "prefix=n&due_after=2020-01-01T00:00:00Z")[1][0]
    for query in (f"due_after=2020-01-01T00:00:00Z&prefix=n&cursor={cursor}&limit=100",
                  f"payload=false&prefix=%6E&cursor={cursor}&due_after=2020-01-01T00:00:00Z"):
        expect(len(server.get(f"/v1/timers/a?{query}").must(200)["timers"]), 23)


@test("a cursor that was changed anywhere is refused")
def _():
    for path, (rows, _, _) in LISTS.items():
        cursor = pages(path, rows)[1][0]
        for at in range(0, len(cursor), 5):
            broken = cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1:]
            problem(server.get(f"{path}?cursor={broken}"), 400, "invalid-field", "cursor")
        for broken in ("", "A", cursor[:-1], cursor[1:], cursor + "A", cursor * 2, "A" * 8, "A" * 3000, quote("\0\n\u00e9"), "=" * 8):
            problem(server.get(f"{path}?cursor={broken}"), 400, "invalid-field", "cursor")


@test("a search that finds nothing among many ends its page, and goes on with the cursor")
def _():
    count = 60000
    with Server(shards=1, store="memory:") as one:
        answers = one.batch([{"op": "create", "namespace": "many", "name": f"timer-{n}", "after": "1d"} for n in range(count)])
        check(all(answer["ok"] for answer in answers), "all were made")
        one.put("/v1/timers/many/needle", {"after": "10d"}).must(201)
        first = one.get("/v1/timers/many?name_contains=needle").must(200)
        expect(first["timers"], [], "a bounded number was looked at")
        check("cursor" in first, first)
        expect([timer["name"] for timer in one.timers("many", name_contains="needle")], ["needle"])


@test("a list without a search has no empty page, however far apart its timers are")
def _():
    with Server(shards=1, store="memory:") as one:
        lines = [{"op": "create", "namespace": "other", "after": f"{n}m"} for n in range(5000)]
        lines += [{"op": "create", "namespace": "far", "name": "far", "after": "3600d"}]
        check(all(answer["ok"] for answer in one.batch(lines)), "all were made")
        page = one.get("/v1/timers/far?limit=10").must(200)
        expect(([timer["name"] for timer in page["timers"]], "cursor" in page), (["far"], False))
        expect([timer["name"] for timer in one.timers("far", name_contains="a")], ["far"])


@test("an exact filter that is empty is refused: it must not let everything through")
def _():
    for path, field in (("/v1/history/a", "name"), ("/v1/history/a", "schedule"), ("/v1/timers/a", "schedule"), ("/v1/dead/a", "schedule"),
                        ("/v1/history/a", "id"), ("/v1/history/a", "result")):
        problem(server.get(f"{path}?{field}="), 400, "invalid-field", field)


@test("every operation refuses an unknown parameter, and names those that it knows")
def _():
    with open(os.path.join(SOURCE, "src", "api", "openapi.json"), encoding="utf-8") as file:
        document = json.load(file)

    def resolved(parameter):
        return document["components"]["parameters"][parameter["$ref"].rsplit("/", 1)[1]] if "$ref" in parameter else parameter

    looked = 0
    for path, item in document["paths"].items():
        for method in set(item) & {"get", "put", "post", "patch", "delete"}:
            if not path.startswith("/v1/"):
                continue
            known = [resolved(one) for one in item.get("parameters", []) + item[method].get("parameters", [])]
            known = [one["name"] for one in known if one["in"] == "query"]
            answer = server.call(method.upper(), re.sub(r"\{\w+\}", "x", path) + "?frobnicate=1")
            found = problem(answer, 400, "unknown-field", "frobnicate")
            for name in known:
                check(name in found["detail"], f"{method} {path} does not name {name}: {found['detail']}")
            looked += 1
    check(looked > 40, looked)


run()
