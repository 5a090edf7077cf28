"""Graceful shutdown: accepted requests are finished, new ones refused, and the process ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rehead.errors import UserError
from rehead.model import Model
from rehead.model.config import preset
from rehead.runs.run import Run, save
from rehead.use.serve.server import bind, url_of
from tests.use.serve.running import SECRET, Gate, classifier, running, until_closed, wait_until

TEXT = {"text": "a good film"}
MANY = ["a good film " * 250] * 256
SAID = 3  # lines at the start: routes, limits, memory


def test_what_was_accepted_is_finished_and_what_comes_meanwhile_is_refused() -> None:
    with running(classifier()) as server, ThreadPoolExecutor(4) as pool:
        gate = Gate(server)
        accepted = [pool.submit(server.post, "/classify", TEXT) for _ in range(3)]
        wait_until(lambda: len(server.server.server_state.tasks) == 3 and not server.service.idle)
        server.server.should_exit = True
        wait_until(lambda: server.guard.draining)
        assert server.get("/readyz") == (503, {"status": "ending"})
        assert server.get("/healthz")[0] == 200
        status, body, headers = server.ask("POST", "/classify", TEXT)
        assert (status, list(body)) == (503, ["error"])
        assert headers["connection"] == "close"
        assert not any(each.done() for each in accepted)
        gate.open.set()
        assert [each.result()[0] for each in accepted] == [200] * 3
        server.thread.join(10)
        assert not server.thread.is_alive()
        with pytest.raises(OSError, match="refused"):
            server.connect()


def test_a_client_that_only_drips_does_not_keep_it_from_ending() -> None:
    with running(classifier(), receive_seconds=0.5) as server:
        dripping, idle = server.connect(), server.connect()
        dripping.sendall(b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: len(server.server.server_state.connections) == 2)
        server.server.should_exit = True
        server.thread.join(10)
        assert not server.thread.is_alive()
        assert until_closed(dripping) == b""
        dripping.close()
        idle.close()


def test_what_never_ends_is_not_waited_for_for_ever() -> None:
    with running(classifier(), seconds=0.5, receive_seconds=0.5) as server, ThreadPoolExecutor(1) as pool:
        gate = Gate(server)
        answer = pool.submit(server.post, "/classify", TEXT)
        wait_until(lambda: not server.service.idle)
        server.server.should_exit = True
        server.thread.join(10)
        assert not server.thread.is_alive()
        assert answer.result()[0] == 503
        assert server.guard.aborted == 1
        gate.open.set()


def test_a_second_ctrl_c_does_not_wait(caplog: pytest.LogCaptureFixture) -> None:
    with running(classifier()) as server, ThreadPoolExecutor(1) as pool:
        gate = Gate(server)
        answer = pool.submit(server.post, "/classify", TEXT)
        wait_until(lambda: not server.service.idle)
        server.server.should_exit = True
        wait_until(lambda: server.guard.draining)
        server.server.force_exit = True
        status, body = answer.result()
        assert (status, list(body)) == (503, ["error"])
        server.thread.join(10)
        assert not server.thread.is_alive()
        assert server.guard.aborted == 1
        gate.open.set()
    assert not caplog.records


def test_what_nobody_waits_for_does_not_keep_it_from_ending() -> None:
    with running(classifier()) as server:
        gate, connection = Gate(server), server.connect()
        body = json.dumps(TEXT).encode()
        head = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: not server.service.idle)
        connection.close()
        server.server.should_exit = True
        server.thread.join(10)
        assert not server.thread.is_alive()
        assert server.guard.aborted == 0
        gate.open.set()


class Process:
    """`rehead serve` as a user starts it; it is gone behind the `with`, whatever happens in it."""

    def __init__(self, run: Path, *arguments: str, **environment: str) -> None:
        self.command = [sys.executable, "-m", "rehead", "serve", str(run), "--port", "0", *arguments]
        self.environment = {**os.environ, **environment}

    def __enter__(self) -> Process:
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment
        )
        assert self.process.stdout is not None
        try:
            self.line = self.process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)$", self.line.strip())
            assert found, self.line
        except BaseException:
            self.__exit__()
            raise
        self.address = found[0]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.address + path, timeout=20) as answer:
            return str(answer.read().decode())

    def post(self, body: bytes, **headers: str) -> dict[str, object]:
        sent = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(f"{self.address}/classify", body, sent)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return dict(json.load(answer))

    def end(self, how: signal.Signals) -> tuple[int, str, str]:
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(classifier(), tmp_path_factory.mktemp("runs") / "films")


def test_a_signal_ends_the_process_well(saved: Path) -> None:
    with Process(saved, "--log-requests", REHEAD_TOKEN=SECRET) as process:
        assert process.line.startswith(f"serving {saved} at http://127.0.0.1:")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            process.post(b'{"text": "my unspeakable text"}')
        assert process.post(b'{"text": "my unspeakable text"}', Authorization=f"Bearer {SECRET}")["results"]
        code, out, err = process.end(signal.SIGTERM)
    assert (code, out) == (0, "")
    assert "POST /classify 401" in err
    assert "all accepted requests" in err.splitlines()[-1]
    for kept in ("Traceback", "unspeakable", SECRET):
        assert kept not in process.line + err
    assert SECRET not in " ".join(map(str, process.process.args))  # type: ignore[arg-type]


def test_quiet_says_where_it_listens_and_no_more_and_ends_with_ctrl_c(saved: Path) -> None:
    with Process(saved, "--quiet") as process:
        assert json.loads(process.get("/about"))["name"] == "films"
        assert process.end(signal.SIGINT) == (0, "", "")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with layers that take many seconds for `MANY`."""
    tokenizer = classifier().tokenizer
    assert tokenizer is not None
    config = preset("lab", ntokens=tokenizer.vocab_size, nhid=256)
    run = Run(Model(config, config.classifier(2)).eval(), tokenizer, ["a", "b"])
    return save(run, tmp_path_factory.mktemp("runs") / "slow")


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_what_there_is_no_time_for_is_given_up_and_said(first: signal.Signals, slow: Path) -> None:
    signals = [first, signal.SIGINT]
    server = Process(slow, "--seconds", "600", OMP_NUM_THREADS="1")
    with server as process, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(process.post, json.dumps({"texts": MANY}).encode())
        wait_until(lambda: f"rehead_texts_total {len(MANY)}.0" in process.get("/metrics"))
        for each in signals[:-1]:
            process.process.send_signal(each)
            wait_until(lambda: ready(process) == 503)
        wait_until(lambda: process.process.poll() is not None or process.process.send_signal(signals[-1]), 60)
        code, out, err = process.end(signals[-1])  # it was told more than once, and that does not matter
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            answer.result()
        assert set(json.load(refused.value)) == {"error"}
    assert (code, out) == (128 + signals[-1], "")
    (last,) = err.splitlines()[SAID:]
    assert "1 accepted request" in last


def ready(process: Process) -> int:
    try:
        process.get("/readyz")
    except urllib.error.HTTPError as error:
        return error.code
    return 200


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=rf"^--host=127\.0\.0\.1 --port={port} cannot be used \(.*in use\)"):
            bind("127.0.0.1", port)


def test_addresses_are_written_as_a_browser_takes_them() -> None:
    with bind("127.0.0.1", 0) as taken:
        assert url_of(taken) == f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(UserError, match=r"--host=no\.such\.host\.invalid "):
        bind("no.such.host.invalid", 0)
    try:
        with bind("::1", 0) as taken:
            assert url_of(taken).startswith("http://[::1]:")
    except UserError:
        pytest.skip("this machine has no IPv6")


def test_without_the_extra_it_says_what_to_install(saved: Path) -> None:
    code = f"""
import sys
sys.modules["fastapi"] = None
from rehead.cli import main
sys.exit(main(["serve", {str(saved)!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "rehead: error: serving needs the package fastapi: pip install 'rehead[serve]'.\n"


def test_nobody_can_connect_before_it_is_ready() -> None:
    with bind("127.0.0.1", 0) as taken, pytest.raises(ConnectionRefusedError):
        socket.create_connection(taken.getsockname(), timeout=2)
