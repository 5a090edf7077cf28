"""Limits on sizes, queues and time; over raw sockets where no well-behaved client would reach them."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rehead.use.labeller import Labeller
from tests.use.serve.running import TEXTS, Gate, Running, classifier, running, until_closed, wait_until

HEAD = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CLOSE = b"Connection: close\r\n"


def chunked(*parts: bytes) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return HEAD + CLOSE + b"Transfer-Encoding: chunked\r\n\r\n" + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def asked(connection: socket.socket, request: bytes) -> bytes:
    """Send a request; read one whole answer, and leave the connection open."""
    connection.sendall(request)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(65536)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def error(answer: bytes) -> str:
    return str(json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"])


def said(body: dict[str, str], *values: str) -> bool:
    """Tell whether an error names all of these."""
    return list(body) == ["error"] and all(each in body["error"] for each in values)


def test_texts_and_characters_are_counted(server: Running) -> None:
    assert server.post("/classify", {"text": "x" * 1000})[0] == 200
    status_, body = server.post("/classify", {"text": "x" * 1001})
    assert (status_, said(body, "text: ", "1,000 characters")) == (422, True)
    assert server.post("/classify", {"text": "🎬" * 1000})[0] == 200, "characters, not bytes"
    assert server.post("/classify", {"texts": ["x"] * 8})[0] == 200
    status_, body = server.post("/classify", {"texts": ["x"] * 9})
    assert (status_, said(body, "texts: ", "8 texts")) == (422, True)
    assert said(server.post("/classify", {"texts": ["x", "y" * 1001]})[1], "texts[1]: ", "1,000 characters")


def test_a_body_that_says_it_is_too_large_is_refused_unread(server: Running) -> None:
    answer = server.raw(HEAD + CLOSE + b"Content-Length: 20001\r\n\r\n")
    assert status(answer) == 413
    assert "20,000 bytes" in error(answer)


def test_a_chunked_body_is_counted_as_it_comes(server: Running) -> None:
    body = json.dumps({"text": "a good film"}).encode()
    assert status(server.raw(chunked(*(bytes([each]) for each in body), b""))) == 200
    answer = server.raw(chunked(b'{"text": "', *[b"x" * 1000] * 20))  # and it does not even end
    assert status(answer) == 413


def test_a_body_that_is_too_large_is_not_kept(server: Running) -> None:
    """A hundred megabytes are offered in chunks; the server answers after 20,000 bytes, and keeps none."""
    piece = b"%x\r\n%s\r\n" % (100_000, b" " * 100_000)
    with server.connect() as connection:
        connection.sendall(chunked(b" " * 20_001))
        connection.settimeout(10)
        assert status(connection.recv(65536)) == 413
        try:
            for _ in range(20):
                connection.sendall(piece)
        except OSError:
            pass  # closed on us: as good


@pytest.mark.parametrize(
    "request_",
    [
        HEAD + b"Content-Length: abc\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
        HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50) + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: y\r\n" % each for each in range(20_000)) + b"\r\n",
        b"\r\n" * 10 + b"nonsense\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_http_gets_a_clear_answer_and_nothing_hangs(request_: bytes, server: Running) -> None:
    answer = server.raw(request_)
    assert 400 <= status(answer) < 500
    assert server.get("/healthz")[0] == 200


def whole(text: str, *more: bytes) -> bytes:
    body = json.dumps({"text": text}).encode()
    return HEAD + b"".join(more) + b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_requests_that_do_not_wait_are_answered_in_order(server: Running) -> None:
    known = [server.post("/classify", {"text": text})[1]["results"] for text in TEXTS]
    answers = server.raw(b"".join(whole(text) for text in TEXTS[:-1]) + whole(TEXTS[-1], CLOSE)).split(b"HTTP/1.1 200")
    assert [json.loads(each.split(b"\r\n\r\n", 1)[1])["results"] for each in answers[1:]] == known


@pytest.mark.parametrize(
    "behind", [b"nonsense\r\n\r\n", HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}", HEAD]
)
def test_a_good_request_is_answered_whatever_comes_behind_it(behind: bytes) -> None:
    with running(classifier(), receive_seconds=0.3) as server:
        gate = Gate(server)
        with server.connect() as connection:
            connection.sendall(whole("a good film") + behind)
            time.sleep(0.6)
            gate.open.set()
            answer = until_closed(connection)
        assert status(answer) == 200
        assert b"probabilities" in answer
        wait_until(lambda: not server.server.server_state.connections)


def test_a_request_that_waits_behind_another_has_its_time_then() -> None:
    with running(classifier(), receive_seconds=0.3) as server:
        gate = Gate(server)
        with server.connect() as connection:
            second = whole("a bad film")
            connection.sendall(whole("a good film") + second[:-5])
            time.sleep(0.6)
            gate.open.set()
            wait_until(lambda: len(gate.computed) == 1)
            connection.sendall(second[-5:])
            wait_until(lambda: len(gate.computed) == 2)
            assert until_closed(connection, silence=1).count(b"HTTP/1.1 200") == 2


def test_a_head_that_never_ends_is_refused(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                connection.sendall(b"x" * 1000)
                time.sleep(0.002)
        answer = until_closed(connection)
    assert status(answer) in (431, 0)  # or reset, as we went on sending
    big = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000
    assert status(server.raw(big)) == 431
    assert "65,536 bytes" in error(server.raw(big))


def test_an_upgrade_that_nobody_offers_is_not_taken(server: Running) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
    assert status(server.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + upgrade + b"\r\n")) == 200
    answer = server.raw(whole("a good film", upgrade))
    assert status(answer) == 400
    assert "Upgrade" in error(answer)
    assert status(server.raw(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n")) == 400


def test_empty_lines_do_not_keep_a_connection() -> None:
    with running(classifier(), receive_seconds=0.3, idle_seconds=1.0) as server, server.connect() as connection:
        assert status(asked(connection, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")) == 200
        with contextlib.suppress(OSError):
            for _ in range(100):
                connection.sendall(b"\r\n")
                time.sleep(0.05)
        wait_until(lambda: not server.server.server_state.connections)


def test_what_the_connection_refuses_is_counted_and_carries_the_safe_headers() -> None:
    with running(classifier(), receive_seconds=0.3, connections=2, client_connections=2) as server:
        answers = [
            server.raw(b"nonsense\r\n\r\n"),
            server.raw(b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000),
            server.raw(b"GET / HTTP/1.1\r\nX: "),
            server.raw(HEAD + b"Content-Length: 50\r\n\r\n{"),
            server.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
        ]
        held = [server.connect() for _ in range(2)]
        wait_until(lambda: len(server.server.server_state.connections) == 2)
        answers.append(server.raw(b"GET /about HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        for each in held:
            each.close()
        wait_until(lambda: not server.server.server_state.connections)
        counts = server.get("/metrics")[1]
    assert [status(each) for each in answers] == [400, 431, 408, 408, 400, 503]
    for answer in answers:
        assert b"x-content-type-options: nosniff\r\n" in answer
        assert b"cache-control: no-store\r\n" in answer
    counted = [line for line in counts.splitlines() if line.startswith("rehead_requests_total")]
    assert sorted(counted) == [
        'rehead_requests_total{path="(none)",status="400"} 1.0',
        'rehead_requests_total{path="(none)",status="408"} 1.0',
        'rehead_requests_total{path="(none)",status="431"} 1.0',
        'rehead_requests_total{path="(none)",status="503"} 1.0',
        'rehead_requests_total{path="/classify",status="400"} 1.0',
        'rehead_requests_total{path="/classify",status="408"} 1.0',
    ]


def test_a_body_shorter_than_it_says_waits_for_the_rest_and_no_longer() -> None:
    with running(classifier(), receive_seconds=0.3) as server:
        answer = server.raw(HEAD + b'Content-Length: 50\r\n\r\n{"text": "a"}')
        assert status(answer) == 408
        assert "0.3 s" in error(answer)


@pytest.mark.parametrize("where", ["nothing", "head", "body", "second request", "chunks"])
def test_who_sends_a_byte_at_a_time_is_cut_off(where: str) -> None:
    body = json.dumps({"text": "a good film"}).encode()
    whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    with running(classifier(), receive_seconds=0.4) as server, server.connect() as connection:
        connection.settimeout(10)
        drips = {"nothing": b"", "head": whole, "body": body, "second request": whole, "chunks": b"1\r\n \r\n" * 99}
        if where == "body":
            connection.sendall(whole)
        elif where == "chunks":
            connection.sendall(chunked())
        elif where == "second request":
            assert status(asked(connection, whole + body)) == 200
        began = time.monotonic()
        try:
            for byte in drips[where]:
                connection.sendall(bytes([byte]))
                time.sleep(0.02)
        except OSError:
            pass
        answer = until_closed(connection, silence=5)
        assert time.monotonic() - began < 5
        assert status(answer) in (408, 0)  # or reset, where we went on sending
        if where == "nothing":
            assert status(answer) == 408
        wait_until(lambda: not server.server.server_state.connections)


def test_a_connection_with_nothing_to_say_is_closed() -> None:
    with running(classifier(), idle_seconds=1.0) as server, server.connect() as connection:
        assert status(asked(connection, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")) == 200
        connection.settimeout(10)
        assert connection.recv(100) == b""


def test_idle_connections_are_not_cut_off_by_the_clock_for_requests() -> None:
    with running(classifier(), receive_seconds=0.2) as server, server.connect() as connection:
        for _ in range(3):
            assert status(asked(connection, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")) == 200
            time.sleep(0.4)


def test_a_long_computation_is_not_cut_off_by_the_clock_for_requests() -> None:
    with running(classifier(), receive_seconds=0.2) as server:
        gate = Gate(server)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(server.post, "/classify", {"text": "a"})
            time.sleep(0.6)
            gate.open.set()
            assert answer.result()[0] == 200


def test_a_full_queue_says_when_to_ask_again() -> None:
    with running(classifier(), queue=4, texts=4) as server, ThreadPoolExecutor(8) as pool:
        gate = Gate(server)
        first = pool.submit(server.post, "/classify", {"text": "first"})
        wait_until(lambda: not server.service.label_worker.idle and server.service.label_worker.queued_texts == 0)
        waiting = pool.submit(server.post, "/classify", {"texts": ["a", "b", "c"]})
        wait_until(lambda: server.service.label_worker.queued_texts == 3)
        status_, body, headers = server.ask("POST", "/classify", {"texts": ["d", "e"]})
        assert status_ == 429
        assert said(body, "queue", f"{headers['retry-after']} s")
        assert int(headers["retry-after"]) >= 1
        fits = pool.submit(server.post, "/classify", {"text": "f"})
        gate.open.set()
        assert [each.result()[0] for each in (first, waiting, fits)] == [200] * 3
        assert 'rehead_dropped_total{why="full"} 1.0' in server.get("/metrics")[1]


def test_what_takes_too_long_is_given_up_and_not_computed() -> None:
    with running(classifier(), seconds=0.3) as server, ThreadPoolExecutor(8) as pool:
        gate = Gate(server)
        first = pool.submit(server.post, "/classify", {"text": "first"})
        wait_until(lambda: not server.service.label_worker.idle and server.service.label_worker.queued_texts == 0)
        late = pool.submit(server.ask, "POST", "/classify", {"text": "late"})
        status_, body, headers = late.result()
        assert status_ == 503
        assert said(body, "0.3 s")
        assert headers["retry-after"] == "1"
        assert first.result()[0] == 503
        gate.open.set()
        assert server.post("/classify", {"text": "next"})[0] == 200
        assert gate.computed == [["first"], ["next"]]


def test_who_leaves_early_is_not_computed() -> None:
    body = json.dumps({"text": "leaves"}).encode()
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with running(classifier()) as server, ThreadPoolExecutor(2) as pool:
        gate, worker = Gate(server), server.service.label_worker
        first = pool.submit(server.post, "/classify", {"text": "first"})
        wait_until(lambda: not worker.idle and worker.queued_texts == 0)
        leaving = [server.connect() for _ in range(20)]
        for each in leaving:
            each.sendall(request)
        wait_until(lambda: worker.queued_texts == 20)
        for each in leaving[:10]:
            each.close()
        for each in leaving[10:]:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))  # by reset
            each.close()
        wait_until(lambda: worker.queued_texts == 0)
        gate.open.set()
        assert first.result()[0] == 200
        assert server.post("/classify", {"text": "next"})[0] == 200
        assert gate.computed == [["first"], ["next"]]
        assert 'rehead_dropped_total{why="gone"} 20.0' in server.get("/metrics")[1]


def test_who_never_reads_the_answer_is_let_go() -> None:
    """A page is asked for again and again, and never read: the connection ends, and the server too."""
    with running(classifier(), receive_seconds=0.3, idle_seconds=1.0) as server:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", server.port))
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError):  # it may be let go while we still ask
            while True:
                connection.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert server.get("/healthz")[0] == 200
        wait_until(lambda: not server.server.server_state.connections, 20)
        connection.close()


def test_sixty_four_clients_get_their_own_answers() -> None:
    labeller = Labeller.of(classifier())
    texts = [f"{TEXTS[number % 4]} {'film ' * (number % 7)}{number}" for number in range(640)]
    given = labeller.probabilities(texts)
    names = labeller.names
    with running(classifier()) as server:

        def client(first: int) -> list[dict[str, float]]:
            found = []
            with server.connect() as connection:
                for text in texts[first::64]:
                    body = json.dumps({"text": text}).encode()
                    answer = asked(connection, HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                    assert status(answer) == 200
                    found.append(json.loads(answer.split(b"\r\n\r\n", 1)[1])["results"][0]["probabilities"])
            return found

        with ThreadPoolExecutor(64) as pool:
            for first, found in enumerate(pool.map(client, range(64))):
                for row, mine in zip(given[first::64], found, strict=True):
                    assert mine == pytest.approx(dict(zip(names, row.tolist(), strict=True)), abs=2e-6)
        counts = server.get("/metrics")[1]
        batches = float(next(x for x in counts.splitlines() if x.startswith("rehead_batch_texts_count")).split()[1])
        assert batches < 640, "none were computed together"


def test_a_story_does_not_hold_up_labels(layered: Running) -> None:
    """While something slow is computed, labels go on."""
    began, go = threading.Event(), threading.Event()
    real = layered.service.slow_worker.compute

    def held(jobs: object) -> object:
        began.set()
        assert go.wait(20)
        return real(jobs)  # type: ignore[arg-type]

    layered.service.slow_worker.compute = held  # type: ignore[assignment]
    try:
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(layered.post, "/attention", {"text": "a"})
            assert began.wait(10)
            assert layered.post("/classify", {"text": "a"})[0] == 200
            assert not slow.done()
            go.set()
            assert slow.result()[0] == 200
    finally:
        layered.service.slow_worker.compute = real


def test_a_story_that_nobody_waits_for_is_not_told_to_its_end(writing: Running) -> None:
    body = json.dumps({"tokens": 30, "temperature": 5}).encode()
    head = HEAD.replace(b"/classify", b"/generate")
    steps = []
    real = writing.service.run.model.base.forward_cached

    def slow(*arguments: object) -> object:
        steps.append(1)
        time.sleep(0.02)
        return real(*arguments)  # type: ignore[arg-type]

    writing.service.run.model.base.forward_cached = slow  # type: ignore[method-assign,assignment]
    try:
        connection = writing.connect()
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: len(steps) > 2)
        connection.close()
        wait_until(lambda: writing.service.slow_worker.idle)
        assert writing.post("/generate", {"tokens": 1})[0] == 200  # behind the other, whose steps are counted by then
        assert len(steps) < 30
    finally:
        del writing.service.run.model.base.forward_cached


def test_an_explanation_that_nobody_waits_for_is_not_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rehead.views.layers.EXPLAIN_TOKENS", 1)
    body = json.dumps({"text": "good film " * 20}).encode()
    with running(classifier("lab")) as server:
        head, base, batches = HEAD.replace(b"/classify", b"/explain"), server.service.run.model.base, []
        real = base.embed

        def slow(*arguments: Any, **options: Any) -> Any:
            batches.append(1)
            time.sleep(0.02)
            return real(*arguments, **options)

        monkeypatch.setattr(base, "embed", slow)
        connection = server.connect()
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: len(batches) > 2)
        connection.close()
        wait_until(lambda: server.service.slow_worker.idle)
        assert server.post("/attention", {"text": "a"})[0] == 200  # behind it, in the same worker
        assert len(batches) < 40


def test_explanations_are_of_shorter_texts(server: Running, layered: Running) -> None:
    assert layered.get("/about")[1]["limits"]["explain_characters"] == 20_000
    assert layered.post("/explain", {"text": "x" * 20_001})[0] == 422
    assert layered.post("/classify", {"text": "x" * 20_001})[0] == 200
    assert server.post("/explain", {"text": "x" * 1000})[0] == 200
    assert server.get("/about")[1]["limits"]["explain_characters"] == 1000, "no more than any text"
