# SPDX-License-Identifier: MIT
"""For the end-to-end tests of `foliot serve`: the built command as a process of its own, real HTTP, real receivers.

A test is a function; what it finds wrong is an exception, and run() tells it as TAP:

    @test("a timer that is new is answered 201")
    def _():
        with Server() as server:
            expect(server.put("/v1/timers/a/b", {"after": "1h"}).status, 201)

    run()

From Meson come FOLIOT, the path of the command, and SOURCE, the root of the source tree. Nothing here looks at how long
something takes: await_() waits for what must come, until a limit that only a server that hangs reaches.
"""

import base64
import concurrent.futures
import contextlib
import ctypes
import glob
import http.client
import http.server
import itertools
import json
import os
import pwd
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse

FOLIOT = os.environ["FOLIOT"]
SOURCE = os.environ["SOURCE"]
PATIENCE = 120  # seconds until something counts as hung

# Whoever started us may ignore signals (nohup does), and what we start would, too.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

libc = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1

# --- Tests ------------------------------------------------------------------------------------------------------------

tests = []
cleanups = contextlib.ExitStack()  # at the end of the program


class Skip(Exception):
    """Why a test cannot be run here."""


def test(name):
    def add(function):
        tests.append((name, function))
        return function

    return add


def comment(text):
    for line in str(text).splitlines():
        print("#", line)


def run():
    """Runs the tests, those whose names contain one of the arguments if there are any, and ends the program."""
    chosen = [entry for entry in tests if not sys.argv[1:] or any(word in entry[0] for word in sys.argv[1:])]
    failures = 0
    print(f"1..{len(chosen)}", flush=True)
    for number, (name, function) in enumerate(chosen, 1):
        try:
            function()
            print(f"ok {number} - {name}", flush=True)
        except Skip as reason:
            print(f"ok {number} - {name} # SKIP {reason}", flush=True)
        except Exception:  # whatever it is, the other tests are still to be run
            failures += 1
            print(f"not ok {number} - {name}")
            comment(traceback.format_exc())
            sys.stdout.flush()
    try:
        cleanups.close()
    except Exception:
        failures += 1
        comment(traceback.format_exc())
    sys.stdout.flush()
    os._exit(failures > 0)  # threads of receivers that hang on purpose are not waited for


def expect(found, wanted, about=""):
    if found != wanted:
        raise AssertionError(f"{about or 'found'}: {found!r}, wanted {wanted!r}")


def check(condition, about):
    if not condition:
        raise AssertionError(about)


def await_(condition, about, seconds=PATIENCE):
    """Waits until condition() is true, and returns what it returned."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain: {about}")
        time.sleep(0.005)


def need_program(name):
    if not shutil.which(name):
        raise Skip(f"{name} is not installed")
    return name


def folder():
    """A new folder that is gone at the end."""
    path = tempfile.mkdtemp(prefix="foliot-e2e-")
    cleanups.callback(shutil.rmtree, path, ignore_errors=True)
    return path


# --- Times ------------------------------------------------------------------------------------------------------------


def now_ms():
    return time.time_ns() // 1_000_000


def rfc3339(ms):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03}Z"


def microseconds(text):
    """A time as the server writes it, since 1970."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{3,6}))?Z", text)
    check(found, f"{text!r} is a time")
    seconds = int(time.mktime(time.strptime(found[1], "%Y-%m-%dT%H:%M:%S"))) - time.timezone
    return seconds * 1_000_000 + int((found[2] or "0").ljust(6, "0"))


# --- HTTP -------------------------------------------------------------------------------------------------------------


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def lines(self):
        return [json.loads(line) for line in self.body.splitlines()]

    def __repr__(self):
        return f"{self.status} {self.body[:400]!r}"

    def must(self, status):
        if self.status != status:
            raise AssertionError(f"answered {self!r}, wanted {status}")
        return self.json if self.body else None


