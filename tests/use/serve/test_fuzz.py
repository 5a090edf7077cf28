"""Bad input of every kind: a clear 4xx or a valid answer, never a 5xx, never a hang, and the server goes on."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.use.serve.running import Running, classifier, running, wait_until

schemathesis = pytest.importorskip("schemathesis")
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance  # noqa: E402 (behind what it needs)

# That 413 is a refusal, schemathesis does not know; what is too large by far is found to be so before it is read.
TOO_LARGE = {False: [], True: [negative_data_rejection, positive_data_acceptance]}
QUICK = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=5000)
PATHS = st.sampled_from(["/classify", "/explain", "/attention"])
STRANGE = ["", "\x00", "\x00" * 50, "\ufeff", "\u202e", "ﷺ" * 20, "e" + "\u0301" * 300, "\r\n\t", "</s>"]
ODD = st.sampled_from(STRANGE) | st.text(max_size=200)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | ODD,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)
BODIES = st.one_of(
    st.fixed_dictionaries({}, optional={"text": ODD | JSON, "texts": st.lists(ODD, max_size=10) | JSON, "x": JSON}),
    st.fixed_dictionaries({"text": ODD}, optional={"label": ODD, "layer": JSON, "head": JSON, "threshold": JSON}),
    JSON,
)


@pytest.fixture(scope="module")
def big() -> Iterator[Running]:
    """One with room for words of a megabyte."""
    with running(classifier(), characters=2**20, body_bytes=8 * 2**20) as each:
        yield each


@pytest.fixture(scope="module")
def hasty() -> Iterator[Running]:
    """One that does not wait long for what never comes."""
    with running(classifier(), receive_seconds=0.1) as each:
        yield each


def checked(server: Running, path: str, body: bytes) -> tuple[int, Any]:
    status, answer = server.post(path, body)
    assert status == 200 or 400 <= status < 500, (status, answer)
    if status != 200:
        assert set(answer) == {"error"}
        assert "\n" not in answer["error"]
        assert 10 < len(answer["error"]) < 250
    return status, answer


@QUICK
@given(path=PATHS, body=BODIES)
def test_any_json(path: str, body: Any, layered: Running) -> None:
    checked(layered, path, json.dumps(body).encode())


@QUICK
@given(path=PATHS, body=st.binary(max_size=300))
def test_any_bytes(path: str, body: bytes, layered: Running) -> None:
    assert checked(layered, path, body)[0] in (400, 422)


@QUICK
@given(body=st.text(st.characters(), max_size=50).map(lambda text: json.dumps({"text": text}).encode()), data=st.data())
def test_bytes_that_were_json_once(body: bytes, data: st.DataObject, layered: Running) -> None:
    place = data.draw(st.integers(0, len(body)))
    bad = body[:place] + data.draw(st.binary(max_size=3)) + body[place + data.draw(st.integers(0, 3)) :]
    checked(layered, "/classify", bad)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"text": "\\ud800"}', 400),
        (b'{"text": "\\udc00 and on"}', 400),
        (b'{"texts": ["fine", "\\ud83c\\u0041"]}', 400),
        (b'{"text": "\xed\xa0\x80"}', 400),  # a surrogate in UTF-8's clothes
        (b'{"text": "\xff\xfe"}', 400),
        (b'{"text": "\xc0\x80"}', 400),
        (b'{"text": "a\\u0000b"}', 200),
        (b'{"text": "a\x00b"}', 400),  # JSON wants it escaped
        (b'{"text": "\\ud83c\\udfac"}', 200),
        (b'\xef\xbb\xbf{"text": "a"}', 400),
        ('{"text": "a"}'.encode("utf-16"), 400),
        (b"[" * 100_000, 400),
        (b"[" * 100_000 + b"]" * 100_000, 400),
        (b'{"text": ' * 50_000, 400),
        (b'{"text": "a", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}", 400),
        (b'{"text": NaN}', 422),
        (b'{"text": "a", "threshold": NaN}', 422),
        (b'{"text": "a", "threshold": Infinity}', 422),
        (b'{"text": "a", "threshold": -1e999}', 422),
        (b'{"text": "a", "threshold": ' + b"9" * 100_000 + b"}", 400),
        (b'{"text": "a", "threshold": "0.5"}', 422),
        (b'{"text": "a", "threshold": true}', 422),
        (b'{"text": 1}', 422),
        (b'{"text": null}', 422),
        (b'{"text": ["a"]}', 422),
        (b'{"texts": "a"}', 422),
        (b'{"texts": []}', 422),
        (b'{"texts": {"0": "a"}}', 422),
        (b'{"text": "a", "texts": ["b"]}', 422),
        (b"{}", 422),
        (b"[]", 422),
        (b'"a"', 422),
        (b"null", 422),
        (b"", 400),
        (b'{"text": "a"} {"text": "b"}', 400),
        (b'{"text": "a",}', 400),
        (b"{'text': 'a'}", 400),
        (b'{"text": "a", "unknown": 1}', 422),
    ],
)
def test_known_mischief(body: bytes, expected: int, layered: Running) -> None:
    assert checked(layered, "/classify", body)[0] == expected


@pytest.mark.parametrize("piece", ["a", "ab1-", "é", "🎬", "\x00", "e\u0301"])
def test_words_of_a_megabyte(piece: str, big: Running) -> None:
    body = json.dumps({"text": piece * (2**20 // len(piece.encode()))}).encode()
    status, answer = checked(big, "/classify", body)
    assert status == 200
    assert sum(answer["results"][0]["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert checked(big, "/explain", body)[0] == 422, "explanations have a limit of their own"


def test_many_empty_texts(big: Running) -> None:
    status, answer = checked(big, "/classify", json.dumps({"texts": [""] * 256}).encode())
    assert (status, len(answer["results"])) == (200, 256)


def raw(server: Running, request: bytes) -> int:
    """Send bytes; give the status. Silence is a hang, and an end without an answer is none."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(request)
        got = b""
        while not (found := re.match(rb"(?:HTTP/1.1 100 Continue\r\n\r\n)?HTTP/1.1 ([2-5]\d\d) ", got)):
            part = connection.recv(65536)
            assert part, got
            got += part
    return int(found[1])


