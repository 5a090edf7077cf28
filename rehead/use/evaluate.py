"""`rehead evaluate RUN LABELLED`: metrics of a classifier on labelled text, per class, with calibration error."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rehead.options import CommonOptions, positional, read_options
from rehead.text.documents import LabelledData, ReadOptions, describe_skipped

if TYPE_CHECKING:
    from rehead.finetune.metrics import Metrics
    from rehead.runs.run import Run
    from rehead.use.labeller import Labeller

SHOWN = 12  # maximum number of classes for which the confusion matrix is printed
NAME = 24  # maximum printed length of a class name


@dataclass(kw_only=True)
class EvaluateOptions(CommonOptions, ReadOptions):
    """Evaluate a classifier on labelled text."""

    GROUP = "reads"
    MOST_USED = ("text_column", "label_column", "json")

    run: Path = positional()
    "Classifier made by rehead finetune."

    labelled: list[str] = positional(metavar="LABELLED")
    "Labelled text: csv, tsv, jsonl or parquet files, or folders with one subfolder per class."

    json: bool = False
    "Print a JSON document instead of tables."


def evaluate(options: EvaluateOptions) -> None:
    """Run the command."""
    from rehead.text.labelled import read_examples
    from rehead.use.labeller import Labeller

    labeller = Labeller.open(options.run)
    reading = read_options(options, ReadOptions)
    reading.single_label = reading.single_label or not labeller.multilabel
    data = read_examples(options.labelled, reading, check=False)
    if not options.quiet:
        if skipped := describe_skipped(data.skipped):
            print(f"skipped: {skipped}", file=sys.stderr)
        for note in data.notes:
            print(f"warning: {note}", file=sys.stderr)
        if seen := _seen_before(labeller.run, data):
            print(
                f"warning: the classifier was {seen} these texts: its results on new texts will be worse",
                file=sys.stderr,
            )
    measured = evaluate_labeller(labeller, data)
    if options.json:
        print(json.dumps({"run": str(options.run), **dataclasses.asdict(measured)}, indent=2, ensure_ascii=False))
    else:
        print(format_metrics(measured))


def evaluate_labeller(labeller: Labeller, data: LabelledData) -> Metrics:
    """Predict labelled texts, and compute metrics."""
    from rehead.finetune.metrics import compute_metrics
    from rehead.finetune.targets import targets

    truth = targets(data, labeller.names, multilabel=labeller.multilabel)
    return compute_metrics(labeller.probabilities(data.texts), truth, labeller.names, labeller.rule)


def format_metrics(found: Metrics) -> str:
    """Format metrics as text tables."""
    multilabel = found.confusion is None
    exact = "  (exact match: all labels of a text correct)" if multilabel else ""
    micro = [] if found.micro_f1 is None else [f"micro-F1           {100 * found.micro_f1:6.2f} %"]
    lines = [
        f"{found.count:,} texts",
        f"accuracy           {100 * found.accuracy:6.2f} %{exact}",
        *micro,
        f"macro-F1           {100 * found.macro_f1:6.2f} %",
        f"log loss           {found.loss:8.4f}",
        f"calibration error  {100 * found.calibration_error:6.2f} %  (expected calibration error, ECE)",
        "",
    ]
    wide = max([5, *(len(_cut(each.name)) for each in found.classes)])
    lines.append(f"{'class':<{wide}}  precision  recall      F1   texts predicted")
    lines += [
        f"{_cut(each.name):<{wide}}  {100 * each.precision:7.1f} % {100 * each.recall:5.1f} % {100 * each.f1:5.1f} %"
        f" {each.count:>7,} {each.guessed:>9,}"
        for each in found.classes
    ]
    if absent := [_cut(each.name) for each in found.classes if not each.count and not each.guessed]:
        lines += ["", f"neither present nor predicted, so not in macro-F1: {', '.join(absent)}"]
    if found.confusion is not None and len(found.classes) > SHOWN:
        lines += ["", f"{len(found.classes)} classes are too many to print the confusion matrix: use --json"]
    elif found.confusion is not None:
        names = [_cut(each.name) for each in found.classes]
        columns = [
            max(len(name), len(f"{max(row[place] for row in found.confusion):,}")) for place, name in enumerate(names)
        ]
        heading = "  ".join(f"{name:>{size}}" for name, size in zip(names, columns, strict=True))
        lines += ["", "confusion matrix (rows: true class, columns: predicted)", f"{'':<{wide}}  {heading}"]
        for name, row in zip(names, found.confusion, strict=True):
            cells = "  ".join(f"{count:>{size},}" for count, size in zip(row, columns, strict=True))
            lines.append(f"{name:<{wide}}  {cells}")
    return "\n".join(lines)


def _cut(name: str) -> str:
    return name if len(name) <= NAME else name[: NAME - 1] + "…"


def _seen_before(run: Run, data: LabelledData) -> str | None:
    """Return how the classifier used these examples, if it was trained or calibrated on them."""
    known: Any = run.details.get("examples")
    if not isinstance(known, dict):
        return None
    mine = data.fingerprint()
    if known.get("train_fingerprint") == mine:
        return "trained on"
    return "calibrated or selected on" if known.get("valid_fingerprint") == mine else None
