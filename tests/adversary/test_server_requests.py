"""Requests that are made to get past the guard of `rehead serve`: trailers, doubled headers, hosts, sizes."""

from __future__ import annotations

import itertools
import json
import re
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rehead.use.serve.guard import LOCAL_HOSTS
from tests.adversary.wire import (
    BODY,
    CHUNKED,
    CLOSE,
    HOST,
    JSON,
    TOKEN,
    Field,
    chunk,
    head,
    last_chunk,
    resident,
    send_until_closed,
    split,
    statuses,
)
from tests.use.serve.running import Running, until_closed, wait_until

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=3000)
MAX_HEAD = 65_536

TRAILERS = st.lists(
    st.tuples(
        st.sampled_from([
            "Host", "Content-Type", "Authorization", "Content-Length", "Transfer-Encoding", "Origin", "Connection",
            "Content-Encoding", "Upgrade", "Expect", "X",
        ]),
        st.sampled_from([
            "localhost", "evil.example", "application/json", "text/plain", TOKEN[1], "chunked", "gzip", "5", "close",
            "https://evil.example", "websocket", "100-continue", "",
        ]) | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30),
    ),
    max_size=5,
)  # fmt: skip


@pytest.mark.parametrize("piece", [b"X-%d: y\r\n" % 7 * 7000, b"x" * 65_536], ids=["many fields", "one field"])
def test_trailers_are_limited_without_a_token(piece: bytes, guarded: Running) -> None:
    before = resident()
    with guarded.connect() as connection:
        connection.sendall(head(HOST, JSON, CHUNKED) + b"0\r\nX: ")
        sent, answer = send_until_closed(connection, itertools.repeat(piece, 1600))
    assert statuses(answer) in ([401], [413], []), "whichever comes first; or reset, as we went on sending"
    assert sent < 20 * 2**20, "what the buffers of the system hold, and no more"
    assert resident() - before < 16
    wait_until(lambda: not guarded.server.server_state.connections, 3)


@pytest.mark.parametrize("piece", [b"x" * 65_536, b"X: y\r\n" * 10_000], ids=["one field", "many fields"])
def test_trailers_are_limited_with_a_token(piece: bytes, guarded: Running) -> None:
    before = resident()
    with guarded.connect() as connection:
        connection.sendall(head(HOST, JSON, TOKEN, CHUNKED) + chunk(BODY) + b"0\r\nX: ")
        time.sleep(0.1)
        sent, answer = send_until_closed(connection, itertools.repeat(piece, 1600))
    assert statuses(answer) in ([413], [])
    assert sent < 20 * 2**20
    assert resident() - before < 16


def test_chunk_extensions_are_limited(guarded: Running) -> None:
    with guarded.connect() as connection:
        connection.sendall(head(HOST, JSON, TOKEN, CHUNKED) + b"1;x=")
        sent, answer = send_until_closed(connection, itertools.repeat(b"x" * 65_536, 1600))
    assert statuses(answer) in ([413], [])
    assert sent < 20 * 2**20


@pytest.mark.parametrize(
    ("fields", "trailer", "status"),
    [
        ([("Host", "evil.example"), JSON, TOKEN], HOST, 421),
        ([HOST, JSON], TOKEN, 401),
        ([HOST, ("Content-Type", "text/plain"), TOKEN], JSON, 415),
        ([HOST, JSON, TOKEN, ("Origin", "https://evil.example")], ("Origin", "http://localhost"), 403),
        ([HOST, JSON, TOKEN], ("Host", "evil.example"), 200),
        ([HOST, JSON, TOKEN], ("Content-Encoding", "gzip"), 200),
    ],
)
def test_trailers_are_no_headers(fields: list[Field], trailer: Field, status: int, guarded: Running) -> None:
    request = head(*fields, CHUNKED, CLOSE) + chunk(BODY) + last_chunk([trailer])
    assert statuses(guarded.raw(request)) == [status]


@pytest.mark.parametrize(
    ("codings", "status"),
    [(["chunked"], 200), (["Chunked"], 200), (["gzip, chunked"], 415), (["gzip", "chunked"], 400)],
)
def test_a_body_in_another_coding_is_not_taken_for_json(codings: list[str], status: int, guarded: Running) -> None:
    given = [("Transfer-Encoding", coding) for coding in codings]
    request = head(HOST, JSON, TOKEN, CLOSE, *given) + chunk(BODY) + last_chunk([])
    assert statuses(guarded.raw(request)) == [status]


