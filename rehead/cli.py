"""The command line: parse, call, print.

A command is an entry in `COMMANDS`. Its module holds an options dataclass and a function that takes it. Both are
imported only for the command that runs, and torch only where the function needs it, so `rehead --help` stays fast.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rehead import __version__
from rehead.errors import UserError
from rehead.options import Parser, add_options, read_options
from rehead.terminal import prepare_streams
from rehead.training.stopping import ending_signals


@dataclass(frozen=True)
class Command:
    """The module of a command, its options and function there, and its line in the help."""

    module: str
    options: str
    call: str
    help: str

    def load(self) -> tuple[type[Any], Callable[[Any], int | None]]:
        """Import the command's options class and its function."""
        module = importlib.import_module(self.module)
        return getattr(module, self.options), getattr(module, self.call)


COMMANDS: dict[str, Command] = {
    "pretrain": Command(
        "rehead.pretrain.command",
        "PretrainOptions",
        "command",
        "pretrain a base on unlabelled text",
    ),
    "finetune": Command(
        "rehead.finetune.command",
        "FinetuneOptions",
        "command",
        "train a classifier on labelled text, on a base that is given or pretrained first",
    ),
    "evaluate": Command(
        "rehead.use.evaluate",
        "EvaluateOptions",
        "evaluate",
        "evaluate a classifier on labelled text",
    ),
    "predict": Command(
        "rehead.use.predict",
        "PredictOptions",
        "predict",
        "predict labels and probabilities for texts",
    ),
    "compare": Command(
        "rehead.compare.command",
        "CompareOptions",
        "command",
        "compare training from scratch, pretraining and linear baselines on the same labels; write a report",
    ),
    "demo": Command(
        "rehead.compare.demo",
        "DemoOptions",
        "command",
        "pretrain, fine-tune and compare on built-in film reviews, in minutes; write a report",
    ),
    "lab": Command(
        "rehead.lab.command",
        "LabOptions",
        "command",
        "answer the five questions of the classic experiment from a live run, in one page",
    ),
    "inspect": Command(
        "rehead.use.inspect",
        "InspectOptions",
        "inspect",
        "count parameters; plot the attention mask, positional encodings and attention weights",
    ),
    "generate": Command(
        "rehead.use.generate",
        "GenerateOptions",
        "generate",
        "generate text that continues a prompt",
    ),
    "fill": Command(
        "rehead.use.fill",
        "FillOptions",
        "fill",
        "predict the masked words of a text",
    ),
    "export": Command(
        "rehead.use.export.command",
        "ExportOptions",
        "command",
        "export a run to ONNX, as a folder that needs neither torch nor rehead",
    ),
    "serve": Command(
        "rehead.use.serve.command",
        "ServeOptions",
        "command",
        "serve a run over HTTP, with a web page to try it",
    ),
    "label": Command(
        "rehead.label.command",
        "LabelOptions",
        "command",
        "label texts in the browser, while a classifier learns from every label",
    ),
    "data check": Command(
        "rehead.text.check",
        "CheckOptions",
        "check",
        "count documents; find duplicates, and leaks between training and test data",
    ),
    "data export": Command(
        "rehead.text.export",
        "ExportOptions",
        "export",
        "write a built-in dataset to files: unlabelled text, training, validation and test set",
    ),
}

EPILOG = "Options of one command: rehead COMMAND --help"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.

    0 done, 1 a check found something, 2 the user's error, 70 ours; 129, 130, 141 and 143 as a shell says it of a
    process whose terminal was closed, that was interrupted, lost its reader, or was told to end.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    if threading.current_thread() is threading.main_thread():
        for each in ending_signals():
            signal.signal(each, _end)
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
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        _let_go_of_stdout()
        return 141
    except OSError as error:  # a full disk, a folder that may not be read: nothing that a traceback would explain
        if debug:
            raise
        _let_go_of_stdout()
        where = f"{error.filename}: " if error.filename else ""
        print(f"rehead: error: {UserError(f'{where}{error.strerror or error}.')}", file=sys.stderr)
        return 2
    except Exception:  # Python's own exit code would be 1, and a script would take it for a finding
        traceback.print_exc()
        print("rehead: this is a bug in rehead, not in what you did.", file=sys.stderr)
        return 70


def _end(signum: int, frame: object) -> None:
    """Leave as from an exception, so that what is half written is cleared away."""
    sys.exit(128 + signum)


def _let_go_of_stdout() -> None:
    """Keep Python from writing what is left in the buffer, and complaining once more, while it closes stdout."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _asked_for(arguments: list[str]) -> str | None:
    """Find the command among the arguments: their first word, or their first two ("data check")."""
    words = [each for each in arguments if not each.startswith("-")]
    for name in (" ".join(words[:2]), " ".join(words[:1])):
        if name in COMMANDS:
            return name
    return None


def _parser(chosen: str | None, options: type[Any] | None = None) -> argparse.ArgumentParser:
    """Build the parser: all commands, and the options of the chosen one."""
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
        own = options if name == chosen else None
        settings: dict[str, Any] = {"help": command.help, "description": command.help, "add_help": own is None}
        if second:
            if first not in groups:
                group = commands.add_parser(first, help=f"see rehead {first} --help")
                groups[first] = group.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
            added = groups[first].add_parser(second, **settings)
        else:
            added = commands.add_parser(first, **settings)
        if own is not None:
            add_options(added, own)
    return parser
