"""Text → tokenizer → tokens → objectives → a run.

    RUN/
      pretrain.json        options and fingerprints, until the run is done: what --resume compares with
      tokenizer.json, tokens/   made before the first step; tokens/ is deleted when the run is done
      metrics.jsonl, curves.png, curves.svg
      checkpoints/         the last one, and the best model in validation
      config.json, model.safetensors   when it is done: then `rehead.load` reads it

Under torchrun the first process prepares and writes; the others wait, then read what it made.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

import rehead
from rehead.errors import ConfigError, UserError
from rehead.model.config import ModelConfig, preset
from rehead.model.model import Model
from rehead.model.objectives import Stage, specs_of
from rehead.options import check_names, read_options
from rehead.pretrain.context import Prepared, split_tokens
from rehead.pretrain.directory import DESCRIPTION, description, keep_tokenizer, open_directory
from rehead.pretrain.options import PretrainOptions, check_pretraining, objective_of, shape_of, stages_of
from rehead.pretrain.phases import make_phases
from rehead.pretrain.warm import describe_warm_start, start_embeddings
from rehead.replacing import working_directory, writing
from rehead.runs.run import Run, bring, load, save_into
from rehead.text.documents import ReadOptions
from rehead.text.order import shuffled
from rehead.text.random_streams import Stream
from rehead.text.readers import Texts
from rehead.text.store import TokenStore, build_store
from rehead.text.store_subset import StoreSubset
from rehead.text.tokenizer import Tokenizer
from rehead.training import curves
from rehead.training.directory import TOKENIZER, TOKENS, describe_place, finish, is_whole, keeping, roll_back
from rehead.training.distributed import World, find_device, gather_model
from rehead.training.distributed import join_processes as join_world
from rehead.training.loop import Phase, Watch, train
from rehead.training.objective import Objective
from rehead.training.options import check_training
from rehead.training.resuming import stop_as_interrupt
from rehead.training.state import State
from rehead.views.neural import learn_statistics

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Sample that the statistics of document vectors are estimated from, at most: documents, tokens, tokens in layers.
SAMPLE_DOCUMENTS, SAMPLE_TOKENS, SAMPLE_IN_LAYERS = 20_000, 5_000_000, 300_000
LEAST, LITTLE = 100, 1_000_000  # tokens: fewer are refused, or get a warning

Say = Callable[[str], None]


def pretrain(texts: str | Path | Iterable[str | Path], *, out: str | Path, **options: Any) -> Run:  # noqa: ANN401
    """Pretrain a base on unlabelled text, as `rehead pretrain` does; its options are keyword arguments here."""
    paths = [texts] if isinstance(texts, str | Path) else list(texts)
    check_names(options, PretrainOptions, "pretrain")
    with stop_as_interrupt(f"pretrain(…, out={str(out)!r}, resume=True)"):
        run = run_pretraining(PretrainOptions(texts=[str(path) for path in paths], out=Path(out), **options))
    return load(out) if run is None else run


def run_pretraining(options: PretrainOptions, watch: Watch | None = None) -> Run | None:
    """Pretrain; give the run, or None in all processes but the first.

    `watch` is called after every validation (of a base of rehead's own).
    """
    check_training(options)
    check_pretraining(options)
    with join_world(options.device) as world, ExitStack() as held:
        say = _saying(world, options)
        if options.shard and world.size == 1:
            raise UserError("--shard spreads a model over processes. Start them with torchrun, or drop --shard.")
        if world.is_main:
            held.enter_context(writing(options.out))
        held.enter_context(keeping(options.out))
        resume = options.resume or world.restarted
        if options.base is None:
            run = pretrain_in(world, options, say=say, resume=resume, watch=watch)
        else:
            from rehead.pretrain.adapting.run import adapt_in  # needs more than bases of our own

            run = adapt_in(world, options, say=say, resume=resume)
        if run is not None:
            _draw(working_directory(options.out), say)
            finish(options.out, DESCRIPTION)
        if run is not None and options.base is not None:  # it is read where it is now
            run = dataclasses.replace(bring(options.out), details=run.details)
        world.barrier()
        return run


def pretrain_in(
    world: World,
    options: PretrainOptions,
    *,
    say: Say,
    resume: bool,
    texts: Texts | None = None,
    least: int = LEAST,
    advice: str = "",
    watch: Watch | None = None,
) -> Run | None:
    """Pretrain in processes that have been started, and save; give the run, or None in all but the first.

    What the run was resumed from stays until `finish`. `texts` take the place of the files that the options
    name. Less than `least` tokens of text are refused; where they are little, `advice` says what to do.
    """
    stages, out = stages_of(options), options.out
    opened = _open(options, texts, resume=resume) if world.is_main else None
    world.barrier()
    options = dataclasses.replace(options, out=working_directory(out))
    describe_place(out, say)
    if resume and is_whole(out):  # it was stopped after its last step
        return load(options.out) if world.is_main else None
    try:
        prepared = _prepare(options, world, opened, say, least)
        model = _model(_config(options, prepared.tokenizer), stages, options.seed)
        _warm(options, model, prepared, say)
        phases = make_phases(options, stages, model, prepared)
    except UserError:
        if opened is not None and not resume:
            roll_back(out)
        raise
    _introduce(say, model, prepared, phases, stages, advice)
    state = train(phases, options, world, options.out, resume=resume, quiet=options.quiet, say=say, watch=watch)
    _say_if_stopped(say, phases[-1], state)
    run = _make_run(options, world, prepared, phases[-1].objective, state)
    if run is not None:
        _save(run, options.out, out.absolute().name)
    return run


def pretrain_in_memory(options: PretrainOptions, texts: Texts, *, say: Say, advice: str = "") -> Run:
    """Pretrain in one process and save nothing; `options.out` is an empty directory for the tokenized text."""
    check_training(options)
    check_pretraining(options)
    world, stages = World(device=find_device(options.device)), stages_of(options)
    prepared = _prepare(options, world, Opened(texts, texts.fingerprint(), known=False), say, least=0)
    model = _model(_config(options, prepared.tokenizer), stages, options.seed)
    _warm(options, model, prepared, say)
    phases = make_phases(options, stages, model, prepared)
    _introduce(say, model, prepared, phases, stages, advice)
    state = train(phases, options, world, None, quiet=options.quiet, say=say)
    _say_if_stopped(say, phases[-1], state)
    run = _make_run(options, world, prepared, phases[-1].objective, state)
    assert run is not None  # noqa: S101 (this is the first process)
    return run


def _say_if_stopped(say: Say, phase: Phase, state: State) -> None:
    """Say that training stopped early, and why."""
    if phase.patience is not None and state.phase_step < phase.budget.amount:
        say(f"stopped at step {state.step:,}: the held-out loss has not fallen since step {state.best_step:,}")


class Opened(NamedTuple):
    """The text, and whether the run's directory has its tokenizer already."""

    texts: Texts
    fingerprint: str
    known: bool


def _saying(world: World, options: PretrainOptions) -> Say:
    """Give a function that prints a line to stderr, in the first process and unless --quiet."""

    def say(line: str) -> None:
        if world.is_main and not options.quiet:
            print(line, file=sys.stderr)

    return say


def _open(options: PretrainOptions, texts: Texts | None, *, resume: bool) -> Opened:
    """Fingerprint the text, and create the run's directory or reopen it."""
    texts = Texts(options.texts, read_options(options, ReadOptions)) if texts is None else texts
    fingerprint = texts.fingerprint()
    return Opened(texts, fingerprint, open_directory(options, fingerprint, resume=resume))


def _prepare(options: PretrainOptions, world: World, opened: Opened | None, say: Say, least: int) -> Prepared:
    """Make the tokenizer and the token store, or reopen them."""
    if opened is not None:
        texts, fingerprint, known = opened
        tokenizer = Tokenizer.load(options.out / TOKENIZER) if known else _tokenizer(options, texts)
        if not known:
            for note in tokenizer.notes if options.tokenizer else []:  # training one says them itself
                say(note)
            keep_tokenizer(options, fingerprint, tokenizer)
        store = build_store(texts, tokenizer, options.out / TOKENS, quiet=options.quiet)
    world.barrier()
    if opened is None:
        fingerprint = ""
        tokenizer = Tokenizer.load(options.out / TOKENIZER)
        store = TokenStore.open(options.out / TOKENS)
    return split_tokens(store, tokenizer, fingerprint, options.seed, least)


def _tokenizer(options: PretrainOptions, texts: Texts) -> Tokenizer:
    specs = specs_of(stages_of(options))
    if options.tokenizer is None:
        vocab = preset(options.preset).ntokens if options.vocab is None else options.vocab
        lowercase = not any(spec.generates for spec in specs) if options.lowercase is None else options.lowercase
        return Tokenizer.train(texts, vocab=vocab, lowercase=lowercase, seed=options.seed, quiet=options.quiet)
    tokenizer = Tokenizer.load(options.tokenizer)
    if tokenizer.mask is None and any(spec.needs_mask for spec in specs):
        tokenizer = tokenizer.with_mask()
    return tokenizer


def _config(options: PretrainOptions, tokenizer: Tokenizer) -> ModelConfig:
    return shape_of(options, tokenizer.vocab_size)


def _model(config: ModelConfig, stages: list[Stage], seed: int) -> Model:
    """Make the model, with fresh weights. Its config states what a classifier on it will read: no untrained layers."""
    torch.manual_seed(seed)
    if "bag" in config.views and not any(spec.trains_layers for spec in specs_of(stages)):
        config = dataclasses.replace(config, reads="bag")
    with_head = any(spec.needs_language_model_head for spec in specs_of(stages))
    return Model(config, config.language_model() if with_head else None)


def _warm(options: PretrainOptions, model: Model, prepared: Prepared, say: Say) -> None:
    """Start the embeddings from a brought table, where one is given."""
    if options.embeddings is not None:
        say(start_embeddings(model, prepared.tokenizer, options.embeddings, options.seed))


def _introduce(
    say: Say, model: Model, prepared: Prepared, phases: list[Phase], stages: list[Stage], advice: str
) -> None:
    """Say what is about to be trained, on what, and for how long."""
    tokens = int(prepared.train.offsets[-1])
    count = sum(each.numel() for each in model.parameters())
    say(f"{len(prepared.train):,} documents, {tokens:,} tokens; {len(prepared.valid):,} documents held out")
    if tokens < LITTLE:
        little = f"note: {tokens:,} tokens are little text: pretraining starts to help from about {LITTLE:,} tokens."
        say(f"{little} {advice}".rstrip())
    plans = [f"{each.objective.name} for {each.budget}" for each in phases]
    say(f"training {model.config.learning_part} ({count:,} parameters): {', then '.join(plans)}")
    if warmed := describe_warm_start(model, stages):
        say(warmed)
    if model.config.nlayers and not any(spec.trains_layers for spec in specs_of(stages)):
        say(
            f"note: {phases[-1].objective.name} trains none of the layers of this model ({model.config.nlayers}). They "
            "stay untrained, and a classifier does not use them."
        )
    if not model.config.nlayers and model.head is not None:
        say(
            "note: a language model without layers sees only the current token and the n-grams that end in it. "
            "--preset small trains a Transformer."
        )


def _make_run(
    options: PretrainOptions, world: World, prepared: Prepared, objective: Objective, state: State
) -> Run | None:
    """Learn the statistics of documents, and describe how the run was made; None in all processes but the first."""
    model = gather_model(objective.model, sharded=options.shard)
    if not world.is_main:
        return None
    learn_statistics(model.cpu().eval(), _sample(prepared.train, SAMPLE_TOKENS, options.seed), SAMPLE_IN_LAYERS)
    details = {
        "objective": objective_of(options),
        "options": {**description(options, prepared.fingerprint)["options"], "texts": options.texts},
        "seed": options.seed,
        "text": prepared.describe(),
        **state.describe(),
        "rehead": rehead.__version__,
    }
    return Run(model, prepared.tokenizer, None, details)


def _save(run: Run, out: Path, name: str) -> None:
    """Write weights and configuration."""
    try:
        save_into(run, out, name)
    except ConfigError as error:  # weights that are not finite: the last step diverged after its loss was checked
        raise UserError(
            f"{error} Training diverged. Start again (--overwrite) with a lower --lr or --lr-scale."
        ) from error
    except UserError as error:
        raise UserError(f"{error} Training is done and saved: free some space, and finish with --resume.") from error


def _sample(train: StoreSubset, tokens: int, seed: int) -> list[NDArray[np.int64]]:
    """Sample documents of about so many tokens in total."""
    order = shuffled(np.arange(len(train)), len(train), seed, Stream.STATISTICS_SAMPLE)[:SAMPLE_DOCUMENTS]
    enough = int(np.searchsorted(np.cumsum(train.lengths[order]), tokens)) + 1
    return [np.asarray(train[int(each)], np.int64) for each in order[:enough]]


def _draw(out: Path, say: Say) -> None:
    """Draw the learning curves, if matplotlib is installed."""
    try:
        curves.save(out / "metrics.jsonl", out)
    except UserError as error:
        say(f"no curves were drawn: {error}")
