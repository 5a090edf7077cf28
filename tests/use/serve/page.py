"""The page at `/` in a real browser, for tests: what a reader types, presses, drops and sees there."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.browser import Browser
from tests.use.serve.running import Running, wait_until

WIDE, PHONE = 1200, 360
KEYS = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowUp": 38, "ArrowDown": 40, "Home": 36}


class Page:
    """The page of a server, as its reader sees it."""

    def __init__(self, window: Browser, server: Running) -> None:
        self.window, self.server = window, server
        window.requests()
        window.complaints()
        window.resize(WIDE)
        window.open(f"http://127.0.0.1:{server.port}/")
        self.wait(
            "document.getElementById('name').textContent !== '…' || !document.getElementById('token-card').hidden"
        )

    def run(self, script: str) -> Any:
        return self.window.run(script)

    def wait(self, what: str) -> None:
        wait_until(lambda: self.run(f"return Boolean({what})"), 20)

    def text(self, name: str) -> str:
        return str(self.run(f"return document.getElementById({name!r}).textContent"))

    def shown(self, name: str) -> bool:
        return bool(self.run(f"return document.getElementById({name!r}).checkVisibility()"))

    def focus(self) -> str:
        """Name what has the focus."""
        return str(self.run("const e = document.activeElement; return e.id || e.dataset.name || e.className"))

    def type(self, text: str) -> None:
        """Put a text in as if it had been pasted, and wait until all answers to it are there."""
        self.put(text)
        self.settled()

    def put(self, text: str) -> None:
        """Put a text in as if it had been pasted."""
        script = f"const t = document.getElementById('text'); t.value = {json.dumps(text)};"
        self.run(script + "t.dispatchEvent(new Event('input'));")

    def marked(self) -> list[list[str]]:
        """Give the words that are marked, each with how."""
        marks = "[...document.querySelectorAll('#behind span')].map((each) => [each.textContent, each.className])"
        found: list[list[str]] = self.run("return " + marks)
        return found

    def settled(self) -> None:
        self.wait("!document.getElementById('verdict').classList.contains('stale')")
        wait_until(lambda: self.server.service.idle)
        time.sleep(0.3)

    def key(self, key: str) -> None:
        """Press a key: one that is named, or one that writes a character."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        values = {"key": key, "text": text, "windowsVirtualKeyCode": KEYS.get(key, 0)}
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.window.tell("Input.dispatchKeyEvent", {"type": kind, **values})

    def keys(self, text: str) -> None:
        """Write a text, key by key."""
        for each in text:
            self.key(each)

    def tab_to(self, name: str) -> None:
        """Press the tabulator until this has the focus."""
        met = []
        while name not in met:
            self.key("Tab")
            met.append(self.focus())
            assert len(met) < 40, f"{name} is not among {met}"

    def drop_file(self, name: str, content: str) -> None:
        """Drop a file on the page."""
        self.run(
            f"const held = new DataTransfer(); held.items.add(new File([{json.dumps(content)}], {name!r}));"
            "document.getElementById('drop').dispatchEvent("
            "new DragEvent('drop', {dataTransfer: held, bubbles: true, cancelable: true}));"
        )
        self.wait("!document.getElementById('file-form').hidden || !document.getElementById('file-problem').hidden")
