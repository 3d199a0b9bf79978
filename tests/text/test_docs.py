#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tables of docs/schedules.md are true."""

import datetime
import os
import re

from oracle import Probe, run, test

MARKS = {"-": "", "gap": " (gap)", "repeat": " (repeat)"}


def rows(header):
    """The cells of the table with this header, without their backticks."""
    with open(os.path.join(os.environ["SOURCE"], "docs", "schedules.md"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    begin = lines.index(header) + 2
    for line in lines[begin:]:
        if not line.startswith("|"):
            return
        yield [cell.strip().replace("`", "") for cell in line[1:-1].split("|")]


def instant(text):
    return int(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())


def text_of(answer):
    at, offset, mark = answer.split(":")
    zone = datetime.timezone(datetime.timedelta(seconds=int(offset)))
    return datetime.datetime.fromtimestamp(int(at), zone).isoformat() + MARKS[mark]


@test("the examples occur when the table says")
def _():
    count = 0
    with Probe() as probe:
        for cron, zone, options, after, occurrences in rows("| `cron` | `zone` | options | after | occurrences |"):
            rule = {"cron": cron, "zone": zone}
            if options:
                key, value = options.split(": ", 1)
                rule["exceptions" if key == "except" else key] = [value] if key == "except" else value
            wanted = occurrences.split(", ")
            end = instant(wanted[-1].split(" ")[0])
            answer = probe.ask("list", numbers=(instant(after), end), **rule)
            found = [text_of(word) for word in answer.split()]
            assert found == wanted, f"{cron} in {zone} ({options}): {found}, not {wanted}"
            count += 1
    assert count > 20, "the table is not there"


@test("the errors are those in the table")
def _():
    count = 0
    with Probe() as probe:
        for expression, error in rows("| expression | error |"):
            answer = probe.ask("list", cron=expression, numbers=(0, 1))
            assert answer == f"error cron: {error}", f"{expression}: {answer}"
            count += 1
    assert count > 3, "the table is not there"


@test("the words mean what the text says")
def _():
    with open(os.path.join(os.environ["SOURCE"], "docs", "schedules.md"), encoding="utf-8") as file:
        text = file.read()
    with Probe() as probe:
        for word in re.findall(r"`(@[a-z]+)`", text):
            expression = re.search(f"`{word}`.*?mean[s]?\\s+`([^`]+)`", text, re.S).group(1)
            spans = (instant("2026-01-01T00:00:30Z"), instant("2027-01-02T00:00:00Z"))
            assert probe.ask("list", cron=word, numbers=spans) == probe.ask("list", cron=expression, numbers=spans), word


run()
