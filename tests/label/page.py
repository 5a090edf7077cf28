"""The labelling page in a real browser: what somebody presses and sees there."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import Any

from tests.browser import Browser
from tests.use.serve.running import wait_until

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "Backspace": 8, "ArrowDown": 40, "ArrowRight": 39, " ": 32}


class LabelPage:
    """The page of a labelling server, as its reader sees it."""

    def __init__(
        self, window: Browser, port: int, *, width: int = 1200, phone: bool = False, ready: bool = True
    ) -> None:
        self.window, self.port = window, port
        window.open("about:blank")  # the page before may still be asking a server that has ended
        window.requests()
        window.complaints()
        window.resize(width, 844, phone=phone)
        self.open()
        if ready:
            self.wait("document.getElementById('text').textContent !== ''")

    def open(self) -> None:
        self.window.open(f"http://127.0.0.1:{self.port}/")

    def run(self, script: str) -> Any:
        return self.window.run(script)

    def wait(self, what: str, seconds: float = 20) -> None:
        wait_until(lambda: self.run(f"return Boolean({what})"), seconds)

    def text(self, name: str) -> str:
        return str(self.run(f"return document.getElementById({name!r}).textContent"))

    def shown(self, name: str) -> bool:
        return bool(self.run(f"return document.getElementById({name!r}).checkVisibility()"))

    def click(self, name: str) -> None:
        self.run(f"document.getElementById({name!r}).click()")

    def set(self, name: str, value: str) -> None:
        """Choose or write a value, as a person does."""
        self.run(
            f"const e = document.getElementById({name!r}); e.value = {json.dumps(value)};"
            "for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, {bubbles: true}));"
        )

    def key(self, key: str) -> None:
        """Press a key: one that is named, or one that writes a character."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        values = {"key": key, "text": text, "windowsVirtualKeyCode": KEYS.get(key, 0)}
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.window.tell("Input.dispatchKeyEvent", {"type": kind, **values})

    def keys(self, text: str) -> None:
        for each in text:
            self.key(each)

    def press(self, key: str) -> str:
        """Press a key that gives a label; wait until another text is there, and give it."""
        before = self.text("text")
        self.key(key)
        shown = json.dumps(before)
        self.wait(
            f"document.getElementById('text').textContent && document.getElementById('text').textContent !== {shown}"
        )
        return self.text("text")

    def saved(self) -> None:
        """Wait until all is saved."""
        self.wait("!document.getElementById('saved').textContent.startsWith('saving')")
        time.sleep(0.05)

    def heard(self) -> dict[str, list[str]]:
        """The names in the accessibility tree, by role."""
        found: dict[str, list[str]] = defaultdict(list)
        for node in self.window.tell("Accessibility.getFullAXTree", {})["nodes"]:
            if not node.get("ignored"):
                found[node.get("role", {}).get("value", "")].append(node.get("name", {}).get("value", "").strip())
        return found

    def overflow(self) -> int:
        """How much wider the page is than the screen."""
        return int(self.run("return document.documentElement.scrollWidth - window.innerWidth"))
