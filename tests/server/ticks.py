# SPDX-License-Identifier: MIT
"""A ledger of schedules, pauses and history, kept outside of servers that are killed: see ledger.py.

At the end it must be true that

  - each occurrence of a schedule created one timer at most: its webhooks have one `webhook-id`;
  - each occurrence came, in the right number, and `made` counts them; a schedule with a `count` ended with it;
  - none came before its nominal time;
  - what was created in a namespace after its pause was acknowledged was not called before a resume was asked for, and was called
    afterwards; the pause was there after each kill;
  - the history has a row for each attempt that was answered, but for those answered shortly before a blow, and of no other attempt.
"""

import threading
import time

from e2e import Receiver, await_, check, comment, expect
from ledger import RECORD_US, SLACK_US, now_us, parse_us

EVERY_US = 250_000
NAMESPACE, HELD = "ticks", "held"


class Ticks:
    """`ask(method, path, body)` gives an answer, or None if nobody knows what came of it."""

    def __init__(self, ask, luck):
        self.ask, self.luck = ask, luck
        self.lock = threading.Lock()
        self.calls = []  # when, headers, payload, when it was answered
        self.receiver = Receiver(self.deliver)
        self.held, self.early, self.next_held = {}, [], 0  # number: a resume has been asked for since
        self.paused = False  # acknowledged, and no resume has been asked for
        self.counted = 10

    # --- What comes

    def deliver(self, call):
        came_us = now_us()
        with self.lock:
            if "n" in call.json and self.held.get(call.json["n"]) is False:
                self.early.append(call.json["n"])
        status = 503 if self.luck.random() < 0.1 else 200
        with self.lock:
            self.calls.append((came_us, dict(call.headers.items()), call.json, now_us(), status))
        return status

    def occurrences(self, name):
        """Nominal time: the IDs with which it came."""
        found = {}
        for came_us, headers, _, _, _ in list(self.calls):
            headers = {key.lower(): value for key, value in headers.items()}
            if headers.get("foliot-schedule") != name:
                continue
            at_us = parse_us(headers["foliot-occurrence"])
            check(came_us >= at_us, f"{name} came at {came_us}, before {at_us}")
            found.setdefault(at_us, set()).add(headers["webhook-id"])
        return found

    # --- What is done

    def must(self, *request):
        """Repeats it until it is acknowledged."""
        def once():
            answer = self.ask(*request)
            return answer if answer is not None and answer.status in (200, 201) else None

        return await_(once, f"{request} is acknowledged")

    def put(self, name, **fields):
        self.must("PUT", f"/v1/schedules/{NAMESPACE}/{name}",
                  {"every": f"{EVERY_US // 1000}ms", "missed": "all", "target": self.receiver.url, "payload": {"s": name},
                   "retry": {"initial": "100ms", "multiplier": 1, "max_attempts": 0}, **fields})

    def begin(self):
        self.must("PUT", f"/v1/namespaces/{NAMESPACE}", {"history": {"only": "all", "keep": "1d"}})
        self.put("plain")
        self.put("stops")
        self.put("counted", count=self.counted)

    def pause(self):
        self.must("POST", f"/v1/namespaces/{HELD}/pause", {"reason": "the test"})
        self.must("PATCH", f"/v1/schedules/{NAMESPACE}/stops", {"paused": True})
        self.paused = True

    def hold(self):
        """Creates some timers that must not be called before the resume."""
        check(self.paused, "it is paused")
        for _ in range(5):
            number, self.next_held = self.next_held, self.next_held + 1
            with self.lock:
                self.held[number] = False
            self.must("PUT", f"/v1/timers/{HELD}/h{number}", {"after": "1ms", "target": self.receiver.url, "payload": {"n": number}})

    def is_held(self):
        shown = self.must("GET", f"/v1/namespaces/{HELD}", None).json
        expect(shown["paused"]["reason"], "the test")
        check(self.must("GET", f"/v1/schedules/{NAMESPACE}/stops", None).json["paused"], "the schedule is paused")

    def resume(self):
        self.paused = False
        with self.lock:
            self.held = dict.fromkeys(self.held, True)
        self.must("POST", f"/v1/namespaces/{HELD}/resume", {})
        self.must("PATCH", f"/v1/schedules/{NAMESPACE}/stops", {"paused": False})

    # --- The end

    def end(self):
        if self.paused:
            self.resume()
        for name in ("plain", "stops"):
            self.must("PATCH", f"/v1/schedules/{NAMESPACE}/{name}", {"end": (now_us() + 1_000_000) // 1000})
        for name in ("plain", "stops", "counted"):
            await_(lambda name=name: self.is_over(name), f"{name} is over")
        await_(lambda: self.must("GET", f"/v1/namespaces/{NAMESPACE}", None).json["pending"] == 0, "all are settled")
        if self.held:
            await_(lambda: self.must("GET", f"/v1/namespaces/{HELD}", None).json["pending"] == 0, "all that was held has come")

    def is_over(self, name):
        shown = self.must("GET", f"/v1/schedules/{NAMESPACE}/{name}", None).json
        return shown["next"] is None and len(self.occurrences(name)) >= shown["made"] and shown

    def check_occurrences(self):
        for name in ("plain", "stops", "counted"):
            found, shown = self.occurrences(name), self.is_over(name)
            first_us = min(found)
            expect([at_us for at_us, ids in found.items() if len(ids) > 1], [], f"{name} has occurrences with several timers")
            expect(sorted(found), list(range(first_us, max(found) + 1, EVERY_US)), f"of {name}, none is missing")
            expect(shown["made"], len(found), f"{name} counts")
            check(first_us - parse_us(shown["created"]) <= EVERY_US + 1000, f"the first of {name} is there")
        expect(len(self.occurrences("counted")), self.counted)

    def check_pauses(self):
        expect(self.early, [])
        came = {call[2]["n"] for call in list(self.calls) if "n" in call[2]}
        expect(sorted(set(self.held) - came), [], "all that was held has come")

    def history(self):
        rows, cursor = [], ""
        while cursor is not None:
            page = self.must("GET", f"/v1/history/{NAMESPACE}?limit=1000" + (f"&cursor={cursor}" if cursor else ""), None).json
            rows += page["history"]
            cursor = page.get("cursor")
        return rows

    def check_history(self, blows):
        """A row has no time of the answer that could be compared: the answer went out shortly after this."""
        time.sleep((RECORD_US + SLACK_US) / 1e6)
        rows = {}
        for row in self.history():
            key = (row["schedule"], parse_us(row["occurrence"]), row["status"])
            rows[key] = rows.get(key, 0) + 1
        calls, sure = {}, {}
        for _, headers, payload, answered_us, status in list(self.calls):
            headers = {key.lower(): value for key, value in headers.items()}
            if "s" not in payload:
                continue
            key = (payload["s"], parse_us(headers["foliot-occurrence"]), status)
            calls[key] = calls.get(key, 0) + 1
            lost = any(answered_us - RECORD_US < blow < answered_us + RECORD_US + SLACK_US for blow in blows)
            sure[key] = sure.get(key, 0) + (not lost)
        expect([key for key, count in rows.items() if key[2] and count > calls.get(key, 0)], [], "no row is of no call")
        expect([key for key, count in sure.items() if count > rows.get(key, 0)], [], "each call has a row")
        comment(f"{sum(calls.values())} calls, {sum(rows.values())} rows of history, {len(self.held)} timers held")
