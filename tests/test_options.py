"""Dataclass → command line, against what a user types."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import rehead
from rehead.cli import COMMANDS, main
from rehead.errors import UserError
from rehead.options import (
    RENAMED,
    TITLES,
    CommonOptions,
    Parser,
    add_options,
    field_docs,
    flag,
    flag_of,
    positional,
    read_options,
)


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
    assert "TEXTS Files to read (required)." in text
    assert "--from RUN Where from; 100 % of it (required)." in text
    assert "--rate RATE How fast. Second line (default: 0.1)." in text
    assert "--labels LABELS How many (default: 100,500)." in text
    assert "--keep-case, --no-keep-case Whether (default: on)." in text
    assert "--kind {one,two} Which (default: none)." in text
    assert "--quiet" in text
    assert text.startswith("usage: example TEXTS ... --from RUN [options] ")


def test_every_field_of_every_command_has_a_docstring() -> None:
    for name, command in COMMANDS.items():
        options, _ = command.load()
        docs = field_docs(options)
        missing = [field for field in options.__dataclass_fields__ if not docs.get(field)]
        assert not missing, f"{name}: {missing}"


def groups_of(printed: str) -> dict[str, dict[str, str]]:
    """Read a help text: its groups, the arguments of each, and what is said of them."""
    groups: dict[str, dict[str, str]] = {}
    for title, body in re.findall(r"^([a-z ]+):\n((?:  .*\n)+)", printed, re.MULTILINE):
        arguments = re.findall(r"^  (\S.*?)(?:  +|\n +)(\S.*)$", body, re.MULTILINE)
        groups[title] = {re.split(r"[ ,]", name)[0]: said for name, said in arguments}
    return groups


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_is_grouped_and_states_every_default(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    groups = groups_of(capsys.readouterr().out)
    options, _ = COMMANDS[command].load()
    fields = {each.name: each for each in dataclasses.fields(options) if each.init}
    assert next(iter(groups)) == "most used"
    assert [*groups][-1] == "other"
    titles = ["most used", *TITLES.values()]
    assert [*groups] == [title for title in titles if title in groups], "groups have a fixed order"
    said = {name: text for group in groups.values() for name, text in group.items()}
    assert sum(map(len, groups.values())) == len(said) == len(fields) + 1, "every option once, and the help"

    positionals = [each for each in fields.values() if each.metadata.get("positional")]
    assert len(groups["most used"]) <= len(positionals) + 5
    assert [name for name in groups["most used"] if name.startswith("--")] == [
        flag_of(fields[name]) for name in options.MOST_USED
    ]
    hints, docs = get_type_hints(options), field_docs(options)
    for each in fields.values():
        name = each.metadata.get("metavar") or each.name.upper() if each in positionals else flag_of(each)
        text = said[name]
        required = each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        assert ("(required)." if required else "(default: ") in text, f"{name}: {text}"
        assert each.default is not None or "(default: " in docs[each.name], f"{name}: say what happens without it"
        for choice in choices_of(hints[each.name]):
            assert re.search(rf"(?<![\w-]){re.escape(choice)}(?![\w-])", text), f"{name} does not explain {choice}"


def choices_of(hint: Any) -> list[str]:
    """The choices of `Literal[...]`, also within `| None`."""
    if get_origin(hint) is Literal:
        return [*get_args(hint)]
    return [each for part in get_args(hint) for each in choices_of(part)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_renamed_option_names_the_new_one(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    options, _ = COMMANDS[command].load()
    flags = {flag_of(each) for each in dataclasses.fields(options) if each.init}
    for old, new in RENAMED.items():
        assert old not in flags
        for given in ([old], [old, "0.1"], [f"{old}=balanced"]):
            with pytest.raises(SystemExit) as stop:
                main([*command.split(), "something", *given])
            said = capsys.readouterr().err
            assert stop.value.code == 2
            assert said.count("\n") == 1
            assert (f"{old} is now {new}" in said) == (new in flags)


def test_every_new_name_exists_and_python_s_arguments_follow(tmp_path: Path) -> None:
    loaded = [command.load()[0] for command in COMMANDS.values()]
    flags = {flag_of(each) for options in loaded for each in dataclasses.fields(options)}
    assert set(RENAMED.values()) <= flags
    with pytest.raises(UserError, match="'mask_share' is now 'mask_probability'"):
        rehead.pretrain("a.txt", out=tmp_path / "run", mask_share=0.15)
    with pytest.raises(UserError, match="'class_weights' is now 'class_weight'"):
        rehead.finetune("a.csv", out=tmp_path / "run", class_weights="balanced")
    with pytest.raises(UserError, match="no option 'mask_share'"):
        rehead.finetune("a.csv", out=tmp_path / "run", mask_share=0.15)
    with pytest.raises(UserError, match=r"no option 'epoch'\. It has: .*epochs"):
        rehead.pretrain("a.txt", out=tmp_path / "run", epoch=1)


HELP = """
import contextlib, io, sys
from rehead.cli import COMMANDS, main
for name in ["", *COMMANDS]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main([*name.split(), "--help"])
    print(name, "torch" in sys.modules)
"""


def test_no_help_imports_torch() -> None:
    said = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"{name} False" for name in ["", *COMMANDS]]


@dataclass(kw_only=True)
class Parent:
    """Options that several commands take."""

    GROUP = "reads"

    early: bool = flag(False, group="long")
    "A parent's, in a group of its own."

    late: int = 1
    "Another."


@dataclass(kw_only=True)
class Child(CommonOptions, Parent):
    """A command's own options, and others."""

    GROUP = "training"
    MOST_USED = ("late",)

    late: int = 2
    "The parent's, with another default: it stays with its parent."

    own: int = 3
    "The command's."


def test_options_are_grouped_by_the_class_that_declares_them() -> None:
    parser = Parser(prog="example", add_help=False)
    add_options(parser, Child)
    names = [action.dest for action in parser._actions]
    assert names == ["late", "own", "early", "quiet", "debug", "help"]
    groups = {each.title: [action.dest for action in each._group_actions] for each in parser._action_groups}
    assert groups["most used"] == ["late"]
    assert groups["training"] == ["own"]
    assert groups["long documents"] == ["early"]
    assert groups["other"] == ["quiet", "debug", "help"]
