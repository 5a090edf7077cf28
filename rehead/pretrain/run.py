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
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rehead.errors import UserError
from rehead.pretrain.directory import TOKENIZER, TOKENS, description, forget, keep_tokenizer, open_directory, tidy
from rehead.pretrain.options import PretrainOptions, check_pretraining
from rehead.pretrain.recipe import DOCUMENT, Stage, generates, has_language_model, read_recipe
from rehead.text.documents import ReadOptions
from rehead.training.options import check_training

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

HELD_OUT_SHARE, HELD_OUT_TOKENS = 0.02, 65_536
LITTLE = 1_000_000  # tokens; with fewer, the user is told not to expect much


def command(options: PretrainOptions) -> int:
    """Run the command; tell how to go on if it was stopped."""
    from rehead.training.stopping import Stopped

    try:
        run = run_pretraining(options)
    except Stopped as stopped:
        if _speaks():
            print(f"rehead: stopped. Go on with: {_again(sys.argv[1:])}", file=sys.stderr)
        return 128 + stopped.signum
    if run is not None and not options.quiet:
        print(_summary(options.out, run.details))
    return 0


def _again(words: list[str]) -> str:
    """Say the command that goes on with a run that these words began."""
    words = [word for word in words if word != "--overwrite"]
    begin = "torchrun … -m " if "TORCHELASTIC_RUN_ID" in os.environ else ""
    return begin + shlex.join(["rehead", *words, *([] if "--resume" in words else ["--resume"])])


def pretrain(texts: str | Path | Iterable[str | Path], *, out: str | Path, **options: Any) -> Run:  # noqa: ANN401
    """Pretrain a base on unlabelled text, as `rehead pretrain` does; its options are keyword arguments here."""
    paths = [texts] if isinstance(texts, str | Path) else list(texts)
    known = {each.name for each in dataclasses.fields(PretrainOptions)}
    if unknown := sorted(options.keys() - known):
        raise UserError(f"pretrain has no option {unknown[0]!r}. It has: {', '.join(sorted(known))}.")
    from rehead.training.stopping import Stopped

    try:
        run = run_pretraining(PretrainOptions(texts=[str(path) for path in paths], out=Path(out), **options))
    except Stopped as stopped:
        if stopped.signum == signal.SIGINT:
            raise KeyboardInterrupt(f"stopped. Go on with pretrain(…, out={str(out)!r}, resume=True)") from None
        sys.exit(128 + stopped.signum)
    if run is None:
        from rehead.model.run import load

        return load(out)
    return run


def run_pretraining(options: PretrainOptions) -> Run | None:
    """Pretrain; give the run, or None in the processes that did not write it."""
    check_training(options)
    stages = read_recipe(options.objective)
    check_pretraining(options, stages)
    from rehead.training.distributed import world as join_world

    with join_world(options.device) as world:
        say = _saying(world, options)
        resume = options.resume or world.restarted
        opened = _open(options, resume=resume) if world.first else None
        try:
            prepared = _prepare(options, world, opened, say)
            model = _model(_config(options, prepared.tokenizer), stages, options.seed)
            phases = _phases(options, stages, model, prepared)
        except UserError:
            if opened is not None and not resume:
                forget(options.out)
            raise
        _introduce(say, model, prepared, phases)
        from rehead.training.loop import train

        state = train(phases, options, world, options.out, resume=resume, quiet=options.quiet, say=say)
        return _finish(options, world, prepared, phases[-1].objective, state, say)


class Opened(NamedTuple):
    """The text, and whether the run's directory has its tokenizer already."""

    texts: Texts
    fingerprint: str
    known: bool


@dataclass
class Prepared:
    """What training starts from."""

    tokenizer: Tokenizer
    train: StorePart
    valid: StorePart
    fingerprint: str
    "Of the text; the first process knows it."


def _saying(world: World, options: PretrainOptions) -> Callable[[str], None]:
    """Give a function that tells the user a line, once, unless they want to hear nothing."""

    def say(line: str) -> None:
        if world.first and not options.quiet:
            print(line, file=sys.stderr)

    return say


