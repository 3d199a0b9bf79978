#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the command says, and how it ends, when something is wrong; help, the manual page and completion against each other."""

import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import threading

from cli import Command, environment, serve
from e2e import FOLIOT, SOURCE, Skip, check, expect, folder, run, test

# Of each command that talks to the server, one that would work.
TALKING = [
    ["add", "a", "b", "--after", "1h"],
    ["get", "a", "b"],
    ["list", "a"],
    ["update", "a", "b", "--after", "1h"],
    ["cancel", "a", "b"],
    ["cancel", "a", "--all"],
    ["watch"],
    ["lease", "a"],
    ["lease", "a", "--exec", "true", "--forever"],
    ["ack", "lease"],
    ["clock"],
    ["dead", "list", "a"],
    ["dead", "get", "a", "b"],
    ["dead", "redrive", "a", "b"],
    ["dead", "redrive", "a", "--all"],
    ["dead", "delete", "a", "b"],
    ["namespace", "list"],
    ["namespace", "get", "a"],
    ["namespace", "set", "a", "--max-rate", "1"],
    ["history", "a"],
    ["history", "a", "--id", "x", "--erase"],
    ["stats"],
    ["stats", "--watch"],
    ["cluster"],
    ["export"],
    ["import"],
    ["bench"],
]


