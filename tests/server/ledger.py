# SPDX-License-Identifier: MIT
"""A ledger of what clients were told and what came, kept outside of servers that are killed; and clients that fill it.

Clients create, move and cancel timers, lease them and acknowledge, and a receiver takes attempts. At the end it must be
true of every timer that

  - it has fired, if its creation was acknowledged and no cancel could have reached it;
  - it never fired before the due time that it had, by the clock of this machine;
  - it did not fire after a cancel was acknowledged, nor with an old due time after a move was;
  - it did not fire again after it was settled, but for what was settled shortly before a blow: as long as the server was
    told to take for recording that (record-interval), and the slack that a busy machine needs.

A blow is what keeps a server from recording what it knows: that it is killed, or stopped so long that others take over.
FOLIOT_SEED repeats a run's choices, though not its timing.
"""

import json
import os
import random
import threading
import time

from e2e import Receiver, await_, check, comment, expect

RECORD_US, LEASE_US, SLACK_US = 100_000, 1_000_000, 1_500_000
SEED = int(os.environ.get("FOLIOT_SEED", str(random.randrange(1 << 30))))


def now_us():
    return time.time_ns() // 1000


class Timer:
    """What its client knows of it."""

    def __init__(self, number, namespace, due_us):
        self.number, self.namespace = number, namespace
        self.path = None
        self.begun_us = now_us()
        self.dues = {due_us}  # that it may have
        self.created = False  # acknowledged
        self.moved_us = 0  # when the last move was acknowledged,
        self.due_us = due_us  # since when it has this one
        self.cancelled_us = None  # acknowledged
        self.doubtful = False  # a cancel may have reached it


class Firing:
    def __init__(self, due_us):
        self.at_us, self.due_us = now_us(), due_us
        self.settled_us = None
        self.leased_until_us = None  # if it was leased, and is not given back sooner


