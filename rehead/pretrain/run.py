"""`rehead pretrain`: text → tokenizer → tokens → objectives → a run.

    RUN/
      pretrain.json        options and fingerprints, while the run is going on: what --resume compares with
      tokenizer.json, tokens/   made before the first step; tokens/ goes when the run is done
      metrics.jsonl, curves.png, curves.svg
      checkpoints/         the last one, and the model that did best on the held-out part
      config.json, model.safetensors   when it is done: from here on `rehead.load` reads it

Under torchrun the first process prepares and writes; the others wait, then read what it made.
"""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rehead.errors import UserError
from rehead.options import CommonOptions, flag, positional
from rehead.pretrain.recipe import Stage, has_language_model, read_recipe
from rehead.text.documents import ReadOptions
from rehead.training.options import FREE_TO_CHANGE, TrainingOptions, check_training

if TYPE_CHECKING:
    from rehead.model.config import ModelConfig
    from rehead.model.model import Model
    from rehead.model.run import Run
    from rehead.text.readers import Texts
    from rehead.text.store_part import StorePart
    from rehead.text.tokenizer import Tokenizer
    from rehead.training.distributed import World
    from rehead.training.loop import Phase, State
    from rehead.training.objective import Objective

DESCRIPTION, TOKENS = "pretrain.json", "tokens"
OURS = (
    DESCRIPTION, TOKENS, f".{TOKENS}.lock", "checkpoints", "metrics.jsonl", "curves.png", "curves.svg", ".run",
    "config.json", "model.safetensors", "tokenizer.json",
)  # fmt: skip
HELD_OUT_SHARE, HELD_OUT_TOKENS = 0.02, 65_536
LITTLE = 1_000_000  # tokens; with fewer, the user is told not to expect much


@dataclass(kw_only=True)
class PretrainOptions(CommonOptions, ReadOptions, TrainingOptions):
    """Pretrain a base on unlabelled text."""

    texts: list[str] = positional(metavar="TEXT")
    "Files, folders or globs, or - for standard input."

    out: Path = flag(metavar="RUN")
    "Directory of the run."

    preset: Literal["lab", "small", "base", "bag"] = "small"
    "The shape of the model."

    objective: str = "document"
    "causal, masked, hybrid, document; A,B: one after the other; A+B: together; A:0.8,B:0.2: shares of the budget."

    tokenizer: Path | None = None
    "A tokenizer.json, or a SentencePiece .model beside its dict.txt. Left out: one is trained on the text."

    vocab: int | None = flag(None, metavar="N")
    "Size of the vocabulary of a tokenizer that is trained (default: the preset's own)."

    epochs: float | None = flag(None, metavar="N")
    "Budget: read the text this many times."

    tokens: float | None = flag(None, metavar="N")
    "Budget: read this many tokens."

    minutes: float | None = flag(None, metavar="N")
    "Budget: train for so long; encoding the text is not counted."

    length: int = flag(256, metavar="T")
    "Tokens in a row of text (causal, masked, hybrid), and the longest part that layers read (document)."

    mask_share: float = 0.15
    "Share of the tokens that masked and hybrid hide; validation always hides 15 %."

    next_sentence: bool = False
    "With masked: also ask whether one half of a row followed the other, as BERT did."

    causal_rows: float = 0.5
    "With hybrid: share of the rows that are read under the square mask."

    nhid: int | None = flag(None, metavar="N")
    "Width of the hidden states (default: the preset's own)."

    nlayers: int | None = flag(None, metavar="N")
    "Number of layers (default: the preset's own)."

    nhead: int | None = flag(None, metavar="N")
    "Number of attention heads (default: the preset's own)."

    resume: bool = False
    "Go on with a run that was interrupted: the same command, and this."

    overwrite: bool = False
    "Replace a run that is already there."


def command(options: PretrainOptions) -> int:
    """Run the command; tell how to go on if it was stopped."""
    from rehead.training.loop import Stopped

    try:
        run = run_pretraining(options)
    except Stopped as stopped:
        if _speaks():
            words = [word for word in sys.argv[1:] if word != "--overwrite"]
            again = shlex.join(["rehead", *words, *([] if "--resume" in words else ["--resume"])])
            print(f"rehead: stopped. Go on with: {again}", file=sys.stderr)
        return 128 + stopped.signum
    if run is not None and not options.quiet:
        print(_summary(options.out, run.details))
    return 0


