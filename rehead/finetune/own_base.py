"""A base of the classifier's own: pretrained on the texts at hand where none is given, before the classifier is made.

RUN/.base/   a pretraining run of its own, while the run goes on: resumed from its checkpoint, or reused if it is whole

It reads the labelled texts, without their labels, and the unlabelled ones; never those of the validation set. Little
text is no error here: the base then adds little, and the classifier reads exact words beside it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rehead.finetune.options import FinetuneOptions, pretraining_options
from rehead.pretrain.directory import DESCRIPTION
from rehead.pretrain.options import PretrainOptions
from rehead.pretrain.run import pretrain_in, pretrain_in_memory
from rehead.runs.run import Run, load
from rehead.text.combined import CombinedTexts
from rehead.text.documents import LabelledData
from rehead.text.readers import Texts
from rehead.training.directory import BASE, finish
from rehead.training.distributed import World
from rehead.training.stopping import Stopped

Say = Callable[[str], None]


def pretrain_base(
    options: FinetuneOptions,
    world: World,
    train: LabelledData,
    valid: LabelledData | None,
    unlabelled: Texts | None,
    say: Say,
) -> Run:
    """Pretrain a base inside the run's directory, resume that, or load the one that is there."""
    out = options.out / BASE
    begun, whole = (out / DESCRIPTION).exists(), (out / "config.json").exists()
    world.barrier()  # all processes have looked before the first one writes
    if world.is_main and not begun and not whole:
        shutil.rmtree(out, ignore_errors=True)  # of a process that was killed
    if begun or not whole:
        more = "" if unlabelled is None else "the unlabelled text and "
        say(f"part 1 of 2: pretraining a base on {more}{len(train):,} labelled texts (their labels are not used)")
        texts = CombinedTexts(train.texts, unlabelled or (), leave_out=() if valid is None else valid.texts)
        given = pretraining_options(options, out)
        advice = "Add more of the same kind with --unlabelled."
        pretrain_in(world, given, say=say, resume=begun, texts=texts, least=0, advice=advice)
        if world.is_main:
            finish(out, DESCRIPTION)
            shutil.rmtree(out / "checkpoints", ignore_errors=True)
        world.barrier()
    else:
        say("part 1 of 2: the base is pretrained already")
    return load(out)


def unfinished(out: Path) -> bool:
    """Tell whether a run's base has a checkpoint to resume from."""
    return (out / BASE / DESCRIPTION).exists() and (out / BASE / "checkpoints").exists()


def pretrain_on(texts: Sequence[str], unlabelled: Texts | Sequence[str], *, seed: int, quiet: bool, say: Say) -> Run:
    """Pretrain a base on texts in memory, and keep it there."""
    advice = "Add more of the same kind with unlabelled=."
    with TemporaryDirectory(prefix="rehead-", ignore_cleanup_errors=True) as folder:
        given = PretrainOptions(texts=[], out=Path(folder), seed=seed, quiet=quiet)
        try:
            return pretrain_in_memory(given, CombinedTexts(texts, unlabelled), say=say, advice=advice)
        except Stopped as stopped:  # Ctrl-C: there is nothing to resume
            raise KeyboardInterrupt from stopped