NAMES = [
    "Host", "Content-Type", "Content-Length", "Transfer-Encoding", "Origin", "Authorization", "Expect", "Connection",
    "Upgrade", "X-Forwarded-Host", "Content-Encoding", "Cookie",
]  # fmt: skip
VALUES = [
    "localhost", "application/json", "13", "chunked", "null", "Bearer x", "100-continue", "close", "websocket",
    "upgrade", "0", "gzip", "keep-alive", "http://localhost", "",
]  # fmt: skip
HEADERS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES) | st.text(st.characters(codec="latin-1"), max_size=20)),
    max_size=6,
)


@QUICK
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "BREW", ""]),
    path=st.sampled_from(["/", "/classify", "/about", "/../etc/passwd", "//", "/%ff%00", "*", "http://x/y", "/\x7f"]),
    headers=HEADERS,
    body=st.sampled_from([b"", b'{"text": "a"}', b'd\r\n{"text": "a"}\r\n0\r\n\r\n']) | st.binary(max_size=50),
)
def test_any_request(method: str, path: str, headers: list[tuple[str, str]], body: bytes, hasty: Running) -> None:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    assert raw(hasty, "\r\n".join(lines).encode("latin-1") + body) < 500


@QUICK
@given(data=st.binary(min_size=1, max_size=400))
def test_any_bytes_on_the_wire(data: bytes, hasty: Running) -> None:
    assert raw(hasty, data) < 500


def against_the_schema(server: Running, examples: int) -> None:
    """Schemathesis's own generators, good data and bad, with all its checks: statuses, types, bodies, methods.

    The one thing that the schema does not say, for those without a token may read it, is which labels there are.
    """
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
    for found in schema.get_all_operations():
        operation = found.ok()
        bad = operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy() | bad)
        def one(case: Any) -> None:
            response = case.call()
            named = isinstance(case.body, dict) and "label" in case.body
            known = [*([positive_data_acceptance] if named else []), *TOO_LARGE[response.status_code == 413]]
            case.validate_response(response, excluded_checks=known)

        one()


@pytest.mark.parametrize("kind", ["layered", "writing"])
def test_what_is_documented_is_what_happens(kind: str, request: pytest.FixtureRequest) -> None:
    against_the_schema(request.getfixturevalue(kind), 15)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["layered", "writing", "server"])
def test_what_is_documented_is_what_happens_at_length(kind: str, request: pytest.FixtureRequest) -> None:
    against_the_schema(request.getfixturevalue(kind), 1000)


@pytest.mark.slow
def test_bad_input_at_length(layered: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", layered.port, timeout=20)

    @LONG
    @given(path=PATHS, body=st.one_of(BODIES.map(lambda body: json.dumps(body).encode()), st.binary(max_size=2000)))
    def one(path: str, body: bytes) -> None:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        json.loads(response.read())
        assert response.status == 200 or 400 <= response.status < 500

    one()
    connection.close()


def test_the_servers_have_survived_all_of_this(layered: Running, big: Running, hasty: Running) -> None:
    for server in (layered, big, hasty):
        assert server.post("/classify", {"text": "a good film"})[0] == 200
        assert 'status="500"' not in server.get("/metrics")[1]
        wait_until(lambda server=server: server.service.idle)