def pretrain(texts: str | Path | Iterable[str | Path], *, out: str | Path, **options: Any) -> Run:  # noqa: ANN401
    """Pretrain a base on unlabelled text, as `rehead pretrain` does; its options are keyword arguments here."""
    paths = [texts] if isinstance(texts, str | Path) else list(texts)
    known = {each.name for each in dataclasses.fields(PretrainOptions)}
    if unknown := sorted(options.keys() - known):
        raise UserError(f"pretrain has no option {unknown[0]!r}. It has: {', '.join(sorted(known))}.")
    run = run_pretraining(PretrainOptions(texts=[str(path) for path in paths], out=Path(out), **options))
    if run is None:
        from rehead.model.run import load

        return load(out)
    return run


def run_pretraining(options: PretrainOptions) -> Run | None:
    """Pretrain; give the run, or None in the processes that did not write it."""
    check_training(options)
    stages = read_recipe(options.objective)
    _check(options, stages)
    from rehead.training.distributed import world as join_world

    with join_world(options.device) as world:
        say = _saying(world, options)
        resume = options.resume or world.restarted
        prepared = _prepare(options, world, say, resume=resume)
        config = _config(options, prepared.tokenizer)
        model = _model(config, stages, options.seed)
        phases = _phases(options, stages, model, prepared)
        _introduce(say, model, prepared, phases)
        from rehead.training.loop import train

        state = train(phases, options, world, options.out, resume=resume, quiet=options.quiet, say=say)
        return _finish(options, world, prepared, phases[-1].objective, state, say)


@dataclass
class Prepared:
    """What training starts from."""

    tokenizer: Tokenizer
    train: StorePart
    valid: StorePart
    fingerprint: str
    "Of the text."


def _check(options: PretrainOptions, stages: list[Stage]) -> None:
    """Refuse what contradicts itself before anything is read or written."""
    named = [name for name in ("epochs", "tokens", "minutes") if getattr(options, name) is not None]
    if len(named) > 1:
        raise UserError(f"--{named[0]} and --{named[1]} are two budgets. Give one.")
    for name in named:
        if not 0 < getattr(options, name) < float("inf"):
            raise UserError(f"--{name} {getattr(options, name):g}: must be above 0.")
    if options.length < 2:
        raise UserError(f"--length {options.length}: must be 2 or more.")
    if options.batch < options.length:
        raise UserError(f"--batch {options.batch} is less than one row of --length {options.length} tokens.")
    used = {name for stage in stages for name in stage.objectives}
    if options.next_sentence and "masked" not in used:
        raise UserError(f"--next-sentence goes with --objective masked, not with {options.objective}.")
    if options.resume and options.overwrite:
        raise UserError("--resume goes on with a run and --overwrite throws it away. Give one.")
    if options.tokenizer is not None and options.vocab is not None:
        raise UserError("--vocab is for a tokenizer that is trained; --tokenizer brings its own. Drop one.")


def _saying(world: World, options: PretrainOptions) -> Callable[[str], None]:
    """Give a function that tells the user a line, once, unless they want to hear nothing."""

    def say(line: str) -> None:
        if world.first and not options.quiet:
            print(line, file=sys.stderr)

    return say


def _speaks() -> bool:
    import os

    return os.environ.get("RANK", "0") == "0"


def _prepare(options: PretrainOptions, world: World, say: Callable[[str], None], *, resume: bool) -> Prepared:
    """Make, or find again, the directory, the tokenizer and the tokens."""
    from rehead.text.readers import Texts
    from rehead.text.store import TokenStore, build_store
    from rehead.text.store_part import hold_out
    from rehead.text.tokenizer import Tokenizer

    reading = ReadOptions(**{each.name: getattr(options, each.name) for each in dataclasses.fields(ReadOptions)})
    texts = Texts(options.texts, reading)
    fingerprint = texts.fingerprint()
    store = None
    if world.first:
        known = _open_directory(options, fingerprint, resume=resume)
        tokenizer = Tokenizer.load(options.out / "tokenizer.json") if known else _tokenizer(options, texts)
        if not known:
            for note in tokenizer.notes if options.tokenizer else []:  # training one says them itself
                say(note)
            tokenizer.save(options.out / "tokenizer.json")
            _describe(options, fingerprint, tokenizer)
        store = build_store(texts, tokenizer, options.out / TOKENS, quiet=options.quiet)
    world.wait()
    if store is None:
        tokenizer = Tokenizer.load(options.out / "tokenizer.json")
        store = TokenStore.open(options.out / TOKENS)
    train, valid = hold_out(store, HELD_OUT_SHARE, HELD_OUT_TOKENS, options.seed)
    return Prepared(tokenizer, train, valid, fingerprint)


