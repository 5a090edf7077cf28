"""`rehead inspect`: parameter counts, training FLOPs per token, and figures of mask, positions and attention."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rehead.errors import UserError
from rehead.model.accounting import BYTES, MODELS, Account, Work, Workload, account, check, work
from rehead.model.config import Classifier, Head, LanguageModel, ModelConfig, preset, to_dict
from rehead.model.size_options import SIZES, ModelSizeOptions
from rehead.options import CommonOptions, flag, positional
from rehead.terminal import results_console

if TYPE_CHECKING:
    from rich.table import Table

    from rehead.runs.run import Run

WIDE = 140  # terminal columns from which formulas and numbers are printed side by side
PresetName = Literal["lab", "small", "base", "bag"]
DEFAULT_PRESET = "bag"  # that of pretraining


@dataclass
class InspectOptions(CommonOptions, ModelSizeOptions):
    """Count the parameters of a run or a preset; plot its attention mask, positions and attention weights."""

    GROUP = "model"
    MOST_USED = ("preset", "classes", "text", "plots", "json")

    run: Path | None = positional(None)
    "Run to inspect, or a base that others pretrained: DIR, hf:NAME, package:NAME (default: none; --preset is shown)."

    preset: PresetName | None = None
    "Model architecture to show when no run is given: lab, small, base or bag (default: bag)."

    vocab: int | None = flag(None, metavar="N")
    "Vocabulary size (default: the preset's)."

    classes: int | None = flag(None, metavar="K")
    "Number of classes of the classifier head (default: the run's, otherwise 2)."

    length: int = flag(256, metavar="T")
    "Sequence length in tokens, for the floating-point operations per token."

    text: str | None = flag(None, metavar="TEXT", group="reads")
    "With a run and --plots: plot the attention weights on this text (default: no attention plot)."

    direction: Literal["causal", "bidirectional"] | None = flag(None, group="reads")
    "With --text: use causal or bidirectional attention (default: that of the run's head)."

    plots: Path | None = flag(None, metavar="DIR", group="writes")
    "Save plots of mask, positions and attention to this directory, as PNG and SVG (default: no plots)."

    overwrite: bool = flag(False, group="writes")
    "Replace existing plots."

    json: bool = flag(False, group="writes")
    "Print a JSON document instead of tables."


def inspect(options: InspectOptions) -> None:
    """Run the command: count, check against the real modules, draw, print."""
    from rehead.bases.sources import is_brought

    if options.run is not None and is_brought(options.run):
        from rehead.use.inspect_base import inspect_base

        inspect_base(options)
        return
    run = _open(options)
    config, classifier, language_model = _shapes(options, run)
    counted = account(config, classifier, language_model)
    workload = _workload(options)
    costs = work(config, classifier, workload)
    _check(counted)
    drawn = [] if options.plots is None else _draw(options, options.plots, config, run)  # before anything is printed
    title = f"run {options.run}" if run else f"preset {options.preset or DEFAULT_PRESET}"
    if options.json:
        print(json.dumps(as_json(title, counted, workload, costs, run), indent=2, ensure_ascii=False))
    else:
        print_tables(title, counted, costs, run)
    if not options.quiet:
        for line in drawn:
            print(line, file=sys.stderr)


def _open(options: InspectOptions) -> Run | None:
    """Check the options against each other, and load the run."""
    if options.text is not None and options.plots is None:
        raise UserError("--text draws attention, which needs a directory for the figures: --plots DIR.")
    if options.direction is not None and options.text is None:
        raise UserError("--direction applies to --text only. Give --text, too.")
    if options.run is None:
        if options.text is not None:
            raise UserError("--text needs a run with a tokenizer and weights: rehead inspect RUN --text ...")
        return None
    for name in ("preset", "vocab", *SIZES):
        if getattr(options, name) is not None:
            raise UserError(f"--{name} applies to presets only, but a run is given: {options.run}. Drop one of them.")
    from rehead.runs.run import load

    run = load(options.run)
    if isinstance(run.model.head_config, Classifier) and options.classes is not None:
        raise UserError(
            f"--classes={options.classes}: {options.run} is a classifier with {run.model.head_config.classes} classes. "
            f"Drop --classes."
        )
    return run


def _shapes(options: InspectOptions, run: Run | None) -> tuple[ModelConfig, Classifier, LanguageModel]:
    """Return the configurations of the base and of the two heads to count; a run's own head as it is."""
    if run is None:
        vocabulary = {} if options.vocab is None else {"ntokens": options.vocab}
        config, head = preset(options.preset or DEFAULT_PRESET, **vocabulary, **options.changed_sizes()), None
    else:
        config, head = run.model.config, run.model.head_config
    classes = 2 if options.classes is None else options.classes
    classifier = head if isinstance(head, Classifier) else config.classifier(classes)
    return config, classifier, head if isinstance(head, LanguageModel) else config.language_model()


def _workload(options: InspectOptions) -> Workload:
    if options.length < 1:
        raise UserError(f"--length={options.length} is out of range. Choose 1 or more.")
    return Workload(length=options.length)


def _check(counted: Account) -> None:
    """Compare the formulas with real modules, built on the meta device, which takes no memory at any size."""
    import torch

    from rehead.model.model import Model

    heads: tuple[Head, Head] = (counted.language_model, counted.classifier)
    for whole, head in zip(MODELS, heads, strict=True):
        with torch.device("meta"):
            check(counted, Model(counted.config, head), whole)