def _speaks() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _open(options: PretrainOptions, *, resume: bool) -> Opened:
    """Look at the text, and make the run's directory or find it again."""
    from rehead.text.readers import Texts

    reading = ReadOptions(**{each.name: getattr(options, each.name) for each in dataclasses.fields(ReadOptions)})
    texts = Texts(options.texts, reading)
    fingerprint = texts.fingerprint()
    return Opened(texts, fingerprint, open_directory(options, fingerprint, resume=resume))


def _prepare(options: PretrainOptions, world: World, opened: Opened | None, say: Callable[[str], None]) -> Prepared:
    """Make, or find again, the tokenizer and the tokens."""
    from rehead.text.store import TokenStore, build_store
    from rehead.text.store_part import hold_out
    from rehead.text.tokenizer import Tokenizer

    if opened is not None:
        texts, fingerprint, known = opened
        tokenizer = Tokenizer.load(options.out / TOKENIZER) if known else _tokenizer(options, texts)
        if not known:
            for note in tokenizer.notes if options.tokenizer else []:  # training one says them itself
                say(note)
            keep_tokenizer(options, fingerprint, tokenizer)
        store = build_store(texts, tokenizer, options.out / TOKENS, quiet=options.quiet)
    world.wait()
    if opened is None:
        fingerprint = ""
        tokenizer = Tokenizer.load(options.out / TOKENIZER)
        store = TokenStore.open(options.out / TOKENS)
    train, valid = hold_out(store, HELD_OUT_SHARE, HELD_OUT_TOKENS, options.seed)
    return Prepared(tokenizer, train, valid, fingerprint)


def _tokenizer(options: PretrainOptions, texts: Texts) -> Tokenizer:
    from rehead.model.config import preset
    from rehead.text.tokenizer import Tokenizer

    stages = read_recipe(options.objective)
    if options.tokenizer is None:
        vocab = preset(options.preset).ntokens if options.vocab is None else options.vocab
        lowercase = not generates(stages) if options.lowercase is None else options.lowercase
        return Tokenizer.train(texts, vocab=vocab, lowercase=lowercase, seed=options.seed, quiet=options.quiet)
    tokenizer = Tokenizer.load(options.tokenizer)
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
    from rehead.pretrain.grams import choose_rows
    from rehead.pretrain.mixed import Mixed
    from rehead.training.budget import Budget
    from rehead.training.loop import Phase

    if not DOCUMENT & set(stages[0].objectives):  # which do it themselves
        choose_rows(model.base, prepared.train, options.seed)
    phases = []
    for place, stage in enumerate(stages):
        objectives = [_objective(name, options, model, prepared, fresh=not place) for name in stage.objectives]
        objective = objectives[0] if len(objectives) == 1 else Mixed(objectives)
        budget = _budget(options, objective, stage.share, int(prepared.train.offsets[-1]))
        phases.append(Phase(objective, Budget(*budget), rates(options, model.config)))
    return phases


def _objective(name: str, options: PretrainOptions, model: Model, prepared: Prepared, *, fresh: bool) -> Objective:
    """Make one objective on the model; `fresh` if it is the first to train it."""
    train, valid, tokenizer = prepared.train, prepared.valid, prepared.tokenizer
    rows: dict[str, int] = {"time": options.length, "batch": options.batch, "seed": options.seed}
    if name == "causal":
        from rehead.pretrain.causal import Causal

        return Causal(model, train, valid, **rows)
    if name in DOCUMENT:
        from rehead.pretrain.document import Document

        made = Document(model, train, valid, fresh=fresh, layers=name == "document", **rows)
        made.name = name
        return made
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
        world.wait()
        return None
    details = {
        "objective": options.objective,
        "options": {**description(options, prepared.fingerprint)["options"], "texts": options.texts},
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
        "held_out": state.best_measured or state.measured,
        "rehead": rehead.__version__,
    }
    run = Run(model.cpu().eval(), prepared.tokenizer, None, details)
    save_into(run, options.out)
    _draw(options.out, say)
    tidy(options.out)
    world.wait()
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
    return f"{out}: {details['objective']}, {done}\nheld out: {found or 'too little text to tell'}"
