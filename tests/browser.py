"""A real browser for tests of pages: headless Chromium, driven through chromedriver by plain HTTP.

WebDriver is JSON over HTTP, and the little of it that is needed here is no reason for a dependency. Nothing is
installed by tests: `scripts/browser.sh` does that, and without it these tests are skipped.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
]  # fmt: skip


class Browser:
    """One window."""

    def __init__(self, address: str, session: str) -> None:
        self.address, self.session = address, session

    def open(self, page: str) -> None:
        self._ask("url", {"url": page})

    def resize(self, width: int, height: int = 900, *, dark: bool = False, phone: bool = False) -> None:
        """Be a screen of this size, of somebody who likes it light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.tell("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", {"features": [scheme]})

    def tell(self, command: str, values: dict[str, Any]) -> Any:
        """Send a command of Chromium's own protocol."""
        return self._ask("goog/cdp/execute", {"cmd": command, "params": values})

    def run(self, script: str) -> Any:
        """Run a script in the page; give what it returns."""
        return self._ask("execute/sync", {"script": script, "args": []})

    def complaints(self) -> list[str]:
        """What the page has written to the console, errors of loading included."""
        return [entry["message"] for entry in self._ask("se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last call."""
        return [each["request"]["url"] for each in self.events("Network.requestWillBeSent")]

    def events(self, name: str) -> list[dict[str, Any]]:
        """What Chromium has told of this kind since any events were last asked for."""
        told = [json.loads(entry["message"])["message"] for entry in self._ask("se/log", {"type": "performance"})]
        return [each["params"] for each in told if each["method"] == name]

    def picture(self, path: Path) -> Path:
        """Save a picture of the whole page, however long it is."""
        size = self.tell("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.tell("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def _ask(self, what: str, values: dict[str, Any]) -> Any:
        return _post(f"{self.address}/session/{self.session}/{what}", values)


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile in this folder; end it afterwards."""
    driver = shutil.which("chromedriver")
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    if driver is None or binary is None:
        pytest.skip("needs chromium and chromedriver: scripts/browser.sh installs them")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(address, process)
        options = {"binary": binary, "args": [*ARGUMENTS, f"--user-data-dir={folder / 'profile'}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        session = _post(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        window = Browser(address, session)
        try:
            yield window
        finally:
            urllib.request.urlopen(urllib.request.Request(f"{address}/session/{session}", method="DELETE"), timeout=30)
    finally:
        process.terminate()
        process.wait(10)


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        assert process.poll() is None, "chromedriver does not start"
        try:
            urllib.request.urlopen(f"{address}/status", timeout=5)
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError("chromedriver does not answer")


def _post(address: str, values: dict[str, Any]) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(values).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(error.read().decode()) from None
