# SPDX-License-Identifier: MIT
"""For the tests of the `foliot` command: runs it in a pipe or on a terminal, against servers as tests/server/e2e.py starts them.

CLI_STORE says with which store the servers are: memory, sqlite or postgres.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))

import e2e  # noqa: E402  (it is found by the path above)
from e2e import FOLIOT, PATIENCE, check, folder  # noqa: E402

STORE = os.environ.get("CLI_STORE", "memory")
postgres = None


def store_url():
    """A new, empty store."""
    global postgres
    if STORE == "memory":
        return "memory:"
    if STORE == "postgres":
        postgres = postgres or e2e.Postgres()
        return postgres.url()
    return "sqlite:" + os.path.join(folder(), "data")


def serve(*options, **how):
    return e2e.Server(*options, store=how.pop("store", None) or store_url(), **how)


class Ran:
    """What a command has said, and how it has ended."""

    def __init__(self, arguments, status, out, err):
        self.arguments, self.status, self.out, self.err = arguments, status, out, err

    def __repr__(self):
        return f"foliot {' '.join(self.arguments)} = {self.status}\nout: {self.out}\nerr: {self.err}"

    def must(self, status=0, out="", err=None):
        """Has ended like that, and said something that matches; `err` None: and nothing on stderr."""
        check(self.status == status, f"{self!r}\nwanted {status}")
        check(re.search(out, self.out, re.M), f"{self!r}\nwanted {out!r} on stdout")
        check(self.err == "" if err is None else re.search(err, self.err, re.M), f"{self!r}\nwanted {err!r} on stderr")
        return self.out


def environment(url, token=None, **more):
    made = {name: value for name, value in os.environ.items() if not name.startswith("FOLIOT_") and name != "NO_COLOR"}
    made.update({"FOLIOT_URL": url, "LC_ALL": "C.UTF-8", **more})
    if token:
        made["FOLIOT_TOKEN"] = token
    return made


class Command:
    """The command, talking to one server."""

    def __init__(self, url, token=None, **more):
        self.env = environment(url, token, **more)

    def __call__(self, *arguments, stdin=None):
        text = isinstance(stdin, str)
        done = subprocess.run([FOLIOT, *arguments], input=stdin.encode() if text else stdin or b"", capture_output=True,
                              timeout=PATIENCE, env=self.env, check=False)
        return Ran(arguments, done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments):
        """In the background; its lines collect in `lines`."""
        process = subprocess.Popen([FOLIOT, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=self.env)
        process.lines = []

        def read():
            for line in process.stdout:
                process.lines.append(line.rstrip("\n"))

        process.reader = threading.Thread(target=read, daemon=True)
        process.reader.start()
        e2e.cleanups.callback(process.kill)
        return process

    def on_terminal(self, *arguments, columns=120, stdout=None, send=None, control=False, replies=(), **more):
        """On a terminal; what it has written there is `out`. With `stdout`, only the rest of it is on the terminal. With
        `control`, it is the terminal that sends signals. `replies`: (what is seen, what is typed then, or a file to make)."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen([FOLIOT, *arguments], stdin=theirs, stdout=stdout or theirs, stderr=theirs,
                                   env={**self.env, "TERM": "xterm", **more}, start_new_session=True,
                                   preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if control else None)
        os.close(theirs)
        written, replies = b"", list(replies)
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # nobody has it open any more
                break
            if not piece:
                break
            written += piece
            if send and send[0] in written:
                process.send_signal(send[1])
                send = None
            if replies and replies[0][0] in written:
                _, reply = replies.pop(0)
                if isinstance(reply, bytes):
                    os.write(ours, reply)
                else:
                    open(reply, "w", encoding="ascii").close()
        os.close(ours)
        return Ran(arguments, process.wait(PATIENCE), written.decode().replace("\r\n", "\n"), "")


def columns_of(table):
    """The rows of a table, cut where its heads begin; each cell must begin there."""
    lines = table.splitlines()
    starts = [found.start() for found in re.finditer(r"\S+", lines[0])]
    rows = []
    for line in lines:
        for start in starts[1:]:
            check(line[start - 1] == " " and line[start] != " ", f"a cell begins at {start} of {line!r}")
        rows.append([line[begin:end].strip() for begin, end in zip(starts, starts[1:] + [None])])
    return rows
