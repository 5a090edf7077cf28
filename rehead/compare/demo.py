"""`rehead demo`: pretraining, fine-tuning and comparison on built-in film reviews, in minutes on a laptop.

    data          1,600 training reviews, 400 for validation, 2,000 for testing; the rest is unlabelled
    base          the default: a bag of n-gram vectors, pretrained on the unlabelled reviews
    lab-causal, lab-masked    a small Transformer language model, pretrained on the same text in two ways
    report        each network from scratch and pretrained; the default recipe on the base; three linear baselines

The data is written as ordinary files, so that each step can be repeated by hand. An interrupted demo continues with
--resume.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rehead.errors import UserError
from rehead.locks import locked
from rehead.options import CommonOptions, flag
from rehead.replacing import begin_steps, working_directory
from rehead.training.resuming import report_stop, start_command

if TYPE_CHECKING:
    from rehead.compare.experiment import Trial
    from rehead.compare.options import CompareOptions
    from rehead.compare.results import Method, Results
    from rehead.pretrain.options import PretrainOptions

DATA, BASE, REPORT = "data", "base", "report"
LABS = {"lab-causal": "causal", "lab-masked": "masked"}  # directory → objective, after the warm start
TRAIN = 1600  # training reviews
# The preset lab, reduced to train in minutes: its cost is the softmax over the vocabulary, and its width.
LAB_SHAPE = {"preset": "lab", "nlayers": 2, "length": 128, "batch": 1024}
WARM_UP = 6_000_000  # tokens that warm up its embeddings, in seconds
LAB_READS = 256  # tokens of a review that it is fine-tuned on


@dataclass(kw_only=True)
class DemoOptions(CommonOptions):
    """Pretrain on film reviews, compare with training from scratch and with linear baselines, and write a report."""

    GROUP = "training"
    MOST_USED = ("out", "seeds", "labels", "lab", "resume")

    out: Path = flag(Path("runs/demo"), metavar="DIR", group="writes")
    "Output directory, for data, runs and report."

    seeds: int = flag(2, metavar="N")
    "Number of random seeds per method."

    labels: tuple[int, ...] = flag((100, 500, 1600), metavar="N,N,…")
    "Training set sizes of the learning curve; scratch, pretrained and the language model train on the largest only."

    test: int = flag(2000, metavar="N", group="reads")
    "Size of the test set."

    unlabelled: int | None = flag(None, metavar="N", group="reads")
    "Number of reviews to pretrain on (default: all that are not training, validation or test set)."

    epochs: float | None = flag(None, metavar="N")
    "Pretraining epochs of the base (default: as in rehead pretrain)."

    lab: bool = True
    """Also pretrain a small Transformer language model (preset lab), by the causal and by the masked objective, and
    fine-tune it from both and from random weights; --no-lab saves half of the time."""

    lab_tokens: float = flag(300_000, metavar="N")
    "Number of tokens that each of them is pretrained on, after its embeddings were warmed up."

    lab_epochs: float = flag(4, metavar="N")
    "Epochs of scratch and pretrained on the labelled reviews."

    lab_nhid: int = flag(128, metavar="N", group="model")
    "Hidden size of the language model."

    nhid: int | None = flag(None, metavar="N", group="model")
    "Hidden size of the base (default: the preset's)."

    vocab: int = flag(8192, metavar="N", group="model")
    "Vocabulary size of the language model."

    seed: int = flag(0, metavar="N")
    "Random seed of the split, and the first of --seeds."

    resume: bool = flag(False, group="writes")
    "Continue an interrupted demo."

    overwrite: bool = flag(False, group="writes")
    "Replace an existing demo."


def command(options: DemoOptions) -> int:
    """Run the demo; print the results table and the path of the report."""
    from rehead.training.stopping import Stopped

    try:
        return _demo(options, start_command(sys.argv[1:]))
    except (KeyboardInterrupt, SystemExit, Stopped) as stop:
        return report_stop(stop)


def _demo(options: DemoOptions, command_line: str) -> int:
    if options.resume and options.overwrite:
        raise UserError("--resume continues a demo and --overwrite deletes it. Give one.")
    base = _pretraining(options, BASE, {"epochs": options.epochs, "nhid": options.nhid})
    labs = _labs(options) if options.lab else {}
    comparison = _comparison(options)
    _check(options, [base, *labs.values()], comparison)
    from rehead.compare.command import print_table

    with locked(options.out):
        if not options.resume:
            begin_steps(options.out, (DATA, BASE, *LABS, REPORT) if options.overwrite else None)
        results = _run(options, base, labs, comparison, command_line)
    print_table(results)
    print(f"\nreport: {comparison.out / 'report.html'}")
    return int(any(not each.passed for each in results.guards.controls))


def _run(
    options: DemoOptions,
    base: PretrainOptions,
    labs: dict[str, PretrainOptions],
    comparison: CompareOptions,
    command_line: str,
) -> Results:
    """Write the data, pretrain, and compare."""
    from rehead.compare.command import compare

    say = _step_printer(options, steps=3 + len(labs))
    say(f"write the film reviews to {options.out / DATA}")
    _write_data(options)
    say("pretrain a base on unlabelled reviews (the default: a bag of n-gram vectors)")
    _pretrain(base, resume=options.resume)
    for name, each in labs.items():
        say(f"pretrain a small Transformer on the same reviews: {LABS[name]} language model")
        _pretrain(each, resume=options.resume)
    say("train every method on the same labels, and evaluate all on the test set")
    return compare(comparison, command_line, include=_included(options))


def _check(options: DemoOptions, pretraining: list[PretrainOptions], comparison: CompareOptions) -> None:
    """Validate the options of all steps before the first one starts."""
    from rehead.compare.options import check_compare
    from rehead.pretrain.options import check_pretraining

    for name in ("unlabelled", "lab_tokens", "lab_epochs"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"--{name.replace('_', '-')} {value:g}: must be above 0.")
    for each in pretraining:
        check_pretraining(each)
    check_compare(comparison)
    if max(options.labels) > TRAIN:
        raise UserError(f"--labels {max(options.labels)}: exceeds the {TRAIN:,} training examples.")


def _comparison(options: DemoOptions) -> CompareOptions:
    """Make the options of the comparison."""
    from rehead.compare.options import CompareOptions
    from rehead.training.distributed import fastest_precision

    data, report = options.out / DATA, options.out / REPORT
    return CompareOptions(
        labelled=[str(data / "train.csv")],
        valid=[str(data / "valid.csv")],
        test=[str(data / "test.csv")],
        base=[str(options.out / name) for name in (BASE, *(LABS if options.lab else ()))],
        unlabelled=[str(data / "unlabelled.txt")],
        out=report,
        labels=options.labels,
        seeds=options.seeds,
        seed=options.seed,
        epochs=options.lab_epochs,
        length=LAB_READS if options.lab else None,
        pooling="mean" if options.lab else None,
        attention="both" if options.lab else None,
        precision=fastest_precision() if options.lab else "auto",
        resume=options.resume and (working_directory(report) / "plan.json").exists(),
        overwrite=options.overwrite,
        quiet=options.quiet,
        debug=options.debug,
    )


def _included(options: DemoOptions) -> Callable[[Method, Trial], bool]:
    """Choose the trials that fit into minutes.

    Scratch and pretrained train on the largest training set only, and the language models do nothing else.
    """
    labs, most = {str(options.out / name) for name in LABS}, max(options.labels)

    def included(method: Method, trial: Trial) -> bool:
        trained = method.kind in ("scratch", "pretrained")
        if method.run in labs:
            return trained and trial.labels == most and not trial.shuffled
        return not trained or trial.labels == most

    return included


def _write_data(options: DemoOptions) -> None:
    """Write the reviews as files, unless a resumed demo has them."""
    from rehead.text.datasets import load_dataset
    from rehead.text.export import write_splits

    folder = options.out / DATA
    if options.resume and folder.exists():
        return
    split = load_dataset("imdb", train=TRAIN, test=options.test, seed=options.seed)
    if options.unlabelled is not None:
        split.unlabelled = split.unlabelled[: options.unlabelled]
    write_splits(split, folder, overwrite=options.overwrite)


def _labs(options: DemoOptions) -> dict[str, PretrainOptions]:
    """Make the options of the language models: one shape, one tokenizer, two objectives."""
    from rehead.training.directory import TOKENIZER
    from rehead.training.distributed import fastest_precision

    total = WARM_UP + options.lab_tokens
    share = WARM_UP / total
    made: dict[str, PretrainOptions] = {}
    for name, objective in LABS.items():
        first = options.out / next(iter(LABS))
        tokenizer: dict[str, Any] = {"vocab": options.vocab, "lowercase": True}
        if made:
            tokenizer = {"tokenizer": first / TOKENIZER}
        settings = {**LAB_SHAPE, "nhid": options.lab_nhid, "tokens": total, **tokenizer}
        settings["precision"] = fastest_precision()
        settings["objective"] = f"bag:{share:.12g},{objective}:{1 - share:.12g}"
        made[name] = _pretraining(options, name, settings)
    return made


def _pretraining(options: DemoOptions, name: str, settings: dict[str, Any]) -> PretrainOptions:
    """Make the options of a pretraining run; an interrupted one is resumed."""
    from rehead.pretrain.options import PretrainOptions

    out = options.out / name
    return PretrainOptions(
        texts=[str(options.out / DATA / "unlabelled.txt")],
        out=out,
        seed=options.seed,
        resume=options.resume and (working_directory(out) / "pretrain.json").exists(),
        overwrite=options.overwrite,
        quiet=options.quiet,
        debug=options.debug,
        **settings,
    )


def _pretrain(options: PretrainOptions, *, resume: bool) -> None:
    """Pretrain a run, or resume it, unless it is complete."""
    from rehead.pretrain.run import run_pretraining

    if resume and not options.resume and (options.out / "config.json").exists():
        return
    run_pretraining(options)


def _step_printer(options: DemoOptions, steps: int) -> Callable[[str], None]:
    """Make a function that prints each step with its number."""
    numbers = count(1)

    def say(line: str) -> None:
        if not options.quiet:
            print(f"\n{next(numbers)} of {steps}: {line}", file=sys.stderr)

    return say
