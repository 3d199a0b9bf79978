# SPDX-License-Identifier: MIT
"""A browser for the tests of the dashboard: Debian's chromium, driven by chromedriver over the WebDriver protocol.

Everything that the page must not do is collected while it runs: console errors, violations of the content security policy and
requests to another origin. `Browser.complaints()` returns them.
"""

import base64
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse

PATIENCE = 60  # seconds until something counts as hung

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--disable-dev-shm-usage", "--disable-default-apps", "--disable-extensions", "--no-default-browser-check",
         "--disable-features=Translate,OptimizationHints,MediaRouter", "--hide-scrollbars", "--force-color-profile=srgb"]

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element in WebDriver's JSON


def missing():
    """What the tests need and this machine does not have, as a sentence; empty if nothing is missing."""
    for program in ("chromium", "chromedriver"):
        if not shutil.which(program):
            return f"{program} is not installed (Debian packages: chromium, chromium-driver)"
    return ""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class WebDriverError(Exception):
    pass


class Browser:
    def __init__(self, width=1280, height=900, dark=False, zone="Europe/Berlin"):
        self.folder = tempfile.mkdtemp(prefix="foliot-ui-")
        self.port = free_port()
        self.log = open(os.path.join(self.folder, "driver.log"), "w")
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}", "--allowed-ips=127.0.0.1"], stdout=self.log, stderr=self.log,
                                       start_new_session=True, env={**os.environ, "HOME": self.folder, "TZ": zone})
        self.session = ""
        self.found = []  # complaints so far
        try:
            self._begin(width, height, dark)
        except BaseException:
            self.close()
            raise

    def _begin(self, width, height, dark):
        self.until(self._ready, "chromedriver does not start")
        options = {"args": FLAGS + [f"--user-data-dir={self.folder}/profile", f"--window-size={width},{height}"]}
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "timeouts": {"script": PATIENCE * 1000, "pageLoad": PATIENCE * 1000}}}})
        self.session = "/session/" + answer["sessionId"]
        self.cdp("Network.enable")
        self.look(width, height, dark)

    def _ready(self):
        try:
            return self._call("GET", "/status")["ready"]
        except OSError:
            return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.session:
            try:
                self._call("DELETE", self.session)
            except (OSError, WebDriverError):
                pass
        try:
            os.killpg(self.driver.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.driver.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- The protocol ---

    def _call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE * 2)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            value = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(value, dict) and value.get("error"):
            raise WebDriverError(f"{value['error']}: {value.get('message', '')[:500]}")
        return value

    def call(self, method, path, body=None):
        return self._call(method, self.session + path, body)

    def cdp(self, command, **params):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def run(self, script, *args):
        """Runs the body of a function in the page; it may return a promise."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    # --- What a viewer does ---

    def look(self, width, height, dark=False, scale=1):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def go(self, route):
        self.run("location.hash = arguments[0]", route)

    def find(self, css, text=None):
        """The first visible element that matches and contains the text; waits for it."""
        script = """
            const [css, text] = arguments;
            return [...document.querySelectorAll(css)].find((el) => el.checkVisibility() && (text === null || el.textContent.includes(text))) ?? null;"""
        return self.until(lambda: self.run(script, css, text), f"there is no {css!r} with {text!r}")

    def none(self, css, text=None):
        """Whether no visible element matches now."""
        return self.run("""const [css, text] = arguments;
            return ![...document.querySelectorAll(css)].some((el) => el.checkVisibility() && (text === null || el.textContent.includes(text)));""", css, text)

    def await_none(self, css, text=None):
        self.until(lambda: self.none(css, text), f"{css!r} with {text!r} stays")

    def click(self, css, text=None):
        self.until(lambda: self._clicked(self.find(css, text)), f"{css!r} with {text!r} cannot be clicked")

    def _clicked(self, element):
        """False if the page has drawn the element anew meanwhile: a live page does that."""
        try:
            self.run("arguments[0].scrollIntoView({block: 'center'})", element)
            self.call("POST", f"/element/{element[ELEMENT]}/click", {})
        except WebDriverError as error:
            if not str(error).startswith("stale element reference"):
                raise
            return False
        return True

    def type(self, css, content):
        element = self.find(css)
        self.call("POST", f"/element/{element[ELEMENT]}/clear", {})
        if content:
            self.call("POST", f"/element/{element[ELEMENT]}/value", {"text": content})

    def set(self, css, value):
        """Sets a control as if the viewer had done it; for those whose keys depend on the language."""
        element = self.find(css)
        self.run("const [el, value] = arguments; el.value = value; for (const type of ['input', 'change']) el.dispatchEvent(new Event(type, {bubbles: true}));",
                 element, value)

    def press(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def drag(self, css, by_x):
        element = self.find(css)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        box = self.run("const b = arguments[0].getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]", element)
        x, y = int(box[0]), int(box[1])
        move = {"type": "pointerMove", "duration": 50, "origin": "viewport", "y": y}
        self.call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [
            {**move, "x": x}, {"type": "pointerDown", "button": 0}, {**move, "x": x + by_x // 2}, {**move, "x": x + by_x}, {"type": "pointerUp", "button": 0}]}]})

    def hide(self, hidden):
        """Makes the page believe that its tab is hidden, or visible again."""
        self.run("""const hidden = arguments[0];
            Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});
            document.dispatchEvent(new Event('visibilitychange'));""", hidden)

    def text(self, css="body"):
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", css)

    def await_text(self, content, css="main"):
        self.until(lambda: content in self.text(css), f"{content!r} does not appear in {css}", lambda: self.text(css))

    def picture(self, path, full=False):
        """Writes what the viewer sees, or the whole page, as PNG or WebP."""
        kind = path.rsplit(".", 1)[1]
        more = {"quality": 85} if kind == "webp" else {}
        if full:
            size = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
            more |= {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        picture = self.cdp("Page.captureScreenshot", format=kind, **more)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture))

    @staticmethod
    def until(condition, what, detail=lambda: ""):
        end = time.monotonic() + PATIENCE
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"{what}; {detail()}")
            time.sleep(0.05)

    # --- What the page must not do ---

    def logs(self, kind):
        return self.call("POST", "/se/log", {"type": kind})

    def requests(self):
        """URLs that the page has requested since the last call."""
        urls = []
        for entry in self.logs("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                urls.append(message["params"]["request"]["url"])
        return urls

    def complaints(self, origin, allowed=()):
        """Console errors, violations of the policy and requests elsewhere. `allowed`: parts of messages that a test provokes."""
        for entry in self.logs("browser"):
            if entry["level"] in ("SEVERE", "WARNING") and not any(part in entry["message"] for part in allowed):
                self.found.append(entry["message"])
        for url in self.requests():
            if urllib.parse.urlsplit(url).scheme in ("http", "https", "ws", "wss") and not url.startswith(origin + "/"):
                self.found.append(f"request to {url}")
        return self.found
