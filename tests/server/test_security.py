#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Who may do what: tokens, their rights and namespaces; TLS; limits."""

import hashlib
import json
import os
import signal
import ssl
import subprocess

from e2e import Server, await_, check, expect, folder, need_program, problem, run, test

TOKENS = {
    "admin": ("*", "admin"),
    "reader": ("*", "read"),
    "writer": ("a, b", "read, write"),
    "only-write": ("a", "write"),
    "admin-a": ("a", "admin"),
}


def write_tokens(path, tokens):
    with open(path, "w", encoding="utf-8") as file:
        for name, (namespaces, rights) in tokens.items():
            digest = hashlib.sha256(f"token of {name}".encode()).hexdigest()
            file.write(f"[token {name}]\nsha256 = {digest}\nnamespaces = {namespaces}\nrights = {rights}\n")


config = os.path.join(folder(), "foliot.conf")
write_tokens(config, TOKENS)
server = Server("--config", config)


def as_(name):
    server.token = f"token of {name}" if name else None
    return server


@test("without a token, or with a wrong one: 401, whatever is asked for")
def _():
    requests = [("GET", "/v1/timers/a/x"), ("PUT", "/v1/timers/a/x"), ("POST", "/v1/timers/a"), ("PATCH", "/v1/timers/a/x"),
                ("DELETE", "/v1/timers/a/x"), ("GET", "/v1/timers/a"), ("DELETE", "/v1/timers/a?all=true"), ("POST", "/v1/batch"),
                ("POST", "/v1/lease/a"), ("POST", "/v1/ack"), ("GET", "/v1/dead/a"), ("GET", "/v1/namespaces"),
                ("PUT", "/v1/namespaces/a"), ("GET", "/v1/events"), ("GET", "/metrics"), ("POST", "/v1/clock"), ("GET", "/v1/clock"), ("GET", "/v1/hosts"),
                ("POST", "/v1/hosts/a:1/pause"), ("POST", "/v1/hosts/a:1/resume")]
    for wrong in (None, "Bearer wrong", "Bearer ", "bearer", "Basic " + "token of admin", "token of admin",
                  "Bearer token of Admin", "Bearer " + "x" * 5000):
        server.token = None
        for method, path in requests:
            answer = server.call(method, path, None, {"Authorization": wrong} if wrong else {})
            problem(answer, 401, "unauthorized")
            check("Bearer" in answer.headers["www-authenticate"], "it says how")
    expect(as_("reader").timers("a"), [], "nothing has happened")


@test("hosts need the right in all namespaces, also if a namespace has the name of the host")
def _():
    for name in ("reader", "only-write", "admin-a"):
        problem(as_(name).post("/v1/hosts/a:1/pause"), 403, "forbidden")
        problem(as_(name).post("/v1/hosts/a:1/resume"), 403, "forbidden")
    for name in ("only-write", "admin-a"):
        problem(as_(name).get("/v1/hosts"), 403, "forbidden")
    expect(as_("admin").get("/v1/hosts").must(200)["hosts"], [])


@test("health, readiness, version and the description need none")
def _():
    for path in ("/healthz", "/readyz", "/version", "/openapi.json"):
        expect(as_(None).get(path).status, 200, path)


@test("rights: read, write, and admin that includes them")
def _():
    timer = {"after": "1h"}
    for name, read, write, admin in (("reader", 200, 403, 403), ("writer", 200, 201, 403), ("only-write", 403, 201, 403),
                                     ("admin", 200, 201, 200), ("admin-a", 200, 201, 200)):
        client = as_(name)
        expect(client.get("/v1/timers/a").status, read, name)
        expect(client.get("/v1/dead/a").status, read, name)
        expect(client.get("/v1/namespaces/a").status, read, name)
        expect(client.post("/v1/timers/a", timer).status, write, name)
        expect(client.put(f"/v1/timers/a/{name}", timer).status, write, name)
        expect(client.delete("/v1/timers/a?prefix=nobody").status, 200 if write == 201 else 403, name)
        expect(client.post("/v1/lease/a", {}).status, 200 if write == 201 else 403, name)
        expect(client.put("/v1/namespaces/a", {}).status, admin, name)
    problem(as_("reader").post("/v1/timers/a", timer), 403, "forbidden")