def as_json(title: str, counted: Account, workload: Workload, costs: list[Work], run: Run | None) -> dict[str, Any]:
    """Return the content of the tables as a JSON document."""
    head = None if run is None else run.model.head_config
    return {
        "title": title,
        "brought": [] if run is None else [each.describe() for each in run.model.brought.values()],
        "carries": None if head is None else head.kind,
        "model": to_dict(counted.config),
        "heads": [to_dict(counted.language_model), to_dict(counted.classifier)],
        "parameters": [
            {
                "part": row.part,
                "level": row.level,
                "formula": row.formula.symbols,
                "numbers": row.formula.numbers,
                "count": row.count,
                "times": row.times,
                "share": {whole: row.count / max(1, counted.total(whole)) for whole in row.models},
                "float32_bytes": BYTES * row.count,
            }
            for row in counted.rows
        ],
        "equals_live_module": True,
        "workload": dataclasses.asdict(workload),
        "training_flops_per_token": [
            {
                "objective": cost.objective,
                "body": cost.body.value,
                "head": cost.head.value,
                "total": cost.body.value + cost.head.value,
                "body_formula": cost.body.symbols,
                "body_numbers": cost.body.numbers,
                "head_formula": cost.head.symbols,
                "head_numbers": cost.head.numbers,
            }
            for cost in costs
        ],
    }


def print_tables(title: str, counted: Account, costs: list[Work], run: Run | None) -> None:
    """Print parameter counts and FLOPs as tables."""
    console = results_console(200)
    config = counted.config
    models: tuple[str, ...] = MODELS
    shape = f"nhid {config.nhid}, nlayers {config.nlayers}, nhead {config.nhead}, nff {config.nff}, "
    shape += f"ntokens {config.ntokens:,}"
    if config.empty:
        shape, models = "no base of its own", ("classifier",)
    console.print(f"{title}: {shape}, classes {counted.classifier.classes}")
    console.print(_parameter_table(counted, models, wide=console.width >= WIDE))
    whole = " and ".join(f"{counted.total(name):,} ({name})" for name in models)
    console.print(f"Checked: the live modules hold exactly {whole} parameters.")
    if run is not None and run.model.head_config is not None:
        console.print(f"This run has a {run.model.head_config.kind} head.")
    for each in () if run is None else run.model.brought.values():
        console.print(
            f"It reads {each.name}, {each.engine.parameters:,} parameters more, licence {each.license or 'not stated'}."
        )
    if config.empty:
        return
    console.print("\nTraining work per token, in floating-point operations")
    console.print(f"body: {costs[0].body.symbols}\n    = {costs[0].body.numbers}")
    console.print(_flops_table(costs, wide=console.width >= WIDE))


def _parameter_table(counted: Account, models: Sequence[str], *, wide: bool) -> Table:
    """Make the table of the parts of these models; without a base, of those of the head alone."""
    table = plain_table("part", "formula", *(["numbers"] if wide else []))
    shown = {"language model": "of the LM", "classifier": "of the classifier" if wide else "of cls"}
    for name in ("parameters", *(shown[whole] for whole in models), "float32"):
        table.add_column(name, justify="right")
    rows = [row for row in counted.rows if not counted.config.empty or tuple(row.models) == tuple(models)]
    for row in rows:
        shares = [percent(row.count / max(1, counted.total(whole))) if whole in row.models else "" for whole in models]
        symbols, numbers = row.formula.symbols, row.formula.numbers
        table.add_row(
            ("  " if row.level == "part" and row.times > 1 else "") + row.part,
            *((symbols, numbers) if wide else (symbols if symbols == numbers else f"{symbols}\n= {numbers}",)),
            f"{row.count:,}",
            *shares,
            memory(BYTES * row.count),
            style="bold" if row.level == "total" else None,
        )
    return table


def _flops_table(costs: list[Work], *, wide: bool) -> Table:
    table = plain_table("objective")
    for name in ("body", "head", "total", "head share"):
        table.add_column(name, justify="right")
    for name in ("head formula", *(["numbers"] if wide else [])):
        table.add_column(name, overflow="fold")
    for cost in costs:
        total = cost.body.value + cost.head.value
        values = [_operations(each) for each in (cost.body.value, cost.head.value, total)]
        formula = (cost.head.symbols, cost.head.numbers)
        table.add_row(
            cost.objective,
            *values,
            percent(cost.head.value / max(1, total)),
            *(formula if wide else (f"{formula[0]}\n= {formula[1]}",)),
        )
    return table


def plain_table(*columns: str) -> Table:
    """Make a table without lines."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def percent(share: float) -> str:
    """Format a share."""
    return f"{100 * share:.1f} %" if share >= 0.0005 or share == 0 else "< 0.1 %"


def _operations(count: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= size:
            return f"{count / size:.2f}{unit}"
    return f"{count:.0f}"


def memory(count: int) -> str:
    """Format a number of bytes."""
    return f"{count / 2**20:,.1f} MiB" if count >= 2**20 else f"{count / 2**10:,.1f} KiB"


def _draw(options: InspectOptions, directory: Path, config: ModelConfig, run: Run | None) -> list[str]:
    """Draw the figures; return the lines to print about them."""
    from rehead.figures import save_figures
    from rehead.use import pictures

    figures, notes = {"mask": pictures.draw_mask()}, []
    if run is not None and options.text is not None:
        causal = run.model.reads_causally if options.direction is None else options.direction == "causal"
        figures |= pictures.draw_attention(run, options.text, causal)
    if config.positions == "none":
        notes.append("this model has no position encodings to draw")
    else:
        figures["positions"] = pictures.draw_positions(config, None if run is None else run.model)
    saved = save_figures(figures, directory, overwrite=options.overwrite)
    return ["wrote " + ", ".join(map(str, saved.paths)), *notes, *saved.notes]