def problem(answer, status, kind, field=None):
    """The answer is this problem, in full."""
    found = answer.must(status)
    expect(answer.headers["content-type"], "application/problem+json")
    expect(found["type"], f"urn:foliot:problem:{kind}", found)
    expect(found["status"], status)
    expect(found.get("field"), field, found)
    check(found["title"] and found["detail"], f"{found} says what was wrong")
    check(set(found) <= {"type", "title", "status", "field", "detail"}, f"nothing else is in {found}")
    return found


class Client:
    """One client; each thread has a connection of its own, which is kept."""

    def __init__(self, host, port, context=None, token=None):
        self.host, self.port, self.context, self.token = host, port, context, token
        self.kept = threading.local()

    def connection(self):
        made = getattr(self.kept, "connection", None)
        if made is None:
            if self.context:
                made = http.client.HTTPSConnection(self.host, self.port, timeout=PATIENCE, context=self.context)
            else:
                made = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
            self.kept.connection = made
        return made

    def call(self, method, path, body=None, headers=None):
        """Sends a request; a dict or a list goes as JSON. One that was cut off is an exception: whoever asked cannot know."""
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        if isinstance(body, str):
            body = body.encode()
        if self.token:
            headers.setdefault("Authorization", "Bearer " + self.token)
        connection = self.connection()
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        except Exception:
            connection.close()
            self.kept.connection = None
            raise

    def get(self, path, **headers):
        return self.call("GET", path, None, headers)

    def put(self, path, body, headers=None):
        return self.call("PUT", path, body, headers)

    def post(self, path, body=None, headers=None):
        return self.call("POST", path, body, headers)

    def patch(self, path, body):
        return self.call("PATCH", path, body)

    def delete(self, path):
        return self.call("DELETE", path)

    def batch(self, lines):
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        answer = self.post("/v1/batch", text)
        expect(answer.status, 200)
        return answer.lines

    def lease(self, namespace, **options):
        return self.post(f"/v1/lease/{quote(namespace)}", options).must(200)["timers"]

    def ack(self, *acks):
        return self.post("/v1/ack", {"acks": [{"lease": lease, **how} for lease, how in acks]}).must(200)

    def timers(self, namespace, **query):
        return self.all_pages(f"/v1/timers/{quote(namespace)}", "timers", query)

    def namespaces(self, **query):
        return self.all_pages("/v1/namespaces", "namespaces", query)

    def all_pages(self, path, member, query):
        found, pages = [], 0
        while True:
            page = self.get(f"{path}?{urllib.parse.urlencode(query)}").must(200)
            found += page[member]
            pages += 1
            if "cursor" not in page:
                return found
            check(pages < 100_000, "the list ends")
            query["cursor"] = page["cursor"]

    def advance(self, by):
        return self.post("/v1/clock", {"advance": by}).must(200)

    def metric(self, name):
        """The sum over all labels."""
        text = self.get("/metrics").body.decode()
        found = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.M)
        check(found, f"there is a metric {name}")
        return sum(float(value) for value in found)


def quote(text):
    return urllib.parse.quote(text, safe="")


def put_at_once(path, *settings):
    """Sends several settings at the same time, each to its server."""
    with concurrent.futures.ThreadPoolExecutor(len(settings)) as pool:
        gate = threading.Barrier(len(settings))

        def put(where, given):
            where.get("/healthz")  # connects first
            gate.wait()
            return where.put(path, given)

        for answer in pool.map(lambda pair: put(*pair), settings):
            answer.must(200)


def race_settings(servers, rounds, prefix):
    """Of two changes at the same time, one comes after the other: whichever does, the secrets are those that were set."""
    secret = "whsec_" + base64.b64encode(b"s" * 32).decode()
    for n in range(rounds):
        path = f"/v1/namespaces/{prefix}{n}"
        for secrets in ([secret], []):
            put_at_once(path, (servers[0], {"secrets": secrets}), (servers[-1], {"max_rate": 1 + n}))
            for one in servers:
                await_(lambda one=one: one.get(path).must(200)["settings"]["secret_count"] == len(secrets),
                       f"{path} has {len(secrets)} secrets: {one.get(path).json}", 10)


