"""A headless Chromium over its debugging pipe: no driver, no package, no port."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60.0
"""Seconds for an answer: the machine may be busy."""

LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]]
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chromium reads commands from descriptor 3 and answers on 4."""

KEYS = {
    "Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
    "ArrowDown": 40, "Home": 36, "End": 35, "Backspace": 8,
}  # fmt: skip


def found() -> str:
    """The browser's path; empty if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), "")


class Page:
    """One page. ``errors``: what its console and scripts complained of; ``requests``: addresses that
    it asked for.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.errors: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.do(f"{domain}.enable")
        self.do("Performance.enable", timeDomain="threadTicks")

    def do(self, method: str, **params: Any) -> Any:
        """A command of the debugging protocol."""
        return self._browser.do(method, params, self._session)

    def open(self, path: Path) -> None:
        """Load a file, until its scripts have run."""
        self.errors.clear()
        self.requests.clear()
        self.do("Page.navigate", url=path.as_uri())
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression, which may be a promise."""
        got = self.do("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise AssertionError(got["exceptionDetails"])
        return got["result"].get("value")

    def wait(self, condition: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.run(condition):
            assert time.monotonic() < end, condition
            time.sleep(0.02)

    def click(self, x: float, y: float, count: int = 1) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.do(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count
            )

    def press(self, *keys: str) -> None:
        """Names of keys, or characters."""
        for key in keys:
            told = {"key": key, "windowsVirtualKeyCode": KEYS.get(key, 0)}
            if key == "Enter":
                told["text"] = "\r"
            elif key not in KEYS:
                told["text"] = key
            self.do("Input.dispatchKeyEvent", type="keyDown", **told)
            self.do("Input.dispatchKeyEvent", type="keyUp", key=key)

    def write(self, text: str) -> None:
        self.do("Input.insertText", text=text)

    def sized(self, width: int, height: int) -> None:
        self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def media(self, **features: str) -> None:
        """``media="print"``, ``prefers_color_scheme="dark"``."""
        told = [
            {"name": k.replace("_", "-"), "value": v} for k, v in features.items() if k != "media"
        ]
        self.do("Emulation.setEmulatedMedia", media=features.get("media", ""), features=told)

    def picture(self) -> bytes:
        """PNG of what is in sight."""
        return base64.b64decode(self.do("Page.captureScreenshot", format="png")["data"])

    def paper(self) -> bytes:
        """PDF as it would be printed."""
        return base64.b64decode(self.do("Page.printToPDF", printBackground=True)["data"])

    def busy(self) -> float:
        """Milliseconds that the page's main thread has worked."""
        told = self.do("Performance.getMetrics")["metrics"]
        return 1e3 * float(next(m["value"] for m in told if m["name"] == "TaskDuration"))

    def heard(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(json.dumps(params["args"])[:2000])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(json.dumps(params["entry"])[:2000])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])


class Browser:
    """A process, and the pipes to it."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._rest, self._numbers = b"", itertools.count(1)
        self._pages: dict[str, Page] = {}

    def page(self) -> Page:
        target = self.do("Target.createTarget", {"url": "about:blank"})["targetId"]
        told = self.do("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, told["sessionId"])
        self._pages[told["sessionId"]] = page
        return page

    def do(self, method: str, params: Mapping[str, Any], session: str = "") -> Any:
        number = next(self._numbers)
        told = {"id": number, "method": method, "params": params}
        self._send(told | ({"sessionId": session} if session else {}))
        while True:
            got = self._message()
            if got.get("id") == number:
                assert "error" not in got, (method, got["error"])
                return got["result"]
            if page := self._pages.get(got.get("sessionId", "")):
                page.heard(got["method"], got["params"])

    def _send(self, told: Mapping[str, Any]) -> None:
        data = json.dumps(told).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._read], [], [], PATIENCE)[0], "the browser does not answer"
            more = os.read(self._read, 1 << 20)
            assert more, "the browser ended"
            self._rest += more
        data, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(data)
        return found


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser with an empty profile in a folder."""
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    command = [
        *(sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out), found(), *OPTIONS),
        f"--user-data-dir={folder}",
        "about:blank",
    ]
    with subprocess.Popen(
        command,
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(ours_out, ours_in)
        finally:
            process.terminate()
            os.close(ours_out)
            os.close(ours_in)
