# SPDX-License-Identifier: MIT
"""An oracle for schedules: slow, simple, and independent of the C code.

It reads a cron expression by itself, tries every time of day of every day, and asks Python's zoneinfo what the clock
shows. It knows nothing of changes, spans or tables: a local time L has the instants u for which u + offset(u) = L.

Also the frame of the tests in this folder: TAP, and the program that answers for the C code (probe.c).
"""

import calendar
import datetime
import os
import subprocess
import sys
import zoneinfo

DAY = 86400
EPOCH = datetime.date(1970, 1, 1).toordinal()
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


# --- The frame


class Skip(Exception):
    pass


tests = []


def test(name):
    def add(function):
        tests.append((name, function))
        return function

    return add


def run():
    print(f"1..{len(tests)}", flush=True)
    failed = False
    for number, (name, function) in enumerate(tests, 1):
        try:
            function()
            print(f"ok {number} - {name}", flush=True)
        except Skip as why:
            print(f"ok {number} - {name} # SKIP {why}", flush=True)
        except Exception as error:  # the harness wants to know which test it was
            failed = True
            print(f"not ok {number} - {name}", flush=True)
            for line in f"{type(error).__name__}: {error}".splitlines():
                print(f"# {line}", flush=True)
    sys.exit(failed)


class Probe:
    """The C code, behind a pipe."""

    def __init__(self, directory=None):
        command = [os.environ["PROBE"]] + ([directory] if directory else [])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, command, cron="", zone="", gap="", repeat="", exceptions=(), name="name", numbers=()):
        fields = [command, cron, zone, gap, repeat, ",".join(exceptions), name] + [str(n) for n in numbers]
        self.process.stdin.write("\t".join(fields) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the probe has ended after {fields}")
        return answer.rstrip("\n")

    def list(self, rule, begin, end):
        """The occurrences, begin < t <= end, as (instant, mark)."""
        answer = self.ask("list", numbers=(begin, end), **rule)
        if answer.startswith("error"):
            raise ValueError(answer)
        return [(int(word.split(":")[0]), word.split(":")[2]) for word in answer.split()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


# --- Expressions


class Field:
    def __init__(self, text, low, high, names=(), first=0):
        self.text = text
        self.values = set()
        self.special = []
        for item in text.lstrip("+").split(","):
            item = item.upper()
            body, _, step = item.partition("/")
            if body in ("*", "?"):
                begin, end = low, high
            elif body.startswith("L") or body.endswith(("W", "L")) or "#" in body:
                self.special.append(body)
                continue
            else:
                begin, _, end = body.partition("-")
                begin = self.number(begin, names, first)
                end = self.number(end, names, first) if end else high if step else begin
                if end < begin and end == 0:
                    end = 7
            self.values.update(range(begin, end + 1, int(step or 1)))

    @staticmethod
    def number(text, names, first):
        return names.index(text) + first if text in names else int(text)


class Expression:
    def __init__(self, text):
        parts = text.split()
        if len(parts) == 5:
            parts.insert(0, "0")
        if len(parts) == 6:
            parts.append("*")
        self.seconds = Field(parts[0], 0, 59).values
        self.minutes = Field(parts[1], 0, 59).values
        self.hours = Field(parts[2], 0, 23).values
        self.days = Field(parts[3], 1, 31)
        self.months = Field(parts[4], 1, 12, MONTHS, 1).values
        self.weekdays = Field(parts[5], 0, 6, WEEKDAYS, 0)
        self.years = None if parts[6] == "*" else Field(parts[6], 1970, 2199).values
        self.fixed = not any(c in part for part in parts[:3] for c in "*-/")
        restricted = [not parts[i].startswith(("*", "?")) for i in (3, 5)]
        self.either = all(restricted) and not parts[5].startswith("+")

    def day_of_month(self, date):
        length = calendar.monthrange(date.year, date.month)[1]
        if date.day in self.days.values:
            return True
        for special in self.days.special:
            if special == "LW":
                wanted = max(d for d in range(1, length + 1) if date.replace(day=d).isoweekday() <= 5)
            elif special.endswith("W"):
                target = int(special[:-1])
                if target > length:
                    continue
                working = [d for d in range(1, length + 1) if date.replace(day=d).isoweekday() <= 5]
                wanted = min(working, key=lambda d: abs(d - target))
            else:
                wanted = length - int(special[2:] or 0)
            if date.day == wanted:
                return True
        return False

    def day_of_week(self, date):
        weekday = date.isoweekday() % 7
        if weekday in {value % 7 for value in self.weekdays.values}:
            return True
        for special in self.weekdays.special:
            name, _, nth = special.partition("#")
            if not nth:
                name = name[:-1]
            if Field.number(name, WEEKDAYS, 0) % 7 != weekday:
                continue
            if nth and (date.day - 1) // 7 + 1 == int(nth):
                return True
            if not nth and (date + datetime.timedelta(days=7)).month != date.month:
                return True
        return False

    def matches(self, date):
        if date.month not in self.months or (self.years is not None and date.year not in self.years):
            return False
        if self.either:
            return self.day_of_month(date) or self.day_of_week(date)
        return self.day_of_month(date) and self.day_of_week(date)

    def times(self, begin, end, exceptions=()):
        """Every local time that matches, begin <= L < end, in seconds as if the clock had never changed."""
        for day in range(begin // DAY, end // DAY + 1):
            date = datetime.date.fromordinal(EPOCH + day)
            if date.isoformat() in exceptions or not self.matches(date):
                continue
            for hour in range(24):
                if hour not in self.hours:
                    continue
                for minute in range(60):
                    if minute not in self.minutes:
                        continue
                    for second in range(60):
                        local = day * DAY + hour * 3600 + minute * 60 + second
                        if second in self.seconds and begin <= local < end:
                            if not exceptions or text_of(local) not in exceptions:
                                yield local


def text_of(local):
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=local)
    return moment.strftime("%Y-%m-%dT%H:%M") if moment.second == 0 else moment.isoformat()


# --- Zones


def offset(zone, instant):
    return int(datetime.datetime.fromtimestamp(instant, zone).utcoffset().total_seconds())


def changes(zone, begin, end, step=DAY):
    """The instants at which the zone's offset changes, to the second."""
    found = []
    before = offset(zone, begin)
    for at in range(begin + step, end + step, step):
        after = offset(zone, at)
        if after != before:
            low, high = at - step, at
            while high - low > 1:
                middle = (low + high) // 2
                if offset(zone, middle) == before:
                    low = middle
                else:
                    high = middle
            found.append(high)
        before = after
    return found


def first_after_gap(zone, local):
    """The first instant at which the clock shows a time after `local`."""
    at = local - 27 * 3600
    while at + offset(zone, at) <= local:
        at += 900
    at -= 900
    while at + offset(zone, at) <= local:
        at += 1
    return at


def occurrences(rule, begin, end):
    """What Probe.list() should return."""
    zone = zoneinfo.ZoneInfo(rule.get("zone") or "UTC")
    expression = Expression(rule["cron"])
    margin = 27 * 3600
    offsets = sorted({offset(zone, at) for at in range(begin - 2 * margin, end + 2 * margin, 900)})
    found = {}
    for local in expression.times(begin - margin, end + margin, rule.get("exceptions", ())):
        instants = sorted(local - o for o in offsets if offset(zone, local - o) == o)
        mark = "repeat" if len(instants) > 1 else "-"
        if expression.fixed and not instants and rule.get("gap") != "skip":
            found.setdefault(first_after_gap(zone, local), "gap")
        elif expression.fixed and instants and rule.get("repeat") != "both":
            found[instants[0]] = mark
        else:
            found.update((at, mark) for at in instants)
    return sorted((at, mark) for at, mark in found.items() if begin < at <= end)


# --- Random expressions


def random_list(rng, low, high, most=3):
    return ",".join(str(rng.randint(low, high)) for _ in range(rng.randint(1, most)))


def random_range(rng, low, high):
    begin = rng.randint(low, high)
    end = rng.randint(begin, high)
    return f"{begin}-{end}" + rng.choice(["", "", f"/{rng.randint(1, high)}"])


def random_time_field(rng, high, fixed):
    if fixed:
        return random_list(rng, 0, high)
    kind = rng.randrange(4)
    if kind == 0:
        return "*" if high == 23 else f"*/{rng.randint(2, high)}"
    if kind == 1:
        return random_range(rng, 0, high)
    if kind == 2:
        return f"{rng.randint(0, high)}/{rng.randint(2, high)}"
    return random_list(rng, 0, high)


def random_day(rng):
    choices = ["*", "*", "*", "?", f"*/{rng.randint(2, 10)}", random_list(rng, 1, 31), random_range(rng, 1, 31)]
    choices += ["L", f"L-{rng.randint(1, 9)}", "LW", f"{rng.randint(1, 28)}W", f"{rng.randint(1, 28)}W,L,3-5"]
    return rng.choice(choices)


def random_weekday(rng):
    name = rng.choice(WEEKDAYS)
    choices = ["*", "*", "*", "?", "*/2", "MON-FRI", "FRI-SUN", "0", "7", "5-7", random_list(rng, 0, 7)]
    choices += [name.lower(), f"{name}L", f"{name}#{rng.randint(1, 5)}", f"{name}#{rng.randint(1, 5)},{rng.randint(0, 7)}L"]
    return rng.choice(["", "", "", "+"]) + rng.choice(choices)


def random_expression(rng, dense_days=True, near=None):
    """Fixed times of day are within two hours of the hour `near`, half of the time."""
    fixed = rng.random() < 0.6
    parts = [random_time_field(rng, 59, fixed), random_time_field(rng, 23, fixed)]
    if fixed and near is not None and rng.random() < 0.5:
        parts[1] = ",".join(str((near + rng.randint(-2, 2)) % 24) for _ in range(rng.randint(1, 4)))
    if not fixed and not any(c in part for part in parts for c in "*-/"):
        parts[1] = "*"
    if dense_days and rng.random() < 0.7:
        parts += ["*", "*", "*"]
    else:
        parts += [random_day(rng), rng.choice(["*", "*", "*", "JAN-JUN", "7-12", "*/2", random_list(rng, 1, 12)]), random_weekday(rng)]
    if rng.random() < 0.3:
        parts.insert(0, rng.choice([random_list(rng, 0, 59), "0", "30", "*/20" if not fixed else "15"]))
        if rng.random() < 0.2:
            parts.append(rng.choice(["*", "1970-2100", "*/2", "2000-2199"]))
    return " ".join(parts)


def random_rule(rng, zone, dense_days=True, near=None):
    return {
        "cron": random_expression(rng, dense_days, near),
        "zone": zone,
        "gap": rng.choice(["", "after", "skip"]),
        "repeat": rng.choice(["", "first", "both"]),
    }