# --- The server -------------------------------------------------------------------------------------------------------


def foliot(*arguments, env=None, stdin=None):
    """Runs the command until it ends."""
    return subprocess.run([FOLIOT, *arguments], capture_output=True, text=True, timeout=PATIENCE, stdin=stdin,
                          env={**os.environ, **(env or {})}, check=False)


class Server(Client):
    """A server on a free port. It is told to stop at the end of `with`, and must then end well; without `with`, at the end
    of the program."""

    def __init__(self, *options, store=None, shards=None, private=True, env=None, start=True, token=None, scheme="http"):
        context = None
        if scheme == "https":
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        super().__init__("127.0.0.1", 0, context, token)
        self.store = store or "sqlite:" + os.path.join(folder(), "data")
        self.options = list(options) + (["--allow-private-targets"] if private else [])
        self.options += ["--shards", str(shards)] if shards else []
        self.env = env or {}
        self.process = None
        self.log = []
        if start:
            self.start()

    def start(self, until="listening"):
        self.kept = threading.local()
        self.log = []
        arguments = ["serve", "--listen", f"127.0.0.1:{self.port}", "--store", self.store, "--log-format", "json"]
        self.process = subprocess.Popen([FOLIOT, *arguments, *self.options], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **self.env})
        cleanups.callback(self.end)
        threading.Thread(target=self.read_log, args=(self.process.stderr,), daemon=True).start()
        if until:
            entry = self.await_log(until)
            if "url" in entry:
                self.url = entry["url"]
                self.port = int(self.url.rsplit(":", 1)[1])
        return self

    def read_log(self, pipe):
        for line in pipe:
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.log.append({"msg": line.rstrip("\n"), "plain": True})

    def logged(self, text):
        return next((entry for entry in list(self.log) if text in json.dumps(entry)), None)

    def await_log(self, text):
        def look():
            entry = self.logged(text)
            if not entry and self.process.poll() is not None:
                time.sleep(0.1)  # for the last lines
                entry = self.logged(text)
                check(entry, f"the server has ended ({self.process.returncode}) without '{text}': {self.log[-20:]}")
            return entry

        return await_(look, f"'{text}' in the log; there is {self.log[-5:]}")

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """As if the power were cut for it."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Asks it to stop, and expects that it does so without complaints."""
        self.signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE)
        if status != 0:
            time.sleep(0.2)
            told = "\n".join(str(entry["msg"] if "plain" in entry else entry) for entry in self.log[-60:])
            raise AssertionError(f"the server ended with {status}:\n{told}")

    def restart(self):
        self.stop()
        self.start()

    def end(self):
        if self.process and self.process.poll() is None:
            self.stop()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind and self.process.poll() is None:
            self.kill()
        self.end()

    def socket(self):
        made = socket.create_connection((self.host, self.port), timeout=PATIENCE)
        return self.context.wrap_socket(made, server_hostname=self.host) if self.context else made


# --- Receivers --------------------------------------------------------------------------------------------------------


class Call:
    """What has come to a receiver."""

    def __init__(self, method, path, headers, body):
        self.at_us = time.time_ns() // 1000
        self.method, self.path, self.headers, self.body = method, path, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.method} {self.path} {self.body!r}"


