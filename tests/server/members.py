# SPDX-License-Identifier: MIT
"""For tests with several servers on one PostgreSQL."""

import collections
import contextlib
import functools
import socket
import threading
import time

from e2e import Postgres, Server, await_

SHARDS = 8


@functools.cache
def postgres():
    return Postgres()


def shard_of(id):
    """The first 16 bits, after two that are none."""
    number = 0
    for digit in id[:4]:
        number = number * 32 + "0123456789abcdefghjkmnpqrstvwxyz".index(digit)
    return number >> 2


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as made:
        return made.getsockname()[1]


class Member(Server):
    """`reached_by` is a Wire under whose port the others find it, if that is not its own; `advertise` is an address that may be
    wrong; `more` is for Server."""

    def __init__(self, store, *options, reached_by=None, advertise=None, shards=SHARDS, until="listening", **more):
        port = free_port()
        self.address = advertise or f"127.0.0.1:{reached_by.port if reached_by else port}"
        if reached_by:
            reached_by.port_to = port
        super().__init__("--advertise", self.address, *options, store=store, shards=shards, start=False, **more)
        self.port = port
        self.start(until)

    def cluster(self):
        return self.get("/v1/cluster").must(200)

    def ready(self):
        return self.get("/readyz").status == 200

    def owned(self):
        """How many shards each server has, as this one sees it."""
        return collections.Counter(shard["owner"] for shard in self.cluster()["shards"])


def settled(members):
    """Whether all see the same, nothing is on its way, and everybody is linked with everybody."""
    views = [member.cluster() for member in members]
    owners = [shard["owner"] for shard in views[0]["shards"]]
    addresses = {member.address for member in members}
    counts = collections.Counter(owners)
    return (all(view["shards"] == views[0]["shards"] for view in views) and set(owners) <= addresses
            and max(counts.values()) - min(counts.get(a, 0) for a in addresses) <= 1
            and all(len(view["servers"]) == len(members) and all(s["linked"] for s in view["servers"]) for view in views)
            and all(member.ready() for member in members))


class Cluster:
    def __init__(self, count, *options, **more):
        self.store = postgres().url()
        self.options, self.more = options, more
        self.members = [Member(self.store, *options, **more) for _ in range(count)]
        self.settle()

    def settle(self):
        await_(lambda: settled(self.members), "the shards are shared out")

    def join(self):
        self.members.append(Member(self.store, *self.options, **self.more))
        return self.members[-1]

    def __enter__(self):
        return self.members

    def __exit__(self, kind, value, trace):
        for member in self.members:
            if member.process.poll() is None:
                member.kill() if kind else member.stop()


class Events:
    """What is told of one namespace, or with an empty query of all namespaces and hosts."""

    def __init__(self, member, query="?namespace=fire"):
        self.socket = member.socket()
        self.socket.sendall(f"GET /v1/events{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.text = b""
        threading.Thread(target=self.read, daemon=True).start()
        await_(lambda: b": listening" in self.text, "listening")
        time.sleep(0.3)  # the other server is told

    def read(self):
        try:
            while piece := self.socket.recv(65536):
                self.text += piece
        except OSError:
            pass

    def count(self, kind):
        return self.text.count(b"event: " + kind.encode() + b"\n")


class Wire:
    """Passes connections on to a port, until it is cut."""

    def __init__(self):
        self.port_to = None
        self.whole = True
        self.sockets = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            came = self.listener.accept()[0]
            if not self.whole:
                self.sockets.append(came)  # and nothing is heard
                continue
            try:
                went = socket.create_connection(("127.0.0.1", self.port_to))
            except OSError:
                came.close()
                continue
            self.sockets += [came, went]
            for one, other in ((came, went), (went, came)):
                threading.Thread(target=self.carry, args=(one, other), daemon=True).start()

    def carry(self, one, other):
        with contextlib.suppress(OSError):
            while piece := one.recv(65536):
                while not self.whole:
                    time.sleep(0.05)
                other.sendall(piece)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