class Fake:
    """A server that answers /version as it is told, and everything else with one answer."""

    def __init__(self, version, status=200, body=None, kind="application/json"):
        text = json.dumps(body if body is not None else {}).encode()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                self.rfile.read(int(self.headers.get("content-length") or 0))
                asks = self.path == "/version" and version is not None
                content = json.dumps({"version": version, "api": "v1"}).encode() if asks else text
                self.send_response(200 if asks else status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, *arguments):
                pass

        self.web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.web.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.web.server_address[1]}"
        threading.Thread(target=self.web.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


def own_version():
    return Command("http://127.0.0.1:1")("--version").must().split()[1]


def problem(status, detail):
    return {"type": "urn:foliot:problem:x", "title": "x", "status": status, "detail": detail}


# --- Servers ----------------------------------------------------------------------------------------------------------


@test("no server: every command says where it looked and what to do, and ends with 4")
def _():
    foliot = Command("http://127.0.0.1:1/")
    for arguments in TALKING:
        name = " ".join(arguments[:2]) if arguments[0] in ("dead", "namespace") else arguments[0]
        foliot(*arguments).must(4, out=r"\A\Z", err=rf"\Afoliot {name}: cannot reach http://127.0.0.1:1: connection refused; "
                                r"start `foliot serve`, or set FOLIOT_URL or --server\n\Z")
    foliot.on_terminal("list", "a").must(4, out=r"\Afoliot list: cannot reach")
    foliot("version").must(out=r"\Afoliot \S+\nserver does not respond at http://127.0.0.1:1\n\Z")
    Command("http://no-such-host.invalid")("stats").must(4, err=r"cannot reach http://no-such-host\.invalid: could not resolve host")


@test("the default is http://127.0.0.1:7411")
def _():
    env = environment("")
    del env["FOLIOT_URL"]
    done = subprocess.run([FOLIOT, "version"], capture_output=True, text=True, env=env, check=True)
    check(" at http://127.0.0.1:7411\n" in done.stdout, done.stdout)


@test("a token that is missing or unknown, or has no right: 5, and what to do")
def _():
    path = os.path.join(folder(), "foliot.conf")
    with open(path, "w", encoding="ascii") as file:
        for name, rights in (("reader", "read"), ("writer", "read, write")):
            file.write(f"[token {name}]\nsha256 = {hashlib.sha256(name.encode()).hexdigest()}\nnamespaces = a\nrights = {rights}\n")
    with serve("--config", path, token="writer") as server:
        for token in (None, "nonsense"):
            for arguments in TALKING:
                Command(server.url, token)(*arguments, stdin='{"namespace":"a","after":"1h"}\n').must(
                    5, err="; set FOLIOT_TOKEN to a token from the server's configuration$")
        reader, writer = Command(server.url, "reader"), Command(server.url, "writer")
        writer("add", "a", "b", "--after", "1h").must()
        reader("get", "a", "b").must(out="^name +b$")
        reader("add", "a", "c", "--after", "1h").must(5, err="; set FOLIOT_TOKEN to a token with this right$")
        writer("list", "b").must(5, err="; set FOLIOT_TOKEN to a token with this right$")
        writer("namespace", "set", "a", "--max-rate", "1").must(5, err="FOLIOT_TOKEN")
        expect(reader("export").must().count("\n"), 1)
        reader("import", stdin='{"namespace":"a","after":"1h"}\n').must(5, err="FOLIOT_TOKEN")
        writer("import", stdin='{"namespace":"b","after":"1h"}\n').must(1, out="^0 imported, 1 refused", err="record 1: .*no right")
        Command(server.url, "two\nlines")("list", "a").must(2, err="FOLIOT_TOKEN contains control characters")


@test("cluster shows other servers, shards without an owner, and the trouble of a link")
def _():
    def server(address, shards, **more):
        return {"address": address, "version": "1.2.3", "shards": shards, "self": False, "linked": False, **more}

    owners = ["a:1", "b:2", "a:1", "a:1", None, "b:2"]
    view = {"servers": [server("a:1", 3, self=True, linked=True), server("b:2", 2, linked=True),
                        server("c:3", 0, trouble="nobody answers")],
            "shards": [{"shard": i, "owner": owner} for i, owner in enumerate(owners)]}
    said = Command(Fake(own_version(), body=view).url)("cluster").must()
    expect([re.split("  +", line) for line in said.splitlines()[1:]],
           [["a:1", "1.2.3", "3", "0 2-3", "this one"], ["b:2", "1.2.3", "2", "1 5", "linked"],
            ["c:3", "1.2.3", "0", "-", "nobody answers"], ["no owner", "-", "-", "4", "-"]])


@test("a server of another version: a warning, and on with it")
def _():
    fake = Fake("9.9.9", body={"timers": []})
    Command(fake.url)("list", "a").must(0, out=r"\A\Z", err=rf"\Afoliot: warning: the server at {fake.url} has version 9\.9\.9, and "
                                        rf"this command has version {own_version()}; install the same version of both\n\Z")
    Command(fake.url)("version").must(out="^server 9.9.9 at ")
    same = Fake(own_version(), body={"timers": []})
    Command(same.url)("list", "a").must(0, out=r"\A\Z")


@test("something else than a Foliot server: said, whatever it answers")
def _():
    for fake in (Fake(None, 404, "nothing"), Fake(None, 200, "hello"), Fake(None, 200, {"other": 1}), Fake(None, 502, "bad")):
        for arguments in (["list", "a"], ["stats"], ["add", "a", "b", "--after", "1h"]):
            Command(fake.url)(*arguments).must(1, err="check FOLIOT_URL or --server")
    Command(Fake(own_version(), 200, "no object").url)("list", "a").must(1, err="did not answer with a JSON object")
    Command(Fake(own_version(), 200, {}).url)("stats").must(1, err="has no metrics of Foliot")
    Command("ftp://127.0.0.1")("stats").must(2, err="'ftp://127.0.0.1' is not the URL of a server")


@test("exit statuses by what the server answers, with its words")
def _():
    for status, exit_status in ((400, 1), (413, 1), (500, 1), (401, 5), (403, 5), (404, 3), (409, 6), (412, 6), (429, 7), (503, 7), (507, 7)):
        fake = Fake(own_version(), status, problem(status, f"words of {status}"), "application/problem+json")
        for arguments in (["get", "a", "b"], ["add", "a", "b", "--after", "1h"], ["cancel", "a", "b"], ["import"], ["watch"]):
            Command(fake.url)(*arguments, stdin="{}\n").must(exit_status, err=rf"^foliot {arguments[0]}: words of {status}(;|$)")


@test("a server that goes away in the middle: 4")
def _():
    class Cut(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/version":
                self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n{"version":"%s"}' % (
                    14 + len(own_version()), own_version().encode()))
            else:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")

        def log_message(self, *arguments):
            pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cut)
    threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    Command(f"http://127.0.0.1:{web.server_address[1]}")("list", "a").must(
        4, err="the connection to .* failed: .*may or may not have executed")


# --- Arguments --------------------------------------------------------------------------------------------------------


@test("arguments that are wrong: 2, and what would be right, before anything is sent")
def _():
    foliot = Command("http://127.0.0.1:1")
    for arguments, said in (
        (["add"], "NAMESPACE is missing"),
        (["add", "a", "b", "c"], "unexpected argument 'c'"),
        (["add", "a", "b"], "no due time"),
        (["add", "a", "", "--after", "1h"], "NAME must not be empty"),
        (["add", "a", "b", "--after", "soon"], "invalid value 'soon' for --after: expected a duration like"),
        (["add", "a", "b", "--at", "tomorrow"], "invalid value 'tomorrow' for --at: expected a time like"),
        (["add", "a", "--after", "1h", "--only-new"], "--only-new needs a NAME"),
        (["add", "a", "b", "--after"], "--after needs a value: --after DURATION"),
        (["add", "a", "b", "--only-new=yes"], "--only-new takes no value"),
        (["add", "a", "b", "--frob"], "unknown option '--frob'"),
        (["add", "a", "b", "-x"], "unknown option '-x'"),
        (["list", "a", "--limit", "0"], "invalid value '0' for --limit: expected a whole number from 1"),
        (["lease", "a", "--max", "10001"], "invalid value '10001' for --max"),
        (["dead"], "Usage: foliot dead COMMAND"),
        (["dead", "frob"], "unknown command 'frob'; 'foliot help dead' lists"),
        (["completion", "fish"], "expected bash or zsh"),
        (["doctor"], "STORE is missing"),
    ):
        foliot(*arguments).must(2, out=r"\A\Z", err=re.escape(said))


