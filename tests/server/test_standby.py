#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A second server on one store: it waits, can be stopped, and takes over when the first is gone (docs/operation.md)."""

import functools
import signal
import socket

from e2e import PATIENCE, Postgres, Server, await_, expect, run, test


@functools.cache
def store():
    return Postgres().url()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as made:
        return made.getsockname()[1]


def waiting_server():
    """The second: it answers, but not that it is ready."""
    server = Server("--lease", "1s", store=store(), start=False)
    server.port = free_port()
    server.start(until="another server holds")
    expect(server.get("/readyz").must(503)["status"], "loading")
    return server


@test("a server that waits for another can be stopped")
def _():
    with Server("--lease", "1s", store=store()):
        waiting = waiting_server()
        waiting.signal(signal.SIGTERM)
        expect(waiting.process.wait(PATIENCE), -signal.SIGTERM)


@test("a server that waits for another takes over when that is killed")
def _():
    first = Server("--lease", "1s", store=store())
    first.put("/v1/timers/kept/one", {"after": "1h"}).must(201)
    with waiting_server() as second:
        first.kill()
        await_(lambda: second.get("/readyz").status == 200, "the second server takes over")
        expect(second.get("/v1/timers/kept/one").status, 200)


@test("a server that waits for another takes over when that is stopped")
def _():
    first = Server("--lease", "1s", store=store())
    with waiting_server() as second:
        first.stop()
        await_(lambda: second.get("/readyz").status == 200, "the second server takes over")


run()
