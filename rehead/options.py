"""Options are dataclasses; the command line is derived from them.

A field is an option, the docstring under it is its help, its default is the default. So `--help`, the Python
signature and what is saved with a result have one source.

    @dataclass
    class InspectOptions(CommonOptions):
        GROUP = "model"
        MOST_USED = ("vocab",)

        run: Path | None = positional(None)
        "Run to inspect (default: none; a preset is shown)."

        vocab: int | None = None
        "Vocabulary size (default: the preset's)."

What a type means on the command line:

    bool            a switch: --flag; also --no-flag when the default is True, or None
    Literal[...]    one of the choices
    list[T]         several values: --flag A B C, or --flag A --flag B --flag C
    tuple[T, ...]   one comma-separated value: --flag 100,500,1600
    T | None        may be left out

A field with `init=False` is no option: this is how a command drops an inherited one.

`--help` is grouped. A field's group is the one given to `flag`, else the GROUP of the class that declares it.
Positional arguments and the command's MOST_USED options come first. The help states every default; where it is None,
the docstring says "(default: …)", i.e. what happens if the option is left out.
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
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field
from itertools import pairwise
from typing import Any, Literal, NoReturn, TypeVar, Union

from rehead.errors import UserError

T = TypeVar("T")

Group = Literal["reads", "writes", "model", "training", "long", "sampling", "limits", "hardware", "other"]
MOST_USED = "most used"
# In the order of the help.
TITLES: dict[Group, str] = {
    "reads": "what it reads",
    "writes": "what it writes",
    "model": "model",
    "training": "training",
    "long": "long documents",
    "sampling": "sampling",
    "limits": "limits",
    "hardware": "hardware",
    "other": "other",
}
# Flags that had another name before, in any command that has the new one. The keyword arguments of Python follow them.
RENAMED = {
    "--class-weights": "--class-weight",
    "--mask-share": "--mask-probability",
    "--warmup": "--warmup-ratio",
    "--decay": "--decay-ratio",
}


@dataclass(kw_only=True)
class CommonOptions:
    """The options of every command."""

    GROUP = "other"

    quiet: bool = False
    "Print results and errors only: no progress bar, no notes."

    debug: bool = False
    "Show the traceback of an error."


def positional(default: Any = MISSING, metavar: str | None = None) -> Any:  # noqa: ANN401 (stands for any field)
    """Declare a positional argument."""
    metadata = {"positional": True, "metavar": metavar}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def flag(
    default: Any = MISSING,  # noqa: ANN401 (stands for any field)
    name: str | None = None,
    metavar: str | None = None,
    group: Group | None = None,
) -> Any:  # noqa: ANN401
    """Declare an option with a name other than its field's (`--from`), a placeholder or a group of its own."""
    metadata = {"flag": name, "metavar": metavar, "group": group}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


