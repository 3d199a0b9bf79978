#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Schedules beside other programs, where their rules agree with ours; zones from zic beside Python's zoneinfo.

systemd and dateutil have no rules for clock changes that could be compared, so these run in UTC and in zones that did not
change at the time. Both take a day only if its date and its weekday match, which is `+` before the day of week here.
"""

import datetime
import os
import random
import re
import shutil
import subprocess
import tempfile
import zoneinfo

from oracle import DAY, WEEKDAYS, Probe, Skip, changes, occurrences, offset, random_list, random_rule, run, test

SEED = int(os.environ.get("FOLIOT_SEED", "1"))
UTC = datetime.timezone.utc
BASE = datetime.datetime(2026, 1, 5, 12, tzinfo=UTC)
STILL = ["UTC", "Asia/Tokyo", "Asia/Kathmandu", "America/Bogota", "Africa/Lagos"]


def seconds(moment):
    return int(moment.timestamp())


# --- systemd


def systemd(specification, count):
    environment = dict(os.environ, TZ="UTC", LC_ALL="C")
    command = ["systemd-analyze", "calendar", f"--iterations={count}",
               f"--base-time={BASE.strftime('%Y-%m-%d %H:%M:%S')} UTC", specification]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"(?:Next elapse|Iteration #\d+|Iter\. *#\d+): \w+ (\d+-\d+-\d+) (\d+:\d+:\d+) UTC", output)
    return [seconds(datetime.datetime.fromisoformat(f"{date}T{time}+00:00")) for date, time in found]


def random_pair(rng):
    """The same in cron and in systemd's language."""
    minute = rng.choice(["*", f"{rng.randint(0, 59)}", random_list(rng, 0, 59), f"{rng.randint(0, 9)}/{rng.randint(10, 25)}"])
    hour = rng.choice(["*", random_list(rng, 0, 23), f"{rng.randint(0, 5)}/{rng.randint(2, 9)}"])
    day, systemd_day = rng.choice([("*", "*"), ("L", "~01"), ("L-2", "~03"), ("10-20", "10..20"), ("13", "13")])
    month = rng.choice(["*", random_list(rng, 1, 12), "2/3"])
    weekday, systemd_weekday = rng.choice([("*", ""), ("MON-FRI", "Mon..Fri "), ("SAT,SUN", "Sat,Sun "), ("WED", "Wed ")])
    separator = "" if systemd_day.startswith("~") else "-"
    return (f"{minute} {hour} {day} {month} +{weekday}",
            f"{systemd_weekday}*-{month}{separator}{systemd_day} {hour}:{minute}:00")


@test("the same occurrences as systemd-analyze calendar")
def _():
    if not shutil.which("systemd-analyze"):
        raise Skip("systemd-analyze is not installed")
    rng = random.Random(SEED)
    compared = 0
    with Probe() as probe:
        for _ in range(60):
            cron, specification = random_pair(rng)
            zone = rng.choice(STILL)
            wanted = systemd(f"{specification} {zone}", 12)
            if not wanted:
                raise Skip("systemd-analyze prints nothing that can be read")
            found = probe.list({"cron": cron, "zone": zone}, seconds(BASE), wanted[-1])
            assert [at for at, _ in found] == wanted, f"{cron} in {zone}: {found}, {specification}: {wanted}"
            compared += len(wanted)
    print(f"# {compared} occurrences")


# --- dateutil


def dateutil_rule(rng, rrule):
    """An expression, and what dateutil makes of it."""
    minutes = sorted({rng.randint(0, 59) for _ in range(3)})
    hours = sorted({rng.randint(0, 23) for _ in range(2)})
    months = sorted({rng.randint(1, 12) for _ in range(4)})
    weekday = rng.randrange(7)
    name = WEEKDAYS[weekday]
    constant = [rrule.SU, rrule.MO, rrule.TU, rrule.WE, rrule.TH, rrule.FR, rrule.SA][weekday]
    nth = rng.randint(1, 5)
    day, options = rng.choice([
        (("*", "*"), {"bymonthday": range(1, 32)}),
        (("L", "*"), {"bymonthday": -1}),
        (("L-4", "*"), {"bymonthday": -5}),
        (("1,15,31", "*"), {"bymonthday": (1, 15, 31)}),
        (("*", name), {"byweekday": constant}),
        (("*", f"{name}L"), {"byweekday": constant(-1)}),
        (("*", f"{name}#{nth}"), {"byweekday": constant(nth)}),
        (("8-14", f"+{name}"), {"byweekday": constant, "bymonthday": range(8, 15)}),
        (("13", f"+{name}"), {"byweekday": constant, "bymonthday": 13}),
    ])
    text = " ".join([",".join(map(str, minutes)), ",".join(map(str, hours)), day[0], ",".join(map(str, months)), day[1]])
    start = datetime.datetime(2026, 1, 1)
    rule = rrule.rrule(rrule.MONTHLY, dtstart=start, until=datetime.datetime(2032, 1, 1), byminute=minutes, byhour=hours,
                       bysecond=0, bymonth=months, **options)
    return text, [seconds(moment.replace(tzinfo=UTC)) for moment in rule]


