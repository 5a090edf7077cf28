"""Text + a base that others pretrained → the same base, adapted: a directory that `--from` takes again.

    RUN/
      pretrain.json, tokens/, metrics.jsonl, curves.png, checkpoints/   as in any pretraining run
      adapted.json         how it was made, and the SHA-256 of all files of the base
      config.json, model.safetensors, tokenizer.json, modules.json, …   when it is done: as the original has them

The training loop, its checkpoints and its processes are those of bases of our own. Every process opens the base; the
first one encodes the text and writes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import rehead
from rehead.bases.brought import Brought
from rehead.bases.encoder import Encoder, import_transformers, load_tokenizer, max_length, quietly
from rehead.bases.files import MODULES, transformer_folder
from rehead.bases.heads import HeadName, head_of, load_language_model
from rehead.bases.sources import is_brought, open_brought
from rehead.errors import UserError
from rehead.model.config import NO_BASE
from rehead.model.model import Model
from rehead.options import read_options
from rehead.pretrain.adapting.contrastive import Contrastive
from rehead.pretrain.adapting.language_modelling import Causal, Masked
from rehead.pretrain.adapting.network_objective import NetworkObjective, expected_seconds, try_step
from rehead.pretrain.adapting.saving import is_adapted, read_details, save_adapted
from rehead.pretrain.adapting.tokens import BroughtTokenizer
from rehead.pretrain.context import Prepared, split_tokens
from rehead.pretrain.directory import description, open_directory
from rehead.pretrain.options import PretrainOptions
from rehead.progress import duration
from rehead.replacing import working_directory
from rehead.runs.run import Run
from rehead.text.documents import ReadOptions
from rehead.text.readers import Texts
from rehead.text.store import TokenStore, build_store
from rehead.training.budget import Budget
from rehead.training.directory import TOKENS, describe_place, roll_back
from rehead.training.distributed import World
from rehead.training.loop import Phase, train
from rehead.training.optimizers import Rates
from rehead.training.state import State

LEAST = 100  # tokens of text
BATCH = 2_048  # tokens per step of a language model
ENOUGH = 1_000_000  # tokens: of less text there are up to three epochs
RATES = {"masked": 5e-5, "causal": 5e-5, "contrastive": 2e-5}  # of AdamW: docs/experiments/adapting.md

Say = Callable[[str], None]


def adapt_in(world: World, options: PretrainOptions, *, say: Say, resume: bool) -> Run | None:
    """Adapt a base in processes that have been started, and save; give its details, or None in all but the first."""
    assert options.base is not None  # noqa: S101 (for the type checker)
    brought = _open(options.base)
    options = dataclasses.replace(options, objective=options.objective or _default_objective(brought))
    _check(brought, options)
    out = options.out
    texts = Texts(options.texts, read_options(options, ReadOptions)) if world.is_main else None
    fingerprint = "" if texts is None else texts.fingerprint()
    if texts is not None:
        open_directory(options, fingerprint, resume=resume, base=brought.digest)
    world.barrier()
    options = dataclasses.replace(options, out=working_directory(out))
    describe_place(out, say)
    if resume and is_adapted(options.out, brought):  # it was stopped after its last step
        return Run(Model(NO_BASE), details=read_details(options.out)) if world.is_main else None
    try:
        parts = _load(brought, options, quiet=options.quiet or not world.is_main)
        if texts is not None:
            build_store(texts, parts.tokenizer, options.out / TOKENS, quiet=options.quiet)
        world.barrier()
        store = TokenStore.open(options.out / TOKENS)
        prepared = split_tokens(store, parts.tokenizer, fingerprint, options.seed, LEAST)
        objective = parts.build(prepared)
        phase = _phase(options, objective, prepared)
    except UserError:
        if texts is not None and not resume:
            roll_back(out)
        raise
    _introduce(say, options, world, objective, prepared, phase)
    state = train([phase], options, world, options.out, resume=resume, quiet=options.quiet, say=say)
    if not world.is_main:
        return None
    details = _details(options, brought, prepared, state)
    save_adapted(brought, objective.network.cpu().eval(), options.out, out.absolute().name, details)
    return Run(Model(NO_BASE), details=details)


def _open(source: str) -> Brought:
    """Open the base; only a Transformer that others pretrained can be adapted."""
    if Path(source).exists() and not is_brought(source):
        raise UserError(
            f"--from {source}: not a base that others pretrained. rehead pretrain goes on with those; one of rehead's "
            "own is pretrained anew on all text."
        )
    brought = open_brought(source)
    if brought.kind != "encoder":
        raise UserError(f"--from {source}: a static table has no layers that could be adapted. Give an encoder.")
    return brought


def _default_objective(brought: Brought) -> str:
    """Give what an encoder was pretrained with; a sentence encoder is only known to stand contrastive training."""
    if (brought.root / MODULES).exists():
        return "contrastive"
    return head_of(brought.root / transformer_folder(brought.root)) or "contrastive"


def _check(brought: Brought, options: PretrainOptions) -> None:
    if options.objective != "contrastive" and (brought.root / MODULES).exists():
        raise UserError(
            f"--objective {options.objective} would disrupt the vectors of {options.base}, a sentence encoder. "
            "Choose --objective contrastive."
        )


@dataclasses.dataclass
class _Parts:
    """A base, loaded for training."""

    tokenizer: BroughtTokenizer
    build: Callable[[Prepared], NetworkObjective]


def _load(brought: Brought, options: PretrainOptions, *, quiet: bool) -> _Parts:
    """Load the network with the tokenizer, and make what builds the objective."""
    root, home = brought.root, brought.root / transformer_folder(brought.root)
    torch.manual_seed(options.seed)  # of parts that the checkpoint does not have, and nothing reads: a pooler
    settings: dict[str, Any] = {"seed": options.seed, "weight_decay": options.weight_decay}
    if options.objective == "contrastive":
        encoder = Encoder(root)
        if encoder.model.config.is_encoder_decoder:
            raise UserError(f"{root}: the encoder of an encoder-decoder model cannot be adapted. Give an encoder.")
        tokenizer = BroughtTokenizer(encoder.tokenizer, str(home), prompt=encoder.prompt, lowercase=encoder.lowercase)
        settings |= {"batch": options.batch, "length": _length(options, encoder.max_length), "quiet": quiet}
        return _Parts(tokenizer, lambda text: Contrastive(encoder, tokenizer, text.train, text.valid, **settings))
    head: HeadName = "masked" if options.objective == "masked" else "causal"
    transformers = import_transformers()
    with quietly(transformers):
        network = load_language_model(home, head)
        given = load_tokenizer(home, transformers)
    tokenizer = BroughtTokenizer(given, str(home))
    time = _length(options, max_length(None, given, network.base_model)) or options.length
    settings |= {"batch": options.batch or max(BATCH, time), "time": time}
    if head == "causal":
        return _Parts(tokenizer, lambda text: Causal(network, text.train, text.valid, **settings))
    share = options.mask_probability
    return _Parts(tokenizer, lambda text: Masked(network, text.train, text.valid, tokenizer, share, **settings))


def _length(options: PretrainOptions, most: int | None) -> int:
    """Give how many tokens are read at once: --length, but the default gives way to what the base can read."""
    if most is None or options.length <= most:
        return options.length
    if options.length != PretrainOptions.length:
        raise UserError(f"--length {options.length}: {options.base} reads {most} tokens at most.")
    return most


def _phase(options: PretrainOptions, objective: NetworkObjective, prepared: Prepared) -> Phase:
    if options.minutes is not None:
        budget = Budget("minutes", options.minutes)
    elif options.tokens is not None:
        budget = Budget("tokens", options.tokens)
    else:
        tokens = int(prepared.train.offsets[-1])
        epochs = max(1.0, min(3.0, ENOUGH / tokens)) if options.epochs is None else options.epochs
        budget = Budget("steps", max(1, round(epochs * objective.steps_in_epoch())))
    rates = Rates(adamw=RATES[objective.name], weight_decay=options.weight_decay)
    return Phase(objective, budget, rates.at(options.lr, options.lr_scale))


def _introduce(
    say: Say, options: PretrainOptions, world: World, objective: NetworkObjective, prepared: Prepared, phase: Phase
) -> None:
    """Say what is about to be trained, on what, and for how long."""
    seconds = try_step(objective, options.accumulate, options.accumulate * world.size, world.device)
    tokens = int(prepared.train.offsets[-1])
    count = sum(each.numel() for each in objective.network.parameters())
    took = duration(expected_seconds(objective, phase.budget, seconds, options.validations))
    say(f"{len(prepared.train):,} documents, {tokens:,} tokens; {len(prepared.valid):,} documents held out")
    say(f"adapting {options.base} ({count:,} parameters): {objective.name} for {phase.budget}, about {took}")
    if phase.budget.kind != "minutes":
        say("--minutes N takes a given time instead, and ends with a learning rate of zero all the same")


def _details(options: PretrainOptions, brought: Brought, prepared: Prepared, state: State) -> dict[str, Any]:
    asked = description(options, prepared.fingerprint, brought.digest)["options"]
    return {
        "objective": options.objective,
        "base": {"source": brought.source, "digest": brought.digest, "license": brought.license},
        "options": {**asked, "texts": options.texts},
        "seed": options.seed,
        "text": prepared.describe(),
        **state.describe(),
        "rehead": rehead.__version__,
    }
