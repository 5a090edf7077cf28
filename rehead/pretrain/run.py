"""Text → tokenizer → tokens → objectives → a run.

    RUN/
      pretrain.json        options and fingerprints, while the run is going on: what --resume compares with
      tokenizer.json, tokens/   made before the first step; tokens/ goes when the run is done
      metrics.jsonl, curves.png, curves.svg
      checkpoints/         the last one, and the model that did best on the held-out part
      config.json, model.safetensors   when it is done: from here on `rehead.load` reads it

Under torchrun the first process prepares and writes; the others wait, then read what it made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

import rehead
from rehead.errors import ConfigError, UserError
from rehead.model.config import ModelConfig, preset
from rehead.model.model import Model
from rehead.model.reading import learn_spread
from rehead.model.run import Run, load, save_into
from rehead.options import check_names, read_options
from rehead.pretrain.directory import DESCRIPTION, description, keep_tokenizer, open_directory
from rehead.pretrain.options import PretrainOptions, check_pretraining, shape_of
from rehead.pretrain.phases import Prepared, make_phases
from rehead.pretrain.recipe import Stage, generates, has_language_model, read_recipe
from rehead.text.documents import ReadOptions
from rehead.text.order import shuffled
from rehead.text.readers import Texts
from rehead.text.store import TokenStore, build_store
from rehead.text.store_part import StorePart, hold_out
from rehead.text.tokenizer import Tokenizer
from rehead.training import curves
from rehead.training.again import interrupted
from rehead.training.directory import TOKENIZER, TOKENS, forget, let_go, tidy
from rehead.training.distributed import World, gather_model
from rehead.training.distributed import world as join_world
from rehead.training.loop import Phase, train
from rehead.training.objective import Objective
from rehead.training.options import check_training
from rehead.training.state import State

if TYPE_CHECKING:
    from numpy.typing import NDArray

HELD_OUT_SHARE, HELD_OUT_TOKENS = 0.02, 65_536
SAMPLE = 21  # what a random choice is for, as part of its key
# Of what the base learns how its documents lie, at most: documents, tokens, and tokens where layers read them.
SAMPLE_DOCUMENTS, SAMPLE_TOKENS, SAMPLE_IN_LAYERS = 20_000, 5_000_000, 300_000
LEAST, LITTLE = 100, 1_000_000  # tokens; with fewer there is no run, or the user is told not to expect much


def pretrain(texts: str | Path | Iterable[str | Path], *, out: str | Path, **options: Any) -> Run:  # noqa: ANN401
    """Pretrain a base on unlabelled text, as `rehead pretrain` does; its options are keyword arguments here."""
    paths = [texts] if isinstance(texts, str | Path) else list(texts)
    check_names(options, PretrainOptions, "pretrain")
    with interrupted(f"pretrain(…, out={str(out)!r}, resume=True)"):
        run = run_pretraining(PretrainOptions(texts=[str(path) for path in paths], out=Path(out), **options))
    return load(out) if run is None else run


def run_pretraining(options: PretrainOptions) -> Run | None:
    """Pretrain; give the run, or None in the processes that did not write it."""
    check_training(options)
    stages = read_recipe(options.objective)
    check_pretraining(options, stages)
    with join_world(options.device) as world:
        say = _saying(world, options)
        resume = options.resume or world.restarted
        if options.shard and world.size == 1:
            raise UserError("--shard spreads a model over processes. Start them with torchrun, or drop --shard.")
        opened = _open(options, resume=resume) if world.first else None
        try:
            prepared = _prepare(options, world, opened, say)
            model = _model(_config(options, prepared.tokenizer), stages, options.seed)
            phases = make_phases(options, stages, model, prepared)
        except UserError:
            if opened is not None and not resume:
                forget(options.out)
            raise
        if opened is not None:
            let_go(options.out)
        _introduce(say, model, prepared, phases)
        state = train(phases, options, world, options.out, resume=resume, quiet=options.quiet, say=say)
        return _finish(options, world, prepared, phases[-1].objective, state, say)


class Opened(NamedTuple):
    """The text, and whether the run's directory has its tokenizer already."""

    texts: Texts
    fingerprint: str
    known: bool


def _saying(world: World, options: PretrainOptions) -> Callable[[str], None]:
    """Give a function that tells the user a line, once, unless they want to hear nothing."""

    def say(line: str) -> None:
        if world.first and not options.quiet:
            print(line, file=sys.stderr)

    return say


def _open(options: PretrainOptions, *, resume: bool) -> Opened:
    """Look at the text, and make the run's directory or find it again."""
    reading = read_options(options, ReadOptions)
    texts = Texts(options.texts, reading)
    fingerprint = texts.fingerprint()
    return Opened(texts, fingerprint, open_directory(options, fingerprint, resume=resume))


def _prepare(options: PretrainOptions, world: World, opened: Opened | None, say: Callable[[str], None]) -> Prepared:
    """Make, or find again, the tokenizer and the tokens."""
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
    if (tokens := int(train.offsets[-1])) < LEAST:
        raise UserError(f"The text has {tokens:,} tokens to learn from: too few for anything. Give more text.")
    return Prepared(tokenizer, train, valid, fingerprint)


def _tokenizer(options: PretrainOptions, texts: Texts) -> Tokenizer:
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
    return shape_of(options, tokenizer.vocab_size)


def _model(config: ModelConfig, stages: list[Stage], seed: int) -> Model:
    torch.manual_seed(seed)
    return Model(config, config.language_model() if has_language_model(stages) else None)


def _introduce(say: Callable[[str], None], model: Model, prepared: Prepared, phases: list[Phase]) -> None:
    """Say what is about to happen."""
    tokens = int(prepared.train.offsets[-1])
    count = sum(each.numel() for each in model.parameters())
    say(f"{len(prepared.train):,} documents, {tokens:,} tokens; {len(prepared.valid):,} documents held out")
    if tokens < LITTLE:
        say(f"note: {tokens:,} tokens are little to learn from. From about {LITTLE:,} on, pretraining begins to pay.")
    plans = [f"{each.objective.name} for {each.budget}" for each in phases]
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
    model = gather_model(objective.model, sharded=options.shard)
    if not world.first:
        world.wait()
        return None
    learn_spread(model.cpu().eval(), _sample(prepared.train, SAMPLE_TOKENS, options.seed), SAMPLE_IN_LAYERS)
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
    run = Run(model, prepared.tokenizer, None, details)
    try:
        save_into(run, options.out)
    except ConfigError as error:  # nothing but weights that are not finite: the last step's loss was, before it
        raise UserError(
            f"{error} Training diverged. Start again (--overwrite) with a lower --lr or --lr-scale."
        ) from error
    except UserError as error:
        raise UserError(f"{error} Training is done and kept: make room, and go on with --resume.") from error
    _draw(options.out, say)
    tidy(options.out, DESCRIPTION)
    world.wait()
    return run


def _sample(train: StorePart, tokens: int, seed: int) -> list[NDArray[np.int64]]:
    """Draw documents of about so many tokens."""
    order = shuffled(np.arange(len(train)), len(train), seed, SAMPLE)[:SAMPLE_DOCUMENTS]
    enough = int(np.searchsorted(np.cumsum(train.lengths[order]), tokens)) + 1
    return [np.asarray(train[int(each)], np.int64) for each in order[:enough]]


def _draw(out: Path, say: Callable[[str], None]) -> None:
    """Draw the curves where matplotlib is there; a run is none the worse without."""
    try:
        curves.save(out / "metrics.jsonl", out)
    except UserError as error:
        say(f"no curves were drawn: {error}")