@QUICK
@given(trailers=TRAILERS, token=st.booleans(), cuts=st.lists(st.integers(0, 400), max_size=4))
def test_no_trailer_changes_an_answer(trailers: list[Field], token: bool, cuts: list[int], guarded: Running) -> None:
    fields = [HOST, JSON, CHUNKED, CLOSE, *([TOKEN] if token else [])]
    request = head(*fields) + chunk(BODY) + last_chunk(trailers)
    expected = 200 if token else 401
    assert statuses(guarded.raw(*split(request, cuts), pause=0.001)) in ([expected], [400]), "or it is no HTTP"


@QUICK
@given(
    cuts=st.lists(st.integers(0, 60), max_size=8),
    extension=st.sampled_from([b"", b";a", b";a=b", b';a="b c"']),
    packets=st.lists(st.integers(0, 300), max_size=4),
)
def test_however_a_body_is_chunked_the_answer_is_the_same(
    cuts: list[int], extension: bytes, packets: list[int], guarded: Running
) -> None:
    known = guarded.post("/classify", BODY, dict([TOKEN]))[1]
    body = b"".join(chunk(each, extension) for each in split(BODY, cuts)) + last_chunk()
    answer = guarded.raw(*split(head(HOST, JSON, TOKEN, CHUNKED, CLOSE) + body, packets), pause=0.001)
    assert statuses(answer) == [200]
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1]) == known


@pytest.mark.parametrize("name", ["Host", "Content-Type", "Authorization", "Origin"])
def test_a_header_that_counts_once_is_refused_twice(name: str, guarded: Running) -> None:
    known = dict([HOST, JSON, TOKEN, ("Origin", "http://localhost")])
    for pair in ([known[name], known[name]], [known[name], "other"], ["other", known[name]]):
        fields = [each for each in known.items() if each[0] != name and each[0] != "Origin"]
        request = head(*fields, *((name, value) for value in pair), ("Content-Length", str(len(BODY))), CLOSE) + BODY
        assert statuses(guarded.raw(request)) == [400], pair


def test_a_whole_address_does_not_hide_two_hosts(guarded: Running) -> None:
    line = "GET http://localhost/about HTTP/1.1"
    assert statuses(guarded.raw(head(HOST, TOKEN, CLOSE, line=line))) == [200]
    assert statuses(guarded.raw(head(HOST, HOST, TOKEN, CLOSE, line=line))) == [400]


HOSTS = st.one_of(
    st.tuples(
        st.sampled_from(["", "evil.", "user@", "[", "."]),
        st.sampled_from([*LOCAL_HOSTS, "LocalHost", "::1", "127.1", "0x7f.1", "localhost\u00b2"]),
        st.sampled_from(["", ".", ".evil.com", "]", "]evil.com", "@evil.com", "/evil.com", "#", "%00", " evil.com"]),
        st.sampled_from(["", ":", ":80", ":80:80", ":evil", ":80.evil.com", ":\u00b2"]),
    ).map("".join),
    st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f"), max_size=20),
)


def own(host: str) -> bool:
    """The reference: an own name, as it is, with a number behind a colon or without."""
    return any(re.fullmatch(re.escape(name) + "(:[0-9]*)?", host.lower()) for name in LOCAL_HOSTS)


@QUICK
@example(host="[::1].evil.com")
@example(host="[::1]evil.com:80")
@example(host="localhost:80.evil.com")
@example(host="localhost:evil")
@example(host="[::1]:8000")
@given(host=HOSTS)
def test_only_own_names_are_served(host: str, guarded: Running) -> None:
    answer = statuses(guarded.raw(head(("Host", host), TOKEN, CLOSE, line="GET /about HTTP/1.1")))
    assert answer == [200] if own(host) else answer in ([421], [400])


def test_a_page_without_a_host_is_not_ours(guarded: Running) -> None:
    """No Host, and an origin without a host: equal, and yet not the same."""
    request = head(TOKEN, CLOSE, ("Origin", "file://"), line="GET /healthz HTTP/1.0")
    assert statuses(guarded.raw(request)) == [403]


