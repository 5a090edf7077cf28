"""Kill -9 at random moments: no label that was acknowledged is lost, and the same command goes on."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rehead.label.journal import Journal
from rehead.label.options import LabelOptions
from tests.label.running import Labelling, command, made_up, write_texts
from tests.use.serve.running import wait_until

TEXTS = made_up(400)


def ask(port: int, path: str, **values: Any) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        body = json.dumps({"page": "p", "by": "anna", **values})
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


class Forked:
    """A server in a child of this process, which has imported everything already."""

    def __init__(self, folder: Path, base: str) -> None:
        told, tell = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            given: dict[str, Any] = {"texts": [str(folder / "texts.txt")], "labels": ("good", "bad"), "base": [base]}
            server = Labelling(LabelOptions(**given, out=folder / "project", quiet=True))
            os.write(tell, b"%d\n" % server.port)
            while True:
                signal.pause()
        os.close(tell)
        with os.fdopen(told) as stream:
            self.port = int(stream.readline())
        self.code: int | None = None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        if self.code is None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.code = -9
        return self.code

    def wait(self, seconds: float) -> int:
        wait_until(lambda: self.poll() is not None, seconds)
        return self.code or 0


@contextmanager
def forked(folder: Path, base: str) -> Iterator[tuple[Any, int]]:
    server = Forked(folder, base)
    try:
        yield server, server.port
    finally:
        if server.poll() is None:
            server.kill()
            server.wait(20)


def commanded(folder: Path, base: str) -> AbstractContextManager[tuple[Any, int]]:
    return command(folder, "texts.txt", "--labels", "good,bad", "--out", "project", "--from", base, "--quiet")


@pytest.mark.parametrize(
    ("kills", "start"),
    [
        (10, forked),
        pytest.param(100, forked, marks=pytest.mark.slow),
        pytest.param(10, commanded, marks=pytest.mark.slow),
    ],
    ids=["ten", "a hundred", "the command"],
)
def test_nothing_that_was_acknowledged_is_lost(kills: int, start: Any, tmp_path: Path, tiny_base: str) -> None:
    write_texts(tmp_path, TEXTS)
    chance = random.Random(0)
    acknowledged: dict[int, int] = {}
    for _ in range(kills):
        with start(tmp_path, tiny_base) as (process, port):
            kill = threading.Timer(chance.uniform(0.02, 0.5), process.kill)
            kill.start()
            asked: set[int] = set()
            try:
                while process.poll() is None:
                    found = ask(port, "/next")["texts"]
                    if not found:
                        time.sleep(0.01)
                        continue
                    text = found[0]["text"]
                    assert text not in acknowledged or found[0]["why"] == "doubted"
                    assert text not in asked or found[0]["why"] == "doubted"
                    asked.add(text)
                    label = chance.randrange(2)
                    answer = ask(port, "/label", text=text, labels=[label], how=found[0]["why"])
                    assert "saved" in answer, answer
                    acknowledged[text] = label
            except (OSError, http.client.HTTPException, ValueError):
                assert process.wait(20) == -9
            kill.join()
        journal = Journal.open(tmp_path / "project" / "journal.jsonl")
        journal.close()
        last = {event["text"]: event["labels"][0] for event in journal.events if event["kind"] == "label"}
        lost = [text for text, label in acknowledged.items() if last.get(text) is None]
        assert lost == []
        assert sum(last[text] != label for text, label in acknowledged.items()) <= 1, "one may be newer than its answer"
        acknowledged = last
    assert len(acknowledged) >= kills, "some labels were given between the kills"
