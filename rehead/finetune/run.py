"""Fine-tune a base on labelled text and save the classifier: what `rehead finetune` does.

Without a base, one is pretrained first, on the texts that are given (`rehead.finetune.own_base`).

RUN/
  finetune.json        options and fingerprints, which --resume checks; removed at the end
  .base/               the base, if it is pretrained here; removed at the end
  metrics.jsonl, curves.png, curves.svg
  checkpoints/         the last checkpoint, and the best weights on the validation set
  config.json, model.safetensors, tokenizer.json, labels.json   written at the end
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from rehead.bases.files import head_in
from rehead.errors import ConfigError, UserError
from rehead.finetune.directory import DESCRIPTION, description, open_directory
from rehead.finetune.fit import fit_classifier
from rehead.finetune.fitted import Fitted
from rehead.finetune.options import (
    FinetuneOptions,
    FitOptions,
    check_base,
    check_finetuning,
    check_metric,
    cross_validates,
    pretrains,
    self_trains,
)
from rehead.finetune.splits import first_copies
from rehead.finetune.targets import targets
from rehead.model.config import preset
from rehead.model.model import Model
from rehead.options import check_names, read_options
from rehead.progress import duration
from rehead.replacing import working_directory, writing
from rehead.runs.run import Run, load, save_into
from rehead.runs.starting import open_bases
from rehead.terminal import print_note
from rehead.text.documents import Document, LabelledData, ReadOptions, describe_skipped
from rehead.text.labelled import read_examples
from rehead.text.order import random_bits
from rehead.text.random_streams import Stream
from rehead.text.readers import Texts
from rehead.text.tokenizer import Tokenizer
from rehead.training import curves
from rehead.training.directory import describe_place, finish, is_whole, keeping, roll_back
from rehead.training.distributed import World
from rehead.training.distributed import join_processes as join_world
from rehead.training.resuming import stop_as_interrupt

Say = Callable[[str], None]


def finetune(
    labelled: str | Path | Iterable[str | Path],
    *,
    out: str | Path,
    base: str | Path | Sequence[str | Path] | None = None,
    **options: Any,  # noqa: ANN401
) -> Run:
    """Train a classifier on labelled text, like `rehead finetune`; its options are keyword arguments.

    Without `base`, one is pretrained first, on the labelled texts and those of `unlabelled`. Several bases are a list.
    """
    paths = [labelled] if isinstance(labelled, str | Path) else list(labelled)
    check_names(options, FinetuneOptions, "finetune")
    for name in ("valid", "unlabelled"):
        if isinstance(given := options.get(name), str | Path):
            options[name] = [str(given)]
    given = [base] if isinstance(base, str | Path) else base
    start = None if given is None else [str(each) for each in given]
    with stop_as_interrupt(f"finetune(…, out={str(out)!r}, resume=True)"):
        fitted = run_finetuning(
            FinetuneOptions(labelled=[str(path) for path in paths], out=Path(out), base=start, **options)
        )
    return load(out) if fitted is None else fitted.run


def run_finetuning(options: FinetuneOptions) -> Fitted | None:
    """Fine-tune and save, on a base that is given or pretrained here; return None in all processes but the first."""
    check_finetuning(options)
    began, out = time.monotonic(), options.out
    with join_world(options.device) as world, ExitStack() as held:

        def say(line: str) -> None:
            if world.is_main and not options.quiet:
                print(line, file=sys.stderr)

        if cross_validates(options) and world.size > 1:
            raise UserError("cross-validation runs in one process. Drop torchrun, or give --freeze layers or none.")
        reading = read_options(options, ReadOptions)
        train, valid = _read(options, reading, say)
        check_metric(options, multilabel=train.multilabel)
        unlabelled = read_unlabelled(options.unlabelled, reading) if options.unlabelled else None
        base = None if options.base is None else load_base(options)
        for line in _describe_brought(base):
            say(line)
        resume = options.resume or world.restarted
        if world.is_main:
            held.enter_context(writing(out))
            other = None if unlabelled is None else unlabelled.fingerprint()
            open_directory(options, description(options, train, valid, other, base), resume=resume)
        world.barrier()
        held.enter_context(keeping(out))
        options = dataclasses.replace(options, out=working_directory(out))
        describe_place(out, say)
        if resume and is_whole(out):  # it was stopped after its last step
            fitted = Fitted(run := load(options.out), [], [], run.details["seconds"])
            world.barrier()
            return _finish(options, out, world, fitted, say)
        _describe_data(train, valid, say)
        try:
            if pretrains(options):
                from rehead.finetune.own_base import pretrain_base

                base = pretrain_base(options, world, train, valid, unlabelled, say)
                say(f"part 2 of 2: training a classifier on it ({duration(time.monotonic() - began)} so far)")
            start = base if base is not None else _random_run(options, train)
            _describe_head(start, say)
            fitted = fit_classifier(
                train,
                valid,
                base=None if options.scratch else base,
                like=start,
                options=read_options(options, FitOptions),
                unlabelled=sample_texts(unlabelled, options.seed) if unlabelled and self_trains(options) else None,
                say=say,
                directory=options.out,
                resume=resume,
                quiet=options.quiet,
                world=world,
            )
        except UserError:
            if world.is_main and not resume and not _resumable(options):
                roll_back(out)
            raise
        if pretrains(options) and base is not None:
            fitted.run.details["pretraining"] = base.details
        if world.is_main:
            _save(options, fitted.run, out.absolute().name)
        return _finish(options, out, world, fitted, say)


def read_unlabelled(paths: list[str], reading: ReadOptions | None = None) -> Texts:
    """Open unlabelled text. Empty texts are skipped, as in pretraining; options may be for the labelled files alone."""
    reading = ReadOptions() if reading is None else reading
    return Texts(paths, dataclasses.replace(reading, skip_empty=True), check=False)


def sample_texts(texts: Texts, seed: int) -> list[str]:
    """Read unlabelled text: all of it, or a uniform sample (reservoir sampling) of the maximum for self-training."""
    from rehead.finetune.candidates.self_training import MAX_DOCUMENTS

    kept: list[str] = []
    for count, document in enumerate(texts):
        if count < MAX_DOCUMENTS:
            kept.append(document.text)
        elif (place := int(random_bits(seed, Stream.UNLABELLED_TEXTS, count)[0]) % (count + 1)) < MAX_DOCUMENTS:
            kept[place] = document.text
    return kept


def _read(options: FinetuneOptions, reading: ReadOptions, say: Say) -> tuple[LabelledData, LabelledData | None]:
    """Read the training set, and the validation set if there is one."""
    train = read_examples(options.labelled, reading, allow_single=True)
    if skipped := describe_skipped(train.skipped):
        say(f"skipped: {skipped}")
    for note in train.notes:
        say(f"warning: {note}")
    if not options.valid:
        return train, None
    valid = read_examples(options.valid, reading, check=False)
    targets(valid, train.names, multilabel=train.multilabel)  # refuses unknown labels now, not after minutes
    first = first_copies([*train.texts, *valid.texts])[len(train) :]
    if both := int((first < len(train)).sum()):
        say(
            f"warning: {both:,} of {len(valid):,} validation texts are also in the training set, so validation scores "
            "are too high. Find them with rehead data check --against."
        )
    return train, valid


def load_base(options: FinetuneOptions) -> Run:
    """Open what is given by --from, as one run."""
    base = open_bases(options.base or (), link=options.link)
    own, brought = not base.model.config.empty, list(base.model.brought)
    check_base(options, scratch=options.scratch, own=own, brought=brought)
    if options.link and not brought:
        raise UserError("--link is for bases that others pretrained, and --from gives none. Drop it.")
    if options.link and not cross_validates(options):
        raise UserError(
            "--link refers to a base as it is, but a fine-tuned one has weights of its own, which the run carries. "
            "Drop --link."
        )
    return base


def _describe_brought(base: Run | None) -> Iterator[str]:
    """Say what others pretrained: its size, and how much of a text it reads."""
    for name, each in ({} if base is None else base.model.brought).items():
        engine = each.engine
        limit = "whole texts" if engine.max_length is None else f"{engine.max_length:,} tokens of a text at once"
        stated = f", licence {each.license}" if each.license else ""
        yield f"{name}: {engine.parameters:,} parameters, vectors of {engine.width}, reads {limit}{stated}"


def _random_run(options: FinetuneOptions, train: LabelledData) -> Run:
    """Make a model with random weights, and train or load its tokenizer."""
    if options.tokenizer is None:
        vocab = preset(options.preset).ntokens if options.vocab is None else options.vocab
        documents = (Document(text, source, line) for text, _, source, line in train)
        tokenizer = Tokenizer.train(documents, vocab=vocab, lowercase=True, seed=options.seed, quiet=options.quiet)
    else:
        tokenizer = Tokenizer.load(options.tokenizer)
        for note in tokenizer.notes:
            print_note(note)
    torch.manual_seed(options.seed)
    return Run(Model(preset(options.preset, ntokens=tokenizer.vocab_size, **options.changed_sizes())).eval(), tokenizer)


def _describe_data(train: LabelledData, valid: LabelledData | None, say: Say) -> None:
    """Print the size of the data, and its classes."""
    kinds = "labels (multilabel)" if train.multilabel else "classes"
    sizes = f"{len(train):,} training examples" + ("" if valid is None else f", {len(valid):,} for validation")
    say(f"{sizes}; {len(train.names)} {kinds}: {', '.join(train.names[:8])}{', …' if len(train.names) > 8 else ''}")


def _describe_head(start: Run, say: Say) -> None:
    """Print which head is replaced."""
    if start.model.head is not None and start.model.head_config is not None:
        say(f"replacing the {start.model.head_config.kind} head by a new classifier head")
    for name, each in start.model.brought.items():
        if each.kind == "encoder" and (head := head_in(each.root)):
            say(f"replacing the {head} head of {name} by a new classifier head")


def _resumable(options: FinetuneOptions) -> bool:
    """Tell whether training has begun, of the classifier or of its base: then there is something to resume."""
    if (options.out / "checkpoints").exists():
        return True
    if not pretrains(options):
        return False
    from rehead.finetune.own_base import unfinished

    return unfinished(options.out)


def _save(options: FinetuneOptions, run: Run, name: str) -> None:
    """Write weights and configuration."""
    try:
        save_into(run, options.out, name)
    except ConfigError:
        raise
    except UserError as error:
        raise UserError(f"{error} Free some space, and finish with --resume.") from error


def _finish(options: FinetuneOptions, out: Path, world: World, fitted: Fitted, say: Say) -> Fitted | None:
    """Plot the curves of a saved run if matplotlib is installed, and clean up; give None but in the first process."""
    if world.is_main:
        if (options.out / "metrics.jsonl").exists():
            try:
                curves.save(options.out / "metrics.jsonl", options.out)
            except UserError as error:
                say(f"note: the curves were not plotted: {error}")
        finish(out, DESCRIPTION)
    world.barrier()
    return fitted if world.is_main else None