class Ledger:
    """`pick` gives the server that the next request goes to."""

    def __init__(self, pick):
        self.pick = pick
        self.luck = random.Random(SEED)
        self.timers, self.firings, self.blows = {}, {}, []
        self.lock = threading.Lock()
        self.creating = self.pulling = True
        self.threads = []
        self.failures = []
        self.unknown = []  # acknowledgements that came to nothing: since when leased, until when, how many
        self.receiver = Receiver(self.deliver)

    # --- What comes

    def fired(self, number, due_us):
        firing = Firing(due_us)
        with self.lock:
            self.firings.setdefault(number, []).append(firing)
            return firing, len(self.firings[number])

    def deliver(self, call):
        number = call.json["n"]
        due_us = parse_us(call.headers["foliot-due"])
        firing, times = self.fired(number, due_us)
        if times == 1 and number % 7 == 0:
            return 503
        if times == 1 and number % 11 == 0:
            return None
        if number % 13 == 0:
            time.sleep(0.05)
        firing.settled_us = now_us()
        return 200

    def pull(self):
        while self.pulling:
            asked_us = now_us()
            found = self.ask("POST", "/v1/lease/pull", {"max": 50, "wait": "100ms", "lease": "1s"})
            if not found or found.status != 200:
                time.sleep(0.01)
                continue
            acks = []
            for one in found.json["timers"]:
                number = one["payload"]["n"]
                firing, times = self.fired(number, parse_us(one["due"]))
                if times == 1 and number % 7 == 0:
                    acks.append((one["lease"], {"result": "retry", "after": "50ms"}, None))
                    continue
                firing.leased_until_us = asked_us + LEASE_US
                if times > 1 or number % 11:  # the others are forgotten: their lease runs out
                    acks.append((one["lease"], {"result": "done"}, firing))
            self.acknowledge(acks, asked_us)

    def acknowledge(self, acks, leased_us):
        if not acks:
            return
        body = {"acks": [{"lease": lease, **how} for lease, how, _ in acks]}
        answer = self.ask("POST", "/v1/ack", body)
        if not answer or answer.status != 200:
            return
        unknown = set(answer.json["unknown"])
        check(unknown <= {lease for lease, _, _ in acks}, f"{answer} is about what was said")
        expect(answer.json["settled"] + len(unknown), len(acks))
        if unknown:
            self.unknown.append((leased_us, now_us(), len(unknown)))
        for lease, _, firing in acks:
            if firing and lease not in unknown:
                firing.settled_us = now_us()

    # --- What is done

    def ask(self, *request):
        """None: nobody knows whether it has happened."""
        try:
            answer = self.pick().call(*request)
        except (OSError, ValueError, EOFError, Exception) as problem:  # whatever a connection that is cut looks like
            if isinstance(problem, (ConnectionRefusedError,)):
                time.sleep(0.01)
            return None
        if answer.status == 503 and "outcome-unknown" in answer.body.decode():
            return None
        check(answer.status in (200, 201, 204, 404, 409, 503), f"{request}: {answer}")
        return answer

    def new(self):
        with self.lock:
            number = len(self.timers)
            due_us = (now_us() // 1000 + self.luck.randrange(0, 2500)) * 1000
            timer = Timer(number, "pull" if number % 3 == 0 else "hook", due_us)
            self.timers[number] = timer
        fields = {"due": due_us // 1000, "payload": {"n": number}, "timeout": "5s",
                  "retry": {"max_attempts": 0, "initial": "100ms", "multiplier": 1}}
        if timer.namespace == "hook":
            fields["target"] = self.receiver.url
        return timer, fields

    def put(self):
        timer, fields = self.new()
        timer.path = f"/v1/timers/{timer.namespace}/t{timer.number}"
        answer = self.ask("PUT", timer.path, fields)
        timer.created = answer is not None and answer.status == 201
        return [timer]

    def post(self):
        timer, fields = self.new()
        answer = self.ask("POST", f"/v1/timers/{timer.namespace}", fields)
        timer.created = answer is not None and answer.status == 201
        if timer.created:
            timer.path = f"/v1/timers/{timer.namespace}/{answer.json['id']}"
        return [timer]

    def batch(self):
        made = [self.new() for _ in range(20)]
        lines = [{"op": "create", "namespace": timer.namespace, "name": f"t{timer.number}", **fields}
                 for timer, fields in made]
        answer = self.ask("POST", "/v1/batch", "".join(json.dumps(line) + "\n" for line in lines))
        answers = answer.lines if answer else []
        for n, (timer, _) in enumerate(made):
            timer.path = f"/v1/timers/{timer.namespace}/t{timer.number}"
            timer.created = n < len(answers) and answers[n]["ok"]
        return [timer for timer, _ in made]

    def move(self, timer):
        due_us = (now_us() // 1000 + self.luck.randrange(0, 2500)) * 1000
        timer.dues.add(due_us)
        answer = self.ask("PATCH", timer.path, {"due": due_us // 1000})
        if answer is None:
            timer.moved_us = None  # from now on it may have either
        elif answer.status == 200 and timer.moved_us is not None:
            timer.due_us, timer.moved_us = due_us, now_us()

    def cancel(self, timer):
        answer = self.ask("DELETE", timer.path)
        if answer is None:
            timer.doubtful = True
        elif answer.status == 204:
            timer.cancelled_us = now_us()

    def work(self):
        mine = []
        while self.creating:
            mine += self.luck.choice((self.put, self.put, self.post, self.batch))()
            self.luck.shuffle(mine)
            for _ in range(min(len(mine), 4)):
                timer = mine.pop()
                if not timer.path:
                    continue
                if self.luck.random() < 0.5:
                    self.move(timer)
                    if self.luck.random() < 0.5:
                        mine.append(timer)
                else:
                    self.cancel(timer)
            del mine[200:]
            time.sleep(0.02)

    # --- The run

    def begin(self, function):
        def guarded():
            try:
                function()
            except Exception as failure:  # told at the end
                self.failures.append(failure)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        self.threads.append(thread)

    def must_fire(self):
        return [timer.number for timer in self.timers.values()
                if timer.created and timer.cancelled_us is None and not timer.doubtful]

    def blow(self):
        """Comes now."""
        self.blows.append(now_us())

    def run(self, torment):
        """Works while torment() is under way, and until all is over."""
        for _ in range(3):
            self.begin(self.work)
        for _ in range(2):
            self.begin(self.pull)
        torment()
        time.sleep(0.5)
        self.creating = False
        await_(lambda: all(number in self.firings for number in self.must_fire()), "every timer has fired")
        for namespace in ("hook", "pull"):
            await_(lambda name=namespace: self.pick().timers(name) == [], f"{namespace} is empty")
        self.pulling = False
        for thread in self.threads:
            thread.join()
        expect(self.failures, [])
        for namespace in ("hook", "pull"):
            expect(self.pick().get(f"/v1/dead/{namespace}").must(200)["timers"], [])
        comment(f"{len(self.timers)} timers, {sum(len(one) for one in self.firings.values())} firings, "
                f"{sum(timer.cancelled_us is not None for timer in self.timers.values())} cancelled, "
                f"{sum(bool(timer.moved_us) for timer in self.timers.values())} moved, "
                f"{sum(not timer.created for timer in self.timers.values())} of which nobody knows whether they were made")
        check(len(self.must_fire()) > 20 * len(self.blows), "there was something to see")


def parse_us(text):
    """As e2e.microseconds(), but for many."""
    day, _, clock = text.rstrip("Z").partition("T")
    if day not in parse_us.days:
        parse_us.days[day] = int(time.mktime(time.strptime(day, "%Y-%m-%d"))) - time.timezone
    hours, minutes, seconds = clock.split(":")
    return (parse_us.days[day] + int(hours) * 3600 + int(minutes) * 60) * 1_000_000 + round(float(seconds) * 1_000_000)


parse_us.days = {}


def early(ledger):
    return [(timer.number, firing.due_us - firing.at_us) for timer, firing in firings_of(ledger)
            if firing.at_us < firing.due_us or firing.due_us not in timer.dues]


def late_cancels(ledger):
    return [timer.number for timer, firing in firings_of(ledger)
            if timer.cancelled_us is not None and firing.at_us > timer.cancelled_us]


def late_moves(ledger):
    return [timer.number for timer, firing in firings_of(ledger)
            if timer.moved_us and firing.at_us > timer.moved_us and firing.due_us != timer.due_us]


def firings_of(ledger):
    return [(ledger.timers[number], firing) for number, firings in ledger.firings.items() for firing in firings]


def again(ledger):
    """Timers that fired although they had been settled, and no blow explains it; and how many a blow explains."""
    unexplained, explained = [], 0
    for number, firings in ledger.firings.items():
        for before, after in zip(firings, firings[1:]):
            if before.settled_us is None:
                continue
            if any(before.settled_us - SLACK_US < blow < after.at_us and
                   blow - before.settled_us <= RECORD_US + SLACK_US for blow in ledger.blows):
                explained += 1
            else:
                unexplained.append((number, after.at_us - before.settled_us))
    return unexplained, explained
