#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What users run: the programs and libraries as they are installed, in a folder that no linker knows.

By default the build is installed with `meson install --destdir`. With the argument `dev`, a copy of the source tree is built
and installed with `./dev install PREFIX`, as the README says: that takes minutes.

From Meson come BUILD, SOURCE, PREFIX, LIBDIR, CC, and CLOCK, a library to preload that sets the wall clock off.
"""

import collections
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, BUILD = os.environ["SOURCE"], os.environ["BUILD"]
scratch = tempfile.mkdtemp(prefix="foliot-installed-")


def install_build():
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", scratch], check=True, stdout=sys.stderr)
    return scratch + os.environ["PREFIX"], os.environ["LIBDIR"]


def install_with_dev():
    tree = os.path.join(scratch, "tree")
    shutil.copytree(SOURCE, tree, ignore=shutil.ignore_patterns("build*", ".git", "foliot-data"))
    root = os.path.join(scratch, "prefix")
    subprocess.run(["./dev", "install", root], cwd=tree, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    shutil.rmtree(tree)
    return root, "lib"


with_dev = sys.argv[1:2] == ["dev"]
if with_dev:
    del sys.argv[1:2]
try:
    ROOT, LIBDIR = install_with_dev() if with_dev else install_build()
except subprocess.CalledProcessError as failure:
    print(f"1..1\nnot ok 1 - it can be installed\n# {failure}")
    sys.exit(1)
os.environ["FOLIOT"] = os.path.join(ROOT, "bin/foliot")
for name in ("LD_LIBRARY_PATH", "FOLIOT_URL", "FOLIOT_TOKEN"):
    os.environ.pop(name, None)

sys.path.insert(0, os.path.join(SOURCE, "tests/server"))
from e2e import (FOLIOT, PATIENCE, Receiver, Server, Skip, await_, check, cleanups, expect, folder, foliot,  # noqa: E402
                 need_program, run, test)

cleanups.callback(shutil.rmtree, scratch, ignore_errors=True)


def command(server, *arguments, status=0, stdin=""):
    done = subprocess.run([FOLIOT, *arguments], input=stdin, capture_output=True, text=True, timeout=PATIENCE, check=False,
                          env={**os.environ, "FOLIOT_URL": server.url})
    expect(done.returncode, status, f"foliot {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


# --- Programs ---------------------------------------------------------------------------------------------------------


def check_one_copy(program):
    """The program and the libraries that it loads define no name of ours twice."""
    loaded = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    files = [program, *re.findall(r"libfoliot\S* => (\S+)", loaded)]
    listed = subprocess.run(["nm", "--defined-only", *files], capture_output=True, text=True, check=True).stdout
    names = collections.Counter(re.findall(r" [A-Za-z] (fl_\w+)$", listed, re.M))
    expect([name for name, count in names.items() if count > 1], [], f"defined twice in {files}")
    check(names, f"{files} contain the library")


@test("the installed programs start, and need no library of ours")
def _():
    for program in sorted(glob.glob(os.path.join(ROOT, "bin/*"))):
        needed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
        check("libfoliot" not in needed, f"{program} contains what it needs of Foliot: {needed}")
        check("RPATH" not in needed and "RUNPATH" not in needed, f"{program} has no path of the build in it: {needed}")
        check_one_copy(program)
        subprocess.run([program, "--version"], check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)


@test("serve, and the README's first timer, with no option but where to listen")
def _():
    with Server(private=False) as server:
        made = server.put("/v1/timers/demo/tea", {"after": "1s", "target": server.url + "/echo", "payload": "tea is ready"})
        made.must(201)
        server.await_log("tea is ready")


@test("add, get, list, lease, acknowledge, cancel")
def _():
    with Server() as server:
        command(server, "add", "jobs", "one", "--after", "0s", "--payload", "work")
        command(server, "add", "jobs", "two", "--after", "1h")
        check("two" in command(server, "list", "jobs"), "the list has it")
        check("two" in command(server, "get", "jobs", "two"), "get shows it")
        expect(command(server, "lease", "jobs", "--wait", "10s", "--max", "1", "--exec", "cat; echo by $FOLIOT_NAME").strip(),
               '"work"by one')
        await_(lambda: "one" not in command(server, "list", "jobs"), "it is done")
        command(server, "add", "jobs", "three", "--after", "0s")
        leased = server.lease("jobs", wait="10s")
        expect([timer["name"] for timer in leased], ["three"])
        if foliot("help", "ack").returncode == 0:
            command(server, "ack", leased[0]["lease"])
        else:
            server.ack((leased[0]["lease"], {"result": "done"}))
        command(server, "cancel", "jobs", "two")
        await_(lambda: server.timers("jobs") == [], "nothing is left")


@test("a webhook, export, import, doctor, and a store that a killed server left")
def _():
    receiver = Receiver()
    with Server() as server:
        server.put("/v1/timers/a/now", {"after": "0s", "target": receiver.url, "payload": 1}).must(201)
        receiver.await_calls(1)
        command(server, "add", "a", "later", "--after", "1h", "--payload", "kept")
        lines = command(server, "export", "a")
        check("later" in lines, lines)
        server.kill()
        expect(foliot("doctor", server.store).returncode, 0)
        expect(foliot("doctor", scratch + "/nope").returncode, 3)
        server.start()
        await_(lambda: server.get("/readyz").status == 200, "ready again")
        server.get("/v1/timers/a/later").must(200)
        with Server() as other:
            command(other, "import", stdin=lines)
            other.get("/v1/timers/a/later").must(200)


@test("a backup, made while the server runs as the manual says, is a store")
def _():
    need_program("sqlite3")
    with Server(shards=2) as server:
        server.put("/v1/timers/a/b", {"after": "1h", "payload": "saved"}).must(201)
        place = folder()
        text = open(os.path.join(SOURCE, "docs/operation.md"), encoding="utf-8").read()
        block = re.search(r"## Backup.*?```sh\n(.*?)```", text, re.S)[1]
        os.symlink(server.store.removeprefix("sqlite:"), os.path.join(place, "foliot-data"))
        done = subprocess.run(["sh", "-e", "-c", block], cwd=place, capture_output=True, text=True, check=False, timeout=PATIENCE,
                              env={**os.environ, "PATH": os.path.join(ROOT, "bin") + ":" + os.environ["PATH"],
                                   "FOLIOT_URL": server.url})
        expect(done.returncode, 0, done.stdout + done.stderr)
        copies = [name for name in os.listdir(place) if name != "foliot-data"]
        expect(len(copies), 1, "one folder with the copy")
        copy = os.path.join(place, copies[0])
    expect(foliot("doctor", copy).returncode, 0)
    with Server(store="sqlite:" + copy) as server:
        expect(server.get("/v1/timers/a/b").must(200)["payload"], "saved")


@test("foliot js runs a script, as does foliot-js")
def _():
    if not os.path.exists(os.path.join(ROOT, "bin/foliot-js")):
        raise Skip("foliot-js was not built: there is no JavaScriptCore here")
    script = os.path.join(folder(), "a.js")
    with open(script, "w", encoding="utf-8") as file:
        file.write("setTimeout(() => console.log('later'), 10); console.log('now');\n")
    for words in ([FOLIOT, "js", script], [FOLIOT + "-js", script]):
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
        expect((done.returncode, done.stdout), (0, "now\nlater\n"), done.stderr)


# --- Libraries --------------------------------------------------------------------------------------------------------


def build(line, program):
    """Links a program as a line of libfoliot(3) says, and returns its path."""
    place = folder()
    shutil.copy(os.path.join(SOURCE, "examples", program), os.path.join(place, "program.c"))
    os.mkdir(os.path.join(place, "bin"))
    wrapper = os.path.join(place, "bin/pkg-config")
    with open(wrapper, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nPKG_CONFIG_PATH={ROOT}/{LIBDIR}/pkgconfig exec {shutil.which("pkg-config")} '
                   f'--define-variable=prefix={ROOT} "$@"\n')
    os.chmod(wrapper, 0o755)
    done = subprocess.run(["sh", "-e", "-c", line], cwd=place, capture_output=True, text=True, check=False,
                          env={**os.environ, "PATH": os.path.join(place, "bin") + ":" + os.environ["PATH"]})
    expect(done.returncode, 0, f"{line}\n{done.stdout}{done.stderr}")
    return os.path.join(place, "a.out")


@test("programs that link the libraries as the manual says, shared and static, run where the loader does not look")
def _():
    need_program("pkg-config")
    with open(os.path.join(ROOT, "share/man/man3/libfoliot.3"), encoding="utf-8") as page:
        lines = [os.environ["CC"] + line[2:] for line in re.findall(r"^\.Dl (cc program\.c .*)$", page.read(), re.M)]
    expect(len(lines), 4)
    for line, program in zip(lines, ("tea.c", "tea.c", "alarm.c", "alarm.c")):
        static = "-l:libfoliot" in line
        made = build(line if static else f"{line} -Wl,-rpath,{ROOT}/{LIBDIR}", program)
        needed = subprocess.run(["readelf", "-d", made], capture_output=True, text=True, check=True).stdout
        expect("libfoliot" in needed, not static, needed)
        check_one_copy(made)
        subprocess.run([made], cwd=folder(), check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)


# --- A clock that is set while the server is down ---------------------------------------------------------------------


def set_clock(server, seconds):
    server.env = {"LD_PRELOAD": os.environ["CLOCK"], "CLOCK_OFFSET_S": str(seconds)}


def need_preload(server):
    if "AddressSanitizer" in subprocess.run(["nm", FOLIOT], capture_output=True, text=True, check=False).stdout:
        raise Skip("a library cannot be preloaded before AddressSanitizer")
    set_clock(server, 86400)
    server.start()
    date = server.get("/healthz").headers["Date"]
    listed = server.put("/v1/timers/probe/x", {"after": "1h"}).must(201)["due"]
    server.delete("/v1/timers/probe/x")
    server.stop()
    today = subprocess.run(["date", "-u", "+%Y-%m-%d"], capture_output=True, text=True, check=True).stdout.strip()
    if listed.startswith(today):
        raise Skip(f"the preloaded clock has no effect here: {listed}, {date}")


for how in ("stop", "kill"):
    @test(f"the clock is set while the server is down ({how}): forward fires what has become due, back delays nothing")
    def _(how=how):
        receiver = Receiver()
        server = Server(start=False)
        need_preload(server)
        set_clock(server, 0)
        server.start()
        server.put("/v1/timers/clock/soon", {"after": "1h", "target": receiver.url, "payload": "soon"}).must(201)
        server.put("/v1/timers/clock/later", {"after": "3d", "target": receiver.url, "payload": "later"}).must(201)
        getattr(server, how)()
        set_clock(server, 2 * 3600)
        server.start()
        receiver.await_calls(1)
        expect(receiver.bodies(), ["soon"])
        getattr(server, how)()
        set_clock(server, -3600)
        server.start()
        await_(lambda: server.get("/readyz").status == 200, "ready although the clock was set back")
        server.put("/v1/timers/clock/new", {"after": "0s", "target": receiver.url, "payload": "new"}).must(201)
        await_(lambda: "new" in receiver.bodies(), "what is due now fires")
        check("later" not in receiver.bodies(), "what is due in three days does not fire")
        getattr(server, how)()
        set_clock(server, 4 * 86400)
        server.start()
        await_(lambda: "later" in receiver.bodies(), "it fires when its day has come")
        server.stop()


run()
