"""A chromium without a window, driven over a pipe by its DevTools protocol. Nothing but Python is needed for that."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find():
    """Its path; None where there is none."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


class Page:
    """One page that is opened again and again. What it says on its console is kept in `said`."""

    def __init__(self, program):
        self.folder = tempfile.mkdtemp()
        to_read, self.to = os.pipe()
        self.of, to_write = os.pipe()
        # It reads what it is asked from 3 and writes answers to 4, whatever the numbers are here.
        command = 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"'
        options = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
            "--no-first-run", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
            "--force-color-profile=srgb", "--font-render-hinting=none", f"--user-data-dir={self.folder}", "about:blank",
        ]
        self.run = subprocess.Popen(
            ["bash", "-c", command, str(to_read), str(to_write), program, *options], pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.rest = b""
        self.number = 0
        self.session = None
        self.events = []
        self.said = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.ask(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.ask("Browser.close")
            self.run.wait(timeout=20)
        except (OSError, subprocess.TimeoutExpired, RuntimeError):
            self.run.kill()
            self.run.wait()
        os.close(self.to)
        os.close(self.of)
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self, until):
        while b"\0" not in self.rest:
            if not select.select([self.of], [], [], max(0, until - time.monotonic()))[0]:
                raise RuntimeError("chromium does not answer")
            more = os.read(self.of, 1 << 20)
            if not more:
                raise RuntimeError("chromium has ended")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, seconds=60, **parameters):
        self.number += 1
        question = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            question["sessionId"] = self.session
        os.write(self.to, json.dumps(question).encode() + b"\0")
        until = time.monotonic() + seconds
        while True:
            answer = self.message(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def note(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.said.append(f"{parameters['type']}: {parameters['args']}")
        elif method == "Runtime.exceptionThrown":
            self.said.append(f"exception: {parameters['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.said.append(f"log: {parameters['entry']['text']}")
        elif method == "Page.javascriptDialogOpening":
            self.said.append(f"dialog: {parameters['message']}")
        elif method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.said.append(f"request: {url}")
        self.events.append(method)

    def open(self, path, width, height, scheme, scripts=True):
        """Shows a file at a width, `scheme` being light or dark."""
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        answer = self.ask("Page.navigate", url="file://" + os.path.abspath(path))
        if "errorText" in answer:
            raise RuntimeError(f"{path}: {answer['errorText']}")
        until = time.monotonic() + 60
        while "Page.loadEventFired" not in self.events:
            self.note(self.message(until))

    def value(self, expression):
        """What JavaScript says."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def press(self, key, number, **more):
        """A key, by its name and its number in Windows, which is what chromium goes by."""
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=number, **more)

    def picture(self, path, clip=None, whole=False):
        """A PNG of what is seen, of a part {x, y, width, height} of the page, or of the whole page."""
        more = {}
        if whole:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"]}
        if clip:
            more = {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True}
        answer = self.ask("Page.captureScreenshot", format="png", **more)
        with open(path, "wb") as file:
            file.write(base64.b64decode(answer["data"]))
