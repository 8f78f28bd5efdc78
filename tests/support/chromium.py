"""Drives a headless Chromium over a pipe, with its DevTools protocol, for the tests of HTML pages.

    with Chromium() as browser:
        page = browser.open("page.html")
        page.run("document.title")
        page.key("ArrowRight")
        assert not page.errors

The protocol: https://chromedevtools.github.io/devtools-protocol/. Only the Python standard library is needed.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
KEYS = {" ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9,
        "Enter": 13}  # fmt: skip

# Chromium reads commands from descriptor 3 and writes answers to 4.
START = """
import os, sys
from fcntl import F_DUPFD, fcntl
pipes = [fcntl(int(fd), F_DUPFD, 10) for fd in sys.argv[1:3]]
for fd, wanted in zip(pipes, (3, 4)):
    os.dup2(fd, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""


def program() -> str | None:
    """Returns the path of Chromium; None if it is not installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


needs_chromium = pytest.mark.skipif(
    program() is None or os.name != "posix", reason="Chromium is not installed (its pipe is for POSIX systems)"
)


class Chromium:
    """A browser with a new, empty profile, for use in a `with` statement."""

    def __enter__(self) -> Chromium:
        self.profile = tempfile.TemporaryDirectory(prefix="tensorgrad-chromium-", ignore_cleanup_errors=True)
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()
        start = [sys.executable, "-c", START, str(to_browser), str(from_browser)]
        command = [*start, program(), *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), stdout=quiet, stderr=quiet)
        os.close(to_browser)
        os.close(from_browser)
        self.numbers, self.buffer, self.events = itertools.count(1), b"", []
        return self

    def __exit__(self, *exception) -> None:
        try:
            self.call("Browser.close")
            self.process.wait(20)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.write)
        os.close(self.read)
        self.profile.cleanup()

    def call(self, method: str, session: str | None = None, **parameters) -> dict:
        """Sends one command and waits for its answer; events received in between are kept in `events`."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive(60)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def receive(self, seconds: float) -> dict:
        """Returns the next message. Raises: RuntimeError if none arrives in time."""
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self.read, 1 << 16) if ready else b""
            if not part:
                raise RuntimeError("Chromium does not answer")
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def open(
        self, path: str | Path, *, width: int = 1280, height: int = 900, dark: bool = False, mark: str = ""
    ) -> Page:
        """Opens a file in a new tab and waits until it is loaded. `mark` follows a `#` in its address."""
        return Page(self, Path(path).resolve().as_uri() + (f"#{mark}" if mark else ""), width, height, dark)


class Page:
    """One tab."""

    def __init__(self, browser: Chromium, address: str, width: int, height: int, dark: bool):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Accessibility", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        calm = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, calm])
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def call(self, method: str, **parameters) -> dict:
        """Sends one command to this tab."""
        return self.browser.call(method, self.session, **parameters)

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the window, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def run(self, expression: str):
        """Returns the value of a JavaScript expression. Raises: RuntimeError if it throws."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", "JavaScript threw"))
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 120.0):
        """Waits until the expression is true, and returns its value. Raises: TimeoutError."""
        end = time.monotonic() + seconds
        while True:
            value = self.run(expression)
            if value:
                return value
            if time.monotonic() > end:
                raise TimeoutError(f"never came true: {expression}")
            time.sleep(0.02)

    def key(self, name: str) -> None:
        """Presses and releases a key, as on a keyboard."""
        code = KEYS[name]
        parts = {"key": name, "code": "Space" if name == " " else name, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **parts, **({"text": " "} if name == " " else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **parts)

    def click(self, selector: str) -> None:
        """Clicks the middle of an element with the left mouse button."""
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def middle(self, selector: str) -> tuple[float, float]:
        """Scrolls an element into view and returns the position of its center."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{found}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = self.run(
            f"(() => {{ const b = {found}.getBoundingClientRect(); return [b.x, b.y, b.width, b.height] }})()"
        )
        return box[0] + box[2] / 2, box[1] + box[3] / 2

    def swipe(self, selector: str, right: float) -> None:
        """Swipes sideways over an element."""
        x, y = self.middle(selector)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchMove", touchPoints=[{"x": x + right, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def screenshot(self, path: str | Path) -> None:
        """Saves a screenshot as a PNG file."""
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def tree(self) -> list[dict]:
        """Returns the accessibility tree: `role`, `name`, `value` and `properties` of each node."""
        found = []
        for node in self.call("Accessibility.getFullAXTree")["nodes"]:
            if not node.get("ignored"):
                plain = {k: node.get(k, {}).get("value") for k in ("role", "name", "value", "description")}
                plain["properties"] = {p["name"]: p["value"].get("value") for p in node.get("properties", [])}
                found.append(plain)
        return found

    @property
    def errors(self) -> list[str]:
        """Returns the exceptions and errors on the page so far."""
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                found.append(details.get("exception", {}).get("description") or details["text"])
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                found.append(parameters["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert"):
                found.append(str(parameters["args"]))
        return found

    @property
    def requests(self) -> list[str]:
        """Returns the addresses that the page requested."""
        events = (e for e in self.browser.events if e.get("sessionId") == self.session)
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
