#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The server does what /openapi.json says, and nothing else: a client that knows nothing but that document.

Every operation is called with the document's examples, with values made from its schemas that fit, and with others
that do not. Every answer must have a status, a type and a body that the document names; what fits must be taken, what
does not must be refused. In the end, every status of every operation has been seen, or is one that nobody can ask for.
"""

import hashlib
import http.client
import itertools
import json
import os
import re
import subprocess
import sys
import urllib.parse

from e2e import PATIENCE, SOURCE, Answer, Receiver, Server, Skip, await_, comment, folder, npm
from schema import Schemas

METHODS = ["get", "put", "post", "patch", "delete"]
NAMESPACE = "demo"
VALIDATOR = "@apidevtools/swagger-parser@10.1.1"
LEASE_WAIT = {"max": 10, "wait": "30s", "lease": "30s"}

# What a client cannot bring about: it takes a store that fails, no memory, or a moment that is over too soon.
UNREACHABLE = {"500": "the store is damaged", "503": "the store fails, or the server is stopping", "507": "a full disk"}


def token_section(name, token, rights):
    digest = hashlib.sha256(token.encode()).hexdigest()
    return f"[token {name}]\nsha256 = {digest}\nnamespaces = *\nrights = {rights}\n"


checks = failures = 0


def check(name, good, *why):
    """A test. `why` is told if it fails."""
    global checks, failures
    checks += 1
    failures += not good
    print(f"{'' if good else 'not '}ok {checks} - {name}", flush=True)
    for line in () if good else why:
        comment(line)


def content_type(answer):
    return (answer.headers.get("content-type") or "").split(";")[0]


class Operation:
    """One method of one path."""

    def __init__(self, api, path, method, item):
        node = item[method]
        self.api, self.path, self.method, self.node = api, path, method.upper(), node
        self.id = node["operationId"]
        listed = item.get("parameters", []) + node.get("parameters", [])
        self.parameters = [api.schemas.resolve(parameter) for parameter in listed]
        self.open = node.get("security") == []
        self.responses = {status: api.schemas.resolve(answer) for status, answer in node["responses"].items()}
        content = api.schemas.resolve(node.get("requestBody", {})).get("content", {})
        self.request_type, self.media = next(iter(content.items()), (None, {}))

    def url(self, query=None, **parts):
        values = {p["name"]: parts.get(p["name"], p.get("example")) for p in self.parameters if p["in"] == "path"}
        path = re.sub(r"\{(\w+)\}", lambda match: urllib.parse.quote(values[match.group(1)], safe=""), self.path)
        return path + ("?" + urllib.parse.urlencode(query) if query else "")

    def bodies(self):
        """The examples of its request."""
        named = [example["value"] for example in self.media.get("examples", {}).values()]
        return named + ([self.media["example"]] if "example" in self.media else [])

    def __call__(self, server, body=None, query=None, headers=None, raw=None, **parts):
        text = raw if raw is not None else json.dumps(body) if body is not None else None
        headers = {**({"Content-Type": self.request_type} if text is not None else {}), **(headers or {})}
        answer = server.call(self.method, self.url(query, **parts), text, headers)
        self.api.judge(self, answer)
        return answer


class Api:
    """The document, and what was seen of it."""

    def __init__(self, document):
        self.document = document
        self.schemas = Schemas(document)
        self.operations = {}
        self.seen = set()
        self.wrong = []
        for path, item in document["paths"].items():
            for method in METHODS:
                if method in item:
                    operation = Operation(self, path, method, item)
                    assert operation.id not in self.operations
                    self.operations[operation.id] = operation

    def __getattr__(self, name):
        return self.operations[name]

    def judge(self, operation, answer):
        """Whether the answer is one that the document knows."""
        self.seen.add((operation.id, str(answer.status)))
        known = operation.responses.get(str(answer.status)) or operation.responses["default"]
        errors = self.answer_errors(known, answer)
        if errors:
            self.wrong.append(f"{operation.id}: {answer}: {errors}")

    def answer_errors(self, known, answer):
        content = known.get("content")
        if not content:
            return [] if answer.body == b"" else ["there is a body"]
        if content_type(answer) not in content:
            return [f"the type is {content_type(answer)}"]
        errors = [f"{name} is missing" for name in known.get("headers", {}) if name not in answer.headers]
        if not content_type(answer).endswith("json") or content_type(answer) == "application/x-ndjson":
            return errors
        errors += self.schemas.errors(content[content_type(answer)]["schema"], answer.json, closed=True)
        if content_type(answer) == "application/problem+json":
            errors += self.schemas.errors({"$ref": "#/components/schemas/Problem"}, answer.json, closed=True)
            if answer.json["status"] != answer.status:
                errors.append("the status inside is another")
        return errors

    def nothing_wrong(self, name):
        check(name, not self.wrong, *self.wrong[:20])
        self.wrong = []


# --- The document itself


def walk(node, at="#"):
    yield at, node
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else []
    for key, value in items:
        yield from walk(value, f"{at}/{key}")


def test_document(api):
    document = api.document
    check("it is OpenAPI 3.1", document["openapi"].startswith("3.1."))
    broken = []
    for at, node in walk(document):
        if isinstance(node, dict) and isinstance(node.get("$ref"), str):
            try:
                api.schemas.resolve(node)
            except KeyError:
                broken.append(at)
    check("every reference leads somewhere", not broken, *broken)
    wrong = []
    for at, node in walk(document):
        if not isinstance(node, dict):
            continue
        if "schema" in node and "contentSchema" not in api.schemas.resolve(node["schema"]):
            given = [e["value"] for e in node.get("examples", {}).values()] + [
                node[k] for k in ("example",) if k in node
            ]
            wrong += [f"{at}: {e}" for value in given for e in api.schemas.errors(node["schema"], value)]
        if isinstance(node.get("examples"), list):
            wrong += [f"{at}: {e}" for value in node["examples"] for e in api.schemas.errors(node, value)]
    check("every example fits its schema", not wrong, *wrong[:20])
    missing = [op.id for op in api.operations.values() if "default" not in op.responses or not op.node.get("summary")]
    check("every operation has a summary, and says what becomes of bad HTTP", not missing, missing)


def test_validator(server):
    """What others make of it."""
    name = "it is valid for a validator from npm"
    script = "require(process.argv[1]).validate(process.argv[2]).catch(e => { console.error(e); process.exit(1) })"
    try:
        package = os.path.join(npm(VALIDATOR), "node_modules", VALIDATOR.rsplit("@", 1)[0])
    except Skip as reason:
        check(f"{name} # SKIP {reason}", True)
        return
    path = os.path.join(folder(), "openapi.json")
    with open(path, "wb") as file:
        file.write(server.call("GET", "/openapi.json").body)
    done = subprocess.run(["node", "-e", script, package, path], capture_output=True, text=True)
    check(name, done.returncode == 0, done.stderr)


def routes_of_the_source():
    """All but the one by which servers of one store reach each other, and the files of the dashboard."""
    others = {("POST", "/v1/peer"), ("GET", "/ui"), ("GET", "/ui/"), ("GET", "/ui/*")}
    with open(os.path.join(SOURCE, "src/api/api.c"), encoding="utf-8") as file:
        return set(re.findall(r'\{HTTP_([A-Z]+), "([^"]+)"', file.read())) - others


def test_paths(api, server):
    api.root(server, headers={"Accept": "text/html,*/*"})  # a browser
    documented = {(op.method, re.sub(r"\{\w+\}", "*", op.path)) for op in api.operations.values()}
    check(
        "it has every route of the server and no other",
        documented == routes_of_the_source(),
        documented ^ routes_of_the_source(),
    )
    problem = {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for path, item in api.document["paths"].items():
        methods = {method.upper() for method in METHODS if method in item}
        if path in ("/v1/dead/{namespace}/redrive", "/v1/schedules/preview"):
            continue  # for other methods, the last part is the ID of a dead letter, or a namespace
        some = next(op for op in api.operations.values() if op.path == path)
        wrong = []
        for method in ["GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"]:
            if method in methods:
                continue
            answer = server.call(method, some.url())
            allowed = set((answer.headers.get("allow") or "").split(", "))
            if answer.status != 405 or allowed != methods or api.answer_errors(problem, answer):
                wrong.append(f"{method}: {answer} Allow: {allowed}")
        check(f"{path} takes no other methods", not wrong, *wrong)
    strange = [
        "/v1",
        "/v1/",
        "/v1/timers",
        "/v1/timers/",
        "/v1/timers/a/b/c",
        "/v2/timers/a",
        "/healthz/",
        "/v1/ack/x",
        "/v1/dead/a/b/raise",
        "//healthz",
        "/V1/batch",
    ]
    answers = [server.call(method, path) for path, method in itertools.product(strange, ["GET", "POST", "DELETE"])]
    bad = [
        str(a)
        for a in answers
        if a.status != 404 or api.answer_errors(problem, a) or a.json["type"] != "urn:foliot:problem:no-such-path"
    ]
    check("other paths are not there", not bad, *bad)
    heads = []
    for op in api.operations.values():
        if op.method == "GET" and op.id != "events":
            head, get = server.call("HEAD", op.url()), op(server)
            if (head.status, content_type(head), head.body) != (get.status, content_type(get), b""):
                heads.append(f"{op.path}: {head} instead of {get}")
    check("HEAD is GET without a body", not heads, *heads)


# --- What is wrong as HTTP


def raw(server, text):
    with server.socket() as connection:
        connection.sendall(text)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return Answer(int(lines[0].split()[1]), headers, body)


def test_bad_http(api, server):
    host = b"Host: localhost\r\nConnection: close\r\n"
    cases = {
        "a URL that is too long": (414, b"GET /healthz?" + b"x" * 9000 + b" HTTP/1.1\r\n" + host + b"\r\n"),
        "a head that is too large": (431, b"GET /healthz HTTP/1.1\r\n" + host + b"X: " + b"x" * 20000 + b"\r\n\r\n"),
        "another version": (505, b"GET /healthz HTTP/3.0\r\n" + host + b"\r\n"),
        "an unknown coding": (501, b"POST /echo HTTP/1.1\r\n" + host + b"Transfer-Encoding: gzip\r\n\r\n"),
        "an unknown expectation": (
            417,
            b"POST /echo HTTP/1.1\r\n" + host + b"Expect: tea\r\nContent-Length: 1\r\n\r\n",
        ),
        "no host": (400, b"GET /healthz HTTP/1.1\r\n\r\n"),
        "no request": (400, b"tea please\r\n\r\n"),
    }
    for name, (status, text) in cases.items():
        answer = raw(server, text)
        errors = api.answer_errors(api.health.responses["default"], answer)
        check(f"{name} is answered as documented", answer.status == status and not errors, answer, *errors)


# --- Bodies and parameters


def harmless(body):
    """No timer of this test may call anybody: what is due has no target."""
    if isinstance(body, dict) and isinstance(body.get("due"), (int, float)) and body["due"] < 1.9e12:
        return {key: value for key, value in body.items() if key != "target"}
    return body


def turns_back(body):
    """No schema knows what time it is."""
    return isinstance(body, dict) and isinstance(body.get("to"), int) and body["to"] < 1.9e12


def is_taken(operation, answer):
    return answer.status < 300 or (operation.id == "changeTimer" and answer.status == 409)


def test_bodies(api, operation, server, prepare=None):
    """What fits the schema is taken, what does not is refused."""
    schema = operation.media["schema"]
    good, bad, wrong = 0, 0, []
    for example in operation.bodies():
        for body in [example, *api.schemas.variants(schema, example)]:
            body = harmless(body)
            fits = api.schemas.fits(schema, body) and not turns_back(body)
            if prepare:
                prepare()
            answer = operation(server, raw=json.dumps(body))
            good, bad = good + fits, bad + (not fits)
            if fits != is_taken(operation, answer) or (not fits and answer.status != 400):
                wrong.append(f"{json.dumps(body)} -> {answer}; {api.schemas.errors(schema, body)}")
    check(f"{operation.id}: takes what fits ({good})", good > 0 and not wrong, *wrong[:10])
    refused = [
        "{",
        "[]",
        "nul",
        '{"after":"1s",}',
        '{"a":"\\x"}',
        '"\ud800"'.encode("utf-8", "surrogatepass"),
        b"\xff",
        b"\x00",
        "{}{}",
    ]
    refused += [""] if operation.node["requestBody"].get("required", False) else []
    answers = [operation(server, raw=text) for text in refused]
    check(
        f"{operation.id}: refuses what does not ({bad}), and what is no JSON",
        all(a.status == 400 for a in answers),
        *[str(a) for a in answers],
    )


def query_fits(api, parameter, value):
    """A number in a query is text; a cursor must be one that was given."""
    number = int(value) if re.fullmatch(r"-?[0-9]{1,16}", value) else value
    fits = any(api.schemas.fits(parameter["schema"], one) for one in (value, number))
    return fits and parameter["name"] != "cursor" and not (parameter["name"].startswith(("due", "from", "after", "before")) and value == "2031-02-30T08:00:00Z")


def test_parameters(api, server):
    values = [
        "",
        "x",
        "0",
        "1",
        "-1",
        "10001",
        "10000",
        "true",
        "fired,dead",
        "fired,tea",
        "2031-01-31T08:00:00Z",
        "2031-01-31T08:00:00",
        "2031-02-30T08:00:00Z",
        "0" * 72,
        "0" * 71 + "g",
        "a" * 256,
    ]
    api.putSchedule(server, {"every": "1h"})  # of which there can be a preview
    for operation in api.operations.values():
        queries = [p for p in operation.parameters if p["in"] == "query"]
        wrong = []
        for parameter, value in itertools.product(queries, values):
            if operation.id == "previewUnsaved":
                continue  # has a body: see test_schedules()
            if operation.id == "events" and query_fits(api, parameter, value):
                continue  # would listen
            beside = {"due_after": "2100-01-01T00:00:00Z", "prefix": "x"} if operation.id == "cancelTimers" else {}
            if operation.id in ("deleteDeadMany", "redriveDeadMany") and parameter["name"] != "all":
                beside = {"all": "true"}
            answer = operation(server, query={**beside, parameter["name"]: value})
            good = {"deleteNamespace": 204, "getTimer": 404, "getDead": 404}.get(operation.id, 200)  # there is no such timer
            if answer.status != (good if query_fits(api, parameter, value) else 400):
                wrong.append(f"{parameter['name']}={value}: {answer}")
        if queries:
            check(f"{operation.id}: parameters are taken or refused", not wrong, *wrong)
        if queries:
            check(
                f"{operation.id}: a parameter that is none is refused",
                operation(server, query={"tea": "1"}).status == 400,
            )
        paths = [p["name"] for p in operation.parameters if p["in"] == "path"]
        wrong = []
        for name, value in itertools.product(paths, ["\x01", "a" * 256, "\x7f", "é" * 128]):
            answer = operation(server, **{name: value})
            if answer.status != 400:
                wrong.append(f"{name}={value!r}: {answer}")
        if paths:
            check(f"{operation.id}: bad names in the path are refused", not wrong, *wrong)


def test_all_bodies(api, server, tests):
    test_bodies(api, api.putTimer, server)
    test_bodies(api, api.createTimer, server)
    test_bodies(api, api.changeTimer, server, lambda: api.putTimer(server, {"after": "1h"}))
    test_bodies(api, api.lease, server)
    test_bodies(api, api.acknowledge, server)
    test_bodies(api, api.putNamespace, server)
    test_bodies(api, api.patchNamespace, server)
    test_bodies(api, api.pauseNamespace, server)
    test_bodies(api, api.resumeNamespace, server)
    test_bodies(api, api.pauseHost, server)
    test_bodies(api, api.resumeHost, server)
    test_bodies(api, api.turnClock, tests)
    api.nothing_wrong("all these answers are documented")


# --- Batches


def batch_lines(api, server):
    """Operations, and whether they fit; the timers that they mean are there."""
    base = {"namespace": NAMESPACE}
    made = api.putTimer(server, {"after": "1h"}).json["id"]
    creates = [{"op": "create", **base, "name": "tea", "after": "1h", "payload": {"a": 1}, "only_new": False}]
    changes = [
        {"op": "update", **base, "name": "tea", "after": "2h"},
        {"op": "update", **base, "id": made, "payload": 1},
    ]
    cancels = [{"op": "cancel", **base, "name": "none"}, {"op": "cancel", **base, "id": made}]
    schedules = [
        {"op": "schedule", **base, "name": "daily", "cron": "0 9 * * *", "zone": "Europe/Berlin", "only_new": False},
        {"op": "unschedule", **base, "name": "daily"},
        {"op": "schedule", **base, "cron": "0 9 * * *"},
        {"op": "schedule", **base, "name": "daily", "cron": "0 9 * * *", "every": "1h"},
        {"op": "schedule", **base, "name": "daily", "every": "1h", "after": "1h"},
        {"op": "unschedule", **base, "name": "daily", "every": "1h"},
    ]
    schema = {"$ref": "#/components/schemas/BatchLine"}
    for example in creates + changes + cancels:
        for line in [example, *api.schemas.variants(schema, example)]:
            line = harmless(line)
            yield line, api.schemas.fits(schema, line)
    yield from ((line, api.schemas.fits(schema, line)) for line in schedules)  # no schema knows what an expression is


def test_batch(api, server):
    lines = list(batch_lines(api, server))
    media = api.batch.responses["200"]["content"]["application/x-ndjson"]
    answer = api.batch(server, raw="".join(json.dumps(line) + "\n" for line, _ in lines))
    answers = [json.loads(text) for text in answer.body.splitlines()]
    check("batch: an answer for each line", len(answers) == len(lines), len(answers), len(lines))
    wrong = []
    for (line, fits), said in zip(lines, answers):
        errors = api.schemas.errors(media["schema"]["contentSchema"], said, closed=True)
        gone = not said["ok"] and said["problem"]["status"] in (404, 409, 412)
        if errors or (not gone and said["ok"] != fits) or (gone and not fits):
            wrong.append(f"{json.dumps(line)} -> {said}; fits: {fits}; {errors}")
    check("batch: takes the lines that fit and refuses the others", not wrong, *wrong[:10])
    example = api.batch(server, raw=api.batch.media["example"])
    said = [json.loads(text)["ok"] for text in example.body.splitlines()]
    check("batch: the example does what it says", said == [True, True, False], example)
    check("batch: no lines, no answers", api.batch(server, raw="\n \n").body == b"")


# --- What takes more than one request


def test_timers(api, server):
    tea = {"timer": "story"}
    check("201: a new timer", api.putTimer(server, {"after": "1h"}, **tea).status == 201)
    check("200: the same again", api.putTimer(server, {"after": "2h", "payload": {"order": 1}}, **tea).status == 200)
    check(
        "412: only if it is new",
        api.putTimer(server, {"after": "1h"}, headers={"If-None-Match": "*"}, **tea).status == 412,
    )
    made = api.getTimer(server, **tea).json
    check("the payload alone", api.getTimerPayload(server, **tea).status == 200)
    check("it is found by its ID", api.getTimer(server, timer=made["id"]).json == made)
    check("it is in the list", made in api.listTimers(server, query={"prefix": "stor"}).json["timers"])
    check("204: cancelled", api.cancelTimer(server, **tea).status == 204)
    gone = [
        api.getTimer(server, **tea),
        api.cancelTimer(server, **tea),
        api.changeTimer(server, {"after": "1h"}, **tea),
    ]
    check("404: gone", [answer.status for answer in gone] == [404] * 3, *map(str, gone))
    large = [api.putTimer, api.createTimer, api.changeTimer]
    api.putTimer(server, {"after": "1h"})
    answers = [operation(server, {"after": "1h", "payload": "x" * 300000}) for operation in large]
    check("413: a payload that is too large", [answer.status for answer in answers] == [413] * 3, *map(str, answers))
    bodies = [op for op in api.operations.values() if op.media and op.id not in ("batch", "turnClock")]
    answers = [operation(server, raw=" " * (3 << 20)) for operation in bodies]
    check("413: a body that is too large", all(a.status == 413 for a in answers), *map(str, answers))


def test_fire(api, server):
    ns = {"namespace": "fires", "timer": "now"}
    check("404: nothing to fire", api.fireTimer(server, **ns).status == 404)
    api.putTimer(server, {"after": "1h"}, **ns)
    check("200: it is due", api.fireTimer(server, **ns).status == 200)
    check("400: it takes no fields", api.fireTimer(server, raw='{"after": "1h"}', headers={"Content-Type": "application/json"}, **ns).status == 400)
    api.lease(server, {"wait": "10s"}, namespace="fires")
    check("409: it is leased", api.fireTimer(server, **ns).status == 409)


def test_schedules(api, server):
    ns = {"namespace": "rota", "schedule": "daily"}
    body = {"cron": "0 9 * * *", "zone": "UTC"}
    missing = [api.getSchedule(server, **ns), api.deleteSchedule(server, **ns), api.changeSchedule(server, {}, **ns),
               api.previewSchedule(server, **ns), api.triggerSchedule(server, **ns),
               api.backfillSchedule(server, {"from": 1767225600000, "to": 1767229200000}, **ns)]
    check("404: no such schedule", [a.status for a in missing] == [404] * 6, *map(str, missing))
    check("201: a new schedule", api.putSchedule(server, body, **ns).status == 201)
    check("200: the same again", api.putSchedule(server, body, **ns).status == 200)
    check("412: only if it is new", api.putSchedule(server, body, headers={"If-None-Match": "*"}, **ns).status == 412)
    check("400: no rule", api.putSchedule(server, {"payload": 1}, **ns).status == 400)
    check("200: changed", api.changeSchedule(server, {"paused": True}, **ns).json["paused"] is True)
    check("400: a bad change", api.changeSchedule(server, {"cron": "tea"}, **ns).status == 400)
    check("200: read", api.getSchedule(server, **ns).json["next"] is None)
    check("200: listed", [s["name"] for s in api.listSchedules(server, namespace="rota").json["schedules"]] == ["daily"])
    check("200: previewed", len(api.previewSchedule(server, **ns).json["occurrences"]) == 10)
    check("200: previewed unsaved", len(api.previewUnsaved(server, body, query={"n": 3}).json["occurrences"]) == 3)
    check("400: previewed unsaved", api.previewUnsaved(server, {"every": "1ms"}).status == 400)
    check("202: triggered", api.triggerSchedule(server, **ns).status == 202)
    span = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-03T00:00:00Z"}
    check("202: backfilled", api.backfillSchedule(server, span, **ns).json == {"made": 2})
    check("400: no span", api.backfillSchedule(server, {"from": 1}, **ns).status == 400)
    leased = api.lease(server, LEASE_WAIT, namespace="rota").json["timers"]
    check("occurrences say whose they are", {timer["schedule"] for timer in leased} == {"daily"}, leased)
    check("204: deleted", api.deleteSchedule(server, **ns).status == 204)


def test_login(api):
    page = {"Foliot-UI": "1"}
    path = os.path.join(folder(), "foliot.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(token_section("w", "writes", "write"))
    with Server("--config", path) as server:
        check("401: a wrong token", api.signIn(server, {"token": "tea"}, headers=page).status == 401)
        check("400: no token", api.signIn(server, {}, headers=page).status == 400)
        check("403: not from the page", api.signIn(server, {"token": "writes"}).status == 403)
        answer = api.signIn(server, {"token": "writes"}, headers=page)
        cookie = {"Cookie": answer.headers["set-cookie"].split(";")[0]}
        check("204: signed in", answer.status == 204)
        check("200: the login is known", api.whoami(server, headers=cookie).json["rights"] == ["write"])
        check("403: not from the page", api.signOut(server, headers=cookie).status == 403)
        check("204: signed out", api.signOut(server, headers={**cookie, **page}).status == 204)
        check("401: the login has ended", api.whoami(server, headers=cookie).status == 401)


def pages(operation, server, query):
    """All pages of a list, as a client that follows cursors gets them."""
    found, cursor = [], None
    while True:
        page = operation(server, query={**query, **({"cursor": cursor} if cursor else {})}).json
        found += page["timers"]
        cursor = page.get("cursor")
        if not cursor:
            return found


def test_lists(api, server):
    many = [{"op": "create", "namespace": NAMESPACE, "name": f"page-{i}", "after": "1h"} for i in range(25)]
    api.batch(server, raw="\n".join(json.dumps(line) for line in many))
    names = sorted(timer["name"] for timer in pages(api.listTimers, server, {"prefix": "page-", "limit": 7}))
    check("pages have every timer once", names == sorted(line["name"] for line in many), names)
    dry = api.cancelTimers(server, query={"prefix": "page-", "dry_run": "true"}).json
    check("a dry run counts", dry == {"matched": 25, "cancelled": 0, "dry_run": True}, dry)
    none = api.cancelTimers(server, query={"prefix": "page-", "due_before": "0"}).json
    check("nothing is due before 1970", none["matched"] == 0, none)
    unclear = [
        server.call("DELETE", "/v1/timers/demo?prefix=page-&dry_run" + more)
        for more in ["", "=", "=tru", "=trueeeeee", "=%"]
    ]
    check(
        "what may be a dry run is none and not the other", [a.status for a in unclear] == [400] * 5, *map(str, unclear)
    )
    wet = api.cancelTimers(server, query={"prefix": "page-"}).json
    check("and then they are cancelled", wet == {"matched": 25, "cancelled": 25, "dry_run": False}, wet)
    check("all of a namespace are not cancelled by accident", api.cancelTimers(server).status == 400)
    ns = {"namespace": "removed"}
    api.putTimer(server, {"after": "1h"}, timer="one", **ns)
    removed = [api.deleteNamespace(server, query=query, **ns).status for query in (None, {"all": "no"}, {"all": "true"})]
    check("a namespace is removed only if it is empty, or all of it is meant", removed == [409, 400, 204], removed)


def test_pull(api, server):
    ns = {"namespace": "pull"}
    api.putTimer(server, {"after": "0s", "payload": [1]}, timer="one", **ns)
    leased = api.lease(server, LEASE_WAIT, **ns).json["timers"]
    check("a due timer is leased", [timer["payload"] for timer in leased] == [[1]], leased)
    api.putTimer(server, {"after": "0s", "payload": 2}, timer="two", **ns)
    two = api.lease(server, LEASE_WAIT, **ns).json["timers"][0]
    busy = [
        api.changeTimer(server, {"after": "1h"}, timer=two["id"], **ns),
        api.cancelTimer(server, timer=two["id"], **ns),
    ]
    check("409: while it is leased", [answer.status for answer in busy] == [409] * 2, *map(str, busy))
    acks = [{"lease": leased[0]["lease"], "result": "done"}, {"lease": two["lease"], "result": "dead"}]
    said = api.acknowledge(server, {"acks": acks}).json
    check("leases are settled", said == {"settled": 2, "unknown": []}, said)
    check("once", api.acknowledge(server, {"acks": acks[:1]}).json == {"settled": 0, "unknown": [acks[0]["lease"]]})
    dead = await_(lambda: api.listDead(server, **ns).json["timers"], "the dead letter is there")
    name = {"id": dead[0]["id"], **ns}
    check("the payload of a dead letter", api.getDeadPayload(server, **name).status == 200)
    check("a dead letter says why", api.getDead(server, **name).json["reason"] != "")
    raised = api.redriveDead(server, **name)
    check("it can be raised", raised.status == 200, raised)
    again = api.lease(server, LEASE_WAIT, **ns).json["timers"][0]
    api.acknowledge(server, {"acks": [{"lease": again["lease"], "result": "dead"}]})
    dead = await_(lambda: api.listDead(server, **ns).json["timers"], "it is dead again")
    name = {"id": dead[0]["id"], **ns}
    past = api.listHistory(server, **ns)
    check("history", [row["result"] for row in past.json["history"]] == ["dead"] * 2, past)
    check("204: history is erased", api.eraseHistory(server, query={"id": dead[0]["id"]}, **ns).status == 204)
    check("204: deleted", api.deleteDead(server, **name).status == 204)
    gone = [api.getDead(server, **name), api.redriveDead(server, **name), api.deleteDead(server, **name)]
    check("404: gone", [answer.status for answer in gone] == [404] * 3, *map(str, gone))


class Events:
    """Listens until it is closed."""

    def __init__(self, api, server, query=None):
        self.api, self.connection = api, http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
        self.connection.request("GET", api.events.url(query))
        self.response = self.connection.getresponse()
        first = Answer(self.response.status, self.response.headers, b"")
        api.judge(api.events, first)
        self.response.readline()

    def next(self):
        """The next event: its name, its data."""
        name = None
        while line := self.response.readline().decode():
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                return name, json.loads(line[6:])
        return None, None

    def close(self):
        self.connection.close()


def test_events(api, server):
    schema = api.events.responses["200"]["content"]["text/event-stream"]["schema"]["contentSchema"]
    ns = {"namespace": "watched"}
    events = Events(api, server, ns)
    api.putTimer(server, {"after": "1h"}, **ns)
    api.cancelTimer(server, **ns)
    for result in ["done", "retry", "dead"]:
        policy = {"max_attempts": 1}
        api.putTimer(server, {"after": "0s", "retry": policy}, timer=result, **ns)
        lease = api.lease(server, LEASE_WAIT, **ns).json["timers"][0]["lease"]
        api.acknowledge(server, {"acks": [{"lease": lease, "result": result}]})
    wanted = ["scheduled", "cancelled"] + ["scheduled", "fired"] + ["scheduled", "failed", "dead"] * 2
    got, errors = [], []
    for _ in wanted:
        name, data = events.next()
        got.append(name)
        errors += api.schemas.errors(schema, data, closed=True) + ([] if data["type"] == name else ["another type"])
    check("events tell what happened", sorted(got) == sorted(wanted), got)
    check("as documented", not errors, *errors)
    events.close()


def test_clock(api, server, tests):
    check("409: real time cannot be turned", api.turnClock(server, {"advance": "1d"}).status == 409)
    check("400: nor can a test clock be turned back", api.turnClock(tests, {"to": 0}).status == 400)
    api.getClock(tests)
    check("413: a turn that is too large", api.turnClock(tests, raw=" " * (3 << 20)).status == 413)


# --- Callbacks


def test_callbacks(api, server):
    receiver = Receiver()
    ns = {"namespace": "signed"}
    api.putNamespace(server, api.putNamespace.bodies()[0], **ns)
    target = receiver.url + "/here"
    made = api.createTimer(
        server, {"after": "0s", "target": target, "payload": {"order": 4711}, "headers": {"X-Tenant": "7"}}, **ns
    )
    call = receiver.await_calls(1)[0]
    headers, body = call.headers, call.body
    node = api.document["webhooks"]["timer"]["post"]
    wrong = []
    for parameter in node["parameters"]:
        value = headers.get(parameter["name"])
        if value is None and parameter["name"].startswith("foliot-") and not parameter["required"]:
            continue  # only some timers have it
        if value is None:
            wrong.append(f"{parameter['name']} is missing")
        else:
            wrong += api.schemas.errors(parameter["schema"], value, at=parameter["name"])
    check("a callback has the headers that are documented", not wrong, *wrong)
    check(
        "and the body, the ID and the headers of its timer",
        json.loads(body) == {"order": 4711}
        and headers["webhook-id"] == made.json["id"]
        and headers["x-tenant"] == "7"
        and headers["content-type"] in node["requestBody"]["content"],
        headers,
        body,
    )


# --- Rights


def test_rights(api):
    config = token_section("r", "reads", "read") + token_section("w", "writes", "write")
    path = os.path.join(folder(), "foliot.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(config)
    with Server("--config", path) as server:
        for operation in api.operations.values():
            none = operation(server)
            if operation.open:
                check(f"{operation.id} is open", none.status != 401, none)
                continue
            check(f"401: {operation.id} needs a token", none.status == 401, none)
            wrong = operation(server, headers={"Authorization": "Bearer tea"})
            check(f"401: {operation.id} needs one that is known", wrong.status == 401, wrong)
            if operation.id == "whoami":  # any token will do
                continue
            reads = operation.method == "GET" or operation.id == "previewUnsaved"
            other = "writes" if reads else "reads"
            forbidden = operation(server, headers={"Authorization": "Bearer " + other})
            check(f"403: {operation.id} needs the right", forbidden.status == 403, forbidden)


def test_pages(api):
    page = {"Origin": "http://localhost", "Host": "localhost", "Content-Type": "text/plain"}
    with Server("--test-clock") as server:
        for operation in api.operations.values():
            if "415" in operation.responses:
                answer = operation(server, raw="{}", headers=page)
                check(f"415: {operation.id} takes only JSON from a page", answer.status == 415, answer)


def test_limits(api):
    with Server("--max-timers-per-namespace", "1", "--no-echo") as server:
        first = [
            api.createTimer(server, {"after": "1h"}).status,
            api.createTimer(server, {"after": "1h"}).status,
            api.putTimer(server, {"after": "1h"}).status,
        ]
        check("429: a namespace that is full", first == [201, 429, 429], first)
        check("404: an echo that is switched off", api.echo(server).status == 404)


def test_rate(api):
    with Server("--max-request-rate", "1") as server:
        for operation in api.operations.values():
            query = {"type": "none"} if operation.id == "events" else None
            await_(lambda: operation(server, query=query).status == 429, f"429: {operation.id}")
        check("429: too many requests, to wherever", True)


def test_seen(api):
    for operation in api.operations.values():
        documented = {status for status in operation.responses if status != "default"}
        seen = {status for identity, status in api.seen if identity == operation.id}
        missing = documented - seen - set(UNREACHABLE)
        check(f"{operation.id}: every status that can be had was seen", not missing, sorted(missing))


def main():
    with Server() as server, Server("--test-clock") as tests:
        api = Api(server.call("GET", "/openapi.json").json)
        test_document(api)
        test_validator(server)
        test_paths(api, server)
        test_bad_http(api, server)
        test_parameters(api, server)
        test_all_bodies(api, server, tests)
        test_batch(api, server)
        test_timers(api, server)
        test_fire(api, server)
        test_schedules(api, server)
        test_lists(api, server)
        test_pull(api, server)
        test_events(api, server)
        test_clock(api, server, tests)
        test_callbacks(api, server)
        api.nothing_wrong("every answer was documented")
    test_rights(api)
    test_login(api)
    test_pages(api)
    test_limits(api)
    test_rate(api)
    api.nothing_wrong("refusals are documented, too")
    test_seen(api)
    print(f"1..{checks}", flush=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
