"""The pretraining runs of a lab, at the same budget, with samples of what each can do as it learns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rehead.compare.results import from_json
from rehead.disk import atomic_file, read_json, write_json
from rehead.lab.data import Texts, path_of
from rehead.lab.facts import Pretraining, Snapshot
from rehead.lab.options import LabOptions
from rehead.lab.plan import pretraining_minutes, warm_up_share
from rehead.model.config import LanguageModel
from rehead.model.model import Model
from rehead.model.objectives import OBJECTIVES
from rehead.pretrain.options import PretrainOptions
from rehead.pretrain.run import run_pretraining
from rehead.replacing import working_directory
from rehead.runs.run import Run, load
from rehead.text.documents import ReadOptions
from rehead.text.tokenizer import Tokenizer
from rehead.training.directory import TOKENIZER
from rehead.training.distributed import fastest_precision
from rehead.training.loop import Watch
from rehead.training.objective import Objective
from rehead.training.state import State
from rehead.use.fill import guess, mask_ids
from rehead.use.generate import generate_samples, prompt_ids
from rehead.use.sampling import Sampling

OBJECTIVES_COMPARED = ("causal", "masked", "hybrid", "next-sentence")
LENGTH, BATCH = 128, 1_024  # tokens of a row, and of a step: short runs need many small steps
VALIDATIONS = 8
WRITTEN_TOKENS, FILLED_WORDS = 28, 4


def pretraining_options(options: LabOptions, texts: Texts, name: str) -> PretrainOptions:
    """Make the options of one run: the embeddings are warmed up, then all weights learn the objective."""
    minutes = pretraining_minutes(options.minutes, len(OBJECTIVES_COMPARED))
    share = round(warm_up_share(minutes), 3)
    second = "masked" if name == "next-sentence" else name
    out, first = path_of(options, name), path_of(options, OBJECTIVES_COMPARED[0])
    shared: dict[str, Any] = (
        {"vocab": options.vocab, "lowercase": True} if out == first else {"tokenizer": first / TOKENIZER}
    )
    shared |= {each.name: getattr(options, each.name) for each in dataclasses.fields(ReadOptions)}
    shared |= {**options.changed_sizes(), "skip_empty": True}
    unfinished = options.resume and (working_directory(out) / "pretrain.json").exists()
    return PretrainOptions(
        texts=texts.unlabelled,
        out=out,
        preset="lab",
        objective=f"bag:{share:g},{second}:{1 - share:g}",
        next_sentence=name == "next-sentence",
        minutes=minutes,
        length=LENGTH,
        batch=BATCH,
        validations=VALIDATIONS,
        precision=fastest_precision(),
        seed=options.seed,
        resume=unfinished,
        # A run may be complete without being written down as done.
        overwrite=options.overwrite or (options.resume and not unfinished),
        quiet=options.quiet,
        debug=options.debug,
        **shared,
    )


def pretrain_watched(options: PretrainOptions, name: str, prompt: str, masked: str, words: Sequence[str]) -> None:
    """Pretrain a run, or resume it, and write down what it can do at every validation."""
    run_pretraining(options, watch=_watch(options, name, prompt, masked, words))


def _watch(options: PretrainOptions, name: str, prompt: str, masked: str, words: Sequence[str]) -> Watch:
    """Make what is called at every validation of the stage that trains the layers."""
    spec = OBJECTIVES["masked" if name == "next-sentence" else name]
    path = snapshots_path(options.out)
    if not options.resume:
        path.unlink(missing_ok=True)

    def watch(objective: Objective, state: State, fraction: float) -> None:
        if not state.phase or not isinstance(objective.model.head_config, LanguageModel):
            return
        tokenizer = Tokenizer.load(working_directory(options.out) / TOKENIZER)
        model: Model = objective.model
        made = Snapshot(fraction, state.phase_tokens, state.phase_seconds, dict(state.measured))
        with model.evaluating():
            if spec.generates:
                made.written = write(model, tokenizer, prompt, options.seed)
            if spec.fills:
                made.filled, made.probabilities = fill(
                    model, tokenizer, masked, words, one_before=spec.fills_one_before
                )
        before = [each for each in read_snapshots(options.out) if each.tokens < made.tokens]
        with atomic_file(path) as partial:
            write_json(partial, [dataclasses.asdict(each) for each in (*before, made)])

    return watch


def snapshots_path(run: Path) -> Path:
    """Name the file, beside a run, of what it could do at each validation."""
    return run.with_name(f"{run.name}-snapshots.json")


def read_snapshots(run: Path) -> list[Snapshot]:
    """Read what a run could do at each validation."""
    path = snapshots_path(run)
    return [from_json(Snapshot, each) for each in read_json(path)] if path.exists() else []


def write(model: Model, tokenizer: Tokenizer, prompt: str, seed: int) -> str:
    """Continue the prompt."""
    how = Sampling(temperature=0.8, top_p=0.95)
    window = min(LENGTH, model.config.maxlen)
    (made,) = generate_samples(
        model, tokenizer, prompt_ids(tokenizer, prompt), how, tokens=WRITTEN_TOKENS, seed=seed, window=window
    )
    return " ".join(made.text.split())


def fill(
    model: Model, tokenizer: Tokenizer, masked: str, words: Sequence[str], *, one_before: bool
) -> tuple[list[list[str]], list[float]]:
    """Fill in the masked words: the most probable ones for each, and the probability of the words that were there."""
    guessed = guess(
        model, tokenizer, mask_ids(tokenizer, masked), top=tokenizer.vocab_size, one_before=one_before, window=LENGTH
    )
    probabilities = []
    for each, word in zip(guessed, words, strict=True):
        first = tokenizer.encode(f" {word}")[:1]  # of a word in several pieces, its first
        probabilities.append(next((one.probability for one in each if [one.id] == first), 0.0))
    return [[one.word for one in each[:FILLED_WORDS]] for each in guessed], probabilities


def describe_pretraining(options: LabOptions, name: str) -> tuple[Pretraining, Run]:
    """Say how a run was pretrained and what it could do; open it."""
    out = path_of(options, name)
    run = load(out)
    snapshots = read_snapshots(out)
    last = snapshots[-1] if snapshots else None
    measures = {key: value for key, value in run.details["held_out"].items() if math.isfinite(value)}
    described = Pretraining(
        name=name,
        run=str(out),
        objective=str(run.details["objective"]),
        tokens=0 if last is None else last.tokens,
        seconds=0.0 if last is None else last.seconds,
        parameters=sum(each.numel() for each in run.model.parameters()),
        held_out=measures,
        snapshots=pick(snapshots),
    )
    return described, run


def pick(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """Pick the first, the one nearest to the middle, and the last."""
    if len(snapshots) < 3:
        return list(snapshots)
    inner = snapshots[1:-1]
    return [snapshots[0], min(inner, key=lambda each: abs(each.fraction - 0.5)), snapshots[-1]]
