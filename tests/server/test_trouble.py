#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the server logs when PostgreSQL refuses: each cause once, with what to do about it (docs/store-postgres.md)."""

import contextlib
import functools
import os
import re
import shutil
import socket
import subprocess
import time

from e2e import (PATIENCE, Postgres, Receiver, Server, Skip, as_postgres, await_, check, cleanups, expect, folder, foliot, need_program,
                 run, test)
from members import Member, Wire, free_port, settled
from replica import query

END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'foliot shard%'"


@functools.cache
def postgres():
    """With a port, and TLS if there is a program that makes a certificate."""
    port = free_port()
    os.environ["PGPORT"] = str(port)
    made = Postgres(port=port, listen_addresses="127.0.0.1")
    made.port = port
    return made


def schema_of(url):
    return re.search(r"search_path%3D(\w+)", url)[1]


def tcp(url, user, **parameters):
    """The same store, reached at 127.0.0.1."""
    more = "".join(f"&{name}={value}" for name, value in parameters.items())
    return f"postgres://{user}@127.0.0.1:{postgres().port}/postgres?options=-csearch_path%3D{schema_of(url)}{more}"


def role(name, url, password=""):
    postgres().sql(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
    postgres().sql(f"ALTER SCHEMA {schema_of(url)} OWNER TO {name}")


def admit(*lines):
    """Who may connect, and how."""
    with open(os.path.join(postgres().data, "pg_hba.conf"), "w", encoding="utf-8") as file:
        file.write("\n".join(["local all all trust", *lines, ""]))
    postgres().sql("SELECT pg_reload_conf()")


def told(server):
    return [entry for entry in list(server.log) if entry["level"] in ("error", "warning") and "keeps trying" in entry["msg"]]


def live_through(url, harm, heal, advice):
    """`harm` befalls a server that runs. It says so once, with advice, is not ready, and goes on when `heal` was done."""
    with Server("--lease", "1s", store=url, shards=4) as server:
        await_(lambda: server.get("/readyz").status == 200, "ready")
        harm()
        query(postgres(), END)
        server.await_log(advice)
        await_(lambda: server.get("/readyz").status == 503, "not ready")
        time.sleep(2)
        whys = [entry.get("why") for entry in told(server)]
        expect(len(whys), len(set(whys)), f"each is told once: {whys}")
        check(len(whys) < 8, whys)
        heal()
        query(postgres(), END)
        await_(lambda: server.put("/v1/timers/trouble/over", {"after": "1h"}).status in (200, 201), "it heals by itself")
        await_(lambda: server.get("/readyz").status == 200, "ready again")


def refused(url, *words):
    """A server that starts ends with one line that has these words."""
    done = foliot("serve", "--listen", "127.0.0.1:0", "--store", url, "--log-format", "json")
    check(done.returncode != 0, "it does not start")
    lines = [line for line in done.stderr.splitlines() if '"error"' in line]
    expect(len(lines), 1, done.stderr)
    for word in words:
        check(word in lines[0], f"'{word}' in {lines[0]}")


@test("a database that only reads")
def _():
    live_through(postgres().url(),
                 lambda: postgres().sql("ALTER DATABASE postgres SET default_transaction_read_only = on"),
                 lambda: postgres().sql("BEGIN READ WRITE; ALTER DATABASE postgres RESET default_transaction_read_only; COMMIT"),
                 "target_session_attrs=read-write")


@test("missing privileges")
def _():
    url = postgres().url()
    role("worker", url)
    schema, url = schema_of(url), url.replace("foliot@", "worker@")
    live_through(url, lambda: postgres().sql(f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM worker"),
                 lambda: postgres().sql(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO worker"),
                 "needs SELECT, INSERT, UPDATE and DELETE")
    postgres().sql("CREATE SCHEMA other")
    refused(url.replace(schema, "other"), "give the role USAGE on it")


@test("the server is not ready from the first refusal on, however long its claims last")
def _():
    url = postgres().url()
    role("refused", url)
    schema, url = schema_of(url), url.replace("foliot@", "refused@")
    with Server("--lease", "1h", store=url, shards=2) as server:
        await_(lambda: server.get("/readyz").status == 200, "ready")
        postgres().sql(f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM refused")
        check(server.put("/v1/timers/trouble/first", {"after": "1h"}).status >= 400, "refused")
        check("needs SELECT, INSERT, UPDATE and DELETE" in server.get("/readyz").must(503)["reason"], "it says why")
        postgres().sql(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO refused")


@test("the server is not ready while it has no connection to its database, although its claims are valid")
def _():
    database = Postgres()
    with Server("--lease", "30s", store=database.url(), shards=2) as server:
        await_(lambda: server.get("/readyz").status == 200, "ready")
        database.stop()
        await_(lambda: "no connection to the database" in server.get("/readyz").json.get("reason", ""), "it says why")
        expect(server.get("/readyz").status, 503)
        database.start()
        await_(lambda: server.get("/readyz").status == 200, "ready again")


@test("a password that is rotated while the server runs: a passfile is read again")
def _():
    url = postgres().url()
    role("locked", url, "first")
    admit("host all locked 127.0.0.1/32 scram-sha-256", "host all foliot 127.0.0.1/32 trust")
    passfile = os.path.join(folder(), "passwords")

    def write(password):
        with open(passfile, "w", encoding="utf-8") as file:
            file.write(f"*:*:*:locked:{password}\n")
        os.chmod(passfile, 0o600)

    write("first")
    live_through(tcp(url, "locked", passfile=passfile),
                 lambda: postgres().sql("ALTER ROLE locked PASSWORD 'second'"), lambda: write("second"),
                 "check the user and the password in the URL")
    refused(tcp(url, "locked:first"), "check the user and the password in the URL")
    check("first" not in foliot("serve", "--store", tcp(url, "locked:first")).stderr, "no password is told")


def certify():
    need_program("openssl")
    database = postgres()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2",
                    "-keyout", "server.key", "-out", "server.crt"], cwd=database.data, check=True, capture_output=True)
    os.chmod(os.path.join(database.data, "server.key"), 0o600)
    if database.user:
        for name in ("server.key", "server.crt"):
            os.chown(os.path.join(database.data, name), database.user["user"], database.user["group"])


def offer_tls(offered):
    postgres().sql(f"ALTER SYSTEM SET ssl = {'on' if offered else 'off'}")
    postgres().sql("SELECT pg_reload_conf()")
    await_(lambda: query(postgres(), "SHOW ssl") == [["on" if offered else "off"]], "TLS is switched")


@test("TLS that only the server wants, and TLS that only the client wants")
def _():
    certify()
    offer_tls(True)
    url, both = postgres().url(), "host all all 127.0.0.1/32 trust"
    admit(both)
    live_through(tcp(url, "foliot", sslmode="disable"), lambda: admit("hostssl all all 127.0.0.1/32 trust"),
                 lambda: admit(both), "sslmode=require")
    admit("hostssl all all 127.0.0.1/32 trust")
    refused(tcp(url, "foliot", sslmode="disable"), "sslmode=require")
    admit(both)
    live_through(tcp(url, "foliot", sslmode="require"), lambda: offer_tls(False), lambda: offer_tls(True),
                 "the server offers none")
    offer_tls(False)
    refused(tcp(url, "foliot", sslmode="require"), "the server offers none")


USERS = ("session_mode", "session_mode_more", "transaction_mode")


class Pooler:
    """pgbouncer before the database."""

    def __init__(self, mode):
        program = shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin")
        if not program:
            raise Skip("pgbouncer is not installed")
        self.port, place, user = free_port(), folder(), as_postgres()
        with open(os.path.join(place, "pgbouncer.ini"), "w", encoding="utf-8") as file:
            file.write(f"[databases]\npostgres = host={postgres().folder} port={postgres().port}\n[pgbouncer]\n"
                       f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\nauth_type = trust\n"
                       f"auth_file = {place}/users\n"
                       f"pool_mode = {mode}\ndefault_pool_size = 20\n")
        with open(os.path.join(place, "users"), "w", encoding="utf-8") as file:
            file.write("".join(f'"{name}" ""\n' for name in USERS))
        if user:
            os.chown(place, user["user"], user["group"])
        with open(os.path.join(place, "log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([program, os.path.join(place, "pgbouncer.ini")], cwd=place, stdout=log, stderr=log, **user)
        cleanups.callback(self.stop)
        await_(self.listens, "pgbouncer listens")

    def listens(self):
        check(self.process.poll() is None, "pgbouncer has ended")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)

    def url(self, name):
        postgres().sql(f"CREATE ROLE {name} LOGIN SUPERUSER; CREATE SCHEMA {name}")  # its search_path begins with "$user"
        return f"postgres://{name}@127.0.0.1:{self.port}/postgres"


@test("a pooler in transaction mode, and in session mode")
def _():
    pooler = Pooler("session")
    with Server(store=pooler.url(USERS[0]), shards=4) as server:
        await_(lambda: server.get("/readyz").status == 200, "ready")
        server.put("/v1/timers/trouble/none", {"after": "1h"}).must(201)
    refused(pooler.url(USERS[1]) + "?options=-csearch_path%3Dpublic", "ignore_startup_parameters")
    pooler.stop()
    with Server("--lease", "1s", store=Pooler("transaction").url(USERS[2]), shards=8, start=False) as server:
        server.start(until=None)  # it does not get as far as to listen
        server.await_log("a connection pooler in transaction mode does not work")
        time.sleep(2)
        whys = [entry.get("why") for entry in told(server)]
        expect(len(whys), len(set(whys)), f"each is told once: {whys}")
        check(len(whys) < 12, whys)
        server.kill()


@test("a version in foliot_meta that does not match")
def _():
    url = postgres().url()
    meta = schema_of(url) + ".foliot_meta"
    with Server(store=url, shards=2) as server:
        await_(lambda: server.get("/readyz").status == 200, "ready")
    postgres().sql(f"UPDATE {meta} SET value = 99 WHERE key IN ('schema', 'compatible')")
    refused(url, "version 99", "use a later version of Foliot")
    postgres().sql(f"ALTER TABLE {meta} ALTER value TYPE text")
    postgres().sql(f"UPDATE {meta} SET value = 'four' WHERE key = 'schema'")
    refused(url, "'four' for 'schema'", "is not a number")
    postgres().sql(f"UPDATE {meta} SET value = '-3' WHERE key = 'schema'")
    refused(url, "'-3' for 'schema'", "is not a number")
    postgres().sql(f"DELETE FROM {meta} WHERE key = 'shards'; UPDATE {meta} SET value = 4 WHERE key <> 'shards'")
    refused(url, "no row 'shards'")


def shift(schema, seconds):
    postgres().sql(f"UPDATE {schema}.shift SET seconds = {seconds}")


def shifted():
    """A store whose clock can be set: its now() is found before PostgreSQL's."""
    url = postgres().url()
    schema = schema_of(url)
    postgres().sql(f"CREATE TABLE {schema}.shift (seconds integer); INSERT INTO {schema}.shift VALUES (0);"
                   f"CREATE FUNCTION {schema}.now() RETURNS timestamptz STABLE LANGUAGE sql AS"
                   f" 'SELECT pg_catalog.now() + make_interval(secs => seconds) FROM {schema}.shift'")
    return url.replace(schema, schema + "%2Cpg_catalog"), schema


def set_wrong(server, schema, seconds, words):
    shift(schema, seconds)
    found = await_(lambda: server.logged(words), words)
    expect(found["level"], "error")
    answer = await_(lambda: next((a for a in [server.get("/readyz")] if a.status == 503 and "reason" in a.json), None), "not ready")
    check(words in answer.json["reason"], answer)
    shift(schema, 0)
    await_(lambda: server.get("/readyz").status == 200, "ready again")
    server.await_log("agree again")


@test("a clock that differs from the database's: the server says so and is not ready until they agree")
def _():
    url, schema = shifted()
    with Server("--lease", "1s", store=url, shards=2) as server:
        await_(lambda: server.get("/readyz").status == 200, "ready")
        shift(schema, 5)  # that is not too much
        time.sleep(1)
        expect(server.get("/readyz").status, 200)
        set_wrong(server, schema, -3600, "s ahead of that of the database")
        time.sleep(1)
        expect(len([entry for entry in list(server.log) if "that of the database" in entry["msg"]]), 1, "once per minute")
    shift(schema, 3600)
    with Server("--lease", "1s", store=url, shards=2) as server:
        server.await_log("s behind that of the database")
        await_(lambda: server.get("/readyz").json["shards_ready"] == 2, "loaded")
        check("behind that of the database" in server.get("/readyz").must(503)["reason"], "from the beginning")


@test("a member without shards notices as well that the clocks differ")
def _():
    url, schema = shifted()
    with Member(url, "--lease", "2s", shards=1) as first, Member(url, "--lease", "2s", shards=1) as second:
        await_(lambda: first.ready() and second.ready(), "ready")
        set_wrong(second, schema, -100, "s ahead of that of the database")


@test("the clock of the database is set back: a server that was killed has its shards again long before the old time")
def _():
    url, schema = shifted()
    receiver = Receiver()
    server = Server("--lease", "500ms", store=url, shards=2)
    server.put("/v1/timers/a/b", {"after": "1s", "target": receiver.url, "payload": "b"}).must(201)
    server.kill()
    shift(schema, -3600)
    server.start()  # returns when the shards are claimed
    receiver.await_calls(1)
    server.stop()


@test("the clock of the database is set back: living servers keep their shards, and take over those of a dead one")
def _():
    url, schema = shifted()
    with Member(url, "--lease", "2s", shards=4) as first:
        second = Member(url, "--lease", "2s", shards=4)
        await_(lambda: settled([first, second]), "settled")
        shift(schema, -3600)
        owners = first.get("/v1/cluster").must(200)["shards"]
        time.sleep(8)  # longer than a claim that is not renewed
        expect(first.get("/v1/cluster").must(200)["shards"], owners)
        shift(schema, -7200)
        second.kill()
        await_(lambda: first.get("/readyz").json["shards_ready"] == 4, "all shards are there", 60)


@test("a secret of the servers that is rotated in the database is taken over")
def _():
    url = postgres().url()
    schema = schema_of(url)
    wire = Wire()
    with Member(url, "--lease", "2s", shards=4) as first, \
            Member(url, "--lease", "2s", shards=4, reached_by=wire) as second:
        await_(lambda: first.ready() and second.ready() and settled([first, second]), "settled")
        postgres().sql(f"UPDATE {schema}.foliot_member SET about = '{'5a' * 32}' WHERE address = ''")
        for member in (first, second):
            member.await_log("new links use the new secret")
        expect([first.put(f"/v1/timers/a/{i}", {"after": "1h"}).status for i in range(8)], [201] * 8, "links stay")
        for end in list(wire.sockets):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        first.await_log("the link with another server is lost")
        await_(lambda: settled([first, second]), "a link that broke is made again")
        with Member(url, "--lease", "2s", shards=4) as third:
            await_(lambda: settled([first, second, third]), "a server that starts now is linked both ways")
        second.restart()
        await_(lambda: settled([first, second]), "so is one that starts again")
        expect(query(postgres(), f"SELECT about FROM {schema}.foliot_member WHERE address = ''"), [["5a" * 32]])
        expect([first.get(f"/v1/timers/a/{i}").status for i in range(8)], [200] * 8)


run()