def _open_directory(options: PretrainOptions, fingerprint: str, *, resume: bool) -> bool:
    """Make room for the run; tell whether there is one to go on with, after comparing it with what is asked for."""
    from rehead.disk import check_free, read_signed

    there = options.out / DESCRIPTION
    if not resume:
        check_free(options.out, OURS if options.overwrite else None)
        if options.out.is_dir():
            for each in options.out.iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        options.out.mkdir(parents=True, exist_ok=True)
        return False
    if (options.out / "config.json").exists() and not there.exists():
        raise UserError(f"{options.out} is finished: there is nothing to resume. Start another with another --out.")
    if not there.exists():
        if options.resume:
            raise UserError(f"{options.out} holds no run to resume ({DESCRIPTION} is missing). Drop --resume.")
        options.out.mkdir(parents=True, exist_ok=True)
        return False
    before, now = read_signed(there), _description(options, fingerprint)
    if before.get("text") != now["text"]:
        raise UserError(f"{options.out} was begun with other text than {', '.join(options.texts)}. It cannot go on.")
    for name in sorted(now["options"]):
        was, given = before["options"].get(name), now["options"][name]
        if was != given:
            flag_name = f"--{name.replace('_', '-')}"
            raise UserError(
                f"{options.out} was begun with {flag_name} {was}, not {given}. Resume it with the same options."
            )
    if before.get("tokenizer_file") != now["tokenizer_file"]:
        raise UserError(f"{options.out} was begun with another --tokenizer. Resume it with the same one.")
    return True


def _description(options: PretrainOptions, fingerprint: str) -> dict[str, Any]:
    """Say what a run was asked to do: what a resumed one must be asked again."""
    from rehead.disk import sha256

    given = dataclasses.asdict(options)
    places = ("texts", "out", "tokenizer")  # where things are may change; what they are may not
    kept = {name: value for name, value in given.items() if name not in FREE_TO_CHANGE and name not in places}
    tokenizer = None if options.tokenizer is None else sha256(options.tokenizer)
    return {"options": kept, "text": fingerprint, "tokenizer_file": tokenizer}


def _describe(options: PretrainOptions, fingerprint: str, tokenizer: Tokenizer) -> None:
    from rehead.disk import write_signed

    beside = options.out / f".{DESCRIPTION}.partial"
    write_signed(beside, _description(options, fingerprint) | {"tokenizer": tokenizer.fingerprint()})
    beside.replace(options.out / DESCRIPTION)


def _tokenizer(options: PretrainOptions, texts: Texts) -> Tokenizer:
    from rehead.model.config import preset
    from rehead.text.tokenizer import Tokenizer

    if options.tokenizer is None:
        vocab = preset(options.preset).ntokens if options.vocab is None else options.vocab
        return Tokenizer.train(texts, vocab=vocab, seed=options.seed, quiet=options.quiet)
    tokenizer = Tokenizer.load(options.tokenizer)
    stages = read_recipe(options.objective)
    if tokenizer.mask is None and any({"masked", "hybrid"} & set(stage.objectives) for stage in stages):
        tokenizer = tokenizer.with_mask()
    return tokenizer


def _config(options: PretrainOptions, tokenizer: Tokenizer) -> ModelConfig:
    from rehead.model.config import preset

    dials = {name: getattr(options, name) for name in ("nhid", "nlayers", "nhead")}
    changes = {name: value for name, value in dials.items() if value is not None}
    config = preset(options.preset, ntokens=tokenizer.vocab_size, **changes)
    if options.length > config.maxlen:
        config = dataclasses.replace(config, maxlen=options.length)
    return config


def _model(config: ModelConfig, stages: list[Stage], seed: int) -> Model:
    import torch

    from rehead.model.model import Model

    torch.manual_seed(seed)
    return Model(config, config.language_model() if has_language_model(stages) else None)


def _phases(options: PretrainOptions, stages: list[Stage], model: Model, prepared: Prepared) -> list[Phase]:
    from rehead.pretrain.mixed import Mixed
    from rehead.training.budget import Budget
    from rehead.training.loop import Phase

    phases = []
    for stage in stages:
        objectives = [_objective(name, options, model, prepared) for name in stage.objectives]
        objective = objectives[0] if len(objectives) == 1 else Mixed(objectives)
        budget = _budget(options, objective, stage.share, int(prepared.train.offsets[-1]))
        phases.append(Phase(objective, Budget(*budget), rates(options, model.config)))
    return phases