@pytest.mark.parametrize(
    ("fields", "status"), [([HOST, JSON], 401), ([HOST, JSON, TOKEN], 413), ([HOST, TOKEN, ("Content-Type", "x")], 415)]
)
@pytest.mark.parametrize("framing", [CHUNKED, ("Content-Length", "50000")])
def test_after_a_refusal_nothing_more_is_read(
    fields: list[Field], status: int, framing: Field, guarded: Running
) -> None:
    """What follows is never parsed, not even a good request, and the connection ends soon."""
    good = head(HOST, JSON, TOKEN, ("Content-Length", str(len(BODY)))) + BODY
    with guarded.connect() as connection:
        connection.sendall(head(*fields, framing) + (chunk(b" " * 20_001) if framing == CHUNKED else b" " * 20_001))
        time.sleep(0.2)
        began = time.monotonic()
        rest = last_chunk() if framing == CHUNKED else b" " * 29_999
        _, answer = send_until_closed(connection, [rest + good, *([good] * 400)])
    assert statuses(answer) == [status]
    assert b"connection: close" in answer
    assert time.monotonic() - began < 3
    wait_until(lambda: not guarded.server.server_state.connections, 3)


def test_a_request_that_was_refused_whole_keeps_its_connection(guarded: Running) -> None:
    refused = head(HOST, JSON, ("Content-Length", "2")) + b"{}"
    good = head(HOST, JSON, TOKEN, CLOSE, ("Content-Length", str(len(BODY)))) + BODY
    assert statuses(guarded.raw(refused, good, pause=0.1)) == [401, 200]


def test_a_client_that_reads_late_still_reads_why(guarded: Running) -> None:
    """It sends all of its body before it reads anything, as most clients do."""
    with guarded.connect() as connection:
        body = b" " * 30_000
        connection.sendall(head(HOST, JSON, TOKEN, ("Content-Length", str(len(body)))))
        time.sleep(0.1)
        connection.sendall(body[:10_000])
        time.sleep(0.1)
        connection.sendall(body[10_000:])
        answer = until_closed(connection)
    assert statuses(answer) == [413]


@pytest.mark.parametrize("over", [0, 1, 5_000, 150_000])
@pytest.mark.parametrize("filler", ["x", " "])
def test_a_head_in_one_packet_is_measured(over: int, filler: str, guarded: Running) -> None:
    """To the byte, also where the parser skips blanks."""
    least = head(HOST, CLOSE, ("X", "y"), line="GET /healthz HTTP/1.1")
    request = least.replace(b"X: y", b"X: " + filler.encode() * (MAX_HEAD - len(least) + over) + b"y")
    assert len(request) == MAX_HEAD + over
    assert statuses(guarded.raw(request)) == [431 if over else 200]


def test_requests_without_end_on_one_connection_are_parsed_as_they_are_answered(guarded: Running) -> None:
    """Ten thousand tiny requests in one packet are answered in order, without an object for each at once."""
    before, count = resident(), 10_000
    line = b"GET / HTTP/1.1\r\nHost:x\r\n\r\n"
    with guarded.connect() as connection:
        connection.sendall(line * 5)
        assert statuses(until_closed(connection, 0.5)) == [421] * 5
        most = 0
        connection.setblocking(False)
        sent = connection.send(line * count)
        for each in list(guarded.server.server_state.connections):
            for _ in range(20):
                most = max(most, len(each.pipeline))  # type: ignore[union-attr]
                time.sleep(0.005)
        connection.setblocking(True)
        answer = until_closed(connection, 1.0)
    assert statuses(answer) == [421] * (sent // len(line))
    assert most <= 4096 // len(line) + 1
    assert resident() - before < 16


@pytest.mark.slow
def test_no_trailer_changes_an_answer_at_length(guarded: Running) -> None:
    @LONG
    @given(trailers=TRAILERS, token=st.booleans(), cuts=st.lists(st.integers(0, 400), max_size=3))
    def one(trailers: list[Field], token: bool, cuts: list[int]) -> None:
        test_no_trailer_changes_an_answer.hypothesis.inner_test(trailers, token, cuts, guarded)  # type: ignore[attr-defined]

    one()


@pytest.mark.slow
def test_only_own_names_are_served_at_length(guarded: Running) -> None:
    @LONG
    @given(HOSTS)
    def one(host: str) -> None:
        test_only_own_names_are_served.hypothesis.inner_test(host, guarded)  # type: ignore[attr-defined]

    one()