@test("a command that is mistyped: the one that was meant")
def _():
    foliot = Command("http://127.0.0.1:1")
    for typed, meant in (("lsit", "list"), ("cancle", "cancel"), ("ad", "add"), ("watchh", "watch"), ("stat", "stats")):
        foliot(typed).must(2, err=f"unknown command '{typed}'; did you mean 'foliot {meant}'")
    foliot("dead", "redriev").must(2, err="did you mean 'foliot dead redrive'")
    foliot("add", "a", "--aftr=5s").must(2, err="unknown option '--aftr=5s'; did you mean '--after'")
    foliot("lease", "a", "--paralel", "2").must(2, err="did you mean '--parallel'")
    foliot("list", "a", "--sever", "x").must(2, err="did you mean '--server'")
    foliot("--sevrer", "x", "list", "a").must(2, err="^foliot: unknown option '--sevrer'; did you mean '--server'")
    foliot("-v").must(2, err="^foliot: unknown option '-v'; 'foliot help'")
    foliot("--server").must(2, err="^foliot: --server needs a value and a command")
    for typed in ("frobnicate", "x" * 100000, ""):
        check("did you mean" not in foliot(typed).err, typed)


@test("--server says where the server is, before the command or after it; the clock is shown and moved")
def _():
    with serve("--test-clock") as server:
        foliot = Command("http://127.0.0.1:1")
        foliot("--server", server.url, "add", "a", "b", "--after", "1h", "--to", server.url + "/echo").must()
        foliot("list", "a", "--server", server.url).must(out="^[0-9a-z]{26} +b ")
        foliot("--server=" + server.url, "list", "a").must(out="^[0-9a-z]{26} +b ")
        foliot("list", "a", f"--server={server.url}/").must(out="^[0-9a-z]{26} +b ")
        foliot("clock", "--server", server.url).must(out="^test +true$")
        foliot("clock", "--server", server.url, "--advance", "2h").must(out="^fired +1$")
        foliot("clock", "--server", server.url, "--to", "2499-01-01T00:00:00Z", "--json").must(out='"now": *"2499-01-01T00:00:00Z"')
        foliot("clock", "--advance", "1s", "--to", "1").must(2, err="not both")
        foliot("list", "a").must(4, err="cannot reach http://127.0.0.1:1")


@test("on a terminal: an empty list says so, and nothing of a timer is obeyed by the terminal")
def _():
    with serve() as server:
        foliot = Command(server.url)
        foliot.on_terminal("list", "a").must(out=r"\ANo timers\.\n\Z")
        foliot.on_terminal("dead", "list", "a").must(out=r"\ANo dead letters\.\n\Z")
        expect(foliot("list", "a").must(), "")
        evil = "\u202egnp.exe\u2066\u200f\u061c\u2028"
        foliot("add", "a", evil, "--after", "1h", "--payload", json.dumps(evil + "\x9b31m\x7f", ensure_ascii=False)).must()
        for arguments in (["list", "a"], ["get", "a", evil], ["get", "a", evil, "--json"], ["list", "a", "--json"],
                          ["add", "a", evil, "--after", "1h", "--only-new"]):
            out = foliot.on_terminal(*arguments).out
            check("gnp.exe" in out or "--only-new" in arguments, out)
            check(not set(out) & set(evil[:1] + evil[8:] + "\x9b\x7f"), repr(out))
        expect(json.loads(foliot.on_terminal("get", "a", evil, "--json").out)["name"], evil)


@test("those that need the server to be known: 2 as well")
def _():
    with serve() as server:
        foliot = Command(server.url)
        foliot("add", "a", "b", "--after", "1h", "--at", "1").must(2, err="give only one of --after, --at and --local")
        foliot("add", "a", "b", "--after", "1h", "--header", "nonsense").must(2, err="invalid value 'nonsense' for --header")
        foliot("add", "a", "b", "--after", "1h", "--retry", "often").must(2, err="invalid value 'often' for --retry")
        with open("/dev/full", "w", encoding="ascii") as full:
            foliot("add", "a", "b", "--after", "1h").must()
            done = subprocess.run([FOLIOT, "list", "a"], stdout=full, stderr=subprocess.PIPE, text=True, env=foliot.env, check=False)
            check(done.returncode == 1 and "cannot write" in done.stderr, done)