@test("the same occurrences as python3-dateutil")
def _():
    try:
        from dateutil import rrule
    except ImportError:
        raise Skip("python3-dateutil is not installed") from None
    rng = random.Random(SEED)
    compared = 0
    with Probe() as probe:
        for _ in range(80):
            text, wanted = dateutil_rule(rng, rrule)
            found = probe.list({"cron": text}, seconds(datetime.datetime(2026, 1, 1, tzinfo=UTC)) - 1,
                               seconds(datetime.datetime(2032, 1, 1, tzinfo=UTC)))
            assert [at for at, _ in found] == wanted, f"{text}: {found[:5]}, {wanted[:5]}"
            compared += len(wanted)
    print(f"# {compared} occurrences")


# --- zic

SOURCE = """
Rule Odd 1980 max - Mar lastSun 25:00 1:00 S
Rule Odd 1980 max - Oct Sun>=1 -1:30 0 -
Rule Half 1990 max - Apr 1 2:00s 0:30 S
Rule Half 1990 max - Sep 30 3:00u 0 -
Rule Neg 1971 max - Oct lastSun 1:00u -1:00 W
Rule Neg 1971 max - Mar lastSun 1:00u 0 -
Rule Leap 2000 2030 - Feb 28 24:00 2:00 S
Rule Leap 2000 2030 - Mar 2 0:00 0 -
Zone Odd/East 5:43:21 - LMT 1950
    5:30 Odd OD%sT
Zone Odd/Half -3:30 Half HA%sT
Zone Odd/Negative 1:00 Neg NE%sT
Zone Odd/Leap 0 Leap LE%sT
Zone Odd/Moved -11:00 - AAA 1999 Dec 31
    13:00 - BBB 2015 Jun 15 12:00
    -11:00 - CCC
Zone Odd/Fixed 14:00 - FFF
"""
ODD = ["Odd/East", "Odd/Half", "Odd/Negative", "Odd/Leap", "Odd/Moved", "Odd/Fixed"]


@test("zones that zic compiles, slim and fat, are as zoneinfo reads them")
def _():
    zic = shutil.which("zic") or shutil.which("zic", path="/usr/sbin:/sbin")
    if not zic:
        raise Skip("zic is not installed")
    rng = random.Random(SEED)
    for form in ("slim", "fat"):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "source")
            with open(source, "w", encoding="ascii") as file:
                file.write(SOURCE)
            subprocess.run([zic, "-b", form, "-d", folder, source], check=True, capture_output=True)
            zoneinfo.ZoneInfo.clear_cache()
            zoneinfo.reset_tzpath(to=[folder])
            try:
                compare_tree(folder, rng)
            finally:
                zoneinfo.reset_tzpath()
                zoneinfo.ZoneInfo.clear_cache()


def compare_tree(folder, rng):
    end = seconds(datetime.datetime(2060, 1, 1, tzinfo=UTC))
    with Probe(folder) as probe:
        assert probe.ask("version").startswith("hash-")
        for name in ODD:
            zone = zoneinfo.ZoneInfo(name)
            for _ in range(300):
                at = rng.randrange(-10**9, end)
                found = int(probe.ask("offset", zone=name, numbers=(at,)))
                assert found == offset(zone, at), f"{name} at {at}: {found}, not {offset(zone, at)}"
            at = changes(zone, 0, end)
            for change in rng.sample(at, min(len(at), 12)):
                local = change + offset(zone, change)
                rule = random_rule(rng, name, near=local // 3600 % 24)
                try:
                    found = probe.list(rule, change - 2 * DAY, change + 2 * DAY)
                except ValueError as error:
                    assert "never match" in str(error), error
                    continue
                wanted = occurrences(rule, change - 2 * DAY, change + 2 * DAY)
                assert found == wanted, f"{rule} near {change}: {found[:9]}, not {wanted[:9]}"


run()
