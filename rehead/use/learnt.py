"""What a run has learnt, and so what it can be asked for. What it never learnt it would answer with noise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rehead.errors import UserError
from rehead.model.config import Classifier
from rehead.model.objectives import Ability, last_specs, names_with, stages_of_run

if TYPE_CHECKING:
    from rehead.runs.run import Run
    from rehead.text.tokenizer import Tokenizer


def predicts_the_next(run: Run) -> bool:
    """Tell whether a masked word is predicted one position before it, as `hybrid` does, or at its own (`masked`)."""
    return [each.fills_one_before for each in last_specs(run) if each.fills][-1:] == [True]


def longest_read(run: Run) -> int:
    """Say how many tokens a run has read at once in training; if it does not say, what its positions are made for."""
    options = run.details.get("options")
    length = options.get("length") if isinstance(options, dict) else None
    maxlen = run.model.config.maxlen
    return min(length, maxlen) if type(length) is int and length > 0 else maxlen


def check_it_learnt(run: Run, path: Path, ability: Ability, to: str) -> Tokenizer:
    """Refuse a run that cannot do this (`to` says what, such as "continue a text"); give its tokenizer."""
    again = f"Pretrain one with --objective {' or '.join(names_with(ability))}."
    if isinstance(run.model.head_config, Classifier):
        raise UserError(
            f"{path} is a classifier: its language-model head was replaced, so it cannot {to}. "
            f"Give the run it was fine-tuned from, or: {again}"
        )
    stages = stages_of_run(run)
    able = [any(getattr(spec, ability) for spec in stage.specs) for stage in stages]
    if not any(able[-1:]):
        learnt = ",".join("+".join(stage.objectives) for stage in stages) or "nothing"
        if any(able):
            raise UserError(
                f"{path} can no longer {to}: its objective was {learnt}, and the last stage counts. {again}"
            )
        raise UserError(f"{path} never learnt to {to}: its objective was {learnt}. {again}")
    if run.model.head is None:
        raise UserError(f"{path} has no language-model head, so it cannot {to}. {again}")
    if run.tokenizer is None:
        raise UserError(f"{path} has no tokenizer, so it cannot read a text. Save one beside its weights.")
    return run.tokenizer
