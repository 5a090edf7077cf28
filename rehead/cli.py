"""The command line: parse, call, print.

A command is a row in `COMMANDS`. Its module holds an options dataclass and a function that takes it; both are
imported when that command is asked for, and torch only when the function needs it, so `rehead --help` answers in
a few hundredths of a second.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rehead import __version__
from rehead.errors import UserError
from rehead.options import Parser, add_options, read_options


@dataclass(frozen=True)
class Command:
    """Where a command lives, and its line in the help."""

    module: str
    options: str
    call: str
    help: str

    def load(self) -> tuple[type[Any], Callable[[Any], int | None]]:
        """Import the command's options class and its function."""
        module = importlib.import_module(self.module)
        return getattr(module, self.options), getattr(module, self.call)


COMMANDS: dict[str, Command] = {
    "inspect": Command(
        "rehead.use.inspect",
        "InspectOptions",
        "inspect",
        "count every parameter, draw the mask, positions, attention",
    ),
    "data check": Command(
        "rehead.text.check",
        "CheckOptions",
        "check",
        "count documents, find duplicates, and what of one part leaks into another",
    ),
    "data export": Command(
        "rehead.text.export",
        "ExportOptions",
        "export",
        "write a built-in set as files: unlabelled text, train, validation and test part",
    ),
}

EPILOG = "Options of one command: rehead COMMAND --help"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code: 0, 1 where a check found something, 2 for a user's error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = _asked_for(arguments)
    debug = "--debug" in arguments
    try:
        if command is None:
            _parser(None).parse_args(arguments)
            _parser(None).print_help()
            return 0
        options, call = COMMANDS[command].load()
        namespace = _parser(command, options).parse_args(arguments)
        code = call(read_options(namespace, options)) or 0
        sys.stdout.flush()
        return code
    except UserError as error:
        if debug:
            raise
        print(f"rehead: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if debug:
            raise
        print("rehead: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) has gone; python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _asked_for(arguments: list[str]) -> str | None:
    """Find which command the arguments name: their first word, or their first two ("data check")."""
    words = [each for each in arguments if not each.startswith("-")]
    for name in (" ".join(words[:2]), " ".join(words[:1])):
        if name in COMMANDS:
            return name
    return None


def _parser(chosen: str | None, options: type[Any] | None = None) -> argparse.ArgumentParser:
    """Build the parser: every command by name, the chosen one with its options."""
    parser = Parser(
        prog="rehead",
        description="Pretrain on the text you have, re-head it for the labels you need, on your own machine.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"rehead {__version__}")
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    groups: dict[str, Any] = {}
    for name, command in COMMANDS.items():
        first, _, second = name.partition(" ")
        if second:
            if first not in groups:
                group = commands.add_parser(first, help=f"see rehead {first} --help")
                groups[first] = group.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
            added = groups[first].add_parser(second, help=command.help, description=command.help)
        else:
            added = commands.add_parser(first, help=command.help, description=command.help)
        if name == chosen and options is not None:
            added.formatter_class = argparse.RawDescriptionHelpFormatter
            add_options(added, options)
    return parser