@test("namespaces: only those that are its own")
def _():
    client = as_("writer")
    for namespace, status in (("a", 201), ("b", 201), ("c", 403), ("A", 403), ("a%00", 400), ("*", 403), ("a%2Cb", 403)):
        expect(client.post(f"/v1/timers/{namespace}", {"after": "1h"}).status, status, namespace)
    made = as_("admin").post("/v1/timers/c", {"after": "1h"}).must(201)
    for method, path in (("GET", "/v1/timers/c"), ("GET", "/v1/timers/c/" + made["id"]), ("DELETE", "/v1/timers/c/" + made["id"]),
                         ("GET", "/v1/dead/c"), ("GET", "/v1/namespaces/c"), ("GET", "/v1/events?namespace=c")):
        problem(as_("writer").call(method, path), 403, "forbidden", "namespace" if "events" in path else None)
    problem(as_("writer").get("/v1/timers/a/" + made["id"]), 404, "not-found")
    expect({one["namespace"] for one in as_("writer").get("/v1/namespaces").must(200)["namespaces"]} - {"a", "b"}, set())
    answers = as_("writer").batch([{"op": "create", "namespace": name, "after": "1h"} for name in "abca"])
    expect([one["ok"] for one in answers], [True, True, False, True])
    expect(answers[2]["problem"]["type"], "urn:foliot:problem:forbidden")
    problem(as_("writer").get("/metrics"), 403, "forbidden")
    problem(as_("admin-a").post("/v1/clock", {"advance": "1s"}), 403, "forbidden")


@test("a lease can be acknowledged only by who may write in its namespace")
def _():
    as_("admin").put("/v1/timers/c/lease", {"after": "0s"}).must(201)
    lease = as_("admin").lease("c", wait="10s")[0]["lease"]
    expect(as_("writer").ack((lease, {"result": "done"})), {"settled": 0, "unknown": [lease]})
    expect(as_("admin").ack((lease, {"result": "done"})), {"settled": 1, "unknown": []})


@test("events of others are not told")
def _():
    as_("writer")
    connection = server.socket()
    connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token of writer\r\n\r\n")
    told = b""
    while b": listening" not in told:
        told += connection.recv(4096)
    as_("admin").put("/v1/timers/c/quiet", {"after": "1h"}).must(201)
    as_("admin").put("/v1/timers/b/loud", {"after": "1h"}).must(201)
    while b"loud" not in told:
        told += connection.recv(4096)
    check(b"quiet" not in told, told)
    connection.close()


@test("tokens are nowhere to be seen")
def _():
    told = json.dumps(server.log) + as_("admin").get("/metrics").body.decode()
    check("token of" not in told, "neither in the log nor in the metrics")
    check(hashlib.sha256(b"token of admin").hexdigest() not in told, "nor their hashes")


@test("no token is needed on loopback unless there are some; listening elsewhere works with one")
def _():
    with Server("--config", config, "--listen", "0.0.0.0:0") as everywhere:
        expect(everywhere.get("/v1/timers/a").status, 401)
        everywhere.token = "token of admin"
        expect(everywhere.get("/v1/timers/a").status, 200)


# --- TLS --------------------------------------------------------------------------------------------------------------