# --- Help, manual, completion -----------------------------------------------------------------------------------------


def help_of(*command):
    return Command("http://127.0.0.1:1")("help", *command).must()


def section(text, head):
    return [line.split()[0] for line in re.search(rf"^{head}:\n((?:  .*\n?)*)", text, re.M)[1].splitlines()]


def all_commands():
    """Each command that takes options, with its options by its help."""
    found = {}
    for name in section(help_of(), "Commands"):
        if name in ("help", "serve", "js"):
            continue
        inner = section(help_of(name), "Commands") if "\nCommands:\n" in help_of(name) else [None]
        for word in inner:
            command = (name, word) if word else (name,)
            found[command] = section(help_of(*command), "Options")
    return found


@test("--help everywhere, the same by 'help'")
def _():
    foliot = Command("http://127.0.0.1:1")
    check(len(all_commands()) > 20, all_commands())
    for command, options in all_commands().items():
        text = help_of(*command)
        expect(foliot(*command, "--help").must(), text)
        check(text.startswith(f"Usage: foliot {' '.join(command)} [OPTION...]"), text)
        check("--help" in options, options)
        check(foliot.on_terminal(*command, "--help").must() == text, "the same on a terminal")


@test("the manual page has every command, option, argument and exit status")
def _():
    with open(os.path.join(SOURCE, "man", "foliot.1"), encoding="utf-8") as file:
        page = file.read()
    for command, options in all_commands().items():
        name = " ".join(command)
        found = re.search(rf"^\.It Cm {name}\b.*\n(?:(?!\.It Cm )(?:.*\n))*", page, re.M)
        check(found, f"there is an entry for {name}")
        missing = [o for o in options if o != "--help" and f"Fl -{o[2:]}" not in found[0]]
        expect(missing, [], f"options of {name} that are not there")
        known = {f"--{option}" for option in re.findall(r"Fl -([a-z][a-z-]*)", found[0])}
        expect(known - set(options), set(), f"options of {name} that are not in the help")
    expect(re.findall(r"^\.It (\d)$", page, re.M), [str(i) for i in range(8)])
    for variable in ("FOLIOT_URL", "FOLIOT_TOKEN", "NO_COLOR", "SSL_CERT_FILE"):
        check(f"Ev {variable}" in page, f"{variable} is there")


@test("the examples of docs/command.md work, from top to bottom")
def _():
    with open(os.path.join(SOURCE, "docs", "command.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```sh\n(.*?)^```$", file.read(), re.M | re.S)
    where = folder()
    server = serve(store="sqlite:" + os.path.join(where, "foliot-data"))
    env = environment(server.url, PATH=os.path.dirname(FOLIOT) + os.pathsep + os.environ["PATH"])
    check(len(blocks) >= 7, "they are found")
    for block in blocks:
        if "doctor" in block:
            server.stop()
        done = subprocess.run(["sh", "-euc", block], cwd=where, env=env, capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"{block}\nended with {done.returncode}: {done.stdout}{done.stderr}")


def completed(*words):
    """What bash would offer for the last word."""
    script = ('eval "$(' + FOLIOT + ' completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _foliot;'
              ' printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", "foliot", *words], capture_output=True, text=True, check=True)
    return done.stdout.split()


@test("bash completes commands, those inside of them, and options")
def _():
    for command, options in all_commands().items():
        check(command[0] in completed(""), f"{command[0]} is offered")
        expect(sorted(completed(*command, "--")), sorted(options))
    expect(completed("dead", "re"), ["redrive"])
    expect(completed("ca"), ["cancel"])
    check("--listen" in completed("serve", "--l"), "those of the server too")


@test("zsh takes its completion")
def _():
    text = Command("http://127.0.0.1:1")("completion", "zsh").must(out=r"\A#compdef foliot")
    for command, options in all_commands().items():
        check(f"'{' '.join(command)}')" in text, f"{command} is there")
        check(all(f"--{option[2:]}[" in text for option in options), options)
    if not shutil.which("zsh"):
        raise Skip("there is no zsh to try it")
    path = os.path.join(folder(), "_foliot")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    done = subprocess.run(["zsh", "-n", path], capture_output=True, text=True, check=False)
    check(done.returncode == 0 and not done.stderr, done.stderr)


run()
