"""`rehead lab`: pretrain, fine-tune, compare and look inside, within minutes, and write one page.

    data          the built-in film reviews as files, unless the user gives texts
    causal, masked, hybrid, next-sentence     the same Transformer, pretrained for as long each
    report        all of them and the same network from scratch, on the same labels (`rehead compare`)
    lab.json      what came out; lab.html is made from it alone

Each step is done once: an interrupted lab goes on with --resume.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rehead.disk import atomic_file, read_checksummed_json, write_checksummed_json
from rehead.errors import UserError
from rehead.lab.options import LabOptions, check_lab
from rehead.locks import locked
from rehead.options import read_options
from rehead.progress import duration
from rehead.replacing import begin_steps, working_directory
from rehead.text.documents import ReadOptions
from rehead.training.resuming import report_stop, start_command

if TYPE_CHECKING:
    from rehead.compare.experiment import Trial
    from rehead.compare.options import CompareOptions
    from rehead.compare.results import Method, Results
    from rehead.lab.data import Texts
    from rehead.lab.facts import LabFacts
    from rehead.lab.plan import Plan

__all__ = ["LabOptions", "command"]

REPORT, PLAN, FACTS, PAGE = "report", "lab-plan.json", "lab.json", "lab.html"
MAY_CHANGE = ("quiet", "debug", "resume", "overwrite", "out")
SAMPLE = 400  # labelled documents whose lengths the plan is made by


def command(options: LabOptions) -> int:
    """Run the command; tell how to go on if it was stopped."""
    from rehead.training.stopping import Stopped

    try:
        facts = run_lab(options, start_command(sys.argv[1:]))
    except (KeyboardInterrupt, SystemExit, Stopped) as stop:
        return report_stop(stop)
    from rehead.lab.sentences import summarise

    for line in summarise(facts):
        print(line)
    print(f"\npage: {options.out / PAGE}")
    return 0


def run_lab(options: LabOptions, command_line: str) -> LabFacts:
    """Answer the five questions, and write `lab.json` and `lab.html`; nobody else writes there meanwhile."""
    check_lab(options)
    with locked(options.out):
        return _run_lab(options, command_line)


def _run_lab(options: LabOptions, command_line: str) -> LabFacts:
    from rehead.lab.data import DATA, choose_sentence, locate, prompt_of, with_masks, write_built_in
    from rehead.lab.pretraining import OBJECTIVES_COMPARED, pretrain_watched, pretraining_options
    from rehead.pretrain.options import check_pretraining

    texts = locate(options)
    runs = [pretraining_options(options, texts, name) for name in OBJECTIVES_COMPARED]
    for each in runs:
        check_pretraining(each)
    snapshots = [f"{name}-snapshots.json" for name in OBJECTIVES_COMPARED]
    ours = (DATA, *OBJECTIVES_COMPARED, *snapshots, REPORT, PLAN, FACTS, PAGE)
    if not options.resume:
        begin_steps(options.out, ours if options.overwrite else None)
    elif (options.out / FACTS).exists():
        raise UserError(f"{options.out} is complete: there is nothing to resume. Choose another --out.")
    clock = _Clock(options, steps=len(runs) + 2)
    _keep_plan(options)
    write_built_in(options)
    sentence = choose_sentence(options, texts)
    masked, words = with_masks(sentence)
    for name, each in zip(OBJECTIVES_COMPARED, runs, strict=True):
        clock.say(f"pretrain the Transformer of the lab: {name}")
        if name not in clock.done():
            pretrain_watched(each, name, prompt_of(sentence), masked, words)
            clock.finish(name)
    clock.say("fine-tune every network on the same labels, and measure")
    plan, notes = _plan(options, texts, clock)
    results = _compare(options, texts, plan, command_line, clock)
    clock.say("look inside, and write the page")
    from rehead.compare.page import write_page
    from rehead.lab.facts import FORMAT, LabFacts
    from rehead.lab.page import render
    from rehead.lab.plots import draw_plots
    from rehead.lab.pretraining import describe_pretraining
    from rehead.lab.structure import count_parameters, measure_causality, read_attention, replace_the_head

    found = [describe_pretraining(options, name) for name in OBJECTIVES_COMPARED]
    opened = {described.name: run for described, run in found}
    causal, config = opened["causal"], opened["causal"].model.config
    attention = [read_attention(opened[name], name, sentence, causal=name == "causal") for name in ("causal", "masked")]
    classes = len(results.data.classes)
    facts = LabFacts(
        format=FORMAT,
        sentence=sentence,
        prompt=prompt_of(sentence),
        masked_sentence=masked,
        masked_words=words,
        causality=measure_causality(causal, sentence),
        counting=count_parameters(config, classes),
        head=replace_the_head(causal, classes),
        pretraining=[described for described, _ in found],
        attention=attention,
        comparison=results,
        notes=notes,
        shape=f"{config.nhid} wide, {config.nlayers} layers, {config.nhead} heads, {config.ntokens:,} tokens",
        minutes=options.minutes,
        seconds=clock.spent(),
        command=command_line,
    )
    page, kept = options.out / PAGE, options.out / FACTS
    data = dataclasses.asdict(facts)
    write_page(page, kept, lambda: draw_plots(facts), lambda plots: render(facts, plots), data, quiet=options.quiet)
    return facts


class _Clock:
    """The time that is left, kept over interruptions."""

    def __init__(self, options: LabOptions, steps: int) -> None:
        self.options, self.steps, self.step = options, steps, 0
        self.path, self.began, self.before = options.out / PLAN, time.monotonic(), 0.0
        if options.resume and self.path.exists():
            self.before = float(read_checksummed_json(self.path).get("seconds", 0.0))

    def spent(self) -> float:
        return self.before + time.monotonic() - self.began

    def left(self) -> float:
        return max(0.0, 60 * self.options.minutes - self.spent())

    def say(self, line: str) -> None:
        self.step += 1
        if not self.options.quiet:
            print(f"\n{self.step} of {self.steps}: {line} (about {duration(self.left())} left)", file=sys.stderr)

    def done(self) -> list[str]:
        """List the steps that are finished."""
        return list(read_checksummed_json(self.path).get("done", []))

    def finish(self, name: str) -> None:
        """Write down that a step is finished."""
        self.keep(done=[*self.done(), name])

    def keep(self, **more: Any) -> None:  # noqa: ANN401 (fields of the plan)
        """Write down how long it took so far."""
        fields = {name: value for name, value in read_checksummed_json(self.path).items() if name != "sha256"}
        with atomic_file(self.path) as partial:
            write_checksummed_json(partial, {**fields, "seconds": self.spent(), **more})


def _keep_plan(options: LabOptions) -> None:
    """Write down what was asked, or compare a resumed lab with it."""
    import json

    asked = json.loads(
        json.dumps({name: value for name, value in dataclasses.asdict(options).items() if name not in MAY_CHANGE})
    )
    path = options.out / PLAN
    if path.exists():
        before = read_checksummed_json(path)["options"]
        for name, value in asked.items():
            if before.get(name) != value:
                raise UserError(
                    f"{options.out} was started with another --{name.replace('_', '-')}. Resume it as it was."
                )
        return
    if options.resume:
        raise UserError(f"{options.out} holds no lab to resume ({PLAN} is missing). Drop --resume.")
    with atomic_file(path) as partial:
        write_checksummed_json(partial, {"options": asked})


def _plan(options: LabOptions, texts: Texts, clock: _Clock) -> tuple[Plan, list[str]]:
    """Plan the fine-tuning by the time that is left, or take the plan of before the interruption."""
    from rehead.lab.data import count_measured, path_of, training_sizes
    from rehead.lab.plan import Plan, make_plan
    from rehead.lab.pretraining import OBJECTIVES_COMPARED, read_snapshots
    from rehead.text.labelled import read_examples
    from rehead.text.tokenizer import Tokenizer
    from rehead.training.directory import TOKENIZER

    kept = read_checksummed_json(clock.path).get("plan")
    if kept is not None:
        return Plan(**{**kept["plan"], "sizes": tuple(kept["plan"]["sizes"])}), list(kept["notes"])
    last = read_snapshots(path_of(options, "masked"))[-1]
    tokenizer = Tokenizer.load(path_of(options, "causal") / TOKENIZER)
    data = read_examples(texts.labelled, read_options(options, ReadOptions), check=False)
    lengths = [len(tokenizer.encode(text)) for text in data.texts[:SAMPLE]]
    rate = max(1.0, last.tokens / max(last.seconds, 1e-9))
    others = len(OBJECTIVES_COMPARED) - 1
    sizes, measured = training_sizes(options, texts), count_measured(options, texts)
    plan, notes = make_plan(lengths, sizes, options.seeds, others, measured, 0.9 * clock.left(), rate)
    clock.keep(plan={"plan": dataclasses.asdict(plan), "notes": notes})
    return plan, notes


def _compare(options: LabOptions, texts: Texts, plan: Plan, command_line: str, clock: _Clock) -> Results:
    """Compare all networks; the ones that only objectives differ in, on the largest training set and with few seeds."""
    from rehead.compare.command import compare
    from rehead.compare.options import CompareOptions
    from rehead.compare.results import load_results
    from rehead.lab.data import path_of
    from rehead.lab.pretraining import OBJECTIVES_COMPARED
    from rehead.training.distributed import fastest_precision

    report = options.out / REPORT
    if REPORT in clock.done():
        return load_results(report / "results.json")
    bases = [str(path_of(options, name)) for name in OBJECTIVES_COMPARED]
    reading = {each.name: getattr(options, each.name) for each in dataclasses.fields(ReadOptions)}
    unfinished = options.resume and (working_directory(report) / "plan.json").exists()
    asked: CompareOptions = CompareOptions(
        labelled=texts.labelled,
        valid=texts.valid,
        test=texts.test,
        base=bases,
        out=report,
        labels=plan.sizes,
        seeds=plan.seeds,
        seed=options.seed,
        methods=("scratch", "pretrained"),
        epochs=plan.epochs,
        length=plan.length,
        pooling="mean",
        attention="both",
        precision=fastest_precision(),
        control=False,
        resume=unfinished,
        overwrite=options.overwrite or (options.resume and not unfinished),
        quiet=options.quiet,
        debug=options.debug,
        **reading,
    )
    results = compare(asked, command_line, include=_included(bases[0], plan, options.seed))
    clock.finish(REPORT)
    return results


def _included(first: str, plan: Plan, seed: int) -> Callable[[Method, Trial], bool]:
    """Choose the trials of the plan."""

    def included(method: Method, trial: Trial) -> bool:
        if method.run == first:
            return True
        return trial.labels == plan.sizes[-1] and trial.seed < seed + plan.other_seeds

    return included