def certificate(place, name):
    paths = [os.path.join(place, name + end) for end in (".pem", ".key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
                    "-subj", "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]],
                   check=True, capture_output=True)
    return paths


def peer_name(client):
    with client.socket() as connection:
        parsed = connection.getpeercert(True)
        return ssl.DER_cert_to_PEM_cert(parsed)


@test("TLS: a client that checks the certificate is content, and a reload changes it")
def _():
    need_program("openssl")
    place = folder()
    certificate(place, "first")
    certificate(place, "second")
    for end in (".pem", ".key"):
        os.link(os.path.join(place, "first" + end), os.path.join(place, "now" + end))
    with Server("--tls-certificate", os.path.join(place, "now.pem"), "--tls-key", os.path.join(place, "now.key"),
                scheme="https") as secure:
        check(secure.url.startswith("https://"), secure.url)
        secure.context = ssl.create_default_context(cafile=os.path.join(place, "first.pem"))
        secure.put("/v1/timers/a/x", {"after": "1h", "payload": "x" * 200_000}).must(201)
        expect(len(secure.get("/v1/timers/a/x").must(200)["payload"]), 200_000)
        expect(len(secure.batch([{"op": "create", "namespace": "a", "after": "1h"}] * 5000)), 5000)
        need_program("curl")
        done = subprocess.run(["curl", "-sS", "--cacert", os.path.join(place, "first.pem"), secure.url + "/v1/timers/a/x"],
                              capture_output=True, text=True, check=False)
        expect(json.loads(done.stdout)["name"], "x", done.stderr)
        before = peer_name(secure)
        for end in (".pem", ".key"):
            os.replace(os.path.join(place, "second" + end), os.path.join(place, "now" + end))
        secure.signal(signal.SIGHUP)
        secure.context = ssl.create_default_context(cafile=os.path.join(place, "now.pem"))

        def renewed():
            try:
                return peer_name(secure) != before
            except ssl.SSLError:
                return False

        await_(renewed, "the new certificate")
        with open(os.path.join(place, "now.pem"), "w", encoding="utf-8") as file:
            file.write("nonsense")
        secure.signal(signal.SIGHUP)
        secure.await_log("keeps the old one")
        check(renewed(), "the one that is good stays")
        plain = subprocess.run(["curl", "-sS", "-m", "10", f"http://127.0.0.1:{secure.port}/healthz"], capture_output=True,
                               text=True, check=False)
        check(plain.returncode != 0 or "healthz" not in plain.stdout, "no plain HTTP there")
        expect(secure.get("/healthz").status, 200)


@test("TLS: a certificate that cannot be used is a sentence at the start")
def _():
    need_program("openssl")
    place = folder()
    first, second = certificate(place, "one"), certificate(place, "two")
    for pair in ((first[0], second[1]), (first[1], first[0]), ("/nonexistent", first[1])):
        broken = Server("--tls-certificate", pair[0], "--tls-key", pair[1], start=False)
        broken.start(until=None)
        check(broken.process.wait(60) != 0, "it does not start")


# --- Limits -----------------------------------------------------------------------------------------------------------


@test("limits: head, URL, body, requests a second")
def _():
    with Server("--max-head", "2KiB", "--max-url", "512", "--max-body", "4KiB", "--max-payload", "1KiB") as small:
        expect(small.get("/healthz", **{"x-long": "x" * 3000}).status, 431)
        expect(small.get("/v1/timers/a?prefix=" + "x" * 600).status, 414)
        expect(small.put("/v1/timers/a/b", {"after": "1h", "payload": "x" * 5000}).status, 413)
        problem(small.put("/v1/timers/a/b", {"after": "1h", "payload": "x" * 1500}), 413, "too-large", "payload")
        small.put("/v1/timers/a/b", {"after": "1h", "payload": "x" * 1000}).must(201)
    with Server("--max-request-rate", "5") as slow:
        statuses = [slow.get("/version").status for _ in range(100)]
        check(429 in statuses and 200 in statuses, f"{set(statuses)}")


@test("what is not HTTP is answered or cut off, and harms nobody")
def _():
    need = as_("admin")
    for nonsense in (b"\0" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
                     b"POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
                     b"\x16\x03\x01\x02\x00" + b"x" * 512, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /" + b"a" * 100_000):
        with need.socket() as connection:
            connection.sendall(nonsense)
            connection.shutdown(1)
            told = connection.recv(4096)
            check(not told or told.startswith(b"HTTP/1.1 4") or told.startswith(b"HTTP/1.1 5"), told)
    expect(need.get("/healthz").status, 200)


@test("max-connections counts those of all workers, and one more is told so")
def _():
    with Server("--max-connections", "20", "--workers", "4") as small:
        kept = [small.socket() for _ in range(20)]
        for connection in kept:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            check(b" 200 " in connection.recv(4096), "as many as allowed are answered")
        for _ in range(5):
            answer = small.get("/healthz")
            problem(answer, 503, "overloaded")
            small.kept.connection = None
        silent = [small.socket() for _ in range(600)]  # more than are told
        for connection in silent + kept[:1]:
            connection.close()
        await_(lambda: small_is_free(small), "there is room again")
        for connection in kept:
            connection.close()


def small_is_free(server):
    try:
        return server.get("/healthz").status == 200
    except OSError:
        return False
    finally:
        server.kept.connection = None


# --- Web pages --------------------------------------------------------------------------------------------------------


@test("without tokens, a web page of another site can do nothing")
def _():
    timer = json.dumps({"after": "1h"})
    plain, as_json = {"Content-Type": "text/plain"}, {"Content-Type": "application/json"}
    with Server("--allowed-host", "timers.example,Other.Example", "--allowed-host", "third.example") as open_server:
        port = open_server.port
        own = {"Origin": f"http://127.0.0.1:{port}", "Host": f"127.0.0.1:{port}"}
        for host in ("evil.example", f"evil.example:{port}", "0.0.0.0", "localhost.evil.example", "evillocalhost", "10.0.0.1",
                     "[::2]", "[::1", "[::1]x", "127.0.0.1.evil.example", "127.1", "", "xtimers.example", "timers.example.evil",
                     "*", "localhost:80:80", "localhost:x", ".localhost"):
            for path in ("/v1/timers/page", "/healthz", "/nowhere"):
                problem(open_server.get(path, Host=host), 403, "forbidden-host")
            problem(open_server.put("/v1/timers/page/x", timer, {"Host": host}), 403, "forbidden-host")
        for host in ("localhost", "LocalHost:1", "localhost.", "a.localhost", "127.0.0.1", "127.255.0.1:99", "[::1]", "[::1]:7411",
                     "[::ffff:127.0.0.1]", "timers.example", "TIMERS.example:443", "other.example.", "third.example"):
            open_server.get("/v1/timers/page", Host=host).must(200)
        for origin in ("https://evil.example", "null", f"http://127.0.0.1:{port + 1}", f"http://localhost:{port}", "http://localhost",
                       f"http://127.0.0.1:{port}.evil.example", "127.0.0.1", "", "http://", "https://evil.example/timers.example"):
            headers = {"Host": own["Host"], "Origin": origin}
            problem(open_server.put("/v1/timers/page/x", timer, {**headers, **plain}), 403, "forbidden-origin")
            problem(open_server.put("/v1/timers/page/x", timer, {**headers, **as_json}), 403, "forbidden-origin")
            problem(open_server.get("/v1/timers/page", **headers), 403, "forbidden-origin")
        for kind in (plain, {"Content-Type": "application/x-www-form-urlencoded"}, {"Content-Type": "multipart/form-data; a=b"}, {},
                     {"Content-Type": "text/plain; x=application/json"}, {"Content-Type": "application/jsonx"}):
            problem(open_server.put("/v1/timers/page/x", timer, {**own, **kind}), 415, "unsupported-media-type")
            problem(open_server.post("/v1/batch", timer, {**own, **kind}), 415, "unsupported-media-type")
        with open_server.socket() as twice:
            head = "".join(f"{name}: {value}\r\n" for name, value in own.items())
            head += "Content-Type: application/json\r\nContent-Type: text/plain\r\nConnection: close\r\n"
            twice.sendall(f"PUT /v1/timers/page/x HTTP/1.1\r\n{head}Content-Length: {len(timer)}\r\n\r\n{timer}".encode())
            check(b" 415 " in twice.makefile("rb").read(), "of two types, the body has neither")
        open_server.put("/v1/timers/page/own", timer, {**own, **as_json}).must(201)
        open_server.put("/v1/timers/page/own", timer, {**own, "Content-Type": "Application/JSON; charset=utf-8"}).must(200)
        open_server.call("DELETE", "/v1/timers/page/own", None, own).must(204)
        proxied = {**own, "Origin": "https://timers.example", **as_json}
        open_server.put("/v1/timers/page/proxied", timer, proxied).must(201)
        open_server.put("/v1/timers/page/curl", timer, plain).must(201)
        expect(open_server.post("/v1/batch", "", {**own, "Content-Type": "application/x-ndjson"}).status, 200)
        expect(sorted(one["name"] for one in open_server.timers("page")), ["curl", "proxied"])
        for url, status in ((b"http://evil.example", 403), (b"http://localhost", 200)):
            with open_server.socket() as absolute:
                absolute.sendall(b"GET " + url + b"/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                check(b" %d " % status in absolute.makefile("rb").readline(), "the host of a URL in the request line counts")
        with open_server.socket() as old:
            old.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            check(b" 200 " in old.makefile("rb").read(), "a client that knows no Host is no web page")


@test("with tokens, names of the server do not matter, but a page must still send JSON")
def _():
    client = as_("admin")
    client.get("/v1/timers/a", Host="anything.example", Origin="https://page.example").must(200)
    problem(client.put("/v1/timers/a/page", '{"after":"1h"}', {"Origin": "https://page.example", "Content-Type": "text/plain"}), 415,
            "unsupported-media-type")


def open_request(server, name, head, body=b""):
    made = server.socket()
    made.sendall(head.encode() + f" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token of {name}\r\n".encode() + body)
    return made


def read_until(connection, text):
    """All that comes until the text; None: until the end."""
    found = b""
    while text is None or text not in found:
        piece = connection.recv(65536)
        if not piece:
            check(text is None, f"{text} is in {found}")
            return found
        found += piece
    return found


CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(line):
    data = json.dumps(line).encode() + b"\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


@test("a revoked token ends what is open under it, and a changed one has its new rights there")
def _():
    path = os.path.join(folder(), "tokens.conf")
    rights = ("*", "read, write")
    write_tokens(path, {"goes": rights, "stays": rights, "shrinks": rights})
    line = {"op": "create", "namespace": "a", "name": "x", "after": "1h"}
    with Server("--config", path) as server:
        batches = {name: open_request(server, name, "POST /v1/batch", CHUNKED + chunk(line)) for name in ("goes", "stays", "shrinks")}
        events = {name: open_request(server, name, "GET /v1/events", b"\r\n") for name in ("goes", "stays")}
        wait = b'{"wait":"60s"}'
        lease = open_request(server, "goes", "POST /v1/lease/q", b"Content-Length: %d\r\n\r\n%s" % (len(wait), wait))
        slow = open_request(server, "goes", "PUT /v1/timers/a/late", b"Content-Length: 16\r\n\r\n")
        for connection in batches.values():
            read_until(connection, b'"ok":true')
        for connection in events.values():
            read_until(connection, b"listening")
        await_(lambda: server.get("/v1/timers/a/x", Authorization="Bearer token of stays").status == 200, "it is there")
        write_tokens(path, {"stays": rights, "shrinks": ("b", "read, write")})
        server.signal(signal.SIGHUP)
        ended = read_until(batches["goes"], None)
        check(b"urn:foliot:problem:unauthorized" in ended and ended.endswith(b"0\r\n\r\n"), f"{ended} says why")
        read_until(events["goes"], b"0\r\n\r\n")
        check(b"401" in read_until(lease, b"unauthorized"), "a lease that waits ends")
        slow.sendall(b'{"after": "1h" }')
        check(b"401" in read_until(slow, b"unauthorized"), "what was half sent is refused")
        batches["stays"].sendall(chunk({**line, "name": "y"}))
        read_until(batches["stays"], b'"ok":true')
        read_until(events["stays"], b'"name":"y"')
        batches["shrinks"].sendall(chunk(line))
        read_until(batches["shrinks"], b"urn:foliot:problem:forbidden")
        batches["shrinks"].sendall(chunk({**line, "namespace": "b"}))
        read_until(batches["shrinks"], b'"ok":true')
        expect(server.get("/v1/timers/a/late", Authorization="Bearer token of stays").status, 404)
        for connection in (*batches.values(), *events.values(), lease, slow):
            connection.close()


run()
