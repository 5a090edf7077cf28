"""Options are dataclasses; the command line is derived from them.

A field is an option, the docstring under it is its help, its default is the default. So the words a user reads
in `--help`, the Python signature and what is saved beside a result have one source.

    @dataclass
    class InspectOptions(CommonOptions):
        run: Path | None = positional(None)
        "A run to look into."

        vocab: int | None = None
        "Size of the vocabulary."

What a type means on the command line:

    bool            a switch: --flag; also --no-flag when the default is True, or None
    Literal[...]    one of the choices
    list[T]         several words: --flag A B C
    tuple[T, ...]   one word, comma-separated: --flag 100,500,1600
    T | None        may be left out

A field with `init=False` is none: so a command leaves out what it inherits and has no use for.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import sys
import textwrap
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from itertools import pairwise
from typing import Any, Literal, NoReturn, TypeVar, Union

T = TypeVar("T")


@dataclass(kw_only=True)
class CommonOptions:
    """What every command takes."""

    quiet: bool = False
    "No progress, no notes: results and errors only."

    debug: bool = False
    "Show the traceback of an error."


def positional(default: Any = MISSING, metavar: str | None = None) -> Any:  # noqa: ANN401 (stands for any field)
    """Declare a field that is given by place, without a flag."""
    metadata = {"positional": True, "metavar": metavar}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def flag(default: Any = MISSING, name: str | None = None, metavar: str | None = None) -> Any:  # noqa: ANN401
    """Declare a field whose flag has another name than the field (`--from`), or a placeholder of its own."""
    metadata = {"flag": name, "metavar": metavar}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


class Parser(argparse.ArgumentParser):
    """Argparse whose errors are one line, like every other error of the program, and whose flags are not guessed."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 (those of argparse)
        super().__init__(**{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where the help is, then exit with 2."""
        print(f"{self.prog}: error: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


def add_options(parser: argparse.ArgumentParser, options: type[Any]) -> None:
    """Give the parser an argument for every field: the class's own first, then its parents', common ones last."""
    hints = typing.get_type_hints(options)
    docs = field_docs(options)
    # Where each was declared first: 0 is the class itself.
    declared = {
        name: place for place, cls in enumerate(options.__mro__) for name in vars(cls).get("__annotations__", {})
    }
    common = {each.name for each in dataclasses.fields(CommonOptions)}
    given = [each for each in dataclasses.fields(options) if each.init]
    for each in sorted(given, key=lambda each: (each.name in common, declared[each.name])):
        _add(parser, each, hints[each.name], docs.get(each.name, ""))


def read_options(given: object, options: type[T]) -> T:
    """Make the options object out of what argparse has read, or of other options that have all of these."""
    names = [each.name for each in dataclasses.fields(options) if each.init]  # type: ignore[arg-type]
    return options(**{name: getattr(given, name) for name in names})


def field_docs(options: type[Any]) -> dict[str, str]:
    """Read the docstrings that stand under the fields, those of the parent classes included."""
    docs: dict[str, str] = {}
    for cls in reversed(options.__mro__):
        if not dataclasses.is_dataclass(cls):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        assert isinstance(body, ast.ClassDef)  # noqa: S101
        for above, below in pairwise(body.body):
            if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name):
                text = below.value if isinstance(below, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    docs[above.target.id] = inspect.cleandoc(text.value)
    return docs


def _add(parser: argparse.ArgumentParser, each: dataclasses.Field[Any], hint: Any, doc: str) -> None:  # noqa: ANN401
    default = each.default_factory() if each.default_factory is not MISSING else each.default
    required = default is MISSING
    hint, optional = _without_none(hint)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    metavar = each.metadata.get("metavar")
    # Argparse expands "%" in help texts.
    settings: dict[str, Any] = {"help": doc.replace("%", "%%") + _default_note(default)}

    if hint is bool:
        name = "--" + each.name.replace("_", "-")
        action = "store_true" if default is False else argparse.BooleanOptionalAction
        parser.add_argument(name, dest=each.name, action=action, default=default, help=settings["help"])
        return
    if origin is Literal:
        settings["choices"] = inner
        settings["type"] = type(inner[0])
    elif origin is list:
        settings["nargs"] = "+" if required or not each.metadata.get("positional") else "*"
        settings["type"] = inner[0]
    elif origin is tuple:
        settings["type"] = _comma_separated(inner[0])
    else:
        settings["type"] = hint

    if each.metadata.get("positional"):
        if origin is not list and (optional or not required):
            settings["nargs"] = "?"
        if not required:
            settings["default"] = default
        parser.add_argument(each.name, metavar=metavar or each.name.upper(), **settings)
        return
    if origin is not Literal:
        settings["metavar"] = metavar or each.name.upper()
    name = each.metadata.get("flag") or "--" + each.name.replace("_", "-")
    settings.update({"required": True} if required else {"default": default})
    parser.add_argument(name, dest=each.name, **settings)


def _without_none(hint: Any) -> tuple[Any, bool]:  # noqa: ANN401
    """`T | None` → (T, True); anything else → (itself, False)."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in typing.get_args(hint) if each is not type(None)]
        if len(rest) == 1:
            return rest[0], True
        raise TypeError(f"an option cannot have the type {hint}")
    return hint, False


def _default_note(default: Any) -> str:  # noqa: ANN401
    if default is MISSING or default is None or default is False or default is True or default == []:
        return ""
    text = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return f" (default: {text})".replace("%", "%%")


def _comma_separated(of: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    def read(text: str) -> tuple[Any, ...]:
        return tuple(of(part.strip()) for part in text.split(",") if part.strip())

    read.__name__ = f"comma-separated {getattr(of, '__name__', 'value')}"
    return read
