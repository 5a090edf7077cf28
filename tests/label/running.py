"""Labelling servers for tests: in this process on a free port, or as the command that a user types."""

from __future__ import annotations

import functools
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rehead.label.app import build
from rehead.label.opening import open_project
from rehead.label.options import LabelOptions, check_label
from rehead.label.project import Project
from rehead.label.service import LabelService
from rehead.runs.run import Run, save
from rehead.use.serve.server import Server, bind
from tests.use.serve.running import Running, classifier

GOOD = ("fine", "warm", "bright", "lovely", "honest", "clever", "moving", "superb")
BAD = ("dull", "cold", "dark", "awful", "false", "stupid", "boring", "poor")
PLAIN = ("the", "a", "of", "with", "film", "book", "parcel", "story", "ending", "music", "evening", "friend", "shop")


def made_up(count: int, seed: int = 0) -> list[str]:
    """Texts of a dozen words, every other one of which is meant well."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        tone = GOOD if number % 2 == 0 else BAD
        words = [chance.choice(tone if chance.random() < 0.35 else PLAIN) for _ in range(12)]
        words[chance.randrange(12)] = chance.choice(tone)
        found.append(" ".join(words))
    return found


def meant_well(text: str) -> bool:
    """The true label of such a text."""
    words = text.split()
    return sum(word in GOOD for word in words) > sum(word in BAD for word in words)


@functools.cache
def base(folder: Path) -> Path:
    """A tiny base, so that none is pretrained."""
    run = classifier()
    save(Run(run.model, run.tokenizer, details={"objective": "bag"}), folder / "tiny-base")
    return folder / "tiny-base"


def write_texts(folder: Path, texts: Sequence[str]) -> Path:
    path = folder / "texts.txt"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


class Labelling(Running):
    """A labelling server in this process."""

    def __init__(self, options: LabelOptions, token: str | None = None) -> None:
        check_label(options, token)
        self.options = options  # type: ignore[assignment]
        self.held = ExitStack()
        self.project: Project = self.held.enter_context(open_project(options, lambda line: None))
        self.service = LabelService(self.project, options)  # type: ignore[assignment]
        self.guard = build(self.labels, options, token)
        self.labels.start()
        self.server = Server(self.guard, self.labels, options)
        self.socket = bind("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.005)

    @property
    def labels(self) -> LabelService:
        return self.service  # type: ignore[return-value]

    def stop(self) -> None:
        super().stop()
        self.held.close()

    def call(self, path: str, page: str = "page-1", by: str = "anna", **values: Any) -> Any:
        status, answer = self.post(path, {"page": page, "by": by, **values})
        assert status == 200, answer
        return answer

    def next(self, page: str = "page-1", **values: Any) -> dict[str, Any]:
        [found] = self.call("/next", page, **values)["texts"]
        return dict(found)


@contextmanager
def labelling(folder: Path, lines: Sequence[str], *, token: str | None = None, **options: Any) -> Iterator[Labelling]:
    """Serve a project of these texts."""
    given: dict[str, Any] = {"labels": ("good", "bad"), "out": folder / "project", "quiet": True, **options}
    if "texts" not in given:
        given["texts"] = [str(write_texts(folder, lines))]
    server = Labelling(LabelOptions(**given), token)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def command(folder: Path, *arguments: str, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the command, and give its process and port; it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rehead", "label", *arguments, "--port", str(port)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        said = ""
        assert process.stdout is not None
        while (at := re.search(r"^labelling .*:(\d+)$", said, re.MULTILINE)) is None:
            line = process.stdout.readline()
            assert line, f"it does not serve: {said}"
            said += line
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield process, int(at[1])
    finally:
        process.kill()
        process.wait(20)
