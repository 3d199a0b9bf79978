#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Schedules beside a brute-force oracle (oracle.py), around the changes of the zones and elsewhere.

Arguments: `some` looks at a sample, in seconds; `all` looks at every change of every zone from 1970 to 2037.
FOLIOT_SEED gives the random numbers of another run.
"""

import datetime
import os
import random
import sys
import zoneinfo

from oracle import DAY, Probe, changes, occurrences, offset, random_rule, run, test

SEED = int(os.environ.get("FOLIOT_SEED", "1"))
ALL = sys.argv[1:] == ["all"]
BEGIN, END = 0, int(datetime.datetime(2038, 1, 1, tzinfo=datetime.timezone.utc).timestamp())
Y2100 = int(datetime.datetime(2100, 1, 1, tzinfo=datetime.timezone.utc).timestamp())

NAMED = ["Europe/Berlin", "Australia/Lord_Howe", "Europe/Dublin", "Pacific/Apia", "Africa/Cairo", "America/Santiago",
         "Africa/Casablanca", "Asia/Tehran", "America/Sao_Paulo", "Asia/Gaza", "Antarctica/Troll", "Africa/Monrovia",
         "America/Nuuk", "Pacific/Kwajalein", "Asia/Kathmandu", "America/St_Johns", "America/Scoresbysund"]


def zones():
    return sorted(name for name in zoneinfo.available_timezones() if name not in ("localtime", "Factory"))


def exceptions_for(rng, at):
    """A day and a time near an instant."""
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=at + rng.randint(-DAY, DAY))
    return [moment.date().isoformat(), moment.strftime("%Y-%m-%dT%H:00"), moment.strftime("%Y-%m-%dT%H:30")]


def compare(probe, rule, begin, end):
    found = probe.list(rule, begin, end)
    wanted = occurrences(rule, begin, end)
    if found != wanted:
        missing, extra = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        raise AssertionError(f"{rule} from {begin} to {end}: missing {missing[:5]}, too many {extra[:5]}")
    count = int(probe.ask("count", numbers=(begin, end), **rule))
    assert count == len(wanted), f"{rule} from {begin} to {end}: {count} counted, {len(wanted)} listed"
    last = probe.ask("last", numbers=(end,), **rule)
    assert not wanted or int(last.split(":")[0]) == wanted[-1][0], f"{rule} until {end}: last {last}, not {wanted[-1]}"
    return len(wanted)


def around(probe, rng, zone, at):
    local = at + offset(zoneinfo.ZoneInfo(zone), at)
    rule = random_rule(rng, zone, near=local // 3600 % 24)
    if rng.random() < 0.3:
        rule["exceptions"] = exceptions_for(rng, local)
    try:
        return compare(probe, rule, at - 2 * DAY, at + 2 * DAY)
    except ValueError as error:
        assert "never match" in str(error), error
        return 0


@test("every second within two days of a change is as the oracle says")
def _():
    rng = random.Random(SEED)
    compared = windows = 0
    with Probe() as probe:
        names = zones() if ALL else NAMED + rng.sample(zones(), 16)
        for name in names:
            at = changes(zoneinfo.ZoneInfo(name), BEGIN, END, DAY if ALL else 7 * DAY)
            for change in at if ALL else rng.sample(at, min(len(at), 50)):
                compared += around(probe, rng, name, change)
                windows += 1
    print(f"# {len(names)} zones, {windows} changes, {compared} occurrences, seed {SEED}")
    assert compared > 1000, "there was too little to compare"


@test("random spans up to the year 2100 are as the oracle says")
def _():
    rng = random.Random(SEED + 1)
    compared = 0
    with Probe() as probe:
        for _ in range(4000 if ALL else 300):
            rule = random_rule(rng, rng.choice(zones()), dense_days=False)
            begin = rng.randrange(BEGIN, Y2100)
            try:
                compared += compare(probe, rule, begin, begin + rng.randrange(DAY, 60 * DAY))
            except ValueError as error:
                assert "never match" in str(error), error
    print(f"# {compared} occurrences, seed {SEED}")


@test("offsets up to the year 2100 are those of zoneinfo")
def _():
    rng = random.Random(SEED + 2)
    with Probe() as probe:
        for name in zones():
            zone = zoneinfo.ZoneInfo(name)
            for _ in range(500 if ALL else 20):
                at = rng.randrange(-2**31, Y2100)
                found = int(probe.ask("offset", zone=name, numbers=(at,)))
                assert found == offset(zone, at), f"{name} at {at}: {found}, not {offset(zone, at)}"


run()
