"""`rehead data check`: dataset statistics, duplicates and leakage, as tables or as JSON.

The exit code is 1 if documents of the split given by `--against` also occur in PATH, otherwise 0; `rehead.text.leaks`
defines what counts as a leak.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rehead.errors import UserError
from rehead.options import CommonOptions, flag, positional, read_options
from rehead.terminal import print_note, results_console
from rehead.text.documents import ReadOptions, location

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


BAR = 40  # characters of the longest bar


@dataclass(kw_only=True)
class CheckOptions(CommonOptions, ReadOptions):
    """Count documents; find duplicates, and leaks between training and test data."""

    MOST_USED = ("against", "unlabelled", "text_column", "label_column", "json")
    GROUP = "reads"

    paths: list[str] = positional(metavar="PATH")
    "Files, folders or globs, labelled or not; or a built-in dataset, such as imdb, or a split of it: imdb:train."

    against: list[str] = dataclasses.field(default_factory=list, metadata={"metavar": "PATH"})
    """Test data that must not occur in PATH: the exit code is 1 if any of it does, as an exact or near duplicate
    (default: none; only PATH itself is checked)."""

    allow_unlabelled: bool = False
    "Report unlabelled texts of PATH that occur in --against, but do not count them as a leak."

    unlabelled: bool = False
    "Read files as unlabelled text even where they look labelled, such as a folder with subfolders."

    skip_empty: bool = True
    "Count empty texts and labels; --no-skip-empty stops at the first."

    tokenizer: Path | None = flag(None, metavar="FILE", group="model")
    """Count tokens with this tokenizer.json, or SentencePiece .model with its dict.txt beside it (default: estimate the
    number of tokens)."""

    examples: int = flag(3, metavar="N", group="writes")
    "Number of duplicates of each kind to show."

    json: bool = flag(False, group="writes")
    "Print a JSON document instead of tables."


def check(options: CheckOptions) -> int:
    """Check the data, print the report, and return 1 if there is a leak."""
    from rehead.text.leaks import check_splits

    if options.examples < 0:
        raise UserError(f"--examples {options.examples}: must be 0 or more.")
    tokenizer = None
    if options.tokenizer is not None:
        from rehead.text.tokenizer import Tokenizer

        tokenizer = Tokenizer.load(options.tokenizer)
        for note in tokenizer.notes:
            print_note(note)
    how_to_read = read_options(options, ReadOptions)
    report = check_splits(
        options.paths,
        options.against,
        how_to_read,
        tokenizer=tokenizer,
        allow_unlabelled=options.allow_unlabelled,
        unlabelled=options.unlabelled,
        examples=options.examples,
        quiet=options.quiet,
    )
    if options.json:
        json.dump(report, sys.stdout, indent=2)
        print()
    else:
        _print(report)
    return int(report["leak"])


def _print(report: dict[str, Any]) -> None:
    console = results_console(100)
    console.soft_wrap = not sys.stdout.isatty()  # on a pipe, do not break lines
    names = _short_names(report["parts"])
    console.print(_statistics_table(report["parts"], names))
    for part, name in zip(report["parts"], names, strict=True):
        console.print(_histogram_table(part, name))
        _print_examples(console, f"Duplicates within {name}", part["examples"])
    if report["across"]:
        _print_examples(console, "Duplicates across splits", report["across"]["examples"])
    for line in _verdict(report, names):
        console.print(line)


def _short_names(parts: list[dict[str, Any]]) -> list[str]:
    """Name each split by its file names without folders, unless two splits would get the same name."""
    short = [", ".join(Path(path).name or path for path in part["paths"]) for part in parts]
    return short if len(set(short)) == len(short) else [", ".join(part["paths"]) for part in parts]


def _statistics_table(parts: list[dict[str, Any]], names: list[str]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE)
    table.add_column("")
    for name in names:
        table.add_column(Text(name), justify="right")

    def row(name: str, *cells: object) -> None:
        table.add_row(name, *(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in cells))

    for name in ("documents", "words", "characters"):
        row(name, *(part[name] for part in parts))
    if parts[0]["tokens_are_estimated"]:
        row("tokens, about", *(int(float(f"{part['tokens']:.2g}")) for part in parts))
    else:
        row("tokens", *(part["tokens"] for part in parts))
    for name in parts[0]["length"]:
        row(f"length in words, {name}", *(part["length"][name] for part in parts))
    row("labelled", *(part["labelled"] for part in parts))
    for label in dict.fromkeys(label for part in parts for label in part["classes"]):
        row(f"  {label}", *(_share(part, label) for part in parts))
    for reason in dict.fromkeys(reason for part in parts for reason in part["skipped"]):
        row(f"skipped: {reason}", *(part["skipped"].get(reason, 0) for part in parts))
    row("exact duplicates", *(part["exact_duplicates"] for part in parts))
    row("near duplicates", *(part["near_duplicates"] for part in parts))
    row("contradicting labels", *(part["contradictions"] for part in parts))
    return table


def _share(part: dict[str, Any], label: str) -> str:
    count = part["classes"].get(label, 0)
    return f"{count:,} ({100 * count / part['labelled']:.1f} %)" if part["labelled"] else "0"


def _histogram_table(part: dict[str, Any], name: str) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE)
    table.add_column("words", justify="right")
    table.add_column("documents", justify="right")
    table.add_column(Text(name))
    most = max(bar["documents"] for bar in part["histogram"])
    for bar in part["histogram"]:
        length = round(BAR * bar["documents"] / most)
        table.add_row(f"{bar['from']:,}–{bar['to']:,}", f"{bar['documents']:,}", "█" * length)
    return table


def _print_examples(console: Console, title: str, examples: list[dict[str, Any]]) -> None:
    if not examples:
        return
    console.print(f"{title}, for example:")
    for example in examples:
        kind = "exact" if example["kind"] == "exact" else f"near, {100 * example['similarity']:.0f} % of the shorter"
        console.print(f"  {kind}")
        for document in example["documents"]:
            labels = "" if document["labels"] is None else f" [{', '.join(document['labels'])}]"
            text = document["text"] if len(document["text"]) <= 90 else document["text"][:89] + "…"
            line = f"    {location(document['source'], document['line'])}{labels}: {text}"
            # Replace control characters, which a terminal would interpret.
            console.print("".join(each if each.isprintable() else "\ufffd" for each in line))
    console.print()


def _verdict(report: dict[str, Any], names: list[str]) -> list[str]:
    """Summarise the findings in a few lines, the most severe last."""
    lines = []
    if report["limited"]:
        lines.append(
            f"note: {_documents(report['limited'])} with very common phrases, compared with a sample of the others "
            "only: there may be more near duplicates."
        )
    for part, name in zip(report["parts"], names, strict=True):
        lines += [f"note: {note}" for note in part["notes"]]
        if part["skipped"].get("empty text") or part["skipped"].get("empty label"):
            lines.append(
                f"note: some texts or labels of {name} are empty; --no-skip-empty shows where the first one is."
            )
        if part["contradictions"]:
            lines.append(
                f"note: {_documents(part['contradictions'])} of {name} with a duplicate that is labelled differently."
            )
    across = report["across"]
    if across is None:
        return lines
    if across["contradictions"]:
        lines.append(f"note: {_documents(across['contradictions'])} of {names[1]} labelled differently in {names[0]}.")
    found = across["exact"] + across["near"]
    if not found:
        return [*lines, f"clean: no document of {names[1]} occurs in {names[0]}."]
    lines.append(
        f"{'LEAK' if report['leak'] else 'note'}: {_documents(found)} of {names[1]} also in {names[0]}: "
        f"{across['exact']:,} exact, {across['near']:,} near duplicates."
    )
    if across["unlabelled"]:
        advice = "That is allowed." if report["allow_unlabelled"] else "If that is intended, give --allow-unlabelled."
        lines.append(f"      {_documents(across['unlabelled'])} of these in unlabelled text only. {advice}")
    return lines


def _documents(count: int) -> str:
    return f"{count:,} document" + "s" * (count != 1)
