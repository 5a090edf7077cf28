"""Test servers in this process, with tiny runs and free ports, and clients for them."""

from __future__ import annotations

import functools
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rehead.model import Model
from rehead.model.config import preset
from rehead.runs.run import Run
from rehead.runs.scoring import classifier_head
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer
from rehead.use.serve.app import build
from rehead.use.serve.options import ServeOptions
from rehead.use.serve.server import Server, bind
from rehead.use.serve.service import Service
from tests.model.conftest import alive

TEXTS = ["a good film", "a bad film", "a good book", "le café était bon 🎬", ""]
SECRET = "a-token-of-many-characters"


@functools.cache
def classifier(name: str = "bag", *, multilabel: bool = False) -> Run:
    """A classifier whose every weight is random, over a few words."""
    tokenizer = Tokenizer.train([Document(text, "x", 1) for text in TEXTS * 5], vocab=290, quiet=True)
    sizes: dict[str, int] = {"bag": {"nbuckets": 64}, "lab": {"nlayers": 2}}[name]  # type: ignore[assignment]
    config = preset(name, ntokens=tokenizer.vocab_size, nhid=16, maxlen=64, **sizes)
    model = alive(config, config.classifier(3, multilabel))
    if name == "bag":
        with torch.no_grad():
            classifier_head(model).of("bag").weight.mul_(4.0)  # so that single words decide
    return Run(model, tokenizer, ["bad", "fair", "good <b>"])


@functools.cache
def writer() -> Run:
    """A run that writes, nonsense."""
    tokenizer = classifier().tokenizer
    assert tokenizer is not None
    config = preset("lab", ntokens=tokenizer.vocab_size, nhid=16, nlayers=1, maxlen=64)
    torch.manual_seed(0)
    return Run(Model(config, config.language_model()).eval(), tokenizer, details={"objective": "causal"})


class Running:
    """A server that is listening."""

    def __init__(self, run: Run, token: str | None, options: dict[str, Any]) -> None:
        self.options = ServeOptions(run=Path("run"), **{"port": 0, **options})
        self.options.check()
        self.service = Service(run, self.options, name="run")
        self.guard = build(self.service, self.options, token)
        self.server = Server(self.guard, self.service, self.options)
        self.socket = bind("127.0.0.1", 0)
        self.port: int = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.005)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive(), "the server does not end"
        self.service.close(5)

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Send a request on a connection of its own: bytes as they are, anything else as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            sent = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, data, {name: value for name, value in sent.items() if value})
            response = connection.getresponse()
            given = response.read()
            kind = response.headers.get("content-type", "")
            read = json.loads(given) if kind == "application/json" and given else given.decode()
            return response.status, read, {name.lower(): value for name, value in response.getheaders()}
        finally:
            connection.close()

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        return self.ask("POST", path, body, headers)[:2]

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        return self.ask("GET", path, headers=headers)[:2]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def raw(self, *parts: bytes, pause: float = 0.0) -> bytes:
        """Send bytes as they are; give all that comes back until the server closes, or falls silent."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            return until_closed(connection)


def until_closed(connection: socket.socket, silence: float = 2.0) -> bytes:
    connection.settimeout(silence)
    got = b""
    try:
        while part := connection.recv(65536):
            got += part
    except (TimeoutError, ConnectionResetError):
        pass
    return got


@contextmanager
def running(run: Run, token: str | None = None, **options: Any) -> Iterator[Running]:
    server = Running(run, token, options)
    try:
        yield server
    finally:
        server.stop()


class Gate:
    """Blocks the computation of a server's labels until it is opened."""

    def __init__(self, server: Running) -> None:
        self.open, self.computed = threading.Event(), []  # type: ignore[var-annotated]
        real = server.service.label_worker.compute

        def held(jobs: Any) -> Any:
            assert self.open.wait(20)
            self.computed += [job.payload[0] for job in jobs]
            return real(jobs)

        server.service.label_worker.compute = held


def wait_until(what: Any, seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it does not happen"
        time.sleep(0.005)