def _objective(name: str, options: PretrainOptions, model: Model, prepared: Prepared) -> Objective:
    """Make one objective on the model."""
    train, valid, tokenizer = prepared.train, prepared.valid, prepared.tokenizer
    rows: dict[str, int] = {"time": options.length, "batch": options.batch, "seed": options.seed}
    if name == "causal":
        from rehead.pretrain.causal import Causal

        return Causal(model, train, valid, **rows)
    if name == "document":
        from rehead.pretrain.document import Document

        return Document(model, train, valid, **rows)
    from rehead.pretrain.masking import Masking

    masking = Masking.of(tokenizer, options.mask_share)
    if name == "hybrid":
        from rehead.pretrain.hybrid import Hybrid

        return Hybrid(model, train, valid, masking, causal_rows=options.causal_rows, **rows)
    if options.next_sentence:
        from rehead.pretrain.next_sentence import NextSentence

        return NextSentence(model, train, valid, masking, tokenizer, **rows)
    from rehead.pretrain.masked import Masked

    return Masked(model, train, valid, masking, **rows)


def rates(options: PretrainOptions, config: ModelConfig) -> Any:  # noqa: ANN401
    """Choose the learning rates: wider models take smaller steps."""
    from rehead.training.optimizers import Rates

    usual, factor = Rates(), options.lr
    width = (256 / config.nhid) ** 0.5
    return Rates(
        adamw=usual.adamw * factor * width,
        muon=usual.muon * factor,
        rows=usual.rows * factor,
        decay=options.weight_decay,
    )


def _budget(options: PretrainOptions, objective: Objective, share: float, tokens: int) -> tuple[Any, float]:
    """Give a phase its share of the budget: kind and amount."""
    if options.minutes is not None:
        return "minutes", options.minutes * share
    if options.tokens is not None:
        return "tokens", options.tokens * share
    epochs = default_epochs(tokens) if options.epochs is None else options.epochs
    steps = max(1, round(epochs * share * objective.steps_in_epoch()))
    return "steps", steps


def default_epochs(tokens: int) -> float:
    """How often a text of so many tokens is read, unless the user says: small ones more often."""
    return min(max(60_000_000 / max(tokens, 1), 1.0), 10.0)


def _introduce(say: Callable[[str], None], model: Model, prepared: Prepared, phases: list[Phase]) -> None:
    """Say what is about to happen."""
    tokens = int(prepared.train.offsets[-1])
    count = sum(each.numel() for each in model.parameters())
    say(f"{len(prepared.train):,} documents, {tokens:,} tokens; {len(prepared.valid):,} documents held out")
    if tokens < LITTLE:
        say(f"note: {tokens:,} tokens are little to learn from. From about {LITTLE:,} on, pretraining begins to pay.")
    plans = [f"{each.objective.name} for {each.budget.amount:,.0f} {each.budget.kind}" for each in phases]
    say(f"a model of {count:,} parameters: {', then '.join(plans)}")


def _finish(
    options: PretrainOptions,
    world: World,
    prepared: Prepared,
    objective: Objective,
    state: State,
    say: Callable[[str], None],
) -> Run | None:
    """Write the run: weights, configuration, curves; then tidy up."""
    import rehead
    from rehead.model.run import Run, save_into
    from rehead.training.distributed import gather_model

    model = gather_model(objective.model, sharded=options.shard)
    if not world.first:
        return None
    details = {
        "objective": options.objective,
        "options": {**_description(options, prepared.fingerprint)["options"], "texts": options.texts},
        "seed": options.seed,
        "text": {
            "fingerprint": prepared.fingerprint,
            "documents": len(prepared.train) + len(prepared.valid),
            "tokens": int(prepared.train.offsets[-1] + prepared.valid.offsets[-1]),
            "held_out_documents": len(prepared.valid),
        },
        "steps": state.step,
        "tokens": state.tokens,
        "seconds": round(state.seconds, 1),
        "best_step": state.best_step,
        "held_out": {name: value for name, value in state.measured.items() if value == value},
        "rehead": rehead.__version__,
    }
    run = Run(model.cpu().eval(), prepared.tokenizer, None, details)
    save_into(run, options.out)
    _draw(options.out, say)
    (options.out / DESCRIPTION).unlink(missing_ok=True)
    shutil.rmtree(options.out / TOKENS, ignore_errors=True)  # the user's text, which a run need not carry about
    (options.out / f".{TOKENS}.lock").unlink(missing_ok=True)
    return run


def _draw(out: Path, say: Callable[[str], None]) -> None:
    """Draw the curves where matplotlib is there; a run is none the worse without."""
    from rehead.training.curves import save

    try:
        save(out / "metrics.jsonl", out)
    except UserError as error:
        say(f"no curves were drawn: {error}")


def _summary(out: Path, details: dict[str, Any]) -> str:
    from rehead.progress import duration

    found = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in details["held_out"].items())
    done = f"{details['tokens']:,} tokens in {details['steps']:,} steps, {duration(details['seconds'])}"
    return f"{out}: {details['objective']}, {done}\nheld out: {found}"