class Parser(argparse.ArgumentParser):
    """Argparse with one-line errors, like every other error of the program, and without abbreviated flags."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 (those of argparse)
        super().__init__(**{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        """Print the error in one line and exit with 2."""
        print(f"{self.prog}: error: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


class Renamed(argparse.Action):
    """An option that is now called something else: using it is an error that names the new one."""

    def __call__(self, parser: argparse.ArgumentParser, *given: object) -> NoReturn:
        """Name the new option, and exit with 2."""
        old = self.option_strings[0]
        parser.error(f"{old} is now {RENAMED[old]}")


def add_options(parser: argparse.ArgumentParser, options: type[Any]) -> None:
    """Add an argument for every field, in groups; within a group, the class's own fields come before its parents'."""
    hints, docs = typing.get_type_hints(options), field_docs(options)
    # The class that declares a field, by its place among the parents: 0 is the class itself.
    declared = {
        name: place for place, cls in enumerate(options.__mro__) for name in vars(cls).get("__annotations__", {})
    }
    given = [each for each in dataclasses.fields(options) if each.init]
    fields = {each.name: each for each in sorted(given, key=lambda each: declared[each.name])}
    first = [name for name, each in fields.items() if each.metadata.get("positional")]
    first += getattr(options, "MOST_USED", ())
    by_title: dict[str, list[str]] = {MOST_USED: first, **{title: [] for title in TITLES.values()}}
    for name, each in fields.items():
        if name not in first:
            group = each.metadata.get("group") or vars(options.__mro__[declared[name]]).get("GROUP", "other")
            by_title[TITLES[group]].append(name)
    for title, names in by_title.items():
        group = parser.add_argument_group(title)  # an empty one is not shown
        for name in names:
            _add(group, fields[name], hints[name], docs.get(name, ""))
        if title == TITLES["other"] and not parser.add_help:
            group.add_argument("-h", "--help", action="help", help="Show this help and exit.")
    parser.usage = _usage(parser)
    flags = {flag_of(each) for each in fields.values()}
    for old, new in RENAMED.items():
        if new in flags:
            parser.add_argument(old, action=Renamed, nargs="?", dest=argparse.SUPPRESS, help=argparse.SUPPRESS)


def _usage(parser: argparse.ArgumentParser) -> str:
    """Show what must be given, and positional arguments first: an option that takes several values would take them."""
    words = [parser.prog]
    for each in parser._actions:
        if not each.option_strings:
            name = f"{each.metavar}{' ...' if each.nargs in ('+', '*') else ''}"
            words.append(name if each.required else f"[{name}]")
    words += [
        f"{each.option_strings[0]} {each.metavar}" for each in parser._actions if each.required and each.option_strings
    ]
    return " ".join([*words, "[options]"])


def flag_of(each: dataclasses.Field[Any]) -> str:
    """Name the flag of a field."""
    return each.metadata.get("flag") or "--" + each.name.replace("_", "-")


def check_names(given: Iterable[str], options: type[Any], call: str) -> None:
    """Refuse keyword arguments of the function `call` that are not among the options."""
    known = sorted(each.name for each in dataclasses.fields(options) if each.init)
    for name in sorted(set(given) - set(known)):
        new = RENAMED.get("--" + name.replace("_", "-"), "").strip("-").replace("-", "_")
        if new in known:
            raise UserError(f"{call}: the option {name!r} is now {new!r}.")
        raise UserError(f"{call} has no option {name!r}. It has: {', '.join(known)}.")


def read_options(given: object, options: type[T]) -> T:
    """Make an options object from argparse's namespace, or from other options that include all of its fields."""
    names = [each.name for each in dataclasses.fields(options) if each.init]  # type: ignore[arg-type]
    return options(**{name: getattr(given, name) for name in names})


def field_docs(options: type[Any]) -> dict[str, str]:
    """Read the docstrings under the fields, including those of the parent classes."""
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


def _add(parser: argparse._ArgumentGroup, each: dataclasses.Field[Any], hint: Any, doc: str) -> None:  # noqa: ANN401
    default = each.default_factory() if each.default_factory is not MISSING else each.default
    required = default is MISSING
    hint, optional = _without_none(hint)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    metavar = each.metadata.get("metavar")
    # Argparse expands "%" in help texts.
    settings: dict[str, Any] = {"help": _with_default(doc, default).replace("%", "%%")}

    if hint is bool:
        action = "store_true" if default is False else argparse.BooleanOptionalAction
        parser.add_argument(flag_of(each), dest=each.name, action=action, default=default, help=settings["help"])
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
    settings.update({"required": True} if required else {"default": default})
    if origin is list:  # --flag A --flag B is --flag A B
        settings["action"] = "extend"
    parser.add_argument(flag_of(each), dest=each.name, **settings)


def _without_none(hint: Any) -> tuple[Any, bool]:  # noqa: ANN401
    """`T | None` → (T, True); anything else → (itself, False)."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in typing.get_args(hint) if each is not type(None)]
        if len(rest) == 1:
            return rest[0], True
        raise TypeError(f"an option cannot have the type {hint}")
    return hint, False


def _with_default(doc: str, default: Any) -> str:  # noqa: ANN401
    """Add the default to a docstring that does not state it."""
    if "(default:" in doc:
        return doc
    if default is MISSING:
        note = "required"
    elif default is None or default == []:
        note = "default: none"
    elif isinstance(default, bool):
        note = f"default: {'on' if default else 'off'}"
    else:
        note = f"default: {','.join(map(str, default)) if isinstance(default, tuple) else default}"
    return f"{doc.removesuffix('.')} ({note})."


def _comma_separated(of: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    def read(text: str) -> tuple[Any, ...]:
        return tuple(of(part.strip()) for part in text.split(",") if part.strip())

    read.__name__ = f"comma-separated {getattr(of, '__name__', 'value')}"
    return read
