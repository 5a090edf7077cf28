"""What a run has learnt, and so what it can be asked for. What it never learnt it would answer with noise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rehead.errors import UserError
from rehead.model.config import FILLS, Classifier, LanguageModel
from rehead.pretrain.recipe import read_recipe

if TYPE_CHECKING:
    from rehead.runs.run import Run
    from rehead.text.tokenizer import Tokenizer


def stages(run: Run) -> list[tuple[str, ...]]:
    """Name the objectives of a run, stage by stage: "document:0.8,masked+causal:0.2" has two, one of two objectives.

    A run that does not say is taken for what its head is by nature: a language model reads from left to right.
    """
    said = run.details.get("objective")
    if isinstance(said, str) and said.strip():
        return [stage.objectives for stage in read_recipe(said)]
    return [("causal",)] if isinstance(run.model.head_config, LanguageModel) else []


def what_it_learnt(run: Run) -> set[str]:
    """Name what a run can still do: the objectives of its last stage, in no order.

    A later stage moves the weights away from what an earlier one taught. After `masked,causal`, hidden words are
    guessed worse than by their frequency alone.
    """
    return set(_last_stage(run))


def predicts_the_next(run: Run) -> bool:
    """Tell whether a masked word is predicted one position before it, as `hybrid` does, or at its own (`masked`)."""
    return [each for each in _last_stage(run) if each in FILLS][-1:] == ["hybrid"]


def longest_read(run: Run) -> int:
    """Say how many tokens a run has read at once in training; if it does not say, what its positions are made for."""
    options = run.details.get("options")
    length = options.get("length") if isinstance(options, dict) else None
    maxlen = run.model.config.maxlen
    return min(length, maxlen) if type(length) is int and length > 0 else maxlen


def check_it_learnt(run: Run, path: Path, wanted: tuple[str, ...], to: str) -> Tokenizer:
    """Refuse a run that cannot do this (`to` says what, such as "continue a text"); give its tokenizer."""
    again = f"Pretrain one with --objective {' or '.join(wanted)}."
    if isinstance(run.model.head_config, Classifier):
        raise UserError(
            f"{path} is a classifier: its language-model head was replaced, so it cannot {to}. "
            f"Give the run it was fine-tuned from, or: {again}"
        )
    if not what_it_learnt(run) & set(wanted):
        learnt = ",".join("+".join(stage) for stage in stages(run)) or "nothing"
        if any(set(stage) & set(wanted) for stage in stages(run)):
            raise UserError(
                f"{path} can no longer {to}: its objective was {learnt}, and what comes last counts. {again}"
            )
        raise UserError(f"{path} never learnt to {to}: its objective was {learnt}. {again}")
    if run.model.head is None:
        raise UserError(f"{path} has no language-model head, so it cannot {to}. {again}")
    if run.tokenizer is None:
        raise UserError(f"{path} has no tokenizer, so it cannot read a text. Save one beside its weights.")
    return run.tokenizer


def _last_stage(run: Run) -> tuple[str, ...]:
    return (stages(run) or [()])[-1]
