"""Dataclass → command line, against what a user types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from rehead.options import CommonOptions, Parser, add_options, field_docs, flag, positional, read_options


@dataclass
class Example(CommonOptions):
    """An example."""

    texts: list[Path] = positional()
    "Files to read."

    run: Path = flag(name="--from", metavar="RUN")
    "Where from; 100 % of it."

    rate: float = 0.1
    """How fast.
    Second line."""

    labels: tuple[int, ...] = (100, 500)
    "How many."

    kind: Literal["one", "two"] | None = None
    "Which."

    against: list[str] | None = None
    "Others."

    keep_case: bool = True
    "Whether."

    fold: bool | None = None
    "Whether, unless it is left to us."


def parse(*arguments: str) -> Example:
    parser = Parser(prog="example")
    add_options(parser, Example)
    return read_options(parser.parse_args(arguments), Example)


def test_defaults() -> None:
    options = parse("a.txt", "--from", "runs/base")
    assert options == Example(texts=[Path("a.txt")], run=Path("runs/base"))
    assert (options.rate, options.labels, options.kind, options.against) == (0.1, (100, 500), None, None)
    assert options.keep_case
    assert options.fold is None
    assert not options.quiet
    assert parse("a.txt", "--from", "r", "--fold").fold is True
    assert parse("a.txt", "--from", "r", "--no-fold").fold is False


def test_everything_given() -> None:
    options = parse(
        "a.txt", "b.txt", "--from", "r", "--rate", "1e-3", "--labels", "20,100, 1600", "--kind", "two",
        "--against", "x", "y", "--no-keep-case", "--quiet", "--debug",
    )  # fmt: skip
    assert options.texts == [Path("a.txt"), Path("b.txt")]
    assert options.labels == (20, 100, 1600)
    assert (options.rate, options.kind, options.against) == (0.001, "two", ["x", "y"])
    assert not options.keep_case
    assert options.quiet
    assert options.debug


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "r"], "TEXTS"),
        (["a.txt"], "--from"),
        (["a.txt", "--from", "r", "--rate", "fast"], "fast"),
        (["a.txt", "--from", "r", "--labels", "1,x"], "1,x"),
        (["a.txt", "--from", "r", "--kind", "three"], "three"),
    ],
)
def test_mistakes(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(*arguments)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_the_help_is_the_docstrings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "--from RUN Where from; 100 % of it." in text
    assert "--rate RATE How fast. Second line. (default: 0.1)" in text
    assert "--labels LABELS How many. (default: 100,500)" in text
    assert "--keep-case, --no-keep-case Whether." in text
    assert "{one,two}" in text


def test_every_field_of_every_command_has_a_docstring() -> None:
    from rehead.cli import COMMANDS

    for name, command in COMMANDS.items():
        options, _ = command.load()
        docs = field_docs(options)
        missing = [field for field in options.__dataclass_fields__ if not docs.get(field)]
        assert not missing, f"{name}: {missing}"


@dataclass(kw_only=True)
class Parent:
    """Options that several commands take."""

    early: bool = False
    "A parent's."

    late: int = 1
    "Another."


@dataclass(kw_only=True)
class Child(CommonOptions, Parent):
    """A command's own options, and others."""

    late: int = 2
    "The parent's, with another default: it stays with its parent."

    own: int = 3
    "The command's."


def test_a_command_s_own_options_come_first_in_its_help() -> None:
    parser = Parser(prog="example")
    add_options(parser, Child)
    names = [action.dest for action in parser._actions]
    assert names == ["help", "own", "early", "late", "quiet", "debug"]
