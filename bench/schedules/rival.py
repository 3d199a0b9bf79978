#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Occurrences by dateutil: rival.py dateutil RULE ZONE COUNT [compile]

Prints nanoseconds of processor time per occurrence, and the last occurrence in seconds. The rule is that of RFC 5545. dateutil
walks in local time, and each occurrence is converted to an instant.
"""

import datetime
import sys
import time
import zoneinfo

from dateutil import rrule

_, _, text, zone, count, *compile = sys.argv
count = int(count)
zone = zoneinfo.ZoneInfo(zone)
begin = datetime.datetime(2026, 1, 1)


def make():
    return rrule.rrulestr(text, dtstart=begin)


def walk():
    at = 0
    occurrences = iter(make())
    for _ in range(count):
        if compile:
            make()
            continue
        moment = next(occurrences)
        if moment.year >= 2100:
            occurrences = iter(make())
            moment = next(occurrences)
        at = moment.replace(tzinfo=zone).timestamp()
    return at


before = time.process_time_ns()
last = walk()
print((time.process_time_ns() - before) / count, last)
