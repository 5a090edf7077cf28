"""Contradictions are refused before anything is loaded, each with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rehead.errors import UserError
from rehead.use.serve.options import ServeOptions, check_server, find_token, is_local
from tests.use.serve.running import SECRET
from tests.use.tiny_runs import printed


def check(token: str | None = None, **options: Any) -> None:
    check_server(ServeOptions(run=Path("run"), **options), token)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"body_bytes": 0}, r"^--body-bytes=0 is out of range\. Choose 1 or more\.$"),
        ({"queue": -1}, "--queue=-1 is out of range"),
        ({"connections": 0}, "--connections=0 is out of range"),
        ({"seconds": 0.0}, r"--seconds=0\.0 is out of range\. Choose more than 0"),
        ({"seconds": float("inf")}, "--seconds=inf is out of range"),
        ({"receive_seconds": float("nan")}, "--receive-seconds=nan is out of range"),
        ({"idle_seconds": -1.0}, "--idle-seconds=-1"),
        ({"batch_wait_ms": -1.0}, r"--batch-wait-ms=-1\.0 is out of range"),
        ({"batch_wait_ms": 2000.0, "seconds": 2.0}, "--batch-wait-ms=2000 .*--seconds=2"),
        ({"characters": 5000, "body_bytes": 5000}, "--characters=5000 .*--body-bytes=5000"),
        (
            {"texts": 400, "body_bytes": 1000, "characters": 10},
            "--texts=400 .*--body-bytes=1000",
        ),
        ({"texts": 100, "queue": 99}, "--queue=99 .*--texts=100"),
        ({"explain_characters": 101, "characters": 100}, "--explain-characters=101 .*--characters=100"),
        ({"port": 65536}, "--port=65536 is out of range"),
        ({"port": -1}, "--port=-1 is out of range"),
        ({"host": "0.0.0.0"}, r"^--host=0\.0\.0\.0 .*--token-file.*REHEAD_TOKEN.*--insecure-no-token"),
        ({"host": "example.org"}, r"--host=example\.org .*token"),
        ({"allow_host": ["a b"]}, "--allow-host=a b "),
        ({"allow_origin": ["example.org"]}, r"--allow-origin=example\.org "),
        ({"allow_origin": ["https://example.org/"]}, "--allow-origin=https://example.org/ .*path"),
        ({"allow_origin": ["*"]}, r"--allow-origin=\* "),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        check(**options)


def test_what_can_be_is_taken() -> None:
    check()
    check(host="::1")
    check(host="0.0.0.0", insecure_no_token=True)
    check(SECRET, host="192.168.1.5", allow_host=["example.org"], allow_origin=["https://example.org:8443"])
    check(texts=1, queue=1, characters=988, body_bytes=1000, batch_wait_ms=0.0)


def test_a_token_and_none_contradict_each_other() -> None:
    with pytest.raises(UserError, match="--insecure-no-token"):
        check(SECRET, insecure_no_token=True)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("LocalHost", True),
        ("0.0.0.0", False), ("::", False), ("192.168.0.1", False), ("example.org", False), ("127.0.0.1.example", False),
        ("", False),
    ],
)  # fmt: skip
def test_which_addresses_are_of_this_machine_alone(host: str, local: bool) -> None:
    assert is_local(host) is local


def test_tokens_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"  {SECRET}\n")
    assert find_token(file, {}) == SECRET
    assert find_token(None, {"REHEAD_TOKEN": SECRET}) == SECRET
    assert find_token(None, {}) is None
    with pytest.raises(UserError, match="--token-file and REHEAD_TOKEN"):
        find_token(file, {"REHEAD_TOKEN": SECRET})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "letters, digits"),
        (b"short", "5 characters; 16 to 4096"),
        (b"a" * 5000, "4097 characters"),
        (b"two words and more of them", "on one line"),
        (b"several-lines-of\nsomething", "on one line"),
        ("ein-schlüssel-mit-ü-und-ö".encode(), "letters, digits"),
    ],
)
def test_bad_tokens_are_refused_without_being_shown(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(UserError, match=said) as error:
        find_token(file, {})
    assert not content or content.decode() not in str(error.value)


def test_what_is_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = str(tmp_path / "nowhere")
    for arguments, said in (
        (["run", "--token-file", nowhere], "nowhere"),
        (["run", "--host", "0.0.0.0"], "REHEAD_TOKEN"),
        ([nowhere, "--port", "0"], "no such run"),
    ):
        assert said in printed(capsys, "serve", *arguments, code=2)[1]