class Receiver:
    """A web server on a free port. `answer(call)` says what is answered: a status, or (status, headers, body), or None to
    close the connection without an answer. It may wait as long as it likes: each call has a thread."""

    def __init__(self, answer=lambda call: 200):
        self.calls = []
        self.lock = threading.Lock()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                call = Call(self.command, self.path, self.headers, body)
                with receiver.lock:
                    receiver.calls.append(call)
                answered = answer(call)
                if answered is None:
                    self.close_connection = True
                    return
                status, headers, text = answered if isinstance(answered, tuple) else (answered, {}, b"")
                text = text.encode() if isinstance(text, str) else text
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_GET = do_PUT = handle_any

            def log_message(self, *arguments):
                pass

        class Web(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512

            def handle_error(self, request, address):
                pass  # the server was killed, or has given up

        self.web = Web(("127.0.0.1", 0), Handler)
        self.port = self.web.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.web.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def await_calls(self, count):
        return await_(lambda: len(self.calls) >= count and list(self.calls), f"{count} calls; there are {len(self.calls)}")

    def bodies(self):
        return [call.json for call in list(self.calls)]


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


def as_postgres():
    """PostgreSQL refuses to be run by root."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise Skip("PostgreSQL cannot be run as root, and there is no other user")


class Postgres:
    """A PostgreSQL server for one test program. It listens in a folder only, and goes with it. `settings` are its own."""

    def __init__(self, **settings):
        self.settings = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        places = ["/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin", "/usr/local/bin", "/usr/bin"]
        found = [path for place in places for path in sorted(glob.glob(place + "/initdb"), reverse=True)]
        if not found:
            raise Skip("PostgreSQL is not installed")
        self.programs = os.path.dirname(found[0])
        self.user = as_postgres()
        self.folder = folder()
        if self.user:
            os.chown(self.folder, self.user["user"], self.user["group"])
        self.data = os.path.join(self.folder, "data")
        self.run("initdb", "-D", self.data, "-U", "foliot", "-A", "trust", "-N", "-E", "UTF8", "--no-locale")
        self.start()
        cleanups.callback(self.stop)
        self.numbers = itertools.count(1)

    def start(self):
        # It finds its siblings by the path it was called by, and goes when we go, even if we are killed.
        self.process = subprocess.Popen(
            [self.programs + "/postgres", "-D", self.data, "-k", self.folder, "-h", "", "-c", "fsync=off",
             "-c", "shared_buffers=64MB", *self.settings], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=die_with_parent, **self.user)
        await_(lambda: self.run("pg_isready", "-h", self.folder, "-U", "foliot", check=False) == 0, "PostgreSQL")

    def restart(self):
        self.stop()
        self.start()

    def sql(self, command):
        self.run("psql", "-q", "-h", self.folder, "-U", "foliot", "-d", "postgres", "-c", command)

    def run(self, program, *arguments, check=True):
        done = subprocess.run([f"{self.programs}/{program}", *arguments], cwd=self.folder, capture_output=True, text=True,
                              check=False, **self.user)
        if check and done.returncode != 0:
            raise AssertionError(f"{program}: {done.stdout}{done.stderr}")
        return done.returncode

    def url(self):
        """A store in a schema of its own."""
        schema = f"e2e{next(self.numbers)}"
        self.sql(f"CREATE SCHEMA {schema}")
        return f"postgres://foliot@/postgres?host={self.folder}&options=-csearch_path%3D{schema}"

    def stop(self):
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()


def die_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


# --- npm --------------------------------------------------------------------------------------------------------------


def npm(package):
    """A folder in which `package` (NAME@VERSION) is installed for the tests; it is kept in the build folder."""
    need_program("node")
    need_program("npm")
    kept = os.path.join(os.environ.get("BUILD") or folder(), "npm", package.replace("/", "-"))
    if not os.path.exists(os.path.join(kept, "complete")):
        os.makedirs(kept, exist_ok=True)
        done = subprocess.run(["npm", "install", "--loglevel=error", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1",
                               "--prefix", kept, package], capture_output=True, text=True, check=False,
                              timeout=PATIENCE, cwd=kept)
        if done.returncode != 0:
            said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()] or ["it does not say why"]
            raise Skip(f"npm cannot install {package}: {said[0][:200]}")
        open(os.path.join(kept, "complete"), "w", encoding="utf-8").close()
    return kept
