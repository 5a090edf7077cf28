"""The `rehead compare` command. Heavy imports are deferred, so that --help does not load torch."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from rehead.compare.options import CompareOptions, check_compare
from rehead.errors import UserError
from rehead.replacing import publish, writing
from rehead.training.directory import keeping
from rehead.training.resuming import report_stop, start_command

if TYPE_CHECKING:
    from rehead.compare.experiment import Trial
    from rehead.compare.results import Method, Results, RunFacts
    from rehead.runs.run import Run

__all__ = ["CompareOptions", "command", "compare"]


def command(options: CompareOptions) -> int:
    """Run the command and return its exit code: 1 if a method passes chance level on shuffled labels."""
    try:
        results = compare(options, start_command(sys.argv[1:]))
    except (KeyboardInterrupt, SystemExit) as stop:
        return report_stop(stop, options.out, "plan.json")
    print_table(results)
    print(f"\nreport: {options.out / 'report.html'}")
    return int(any(not each.passed for each in results.guards.controls))


def compare(
    options: CompareOptions, command_line: str, include: Callable[[Method, Trial], bool] = lambda method, trial: True
) -> Results:
    """Run the comparison, and write `results.json` and `report.html`.

    `command_line` is shown in the report. `include` filters the trials; a method that keeps any must keep those with
    the most labels.
    """
    check_compare(options)
    began = time.monotonic()
    from rehead.compare.data import prepare
    from rehead.compare.experiment import FILES, WORK, list_trials, open_directory, run_trials
    from rehead.compare.methods import list_methods, with_together
    from rehead.compare.scoring import score
    from rehead.runs.starting import fingerprint, open_base

    given = {name: open_base(name) for name in options.base}
    runs = with_together(given)
    splits = prepare(options, [(name, run.details) for name, run in given.items()])
    counts = sorted(set(options.labels or (len(splits.train),)))
    if counts[-1] > len(splits.train):
        raise UserError(
            f"--labels {counts[-1]}: exceeds the {len(splits.train):,} training examples"
            f"{'' if options.test and options.valid else ' left after the split'}. Give a smaller size."
        )
    if counts[0] < 2 * len(splits.names):
        raise UserError(
            f"--labels {counts[0]}: too few for {len(splits.names)} classes. Give {2 * len(splits.names)} or more."
        )
    methods = {each.key: each for each in list_methods(options, runs)}
    fingerprints = {**splits.fingerprints(), "runs": {name: fingerprint(run) for name, run in given.items()}}
    listed = list_trials(list(methods.values()), counts, options)
    trials = [each for each in listed if include(methods[each.method], each)]
    kept = [method for key, method in methods.items() if any(each.method == key for each in trials)]
    with writing(options.out), keeping(options.out):
        work = open_directory(options, fingerprints)
        outcomes = run_trials(trials, kept, runs, splits, options, work)
        facts = _facts(options, command_line, [_describe_base(name, run) for name, run in given.items()])
        facts.seconds = time.monotonic() - began
        results = score(outcomes, kept, counts, splits, facts)
        write_report(results, work, quiet=options.quiet)
        publish(options.out, FILES)
        shutil.rmtree(options.out / WORK, ignore_errors=True)
    return results


def write_report(results: Results, out: Path, *, quiet: bool = False) -> None:
    """Write `report.html`, then `results.json`, whose presence marks a comparison as complete."""
    from rehead.compare.page import render, write_page
    from rehead.compare.plots import draw_plots
    from rehead.compare.results import to_json

    page, facts = out / "report.html", out / "results.json"
    write_page(
        page, facts, lambda: draw_plots(results), lambda plots: render(results, plots), to_json(results), quiet=quiet
    )


def print_table(results: Results) -> None:
    """Print the summary, and the scores of every method."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from rehead.progress import duration
    from rehead.terminal import results_console

    console = results_console(110)
    for line in results.answer:
        console.print(line)
    table = Table(box=box.SIMPLE)
    multilabel = results.data.multilabel
    table.add_column(f"{'exact match' if multilabel else 'test accuracy'}, %, by labels")
    for count in results.counts:
        table.add_column(f"{count:,}", justify="right")
    f1 = ("micro-F1", "macro-F1") if multilabel else ("macro-F1",)
    for name in ("± seeds", "95 % interval", *f1, "training", "documents/s"):
        table.add_column(name, justify="right")
    for method in results.methods:
        scores = [results.score(method.key, count) for count in results.counts]
        last = scores[-1]
        assert last is not None  # noqa: S101 (every method was run with every number of labels)
        interval = last.accuracy.over_documents
        cells = [
            *(f"{100 * each.accuracy.mean:.1f}" if each else "–" for each in scores),
            "–" if last.accuracy.spread is None else f"{100 * last.accuracy.spread:.1f}",
            "–" if interval is None else f"{100 * interval.low:.1f}–{100 * interval.high:.1f}",
            *([] if last.micro_f1 is None else [f"{100 * last.micro_f1.mean:.1f}"]),
            f"{100 * last.macro_f1.mean:.1f}",
            duration(last.train_seconds),
            f"{last.documents_per_second:,.0f}",
        ]
        table.add_row(Text(method.title), *cells)
    console.print(table)
    leaks = results.guards.leaks
    for dropped, kind in ((leaks.dropped, "labelled"), (leaks.unlabelled, "unlabelled")):
        if dropped:
            console.print(
                f"note: {dropped:,} {kind} documents are duplicates of test documents and were excluded from training."
            )
    for control in results.guards.controls:
        if not control.passed:
            console.print(
                f"WARNING: trained on shuffled labels, {results.method(control.method).title} reaches a macro-averaged "
                f"recall of {100 * control.recall:.1f} %, above chance ({100 * control.chance:.1f} %): labels leak."
            )


def _describe_base(name: str, run: Run) -> str:
    """Describe how a base was pretrained, as far as its details record it, or what others pretrained."""
    if run.model.config.empty:
        brought = [f"{each.name}, {each.engine.parameters:,} parameters" for each in run.model.brought.values()]
        return f"{name}: pretrained by others ({'; '.join(brought)})."
    details = run.details
    seconds, tokens, text = details.get("seconds"), details.get("tokens"), details.get("text")
    sentence = f"{name}: pretrained with the objective {details.get('objective', '(not recorded)')}"
    if isinstance(text, dict) and "documents" in text:
        sentence += f" on {text['documents']:,} unlabelled documents"
    if tokens and seconds:
        from rehead.progress import duration

        sentence += f", {tokens:,} tokens in {duration(seconds)}"
    return sentence + "."


def _facts(options: CompareOptions, command_line: str, runs: list[str]) -> RunFacts:
    import dataclasses
    import json

    import rehead
    from rehead.compare.results import RunFacts

    versions = {"rehead": rehead.__version__, "python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in ("torch", "scikit-learn", "numpy")}
    given = json.loads(json.dumps(dataclasses.asdict(options), default=str))
    today = datetime.datetime.now().astimezone().date().isoformat()
    return RunFacts(command_line, given, versions, os.cpu_count() or 1, 0.0, today, runs)
